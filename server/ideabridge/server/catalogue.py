"""The catalogue of this server's tools, by name and in pages: own tools, exposed tools, published ideas."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from typing import Any, Final

import anyio

from ideabridge.bridge.runs.offer import SETTLE_SECONDS
from ideabridge.bridge.store.errors import PASSING, StoreError, UnknownPublicationError
from ideabridge.bridge.store.idea import Publication
from ideabridge.server.exposed import DirectCalls, LocalTool, ModuleTool, ServedTool, exposed_names
from ideabridge.server.own_tools import OWN_NAMES, OWN_TOOLS
from ideabridge.server.published import PublishedTool
from ideabridge.server.running import Running
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import encode
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Tool, ToolKey

logger: Final = logging.getLogger(__name__)

PAGE: Final = 100
"""Tools in a page of `tools/list`."""

PAGE_BYTES: Final = 512 * 1024
"""Bytes of a page of `tools/list`, unless its first tool is larger: clients refuse events over 1 MB, and some close
the connection."""

LIST_SECONDS: Final = 8.0
"""Seconds that lists after the start, and each search, wait for modules whose tools are not known yet. Hosts allow ten
seconds for the start and the first list.
"""

_CACHED: Final = 2000
_NAMED: Final = 5000

_COUNTED: Final = 32
"""Calls of published ideas that are counted in memory before they are stored; a crash loses them."""


class CursorSyntaxError(IdeabridgeError):
    """The cursor does not come from a page of this list."""


class ToolCatalogue:
    """Own tools, then exposed tools, then published ideas.

    Args:
        running: runs the plans of published ideas, and direct calls that wait for approval.
        record: records the direct calls of exposed tools.
    """

    def __init__(self, running: Running, record: DirectCalls) -> None:
        self.bridge = bridge = running.bridge
        self._running = running
        self._record = record
        expose: frozenset[str] = frozenset(bridge.configuration.expose)
        self._expose_modules = "modules" in expose
        self._expose_tools = "tools" in expose
        # What every plan may use is no tool of the user's.
        self._built_in = list(builtin_toolbox())
        self._seen: list[Tool] | None = None
        self._version = -1
        self._exposed: dict[str, ServedTool] = {}
        self._patience = anyio.current_time() + LIST_SECONDS
        self._scope = str(bridge.configuration.folder.absolute())
        self._given: dict[str, ToolKey] = self._names_given()
        self._untold: dict[str, ToolKey] = {}
        self._by_tool: dict[ToolKey, ServedTool] = {}
        self._fixed: list[dict[str, Any]] = list(OWN_TOOLS)
        self._published: OrderedDict[str, PublishedTool] = OrderedDict()
        self._most: int = bridge.configuration.listed_ideas
        self._uses: Counter[str] = Counter()
        self._own_schemas = {str(tool["name"]): tool["inputSchema"] for tool in OWN_TOOLS}
        self.refresh()

    @property
    def exposed_names(self) -> frozenset[str]:
        """The names of exposed tools."""
        return frozenset(self._exposed)

    def exposed_definitions(self) -> list[dict[str, Any]]:
        """The exposed tools in their wire form."""
        return self._fixed[len(OWN_TOOLS) :]

    def told_hints(self) -> dict[str, Any]:
        """The current annotations of the published ideas that clients have seen, by name."""
        return {name: one.definition.get("annotations") for name, one in self._published.items()}

    def refresh(self) -> None:
        """Update the exposed tools after changes at modules or of published names."""
        version = self.bridge.store.publications.catalogue_version()
        tools = self.bridge.known_tools() if self._expose_modules or self._expose_tools else []
        if version != self._version:
            self._published.clear()
        elif self._seen is tools or not (tools or self._exposed):
            return
        self._version, self._seen = version, tools
        self._expose(tools)

    def _expose(self, tools: list[Tool]) -> None:
        wanted = [tool for tool in tools if self._is_exposed(tool)]
        given = {whose: name for name, whose in self._given.items()}
        named = dict(zip(exposed_names(wanted, self._is_taken, given), wanted, strict=True))
        exposed: dict[str, ServedTool] = {}
        for name, tool in named.items():
            kept = self._kept(name, tool)
            if kept is not None:
                exposed[name] = kept
            elif tool.module is not None:
                exposed[name] = ModuleTool(name, tool, self._running, self._record)
            elif (activity := self.bridge.toolbox.activity_for(tool)) is not None:
                exposed[name] = LocalTool(name, tool, activity.run, self._running, self._record)
        self._exposed = exposed
        self._by_tool = {named[name].origin: one for name, one in exposed.items()}
        self._untold = {name: named[name].origin for name in exposed if name not in self._given}
        self._fixed = [*OWN_TOOLS, *(one.definition for one in exposed.values())]

    def _names_given(self) -> dict[str, ToolKey]:
        """The stored names of exposed tools; names of modules and tools that are no longer configured are released."""
        if not (self._expose_modules or self._expose_tools):
            return {}
        memory, bridge = self.bridge.store.tool_memory, self.bridge
        given: dict[str, ToolKey] = {}
        free: list[str] = []
        for name, (module, tool) in memory.exposed_names(self._scope).items():
            if module in bridge.configuration.modules if module else tool in bridge.toolbox:
                given[name] = (module or None, tool)
            else:
                free.append(name)
        if free:
            memory.free_exposed_names(self._scope, free)
        return given

    def _give(self, names: dict[str, ToolKey]) -> None:
        """Store names that a host has seen or used: each refers to its tool from now on, in all processes of this
        configuration.
        """
        while names:
            self._given.update(names)
            try:
                kept = self.bridge.store.tool_memory.keep_exposed_names(
                    self._scope, {name: (module or "", tool) for name, (module, tool) in names.items()}
                )
            except StoreError as error:
                # The store is busy or full. The names apply to this process, and the next one stores them.
                logger.warning("keeping the names of exposed tools: %s", error)
                kept = {}
            others = {name: (module or None, tool) for name, (module, tool) in kept.items()}
            lost = any(others.get(name, whose) != whose for name, whose in names.items())
            self._given.update(others)
            self._untold = {name: whose for name, whose in self._untold.items() if name not in self._given}
            if not lost:
                return
            # Another process has given the name to another tool: the tool gets a new name here.
            self._expose(self._seen or [])
            names = self._untold

    def _is_exposed(self, tool: Tool) -> bool:
        if tool.module is not None:
            return self._expose_modules and tool.module not in self.bridge.configuration.unexposed
        return self._expose_tools and tool not in self._built_in and self.bridge.toolbox.activity_for(tool) is not None

    def _kept(self, name: str, tool: Tool) -> ServedTool | None:
        """The existing `ServedTool` of the same tool, if there is one."""
        before = self._exposed.get(name)
        return before if isinstance(before, LocalTool | ModuleTool) and before.tool is tool else None

    def _is_taken(self, name: str, tool: Tool) -> bool:
        """Whether something else has or had the name, which a host may still use for it. A tool keeps its own name."""
        given = self._given.get(name)
        if given is not None:
            return given != tool.origin
        return name in OWN_NAMES or self._is_published(name)

    def _is_published(self, name: str) -> bool:
        try:
            return self.bridge.store.publications.get(name).live
        except UnknownPublicationError:
            return False

    # -- looking up --------------------------------------------------------------------------------------------

    async def await_modules(self) -> None:
        """If modules are exposed, wait until the tools of all are known, at most `LIST_SECONDS` after the start."""
        if self._expose_modules:
            await self.bridge.modules.known(max(0.0, self._patience - anyio.current_time()))

    async def found(self, name: str, caller: str) -> ServedTool:
        """As `find`, but waits for modules that may have the tool."""
        try:
            return self.find(name, caller)
        except UnknownToolError:
            if not self._expose_modules:
                raise
            await self.bridge.modules.known(SETTLE_SECONDS)
            return self.find(name, caller)

    def find(self, name: str, caller: str) -> ServedTool:
        """An exposed tool, or a published idea by NAME or NAME@VERSION. The server itself looks up its own tools.

        Raises:
            UnknownToolError: the caller sees no such tool; the message names similar ones.
        """
        if name in self._untold:
            self._give({name: self._untold[name]})
        found = self._exposed.get(name)
        if found is not None:
            return found
        published = self._publication(name)
        if published is not None and self.bridge.store.publications.sees(published.publication, caller):
            self._uses[published.publication.name] += 1
            if self._uses.total() >= _COUNTED:
                self._note_uses()
            return published
        if self._expose_modules or self._expose_tools:
            self.refresh()
            found = self._exposed.get(name)
            if found is None and name in self._given:
                # A host may use an earlier name without listing the tools again.
                found = self._by_tool.get(self._given[name])
            if found is not None:
                return found
        raise UnknownToolError(
            f"unknown tool {name[:100]!r}.{did_you_mean(name, self._names(caller))}{self._where(name)}"
        )

    def _where(self, name: str) -> str:
        """How to call a tool that is not exposed."""
        if any(name in (tool.name, tool.remote_name) for tool in self.bridge.known_tools()):
            return f' It is a tool for plans: run_plan {{"calls": [{{"_tool": "{name}", ...}}]}}.'
        return f" search_tools finds the tools of all servers; run_plan calls them.{self.bridge.offer.away()}"

    def _names(self, caller: str) -> list[str]:
        page = self.bridge.store.publications.page(_NAMED // 10, caller=caller)
        return [*OWN_NAMES, *self._exposed, *(one.name for one in page.items)]

    def _publication(self, name: str) -> PublishedTool | None:
        version = self.bridge.store.publications.catalogue_version()
        if version != self._version:
            self.refresh()
        found = self._published.get(name)
        if found is not None:
            self._published.move_to_end(name)
            return found
        try:
            publication = self.bridge.store.publications.named(name)
        except UnknownPublicationError:
            return None
        if not self._is_served(publication) or not (publication.live or "@" in name):
            return None
        found = self._published[name] = PublishedTool(name, publication, self._running)
        if len(self._published) > _CACHED:
            self._published.popitem(last=False)
        return found

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """The input schema of a tool."""
        own = self._own_schemas.get(name)
        if own is not None:
            return own
        found: ServedTool | None = self._exposed.get(name) or self._publication(name)
        return found.definition["inputSchema"] if found is not None else None

    # -- listing -----------------------------------------------------------------------------------------------

    def page(self, cursor: str | None, caller: str) -> tuple[list[dict[str, Any]], str | None]:
        """One page of definitions, and the cursor of the next; None: this is the last.

        Raises:
            CursorSyntaxError: the cursor does not come from this list.
        """
        self.refresh()
        self._give(self._untold)
        kind, _, place = (cursor or "fixed:0").partition(":")
        tools: list[dict[str, Any]] = []
        after: str | None = None
        if kind == "fixed" and place.isascii() and place.isdigit() and int(place) <= len(self._fixed):
            start = int(place)
            tools = _fitting(self._fixed[start : start + PAGE], PAGE_BYTES)
            end = start + len(tools)
            if end < len(self._fixed):
                return tools, f"fixed:{end}"
            if len(tools) == PAGE:
                return tools, "ideas:" if self.bridge.store.publications.count(caller=caller) else None
        elif kind == "ideas":
            after = place or None
        elif kind == "used" and place.isascii() and place.isdigit():
            return self._most_used(caller, int(place), PAGE, PAGE_BYTES)
        else:
            raise CursorSyntaxError(
                f"not a cursor of this list: {str(cursor)[:60]!r}; hand back next_cursor as it came"
            )
        count, room = PAGE - len(tools), PAGE_BYTES - sum(len(encode(tool)) for tool in tools)
        if after is None and self.bridge.store.publications.count(caller=caller) > self._most:
            used, following = self._most_used(caller, 0, count, room)
            return [*tools, *used], following
        page = self.bridge.store.publications.page(count, after, caller=caller)
        found = [self._definition(one) for one in page.items]
        fit = len(_fitting(found, room, at_least=0 if tools else 1))
        if found and not fit:
            return tools, "ideas:"
        if fit < len(found):
            page = self.bridge.store.publications.page(fit, after, caller=caller)
        shown = [definition for definition, one in zip(found[:fit], page.items, strict=True) if self._is_served(one)]
        tools = [*tools, *shown]
        return tools, f"ideas:{page.next}" if page.next is not None else None

    def _most_used(self, caller: str, start: int, count: int, room: int) -> tuple[list[dict[str, Any]], str | None]:
        """A part of the most used published ideas, which are listed if there are too many."""
        self._note_uses()
        told = self.bridge.store.publications.most_used(self._most, caller=caller)
        found = _fitting([self._definition(one) for one in told[start : start + count]], room)
        end = start + len(found)
        tools = [definition for definition, one in zip(found, told[start:end], strict=True) if self._is_served(one)]
        return tools, f"used:{end}" if end < len(told) else None

    def _is_served(self, publication: Publication) -> bool:
        """Whether no own tool and no module's tool has the name of a published idea."""
        return publication.name not in OWN_NAMES and publication.name not in self._given

    def _note_uses(self) -> None:
        if self._uses:
            counts, self._uses = self._uses, Counter()
            try:
                self.bridge.store.publications.note_uses(counts)
            except PASSING:
                # They are stored next time.
                self._uses = counts

    def _definition(self, publication: Publication) -> dict[str, Any]:
        known = self._published.get(publication.name)
        if known is None or known.publication.version != publication.version:
            known = PublishedTool(publication.name, publication, self._running)
            if len(self._published) < _CACHED:
                self._published[publication.name] = known
        return known.definition


def _fitting(tools: list[dict[str, Any]], room: int, *, at_least: int = 1) -> list[dict[str, Any]]:
    """The first tools that have at most `room` bytes together."""
    for count, tool in enumerate(tools):
        room -= len(encode(tool))
        if room < 0:
            return tools[: max(count, at_least)]
    return tools
