"""The agent loop as a pure state machine.

Theory of operation
-------------------

A run is a sequence of events. `Machine.receive` takes one event and changes the state.
`Machine.due` lists the effects that someone outside must perform now: ask the mind, ask a person,
execute a call, end the run. The machine has no clock, no tasks, no network and no database.
`Runner` performs each effect and acknowledges it with an event:

    effect         acknowledged by       and later answered by
    AskMind        RequestMade           SolutionProposed, or CallProposed... OutputProposed? SolutionClosed
    AskPlan        PlanAsked             PlanDecided
    AskApproval    ApprovalAsked         CallDecided
    Allow          CallDecided
    Execute        CallStarted           CallFinished
    Cancel         CallFinished
    Commit         GroupCommitted
    Finish         RunEnded

The phases and their transitions:

    phase      meaning                                          next
    new        nothing has happened                             RunStarted: asking
    asking     the machine waits for a Solution                 its first piece: solving, or planning in a lazy run
    planning   a lazy run's plan is being written, or waits     accepted: solving; empty, malformed or denied: asking,
               for a decision                                   or ending
    solving    the calls of a Solution run, while its answer    the answer has ended and every call has settled:
               may still be streaming                           asking, or ending
    ending     Finish is due                                    RunEnded: ended
    ended      nothing more can happen

`RunEnded` leads from every phase but `new` to `ended`, for example when a person cancels the run or
a time limit ends it.

Invariants:

- Folding the same events always leads to the same machine and the same effects. A run is resumed
  after a crash by folding its journal: the effects that no event has acknowledged are still due.
- An event that does not fit the state raises `JournalError` and changes nothing. It must not be
  journaled.
- An effect stays due until the event that acknowledges it arrives. An acknowledged `Execute` is due
  again only if a person decides `retry`. After a crash, `resume_events` also lists executions that
  run again without a decision.
- Between two Requests, every listed call has settled.

The parts: `SolutionReader` reads and checks Solutions, `Planning` holds the plan of a lazy run,
`Tick` moves the calls of the current Solution, `Memory` holds the values that references read,
`Spending` adds up usage, `ToolOffer` says which tools a Request offers. Code outside this folder
does not use the parts, except that it reads `Machine.offer`, a `ToolOffer`.

    machine = Machine(catalogue)
    machine.receive(RunStarted("plan", context, tools, latent, settings, None))
    machine.receive(SolutionProposed([{"_tool": "count", "items": [1, 2], "_outputPath": "n"}], "†state.n"))
    machine.due()                               # [Execute(...)]
    machine.receive(CallStarted(0, None))
    machine.receive(CallFinished(0, None, value=2))
    machine.due()                               # [Finish("done")]
    machine.output                              # 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, cast

from ideabridge.bridge.context.computed import Doubts
from ideabridge.bridge.context.failure import NO_OUTPUT
from ideabridge.bridge.context.messages import Message, merge_messages, read_context, read_message
from ideabridge.bridge.context.mind import TURNS
from ideabridge.bridge.context.request import least_tokens_of
from ideabridge.bridge.context.shown import TO_HOSTS, TO_MINDS, Shown
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskMind, Cancel, Effect, Execute, ExecutionKey, Finish
from ideabridge.bridge.loop.event import BRIDGE, MODULE, Decider, Event, JournalError
from ideabridge.bridge.loop.grant import Grants, decision_text
from ideabridge.bridge.loop.initial_documents import (
    InitialDocuments,
    initial_documents,
    opening_faults,
)
from ideabridge.bridge.loop.members import GROUP, GROUPS, THOUGHT_PROCESS, THOUGHTS, faults_of
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.output import OutputSchema, error_message, state_errors
from ideabridge.bridge.loop.policy import ApprovalSetting
from ideabridge.bridge.loop.progress import CallStatus, Progress, in_flight, parked
from ideabridge.bridge.loop.question import FORKED, Question, outcome_question, unknown
from ideabridge.bridge.loop.settings import Settings, Spending
from ideabridge.bridge.loop.solution import (
    BROKE_OFF,
    CheckedSolution,
    CurrentSolution,
    PlanEvent,
    Planning,
    PlanResult,
    Proposal,
    SolutionReader,
)
from ideabridge.bridge.loop.tick import Tick
from ideabridge.bridge.loop.tool_offer import ToolOffer
from ideabridge.tools.encoding import JSON, JSONObject

CUT_OFF: Final = "the process ended while the answer was still arriving"
"""Why an answer was cut off if the process of the run ended. The mind is not at fault."""

Phase = Literal["new", "asking", "planning", "solving", "ending", "ended"]


@dataclass(slots=True)
class Feedback:
    """The messages that the last Solution adds to the context of the next Request.

    Attributes:
        errors: what the next Request, or the run's answer, reports: failed calls, and an output or
            a Solution that is malformed, each as `{"call", "place", "error"}`. Caught calls are not
            included.
        corrections: reports on the calls and plans that people changed or denied.
        messages: the messages that activities added, except for data.
    """

    errors: list[JSONObject] = field(default_factory=list[JSONObject])
    corrections: list[JSONObject] = field(default_factory=list[JSONObject])
    messages: list[Message] = field(default_factory=list[Message])


class Machine:
    """One run of the loop. Only `receive` changes it; all other methods only read.

    Args:
        catalogue: the run's compiled tools, if the caller already has them. Otherwise they are read
            from `RunStarted`.

    Attributes:
        mind_name: the name of the mind, as `RunStarted` records it. None if it is unknown or no
            mind is asked.
        mode: `solve` if a mind answers Requests until there is an output, `plan` if a plan's author
            gives one Solution at the start.
        phase: see the table at the top of this file.
        step: the number of the current Request, counted from 0.
        requests: the number of Requests that have been made.
        settings: the settings of the run.
        messages: the context that the run began with.
        history: every call of the run, in listing order.
        decisions: each decision as (what, decision, by whom).
        grants: what people have allowed for the rest of the run.
        solution: the latest Solution.
        proposal: the latest Solution with its calls bound to each other, or None before the first
            Solution.
        feedback: what the latest Solution adds to the next Request.
        output: the output of the run. It can be null, so `has_output` says whether the run has one.
        offer: the tools and the output schemas of the run and of the current Request.
        has_mind: whether a mind answers by itself. Otherwise, someone submits the Solutions. The
            runner sets this attribute.
        traceparent: the trace of the request that asked for the run; see `RunStarted`.
            `Runs.create` also sets it.
        status, reason: how the run ended, and why.
    """

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self.mind_name: str | None = None
        self.mode: Literal["plan", "solve"] = "solve"
        self.phase: Phase = "new"
        self.step: int = -1
        self.requests = 0
        self.settings = Settings()
        self.messages: list[Message] = []
        self.history: list[Progress] = []
        self.decisions: list[tuple[str, str, Decider]] = []
        self.grants = Grants()
        self.solution = CurrentSolution()
        self.proposal: Proposal | None = None
        self.feedback = Feedback()
        self.output: JSON = None
        self.has_output = False
        self.offer = ToolOffer(catalogue or Catalogue(()))
        self.has_mind = False
        self.traceparent: str | None = None
        self.status: str | None = None
        self.reason: str | None = None
        self._compiled = catalogue
        self._by_turns = True
        self._output_schema = OutputSchema(None, mode="plan", by_instance=False)
        self._initial = InitialDocuments()
        self._memory = Memory({})
        self._spending = Spending()
        # The size of the last Request in bytes, or None if the journal does not record it.
        self._asked_bytes: int | None = None
        self._reader = SolutionReader(
            self.catalogue, self.settings, self._initial, self._memory, self._spending
        )
        self._planning: Planning | None = None
        self._tick: Tick | None = None
        self._finish: Finish | None = None
        self._mind_due = False
        self._output_doubts = Doubts()
        self._input_doubts = Doubts()
        # The members that handlers added to the Request's schema, or None if the journal does not
        # record them.
        self._members: JSONObject | None = None
        self._member_errors: list[str] = []
        # Messages that calls in the current Solution added, each paired with the index of its call.
        self._added: list[tuple[int, Message]] = []
        # The index of the first call in the current Solution.
        self._first = 0
        # All data that calls have added so far, keyed by instance and kind.
        self._data: dict[tuple[str, str], Message] = {}
        # The number of consecutive Solutions that had neither calls nor an output.
        self._idle = 0

    # -- questions ---------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """A catalogue of all tools that the run has ever had."""
        return self.offer.every

    @property
    def output_schema(self) -> JSONObject | None:
        """The output schema of the current Request."""
        return self.offer.output_schema

    @property
    def errors(self) -> list[JSONObject]:
        """The errors of the last Solution, not of the whole run; see `Feedback.errors`."""
        return self.feedback.errors

    @property
    def skipped(self) -> list[Progress]:
        """The calls in the last Solution that were skipped because they read from a branch that was
        not taken.
        """
        return [
            progress
            for progress in self.history[self._first :]
            if progress.status is CallStatus.SKIPPED
        ]

    @property
    def ended(self) -> bool:
        """True once `RunEnded` has been received. No event fits after that."""
        return self.phase == "ended"

    def due(self) -> list[Effect]:
        """Return the effects that no event has acknowledged, oldest first."""
        effects: list[Effect] = [AskMind(self.step)] if self._mind_due else []
        if self._planning is not None:
            effects.extend(self._planning.due())

        if self._tick is not None:
            effects.extend(self._tick.due.values())

        if self._finish is not None:
            effects.append(self._finish)

        return effects

    @property
    def awaits_mind(self) -> bool:
        """True if a Request was made and no part of its answer has arrived."""
        return self.phase == "asking" and self.mode == "solve" and not self._mind_due

    @property
    def awaits_solution(self) -> bool:
        """True if a Request was made and someone must submit its Solution."""
        return self.awaits_mind and not self.has_mind

    @property
    def is_streaming(self) -> bool:
        """True if an answer has begun to arrive but has not ended."""
        if self._planning is not None:
            return not self._planning.waits
        return (
            self.program is None
            and self.phase == "solving"
            and self._tick is not None
            and not self._tick.graph.closed
        )

    @property
    def program(self) -> events.ProgramProposed | None:
        """The running program, or None if there is none."""
        if self.phase != "solving" or self._tick is None or self._tick.graph.closed:
            return None
        return self.solution.program

    @property
    def fault_of_null(self) -> str | None:
        """Why a program must not end with null, or None if it is allowed to. If a mind writes null,
        there is no output yet.
        """
        if self.mode != "plan":
            return None
        return self._output_schema.fault_of_null()

    @property
    def offers_programs(self) -> bool:
        """True if minds are told that a Solution can be a program."""
        # Do not offer programs in a run with instances, because a program has none, or in a lazy
        # run, because nobody could accept the calls of a program before it makes them.
        settings = self.settings
        return (
            self.mode == "solve" and settings.programs and not settings.lazy and not self.instances
        )

    @property
    def settled(self) -> Sequence[int]:
        """The calls of the current Solution, in the order in which they settled."""
        return self._tick.settled if self._tick is not None else ()

    def is_current(self, call: int) -> bool:
        """Return whether a call belongs to the current Solution. Messages for other calls arrive
        too late and are ignored.
        """
        return self.phase == "solving" and call >= len(self.history) - len(self.solution.calls)

    @property
    def calls_left(self) -> int:
        """The number of calls that the run can still list."""
        if self._planning is None:
            return self._reader.room
        return self._reader.room - len(self._planning.plan.solution.calls)

    @property
    def waits_for_people(self) -> bool:
        """True if the run is only waiting for people to decide."""
        if self._planning is not None:
            return self._planning.waits
        return self.phase == "solving" and self._tick is not None and self._tick.waits_for_people

    @property
    def waiting_plan(self) -> Proposal | None:
        """The plan of a lazy run that is waiting for a decision, or None if there is none."""
        if self._planning is not None and self._planning.waits:
            return self._planning.plan
        return None

    @property
    def plan_question(self) -> Question | None:
        """The question about the waiting plan, or None if no plan is waiting."""
        if self._planning is not None and self._planning.waits:
            return self._planning.question
        return None

    @property
    def open_rooms(self) -> Collection[ExecutionKey]:
        """The unfinished executions that rooms answer."""
        return self._tick.rooms.keys() if self._tick is not None else ()

    @property
    def at_rest(self) -> bool:
        """True if the run is only waiting for its rooms."""
        return self.phase == "solving" and self._tick is not None and self._tick.at_rest

    @property
    def state(self) -> JSONObject:
        """The run's state or, in a run with instances, a map of states keyed by instance."""
        instances = self._initial.instances
        if not instances:
            return self._memory.state()
        return {instance: self._memory.state(instance) for instance in instances}

    def state_of(self, instance: str = "") -> JSONObject:
        """Return the state of one instance. In a run without instances, `instance` is ""."""
        return self._memory.state(instance)

    @property
    def doubts(self) -> Doubts:
        """The uncertainties about the input of a program, the parameters of the run's calls, and
        the run's output.
        """
        parts = [
            self._input_doubts,
            *(progress.doubts for progress in self.history),
            self._output_doubts,
        ]
        # Several calls can read the same value, so list each note only once.
        notes = {
            (str(note.get("at")), str(note.get("what")), str(note.get("instance"))): note
            for part in parts
            for note in part.notes
        }
        assumed = [entry for part in parts for entry in part.assumed]
        approved = [entry for part in parts for entry in part.approved]
        return Doubts(assumed, list(notes.values()), approved)

    @property
    def added_data(self) -> list[Message]:
        """The data added by calls in earlier Solutions, as one message per kind and instance."""
        return list(self._data.values())

    @property
    def output_memory(self) -> int:
        """The approximate size of the output in memory, in bytes."""
        return self._output_schema.memory if self.has_output else 0

    @property
    def documents(self) -> dict[str, JSONObject]:
        """The documents that references read, keyed by instance: `{"state", "results", "input",
        "data"}`. Callers must not modify them.
        """
        return self._memory.documents

    @property
    def shown(self) -> Shown:
        """The limits, in bytes, on how much of the results Requests show."""
        limits = TO_HOSTS if self._by_turns else TO_MINDS
        return limits.with_changes(self.settings.shown)

    @property
    def instances(self) -> list[str]:
        """The instances, in the order of the context. Empty if the context names no instances."""
        return self._initial.instances

    @property
    def usage(self) -> Spending:
        """The usage so far of the answers and rooms that have ended. Callers must not modify it."""
        return self._spending

    @property
    def has_state(self) -> bool:
        """True if the state of at least one instance has a member."""
        return any(self._memory.state(instance) for instance in self._initial.instances or [""])

    def check(self, event: events.SolutionProposed) -> CheckedSolution:
        """Check a Solution without running it; see `SolutionReader.check`.

        For a plan, the errors include those in its context, and in an output that no call in the
        plan changes.
        """
        checked = self._reader.check(event)
        if self.mode != "plan":
            return checked

        faults = self.opening_faults()
        if not checked.errors and checked.proposal is not None and self.settings.foresight:
            faults += self._output_schema.foreseen(checked.proposal.graph)

        errors = [error_message("structural", fault) for fault in faults]
        return replace(checked, errors=[*errors, *checked.errors])

    def opening_faults(self) -> list[str]:
        """Return one sentence for each initial state or input that violates its schema. This is
        checked before anything runs.
        """
        if self.settings.foresight:
            return opening_faults(self.messages, self._initial)
        return []

    def check_count(self, calls: int) -> list[JSONObject]:
        """Return a list with one error if the run is not allowed to list this many more calls, and
        an empty list otherwise.
        """
        return self._reader.check_count(calls)

    # -- events ------------------------------------------------------------------------------------

    def receive(self, event: Event) -> None:
        """Process one event.

        Raises:
            JournalError: the event does not fit the state of the run.
            MessageError: `RunStarted` has a malformed context message.
        """
        if self.ended:
            raise JournalError(f"the run has ended and cannot accept {event.name}")

        self._handlers[type(event)](self, event)
        self._advance()

    def _note_decision(self, call: int | None, decision: str, by: Decider) -> None:
        if call is None:
            subject = "the plan"
        else:
            subject = f"call {call} ({self.history[call].call.name})"
        self.decisions.append((subject, decision, by))

    def _expect(self, *phases: Phase) -> None:
        if self.phase not in phases:
            raise JournalError(f"the run is {self.phase}, not {' or '.join(phases)}")

    def _solving(self) -> Tick:
        self._expect("solving")
        if self._tick is None:
            raise JournalError("no Solution is running")
        return self._tick

    def _streaming(self) -> Tick:
        """The tick for an answer that is still streaming, created for the answer's first piece."""
        if self.phase == "asking":
            self._begin(Proposal(self._reader.graph()))
        tick = self._solving()
        if tick.graph.closed:
            raise JournalError("the answer has already ended")
        return tick

    def _start(self, event: events.RunStarted) -> None:
        self._expect("new")
        self.mode = event.mode
        self.mind_name = event.mind
        self.traceparent = event.traceparent
        self._by_turns = event.mind in (None, TURNS)
        self.settings = Settings.from_json(event.settings)
        self.offer = ToolOffer(
            self._compiled or Catalogue.from_json(event.tools, event.latent), event.output_schema
        )
        self.messages = read_context(event.context)
        self._check_output_against(event.output_schema)
        self._initial = initial_documents(self.messages)
        self._memory = Memory(self._initial.documents)
        self._reader = SolutionReader(
            self.catalogue, self.settings, self._initial, self._memory, self._spending
        )
        self.phase = "asking"
        self.step = 0
        # The author of a plan has already answered, so the next event is the Solution.
        self._mind_due = event.mode == "solve"

    def _change_rules(self, event: events.ConfigurationChanged) -> None:
        if self.phase == "new":
            raise JournalError("the run has not begun")

        approval = cast("ApprovalSetting", event.approval)
        self.settings = replace(
            self.settings, approval=approval, rules=max(event.rules, self.settings.rules)
        )
        self._reader.follow(self.settings)
        if self._tick is not None:
            self._tick.judge_again(self.settings)

    def _request(self, event: events.RequestMade) -> None:
        if event.step != self.step or not self._mind_due:
            raise JournalError(f"Request {event.step} was sent, but Request {self.step} was due")

        self._mind_due = False
        self._members = event.members
        self.requests += 1
        self._estimate_unreported()
        self._asked_bytes = event.bytes
        self._spending.last = None
        if self.offer.change(event.offered):
            self._reader.offer(self.offer.current)
            self._check_output_against(self.offer.output_schema)

    def _estimate_unreported(self) -> None:
        """Count the minimum usage if the mind did not report its usage for the last Request. A
        client that answers turn by turn pays for its own model.
        """
        if self._asked_bytes is not None and self._spending.last is None and not self._by_turns:
            self._spending.estimated += least_tokens_of(self._asked_bytes)

    def _check_output_against(self, schema: JSONObject | None) -> None:
        self._output_schema = OutputSchema(
            schema, mode=self.mode, by_instance=self.settings.output_by_instance
        )

    def _begin(self, proposal: Proposal) -> None:
        self._memory.begin()
        proposal.graph.base = self._memory.base
        schemas = self._initial.schemas
        self._tick = Tick(
            proposal.graph, self._memory, self.settings, schemas, self.grants, proposal.pattern
        )
        self._answer(proposal)
        self.phase = "solving"

    def _answer(self, proposal: Proposal) -> None:
        """Mark the Request as answered, so that the reports are not repeated in the next one."""
        self.proposal = proposal
        self.solution = proposal.solution
        self._first = len(self.history)
        self.feedback = Feedback()
        self._added = []

    def _take_up(self, event: events.SolutionProposed) -> None:
        self._expect("asking")
        if self._mind_due:
            raise JournalError("a Solution came before its Request")

        proposal = self._reader.take(event)
        if self.mode == "plan" or event.pattern is not None:
            # Run no call unless all calls are well formed, because the author of a plan answers
            # only once and a group runs either completely or not at all.
            proposal.expect_well_formed()

        if not self.settings.lazy:
            self._accept(proposal)
            return

        self.phase = "planning"
        self._planning = Planning(self._reader, self.step, proposal)
        self._settle_plan(self._planning.settled())

    def _accept(self, proposal: Proposal) -> Tick:
        """Run a Solution that arrived in one piece."""
        self._begin(proposal)
        tick = self._solving()
        tick.corrections.extend(self._judge_members())
        tick.take_up()
        self._note(tick.progress.values())
        return tick

    def _plan(self, event: PlanEvent) -> None:
        """Handle the Solution of a lazy run as a plan. No part of it runs until a person accepts
        it.
        """
        if self.phase == "asking":
            self.phase = "planning"
            self._planning = Planning(self._reader, self.step)

        self._expect("planning")
        self._settle_plan(self._planning.take(event) if self._planning is not None else None)

    def _settle_plan(self, result: PlanResult | None) -> None:
        if result is None:
            return

        self._planning = None
        if result.runs is not None:
            self._accept(result.runs).corrections.extend(result.corrections)
            return

        self._answer(result.plan)
        self.errors.extend(result.errors)
        self.feedback.corrections.extend([*self._judge_members(), *result.corrections])
        denied = Finish("cancelled", result.reason) if self.mode == "plan" else None
        end = denied or self._end_after(has_calls=bool(self.solution.calls), has_output=False)
        self._go_on(end)

    # -- the parts of a Solution, and its calls

    def _piece(self, event: events.CallProposed | events.OutputProposed) -> None:
        """Process the next piece of a streaming answer."""
        if self.settings.lazy:
            self._plan(event)
        elif isinstance(event, events.CallProposed):
            self._propose(event)
        else:
            self._streaming().graph.set_output(event.output)
            self.solution.output = event.output

    def _closed(self, event: events.SolutionClosed) -> None:
        if self.settings.lazy:
            self._plan(event)
        else:
            self._close(event)

    def _rejected(self, event: events.SolutionRejected) -> None:
        self._expect("asking")

    def _printed(self, event: events.Printed) -> None:
        self._solving()
        self.solution.printed.append(event.text)

    def _started(self, event: events.CallStarted) -> None:
        self._solving().started(event.call, event.item)

    def _finished(self, event: events.CallFinished) -> None:
        self._solving().finished(event)
        self._spending.add_room(event.spent)

    def _regrouped(self, event: events.GroupCommitted | events.SolutionCancelled) -> None:
        self._solving().regroup(event)

    def _note_usage(self, event: events.UsageNoted) -> None:
        self._spending.add(event.usage)

    # -- questions to people, and their decisions

    def _ask_approval(self, event: events.ApprovalAsked) -> None:
        self._solving().asked(event.call)

    def _decide_call(self, event: events.CallDecided) -> None:
        self._solving().decided(event)
        self._note_decision(event.call, decision_text(event), event.by)

    def _decide_plan(self, event: events.PlanDecided) -> None:
        self._plan(event)
        self._note_decision(None, event.decision, event.by)

    def _ask_in_call(self, event: events.OutcomeAsked | events.QuestionAsked) -> None:
        self._solving().ask_in_call(event)

    def _decide_outcome(self, event: events.OutcomeDecided) -> None:
        self._solving().outcome_decided(event)
        self._note_decision(event.call, event.decision, event.by)

    def _answer_question(self, event: events.QuestionAnswered) -> None:
        self._solving().question_answered(event)
        self._note_decision(event.call, event.action, event.by)

    def _refuse_question(self, event: events.QuestionRefused) -> None:
        self._solving().question_refused(event)

    def _propose(self, event: events.CallProposed) -> None:
        tick = self._streaming()
        tick.propose(event.call, event.place, unreached=event.unreached)
        self.solution.calls.append(event.call)
        self._note([tick.progress[len(self.history)]])

    def _add(self, event: events.MessageAdded) -> None:
        message = read_message(event.message)
        tick = self._solving()
        if event.call not in tick.progress:
            raise JournalError(f"call {event.call} added a message after its Solution had ended")

        if message.type == "data":
            # Like everything that a call writes, the message belongs to the call's instance.
            message = replace(
                message, instance=message.instance or tick.progress[event.call].call.instance
            )
            tick.learn(event.call, message)

        self._added.append((event.call, message))

    def _add_data(self, message: Message) -> None:
        """Include data from a call in all later Requests, merged with earlier data of the same
        kind.
        """
        key = message.instance, message.kind
        earlier = self._data.get(key)
        if earlier is None:
            self._data[key] = message
        else:
            self._data[key] = merge_messages([earlier, message])[0]

    def _note(self, listed: Collection[Progress]) -> None:
        self.history.extend(listed)
        self._reader.note(listed)

    def _begin_program(self, event: events.ProgramProposed) -> None:
        self._expect("asking")
        if self._mind_due:
            raise JournalError("a program came before its Request")
        self._begin(
            Proposal(self._reader.graph(), CurrentSolution(extra=event.extra or {}, program=event))
        )
        self._input_doubts.assumed += [
            assumption for assumption in event.assumed or [] if isinstance(assumption, dict)
        ]
        tick = self._solving()
        tick.program = True
        tick.corrections.extend(self._judge_members())

    def _close(self, event: events.SolutionClosed) -> None:
        tick = self._streaming()
        if self.solution.program is not None:
            tick.unheard = frozenset(
                index for index in event.unheard or () if isinstance(index, int)
            )
            if event.error is not None:
                self.errors.append({"call": None, "error": event.error})

            self.solution.failed = event.error is not None
            tick.close()
            return

        if event.broken is not None:
            # The part that is in the journal becomes the Solution, without an output.
            tick.graph.drop_output()
            self.errors.append(error_message("structural", f"{BROKE_OFF}{event.broken}"))
            self.solution.output = None
            self.solution.broken = event.broken

        self.solution.extra = event.extra or {}
        tick.corrections.extend(self._judge_members())
        tick.close()

    def _judge_members(self) -> list[JSONObject]:
        """Return a list with one correction about the Solution's members that are not in its
        schema, or an empty list if there are none.
        """
        self._member_errors = []
        if self.mode != "solve" or self._members is None:
            return []

        members = {
            name: schema for name, schema in self._members.items() if isinstance(schema, dict)
        }
        required: list[str] = []
        if self.settings.thought_process and THOUGHT_PROCESS not in members:
            members[THOUGHT_PROCESS] = THOUGHTS
            required.append(THOUGHT_PROCESS)

        if self.settings.groups and self.proposal is not None and self.proposal.pattern is not None:
            members[GROUP] = GROUPS

        # Any member might be missing from an answer that was cut off, so require none in that case.
        # Leave out the program, because a program that cannot run already has an error.
        extra = {name: value for name, value in self.solution.extra.items() if name != "program"}
        faults = faults_of(members, required if self.solution.broken is None else (), extra)
        self._member_errors = faults.errors
        correction = faults.correction()
        return [] if correction is None else [correction]

    def _advance(self) -> None:
        if (
            self.phase == "solving"
            and self._tick is not None
            and self._tick.ended
            and not self._tick.due
        ):
            self._end_tick(self._tick)

    def _end_tick(self, tick: Tick) -> None:
        counted = [
            (call, message) for call, message in self._added if tick.group.keeps(self.history[call])
        ]
        errors = [*tick.errors(), *self.errors]
        messages = [message for _, message in counted if message.type != "data"]
        self.feedback = Feedback(errors, tick.corrections, messages)
        for _, message in counted:
            if message.type == "data":
                self._add_data(message)

        if tick.group.pattern in ("any", "race"):
            for call, message in counted:
                if message.type == "data":
                    self._memory.learn(call, message.instance, message.kind, message.value)

        output = self.solution.output
        if output is not None:
            value, faults, self.has_output, self._output_doubts = self._output_schema.settle(
                tick.graph, tick.judge
            )
            errors.extend(error_message("output", fault) for fault in faults)
            self.output = value if self.has_output else None

        self._go_on(
            self._end_after(has_calls=bool(self.solution.calls), has_output=output is not None)
        )

    def _end_after(self, *, has_calls: bool, has_output: bool) -> Finish | None:
        """Return the effect that ends the run if the last Solution leads to its end, and None
        otherwise.

        The run ends if it has an output, or if the Solution's author answers only once. It also
        ends after two consecutive empty Solutions, which have no calls, output or printed text.
        """
        if self.has_output:
            return Finish("done")
        if self.mode == "plan":
            if self.solution.failed:
                return Finish("failed", "the program ended with an error")
            if has_output:
                return Finish("failed", NO_OUTPUT)
            return Finish("done")

        if has_calls or has_output or self.solution.failed or self.solution.printed:
            self._idle = 0
            return None

        broken = self.solution.broken
        if broken == CUT_OFF:
            return None
        self._idle += 1
        # An answer that was cut off before its first call already has an error, so do not add
        # another.
        if not self.errors:
            self.errors.append(
                error_message(
                    "output", "the solution has neither calls nor an output; write one of them"
                )
            )

        if self._idle > 1:
            reason = "two solutions in a row contained neither calls nor an output"
            return Finish("stalled", reason if broken is None else f"{broken} ({reason})")

        return None

    def _go_on(self, end: Finish | None) -> None:
        """Make the next Request due, unless the run ends here."""
        over = self._spending.over(self.settings, self.step + 1) if end is None else None
        end = end if over is None else Finish("limit", over)
        if end is not None:
            self.errors.extend(state_errors(self._initial, self._memory))
            self.phase = "ending"
            self._finish = end
            return

        self.errors.extend(error_message("structural", text) for text in self._member_errors)
        self._memory.tell_errors(self.errors)
        self.phase = "asking"
        self.step += 1
        self._mind_due = True

    def _end(self, event: events.RunEnded) -> None:
        if self.phase == "new":
            raise JournalError("the run has not begun")

        if self.phase == "solving" and self._tick is not None:
            self.feedback.errors = [*self._tick.errors(), *self._tick.cut_off(), *self.errors]

        self.phase = "ended"
        self.status = event.status
        self.reason = event.reason
        self._spending.add_room(event.spent)
        self._tick = self._planning = self._finish = None
        self._mind_due = False

    _handlers: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = {
        events.RunStarted: _start,
        events.ConfigurationChanged: _change_rules,
        events.RequestMade: _request,
        events.SolutionProposed: _take_up,
        events.ProgramProposed: _begin_program,
        events.CallProposed: _piece,
        events.OutputProposed: _piece,
        events.SolutionClosed: _closed,
        events.SolutionRejected: _rejected,
        events.SolutionCancelled: _regrouped,
        events.GroupCommitted: _regrouped,
        events.CallStarted: _started,
        events.CallFinished: _finished,
        events.MessageAdded: _add,
        events.Printed: _printed,
        events.UsageNoted: _note_usage,
        events.ApprovalAsked: _ask_approval,
        events.CallDecided: _decide_call,
        events.PlanAsked: _plan,
        events.PlanDecided: _decide_plan,
        events.OutcomeAsked: _ask_in_call,
        events.OutcomeDecided: _decide_outcome,
        events.QuestionAsked: _ask_in_call,
        events.QuestionAnswered: _answer_question,
        events.QuestionRefused: _refuse_question,
        events.RunEnded: _end,
    }
    """Maps each kind of event to the method that processes it."""


# -- calls that were interrupted -------------------------------------------------------------------


def resume_events(machine: Machine, now: float) -> tuple[list[Execute], list[Event]]:
    """Return what is needed to continue a run after folding its journal: the executions to repeat,
    and the events to journal.

    An execution in flight runs again if its tool is repeatable, unless later rules would not let
    the call run without a question. It also runs again if a room answers it, because the room
    continues from its own journal, or if the Solution contains its result. Its `CallStarted` is
    already in the journal, so the caller does not journal it again.

    The outcome of every other execution in flight is unknown. In the run of a plan, and while a
    program is running, a person is asked about it, unless the call is nested too deeply to be
    shown. Otherwise the call fails, and the next Request says that its outcome is unknown.
    """
    again: list[Execute] = []
    # Withdraw these questions first, because the connections that were waiting for the answers
    # ended with the process.
    died = "the process in which the call waited for it has died"
    journaled: list[Event] = [
        events.QuestionAnswered(
            question.call, question.digest, "cancel", BRIDGE, question.item, reason=died
        )
        for question in parked(machine.history)
    ]
    for progress, number in _cut_off(machine):
        if _repeatable(progress):
            again.append(Execute.of(progress, number))
        else:
            journaled.append(_in_doubt(machine, progress, number, None, now))

    if machine.is_streaming:
        # The part of the answer that had arrived becomes the Solution, and the mind is not asked
        # for the rest.
        journaled.append(events.SolutionClosed(CUT_OFF))

    return again, journaled


def fork_events(machine: Machine) -> list[Event]:
    """Return a fork's events for the calls that had not ended in its parent. The time limits for
    answers restart when the fork begins.
    """
    return [
        _in_doubt(machine, progress, number, FORKED, None)
        for progress, number in _cut_off(machine)
        if not _repeatable(progress)
    ]


def finish_events(machine: Machine, finished: events.CallFinished, now: float) -> list[Event]:
    """Return the events for an execution that has ended in this process.

    If the error of the execution is `unknown`, the event is a question to a person.
    """
    error = finished.error
    if error is None or error.get("kind") != "unknown":
        return [finished]

    progress = machine.history[finished.call]
    journaled: list[Event] = []
    question = progress.items[finished.item or 0].inquiry
    if question is not None:
        reason = "the call that asked has ended"
        journaled.append(
            events.QuestionAnswered(
                question.call, question.digest, "cancel", MODULE, question.item, reason=reason
            )
        )

    return [*journaled, _in_doubt(machine, progress, finished.item, str(error.get("message")), now)]


def _cut_off(machine: Machine) -> list[tuple[Progress, int | None]]:
    """Return the executions in flight that have no `Cancel` due."""
    cancelled = {effect.key for effect in machine.due() if isinstance(effect, Cancel)}
    return [
        (progress, number)
        for progress, number in in_flight(machine.history)
        if progress.tool is not None and (progress.call.index, number) not in cancelled
    ]


def _repeatable(progress: Progress) -> bool:
    """Return whether a call can run again without asking anyone. A room continues from its own
    journal.
    """
    call = progress.call
    tool = progress.tool
    if call.has_written_result or call.room is not None:
        return True
    return tool is not None and progress.hints.repeatable and not progress.forbidden


def _in_doubt(
    machine: Machine, progress: Progress, number: int | None, why: str | None, now: float | None
) -> Event:
    """Return a question about the outcome if someone can be asked, and the error `unknown`
    otherwise.
    """
    index = progress.call.index
    nobody = machine.mode != "plan" and machine.program is None
    asked = None if nobody else outcome_question(progress, number)
    if asked is not None:
        return events.OutcomeAsked(index, asked.approval, asked.digest, number, now, why)
    return events.CallFinished(
        index, number, error={"kind": "unknown", "message": unknown(why, progress.hints)}
    )
