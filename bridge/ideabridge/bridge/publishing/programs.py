"""Publish a program as a tool, and check that it does what recorded runs did.

Theory of operation. `RecordedResults` is a finished run as a program sees it: the calls with their
parameters and results, in the order they ended. `reproduce` runs a program in the sandbox with the
input of such a run. The sandbox does not call any tool: a call that the program makes gets the
result of the same call in the run. The program reproduces the run if it makes the same calls, keeps
the order of calls with effects within each server, and ends with the same output.

- The program can make a call just once even if the run repeated it, and it can repeat a call that
  only reads.
- The program can leave out calls that failed in the run, and calls to built-in tools.
- A sleep does not count as a call in the run.
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio
from anyio.abc import ObjectReceiveStream

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.references import compile_value, escaped, fill
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.errors import ProgramError, PublicationError
from ideabridge.bridge.lifting.contrast import contrast
from ideabridge.bridge.lifting.function import (
    Function,
    digest,
    executed_calls,
    is_distinctive,
    walk,
)
from ideabridge.bridge.lifting.inside import stands_in
from ideabridge.bridge.lifting.parameters import ParameterDecision
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    CallProposed,
    OutcomeDecided,
    SolutionProposed,
)
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.programs.handles import Handle
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.runner import result_for_program, setting_of
from ideabridge.bridge.programs.sandbox import (
    ASK,
    Called,
    CallSite,
    Ended,
    Failed,
    ProgramSession,
    Result,
    Sandbox,
    Setting,
    Step,
    Waits,
    parsed,
    prepared,
)
from ideabridge.bridge.runs.recorded import RecordedRun
from ideabridge.bridge.runs.stretch import KIND as SESSION_KIND
from ideabridge.bridge.store.idea import seen_type
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, object_or_empty, plain_text
from ideabridge.tools.keywords import SchemaKeywords, show
from ideabridge.tools.threads import compute_beside, compute_in_thread
from ideabridge.tools.tool import ANONYMOUS, Tool
from ideabridge.tools.typed import read_as

REPRODUCE_SECONDS: Final = 60.0
"""The maximum time, in seconds, that a program can take with recorded results."""

_SHOWN_CHARACTERS: Final = 400
_COPIED: Final = 20
"""The maximum number of copied values that are reported."""


# -- recordings ------------------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedCall:
    """A call in a recording.

    Attributes:
        index: the number of the call in the run.
        tool: the tool that ran.
        parameters: the parameters of the call, with escaped strings as in the calls that programs
            make.
        result: the value or the exception of the call, as a program receives it.
        ended: the place of the call in the order in which calls ended.
        reads_only: True if the call only reads, or only asks a mind.
        is_used: True if the program has made the call.
        is_aside: True if the call only looks around, that is, reads with a tool that another run of
            the same task did not need.
    """

    index: int
    tool: Tool
    parameters: JSONObject
    result: Result
    ended: int
    reads_only: bool
    is_used: bool = False
    is_aside: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether a program has to make the call.

        It need not make a call that failed, that only looked around, or that only shaped data,
        because Python can shape data as well.
        """
        if self.is_aside or self.result.exception is not None:
            return False
        return builtin_toolbox().tools.get(self.tool.name) != self.tool

    @property
    def shown(self) -> str:
        """The call as `module.tool {"parameter": value}`, truncated to a maximum length."""
        return f"{self.tool.label} {show(self.parameters, _SHOWN_CHARACTERS)}"


@dataclass(frozen=True, slots=True)
class RecordedResults:
    """The recording of a finished run, as seen by a program.

    Attributes:
        run: the id of the run.
        calls: the calls of the Solution. A call with `_each` is listed once for each item.
        output: the result of the run.
        catalogue: the tools of the run.
        output_counts: whether a program must return the same output. False if nobody specified the
            result of the run.
        now: when the run began, in seconds since 1970.
        seed: the seed of `random`, if a program made the run.
    """

    run: str
    calls: Sequence[RecordedCall]
    output: JSON
    output_counts: bool
    catalogue: Catalogue
    now: float
    seed: str

    @classmethod
    def of(cls, run: RecordedRun, record: RunRecord) -> RecordedResults:
        """Create the recording of a run.

        The output of a session of direct calls does not count, because nobody specified what the
        result should be.
        """
        ends = _ends(run)
        reading = {call.index: call.reads_only for call in executed_calls(run)[0]}
        calls: list[RecordedCall] = []
        for progress in run.machine.history:
            tool = progress.tool
            index = progress.call.index
            if (
                tool is None
                or is_reader(tool)
                or progress.status not in (CallStatus.DONE, CallStatus.FAILED, CallStatus.CAUGHT)
            ):
                continue

            reads = reading.get(index, tool.annotations.read_only is True)
            calls += [
                RecordedCall(index, tool, parameters, result, ends[index], reads)
                for parameters, result in _items(progress)
            ]

        program = run.machine.solution.program
        if program is None:
            now = datetime.fromisoformat(record.created).timestamp()
        else:
            now = program.now

        seed = "" if program is None else program.seed
        output_counts = record.kind != SESSION_KIND and run.is_done
        return cls(run.id, calls, run.result, output_counts, run.machine.catalogue, now, seed)


def of_one_task(recordings: Sequence[RecordedResults]) -> list[RecordedResults]:
    """Prepare the recordings of runs of one task for judging one program.

    Each recording has the tools of all runs. The program can omit a call that only reads if at
    least one of the runs did not call that tool.
    """
    catalogue = Catalogue(
        {
            tool.real.key: tool.real
            for recording in recordings
            for tool in recording.catalogue.tools
        }.values()
    )
    called = [{call.tool.key for call in recording.calls} for recording in recordings]
    by_all = called[0].intersection(*called[1:])
    for recording in recordings:
        for call in recording.calls:
            call.is_aside = call.reads_only and call.tool.key not in by_all

    return [replace(recording, catalogue=catalogue) for recording in recordings]


def _items(progress: Progress) -> Iterator[tuple[JSONObject, Result]]:
    for item in progress.items:
        error = item.error or (None if item.finished else progress.error)
        if item.finished or error is not None:
            yield (
                {key: escaped(value) for key, value in item.parameters.items()},
                result_for_program(progress, item.value, error),
            )


def _ends(run: RecordedRun) -> dict[int, int]:
    """Return, for each call, the place of its last event, which ended or denied the call."""
    places: dict[int, int] = {}
    count = 0
    for place, event in enumerate(run.events):
        if isinstance(event, CallProposed):
            places[count] = place
            count += 1
        elif isinstance(event, SolutionProposed):
            for index in range(count, count + len(event.calls)):
                places[index] = place
            count += len(event.calls)
        elif isinstance(event, CallFinished | CallDecided | OutcomeDecided):
            places[event.call] = place

    return defaultdict(int, places)


# -- reproducing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of a program with a recording.

    Attributes:
        difference: how the program differs from the run, or None if it reproduces the run.
        reached: the places in the program's text from which it made calls.
        output: the value that the program returned, if it reproduces the run.
    """

    difference: str | None
    reached: frozenset[CallSite] = frozenset()
    output: JSON = None


@dataclass(slots=True)
class _Reproduction:
    """One execution of a program with recorded results.

    Attributes:
        recording: the recorded results.
        difference: how the program differs from the recording, or None if it has not differed so
            far.
        has_ended: True once the program has ended, or differs.
        reached: the places in the program's text from which it made calls.
        output: the value that the program returned.
    """

    recording: RecordedResults
    difference: str | None = None
    has_ended: bool = False
    reached: set[CallSite] = field(default_factory=set[CallSite])
    output: JSON = None
    _calls: dict[tuple[object, str], list[RecordedCall]] = field(
        default_factory=dict[tuple[object, str], list[RecordedCall]]
    )
    _writes: dict[str | None, list[RecordedCall]] = field(
        default_factory=dict[str | None, list[RecordedCall]]
    )
    _made: list[tuple[int, int, Result]] = field(default_factory=list[tuple[int, int, Result]])

    def __post_init__(self) -> None:
        for call in self.recording.calls:
            self._calls.setdefault((call.tool.key, digest(call.parameters)), []).append(call)
            if not call.reads_only and call.result.exception is None:
                self._writes.setdefault(call.tool.module, []).append(call)

    def take(self, step: Step) -> tuple[int, Result] | None:
        """Perform the next step of the program. If the program is waiting, return the number of a
        call and its recorded result.
        """
        match step:
            case Called(number, call, site):
                self.reached.add(site)
                self._called(number, call)
            case Waits():
                return self._next()
            case Ended(output):
                self._end(output)
            case Failed(_, message):
                self._differs(f"the program ends with an error: {message}")
            case _:
                pass
        return None

    def _differs(self, how: str | None) -> None:
        self.difference = how
        self.has_ended = True

    def _called(self, number: int, call: JSONObject) -> None:
        written = WrittenCall.of(call)
        tool = self.recording.catalogue.look_up(written)
        parameters = written.parameters
        if (
            tool is not None
            and tool.module is None
            and tool.name == "sleep"
            and not self._calls_of(tool)
        ):
            self._made.append((-1, number, Result()))
            return

        listed = self._matching(tool, parameters)
        free = next((candidate for candidate in listed if not candidate.is_used), None)
        if free is None and listed and listed[0].reads_only:
            free = listed[0]

        if free is None:
            label = call.get("_tool") if tool is None else tool.label
            attempt = f"its call {number}, {label} {show(parameters, _SHOWN_CHARACTERS)},"
            if listed:
                self._differs(f"{attempt} is made more often than in the run")
            else:
                self._differs(f"{attempt} is not in the run; {self._nearest(tool)}")
            return

        free.is_used = True
        queue = self._writes.get(free.tool.module, [])
        if free in queue:
            before = next(
                candidate for candidate in queue if not candidate.is_used or candidate is free
            )
            if before is not free:
                self._differs(
                    f"its call {number}, {free.shown}, comes before {before.shown}, "
                    "which the run made first"
                )
                return

        self._made.append((free.ended, number, free.result))

    def _matching(self, tool: Tool | None, parameters: JSONObject) -> list[RecordedCall]:
        if tool is None:
            return []
        return self._calls.get((tool.key, digest(parameters)), [])

    def _calls_of(self, tool: Tool) -> list[RecordedCall]:
        return [call for call in self.recording.calls if call.tool.key == tool.key]

    def _nearest(self, tool: Tool | None) -> str:
        if tool is None:
            listed = []
        else:
            listed = [call for call in self._calls_of(tool) if not call.is_used]

        if listed:
            return f"the run called {listed[0].shown}"
        if tool is None or not self._calls_of(tool):
            return "the run did not call this tool"
        return "the program has already made all calls of this tool that the run made"

    def _next(self) -> tuple[int, Result] | None:
        if not self._made:
            self._differs("the program waits for a result that never arrives")
            return None
        # Pass the program the result that came first in the run.
        first = min(self._made, key=lambda waiting: waiting[:2])
        self._made.remove(first)
        return first[1], first[2]

    def _end(self, output: JSON) -> None:
        left = [call for call in self.recording.calls if not call.is_used and call.is_needed]
        left = [
            call
            for call in left
            if not any(other.is_used for other in self._matching(call.tool, call.parameters))
        ]
        if left:
            more = f", and {len(left) - 1} more" if len(left) > 1 else ""
            self._differs(f"the program does not make the call {left[0].shown}{more}")
        elif self.recording.output_counts and not same(output, escaped(self.recording.output)):
            self._differs(f"its output differs: {contrast(output, escaped(self.recording.output))}")
        else:
            self.output = fill(compile_value(output, [], []), lambda _: None)
            self._differs(None)


def _value_of(handle: Handle) -> JSON:
    # The recorded calls contain values, not handles, so replace a handle with its value.
    return escaped(handle.value)


async def reproduce(
    sandbox: Sandbox,
    program: str,
    names: JSONObject,
    arguments: JSONObject,
    recording: RecordedResults,
) -> Judgement:
    """Run a program with the results of a recording, in a separate process, and compare it with the
    run.

    Args:
        sandbox: the workers.
        program: the text of the program.
        names: the names of the program's tools; see `ProgramNames.used_by`.
        arguments: the input.
        recording: the run. A recording can be used only once.
    """
    try:
        mapped = ProgramNames.of(names, recording.catalogue.tools)
    except ProgramError as error:
        return Judgement(str(error))

    # Use a thread, because computing digests of large parameters is slow.
    judge = await compute_in_thread(_Reproduction, recording)
    setting: Setting = setting_of(
        mapped, {"input": arguments, "state": {}}, recording.now, recording.seed
    )
    send, receive = anyio.create_memory_object_stream[Step](math.inf)

    def pass_on(steps: Sequence[Step]) -> None:
        for step in steps:
            send.send_nowait(step)

    most_calls = 2 * len(recording.calls) + 1_000
    session = ProgramSession(sandbox, program, setting, pass_on, _value_of, calls=most_calls)
    async with send, receive, anyio.create_task_group() as group:
        group.start_soon(session.run)
        try:
            with anyio.move_on_after(REPRODUCE_SECONDS):
                await _judged(judge, session, receive)
        finally:
            session.close()

    if not judge.has_ended:
        return Judgement(f"the program did not end within {REPRODUCE_SECONDS:g} s")
    return Judgement(judge.difference, frozenset(judge.reached), judge.output)


async def _judged(
    judge: _Reproduction, session: ProgramSession, steps: ObjectReceiveStream[Step]
) -> None:
    async for step in steps:
        result = await _beside(step, judge)
        if judge.has_ended:
            return
        if result is not None:
            session.answer(*result)


async def _beside(step: Step, judge: _Reproduction) -> tuple[int, Result] | None:
    """Judge a step, in a thread if the step has a large value or is compared with one."""
    match step:
        case Called(call=call):
            return await compute_beside(call, judge.take, step)
        case Ended():
            return await compute_in_thread(judge.take, step)
        case _:
            return judge.take(step)


# -- the tool --------------------------------------------------------------------------------------


def own_program(function: Function) -> str | None:
    """Return the program of a run, or None if the run also made calls outside a program."""
    machine = function.run.machine
    program = machine.solution.program
    whole = len(machine.history) == len(machine.solution.calls)
    if program is not None and whole and not machine.solution.failed:
        return program.program
    return None


def named_tools(functions: Sequence[Function], program: str) -> JSONObject:
    """Return the names of the tools that a program needs to reproduce runs; see
    `ProgramNames.used_by`.
    """
    own = functions[0].run.machine.solution.program
    if own is not None and own.program == program:
        return own.names
    called = {
        tool.real.key: tool.real
        for function in functions
        for tool in function.run.machine.catalogue.tools
    }
    return ProgramNames(called.values()).used_by(program)


def declared_calls(names: JSONObject, program: str) -> list[JSON]:
    """Return the tools that a published program can call, each as a call without parameters."""
    keys: set[tuple[str, str]] = set()
    modules = object_or_empty(names.get("modules"))
    for tools in modules.values():
        for key in object_or_empty(tools).values():
            match key:
                case [None | str() as module, str(name)] | [str() as module, str(name), dict()]:
                    keys.add((module or "", name))
                case _:
                    raise PublicationError(
                        f"names: expected [module or null, tool], found {show(key)}"
                    )

    # Sort the calls, so that versions do not differ only because servers listed their tools in a
    # different order.
    calls: list[JSON] = [
        {"_tool": name, **({"_module": module} if module else {})} for module, name in sorted(keys)
    ]
    if ASK in program:
        return [*calls, {"_tool": "solve", "_module": ANONYMOUS}]
    return calls


def input_schema_of(
    program: str,
    function: Function,
    arguments: JSONObject,
    decisions: Mapping[str, ParameterDecision],
) -> tuple[JSONObject, JSONObject]:
    """Return the parameters of a program.

    If the run had an input schema for this input, the parameters are that schema. Otherwise, they
    are derived from the input and from the properties of `input` that the program reads.

    `input["x"]` results in a required parameter, and `input.get("x", 5)` in an optional parameter
    with a default. If `input` is used as a whole, each property of the run's input is required, and
    other properties are allowed.

    Returns:
        The JSON Schema, and the input without properties that the program does not read.

    Raises:
        PublicationError: a decision is about a parameter that does not exist, or is of a kind that
            a program does not allow.
    """
    declared = _declared_input(function)
    if declared is not None and not decisions and arguments == (function.input or {}):
        return declared, arguments

    parameters = _parameters_read_by(program, arguments)
    for name, decision in decisions.items():
        parameters.decide(name, decision)

    known = {name: value for name, value in arguments.items() if name in parameters.properties}
    return parameters.schema(), known


def _declared_input(function: Function) -> JSONObject | None:
    """Return the input schema of a run, or None if the run declares none."""
    for message in function.run.machine.messages:
        if message.type == "input" and not message.instance and message.schema is not None:
            return message.schema
    return None


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of a program.

    Attributes:
        properties: the schema of each parameter.
        required: the parameters that callers must pass.
        is_open: whether callers may pass other parameters.
    """

    properties: dict[str, JSONObject]
    required: list[str]
    is_open: bool

    def decide(self, name: str, decision: ParameterDecision) -> None:
        """Apply the publisher's decision to a parameter.

        Raises:
            PublicationError: the parameter does not exist, or a program does not allow this kind of
                decision.
        """
        schema = self.properties.get(name)
        if schema is None:
            raise PublicationError(
                f"parameters.{name[:80]}: the program reads no input with this name"
            )

        if decision.rename or decision.merge or decision.fix or decision.at:
            raise PublicationError(
                f"parameters.{name}: expected description, required or default; a "
                "program reads its input by name"
            )

        if decision.description is not None:
            schema["description"] = decision.description

        if decision.default:
            [default] = decision.default
            for key, value in seen_type(default).items():
                schema.setdefault(key, value)
            schema["default"] = default
            if name in self.required:
                self.required.remove(name)

        if decision.required and name not in self.required:
            schema.pop("default", None)
            self.required.append(name)

    def schema(self) -> JSONObject:
        """Return the JSON Schema of the input."""
        schema: JSONObject = {
            "type": "object",
            "properties": dict[str, JSON](self.properties),
            "required": list[JSON](self.required),
        }
        if not self.is_open:
            schema["additionalProperties"] = False

        return schema


def _parameters_read_by(program: str, arguments: JSONObject) -> _Parameters:
    """Return the parameters that follow from the input and from the properties of `input` that a
    program reads.
    """
    needed, optional, is_whole = members_of_input(program)
    others = arguments if is_whole else {}
    parameters = _Parameters({}, [], is_whole)
    for name in dict.fromkeys([*others, *needed, *optional]):
        schema: JSONObject = {}
        if name in arguments:
            schema = seen_type(arguments[name])

        default = optional.get(name)
        if name in needed or (name in arguments and name not in optional):
            parameters.required.append(name)
        elif default is not None and default.value is not None:
            schema = {**(schema or seen_type(default.value)), "default": default.value}

        parameters.properties[name] = schema

    return parameters


@dataclass(frozen=True, slots=True)
class _Default:
    """The second argument of `input.get`."""

    value: JSON


def members_of_input(program: str) -> tuple[list[str], dict[str, _Default | None], bool]:
    """Return the properties of `input` that a program needs, those that it can use, and whether it
    uses `input` in any other way.
    """
    tree = parsed(program)
    if tree is None:
        return [], {}, True

    required: dict[str, None] = {}
    optional: dict[str, _Default | None] = {}
    reads: set[ast.Name] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(
                value=ast.Name(id="input") as name, slice=ast.Constant(value=str(key))
            ):
                required[key] = None
                reads.add(name)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="input") as name, attr="get"),
                args=[ast.Constant(value=str(key)), *more],
            ):
                optional[key] = _literal(more[0]) if more else None
                reads.add(name)
            case ast.Compare(
                left=ast.Constant(value=str(key)),
                ops=[ast.In() | ast.NotIn()],
                comparators=[ast.Name(id="input") as name],
            ):
                optional.setdefault(key, None)
                reads.add(name)
            case _:
                pass

    whole = any(
        isinstance(node, ast.Name) and node.id == "input" and node not in reads
        for node in ast.walk(tree)
    )
    return [name for name in required if name not in optional], optional, whole


def _literal(node: ast.expr) -> _Default | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = value is None or isinstance(value, str | int | float | bool) or value in ([], {})
    return _Default(value) if plain else None


@dataclass(frozen=True, slots=True)
class RecordedLiteral:
    """A literal in a program that is also a recorded value.

    Attributes:
        line: the line of the literal in the program, or 0 for a default that was declared
            separately.
        value: the value.
        place: the place where the value was recorded: `the result of calls.0 (list) at 2.name`,
            `calls.1 (send) at text`.
        parameter: the property of `input` whose default the literal is, or "" if the literal is not
            a default.
    """

    line: int
    value: str | int | float
    place: str
    parameter: str = ""

    @property
    def text(self) -> str:
        """The value on one line."""
        value = encode_text(self.value)[:80]
        if not self.parameter:
            return f"line {self.line}: {value} is also in {self.place}"
        where = f"line {self.line}" if self.line else "parameters"
        return f"{where}: the default of {self.parameter[:80]}, {value}, is also in {self.place}"


def copied_values(
    program: str, arguments: JSON, recordings: Iterable[RecordedResults]
) -> list[RecordedLiteral]:
    """Return at most 20 literals in a program that are also values of recorded results, but not of
    the input.

    A value that the run sent before any result contained it was not copied, because the result only
    repeats it. A key with which a program reads a property, as in `row["name"]` and
    `row.get("name")`, does not count as a literal.
    """
    tree = parsed(program)
    literals = [] if tree is None else _literals(tree)
    if not literals:
        return []

    inputs = {digest(value) for _, value in walk(arguments)}
    digests = {digest(literal.value) for literal in literals} - inputs
    places: dict[str, str] = {}
    for recording in recordings:
        places = {**_seen_before_sent(recording, digests), **places}

    copied = [
        RecordedLiteral(literal.lineno, literal.value, places[digest(literal.value)])
        for literal in literals
        if digest(literal.value) in places
    ]
    return copied[:_COPIED]


def sent_texts(
    program: str, arguments: JSON, recordings: Iterable[RecordedResults]
) -> list[RecordedLiteral]:
    """Return at most 20 strings in a program that its recorded runs sent to a tool, and that are
    not values of the input.

    A string counts if it was a whole value in a call, or if it has a digit and was part of such a
    value, like the month in a path. Values of parameters with an `enum` do not count, because they
    are not data. Defaults of properties of `input` are left to `recorded_defaults`.
    """
    tree = parsed(program)
    if tree is None:
        literals = []
    else:
        literals = [literal for literal in _literals(tree) if not literal.parameter]

    inputs = {digest(value) for _, value in walk(arguments)}
    texts = {literal.value for literal in literals if isinstance(literal.value, str)}
    texts = {text for text in texts if digest(text) not in inputs}
    places: dict[str, str] = {}
    for recording in recordings:
        places = {**_places_sent(recording, texts), **places}

    sent = [
        RecordedLiteral(literal.lineno, literal.value, places[digest(literal.value)])
        for literal in literals
        if digest(literal.value) in places
    ]
    return sent[:_COPIED]


def _places_sent(recording: RecordedResults, texts: Collection[str]) -> dict[str, str]:
    """Return where strings were sent in calls, alone or within a longer string, keyed by the digest
    of the string.
    """
    places: dict[str, str] = {}
    left = set(texts)
    for call in recording.calls:
        properties = read_as(SchemaKeywords, call.tool.parameters).properties
        for path, value in walk(call.parameters):
            schema = object_or_empty(properties.get(path[0])) if path else {}
            if "enum" in schema or not isinstance(value, str):
                continue
            for text in [text for text in left if text == value or _is_data_in(text, value)]:
                places[digest(text)] = (
                    f"calls.{call.index} ({call.tool.label}) at {_path_text(path)}"
                )
                left.discard(text)

    return places


def _is_data_in(text: str, value: str) -> bool:
    """Return whether a string with a digit is part of another string.

    A string without a digit does not count, because words can occur by chance.
    """
    return any(map(str.isdigit, text)) and stands_in(text, value)


def recorded_defaults(
    program: str,
    stated: Mapping[str, JSON],
    inputs: Sequence[JSON],
    recordings: Sequence[RecordedResults],
) -> list[RecordedLiteral]:
    """Return up to 20 default values in the schema of `input` that occur in only one recorded run.

    Such a default is a string that occurs in the run, even within a longer string that the run
    sent, or a number that a result contained before the run sent it. One run cannot show whether
    such a default is right for a caller who passes no value. Values that occur in two runs are left
    out, as are other numbers, which are sizes and limits. Plans treat such numbers in the same way.

    Args:
        program: the text of the program.
        stated: the defaults that were declared separately from the program, keyed by property.
        inputs: the input of each run.
        recordings: the runs.
    """
    tree = parsed(program)
    if tree is None:
        literals = []
    else:
        literals = [literal for literal in _literals(tree) if literal.parameter]

    for name, default in stated.items():
        values = [
            value
            for _, value in walk(default)
            if isinstance(value, str | int | float) and _is_telling(value)
        ]
        literals += [_Literal(0, value, name) for value in values]

    texts = {literal.value for literal in literals if isinstance(literal.value, str)}
    numbers = {digest(literal.value) for literal in literals if not isinstance(literal.value, str)}
    places: dict[str, list[str]] = {}
    for value, recording in zip(inputs, recordings, strict=True):
        of_run = {
            **_places_of_texts(value, recording, texts),
            **_seen_before_sent(recording, numbers),
        }
        for key, place in of_run.items():
            places.setdefault(key, []).append(place)

    defaults: list[RecordedLiteral] = []
    for literal in literals:
        origins = places.get(digest(literal.value), [])
        if len(origins) == 1:
            defaults.append(
                RecordedLiteral(literal.lineno, literal.value, origins[0], literal.parameter)
            )

    return defaults[:_COPIED]


def seen_before_sent(value: JSON, recording: RecordedResults) -> bool:
    """Return whether a string or number might come from a result: a result of the run contains it,
    as a value or within a string, and the run had not sent it earlier. Short strings and small
    numbers do not count.
    """
    if not _is_telling(value):
        return False
    if _seen_before_sent(recording, {digest(value)}):
        return True

    text = plain_text(value)
    sent = _first_sent(recording, {digest(value)}).get(digest(value), math.inf)
    for call in recording.calls:
        if call.ended >= sent:
            continue
        for _, part in walk(call.result.value):
            if isinstance(part, str) and text in part:
                return True

    return False


def _first_sent(recording: RecordedResults, digests: Collection[str]) -> dict[str, int]:
    """Return when each value was first sent, as the lowest `ended` of the calls that received it,
    keyed by the digest of the value.
    """
    sent: dict[str, int] = {}
    for call in recording.calls:
        for _, value in walk(call.parameters):
            if not isinstance(value, str | int | float):
                continue
            key = digest(value)
            if key in digests and call.ended < sent.get(key, math.inf):
                sent[key] = call.ended

    return sent


def _seen_before_sent(recording: RecordedResults, digests: Collection[str]) -> dict[str, str]:
    """Return where values occur in results that arrived before the value was sent to any call,
    keyed by the digest of the value.
    """
    sent = _first_sent(recording, digests)
    places: dict[str, str] = {}
    for call in recording.calls:
        for path, value in walk(call.result.value):
            if not isinstance(value, str | int | float):
                continue
            key = digest(value)
            if key in digests and call.ended < sent.get(key, math.inf):
                places.setdefault(
                    key,
                    f"the result of calls.{call.index} ({call.tool.label}) at {_path_text(path)}",
                )

    return places


def _places_of_texts(
    arguments: JSON, recording: RecordedResults, texts: Collection[str]
) -> dict[str, str]:
    """Return where strings occur in a run, keyed by digest: in its calls or its input, even within
    a longer string, or as a whole value in a result.

    A word within a string of a result does not count, because it can occur by chance.
    """
    documents: list[tuple[str, JSON, bool]] = []
    for call in recording.calls:
        name = f"calls.{call.index} ({call.tool.label})"
        documents += [
            (name, call.parameters, True),
            (f"the result of {name}", call.result.value, False),
        ]

    documents.append(("the input", arguments, True))

    places: dict[str, str] = {}
    left = set(texts)
    for where, document, is_sent in documents:
        for path, value in walk(document):
            if not isinstance(value, str):
                continue
            for text in [
                text for text in left if text == value or (is_sent and stands_in(text, value))
            ]:
                places[digest(text)] = f"{where} at {_path_text(path)}"
                left.discard(text)

    return places


def _path_text(path: Sequence[str]) -> str:
    return ".".join(path) or "its top"


def _literals(tree: ast.Module) -> list[_Literal]:
    """Return the strings and numbers in a program, ordered by line, without those that could equal
    a recorded value by chance.
    """
    keys: set[ast.AST] = set()
    defaults: dict[ast.AST, str] = {}
    literals: list[_Literal] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant() as key):
                keys.add(key)
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant() as key, *_]):
                keys.add(key)
            case ast.Dict(keys=members):
                keys.update(member for member in members if member is not None)
            case _:
                pass

        for name, default in _defaults_in(node):
            defaults.update(dict.fromkeys(ast.walk(default), name))

    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in keys:
            continue
        value = node.value
        if isinstance(value, str | int | float) and is_distinctive(value) and _is_telling(value):
            literals.append(_Literal(node.lineno, value, defaults.get(node, "")))

    return sorted(literals, key=lambda literal: literal.lineno)


def _defaults_in(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the property and its default if an expression reads a property of `input` with a
    default: `input.get("a", 1)`, `input.get("a") or 1`, `input["a"] if "a" in input else 1`.
    """
    match node:
        case ast.Call(args=[_, default]):
            name = _read_member(node)
            if name is not None:
                yield name, default
        case ast.BoolOp(op=ast.Or(), values=[first, *others]):
            name = _read_member(first)
            if name is not None:
                for other in others:
                    yield name, other
        case ast.IfExp(body=first, orelse=second):
            for read, default in ((first, second), (second, first)):
                name = _read_member(read)
                if name is not None:
                    yield name, default
        case _:
            pass


def _read_member(node: ast.AST) -> str | None:
    """Return the property read by `input["a"]` or `input.get("a")`, or None for any other
    expression.
    """
    match node:
        case ast.Subscript(value=ast.Name(id="input"), slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="input"), attr="get"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return name
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Literal:
    """A string or number in a program. If it is a default, `parameter` is the property of
    `input`.
    """

    lineno: int
    value: str | int | float
    parameter: str = ""


def _is_telling(value: JSON) -> bool:
    """Return whether a value is unlikely to equal another one by chance, unlike booleans, short
    strings and small numbers.
    """
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value) > 2
    return abs(float(str(value))) >= 10


@dataclass(frozen=True, slots=True)
class ToolCallSite:
    """A call to a tool in the text of a program.

    Attributes:
        site: the place of the call in the text.
        tool: the tool.
        shown: the tool as the program names it: `git.git_log`.
    """

    site: CallSite
    tool: Tool
    shown: str

    @property
    def changes(self) -> bool:
        """Whether the call might change something."""
        return self.tool.annotations.read_only is not True

    @property
    def text(self) -> str:
        """A line that says that no recorded run made the call, and whether the call asks for
        approval.
        """
        then = "; it asks before it runs" if self.changes else ""
        return f"line {self.site.line}: no recorded run has called {self.shown} here{then}"


def unreached_sites(
    program: str, names: ProgramNames, reached: Collection[CallSite]
) -> list[ToolCallSite]:
    """Return the tool calls in a program's text that the program made with none of the recordings.

    At run time, calls from a place that is not in `reached` first ask for approval. Only the place
    of the call matters.
    """
    tree = parsed(prepared(program, names.servers))
    if tree is None:
        return []

    modules, functions = _imported_names(tree, names)
    sites: list[ToolCallSite] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue

        place = _called_place(node.func, modules, functions)
        tool = None if place is None else names.find(*place)
        site = CallSite(node.lineno, node.col_offset)
        if place is not None and tool is not None and site not in reached:
            sites.append(ToolCallSite(site, tool, ".".join(place)))

    return sorted(sites, key=lambda call: call.site)


def _imported_names(
    tree: ast.Module, names: ProgramNames
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the modules, keyed by their names in the program, and the `(module, function)` of each
    imported function, keyed by its name in the program.
    """
    modules: dict[str, str] = {}
    functions: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in names.tools:
                    modules[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in names.tools:
            for alias in node.names:
                functions[alias.asname or alias.name] = (node.module, alias.name)

    return modules, functions


def _called_place(
    function: ast.expr, modules: Mapping[str, str], functions: Mapping[str, tuple[str, str]]
) -> tuple[str, str] | None:
    match function:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules:
            return modules[module], name
        case ast.Name(id=name):
            return functions.get(name)
        case _:
            return None
