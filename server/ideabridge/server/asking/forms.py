"""Compose the messages and fields shown to the person at the client for a decision or a server's
question.

A person can approve only what the form shows in full: a call or plan that does not fit cannot be
approved in the form. Each line of text from outside begins with a mark, so that it cannot be
mistaken for text from ideabridge.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlencode

import mcp_types as types

from ideabridge.bridge.context.assumption import Assumption, Candidate
from ideabridge.bridge.context.inquiry import Inquiry
from ideabridge.bridge.loop.question import Choice
from ideabridge.bridge.runs.people import ApprovalRequest
from ideabridge.server.views.shown import (
    FORM,
    choices_if,
    fits,
    plan_without_ids,
    sums_of,
)
from ideabridge.server.views.text import Beginning
from ideabridge.server.views.value_table import MARK, ValueTable, parameter_label, values_of_call
from ideabridge.tools.encoding import JSONObject, encode, list_or_empty
from ideabridge.tools.names import printable, readable_json, visible, wrap_visible

_LINE_WIDTH: Final = 80
"""Width of a line, in columns."""

_NAME_SHOWN: Final = 100
_PART_CHARACTERS: Final = 200
"""Number of characters shown from the start, and from the end, of a shortened value."""

_DRAWING: Final = 3000
"""Limit, in characters, on the drawing of a plan, which is not part of the approval."""

_MOST_NAMED: Final = 12
"""Maximum number of values that are listed if not all of them can be shown in full."""

_FAULT: Final = 500
_TITLE: Final = 100
_DESCRIPTION: Final = 500


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for a terminal, with the options that select this server's store.

    Attributes:
        ui: opens the page for this server's store in a browser.
        link: creates a link that signs the owner in to the page.
        page: the address of this server's web page, if it has one. The address does not sign anyone
            in.
        serve: the arguments for starting a server for an assistant on the same store.
    """

    show: str = "ideabridge approvals list"
    decide: str = "ideabridge approvals decide"
    publish: str = "ideabridge ideas publish"
    ui: str = "ideabridge ui"
    link: str = "ideabridge ui --link"
    page: str | None = None
    serve: tuple[str, ...] = ("serve",)

    @property
    def places(self) -> str:
        """A phrase that tells a person where to decide without a form."""
        terminal = f"at a terminal: {self.decide}"
        if self.page is None:
            return f"on the page that `{self.ui}` opens, or {terminal}"
        return f"on the page {self.page}/approvals, or {terminal}"

    def places_to_publish(self, ref: str, name: str) -> str:
        """Return a phrase that tells a person where to publish a run or an idea under a name."""
        terminal = f"at a terminal: {self.publish} {ref} {name}"
        if self.page is None:
            return f"on the page that `{self.ui}` opens, or {terminal}"
        query = urlencode({"ref": ref, "name": name})
        return f"on the page {self.page}/ideas/publish?{query}, or {terminal}"


COMMANDS: Final = Commands()


# -- fields ----------------------------------------------------------------------------------------

_TITLES: Final = {
    "call": "Run this call?",
    "plan": "Run this plan?",
    "outcome": "What was the result of this call?",
}

ALWAYS: Final = "always"
FOR_RUN: Final = "approve_for_run"

_MEANINGS: Final[dict[str, dict[Choice, str]]] = {
    "call": {"approve": "Yes, run this call", "deny": "No"},
    "plan": {"approve": "Yes, run it", "deny": "No, no part of it"},
    "outcome": {
        "retry": "Run it again",
        "skip": "Let it fail as unknown",
        "value": "It worked, and this is its result",
    },
}

_FURTHER: Final = {
    ALWAYS: "Always: this tool, in this workspace, from now on",
    FOR_RUN: "Yes, and further calls of this tool in this run",
}
"""The answers to a call that also allow later calls of its tool, with their titles. Each of them is
the decision `approve`.
"""


def approval_form(request: ApprovalRequest) -> types.ElicitRequestedSchema:
    """Return the fields of a form for a decision or for a server's question.

    The fields of a server's question are marked as the server's. A call that is not shown in full
    can only be refused in the form.
    """
    if request.inquiry is not None:
        return _of_module(request.inquiry)

    meanings = _meanings(request)
    fields: dict[str, Any] = {}
    if "approve" in meanings:
        for name, assumption, texts in assumed_of(request):
            fields[name] = {
                "type": "string",
                "title": _clipped(assumption.at, _TITLE),
                "description": _clipped(
                    f"Used if the call runs. The value is assumed, because {assumption.why}.",
                    _DESCRIPTION,
                ),
                "enum": [*texts],
                "default": next(iter(texts)),
            }

    if "value" in meanings:
        fields["value"] = {
            "type": "string",
            "title": "Result",
            "description": "If it worked: the result as JSON; anything else is read as text.",
        }

    fields["reason"] = {
        "type": "string",
        "title": "Reason",
        "description": "Optional; the assistant sees it.",
    }
    return _decision(_TITLES[request.kind], _answers(request, meanings), fields)


def _answers(request: ApprovalRequest, meanings: Mapping[Choice, str]) -> dict[str, str]:
    """Return the answers offered by a form, with their titles."""
    answers: dict[str, str] = {}
    for choice, title in meanings.items():
        answers[choice] = title
        if choice == "approve" and request.kind == "call":
            further = _FURTHER if request.always else {FOR_RUN: _FURTHER[FOR_RUN]}
            answers.update(further)

    return answers


def _decision(
    title: str, answers: Mapping[str, str], fields: Mapping[str, Any]
) -> types.ElicitRequestedSchema:
    # All versions of the protocol and most clients support titles in this form.
    decision: dict[str, Any] = {
        "type": "string",
        "title": title,
        "enum": [*answers],
        "enumNames": [*answers.values()],
    }
    return {
        "type": "object",
        "properties": {"decision": decision, **fields},
        "required": ["decision"],
    }


def assumed_of(request: ApprovalRequest) -> Iterator[tuple[str, Assumption, dict[str, Candidate]]]:
    """Yield (field name, assumption, values keyed by their text) for each assumption about a
    literal with more than one value. The value that was used comes first.
    """
    for number, assumption in enumerate(request.assumed, 1):
        texts: dict[str, Candidate] = {}
        for candidate in assumption.choices:
            texts.setdefault(_clipped(candidate.choice, _DESCRIPTION), candidate)
        if len(texts) > 1:
            yield f"assumed_{number}", assumption, texts


def answers_of(request: ApprovalRequest) -> tuple[str, ...]:
    """Return the answers offered by the form, or none for a server's question."""
    if request.question is not None:
        return ()
    return tuple(_answers(request, _meanings(request)))


def _meanings(request: ApprovalRequest) -> dict[Choice, str]:
    meanings = _MEANINGS[request.kind]
    return {choice: meanings[choice] for choice in choices_if(meanings, whole=_is_whole(request))}


def _of_module(question: Inquiry) -> types.ElicitRequestedSchema:
    schema: dict[str, Any] = question.schema
    module = visible(question.module)
    fields = dict[str, Any]()
    for name, field in schema.get("properties", {}).items():
        fields[name] = _cleaned(field, module)
        fields[name]["title"] = f"[{module}] {_clipped(str(field.get('title') or name), _TITLE)}"
        if "description" in field:
            fields[name]["description"] = f"Server {module} says: {fields[name]['description']}"

    other_members = {
        key: value
        for key, value in schema.items()
        if key not in ("title", "description", "properties")
    }
    return {**other_members, "properties": fields}


def _cleaned(field: Mapping[str, Any], module: str) -> dict[str, Any]:
    """Return a schema in which all text is visible and the titles of choices are marked as the
    server's.

    Field names and the choices themselves are unchanged, because they were checked when the server
    asked.
    """
    cleaned = dict(field)
    for key, value in field.items():
        if key == "title":
            cleaned[key] = f"[{module}] {_clipped(str(value), _TITLE)}"
        elif key == "description":
            cleaned[key] = _clipped(str(value), _DESCRIPTION)
        elif key == "enumNames":
            cleaned[key] = [f"[{module}] {_clipped(str(text), _TITLE)}" for text in value]
        elif key in ("oneOf", "anyOf"):
            cleaned[key] = [_cleaned(part, module) for part in value]
        elif key == "items":
            cleaned[key] = _cleaned(value, module)

    return cleaned


def publication_form(
    ref: str, name: str, choices: JSONObject, commands: Commands
) -> tuple[str, types.ElicitRequestedSchema]:
    """Return the message and form for a person to accept an assistant's choices for publishing a
    run or idea.
    """
    whole = fits(choices, "", FORM)
    lines = _lines(choices, whole=whole)
    text = [
        f"Publish {_clipped(ref, _TITLE)} as the tool {name}, with these choices?",
        "",
        *lines,
        "",
    ]
    text.append("The assistant made the choices.")
    meanings: dict[str, str] = {"approve": "Yes, publish it", "deny": "No"}
    if not whole:
        del meanings["approve"]
        text += [
            (
                "Some of them do not fit here, so you can only refuse in this form. To see all of "
                "them and decide, run in a terminal:"
            ),
            f"  {commands.publish} {_clipped(ref, _TITLE)} {name}",
        ]

    return "\n".join(text), _decision("Publish it with these choices?", meanings, {})


# -- questions of servers during direct calls ------------------------------------------------------


def marked_question(
    module: str, question: types.InputRequest, fault: str | None
) -> types.InputRequest:
    """Return a server's question for the client of a direct call, with the server's words marked.

    Args:
        module: the server.
        question: the server's question, checked and without secrets.
        fault: why the last answer was not accepted, or None if there was no such answer.
    """
    params = question.params
    if isinstance(params, types.ElicitRequestFormParams):
        schema = cast("JSONObject", params.requested_schema)
        marked = Inquiry(module, params.message, schema)
        text = "\n".join([*_asks(module, "asks", fault), *_words_of_module(marked)])
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=text, requested_schema=_of_module(marked))
        )

    if isinstance(params, types.ElicitRequestURLParams):
        lines = [*_asks(module, "wants you to open an address", fault)]
        for line in params.message.split("\n"):
            lines += _marked(visible(line))

        lines += ["", "The server chose the address. ideabridge does not know what is there."]
        return types.ElicitRequest(params=params.model_copy(update={"message": "\n".join(lines)}))

    if isinstance(params, types.CreateMessageRequestParams):
        return types.CreateMessageRequest(params=_marked_sampling(module, params))
    return question


def _asks(module: str, verb: str, fault: str | None) -> list[str]:
    faults = [f"The last answer was not accepted: {clipped_for_form(fault)}"] if fault else []
    return [f"Server {visible(module)} {verb} (the text is its own):", *faults, ""]


def _marked_sampling(
    module: str, params: types.CreateMessageRequestParams
) -> types.CreateMessageRequestParams:
    update: dict[str, Any] = {
        "messages": [
            message.model_copy(update={"content": _marked_content(module, message.content)})
            for message in params.messages
        ]
    }
    if params.system_prompt is not None:
        update["system_prompt"] = _own_words(module, params.system_prompt)
    if params.tools is not None:
        update["tools"] = [
            tool.model_copy(update={"description": _own_words(module, tool.description or "")})
            for tool in params.tools
        ]
    return params.model_copy(update=update)


def _marked_content(module: str, content: Any) -> Any:
    """Return the content of a message with its text marked, including text in tool results."""
    if isinstance(content, list):
        return [_marked_content(module, block) for block in cast("list[Any]", content)]
    if isinstance(content, types.TextContent):
        return content.model_copy(update={"text": _own_words(module, content.text)})
    if isinstance(content, types.ToolResultContent):
        return content.model_copy(update={"content": _marked_content(module, content.content)})
    return content


def _own_words(module: str, text: str) -> str:
    """Return text for a model, with each line marked as the server's. Lines are not wrapped."""
    lines = printable(text.replace("\r\n", "\n")).split("\n")
    marked = [f"{MARK}{line}" for line in lines]
    return "\n".join([f"Server {visible(module)} wrote this, and not the person:", *marked])


# -- messages --------------------------------------------------------------------------------------


def message(
    request: ApprovalRequest, fault: str | None = None, commands: Commands = COMMANDS
) -> str:
    """Return the message of a form: the tool, its server, the resolved parameters as JSON, the
    reason for the question, and why the last answer was not accepted (`fault`).

    If the parameters do not fit, the message contains the beginning, end, length and SHA-256 of
    each long value, and a command that shows everything.
    """
    lines = [_headline(request)]
    if fault:
        lines.append(f"The last answer was not accepted: {clipped_for_form(fault)}")
    lines.append("")
    if request.inquiry is not None:
        lines += _words_of_module(request.inquiry)
        lines[-1] += " The call that asks:"

    sums = _sums(request)
    if sums:
        lines[0] += f" ({sums})"

    whole = _is_whole(request)
    lines += _lines(_values(request), whole=whole, titles=request.plan is None)
    if request.plan is not None and whole:
        drawing = str(request.plan["drawing"])
        lines += ["", "In this order (names and values shortened):"]
        for line in drawing[:_DRAWING].rstrip("\n").split("\n"):
            lines += _marked(visible(line))

        if len(drawing) > _DRAWING:
            lines.append(f"{MARK}... (shortened)")

    if not whole and request.question is None:
        word = "retry" if request.kind == "outcome" else "approve"
        lines += [
            "",
            (
                "Some of it does not fit here, so you can only refuse in this form. To see all of "
                "it, run in a terminal:"
            ),
            f"  {commands.show} {request.run}",
            "and decide:",
            f"  {commands.decide} {word} {request.run}:{request.approval}",
        ]

    reasons = [] if request.question is not None else list(_reasons(request.why))
    lines += ["", *reasons, f"Run {request.run}, approval {request.approval}."]
    return "\n".join(lines)


def _words_of_module(question: Inquiry) -> Iterator[str]:
    """Yield the lines of a server's question, which also say where the answer goes."""
    for line in question.message.split("\n"):
        yield from _marked(visible(line))
    yield ""
    yield (f"Your answer goes to server {visible(question.module)} and approves nothing here.")
    yield "Do not write a password or a token into it."


def _reasons(text: str) -> Iterator[str]:
    """Yield the reasons for the question, one per line.

    Line breaks in a reason are made visible, so that one reason cannot look like several.
    """
    first, *more_lines = text[: FORM.reasons].split("\n")
    yield f"Why it asks: {visible(first)}"
    for line in more_lines:
        yield from _marked(visible(line), "  - ")
    if len(text) > FORM.reasons:
        yield f"... (shortened; {len(text):,} characters)"


def _headline(request: ApprovalRequest) -> str:
    if request.kind == "plan":
        return "Run this plan?"

    tool = request.tool
    named = visible(tool.name) if tool is not None else "it"
    if tool is not None and tool.module:
        named += f" of server {visible(tool.module)}"

    if request.inquiry is not None:
        return (
            f"Server {visible(request.inquiry.module)} asks while it runs "
            f"{named} (the text is its own):"
        )

    if request.kind == "outcome":
        return f"What was the result of {named}?"
    return f"Run {named}?"


def _is_whole(request: ApprovalRequest) -> bool:
    """Return whether the form shows everything that an approval covers."""
    return fits(_values(request), request.why, FORM)


def _sums(request: ApprovalRequest) -> str:
    """Return a note that says how many calls or executions an approval covers, if the listed values
    do not show this.
    """
    if request.question is not None:
        return ""
    if request.plan is None:
        return sums_of(request.kind, request.call)

    instances = request.plan.get("instances")
    if isinstance(instances, int):
        return sums_of(request.kind, request.plan, instances)
    return ""


def _lines(values: JSONObject, *, whole: bool, titles: bool = False) -> list[str]:
    """Return the values as lines. Unless `whole` is set, only the beginning and end of each long
    value appear. For `titles`, see `ValueTable`.
    """
    if whole:
        return list(ValueTable(values, _LINE_WIDTH, titles=titles).lines())

    lines = list[str]()
    first_values = {
        name[:_NAME_SHOWN]: value for name, value in itertools.islice(values.items(), _MOST_NAMED)
    }
    table = ValueTable(first_values, _LINE_WIDTH, titles=False)
    for name, value in first_values.items():
        if Beginning(value, 2 * _PART_CHARACTERS).is_cut:
            short = None
        else:
            short = readable_json(value)

        if short is not None and len(short) <= 2 * _PART_CHARACTERS:
            lines += table.row(name, short)
            continue

        # A value can be megabytes long, so make hidden characters visible only in the parts that
        # are shown.
        data = encode(value)
        text = data.decode()
        lines += _marked(f"{parameter_label(name)}:")
        lines.append(f"{MARK}  {len(text):,} characters, SHA-256")
        lines.append(f"{MARK}  {hashlib.sha256(data).hexdigest()}; it begins")
        lines += _wrapped(text[:_PART_CHARACTERS])
        lines.append(f"{MARK}  and ends")
        lines += _wrapped(text[-_PART_CHARACTERS:])

    if len(values) > _MOST_NAMED:
        lines.append(f"{MARK}... and {len(values) - _MOST_NAMED:,} more, not shown here")

    return lines


def _values(request: ApprovalRequest) -> JSONObject:
    """Return the parameters of a call, or the calls and the output of a plan, keyed by name."""
    if request.plan is None:
        return values_of_call(request.call)

    calls = plan_without_ids(request.plan).get("calls")
    values: JSONObject = {
        f"calls.{number}": call for number, call in enumerate(list_or_empty(calls))
    }
    values["output"] = request.plan.get("output")
    if "instances" in request.plan:
        values["instances"] = request.plan["instances"]

    return values


def _wrapped(text: str) -> Iterator[str]:
    """Return part of the JSON of a value as marked lines."""
    return _marked(visible(text), f"{MARK}  ")


def _marked(text: str, first: str = MARK) -> Iterator[str]:
    """Yield the text as marked lines of at most `_LINE_WIDTH` columns. The first line begins with
    `first`.
    """
    return wrap_visible(text, _LINE_WIDTH, first=first, further=f"{MARK}  ")


def clipped_for_form(text: str) -> str:
    """Return text on one line, shortened if it is long."""
    return _clipped(text, _FAULT)


def _clipped(text: str, most: int) -> str:
    clean = visible(text[: most + 1])
    if len(clean) <= most:
        return clean
    return f"{clean[:most]}... (shortened; {len(text):,} characters)"
