"""Trace: when each call of a run was listed, asked about, started and finished, read from
the journal alone.

A page must open at once, also for a run of 10,000 calls. Folding its journal takes seconds, because
the machine binds references and checks parameters; a trace only notes times and takes 100 ms. What
a trace cannot know (why a call that never started did not run, what its references resolved to)
comes from the folded `RunHistory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.loop.event import decider_text, denial_text
from ideabridge.tools.encoding import JSON, JSONObject

BarStatus: TypeAlias = Literal[
    "waiting", "asking", "running", "done", "failed", "denied", "not run"
]
"""The status of a bar. `failed`: the call returned an error, also one that was caught, or the run
ended while it ran. `denied`: a person or a rule refused it. `not run`: the run ended before the
call started."""

_FAILED: Final = ("failed", "denied")


@dataclass(slots=True)
class CallBar:
    """One call of a run, or one answer of its mind, in time. Times are seconds since 1970; None:
    not yet, or never.

    Attributes:
        number: the number of the call in the run; -1 for an answer of the mind.
        name: its tool.
        call: the call as it was written.
        approvals: (who, seconds) of each decision without which it would not have run: who decided,
            in words, and how long after the question. First that on its plan, if there was one.
        items: how many executions have started; more than 1 with `_each`.
        open: how many executions are running now.
        event: the number of the event that listed it.
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


@dataclass(slots=True)
class Trace:
    """The bars of a run, made by `add` from the events of its journal, in order. A growing journal
    can be added on.

    Attributes:
        bars: a bar for each call, by its number.
        minds: a bar for each answer of the mind.
        last: the number of the last event.
        begun, ended: the times of the first event, and of the end of the run.
        mode: `plan` or `solve`.
        mind: the name of the mind; empty: by turns, or none.
        program: the text of the program, if the last Solution is one.
        printed: what programs printed.
        output: the output as written.
        modules: tool -> its module, for tools of modules.
        decisions: (time, call, decision, who, reason) of each decision, except those by a grant.
        plan_asked: when it was asked whether the last plan is accepted.
        tokens, cost: the usage of the answers so far.
        proposed: the number of the first call of the last Solution that arrived whole.
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
        """Take (number, event) of a journal, and the time of each event by its number."""
        for number, event in events:
            at = times.get(number)
            self.last = number
            if self.begun is None:
                self.begun = at
            self._take(str(event.get("event")), event, at)

    def _take(self, kind: str, event: JSONObject, at: float | None) -> None:
        match kind:
            case "run_started":
                self.mode = str(event.get("mode"))
                self.mind = str(event.get("mind") or "")
                for tool in _objects(event.get("tools")):
                    if isinstance(tool.get("module"), str):
                        self.modules[str(tool.get("name"))] = str(tool["module"])
            case "request_made":
                name = self.mind
                self.minds.append(
                    CallBar(-1, name, {}, "running", listed=at, started=at, event=self.last)
                )
            case "call_proposed":
                self._list(event.get("call"), at)
            case "solution_proposed":
                self._answered(at)
                self.output = event.get("output")
                self.proposed = len(self.bars)
                for call in _list(event.get("calls")):
                    self._list(call, at)
            case "plan_asked":
                self.plan_asked = at
            case "plan_decided":
                who = decider_text(event)
                if event.get("decision") == "approve":
                    self._accept(who, at)
                else:
                    # What was proposed does not run; an edited plan runs in its place.
                    del self.bars[self.proposed :]
                for call in _list(event.get("calls")):
                    self._list(call, at)
                self.decisions.append(
                    (at, None, str(event.get("decision")), who, str(event.get("reason") or ""))
                )
            case "program_proposed":
                self._answered(at)
                self.program = str(event.get("program"))
            case "output_proposed":
                self.output = event.get("output")
            case "solution_closed" | "solution_rejected":
                self._answered(at)
            case "printed":
                self.printed += str(event.get("text"))
            case "usage_noted":
                usage = event.get("usage")
                if isinstance(usage, dict):
                    self.tokens += sum(
                        _number(usage.get(key)) for key in ("input_tokens", "output_tokens")
                    )
                    cost = usage.get("cost")
                    self.cost += cost if isinstance(cost, float | int) else 0.0
            case "run_ended":
                self._end(str(event.get("status")), at)
            case _:
                bar = self._bar(event.get("call"))
                if bar is not None:
                    self._of_call(kind, event, bar, at)

    def _of_call(self, kind: str, event: JSONObject, bar: CallBar, at: float | None) -> None:
        match kind:
            case "call_started":
                bar.items += 1
                bar.open += 1
                bar.status = "running"
                bar.started = at if bar.started is None else bar.started
            case "call_finished":
                bar.open = max(0, bar.open - 1)
                bar.finished = at
                error = event.get("error")
                if isinstance(error, dict):
                    bar.error = str(error.get("message", ""))
                    bar.status = "denied" if error.get("kind") == "denied" else "failed"
                elif bar.status not in _FAILED:
                    bar.status = "running" if bar.open else "done"
            case "approval_asked":
                # Stricter rules ask again; a decision answers the last question.
                bar.asked = at
                bar.decided = None
                bar.status = "asking"
            case "outcome_asked" | "question_asked":
                bar.asked = at if bar.asked is None else bar.asked
                bar.status = "asking"
            case "call_decided" | "outcome_decided" | "question_answered":
                decision = str(event.get("decision") or event.get("action"))
                who = decider_text(event)
                bar.decided = at
                if kind == "call_decided" and at is not None and bar.asked is not None:
                    bar.approvals.append((who, at - bar.asked))
                if decision == "deny":
                    bar.status = "denied"
                elif bar.open:
                    bar.status = "running"
                else:
                    bar.status = "waiting"
                if decision == "deny":
                    bar.finished = at
                    reason = event.get("reason")
                    bar.error = denial_text(who, reason if isinstance(reason, str) else None)
                if event.get("granted") is None:
                    self.decisions.append(
                        (at, bar.number, decision, who, str(event.get("reason") or ""))
                    )
            case _:
                pass

    def _accept(self, who: str, at: float | None) -> None:
        """The plan that waited is accepted: its calls are those that wait now."""
        if at is None or self.plan_asked is None:
            return
        for bar in self.bars:
            if bar.status == "waiting":
                bar.approvals.append((who, at - self.plan_asked))

    def _list(self, call: JSON, at: float | None) -> None:
        raw = call if isinstance(call, dict) else {}
        tool = raw.get("_tool")
        name = tool if isinstance(tool, str) else "?"
        self.bars.append(CallBar(len(self.bars), name, raw, listed=at, event=self.last))

    def _answered(self, at: float | None) -> None:
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
        self._answered(at)
        for bar in self.bars:
            if bar.status in ("waiting", "asking"):
                bar.status = "not run"
            elif bar.status == "running":
                bar.status = "failed"
                bar.finished = at


def module_of(bar: CallBar, trace: Trace) -> str:
    """The module of a bar's call; empty for code of this process."""
    named = bar.call.get("_module")
    if isinstance(named, str):
        return named
    return trace.modules.get(bar.name, "")


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _objects(value: JSON) -> list[JSONObject]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def _number(value: JSON) -> int:
    return value if isinstance(value, int) else 0
