"""Create the runs of this process, and look after them while they are open.

`Registry` finds the runs. Four tasks run while the bridge is open. `heartbeat` renews the leases.
`control.listen` receives what other processes request for runs that this process drives: a
cancellation or a decision. `following.run` reads the journals of runs that another process drives
and that someone in this process is waiting for. `shared_calls.run` keeps the limits that several
processes share.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from dataclasses import replace
from typing import Final, NotRequired, TypedDict

import anyio
import anyio.lowlevel

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.driving.driver import LEFT_REASON
from ideabridge.bridge.driving.shared_calls import SharedCalls
from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    CallFinished,
    ConfigurationChanged,
    Event,
    RunEnded,
    RunStarted,
)
from ideabridge.bridge.modules.client_session import client_session
from ideabridge.bridge.runs.binding import bound_to
from ideabridge.bridge.runs.control import LISTENS_SECONDS, Control
from ideabridge.bridge.runs.decision import GO_ON, ToTryAgain
from ideabridge.bridge.runs.executor import CALLER_MEMORY, MEMORY_STEP
from ideabridge.bridge.runs.following import Following
from ideabridge.bridge.runs.observed import Observed
from ideabridge.bridge.runs.plan_starts import PlanStarts
from ideabridge.bridge.runs.registry import Registry, memory_of_start
from ideabridge.bridge.runs.replay import Ways
from ideabridge.bridge.runs.rooms import Rooms
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.runs.starts import Start
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.journal import RunSource
from ideabridge.bridge.store.leases import LEASE_SECONDS
from ideabridge.bridge.store.run_record import CLIENT, RunRecord
from ideabridge.bridge.store.users import SEES_ALL, Viewer, owner_of, user_of
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.threads import compute_in_thread

logger: Final = logging.getLogger(__name__)

_MANY_TOOLS: Final = 500
"""The number of tools above which the schema of a Request is composed in a thread, because each
tool takes 0.3 ms.
"""

_LARGE_CONTEXT = 256 * 1024
"""If the context of a new run takes more memory than this, in bytes, the memory of the caller's
other runs is checked before the new run begins.
"""


class ListedRun(TypedDict):
    """A line in a list of runs.

    Attributes:
        run: the id of the run.
        status: see `RunStatus`.
        title: a human-readable line.
        kind: `plan`, `solve`, or `session` (calls that were made earlier, either elsewhere or one
            by one).
        created: when the run began, as ISO 8601 in UTC.
        reason: why the run is interrupted.
        refused: why a program that a mind wrote was refused.
    """

    run: str
    status: str
    title: str
    kind: str
    created: str
    reason: NotRequired[str]
    refused: NotRequired[str]


REFUSED_PROGRAM: Final = "program_refused."
"""The prefix of the keys under which the store records why a run's program was refused. When a run
is deleted, its key is deleted, too.
"""


class Runs:
    """Creates runs, and does the work outside a run that its events require.

    Args:
        services: what all runs of this process use.
        run_bytes: the maximum number of bytes of results and calls that one run keeps.
        lease_seconds: the number of seconds that a lease lasts without a heartbeat, or None for
            `LEASE_SECONDS`.

    Attributes:
        services: what all runs of this process use.
        registry: finds the runs.
        has_own_handlers: True if the user has defined message handlers, whose code exists only in
            this process.
        control: cancels and decides on runs, whichever process drives them.
    """

    def __init__(
        self, services: Services, *, run_bytes: int, lease_seconds: float | None = None
    ) -> None:
        self.services = services
        self._store = services.store
        self._in_force = services.in_force
        self.has_own_handlers = not services.handlers.are_built_in
        self._lease = LEASE_SECONDS if lease_seconds is None else lease_seconds
        self.registry = Registry(services, self, run_bytes=run_bytes, lease_seconds=self._lease)
        self.observed = Observed(self._store)
        self.ways = Ways(self._store, services.offer, services.writer.patiently)
        self.plan_starts = PlanStarts(services.offer, self.ways, services.sandbox)
        self.rooms = Rooms(services, self.registry, self.ways, self.create)
        self.following = Following(services, self.registry)
        self.shared_calls = SharedCalls(
            self._store, services.writer, services.notices, self.registry.driver_name
        )
        self.control = Control(services, self.registry)

    async def create(
        self, start: Start, caller: str, title: str, room: tuple[str, Run] | None = None
    ) -> Run:
        """Create a run and drive it in this process. When this method returns, the store contains
        the run with its first events.

        Args:
            start: the machine and the first events.
            caller: the owner of the run.
            title: a human-readable line.
            room: for a room, its id and the run whose call it answers.

        Raises:
            LimitExceededError: a named user has reached the limit on active runs, or the caller's
                runs take too much memory.
            StoreError: the run could not be stored, so it has not begun.
        """
        if room is None:
            self._expect_place(caller)

        if start.machine.mode == "solve" and len(start.machine.offer.initial.tools) > _MANY_TOOLS:
            await compute_in_thread(self.services.composer().prepare, start.machine)
            if room is None:
                # Other runs might have begun while the schema was composed.
                self._expect_place(caller)

        memory = memory_of_start(start.events)
        self._expect_memory(caller, memory)
        run_id, parent = room or (f"run_{secrets.token_hex(8)}", None)
        first, *others = start.events
        if isinstance(first, RunStarted):
            traceparent = None if room is not None else self.services.executor.traceparent()
            bound = bound_to(
                start.machine.catalogue,
                self._in_force.definitions,
                None if parent is None else parent.bound,
            )
            first = replace(first, traceparent=traceparent, bound=bound)
            start.machine.traceparent = traceparent

        above = None if parent is None else parent.id
        client = CLIENT.get()
        title = self.services.screen.mask(title)[:200]

        def creates() -> None:
            self._store.runs.create(
                run_id,
                kind=start.machine.mode,
                caller=caller,
                title=title,
                fingerprint=self._in_force.fingerprint,
                parent=above,
                source=RunSource(client=client),
            )

        run = self.registry.attach(run_id, caller, start.machine, first, parent, memory)
        run.runner.session = client_session() if parent is None else parent.runner.session
        run.made_under = self._in_force.fingerprint
        if parent is not None:
            # Add the room to its parent first, so that its usage counts and it ends when the parent
            # ends.
            parent.rooms[run.key] = run

        try:
            run.driver.create_with_first_events(creates)
            run.runner.begin(first, *others)
            await run.runner.wait_written()
            if run.runner.failure is not None and not run.driver.is_created:
                raise run.runner.failure
        except Exception:
            self.registry.drop(run_id)
            run.runner.mark_lost("it could not be stored")
            if parent is not None and parent.rooms.get(run.key) is run:
                del parent.rooms[run.key]

            # Release the lease: if the run was stored and only a later step failed, any process can
            # resume it.
            run.driver.leave(None, None, lambda: None)
            raise

        return run

    def _expect_place(self, caller: str) -> None:
        """Raise `LimitExceededError` if the caller has reached the limit on active runs."""
        if self.services.queue.role == "front":
            # Workers enforce a user's limit themselves by letting further runs wait in the queue.
            self.services.queue.expect_place(caller)
        elif user_of(caller) is not None:
            busy = self.registry.count_running(owner_of(caller))
            if busy >= self._in_force.users.runs:
                raise LimitExceededError(
                    f"you have {busy} active runs, which is the limit for one user: wait until one "
                    "ends (check_run), or cancel one"
                )

    def _expect_memory(self, caller: str, memory: int) -> None:
        """Raise `LimitExceededError` if a new run's context would take too much memory together
        with the caller's other runs.
        """
        if memory < _LARGE_CONTEXT:
            return
        total = memory + self.registry.memory_beside(caller, None)
        if total > CALLER_MEMORY:
            raise LimitExceededError(
                f"the context and the calls of this run take about {memory >> 20:,} MB of memory, "
                f"and with them your runs would take {total >> 20:,} MB; the limit for one caller "
                f"is {CALLER_MEMORY >> 20:,} MB. Wait until runs end, or cancel some"
            )

    async def look_up(self, run_id: str, caller: str) -> Run:
        """Return a run like `Registry.get`, but read a large journal in a thread.

        A worker process would not help, because the run continues in this process.
        """
        self._store.runs.find(run_id, caller=caller)
        async with self.registry.reading_ahead(run_id):
            return await self.services.writer.patiently(lambda: self.registry.get(run_id, caller))

    async def resume_when_left(self, run_id: str, caller: Viewer) -> Run:
        """Resume a run for a person, even if it was set aside; see `Registry.resume`.

        If only a heartbeat can show whether the run's driver is alive, wait for one, but no longer
        than the lease lasts.
        """
        first = self._store.runs.find(run_id, caller=caller)
        while True:
            try:
                async with self.registry.reading_ahead(run_id):
                    return await self.services.writer.patiently(
                        lambda: self.registry.resume(run_id, caller, ToTryAgain())
                    )
            except InterruptedRunError:
                now = self._store.runs.get(run_id)
                if now is None or now.status != "running" or now.lease != first.lease:
                    raise
                seconds = self.registry.seconds_until_lapse(now.lease)
                if not 0 < seconds < math.inf:
                    raise
                await anyio.sleep(min(seconds, LISTENS_SECONDS))

    def latest(self, caller: str, limit: int) -> list[ListedRun]:
        """Return the caller's latest runs, newest first, without sessions of direct calls and
        imported calls.
        """
        listed: list[ListedRun] = []
        for record in self._store.runs.newest(
            caller=caller, limit=limit, rooms=False, sessions=False
        ):
            live = self.registry.in_memory(record.id)
            is_left = (
                record.status == "running" and self.registry.seconds_until_lapse(record.lease) == 0
            )
            status = "interrupted" if is_left else record.status
            if (
                live is not None
                and not is_left
                and (status == "running" or live.unwritten is not None)
            ):
                status = live.status

            line: ListedRun = {
                "run": record.id,
                "status": status,
                "title": record.title,
                "kind": record.kind,
                "created": record.created,
            }
            reason = LEFT_REASON if is_left else record.summary.reason
            if status == "interrupted" and reason is not None:
                line["reason"] = reason

            refused = self._store.settings.get(REFUSED_PROGRAM + record.id)
            if refused is not None:
                line["refused"] = refused.decode()

            listed.append(line)

        return listed

    # -- upkeep of open runs -----------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Renew the leases, end runs whose wall time is up, and index saved ideas, until
        cancelled.
        """
        beat = self._lease / 5
        while True:
            await anyio.sleep(beat)
            for driver, run in self.registry.drivers():
                if run is not None and driver.epoch is not None:
                    try:
                        run.beat(beat)
                        self.rooms.look(run)
                    except Exception as error:  # noqa: BLE001 - an error must end only this run
                        run.runner.fail(error)
                else:
                    driver.give_back()
            # This keeps the views and search tables at most one heartbeat behind. If the store
            # fails, the next heartbeat tries again.
            with contextlib.suppress(StoreError):
                while self._store.ideas.index() and not self.registry.is_at_work:
                    await anyio.lowlevel.checkpoint()

    def hand_over_all(self) -> None:
        """Hand over every run as soon as its running calls have ended, because this process is
        shutting down.
        """
        self.services.queue.role = "front"
        for run in self.registry.all_in_memory():
            if run.driver.epoch is not None:
                run.runner.leave_work()

    async def follow_configuration(self, configuration: Configuration) -> None:
        """Switch to another configuration.

        Runs that this process drives follow the new rules immediately. Other runs follow them
        before the next decision. Calls to servers that now start differently, and to Python tools
        whose definition has changed, fail with the reason.
        """
        self._in_force.follow(configuration)
        for run in self.registry.all_in_memory():
            if run.machine.ended or run.runner.lost is not None:
                continue

            self.registry.bind(run)
            if run.parent is None and run.driver.epoch is not None:
                try:
                    await self.services.writer.patiently(run.follow_configuration)
                except (InterruptedRunError, StoreError) as error:
                    # Another process drives the run, or the store fails. The new rules still apply
                    # to the run before the next decision about it.
                    logger.warning(
                        "run %s: the new configuration cannot be applied yet: %s", run.id, error
                    )

    def adopt(self, record: RunRecord) -> None:
        """Let workers of this configuration claim a queued run of another configuration, if the run
        can continue under this one.

        The run stays queued. What happens to it is decided by `Registry.reach`, both now and when a
        worker claims the run.
        """
        run = self.registry.reach(record)
        if run.machine.ended:
            return

        changed = self._in_force.change_since(run.made_under, run.machine.settings)
        binding = run.runner.binding
        if changed is None or binding is None or binding.why_not_resumable() is not None:
            return

        with run.driver.whole():
            if not run.driver.take():
                # The run has continued since it was read, so do not adopt it.
                run.driver.release()
                return
            run.driver.append([changed])
            run.driver.queue(record.summary.handover)

        run.runner.follow([changed])

    # -- services for runs -------------------------------------------------------------------------

    def journal_alone(self, run: Run, event: Event) -> None:
        """Journal a decision on a run that cannot continue in this process, without performing any
        effect.

        If the decision denies the call that was the only obstacle, the run continues afterwards.

        Raises:
            InterruptedRunError: another process drives the run, or has changed it since it was
                read.
            SecretGivenError: the reason contains a secret.
        """
        [event] = self.services.screen.admit([event])
        with run.driver.whole():
            if not run.driver.take():
                raise InterruptedRunError(
                    f"run {run.id}: another process has continued it; check_run shows its "
                    "current state"
                )
            run.driver.append([event])
            run.driver.release()

        run.unblock()
        run.runner.follow([event])
        run.people.take_up(())
        self.registry.hand_off(run, self._store.runs.find(run.id, caller=SEES_ALL), GO_ON)
        run.poke()

    async def open_room(self, run: Run, effect: Execute) -> None:
        """Open the room of a call that has started, or reopen it."""
        await self.rooms.open(run, effect)

    def note_waiting(self, run: Run) -> None:
        """Record that someone is now waiting for a run to change."""
        self.following.note_waiting(run)

    def watch(self, run: Run, event: Event) -> None:
        """Do the work outside the run that an event of the run requires.

        When the run has ended, write its row in the store, with `Run.summary`, and release its
        lease. Record the shape of each call's result. Pass every event on to the rooms. If another
        process drives the run, that process writes the row.
        """
        if isinstance(event, ConfigurationChanged):
            run.made_under = event.fingerprint
            if run.runner.binding is not None:
                run.runner.binding.is_same = event.fingerprint == self._in_force.fingerprint

        if run.runner.is_following:
            pass
        elif isinstance(event, RunEnded):
            run.driver.leave(run.machine.status or "failed", run.summary(), run.poke)
            if run.machine.output_memory > MEMORY_STEP:
                # The output stays in memory together with the outputs of earlier runs, so check
                # their total size.
                self.registry.memory_beside(run.caller, run.runner.kept_bytes)
        elif isinstance(event, CallFinished) and event.error is None:
            tool = run.machine.history[event.call].tool
            if tool is not None and tool.key not in run.machine.catalogue.latent:
                self.observed.note(run.caller, tool, event.value)

        self.rooms.watch(run, event)
