"""Choose the mind that answers a run's Requests, and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.mind import TURNS, Limited, Mind, Titled
from ideabridge.bridge.context.shown import read_shown
from ideabridge.bridge.errors import MindUnavailableError

MindName: TypeAlias = Literal["auto", "turns", "sampling", "model", "recorded"]
"""The mind requested for a run. `auto` includes a mind that a Python program has passed to the
bridge.
"""

AUTO: Final = "auto"
SAMPLING: Final = "sampling"


@dataclass(frozen=True, slots=True)
class Choice:
    """The mind of a run.

    Attributes:
        name: `turns`, `sampling`, or the name of the bridge's mind.
        why: the reason for the choice, in words.
        shown: the mind's own limits on the size of the results shown to it; see `Limited`.
    """

    name: str
    why: str
    shown: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)


def choose(requested: str, mind: Mind | None, *, samples: bool = False) -> Choice:
    """Choose the requested mind. `auto` means the first available of these: the bridge's mind, the
    client's model through sampling, and turns.

    Args:
        requested: `auto`, `turns`, `sampling`, or the name of the bridge's mind (`model`,
            `recorded`).
        mind: the bridge's mind, which answers by itself, or None if the bridge has no mind.
        samples: whether the client supports sampling.

    Raises:
        MindUnavailableError: the requested mind is not available; the message lists the available
            minds.
    """
    if isinstance(mind, Limited):
        limits: Mapping[str, int] = read_shown(mind.shown_limits)
    else:
        limits = {}

    if requested == AUTO:
        if mind is not None:
            return Choice(mind.name, f"{_title(mind) or 'it'} is configured here", limits)
        if samples:
            return Choice(
                SAMPLING,
                "no model is configured here, but the client allows requests to its own model",
            )
        return Choice(
            TURNS, "no model is configured here, and no client allows requests to its own model"
        )

    if mind is not None and requested == mind.name:
        title = _title(mind)
        suffix = f": {title}" if title else ""
        return Choice(requested, f"the caller requested it{suffix}", limits)
    if requested == TURNS or (requested == SAMPLING and samples):
        return Choice(requested, "the caller requested it")

    available = ["'turns': a client submits the solutions"]
    if mind is not None:
        title = _title(mind)
        prefix = f"{title}, " if title else ""
        available.append(f"{mind.name!r}: {prefix}configured here")

    if samples:
        available.append("'sampling': ideabridge asks the client's model")

    problem = {
        SAMPLING: (
            "'sampling' needs a client that declares the capability `sampling`, but this one does "
            "not"
        ),
        "model": "no model is configured here",
    }.get(requested, f"there is no mind {requested[:60]!r} here")
    raise MindUnavailableError(f"mind: {problem}; expected 'auto' or {', or '.join(available)}")


def _title(mind: Mind) -> str:
    """Return the title of a mind, or "" if it has none."""
    return mind.title if isinstance(mind, Titled) else ""
