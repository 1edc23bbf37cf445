"""Store the findings of earlier imports, so that the next import reads only changed logs."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, cast

from ideabridge.bridge.history.conversation import Conversation
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty

_VERSION: Final = 2
"""The version of the readers. It changes when the readers find more in the same log."""

_MOST_BYTES: Final = 64 * 1024 * 1024
"""The maximum size, in bytes, of the stored results."""

_GRANULARITY: Final = 2_000_000_000
"""The resolution, in nanoseconds, of the time of a change on the least exact file systems. Within
this time, a log can change again without getting a new time.
"""

Stamp: TypeAlias = tuple[int, ...]
"""Values that change with the content of a log. For each file of the log, these are the number of
the file, its size in bytes, and two times in nanoseconds: when its content last changed, and when
its state last changed. A program can set the first time back, for example when it restores a file,
but not the second.
"""


def stamp_of(log: Path) -> Stamp | None:
    """Return a log's stamp, or None if the log cannot be read or has only just changed.

    For a database, the stamp includes the file next to it, which can contain changes.
    """
    try:
        states = [log.stat(follow_symlinks=False)]
        with suppress(FileNotFoundError):
            states.append(log.with_name(f"{log.name}-wal").stat(follow_symlinks=False))
    except OSError:
        return None

    stamp: list[int] = []
    for state in states:
        stamp += [state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        if abs(time.time_ns() - state.st_mtime_ns) < _GRANULARITY:
            return None
    return tuple(stamp)


@dataclass(frozen=True, slots=True)
class LogCounts:
    """A log's counts, apart from its new calls.

    Attributes:
        known: the number of calls that were imported.
        unread: the number of lines that were not understood, keyed by reason.
        others: the number of MCP calls to servers that are not configured, keyed by server.
        repaired: the number of damaged lines with readable records.
    """

    known: int
    unread: Counter[str]
    others: Counter[str]
    repaired: int

    @classmethod
    def of(cls, conversations: Sequence[Conversation], known: int) -> LogCounts:
        """Return a log's counts."""
        unread: Counter[str] = Counter()
        others: Counter[str] = Counter()
        for conversation in conversations:
            unread += conversation.skipped
            others += conversation.others
        return cls(known, unread, others, sum(each.repaired for each in conversations))

    def to_json(self) -> list[JSON]:
        """Return the attributes as JSON."""
        return [self.known, {**self.unread}, {**self.others}, self.repaired]

    @classmethod
    def from_json(cls, stored: list[JSON]) -> LogCounts:
        """Read the JSON that `to_json` returned."""
        known, unread, others, repaired = stored
        return cls(
            cast("int", known),
            Counter(cast("dict[str, int]", unread)),
            Counter(cast("dict[str, int]", others)),
            cast("int", repaired),
        )


class RememberedLogs:
    """The logs of a host whose calls are all in the store.

    Args:
        store: the store, which remembers the counts as a setting.
        host: the host.
        caller: the owner of the runs.
        names: the names of the servers, and everything else that determines which calls are
            imported.
        runs: the number of runs that were imported from this host. If some of them have been
            removed, nothing is remembered, so that an import finds their calls again.
    """

    def __init__(self, store: Store, host: str, caller: str, names: JSON, runs: int) -> None:
        self._store = store
        self._key = f"history/{host}/{caller}"
        self._head: JSON = [_VERSION, names]
        self._logs: dict[str, list[JSON]] = {}
        self._is_changed = False
        stored = self._read()
        if stored.get("head") == self._head and cast("int", stored["runs"]) <= runs:
            self._logs = cast("dict[str, list[JSON]]", stored["logs"])

    def _read(self) -> JSONObject:
        packed = self._store.settings.get(self._key)
        if packed is None:
            return {}
        try:
            return object_or_empty(cast("JSON", json.loads(zlib.decompress(packed))))
        except (zlib.error, ValueError):
            return {}

    def find(self, log: Path, stamp: Stamp | None) -> LogCounts | None:
        """Return a log's counts, or None if the log must be read."""
        entry = self._logs.get(str(log))
        if entry is None or stamp is None or entry[0] != [*stamp]:
            return None
        return LogCounts.from_json(entry[1:])

    def add(self, log: Path, stamp: Stamp | None, counts: LogCounts) -> None:
        """Remember a log that was read."""
        if stamp is not None:
            self._logs[str(log)] = [[*stamp], *counts.to_json()]
            self._is_changed = True

    def save(self, logs: Sequence[Path], runs: int) -> None:
        """Store the counts of the given logs, with the number of imported runs."""
        if not self._is_changed:
            return

        present = {str(log) for log in logs}
        remembered = {log: entry for log, entry in self._logs.items() if log in present}
        content = json.dumps({"head": self._head, "runs": runs, "logs": remembered})
        if len(content) <= _MOST_BYTES:
            self._store.settings.set(self._key, zlib.compress(content.encode()))
            self._is_changed = False
