"""The agent loop: streamed Solutions beside their critical paths, and what a step and a call cost.

    python benchmarks/loop.py [--json]

A fake mind writes 20 calls, one every 50 ms; tools take 500 ms. The floor is the theoretical
critical path: a call starts when it has been written and what it reads exists. Overhead is measured
with a mind and tools that take no time. Beside us, in the same process and with the same work, run
those of our peers that are installed (`peers/`, `pip install '.[bench]'`). A peer cannot wire calls
by reference: what a call reads must stand in an earlier answer, so each layer of a shape is an
answer of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import peers

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.context.request import Request
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSONObject

APART = 0.05
SECONDS = 0.5
OUTPUT: JSONObject = {"type": "string"}
STEP_TARGET = {"pydantic-ai": 1 / 3}
CALL_TARGET = {"pydantic-ai": 0.6}
"""How much of a peer's overhead ours may be at most, per step and per call; of every other
peer's: all of it."""

GROWTH = 1.5
"""How much more a step of a long run may cost, after which a Request tells of all 500 calls
and their results."""

Answer: TypeAlias = "str | list[str]"
"""What the mind writes: whole, or piece by piece."""

Shape: TypeAlias = "list[tuple[str, tuple[str, ...]]]"
"""Calls in the order they are written: (name, what it waits for)."""

Row: TypeAlias = "dict[str, Any]"


@tool(read_only=True)
async def work(after: list[str]) -> str:
    """Take a while."""
    await anyio.sleep(SECONDS)
    return "done"


async def wait(x: int) -> int:
    """Take a while."""
    await anyio.sleep(SECONDS)
    return x


@tool(read_only=True)
async def instant(x: int) -> int:
    """Take no time."""
    return x


class Writer:
    """A mind that writes its answers one by one; after the last, the output alone, and then
    it begins anew.

    Args:
        answers: see `Answer`; written before the clock runs.
        apart: seconds before each piece that holds a call.
    """

    name = "writer"

    def __init__(self, answers: Sequence[Answer], apart: float = 0.0) -> None:
        self._answers = itertools.cycle([*answers, '{"calls": [], "output": "done"}'])
        self._apart = apart

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        """The next answer."""
        answer = next(self._answers)
        if isinstance(answer, str):
            yield answer
            return

        for piece in answer:
            if self._apart and "_tool" in piece:
                await anyio.sleep(self._apart)
            yield piece


def whole(calls: list[JSONObject]) -> str:
    """A Solution in one piece."""
    return json.dumps({"calls": calls, "output": None}, ensure_ascii=False)


def pieces(calls: list[JSONObject]) -> list[str]:
    """A Solution in pieces of one call each."""
    texts = [json.dumps(call, ensure_ascii=False) for call in calls]
    listed = [text if number == 0 else f", {text}" for number, text in enumerate(texts)]
    return ['{"calls": [', *listed, '], "output": null}']


def call(name: str, *after: str) -> JSONObject:
    """One call that reads what the calls `after` wrote."""
    return {"_tool": "work", "after": [f"†state.{one}" for one in after], "_outputPath": name}


def shapes() -> dict[str, Shape]:
    """20 calls each."""
    layers = [(f"a{n}", ()) for n in range(7)] + [(f"b{n}", (f"a{n}",)) for n in range(7)]
    chain = [("c0", ()), *((f"c{n}", (f"c{n - 1}",)) for n in range(1, 3))]
    beside = [(f"i{n}", ()) for n in range(17)]
    return {
        "20 independent calls": [(f"i{n}", ()) for n in range(20)],
        "3 layers": [*layers, *((f"d{n}", (f"b{n}",)) for n in range(6))],
        "chain of 3 first": [*chain, *beside],
        "chain of 3 last": [*beside, *chain],
    }


def critical(shape: Shape) -> float:
    """Seconds until the last call can have ended."""
    ends: dict[str, float] = {}
    for number, (name, after) in enumerate(shape):
        ends[name] = max([APART * (number + 1), *(ends[one] for one in after)]) + SECONDS
    return max(ends.values())


def layers_of(shape: Shape) -> list[list[int]]:
    """The calls by how many others they wait for one after another: the answers of a mind
    without references.
    """
    depths: dict[str, int] = {}
    for name, after in shape:
        depths[name] = max((depths[one] + 1 for one in after), default=0)
    return [
        [number for number, (name, _) in enumerate(shape) if depths[name] == depth]
        for depth in range(max(depths.values()) + 1)
    ]


async def ours(mind: Writer, box: Toolbox, store: Path | None, requests: int, times: int) -> float:
    """Median seconds of our runs from start to output, all in one bridge, as in a server."""
    limits = Limits(parallel_calls=64, requests=requests + 1, calls=10_000)
    taken: list[float] = []
    async with Bridge(Configuration(limits=limits), toolbox=box, mind=mind, store=store) as bridge:
        for _ in range(times):
            begin = time.perf_counter()
            run = await bridge.solve(
                "Do it.", tools=[one.name for one in box], output_schema=OUTPUT
            )
            status = await run.wait()
            taken.append(time.perf_counter() - begin)
            if status != "done" or any(one.error for one in run.calls()):
                raise SystemExit(f"the run ended {status}: {run.errors()}")

    return statistics.median(taken)


async def theirs(
    prepare: peers.Prepare, rounds: peers.Rounds, task: peers.Work, apart: float | None, times: int
) -> float:
    """Median seconds of a peer's runs, all of one agent."""
    done: list[int] = []

    async def counted(x: int) -> int:
        done.append(x)
        return await task(x)

    counted.__name__, counted.__doc__ = "counted", task.__doc__
    run = prepare(rounds, counted, apart)
    taken: list[float] = []
    for _ in range(times):
        done.clear()
        begin = time.perf_counter()
        answer = await run()
        taken.append(time.perf_counter() - begin)
        if answer != "done" or len(done) != sum(map(len, rounds)):
            raise SystemExit(f"a peer answered {answer[:100]!r} after {len(done)} calls")

    return statistics.median(taken)


async def streaming(folder: Path, others: dict[str, peers.Prepare]) -> AsyncIterator[Row]:
    """Rows of streamed Solutions: seconds, and how much more than the critical path."""
    for name, shape in shapes().items():
        texts = pieces([call(one, *after) for one, after in shape])
        took = await ours(Writer([texts], APART), Toolbox(work), folder / "streamed.sqlite", 2, 1)
        floor = critical(shape)
        ratio = took / floor
        what = f"s, streamed: {name}"
        yield {
            "what": what,
            "ours": took,
            "floor": floor,
            "ratio": ratio,
            "target": 1.03,
            "met": ratio <= 1.03,
        }
        for peer, prepare in others.items():
            took_theirs = await theirs(prepare, layers_of(shape), wait, APART, 1)
            row = {
                "what": f"{what}, beside {peer}",
                "ours": took,
                "peer": took_theirs,
                "floor": floor,
            }
            yield {**row, "ratio": took / took_theirs}


def cases() -> Iterator[
    tuple[str, int, Sequence[Answer], Sequence[Sequence[int]], float | None, int]
]:
    """(what, what its time is divided by, our answers, a peer's, how these stream, how often
    it is measured).
    """
    fifty: list[JSONObject] = [{"_tool": "instant", "x": n} for n in range(50)]
    yield "ms a call, 50 in one step", 50, [whole(fifty)], [range(50)], None, 7
    yield "ms a call, 50 in one step, streamed one by one", 50, [pieces(fifty)], [range(50)], 0.0, 7
    for steps, times in ((50, 5), (500, 3)):
        answers = [whole([{"_tool": "instant", "x": n}]) for n in range(steps)]
        yield (
            f"ms a step, {steps} steps of one call",
            steps,
            answers,
            [[n] for n in range(steps)],
            None,
            times,
        )


async def overhead(folder: Path, others: dict[str, peers.Prepare]) -> AsyncIterator[Row]:
    """Rows of what a call and a step cost where the mind and the tools take no time,
    in milliseconds.
    """
    steps: dict[str, list[float]] = {}
    for what, divisor, answers, rounds, apart, times in cases():
        memory, sqlite = [
            await ours(Writer(answers), Toolbox(instant), store, len(answers), times)
            / divisor
            * 1e3
            for store in (None, folder / "overhead.sqlite")
        ]
        if len(answers) > 1:
            steps.setdefault("", []).append(memory)

        yield {"what": f"{what}, journal in memory", "ours": memory}
        yield {"what": f"{what}, journal in SQLite", "ours": sqlite}
        for peer, prepare in others.items():
            took = await theirs(prepare, rounds, instant, apart, times) / divisor * 1e3
            if len(answers) > 1:
                steps.setdefault(peer, []).append(took)

            target = (STEP_TARGET if len(answers) > 1 else CALL_TARGET).get(peer, 1.0)
            for where, mine in (("memory", memory), ("SQLite", sqlite)):
                ratio = mine / took
                row = {
                    "what": f"{what}, journal in {where}, beside {peer}",
                    "ours": mine,
                    "peer": took,
                }
                yield {**row, "ratio": ratio, "target": target, "met": ratio <= target}

    for peer, (few, many) in steps.items():
        growth = many / few
        what = "x, a step of 500 to one of 50, journal in memory"
        if peer:
            yield {"what": f"{what}, {peer}", "peer": growth}
        else:
            yield {
                "what": what,
                "ours": growth,
                "ratio": growth,
                "target": GROWTH,
                "met": growth <= GROWTH,
            }


async def measure(folder: Path) -> list[Row]:
    """Every row; the peers that are not installed are named in rows of their own."""
    others = peers.installed()
    rows = [row async for row in streaming(folder, others)]
    rows.extend([row async for row in overhead(folder, others)])
    rows.extend(
        {"what": f"(peer not installed: {name}; pip install '.[bench]')"}
        for name in peers.missing()
    )
    return rows


def main() -> int:
    """Measure, print, and tell by the exit code whether every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = anyio.run(measure, Path(folder))

    if arguments.json:
        print(json.dumps({"benchmark": "loop", "rows": rows}))
    else:
        for row in rows:
            mine = f"{row['ours']:>8.3f}" if "ours" in row else ""
            theirs = f"  peer {row['peer']:>8.3f}" if "peer" in row else " " * 15
            ratio = f"  {row['ratio']:.3f}x" if "ratio" in row else ""
            if not row.get("met", True):
                missed = f"  MISSED: at most {row['target']:.3g}x"
            else:
                missed = ""

            print(f"{row['what']:<90} {mine}{theirs}{ratio}{missed}")

    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
