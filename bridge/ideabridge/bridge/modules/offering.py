"""The resources, resource templates and prompts that a server offers besides its tools.

A list is read when someone asks for it, and stored until the server reports a change. If the server
does not report changes, the list is read each time. If a page of a list is late, the list is read
again in the background (`read_again`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, cast, get_args

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from pydantic import BaseModel, ValidationError

from ideabridge.bridge.modules.pages import ListPage, PagedList, Patience, read_pages
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject, encode, normalise

Kind = Literal["resources", "templates", "prompts"]

OFFERED_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_ASKED: Final = Patience(page=3.0, whole=6.0)
"""The maximum time, in seconds, for the pages after the first page, while someone waits for the
list.
"""

_BACKGROUND: Final = Patience(page=60.0, whole=300.0)
_AGAIN_SECONDS: Final = 1.0
_AGAIN_MOST: Final = 60.0
"""The first and the longest pause, in seconds, before an incomplete list is read again."""

EVENTS: Final[Mapping[type[Any], ServerEvent]] = {
    types.ToolListChangedNotification: ToolsListChanged(),
    types.PromptListChangedNotification: PromptsListChanged(),
    types.ResourceListChangedNotification: ResourcesListChanged(),
}


def event_of(message: object) -> ServerEvent | None:
    """Return the event that a server's notification reports, or None for any other message."""
    if isinstance(message, types.ResourceUpdatedNotification):
        return ResourceUpdated(str(message.params.uri))
    return EVENTS.get(type(message))


def kinds_changed_by(event: ServerEvent) -> tuple[Kind, ...]:
    """Return the kinds of entries whose lists have changed according to an event."""
    if isinstance(event, PromptsListChanged):
        return ("prompts",)
    if isinstance(event, ResourcesListChanged):
        return ("resources", "templates")
    return ()


class Offering:
    """The lists of one connection, as protocol JSON, without secrets.

    Args:
        client: the client of the connection.
        secrets: the values to replace in the entries.
        describe: returns the text for an error that occurred while a page was read.
    """

    def __init__(
        self, client: Client, secrets: Secrets, describe: Callable[[Exception], str]
    ) -> None:
        self._client = client
        self._secrets = secrets
        self._describe = describe
        self._notes: dict[Kind, str] = {}
        self._known: dict[Kind, list[JSONObject]] = {}
        self._unfinished: set[Kind] = set()
        self._cut_off = anyio.Event()
        self._reading: dict[Kind, anyio.Lock] = {kind: anyio.Lock() for kind in OFFERED_KINDS}
        # Incremented by each change, so that a list that changes while it is being read is not
        # stored.
        self._changes = 0

    def has(self, kind: Kind) -> bool:
        """Return whether the server declares entries of the given kind."""
        capabilities = self._client.server_capabilities
        capability = capabilities.prompts if kind == "prompts" else capabilities.resources
        return capability is not None

    @property
    def events(self) -> list[ServerEvent]:
        """The events that report changes to the kinds of entries that the server offers."""
        events: list[ServerEvent] = []
        if self.has("prompts"):
            events.append(PromptsListChanged())
        if self.has("resources"):
            events.append(ResourcesListChanged())
        return events

    def _reports_changes(self, kind: Kind) -> bool:
        capabilities = self._client.server_capabilities
        declared = capabilities.prompts if kind == "prompts" else capabilities.resources
        return declared is not None and declared.list_changed is True

    def changed(self, event: ServerEvent) -> None:
        """Forget lists that have changed."""
        self._changes += 1
        for kind in kinds_changed_by(event):
            self._known.pop(kind, None)
            self._unfinished.discard(kind)

    @property
    def notes(self) -> list[str]:
        """Human-readable notes on why the most recently read lists are incomplete."""
        return list(self._notes.values())

    def known(self, kind: Kind) -> list[JSONObject] | None:
        """Return the list as last read, or None if it has not been read or has changed since."""
        return self._known.get(kind)

    async def entries(self, kind: Kind) -> list[JSONObject]:
        """Return the entries from all pages that arrive, in the server's order.

        Raises:
            MCPError: the server refuses, or does not respond in time.
            pydantic.ValidationError: the first page violates the protocol.
        """
        if not self.has(kind):
            return []
        async with self._reading[kind]:
            known_list = self._known.get(kind)
            if known_list is not None and (self._reports_changes(kind) or kind in self._unfinished):
                return known_list
            return await self._read(kind, _ASKED)

    async def read_again(self, changed: Callable[[ServerEvent], None]) -> None:
        """Read incomplete lists again after pauses of increasing length, until cancelled, and
        report the lists that have changed.
        """
        pause = _AGAIN_SECONDS
        while True:
            if not self._unfinished:
                pause = _AGAIN_SECONDS
                await self._cut_off.wait()
            self._cut_off = anyio.Event()
            await anyio.sleep(pause)
            pause = min(2 * pause, _AGAIN_MOST)
            for kind in sorted(self._unfinished):
                async with self._reading[kind]:
                    before = self._known.get(kind)
                    # The list has changed in the meantime, so it will be read when someone asks for
                    # it.
                    if before is None:
                        continue
                    try:
                        entries = await self._read(kind, _BACKGROUND)
                    except (MCPError, ValidationError):
                        continue
                if entries != before:
                    changed(PromptsListChanged() if kind == "prompts" else ResourcesListChanged())

    async def _read(self, kind: Kind, patience: Patience) -> list[JSONObject]:
        changes = self._changes
        try:
            pages = await read_pages(partial(self._page, kind), kind, patience, self._describe)
        except MCPError as error:
            # Some servers declare resources but do not support templates.
            if error.code != types.METHOD_NOT_FOUND:
                raise
            pages: PagedList[JSONObject] = PagedList([])

        if pages.note is None:
            self._notes.pop(kind, None)
        else:
            self._notes[kind] = pages.note

        if changes == self._changes:
            self._known[kind] = pages.entries
            self._unfinished.discard(kind)
            if pages.unfinished:
                self._unfinished.add(kind)
                self._cut_off.set()

        return pages.entries

    async def _page(self, kind: Kind, cursor: str | None) -> ListPage[JSONObject]:
        listed, next_cursor = await self._listed(kind, cursor)
        entries: list[JSONObject] = []
        size = 0
        for model in listed:
            entry = cast(
                "JSONObject", self._secrets.redact(normalise(wire(model), what="an entry"))
            )
            size += len(encode(entry))
            entries.append(entry)

        return ListPage(entries, next_cursor, size)

    async def _listed(self, kind: Kind, cursor: str | None) -> tuple[list[BaseModel], str | None]:
        params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        session = self._client.session
        if kind == "prompts":
            prompts = await session.list_prompts(params=params)
            return [*prompts.prompts], prompts.next_cursor
        if kind == "templates":
            templates = await session.list_resource_templates(params=params)
            return [*templates.resource_templates], templates.next_cursor

        resources = await session.list_resources(params=params)
        return [*resources.resources], resources.next_cursor


def wire(model: BaseModel) -> dict[str, Any]:
    """Convert an object of the protocol to JSON."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
