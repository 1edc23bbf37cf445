"""What is seen from outside: the log of executions, the store as a kill left it, and the processes of modules."""

from __future__ import annotations

import os
import select
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from ideabridge.bridge.ideas.sqlite import sqlite3
from ideabridge.bridge.ideas.store import Store

from .plans import Execution
from .reading import Told, told_by


class Witness:
    """Looks at what each kill left behind, without touching it.

    Attributes:
        violations: what must not be, in words.
        frozen: how often each execution had run when its end was journaled: it must not run again.
        flying: executions that were journaled as started, and not as ended, at some kill.
        seen: ids of the runs in the store.
        cut: how many runs a kill has cut off, each counted once per kill.
        answers_cut: how many answers of a mind a kill has cut off in the stream.
        asked: how often the mind was asked each Request.
    """

    def __init__(self, folder: Path) -> None:
        self.violations: list[str] = []
        self.frozen: dict[Execution, int] = {}
        self.flying: set[Execution] = set()
        self.seen: set[str] = set()
        self.cut = 0
        self.answers_cut = 0
        self.ran: Counter[Execution] = Counter()
        self.asked: Counter[str] = Counter()
        self._streamed: dict[str, tuple[int, list[Any]]] = {}
        self._answered: dict[str, tuple[int, int]] = {}
        self._folder = folder
        self._modules: set[int] = set()
        self._read = 0
        self._ended: set[str] = set()

    def read_log(self) -> None:
        """Read what the log of executions has gained."""
        log = self._folder / "log"
        data = log.read_bytes()[self._read :] if log.exists() else b""
        self._read += len(data)
        for line in data.decode().splitlines():
            kind, *rest = line.split(" ")
            if kind == "start":
                self._modules.add(int(rest[0]))
            elif kind == "asked":
                self.asked[rest[0]] += 1
            else:
                # An item of an `_each` is known by the number it ran with, any other call by its key alone.
                self.ran[(rest[0], rest[1] if rest[0].endswith("/e") else "")] += 1

    def expect_no_module(self) -> None:
        """See that every module process that was ever started is gone, or goes within five seconds."""
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
                    self.violations.append(f"module process {pid} outlived the process that started it")
            finally:
                os.close(process)
        self._modules.clear()

    def look(self) -> None:
        """Look at the store as a kill left it, in a copy: whoever opens it next finds it untouched."""
        self.read_log()
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for suffix in ("", "-wal"):
            if (self._folder / f"store.sqlite{suffix}").exists():
                shutil.copy(self._folder / f"store.sqlite{suffix}", copy / f"store.sqlite{suffix}")
        path = copy / "store.sqlite"
        if not path.exists() or path.stat().st_size == 0:
            return
        self.check_integrity(path)
        with Store.open(path) as store:
            for run_id in self._open_runs(store):
                self._look_at(store, run_id)

    def check_integrity(self, path: Path) -> None:
        """What SQLite says of the file."""
        connection = sqlite3.connect(path)
        found = [*connection.execute("PRAGMA integrity_check"), *connection.execute("PRAGMA foreign_key_check")]
        connection.close()
        if found != [("ok",)]:
            self.violations.append(f"integrity_check: {found[:3]}")

    def _open_runs(self, store: Store) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while page := store.runs(limit=100, after=after):
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
        told = told_by(store, run_id)
        self.violations.extend(f"run {run_id}: call {place} was journaled as finished twice" for place in told.twice)
        if told.over:
            self._ended.add(run_id)
        for name in told.names(told.ended):
            self.frozen.setdefault(name, self.ran[name])
        self.flying.update(told.names(told.started - told.ended))
        for room in sorted(told.rooms(told.gave)):
            if not told_by(store, run_id + room).over:
                self.violations.append(f"run {run_id} has the result of its room {room}, which has not ended")
        self._look_at_answers(run_id, told)
        self.cut += run_id not in self._ended

    def _look_at_answers(self, run_id: str, told: Told) -> None:
        """An answer that was cut off is what the journal had of it, and the same Request is not asked again."""
        if run_id in self._streamed:
            place, calls = self._streamed.pop(run_id)
            step = told.steps[place]
            if step.calls != calls or (step.closed and step.broken is None):
                self.violations.append(f"run {run_id}: answer {place} went on after it was cut off: {step}")
        if not told.steps:
            return
        last = told.steps[-1]
        if last.begun and not last.closed:
            self._streamed[run_id] = (len(told.steps) - 1, last.calls)
            self.answers_cut += 1
        made = Counter(step.request for step in told.steps)
        for request, count in made.items():
            if request == last.request and not last.begun:
                # Nothing of its answer is there: it may be asked again.
                self._answered.pop(request, None)
                continue
            asked, before = self._answered.get(request, (0, 0))
            if before == count and asked != self.asked[request]:
                self.violations.append(f"run {run_id}: Request {request[:12]} was answered, and asked again")
            self._answered[request] = (self.asked[request], count)

    def judge_executions(self) -> None:
        """No execution whose end was journaled has run again."""
        self.read_log()
        for name, count in self.frozen.items():
            if self.ran[name] != count:
                self.violations.append(f"{name} had finished after {count} executions, and ran again")
