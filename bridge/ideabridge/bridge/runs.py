"""Runs: the runs of this process, and those taken up again from their journals (DESIGN 7)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.approver import Approver, People
from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.context.message import Message
from ideabridge.bridge.driver import LEASE_SECONDS, Driver, own_name
from ideabridge.bridge.errors import InterruptedRunError, UnknownRunError
from ideabridge.bridge.ideas.errors import StoreError
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.event import Event, RunEnded, RunStarted, event_from_json
from ideabridge.bridge.loop.executor import Executor
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Composer, Request, SchemaCache
from ideabridge.bridge.loop.runner import Runner
from ideabridge.bridge.minds.mind import Mind
from ideabridge.bridge.run import Run
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.names import did_you_mean

_AT_HAND = 256
"""How many runs stay in memory before those that ended or wait are let go."""


class Runs:
    """Creates, keeps and takes up runs.

    Args:
        store: holds their journals and their ideas.
        group: task group their calls run in.
        executor: runs the calls of all of them.
        mind: answers the Requests of runs made for it.
        handlers: what each type of message does to a Request.
        fingerprint: of the configuration; a run goes on only under the one it was made under.
        approver: decides on calls that ask; None: people do, by `Run.decide`.
        mask: takes secrets out of texts.
    """

    def __init__(
        self,
        store: Store,
        group: TaskGroup,
        executor: Executor,
        handlers: Handlers,
        fingerprint: str,
        mind: Mind | None = None,
        approver: Approver | None = None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._mind = mind
        self._approver = approver
        self._mask = mask
        self._store = store
        self._group = group
        self._executor = executor
        self._handlers = handlers
        self._schemas = SchemaCache()
        self._fingerprint = fingerprint
        self._name = own_name()
        self._runs: dict[str, Run] = {}
        self._drivers: dict[str, Driver] = {}

    def create(
        self, machine: Machine, kind: str, caller: str, title: str, events: Sequence[Event], mind: Mind | None = None
    ) -> Run:
        """A new run, driven here: kept whole with its first events, or not at all.

        Args:
            machine: the machine, which has taken the first event already.
            kind: `plan` or `solve`.
            caller: whose run it is.
            title: one line for people.
            events: the first events.
            mind: answers its Requests; None: by turns.
        """
        run_id = f"run_{secrets.token_hex(8)}"
        try:
            with self._store.transaction():
                self._store.create_run(
                    run_id, kind=kind, caller=caller, title=title[:200], fingerprint=self._fingerprint
                )
                run = self._attach(run_id, caller, machine, mind)
                self._drivers[run_id].take()
                run.runner.begin(*events)
        except BaseException:
            self._runs.pop(run_id, None)
            self._drivers.pop(run_id, None)
            raise
        return run

    def get(self, run_id: str, caller: str) -> Run:
        """A run of this caller.

        Raises:
            UnknownRunError: there is none of that id for this caller.
        """
        record = self._store.run(run_id)
        if record is None or record.caller != caller:
            known = [one.id for one in self._store.runs(caller=caller, limit=50)]
            raise UnknownRunError(f"unknown run {run_id!r}.{did_you_mean(run_id, known)}")
        run = self._runs.get(run_id)
        if run is not None and self._is_at_hand(run, self._drivers[run_id], record.last_event):
            if run.people is not None:
                run.people.expire()
            return run
        return self._load(run_id, caller, record.fingerprint)

    @staticmethod
    def _is_at_hand(run: Run, driver: Driver, last_event: int) -> bool:
        """Whether what this process holds of a run is the whole of it, and at work where it should be."""
        if run.runner.lost is not None or not driver.is_current(last_event):
            return False
        # At work elsewhere, or nowhere any more: only another look at its lease tells.
        return run.status != "running" or driver.epoch is not None

    def latest(self, caller: str, limit: int) -> list[JSONObject]:
        """The caller's latest runs, newest first: `{"run", "status", "title", "kind", "created"}`."""
        found: list[JSONObject] = []
        for record in self._store.runs(caller=caller, limit=limit):
            live = self._runs.get(record.id)
            found.append(
                {
                    "run": record.id,
                    "status": live.status if live is not None and record.status == "running" else record.status,
                    "title": record.title,
                    "kind": record.kind,
                    "created": record.created,
                }
            )
        return found

    def release(self) -> None:
        """Give every lease back: this process ends, and any other may go on."""
        for driver in self._drivers.values():
            driver.release()

    async def heartbeat(self) -> None:
        """Keep the leases, and end runs whose wall time is up. Runs until it is cancelled."""
        beat = LEASE_SECONDS / 5
        while True:
            await anyio.sleep(beat)
            for run_id, driver in list(self._drivers.items()):
                if driver.epoch is not None:
                    self._beat(self._runs[run_id], driver, beat)

    @staticmethod
    def _beat(run: Run, driver: Driver, beat: float) -> None:
        try:
            kept = driver.renew()
        except StoreError:
            # The lease holds for several beats: the next may find the store free again.
            return
        if not kept:
            driver.epoch = None
            run.runner.abandon("its lease was lost to another process")
        elif run.status == "running":
            run.active_seconds += beat
            most = run.machine.settings.wall_seconds
            if run.active_seconds > most:
                run.runner.end_at_limit(f"{most:g} seconds, the most a run may take")

    # -- taking up ---------------------------------------------------------------------------------------------

    def _attach(self, run_id: str, caller: str, machine: Machine, mind: Mind | None = None) -> Run:
        driver = Driver(self._store, run_id, self._name)

        def close_step(machine: Machine, request: Request, outcome: str) -> None:
            self._save(run, machine, request, outcome)

        runner = Runner(
            machine,
            journal=driver.journal,
            executor=self._executor,
            composer=Composer(self._handlers, self._schemas),
            group=self._group,
            close_step=close_step,
            rest=lambda: run.rest(),
            mind=mind,
        )
        run = Run(run_id, caller, runner, driver)
        runner.watchers.append(lambda event: self._watch(run, driver, event))
        run.people = People(run, self._group, self._approver, self._mask)
        runner.watchers.append(run.people.watch)
        self._forget_idle()
        self._runs[run_id] = run
        self._drivers[run_id] = driver
        return run

    def _forget_idle(self) -> None:
        """Runs that ended or wait are read again from their journals; only the latest stay at hand."""
        if len(self._runs) < _AT_HAND:
            return
        idle = [run_id for run_id in self._runs if self._drivers[run_id].epoch is None]
        for run_id in idle[: max(0, len(idle) - _AT_HAND // 2)]:
            del self._runs[run_id], self._drivers[run_id]

    def _load(self, run_id: str, caller: str, made_under: str) -> Run:
        record = self._store.run(run_id)
        events: Sequence[Event] = [event_from_json(event) for _, event in self._store.events(run_id)]
        first = events[0] if events else None
        named = first.mind if isinstance(first, RunStarted) else None
        mind = self._mind if self._mind is not None and self._mind.name == named else None
        run = self._attach(run_id, caller, Machine(), mind)
        run.runner.fold(events)
        run.settle_from(events)
        if record is not None:
            self._drivers[run_id].note(record.last_event)
            steps = self._store.step_ideas(run_id)
            run.idea = steps[-1].id if steps else None
            if run.machine.phase == "ended" and record.status != run.machine.status:
                self._settle(run, self._drivers[run_id])
        if run.machine.phase == "ended" or not events:
            return run
        if made_under != self._fingerprint:
            run.runner.lost = "the configuration has changed since it was started; start it again"
            return run
        people = run.people
        if people is not None:
            people.take_up(events)
        if run.status == "running" or (run.status == "needs_approval" and self._approver is not None):
            try:
                self._drivers[run_id].take()
            except InterruptedRunError:
                # Another process is at work on it: what stands in the journal is what can be told here.
                return run
            if people is not None:
                people.ask()
            run.runner.resume()
        if people is not None:
            # Not before: what a denial sets going would look as if it had been in flight.
            people.expire()
        return run

    # -- ideas -------------------------------------------------------------------------------------------------

    def _watch(self, run: Run, driver: Driver, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._tell_end(run, driver)
            driver.release()

    @staticmethod
    def _tell_end(run: Run, driver: Driver) -> None:
        machine = run.machine
        summary: JSONObject = {
            "output" if machine.has_output else "state": run.given(),
            "errors": len(machine.errors),
            "idea": run.idea,
            "reason": machine.reason,
        }
        driver.set_status(machine.status or "failed", summary)

    def _settle(self, run: Run, driver: Driver) -> None:
        """A process died between the last event of a run and the note of how it ended: note it now."""
        with contextlib.suppress(InterruptedRunError):
            driver.take()
            self._tell_end(run, driver)
            driver.release()

    def _save(self, run: Run, machine: Machine, request: Request, outcome: str) -> None:
        """Save the Request that was just answered as an idea; every Request becomes one (DESIGN 4.11)."""
        calls, output, extra = machine.solution
        idea = Idea(request.context, request.schema, {**extra, "calls": calls, "output": output})
        # Once the next Request is due, the step has been counted on already.
        place = machine.step if machine.phase == "asking" else machine.step + 1
        tools = tuple(dict.fromkeys(str(call.get("_tool")) for call in calls if isinstance(call, dict)))
        meta = IdeaMeta(
            run=run.id,
            step=place,
            parent=run.idea,
            mind=_mind_of(run),
            fingerprint=self._fingerprint,
            title=_title(machine.messages) or ", ".join(tools)[:200],
            tools=tools,
            outcome=outcome,
        )
        run.idea = self._store.save_idea(idea, meta)


def _mind_of(run: Run) -> str:
    if run.machine.mode == "plan":
        return ""
    return run.runner.mind.name if run.runner.mind is not None else "turns"


def _title(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.type == "text" and isinstance(message.value, str):
            return message.value.strip().split("\n")[0][:200]
    return ""
