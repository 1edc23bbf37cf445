"""Walk: the newest ideas that meet several conditions, by whichever way is the shortest (DESIGN 8)."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.ideas.filters import Condition
from ideabridge.bridge.ideas.places import Place, Places, Source, every, using, waiting
from ideabridge.bridge.ideas.uses import Uses

FEW: Final = 1000
"""What at most so many ideas have is looked at as a whole, newest first."""

STRETCH: Final = 400
"""Of what more have, so many ideas are looked at before it is asked where all conditions may hold next."""


class Walk:
    """Goes through `idea_places` and `idea_uses`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, places: Places, uses: Uses) -> None:
        self._places = places
        self._uses = uses

    def newest(self, own: Condition, uses: list[str], limit: int) -> list[Place]:
        """The newest ideas that pass and have all these uses."""
        if not uses:
            return self._places.newest(every([]), own, limit)
        counts = {use: self._uses.count(use, FEW) for use in uses}
        rarest, *others = sorted(uses, key=lambda use: counts[use])
        if counts[rarest] < FEW:
            return self._places.newest([*using(rarest, others), *waiting(uses)], own, limit)
        if self._places.count(own, FEW) < FEW:
            return self._places.newest(every(uses), own, limit)
        return self._stretches(own, rarest, others, limit)

    def _stretches(self, own: Condition, use: str, others: list[str], limit: int) -> list[Place]:
        """The newest where many meet each condition, but perhaps hardly any of them all, or none for a long time."""
        newest = self._places.newest
        each: list[tuple[list[Source], Condition]] = [(every([])[:1], own)]
        each += [(using(one, []), Condition("", [])) for one in (use, *others)]
        found = newest(waiting([use, *others]), own, limit)
        placed = list[Place]()
        below = Condition("", [])
        while len(placed) < limit:
            heads = [newest(source, condition.and_(below), 1) for source, condition in each]
            if not all(heads):
                break
            start = min(head[0] for head in heads)
            end = self._uses.after(use, start, STRETCH)
            within = own.and_(Condition("(ideas.time, ideas.number) <= (?, ?) AND ", [*start]))
            if end is not None:
                below = Condition("(ideas.time, ideas.number) < (?, ?) AND ", [*end])
                within = within.and_(Condition("(ideas.time, ideas.number) >= (?, ?) AND ", [*end]))
            placed += newest(using(use, others), within, limit - len(placed))
            if end is None:
                break
        return sorted([*found, *placed], reverse=True)[:limit]
