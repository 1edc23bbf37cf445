"""Turn log: what the journal of a run tells of its turns: who answers, which are settled, what was malformed
(DESIGN 5, 7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.bridge.loop.event import Event, RequestMade, RunStarted, SolutionProposed, SolutionRejected
from ideabridge.tools.encoding import content_hash


@dataclass(slots=True)
class TurnLog:
    """The turns of one run, folded from its events.

    Attributes:
        mind: the name of the mind chosen for the run; None: by turns.
        why: why that mind was chosen, in words.
        settled: hash of the Solution that settled each turn.
        authors: (mind, model) of the Solution of each turn that was handed in.
        rejected: what was malformed of the answers to the Request at hand, oldest first.
    """

    mind: str | None = None
    why: str | None = None
    settled: dict[int, str] = field(default_factory=dict[int, str])
    authors: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    rejected: list[SolutionRejected] = field(default_factory=list[SolutionRejected])
    _planned: bool = False

    def take(self, event: Event) -> None:
        """Note an event."""
        match event:
            case RunStarted():
                self.mind, self.why, self._planned = event.mind, event.why, event.mode == "plan"
            case RequestMade():
                self.rejected = []
            case SolutionRejected():
                self.rejected.append(event)
            case SolutionProposed() if not self._planned:
                turn = len(self.settled)
                self.settled[turn] = content_hash({"calls": event.calls, "output": event.output})
                self.authors[turn] = (event.mind or "turns", event.model or "")
            case _:
                pass

    def fold(self, events: Iterable[Event]) -> None:
        """Note the events of a journal."""
        for event in events:
            self.take(event)
