"""Sampling: a Request as `sampling/createMessage`, and the Solution in what comes back (DESIGN 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.event import SolutionRejected
from ideabridge.bridge.loop.proposal import rejection
from ideabridge.bridge.minds.sampling_settings import SamplingSettings
from ideabridge.bridge.minds.turns import RULES
from ideabridge.server.rounds import ToolRequest, has_back_channel, has_rounds
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, encode, encode_text, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.inline import inline_refs
from ideabridge.tools.reading import read_solution

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
