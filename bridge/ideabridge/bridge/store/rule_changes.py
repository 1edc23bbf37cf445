"""Record who changed whether calls to a tool ask, when, and what applied before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from ideabridge.bridge.store.settings import StoredSettings
from ideabridge.bridge.store.users import SEES_ALL, Viewer, owner_of
from ideabridge.tools.encoding import JSON, decode_trusted, encode, objects_in
from ideabridge.tools.typed import read_whole

ASKS: Final = "ask first"
RUNS: Final = "run without asking"
ALWAYS: Final = "always allow"
DENIED: Final = "deny"
"""The rules that can apply to calls to a tool."""

_SETTING: Final = "rule changes "
_MOST_KEPT: Final = 100
"""The maximum number of changes stored for each person. The oldest are deleted first."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change of the rule that decides whether calls to a tool ask.

    Attributes:
        at: when the change was made, in seconds since 1970.
        by: who made the change, as in events of a journal; see `read_decider`.
        module: the tool's server, or "" if it has none.
        tool: the name of the tool on its server.
        before: the rule that applied until then: `ASKS`, `RUNS`, `ALWAYS` or `DENIED`.
        after: the rule that applies since then.
    """

    at: float
    by: JSON
    module: str
    tool: str
    before: str
    after: str


class RuleChanges:
    """The latest changes that each person made.

    They are stored as settings, because there are few of them, and only a list of past decisions
    reads them.
    """

    def __init__(self, settings: StoredSettings) -> None:
        self._settings = settings

    def add(self, caller: str, change: RuleChange) -> None:
        """Store a change that applies to a caller's calls."""

        def added(data: bytes) -> bytes:
            entries: list[JSON] = [asdict(entry) for entry in [*_read(data), change]]
            return encode(entries[-_MOST_KEPT:])

        self._settings.change(f"{_SETTING}{owner_of(caller)}", added)

    def latest(self, viewer: Viewer) -> list[RuleChange]:
        """Return the changes that a viewer is allowed to see, latest first."""
        if viewer is SEES_ALL:
            stored = self._settings.under(_SETTING).values()
        else:
            stored = [self._settings.get(f"{_SETTING}{owner_of(viewer)}") or b""]

        changes = [change for data in stored for change in _read(data)]
        changes.sort(key=lambda change: change.at, reverse=True)
        return changes


def _read(data: bytes) -> list[RuleChange]:
    if not data:
        return []
    read = [read_whole(RuleChange, entry) for entry in objects_in(decode_trusted(data))]
    return [change for change in read if change is not None]
