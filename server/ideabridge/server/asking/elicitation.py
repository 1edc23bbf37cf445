"""Determine who decides about a run, and ask the person at the client through forms.

Either a person decides, in a form, on the page or at a terminal, or the assistant decides with
`decide_approval`. If the client shows forms, a person decides and the assistant does not. Some
clients declare forms but decline every form immediately without showing it. Such a client is
treated as if it had no forms, and nothing is denied.

Up to 2025-11-25, forms are sent on the back-channel of the waiting request (`Forms`). From
2026-07-28, the response to the request contains the forms, and the client repeats the request with
the person's answers (`approval_forms`, `note_answers`). A form belongs to one approval, and an
approval to one resolved call, so answers cannot be mixed up.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar, cast

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.assumption import Candidate
from ideabridge.bridge.errors import DecisionError, InterruptedRunError, SecretGivenError
from ideabridge.bridge.loop.event import AskedEvent, Decider, Event
from ideabridge.bridge.loop.policy import only_persons
from ideabridge.bridge.loop.question import Choice
from ideabridge.bridge.modules.asking import MAX_ASKS
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.standing_rules import StandingRuleError
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.users import person_of, user_of
from ideabridge.server.asking.forms import (
    ALWAYS,
    FOR_RUN,
    Commands,
    answers_of,
    approval_form,
    assumed_of,
    clipped_for_form,
    message,
)
from ideabridge.server.asking.rounds import MAX_FORM_ROUNDS, InputRequired, Round, ToolRequest
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError

T = TypeVar("T")

AT_ONCE_S: Final = 0.3
"""Minimum time, in seconds, before a declined form counts as seen by a person."""

EACH_S: Final = 0.05
"""Extra seconds for each additional form that a client answers in the same request."""

TOOL: Final = "decide_approval"

BY_ASSISTANT: Final = (
    "you may decide with decide_approval; ask the person first. The journal then names the "
    "assistant as the one who decided. A person decides {}"
)
IN_THE_FORM: Final = "only the person can decide: in the form, which check_run shows again, or {}"
ELSEWHERE: Final = (
    "only the person can decide: in the form, because this run belongs to a client that shows "
    "forms, or {}"
)
BY_CONFIGURATION: Final = "only the person can decide (approval.by in the configuration), {}"
NOBODY_ASKED: Final = (
    "nobody was asked: the client declined the form at once, without showing it to a person. "
    "Nothing was denied, and the question still waits for an answer"
)

_REMEMBERED: Final = 10_000
_MOST_AT_ONCE: Final = 20
_GRACE_S: Final = 1.0
_ONCE: Final = "choices"


class Deciding:
    """Determines for each session whether a person or the assistant decides about its runs.

    `changed` is called when the tools offered to a session change.
    """

    def __init__(self, bridge: Bridge, commands: Commands) -> None:
        self.bridge = bridge
        self.commands = commands
        self.changed: Callable[[], None] = lambda: None
        self._store = bridge.store
        self._process = secrets.token_hex(8)
        # The sessions that have declined a form immediately or, if a client has no session, the
        # runs whose forms were declined immediately.
        self._formless: OrderedDict[str, None] = OrderedDict()
        # The time at which each client last declined a form too fast for a person.
        self._declined: OrderedDict[str, float] = OrderedDict()
        # The pairs of client and run for which this process has stored a hold.
        self._holdings: OrderedDict[str, None] = OrderedDict()

    # -- forms -------------------------------------------------------------------------------------

    def shows_forms(self, request: ToolRequest, run: Run | None = None) -> bool:
        """Return whether the client that sent a request shows a person forms about a run.

        If a client without a session (2026-07-28 over HTTP) has immediately declined the forms
        about a run, ideabridge assumes that it cannot show forms. The assumption applies only to
        that run, because the client cannot be distinguished from the user's other clients.
        """
        if not request.takes_forms:
            return False

        if self._has_session(request):
            return self._key(request) not in self._formless
        return run is None or f"run {run.root.id}" not in self._formless

    def declined_at_once(
        self, request: ToolRequest, run: Run | None, seconds: float, forms: int = 1
    ) -> bool:
        """Record that the forms about a run were declined together. Return whether they were
        declined too fast for a person.

        `seconds` is the time between sending the forms and receiving the answer.
        """
        key = self._key(request)
        now = time.monotonic()
        # A client can decline several forms in a row, so count from the previous decline.
        since = min(seconds, now - self._declined.get(key, -math.inf))
        if since >= AT_ONCE_S + EACH_S * (forms - 1) or seconds < 0:
            return False
        _note(self._declined, key, now)
        # Remove only the holds of this client, because another client that does ask a person might
        # hold the same run. Include the form's own run, because another process might have recorded
        # the hold on it.
        runs = set(self._runs_of(key))
        if run is not None:
            runs.add(run.root.id)

        other_holders = {run: self._change_holders(run, key, holds=False) for run in runs}
        formless: str | None = None
        if self._has_session(request):
            formless = key
        elif run is not None and not other_holders[run.root.id]:
            formless = f"run {run.root.id}"

        if formless is not None and formless not in self._formless:
            _note(self._formless, formless, None)
            self.changed()

        if NOBODY_ASKED not in request.notes:
            request.notes.append(NOBODY_ASKED)

        return True

    # -- deciders ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def holding(self, run: Run, request: ToolRequest) -> AsyncGenerator[None]:
        """If the client shows forms, prevent the assistant from deciding about a run while a
        request is waiting for it.

        The hold begins when the run asks something, or when the request ends before the run. It is
        stored, so that it applies to all sessions and processes, and ends when a form is declined
        immediately.
        """

        def watch(_room: Run, event: Event) -> None:
            # The event is in the journal and this process is still driving the run, so no other
            # process can take the run over before the hold is written.
            if isinstance(event, AskedEvent):
                # Ignore the error, because a watcher must not raise one. The hold is then written
                # at the end of the wait, or the request fails.
                with suppress(StoreError):
                    self._hold(run, request)

        with suppress(InterruptedRunError, StoreError):
            # Apply the current rules first, so that nobody is asked about a call that they deny. If
            # another process drives the run, it applies its own rules.
            run.root.follow_configuration()

        if run.pending():
            await run.patiently(lambda: self._hold(run, request))

        try:
            with run.watching(lambda event: watch(run, event), watch):
                yield
        finally:
            if run.status not in ENDED:
                await run.patiently(lambda: self._hold(run, request))

    def _hold(self, run: Run, request: ToolRequest) -> None:
        if not self.shows_forms(request, run):
            return

        key = self._key(request)
        entry = f"{key} {run.root.id}"
        if entry not in self._holdings:
            self._change_holders(run.root.id, key, holds=True)
            _note(self._holdings, entry, None)

    def _runs_of(self, key: str) -> list[str]:
        return [
            entry.removeprefix(f"{key} ") for entry in self._holdings if entry.startswith(f"{key} ")
        ]

    def _change_holders(self, run: str, key: str, *, holds: bool) -> list[str]:
        """Add or remove a client that holds a run, and return all clients that hold it."""
        holders: list[str] = []

        def change(stored: bytes) -> bytes:
            holders[:] = [
                holder for holder in stored.decode().split("\n") if holder not in ("", key)
            ]
            if holds:
                holders.append(key)
            return "\n".join(holders).encode()

        self._store.settings.change(_setting(run), change)
        if not holds:
            self._holdings.pop(f"{key} {run}", None)

        return holders

    def offers(self, request: ToolRequest) -> bool:
        """Return whether `decide_approval` is offered to the client's model."""
        return not only_persons(self.bridge.approval) and not self.shows_forms(request)

    def by_person(self, run: Run, request: ToolRequest) -> str | None:
        """Return how a person decides, or None if the assistant is allowed to decide."""
        if self.shows_forms(request, run):
            return IN_THE_FORM.format(self.commands_of(request).places)
        if only_persons(self.bridge.approval) or only_persons(run.machine.settings.approval):
            return BY_CONFIGURATION.format(self.commands_of(request).places)
        if self._store.settings.get(_setting(run.root.id)):
            return ELSEWHERE.format(self.commands_of(request).places)
        return None

    def who_decides(self, run: Run, request: ToolRequest) -> str:
        """Return a sentence for an answer that says who decides, and how."""
        return self.by_person(run, request) or BY_ASSISTANT.format(self.commands_of(request).places)

    def commands_of(self, request: ToolRequest) -> Commands:
        """Return the commands for messages to a caller.

        If the caller is a named user, who might be on another machine, the commands omit the
        server's folders.
        """
        if user_of(request.caller) is None:
            return self.commands
        return Commands(page=self.commands.page)

    def _key(self, request: ToolRequest) -> str:
        """Return an id for the client: that of its session or, if it has none, that of its
        request.
        """
        http: object = request.context.request
        if not isinstance(http, Request):
            return f"stdio {self._process}"
        if self._has_session(request):
            return f"session {http.headers.get('mcp-session-id')}"

        if not request.key:
            request.key = f"request {secrets.token_hex(8)}"

        return request.key

    def _has_session(self, request: ToolRequest) -> bool:
        return not (isinstance(request.context.request, Request) and request.has_rounds)


def in_form(request: ToolRequest) -> Decider:
    """Return the `Decider` for a person who answers a form belonging to the request."""
    return Decider("person", "form", person_of(request.caller))


def by_tool(request: ToolRequest) -> Decider:
    """Return the `Decider` for the assistant.

    `decide_approval` is called by a model, even if a person told it to.
    """
    return Decider("assistant", "tool", person_of(request.caller))


def _setting(run: str) -> str:
    return f"forms.{run}"


def _note(table: OrderedDict[str, T], key: str, value: T) -> None:
    table[key] = value
    if len(table) > _REMEMBERED:
        table.popitem(last=False)


# -- answers of a person ---------------------------------------------------------------------------


def _decision_of(
    result: types.ElicitResult, approval: ApprovalRequest, by: Decider
) -> Decision | str | None:
    """Return the decision in the answer to a form.

    Declining the form denies the call or, if the outcome of the call is unknown, skips it. None
    means that the person has not decided, so the call keeps waiting. If the answer is not accepted,
    the reason is returned as a string. The answer to a server's question is passed on, whether the
    form was filled in, declined or cancelled.
    """
    if approval.kind == "question":
        return _reply(result, by)
    if result.action == "decline":
        refused: Choice = "skip" if approval.kind == "outcome" else "deny"
        return Decision(refused, reason="the person declined the form", by=by)

    content = result.content
    if result.action != "accept" or content is None or content.get("decision") is None:
        return None

    chosen = str(content["decision"])
    value = content.get("value")
    reason = content.get("reason")
    answers = answers_of(approval)
    if chosen not in answers:
        return f"decision: expected {' or '.join(answers)}, found {chosen[:120]!r}"
    reason = reason if isinstance(reason, str) and reason.strip() else None
    if chosen in ("approve", ALWAYS, FOR_RUN):
        return _approval_of(approval, chosen, content, reason, by)

    decision = cast("Choice", chosen)
    if decision != "value":
        return Decision(decision, reason=reason, by=by)
    if not isinstance(value, str):
        return "value: expected the result of the call, as JSON or text"
    return Decision(decision, reason=reason, by=by, value=_read(value))


def _approval_of(
    approval: ApprovalRequest,
    answer: str,
    content: Mapping[str, object],
    reason: str | None,
    by: Decider,
) -> Decision | str:
    """Return the decision to run a call, possibly with the person's values for its assumptions.

    `answer` says whether later calls may run, too.
    """
    chosen = dict[str, Candidate]()
    for name, assumption, texts in assumed_of(approval):
        default, *_ = texts
        text = content.get(name, default)
        if text not in texts:
            return (
                f"{name}: expected one of the values for {clipped_for_form(assumption.at)}, "
                f"found {clipped_for_form(str(text))}"
            )

        if text != default:
            chosen[assumption.at] = texts[str(text)]

    if not chosen:
        grant: JSONObject | None = {"for": "run"} if answer == FOR_RUN else None
        return Decision("approve", reason=reason, by=by, grant=grant, always=answer == ALWAYS)
    if answer != "approve":
        return (
            "decision: expected approve, because a decision that changes the values of a call "
            "cannot allow further calls"
        )

    return Decision("edit", call=approval.with_choices(chosen), reason=reason, by=by)


def _reply(result: types.ElicitResult, by: Decider) -> Decision:
    if result.action == "accept":
        return Decision("value", by=by, value=cast("JSONObject", result.content or {}))
    return Decision("deny" if result.action == "decline" else "skip", by=by)


def _read(text: str) -> JSON:
    try:
        return decode(text, what="the result")
    except IdeabridgeError:
        return text


async def _decide(
    run: Run,
    approval: ApprovalRequest,
    result: types.ElicitResult,
    request: ToolRequest,
    deciding: Deciding,
) -> str | None:
    """Apply a person's answer to a waiting call. A late answer has no effect.

    Returns:
        Why the answer is not accepted, if the person can answer again, and None otherwise.
    """
    decision = _decision_of(result, approval, in_form(request))
    if not isinstance(decision, Decision) or not _is_pending(run, approval.approval):
        return decision if isinstance(decision, str) else None

    try:
        await deciding.bridge.decide(run, approval.approval, decision)
    except (DecisionError, SecretGivenError) as error:
        return str(error)
    except StandingRuleError as error:
        request.notes.append(deciding.bridge.secrets.mask(clipped_for_form(str(error))))
        return None
    except IdeabridgeError:
        # The run has just ended, or its driver is not responding. The request that is waiting for
        # the run shows the run's state.
        return None

    return None


def _is_pending(run: Run, approval: str) -> bool:
    return any(pending.approval == approval for pending in run.pending())


def _note_refused(approval: str, fault: str, request: ToolRequest, deciding: Deciding) -> None:
    note = (
        f"approval {approval} is still waiting: the person's answer in the form was not "
        f"accepted: {clipped_for_form(fault)}"
    )
    request.notes.append(deciding.bridge.secrets.mask(note))


def _text_of(
    approval: ApprovalRequest, fault: str | None, request: ToolRequest, deciding: Deciding
) -> str:
    return deciding.bridge.secrets.mask(message(approval, fault, deciding.commands_of(request)))


# -- on the back-channel ---------------------------------------------------------------------------


class Forms:
    """The forms that a waiting request has sent."""

    def __init__(
        self, run: Run, request: ToolRequest, group: TaskGroup, deciding: Deciding
    ) -> None:
        # The approvals whose forms are still unanswered.
        self.open: dict[str, anyio.CancelScope] = {}
        self._run = run
        self._request = request
        self._group = group
        self._deciding = deciding
        self._keys_asked: set[str] = set()

    def update(self) -> None:
        """Send forms for new approvals, and withdraw those for decided ones."""
        pending = {approval.approval: approval for approval in self._run.pending()}
        for key, scope in self.open.items():
            if key not in pending:
                scope.cancel()

        if not self._deciding.shows_forms(self._request, self._run):
            return
        for key, approval in pending.items():
            if key not in self._keys_asked and len(self.open) < _MOST_AT_ONCE:
                self._keys_asked.add(key)
                self.open[key] = anyio.CancelScope()
                self._group.start_soon(self._ask, approval, self.open[key])

    async def _ask(self, approval: ApprovalRequest, scope: anyio.CancelScope) -> None:
        request = self._request
        deciding = self._deciding
        with scope:
            context = request.context
            fault: str | None = None
            for _ in range(MAX_ASKS):
                sent = anyio.current_time()
                try:
                    result = await context.session.elicit_form(
                        _text_of(approval, fault, request, deciding),
                        approval_form(approval),
                        related_request_id=context.request_id,
                    )
                except (MCPError, ValidationError):
                    # The client failed or sent an invalid answer, so the call keeps waiting.
                    break

                seconds = anyio.current_time() - sent
                if result.action == "decline" and deciding.declined_at_once(
                    request, self._run, seconds
                ):
                    break

                fault = await _decide(self._run, approval, result, request, deciding)
                if fault is None:
                    break

            if fault is not None:
                _note_refused(approval.approval, fault, request, deciding)

        del self.open[approval.approval]
        self._run.poke()


async def wait_with_forms(run: Run, request: ToolRequest, deciding: Deciding) -> None:
    """Wait for a run, asking the person about its calls in the meantime. Finally, withdraw any
    forms that are still open.
    """
    async with anyio.create_task_group() as group:
        forms = Forms(run, request, group, deciding)
        forms.update()
        while run.status == "running" or (run.status == "needs_approval" and forms.open):
            await run.runner.wait_changed()
            forms.update()
        group.cancel_scope.cancel()


async def ask_once(
    text: str, form: types.ElicitRequestedSchema, request: ToolRequest, deciding: Deciding
) -> types.ElicitResult | None:
    """Show the person a form that does not belong to a run.

    Returns:
        The answer, or None if the client declined immediately without showing the form.

    Raises:
        InputRequired: the response must contain the form; the client repeats the request with the
            answer.
    """
    if request.form_answer is not None:
        result, seconds = request.form_answer
    elif request.has_rounds:
        raise InputRequired({_ONCE: _elicitation(text, form)}, Round("", at=time.time()))
    else:
        sent = anyio.current_time()
        context = request.context
        try:
            result = await context.session.elicit_form(
                text, form, related_request_id=context.request_id
            )
        except (MCPError, ValidationError):
            # The client failed or sent an invalid answer, so treat the form as cancelled.
            return types.ElicitResult(action="cancel")

        seconds = anyio.current_time() - sent

    at_once = result.action == "decline" and deciding.declined_at_once(request, None, seconds)
    return None if at_once else result


def answer_once(
    last: Round, responses: Mapping[str, types.InputResponse]
) -> tuple[types.ElicitResult, float]:
    """Return the answer to the form of `ask_once`, and the seconds since the form was sent."""
    response = responses.get(_ONCE)
    if isinstance(response, types.ElicitResult):
        result = response
    else:
        result = types.ElicitResult(action="cancel")
    return result, time.time() - last.at


# -- forms that a client answers with its next request ---------------------------------------------


async def note_answers(
    run: Run,
    last: Round,
    responses: Mapping[str, types.InputResponse],
    request: ToolRequest,
    deciding: Deciding,
) -> Round:
    """Submit the person's answers to the forms of a round.

    Returns:
        The round, with the approvals that remain open and those that the person is asked about
        again. If the third answer to a form is not accepted either, the person is not asked again,
        and a note in `request.notes` says so.
    """
    left = list(last.left)
    faults = dict[str, tuple[int, str]]()
    pending = {approval.approval: approval for approval in run.pending()}
    seconds = time.time() - last.at
    for key in last.asked:
        response = responses.get(key)
        approval = pending.get(key)
        if approval is None:
            # This approval has been decided elsewhere.
            continue

        result = response if isinstance(response, types.ElicitResult) else None
        declined = result is not None and result.action == "decline"
        if declined and deciding.declined_at_once(request, run, seconds, len(last.asked)):
            left.append(key)
            continue

        if result is None:
            fault = None
        else:
            fault = await _decide(run, approval, result, request, deciding)

        tries = last.faults.get(key, (0, ""))[0] + 1
        if fault is not None and tries < MAX_ASKS:
            faults[key] = (tries, fault)
            continue

        if fault is not None:
            _note_refused(key, fault, request, deciding)

        if fault is not None or _is_pending(run, key):
            left.append(key)

    return dataclasses.replace(last, asked=(), left=tuple(left), faults=faults)


async def wait_until_asked(run: Run, last: Round) -> None:
    """Wait until a run needs the person, then give other calls a moment to finish, so that one
    round contains as many forms as possible.
    """
    while run.status == "running" and not open_forms(run, last):
        await run.runner.wait_changed()
    if run.status == "running":
        await run.wait(_GRACE_S)


def open_forms(run: Run, last: Round) -> list[ApprovalRequest]:
    """Return the approvals for the next round of forms."""
    if last.number >= MAX_FORM_ROUNDS:
        return []
    return [approval for approval in run.pending() if approval.approval not in last.left][
        :_MOST_AT_ONCE
    ]


def approval_forms(
    approvals: list[ApprovalRequest], last: Round, request: ToolRequest, deciding: Deciding
) -> JSONObject:
    """Return the forms for the next round, keyed by approval. `last` contains the reasons why
    previous answers were not accepted.
    """
    forms: JSONObject = {}
    for approval in approvals:
        fault = last.faults.get(approval.approval, (0, None))[1]
        forms[approval.approval] = _elicitation(
            _text_of(approval, fault, request, deciding), approval_form(approval)
        )
    return forms


def _elicitation(text: str, form: types.ElicitRequestedSchema) -> JSONObject:
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": text, "requestedSchema": dict[str, Any](form)},
    }
