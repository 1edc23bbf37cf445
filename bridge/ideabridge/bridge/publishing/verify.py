"""Verify: check whether a published idea still works as it did when it was published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.draft import Choices, PlanDraft
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.lifting.lift import lift_function
from ideabridge.bridge.lifting.origins import contrast
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.runs.pins import PinCheck
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError


@dataclass(slots=True)
class Verdict:
    """What was found about one version of a name.

    Attributes:
        name, version, answer: of the publication.
        faults: what no longer holds, a sentence each; empty: it holds.
        notes: what was looked at, and what was not.
    """

    name: str
    version: int
    answer: str
    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def to_json(self) -> JSONObject:
        """As the command line tells it."""
        faults, notes = list[JSON](self.faults), list[JSON](self.notes)
        return {
            "name": self.name,
            "version": self.version,
            "answer": self.answer,
            "holds": not self.faults,
            "faults": faults,
            "notes": notes,
        }


def verify_offline(publication: Publication, store: Store, checked: PinCheck) -> Verdict:
    """What can be told without running anything: tools gone or changed, and whether the plan still does what its run
    did.

    Args:
        publication: what is published.
        store: holds its run.
        checked: how the tools that it calls are now.
    """
    verdict = Verdict(publication.name, publication.version, publication.answer)
    verdict.faults += checked.faults
    verdict.notes += checked.notes
    plan = publication.plan
    if plan is None:
        solved = publication.guide is not None
        verdict.notes.append(
            "a mind is asked each time; nothing is run" if solved else "answers from the store; nothing runs"
        )
        return verdict
    try:
        difference = None if verdict.faults else _again(publication, plan, store).difference()
    except IdeabridgeError as error:
        verdict.notes.append(f"its run cannot be looked at: {error}")
    else:
        verdict.faults += [] if difference is None else [f"not self-consistent any more: {difference}"]
    return verdict


def _again(publication: Publication, plan: JSONObject, store: Store) -> PlanDraft:
    """The published plan beside the run it was lifted from.

    Raises:
        PublicationError, UnknownRunError: that run is not in this store.
    """
    lifting = plan.get("lifting")
    run = lifting.get("run") if isinstance(lifting, dict) else None
    runs = [str(run)] if run else store.ideas.runs_of(publication.idea_id)
    found = next((one for one in runs if (record := store.runs.get(one)) is not None and record.status == "done"), None)
    record = store.runs.get(found) if found is not None else None
    if record is None:
        raise PublicationError("it is not in this store")
    lifted = lift_function(read_function(store, record.id, record.caller), store, record.caller, ())
    calls = plan.get("calls")
    return PlanDraft(lifted, Choices(), calls if isinstance(calls, list) else [], plan.get("output"))


def reason_not_to_run(calls: Iterable[JSON], tools: Catalogue, *, effects: bool) -> str | None:
    """Why a plan is not run only to compare what it gives; None: it may be."""
    for place, call in enumerate(calls):
        tool = tools.look_up(call) if isinstance(call, dict) else None
        if tool is None or not isinstance(call, dict):
            return f"calls.{place} has no tool here"
        if tool.key in tools.latent or tool.module == "anonymous":
            if "_output" not in call:
                return f"calls.{place} ({tool.name}) asks a mind"
        elif tool.annotations.read_only is not True and not effects:
            return f"calls.{place} ({tool.name}) may do more than read"
    return None


def drift(run: Run, output: JSON) -> str | None:
    """What is different from the recorded output in a run of the same input; None: nothing."""
    if run.status != "done":
        return f"it gave no output: its run {run.id} is {run.status}"
    if run.errors():
        return f"calls failed: {rejection(run.errors())}"
    given = run.given()
    if content_hash(given) == content_hash(output):
        return None
    return f"the output drifted: {contrast(given, output)}"
