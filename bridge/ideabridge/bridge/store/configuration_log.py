"""Record how configurations changed while servers ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

from ideabridge.bridge.store.database import Database
from ideabridge.tools.encoding import decode_trusted, encode_text

MOST_CHANGES: Final = 1000
"""The maximum number of stored changes. The oldest entries are deleted first."""

_SAME_SECONDS: Final = 10.0
"""Equal changes that are reported within this many seconds are stored once, because each process
that follows a file reports the same change.
"""

ChangeStatus = Literal["followed", "withheld"]


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A configuration change that a running process noticed.

    Attributes:
        at: when the process noticed the change, in seconds since 1970.
        project: the project folder of the process.
        process: a human-readable description of the process.
        status: `followed` if the change took effect, `withheld` if it did not.
        lines: human-readable lines that say what changed, or why the change did not take effect.
        trusted_by: the user who trusted the project's file, or "" if no project file is used.
        trusted_at: when the user trusted the project's file, in seconds since 1970, or None if no
            project file is used.
    """

    at: float
    project: str
    process: str
    status: ChangeStatus
    lines: tuple[str, ...]
    trusted_by: str = ""
    trusted_at: float | None = None


class ConfigurationLog:
    """The table `configuration_changes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, change: LoggedChange) -> None:
        """Store a change, unless another process has just stored the same one."""
        lines = encode_text(list(change.lines))
        same = (change.project, change.status, lines, change.at - _SAME_SECONDS)
        with self._database.transaction():
            execute = self._database.execute
            stored = execute(
                "SELECT 1 FROM configuration_changes "
                "WHERE project = ? AND status = ? AND lines = ? AND at > ?",
                same,
            ).fetchone()
            if stored is not None:
                return

            execute(
                "INSERT INTO configuration_changes"
                "(at, project, process, status, lines, trusted_by, trusted_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    change.at,
                    change.project,
                    change.process,
                    change.status,
                    lines,
                    change.trusted_by,
                    change.trusted_at,
                ),
            )
            execute(
                "DELETE FROM configuration_changes WHERE number <= "
                "(SELECT number FROM configuration_changes ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (MOST_CHANGES,),
            )

    def newest(self, limit: int, project: str | None = None) -> list[LoggedChange]:
        """Return the latest changes, newest first.

        Args:
            limit: the maximum number of changes.
            project: the project folder to return changes for, or None for all folders.
        """
        columns = "at, project, process, status, lines, trusted_by, trusted_at"
        where = "" if project is None else "WHERE project = ? "
        values = (limit,) if project is None else (project, limit)
        with self._database.guard:
            rows = self._database.execute(
                f"SELECT {columns} FROM configuration_changes "  # noqa: S608 - no value is in it
                f"{where}ORDER BY number DESC LIMIT ?",
                values,
            ).fetchall()

        return [
            LoggedChange(at, folder, process, status, _lines_in(lines), by, trusted)
            for at, folder, process, status, lines, by, trusted in rows
        ]


def _lines_in(text: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", decode_trusted(text)))
