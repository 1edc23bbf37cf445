"""SolutionReader: the Solutions of a run, bound and checked before anything of them runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import Pattern, SolutionProposed
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.opening import InitialDocuments
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.loop.proposal import Proposal
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.spending import Spending
from ideabridge.tools.encoding import JSON, JSONObject

MOST_REFERENCES: Final = 20_000
"""How many references one Solution that arrives whole may hold: binding one takes 30 us, in the event loop."""

MOST_BOUND: Final = 200_000
"""How many times its calls may wait for another: 5,000 reads of what 5,000 calls write are 25 million."""


class SolutionReader:
    """Reads Solutions.

    Args:
        catalogue, settings, opening, memory, spending: of the run.

    Attributes:
        listed: how many calls the run has taken up.
        checked: the Solution that was checked last and not taken up.
    """

    def __init__(
        self, catalogue: Catalogue, settings: Settings, opening: InitialDocuments, memory: Memory, spending: Spending
    ) -> None:
        self.listed = 0
        self.checked: Proposal | None = None
        self._catalogue = catalogue
        self._settings = settings
        self._opening = opening
        self._memory = memory
        self._spending = spending
        self._ids: set[str] = set()

    @property
    def room(self) -> int:
        """How many more calls the run may list, its rooms included."""
        return self._settings.calls - self._spending.calls - self.listed

    def offer(self, catalogue: Catalogue) -> None:
        """The tools that the Solutions that follow may call."""
        self._catalogue = catalogue
        self.checked = None

    def graph(self, pattern: Pattern | None = None) -> Graph:
        """An empty graph for the next Solution."""
        opening, settings = self._opening, self._settings
        return Graph(
            self._catalogue,
            self._memory.documents,
            first=self.listed,
            instances=opening.instances,
            # Alternatives stand side by side: none comes before another.
            order=settings.order if pattern in (None, "all") else "none",
            modules=settings.modules,
            known=self._ids,
            schemas=opening.schemas,
            output_by_instance=settings.output_by_instance,
            reading=settings.reading,
            alternatives=pattern in ("any", "race"),
        )

    def check(
        self, calls: list[JSON], output: JSON, places: list[JSON] | None = None, pattern: Pattern | None = None
    ) -> list[JSONObject]:
        """What is malformed in a Solution that arrives whole, for whoever runs nothing of it then.

        Returns:
            `{"call", "place", "error"}` of every problem; empty: all of it is well formed.
        """
        over = self.check_count(len(calls)) or _over_references(calls, output)
        if over:
            return over
        graph = self.graph(pattern)
        graph.most_bound = MOST_BOUND
        self.checked = Proposal.whole(graph, calls, output, places, pattern)
        return self.checked.graph.errors()

    def check_count(self, calls: int) -> list[JSONObject]:
        """The error if a run may not list that many more calls; empty: it may."""
        if calls <= self.room:
            return []
        return _refusal(f"{calls:,} more calls; a run may list at most {self._settings.calls:,} in all")

    def take(self, event: SolutionProposed) -> Proposal:
        """A Solution that is taken up whole: the one that was checked just before, where it is that."""
        proposal, self.checked = self.checked, None
        calls, output, pattern = event.calls, event.output, event.pattern
        if proposal is None or not proposal.is_of(calls, output, pattern):
            proposal = Proposal.whole(self.graph(pattern), calls, output, event.places, pattern)
        # The idea says what its calls were to each other.
        told: JSONObject = {} if pattern is None else {"pattern": pattern}
        proposal.extra = {**(event.extra or {}), **told}
        return proposal

    def note(self, listed: Iterable[Progress]) -> None:
        """These calls were taken up."""
        for one in listed:
            self.listed += 1
            if one.call.id is not None:
                self._ids.add(one.call.id)


def _refusal(message: str) -> list[JSONObject]:
    return [{"call": None, "error": {"kind": "structural", "message": message}}]


def _over_references(calls: list[JSON], output: JSON) -> list[JSONObject]:
    """The error if a Solution holds more references than are bound here; empty: it does not."""
    count = 0
    stack: list[JSON] = [output, *calls]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            # Of `a || b` each; an escaped dagger is two, and rarely stands first.
            count += item.count("†") if item.startswith("†") and not item.startswith("††") else 0
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    if count <= MOST_REFERENCES:
        return []
    return _refusal(
        f"{count:,} references; one plan may hold at most {MOST_REFERENCES:,}: read what several calls write as one, "
        "or use _each"
    )
