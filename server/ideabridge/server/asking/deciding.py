"""Who decides about a run: a person in a form or at a terminal, or the assistant with `decide_approval`.

If the client shows forms, a person decides and the assistant does not. Some clients declare forms but decline every
form at once without showing it. Such a client counts as one without forms, and nothing is denied.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.loop.event import ApprovalAsked, Decider, Event, OutcomeAsked, PlanAsked, QuestionAsked
from ideabridge.bridge.loop.policy import only_persons
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.users import person_of
from ideabridge.server.asking.forms import Commands
from ideabridge.server.asking.rounds import ToolRequest

T = TypeVar("T")

AT_ONCE_S: Final = 0.3
"""A form that is declined in less time was not shown to a person."""

EACH_S: Final = 0.05
"""Seconds added for each further form that a client answers in the same request."""

TOOL: Final = "decide_approval"

BY_ASSISTANT: Final = (
    "you may decide with decide_approval; ask the person first. The journal then names the assistant as the one who"
    " decided. A person decides at a terminal: {}"
)
IN_THE_FORM: Final = "only the person decides: in the form, which check_run shows again, or at a terminal: {}"
ELSEWHERE: Final = (
    "only the person decides: this run belongs to a client that shows forms. The form there decides, or a terminal: {}"
)
AT_A_TERMINAL: Final = "only the person decides (approval.by in the configuration), at a terminal: {}"
NOBODY_ASKED: Final = (
    "nobody was asked: the client declined the form at once, without showing it to a person. What it asked about is not"
    " denied, and goes on waiting"
)

ENDED: Final = frozenset({"done", "stalled", "limit", "cancelled", "failed"})
"""The statuses of a run that has ended."""

_REMEMBERED: Final = 10_000


class Deciding:
    """Who decides, for each session.

    Args:
        bridge: has the runs, and the store that all servers of a user share.
        commands: the commands with which a person decides at a terminal.

    Attributes:
        changed: called when the tools offered to a session change.
    """

    def __init__(self, bridge: Bridge, commands: Commands) -> None:
        self.bridge = bridge
        self.commands = commands
        self.changed: Callable[[], None] = lambda: None
        self._store = bridge.store
        self._only_persons = only_persons(bridge.configuration.approval_setting)
        self._process = secrets.token_hex(8)
        # Sessions that have declined at once; for clients without a session, the runs of the declined forms.
        self._formless: OrderedDict[str, None] = OrderedDict()
        # The time at which a client last declined at once.
        self._declined: OrderedDict[str, float] = OrderedDict()
        # The pairs of client and run that this process has stored.
        self._held: OrderedDict[str, None] = OrderedDict()

    # -- forms -------------------------------------------------------------------------------------------------

    def shows_forms(self, request: ToolRequest, run: Run | None = None) -> bool:
        """Whether the client of a request shows forms to a person.

        Args:
            request: the request.
            run: the subject of the form. A client without a session (2026-07-28 over HTTP) that has declined at once
                counts as one without forms for that run only, because it cannot be distinguished from the user's other
                clients.
        """
        if not request.takes_forms:
            return False
        key = self._key(request) if self._has_session(request) else None if run is None else f"run {run.root.id}"
        return key is None or key not in self._formless

    def declined_at_once(self, request: ToolRequest, run: Run | None, seconds: float, forms: int = 1) -> bool:
        """Record that a form was declined, and return whether that was too fast for a person.

        Args:
            request: the request with the form.
            run: the subject of the form, or None.
            seconds: the time from sending the form to the answer.
            forms: the number of forms answered together.
        """
        key, now = self._key(request), time.monotonic()
        # A client may decline many forms one after another: then the time since the decline before counts.
        since = min(seconds, now - self._declined.get(key, -math.inf))
        if since >= AT_ONCE_S + EACH_S * (forms - 1) or seconds < 0:
            return False
        _note(self._declined, key, now)
        # Remove this client's holds only; another client with a person may hold the same run. Include the run of the
        # form, which another process may have sent.
        runs = {*self._runs_of(key), *([] if run is None else [run.root.id])}
        left = {held: self._change_holders(held, key, holds=False) for held in runs}
        formless: str | None = None
        if self._has_session(request):
            formless = key
        elif run is not None and not left.get(run.root.id):
            formless = f"run {run.root.id}"
        if formless is not None and formless not in self._formless:
            _note(self._formless, formless, None)
            self.changed()
        if NOBODY_ASKED not in request.notes:
            request.notes.append(NOBODY_ASKED)
        return True

    # -- who decides -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def holding(self, run: Run, request: ToolRequest) -> AsyncGenerator[None]:
        """While a request waits for a run: if its client shows forms, keep the assistant from deciding about the run.

        This begins when the run asks something, or when the request ends before the run. It applies to all sessions and
        processes, because it is stored; it ends when a form is declined at once.
        """

        def watch(_room: Run, event: Event) -> None:
            # The event is journaled and this process still drives the run, so no other process can take it before.
            if isinstance(event, ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked):
                # A watcher must not raise. At the end of the wait the hold is written, or the request fails.
                with suppress(StoreError):
                    self._hold(run, request)

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
        held = f"{key} {run.root.id}"
        if held not in self._held:
            self._change_holders(run.root.id, key, holds=True)
            _note(self._held, held, None)

    def _runs_of(self, key: str) -> list[str]:
        return [held.removeprefix(f"{key} ") for held in self._held if held.startswith(f"{key} ")]

    def _change_holders(self, run: str, key: str, *, holds: bool) -> list[str]:
        """Add or remove a client that holds a run; returns all clients that hold it."""
        kept: list[str] = []

        def change(before: bytes) -> bytes:
            kept[:] = [one for one in before.decode().split("\n") if one and one != key]
            kept.extend([key] if holds else [])
            return "\n".join(kept).encode()

        self._store.settings.change(_setting(run), change)
        if not holds:
            self._held.pop(f"{key} {run}", None)
        return kept

    def offers(self, request: ToolRequest) -> bool:
        """Whether `decide_approval` is offered to the client's model."""
        return not self._only_persons and not self.shows_forms(request)

    def by_person(self, run: Run, request: ToolRequest) -> str | None:
        """How the person decides, if the assistant may not; None if it may."""
        if self.shows_forms(request, run):
            return IN_THE_FORM.format(self.commands.decide)
        if self._only_persons or only_persons(run.machine.settings.approval):
            return AT_A_TERMINAL.format(self.commands.decide)
        return ELSEWHERE.format(self.commands.decide) if self._store.settings.get(_setting(run.root.id)) else None

    def who_decides(self, run: Run, request: ToolRequest) -> str:
        """Who decides and how, for the text of an answer."""
        return self.by_person(run, request) or BY_ASSISTANT.format(self.commands.decide)

    def _key(self, request: ToolRequest) -> str:
        """An id of the client: its session, or without one its request."""
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
    """The person who answers a form of a request."""
    return Decider("person", "form", person_of(request.caller))


def by_tool(request: ToolRequest) -> Decider:
    """The assistant: whoever calls `decide_approval` is a model, even if a person instructed it."""
    return Decider("assistant", "tool", person_of(request.caller))


def _setting(run: str) -> str:
    return f"forms.{run}"


def _note(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)
