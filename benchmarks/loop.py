"""The agent loop: streamed Solutions beside their critical paths, and what a step and a call cost (DESIGN 8).

    python benchmarks/loop.py [--json]

A fake mind writes 20 calls, one every 50 ms; tools take 500 ms. The floor is the theoretical critical path: a call
starts when it has been written and what it reads exists. Overhead is measured with a mind and tools that take no
time. Where pydantic-ai is installed beside us, it runs the same overhead cases with its own function model.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.loop.request import Request
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSONObject

APART = 0.05
SECONDS = 0.5
OUTPUT: JSONObject = {"type": "string"}


@tool(read_only=True)
async def work(after: list[str]) -> str:
    """Take a while."""
    await anyio.sleep(SECONDS)
    return "done"


@tool(read_only=True)
async def instant(x: int) -> int:
    """Take no time."""
    return x


class Writer:
    """A mind that writes its calls one by one, then its output."""

    name = "writer"

    def __init__(self, answers: list[list[JSONObject]], apart: float = 0.0) -> None:
        self._answers = iter(answers)
        self._apart = apart

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        """The next answer; the last one is the output alone."""
        calls = next(self._answers, None)
        if calls is None:
            yield '{"calls": [], "output": "done"}'
            return
        yield '{"calls": ['
        for number, call in enumerate(calls):
            if self._apart:
                await anyio.sleep(self._apart)
            yield (", " if number else "") + json.dumps(call, ensure_ascii=False)
        yield '], "output": null}'


def call(name: str, *after: str) -> JSONObject:
    """One call that reads what the calls `after` wrote."""
    return {"_tool": "work", "after": [f"†state.{one}" for one in after], "_outputPath": name}


def shapes() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """20 calls each: (name, what it waits for), in the order they are written."""
    layers = [(f"a{n}", ()) for n in range(7)] + [(f"b{n}", (f"a{n}",)) for n in range(7)]
    chain = [("c0", ()), *((f"c{n}", (f"c{n - 1}",)) for n in range(1, 3))]
    beside = [(f"i{n}", ()) for n in range(17)]
    return {
        "20 independent calls": [(f"i{n}", ()) for n in range(20)],
        "3 layers": [*layers, *((f"d{n}", (f"b{n}",)) for n in range(6))],
        "chain of 3 first": [*chain, *beside],
        "chain of 3 last": [*beside, *chain],
    }


def critical(listed: list[tuple[str, tuple[str, ...]]]) -> float:
    """Seconds until the last call can have ended."""
    ends: dict[str, float] = {}
    for number, (name, after) in enumerate(listed):
        ends[name] = max([APART * (number + 1), *(ends[one] for one in after)]) + SECONDS
    return max(ends.values())


async def solved(mind: Writer, box: Toolbox, store: Path | None, requests: int = 2) -> float:
    """Seconds of one run from its start to its output."""
    limits = Limits(parallel_calls=64, requests=requests + 1, calls=10_000)
    async with Bridge(Configuration(limits=limits), toolbox=box, mind=mind, store=store) as bridge:
        begin = time.perf_counter()
        run = await bridge.solve("Do it.", tools=[one.name for one in box], output_schema=OUTPUT)
        status = await run.wait()
        took = time.perf_counter() - begin
        if status != "done" or any(one.error for one in run.calls()):
            raise SystemExit(f"the run ended {status}: {run.errors()}")
        return took


async def median(measure: Callable[[], Awaitable[float]], times: int) -> float:
    """The median of several measurements, in seconds."""
    return statistics.median([await measure() for _ in range(times)])


async def ours(folder: Path) -> list[dict[str, Any]]:
    """Rows of the loop itself."""
    rows: list[dict[str, Any]] = []
    for name, listed in shapes().items():
        took = await solved(
            Writer([[call(*one[:1], *one[1]) for one in listed]], APART), Toolbox(work), folder / "s.sqlite"
        )
        floor = critical(listed)
        ratio = took / floor
        row = {"what": f"streamed: {name}", "ours": took, "floor": floor, "ratio": ratio}
        rows.append({**row, "target": 1.03, "met": ratio <= 1.03})
    fifty: list[JSONObject] = [{"_tool": "instant", "x": n} for n in range(50)]
    for where, store in (("in memory", None), ("in SQLite", folder / "o.sqlite")):
        took = await median(lambda store=store: solved(Writer([fifty]), Toolbox(instant), store), 7)
        rows.append({"what": f"ms a call, 50 in one step, journal {where}", "ours": took / 50 * 1e3})
        for steps in (50, 500):
            answers: list[list[JSONObject]] = [[{"_tool": "instant", "x": n}] for n in range(steps)]
            took = await median(
                lambda store=store, answers=answers, steps=steps: solved(
                    Writer(answers), Toolbox(instant), store, steps + 1
                ),
                3,
            )
            rows.append({"what": f"ms a step, {steps} steps of one call, journal {where}", "ours": took / steps * 1e3})
    return rows


async def beside_pydantic_ai(rows: list[dict[str, Any]]) -> None:
    """Put pydantic-ai's time for the same cases into the rows."""
    peer: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    function: Any = importlib.import_module("pydantic_ai.models.function")

    async def run(answers: list[list[int]]) -> float:
        left = iter(answers)

        def reply(_history: Any, _info: Any) -> Any:
            xs = next(left, None)
            if xs is None:
                return messages.ModelResponse(parts=[messages.TextPart("done")])
            return messages.ModelResponse(parts=[messages.ToolCallPart("instant", {"x": x}) for x in xs])

        agent = peer.Agent(function.FunctionModel(reply))

        async def instant(x: int) -> int:
            """Take no time."""
            return x

        agent.tool_plain(instant)
        begin = time.perf_counter()
        limits = peer.UsageLimits(request_limit=None)
        await agent.run("Do it.", usage_limits=limits)
        return time.perf_counter() - begin

    cases: dict[str, tuple[list[list[int]], int]] = {
        "ms a call, 50 in one step": ([list(range(50))], 50),
        "ms a step, 50 steps": ([[n] for n in range(50)], 50),
        "ms a step, 500 steps": ([[n] for n in range(500)], 500),
    }
    for start, (answers, divisor) in cases.items():
        took = await median(lambda answers=answers: run(answers), 3) / divisor * 1e3
        for row in rows:
            if row["what"].startswith(start):
                ratio = row["ours"] / took
                row.update({"peer": took, "ratio": ratio, "target": 1 / 3, "met": ratio <= 1 / 3})


async def measure(folder: Path) -> list[dict[str, Any]]:
    """Every row."""
    rows = await ours(folder)
    if importlib.util.find_spec("pydantic_ai") is not None:
        await beside_pydantic_ai(rows)
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
            beside = f"  peer {row['peer']:.3f}" if "peer" in row else ""
            ratio = f"  {row['ratio']:.3f}x" if "ratio" in row else ""
            print(f"{row['what']:<56} {row['ours']:>8.3f}{beside}{ratio}")
    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
