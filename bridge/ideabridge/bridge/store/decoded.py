"""A cache of recently decoded JSON strings, so that long ones are not decoded again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from ideabridge.tools.encoding import JSON, decode_trusted, memory_of

LONG_TEXT: Final = 20_000
"""The minimum length, in characters, of a string whose value is cached. Decoding a shorter string
takes less than a millisecond.
"""

MOST_CACHED_BYTES: Final = 64 * 1024 * 1024
"""The approximate limit, in bytes of memory, for all cached values together."""


class Decoded:
    """A thread-safe cache of the values of JSON strings.

    Callers must not change a value, because the next reader gets the same object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[JSON, int]] = OrderedDict()
        self._total = 0

    def value(self, text: str) -> JSON:
        """Return the value of a JSON string written by `encode`."""
        if len(text) < LONG_TEXT:
            return decode_trusted(text)

        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text][0]

        value = decode_trusted(text)
        self.keep(text, value)
        return value

    def keep(self, text: str, value: JSON) -> None:
        """Cache the value of a string, unless it would take more than half of the cache's
        memory.
        """
        if len(text) < LONG_TEXT:
            return

        size = memory_of(text.encode())
        if size > MOST_CACHED_BYTES // 2:
            return
        with self._lock:
            if text in self._kept:
                return
            self._kept[text] = (value, size)
            self._total += size
            while self._total > MOST_CACHED_BYTES:
                _, (_, freed) = self._kept.popitem(last=False)
                self._total -= freed
