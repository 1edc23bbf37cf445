"""Progress: how far each call of a run has come, and what its reads see (DESIGN 4.3-4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ideabridge.bridge.context.document import MISSING, Missing, describe_missing
from ideabridge.bridge.context.document import read as read_path
from ideabridge.bridge.context.reference import Path, Reference
from ideabridge.bridge.loop.call import Call, Read
from ideabridge.bridge.loop.memory import Memory
from ideabridge.tools.encoding import JSON, JSONObject


class Standing(Enum):
    """Where a call stands. The last four are settled: nothing more will come of it."""

    WAITING = "waiting"
    ASKING = "asking"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CAUGHT = "caught"
    FAILED = "failed"
    SKIPPED = "skipped"


_SETTLED = frozenset({Standing.DONE, Standing.CAUGHT, Standing.FAILED, Standing.SKIPPED})


@dataclass(slots=True)
class Item:
    """One execution of a call: the call itself, or one item of its `_each`."""

    parameters: JSONObject
    latent: JSON = None
    started: bool = False
    finished: bool = False
    value: JSON = None
    error: JSONObject | None = None


@dataclass(slots=True)
class Progress:
    """One call on its way.

    Attributes:
        standing: see `Standing`.
        items: its executions, once its references are resolved.
        error: `{"kind", "message", ...}` where it failed, was caught or skipped.
        wrote: full paths it wrote.
        approval: (id, digest, resolved call, why) while a person is asked.
        value: the result, once done.
    """

    call: Call
    standing: Standing = Standing.WAITING
    items: list[Item] = field(default_factory=list[Item])
    open_items: int = 0
    error: JSONObject | None = None
    wrote: tuple[Path, ...] = ()
    approval: tuple[str, str, JSONObject, str] | None = None
    asked: bool = False
    value: JSON = None

    @property
    def settled(self) -> bool:
        """Whether nothing more will come of it."""
        return self.standing in _SETTLED


def in_flight(history: Iterable[Progress]) -> list[tuple[Progress, int | None]]:
    """(call, item) of what was started and has not finished: after a crash, its outcome is unknown (DESIGN 7)."""
    return [
        (one, number if one.call.has_each else None)
        for one in history
        if one.standing is Standing.RUNNING
        for number, item in enumerate(one.items)
        if item.started and not item.finished
    ]


def pending_approvals(history: Iterable[Progress]) -> list[Progress]:
    """The calls a person has been asked about and has not decided."""
    return [one for one in history if one.standing is Standing.ASKING]


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: for the call `on` to settle, or (None) for the answer to end."""

    on: int | None


@dataclass(frozen=True, slots=True)
class Absent:
    """Never: there is no value, and why."""

    why: Literal["failed", "skipped", "missing"]
    message: str


class Judge:
    """Tells what reads see, from the memory and the progress of the calls they are bound to."""

    def __init__(self, memory: Memory, progress: Mapping[int, Progress]) -> None:
        self._memory = memory
        self._progress = progress

    def evaluate(self, item: Read, instance: str, each: JSON | Missing = MISSING) -> JSON | Wait | Absent:
        """What the expression of a read gives.

        Args:
            item: the read, with what it is bound to.
            instance: the instance of the reader.
            each: the value of `†item`.
        """
        absent: list[Absent] = []
        for alternative, bound in zip(item.expression.alternatives, item.bound, strict=False):
            found: JSON | Wait | Absent = None
            for operand, writers in zip(alternative, bound, strict=True):
                found = self._operand(operand, writers, instance, each)
                if isinstance(found, Wait):
                    return found
                if isinstance(found, Absent):
                    absent.append(found)
                    break
            if not isinstance(found, Absent):
                return found
        return _combined(absent)

    def waits(self, item: Read) -> Wait | None:
        """Whether any operand of the read still waits: for reads that are evaluated once per item."""
        for bound in item.bound:
            for writers in bound:
                if writers is None:
                    return Wait(None)
                for index in writers:
                    if not self._progress[index].settled:
                        return Wait(index)
        return None

    def _operand(
        self, operand: Reference, writers: tuple[int, ...] | None, instance: str, each: JSON | Missing
    ) -> JSON | Wait | Absent:
        if operand.kind == "item":
            value = read_path({"item": each}, operand.full) if not isinstance(each, Missing) else MISSING
            if isinstance(value, Missing):
                held: JSON = {"item": None if isinstance(each, Missing) else each}
                return Absent("missing", f"{operand.text}: {describe_missing(held, operand.full)}")
            return value
        if writers is None:
            return Wait(None)
        untaken: list[str] = []
        for index in writers:
            writer = self._progress[index]
            if not writer.settled:
                return Wait(index)
            if writer.standing is Standing.FAILED:
                return Absent("failed", f"{operand.text}: {writer.call.label}, which writes it, failed")
            if not any(_overlap(path, operand.full) for path in writer.wrote):
                untaken.append(writer.call.label)
        where = operand.instance or instance
        value = self._memory.read(where, operand.full, writers)
        if not isinstance(value, Missing):
            return value
        if untaken:
            return Absent("skipped", f"{operand.text}: {' and '.join(untaken)} took another branch or was skipped")
        document = self._memory.documents.get(where, {})
        return Absent("missing", f"{operand.text}: {describe_missing(document, operand.full, operand.instance)}")


def _overlap(first: Path, second: Path) -> bool:
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def _combined(absent: list[Absent]) -> Absent:
    """Why an expression has no value: a branch not taken makes it a skip, else a failure its failure."""
    for why in ("skipped", "failed", "missing"):
        chosen = [reason for reason in absent if reason.why == why]
        if chosen:
            return Absent(chosen[0].why, "; ".join(reason.message for reason in chosen))
    return Absent("missing", "nothing to read")
