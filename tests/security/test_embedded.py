"""What a server serves asks, also where the program that serves it has handed the tools over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import preloaded
from tests.server.serving import call, configured, over_stdio, served

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("embedding_server.py")

TOOL_FILE = """
from ideabridge.tools import tool

@tool(destructive=True)
def send(to: str) -> str:
    \"\"\"Send.\"\"\"
    return "sent"
"""


async def test_tools_that_a_program_serves_ask(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, "auto", lambda _: preloaded.python(SCRIPT)) as client:
        answer = await call(client, "run_plan", calls=[{"_tool": "send", "to": "ada"}])
        assert answer["status"] == "needs_approval"


async def test_tools_of_files_that_are_served_ask(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(TOOL_FILE)
    configuration = configured(tmp_path, tools=["own.py"])
    async with over_stdio(configuration, "auto", served) as client:
        answer = await call(client, "run_plan", calls=[{"_tool": "send", "to": "ada"}])
        assert answer["status"] == "needs_approval"
