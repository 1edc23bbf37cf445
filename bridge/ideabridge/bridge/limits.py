"""Limits: a caller may ask for lower ones than the configuration has (DESIGN 4.4.5)."""

from __future__ import annotations

import math

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.listed_order import ModuleOrder
from ideabridge.bridge.loop.policy import with_folded_names
from ideabridge.bridge.loop.settings import PLANNINGS, Planning, Settings
from ideabridge.tools.encoding import ObjectLike, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean

_LIMITS = ("parallel_calls", "calls", "requests", "wall_seconds", "tokens", "cost")


def settings_under(
    configuration: Configuration,
    limits: ObjectLike | None = None,
    *,
    output_by_instance: bool = False,
    planning: Planning = "eager",
    thought_process: bool | None = None,
) -> Settings:
    """The settings of a run.

    Args:
        configuration: its order, approval and limits hold.
        limits: lower limits a caller asks for; a higher one than configured has no effect.
        output_by_instance: the output is a map by instance.
        planning: `eager` or `lazy`.
        thought_process: whether minds write their reasoning before the calls; None: as configured.

    Raises:
        PlanError: another planning, a limit nobody knows, or a value that is no number above 0 (for counts: no whole
            one).
    """
    kinds: dict[str, Planning] = {one: one for one in PLANNINGS}
    kind = kinds.get(planning)
    if kind is None:
        raise PlanError(f"planning: expected 'eager' or 'lazy', found {planning!r}")
    asked = limits or {}
    for name in asked:
        if name not in _LIMITS:
            there = ", ".join(_LIMITS)
            raise PlanError(f"limits: unknown limit {name[:100]!r}; there are {there}.{did_you_mean(name, _LIMITS)}")

    def wanted(name: str, *, whole: bool = True) -> float | None:
        value = asked.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise PlanError(f"limits.{name}: expected a number above 0, found {_shown(value)}")
        if whole and value != int(value):
            raise PlanError(f"limits.{name}: expected a whole number, found {_shown(value)}")
        return value

    def lower(name: str, configured: int) -> int:
        value = wanted(name)
        return configured if value is None else min(int(value), configured)

    own = configuration.limits
    seconds, tokens, cost = wanted("wall_seconds", whole=False), wanted("tokens"), wanted("cost", whole=False)
    return Settings(
        order=configuration.order,
        modules={
            name: ModuleOrder(one.order != "none", one.read_only)
            for name, one in configuration.modules.items()
            if one.order == "none" or one.read_only
        },
        parallel_calls=lower("parallel_calls", own.parallel_calls),
        calls=lower("calls", own.calls),
        requests=lower("requests", own.requests),
        wall_seconds=min(seconds or own.wall_seconds, own.wall_seconds),
        output_by_instance=output_by_instance,
        approval=with_folded_names(configuration.approval_setting),
        planning=kind,
        thought_process=configuration.thought_process if thought_process is None else thought_process,
        # None: without bound, here and in the configuration.
        tokens=own.tokens if tokens is None else min(int(tokens), own.tokens or int(tokens)),
        cost=own.cost if cost is None else min(cost, own.cost or cost),
    )


def _shown(value: object) -> str:
    """A value as JSON, where it is any."""
    try:
        return show(normalise(value))
    except IdeabridgeError:
        return repr(value)
