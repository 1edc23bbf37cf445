"""One life of the process that is killed: it takes up what the last one left, and starts runs of its own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.run import Run
from ideabridge.tools.encoding import JSON

from .mind import SlowMind
from .plans import plan_of
from .rooms import OUTPUT, TOOLS, rooms_plan, task_of

# Before the fork: a life is to be killed at its work, not at its imports, which wait for the first module.
importlib.import_module("ideabridge.bridge.modules.module")

MODULE = Path(__file__).with_name("module.py")

Say = Callable[[str], None]


def configured(log: Path) -> Configuration:
    """The configuration of every life: one module over stdio, nobody is asked."""
    entry: JSON = {"command": sys.executable, "args": ["-I", "-S", str(MODULE), str(log)], "parallel": 8}
    return parse_configuration({"mcpServers": {"crash": entry}, "approval": "allow_all"}, project=log.parent)


def skip_unknown(run: Run) -> int:
    """Answer every question what came of a call that was in flight: nobody knows. Returns how many there were."""
    asked = run.questions()
    for question in asked:
        run.decide(question.approval, "skip", by="the life after")
    return len(asked)


async def begin_run(bridge: Bridge, kind: str, number: int, seed: int) -> Run:
    """Start a run: a `plan`, one with `rooms`, or one that a mind is to `solve`. Its title says which it is."""
    if kind == "solve":
        task = task_of(number, seed)
        return await bridge.solve(task, tools=TOOLS, output_schema=OUTPUT)
    plan = plan_of(number, seed) if kind == "plan" else rooms_plan(number, seed)
    return await bridge.run_plan(read_plan(plan), title=f"{kind} {number}")


async def live(folder: Path, first: int, runs: int, seed: int, say: Say) -> None:
    """Live until killed.

    Args:
        folder: holds the store and the log.
        first: number of the first plan to start.
        runs: how many to start; one with rooms and one of a mind besides.
        seed: of the plans.
        say: acknowledges: `run ID`, `idea ID`, or `trouble WORDS`.
    """

    def tell(record: RunRecord, why: str) -> None:
        if "is set aside" not in why:
            say(f"trouble {record.id} {why}")

    def taken_up(run: Run) -> None:
        say(f"resumed {run.id}")
        skip_unknown(run)

    log = folder / "log"
    async with Bridge(configured(log), store=folder / "store.sqlite", mind=SlowMind(log)) as bridge:

        async def drive(number: int) -> None:
            run = await begin_run(bridge, "plan", number, seed)
            say(f"run {run.id}")
            alone = Idea([{"role": "user", "content": f"alone {number}"}], {"type": "string"}, {"calls": []})
            say(f"idea {bridge.store.save_idea(alone, IdeaMeta(title='alone'))}")
            await run.wait()
            say(f"idea {run.idea}")

        async def drive_others() -> None:
            for kind in ("rooms", "solve"):
                say(f"run {(await begin_run(bridge, kind, first, seed)).id}")

        async with anyio.create_task_group() as group:
            group.start_soon(bridge.recover_runs, tell, taken_up)
            for number in range(first, first + runs):
                group.start_soon(drive, number)
            group.start_soon(drive_others)
        await anyio.sleep_forever()


def begin(folder: Path, first: int, runs: int, seed: int) -> tuple[int, int]:
    """Begin a life in a process of its own.

    Returns:
        Its process id, and a descriptor to read from what it acknowledged.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        anyio.run(live, folder, first, runs, seed, partial(_acknowledge, writing))
    except BaseException as error:  # noqa: BLE001 - a life that ends by itself is what the parent must hear of
        _acknowledge(writing, f"trouble life ended: {error!r}")
    finally:
        os._exit(code)


def _acknowledge(writing: int, line: str) -> None:
    # Less than a pipe takes at once: whole or not at all.
    os.write(writing, " ".join(line[:500].split("\n")).encode() + b"\n")
