"""Notify other processes of the changes that they are waiting for."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Notifies all processes that listen, including this process. This base class is for SQLite
    files. It does not reach any process, so other processes must poll.
    """

    @property
    def can_notify(self) -> bool:
        """True if other processes can be notified."""
        return False

    def notify(self, notice: str) -> None:
        """Notify the processes that listen when the transaction is committed.

        Call this inside a transaction. This method has no effect if `can_notify` is false.
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
