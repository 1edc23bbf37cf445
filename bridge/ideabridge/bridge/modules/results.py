"""Results: the value of a tool call of a module."""

from __future__ import annotations

from typing import Any, Final

import mcp_types as types

from ideabridge.bridge.modules.errors import ModuleOutputError, ModuleToolError
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, decode, encode, encode_text, normalise
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError, ResultLimitError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

MAX_ERROR: Final = 4096
"""Characters of the text of an error."""

_FAULTS: Final = 800


def shown(text: str, secrets: Secrets, limit: int = MAX_ERROR) -> str:
    """Text from outside for an error message: without secrets, bounded."""
    # Masked before it is cut: half a secret would not be recognised.
    masked = secrets.mask(text[: limit * 4].encode("utf-8", "replace").decode())
    return masked if len(masked) <= limit else f"{masked[:limit]}… ({len(text):,} characters)"


async def result_value(
    module: str,
    tool: Tool,
    result: types.CallToolResult,
    *,
    secrets: Secrets,
    max_bytes: int,
    validator: Validator | None,
) -> JSON:
    """The value of a call: structured content; else its text (several blocks joined by line ends); else the list of
    its content blocks; null if there are none.

    Raises:
        ModuleToolError: the tool reports an error.
        ModuleOutputError: the value does not satisfy the tool's own output schema, or is no JSON.
        ResultLimitError: more than `max_bytes` bytes of JSON.
    """
    if result.is_error:
        text = shown(_error_text(result), secrets)
        # The prefix of the Python SDK; the message of the run contains the name anyway.
        text = text.removeprefix(f"Error executing tool {tool.remote_name or tool.name}: ")
        raise ModuleToolError(module, text or f"module {module!r} failed without saying why")
    value = _bounded(module, _value(module, tool, result), max_bytes)
    if validator is not None:
        await _checked(module, value, validator, secrets)
    return secrets.redact(value)


def _value(module: str, tool: Tool, result: types.CallToolResult) -> Any:
    content = result.content
    if result.structured_content is not None:
        return result.structured_content
    if "structured_content" in result.model_fields_set and (tool.output is not None or not content):
        return None
    texts = [block.text for block in content if isinstance(block, types.TextContent)]
    if tool.output is not None:
        # Older servers declare an output schema and send the value as text only.
        if len(texts) == 1 and len(content) == 1:
            try:
                return decode(texts[0], what="its text")
            except IdeabridgeError:
                pass
        raise ModuleOutputError(module, f"module {module!r} has an output schema but sent no structured content")
    if not content:
        return None
    if len(texts) == len(content):
        return "\n".join(texts)
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]


def _bounded(module: str, value: Any, max_bytes: int) -> JSON:
    try:
        ours = normalise(value, what="the result")
        size = len(encode(ours))
    except LimitExceededError as error:
        raise ResultLimitError(f"module {module!r}: {error}") from None
    except IdeabridgeError as error:
        raise ModuleOutputError(module, f"module {module!r}: {error}") from None
    if size > max_bytes:
        raise ResultLimitError(
            f"module {module!r} answered with {size:,} bytes; at most {max_bytes:,} are taken (limits.result_bytes)"
        )
    return ours


async def _checked(module: str, value: JSON, validator: Validator, secrets: Secrets) -> None:
    try:
        await validator.check_apart(value)
    except IdeabridgeError as error:
        text = shown(str(error), secrets, _FAULTS)
        raise ModuleOutputError(module, f"module {module!r} answered against its own schema: {text}") from None


def _error_text(result: types.CallToolResult) -> str:
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if not texts and result.structured_content is not None:
        try:
            return encode_text(normalise(result.structured_content))
        except IdeabridgeError:
            return "its error is no JSON"
    return "\n".join(texts)
