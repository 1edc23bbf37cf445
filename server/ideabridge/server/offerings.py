"""Pass on the resources, templates, prompts and completions of exposed servers (`expose: modules`).

Entries are passed on as the servers send them. URIs are not changed: if two servers list the same
URI, the resource is read from the one that comes first in the configuration. A prompt keeps its
name unless another server or an idea has a prompt with the same name. In that case, its name is
MODULE_NAME. Ideas come first in each list.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.errors import ModuleSignInError
from ideabridge.bridge.modules.views import is_view_uri
from ideabridge.bridge.store.users import user_of
from ideabridge.server.answers import MAX_DIRECT
from ideabridge.server.asking.relaying import Relaying
from ideabridge.server.asking.rounds import InputRequired, read_state
from ideabridge.server.callers import Context, caller_of, session_id
from ideabridge.server.extensions.module_views import ModuleViews
from ideabridge.server.finding import LIST_SECONDS
from ideabridge.server.resources import PAGE, PAGE_BYTES, IdeaPrompts, IdeaResources, uri_name
from ideabridge.tools.encoding import JSONObject, encode
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.offering import Kind
    from ideabridge.bridge.modules.requests import PassedOn

logger = logging.getLogger(__name__)

Wire = dict[str, Any]

_LISTED: Final[dict[Kind, str]] = {
    "resources": "resources",
    "templates": "resourceTemplates",
    "prompts": "prompts",
}
"""The key under which each kind of list appears in its result."""

_CURSOR: Final = re.compile(r"\+([0-9]{1,9})\Z")
"""A cursor among the entries of servers, which contains the number of entries before it. Cursors
among ideas are names.
"""

_MOST_LISTS: Final = 3000
"""Maximum number of lists kept for servers that respond too late."""

LATE_SECONDS: Final = 2.0
"""How long, in seconds, a list waits for the entries of a server that is up. Entries that arrive
later are announced.
"""

_MOST_READINGS: Final = 3
"""Maximum number of times that a list is read if it keeps changing in the meantime."""

_PART: Final = re.compile(r"\{[^{}]*\}")

_COMMON_SCHEMES: Final = frozenset({"file", "http", "https"})
"""Schemes that do not belong to any server, even if only one server lists resources with them."""


_Place = tuple[str, "Kind", str | None]
"""The key of a list: its server and kind, and also the user if each user signs in to the server."""


class _Reading:
    """The reading of a list, which continues even if nobody is waiting for it any more.

    Attributes:
        place: the key of the list.
        connected: set when the server is no longer connecting. `connected_at` is the time when it
            was set.
        done: set when the reading has ended, with or without a list.
        is_late: whether a response was already sent without the list.
        is_stale: whether the server has changed the list since this reading asked for it.
    """

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.connected = anyio.Event()
        self.connected_at = 0.0
        self.done = anyio.Event()
        self.is_late = False
        self.is_stale = False


class Offerings:
    """Handles `resources/*`, `prompts/*` and completions, both for ideas and for the offerings of
    exposed servers.

    Attributes:
        arrived: called with the name of a server and a kind when that list arrives too late for a
            response.
    """

    def __init__(
        self, bridge: Bridge, relaying: Relaying, views: ModuleViews, group: TaskGroup
    ) -> None:
        self.arrived: Callable[[str, Kind], None] = lambda _module, _kind: None
        self._group = group
        self._bridge = bridge
        self._views = views
        self._relaying = relaying
        self._ideas = IdeaResources(bridge)
        self._idea_prompts = IdeaPrompts(bridge)
        self._patience = anyio.current_time() + LIST_SECONDS
        self._names: list[str] = []
        # The last reading of each list. It is kept because a server that is not connected now may
        # be connected again at the next request.
        self._last: OrderedDict[_Place, list[JSONObject]] = OrderedDict()
        self._readings: dict[_Place, _Reading] = {}
        self.follow()

    def follow(self) -> None:
        """Switch to the bridge's current configuration."""
        bridge = self._bridge
        before = self._names
        self._names = [name for name in bridge.modules.names if bridge.configuration.exposes(name)]
        for name in set(before) - set(self._names):
            self.forget(name)

    @property
    def exposed_modules(self) -> frozenset[str]:
        """The names of the servers whose resources and prompts are passed on."""
        return frozenset(self._names)

    # -- lists -------------------------------------------------------------------------------------

    async def resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> Wire:
        """Return one page of resources."""
        return await self._page(
            "resources",
            params,
            lambda: self._ideas.list(context, params),
            lambda: self._resources(caller_of(context)),
        )

    async def templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> Wire:
        """Return one page of templates."""
        return await self._page(
            "templates",
            params,
            lambda: self._ideas.templates(context, params),
            lambda: self._templates(caller_of(context)),
        )

    async def prompts(self, context: Context, params: types.PaginatedRequestParams | None) -> Wire:
        """Return one page of prompts."""

        async def module_entries() -> list[JSONObject]:
            return [
                {**entry, "name": name}
                for name, (_, entry) in (await self._prompts(caller_of(context))).items()
            ]

        return await self._page(
            "prompts", params, lambda: self._idea_prompts.list(context, params), module_entries
        )

    async def _page(
        self,
        kind: Kind,
        params: types.PaginatedRequestParams | None,
        ideas: Callable[[], Awaitable[types.PaginatedResult]],
        module_entries: Callable[[], Awaitable[list[JSONObject]]],
    ) -> Wire:
        cursor = None if params is None else params.cursor
        within = None if cursor is None else _CURSOR.match(cursor)
        result: Wire = {_LISTED[kind]: [], "resultType": "complete"}
        if within is None:
            page = await ideas()
            result[_LISTED[kind]] = page.model_dump(mode="json", by_alias=True, exclude_none=True)[
                _LISTED[kind]
            ]
            if page.next_cursor is not None:
                return {**result, "nextCursor": page.next_cursor}

        entries: list[Any] = result[_LISTED[kind]]
        room = PAGE_BYTES - sum(len(encode(entry)) for entry in entries)
        begin = int(within[1]) if within is not None else 0
        all_entries = await module_entries()
        for place, entry in enumerate(all_entries[begin:], begin):
            room -= len(encode(entry))
            if entries and (room < 0 or len(entries) >= PAGE):
                result["nextCursor"] = f"+{place}"
                break
            entries.append(entry)

        return result

    async def _resources(self, caller: str) -> list[JSONObject]:
        resources: dict[str, JSONObject] = {}
        for _, entry in await self._all("resources", caller):
            resources.setdefault(str(entry["uri"]), entry)
        return list(resources.values())

    async def _templates(self, caller: str) -> list[JSONObject]:
        templates: dict[str, JSONObject] = {}
        for _, entry in await self._all("templates", caller):
            templates.setdefault(str(entry["uriTemplate"]), entry)
        return list(templates.values())

    async def _prompts(self, caller: str) -> dict[str, tuple[str, JSONObject]]:
        """Return the server and the prompt that each name refers to."""
        listed = await self._all("prompts", caller)
        count = Counter(str(entry["name"]) for _, entry in listed)
        prompts: dict[str, tuple[str, JSONObject]] = {}
        for module, entry in listed:
            own = str(entry["name"])
            if count[own] == 1 and not self._is_idea(own, caller):
                name = own
            else:
                name = f"{module}_{own}"
            prompts.setdefault(name, (module, entry))

        return prompts

    def _is_idea(self, name: str, caller: str) -> bool:
        return self._bridge.store.publications.find(name, None, caller) is not None

    def _names_for(self, caller: str) -> list[str]:
        """Return the exposed servers in the caller's profile."""
        offer = self._bridge.offer.to(caller)
        return [name for name in self._names if offer.has_server(name)]

    def _place(self, module: str, kind: Kind, caller: str) -> _Place:
        """Return the key of a list. If each user signs in to the server, each user has a separate
        list.
        """
        own = self._bridge.modules[module].configuration.has_sign_ins
        return module, kind, user_of(caller) if own else None

    async def _all(self, kind: Kind, caller: str) -> list[tuple[str, JSONObject]]:
        """Return the entries of every exposed server as (server, entry), in the order of the
        configuration.
        """
        readings: list[_Reading] = []
        names = self._names_for(caller)
        for name in names:
            place = self._place(name, kind, caller)
            reading = self._readings.get(place)
            if reading is None:
                reading = self._readings[place] = _Reading(place)
                self._group.start_soon(self._read, reading)

            readings.append(reading)

        for reading in readings:
            await self._wait_for(reading)
        return [
            (name, entry)
            for name in names
            for entry in self._views.entries(
                name, self._last.get(self._place(name, kind, caller), [])
            )
        ]

    async def _wait_for(self, reading: _Reading) -> None:
        """Wait for a server's list. Soon after the start, first wait until the server is up, and
        then for `LATE_SECONDS`. If the list comes too late, the previous list, if any, is used.
        """
        with anyio.move_on_at(self._patience):
            await reading.connected.wait()

        if reading.connected.is_set():
            with anyio.move_on_at(reading.connected_at + LATE_SECONDS):
                await reading.done.wait()

        if not reading.done.is_set():
            reading.is_late = True

    async def _read(self, reading: _Reading) -> None:
        """Read the list of one server, no matter how long this takes."""
        modules = self._bridge.modules
        name, kind, user = reading.place
        entries: list[JSONObject] | None = None
        try:
            async with modules.using(name, user) as module:
                await module.settle()
                reading.connected_at = anyio.current_time()
                reading.connected.set()
                for _ in range(_MOST_READINGS):
                    reading.is_stale = False
                    if module.state in ("idle", "up", "down"):
                        entries = await module.offered(kind)
                    if not reading.is_stale:
                        break
        except IdeabridgeError as error:
            # List the entries of the other servers all the same. The error is shown in the status
            # of this server.
            modules[name].note([] if isinstance(error, ModuleSignInError) else [str(error)])
        except Exception:
            # Only log the error, because nobody might be waiting for this list, and the other
            # servers must continue.
            logger.exception(
                "the %s of server %s could not be read because of an error in ideabridge itself",
                kind,
                name,
            )
        finally:
            reading.connected.set()
            reading.done.set()

        del self._readings[reading.place]
        if entries is not None:
            is_new = entries != self._last.get(reading.place, [])
            self._last[reading.place] = entries
            self._last.move_to_end(reading.place)
            while len(self._last) > _MOST_LISTS:
                self._last.popitem(last=False)

            if reading.is_late and is_new:
                self.arrived(name, kind)

    async def set_log_level(
        self, context: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Record which log messages from servers a client of the handshake era wants."""
        lowest = self._relaying.set_level(session_id(context), params.level)
        # The client waits no longer than this, which is enough for even a slow server to receive
        # the request.
        with anyio.move_on_after(LATE_SECONDS):
            async with anyio.create_task_group() as group:
                for name in self._names:
                    group.start_soon(self._bridge.modules[name].set_log_level, lowest)
        return types.EmptyResult()

    @property
    def has_modules(self) -> bool:
        """True if any server is exposed."""
        return bool(self._names)

    # -- changes -----------------------------------------------------------------------------------

    async def watch(self, uri: str, caller: str) -> Module | None:
        """Subscribe to changes to a resource. Return the server of the resource, or None if no
        server has it.

        Raises:
            MCPError: the server refuses the subscription, cannot be reached, or has a separate
                sign-in for each user.
        """
        if self._names and uri_name(uri) is None:
            module = await self.module_of(uri, caller)
        else:
            module = None

        if module is not None:
            if (
                user_of(caller) is not None
                and module.configuration.has_sign_ins
                and module.has_token
            ):
                refusal = (
                    f"server {module.name!r} has a sign-in for each user, so changes to its "
                    "resources are not reported"
                )
                raise MCPError(types.INVALID_REQUEST, f"{refusal} to users")

            try:
                await module.watch(uri, self._bridge)
            except IdeabridgeError as error:
                raise MCPError(
                    types.INTERNAL_ERROR, self._bridge.secrets.mask(str(error))
                ) from None

        return module

    def forget(self, module: str) -> None:
        """Discard the lists of a server that has changed them."""
        for place in [place for place in self._last if place[0] == module]:
            del self._last[place]
        for reading in self._readings.values():
            reading.is_stale = reading.is_stale or reading.place[0] == module

    def is_exposed(self, module: str, uri: str = "") -> bool:
        """Return whether a server's resources, including the one with this URI, are passed on."""
        return module in self._names and self._views.serves(module, uri)

    # -- single resources and prompts --------------------------------------------------------------

    async def read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> Wire | types.ReadResourceResult:
        """Read an idea as an exported document, or a resource of a server.

        Raises:
            MCPError: no resource has this URI, or its server refuses it.
        """
        uri = str(params.uri)
        if not self._names or uri_name(uri) is not None:
            return await self._ideas.read(context, params)

        module = await self.module_of(uri, caller_of(context))
        if module is None:
            refusal = (
                f"unknown resource {uri[:120]!r}: no server lists it, and no idea has this name "
                f"(idea://NAME).{self._bridge.offer.to(caller_of(context)).missing.sentences()}"
            )
            raise MCPError(types.INVALID_PARAMS, refusal, {"uri": uri})

        return await self._passed_on(context, module.name, types.ReadResourceRequest(params=params))

    async def module_of(self, uri: str, caller: str) -> Module | None:
        """Return the server to read a resource from, or None if no server is likely to have it.

        The first of the following servers that exists is chosen:

        1. the first server in the configuration that lists the resource or has a template for it;
        2. the server that mentioned the resource in a result for this caller, unless a different
           server is the only one with resources of this scheme;
        3. the only server with resources of this scheme;
        4. the only server with any resources.

        So no server can take over a resource of a server that precedes it in the configuration.
        """
        modules = self._bridge.modules
        names = self._names_for(caller)
        if is_view_uri(uri):
            # Read a server's views only from the allowed server. ideabridge's own views do not come
            # from any server.
            allowed = self._views.module
            if allowed in names and self._views.serves(allowed, uri):
                return modules[allowed]
            return None

        if (only := self._only_one(names)) is not None:
            return only

        for name in names:
            claims = self._claims(name, uri, caller)
            if claims is None:
                break
            if claims:
                return modules[name]

        resources = await self._all("resources", caller)
        templates = await self._all("templates", caller)
        for name in names:
            if self._claims(name, uri, caller):
                return modules[name]

        scheme = uri.partition(":")[0]
        same = {name for name, entry in resources if str(entry["uri"]).partition(":")[0] == scheme}
        same |= {
            name
            for name, entry in templates
            if str(entry["uriTemplate"]).partition(":")[0] == scheme
        }
        linked = self._relaying.module_that_named(uri, caller)
        is_of_another = len(same) == 1 and linked not in same and scheme not in _COMMON_SCHEMES
        if linked in names and not is_of_another:
            return modules[linked]
        return modules[same.pop()] if len(same) == 1 else self._only_one(names)

    def _claims(self, name: str, uri: str, caller: str) -> bool | None:
        """Return whether a server lists a resource or has a template for it, or None if the
        server's lists have not been read.
        """
        resources = self._last.get(self._place(name, "resources", caller))
        templates = self._last.get(self._place(name, "templates", caller))
        if resources is None or templates is None:
            return None
        if any(entry["uri"] == uri for entry in self._views.entries(name, resources)):
            return True
        return any(
            matches_template(str(entry["uriTemplate"]), uri)
            for entry in self._views.entries(name, templates)
        )

    def _only_one(self, names: list[str]) -> Module | None:
        """Return the only one of these servers that has resources.

        Return None if several of them have resources, or might have because one of them is not
        connected.
        """
        modules = [self._bridge.modules[name] for name in names]
        candidates = [module for module in modules if module.has_resources]
        known_states = ("idle", "up", "disabled")
        if len(candidates) == 1 and all(module.state in known_states for module in modules):
            return candidates[0]
        return None

    async def prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> Wire | types.GetPromptResult:
        """Return the context of an idea, or a server's prompt.

        Raises:
            MCPError: no prompt has this name, or its server refuses it.
        """
        caller = caller_of(context)
        if not self._names or self._is_idea(params.name, caller):
            return await self._idea_prompts.get(context, params)

        owner_and_entry = (await self._prompts(caller)).get(params.name)
        if owner_and_entry is None:
            return await self._idea_prompts.get(context, params)

        module, entry = owner_and_entry
        module_params = params.model_copy(update={"name": str(entry["name"])})
        return await self._passed_on(context, module, types.GetPromptRequest(params=module_params))

    async def complete(
        self, context: Context, params: types.CompleteRequestParams
    ) -> Wire | types.CompleteResult:
        """Complete the names and versions of ideas. Completions for a server's prompt or template
        come from the server.

        Raises:
            MCPError: the server refuses to complete the argument.
        """
        reference = params.ref
        if not self._names:
            return await self._ideas.complete(context, params)

        if isinstance(reference, types.PromptReference):
            owner_and_entry = (await self._prompts(caller_of(context))).get(reference.name)
            if owner_and_entry is None:
                return await self._ideas.complete(context, params)
            module, entry = owner_and_entry
            reference = reference.model_copy(update={"name": str(entry["name"])})
        else:
            templates = await self._all("templates", caller_of(context))
            owners = [name for name, entry in templates if entry["uriTemplate"] == reference.uri]
            if not owners:
                return await self._ideas.complete(context, params)
            module = owners[0]

        module_params = params.model_copy(update={"ref": reference})
        return await self._passed_on(context, module, types.CompleteRequest(params=module_params))

    async def _passed_on(self, context: Context, module: str, request: PassedOn) -> Wire:
        last = responses = None
        if not isinstance(request, types.CompleteRequest):
            responses = request.params.input_responses
            state = request.params.request_state
            last = None if state is None else read_state(state)

        wants_progress = context.meta is not None and "progress_token" in context.meta
        progress = context.session.report_progress if wants_progress else None
        try:
            result = await self._relaying.answered(
                context,
                last,
                responses,
                module,
                lambda connected, client: connected.pass_on(request, client, progress=progress),
            )
        except InputRequired as asking:
            return asking.result
        except IdeabridgeError as error:
            raise MCPError(types.INTERNAL_ERROR, self._bridge.secrets.mask(str(error))) from None

        if isinstance(request, types.ReadResourceRequest):
            result = self._views.read(module, result)
        else:
            result = self._views.result(module, result)

        self._relaying.note_named(module, result, caller_of(context))
        size = len(encode(result))
        if size > MAX_DIRECT:
            problem = (
                f"{request.method}: the result has {size:,} bytes; the limit of one answer is "
                f"{MAX_DIRECT:,}"
            )
            raise MCPError(types.INTERNAL_ERROR, problem)

        return {"resultType": "complete", **cast("Wire", result)}


def matches_template(template: str, uri: str) -> bool:
    """Return whether a URI can come from a template (RFC 6570), because the literal parts of the
    template occur in it in the same order.
    """
    first, *others = _PART.split(template)
    if not others:
        return uri == template

    *between, last = others
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False

    place = len(first)
    end = len(uri) - len(last)
    for literal in between:
        place = uri.find(literal, place, end)
        if place < 0:
            return False
        place += len(literal)

    return True
