"""Turn the answer of a server's tool into the value or the error of the call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, cast

import mcp_types as types
from pydantic_core import from_json

from ideabridge.bridge.modules.errors import (
    MAX_ERROR,
    ModuleOutputError,
    ModuleToolError,
    shown,
)
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode, encode_text, normalise
from ideabridge.tools.errors import (
    IdeabridgeError,
    InvalidJSONError,
    LimitExceededError,
    ResultLimitError,
)
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

_PARTS: Final = 100
"""The maximum number of blocks in a result, and of members or items in its structured content, that
are compared.
"""

_FAULTS: Final = 800
"""The maximum length, in characters, of an error about a result that violates the schema."""


class ResultReader:
    """Reads the results of one server's tools.

    Args:
        module: the server's name.
        secrets: the values to remove from results.
        max_bytes: the maximum size of a result, in bytes of JSON (`limits.result_bytes`).
    """

    def __init__(self, module: str, secrets: Secrets, max_bytes: int) -> None:
        self._module = module
        self._name = f"server {module!r}"
        self._secrets = secrets
        self._max_bytes = max_bytes

    def expect_size(self, size: int, verb: str = "answered") -> None:
        """Check that a result of `size` bytes is not too large.

        Raises:
            ResultLimitError: the result is too large.
        """
        if size > self._max_bytes:
            raise ResultLimitError(
                f"{self._name} {verb} with {size:,} bytes; the limit is {self._max_bytes:,} "
                "(limits.result_bytes)"
            )

    async def value(
        self, tool: Tool, result: types.CallToolResult, validator: Validator | None
    ) -> JSON:
        """Return the value of a call: its structured content if there is any, otherwise its text,
        with several blocks joined by newlines, otherwise the list of its content blocks, or null if
        there is no content.

        Raises:
            ModuleToolError: the tool failed.
            ModuleOutputError: the value does not fit the tool's output schema, or is not JSON.
            ResultLimitError: the result is too large.
        """
        if result.is_error:
            raise self._tool_error(tool, result)

        try:
            value = normalise(_raw_value(result), what="the result")
            size = len(encode(value))
        except LimitExceededError as error:
            raise ResultLimitError(f"{self._name}: {error}") from None
        except IdeabridgeError as error:
            raise ModuleOutputError(
                self._module, f"{self._name}: {error}", sent=self.sent(result)
            ) from None

        self.expect_size(size)
        if validator is not None:
            value = await self._checked(value, result, validator)
        return self._secrets.redact(value)

    async def _checked(
        self, value: JSON, result: types.CallToolResult, validator: Validator
    ) -> JSON:
        """Return the value of a call, whose tool has an output schema.

        Raises:
            ModuleOutputError: the value does not satisfy the schema.
        """
        has_structure = result.structured_content is not None
        if not has_structure and "structured_content" in result.model_fields_set:
            # If the tool's schema allows null, a null that the server sent is the value.
            with suppress(IdeabridgeError):
                await validator.check_apart(None)
                return None

        try:
            if not has_structure:
                return await _in_text(value, validator)
            await validator.check_apart(value)
            return value
        except IdeabridgeError as error:
            if has_structure:
                reason = shown(str(error), self._secrets, _FAULTS)
                text = (
                    f"the answer from {self._name} does not match its tool's output schema: "
                    f"{reason}"
                )
            else:
                text = f"{self._name} declares an output schema but sent no structured content"
                text += f"; {_described(result)}"
            raise ModuleOutputError(self._module, text, sent=self.sent(result)) from None

    def _tool_error(self, tool: Tool, result: types.CallToolResult) -> ModuleToolError:
        """Return the error for a tool that reports a failure. Its message is the result's text or,
        if there is none, the structured content as text.
        """
        texts = _texts(result)
        text = "\n".join(texts)
        sent = self.sent(result) or {}
        if not text and "structuredContent" in sent:
            text = encode_text(sent["structuredContent"])
            if len(text) <= MAX_ERROR:
                del sent["structuredContent"]

        if 0 < len(text) <= MAX_ERROR and len(texts) == len(result.content):
            # The message already contains the whole text.
            sent.pop("content", None)
            if "structuredContent" in sent and _decoded(text) == sent["structuredContent"]:
                del sent["structuredContent"]

        # Drop the Python SDK's prefix, because the run's message names the tool anyway.
        prefix = f"Error executing tool {tool.name_in_module}: "
        message = shown(text, self._secrets).removeprefix(prefix)
        if not message.strip():
            message = f"{self._name} failed without saying why; {_described(result)}"

        return ModuleToolError(self._module, message, sent=sent or None)

    def sent(self, result: types.CallToolResult) -> JSONObject | None:
        """Return the structured content of a result, and also its content if the two differ.

        Parts that are not JSON are left out. Return None if nothing remains, or if what remains is
        too large.
        """
        sent: JSONObject = {}
        if result.structured_content is not None:
            with suppress(IdeabridgeError):
                sent["structuredContent"] = normalise(result.structured_content)

        if result.content and not _says_the_same(result, sent.get("structuredContent")):
            with suppress(IdeabridgeError):
                sent["content"] = normalise(_blocks(result))

        if not sent or len(encode(sent)) > self._max_bytes:
            return None
        return cast("JSONObject", self._secrets.redact(sent))

    def whole(self, result: types.CallToolResult, refused: list[str]) -> JSONObject:
        """Return the whole result of a direct call: the content, `_meta` and `isError` as sent,
        without secrets.

        If the result is an error, it also contains the structured content, and the messages about
        questions that nobody was asked (`refused`).
        """
        left_out = None if result.is_error else {"structured_content"}
        wire = result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)
        try:
            whole = cast("JSONObject", normalise(wire, what="the result"))
        except LimitExceededError as error:
            raise ResultLimitError(f"{self._name}: {error}") from None
        except IdeabridgeError as error:
            raise ModuleOutputError(self._module, f"{self._name}: {error}") from None

        meta = whole.get("_meta")
        if isinstance(meta, dict):
            # The server names itself here, but the gateway answers under its own name.
            meta.pop(types.SERVER_INFO_META_KEY, None)
            if not meta:
                del whole["_meta"]

        self.expect_size(len(encode(whole)))
        whole = cast("JSONObject", self._secrets.redact(whole))
        if result.is_error:
            add_text(whole, whole.get("structuredContent"))
            if refused:
                content = cast("list[JSON]", whole["content"])
                whole["content"] = [*content, {"type": "text", "text": "\n".join(refused)}]

        return whole


async def _in_text(value: JSON, validator: Validator) -> JSON:
    """Return the value of a call whose tool has an output schema but sent only text, as older
    servers do.

    The value is the JSON in the text, or the text itself, whichever satisfies the schema.

    Raises:
        IdeabridgeError: neither the JSON nor the text satisfies the schema, or the content is not
            text.
    """
    if not isinstance(value, str):
        raise InvalidJSONError("it is not text")

    with suppress(IdeabridgeError):
        parsed = decode(value, what="its text")
        await validator.check_apart(parsed)
        return parsed

    await validator.check_apart(value)
    return value


def _raw_value(result: types.CallToolResult) -> Any:
    if result.structured_content is not None or not result.content:
        return result.structured_content
    texts = _texts(result)
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return _blocks(result)


def _texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def _blocks(result: types.CallToolResult) -> list[JSON]:
    """Return the content blocks as protocol JSON."""
    return [
        block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content
    ]


def _described(result: types.CallToolResult) -> str:
    """Describe the content of a result."""
    kinds = dict.fromkeys(block.type for block in result.content)
    return f"its content is {' and '.join(kinds)}" if kinds else "no content"


def _says_the_same(result: types.CallToolResult, structured: JSON) -> bool:
    """Return whether the content of a result only repeats its structured content, or parts of it,
    as text. The Python SDK sends a block for each item in a list.
    """
    texts = _texts(result)
    if structured is None or len(texts) < len(result.content) or len(texts) > _PARTS:
        return False

    parts: list[JSON] = [structured]
    if isinstance(structured, dict):
        members = list(structured.values())
    else:
        members = [structured]

    for member in members[:_PARTS]:
        parts += [member, *member[:_PARTS]] if isinstance(member, list) else [member]

    return all(text in parts or _decoded(text) in parts for text in texts)


def _decoded(text: str) -> JSON:
    # Do not use `decode`, because it would be slow for megabytes. The parsed text is only compared,
    # so its numbers need not be exact.
    try:
        return cast("JSON", from_json(text))
    except ValueError:
        return text


def add_text(whole: JSONObject, structured: JSON) -> None:
    """If a result has no content, add its structured content as text, for hosts that show only
    text.
    """
    if structured is not None and not whole["content"]:
        whole["content"] = [{"type": "text", "text": encode_text(structured)}]


def broken_result(whole: JSONObject, error: ModuleOutputError) -> JSONObject:
    """Return the result of a direct call that violates the tool's schema: an error that contains
    everything that the tool sent.
    """
    content: list[JSON] = [
        {"type": "text", "text": str(error)},
        *cast("list[JSON]", whole["content"]),
    ]
    result: JSONObject = {**whole, "isError": True, "content": content}
    sent = error.sent or {}
    if "structuredContent" in sent and ("content" in sent or not whole["content"]):
        content.append(
            {"type": "text", "text": f"structuredContent: {encode_text(sent['structuredContent'])}"}
        )

    if isinstance(sent.get("structuredContent"), dict):
        result["structuredContent"] = sent["structuredContent"]

    return result
