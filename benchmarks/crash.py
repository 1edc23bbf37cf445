"""Kills a process that drives runs, again and again, and looks whether anything is lost or done twice (DESIGN 7).

    python benchmarks/crash.py [N] [--json] [--seed S]

A child process drives plans (chains, fan-outs, `_each`; read-only, idempotent and other tools) over a module on stdio
that writes down each execution durably; plans with rooms (ideas, one in another, and a clean room); and tasks that a
mind answers slowly, in small pieces, which writes down durably what it was asked. N times it is killed with SIGKILL at
a random moment, and the next one takes up what it left. In the end every run must have ended, and:

- runs of read-only and idempotent tools have the output, the values and the idea of an undisturbed run;
- in the others a person is asked about exactly the calls that were in flight at a kill; skipped, these are of unknown
  outcome, and each ran once at most;
- runs with rooms have the rooms and the output of an undisturbed run; runs of a mind have its output;
- an answer that was cut off is what the journal had of it, and its Request is not asked again;
- nothing that was journaled as finished ran again; every run and idea that was acknowledged is there;
- SQLite finds the file whole after each kill, and no process of a module outlives its parent.

It needs Linux: processes are forked and watched there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from crash_parts.life import begin, begin_run, configured, skip_unknown
from crash_parts.mind import TASK, SlowMind
from crash_parts.plans import execution, is_steady, plan_of
from crash_parts.reading import told_by
from crash_parts.rooms import publish_ideas
from crash_parts.witness import Witness

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.ideas.errors import StoreError
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.run import Run
from ideabridge.bridge.runs import is_set_aside

KILLS = 40
RUNS_EACH = 2
"""How many runs each life starts."""

SPAN = 0.4
"""Seconds within which a life is killed: every other from its beginning, the rest from what it acknowledges first."""

FIRST = 20
"""Seconds within which a life acknowledges something, also on a machine that is busy."""

AT_ONCE = 16


class Trial:
    """The whole test, in a folder of its own."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self.kills = kills
        self.seed = seed
        self.witness = Witness(folder)
        self.violations = self.witness.violations
        self.acknowledged: dict[str, set[str]] = {"run": set(), "idea": set()}
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._draw = random.Random(seed)

    def kill_again_and_again(self) -> None:
        """Every life but the last."""
        for name in ("store", "undisturbed"):
            with Store.open(self._folder / f"{name}.sqlite") as store:
                publish_ideas(store)
        for life in range(self.kills):
            child, acknowledgements = begin(self._folder, life * RUNS_EACH, RUNS_EACH, self.seed)
            moment = self._draw.uniform(0, SPAN)
            # The end of the pipe comes early only where the child ended by itself, which is a violation it has told.
            poll = select.poll()
            if life % 2:
                poll.register(acknowledgements, select.POLLIN | select.POLLHUP)
                poll.poll(FIRST * 1000)
            poll.register(acknowledgements, select.POLLHUP)
            poll.poll(moment * 1000)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(acknowledgements) as lines:
                for line in lines:
                    self._hear(line)
            self.witness.expect_no_module()
            self.witness.look()

    def _hear(self, line: str) -> None:
        kind, _, rest = line.strip().partition(" ")
        if kind in self.acknowledged:
            self.acknowledged[kind].add(rest)
        elif kind == "resumed":
            self.counts["resumed"] += 1
        elif line.endswith("\n"):
            self.violations.append(rest)

    async def last_life(self) -> None:
        """Take up what is left, undisturbed, and judge it all."""
        folder = self._folder

        def tell(record: RunRecord, why: str) -> None:
            if "is set aside" not in why:
                self.violations.append(f"run {record.id} was not taken up: {why}")

        def taken_up(run: Run) -> None:
            self.counts["resumed"] += 1
            self.counts["asked about"] += skip_unknown(run)

        async with (
            Bridge(configured(folder / "log"), store=folder / "store.sqlite", mind=SlowMind(folder / "log")) as bridge,
            Bridge(
                configured(folder / "undisturbed.log"),
                store=folder / "undisturbed.sqlite",
                mind=SlowMind(folder / "undisturbed.log"),
            ) as undisturbed,
        ):
            await bridge.recover_runs(tell, taken_up)
            # What was killed again and again before it came further waits for a person, who takes it up.
            for record in bridge.store.runs(status="interrupted", limit=1000):
                if is_set_aside(record):
                    self.counts["set aside"] += 1
                    run = await bridge.resume(record.id)
                    self.counts["asked about"] += skip_unknown(run)
                    await run.wait()
            for record in bridge.store.runs(status="needs_approval", limit=1000):
                # Its process died before it answered.
                run = await bridge.run(record.id)
                self.counts["asked about"] += skip_unknown(run)
                await run.wait()
            self.witness.look_at_the_end(bridge.store)
            for status in ("running", "interrupted", "needs_approval", "needs_solution"):
                left = bridge.store.runs(status=status)
                self.violations.extend(f"run {record.id} is still {status}" for record in left)
            for run_id in self.acknowledged["run"] - self.witness.seen:
                self.violations.append(f"run {run_id} was acknowledged and is lost")
            for idea in sorted(self.acknowledged["idea"]):
                try:
                    bridge.store.idea(idea)
                except StoreError as error:
                    self.violations.append(f"idea {idea[:12]} was acknowledged and is lost: {error}")
            places = anyio.Semaphore(AT_ONCE)
            async with anyio.create_task_group() as group:
                for run_id in sorted(self.witness.seen):
                    record = bridge.store.run(run_id)
                    if record is not None and record.parent is None:
                        group.start_soon(self._judge, bridge, undisturbed, record, places)
        self.witness.judge_executions()
        self.witness.expect_no_module()
        self.witness.check_integrity(folder / "store.sqlite")
        self.counts["runs"] = len(self.witness.seen)
        self.counts["ideas"] = len(self.acknowledged["idea"])
        self.counts["executions"] = sum(self.witness.ran.values())
        self.counts["executed again"] = sum(count - 1 for count in self.witness.ran.values())
        self.counts["cut off"] = self.witness.cut
        self.counts["in flight at a kill"] = len(self.witness.flying)
        self.counts["answers cut off"] = self.witness.answers_cut
        self.counts["requests asked"] = sum(self.witness.asked.values())

    async def _judge(self, bridge: Bridge, undisturbed: Bridge, record: RunRecord, places: anyio.Semaphore) -> None:
        kind, number = named(record)
        async with places:
            reference = await begin_run(undisturbed, kind, number, self.seed)
            await reference.wait()
        run = await bridge.run(record.id)
        where = f"run {run.id} ({kind} {number})"
        if run.status != "done" or reference.status != "done" or record.status != "done":
            self.violations.append(f"{where} is {run.status}, {record.status} in the list; {run.answer()['errors']}")
        if kind != "plan":
            self._judge_rooms(bridge, undisturbed, run, reference, where)
            return
        plan = plan_of(number, self.seed)
        if is_steady(number) and (run.given(), run.idea) != (reference.given(), reference.idea):
            self.violations.append(f"{where} differs from an undisturbed one: {run.given()}, {run.errors()}")
        if len(bridge.store.step_ideas(run.id)) != 1:
            self.violations.append(f"{where} has {len(bridge.store.step_ideas(run.id))} ideas; expected one")
        self._judge_calls(run, reference, plan, where)

    def _judge_rooms(self, bridge: Bridge, undisturbed: Bridge, run: Run, reference: Run, where: str) -> None:
        if run.given() != reference.given() or not run.machine.has_output:
            self.violations.append(f"{where} differs from an undisturbed one: {run.given()}, {run.errors()}")
        found, expected = rooms_under(bridge.store, run.id), rooms_under(undisturbed.store, reference.id)
        if sorted(found) != sorted(expected):
            self.violations.append(f"{where} has the rooms {sorted(found)}, undisturbed {sorted(expected)}")
        for room, status in found.items():
            if status != "done":
                self.violations.append(f"{where}: its room {room} is {status}")
        self.counts["rooms"] += len(found)
        for run_id in (run.id, *(run.id + room for room in found)):
            steps = told_by(bridge.store, run_id).steps
            ideas = bridge.store.step_ideas(run_id)
            if steps and len(ideas) != len(steps):
                self.violations.append(f"{where}: {run_id} made {len(steps)} Requests and has {len(ideas)} ideas")
            for step, idea in zip(steps, ideas, strict=False):
                solution = bridge.store.idea(idea.id).idea.solution
                if step.broken is not None and solution != {"calls": step.calls, "output": None}:
                    self.violations.append(f"{where}: {step} was cut off and was kept as {solution}")

    def _judge_calls(self, run: Run, reference: Run, plan: dict[str, Any], where: str) -> None:
        spoilt: set[str] = set()
        for mine, other, call in zip(run.calls(), reference.calls(), plan["calls"], strict=True):
            depends = any(
                f"†state.{label}" in text for label in spoilt for text in (str(call["n"]), *call.get("_imports", ()))
            )
            each = "_each" in call
            unknown: set[tuple[str, str]] = set()
            for number, item in enumerate(mine.items):
                name = execution(call, plan, number if each else None)
                self.counts["calls"] += 1
                if item.error is not None and item.error.get("kind") == "unknown":
                    unknown.add(name)
                elif item.finished and item.error is None and not self.witness.ran[name]:
                    self.violations.append(f"{where}: {name} finished and never ran")
                if call["_tool"] == "bump" and self.witness.ran[name] > 1:
                    self.violations.append(
                        f"{where}: {name} must not run twice, and ran {self.witness.ran[name]} times"
                    )
            flew = {name for name in self.witness.flying if name[0] == call["key"]}
            expected = flew if call["_tool"] == "bump" else set[tuple[str, str]]()
            if unknown != expected:
                self.violations.append(f"{where}: of unknown outcome {unknown}, in flight at a kill {expected}")
            self.counts["unknown"] += len(unknown)
            if mine.standing.value == "done":
                if mine.value != other.value:
                    self.violations.append(f"{where}: {call['key']} gave {mine.value}, undisturbed {other.value}")
            elif unknown or depends:
                spoilt.add(call["_outputPath"])
            else:
                self.violations.append(f"{where}: {call['key']} is {mine.standing.value}: {mine.error}")


def rooms_under(store: Store, run_id: str) -> dict[str, str]:
    """The rooms of a run at any depth: what stands behind its id in theirs, and how they stand."""
    found: dict[str, str] = {}
    for record in store.rooms_of(run_id):
        own = record.id.removeprefix(run_id)
        found[own] = record.status
        found |= {own + below: status for below, status in rooms_under(store, record.id).items()}
    return found


def named(record: RunRecord) -> tuple[str, int]:
    """(kind, number) of a run, as `begin_run` takes them, from its title."""
    if record.kind == "solve":
        return "solve", int(json.loads(record.title.removeprefix(TASK))["n"])
    kind, number = record.title.split()
    return kind, int(number)


def rows_of(trial: Trial, seconds: float) -> list[dict[str, Any]]:
    """The rows of `benchmarks/README.md`; only the first has a target."""
    broken = len(trial.violations)
    first = {"what": f"what {trial.kills} kills broke", "ours": broken, "target": 0, "met": broken == 0}
    figures = {**trial.counts, "seconds": round(seconds, 1)}
    rows = [first, *({"what": f"crash: {what}", "ours": count} for what, count in figures.items())]
    empty = {"peer": None, "floor": None, "ratio": None, "target": None, "met": True}
    return [{**empty, **row} for row in rows]


def main() -> int:
    """Run it; exit code 1 where anything is lost, done twice or left behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kills", nargs="?", type=int, default=KILLS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=None, help="the same plans and moments again")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.kills, seed)
        trial.kill_again_and_again()
        anyio.run(trial.last_life)
    rows = rows_of(trial, time.monotonic() - began)
    if options.json:
        print(json.dumps({"rows": rows, "seed": seed, "violations": trial.violations}))
    else:
        for row in rows:
            print(f"{row['ours']:>10,}  {row['what']}")
        print(f"seed {seed}")
        for violation in trial.violations[:50]:
            print(f"BROKEN: {violation}", file=sys.stderr)
    return 0 if not trial.violations else 1


if __name__ == "__main__":
    sys.exit(main())
