"""List this server's tools by name and in pages: own tools, exposed tools, and published ideas."""

from __future__ import annotations

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import anyio

from ideabridge.bridge.offer.offer import SETTLE_SECONDS
from ideabridge.bridge.store.errors import (
    PASSING,
    NotInProfileError,
    StoreError,
    UnknownPublicationError,
)
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.finding import LIST_SECONDS
from ideabridge.server.own_tools import OWN_NAMES, own_tools
from ideabridge.server.running import Running
from ideabridge.server.served_tools import ExposedTool, PublishedTool, ServedTool
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import encode
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.names import did_you_mean, safe_name
from ideabridge.tools.tool import Tool, ToolKey

logger: Final = logging.getLogger(__name__)

PAGE_BYTES: Final = 512 * 1024
"""Limit on a page of `tools/list`, in bytes, unless its first tool alone is larger. A page can have
any number of tools, because several clients read only the first page. Clients reject events larger
than 1 MB, and some then close the connection.
"""

_READ_AT_ONCE: Final = 100
"""How many published ideas are read from the store at a time."""

_MOST_CACHED: Final = 2000
_SUGGESTED: Final = 500
"""Maximum number of published ideas that are compared with an unknown name to find similar ones."""

_PASSED_OVER: Final = 1000
"""Maximum number of ideas skipped because they cannot be called in the search for the most used
ones.
"""

_PART_FOR_NEW: Final = 4
"""The newest published ideas get one in this many entries of the list, even if nobody has called
them.
"""

_COUNTED: Final = 32
"""Number of calls to published ideas that are counted in memory before the counts are stored. A
crash loses the counts in memory.
"""

# -- names of exposed tools ------------------------------------------------------------------------

MAX_EXPOSED: Final = 60 - len("mcp__ideabridge__")
"""Maximum length of a name, in characters. Hosts add a prefix, and allow 60 characters in total."""

_MARK: Final = 6
"""Length, in characters, of the hash that distinguishes two tools with the same shortened name."""


def exposed_names(
    tools: Iterable[Tool],
    is_taken: Callable[[str, Tool], bool],
    earlier: Mapping[ToolKey, str] | None = None,
) -> list[str]:
    """Return a name for each tool, in the order of the tools. A name has at most `MAX_EXPOSED`
    characters out of `a-z`, `0-9` and `_`.

    A tool that already had a name keeps it. Any other tool gets the first of these names that is
    free: its own name; its own name prefixed with its server's name; its own name followed by a
    hash of both. If tools of two servers would get the same name, both get the next form, so that
    no name depends on which server connected first. In-process tools come before the tools of
    servers. `is_taken` returns whether a tool cannot get a name because the name already belongs to
    something else.
    """
    tools = list(tools)
    earlier = earlier or {}
    names: dict[int, str] = {}
    for place, tool in enumerate(tools):
        name = earlier.get(tool.origin)
        if name is not None and not is_taken(name, tool):
            names[place] = name

    # Name in-process tools first, so that they take precedence over the tools of servers.
    in_process = [place for place, tool in enumerate(tools) if tool.module is None]
    of_modules = [place for place, tool in enumerate(tools) if tool.module is not None]
    used_names = set(names.values())
    for form in (_own, _with_module, _with_hash):
        for places in (in_process, of_modules):
            unnamed = {place: tools[place] for place in places if place not in names}
            names.update(_free_names(unnamed, form, used_names, is_taken))
            used_names.update(names.values())

    for place, tool in enumerate(tools):
        if place not in names:
            names[place] = _numbered(tool, used_names, is_taken)
            used_names.add(names[place])

    return [names[place] for place in range(len(tools))]


def _free_names(
    tools: Mapping[int, Tool],
    form: Callable[[Tool], str | None],
    used_names: Collection[str],
    is_taken: Callable[[str, Tool], bool],
) -> dict[int, str]:
    """Return the free names of one form, keyed by the place of the tool. A name that several of
    these tools would get is not free.
    """
    candidates: dict[int, str] = {}
    for place, tool in tools.items():
        name = form(tool)
        if name is not None:
            candidates[place] = name

    count = Counter(candidates.values())
    free: dict[int, str] = {}
    for place, name in candidates.items():
        if count[name] > 1 or name in used_names:
            continue
        if not is_taken(name, tools[place]):
            free[place] = name

    return free


def _own(tool: Tool) -> str | None:
    name = safe_name(tool.name)
    # `safe_name` returns "tool" for a name in which no character is allowed.
    is_lost = name == "tool" and "tool" not in tool.name.lower()
    if is_lost or len(name) > MAX_EXPOSED:
        return None
    return name


def _with_module(tool: Tool) -> str | None:
    if tool.module is None:
        return None

    name = f"{safe_name(tool.module)}_{safe_name(tool.name)}"
    if len(name) > MAX_EXPOSED:
        return None
    return name


def _with_hash(tool: Tool) -> str:
    origin = f"{tool.module or ''}\n{tool.name_in_module}"
    mark = sha256(origin.encode(errors="replace")).hexdigest()[:_MARK]
    return f"{_cut(tool, _MARK)}_{mark}"


def _cut(tool: Tool, tail: int) -> str:
    """Shorten a tool's name to leave room for an underscore and `tail` characters."""
    longest = MAX_EXPOSED - tail - 1
    return safe_name(tool.name)[:longest].rstrip("_")


def _numbered(tool: Tool, used_names: set[str], is_taken: Callable[[str, Tool], bool]) -> str:
    """Append a number to a tool's name. This is needed if two tools of one server have the same
    name, or if the name with the hash is also taken.
    """
    number = 2
    while True:
        name = f"{_cut(tool, len(str(number)))}_{number}"
        if name not in used_names and not is_taken(name, tool):
            return name
        number += 1


# -- the catalogue ---------------------------------------------------------------------------------


class CursorSyntaxError(IdeabridgeError):
    """Raised when a cursor does not come from a page of this list."""


class ToolCatalogue:
    """The list of tools that clients see: own tools, then published ideas, then exposed tools."""

    def __init__(self, running: Running, record: DirectCalls) -> None:
        self.bridge = bridge = running.bridge
        self._running = running
        self._record = record
        self._expose_modules = False
        self._expose_tools = False
        # Every plan can use the built-in tools, so they are not the user's own.
        self._built_in = list(builtin_toolbox())
        self._tools_seen: list[Tool] | None = None
        self._version = -1
        self._patience = anyio.current_time() + LIST_SECONDS
        self._scope = str(bridge.configuration.folder.absolute())
        # The names that a host has seen or used. They are also in the store.
        self._kept_names: dict[str, ToolKey] = {}
        self._exposed: dict[str, ExposedTool] = {}
        # The names of exposed tools that no host has seen so far.
        self._new_names: dict[str, ToolKey] = {}
        self._by_tool: dict[ToolKey, ExposedTool] = {}
        self._own: list[dict[str, Any]] = []
        self._visible: list[ExposedTool] = []
        self._published: OrderedDict[str, PublishedTool] = OrderedDict()
        self._most = 0
        self._uses: Counter[str] = Counter()
        self.follow()

    def follow(self) -> None:
        """Switch to the bridge's current configuration."""
        settings = self.bridge.configuration
        self._expose_modules = "modules" in settings.expose
        self._expose_tools = "tools" in settings.expose
        every = settings.own_tools == "all"
        self._own = list(own_tools(programs=settings.programs, every=every))
        self._most = settings.listed_ideas
        self._kept_names |= self._read_names()
        self._tools_seen = None
        self._version = -1
        self.refresh()

    def module_of(self, name: str) -> str | None:
        """Return the server of the exposed tool named `name`, or None if the tool does not belong
        to a server.
        """
        exposed = self._exposed.get(name)
        if exposed is None:
            return None
        return exposed.tool.module

    def is_exposed(self, name: str) -> bool:
        """Return whether there is an exposed tool with this name."""
        return name in self._exposed

    def exposed_definitions(self) -> list[dict[str, Any]]:
        """Return the exposed tools in wire form, with the schemas as sent by their servers."""
        return [tool.as_sent for tool in self._visible]

    def listed_hints(self) -> dict[str, Any]:
        """Return the current annotations of the published ideas that clients have seen, keyed by
        name.
        """
        return {name: tool.definition.get("annotations") for name, tool in self._published.items()}

    def refresh(self) -> None:
        """Update the exposed tools after the servers or the published names have changed."""
        version = self.bridge.store.publications.catalogue_version()
        if self._expose_modules or self._expose_tools:
            tools = self.bridge.offer.known
        else:
            tools = []

        if version != self._version:
            self._published.clear()
        elif self._tools_seen is tools or not (tools or self._exposed):
            return

        self._version = version
        self._tools_seen = tools
        self._expose(tools)

    def _expose(self, tools: list[Tool]) -> None:
        exposed = [tool for tool in tools if self._is_exposed(tool)]
        earlier = self._earlier_names(exposed)
        before = self._exposed
        self._exposed = {}
        names = exposed_names(exposed, self._is_taken, earlier)
        for name, tool in zip(names, exposed, strict=True):
            same = before.get(name)
            if same is not None and same.listed is tool:
                # Its definition is already computed.
                self._exposed[name] = same
                continue

            run = None
            if tool.module is None:
                activity = self.bridge.toolbox.activity_for(tool)
                if activity is None:
                    continue
                run = activity.run

            self._exposed[name] = ExposedTool(name, tool, run, self._running, self._record)

        self._by_tool = {}
        self._new_names = {}
        for name, entry in self._exposed.items():
            self._by_tool[entry.tool.origin] = entry
            if name not in self._kept_names:
                self._new_names[name] = entry.tool.origin

        self._visible = [tool for tool in self._exposed.values() if not tool.is_hidden]

    def _earlier_names(self, tools: list[Tool]) -> dict[ToolKey, str]:
        """Return the names that hosts have already seen for these tools, keyed by `Tool.origin`.

        A tool that the configuration renames gets its new name, and clients can continue to use its
        earlier name.
        """
        names: dict[ToolKey, list[str]] = {}
        for name, origin in self._kept_names.items():
            names.setdefault(origin, []).append(name)

        earlier: dict[ToolKey, str] = {}
        for tool in tools:
            earlier_names = names.get(tool.origin, [])
            own = safe_name(tool.name)
            _, name_in_module = tool.origin
            is_renamed = tool.is_changed and tool.name not in (tool.real.name, name_in_module)
            if own in earlier_names:
                earlier[tool.origin] = own
            elif earlier_names and not is_renamed:
                earlier[tool.origin] = earlier_names[-1]

        return earlier

    def _read_names(self) -> dict[str, ToolKey]:
        """Read the stored names of exposed tools. Names of servers and tools that are no longer
        configured are released.
        """
        if not (self._expose_modules or self._expose_tools):
            return {}

        memory = self.bridge.store.tool_memory
        bridge = self.bridge
        names: dict[str, ToolKey] = {}
        free: list[str] = []
        for name, (module, tool) in memory.exposed_names(self._scope).items():
            if module:
                is_configured = module in bridge.configuration.modules
            else:
                is_configured = tool in bridge.toolbox

            if is_configured:
                names[name] = (module or None, tool)
            else:
                free.append(name)

        if free:
            memory.free_exposed_names(self._scope, free)

        return names

    def _keep_names(self, names: dict[str, ToolKey]) -> None:
        """Store names that a host has seen or used.

        From now on, each name refers to its tool in every process with this configuration.
        """
        while names:
            self._kept_names.update(names)
            owners = self._stored_names(names)
            is_any_lost = any(owners.get(name, origin) != origin for name, origin in names.items())
            self._kept_names.update(owners)
            self._new_names = {
                name: origin
                for name, origin in self._new_names.items()
                if name not in self._kept_names
            }
            if not is_any_lost:
                return

            # Another process has given the name to a different tool, so give this tool a new one
            # here.
            self._expose(self._tools_seen or [])
            names = self._new_names

    def _stored_names(self, names: dict[str, ToolKey]) -> dict[str, ToolKey]:
        """Store names. Return all stored names, each with the tool that it now belongs to."""
        rows: dict[str, tuple[str, str]] = {}
        for name, (module, tool) in names.items():
            rows[name] = (module or "", tool)

        try:
            stored_rows = self.bridge.store.tool_memory.keep_exposed_names(self._scope, rows)
        except StoreError as error:
            # The store is busy or full. The names apply in this process for now, and a later
            # process will store them.
            logger.warning("storing the names of exposed tools failed: %s", error)
            return {}

        stored: dict[str, ToolKey] = {}
        for name, (module, tool) in stored_rows.items():
            stored[name] = (module or None, tool)

        return stored

    def _is_exposed(self, tool: Tool) -> bool:
        if tool.passes_to is not None and not tool.is_changed:
            # This tool passes its calls on to another one, which is exposed instead.
            return False
        if tool.module is not None:
            return self._expose_modules and tool.module not in self.bridge.configuration.unexposed
        if not self._expose_tools or tool in self._built_in:
            return False
        return self.bridge.toolbox.activity_for(tool) is not None

    def _is_taken(self, name: str, tool: Tool) -> bool:
        """Return whether a name is unavailable because it belongs, or used to belong, to something
        other than `tool`.

        A host might still use the name with its earlier meaning.
        """
        origin = self._kept_names.get(name)
        if origin is not None:
            return origin != tool.origin
        if name in OWN_NAMES:
            return True

        return self.bridge.store.publications.find(name, None, SEES_ALL) is not None

    # -- looking up --------------------------------------------------------------------------------

    async def await_modules(self) -> None:
        """If servers are exposed, wait until the tools of all exposed servers are known.

        The wait ends at the latest `LIST_SECONDS` after the start, or at the first call.
        """
        if self._expose_modules:
            await self.bridge.modules.known(max(0.0, self._patience - anyio.current_time()))

    def stop_waiting(self) -> None:
        """Stop waiting for servers, so that lists are returned immediately from now on.

        A client that has called a tool works with the tools that are known; SDKs list the tools
        after a call in order to check its result.
        """
        self._patience = -math.inf

    async def find(self, name: str, caller: str) -> ServedTool:
        """Return an exposed tool, or a published idea given as NAME or NAME@VERSION.

        This method waits for servers that might have the tool. Own tools are not found here,
        because `Server` looks them up itself.

        Raises:
            UnknownToolError: the caller has no such tool. The message names similar ones.
        """
        offer = self.bridge.offer.to(caller)
        tool = self._find(name, caller)
        if tool is None and self._expose_modules and self._may_come(name):
            await self._await_tool(name, caller)
            tool = self._find(name, caller)

        if isinstance(tool, ExposedTool) and not offer.has_tool(tool.tool):
            refusal = offer.missing.hides(tool.tool.origin)
            raise UnknownToolError(f"{name}: {refusal}")

        if tool is not None:
            return tool

        self._expect_in_profile(name, caller)
        if self._expose_modules:
            refusal = offer.missing.why_refused(name)
            if refusal is not None:
                raise UnknownToolError(refusal)

        similar = did_you_mean(name, self._names(caller))
        advice = self._how_to_call(name, caller)
        raise UnknownToolError(f"unknown tool {name[:100]!r}.{similar}{advice}")

    def _expect_in_profile(self, name: str, caller: str) -> None:
        """Raise `UnknownToolError` if a published idea named `name` exists but is not in the
        caller's profile.
        """
        try:
            self.bridge.store.publications.named(name, caller=caller)
        except NotInProfileError as error:
            raise UnknownToolError(str(error)) from None
        except UnknownPublicationError:
            pass

    def _may_come(self, name: str) -> bool:
        """Return whether a server that is not connected yet might have the tool.

        If a connected server lists the tool but it cannot be called, no other server is expected to
        have it, unless some server used to have a tool with that name.
        """
        return name in self._kept_names or self.bridge.offer.missing.why_refused(name) is None

    async def _await_tool(self, name: str, caller: str) -> None:
        """Wait for the server that had the tool before.

        If no server had it, wait until a server lists it or the tools of all servers are known.
        """
        modules = self.bridge.modules
        owner, _ = self._kept_names.get(name, (None, ""))
        if owner is not None and owner in modules:
            await modules.known(SETTLE_SECONDS, owner)
        else:
            await modules.until(
                lambda: self._find(name, caller) is not None, SETTLE_SECONDS, recalled=True
            )

    def _find(self, name: str, caller: str) -> ServedTool | None:
        if name in self._new_names:
            self._keep_names({name: self._new_names[name]})

        if name in self._exposed:
            return self._exposed[name]

        published = self._publication(name)
        publications = self.bridge.store.publications
        if published is not None and publications.sees(published.publication, caller):
            self._uses[published.publication.name] += 1
            if self._uses.total() >= _COUNTED:
                self._note_uses()
            return published

        if not (self._expose_modules or self._expose_tools):
            return None

        self.refresh()
        if name in self._exposed:
            return self._exposed[name]
        if name in self._kept_names:
            # A host may still use a name from an earlier list of tools.
            return self._by_tool.get(self._kept_names[name])

        # A server's view calls that server's tools by their own names.
        module = self._running.module_views.module
        if module is None:
            return None
        return self._by_tool.get((module, name))

    def _how_to_call(self, name: str, caller: str) -> str:
        """Explain how to call a tool that is not exposed."""
        offer = self.bridge.offer.to(caller)
        if any(name in (tool.name, tool.remote_name) for tool in offer.known):
            return f' It is a tool for plans: run_plan {{"calls": [{{"_tool": "{name}", ...}}]}}.'

        # The name might be the one under which a tool of these servers would be exposed.
        owners = [owner for owner in self.bridge.modules.names if name.startswith(f"{owner}_")]
        missing = offer.missing.sentences(owners)
        return f" search_tools finds the tools of all servers; run_plan calls them.{missing}"

    def _names(self, caller: str) -> list[str]:
        """Return the names that a caller can use: those of own tools, exposed tools and some
        ideas.
        """
        names = list(OWN_NAMES)
        offer = self.bridge.offer.to(caller)
        for name, entry in self._exposed.items():
            if offer.has_tool(entry.tool):
                names.append(name)

        page = self.bridge.store.publications.page(_SUGGESTED, caller=caller)
        names.extend(publication.name for publication in page.items)
        return names

    def _publication(self, name: str) -> PublishedTool | None:
        if self.bridge.store.publications.catalogue_version() != self._version:
            self.refresh()

        tool = self._published.get(name)
        if tool is not None:
            self._published.move_to_end(name)
            return tool

        publication = self.bridge.store.publications.look_up(name, caller=SEES_ALL)
        if publication is None:
            return None

        # Without a version, a name means the version that is in use.
        is_meant = publication.live or "@" in name
        if not is_meant or not self._is_served(publication):
            return None

        tool = PublishedTool(name, publication, self._running, self._record)
        self._published[name] = tool
        if len(self._published) > _MOST_CACHED:
            self._published.popitem(last=False)

        return tool

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """Return the input schema of a tool."""
        for own in self._own:
            if own["name"] == name:
                return own["inputSchema"]

        tool: ServedTool | None = self._exposed.get(name) or self._publication(name)
        if tool is None:
            return None
        return tool.definition["inputSchema"]

    # -- listing -----------------------------------------------------------------------------------

    def page(
        self, cursor: str | None, caller: str, *, as_sent: bool
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of definitions, and the cursor of the next page (None on the last page).

        Args:
            cursor: where the page begins, or None for the first page.
            caller: the caller whose ideas are listed.
            as_sent: whether to include the schemas of exposed tools as sent by their servers.

        Raises:
            CursorSyntaxError, CursorError: the cursor does not come from this list.
        """
        self.refresh()
        self._keep_names(self._new_names)
        offer = self.bridge.offer.to(caller)
        exposed: list[dict[str, Any]] = []
        for tool in self._visible:
            if offer.has_tool(tool.tool):
                exposed.append(tool.as_sent if as_sent else tool.definition)

        definitions: list[dict[str, Any]] = []
        bytes_left = PAGE_BYTES
        for place, definition in self._from(cursor or "own:0", caller, exposed):
            bytes_left -= len(encode(definition))
            if definitions and bytes_left < 0:
                return definitions, place
            definitions.append(definition)

        return definitions, None

    def _from(
        self, cursor: str, caller: str, exposed: list[dict[str, Any]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the definitions after a cursor, each with its own cursor.

        Own tools come first, then published ideas, then exposed tools, because several clients read
        only the first page. A cursor is `own:N` among own tools and `exposed:N` among exposed
        tools. Among published ideas, it is `ideas:NAME`, which continues after that name, or
        `used:N` if there are too many ideas to list them all.
        """
        kind, _, place = cursor.partition(":")
        number = 0
        if kind != "ideas":
            lengths = {"own": len(self._own), "exposed": len(exposed), "used": self._most}
            is_number = place.isascii() and place.isdigit()
            if not is_number or int(place) > lengths.get(kind, -1):
                raise CursorSyntaxError(
                    f"{cursor[:60]!r} is not a cursor for this list; "
                    "pass next_cursor back unchanged"
                )
            number = int(place)

        if kind == "own":
            for at in range(number, len(self._own)):
                yield f"own:{at}", self._own[at]
            kind = "ideas"
            place = ""

        first = 0
        if kind == "exposed":
            first = number
        else:
            yield from self._ideas_from(kind, place, caller)

        for at in range(first, len(exposed)):
            yield f"exposed:{at}", exposed[at]

    def _ideas_from(
        self, kind: str, place: str, caller: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the definitions of the published ideas after a cursor, each with its own cursor."""
        publications = self.bridge.store.publications
        if kind == "ideas" and not place and publications.count(caller=caller) > self._most:
            kind = "used"
            place = "0"

        if kind == "used":
            self._note_uses()
            most_used = self._most_used(caller)
            for at in range(int(place), len(most_used)):
                yield f"used:{at}", self._definition(most_used[at])
            return

        following: str | None = place
        while following is not None:
            # Read one more entry than fits on a page, because the next page begins with it.
            page = publications.page(_READ_AT_ONCE + 1, following or None, caller=caller)
            for publication in page.items:
                if self._is_listed(publication, caller):
                    yield f"ideas:{following}", self._definition(publication)
                # The cursor of the next idea is the name before it.
                following = publication.name

            following = page.next

    def lists_ideas(self, caller: str) -> bool:
        """Return whether a caller's list contains published ideas."""
        return next(self._ideas_from("ideas", "", caller), None) is not None

    def is_crowded_out(self, publication: Publication, caller: str) -> bool:
        """Return whether a published idea is missing from a caller's list only because the list is
        full.
        """
        fits = self.bridge.store.publications.count(caller=caller) <= self._most
        if fits or not self._is_listed(publication, caller):
            return False

        self._note_uses()
        listed_names = {listed.name for listed in self._most_used(caller)}
        return publication.name not in listed_names

    def _most_used(self, caller: str) -> list[Publication]:
        """Return the newest ideas to list and the most used of the others, sorted by name.

        Some places are reserved for new ideas, because nobody can have used them yet.
        """
        publications = self.bridge.store.publications
        newest = publications.newest(self._most // _PART_FOR_NEW, caller=caller)
        new = [publication for publication in newest if self._is_listed(publication, caller)]
        new_names = {publication.name for publication in new}
        listed = new
        # Usually, all of the most used ideas can be called. If some cannot, the second pass reads
        # more.
        for limit in (self._most, self._most + _PASSED_OVER):
            listed = list(new)
            for publication in publications.most_used(limit, caller=caller):
                if publication.name not in new_names and self._is_listed(publication, caller):
                    listed.append(publication)

            if len(listed) >= self._most:
                break

        return sorted(listed[: self._most], key=lambda publication: publication.name)

    def _is_listed(self, publication: Publication, caller: str) -> bool:
        """Return whether a published idea is in a caller's list of tools.

        Ideas that this server cannot call are not listed; `search_tools` finds them and says why.
        """
        if not self._is_served(publication):
            return False
        return self.bridge.why_not_here(publication, caller=caller) is None

    def _is_served(self, publication: Publication) -> bool:
        """Return whether a published idea can be called by its name, because no own tool and no
        server's tool has the same name.
        """
        return publication.name not in OWN_NAMES and publication.name not in self._kept_names

    def _note_uses(self) -> None:
        if not self._uses:
            return

        counts = self._uses
        self._uses = Counter()
        try:
            self.bridge.store.tool_memory.note_uses(counts)
        except PASSING:
            # Keep the counts, so that the next attempt stores them.
            self._uses = counts

    def _definition(self, publication: Publication) -> dict[str, Any]:
        tool = self._published.get(publication.name)
        if tool is None or tool.publication.version != publication.version:
            tool = PublishedTool(publication.name, publication, self._running, self._record)
            if len(self._published) < _MOST_CACHED:
                self._published[publication.name] = tool

        return tool.definition
