"""Shown: a question as people see it, and whether they see all of it.

The form, the page, the view inside an assistant and the terminal differ in how much of a question
fits. `show_question` decides for all of them whether it is shown whole. A person cannot allow what
they have not seen: a question that is not shown whole can only be refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.question import Choice, Kind, Question
from ideabridge.server.views.text import Beginning, counted
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.names import readable_json, visible

REFUSING: Final[tuple[Choice, ...]] = ("deny", "skip")
"""The decisions that let nothing happen. A person may make them without seeing the whole
question."""

_COLUMNS: Final = 80


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a question one place can show.

    Attributes:
        characters: the most characters of what would happen, as JSON in one line.
        lines: the most lines of the same, 80 columns wide. Each line end in a text begins another
            line.
        reasons: the most characters of the reasons for the question.
    """

    characters: int
    lines: int
    reasons: int


FORM: Final = Room(6000, 120, 2000)
"""A form of a client."""

VIEW: Final = Room(6000, 120, 2000)
"""The view of a run inside an assistant."""

PAGE: Final = Room(20_000, 400, 20_000)
"""A card among others on the page."""

WHOLE_PAGE: Final = Room(2_000_000, 100_000, 2_000_000)
"""A page with one question alone."""

TERMINAL: Final = Room(2**63, 2**63, 2**63)
"""A terminal, in which a person can scroll back."""


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question in one place.

    Attributes:
        content: what would happen as indented JSON for people, or its beginning if the question
            is not whole.
        why: the reasons, or their beginning.
        omitted: about how many characters are not shown; 0 if the question is whole.
        sums: how often something would happen: `3,000 executions`; empty if only once.
        whole: whether a person sees all that an approval covers.
        digest: a hash of all that an approval covers; empty if the question is not whole.
    """

    content: str
    why: str
    omitted: int
    sums: str
    whole: bool
    digest: str

    def choices(self, choices: Iterable[Choice]) -> tuple[Choice, ...]:
        """Those of the choices that a person has here."""
        return choices_if(choices, whole=self.whole)

    def seal(self, secret: str, key: str) -> str:
        """The text in a form which proves that the form showed the question whole; empty if it
        does not.

        Args:
            secret: the secret of the session, so that nobody else can make the text.
            key: the run and the approval.
        """
        if not self.whole:
            return ""
        message = f"{key} {self.digest}".encode()
        return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def show_question(content: JSONObject, why: str, room: Room, sums: str = "") -> ShownQuestion:
    """Show what a question asks in a place, and decide whether it is shown whole there.

    Args:
        content: what would happen: the call with its values, the plan, or what a module asks.
        why: the reasons for the question.
        room: the place.
        sums: see `ShownQuestion.sums`.
    """
    line = _line_of(content, room)
    reasons = _reasons_of(why, room)
    if line is not None and reasons is not None:
        digest = hashlib.sha256(f"{line}\n{sums}\n{reasons}".encode()).hexdigest()
        return ShownQuestion(readable_json(content, 2), reasons, 0, sums, True, digest)

    # A call may have megabytes, and JSON for people takes a second for each of them.
    part = Beginning(content, room.characters)
    text = readable_json(part.value, 2)
    beginning = _beginning(text, room)
    length = len(encode(content)) if part.is_cut else len(text)
    first_reasons = visible(why[: room.reasons], "\n")[: room.reasons]
    omitted = max(0, length - len(beginning)) + max(0, len(why) - len(first_reasons))
    return ShownQuestion(beginning, first_reasons, max(1, omitted), sums, False, "")


def fits(content: JSONObject, why: str, room: Room) -> bool:
    """Return whether a place shows what a question asks whole; see `show_question`."""
    return _line_of(content, room) is not None and _reasons_of(why, room) is not None


def choices_if(choices: Iterable[Choice], *, whole: bool) -> tuple[Choice, ...]:
    """The choices that a person has: all of them if they see the question whole, else those
    that refuse it.
    """
    return tuple(choice for choice in choices if whole or choice in REFUSING)


def _line_of(content: JSONObject, room: Room) -> str | None:
    """What a question asks in one line; None if it does not fit."""
    if Beginning(content, room.characters).is_cut:
        return None
    line = readable_json(content)
    lines = 1 + len(line) // _COLUMNS + line.count("\\n")
    if len(line) > room.characters or lines > room.lines:
        return None
    return line


def _reasons_of(why: str, room: Room) -> str | None:
    """The reasons for a question; None if they do not fit."""
    if len(why) > room.reasons:
        return None
    reasons = visible(why, "\n")
    if len(reasons) > room.reasons:
        return None
    return reasons


def _beginning(text: str, room: Room) -> str:
    """What a place shows of a text that does not fit."""
    lines = text[: room.characters].split("\n")
    return "\n".join(lines[: room.lines])


def content_of(question: Question) -> JSONObject:
    """What a question is about: the call, the plan, or what a module asks during a call."""
    content = shown_without_ids(question)
    elicitation = question.asked
    if elicitation is None:
        return content
    return {"message": elicitation.message, "schema": elicitation.schema, "call": content}


def shown_without_ids(question: Question) -> JSONObject:
    """The call or the plan of a question, as a person sees it."""
    if question.kind == "plan":
        return plan_without_ids(question.shown)
    return call_without_ids(question.shown)


def call_without_ids(call: JSONObject) -> JSONObject:
    """A call as a person sees it: without its id and the ids of the calls for which it has
    waited, which change nothing of what it does.
    """
    return {key: value for key, value in call.items() if key not in ("_id", "_after")}


def plan_without_ids(plan: JSONObject) -> JSONObject:
    """A plan as a person sees it: without the ids of its calls. A call waits for `calls.2`."""
    calls = plan.get("calls")
    if not isinstance(calls, list):
        return plan

    places: dict[JSON, JSON] = {}
    for number, call in enumerate(calls):
        if isinstance(call, dict) and isinstance(call.get("_id"), str):
            places[call["_id"]] = f"calls.{number}"

    return {**plan, "calls": [_planned_call(call, places) for call in calls]}


def _planned_call(call: JSON, places: Mapping[JSON, JSON]) -> JSON:
    """A call of a plan without its id; `places` has the place of each call by its id."""
    if not isinstance(call, dict):
        return call

    members: JSONObject = {key: value for key, value in call.items() if key != "_id"}
    after = members.get("_after")
    if isinstance(after, list):
        members["_after"] = [
            places.get(name, name) if isinstance(name, str) else name for name in after
        ]
    return members


def sums_of(kind: Kind, content: JSONObject, instances: int = 0) -> str:
    """How often something would happen with one approval; see `ShownQuestion.sums`.

    Args:
        kind: the kind of the question.
        content: see `show_question`.
        instances: the instances of the run; 0: it has none.
    """
    if kind == "plan":
        calls = content.get("calls")
        text = counted(len(calls) if isinstance(calls, list) else 0, "call")
        return f"{text} for each of {instances:,} instances" if instances else text

    each = content.get("_each")
    if not isinstance(each, list):
        return ""
    return counted(len(each), "execution")
