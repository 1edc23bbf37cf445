"""What happened in a run, as events. The journal of a run is the list of its events, in order.

The runner journals each event before acting on it, and folding the journal produces the same
machine. An event therefore contains everything that the machine needs to process it without a
clock, a network or a lookup.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeGuard, cast, get_args

from ideabridge.bridge.context.inquiry import Action
from ideabridge.bridge.context.request import Request
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError


class JournalError(IdeabridgeError):
    """Raised when the journal cannot be folded, because an event is unknown or does not fit the
    state of the run.
    """


@dataclass(frozen=True, slots=True)
class Journaled:
    """The base class of all events.

    The `by` member, if present, is a `Decider`. All other members are JSON.
    """

    name: ClassVar[str]

    def to_json(self) -> JSONObject:
        """Return the event as stored in the journal. Members that are None by default are omitted
        if they are None.
        """
        result: JSONObject = {"event": self.name}
        for name, is_null_by_default in _members(type(self)):
            value: JSON = getattr(self, name)
            if name == "by":
                # This is a `Decider`, the only kind of member that is not JSON.
                value = getattr(self, name).to_json()
            # If a member's default is not None, as for a call, store the member even if it is null.
            if value is not None or not is_null_by_default:
                result[name] = value

        return result


@dataclass(frozen=True, slots=True)
class OfCall(Journaled):
    """The base class of events about a call. `call` is the call's index in the run.

    Attributes:
        tool_name: the name of the call's tool, which is not stored in the journal but added by
            `Run.events`.
    """

    call: int
    tool_name: str = field(default="", kw_only=True, compare=False, metadata={"journaled": False})


@cache
def _members(kind: type[Journaled]) -> tuple[tuple[str, bool], ...]:
    """Return the name of each member stored in the journal, and whether its default is None."""
    journaled = (member for member in fields(kind) if member.metadata.get("journaled", True))
    return tuple((member.name, member.default is None) for member in journaled)


# -- deciders --------------------------------------------------------------------------------------

DeciderKind: TypeAlias = Literal["person", "assistant", "approver", "nobody"]
"""Who decided. `person`: a person who saw the question and answered it. `assistant`: a client's
model, with `decide_approval`. `approver`: the code of a program that embeds ideabridge. `nobody`:
the time limit passed, or the question no longer applied.
"""

Via: TypeAlias = Literal[
    "form", "terminal", "page", "command", "tool", "code", "time-out", "fork", "bridge", "module"
]
"""How the answer was given. `command`: by a command line that was not typed at a prompt, for
example in a script. `tool`: through `decide_approval`. `code`: by an approver or through
`Run.decide`. `fork`: the call had run before the fork. `bridge`: the process in which the call was
waiting has died. `module`: the server withdrew its question.
"""

LOCAL_USER: Final = "local"
"""The user of this machine, who needs no name as long as nobody else uses the server."""

_TEXTS: Final[dict[tuple[DeciderKind, Via], str]] = {
    ("person", "form"): "the person at the client",
    ("person", "terminal"): "the person at the terminal",
    ("person", "page"): "the person at the local page",
    ("person", "command"): "the command line",
    ("assistant", "tool"): "the assistant",
    ("approver", "code"): "the approver",
    ("nobody", "time-out"): "the timeout",
    ("nobody", "command"): "the command line",
    ("nobody", "fork"): "the fork",
    ("nobody", "bridge"): "the bridge",
    ("nobody", "module"): "the server",
}
"""The phrases for each kind of decider in messages. Only `Decider.__str__` uses them, so a message
attributes a decision to a person only if the journal does too.
"""


@dataclass(frozen=True, slots=True)
class Decider:
    """The person or program that made a decision.

    Attributes:
        kind: the kind of the decider; see `DeciderKind`.
        via: how the answer was given; see `Via`.
        user: the user of the server (`local`, or a name) if a person or an assistant decided;
            otherwise, the name of the approver.
    """

    kind: DeciderKind
    via: Via
    user: str | None = None

    def __str__(self) -> str:
        if self.kind == "approver" and self.user:
            return self.user
        text = _TEXTS.get((self.kind, self.via), f"{self.kind}, {self.via}")
        return text if self.user in (None, LOCAL_USER) else f"{text} ({self.user})"

    def to_json(self) -> JSONObject:
        """Return `{"kind", "via", "user"?}`."""
        members: JSONObject = {"kind": self.kind, "via": self.via}
        if self.user is not None:
            members["user"] = self.user
        return members


def decider_of(by: str | Decider) -> Decider:
    """Return the value as a `Decider`. A string is taken as the name of an approver."""
    if isinstance(by, Decider):
        return by
    return Decider("approver", "code", by)


def read_decider(value: JSON) -> Decider:
    """Read a decider from a journal.

    Raises:
        JournalError: `value` is not a decider.
    """
    if isinstance(value, dict):
        kind = value.get("kind")
        via = value.get("via")
        user = value.get("user")
        if (
            kind in get_args(DeciderKind)
            and via in get_args(Via)
            and (user is None or isinstance(user, str))
        ):
            kind_and_via: tuple[Any, Any] = kind, via
            return Decider(cast("DeciderKind", kind_and_via[0]), cast("Via", kind_and_via[1]), user)
    raise JournalError(
        f"by: expected the decider as {{kind, via, user?}}, found {str(value)[:100]!r}"
    )


def decider_text(event: JSONObject) -> str:
    """Return a phrase that says who made a decision. `event` is the decision's event as stored in
    the journal.

    If a grant or a standing rule approved the call, nobody was asked, so the phrase names the grant
    or the rule. Return "" if the journal does not say who decided, or uses a form unknown to this
    version.
    """
    try:
        by = read_decider(event.get("by"))
    except JournalError:
        return ""
    granted = event.get("granted")
    rule = event.get("rule")
    if granted is not None:
        return f"the grant of call {granted} by {by}"
    if isinstance(rule, dict):
        return f"{rule_text(rule)} by {by}"
    return str(by)


def rule_text(rule: JSONObject) -> str:
    """Return a phrase that identifies a standing rule from a journal.

    The phrase contains the rule's id and the day on which the rule was created.
    """
    return f"the standing rule {rule.get('id')} of {str(rule.get('at'))[:10]}"


def denial_text(by: str | Decider, reason: str | None) -> str:
    """Return a sentence that says why a denied call did not run."""
    who = f" by {by}" if str(by) else ""
    return f"denied{who}: {reason or 'no reason given'}"


APPROVER: Final = Decider("approver", "code")
AT_TERMINAL: Final = Decider("person", "terminal", LOCAL_USER)
BY_COMMAND: Final = Decider("person", "command", LOCAL_USER)
TIME_OUT: Final = Decider("nobody", "time-out")
FORK: Final = Decider("nobody", "fork")
NOBODY_THERE: Final = Decider("nobody", "command")
BRIDGE: Final = Decider("nobody", "bridge")
MODULE: Final = Decider("nobody", "module")


# -- questions of servers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuestionAsked(OfCall):
    """The server that runs a call or item asks the caller a question.

    `message` and the form's `schema` come from the server. `digest` is the hash of the question,
    and `at` is when it was asked, in seconds since 1970.
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
    """The server received an answer: `accept` with the content of the form, `decline`, or
    `cancel`.
    """

    name: ClassVar[str] = "question_answered"
    digest: str
    action: Action
    by: Decider
    item: int | None = None
    content: JSONObject | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionRefused(OfCall):
    """A server's question was not passed to anyone, because it is not a form, is too large, or
    belongs to an unknown call.
    """

    name: ClassVar[str] = "question_refused"
    module: str
    message: str
    why: str
    item: int | None = None


# -- the events of a run ---------------------------------------------------------------------------

EndStatus: TypeAlias = Literal["done", "stalled", "limit", "cancelled", "failed"]
"""The status of a run that has ended."""


Pattern: TypeAlias = Literal["all", "any", "race"]
"""How the calls in a Solution depend on each other's success; see `Group`."""


@dataclass(frozen=True, slots=True)
class RunStarted(Journaled):
    """A run begins.

    `tools` contains full definitions, so that a journal can be folded while servers are down.
    `mind` is the name of the mind, or None if the caller answers turn by turn. `why` says why that
    mind was chosen. `idea` is the id of the idea that the run was created from. `traceparent` is
    the trace of the request that started the run (W3C Trace Context). `bound` contains, for each
    server that the run can call, a digest of the server's start definition; see `Binding`. Journals
    from earlier versions do not have `bound`.
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
    traceparent: str | None = None
    bound: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationChanged(Journaled):
    """The run continues with a different configuration, identified by `fingerprint`.

    `approval` is the approval setting from now on. It combines the earlier rules with those in the
    new configuration, and the strictest of all these rules decides. `rules` is the version of the
    rules for calls from now on; see `Settings`.
    """

    name: ClassVar[str] = "configuration_changed"
    fingerprint: str
    approval: JSON
    rules: int = 0


@dataclass(frozen=True, slots=True)
class RequestMade(Journaled):
    """A Request was made.

    `request` is its id. `offered` contains the tools and the output schema of this Request if
    message handlers changed them; see `change_of_offer`. `bytes` is the size of what the mind
    reads; see `Request.size`. `members` contains the schemas of the members that handlers added to
    the Solution. It is None in older journals, whose Solutions can have any members.
    """

    name: ClassVar[str] = "request_made"
    step: int
    request: str
    offered: JSONObject | None = None
    bytes: int | None = None
    members: JSONObject | None = None

    @classmethod
    def of(cls, step: int, request: Request) -> RequestMade:
        """Return the event for a Request."""
        return cls(
            step, request.id, request.offered, request.size, dict[str, JSON](request.members)
        )


@dataclass(frozen=True, slots=True)
class CallProposed(Journaled):
    """The mind listed a call. `place` is set if several instances share the place of a call in a
    plan. `unreached` is the line of a published program that makes this call, if no recorded run
    reached the line.
    """

    name: ClassVar[str] = "call_proposed"
    call: JSON
    place: int | None = None
    unreached: int | None = None


@dataclass(frozen=True, slots=True)
class OutputProposed(Journaled):
    """The mind wrote an output that is not null."""

    name: ClassVar[str] = "output_proposed"
    output: JSON


@dataclass(frozen=True, slots=True)
class SolutionClosed(Journaled):
    """The answer ended. If it was cut off, `broken` says why. `extra` contains the other members of
    the answer.

    For a program, `error` says why the program ended without a value, and `unheard` lists the calls
    whose results it did not use.
    """

    name: ClassVar[str] = "solution_closed"
    broken: str | None = None
    extra: JSONObject | None = None
    error: JSONObject | None = None
    unheard: list[JSON] | None = None


@dataclass(frozen=True, slots=True)
class ProgramProposed(Journaled):
    """A Solution is a program, which runs and proposes calls.

    `interpreter` is the name and version of the interpreter. `now` is the constant time that the
    program sees, in seconds since 1970, and `seed` is the seed of its random numbers. `names` maps
    names in the program to the tools that they call (`ProgramNames.used_by`). `extra`, `mind` and
    `model` are as in `SolutionProposed`. `reached` lists the places `[line, column]` of the calls
    that recorded runs made, or is null if the program was not compared with recordings. `assumed`
    says what is uncertain about the program's input, in the form of `Settled.assumed`.
    """

    name: ClassVar[str] = "program_proposed"
    program: str
    interpreter: str
    now: float
    seed: str
    names: JSONObject
    extra: JSONObject | None = None
    mind: str | None = None
    model: str | None = None
    reached: list[JSON] | None = None
    assumed: list[JSON] | None = None


@dataclass(frozen=True, slots=True)
class Printed(Journaled):
    """The program printed text."""

    name: ClassVar[str] = "printed"
    text: str


@dataclass(frozen=True, slots=True)
class UsageNoted(Journaled):
    """The usage for the answer to the current Request, as `Usage.to_json`."""

    name: ClassVar[str] = "usage_noted"
    usage: JSONObject


@dataclass(frozen=True, slots=True)
class SolutionProposed(Journaled):
    """A Solution that arrived in one piece is accepted into the run.

    `places` is as in `CallProposed`. `mind` and `model` say who wrote the Solution. They are not
    set if a caller who answers turn by turn wrote it. If `pattern` is set, the Solution's calls
    form a group. `explained` says how literals in a published plan are computed; see
    `context/plan_literals.py`.
    """

    name: ClassVar[str] = "solution_proposed"
    calls: list[JSON]
    output: JSON = None
    extra: JSONObject | None = None
    places: list[JSON] | None = None
    mind: str | None = None
    model: str | None = None
    pattern: Pattern | None = None
    explained: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class SolutionCancelled(Journaled):
    """The Solution's author cancelled it. Its calls are cancelled, and the run continues."""

    name: ClassVar[str] = "solution_cancelled"
    reason: str


@dataclass(frozen=True, slots=True)
class GroupCommitted(Journaled):
    """Every call in a group (`all`) has succeeded, so what `calls` wrote is visible from now on."""

    name: ClassVar[str] = "group_committed"
    calls: list[JSON]


@dataclass(frozen=True, slots=True)
class SolutionRejected(Journaled):
    """A malformed Solution arrived in one piece. No part of it ran, and the Request remains
    open.
    """

    name: ClassVar[str] = "solution_rejected"
    solution: JSON
    errors: list[JSON]


@dataclass(frozen=True, slots=True)
class ApprovalAsked(OfCall):
    """A person is asked about a call.

    `digest` is the hash of the resolved call, and the decision is bound to it. `at` is the time in
    seconds since 1970, which is used only for timeouts.
    """

    name: ClassVar[str] = "approval_asked"
    approval: str
    digest: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class CallDecided(OfCall):
    """A decision about a call, with the decider, the reason, and the edited call, if any.

    `tool` is the full definition of a tool that replaces the call's own. The event contains it
    because the journal of a plan has only the tools that the plan names. `grant` is what the person
    who approved this call also allows for the rest of the run. `granted` is the call whose grant
    approved this call without a question (see `grant.py`). `always` is the id of the standing rule
    that a person created with this approval. `rule` is the standing rule that approved the call
    without asking, as `{"id", "at"}`, where `at` is the time when the rule was created, as ISO 8601
    in UTC. In that case, `by` is the person who created it.
    """

    name: ClassVar[str] = "call_decided"
    digest: str
    decision: Literal["approve", "deny", "edit"]
    by: Decider
    reason: str | None = None
    edited: JSONObject | None = None
    tool: JSONObject | None = None
    grant: JSONObject | None = None
    granted: int | None = None
    always: str | None = None
    rule: JSONObject | None = None

    @property
    def was_asked(self) -> bool:
        """True if someone was asked about this call, and False if a grant or a standing rule
        approved it.
        """
        return self.granted is None and self.rule is None


@dataclass(frozen=True, slots=True)
class PlanAsked(Journaled):
    """A person is asked about a plan before any part of it runs. `digest` and `at` are as in
    `ApprovalAsked`.
    """

    name: ClassVar[str] = "plan_asked"
    approval: str
    digest: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class PlanDecided(Journaled):
    """A decision about a plan.

    `calls`, `output` and `places` describe the edited plan, as in `SolutionProposed`. A person
    wrote the edited plan, and its references are resolved.
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
    """A call (or one of its items) is about to run. It is in flight until it finishes.

    If the process dies while the call is in flight, the next process that takes over the run starts
    a repeatable call again (`resume_events`), but does not journal a second `CallStarted`: as far
    as the journal is concerned, the call was in flight all along. After `OutcomeDecided` with
    `retry`, a call starts with a new event.
    """

    name: ClassVar[str] = "call_started"
    item: int | None = None


@dataclass(frozen=True, slots=True)
class CallFinished(OfCall):
    """A call (or one of its items) ended with a value, or with an error `{"kind", "message",
    "sent"?}`.

    `sent` is the content that the tool sent, unchecked. `content` contains the content blocks of
    the result if they contain more than the value. The error kind `cancelled` means that the call's
    group was decided by another call, or that its Solution was cancelled. `chosen` is the output
    path that an activity chose. `spent` is the usage of the call's room. `doubts` is what the
    room's run assumed: `{"assumed"?: [...], "notes"?: [...], "approved"?: [...]}`.

    This is not the only event that ends a call:

    - `OutcomeDecided` ends an execution whose outcome was unknown, unless it is repeated (see
      `ends_execution`). A `retry` also ends it if the current rules do not let the call run.
    - `CallDecided` with `deny` ends a call that has not run.
    - `RunEnded` ends every call in the run, and `SolutionCancelled` the calls in the Solution that
      have not started.
    - A call that cannot run (because it is malformed, a rule denies it, a value that it reads is
      missing, or its group is decided) ends with the event that rules it out.
    """

    name: ClassVar[str] = "call_finished"
    item: int | None = None
    value: JSON = None
    error: JSONObject | None = None
    chosen: str | None = None
    spent: JSONObject | None = None
    doubts: JSONObject | None = None
    content: JSON = None


@dataclass(frozen=True, slots=True)
class OutcomeAsked(OfCall):
    """The outcome of a call (or item) that was in flight is unknown, and a person is asked about
    it.

    `digest` is the hash of the question, and `at` is as in `ApprovalAsked`. `why` says what
    happened, or is None if the process died.
    """

    name: ClassVar[str] = "outcome_asked"
    approval: str
    digest: str
    item: int | None = None
    at: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class OutcomeDecided(OfCall):
    """A person answered a question about an unknown outcome.

    With `value`, `value` is the result of the call. With `skip`, the call fails with `error`. With
    `retry`, the call runs again.
    """

    name: ClassVar[str] = "outcome_decided"
    digest: str
    decision: Literal["retry", "skip", "value"]
    by: Decider
    item: int | None = None
    reason: str | None = None
    value: JSON = None
    error: JSONObject | None = None


def ends_execution(event: object) -> TypeGuard[CallFinished | OutcomeDecided]:
    """Return whether an event ends a started call or one of its items.

    Such an event contains the value or the error, and no `CallFinished` follows.
    """
    if isinstance(event, OutcomeDecided):
        return event.decision != "retry"
    return isinstance(event, CallFinished)


@dataclass(frozen=True, slots=True)
class MessageAdded(OfCall):
    """An activity added a message for the next Request."""

    name: ClassVar[str] = "message_added"
    message: JSONObject


@dataclass(frozen=True, slots=True)
class RunEnded(Journaled):
    """The run has ended. `spent` is the usage of the rooms that end along with it."""

    name: ClassVar[str] = "run_ended"
    status: EndStatus
    reason: str | None = None
    spent: JSONObject | None = None


Event: TypeAlias = (
    RunStarted
    | ConfigurationChanged
    | RequestMade
    | CallProposed
    | OutputProposed
    | SolutionClosed
    | ProgramProposed
    | Printed
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

AskedEvent: TypeAlias = ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked
"""Events that ask a person a question. Each contains the id of the question (`approval`), the
digest of what is shown, and the time.
"""

DecidedEvent: TypeAlias = CallDecided | OutcomeDecided | PlanDecided | QuestionAnswered
"""Events that answer a question. Each contains the digest of the question, and who answered."""

_BY_NAME: dict[str, type[Event]] = {kind.name: kind for kind in get_args(Event)}


def event_from_json(value: JSONObject) -> Event:
    """Read an event from a journal.

    Raises:
        JournalError: the event is unknown or has unsuitable members, because the store is newer or
            damaged.
    """
    members: dict[str, Any] = dict(value)
    kind = _BY_NAME.get(str(members.pop("event", None)))
    if kind is None:
        raise JournalError(
            f"unknown event {value.get('event')!r} in the journal; was it "
            "written by a newer ideabridge?"
        )

    if "by" in members:
        members["by"] = read_decider(members["by"])

    try:
        return kind(**members)
    except TypeError as error:
        raise JournalError(
            f"event {kind.name} in the journal does not have the expected form: {error}"
        ) from None
