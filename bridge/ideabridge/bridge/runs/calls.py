"""Calls: the calls of one run that are running, each in a task of its own.

`Calls` starts and cancels the tasks, and posts the result of each call. Results that arrive in the same pass of the
event loop are posted together; large ones one after another. `ModuleQuestions` holds the questions that the modules of
running calls ask: each of these calls waits until its question is answered.
"""

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
        self._cancelled: set[ExecutionKey] = set()
        self._thread = threading.get_ident()

    def start(self, effect: Execute) -> None:
        """Start a call whose start is journaled."""
        self._handles[effect.key] = self._group.create_task(self._execute(effect))

    def stop(self) -> None:
        """Cancel every call."""
        for handle in list(self._handles.values()):
            handle.cancel()

    def ignore(self, key: ExecutionKey) -> None:
        """Ignore what still comes of a call: the machine knows that it was cancelled."""
        self._cancelled.add(key)

    def cancel(self, key: ExecutionKey) -> None:
        """Cancel the task of a call whose cancellation is journaled."""
        handle = self._handles.get(key)
        if handle is not None:
            handle.cancel()

    async def _execute(self, effect: Execute) -> None:
        try:
            # The run may have been given up before this task began; a call that no journal holds must not run.
            if self._run.wanted and effect.key not in self._cancelled:
                finished = await self._outcome(effect)
                if is_large(finished.value):
                    await self._post_in_turn(finished)
                else:
                    await self._post(finished)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self._run.fail(error)
        finally:
            self._handles.pop(effect.key, None)

    async def _post_in_turn(self, finished: CallFinished) -> None:
        """Post a large result while no other is posted; then leave the event loop to others for as long as it took."""
        lock = _lock_of_loop()
        try:
            await lock.acquire()
        except anyio.get_cancelled_exc_class():
            # The call has run, so its result is journaled although its task is cancelled.
            await self._post(finished)
            raise
        try:
            begun = time.monotonic()
            await self._post(finished)
            await anyio.sleep(min(_MOST_PAUSE, time.monotonic() - begun))
        finally:
            lock.release()

    async def _post(self, finished: CallFinished) -> None:
        """Post that a call has ended. The first one posts for all that end in the same pass of the event loop."""
        self._ended.append(finished)
        if len(self._ended) > 1:
            return
        try:
            if len(self._handles) > 1:
                await anyio.lowlevel.cancel_shielded_checkpoint()
        finally:
            ended = [one for one in self._ended if (one.call, one.item) not in self._cancelled]
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
            # An invalid message fails its call here, and never reaches the journal.
            read_message(copied)
            added = MessageAdded(index, copied if isinstance(copied, dict) else {"role": "user", "content": copied})
            if threading.get_ident() == self._thread:
                add(added)
            else:
                # A sync activity runs in a worker thread; the machine belongs to the event loop.
                anyio.from_thread.run_sync(add, added)

        def add(added: MessageAdded) -> None:
            if effect.key in self._cancelled:
                return
            if not self._run.wanted or not self._run.machine.is_current(index):
                # The activity kept its context, or left a thread behind.
                raise ActivityError("add_message: the solution of this call has ended; the message comes too late")
            self._run.post(added)

        module = effect.tool.module
        asker = None if module is None else CallAsker(self.questions, effect.key, module)
        context = CallContext(effect, on_progress, on_message, run=self, asker=asker, kept=self._run.kept)
        try:
            value: JSON = await self._executor.execute(effect, context, on_progress)
        except Exception as error:  # noqa: BLE001 - whatever an activity raises fails its call alone
            # A failure during a cancellation is a result of it (its module was closed, for example), and no outcome of
            # the call. The journal keeps the call as in flight, and the process that resumes the run decides.
            await anyio.lowlevel.checkpoint_if_cancelled()
            return CallFinished(index, effect.item, error=self._executor.explain(error, effect.tool))
        return CallFinished(index, effect.item, value=value, chosen=context.chosen)


_lock: Final[RunVar[anyio.Lock]] = RunVar("_lock")


def _lock_of_loop() -> anyio.Lock:
    """The lock under which an event loop posts large results, one after another. Posting 8 MB takes up to 1.5 s, and
    200 such results at once would block the event loop.
    """
    try:
        return _lock.get()
    except LookupError:
        lock = anyio.Lock()
        _lock.set(lock)
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
class _Waiting:
    """A call that waits for an answer; without one the `reply` is `cancel`, because the call has ended."""

    question: QuestionAsked
    ended: anyio.Event = field(default_factory=anyio.Event)
    reply: FormAnswer = field(default_factory=lambda: FormAnswer("cancel"))


class ModuleQuestions:
    """Journals the questions of modules, and passes the answers to the calls that wait for them.

    Args:
        run: the run whose calls these are.
    """

    def __init__(self, run: ActiveRun) -> None:
        self._run = run
        # By call and digest: a module may ask again before the journal holds the answer to its last question.
        self._waiting: dict[tuple[ExecutionKey, str], _Waiting] = {}

    def watch(self, event: Event) -> None:
        """A watcher of the run: pass an answer to the call that waits for it; release a call that has ended."""
        if isinstance(event, QuestionAnswered):
            waiting = self._waiting.pop(((event.call, event.item), event.digest), None)
            if waiting is not None:
                waiting.reply = FormAnswer(event.action, event.content)
                waiting.ended.set()
        elif isinstance(event, CallFinished):
            for key, digest in [one for one in self._waiting if one[0] == (event.call, event.item)]:
                self._waiting.pop((key, digest)).ended.set()

    async def ask(self, key: ExecutionKey, inquiry: Inquiry) -> FormAnswer:
        """Journal the question of the module that runs a call, and wait for the answer."""
        question = asked(self._run.machine.history[key[0]], key[1], inquiry, time.time()) if self._runs(key) else None
        if question is None or not self._post(question):
            return FormAnswer("cancel")
        waiting = self._waiting[key, question.digest] = _Waiting(question)
        await waiting.ended.wait()
        return waiting.reply

    def refuse(self, key: ExecutionKey, module: str, message: str, why: str) -> None:
        """Journal a question that nobody is asked. The mind sees that there was one, without the module's words."""
        content = (
            f"module {module!r} asked something while it ran {self._run.machine.history[key[0]].call.label}: {why}"
        )
        if self._runs(key):
            note = MessageAdded(key[0], {"role": "user", "content": f"{content}. Nobody was asked"})
            self._post(QuestionRefused(key[0], module, message, why, key[1]), note)

    def withdraw(self, key: ExecutionKey) -> None:
        """The module takes back what it has asked."""
        # The machine knows which question is open; `watch` is called only after an answer is journaled.
        one = self._run.machine.history[key[0]].items[key[1] or 0].question
        if one is not None and (key, one.digest) in self._waiting:
            why = "it took its question back"
            self._post(QuestionAnswered(one.call, one.digest, "cancel", MODULE, one.item, reason=why))

    def _runs(self, key: ExecutionKey) -> bool:
        """Whether the machine has the call as running: it knows of a cancellation before the journal does."""
        progress = self._run.machine.history[key[0]]
        return self._run.wanted and progress.status is CallStatus.RUNNING and not progress.items[key[1] or 0].finished

    def _post(self, *events: Event) -> bool:
        """Post events; False if the run has ended or been given up."""
        if not self._run.wanted:
            return False
        try:
            self._run.post(*events)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self._run.fail(error)
            return False
        return True


class CallAsker:
    """The `Asker` of one call's module."""

    def __init__(self, questions: ModuleQuestions, key: ExecutionKey, module: str) -> None:
        self._questions = questions
        self._key = key
        self._module = module

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Put a question; see `ModuleQuestions.ask`."""
        return await self._questions.ask(self._key, inquiry)

    def refuse(self, message: str, why: str) -> None:
        """See `ModuleQuestions.refuse`."""
        self._questions.refuse(self._key, self._module, message, why)

    def withdraw(self) -> None:
        """The module takes back what it has asked."""
        self._questions.withdraw(self._key)
