"""Call patterns: an application that answers each step of a run itself, call by call or in
groups.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    CallDeniedError,
    CallError,
    CallFailedError,
    CancelledCallsError,
    Configuration,
    Decision,
    GroupFailedError,
    NoAlternativeError,
    RejectedSolutionError,
    RunFailedError,
    Session,
)
from ideabridge.bridge.errors import (
    InterruptedRunError,
    PublicationError,
    SettledTurnError,
    UnknownPathError,
)
from ideabridge.bridge.loop.event import CallFinished, GroupCommitted, RequestMade
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import ActivityContext, Toolbox, tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import ActivityError
from tests.asking import ASKS
from tests.modules.conftest import configure, raw

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("writes")]


class Desk:
    """Tools that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.sent: list[str] = []
        self.gates: dict[str, anyio.Event] = {}
        self.changed = anyio.Event()

        @tool(read_only=True)
        async def held(name: str, fails: bool = False, says: JSON = None) -> JSON:
            """Wait until the test lets it go."""
            await self.hold(name)
            if fails:
                raise ValueError(f"{name} broke")
            return name if says is None else says

        @tool(read_only=True)
        async def echo(x: JSON) -> JSON:
            """Give back what was given."""
            return x

        @tool(read_only=False, destructive=False)
        async def send(to: str, waits: bool = False) -> str:
            """Send a message."""
            self.sent.append(to)
            if waits:
                await self.hold(to)
            return f"sent to {to}"

        @tool(read_only=True)
        async def noting(name: str, context: ActivityContext) -> str:
            """Leave a note in the context."""
            context.add_message({"type": "data", "kind": "notes", "data": {name: True}})
            await self.hold(name)
            return name

        self.toolbox = Toolbox(held, echo, send, noting)

    async def hold(self, name: str) -> None:
        self.begun.append(name)
        self._wake()
        try:
            await self.gates.setdefault(name, anyio.Event()).wait()
        except BaseException:
            self.stopped.append(name)
            self._wake()
            raise

    def _wake(self) -> None:
        changed = self.changed
        self.changed = anyio.Event()
        changed.set()

    def open(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, anyio.Event()).set()

    async def until(self, *names: str, stopped: bool = False) -> None:
        with anyio.fail_after(20):
            while not set(names) <= set(self.stopped if stopped else self.begun):
                await self.changed.wait()


@asynccontextmanager
async def a_session(
    desk: Desk, approval: str = "allow_all", store: Path | None = None
) -> AsyncGenerator[Session]:
    # The calls of a group wait for each other here, so all of them must be able to run at once.
    configuration = Configuration.model_validate({"approval": approval, "order": "none"})
    async with (
        Bridge(configuration, toolbox=desk.toolbox, store=store) as bridge,
        bridge.session(state={"city": "Oslo"}, input={"n": 3}) as session,
    ):
        yield session


def held(name: str, path: str | None = None, *, fails: bool = False) -> dict[str, JSON]:
    call: dict[str, JSON] = {"_tool": "held", "name": name, "fails": fails}
    return call if path is None else {**call, "_outputPath": path}


# -- one call --------------------------------------------------------------------------------------


async def test_a_session_is_one_run_whose_steps_the_application_answers() -> None:
    desk = Desk()
    async with Bridge(ASKS, toolbox=desk.toolbox) as bridge:
        async with bridge.session(state={"city": "Oslo"}, input={"n": 3}) as session:
            assert (
                await session.run({"_tool": "echo", "x": "†state.city", "_outputPath": "first"})
                == "Oslo"
            )
            assert await session.run({"_tool": "echo", "x": ["†state.first", "†input.n"]}) == [
                "Oslo",
                3,
            ]
            assert session.state == {"city": "Oslo", "first": "Oslo"}
            assert session.value("†results.1.0") == "Oslo"
            assert session.underlying.status == "needs_solution"
        run = await bridge.run(session.id)
        assert run.status == "done"
        steps = bridge.store.ideas.of_run(session.id)
        assert [bridge.store.ideas.get(one.id, caller=SEES_ALL).meta.tools for one in steps] == [
            ("echo",),
            ("echo",),
        ]


async def test_a_failed_call_raises_by_cause_and_the_session_goes_on() -> None:
    desk = Desk()
    desk.open("a")

    async def approver(request: ApprovalRequest) -> Decision:
        return Decision("deny", reason="not today", by="Ann")

    async with (
        Bridge(toolbox=desk.toolbox, approver=approver) as bridge,
        bridge.session() as session,
    ):
        with pytest.raises(CallFailedError, match="a broke") as failed:
            await session.run(held("a", fails=True))

        assert failed.value.errors[0]["call"] == held("a", fails=True)
        with pytest.raises(CallDeniedError, match="denied by Ann: not today"):
            await session.run({"_tool": "send", "to": "Bob"})

        with pytest.raises(RejectedSolutionError, match="Did you mean 'echo'") as rejected:
            await session.run({"_tool": "ecko", "x": 1})

        assert rejected.value.errors[0]["call"] == {"_tool": "ecko", "x": 1}
        assert desk.sent == []
        assert await session.run({"_tool": "echo", "x": 1, "_each": [1, 2]}) == [1, 1]
        # A failure that `p || q` catches is not an error.
        caught = await session.run(held("a", "value || trouble", fails=True))
        assert isinstance(caught, dict)
        assert session.value("†state.trouble") == caught


# -- all -------------------------------------------------------------------------------------------


async def test_all_give_their_values_in_order_and_write_as_one() -> None:
    desk = Desk()
    async with a_session(desk) as session, anyio.create_task_group() as group:
        given: list[list[JSON]] = []

        async def run_all() -> None:
            given.append(
                await session.run_all(
                    [
                        held("slow", "slow"),
                        held("quick", "quick"),
                        {
                            "_tool": "held",
                            "name": "reader",
                            "says": "†state.quick",
                            "_outputPath": "read",
                        },
                    ]
                )
            )

        group.start_soon(run_all)
        await desk.until("slow", "quick")
        desk.open("quick")
        # What one call has written is visible to the others inside the group, but not outside.
        await desk.until("reader")
        desk.open("reader")
        run = session.underlying
        with anyio.fail_after(20):
            while not run.calls()[2].settled:
                await run.runner.wait_changed()
        assert session.state == {"city": "Oslo"}
        assert run.answer()["state"] == {"city": "Oslo"}
        with pytest.raises(UnknownPathError):
            session.value("†state.quick")
        desk.open("slow")
        with anyio.fail_after(20):
            while not given:
                await run.runner.wait_changed()
        assert given == [["slow", "quick", "quick"]]
        assert session.state == {"city": "Oslo", "quick": "quick", "read": "quick", "slow": "slow"}
        commits = [event async for event in _so_far(session) if isinstance(event, GroupCommitted)]
        assert commits == [GroupCommitted([0, 1, 2])]
        assert await session.run_all([]) == []


async def test_results_without_a_path_are_not_seen_before_the_commit_either() -> None:
    desk = Desk()
    async with a_session(desk) as session, anyio.create_task_group() as group:
        group.start_soon(session.run_all, [held("a"), held("b")])
        await desk.until("a", "b")
        desk.open("a")
        run = session.underlying
        with anyio.fail_after(20):
            while not run.calls()[0].settled:
                await run.runner.wait_changed()
        assert "results" not in run.answer()
        desk.open("b")


async def test_a_failure_cancels_the_rest_and_names_what_happened_outside() -> None:
    desk = Desk()
    async with a_session(desk) as session:
        async with anyio.create_task_group() as group:

            async def run_all() -> None:
                with pytest.raises(GroupFailedError, match="bad broke") as failed:
                    await session.run_all(
                        [
                            {"_tool": "send", "to": "Ann", "_outputPath": "ann"},
                            {"_tool": "send", "to": "Bob", "waits": True, "_outputPath": "bob"},
                            held("fine", "fine"),
                            held("endless", "endless"),
                            held("bad", fails=True),
                            {"_tool": "send", "to": "Cid", "_after": ["never"]},
                            {**held("never"), "_id": "never"},
                        ]
                    )
                error = failed.value
                assert [entry["place"] for entry in error.errors] == [4]
                assert [(one["place"], one["outcome"]) for one in error.effects] == [
                    (0, "done"),
                    (1, "unknown"),
                ]
                assert "calls[0]: done, calls[1]: unknown" in str(error)

            group.start_soon(run_all)
            await desk.until("Bob", "fine", "endless", "bad", "never")
            desk.open("fine")
            desk.open("bad")
        await desk.until("Bob", "endless", "never", stopped=True)
        assert desk.sent == ["Ann", "Bob"]
        assert session.state == {"city": "Oslo"}
        assert "results" not in session.underlying.answer()
        # A new group may write to the path that the failed one was going to write to.
        desk.open("fine")
        assert await session.run_all([held("fine", "fine")]) == ["fine"]
        assert session.state == {"city": "Oslo", "fine": "fine"}


async def test_a_skipped_call_is_no_failure() -> None:
    desk = Desk()
    desk.open("a")
    async with a_session(desk) as session:
        calls: list[dict[str, JSON]] = [
            {**held("a", "good || bad"), "fails": True},
            {"_tool": "echo", "x": "†state.good"},
            {"_tool": "echo", "x": "†state.bad.message"},
        ]
        caught, skipped, told = await session.run_all([{**one} for one in calls])
        assert isinstance(caught, dict)
        assert skipped is None
        assert told == "ValueError: a broke"


# -- any and race ----------------------------------------------------------------------------------


async def test_any_gives_the_first_success_and_the_others_never_write() -> None:
    desk = Desk()
    async with a_session(desk) as session:
        run = session.underlying
        async with anyio.create_task_group() as group:

            async def run_any() -> None:
                calls = [
                    held("bad", "x", fails=True),
                    held("late", "late"),
                    held("good", "x"),
                    held("same", "same"),
                ]
                assert await session.run_any(calls) in ("good", "same")

            group.start_soon(run_any)
            await desk.until("bad", "late", "good", "same")
            desk.open("bad")
            with anyio.fail_after(20):
                while not run.calls()[0].settled:
                    await run.runner.wait_changed()
            # Two calls end at the same moment, and only one of them counts.
            desk.open("good", "same")
        await desk.until("late", stopped=True)
        assert session.state in ({"city": "Oslo", "x": "good"}, {"city": "Oslo", "same": "same"})
        assert session.underlying.errors() == []
        assert sorted(one.status.value for one in run.calls()) == [
            "cancelled",
            "cancelled",
            "done",
            "failed",
        ]


async def test_any_of_which_all_fail_raises_one_error_that_holds_all() -> None:
    desk = Desk()
    desk.open("a", "b")
    async with a_session(desk) as session:
        with pytest.raises(NoAlternativeError, match=r"a broke[^$]*b broke") as failed:
            await session.run_any([held("a", "v || w", fails=True), held("b", fails=True)])
        assert [entry["place"] for entry in failed.value.errors] == [0, 1]
        assert session.state == {"city": "Oslo"}


@pytest.mark.parametrize("fails", [True, False])
async def test_the_first_to_end_decides_a_race(fails: bool) -> None:
    desk = Desk()
    async with a_session(desk) as session:
        async with anyio.create_task_group() as group:

            async def run_race() -> None:
                calls = [held("slow", "slow"), held("quick", "quick", fails=fails)]
                if fails:
                    with pytest.raises(CallFailedError, match="quick broke"):
                        await session.run_race(calls)
                else:
                    assert await session.run_race(calls) == "quick"

            group.start_soon(run_race)
            await desk.until("slow", "quick")
            desk.open("quick")
        await desk.until("slow", stopped=True)
        assert session.state == ({"city": "Oslo"} if fails else {"city": "Oslo", "quick": "quick"})


async def test_alternatives_may_not_depend_on_each_other() -> None:
    desk = Desk()
    reading: dict[str, JSON] = {"_tool": "echo", "x": "†state.a"}
    waiting: dict[str, JSON] = {"_tool": "echo", "x": 1, "_after": ["a"]}
    async with a_session(desk) as session:
        for other in (reading, waiting):
            for pattern in (session.run_any, session.run_race):
                with pytest.raises(RejectedSolutionError, match="none may depend on another"):
                    await pattern([{**held("a", "a"), "_id": "a"}, other])
        with pytest.raises(RejectedSolutionError, match="needs at least one call"):
            await session.run_any([])
        assert desk.begun == []


async def test_alternatives_that_change_things_run_side_by_side() -> None:
    desk = Desk()
    async with a_session(desk) as session, anyio.create_task_group() as group:
        given: list[JSON] = []

        async def run_race() -> None:
            calls: list[dict[str, JSON]] = [
                {"_tool": "send", "to": name, "waits": True} for name in ("a", "b")
            ]
            given.append(await session.run_race(calls))

        group.start_soon(run_race)
        await desk.until("a", "b")
        desk.open("b")
        await desk.until("a", stopped=True)
        await session.run({"_tool": "echo", "x": 1})
        assert given == ["sent to b"]


async def test_a_cancelled_call_leaves_no_message_either() -> None:
    desk = Desk()
    async with a_session(desk) as session:
        async with anyio.create_task_group() as group:
            calls: list[dict[str, JSON]] = [
                {"_tool": "noting", "name": name} for name in ("loser", "winner")
            ]
            group.start_soon(session.run_any, calls)
            await desk.until("loser", "winner")
            desk.open("winner")
        assert session.value("†data.notes") == {"winner": True}


# -- cancelling, approvals, limits -----------------------------------------------------------------


async def test_a_time_out_cancels_the_calls_and_the_session_goes_on() -> None:
    desk = Desk()
    desk.open("quick")
    async with a_session(desk) as session:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await desk.until("endless")
                    scope.cancel()

                group.start_soon(cancel)
                await session.run_all([held("endless", "a"), held("quick", "b")])

        assert scope.cancelled_caught
        await desk.until("endless", stopped=True)
        assert session.state == {"city": "Oslo"}
        assert await session.run(held("quick", "c")) == "quick"
        assert session.state == {"city": "Oslo", "c": "quick"}


async def test_cancelling_the_run_commits_nothing_of_a_group() -> None:
    desk = Desk()
    async with a_session(desk) as session, anyio.create_task_group() as group:

        async def run_all() -> None:
            with pytest.raises(RunFailedError, match=r"ended \(cancelled\): enough"):
                await session.run_all([held("a", "a"), held("b", "b")])

        group.start_soon(run_all)
        await desk.until("a", "b")
        desk.open("a")
        run = session.underlying
        with anyio.fail_after(20):
            while not run.calls()[0].settled:
                await run.runner.wait_changed()
        run.cancel("enough")
        assert session.state == {"city": "Oslo"}
        assert "results" not in run.answer()


async def test_a_group_asks_and_what_waits_for_a_person_is_called_off_with_it() -> None:
    desk = Desk()
    asked, let_go = anyio.Event(), anyio.Event()

    async def approver(request: ApprovalRequest) -> Decision:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            let_go.set()
        raise AssertionError

    async with (
        Bridge(toolbox=desk.toolbox, approver=approver) as bridge,
        bridge.session() as session,
        anyio.create_task_group() as group,
    ):
        calls: list[dict[str, JSON]] = [{"_tool": "send", "to": "Ann"}, held("quick", "quick")]
        group.start_soon(session.run_any, calls)
        with anyio.fail_after(20):
            await asked.wait()
            assert len(session.underlying.approvals()) == 1
            desk.open("quick")
            await let_go.wait()

        assert session.underlying.approvals() == []
        assert desk.sent == []


async def test_a_message_that_comes_too_late_is_refused_and_harms_nothing() -> None:
    kept: list[ActivityContext] = []

    @tool(read_only=True)
    async def keeping(context: ActivityContext) -> str:
        """Keep the context."""
        kept.append(context)
        context.add_message({"type": "data", "kind": "notes", "data": {"in": "time"}})
        return "kept"

    @tool(read_only=True)
    def threaded(context: ActivityContext) -> str:
        """Add a message from the thread that a function runs in."""
        context.add_message({"type": "data", "kind": "notes", "data": {"from": "a thread"}})
        return "told"

    late: dict[str, JSON] = {"type": "data", "kind": "notes", "data": {"too": "late"}}
    async with (
        Bridge(ASKS, toolbox=Toolbox(keeping, threaded)) as bridge,
        bridge.session() as session,
    ):
        calls: list[dict[str, JSON]] = [{"_tool": "keeping"}, {"_tool": "threaded"}]
        assert await session.run_all(calls) == ["kept", "told"]
        with pytest.raises(ActivityError, match="the message comes too late"):
            kept[0].add_message(late)

        with pytest.raises(ActivityError, match="the message comes too late"):
            await anyio.to_thread.run_sync(kept[0].add_message, late)

        assert await session.run({"_tool": "keeping"}) == "kept"
        with pytest.raises(ActivityError, match="the message comes too late"):
            kept[0].add_message(late)

        request = session.underlying.runner.request
        assert request is not None
        assert "in" in str(request.context)
        assert "late" not in str(request.context)

    with pytest.raises(ActivityError, match="the message comes too late"):
        kept[1].add_message(late)


async def test_the_limit_of_parallel_calls_holds_in_a_group() -> None:
    desk = Desk()
    configuration = Configuration.model_validate({"limits": {"parallel_calls": 1}})
    async with (
        Bridge(configuration, toolbox=desk.toolbox) as bridge,
        bridge.session() as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(session.run_all, [held("a"), held("b")])
        await desk.until("a")
        assert desk.begun == ["a"]
        desk.open("a", "b")
        await desk.until("b")


async def test_leaving_a_session_by_an_error_ends_its_run_as_failed() -> None:
    desk = Desk()
    ids: list[str] = []

    async def script(bridge: Bridge) -> None:
        async with bridge.session() as session:
            ids.append(session.id)
            await session.run({"_tool": "echo", "x": 1})
            raise KeyError("x")

    async with Bridge(ASKS, toolbox=desk.toolbox) as bridge:
        with pytest.raises(KeyError):
            await script(bridge)
        run = await bridge.run(ids[0])
        assert (run.status, run.machine.reason) == (
            "failed",
            "the application left the session with KeyError",
        )


async def test_many_steps_are_no_more_requests_than_a_mind_may_be_asked() -> None:
    desk = Desk()
    configuration = Configuration.model_validate({"limits": {"requests": 1}})
    async with Bridge(configuration, toolbox=desk.toolbox) as bridge, bridge.session() as session:
        for number in range(20):
            assert await session.run({"_tool": "echo", "x": number}) == number


async def test_what_loses_is_cancelled_at_its_server_too() -> None:
    configuration = configure({"raw": raw()}, approval="allow_all")
    async with Bridge(configuration) as bridge, bridge.session() as session:
        with anyio.fail_after(20):
            assert (
                await session.run_race([{"_tool": "hang"}, {"_tool": "echo", "_module": "raw"}])
                == "{}"
            )
            # The server says which requests it was told to cancel.
            told: JSON = "[]"
            while told == "[]":
                told = await session.run({"_tool": "cancelled", "_outputPath": "told"})
        assert isinstance(told, str)
        assert len(json.loads(told)) == 1


@pytest.mark.parametrize("pattern", ["all", "any", "race"])
async def test_a_session_with_groups_is_no_plan_but_may_be_published_as_recorded(
    pattern: str,
) -> None:
    desk = Desk()
    desk.open("a", "b")
    async with Bridge(ASKS, toolbox=desk.toolbox) as bridge:
        async with bridge.session() as session:
            run_group = {"all": session.run_all, "any": session.run_any, "race": session.run_race}[
                pattern
            ]
            await run_group([held("a", "a"), held("b", "b")])
            await session.run({"_tool": "echo", "x": "†state.a || †state.b", "_outputPath": "x"})

        with pytest.raises(
            PublicationError, match=rf"a plan runs every call.*step 0 is a group \({pattern}: "
        ):
            await bridge.publish(session.id, "grouped", answer="plan")

        published = await bridge.publish(session.id, "grouped", answer="recorded")
        assert published.answer == "recorded"
        assert (await bridge.start_idea("grouped", {})).output == session.state


# -- taken up again --------------------------------------------------------------------------------


async def test_a_session_taken_up_again_gives_what_is_done_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk()
    desk.open("first")

    async def script(session: Session) -> list[JSON]:
        first = await session.run(held("first", "first"))
        group = await session.run_all([held("a", "a"), held("b", "b")])
        return [first, *group]

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        # The session is never left, as if the process had died.
        run_id = await _abandoned(bridge, script, desk)

    again = Desk()
    again.open("first", "a", "b")
    async with (
        Bridge(ASKS, toolbox=again.toolbox, store=path) as bridge,
        bridge.session(run_id=run_id) as session,
    ):
        with anyio.fail_after(20):
            assert await script(session) == ["first", "a", "b"]

        assert session.state == {"first": "first", "a": "a", "b": "b"}
        assert "first" not in again.begun
        # The group continued where it was: only what had not finished ran again.
        assert again.begun == ["b"]
        first = [
            one async for one in _so_far(session) if isinstance(one, CallFinished) and one.call == 1
        ]
        assert len(first) == 1


async def test_what_was_malformed_and_corrected_is_so_again_when_the_session_is_taken_up(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk()
    told: list[list[dict[str, object]]] = []

    async def script(session: Session) -> list[JSON]:
        alternatives: list[dict[str, JSON]] = [
            {**held("c", "c")},
            {"_tool": "echo", "x": "†state.c"},
        ]
        for _ in range(2):
            with pytest.raises(
                RejectedSolutionError, match="none may depend on another"
            ) as rejected:
                await session.run_any(alternatives)
            told.append(rejected.value.errors)

        with pytest.raises(RejectedSolutionError, match="Did you mean 'echo'"):
            await session.run({"_tool": "ecko", "x": 1})

        # The correction has the same calls in another pattern.
        first = await session.run_all(alternatives)
        return [*first, *await session.run_all([held("a", "a"), held("b", "b")])]

    desk.open("c")
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        run_id = await _abandoned(bridge, script, desk)

    again = Desk()
    again.open("a", "b", "c")
    async with (
        Bridge(ASKS, toolbox=again.toolbox, store=path) as bridge,
        bridge.session(run_id=run_id) as session,
    ):
        with anyio.fail_after(20):
            assert await script(session) == ["c", "c", "a", "b"]
        assert again.begun == ["b"]

    assert told[:2] == told[2:]


async def test_another_solution_for_a_step_that_is_done_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk()

    async def script(session: Session) -> list[JSON]:
        return await session.run_all([held("a", "a"), held("b", "b")])

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        run_id = await _abandoned(bridge, script, desk)

    async with (
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge,
        bridge.session(run_id=run_id) as session,
    ):
        with pytest.raises(SettledTurnError, match="already answered with another solution"):
            await session.run_any([held("a", "a"), held("b", "b")])


async def test_every_class_of_error_says_which_run_it_belongs_to() -> None:
    desk = Desk()
    desk.open("a")
    async with a_session(desk) as session:
        with pytest.raises(CallError) as failed:
            await session.run(held("a", fails=True))
        assert failed.value.run == session.id
        assert not isinstance(failed.value, CancelledCallsError)


async def _so_far(session: Session) -> AsyncIterator[object]:
    async for event in session.underlying.events():
        yield event
        if session.underlying.machine.phase == "asking" and _is_last(session, event):
            return


def _is_last(session: Session, event: object) -> bool:
    return isinstance(event, RequestMade) and event.step == session.underlying.machine.step


async def _abandoned(
    bridge: Bridge, script: Callable[[Session], Awaitable[list[JSON]]], desk: Desk
) -> str:
    """The run of a session whose process dies while `b` runs, and `a` has ended."""
    entered = bridge.session()
    session = await entered.__aenter__()
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(InterruptedRunError):
                await script(session)

        group.start_soon(run)
        await desk.until("a", "b")
        desk.open("a")
        runner = session.underlying.runner
        with anyio.fail_after(20):
            while not any(
                one.call.raw.get("name") == "a" and one.settled
                for one in session.underlying.calls()
            ):
                await runner.wait_changed()

        # A run that this process no longer drives is no longer journaled here.
        runner.abandon("the process died")

    with pytest.raises(InterruptedRunError):
        await entered.__aexit__(None, None, None)

    return session.id
