"""Describe the runs that an import of a host's logs has stored or would store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ideabridge.bridge.history.remembered import LogCounts
from ideabridge.tools.encoding import JSONObject


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """A stretch of a conversation, and the run that was or would be created from it.

    Attributes:
        conversation: the host's id for the conversation.
        time: when the stretch began, as ISO 8601 in UTC, or "" if the log does not say.
        calls: the number of calls in the stretch that are imported.
        modules: the servers that these calls use.
        title: the person's request, on one line, or "" if the log does not contain it or it
            contains a secret.
        unread: the number of lines in the log that were not understood.
        run: the id of the run, or None if the stretch was not imported.
        why: why the stretch was not imported, or "" if it was or would be.
        left: the number of calls that were not imported, keyed by reason.
        incomplete: the number of results that differ from what the tools returned.
    """

    conversation: str
    time: str
    calls: int
    modules: tuple[str, ...]
    title: str
    unread: int
    run: str | None = None
    why: str = ""
    left: Counter[str] = field(default_factory=Counter[str])
    incomplete: int = 0

    def to_json(self) -> JSONObject:
        """Return the attributes as JSON."""
        return {
            "conversation": self.conversation,
            "time": self.time,
            "calls": self.calls,
            "modules": [*self.modules],
            "title": self.title,
            "unread_lines": self.unread,
            "run": self.run,
            "why": self.why,
            "left": {**self.left},
            "incomplete": self.incomplete,
        }


@dataclass(slots=True)
class HistoryReport:
    """The result of an import, or of a planned import.

    Attributes:
        runs: the new stretches, oldest log first.
        read: the logs that were read.
        known: the number of calls that an earlier import stored.
        unread: the number of lines in all logs that were not understood, keyed by reason.
        repaired: the number of damaged lines with readable records.
        others: the number of MCP calls to servers that are not configured, keyed by server.
        failed: why logs could not be read, keyed by log.
    """

    runs: list[HistoryRun] = field(default_factory=list[HistoryRun])
    read: set[Path] = field(default_factory=set[Path])
    known: int = 0
    unread: Counter[str] = field(default_factory=Counter[str])
    repaired: int = 0
    others: Counter[str] = field(default_factory=Counter[str])
    failed: dict[Path, str] = field(default_factory=dict[Path, str])

    @property
    def logs(self) -> int:
        """The number of logs that were read."""
        return len(self.read)

    def count(self, log: Path, counts: LogCounts) -> None:
        """Add the counts of a log, whether it was read now or earlier."""
        self.read.add(log)
        self.known += counts.known
        self.unread += counts.unread
        self.others += counts.others
        self.repaired += counts.repaired

    def to_json(self) -> JSONObject:
        """Return the attributes as JSON."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "logs": self.logs,
            "known_calls": self.known,
            "unread_lines": {**self.unread},
            "repaired_lines": self.repaired,
            "other_servers": {**self.others},
            "failed": [f"{log}: {reason}" for log, reason in self.failed.items()],
        }
