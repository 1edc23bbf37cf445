"""ClientSession: identifies the client session that the current task works for.

Modules with `"sharing": "session"` have a process for each session. A request sets its session, and
each call of a run sets that of the request that began the run.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_session: Final[ContextVar[str | None]] = ContextVar("client_session", default=None)


def client_session() -> str | None:
    """Return the id of the session for which this task works. Return None if the client is the only
    one, has no sessions, or is not known.
    """
    return _session.get()


def set_client_session(session: str | None) -> None:
    """Let this task, and the tasks that it starts, work for a session."""
    _session.set(session)
