"""Cancel runs and settle their approvals, no matter which process drives them.

A process that does not drive the run stores its request, and the run's driver performs it.
`Control.listen` receives what other processes request for runs that this process drives.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from ideabridge.bridge.driving.driver import is_stopped
from ideabridge.bridge.errors import DecisionError, InterruptedRunError
from ideabridge.bridge.loop.event import (
    CallDecided,
    DecidedEvent,
    Event,
    JournalError,
    event_from_json,
)
from ideabridge.bridge.loop.policy import only_persons, policy_named
from ideabridge.bridge.runs.decision import ToEnd
from ideabridge.bridge.runs.following import FOLLOWS_SECONDS
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.registry import Registry
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.standing_rules import RulesLockedError, StandingRule
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.users import Viewer
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError

LISTENS_SECONDS: Final = 0.5
"""The interval, in seconds, at which this process checks for requests from other processes."""

ANSWERS_SECONDS: Final = 5.0
"""The time, in seconds, to wait for the driver of a run to act on a cancellation or a decision."""


def _who(record: RunRecord) -> str:
    parts = (record.driver or "").rsplit("|", 5)
    if len(parts) != 6:
        return "another process"
    stopped = " (which is stopped)" if is_stopped(record.driver or "") else ""
    return f"process {parts[3]} on {parts[0]}{stopped}"


class Control:
    """Cancels the runs of a store, and decides on their approvals.

    Args:
        services: what all runs of this process use.
        registry: finds the runs of this process.
    """

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._store = services.store
        self._in_force = services.in_force
        self._registry = registry
        # The keys of the decisions from other processes that this process is now applying.
        self._taking: set[str] = set()

    async def cancel(self, run_id: str, caller: Viewer, reason: str) -> Run:
        """End a run and its calls, whichever process drives it. A run that has already ended does
        not change.

        A run that nobody drives ends without being continued first. If another live process drives
        the run, ask that process to end it, and wait until it has. `caller` is the owner of the
        run, or `SEES_ALL`.

        Raises:
            UnknownRunError: this caller has no run with that id.
            InterruptedRunError: the process that drives the run does not respond. The request is
                stored, so the run ends when that process reads the request or another process
                resumes the run.
        """
        deadline = anyio.current_time() + ANSWERS_SECONDS
        while True:
            async with self._registry.reading_ahead(run_id):
                run, record = await self._services.writer.patiently(
                    lambda: self._try_to_cancel(run_id, caller, reason)
                )
            with anyio.move_on_after(max(deadline - anyio.current_time(), 0.0)):
                await run.runner.wait_written()
            if run.unwritten is not None:
                raise InterruptedRunError(
                    f"run {run_id}: {run.unwritten}. After that, the run will be cancelled"
                )
            if record.parent or run.machine.ended:
                return run
            if anyio.current_time() > deadline:
                raise InterruptedRunError(
                    f"run {run_id}: {_who(record)} is working on this run and did not cancel it "
                    f"within {ANSWERS_SECONDS:g} s; the run ends as soon as that process reads the "
                    "request, or when another process takes over the run"
                )
            await anyio.sleep(LISTENS_SECONDS / 2)

    async def decide(self, run: Run, approval: str, decision: Decision) -> None:
        """Settle a pending approval of a run, whichever process drives it. For details and errors,
        see `Bridge.decide`.
        """
        with contextlib.suppress(InterruptedRunError):
            # If another process drives the run, the rules of that process apply.
            await self._services.writer.patiently(run.root.follow_configuration)

        deadline = anyio.current_time() + ANSWERS_SECONDS
        while True:
            asking, event = run.event_of(approval, decision)
            rule = asking.rule_given_by(event)
            try:
                await self._services.writer.patiently(partial(asking.drive, event))
            except InterruptedRunError:
                record = self._store.runs.get(asking.id)
                if (
                    asking.runner.lost is not None
                    or record is None
                    or anyio.current_time() > deadline
                ):
                    raise
                self._expect_allowed_here(asking, event)
                if self._registry.seconds_until_lapse(record.lease) > 0 and await self._ask_driver(
                    asking, event, record, deadline
                ):
                    await self._give(rule, asking)
                    rule = None
            else:
                await self._give(rule, asking)
                return

            # Either nobody drives the run now, or the other process has applied the decision, so
            # the approval is no longer pending.
            if run.is_elsewhere:
                self._registry.read_on(run)

            if approval not in {item.approval for item in run.pending()}:
                return

    async def _give(self, rule: StandingRule | None, run: Run) -> None:
        """Store the standing rule that came with a decision, and apply it to the run's waiting
        calls.

        Raises:
            StandingRuleError: the rule cannot be stored.
        """
        if rule is None:
            return

        try:
            # Do not wait for the lock, because the next call can follow immediately and must
            # already be covered by the rule.
            run.give(rule, seconds=0)
        except RulesLockedError:
            await anyio.to_thread.run_sync(run.give, rule)

        run.root.settle_by(rule)

    def _expect_allowed_here(self, run: Run, event: DecidedEvent) -> None:
        """Raise an error if the rules of this process forbid a decision.

        The run's driver also checks the decision against its own rules.

        Raises:
            DecisionError: under the rules of this process, only a person may decide, or the call is
                denied.
        """
        if event.by.kind == "assistant" and only_persons(self._in_force.approval):
            raise DecisionError(
                "only a person can decide here (approval.by in the configuration), not the "
                "assistant"
            )

        if not isinstance(event, CallDecided) or event.decision == "deny":
            return

        progress = run.machine.history[event.call]
        if progress.tool is not None and progress.approval is not None:
            verdict = policy_named(self._in_force.approval)(
                progress.tool, progress.approval.resolved
            )
            if verdict.verdict == "deny":
                raise DecisionError(f"denied by policy here: {verdict.why}")

    async def _ask_driver(self, run: Run, event: Event, record: RunRecord, deadline: float) -> bool:
        """Ask the process that drives a run to apply an event. Return False if that process stops
        driving the run before it responds.

        Raises:
            DecisionError: the other process refused.
            InterruptedRunError: the other process did not respond.
            SecretGivenError: the event contains a secret, which must not be stored for another
                process.
        """
        [event] = self._services.screen.admit([event])
        key = self._store.requests.ask(run.id, event.to_json())
        try:
            while (answer := self._store.requests.answer_to(key)) is None:
                now = self._store.runs.get(run.id)
                if now is None or self._registry.seconds_until_lapse(now.lease) == 0:
                    return False
                if anyio.current_time() > deadline:
                    back = self._store.requests.withdraw(key)
                    if back:
                        end = "nothing was decided"
                    else:
                        end = (
                            "that process has begun to apply the decision; check_run shows what "
                            "was decided"
                        )
                    raise InterruptedRunError(
                        f"run {run.id}: {_who(record)} is working on this run and did not accept "
                        f"the decision within {ANSWERS_SECONDS:g} s; {end}"
                    )

                await anyio.sleep(LISTENS_SECONDS / 5)
        finally:
            self._store.requests.forget(key)

        if answer["error"] is not None:
            raise DecisionError(str(answer["error"]))
        return True

    def _take_asked(self) -> None:
        """Apply the decisions that other processes submitted for runs that this process drives."""
        for key, run_id, event in self._store.requests.open():
            run = self._registry.driven(run_id)
            if run is not None and key not in self._taking:
                self._taking.add(key)
                self._services.group.start_soon(self._take_for, key, run, event)

    async def _take_for(self, key: str, run: Run, event: JSONObject) -> None:
        error: str | None = None
        try:
            if not self._store.requests.begin(key):
                return
            run.drive(event_from_json(event))
            await run.runner.wait_written()
            error = run.runner.lost
        except JournalError:
            error = "this approval is no longer pending; check_run shows what was decided"
        except IdeabridgeError as refusal:
            error = str(refusal)
        except Exception as failure:  # noqa: BLE001 - an error must end only this run
            run.runner.fail(failure)
            error = run.runner.lost
        finally:
            self._taking.discard(key)

        with contextlib.suppress(StoreError):
            # Ignore the error: if the answer cannot be stored, the process that asked waits a few
            # seconds and then reads the journal.
            self._store.requests.answer(key, error)

    async def left_by_driver(self, run: Run) -> None:
        """Wait briefly until another process releases the lease of a run that it no longer works
        on.
        """
        # Do not wait long, because a process that is asking its approver keeps the lease. A run
        # that is waiting for a solution is different: its process releases the lease with the next
        # write, and an answer that arrives before that write would be lost, so wait longer.
        patience = ANSWERS_SECONDS if run.status == "needs_solution" else FOLLOWS_SECONDS
        deadline = anyio.current_time() + patience
        while run.is_elsewhere and run.may_rest:
            record = self._store.runs.get(run.id)
            if (
                record is None
                or self._registry.seconds_until_lapse(record.lease) == 0
                or anyio.current_time() > deadline
            ):
                return
            await anyio.sleep(FOLLOWS_SECONDS / 10)

    def _try_to_cancel(self, run_id: str, caller: Viewer, reason: str) -> tuple[Run, RunRecord]:
        """End a run, or ask the process that drives the run to end it."""
        record = self._store.runs.find(run_id, caller=caller)
        if record.parent:
            run = self._registry.get(run_id, record.caller)
        else:
            run = self._registry.reach(record, purpose=ToEnd(reason))

        if run.runner.lost is None and (
            record.parent or run.driver.epoch is not None or run.may_rest
        ):
            run.cancel(reason)

        if record.parent or run.machine.ended:
            self._store.requests.forget_cancel(run_id)
        elif not run.runner.is_behind:
            self._store.requests.ask_cancel(run_id, reason)

        return run, record

    async def listen(self) -> None:
        """Cancel runs and apply decisions at the request of other processes, until this task is
        cancelled.
        """
        while True:
            await self._services.notices.wait("ask", LISTENS_SECONDS)
            if not self._registry.is_at_work:
                continue
            with contextlib.suppress(StoreError):
                for run_id, reason in self._store.requests.cancels().items():
                    run = self._registry.driven(run_id)
                    if run is not None:
                        self._registry.end(run, reason)
                self._take_asked()
