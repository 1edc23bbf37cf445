"""Adopt: publish an idea that was made elsewhere; nothing it says of itself is believed (DESIGN 4.11, 7)."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.portable import Document
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import CAUTIOUS, Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.called import cycle_through
from ideabridge.bridge.replay.replay import read_published
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations


@dataclass(frozen=True, slots=True)
class Adopted:
    """What an import did.

    Attributes:
        idea_id: the saved idea.
        publication: the new version of a name, where it was published too.
        before: what the name stood for until then; None: it was free.
    """

    idea_id: str
    publication: Publication | None = None
    before: Publication | None = None


def offered_plan(document: Document) -> Plan | None:
    """The plan a document would be answered by, with the input it was recorded with; None: by none, whatever plan
    stands in it.
    """
    told = document.publication_members()
    plan: JSON = told["plan"]
    recorded: JSON = told["recorded"]
    if told["answer"] in ("recorded", "solve") or not isinstance(plan, dict):
        return None
    given = recorded.get("input") if isinstance(recorded, dict) else None
    arguments: JSONObject = given if isinstance(given, dict) else {}
    return read_published(plan, arguments, told["input_schema"], told["output_schema"], name=told["name"])


def known_calls(plan: Plan, catalogue: Catalogue) -> bool:
    """Whether every call of a plan has a tool here."""
    return all(isinstance(call, dict) and catalogue.look_up(call) is not None for call in plan.calls)


def check_circle(store: Store, name: str, calls: list[JSON]) -> None:
    """Refuse a plan that would call itself once it is published.

    Raises:
        PublicationError: it would; the message names the ideas on the way.
    """
    cycle = cycle_through(store, name, calls)
    if cycle is not None:
        raise PublicationError(f"publication.plan: it would call itself: {' -> '.join(cycle)}")


def honest_annotations(plan: Plan | None, here: Catalogue, offered: Catalogue) -> JSONObject:
    """What can be said of a plan by the tools there are here; of one that calls an unknown tool the worst, for that
    tool may come.

    Args:
        plan: None: it has none, so that nothing is known.
        here: the tools here, and those of the rooms it names.
        offered: these, and the tools it defines itself: what it says of those that run is not believed.
    """
    said: list[Annotations] = []
    for call in plan.calls if plan is not None else [None]:
        own = offered.look_up(call) if isinstance(call, dict) else None
        if own is not None and own.key in offered.latent:
            # Only a mind is asked.
            continue
        tool = here.look_up(call) if isinstance(call, dict) else None
        if tool is None:
            return dict(CAUTIOUS)
        said.append(tool.annotations)
    return {
        "readOnlyHint": all(one.read_only is True for one in said),
        "destructiveHint": any(one.read_only is not True and one.destructive is not False for one in said),
        "idempotentHint": all(one.repeatable for one in said),
        "openWorldHint": any(one.open_world is not False for one in said),
    }
