"""A program that is stopped after any event and continued elsewhere gives what it gives in one
piece, and repeats no call that has finished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS

INSIDE = "    "
PARTS = 5


class Bench:
    """Tools, and how often they ran."""

    def __init__(self) -> None:
        self.ran = 0

        @tool(read_only=True)
        async def look(n: int) -> int:
            """Look."""
            await self.work(n)
            return n * 7 % 11

        @tool
        async def add(n: int) -> int:
            """Change something."""
            await self.work(n)
            return n + 1

        @tool(read_only=True)
        async def doubtful(n: int) -> int:
            """Fail for odd numbers."""
            await self.work(n)
            if n % 2:
                raise ActivityError("odd")
            return n

        self.toolbox = Toolbox(look, add, doubtful)

    async def work(self, n: int) -> None:
        """Calls end in another order than they begin."""
        self.ran += 1
        for _ in range(n % 5):
            await anyio.lowlevel.checkpoint()


@st.composite
def expressions(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["total", "total % 9", "input['n']", "1", "4", "len(str(total))"]))


@st.composite
def calls(draw: st.DrawFn) -> str:
    return f"tools.{draw(st.sampled_from(['look', 'look', 'add']))}(n={draw(expressions())})"


@st.composite
def statements(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Some lines of a program. Their result does not depend on the order in which calls end."""
    kinds = ["await", "later", "gather", "doubtful", "tasks"] + (["if", "loop"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "await":
            return [f"total += await {draw(calls())}"]
        case "later":
            return [
                f"one, other = {draw(calls())}, {draw(calls())}",
                "total += await other",
                "total -= await one",
            ]
        case "gather":
            return [
                (
                    "total += sum(await asyncio.gather(*[tools.look(n=k) for k in "
                    f"range({draw(st.integers(0, 4))})]))"
                )
            ]
        case "doubtful":
            call = f"{INSIDE}total += await tools.doubtful(n={draw(expressions())})"
            return [
                "try:",
                call,
                "except RuntimeError as error:",
                f"{INSIDE}total += len(str(error)) % 5",
            ]
        case "tasks":
            return ["total += sum(await asyncio.gather(task(1), task(total), task(3)))"]
        case "if":
            then = draw(statements(depth - 1))
            other = draw(statements(depth - 1))
            lines = [f"{INSIDE}{line}" for line in then], [f"{INSIDE}{line}" for line in other]
            return [f"if {draw(expressions())} % 2:", *lines[0], "else:", *lines[1]]
        case _:
            inner = draw(statements(depth - 1))
            return [
                f"for _ in range({draw(st.integers(0, 3))}):",
                *(f"{INSIDE}{line}" for line in inner),
            ]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The text of `PARTS` programs, of which `input` chooses one: checking types takes longer
    than most runs do.
    """
    task = [
        "async def task(n):",
        f"{INSIDE}first = await tools.look(n=n)",
        f"{INSIDE}return await tools.look(n=first)",
    ]
    text = ["import asyncio, tools", *task, "total = 0"]
    for part in range(PARTS):
        text.append(f"if input['part'] == {part}:")
        text += [
            f"{INSIDE}{line}"
            for some in draw(st.lists(statements(), min_size=1, max_size=4))
            for line in some
        ]
    return "\n".join([*text, "print(total)", "total"])


async def to_the_end(run: Run) -> None:
    """Approve every call, and repeat those whose outcome is unknown."""
    with anyio.fail_after(30):
        while await run.wait() == "needs_approval":
            for question in run.questions():
                run.decide(
                    question.approval, "retry" if question.kind == "outcome" else "approve", by="me"
                )


def cut_journal(store: Store, whole: Run, events: Sequence[JSONObject], fingerprint: str) -> str:
    """Store a run whose process died after these events."""
    run_id = f"{whole.id}{len(events)}"
    store.runs.create(run_id, kind="plan", caller="local", title="cut", fingerprint=fingerprint)
    epoch = store.leases.acquire(run_id, "nobody", 1.0, 0.0)
    assert epoch is not None
    store.runs.append(run_id, epoch, events)
    store.leases.release(run_id, epoch)
    return run_id


class Stage:
    """A bridge that stays open over many programs: a worker takes longer to start than most
    of them to run.
    """

    def __init__(self) -> None:
        self.bench = Bench()
        self.bridge = Bridge(ASKS, toolbox=self.bench.toolbox, store=":memory:")

    async def faults(self, program: str, given: JSONObject, cuts: Sequence[int]) -> list[str]:
        """What a program does differently after its process died."""
        found: list[str] = []
        bridge = self.bridge
        bench = self.bench
        whole = await bridge.run_plan({"program": program, "input": given})
        await to_the_end(whole)
        assert whole.status == "done", whole.answer()
        events = [event for _, event in bridge.store.runs.events(whole.id)]
        # The first two events are journaled together.
        for cut in sorted({2 + one % (len(events) - 2) for one in cuts}):
            finished = sum(event["event"] == "call_finished" for event in events[:cut])
            bench.ran = 0
            run = await bridge.run(
                cut_journal(bridge.store, whole, events[:cut], bridge.fingerprint)
            )
            await to_the_end(run)
            printed = [
                event["text"]
                for _, event in bridge.store.runs.events(run.id)
                if event["event"] == "printed"
            ]
            if (run.status, run.given()) != ("done", whole.given()) or len(printed) != 1:
                found.append(
                    f"{cut}: {run.answer()}, printed {printed}, instead of {whole.given()}"
                )

            if bench.ran != len(whole.calls()) - finished:
                found.append(
                    f"{cut}: {bench.ran} calls ran, {finished} of {len(whole.calls())} had finished"
                )

        return found


Check: TypeAlias = Callable[[str, JSONObject, Sequence[int]], None]


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """Run a program whole, and again after each cut."""
    with start_blocking_portal() as portal:
        stage = portal.call(Stage)
        with portal.wrap_async_context_manager(stage.bridge):

            def checked(program: str, given: JSONObject, cuts: Sequence[int]) -> None:
                found = portal.call(stage.faults, program, given, cuts)
                assert not found, "\n".join([program, str(given), *found])

            yield checked


def check_many(check: Check, programs_: int, seed_: int, most: int) -> None:
    """Check random programs, each stopped at 1 to `most` places."""

    cuts = st.lists(st.integers(0, 200), min_size=1, max_size=most)

    @seed(seed_)
    @settings(
        max_examples=programs_ // PARTS,
        database=None,
    )
    @given(programs(), st.integers(0, 9), st.lists(cuts, min_size=PARTS, max_size=PARTS))
    def each(program: str, number: int, cuts: list[list[int]]) -> None:
        for part, places in enumerate(cuts):
            check(program, {"n": number, "part": part}, places)

    each()


def test_a_program_that_is_stopped_anywhere_ends_as_in_one_piece(check: Check) -> None:
    check_many(check, 150, 0, 1)


@pytest.mark.long
def test_many_programs_that_are_stopped_anywhere_end_as_in_one_piece(check: Check) -> None:
    check_many(check, int(os.environ.get("IDEABRIDGE_PROGRAMS", "3000")), 4, 4)


@pytest.mark.anyio
async def test_another_interpreter_does_not_continue_a_program(tmp_path: Path) -> None:
    bench = Bench()
    async with Bridge(ASKS, toolbox=bench.toolbox, store=tmp_path / "store.sqlite") as bridge:
        whole = await bridge.run_plan({"program": "import tools\nawait tools.look(n=1)"})
        await to_the_end(whole)
        events = [event for _, event in bridge.store.runs.events(whole.id)]
        other = [
            {**one, "interpreter": "monty 0.1"} if one["event"] == "program_proposed" else one
            for one in events
        ]
        run = await bridge.run(cut_journal(bridge.store, whole, other[:3], bridge.fingerprint))

        assert run.status == "interrupted"
        assert "began in monty 0.1" in str(run.answer()["reason"])


@pytest.mark.anyio
async def test_a_program_that_calls_something_else_ends(tmp_path: Path) -> None:
    bench = Bench()
    async with Bridge(ASKS, toolbox=bench.toolbox, store=tmp_path / "store.sqlite") as bridge:
        whole = await bridge.run_plan(
            {"program": "import tools\nawait tools.look(n=1)\nawait tools.look(n=2)"}
        )
        await to_the_end(whole)
        events = [event for _, event in bridge.store.runs.events(whole.id)]
        cut = next(n for n, one in enumerate(events) if one["event"] == "call_finished") + 1
        other: list[JSONObject] = [
            {**one, "call": {"_tool": "look", "n": 9}} if one["event"] == "call_proposed" else one
            for one in events
        ]
        run = await bridge.run(cut_journal(bridge.store, whole, other[:cut], bridge.fingerprint))
        await to_the_end(run)

    assert run.status == "failed"
    assert "diverged" in str(run.answer()["reason"])
    assert '"n":9' in str(run.answer()["reason"]).replace(" ", "")
