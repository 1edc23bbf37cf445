"""Elicitation: showing forms to the person at the client, for approvals and for questions of modules.

Up to 2025-11-25 forms go out on the back-channel of the waiting request (`Forms`). From 2026-07-28 the request is
answered with the forms, and the client sends it again with the person's answers (`forms_of`, `answered`). A form
belongs to one approval, and an approval to one resolved call, so answers cannot be confused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError, SecretGivenError
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.loop.question import Choice
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.bridge.runs.run import Run, RunStatus
from ideabridge.server.asking.deciding import Deciding, in_form
from ideabridge.server.asking.forms import choices_of, clipped, form_of, message
from ideabridge.server.asking.rounds import MAX_FORM_ROUNDS, InputRequired, Round, ToolRequest, has_rounds
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError

_AT_ONCE: Final = 20
_GRACE_S: Final = 1.0
_ONCE: Final = "choices"
_TRIES: Final = 3
"""How often a form is shown if its answers are not accepted; each time with the reason."""


# -- answers of a person ------------------------------------------------------------------------------------------


def decision_of(result: types.ElicitResult, request: ApprovalRequest, by: Decider) -> Decision | str | None:
    """The decision in the answer to a form.

    A declined form denies a call, and skips one with an unknown outcome. None means that the person has not decided, so
    the call goes on waiting. A text is the reason why the answer is not accepted. The answer to a module's question is
    passed on: filled in, declined or cancelled.
    """
    if request.kind == "question":
        return _reply(result, by)
    if result.action == "decline":
        refused: Choice = "skip" if request.kind == "outcome" else "deny"
        return Decision(refused, reason="the person declined the form", by=by)
    content = result.content
    if result.action != "accept" or content is None:
        return None
    reason, chosen, given = content.get("reason"), content.get("decision"), content.get("value")
    told = reason if isinstance(reason, str) and reason.strip() else None
    offered: dict[str, Choice] = {one: one for one in request.choices if one in choices_of(request)}
    decision = offered.get(str(chosen))
    if chosen is None:
        return None
    if decision is None:
        return f"decision: expected {' or '.join(offered)}, found {str(chosen)[:120]!r}"
    if decision == "value" and not isinstance(given, str):
        return "value: expected the result of the call, as JSON or text"
    value = _read(given) if isinstance(given, str) and decision == "value" else MISSING
    return Decision(decision, reason=told, by=by, value=value)


def _reply(result: types.ElicitResult, by: Decider) -> Decision:
    if result.action == "accept":
        content: JSONObject = {}
        for name, value in (result.content or {}).items():
            content[name] = list[JSON](value) if isinstance(value, list) else value
        return Decision("value", by=by, value=content)
    return Decision("deny" if result.action == "decline" else "skip", by=by)


def _read(text: str) -> JSON:
    try:
        return decode(text, what="the result")
    except IdeabridgeError:
        return text


async def take(
    run: Run, request: ApprovalRequest, result: types.ElicitResult, by: Decider, deciding: Deciding
) -> str | None:
    """Apply a person's answer to a waiting call. An answer that comes too late has no effect.

    Returns:
        Why the answer is not accepted, so that the person may answer again; otherwise None.
    """
    decision = decision_of(result, request, by)
    if not isinstance(decision, Decision) or not any(one.approval == request.approval for one in run.pending()):
        return decision if isinstance(decision, str) else None
    try:
        await deciding.decide(run, request.approval, decision)
    except (DecisionError, SecretGivenError) as error:
        return str(error)
    except IdeabridgeError:
        # The run has just ended, or its driver does not answer. The waiting request shows the state of the run.
        return None
    return None


def untaken(approval: str, fault: str) -> str:
    """The note for the caller if the answers to a form are not accepted."""
    return f"approval {approval} is still waiting: the person's answer in the form was not accepted: {clipped(fault)}"


# -- on the back-channel -----------------------------------------------------------------------------------------


class Forms:
    """The forms that one waiting request has sent.

    Attributes:
        open: approvals whose forms are not answered yet.
    """

    def __init__(self, run: Run, asked: ToolRequest, group: TaskGroup, deciding: Deciding) -> None:
        self.open: dict[str, anyio.CancelScope] = {}
        self._run = run
        self._asked = asked
        self._group = group
        self._deciding = deciding
        self._seen: set[str] = set()
        self._changed = anyio.Event()

    def look(self) -> None:
        """Send the forms of new approvals, and withdraw those of decided ones."""
        pending = {one.approval: one for one in self._run.pending()}
        for approval, scope in self.open.items():
            if approval not in pending:
                scope.cancel()
        if not self._deciding.shows_forms(self._asked, self._run):
            pending = {}
        for approval, request in pending.items():
            if approval not in self._seen and len(self.open) < _AT_ONCE:
                self._seen.add(approval)
                self.open[approval] = anyio.CancelScope()
                self._group.start_soon(self._ask, request, self.open[approval])
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until the run changes or a form is answered."""
        await self._changed.wait()

    async def follow(self) -> None:
        """Look at the forms whenever the run changes, even if another process takes it."""
        while True:
            # Also before the first wait: rooms may have asked before this task started.
            self.look()
            await self._run.runner.wait_changed()

    async def _ask(self, request: ApprovalRequest, scope: anyio.CancelScope) -> None:
        with scope:
            context = self._asked.context
            fault: str | None = None
            for _ in range(_TRIES):
                sent = anyio.current_time()
                try:
                    result = await context.session.elicit_form(
                        self._deciding.mask(message(request, fault, self._deciding.commands)),
                        form_of(request),
                        related_request_id=context.request_id,
                    )
                except (MCPError, ValidationError):
                    # The client failed, or its answer is invalid: the call goes on waiting.
                    break
                if result.action == "decline" and self._deciding.declined_at_once(
                    self._asked, self._run, anyio.current_time() - sent
                ):
                    break
                fault = await take(self._run, request, result, in_form(self._asked), self._deciding)
                if fault is None:
                    break
            if fault is not None:
                self._asked.told.append(self._deciding.mask(untaken(request.approval, fault)))
        del self.open[request.approval]
        self.look()


async def stay_with_forms(run: Run, seconds: float, asked: ToolRequest, deciding: Deciding) -> RunStatus:
    """Wait for a run, at most `seconds`, and ask the person about its calls; then withdraw open forms."""
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            forms = Forms(run, asked, group, deciding)
            with run.watching(lambda _event: forms.look()):
                group.start_soon(forms.follow)
                forms.look()
                while run.status == "running" or (run.status == "needs_approval" and forms.open):
                    await forms.changed()
                    # A room may have asked meanwhile: its form goes out before the loop ends.
                    forms.look()
            group.cancel_scope.cancel()
    return run.status


async def ask_once(
    text: str, form: types.ElicitRequestedSchema, asked: ToolRequest, deciding: Deciding
) -> types.ElicitResult | None:
    """Show the person a form that belongs to no run.

    Returns:
        The answer; None if the client declined at once, without showing the form.

    Raises:
        InputRequired: the request must be answered with the form; it comes again with the answer.
    """
    if asked.said is not None:
        result, seconds = asked.said
    elif has_rounds(asked):
        raise InputRequired({_ONCE: _put(text, form)}, Round("", at=time.time()))
    else:
        sent, context = anyio.current_time(), asked.context
        try:
            result = await context.session.elicit_form(text, form, related_request_id=context.request_id)
        except (MCPError, ValidationError):
            # The client failed, or its answer is invalid.
            return types.ElicitResult(action="cancel")
        seconds = anyio.current_time() - sent
    at_once = result.action == "decline" and deciding.declined_at_once(asked, None, seconds)
    return None if at_once else result


def said_once(last: Round, responses: Mapping[str, types.InputResponse]) -> tuple[types.ElicitResult, float]:
    """The answer to the form of `ask_once`, and the seconds since it was sent."""
    response = responses.get(_ONCE)
    result = response if isinstance(response, types.ElicitResult) else types.ElicitResult(action="cancel")
    return result, time.time() - last.at


# -- in rounds ---------------------------------------------------------------------------------------------------


async def answered(
    run: Run, last: Round, responses: Mapping[str, types.InputResponse], asked: ToolRequest, deciding: Deciding
) -> Round:
    """Submit the person's answers to the forms of a round.

    Returns:
        The round with the approvals that stay open and those that are asked about again. An answer that is not accepted
        three times is reported in `asked.told`.
    """
    left, faults = list(last.left), dict[str, tuple[int, str]]()
    pending = {one.approval: one for one in run.pending()}
    seconds = time.time() - last.at
    for approval in last.asked:
        response, request = responses.get(approval), pending.get(approval)
        if request is None:
            # It was decided elsewhere.
            continue
        result = response if isinstance(response, types.ElicitResult) else None
        declined = result is not None and result.action == "decline"
        if declined and deciding.declined_at_once(asked, run, seconds, len(last.asked)):
            left.append(approval)
            continue
        fault = None if result is None else await take(run, request, result, in_form(asked), deciding)
        tries = last.faults.get(approval, (0, ""))[0] + 1
        if fault is not None and tries < _TRIES:
            faults[approval] = (tries, fault)
        elif fault is not None or any(one.approval == approval for one in run.pending()):
            left.append(approval)
        if fault is not None and tries >= _TRIES:
            asked.told.append(deciding.mask(untaken(approval, fault)))
    return Round(last.run, last.number, (), tuple(left), last.samples, faults)


async def stay_until_asked(run: Run, seconds: float, last: Round) -> RunStatus:
    """Wait for a run until it needs the person, at most `seconds`. Other calls then get a moment to finish, so that one
    round contains as many forms as possible.
    """
    with anyio.move_on_after(seconds):
        while run.status == "running" and not open_forms(run, last):
            await run.runner.wait_changed()
        if run.status == "running":
            await run.wait(_GRACE_S)
    return run.status


def open_forms(run: Run, last: Round) -> list[ApprovalRequest]:
    """The approvals of the next round."""
    if last.number >= MAX_FORM_ROUNDS:
        return []
    return [one for one in run.pending() if one.approval not in last.left][:_AT_ONCE]


def forms_of(requests: list[ApprovalRequest], last: Round, deciding: Deciding) -> JSONObject:
    """The forms of the next round, by approval; `last` contains the answers that were not accepted."""
    forms: JSONObject = {}
    for one in requests:
        fault = last.faults.get(one.approval, (0, None))[1]
        forms[one.approval] = _put(deciding.mask(message(one, fault, deciding.commands)), form_of(one))
    return forms


def _put(text: str, form: types.ElicitRequestedSchema) -> JSONObject:
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": text, "requestedSchema": dict[str, Any](form)},
    }
