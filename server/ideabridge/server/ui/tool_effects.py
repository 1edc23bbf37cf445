"""Name what a tool does to data, as its annotations declare it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ideabridge.tools.tool import Annotations, Tool

Effect: TypeAlias = Literal["reads", "adds", "changes", "deletes"]

EFFECTS: Final[dict[Effect, str]] = {
    "reads": "only reads",
    "adds": "only adds",
    "changes": "changes something",
    "deletes": "can overwrite or delete",
}
"""What a tool does to data, as a phrase that follows "it"."""


def declared_effect(annotations: Annotations) -> Effect | None:
    """Return the effect that a tool declares, or None if it declares no effect."""
    if annotations.read_only:
        return "reads"
    if annotations.destructive:
        return "deletes"
    if annotations.destructive is False:
        return "adds"
    return None if annotations.read_only is None else "changes"


def effect_of(tool: Tool) -> Effect:
    """Return the effect of a tool for its icon. A tool that declares no effect may change data."""
    return declared_effect((tool.passes_to or tool).annotations) or "changes"
