"""Draft: a lifted plan after the references on which runs agree, and the choices of a person, have been inserted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from ideabridge.bridge.context.references import Path, is_reference, parse_reference
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import plan_machine, same
from ideabridge.bridge.lifting.lift import Lifted
from ideabridge.bridge.lifting.origins import AlignedRun, Leaf, contrast, names_of, picked
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import Execute, ExecutionKey
from ideabridge.bridge.loop.event import CallFinished, CallStarted, JournalError, MessageAdded, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.runs.pins import Pin, defined_in, pinned_tools, with_own_module
from ideabridge.bridge.runs.recorded import RecordedRun
from ideabridge.bridge.runs.values import given_by
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean

# -- choices --------------------------------------------------------------------------------------------------------

_KEYS = ("accept", "take", "runs")

MIND = "mind"
"""What is taken for the `_output` that a mind wrote: ask a mind for it each time."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of a person about a draft.

    Attributes:
        accept: the paths of the parts that may stay unchanged; True: all parts that a question names.
        take: by path, the replacement of a literal: a reference, `{"pick": JMESPath, "from": reference}`, or `mind` for
            a written `_output`.
        runs: other runs of the same task; None: runs of the same shape are searched.
    """

    accept: bool | tuple[str, ...] = ()
    take: JSONObject = field(default_factory=dict[str, JSON])
    runs: tuple[str, ...] | None = None

    def accepts(self, path: str) -> bool:
        """Return whether the part at a path may stay unchanged. An accepted path includes everything below it."""
        if isinstance(self.accept, bool):
            return self.accept
        return any(path == one or path.startswith(f"{one}.") for one in self.accept)

    def to_json(self) -> JSONObject:
        """Return the choices in the form that `read_choices` reads."""
        told: JSONObject = {}
        if self.accept:
            told["accept"] = self.accept if isinstance(self.accept, bool) else list[JSON](self.accept)
        if self.take:
            told["take"] = self.take
        if self.runs is not None:
            told["runs"] = list[JSON](self.runs)
        return told


def read_choices(raw: JSONObject | None) -> Choices:
    """Read `{"accept": true | [paths], "take": {path: ...}, "runs": [ids]}`.

    Raises:
        PublicationError: the shape is wrong; the message says where and what was expected.
    """
    raw = raw or {}
    for key in raw:
        if key not in _KEYS:
            raise PublicationError(f"choices: unknown key {key!r}; expected 'accept', 'take' or 'runs'")
    take = raw.get("take", {})
    if not isinstance(take, dict):
        raise PublicationError("choices.take: expected an object from paths to references")
    for path, value in take.items():
        _check_take(path, value)
    accept = raw.get("accept", [])
    if accept is not True and accept is not False and not isinstance(accept, list):
        raise PublicationError("choices.accept: expected true, or an array of paths")
    runs = raw.get("runs")
    return Choices(
        accept if isinstance(accept, bool) else tuple(_texts(accept, "accept")),
        take,
        None if runs is None else tuple(_texts(runs, "runs")),
    )


def _texts(value: JSON, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise PublicationError(f"choices.{where}: expected an array of texts")
    return [one for one in value if isinstance(one, str)]


def _check_take(path: str, value: JSON) -> None:
    if value == MIND and path.endswith("._output"):
        return
    reference: JSON = value
    if isinstance(value, dict):
        if value.keys() != {"pick", "from"} or not isinstance(value["pick"], str):
            raise PublicationError(f'choices.take.{path}: expected {{"pick": JMESPath, "from": reference}}')
        reference = value["from"]
    if not isinstance(reference, str) or not is_reference(reference):
        raise PublicationError(
            f"choices.take.{path}: expected a reference such as †input.x,"
            ' or {"pick": "max_by(@, &size).name", "from": "†results.0"}'
        )
    try:
        parse_reference(reference)
    except IdeabridgeError as error:
        raise PublicationError(f"choices.take.{path}: {error}") from None


def unknown_path(where: str, path: str, known: list[str]) -> PublicationError:
    """Return the error for a path without a constant."""
    return PublicationError(f"choices.{where}: there is no constant at {path!r}.{did_you_mean(path, known)}")


# -- self-consistency -----------------------------------------------------------------------------------------------


def inconsistency(
    run: RecordedRun, plan: Plan, places: Mapping[int, int] | None = None, catalogue: Catalogue | None = None
) -> str | None:
    """Return how the plan, with the input and the recorded results of the run, differs from the run in its calls or its
    output; None if it does not differ. Nothing runs: every call is answered with its recorded result.

    Args:
        run: the run.
        plan: the plan with the run's input.
        places: the number in the run of each call of the plan. A call without a number is a `pick`, which is computed.
            None: the plan is the run's own.
        catalogue: the tools; None: the tools of the run.
    """
    machine = plan_machine(run, catalogue or run.machine.catalogue, plan)
    calls, shared = plan.expanded()
    errors = machine.check(calls, plan.output, shared)
    if errors:
        return f"it cannot run by itself: {errors[0]['error']}"
    at = dict(enumerate(range(len(run.machine.history)))) if places is None else dict(places)
    try:
        machine.receive(SolutionProposed(calls, plan.output, None, shared))
        fault = _run(machine, run, at)
    except JournalError as error:
        return f"other calls would run than did: {error}"
    if fault is not None:
        return fault
    if machine.phase != "ending" or (not machine.has_output and plan.output is not None):
        told = machine.errors[0]["error"] if machine.errors else "calls still wait"
        return f"other calls would run than did: {told}"
    given = given_by(machine)
    if content_hash(given) != content_hash(run.result):
        return f"with the recorded results it gives another output than the recorded one: {contrast(given, run.result)}"
    return None


def _run(machine: Machine, run: RecordedRun, at: dict[int, int]) -> str | None:
    """Answer every call as in the run, in the order in which the calls ended."""
    ended = run.ends()
    order = {(event.call, event.item): number for number, event in enumerate(ended)}
    added: dict[int, list[MessageAdded]] = {}
    for event in run.events:
        if isinstance(event, MessageAdded):
            added.setdefault(event.call, []).append(event)
    waiting: dict[ExecutionKey, Execute] = {}
    answered: set[ExecutionKey] = set()
    while True:
        for effect in [one for one in machine.due() if isinstance(one, Execute)]:
            machine.receive(CallStarted(*effect.key))
            waiting[effect.key] = effect
        if not waiting:
            break

        def moment(key: ExecutionKey) -> int:
            # What is worked out takes no time.
            return order.get((at[key[0]], key[1]), len(order)) if key[0] in at else -1

        effect = waiting.pop(min(waiting, key=moment))
        index = effect.call.index
        label = f"calls.{effect.call.place} ({effect.call.name})"
        if index not in at:
            if effect.tool.key != (None, "pick"):
                return f"other calls would run than did: {label}"
            value = _worked_out(effect)
            if isinstance(value, Missing):
                return f"{label} selects nothing from the recorded results"
            machine.receive(CallFinished(index, effect.item, value=value))
            continue
        key = (at[index], effect.item)
        if key not in order:
            return f"other calls would run than did: {label}"
        fault = _other_parameters(run, effect, key)
        if fault is not None:
            return f"{label} {fault}"
        done = ended[order[key]]
        answered.add(key)
        for one in added.pop(at[index], ()):
            # What it added is read by others, as its result is.
            machine.receive(MessageAdded(index, one.message))
        machine.receive(CallFinished(index, effect.item, value=done.value, error=done.error, chosen=done.chosen))
    wanted = set(at.values())
    left = [key for key in order if key[0] in wanted and key not in answered]
    if left:
        return f"other calls would run than did: {run.machine.history[left[0][0]].call.label} would not"
    return None


def _worked_out(effect: Execute) -> JSON | Missing:
    path = effect.parameters.get("path")
    return picked(effect.parameters.get("data"), path if isinstance(path, str) else None)


def _other_parameters(run: RecordedRun, effect: Execute, key: ExecutionKey) -> str | None:
    items = run.machine.history[key[0]].items
    number = key[1] or 0
    if number >= len(items):
        return "would run more often than it did"
    ran = items[number].parameters
    for name in dict.fromkeys((*ran, *effect.parameters)):
        if not same(ran.get(name), effect.parameters.get(name)) or (name in ran) != (name in effect.parameters):
            return f"would be given another {name}: {contrast(effect.parameters.get(name), ran.get(name), 60)}"
    return None


# -- the draft ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlanDraft:
    """A plan that may be published when no question is open.

    Attributes:
        lifted: the lifted run.
        choices: the choices of a person.
        calls: the calls of the plan. Picks follow the others, so that the places are the same as in the report.
        output: the output of the plan.
        replaced: by path, the reference that replaces a literal.
        asks_mind: the places of calls for which a mind is asked each time.
    """

    lifted: Lifted
    choices: Choices
    calls: list[JSON]
    output: JSON
    replaced: dict[str, str] = field(default_factory=dict[str, str])
    asks_mind: list[int] = field(default_factory=list[int])

    def plan(self) -> JSONObject:
        """Return the plan in the form of a publication, with the modules of its tools; see `read_published`."""
        catalogue = self.lifted.catalogue
        calls = [with_own_module(call, catalogue) for call in self.calls]
        plan: JSONObject = {**self.lifted.function.plan(), "calls": calls, "output": self.output}
        plan["pins"] = [Pin.of(tool).to_json() for tool in pinned_tools(calls, catalogue, defined_in(plan))]
        return plan

    def with_input(self, given: JSONObject) -> Plan:
        """The plan with an input."""
        function = self.lifted.function
        return read_published(self.plan(), given, function.input_schema, function.output_schema, name="it")

    def difference(self) -> str | None:
        """Return why the plan is not self-consistent; None if it is."""
        function = self.lifted.function
        if function.instances:
            return inconsistency(function.run, self.with_input(function.input or {}))
        return self._differs(self.lifted.aligned)

    def _differs(self, aligned: AlignedRun) -> str | None:
        places = {place: one.index for place, one in enumerate(aligned.calls)}
        plan = self.with_input(aligned.function.input or {})
        return inconsistency(aligned.function.run, plan, places, self.lifted.catalogue)

    def confirmations(self) -> tuple[list[str], list[str]]:
        """Return (the runs with other input that it reproduces, why it does not reproduce others)."""
        agree: list[str] = []
        differ: list[str] = []
        for other in self.lifted.others:
            why = self._differs(other)
            if why is None:
                agree.append(other.run_id)
            else:
                differ.append(f"run {other.run_id}: {why}")
        return agree, differ


def apply_choices(lifted: Lifted, choices: Choices) -> PlanDraft:
    """Insert the references on which runs agree and those that a person chose.

    Raises:
        PublicationError: a choice names a path without a value, or needs a tool that does not exist.
    """
    draft = PlanDraft(lifted, choices, copy.deepcopy(lifted.calls), copy.deepcopy(lifted.output))
    picks: dict[str, int] = {}
    for leaf in lifted.leaves:
        explicit = not isinstance(choices.accept, bool) and choices.accepts(leaf.path)
        if leaf.taken is not None and leaf.path not in choices.take and not explicit:
            _put(draft, leaf.path, leaf.place, leaf.keys, leaf.taken.take, picks)
    for path, value in choices.take.items():
        place, keys = _where(lifted, path)
        _put(draft, path, place, keys, value, picks)
    for place, call in enumerate(draft.calls):
        tool = lifted.catalogue.look_up(call) if isinstance(call, dict) else None
        if isinstance(call, dict) and tool is not None and "_output" not in call:
            latent = tool.key in lifted.catalogue.latent
            if latent or call.get("_module") == "anonymous":
                draft.asks_mind.append(place)
    return draft


def _where(lifted: Lifted, path: str) -> tuple[int | None, Path]:
    """Return the place and the keys that a path of `take` names: a leaf, or a value that contains leaves."""
    for leaf in lifted.leaves:
        if leaf.path.startswith("instances."):
            continue
        names = names_of(leaf.place, leaf.keys)
        for depth in range(len(names)):
            if ".".join(names[: depth + 1]) == path and (depth or leaf.place is None):
                return leaf.place, leaf.keys[:depth]
    raise unknown_path("take", path, [leaf.path for leaf in lifted.leaves])


def _put(draft: PlanDraft, path: str, place: int | None, keys: Path, value: JSON, picks: dict[str, int]) -> None:
    if value == MIND:
        call = draft.calls[place] if place is not None else None
        if isinstance(call, dict):
            call.pop("_output")
        draft.replaced[path] = MIND
        return
    if isinstance(value, dict):
        pick, data = str(value["pick"]), str(value["from"])
        if draft.lifted.pick is None:
            raise PublicationError(f"choices.take.{path}: the tool pick is another one here; take a reference")
        key = f"{data} {pick}"
        if key not in picks:
            picks[key] = len(draft.calls)
            draft.calls.append({"_tool": "pick", "data": data, "path": pick})
        value = f"†results.{picks[key]}"
    draft.replaced[path] = str(value)
    if place is None:
        draft.output = _with(draft.output, keys, value)
    else:
        draft.calls[place] = _with(draft.calls[place], keys, value)


def _with(document: JSON, keys: Path, value: JSON) -> JSON:
    if not keys:
        return value
    if isinstance(document, dict):
        return {key: _with(item, keys[1:], value) if key == keys[0] else item for key, item in document.items()}
    if isinstance(document, list):
        return [_with(item, keys[1:], value) if str(n) == keys[0] else item for n, item in enumerate(document)]
    return document


def replacement_of(draft: PlanDraft, leaf: Leaf) -> str | None:
    """The reference that replaces a leaf or a value that contains it; None: the leaf is unchanged."""
    for path, reference in draft.replaced.items():
        if leaf.path == path or leaf.path.startswith(f"{path}."):
            return reference
    return None
