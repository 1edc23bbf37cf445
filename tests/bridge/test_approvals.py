"""People: rules, callbacks, timeouts, and decisions that hold for the one call they
were made about.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Configuration, Decision, read_plan
from ideabridge.bridge.configuration import ConfigurationError, fingerprint, parse_configuration
from ideabridge.bridge.errors import DecisionError, FinishedRunError
from ideabridge.bridge.loop.event import CallDecided, JournalError, decider_of
from ideabridge.bridge.loop.policy import approval_timeout, policy_named
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs import people
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool
from tests.asking import ASKS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("writes")]


def configured(approval: JSON) -> Configuration:
    return parse_configuration({"approval": approval}, project=Path.cwd())


def verdict(approval: JSON, one: Tool) -> tuple[str, str]:
    setting = configured(approval).approval_setting
    told = policy_named(setting)(one, {})
    # The settings from the journal of a run give the same verdict.
    again = policy_named(Settings.from_json(Settings(approval=setting).to_json()).approval)(one, {})
    assert again == told
    return told.verdict, told.why


def of(name: str, module: str | None = None, **annotations: bool) -> Tool:
    return Tool(name, annotations=Annotations(**cast("dict[str, Any]", annotations)), module=module)


# -- rules -----------------------------------------------------------------------------------------


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
        "approval.rules[3] says deny for tool 'send' of server 'mail'",
    )
    # If no rule applies, the default does: read-only calls run, and all others ask.
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
    for name, value in zip(
        ("read_only", "destructive", "idempotent", "open_world"), told, strict=True
    ):
        holds: JSON = {"default": "ask", "rules": [{name: value, "then": "allow"}]}
        other: JSON = {"default": "ask", "rules": [{name: not value, "then": "allow"}]}
        assert verdict(holds, one)[0] == "allow"
        assert verdict(other, one)[0] == "ask"


def test_the_default_where_no_rule_holds() -> None:
    look = of("look", read_only=True)
    assert verdict({"default": "ask"}, look) == (
        "ask",
        "no rule matches tool 'look', and approval.default says ask",
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
        with pytest.raises(
            ConfigurationError,
            match="approval: expected 'default', 'allow_all' or an object of rules",
        ):
            configured(other)


def test_the_fingerprint_and_the_settings_of_a_run_cover_rules() -> None:
    one = configured({"rules": [{"tool": "x", "then": "ask"}]})
    other = configured({"rules": [{"tool": "x", "then": "deny"}]})
    timed = configured({"rules": [{"tool": "x", "then": "ask"}], "timeout_seconds": 5})
    assert (
        len(
            {fingerprint(one), fingerprint(other), fingerprint(timed), fingerprint(Configuration())}
        )
        == 4
    )
    assert [approval_timeout(each.approval_setting) for each in (one, timed, Configuration())] == [
        None,
        5.0,
        None,
    ]


# -- runs ------------------------------------------------------------------------------------------

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
        assert await run.wait(30) == "done"
        assert "nothing leaves" in str(run.errors())
        assert SENT == []


async def test_a_decision_about_another_call_is_refused() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await started(bridge, message("ada"), message("eve"))
        assert await run.wait(30) == "needs_approval"
        digests = [one.approval.digest for one in run.calls() if one.approval is not None]
        with pytest.raises(JournalError, match="about a different call"):
            run.runner.post(CallDecided(0, digests[1], "approve", decider_of("somebody")))
        assert [one["call"]["to"] for one in pending(run)] == ["ada", "eve"]
        # None of this is in the journal.
        again = await bridge.run(run.id)
        assert len(pending(again)) == 2
        assert SENT == []


async def test_an_error_about_an_approval_names_a_few_that_are_pending() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await started(bridge, *(message(f"p{number}") for number in range(100)))
        assert await run.wait(30) == "needs_approval"
        with pytest.raises(DecisionError) as refused:
            run.decide("none", "approve", by="somebody")
        names = ", ".join(one["approval"] for one in pending(run)[:5])
        assert str(refused.value) == (
            f"no approval 'none' is pending; the pending ones are {names} and 95 more"
        )
        with pytest.raises(DecisionError, match="no approval 'xxx") as refused:
            run.decide("x" * 100_000, "approve", by="somebody")
        assert len(str(refused.value)) < 500


# -- a callback ------------------------------------------------------------------------------------


async def test_a_callback_decides_on_calls_side_by_side_and_never_mixes_them_up() -> None:
    asked: dict[str, ApprovalRequest] = {}
    all_asked, eve_decided = anyio.Event(), anyio.Event()

    async def approver(request: ApprovalRequest) -> Decision:
        to = str(request.call["to"])
        asked[to] = request
        if len(asked) == 2:
            all_asked.set()

        await all_asked.wait()
        if to == "ada":
            # The call that asked first is answered last.
            await eve_decided.wait()
            return Decision("approve", by="Ann")

        eve_decided.set()
        return Decision("deny", reason="nobody knows her", by="Ann")

    async with Bridge(toolbox=Toolbox(send), approver=approver) as bridge:
        run = await started(bridge, message("ada"), message("eve"))
        assert await run.wait(30) == "done"
        assert SENT == ["ada: hello"]
        assert [error["call"]["to"] for error in cast("list[Any]", run.errors())] == ["eve"]
        assert "denied by Ann: nobody knows her" in str(run.errors())

    request = asked["ada"]
    assert request.tool is not None
    assert (request.run, request.caller, request.tool.name) == (run.id, "local", "send")
    assert request.call == {"_tool": "send", "_outputPath": "ada", "to": "ada", "text": "hello"}
    assert "does not declare that it is read-only" in request.why
    assert request.deadline is None


async def test_a_callback_may_edit_and_is_answered_where_it_fails() -> None:
    async def approver(request: ApprovalRequest) -> Decision:
        match request.call["to"]:
            case "edited":
                return Decision("edit", call={**request.call, "text": "bye"})
            case "unfit":
                return Decision("edit", call={**request.call, "text": 5})
            case "raises":
                raise RuntimeError("out of order")
            case _:
                return cast("Decision", None)

    async with Bridge(toolbox=Toolbox(send), approver=approver) as bridge:
        run = await started(
            bridge, *(message(to) for to in ("edited", "unfit", "raises", "nothing"))
        )
        assert await run.wait(30) == "done"
        assert SENT == ["edited: bye"]
        unfit, raises, nothing = (str(error["error"]) for error in run.errors())
        assert "its decision is not valid" in unfit
        assert "the approver failed: RuntimeError: out of order" in raises
        assert "the approver returned a NoneType; expected a Decision" in nothing


async def test_a_run_whose_decision_cannot_be_taken_is_given_up_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def approve(_request: ApprovalRequest) -> Decision:
        return Decision("approve")

    def refuse(*_: object, **__: object) -> None:
        raise JournalError("the machine does not take it")

    monkeypatch.setattr(Run, "settle", refuse)
    async with Bridge(toolbox=Toolbox(send), approver=approve) as bridge:
        run = await started(bridge, message("anybody"))
        with anyio.fail_after(20):
            await run.wait()
        assert "the machine does not take it" in (run.runner.lost or "")


async def test_a_run_that_waited_for_a_callback_asks_the_next_process(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def silent(request: ApprovalRequest) -> Decision:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def kind(request: ApprovalRequest) -> Decision:
        return Decision("approve")

    store = tmp_path / "ideas.sqlite"
    async with Bridge(toolbox=Toolbox(send), store=store, approver=silent) as bridge:
        run = await started(bridge, message("ada"))
        with anyio.fail_after(20):
            await asked.wait()
        assert run.status == "running"

    async with Bridge(toolbox=Toolbox(send), store=store, approver=kind) as bridge:
        again = await bridge.run(run.id)
        assert await again.wait(30) == "done"
        assert SENT == ["ada: hello"]


async def test_a_decision_made_elsewhere_ends_the_callback() -> None:
    asked, ended = anyio.Event(), anyio.Event()

    async def approver(request: ApprovalRequest) -> Decision:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with Bridge(toolbox=Toolbox(send), approver=approver) as bridge:
        run = await started(bridge, message("ada"))
        with anyio.fail_after(20):
            await asked.wait()
            run.decide(pending(run)[0]["approval"], "approve", by="Ann")
            assert await run.wait(30) == "done"
            await ended.wait()


# -- timeouts --------------------------------------------------------------------------------------


async def test_a_call_nobody_decided_on_in_time_is_denied() -> None:
    async with Bridge(
        configured({"default": "read_only", "timeout_seconds": 0.05}), toolbox=Toolbox(send)
    ) as bridge:
        run = await started(bridge, message("ada", _outputPath="sent || refused"))
        with anyio.fail_after(20):
            while not run.machine.ended:
                await run.runner.wait_changed()
        assert await run.wait(30) == "done"
        state: Any = run.answer()["state"]
        assert state["refused"]["message"] == "denied by the timeout: nobody decided within 0.05 s"
        assert SENT == []


async def test_a_time_out_ends_the_callback_too() -> None:
    async def approver(request: ApprovalRequest) -> Decision:
        assert request.deadline is not None
        await anyio.sleep_forever()
        raise AssertionError

    async with Bridge(
        configured({"default": "read_only", "timeout_seconds": 0.05}),
        toolbox=Toolbox(send),
        approver=approver,
    ) as bridge:
        run = await started(bridge, message("ada"))
        assert await run.wait(30) == "done"
        assert "nobody decided within" in str(run.errors())


async def test_a_time_out_runs_on_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "ideas.sqlite"
    configuration = configured({"default": "read_only", "timeout_seconds": 3600})
    async with Bridge(configuration, toolbox=Toolbox(send), store=store) as bridge:
        early = await started(bridge, message("ada"))
        late = await started(bridge, message("eve"), {**message("bob"), "_after": []})
        assert await late.wait(30) == "needs_approval"
        late_approvals = [one["approval"] for one in pending(late)]

    async with Bridge(configuration, toolbox=Toolbox(send), store=store) as bridge:
        # Within an hour, the approval is still as it was.
        run = await bridge.run(early.id)
        assert run.status == "needs_approval"
        run.decide(pending(run)[0]["approval"], "approve", by="Ann")
        assert await run.wait(30) == "done"

    now = people.time.time()
    monkeypatch.setattr(people.time, "time", lambda: now + 3601)
    async with Bridge(configuration, toolbox=Toolbox(send), store=store) as bridge:
        run = await bridge.run(late.id)
        assert await run.wait(30) == "done"
        assert [error["error"]["kind"] for error in cast("list[Any]", run.errors())] == [
            "denied",
            "denied",
        ]
        with pytest.raises(FinishedRunError):
            run.decide(late_approvals[0], "approve", by="Ann")

    assert SENT == ["ada: hello"]
