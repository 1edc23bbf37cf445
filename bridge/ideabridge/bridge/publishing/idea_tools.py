"""Offer published ideas as tools under `_module: "idea:NAME"`, with behaviour hints derived from
the current tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.assumption import evidence_sentence
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.offer.offer import SOLVE
from ideabridge.bridge.programs.steps import names_program
from ideabridge.bridge.runs.pins import read_pins
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.published import PlanOrGuide
from ideabridge.bridge.store.store import CAUTIOUS, Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import ANONYMOUS, EVERY_MODULE, IDEA, Annotations, Tool, is_idea


def idea_tool(store: Store, module: str, caller: str, catalogue: Catalogue) -> Tool | None:
    """Return the tool of a published idea, or None if nothing is published to this caller under
    that name.

    The tool refers to the current version. A run that has started keeps using that version even if
    a newer one is published.

    Args:
        store: contains the publications.
        module: `idea:NAME` or `idea:NAME@VERSION`.
        caller: the caller of the tool.
        catalogue: the tools of this process and of the servers.
    """
    publication = store.publications.look_up(module.removeprefix(IDEA), caller=caller)
    if publication is None:
        return None
    return Tool(
        publication.name,
        " ".join(filter(None, (publication.description, evidence_of(publication)))),
        publication.input_schema
        or {"type": "object", "properties": {}, "additionalProperties": False},
        publication.output_schema,
        Annotations.from_json(hints_now(store, publication, caller, catalogue)),
        module=module,
        remote_name=f"{publication.name}@{publication.version}",
        reaches=_reaches(store, publication, caller, catalogue),
    )


def evidence_of(publication: Publication) -> str:
    """Say, in one sentence, how many runs support an idea's plan and which points are open; see
    `evidence_sentence`.
    """
    plan = publication.present_plan_parts
    tools = [call.tool for call in written_calls(plan.calls)]
    return evidence_sentence(plan.explained, tools)


_DEEPEST: Final = 50
"""The maximum depth to which ideas that call ideas are followed. Settings never allow a run to go
deeper.
"""


def hints_now(
    store: Store, publication: Publication, caller: str, catalogue: Catalogue
) -> JSONObject:
    """Return the behaviour hints of a published idea under the current tools. The idea is read-only
    if all tools that it calls are.

    If one of these tools is missing from this process, the hints are the most cautious ones.

    Args:
        store: contains the publications.
        publication: the version.
        caller: the caller who could call the version.
        catalogue: the tools of this process and of all servers, including servers that are not up.
    """
    return _PresentHints(store, caller, catalogue).of(publication)


@dataclass(slots=True)
class _PresentHints:
    """Computes the hints of an idea and of the ideas that it calls.

    The hints of each idea are computed only once, because the number of paths through ideas that
    call each other can double with each idea.
    """

    store: Store
    caller: str
    catalogue: Catalogue
    _found: dict[str, Publication | None] = field(default_factory=dict[str, "Publication | None"])
    _hints: dict[tuple[str, int], JSONObject] = field(
        default_factory=dict[tuple[str, int], JSONObject]
    )

    def of(self, publication: Publication, depth: int = 0) -> JSONObject:
        """Return the hints of a version, called at the given depth."""
        key = (publication.name, publication.version)
        pinned = publication.plan_or_guide
        if publication.answer == "recorded" or pinned is None:
            return publication.annotations

        if key not in self._hints:
            if depth > _DEEPEST:
                return dict(CAUTIOUS)
            # If ideas call each other in a cycle, use the stored hints of a version whose current
            # hints are still being computed.
            self._hints[key] = publication.annotations
            self._hints[key] = self._compute(publication, pinned, depth)

        return self._hints[key]

    def _find(self, module: str) -> Publication | None:
        if module not in self._found:
            name = module.removeprefix(IDEA)
            self._found[module] = self.store.publications.look_up(name, caller=self.caller)
        return self._found[module]

    def _compute(self, publication: Publication, pinned: PlanOrGuide, depth: int) -> JSONObject:
        called = self._called(publication, pinned.defined, depth)
        if called is None:
            return dict(CAUTIOUS)

        hints = hints_of(called)
        if read_pins(pinned) is not None and not pinned.definitions:
            return hints
        # For tools that the idea defines itself, and for calls without pins, only the stored hints
        # are known.
        return _worse(hints, publication.annotations)

    def _called(
        self, publication: Publication, defined: frozenset[str], depth: int
    ) -> list[Tool] | None:
        """Return the tools that an idea can call, except latent ones, which only ask a mind. Return
        None if one of the tools is missing from this process.
        """
        keys = self._keys(publication)
        if keys is None:
            return None

        called: list[Tool] = []
        for module, name in keys:
            if is_idea(module):
                inner = self._find(module)
                if inner is None:
                    return None
                # A call that is answered in a room has the effects of the calls in that room.
                hints = Annotations.from_json(self.of(inner, depth + 1))
                called.append(Tool(name, annotations=hints, module=module))
                continue

            tool = self._tool(module, name)
            if tool is not None:
                if tool.key not in self.catalogue.latent:
                    called.append(tool)
            elif module is not None or name not in defined:
                return None

        return called

    def _keys(self, publication: Publication) -> list[tuple[str | None, str]] | None:
        """Return the (server, name) of each tool that an idea can call, or None if the tools are
        unknown.
        """
        # With a guide, a mind might continue after the plan, so include the tools of the guide.
        keys = publication.guide_parts.origins
        plan = publication.plan_parts
        for call in written_calls(plan.calls):
            if names_program(call, self.catalogue):
                # The plan pins the tools that its programs call, except for built-in tools, which
                # only read.
                pins = read_pins(plan)
                if pins is None:
                    return None
                keys.extend(pin.key for pin in pins)
                continue

            if not call.has_result:
                keys.append(call.key)

        return keys

    def _tool(self, module: str | None, name: str) -> Tool | None:
        if module != ANONYMOUS:
            return self.catalogue.get((module, name))
        return self.catalogue.get((None, name)) or SOLVE


def _worse(hints: JSONObject, stored: JSONObject) -> JSONObject:
    """Combine two sets of hints so that the result promises only what both promise.

    A missing hint promises nothing: the tool might change anything and reach anywhere.
    """
    return {
        "readOnlyHint": hints["readOnlyHint"] is True and stored.get("readOnlyHint") is True,
        "destructiveHint": hints["destructiveHint"] is True
        or stored.get("destructiveHint") is not False,
        "idempotentHint": hints["idempotentHint"] is True and stored.get("idempotentHint") is True,
        "openWorldHint": hints["openWorldHint"] is True or stored.get("openWorldHint") is not False,
    }


def hints_of(tools: Iterable[Tool]) -> JSONObject:
    """Return the behaviour hints of an idea that can call the given tools. The idea is read-only if
    all of them are.

    An idea without tools returns a stored value, or a value that a mind writes.
    """
    read_only = idempotent = True
    destructive = open_world = False
    for tool in tools:
        hints = tool.annotations
        read_only = read_only and hints.read_only is True
        idempotent = idempotent and hints.repeatable
        destructive = destructive or (
            hints.read_only is not True and hints.destructive is not False
        )
        # Without the hint, a tool of this process counts as closed, and a tool of a server counts
        # as open.
        is_open = hints.open_world
        if is_open is None:
            is_open = tool.module is not None
        open_world = open_world or is_open

    return {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }


def needed_modules(
    store: Store,
    calls: Iterable[JSON],
    caller: str,
    catalogue: Catalogue,
    defined: frozenset[str] = frozenset(),
) -> set[str | None]:
    """Return the servers that must list their tools before the effects of the given calls are
    known, including servers that published ideas call.

    The result contains None if the server of a tool is unknown.

    Args:
        store: contains the publications.
        calls: the calls in a plan.
        caller: the caller of the plan.
        catalogue: the tools of this process and of all servers, including servers that are not up.
        defined: the names of tools that the plan itself defines.
    """
    search = _NeededModules(store, caller, catalogue)
    for call in written_calls(calls):
        search.take(call, defined)

    while search.ideas:
        search.look_into(search.ideas.pop())

    return search.needed


@dataclass(slots=True)
class _NeededModules:
    """The search that `needed_modules` performs.

    Attributes:
        needed: the servers that were found.
        ideas: the published ideas still to be examined, as `idea:NAME`.
    """

    store: Store
    caller: str
    catalogue: Catalogue
    needed: set[str | None] = field(default_factory=set[str | None])
    ideas: list[str] = field(default_factory=list[str])
    _visited: set[str] = field(default_factory=set[str])

    def take(self, call: WrittenCall, defined: frozenset[str]) -> None:
        """Add the servers that a call needs. A call without a tool name adds none, because the
        check of the plan refuses such calls.
        """
        if call.tool:
            self._need(call.module, call.tool, defined)

    def _need(self, module: str | None, name: str, defined: frozenset[str]) -> None:
        if module is None:
            tool = self.catalogue.look_up(WrittenCall(name))
            if name in defined or (tool is not None and tool.module is None):
                return
            self.needed.add(None if tool is None else tool.module)
        elif not module.startswith(IDEA):
            if module != ANONYMOUS:
                self.needed.add(module)
        elif module not in self._visited:
            self._visited.add(module)
            self.ideas.append(module)

    def look_into(self, module: str) -> None:
        """Add the servers that the plan of a published idea needs."""
        name = module.removeprefix(IDEA)
        inner = self.store.publications.look_up(name, caller=self.caller)
        if inner is None:
            return

        plan = inner.plan_parts
        defined = plan.defined
        for call in written_calls(plan.calls):
            self.take(call, defined)

        guide = inner.guide_parts
        defined = guide.defined
        for tool_module, name in guide.origins:
            self._need(tool_module, name, defined)


def _reaches(
    store: Store, publication: Publication, caller: str, catalogue: Catalogue
) -> tuple[str, ...]:
    """Return the servers that an idea's plan calls, directly or through other ideas; see
    `Tool.reaches`.

    The result is `EVERY_MODULE` if the servers are unknown, because a mind or a room chooses the
    calls, or because a tool is missing from this process.
    """
    reached: dict[str, None] = {}
    visited: set[str] = set()
    left = [publication]
    while left:
        idea = left.pop()
        if idea.answer == "recorded":
            continue
        if idea.plan is None or idea.guide is not None or "calls" not in idea.plan:
            return (EVERY_MODULE,)

        for call in written_calls(idea.plan_parts.calls):
            module = call.module
            if not is_idea(module):
                tool = None if module == ANONYMOUS else catalogue.look_up(call)
                if tool is None:
                    return (EVERY_MODULE,)
                reached.update(dict.fromkeys(tool.reached))
            elif module not in visited:
                visited.add(module)
                name = module.removeprefix(IDEA)
                inner = store.publications.look_up(name, caller=caller)
                if inner is None:
                    return (EVERY_MODULE,)
                left.append(inner)

    return (EVERY_MODULE,) if EVERY_MODULE in reached else tuple(reached)
