"""Approver: who decides on the calls of a run that ask, and what happens when nobody does (DESIGN 4.6)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.event import ApprovalAsked, CallDecided, Event, RunEnded
from ideabridge.bridge.loop.policy import approval_timeout
from ideabridge.bridge.loop.progress import Progress, pending_approvals
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run

_NAP: Final = 60.0
"""Seconds until the clock is looked at again: while a machine sleeps its clock goes on, and no timer does."""

_REASON_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call somebody is asked about.

    Attributes:
        run: id of its run; `caller`: who started the run.
        approval: id of the approval.
        tool: the tool, with its module and annotations.
        call: the call with its references resolved: what would run.
        why: why it asks.
        deadline: when it is denied if nobody has decided, in seconds since 1970; None: never.
    """

    run: str
    caller: str
    approval: str
    tool: Tool
    call: JSONObject
    why: str
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decided on one call.

    Attributes:
        decision: `approve`; `deny`; `edit`: `call` runs in its place, its values literal.
        call: for `edit`, the resolved call as it shall run.
        reason: told to the mind.
        by: who decided.
    """

    decision: Literal["approve", "deny", "edit"]
    call: JSONObject | None = None
    reason: str | None = None
    by: str = "the approver"


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Decides on one call. Several may be asked about at once. What it raises denies the call, with its text as reason."""


class People:
    """Sees to it that the approvals of one run are decided: by an approver where there is one, else in time.

    Args:
        run: the run.
        group: task group that outlives the run.
        approver: see `Approver`; None: people decide elsewhere, by `Run.decide`.
        mask: takes secrets out of texts.
        now: the clock, in seconds since 1970; None: the system's.

    Attributes:
        deciding: approvals the approver has been asked about and has not answered.
    """

    def __init__(
        self,
        run: Run,
        group: TaskGroup,
        approver: Approver | None,
        mask: Callable[[str], str],
        now: Callable[[], float] | None = None,
    ) -> None:
        self.deciding: set[str] = set()
        self._run = run
        self._group = group
        self._approver = approver
        self._mask = mask
        self._now = now or time.time
        self._open: dict[str, int] = {}
        self._asked: dict[str, float] = {}
        self._scopes: dict[int, list[anyio.CancelScope]] = {}

    # -- what happens in the run -------------------------------------------------------------------------------

    def watch(self, event: Event) -> None:
        """A watcher of the run: what asks is seen to, and what is decided is let go."""
        if isinstance(event, ApprovalAsked):
            self._note(event)
            self._open[event.approval] = event.call
            progress = self._pending().get(event.approval)
            if progress is not None:
                self._arm(progress)
                self._start(progress)
        elif isinstance(event, CallDecided):
            self._open = {approval: call for approval, call in self._open.items() if call != event.call}
            self._let_go(event.call)
        elif isinstance(event, RunEnded):
            for call in list(self._scopes):
                self._let_go(call)

    def take_up(self, events: Iterable[Event]) -> None:
        """The run was read from its journal: note what waits, and since when."""
        for event in events:
            if isinstance(event, ApprovalAsked):
                self._note(event)
        for progress in pending_approvals(self._run.machine.history):
            if progress.approval is not None:
                self._open[progress.approval[0]] = progress.call.index
        for progress in self._pending().values():
            self._arm(progress)

    def ask(self) -> None:
        """Ask the approver about everything that is pending: the run was taken up and is driven here."""
        for progress in self._pending().values():
            self._start(progress)

    def expire(self) -> None:
        """Deny every call nobody decided on in time."""
        for approval in self._pending():
            deadline = self.deadline(approval)
            if deadline is not None and deadline <= self._now():
                self._deny(approval)

    # -- what is pending ---------------------------------------------------------------------------------------

    def requests(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision."""
        return [request for request in map(self._request, self._pending().values()) if request is not None]

    def deadline(self, approval: str) -> float | None:
        """When a pending approval is denied, in seconds since 1970; None: never."""
        seconds = approval_timeout(self._run.machine.settings.approval)
        return None if seconds is None else self._asked.setdefault(approval, self._now()) + seconds

    def _pending(self) -> dict[str, Progress]:
        run = self._run
        if not self._open or run.machine.phase == "ended" or run.runner.lost is not None:
            return {}
        # Not by looking through all calls: this is asked at every event.
        return {approval: run.machine.history[call] for approval, call in self._open.items()}

    def _request(self, progress: Progress) -> ApprovalRequest | None:
        if progress.approval is None or progress.call.tool is None:
            return None
        approval, _, call, why = progress.approval
        run = self._run
        return ApprovalRequest(run.id, run.caller, approval, progress.call.tool, call, why, self.deadline(approval))

    def _note(self, event: ApprovalAsked) -> None:
        # A journal without the time counts from now.
        self._asked[event.approval] = self._now() if event.at is None else event.at

    # -- time-outs ---------------------------------------------------------------------------------------------

    def _arm(self, progress: Progress) -> None:
        request = self._request(progress)
        if request is not None and request.deadline is not None:
            self._group.start_soon(self._time_out, progress.call.index, request.approval, request.deadline)

    async def _time_out(self, call: int, approval: str, deadline: float) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.setdefault(call, []).append(scope)
            while approval in self._pending():
                left = deadline - self._now()
                if left <= 0:
                    self._deny(approval)
                    return
                await anyio.sleep(min(left, _NAP))

    def _deny(self, approval: str) -> None:
        seconds = approval_timeout(self._run.machine.settings.approval) or 0.0
        self._decide(approval, Decision("deny", reason=f"nobody decided within {seconds:g} s", by="the time-out"))

    # -- the approver ------------------------------------------------------------------------------------------

    def _start(self, progress: Progress) -> None:
        request = self._request(progress)
        if self._approver is not None and request is not None and request.approval not in self.deciding:
            self.deciding.add(request.approval)
            self._group.start_soon(self._consult, self._approver, progress.call.index, request)

    async def _consult(self, approver: Approver, call: int, request: ApprovalRequest) -> None:
        decision: Any = None
        with anyio.CancelScope() as scope:
            self._scopes.setdefault(call, []).append(scope)
            try:
                if request.approval in self._pending():
                    decision = await approver(request)
            except Exception as error:  # noqa: BLE001 - whatever it raises denies this call, and nothing else
                text = self._mask(f"{type(error).__name__}: {error}")[:_REASON_CHARACTERS]
                decision = Decision("deny", reason=f"the approver failed: {text}")
        self.deciding.discard(request.approval)
        if scope.cancelled_caught:
            return
        if not isinstance(decision, Decision):
            found = type(decision).__name__
            decision = Decision("deny", reason=f"the approver gave a {found}; expected a Decision")
        self._decide(request.approval, decision)

    def _decide(self, approval: str, decision: Decision) -> None:
        if approval not in self._pending():
            # Settled meanwhile, or the run has ended: a decision comes too late, and changes nothing.
            return
        run = self._run
        try:
            try:
                run.decide(approval, decision.decision, by=decision.by, call=decision.call, reason=decision.reason)
            except DecisionError as error:
                run.decide(approval, "deny", by=decision.by, reason=f"its decision does not hold: {error}")
        except IdeabridgeError:
            # The run is not driven here any more; its status says why, and the journal holds no decision.
            return

    def _let_go(self, call: int) -> None:
        for scope in self._scopes.pop(call, []):
            scope.cancel()
