"""Record the tools that a published plan calls.

The record of a tool contains the tool's server, its name and the digest of its definition.

A plan contains `pins: [{"module", "tool", "digest", "prose", "accepted"?}]`, one for each tool that
its calls name. A call to a server's tool has `_module` and the tool's name in that server, so that
no other tool can take its place. Built-in tools have no pin, because ideabridge defines them. Tools
that the plan defines have no pin either, because the plan contains their definitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.programs.steps import called_in
from ideabridge.bridge.store.database import now_text
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.published import PlanOrGuide, PublishedPlan
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, ToolKey, changes_of_essence
from ideabridge.tools.typed import read_whole

_UNKNOWN: Final = "its earlier definition is not in this store"

Definition: TypeAlias = "Callable[[str], JSONObject | None]"
"""A function that returns the essence of the tool with a digest, or None if there is no such tool.
"""


@dataclass(frozen=True, slots=True)
class Pin:
    """A tool that a published plan calls.

    Attributes:
        module: the server of the tool, `idea:NAME` for an idea, or "" for a tool of this process.
        tool: the name of the tool on its server.
        digest: the digest of the tool's essence.
        prose: the digest of the tool's descriptions.
        accepted: each change to the definition that a person accepted, as `{"was", "by", "time"}`.
    """

    module: str
    tool: str
    digest: str
    prose: str = ""
    accepted: tuple[JSON, ...] = ()

    @classmethod
    def of(cls, tool: Tool) -> Pin:
        """Return the pin of a tool's current definition."""
        module, name = tool.origin
        return cls(module or "", name, tool.digest, tool.prose_digest)

    @property
    def key(self) -> ToolKey:
        """The server and the name of the tool, as in `Tool.origin`."""
        return (self.module or None, self.tool)

    @property
    def label(self) -> str:
        """The human-readable name of the tool, such as `module.tool`."""
        if not self.module:
            return self.tool
        if self.module.startswith(IDEA):
            return self.module
        return f"{self.module}.{self.tool}"

    def to_json(self) -> JSONObject:
        """Return the pin as an entry of the list in a plan."""
        pin: JSONObject = {
            "module": self.module,
            "tool": self.tool,
            "digest": self.digest,
            "prose": self.prose,
        }
        if self.accepted:
            pin["accepted"] = list(self.accepted)
        return pin

    def replaced_by(self, tool: Tool, by: Decider) -> Pin:
        """Return a pin of the tool's current definition, which a person has accepted in place of
        the pinned one.
        """
        step: JSONObject = {"was": self.digest, "by": by.to_json(), "time": now_text()}
        return dataclasses.replace(Pin.of(tool), accepted=(*self.accepted, step))


def read_pins(pinned: PlanOrGuide | None) -> list[Pin] | None:
    """Return the pins of a plan or guide, or None if there are none or they are malformed."""
    if pinned is None or pinned.pins is None:
        return None

    pins: list[Pin] = []
    for entry in pinned.pins:
        pin = read_whole(Pin, entry)
        if pin is None:
            return None
        pins.append(pin)

    return pins


def with_own_module(call: JSON, catalogue: Catalogue) -> JSON:
    """Return the call, adding `_module` and the tool's name on that server if the call needs
    them.
    """
    written = WrittenCall.of(call)
    tool = catalogue.look_up(written)
    if tool is None or tool.module is None:
        return call
    if tool.in_room and (written.module is not None or tool.module == ANONYMOUS):
        # A call that already has `_module` keeps it, along with the version in it.
        return call

    module, name = tool.origin
    if (written.module, written.tool) == (module, name):
        return call
    return written.with_tool(module, name)


_built_in = cache(builtin_toolbox)


def _is_built_in(tool: Tool) -> bool:
    """Return whether a tool is one of ideabridge's own tools, with its current definition."""
    if is_reader(tool):
        return True
    return tool.module is None and _built_in().tools.get(tool.name) == tool


def _needs_pin(tool: Tool, defined: frozenset[str]) -> bool:
    """Return whether a tool needs a pin. Only tools that are built in or defined in the plan need
    none.
    """
    if tool.module is None:
        return tool.name not in defined
    return tool.module != ANONYMOUS


def pinned_tools(
    calls: Iterable[JSON], catalogue: Catalogue, defined: frozenset[str]
) -> list[Tool]:
    """Return the called tools that need a pin, without duplicates, sorted by server and name."""
    tools: dict[ToolKey, Tool] = {}
    for _, call in called_in(calls, catalogue):
        tool = catalogue.look_up(call)
        if tool is not None and _needs_pin(tool, defined) and not _is_built_in(tool):
            tools[tool.origin] = tool

    def sort_key(key: ToolKey) -> tuple[str, str]:
        module, name = key
        return module or "", name

    return [tools[key] for key in sorted(tools, key=sort_key)]


def pins_for(pinned: PlanOrGuide, calls: Iterable[JSON], catalogue: Catalogue) -> list[JSON]:
    """Return the pins that the calls of a plan or guide need, as entries of its `pins`."""
    return [Pin.of(tool).to_json() for tool in pinned_tools(calls, catalogue, pinned.defined)]


def essences_in(catalogue: Catalogue) -> Definition:
    """Return a function that looks up a tool's essence by digest.

    The digests are computed when the function is first called. Most plans never need them, because
    their tools have not changed when they are published.
    """

    @cache
    def tools() -> dict[str, Tool]:
        return {tool.digest: tool for tool in catalogue.tools}

    def look_up(digest: str) -> JSONObject | None:
        tool = tools().get(digest)
        return None if tool is None else tool.essence

    return look_up


def pinned_definitions(pins: Iterable[Pin], catalogue: Catalogue) -> dict[str, JSONObject]:
    """Return the essences of the pinned tools, keyed by digest."""
    digests = {pin.key: pin.digest for pin in pins}
    essences: dict[str, JSONObject] = {}
    for tool in catalogue.tools:
        # Compute the digest only for tools that can have a pin, because that takes time.
        if tool.origin in digests and tool.digest == digests[tool.origin]:
            essences[tool.digest] = tool.essence

    return essences


@dataclass(slots=True)
class PinCheck:
    """The result of comparing pins with the current tools.

    Attributes:
        faults: a sentence for each reason why the plan cannot be called: a tool is gone,
            unavailable or changed.
        notes: changes to descriptions, which do not affect calls.
        modules: the servers whose changed tools a person can accept. "" stands for this process.
    """

    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    modules: list[str] = field(default_factory=list[str])

    def text(self, name: str) -> str:
        """Return why calls to the idea `name` are refused, with the commands that help."""
        lines = [f"{name} cannot be called: {'; '.join(self.faults)}"]
        if self.modules:
            commands = [
                f"`ideabridge servers accept {module or '--own'}`"
                for module in dict.fromkeys(self.modules)
            ]
            lines.append(
                f"See `ideabridge ideas verify {name}`; {' or '.join(commands)} accepts the "
                "current definitions."
            )
        return "\n".join(lines)


def check_pins(
    pinned: PlanOrGuide,
    calls: list[JSON],
    catalogue: Catalogue,
    definition: Definition,
    away: Callable[[str], str | None] = lambda _: None,
) -> PinCheck:
    """Compare the tools that calls use with the pins of their plan.

    Args:
        pinned: the plan or guide that contains the pins. If it has none, only tools that are gone
            are reported.
        calls: the calls in the plan.
        catalogue: the current tools, including those that the calls name.
        definition: see `Definition`.
        away: returns why a configured server is not up, or None if it is up or not configured.
    """
    pins = read_pins(pinned)
    defined = pinned.defined
    # A program makes its calls in no particular order, so errors don't say where they occurred.
    is_program = isinstance(pinned, PublishedPlan) and pinned.program is not None
    by_key = {pin.key: pin for pin in pins or ()}
    result = PinCheck()
    # Several calls can name the same tool, so remember which tools have been compared and report
    # each change only once.
    compared: set[ToolKey] = set()
    for place, call in called_in(calls, catalogue):
        where = "" if is_program else f"calls.{place}: "
        tool = _present_tool(call, catalogue, away, result, where)
        if tool is None or pins is None or not _needs_pin(tool, defined):
            continue

        pin = by_key.get(tool.origin)
        if _is_built_in(tool) and (pin is None or _is_earlier(pin, tool, definition)):
            continue
        if pin is None:
            result.faults.append(f"{where}{_why_unpinned(call, tool)}")
        elif tool.origin not in compared:
            compared.add(tool.origin)
            _compare(pin, tool, result, definition, where)

    if pins is None and not result.faults and calls:
        result.faults.append("some of its tools were missing when it was checked; call it again")

    return result


def _present_tool(
    call: WrittenCall,
    catalogue: Catalogue,
    away: Callable[[str], str | None],
    result: PinCheck,
    where: str,
) -> Tool | None:
    """Return the current tool for a call, or add a fault to `result` and return None if the tool is
    gone.
    """
    try:
        return catalogue.find(call.tool, call.module)
    except UnknownToolError as error:
        reason: str | None = None
        name = call.tool
        if call.module is not None and call.module != ANONYMOUS:
            reason = away(call.module)
            name = f"{call.module}.{name}"
        result.faults.append(f"{where}{name} is not available here now: {reason or error}")
        return None


def _why_unpinned(call: WrittenCall, tool: Tool) -> str:
    """Return why a call to a tool without a pin cannot be made."""
    names_module = call.module is not None and call.module != ANONYMOUS
    if tool.module is None or names_module:
        return f"{tool.label} is not among the tools that it was published with"
    return f"{call.tool} is missing here; {tool.label} is a different tool and cannot replace it"


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool that has changed since a published plan pinned it. `lines` describes the changes."""

    publication: Publication
    pin: Pin
    tool: Tool
    lines: list[str]


def changed_in(
    publication: Publication, module: str, catalogue: Catalogue, definition: Definition
) -> list[ChangedTool]:
    """Return the tools of a server ("" for this process) that have changed since a version was
    published or a change was accepted.

    Tools that are gone are left out, because there is nothing to accept in their place.
    """
    changed: list[ChangedTool] = []
    for pin in read_pins(publication.plan_or_guide) or ():
        tool = catalogue.get(pin.key) if pin.module == module else None
        if tool is not None and tool.digest != pin.digest:
            lines = _changes(pin, tool, definition)
            changed.append(ChangedTool(publication, pin, tool, lines))

    return changed


def accepted_pins(
    publication: Publication, changed: Iterable[ChangedTool], by: Decider
) -> list[JSON]:
    """Return the pins of a publication, with changed tools pinned to their current definitions."""
    replacements = {change.pin.key: change.pin.replaced_by(change.tool, by) for change in changed}
    pins = read_pins(publication.plan_or_guide) or ()
    return [replacements.get(pin.key, pin).to_json() for pin in pins]


def _is_earlier(pin: Pin, now: Tool, definition: Definition) -> bool:
    """Return whether a pin names a built-in tool from an earlier version of ideabridge.

    This is assumed if the hints are equal, because a user's tool with the same name is unlikely to
    have the same hints.
    """
    earlier = definition(pin.digest) or {}
    earlier_hints = {key: value for key, value in earlier.items() if key.endswith("Hint")}
    return earlier_hints == dataclasses.replace(now.annotations, title=None).to_json()


def _changes(pin: Pin, now: Tool, definition: Definition) -> list[str]:
    """Return the differences between the pinned definition and the current definition."""
    earlier = definition(pin.digest)
    if earlier is None:
        return [_UNKNOWN]
    return changes_of_essence(earlier, now.essence)


def _compare(pin: Pin, now: Tool, result: PinCheck, definition: Definition, where: str) -> None:
    if pin.digest != now.digest:
        changes = "; ".join(_changes(pin, now, definition))
        result.faults.append(f"{where}{pin.label} has changed: {changes}")
        result.modules.append(pin.module)
    elif pin.prose != now.prose_digest:
        version = f" (it is now {now.remote_name})" if now.in_room else ""
        result.notes.append(f"{pin.label}: its description has changed{version}")
