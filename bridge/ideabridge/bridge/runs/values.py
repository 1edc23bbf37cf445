"""Read the Solutions that are submitted to a run, and show the run's results as JSON or as Python
types.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from ideabridge.bridge.context.preview import reference_to, shorten, shorten_error
from ideabridge.bridge.context.references import Reference, parse_reference
from ideabridge.bridge.context.state import Missing, describe_missing
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.errors import OutputTypeError, RejectedSolutionError, UnknownPathError
from ideabridge.bridge.loop.event import (
    Pattern,
    ProgramProposed,
    SolutionProposed,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.modules.blocks import Blocks
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    content_hash,
    encode,
    normalise,
    object_or_empty,
)
from ideabridge.tools.errors import ValueMismatchError
from ideabridge.tools.reading import BESIDE_PROGRAM, Solution, read_program, read_solution
from ideabridge.tools.typed import read_as

INLINE: Final = 4096
"""The maximum size, in bytes of JSON, of a value that an answer shows in full."""

RESULTS: Final = 128 * 1024
"""The maximum size, in bytes, of the results in one answer. Beyond this, the answer shows
references.
"""


def digest_of_solution(proposed: SolutionProposed | ProgramProposed) -> str:
    """Return a hash that distinguishes the Solutions submitted for one turn."""
    if isinstance(proposed, ProgramProposed):
        return content_hash({"program": proposed.program})

    solution: JSONObject = {"calls": proposed.calls, "output": proposed.output}
    if proposed.pattern is not None:
        solution["pattern"] = proposed.pattern
    return content_hash(solution)


def read_submission(
    raw: JSON, mind: str | None, model: str | None, pattern: Pattern | None = None
) -> tuple[SolutionProposed, list[str]]:
    """Read a submitted solution. Return it, and one sentence for each part that was malformed but
    could be read.

    Raises:
        ValueMismatchError: the value is not a solution.
    """
    members, notes = read_solution(raw)
    solution = read_as(Solution, members)
    extra = {key: value for key, value in members.items() if key not in ("calls", "output")}
    proposed = SolutionProposed(
        solution.calls, solution.output, extra or None, None, mind, model, pattern
    )
    return proposed, notes


def program_in(proposed: SolutionProposed) -> str | None:
    """Return the text of the program if a submitted solution is a program (`{"program": TEXT}`),
    otherwise None.

    Raises:
        RejectedSolutionError: the solution also has calls or an output, or the program is not a
            string.
    """
    try:
        program = read_program((proposed.extra or {}).get("program"))
    except ValueMismatchError as error:
        raise RejectedSolutionError(str(error)) from None
    if program is not None and (
        proposed.calls or proposed.output is not None or proposed.pattern is not None
    ):
        raise RejectedSolutionError(BESIDE_PROGRAM)
    return program


def results_of(machine: Machine, *, whole: bool, blocks: Blocks | None = None) -> JSONObject:
    """Return the values of calls without an output path, keyed by place (or by `INSTANCE.PLACE` if
    the run has instances).

    Args:
        machine: the machine of the run.
        whole: whether to return large values in full instead of shortening them.
        blocks: collects the content blocks from the values before these are shortened.
    """
    results: JSONObject = {}
    room = RESULTS
    for progress in machine.history:
        if progress.status is not CallStatus.DONE or not progress.wrote:
            continue

        path = progress.wrote[0]
        # Until its whole group has ended, a staged result is visible only inside the group.
        if path[0] != "results" or progress.staged:
            continue

        instance = progress.call.instance or None
        key = f"{instance}.{path[1]}" if instance else path[1]
        if whole:
            results[key] = progress.value
            continue

        value = _without_blocks(progress.value, blocks)
        short = shorten(value, path, instance=instance, small=_small(room))
        room -= len(encode(short))
        results[key] = short

    return results


def _small(room: int) -> int:
    """Return the maximum size, in bytes, of a value that is shown in full in an answer of `room`
    bytes.
    """
    return INLINE if room > 0 else 64


def _without_blocks(value: JSON, blocks: Blocks | None) -> JSON:
    """Return a value without its content blocks, which `blocks` collects."""
    return value if blocks is None else blocks.take(value)


def given_by(machine: Machine) -> JSON:
    """Return the result of a run as a function.

    This is the run's output or, if the run has no output schema, its state or, if the state is
    empty, its results. The result of a program is the value of its last expression.
    """
    if machine.has_output or (machine.mode == "plan" and machine.solution.program is not None):
        return machine.output
    if not machine.state:
        results = results_of(machine, whole=True)
        if results:
            return {"results": results}
    return machine.state


def short_output(output: JSON, blocks: Blocks | None = None) -> JSON:
    """Return an output as an answer shows it, without its content blocks, which `blocks` collects.
    `check_run` returns the whole output as †output.
    """
    value = _without_blocks(output, blocks)
    if len(encode(value)) <= INLINE * 4:
        return value
    short = reference_to(value, ("output",), size=len(encode(output)))
    return {**short, "note": 'to get all of it, call check_run with paths: ["†output"]'}


def short_printed(text: str) -> str:
    """Return the text that a program printed as an answer shows it: only the beginning if it is
    long.
    """
    most = INLINE * 4
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} characters; to read all of it, make it the output)"


def short_state(machine: Machine, blocks: Blocks | None = None) -> JSON:
    """Return the state as an answer shows it, or a mapping of instance to state if the run has
    instances. Content blocks are left out, and collected by `blocks`.
    """

    def short(instance: str | None) -> JSON:
        state: JSON = machine.state_of() if instance is None else machine.state_of(instance)
        value = _without_blocks(state, blocks)
        return shorten(value, ("state",), instance=instance, small=INLINE)

    if machine.instances:
        return {name: short(name) for name in machine.instances}
    return short(None)


def short_errors(machine: Machine, blocks: Blocks | None = None) -> list[JSON]:
    """Return the errors of the last Solution as an answer shows them.

    Content that tools sent is shortened like results. The full content is at
    †data.error.PLACE.error.sent.
    """
    errors: list[JSON] = []
    room = RESULTS
    for entry in machine.errors:
        error = entry.get("error")
        if not isinstance(error, dict) or "sent" not in error:
            errors.append(shorten_error(entry))
            continue

        unsent = {key: part for key, part in error.items() if key != "sent"}
        plain = shorten_error({**entry, "error": unsent})
        assert isinstance(plain, dict)
        assert isinstance(plain["error"], dict)
        path = ("data", "error", str(entry.get("place")), "error", "sent")
        sent = shorten(_without_blocks(error["sent"], blocks), path, small=_small(room))
        room -= len(encode(sent))
        errors.append({**plain, "error": {**plain["error"], "sent": sent}})

    return errors


def doubts_of(machine: Machine, most: int | None) -> JSONObject:
    """Return the assumptions of a run: `{"assumed"?, "more_assumed"?, "approved"?,
    "more_approved"?}`, with at most `most` entries each. The members `more_...` say how many more
    there are.

    If `most` is None, all entries are returned, and `noted` contains the notes; see `Doubts`.
    """
    doubts = machine.doubts
    listed: JSONObject = {}
    for name, entries in (("assumed", doubts.assumed), ("approved", doubts.approved)):
        if entries:
            listed[name] = list[JSON](entries[:most])
        if most is not None and len(entries) > most:
            listed[f"more_{name}"] = len(entries) - most

    if most is None and doubts.notes:
        listed["noted"] = list[JSON](doubts.notes)

    return listed


def skipped_calls(machine: Machine) -> list[JSONObject]:
    """Return the skipped calls in the last Solution, each as `{"place", "tool", "instance"?,
    "why"}`.
    """
    skipped: list[JSONObject] = []
    for progress in machine.skipped:
        call = progress.call
        entry: JSONObject = {"place": call.place, "tool": call.name}
        if call.instance:
            entry["instance"] = call.instance

        entry["why"] = (progress.error or {}).get("message")
        skipped.append(entry)

    return skipped


def value_at(machine: Machine, text: str) -> JSON:
    """Return the current value at a reference.

    Raises:
        ReferenceSyntaxError: the string is not a reference.
        UnknownPathError: the reference has no value.
    """
    if text.strip() in ("†output", "output"):
        if not machine.has_output:
            raise UnknownPathError("†output: the run has no output")
        return machine.output

    written = text if text.startswith("†") else f"†{text}"
    if written.startswith(CONTENT):
        return _content_at(machine, written)

    expression = parse_reference(written)
    last = ""
    for alternative in expression.alternatives:
        value: JSON | Missing = None
        for operand in alternative:
            document = _document(machine, operand)
            value = read_path(document, operand.full)
            if isinstance(value, Missing):
                last = describe_missing(document, operand.full, operand.instance)
                break

        if not isinstance(value, Missing):
            return value

    raise UnknownPathError(f"{text}: {last}")


CONTENT: Final = "†content."
"""The prefix of references to content blocks that say more than a call's value. The place of the
call follows, as in †results.
"""


def contents_of(machine: Machine) -> JSONObject:
    """Return the content blocks that calls returned besides their values, keyed by place. For a
    call with `_each`, the value is a list with the content blocks of each item.
    """
    contents: JSONObject = {}
    for progress in machine.history:
        items = [item.content for item in progress.items]
        if any(item is not None for item in items):
            if progress.call.has_each:
                contents[str(progress.call.place)] = list[JSON](items)
            else:
                contents[str(progress.call.place)] = items[0]

    return contents


def _content_at(machine: Machine, written: str) -> JSON:
    path = parse_reference(written.replace(CONTENT, "†results.", 1)).alternatives[0][0].path
    value = read_path(contents_of(machine), path)
    if isinstance(value, Missing):
        raise UnknownPathError(
            f"{written}: the result of this call has no content besides its value"
        )
    return value


def _document(machine: Machine, operand: Reference) -> JSON:
    """Return the document that a reference reads. If the run has ended, it also contains the errors
    of the last Solution (†data.error.PLACE).
    """
    document = machine.documents.get(operand.instance or "", {})
    if operand.full[:2] != ("data", "error") or not machine.ended:
        return document
    errors: JSONObject = {
        str(error["place"]): error for error in machine.errors if error.get("place") is not None
    }
    return {**document, "data": {**object_or_empty(document.get("data")), "error": errors}}


T = TypeVar("T")


def _adapter(model: type[T]) -> TypeAdapter[T]:
    try:
        return TypeAdapter(model)
    except PydanticUserError as error:
        raise OutputTypeError(
            f"{_name(model)} is not a JSON type: {str(error).splitlines()[0]}"
        ) from None


def _name(model: object) -> str:
    return getattr(model, "__name__", None) or str(model)


def schema_of(model: type[object]) -> JSONObject:
    """Return the JSON Schema of values that can be converted to `model`.

    Raises:
        OutputTypeError: pydantic has no schema for the type.
    """
    try:
        schema = _adapter(model).json_schema()
    except PydanticUserError as error:
        raise OutputTypeError(
            f"{_name(model)} has no JSON Schema: {str(error).splitlines()[0]}"
        ) from None
    return cast("JSONObject", normalise(schema, what=f"the schema of {_name(model)}"))


def typed(value: JSON, model: type[T]) -> T:
    """Return the value as a `model`, validated from JSON by pydantic.

    Raises:
        OutputTypeError: the value does not fit the type. The message says where.
    """
    try:
        return _adapter(model).validate_json(encode(value))
    except ValidationError as error:
        faults: list[str] = []
        for fault in error.errors()[:5]:
            place = ".".join(map(str, fault["loc"])) or "the output"
            faults.append(f"{place}: {fault['msg']}")
        raise OutputTypeError(
            f"the output is not a valid {_name(model)}: {'; '.join(faults)}"
        ) from None
