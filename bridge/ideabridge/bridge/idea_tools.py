"""Idea tools: published ideas as tools of `_module: "idea:NAME"` (DESIGN 4.10)."""

from __future__ import annotations

from ideabridge.bridge.ideas.errors import UnknownPublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.tool import ANONYMOUS, EVERY_MODULE, IDEA, Annotations, Tool


def idea_tool(store: Store, module: str, caller: str, known: Catalogue) -> Tool | None:
    """The tool of a published idea; None: nothing is published to this caller under that name.

    The version that stands now is pinned: a run that has begun keeps it, whatever is published meanwhile.

    Args:
        store: holds the publications.
        module: `idea:NAME` or `idea:NAME@VERSION`.
        caller: who calls it.
        known: the tools of here and of the modules.
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
        reaches=_reaches(store, found, caller, known, set()),
    )


def _reaches(store: Store, found: Publication, caller: str, known: Catalogue, seen: set[str]) -> tuple[str, ...]:
    """The modules that the plan of an idea calls, by the ideas it calls too; see `Tool.reaches`.

    Every module where that cannot be said: a mind or a room chooses the calls, or a tool is not there now.
    """
    if found.answer == "recorded":
        return ()
    calls = found.plan.get("calls") if found.plan is not None else None
    if not isinstance(calls, list):
        return (EVERY_MODULE,)
    reached: dict[str, None] = {}
    for call in calls:
        module = call.get("_module") if isinstance(call, dict) else None
        if isinstance(module, str) and module.startswith(IDEA):
            if module in seen:
                continue
            seen.add(module)
            try:
                inner = store.named(module.removeprefix(IDEA), caller=caller)
            except UnknownPublicationError:
                return (EVERY_MODULE,)
            reached.update(dict.fromkeys(_reaches(store, inner, caller, known, seen)))
        else:
            tool = known.look_up(call) if isinstance(call, dict) and module != ANONYMOUS else None
            if tool is None:
                return (EVERY_MODULE,)
            reached.update(dict.fromkeys(tool.reached))
    return (EVERY_MODULE,) if EVERY_MODULE in reached else tuple(reached)
