"""Plans beside their critical paths, and the cost of a call.

    python benchmarks/plans.py [--json]

A plan's time is compared with the theoretical critical path: the longest chain of calls that wait
for each other.
Tools sleep 500 ms; the journal is a file of SQLite. The overhead is measured with tools that
return at once.
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


@tool(read_only=True)
async def triple(x: int) -> int:
    """Take no time, and return another number."""
    return 3 * x + 1


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
    async with Bridge(
        configuration, toolbox=Toolbox(work, instant, triple), store=folder / "ideas.sqlite"
    ) as bridge:
        for name, (calls, length) in shapes().items():
            best = min([await timed(bridge, calls) for _ in range(2 if length < 10 else 1)])
            floor = length * SECONDS
            ratio = best / floor
            rows.append(
                {
                    "what": name,
                    "ours": best,
                    "floor": floor,
                    "ratio": ratio,
                    "target": 1.03,
                    "met": ratio <= 1.03,
                }
            )

        fifty: list[JSON] = [{"_tool": "instant", "x": n} for n in range(50)]
        seconds = statistics.median([await timed(bridge, fifty) for _ in range(20)])
        rows.append(
            {"what": "ms a call, 50 at once, journaled in SQLite", "ours": seconds / 50 * 1e3}
        )
        one: list[JSON] = [{"_tool": "instant", "x": 1}]
        seconds = statistics.median([await timed(bridge, one) for _ in range(100)])
        rows.append({"what": "ms a plan of one call, journaled, idea saved", "ours": seconds * 1e3})
        rows.append(await replayed(bridge))
        rows.append(await replayed_copies(bridge))

    return rows


async def replayed(bridge: Bridge) -> dict[str, object]:
    """A published plan of 10 calls, each with the result of the one before, beside the tool
    called directly.
    """
    calls: list[JSON] = [
        {"_tool": "instant", "x": "†input.x" if n == 0 else f"†results.{n - 1}"} for n in range(10)
    ]
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

    fast = statistics.median(ours) * 1e3
    least = statistics.median(floor) * 1e3
    what = (
        f"ms a replay of a plan of 10 calls, journaled, idea saved (called directly: {least:.3f})"
    )
    return {"what": what, "ours": fast, "floor": least}


LENGTH = 10
"""The calls of a chain that is replayed."""


async def chain_with_references(bridge: Bridge) -> str:
    """Run a chain in which each call refers to the result of the one before."""
    calls: list[JSON] = [
        {"_tool": "triple", "x": f"†results.{number - 1}" if number else "†input.x"}
        for number in range(LENGTH)
    ]
    run = await bridge.run_plan(Plan(calls, input={"x": 7}, output=f"†results.{LENGTH - 1}"))
    await run.result()
    return run.id


async def chain_with_copies(bridge: Bridge) -> str:
    """Carry out the same chain by hand: each call has a copy of the result of the one before."""
    run = await bridge.solve(
        "A chain", input={"x": 7}, output_schema={"type": "integer"}, mind="turns"
    )
    x = 7
    for turn in range(LENGTH):
        run.submit(turn, {"calls": [{"_tool": "triple", "x": x}]})
        if await run.wait() != "needs_solution":
            raise SystemExit(f"call {turn} of the chain did not run: the run is {run.status}")
        x = 3 * x + 1

    run.submit(LENGTH, {"output": x})
    await run.result()
    return run.id


async def replayed_copies(bridge: Bridge) -> dict[str, object]:
    """A published chain whose values were copied beside the same chain with
    references, in turns.
    """
    taken: dict[str, list[float]] = {}
    for name, made in (("copies", chain_with_copies), ("references", chain_with_references)):
        published = await bridge.publish(
            await made(bridge), f"chain_with_{name}", answer="plan", description="A chain."
        )
        if published.plan is None:
            raise SystemExit(f"the chain with {name} did not become a plan")
        taken[name] = []

    for number in range(-5, 100):
        for name, seconds in taken.items():
            begin = time.perf_counter()
            answer = await bridge.start_idea(f"chain_with_{name}", {"x": number})
            if answer.run is None or await answer.run.result() != (2 * number + 1) * 3**LENGTH // 2:
                raise SystemExit(f"the replay with {name} gave another output")
            seconds.append(time.perf_counter() - begin)

    # Leave out the first replays, because they fill caches.
    ours, peer = (statistics.median(seconds[5:]) * 1e3 for seconds in taken.values())
    what = f"ms a replay of {LENGTH} calls with copied values, beside one with references"
    ratio = ours / peer
    return {
        "what": what,
        "ours": ours,
        "peer": peer,
        "floor": peer,
        "ratio": ratio,
        "target": 1.3,
        "met": ratio <= 1.3,
    }


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
