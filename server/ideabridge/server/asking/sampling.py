"""Let the client's model write the Solutions of a run (`sampling/createMessage`).

The store treats such a run like one whose Solutions the caller submits: in the status
`needs_solution`, it has no driver, and the process that submits the Solution carries out the next
step. So the run survives restarts, and any server on the store can continue it. `_question` builds
the parameters for a Request, `_solution_in` reads the answer, and `Sampler` asks and submits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from ideabridge.bridge.minds.adapt import with_calls
from ideabridge.bridge.minds.choice import SAMPLING
from ideabridge.bridge.minds.errors import says_too_large
from ideabridge.bridge.minds.instructions import rules
from ideabridge.bridge.minds.settings import SamplingSettings
from ideabridge.bridge.runs.run import Run
from ideabridge.server.asking.rounds import Round, Sample, ToolRequest, sample_key
from ideabridge.tools.encoding import (
    JSON,
    MAX_BYTES,
    JSONObject,
    decode_trusted,
    encode,
    encode_text,
    normalise,
    objects_in,
    plain_text,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import joined
from ideabridge.tools.reading import read_solution
from ideabridge.tools.schema import inline_refs

_TOOL: Final = "solution"
"""The tool that the client's model must call if the client supports tools. Its input is the
Solution."""

MAX_PARAMS: Final = 900_000
"""Limit on one question, in bytes of JSON. SDK clients reject events larger than 1 MiB."""

MAX_ANSWER: Final = MAX_BYTES
"""Limit on one answer: in characters for text, in bytes of JSON for the tool call's input."""

_KEPT_CHARACTERS: Final = 20_000
_SHOWN_CHARACTERS: Final = 300
_SHOWN_BLOCKS: Final = 5
_REJECTED: Final = -1
_REFUSAL: Final = re.compile(
    r"\b(user|person|human)\b.*\b(reject|declin|den[iy]|refus|cancel|not allow)|"
    r"\b(reject|declin|den[iy]|refus)\w* by (the )?(user|person|human)",
    re.IGNORECASE | re.DOTALL,
)
_SETTINGS: Final = {"max_tokens": "maxTokens", "temperature": "temperature"}


class SampleError(IdeabridgeError):
    """Raised when the answer from the client's model contains no solution. The message describes
    the answer.
    """


def _is_refusal(error: MCPError) -> bool:
    """Return whether the person at the client refused.

    The specification defines a code for this, but hosts use other codes, so the wording of the
    message is considered, too.
    """
    return error.error.code == _REJECTED or _REFUSAL.search(error.error.message) is not None


# -- the question ----------------------------------------------------------------------------------


def _question(
    request: Request,
    rejected: Sequence[SolutionRejected],
    settings: SamplingSettings,
    *,
    tools: bool,
) -> JSONObject:
    """Return the parameters of `sampling/createMessage` in wire form, including the last rejected
    answer with its errors.
    """
    system = [_LEAD_TOOL if tools else _LEAD_TEXT, rules(request.schema)]
    messages: list[JSONObject] = []
    for text in request.texts:
        if text["role"] == "system":
            system.append(str(text["content"]))
        else:
            _add(
                messages,
                "assistant" if text["role"] == "assistant" else "user",
                str(text["content"]),
            )

    _add(messages, "user", _ASK_TOOL if tools else f"{_ASK_TEXT}\n{encode_text(request.schema)}")
    if rejected:
        _repair(messages, rejected[-1])

    params: JSONObject = {"messages": [*messages], "systemPrompt": "\n\n".join(system)}
    params |= _preferences(settings, request)
    if tools:
        # Model APIs reject alternatives at the top level of a tool's input schema.
        input_schema = inline_refs(with_calls(request.schema))
        params["tools"] = [{"name": _TOOL, "description": _ABOUT_TOOL, "inputSchema": input_schema}]
        params["toolChoice"] = {"mode": "required"}

    size = len(encode(params))
    if size > MAX_PARAMS:
        raise SampleError(
            f"the request has {size:,} bytes, but the limit for a client is {MAX_PARAMS:,}; "
            f"{request.largest()}; start the task again with less, or with `tools`: names or "
            "patterns of the tools that it needs"
        )

    return params


_LEAD_TEXT: Final = (
    'You are the mind of an agent loop. Write the next solution: one JSON object {"calls": '
    '[...], "output": ...}, and'
    " nothing else: no prose, no Markdown."
)
_LEAD_TOOL: Final = (
    f"You are the mind of an agent loop. Write the next solution: the input of the tool {_TOOL}."
)
_ASK_TEXT: Final = "Answer with the next solution: one JSON object that satisfies this JSON Schema."
_ASK_TOOL: Final = f"Give the next solution by calling {_TOOL}, once."
_ABOUT_TOOL: Final = "Submit the next solution."
_AGAIN: Final = (
    "That is malformed, so nothing in it was run:\n{errors}\nWrite the whole solution again."
)


def _add(messages: list[JSONObject], role: str, text: str) -> None:
    # Some models require the roles to alternate, so merge consecutive messages with the same role.
    if messages and messages[-1]["role"] == role:
        content = messages[-1]["content"]
        assert isinstance(content, dict)
        content["text"] = f"{content['text']}\n\n{text}"
    else:
        messages.append({"role": role, "content": {"type": "text", "text": text}})


def _repair(messages: list[JSONObject], rejected: SolutionRejected) -> None:
    _add(messages, "assistant", plain_text(rejected.solution)[:_KEPT_CHARACTERS] or "(nothing)")
    errors = objects_in(rejected.errors)
    _add(messages, "user", _AGAIN.format(errors=rejection(errors)))


def _preferences(settings: SamplingSettings, request: Request) -> JSONObject:
    """Return the configured model preferences, overridden by those of message handlers."""
    params: JSONObject = {"maxTokens": settings.max_tokens}
    if settings.temperature is not None:
        params["temperature"] = settings.temperature

    params.update(
        (_SETTINGS[name], value) for name, value in request.model.items() if name in _SETTINGS
    )
    model = request.model.get("model")
    names = [model] if isinstance(model, str) else settings.models
    priorities = {
        "costPriority": settings.cost_priority,
        "speedPriority": settings.speed_priority,
        "intelligencePriority": settings.intelligence_priority,
    }
    if names:
        preferences: JSONObject = {"hints": [{"name": name} for name in names]}
    else:
        preferences = {}

    preferences.update((key, value) for key, value in priorities.items() if value is not None)
    if preferences:
        params["modelPreferences"] = preferences

    return params


# -- the answer ------------------------------------------------------------------------------------

_Result: TypeAlias = types.CreateMessageResult | types.CreateMessageResultWithTools


def _solution_in(result: _Result) -> JSONObject:
    """Return the solution in an answer: the input of the tool call or, if there is none, the JSON
    in the text, which is parsed leniently.

    Raises:
        SampleError: the answer has no solution; the message describes the answer, and says whether
            it was cut off.
    """
    cut = result.stop_reason == "maxTokens"
    try:
        solution, _ = read_solution(_raw(_blocks(result)))
    except IdeabridgeError as error:
        raise SampleError(f"{_CUT}{error}" if cut else str(error)) from None

    if cut and not solution["calls"] and solution["output"] is None and "program" not in solution:
        raise SampleError(f"{_CUT}nothing usable remains")
    return solution


def _blocks(result: _Result) -> list[Any]:
    return result.content if isinstance(result.content, list) else [result.content]


_CUT: Final = "the answer was cut off at its token limit (write fewer calls, or shorter values): "


def _raw(blocks: list[Any]) -> JSON:
    uses = [block for block in blocks if isinstance(block, types.ToolUseContent)]
    if uses:
        if len(uses) > 1 or uses[0].name != _TOOL:
            raise SampleError(
                f"expected exactly one call to the tool {_TOOL}, or text that contains one "
                "JSON object; "
                f"found {_described(uses)}"
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


def _expect_fits(size: int, unit: str) -> None:
    if size > MAX_ANSWER:
        raise SampleError(
            f"the answer has {size:,} {unit}; the limit is {MAX_ANSWER:,} (write fewer calls, or "
            "shorter values)"
        )


def _described(blocks: list[Any]) -> str:
    """Describe the blocks of an answer, for a message to the model that wrote it."""
    descriptions = [_block(block) for block in blocks[:_SHOWN_BLOCKS]]
    if len(blocks) > _SHOWN_BLOCKS:
        more = [f"{len(blocks) - _SHOWN_BLOCKS:,} more"]
    else:
        more = []
    return ", ".join([*descriptions, *more]) or "nothing"


def _block(block: Any) -> str:
    if isinstance(block, types.ToolUseContent):
        # Use `json.dumps`, because `encode` limits the depth.
        description = (
            json.dumps(block.input, ensure_ascii=False)[:_SHOWN_CHARACTERS]
            .encode("utf-8", "replace")
            .decode()
        )
        return f"a call of {block.name[:60]!r} with {description}"

    kind = str(block.type)[:_SHOWN_CHARACTERS]
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"{kind} ({block.mime_type[:60]})"
    return kind


def _repeats(result: _Result, rejected: SolutionRejected) -> bool:
    try:
        solution: JSON = _solution_in(result)
    except SampleError:
        solution = _journaled(result)
    return solution == rejected.solution


def _journaled(result: _Result) -> str:
    """Return an answer that has no solution in the form for the journal."""
    blocks = _blocks(result)
    texts = list[str]()
    left = _KEPT_CHARACTERS
    for block in blocks:
        if left > 0 and isinstance(block, types.TextContent):
            texts.append(block.text[:left])
            left -= len(block.text) + 1

    text = "\n".join(texts)
    return text if text.strip() else _described(blocks)


# -- the sampler -----------------------------------------------------------------------------------

MAX_SAMPLING_ROUNDS: Final = 8
"""Maximum number of sampling rounds in one request. Clients end a request after ten rounds, and
forms might need some of them.
"""

MALFORMED: Final = 3
"""Maximum number of malformed answers to one Request. After that, the caller must write the
solution.
"""

_MOST_AT_ONCE: Final = 8
_HAND_IN: Final = "submit the solution with solve"
_Key: TypeAlias = tuple[str, int]
"""A run's id and turn."""
_Sent: TypeAlias = tuple[Sample, str]
"""A Request that was sent to a client's model, and when, as ISO 8601 in UTC."""


class Sampler:
    """Sends Requests to the models of clients, and submits the answers.

    In 2026-07-28, a client that refuses or abandons a call sends nothing: it just does not repeat
    the request. So the Requests of a round are stored under their root run, where any process can
    find those without an answer.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._settings = bridge.configuration.sampling
        # The Requests that clients of this process are answering on the back-channel right now.
        self._out: set[_Key] = set()

    def can_ask(self, run: Run, request: ToolRequest) -> bool:
        """Return whether the run (or the rooms of a plan) uses sampling, and this client supports
        it.
        """
        return run.root.turns.mind == SAMPLING and request.samples

    def explain(self, run: Run, request: ToolRequest, seconds: float) -> None:
        """Add a note that says why the caller is asked for a solution although the run uses
        sampling.
        """
        if request.notes or not _waiting(run) or run.status != "needs_solution":
            return

        note = self.unanswered_note(run)
        if note is not None:
            request.notes.append(note)
            return

        if not request.samples:
            obstacle = "this client does not declare sampling"
        elif seconds <= 0:
            obstacle = "nobody can be asked, because this call does not wait (wait_s)"
        else:
            obstacle = f"its answer did not arrive within {seconds:g} s"

        request.notes.append(
            f"the run is answered by the client's model, but {obstacle}: "
            f"{_HAND_IN}, or ask check_run again"
        )

    def unanswered_note(self, run: Run) -> str | None:
        """Return a note about the run's Requests that the client's model has not answered, or None
        if it has answered them all.
        """
        sent = self._unanswered(run.root, _waiting(run))
        return _unanswered_note(sent) if sent else None

    def due(self, run: Run, request: ToolRequest, rounds: int) -> list[Run]:
        """Return the run or rooms whose Requests can be sent to the client's model now, after
        `rounds` rounds.
        """
        if request.halted or not self.can_ask(run, request):
            return []

        free, outstanding, sent = self._open(run, request)
        if not free:
            if sent and not outstanding:
                self._halt(request, _unanswered_note(sent))
            return []

        due = [sample for sample in free if len(sample.turns.rejected) < MALFORMED]
        if not due and not outstanding:
            last = free[0].turns.rejected[-1].errors
            self._halt(
                request,
                f"the client's model gave {MALFORMED} malformed solutions "
                f"({str(last[:1])[:300]}): {_HAND_IN}",
            )
        elif due and rounds >= MAX_SAMPLING_ROUNDS:
            self._halt(
                request,
                f"the client's model was asked {rounds} times within this request, the maximum "
                f"that clients accept: {_HAND_IN}, or call check_run to have it asked again",
            )
            return []

        return due[:_MOST_AT_ONCE]

    def waits_for_others(self, run: Run, request: ToolRequest) -> bool:
        """Return whether this client's model would be asked if other requests were not waiting for
        answers from their clients.
        """
        if request.halted or not self.can_ask(run, request):
            return False
        free, outstanding, _ = self._open(run, request)
        return bool(outstanding) and not any(
            len(sample.turns.rejected) < MALFORMED for sample in free
        )

    def _open(self, run: Run, request: ToolRequest) -> tuple[list[Run], list[Run], list[_Sent]]:
        """Sort the waiting runs by whether their Requests can be sent.

        Return the runs whose Requests can be sent now, the runs whose Requests have been sent by
        other requests in this process, and the unanswered Requests of earlier rounds.
        """
        waiting = _waiting(run)
        # If a client has refused, do not ask it again just because someone looks at the run.
        # Requests that this same request sent do not count, because the client has come back with
        # the answers to them.
        if request.round is not None:
            own = {sample.run for sample in request.round.samples}
        else:
            own = set[str]()

        sent = [
            question
            for question in self._unanswered(run.root, waiting)
            if question[0].run not in own
        ]
        samples = {sample for sample, _ in sent}
        left = [sample_run for sample_run in waiting if _sample_of(sample_run) not in samples]
        outstanding = [
            sample_run for sample_run in left if (sample_run.id, sample_run.turn) in self._out
        ]
        return (
            [sample_run for sample_run in left if sample_run not in outstanding],
            outstanding,
            sent,
        )

    def _unanswered(self, root: Run, waiting: Sequence[Run]) -> list[_Sent]:
        """Return the Requests of earlier rounds whose runs are still waiting for them."""
        raw = self._bridge.store.settings.get(_setting(root)) if waiting else None
        if raw is None:
            return []

        stored: Any = decode_trusted(raw)
        sent = [(Sample(run, turn, attempt), at) for run, turn, attempt, at in stored]
        samples = {_sample_of(run) for run in waiting}
        return [question for question in sent if question[0] in samples]

    def _store_sent(self, root: Run, samples: Sequence[Sample]) -> None:
        """Store Requests before they are sent, and remove those that no run is waiting for any
        more.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        sent = {sample.run: (sample, at) for sample, at in self._unanswered(root, _waiting(root))}
        sent.update((sample.run, (sample, now)) for sample in samples)
        entries: list[JSON] = [
            [sample.run, sample.turn, sample.attempt, at] for sample, at in sent.values()
        ]
        self._bridge.store.settings.set(_setting(root), encode(entries))

    @staticmethod
    def _halt(request: ToolRequest, note: str) -> None:
        request.halted = True
        if note not in request.notes:
            request.notes.append(note)

    # -- on the back-channel -----------------------------------------------------------------------

    async def ask(self, run: Run, request: ToolRequest) -> bool:
        """Send the open Requests to the client's model and submit the answers, until no Request is
        left. Return False if none was sent. If another client is already answering a Request, wait
        for that client, and send the Request to this client's model only if the other one fails.
        """
        if self.waits_for_others(run, request):
            await run.runner.wait_changed()
            return True

        mine: set[_Key] = set()
        has_asked = False
        async with anyio.create_task_group() as group:
            while True:
                for sample in self.due(run, request, request.sampled)[: _MOST_AT_ONCE - len(mine)]:
                    # Mark the Request before its task begins, so that no other request sends it as
                    # well.
                    mine.add((sample.id, sample.turn))
                    self._out.add((sample.id, sample.turn))
                    group.start_soon(self._ask, sample, request, mine, request.sampled + 1)
                    has_asked = True

                if not mine:
                    break
                # A room that has been answered continues while others are still waiting.
                await run.runner.wait_changed()

        return has_asked

    async def _ask(self, run: Run, request: ToolRequest, mine: set[_Key], number: int) -> None:
        turn = run.turn
        result: _Result | None = None
        scope = anyio.CancelScope()

        def watch(_event: Event) -> None:
            if run.turn != turn or not run.machine.awaits_solution:
                # The turn has a solution or the run has ended, so the answer is no longer needed.
                scope.cancel()

        try:
            try:
                with run.watching(watch), scope:
                    result = await self._answer(run, request)
            finally:
                request.sampled = max(request.sampled, number)

            # The run asks its Request until the answer is stored, so the Request must not be sent
            # again before that. An answer that comes too late or cannot be stored changes nothing,
            # as the state of the run shows.
            with suppress(IdeabridgeError):
                if result is not None:
                    # Open the run again, because a fast model can answer before the process that
                    # made the Request has released the lease.
                    await self._submit(
                        await self._bridge.run(run.id, caller=request.caller), turn, result
                    )
        finally:
            mine.discard((run.id, turn))
            self._out.discard((run.id, turn))
            # Wake the other requests that might be waiting for this answer.
            run.poke()

    async def _answer(self, run: Run, request: ToolRequest) -> _Result | None:
        session: ServerSession = request.context.session
        try:
            params = types.CreateMessageRequestParams.model_validate(self._params(run, request))
            return await session.send_request(
                types.CreateMessageRequest(params=params),
                types.CreateMessageResultWithTools,
                metadata=ServerMessageMetadata(related_request_id=request.context.request_id),
            )
        except SampleError as error:
            self._cannot_ask(run, error, request)
        except MCPError as error:
            await self._failed(run, error, request)
        except ValidationError:
            self._halt(
                request,
                f"the client's answer is not a result of sampling/createMessage: {_HAND_IN}",
            )

        return None

    def _cannot_ask(self, run: Run, error: SampleError, request: ToolRequest) -> None:
        # If a limit has ended the run, nothing more can be submitted, and the answer about the run
        # names the limit.
        instead = "" if run.machine.phase in ("ending", "ended") else f"; {_HAND_IN}"
        self._halt(request, f"the client's model cannot be asked: {error}{instead}")

    async def _failed(self, run: Run, error: MCPError, request: ToolRequest) -> None:
        text = self._bridge.secrets.mask(error.error.message)[:500]
        if _is_refusal(error):
            request.halted = True
            reason = f"the person at the client refused to let its model answer: {text}"
            await run.patiently(lambda: run.root.cancel(reason))
            return

        if run.runner.request is not None and says_too_large(text):
            text = f"{text}; the Request is too long for this model: {run.runner.request.largest()}"

        self._halt(
            request,
            f"the client could not ask its model ({error.error.code}: {text}): call check_run to "
            f"have it asked again, or {_HAND_IN}",
        )

    def _params(self, run: Run, request: ToolRequest) -> JSONObject:
        if run.runner.request is None:
            raise SampleError("the run has no open Request any more")

        reason = run.too_dear(run.runner.request)
        if reason is not None:
            run.end_budget(reason)
            raise SampleError(reason)
        return _question(
            run.runner.request, run.turns.rejected, self._settings, tools=request.samples_with_tools
        )

    # -- questions that a client answers with its next request -------------------------------------

    async def questions(
        self, due: list[Run], request: ToolRequest
    ) -> tuple[JSONObject, tuple[Sample, ...]]:
        """Return the questions for a round, keyed by name, and the Requests that they contain."""
        questions: JSONObject = {}
        samples: list[Sample] = []
        for run in due:
            try:
                params = self._params(run, request)
            except SampleError as error:
                self._cannot_ask(run, error, request)
                continue

            questions[sample_key(len(samples))] = {
                "method": "sampling/createMessage",
                "params": params,
            }
            samples.append(_sample_of(run))

        if samples:
            root = due[0].root
            await root.patiently(lambda: self._store_sent(root, samples))

        return questions, tuple(samples)

    async def answered(
        self, last: Round, request: ToolRequest, responses: Mapping[str, types.InputResponse]
    ) -> None:
        """Submit the answers that the client's model gave in a round. If only some are accepted,
        report the others.

        Raises:
            SettledTurnError: the turn already has a different solution, or the answer repeats an
                earlier one.
            FinishedRunError, InterruptedRunError: the run cannot continue.
        """
        accepted = 0
        faults = list[IdeabridgeError]()
        for number, sample in enumerate(last.samples):
            response = responses.get(sample_key(number))
            if not isinstance(
                response, types.CreateMessageResult | types.CreateMessageResultWithTools
            ):
                self._halt(
                    request, f"the client returned without an answer from its model: {_HAND_IN}"
                )
                continue

            try:
                run = await self._bridge.run(sample.run, caller=request.caller)
                self._expect_new(run, sample, response)
                await self._submit(run, sample.turn, response)
                accepted += 1
            except IdeabridgeError as error:
                faults.append(error)

        if faults and not accepted:
            raise faults[0]
        request.notes.extend(
            f"an answer from the client's model was not accepted: {error}" for error in faults
        )

    def _expect_new(self, run: Run, sample: Sample, result: _Result) -> None:
        """Reject an answer that repeats a malformed one, or whose question has since been asked
        again.
        """
        if not run.machine.awaits_solution or run.turn != sample.turn or sample == _sample_of(run):
            return
        again = self._unanswered(run.root, [run])
        if again or any(_repeats(result, rejected) for rejected in run.turns.rejected):
            asked_again = "; the client's model has been asked again" if again else ""
            raise SettledTurnError(
                f"an answer to turn {sample.turn} (attempt {sample.attempt + 1}) has already "
                f"arrived and was malformed{asked_again}"
            )

    @staticmethod
    async def _submit(run: Run, turn: int, result: _Result) -> None:
        try:
            solution = _solution_in(result)
        except SampleError as error:
            reason = str(error)
            await run.patiently(lambda: run.reject(turn, _journaled(result), reason))
            return
        # Ignore the error, because a malformed solution has its errors in the journal, and the next
        # question shows them.
        with suppress(RejectedSolutionError):
            model = bounded_name(result.model)
            await run.patiently(lambda: run.submit(turn, solution, mind=SAMPLING, model=model))


def _sample_of(run: Run) -> Sample:
    """Return the open Request of a run."""
    return Sample(run.id, run.turn, len(run.turns.rejected))


def _setting(root: Run) -> str:
    return f"sampled.{root.id}"


def _waiting(run: Run) -> list[Run]:
    """Return the run and rooms that are waiting for a solution from the client's model."""
    return [
        run_asking
        for run_asking in run.open_requests()
        if run_asking.turns.mind == SAMPLING and run_asking.runner.request is not None
    ]


def _unanswered_note(sent: Sequence[_Sent]) -> str:
    turns = [f"turn {sample.turn} of {sample.run} at {at}" for sample, at in sent]
    return (
        f"the client's model was asked ({joined(turns, 3)}), but no answer has arrived. The person "
        "may have refused, the client may have ended the call, or the model may still be working. "
        "The run waits, and does not ask the model again. If the person refused, cancel the run "
        f"with check_run; otherwise {_HAND_IN}"
    )
