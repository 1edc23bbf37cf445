"""Find the logs that a host keeps on this machine, and the results of earlier imports from these
logs.

If all logs are unchanged, an import needs neither the servers nor the readers of logs, so this file
imports only a few other files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ideabridge.bridge.history import claude_code, codex, copilot, gemini, opencode
from ideabridge.bridge.history.conversation import (
    Conversation,
    HistoryError,
    Logs,
    Names,
    find_logs,
)
from ideabridge.bridge.history.remembered import RememberedLogs, stamp_of
from ideabridge.bridge.history.report import HistoryReport
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import did_you_mean


@dataclass(frozen=True, slots=True)
class _Host:
    title: str
    patterns: tuple[str, ...]
    folders: Callable[[Path, Mapping[str, str]], list[Path]]
    read: Callable[[Path, Names], list[Conversation]]
    deep: bool = True


HISTORIES: Final[Mapping[str, _Host]] = {
    claude_code.NAME: _Host(
        "Claude Code", claude_code.PATTERNS, claude_code.folders, claude_code.read_log
    ),
    codex.NAME: _Host("Codex", codex.PATTERNS, codex.folders, codex.read_log),
    copilot.NAME: _Host("Copilot CLI", copilot.PATTERNS, copilot.folders, copilot.read_log),
    gemini.NAME: _Host("Gemini CLI", gemini.PATTERNS, gemini.folders, gemini.read_log),
    opencode.NAME: _Host(
        "opencode", opencode.PATTERNS, opencode.folders, opencode.read_log, deep=False
    ),
}
"""The hosts whose logs can be read."""


_UNREAD_HOSTS: Final[Mapping[str, str]] = {
    "claude-desktop": "its documentation does not describe how they are logged",
    "cursor": "they are in a database of the editor, whose content is not documented",
    "vscode": "they are in files of the editor, whose content is not documented",
    "windsurf": "they are in binary files, whose format is not documented",
}
"""The reasons why the conversations of other hosts cannot be read, keyed by host."""


def _unread(host: str) -> str:
    reason = _UNREAD_HOSTS.get(host)
    return f" {host}'s conversations cannot be read: {reason}" if reason else ""


class HostLogs:
    """The logs that a host keeps on this machine, which have not been read yet.

    Args:
        host: one of `HISTORIES`.
        store: contains the imported runs, and what earlier imports found out about the logs.
        modules: the names of the servers whose calls are imported.
        caller: the owner of the runs.
        renamed: the servers whose names in the host differ, keyed by the name in the logs.

    Attributes:
        name: the host's name on the command line.
        title: the host's name for users.
        folders: the folders that contain the host's logs.
        inventory: the logs that were found.
        read: reads one log.
        modules: the names of the servers whose calls are imported.
        names: maps the servers in the logs to configured servers.

    Raises:
        HistoryError: the host or a server does not exist.
    """

    def __init__(
        self,
        host: str,
        store: Store,
        modules: Sequence[str],
        *,
        caller: str,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        history = HISTORIES.get(host)
        if history is None:
            hosts = ", ".join(HISTORIES)
            raise HistoryError(
                f"unknown host {host[:100]!r}; the known hosts are {hosts}."
                f"{did_you_mean(host, HISTORIES)}"
                f"{_unread(host)}"
            )

        self.name = host
        self.title = history.title
        self.read = history.read
        self.store = store
        self.modules = list(modules)
        self.caller = caller
        self.names = Names(self.modules, renamed)
        self.folders = history.folders(Path.home(), os.environ)
        self.inventory: Logs = find_logs(self.folders, history.patterns, deep=history.deep)
        self._renamed: JSON = dict(renamed or {})

    @property
    def imported_runs(self) -> int:
        """The number of runs in the store that were imported from this host."""
        return self.store.runs.imported_count(self.caller, self.name)

    def remembered(self) -> RememberedLogs:
        """Return the remembered results of earlier imports, for the logs whose calls are all in the
        store.
        """
        names: JSON = [[*sorted(self.modules)], self._renamed]
        return RememberedLogs(self.store, self.name, self.caller, names, self.imported_runs)

    def report_unchanged(self) -> HistoryReport | None:
        """Return the report of an import that reads no log, or None if a log has changed since
        earlier imports.
        """
        remembered = self.remembered()
        report = HistoryReport()
        for path in self.inventory.files:
            counts = remembered.find(path, stamp_of(path))
            if counts is None:
                return None
            report.count(path, counts)
        return report
