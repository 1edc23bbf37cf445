"""Show the calls of a plan to people, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.references import Path, map_references, parse_reference
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.server.ui.call_names import CallName, names_of_plan
from ideabridge.server.ui.reference_words import ReferenceWords, ShownParameter
from ideabridge.server.ui.showing import in_one_line
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, objects_in
from ideabridge.tools.errors import IdeabridgeError

_MOST_CHARACTERS: Final = 20_000
"""Number of characters after which a page shows no further call."""

_MOST_STEPS: Final = 100
_OF_MARKUP: Final = 40
"""Number of characters of markup around each parameter on the page of a plan."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A call of a plan as people see it.

    Attributes:
        name: the name of the call.
        server: the server that the call names, or "".
        parameters: the parameters.
    """

    name: CallName
    server: str
    parameters: tuple[ShownParameter, ...]


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """The order of the calls of a plan. Calls are given by their index.

    Attributes:
        layers: the calls that can run at the same time, layer by layer, or none if this is unknown.
        unused: the calls that only read, and whose results the plan does not use.
    """

    layers: Sequence[Sequence[int]] = ()
    unused: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PlanSteps:
    """The first calls of a plan.

    Attributes:
        stages: the calls, grouped into stages of calls that can run at the same time. If the order
            is unknown, all calls are in one stage.
        is_ordered: whether the order is known.
        left_out: the number of calls that do not fit on a page.
        returns: what the plan returns, in words, or "" if it is not a reference or an object.
        unused: the names of calls that run, although nothing uses their results.
    """

    stages: tuple[tuple[PlanStep, ...], ...] = ()
    is_ordered: bool = False
    left_out: int = 0
    returns: str = ""
    unused: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: JSONObject, order: PlanOrder, titles: ToolTitles) -> PlanSteps:
        """Return as many steps of a plan as fit on a page, but at least one."""
        calls = objects_in(list_or_empty(plan.get("calls")))
        names = names_of_plan(calls, titles)
        words = ReferenceWords(is_form=True)
        room = _MOST_CHARACTERS
        shown = 0
        stages: list[tuple[PlanStep, ...]] = []
        for layer in order.layers or [range(len(calls))]:
            steps: list[PlanStep] = []
            for place in layer:
                server = WrittenCall.of(calls[place]).module or ""
                step = PlanStep(names[place], server, words.parameters(calls[place]))
                room -= sum(map(_characters, step.parameters))
                if shown == _MOST_STEPS or (shown and room < 0):
                    break
                steps.append(step)
                shown += 1

            if steps:
                stages.append(tuple(steps))
            for place in layer:
                words.add(place, calls[place], str(names[place]))

        return cls(
            stages=tuple(stages),
            is_ordered=bool(order.layers),
            left_out=len(calls) - shown,
            returns=_returned(plan.get("output"), words),
            unused=tuple(str(names[place]) for place in order.unused),
        )


def _returned(output: JSON, words: ReferenceWords) -> str:
    if isinstance(output, str):
        return words.of(output)
    if isinstance(output, dict) and output:
        return in_one_line(", ".join(output), 200)
    return ""


def _characters(parameter: ShownParameter) -> int:
    written = len(parameter.name) + len(parameter.value) + len(parameter.reference)
    return _OF_MARKUP + written


def words_of_plan(calls: list[JSON], titles: ToolTitles) -> ReferenceWords:
    """Return the `ReferenceWords` of a plan, with all its calls added."""
    listed = objects_in(calls)
    words = ReferenceWords(is_form=True)
    for number, name in enumerate(names_of_plan(listed, titles)):
        words.add(number, listed[number], str(name))
    return words


async def order_of(bridge: Bridge, plan: JSONObject, caller: str) -> PlanOrder:
    """Return the order of the calls of a plan. It is unknown if the plan cannot run here or has
    more calls than a page shows.
    """
    if not 0 < len(list_or_empty(plan.get("calls"))) <= _MOST_STEPS:
        return PlanOrder()

    try:
        rehearsal = await bridge.dry_run(plan, caller=caller)
    except IdeabridgeError:
        # The page of a tool says elsewhere why it cannot run.
        return PlanOrder()
    return PlanOrder(_layers_in(rehearsal), _unused_in(rehearsal, plan.get("output")))


def _layers_in(rehearsal: dict[str, Any]) -> list[list[int]]:
    """Return the layers of a rehearsal. A call that runs for several instances appears only in its
    first layer.
    """
    placed: set[int] = set()
    layers: list[list[int]] = []
    for names in rehearsal["layers"]:
        # The name of a call is its index, which may be followed by its instance.
        places = dict.fromkeys(int(str(name).partition(" ")[0]) for name in names)
        layer = [place for place in places if place not in placed]
        placed.update(layer)
        if layer:
            layers.append(layer)

    return layers


def _unused_in(rehearsal: dict[str, Any], output: JSON) -> list[int]:
    """Return the indexes of the calls that only read, and whose results the plan does not use.
    Return none if this is uncertain, because the output is the whole state or there are instances.
    """
    calls: list[dict[str, Any]] = rehearsal["calls"]
    if output is None or any("instance" in call for call in calls):
        return []

    read: list[Path] = []

    def note(text: str) -> JSON:
        read.extend(operand.full for operand in parse_reference(text).operands())
        return None

    map_references(output, note)
    after = {call["place"]: call["after"] for call in calls}
    open_places = [call["place"] for call in calls if not call["read_only"] or _feeds(call, read)]
    needed: set[int] = set()
    while open_places:
        place = open_places.pop()
        if place not in needed:
            needed.add(place)
            open_places += after[place]
    return [place for place in after if place not in needed]


def _feeds(call: dict[str, Any], read: Sequence[Path]) -> bool:
    """Return whether the result of a call, or a part of it, is at one of the paths."""
    written: list[Path] = [("results", str(call["place"]))]
    for text in call["writes"]:
        written += [operand.full for operand in parse_reference(text).operands()]
    return any(
        all(first == second for first, second in zip(written_path, read_path, strict=False))
        for written_path in written
        for read_path in read
    )
