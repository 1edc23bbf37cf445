"""Question: what a run asks people, and what may be answered.

A question is bound to the digest of what it shows: an answer holds for exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.loop.inquiry_event import QuestionAsked
from ideabridge.bridge.loop.progress import Progress, Standing
from ideabridge.bridge.loop.readiness import Refusal, digest_of, executed_call
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import Tool

Kind: TypeAlias = Literal["call", "outcome", "plan", "question"]
"""`call`: may it run; `outcome`: what came of it, where nobody knows; `plan`: is it accepted as a whole; `question`:
what its module asks while it runs.
"""

Choice: TypeAlias = Literal["approve", "deny", "edit", "retry", "skip", "value"]

Key: TypeAlias = "tuple[Kind, int | None, int | None]"
"""What a question is about: its kind, the call, and the item of its `_each`. Of plans, one waits at most."""

CHOICES: Final[dict[Kind, tuple[Choice, ...]]] = {
    "call": ("approve", "deny", "edit"),
    "outcome": ("retry", "skip", "value"),
    "plan": ("approve", "deny", "edit"),
    # value: the form is filled in; deny: the person refuses; skip: it is left.
    "question": ("value", "deny", "skip"),
}

REFUSALS: Final[dict[Kind, Choice]] = {"call": "deny", "outcome": "skip", "plan": "deny", "question": "skip"}
"""What holds where nobody answers in time."""

DIED: Final = "the process died while it ran"
"""Why nobody knows what came of a call, where nothing else is known."""

ENDED: Final = "the run ended while it ran"
"""Why a run that was ended before its time does not know what came of a call."""

FORKED: Final = "it had not ended when the run was forked"
"""Why a fork does not know what came of a call of its parent."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question that waits for a person.

    Attributes:
        kind: see `Kind`.
        approval: its id.
        digest: the hash of what is shown, which an answer is bound to.
        shown: the call with its references resolved; a plan: `{"calls", "output"}`.
        why: why it is asked.
        call: the call's index in the run; `item`: of its `_each`; None for a plan.
        tool: the call's tool.
        asked: what its module asks.
    """

    kind: Kind
    approval: str
    digest: str
    shown: JSONObject
    why: str
    call: int | None = None
    item: int | None = None
    tool: Tool | None = None
    asked: QuestionAsked | None = None

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.kind, self.call, self.item

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What may be answered."""
        return CHOICES[self.kind]

    @property
    def refusal(self) -> Choice:
        """What holds where nobody answers in time."""
        return REFUSALS[self.kind]

    def to_json(self) -> JSONObject:
        """`{"approval", "call" or "plan", "why"}`, with `choices` (and `item`) for an unknown outcome; of a module's
        question `question` too: `{"module", "message", "schema"}`.
        """
        told: JSONObject = {
            "approval": self.approval,
            "plan" if self.kind == "plan" else "call": self.shown,
            "why": self.why,
        }
        if self.asked is not None:
            told["question"] = form_of(self.asked)
        if self.kind in ("outcome", "question"):
            told["choices"] = list(self.choices)
        if self.item is not None:
            told["item"] = self.item
        return told


def call_question(progress: Progress) -> Question | None:
    """Whether a call may run; None where nobody is asked."""
    if progress.standing is not Standing.ASKING or progress.approval is None:
        return None
    approval, digest, resolved, why = progress.approval
    return Question("call", approval, digest, resolved, why, progress.call.index, tool=progress.tool)


def unknown(why: str | None, tool: Tool | None) -> str:
    """Why nobody knows what came of a call, as a sentence.

    Args:
        why: what happened; None: its process died.
        tool: its tool.
    """
    told = f"outcome unknown: {why or DIED}"
    if tool is not None and tool.annotations.repeatable:
        return told
    return f"{told}, and the tool does not say that it may run twice"


def outcome_question(progress: Progress, number: int | None) -> Question | None:
    """What came of an execution that was in flight; None where what it ran with nests too deep to be shown.

    Args:
        progress: the call.
        number: the item of its `_each`.
    """
    call, item = progress.call, progress.items[number or 0]
    shown = executed_call(progress, item.parameters)
    # The same execution may be in flight at another crash: that is another question.
    digest = digest_of({"call": shown, "item": number, "time": item.doubts})
    if isinstance(digest, Refusal):
        return None
    place = call.index if number is None else f"{call.index}.{number}"
    told = unknown(item.cut_off, progress.tool)
    why = f"{told}. retry: run it again; skip: it fails as unknown; value: give its result"
    return Question("outcome", f"o{place}-{digest[:12]}", digest, shown, why, call.index, number, progress.tool)


def inquiry_question(progress: Progress, event: QuestionAsked) -> Question:
    """What a module asks while it runs a call."""
    shown = executed_call(progress, progress.items[event.item or 0].parameters)
    why = (
        f"module {event.module!r} asks while it runs the call; these are its words, and none of ours. value: what goes"
        " into its form; deny: it is told no; skip: it is told nothing"
    )
    return Question("question", event.approval, event.digest, shown, why, event.call, event.item, progress.tool, event)


def form_of(event: QuestionAsked) -> JSONObject:
    """What a module asks, as callers see it: `{"module", "message", "schema"}`."""
    return {"module": event.module, "message": event.message, "schema": event.schema}
