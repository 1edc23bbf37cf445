"""Answers: results of tool calls, and the text for hosts that show only text (DESIGN 6).

A result is built in its wire form, a plain object: the SDK validates it once against the protocol's version, and a
model in between would only cost time.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from ideabridge.bridge.context.preview import reference_to
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text

ToolAnswer: TypeAlias = "dict[str, Any]"
"""A `CallToolResult` in its wire form."""

MAX_RESULT: Final = 700_000
"""Bytes of JSON in the values one answer about a run holds: SDK clients refuse events over 1 MiB."""

MAX_DIRECT: Final = 900_000
"""Bytes of JSON the whole answer of a direct call has; see `MAX_RESULT`."""

_SURELY_FITS: Final = 70_000
"""Characters of a value that fit, text and structured content, however many bytes each character takes."""

_IN_A_RUN: Final = (
    "Call the tool within run_plan with an _outputPath: the result is kept there, and check_run gives the parts you"
    " need by path."
)
_TEXT_VALUE: Final = 16_000
_TEXT_ERRORS: Final = 20


def answer(structured: JSONObject, text: str) -> ToolAnswer:
    """A result with structured content, and the text that says the same briefly."""
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "resultType": "complete"}


def refusal(text: str, structured: JSONObject | None = None) -> ToolAnswer:
    """A tool error: the text says what is wrong, where, and what was expected."""
    result: ToolAnswer = {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "resultType": "complete",
    }
    if structured is not None:
        result["structuredContent"] = structured
    return result


def value_answer(value: JSON, *, wrapped: bool) -> ToolAnswer:
    """The result of a tool whose value is `value`: whole, or an error that says how large it is.

    Args:
        value: what the tool gave.
        wrapped: whether its output schema says `{"result": value}`, since the protocol wants an object.
    """
    structured: JSONObject = cast("JSONObject", value) if not wrapped and isinstance(value, dict) else {"result": value}
    text = value if isinstance(value, str) else encode_text(value)
    result = answer(structured, text)
    if len(text) <= _SURELY_FITS or size_of(result) <= MAX_DIRECT:
        return result
    # The value fits once, so the text cannot repeat it.
    note = f"The result has {len(text):,} characters. It is whole in the structured content, and too large to repeat as"
    return bounded(answer(structured, f"{note} text. If you see this text only: {_IN_A_RUN}"))


def text_answer(value: JSON) -> ToolAnswer:
    """The result of a tool without an output schema, as text alone: whole, or an error that says how large it is."""
    text = value if isinstance(value, str) else encode_text(value)
    return bounded({"content": [{"type": "text", "text": text}], "resultType": "complete"})


def bounded(result: ToolAnswer) -> ToolAnswer:
    """`result` if it has at most `MAX_DIRECT` bytes, else an error that says how large it is and what to do."""
    size = size_of(result)
    if size <= MAX_DIRECT:
        return result
    return refusal(f"the result has {size:,} bytes; at most {MAX_DIRECT:,} fit into one answer. {_IN_A_RUN}")


def size_of(result: ToolAnswer) -> int:
    """Bytes of JSON of a result."""
    return len(encode(cast("JSON", result)))


def fitting(value: JSON, reference: str, left: int) -> JSON:
    """`value`, or where it has more than `left` bytes its type, size, preview, and how to ask for a part."""
    size = len(encode(value))
    if size <= left:
        return value
    told = reference_to(value, ("state",))
    told["reference"] = reference
    if isinstance(value, dict):
        narrower = f'{reference}["KEY"], keys: {", ".join(list(value)[:20])[:400]}'
    elif isinstance(value, list):
        narrower = f"{reference}.0 to {reference}.{len(value) - 1}"
    else:
        narrower = "a smaller part: a plan's call can cut it"
    told["note"] = f"too large for one answer ({size:,} bytes; at most {MAX_RESULT:,}); ask for {narrower}"
    return told


def fitting_list(values: list[JSON], most: int) -> list[JSON]:
    """The first of `values` that have at most `most` bytes of JSON together, and the first one anyway."""
    size = 0
    for number, value in enumerate(values):
        size += len(encode(value)) + 1
        if size > most and number:
            return values[:number]
    return values


# -- runs --------------------------------------------------------------------------------------------------------


def run_text(told: JSONObject) -> str:
    """What a run's answer says, as text that alone suffices."""
    lines = [f"run {told.get('run')}: {told.get('status')}{_because(told)}"]
    mind = told.get("mind")
    if isinstance(mind, dict):
        lines.append(f"mind: {mind.get('name')}" + (f" ({mind['why']})" if "why" in mind else ""))
    hint = _HINTS.get(str(told.get("status")))
    if hint:
        lines.append(hint.replace("RUN", str(told.get("run"))))
    for key in ("output", "state", "results", "values"):
        value = told.get(key)
        if key in told and (value or key == "output"):
            lines.append(f"{key}: {_short(value)}")
    errors = told.get("errors")
    if isinstance(errors, list) and errors:
        lines.append("errors:")
        lines.extend(f"- {error_line(error)}" for error in errors[:_TEXT_ERRORS])
        if len(errors) > _TEXT_ERRORS:
            lines.append(f"- ... and {len(errors) - _TEXT_ERRORS} more")
    for key in ("missing", "saved", "decided", "notes", "progress"):
        if told.get(key):
            lines.append(f"{key}: {_short(told[key])}")
    approvals = told.get("approvals")
    if isinstance(approvals, list) and approvals:
        lines.append(f"waiting for a decision or an answer; {told.get('decides')}:")
        lines.extend(f"- {_approval_line(one)}" for one in approvals)
        if told.get("more_approvals"):
            lines.append(f"- ... and {told['more_approvals']} more, which are shown once these are decided")
    requests = told.get("requests")
    if isinstance(requests, list):
        for request in requests:
            if isinstance(request, dict):
                lines.extend(_request_lines(request, told.get("turn")))
    idea = told.get("idea")
    if isinstance(idea, str):
        lines.append(f"idea: {idea[:16]}")
    return "\n".join(lines)


_HINTS: Final = {
    "running": 'It goes on; ask check_run {"run": "RUN"} for the rest.',
    "interrupted": "Nothing more happens to it here.",
}


def _because(told: JSONObject) -> str:
    reason = told.get("reason")
    return f" ({reason})" if isinstance(reason, str) else ""


def error_line(error: JSON) -> str:
    """One error of a run: the call's place and tool, and the message."""
    if not isinstance(error, dict):
        return _short(error)
    call, told = error.get("call"), error.get("error")
    message = told.get("message") if isinstance(told, dict) else told
    if isinstance(call, dict):
        place = error.get("place")
        where = f"calls[{place}] " if place is not None else ""
        if "in_solution" in error:
            where = f"calls[{error['in_solution']}], {place} of the run, "
        return f"{where}{call.get('_tool')}: {message}"
    return str(message)


def _approval_line(one: JSON) -> str:
    if not isinstance(one, dict):
        return _short(one)
    choices = one.get("choices")
    takes = f" ({', '.join(map(str, choices))})" if isinstance(choices, list) else ""
    asked = one.get("question")
    if isinstance(asked, dict):
        # As JSON: none of its lines can pass for one of ours.
        form = f"(value fits {_short(asked.get('schema'))})"
        said = f"module {asked.get('module')} asks: {encode_text(asked.get('message'))}"
        return f"{one.get('approval')}{takes}: {said} {form}"
    plan = one.get("plan")
    if isinstance(plan, dict):
        return f"{one.get('approval')}: a plan, because {one.get('why')}\n{_short(plan.get('drawing'))}"
    return f"{one.get('approval')}{takes}: {_short(one.get('call'))} because {one.get('why')}"


def _request_lines(request: JSONObject, turn: JSON) -> list[str]:
    lines = [f"turn: {turn}"]
    if "run" in request:
        # A room's: it has a turn of its own, and is answered to it.
        lines = [f"request of run: {request['run']}", f"turn: {request.get('turn')}"]
    instructions = request.get("instructions")
    if isinstance(instructions, str):
        lines.append(instructions)
    context = request.get("context")
    if isinstance(context, list):
        for message in context:
            if isinstance(message, dict):
                lines.append(f"[{message.get('role')}] {message.get('content')}")
    if "schema" in request:
        lines.append(f"schema: {encode_text(request['schema'])}")
    return lines


def _short(value: JSON) -> str:
    text = value if isinstance(value, str) else encode_text(value)
    return text if len(text) <= _TEXT_VALUE else f"{text[:_TEXT_VALUE]}... ({len(text):,} characters)"
