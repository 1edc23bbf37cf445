"""Tools that a program hands to its own bridge run without asking; whatever else is loaded asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import (
    ApprovalRequest,
    ApprovalRule,
    ApprovalRules,
    Bridge,
    Configuration,
    ConfigurationError,
    Decision,
    RunFailedError,
    Store,
    parse_configuration,
)
from ideabridge.bridge.configuration import fingerprint
from ideabridge.bridge.loop.policy import policy_named
from ideabridge.tools import Activity, ActivityContext, JSONObject, Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

SENT: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


@tool(destructive=True)
def send(to: str) -> str:
    """Send."""
    SENT.append(to)
    return "sent"


@tool(read_only=True)
def look(to: str) -> str:
    """Look."""
    return to


OWN = Toolbox(send, look)
CALL: JSONObject = {"_tool": "send", "to": "ada"}

TOOL_FILE = """
from ideabridge.tools import tool

@tool(destructive=True)
def send(to: str) -> str:
    \"\"\"Send.\"\"\"
    return "sent by the file"

@tool(destructive=True)
def wipe(to: str) -> str:
    \"\"\"Wipe.\"\"\"
    return "wiped"
"""


async def status(bridge: Bridge, *calls: JSON, **parts: Any) -> str:
    run = await bridge.run_plan({"calls": list(calls), **parts})
    return await run.wait(20)


async def test_a_tool_of_the_program_runs_without_asking() -> None:
    async with Bridge(toolbox=OWN) as bridge:
        assert await status(bridge, CALL) == "done"
        assert SENT == ["ada"]
        assert (await bridge.dry_run({"calls": [CALL]}))["calls"][0].get("asks") is None


async def deny(request: ApprovalRequest) -> Decision:
    """An approver who allows nothing."""
    return Decision("deny", reason=f"not {request.call['to']}")


@pytest.mark.parametrize(
    ("approval", "expected"),
    [
        ("default", "done"),
        ("allow_all", "done"),
        (ApprovalRules(timeout_seconds=60), "done"),
        (ApprovalRules(rules=(ApprovalRule(tool="other", then="deny"),)), "done"),
        (ApprovalRules(default="read_only"), "needs_approval"),
        (ApprovalRules(default="ask"), "needs_approval"),
        (ApprovalRules(rules=(ApprovalRule(destructive=True, then="ask"),)), "needs_approval"),
        (ApprovalRules(rules=(ApprovalRule(tool="SEND", then="ask"),)), "needs_approval"),
    ],
)
async def test_the_configuration_may_say_otherwise(approval: Any, expected: str) -> None:
    async with Bridge(Configuration(approval=approval), toolbox=OWN) as bridge:
        assert await status(bridge, CALL) == expected


async def test_a_program_with_an_approver_is_asked() -> None:
    async with Bridge(toolbox=OWN, approver=deny) as bridge:
        run = await bridge.run_plan({"calls": [CALL]})
        assert await run.wait() == "done"
        assert "not ada" in str(run.errors())
    assert SENT == []


async def test_tools_of_files_ask(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOL_FILE)
    configuration = parse_configuration(
        {"tools": ["tools.py"]}, project=tmp_path, source=tmp_path / "ideabridge.json"
    )
    async with Bridge(configuration, toolbox=Toolbox(look)) as bridge:
        assert await status(bridge, CALL) == "needs_approval"

    async with Bridge(configuration, toolbox=OWN) as bridge:
        # The program's tool has taken the place of the one in the file.
        assert await status(bridge, CALL) == "done"
        assert await status(bridge, {"_tool": "wipe", "to": "x"}) == "needs_approval"

    # Only the definition is the program's: the code comes from the file.
    definition = Toolbox(
        Tool("send", "Send.", OWN.tool("send").parameters, annotations=OWN.tool("send").annotations)
    )
    async with Bridge(configuration, toolbox=definition) as bridge:
        assert await status(bridge, CALL) == "needs_approval"


@pytest.mark.parametrize(
    "call",
    [
        {"_tool": "look", "to": "x", "_activity": "wipe"},
        {"_tool": "send", "to": "x", "_activity": "wipe"},
    ],
)
async def test_a_call_cannot_borrow_the_hints_of_a_tool_for_other_code(
    tmp_path: Path, call: JSONObject
) -> None:
    (tmp_path / "tools.py").write_text(TOOL_FILE)
    configuration = parse_configuration(
        {"tools": ["tools.py"]}, project=tmp_path, source=tmp_path / "ideabridge.json"
    )
    async with Bridge(configuration, toolbox=OWN) as bridge:
        assert await status(bridge, call) == "needs_approval"

    rules = ApprovalRules(
        default="allow", rules=(ApprovalRule(tool=str(call["_activity"]), then="deny"),)
    )
    async with Bridge(configuration.model_copy(update={"approval": rules}), toolbox=OWN) as bridge:
        run = await bridge.run_plan({"calls": [call]})
        assert await run.wait() == "done"
        assert "denied by policy" in str(run.errors())


async def test_a_tool_that_a_context_defines_does_not_pass_for_one_of_the_program(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools.py").write_text(TOOL_FILE)
    configuration = parse_configuration(
        {"tools": ["tools.py"]}, project=tmp_path, source=tmp_path / "ideabridge.json"
    )
    borrowed: JSONObject = {**OWN.tool("send").to_json(), "_activity": "wipe"}
    context: Sequence[JSON] = [{"type": "tool", "tool": borrowed}]
    async with Bridge(configuration, toolbox=OWN) as bridge:
        run = await bridge.solve("x", context=context, mind="turns")
        run.submit(0, {"calls": [CALL], "output": None})
        assert await run.wait() == "needs_approval"

    assert SENT == []


def test_a_file_cannot_name_embedded_tools(tmp_path: Path) -> None:
    digest = OWN.tool("send").digest
    parsed = parse_configuration({"embedded": {"send": [digest, "send"]}}, project=tmp_path)
    assert not parsed.embedded
    assert any("embedded: unknown key" in line for line in parsed.warnings)
    with pytest.raises(ConfigurationError, match="embedded"):
        parse_configuration(
            {"approval": {"embedded": {"send": [digest, "send"]}}}, project=tmp_path
        )


async def test_a_run_that_another_program_takes_up_asks_there(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    async with Bridge(toolbox=OWN, store=path) as bridge:
        run = await bridge.solve("Send.")
        embedded = bridge.fingerprint

    # These are the same tools, but of a program that asks, as `serve`, the command line and a
    # bridge with an approver do.
    async with Bridge(ASKS, toolbox=OWN, store=path) as bridge:
        assert bridge.fingerprint != embedded
        run = await bridge.run(run.id)
        run.submit(0, {"calls": [CALL], "output": None})
        assert await run.wait() == "needs_approval"

    assert SENT == []


def test_the_setting_of_a_run_says_which_tools_are_meant() -> None:
    bridge = Bridge(toolbox=OWN)
    setting = bridge.configuration.approval_setting
    assert json.loads(json.dumps(setting)) == setting
    policy = policy_named(setting)
    own = OWN.tool("send")
    assert policy(own, CALL).verdict == "allow"
    assert policy(Tool("send", "Send.", own.parameters, module="mail"), CALL).verdict == "ask"
    assert policy(Tool("send", "Send.", {"type": "object"}), CALL).verdict == "ask"
    assert fingerprint(bridge.configuration) != fingerprint(Configuration())
    # A bridge without such tools has the fingerprint of its configuration alone.
    assert Bridge(toolbox=Toolbox(look)).fingerprint == Bridge().fingerprint


async def test_an_activity_without_its_tool_is_not_a_tool_of_the_program(tmp_path: Path) -> None:
    async def wipe(arguments: JSONObject, context: ActivityContext) -> JSON:
        return "not the file's"

    (tmp_path / "tools.py").write_text(TOOL_FILE)
    configuration = parse_configuration(
        {"tools": ["tools.py"]}, project=tmp_path, source=tmp_path / "ideabridge.json"
    )
    async with Bridge(configuration, toolbox=Toolbox(Activity("wipe", wipe))) as bridge:
        assert await status(bridge, {"_tool": "wipe", "to": "x"}) == "needs_approval"


async def test_a_call_without_a_session_that_asks_fails_and_is_cancelled() -> None:
    async with Bridge(ASKS, toolbox=OWN) as bridge:
        with pytest.raises(RunFailedError, match="is waiting for approvals"):
            await bridge.call(CALL)
        assert [one["status"] for one in bridge.runs()] == ["failed"]

    assert SENT == []
    with Store.open(":memory:") as store:
        async with Bridge(store=store, toolbox=OWN) as bridge:
            assert await bridge.call(CALL, output=str) == "sent"
