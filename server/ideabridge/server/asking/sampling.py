"""Sampling: the client's model writes the Solutions of a run (`sampling/createMessage`).

For the store it is a run by turns: in the status `needs_solution` it has no driver, and whoever submits the Solution
takes the next step. So it survives restarts, and any server on the store can continue it. `question` makes the
parameters of a Request, `solution_in` reads the answer, and `Sampler` asks and submits.
"""

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

TOOL: Final = "solution"
"""The tool that the client's model must call if the client supports tools; its input is the Solution."""

MAX_PARAMS: Final = 900_000
"""Bytes of JSON of one question: SDK clients refuse events over 1 MiB."""

MAX_ANSWER: Final = MAX_BYTES
"""Characters of the text of one answer, or bytes of the input of its call."""

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
    """The answer of the client's model contains no solution; the message describes it."""


def samples(asked: ToolRequest) -> bool:
    """Whether the client declares sampling and can be asked."""
    capabilities = asked.context.session.client_capabilities
    declared = capabilities is not None and capabilities.sampling is not None
    return declared and (has_back_channel(asked) or has_rounds(asked))


def takes_tools(asked: ToolRequest) -> bool:
    """Whether the client supports tools in sampling."""
    capabilities = asked.context.session.client_capabilities
    told = capabilities.sampling if capabilities is not None else None
    return told is not None and told.tools is not None


def is_refusal(error: MCPError) -> bool:
    """Whether the person at the client refused: by the code of the specification, or in words, as hosts use other
    codes.
    """
    return error.error.code == _REJECTED or _REFUSAL.search(error.error.message) is not None


# -- the question ------------------------------------------------------------------------------------------------


def question(
    request: Request, rejected: Sequence[SolutionRejected], settings: SamplingSettings, *, tools: bool
) -> JSONObject:
    """The parameters of `sampling/createMessage`, in their wire form.

    Args:
        request: the Request.
        rejected: its malformed answers; the last one is shown with its errors.
        settings: the configured preferences; those of message handlers take precedence.
        tools: whether the client supports tools.
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
    # Some models require alternating roles.
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
    """The solution in an answer: the input of the tool call, or otherwise the JSON in its text, read leniently.

    Raises:
        SampleError: there is none; the message describes the answer, and whether it was cut off.
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
    """The blocks of an answer, for a message to the model that wrote it."""
    told = [_block(block) for block in blocks[:_SHOWN_BLOCKS]]
    more = [f"{len(blocks) - _SHOWN_BLOCKS:,} more"] if len(blocks) > _SHOWN_BLOCKS else []
    return ", ".join([*told, *more]) or "nothing"


def _block(block: Any) -> str:
    if isinstance(block, types.ToolUseContent):
        # json.dumps, because `encode` limits the depth.
        shown = json.dumps(block.input, ensure_ascii=False)[:_SHOWN].encode("utf-8", "replace").decode()
        return f"a call of {block.name[:60]!r} with {shown}"
    kind = str(block.type)[:_SHOWN]
    return f"{kind} ({block.mime_type[:60]})" if isinstance(block, types.ImageContent | types.AudioContent) else kind


def is_same(result: types.CreateMessageResult | types.CreateMessageResultWithTools, rejected: SolutionRejected) -> bool:
    """Whether an answer repeats a rejected one."""
    try:
        solution: JSON = solution_in(result)
    except SampleError:
        solution = remembered(result)
    return solution == rejected.solution


def remembered(result: types.CreateMessageResult | types.CreateMessageResultWithTools) -> str:
    """The form in which the journal keeps an answer without a solution."""
    blocks: list[Any] = result.content if isinstance(result.content, list) else [result.content]
    kept, left = list[str](), _KEPT
    for block in blocks:
        if left > 0 and isinstance(block, types.TextContent):
            kept.append(block.text[:left])
            left -= len(block.text) + 1
    text = "\n".join(kept)
    return text if text.strip() else _described(blocks)


# -- unanswered Requests ---------------------------------------------------------------------------------------------
#
# In 2026-07-28 a client that refuses or ends a call sends nothing: the request does not come again. So the Requests of
# a round are stored, where every process finds those without an answer.


@dataclass(frozen=True, slots=True)
class Put:
    """A Request that was sent to a client's model; `at` is the time, ISO 8601 in UTC."""

    sample: Sample
    at: str


def sample_of(run: Run) -> Sample:
    """The open Request of a run."""
    return Sample(run.id, run.turn, len(run.turns.rejected))


class Outstanding:
    """The Requests of rounds without an answer, by run."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def note(self, root: Run, samples: Sequence[Sample], waiting: Iterable[Run]) -> None:
        """Store Requests before they are sent.

        Args:
            root: their root run.
            samples: the Requests.
            waiting: the run and rooms that wait for a solution; Requests of others are removed.
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


# -- the sampler -----------------------------------------------------------------------------------------------------

MAX_SAMPLING_ROUNDS: Final = 8
"""Rounds of sampling within one request: clients end a request after ten rounds, and forms may need some."""

MALFORMED: Final = 3
"""Malformed answers to one Request after which the caller must write the solution."""

_AT_ONCE: Final = 8
_HAND_IN: Final = "hand the solution in with submit_solution"
_Key: TypeAlias = tuple[str, int]
"""The id of a run and its turn."""
_Result = types.CreateMessageResult | types.CreateMessageResultWithTools


class Sampler:
    """Sends Requests to the models of clients, and submits the answers."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._settings = bridge.configuration.sampling
        self._out: set[_Key] = set()
        self._outstanding = Outstanding(bridge)

    def can_ask(self, run: Run, asked: ToolRequest) -> bool:
        """Whether the run (or the rooms of a plan) uses sampling, and this client supports it."""
        return run.root.turns.mind == SAMPLING and samples(asked)

    def explain(self, run: Run, asked: ToolRequest, seconds: float) -> None:
        """Add a note why the caller is asked for a solution although the run uses sampling."""
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
        """A note on the Requests of the run that the client's model has not answered, or None."""
        waiting = _waiting(run)
        out = self._outstanding.unanswered(run.root, waiting) if waiting else []
        return _unanswered(out) if out else None

    def due(self, run: Run, asked: ToolRequest, rounds: int) -> list[Run]:
        """The run or rooms whose Requests are sent to the client's model now, after a number of rounds."""
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
        """Whether this client's model is not asked because other requests wait for the answers of their clients."""
        if asked.halted or not self.can_ask(run, asked):
            return False
        free, held, _ = self._open(run, asked)
        return bool(held) and not any(len(one.turns.rejected) < MALFORMED for one in free)

    def _open(self, run: Run, asked: ToolRequest) -> tuple[list[Run], list[Run], list[Put]]:
        """The runs that wait for a solution: those to ask now, those that other requests of this process have asked,
        and the unanswered Requests of rounds.
        """
        waiting = _waiting(run)
        # A client that refused is not asked again when somebody looks at the run. The Requests of this request itself
        # have come back.
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
        """Send the open Requests to the client's model and submit the answers, until none is left; False if none was
        sent. A Request that another client is answering is waited for, and sent here if that client fails.
        """
        if self.waits_for_others(run, asked):
            await run.runner.wait_changed()
            return True
        mine: set[_Key] = set()
        put = False
        async with anyio.create_task_group() as group:
            while True:
                for one in self.due(run, asked, asked.sampled)[: _AT_ONCE - len(mine)]:
                    # Before its task begins, so that other requests do not send it too.
                    self._hold(one, mine)
                    group.start_soon(self._ask, one, asked, mine, asked.sampled + 1)
                    put = True
                if not mine:
                    break
                # An answered room continues while others still wait.
                await run.runner.wait_changed()
        return put

    def _hold(self, run: Run, mine: set[_Key]) -> None:
        mine.add((run.id, run.turn))
        self._out.add((run.id, run.turn))

    def _give_up(self, run: Run, key: _Key, mine: set[_Key]) -> None:
        """Mark a question as ended, and wake the requests that wait for its answer."""
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
                # The turn has a solution or the run has ended: the answer is not needed.
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
            # It came too late, or could not be stored. The state of the run shows this.
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
            self._halt(asked, f"the client's answer is not a result of sampling/createMessage: {_HAND_IN}")
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
        """The Requests of a round, and what its state keeps of them."""
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
        """Submit the answers of the client's model in a round. If only some are accepted, the others are reported.

        Raises:
            SettledTurnError: the turn has another solution, or the answer is a repetition.
            FinishedRunError, InterruptedRunError: the run does not continue.
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
        asked.told.extend(f"an answer of the client's model was not accepted: {error}" for error in faults)

    def _expect_new(self, run: Run, sample: Sample, result: _Result) -> None:
        """Refuse the repetition of a malformed answer, and the answer to a question that was asked again since."""
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
            # The journal has its errors, which the next question shows.
            return


def _waiting(run: Run) -> list[Run]:
    """The run or rooms that wait for a solution of the client's model."""
    return [one for one in run.open_requests() if one.turns.mind == SAMPLING and one.runner.request is not None]


def _unanswered(out: Sequence[Put]) -> str:
    """The note on unanswered Requests."""
    which = ", ".join(f"turn {put.sample.turn} of {put.sample.run} at {put.at}" for put in out[:3])
    more = f" and {len(out) - 3} more" if len(out) > 3 else ""
    return (
        f"the client's model was asked ({which}{more}) and no answer has come: the person there may have refused, or"
        " the client gave the call up, or is still at it. The run waits; the model is not asked for this again. If the"
        f" person refused, cancel it with check_run; else {_HAND_IN}"
    )
