"""Sampler: a run whose Requests the client's model answers, in both eras (DESIGN 5).

To the store it is a run by turns: at needs_solution it has no driver, and whoever hands the solution in goes on with
it. So it is suspended, outlives restarts, and any worker may take the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.errors import RejectedSolutionError, SettledTurnError
from ideabridge.bridge.loop.event import Event
from ideabridge.bridge.minds.choice import SAMPLING
from ideabridge.bridge.minds.usage import bounded_name
from ideabridge.bridge.run import Run
from ideabridge.server.outstanding import Outstanding, Put, sample_of
from ideabridge.server.rounds import Round, Sample, ToolRequest, sample_key
from ideabridge.server.sampling import (
    SampleError,
    is_refusal,
    is_same,
    question,
    remembered,
    samples,
    solution_in,
    takes_tools,
)
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError

MAX_SAMPLING_ROUNDS: Final = 8
"""Rounds of sampling within one request: clients end it after ten, and forms may need some."""

MALFORMED: Final = 3
"""Malformed answers to one Request after which its solution is left to the caller."""

_AT_ONCE: Final = 8
_HAND_IN: Final = "hand the solution in with submit_solution"
_Key: TypeAlias = tuple[str, int]
"""A run, and its turn."""
_Result = types.CreateMessageResult | types.CreateMessageResultWithTools


class Sampler:
    """Puts Requests to the models of clients.

    Args:
        bridge: has the runs, and the wishes for models.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._settings = bridge.configuration.sampling
        self._out: set[_Key] = set()
        self._outstanding = Outstanding(bridge)

    def can_ask(self, run: Run, asked: ToolRequest) -> bool:
        """Whether the run (of a plan: its rooms) is answered by sampling, and this client lets its model be asked."""
        return run.root.turns.mind == SAMPLING and samples(asked)

    def explain(self, run: Run, asked: ToolRequest, seconds: float) -> None:
        """Note for the caller why it is asked for a solution, though the run is answered by sampling."""
        if asked.told or not _waiting(run) or run.status != "needs_solution":
            return
        note = self.unanswered(run)
        if note is not None:
            asked.told.append(note)
            return
        if not samples(asked):
            why = "this client declares no sampling"
        elif seconds <= 0:
            why = "nobody is asked without waiting (wait_s)"
        else:
            why = f"its answer did not come within {seconds:g} s"
        asked.told.append(f"the run is answered by the client's model, but {why}: {_HAND_IN}, or ask check_run again")

    def unanswered(self, run: Run) -> str | None:
        """What to tell of Requests that went out to the client's model in a round, where nothing came back."""
        waiting = _waiting(run)
        out = self._outstanding.unanswered(run.root, waiting) if waiting else []
        return _unanswered(out) if out else None

    def due(self, run: Run, asked: ToolRequest, rounds: int) -> list[Run]:
        """The runs (it, or rooms of it) whose Request is to be put to the client's model now.

        Args:
            run: the run.
            asked: the request that waits.
            rounds: how many rounds it has had.
        """
        if asked.halted or not self.can_ask(run, asked):
            return []
        free, held, out = self._open(run, asked)
        if not free:
            if out and not held:
                self._halt(asked, _unanswered(out))
            return []
        found = [one for one in free if len(one.turns.rejected) < MALFORMED]
        if not found and not held:
            last = free[0].turns.rejected[-1].errors
            self._halt(
                asked, f"the client's model gave {MALFORMED} malformed solutions ({str(last[:1])[:300]}): {_HAND_IN}"
            )
        elif found and rounds >= MAX_SAMPLING_ROUNDS:
            self._halt(
                asked,
                f"the client's model was asked {rounds} times within this request, the most a client takes: {_HAND_IN},"
                " or call check_run to have it asked on",
            )
            return []
        return found[:_AT_ONCE]

    def waits_for_others(self, run: Run, asked: ToolRequest) -> bool:
        """Whether nothing is to be put to this client's model because other requests wait for the answers of theirs:
        one moves the run, or gives its question up, and then it is to be put here.
        """
        if asked.halted or not self.can_ask(run, asked):
            return False
        free, held, _ = self._open(run, asked)
        return bool(held) and not any(len(one.turns.rejected) < MALFORMED for one in free)

    def _open(self, run: Run, asked: ToolRequest) -> tuple[list[Run], list[Run], list[Put]]:
        """What waits for a solution of the client's model: what may be put to it, what other requests here have put to
        theirs and wait for, and what went out in rounds.
        """
        waiting = _waiting(run)
        # Whoever refused is not asked again because somebody looks how the run stands. What this very request asked
        # about has come back, perhaps twice: then the second is answered as the first was.
        own = {one.run for one in asked.round.samples} if asked.round is not None else set[str]()
        out = [one for one in self._outstanding.unanswered(run.root, waiting) if one.sample.run not in own]
        put = {one.sample for one in out}
        left = [one for one in waiting if sample_of(one) not in put]
        held = [one for one in left if (one.id, one.turn) in self._out]
        return [one for one in left if one not in held], held, out

    @staticmethod
    def _halt(asked: ToolRequest, why: str) -> None:
        asked.halted = True
        if why not in asked.told:
            asked.told.append(why)

    # -- on the back-channel -----------------------------------------------------------------------------------

    async def ask(self, run: Run, asked: ToolRequest) -> bool:
        """Put the open Requests to the client's model and hand in what comes, until none is left that may be put;
        False where there was none.

        A Request that another request has put to its client is waited for, and put here once that one gives it up.
        """
        if self.waits_for_others(run, asked):
            await run.runner.wait_changed()
            return True
        mine: set[_Key] = set()
        put = False
        async with anyio.create_task_group() as group:
            while True:
                for one in self.due(run, asked, asked.sampled)[: _AT_ONCE - len(mine)]:
                    # Noted at once, not when its task begins: others look meanwhile.
                    self._hold(one, mine)
                    group.start_soon(self._ask, one, asked, mine, asked.sampled + 1)
                    put = True
                if not mine:
                    break
                # A room that is answered goes on at once, whatever the others still wait for.
                await run.runner.wait_changed()
        return put

    def _hold(self, run: Run, mine: set[_Key]) -> None:
        mine.add((run.id, run.turn))
        self._out.add((run.id, run.turn))

    def _give_up(self, run: Run, key: _Key, mine: set[_Key]) -> None:
        """A question is out no more: whoever waits for its answer looks again."""
        mine.discard(key)
        self._out.discard(key)
        above: Run | None = run
        while above is not None:
            above.runner.poke()
            above = above.parent

    async def _ask(self, run: Run, asked: ToolRequest, mine: set[_Key], number: int) -> None:
        turn, key = run.turn, (run.id, run.turn)
        result: _Result | None = None
        scope = anyio.CancelScope()

        def watch(_event: Event) -> None:
            if run.turn != turn or not run.machine.awaits_solution:
                # Settled elsewhere, or over: nobody needs the answer any more.
                scope.cancel()

        try:
            with run.watching(watch), scope:
                result = await self._answer(run, asked)
        finally:
            asked.sampled = max(asked.sampled, number)
            self._give_up(run, key, mine)
        if result is None:
            return
        try:
            await self._hand_in(run, turn, result)
        except IdeabridgeError:
            # It came too late, or could not be kept: how the run stands says so to whoever waits.
            return

    async def _answer(self, run: Run, asked: ToolRequest) -> _Result | None:
        session: ServerSession = asked.context.session
        try:
            params = types.CreateMessageRequestParams.model_validate(self._question(run, asked))
            return await session.send_request(
                types.CreateMessageRequest(params=params),
                types.CreateMessageResultWithTools,
                metadata=ServerMessageMetadata(related_request_id=asked.context.request_id),
            )
        except SampleError as error:
            self._halt(asked, f"the client's model cannot be asked: {error}; {_HAND_IN}")
        except MCPError as error:
            await self._failed(run, error, asked)
        except ValidationError:
            self._halt(asked, f"what the client answered is no result of sampling/createMessage: {_HAND_IN}")
        return None

    async def _failed(self, run: Run, error: MCPError, asked: ToolRequest) -> None:
        said = self._bridge.secrets.mask(error.error.message)[:500]
        if is_refusal(error):
            asked.halted = True
            why = f"the person at the client refused to let its model answer: {said}"
            await run.patiently(lambda: run.root.cancel(why))
            return
        self._halt(
            asked,
            f"the client could not ask its model ({error.error.code}: {said}): call check_run to have it asked again,"
            f" or {_HAND_IN}",
        )

    def _question(self, run: Run, asked: ToolRequest) -> JSONObject:
        request = run.runner.request
        if request is None:
            raise SampleError("the run asks nothing any more")
        return question(request, run.turns.rejected, self._settings, tools=takes_tools(asked))

    # -- in rounds ---------------------------------------------------------------------------------------------

    async def questions(self, due: list[Run], asked: ToolRequest) -> tuple[JSONObject, tuple[Sample, ...]]:
        """The Requests as a round holds them, and what its state keeps of them."""
        told: JSONObject = {}
        kept: list[Sample] = []
        for run in due:
            try:
                params = self._question(run, asked)
            except SampleError as error:
                self._halt(asked, f"the client's model cannot be asked: {error}; {_HAND_IN}")
                continue
            told[sample_key(len(kept))] = {"method": "sampling/createMessage", "params": params}
            kept.append(sample_of(run))
        if kept:
            root = due[0].root
            await root.patiently(lambda: self._outstanding.note(root, kept, _waiting(root)))
        return told, tuple(kept)

    async def answered(self, last: Round, asked: ToolRequest, responses: Mapping[str, types.InputResponse]) -> None:
        """Hand in what the client's model answered in a round.

        What cannot be taken is told, where something else of the round was taken.

        Raises:
            SettledTurnError: the turn was settled by another solution, or this answer came before.
            FinishedRunError, InterruptedRunError: the run goes on no more.
        """
        taken, faults = 0, list[IdeabridgeError]()
        for number, sample in enumerate(last.samples):
            response = responses.get(sample_key(number))
            if not isinstance(response, types.CreateMessageResult | types.CreateMessageResultWithTools):
                self._halt(asked, f"the client came back without an answer of its model: {_HAND_IN}")
                continue
            try:
                run = await self._bridge.run(sample.run, caller=asked.caller)
                self._expect_new(run, sample, response)
                await self._hand_in(run, sample.turn, response)
                taken += 1
            except IdeabridgeError as error:
                faults.append(error)
        if faults and not taken:
            raise faults[0]
        asked.told.extend(f"an answer of the client's model was not taken: {error}" for error in faults)

    def _expect_new(self, run: Run, sample: Sample, result: _Result) -> None:
        """Check that an answer to a turn that is still open is not one that was malformed, come once more, or one to a
        question that has been put again since.
        """
        if not run.machine.awaits_solution or run.turn != sample.turn or sample == sample_of(run):
            return
        again = self._outstanding.unanswered(run.root, [run])
        if again or any(is_same(result, rejected) for rejected in run.turns.rejected):
            asked_again = "; the client's model has been asked again" if again else ""
            raise SettledTurnError(
                f"an answer to turn {sample.turn} (attempt {sample.attempt + 1}) came before and was"
                f" malformed{asked_again}"
            )

    @staticmethod
    async def _hand_in(run: Run, turn: int, result: _Result) -> None:
        try:
            solution = solution_in(result)
        except SampleError as error:
            reason = str(error)
            await run.patiently(lambda: run.reject(turn, remembered(result), reason))
            return
        try:
            model = bounded_name(result.model)
            await run.patiently(lambda: run.submit(turn, solution, mind=SAMPLING, model=model))
        except RejectedSolutionError:
            # It stands in the journal with its errors, which the model is shown when it is asked again.
            return


def _waiting(run: Run) -> list[Run]:
    """The runs (it, or rooms of it) that wait for a solution of the client's model."""
    return [one for one in run.open_requests() if one.turns.mind == SAMPLING and one.runner.request is not None]


def _unanswered(out: Sequence[Put]) -> str:
    """What the caller is told where Requests went out, and nothing came back."""
    which = ", ".join(f"turn {put.sample.turn} of {put.sample.run} at {put.at}" for put in out[:3])
    more = f" and {len(out) - 3} more" if len(out) > 3 else ""
    return (
        f"the client's model was asked ({which}{more}) and no answer has come: the person there may have refused, or"
        " the client gave the call up, or is still at it. The run waits; the model is not asked for this again. If the"
        f" person refused, cancel it with check_run; else {_HAND_IN}"
    )
