"""Kills, freezes and starves processes that drive runs, and checks that nothing is
lost or done twice.

    python benchmarks/crash.py [N] [--only KIND ...] [--servers K] [--cluster C] [--json] [--seed S]

A process drives plans (chains, fan-outs, `_each`; read-only, idempotent and other tools; a payment
whose failure is caught, with its refund) and programs (calls at once, tasks, conditions, loops;
errors that they catch) over a module on stdio that writes down each execution durably; plans with
rooms (ideas, one in another, and a clean room); and tasks that a mind answers slowly, in small
pieces. At random moments N events happen to it, of each kind one before any comes again:

- `kill`: it is killed with SIGKILL, and the next process takes up what it left;
- `module`: its module is killed with SIGKILL, once or twice in a row;
- `reload`: its configuration changes, so that its module is replaced, and a second one is added or
  removed;
- `disk`: writes to the store fail with EIO or ENOSPC for up to 3 s;
- `lock`: another program holds the write lock of the store, for up to 8 s;
- `freeze`: it is stopped with SIGSTOP, in half of the cases for longer than its leases hold, while
  another process takes its runs up, and goes on with SIGCONT.

Then three servers (`ideabridge serve`) drive runs on one store, and one of them is killed K times:
every run must have ended, or ask about an unknown outcome, within 10 s of the kill, without
anybody asking for it. Before that, `check_run` at a server that does not drive the run must answer
when the run ends.

Then two servers and two workers share a store in PostgreSQL, if its programs are installed. 20
clients reach them through a balancer, and C things happen: a process is killed, or connections to
PostgreSQL are cut. Every run must settle within 30 s.

In the end every run must have ended, and:

- plans and programs of read-only and idempotent tools have the output, the values and the idea of
  an undisturbed run;
- in the others exactly the calls that were cut off are of unknown outcome: those in flight when
  their process was killed, and those that a killed module had begun and not answered. A person is
  asked about them and skips them; each ran once at most, none is caught by `p || q`, and nothing
  that reads their result runs;
- a failed write, a lock and a freeze alone make no outcome unknown, and no process gives up a run
  for them. A process that slept past its lease journals nothing more of a run that another took up,
  and no call runs twice for it;
- while nothing is disturbed, every run of a living process settles within 20 s;
- runs with rooms have the rooms and the output of an undisturbed run; runs of a mind
  have its output;
- an answer that was cut off is what the journal had of it, and its Request is not asked again;
- nothing that was journaled as finished ran again; every run and idea that was acknowledged is
  there, and no run is that was refused;
- SQLite finds the file whole after each kill, and no process of a module outlives its parent.

It needs Linux: processes are forked, frozen and watched there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
from crash_parts.cluster import KINDS as CLUSTER_KINDS
from crash_parts.cluster import SETTLES as SETTLES_IN_CLUSTER
from crash_parts.cluster import SLOWNESS as CLUSTER_SLOWNESS
from crash_parts.cluster import Cluster
from crash_parts.harm import drawn, fail_appends, hold_lock
from crash_parts.life import LEASE, NUMBERS, Disk, Life, begin_run, configured, skip_unknown
from crash_parts.mind import TASK, SlowMind, solution_for
from crash_parts.plans import ONCE, execution, is_steady, plan_of
from crash_parts.reading import told_by
from crash_parts.rooms import publish_ideas
from crash_parts.servers import SLOWNESS, Servers
from crash_parts.witness import Witness
from tests.postgres import PostgresServer, check_server, programs

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.runs.decision import is_set_aside
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.database import is_address
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSONObject

EVENTS = 60
KILLS = 5
"""How often one of three servers is killed."""

CLUSTER = 10
"""Events in a cluster of two servers and two workers."""

AT_MOST = 50
"""Events in one store; with more of them, several stores are used one after another."""

KINDS = {"kill": 10, "module": 8, "reload": 4, "disk": 3, "lock": 2, "freeze": 2}
"""The kinds of events, and how often each is drawn after it has come once."""

SPAN = 0.8
"""Seconds between two events: every other time from the beginning of a life, else from its first
program, or from what it says first. The interpreter starts with the first program, so most lives
would be killed before they have one.
"""

FIRST = 20
"""Seconds within which a life says something, also on a machine that is busy."""

SETTLES = 20.0
"""Seconds within which the runs of a life that is left alone settle."""

AT_ONCE = 16

SETTLED = "cluster: seconds until a run had settled, at most"


class Trial:
    """The whole test, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        events: int,
        seed: int,
        kinds: Sequence[str] = (),
        store: str | None = None,
    ) -> None:
        self.events = events
        self.seed = seed
        self.witness = Witness(folder)
        self.violations = self.witness.violations
        self.acknowledged: dict[str, set[str]] = {"run": set(), "idea": set()}
        self.refused: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._store = store or str(folder / "store.sqlite")
        self._draw = random.Random(seed)
        self._kinds = drawn(self._draw, {kind: KINDS[kind] for kind in kinds})
        self._lives = 0
        self._slowness = 25
        self.slowest: dict[str, float] = {}
        self.served: dict[str, tuple[str, int]] = {}
        self.unanswered: Counter[str] = Counter()
        for place in (self._store, str(folder / "undisturbed.sqlite")):
            with Store.open(place) as opened:
                publish_ideas(opened)

    async def disturb_servers(self, kills: int) -> None:
        """Let three servers drive runs instead of lives."""
        servers = Servers(self._folder, self.seed, self.witness)
        self._slowness = SLOWNESS
        await servers.disturb(kills)
        self.served = {run_id: ("plan", number) for run_id, number in servers.begun.items()}
        self.acknowledged["run"].update(servers.begun)
        self.counts += servers.counts
        self.slowest["servers: seconds until all runs settled, at most"] = servers.slowest
        self.slowest["servers: seconds until another one answered, at most"] = (
            servers.slowest_answer
        )

    async def disturb_cluster(
        self, postgres: PostgresServer, events: int, kinds: dict[str, int]
    ) -> None:
        """Let a cluster drive runs instead of lives."""
        cluster = Cluster(self._folder, self.seed, self.witness, postgres, self._store)
        self._slowness = CLUSTER_SLOWNESS
        await cluster.disturb(events, kinds)
        self.served = {**cluster.begun, **cluster.unheard}
        self.acknowledged["run"].update(cluster.begun)
        self.counts += cluster.counts
        self.counts["cluster: requests without an answer, asked again"] = sum(
            cluster.refused.values()
        )
        self.slowest[SETTLED] = cluster.slowest
        self.unanswered = cluster.refused

    def disturb(self) -> None:
        """Every life but the last."""
        left = self.events
        while left > 0:
            life = self._begin()
            match self._lives % 4:
                case 1:
                    life.hear_of("program", FIRST)
                case 3:
                    life.hear(FIRST)
                case _:
                    pass
            alive = True
            while alive and left > 0:
                alive = life.hear_for(self._draw.uniform(0, SPAN)) and self._event(life)
                left -= 1
            if life.alive:
                self._end(life)

    def _begin(self, *, elsewhere: bool = False) -> Life:
        first = self._lives * NUMBERS
        self._lives += 1
        return Life(self._folder, first, self.seed, self._hear, elsewhere=elsewhere)

    def _event(self, life: Life) -> bool:
        """One event. Returns whether the life goes on."""
        kind = next(self._kinds)
        if kind in ("disk", "lock") and not life.heard:
            # If the store cannot be written, it cannot be opened either, so this is no violation.
            life.hear(FIRST)

        if kind == "module":
            # The life might not have a module yet.
            for _ in range(self._draw.randint(1, 2)):
                if self.witness.kill_module():
                    self.counts["modules killed"] += 1
                    life.hear_for(self._draw.uniform(0, SPAN))
        elif kind == "reload":
            life.reload()
        elif kind == "disk":
            fail_appends(life, self._draw)
        elif kind == "lock":
            hold_lock(life, Path(self._store), self._draw)
        elif kind == "freeze" and not self._freeze(life):
            kind = "freeze past the lease"

        self.counts[kind] += 1
        if kind == "kill":
            self._end(life)

        if not life.alive:
            return False

        # Leave a module alone for a while, because it may fail its calls if it is killed at every
        # attempt. In half of the other cases, the next event may come before the life has recovered
        # from this one.
        if kind == "module" or self._draw.random() < 0.5:
            self._settle(life, kind)

        return True

    def _freeze(self, life: Life) -> bool:
        """Freeze a life; where that is for longer than its leases hold, it ends with the one
        that came after it.

        Returns:
            Whether it goes on.
        """
        life.stop()
        self.witness.look_at_frozen()
        if self._draw.random() < 0.5:
            time.sleep(self._draw.uniform(0, LEASE / 3))
            life.wake()
            return True

        # A process on the same machine sees that the frozen one is alive. A process on another
        # machine does not.
        other = self._begin(elsewhere=self._draw.random() < 0.7)
        other.hear_for(self._draw.uniform(LEASE, 2.5 * LEASE))
        life.slept = True
        life.wake()
        end = time.monotonic() + self._draw.uniform(0, 1)
        while time.monotonic() < end:
            life.hear_for(0.02)
            other.hear_for(0.02)

        life.stop()
        self._end(other, life)
        return False

    def _settle(self, life: Life, kind: str) -> None:
        """Leave a life alone until the runs that it drives now have settled."""
        waiting = set(life.open)
        end = time.monotonic() + SETTLES
        while waiting & life.open and time.monotonic() < end:
            if not life.hear(0.1):
                return
        self.violations.extend(
            f"run {run_id} has not settled {SETTLES:g} s after {kind}: {self._how(run_id)}, "
            f"said: {' '.join(life.said[run_id])}"
            for run_id in sorted(waiting & life.open)
        )

    def _how(self, run_id: str) -> str:
        """How a run stands, for whoever reads a violation."""
        with closing(sqlite3.connect(f"file:{self._store}?mode=ro", uri=True)) as connection:
            sql = "SELECT status, driver, epoch, summary FROM runs WHERE id = ?"
            return str(connection.execute(sql, (run_id,)).fetchone())

    def _end(self, *lives: Life) -> None:
        """Kill a life, or two at the same moment, and look at what is left."""
        for life in lives:
            life.stop()

        for life in lives:
            life.kill()
            self.violations.extend(
                f"run {run_id} was given up: {why}" for run_id, why in life.given_up.items()
            )

        self.witness.expect_no_module()
        self.witness.look()

    def _hear(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        match kind:
            case "run" | "idea":
                self.acknowledged[kind].add(rest)
            case "resumed":
                self.counts["resumed"] += 1
            case "late":
                self.counts["taken up late"] += 1
            case "asked":
                self.witness.asked[rest] += 1
            case "skipped":
                self.counts["asked about"] += int(rest)
            case "refused":
                self.counts["refused"] += 1
                self.refused.add(" ".join(rest.split(" ")[:2]))
            case "trouble":
                self.violations.append(rest)
            case _:
                pass

    async def last_life(self) -> None:
        """Take up what is left, undisturbed, and judge it all."""
        folder = self._folder

        def tell(record: RunRecord, why: str) -> None:
            if "is set aside" not in why:
                self.violations.append(f"run {record.id} was not taken up: {why}")

        def taken_up(run: Run) -> None:
            self.counts["resumed"] += 1
            self.counts["asked about"] += skip_unknown(run)

        def ignored(_: str) -> None:
            """What the mind of an undisturbed run says."""

        async with (
            Bridge(
                configured(folder / "log"), store=self._store, mind=SlowMind(self._hear)
            ) as bridge,
            Bridge(
                configured(folder / "undisturbed.log"),
                store=folder / "undisturbed.sqlite",
                mind=SlowMind(ignored),
            ) as undisturbed,
        ):
            await bridge.recover_runs(tell, taken_up)
            # A run whose process was killed again and again before it made any progress waits for a
            # person, who resumes it here.
            for record in bridge.store.runs.newest(
                status="interrupted", limit=1000, caller=SEES_ALL
            ):
                if is_set_aside(record):
                    self.counts["set aside"] += 1
                    run = await bridge.resume(record.id)
                    self.counts["asked about"] += skip_unknown(run)
                    await run.wait()

            for record in bridge.store.runs.newest(
                status="needs_approval", limit=1000, caller=SEES_ALL
            ):
                # The run's process died before it answered.
                run = await bridge.run(record.id)
                self.counts["asked about"] += skip_unknown(run)
                await run.wait()

            for record in bridge.store.runs.newest(
                status="needs_solution", limit=1000, caller=SEES_ALL
            ):
                # The run was set aside, so its client takes no more turns.
                run = await bridge.run(record.id)
                while run.status == "needs_solution" and run.runner.request is not None:
                    run.submit(run.turn, solution_for(run.runner.request))
                    await run.wait()

            self.witness.look_at_the_end(bridge.store)
            for status in ("running", "interrupted", "needs_approval", "needs_solution"):
                left = bridge.store.runs.newest(status=status, caller=SEES_ALL)
                self.violations.extend(f"run {record.id} is still {status}" for record in left)

            for record in bridge.store.runs.newest(limit=1000, caller=SEES_ALL):
                if (
                    record.parent is None
                    and " ".join(map(str, self._named(record))) in self.refused
                ):
                    self.violations.append(f"run {record.id} was refused, and is there")

            for run_id in self.acknowledged["run"] - self.witness.seen:
                self.violations.append(f"run {run_id} was acknowledged and is lost")

            for idea in sorted(self.acknowledged["idea"]):
                try:
                    bridge.store.ideas.get(idea, caller=SEES_ALL)
                except StoreError as error:
                    self.violations.append(
                        f"idea {idea[:12]} was acknowledged and is lost: {error}"
                    )

            places = anyio.Semaphore(AT_ONCE)
            async with anyio.create_task_group() as group:
                for run_id in sorted(self.witness.seen):
                    record = bridge.store.runs.get(run_id)
                    if record is not None and record.parent is None:
                        group.start_soon(self._judge, bridge, undisturbed, record, places)

        self.witness.judge_executions()
        self.witness.expect_no_module()
        if is_address(self._store):
            try:
                check_server(self._store)
            except AssertionError as error:
                self.violations.append(f"rows that refer to nothing: {error}")
        else:
            self.witness.check_integrity(Path(self._store))

        self.counts["runs"] = len(self.witness.seen)
        self.counts["ideas"] = len(self.acknowledged["idea"])
        self.counts["executions"] = sum(self.witness.ran.values())
        self.counts["executed again"] = sum(count - 1 for count in self.witness.ran.values())
        self.counts["cut off"] = self.witness.cut
        self.counts["in flight at a kill"] = len(self.witness.flying)
        self.counts["in flight at a freeze"] = len(self.witness.thawed)
        self.counts["cut off by a module's death"] = len(self.witness.torn())
        self.counts["answers cut off"] = self.witness.answers_cut
        self.counts["requests asked"] = sum(self.witness.asked.values())
        self.counts["writes that failed"] = Disk(folder / "disk").hits()
        noise = folder / "noise"
        if noise.exists():
            self.counts["lines logged"] = len(noise.read_bytes().splitlines())
        else:
            self.counts["lines logged"] = 0

    async def _judge(
        self, bridge: Bridge, undisturbed: Bridge, record: RunRecord, places: anyio.Semaphore
    ) -> None:
        kind, number = self._named(record)
        async with places:
            reference = await begin_run(undisturbed, kind, number, self.seed, self._slowness)
            await reference.wait()

        run = await bridge.run(record.id, caller=record.caller)
        where = f"run {run.id} ({kind} {number})"
        if run.status != "done" or reference.status != "done" or record.status != "done":
            self.violations.append(
                f"{where} is {run.status}, {record.status} in the list; {run.answer()['errors']}"
            )

        if kind == "program":
            self._judge_program(bridge, run, reference, number, where)
            return
        if kind != "plan":
            self._judge_rooms(bridge, undisturbed, run, reference, where)
            return

        plan = plan_of(number, self.seed, self._slowness)
        if is_steady(number) and (run.given(), run.idea) != (reference.given(), reference.idea):
            self.violations.append(
                f"{where} differs from an undisturbed one: {run.given()}, {run.errors()}"
            )

        if len(bridge.store.ideas.of_run(run.id)) != 1:
            self.violations.append(
                f"{where} has {len(bridge.store.ideas.of_run(run.id))} ideas; expected one"
            )

        self._judge_calls(run, reference, plan, where)

    def _named(self, record: RunRecord) -> tuple[str, int]:
        """(kind, number) of a run, as `begin_run` takes them: from its title, where no
        server began it.
        """
        if record.id in self.served:
            return self.served[record.id]
        if record.kind == "solve":
            return "solve", int(json.loads(record.title.removeprefix(TASK))["n"])
        kind, number = record.title.split()
        return kind, int(number)

    def _judge_rooms(
        self, bridge: Bridge, undisturbed: Bridge, run: Run, reference: Run, where: str
    ) -> None:
        if run.given() != reference.given() or not run.machine.has_output:
            self.violations.append(
                f"{where} differs from an undisturbed one: {run.given()}, {run.errors()}"
            )

        found, expected = (
            rooms_under(bridge.store, run.id),
            rooms_under(undisturbed.store, reference.id),
        )
        if sorted(found) != sorted(expected):
            self.violations.append(
                f"{where} has the rooms {sorted(found)}, undisturbed {sorted(expected)}"
            )

        for room, status in found.items():
            if status != "done":
                self.violations.append(f"{where}: its room {room} is {status}")

        self.counts["rooms"] += len(found)
        for run_id in (run.id, *(run.id + room for room in found)):
            steps = told_by(bridge.store, run_id).steps
            ideas = bridge.store.ideas.of_run(run_id)
            if steps and len(ideas) != len(steps):
                self.violations.append(
                    f"{where}: {run_id} made {len(steps)} Requests and has {len(ideas)} ideas"
                )

            for step, idea in zip(steps, ideas, strict=False):
                solution = bridge.store.ideas.get(idea.id, caller=SEES_ALL).idea.solution
                if step.broken is not None and solution != {
                    "calls": [*map(_stored_form, step.calls)],
                    "output": None,
                }:
                    self.violations.append(
                        f"{where}: {step} was cut off and was kept as {solution}"
                    )

    def _judge_program(
        self, bridge: Bridge, run: Run, reference: Run, number: int, where: str
    ) -> None:
        if is_steady(number) and (run.given(), run.idea) != (reference.given(), reference.idea):
            self.violations.append(
                f"{where} differs from an undisturbed one: {run.given()}, {run.errors()}"
            )

        # If an outcome is unknown, the program takes a different path, so compare it only with
        # itself.
        other = reference if is_steady(number) else run
        made: list[Any] = told_by(bridge.store, run.id).calls
        calls = [{**call, "_outputPath": call["key"]} for call in made]
        self._judge_calls(run, other, {"calls": calls, "input": {}}, where)
        self.counts["programs"] += 1

    def _judge_calls(self, run: Run, reference: Run, plan: dict[str, Any], where: str) -> None:
        torn = self.witness.torn()
        spoilt: set[str] = set()
        for mine, other, call in zip(run.calls(), reference.calls(), plan["calls"], strict=True):
            key = call["key"]
            once = call["_tool"] in ONCE
            standing = mine.status.value
            depends = any(
                f"†state.{label}" in text
                for label in spoilt
                for text in (str(call["n"]), *call.get("_imports", ()))
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

                if once and self.witness.ran[name] > 1:
                    self.violations.append(
                        f"{where}: {name} must not run twice, and ran "
                        f"{self.witness.ran[name]} times"
                    )

            cut = {name for name in self.witness.flying | torn if once and name[0] == key}
            for name in sorted(cut - unknown):
                self.violations.append(
                    f"{where}: {name} was cut off, and is {standing} instead "
                    f"of unknown: {mine.error}"
                )

            for name in sorted(unknown):
                if not once or not self.witness.is_doubtful(name):
                    self.violations.append(
                        f"{where}: {name} was not cut off, and is unknown: {mine.error}"
                    )

            if unknown and standing == "caught":
                self.violations.append(f"{where}: {key} is unknown, and was caught")

            self.counts["unknown"] += len(unknown)
            if depends and self.witness.ran[key, ""]:
                self.violations.append(
                    f"{where}: {key} ran, and reads the result of an unknown call"
                )

            if standing == "done" and other.status.value == "done":
                if mine.value != other.value:
                    self.violations.append(
                        f"{where}: {key} gave {mine.value}, undisturbed {other.value}"
                    )
            elif unknown or depends:
                spoilt.update(call["_outputPath"].split(" || "))
            elif mine.status is not other.status:
                self.violations.append(
                    f"{where}: {key} is {standing}, undisturbed {other.status.value}: {mine.error}"
                )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial has counted and measured.

    Attributes:
        counts: how often each thing happened.
        violations: what must not have happened.
        slowest: the longest times, in seconds, keyed by what was measured.
        unanswered: why requests to the cluster were not answered, and how often.
    """

    counts: Counter[str]
    violations: list[str]
    slowest: dict[str, float]
    unanswered: Counter[str]


def run_apart(run_trial: Callable[[Path], Trial]) -> Outcome:
    """Run a trial in a process and a folder of its own.

    A trial forks, and in the end it runs programs in its own process. These start threads of
    native code, after which a process cannot be forked safely. So no two trials share a process.
    """
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_outcome, args=(run_trial, sending))
    process.start()
    sending.close()
    outcome: Outcome | None
    try:
        outcome = receiving.recv()
    except EOFError:
        outcome = None

    process.join()
    if outcome is None:
        raise RuntimeError(f"a trial broke off with exit code {process.exitcode}")
    return outcome


def _send_outcome(run_trial: Callable[[Path], Trial], sending: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trial = run_trial(Path(folder))

    sending.send(Outcome(trial.counts, trial.violations, trial.slowest, trial.unanswered))


def crash_processes(folder: Path, events: int, seed: int, kinds: Sequence[str]) -> Trial:
    """Let events happen to processes that drive runs on one store."""
    trial = Trial(folder, events, seed, kinds)
    trial.disturb()
    anyio.run(trial.last_life)
    return trial


def crash_servers(folder: Path, kills: int, seed: int) -> Trial:
    """Kill servers that share a store."""
    trial = Trial(folder, 0, seed)
    asyncio.run(trial.disturb_servers(kills))
    anyio.run(trial.last_life)
    return trial


def crash_cluster(folder: Path, events: int, seed: int, *, postgres: bool) -> Trial:
    """Let events happen to a cluster; with `postgres`, PostgreSQL alone crashes."""
    server = PostgresServer(durable=True)
    try:
        trial = Trial(folder, 0, seed, store=server.address())
        kinds = {"postgres": 1} if postgres else CLUSTER_KINDS
        asyncio.run(trial.disturb_cluster(server, events, kinds))
        anyio.run(trial.last_life)
    finally:
        server.close()

    return trial


def _stored_form(call: JSONObject) -> JSONObject:
    """A call as an idea stores it: with the server, which a mind may leave out."""
    if "_module" in call:
        return call
    return {"_tool": call["_tool"], "_module": "crash", **call}


def rooms_under(store: Store, run_id: str) -> dict[str, str]:
    """The rooms of a run at any depth: what stands behind its id in theirs, and how they stand."""
    found: dict[str, str] = {}
    for record in store.runs.rooms(run_id):
        own = record.id.removeprefix(run_id)
        found[own] = record.status
        found |= {own + below: status for below, status in rooms_under(store, record.id).items()}
    return found


def rows_of(
    events: int, violations: int, counts: Counter[str], slowest: dict[str, float]
) -> list[dict[str, Any]]:
    """The rows of `benchmarks/README.md`; two have a target."""
    first = {
        "what": f"what {events} events broke",
        "ours": violations,
        "target": 0,
        "met": violations == 0,
    }
    figures = {**counts, **{what: round(figure, 1) for what, figure in slowest.items()}}
    rows = [
        first,
        *(
            {"what": f"crash: {what}", "ours": count}
            for what, count in figures.items()
            if what != SETTLED
        ),
    ]
    if SETTLED in figures:
        met = figures[SETTLED] <= SETTLES_IN_CLUSTER
        target = {"target": SETTLES_IN_CLUSTER, "met": met}
        rows.append({"what": f"crash: {SETTLED}", "ours": figures[SETTLED], **target})

    empty = {"peer": None, "floor": None, "ratio": None, "target": None, "met": True}
    return [{**empty, **row} for row in rows]


def main() -> int:
    """Run it; exit code 1 where anything is lost, done twice or left behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("events", nargs="?", type=int, default=EVENTS)
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=list(KINDS), help="events of these kinds"
    )
    parser.add_argument(
        "--servers", type=int, default=KILLS, help="how often one of three servers is killed"
    )
    parser.add_argument(
        "--cluster", type=int, default=CLUSTER, help="events in a cluster on PostgreSQL"
    )
    parser.add_argument(
        "--postgres", action="store_true", help="in the cluster: let only PostgreSQL crash"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=None, help="the same plans and moments again")
    options = parser.parse_args()
    if options.seed is not None:
        seed = options.seed
    else:
        seed = random.SystemRandom().randrange(10**6)

    first = seed
    began = time.monotonic()
    left = options.events
    unanswered: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    violations: list[str] = []
    while left > 0:
        number = min(left, AT_MOST)
        outcome = run_apart(partial(crash_processes, events=number, seed=seed, kinds=options.only))
        left -= number
        counts += outcome.counts
        violations.extend(f"seed {seed}: {violation}" for violation in outcome.violations)
        if sys.stderr.isatty():
            seconds = time.monotonic() - began
            print(
                f"{options.events - left} of {options.events} events, "
                f"{len(violations)} violations, {seconds:.0f} s",
                file=sys.stderr,
            )

        seed += 1

    figures: dict[str, float] = {}
    if options.servers:
        outcome = run_apart(partial(crash_servers, kills=options.servers, seed=seed))
        counts += outcome.counts
        figures = outcome.slowest
        violations.extend(f"servers, seed {seed}: {violation}" for violation in outcome.violations)

    skipped = None
    if options.cluster and programs() is None:
        skipped = "the cluster: PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed"
    elif options.cluster:
        outcome = run_apart(
            partial(crash_cluster, events=options.cluster, seed=seed, postgres=options.postgres)
        )
        counts += outcome.counts
        figures |= outcome.slowest
        unanswered = outcome.unanswered
        violations.extend(f"cluster, seed {seed}: {violation}" for violation in outcome.violations)

    figures["seconds"] = time.monotonic() - began
    rows = rows_of(
        options.events + options.servers + options.cluster, len(violations), counts, figures
    )
    if skipped is not None:
        print(f"skipped: {skipped}", file=sys.stderr)

    if options.json:
        print(json.dumps({"rows": rows, "violations": violations}))
    else:
        for row in rows:
            print(f"{row['ours']:>10,}  {row['what']}")

        for why, count in unanswered.most_common():
            print(f"{count:>10,}  not answered: {why}")

        print(f"seeds {first} to {seed}")
        for violation in violations[:200]:
            print(f"BROKEN: {violation}", file=sys.stderr)

    return 0 if not violations else 1


if __name__ == "__main__":
    sys.exit(main())
