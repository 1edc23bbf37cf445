"""Turn log: what the journal of a run says of its turns: who answers, which are settled, what was malformed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.bridge.errors import RejectedSolutionError
from ideabridge.bridge.loop.event import Event, Pattern, RequestMade, RunStarted, SolutionProposed, SolutionRejected
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.reading import read_solution


@dataclass(slots=True)
class TurnLog:
    """The turns of one run, folded from its events.

    Attributes:
        mind: the name of the mind chosen for the run; None: by turns.
        why: why that mind was chosen, in words.
        idea: id of the idea the run was made from.
        settled: hash of the Solution that settled each turn.
        authors: (mind, model) of the Solution of each turn that was handed in.
        rejected: what was malformed of the answers to the Request at hand, oldest first.
        refused: the same of every turn.
    """

    mind: str | None = None
    why: str | None = None
    idea: str | None = None
    settled: dict[int, str] = field(default_factory=dict[int, str])
    authors: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    rejected: list[SolutionRejected] = field(default_factory=list[SolutionRejected])
    refused: dict[int, list[SolutionRejected]] = field(default_factory=dict[int, list[SolutionRejected]])
    _planned: bool = False
    _turn: int = 0

    def take(self, event: Event) -> None:
        """Note an event."""
        match event:
            case RunStarted():
                self.mind, self.why, self._planned = event.mind, event.why, event.mode == "plan"
                self.idea = event.idea
            case RequestMade():
                self.rejected, self._turn = [], event.step
            case SolutionRejected():
                self.rejected.append(event)
                self.refused.setdefault(self._turn, []).append(event)
            case SolutionProposed() if not self._planned:
                turn = len(self.settled)
                self.settled[turn] = digest_of_solution(event)
                self.authors[turn] = (event.mind or "turns", event.model or "")
            case _:
                pass

    def faults_of(self, turn: int, calls: JSON) -> list[JSON] | None:
        """What was malformed of a Solution of these calls that the turn refused before another settled it."""
        wanted = content_hash(calls)
        for event in self.refused.get(turn, ()):
            if isinstance(event.solution, dict) and content_hash(event.solution.get("calls")) == wanted:
                return event.errors
        return None

    def fold(self, events: Iterable[Event]) -> None:
        """Note the events of a journal."""
        for event in events:
            self.take(event)


def digest_of_solution(proposed: SolutionProposed) -> str:
    """The hash that tells Solutions of a turn apart."""
    pattern: JSONObject = {} if proposed.pattern is None else {"pattern": proposed.pattern}
    return content_hash({"calls": proposed.calls, "output": proposed.output, **pattern})


def solution_of(proposed: SolutionProposed) -> JSONObject:
    """A Solution as it was handed in."""
    return {**(proposed.extra or {}), "calls": proposed.calls, "output": proposed.output}


def read_submission(
    raw: JSON, mind: str | None, model: str | None, pattern: Pattern | None = None
) -> tuple[SolutionProposed, list[str]]:
    """A solution somebody hands in, and what was read leniently of it, in words.

    Raises:
        ValueMismatchError: it is not a solution at all.
        RejectedSolutionError: its calls are no array.
    """
    solution, notes = read_solution(raw)
    calls, output = solution["calls"], solution["output"]
    if not isinstance(calls, list):
        raise RejectedSolutionError("calls: expected an array")
    extra = {key: value for key, value in solution.items() if key not in ("calls", "output")}
    return SolutionProposed(calls, output, extra or None, None, mind, model, pattern), notes
