"""Offering: what a module offers besides tools: resources, templates of resources, and prompts.

A list is read when somebody asks for it, and kept until the module reports a change. The list of a module that reports
no changes is read each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

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
from pydantic import BaseModel

from ideabridge.bridge.modules.errors import ModuleProtocolError
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject, encode, normalise

Kind = Literal["resources", "templates", "prompts"]

MAX_ENTRIES: Final = 10_000
MAX_OFFERED_PAGES: Final = 1000
MAX_OFFERED_BYTES: Final = 32 * 1024 * 1024
"""The entries, pages and bytes of JSON of one list."""

EVENTS: Final[Mapping[type[Any], ServerEvent]] = {
    types.ToolListChangedNotification: ToolsListChanged(),
    types.PromptListChangedNotification: PromptsListChanged(),
    types.ResourceListChangedNotification: ResourcesListChanged(),
}


def event_of(message: object) -> ServerEvent | None:
    """The event that a notification of a module reports; None for other messages."""
    if isinstance(message, types.ResourceUpdatedNotification):
        return ResourceUpdated(str(message.params.uri))
    return EVENTS.get(type(message))


class Offering:
    """The lists of one connection, in wire form and without secrets."""

    def __init__(self, module: str, client: Client, secrets: Secrets) -> None:
        self._module = module
        self._client = client
        self._secrets = secrets
        self._known: dict[Kind, list[JSONObject]] = {}
        self._reading: dict[Kind, anyio.Lock] = {kind: anyio.Lock() for kind in ("resources", "templates", "prompts")}
        # Counts the changes: a list that has changed while it was read is not kept.
        self._changes = 0

    def has(self, kind: Kind) -> bool:
        """Return whether the module declares that it offers these."""
        capabilities = self._client.server_capabilities
        return (capabilities.prompts if kind == "prompts" else capabilities.resources) is not None

    def _reports_changes(self, kind: Kind) -> bool:
        capabilities = self._client.server_capabilities
        declared = capabilities.prompts if kind == "prompts" else capabilities.resources
        return declared is not None and declared.list_changed is True

    def changed(self, event: ServerEvent) -> None:
        """Forget the lists that have changed."""
        self._changes += 1
        if isinstance(event, PromptsListChanged):
            self._known.pop("prompts", None)
        elif isinstance(event, ResourcesListChanged):
            self._known.pop("resources", None)
            self._known.pop("templates", None)

    def known(self, kind: Kind) -> list[JSONObject] | None:
        """The list as it was read last; None if it has not been read, or has changed since."""
        return self._known.get(kind)

    async def entries(self, kind: Kind) -> list[JSONObject]:
        """The entries of all pages, in the order of the module.

        Raises:
            MCPError: the module refuses, or does not answer in time.
            ModuleProtocolError: the list is too long, or a page comes again.
            pydantic.ValidationError: a page is not what the protocol says.
        """
        if not self.has(kind):
            return []
        async with self._reading[kind]:
            known = self._known.get(kind)
            if known is not None and self._reports_changes(kind):
                return known
            changes = self._changes
            found = await self._read(kind)
            if changes == self._changes:
                self._known[kind] = found
            return found

    async def _read(self, kind: Kind) -> list[JSONObject]:
        entries: list[JSONObject] = []
        size = 0
        cursor: str | None = None
        seen: set[str] = set()
        what = f"module {self._module!r} lists its {kind}"
        for _ in range(MAX_OFFERED_PAGES):
            try:
                found, cursor = await self._page(kind, cursor)
            except MCPError as error:
                # Some servers declare resources and have no templates.
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                found, cursor = [], None
            for one in found:
                entry = self._secrets.redact(normalise(wire(one), what="an entry"))
                size += len(encode(entry))
                entries.append(cast("JSONObject", entry))
            if len(entries) > MAX_ENTRIES or size > MAX_OFFERED_BYTES:
                most = f"at most {MAX_ENTRIES:,} entries and {MAX_OFFERED_BYTES:,} bytes are taken"
                raise ModuleProtocolError(self._module, f"{what} in {len(entries):,} entries, {size:,} bytes; {most}")
            if cursor is None:
                return entries
            if cursor in seen:
                raise ModuleProtocolError(self._module, f"{what} in a circle: a page comes again")
            seen.add(cursor)
        raise ModuleProtocolError(self._module, f"{what} on more than {MAX_OFFERED_PAGES:,} pages")

    async def _page(self, kind: Kind, cursor: str | None) -> tuple[list[BaseModel], str | None]:
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
    """A part of the protocol in its wire form."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
