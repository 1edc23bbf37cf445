"""Judge a program by recorded runs, and turn an accepted program into a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.errors import ConstantsOpenError
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.lifting.parameters import ParameterDecision
from ideabridge.bridge.lifting.rows import parameter_rows
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.publishing.distilling import read_inputs
from ideabridge.bridge.publishing.idea_tools import hints_of
from ideabridge.bridge.publishing.prepared_tool import PreparedTool, acting_tools
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.programs import (
    Judgement,
    RecordedLiteral,
    RecordedResults,
    copied_values,
    declared_calls,
    named_tools,
    of_one_task,
    own_program,
    recorded_defaults,
    seen_before_sent,
    sent_texts,
    unreached_sites,
)
from ideabridge.bridge.runs.called_ideas import asking_calls
from ideabridge.bridge.runs.pins import pins_for
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, object_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.typed import read_as

_WORDS_OF_MIND: Final = "An assistant wrote its program and these descriptions."

_EXAMPLE: Final = 100
"""The maximum length of an example, in characters."""


@dataclass(frozen=True, slots=True)
class ProgramTrial:
    """A program, and the runs by which it is judged: the run to publish, and other runs of the same
    task.

    Attributes:
        written: the program, and the author's words about it.
        functions: the runs as functions.
        recorded: the results of each run. Each recording has the tools of all runs.
        inputs: the input that the program gets for each run.
        names: the names of the program's tools; see `ProgramNames.used_by`.
        calls: the tools that the program can call; see `declared_calls`.
    """

    written: ProgramAnswer
    functions: Sequence[Function]
    recorded: Sequence[RecordedResults]
    inputs: Sequence[JSONObject]
    names: JSONObject
    calls: list[JSON]

    @classmethod
    def of(
        cls,
        written: ProgramAnswer,
        functions: Sequence[Function],
        recorded: Sequence[RecordedResults],
    ) -> ProgramTrial:
        """Create the trial of a program by runs.

        Raises:
            ProgramRefusedError: the inputs do not fit the runs.
        """
        names = named_tools(functions, written.program)
        calls = declared_calls(names, written.program)
        inputs = read_inputs(functions, written.inputs)
        return cls(written, functions, of_one_task(recorded), inputs, names, calls)

    @property
    def is_own(self) -> bool:
        """Whether the published run consists of exactly this program."""
        return own_program(self.functions[0]) == self.written.program

    @property
    def run(self) -> str:
        """The id of the run to publish."""
        return self.functions[0].run.id

    @property
    def other_runs(self) -> list[JSON]:
        """The ids of the other runs."""
        return [results.run for results in self.recorded[1:]]

    @property
    def catalogue(self) -> Catalogue:
        """The tools of all runs."""
        return self.recorded[0].catalogue

    def plan(self) -> JSONObject:
        """Return the program in its published form, without the findings of its runs."""
        plan: JSONObject = {
            "program": self.written.program,
            "names": self.names,
            "calls": self.calls,
        }
        defined = self.functions[0].tools
        if defined:
            plan["tools"] = list[JSON](defined)

        plan["pins"] = pins_for(read_as(PublishedPlan, plan), self.calls, self.catalogue)
        return plan


@dataclass(frozen=True, slots=True)
class ValuesInText:
    """The recorded values that the text of a program contains.

    Attributes:
        copied: the values that might differ for other input: values from results, and defaults that
            were used in only one run.
        sent: other strings that the runs sent. They are listed, but nobody is asked about them,
            because most are the same for every input.
        open_defaults: the parameters whose defaults are among `copied`, unless the author says that
            the default is the same for every input.
    """

    copied: Sequence[RecordedLiteral]
    sent: Sequence[RecordedLiteral] = ()
    open_defaults: Sequence[str] = ()

    @property
    def lines(self) -> list[JSON]:
        """One line for each value."""
        return [literal.text for literal in (*self.copied, *self.sent)]


def values_in_text(trial: ProgramTrial, decisions: Mapping[str, ParameterDecision]) -> ValuesInText:
    """Return the recorded values that a program contains. `decisions` contains the publisher's
    decisions about parameters.
    """
    written = trial.written
    inputs = list[JSON](trial.inputs)
    copied = copied_values(written.program, inputs, trial.recorded)
    if trial.is_own:
        return ValuesInText(copied)

    stated = {
        parameter: decision.default[0]
        for parameter, decision in decisions.items()
        if decision.default
    }
    defaults = recorded_defaults(written.program, stated, inputs, trial.recorded)
    copied = [*defaults, *_beyond(copied, defaults)]
    sent = sent_texts(written.program, inputs, trial.recorded)
    open_defaults = [
        literal.parameter for literal in defaults if not _is_declared(literal, written.constants)
    ]
    return ValuesInText(copied, _beyond(sent, copied), list(dict.fromkeys(open_defaults)))


def _beyond(
    literals: Sequence[RecordedLiteral], named: Sequence[RecordedLiteral]
) -> list[RecordedLiteral]:
    """Return the literals that are not in `named`."""
    lines = {(literal.line, literal.value) for literal in named}
    return [literal for literal in literals if (literal.line, literal.value) not in lines]


def expect_confirmed(copied: Sequence[RecordedLiteral], constants: Sequence[JSON]) -> None:
    """Raise `ConstantsOpenError` if a mind's program contains recorded values that the mind did not
    declare constant.

    A single run cannot show whether a value is the same for other input: a program that merely
    writes down a run's values does what that run did, and nothing else. A program that a person
    wrote is published unchanged, and its report lists the values.
    """
    open_ = [literal for literal in copied if not _is_declared(literal, constants)]
    if open_:
        named = "; ".join(literal.text for literal in open_)
        values = [*dict.fromkeys(literal.value for literal in open_)]
        raise ConstantsOpenError(
            f"it does what the run did, but contains recorded values: {named}. Take them from a "
            "result or from `input`; or, if they are the same for every input, submit the program "
            f"with constants: {encode_text(list[JSON](values))}",
            list[JSON](values),
        )


def _is_declared(literal: RecordedLiteral, constants: Sequence[JSON]) -> bool:
    """Return whether a program's author declared a recorded value constant for every input."""
    return any(same(literal.value, constant) for constant in constants)


@dataclass(frozen=True, slots=True)
class AcceptedProgram:
    """A program that reproduces its runs.

    Attributes:
        trial: the program and its runs.
        schema: the parameters of the program's tool.
        arguments: the input for which the program reproduces the published run.
        judgements: the judgement of each run.
        values: the recorded values that the program's text contains.
    """

    trial: ProgramTrial
    schema: JSONObject
    arguments: JSONObject
    judgements: Sequence[Judgement]
    values: ValuesInText

    def tool(self, plan: JSONObject, present: Catalogue, store: Store) -> PreparedTool:
        """Turn the program into a tool.

        Args:
            plan: see `ProgramTrial.plan`.
            present: the tools in this process that the program's calls refer to.
            store: contains the ideas that the program calls.
        """
        trial = self.trial
        reached = sorted({site for judgement in self.judgements for site in judgement.reached})
        unreached: list[JSON] = []
        if not trial.is_own:
            names = ProgramNames.of(trial.names, trial.catalogue.tools)
            sites = unreached_sites(trial.written.program, names, reached)
            unreached = [site.text for site in sites]

        plan = dict(plan)
        if self.values.open_defaults:
            plan["recorded_defaults"] = list[JSON](self.values.open_defaults)

        if self.values.lines:
            plan["copied"] = self.values.lines

        if not trial.is_own:
            plan["reached"] = [site.to_json() for site in reached]

        plan["lifting"] = self._lifting(unreached)
        output: tuple[JSON] | None = None
        if not trial.recorded[0].output_counts:
            output = (self.judgements[0].output,)

        return PreparedTool(
            "program",
            self._sentences(present, store),
            hints_of(acting_tools(trial.calls, present)),
            self.schema,
            self.arguments,
            plan=plan,
            report=self._report(unreached),
            output=output,
        )

    def _lifting(self, unreached: list[JSON]) -> JSONObject:
        others = self.trial.other_runs
        lifting: JSONObject = {
            "run": self.trial.run,
            "runs": others,
            "checked": "confirmed" if others else "self-consistent",
            "confirmed_by": others,
        }
        if self.trial.written.is_of_mind:
            lifting["words_of"] = "assistant"

        if unreached:
            lifting["unreached"] = unreached

        return lifting

    def _report(self, unreached: list[JSON]) -> JSONObject:
        rows = parameter_rows(self.schema, self.arguments)
        report: JSONObject = {
            "reproduces": [self.trial.run, *self.trial.other_runs],
            "copied": self.values.lines,
            "rows": [row.to_json() for row in rows],
        }
        if unreached:
            report["unreached"] = unreached

        return report

    def _sentences(self, present: Catalogue, store: Store) -> str:
        sentences: list[str] = []
        calls = self.trial.calls
        asking = [
            WrittenCall.of(calls[place]).tool for place in asking_calls(store, present, calls)
        ]
        if asking:
            sentences.append(f"A model is asked by {', '.join(asking)}.")

        if self.trial.written.is_of_mind:
            sentences.append(_WORDS_OF_MIND)

        return " ".join(sentences)


def with_examples(schema: JSONObject, arguments: JSON, recording: RecordedResults) -> JSONObject:
    """Add an example to each parameter without a description: the value that it had in the run.

    Everybody with access to the tool sees the examples, and results are private. An example must
    therefore be a value that the publisher passed to the run, not one that might come from a
    result.
    """
    values = object_or_empty(arguments)
    described = dict(read_as(SchemaKeywords, schema).properties)
    if not described or not values:
        return schema

    for name, declared in described.items():
        if not isinstance(declared, dict):
            continue
        is_told = not {"description", "default", "examples"}.isdisjoint(declared)
        value = values.get(name)
        if not is_told and _is_short(value) and not seen_before_sent(value, recording):
            described[name] = {**declared, "examples": [value]}

    return {**schema, "properties": described}


def _is_short(value: JSON) -> bool:
    """Return whether a value is a string or a number short enough for an example."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return 0 < len(str(value)) <= _EXAMPLE
