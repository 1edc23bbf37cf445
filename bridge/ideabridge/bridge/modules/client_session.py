"""The client session on whose behalf the current task runs.

Servers with `"sharing": "session"` have a process for each session. Each request sets the current
session to its own session. Each call in a run sets the current session to that of the request that
began the run.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A session of a client that shares this process with other clients.

    Attributes:
        id: identifies the session, or None if the client's requests belong to no session, as in
            protocol version 2026-07-28. Two such clients of one user cannot be told apart, because
            a client can use several connections, and several clients can use one token.
    """

    id: str | None


_session: Final[ContextVar[ClientSession | None]] = ContextVar("client_session", default=None)


def client_session() -> ClientSession | None:
    """Return the session on whose behalf this task runs, or None if there is only one client, or no
    client is waiting for this task.
    """
    return _session.get()


def set_client_session(session: ClientSession | None) -> None:
    """Set the session of this task and of the tasks that it starts."""
    _session.set(session)
