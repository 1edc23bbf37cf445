"""Places: how many calls may run at a module at once, and who is next (DESIGN 4.4.2)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

import anyio


class Places:
    """A bound on what runs at once, shared fairly: whoever waits gets a place in turn, however many calls each has.

    With one queue for all, a run that lists a thousand calls would hold every other run up until the last of them.

    Args:
        number: how many there are.
    """

    def __init__(self, number: int) -> None:
        self._number = self._free = number
        self._waiting: OrderedDict[Hashable, deque[anyio.Event]] = OrderedDict()

    def narrow(self, number: int) -> None:
        """From now on there are at most `number` places; who has one keeps it."""
        lost = max(self._number - number, 0)
        self._number -= lost
        self._free -= lost

    async def take(self, who: Hashable) -> None:
        """Take a place, once one is free and it is `who`'s turn.

        Args:
            who: whose turn it is to be: a run, say; all that is one to `==` waits in one queue.
        """
        if self._free > 0:
            # Nobody waits while a place is free.
            self._free -= 1
            return
        given = anyio.Event()
        queue = self._waiting.setdefault(who, deque())
        queue.append(given)
        try:
            await given.wait()
        except BaseException:
            if given.is_set():
                self.give_back()
            else:
                queue.remove(given)
                if not queue:
                    del self._waiting[who]
            raise

    def give_back(self) -> None:
        """Give a place back: to the one who is next."""
        if self._free < 0 or not self._waiting:
            self._free += 1
            return
        who, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            # To the end of the line.
            self._waiting[who] = queue
