"""Session: a run whose steps an application answers itself, call by call or in groups.

async with bridge.session(state={"city": "Oslo"}) as session:
    weather = await session.run({"_tool": "weather", "city": "†state.city", "_outputPath": "weather"})
    flights, hotels = await session.run_all([{"_tool": "flights", ...}, {"_tool": "hotels", ...}])
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
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
from ideabridge.bridge.loop.event import Pattern, SolutionCancelled
from ideabridge.bridge.loop.progress import CallStatus, Item, Progress
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise
from ideabridge.tools.errors import ArgumentError, IdeabridgeError

_KINDS: dict[object, type[CallError]] = {
    "denied": CallDeniedError,
    "unknown": UnknownOutcomeError,
    "cancelled": CancelledCallsError,
}

_GAVE = (CallStatus.DONE, CallStatus.CAUGHT, CallStatus.SKIPPED)


class Session:
    """The application's side of one run; see `Bridge.session`.

    Each method hands in one Solution and waits for it: journaled, kept as an idea, under the limits and the approval of
    any run. They take turns: a second one waits for the first; what shall run side by side stands in one group.
    In a session that is taken up again, a Solution that the journal holds is not run again: it gives what it gave, and
    one that was malformed is refused again.

    Cancelling one of them (a time-out around it, say) cancels its calls, and the session goes on.

    Attributes:
        underlying: the run, as every other is: its events, approvals, ideas.
    """

    def __init__(self, run: Run) -> None:
        self.underlying = run
        self._turn = 0
        self._listed = 0
        self._lock = anyio.Lock()

    @property
    def id(self) -> str:
        """The id of the run: `Bridge.session(run_id=...)` takes it up again."""
        return self.underlying.id

    @property
    def state(self) -> dict[str, Any]:
        """The state as it stands. What a group under way writes is not in it before all of it is there."""
        return self.underlying.machine.state

    def value(self, reference: str) -> Any:
        """The value at a reference as it stands; see `Run.value`."""
        return self.underlying.value(reference)

    async def run(self, call: ObjectLike) -> Any:
        """Run one call.

        Returns:
            Its value. A failure that `p || q` caught is its value, too: `{"kind", "message"}`.

        Raises:
            RejectedSolutionError: it is malformed; nothing ran.
            ArgumentError: it is no object.
            CallFailedError, CallDeniedError, UnknownOutcomeError, CancelledCallsError: why it gave none.
            RunFailedError, InterruptedRunError: the run has ended, or is not driven here any more.
        """
        given = read_object("call", call)
        if given is None:
            raise ArgumentError.of("call", 'an object (a dict) such as {"_tool": ...}', None)
        return self._given((await self._step([given], None))[0])

    async def run_all(self, calls: Sequence[ObjectLike]) -> list[Any]:
        """Run calls side by side, or as their references say, all or nothing.

        A failure cancels the rest. What they write is seen by each other only until all have ended, then by everybody
        at once; after a failure, never.

        Returns:
            Their values, in the order of the calls; null of a call that was skipped (a branch not taken).

        Raises:
            GroupFailedError: one failed; `effects` names what happened outside all the same.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for `run`.
        """
        return [self._given(one) for one in await self._group(calls, "all", GroupFailedError)]

    async def run_any(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives side by side: the first success counts. The others are cancelled, and write nothing.

        Returns:
            The value of the first that succeeded.

        Raises:
            NoAlternativeError: all failed; `errors` has them all.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for `run`.
        """
        return self._first(await self._group(calls, "any", NoAlternativeError))

    async def run_race(self, calls: Sequence[ObjectLike]) -> Any:
        """Run alternatives side by side: the first to end counts, whether it succeeded or failed. The others are
        cancelled, and write nothing.

        Returns:
            The value of the first to end.

        Raises:
            CallFailedError, CallDeniedError, UnknownOutcomeError: why the first to end gave none.
            RejectedSolutionError, CancelledCallsError, RunFailedError, InterruptedRunError: as for `run`.
        """
        return self._first(await self._group(calls, "race", None))

    # -- steps -------------------------------------------------------------------------------------------------

    async def _group(
        self, calls: Sequence[ObjectLike], pattern: Pattern, failure: type[CallError] | None
    ) -> list[Progress]:
        given = read_objects("calls", calls)
        if not given and pattern == "all":
            return []
        ended = await self._step(given, pattern)
        if not any(one.status in _GAVE for one in ended):
            raise self._error(ended, failure)
        return ended

    async def _step(self, calls: Sequence[JSONObject], pattern: Pattern | None) -> list[Progress]:
        """Hand in a Solution, and wait until its calls have ended."""
        async with self._lock:
            run, turn, first = self.underlying, self._turn, self._listed
            listed: list[JSON] = list(calls)
            try:
                solution: JSONObject = {"calls": listed, "output": None}
                await run.patiently(lambda: run.submit(turn, solution, pattern=pattern, strict=True))
            except SettledTurnError:
                # Taken up again: what was malformed then is so now, and who corrected it then does it again.
                faults = run.turns.faults_of(turn, normalise(listed))
                if faults is None:
                    raise
                errors = [dict(one) for one in faults if isinstance(one, dict)]
                raise RejectedSolutionError(rejection([*errors]), [{**one} for one in errors]) from None
            self._turn, self._listed = turn + 1, first + len(calls)
            try:
                await self._end_of(turn)
            except BaseException:
                with suppress(IdeabridgeError):
                    # Not driven here any more: whoever drives it decides.
                    if run.runner.lost is None and run.machine.phase == "solving" and run.machine.step == turn:
                        run.drive(SolutionCancelled("nobody waits for it any more"))
                raise
            ended = run.machine.history[first : self._listed]
            if not all(one.settled and not one.staged for one in ended):
                raise self._unfinished()
            return ended

    async def _end_of(self, turn: int) -> None:
        run = self.underlying
        while run.runner.is_behind or (
            run.runner.lost is None and run.machine.phase != "ended" and run.machine.step <= turn
        ):
            await run.runner.wait_changed()

    # -- what came of them -------------------------------------------------------------------------------------

    def _first(self, ended: list[Progress]) -> JSON:
        return next(self._given(one) for one in ended if one.status in _GAVE)

    def _given(self, progress: Progress) -> JSON:
        if progress.status is CallStatus.DONE:
            return progress.value
        if progress.status is CallStatus.CAUGHT:
            return progress.error
        if progress.status is CallStatus.SKIPPED:
            return None
        raise self._error([progress])

    def _error(self, ended: list[Progress], failure: type[CallError] | None = None) -> CallError:
        """Why calls gave nothing; by the cause itself where no class stands for the whole group."""
        failed = [one for one in ended if one.status is CallStatus.FAILED]
        # Without a failure, all of them were cancelled alike.
        causes = failed or ended[:1]
        errors: list[JSONObject] = [{**one.call.located, "error": one.error} for one in causes]
        kind = _KINDS.get((causes[0].error or {}).get("kind"), CallFailedError)
        found = [(one.call, entry) for one in ended if (entry := _effect(one)) is not None]
        effects = [entry for _, entry in found]
        text = rejection(errors)
        if effects:
            named = ", ".join(f"calls[{call.place - call.first}]: {entry['outcome']}" for call, entry in found)
            text += f"\nwhat happened outside all the same, or may have: {named}"
        cause = failure if failure is not None and failed else kind
        return cause(text, self.id, [dict(error) for error in errors], effects)

    def _unfinished(self) -> IdeabridgeError:
        run = self.underlying
        if run.runner.lost is not None:
            return InterruptedRunError(f"run {run.id} cannot go on here: {run.runner.lost}")
        reason = f": {run.machine.reason}" if run.machine.reason else ""
        text = f"run {run.id} ended ({run.status}){reason}"
        return RunFailedError(text, run.id, run.status, [dict(error) for error in run.errors()])


def _effect(progress: Progress) -> dict[str, Any] | None:
    """What a call may have done outside; None: nothing that anybody knows of."""
    call, tool = progress.call, progress.tool
    if tool is None or call.has_latent or tool.annotations.read_only is True:
        return None
    outcomes = [_outcome(item) for item in progress.items if item.started]
    found = [one for one in outcomes if one != "failed"]
    if not found:
        return None
    if "unknown" in found:
        outcome = "unknown"
    else:
        outcome = "done" if len(found) == len(progress.items) else "partly"
    return {"call": call.raw, "place": call.place, "outcome": outcome}


def _outcome(item: Item) -> str:
    if item.error is None and item.finished:
        return "done"
    kind = (item.error or {}).get("kind")
    return "unknown" if kind in ("cancelled", "unknown") or not item.finished else "failed"


@asynccontextmanager
async def open_session(start: Callable[[], Awaitable[Run]]) -> AsyncGenerator[Session]:
    """A session over a run that `start` gives. Left, it ends the run: `done`, `cancelled`, or `failed` where an error
    of the application's own leaves it.
    """
    run = await start()
    try:
        yield Session(run)
    except Exception as error:
        with suppress(IdeabridgeError):
            run.end("failed", f"the application left the session with {type(error).__name__}")
            await run.wait()
        raise
    except BaseException:
        with suppress(IdeabridgeError):
            # Written when the bridge closes, at the latest: nothing waits in a scope that is cancelled.
            run.end("cancelled", "the application was cancelled")
        raise
    run.end("done")
    # Also the note of how it ended: what is published next reads it.
    await run.wait()
