"""The calls of one Solution, from the moment they are listed until all have settled.

Theory of operation
-------------------

A call waits for one other call at a time: one that writes what it reads, or one that the listed
order puts before it. `_waiting` maps each call that others wait for to the calls that wait for it.
When a call settles, exactly those calls are considered again, so there is no polling and no barrier
between layers. After every event, `_drain` considers calls until no call changes its status, and
leaves new effects in `due`.

The statuses of a call (`CallStatus`) and their transitions:

    status     meaning                                        next
    WAITING    what it reads does not exist yet               resolved and allowed: QUEUED;
                                                              the policy asks: ASKING;
                                                              malformed, or a value that it
                                                              needs is absent: FAILED;
                                                              it reads a branch not taken: SKIPPED
    ASKING     a person must decide, or a grant decides       approved: QUEUED; denied: FAILED
    QUEUED     may run; the listed order or the limit of      a place is free: RUNNING;
               parallel calls holds it                        stricter rules (`judge_again`):
                                                              ASKING or FAILED
    RUNNING    `Execute` is due, or it runs                   the last item has finished: DONE or
                                                              FAILED, or CAUGHT where the failure
                                                              is written to its second output path
    any of                                                    its group is decided, or its Solution
    these                                                     is cancelled: CANCELLED

A call that has no items left to run goes directly from WAITING to its final status.

Invariants:

- `_running` counts the executions that occupy a place. `_asking` counts the executions and calls
  that are waiting for a person. Only `_take_place`, `_free_place`, `_pause`, `_resume`,
  `_open_approval` and `_end_asking` change them.
- At most `settings.parallel_calls` executions have a place.
- When no call can change its status and nobody is being asked, cycles of calls that wait
  for each other are broken up. Data then takes precedence over order. If only the order holds a
  call back, the call runs. If data alone forms the cycle, its calls fail.

Example: `a` writes `state.x`, and `b` reads it. Both start as WAITING. `a` becomes QUEUED, then
RUNNING, and `due` holds its `Execute`; `_waiting` is `{a: [b]}`. `CallFinished` of `a` settles `a`.
`b` is then considered, and is RUNNING before `finished` returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import islice
from typing import Final

from ideabridge.bridge.context.assumption import after_edit
from ideabridge.bridge.context.computed import Doubts
from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.context.messages import Message
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import StateSchema
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.call import UNCAUGHT, Call, ErrorKind
from ideabridge.bridge.loop.effect import (
    Allow,
    AskApproval,
    Cancel,
    Commit,
    Effect,
    EffectKey,
    Execute,
    ExecutionKey,
)
from ideabridge.bridge.loop.event import (
    CallFinished,
    JournalError,
    OutcomeAsked,
    OutcomeDecided,
    Pattern,
    QuestionAnswered,
    QuestionAsked,
    QuestionRefused,
)
from ideabridge.bridge.loop.grant import Grants, grant_of
from ideabridge.bridge.loop.graph import Graph, cycles
from ideabridge.bridge.loop.memory import Memory, Write
from ideabridge.bridge.loop.output import Readiness, Refusal, error_message
from ideabridge.bridge.loop.policy import only_persons, policy_named
from ideabridge.bridge.loop.progress import (
    Absent,
    Approval,
    CallStatus,
    Item,
    Judge,
    Progress,
    Wait,
    items_error,
    running_item,
)
from ideabridge.bridge.loop.question import (
    ENDED,
    apply_edit,
    apply_policy,
    correction_by,
    unknown,
)
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool

_NAMED_IN_COMMON: Final = 20
"""Maximum number of other calls named in one question."""


class Group:
    """Decides what happens to the other calls of a Solution when a call ends.

    Args:
        pattern: with `all`, a failure cancels all other calls, and nothing is written until every
            call has succeeded. With `any`, the first success cancels all other calls. With `race`,
            the first call to end cancels all other calls. With None, the calls are independent.

    Attributes:
        decided: why the unsettled calls are cancelled, or None if they are not.
        cancelled: why someone cancelled the Solution, or None if nobody did.
    """

    def __init__(self, pattern: Pattern | None) -> None:
        self.pattern = pattern
        self.decided: str | None = None
        self.cancelled: str | None = None
        self._won = False

    def note(self, progress: Progress) -> bool:
        """Record a settled call. Return whether the other calls must be cancelled."""
        if self.pattern is None or self.decided is not None:
            return False

        failed = progress.status is CallStatus.FAILED
        if self.pattern == "all":
            if not failed:
                return False
        elif self.pattern == "any" and failed:
            return False
        else:
            self._won = True

        ended = "failed" if failed else "was first"
        self.decided = f"{progress.call.label} {ended}"
        return True

    @property
    def catches(self) -> bool:
        """Return whether `p || q` catches a failure.

        In a group of alternatives, a failed call writes nothing, because a different call might
        succeed.
        """
        return self.pattern != "any"

    @property
    def reports_failures(self) -> bool:
        """Return whether a failed call counts as an error, which it does unless another alternative
        has succeeded.
        """
        return not (self.pattern == "any" and self._won)

    def keeps(self, progress: Progress) -> bool:
        """Return whether the result of a settled call counts."""
        return self.pattern is None or progress.status in (CallStatus.DONE, CallStatus.CAUGHT)

    def error(self) -> JSONObject:
        """Return the error of a cancelled call."""
        return {"kind": "cancelled", "message": f"cancelled: {self.decided}"}


class Tick:
    """Runs the calls of one Solution.

    Args:
        graph: the calls of the Solution. The graph is already closed if the Solution arrived in one
            piece.
        memory: the documents of the run.
        settings: the settings of the run.
        schemas: the state schemas, keyed by instance.
        grants: what people have allowed for the rest of the run.
        pattern: see `Group`.

    Attributes:
        due: the effects that no event has acknowledged.
        progress: the progress of each call, keyed by index.
        rooms: the unfinished executions that rooms answer.
        corrections: reports on the calls that people changed or denied.
        settled: the calls in the order in which they settled.
        program: whether a program proposes the calls and waits for their results.
        unheard: the calls whose results a program had not received when it ended, or None while it
            is running.
    """

    def __init__(
        self,
        graph: Graph,
        memory: Memory,
        settings: Settings,
        schemas: dict[str, StateSchema],
        grants: Grants,
        pattern: Pattern | None = None,
    ) -> None:
        self.graph = graph
        self.due: dict[EffectKey, Effect] = {}
        self.progress: dict[int, Progress] = {}
        self.rooms: dict[ExecutionKey, None] = {}
        self.corrections: list[JSONObject] = []
        self.settled: list[int] = []
        self.program = False
        self.unheard: frozenset[int] | None = None
        self.group = Group(pattern)
        self._memory = memory
        # Until all calls in the group have succeeded, what they write is visible only within the
        # group.
        self._visible = memory.staged() if pattern == "all" else memory
        self._committed = pattern != "all"
        self._settings = settings
        self._policy = policy_named(settings.approval)
        self._schemas = schemas
        self._grants = grants
        self.judge = Judge(self._visible, self.progress)
        self._readiness = Readiness(graph, self.judge, self.progress, settings.items)
        # The calls that ask for the same reason as other calls, in listed order.
        self._sharing: list[int] = []
        # For each call, the other calls that its question names.
        self._named_in_common: dict[int, list[int]] = {}
        # The calls that an approved question named.
        self._approved_in_common: set[int] = set()
        self._waiting: dict[int | None, list[int]] = {}
        self._consider: deque[int] = deque()
        self._queue: deque[tuple[int, int]] = deque()
        self._running = 0
        self._asking = 0

    # -- events ------------------------------------------------------------------------------------

    def propose(self, raw: JSON, place: int | None = None, *, unreached: int | None = None) -> None:
        """Add one call of a streaming answer. `unreached` is as in `CallProposed`."""
        call = self.graph.add(raw, place)
        self._list(call)
        if unreached is not None:
            self._doubt_site(self.progress[call.index], unreached)
        self._drain()

    def _doubt_site(self, progress: Progress, line: int) -> None:
        """Record that no recorded run shows what the call does, unless the call is read-only."""
        if progress.tool is not None and progress.hints.read_only is not True:
            reason = f"no recorded run has made the call in line {line} of the program"
            progress.doubts.assumed.append({"at": f"calls.{progress.call.index}", "why": reason})

    def take_up(self) -> None:
        """Add every call of a Solution that arrived in one piece. Its graph is already closed."""
        for call in self.graph.calls:
            self._list(call)
        self._drain()

    def close(self) -> None:
        """Record that the answer has ended."""
        self.graph.close()
        for progress in self.progress.values():
            if progress.call.problems and progress.settled:
                # Closing the graph might have brought further problems to light.
                progress.error = _structural(progress.call)

        self._consider.extend(
            index for index, progress in self.progress.items() if _waits(progress)
        )
        self._waiting.clear()
        self._drain()

    def started(self, index: int, item: int | None) -> None:
        """Record that an `Execute` was acknowledged."""
        if self.due.pop(("execute", index, item), None) is None:
            raise JournalError(f"call {index} was started before it was due")
        self.progress[index].items[item or 0].started = True
        if self.progress[index].call.room is not None:
            self.rooms[index, item] = None

    def asked(self, index: int) -> None:
        """Record that an `AskApproval` was acknowledged."""
        if self.due.pop(("approve", index, None), None) is None:
            raise JournalError(f"call {index} asked for approval before the question was due")
        self._withdraw_grant(self.progress[index])
        self.progress[index].was_asked = True

    def finished(self, event: events.CallFinished) -> None:
        """Record that a call, or one of its items, has ended."""
        progress = self.progress.get(event.call)
        number = event.item or 0
        if (
            progress is not None
            and self.due.pop(("cancel", event.call, event.item), None) is not None
        ):
            self._stopped(progress, number, event)
            return

        if (
            progress is None
            or progress.status is not CallStatus.RUNNING
            or number >= len(progress.items)
        ):
            raise JournalError(f"call {event.call} finished without running")

        item = progress.items[number]
        if item.finished or not item.started:
            raise JournalError(f"call {event.call} finished twice or without having started")
        self._end(progress, item, event)
        if progress.open_items == 0:
            self._complete(progress, event.chosen)
        elif self.graph.order.may_change(progress.call):
            self._queue_items(progress)

        self._drain()

    def _end(self, progress: Progress, item: Item, event: events.CallFinished) -> None:
        if item.asked is not None:
            self._resume()
        item.end(event.value, event.error)
        self._free_place()
        item.content = event.content
        self.rooms.pop((event.call, event.item), None)
        progress.open_items -= 1
        if event.doubts is not None:
            progress.doubts.add_room(f"calls.{progress.call.place}", event.doubts)

    def learn(self, call: int, message: Message) -> None:
        """Add data from an activity. Later calls in the Solution see this data, unless the calls
        are alternatives.
        """
        if self.group.pattern in (None, "all"):
            self._visible.learn(call, message.instance, message.kind, message.value)

    # The next methods handle questions that come up while a call is running, either about its
    # outcome or from its server. While the question is open, the execution does not occupy a slot.

    def ask_in_call(self, event: OutcomeAsked | QuestionAsked) -> None:
        """Record that a person is asked about the unknown outcome of an execution, or is asked a
        question by its server.
        """
        item = running_item(self.progress, event.call, event.item)
        if not item.can_ask:
            raise JournalError(
                f"call {event.call} is not in flight or has already asked; it cannot ask now"
            )

        item.asked = event
        self._pause()
        self._drain()

    def _end_question(
        self,
        item: Item,
        asked: OutcomeAsked | QuestionAsked | None,
        answer: OutcomeDecided | QuestionAnswered,
    ) -> None:
        """Give an execution its place back after its question was answered."""
        if asked is None:
            raise JournalError(f"call {answer.call} has no open question of this kind")
        if asked.digest != answer.digest:
            raise JournalError(f"call {answer.call} got the answer to a different question")

        item.asked = None
        self._resume()

    def question_answered(self, event: QuestionAnswered) -> None:
        """Record that the server of an execution has received its answer."""
        item = running_item(self.progress, event.call, event.item)
        self._end_question(item, item.inquiry, event)
        item.questions += 1
        self._drain()

    def question_refused(self, event: QuestionRefused) -> None:
        """Record that a question from the server of an execution was not passed to anyone."""
        running_item(self.progress, event.call, event.item)
        progress = self.progress[event.call]
        refused = f"server {event.module!r} asked {event.message!r}, and got no answer: {event.why}"
        progress.unasked.append(f"{progress.call.label}: {refused}")

    def outcome_decided(self, event: OutcomeDecided) -> None:
        """Record a person's decision about the unknown outcome of an execution."""
        item = running_item(self.progress, event.call, event.item)
        self._end_question(item, item.in_doubt, event)
        item.outcomes_decided += 1
        if event.decision == "retry":
            self._retry(self.progress[event.call], event.item)
        else:
            self.finished(CallFinished(event.call, event.item, event.value, event.error))

    def _retry(self, progress: Progress, item: int | None) -> None:
        """Repeat an execution whose outcome was unknown, if the current rules allow it."""
        number = item or 0
        verdict = self._objection(progress)
        if isinstance(verdict, Refusal) or (verdict is not None and progress.call.has_each):
            self.finished(CallFinished(progress.call.index, item, error=_objected(verdict)))
            return

        self._free_place()
        progress.items[number].started = False
        if verdict is None:
            self._queue.append((progress.call.index, number))
        else:
            self._take_back(progress)
            self._put_up(progress, progress.items)

        self._drain()

    def decided(self, event: events.CallDecided) -> None:
        """Apply a decision to a call that is waiting for one."""
        progress = self.progress.get(event.call)
        if (
            progress is None
            or progress.approval is None
            or progress.status is not CallStatus.ASKING
        ):
            raise JournalError(f"call {event.call} is not waiting for a decision")

        if event.digest != progress.approval.digest:
            raise JournalError(
                f"the decision is about a different call than call {event.call}, which is waiting"
            )

        grant = grant_of(progress, event)
        _expect_rule(event)
        if event.granted is not None:
            # Count the call for its grant. If it was already counted when `Allow` became due,
            # `_withdraw_approval` takes that count back below.
            self._grants.count(event.granted, progress, 1)

        corrected = correction_by(progress.approval.resolved, event)
        self._withdraw_approval(progress)
        self._end_asking()
        if corrected is not None:
            self.corrections.append(corrected)

        if event.decision == "deny":
            self._forget_named(progress)
            self._fail(progress, "denied", events.denial_text(event.by, event.reason))
        else:
            self._approved_in_common.update(self._named_in_common.pop(event.call, ()))
            tool = apply_edit(progress, event)
            if event.by.kind in ("person", "approver") and event.was_asked:
                # The person or the approver saw what was assumed, so it counts as approved.
                progress.doubts.approve(str(event.by), event.edited)
            elif event.edited is not None:
                progress.doubts.assumed = after_edit(
                    progress.doubts.assumed, event.edited, f"chosen by {event.by}"
                )

            if tool is not None:
                self._reorder(progress, tool)

            progress.approved_by = event.by
            self._queue_up(progress)

        if grant is not None:
            self._grants.given.append(grant)
            for listed in self.progress.values():
                self._allow(listed)

        self._drain()

    def judge_again(self, settings: Settings) -> None:
        """Apply new rules to the calls that have not settled.

        A new verdict applies only if it is stricter: a call that is asking can be denied, and a
        call that was allowed can be made to ask. A call approved by a person or an approver asks
        again only if the rules now deny it. A call approved by an assistant also asks again if only
        persons are now allowed to decide. Once a call has begun, nobody can be asked about its
        remaining items, so they fail. A room judges its own calls.
        """
        self._settings = settings
        self._policy = policy_named(settings.approval)
        for progress in self.progress.values():
            if progress.status is CallStatus.ASKING:
                self._judge_question(progress)
            elif progress.status in (CallStatus.QUEUED, CallStatus.RUNNING):
                self._judge_allowed(progress)

        self._drain()

    def _judge_question(self, progress: Progress) -> None:
        """Deny a call that is waiting for a decision if the policy now denies it."""
        verdict = self._apply_policy(progress)
        if not isinstance(verdict, Refusal) or progress.approval is None:
            return
        self._withdraw_approval(progress)
        self._end_asking()
        self._fail(progress, verdict.kind, verdict.message)

    def _judge_allowed(self, progress: Progress) -> None:
        """Revoke the permission of a call that has not begun if the policy now asks about it or
        denies it.
        """
        verdict = self._objection(progress)
        if verdict is None:
            return
        if not any(item.started for item in progress.items):
            self._take_back(progress)
            self._put_up(progress, progress.items)
        elif progress.call.room is None:
            progress.forbidden = True
            self._end_open(progress, _objected(verdict))

    def _objection(self, progress: Progress) -> AskApproval | Refusal | None:
        """Return why the current rules forbid a call that was allowed or approved, or None if they
        do not.
        """
        verdict = self._apply_policy(progress)
        by = progress.approved_by
        if isinstance(verdict, AskApproval) and by is not None:
            holds = by.kind != "assistant" or not only_persons(self._settings.approval)
            return None if holds else verdict
        return verdict

    def _end_open(self, progress: Progress, error: JSONObject) -> None:
        """End the items of a call that have not begun, with an error."""
        self._drop_queued(progress)
        for item in progress.items:
            if not item.started and not item.finished:
                item.finished = True
                item.error = error
                progress.open_items -= 1

        if progress.open_items == 0:
            self._complete(progress, None)

    def _take_back(self, progress: Progress) -> None:
        """Undo `_queue_up` for a call if none of its executions has begun."""
        index = progress.call.index
        self._drop_queued(progress)
        for waiting in self._waiting.values():
            if index in waiting:
                waiting.remove(index)

        progress.status = CallStatus.WAITING
        progress.is_held_back = False
        progress.was_asked = False
        progress.approved_by = None

    def _drop_queued(self, progress: Progress) -> None:
        """Remove the executions of a call that have not begun from the queue and from `due`."""
        index = progress.call.index
        self._queue = deque(entry for entry in self._queue if entry[0] != index)
        for number in range(len(progress.items)):
            self._withdraw_execution(progress, number)

    def _withdraw_execution(self, progress: Progress, number: int) -> None:
        """Free the place of an execution whose `Execute` is due but not acknowledged."""
        place = number if progress.call.has_each else None
        if self.due.pop(("execute", progress.call.index, place), None) is not None:
            self._free_place()

    def _allow(self, progress: Progress) -> None:
        """Approve a waiting call if a grant covers it. A person is still asked about its
        uncertainties.
        """
        if (
            progress.approval is None
            or progress.granted is not None
            or progress.doubts.ask is not None
        ):
            return

        grant = self._grants.take(progress)
        if grant is not None:
            progress.granted = grant.call
            digest = progress.approval.digest
            index = progress.call.index
            self.due["approve", index, None] = Allow(progress.call, digest, grant.call, grant.by)

    def _withdraw_approval(self, progress: Progress) -> None:
        """Withdraw the question of whether a call may run, and the grant that would answer it."""
        self._withdraw_grant(progress)
        self.due.pop(("approve", progress.call.index, None), None)
        progress.approval = None

    def _withdraw_grant(self, progress: Progress) -> None:
        if progress.granted is not None:
            self._grants.count(progress.granted, progress, -1)
            progress.granted = None

    # -- places for running calls ------------------------------------------------------------------

    def _take_place(self) -> None:
        """Count one more execution that occupies a slot."""
        self._running += 1

    def _free_place(self) -> None:
        """Stop counting an execution that has ended or will not run for now."""
        self._running -= 1

    def _pause(self) -> None:
        """Free the place of an execution, and count it as waiting for a person."""
        self._running -= 1
        self._asking += 1

    def _resume(self) -> None:
        """Give an execution a place again after a person has answered."""
        self._asking -= 1
        self._running += 1

    def _open_approval(self, progress: Progress, question: AskApproval) -> None:
        """Make a call wait until a person decides whether it may run."""
        progress.approval = Approval(
            question.approval, question.digest, question.resolved, question.why
        )
        progress.status = CallStatus.ASKING
        self._asking += 1
        self.due["approve", progress.call.index, None] = question

    def _end_asking(self) -> None:
        """Stop counting a call that is no longer waiting for a decision."""
        self._asking -= 1

    @property
    def _unsettled(self) -> int:
        """The number of calls that have not settled."""
        return len(self.progress) - len(self.settled)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """True if the answer has ended, every call has settled, and the group, if any, has been
        committed or given up.
        """
        return (
            self.graph.closed
            and self._unsettled == 0
            and (self._committed or self.group.decided is not None)
        )

    @property
    def waits_for_people(self) -> bool:
        """True if the calls are only waiting for people to decide."""
        if self._asking == 0 or self._running or not (self.graph.closed or self.program):
            return False
        return not any(isinstance(effect, Allow) for effect in self.due.values())

    @property
    def at_rest(self) -> bool:
        """True if the calls are only waiting for rooms."""
        return self._running == len(self.rooms) and (
            self.graph.closed or (self.program and self._running > 0)
        )

    def errors(self) -> list[JSONObject]:
        """Return `{"call", "place", "in_solution"?, "error"}` for each failed call, and an error if
        all calls were cancelled.
        """
        failed: list[JSONObject] = [
            {**progress.call.located, "error": progress.error}
            for progress in self.progress.values()
            if progress.status is CallStatus.FAILED
            and self.group.reports_failures
            and (self.unheard is None or progress.call.index in self.unheard)
        ]
        reason = self.group.cancelled
        if reason is None:
            return failed
        return [*failed, error_message("cancelled", f"the solution was cancelled: {reason}")]

    def cut_off(self) -> list[JSONObject]:
        """Return the errors for the calls whose outcome is unknown if the run ends now, except for
        calls to read-only tools.
        """
        errors: list[JSONObject] = []
        for progress in self.progress.values():
            reads = progress.hints.read_only
            if (
                progress.status is not CallStatus.RUNNING
                or progress.call.has_written_result
                or reads
            ):
                continue
            for number, item in enumerate(progress.items):
                if item.started and not item.finished:
                    doubt = item.in_doubt
                    reason = ENDED if doubt is None else doubt.why or ENDED
                    error: JSONObject = {
                        "kind": "unknown",
                        "message": unknown(reason, progress.hints),
                    }
                    if progress.call.has_each:
                        error["item"] = number
                    errors.append({**progress.call.located, "error": error})

        return errors

    # -- starting calls ----------------------------------------------------------------------------

    def _list(self, call: Call) -> None:
        self.progress[call.index] = Progress(call)
        self._consider.append(call.index)
        if self._shared_reason(call) is not None:
            self._sharing.append(call.index)

    def _drain(self) -> None:
        while True:
            while self._consider:
                progress = self.progress[self._consider.popleft()]
                if progress.status is CallStatus.WAITING:
                    self._look(progress)
                elif _waits(progress):
                    self._let_go(progress)
            self._dispatch()
            if not self._stuck():
                break
        if (
            self._unsettled == 0
            and not self._committed
            and self.graph.closed
            and self.group.decided is None
        ):
            self.due["commit", -1, None] = Commit(tuple(self.progress))

    def _stuck(self) -> bool:
        """Break up cycles of calls that wait for each other, once no other call can change its
        status.

        Data takes precedence over order: if only the order holds a call back, the call runs. If
        data alone forms the cycle, its calls fail.
        """
        if (
            not self.graph.closed
            or self._running
            or self._asking
            or self._queue
            or not self._unsettled
        ):
            return False

        # A call waits for only one thing at a time.
        waits = {
            index: {before}
            for before, indexes in self._waiting.items()
            if before is not None
            for index in indexes
        }
        waiting_cycles = cycles(waits)
        for cycle in waiting_cycles:
            waiting = [index for index in cycle if self.progress[index].status is CallStatus.QUEUED]
            if waiting:
                [before] = waits[min(waiting)]
                self.graph.order.give_way(self.progress[min(waiting)].call, before)
                self._waiting[before].remove(min(waiting))
                self._consider.append(min(waiting))
                continue

            message = self.graph.cycle_message(cycle)
            for index in cycle:
                self._fail(self.progress[index], "structural", message)

        return bool(waiting_cycles)

    def _look(self, progress: Progress) -> None:
        call = progress.call
        if call.problems:
            self._fail_with(progress, _structural(call))
            return

        outcome = self._readiness.look(call)
        if isinstance(outcome, Wait):
            self._waiting.setdefault(outcome.on, []).append(call.index)
        elif isinstance(outcome, Absent):
            self._fail_absent(progress, outcome)
        elif isinstance(outcome, Refusal):
            self._fail(progress, outcome.kind, f"not run: {outcome.message}")
        else:
            self._share_question(progress)
            self._put_up(progress, outcome)

    def _share_question(self, progress: Progress) -> None:
        """Ask only once about calls that share a reason to ask.

        The first of these calls that changes something asks. Its question names the others, so the
        answer also decides about them.
        """
        call = progress.call
        reason = self._shared_reason(call)
        asks = progress.tool is not None and not call.has_written_result and call.room is None
        if reason is None or not asks or progress.hints.read_only is True:
            return

        doubts = progress.doubts
        if call.index in self._approved_in_common:
            doubts.assumed = [entry for entry in doubts.assumed if entry.get("why") != reason]
            return

        later = self._sharing[bisect_right(self._sharing, call.index) :]
        later_calls = (self.progress[index] for index in later)
        named = list(
            islice(
                (
                    named_call.call
                    for named_call in later_calls
                    if self._is_open_with(named_call, reason)
                ),
                _NAMED_IN_COMMON,
            )
        )
        for named_call in named:
            doubts.add(
                Doubts([{"at": f"calls.{named_call.place}", "why": reason}]), named_call.instance
            )

        self._named_in_common[call.index] = [named_call.index for named_call in named]

    def _forget_named(self, progress: Progress) -> None:
        """After a question that named other calls was denied, let each of these calls ask its own
        question.
        """
        if self._named_in_common.pop(progress.call.index, ()):
            own = f"calls.{progress.call.place}"
            reason = self._shared_reason(progress.call)
            doubts = progress.doubts
            doubts.assumed = [
                entry
                for entry in doubts.assumed
                if entry.get("why") != reason or entry.get("at") == own
            ]

    def _is_open_with(self, other: Progress, reason: str) -> bool:
        """Return whether `other` changes something, shares this reason, and has not been asked
        about.
        """
        if other.status is not CallStatus.WAITING or other.hints.read_only is True:
            return False
        return (
            other.call.index not in self._approved_in_common
            and self._shared_reason(other.call) == reason
        )

    def _shared_reason(self, call: Call) -> str | None:
        computation = self.graph.computations.calls.get(call.place)
        return None if computation is None else computation.shared_reason

    def _put_up(self, progress: Progress, items: list[Item]) -> None:
        """Apply the policy to a resolved call, unless there is nothing left to execute."""
        progress.items = items
        if all(item.finished for item in items):
            self._complete(progress, None)
            return

        verdict = self._apply_policy(progress)
        if verdict is None:
            self._queue_up(progress)
        elif isinstance(verdict, Refusal):
            self._fail(progress, verdict.kind, verdict.message)
        else:
            self._open_approval(progress, verdict)
            self._allow(progress)

    def _apply_policy(self, progress: Progress) -> AskApproval | Refusal | None:
        return apply_policy(self._policy, progress, rules=self._settings.rules)

    def _queue_up(self, progress: Progress) -> None:
        progress.status = CallStatus.QUEUED
        progress.open_items = sum(not item.finished for item in progress.items)
        self._let_go(progress)

    def _let_go(self, progress: Progress) -> None:
        """Run a call, or make it wait for calls that precede it in the listed order."""
        before = self.graph.order.before(progress.call, self._is_settled)
        progress.is_held_back = before is not None
        if before is None:
            self._queue_items(progress)
        else:
            self._waiting.setdefault(before, []).append(progress.call.index)

    def _queue_items(self, progress: Progress) -> None:
        """Queue the executions of a call: all of them or, if they run one at a time, only the
        next.
        """
        call = progress.call
        open_ = (
            (call.index, number) for number, item in enumerate(progress.items) if not item.finished
        )
        if call.has_each and self.graph.order.may_change(call):
            open_ = islice(open_, 1)
        self._queue.extend(open_)

    def _is_settled(self, index: int) -> bool:
        return self.progress[index].settled

    def _reorder(self, progress: Progress, tool: Tool) -> None:
        """Apply the listed order again after a call's tool was replaced. Queued calls might have to
        wait again.
        """
        self.graph.replace(progress.call, tool)
        self._consider.extend(self._waiting.pop(progress.call.index, ()))
        queued = dict.fromkeys(
            call_index
            for call_index, _ in self._queue
            if self.progress[call_index].status is CallStatus.QUEUED
        )
        self._queue = deque(entry for entry in self._queue if entry[0] not in queued)
        for index in queued:
            self._let_go(self.progress[index])

    def _dispatch(self) -> None:
        while self._queue and self._running < self._settings.parallel_calls:
            index, number = self._queue.popleft()
            progress = self.progress[index]
            progress.status = CallStatus.RUNNING
            self._take_place()
            place = number if progress.call.has_each else None
            self.due["execute", index, place] = Execute.of(progress, place)

    # -- ending calls ------------------------------------------------------------------------------

    def _complete(self, progress: Progress, chosen: str | None) -> None:
        """Settle a call whose executions have all ended. `chosen` is as in `CallFinished`."""
        items = progress.items
        has_each = progress.call.has_each
        value: JSON = [item.value for item in items] if has_each else items[0].value
        error = next((item.error for item in items if item.error is not None), None)
        if error is None:
            self._write(progress, value, chosen)
        elif has_each:
            self._fail_with(progress, items_error(items), partial=value)
        else:
            self._fail_with(progress, error)

    def _write(self, progress: Progress, value: JSON, chosen: str | None) -> None:
        call = progress.call
        target = call.target
        if target is None:
            paths = call.writes
        elif target.mode == "either":
            number = target.texts.index(chosen) if chosen in target.texts else 0
            paths = (target.paths[number],)
        else:
            paths = target.paths

        try:
            self._commit(progress, paths, value)
        except StateWriteError as error:
            self._fail(progress, "runtime", f"it ran, but its result cannot be written: {error}")
            return

        progress.value = value
        self._settle(progress, CallStatus.DONE)

    def _commit(self, progress: Progress, paths: tuple[Path, ...], value: JSON) -> None:
        call = progress.call
        writes = [Write(call.index, call.instance, path, call.method, value) for path in paths]
        changed = self._visible.try_write(writes)
        schema = self._schemas.get(call.instance)
        if schema is not None and any(path[0] == "state" for path in paths):
            schema.check_write(changed[call.instance]["state"])

        self._visible.commit(writes, changed)
        progress.wrote = paths
        progress.staged = self.group.pattern == "all"

    def _fail(self, progress: Progress, kind: ErrorKind, message: str) -> None:
        self._fail_with(progress, {"kind": kind, "message": message})

    def _fail_with(self, progress: Progress, error: JSONObject, partial: JSON = None) -> None:
        """If the call writes to `p || q`, write the failure to `q`. Otherwise, fail the call."""
        call = progress.call
        progress.error = error
        target = call.target
        caught = (
            target is not None and target.mode == "either" and error.get("kind") not in UNCAUGHT
        )
        if target is not None and caught and self.group.catches:
            value: JSONObject = {**error} if partial is None else {**error, "results": partial}
            try:
                self._commit(progress, (target.paths[1],), value)
            except StateWriteError as fault:
                progress.error = {
                    **error,
                    "message": f"{error.get('message')}; and this error cannot be written: {fault}",
                }
            else:
                self._settle(progress, CallStatus.CAUGHT)
                return

        self._settle(progress, CallStatus.FAILED)

    def _fail_absent(self, progress: Progress, absent: Absent) -> None:
        """End a call because a value that it reads will never exist.

        This is not an error if a branch was not taken.
        """
        if absent.why == "skipped":
            progress.error = {"kind": "skipped", "message": absent.message}
            self._settle(progress, CallStatus.SKIPPED)
        else:
            self._fail(
                progress,
                "dependency" if absent.why == "failed" else "runtime",
                f"not run: {absent.message}",
            )

    def _settle(self, progress: Progress, status: CallStatus) -> None:
        progress.status = status
        self.settled.append(progress.call.index)
        self._consider.extend(self._waiting.pop(progress.call.index, ()))
        if self.group.note(progress):
            self._cancel_rest()

    def regroup(self, event: events.GroupCommitted | events.SolutionCancelled) -> None:
        """Record that a `Commit` was acknowledged, or that the Solution was cancelled."""
        if isinstance(event, events.SolutionCancelled):
            self._cancel(event.reason)
            return
        if self.due.pop(("commit", -1, None), None) is None:
            raise JournalError("a group was committed before its commit was due")
        self._memory.absorb(self._visible)
        self._committed = True
        for progress in self.progress.values():
            progress.staged = False

    def _cancel(self, reason: str) -> None:
        if not self.graph.closed or self._unsettled == 0:
            raise JournalError("there is no running Solution to cancel")
        if self.group.decided is None:
            self.group.decided = self.group.cancelled = reason
            self._cancel_rest()
        self._drain()

    def _cancel_rest(self) -> None:
        """Cancel the unsettled calls, and undo what a failed group wrote."""
        self._queue.clear()
        self._consider.clear()
        self._waiting.clear()
        for progress in self.progress.values():
            if not progress.settled:
                self._halt(progress)
            elif not self._committed and progress.status is not CallStatus.FAILED:
                progress.withdraw(self.group.error())

    def _halt(self, progress: Progress) -> None:
        """Cancel a call: drop its unacknowledged effects, and make a `Cancel` due for each
        execution that has begun.
        """
        call = progress.call
        error = self.group.error()
        begun = False
        if progress.approval is not None:
            self._withdraw_approval(progress)
            if progress.was_asked:
                self.due["cancel", call.index, None] = Cancel(call, None, error)
            else:
                self._end_asking()
                self._settle_cancelled(progress)

            return

        for number, item in enumerate(progress.items):
            place = number if call.has_each else None
            if item.finished:
                continue
            if item.started:
                begun = True
                self.due["cancel", call.index, place] = Cancel(call, place, error)
            else:
                item.finished = True
                item.error = error
                progress.open_items -= 1
                self._withdraw_execution(progress, number)

        if not begun:
            self._settle_cancelled(progress)

    def _stopped(self, progress: Progress, number: int, event: events.CallFinished) -> None:
        """Settle a cancelled call that has ended, discarding its result."""
        if progress.status is CallStatus.ASKING:
            self._end_asking()
        else:
            self._end(progress, progress.items[number], event)
        if progress.open_items == 0:
            self._settle_cancelled(progress)
        self._drain()

    def _settle_cancelled(self, progress: Progress) -> None:
        progress.error = self.group.error()
        self._settle(progress, CallStatus.CANCELLED)


def _expect_rule(event: events.CallDecided) -> None:
    """Raise `JournalError` if a decision creates or cites a standing rule but no person
    approved.
    """
    if event.rule is None and event.always is None:
        return
    if event.decision != "approve" or event.by.kind != "person":
        raise JournalError(
            f"the decision on call {event.call} cannot rest on a standing rule: only a person's "
            "approval can"
        )


def _objected(verdict: AskApproval | Refusal) -> JSONObject:
    """Return the error of an execution that the rules no longer allow."""
    if isinstance(verdict, Refusal):
        return {"kind": verdict.kind, "message": verdict.message}
    message = (
        "not run: the rules have changed since this call began and now require approval; "
        "list the call again to run the remaining items"
    )
    return {"kind": "denied", "message": message}


def _structural(call: Call) -> JSONObject:
    """Return the error for a malformed call."""
    return {"kind": "structural", "message": "; ".join(call.problems)}


def _waits(progress: Progress) -> bool:
    return progress.status is CallStatus.WAITING or (
        progress.status is CallStatus.QUEUED and progress.is_held_back
    )
