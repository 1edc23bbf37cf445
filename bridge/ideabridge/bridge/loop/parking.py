"""Parking: the calls of one run whose modules have asked something and wait for the answer (DESIGN 4.10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from ideabridge.bridge.inquiry import Inquiry, Reply
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
from ideabridge.bridge.loop.progress import Progress


@dataclass(slots=True)
class _Place:
    """A call that waits; without a `reply` once it is `free`, it ended meanwhile."""

    question: QuestionAsked
    free: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply = field(default_factory=lambda: Reply("cancel"))


class Parking:
    """Puts the questions of modules, and lets their calls go on with what was answered.

    Args:
        call: a call of the run, by its index.
        post: takes the events.
        wanted: whether anything more may come of the run here.
        fail: given what came, where what has happened could not be posted.
    """

    def __init__(
        self,
        call: Callable[[int], Progress],
        post: Callable[[Sequence[Event]], None],
        wanted: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        self._call = call
        self._post = post
        self._wanted = wanted
        self._fail = fail
        self._places: dict[ExecutionKey, _Place] = {}

    def watch(self, event: Event) -> None:
        """A watcher of the run: what was answered goes back, and what has ended waits no more."""
        if isinstance(event, QuestionAnswered):
            place = self._places.pop((event.call, event.item), None)
            if place is not None:
                place.reply = Reply(event.action, event.content)
                place.free.set()
        elif isinstance(event, CallFinished) and self._places:
            place = self._places.pop((event.call, event.item), None)
            if place is not None:
                place.free.set()

    async def ask(self, key: ExecutionKey, inquiry: Inquiry) -> Reply:
        """Put the question of the module that runs a call, and wait for the answer."""
        question = asked(self._call(key[0]), key[1], inquiry, time.time()) if self._wanted() else None
        if question is None or not self._tell(question):
            return Reply("cancel")
        place = self._places[key] = _Place(question)
        await place.free.wait()
        return place.reply

    def refuse(self, key: ExecutionKey, module: str, message: str, why: str) -> None:
        """Note a question that is not put. The mind is told of it without the module's words."""
        content = f"module {module!r} asked something while it ran {self._call(key[0]).call.label}: {why}"
        told = MessageAdded(key[0], {"role": "user", "content": f"{content}. Nobody was asked"})
        self._tell(QuestionRefused(key[0], module, message, why, key[1]), told)

    def withdraw(self, key: ExecutionKey) -> None:
        """The module takes back what it has asked."""
        place = self._places.get(key)
        if place is not None:
            one = place.question
            why = "it took its question back"
            self._tell(QuestionAnswered(one.call, one.digest, "cancel", MODULE, one.item, reason=why))

    def _tell(self, *events: Event) -> bool:
        """Journal what happened; whether that could be done."""
        if not self._wanted():
            return False
        try:
            self._post(events)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self._fail(error)
            return False
        return True


class CallAsker:
    """Whom the module of one call may ask: an `Asker`."""

    def __init__(self, parking: Parking, key: ExecutionKey, module: str) -> None:
        self._parking = parking
        self._key = key
        self._module = module

    async def ask(self, inquiry: Inquiry) -> Reply:
        """Put a question; see `Parking.ask`."""
        return await self._parking.ask(self._key, inquiry)

    def refuse(self, message: str, why: str) -> None:
        """Note a question that is not put."""
        self._parking.refuse(self._key, self._module, message, why)

    def withdraw(self) -> None:
        """The module takes back what it has asked."""
        self._parking.withdraw(self._key)
