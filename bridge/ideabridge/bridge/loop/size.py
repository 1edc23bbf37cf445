"""Size: how large parameters and outputs are with the values that their references read.

Values are shared in memory. Without these bounds, many references to one value would fill memory
when written out.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ideabridge.tools.encoding import JSON, MAX_VALUES, count_encoded_values, encode

MOST_RESOLVED: Final = 64 * 1024 * 1024
"""The most bytes of JSON that the parameters of one execution, or an output, may have with the
values that they read.
"""

MOST_VALUES: Final = MAX_VALUES
"""The most values (numbers, texts, lists, ...) that they may have: small values take far more
memory and time than their JSON."""

_MEMORY_PER_VALUE: Final = 60


@dataclass(frozen=True, slots=True)
class Size:
    """How large values are once they are written out.

    Attributes:
        size: bytes of JSON.
        values: the number of values within, with itself.
    """

    size: int = 0
    values: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.size + other.size, self.values + other.values)

    @property
    def memory(self) -> int:
        """The approximate bytes of memory of a copy."""
        return self.size + _MEMORY_PER_VALUE * self.values


NO_SIZE: Final = Size()


def measure(value: JSON) -> Size:
    """Measure a value as it is once it is written out."""
    if isinstance(value, str):
        return Size(len(value), 1)
    data = encode(value)
    return Size(len(data), count_encoded_values(data))


_LARGE: Final = 1_000
"""Values within a value that is worth remembering."""

_REMEMBERED: Final = 4


class LargeSizes:
    """Measures values, and remembers the last few large ones, which the calls of a plan read
    again and again.

    Values are never changed in place, so the same object has the same size.
    """

    def __init__(self) -> None:
        self._measured: OrderedDict[int, tuple[JSON, Size]] = OrderedDict()

    def measure(self, value: JSON) -> Size:
        """Measure a value; see `measure`."""
        remembered = self._measured.get(id(value))
        if remembered is not None:
            # The object is kept here, so that no other one can have its id.
            self._measured.move_to_end(id(value))
            return remembered[1]

        size = measure(value)
        if size.values >= _LARGE:
            self._measured[id(value)] = (value, size)
            if len(self._measured) > _REMEMBERED:
                self._measured.popitem(last=False)

        return size


def too_large(name: str, size: Size, refers: str = "they refer", done: str = "taken") -> str | None:
    """Return the error if something is too large with what it refers to; otherwise None.

    Args:
        name: what is too large, for the message.
        size: its size.
        refers: "it refers" if `name` is in the singular.
        done: the participle for what happens to smaller ones, such as "taken".
    """
    if size.size > MOST_RESOLVED:
        return (
            f"{name} would have {size.size:,} bytes with what {refers} to; at most "
            f"{MOST_RESOLVED:,} are {done}"
        )
    if size.values > MOST_VALUES:
        return (
            f"{name} would have {size.values:,} values (numbers, texts, lists, ...) with what "
            f"{refers} to; at most {MOST_VALUES:,} are {done}"
        )
    return None
