"""Events: what happened in a run, in order. The journal is a list of them, and folding it again gives the run back.

Each is journaled before it is acted on, so an event holds everything the machine needs to take the
same step again: no clock, no network, no lookup.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast, get_args

from ideabridge.bridge.context.inquiry import Action
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

# -- journaled -------------------------------------------------------------------------------------------------------
#
# Journaled: what every event is to the journal: a name, and members that are JSON.


class JournalError(IdeabridgeError):
    """A journal that cannot be folded: an event nobody knows, or one that does not fit the run's state."""


@dataclass(frozen=True, slots=True)
class Journaled:
    """Base of every event. Its member `by` is a `Decider`; all others are JSON."""

    name: ClassVar[str]

    def to_json(self) -> JSONObject:
        """The event as the journal holds it; members that stand at None of themselves are left out."""
        result: JSONObject = {"event": self.name}
        for name, is_null_by_default in _members(type(self)):
            value: JSON = getattr(self, name)
            if name == "by":
                # A `Decider`, the one member that is no JSON by itself.
                value = getattr(self, name).to_json()
            # A call that is null must be read again as one: only what is null by default goes without saying.
            if value is not None or not is_null_by_default:
                result[name] = value
        return result


@dataclass(frozen=True, slots=True)
class OfCall(Journaled):
    """Base of every event that belongs to a call, which `call` names by its place in the run.

    Attributes:
        tool_name: the call's tool. `Run.events` fills it in; the journal does not hold it, for it holds the call.
    """

    call: int
    tool_name: str = field(default="", kw_only=True, compare=False, metadata={"journaled": False})


@cache
def _members(kind: type[Journaled]) -> tuple[tuple[str, bool], ...]:
    """(name, whether it is null by default) of each member that the journal holds."""
    held = (member for member in fields(kind) if member.metadata.get("journaled", True))
    return tuple((member.name, member.default is None) for member in held)


# -- decider ---------------------------------------------------------------------------------------------------------
#
# Decider: who decided on a question of a run, as the journal keeps it.

DeciderKind: TypeAlias = Literal["person", "assistant", "approver", "nobody", "unknown"]
"""`person`: a person was shown the question and answered; `assistant`: the model of a client, with `decide_approval`;
`approver`: the code of a program that embeds ideabridge; `nobody`: a time-out, or the question lapsed; `unknown`: a
journal of an earlier version, which kept a text only.
"""

Via: TypeAlias = Literal[
    "form", "terminal", "page", "command", "tool", "code", "time-out", "fork", "bridge", "module", "text"
]
"""The way an answer came. `command`: a command line that nobody typed at a prompt, such as a script; `tool`:
`decide_approval`; `code`: an approver or `Run.decide`; `fork`: it had run before the fork; `bridge`: the process in
which the call waited has died; `module`: the module took its question back; `text`: an earlier version's journal.
"""

LOCAL_USER: Final = "local"
"""The user at this machine, who needs no name where only one person uses the server."""

_TEXTS: Final[dict[tuple[DeciderKind, Via], str]] = {
    ("person", "form"): "the person at the client",
    ("person", "terminal"): "the person at the terminal",
    ("person", "page"): "the person at the local page",
    ("person", "command"): "the command line",
    ("assistant", "tool"): "the assistant",
    ("approver", "code"): "the approver",
    ("nobody", "time-out"): "the time-out",
    ("nobody", "command"): "the command line",
    ("nobody", "fork"): "fork",
    ("nobody", "bridge"): "the bridge",
    ("nobody", "module"): "the module",
}
"""What is said of each. Journals of earlier versions hold these texts: they are read back to what they stood for."""

_BY_TEXT: Final = {text: key for key, text in reversed(_TEXTS.items()) if key != ("assistant", "tool")}


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decided.

    Attributes:
        kind: who it was; see `DeciderKind`.
        via: the way the answer came; see `Via`.
        user: of a person or an assistant: the user of the server (`local`, or a name); of an approver: the name it
            uses; of an earlier journal: what it said.
    """

    kind: DeciderKind
    via: Via
    user: str | None = None

    def __str__(self) -> str:
        if self.kind == "unknown" or (self.kind == "approver" and self.user):
            return self.user or "somebody"
        text = _TEXTS.get((self.kind, self.via), f"{self.kind}, {self.via}")
        return text if self.user in (None, LOCAL_USER) else f"{text} ({self.user})"

    def to_json(self) -> JSONObject:
        """`{"kind", "via"}`, and `user` where there is one."""
        told: JSONObject = {"kind": self.kind, "via": self.via}
        if self.user is not None:
            told["user"] = self.user
        return told


def decider_of(by: str | Decider) -> Decider:
    """Who decided, where a program may name its approver by a text alone."""
    return by if isinstance(by, Decider) else Decider("approver", "code", by)


def read_decider(value: JSON) -> Decider:
    """Who decided, as a journal holds it: a text in those of earlier versions.

    Raises:
        JournalError: it is neither.
    """
    if isinstance(value, str):
        known = _BY_TEXT.get(value)
        return Decider("unknown", "text", value) if known is None else Decider(*known)
    if isinstance(value, dict):
        kind, via, user = value.get("kind"), value.get("via"), value.get("user")
        if kind in get_args(DeciderKind) and via in get_args(Via) and (user is None or isinstance(user, str)):
            held: tuple[Any, Any] = kind, via
            return Decider(cast("DeciderKind", held[0]), cast("Via", held[1]), user)
    raise JournalError(f"by: expected who decided, as {{kind, via, user?}} or a text, found {str(value)[:100]!r}")


APPROVER: Final = Decider("approver", "code")
AT_TERMINAL: Final = Decider("person", "terminal", LOCAL_USER)
BY_COMMAND: Final = Decider("person", "command", LOCAL_USER)
TIME_OUT: Final = Decider("nobody", "time-out")
FORK: Final = Decider("nobody", "fork")
NOBODY_THERE: Final = Decider("nobody", "command")
BRIDGE: Final = Decider("nobody", "bridge")
MODULE: Final = Decider("nobody", "module")


# -- inquiry event ---------------------------------------------------------------------------------------------------
#
# Events of what modules ask while they answer a call. `loop.event` lists them among all events.


@dataclass(frozen=True, slots=True)
class QuestionAsked(OfCall):
    """The module of a call (or one item) that runs asks whoever made it. `message` and `schema` (of the form) are the
    module's words; `digest` is the hash of the question, `at` when it came, in seconds since 1970.
    """

    name: ClassVar[str] = "question_asked"
    approval: str
    digest: str
    module: str
    message: str
    schema: JSONObject
    item: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class QuestionAnswered(OfCall):
    """What goes back to the module: `accept` with the content of the form, `decline`, or `cancel`."""

    name: ClassVar[str] = "question_answered"
    digest: str
    action: Action
    by: Decider
    item: int | None = None
    content: JSONObject | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionRefused(OfCall):
    """A module asked what was put before nobody: no form, too large, or nobody knows which call it belongs to."""

    name: ClassVar[str] = "question_refused"
    module: str
    message: str
    why: str
    item: int | None = None


# -- event -----------------------------------------------------------------------------------------------------------

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
