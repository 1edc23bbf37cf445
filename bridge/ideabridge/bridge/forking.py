"""Forking: a fork is kept, and can be driven like any run (DESIGN 3, 7)."""

from __future__ import annotations

import dataclasses
import secrets
from dataclasses import dataclass

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.errors import ForkError, UnknownRunError
from ideabridge.bridge.forks import plan_of, retold, with_input
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.limits import settings_under
from ideabridge.bridge.loop.event import Event, RequestMade, RunStarted, event_from_json
from ideabridge.bridge.loop.policy import with_folded_names
from ideabridge.bridge.loop.request import Composer, SchemaCache
from ideabridge.bridge.offer import Offer
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.starts import start_plan
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class Forking:
    """Makes forks under a configuration.

    Attributes:
        store: holds the runs.
        offer: the tools there are: a plan with other calls may name others.
        handlers: of message types, for the Requests.
        configuration: tells what asks from now on.
        fingerprint: of it.
        screen: keeps secrets out of journals.
    """

    store: Store
    offer: Offer
    handlers: Handlers
    configuration: Configuration
    fingerprint: str
    screen: Screen

    async def fork(
        self, run_id: str, at: int, *, caller: str, given: JSONObject | None = None, solution: JSON = None
    ) -> str:
        """Keep a fork of a run; returns its id. Nobody drives it yet. See `Bridge.fork`, also for what it raises."""
        record = self.store.run(run_id)
        if record is None or record.caller != caller:
            raise UnknownRunError(f"unknown run {run_id!r}")
        if record.parent is not None:
            raise ForkError(f"run {run_id} answers a call of run {record.parent}: fork that one")
        events = [event_from_json(event) for _, event in self.store.events(run_id)]
        made = self.screen.admit(await self._events(events, at, given, solution, caller))
        fork = f"run_{secrets.token_hex(8)}"
        with self.store.transaction():
            told = [event.to_json() for event in made]
            self.store.create_fork(fork, told, parent=record, at=at, fingerprint=self.fingerprint)
            if given is None:
                self._keep_steps(record, fork, sum(isinstance(event, RequestMade) for event in made))
        return fork

    async def _events(
        self, events: list[Event], at: int, given: JSONObject | None, solution: JSON, caller: str
    ) -> list[Event]:
        started = events[0] if events else None
        if not isinstance(started, RunStarted):
            raise ForkError("the run has not begun: there is nothing to fork")
        if solution is None or started.mode == "solve":
            composer = Composer(self.handlers, SchemaCache(), self.offer.latent)
            approval = with_folded_names(self.configuration.approval_setting)
            return retold(events, at, composer, approval, given=given, solution=solution)
        # Of a plan the calls are the whole answer: with others, it begins anew.
        if not 1 <= at <= len(events):
            raise ForkError(f"at: expected 1 to {len(events)}, an event of the run, found {at}")
        plan = plan_of(started if given is None else with_input(started, given), solution)
        settings = settings_under(self.configuration, output_by_instance=plan.output_by_instance)
        return list(start_plan(plan, await self.offer.catalogue_of(plan, caller), settings).events)

    def _keep_steps(self, parent: RunRecord, fork: str, requests: int) -> None:
        """The ideas of the steps before the fork are the fork's steps too."""
        for step in self.store.step_ideas(parent.id):
            if step.meta.step is not None and step.meta.step < requests:
                stored = self.store.idea(step.id)
                self.store.save_idea(stored.idea, dataclasses.replace(step.meta, run=fork))
