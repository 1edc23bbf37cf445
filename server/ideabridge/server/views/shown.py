"""Shown: a question as people see it, and whether they see all of it.

The form, the page, the view inside an assistant and the terminal differ in how much of a question
fits. `show_question` decides for all of them whether it is shown whole. A person cannot allow what
they have not seen: without the whole, a question takes a refusal only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.question import Choice, Kind, Question
from ideabridge.server.views.text import Beginning
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.names import readable_json, visible

REFUSING: Final[tuple[Choice, ...]] = ("deny", "skip")
"""The decisions that let nothing happen: they are possible whatever was shown."""

_COLUMNS: Final = 80


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a question is shown in one place.

    Attributes:
        characters: of what would happen, as JSON in one line.
        lines: of the same, 80 columns wide; each line end in a text begins another line.
        reasons: characters of the reasons for the question.
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
"""A terminal keeps what it was told."""


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question in one place.

    Attributes:
        content: what would happen as indented JSON for people; of a question that is not
            whole, the beginning.
        why: the reasons, likewise.
        omitted: about how many characters are in neither; 0 if it is whole.
        sums: how often something would happen: `3,000 executions`; empty for a single one.
        whole: whether a person sees all that an approval covers.
        digest: names all that an approval covers; empty if it is not whole.
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
        """What a form holds that comes from a place which shows the question whole; empty for
        any other place.

        Args:
            secret: the secret of the session, so that nobody else can make it.
            key: the run and the approval.
        """
        if not self.whole:
            return ""
        return hmac.new(
            secret.encode(), f"{key} {self.digest}".encode(), hashlib.sha256
        ).hexdigest()


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

    # A call may have megabytes, of which JSON for people takes a second for each.
    part = Beginning(content, room.characters)
    shown = _beginning(readable_json(part.value, 2), room)
    length = len(encode(content)) if part.is_cut else len(readable_json(content, 2))
    first = visible(why[: room.reasons], "\n")[: room.reasons]
    omitted = max(0, length - len(shown)) + max(0, len(why) - len(first))
    return ShownQuestion(shown, first, max(1, omitted), sums, False, "")


def fits(content: JSONObject, why: str, room: Room) -> bool:
    """Return whether a place shows what a question asks whole; see `show_question`. No more is
    written than the place has room for.
    """
    return _line_of(content, room) is not None and _reasons_of(why, room) is not None


def choices_if(choices: Iterable[Choice], *, whole: bool) -> tuple[Choice, ...]:
    """Those of the choices that a person has who sees a question `whole`, or not."""
    return tuple(choice for choice in choices if whole or choice in REFUSING)


def _line_of(content: JSONObject, room: Room) -> str | None:
    """What a question asks in one line; None if it does not fit."""
    if Beginning(content, room.characters).is_cut:
        return None
    line = readable_json(content)
    return line if _is_whole(line, room) else None


def _reasons_of(why: str, room: Room) -> str | None:
    """The reasons for a question; None if they do not fit."""
    if len(why) > room.reasons:
        return None
    reasons = visible(why, "\n")
    return reasons if len(reasons) <= room.reasons else None


def _is_whole(line: str, room: Room) -> bool:
    """Return whether a JSON text, which is one line, fits into a place."""
    lines = 1 + len(line) // _COLUMNS + line.count("\\n")
    return len(line) <= room.characters and lines <= room.lines


def _beginning(text: str, room: Room) -> str:
    """What a place shows of a text that does not fit."""
    lines = text[: room.characters].split("\n")
    return "\n".join(lines[: room.lines])


def content_of(question: Question) -> JSONObject:
    """What a question is about: the call, the plan, or what a module asks during a call."""
    if question.kind == "plan":
        shown = plan_without_ids(question.shown)
    else:
        shown = call_without_ids(question.shown)

    if question.asked is None:
        return shown

    asked = question.asked
    return {"message": asked.message, "schema": asked.schema, "call": shown}


def call_without_ids(call: JSONObject) -> JSONObject:
    """Return a call that is put before a person without its id and those of the calls for which it
    has waited: they change nothing of what it does.
    """
    return {key: value for key, value in call.items() if key not in ("_id", "_after")}


def plan_without_ids(plan: JSONObject) -> JSONObject:
    """Return a plan that is put before a person without the ids of its calls: a call
    waits for `calls.2`.
    """
    calls = plan.get("calls")
    if not isinstance(calls, list):
        return plan

    places: dict[str, str] = {}
    for number, call in enumerate(calls):
        if isinstance(call, dict) and isinstance(call.get("_id"), str):
            places[str(call["_id"])] = f"calls.{number}"

    shown: list[JSON] = []
    for call in calls:
        if not isinstance(call, dict):
            shown.append(call)
            continue

        members: JSONObject = {key: value for key, value in call.items() if key != "_id"}
        after = members.get("_after")
        if isinstance(after, list):
            members["_after"] = [
                places.get(name, name) if isinstance(name, str) else name for name in after
            ]

        shown.append(members)

    return {**plan, "calls": shown}


def sums_of(kind: Kind, content: JSONObject, instances: int = 0) -> str:
    """How often something would happen with one approval; see `ShownQuestion.sums`.

    Args:
        kind: the kind of the question.
        content: see `show_question`.
        instances: the instances of the run; 0: it has none.
    """
    if kind == "plan":
        calls = _count(content.get("calls"), "call")
        return f"{calls} for each of {instances:,} instances" if instances else calls
    each = content.get("_each")
    return _count(each, "execution") if isinstance(each, list) else ""


def _count(listed: JSON, noun: str) -> str:
    number = len(listed) if isinstance(listed, list) else 0
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
