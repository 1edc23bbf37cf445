"""Draft: a lifted run as the plan that is published, with what the publisher decided."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    Constant,
    Explained,
    PathTo,
    operand_path,
    read_explanation,
    references_of,
    same,
)
from ideabridge.bridge.context.references import (
    Hole,
    Path,
    compile_value,
    escaped,
    format_path,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, Leaf, ValueSource, contrast, has_field_names, names_of
from ideabridge.bridge.lifting.function import plan_machine
from ideabridge.bridge.lifting.lift import RECORDED, SETTLED, VARIES, Lifted
from ideabridge.bridge.lifting.parameters import (
    Inputs,
    Parameter,
    ParameterDecision,
    inputs_of,
    parameters_of,
    renamed_inputs,
)
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskApproval, Execute, ExecutionKey
from ideabridge.bridge.loop.event import (
    AT_TERMINAL,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallStarted,
    JournalError,
    MessageAdded,
    SolutionProposed,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.runs.pins import Pin, defined_in, pinned_tools, with_own_module
from ideabridge.bridge.runs.recorded import RecordedRun
from ideabridge.bridge.runs.values import given_by
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import PROGRAM_STEP
from ideabridge.tools.toolbox import Toolbox

# -- choices --------------------------------------------------------------------------------------------------------

_KEYS = ("take", "runs")

MIND: Final = "mind"
"""What is taken for the `_output` that a mind wrote: ask a mind for it each time."""

KEEP: Final = "keep"
"""What is taken for a literal that stays as it is, for every input, and is no parameter; for a call that may have been
a decision (`calls.2`): it is always made."""

_NOBODY: Final = AT_TERMINAL


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of a person about a draft.

    Attributes:
        take: by path, the replacement of a literal: a reference, an explanation, `keep`, or `mind` for an `_output`.
        runs: other runs of the same task.
    """

    take: JSONObject = field(default_factory=dict[str, JSON])
    runs: tuple[str, ...] = ()

    def to_json(self) -> JSONObject:
        """Return the choices in the form that `read_choices` reads."""
        form: JSONObject = {}
        if self.take:
            form["take"] = self.take
        if self.runs:
            form["runs"] = list[JSON](self.runs)
        return form


def read_choices(raw: JSONObject | None) -> Choices:
    """Read `{"take": {path: reference | explanation | "keep" | "mind"}, "runs": [ids]}`.

    Raises:
        PublicationError: the form is wrong; the message says where and what was expected.
    """
    raw = raw or {}
    for key in raw:
        if key not in _KEYS:
            raise PublicationError(f"choices: unknown key {key!r}; expected 'take' or 'runs'")
    take = raw.get("take", {})
    if not isinstance(take, dict):
        raise PublicationError("choices.take: expected an object from paths to references")
    for path, value in take.items():
        _check_take(path, value)
    listed = raw.get("runs", [])
    runs = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(runs) != len(listed):
        raise PublicationError("choices.runs: expected an array of texts")
    return Choices(take, tuple(runs))


def _check_take(path: str, value: JSON) -> None:
    if value == KEEP or (value == MIND and path.endswith("._output")):
        return
    try:
        if isinstance(value, str) and is_reference(value):
            parse_reference(value)
        else:
            read_explanation(value, where=f"choices.take.{path}")
    except ExplanationError as error:
        raise PublicationError(f'{error}, or "keep"') from None
    except IdeabridgeError as error:
        raise PublicationError(f"choices.take.{path}: {error}") from None


# -- self-consistency -----------------------------------------------------------------------------------------------


def inconsistency(
    run: RecordedRun,
    plan: Plan,
    places: Mapping[int, int | tuple[int, ...]] | None = None,
    catalogue: Catalogue | None = None,
) -> str | None:
    """Return how the plan, with the input and the recorded results of the run, differs from the run in its calls or its
    output; None if it does not differ. Nothing runs: every call is answered with its recorded result.

    Args:
        run: the run.
        plan: the plan with the run's input.
        places: the number in the run of each call of the plan, or the numbers of the calls that were folded into it, in
            the order of its items. None: the plan is the run's own.
        catalogue: the tools; None: the tools of the run.
    """
    machine = plan_machine(run, catalogue or run.machine.catalogue, plan)
    calls, shared = plan.expanded()
    errors = machine.check(calls, plan.output, shared)
    if errors:
        return f"it cannot run by itself: {errors[0]['error']}"
    at = dict[int, int | tuple[int, ...]](enumerate(range(len(run.machine.history))) if places is None else places)
    try:
        machine.receive(SolutionProposed(calls, plan.output, None, shared, explained=plan.explained))
        fault = _run(machine, run, at)
    except JournalError as error:
        return f"other calls would run than did: {error}"
    if fault is not None:
        return fault
    if machine.phase != "ending" or (not machine.has_output and plan.output is not None):
        told = machine.errors[0]["error"] if machine.errors else "calls still wait"
        return f"other calls would run than did: {told}"
    given = given_by(machine)
    if run.is_done and not same(given, run.result):
        return f"with the recorded results it gives another output than the recorded one: {contrast(given, run.result)}"
    return None


def _recorded(at: Mapping[int, int | tuple[int, ...]], key: ExecutionKey) -> ExecutionKey | None:
    """Return the execution of the run that answers an execution of the plan."""
    index, item = key
    found = at.get(index)
    if isinstance(found, tuple):
        return (found[item], None) if item is not None and item < len(found) else None
    return None if found is None else (found, item)


def _run(machine: Machine, run: RecordedRun, at: Mapping[int, int | tuple[int, ...]]) -> str | None:
    """Answer every call as in the run, in the order in which the calls ended."""
    ended = run.ends()
    order = {(event.call, event.item): number for number, event in enumerate(ended)}
    added: dict[int, list[MessageAdded]] = {}
    for event in run.events:
        if isinstance(event, MessageAdded):
            added.setdefault(event.call, []).append(event)
    # By the place in that order; what the run did not do comes last, in the order in which it is due.
    waiting: list[tuple[int, int, Execute]] = []
    due_count = 0
    answered: set[ExecutionKey] = set()
    while True:
        while due := machine.due():
            for effect in due:
                if isinstance(effect, AskApproval):
                    # With the recorded data, what is assumed is what was recorded.
                    index = effect.call.index
                    machine.receive(ApprovalAsked(index, effect.approval, effect.digest))
                    machine.receive(CallDecided(index, effect.digest, "approve", _NOBODY))
                elif isinstance(effect, Execute):
                    machine.receive(CallStarted(*effect.key))
                    place = order.get(_recorded(at, effect.key) or (-1, None), len(order))
                    heappush(waiting, (place, due_count, effect))
                    due_count += 1
            if not any(isinstance(one, AskApproval | Execute) for one in due):
                break
        if not waiting:
            break
        _, _, effect = heappop(waiting)
        index = effect.call.index
        label = f"calls.{effect.call.place} ({effect.call.name})"
        key = _recorded(at, effect.key)
        if key is None or key not in order:
            return f"other calls would run than did: {label}"
        fault = _other_parameters(run, effect, key)
        if fault is not None:
            return f"{label} {fault}"
        done = ended[order[key]]
        answered.add(key)
        for one in added.pop(key[0], ()):
            # What it added is read by others, as its result is.
            machine.receive(MessageAdded(index, one.message))
        machine.receive(CallFinished(index, effect.item, value=done.value, error=done.error, chosen=done.chosen))
    wanted = {one for found in at.values() for one in (found if isinstance(found, tuple) else (found,))}
    left = [key for key in order if key[0] in wanted and key not in answered]
    if left:
        return f"other calls would run than did: {run.machine.history[left[0][0]].call.label} would not"
    return None


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


@dataclass
class PlanDraft:
    """A run as the plan that is published.

    Attributes:
        lifted: the lifted run.
        choices: the choices of a person.
        calls: the calls of the plan.
        output: the output of the plan.
        inputs: the input of the tool.
        parameters: the parameters made of constants.
        explained: the literals that several explanations may make.
        chosen: by path, what a person took in place of a literal.
        asks_mind: the places of calls for which a mind is asked each time.
        strict: every value that is not determined is asked for.
    """

    lifted: Lifted
    choices: Choices
    calls: list[JSON]
    output: JSON
    inputs: Inputs
    parameters: list[Parameter]
    explained: list[Explained]
    chosen: dict[str, str] = field(default_factory=dict[str, str])
    asks_mind: list[int] = field(default_factory=list[int])
    strict: bool = False

    @cached_property
    def seen(self) -> JSONObject:
        """The profiles of the values that the plan reads, by the text of their references; see `context/seen.py`."""
        profiles: JSONObject = {}
        for run in (self.lifted.aligned, *self.lifted.others):
            arguments = self.arguments(run)
            for text in self._profiled():
                value = run.read(text, arguments)
                known = profiles.get(text)
                if not isinstance(value, Missing):
                    profiles[text] = grow(known if isinstance(known, dict) else None, value)
        return profiles

    @cached_property
    def watch(self) -> dict[int, list[str]]:
        """By place, parts of the input and of results that nothing reads, and that were seen before the call was made.

        They may have decided about the call. The first call after a value watches its parts, and each later call that
        may change something.
        """
        kept = self.lifted.aligned.calls
        read = [operand_path(text) for text in self._read_texts()]
        found: dict[int, list[str]] = {}
        count = 0
        last_chosen = max((one.chosen for one in kept), default=-1)
        # The author of a plan wrote it for any input.
        places: list[int | None] = [None, *range(len(kept))] if self.lifted.requests else [*range(len(kept))]
        for place in places:
            step = -1 if place is None else kept[place].step
            if last_chosen <= step:
                # In a plan, whose calls were all chosen at once, this holds for every call.
                continue
            later = [other for other, then in enumerate(kept) if then.chosen > step]
            root = self.lifted.aligned.reference_to(ValueSource(place, ()))
            if root is None:
                continue
            parts = [
                text
                for text in _parts(root, self.lifted.aligned.document(place))
                if not any(path == operand_path(text)[: len(path)] for path in read)
            ]
            first = min(later, key=lambda other: (kept[other].step, other))
            for other in [first, *(other for other in later if other != first and not kept[other].reads_only)]:
                if count + len(parts) > _WATCHED:
                    break
                count += len(parts)
                found.setdefault(other, []).extend(parts)
        return {place: texts for place, texts in found.items() if texts}

    def _read_texts(self) -> list[str]:
        """The references with one operand that calls, the output and explanations read."""
        holes: list[Hole] = []
        compile_value([*self.calls, self.output], holes, [])
        written: list[str] = []
        for hole in holes:
            operands = list(hole.expression.operands())
            if (
                len(operands) == 1
                and operands[0].instance is None
                and operands[0].kind in ("input", "results", "state")
            ):
                written.append(hole.expression.text)
        return list(dict.fromkeys([*written, *references_of(self.explained)]))

    def _profiled(self) -> list[str]:
        return list(dict.fromkeys([*self._read_texts(), *(text for texts in self.watch.values() for text in texts)]))

    def plan(self) -> JSONObject:
        """Return the plan in the form of a publication, with the modules of its tools; see `read_published`."""
        catalogue = self.lifted.catalogue
        calls = [with_own_module(call, catalogue) for call in self.calls]
        plan: JSONObject = {**self.lifted.function.plan(), "calls": calls, "output": self.output}
        plan["pins"] = [Pin.of(tool).to_json() for tool in pinned_tools(calls, catalogue, defined_in(plan))]
        if self.explained:
            plan["explained"] = [one.to_json() for one in self.explained]
        if self.seen:
            plan["seen"] = self.seen
        decisions = [place for place in self.lifted.decisions if self.choices.take.get(f"calls.{place}") != KEEP]
        if self.watch:
            plan["watch"] = {str(place): list[JSON](texts) for place, texts in self.watch.items()}
        if decisions:
            plan["decisions"] = list[JSON](decisions)
        if self.strict:
            plan["strict"] = True
        if self.inputs.fixed:
            plan["fixed"] = self.inputs.fixed
        return plan

    def arguments(self, run: AlignedRun) -> JSONObject:
        """Return the arguments with which the tool repeats a run: its input, and its values of the parameters."""
        given = run.function.input or {}
        found: JSONObject = {key: value for key, value in given.items() if key not in self.inputs.fixed}
        for one in self.parameters:
            if one.name not in self.inputs.unfilled:
                leaf = one.leaves[0]
                value = run.leaf(leaf.place, leaf.keys) if run.calls else one.value
                if not isinstance(value, Missing):
                    found[one.name] = value
        names = self.inputs.renamed
        return {names.get(key, key): value for key, value in found.items()}

    def with_input(self, given: JSONObject) -> Plan:
        """The plan with an input."""
        return read_published(self.plan(), given, self.inputs.schema, self.lifted.function.output_schema, name="it")

    def difference(self) -> str | None:
        """Return why the plan is not self-consistent; None if it is."""
        if self.lifted.function.instances:
            plan = self.with_input(self.arguments(self.lifted.aligned))
            return inconsistency(self.lifted.function.run, plan)
        return self._differs(self.lifted.aligned)

    def _differs(self, aligned: AlignedRun) -> str | None:
        plan = self.with_input(self.arguments(aligned))
        return inconsistency(aligned.function.run, plan, aligned.recorded, self.lifted.catalogue)

    def confirmations(self) -> tuple[list[str], list[str]]:
        """Return (the runs with other data that it reproduces, why it does not reproduce others)."""
        agree: list[str] = []
        different: list[str] = []
        for other in self.lifted.others:
            why = self._differs(other)
            if why is None:
                agree.append(other.run_id)
            else:
                different.append(f"run {other.run_id}: {why}")
        return agree, different


def make_draft(
    lifted: Lifted, choices: Choices, decisions: Mapping[str, ParameterDecision], *, strict: bool = False
) -> PlanDraft:
    """Turn a lifted run into a plan with explained literals and parameters.

    Args:
        lifted: the run.
        choices: what a person takes in place of literals.
        decisions: what a person decides about parameters.
        strict: see `PlanDraft`.

    Raises:
        PublicationError: a choice or decision names a path or parameter that does not exist, or does not fit it.
    """
    making = _Making(lifted, choices, decisions)
    draft = PlanDraft(
        lifted,
        choices,
        making.calls,
        making.output,
        Inputs(lifted.function.input_schema),
        making.parameters,
        making.explained,
        making.chosen,
        strict=strict,
    )
    function = lifted.function
    inputs = inputs_of(function.input_schema, function.input or {}, making.parameters, decisions)
    draft.inputs = inputs
    if inputs.renamed:
        draft.calls = [renamed_inputs(call, inputs.renamed) for call in draft.calls]
        draft.output = renamed_inputs(draft.output, inputs.renamed)
        draft.explained = [_renamed(one, inputs.renamed) for one in draft.explained]
    draft.asks_mind = _asking(draft)
    return draft


def folds_well(lifted: Lifted) -> bool:
    """Return whether the calls of a run that were folded are explained, and whether the plan does what the run did."""
    leaves = {leaf.at: leaf for leaf in lifted.leaves}
    for place in lifted.folded:
        leaf = leaves.get(("calls", str(place), "_each"))
        if leaf is None or lifted.explained(leaf) is None:
            return False
    try:
        return not lifted.folded or make_draft(lifted, Choices(), {}).difference() is None
    except PublicationError:
        return False


_WATCHED: Final = 200
"""The most parts of results that the calls of a plan watch."""


def _parts(root: str, value: JSON | Missing) -> Iterator[str]:
    """Yield references to the parts of a result: the members of objects two deep, without their items.

    The keys of an object that are data, such as names, are other ones in each run, so they are no parts.
    """
    opened = parsed_text(value) if isinstance(value, str) else value
    if isinstance(opened, dict):
        for key, item in islice(opened.items(), 20) if has_field_names(opened) else ():
            if isinstance(item, dict) and item:
                inside = islice(item, 20) if has_field_names(item) else ()
                yield from (f"{root}{format_path((key, inner))}" for inner in inside)
            else:
                yield f"{root}{format_path((key,))}"
    elif not isinstance(value, Missing):
        yield root


class _Making:
    """Decides for each literal of a lifted run what the plan has in its place."""

    def __init__(self, lifted: Lifted, choices: Choices, decisions: Mapping[str, ParameterDecision]) -> None:
        self._lifted = lifted
        self.calls = copy.deepcopy(lifted.calls)
        self.output = copy.deepcopy(lifted.output)
        self.explained: list[Explained] = [
            tests.explained(place)
            for place, tests in lifted.tests.items()
            if choices.take.get(f"calls.{place}") != KEEP
        ]
        self.chosen: dict[str, str] = {}
        taken = self._take(choices)
        placed = {path for one in decisions.values() for path in one.at}
        open_: list[tuple[Leaf, str]] = []
        for leaf in lifted.leaves:
            if any(leaf.path == path or leaf.path.startswith(f"{path}.") for path in taken):
                continue
            explained = lifted.explained(leaf)
            if leaf.path in placed and leaf.reference is None:
                open_.append((leaf, self._tool(leaf)))
            elif explained is not None:
                self._put(leaf.place, leaf.keys, escaped(leaf.value) if leaf.reference is None else self._value(leaf))
                self.explained.append(explained)
            elif leaf.reference is not None or leaf.demanded:
                continue
            elif leaf.place is None:
                self._explain_output(leaf)
            elif leaf.keys[:1] == ("_output",):
                if lifted.requests:
                    # A mind wrote it for this input, so it is asked again for another.
                    self._without_output(leaf)
            elif not self._is_fixed(leaf):
                open_.append((leaf, self._tool(leaf)))
            elif (found := lifted.found.get(leaf.path)) is not None and (len(found.by) > 1 or found.contradicted):
                # It stays as it is, and an answer says when it might not have.
                why = VARIES if found.contradicted else None
                self.explained.append(Explained(leaf.at, tuple(found.by), lifted.agreed[leaf.path], found.cut, why))
        fixed = {name for name, one in decisions.items() if one.fix}
        self.parameters = parameters_of(open_, lifted.function.input or {}, decisions)
        for one in self.parameters:
            for leaf in one.leaves if one.name not in fixed else ():
                self._put(leaf.place, leaf.keys, format_reference(("input", one.name)))
                self._explain_parameter(one, leaf)

    def _value(self, leaf: Leaf) -> JSON:
        found = self._lifted.aligned.leaf(leaf.place, leaf.keys)
        return None if isinstance(found, Missing) else escaped(found)

    def _tool(self, leaf: Leaf) -> str:
        return (
            self._lifted.aligned.calls[leaf.place].name if leaf.place is not None and self._lifted.aligned.calls else ""
        )

    def _is_fixed(self, leaf: Leaf) -> bool:
        """Return whether a constant is no parameter: it is empty, a program, or tells a built-in tool what to do."""
        if leaf.value is None or leaf.value in ({}, []):
            return True
        call = self.calls[leaf.place or 0]
        tool = self._lifted.catalogue.look_up(call) if isinstance(call, dict) else None
        if tool is not None and tool.key == PROGRAM_STEP and leaf.keys == ("program",):
            return True
        return tool is not None and tool.module is None and _builtins().tools.get(tool.name) == tool

    def _explain_output(self, leaf: Leaf) -> None:
        if not self._lifted.requests:
            # The author of a plan wrote it before any result was seen.
            return
        found = self._lifted.found.get(leaf.path)
        by = tuple(found.by) if found is not None else (Constant(leaf.value),)
        runs = self._lifted.agreed.get(leaf.path, 1)
        contradicted = found is not None and found.contradicted
        why = VARIES if contradicted else RECORDED
        self.explained.append(Explained(leaf.at, by, runs, found is not None and found.cut, why))

    def _explain_parameter(self, parameter: Parameter, leaf: Leaf) -> None:
        """Keep the explanations that are weaker than the constant: they show when the default may be wrong."""
        found = self._lifted.found.get(leaf.path)
        weak = [one for one in found.by if not isinstance(one, Constant)] if found is not None else []
        if found is not None and (weak or found.contradicted):
            by = (PathTo(format_reference(("input", parameter.name))), *weak)
            why = VARIES if found.contradicted else None
            self.explained.append(Explained(leaf.at, by, self._lifted.agreed[leaf.path], found.cut, why))

    # -- what a person takes -----------------------------------------------------------------------------------

    def _take(self, choices: Choices) -> list[str]:
        for path, value in choices.take.items():
            always = (*self._lifted.decisions, *self._lifted.tests)
            if value == KEEP and any(path == f"calls.{place}" for place in always):
                # The call is always made.
                continue
            place, keys = self._where(path)
            if value == MIND:
                self._without_output(Leaf(path, place, keys, None))
            elif value == KEEP:
                pass
            elif isinstance(value, str):
                self._put(place, keys, value)
            else:
                explanation = read_explanation(value, where=f"choices.take.{path}")
                at = ("output", *keys) if place is None else ("calls", str(place), *keys)
                self.explained.append(Explained(at, (explanation,), SETTLED))
            self.chosen[path] = value if isinstance(value, str) else read_explanation(value).shown
        return list(self.chosen)

    def _where(self, path: str) -> tuple[int | None, Path]:
        """Return the place and the keys that a path names: a leaf, or a value that contains leaves."""
        for leaf in self._lifted.leaves:
            names = names_of(leaf.place, leaf.keys)
            for depth in range(len(names)):
                if ".".join(names[: depth + 1]) == path and (depth or leaf.place is None):
                    return leaf.place, leaf.keys[:depth]
        known = [leaf.path for leaf in self._lifted.leaves]
        raise PublicationError(f"choices.take: nothing is at {path!r}.{did_you_mean(path, known)}")

    def _put(self, place: int | None, keys: Path, value: JSON) -> None:
        if place is None:
            self.output = _with(self.output, keys, value)
        else:
            self.calls[place] = _with(self.calls[place], keys, value)

    def _without_output(self, leaf: Leaf) -> None:
        call = self.calls[leaf.place] if leaf.place is not None else None
        if isinstance(call, dict):
            call.pop("_output", None)


@cache
def _builtins() -> Toolbox:
    return builtin_toolbox()


def _with(document: JSON, keys: Path, value: JSON) -> JSON:
    if not keys:
        return value
    if isinstance(document, dict):
        return {key: _with(item, keys[1:], value) if key == keys[0] else item for key, item in document.items()}
    if isinstance(document, list):
        return [_with(item, keys[1:], value) if str(n) == keys[0] else item for n, item in enumerate(document)]
    return document


def _renamed(one: Explained, names: Mapping[str, str]) -> Explained:
    by = tuple(read_explanation(renamed_inputs(each.to_json(), names)) for each in one.by)
    return Explained(one.at, by, one.runs, one.cut, one.why)


def _asking(draft: PlanDraft) -> list[int]:
    """Return the places of calls for which a mind is asked each time."""
    places: list[int] = []
    catalogue = draft.lifted.catalogue
    for place, call in enumerate(draft.calls):
        tool = catalogue.look_up(call) if isinstance(call, dict) else None
        asks = tool is not None and (tool.key in catalogue.latent or tool.asks_mind)
        if asks and isinstance(call, dict) and "_output" not in call:
            places.append(place)
    return places
