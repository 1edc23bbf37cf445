"""Asking: the questions of one call of a module's tool, put before whoever made the call (DESIGN 4.10)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import anyio
import mcp_types as types

from ideabridge.bridge.inquiry import Asker, FormAnswer, Inquiry
from ideabridge.bridge.modules.errors import ModuleInputRequiredError
from ideabridge.bridge.modules.form import FormError, read_inquiry
from ideabridge.bridge.modules.results import shown
from ideabridge.bridge.modules.secrets import Secrets

MAX_QUESTION_ROUNDS: Final = 10
"""How often one call may come back with questions (2026)."""

QUESTIONS: Final = 20
"""How many questions one call may put before a person."""

_MESSAGE: Final = 300


class Asking:
    """The questions of one call.

    Args:
        module: its module.
        tool: how the call is named in errors.
        seconds: how long the module may take. Its clock stands while a person is asked.
        asker: whoever made the call; None: nobody can be asked.
        secrets: what to hide.

    Attributes:
        scope: ends the call when its time is up.
        refused: why questions were not put, as whoever made the call is told.
    """

    def __init__(self, module: str, tool: str, seconds: float, asker: Asker | None, secrets: Secrets) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self.refused: list[str] = []
        self._module = module
        self._tool = tool
        self._asker = asker
        self._secrets = secrets
        self._asked = 0
        self._waiting = 0
        self._left = 0.0
        self._one = anyio.Lock()
        self._open: set[anyio.CancelScope] = set()
        self._ended = False

    async def put(self, params: types.ElicitRequestParams, *, apart: bool = False) -> types.ElicitResult:
        """Put a question, and wait for the answer. One that cannot be put is declined, and the run is told.

        Args:
            params: what the module asks.
            apart: this is a task of its own: it is cancelled where the module takes its question back.
        """
        try:
            inquiry = self._masked(read_inquiry(self._module, params))
        except FormError as error:
            return self.refuse(params.message, str(error))
        if self._asker is None:
            return self.refuse(params.message, "nobody can be asked by this call; call the tool within a run")
        self._asked += 1
        if self._asked > QUESTIONS:
            return self.refuse(params.message, f"one call may ask {QUESTIONS} questions, and this is one more")
        with self._stopped_clock(), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                # One after another: a person is shown one form of a call at a time.
                async with self._one:
                    return _result(await self._ask(self._asker, inquiry, apart=apart))
            finally:
                self._open.discard(scope)
        return types.ElicitResult(action="cancel")

    def _masked(self, inquiry: Inquiry) -> Inquiry:
        """The question without secrets: it is shown to a person, and kept."""
        schema = self._secrets.redact(inquiry.schema)
        return replace(
            inquiry,
            message=self._secrets.mask(inquiry.message),
            schema=schema if isinstance(schema, dict) else inquiry.schema,
        )

    async def _ask(self, asker: Asker, inquiry: Inquiry, *, apart: bool) -> FormAnswer:
        if self._ended:
            return FormAnswer("cancel")
        try:
            return await asker.ask(inquiry)
        except anyio.get_cancelled_exc_class():
            if apart and not self._ended:
                asker.withdraw()
            raise

    def end(self) -> None:
        """The call has ended: nobody is asked any more."""
        self._ended = True
        for scope in self._open:
            scope.cancel()

    def refuse(self, message: str, why: str) -> types.ElicitResult:
        """Do not put a question, and tell whoever made the call why."""
        said = shown(message, self._secrets, _MESSAGE)
        reason = shown(why, self._secrets, _MESSAGE)
        told = f"module {self._module!r} asked {said!r}, and was not answered: {reason}"
        # A module may ask without end: what has been told is told once.
        if told not in self.refused and len(self.refused) < QUESTIONS:
            self.refused.append(told)
            if self._asker is not None:
                self._asker.refuse(said, reason)
        return types.ElicitResult(action="decline")

    async def answers(self, required: types.InputRequiredResult) -> dict[str, types.InputResponse]:
        """What a module that answered with questions (2026) is to be called again with.

        Raises:
            ModuleInputRequiredError: it asks for what is never given, or nobody can be asked.
        """
        wanted = required.input_requests or {}
        other = next((one for one in wanted.values() if not isinstance(one, types.ElicitRequest)), None)
        if other is not None:
            raise ModuleInputRequiredError(self._module, f"{self._tool} asks for {refusal_of(other)}")
        if self._asker is None:
            why = f"{self._tool} asks the user for input, and nobody can be asked by this call; call it within a run"
            raise ModuleInputRequiredError(self._module, why)
        found: dict[str, types.InputResponse] = {}
        for name, request in wanted.items():
            if isinstance(request, types.ElicitRequest):
                found[name] = await self.put(request.params)
        return found

    @contextmanager
    def _stopped_clock(self) -> Generator[None]:
        """The time a person takes is not the module's."""
        if self._waiting == 0:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = float("inf")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.scope.deadline = anyio.current_time() + self._left


def refusal_of(request: types.InputRequest) -> str:
    """What a module asks for that it is never given, and why."""
    if isinstance(request, types.CreateMessageRequest):
        return "an answer of a model (sampling), which is refused: a connected server would spend the user's model"
    return "the folders of its client (roots), which are not told to connected servers"


def _result(reply: FormAnswer) -> types.ElicitResult:
    if reply.action != "accept":
        return types.ElicitResult(action=reply.action)
    content: dict[str, str | int | float | bool | list[str] | None] = {}
    for name, value in (reply.content or {}).items():
        if isinstance(value, list):
            content[name] = [str(one) for one in value]
        elif not isinstance(value, dict):
            content[name] = value
    return types.ElicitResult(action="accept", content=content)
