"""Record, from a run's events, which mind answered each turn, and with which Solution."""

from __future__ import annotations

from dataclasses import dataclass, field

from ideabridge.bridge.loop.event import (
    Event,
    ProgramProposed,
    RequestMade,
    RunStarted,
    SolutionProposed,
    SolutionRejected,
)
from ideabridge.bridge.runs.starts import PLAN
from ideabridge.bridge.runs.values import digest_of_solution


@dataclass(slots=True)
class TurnLog:
    """The turns of a run, folded from the run's events.

    Attributes:
        mind: the name of the run's mind, or None if the run is answered turn by turn.
        why: why that mind was chosen.
        idea: the id of the idea that the run carries out.
        settled: for each turn, the hash of the Solution that settled it.
        authors: the mind and model that wrote each submitted Solution, keyed by turn.
        rejected: the malformed answers to the current Request, oldest first.
        rejected_in: the malformed answers to each Request, keyed by turn.
        by_plan: whether the plan of an idea settled the first turn.
    """

    mind: str | None = None
    why: str | None = None
    idea: str | None = None
    settled: dict[int, str] = field(default_factory=dict[int, str])
    authors: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    rejected: list[SolutionRejected] = field(default_factory=list[SolutionRejected])
    rejected_in: dict[int, list[SolutionRejected]] = field(
        default_factory=dict[int, list[SolutionRejected]]
    )
    by_plan: bool = False
    _planned: bool = False
    _turn: int = 0

    def take(self, event: Event) -> None:
        """Update the log from an event."""
        match event:
            case RunStarted():
                self.mind = event.mind
                self.why = event.why
                self.idea = event.idea
                self._planned = event.mode == "plan"
            case RequestMade():
                self.rejected = self.rejected_in.setdefault(event.step, [])
                self._turn = event.step
            case SolutionRejected():
                self.rejected.append(event)
            case SolutionProposed() | ProgramProposed() if not self._planned:
                # A mind that streams settles its turn without this event, unless its answer is a
                # program.
                self.settled[self._turn] = digest_of_solution(event)
                self.authors[self._turn] = (event.mind or "turns", event.model or "")
                self.by_plan = self.by_plan or event.mind == PLAN
            case _:
                pass
