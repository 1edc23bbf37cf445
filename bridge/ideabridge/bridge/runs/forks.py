"""Forks: a run that continues from a point of another run, with another solution or
input (time travel).

The fork's journal begins with the parent's. A new machine takes its events, so a fork is a run like
any other: it can be folded, driven, resumed and published. Calls that had been started before the
fork keep their results and do not run again.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import cast

from ideabridge.bridge.checking import check_beside
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.messages import Handlers, read_context
from ideabridge.bridge.errors import ForkError, RejectedSolutionError
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.effect import AskApproval, AskPlan
from ideabridge.bridge.loop.event import FORK, Event, JournalError, event_from_json
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
from ideabridge.bridge.runs.starts import program_of_mind, settings_under, start_plan
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
    """Store a fork of a run, which nobody drives yet, and return its id; see `Bridge.fork`, also
    for the errors.

    The fork begins after event `at`, from 1; with another `solution`, at the Request of that event.
    The run's input becomes `new_input`. The configuration decides which calls ask from now on.
    """
    store = runs.store
    record = store.runs.find(run_id, caller=caller)
    if record.parent is not None:
        raise ForkError(f"run {run_id} answers a call of run {record.parent}: fork that one")

    started = await compute_in_thread(_beginning_of, store, run_id)
    if not 1 <= at <= record.last_event:
        raise ForkError(f"at: expected 1 to {record.last_event}, an event of the run, found {at}")

    began = started if new_input is None else _with_input(started, new_input)
    fork_id = f"run_{secrets.token_hex(8)}"
    if solution is None or started.mode == "solve":
        approval = configuration.approval_setting
        # Handlers of users are code of this process, and so is what offers tools in
        # a first Request.
        needs_process = runs.has_own_handlers
        if solution is not None and not needs_process:
            needs_process = not await compute_in_thread(_has_request, store, run_id, at)

        if needs_process:
            composer = runs.composer()
            made = await compute_in_thread(
                _forked, store, run_id, at, began, composer, approval, solution, fork_id
            )
        else:
            texts = await read_beside(
                forked,
                store,
                run_id,
                at,
                new_input,
                approval,
                solution,
                fork_id,
                is_small=are_small(store, [run_id]),
                what=f"forking run {run_id}",
            )
            made = await compute_in_thread(_events_in, cast("list[str]", texts))
    else:
        # Of a plan the calls are the whole answer: with others, it begins anew.
        plan = _plan_of(began, solution)
        settings = settings_under(configuration, output_by_instance=plan.output_by_instance)
        settings = dataclasses.replace(
            settings, activities=Settings.from_json(began.settings).activities
        )
        if plan.program is None:
            catalogue = await runs.catalogue_of(plan, settings, caller)
            made = (await check_beside(plan, start_plan, plan, catalogue, settings)).events
        else:
            made = (await runs.start_program(plan, settings, None, caller)).events

    began = made[0]
    if isinstance(began, events.RunStarted):
        made = [dataclasses.replace(began, bound=dict(runs.definitions)), *made[1:]]

    requests = sum(isinstance(event, events.RequestMade) for event in made)
    stored = await compute_in_thread(_admitted, runs.screen, made)

    def keep() -> None:
        with store.transaction():
            store.runs.create_fork(
                fork_id, stored, parent=record, at=at, fingerprint=runs.fingerprint
            )
            # The ideas of the steps before the fork are steps of the fork, too.
            for step in store.ideas.of_run(run_id) if new_input is None else ():
                if step.meta.step is not None and step.meta.step < requests:
                    idea = store.ideas.get(step.id, caller=caller).idea
                    store.ideas.save(idea, dataclasses.replace(step.meta, run=fork_id))

    await runs.writer.perform(keep)
    return fork_id


def _beginning_of(store: Store, run_id: str) -> events.RunStarted:
    """The first event of a run.

    Raises:
        ForkError: it has none, or one of another version.
    """
    started = next(_journal_of(store, run_id), None)
    if not isinstance(started, events.RunStarted):
        raise ForkError("the run has not begun: there is nothing to fork")
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
    """Whether a Request is among the first events of a run."""
    kinds = (event.get("event") for _, event in islice(store.runs.events(run_id), at))
    return events.RequestMade.name in kinds


def _admitted(screen: Screen, made: Sequence[Event]) -> list[JSONObject]:
    return [event.to_json() for event in screen.admit(made)]


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
    """The journal of a fork of a run without handlers of its own, as the JSON texts of its
    events; see `_forked`.
    """
    started = _beginning_of(store, run_id)
    began = started if new_input is None else _with_input(started, new_input)
    composer = Composer(Handlers(), SchemaCache(), program_schema=program_schema)
    made = _forked(store, run_id, at, began, composer, approval, solution, fork_id)
    return [encode_text(event.to_json()) for event in made]


def _forked(
    store: Store,
    run_id: str,
    at: int,
    began: events.RunStarted,
    composer: Composer,
    approval: ApprovalSetting,
    solution: JSON,
    fork_id: str,
) -> list[Event]:
    """The journal of a fork that keeps events of its parent.

    Raises:
        ForkError: with another input, other calls would have run.
        RejectedSolutionError, ValueMismatchError: the solution is malformed.
    """
    journal = list(_journal_of(store, run_id))
    kept = _kept(journal, at)
    try:
        copy = _Copy(composer, began, approval)
        if solution is not None:
            requests = [
                number for number, event in enumerate(kept) if isinstance(event, events.RequestMade)
            ]
            copy.take(kept[: requests[-1] + 1] if requests else kept[:1])
            copy.propose(solution, fork_id)
        else:
            copy.take(kept)
            if began.mode == "plan" and not any(isinstance(one, _WHOLE) for one in kept):
                # A plan is proposed together with its beginning.
                copy.take([began, *(one for one in journal if isinstance(one, _WHOLE))])

        copy.cut_off()
    except JournalError as error:
        raise ForkError(
            f"the run cannot be forked after event {at}: {error}; fork after an earlier event"
        ) from None

    return copy.events


def _kept(journal: Sequence[Event], at: int) -> list[Event]:
    """The first `at` events of a journal, and those after them that complete what had begun: the
    ends of calls that were running, and the rest of an answer that was streaming in. A program
    makes its next calls again.
    """
    kept: list[Event] = []
    running: set[tuple[int, int | None]] = set()
    streams = is_program = False
    for number, event in enumerate(journal):
        if number < at:
            keeps = not isinstance(event, events.RunEnded)
        elif isinstance(event, _OF_EXECUTION):
            keeps = (event.call, event.item) in running
        elif isinstance(event, events.MessageAdded):
            keeps = any(call == event.call for call, _ in running)
        else:
            keeps = streams and isinstance(event, _OF_ANSWER)

        if not keeps:
            continue
        kept.append(event)
        match event:
            case events.CallStarted():
                running.add((event.call, event.item))
            case events.CallFinished():
                running.discard((event.call, event.item))
            case events.OutcomeDecided() if event.decision != "retry":
                running.discard((event.call, event.item))
            case events.ProgramProposed():
                is_program = True
            case events.CallProposed() | events.OutputProposed():
                streams = not is_program
            case events.SolutionClosed() | events.RequestMade():
                streams = is_program = False
            case _:
                pass

    return kept


def _open_doubts(journal: Sequence[Event]) -> list[events.OutcomeAsked]:
    """The questions about outcomes that nobody has answered."""
    doubts: dict[tuple[int, int | None], events.OutcomeAsked] = {}
    for one in journal:
        if isinstance(one, events.OutcomeAsked):
            doubts[one.call, one.item] = one
        elif isinstance(one, events.OutcomeDecided):
            doubts.pop((one.call, one.item), None)

    return list(doubts.values())


def _plan_of(started: events.RunStarted, solution: JSON) -> Plan:
    """The plan of another solution over the context of a run.

    Raises:
        RejectedSolutionError, ValueMismatchError: it is not a solution.
    """
    proposed, _ = read_submission(solution, None, None)
    program = program_in(proposed)
    messages = read_context(started.context)
    taken = next((one for one in messages if one.type == "input" and not one.instance), None)
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
        description=next((str(one.value) for one in messages if one.type == "text"), None),
        program=program,
        state_schemas={
            one.instance: one.schema
            for one in messages
            if one.type == "state" and one.instance and one.schema is not None
        },
    )


def _with_input(started: events.RunStarted, new_input: JSONObject) -> events.RunStarted:
    """The beginning of a run with another input.

    Raises:
        ForkError: the run takes no input, or does not accept this input.
    """
    messages = read_context(started.context)
    places = [
        number for number, one in enumerate(messages) if one.type == "input" and not one.instance
    ]
    if len(places) != 1:
        raise ForkError(
            f"input: the run takes {'several inputs' if places else 'none'}, "
            "so it cannot have another"
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
    """A copy of a journal that a new machine takes, with a beginning that may differ.

    Args:
        composer: composes the Requests: another input makes others.
        started: the beginning of the fork.
        approval: decides which calls ask from now on. The parent's decisions about calls that
            ran remain valid.
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
        """Take the events after the first.

        Raises:
            ForkError: with another input, other calls would have run.
        """
        ran = {one.call for one in journal if isinstance(one, events.CallStarted)}
        doubts = _open_doubts(journal)
        for number, event in enumerate(journal[1:], 2):
            try:
                match event:
                    case events.RequestMade():
                        request = self._composer.compose(self.machine, event)
                        self._take(events.RequestMade.of(event.step, request))
                    case events.ApprovalAsked() | events.PlanAsked():
                        # An undecided approval is asked again, and its time begins anew.
                        continue
                    case events.ConfigurationChanged():
                        # A fork begins under the present configuration, but its calls ran under the
                        # rules of their time.
                        if event.rules > self.machine.settings.rules:
                            approval = cast("JSON", self.machine.settings.approval)
                            self._take(dataclasses.replace(event, approval=approval))
                    case events.QuestionAsked() | events.QuestionAnswered():
                        # The questions of modules belong to calls of the parent, which are
                        # not made again.
                        continue
                    case events.CallDecided():
                        self._decide(event, ran=event.call in ran)
                    case events.PlanDecided():
                        self._decide_plan(event)
                    case events.CallStarted():
                        self._start(event)
                    case events.OutcomeAsked() if event in doubts:
                        self._doubt(event)
                    case _:
                        self._take(event)
            except JournalError:
                raise ForkError(self._why_not(event, number)) from None

    def propose(self, solution: JSON, fork_id: str) -> None:
        """Answer the current Request with another solution.

        Raises:
            RejectedSolutionError, ValueMismatchError: it is malformed.
        """
        proposed, _ = read_submission(solution, None, None)
        program = program_in(proposed)
        if not self.machine.awaits_mind:
            # The fork begins before the first Request.
            request = self._composer.compose(self.machine)
            self._take(events.RequestMade.of(self.machine.step, request))

        if program is not None:
            extra: JSONObject = {
                key: value for key, value in (proposed.extra or {}).items() if key != "program"
            }
            self._take(program_of_mind(self.machine, program, fork_id, extra))
            return

        errors = self.machine.check(proposed).errors
        if errors:
            raise RejectedSolutionError(rejection(errors))
        self._take(proposed)

    def _why_not(self, event: Event, number: int) -> str:
        """Why the fork cannot have an event of its parent."""
        if isinstance(event, events.SolutionProposed):
            errors = self.machine.check(event).errors
            if errors:
                return (
                    "with the other input, the calls of the run are "
                    f"malformed:\n{rejection(errors)}"
                )
        return (
            "with the other input, or under the present configuration, the run would have "
            f"gone another way before event {number} ({event.name}); fork after event "
            f"{number - 1} or an earlier one"
        )

    def cut_off(self) -> None:
        """Add the events for calls that had not ended."""
        for event in fork_events(self.machine):
            self._take(event)

    def _take(self, event: Event) -> None:
        self.machine.receive(event)
        self.events.append(event)

    def _decide(self, event: events.CallDecided, *, ran: bool) -> None:
        asked = self._asked(event.call)
        if asked is None:
            # The call does not ask now.
            return
        if event.granted is not None or (event.digest != asked.digest and not ran):
            # The decision was about another call than the one that would run now, or a grant for
            # the parent's run.
            return

        self._take(events.ApprovalAsked(event.call, asked.approval, asked.digest))
        self._take(dataclasses.replace(event, digest=asked.digest, grant=None))

    def _start(self, event: events.CallStarted) -> None:
        asked = self._asked(event.call)
        if asked is not None:
            # It ran without asking then.
            self._take(events.ApprovalAsked(event.call, asked.approval, asked.digest))
            self._take(
                events.CallDecided(
                    event.call, asked.digest, "approve", FORK, "it had run before the fork"
                )
            )
        self._take(event)

    def _doubt(self, event: events.OutcomeAsked) -> None:
        # With another input the question differs, and its time begins anew.
        asked = outcome_question(self.machine.history[event.call], event.item)
        if asked is not None:
            self._take(
                events.OutcomeAsked(
                    event.call, asked.approval, asked.digest, event.item, why=event.why
                )
            )

    def _asked(self, call: int) -> AskApproval | None:
        due = (
            one
            for one in self.machine.due()
            if isinstance(one, AskApproval) and one.call.index == call
        )
        return next(due, None)

    def _decide_plan(self, event: events.PlanDecided) -> None:
        asked = next((one for one in self.machine.due() if isinstance(one, AskPlan)), None)
        if asked is not None and asked.digest == event.digest:
            self._take(events.PlanAsked(asked.approval, asked.digest))
            self._take(event)
