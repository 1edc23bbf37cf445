"""Sync session: a `Session` for scripts: each step returns when its calls have ended (DESIGN 4.7)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal

from ideabridge.bridge.session import Session as AsyncSession
from ideabridge.tools.encoding import ObjectLike


class Session:
    """The script's side of one run; `ideabridge.bridge.sync.Bridge.session` gives it.

    Args:
        session: the session, which lives in the thread of the loop.
        portal: reaches that thread.
    """

    def __init__(self, session: AsyncSession, portal: BlockingPortal) -> None:
        self._session = session
        self._portal = portal

    @property
    def id(self) -> str:
        """The id of the run: `Bridge.session(run_id=...)` takes it up again."""
        return self._session.id

    @property
    def state(self) -> dict[str, Any]:
        """The state as it stands."""
        return self._portal.call(lambda: self._session.state)

    def value(self, reference: str) -> Any:
        """The value at a reference as it stands; see `Run.value`."""
        return self._portal.call(self._session.value, reference)

    def run(self, call: ObjectLike) -> Any:
        """Run one call; gives and raises what `ideabridge.bridge.Session.run` does."""
        return self._portal.call(self._session.run, call)

    def run_all(self, calls: Sequence[ObjectLike]) -> list[Any]:
        """Run calls side by side, all or nothing; see `ideabridge.bridge.Session.run_all`."""
        return self._portal.call(self._session.run_all, calls)

    def run_any(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives: the first success counts; see `ideabridge.bridge.Session.run_any`."""
        return self._portal.call(self._session.run_any, calls)

    def run_race(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives: the first to end counts; see `ideabridge.bridge.Session.run_race`."""
        return self._portal.call(self._session.run_race, calls)


@contextmanager
def opened(manager: AbstractAsyncContextManager[AsyncSession], portal: BlockingPortal) -> Generator[Session]:
    """A session of a bridge whose loop runs in the portal's thread; left, it ends its run."""
    with portal.wrap_async_context_manager(manager) as session:
        yield Session(session, portal)
