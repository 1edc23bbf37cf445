"""Instances: a plan's calls over several states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ideabridge.tools.encoding import JSON


def spread(calls: Sequence[JSON], instances: Sequence[str]) -> tuple[list[JSON], list[JSON] | None]:
    """The calls with one copy for every instance where none is named, and their places in the plan.

    Args:
        calls: as the plan lists them.
        instances: the plan's; none: the calls as they are, each in its own place.
    """
    if not instances:
        return list(calls), None
    spread_out: list[JSON] = []
    places: list[JSON] = []
    for place, call in enumerate(calls):
        if isinstance(call, dict) and "_instance" not in call:
            spread_out.extend({**call, "_instance": instance} for instance in instances)
            places.extend([place] * len(instances))
        else:
            spread_out.append(call)
            places.append(place)
    return spread_out, places


def gathered(calls: Sequence[JSON], places: Sequence[JSON] | None) -> list[JSON]:
    """The calls as the plan lists them: one that was spread out stands once, without `_instance`."""
    if places is None:
        return list(calls)
    # A place comes up twice only where the call named no instance.
    times = Counter(str(place) for place in places)
    listed: dict[str, JSON] = {}
    for call, place in zip(calls, places, strict=True):
        if times[str(place)] > 1 and isinstance(call, dict):
            call = {key: value for key, value in call.items() if key != "_instance"}
        listed.setdefault(str(place), call)
    return list(listed.values())
