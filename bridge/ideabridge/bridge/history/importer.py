"""Import the conversations in a host's logs. Each stretch of calls is stored as an ended run.

No call is imported twice, because the summary of an imported run contains the digests of its calls.
A stretch whose last call is too recent might still continue, so it is left for the next import.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final

from ideabridge.bridge.configuration import Configuration, fingerprint
from ideabridge.bridge.errors import SecretGivenError
from ideabridge.bridge.history.conversation import Conversation, HistoryCall
from ideabridge.bridge.history.host_logs import HostLogs
from ideabridge.bridge.history.recording import (
    LONGEST_CALL,
    STRETCH_PAUSE,
    Recording,
    Stretch,
    record,
    stretches,
)
from ideabridge.bridge.history.remembered import LogCounts, Stamp, stamp_of
from ideabridge.bridge.history.report import HistoryReport, HistoryRun
from ideabridge.bridge.loop.event import JournalError
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.runs.starts import settings_under
from ideabridge.bridge.runs.stretch import EndedRun, ended_run, keep_ended
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.store.errors import RunExistsError
from ideabridge.bridge.store.run_record import RunOrigin
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.typed import read_as

_GOES_ON: Final = "its last call is less than 10 minutes old, so it may still continue"
_RUNS: Final = (
    "its last call has no result and is less than an hour old, so it may still be running"
)


@dataclass(frozen=True, slots=True)
class _ReadLog:
    """A log that was read, and the stamp that it had before."""

    path: Path
    stamp: Stamp | None
    conversations: list[Conversation]

    @property
    def calls(self) -> Iterator[HistoryCall]:
        """The calls of all conversations."""
        return (call for conversation in self.conversations for call in conversation.calls)


class HistoryImport:
    """An import of a host's logs.

    Args:
        logs: the logs.
        write: runs a job that writes to the store, and waits until the store accepts it.
        configuration: only calls to its servers are imported.
        secrets: calls that contain a secret are refused, and results are redacted.
        offer: knows the servers' tools.

    Attributes:
        logs: the logs.
        now: the current time, in seconds since 1970.
        report: the report so far.
        done: the number of logs that were processed so far.
    """

    def __init__(
        self,
        logs: HostLogs,
        write: Callable[[Callable[[], None]], Awaitable[None]],
        configuration: Configuration,
        secrets: Secrets,
        offer: Offer,
    ) -> None:
        self.logs = logs
        self._read_log = logs.read
        self._store = logs.store
        self._write = write
        self._configuration = configuration
        self._secrets = secrets
        self._offer = offer
        self._screen = Screen(secrets)
        self._fingerprint = fingerprint(configuration)
        self._caller = logs.caller
        self.now = time.time()
        self.report = HistoryReport()
        self.done = 0

    @cached_property
    def _imported(self) -> set[str]:
        """The digests of the calls in the store."""
        return {
            digest
            for origin in self._store.runs.origins(self._caller, self.logs.name)
            for digest in origin.digests
        }

    @cached_property
    def _contents(self) -> set[str]:
        """The digests of the calls that were read or imported. They do not depend on times, because
        a host that copies a conversation can change the times.
        """
        return {digest[:16] for digest in self._imported}

    async def survey(self) -> HistoryReport:
        """Read the logs, and return what `take` would store, as far as the logs alone show this,
        without storing anything or needing any server.
        """
        self._begin()
        async for log in self._logs():
            for stretch in self._new(log):
                self.report.runs.append(self._entry(stretch, why=self._unfinished(stretch)))
        return self.report

    async def take(self, connect: Callable[[], Awaitable[None]] | None = None) -> HistoryReport:
        """Read the logs, and store their new calls as runs.

        The bridge must be open. A stretch is left for the next import if it calls a server that
        does not start.

        Args:
            connect: called before the first stretch is stored, to open a bridge that is not open.

        Raises:
            StoreError: the store could not be written to for a minute. The runs stored until then
                are kept, and are in `report`.
        """
        self._begin()
        away = dict[str, str]()
        async for log in self._logs():
            for stretch in self._new(log):
                reason = self._unfinished(stretch)
                if not reason:
                    if connect is not None:
                        await connect()
                        connect = None
                    reason = await self._why_away(stretch.modules, away)

                if reason:
                    self.report.runs.append(self._entry(stretch, why=reason))
                else:
                    self.report.runs.append(await self._take(stretch))

            if all(map(self._is_imported, log.calls)):
                count = sum(1 for _ in log.calls)
                self._remembered.add(log.path, log.stamp, LogCounts.of(log.conversations, count))

        files = self.logs.inventory.files
        await self._write(lambda: self._remembered.save(files, self.logs.imported_runs))
        return self.report

    def _begin(self) -> None:
        self.report = HistoryReport()
        self.done = 0
        self._remembered = self.logs.remembered()

    async def _why_away(self, modules: Sequence[str], away: dict[str, str]) -> str:
        """Return why servers are not running, or "" if all of them are. `away` contains the reasons
        known so far, keyed by server.
        """
        unasked = [module for module in modules if module not in away]
        if unasked:
            # Remember the reasons, so as to wait only once for a server that does not start.
            reasons = {
                status.name: f"server {status.name!r} is {status.why}"
                for status in await self._offer.unreached(unasked)
            }
            away.update((module, reasons.get(module, "")) for module in unasked)
        return "; ".join(away[module] for module in modules if away[module])

    async def _logs(self) -> AsyncIterator[_ReadLog]:
        """Read the logs that have changed. Logs with copies of other conversations come last,
        because the calls of the originals are known by then.
        """
        with_copies: list[Path] = []
        for path in self.logs.inventory.files:
            stamp = stamp_of(path)
            counts = self._remembered.find(path, stamp)
            if counts is not None:
                self._count(path, counts)
                continue

            log = await self._read(path, stamp)
            if log is None:
                continue

            self._contents.update(call.content_digest for call in log.calls if not call.copied)
            if any(call.copied for call in log.calls):
                with_copies.append(path)
            else:
                yield self._counted(log)

        for path in with_copies:
            log = await self._read(path, stamp_of(path))
            if log is not None:
                yield self._counted(log)

    async def _read(self, path: Path, stamp: Stamp | None) -> _ReadLog | None:
        """Read a log in a thread. Return None if it cannot be read."""
        try:
            conversations = await compute_in_thread(self._read_log, path, self.logs.names)
        except OSError as error:
            self.report.failed[path] = error.strerror or str(error)
            self.done += 1
            return None
        return _ReadLog(path, stamp, conversations)

    def _counted(self, log: _ReadLog) -> _ReadLog:
        known = sum(map(self._is_imported, log.calls))
        self._count(log.path, LogCounts.of(log.conversations, known))
        return log

    def _count(self, path: Path, counts: LogCounts) -> None:
        """Add a log's counts to the report."""
        self.report.count(path, counts)
        self.done += 1

    def _is_imported(self, call: HistoryCall) -> bool:
        return call.digest in self._imported or (
            call.copied and call.content_digest in self._contents
        )

    def _new(self, log: _ReadLog) -> Iterator[Stretch]:
        for conversation in log.conversations:
            yield from stretches(conversation, self._is_imported)

    def _unfinished(self, stretch: Stretch) -> str:
        """Return why a stretch might still continue, or "" if it cannot."""
        last = stretch.last
        if last is None:
            return ""
        if self.now - last < STRETCH_PAUSE:
            return _GOES_ON
        is_open = any(call.ended is None for call in stretch.calls[-1:])
        return _RUNS if is_open and self.now - last < LONGEST_CALL else ""

    def _entry(self, stretch: Stretch, *, why: str = "") -> HistoryRun:
        title = " ".join(self._prompt(stretch).split())[:200]
        unread = sum(stretch.conversation.skipped.values())
        modules = tuple(stretch.modules)
        return HistoryRun(
            stretch.conversation.id,
            _iso(stretch.time),
            len(stretch.calls),
            modules,
            title,
            unread,
            why=why,
        )

    def _prompt(self, stretch: Stretch) -> str:
        """Return the person's request, or "" if it contains a secret."""
        try:
            self._screen.check({"prompt": stretch.prompt})
        except SecretGivenError:
            return ""
        return stretch.prompt

    async def _take(self, stretch: Stretch) -> HistoryRun:
        recording = await compute_in_thread(self._record, stretch)
        entry = dataclasses.replace(
            self._entry(stretch), calls=len(recording.calls), left=recording.left
        )
        if not recording.calls:
            return dataclasses.replace(entry, why="none of its calls can be imported")

        run_id = f"run_{_id_of(stretch, self.logs.name, self._caller)}"
        try:
            run = await compute_in_thread(self._run_of, stretch, recording)
        except SecretGivenError as error:
            # Use only the problem from the error. Its advice, to send the call again, makes no
            # sense for a call from a log.
            return dataclasses.replace(entry, calls=0, why=error.problem)
        except JournalError as error:
            return dataclasses.replace(entry, calls=0, why=str(error))

        recording.incomplete.update(run.unkept)
        entry = dataclasses.replace(entry, incomplete=len(recording.incomplete))
        try:
            await self._write(
                lambda: keep_ended(
                    self._store,
                    run_id,
                    run,
                    caller=self._caller,
                    title=entry.title,
                    fingerprint=self._fingerprint,
                    origin=self._origin(stretch, recording),
                )
            )
        except RunExistsError:
            return dataclasses.replace(entry, why=f"another import has just saved it as {run_id}")

        for call in stretch.calls:
            self._imported.add(call.digest)
            self._contents.add(call.content_digest)
        return dataclasses.replace(entry, run=run_id)

    def _record(self, stretch: Stretch) -> Recording:
        limits = self._configuration.limits
        return record(
            stretch,
            self._offer.catalogue,
            self._secrets,
            result_bytes=limits.result_bytes,
            run_bytes=limits.run_bytes,
        )

    def _run_of(self, stretch: Stretch, recording: Recording) -> EndedRun:
        """Return the run for a stretch.

        Raises:
            JournalError: the last call's value cannot be the output of a run.
            SecretGivenError: a call contains a secret.
        """
        run = ended_run(
            recording.ended,
            settings_under(self._configuration),
            self._prompt(stretch),
            f"imported from a log of {self.logs.title}",
        )
        run.events = self._screen.admit(run.events)
        return run

    def _origin(self, stretch: Stretch, recording: Recording) -> RunOrigin:
        conversation = stretch.conversation
        origin: JSONObject = {
            "host": conversation.host,
            "conversation": conversation.id,
            "log": str(conversation.path),
            "time": _iso(stretch.time),
            "ended": _iso(stretch.last),
            "imported": _iso(self.now),
            "lines": [call.line for call in recording.calls],
            # Include the calls that were not imported: otherwise, they would count as new next
            # time.
            "calls": [call.digest for call in stretch.calls],
        }
        if conversation.folder:
            origin["folder"] = conversation.folder

        if recording.incomplete:
            incomplete: list[JSON] = [
                {"call": call, "why": reason}
                for call, reason in sorted(recording.incomplete.items())
            ]
            origin["incomplete"] = incomplete

        return read_as(RunOrigin, origin)


def _iso(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _id_of(stretch: Stretch, host: str, caller: str) -> str:
    """Return the id of a stretch's run, as 16 hex digits.

    The same stretch always has the same id, so that two concurrent imports cannot store it twice.
    """
    text = f"{host}\0{caller}\0{stretch.calls[0].digest}"
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
