"""Called: the ideas that a plan calls in rooms, as publication must know them (DESIGN 4.10, 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ideabridge.bridge.ideas.errors import UnknownPublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.encoding import JSON
from ideabridge.tools.tool import ANONYMOUS, IDEA


def asking_calls(store: Store, catalogue: Catalogue, calls: list[JSON]) -> list[int]:
    """The places of the calls of a plan for which a model is asked each time: latent ones, clean rooms, and ideas that
    are solved anew or whose plans have such calls.

    Args:
        store: holds the publications.
        catalogue: the tools there are.
        calls: as the plan lists them.
    """
    return [place for place, call in enumerate(calls) if _asks(store, catalogue, call, set())]


def _asks(store: Store, catalogue: Catalogue, call: JSON, seen: set[tuple[str, int]]) -> bool:
    if not isinstance(call, dict) or "_output" in call:
        return False
    tool = catalogue.look_up(call)
    if call.get("_module") == ANONYMOUS or (tool is not None and tool.key in catalogue.latent):
        return True
    for found in _called(store, [call]):
        if (found.name, found.version) not in seen:
            seen.add((found.name, found.version))
            if found.guide is not None or any(_asks(store, catalogue, below, seen) for below in _calls_of(found)):
                return True
    return False


def next_version(store: Store, name: str) -> int:
    """The version that the next publication of a name is."""
    try:
        return store.versions(name)[0].version + 1
    except UnknownPublicationError:
        return 1


def cycle_through(store: Store, name: str, version: int, calls: Iterable[JSON]) -> list[str] | None:
    """The ideas through which a plan that is, or is to be, published under a name would call itself, that name first
    and last; None: it would not.

    Args:
        store: holds the publications.
        name: what the plan is called.
        version: which version of the name it is; it may be named before it is there.
        calls: as the plan lists them.
    """
    # Any other version that is named stays what it is.
    own = (f"{IDEA}{name}", f"{IDEA}{name}@{version}")
    left: list[tuple[list[str], Iterable[JSON]]] = [([name], calls)]
    seen: set[tuple[str, int]] = set()
    while left:
        path, listed = left.pop()
        listed = list(listed)
        if any(isinstance(call, dict) and call.get("_module") in own for call in listed):
            return [*path, name]
        for found in _called(store, listed):
            if (found.name, found.version) not in seen:
                seen.add((found.name, found.version))
                left.append(([*path, found.name], _calls_of(found)))
    return None


def _called(store: Store, calls: Iterable[JSON]) -> Iterator[Publication]:
    """The publications that calls name, those that are there."""
    for call in calls:
        module = call.get("_module") if isinstance(call, dict) else None
        if not isinstance(module, str) or not module.startswith(IDEA):
            continue
        try:
            yield store.named(module.removeprefix(IDEA))
        except UnknownPublicationError:
            # One that is gone is told where the call itself is checked.
            continue


def _calls_of(publication: Publication) -> list[JSON]:
    """What it may call: the calls of its plan, and the ideas that a mind is offered where it is solved anew."""
    listed = (publication.plan or {}).get("calls")
    found: list[JSON] = list(listed) if isinstance(listed, list) else []
    offered = (publication.guide or {}).get("tools")
    found += [{"_module": pair[0]} for pair in (offered if isinstance(offered, list) else []) if isinstance(pair, list)]
    return found
