"""Decoded: the values of the long JSON texts that were read last, so that nobody decodes them
again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from ideabridge.tools.encoding import JSON, decode_trusted, memory_of

LONG: Final = 20_000
"""The least number of characters of a text whose value is kept. Decoding a shorter text takes less
than a millisecond.
"""

MOST_BYTES: Final = 64 * 1024 * 1024
"""The approximate number of bytes of memory that all values take together."""


class Decoded:
    """The values of texts. The class is thread-safe. Nobody may change a value, because the next
    reader gets the same object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[JSON, int]] = OrderedDict()
        self._total = 0

    def value(self, text: str) -> JSON:
        """Return the value of a text that `encode` wrote."""
        if len(text) < LONG:
            return decode_trusted(text)

        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text][0]

        value = decode_trusted(text)
        self.keep(text, value)
        return value

    def keep(self, text: str, value: JSON) -> None:
        """Keep the value of a text, unless it takes more than half of all memory for values."""
        if len(text) < LONG:
            return

        size = memory_of(text.encode())
        if size > MOST_BYTES // 2:
            return
        with self._lock:
            if text in self._kept:
                return
            self._kept[text] = (value, size)
            self._total += size
            while self._total > MOST_BYTES:
                _, (_, freed) = self._kept.popitem(last=False)
                self._total -= freed
