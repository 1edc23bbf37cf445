"""Idea tools: published ideas as tools of `_module: "idea:NAME"` (DESIGN 4.10)."""

from __future__ import annotations

from ideabridge.bridge.ideas.errors import UnknownPublicationError
from ideabridge.bridge.ideas.store import Store
from ideabridge.tools.tool import IDEA, Annotations, Tool


def idea_tool(store: Store, module: str, caller: str) -> Tool | None:
    """The tool of a published idea; None: nothing is published to this caller under that name.

    The version that stands now is pinned: a run that has begun keeps it, whatever is published meanwhile.

    Args:
        store: holds the publications.
        module: `idea:NAME` or `idea:NAME@VERSION`.
        caller: who calls it.
    """
    try:
        found = store.named(module.removeprefix(IDEA), caller=caller)
    except UnknownPublicationError:
        return None
    return Tool(
        found.name,
        found.description,
        found.input_schema or {"type": "object", "properties": {}, "additionalProperties": False},
        found.output_schema,
        Annotations.from_json(found.annotations),
        module=module,
        remote_name=f"{found.name}@{found.version}",
    )
