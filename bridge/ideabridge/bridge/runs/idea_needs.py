"""Find missing tools and ideas that a published idea needs in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.runs.pins import read_pins
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL, Viewer
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.names import joined
from ideabridge.tools.tool import ANONYMOUS, IDEA, ToolKey, is_idea

_MOST_NAMED: Final = 3
"""The maximum number of missing tools and ideas that a reason names."""


def why_not_here(
    store: Store, publication: Publication, caller: Viewer, lacking: Callable[[ToolKey], str | None]
) -> str | None:
    """Return why a published idea cannot be called in this process, or None if it can, possibly
    only once its servers are up.

    An example is "needs the server 'git', which is not configured here". The reason does not depend
    on which servers are up.

    Args:
        store: contains the publications.
        publication: the idea.
        caller: the caller who would call the idea.
        lacking: see `MissingTools.lacking`.
    """
    lacks = list(dict.fromkeys(_lacks(store, publication, caller, lacking, set())))
    if not lacks:
        return None

    return f"needs {joined(lacks, _MOST_NAMED)}"


def _lacks(
    store: Store,
    publication: Publication,
    caller: Viewer,
    lacking: Callable[[ToolKey], str | None],
    visited: set[tuple[str, int]],
) -> Iterator[str]:
    """Yield the missing tools and ideas that are needed by an idea, or by an idea that it calls,
    possibly more than once.
    """
    visited.add((publication.name, publication.version))
    for module, name in _needs(store, publication):
        if module == ANONYMOUS:
            continue
        if not is_idea(module):
            lack = lacking((module, name))
            if lack is not None:
                yield lack
            continue

        inner_name = module.removeprefix(IDEA)
        inner = store.publications.look_up(inner_name, caller=caller)
        if inner is None:
            yield f"the idea {inner_name[:64]!r}, which is not published here"
            continue

        if (inner.name, inner.version) not in visited:
            yield from _lacks(store, inner, caller, lacking, visited)


def _needs(store: Store, publication: Publication) -> list[ToolKey]:
    """Return the tools that every call to a published idea needs, as far as they are known before
    its servers are up.
    """
    pinned = publication.plan_or_guide
    if publication.answer == "recorded" or pinned is None:
        return []

    pins = read_pins(pinned)
    if pins is not None:
        return [pin.key for pin in pins]

    defined = pinned.defined
    needs: list[ToolKey] = []
    listed: dict[str, str] | None = None
    for call in written_calls(pinned.calls):
        if call.has_result or not call.tool:
            continue
        name = call.tool
        if call.module is not None:
            needs.append((call.module, name))
        elif name not in defined:
            # A call without a server might have its server in the schema of its Request, where
            # `Ways.pinned` also looks.
            if listed is None:
                listed = tools_listed_by(store, publication)
            if listed.get(name):
                needs.append((listed[name], name))

    return needs


def tools_listed_by(store: Store, publication: Publication) -> dict[str, str]:
    """Return the server of each tool that an idea's schema lists, keyed by tool name; see
    `SolutionSchema.tools`.
    """
    idea = store.ideas.get(publication.idea_id, caller=SEES_ALL).idea
    return SolutionSchema.read(idea.schema).tools
