"""Notify clients when tools, resources and prompts change.

With protocol 2026-07-28, notifications are sent over the subscription bus to clients that listen.
With 2025-11-25 and earlier, they are sent to every session that has completed the handshake. The
store reports changes by other processes. Changes that it does not report are found by polling.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.callers import Context, caller_of, session_id
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.offerings import Offerings
from ideabridge.server.resources import uri_name
from ideabridge.server.transports.quotas import Quotas

if TYPE_CHECKING:
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.offering import Kind

POLL_SECONDS: Final = 0.5
"""Interval, in seconds, at which a store that cannot notify is polled."""

_MOST_SESSIONS: Final = 4000
_MOST_LISTENERS: Final = 200
_MOST_URIS: Final = 1000
_LONGEST_URI: Final = 1000
_SEND_SECONDS: Final = 5.0

_Watched: TypeAlias = tuple[str, str]
"""A caller and the URI that it subscribed to."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Session:
    """A client of the handshake era, with the time when it connected and the resources that it
    subscribes to.
    """

    session: ServerSession
    caller: str
    begun: float = field(default_factory=time.monotonic)
    uris: set[str] = field(default_factory=set[str])


class _Listening:
    """The SDK's handler of `subscriptions/listen` for the clients of one caller, and the resources
    that each client subscribes to.
    """

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.clients: list[list[str]] = []


class Announcements:
    """Tracks the clients that listen, and notifies them of changes."""

    def __init__(self, catalogue: ToolCatalogue, quotas: Quotas, offerings: Offerings) -> None:
        self._bridge = bridge = catalogue.bridge
        self._quotas = quotas
        self._catalogue = catalogue
        self._offerings = offerings
        # The server resources that clients have subscribed to, and the changes that servers have
        # reported since the last check.
        self._watched: dict[str, Module] = {}
        self._events: dict[tuple[str, ServerEvent], None] = {}
        # The clients that are listening, keyed by caller, because different callers see different
        # ideas.
        self._listening: dict[str, _Listening] = {}
        # The sessions, keyed by session id; "" is the client on stdio. The SDK does not always
        # report the end of a session, so their number is limited, and the oldest are removed.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._versions: dict[_Watched, int] = {}
        self._catalogue_version = bridge.store.publications.catalogue_version()
        self._data = bridge.store.data_version()
        self._exposed = catalogue.exposed_definitions()
        self._hints = catalogue.listed_hints()
        self._poked = False
        self._other_tools = False
        self._exposed_modules = offerings.exposed_modules
        # The subscribed resources whose server was replaced, and which the new server is not
        # watching yet.
        self._lost: set[str] = set()
        offerings.arrived = self._arrived

    # -- subscriptions -----------------------------------------------------------------------------

    async def connected(self, context: Context, _params: types.NotificationParams | None) -> None:
        """Register a client of the handshake era that is ready (`notifications/initialized`)."""
        self._sessions[session_id(context)] = _Session(context.session, caller_of(context))
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def disconnected(self, session_id: str) -> None:
        """Forget a client that has ended its HTTP session."""
        if self._sessions.pop(session_id, None) is not None:
            self.poke()

    def begun(self, context: Context) -> float | None:
        """Return when the client that sent a request connected, on the clock of `time.monotonic`.

        Return None if the client has no HTTP session.
        """
        session = session_id(context)
        client = self._sessions.get(session) if session else None
        return None if client is None else client.begun

    async def subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Subscribe a client of the handshake era to a resource."""
        caller = caller_of(context)
        uri = str(params.uri)
        client = self._sessions.setdefault(session_id(context), _Session(context.session, caller))
        if len(client.uris) >= _MOST_URIS and uri not in client.uris:
            raise MCPError(
                types.INVALID_PARAMS,
                f"one session can subscribe to at most {_MOST_URIS:,} resources",
            )

        _expect_uris([uri])
        if client.caller == caller:
            client.uris.add(uri)
            self._versions.setdefault((caller, uri), self._version((caller, uri)))
            try:
                await self._watch(uri, caller)
            except MCPError:
                client.uris.discard(uri)
                raise

        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """End a subscription of a client of the handshake era."""
        client = self._sessions.get(session_id(context))
        if client is not None and client.caller == caller_of(context):
            client.uris.discard(str(params.uri))
            self.poke()
        return types.EmptyResult()

    async def on_listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a listening client of 2026-07-28 until it disconnects."""
        caller = caller_of(context)
        uris = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        _expect_uris(uris)
        with self._quotas.holding(caller, "listeners", _MOST_LISTENERS):
            for uri in uris:
                self._versions.setdefault((caller, uri), self._version((caller, uri)))

            listening = self._listening.setdefault(caller, _Listening())
            listening.clients.append(uris)
            try:
                for uri in uris:
                    # If a server refuses to watch one of the resources, changes to the others, and
                    # to lists, must still be reported.
                    with suppress(MCPError):
                        await self._watch(uri, caller)
                return await listening.handler(context, params)
            finally:
                listening.clients.remove(uris)
                self.poke()
                if not listening.clients and self._listening.get(caller) is listening:
                    del self._listening[caller]

    def close(self) -> None:
        """End the requests of all listening clients."""
        for listener in self._listening.values():
            listener.handler.close()

    async def _watch(self, uri: str, caller: str) -> None:
        module = await self._offerings.watch(uri, caller)
        if module is not None:
            self._watched[uri] = module

    def _subscriptions(self) -> set[_Watched]:
        """Return the caller and URI of each subscription."""
        watched = {
            (client.caller, uri) for client in self._sessions.values() for uri in client.uris
        }
        return watched | {
            (caller, uri)
            for caller, listener in self._listening.items()
            for uris in listener.clients
            for uri in uris
        }

    def _version(self, watched: _Watched) -> int:
        caller, uri = watched
        name = uri_name(uri)
        if name is None:
            return 0

        publication = self._bridge.store.publications.look_up(name, caller=caller)
        return 0 if publication is None else publication.version

    # -- announcing changes ------------------------------------------------------------------------

    def poke(self) -> None:
        """Check for changes now instead of at the next poll."""
        self._poked = True
        self._bridge.notices.tell("catalogue")

    def tools_changed(self) -> None:
        """Record that the tools offered to a session have changed."""
        self._other_tools = True
        self.poke()

    def follow(self) -> None:
        """Switch to the bridge's current configuration: announce that the lists of added or removed
        servers have changed, and watch the subscribed resources of replaced servers.
        """
        exposed = self._offerings.exposed_modules
        for name in exposed ^ self._exposed_modules:
            self._events[(name, ResourcesListChanged())] = None
            self._events[(name, PromptsListChanged())] = None

        self._exposed_modules = exposed
        modules = self._bridge.modules
        for uri, module in list(self._watched.items()):
            if module.name not in modules or modules[module.name] is not module:
                del self._watched[uri]
                self._lost.add(uri)

        self.poke()

    def heard(self, module: str, event: ServerEvent) -> None:
        """Record that a server has reported a change."""
        uri = event.uri if isinstance(event, ResourceUpdated) else ""
        if self._offerings.is_exposed(module, uri):
            if not isinstance(event, ResourceUpdated):
                self._offerings.forget(module)
            self._events[(module, event)] = None
            self.poke()

    def _arrived(self, module: str, kind: Kind) -> None:
        """Record that a server's list arrived only after a response had been sent without it."""
        event = PromptsListChanged() if kind == "prompts" else ResourcesListChanged()
        self._events[(module, event)] = None
        self.poke()

    async def run(self) -> None:
        """Check for changes and announce them, until cancelled."""
        reported = ""
        while True:
            await self._bridge.notices.wait("catalogue", POLL_SECONDS)
            poked = self._poked
            self._poked = False
            try:
                await self._look(poked=poked)
                reported = ""
            except StoreError as error:
                # The store is busy, full or missing. The next poll will often fail in the same way,
                # so log an error only if it differs from the previous one.
                if str(error) != reported:
                    reported = str(error)
                    logger.warning("the store could not be checked for changes: %s", error)

    async def _look(self, *, poked: bool) -> None:
        data = self._bridge.store.data_version()
        if not poked and data == self._data:
            return

        self._data = data
        version = self._bridge.store.publications.catalogue_version()
        published = version != self._catalogue_version
        self._catalogue_version = version
        self._catalogue.refresh()
        exposed = self._catalogue.exposed_definitions()
        hints = self._catalogue.listed_hints()
        others_changed = self._other_tools or any(
            self._hints.get(name, now) != now for name, now in hints.items()
        )
        self._hints = hints
        if published or others_changed or exposed != self._exposed:
            self._exposed = exposed
            self._other_tools = False
            await self._announce(ToolsListChanged(), ServerSession.send_tool_list_changed)

        reported = self._events
        self._events = {}
        events = [event for _, event in reported]
        if published or ResourcesListChanged() in events:
            await self._announce(ResourcesListChanged(), ServerSession.send_resource_list_changed)

        if published or PromptsListChanged() in events:
            await self._announce(PromptsListChanged(), ServerSession.send_prompt_list_changed)

        if published:
            await self._announce_updates()

        await self._watch_lost()
        updated = {
            (event.uri, module) for module, event in reported if isinstance(event, ResourceUpdated)
        }
        if updated or self._watched:
            watched = self._subscriptions()
            for uri, module in sorted(updated):
                await self._announce_change(uri, module)

            uris = {uri for _, uri in watched}
            for uri in [uri for uri in self._watched if uri not in uris]:
                await self._watched.pop(uri).unwatch(uri, self._bridge)

    async def _watch_lost(self) -> None:
        lost = self._lost
        self._lost = set()
        for caller, uri in sorted(self._subscriptions()):
            if uri in lost and uri not in self._watched:
                # If the new server does not have the resource, this raises an error.
                with suppress(MCPError), anyio.move_on_after(_SEND_SECONDS):
                    await self._watch(uri, caller)

    async def _announce(
        self, event: ServerEvent, send: Callable[[ServerSession], Awaitable[None]]
    ) -> None:
        for listener in list(self._listening.values()):
            await listener.bus.publish(event)
        await _send_all(self._sessions.values(), send)

    async def _announce_updates(self) -> None:
        wanted_now = self._subscriptions()
        for watched in self._versions.keys() - wanted_now:
            del self._versions[watched]

        for watched in wanted_now:
            version = self._version(watched)
            if self._versions.get(watched) == version:
                continue
            self._versions[watched] = version
            await self._announce_update(watched)

    async def _announce_change(self, uri: str, module: str) -> None:
        """Announce a change to a server's resource to the clients that subscribe to it or to a
        resource that contains it.

        Subscribed resources of other servers do not count.
        """

        def is_changed(named: str) -> bool:
            owner = self._watched.get(named)
            return is_within(uri, named) and (owner is None or owner.name == module)

        for listener in list(self._listening.values()):
            # Since 2026-07-28, a subscription covers only the resources that it names.
            for watched in {
                named for uris in listener.clients for named in uris if is_changed(named)
            }:
                await listener.bus.publish(ResourceUpdated(uri=watched))

        subscribers = [
            session for session in self._sessions.values() if any(map(is_changed, session.uris))
        ]
        # Remove secrets from the URI, as in the list of resources.
        redacted = self._bridge.secrets.redact(uri)
        await _send_all(
            subscribers, partial(ServerSession.send_resource_updated, uri=str(redacted))
        )

    async def _announce_update(self, watched: _Watched) -> None:
        caller, uri = watched
        if caller in self._listening:
            await self._listening[caller].bus.publish(ResourceUpdated(uri=uri))
        subscribers = [
            session
            for session in self._sessions.values()
            if session.caller == caller and uri in session.uris
        ]
        await _send_all(subscribers, partial(ServerSession.send_resource_updated, uri=uri))


def is_within(uri: str, whole: str) -> bool:
    """Return whether a resource is `whole` itself or a part of it."""
    if not uri.startswith(whole):
        return False
    return uri == whole or whole.endswith("/") or uri[len(whole)] in "/?#"


def _expect_uris(uris: list[str]) -> None:
    """Reject subscriptions with too many or too long URIs, because every URI is stored."""
    if len(uris) > _MOST_URIS:
        raise MCPError(
            types.INVALID_PARAMS,
            f"found {len(uris):,} resources; the limit for one listener is {_MOST_URIS:,}",
        )
    for uri in uris:
        if len(uri) > _LONGEST_URI:
            raise MCPError(
                types.INVALID_PARAMS,
                f"uri: the URI has {len(uri):,} characters; the limit is {_LONGEST_URI:,}",
            )


async def _send_all(
    clients: Iterable[_Session], send: Callable[[ServerSession], Awaitable[None]]
) -> None:
    async def send_one(session: ServerSession) -> None:
        # A client that does not read its messages must not delay the others.
        with anyio.move_on_after(_SEND_SECONDS):
            await send(session)

    async with anyio.create_task_group() as group:
        for client in clients:
            group.start_soon(send_one, client.session)
