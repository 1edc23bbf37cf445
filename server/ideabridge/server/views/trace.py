"""Trace: when each call of a run was listed, asked about, started and finished, from the journal
alone.

A page must open at once, even for a run of 10,000 calls. Folding its journal takes seconds, because
the machine binds references and checks parameters. A trace only records times, which takes 100 ms.
What a trace cannot know (why a call never started, and what its references resolved to) comes from
the folded `RunHistory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ideabridge.bridge.loop.event import decider_text, denial_text
from ideabridge.tools.encoding import JSON, JSONObject

BarStatus: TypeAlias = Literal[
    "waiting", "asking", "running", "done", "failed", "denied", "not run"
]
"""The status of a bar. `failed`: the call returned an error, even if it was caught, or the run
ended during the call. `denied`: a person or a rule refused the call. `not run`: the run ended
before the call started."""


@dataclass(slots=True)
class CallBar:
    """The times of one call of a run, or of one answer of its mind. Times are in seconds since
    1970, or None for something that has not happened.

    Attributes:
        number: the number of the call in the run; -1 for an answer of the mind.
        name: the tool of the call, or the name of the mind.
        call: the call as it was written.
        approvals: the (decider, seconds) of each decision that the call needed before it could run:
            who decided, in words, and how long after the question. The decision on its plan comes
            first.
        items: the number of executions that have started; more than 1 with `_each`.
        open: the number of executions that are running now.
        event: the number of the event that listed the call.
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
    open: int = 0
    error: str = ""
    event: int = 0

    def finish(self, error: JSON, at: float | None) -> None:
        """End one execution of the call, with an error unless `error` is None."""
        self.open = max(0, self.open - 1)
        self.finished = at
        if isinstance(error, dict):
            self.error = str(error.get("message", ""))
            self.status = "denied" if error.get("kind") == "denied" else "failed"
        elif self.status not in ("failed", "denied"):
            self.status = "running" if self.open else "done"


@dataclass(slots=True)
class Trace:
    """The bars of a run. `add` builds them from the events of its journal, in order, and accepts
    more events as the journal grows.

    Attributes:
        bars: a bar for each call, keyed by its number.
        minds: a bar for each answer of the mind.
        last: the number of the last added event.
        begun, ended: the time of the first event, and the time of the end of the run.
        mode: `plan` or `solve`.
        mind: the name of the mind; empty if the run is answered by turns, or needs no mind.
        program: the text of the program, if the last Solution is one.
        printed: what programs printed.
        output: the output as it is written in the Solution.
        modules: the module of each tool that belongs to one.
        decisions: the (time, call, decision, decider, reason) of each decision, except those made
            by a grant.
        plan_asked: when the last plan was presented for approval.
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
            at = times.get(number)
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
        for tool in _list(event.get("tools")):
            if isinstance(tool, dict) and isinstance(tool.get("module"), str):
                self.modules[str(tool.get("name"))] = str(tool["module"])

    def _decide_plan(self, event: JSONObject, at: float | None) -> None:
        if event.get("decision") == "approve":
            self._accept(decider_text(event), at)
        else:
            # The proposed calls do not run; an edited plan runs instead.
            del self.bars[self.proposed :]

        self._add_calls(event, at)
        self._note_decision(event, None, at)

    def _note_decision(self, event: JSONObject, call: int | None, at: float | None) -> None:
        decision = str(event.get("decision") or event.get("action"))
        reason = str(event.get("reason") or "")
        self.decisions.append((at, call, decision, decider_text(event), reason))

    def _note_usage(self, event: JSONObject) -> None:
        usage = event.get("usage")
        if not isinstance(usage, dict):
            return
        for key in ("input_tokens", "output_tokens"):
            count = usage.get(key)
            self.tokens += count if isinstance(count, int) else 0
        cost = usage.get("cost")
        self.cost += cost if isinstance(cost, float | int) else 0.0

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
        match kind:
            case "call_started":
                bar.items += 1
                bar.open += 1
                bar.status = "running"
                if bar.started is None:
                    bar.started = at
            case "call_finished":
                bar.finish(event.get("error"), at)
            case "approval_asked":
                # Stricter rules may ask again. A decision answers the last question.
                bar.asked = at
                bar.decided = None
                bar.status = "asking"
            case "outcome_asked" | "question_asked":
                if bar.asked is None:
                    bar.asked = at
                bar.status = "asking"
            case "call_decided":
                if at is not None and bar.asked is not None:
                    bar.approvals.append((decider_text(event), at - bar.asked))
                self._decide_call(event, bar, at)
            case "outcome_decided" | "question_answered":
                self._decide_call(event, bar, at)
            case _:
                pass

    def _decide_call(self, event: JSONObject, bar: CallBar, at: float | None) -> None:
        bar.decided = at
        if event.get("decision") == "deny":
            bar.status = "denied"
            bar.finished = at
            reason = event.get("reason")
            bar.error = denial_text(
                decider_text(event), reason if isinstance(reason, str) else None
            )
        else:
            bar.status = "running" if bar.open else "waiting"

        if event.get("granted") is None:
            self._note_decision(event, bar.number, at)

    def _accept(self, decider: str, at: float | None) -> None:
        """Accept the plan that waited: from now on, its calls are the ones that wait."""
        if at is None or self.plan_asked is None:
            return
        for bar in self.bars:
            if bar.status == "waiting":
                bar.approvals.append((decider, at - self.plan_asked))

    def _add_calls(self, event: JSONObject, at: float | None) -> None:
        for call in _list(event.get("calls")):
            self._add_call(call, at)

    def _add_call(self, call: JSON, at: float | None) -> None:
        members = call if isinstance(call, dict) else {}
        tool = members.get("_tool")
        name = tool if isinstance(tool, str) else "?"
        self.bars.append(CallBar(len(self.bars), name, members, listed=at, event=self.last))

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
            if bar.status in ("waiting", "asking"):
                bar.status = "not run"
            elif bar.status == "running":
                bar.status = "failed"
                bar.finished = at


def module_of(bar: CallBar, trace: Trace) -> str:
    """Return the module of the call that a bar shows; empty for code of this process."""
    named = bar.call.get("_module")
    if isinstance(named, str):
        return named
    return trace.modules.get(bar.name, "")


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
