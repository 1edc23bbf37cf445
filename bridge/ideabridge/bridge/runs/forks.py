"""Forks: a run that goes on from a point of another, with another solution or input (time travel).

The fork's journal begins with the parent's. A new machine takes its events, so a fork is a run like any other:
it is folded, driven, resumed, published. What had been started before the fork keeps its result and is not run again.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.messages import Handlers, Message, read_context
from ideabridge.bridge.errors import ForkError, RejectedSolutionError
from ideabridge.bridge.loop.effect import AskApproval, AskPlan
from ideabridge.bridge.loop.event import (
    FORK,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    Event,
    JournalError,
    MessageAdded,
    OutcomeAsked,
    OutcomeDecided,
    OutputProposed,
    PlanAsked,
    PlanDecided,
    QuestionAnswered,
    QuestionAsked,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionClosed,
    SolutionProposed,
    UsageNoted,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.policy import ApprovalSetting
from ideabridge.bridge.loop.question import outcome_question
from ideabridge.bridge.loop.request import Composer, SchemaCache
from ideabridge.bridge.loop.resuming import fork_events
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.runs.offer import Offer
from ideabridge.bridge.runs.starts import settings_under, start_plan
from ideabridge.bridge.runs.turns import read_submission
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ValueMismatchError
from ideabridge.tools.schema import Validator

_OF_ANSWER = (CallProposed, OutputProposed, SolutionClosed, UsageNoted)
_OF_EXECUTION = (CallStarted, OutcomeAsked, OutcomeDecided, CallFinished)


def kept_events(events: Sequence[Event], at: int) -> list[Event]:
    """The first `at` events of a journal, with what came of the calls that were under way then, and with the rest of
    an answer that was streaming in: both are one thing, and neither is had in part.

    Raises:
        ForkError: the journal has no such event.
    """
    if not 1 <= at <= len(events):
        raise ForkError(f"at: expected 1 to {len(events)}, an event of the run, found {at}")
    kept: list[Event] = [event for event in events[:at] if not isinstance(event, RunEnded)]
    rest = events[at:]
    under_way = {(one.call, one.item): None for one in kept if isinstance(one, CallStarted)}
    for one in kept:
        if isinstance(one, CallFinished) or (isinstance(one, OutcomeDecided) and one.decision != "retry"):
            under_way.pop((one.call, one.item), None)
    streams = False
    for one in kept:
        if isinstance(one, CallProposed | OutputProposed):
            streams = True
        elif isinstance(one, SolutionClosed | RequestMade):
            streams = False
    for one in rest:
        if streams and isinstance(one, _OF_ANSWER):
            kept.append(one)
            streams = not isinstance(one, SolutionClosed)
        elif isinstance(one, _OF_EXECUTION) and (one.call, one.item) in under_way:
            kept.append(one)
            if isinstance(one, CallFinished) or (isinstance(one, OutcomeDecided) and one.decision != "retry"):
                del under_way[one.call, one.item]
        elif isinstance(one, MessageAdded) and any(call == one.call for call, _ in under_way):
            kept.append(one)
    return kept


def open_doubts(events: Sequence[Event]) -> list[OutcomeAsked]:
    """The questions about outcomes that nobody has answered."""
    doubts: dict[tuple[int, int | None], OutcomeAsked] = {}
    for one in events:
        if isinstance(one, OutcomeAsked):
            doubts[one.call, one.item] = one
        elif isinstance(one, OutcomeDecided):
            doubts.pop((one.call, one.item), None)
    return list(doubts.values())


def before_answer(events: Sequence[Event]) -> list[Event]:
    """The events up to the Request at hand; of a plan, whose author was never asked, its beginning."""
    places = [number for number, event in enumerate(events) if isinstance(event, RequestMade)]
    return list(events[: places[-1] + 1]) if places else list(events[:1])


def plan_of(started: RunStarted, solution: JSON) -> Plan:
    """A plan with another solution, over the context of one that has run.

    Raises:
        RejectedSolutionError, ValueMismatchError: it is no solution.
    """
    proposed, _ = read_submission(solution, None, None)
    messages = read_context(started.context)
    taken = next((one for one in messages if one.type == "input" and not one.instance), None)
    description = next((str(one.value) for one in messages if one.type == "text"), None)
    return Plan(
        calls=proposed.calls,
        input=taken.value if taken is not None and isinstance(taken.value, dict) else None,
        instances={
            one.instance: one.value
            for one in messages
            if one.type == "state" and one.instance and isinstance(one.value, dict)
        },
        output=proposed.output,
        input_schema=taken.schema if taken is not None else None,
        output_schema=started.output_schema,
        description=description,
    )


def with_input(started: RunStarted, given: JSONObject) -> RunStarted:
    """The beginning of a run with another input.

    Raises:
        ForkError: it takes none, or not this one.
    """
    messages = read_context(started.context)
    places = [number for number, one in enumerate(messages) if one.type == "input" and not one.instance]
    if len(places) != 1:
        raise ForkError(f"input: the run takes {'several inputs' if places else 'none'}, so it cannot have another")
    old = messages[places[0]]
    if old.schema is not None:
        try:
            Validator(old.schema, what="the input").check(given)
        except ValueMismatchError as error:
            raise ForkError(str(error)) from None
    new = Message(old.role, "input", given, old.kind, old.instance, old.schema, old.description)
    context = [*started.context]
    context[places[0]] = new.to_json()
    return dataclasses.replace(started, context=context)


class Retelling:
    """A journal that a new machine takes, with a beginning that may differ.

    Args:
        composer: composes the Requests: another input makes others.
        started: how the fork begins.
        approval: what asks from now on; what was decided and ran in the parent stays so.
    """

    def __init__(self, composer: Composer, started: RunStarted, approval: ApprovalSetting) -> None:
        settings = dataclasses.replace(Settings.from_json(started.settings), approval=approval)
        self.machine = Machine()
        self.events: list[Event] = []
        self._composer = composer
        self._take(dataclasses.replace(started, settings=settings.to_json()))

    def tell(self, events: Sequence[Event]) -> None:
        """Take the events after the first.

        Raises:
            ForkError: with what is other, other calls would have run.
        """
        ran = {one.call for one in events if isinstance(one, CallStarted)}
        doubts = open_doubts(events)
        for number, event in enumerate(events[1:], 2):
            try:
                match event:
                    case RequestMade():
                        request = self._composer.compose(self.machine, event)
                        self._take(RequestMade(event.step, request.id, request.offered))
                    case ApprovalAsked() | PlanAsked():
                        # Asked again where it was not decided: the time somebody had begins anew.
                        continue
                    case CallDecided():
                        self._decide(event, ran=event.call in ran)
                    case PlanDecided():
                        self._decide_plan(event)
                    case CallStarted():
                        self._start(event)
                    case OutcomeAsked() if event in doubts:
                        self._doubt(event)
                    case QuestionAsked() | QuestionAnswered():
                        # What a module asked was of the parent's call, which is not made again.
                        continue
                    case _:
                        self._take(event)
            except JournalError as error:
                raise ForkError(
                    f"event {number} ({event.name}) could not have come with what is other now ({error});"
                    " fork before it"
                ) from None

    def propose(self, solution: JSON) -> None:
        """Answer the Request at hand with another solution.

        Raises:
            RejectedSolutionError, ValueMismatchError: it is malformed.
        """
        proposed, _ = read_submission(solution, None, None)
        errors = self.machine.check(proposed.calls, proposed.output)
        if errors:
            raise RejectedSolutionError(rejection(errors))
        self._take(proposed)

    def cut_off(self) -> None:
        """Note the calls that had not ended."""
        for event in fork_events(self.machine):
            self._take(event)

    def _take(self, event: Event) -> None:
        self.machine.receive(event)
        self.events.append(event)

    def _decide(self, event: CallDecided, *, ran: bool) -> None:
        asked = self._asked(event.call)
        if asked is None:
            # Nobody asks about it now.
            return
        if event.digest != asked.digest and not ran:
            # Decided about another call than the one that would run now.
            return
        self._take(ApprovalAsked(event.call, asked.approval, asked.digest))
        self._take(dataclasses.replace(event, digest=asked.digest))

    def _start(self, event: CallStarted) -> None:
        asked = self._asked(event.call)
        if asked is not None:
            # It ran without a question then.
            self._take(ApprovalAsked(event.call, asked.approval, asked.digest))
            self._take(CallDecided(event.call, asked.digest, "approve", FORK, "it had run before the fork"))
        self._take(event)

    def _doubt(self, event: OutcomeAsked) -> None:
        # Another input makes another question of it, and the time somebody had begins anew.
        asked = outcome_question(self.machine.history[event.call], event.item)
        if asked is not None:
            self._take(OutcomeAsked(event.call, asked.approval, asked.digest, event.item, why=event.why))

    def _asked(self, call: int) -> AskApproval | None:
        due = (one for one in self.machine.due() if isinstance(one, AskApproval) and one.call.index == call)
        return next(due, None)

    def _decide_plan(self, event: PlanDecided) -> None:
        asked = next((one for one in self.machine.due() if isinstance(one, AskPlan)), None)
        if asked is not None and asked.digest == event.digest:
            self._take(PlanAsked(asked.approval, asked.digest))
            self._take(event)


def retold(
    events: Sequence[Event],
    at: int,
    composer: Composer,
    approval: ApprovalSetting,
    *,
    given: JSONObject | None = None,
    solution: JSON = None,
) -> list[Event]:
    """The journal of a fork.

    Args:
        events: the parent's journal.
        at: after which event; the first is 1. With a solution the fork begins at the Request of which that event is.
        composer: composes Requests.
        approval: what asks from now on.
        given: another input.
        solution: another answer to the Request at hand; None: what was answered goes on.

    Raises:
        ForkError: there is no such event, it cannot have this input, or other calls would have run.
        RejectedSolutionError, ValueMismatchError: the solution is malformed.
    """
    kept = kept_events(events, at)
    started = kept[0]
    if not isinstance(started, RunStarted):
        raise ForkError("the run has not begun: there is nothing to fork")
    if solution is not None:
        kept = before_answer(kept)
    telling = Retelling(composer, started if given is None else with_input(started, given), approval)
    telling.tell(kept)
    if solution is not None:
        telling.propose(solution)
    elif started.mode == "plan" and not any(isinstance(one, SolutionProposed) for one in kept):
        # A plan is proposed in the same breath as it begins.
        telling.tell([started, *(one for one in events if isinstance(one, SolutionProposed))])
    telling.cut_off()
    return telling.events


@dataclass(frozen=True, slots=True)
class Forking:
    """Makes forks under a configuration.

    Attributes:
        store: holds the runs.
        offer: the tools there are: a plan with other calls may name others.
        handlers: of message types, for the Requests.
        configuration: decides what asks from now on.
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
        record = self.store.runs.get(run_id)
        if record is None or record.caller != caller:
            raise UnknownRunError(f"unknown run {run_id!r}")
        if record.parent is not None:
            raise ForkError(f"run {run_id} answers a call of run {record.parent}: fork that one")
        events = [event_from_json(event) for _, event in self.store.runs.events(run_id)]
        made = self.screen.admit(await self._events(events, at, given, solution, caller))
        fork = f"run_{secrets.token_hex(8)}"
        with self.store.transaction():
            events_json = [event.to_json() for event in made]
            self.store.runs.create_fork(fork, events_json, parent=record, at=at, fingerprint=self.fingerprint)
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
            approval = self.configuration.approval_setting
            return retold(events, at, composer, approval, given=given, solution=solution)
        # Of a plan the calls are the whole answer: with others, it begins anew.
        if not 1 <= at <= len(events):
            raise ForkError(f"at: expected 1 to {len(events)}, an event of the run, found {at}")
        plan = plan_of(started if given is None else with_input(started, given), solution)
        settings = settings_under(self.configuration, output_by_instance=plan.output_by_instance)
        return list(start_plan(plan, await self.offer.catalogue_of(plan, caller), settings).events)

    def _keep_steps(self, parent: RunRecord, fork: str, requests: int) -> None:
        """The ideas of the steps before the fork are the fork's steps too."""
        for step in self.store.ideas.of_run(parent.id):
            if step.meta.step is not None and step.meta.step < requests:
                stored = self.store.ideas.get(step.id)
                self.store.ideas.save(stored.idea, dataclasses.replace(step.meta, run=fork))
