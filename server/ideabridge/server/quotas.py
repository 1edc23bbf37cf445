"""Quotas: how much each caller holds of this server at one time, and how often it asks.

One caller that holds everything leaves nothing for the others. So what a request takes (a place among the requests in
progress, a stream, a session) is counted by caller, and over its bound the caller gets an error that says so.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from ideabridge.tools.errors import LimitExceededError

_MOST_RATES: Final = 10_000
"""How many (caller, kind) pairs `spend` remembers; the one that is longest unused makes room."""


class QuotaError(LimitExceededError):
    """A caller holds as much as one caller may.

    Attributes:
        retry_after: seconds after which it makes sense to ask again.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Quotas:
    """What every caller holds now, and what it used lately.

    Args:
        clock: seconds; any clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], int] = {}
        # (what is left, when that was counted); the least recently used pair is first.
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def held(self, caller: str, kind: str) -> int:
        """How many of a kind a caller holds now."""
        return self._held.get((caller, kind), 0)

    @contextmanager
    def holding(self, caller: str, kind: str, most: int, amount: int = 1) -> Generator[None]:
        """A scope in which a caller holds more of a kind.

        Args:
            caller: who; see `caller_of`.
            kind: what, in plural, as the message says it: "requests in progress".
            most: how many of them one caller may hold.
            amount: how many more they are.

        Raises:
            QuotaError: that would be too many.
        """
        key = caller, kind
        count = self._held.get(key, 0)
        if count + amount > most:
            more = "" if amount == 1 else f" and ask for {amount:,} more"
            raise QuotaError(f"you have {count:,} {kind}{more}; one caller may have {most:,} at a time")
        self._held[key] = count + amount
        try:
            yield
        finally:
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]

    def spend(self, caller: str, kind: str, most: int, seconds: float) -> None:
        """Count one use of a kind: at most `most` at once, and `most` in any `seconds` on average.

        Args:
            caller: who.
            kind: what, in plural, as the message says it: "calls".
            most: how many in `seconds`.
            seconds: of what time.

        Raises:
            QuotaError: it used that many; `retry_after` says when one more is there.
        """
        now, key = self._clock(), (caller, kind)
        left, then = self._left.pop(key, (float(most), now))
        left = min(float(most), left + (now - then) * most / seconds)
        if left < 1:
            self._left[key] = left, now
            wait = (1 - left) * seconds / most
            raise QuotaError(
                f"too many {kind}: one caller may make {most:,} in {seconds:g} s; try again in {wait:.1f} s",
                retry_after=wait,
            )
        self._left[key] = left - 1, now
        if len(self._left) > _MOST_RATES:
            self._left.popitem(last=False)
