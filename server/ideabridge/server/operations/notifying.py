"""Tell a person that a decision is waiting, even if neither a client nor the page is open.

A message says how many decisions are waiting and where to make them. It contains no values from
calls, no titles and no names, because others might read it in transit. Questions asked within a few
seconds share one message. Nothing waits for a message to be sent; a command or webhook that fails
is logged.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import anyio

from ideabridge.bridge.bridge import TOKEN_VARIABLE, Bridge
from ideabridge.bridge.configuration import NotifySettings
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    Event,
    OutcomeAsked,
    PlanAsked,
    QuestionAsked,
)
from ideabridge.bridge.runs.executor import ObservedRun
from ideabridge.server.asking.forms import Commands
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

GATHER_SECONDS = 2.0
"""Time, in seconds, to wait for further questions after the first one. A person who answers
immediately, in a form or on the page, gets no message.
"""

REST_SECONDS = 30.0
"""Minimum time, in seconds, between two messages."""

COMMAND_SECONDS = 30.0
"""Maximum time, in seconds, for which a command can run before it is ended."""

_WEBHOOK_SECONDS = 10.0

logger = logging.getLogger(__name__)


class _Observer:
    """Observes the questions of one run; see `RunObserver`."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask

    def see(self, events: Sequence[Event]) -> None:
        if any(
            isinstance(event, ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked)
            for event in events
        ):
            self._ask()

    @contextmanager
    def around(self, effect: Execute) -> Generator[Callable[[JSON], None]]:
        del effect
        yield lambda _result: None


class Notifying:
    """Sends messages about the runs that this process drives.

    Args:
        bridge: the bridge, whose configuration says whether and how messages are sent.
        commands: contains the address of the page, if there is one, and the command that lists the
            open decisions.
    """

    def __init__(self, bridge: Bridge, commands: Commands) -> None:
        self._bridge = bridge
        self._commands = commands
        self._asked = anyio.Event()
        self._runs: set[str] = set()
        self._announced: set[tuple[str, str]] = set()
        bridge.executor.observers.append(self._observe)

    def _observe(self, run: ObservedRun) -> _Observer:
        while run.parent is not None:
            run = run.parent
        return _Observer(partial(self._ask, run.id))

    def _ask(self, run_id: str) -> None:
        self._runs.add(run_id)
        self._asked.set()

    async def run(self) -> None:
        """Send messages until cancelled."""
        while True:
            await self._asked.wait()
            await anyio.sleep(GATHER_SECONDS)
            self._asked = anyio.Event()
            settings = self._bridge.configuration.notify
            if settings is None:
                self._runs.clear()
                continue

            waiting = await self._waiting()
            is_new = bool(waiting - self._announced)
            self._announced = waiting
            if is_new:
                await self._send(settings, len(waiting))
                await anyio.sleep(REST_SECONDS)

    async def _waiting(self) -> set[tuple[str, str]]:
        """Return the run and the approval of each open question."""
        waiting: set[tuple[str, str]] = set()
        for run_id in sorted(self._runs):
            approvals: set[tuple[str, str]] = set()
            try:
                record = self._bridge.store.runs.get(run_id)
                if record is not None:
                    run = await self._bridge.run(run_id, caller=record.caller)
                    approvals = {(run_id, request.approval) for request in run.pending()}
            except IdeabridgeError as error:
                logger.warning("notify: the questions of %s cannot be read: %s", run_id, error)

            waiting |= approvals
            if not approvals:
                self._runs.discard(run_id)

        return waiting

    async def _send(self, settings: NotifySettings, waiting: int) -> None:
        noun = "decision is" if waiting == 1 else "decisions are"
        page = self._commands.page
        link = None if page is None else f"{page}/approvals"
        text = f"ideabridge: {waiting} {noun} pending: {link or self._commands.show}"
        if settings.command:
            await self._start(settings.command, text)
        if settings.webhook is not None:
            await self._post(settings.webhook, {"text": text, "waiting": waiting, "link": link})

    async def _start(self, command: tuple[str, ...], text: str) -> None:
        """Run the command, with the message as its last argument."""
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        try:
            with anyio.fail_after(COMMAND_SECONDS):
                process = await anyio.run_process(
                    [*command, text],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                )
        except TimeoutError:
            logger.warning("notify: %s did not end within %g s", command[0], COMMAND_SECONDS)
        except (OSError, ValueError) as error:
            logger.warning("notify: %s cannot be started: %s", command[0], error)
        else:
            if process.returncode != 0:
                logger.warning("notify: %s ended with code %d", command[0], process.returncode)

    async def _post(self, webhook: str, message: dict[str, str | int | None]) -> None:
        """Send the message to the webhook.

        Redirects are not followed, because they might lead to another host. The address can contain
        a secret, so only its host is logged.
        """
        import httpx

        host = urlsplit(webhook).hostname
        try:
            async with httpx.AsyncClient(timeout=_WEBHOOK_SECONDS) as client:
                answer = await client.post(webhook, json=message)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            logger.warning("notify: %s did not respond: %s", host, type(error).__name__)
        else:
            if not answer.is_success:
                logger.warning("notify: %s responded with status %d", host, answer.status_code)
