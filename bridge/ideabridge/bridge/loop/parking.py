"""ModuleQuestions: the calls of one run whose modules have asked something and wait for the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from ideabridge.bridge.inquiry import FormAnswer, Inquiry
from ideabridge.bridge.loop.decider import MODULE
from ideabridge.bridge.loop.effect import ExecutionKey
from ideabridge.bridge.loop.event import (
    CallFinished,
    Event,
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    QuestionRefused,
)
from ideabridge.bridge.loop.inquiry import asked
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Standing


class ActiveRun(Protocol):
    """A run at work in this process, as its calls and its mind see it: a runner."""

    machine: Machine

    @property
    def wanted(self) -> bool:
        """Whether anything more may come of the run here."""
        ...

    def post(self, *events: Event) -> None:
        """Take events, journal them, and perform what follows."""
        ...

    def fail(self, error: Exception) -> None:
        """Give the run up here, because what has happened could not be posted."""
        ...


@dataclass(slots=True)
class _Place:
    """A call that waits; without a `reply` once it is `free`, it ended meanwhile."""

    question: QuestionAsked
    free: anyio.Event = field(default_factory=anyio.Event)
    reply: FormAnswer = field(default_factory=lambda: FormAnswer("cancel"))


class ModuleQuestions:
    """Puts the questions of modules, and lets their calls go on with what was answered.

    Args:
        run: the run whose calls these are.
    """

    def __init__(self, run: ActiveRun) -> None:
        self._run = run
        # By the digest of the question: a module may ask again before the journal holds what became of its last one.
        self._places: dict[tuple[ExecutionKey, str], _Place] = {}

    def watch(self, event: Event) -> None:
        """A watcher of the run: what was answered goes back, and what has ended waits no more."""
        if isinstance(event, QuestionAnswered):
            place = self._places.pop(((event.call, event.item), event.digest), None)
            if place is not None:
                place.reply = FormAnswer(event.action, event.content)
                place.free.set()
        elif isinstance(event, CallFinished):
            for key, digest in [one for one in self._places if one[0] == (event.call, event.item)]:
                self._places.pop((key, digest)).free.set()

    async def ask(self, key: ExecutionKey, inquiry: Inquiry) -> FormAnswer:
        """Put the question of the module that runs a call, and wait for the answer."""
        question = asked(self._run.machine.history[key[0]], key[1], inquiry, time.time()) if self._runs(key) else None
        if question is None or not self._tell(question):
            return FormAnswer("cancel")
        place = self._places[key, question.digest] = _Place(question)
        await place.free.wait()
        return place.reply

    def refuse(self, key: ExecutionKey, module: str, message: str, why: str) -> None:
        """Note a question that is not put. The mind is told of it without the module's words."""
        content = (
            f"module {module!r} asked something while it ran {self._run.machine.history[key[0]].call.label}: {why}"
        )
        told = MessageAdded(key[0], {"role": "user", "content": f"{content}. Nobody was asked"})
        if not self._runs(key):
            return
        self._tell(QuestionRefused(key[0], module, message, why, key[1]), told)

    def withdraw(self, key: ExecutionKey) -> None:
        """The module takes back what it has asked."""
        # The machine knows what is open. Watchers are told of an answer when it is journaled.
        one = self._run.machine.history[key[0]].items[key[1] or 0].question
        if one is not None and (key, one.digest) in self._places:
            why = "it took its question back"
            self._tell(QuestionAnswered(one.call, one.digest, "cancel", MODULE, one.item, reason=why))

    def _runs(self, key: ExecutionKey) -> bool:
        """Whether the call runs, as far as the machine knows: it knows of a cancellation before the journal does."""
        progress = self._run.machine.history[key[0]]
        return self._run.wanted and progress.standing is Standing.RUNNING and not progress.items[key[1] or 0].finished

    def _tell(self, *events: Event) -> bool:
        """Journal what happened; whether that could be done."""
        if not self._run.wanted:
            return False
        try:
            self._run.post(*events)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self._run.fail(error)
            return False
        return True


class CallAsker:
    """Whom the module of one call may ask: an `Asker`."""

    def __init__(self, parking: ModuleQuestions, key: ExecutionKey, module: str) -> None:
        self._parking = parking
        self._key = key
        self._module = module

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Put a question; see `ModuleQuestions.ask`."""
        return await self._parking.ask(self._key, inquiry)

    def refuse(self, message: str, why: str) -> None:
        """Note a question that is not put."""
        self._parking.refuse(self._key, self._module, message, why)

    def withdraw(self) -> None:
        """The module takes back what it has asked."""
        self._parking.withdraw(self._key)
