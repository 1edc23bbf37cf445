"""Odd results as a host sees them, through `ideabridge serve`: called directly, in a
plan, in a program.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from typing import Any, Literal

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, types

from tests.modules.conftest import SERVERS
from tests.modules.servers.odd import PICTURE
from tests.server.serving import configured, over_stdio, served, text

from .laws import foreign_words
from .switches import ANY, SWITCHES, Switch

Way = Literal["directly", "plan", "program"]
WAYS: tuple[Way, ...] = ("directly", "plan", "program")
SECONDS = 20.0


class Host:
    """A host with one server, which has the odd server behind it."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.tools: dict[str, types.Tool] = {}
        self.took = 0.0
        self._portal = portal
        self._client = client

    def call(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        async def bounded() -> types.CallToolResult:
            with anyio.fail_after(SECONDS):
                return await self._client.call_tool(name, arguments)

        return self._portal.call(bounded)

    def call_in(self, way: Way, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool of the odd server in one of the three ways; the result is that of the run,
        or of the call.
        """
        if way == "directly":
            return self.call(tool, arguments)
        if way == "plan":
            call = {"_tool": tool, "_module": "odd", **arguments, "_outputPath": "x"}
            return self.call("run_plan", {"calls": [call], "output": "†state.x"})

        given = ", ".join(f"{name}=input[{name!r}]" for name in arguments)
        return self.call(
            "run_plan", {"program": f"import odd\nawait odd.{tool}({given})", "input": arguments}
        )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    odd = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "odd.py")]}
    configuration = configured(
        tmp_path_factory.mktemp("host"),
        mcpServers={"odd": odd},
        expose=["modules"],
        approval={"default": "allow"},
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(over_stdio(configuration, "auto", served)) as client,
    ):
        made = Host(portal, client)
        made.call("run_plan", {"calls": [{"_tool": "look", "_module": "odd"}]})
        yield made


CASES = [
    switch
    for switch in SWITCHES
    if switch.own
    and switch.part == "results"
    and switch.era == "legacy"
    and "of a change" not in switch.name
]


def marked() -> list[Any]:
    params: list[Any] = []
    for switch in CASES:
        for way in WAYS:
            params.append(pytest.param(way, switch, id=f"{switch.name}: {way}"))
    return params


@pytest.mark.parametrize(("way", "switch"), marked())
def test_an_odd_result_reaches_a_host_in_every_way(host: Host, way: Way, switch: Switch) -> None:
    assert switch.tool is not None
    result = host.call_in(way, switch.tool, {"edits": json.dumps(switch.edits)})
    whole = result.model_dump_json(by_alias=True)
    # An exception in a program is shown as Python shows it.
    assert not foreign_words(
        [re.sub("Traceback|RuntimeError", "", whole) if way == "program" else whole]
    )
    told: dict[str, Any] = result.structured_content or {}
    if way == "directly":
        failed = result.is_error
    else:
        failed = bool(told.get("errors")) or told.get("status") == "failed"

    value = told if way == "directly" else told.get("output")
    if switch.error is not None:
        assert failed, whole
        assert re.search(switch.error, text(result)) or re.search(switch.error, json.dumps(told)), (
            whole
        )
    elif switch.value is not None:
        assert not failed, whole

    if switch.reaches is not None:
        assert json.dumps(switch.reaches)[1:-1] in whole or switch.reaches in whole

    if switch.value not in (None, ANY):
        assert value == switch.value or (way == "directly" and text(result) == switch.value), whole

    # The other tools work over the same connection.
    after = host.call_in("directly", "look", {})
    assert text(after) == "right: look"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tool", ["picture", "blocks"])
def test_blocks_arrive_as_blocks_in_every_way(host: Host, way: Way, tool: str) -> None:
    result = host.call_in(way, tool, {})
    assert not result.is_error
    images = [block for block in result.content if isinstance(block, types.ImageContent)]
    assert [image.data for image in images] == [PICTURE]
    assert PICTURE not in text(result)
    if tool == "blocks":
        kinds = {block.type for block in result.content}
        assert {"image", "audio", "resource", "resource_link"} <= kinds
        assert "right: blocks" in text(result)
