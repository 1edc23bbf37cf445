"""Publishing large runs: how long it takes, how long it holds up the event loop, and how much memory it needs.

    python benchmarks/publishing.py [--json]

Runs are published from a file of SQLite, as a server does. One run is a plan of 10,000 calls that returned 10 MB, and
each call reads the result of the one before. The others are carried out by hand: a mind searches, opens what it found
and writes a note about it, and copies each value. They have 245 calls, as the longest real session that was measured,
and 800.

The floor of a run is the time of reading its results as JSON. Targets are bounds, in seconds and MB. While a run is
published, a task of the event loop wakes up every millisecond; the row of the loop is its longest delay. Memory is the
peak of all processes beyond what they had before. Processor time counts all processes, in `cpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, Limits
from ideabridge.bridge.plan import Plan
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox

PLANNED = 10_000
RECORD = "0123456789 abcdef " * 52
"""A text of about 1 kB, so that 10,000 results have 10 MB."""

BY_HAND = ((245, 1.0), (800, 5.0))
"""The calls of runs by hand, and the seconds within which they are published."""

PLANNED_SECONDS = 5.0
DELAY_SECONDS = 0.25
MEMORY_MB = 1_000.0
TICK = 0.001


@tool(read_only=True)
def record(number: int, after: str) -> dict[str, str]:
    """Return one record."""
    return {"id": f"record-{number}", "text": f"{number} {RECORD}"}


@tool(read_only=True)
def search(text: str, page: int) -> list[dict[str, str | int]]:
    """Search for issues."""
    return [
        {
            "id": f"{text}-{page}-{place}",
            "title": f"{text} fails on page {page}, case {place}",
            "votes": page * place % 7,
        }
        for place in range(20)
    ]


@tool(read_only=True)
def read_issue(issue: str) -> dict[str, str]:
    """Return an issue."""
    return {"id": issue, "owner": f"owner of {issue}", "body": f"The body of {issue}. {RECORD}"}


@tool
def note(issue: str, text: str) -> str:
    """Write a note about an issue."""
    return f"noted {issue}"


async def by_plan(bridge: Bridge) -> str:
    """Run one plan of many calls, and return the id of its run."""
    calls: list[JSON] = [
        {"_tool": "record", "number": number, "after": f"†results.{number - 1}.id" if number else "†input.first"}
        for number in range(PLANNED)
    ]
    run = await bridge.run_plan(Plan(calls, input={"first": "none"}, output=f"†results.{PLANNED - 1}.id"))
    await run.result()
    return run.id


async def by_hand(bridge: Bridge, calls: int) -> str:
    """Carry out a run by hand, three calls after another for each issue, and return its id."""
    run = await bridge.solve("Write notes", input={"text": "crash"}, mind="turns")
    for turn in range(calls):
        round_number, step = divmod(turn, 3)
        place = round_number % 20
        issue = f"crash-{round_number}-{place}"
        call: JSONObject = {"_tool": "search", "text": "crash", "page": round_number}
        if step == 1:
            call = {"_tool": "read_issue", "issue": issue}
        elif step == 2:
            call = {"_tool": "note", "issue": issue, "text": f"owner of {issue}"}
        run.submit(turn, {"calls": [call]})
        while await run.wait() == "needs_approval":
            for question in run.questions():
                run.decide(question.approval, "approve", by="a person")
        if run.status != "needs_solution":
            raise SystemExit(f"call {turn} did not run: the run is {run.status}")
    run.submit(calls, {"output": "done"})
    await run.result()
    return run.id


@dataclass
class Measured:
    """What publishing took: seconds, the longest delay of the event loop, processor seconds, and MB of memory."""

    seconds: float
    delay: float
    cpu: float
    memory: float


def processes() -> list[Path]:
    """The folders in /proc of this process and its descendants."""
    children: dict[str, list[str]] = {}
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            # It is no process, or it has ended.
            continue
        children.setdefault(fields[1], []).append(folder.name)
    listed = [str(os.getpid())]
    for pid in listed:
        listed += children.get(pid, [])
    return [Path("/proc", pid) for pid in listed]


def used() -> tuple[float, float]:
    """(processor seconds, MB of memory at its peak) of this process and its descendants."""
    ticks = 0
    kilobytes = 0
    for folder in processes():
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            status = (folder / "status").read_text(encoding="utf-8")
        except OSError:
            continue
        # User and system time, also of children that have ended.
        ticks += sum(int(field) for field in fields[11:15])
        kilobytes += int(status.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in status else 0
    return ticks / os.sysconf("SC_CLK_TCK"), kilobytes / 1024


def forget_peaks() -> None:
    """Let the peaks of memory begin anew."""
    for folder in processes():
        # A process may have ended in the meantime.
        with suppress(OSError):
            (folder / "clear_refs").write_text("5", encoding="utf-8")


async def published(bridge: Bridge, run: str, name: str) -> Measured:
    """Publish a run, and measure it."""
    delays: list[float] = []

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(TICK)
            delays.append(time.perf_counter() - began - TICK)

    seconds = 0.0
    forget_peaks()
    cpu, memory = used()
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        began = time.perf_counter()
        await bridge.publish(run, name, answer="plan", description="A large run.")
        seconds = time.perf_counter() - began
        group.cancel_scope.cancel()
    cpu_after, memory_after = used()
    return Measured(seconds, max(delays), cpu_after - cpu, memory_after - memory)


async def floor_of(bridge: Bridge, run_id: str) -> float:
    """Seconds that reading the results of a run as JSON takes."""
    run = await bridge.run(run_id)
    results = [call.value for call in run.calls()]
    text = json.dumps(results)
    began = time.perf_counter()
    json.loads(text)
    return time.perf_counter() - began


def rows_of(what: str, measured: Measured, floor: float, bound: float) -> list[JSONObject]:
    """The rows of one run."""
    listed = (
        (f"s to publish {what}", measured.seconds, floor, bound),
        (f"s the event loop waits while {what} are published", measured.delay, None, DELAY_SECONDS),
        (f"MB of memory to publish {what}", measured.memory, None, MEMORY_MB),
    )
    rows: list[JSONObject] = []
    for name, ours, least, target in listed:
        row: JSONObject = {"what": name, "ours": ours, "peer": None, "floor": least, "ratio": ours}
        rows.append({**row, "target": target, "met": ours <= target})
    rows[0]["cpu"] = measured.cpu
    return rows


async def measure(folder: Path) -> list[JSONObject]:
    """All rows."""
    rows: list[JSONObject] = []
    toolbox = Toolbox(record, search, read_issue, note)
    configuration = Configuration(limits=Limits(requests=1_000))
    async with Bridge(configuration, toolbox=toolbox, store=folder / "ideas.sqlite") as bridge:
        # The first publication also imports modules and starts processes.
        await published(bridge, await by_hand(bridge, 3), "first")
        for calls, bound in BY_HAND:
            run = await by_hand(bridge, calls)
            measured = await published(bridge, run, f"by_hand_{calls}")
            rows += rows_of(f"{calls} calls by hand", measured, await floor_of(bridge, run), bound)
        run = await by_plan(bridge)
        measured = await published(bridge, run, "by_plan")
        rows += rows_of(f"{PLANNED:,} calls with 10 MB", measured, await floor_of(bridge, run), PLANNED_SECONDS)
    return rows


def main() -> int:
    """Print the rows; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = anyio.run(measure, Path(folder))
    if options.json:
        print(json.dumps({"rows": rows}))
    else:
        for row in rows:
            cpu = f" (processor: {row['cpu']:.3f} s)" if "cpu" in row else ""
            print(f"{row['what']:<60} {row['ours']:10.3f}{cpu}, at most {row['target']:g}")
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
