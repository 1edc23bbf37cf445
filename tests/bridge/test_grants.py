"""Grants: a person allows a tool for the rest of a run, and its further calls do not ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError, SecretGivenError
from ideabridge.bridge.loop.effect import Allow, AskApproval, Cancel, Effect
from ideabridge.bridge.loop.event import (
    APPROVER,
    AT_TERMINAL,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallStarted,
    Decider,
    RequestMade,
    RunStarted,
    SolutionProposed,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

FOR_RUN: JSONObject = {"for": "run"}
TO_ADA: JSONObject = {"properties": {"to": {"const": "Ada"}}, "required": ["to"]}


class Desk:
    """Tools that change things, and what they were called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool
        async def send(to: str, text: str = "") -> str:
            """Send a text."""
            self.ran.append(f"send {to}")
            return to

        @tool
        async def delete(name: str) -> str:
            """Delete something."""
            self.ran.append(f"delete {name}")
            return name

        self.toolbox = Toolbox(send, delete)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def bridge(desk: Desk) -> AsyncIterator[Bridge]:
    async with Bridge(ASKS, toolbox=desk.toolbox) as opened:
        yield opened


def sending(*names: str) -> JSONObject:
    """A plan whose calls ask one after another."""
    calls: list[JSON] = []
    for number, name in enumerate(names):
        # The second call reads the result of the first, so it asks only after that.
        text = f"†state.s{number - 1}" if number else ""
        calls.append({"_tool": "send", "to": name, "text": text, "_outputPath": f"s{number}"})
    return {"calls": calls}


LOOP = """
import tools
for name in input["names"]:
    await tools.send(to=name)
len(input["names"])
"""


def looping(*names: str) -> JSONObject:
    return {"program": LOOP, "input": {"names": [*names]}}


async def settled(run: Run) -> str:
    with anyio.fail_after(30):
        return await run.wait()


async def waiting(run: Run) -> ApprovalRequest:
    """The one question of a run that waits for a person."""
    assert await settled(run) == "needs_approval", run.errors()
    [asked] = run.pending()
    return asked


async def grant(run: Run, given: JSONObject = FOR_RUN) -> None:
    run.decide((await waiting(run)).approval, "approve", by=AT_TERMINAL, grant=given)


async def granted(run: Run) -> dict[int, int | None]:
    """The calls that were approved, each with the call whose grant approved it."""
    return {one.call: one.granted async for one in run.events() if isinstance(one, CallDecided)}


@pytest.mark.parametrize("make", [sending, looping])
async def test_a_grant_holds_for_the_rest_of_the_run(
    bridge: Bridge, desk: Desk, make: type
) -> None:
    run = await bridge.run_plan(make("a", "b", "c"))
    await grant(run)

    assert await settled(run) == "done"
    assert desk.ran == ["send a", "send b", "send c"]
    assert await granted(run) == {0: None, 1: 0, 2: 0}
    assert run.answer()["grants"] == [
        {"call": 0, "tool": "send", "by": "the person at the terminal", "used": 2}
    ]
    assert run.answer()["decided"] == [
        "call 0 (send): approve for the rest of the run by the person at the terminal",
        "call 1 (send): approve (grant of call 0) by the person at the terminal",
        "call 2 (send): approve (grant of call 0) by the person at the terminal",
    ]
    # Nobody was asked about the calls that the grant approved.
    assert [one.call async for one in run.events() if isinstance(one, ApprovalAsked)] == [0]


@pytest.mark.parametrize("make", [sending, looping])
async def test_a_grant_ends_after_its_number_of_calls(
    bridge: Bridge, desk: Desk, make: type
) -> None:
    run = await bridge.run_plan(make("a", "b", "c", "d"))
    await grant(run, {"for": "run", "max": 2})

    assert (await waiting(run)).call["to"] == "d"
    assert desk.ran == ["send a", "send b", "send c"]
    run.decide(run.pending()[0].approval, "deny", by=AT_TERMINAL)
    await settled(run)
    assert desk.ran == ["send a", "send b", "send c"]


@pytest.mark.parametrize("make", [sending, looping])
async def test_a_grant_covers_only_parameters_that_match(
    bridge: Bridge, desk: Desk, make: type
) -> None:
    run = await bridge.run_plan(make("Ada", "Ada", "Eve", "Ada"))
    await grant(run, {"for": "run", "parameters": TO_ADA})

    asked = await waiting(run)
    assert asked.call["to"] == "Eve"
    assert desk.ran == ["send Ada", "send Ada"]
    run.decide(asked.approval, "approve", by=AT_TERMINAL)
    assert await settled(run) == "done"
    assert await granted(run) == {0: None, 1: 0, 2: None, 3: 0}


async def test_a_grant_does_not_cover_another_tool(bridge: Bridge, desk: Desk) -> None:
    program = (
        'import tools\nawait tools.send(to="a")\nawait '
        'tools.delete(name="b")\nawait tools.send(to="c")'
    )
    run = await bridge.run_plan({"program": program})
    await grant(run)

    asked = await waiting(run)
    assert asked.call["_tool"] == "delete"
    run.decide(asked.approval, "approve", by=AT_TERMINAL)
    assert await settled(run) == "done"
    assert await granted(run) == {0: None, 1: None, 2: 0}


async def test_calls_that_wait_already_are_approved_up_to_the_number(
    bridge: Bridge, desk: Desk
) -> None:
    calls: list[JSON] = [{"_tool": "send", "to": name} for name in ("a", "b", "c", "d")]
    run = await bridge.run_plan({"calls": [*calls, {"_tool": "delete", "name": "e"}]})
    await settled(run)
    asked = {str(one.call.get("to")): one.approval for one in run.pending()}
    run.decide(asked["b"], "approve", by=AT_TERMINAL, grant={"for": "run", "max": 2})
    await settled(run)

    assert [one.call.get("to") or one.call.get("name") for one in run.pending()] == ["d", "e"]
    with pytest.raises(DecisionError, match="no approval"):
        run.decide(asked["a"], "deny", by=AT_TERMINAL)

    for one in run.pending():
        run.decide(one.approval, "deny", by=AT_TERMINAL)

    assert await settled(run) == "done"
    assert await granted(run) == {1: None, 0: 1, 2: 1, 3: None, 4: None}
    assert sorted(desk.ran) == ["send a", "send b", "send c"]


async def test_each_item_counts_and_items_are_approved_together(bridge: Bridge, desk: Desk) -> None:
    each: list[JSON] = ["b", "c"]
    calls: list[JSON] = [
        {"_tool": "send", "to": "a", "_outputPath": "a"},
        {"_tool": "send", "_each": each, "to": "†item", "text": "†state.a", "_outputPath": "b"},
        {"_tool": "send", "_each": each, "to": "†item", "text": "†state.b.0", "_outputPath": "c"},
    ]
    run = await bridge.run_plan({"calls": calls})
    await grant(run, {"for": "run", "max": 3})

    assert (await waiting(run)).approval.startswith("a2-")
    assert desk.ran == ["send a", "send b", "send c"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"for": "ever"}, 'expected {"for": "run"'),
        ({"for": "run", "tool": "delete"}, 'expected {"for": "run"'),
        ([], 'expected {"for": "run"'),
        ({"for": "run", "max": 0}, "a whole number from 1 to"),
        ({"for": "run", "max": True}, "a whole number from 1 to"),
        ({"for": "run", "max": 1.5}, "a whole number from 1 to"),
        ({"for": "run", "parameters": "Ada"}, "expected a JSON schema"),
        ({"for": "run", "parameters": {"to": "Ada"}}, "'to' restricts nothing"),
        (
            {"for": "run", "parameters": {"properties": {"to": {"format": "email"}}}},
            "'format' restricts nothing",
        ),
        (
            {"for": "run", "parameters": {"properties": {"two": {"const": "Ada"}}}},
            "'two' is not a parameter of send",
        ),
        ({"for": "run", "parameters": {"required": ["too"]}}, "Did you mean 'to'"),
        ({"for": "run", "parameters": {"type": "objekt"}}, "the schema is invalid"),
        (
            {"for": "run", "parameters": {"$ref": "https://example.org/schema"}},
            "https://example.org/schema",
        ),
        ({"for": "run", "parameters": {"description": "x" * 30_000}}, "at most 20,000 bytes"),
    ],
)
async def test_a_grant_that_does_not_say_what_it_allows_is_refused(
    bridge: Bridge, desk: Desk, given: JSONObject, message: str
) -> None:
    run = await bridge.run_plan(sending("Ada", "Eve"))
    asked = await waiting(run)
    with pytest.raises(DecisionError) as raised:
        run.decide(asked.approval, "approve", by=AT_TERMINAL, grant=given)

    assert message in str(raised.value)
    assert run.pending() == [asked]
    assert desk.ran == []


@pytest.mark.parametrize(
    "by",
    [
        Decider("assistant", "tool"),
        APPROVER,
        Decider("nobody", "time-out"),
        Decider("nobody", "command"),
    ],
)
async def test_only_a_person_grants(bridge: Bridge, desk: Desk, by: Decider) -> None:
    run = await bridge.run_plan(sending("a", "b"))
    asked = await waiting(run)
    with pytest.raises(DecisionError, match="only a person can allow a tool for the rest of a run"):
        run.decide(asked.approval, "approve", by=by, grant=FOR_RUN)

    assert run.pending() == [asked]
    assert desk.ran == []


async def test_a_grant_goes_with_the_approval_of_a_call(bridge: Bridge) -> None:
    run = await bridge.run_plan(sending("a", "b"))
    asked = await waiting(run)
    for decision in (
        Decision("deny", by=AT_TERMINAL, grant=FOR_RUN),
        Decision("edit", call=asked.call, by=AT_TERMINAL, grant=FOR_RUN),
    ):
        with pytest.raises(DecisionError, match="a grant requires `approve`"):
            run.settle(asked.approval, decision)

    lazy = await bridge.run_plan(sending("a"), planning="lazy")
    plan = await waiting(lazy)
    assert plan.kind == "plan"
    with pytest.raises(DecisionError, match="a grant requires `approve`"):
        lazy.decide(plan.approval, "approve", by=AT_TERMINAL, grant=FOR_RUN)


async def test_a_grant_with_a_secret_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret-0123456789")
    configuration = parse_configuration(
        {
            "mcpServers": {"far": {"command": "x", "env": {"T": "${A_TOKEN}"}}},
            "approval": {"default": "read_only"},
        }
    )
    async with Bridge(configuration, toolbox=desk.toolbox) as bridge:
        run = await bridge.run_plan(sending("a", "b"))
        asked = await waiting(run)
        where: JSONObject = {"properties": {"to": {"const": "secret-0123456789"}}}
        with pytest.raises(SecretGivenError, match="grant"):
            run.decide(
                asked.approval, "approve", by=AT_TERMINAL, grant={"for": "run", "parameters": where}
            )

        assert run.pending() == [asked]


async def test_a_denial_by_the_configuration_stays(desk: Desk) -> None:
    rules: JSON = {"default": "read_only", "rules": [{"then": "deny", "tool": "delete"}]}
    configuration = parse_configuration({"approval": rules})
    async with Bridge(configuration, toolbox=desk.toolbox) as bridge:
        program = (
            'import tools\nawait tools.send(to="a")\nawait '
            'tools.send(to="b")\nawait tools.delete(name="c")'
        )
        run = await bridge.run_plan({"program": program})
        await grant(run)
        assert await settled(run) == "failed"
        assert "denied by policy" in str(run.errors())

    assert desk.ran == ["send a", "send b"]


def answered(
    machine: Machine, step: int, tool: Tool, changed: JSONObject | None = None
) -> list[Effect]:
    """Make a Request, answer it with a call of a tool, and return the effects that are due then."""
    machine.receive(RequestMade(step, "request", changed))
    machine.receive(SolutionProposed([{"_tool": tool.name, "to": "a"}], None))
    return machine.due()


@pytest.mark.parametrize(
    "parameters", [{}, {"properties": {"to": {"type": "string", "maxLength": 9}}}]
)
def test_a_changed_tool_asks_again(parameters: JSONObject) -> None:
    tool_ = Tool("send", parameters={"type": "object"}, annotations=Annotations(read_only=False))
    context: list[JSON] = [{"type": "task", "task": "send"}]
    machine = Machine()
    machine.receive(RunStarted("solve", context, [tool_.to_json()], [], Settings().to_json(), None))
    [asked] = answered(machine, 0, tool_)
    assert isinstance(asked, AskApproval)
    machine.receive(ApprovalAsked(0, asked.approval, asked.digest))
    machine.receive(CallDecided(0, asked.digest, "approve", AT_TERMINAL, grant=FOR_RUN))
    machine.receive(CallStarted(0))
    machine.receive(CallFinished(0))
    other = replace(tool_, parameters={"type": "object", **parameters})
    [effect] = answered(machine, 1, tool_, {"tools": [other.to_json()]})

    assert isinstance(effect, AskApproval if parameters else Allow)


def test_a_call_that_is_cancelled_before_its_grant_is_journaled_does_not_count() -> None:
    tool_ = Tool("send", parameters={"type": "object"}, annotations=Annotations(read_only=False))
    context: list[JSON] = [{"type": "task", "task": "send"}]
    machine = Machine()
    machine.receive(RunStarted("solve", context, [tool_.to_json()], [], Settings().to_json(), None))
    machine.receive(RequestMade(0, "request"))
    machine.receive(
        SolutionProposed(
            [{"_tool": "send", "to": one} for one in ("a", "b", "c")], None, pattern="any"
        )
    )
    first, second, third = machine.due()
    assert isinstance(first, AskApproval)
    assert isinstance(second, AskApproval)
    assert isinstance(third, AskApproval)
    # The question about the third call has not been asked yet.
    machine.receive(ApprovalAsked(0, first.approval, first.digest))
    machine.receive(ApprovalAsked(1, second.approval, second.digest))
    machine.receive(
        CallDecided(0, first.digest, "approve", AT_TERMINAL, grant={"for": "run", "max": 5})
    )
    [given] = machine.grants
    assert given.used == 2
    machine.receive(CallStarted(0))
    machine.receive(CallFinished(0, value="a"))

    assert given.used == 0
    [cancel] = machine.due()
    assert isinstance(cancel, Cancel)
    assert cancel.key == (1, None)
    assert [one.status.value for one in machine.history] == ["done", "asking", "cancelled"]
    machine.receive(CallFinished(1, error=cancel.error))
    assert [one.status.value for one in machine.history] == ["done", "cancelled", "cancelled"]


# -- other runs ------------------------------------------------------------------------------------


async def test_a_grant_does_not_reach_another_run(bridge: Bridge) -> None:
    first, second = [await bridge.run_plan(sending("a", "b")) for _ in range(2)]
    await waiting(second)
    await grant(first)

    assert await settled(first) == "done"
    assert (await waiting(second)).call["to"] == "a"


async def test_a_grant_does_not_reach_the_run_of_an_idea_nor_back(
    bridge: Bridge, desk: Desk
) -> None:
    made = await bridge.run_plan(looping("x", "y"))
    await grant(made)
    assert await settled(made) == "done"
    await bridge.publish(made.id, "send_all", answer="program")
    program = """
import tools, ideas
await tools.send(to="a")
await ideas.send_all(names=["b", "c"])
await tools.send(to="d")
"""
    desk.ran.clear()
    run = await bridge.run_plan({"program": program})
    await grant(run)
    while (asked := await waiting(run)).call["_tool"] != "send":
        run.decide(asked.approval, "approve", by=AT_TERMINAL)

    # The idea's own call asks, whatever was granted in the run that calls it.
    assert (asked.call["to"], "/" in asked.approval) == ("b", True)
    [room] = run.rooms.values()
    run.decide(asked.approval, "approve", by=AT_TERMINAL, grant={"for": "run", "max": 1})

    assert await settled(run) == "done"
    assert desk.ran == ["send a", "send b", "send c", "send d"]
    [of_run] = run.machine.grants
    [of_room] = room.machine.grants
    assert (of_run.used, of_room.used) == (1, 1)


async def test_a_fork_has_no_grants(bridge: Bridge, desk: Desk) -> None:
    run = await bridge.run_plan(sending("a", "b", "c"))
    await grant(run)
    assert await settled(run) == "done"
    events = [one async for one in run.events()]
    begun = next(
        place
        for place, one in enumerate(events, 1)
        if isinstance(one, CallStarted) and one.call == 1
    )
    desk.ran.clear()
    fork = await bridge.fork(run.id, begun)

    # Call 1 had already begun in the parent, under its grant, but call 2 asks.
    while (asked := await waiting(fork)).kind == "outcome":
        fork.decide(asked.approval, "value", by=AT_TERMINAL, value="b")

    assert asked.call["to"] == "c"
    assert list(fork.machine.grants) == []


# -- after a crash ---------------------------------------------------------------------------------


def cut(store: Store, whole: Run, events: Sequence[JSONObject], fingerprint: str) -> str:
    """Store a run whose process died after these events."""
    run_id = f"{whole.id}{len(events)}"
    store.runs.create(run_id, kind="plan", caller="local", title="cut", fingerprint=fingerprint)
    epoch = store.leases.acquire(run_id, "nobody", 1.0, 0.0)
    assert epoch is not None
    store.runs.append(run_id, epoch, events)
    store.leases.release(run_id, epoch)
    return run_id


@pytest.mark.parametrize("make", [sending, looping])
async def test_a_grant_is_counted_once_wherever_the_process_dies(
    tmp_path: Path, desk: Desk, make: type
) -> None:
    async with Bridge(ASKS, toolbox=desk.toolbox, store=tmp_path / "store.sqlite") as bridge:
        whole = await bridge.run_plan(make("a", "b", "c", "d"))
        await grant(whole, {"for": "run", "max": 2})
        run = whole
        run.decide((await waiting(run)).approval, "approve", by=AT_TERMINAL)
        assert await settled(run) == "done"
        journal = [one for _, one in bridge.store.runs.events(run.id)]
        decided = [event_from_json(one) for one in journal if one["event"] == "call_decided"]
        assert [one.granted for one in decided if isinstance(one, CallDecided)] == [
            None,
            0,
            0,
            None,
        ]
        record = bridge.store.runs.get(run.id)
        assert record is not None
        first = next(place for place, one in enumerate(journal) if one["event"] == "call_decided")
        cuts = [
            cut(bridge.store, run, journal[:end], record.fingerprint)
            for end in range(first + 1, len(journal))
        ]
    for name in cuts:
        async with Bridge(ASKS, toolbox=desk.toolbox, store=tmp_path / "store.sqlite") as bridge:
            desk.ran.clear()
            run = await bridge.run(name)
            while await settled(run) == "needs_approval":
                [asked] = run.pending()
                # The only call that asks is the one after the two that the grant covers.
                if asked.kind == "call":
                    assert asked.call["to"] == "d"
                run.decide(
                    asked.approval, "approve" if asked.kind == "call" else "retry", by=AT_TERMINAL
                )
            assert run.status == "done"
            [one] = run.machine.grants
            assert one.used == 2
            assert await granted(run) == {0: None, 1: 0, 2: 0, 3: None}
