"""Pages: reads the lists of a module, of tools, resources, templates or prompts, page by page.

A list that is odd is read as far as it goes. A page that fails or hangs, a cursor that comes
again, or a list without an end costs nothing that arrived before it; a note says where the
list was cut off.
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
"""Pages without an entry that are read one after another."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all pages of one list. 10,000 tools with a page of text each have less."""

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[EntryT]):
    """One page of a list.

    Attributes:
        entries: its entries, in the order of the module.
        cursor: asks for the next page; None after the last.
        size: its bytes of JSON.
    """

    entries: Sequence[EntryT]
    cursor: str | None
    size: int


@dataclass(frozen=True, slots=True)
class PagedList(Generic[EntryT]):
    """The entries of the pages that arrived.

    Attributes:
        entries: the entries, in the order of the module.
        note: why there may be more; None for a whole list.
        unfinished: a page failed or did not arrive in time, so that reading the list
            again may give more.
    """

    entries: list[EntryT]
    note: str | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a list may take.

    Attributes:
        page: seconds for each page after the first.
        whole: seconds for all pages after the first.
    """

    page: float
    whole: float


async def read_pages(
    read: Callable[[str | None], Awaitable[ListPage[EntryT]]],
    what: str,
    patience: Patience,
    describe: Callable[[Exception], str],
) -> PagedList[EntryT]:
    """Read a list.

    Args:
        read: reads the page of a cursor, and the first page without one.
        what: the kind of entries, for the notes, such as "tools".
        patience: how long the pages after the first may take.
        describe: the text of an error of `read`, for the notes.

    Raises:
        MCPError, pydantic.ValidationError, TimeoutError: the first page cannot be read.
    """
    first = await read(None)
    entries = list(first.entries)
    cursor = first.cursor
    size = first.size
    empty_pages = 0 if entries else 1
    earlier_cursors: set[str] = set()
    ends = anyio.current_time() + patience.whole

    def ended(why: str, *, unfinished: bool = False) -> PagedList[EntryT]:
        note = f"{why}; its list of {what} ends after {len(entries):,} entries"
        return PagedList(entries, note, unfinished=unfinished)

    for number in range(2, MAX_PAGES + 1):
        if len(entries) > MAX_ENTRIES:
            del entries[MAX_ENTRIES:]
            return ended(f"lists more than {MAX_ENTRIES:,} {what}")
        if cursor is None:
            return PagedList(entries)
        if cursor == "":
            return ended(f"gave an empty cursor for page {number}")
        if cursor in earlier_cursors:
            return ended(f"gave the cursor of an earlier page for page {number}")
        if empty_pages >= MAX_EMPTY_PAGES:
            return ended(f"sent {empty_pages} pages without {what} one after another")
        earlier_cursors.add(cursor)

        seconds = min(patience.page, ends - anyio.current_time())
        try:
            with anyio.fail_after(seconds):
                page = await read(cursor)
        except TimeoutError:
            within = f" within {patience.page:g} s" if seconds == patience.page else " in time"
            return ended(f"did not send page {number}{within}", unfinished=True)
        except (MCPError, ValidationError) as error:
            return ended(f"did not send page {number} ({describe(error)})", unfinished=True)

        size += page.size
        if size > MAX_LIST_BYTES:
            return ended(f"lists its {what} in more than {MAX_LIST_BYTES:,} bytes")
        entries += page.entries
        cursor = page.cursor
        empty_pages = 0 if page.entries else empty_pages + 1

    if len(entries) > MAX_ENTRIES:
        del entries[MAX_ENTRIES:]

    if cursor is None:
        return PagedList(entries)
    return ended(f"lists its {what} on more than {MAX_PAGES:,} pages")
