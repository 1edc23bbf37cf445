"""What came of a plan's call that was in flight when its process died: a person is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    Configuration,
    Decision,
    Request,
    read_plan,
)
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.event import JournalError, OutcomeAsked, OutcomeDecided, decider_of
from ideabridge.bridge.loop.question import unknown
from ideabridge.bridge.runs import people
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, UnknownEffectError, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations

pytestmark = pytest.mark.anyio

# Several payments are in flight at the same time when a process ends here.
ALLOW = Configuration(approval="allow_all", order="none")


class Payments:
    """`pay` hangs until `open`; `look` reads what it gave."""

    def __init__(self, *, open: bool = True) -> None:  # noqa: A002 - what they are
        self.open = open
        self.paid: list[str] = []
        self.begun = anyio.Event()
        self.expected = 1

        @tool(destructive=False)
        async def pay(to: str) -> dict[str, int]:
            """Pay somebody."""
            self.paid.append(to)
            if len(self.paid) >= self.expected:
                self.begun.set()
            if not self.open:
                await anyio.sleep_forever()
            return {"receipt": len(self.paid)}

        @tool(read_only=True)
        async def look(at: JSON) -> JSON:
            """Give what it is given."""
            return at

        self.toolbox = Toolbox(pay, look)


PLAN: JSON = {
    "calls": [
        {"_tool": "pay", "to": "Ada", "_outputPath": "paid"},
        {"_tool": "look", "at": "†state.paid.receipt", "_outputPath": "seen"},
    ],
    "output": "†state.seen",
}


async def cut_off(
    store: Path, plan: JSON = PLAN, configuration: Configuration = ALLOW, calls: int = 1
) -> str:
    """A run whose process ended while it paid."""
    payments = Payments(open=False)
    payments.expected = calls
    async with Bridge(configuration, toolbox=payments.toolbox, store=store) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        with anyio.fail_after(20):
            await payments.begun.wait()
        return run.id


def only(run: Run) -> Any:
    [entry] = run.approvals()
    return entry


async def test_a_person_is_asked_what_came_of_a_call_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path)
    payments = Payments()
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "needs_approval"
        entry = only(run)
        assert entry["call"] == {"_tool": "pay", "_outputPath": "paid", "to": "Ada"}
        assert entry["why"].startswith("outcome unknown")
        assert entry["choices"] == ["retry", "skip", "value"]
        assert run.answer()["approvals"] == [entry]
        run.decide(entry["approval"], "retry", by="Ann")
        assert await run.wait(30) == "done"
        assert (payments.paid, run.answer()["output"]) == (["Ada"], 1)


async def test_a_skipped_one_fails_as_unknown_and_is_not_caught(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    calls: list[JSON] = [
        {"_tool": "pay", "to": "Ada", "_outputPath": "paid || refused"},
        {"_tool": "look", "at": "†state.refused", "_outputPath": "seen"},
    ]
    run_id = await cut_off(path, {"calls": calls})
    payments = Payments()
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        run.decide(only(run)["approval"], "skip", by="Ann", reason="ask the bank")
        assert await run.wait(30) == "done"
        errors: list[Any] = [*run.errors()]
        assert [error["error"]["kind"] for error in errors] == ["unknown", "dependency"]
        assert bridge.store.runs.calls_with_an_error(run_id) == {0}
        assert (
            errors[0]["error"]["message"]
            == f"{unknown(None, Annotations())}; skipped by Ann: ask the bank"
        )
        assert payments.paid == []


async def test_a_given_value_is_a_literal_that_satisfies_the_tools_output_schema(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path)
    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        approval = only(run)["approval"]
        wrong: list[tuple[Any, str]] = [
            ({"decision": "value"}, "requires `value`"),
            ({"decision": "value", "value": {"receipt": "†state.paid"}}, "receipt: found "),
            ({"decision": "value", "value": float("nan")}, "cannot be used as the call's result"),
            ({"decision": "approve"}, "expected 'retry', 'skip' or 'value', found 'approve'"),
        ]
        for given, message in wrong:
            with pytest.raises(DecisionError) as refused:
                run.decide(approval, by="Ann", **given)
            assert message in str(refused.value)

        assert run.status == "needs_approval"
        run.decide(approval, "value", by="Ann", value={"receipt": 7})
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == 7

    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        # The journal leads to the same result.
        assert (await bridge.run(run_id)).answer()["output"] == 7


async def test_the_question_outlives_restarts_and_each_crash_asks_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path)
    asked: list[str] = []
    for _ in range(3):
        async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
            run = await bridge.run(run_id)
            asked.append(only(run)["approval"])
            assert bridge.runs()[0]["status"] == "needs_approval"

    assert len(set(asked)) == 1
    payments = Payments(open=False)
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        run.decide(asked[0], "retry", by="Ann")
        with anyio.fail_after(20):
            await payments.begun.wait()

    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        again = only(run)["approval"]
        # The call was in flight again, so an answer to the first question does not answer the
        # second.
        assert again != asked[0]
        with pytest.raises(DecisionError, match="is pending"):
            run.decide(asked[0], "skip", by="Ann")

        run.decide(again, "skip", by="Ann")
        assert await run.wait(30) == "failed"
        kinds = [type(event) async for event in run]
        assert kinds.count(OutcomeAsked) == kinds.count(OutcomeDecided) == 2


async def test_a_decision_bound_to_another_question_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path)
    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        with pytest.raises(JournalError, match="the answer to a different question"):
            run.runner.post(OutcomeDecided(0, "0" * 64, "retry", decider_of("somebody")))

        with pytest.raises(JournalError, match="not running"):
            run.runner.post(OutcomeDecided(1, "0" * 64, "retry", decider_of("somebody")))

        assert only(run)


async def test_items_of_each_are_asked_about_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    calls: list[JSON] = [
        {"_tool": "pay", "_each": ["Ada", "Bob", "Eve"], "to": "†item", "_outputPath": "paid"}
    ]
    run_id = await cut_off(path, {"calls": calls}, calls=3)
    payments = Payments()
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        entries: list[Any] = run.approvals()
        assert [(entry["item"], entry["call"]["to"]) for entry in entries] == [
            (0, "Ada"),
            (1, "Bob"),
            (2, "Eve"),
        ]
        first, second, third = (entry["approval"] for entry in entries)
        run.decide(second, "retry", by="Ann")
        run.decide(first, "value", by="Ann", value={"receipt": 10})
        run.decide(third, "value", by="Ann", value={"receipt": 30})
        assert await run.wait(30) == "done"
        assert run.answer()["state"] == {"paid": [{"receipt": 10}, {"receipt": 1}, {"receipt": 30}]}
        assert payments.paid == ["Bob"]


async def test_the_items_behind_one_whose_outcome_is_unknown_wait_for_the_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    ordered = Configuration(approval="allow_all")
    calls: list[JSON] = [
        {"_tool": "pay", "_each": ["Ada", "Bob"], "to": "†item", "_outputPath": "paid"}
    ]
    run_id = await cut_off(path, {"calls": calls}, ordered)
    payments = Payments()
    async with Bridge(ordered, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        assert only(run)["item"] == 0
        assert payments.paid == []
        run.decide(only(run)["approval"], "value", by="Ann", value={"receipt": 10})
        assert await run.wait(30) == "done"
        assert payments.paid == ["Bob"]
        assert run.answer()["state"] == {"paid": [{"receipt": 10}, {"receipt": 1}]}


async def test_nobody_in_time_skips_and_never_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    rules: JSONObject = {"approval": {"default": "allow", "timeout_seconds": 3600}}
    configuration = parse_configuration(rules, project=tmp_path)
    run_id = await cut_off(path, PLAN, configuration)
    payments = Payments()
    async with Bridge(configuration, toolbox=payments.toolbox, store=path) as bridge:
        assert (await bridge.run(run_id)).status == "needs_approval"

    now = people.time.time()
    monkeypatch.setattr(people.time, "time", lambda: now + 3601)
    async with Bridge(configuration, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        assert await run.wait(30) == "failed"
        assert "skipped by the timeout: nobody decided within 3600 s" in str(run.errors())
        assert payments.paid == []


async def test_the_approver_is_asked_and_its_failure_skips(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        if request.call["to"] == "Ada":
            return Decision("value", value={"receipt": 3}, by="the bank")
        return Decision("approve")

    path = tmp_path / "store.sqlite"
    calls: list[JSON] = [{"_tool": "pay", "to": to, "_outputPath": to} for to in ("Ada", "Eve")]
    run_id = await cut_off(path, {"calls": calls}, calls=2)
    payments = Payments()
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path, approver=approver) as bridge:
        run = await bridge.run(run_id)
        assert await run.wait(30) == "done"
        assert {(one.kind, one.choices) for one in asked} == {
            ("outcome", ("retry", "skip", "value"))
        }
        assert run.answer()["state"] == {"Ada": {"receipt": 3}}
        assert "its decision is not valid" in str(run.errors())
        assert payments.paid == []


async def test_a_mind_is_told_instead(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    payments = Payments(open=False)
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.solve("Pay Ada.")
        run.submit(0, {"calls": [{"_tool": "pay", "to": "Ada", "_outputPath": "paid"}]})
        with anyio.fail_after(20):
            await payments.begun.wait()

    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        again = await bridge.run(run.id)
        assert again.status == "needs_solution"
        assert unknown(None, Annotations()) in str(again.answer()["requests"])


async def test_a_person_is_asked_while_the_program_of_a_mind_waits(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    begun = Payments(open=False)

    async def write_program(_: Request) -> JSONObject:
        return {"program": "import tools\nawait tools.pay(to='Ada')"}

    async with Bridge(ALLOW, mind=write_program, toolbox=begun.toolbox, store=path) as bridge:
        run_id = (await bridge.solve("pay Ada", output_schema={"type": "object"})).id
        with anyio.fail_after(20):
            await begun.begun.wait()

    payments = Payments()
    async with Bridge(ALLOW, mind=write_program, toolbox=payments.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        assert await run.wait(30) == "needs_approval"
        run.decide(only(run)["approval"], "value", by="Ann", value={"receipt": 7})
        assert await run.wait(30) == "done"
        assert (payments.paid, run.answer()["output"]) == ([], {"receipt": 7})


async def test_a_run_with_a_given_value_can_be_published_as_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path)
    async with Bridge(ALLOW, toolbox=Payments().toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        run.decide(only(run)["approval"], "value", by="Ann", value={"receipt": 7})
        assert await run.wait(30) == "done"
        assert (await bridge.publish(run_id, "pay_ada", answer="plan")).answer == "plan"


async def test_a_fork_asks_what_its_parent_asks_and_with_the_same_reason(tmp_path: Path) -> None:
    @tool(destructive=False)
    def pay(to: str) -> dict[str, int]:
        """Pay somebody."""
        raise UnknownEffectError("the bank hung up")

    async with Bridge(ALLOW, toolbox=Toolbox(pay), store=tmp_path / "store") as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "pay", "to": "Ada", "_outputPath": "paid"}]})
        )
        await run.wait()
        asked = only(run)
        assert asked["why"].startswith("outcome unknown: the bank hung up, and")
        places = [event["event"] for _, event in bridge.store.runs.events(run.id)]
        for event in ("call_started", "outcome_asked"):
            # The fork takes over the outcome of the call, even if it begins before anybody was
            # asked.
            fork = await bridge.fork(run.id, places.index(event) + 1)
            await fork.wait()
            assert only(fork) == asked
            fork.decide(asked["approval"], "value", by="person", value={"receipt": 7})
            await fork.wait()
            assert fork.status == "done"
        # What a person said about the call in the parent is also its outcome in the fork.
        run.decide(asked["approval"], "value", by="person", value={"receipt": 8})
        await run.wait()
        fork = await bridge.fork(run.id, places.index("call_started") + 1)
        await fork.wait()
        assert (fork.status, fork.state) == ("done", {"paid": {"receipt": 8}})


async def test_a_fork_of_a_run_that_still_pays_does_not_say_that_a_process_died(
    tmp_path: Path,
) -> None:
    payments = Payments(open=False)
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=tmp_path / "store") as bridge:
        run = await bridge.run_plan(read_plan(PLAN))
        with anyio.fail_after(20):
            await payments.begun.wait()
        names = [event["event"] for _, event in bridge.store.runs.events(run.id)]
        fork = await bridge.fork(run.id, len(names))
        await fork.wait()
        assert only(fork)["why"].startswith(
            "outcome unknown: it had not ended when the run was forked, and"
        )
        assert payments.paid == ["Ada"]


@pytest.mark.parametrize("end", ["cancelled", "limit"])
async def test_a_run_that_is_ended_says_which_calls_may_have_happened(
    end: str, tmp_path: Path
) -> None:
    payments = Payments(open=False)
    payments.expected = 3
    begun = anyio.Event()

    @tool(read_only=True)
    async def slow() -> str:
        """Read for ever."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    plan: JSON = {
        "calls": [
            {"_tool": "pay", "to": "Ada", "_outputPath": "paid"},
            {"_tool": "pay", "to": "†item", "_each": "†input.all", "_outputPath": "many"},
            {"_tool": "slow", "_outputPath": "read"},
            {"_tool": "pay", "to": "†state.read", "_outputPath": "later"},
        ],
        "input": {"all": ["Bob", "Eve"]},
    }
    toolbox = Toolbox(slow)
    toolbox.update(payments.toolbox)
    async with Bridge(ALLOW, toolbox=toolbox, store=tmp_path / "store") as bridge:
        run = await bridge.run_plan(read_plan(plan))
        with anyio.fail_after(20):
            await payments.begun.wait()
            await begun.wait()

        if end == "cancelled":
            run.cancel("enough")
        else:
            run.end_at_limit("its time is up")

        await run.wait()
        why = (
            "outcome unknown: the run ended while it ran, and the tool does not declare that it "
            "may run twice"
        )
        told = [(error["place"], error["error"]) for error in run.errors()]
        assert told == [
            (0, {"kind": "unknown", "message": why}),
            (1, {"kind": "unknown", "message": why, "item": 0}),
            (1, {"kind": "unknown", "message": why, "item": 1}),
        ]

    async with Bridge(ALLOW, toolbox=toolbox, store=tmp_path / "store") as bridge:
        again = await bridge.run(run.id)
        assert (again.status, len(again.errors())) == (end, 3)
