"""Decide: a lifted plan with what runs agree on and what a person chose put in (DESIGN 4.11)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from ideabridge.bridge.context.reference import Path
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.replay.choices import MIND, Choices, unknown_path
from ideabridge.bridge.replay.consistency import inconsistency
from ideabridge.bridge.replay.leaves import Leaf, names_of
from ideabridge.bridge.replay.lift import Lifted
from ideabridge.bridge.replay.pins import Pin, defined_in, meant, tools_meant
from ideabridge.bridge.replay.witness import Witness
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(slots=True)
class Decided:
    """A plan that may be published, once nothing is asked any more.

    Attributes:
        lifted: what it was made of.
        choices: what a person decided.
        calls: of the plan; picks stand after the others, so that every place stays what the report says.
        output: of the plan.
        replaced: by path, the reference that stands there now.
        asks_mind: the places of calls for which a mind is asked each time.
    """

    lifted: Lifted
    choices: Choices
    calls: list[JSON]
    output: JSON
    replaced: dict[str, str] = field(default_factory=dict[str, str])
    asks_mind: list[int] = field(default_factory=list[int])

    def plan(self) -> JSONObject:
        """The plan as a publication holds it; see `read_published`. It says whose tools its calls mean."""
        catalogue = self.lifted.catalogue
        calls = [meant(call, catalogue.look_up(call) if isinstance(call, dict) else None) for call in self.calls]
        plan: JSONObject = {**self.lifted.function.plan(), "calls": calls, "output": self.output}
        plan["pins"] = [Pin.of(tool).to_json() for tool in tools_meant(calls, catalogue, defined_in(plan))]
        return plan

    def with_input(self, given: JSONObject) -> Plan:
        """The plan with an input."""
        function = self.lifted.function
        return read_published(self.plan(), given, function.input_schema, function.output_schema, name="it")

    def difference(self) -> str | None:
        """Why it is not self-consistent; None: it is."""
        function = self.lifted.function
        if function.instances:
            return inconsistency(function.run, self.with_input(function.input or {}))
        return self._differs(self.lifted.witness)

    def _differs(self, witness: Witness) -> str | None:
        places = {place: one.index for place, one in enumerate(witness.calls)}
        plan = self.with_input(witness.function.input or {})
        return inconsistency(witness.function.run, plan, places, self.lifted.catalogue)

    def confirmations(self) -> tuple[list[str], list[str]]:
        """(runs with other input that it reproduces, why others are not)."""
        agree: list[str] = []
        differ: list[str] = []
        for other in self.lifted.others:
            why = self._differs(other)
            if why is None:
                agree.append(other.run_id)
            else:
                differ.append(f"run {other.run_id}: {why}")
        return agree, differ


def decide(lifted: Lifted, choices: Choices) -> Decided:
    """Put in what runs agree on, and what a person chose.

    Raises:
        PublicationError: a choice names a path at which nothing stands, or needs a tool that is not there.
    """
    decided = Decided(lifted, choices, copy.deepcopy(lifted.calls), copy.deepcopy(lifted.output))
    picks: dict[str, int] = {}
    for leaf in lifted.leaves:
        explicit = not isinstance(choices.accept, bool) and choices.accepts(leaf.path)
        if leaf.taken is not None and leaf.path not in choices.take and not explicit:
            _put(decided, leaf.path, leaf.place, leaf.keys, leaf.taken.take, picks)
    for path, value in choices.take.items():
        place, keys = _where(lifted, path)
        _put(decided, path, place, keys, value, picks)
    for place, call in enumerate(decided.calls):
        tool = lifted.catalogue.look_up(call) if isinstance(call, dict) else None
        if isinstance(call, dict) and tool is not None and "_output" not in call:
            latent = tool.key in lifted.catalogue.latent
            if latent or call.get("_module") == "anonymous":
                decided.asks_mind.append(place)
    return decided


def _where(lifted: Lifted, path: str) -> tuple[int | None, Path]:
    """The place and keys a path of `take` names: a leaf, or what leaves stand below."""
    for leaf in lifted.leaves:
        if leaf.path.startswith("instances."):
            continue
        names = names_of(leaf.place, leaf.keys)
        for depth in range(len(names)):
            if ".".join(names[: depth + 1]) == path and (depth or leaf.place is None):
                return leaf.place, leaf.keys[:depth]
    raise unknown_path("take", path, [leaf.path for leaf in lifted.leaves])


def _put(decided: Decided, path: str, place: int | None, keys: Path, value: JSON, picks: dict[str, int]) -> None:
    if value == MIND:
        call = decided.calls[place] if place is not None else None
        if isinstance(call, dict):
            call.pop("_output")
        decided.replaced[path] = MIND
        return
    if isinstance(value, dict):
        pick, data = str(value["pick"]), str(value["from"])
        if decided.lifted.pick is None:
            raise PublicationError(f"choices.take.{path}: the tool pick is another one here; take a reference")
        key = f"{data} {pick}"
        if key not in picks:
            picks[key] = len(decided.calls)
            decided.calls.append({"_tool": "pick", "data": data, "path": pick})
        value = f"†results.{picks[key]}"
    decided.replaced[path] = str(value)
    if place is None:
        decided.output = _with(decided.output, keys, value)
    else:
        decided.calls[place] = _with(decided.calls[place], keys, value)


def _with(document: JSON, keys: Path, value: JSON) -> JSON:
    if not keys:
        return value
    if isinstance(document, dict):
        return {key: _with(item, keys[1:], value) if key == keys[0] else item for key, item in document.items()}
    if isinstance(document, list):
        return [_with(item, keys[1:], value) if str(n) == keys[0] else item for n, item in enumerate(document)]
    return document


def stands(decided: Decided, leaf: Leaf) -> str | None:
    """The reference that was put in the place of a leaf, or of what it is part of; None: it stands as it was."""
    for path, reference in decided.replaced.items():
        if leaf.path == path or leaf.path.startswith(f"{path}."):
            return reference
    return None
