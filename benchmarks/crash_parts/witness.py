"""What is seen from outside: the log of executions, the store as a kill left it, and the
processes of modules.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL

from .plans import Execution
from .reading import Told, told_by

Heard = tuple[Execution, int]
"""An execution, and the process of a module that ran it."""


class Witness:
    """Looks at what each kill left behind, without touching it.

    Attributes:
        violations: what must not be, in words.
        frozen: how often each execution had run when its end was journaled: it must not run again.
        flying: executions that were journaled as started, and not as ended, when their
            process was killed.
        thawed: the same, when their process was frozen: another may have taken them up.
        seen: ids of the runs in the store.
        cut: how many runs a kill has cut off, each counted once per kill.
        answers_cut: how many answers of a mind a kill has cut off in the stream.
        asked: how often the mind was asked each Request.
    """

    def __init__(self, folder: Path) -> None:
        self.violations: list[str] = []
        self.frozen: dict[Execution, int] = {}
        self.flying: set[Execution] = set()
        self.thawed: set[Execution] = set()
        self.seen: set[str] = set()
        self.cut = 0
        self.answers_cut = 0
        self.ran: Counter[Execution] = Counter()
        self.asked: Counter[str] = Counter()
        self._streamed: dict[str, tuple[int, list[Any]]] = {}
        self._answered: dict[str, tuple[int, int]] = {}
        self._folder = folder
        self._modules: set[int] = set()
        self._killed: set[int] = set()
        self._heard: dict[str, set[Heard]] = {"ran": set(), "saying": set(), "said": set()}
        self._read = 0
        self._ended: set[str] = set()

    def read_log(self) -> None:
        """Read what the log of executions has gained."""
        log = self._folder / "log"
        if not log.exists():
            return

        with log.open("rb") as lines:
            lines.seek(self._read)
            data = lines.read()

        self._read += len(data)
        for line in data.decode().splitlines():
            kind, pid, *rest = line.split(" ")
            if kind == "start":
                self._modules.add(int(pid))
                continue

            # An item of an `_each` is identified by its key and the number with which it ran, and
            # any other call by its key alone.
            name = rest[0], rest[1] if rest[0].endswith("/e") else ""
            self._heard[kind].add((name, int(pid)))
            if kind == "ran":
                self.ran[name] += 1

    def kill_module(self) -> bool:
        """Kill the youngest process of a module with SIGKILL. False where none is alive."""
        self.read_log()
        for pid in sorted(self._modules, reverse=True):
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue

            try:
                if str(self._folder).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    continue
                signal.pidfd_send_signal(process, signal.SIGKILL)
                poll = select.poll()
                poll.register(process, select.POLLIN)
                poll.poll()
            except (ProcessLookupError, FileNotFoundError):
                continue
            finally:
                os.close(process)

            self._killed.add(pid)
            self._modules.discard(pid)
            return True

        return False

    def torn(self) -> set[Execution]:
        """Executions that a module had begun, and not begun to answer, when it was killed: their
        outcome is unknown.
        """
        return {
            name for name, pid in self._heard["ran"] - self._heard["saying"] if pid in self._killed
        }

    def is_doubtful(self, name: Execution) -> bool:
        """Whether the outcome of an execution may be unknown: it was cut off, or nobody saw
        whether it was.
        """
        if name in self.flying or name in self.thawed or (self._killed and not self.ran[name]):
            return True
        # The answer may have been written only in part.
        cut = self._heard["ran"] - self._heard["said"]
        return any((name, pid) in cut for pid in self._killed)

    def expect_no_module(self) -> None:
        """See that every module process that was ever started is gone, or goes
        within five seconds.
        """
        self.read_log()
        for pid in sorted(self._modules):
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                poll = select.poll()
                poll.register(process, select.POLLIN)
                if not poll.poll(5000):
                    self.violations.append(
                        f"module process {pid} outlived the process that started it"
                    )
            finally:
                os.close(process)

        self._modules.clear()

    def look_at_frozen(self, dead: frozenset[str] = frozenset()) -> None:
        """Look at the store while every process that writes it is frozen. `dead`: runs of one
        that was killed.
        """
        with self._copied() as store:
            if store is not None:
                for run_id in self._open_runs(store):
                    told = told_by(store, run_id)
                    place = self.flying if run_id in dead else self.thawed
                    place.update(told.names(told.started - told.ended))

    def look_into(self, store: Store, killed: int) -> None:
        """Look at a store that nobody writes now, because every process is frozen, but for one
        that was killed.

        Args:
            store: the store.
            killed: the id of the process that was killed.
        """
        found = self._open_runs(store)
        drivers = {
            record.id: record.driver for record in map(store.runs.get, found) if record is not None
        }
        told = {run_id: told_by(store, run_id) for run_id in found}
        # Read the log after the journals, so that it contains everything that has ended according
        # to the journals.
        self.read_log()
        for run_id in found:
            driven = str(drivers[run_id]).rsplit("|", 3)[1:2] == [str(killed)]
            self._note(store, run_id, told[run_id], cut_off=driven)

    def look(self) -> None:
        """Look at the store as a kill left it."""
        with self._copied() as store:
            if store is not None:
                for run_id in self._open_runs(store):
                    self._look_at(store, run_id)

    @contextmanager
    def _copied(self) -> Generator[Store | None]:
        """A copy of the store, so that whoever opens it next finds it untouched; None where
        there is none yet.
        """
        self.read_log()
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for suffix in ("", "-wal"):
            if (self._folder / f"store.sqlite{suffix}").exists():
                shutil.copy(self._folder / f"store.sqlite{suffix}", copy / f"store.sqlite{suffix}")

        path = copy / "store.sqlite"
        if not path.exists() or path.stat().st_size == 0:
            yield None
            return

        self.check_integrity(path)
        with Store.open(path) as store:
            yield store

    def check_integrity(self, path: Path) -> None:
        """What SQLite says of the file."""
        connection = sqlite3.connect(path)
        found = [
            *connection.execute("PRAGMA integrity_check"),
            *connection.execute("PRAGMA foreign_key_check"),
        ]
        connection.close()
        if found != [("ok",)]:
            self.violations.append(f"integrity_check: {found[:3]}")

    def _open_runs(self, store: Store) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while page := store.runs.newest(limit=100, after=after, caller=SEES_ALL):
            found.extend(record.id for record in page)
            after = page[-1].id

        lost = self.seen - set(found)
        if lost:
            self.violations.append(f"runs that were there are lost: {sorted(lost)[:3]}")

        self.seen.update(found)
        return [run_id for run_id in found if run_id not in self._ended]

    def look_at_the_end(self, store: Store) -> None:
        """Look at every run once more, when all have ended."""
        self.read_log()
        for run_id in sorted(self.seen):
            self._look_at(store, run_id)

    def _look_at(self, store: Store, run_id: str) -> None:
        self._note(store, run_id, told_by(store, run_id), cut_off=True)

    def _note(self, store: Store, run_id: str, told: Told, *, cut_off: bool) -> None:
        """Note what the journal of a run has; `cut_off`: what was in flight is cut off."""
        self.violations.extend(
            f"run {run_id}: call {place} was journaled as finished twice" for place in told.twice
        )
        if told.over:
            self._ended.add(run_id)

        for name in told.names(told.ended):
            self.frozen.setdefault(name, self.ran[name])

        if cut_off:
            self.flying.update(told.names(told.started - told.ended))

        for room in sorted(told.rooms(told.gave)):
            if not told_by(store, run_id + room).over:
                self.violations.append(
                    f"run {run_id} has the result of its room {room}, which has not ended"
                )

        if cut_off:
            self._look_at_answers(run_id, told)
            self.cut += run_id not in self._ended

    def _look_at_answers(self, run_id: str, told: Told) -> None:
        """An answer that was cut off is what the journal had of it, and the same Request is
        not asked again.
        """
        if run_id in self._streamed:
            place, calls = self._streamed.pop(run_id)
            step = told.steps[place]
            if step.calls != calls or (step.closed and step.broken is None):
                self.violations.append(
                    f"run {run_id}: answer {place} went on after it was cut off: {step}"
                )

        if not told.steps:
            return

        last = told.steps[-1]
        if last.begun and not last.closed:
            self._streamed[run_id] = (len(told.steps) - 1, last.calls)
            self.answers_cut += 1

        made = Counter(step.request for step in told.steps)
        for request, count in made.items():
            if request == last.request and not last.begun:
                # No part of the answer is in the journal, so the Request may be asked again.
                self._answered.pop(request, None)
                continue

            asked, before = self._answered.get(request, (0, 0))
            if before == count and asked != self.asked[request]:
                self.violations.append(
                    f"run {run_id}: Request {request[:12]} was answered, and asked again"
                )

            self._answered[request] = (self.asked[request], count)

    def judge_executions(self) -> None:
        """No execution whose end was journaled has run again."""
        self.read_log()
        for name, count in self.frozen.items():
            # A process that was frozen just before it sent a call sends the call when it wakes. In
            # the meantime, only a call that may run twice can have finished elsewhere, because
            # `bump` and `fail` never run again.
            if self.ran[name] != count and name not in self.thawed:
                self.violations.append(
                    f"{name} had finished after {count} executions, and ran again"
                )
