"""Programs beside plans, beside the interpreter alone, and beside the code mode of FastMCP.

    pip install '.[bench]'      (for the peer)
    python benchmarks/programs.py [--json]

Each measure is the median of several runs in one process, and the measures take turns. Our journal
is a file of SQLite; FastMCP's code mode keeps none. Both servers are called by a client of MCP in
the same process.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, Limits
from ideabridge.server.server import Front
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox

Row = dict[str, Any]
Run = Callable[[], Awaitable[object]]

CALLS = 1_000
COMPUTED = 100
TOGETHER = 20
SECONDS = 0.5

ONE = "import tools\nawait tools.instant(x=input['x'])"
LOOP = f"import tools\nx = 0\nwhile x < {CALLS}:\n    x = await tools.instant(x=x)\nx"
BOTH = (
    "import asyncio, tools\nlen(await asyncio.gather(*[tools.work(x=x) for "
    f"x in range({TOGETHER})]))"
)


@tool(read_only=True)
async def instant(x: int) -> int:
    """Add one, at once."""
    return x + 1


@tool(read_only=True)
async def work(x: int) -> int:
    """Take a while."""
    await anyio.sleep(SECONDS)
    return x


async def took(run: Run) -> float:
    """Milliseconds of one run."""
    begun = time.perf_counter()
    await run()
    return (time.perf_counter() - begun) * 1e3


async def medians(runs: dict[str, Run], times: int) -> dict[str, float]:
    """The median milliseconds of each, measured in turn, after one run that does not count."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(times + 1):
        for name, run in runs.items():
            taken = await took(run)
            if round_:
                found[name].append(taken)

    return {name: statistics.median(taken) for name, taken in found.items()}


def interpreter() -> Callable[[], Awaitable[float]]:
    """The loop in the interpreter alone: milliseconds, without its start."""
    monty: Any = importlib.import_module("pydantic_monty")
    text = f"x = 0\nwhile x < {CALLS}:\n    x = await instant(x=x)\nx"

    async def named(**_: object) -> None:
        """Never called: the loop below makes the calls."""

    def loop() -> float:
        with (
            monty.Monty(min_processes=1, max_processes=1) as pool,
            pool.checkout(limits={"max_suspensions": 3 * CALLS}) as session,
        ):
            begun = time.perf_counter()
            snapshot = session.feed_start(text, external_lookup={"instant": named})
            while not isinstance(snapshot, monty.MontyComplete):
                number, x = snapshot.call_id, dict(snapshot.kwargs)["x"]
                snapshot = snapshot.resume({"future": ...})
                snapshot = snapshot.resume({number: {"return_value": x + 1}})
            return (time.perf_counter() - begun) * 1e3

    async def run() -> float:
        return await anyio.to_thread.run_sync(loop)

    return run


@asynccontextmanager
async def code_mode() -> AsyncGenerator[Callable[[str], Awaitable[object]] | None]:
    """Runs code in FastMCP's code mode, with the same tools; None where FastMCP is not
    installed.
    """
    if importlib.util.find_spec("fastmcp") is None:
        yield None
        return

    fastmcp: Any = importlib.import_module("fastmcp")
    mode: Any = importlib.import_module("fastmcp.experimental.transforms.code_mode")
    server = fastmcp.FastMCP("peer", transforms=[mode.CodeMode(max_tool_calls=None)])

    async def instant(x: int) -> int:
        return x + 1

    async def work(x: int) -> int:
        await anyio.sleep(SECONDS)
        return x

    server.tool(instant)
    server.tool(work)
    async with fastmcp.Client(server) as client:

        async def run(code: str) -> object:
            result = await client.call_tool("execute", {"code": code})
            return result.data

        yield run


async def measure(folder: Path) -> list[Row]:
    """All rows."""
    configuration = Configuration(
        limits=Limits(calls=10 * CALLS, parallel_calls=TOGETHER),
        store=str(folder / "programs.sqlite"),
    )
    rows: list[Row] = []
    async with (
        Bridge(configuration, toolbox=Toolbox(instant, work)) as bridge,
        anyio.create_task_group() as group,
        Client(Front(bridge, group, "0").server) as client,
        code_mode() as peer,
    ):

        async def plan(value: JSONObject) -> JSON:
            run = await bridge.run_plan(value)
            if await run.wait() != "done":
                raise SystemExit(f"a run is {run.status}: {run.answer()}")
            return run.given()

        async def over_mcp(value: JSONObject) -> object:
            result = await client.call_tool("run_plan", value)
            if result.is_error:
                raise SystemExit(str(result.content))
            return result.structured_content

        given: JSONObject = {"x": 1}
        one: JSONObject = {"program": ONE, "input": given}
        single: JSONObject = {
            "calls": [{"_tool": "instant", "x": "†input.x"}],
            "output": "†results.0",
            "input": given,
        }
        chain: list[JSON] = [
            {"_tool": "instant", "x": f"†results.{n - 1}" if n else 0} for n in range(CALLS)
        ]
        computed: list[JSON] = [
            {"_tool": "compute", "code": "x + 1", "x": f"†results.{n - 1}" if n else 0}
            for n in range(COMPUTED)
        ]
        cold = await took(lambda: plan(one))
        found = await medians({"program": lambda: plan(one), "plan": lambda: plan(single)}, 51)
        more = found["program"] - found["plan"]
        what = "ms, a program of one call; peer: a plan of one call"
        row: Row = {"what": what, "ours": found["program"], "peer": found["plan"]}
        rows.append(
            {
                **row,
                "ratio": found["program"] / found["plan"],
                "target": "2 ms more",
                "met": more <= 2,
            }
        )
        rows.append({"what": "ms, the first program of a process: its worker starts", "ours": cold})
        found = await medians(
            {
                "program": lambda: plan({"program": LOOP}),
                "plan": lambda: plan({"calls": chain, "output": f"†results.{CALLS - 1}"}),
            },
            3,
        )
        alone = statistics.median([await interpreter()() for _ in range(3)])
        each = {name: taken / CALLS for name, taken in {**found, "alone": alone}.items()}
        what = (
            f"ms a call, a loop of {CALLS:,}, journaled; peer: a plan of as "
            "many; floor: the interpreter"
        )
        row = {"what": what, "ours": each["program"], "peer": each["plan"], "floor": each["alone"]}
        rows.append(
            {
                **row,
                "ratio": each["program"] / each["plan"],
                "target": 0.2,
                "met": each["program"] <= 0.2,
            }
        )
        found = await medians(
            {
                "compute": lambda: plan({"calls": computed}),
                "plan": lambda: plan({"calls": chain[:COMPUTED]}),
            },
            21,
        )
        each = {name: taken / COMPUTED for name, taken in found.items()}
        more = each["compute"] - each["plan"]
        row = {
            "what": "ms a call, compute in a plan; peer: a tool of ours",
            "ours": each["compute"],
        }
        row |= {"peer": each["plan"], "ratio": each["compute"] / each["plan"]}
        rows.append({**row, "target": "0.2 ms more", "met": more <= 0.2})
        step: JSONObject = {"calls": [{"_tool": "run_program", "program": ONE, "input": given}]}
        found = await medians({"step": lambda: plan(step), "program": lambda: plan(one)}, 21)
        row = {
            "what": "ms, a plan whose one call is that program; peer: the program",
            "ours": found["step"],
        }
        rows.append({**row, "peer": found["program"], "ratio": found["step"] / found["program"]})
        found = await medians({"program": lambda: plan({"program": BOTH})}, 3)
        ratio = found["program"] / (SECONDS * 1e3)
        what = f"ms, {TOGETHER} calls of {SECONDS * 1e3:g} ms at once; floor: the critical path"
        row = {"what": what, "ours": found["program"], "floor": SECONDS * 1e3}
        rows.append({**row, "ratio": ratio, "target": 1.05, "met": ratio <= 1.05})
        if peer is None:
            rows.append({"what": "(peer not installed: FastMCP; pip install '.[bench]')"})
        else:
            their_loop = (
                f"x = 0\nwhile x < {CALLS}:\n    "
                "x = (await call_tool('instant', {'x': x}))['result']\nreturn x"
            )
            their_both = (
                "import asyncio\n"
                "return len(await asyncio.gather(*[call_tool('work', "
                f"{{'x': x}}) for x in range({TOGETHER})]))"
            )
            pairs: list[tuple[str, JSONObject, str, float, int]] = [
                ("ms, one call", one, "return await call_tool('instant', {'x': 1})", 1, 21),
                (
                    f"ms a call, a loop of {CALLS:,}",
                    {"program": LOOP, "wait_s": 60},
                    their_loop,
                    CALLS,
                    3,
                ),
                (
                    f"ms, {TOGETHER} calls of {SECONDS * 1e3:g} ms at once",
                    {"program": BOTH},
                    their_both,
                    1,
                    3,
                ),
            ]
            for what, ours, theirs, divisor, times in pairs:
                runs: dict[str, Run] = {
                    "ours": lambda ours=ours: over_mcp(ours),
                    "theirs": lambda theirs=theirs: peer(theirs),
                }
                found = {
                    name: taken / divisor for name, taken in (await medians(runs, times)).items()
                }
                row = {
                    "what": f"{what}, over MCP; peer: FastMCP's code mode",
                    "ours": found["ours"],
                }
                rows.append(
                    {**row, "peer": found["theirs"], "ratio": found["ours"] / found["theirs"]}
                )

        group.cancel_scope.cancel()

    return rows


def main() -> int:
    """Measure, print, and tell by the exit code whether every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = anyio.run(measure, Path(folder))

    if arguments.json:
        print(json.dumps({"benchmark": "programs", "rows": rows}))
    else:
        for row in rows:
            cells = [
                f"{name} {row[name]:.3g}"
                for name in ("ours", "peer", "floor", "ratio")
                if name in row
            ]
            missed = f"  MISSED: {row['target']}" if not row.get("met", True) else ""
            print(f"{row['what']}: {', '.join(cells)}{missed}")

    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
