"""Show a question to people, and determine whether they see all of it.

The form, the page, the view inside an assistant and the terminal differ in how much of a question
fits. `show_question` determines for all of them whether a question is shown in full. A person
cannot allow what they have not seen, so a question that is not shown in full can only be refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.question import Choice, Kind, Question
from ideabridge.server.views.text import Beginning
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.names import counted, readable_json, visible
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

REFUSING: Final[tuple[Choice, ...]] = ("deny", "skip")
"""The decisions that do not allow anything to happen. A person can make them without seeing the
question in full.
"""

_COLUMNS: Final = 80
"""The width of a line, in characters, for counting the lines of a question."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a question fits on a surface such as a form or a page.

    Attributes:
        characters: the maximum length, in characters, of the content as JSON on one line. The
            content says what would happen.
        lines: the maximum number of lines of the content, each 80 columns wide. Each line break in
            a string starts another line.
        reasons: the maximum length, in characters, of the reasons for the question.
    """

    characters: int
    lines: int
    reasons: int


FORM: Final = Room(6000, 120, 2000)
"""The room in a client's form."""

VIEW: Final = Room(6000, 120, 2000)
"""The room in the view of a run inside an assistant."""

PAGE: Final = Room(20_000, 400, 20_000)
"""The room on one card among others on the page."""

WHOLE_PAGE: Final = Room(2_000_000, 100_000, 2_000_000)
"""The room on a page with a single question."""

TERMINAL: Final = Room(2**63, 2**63, 2**63)
"""The room on a terminal, where a person can scroll back."""


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question as shown on one surface.

    Attributes:
        content: what would happen, as indented JSON, or only its beginning if the question is not
            shown in full.
        reasons: the reasons, or only their beginning.
        omitted: the approximate number of characters that are not shown; 0 if the question is shown
            in full.
        sums: how many calls or executions an approval covers, such as `3,000 executions`; empty for
            a single execution.
        whole: whether the question is shown in full, so that a person sees everything that an
            approval covers.
        digest: a hash of everything that an approval covers; empty if the question is not shown in
            full.
    """

    content: str
    reasons: str
    omitted: int
    sums: str
    whole: bool
    digest: str

    def choices(self, choices: Iterable[Choice]) -> tuple[Choice, ...]:
        """Return the choices that a person has where the question is shown."""
        return choices_if(choices, whole=self.whole)

    def seal(self, secret: str, key: str) -> str:
        """Return a string that a form uses to prove that it showed the question in full.

        The string is empty if the form did not.

        Args:
            secret: the session's secret, so that nobody else can produce the string.
            key: the run and the approval.
        """
        if not self.whole:
            return ""
        message = f"{key} {self.digest}".encode()
        return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def show_question(content: JSONObject, reasons: str, room: Room, sums: str = "") -> ShownQuestion:
    """Return a question as shown on a surface, including whether it is shown in full.

    Args:
        content: what would happen: the call with its values, the plan, or the server's question.
        reasons: the reasons for the question.
        room: how much of the question fits.
        sums: see `ShownQuestion.sums`.
    """
    line = _line_of(content, room)
    all_reasons = _reasons_of(reasons, room)
    if line is None or all_reasons is None:
        return _beginning_of_question(content, reasons, room, sums)

    covered = f"{line}\n{sums}\n{all_reasons}"
    return ShownQuestion(
        content=readable_json(content, 2),
        reasons=all_reasons,
        omitted=0,
        sums=sums,
        whole=True,
        digest=hashlib.sha256(covered.encode()).hexdigest(),
    )


def _beginning_of_question(
    content: JSONObject, reasons: str, room: Room, sums: str
) -> ShownQuestion:
    """Return the beginning of a question that does not fit."""
    # Format only the beginning, because a call can take megabytes, and formatting readable JSON
    # takes a second per megabyte.
    part = Beginning(content, room.characters)
    text = readable_json(part.value, 2)
    beginning = _beginning(text, room)
    length = len(encode(content)) if part.is_cut else len(text)
    first_reasons = visible(reasons[: room.reasons], "\n")[: room.reasons]

    omitted_content = max(0, length - len(beginning))
    omitted_reasons = max(0, len(reasons) - len(first_reasons))
    return ShownQuestion(
        content=beginning,
        reasons=first_reasons,
        # The number is at least 1, because 0 would mean that the question is shown in full, and
        # escaping can make the shown text as long as the whole one.
        omitted=max(1, omitted_content + omitted_reasons),
        sums=sums,
        whole=False,
        digest="",
    )


def fits(content: JSONObject, reasons: str, room: Room) -> bool:
    """Return whether a question can be shown in full; see `show_question`."""
    return _line_of(content, room) is not None and _reasons_of(reasons, room) is not None


def choices_if(choices: Iterable[Choice], *, whole: bool) -> tuple[Choice, ...]:
    """Return the choices that a person has: all of them if the person sees the question in full,
    and only the refusing ones otherwise.
    """
    return tuple(choice for choice in choices if whole or choice in REFUSING)


def _line_of(content: JSONObject, room: Room) -> str | None:
    """Return the content of a question on one line, or None if it does not fit."""
    if Beginning(content, room.characters).is_cut:
        return None
    line = readable_json(content)
    # A line break in a string is written as \\n, and begins another line when it is shown.
    lines = 1 + len(line) // _COLUMNS + line.count("\\n")
    if len(line) > room.characters or lines > room.lines:
        return None
    return line


def _reasons_of(reasons: str, room: Room) -> str | None:
    """Return the reasons for a question with invisible characters escaped, or None if they do not
    fit.
    """
    if len(reasons) > room.reasons:
        return None
    escaped = visible(reasons, "\n")
    if len(escaped) > room.reasons:
        return None
    return escaped


def _beginning(text: str, room: Room) -> str:
    """Return the beginning, as displayed, of text that does not fit."""
    lines = text[: room.characters].split("\n")
    return "\n".join(lines[: room.lines])


def content_of(question: Question) -> JSONObject:
    """Return the content of a question: the call, the plan, or what a server asks during a call."""
    content = shown_without_ids(question)
    elicitation = question.asked
    if elicitation is None:
        return content
    return {"message": elicitation.message, "schema": elicitation.schema, "call": content}


def shown_without_ids(question: Question) -> JSONObject:
    """Return the call or plan that a question is about, as shown to people."""
    if question.kind == "plan":
        return plan_without_ids(question.shown)
    return call_without_ids(question.shown)


def call_without_ids(call: JSONObject) -> JSONObject:
    """Return a call as shown to people.

    Its id, and the ids of the calls that it waited for, are omitted, because they do not affect
    what the call does.
    """
    return {key: value for key, value in call.items() if key not in ("_id", "_after")}


def plan_without_ids(plan: JSONObject) -> JSONObject:
    """Return a plan as shown to people, without the ids of its calls.

    Places such as `calls.2` say which calls a call waits for.
    """
    if "calls" not in plan:
        return plan

    calls = read_as(Solution, plan).calls
    places: dict[JSON, JSON] = {}
    for number, call in enumerate(calls):
        if isinstance(call, dict) and isinstance(call.get("_id"), str):
            places[call["_id"]] = f"calls.{number}"

    return {**plan, "calls": [_planned_call(call, places) for call in calls]}


def _planned_call(call: JSON, places: Mapping[JSON, JSON]) -> JSON:
    """Return a call of a plan without its id. `places` maps the id of each call to its place."""
    if not isinstance(call, dict):
        return call

    members: JSONObject = {key: value for key, value in call.items() if key != "_id"}
    after = members.get("_after")
    if isinstance(after, list):
        members["_after"] = [_planned_name(name, places) for name in after]
    return members


def _planned_name(name: JSON, places: Mapping[JSON, JSON]) -> JSON:
    """Return the place of the call with this id, or the value unchanged if no call has it."""
    if not isinstance(name, str):
        return name
    return places.get(name, name)


def sums_of(kind: Kind, content: JSONObject, instances: int = 0) -> str:
    """Return a note that says how many calls or executions an approval covers; see
    `ShownQuestion.sums`.

    Args:
        kind: the kind of the question.
        content: see `show_question`.
        instances: the number of instances of the run, or 0 for a run without instances.
    """
    if kind == "plan":
        calls = read_as(Solution, content).calls
        text = counted(len(calls), "call")
        if instances:
            text += f" for each of {counted(instances, 'instance')}"
        return text

    each = content.get("_each")
    if not isinstance(each, list):
        return ""
    return counted(len(each), "execution")
