"""Publishing large runs: processor time, how long it holds up the event loop, and memory.

    python benchmarks/publishing.py [--json]

Runs are published from a file of SQLite, as a server does. One run is a plan of 10,000 calls that
returned 10 MB, and each call reads the result of the one before. The others are sessions: a mind
searches, opens what it found and writes a note about it, one call after the other, and copies each
value. They have 245 calls, as the longest real session that was measured, and 1,600.

Processor time counts all processes. Its floor is that of reading the run once, which is what
publishing at least does; the targets are bounds in seconds. Processor time and memory also have to
be linear: a row compares what a call takes in a run of 1,600 calls with what it takes in one
of 245. While a run is published, a task of the event loop wakes up every millisecond; the row of
the loop is its longest delay. Memory is the peak of all processes beyond what they had before.
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
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.stretch import EndedCall, ended_run, keep_ended
from ideabridge.bridge.store.run_record import RunOrigin
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox

PLANNED = 10_000
RECORD = "0123456789 abcdef " * 52
"""A text of about 1 kB, so that 10,000 results have 10 MB."""

SESSIONS = ((245, 1.0), (1_600, 1.5))
"""The calls of sessions, and the seconds of processor time within which they are published."""

PLANNED_SECONDS = 5.0
DELAY_SECONDS = 0.25
MEMORY_MB = 1_000.0
LINEAR = 1.5
"""How much more a call may take in the longer session."""

TICK = 0.001


@tool(read_only=True)
def record(number: int, after: str) -> dict[str, str]:
    """Return one record."""
    return {"id": f"record-{number}", "text": f"{number} {RECORD}"}


@tool(read_only=True)
def search(text: str, page: int) -> list[JSON]:
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
        {
            "_tool": "record",
            "number": number,
            "after": f"†results.{number - 1}.id" if number else "†input.first",
        }
        for number in range(PLANNED)
    ]
    run = await bridge.run_plan(
        Plan(calls, input={"first": "none"}, output=f"†results.{PLANNED - 1}.id")
    )
    await run.result()
    return run.id


def by_hand(bridge: Bridge, calls: int) -> str:
    """Store a session with this number of calls, three for each issue, and return
    the id of its run.
    """
    tools = {one.name: one for one in Toolbox(search, read_issue, note).tools.values()}
    made: list[EndedCall] = []
    for step in range(calls):
        page, kind = divmod(step, 3)
        issue = f"crash-{page}-{page % 20}"
        if kind == 0:
            made.append(
                EndedCall(
                    tools["search"], {"text": "crash", "page": page}, step, search("crash", page)
                )
            )
        elif kind == 1:
            made.append(
                EndedCall(
                    tools["read_issue"], {"issue": issue}, step, dict[str, JSON](read_issue(issue))
                )
            )
        else:
            text = f"owner of {issue}"
            made.append(
                EndedCall(tools["note"], {"issue": issue, "text": text}, step, note(issue, text))
            )

    run_id = f"run_session{calls}"
    ended = ended_run(made, Settings(), "Write notes about crashes", "it is a session")
    keep_ended(
        bridge.store,
        run_id,
        ended,
        caller=LOCAL,
        title="Notes",
        fingerprint="benchmark",
        origin=RunOrigin({}),
    )
    return run_id


@dataclass(frozen=True)
class Measured:
    """What publishing a run took.

    Attributes:
        calls: the calls of the run.
        cpu: seconds of processor time.
        floor: seconds of processor time in which the run is read once.
        delay: seconds of the longest delay of the event loop.
        memory: MB.
    """

    calls: int
    cpu: float
    floor: float
    delay: float
    memory: float


def processes() -> list[Path]:
    """The folders in /proc of this process and its descendants."""
    children: dict[str, list[str]] = {}
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            # This is not a process, or it has just ended.
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

        # Add the user time and the system time, including those of children that have ended.
        ticks += sum(int(field) for field in fields[11:15])
        kilobytes += int(status.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in status else 0

    return ticks / os.sysconf("SC_CLK_TCK"), kilobytes / 1024


def forget_peaks() -> None:
    """Let the peaks of memory begin anew."""
    for folder in processes():
        # The process may have ended in the meantime.
        with suppress(OSError):
            (folder / "clear_refs").write_text("5", encoding="utf-8")


async def published(bridge: Bridge, run: str, name: str, calls: int) -> Measured:
    """Publish a run, and measure it."""
    delays: list[float] = []

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(TICK)
            delays.append(time.perf_counter() - began - TICK)

    forget_peaks()
    cpu, memory = used()
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await bridge.publish(run, name, answer="plan", description="A large run.", program=False)
        group.cancel_scope.cancel()

    cpu_after, memory_after = used()
    return Measured(
        calls, cpu_after - cpu, floor_of(bridge, run), max(delays), memory_after - memory
    )


def floor_of(bridge: Bridge, run: str) -> float:
    """Seconds of processor time in which a run is read once."""
    began = time.process_time()
    read_run(bridge.store, run)
    return time.process_time() - began


def rows_of(what: str, measured: Measured, bound: float) -> list[JSONObject]:
    """The rows of one run."""
    return [
        row(f"s of processor time to publish {what}", measured.cpu, bound, floor=measured.floor),
        row(f"s the event loop waits while {what} are published", measured.delay, DELAY_SECONDS),
        row(f"MB of memory to publish {what}", measured.memory, MEMORY_MB),
    ]


def row(
    what: str, ours: float, target: float, *, floor: float | None = None, peer: float | None = None
) -> JSONObject:
    """One row; with a peer, the target bounds the ratio to it, and otherwise the figure itself."""
    ratio = ours if peer is None else ours / peer
    return {
        "what": what,
        "ours": ours,
        "peer": peer,
        "floor": floor,
        "ratio": ratio,
        "target": target,
        "met": ratio <= target,
    }


def linear_rows(short: Measured, long: Measured) -> list[JSONObject]:
    """What a call takes in a long session, beside what it takes in a short one."""
    beside = f"a call, {long.calls:,} calls by hand beside {short.calls:,}"
    cpu = (long.cpu / long.calls * 1e3, short.cpu / short.calls * 1e3)
    memory = (long.memory / long.calls * 1e3, short.memory / short.calls * 1e3)
    return [
        row(f"ms of processor time {beside}", cpu[0], LINEAR, peer=cpu[1]),
        row(f"kB of memory {beside}", memory[0], LINEAR, peer=memory[1]),
    ]


async def measure(folder: Path) -> list[JSONObject]:
    """All rows."""
    rows: list[JSONObject] = []
    toolbox = Toolbox(record, search, read_issue, note)
    async with Bridge(toolbox=toolbox, store=folder / "ideas.sqlite") as bridge:
        # Publish once without measuring, because the first publication also imports modules and
        # starts processes.
        await published(bridge, by_hand(bridge, 60), "first", 60)
        sessions: list[Measured] = []
        for calls, bound in SESSIONS:
            measured = await published(bridge, by_hand(bridge, calls), f"by_hand_{calls}", calls)
            rows += rows_of(f"{calls:,} calls by hand", measured, bound)
            sessions.append(measured)

        rows += linear_rows(sessions[0], sessions[-1])
        measured = await published(bridge, await by_plan(bridge), "by_plan", PLANNED)
        rows += rows_of(f"{PLANNED:,} calls with 10 MB", measured, PLANNED_SECONDS)

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
        for measured in rows:
            if measured["floor"] is None:
                floor = ""
            else:
                floor = f" (reading it once: {measured['floor']:.3f})"
            bound = f"ratio {measured['ratio']:.3f}, at most {measured['target']:g}"
            print(f"{measured['what']:<70} {measured['ours']:10.3f}{floor}, {bound}")

    return 0 if all(measured["met"] for measured in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
