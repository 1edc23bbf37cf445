"""People: rules, callbacks, time-outs, and decisions that hold for the one call they were made about (DESIGN 4.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ideabridge.bridge import Bridge, Configuration, read_plan
from ideabridge.bridge.configuration import ConfigurationError, fingerprint, parse_configuration
from ideabridge.bridge.loop.event import CallDecided, JournalError
from ideabridge.bridge.loop.policy import approval_timeout, policy_named
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool

pytestmark = pytest.mark.anyio


def configured(approval: JSON) -> Configuration:
    return parse_configuration({"approval": approval}, project=Path.cwd())


def verdict(approval: JSON, one: Tool) -> tuple[str, str]:
    setting = configured(approval).approval_setting
    told = policy_named(setting)(one, {})
    # The journal of a run gives the same.
    again = policy_named(Settings.from_json(Settings(approval=setting).to_json()).approval)(one, {})
    assert again == told
    return told.verdict, told.why


def of(name: str, module: str | None = None, **annotations: bool) -> Tool:
    return Tool(name, annotations=Annotations(**cast("dict[str, Any]", annotations)), module=module)


# -- rules -------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_holds_decides() -> None:
    rules: JSON = {
        "rules": [
            {"module": "git", "tool": "push*", "then": "deny", "why": "not from here"},
            {"module": "git", "then": "allow"},
            {"module": "", "tool": "send", "then": "ask", "why": "it reaches people"},
            {"tool": "send", "then": "deny"},
        ]
    }
    assert verdict(rules, of("push_all", "git")) == ("deny", "not from here")
    assert verdict(rules, of("commit", "git"))[0] == "allow"
    assert verdict(rules, of("send")) == ("ask", "it reaches people")
    assert verdict(rules, of("send", "mail")) == (
        "deny",
        "approval.rules[3] says deny for tool 'send' of module 'mail'",
    )
    # Where no rule holds, the default: read-only calls run, all others ask.
    assert verdict(rules, of("look", read_only=True))[0] == "allow"
    assert verdict(rules, of("look"))[0] == "ask"


def test_a_pattern_finds_the_name_a_module_gave_a_tool_that_was_prefixed() -> None:
    prefixed = Tool("git_push", module="git", remote_name="push")
    for pattern in ("push", "git_push", "p?sh", "[g]it_*"):
        assert verdict({"rules": [{"tool": pattern, "then": "deny"}]}, prefixed)[0] == "deny"
    assert verdict({"rules": [{"tool": "pus", "then": "deny"}]}, prefixed)[0] == "ask"
    assert verdict({"rules": [{"module": "*", "then": "deny"}]}, of("own"))[0] == "ask"


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({}, (False, True, False, True)),
        ({"read_only": True}, (True, False, True, True)),
        ({"read_only": True, "destructive": True}, (True, False, True, True)),
        ({"read_only": False, "destructive": False}, (False, False, False, True)),
        ({"idempotent": True, "open_world": False}, (False, True, True, False)),
    ],
)
def test_rules_by_annotation_take_what_is_not_said_as_mcp_does(
    annotations: dict[str, bool], told: tuple[bool, ...]
) -> None:
    one = Tool("x", annotations=Annotations(**cast("dict[str, Any]", annotations)))
    for name, value in zip(("read_only", "destructive", "idempotent", "open_world"), told, strict=True):
        holds: JSON = {"default": "ask", "rules": [{name: value, "then": "allow"}]}
        other: JSON = {"default": "ask", "rules": [{name: not value, "then": "allow"}]}
        assert verdict(holds, one)[0] == "allow"
        assert verdict(other, one)[0] == "ask"


def test_the_default_where_no_rule_holds() -> None:
    look = of("look", read_only=True)
    assert verdict({"default": "ask"}, look) == (
        "ask",
        "no rule speaks of tool 'look', and approval.default says ask",
    )
    assert verdict({"default": "deny"}, look)[0] == "deny"
    assert verdict({"default": "allow"}, of("write"))[0] == "allow"
    assert verdict({}, look)[0] == "allow"
    assert verdict("allow_all", of("write"))[0] == "allow"
    assert verdict("default", of("write"))[0] == "ask"


def test_what_is_wrong_in_rules_is_told_with_its_place() -> None:
    wrong: JSON = {
        "defalt": "ask",
        "timeout_seconds": 0,
        "rules": [{"then": "allow", "modul": "x"}, {"tool": 5}, {"then": "run"}, 3],
    }
    with pytest.raises(ConfigurationError) as caught:
        configured(wrong)
    text = str(caught.value)
    for line in (
        "approval.defalt: unknown key. Did you mean 'default'?",
        "approval.timeout_seconds: should be greater than 0",
        "approval.rules.0.modul: unknown key. Did you mean 'module'?",
        "approval.rules.1.tool: expected text, found a number",
        "approval.rules.1.then: missing",
        "approval.rules.2.then: expected 'allow', 'ask' or 'deny', found 'run'",
        "approval.rules.3: expected an object, found a number",
    ):
        assert f"ideabridge.json: {line}" in text
    others: list[JSON] = ["ask", 5, None, []]
    for other in others:
        with pytest.raises(ConfigurationError, match="approval: expected 'default', 'allow_all' or an object of rules"):
            configured(other)


def test_the_fingerprint_and_the_settings_of_a_run_cover_rules() -> None:
    one = configured({"rules": [{"tool": "x", "then": "ask"}]})
    other = configured({"rules": [{"tool": "x", "then": "deny"}]})
    timed = configured({"rules": [{"tool": "x", "then": "ask"}], "timeout_seconds": 5})
    assert len({fingerprint(one), fingerprint(other), fingerprint(timed), fingerprint(Configuration())}) == 4
    assert [approval_timeout(each.approval_setting) for each in (one, timed, Configuration())] == [None, 5.0, None]


# -- runs --------------------------------------------------------------------------------------------------------

SENT: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


@tool(destructive=False)
def send(to: str, text: str) -> str:
    """Send a text to somebody."""
    SENT.append(f"{to}: {text}")
    return to


def message(to: str, **more: JSON) -> JSONObject:
    return {"_tool": "send", "to": to, "text": "hello", "_outputPath": to, **more}


async def started(bridge: Bridge, *calls: JSONObject) -> Run:
    return await bridge.run_plan(read_plan({"calls": list[JSON](calls)}))


def pending(run: Run) -> list[Any]:
    return run.approvals()


async def test_rules_hold_in_a_run() -> None:
    approval: JSON = {"rules": [{"tool": "send", "then": "deny", "why": "nothing leaves"}]}
    async with Bridge(configured(approval), toolbox=Toolbox(send)) as bridge:
        run = await started(bridge, message("ada"))
        assert await run.wait(5) == "done"
        assert "nothing leaves" in str(run.errors())
        assert SENT == []


async def test_a_decision_about_another_call_is_refused() -> None:
    async with Bridge(toolbox=Toolbox(send)) as bridge:
        run = await started(bridge, message("ada"), message("eve"))
        assert await run.wait(5) == "needs_approval"
        digests = [one.approval[1] for one in run.calls() if one.approval is not None]
        with pytest.raises(JournalError, match="bound to another call"):
            run.runner.post(CallDecided(0, digests[1], "approve", "somebody"))
        assert [one["call"]["to"] for one in pending(run)] == ["ada", "eve"]
        # Nothing of it stands in the journal.
        again = await bridge.run(run.id)
        assert len(pending(again)) == 2
        assert SENT == []
