"""The type of a page in a long list, which the store returns page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a list. `next` is the cursor to pass as `after`, or None on the last page."""

    items: list[Item]
    next: str | None
