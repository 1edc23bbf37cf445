"""Determine from the journal alone when each call of a run was listed, asked about, started and
finished.

A page must open immediately, even for a run of 10,000 calls. Folding the journal of such a run
takes seconds, because the machine binds references and checks parameters. Building a trace takes
100 ms, because it only records times. A trace does not contain why a call never started, or the
values that its references resolved to. These come from the folded `RunHistory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from ideabridge.bridge.context.failure import CallFailure, failure_of, read_failure
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.loop.event import decider_text, denial_text
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.typed import read_as

BarStatus: TypeAlias = Literal[
    "waiting", "asking", "running", "done", "failed", "denied", "cancelled", "not run"
]
"""The status of a bar. `failed`: the call returned an error, even if it was caught, or the run
ended during the call. `denied`: a person or a rule refused the call. `cancelled`: another call in
its group made it unnecessary, or its Solution was cancelled. `not run`: the run ended before the
call started.
"""


@dataclass(frozen=True, slots=True)
class _ModuleTool:
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class _Start:
    """The event that starts a run, which names the servers' tools that the run can call."""

    tools: tuple[_ModuleTool, ...] = ()


@dataclass(frozen=True, slots=True)
class _Usage:
    """The usage of one answer from a mind."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleOfCall:
    """The standing rule that approved a call without a question.

    Attributes:
        at: the time when the rule was given, as ISO 8601.
        by: who gave it, in words.
    """

    at: str
    by: str


@dataclass(slots=True)
class CallBar:
    """The times of a call of a run, or of an answer from its mind.

    Times are in seconds since 1970, or None if something has not happened.

    Attributes:
        number: the number of the call in the run, or -1 for an answer from the mind.
        name: the tool of the call, or the name of the mind.
        call: the call as it was written.
        approvals: a pair (decider, seconds) for each decision needed before the call could run: who
            decided, in words, and how long after the question. The decision on the call's plan
            comes first.
        items: the number of executions that have started. It can be larger than 1 only with
            `_each`. An execution that a person repeats counts once.
        running: the executions that have started but not ended, each represented by its item. For a
            call without `_each`, the item is None.
        asking: the running executions that are waiting for an answer, either to their server's
            question or about their outcome.
        again: the executions that a person has asked to repeat, and that have not started again.
        event: the number of the event that listed the call.
        rule: the standing rule that approved the call without a question, or None if there is none.

    If the process of a run dies during a repeatable call, the next process starts the call again,
    and no event records the time of that start. The time between `started` and `finished` then
    includes the time when no process was running the call.
    """

    number: int
    name: str
    call: JSONObject
    status: BarStatus = "waiting"
    listed: float | None = None
    asked: float | None = None
    decided: float | None = None
    approvals: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    started: float | None = None
    finished: float | None = None
    items: int = 0
    running: set[int | None] = field(default_factory=set[int | None])
    asking: set[int | None] = field(default_factory=set[int | None])
    again: set[int | None] = field(default_factory=set[int | None])
    error: str = ""
    event: int = 0
    rule: RuleOfCall | None = None
    _outcome: Literal["waiting", "done"] | CallFailure = "waiting"

    @property
    def failure(self) -> CallFailure | None:
        """Why the call has no result, or None if it has one or has not ended."""
        return next((one for one in get_args(CallFailure) if one == self.status), None)

    def start(self, item: int | None, at: float | None) -> None:
        """Start one execution of the call, for the first time or again."""
        if item not in self.again:
            self.items += 1

        self.again.discard(item)
        self.running.add(item)
        self.finished = None
        if self.started is None:
            self.started = at
        self._set_status()

    def finish(self, item: int | None, error: JSON, at: float | None) -> None:
        """End one execution of the call, with an error unless `error` is None."""
        if error is not None:
            failure = read_failure(error)
            self.error = failure.message
            self._outcome = failure_of(failure.kind)
        elif self._outcome == "waiting":
            self._outcome = "done"

        self._stop(item, at)
        self._set_status()

    def repeat(self, item: int | None, at: float | None) -> None:
        """Record that one execution of the call will start again.

        If the rules no longer allow the call, the execution never starts, and no event records
        this.
        """
        self._stop(item, at)
        self.again.add(item)
        self._set_status()

    def _stop(self, item: int | None, at: float | None) -> None:
        self.running.discard(item)
        self.asking.discard(item)
        self.again.discard(item)
        if not self.running:
            self.finished = at

    def ask(self, item: int | None, at: float | None) -> None:
        """Record that a person is asked about one execution of the call."""
        self.asking.add(item)
        if self.asked is None:
            self.asked = at
        self.decided = None
        self._set_status()

    def answer(self, item: int | None, at: float | None) -> None:
        """Record that a person has answered a question about one execution of the call."""
        self.asking.discard(item)
        if not self.asking:
            self.decided = at
        self._set_status()

    def ask_approval(self, at: float | None) -> None:
        """Record the question of whether the call is allowed to run.

        If the rules become stricter, the question can be asked again, and a decision answers the
        latest question.
        """
        self.asked = at
        self.decided = None
        self.status = "asking"

    def approve(self, at: float | None) -> None:
        """Record that the call is allowed to run after a question."""
        self.decided = at
        self._set_status()

    def deny(self, error: str, at: float | None) -> None:
        """End the call after a question, without running it."""
        self.decided = at
        self.finished = at
        self.again.clear()
        self.error = error
        self._outcome = "denied"
        self._set_status()

    def cut_off(self, at: float | None) -> None:
        """End the call along with its run, unless the call has already ended."""
        if self.status not in ("waiting", "asking", "running"):
            return

        if self.items == 0:
            self.status = "not run"
            return

        self.status = "failed"
        if self.finished is None:
            self.finished = at

    def _set_status(self) -> None:
        if self.asking:
            self.status = "asking"
        elif self.running:
            self.status = "running"
        elif self.again:
            self.status = "waiting"
        else:
            self.status = self._outcome


@dataclass(slots=True)
class Trace:
    """The bars of a run. `add` builds them from the events of its journal, in order, and accepts
    more events as the journal grows.

    Attributes:
        bars: a bar for each call; the index of a bar is the number of its call.
        minds: a bar for each answer from the mind.
        last: the number of the last event added.
        begun, ended: the time of the first event, and the time when the run ended.
        mode: `plan` or `solve`.
        mind: the name of the mind; empty if the run is answered turn by turn, or needs no mind.
        program: the text of the program, if the last Solution is one.
        printed: the text that programs have printed.
        output: the output as written in the Solution.
        modules: the server of each tool that belongs to a server, keyed by the tool's name.
        decisions: a tuple (time, call, decision, decider, reason) for each decision, except those
            of grants.
        plan_asked: the time when the last plan was presented for approval.
        tokens, cost: the usage of all answers so far.
        proposed: the number of the first call in the last complete Solution.
    """

    bars: list[CallBar] = field(default_factory=list[CallBar])
    minds: list[CallBar] = field(default_factory=list[CallBar])
    last: int = 0
    begun: float | None = None
    ended: float | None = None
    status: str = ""
    mode: str = ""
    mind: str = ""
    program: str = ""
    printed: str = ""
    output: JSON = None
    modules: dict[str, str] = field(default_factory=dict[str, str])
    decisions: list[tuple[float | None, int | None, str, str, str]] = field(
        default_factory=list[tuple[float | None, int | None, str, str, str]]
    )
    plan_asked: float | None = None
    tokens: int = 0
    cost: float = 0.0
    proposed: int = 0

    def add(self, events: Iterable[tuple[int, JSONObject]], times: Mapping[int, float]) -> None:
        """Add the (number, event) pairs of a journal, with the time of each event keyed by its
        number.
        """
        for number, event in events:
            self.add_event(number, event, times.get(number))

    def add_event(self, number: int, event: JSONObject, at: float | None) -> None:
        """Add the next event of a journal. `at` is its time."""
        self.last = number
        if self.begun is None:
            self.begun = at
        self._take(str(event.get("event")), event, at)

    def _take(self, kind: str, event: JSONObject, at: float | None) -> None:
        match kind:
            case "run_started":
                self._start(event)
            case "request_made":
                bar = CallBar(-1, self.mind, {}, "running", event=self.last)
                bar.listed = bar.started = at
                self.minds.append(bar)
            case "plan_asked":
                self.plan_asked = at
            case "plan_decided":
                self._decide_plan(event, at)
            case "printed":
                self.printed += str(event.get("text"))
            case "usage_noted":
                self._note_usage(event)
            case "run_ended":
                self._end(str(event.get("status")), at)
            case _:
                self._take_of_solution(kind, event, at)

    def _start(self, event: JSONObject) -> None:
        self.mode = str(event.get("mode"))
        self.mind = str(event.get("mind") or "")
        for tool in read_as(_Start, event).tools:
            self.modules[tool.name] = tool.module

    def _decide_plan(self, event: JSONObject, at: float | None) -> None:
        if event.get("decision") == "approve":
            self._accept(decider_text(event), at)
        else:
            # The proposed calls will not run, either because the plan was denied or because an
            # edited plan runs instead.
            del self.bars[self.proposed :]

        self._add_calls(event, at)
        self._note_decision(event, None, at)

    def _note_decision(self, event: JSONObject, call: int | None, at: float | None) -> None:
        decision = str(event.get("decision") or event.get("action"))
        reason = str(event.get("reason") or "")
        self.decisions.append((at, call, decision, decider_text(event), reason))

    def _note_usage(self, event: JSONObject) -> None:
        usage = read_as(_Usage, event.get("usage"))
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost

    def _take_of_solution(self, kind: str, event: JSONObject, at: float | None) -> None:
        match kind:
            case "call_proposed":
                self._add_call(event.get("call"), at)
            case "solution_proposed":
                self._end_answer(at)
                self.output = event.get("output")
                self.proposed = len(self.bars)
                self._add_calls(event, at)
            case "program_proposed":
                self._end_answer(at)
                self.program = str(event.get("program"))
            case "output_proposed":
                self.output = event.get("output")
            case "solution_closed" | "solution_rejected":
                self._end_answer(at)
            case _:
                bar = self._bar(event.get("call"))
                if bar is not None:
                    self._take_of_call(kind, event, bar, at)

    def _take_of_call(self, kind: str, event: JSONObject, bar: CallBar, at: float | None) -> None:
        number = event.get("item")
        item = number if isinstance(number, int) else None
        match kind:
            case "call_started":
                bar.start(item, at)
            case "call_finished":
                bar.finish(item, event.get("error"), at)
            case "approval_asked":
                bar.ask_approval(at)
            case "outcome_asked" | "question_asked":
                bar.ask(item, at)
            case "call_decided":
                self._decide_call(event, bar, at)
            case "outcome_decided":
                bar.answer(item, at)
                if event.get("decision") == "retry":
                    bar.repeat(item, at)
                else:
                    # The decision ends the execution, so no `call_finished` follows.
                    bar.finish(item, event.get("error"), at)
                self._note_decision(event, bar.number, at)
            case "question_answered":
                bar.answer(item, at)
                self._note_decision(event, bar.number, at)
            case _:
                pass

    def _decide_call(self, event: JSONObject, bar: CallBar, at: float | None) -> None:
        if at is not None and bar.asked is not None:
            bar.approvals.append((decider_text(event), at - bar.asked))

        if event.get("decision") == "deny":
            reason = str(event.get("reason") or "")
            bar.deny(denial_text(decider_text(event), reason or None), at)
        else:
            bar.approve(at)

        rule = event.get("rule")
        if isinstance(rule, dict):
            bar.rule = RuleOfCall(str(rule.get("at")), decider_text({"by": event.get("by")}))

        if event.get("granted") is None and rule is None:
            self._note_decision(event, bar.number, at)

    def _accept(self, decider: str, at: float | None) -> None:
        """Accept the plan that waited for approval. Each of its calls counts as having waited just
        as long.
        """
        if at is None or self.plan_asked is None:
            return
        for bar in self.bars:
            if bar.status == "waiting":
                bar.approvals.append((decider, at - self.plan_asked))

    def _add_calls(self, event: JSONObject, at: float | None) -> None:
        for call in list_or_empty(event.get("calls")):
            self._add_call(call, at)

    def _add_call(self, call: JSON, at: float | None) -> None:
        written = WrittenCall.of(call)
        name = written.tool or "?"
        self.bars.append(CallBar(len(self.bars), name, written.members, listed=at, event=self.last))

    def _end_answer(self, at: float | None) -> None:
        if self.minds and self.minds[-1].finished is None:
            self.minds[-1].finished = at
            self.minds[-1].status = "done"

    def _bar(self, number: JSON) -> CallBar | None:
        if isinstance(number, int) and 0 <= number < len(self.bars):
            return self.bars[number]
        return None

    def _end(self, status: str, at: float | None) -> None:
        self.ended = at
        self.status = status
        self._end_answer(at)
        for bar in self.bars:
            bar.cut_off(at)


def module_of(bar: CallBar, trace: Trace) -> str:
    """Return the server of the call that a bar represents, or "" for in-process code."""
    module = WrittenCall.of(bar.call).module
    return trace.modules.get(bar.name, "") if module is None else module
