"""The status of each call in a run, and the values that its reads see.

`Progress` is the state of one call, and `Item` the state of one of its executions. `Judge`
evaluates a read and returns a value, `Wait` with the call to wait for, or `Absent` with the reason
why there will never be a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ideabridge.bridge.context.computed import Doubts
from ideabridge.bridge.context.references import Path, Reference, clipped
from ideabridge.bridge.context.state import MISSING, Missing, describe_missing
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.loop.call import UNCERTAIN, Call, Read
from ideabridge.bridge.loop.event import Decider, JournalError, OutcomeAsked, QuestionAsked
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.size import NO_SIZE, Size
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Annotations, Tool

_MOST_NAMED = 10
"""Maximum number of calls named in one message."""


class CallStatus(Enum):
    """The status of a call. The last five are final."""

    WAITING = "waiting"
    ASKING = "asking"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CAUGHT = "caught"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


_SETTLED = frozenset(
    {
        CallStatus.DONE,
        CallStatus.CAUGHT,
        CallStatus.FAILED,
        CallStatus.SKIPPED,
        CallStatus.CANCELLED,
    }
)


@dataclass(slots=True)
class Item:
    """One execution of a call: the call itself, or one item of its `_each`.

    Attributes:
        read_size: the total size of the values that the execution's references read.
        imports: (path, value) for each value in `_imports`, which the call's room can read.
        unchecked: whether the executor must still check the parameters, because this might take a
            long time.
        content: the content blocks of the result, if they contain more than the value.
        asked: the open question that the execution is waiting for: one about its outcome, or one
            from its server.
        outcomes_decided: the number of answered questions about the execution's outcome.
        questions: the number of answered questions from the execution's server.
    """

    parameters: JSONObject
    latent: JSON = None
    read_size: Size = NO_SIZE
    imports: tuple[tuple[Path, JSON], ...] = ()
    unchecked: bool = False
    started: bool = False
    finished: bool = False
    value: JSON = None
    error: JSONObject | None = None
    content: JSON = None
    asked: OutcomeAsked | QuestionAsked | None = None
    outcomes_decided: int = 0
    questions: int = 0

    @property
    def can_ask(self) -> bool:
        """True if the execution is in flight and has no open question."""
        return self.started and not self.finished and self.asked is None

    @property
    def in_doubt(self) -> OutcomeAsked | None:
        """The open question about the outcome of the execution, or None if there is none."""
        return self.asked if isinstance(self.asked, OutcomeAsked) else None

    @property
    def inquiry(self) -> QuestionAsked | None:
        """The open question from the server that runs the execution, or None if there is none."""
        return self.asked if isinstance(self.asked, QuestionAsked) else None

    def end(self, value: JSON, error: JSONObject | None) -> None:
        """Record that the execution has ended. Any open question becomes void."""
        self.finished = True
        self.value = value
        self.error = error
        self.asked = None


@dataclass(frozen=True, slots=True)
class Approval:
    """An open question of whether a call may run.

    Attributes:
        approval: the id of the approval.
        digest: the hash of `resolved`. Decisions are bound to it.
        resolved: the call with its references resolved, as shown to people.
        why: the reason for the question. If there are several reasons, each is on its own line.
    """

    approval: str
    digest: str
    resolved: JSONObject
    why: str


@dataclass(slots=True)
class Progress:
    """The progress of one call.

    Attributes:
        status: see `CallStatus`.
        items: the call's executions, once its references are resolved.
        error: `{"kind", "message", ...}` if the call failed, was caught or was skipped.
        wrote: the full paths that the call wrote to.
        staged: whether what the call wrote is visible only to its group.
        approval: the question of whether the call may run, while a person is being asked.
        granted: the call whose grant approves this call without asking anyone. It is set until the
            approval is journaled.
        approved_by: who approved the call; None if nobody has approved it yet, or if the policy
            allows it.
        forbidden: whether the call has begun although later rules would not let it run without a
            question.
        value: the result, if the call is done.
        replaced: the tool that a person chose to replace the call's own.
        is_edited: whether someone has changed the call since it was proposed.
        is_held_back: whether only the listed order keeps the call from running.
        unasked: questions from the call's server that were not passed to anyone, with the reasons.
        doubts: the uncertainties about the call's parameters, which a person's decision on the call
            settles.
    """

    call: Call
    status: CallStatus = CallStatus.WAITING
    items: list[Item] = field(default_factory=list[Item])
    open_items: int = 0
    error: JSONObject | None = None
    wrote: tuple[Path, ...] = ()
    staged: bool = False
    approval: Approval | None = None
    was_asked: bool = False
    granted: int | None = None
    approved_by: Decider | None = None
    forbidden: bool = False
    value: JSON = None
    replaced: Tool | None = None
    is_edited: bool = False
    is_held_back: bool = False
    unasked: list[str] = field(default_factory=list[str])
    doubts: Doubts = field(default_factory=Doubts)

    @property
    def tool(self) -> Tool | None:
        """The tool that runs: the call's own, or the one that replaced it."""
        return self.replaced or self.call.tool

    @property
    def hints(self) -> Annotations:
        """The hints about the code that runs."""
        return self.call.hints if self.replaced is None else self.replaced.annotations

    @property
    def judged(self) -> list[Tool]:
        """The tools whose rules apply to the call: the tool that the call names, and the tools
        whose code runs.
        """
        code = self.call.code if self.replaced is None else None
        passes_to = None if self.tool is None else self.tool.passes_to
        return [tool for tool in (self.tool, code, passes_to) if tool is not None]

    @property
    def settled(self) -> bool:
        """True if the status is final."""
        return self.status in _SETTLED

    def withdraw(self, error: JSONObject) -> None:
        """Undo what the call wrote, because its group has failed."""
        self.status = CallStatus.CANCELLED
        self.error = error
        self.wrote = ()
        self.staged = False
        self.value = None


def items_error(items: list[Item]) -> JSONObject:
    """Return the error of a call with `_each` some of whose items failed: `{"kind", "message",
    "items", "sent"?}`.

    `sent` contains what the tool sent for the failed items, keyed by item number. If an item might
    have taken effect, the error has a kind that `p || q` does not catch.
    """
    kinds = {str(item.error.get("kind")) for item in items if item.error is not None}
    failed = [
        (number, item.error.get("message"))
        for number, item in enumerate(items)
        if item.error is not None
    ]
    texts: list[JSON] = [{"item": number, "message": message} for number, message in failed]
    listed = "; ".join(f"item {number}: {message}" for number, message in failed[:5])
    error: JSONObject = {
        "kind": next((kind for kind in UNCERTAIN if kind in kinds), "runtime"),
        "message": f"{len(failed)} of {len(items)} items failed: {listed}",
        "items": texts,
    }
    sent: JSONObject = {
        str(number): item.error["sent"]
        for number, item in enumerate(items)
        if item.error is not None and "sent" in item.error
    }
    return {**error, "sent": sent} if sent else error


def in_flight(history: Iterable[Progress]) -> list[tuple[Progress, int | None]]:
    """Return (call, item) for each execution in flight. For what happens to them after a crash, see
    `resume_events`.
    """
    return [
        (progress, number if progress.call.has_each else None)
        for progress in history
        if progress.status is CallStatus.RUNNING
        for number, item in enumerate(progress.items)
        if item.started and not item.finished and item.in_doubt is None
    ]


def parked(history: Iterable[Progress]) -> list[QuestionAsked]:
    """Return the open questions from servers, in the order of the calls."""
    return [
        item.inquiry
        for progress in history
        if progress.status is CallStatus.RUNNING
        for item in progress.items
        if item.inquiry is not None
    ]


def running_item(progress: Mapping[int, Progress], call: int, number: int | None) -> Item:
    """Return one execution of a running call.

    Raises:
        JournalError: the call is not running, or has no such item.
    """
    of_call = progress.get(call)
    index = number or 0
    if of_call is None or of_call.status is not CallStatus.RUNNING or index >= len(of_call.items):
        raise JournalError(f"call {call} is not running")
    return of_call.items[index]


@dataclass(frozen=True, slots=True)
class Wait:
    """A value does not exist yet.

    `on` is the call that must settle first, or None if the answer must end first.
    """

    on: int | None


@dataclass(frozen=True, slots=True)
class Absent:
    """A value will never exist, for the given reason."""

    why: Literal["failed", "skipped", "missing"]
    message: str


class Judge:
    """Evaluates reads, using the memory and the progress of the calls that the reads are bound
    to.
    """

    def __init__(self, memory: Memory, progress: Mapping[int, Progress]) -> None:
        self._memory = memory
        self._progress = progress
        # Each key is the `id()` of the tuple that an operand is bound to. Each entry keeps its
        # tuple alive so that the id cannot be reused.
        self._open: dict[int, tuple[tuple[int, ...], int]] = {}
        self._failing: dict[int, tuple[tuple[int, ...], int]] = {}
        self._remaining: dict[int, tuple[tuple[int, ...], int]] = {}
        self._outcomes: dict[int, JSON | Absent] = {}

    def evaluate(
        self, item: Read, instance: str, each: JSON | Missing = MISSING
    ) -> JSON | Wait | Absent:
        """Return the value of a read.

        Args:
            item: the read.
            instance: the instance of the reading call.
            each: the value of `†item`.
        """
        absent: list[Absent] = []
        for operands, bound in item.alternatives():
            value: JSON | Wait | Absent = None
            for operand, writers in zip(operands, bound, strict=True):
                value = self._operand(operand, writers, instance, each)
                if isinstance(value, Wait):
                    return value
                if isinstance(value, Absent):
                    absent.append(value)
                    break

            if not isinstance(value, Absent):
                return value

        return _combined(absent)

    def waits(self, item: Read) -> Wait | None:
        """Return what an operand of the read must wait for, or None if it need not wait.

        This is for reads that are evaluated once per item.
        """
        for bound in item.bound:
            for writers in bound:
                if writers is None:
                    return Wait(None)
                writer = self._first_open(writers)
                if writer is not None:
                    return Wait(writer)
        return None

    def _first_open(self, writers: tuple[int, ...], *, or_failed: bool = False) -> int | None:
        """Return the first writer, in listed order, that has not settled or, with `or_failed`, has
        failed.

        A settled call stays settled, so each settled call is skipped only once, no matter how often
        its readers are considered.
        """
        if not writers:
            return None

        cursors = self._failing if or_failed else self._open
        position = cursors.get(id(writers), (writers, 0))[1]
        while position < len(writers):
            writer = self._progress[writers[position]]
            if not writer.settled or (or_failed and writer.status is CallStatus.FAILED):
                break
            position += 1

        cursors[id(writers)] = (writers, position)
        return writers[position] if position < len(writers) else None

    def _last_open(self, writers: tuple[int, ...]) -> int | None:
        """Return the last writer, in listed order, that has not settled.

        Calls usually settle in order. A reader that needs all writers therefore waits for the last
        one, so that it is rarely considered too early.
        """
        position = self._remaining.get(id(writers), (writers, len(writers)))[1]
        while position > 0 and self._progress[writers[position - 1]].settled:
            position -= 1
        self._remaining[id(writers)] = (writers, position)
        return writers[position - 1] if position > 0 else None

    def _operand(
        self,
        operand: Reference,
        writers: tuple[int, ...] | None,
        instance: str,
        each: JSON | Missing,
    ) -> JSON | Wait | Absent:
        if operand.kind == "item":
            if not isinstance(each, Missing):
                value = read_path({"item": each}, operand.full)
            else:
                value = MISSING
            if isinstance(value, Missing):
                document: JSON = {"item": None if isinstance(each, Missing) else each}
                return Absent(
                    "missing",
                    f"{clipped(operand.text)}: {describe_missing(document, operand.full)}",
                )

            return value

        if writers is None:
            return Wait(None)

        # Wait for every call that can add data, even after one of them has failed, because the data
        # might exist without it.
        if operand.kind == "data":
            open_writer = self._last_open(writers)
        else:
            open_writer = self._first_open(writers, or_failed=True)

        if open_writer is not None:
            writer = self._progress[open_writer]
            if not writer.settled:
                return Wait(open_writer)
            return Absent(
                "failed", f"{clipped(operand.text)}: {writer.call.label}, which writes it, failed"
            )

        if not writers:
            return self._outcome(operand, writers, instance)

        if id(writers) not in self._outcomes:
            self._outcomes[id(writers)] = self._outcome(operand, writers, instance)

        return self._outcomes[id(writers)]

    def _outcome(
        self, operand: Reference, writers: tuple[int, ...], instance: str
    ) -> JSON | Absent:
        """Return the final value of an operand. All calls that it is bound to must have settled."""
        where = operand.instance or instance
        value = self._memory.read(where, operand.full, writers)
        if not isinstance(value, Missing):
            return value

        bound = [self._progress[index] for index in writers]
        if operand.kind == "data" and isinstance(
            self._memory.read(where, operand.full[:2], writers), Missing
        ):
            data = read_path(self._memory.document(where, "data", writers), ("data",))
            return _unadded(operand, bound, data if isinstance(data, dict) else {})

        untaken = [
            writer.call.label
            for writer in bound
            if not any(_overlap(path, operand.full) for path in writer.wrote)
        ]
        if untaken and operand.kind != "data":
            labels = _joined(untaken)
            return Absent(
                "skipped", f"{clipped(operand.text)}: {labels} took another branch or was skipped"
            )

        unwrapped = next(
            (writer.call.label for writer in bound if _reads_wrapper(operand, writer)), None
        )
        if unwrapped is not None:
            reason = f"the value is already the 'result' of {unwrapped}; leave out '.result'"
        else:
            document = self._memory.document(where, operand.kind, writers)
            reason = describe_missing(document, operand.full, operand.instance)

        return Absent("missing", f"{clipped(operand.text)}: {reason}")


def _reads_wrapper(operand: Reference, writer: Progress) -> bool:
    """Return whether the read names the member `result`, in which an SDK wraps values. Plans omit
    this member.
    """
    unwraps = writer.tool is not None and writer.tool.wrapper is not None
    return unwraps and any(
        operand.full[: len(path) + 1] == (*path, "result") for path in writer.wrote
    )


def _joined(labels: list[str]) -> str:
    """Return the labels of calls as a phrase that names only the first few."""
    named = labels[:_MOST_NAMED]
    if len(labels) > _MOST_NAMED:
        named.append("others")
    return " and ".join(named)


def _unadded(operand: Reference, bound: Sequence[Progress], data: JSONObject) -> Absent:
    """Return why data of a kind is absent: a call that might have added it failed, or its branch
    was not taken.

    `data` contains the existing data, keyed by kind.
    """
    failed = [writer.call.label for writer in bound if writer.status is CallStatus.FAILED]
    if failed:
        labels = _joined(failed)
        return Absent("failed", f"{clipped(operand.text)}: no call added it, and {labels} failed")

    kinds = did_you_mean(operand.path[0], list(data)) if operand.path else ""
    return Absent(
        "skipped", f"{clipped(operand.text)}: no earlier call added it{kinds and f'.{kinds}'}"
    )


def _overlap(first: Path, second: Path) -> bool:
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def _combined(absent: list[Absent]) -> Absent:
    """Return why an expression has no value: a branch was not taken, a call failed, or a value is
    missing.
    """
    for kind in ("skipped", "failed", "missing"):
        chosen = [reason for reason in absent if reason.why == kind]
        if chosen:
            return Absent(chosen[0].why, "; ".join(reason.message for reason in chosen))
    return Absent("missing", "there is nothing to read")
