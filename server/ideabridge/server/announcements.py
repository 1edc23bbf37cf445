"""Announcements: clients are told when tools, ideas and prompts change, in both eras (DESIGN 6).

2026-07-28: over the subscription bus, to those that listen. 2025-11-25 and earlier: to every session that came
through its handshake. What another process publishes is noticed by looking at the store.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.ideas.errors import StoreError, UnknownPublicationError
from ideabridge.server.callers import caller_of
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.resources import uri_name

POLL_SECONDS: Final = 0.5
"""How often the store is looked at for what other processes wrote."""

_MOST_SESSIONS: Final = 4000
_SEND_SECONDS: Final = 5.0
_STDIO: Final = ""

Context = ServerRequestContext[Any, Any]
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Front:
    """A client of the handshake era."""

    session: ServerSession
    uris: set[str] = field(default_factory=set[str])


class Announcements:
    """Who listens, and what has changed.

    Args:
        bridge: has the store.
        catalogue: the tools of this server.
    """

    def __init__(self, bridge: Bridge, catalogue: ToolCatalogue) -> None:
        self._bridge = bridge
        self._catalogue = catalogue
        self.bus = InMemorySubscriptionBus()
        self.listen = _Listening(self.bus)
        # By session id; "" is the one client on stdio. The SDK does not tell when a session ends without a word: the
        # oldest make room.
        self._fronts: OrderedDict[str, _Front] = OrderedDict()
        self._versions: dict[str, int] = {}
        # One over HTTP, where one token is taken: what is published to others is no change to those who listen here.
        self._callers: set[str] = set()
        self._seen = bridge.store.catalogue_version()
        self._data = bridge.store.data_version()
        self._exposed = catalogue.exposed_definitions()
        self._hints = catalogue.told_hints()
        self._poked = anyio.Event()
        self._other_tools = False

    # -- who listens -------------------------------------------------------------------------------------------

    async def connected(self, context: Context, _params: types.NotificationParams | None) -> None:
        """A client of the handshake era is ready (`notifications/initialized`)."""
        self._fronts[_session_id(context)] = _Front(context.session)
        if len(self._fronts) > _MOST_SESSIONS:
            self._fronts.popitem(last=False)

    def disconnected(self, session_id: str) -> None:
        """A client ended its HTTP session."""
        self._fronts.pop(session_id, None)

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """A client of the handshake era wants to know when a resource changes."""
        front = self._fronts.setdefault(_session_id(context), _Front(context.session))
        self._callers.add(caller_of(context))
        uri = str(params.uri)
        front.uris.add(uri)
        self._note_version(uri)
        return types.EmptyResult()

    async def unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """A client does not want to know any more."""
        front = self._fronts.get(_session_id(context))
        if front is not None:
            front.uris.discard(str(params.uri))
        return types.EmptyResult()

    async def on_listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A client of 2026-07-28 listens, until it goes."""
        self._callers.add(caller_of(context))
        uris = list(params.notifications.resource_subscriptions or ())
        for uri in uris:
            self._note_version(str(uri))
        with self.listen.counted(uris):
            return await self.listen.handler(context, params)

    def _note_version(self, uri: str) -> None:
        self._versions.setdefault(uri, self._version(uri))

    def _version(self, uri: str) -> int:
        name = uri_name(uri)
        if name is None:
            return 0
        seen = 0
        for caller in self._callers:
            with suppress(UnknownPublicationError):
                seen = max(seen, self._bridge.store.publication(name, caller=caller).version)
        return seen

    # -- what changed ------------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Something may have changed: look now rather than at the next turn."""
        self._poked.set()

    def tools_changed(self) -> None:
        """A session is offered other tools than before."""
        self._other_tools = True
        self.poke()

    async def run(self) -> None:
        """Look and tell, until cancelled."""
        while True:
            with anyio.move_on_after(POLL_SECONDS):
                await self._poked.wait()
            poked = self._poked.is_set()
            if poked:
                self._poked = anyio.Event()
            try:
                await self._look(poked=poked)
            except StoreError as error:
                # Busy or full: the next look finds the same change.
                logger.warning("looking for changes: %s", error)

    async def _look(self, *, poked: bool) -> None:
        data = self._bridge.store.data_version()
        if not poked and data == self._data:
            return
        self._data = data
        version = self._bridge.store.catalogue_version()
        published = version != self._seen
        self._seen = version
        self._catalogue.refresh()
        exposed = self._catalogue.exposed_definitions()
        hints = self._catalogue.told_hints()
        other = self._other_tools or any(self._hints.get(name, now) != now for name, now in hints.items())
        self._hints = hints
        if published or other or exposed != self._exposed:
            self._exposed = exposed
            self._other_tools = False
            await self._tell(ToolsListChanged(), "tools")
        if published:
            await self._tell(ResourcesListChanged(), "resources")
            await self._tell(PromptsListChanged(), "prompts")
            await self._tell_updated()

    async def _tell(self, event: ToolsListChanged | ResourcesListChanged | PromptsListChanged, what: str) -> None:
        await self.bus.publish(event)
        async with anyio.create_task_group() as group:
            for front in list(self._fronts.values()):
                group.start_soon(_send, front.session, what)

    async def _tell_updated(self) -> None:
        wanted = {uri for front in self._fronts.values() for uri in front.uris} | self.listen.uris
        for uri in list(self._versions.keys() - wanted):
            del self._versions[uri]
        for uri in wanted:
            version = self._version(uri)
            if self._versions.get(uri) == version:
                continue
            self._versions[uri] = version
            await self.bus.publish(ResourceUpdated(uri=uri))
            async with anyio.create_task_group() as group:
                for front in list(self._fronts.values()):
                    if uri in front.uris:
                        group.start_soon(_send_updated, front.session, uri)


class _Listening:
    """The SDK's handler of `subscriptions/listen`, and which resources its clients asked about."""

    def __init__(self, bus: InMemorySubscriptionBus) -> None:
        self.handler = ListenHandler(bus)
        self._counts: dict[str, int] = {}

    @property
    def uris(self) -> set[str]:
        """Every URI somebody listens for."""
        return set(self._counts)

    def counted(self, uris: list[str]) -> _Counted:
        """A scope in which `uris` are listened for."""
        return _Counted(self._counts, uris)


@dataclass(slots=True)
class _Counted:
    counts: dict[str, int]
    uris: list[str]

    def __enter__(self) -> None:
        for uri in self.uris:
            self.counts[uri] = self.counts.get(uri, 0) + 1

    def __exit__(self, *_: object) -> None:
        for uri in self.uris:
            self.counts[uri] -= 1
            if not self.counts[uri]:
                del self.counts[uri]


async def _send(session: ServerSession, what: str) -> None:
    # A client that does not read must not hold up the others; one that is gone is passed over by the SDK.
    with anyio.move_on_after(_SEND_SECONDS):
        if what == "tools":
            await session.send_tool_list_changed()
        elif what == "resources":
            await session.send_resource_list_changed()
        else:
            await session.send_prompt_list_changed()


async def _send_updated(session: ServerSession, uri: str) -> None:
    with anyio.move_on_after(_SEND_SECONDS):
        await session.send_resource_updated(uri)


def _session_id(context: Context) -> str:
    request = context.request
    return request.headers.get("mcp-session-id", _STDIO) if isinstance(request, Request) else _STDIO
