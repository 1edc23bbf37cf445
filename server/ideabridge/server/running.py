"""Wait for runs on behalf of requests, ask the client, compose answers about runs, and cancel and
publish them (`save_as`).

`Running.wait` serves every request that is waiting for a run. Meanwhile, the person at the client
is asked about calls that need approval, and the client's model answers Requests, if the client
supports this. Up to 2025-11-25, the questions are sent on the back-channel. From 2026-07-28, the
response to the request contains the questions (`InputRequired`), and `Running.take_up` reads the
answers when the client repeats the request.

The name in `save_as` is stored as a setting, so that the run is published even if this process
dies. The setting also counts the attempts: if the process has ended twice during a publication,
that publication is set aside, because it might have been the cause.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeVarTuple, Unpack

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.errors import InterruptedRunError, ModulesAwayError
from ideabridge.bridge.loop.event import CallStarted, Event, RunEnded, ends_execution
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.modules.blocks import Blocks
from ideabridge.bridge.modules.start_progress import reporting_starts
from ideabridge.bridge.runs.executor import label
from ideabridge.bridge.runs.run import Run, RunStatus
from ideabridge.bridge.store.errors import PASSING, StoreError
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.server.answers import (
    MAX_DIRECT,
    MAX_RESULT,
    VALUES,
    ToolAnswer,
    answer,
    fitting_list,
    refusal,
    run_text,
)
from ideabridge.server.asking.elicitation import (
    Deciding,
    answer_once,
    approval_forms,
    note_answers,
    open_forms,
    wait_until_asked,
    wait_with_forms,
)
from ideabridge.server.asking.forms import Commands
from ideabridge.server.asking.relaying import Relaying
from ideabridge.server.asking.rounds import (
    STATE_SECONDS,
    InputRequired,
    Round,
    ToolRequest,
    read_state,
)
from ideabridge.server.asking.sampling import Sampler
from ideabridge.server.brief import (
    NOTHING,
    Known,
    brief_requests,
    preview_approvals,
    shorten_answer,
)
from ideabridge.server.callers import Context, caller_of, session_id
from ideabridge.server.extensions.module_views import ModuleViews
from ideabridge.server.search import ToolSearch
from ideabridge.server.views.text import cost_of_request
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.names import counted
from ideabridge.tools.worker import WorkerError

# -- cancelled requests ----------------------------------------------------------------------------
#
# A host that ends calls after a minute must not lose the run. Such a host names the timeout as the
# reason in `notifications/cancelled`. Over HTTP in 2026-07-28, a call is cancelled by closing the
# connection, which gives no reason.

CANCELLED: Final = "notifications/cancelled"

_TIME_OUT: Final = re.compile(r"time[ds]?[ -]?out|deadline|too long", re.IGNORECASE)
_MOST_REASONS: Final = 100
_REASON_SECONDS: Final = 1.0
"""Time, in seconds, to wait for the notification, which arrives independently of the end of the
request.
"""


class Cancellations:
    """Why requests were recently cancelled, keyed by session and request id, because request ids
    are unique only within a session.
    """

    def __init__(self) -> None:
        self._reasons: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._changed = anyio.Event()

    def note(self, context: Context) -> None:
        """Handle `notifications/cancelled`.

        Some clients cancel a request twice after a timeout: once because of the timeout, and once
        because the request was aborted. The timeout remains the reason.
        """
        params: Mapping[str, Any] = context.params or {}
        key = (session_id(context), str(params.get("requestId")))
        reason = params.get("reason")
        if _TIME_OUT.search(self._reasons.get(key, "")) is None:
            self._reasons[key] = reason if isinstance(reason, str) else ""

        while len(self._reasons) > _MOST_REASONS:
            self._reasons.popitem(last=False)

        changed = self._changed
        self._changed = anyio.Event()
        changed.set()

    async def is_deliberate(self, context: Context) -> bool:
        """Return whether the client of a cancelled request gave a reason other than a timeout."""
        key = session_id(context), str(context.request_id)
        with anyio.move_on_after(_REASON_SECONDS):
            while key not in self._reasons:
                await self._changed.wait()
        reason = self._reasons.pop(key, None)
        return reason is not None and _TIME_OUT.search(reason) is None


# -- progress --------------------------------------------------------------------------------------

_BUFFERED = 1000
"""Maximum number of notifications that wait for a client that reads slowly. Later ones are
dropped."""

_Note = tuple[float, float | None, str]


async def _with_progress(
    run: Run,
    request: ToolRequest,
    seconds: float,
    wait: Callable[[], Awaitable[object]],
    connecting: Callable[[], Sequence[str]],
) -> None:
    """Await `wait` for up to `seconds`.

    If the request wants progress notifications, send them for every call, and while a call is
    waiting for a server to start.

    Args:
        run: the run that the request is about.
        request: the request that is waiting.
        seconds: the maximum time that the request waits.
        wait: the function to await.
        connecting: returns the names of the servers that are currently connecting.
    """
    if not request.wants_progress:
        with anyio.move_on_after(seconds):
            await wait()
        return

    send, receive = anyio.create_memory_object_stream[_Note](_BUFFERED)
    counter = _Counter(run)

    def send_soon(note: _Note) -> None:
        # If the client is slow or gone, this notification can be dropped, because a later one
        # contains a newer count.
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            send.send_nowait(note)

    def watch(room: Run, event: Event) -> None:
        note = counter.note(room, event)
        if note is not None:
            send_soon(note)

    async def starts(step: float, _total: float | None, text: str | None) -> None:
        send_soon((counter.reached + step, counter.total, text or ""))

    def starting() -> list[str]:
        names = {*connecting()}
        return sorted(names & _awaited_servers(run)) if names else []

    with send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(_report, receive, request)
            # Remove the watchers before closing the stream, because a watcher must not raise an
            # error.
            with run.watching(lambda event: watch(run, event), watch):
                for note in counter.so_far(run)[:_BUFFERED]:
                    send.send_nowait(note)
                with anyio.move_on_after(seconds):
                    await reporting_starts(wait, starts, starting)

            send.close()


async def _report(notes: MemoryObjectReceiveStream[_Note], request: ToolRequest) -> None:
    async for done, total, message in notes:
        await request.context.session.report_progress(done, total, message)


def _awaited_servers(run: Run) -> set[str]:
    """Return the servers of the running calls of a run and its rooms."""
    servers = {
        progress.tool.module
        for progress in run.calls()
        if progress.tool is not None and _has_started(progress) and not progress.settled
    }
    for room in run.rooms.values():
        servers |= _awaited_servers(room)
    return {server for server in servers if server is not None}


def _has_started(progress: Progress) -> bool:
    return any(item.started for item in progress.items)


_PARTS: Final = 100
"""Skipped calls are counted again whenever the number of notifications has grown by the number of
calls divided by this number.
"""


@dataclasses.dataclass(slots=True)
class _Skipped:
    """How many calls in a run settled without starting, and how many notifications have been sent
    since these calls were counted.
    """

    count: int = 0
    notes: int = 0
    calls: int = -1


class _Counter:
    """Counts the calls of a run and its rooms. The start of a call counts as half a call, so that
    progress increases with every notification.

    Skipped calls have no events, and looking for them at each event would take quadratic time. So
    in a run with many calls, they are counted only now and then.

    Attributes:
        reached: the progress reported by the latest notification.
    """

    def __init__(self, run: Run) -> None:
        self.reached = 0.0
        self._run = run
        self._started: set[tuple[str, int]] = set()
        self._finished: dict[str, set[int]] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._all_settled = 0
        self._all_calls = 0
        self._skipped: dict[str, _Skipped] = {}

    def so_far(self, run: Run) -> list[_Note]:
        """Return notifications about the calls that are already running."""
        notes: list[_Note] = []
        for progress in run.calls():
            key = (run.id, progress.call.index)
            if progress.settled and _has_started(progress):
                self._started.add(key)
                self._finished.setdefault(run.id, set()).add(progress.call.index)
            elif _has_started(progress):
                self._started.add(key)
                notes.append(self._note(run, f"{self._named(run, progress)} started"))

        for room in run.rooms.values():
            notes.extend(self.so_far(room))
        return notes

    def note(self, run: Run, event: Event) -> _Note | None:
        """Return the notification about an event of the run or a room, or None if clients do not
        need one.
        """
        if not isinstance(event, CallStarted) and not ends_execution(event):
            return None

        key = (run.id, event.call)
        calls = run.calls()
        progress = calls[event.call] if event.call < len(calls) else None
        named = "a call" if progress is None else self._named(run, progress)
        if isinstance(event, CallStarted):
            if key in self._started:
                return None
            self._started.add(key)
            return self._note(run, f"{named} started")

        if progress is not None and not progress.settled:
            # Do not count the call yet, because other items of it are still running.
            return None

        self._finished.setdefault(run.id, set()).add(event.call)
        how = "failed" if event.error is not None else "done"
        return self._note(run, f"{named} {how} ({self._settled(run)} of {len(calls)})")

    def _named(self, run: Run, progress: Progress) -> str:
        """Return the label of a call, prefixed with those of the calls in whose rooms it is."""
        names = [label(progress)]
        while run is not self._run and run.parent is not None:
            answered = run.parent.calls()[run.key[0]]
            names.append(label(answered))
            run = run.parent
        return ": ".join(reversed(names))

    def _note(self, run: Run, message: str) -> _Note:
        # Keep counting the calls of a room after it has ended, so that progress never decreases.
        settled_before, total_before = self._counts.get(run.id, (0, 0))
        settled = self._settled(run)
        total = len(run.calls())
        self._counts[run.id] = (settled, total)
        self._all_settled += settled - settled_before
        self._all_calls += total - total_before
        self.reached = (len(self._started) + self._all_settled) / 2
        return self.reached, float(self._all_calls), message

    @property
    def total(self) -> float | None:
        """The number of calls counted in notifications, or None before the first notification."""
        return float(self._all_calls) if self._all_calls else None

    def _settled(self, run: Run) -> int:
        # The run can be ahead of its watchers, so count only calls that were reported or never
        # started.
        return len(self._finished.get(run.id, ())) + self._never_started(run)

    def _never_started(self, run: Run) -> int:
        calls = run.calls()
        skipped = self._skipped.setdefault(run.id, _Skipped())
        skipped.notes += 1
        if skipped.calls != len(calls) or skipped.notes > len(calls) // _PARTS:
            skipped.count = sum(
                1 for progress in calls if progress.settled and not _has_started(progress)
            )
            skipped.notes = 0
            skipped.calls = len(calls)

        return skipped.count


# -- running ---------------------------------------------------------------------------------------

WAIT_S: Final = 45.0
"""The default of `wait_s`. Many hosts end a call after 60 s."""


_APPROVALS_BYTES: Final = 250_000
"""Limit, in bytes of JSON, on the approvals in one answer. The answer's text repeats them."""

_SAVE_AS: Final = "save_as."
"""The prefix of the settings that store the names under which runs will be published."""

_SAVED_S: Final = 3.0
"""Minimum time, in seconds, that a request waits for the publication of its run after the run has
ended. If the request has more time left, it waits that long.
"""

_AGAIN_S: Final = 1.0
_AGAIN_MOST_S: Final = 60.0
"""The first and the longest pause, in seconds, between two attempts to publish a run."""

_MOST_TRIES: Final = 2
"""Number of attempts after which a publication that ends its process or takes too long is set
aside.
"""

_NEEDS_PROGRAM: Final = (
    "copied values do not determine the answer for different input; publish_idea with this run "
    "and name says what would"
)

Parts = TypeVarTuple("Parts")

logger = logging.getLogger(__name__)


def state_key(store: Store) -> bytes:
    """Return the key that seals the state of requests. The first server on a store creates it."""
    return store.settings.ensure("request_state_key", lambda: secrets.token_bytes(32))


def _largest_part(run: Run) -> str:
    """Return a sentence about the largest part of the first open Request, or "" if none is open."""
    for asking in run.open_requests():
        if asking.runner.request is not None:
            return f" Of a request, {asking.runner.request.largest()}."
    return ""


def _read_blocks(run: Run, blocks: Blocks) -> JSONObject:
    """Return the placeholders of the content blocks in the values that the last Solution read,
    keyed by reference.

    The Request is text, so it contains only the sizes of these blocks.
    """
    read: JSONObject = {}
    for asking in run.open_requests():
        machine = asking.machine
        for progress in machine.history[len(machine.history) - len(machine.solution.calls) :]:
            if not is_reader(progress.tool) or progress.status is not CallStatus.DONE:
                continue
            before = len(blocks.placeholders)
            blocks.take(progress.items[0].parameters.get("reference"))
            if placeholders := blocks.placeholders[before:]:
                read[str(progress.call.raw.get("reference"))] = placeholders

    return read


class Running:
    """Carries out runs on behalf of requests. The task group must exist as long as the server does.

    Attributes:
        search: an index of the tools of the bridge.
        published: called after an idea is published, to announce it immediately.
        closing: whether the server is shutting down. If so, the cancellation of a request does not
            come from its client.
    """

    def __init__(self, bridge: Bridge, group: TaskGroup, commands: Commands) -> None:
        self.bridge = bridge
        self._group = group
        self.sampler = Sampler(bridge)
        self.search = ToolSearch()
        self.cancellations = Cancellations()
        self.deciding = Deciding(bridge, commands)
        self.relaying = Relaying(bridge, group)
        self.module_views = ModuleViews(bridge)
        self.published: Callable[[], None] = lambda: None
        # Both are keyed by run: an event that is set after the first attempt to publish the run,
        # and the reason why it is not published yet.
        self._saving: dict[str, anyio.Event] = {}
        self._unsaved: dict[str, str] = {}
        self.closing = False

    def start(
        self, work: Callable[[Unpack[Parts]], Coroutine[Any, Any, None]], *arguments: *Parts
    ) -> None:
        """Start work that outlives its request, and that must not raise errors."""
        self._group.start_soon(work, *arguments)

    async def wait(self, run: Run, seconds: float, request: ToolRequest) -> RunStatus:
        """Wait up to `seconds` until the run needs a decision or a solution, or has ended.

        In the meantime, the person at the client is asked about calls that need approval, if the
        client shows forms, and the client's model is asked for solutions, if the run uses sampling.
        With 0 seconds, nobody is asked.

        Raises:
            InputRequired: the response must contain questions. The client repeats the request with
                the answers.
        """
        forms = self.deciding.shows_forms(request, run)
        asks = seconds > 0 and (forms or self.sampler.can_ask(run, request))
        ends = anyio.current_time() + seconds
        async with self.deciding.holding(run, request) if forms else nullcontext():
            if not asks:
                await self._with_progress(run, request, seconds, run.wait)
            elif request.has_back_channel:
                await self._with_progress(
                    run, request, seconds, lambda: self._wait_and_ask(run, request)
                )
            else:
                await self._wait_for_round(run, seconds, request)

        self.sampler.explain(run, request, seconds)
        if run.status in ENDED and self._intent(run.id) is not None:
            # Publish the run before sending the answer, so that a client that then calls the new
            # tool immediately finds it.
            with anyio.move_on_after(max(_SAVED_S, ends - anyio.current_time())):
                await self._save_soon(run).wait()

        return run.status

    async def _with_progress(
        self, run: Run, request: ToolRequest, seconds: float, wait: Callable[[], Awaitable[object]]
    ) -> None:
        await _with_progress(run, request, seconds, wait, self.bridge.modules.connecting)

    async def _wait_and_ask(self, run: Run, request: ToolRequest) -> None:
        """Wait, and ask on the back-channel, until no question is left."""
        while True:
            if self.deciding.shows_forms(request, run):
                await wait_with_forms(run, request, self.deciding)
            else:
                await run.wait()
            if not await self.sampler.ask(run, request):
                return

    async def _wait_for_round(self, run: Run, seconds: float, request: ToolRequest) -> None:
        """Wait until a person or a model must be asked, and then respond to the request with the
        questions.
        """
        last = request.round or Round(run.id)
        await self._with_progress(
            run, request, seconds, lambda: self._wait_until_due(run, request, last)
        )
        if self.deciding.shows_forms(request, run):
            approvals = open_forms(run, last)
        else:
            approvals = []

        forms = approval_forms(approvals, last, request, self.deciding)
        questions, samples = await self.sampler.questions(
            self.sampler.due(run, request, last.number), request
        )
        if forms or questions:
            approval_ids = tuple(approval.approval for approval in approvals)
            following = dataclasses.replace(
                last,
                number=last.number + 1,
                asked=approval_ids,
                samples=samples,
                at=time.time(),
                key=request.key,
            )
            raise InputRequired({**forms, **questions}, following)

    async def _wait_until_due(self, run: Run, request: ToolRequest, last: Round) -> None:
        while True:
            shows = self.deciding.shows_forms(request, run)
            if shows:
                await wait_until_asked(run, last)
            else:
                await run.wait()
            if (shows and open_forms(run, last)) or not self.sampler.waits_for_others(run, request):
                return
            await run.runner.wait_changed()

    async def take_up(
        self, request: ToolRequest, state: str, responses: Mapping[str, types.InputResponse] | None
    ) -> None:
        """Read the answers in a repeated request, and set `request.resumed` to its run.

        `state` is already unsealed. `responses` contains the answers, keyed by the names of the
        questions.

        Raises:
            UnknownRunError: the run belongs to another caller.
            SettledTurnError, FinishedRunError, InterruptedRunError: an answer comes too late or
                repeats an earlier one.
        """
        last = read_state(state)
        if last.is_relayed:
            request.relayed = last
            return

        request.key = last.key
        if not last.run:
            request.form_answer = answer_once(last, responses or {})
            return

        run = await self.bridge.run(last.run, caller=request.caller)
        request.resumed = run
        request.round = await note_answers(run, last, responses or {}, request, self.deciding)
        await self.sampler.answered(last, request, responses or {})

    def boundary(self, audience: str) -> RequestStateBoundary:
        """Return middleware that seals the state of requests that clients repeat, using a key
        shared by all servers on a store.

        A state, including any state of a server behind this one, is bound to its caller, and is
        rejected if another caller sends it.
        """
        # Bind the state to the caller, because the SDK would bind it to a token that only its own
        # middleware records.
        security = RequestStateSecurity(
            keys=[state_key(self.bridge.store)], ttl=STATE_SECONDS, bind_principal=caller_of
        )
        return RequestStateBoundary(security, default_audience=audience)

    async def wait_started(
        self, run: Run, request: ToolRequest, seconds: float = WAIT_S
    ) -> RunStatus:
        """Wait for a run as `wait` does, on behalf of the request that started it. If a person
        cancels that request, the run is cancelled.

        If the host ends the request because of a timeout, or disconnects, the run continues, and
        `check_run` can find it.
        """
        try:
            return await self.wait(run, seconds, request)
        except anyio.get_cancelled_exc_class():
            if not self.closing:
                self._group.start_soon(self._cancel_if_deliberate, run, request)
            raise

    async def _cancel_if_deliberate(self, run: Run, request: ToolRequest) -> None:
        if await self.cancellations.is_deliberate(request.context):
            # The error means that another process might have taken the run over.
            with suppress(InterruptedRunError):
                await run.patiently(
                    lambda: run.cancel("the client cancelled the request that started it")
                )

    # -- answers -----------------------------------------------------------------------------------

    def answer_of(
        self, run: Run, request: ToolRequest, *, reader: Known = NOTHING, notes: Sequence[str] = ()
    ) -> ToolAnswer:
        """Return the result of a tool call about a run, with additional notes for the caller. The
        answer does not repeat what `reader` already knows.
        """
        blocks = Blocks()
        result = run.answer(blocks=blocks)
        read = _read_blocks(run, blocks)
        if read:
            result["read"] = read

        saved = self.saved(run)
        if saved is not None:
            result["saved"] = saved

        if run.status == "running":
            result["progress"] = self._progress(run, result)

        if notes or request.notes:
            result["notes"] = [*notes, *request.notes, *result.get("notes", [])]

        approvals = result.get("approvals")
        if approvals:
            result["approvals"] = listed = fitting_list(
                preview_approvals(run, approvals), _APPROVALS_BYTES
            )
            if len(listed) < len(approvals):
                result["more_approvals"] = len(approvals) - len(listed)
            result["decides"] = self.deciding.who_decides(run, request)

        requests = result.get("requests")
        if requests is not None:
            result["requests"] = brief_requests(
                run, requests, self.bridge.offer.known, self.search, reader
            )

        shorten_answer(run, result, is_next_turn=reader.before is not None)
        size = len(encode(result))
        content = blocks.place(
            [result.get(key) for key in (*VALUES, "errors")],
            first=1,
            # Show the blocks only once the run has ended, because otherwise every answer about it
            # would show them again.
            room=0 if run.status == "running" else MAX_DIRECT - 2 * size,
            otherwise="check_run with only this path in paths shows it",
        )
        # Only half of the space is available if the text repeats a Request in full, as it does for
        # hosts that show only text.
        most = MAX_RESULT if requests is None else MAX_RESULT // 2
        if size > most:
            return refusal(
                f"run {run.id} is {run.status}, but its answer has {size:,} bytes; the limit is "
                f"{most:,}.{_largest_part(run)}",
                {"run": run.id, "status": run.status, "errors": []},
            )

        return answer(result, run_text(result), content)

    def _progress(self, run: Run, result: dict[str, Any]) -> str:
        """Describe the progress of an open run in one sentence. `result` is the answer about the
        run.
        """
        calls = run.calls()
        settled = sum(1 for call in calls if call.settled)
        text = f"{settled} of {counted(len(calls), 'call')} done"
        open_request = result.get("usage", {}).get("request")
        if open_request is not None:
            text += f"; a request is being answered: {cost_of_request(open_request['bytes'])}"

        if run.is_elsewhere and self._is_queued(run.id):
            text += "; it waits for a worker"

        return text

    def _is_queued(self, run_id: str) -> bool:
        record = self.bridge.store.runs.get(run_id)
        return record is not None and record.status == QUEUED

    # -- publishing runs that end later ------------------------------------------------------------

    def save_when_done(self, run: Run, name: str) -> None:
        """Publish the run under `name` once it is done. The name is stored, so that the run is
        published even if the process dies.
        """
        self._keep(run.id, {"name": name})
        self.publish_when_done(run)

    def publish_when_done(self, run: Run) -> None:
        """Publish a run that has a stored name once it has ended."""
        if self._intent(run.id) is None:
            return
        if run.status in ENDED:
            self._save_soon(run)
            return

        def watch(event: Event) -> None:
            if isinstance(event, RunEnded):
                # Use another task to wait, because the end of the run has not been written yet when
                # its watchers are called.
                self._group.start_soon(self._save_when_written, run)

        run.runner.watchers.append(watch)

    async def _save_when_written(self, run: Run) -> None:
        if await run.wait() in ENDED:
            self._save_soon(run)

    def publish_left(self) -> None:
        """Publish ended runs that another process left unpublished."""
        for key in self.bridge.store.settings.under(_SAVE_AS):
            run = key.removeprefix(_SAVE_AS)
            if self._intent(run) is not None:
                record = self.bridge.store.runs.get(run)
            else:
                record = None
            if record is not None and record.status in ENDED:
                self._save_soon(record)

    def saved(self, run: Run) -> JSONObject | None:
        """Return the result of `save_as`: `{"name", "version", "answer"}`, `{"name", "error"}`, or
        `{"name", "pending"}` with the reason. Return None if there is no `save_as`, or the run has
        not ended.
        """
        if run.status not in ENDED:
            return None

        intent = self._stored_intent(run.id)
        if intent is None or "version" in intent or "error" in intent:
            return intent
        self._save_soon(run)
        away = self.bridge.offer.missing.away()
        reason = self._unsaved.get(run.id, f"it is being published.{away}")
        return {"name": intent.get("name"), "pending": reason}

    def _save_soon(self, run: Run | RunRecord) -> anyio.Event:
        """Publish an ended run. Return an event that is set after the first attempt."""
        tried = self._saving.get(run.id)
        if tried is None:
            tried = self._saving[run.id] = anyio.Event()
            self._group.start_soon(self._save, run.id, run.caller, run.status, tried)
        return tried

    async def _save(self, run: str, caller: str, status: str, tried: anyio.Event) -> None:
        """Publish a run, retrying while a server is not connected or the store cannot be written
        to.
        """
        pause = _AGAIN_S
        try:
            while True:
                try:
                    name = self._intent(run)
                    if name is not None:
                        self._keep(run, await self._counted(run, caller, status, name))
                        self.published()
                    return
                except (ModulesAwayError, StoreError) as error:
                    self._unsaved[run] = (
                        f"{self.bridge.secrets.mask(str(error))}; it will be tried again"
                    )
                tried.set()
                await anyio.sleep(pause)
                pause = min(2 * pause, _AGAIN_MOST_S)
        except Exception:
            # This is a defect of ideabridge, so log it. The next request for the run tries again.
            logger.exception("run %s could not be published", run)
        finally:
            tried.set()
            self._unsaved.pop(run, None)
            del self._saving[run]

    async def _counted(self, run: str, caller: str, status: str, name: str) -> JSONObject:
        """Publish a run. Each attempt is counted before it begins: if the process ends during an
        attempt, only the stored count shows that the publication might be the cause.
        """
        cause = "its process ended"
        for tries in range(self._tries(run), _MOST_TRIES):
            self._keep(run, {"name": name, "tries": tries + 1})
            try:
                return await self._outcome(run, caller, status, name)
            except (LimitExceededError, WorkerError) as error:
                cause = self.bridge.secrets.mask(str(error))
            except (ModulesAwayError, StoreError, anyio.get_cancelled_exc_class()):
                # Do not count this attempt, because the publication is not at fault.
                with suppress(StoreError):
                    self._keep(run, {"name": name, "tries": tries})
                raise

        logger.warning("run %s is not published as %s: %d attempts failed", run, name, _MOST_TRIES)
        return {
            "name": name,
            "error": (
                f"set aside after {_MOST_TRIES} failed attempts ({cause}). `ideabridge ideas "
                f"publish {run} {name}` tries again"
            ),
        }

    def _tries(self, run: str) -> int:
        tries = (self._stored_intent(run) or {}).get("tries", 0)
        return tries if isinstance(tries, int) else 0

    async def _outcome(self, run: str, caller: str, status: str, name: str) -> JSONObject:
        if status != "done":
            return {"name": name, "error": f"not published: the run is {status}"}

        try:
            publication = await self.bridge.publish(run, name, caller=caller)
        except (ModulesAwayError, LimitExceededError, WorkerError, *PASSING):
            raise
        except IdeabridgeError as error:
            return {"name": name, "error": self.bridge.secrets.mask(str(error))}

        saved: JSONObject = {
            "name": name,
            "version": publication.version,
            "answer": publication.answer,
            "description": publication.description,
        }
        if publication.report_parts.open and self.bridge.configuration.programs:
            saved["needs_program"] = _NEEDS_PROGRAM

        return saved

    def _intent(self, run: str) -> str | None:
        """Return the name that a run must still be published under, or None if there is none."""
        intent = self._stored_intent(run)
        if intent is None or "version" in intent or "error" in intent:
            return None
        return str(intent.get("name"))

    def _stored_intent(self, run: str) -> JSONObject | None:
        raw = self.bridge.store.settings.get(_SAVE_AS + run)
        intent = None if raw is None else decode_trusted(raw)
        return intent if isinstance(intent, dict) else None

    def _keep(self, run: str, value: JSONObject) -> None:
        self.bridge.store.settings.set(_SAVE_AS + run, encode(value))
