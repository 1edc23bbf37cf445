"""Check whether a published idea still works as it did when it was published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from ideabridge.bridge.context.explanations import COPIED_PART, same
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.consistency import inconsistency
from ideabridge.bridge.lifting.contrast import contrast
from ideabridge.bridge.lifting.evidence import explained_in
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.reading import are_small, read_beside
from ideabridge.bridge.runs.pins import PinCheck
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.replay import plan_of
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError


@dataclass(slots=True)
class Verdict:
    """The result of checking one publication.

    Attributes:
        name, version, answer: as in the publication.
        faults: one sentence for each problem. Empty if the publication still works.
        notes: notes on what was checked and what was not.
    """

    name: str
    version: int
    answer: str
    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


async def verify_offline(publication: Publication, store: Store, checked: PinCheck) -> Verdict:
    """Check, without running anything, whether tools of a publication are gone or changed, and
    whether its plan still reproduces its run.

    Reading the run does not block the event loop; see `reading`.

    Args:
        publication: the publication, whose run is in the store.
        store: contains the run.
        checked: the state of the tools that the publication calls.
    """
    verdict = Verdict(publication.name, publication.version, publication.answer)
    verdict.faults += checked.faults
    verdict.notes += checked.notes
    if publication.plan is None:
        if publication.guide is not None:
            verdict.notes.append("a mind is asked each time, so nothing was run to check it")
        else:
            verdict.notes.append("the answer comes from the store; nothing runs")
        return verdict

    if verdict.faults or publication.program is not None or not publication.recording.has_output:
        # A publication without a recorded output does not come from a run. Programs are checked by
        # `Publisher.verify`, which runs them in the sandbox.
        return verdict

    try:
        run = _run_of(publication, store)
        members: JSONObject = {
            member.name: getattr(publication, member.name) for member in fields(publication)
        }
        difference = await read_beside(
            difference_of,
            store,
            members,
            run,
            is_small=are_small(store, [run]),
            what=f"verifying {publication.name}",
        )
    except LimitExceededError as error:
        verdict.faults.append(str(error))
    except IdeabridgeError as error:
        verdict.notes.append(f"its run cannot be read: {error}")
    else:
        if difference is not None:
            verdict.faults.append(f"no longer self-consistent: {difference}")

    return verdict


def _run_of(publication: Publication, store: Store) -> str:
    """Return the id of the run that a published plan was lifted from.

    Raises:
        PublicationError, UnknownRunError: the run is not in this store.
    """
    run = publication.origin.run
    runs = [run] if run else store.ideas.runs_of(publication.idea_id)
    for candidate in runs:
        record = store.runs.get(candidate)
        if record is not None and record.status == "done":
            return candidate

    raise PublicationError("the run is not in this store")


def difference_of(store: Store, members: dict[str, Any], run_id: str) -> str | None:
    """Return how a published plan differs from its run when its calls return the recorded results,
    or None if it does not. `members` is the content of the publication.

    Raises:
        PublicationError, UnknownRunError: the run is not in this store, or cannot be compared.
    """
    publication = Publication(**members)
    run = read_run(store, run_id)
    if run is None:
        raise PublicationError("the run is not in this store")

    listed = publication.origin.places
    places: dict[int, int] | None = None
    if listed is not None:
        places = {place: index for place, index in enumerate(listed) if isinstance(index, int)}
        if any(isinstance(index, list) for index in listed):
            # This plan was published by an earlier version of ideabridge.
            raise PublicationError(
                "several of its calls became a single call in the plan, so they cannot be compared"
            )

    return inconsistency(run, plan_of(publication, publication.recording.input or {}), places)


def silent_defaults(published: PublishedPlan, lifted: PublishedPlan) -> list[str]:
    """Return a sentence for each recorded default that a plan uses without reporting it, although
    part of the value was copied from an earlier string. Earlier versions of ideabridge published
    such plans.

    Args:
        published: the published plan.
        lifted: the plan that its run becomes today, with the same choices.
    """
    reported = {literal.at for literal in explained_in(published.explained)}
    silent = [
        literal
        for literal in explained_in(lifted.explained)
        if literal.why == COPIED_PART and literal.at not in reported
    ]
    return [
        f"{'.'.join(literal.at)} takes its recorded value, although {COPIED_PART}, and no answer "
        "of the tool says so, because an earlier version published the tool. Publish it again, so "
        "that its answers say so"
        for literal in silent
    ]


def reason_not_to_run(calls: Iterable[JSON], tools: Catalogue, *, effects: bool) -> str | None:
    """Return why a plan must not be run just to compare its output, or None if it may be run."""
    for place, call in enumerate(written_calls(calls)):
        tool = tools.look_up(call)
        if tool is None:
            return f"calls.{place} has no tool here"
        if tool.key in tools.latent or tool.module == "anonymous":
            if not call.has_result:
                return f"calls.{place} ({tool.name}) asks a mind"
        elif tool.annotations.read_only is not True and not effects:
            return f"calls.{place} ({tool.name}) may do more than read"
    return None


def drift(run: Run, output: JSON) -> str | None:
    """Return how a run's output differs from the recorded output for the same input, or None if
    they are equal.
    """
    if run.status != "done":
        return f"it has no output: its run {run.id} is {run.status}"
    if run.errors():
        return f"calls failed: {rejection(run.errors())}"

    result = run.given()
    if same(result, output):
        return None
    return f"the output has changed: {contrast(result, output)}"
