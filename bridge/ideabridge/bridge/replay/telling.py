"""Telling: what a published idea does, where nobody has said it."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.replay.function import Function

_NAMED: Final = 8
"""Tools, and members of the output, that are named."""


def told_of(function: Function, name: str) -> str:
    """A sentence on what a run did, for the models that may do it again: the task in the words of whoever set it, or
    the tools that were called and what came of them.
    """
    meta = function.stored.meta
    tools = list(meta.tools)
    if meta.title and meta.title != ", ".join(tools):
        return meta.title
    if not tools:
        return f"Runs {name}"
    output = function.run.result
    gives = f" and gives {_some(list(output))}" if isinstance(output, dict) and output else ""
    return f"Calls {_some(tools)}{gives}"


def _some(names: list[str]) -> str:
    shown, more = names[:_NAMED], len(names) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
