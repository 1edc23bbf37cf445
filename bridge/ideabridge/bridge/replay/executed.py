"""Executed: the calls of a run that did their work, over all its Requests (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.document import Missing
from ideabridge.bridge.context.document import read as read_path
from ideabridge.bridge.context.reference import escaped, format_reference, parse_reference
from ideabridge.bridge.loop.edit import edited_parameters
from ideabridge.bridge.loop.event import CallDecided
from ideabridge.bridge.loop.progress import Progress, Standing
from ideabridge.bridge.replay.recorded import RecordedRun
from ideabridge.bridge.replay.values import same
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import META_PROPERTIES

_ERRORS: Final = "†data.error."


@dataclass(frozen=True, slots=True)
class Executed:
    """A call that ran, or that stood on the branch not taken.

    Attributes:
        progress: the call and what came of it.
        step: the Request it ran in.
        chosen: the Request it was first proposed in: one that failed and was proposed again unchanged counts once.
        raw: the call as it ran; what a person changed stands in it as literals.
        edited: who changed it; None: nobody.
    """

    progress: Progress
    step: int
    chosen: int
    raw: JSONObject
    edited: str | None = None

    @property
    def index(self) -> int:
        """Its number in the run."""
        return self.progress.call.index

    @property
    def name(self) -> str:
        """Of its tool."""
        return self.progress.call.name

    @property
    def reads_only(self) -> bool:
        """Whether its tool says that it is read-only, or only a mind is asked."""
        call = self.progress.call
        only_a_mind = call.has_latent or call.room == "latent"
        return only_a_mind or (call.tool is not None and call.tool.annotations.read_only is True)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call that a lifted plan does not hold.

    Attributes:
        index: its number in the run.
        name: of its tool.
        why: `it failed`, `it was denied`.
        retried: it was proposed again, and that stands in the plan.
        matters: nobody tried the same again, and it was part of a plan, or ran and failed.
    """

    index: int
    name: str
    why: str
    retried: bool
    matters: bool

    @property
    def shown(self) -> str:
        """`calls.0 (send): it failed`, numbered as in the run."""
        return f"calls.{self.index} ({self.name}): {self.why}{', and was proposed again' if self.retried else ''}"


def executed_calls(run: RecordedRun) -> tuple[list[Executed], list[LeftOut]]:
    """The calls that ran, in listing order, and those that a plan leaves out: failed and denied ones."""
    edits = {event.call: event for event in run.events if isinstance(event, CallDecided) and event.decision == "edit"}
    kept: list[Executed] = []
    failed: list[Progress] = []
    again: set[int] = set()
    for one, step in zip(run.machine.history, run.steps, strict=True):
        if one.standing is Standing.FAILED:
            failed.append(one)
            continue
        first = [other for other in failed if _same(other, one)]
        again.update(other.call.index for other in first)
        chosen = min([step, *(run.steps[other.call.index] for other in first)])
        edit = edits.get(one.call.index)
        raw = _with_errors(one.call.raw, run.machine.history)
        if edit is not None and edit.edited is not None:
            raw = _as_edited(one, edit.edited, run.proposed.get(one.call.index, {}))
        kept.append(Executed(one, step, chosen, raw, None if edit is None else str(edit.by)))
    return kept, [_left_out(one, retried=one.call.index in again, run=run) for one in failed]


def _same(failed: Progress, later: Progress) -> bool:
    """Whether a later call is the same one again: written the same, or with the same parameters."""
    if failed.call.tool is None or later.call.tool is None or failed.call.tool.key != later.call.tool.key:
        return False
    if _parameters(failed.call.raw) == _parameters(later.call.raw):
        return True
    ran = [item.parameters for item in failed.items]
    return bool(ran) and ran == [item.parameters for item in later.items]


def _parameters(raw: JSONObject) -> JSONObject:
    return {key: value for key, value in raw.items() if key not in META_PROPERTIES or key == "_each"}


def _left_out(one: Progress, *, retried: bool, run: RecordedRun) -> LeftOut:
    denied = one.error is not None and one.error.get("kind") == "denied"
    # A call that ran and failed told something: what came after may have been done because of it.
    ran = any(item.started for item in one.items)
    matters = not retried and (run.machine.mode == "plan" or (ran and not denied))
    return LeftOut(one.call.index, one.call.name, "it was denied" if denied else "it failed", retried, matters)


def _as_edited(one: Progress, edited: JSONObject, proposed: JSONObject) -> JSONObject:
    """The call with what a person made of it: literals, but where it was left as it was proposed."""
    raw = one.call.raw
    meta: JSONObject = {key: value for key, value in raw.items() if key in META_PROPERTIES}
    if one.call.has_each:
        # Each execution has parameters of its own then: they are the items.
        items = edited_parameters(edited)
        keys = dict.fromkeys(key for item in items for key in item)
        own: list[JSON] = [escaped(item) for item in items]
        return {**meta, "_each": own, **{key: format_reference(("item", key)) for key in keys}}
    parameters = edited_parameters(edited)[0]
    return {**meta, **{key: _kept(raw.get(key), proposed.get(key), value) for key, value in parameters.items()}}


def _kept(written: JSON, proposed: JSON, ran: JSON) -> JSON:
    if written is not None and same(proposed, ran):
        return written
    if isinstance(written, dict) and isinstance(proposed, dict) and isinstance(ran, dict):
        return {key: _kept(written.get(key), proposed.get(key), value) for key, value in ran.items()}
    return escaped(ran)


def _with_errors(raw: JSONObject, history: Sequence[Progress]) -> JSONObject:
    """The call, what it read of failed calls (`†data.error.PLACE`) put in: a plan of calls that work has none."""

    def put_in(value: JSON) -> JSON:
        if isinstance(value, list):
            return [put_in(item) for item in value]
        if isinstance(value, dict):
            return {key: put_in(item) for key, item in value.items()}
        if not isinstance(value, str) or not value.startswith(_ERRORS):
            return value
        operand, *others = parse_reference(value).operands()
        place = operand.path[1] if operand.path[1:] and not others else ""
        failed = history[int(place)] if place.isdecimal() and int(place) < len(history) else None
        told: JSON = None if failed is None else {"call": failed.call.raw, "place": int(place), "error": failed.error}
        found = read_path(told, operand.path[2:])
        return value if isinstance(found, Missing) else escaped(found)

    return {key: put_in(value) for key, value in raw.items()}
