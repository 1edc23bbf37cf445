"""Find the ideas that a plan calls, and decide whether they ask a mind and whether the plan would
call itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.runs.pins import read_pins
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, is_idea


class IdeaVersion(NamedTuple):
    """A version of a published idea."""

    name: str
    version: int

    @classmethod
    def of(cls, publication: Publication) -> IdeaVersion:
        """Return the version of the idea that a publication publishes."""
        return cls(publication.name, publication.version)

    @property
    def modules(self) -> tuple[str, str]:
        """The servers under which calls can name this version while it is the current one."""
        return f"{IDEA}{self.name}", f"{IDEA}{self.name}@{self.version}"


def next_version(store: Store, name: str) -> IdeaVersion:
    """Return the version that the next publication of a name gets."""
    return IdeaVersion(name, store.publications.last_version(name) + 1)


def asking_calls(store: Store, catalogue: Catalogue, calls: list[JSON]) -> list[int]:
    """Return the places of the calls in a plan that ask a model each time they run: latent calls,
    clean rooms, and calls to ideas that a mind solves again or whose plans contain such calls.
    """
    places: list[int] = []
    for place, call in enumerate(written_calls(calls)):
        if _asks(store, catalogue, call, visited=set()):
            places.append(place)

    return places


def _asks(store: Store, catalogue: Catalogue, call: WrittenCall, visited: set[IdeaVersion]) -> bool:
    """Return whether a call asks a model. `visited` contains the ideas that have already been
    examined.
    """
    if call.has_result:
        return False

    tool = catalogue.look_up(call)
    if tool is None and call.module == ANONYMOUS:
        # A clean room asks a model.
        return True
    if tool is not None and (tool.asks_mind or tool.key in catalogue.latent):
        return True

    # The call itself asks no model, so look into the idea that it might name.
    for idea in called_ideas(store, [call]):
        version = IdeaVersion.of(idea)
        if version in visited:
            continue

        visited.add(version)
        if idea.guide is not None:
            # A mind solves this idea again each time it is called.
            return True
        if any(_asks(store, catalogue, inner, visited) for inner in _calls_of(idea)):
            return True

    return False


def cycle_through(
    store: Store, idea: IdeaVersion, calls: Iterable[WrittenCall]
) -> list[str] | None:
    """Return the chain of ideas through which a plan would call itself, or None if it would not.

    The plan consists of `calls`, and would be published as `idea`. The chain begins and ends with
    the name of `idea`.
    """
    # A call to another version of the same name is not a cycle, because a version never changes.
    own_modules = idea.modules
    # The plans that have not been examined yet, each with the chain of ideas that leads to it.
    waiting: list[tuple[list[str], list[WrittenCall]]] = [([idea.name], list(calls))]
    visited: set[IdeaVersion] = set()
    while waiting:
        chain, plan_calls = waiting.pop()
        if any(call.module in own_modules for call in plan_calls):
            return [*chain, idea.name]

        for called in called_ideas(store, plan_calls):
            version = IdeaVersion.of(called)
            if version not in visited:
                visited.add(version)
                waiting.append(([*chain, called.name], _calls_of(called)))

    return None


def called_ideas(store: Store, calls: Iterable[WrittenCall]) -> Iterator[Publication]:
    """Yield the publications that the calls name, skipping names without a publication."""
    for call in calls:
        if not is_idea(call.module):
            continue

        name = call.module.removeprefix(IDEA)
        publication = store.publications.look_up(name, caller=SEES_ALL)
        # Skip a publication that does not exist, because the check of the call itself reports it.
        if publication is not None:
            yield publication


def _calls_of(publication: Publication) -> list[WrittenCall]:
    """Return the calls in the idea's plan, plus one call for each idea that a mind can call when it
    solves the idea again.
    """
    plan = publication.plan_parts
    # The names that mean a tool of the plan or of this process, and therefore no idea.
    own_tools = set(plan.defined)
    for pin in read_pins(plan) or ():
        if not pin.module:
            own_tools.add(pin.tool)

    calls = with_plain_ideas(written_calls(plan.calls), own_tools)
    for module, name in publication.guide_parts.origins:
        calls.append(WrittenCall(name, module))
    return calls


def with_plain_ideas(calls: Iterable[WrittenCall], own: Collection[str]) -> list[WrittenCall]:
    """Return the calls, adding the server of the idea to each call that could refer to an idea.

    A call that names no server, and whose tool is not in `own`, refers to the idea of that name
    once one is published.
    """
    return [_with_plain_idea(call, own) for call in calls]


def _with_plain_idea(call: WrittenCall, own: Collection[str]) -> WrittenCall:
    if call.module is not None or call.has_result or call.tool in own:
        return call
    return dataclasses.replace(call, module=f"{IDEA}{call.tool}")


def without_cycles(store: Store, idea: IdeaVersion, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that cannot lead back to `idea` within a run of it."""
    return [tool for tool in tools if not _leads_to(store, idea, tool)]


def _leads_to(store: Store, idea: IdeaVersion, tool: Tool) -> bool:
    """Return whether a call to a tool could end up calling `idea`."""
    if not is_idea(tool.module):
        return False

    # Another version of the same idea counts, too.
    called_name, _, _ = tool.module.removeprefix(IDEA).partition("@")
    if called_name == idea.name:
        return True

    call = WrittenCall(tool.name, tool.module)
    return cycle_through(store, idea, [call]) is not None
