"""Question: what a run asks people, and what may be answered.

A question is bound to the digest of what it shows: an answer holds for exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.inquiry import Inquiry
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.loop.call import ErrorKind
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskApproval
from ideabridge.bridge.loop.event import (
    BRIDGE,
    CallDecided,
    JournalError,
    QuestionAnswered,
    QuestionAsked,
    QuestionRefused,
)
from ideabridge.bridge.loop.output import MOST_RESOLVED, Refusal, digest_of, executed_call, resolved_call
from ideabridge.bridge.loop.policy import Policy
from ideabridge.bridge.loop.progress import CallStatus, Item, Progress, parked
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, IDEA, META_PROPERTIES, Tool

# -- question --------------------------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["call", "outcome", "plan", "question"]
"""`call`: may it run; `outcome`: what came of it, where nobody knows; `plan`: is it accepted as a whole; `question`:
what its module asks while it runs.
"""

Choice: TypeAlias = Literal["approve", "deny", "edit", "retry", "skip", "value"]

Key: TypeAlias = "tuple[Kind, int | None, int | None]"
"""What a question is about: its kind, the call, and the item of its `_each`. Of plans, one waits at most."""

CHOICES: Final[dict[Kind, tuple[Choice, ...]]] = {
    "call": ("approve", "deny", "edit"),
    "outcome": ("retry", "skip", "value"),
    "plan": ("approve", "deny", "edit"),
    # value: the form is filled in; deny: the person refuses; skip: it is left.
    "question": ("value", "deny", "skip"),
}

REFUSALS: Final[dict[Kind, Choice]] = {"call": "deny", "outcome": "skip", "plan": "deny", "question": "skip"}
"""What holds where nobody answers in time."""

DIED: Final = "the process died while it ran"
"""Why nobody knows what came of a call, where nothing else is known."""

ENDED: Final = "the run ended while it ran"
"""Why a run that was ended before its time does not know what came of a call."""

FORKED: Final = "it had not ended when the run was forked"
"""Why a fork does not know what came of a call of its parent."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question that waits for a person.

    Attributes:
        kind: see `Kind`.
        approval: its id.
        digest: the hash of what is shown, which an answer is bound to.
        shown: the call with its references resolved; a plan: `{"calls", "output"}`.
        why: why it is asked.
        call: the call's index in the run; `item`: of its `_each`; None for a plan.
        tool: the call's tool.
        asked: what its module asks.
    """

    kind: Kind
    approval: str
    digest: str
    shown: JSONObject
    why: str
    call: int | None = None
    item: int | None = None
    tool: Tool | None = None
    asked: QuestionAsked | None = None

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.kind, self.call, self.item

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What may be answered."""
        return CHOICES[self.kind]

    @property
    def refusal(self) -> Choice:
        """What holds where nobody answers in time."""
        return REFUSALS[self.kind]

    def to_json(self) -> JSONObject:
        """`{"approval", "call" or "plan", "why"}`, with `choices` (and `item`) for an unknown outcome; of a module's
        question `question` too: `{"module", "message", "schema"}`.
        """
        told: JSONObject = {
            "approval": self.approval,
            "plan" if self.kind == "plan" else "call": self.shown,
            "why": self.why,
        }
        if self.asked is not None:
            told["question"] = form_of(self.asked)
        if self.kind in ("outcome", "question"):
            told["choices"] = list(self.choices)
        if self.item is not None:
            told["item"] = self.item
        return told


def call_question(progress: Progress) -> Question | None:
    """Whether a call may run; None where nobody is asked."""
    if progress.status is not CallStatus.ASKING or progress.approval is None:
        return None
    approval, digest, resolved, why = progress.approval
    return Question("call", approval, digest, resolved, why, progress.call.index, tool=progress.tool)


def unknown(why: str | None, tool: Tool | None) -> str:
    """Why nobody knows what came of a call, as a sentence.

    Args:
        why: what happened; None: its process died.
        tool: its tool.
    """
    told = f"outcome unknown: {why or DIED}"
    if tool is not None and tool.annotations.repeatable:
        return told
    return f"{told}, and the tool does not say that it may run twice"


def outcome_question(progress: Progress, number: int | None) -> Question | None:
    """What came of an execution that was in flight; None where what it ran with nests too deep to be shown.

    Args:
        progress: the call.
        number: the item of its `_each`.
    """
    call, item = progress.call, progress.items[number or 0]
    shown = executed_call(progress, item.parameters)
    # The same execution may be in flight at another crash: that is another question.
    digest = digest_of({"call": shown, "item": number, "time": item.doubts})
    if isinstance(digest, Refusal):
        return None
    place = call.index if number is None else f"{call.index}.{number}"
    told = unknown(item.cut_off, progress.tool)
    why = f"{told}. retry: run it again; skip: it fails as unknown; value: give its result"
    return Question("outcome", f"o{place}-{digest[:12]}", digest, shown, why, call.index, number, progress.tool)


def inquiry_question(progress: Progress, event: QuestionAsked) -> Question:
    """What a module asks while it runs a call."""
    shown = executed_call(progress, progress.items[event.item or 0].parameters)
    why = (
        f"module {event.module!r} asks while it runs the call; these are its words, and none of ours. value: what goes"
        " into its form; deny: it is told no; skip: it is told nothing"
    )
    return Question("question", event.approval, event.digest, shown, why, event.call, event.item, progress.tool, event)


def form_of(event: QuestionAsked) -> JSONObject:
    """What a module asks, as callers see it: `{"module", "message", "schema"}`."""
    return {"module": event.module, "message": event.message, "schema": event.schema}


# -- approval --------------------------------------------------------------------------------------------------------
#
# Approval: whether a call whose references are resolved runs, is denied, or is put before a person.


@dataclass(frozen=True, slots=True)
class Denial:
    """The call does not run."""

    kind: ErrorKind
    message: str


def judged(policy: Policy, progress: Progress) -> AskApproval | Denial | None:
    """What a policy comes to for a call; None: it runs."""
    call, tool = progress.call, progress.tool
    if call.has_latent or tool is None or (call.room is not None and tool.module is None):
        # Only a mind is asked.
        return None
    resolved = resolved_call(progress)
    verdict = policy(tool, resolved)
    if verdict.verdict == "allow":
        return None
    if verdict.verdict == "deny":
        return Denial("denied", f"denied by policy: {verdict.why or 'no reason given'}")
    # All items together are what a person decides about.
    size = sum(item.size for item in progress.items)
    if size > MOST_RESOLVED:
        why = f"it would have {size:,} bytes with what it refers to; at most {MOST_RESOLVED:,} are put before a person"
        return Denial("runtime", f"not run: {why}")
    digest = digest_of(resolved)
    if isinstance(digest, Refusal):
        return Denial("runtime", f"not run: {digest.message}")
    return AskApproval(call, f"a{call.index}-{digest[:12]}", digest, resolved, verdict.why)


def correction(proposed: JSONObject, event: CallDecided) -> JSONObject | None:
    """What a mind is told of a decision: `{"proposed", "ran", "by", "reason"}`; None where it runs as proposed."""
    if event.decision == "approve" or (event.decision == "edit" and event.edited is None):
        return None
    ran = event.edited if event.decision == "edit" else None
    return {"proposed": proposed, "ran": ran, "by": str(event.by), "reason": event.reason}


# -- edit ------------------------------------------------------------------------------------------------------------
#
# Edit: a call as a person changed it: other parameters, or another tool in its place.
#
# Its values are literals. Where the result goes, and for which instance, stays as the call says.

_KEPT = ("_instance", "_outputPath", "_outputMethod", "_id", "_after", "_imports", "_output", "_activity")


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that can run.

    Attributes:
        call: the call as it shall run.
        tool: the tool that runs in the place of the call's own; None: that stays.
    """

    call: JSONObject
    tool: Tool | None = None


def read_edit(progress: Progress, edited: JSONObject, catalogue: Catalogue, policy: Policy) -> Edit | Refusal:
    """A person's edit of a call that waits for a decision, checked; else why it cannot run.

    Args:
        progress: the call.
        edited: the resolved call as it shall run; without `_tool` that stays.
        catalogue: the tools the person may choose from.
        policy: of the run; what it denies nobody can approve.
    """
    own = progress.tool
    if own is None:
        return Refusal("the call has no tool")
    for key in _KEPT:
        if key in edited and edited[key] != progress.call.raw.get(key):
            return Refusal(f"{key}: an edit changes the parameters or the tool; leave {key} as it is, or out")
    tool = _wanted(own, edited, catalogue)
    if isinstance(tool, Refusal):
        return tool
    refusal = _parameters_problem(progress, edited, tool, catalogue)
    if refusal is not None:
        return refusal
    if tool.key == own.key:
        return Edit(edited)
    if progress.call.room is not None:
        return Refusal(
            f"{quoted(own.name)} opens a room, a run of its own: an edit keeps the tool; deny the call to have another"
            " one proposed"
        )
    if tool.key in catalogue.latent:
        return Refusal(f"tool {quoted(tool.name)} has no code: a mind writes its result, so it cannot run in a place")
    # The name of an activity is the old tool's.
    call: JSONObject = {key: value for key, value in edited.items() if key != "_activity"}
    verdict = policy(tool, call)
    if verdict.verdict == "deny":
        return Refusal(f"denied by policy: {verdict.why or 'no reason given'}")
    return Edit(call, tool)


def _wanted(own: Tool, edited: JSONObject, catalogue: Catalogue) -> Tool | Refusal:
    name = edited.get("_tool", own.name)
    stays = name in (own.name, own.remote_name)
    module = edited.get("_module", own.module if stays else None)
    if stays and module == own.module:
        return own
    if not isinstance(name, str) or not isinstance(module, str | None):
        return Refusal("_tool and _module: expected the name of a tool, and of a module or none")
    if module is not None and (module == ANONYMOUS or module.startswith(IDEA)):
        return Refusal(f"_module: {quoted(module)} opens a room, a run of its own, which cannot take a call's place")
    try:
        found = catalogue.find(name, module)
    except UnknownToolError as error:
        return Refusal(str(error))
    if found.in_room:
        return Refusal(f"_tool: {quoted(name)} opens a room, a run of its own, which cannot take a call's place")
    return found


def _parameters_problem(progress: Progress, edited: JSONObject, tool: Tool, catalogue: Catalogue) -> Refusal | None:
    each = edited.get("_each")
    if progress.call.has_each != ("_each" in edited):
        return Refusal("an edit keeps _each where the call has it, and has none where it has not")
    if progress.call.has_each and not (isinstance(each, list) and each and all(isinstance(one, dict) for one in each)):
        return Refusal(
            "_each: expected an array of objects, the parameters of one execution each; deny the call to run none"
        )
    for parameters in edited_parameters(edited):
        faults = catalogue.names(tool).faults(parameters)
        if faults:
            return Refusal("; ".join(faults.values()))
        try:
            catalogue.exact(tool).check(parameters)
        except IdeabridgeError as error:
            return Refusal(str(error))
    return None


def edited_parameters(edited: JSONObject) -> list[JSONObject]:
    """The parameters an edited call holds, one for each execution."""
    each = edited.get("_each")
    if isinstance(each, list):
        return [item for item in each if isinstance(item, dict)]
    return [{key: value for key, value in edited.items() if key not in META_PROPERTIES}]


def apply(progress: Progress, event: CallDecided) -> Tool | None:
    """What a decision changes of the call it is about; the tool that runs in its place, if another does."""
    if event.decision != "edit" or event.edited is None:
        return None
    # A room sees what its call imports, whatever its parameters are.
    imports = progress.items[0].imports
    progress.items = [Item(parameters, imports=imports) for parameters in edited_parameters(event.edited)]
    progress.replaced = Tool.from_json(event.tool) if event.tool is not None else None
    return progress.replaced


# -- inquiry ---------------------------------------------------------------------------------------------------------
#
# Inquiries: what the module of a call that runs asks, on its way through a run.
#
# A call that waits for an answer is parked: it runs at its module, and nothing moves here before somebody answers.

GONE = "the process in which the call waited for it has died"


def asked(progress: Progress, number: int | None, inquiry: Inquiry, at: float) -> QuestionAsked | None:
    """The event of a question that a module puts; None where the call cannot be shown.

    Args:
        progress: the call.
        number: the item of its `_each`.
        inquiry: what is asked.
        at: when, in seconds since 1970.
    """
    item = progress.items[number or 0]
    what: dict[str, JSON] = {"module": inquiry.module, "message": inquiry.message, "schema": inquiry.schema}
    # The same question may be put again: that is another one.
    digest = digest_of({"call": executed_call(progress, item.parameters), **what, "time": item.questions})
    if isinstance(digest, Refusal):
        return None
    index = progress.call.index
    place = index if number is None else f"{index}.{number}"
    approval = f"q{place}-{digest[:12]}"
    return QuestionAsked(index, approval, digest, inquiry.module, inquiry.message, inquiry.schema, number, at)


def take(progress: Mapping[int, Progress], event: QuestionAsked | QuestionAnswered | QuestionRefused) -> int:
    """Note what a module asks, or what became of it.

    Returns:
        How many more calls (or items) are parked now: 1, -1 or 0.

    Raises:
        JournalError: the call does not run, asks already, or asks nothing, or asks another question.
    """
    one = progress.get(event.call)
    if one is None or one.status is not CallStatus.RUNNING or (event.item or 0) >= len(one.items):
        raise JournalError(f"call {event.call} is not running")
    item = one.items[event.item or 0]
    if isinstance(event, QuestionRefused):
        said = f"module {event.module!r} asked {event.message!r}, and was not answered: {event.why}"
        one.unasked.append(f"{one.call.label}: {said}")
        return 0
    if isinstance(event, QuestionAsked):
        if not item.started or item.finished or item.doubt is not None or item.question is not None:
            raise JournalError(f"the module of call {event.call} cannot ask now")
        item.question = event
        return 1
    _settle(item, event)
    return -1


def _settle(item: Item, event: QuestionAnswered) -> None:
    if item.question is None:
        raise JournalError(f"the module of call {event.call} has asked nothing")
    if item.question.digest != event.digest:
        raise JournalError(f"the answer for call {event.call} is bound to another question than the one that waits")
    item.question = None
    item.questions += 1


def gone(history: list[Progress]) -> list[QuestionAnswered]:
    """The questions of a run that was read from its journal: the calls that wait for an answer are no more."""
    return [QuestionAnswered(one.call, one.digest, "cancel", BRIDGE, one.item, reason=GONE) for one in parked(history)]
