"""Machine: the agent loop as a pure state machine.

Theory of operation
-------------------

A run is a sequence of events. `Machine.receive` takes one event and changes the state; `Machine.due` lists the effects
that somebody outside must perform now: ask the mind, ask a person, execute a call, end the run. The machine has no
clock, no tasks, no network and no database. `Runner` performs each effect and acknowledges it with an event:

    effect         acknowledged by       and later answered by
    AskMind        RequestMade           SolutionProposed, or CallProposed... OutputProposed? SolutionClosed
    AskPlan        PlanAsked             PlanDecided
    AskApproval    ApprovalAsked         CallDecided
    Execute        CallStarted           CallFinished
    Cancel         CallFinished
    Commit         GroupCommitted
    Finish         RunEnded

The phases, and what leads from one to the next:

    phase      meaning                                          next
    new        nothing has happened                             RunStarted: asking
    asking     a Solution is awaited                            its first piece: solving, or planning in a lazy run
    planning   a lazy run's plan is being written, or waits     accepted: solving; empty, malformed or denied: asking,
               for a decision                                   or ending
    solving    the calls of a Solution run, while its answer    the answer has ended and every call has settled:
               may still be streaming                           asking, or ending
    ending     Finish is due                                    RunEnded: ended
    ended      nothing more can happen

`RunEnded` leads from every phase but `new` to `ended`: a person cancels the run, or a limit of time ends it.

Invariants:

- Folding the same events always leads to the same machine and the same effects. Resuming a run after a crash is folding
  its journal; effects that nobody acknowledged are still due.
- An event that does not fit raises `JournalError` and is not taken; it must not be journaled.
- An effect stays due until its event arrives, and no call is executed twice unless a person says so.
- Between two Requests every listed call has settled.

The parts: `SolutionReader` reads and checks Solutions, `Planning` holds the plan of a lazy run, `Tick` moves the calls
of the current Solution, `Memory` holds what references read, `Spending` adds up usage. Outside this folder nobody sees
them.

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

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ideabridge.bridge.context.messages import Message, read_context, read_message
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.catalogue import Catalogue, offered_by
from ideabridge.bridge.loop.effect import AskMind, Effect, ExecutionKey, Finish
from ideabridge.bridge.loop.event import Decider, Event, JournalError, Pattern
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.memory import InitialDocuments, Memory, initial_documents
from ideabridge.bridge.loop.output import OutputSchema, error_message, state_errors
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.settings import Settings, Spending
from ideabridge.bridge.loop.solution import PlanEvent, Planning, PlanResult, Proposal, SolutionReader
from ideabridge.bridge.loop.tick import Tick
from ideabridge.tools.encoding import JSON, JSONObject

# -- course ----------------------------------------------------------------------------------------------------------
#
# EndRules: whether a run goes on with another Request after a Solution, or ends.


@dataclass(frozen=True, slots=True)
class SolutionOutcome:
    """What a Solution that has run held: calls, an output; and whether the output could be given."""

    calls: bool = False
    output: bool = False
    given: bool = False


BROKE_OFF: Final = "the answer broke off: "

CUT_OFF: Final = "the process ended while the answer streamed in"
"""Why an answer broke off that a crash cut off, which is not the fault of the mind."""


def _broken(error: JSONObject) -> str | None:
    """Why an answer broke off, where that is what the error says."""
    said = error.get("error")
    message = said.get("message") if isinstance(said, dict) else None
    return message.removeprefix(BROKE_OFF) if isinstance(message, str) and message.startswith(BROKE_OFF) else None


class EndRules:
    """Counts the Solutions that did nothing, and knows the limits."""

    def __init__(self) -> None:
        self._idle = 0

    def after(
        self, mode: Literal["plan", "solve"], outcome: SolutionOutcome, errors: list[JSONObject]
    ) -> Finish | None:
        """The end, where a Solution leads to it: it gave the output, its author answers once only, or it is the second
        in a row that did nothing.

        Args:
            mode: of the run.
            outcome: of the Solution.
            errors: those of the Solution; one is added where it did nothing.
        """
        if outcome.given:
            return Finish("done")
        if mode == "plan":
            return Finish("failed", "the output could not be made") if outcome.output else Finish("done")
        if outcome.calls or outcome.output:
            self._idle = 0
            return None
        broken = next((told for one in errors if (told := _broken(one)) is not None), None)
        if broken == CUT_OFF:
            return None
        self._idle += 1
        # An answer that broke off before its first call has been told of already.
        if not errors:
            errors.append(error_message("output", "the solution holds neither calls nor an output; give either"))
        if self._idle > 1:
            reason = "two solutions in a row held neither calls nor an output"
            return Finish("stalled", reason if broken is None else f"{broken} ({reason})")
        return None

    @staticmethod
    def limit(step: int, settings: Settings, spending: Spending) -> Finish | None:
        """The end, where a limit leaves no room for another Request after the one of that step."""
        over = spending.over(settings, step + 1)
        return None if over is None else Finish("limit", over)


# -- machine ---------------------------------------------------------------------------------------------------------

Phase = Literal["new", "asking", "planning", "solving", "ending", "ended"]


@dataclass(slots=True)
class Solution:
    """An answer to a Request, as it was given.

    Attributes:
        calls: its calls, as they were written.
        output: its output; None where it has none, and where the answer broke off.
        extra: what else the answer held, by name.
        places: of the calls in the plan, where instances share them; see `CallProposed`.
    """

    calls: list[JSON] = field(default_factory=list[JSON])
    output: JSON = None
    extra: JSONObject = field(default_factory=dict[str, JSON])
    places: list[JSON] | None = None

    def to_json(self) -> JSONObject:
        """As an idea stores it: `{..., "calls", "output"}`."""
        return {**self.extra, "calls": self.calls, "output": self.output}


class Machine:
    """One run of the loop. Only `receive` changes it; everything else answers a question.

    Args:
        catalogue: the tools of the run where the caller has compiled them already; else they are read from
            `RunStarted`.

    Attributes:
        mode: `solve`: a mind answers Requests until there is an output; `plan`: one Solution, given at the start.
        phase: see the table at the top of this module.
        step: number of the current Request, from 0.
        requests: how many Requests were made.
        settings: of the run.
        messages: the context the run began with.
        added: messages that activities added, for the Requests that follow.
        history: every call of the run, in listing order.
        errors: errors of the last Solution: `{"call", "place", "error"}`.
        corrections: what people changed or denied since the last Request.
        decisions: what was decided on, how, and by whom.
        solution: the Solution taken up last.
        output: the output; `has_output` says whether there is one, for it may be null.
        catalogue: every tool the run has had; `initial_catalogue`: those it began with; `offered`: those of the
            current Request. All three are equal unless handlers of messages change the tools.
        output_schema: of the current Request; `initial_output_schema`: the one the run began with.
        has_mind: whether a mind answers by itself; else Solutions are handed in.
        status, reason: how the run ended, and why.
    """

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self.phase: Phase = "new"
        self.mode: Literal["plan", "solve"] = "solve"
        self.step: int = -1
        self.requests = 0
        self.settings = Settings()
        self._output = OutputSchema(None, mode="plan", by_instance=False)
        self._given = catalogue
        self.catalogue: Catalogue = catalogue or Catalogue(())
        self.initial_catalogue: Catalogue = self.catalogue
        self.offered: Catalogue = self.catalogue
        self._changed: JSONObject | None = None
        self.messages: list[Message] = []
        self.added: list[Message] = []
        self.history: list[Progress] = []
        self.errors: list[JSONObject] = []
        self.corrections: list[JSONObject] = []
        self.decisions: list[tuple[str, str, Decider]] = []
        self.output: JSON = None
        self.has_output = False
        self.output_schema: JSONObject | None = None
        self.initial_output_schema: JSONObject | None = None
        self._opening = InitialDocuments()
        self._memory = Memory({})
        self._spending = Spending()
        self.has_mind = False
        self.status: str | None = None
        self.reason: str | None = None
        self.solution = Solution()
        self._planning: Planning | None = None
        self._tick: Tick | None = None
        self._finish: Finish | None = None
        self._mind_due = False
        self._told: list[tuple[int, Message]] = []
        self._course = EndRules()
        self._intake = SolutionReader(self.catalogue, self.settings, self._opening, self._memory, self._spending)

    # -- questions ---------------------------------------------------------------------------------------------

    def due(self) -> list[Effect]:
        """The effects nobody has acknowledged yet, oldest first."""
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
        """Whether a Request is out and nothing of its answer has come."""
        return self.phase == "asking" and self.mode == "solve" and not self._mind_due

    @property
    def awaits_solution(self) -> bool:
        """Whether a Request is out and somebody must hand its Solution in."""
        return self.awaits_mind and not self.has_mind

    @property
    def is_streaming(self) -> bool:
        """Whether part of an answer is here and its end is not."""
        if self._planning is not None:
            return not self._planning.waits
        return self.phase == "solving" and self._tick is not None and not self._tick.graph.closed

    def is_current(self, call: int) -> bool:
        """Whether a call belongs to the Solution that runs now; else messages of it come too late."""
        return self.phase == "solving" and call >= len(self.history) - len(self.solution.calls)

    @property
    def calls_left(self) -> int:
        """How many more calls the run may list."""
        return self._intake.room - (self._planning.listed if self._planning is not None else 0)

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing moves until a person decides."""
        if self._planning is not None:
            return self._planning.waits
        return self.phase == "solving" and self._tick is not None and self._tick.waits_for_people

    @property
    def waiting_plan(self) -> Proposal | None:
        """The plan of a lazy run, once it is complete and until somebody has decided on it."""
        return self._planning.plan if self._planning is not None and self._planning.waits else None

    @property
    def plan_question(self) -> Question | None:
        """The question whether the waiting plan is accepted; None where no plan waits."""
        return self._planning.question if self._planning is not None and self._planning.waits else None

    @property
    def open_rooms(self) -> Collection[ExecutionKey]:
        """The executions that have a room, and have not ended."""
        return self._tick.rooms.keys() if self._tick is not None else ()

    @property
    def at_rest(self) -> bool:
        """Whether nothing moves but in rooms."""
        return self.phase == "solving" and self._tick is not None and self._tick.at_rest

    @property
    def state(self) -> JSONObject:
        """The state: of the run, or a map by instance where there are instances."""
        return {one: self._memory.state(one) for one in self._opening.instances} or self._memory.state()

    def state_of(self, instance: str = "") -> JSONObject:
        """The state of one instance; "" in a run without instances."""
        return self._memory.state(instance)

    @property
    def documents(self) -> JSONObject:
        """What references read, by instance: `{"state", "results", "input", "data"}`. To be read only."""
        return self._memory.documents

    @property
    def instances(self) -> list[str]:
        """The instances, in the order they come up in the context; empty where the context names none."""
        return self._opening.instances

    @property
    def usage(self) -> Spending:
        """The tokens and the cost of the answers so far, and what rooms used that have ended. To be read only."""
        return self._spending

    @property
    def has_state(self) -> bool:
        """Whether the state of any instance holds anything."""
        return any(self._memory.state(one) for one in self._opening.instances or [""])

    def check(
        self, calls: list[JSON], output: JSON, places: list[JSON] | None = None, pattern: Pattern | None = None
    ) -> list[JSONObject]:
        """The faults of a whole Solution, if it came next. Nothing of it is taken up.

        Args:
            calls: its calls.
            output: its output.
            places: of its calls in the plan; see `CallProposed`.
            pattern: what the calls are to each other.

        Returns:
            `{"call", "place", "error"}` of each fault; empty: it is well formed.
        """
        return self._intake.check(calls, output, places, pattern)

    def check_count(self, calls: int) -> list[JSONObject]:
        """The error if the run may not list that many more calls, as `check` reports it; empty: it may."""
        return self._intake.check_count(calls)

    @property
    def checked_graph(self) -> Graph | None:
        """The graph of the Solution that `check` saw last; None where it lists too many calls or references."""
        return self._intake.checked.graph if self._intake.checked is not None else None

    # -- events ------------------------------------------------------------------------------------------------

    def receive(self, event: Event) -> None:
        """Take one event.

        Raises:
            JournalError: it does not fit what the run is doing.
            MessageError: a context message of `RunStarted` is none.
        """
        if self.phase == "ended":
            raise JournalError(f"the run has ended; it cannot take {event.name}")
        match event:
            case events.CallFinished():
                self._solving().finished(event)
                self._spending.add_room(event.spent)
            case events.CallStarted():
                self._solving().started(event.call, event.item)
            case events.CallProposed() | events.OutputProposed() | events.SolutionClosed() if self.settings.lazy:
                self._plan(event)
            case events.CallProposed():
                self._propose(event)
            case events.SolutionProposed():
                self._take_up(event)
            case events.OutputProposed():
                self._streaming().graph.set_output(event.output)
                self.solution.output = event.output
            case events.SolutionClosed():
                self._close(event)
            case events.GroupCommitted() | events.SolutionCancelled():
                self._solving().regroup(event)
            case events.SolutionRejected():
                self._expect("asking")
            case events.RequestMade():
                self._request(event)
            case events.ApprovalAsked():
                self._solving().asked(event.call)
            case events.CallDecided():
                self._solving().decided(event)
                self._note_decision(event.call, event.decision, event.by)
            case events.PlanAsked() | events.PlanDecided():
                self._plan(event)
                if isinstance(event, events.PlanDecided):
                    self._note_decision(None, event.decision, event.by)
            case events.OutcomeAsked() | events.OutcomeDecided():
                self._solving().doubted(event)
                if isinstance(event, events.OutcomeDecided):
                    self._note_decision(event.call, event.decision, event.by)
            case events.QuestionAsked() | events.QuestionAnswered() | events.QuestionRefused():
                self._solving().questioned(event)
                if isinstance(event, events.QuestionAnswered):
                    self._note_decision(event.call, event.action, event.by)
            case events.UsageNoted():
                self._spending.add(event.usage)
            case events.MessageAdded():
                self._add(event)
            case events.RunStarted():
                self._start(event)
            case events.RunEnded():
                self._end(event)
        self._advance()

    def _note_decision(self, call: int | None, decision: str, by: Decider) -> None:
        what = "the plan" if call is None else f"call {call} ({self.history[call].call.name})"
        self.decisions.append((what, decision, by))

    def _expect(self, *phases: Phase) -> None:
        if self.phase not in phases:
            raise JournalError(f"the run is {self.phase}, not {' or '.join(phases)}")

    def _solving(self) -> Tick:
        self._expect("solving")
        if self._tick is None:
            raise JournalError("no Solution is at hand")
        return self._tick

    def _streaming(self) -> Tick:
        """The tick of an answer that still streams; its first piece begins it."""
        if self.phase == "asking":
            self._begin(self._intake.graph())
        tick = self._solving()
        if tick.graph.closed:
            raise JournalError("the answer has ended already")
        return tick

    def _start(self, event: events.RunStarted) -> None:
        self._expect("new")
        self.mode = event.mode
        self.settings = Settings.from_json(event.settings)
        if self._given is None:
            self.catalogue = self.initial_catalogue = self.offered = Catalogue.from_json(event.tools, event.latent)
        self.messages = read_context(event.context)
        self.output_schema = self.initial_output_schema = event.output_schema
        self._output = OutputSchema(event.output_schema, mode=self.mode, by_instance=self.settings.output_by_instance)
        self._opening = initial_documents(self.messages)
        self._memory = Memory(self._opening.documents)
        self._intake = SolutionReader(self.catalogue, self.settings, self._opening, self._memory, self._spending)
        self.phase = "asking"
        self.step = 0
        # A plan's author has answered already: its Solution follows as the next event.
        self._mind_due = event.mode == "solve"

    def _request(self, event: events.RequestMade) -> None:
        if event.step != self.step or not self._mind_due:
            raise JournalError(f"Request {event.step} was made, {self.step} was due")
        self._mind_due = False
        self.requests += 1
        self._spending.last = None
        self._offer(event.offered)

    def _offer(self, changed: JSONObject | None) -> None:
        """What handlers made of the tools and the output schema holds for the Request at hand alone."""
        if changed == self._changed:
            return
        self._changed, self.offered = changed, offered_by(self.initial_catalogue, changed)
        self._intake.offer(self.offered)
        known = {tool.key for tool in self.catalogue.tools}
        new = [tool for tool in self.offered.tools if tool.key not in known]
        self.catalogue = self.catalogue.joined(new, self.offered.latent) if new else self.catalogue
        schema = (changed or {}).get("output_schema", self.initial_output_schema)
        if schema != self.output_schema:
            self.output_schema = schema if isinstance(schema, dict) else None
            by_instance = self.settings.output_by_instance
            self._output = OutputSchema(self.output_schema, mode=self.mode, by_instance=by_instance)

    def _begin(self, graph: Graph, pattern: Pattern | None = None) -> None:
        self._memory.begin()
        graph.base = self._memory.base
        self._tick = Tick(graph, self._memory, self.settings, self._opening.schemas, pattern)
        self.solution = Solution()
        self._forget_told()
        self.phase = "solving"

    def _forget_told(self) -> None:
        """What the Request at hand told has been answered."""
        self.errors = []
        self.corrections = []
        self.added, self._told = [], []

    def _take_up(self, event: events.SolutionProposed) -> None:
        self._expect("asking")
        if self._mind_due:
            raise JournalError("a Solution came before its Request")
        proposal = self._intake.take(event)
        if self.mode == "plan" or event.pattern is not None:
            # Its author answers once, or wants its calls as one thing: nothing runs unless all of it is well formed.
            proposal.expect_well_formed()
        if not self.settings.lazy:
            self._accept(proposal)
            return
        self.phase, self._planning = "planning", Planning(self._intake, self.step, proposal)
        self._settle_plan(self._planning.settled())

    def _accept(self, proposal: Proposal) -> Tick:
        """Run a Solution that is there whole."""
        self._begin(proposal.graph, proposal.pattern)
        self.solution = Solution(proposal.calls, proposal.output, proposal.extra, proposal.places)
        tick = self._solving()
        tick.take_up()
        self._note(tick.progress.values())
        return tick

    def _plan(self, event: PlanEvent) -> None:
        """What a mind writes in a lazy run is a plan: nothing of it runs before it is accepted."""
        if self.phase == "asking":
            self.phase, self._planning = "planning", Planning(self._intake, self.step)
        self._expect("planning")
        self._settle_plan(self._planning.take(event) if self._planning is not None else None)

    def _settle_plan(self, verdict: PlanResult | None) -> None:
        if verdict is None:
            return
        self._planning = None
        if verdict.runs is not None:
            self._accept(verdict.runs).corrections.extend(verdict.corrections)
            return
        self.solution = Solution(verdict.plan.calls, verdict.plan.output, verdict.plan.extra)
        self._forget_told()
        self.errors.extend(verdict.errors)
        self.corrections.extend(verdict.corrections)
        outcome = SolutionOutcome(calls=bool(verdict.plan.calls))
        denied = Finish("cancelled", verdict.reason) if self.mode == "plan" else None
        self._go_on(denied or self._course.after(self.mode, outcome, self.errors))

    def _propose(self, event: events.CallProposed) -> None:
        tick = self._streaming()
        tick.propose(event.call, event.place)
        self.solution.calls.append(event.call)
        self._note([tick.progress[len(self.history)]])

    def _add(self, event: events.MessageAdded) -> None:
        message = read_message(event.message)
        tick = self._solving()
        if event.call not in tick.progress:
            raise JournalError(f"call {event.call} added a message after its Solution had ended")
        if message.type == "data":
            # Like everything a call writes, it is in the instance of the call.
            message = replace(message, instance=message.instance or tick.progress[event.call].call.instance)
            tick.learn(event.call, message)
        self._told.append((event.call, message))

    def _note(self, listed: Collection[Progress]) -> None:
        self.history.extend(listed)
        self._intake.note(listed)

    def _close(self, event: events.SolutionClosed) -> None:
        tick = self._streaming()
        if event.broken is not None:
            # The journaled prefix is the Solution, and its output is null.
            tick.graph.drop_output()
            self.errors.append(error_message("structural", f"{BROKE_OFF}{event.broken}"))
            self.solution.output = None
        self.solution.extra = event.extra or {}
        tick.close()

    def _advance(self) -> None:
        if self.phase == "solving" and self._tick is not None and self._tick.ended and not self._tick.due:
            self._end_tick(self._tick)

    def _end_tick(self, tick: Tick) -> None:
        self.errors = [*tick.errors(), *self.errors]
        self.corrections = tick.corrections
        kept = [(call, message) for call, message in self._told if tick.group.keeps(self.history[call])]
        self.added = [message for _, message in kept]
        if tick.group.pattern in ("any", "race"):
            for call, message in kept:
                if message.type == "data":
                    self._memory.learn(call, message.instance, message.kind, message.value)
        calls, output = self.solution.calls, self.solution.output
        if output is not None:
            value, faults, self.has_output = self._output.settle(tick.graph, tick.judge)
            self.errors.extend(error_message("output", fault) for fault in faults)
            self.output = value if self.has_output else None
        outcome = SolutionOutcome(bool(calls), output is not None, self.has_output)
        self._go_on(self._course.after(self.mode, outcome, self.errors))

    def _go_on(self, end: Finish | None) -> None:
        """The next Request, unless the run ends here."""
        end = end or self._course.limit(self.step, self.settings, self._spending)
        if end is not None:
            self.errors.extend(state_errors(self._opening, self._memory))
            self.phase, self._finish = "ending", end
            return
        self._memory.tell_errors(self.errors)
        self.phase = "asking"
        self.step += 1
        self._mind_due = True

    def _end(self, event: events.RunEnded) -> None:
        if self.phase == "new":
            raise JournalError("the run has not begun")
        if self.phase == "solving" and self._tick is not None:
            self.errors = [*self._tick.errors(), *self._tick.cut_off(), *self.errors]
        self.phase, self.status, self.reason = "ended", event.status, event.reason
        self._spending.add_room(event.spent)
        self._tick = self._planning = self._finish = None
        self._mind_due = False
