"""What `servers test` shows of a server that is a little odd."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ideabridge.server.main import main
from tests.trusting import write_trusted

ODD = """
import json, sys
tool = {
    "name": "count",
    "inputSchema": {"type": "dict"},
    "outputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}},
    "tools/list": {"tools": [tool]},
    "tools/call": {"content": [{"type": "text", "text": "seven", "_meta": 5}], "structuredContent": {"number": "7"}},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        error = {"code": -32601, "message": "no such method"}
        answer = {"result": results[message["method"]]} if message["method"] in results else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.fixture
def odd(project: Path) -> None:
    write_trusted(
        project, {"mcpServers": {"odd": {"command": sys.executable, "args": ["-I", "-c", ODD]}}}
    )


@pytest.mark.usefixtures("odd")
def test_the_notes_of_a_module_that_is_tested_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "test", "odd"]) == 0
    said = capsys.readouterr().err
    assert "odd: tool 'count' has an odd input schema" in said
    assert "odd: initialize: serverInfo: is missing" in said


@pytest.mark.usefixtures("odd")
def test_what_a_tool_sent_against_its_schema_is_shown_beside_the_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["servers", "test", "odd", "count", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "does not match its tool's output schema" in said
    assert 'sent the following, which nobody checked: {"structuredContent":{"number":"7"}' in said
    assert "tools/call: content[0]._meta: " in said


def test_answers_to_no_request_are_noted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stray = """
        print(json.dumps({"jsonrpc": "2.0", "id": 4711, "result": {}}), flush=True)
"""
    server = ODD.replace('    if "id" in message:\n', f'    if "id" in message:{stray}')
    write_trusted(
        project, {"mcpServers": {"odd": {"command": sys.executable, "args": ["-I", "-c", server]}}}
    )
    assert main(["servers", "test", "odd"]) == 0
    assert (
        "odd: answered requests that were never sent or are no longer waiting; these answers were skipped"
        in capsys.readouterr().err
    )
