"""Measure how large parameters and outputs become when their references are replaced with values.

Values are shared in memory. Without these limits, many references to one value could fill the
memory when they are written out.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ideabridge.tools.encoding import JSON, MAX_VALUES, count_encoded_values, encode

MOST_RESOLVED: Final = 64 * 1024 * 1024
"""Maximum size, in bytes of JSON, of the parameters of one execution, or of an output, including
the values that they read."""

MOST_VALUES: Final = MAX_VALUES
"""Maximum number of values (numbers, strings, lists, ...) in such parameters or such an output.
Small values take far more memory and time than the size of their JSON suggests.
"""

_MEMORY_PER_VALUE: Final = 60


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a value when written out.

    Attributes:
        size: the number of bytes of JSON or, for a single string, its number of characters.
        values: the number of nested values, including the value itself.
    """

    size: int = 0
    values: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.size + other.size, self.values + other.values)

    @property
    def memory(self) -> int:
        """The approximate size of a copy in memory, in bytes."""
        return self.size + _MEMORY_PER_VALUE * self.values


NO_SIZE: Final = Size()


def measure(value: JSON) -> Size:
    """Measure a value as if it were written out. A string counts its characters, because encoding
    it would copy it.
    """
    if isinstance(value, str):
        return Size(len(value), 1)
    data = encode(value)
    return Size(len(data), count_encoded_values(data))


_LARGE_VALUE: Final = 1_000
"""The minimum number of nested values at which caching the size of a value is worthwhile."""

_REMEMBERED: Final = 4


class LargeSizes:
    """Measures values, and caches the sizes of the most recent large ones, because the calls in a
    plan read the same values again and again.

    Values are never modified in place, so the same object always has the same size.
    """

    def __init__(self) -> None:
        self._measured: OrderedDict[int, tuple[JSON, Size]] = OrderedDict()

    def measure(self, value: JSON) -> Size:
        """Measure a value; see `measure`."""
        remembered = self._measured.get(id(value))
        if remembered is not None:
            self._measured.move_to_end(id(value))
            return remembered[1]

        size = measure(value)
        if size.values >= _LARGE_VALUE:
            # Store the value, too, because a new object could otherwise get its id.
            self._measured[id(value)] = (value, size)
            if len(self._measured) > _REMEMBERED:
                self._measured.popitem(last=False)

        return size


def too_large(name: str, size: Size) -> str | None:
    """Return an error if a value is too large together with everything that it refers to, and None
    otherwise.

    Args:
        name: how the message refers to the value.
        size: the size of the value.
    """
    if size.size > MOST_RESOLVED:
        return (
            f"{name} would take up {size.size:,} bytes including the values referred to; the "
            f"limit is {MOST_RESOLVED:,}"
        )
    if size.values > MOST_VALUES:
        return (
            f"{name} would contain {size.values:,} values (numbers, strings, lists, ...) including "
            f"those referred to; the limit is {MOST_VALUES:,}"
        )
    return None
