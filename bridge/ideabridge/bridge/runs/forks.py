"""Create runs that continue from a point in an earlier run, with a different solution or input
(time travel).

The fork's journal begins with the events of its parent. A new machine applies these events, so a
fork is a run like any other: it can be folded, driven, resumed and published. Calls that started
before the fork point keep their results and do not run again.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.messages import Handlers, read_context
from ideabridge.bridge.errors import ForkError, RejectedSolutionError
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.effect import AskApproval, AskPlan
from ideabridge.bridge.loop.event import FORK, Event, JournalError, ends_execution, event_from_json
from ideabridge.bridge.loop.machine import Machine, fork_events
from ideabridge.bridge.loop.policy import ApprovalSetting
from ideabridge.bridge.loop.question import outcome_question
from ideabridge.bridge.loop.request import Composer, SchemaCache
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.programs.names import program_schema
from ideabridge.bridge.reading import are_small, read_beside
from ideabridge.bridge.runs.runs import Runs
from ideabridge.bridge.runs.starts import program_of_mind, settings_under
from ideabridge.bridge.runs.values import program_in, read_submission
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text
from ideabridge.tools.errors import ValueMismatchError
from ideabridge.tools.schema import Validator
from ideabridge.tools.threads import compute_in_thread

_OF_ANSWER = (events.CallProposed, events.OutputProposed, events.SolutionClosed, events.UsageNoted)
_WHOLE = (events.SolutionProposed, events.ProgramProposed)
_OF_EXECUTION = (
    events.CallStarted,
    events.OutcomeAsked,
    events.OutcomeDecided,
    events.CallFinished,
)


async def fork(
    runs: Runs,
    configuration: Configuration,
    run_id: str,
    at: int,
    *,
    caller: str,
    new_input: JSONObject | None = None,
    solution: JSON = None,
) -> str:
    """Store a fork of a run without driving it, and return its id. For details and errors, see
    `Bridge.fork`.

    The fork begins after event `at`, counted from 1 or, if a different `solution` is given, at the
    Request of that event. `new_input` replaces the run's input. The current configuration decides
    which calls ask for approval from then on.
    """
    services = runs.services
    in_force = services.in_force
    store = services.store
    record = store.runs.find(run_id, caller=caller)
    if record.parent is not None:
        raise ForkError(
            f"run {run_id} answers a call of run {record.parent}: fork that run instead"
        )

    started = await compute_in_thread(_beginning_of, store, run_id)
    if not 1 <= at <= record.last_event:
        raise ForkError(f"at: expected 1 to {record.last_event}, an event of the run, found {at}")

    began = started if new_input is None else _with_input(started, new_input)
    fork_id = f"run_{secrets.token_hex(8)}"
    if solution is None or started.mode == "solve":
        point = _ForkPoint(
            store, run_id, at, new_input, configuration.approval_setting, solution, fork_id
        )
        journal = await _continued(runs, point, began)
    else:
        # A plan consists only of its calls, so a fork with different calls starts from the
        # beginning.
        plan = _plan_of(began, solution)
        settings = settings_under(configuration, output_by_instance=plan.output_by_instance)
        settings = dataclasses.replace(
            settings, activities=Settings.from_json(began.settings).activities
        )
        settings = services.offer.to(caller).settings(settings)
        journal = await _begun_anew(runs, plan, settings, caller)

    first = journal[0]
    if isinstance(first, events.RunStarted):
        journal = [dataclasses.replace(first, bound=dict(in_force.definitions)), *journal[1:]]

    requests = sum(isinstance(event, events.RequestMade) for event in journal)
    stored = await compute_in_thread(_admitted, services.screen, journal)

    def keep() -> None:
        with store.transaction():
            store.runs.create_fork(
                fork_id, stored, parent=record, at=at, fingerprint=in_force.fingerprint
            )
            if new_input is None:
                # The ideas of the steps before the fork also belong to it.
                _copy_ideas(store, run_id, fork_id, requests, caller)

    await services.writer.perform(keep)
    return fork_id


def _copy_ideas(store: Store, run_id: str, fork_id: str, requests: int, caller: str) -> None:
    """Store the ideas of the first Requests of a run as ideas of its fork."""
    for step in store.ideas.of_run(run_id):
        if step.meta.step is not None and step.meta.step < requests:
            idea = store.ideas.get(step.id, caller=caller).idea
            store.ideas.save(idea, dataclasses.replace(step.meta, run=fork_id))


@dataclass(frozen=True, slots=True)
class _ForkPoint:
    """Where a fork diverges from its parent, and what differs afterwards.

    Attributes:
        store: contains the parent.
        run_id: the id of the parent.
        at: the number of the last event before the fork, from 1.
        new_input: the input of the fork, or None for the parent's input.
        approval: decides which calls ask for approval from now on.
        solution: the answer to the Request of the last event, or None for the parent's answer.
        fork_id: the id of the fork.
    """

    store: Store
    run_id: str
    at: int
    new_input: JSONObject | None
    approval: ApprovalSetting
    solution: JSON
    fork_id: str


async def _continued(runs: Runs, point: _ForkPoint, began: events.RunStarted) -> Sequence[Event]:
    """Return the journal of a fork that keeps events from its parent, computed by a worker process
    if possible.
    """
    # A worker process has neither the user's handlers nor the code that offers tools in the first
    # Request, so a fork that needs one of them is computed here.
    needs_process = runs.has_own_handlers
    if point.solution is not None and not needs_process:
        needs_process = not await compute_in_thread(
            _has_request, point.store, point.run_id, point.at
        )

    if needs_process:
        return await compute_in_thread(_forked, point, began, runs.services.composer())

    texts = await read_beside(
        forked,
        point.store,
        point.run_id,
        point.at,
        point.new_input,
        point.approval,
        point.solution,
        point.fork_id,
        is_small=are_small(point.store, [point.run_id]),
        what=f"forking run {point.run_id}",
    )
    return await compute_in_thread(_events_in, cast("list[str]", texts))


async def _begun_anew(runs: Runs, plan: Plan, settings: Settings, caller: str) -> Sequence[Event]:
    """Return the journal of a fork that starts over with a different plan."""
    start = await runs.plan_starts.start(plan, settings, None, caller)
    return start.events


def _beginning_of(store: Store, run_id: str) -> events.RunStarted:
    """Return the first event of a run.

    Raises:
        ForkError: the run has no first event, or its journal does not fit this version of
            ideabridge.
    """
    started = next(_journal_of(store, run_id), None)
    if not isinstance(started, events.RunStarted):
        raise ForkError("the run has not begun, so there is nothing to fork")
    return started


def _journal_of(store: Store, run_id: str) -> Iterator[Event]:
    try:
        for _, event in store.runs.events(run_id):
            yield event_from_json(event)
    except JournalError as error:
        raise ForkError(
            f"run {run_id} cannot be forked here: its journal does not fit this "
            f"version of ideabridge ({error})"
        ) from None


def _has_request(store: Store, run_id: str, at: int) -> bool:
    """Return whether the first `at` events of a run include a Request."""
    kinds = (event.get("event") for _, event in islice(store.runs.events(run_id), at))
    return events.RequestMade.name in kinds


def _admitted(screen: Screen, journal: Sequence[Event]) -> list[JSONObject]:
    return [event.to_json() for event in screen.admit(journal)]


def _events_in(texts: list[str]) -> list[Event]:
    return [event_from_json(cast("JSONObject", decode_trusted(text))) for text in texts]


def forked(
    store: Store,
    run_id: str,
    at: int,
    new_input: JSONObject | None,
    approval: ApprovalSetting,
    solution: JSON,
    fork_id: str,
) -> JSON:
    """Return the journal of a fork of a run without user handlers, as one JSON string for each
    event; see `_forked`.
    """
    started = _beginning_of(store, run_id)
    began = started if new_input is None else _with_input(started, new_input)
    composer = Composer(Handlers(), SchemaCache(), program_schema=program_schema)
    point = _ForkPoint(store, run_id, at, new_input, approval, solution, fork_id)
    journal = _forked(point, began, composer)
    return [encode_text(event.to_json()) for event in journal]


def _forked(point: _ForkPoint, began: events.RunStarted, composer: Composer) -> list[Event]:
    """Return the journal of a fork that keeps events from its parent.

    Raises:
        ForkError: with the new input, different calls would have run.
        RejectedSolutionError, ValueMismatchError: the solution is malformed.
    """
    journal = list(_journal_of(point.store, point.run_id))
    inherited = _inherited(journal, point.at)
    try:
        copy = _Copy(composer, began, point.approval)
        if point.solution is not None:
            copy.take(_until_last_request(inherited))
            copy.propose(point.solution, point.fork_id)
        else:
            copy.take(inherited)
            if began.mode == "plan" and not any(isinstance(event, _WHOLE) for event in inherited):
                # The calls of a plan are proposed right after its first event.
                copy.take([began, *(event for event in journal if isinstance(event, _WHOLE))])

        copy.cut_off()
    except JournalError as error:
        raise ForkError(
            f"the run cannot be forked after event {point.at}: {error}; fork after an earlier event"
        ) from None

    return copy.events


def _until_last_request(journal: list[Event]) -> list[Event]:
    """Return the events up to the last Request, or only the first event if there was none."""
    end = 1
    for number, event in enumerate(journal, 1):
        if isinstance(event, events.RequestMade):
            end = number
    return journal[:end]


def _inherited(journal: Sequence[Event], at: int) -> list[Event]:
    """Return the first `at` events in a journal, plus the later events that complete what those
    started: the ends of running calls, and the rest of a streaming answer.

    Calls that a program makes later are left out, because the program makes them again.
    """
    inherited: list[Event] = []
    open_parts = _OpenParts()
    for number, event in enumerate(journal):
        if number < at:
            belongs = not isinstance(event, events.RunEnded)
        else:
            belongs = open_parts.has(event)

        if belongs:
            inherited.append(event)
            open_parts.note(event)

    return inherited


class _OpenParts:
    """The calls that are running after an event in a journal, and the answer that is still
    streaming in.
    """

    def __init__(self) -> None:
        self._running: set[tuple[int, int | None]] = set()
        self._streams = False
        self._is_program = False

    def has(self, event: Event) -> bool:
        """Return whether an event belongs to a running call, or to the streaming answer."""
        if isinstance(event, _OF_EXECUTION):
            return (event.call, event.item) in self._running
        if isinstance(event, events.MessageAdded):
            return any(call == event.call for call, _ in self._running)
        return self._streams and isinstance(event, _OF_ANSWER)

    def note(self, event: Event) -> None:
        match event:
            case events.CallStarted():
                self._running.add((event.call, event.item))
            case events.CallFinished() | events.OutcomeDecided() if ends_execution(event):
                self._running.discard((event.call, event.item))
            case events.ProgramProposed():
                self._is_program = True
            case events.CallProposed() | events.OutputProposed():
                self._streams = not self._is_program
            case events.SolutionClosed() | events.RequestMade():
                self._streams = False
                self._is_program = False
            case _:
                pass


def _open_doubts(journal: Sequence[Event]) -> list[events.OutcomeAsked]:
    """Return the unanswered questions about unknown outcomes."""
    doubts: dict[tuple[int, int | None], events.OutcomeAsked] = {}
    for event in journal:
        if isinstance(event, events.OutcomeAsked):
            doubts[event.call, event.item] = event
        elif isinstance(event, events.OutcomeDecided):
            doubts.pop((event.call, event.item), None)

    return list(doubts.values())


def _plan_of(started: events.RunStarted, solution: JSON) -> Plan:
    """Return the plan that results from the context of a run and a different solution.

    Raises:
        RejectedSolutionError, ValueMismatchError: the value is not a solution.
    """
    proposed, _ = read_submission(solution, None, None)
    program = program_in(proposed)
    input_value: JSONObject | None = None
    input_schema: JSONObject | None = None
    description: str | None = None
    instances: dict[str, JSONObject] = {}
    state_schemas: dict[str, JSONObject] = {}
    messages = read_context(started.context)
    # Read the messages backwards, so that the first input and the first text count.
    for message in reversed(messages):
        if message.type == "input" and not message.instance:
            input_value = message.members
            input_schema = message.schema
        elif message.type == "text":
            description = str(message.value)

    for message in messages:
        if message.type == "state" and message.instance:
            instances[message.instance] = message.members
            if message.schema is not None:
                state_schemas[message.instance] = message.schema

    return Plan(
        calls=proposed.calls,
        input=input_value,
        instances=instances,
        output=proposed.output,
        input_schema=input_schema,
        output_schema=started.output_schema,
        description=description,
        program=program,
        state_schemas=state_schemas,
    )


def _with_input(started: events.RunStarted, new_input: JSONObject) -> events.RunStarted:
    """Return the first event of a run, with a different input.

    Raises:
        ForkError: the run takes no input, or does not accept this input.
    """
    messages = read_context(started.context)
    places = [
        place
        for place, message in enumerate(messages)
        if message.type == "input" and not message.instance
    ]
    if not places:
        raise ForkError("input: the run takes no input, so its fork cannot take one either")
    if len(places) > 1:
        raise ForkError(
            "input: the run takes more than one input, but a fork can replace only a single input"
        )

    old = messages[places[0]]
    if old.schema is not None:
        try:
            Validator(old.schema, what="the input").check(new_input)
        except ValueMismatchError as error:
            raise ForkError(str(error)) from None

    context = [*started.context]
    context[places[0]] = dataclasses.replace(old, value=new_input).to_json()
    return dataclasses.replace(started, context=context)


class _Copy:
    """Copies a journal into a new machine. The new journal can begin differently.

    Args:
        composer: recomposes the Requests, because a different input changes them.
        started: the first event of the fork.
        approval: decides which calls ask for approval from now on. The parent's decisions about
            calls that have run remain valid.
    """

    def __init__(
        self, composer: Composer, started: events.RunStarted, approval: ApprovalSetting
    ) -> None:
        settings = dataclasses.replace(Settings.from_json(started.settings), approval=approval)
        self.machine = Machine()
        self.events: list[Event] = []
        self._composer = composer
        self._take(dataclasses.replace(started, settings=settings.to_json()))

    def take(self, journal: Sequence[Event]) -> None:
        """Apply the events after the first one.

        Raises:
            ForkError: with the new input, different calls would have run.
        """
        ran = {event.call for event in journal if isinstance(event, events.CallStarted)}
        doubts = _open_doubts(journal)
        for number, event in enumerate(journal[1:], 2):
            try:
                if isinstance(event, events.CallDecided):
                    self._decide(event, ran=event.call in ran)
                elif isinstance(event, events.OutcomeAsked) and event in doubts:
                    self._doubt(event)
                else:
                    self._take_in_turn(event)
            except JournalError:
                raise ForkError(self._why_not(event, number)) from None

    def _take_in_turn(self, event: Event) -> None:
        """Apply an event of the parent, adapted to the fork, or skip it."""
        match event:
            case events.RequestMade():
                request = self._composer.compose(self.machine, event)
                self._take(events.RequestMade.of(event.step, request))
            case events.ApprovalAsked() | events.PlanAsked():
                # If there is no decision yet, the fork asks for the approval again, with a new time
                # limit.
                pass
            case events.ConfigurationChanged():
                # A fork begins under the current configuration, but its earlier calls ran under
                # earlier rules.
                if event.rules > self.machine.settings.rules:
                    approval = cast("JSON", self.machine.settings.approval)
                    self._take(dataclasses.replace(event, approval=approval))
            case events.QuestionAsked() | events.QuestionAnswered():
                # These are questions that servers asked during calls in the parent, and the fork
                # does not make these calls again.
                pass
            case events.PlanDecided():
                self._decide_plan(event)
            case events.CallStarted():
                self._start(event)
            case _:
                self._take(event)

    def propose(self, solution: JSON, fork_id: str) -> None:
        """Answer the current Request with a different solution.

        Raises:
            RejectedSolutionError, ValueMismatchError: the solution is malformed.
        """
        proposed, _ = read_submission(solution, None, None)
        program = program_in(proposed)
        if not self.machine.awaits_mind:
            # The fork begins before the first Request, so make that Request now.
            request = self._composer.compose(self.machine)
            self._take(events.RequestMade.of(self.machine.step, request))

        if program is not None:
            extra: JSONObject = dict(proposed.extra or {})
            del extra["program"]
            self._take(program_of_mind(self.machine, program, fork_id, extra))
            return

        errors = self.machine.check(proposed).errors
        if errors:
            raise RejectedSolutionError(rejection(errors))
        self._take(proposed)

    def _why_not(self, event: Event, number: int) -> str:
        """Return why an event of the parent does not fit the fork."""
        if isinstance(event, events.SolutionProposed):
            errors = self.machine.check(event).errors
            if errors:
                return f"with the other input, the run's calls are malformed:\n{rejection(errors)}"
        return (
            "with the other input, or under the current configuration, the run would have taken a "
            f"different course before event {number} ({event.name}); fork after event {number - 1} "
            "or an earlier one"
        )

    def cut_off(self) -> None:
        """Add the events for calls that had not ended."""
        for event in fork_events(self.machine):
            self._take(event)

    def _take(self, event: Event) -> None:
        self.machine.receive(event)
        self.events.append(event)

    def _decide(self, event: events.CallDecided, *, ran: bool) -> None:
        question = self._asked(event.call)
        if question is None:
            # The current configuration lets this call run without approval.
            return
        if not event.was_asked or (event.digest != question.digest and not ran):
            # The decision was about a different call, or came from a grant in the parent's run or
            # from a standing rule, which might have been withdrawn since.
            return

        self._take(events.ApprovalAsked(event.call, question.approval, question.digest))
        self._take(dataclasses.replace(event, digest=question.digest, grant=None, always=None))

    def _start(self, event: events.CallStarted) -> None:
        question = self._asked(event.call)
        if question is not None:
            # The call would ask for approval now, but it ran in the parent without asking.
            self._take(events.ApprovalAsked(event.call, question.approval, question.digest))
            self._take(
                events.CallDecided(
                    event.call, question.digest, "approve", FORK, "it had run before the fork"
                )
            )
        self._take(event)

    def _doubt(self, event: events.OutcomeAsked) -> None:
        # With a different input, the question is a different one, too, so its time limit starts
        # again.
        question = outcome_question(self.machine.history[event.call], event.item)
        if question is not None:
            self._take(
                events.OutcomeAsked(
                    event.call, question.approval, question.digest, event.item, why=event.why
                )
            )

    def _asked(self, call: int) -> AskApproval | None:
        for effect in self.machine.due():
            if isinstance(effect, AskApproval) and effect.call.index == call:
                return effect
        return None

    def _decide_plan(self, event: events.PlanDecided) -> None:
        for effect in self.machine.due():
            if isinstance(effect, AskPlan):
                if effect.digest == event.digest:
                    self._take(events.PlanAsked(effect.approval, effect.digest))
                    self._take(event)
                return
