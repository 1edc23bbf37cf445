"""Draft: a lifted run as the plan that is published, with what the publisher decided.

`PlanDraft.literals` says of each literal what a reader of the draft needs to judge whether it is plain:

- `explanations`: in the order in which they are taken; the constant alone if nothing else explains it;
- `written`: its author wrote a reference;
- `parameter`: the parameter that fills it, or that may be passed in its place (`followed`);
- `seen`: the references of the input, the results and the earlier literals where the whole value stood before;
- `changes`: its call may change something.

`PlanDraft.lifted.left_out` has the calls that the plan leaves out, with the reason.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import (
    RUNS_FOR_POSITION,
    Constant,
    Explained,
    Explanation,
    PathTo,
    operand_path,
    read_explanation,
    references_of,
)
from ideabridge.bridge.context.references import (
    Hole,
    Path,
    compile_value,
    escaped,
    format_path,
    format_reference,
)
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, Leaf, ValueSource, has_field_names, names_of
from ideabridge.bridge.lifting.choices import KEEP, MIND, Choices
from ideabridge.bridge.lifting.consistency import inconsistency
from ideabridge.bridge.lifting.lifted import JUDGED, RECORDED, VARIES, Lifted
from ideabridge.bridge.lifting.parameters import (
    Inputs,
    Parameter,
    ParameterDecision,
    Slot,
    inputs_of,
    parameters_of,
    renamed_inputs,
)
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.runs.pins import Pin, defined_in, pinned_tools, with_own_module
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import PROGRAM_STEP
from ideabridge.tools.toolbox import Toolbox

_WATCHED: Final = 200
"""The most parts of results that the calls of a plan watch."""

_EXPLANATIONS: Final = 40_000
"""The most explanations of one plan."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A part of a draft; see the module's docstring.

    Attributes:
        leaf: the part, with its recorded value.
        explanations: what may have made it, in the order in which they are taken.
        written: its author wrote a reference.
        parameter: the name of the parameter that fills it, or that may be passed in its place; None: there is none.
        followed: True if the parameter is only taken where it is passed.
        seen: the references where the whole value stood before it was written.
        changes: its call may do more than read.
    """

    leaf: Leaf
    explanations: tuple[Explanation, ...]
    written: bool
    parameter: str | None
    followed: bool
    seen: tuple[str, ...]
    changes: bool


@dataclass
class PlanDraft:
    """A run as the plan that is published.

    Attributes:
        lifted: the lifted run.
        choices: the choices of a person.
        calls: the calls of the plan.
        output: the output of the plan.
        inputs: the input of the tool.
        parameters: the parameters made of literals.
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

    @property
    def literals(self) -> list[Literal]:
        """Every part of the calls and of the output, in the order of the plan."""
        lifted = self.lifted
        by_leaf: dict[str, Parameter] = {}
        for parameter in self.parameters:
            if parameter.name not in self.inputs.unfilled:
                by_leaf.update((leaf.path, parameter) for leaf in parameter.leaves)
        found: list[Literal] = []
        for leaf in lifted.leaves:
            of_leaf = lifted.found.get(leaf.path)
            by = tuple(of_leaf.by) if of_leaf is not None else ()
            parameter = by_leaf.get(leaf.path)
            name = None if parameter is None else self.inputs.renamed.get(parameter.name, parameter.name)
            changes = leaf.place is not None and not lifted.reads_only(leaf.place)
            found.append(
                Literal(
                    leaf,
                    by or (() if leaf.reference is not None else (Constant(leaf.value),)),
                    leaf.reference is not None,
                    name,
                    parameter is not None and parameter.followed,
                    tuple(one.reference for one in by if isinstance(one, PathTo)),
                    changes,
                )
            )
        return found

    # -- what the plan reads ---------------------------------------------------------------------------------------

    @cached_property
    def seen(self) -> JSONObject:
        """The profiles of the values that the plan reads, by the text of their references; see `context/seen.py`."""
        texts = dict.fromkeys([*self._read_texts, *(text for texts in self.watch.values() for text in texts)])
        profiles: JSONObject = {}
        for run in (self.lifted.aligned, *self.lifted.others):
            arguments = self.arguments(run)
            for text in texts:
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
        read = {operand_path(text) for text in self._read_texts}
        order = sorted(range(len(kept)), key=lambda place: (kept[place].step, place))
        steps = [kept[place].step for place in order]
        found: dict[int, list[str]] = {}
        count = 0
        # The author of a plan wrote it for any input, and had seen no results.
        places: list[int | None] = [None, *range(len(kept))] if self.lifted.requests else []
        for place in places:
            step = -1 if place is None else kept[place].step
            later = order[bisect_right(steps, step) :] if step < steps[-1] else []
            root = self.lifted.aligned.reference_to(ValueSource(place, ()))
            if root is None or not later:
                continue
            parts = [
                text
                for text in _parts(root, self.lifted.aligned.document(place))
                if not _is_read(operand_path(text), read)
            ]
            if not parts:
                continue
            after = (other for other in later if kept[other].chosen > step)
            for number, other in enumerate(after):
                if number and kept[other].reads_only:
                    continue
                if count + len(parts) > _WATCHED:
                    return found
                count += len(parts)
                found.setdefault(other, []).extend(parts)
        return found

    @cached_property
    def _read_texts(self) -> list[str]:
        """The references with one operand that calls, the output and explanations read."""
        holes: list[Hole] = []
        compile_value([*self.calls, self.output], holes, [])
        written: list[str] = []
        for hole in holes:
            operands = list(hole.expression.operands())
            if len(operands) == 1 and operands[0].instance is None and operands[0].kind in _READABLE:
                written.append(hole.expression.text)
        return list(dict.fromkeys([*written, *references_of(self.explained)]))

    # -- the plan --------------------------------------------------------------------------------------------------

    def plan(self) -> JSONObject:
        """Return the plan in the form of a publication, with the modules of its tools; see `read_published`."""
        return dict(self._plan)

    @cached_property
    def _plan(self) -> JSONObject:
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
        if self.lifted.requests:
            plan["copied"] = 1 + len(self.lifted.others)
        if self.strict:
            plan["strict"] = True
        if self.inputs.fixed:
            plan["fixed"] = self.inputs.fixed
        return plan

    def arguments(self, run: AlignedRun) -> JSONObject:
        """Return the arguments with which the tool repeats a run: its input, and its values of the parameters that have
        a default. What the plan follows need not be passed.
        """
        given = run.function.input or {}
        found: JSONObject = {key: value for key, value in given.items() if key not in self.inputs.fixed}
        for one in self.parameters:
            if one.name not in self.inputs.unfilled and not one.followed:
                leaf = one.leaves[0]
                value = run.leaf(leaf.place, leaf.keys) if run.calls else one.value
                if not isinstance(value, Missing):
                    found[one.name] = value
        names = self.inputs.renamed
        return {names.get(key, key): value for key, value in found.items()}

    def with_input(self, given: JSONObject) -> Plan:
        """The plan with an input."""
        return read_published(self._plan, given, self.inputs.schema, self.lifted.function.output_schema, name="it")

    # -- self-consistency ------------------------------------------------------------------------------------------

    def difference(self) -> str | None:
        """Return why the plan is not self-consistent; None if it is."""
        return self._difference

    @cached_property
    def _difference(self) -> str | None:
        if self.lifted.function.instances:
            plan = self.with_input(self.arguments(self.lifted.aligned))
            return inconsistency(self.lifted.function.run, plan)
        return self._differs(self.lifted.aligned)

    def _differs(self, aligned: AlignedRun) -> str | None:
        plan = self.with_input(self.arguments(aligned))
        unmade = [place for place, call in enumerate(aligned.calls) if not call.is_made]
        return inconsistency(aligned.function.run, plan, aligned.recorded, self.lifted.catalogue, unmade)

    def confirmations(self) -> tuple[list[str], list[str]]:
        """Return (the runs with other data that it reproduces, why it does not reproduce others)."""
        return self._confirmations

    @cached_property
    def _confirmations(self) -> tuple[list[str], list[str]]:
        agree: list[str] = []
        different: list[str] = []
        for other in self.lifted.others:
            why = self._differs(other)
            if why is None:
                agree.append(other.run_id)
            else:
                different.append(f"run {other.run_id}: {why}")
        return agree, different


_READABLE: Final = ("input", "results", "state")


def _is_read(path: Path, read: set[Path]) -> bool:
    return any(path[:length] in read for length in range(1, len(path) + 1))


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


# -- making a draft -------------------------------------------------------------------------------------------------


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
    function = lifted.function
    first = {one.at: _renamed(one, making.names).by[0] for one in making.explained if one.given is not None}
    for parameter in making.parameters:
        parameter.source = first.get(parameter.leaves[0].at, parameter.source)
    inputs = inputs_of(function.input_schema, function.input or {}, making.parameters, decisions)
    names = {**making.names, **inputs.renamed}
    for path, name in making.names.items():
        names[path] = inputs.renamed.get(name, name)
    draft = PlanDraft(
        lifted,
        choices,
        [renamed_inputs(call, inputs.renamed) for call in making.calls],
        renamed_inputs(making.output, inputs.renamed),
        inputs,
        making.parameters,
        _bounded([_renamed(one, names) for one in making.explained]),
        making.chosen,
        strict=strict,
    )
    draft.asks_mind = _asking(draft)
    return draft


def _renamed(one: Explained, names: Mapping[str, str]) -> Explained:
    if not names:
        return one
    by: list[Explanation] = []
    for each in one.by:
        reads_input = any(reference.startswith("†input") for reference in each.references)
        renamed = read_explanation(renamed_inputs(each.to_json(), names)) if reads_input else each
        if renamed not in by:
            by.append(renamed)
    given = one.given
    if given is not None:
        path = operand_path(given)
        given = format_reference(("input", names.get(path[1], path[1]), *path[2:]))
    return replace(one, by=tuple(by), given=given)


def _bounded(explained: list[Explained]) -> list[Explained]:
    """Keep so many explanations of each literal that a plan of many calls can be read."""
    if sum(len(one.by) for one in explained) <= _EXPLANATIONS:
        return explained
    most = max(1, _EXPLANATIONS // len(explained))
    return [replace(one, by=one.by[:most], cut=True) if len(one.by) > most else one for one in explained]


class _Making:
    """Decides for each literal of a lifted run what the plan has in its place.

    Attributes:
        calls, output: those of the plan.
        explained: the literals with their explanations.
        chosen: by path, what a person took.
        parameters: the parameters made of literals.
        names: by the path of an earlier literal that explains later ones, the name of its parameter.
    """

    def __init__(self, lifted: Lifted, choices: Choices, decisions: Mapping[str, ParameterDecision]) -> None:
        self._lifted = lifted
        self.calls = copy.deepcopy(lifted.calls)
        self.output = copy.deepcopy(lifted.output)
        self.explained: list[Explained] = []
        self.chosen: dict[str, str] = {}
        self.names: dict[str, str] = {}
        taken = self._take(choices)
        self._placed = {path for one in decisions.values() for path in one.at}
        self._slots: list[Slot] = []
        for leaf in lifted.leaves:
            if not any(leaf.path == path or leaf.path.startswith(f"{path}.") for path in taken):
                self._decide(leaf)

        fixed = {name for name, one in decisions.items() if one.fix}
        task = "\n".join(str(message.value) for message in lifted.function.run.machine.messages)
        self.parameters = parameters_of(self._slots, lifted.function.input or {}, decisions, task)
        given: dict[Path, str] = {}
        for parameter in self.parameters:
            if parameter.followed and parameter.name not in fixed:
                given.update((leaf.at, parameter.reference) for leaf in parameter.leaves)
            elif parameter.name not in fixed:
                self._fill(parameter)
        self.explained = [replace(one, given=given.get(one.at)) for one in self.explained]
        self.explained = [one for one in map(self._with_named_literals, self.explained) if one is not None]

    def _decide(self, leaf: Leaf) -> None:
        """Decide what the plan has in the place of a literal."""
        lifted = self._lifted
        explained = lifted.explained(leaf)
        if leaf.path in self._placed and leaf.reference is None:
            self._slots.append(Slot(leaf, self._tool(leaf)))
        elif explained is not None and self._repeats(leaf, explained.by[0]):
            # It is filled by the parameter of the earlier literal.
            self._slots.append(Slot(leaf, self._tool(leaf)))
        elif explained is not None:
            self._put(leaf.place, leaf.keys, escaped(leaf.value) if leaf.reference is None else self._value(leaf))
            self.explained.append(explained)
            if self._is_followed(leaf, explained.by[0]):
                self._slots.append(Slot(leaf, self._tool(leaf), explained.by[0]))
        elif leaf.reference is not None or leaf.demanded:
            return
        elif leaf.place is None:
            self._explain_output(leaf)
        elif leaf.keys[:1] == ("_output",):
            if lifted.requests:
                # A mind wrote it for this input, so it is asked again for another.
                self._without_output(leaf)
        elif not self._is_fixed(leaf):
            self._slots.append(Slot(leaf, self._tool(leaf)))
        else:
            self._explain_fixed(leaf)

    def _repeats(self, leaf: Leaf, first: Explanation) -> bool:
        """Return whether a literal is the same parameter of a call again as an earlier literal."""
        literal = self._lifted.literal_of(first.reference) if isinstance(first, PathTo) else None
        return literal is not None and not literal[1] and literal[0].keys[-1:] == leaf.keys[-1:]

    def _is_followed(self, leaf: Leaf, first: Explanation) -> bool:
        """Return whether a literal of a call follows an earlier result or literal, and no member of the input alone."""
        if leaf.place is None or leaf.reference is not None or not self._lifted.requests:
            return False
        return not all(
            operand_path(text)[0] == "input" and self._lifted.literal_of(text) is None for text in first.references
        )

    def _value(self, leaf: Leaf) -> JSON:
        found = self._lifted.aligned.leaf(leaf.place, leaf.keys)
        return None if isinstance(found, Missing) else escaped(found)

    def _tool(self, leaf: Leaf) -> str:
        calls = self._lifted.aligned.calls
        return calls[leaf.place].name if leaf.place is not None and calls else ""

    def _is_fixed(self, leaf: Leaf) -> bool:
        """Return whether a constant is no parameter: it is empty, a program, or tells a built-in tool what to do."""
        if leaf.value is None or leaf.value in ({}, []):
            return True
        call = self.calls[leaf.place or 0]
        tool = self._lifted.catalogue.look_up(call) if isinstance(call, dict) else None
        if tool is not None and tool.key == PROGRAM_STEP and leaf.keys == ("program",):
            return True
        return tool is not None and tool.module is None and _builtins().tools.get(tool.name) == tool

    def _explain_fixed(self, leaf: Leaf) -> None:
        """Let a literal stay as it is; an answer says when it might not have."""
        found = self._lifted.found.get(leaf.path)
        if found is not None and (len(found.by) > 1 or found.contradicted):
            why = VARIES if found.contradicted else None
            self.explained.append(Explained(leaf.at, tuple(found.by), self._lifted.agreed[leaf.path], found.cut, why))

    def _explain_output(self, leaf: Leaf) -> None:
        if not self._lifted.requests:
            # The author of a plan wrote it before any result was seen.
            return
        found = self._lifted.found.get(leaf.path)
        by = tuple(found.by) if found is not None else (Constant(leaf.value),)
        runs = self._lifted.agreed.get(leaf.path, 1)
        cut = found is not None and found.cut
        if found is not None and found.contradicted:
            self.explained.append(Explained(leaf.at, by, runs, cut, VARIES))
            return
        made = self._made_value(leaf, by)
        if made is not None:
            others = tuple(one for one in by if one is not made)
            self.explained.append(Explained(leaf.at, (made, *others), runs, cut))
            return
        why = RECORDED if isinstance(leaf.value, str) else JUDGED
        self.explained.append(Explained(leaf.at, by, runs, cut, why))

    def _made_value(self, leaf: Leaf, by: Sequence[Explanation]) -> PathTo | None:
        """Return the only place where a call made the number that the run returns, such as the id of a new issue; None
        if there is none, or if there are several.

        Elsewhere an equal number is there by chance: a page, while the run counted. A truth value is equal by chance in
        half of all cases, so it may always be what a mind judged.
        """
        if isinstance(leaf.value, bool) or not isinstance(leaf.value, int | float):
            return None
        made: list[PathTo] = []
        for one in by:
            if not isinstance(one, PathTo) or one.has_positions:
                continue
            match one.path:
                case ("results", _):
                    made.append(one)
                case ("results", place, *_) if not self._lifted.reads_only(int(place)):
                    made.append(one)
                case _:
                    pass
        return made[0] if len(made) == 1 else None

    # -- parameters ------------------------------------------------------------------------------------------------

    def _fill(self, parameter: Parameter) -> None:
        """Put a parameter in the place of its literals."""
        reference = format_reference(("input", parameter.name))
        for leaf in parameter.leaves:
            self.names[leaf.path] = parameter.name
            self._put(leaf.place, leaf.keys, reference)
            # What else may have made it shows when the default may be wrong.
            found = self._lifted.found.get(leaf.path)
            others = [one for one in found.by if not isinstance(one, Constant)] if found is not None else []
            if found is not None and (others or found.contradicted):
                by = (PathTo(reference), *(one for one in others if not self._is_literal(one)))
                why = VARIES if found.contradicted else None
                if len(by) > 1 or why is not None:
                    runs = self._lifted.agreed[leaf.path]
                    self.explained.append(Explained(leaf.at, by, runs, found.cut, why))

    def _is_literal(self, one: Explanation) -> bool:
        return isinstance(one, PathTo) and self._lifted.literal_of(one.reference) is not None

    def _with_named_literals(self, one: Explained) -> Explained | None:
        """Leave out the explanations by earlier literals that are no parameters; None if only the constant is left."""
        by = [each for each in one.by if all(map(self._is_named, each.references))]
        if len(by) == len(one.by):
            return one
        if one.at[0] == "calls" and one.given is None and all(isinstance(each, Constant) for each in by):
            return None
        return replace(one, by=tuple(by))

    def _is_named(self, reference: str) -> bool:
        literal = self._lifted.literal_of(reference)
        return literal is None or literal[0].path in self.names

    # -- what a person takes ---------------------------------------------------------------------------------------

    def _take(self, choices: Choices) -> list[str]:
        for path, value in choices.take.items():
            if value == KEEP and any(path == f"calls.{place}" for place in self._lifted.decisions):
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
                self.explained.append(Explained(at, (explanation,), RUNS_FOR_POSITION))
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
