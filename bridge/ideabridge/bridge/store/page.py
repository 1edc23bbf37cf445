"""Pages of lists in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a list. `next` is the cursor to pass as `after`, or None on the last page."""

    items: list[Item]
    next: str | None
