"""Pins: the tools that a published plan calls, each by module, name and digest of its definition.

A plan holds `pins: [{"module", "tool", "digest", "prose", "accepted"?}]`, one for each tool that its calls name. A call
of a module's tool says `_module` and the tool's name there, so that no other tool can take its place. Built-in tools
and tools that the plan defines itself have no pin: the first belong to ideabridge, the others to the plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.store.database import now_text
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, ToolKey, differences

_UNKNOWN: Final = "the definition it had then is not in this store"

Definition: TypeAlias = "Callable[[str], JSONObject | None]"
"""The essence of a tool by its digest, as the store keeps it; None: it is not there."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A tool that a published plan calls.

    Attributes:
        module: its module, `idea:NAME`, or "" for a tool of the process.
        tool: its name there.
        digest: of its essence.
        prose: digest of its descriptions.
        accepted: `{"was", "by", "time"}` for each change of the definition that a person accepted.
    """

    module: str
    tool: str
    digest: str
    prose: str
    accepted: tuple[JSON, ...] = ()

    @classmethod
    def of(cls, tool: Tool) -> Pin:
        """The pin of a tool as it is."""
        module, name = tool.origin
        return cls(module or "", name, tool.digest, tool.prose_digest)

    @property
    def key(self) -> ToolKey:
        """As `Tool.origin`."""
        return (self.module or None, self.tool)

    @property
    def label(self) -> str:
        """`module.tool`."""
        if not self.module:
            return self.tool
        return self.module if self.module.startswith(IDEA) else f"{self.module}.{self.tool}"

    def to_json(self) -> JSONObject:
        """As a plan holds it."""
        told: JSONObject = {"module": self.module, "tool": self.tool, "digest": self.digest, "prose": self.prose}
        return {**told, "accepted": list(self.accepted)} if self.accepted else told

    def replaced_by(self, tool: Tool, by: Decider) -> Pin:
        """The pin of the tool as it is now, which a person accepts in the place of what it was."""
        step: JSONObject = {"was": self.digest, "by": by.to_json(), "time": now_text()}
        return dataclasses.replace(Pin.of(tool), accepted=(*self.accepted, step))


def read_pins(plan: JSONObject | None) -> list[Pin] | None:
    """The pins of a plan; None: it has none, or they are malformed."""
    listed = (plan or {}).get("pins")
    if not isinstance(listed, list):
        return None
    found: list[Pin] = []
    for one in listed:
        parts = one if isinstance(one, dict) else {}
        module, tool, digest, prose = (parts.get(key) for key in ("module", "tool", "digest", "prose"))
        if not (isinstance(module, str) and isinstance(tool, str) and isinstance(digest, str)):
            return None
        accepted = parts.get("accepted")
        steps = tuple(accepted) if isinstance(accepted, list) else ()
        found.append(Pin(module, tool, digest, prose if isinstance(prose, str) else "", steps))
    return found


def calls_in(plan: JSONObject | None) -> list[JSON]:
    """The calls of a plan as a publication holds it."""
    calls = (plan or {}).get("calls")
    return calls if isinstance(calls, list) else []


def defined_in(plan: JSONObject | None) -> frozenset[str]:
    """The names of the tools that a plan, or the context of a guide, defines itself."""
    listed = (plan or {}).get("tools")
    context = (plan or {}).get("context")
    messages = context if isinstance(context, list) else []
    tools: list[JSON] = [one.get("tool") for one in messages if isinstance(one, dict)]
    tools += listed if isinstance(listed, list) else []
    return frozenset(str(one.get("name")) for one in tools if isinstance(one, dict))


def with_own_module(call: JSON, catalogue: Catalogue) -> JSON:
    """The call with the `_module` of its tool and the tool's name there; unchanged if it needs neither."""
    tool = catalogue.look_up(call) if isinstance(call, dict) else None
    if not isinstance(call, dict) or tool is None or tool.module is None or tool.in_room:
        return call
    module, name = tool.origin
    if call.get("_tool") == name and call.get("_module") == module:
        return call
    return {"_tool": name, "_module": module, **{k: v for k, v in call.items() if k not in ("_tool", "_module")}}


@cache
def _built_in() -> dict[str, Tool]:
    return dict(builtin_toolbox().tools)


def is_built_in(tool: Tool) -> bool:
    """Whether it is a tool that ideabridge brings itself, by its present definition."""
    return tool.module is None and _built_in().get(tool.name) == tool


def pinned_tools(calls: Iterable[JSON], catalogue: Catalogue, defined: frozenset[str]) -> list[Tool]:
    """The tools that calls mean and that are pinned, each once, by module and name."""
    found: dict[ToolKey, Tool] = {}
    for call in calls:
        tool = catalogue.look_up(call) if isinstance(call, dict) else None
        if tool is None or tool.module == ANONYMOUS or (tool.module is None and tool.name in defined):
            continue
        if not is_built_in(tool):
            found[tool.origin] = tool
    return [found[key] for key in sorted(found, key=lambda key: (key[0] or "", key[1]))]


def essences_of(catalogue: Catalogue) -> dict[str, JSONObject]:
    """The essences of tools, by digest."""
    return {tool.digest: tool.essence for tool in catalogue.tools}


@dataclass(slots=True)
class PinCheck:
    """How the tools of a published plan are now.

    Attributes:
        faults: what blocks it, a sentence each: a tool that is gone, away or changed.
        notes: what is reported: changed prose.
        modules: whose changed definitions a person may accept; "": those of the process.
    """

    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    modules: list[str] = field(default_factory=list[str])

    def text(self, name: str) -> str:
        """Why a call of the idea is refused, with the commands that help."""
        lines = [f"{name} cannot be called: {'; '.join(self.faults)}"]
        if self.modules:
            accept = " or ".join(f"`ideabridge modules accept {one or '--own'}`" for one in dict.fromkeys(self.modules))
            lines.append(f"See `ideabridge ideas verify {name}`; {accept} accepts the definitions of now.")
        return "\n".join(lines)


def check_pins(
    pins: Iterable[Pin] | None,
    calls: list[JSON],
    catalogue: Catalogue,
    *,
    defined: frozenset[str],
    definition: Definition,
    away: Callable[[str], str | None],
) -> PinCheck:
    """How the tools that calls mean are now.

    Args:
        pins: of the plan; None: it has none yet, since tools of it were away each time.
        calls: as the plan lists them.
        catalogue: the tools there are now, with those that the calls name.
        defined: names of the tools that the plan defines itself.
        definition: see `Definition`.
        away: why a configured module is not up; None: it is, or no such module is configured.
    """
    known = {pin.key: pin for pin in pins or ()}
    found = PinCheck()
    told: set[ToolKey] = set()
    for place, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        module, name = call.get("_module"), str(call.get("_tool"))
        own = not isinstance(module, str) or module == ANONYMOUS
        try:
            tool = catalogue.find(name, None if not isinstance(module, str) else module)
        except UnknownToolError as error:
            why = None if own else away(str(module))
            called = name if own else f"{module}.{name}"
            found.faults.append(f"calls.{place}: {called} is not here now: {why or error}")
            continue
        if pins is None or tool.module == ANONYMOUS or (tool.module is None and tool.name in defined):
            continue
        pin = known.get(tool.origin)
        if is_built_in(tool) and (pin is None or _is_earlier(pin, tool, definition)):
            continue
        if pin is None:
            found.faults.append(
                f"calls.{place}: {name} is not here; {tool.label} is another tool and does not take its place"
                if own and tool.module is not None
                else f"calls.{place}: {tool.label} is not among the tools that it was published with"
            )
        elif tool.origin not in told:
            told.add(tool.origin)
            _compare(pin, tool, found, definition, f"calls.{place}")
    if pins is None and not found.faults and calls:
        found.faults.append("its tools were not all here when it was looked at; call it again")
    return found


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool of which a published plan means another definition than it has now.

    Attributes:
        publication: the version that calls it.
        pin: what it means.
        tool: what there is now.
        lines: the difference.
    """

    publication: Publication
    pin: Pin
    tool: Tool
    lines: list[str]


def changed_in(
    publication: Publication, module: str, catalogue: Catalogue, definition: Definition
) -> list[ChangedTool]:
    """The tools of a module ("": of the process) that changed since a version was published, or a change was accepted.
    One that is gone is not among them: nothing can be accepted in its place.
    """
    found: list[ChangedTool] = []
    for pin in read_pins(publication.plan or publication.guide) or ():
        tool = catalogue.get(pin.key) if pin.module == module else None
        if tool is not None and tool.digest != pin.digest:
            then = definition(pin.digest)
            lines = [_UNKNOWN] if then is None else differences(then, tool.essence)
            found.append(ChangedTool(publication, pin, tool, lines))
    return found


def with_accepted(held: JSONObject, changed: Iterable[ChangedTool], by: Decider) -> JSONObject:
    """A plan or guide that means the tools of now."""
    replaced = {one.pin.key: one.pin.replaced_by(one.tool, by) for one in changed}
    pins: list[JSON] = [replaced.get(pin.key, pin).to_json() for pin in read_pins(held) or ()]
    return {**held, "pins": pins}


def _is_earlier(pin: Pin, now: Tool, definition: Definition) -> bool:
    """Whether a pin is of the same built-in tool as an earlier ideabridge brought it: what it says it does is the same.
    Another tool of its name, which the user had, would hardly say the very same.
    """
    then = definition(pin.digest) or {}
    hints = dataclasses.replace(now.annotations, title=None).to_json()
    return {key: value for key, value in then.items() if key.endswith("Hint")} == hints


def _compare(pin: Pin, now: Tool, found: PinCheck, definition: Definition, where: str) -> None:
    if pin.digest != now.digest:
        then = definition(pin.digest)
        lines = [_UNKNOWN] if then is None else differences(then, now.essence)
        found.faults.append(f"{where}: {pin.label} has changed: {'; '.join(lines)}")
        found.modules.append(pin.module)
    elif pin.prose != now.prose_digest:
        version = f" (it is {now.remote_name} now)" if now.in_room else ""
        found.notes.append(f"{pin.label}: its description has changed{version}")
