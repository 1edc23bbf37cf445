"""Limit the number of concurrent calls, and let the senders of calls take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

import anyio

from ideabridge.tools.turns import asked_by


class FairLimiter:
    """Limits how many calls run at the same time.

    Waiting callers (`asked_by`) take turns, no matter how many calls each of them has. The runs of
    each caller also take turns. With a single queue, a run of a thousand calls would delay every
    other run until its last call has begun, and a caller with a hundred runs would delay every
    other caller.
    """

    def __init__(self, number: int) -> None:
        self._number = self._free = number
        self._waiting: OrderedDict[str, OrderedDict[Hashable, deque[anyio.Event]]] = OrderedDict()

    def lower(self, number: int) -> None:
        """Lower the limit to `number`. Calls that are already running continue."""
        lost = max(self._number - number, 0)
        self._number -= lost
        self._free -= lost

    async def acquire(self, sender: Hashable) -> None:
        """Wait until a call may run. Calls with the same `sender` (such as a run) wait in the same
        queue.
        """
        if self._free > 0:
            self._free -= 1
            return

        caller = asked_by.get()
        granted = anyio.Event()
        queues = self._waiting.setdefault(caller, OrderedDict())
        queue = queues.setdefault(sender, deque())
        queue.append(granted)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release()
            else:
                queue.remove(granted)
                if not queue:
                    del queues[sender]
                if not queues:
                    del self._waiting[caller]

            raise

    def release(self) -> None:
        """Report that a call has ended, so that the next one can run."""
        if self._free < 0 or not self._waiting:
            self._free += 1
            return

        caller, queues = self._waiting.popitem(last=False)
        sender, queue = queues.popitem(last=False)
        queue.popleft().set()
        # Move the sender behind its caller's other senders, and the caller behind the other
        # callers.
        if queue:
            queues[sender] = queue

        if queues:
            self._waiting[caller] = queues
