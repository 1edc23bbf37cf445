"""A run waits for modules that are still connecting only where they may have what it asks for."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, PlanError
from ideabridge.bridge.modules.settings import ModuleConfiguration

pytestmark = pytest.mark.anyio

MUTE = ModuleConfiguration(command=sys.executable, args=("-c", "import sys; sys.stdin.read()"))


async def test_a_task_that_names_tools_of_ours_does_not_wait_for_a_mute_module() -> None:
    configuration = Configuration(mcpServers={"mute": MUTE})
    async with Bridge(configuration) as bridge:
        with anyio.move_on_after(0.5) as patience:
            await bridge.solve("Count.", tools=["cou*"])
        assert patience.cancelled_caught, "the server may have such a tool"
        with anyio.fail_after(20):
            run = await bridge.solve("Count.", tools=["count"])
        assert [tool.name for tool in run.machine.catalogue.tools] == ["count"]
        assert bridge.modules["mute"].status().state == "connecting"


def test_who_has_no_module_does_not_wait_for_the_sdk() -> None:
    code = (
        "import sys; from ideabridge.bridge import Bridge; Bridge(); sys.exit('mcp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_call_that_names_no_tool_is_refused_without_waiting_for_a_mute_module() -> None:
    configuration = Configuration(mcpServers={"mute": MUTE})
    async with Bridge(configuration) as bridge:
        with anyio.fail_after(20):
            with pytest.raises(PlanError, match="_tool: missing"):
                await bridge.run_plan([{"items": [1, 2]}])

        assert bridge.modules["mute"].status().state == "connecting"
