"""The questions that a run asks people, and the answers that the run accepts.

A run asks whether a call may run, whether a lazy run's plan is accepted, and what the outcome of an
interrupted call was. A server can also ask a question while it is running a call. Each question is
bound to the digest of what it shows, so an answer applies only to exactly what was shown. Both the
digest and the answer are journaled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.inquiry import Inquiry
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskApproval
from ideabridge.bridge.loop.event import (
    CallDecided,
    QuestionAsked,
)
from ideabridge.bridge.loop.output import Refusal, digest_of, executed_call, resolved_call
from ideabridge.bridge.loop.policy import ALLOW, Policy, judge, named_tool
from ideabridge.bridge.loop.progress import CallStatus, Item, Progress
from ideabridge.bridge.loop.size import NO_SIZE, too_large
from ideabridge.bridge.loop.standing import StandingTool, standing_tool
from ideabridge.tools.encoding import JSON, JSONObject, objects_in
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, META_PROPERTIES, Annotations, Tool, is_idea

Kind: TypeAlias = Literal["call", "outcome", "plan", "question"]
"""What a question is about. `call`: whether a call may run. `outcome`: how a call with an unknown
outcome ended. `plan`: whether a plan is accepted as a whole. `question`: a question that a server
asks while it is running a call.
"""

Choice: TypeAlias = Literal["approve", "deny", "edit", "retry", "skip", "value"]

Key: TypeAlias = "tuple[Kind, int | None, int | None]"
"""The key of a question: its kind, the index of its call, and the item of the call's `_each`. At
most one plan is waiting at a time.
"""

CHOICES: Final[dict[Kind, tuple[Choice, ...]]] = {
    "call": ("approve", "deny", "edit"),
    "outcome": ("retry", "skip", "value"),
    "plan": ("approve", "deny", "edit"),
    # value: fill in the form; deny: refuse; skip: do not answer.
    "question": ("value", "deny", "skip"),
}

REFUSALS: Final[dict[Kind, Choice]] = {
    "call": "deny",
    "outcome": "skip",
    "plan": "deny",
    "question": "skip",
}
"""The answer that applies if nobody answers in time."""

DIED: Final = "the process died while it ran"
"""Why an outcome is unknown, if no other reason is known."""

ENDED: Final = "the run ended while it ran"
"""Why an outcome is unknown in a run that was ended early."""

FORKED: Final = "it had not ended when the run was forked"
"""Why the outcome of a call from the parent is unknown in a fork."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is waiting for a person.

    Attributes:
        kind: see `Kind`.
        approval: the id of the approval.
        digest: the hash of what is shown. Answers are bound to it.
        shown: the call with its references resolved, or the plan as `{"calls", "output"}`.
        why: the reason for the question. If there are several reasons, each is on its own line.
        call: the index of the call in the run, or None for a plan.
        item: the item of the call's `_each`.
        tool: the tool of the call.
        asked: the question from the server, if a server is asking.
        assumed: the assumptions behind the call; see `Settled.assumed`.
        hints: for a question about an unknown outcome, the hints about the code that ran.
        standing: the tool that a person can allow *always*, or None if a person must see each call;
            see `standing_tool`.
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
    assumed: tuple[JSONObject, ...] = ()
    hints: Annotations = field(default_factory=Annotations)
    standing: StandingTool | None = None

    @property
    def key(self) -> Key:
        """The key of this question; see `Key`."""
        return self.kind, self.call, self.item

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The possible answers to the question."""
        return CHOICES[self.kind]

    @property
    def refusal(self) -> Choice:
        """The answer that applies if nobody answers in time."""
        return REFUSALS[self.kind]

    def to_json(self) -> JSONObject:
        """Return `{"approval", "call" or "plan", "why"}` and further members.

        The further members are `assumed` for a call that rests on assumptions, `choices` and `item`
        for an unknown outcome, and `question`, as `{"module", "message", "schema"}`, for a question
        from a server.
        """
        form: JSONObject = {
            "approval": self.approval,
            "plan" if self.kind == "plan" else "call": self.shown,
            "why": self.why,
        }
        if self.assumed:
            form["assumed"] = list[JSON](self.assumed)

        if self.asked is not None:
            form["question"] = question_form(self.asked)

        if self.kind in ("outcome", "question"):
            form["choices"] = list(self.choices)

        if self.item is not None:
            form["item"] = self.item

        return form


def call_question(progress: Progress) -> Question | None:
    """Return the question of whether to run a call, or None if no decision is needed."""
    if (
        progress.status is not CallStatus.ASKING
        or progress.approval is None
        or progress.granted is not None
    ):
        return None
    question = progress.approval
    return Question(
        "call",
        question.approval,
        question.digest,
        question.resolved,
        question.why,
        progress.call.index,
        tool=progress.tool,
        assumed=tuple(progress.doubts.assumed),
        standing=standing_tool(progress),
    )


def unknown(why: str | None, hints: Annotations) -> str:
    """Return the message about an unknown outcome. `why` is None if the process died."""
    message = f"outcome unknown: {why or DIED}"
    if hints.repeatable:
        return message
    return f"{message}, and the tool does not declare that it may run twice"


def outcome_question(progress: Progress, number: int | None) -> Question | None:
    """Return the question about the outcome of a call or one of its items, or None if the call is
    nested too deeply to be shown.
    """
    call = progress.call
    item = progress.items[number or 0]
    shown = executed_call(progress, item.parameters)
    # If the same execution is interrupted by another crash, the question about that counts as a new
    # one.
    digest = digest_of({"call": shown, "item": number, "time": item.outcomes_decided})
    if isinstance(digest, Refusal):
        return None

    place = call.index if number is None else f"{call.index}.{number}"
    cut_off = None if item.in_doubt is None else item.in_doubt.why
    unknown_outcome = unknown(cut_off, progress.hints)
    reason = (
        f"{unknown_outcome}. retry: run it again; skip: let it fail as unknown; value: give its "
        "result"
    )
    approval = f"o{place}-{digest[:12]}"
    tool = progress.tool
    hints = progress.hints
    return Question(
        "outcome", approval, digest, shown, reason, call.index, number, tool, hints=hints
    )


def inquiry_question(progress: Progress, event: QuestionAsked) -> Question:
    """Return the question that a server asks while it is running a call."""
    shown = executed_call(progress, progress.items[event.item or 0].parameters)
    reason = (
        f"server {event.module!r} asks this while it runs the call; the text is the server's, not "
        "ideabridge's. value: fill in its form; deny: refuse to answer; skip: give the server no "
        "answer"
    )
    return Question(
        "question",
        event.approval,
        event.digest,
        shown,
        reason,
        event.call,
        event.item,
        progress.tool,
        event,
    )


def question_form(event: QuestionAsked) -> JSONObject:
    """Return a server's question as shown to callers: `{"module", "message", "schema"}`."""
    return {"module": event.module, "message": event.message, "schema": event.schema}


# -- approval --------------------------------------------------------------------------------------


def apply_policy(policy: Policy, progress: Progress, *, rules: int) -> AskApproval | Refusal | None:
    """Apply a policy to a call whose references are resolved. Return None if the call runs.

    Even if the policy allows the call, a person is asked about its uncertainties if the call might
    change something. In a strict plan, a person is always asked about them. For `rules`, see
    `Settings`.
    """
    call = progress.call
    tool = progress.tool
    strict = progress.doubts.strict
    if call.has_written_result or tool is None:
        # The result has already been written by a mind, so nothing will run.
        return None

    # A call that opens a room need not be judged itself, because the calls in the room are checked
    # separately.
    opens = call.room is not None and tool.module is None
    if opens and not strict:
        return None

    resolved = resolved_call(progress)
    judged = [tool]
    hints = tool.annotations
    if rules >= 1:
        judged = progress.judged
        hints = progress.hints

    verdict = ALLOW if opens else judge(policy, judged, resolved)
    if verdict.verdict == "allow" and hints.read_only is True and not strict:
        return None

    doubt = progress.doubts.ask
    if verdict.verdict == "allow" and doubt is None:
        return None
    if verdict.verdict == "deny":
        return Refusal(f"denied by policy: {verdict.why or 'no reason given'}", "denied")

    # A person decides on all items together, so their total size counts.
    size = sum((item.read_size for item in progress.items), NO_SIZE)
    problem = too_large("the call", size)
    if problem is not None:
        return Refusal(f"not run: {problem}")

    digest = digest_of(resolved)
    if isinstance(digest, Refusal):
        return Refusal(f"not run: {digest.message}")

    why = "\n".join(reason for reason in (verdict.why, _code_of(tool), doubt) if reason)
    return AskApproval(call, f"a{call.index}-{digest[:12]}", digest, resolved, why)


def _code_of(tool: Tool) -> str | None:
    """Return a phrase that names the other tool whose code a tool runs, or None if it runs its own.

    The author of a tool chooses its name, so the name alone might mislead.
    """
    code = tool.passes_to
    if code is None or code.origin == tool.origin:
        return None
    return f"{named_tool(tool)} runs {named_tool(code)}"


def correction_by(proposed: JSONObject, event: CallDecided) -> JSONObject | None:
    """Return the correction shown to a mind, `{"proposed", "ran", "by", "reason"}`, or None if the
    call runs as proposed.
    """
    if event.decision == "approve" or (event.decision == "edit" and event.edited is None):
        return None
    ran = event.edited if event.decision == "edit" else None
    return {"proposed": proposed, "ran": ran, "by": str(event.by), "reason": event.reason}


# -- edits -----------------------------------------------------------------------------------------

_KEPT = (
    "_instance",
    "_outputPath",
    "_outputMethod",
    "_id",
    "_after",
    "_imports",
    "_output",
    "_activity",
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A valid edit of a call, with other parameters or another tool.

    The edited call contains only literals. Its output path and instance do not change.

    Attributes:
        call: the call to run.
        tool: the tool that replaces the call's own, or None if the tool is not replaced.
    """

    call: JSONObject
    tool: Tool | None = None


def read_edit(
    progress: Progress, edited: JSONObject, catalogue: Catalogue, policy: Policy
) -> Edit | Refusal:
    """Check a person's edit of a call that is waiting for a decision.

    Args:
        progress: the call.
        edited: the resolved call that should run instead. If `_tool` is missing, the tool does not
            change.
        catalogue: the tools that the person can choose from.
        policy: the policy of the run. A person cannot approve a call that the policy denies.
    """
    own = progress.tool
    if own is None:
        return Refusal("the call has no tool")

    for key in _KEPT:
        if key in edited and edited[key] != progress.call.raw.get(key):
            return Refusal(
                f"{key}: an edit changes the parameters or the tool; leave {key} unchanged, or "
                "leave it out"
            )

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
            f"{quoted(own.name)} opens a room (a separate run), so an edit cannot replace it; to "
            "get another tool proposed, deny the call"
        )

    if tool.key in catalogue.latent:
        return Refusal(
            f"tool {quoted(tool.name)} has no code: a mind writes its result, so "
            "it cannot replace another tool"
        )

    # Leave out `_activity`, because it belongs to the previous tool.
    call: JSONObject = {key: value for key, value in edited.items() if key != "_activity"}
    judged = [used for used in (tool, tool.passes_to) if used is not None]
    verdict = judge(policy, judged, call)
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
        return Refusal(
            "_tool and _module: expected the name of a tool, and the name of a server or null"
        )
    if module == ANONYMOUS or is_idea(module):
        return Refusal(
            f"_module: {quoted(module)} opens a room (a separate run), which cannot replace the "
            "tool of a call"
        )

    try:
        tool = catalogue.find(name, module)
    except UnknownToolError as error:
        return Refusal(str(error))

    if tool.in_room:
        return Refusal(
            f"_tool: {quoted(name)} opens a room (a separate run), which cannot replace the tool "
            "of a call"
        )

    return tool


def _parameters_problem(
    progress: Progress, edited: JSONObject, tool: Tool, catalogue: Catalogue
) -> Refusal | None:
    each = edited.get("_each")
    if progress.call.has_each != ("_each" in edited):
        return Refusal("an edit can neither add nor remove _each")
    if progress.call.has_each and not (
        isinstance(each, list) and each and all(isinstance(item, dict) for item in each)
    ):
        return Refusal(
            "_each: expected an array of objects, each with the parameters of one execution; to "
            "run none of them, deny the call"
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
    """Return the parameters of each execution of an edited call."""
    each = edited.get("_each")
    if isinstance(each, list):
        return objects_in(each)
    return [{key: value for key, value in edited.items() if key not in META_PROPERTIES}]


def apply_edit(progress: Progress, event: CallDecided) -> Tool | None:
    """Apply an edit to a call. Return the tool that replaces the call's own, or None if the tool is
    not replaced.
    """
    if event.decision != "edit" or event.edited is None:
        return None
    progress.is_edited = True
    # Keep the imports, because a room's imports do not depend on the parameters.
    imports = progress.items[0].imports
    progress.items = [
        Item(parameters, imports=imports) for parameters in edited_parameters(event.edited)
    ]
    progress.replaced = Tool.from_json(event.tool) if event.tool is not None else None
    return progress.replaced


# -- questions of servers --------------------------------------------------------------------------


def asked(
    progress: Progress, number: int | None, inquiry: Inquiry, at: float
) -> QuestionAsked | None:
    """Return the event for a server's question, or None if the call is nested too deeply to be
    shown.

    Args:
        progress: the call.
        number: the item of the call's `_each`.
        inquiry: the question.
        at: the time, in seconds since 1970.
    """
    item = progress.items[number or 0]
    shown: dict[str, JSON] = {
        "module": inquiry.module,
        "message": inquiry.message,
        "schema": inquiry.schema,
    }
    # If the server later asks the same question again, that counts as a new question.
    digest = digest_of(
        {"call": executed_call(progress, item.parameters), **shown, "time": item.questions}
    )
    if isinstance(digest, Refusal):
        return None

    index = progress.call.index
    place = index if number is None else f"{index}.{number}"
    approval = f"q{place}-{digest[:12]}"
    return QuestionAsked(
        index, approval, digest, inquiry.module, inquiry.message, inquiry.schema, number, at
    )
