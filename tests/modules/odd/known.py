"""The switches and cases that do not hold yet, by the part of the product that deals with them."""

from __future__ import annotations

from typing import Final

_BY_PART: Final[dict[str, list[str]]] = {
    # A direct call of a denied tool, and calls of a mute module, wait for 24 to 30 s; a program may forget `await`.
    "doors": [
        "state: await",
        "state: denied: directly",
        "state: hidden: plan",
        "state: unknown: directly",
        "state: mute: plan",
        "state: mute: program",
        "state: refuses: plan",
        "state: refuses: program",
    ],
}

KNOWN: Final[dict[str, str]] = {name: part for part, names in _BY_PART.items() for name in names}
"""The part of each by its name."""
