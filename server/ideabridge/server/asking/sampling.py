"""Sampling: a Request as `sampling/createMessage`, and the Solution in what comes back (DESIGN 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.mind import bounded_name
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import RejectedSolutionError, SettledTurnError
from ideabridge.bridge.loop.event import Event, SolutionRejected
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.minds.choice import SAMPLING
from ideabridge.bridge.minds.instructions import RULES
from ideabridge.bridge.minds.settings import SamplingSettings
from ideabridge.bridge.runs.run import Run
from ideabridge.server.asking.rounds import Round, Sample, ToolRequest, has_back_channel, has_rounds, sample_key
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, decode_trusted, encode, encode_text, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.reading import read_solution
from ideabridge.tools.schema import inline_refs

# -- sampling --------------------------------------------------------------------------------------------------------

TOOL: Final = "solution"
"""The one tool the client's model is made to call, where the client takes tools: its input is the Solution."""

MAX_PARAMS: Final = 900_000
"""Bytes of JSON one question may have: SDK clients refuse events over 1 MiB."""

MAX_ANSWER: Final = MAX_BYTES
"""Bytes of one answer, as of those of endpoints: of its text (then characters), or of the input of its call."""

_KEPT: Final = 20_000
_SHOWN: Final = 300
_SHOWN_BLOCKS: Final = 5
_REJECTED: Final = -1
_REFUSAL: Final = re.compile(
    r"\b(user|person|human)\b.*\b(reject|declin|den[iy]|refus|cancel|not allow)|"
    r"\b(reject|declin|den[iy]|refus)\w* by (the )?(user|person|human)",
    re.IGNORECASE | re.DOTALL,
)
_SETTINGS: Final = {"max_tokens": "maxTokens", "temperature": "temperature"}


class SampleError(IdeabridgeError):
    """What came back from the client's model holds no solution; the message says what did."""


def samples(asked: ToolRequest) -> bool:
    """Whether the client declares that its model may be asked, and there is a way to do it."""
    capabilities = asked.context.session.client_capabilities
    declared = capabilities is not None and capabilities.sampling is not None
    return declared and (has_back_channel(asked) or has_rounds(asked))


def takes_tools(asked: ToolRequest) -> bool:
    """Whether its model can be given tools."""
    capabilities = asked.context.session.client_capabilities
    told = capabilities.sampling if capabilities is not None else None
    return told is not None and told.tools is not None


def is_refusal(error: MCPError) -> bool:
    """Whether the person at the client said no: by the code of the specification, or in words (hosts have codes of
    their own).
    """
    return error.error.code == _REJECTED or _REFUSAL.search(error.error.message) is not None


# -- the question ------------------------------------------------------------------------------------------------


def question(
    request: Request, rejected: Sequence[SolutionRejected], settings: SamplingSettings, *, tools: bool
) -> JSONObject:
    """The parameters of `sampling/createMessage`, in their wire form.

    Args:
        request: the Request.
        rejected: malformed answers to it; the last is shown with its errors.
        settings: what the configuration wishes; what handlers of messages asked for wins.
        tools: whether the client takes tools.
    """
    system = [_LEAD_TOOL if tools else _LEAD_TEXT, RULES]
    messages: list[JSONObject] = []
    for text in request.texts:
        if text["role"] == "system":
            system.append(str(text["content"]))
        else:
            _add(messages, "assistant" if text["role"] == "assistant" else "user", str(text["content"]))
    _add(messages, "user", _ASK_TOOL if tools else f"{_ASK_TEXT}\n{encode_text(request.schema)}")
    if rejected:
        _repair(messages, rejected[-1])
    told: JSONObject = {"messages": [*messages], "systemPrompt": "\n\n".join(system), **_wishes(settings, request)}
    if tools:
        told["tools"] = [{"name": TOOL, "description": _ABOUT_TOOL, "inputSchema": inline_refs(request.schema)}]
        told["toolChoice"] = {"mode": "required"}
    size = len(encode(told))
    if size > MAX_PARAMS:
        raise SampleError(
            f"the request has {size:,} bytes, and at most {MAX_PARAMS:,} can be sent to a client; start the task again"
            " with `tools`: names or patterns of those it needs"
        )
    return told


_LEAD_TEXT: Final = (
    'You are the mind of an agent loop. Write the next solution: one JSON object {"calls": [...], "output": ...}, and'
    " nothing else: no prose, no Markdown."
)
_LEAD_TOOL: Final = f"You are the mind of an agent loop. Write the next solution: the input of the tool {TOOL}."
_ASK_TEXT: Final = "Answer with the next solution: one JSON object that satisfies this JSON Schema."
_ASK_TOOL: Final = f"Give the next solution by calling {TOOL}, once."
_ABOUT_TOOL: Final = "Hand in the next solution."
_AGAIN: Final = "That is malformed, and nothing of it was run:\n{errors}\nWrite the whole solution again."


def _add(messages: list[JSONObject], role: str, text: str) -> None:
    # Some models take only turns that alternate.
    if messages and messages[-1]["role"] == role:
        content = messages[-1]["content"]
        assert isinstance(content, dict)
        content["text"] = f"{content['text']}\n\n{text}"
    else:
        messages.append({"role": role, "content": {"type": "text", "text": text}})


def _repair(messages: list[JSONObject], rejected: SolutionRejected) -> None:
    answer = rejected.solution
    _add(messages, "assistant", (answer if isinstance(answer, str) else encode_text(answer))[:_KEPT] or "(nothing)")
    errors = [error for error in rejected.errors if isinstance(error, dict)]
    _add(messages, "user", _AGAIN.format(errors=rejection(errors)))


def _wishes(settings: SamplingSettings, request: Request) -> JSONObject:
    told: JSONObject = {"maxTokens": settings.max_tokens}
    if settings.temperature is not None:
        told["temperature"] = settings.temperature
    told.update((_SETTINGS[name], value) for name, value in request.model.items() if name in _SETTINGS)
    named = request.model.get("model")
    names = [named] if isinstance(named, str) else list(settings.models)
    preferences: JSONObject = {"hints": [{"name": name} for name in names]} if names else {}
    for key, value in (
        ("costPriority", settings.cost_priority),
        ("speedPriority", settings.speed_priority),
        ("intelligencePriority", settings.intelligence_priority),
    ):
        if value is not None:
            preferences[key] = value
    if preferences:
        told["modelPreferences"] = preferences
    return told


# -- the answer --------------------------------------------------------------------------------------------------


def solution_in(result: types.CreateMessageResult | types.CreateMessageResultWithTools) -> JSONObject:
    """The solution in an answer: the input of the one tool, else the JSON in its text, leniently read.

    Raises:
        SampleError: there is none; the message says what there is, and whether the answer was cut.
    """
    blocks: list[Any] = result.content if isinstance(result.content, list) else [result.content]
    cut = result.stop_reason == "maxTokens"
    try:
        solution, _ = read_solution(_raw(blocks))
    except IdeabridgeError as error:
        raise SampleError(f"{_CUT}{error}" if cut else str(error)) from None
    if cut and not solution["calls"] and solution["output"] is None:
        raise SampleError(f"{_CUT}nothing of it is left")
    return solution


_CUT: Final = "the answer was cut off at its limit of tokens (write fewer calls, or shorter values): "


def _raw(blocks: list[Any]) -> JSON:
    uses = [block for block in blocks if isinstance(block, types.ToolUseContent)]
    if uses:
        if len(uses) > 1 or uses[0].name != TOOL:
            raise SampleError(
                f"expected one call of the tool {TOOL}, or text with one JSON object; found {_described(uses)}"
            )
        value = normalise(uses[0].input, what="the solution")
        _expect_fits(len(encode(value)), "bytes")
        return value
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    _expect_fits(sum(map(len, texts)), "characters")
    text = "\n".join(texts)
    if not text.strip():
        raise SampleError(f"expected text with one JSON object, found {_described(blocks)}")
    return text


def _expect_fits(size: int, what: str) -> None:
    if size > MAX_ANSWER:
        raise SampleError(
            f"the answer has {size:,} {what}; at most {MAX_ANSWER:,} are taken (write fewer calls, or shorter values)"
        )


def _described(blocks: list[Any]) -> str:
    """What came instead of a solution, for the model that wrote it."""
    told = [_block(block) for block in blocks[:_SHOWN_BLOCKS]]
    more = [f"{len(blocks) - _SHOWN_BLOCKS:,} more"] if len(blocks) > _SHOWN_BLOCKS else []
    return ", ".join([*told, *more]) or "nothing"


def _block(block: Any) -> str:
    if isinstance(block, types.ToolUseContent):
        # However deep it is: it is only shown.
        shown = json.dumps(block.input, ensure_ascii=False)[:_SHOWN].encode("utf-8", "replace").decode()
        return f"a call of {block.name[:60]!r} with {shown}"
    kind = str(block.type)[:_SHOWN]
    return f"{kind} ({block.mime_type[:60]})" if isinstance(block, types.ImageContent | types.AudioContent) else kind


def is_same(result: types.CreateMessageResult | types.CreateMessageResultWithTools, rejected: SolutionRejected) -> bool:
    """Whether an answer is one that was refused before."""
    try:
        solution: JSON = solution_in(result)
    except SampleError:
        solution = remembered(result)
    return solution == rejected.solution


def remembered(result: types.CreateMessageResult | types.CreateMessageResultWithTools) -> str:
    """An answer without a solution as the journal keeps it: the beginning of its text, or what it was."""
    blocks: list[Any] = result.content if isinstance(result.content, list) else [result.content]
    kept, left = list[str](), _KEPT
    for block in blocks:
        if left > 0 and isinstance(block, types.TextContent):
            kept.append(block.text[:left])
            left -= len(block.text) + 1
    text = "\n".join(kept)
    return text if text.strip() else _described(blocks)


# -- outstanding -----------------------------------------------------------------------------------------------------
#
# Outstanding: Requests that went out to a client's model in a round, and of which nothing has come back (DESIGN 5).
#
# In 2026-07-28 a client that refuses, or gives a call up, says nothing: the request just does not come again. So what
# went out is kept in the store, for whoever asks later, at whichever process.


@dataclass(frozen=True, slots=True)
class Put:
    """A Request that was put to a client's model.

    Attributes:
        sample: which.
        at: when, ISO 8601 in UTC.
    """

    sample: Sample
    at: str


def sample_of(run: Run) -> Sample:
    """The Request a run asks now."""
    return Sample(run.id, run.turn, len(run.turns.rejected))


class Outstanding:
    """What went out in rounds, by run.

    Args:
        bridge: has the store.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def note(self, root: Run, samples: Sequence[Sample], waiting: Iterable[Run]) -> None:
        """Requests are about to go out.

        Args:
            root: the run they belong to.
            samples: they.
            waiting: all runs (it, and rooms of it) that wait for a solution: what others asked is forgotten.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kept = {put.sample.run: put for put in self.unanswered(root, waiting)}
        kept.update((sample.run, Put(sample, now)) for sample in samples)
        told: list[JSON] = [[put.sample.run, put.sample.turn, put.sample.attempt, put.at] for put in kept.values()]
        self._bridge.store.settings.set(_key(root), encode(told))

    def unanswered(self, root: Run, waiting: Iterable[Run]) -> list[Put]:
        """What of the Requests that runs ask now went out before.

        Args:
            root: the run they belong to.
            waiting: the runs that wait for a solution.
        """
        raw = self._bridge.store.settings.get(_key(root))
        if raw is None:
            return []
        held: Any = decode_trusted(raw)
        puts = [Put(Sample(run, turn, attempt), at) for run, turn, attempt, at in held]
        asked = {sample_of(run) for run in waiting}
        return [put for put in puts if put.sample in asked]


def _key(root: Run) -> str:
    return f"sampled.{root.id}"


# -- sampler ---------------------------------------------------------------------------------------------------------
#
# Sampler: a run whose Requests the client's model answers, in both eras (DESIGN 5).
#
# To the store it is a run by turns: at needs_solution it has no driver, and whoever hands the solution in goes on with
# it. So it is suspended, outlives restarts, and any worker may take the next step.

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
