"""Plans beside their critical paths, and the cost of a call.

    python benchmarks/plans.py [--json]

A plan's time is compared with the theoretical critical path: the longest chain of calls that wait for each other.
Tools sleep 500 ms; the journal is a file of SQLite. The overhead is measured with tools that return at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, Limits
from ideabridge.bridge.plan import Plan
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.toolbox import Toolbox

SECONDS = 0.5


@tool(read_only=True)
async def work(after: list[str]) -> str:
    """Take a while."""
    await anyio.sleep(SECONDS)
    return "done"


@tool(read_only=True)
async def instant(x: int) -> int:
    """Take no time."""
    return x


def call(name: str, *after: str) -> JSON:
    """One call that waits for the calls named `after`."""
    return {"_tool": "work", "after": [f"†state.{one}" for one in after], "_outputPath": name}


def shapes() -> dict[str, tuple[list[JSON], int]]:
    """Plans of 20 calls, and the length of their critical paths in calls."""
    independent = [call(f"c{n}") for n in range(20)]
    layers = [call(f"a{n}") for n in range(7)]
    layers += [call(f"b{n}", f"a{n}", f"a{(n + 1) % 7}") for n in range(7)]
    layers += [call(f"c{n}", f"b{n}") for n in range(6)]
    chain = [call("c0"), *(call(f"c{n}", f"c{n - 1}") for n in range(1, 10))]
    chain_first = [*chain, *(call(f"i{n}") for n in range(10))]
    chain_last = [*(call(f"i{n}") for n in range(10)), *chain]
    leaves = [f"leaf{n}" for n in range(18)]
    fan = [call("root"), *(call(leaf, "root") for leaf in leaves), call("end", *leaves)]
    return {
        "20 independent calls": (independent, 1),
        "3 layers": (layers, 3),
        "chain of 10 first, 10 beside": (chain_first, 10),
        "chain of 10 last, 10 beside": (chain_last, 10),
        "fan-out and fan-in": (fan, 3),
    }


async def timed(bridge: Bridge, calls: list[JSON]) -> float:
    """Seconds from handing over a plan to its end."""
    begin = time.perf_counter()
    run = await bridge.run_plan(Plan(calls))
    status = await run.wait()
    if status != "done" or run.errors():
        raise SystemExit(f"the plan ended {status}: {run.errors()}")
    return time.perf_counter() - begin


async def measure(folder: Path) -> list[dict[str, object]]:
    """The rows of the benchmark."""
    rows: list[dict[str, object]] = []
    configuration = Configuration(limits=Limits(parallel_calls=64))
    async with Bridge(configuration, toolbox=Toolbox(work, instant), store=folder / "ideas.sqlite") as bridge:
        for name, (calls, length) in shapes().items():
            best = min([await timed(bridge, calls) for _ in range(2 if length < 10 else 1)])
            floor = length * SECONDS
            ratio = best / floor
            rows.append(
                {"what": name, "ours": best, "floor": floor, "ratio": ratio, "target": 1.03, "met": ratio <= 1.03}
            )
        fifty: list[JSON] = [{"_tool": "instant", "x": n} for n in range(50)]
        seconds = statistics.median([await timed(bridge, fifty) for _ in range(20)])
        rows.append({"what": "ms a call, 50 at once, journaled in SQLite", "ours": seconds / 50 * 1e3})
        one: list[JSON] = [{"_tool": "instant", "x": 1}]
        seconds = statistics.median([await timed(bridge, one) for _ in range(100)])
        rows.append({"what": "ms a plan of one call, journaled, idea saved", "ours": seconds * 1e3})
        rows.append(await replayed(bridge))
    return rows


async def replayed(bridge: Bridge) -> dict[str, object]:
    """A published plan of 10 calls, each with the result of the one before, beside the tool called directly."""
    calls: list[JSON] = [{"_tool": "instant", "x": "†input.x" if n == 0 else f"†results.{n - 1}"} for n in range(10)]
    run = await bridge.run_plan(Plan(calls, input={"x": 7}, output="†results.9"))
    await run.result()
    await bridge.publish(run.id, "chain", answer="plan", description="A chain.")

    async def replay(x: int) -> None:
        answer = await bridge.start_idea("chain", {"x": x})
        if answer.run is None or await answer.run.result() != x:
            raise SystemExit("the replay gave another output")

    async def direct(x: int) -> None:
        for _ in range(10):
            x = await instant(x)

    ours: list[float] = []
    floor: list[float] = []
    for number in range(50):
        for work, taken in ((replay, ours), (direct, floor)):
            begin = time.perf_counter()
            await work(number)
            taken.append(time.perf_counter() - begin)
    fast, least = statistics.median(ours) * 1e3, statistics.median(floor) * 1e3
    what = f"ms a replay of a plan of 10 calls, journaled, idea saved (called directly: {least:.3f})"
    return {"what": what, "ours": fast, "floor": least}


def main() -> int:
    """Measure, print, and tell by the exit code whether every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = anyio.run(measure, Path(folder))
    if arguments.json:
        print(json.dumps({"benchmark": "plans", "rows": rows}))
    else:
        for row in rows:
            ours = f"{row['ours']:.3f}"
            ratio = f"  {row['ratio']:.3f}x of {row['floor']:.3g}" if "ratio" in row else ""
            print(f"{row['what']:<48} {ours:>8}{ratio}")
    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
