"""Notify other processes of the changes that they are waiting for."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Notifies all listening processes, including this one.

    This base class is for SQLite files. It reaches no process, so other processes must poll.
    """

    @property
    def can_notify(self) -> bool:
        """Whether other processes can be notified."""
        return False

    def notify(self, notice: str) -> None:
        """Notify the listening processes when the transaction is committed.

        Call this inside a transaction. It has no effect if `can_notify` is false.
        """

    def listen(self, take: Callable[[str], None], lost: Callable[[], None]) -> Callable[[], None]:
        """Listen for notifications in a thread, if `can_notify` is true.

        Args:
            take: called with each notification, and with "" when listening begins, because earlier
                notifications might have been missed.
            lost: called when the connection is lost.

        Returns:
            A function that stops listening.
        """
        raise NotImplementedError
