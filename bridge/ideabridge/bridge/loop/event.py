"""Events: what happened in a run, in order. The journal is a list of them, and folding it again gives the run back.

Each is journaled before it is acted on, so an event holds everything the machine needs to take the
same step again: no clock, no network, no lookup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from ideabridge.bridge.loop.decider import Decider, read_decider
from ideabridge.bridge.loop.inquiry_event import QuestionAnswered as QuestionAnswered
from ideabridge.bridge.loop.inquiry_event import QuestionAsked as QuestionAsked
from ideabridge.bridge.loop.inquiry_event import QuestionRefused as QuestionRefused
from ideabridge.bridge.loop.journaled import Journaled, OfCall
from ideabridge.bridge.loop.journaled import JournalError as JournalError
from ideabridge.tools.encoding import JSON, JSONObject

EndStatus: TypeAlias = Literal["done", "stalled", "limit", "cancelled", "failed"]
"""How a run ended."""


Pattern: TypeAlias = Literal["all", "any", "race"]
"""What the calls of one Solution are to each other; see `loop.group`."""


@dataclass(frozen=True, slots=True)
class RunStarted(Journaled):
    """A run begins. `tools` are full definitions: a journal can be folded while modules are down. `mind` names the
    mind that was chosen, None: by turns; `why` says in words why it was. `idea` is the idea it was made from.
    """

    name: ClassVar[str] = "run_started"
    mode: Literal["plan", "solve"]
    context: list[JSON]
    tools: list[JSON]
    latent: list[JSON]
    settings: JSONObject
    output_schema: JSONObject | None = None
    mind: str | None = None
    why: str | None = None
    idea: str | None = None


@dataclass(frozen=True, slots=True)
class RequestMade(Journaled):
    """A Request went out to a mind. `request` is its id. `offered` is what handlers of messages made of
    the tools and the output schema, for this Request alone; see `loop.offered`.
    """

    name: ClassVar[str] = "request_made"
    step: int
    request: str
    offered: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class CallProposed(Journaled):
    """One Call was listed by the mind. `place` is given where several instances share a plan's place."""

    name: ClassVar[str] = "call_proposed"
    call: JSON
    place: int | None = None


@dataclass(frozen=True, slots=True)
class OutputProposed(Journaled):
    """The mind wrote an output that is not null. Wrapped, so that any JSON may stand in it."""

    name: ClassVar[str] = "output_proposed"
    output: JSON


@dataclass(frozen=True, slots=True)
class SolutionClosed(Journaled):
    """The answer ended; `broken` says why where it broke off. `extra` is what stood beside."""

    name: ClassVar[str] = "solution_closed"
    broken: str | None = None
    extra: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class UsageNoted(Journaled):
    """What the answer to the Request at hand took, as `Usage.to_json` tells it."""

    name: ClassVar[str] = "usage_noted"
    usage: JSONObject


@dataclass(frozen=True, slots=True)
class SolutionProposed(Journaled):
    """A solution arrived whole, was checked whole, and is taken up. `places` as in `CallProposed`. `mind` and `model`
    tell who wrote it, where that was not the caller by turns. With a `pattern` its calls are a group.
    """

    name: ClassVar[str] = "solution_proposed"
    calls: list[JSON]
    output: JSON = None
    extra: JSONObject | None = None
    places: list[JSON] | None = None
    mind: str | None = None
    model: str | None = None
    pattern: Pattern | None = None


@dataclass(frozen=True, slots=True)
class SolutionCancelled(Journaled):
    """Who handed the Solution in wants no more of it: its calls are cancelled, and the run goes on."""

    name: ClassVar[str] = "solution_cancelled"
    reason: str


@dataclass(frozen=True, slots=True)
class GroupCommitted(Journaled):
    """Every call of a group (`all`) has done its work: what `calls` wrote is seen from now on, by everybody."""

    name: ClassVar[str] = "group_committed"
    calls: list[JSON]


@dataclass(frozen=True, slots=True)
class SolutionRejected(Journaled):
    """A solution that arrived whole was malformed: nothing of it ran, and the Request stays open."""

    name: ClassVar[str] = "solution_rejected"
    solution: JSON
    errors: list[JSON]


@dataclass(frozen=True, slots=True)
class ApprovalAsked(OfCall):
    """A person is asked about a call. `digest` is the hash of the resolved call the decision is bound to, `at` when, in
    seconds since 1970: the machine does not look at it, time-outs do.
    """

    name: ClassVar[str] = "approval_asked"
    approval: str
    digest: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class CallDecided(OfCall):
    """A decision on a call: by whom, why, and the edited call where there is one.

    `tool` is the full definition of another tool that runs in the call's place: a plan's journal holds only those that
    the plan names.
    """

    name: ClassVar[str] = "call_decided"
    digest: str
    decision: Literal["approve", "deny", "edit"]
    by: Decider
    reason: str | None = None
    edited: JSONObject | None = None
    tool: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class PlanAsked(Journaled):
    """A person is asked about a plan as a whole, of which nothing has run. `digest` is the hash of the
    plan the decision is bound to, `at` as in `ApprovalAsked`.
    """

    name: ClassVar[str] = "plan_asked"
    approval: str
    digest: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class PlanDecided(Journaled):
    """A decision on a plan as a whole. An edited plan is `calls`, `output` and `places`, as in `SolutionProposed`: a
    person wrote them as a plan's author, so their references are live.
    """

    name: ClassVar[str] = "plan_decided"
    digest: str
    decision: Literal["approve", "deny", "edit"]
    by: Decider
    reason: str | None = None
    calls: list[JSON] | None = None
    output: JSON = None
    places: list[JSON] | None = None


@dataclass(frozen=True, slots=True)
class CallStarted(OfCall):
    """A call (or one item of it) is about to run. Started and not finished: in flight."""

    name: ClassVar[str] = "call_started"
    item: int | None = None


@dataclass(frozen=True, slots=True)
class CallFinished(OfCall):
    """A call (or one item) ended: with a value, or with an error `{"kind", "message"}`.

    The error kind `cancelled`: its group was decided without it, or its Solution cancelled; it was told to stop.
    `chosen` is the output path an activity chose for itself, `spent` what its room has used, however that ended.
    """

    name: ClassVar[str] = "call_finished"
    item: int | None = None
    value: JSON = None
    error: JSONObject | None = None
    chosen: str | None = None
    spent: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class OutcomeAsked(OfCall):
    """Nobody knows what came of a call (or one item) that was in flight: a person is asked. `digest` is the
    hash of the question, `at` as in `ApprovalAsked`. `why` says what happened; None: the process died.
    """

    name: ClassVar[str] = "outcome_asked"
    approval: str
    digest: str
    item: int | None = None
    at: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class OutcomeDecided(OfCall):
    """A person said what came of it: `value`: that is its result; `skip`: it fails, `error` says how; `retry`: it runs
    again.
    """

    name: ClassVar[str] = "outcome_decided"
    digest: str
    decision: Literal["retry", "skip", "value"]
    by: Decider
    item: int | None = None
    reason: str | None = None
    value: JSON = None
    error: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class MessageAdded(OfCall):
    """An activity added a message for the next Request."""

    name: ClassVar[str] = "message_added"
    message: JSONObject


@dataclass(frozen=True, slots=True)
class RunEnded(Journaled):
    """The run is over. `spent` is what rooms of it have used that were open until now, and end with it."""

    name: ClassVar[str] = "run_ended"
    status: EndStatus
    reason: str | None = None
    spent: JSONObject | None = None


Event: TypeAlias = (
    RunStarted
    | RequestMade
    | CallProposed
    | OutputProposed
    | SolutionClosed
    | UsageNoted
    | SolutionProposed
    | SolutionCancelled
    | GroupCommitted
    | SolutionRejected
    | ApprovalAsked
    | CallDecided
    | PlanAsked
    | PlanDecided
    | CallStarted
    | CallFinished
    | OutcomeAsked
    | OutcomeDecided
    | QuestionAsked
    | QuestionAnswered
    | QuestionRefused
    | MessageAdded
    | RunEnded
)

_BY_NAME: dict[str, type[Event]] = {kind.name: kind for kind in get_args(Event)}


def event_from_json(value: JSONObject) -> Event:
    """The event a journal holds.

    Raises:
        JournalError: an event nobody knows, or members that do not fit it (a newer store, or a damaged one).
    """
    members: dict[str, Any] = dict(value)
    kind = _BY_NAME.get(str(members.pop("event", None)))
    if kind is None:
        raise JournalError(
            f"unknown event {value.get('event')!r} in the journal; was it written by a newer ideabridge?"
        )
    if "by" in members:
        members["by"] = read_decider(members["by"])
    try:
        return kind(**members)
    except TypeError as error:
        raise JournalError(f"event {kind.name} in the journal does not fit: {error}") from None
