"""Read an idea as a function from input to output, based on the journal of the run that made the
idea.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.messages import Message, read_context
from ideabridge.bridge.context.reader import is_reader, meant_reference
from ideabridge.bridge.context.references import (
    Path,
    escaped,
    format_path,
    format_reference,
    is_reference,
    map_references,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing, opened
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.event import CallDecided, Pattern, SolutionCancelled, SolutionProposed
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.loop.question import edited_parameters
from ideabridge.bridge.runs.recorded import RecordedRun, find_idea, read_run
from ideabridge.bridge.runs.stretch import unkept
from ideabridge.bridge.store.idea import StoredIdea, function_schemas
from ideabridge.bridge.store.store import Store
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty, objects_in
from ideabridge.tools.json_parts import parts_of
from ideabridge.tools.keywords import move_refs
from ideabridge.tools.tool import META_PROPERTIES, ToolKey

# -- function --------------------------------------------------------------------------------------

_PATTERNS: Final[dict[Pattern, str]] = {
    "all": "all or nothing",
    "any": "the first success cancels the others",
    "race": "the first to end cancels the others",
}


@dataclass(frozen=True, slots=True)
class Function:
    """An idea read as a function.

    Attributes:
        stored: the idea.
        run: the run that ended with the idea.
        input: the value of `†input`, or None if the idea takes no input.
        input_schema: the tool's parameters.
        output_schema: the schema of the tool's result, or None if none was declared.
        part_schema: the schema of each instance's output, or None if the run has no instances.
        calls: the run's calls, as its plan listed them.
        output: the Solution's output, without the wrapper that a mind writes.
        instances: the initial states, keyed by instance.
        tools: the tools that the idea called and that `tool` messages in its context define.
        faults: why the idea cannot be a plan, according to its context and output.
    """

    stored: StoredIdea
    run: RecordedRun
    input: JSONObject | None
    input_schema: JSONObject
    output_schema: JSONObject | None
    part_schema: JSONObject | None
    calls: list[JSON]
    output: JSON
    instances: dict[str, JSONObject]
    tools: list[JSONObject]
    faults: list[str]

    def plan(self) -> JSONObject:
        """The idea's plan in its published form; see `read_published`."""
        plan: JSONObject = {"calls": self.calls, "output": self.output}
        if self.instances:
            plan["instances"] = dict[str, JSON](self.instances)

        if self.tools:
            plan["tools"] = list[JSON](self.tools)

        if self.part_schema is not None:
            plan["output_schema"] = self.part_schema

        return plan


def read_function(store: Store, ref: str, caller: str) -> Function:
    """Read an idea as a function, based on one of the caller's runs.

    Raises:
        UnknownIdeaError, UnknownRunError: this caller has no such idea or run.
        NoFinishedRunError: no run in this store ended with the idea.
        PublicationError: the idea's run has not ended, or the idea takes several inputs.
    """
    stored, run_id = find_idea(store, ref, caller)
    run = read_run(store, run_id, ended=True)
    record = store.runs.get(run_id)
    if run is None:
        status = "gone" if record is None else record.status
        raise PublicationError(
            f"run {run_id} is {status} and has not ended; publish it after it ends, or cancel it "
            "first"
        )

    messages = read_context(stored.idea.context)
    inputs = [message for message in messages if message.type == "input" and not message.instance]
    if len(inputs) > 1:
        raise PublicationError(
            "the idea has more than one input, but a tool's parameters must come from exactly one"
        )

    value = inputs[0].value if inputs else None
    machine = run.machine
    output, fault = _unwrapped(run)
    if not run.is_done and any(
        progress.status is not CallStatus.DONE for progress in machine.history
    ):
        # The results of calls that did not end are unknown, so the plan returns its state instead.
        output = None
        fault = None

    faults: list[str] = []
    if record is not None:
        for place, reason in unkept(record).items():
            faults.append(f"calls.{place} is not stored completely: {reason}")

    faults += _left_behind(run)
    faults += _otherwise(run)
    if fault is not None:
        faults.append(fault)

    whole, part = _output_schemas(run)
    states = {name: _initial(machine.messages, name) for name in machine.instances}
    input_schema, _ = function_schemas(stored.idea)
    return Function(
        stored=stored,
        run=run,
        input=value if isinstance(value, dict) else None,
        input_schema=input_schema
        or {"type": "object", "properties": {}, "additionalProperties": False},
        output_schema=whole,
        part_schema=part,
        calls=run.calls(),
        output=without_reads(output, reading_calls(machine.history)),
        instances=states,
        tools=_own_tools(run),
        faults=faults,
    )


def _initial(messages: list[Message], instance: str) -> JSONObject:
    for message in messages:
        if message.type == "state" and message.instance == instance:
            return message.members
    return {}


def _output_schemas(run: RecordedRun) -> tuple[JSONObject | None, JSONObject | None]:
    """Return the schema of the run's result and the schema of each instance's output, where None
    stands for a schema that the user did not request.
    """
    schema = run.machine.output_schema
    if not run.machine.has_output:
        # The run returns its state, which no output schema describes.
        return None, None
    if run.machine.mode == "solve" and schema is None:
        return {"type": "string"}, None
    if schema is None or not run.machine.settings.output_by_instance:
        return schema, None
    return {
        "type": "object",
        "additionalProperties": move_refs(schema, ("additionalProperties",)),
    }, schema


def _unwrapped(run: RecordedRun) -> tuple[JSON, str | None]:
    """Remove the `{"value": ...}` wrapper from a nullable output. Return the output, and why it
    cannot be unwrapped, or None if it can.
    """
    machine = run.machine
    output = machine.solution.output
    if machine.mode != "solve" or not wrap_output(machine.output_schema)[1]:
        return output, None

    members = object_or_empty(output)
    if list(members) == ["value"]:
        value = members["value"]
        return value, "its output is null for every input" if value is None else None

    if isinstance(output, str) and is_reference(output):
        operands = list(parse_reference(output).operands())
        if len(operands) == 1:
            return f"{operands[0].text}.value", None

    return output, 'its output is not written as {"value": ...}, so its value is unknown'


def _own_tools(run: RecordedRun) -> list[JSONObject]:
    """Return the tools that were defined in a run's context and used by its calls. Later
    definitions replace earlier ones.
    """
    called = {progress.call.name for progress in run.machine.history}
    definitions = [message.value for message in run.machine.messages if message.type == "tool"]
    named = {str(value.get("name")): value for value in objects_in(definitions)}
    return [value for name, value in named.items() if name in called]


def _left_behind(run: RecordedRun) -> list[str]:
    """Describe the parts of a run's context that influence the results of its calls but cannot be
    part of a plan.
    """
    parts: list[str] = []
    states: set[str] = set()
    for number, message in enumerate(run.machine.messages):
        where = f" of instance {message.instance}" if message.instance else ""
        part = ""
        if message.type == "data":
            part = f"data {message.kind!r}{where}"
        elif message.type == "input" and message.instance:
            part = f"an input{where}"
        elif message.type == "state":
            is_first = bool(message.instance) and message.instance not in states
            if message.schema is not None:
                part = f"a schema of the state{where}"
            elif message.value and not is_first:
                part = f"a state{where}"
            states.add(message.instance)

        if part:
            parts.append(f"context.{number} holds {part}")

    if parts:
        return [f"its context contains what a plan cannot contain: {'; '.join(parts)}"]
    if run.machine.mode == "solve" and run.machine.instances:
        return ["it was solved for several instances; with instances, only a plan can be published"]
    return []


def _otherwise(run: RecordedRun) -> list[str]:
    """Describe what a plan with the same calls as a run would not repeat: groups, cancelled steps
    and replaced calls.
    """
    differences: list[str] = []
    steps = 0
    for event in run.events:
        if isinstance(event, SolutionProposed):
            steps += 1
            if event.pattern is not None:
                differences.append(
                    f"step {steps - 1} is a group ({event.pattern}: {_PATTERNS[event.pattern]})"
                )
        elif isinstance(event, SolutionCancelled):
            differences.append(f"step {steps - 1} was cancelled")

    for progress in run.machine.history:
        if progress.replaced is not None:
            label = f"calls.{progress.call.place} ({progress.call.name})"
            differences.append(f"a person replaced {label} by {progress.replaced.name!r}")

    if not differences:
        return []

    return [
        "a plan runs every call that it lists, independently of the others, but "
        + first_of(differences)
    ]


def first_of(texts: Sequence[str]) -> str:
    """Join the first twenty strings, and say how many more there are."""
    more = f"; and {len(texts) - 20} more" if len(texts) > 20 else ""
    return "; ".join(texts[:20]) + more


# -- equal values ----------------------------------------------------------------------------------

_MOST_VALUES = 100_000
"""The maximum number of values that are examined in one result."""

_MOST_DEPTH = 40


def is_distinctive(value: JSON) -> bool:
    """Return whether a value is distinctive enough to identify its source, unlike null, true, false
    and empty values.
    """
    return not (value is None or isinstance(value, bool) or value in ("", [], {}))


def digest(value: JSON) -> str:
    """Return a digest of a value, which equals another value's digest if and only if the values are
    equal.
    """
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, bool) or value is None:
        return f"c{value}"
    if isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer()
        return f"n{int(value)}" if whole else f"n{value!r}"
    if isinstance(value, list):
        return _hash("l", (digest(item) for item in value))
    return _hash("d", (f"{len(key)}:{key}{digest(value[key])}" for key in sorted(value)))


def _hash(kind: str, parts: Iterable[str]) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hashed.update(f"{len(raw)}:".encode() + raw)
    return kind + hashed.hexdigest()


def walk(document: JSON) -> Iterator[tuple[Path, JSON]]:
    """Yield up to 100,000 values in a document, each with its path as used in references. Values
    inside strings that contain JSON are included.
    """
    return islice(_walk(document, ()), _MOST_VALUES)


def _walk(value: JSON, path: Path) -> Iterator[tuple[Path, JSON]]:
    yield path, value
    if len(path) >= _MOST_DEPTH:
        return

    inner = opened(value)
    if isinstance(inner, Missing):
        return

    for key, part in parts_of(inner):
        yield from _walk(part, (*path, str(key)))


# -- executed calls --------------------------------------------------------------------------------

_ERRORS: Final = "†data.error."


@dataclass(frozen=True, slots=True)
class Executed:
    """A call that ran, or that belongs to a branch that was not taken.

    Attributes:
        progress: the call and its result.
        step: the Request in which the call ran.
        chosen: the Request that first proposed the call. A failed call that is proposed again
            unchanged counts as the same call.
        raw: the call as it ran, with a person's changes as literals.
        edited: who changed the call, or None if nobody did.
    """

    progress: Progress
    step: int
    chosen: int
    raw: JSONObject
    edited: str | None = None

    @property
    def index(self) -> int:
        """The call's number in the run."""
        return self.progress.call.index

    @property
    def is_made(self) -> bool:
        """Whether this run made the call; see `not_made`."""
        return self.index >= 0

    def not_made(self) -> Executed:
        """Return a placeholder for this call, without parameters and result, in a run that did not
        make it.
        """
        call = dataclasses.replace(self.progress.call, index=-1)
        return Executed(Progress(call, CallStatus.SKIPPED), self.step, self.chosen, {})

    @property
    def key(self) -> ToolKey | None:
        """The key of the call's tool, or None if the tool is unknown."""
        tool = self.progress.call.tool
        return None if tool is None else tool.key

    @property
    def name(self) -> str:
        """The name of the call's tool."""
        return self.progress.call.name

    @property
    def reads_only(self) -> bool:
        """Whether the call's tool declares itself read-only, or the call only asks a mind."""
        call = self.progress.call
        if call.has_written_result or call.room == "latent":
            return True
        return call.tool is not None and call.tool.annotations.read_only is True


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call that a lifted plan leaves out.

    Attributes:
        index: the number of the call in the run.
        name: the name of the call's tool.
        why: the reason, such as `it failed` or `it was denied`.
        retried: True if the call was proposed again and the plan contains the repetition.
        matters: True if the call was part of a plan, or ran and failed, and was not proposed again.
    """

    index: int
    name: str
    why: str
    retried: bool
    matters: bool

    @property
    def shown(self) -> str:
        """The line for a report, with the call's number in the run: `calls.0 (send): it failed`."""
        again = ", and was proposed again" if self.retried else ""
        return f"calls.{self.index} ({self.name}): {self.why}{again}"


_NOT_RUN: Final = frozenset(
    {
        CallStatus.WAITING,
        CallStatus.ASKING,
        CallStatus.QUEUED,
        CallStatus.RUNNING,
        CallStatus.CANCELLED,
    }
)
"""The statuses of calls that have no result because the run ended early."""


def executed_calls(run: RecordedRun) -> tuple[list[Executed], list[LeftOut]]:
    """Return the calls that ran, in the order of listing, and the calls that a plan leaves out
    because they failed, were denied, or had not ended when the run ended.

    Neither list contains calls that only showed values to a mind.
    """
    edits: dict[int, CallDecided] = {}
    for event in run.events:
        if isinstance(event, CallDecided) and event.decision == "edit":
            edits[event.call] = event

    history = run.machine.history
    readers = reading_calls(history)
    executed: list[Executed] = []
    failed = _FailedCalls()
    for progress, step in zip(history, run.steps, strict=True):
        if progress.status is CallStatus.FAILED or progress.status in _NOT_RUN:
            failed.add(progress, step)
            continue

        chosen = failed.first_step(progress, step)
        if is_reader(progress.tool):
            # This call only showed values to a mind. The plan passes these values on by reference,
            # so it does not need the call.
            continue

        index = progress.call.index
        raw = _as_planned(progress.call.raw, history, readers)
        editor: str | None = None
        if index in edits:
            editor = str(edits[index].by)
            edited = edits[index].edited
            if edited is not None:
                raw = _as_edited(progress, edited, run.proposed.get(index, {}))

        executed.append(Executed(progress, step, chosen, raw, editor))

    left_out = [
        _left_out(call, retried=call.call.index in failed.retried, run=run) for call in failed.calls
    ]
    return executed, left_out


def _as_planned(
    raw: JSONObject, history: Sequence[Progress], readers: Mapping[Path, Progress]
) -> JSONObject:
    """Return a call as written, except for its references to failed calls and reading calls."""
    planned: JSONObject = {}
    with_error = partial(_with_error, history=history)
    for key, value in raw.items():
        planned[key] = without_reads(map_references(value, with_error), readers)

    return planned


def written_parameters(raw: JSONObject) -> JSONObject:
    """Return the parameters of a call as written, including its `_each`."""
    return {
        key: value for key, value in raw.items() if key not in META_PROPERTIES or key == "_each"
    }


class _FailedCalls:
    """The failed calls of a run, and which of them later calls repeat.

    Attributes:
        calls: the failed calls.
        retried: the numbers of the failed calls that a later call repeats.
    """

    def __init__(self) -> None:
        self.calls: list[Progress] = []
        self.retried: set[int] = set()
        self._alike: dict[tuple[ToolKey, str], list[int]] = {}
        self._steps: dict[tuple[ToolKey, str], int] = {}

    def add(self, call: Progress, step: int) -> None:
        """Add a failed call that a Request proposed."""
        self.calls.append(call)
        for mark in self._marks(call):
            self._alike.setdefault(mark, []).append(call.call.index)
            self._steps.setdefault(mark, step)

    def first_step(self, later: Progress, step: int) -> int:
        """Return the Request of the first failed call that `later` repeats, or `step` if it repeats
        none.
        """
        marks = list(self._marks(later)) if self.calls else []
        for mark in marks:
            # Remove the failed calls that are found here, so that only the first of several
            # repetitions finds them.
            self.retried.update(self._alike.pop(mark, ()))
        return min((self._steps[mark] for mark in marks if mark in self._steps), default=step)

    @staticmethod
    def _marks(call: Progress) -> Iterator[tuple[ToolKey, str]]:
        """Yield the keys by which a repetition of the call is recognised: the tool with the
        parameters that the mind wrote, and the tool with the parameters of the execution.
        """
        tool = call.call.tool
        if tool is None:
            return

        yield tool.key, f"written {digest(written_parameters(call.call.raw))}"
        if call.items:
            parameters: list[JSON] = [item.parameters for item in call.items]
            yield tool.key, f"ran {digest(parameters)}"


def _left_out(progress: Progress, *, retried: bool, run: RecordedRun) -> LeftOut:
    denied = progress.error is not None and progress.error.get("kind") == "denied"
    # A mind that saw the call fail might have made later calls because of it.
    ran = any(item.started for item in progress.items)
    matters = not retried and (run.machine.mode == "plan" or (ran and not denied))
    if progress.status in _NOT_RUN:
        reason = "it did not end"
    elif denied:
        reason = "it was denied"
    else:
        reason = "it failed"

    return LeftOut(progress.call.index, progress.call.name, reason, retried, matters)


def _as_edited(progress: Progress, edited: JSONObject, proposed: JSONObject) -> JSONObject:
    """Return the call as a person edited it. The edited parts are literals, and the others are as
    proposed.
    """
    raw = progress.call.raw
    call = {key: value for key, value in raw.items() if key in META_PROPERTIES}
    items = edited_parameters(edited)
    if progress.call.has_each:
        # Each execution has its own parameters, so turn them into the items.
        call["_each"] = [escaped(item) for item in items]
        for item in items:
            for key in item:
                call[key] = format_reference(("item", key))

        return call

    for key, value in items[0].items():
        call[key] = _unless_edited(raw.get(key), proposed.get(key), value)

    return call


def _unless_edited(written: JSON, proposed: JSON, ran: JSON) -> JSON:
    """Return a value as written, with the parts that a person edited as literals."""
    if written is not None and same(proposed, ran):
        return written
    if not (isinstance(written, dict) and isinstance(proposed, dict) and isinstance(ran, dict)):
        return escaped(ran)
    return {
        key: _unless_edited(written.get(key), proposed.get(key), value)
        for key, value in ran.items()
    }


def _with_error(text: str, history: Sequence[Progress]) -> JSON:
    """Return the value that a reference to a failed call (`†data.error.PLACE`) read, because a plan
    does not contain the failed call. Return any other reference unchanged.
    """
    if not text.startswith(_ERRORS):
        return text

    operand, *others = parse_reference(text).operands()
    place = operand.path[1] if operand.path[1:] and not others else ""
    error: JSON = None
    if place.isdecimal() and int(place) < len(history):
        failed = history[int(place)]
        error = {"call": failed.call.raw, "place": int(place), "error": failed.error}

    value = read_path(error, operand.path[2:])
    return text if isinstance(value, Missing) else escaped(value)


def reading_calls(history: Sequence[Progress]) -> dict[Path, Progress]:
    """Return the calls that showed a value to a mind, keyed by the path of their result, as needed
    by `without_reads`.
    """
    return {call.wrote[0]: call for call in history if is_reader(call.tool) and call.wrote}


def without_reads(value: JSON, readers: Mapping[Path, Progress]) -> JSON:
    """Replace the references to results of reading calls with references to the values that these
    calls read, because a plan does not contain reading calls.

    If a call read only a part of a value, such as some lines of a string, that part becomes a
    literal.
    """
    if not readers:
        return value
    return map_references(value, partial(_without_read, readers=readers))


def _without_read(text: str, readers: Mapping[Path, Progress]) -> JSON:
    operand, *others = parse_reference(text).operands()
    if others:
        return text

    full = operand.full
    prefixes = [full[:length] for length in range(1, len(full) + 1)]
    above = [readers[prefix] for prefix in prefixes if prefix in readers]
    if not above:
        return text

    latest = max(above, key=lambda reader: reader.call.index)
    below = full[len(latest.wrote[0]) :]
    if below[:1] == ("value",):
        original = str(meant_reference(latest.call.raw.get("reference")))
        return f"{original}{format_path(below[1:])}"

    value = read_path(latest.value, below)
    return text if isinstance(value, Missing) else escaped(value)
