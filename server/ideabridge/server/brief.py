"""Shorten answers about runs for models. What a model already knows is omitted, and previews
replace long values.

Each token of an answer uses up the model's context. The journal contains everything, and
`check_run` with paths returns values in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ideabridge.bridge.context.messages import CALLS, ContextParts, Handlers, read_context
from ideabridge.bridge.context.preview import reference_to
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.references import Path, PathIndex, is_reference
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.loop.tool_offer import offered_by
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.stubs import first_line_of
from ideabridge.bridge.runs.run import Run
from ideabridge.server.search import ToolSearch, tool_line
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, encode, object_or_empty
from ideabridge.tools.json_parts import part_at
from ideabridge.tools.names import joined
from ideabridge.tools.tool import Tool

_FULL_BYTES: Final = 400
"""Maximum size, in bytes of JSON, of a value that is shown in full."""

_MOST_NAMED: Final = 20
"""Maximum number of places with removed values that an answer names."""


def shorten_answer(run: Run, result: dict[str, Any], *, is_next_turn: bool = False) -> None:
    """Remove from a run's answer the parts that its reader does not need.

    Args:
        run: the run.
        result: the answer about the run, which is modified in place.
        is_next_turn: whether the reader has already received the answer about the previous turn.
    """
    usage = result.get("usage", {})
    if not usage.get("tokens"):
        # With the mind `turns`, the host's own model answers. Its tokens are not counted, so leave
        # out the usage.
        result.pop("usage", None)

    # Leave out the idea, because every tool that accepts an idea also accepts the run.
    result.pop("idea", None)
    if is_next_turn:
        result.pop("mind", None)

    if "output" in result or result["status"] == "needs_approval":
        for key in ("state", "results"):
            result.pop(key, None)
    elif result["status"] == "done" and run.machine.mode == "plan" and not run.machine.instances:
        _keep_last_values(run, result)


# -- plans without an output -----------------------------------------------------------------------


def _keep_last_values(run: Run, result: dict[str, Any]) -> None:
    """In the answer of a plan without an output, keep only the values that no call reads, and add a
    note that names the others.
    """
    values = {key: result[key] for key in ("state", "results") if result.get(key)}
    if not values or len(encode(values)) <= _FULL_BYTES:
        return

    read = PathIndex()
    for call in run.machine.history:
        for path in _reads(call):
            read.add(path, call.call.index)

    needed = PathIndex()
    written: list[Path] = []
    for call in run.machine.history:
        if call.status is not CallStatus.DONE or not call.wrote:
            continue
        path = call.wrote[0]
        written.append(path)
        if not read.has_overlap(path):
            needed.add(path, call.call.index)

    unneeded = [path for path in dict.fromkeys(written) if not needed.has_overlap(path)]
    removed = [path for path in unneeded if _remove(values, path)]
    if not removed:
        return

    for key in values:
        result[key] = values[key]
        if not values[key]:
            del result[key]

    note = (
        "the plan has no output, so this answer shows only the values that no call reads. To get "
        f"the others, call check_run with paths: {_places(removed)}"
    )
    result["notes"] = [*result.get("notes", []), note]


def _places(paths: Sequence[Path]) -> str:
    """Return text that lists the first few paths and says how many more there are."""
    places = ["†" + ".".join(map(str, path)) for path in paths]
    return joined(places, _MOST_NAMED)


def _reads(progress: Progress) -> Iterator[Path]:
    for read in progress.call.reads:
        for operand in read.expression.operands():
            yield operand.full


def _remove(values: JSONObject, path: Path) -> bool:
    """Remove the value at a path, and any objects around it that become empty. Return whether there
    was a value.
    """
    *above, last = path
    parent = object_or_empty(part_at(values, [*map(str, above)]))
    if str(last) not in parent:
        return False
    del parent[str(last)]
    if len(above) > 1 and not parent:
        _remove(values, tuple(above))

    return True


# -- approvals -------------------------------------------------------------------------------------


def preview_approvals(run: Run, approvals: list[JSONObject]) -> list[JSON]:
    """Return approvals with previews of long parameters. Forms and terminals show people the
    parameters in full.

    Args:
        run: the run.
        approvals: the approvals, in the form that `Run.answer` uses.
    """
    written = {question.approval: question.call for question in run.questions()}
    return [
        _preview(approval, run, written.get(str(approval["approval"]))) for approval in approvals
    ]


def _preview(approval: JSONObject, run: Run, place: int | None) -> JSONObject:
    call = approval.get("call")
    if not isinstance(call, dict) or len(encode(call)) <= _FULL_BYTES * 2:
        return approval
    raw = run.machine.history[place].call.raw if place is not None else {}
    return {
        **approval,
        "call": {key: _value_preview(value, raw.get(key)) for key, value in call.items()},
    }


def _value_preview(value: JSON, written: JSON) -> JSON:
    if len(encode(value)) <= _FULL_BYTES:
        return value

    preview = reference_to(value, ("state",))
    del preview["reference"]
    if isinstance(written, str) and is_reference(written):
        return {"reference": written, **preview}
    return preview


# -- Requests --------------------------------------------------------------------------------------

_MOST_TOOLS: Final = 30
"""Maximum number of tools that are described in a Request. `search_tools` finds the others."""

_TOOL_CHARACTERS: Final = 14_000
"""Limit, in characters, on the descriptions of tools."""

_TASK_CHARACTERS: Final = 2_000
_READS: Final = "(reference: str, from?: int, length?: int, find?: str)"
_BUILT_IN: Final = frozenset(tool.name for tool in builtin_toolbox())

_CALLS: Final[JSONObject] = {
    "type": "array",
    "items": {"type": "object", "properties": {"_tool": {"type": "string"}}, "required": ["_tool"]},
}
_HOW: Final = (
    'A call: {"_tool": "git_log", "repo_path": ".", "_outputPath": "log"}; where needed with '
    '_each (array or reference: one call per "†item"), _outputMethod (set, merge, push), '
    "_module, _id, _after ([_ids]). Tools:"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What the reader of an answer already knows.

    Attributes:
        answered: the run (or room) whose turn was answered; "" if a run was started.
        before: the Request of the answered turn, or None if a run was started.
        sent: the messages in the call that started a run.
    """

    answered: str = ""
    before: Request | None = None
    sent: tuple[JSON, ...] = ()


NOTHING: Final = Known()


def brief_requests(
    run: Run, entries: list[JSONObject], tools: list[Tool], search: ToolSearch, reader: Known
) -> list[JSONObject]:
    """Shorten the Requests in an answer. The signatures of the tools replace the full schema, which
    grows with each tool.

    Args:
        run: the run.
        entries: the Requests of the run, in the form that `Run.answer` uses.
        tools: all tools that the bridge has.
        search: an index of those tools.
        reader: what the reader of the answer already knows, which is not repeated.
    """
    asking = {
        open_run.runner.request.id: open_run
        for open_run in run.open_requests()
        if open_run.runner.request is not None
    }
    briefs: list[JSONObject] = []
    for entry in entries:
        brief: JSONObject | None = None
        asking_run = asking.get(str(entry["id"]))
        if reader.before is not None and entry.get("run", run.id) == reader.answered:
            brief = _changed(entry, reader.answered, reader.before, asking_run, tools, search)
        elif reader.sent and asking_run is run:
            brief = _without_sent(_brief(entry, asking_run, tools, search), reader.sent)

        brief = brief or _brief(entry, asking_run, tools, search)
        briefs.append({key: value for key, value in brief.items() if key != "id"})

    return briefs


def _without_sent(entry: JSONObject, sent: Sequence[JSON]) -> JSONObject:
    """Return a first Request without the messages that its reader has just sent."""
    texts = Handlers().assemble(ContextParts(read_context(sent))).texts
    messages = entry["context"]
    if isinstance(messages, list):
        context = [message for message in messages if message not in texts]
    else:
        context = []

    instructions = (
        f"{entry['instructions']}\nWhat you passed in your call is left out of the context (read "
        "its input as †input.KEY); check_run shows all of it."
    )
    return {**entry, "instructions": instructions, "context": list[JSON](context)}


def _changed(
    entry: JSONObject,
    answered: str,
    before: Request,
    run: Run | None,
    tools: list[Tool],
    search: ToolSearch,
) -> JSONObject | None:
    """Return a Request without the parts that the host already knows from the previous turn. Return
    None if its schema differs from the previous one by more than added tools.
    """
    messages = entry["context"]
    schema = entry["schema"]
    if not isinstance(messages, list) or not isinstance(schema, dict):
        return None

    new: list[str] = []
    if schema != before.schema:
        if run is None or _without_tools(schema) != _without_tools(before.schema):
            return None

        had = {tool.key for tool in offered_by(run.machine.offer.initial, before.offered).tools}
        offered = run.machine.offer.current.tools
        if had - {tool.key for tool in offered}:
            return None
        new = _lines(run, tools, search, [tool for tool in offered if tool.key not in had])

    context = [
        changed
        for message in messages
        if (changed := _difference(message, before.texts)) is not None
    ]
    instructions = (
        "Write the next solution, as in the previous turn; check_run shows its schema and tools "
        "again."
    )
    left_out = len(messages) - len(context)
    if left_out:
        instructions += (
            f" {left_out} messages of the context are the same as in the previous turn and left "
            "out here."
        )

    if "run" in entry:
        instructions += f" Answer it to run {answered}, turn {entry['turn']}."

    if new:
        instructions = "\n".join([f"{instructions} More tools can be called now:", *new])

    changed = {key: value for key, value in entry.items() if key != "schema"}
    return {**changed, "instructions": instructions, "context": list[JSON](context)}


_STATE: Final = "State, read as "
_SINCE: Final = "; what is new since the previous turn"


def _difference(message: JSON, before: Sequence[JSONObject]) -> JSON:
    """Return a message without the lines that it already had in the previous turn, or None if
    nothing has changed.

    Text about a state has one line per member, and text about calls has one line per call.
    """
    if message in before or not isinstance(message, dict):
        return None if message in before else message

    title, *lines = str(message["content"]).split("\n")
    is_state = title.startswith(_STATE)
    if not is_state and not title.startswith(CALLS):
        return message

    earlier = next(
        (
            str(candidate["content"])
            for candidate in before
            if _is_same_kind(title, str(candidate["content"]))
        ),
        None,
    )
    if earlier is None:
        return message

    parts = _entries(lines)
    earlier_parts = [part.rstrip(",") for part in _entries(earlier.split("\n")[1:])]
    left = set(earlier_parts)
    new = [part for part in parts if part.rstrip(",") not in left]
    if is_state:
        keys = {_key(part) for part in parts}
        gone = [
            key for part in earlier_parts if (key := _key(part)) is not None and key not in keys
        ]
        if gone:
            new.append(f"no longer there: {', '.join(gone)}")

    if not new:
        return None
    return {**message, "content": "\n".join([f"{title.removesuffix(':')}{_SINCE}:", *new])}


def _is_same_kind(title: str, earlier: str) -> bool:
    """Return whether a message and one from the previous turn are both about the same state, or
    both about calls.
    """
    if title.startswith(CALLS):
        return earlier.startswith(CALLS)
    return earlier.startswith(f"{title}\n")


def _entries(lines: Sequence[str]) -> list[str]:
    """Split text into entries, each consisting of a line and the lines below it that are indented
    by two spaces.
    """
    entries: list[str] = []
    for line in lines:
        if line.startswith("  ") and entries:
            entries[-1] += f"\n{line}"
        else:
            entries.append(line)
    return entries


def _key(line: str) -> str | None:
    """Return the name of the state member that a line shows, or None if it shows none."""
    if not line.startswith(' "'):
        return None

    try:
        key, end = json.JSONDecoder().raw_decode(line[1:])
    except ValueError:
        return None

    if isinstance(key, str) and line[1 + end :].startswith(":"):
        return key
    return None


def _brief(
    entry: JSONObject, run: Run | None, all_tools: list[Tool], search: ToolSearch
) -> JSONObject:
    schema = entry["schema"]
    if run is None or not isinstance(schema, dict):
        return entry

    lines = _lines(run, all_tools, search, run.machine.offer.current.tools)
    if lines:
        instructions = "\n".join([f"{entry['instructions']} {_HOW}", *lines])
    else:
        instructions = entry["instructions"]

    return {**entry, "instructions": instructions, "schema": _without_tools(schema)}


def _lines(run: Run, all_tools: list[Tool], search: ToolSearch, tools: list[Tool]) -> list[str]:
    """Return a line for each tool of a run. If there are too many tools, only those that best fit
    the run's task are included.
    """
    listed = tools
    if len(tools) > _MOST_TOOLS:
        keys = {tool.key for tool in tools}
        task = " ".join(
            str(message.value) for message in run.machine.messages if message.type == "text"
        )
        always = [tool for tool in tools if tool.module is None and tool.name in _BUILT_IN]
        matches = search.find(all_tools, task[:_TASK_CHARACTERS], _MOST_TOOLS)
        others = [tool for tool in matches.tools if tool.key in keys and tool not in always]
        listed = [*always, *others][:_MOST_TOOLS]

    names = ProgramNames(tools)
    lines: list[str] = []
    room = _TOOL_CHARACTERS
    for tool in listed:
        # Programs never call these tools, so `names` has no signatures for them.
        if is_reader(tool):
            head = f"{tool.name}{_READS}"
        else:
            head = tool_line(tool, names)

        line = f"{head}: {first_line_of(tool.description)}".removesuffix(": ")
        room -= len(line)
        if room < 0:
            break
        lines.append(line)

    more = len(tools) - len(lines)
    return [*lines, f"and {more} more, which search_tools finds"] if more else lines


def _without_tools(schema: JSONObject) -> JSONObject:
    """Return the schema of a Solution without the schemas of the tools that it can call."""
    solution = SolutionSchema.read(schema)
    members: JSONObject = {**solution.properties, "calls": _CALLS}
    program = object_or_empty(members.get("program"))
    if program:
        # Shorten the description, because the lines above already contain the signatures of these
        # tools.
        members["program"] = {
            **program,
            "description": str(program.get("description")).partition(" Tools:\n")[0],
        }

    result: JSONObject = {**schema, "properties": members}
    result.pop("$defs", None)
    needed = solution.definitions_for(result)
    return {**result, "$defs": needed} if needed else result
