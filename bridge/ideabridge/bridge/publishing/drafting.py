"""Lift runs into plans without blocking the event loop.

The more calls and results a run has, the longer it takes to read the run, to explain its literals,
and to check its plan with the recorded results; see `reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from ideabridge.bridge.errors import NoPlanError, PublicationError
from ideabridge.bridge.lifting.choices import read_choices
from ideabridge.bridge.lifting.draft import PlanDraft, make_draft
from ideabridge.bridge.lifting.evidence import Record, read_record
from ideabridge.bridge.lifting.function import Function, read_function
from ideabridge.bridge.lifting.lift import lift_function
from ideabridge.bridge.lifting.lifted import arranged
from ideabridge.bridge.lifting.parameters import read_decisions
from ideabridge.bridge.lifting.plain import OpenPoint, open_points, read_open
from ideabridge.bridge.lifting.report import report_of
from ideabridge.bridge.publishing.guides import ShownPlan, guide_of
from ideabridge.bridge.publishing.outline import Outline, outline_of
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.publishing.teaching import records_of
from ideabridge.bridge.reading import are_small, read_beside
from ideabridge.bridge.runs.recorded import find_idea
from ideabridge.bridge.runs.stretch import KIND as SESSION_KIND
from ideabridge.bridge.store.idea import Answer
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.turns import asked_by


@dataclass(frozen=True, slots=True)
class Drafted:
    """A run that was lifted into a plan; see `PlanDraft`.

    Attributes:
        run: the run.
        runs: the other named runs of the same task.
        plan: the plan in the form of a publication.
        calls: the calls of the plan, with the tool names of the run.
        schema: the input schema of the tool.
        renamed: the new names of parameters, keyed by their names in the run.
        arguments: the input for which the tool repeats the run.
        places: for each call, its number in the run, a list of several numbers if calls were
            merged, or null if only a different run made the call. None for a run over instances.
        difference: why the plan is not self-consistent, or None if it is.
        fault: why the plan could not be checked for self-consistency, or None if it was checked.
        confirmed: the named runs that the plan reproduces.
        records: the evidence of the named runs.
        report: see `report_of`.
        open: the open points of the plan; see `lifting/plain.py`. Empty if the plan is plain.
    """

    run: str
    runs: list[JSON]
    plan: JSONObject
    calls: list[JSON]
    schema: JSONObject
    renamed: dict[str, str]
    arguments: JSONObject
    places: list[JSON] | None
    difference: str | None
    fault: str | None
    confirmed: list[JSON]
    records: list[Record]
    report: JSONObject
    open: list[JSON]


@dataclass(frozen=True, slots=True)
class OutlinedRun:
    """A run to publish.

    Attributes:
        outline: the facts about the run that publishing needs.
        draft: the plan of the run, or None if the run has no plan, is a program, or is solved again
            for each input.
        no_plan: why the run has no plan, or "" if it has one or needs none.
        function: the run itself, or None if another process read it.
    """

    outline: Outline
    draft: Drafted | None = None
    no_plan: str = ""
    function: Function | None = None


def _read_drafted(raw: JSON) -> Drafted:
    members = cast("dict[str, Any]", raw)
    members["records"] = [read_record(record) for record in members["records"]]
    return Drafted(**members)


def _read_outlined(raw: JSON) -> OutlinedRun:
    members = cast("dict[str, Any]", raw)
    draft = members["draft"]
    outline = Outline.from_json(members["outline"])
    return OutlinedRun(outline, None if draft is None else _read_drafted(draft), members["no_plan"])


class Drafting:
    """Lifts stored runs into plans."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def function(self, ref: str, caller: str) -> Function:
        """Read a run as a function, in a thread; see `read_function`."""
        return await compute_in_thread(read_function, self._store, ref, caller)

    async def draft(
        self,
        ref: str,
        caller: str,
        *,
        choices: JSONObject | None = None,
        parameters: JSONObject | None = None,
        strict: bool = False,
    ) -> Drafted:
        """Lift a run into a plan, and apply a person's decisions. For the arguments, see
        `Bridge.lift`.

        Raises:
            PublicationError: the run cannot become a plan, or a decision does not fit the plan.
            UnknownIdeaError, UnknownRunError: the caller has no such run, or no run that ended with
                this idea.
            LimitExceededError: the draft takes too long or too much memory.
        """
        runs = read_choices(choices).runs
        drafted = await self._compute(
            [ref, *runs], caller, draft_of, ref, caller, choices, parameters, strict
        )
        return _read_drafted(drafted)

    async def outlined(self, request: PublishRequest) -> OutlinedRun:
        """Return the outline of the run to publish, and its plan if the kind of answer needs one.

        Raises:
            PublicationError: the run cannot be published, or a decision does not fit its plan.
            UnknownIdeaError, UnknownRunError: the caller has no such run, or no run that ended with
                this idea.
            LimitExceededError: the draft takes too long or too much memory.
        """
        if request.program is not None or request.answer in ("program", "recorded"):
            function = await self.function(request.ref, request.caller)
            return OutlinedRun(outline_of(function), function=function)

        outlined = await self._compute(
            request.refs,
            request.caller,
            outlined_of,
            request.ref,
            request.caller,
            request.answer,
            request.choices.to_json(),
            request.parameters,
            request.strict,
        )
        # Use a thread, because a run can have thousands of tools.
        return await compute_in_thread(_read_outlined, outlined)

    async def guide(self, ref: str, caller: str, task: str, name: str) -> JSONObject | str:
        """Return the guide for publishing a run as `name`, or why the run cannot have one; see
        `guide_of`.
        """
        guide = await self._compute([ref], caller, run_guide, ref, caller, task, name)
        return guide if isinstance(guide, dict) else str(guide)

    async def open_points(self, refs: Sequence[str], caller: str) -> list[OpenPoint]:
        """Return the points that copied values leave open in runs of one task. The list is empty if
        the plan lifted from the runs is plain.
        """
        return read_open(await self._compute(refs, caller, points_of, list[JSON](refs), caller))

    async def _compute(
        self, refs: Sequence[str], caller: str, work: Callable[..., JSON], *arguments: JSON
    ) -> JSON:
        before = asked_by.set(caller)
        try:
            is_small = self._are_small(refs, caller)
            return await read_beside(
                work, self._store, *arguments, is_small=is_small, what=f"lifting {refs[0][:80]}"
            )
        finally:
            asked_by.reset(before)

    def _are_small(self, refs: Sequence[str], caller: str) -> bool:
        # Read the idea only to find its run.
        runs = [
            ref if self._store.runs.get(ref) else find_idea(self._store, ref, caller)[1]
            for ref in refs
        ]
        return are_small(self._store, runs)


# -- in the worker process, or in a thread ---------------------------------------------------------


def drafted(
    store: Store,
    function: Function,
    caller: str,
    choices: JSONObject | None,
    parameters: JSONObject | None,
    *,
    strict: bool,
) -> PlanDraft:
    """Return the draft of a run; see `Bridge.lift`.

    Raises:
        NoPlanError: the run cannot become a plan without other runs.
    """
    chosen = read_choices(choices)
    decisions = read_decisions(parameters)
    try:
        lifted = lift_function(function, store, caller, chosen.runs)
    except PublicationError as error:
        if chosen.runs:
            raise
        raise NoPlanError(str(error)) from None

    return make_draft(lifted, chosen, decisions, strict=strict)


def draft_of(
    store: Store,
    ref: str,
    caller: str,
    choices: JSONObject | None,
    parameters: JSONObject | None,
    strict: bool,
) -> JSONObject:
    """Return the members of `Drafted`; see `Drafting.draft`."""
    function = read_function(store, ref, caller)
    return _members_of(
        drafted(store, function, caller, choices, parameters, strict=strict), store, caller
    )


def outlined_of(
    store: Store,
    ref: str,
    caller: str,
    answer: Answer,
    choices: JSONObject,
    parameters: JSONObject,
    strict: bool,
) -> JSONObject:
    """Return the members of `OutlinedRun`; see `Drafting.outlined`."""
    function = read_function(store, ref, caller)
    outline = outline_of(function)
    members: JSONObject = {"outline": outline.to_json(), "draft": None, "no_plan": ""}
    if answer == "plan" or (answer == "auto" and outline.program is None):
        try:
            draft = drafted(store, function, caller, choices, parameters, strict=strict)
            members["draft"] = _members_of(draft, store, caller)
        except NoPlanError as error:
            members["no_plan"] = str(error)

    return members


def _members_of(draft: PlanDraft, store: Store, caller: str) -> JSONObject:
    """Return the members of `Drafted`."""
    lifted = draft.lifted
    difference: str | None = None
    fault: str | None = None
    confirmed: list[str] = []
    try:
        difference = draft.difference()
        confirmed, _ = draft.confirmations()
    except PublicationError as error:
        fault = str(error)

    places: list[JSON] | None = None
    if not lifted.function.instances:
        places = [lifted.aligned.recorded.get(place) for place in range(len(lifted.aligned.calls))]

    return {
        "run": lifted.function.run.id,
        "runs": list[JSON](other.run_id for other in lifted.others),
        "plan": draft.plan(),
        "calls": draft.calls,
        "schema": draft.inputs.schema,
        "renamed": dict[str, JSON](draft.inputs.renamed),
        "arguments": draft.arguments(lifted.aligned),
        "places": places,
        "difference": difference,
        "fault": fault,
        "confirmed": list[JSON](confirmed),
        "records": [record.to_json() for record in records_of(draft, caller)],
        "report": report_of(draft, store, caller),
        "open": _open_of(store, draft),
    }


def _open_of(store: Store, draft: PlanDraft) -> list[JSON]:
    """Return the open points of a draft, as JSON."""
    record = store.runs.get(draft.lifted.function.run.id)
    is_session = record is not None and record.kind == SESSION_KIND
    return [point.to_json() for point in open_points(draft, output_counts=not is_session)]


def run_guide(store: Store, ref: str, caller: str, task: str, name: str) -> JSONObject | str:
    """See `Drafting.guide`."""
    function = read_function(store, ref, caller)
    lifted: ShownPlan | None = None
    with suppress(PublicationError):
        # Ignore the error: even if the run cannot be lifted into a plan, a mind can solve the idea
        # again.
        arranged_run = arranged(function)
        lifted = ShownPlan(arranged_run.calls, arranged_run.output)
    return guide_of(function, lifted, task, store, name)


def points_of(store: Store, refs: list[str], caller: str) -> list[JSON]:
    """See `Drafting.open_points`."""
    first, *others = refs
    try:
        function = read_function(store, first, caller)
        draft = drafted(store, function, caller, {"runs": list[JSON](others)}, None, strict=False)
    except PublicationError as error:
        return [OpenPoint("no_plan", "", f"the run is not a plan: {error}").to_json()]
    return _open_of(store, draft)
