"""Calls: the calls of one run that are at work, each in a task of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio import TaskHandle
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

from ideabridge.bridge.context.inquiry import FormAnswer, Inquiry
from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.loop.effect import Execute, ExecutionKey
from ideabridge.bridge.loop.event import (
    MODULE,
    CallFinished,
    Event,
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    QuestionRefused,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.question import asked
from ideabridge.bridge.loop.resuming import finish_events
from ideabridge.bridge.runs.executor import CallContext, Executor, Kept
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import ActivityError

ReportedProgress: TypeAlias = Callable[[int, float, float | None, str | None], None]
"""(call, progress, total, message): what an activity or a module reports while it runs."""

_LARGE_TEXT: Final = 256 * 1024
_LARGE_NODES: Final = 10_000
_MOST_PAUSE: Final = 2.0


class ActiveRun(Protocol):
    """What calls need of their run: `Runner`."""

    machine: Machine
    kept: Kept
    progress_watchers: list[ReportedProgress]

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


class Calls:
    """Runs calls.

    Args:
        run: the run whose calls these are.
        executor: runs one call.
        group: task group the calls run in; it outlives the run.

    Attributes:
        questions: what their modules ask while they run.
    """

    def __init__(self, run: ActiveRun, executor: Executor, group: TaskGroup) -> None:
        self.questions = ModuleQuestions(run)
        self._run = run
        self._executor = executor
        self._group = group
        self._handles: dict[ExecutionKey, TaskHandle[None]] = {}
        self._ended: list[CallFinished] = []
        self._called_off: set[ExecutionKey] = set()
        self._thread = threading.get_ident()

    def start(self, effect: Execute) -> None:
        """Start a call; that it has started is journaled."""
        self._handles[effect.key] = self._group.create_task(self._execute(effect))

    def stop(self) -> None:
        """Cancel every call."""
        for handle in list(self._handles.values()):
            handle.cancel()

    def ignore(self, key: ExecutionKey) -> None:
        """The machine has taken that a call was cancelled: what still comes of it is ignored from now on."""
        self._called_off.add(key)

    def call_off(self, key: ExecutionKey) -> None:
        """Cancel one call; that it was cancelled is journaled."""
        handle = self._handles.get(key)
        if handle is not None:
            handle.cancel()

    async def _execute(self, effect: Execute) -> None:
        try:
            # Given up between being due and its turn: what no journal holds must not run.
            if self._run.wanted and effect.key not in self._called_off:
                finished = await self._outcome(effect)
                if is_large(finished.value):
                    await self._tell_in_turn(finished)
                else:
                    await self._tell(finished)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self._run.fail(error)
        finally:
            self._handles.pop(effect.key, None)

    async def _tell_in_turn(self, finished: CallFinished) -> None:
        """Post a large result when no other is taken, and leave the event loop to others for as long as that took."""
        lock = _turns()
        try:
            await lock.acquire()
        except anyio.get_cancelled_exc_class():
            # It has happened, and is journaled whatever else ends.
            await self._tell(finished)
            raise
        try:
            begun = time.monotonic()
            await self._tell(finished)
            await anyio.sleep(min(_MOST_PAUSE, time.monotonic() - begun))
        finally:
            lock.release()

    async def _tell(self, finished: CallFinished) -> None:
        """Post that a call has ended: the first for all that end in the same pass of the event loop."""
        self._ended.append(finished)
        if len(self._ended) > 1:
            return
        try:
            if len(self._handles) > 1:
                await anyio.lowlevel.cancel_shielded_checkpoint()
        finally:
            ended = [one for one in self._ended if (one.call, one.item) not in self._called_off]
            self._ended = []
            if ended and self._run.wanted:
                now = time.time()
                self._run.post(*(event for one in ended for event in finish_events(self._run.machine, one, now)))

    async def _outcome(self, effect: Execute) -> CallFinished:
        index = effect.call.index

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            for watcher in list(self._run.progress_watchers):
                watcher(index, progress, total, message)

        def on_message(message: JSONObject) -> None:
            copied = normalise(message, what="the message")
            # Read here, so that a message that is none fails its call and never reaches the journal.
            read_message(copied)
            added = MessageAdded(index, copied if isinstance(copied, dict) else {"role": "user", "content": copied})
            if threading.get_ident() == self._thread:
                add(added)
            else:
                # A sync activity runs in a worker thread; the machine belongs to the event loop.
                anyio.from_thread.run_sync(add, added)

        def add(added: MessageAdded) -> None:
            if effect.key in self._called_off:
                return
            if not self._run.wanted or not self._run.machine.is_current(index):
                # An activity that kept its context, or left a thread behind.
                raise ActivityError("add_message: the solution of this call has ended; the message comes too late")
            self._run.post(added)

        module = effect.tool.module
        asker = None if module is None else CallAsker(self.questions, effect.key, module)
        context = CallContext(effect, on_progress, on_message, run=self, asker=asker, kept=self._run.kept)
        try:
            value: JSON = await self._executor.execute(effect, context, on_progress)
        except Exception as error:  # noqa: BLE001 - whatever an activity raises fails its call alone
            # What fails while everything is being cancelled fails because of that: the module was closed, say. It is no
            # outcome. The journal keeps the call as in flight, and whoever takes the run up decides.
            await anyio.lowlevel.checkpoint_if_cancelled()
            return CallFinished(index, effect.item, error=self._executor.explain(error, effect.tool))
        return CallFinished(index, effect.item, value=value, chosen=context.chosen)


_of_loop: Final[RunVar[anyio.Lock]] = RunVar("_of_loop")


def _turns() -> anyio.Lock:
    """Large results are taken one after another in one event loop: taking one of 8 MB takes up to 1.5 s, and 200 of
    them at once would leave no turn to anybody else.
    """
    try:
        return _of_loop.get()
    except LookupError:
        lock = anyio.Lock()
        _of_loop.set(lock)
        return lock


def is_large(value: JSON) -> bool:
    """Whether a value has many parts or a long text, without looking at all of it."""
    stack: list[JSON] = [value]
    parts = characters = 0
    while stack:
        item = stack.pop()
        parts += 1
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, list | dict):
            if parts + len(stack) + len(item) > _LARGE_NODES:
                return True
            stack.extend(item.values() if isinstance(item, dict) else item)
        if characters > _LARGE_TEXT:
            return True
    return False


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
        return self._run.wanted and progress.status is CallStatus.RUNNING and not progress.items[key[1] or 0].finished

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
