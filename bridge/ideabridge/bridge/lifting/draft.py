"""The plan that is published from a lifted run, with the publisher's decisions applied."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from typing import Final

from ideabridge.bridge.context.computed import put_in
from ideabridge.bridge.context.explanations import (
    COPIED_PART,
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
    Path,
    escaped,
    format_path,
    format_reference,
    holes_in,
)
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import Missing, opened
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, ValueSource, has_field_names
from ideabridge.bridge.lifting.choices import KEEP, MIND, Choices
from ideabridge.bridge.lifting.consistency import inconsistency
from ideabridge.bridge.lifting.function import Executed
from ideabridge.bridge.lifting.leaves import Leaf, keys_below, path_of, place_in
from ideabridge.bridge.lifting.lifted import JUDGED, RECORDED, VARIES, Lifted
from ideabridge.bridge.lifting.parameters import (
    Inputs,
    Parameter,
    ParameterDecision,
    inputs_of,
    parameters_of,
    renamed_inputs,
)
from ideabridge.bridge.lifting.rows import source_in_words
from ideabridge.bridge.lifting.search import Found, is_constant
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.runs.pins import pins_for, with_own_module
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    list_or_empty,
    number_or_none,
    object_or_empty,
)
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import PROGRAM_STEP
from ideabridge.tools.toolbox import Toolbox
from ideabridge.tools.typed import read_as

_WATCHED: Final = 200
"""The maximum number of parts of the input and of results that the calls in a plan can watch. A
part counts once for each call that watches it.
"""

_EXPLANATIONS: Final = 40_000
"""The maximum number of explanations in one plan."""


@dataclass
class PlanDraft:
    """The plan that is published from a run.

    Attributes:
        lifted: the lifted run.
        choices: a person's choices.
        calls: the calls of the plan.
        output: the output of the plan.
        inputs: the tool's input.
        parameters: the parameters that replace literals.
        explained: the literals that have several possible explanations.
        chosen: the replacements that a person chose for literals, keyed by the literals' paths.
        asks_mind: the places of the calls that ask a mind each time.
        strict: True if a run of the plan asks about every undetermined value.
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

    # -- input of the plan -------------------------------------------------------------------------

    @cached_property
    def seen(self) -> JSONObject:
        """Profiles of the values that the plan reads, keyed by reference; see `context/seen.py`."""
        texts = dict.fromkeys(self.references)
        for watched in self.watch.values():
            texts.update(dict.fromkeys(watched))

        profiles: dict[str, JSONObject] = {}
        for run in (self.lifted.aligned, *self.lifted.others):
            arguments = self.arguments(run)
            for text in texts:
                value = run.read(text, arguments)
                is_absent = isinstance(value, Missing)
                if is_absent and (text not in profiles or not _has_document(run, text)):
                    continue
                # If a later run lacks a part that the first run had, record the part as optional.
                profiles[text] = grow(profiles.get(text), value)

        return {**profiles}

    @cached_property
    def watch(self) -> dict[int, list[str]]:
        """For each call, the unread parts of the input and of results that the call's author had
        seen, keyed by the place of the call.

        Such a part might be the reason for the call. The parts of a value are watched by the first
        call after the value, and by each later call that might change something.
        """
        if not self.lifted.requests:
            # The author wrote the plan for any input, before any result existed, so no part can
            # have been the reason for a call.
            return {}

        calls = self.lifted.aligned.calls
        read = {operand_path(text) for text in self.references}
        later = _LaterCalls(calls)
        watched: dict[int, list[str]] = {}
        count = 0
        for place in (None, *range(len(calls))):
            parts = self._unread_parts(place, read)
            if not parts:
                continue

            for other in later.after(-1 if place is None else calls[place].step):
                count += len(parts)
                if count > _WATCHED:
                    return watched
                watched.setdefault(other, []).extend(parts)

        return watched

    def _unread_parts(self, place: int | None, read: set[Path]) -> list[str]:
        """Return references to the unread parts of the input or of a result."""
        aligned = self.lifted.aligned
        root = aligned.reference_to(ValueSource(place, ()))
        if root is None:
            return []

        unread: list[str] = []
        for text in _parts(root, aligned.document(place)):
            path = operand_path(text)
            prefixes = {path[:length] for length in range(1, len(path) + 1)}
            if read.isdisjoint(prefixes):
                unread.append(text)

        return unread

    @cached_property
    def references(self) -> list[str]:
        """The single-operand references that occur in calls, the output and explanations."""
        references: list[str] = []
        for hole in holes_in([*self.calls, self.output]):
            first, *others = hole.expression.operands()
            if not others and first.instance is None and first.kind in _READABLE:
                references.append(hole.expression.text)

        references += references_of(self.explained)
        return list(dict.fromkeys(references))

    # -- the plan ----------------------------------------------------------------------------------

    def plan(self) -> JSONObject:
        """Return the plan in its published form, with the servers of its tools; see
        `read_published`.
        """
        return dict(self._plan)

    @cached_property
    def _plan(self) -> JSONObject:
        catalogue = self.lifted.catalogue
        calls = [with_own_module(call, catalogue) for call in self.calls]
        plan: JSONObject = {**self.lifted.function.plan(), "calls": calls, "output": self.output}
        plan["pins"] = pins_for(read_as(PublishedPlan, plan), calls, catalogue)
        if self.explained:
            plan["explained"] = [literal.to_json() for literal in self.explained]

        if self.seen:
            plan["seen"] = self.seen

        if self.watch:
            plan["watch"] = {str(place): list[JSON](texts) for place, texts in self.watch.items()}

        decisions: list[JSON] = [
            place
            for place in self.lifted.decisions
            if self.choices.take.get(f"calls.{place}") != KEEP
        ]
        if decisions:
            plan["decisions"] = decisions

        if self.lifted.requests:
            plan["copied"] = 1 + len(self.lifted.others)

        if self.strict:
            plan["strict"] = True

        if self.inputs.fixed:
            plan["fixed"] = self.inputs.fixed

        return plan

    def arguments(self, run: AlignedRun) -> JSONObject:
        """Return the arguments for which the tool repeats a run: the run's input, and the run's
        values for the parameters that have a default. Followed values need not be passed.
        """
        arguments: JSONObject = {}
        for key, value in (run.function.input or {}).items():
            if key not in self.inputs.fixed:
                arguments[key] = value

        for parameter in self.parameters:
            if parameter.name in self.inputs.unfilled or parameter.followed:
                continue
            leaf = parameter.leaves[0]
            recorded = run.leaf(leaf.at) if run.calls else parameter.value
            if not isinstance(recorded, Missing):
                arguments[parameter.name] = recorded

        names = self.inputs.renamed
        return {names.get(key, key): value for key, value in arguments.items()}

    def with_input(self, arguments: JSONObject) -> Plan:
        """Return the plan with the given input."""
        return read_published(
            self._plan, arguments, self.inputs.schema, self.lifted.function.output_schema, name="it"
        )

    # -- self-consistency --------------------------------------------------------------------------

    def difference(self) -> str | None:
        """Return why the plan is not self-consistent, or None if it is."""
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
        return inconsistency(
            aligned.function.run, plan, aligned.recorded, self.lifted.catalogue, unmade
        )

    def confirmations(self) -> tuple[list[str], list[str]]:
        """Return the ids of the runs with other data that the plan reproduces, and a reason for
        each of those that it does not reproduce.
        """
        return self._confirmations

    @cached_property
    def _confirmations(self) -> tuple[list[str], list[str]]:
        agree: list[str] = []
        different: list[str] = []
        for other in self.lifted.others:
            difference = self._differs(other)
            if difference is None:
                agree.append(other.run_id)
            else:
                different.append(f"run {other.run_id}: {difference}")

        return agree, different


def _has_document(run: AlignedRun, reference: str) -> bool:
    """Return whether a run has the result that a reference reads, or that it reads a part of."""
    path = operand_path(reference)
    return path[0] == "results" and not isinstance(run.read(format_reference(path[:2])), Missing)


class _LaterCalls:
    """A run's calls, in the order of their Requests."""

    def __init__(self, calls: Sequence[Executed]) -> None:
        self._calls = calls
        self._order = sorted(range(len(calls)), key=self._step)
        self._changes = [place for place in self._order if not calls[place].reads_only]

    def _step(self, place: int) -> int:
        return self._calls[place].step

    def after(self, step: int) -> Iterator[int]:
        """Yield the first call that was chosen after a Request, then each later call that might
        change something.
        """
        first = next(self._chosen_after(step, self._order), None)
        if first is None:
            return

        yield first
        for place in self._chosen_after(step, self._changes):
            if place != first:
                yield place

    def _chosen_after(self, step: int, places: Sequence[int]) -> Iterator[int]:
        for number in range(bisect_right(places, step, key=self._step), len(places)):
            if self._calls[places[number]].chosen > step:
                yield places[number]


_READABLE: Final = ("input", "results", "state")

_MEMBERS: Final = 20
"""The maximum number of an object's members that count as parts of a result."""


def _parts(root: str, value: JSON | Missing) -> Iterator[str]:
    """Yield references to the parts of a result: members of objects, down to two levels, but no
    list items.
    """
    members = opened(value)
    if not isinstance(members, dict):
        if not isinstance(value, Missing):
            yield root
        return

    for key in _fields(members):
        inner = members[key]
        if not isinstance(inner, dict) or not inner:
            yield f"{root}{format_path((key,))}"
            continue
        for inner_key in _fields(inner):
            yield f"{root}{format_path((key, inner_key))}"


def _fields(members: JSONObject) -> list[str]:
    """Return the first keys of an object, or nothing if the keys are data that differs between
    runs, such as people's names.
    """
    return list(islice(members, _MEMBERS)) if has_field_names(members) else []


# -- making a draft --------------------------------------------------------------------------------


def make_draft(
    lifted: Lifted,
    choices: Choices,
    decisions: Mapping[str, ParameterDecision],
    *,
    strict: bool = False,
) -> PlanDraft:
    """Turn a lifted run into a plan with explained literals and parameters.

    Args:
        lifted: the run.
        choices: a person's replacements for literals.
        decisions: a person's decisions about parameters.
        strict: see `PlanDraft`.

    Raises:
        PublicationError: a choice names a path that does not exist, a decision names a parameter
            that does not exist, or one of them does not fit what it names.
    """
    making = _Making(lifted, choices, decisions)
    function = lifted.function
    inputs = inputs_of(function.input_schema, function.input or {}, making.parameters, decisions)
    written, output = making.written()
    calls = [renamed_inputs(call, inputs.renamed) for call in written]
    return PlanDraft(
        lifted,
        choices,
        calls,
        renamed_inputs(output, inputs.renamed),
        inputs,
        making.parameters,
        _bounded([_renamed(literal, inputs.renamed) for literal in making.explained]),
        making.chosen,
        _asking(calls, lifted.catalogue),
        strict,
    )


def _renamed(literal: Explained, names: Mapping[str, str]) -> Explained:
    """Return a copy of a literal whose explanations use the new names for the members of the
    input.
    """
    if not names:
        return literal

    by: list[Explanation] = []
    for explanation in literal.by:
        renamed = explanation
        if any(reference.startswith("†input") for reference in explanation.references):
            renamed = read_explanation(renamed_inputs(explanation.to_json(), names))

        if renamed not in by:
            by.append(renamed)

    parameter = literal.given
    if parameter is not None:
        parameter = str(renamed_inputs(parameter, names))

    return replace(literal, by=tuple(by), given=parameter)


def _bounded(explained: list[Explained]) -> list[Explained]:
    """Limit the number of explanations for each literal, so that plans with many calls stay
    readable.
    """
    if sum(len(literal.by) for literal in explained) <= _EXPLANATIONS:
        return explained

    most = max(1, _EXPLANATIONS // len(explained))
    bounded: list[Explained] = []
    for literal in explained:
        if len(literal.by) > most:
            literal = replace(literal, by=literal.by[:most], cut=True)
        bounded.append(literal)

    return bounded


class _Making:
    """Decides what replaces each literal of a lifted run in the plan.

    Attributes:
        explained: the literals with their explanations.
        chosen: the replacements that a person chose, keyed by the literal's path.
        parameters: the parameters that replace literals.
    """

    def __init__(
        self, lifted: Lifted, choices: Choices, decisions: Mapping[str, ParameterDecision]
    ) -> None:
        self._lifted = lifted
        self.explained: list[Explained] = []
        self.chosen: dict[str, str] = {}
        # The values that replace literals, keyed by the literals' paths in the plan.
        self._replaced: dict[Path, JSON] = {}
        self._asked_again: set[int | None] = set()
        # For each earlier literal that explains later literals, the name of the parameter that
        # replaces it, keyed by the path of the literal.
        self._names: dict[str, str] = {}
        self._take(choices)
        self._placed = {path for decision in decisions.values() for path in decision.at}
        self._fillable: list[Parameter] = []
        for leaf in lifted.leaves:
            if not leaf.is_within(self.chosen):
                self._decide(leaf)

        fixed = {name for name, decision in decisions.items() if decision.fix}
        task = "\n".join(str(message.value) for message in lifted.function.run.machine.messages)
        self.parameters = parameters_of(
            self._fillable, lifted.function.input or {}, decisions, task
        )
        references: dict[Path, str] = {}
        for parameter in self.parameters:
            if parameter.name in fixed:
                continue
            if parameter.followed:
                references.update((leaf.at, parameter.reference) for leaf in parameter.leaves)
            else:
                self._fill(parameter)

        self._name_literals(references)

    def written(self) -> tuple[list[JSON], JSON]:
        """Return the plan's calls and output."""
        recorded: JSONObject = {"calls": self._lifted.calls, "output": self._lifted.output}
        plan = object_or_empty(put_in(recorded, self._replaced))
        calls: list[JSON] = []
        for place, call in enumerate(list_or_empty(plan["calls"])):
            if place in self._asked_again and isinstance(call, dict):
                calls.append({key: value for key, value in call.items() if key != "_output"})
            else:
                calls.append(call)

        return calls, plan["output"]

    def _decide(self, leaf: Leaf) -> None:
        """Decide what replaces a literal in the plan."""
        explained = self._lifted.explained(leaf)
        if leaf.path in self._placed and leaf.reference is None:
            self._let_fill(leaf)
        elif explained is not None:
            self._put_in(leaf, explained)
        elif leaf.reference is not None or leaf.demanded:
            return
        elif leaf.place is None:
            self._explain_output(leaf)
        elif leaf.keys[:1] == ("_output",):
            if self._lifted.requests:
                # A mind wrote this `_output` for the recorded input, so for a different input, a
                # mind must write it again.
                self._asked_again.add(leaf.place)
        elif self._is_fixed(leaf):
            self._explain_fixed(leaf)
        else:
            self._let_fill(leaf)

    def _put_in(self, leaf: Leaf, explained: Explained) -> None:
        """Use the recorded value for an explained literal."""
        first = explained.by[0]
        if self._repeats(leaf, first):
            # The parameter that replaces the earlier literal fills this one, too.
            self._let_fill(leaf)
            return

        value: JSON | Missing = leaf.value
        if leaf.reference is not None:
            value = self._lifted.aligned.leaf(leaf.at)

        self._replaced[leaf.at] = None if isinstance(value, Missing) else escaped(value)
        self.explained.append(explained)
        if self._is_followed(leaf, first):
            self._let_fill(leaf, first)

    def _explain_fixed(self, leaf: Leaf) -> None:
        """Leave a constant unchanged, but record its other explanations, so that an answer can say
        that the constant might be wrong.
        """
        explanations = self._lifted.explanations_by_path.get(leaf.path)
        if explanations is None:
            return

        reason = _copied_part(explanations)
        if len(explanations.by) > 1 or explanations.contradicted or reason is not None:
            self._explain(leaf, explanations, explanations.by, reason)

    def _let_fill(self, leaf: Leaf, source: Explanation | None = None) -> None:
        """Let a parameter replace a literal. If the literal has a source, it is replaced only when
        the caller passes the parameter.
        """
        calls = self._lifted.aligned.calls
        tool = ""
        if leaf.place is not None and calls:
            tool = calls[leaf.place].name

        self._fillable.append(Parameter("", leaf.value, [leaf], tool, source))

    def _explain(
        self, leaf: Leaf, explanations: Found, by: Sequence[Explanation], reason: str | None = None
    ) -> None:
        if explanations.contradicted:
            reason = VARIES
        self.explained.append(
            Explained(leaf.at, tuple(by), explanations.runs, explanations.cut, reason)
        )

    def _repeats(self, leaf: Leaf, first: Explanation) -> bool:
        """Return whether a literal repeats the value of an earlier literal whose parameter has the
        same name.
        """
        literal = self._literal_read(first)
        return literal is not None and not literal[1] and literal[0].keys[-1:] == leaf.keys[-1:]

    def _literal_read(self, explanation: Explanation) -> tuple[Leaf, Path] | None:
        """Return the earlier literal that an explanation reads, and the keys below it, or None if
        the explanation is not such a path.
        """
        if isinstance(explanation, PathTo):
            return self._lifted.literal_of(explanation.reference)
        return None

    def _is_followed(self, leaf: Leaf, first: Explanation) -> bool:
        """Return whether a literal in a call comes from an earlier result or literal, and not only
        from the input.
        """
        if leaf.place is None or leaf.reference is not None or not self._lifted.requests:
            return False
        return not all(
            operand_path(text)[0] == "input" and self._lifted.literal_of(text) is None
            for text in first.references
        )

    def _is_fixed(self, leaf: Leaf) -> bool:
        """Return whether a constant must not become a parameter. This applies to empty values, to
        programs, and to values that control what a built-in tool does.
        """
        if leaf.value in (None, {}, []):
            return True

        call = self._lifted.calls[leaf.place or 0]
        tool = self._lifted.catalogue.look_up(WrittenCall.of(call))
        if tool is None:
            return False
        if tool.key == PROGRAM_STEP and leaf.keys == ("program",):
            return True
        return tool.module is None and _builtins().tools.get(tool.name) == tool

    def _explain_output(self, leaf: Leaf) -> None:
        if not self._lifted.requests:
            # The author of a plan wrote its output before any result existed to copy from.
            return

        explanations = self._lifted.explanations_by_path.get(leaf.path) or Found(
            [Constant(leaf.value)]
        )
        source = None
        if not explanations.contradicted:
            source = self._made_value(leaf, explanations.by)

        if source is not None:
            others = [explanation for explanation in explanations.by if explanation is not source]
            self._explain(leaf, explanations, [source, *others])
            return

        reason = RECORDED if isinstance(leaf.value, str) else JUDGED
        self._explain(leaf, explanations, explanations.by, reason)

    def _made_value(self, leaf: Leaf, by: Sequence[Explanation]) -> PathTo | None:
        """Return the path to the number, or string of digits, that the run returns, such as the id
        of a new issue. Return None unless exactly one call produced it.

        Results of read-only calls do not count, because an equal number in such a result, such as a
        page number, can be a coincidence. Booleans do not count either: they are equal by chance
        half of the time, so they might be a mind's judgement.
        """
        if not _is_number(leaf.value):
            return None

        sources = [
            explanation
            for explanation in by
            if isinstance(explanation, PathTo) and self._is_of_change(explanation)
        ]
        return sources[0] if len(sources) == 1 else None

    def _is_of_change(self, path: PathTo) -> bool:
        """Return whether a path reads a whole result, or a part of the result of a call that might
        have changed something.
        """
        match path.path:
            case ("results", place, *keys) if not path.has_positions:
                return not keys or not self._lifted.aligned.calls[int(place)].reads_only
            case _:
                return False

    # -- parameters --------------------------------------------------------------------------------

    def _fill(self, parameter: Parameter) -> None:
        """Replace literals with their parameter."""
        for leaf in parameter.leaves:
            self._names[leaf.path] = parameter.name
            self._replaced[leaf.at] = parameter.reference
            explanations = self._lifted.explanations_by_path.get(leaf.path)
            if explanations is None:
                continue
            # Keep the other explanations, because they show when the default might be wrong.
            others = [
                explanation
                for explanation in explanations.by
                if not is_constant(explanation) and self._literal_read(explanation) is None
            ]
            reason = _copied_part(explanations)
            if others or explanations.contradicted or reason is not None:
                self._explain(leaf, explanations, [PathTo(parameter.reference), *others], reason)

    def _name_literals(self, references: Mapping[Path, str]) -> None:
        """Insert the names of parameters into the explanations that read earlier literals, and
        record which parameters can replace followed literals.
        """
        explained: list[Explained] = []
        sources: dict[Path, Explanation] = {}
        for literal in self.explained:
            followed = replace(literal, given=references.get(literal.at))
            named = self._with_named_literals(followed)
            if named is not None:
                named = _renamed(named, self._names)
                explained.append(named)

            if named is not None and named.given is not None:
                sources[named.at] = named.by[0]

        self.explained = explained
        tools = [call.name for call in self._lifted.aligned.calls]
        for parameter in self.parameters:
            parameter.source = sources.get(parameter.leaves[0].at, parameter.source)
            if parameter.source is not None:
                parameter.source_in_words = source_in_words(parameter.source.shown, tools)

    def _with_named_literals(self, literal: Explained) -> Explained | None:
        """Drop the explanations that read an earlier literal without a parameter. Return None if
        only the constant is left.
        """
        by = [
            explanation
            for explanation in literal.by
            if all(map(self._is_named, explanation.references))
        ]
        if len(by) == len(literal.by):
            return literal

        is_of_call = literal.at[0] == "calls"
        if is_of_call and literal.given is None and all(map(is_constant, by)):
            return None
        return replace(literal, by=tuple(by))

    def _is_named(self, reference: str) -> bool:
        literal = self._lifted.literal_of(reference)
        return literal is None or literal[0].path in self._names

    # -- values that a person chooses --------------------------------------------------------------

    def _take(self, choices: Choices) -> None:
        decided = {f"calls.{place}" for place in self._lifted.decisions}
        places = self._places() if choices.take else {}
        for path, value in choices.take.items():
            if value == KEEP and path in decided:
                # The plan makes this call in any case, so there is nothing to replace.
                continue
            if path not in places:
                paths = [leaf.path for leaf in self._lifted.leaves]
                raise PublicationError(
                    f"choices.take: there is nothing at {path!r}.{did_you_mean(path, paths)}"
                )

            at = places[path]
            if not isinstance(value, str):
                explanation = read_explanation(value, where=f"choices.take.{path}")
                self.chosen[path] = explanation.shown
                self.explained.append(Explained(at, (explanation,), RUNS_FOR_POSITION))
                continue

            self.chosen[path] = value
            if value == MIND:
                self._asked_again.add(place_in(at))
            elif value != KEEP:
                self._replaced[at] = value

    def _places(self) -> dict[str, Path]:
        """Map paths as strings to paths as keys, for each leaf and each value that contains leaves,
        except whole calls.
        """
        return {
            path_of(at): at
            for leaf in self._lifted.leaves
            for at in leaf.above
            if at == ("output",) or keys_below(at)
        }


def _is_number(value: JSON) -> bool:
    """Return whether a value is a number or a string of digits."""
    if isinstance(value, str):
        return value.isdecimal()
    return number_or_none(value) is not None


def _copied_part(explanations: Found) -> str | None:
    """Return why an unexplained literal might be wrong for other data, because part of it appeared
    in an earlier string. Return None if no part did, or if the same value occurs in two runs.
    """
    if explanations.inside is not None and explanations.runs == 1:
        return COPIED_PART
    return None


@cache
def _builtins() -> Toolbox:
    return builtin_toolbox()


def _asking(calls: Sequence[JSON], catalogue: Catalogue) -> list[int]:
    """Return the places of calls that ask a mind each time."""
    places: list[int] = []
    for place, call in enumerate(written_calls(calls)):
        if call.has_result:
            continue
        tool = catalogue.look_up(call)
        if tool is not None and (tool.key in catalogue.latent or tool.asks_mind):
            places.append(place)

    return places
