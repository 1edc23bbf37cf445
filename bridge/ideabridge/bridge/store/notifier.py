"""Notifier: how a store notifies other processes of what they wait for."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Notifies all processes that listen, this one among them. This one is for a file: it reaches
    nobody, so other processes poll.
    """

    @property
    def can_notify(self) -> bool:
        """Whether other processes can be notified."""
        return False

    def notify(self, notice: str) -> None:
        """Notify the processes that listen when the transaction is committed. Call this inside a
        transaction; it has no effect where `can_notify` is false.
        """

    def listen(self, take: Callable[[str], None], lost: Callable[[], None]) -> Callable[[], None]:
        """Listen for notices in a thread, where `can_notify` is true.

        Args:
            take: called with each notice, and with "" when listening begins: earlier ones may have
                been missed.
            lost: called when the connection is lost.

        Returns:
            A function that ends it.
        """
        raise NotImplementedError
