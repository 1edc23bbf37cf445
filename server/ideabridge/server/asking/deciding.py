"""Deciding: who answers what a run asks: the person, in a form or at a terminal, or the assistant by `decide_approval`.

A client that shows forms has a person before it, so there the model does not decide. Some clients declare forms and
decline each one by themselves; such a decline says nothing of any person.
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
from ideabridge.server.asking.rounds import ToolRequest, has_back_channel, has_rounds

T = TypeVar("T")

AT_ONCE_S: Final = 0.3
"""A form that is declined in less time was shown to nobody."""

EACH_S: Final = 0.05
"""What each further form may add to that, of several that a client answers together."""

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
"""How a run stands that asks nothing any more."""

_REMEMBERED: Final = 10_000


class Deciding:
    """Who decides, for each session.

    Args:
        bridge: has the runs, and the store that all servers of a user share.
        commands: what a person writes at a terminal.

    Attributes:
        decide: `Bridge.decide`.
        mask: masks secrets in texts.
        changed: called when the tools offered to a session change.
    """

    def __init__(self, bridge: Bridge, commands: Commands) -> None:
        self.commands = commands
        self.changed: Callable[[], None] = lambda: None
        self.decide = bridge.decide
        self.mask = bridge.secrets.mask
        self._store = bridge.store
        self._only_persons = only_persons(bridge.configuration.approval_setting)
        self._process = secrets.token_hex(8)
        # Sessions that have declined at once; of clients without a session, the runs they declined for.
        self._formless: OrderedDict[str, None] = OrderedDict()
        # When a client last declined at once.
        self._declined: OrderedDict[str, float] = OrderedDict()
        # Which clients of this process are noted in the store as having which runs.
        self._held: OrderedDict[str, None] = OrderedDict()

    # -- forms -------------------------------------------------------------------------------------------------

    def shows_forms(self, asked: ToolRequest, run: Run | None = None) -> bool:
        """Whether forms reach a person at the client of a request.

        Args:
            asked: the request.
            run: what the form is about. A client without a session (2026-07-28 over HTTP) that has declined at once
                counts as showing no forms for that run alone: nothing else tells it from others of the same user.
        """
        if not takes_forms(asked) or not (has_back_channel(asked) or has_rounds(asked)):
            return False
        key = self._key(asked) if self._has_session(asked) else None if run is None else f"run {run.root.id}"
        return key is None or key not in self._formless

    def declined_at_once(self, asked: ToolRequest, run: Run | None, seconds: float, forms: int = 1) -> bool:
        """Note that a form was declined.

        Args:
            asked: the request it went out for.
            run: what it was about; None: about no run.
            seconds: from when it was sent until the answer came.
            forms: how many were answered with it, in one request.

        Returns:
            Whether nobody can have seen it.
        """
        key, now = self._key(asked), time.monotonic()
        # A client that gets many forms may decline them one by one: it is at once behind the one before, which was.
        since = min(seconds, now - self._declined.get(key, -math.inf))
        if since >= AT_ONCE_S + EACH_S * (forms - 1) or seconds < 0:
            return False
        _note(self._declined, key, now)
        # Another client may have a run too, and a person before it: that one's hold stays.
        # The run itself too: the form may have gone out from another process.
        runs = {*self._runs_of(key), *([] if run is None else [run.root.id])}
        left = {held: self._change_holders(held, key, holds=False) for held in runs}
        formless: str | None = None
        if self._has_session(asked):
            formless = key
        elif run is not None and not left.get(run.root.id):
            formless = f"run {run.root.id}"
        if formless is not None and formless not in self._formless:
            _note(self._formless, formless, None)
            self.changed()
        if NOBODY_ASKED not in asked.told:
            asked.told.append(NOBODY_ASKED)
        return True

    # -- who decides -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def holding(self, run: Run, asked: ToolRequest) -> AsyncGenerator[None]:
        """While a request waits for a run: where its client shows forms, the assistant does not decide about the run in
        any session, also not in another process, from the moment at which the run asks something, or the request ends
        before the run does. That is kept in the store, until a form is declined at once.
        """

        def watch(_room: Run, event: Event) -> None:
            # The event is journaled and this process still drives the run, so no other process can take it before.
            if isinstance(event, ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked):
                # A watcher must not raise. At the end of the wait the hold is written, or the request fails.
                with suppress(StoreError):
                    self._hold(run, asked)

        if run.pending():
            await run.patiently(lambda: self._hold(run, asked))
        try:
            with run.watching(lambda event: watch(run, event), watch):
                yield
        finally:
            if run.status not in ENDED:
                await run.patiently(lambda: self._hold(run, asked))

    def _hold(self, run: Run, asked: ToolRequest) -> None:
        if not self.shows_forms(asked, run):
            return
        key = self._key(asked)
        held = f"{key} {run.root.id}"
        if held not in self._held:
            self._change_holders(run.root.id, key, holds=True)
            _note(self._held, held, None)

    def _runs_of(self, key: str) -> list[str]:
        return [held.removeprefix(f"{key} ") for held in self._held if held.startswith(f"{key} ")]

    def _change_holders(self, run: str, key: str, *, holds: bool) -> list[str]:
        """Note that a client has a run, or has it no more; returns all that have it."""
        kept: list[str] = []

        def change(before: bytes) -> bytes:
            kept[:] = [one for one in before.decode().split("\n") if one and one != key]
            kept.extend([key] if holds else [])
            return "\n".join(kept).encode()

        self._store.settings.change(_setting(run), change)
        if not holds:
            self._held.pop(f"{key} {run}", None)
        return kept

    def offers(self, asked: ToolRequest) -> bool:
        """Whether the model at a client is offered `decide_approval`."""
        return not self._only_persons and not self.shows_forms(asked)

    def by_person(self, run: Run, asked: ToolRequest) -> str | None:
        """How the person decides, where the assistant may not; None: it may."""
        if self.shows_forms(asked, run):
            return IN_THE_FORM.format(self.commands.decide)
        if self._only_persons or only_persons(run.machine.settings.approval):
            return AT_A_TERMINAL.format(self.commands.decide)
        return ELSEWHERE.format(self.commands.decide) if self._store.settings.get(_setting(run.root.id)) else None

    def told(self, run: Run, asked: ToolRequest) -> str:
        """Who decides, and how, as an answer says it."""
        return self.by_person(run, asked) or BY_ASSISTANT.format(self.commands.decide)

    def _key(self, asked: ToolRequest) -> str:
        """What tells a client from others of the same user: its session; where it has none, the request."""
        request: object = asked.context.request
        if not isinstance(request, Request):
            return f"stdio {self._process}"
        if self._has_session(asked):
            return f"session {request.headers.get('mcp-session-id')}"
        if not asked.key:
            asked.key = f"request {secrets.token_hex(8)}"
        return asked.key

    def _has_session(self, asked: ToolRequest) -> bool:
        return not (isinstance(asked.context.request, Request) and has_rounds(asked))


def takes_forms(asked: ToolRequest) -> bool:
    """Whether the client declares that it shows forms. One that says no more than `elicitation` shows them too."""
    capabilities = asked.context.session.client_capabilities
    told = capabilities.elicitation if capabilities is not None else None
    return told is not None and (told.form is not None or told.url is None)


def in_form(asked: ToolRequest) -> Decider:
    """Who answers a form that goes out for a request."""
    return Decider("person", "form", person_of(asked.caller))


def by_tool(asked: ToolRequest) -> Decider:
    """Who decides with `decide_approval`: what calls tools is a model, whatever it was told by a person."""
    return Decider("assistant", "tool", person_of(asked.caller))


def _setting(run: str) -> str:
    return f"forms.{run}"


def _note(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)
