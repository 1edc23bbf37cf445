"""Journals of earlier versions fold under their rules; what a run does next follows
those of today.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from ideabridge.bridge import Bridge, Store
from ideabridge.bridge.errors import ForkError
from ideabridge.bridge.loop.event import JournalError
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools import JSON, Activity, ActivityContext, JSONObject, Toolbox, tool

pytestmark = pytest.mark.anyio

JOURNALS: Final[dict[str, list[JSONObject]]] = json.loads(
    Path(__file__).with_name("journals_before_rules.json").read_text()
)
"""The journals of runs whose version let a reading tool run any code that a call named, and let
minds write any result.

`other_code` and `written_result` wait for a Solution; `other_code_of_plan` has ended.
"""

DELETED: list[str] = []


@tool(read_only=True)
def show(path: str) -> str:
    """Show a file."""
    return f"shown {path}"


async def wipe(parameters: JSONObject, context: ActivityContext) -> JSON:
    DELETED.append("all")
    return "wiped"


BOX = Toolbox(show, Activity("wipe", wipe), Activity("quick", wipe))
OTHER_CODE: JSONObject = {"calls": [{"_tool": "show", "path": "d", "_activity": "wipe"}]}


@pytest.fixture(autouse=True)
def nothing_is_deleted() -> None:
    DELETED.clear()


async def stored(bridge: Bridge, name: str) -> Run:
    """The run of a journal, as the store holds it after its process has ended."""
    journal = JOURNALS[name]
    store = bridge.store
    run = f"run_{name}"
    kind = "plan" if journal[0]["mode"] == "plan" else "solve"
    store.runs.create(run, kind=kind, caller=LOCAL, title=name, fingerprint=bridge.fingerprint)
    epoch = store.leases.acquire(run, "earlier", 1.0, 0.0)
    assert epoch is not None
    store.runs.append(run, epoch, journal)
    store.runs.set_status(
        run,
        epoch,
        "done" if journal[-1]["event"] == "run_ended" else "needs_solution",
        StoredSummary(),
    )
    store.leases.release(run, epoch)
    return await bridge.run(run)


async def test_calls_that_ran_other_code_under_the_name_of_a_reader_are_what_they_were() -> None:
    async with Bridge(toolbox=BOX) as bridge:
        for name in ("other_code", "other_code_of_plan"):
            run = await stored(bridge, name)
            assert run.state == {"a": "wiped", "b": "quick", "c": "shown c"}
            assert run.answer()["status"] == ("done" if run.machine.ended else "needs_solution")
        assert DELETED == []


async def test_the_next_solution_of_such_a_run_asks_before_other_code_runs() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(toolbox=BOX, store=store) as bridge:
            run = await stored(bridge, "other_code")
            run.submit(1, OTHER_CODE)
            assert await run.wait(30) == "needs_approval"
            assert DELETED == []
        async with Bridge(toolbox=BOX, store=store) as bridge:
            again = await bridge.run(run.id)
            assert again.status == "needs_approval"
            [approval] = again.questions()
            again.decide(approval.approval, "approve", by="the test")
            assert await again.wait(30) == "needs_solution"
            assert DELETED == ["all"]


async def test_a_fork_of_such_a_run_goes_on_under_the_rules_of_today() -> None:
    async with Bridge(toolbox=BOX) as bridge:
        run = await stored(bridge, "other_code")
        fork = await bridge.fork(run.id, at=len(JOURNALS["other_code"]))
        assert fork.state == run.state
        fork.submit(1, OTHER_CODE)
        assert await fork.wait(30) == "needs_approval"
        events = bridge.store.runs.events(fork.id)
        second = await bridge.fork(fork.id, at=len(list(events)))
        assert (await second.wait(30), second.state) == ("needs_approval", run.state)
        other = await bridge.fork(run.id, at=2, solution=OTHER_CODE)
        assert await other.wait(30) == "needs_approval"
        assert DELETED == []


async def test_a_result_that_a_mind_has_written_stays_what_it_is() -> None:
    async with Bridge(toolbox=BOX) as bridge:
        run = await stored(bridge, "written_result")
        assert run.state == {"j": {"k": 1}}
        judged: JSONObject = {"_tool": "judge", "q": "b", "_output": {"k": 2}}
        run.submit(1, {"calls": [judged]})
        assert await run.wait(30) == "needs_solution"
        assert "_output: expected text" in str(run.errors())
        again = await bridge.fork(run.id, at=len(list(bridge.store.runs.events(run.id))))
        assert again.state == {"j": {"k": 1}}
        assert "_output: expected text" in str(again.errors())


async def test_a_journal_that_does_not_fit_is_said_to_be_so_each_time_and_harms_no_other_run() -> (
    None
):
    strange: JSONObject = {"event": "call_started", "call": 7}
    newer: JSONObject = {"event": "from_the_future", "x": 1}
    async with Bridge(toolbox=BOX) as bridge:
        good = await bridge.run_plan({"calls": [{"_tool": "show", "path": "a"}]})
        assert await good.wait(30) == "done"
        for name, event, why in (
            ("other_code", strange, "the run is asking, not solving"),
            ("written_result", newer, "unknown event 'from_the_future'"),
        ):
            journal = [*JOURNALS[name], event]
            bridge.store.runs.create(
                f"run_{name}", kind="solve", caller=LOCAL, title="", fingerprint=""
            )
            epoch = bridge.store.leases.acquire(f"run_{name}", "earlier", 1.0, 0.0)
            assert epoch is not None
            bridge.store.runs.append(f"run_{name}", epoch, journal)
            bridge.store.leases.release(f"run_{name}", epoch)
            for _ in range(2):
                with pytest.raises(JournalError) as caught:
                    await bridge.run(f"run_{name}")
                assert (
                    f"the journal of run run_{name} does not fit this version of ideabridge ({why}"
                    in str(caught.value)
                )

            with pytest.raises(ForkError):
                await bridge.fork(f"run_{name}", len(journal))

            assert len(list(bridge.store.runs.events(f"run_{name}"))) == len(journal)

        assert len(bridge.runs()) == 3
        assert (await bridge.run(good.id)).status == "done"
