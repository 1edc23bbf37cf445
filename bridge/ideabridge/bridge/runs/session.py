"""Runs whose Requests an application answers itself. It makes single calls or groups of calls, and
gets their results.

    async with bridge.session(state={"city": "Oslo"}) as session:
        weather = await session.run(
            {"_tool": "weather", "city": "†state.city", "_outputPath": "weather"}
        )
        flights, hotels = await session.run_all(
            [{"_tool": "flights", ...}, {"_tool": "hotels", ...}]
        )
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from ideabridge.bridge.arguments import read_object, read_objects
from ideabridge.bridge.errors import (
    CallDeniedError,
    CallError,
    CallFailedError,
    CancelledCallsError,
    GroupFailedError,
    InterruptedRunError,
    NoAlternativeError,
    RejectedSolutionError,
    RunFailedError,
    SettledTurnError,
    UnknownOutcomeError,
)
from ideabridge.bridge.loop.event import Pattern, SolutionCancelled, SolutionRejected
from ideabridge.bridge.loop.progress import CallStatus, Item, Progress
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.runs.run import WITHOUT_RESULT, Run
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    ObjectLike,
    content_hash,
    normalise,
    objects_in,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError

_KINDS: dict[object, type[CallError]] = {
    "denied": CallDeniedError,
    "unknown": UnknownOutcomeError,
    "cancelled": CancelledCallsError,
}

_SUCCEEDED = (CallStatus.DONE, CallStatus.CAUGHT, CallStatus.SKIPPED)


class Session:
    """The application's side of a run; see `Bridge.session`.

    Each method submits one Solution and waits for its calls. As in any run, the Solution is
    journaled, saved as an idea, and subject to limits and approval. Steps run one after another, so
    put calls that should run concurrently into one group. In a resumed session, a Solution that is
    already in the journal does not run again. Instead, the method returns the recorded result or
    raises the recorded error.

    If a method is cancelled (by a timeout, for example), its calls are cancelled, and the session
    continues.

    Args:
        run: the run.
        waits: whether to wait while a call is asking a person. If False, the step fails and its
            calls are cancelled.

    Attributes:
        underlying: the run itself, which has the events, approvals and ideas.
    """

    def __init__(self, run: Run, *, waits: bool = True) -> None:
        self.underlying = run
        self._waits = waits
        self._turn = 0
        self._listed = 0
        self._lock = anyio.Lock()

    @property
    def id(self) -> str:
        """The id of the run. Pass it to `Bridge.session(run_id=...)` to resume the session."""
        return self.underlying.id

    @property
    def state(self) -> dict[str, Any]:
        """The current state, without what an unfinished group has written."""
        return self.underlying.machine.state

    def value(self, reference: str) -> Any:
        """Return the current value at a reference; see `Run.value`."""
        return self.underlying.value(reference)

    async def run(self, call: ObjectLike) -> Any:
        """Run one call.

        Returns:
            The value of the call or, if `p || q` caught a failure, that failure: `{"kind",
            "message"}`.

        Raises:
            RejectedSolutionError: the call is malformed. Nothing ran.
            ArgumentError: the call is not an object.
            CallFailedError, CallDeniedError, UnknownOutcomeError, CancelledCallsError: the call has
                no value.
            RunFailedError, InterruptedRunError: the run has ended, or cannot continue in this
                process.
        """
        checked = read_object("call", call)
        if checked is None:
            raise ArgumentError.of("call", 'an object (a dict) such as {"_tool": ...}', None)
        ended = await self._step([checked], None)
        return self._value_of(ended[0])

    async def run_all(self, calls: Sequence[ObjectLike]) -> list[Any]:
        """Run calls concurrently, as far as their references allow, as an all-or-nothing group.

        If a call fails, the other calls are cancelled, and everything that the calls wrote is
        discarded. Until all calls have ended, only the calls in the group see what they write.

        Returns:
            The values of the calls, in the same order. A call that was skipped, because its branch
            was not taken, has the value None.

        Raises:
            GroupFailedError: a call failed. `effects` lists the calls that took effect
                anyway.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for
                `run`.
        """
        ended = await self._group(calls, "all", GroupFailedError)
        return [self._value_of(progress) for progress in ended]

    async def run_any(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives concurrently, and return the value of the first one that succeeds.

        The others are cancelled and write nothing.

        Raises:
            NoAlternativeError: all alternatives failed. `errors` contains all errors.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for
                `run`.
        """
        return self._first(await self._group(calls, "any", NoAlternativeError))

    async def run_race(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives concurrently, and return the value of the first one that ends.

        The others are cancelled and write nothing.

        Raises:
            CallFailedError, CallDeniedError, UnknownOutcomeError: the first call that ended has no
                value.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for
                `run`.
        """
        return self._first(await self._group(calls, "race", None))

    # -- steps -------------------------------------------------------------------------------------

    async def _group(
        self, calls: Sequence[ObjectLike], pattern: Pattern, failure: type[CallError] | None
    ) -> list[Progress]:
        checked = read_objects("calls", calls)
        if not checked and pattern == "all":
            return []

        ended = await self._step(checked, pattern)
        if not any(progress.status in _SUCCEEDED for progress in ended):
            raise self._error(ended, failure)
        return ended

    async def _step(self, calls: Sequence[JSONObject], pattern: Pattern | None) -> list[Progress]:
        """Submit a Solution, and wait until its calls have ended."""
        async with self._lock:
            turn = self._turn
            first = self._listed
            await self._submit(turn, list(calls), pattern)
            self._turn = turn + 1
            self._listed = first + len(calls)
            try:
                await self._end_of(turn)
            except BaseException:
                with suppress(IdeabridgeError):
                    self._cancel(turn)
                raise

            ended = self.underlying.machine.history[first : self._listed]
            if not all(progress.settled and not progress.staged for progress in ended):
                raise self._unfinished()
            return ended

    async def _submit(self, turn: int, calls: list[JSON], pattern: Pattern | None) -> None:
        run = self.underlying
        solution: JSONObject = {"calls": calls, "output": None}
        try:
            await run.patiently(lambda: run.submit(turn, solution, pattern=pattern, strict=True))
        except SettledTurnError:
            # In a resumed session, raise the error from the journal again, so that the application
            # corrects the Solution as it did before.
            faults = _faults_of(run.turns.rejected_in.get(turn, ()), calls)
            if faults is None:
                raise
            raise RejectedSolutionError(
                rejection(faults), [dict(fault) for fault in faults]
            ) from None

    def _cancel(self, turn: int) -> None:
        """Cancel the calls of a turn. If another process drives the run, leave the calls to it."""
        run = self.underlying
        machine = run.machine
        if run.runner.lost is None and machine.phase == "solving" and machine.step == turn:
            run.drive(SolutionCancelled("nobody is waiting for it any more"))

    async def _end_of(self, turn: int) -> None:
        """Wait until the calls of a turn have ended.

        Raises:
            RunFailedError: a call is waiting for a person, and this session does not wait.
        """
        run = self.underlying
        while run.runner.is_behind or self._is_at(turn):
            if not self._waits and run.status in WITHOUT_RESULT and run.machine.step <= turn:
                raise RunFailedError(
                    f"run {run.id}: {WITHOUT_RESULT[run.status]}", run.id, run.status, []
                )
            await run.runner.wait_changed()

    def _is_at(self, turn: int) -> bool:
        """Return whether calls of a turn might still be running in this process."""
        run = self.underlying
        return run.runner.lost is None and not run.machine.ended and run.machine.step <= turn

    # -- results -----------------------------------------------------------------------------------

    def _first(self, ended: list[Progress]) -> JSON:
        return next(self._value_of(progress) for progress in ended if progress.status in _SUCCEEDED)

    def _value_of(self, progress: Progress) -> JSON:
        if progress.status is CallStatus.DONE:
            return progress.value
        if progress.status is CallStatus.CAUGHT:
            return progress.error
        if progress.status is CallStatus.SKIPPED:
            return None
        raise self._error([progress])

    def _error(self, ended: list[Progress], failure: type[CallError] | None = None) -> CallError:
        """Return the error for calls without a value.

        If `failure` is given and a call failed, the error is an instance of `failure`. Otherwise,
        its class depends on the cause.
        """
        failed = [progress for progress in ended if progress.status is CallStatus.FAILED]
        # If no call failed, all of them were cancelled.
        causes = failed or ended[:1]
        errors: list[JSONObject] = [
            {**progress.call.located, "error": progress.error} for progress in causes
        ]
        text = rejection(errors)
        effects: list[dict[str, Any]] = []
        outcomes: list[str] = []
        for progress in ended:
            effect = _effect(progress)
            if effect is not None:
                effects.append(effect)
                place = progress.call.place - progress.call.first
                outcomes.append(f"calls[{place}]: {effect['outcome']}")

        if outcomes:
            text += (
                f"\neffects that took place anyway, or may have taken place: {', '.join(outcomes)}"
            )

        kind = failure
        if kind is None or not failed:
            kind = _KINDS.get((causes[0].error or {}).get("kind"), CallFailedError)
        return kind(text, self.id, [dict(error) for error in errors], effects)

    def _unfinished(self) -> IdeabridgeError:
        run = self.underlying
        if run.runner.lost is not None:
            return InterruptedRunError(f"run {run.id} cannot continue here: {run.runner.lost}")
        reason = f": {run.machine.reason}" if run.machine.reason else ""
        text = f"run {run.id} ended ({run.status}){reason}"
        return RunFailedError(text, run.id, run.status, [dict(error) for error in run.errors()])


def _effect(progress: Progress) -> dict[str, Any] | None:
    """Return the effect that a call had or might have had, or None if it changed nothing."""
    call = progress.call
    tool = progress.tool
    if tool is None or call.has_written_result or progress.hints.read_only is True:
        return None

    outcomes = [_outcome(item) for item in progress.items if item.started]
    effects = [outcome for outcome in outcomes if outcome != "failed"]
    if not effects:
        return None

    if "unknown" in effects:
        outcome = "unknown"
    elif len(effects) == len(progress.items):
        outcome = "done"
    else:
        outcome = "partly"

    return {"call": call.raw, "place": call.place, "outcome": outcome}


def _faults_of(rejected: Iterable[SolutionRejected], calls: list[JSON]) -> list[JSONObject] | None:
    """Return the errors of a rejected Solution that consists of the given calls, or None if there
    is no such Solution.
    """
    digest = content_hash(normalise(calls))
    for event in rejected:
        if isinstance(event.solution, dict) and content_hash(event.solution.get("calls")) == digest:
            return objects_in(event.errors)
    return None


def _outcome(item: Item) -> str:
    if item.error is None and item.finished:
        return "done"
    kind = (item.error or {}).get("kind")
    if kind in ("cancelled", "unknown") or not item.finished:
        return "unknown"
    return "failed"


@asynccontextmanager
async def open_session(
    start: Callable[[], Awaitable[Run]], *, waits: bool = True
) -> AsyncGenerator[Session]:
    """Open a session over the run that `start` returns.

    `waits` is as in `Session`. The run ends with the block: as `failed` if the block raises an
    error, as `cancelled` if it is cancelled, and otherwise as `done`.
    """
    run = await start()
    try:
        yield Session(run, waits=waits)
    except Exception as error:
        with suppress(IdeabridgeError):
            run.end("failed", f"the application left the session with {type(error).__name__}")
            await run.wait()
        raise
    except BaseException:
        with suppress(IdeabridgeError):
            # Do not wait for the write, because code in a cancelled scope cannot. The end is
            # written before the bridge closes.
            run.end("cancelled", "the application was cancelled")
        raise

    run.end("done")
    # Wait until the status is stored, too, because a publication that follows reads it.
    await run.wait()
