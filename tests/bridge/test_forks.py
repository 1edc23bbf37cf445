"""A run goes on from a point of another: what had run is not run again, and the rest may be
other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ideabridge.bridge import Bridge, PlanError, Run, read_plan
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import ForkError, RejectedSolutionError
from ideabridge.bridge.loop.event import CallDecided, CallFinished, CallStarted, RequestMade
from ideabridge.bridge.store.errors import StoreBusyError, UnknownRunError
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ValueMismatchError
from tests.asking import ASKS
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio


class Ran:
    """Tools that note that they ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(read_only=True)
        def look(name: str) -> str:
            """Look."""
            self.calls.append(f"look {name}")
            return f"seen {name}"

        @tool(read_only=False)
        def send(to: str, text: str) -> str:
            """Send."""
            self.calls.append(f"send {to}")
            return f"{to}: {text}"

        self.toolbox = Toolbox(look, send)


PLAN: JSONObject = {
    "calls": [
        {"_tool": "look", "name": "†input.name", "_outputPath": "a"},
        {"_tool": "send", "to": "me", "text": "†state.a", "_outputPath": "b"},
        {"_tool": "look", "name": "†input.other || †state.b", "_outputPath": "c"},
    ],
    "input": {"name": "x"},
    "output": ["†state.a", "†state.b", "†state.c"],
}
ALLOWED = Configuration(approval="allow_all")


async def numbered(run: Run) -> dict[str, int]:
    """`started 1` -> after which event that is so."""
    found: dict[str, int] = {}
    number = 0
    async for event in run.events():
        number += 1
        if isinstance(event, CallStarted | CallFinished | CallDecided):
            found[f"{event.name.removeprefix('call_')} {event.call}"] = number
        else:
            found[
                f"{event.name} {event.step}" if isinstance(event, RequestMade) else event.name
            ] = number

    return found


async def test_a_fork_of_a_plan_runs_only_what_had_not_been_started() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await bridge.run_plan(read_plan(PLAN))
        whole = await parent.result()
        places = await numbered(parent)
        ran.calls.clear()
        for at, again in (
            ("run_started", ["look x", "send me", "look me: seen x"]),
            ("started 0", ["send me", "look me: seen x"]),
            ("finished 0", ["send me", "look me: seen x"]),
            ("started 1", ["look me: seen x"]),
            ("finished 1", ["look me: seen x"]),
            ("finished 2", []),
            ("run_ended", []),
        ):
            fork = await bridge.fork(parent.id, places[at])
            assert await fork.result() == whole, at
            assert ran.calls == again, at
            ran.calls.clear()
            record = bridge.store.runs.get(fork.id)
            assert record is not None
            assert (record.forked_from, record.forked_at) == (parent.id, places[at])
            assert (record.kind, record.title) == ("plan", "look + send")
        assert len(bridge.store.runs.forks(parent.id)) == 7
        assert await numbered(parent) == places


async def test_a_fork_with_another_input_keeps_what_had_run() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await bridge.run_plan(read_plan(PLAN))
        await parent.result()
        places = await numbered(parent)
        ran.calls.clear()
        fork = await bridge.fork(parent.id, places["finished 1"], input={"name": "y", "other": "z"})
        assert await fork.result() == ["seen x", "me: seen x", "seen z"]
        assert ran.calls == ["look z"]
        fork = await bridge.fork(parent.id, places["run_started"], input={"name": "y"})
        assert await fork.result() == ["seen y", "me: seen y", "seen me: seen y"]
        # It can be published like any other run.
        assert (await bridge.publish(fork.id, "looks")).plan is not None


async def test_a_fork_of_a_plan_with_other_calls_begins_anew() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await bridge.run_plan(read_plan({**PLAN, "description": "Look."}))
        await parent.result()
        ran.calls.clear()
        other: JSON = {
            "calls": [{"_tool": "count", "items": "†input.name", "_outputPath": "n"}],
            "output": "†state.n",
        }
        fork = await bridge.fork(parent.id, 3, solution=other, input={"name": "four"})
        assert await fork.result() == 4
        assert ran.calls == []
        with pytest.raises(PlanError, match="nothing supplies"):
            await bridge.fork(
                parent.id, 3, solution={"calls": [{"_tool": "count", "items": "†input.no"}]}
            )


def solution(*calls: JSONObject, output: JSON = None) -> JSON:
    return {"calls": list[JSON](calls), "output": output}


async def solved(bridge: Bridge) -> Run:
    """A run of three turns, which looked twice."""
    run = await bridge.solve("Look around.", input={"name": "x"}, tools=["look", "send"])
    run.submit(0, solution({"_tool": "look", "name": "†input.name", "_outputPath": "a"}))
    await run.wait()
    run.submit(1, solution({"_tool": "look", "name": "†state.a", "_outputPath": "b"}))
    await run.wait()
    run.submit(2, solution(output="†state.b"))
    await run.wait()
    return run


async def test_a_turn_is_answered_anew_and_what_was_before_stays() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await solved(bridge)
        assert await parent.result() == "seen seen x"
        places = await numbered(parent)
        ran.calls.clear()
        other = solution({"_tool": "look", "name": "other", "_outputPath": "b"}, output="†state.b")
        fork = await bridge.fork(parent.id, places["finished 1"], solution=other)
        assert await fork.result() == "seen other"
        assert ran.calls == ["look other"]
        # Its first step is its parent's, and so are its Requests.
        steps = [bridge.store.ideas.of_run(one.id) for one in (parent, fork)]
        assert len(steps[1]) == 2
        assert steps[0][0].id == steps[1][0].id
        assert steps[0][1].request_id == steps[1][1].request_id
        assert steps[1][1].meta.parent == steps[1][0].id
        again = await bridge.fork(parent.id, places["request_made 1"])
        assert (again.status, again.turn) == ("needs_solution", 1)
        assert again.runner.request is not None
        assert again.runner.request.id == steps[0][1].request_id


async def test_another_input_is_what_later_turns_are_told() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await solved(bridge)
        places = await numbered(parent)
        fork = await bridge.fork(parent.id, places["request_made 1"], input={"name": "new"})
        assert fork.runner.request is not None
        told = str(fork.runner.request.texts)
        assert "new" in told
        assert '{"name":"x"}' not in told.replace(" ", "")
        fork.submit(
            1,
            solution(
                {"_tool": "look", "name": "†input.name", "_outputPath": "b"}, output="†state.b"
            ),
        )
        assert await fork.result() == "seen new"
        assert ran.calls.count("look x") == 1


async def test_what_asks_now_asks_in_a_fork_and_what_was_decided_and_ran_stays(
    tmp_path: Path,
) -> None:
    ran = Ran()
    store = tmp_path / "store.sqlite"
    async with Bridge(ASKS, toolbox=ran.toolbox, store=store) as bridge:
        parent = await bridge.run_plan(read_plan(PLAN))
        assert await parent.wait() == "needs_approval"
        [question] = parent.questions()
        parent.decide(question.approval, "approve", by="me")
        await parent.result()
        places = await numbered(parent)
        ran.calls.clear()
        # The decision was about exactly this call, so it holds whatever else is new.
        fork = await bridge.fork(parent.id, places["decided 1"], input={"name": "y"})
        assert await fork.wait() == "done"
        asked = await bridge.fork(parent.id, places["finished 0"])
        assert await asked.wait() == "needs_approval"
        asked.decide(asked.questions()[0].approval, "deny", by="me", reason="not twice")
        assert await asked.wait() == "failed"
        assert "look me: seen x" in ran.calls
        assert ran.calls.count("send me") == 1

    async with Bridge(ALLOWED, toolbox=ran.toolbox, store=store) as bridge:
        ran.calls.clear()
        free = await bridge.fork(parent.id, places["finished 0"])
        await free.result()
        assert ran.calls == ["send me", "look me: seen x"]

    async with Bridge(ASKS, toolbox=ran.toolbox, store=store) as bridge:
        # The call ran without a question in the parent, so it neither runs again nor asks now.
        ran.calls.clear()
        again = await bridge.fork(
            free.id, (await numbered(await bridge.run(free.id)))["finished 1"]
        )
        await again.result()
        assert ran.calls == ["look me: seen x"]


async def test_forks_that_cannot_be() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await solved(bridge)
        last = len([event async for event in parent.events()])
        for at in (0, last + 1):
            with pytest.raises(
                ForkError, match=f"expected 1 to {last}, an event of the run, found {at}"
            ):
                await bridge.fork(parent.id, at)
        with pytest.raises(UnknownRunError):
            await bridge.fork(parent.id, 1, caller="another")
        with pytest.raises(RejectedSolutionError, match="unknown tool"):
            await bridge.fork(parent.id, 2, solution=solution({"_tool": "lok"}))
        plain = await bridge.run_plan(read_plan({"calls": [{"_tool": "count", "items": "abc"}]}))
        await plain.result()
        with pytest.raises(ForkError, match="input: the run takes no input"):
            await bridge.fork(plain.id, 1, input={"a": 1})
        with pytest.raises(
            ForkError,
            match=r"would have taken a different course before event \d+ .*; fork after event \d+",
        ):
            await bridge.fork(parent.id, last, input={"nome": "x"})
        closed: JSONObject = {
            **PLAN,
            "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }
        run = await bridge.run_plan(read_plan(closed))
        await run.result()
        with pytest.raises(ForkError, match="the input"):
            await bridge.fork(run.id, 1, input={"name": 3})
        assert bridge.store.runs.forks(parent.id) == []


# -- any place, any solution -----------------------------------------------------------------------

ANSWERS: list[JSON] = [
    None,
    {},
    {"calls": [], "output": "x"},
    {"calls": [{"_tool": "look", "name": "†input.name"}], "output": "†results.0"},
    {"calls": [{"_tool": "unknown"}]},
    {"calls": [{"_tool": "look", "name": "a", "_instance": "①"}]},
    {"calls": "[{"},
    {"program": "from tools import look\nlook(name='a')"},
    {"program": "not a program("},
    {"pattern": "any", "calls": [{"_tool": "send", "to": "a", "text": "b"}]},
    "junk",
]
TOLD = (ForkError, PlanError, RejectedSolutionError, ValueMismatchError)


async def _by_turns(bridge: Bridge, *answers: JSON, **members: Any) -> Run:
    run = await bridge.solve("x", input={"name": "x"}, **members)
    await run.wait()
    for turn, answer in enumerate(answers):
        run.submit(turn, answer)
        await run.wait()
    return run


async def _session(bridge: Bridge) -> Run:
    async with bridge.session(input={"name": "x"}) as session:
        await session.run({"_tool": "look", "name": "†input.name"})
        await session.run_any([{"_tool": "look", "name": "a"}, {"_tool": "look", "name": "b"}])
        return session.underlying


async def _plan(bridge: Bridge, **members: Any) -> Run:
    run = await bridge.run_plan({**PLAN, **members})
    await run.wait()
    return run


LOOKS: JSON = {
    "calls": [{"_tool": "look", "name": "†input.name", "_outputPath": "a"}, {"_tool": "unknown"}]
}
ENDS: JSON = {"calls": [], "output": "†state.a"}
PROGRAM = "from tools import look\nawait look(name='a')"
MAKERS: dict[str, Callable[[Bridge], Awaitable[Run]]] = {
    "a plan": _plan,
    "a plan over instances": lambda bridge: _plan(bridge, instances={"①": {}, "②": {}}),
    "a program": lambda bridge: _plan(bridge, calls=None, output=None, program=PROGRAM),
    "turns": lambda bridge: _by_turns(bridge, LOOKS, ENDS),
    "a program by turns": lambda bridge: _by_turns(bridge, {"program": PROGRAM}),
    "lazy turns": lambda bridge: _by_turns(bridge, LOOKS, planning="lazy"),
    "a stalled run": lambda bridge: _by_turns(bridge, {}, {}),
    "a session": _session,
}


async def _fork_everywhere(bridge: Bridge, parent: Run) -> None:
    count = len(list(parent.driver.events()))
    refusals: list[str] = []
    for at in sorted({1, 2, 3, *range(4, count, max(1, count // 5)), count}):
        for answer in ANSWERS:
            for given in (None, {"name": "y"}, {}) if answer is None else (None,):
                try:
                    child = await bridge.fork(parent.id, at, solution=answer, input=given)
                except TOLD as error:
                    refusals.append(str(error))
                    continue

                await child.wait(0)
                assert child.runner.failure is None
                child.answer()

    # The messages are for people, so they name neither events that do not fit nor phases of the
    # machine.
    assert not [text for text in refusals if "was taken up" in text or "the run is " in text]


@pytest.mark.parametrize("made", MAKERS)
async def test_a_fork_at_any_place_with_any_solution_runs_or_is_refused_in_words(made: str) -> None:
    async with Bridge(ALLOWED, toolbox=Ran().toolbox) as bridge:
        await _fork_everywhere(bridge, await MAKERS[made](bridge))


async def test_a_fork_of_a_run_whose_mind_streams_runs_or_is_refused_in_words() -> None:
    model = Model(
        cast("JSONObject", LOOKS), cast("JSONObject", ENDS), *[cast("JSONObject", ENDS)] * 1000
    )
    async with Bridge(ALLOWED, toolbox=Ran().toolbox, mind=model) as bridge:
        run = await bridge.solve("x", input={"name": "x"})
        await run.wait()
        await _fork_everywhere(bridge, run)


async def test_the_first_request_is_answered_anew_from_the_very_beginning() -> None:
    async with Bridge(ALLOWED, toolbox=Ran().toolbox) as bridge:
        run = await _by_turns(bridge, LOOKS)
        fork = await bridge.fork(run.id, 1, solution={"calls": [], "output": "at once"})
        assert await fork.result() == "at once"


async def test_a_plan_that_does_not_fit_the_other_input_says_which_call_does_not() -> None:
    async with Bridge(ALLOWED, toolbox=Ran().toolbox) as bridge:
        run = await _plan(bridge)
        with pytest.raises(
            ForkError,
            match=r"the run's calls .*malformed:\ncalls\[0\] \(look\): nothing",
        ):
            await bridge.fork(run.id, 1, input={})


async def test_a_fork_waits_while_somebody_else_writes_into_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Bridge(ALLOWED, toolbox=Ran().toolbox) as bridge:
        parent = await MAKERS["turns"](bridge)
        create_fork = bridge.store.runs.create_fork
        tries = 0

        def locked_twice(*words: Any, **keys: Any) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise StoreBusyError("locked")
            create_fork(*words, **keys)

        monkeypatch.setattr(bridge.store.runs, "create_fork", locked_twice)
        child = await bridge.fork(parent.id, 1)
        assert (tries, child.id == parent.id) == (3, False)
