"""Read a server's lists of tools, resources, templates or prompts, page by page.

A list with errors is read as far as possible. If a page fails or hangs, a cursor is repeated, or a
list is endless, the entries that have arrived are still used, and a note says where the list was
cut off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

MAX_ENTRIES: Final = 10_000
MAX_PAGES: Final = 1000
MAX_EMPTY_PAGES: Final = 100
"""The maximum number of consecutive pages without an entry."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""The maximum total size, in bytes, of the pages of one list. The definitions of 10,000 tools, each
with a page of text, stay below this limit.
"""

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[EntryT]):
    """A page of a list.

    Attributes:
        entries: the entries on the page, in the server's order.
        cursor: the cursor for the next page, or None after the last page.
        size: the size of the page, in bytes of JSON.
    """

    entries: Sequence[EntryT]
    cursor: str | None
    size: int


@dataclass(frozen=True, slots=True)
class PagedList(Generic[EntryT]):
    """The entries of the pages that arrived.

    Attributes:
        entries: the entries, in the server's order.
        note: why there might be more entries, or None for a complete list.
        unfinished: True if a page failed or did not arrive in time, so that another read of the
            list might yield more entries.
    """

    entries: list[EntryT]
    note: str | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """How long reading a list may take.

    Attributes:
        page: the number of seconds for each page after the first.
        whole: the number of seconds for all pages after the first.
    """

    page: float
    whole: float


async def read_pages(
    read: Callable[[str | None], Awaitable[ListPage[EntryT]]],
    noun: str,
    patience: Patience,
    describe: Callable[[Exception], str],
) -> PagedList[EntryT]:
    """Read a list.

    Args:
        read: reads the page at a cursor, or the first page if the cursor is None.
        noun: the kind of entries, for the notes, such as "tools".
        patience: how long to wait for the pages after the first.
        describe: turns an error from `read` into text, for the notes.

    Raises:
        MCPError, pydantic.ValidationError, TimeoutError: the first page cannot be read.
    """
    collected = _CollectedPages(noun, await read(None))
    ends = anyio.current_time() + patience.whole
    while collected.cursor is not None:
        fault = collected.fault()
        if fault is not None:
            return collected.cut_off(fault)

        number = collected.number + 1
        seconds = min(patience.page, ends - anyio.current_time())
        try:
            with anyio.fail_after(seconds):
                page = await read(collected.cursor)
        except TimeoutError:
            within = f" within {patience.page:g} s" if seconds == patience.page else " in time"
            return collected.cut_off(f"did not send page {number}{within}", unfinished=True)
        except (MCPError, ValidationError) as error:
            fault = f"did not send page {number} ({describe(error)})"
            return collected.cut_off(fault, unfinished=True)

        if collected.size + page.size > MAX_LIST_BYTES:
            return collected.cut_off(f"lists its {noun} in more than {MAX_LIST_BYTES:,} bytes")
        collected.add(page)

    if len(collected.entries) > MAX_ENTRIES:
        return collected.cut_off(f"lists more than {MAX_ENTRIES:,} {noun}")
    return PagedList(collected.entries)


class _CollectedPages(Generic[EntryT]):
    """The pages of a list that have arrived.

    Attributes:
        entries: the entries of all pages.
        number: the number of pages.
        size: the total size of the pages, in bytes of JSON.
        cursor: the cursor for the next page, or None after the last page.
    """

    def __init__(self, noun: str, first: ListPage[EntryT]) -> None:
        self._noun = noun
        self._earlier_cursors: set[str] = set()
        self._empty_pages = 0
        self.entries: list[EntryT] = []
        self.number = 0
        self.size = 0
        self.cursor: str | None = None
        self.add(first)

    def add(self, page: ListPage[EntryT]) -> None:
        """Add the next page."""
        if self.cursor is not None:
            self._earlier_cursors.add(self.cursor)
        self.number += 1
        self.size += page.size
        self.entries += page.entries
        self.cursor = page.cursor
        self._empty_pages = 0 if page.entries else self._empty_pages + 1

    def fault(self) -> str | None:
        """Return why the next page must not be read, or None if it may be read."""
        if len(self.entries) > MAX_ENTRIES:
            return f"lists more than {MAX_ENTRIES:,} {self._noun}"
        if self.number >= MAX_PAGES:
            return f"lists its {self._noun} on more than {MAX_PAGES:,} pages"
        if self.cursor == "":
            return f"gave an empty cursor for page {self.number + 1}"
        if self.cursor in self._earlier_cursors:
            return f"gave the cursor of an earlier page for page {self.number + 1}"
        if self._empty_pages >= MAX_EMPTY_PAGES:
            return f"sent {self._empty_pages} pages without {self._noun} one after another"
        return None

    def cut_off(self, why: str, *, unfinished: bool = False) -> PagedList[EntryT]:
        """Return the list, marked as incomplete."""
        entries = self.entries[:MAX_ENTRIES]
        note = f"{why}; its list of {self._noun} ends after {len(entries):,} entries"
        return PagedList(entries, note, unfinished=unfinished)
