"""Choice: which mind answers the Requests of a run, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.mind import TURNS, Limited, Mind, Titled
from ideabridge.bridge.context.shown import read_shown
from ideabridge.bridge.errors import MindUnavailableError

MindName: TypeAlias = Literal["auto", "turns", "sampling", "model", "recorded"]
"""The requested mind. `auto` includes a mind that the program passes to the bridge."""

AUTO: Final = "auto"
SAMPLING: Final = "sampling"


@dataclass(frozen=True, slots=True)
class Choice:
    """The mind of a run.

    Attributes:
        name: `turns`, `sampling`, or the name of the bridge's mind.
        why: the reason, for people.
        shown: what the mind says about how much of results it is shown; see `Limited`.
    """

    name: str
    why: str
    shown: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)


def choose(wanted: str, mind: Mind | None, *, samples: bool = False) -> Choice:
    """Choose the requested mind, else the bridge's mind, else the client's model by
    sampling, else turns.

    Args:
        wanted: `auto`, `turns`, `sampling`, or the name of the bridge's mind (`model`, `recorded`).
        mind: the bridge's mind, which answers by itself; None without one.
        samples: True if the client supports sampling.

    Raises:
        MindUnavailableError: the requested mind is not available; the message contains
            those that are.
    """
    if isinstance(mind, Limited):
        shown: Mapping[str, int] = read_shown(mind.shown_limits)
    else:
        shown = {}

    if wanted == AUTO:
        if mind is not None:
            return Choice(mind.name, f"{_title(mind) or 'it'} is configured here", shown)
        if samples:
            return Choice(
                SAMPLING, "no model is configured here, and the client lets its own be asked"
            )
        return Choice(TURNS, "no model is configured here, and no client lets its own be asked")

    if mind is not None and wanted == mind.name:
        title = _title(mind)
        return Choice(wanted, f"it was asked for{f': {title}' if title else ''}", shown)
    if wanted == TURNS or (wanted == SAMPLING and samples):
        return Choice(wanted, "it was asked for")

    there = ["'turns': solutions are handed in"]
    if mind is not None:
        title = _title(mind)
        there.append(f"{mind.name!r}: {f'{title}, ' if title else ''}configured here")

    if samples:
        there.append("'sampling': the client's model is asked")

    what = {
        SAMPLING: (
            "'sampling' needs a client that declares the capability "
            "`sampling`, and this one does not"
        ),
        "model": "no model is configured here",
    }.get(wanted, f"there is no mind {wanted[:60]!r} here")
    raise MindUnavailableError(f"mind: {what}; expected 'auto' or {', or '.join(there)}")


def _title(mind: Mind) -> str:
    """The title of a mind; "" if it has none."""
    return mind.title if isinstance(mind, Titled) else ""
