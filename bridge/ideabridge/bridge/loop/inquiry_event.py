"""Events of what modules ask while they answer a call. `loop.event` lists them among all events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ideabridge.bridge.inquiry import Action
from ideabridge.bridge.loop.decider import Decider
from ideabridge.bridge.loop.journaled import OfCall
from ideabridge.tools.encoding import JSONObject


@dataclass(frozen=True, slots=True)
class QuestionAsked(OfCall):
    """The module of a call (or one item) that runs asks whoever made it. `message` and `schema` (of the form) are the
    module's words; `digest` is the hash of the question, `at` when it came, in seconds since 1970.
    """

    name: ClassVar[str] = "question_asked"
    approval: str
    digest: str
    module: str
    message: str
    schema: JSONObject
    item: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class QuestionAnswered(OfCall):
    """What goes back to the module: `accept` with the content of the form, `decline`, or `cancel`."""

    name: ClassVar[str] = "question_answered"
    digest: str
    action: Action
    by: Decider
    item: int | None = None
    content: JSONObject | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionRefused(OfCall):
    """A module asked what was put before nobody: no form, too large, or nobody knows which call it belongs to."""

    name: ClassVar[str] = "question_refused"
    module: str
    message: str
    why: str
    item: int | None = None
