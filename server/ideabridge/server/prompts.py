"""Published ideas with words in their context as prompts (DESIGN 6)."""

from __future__ import annotations

from typing import Any, Literal

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.message import Message, read_context
from ideabridge.bridge.context.preview import cut_description
from ideabridge.bridge.ideas.errors import UnknownPublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.server.callers import caller_of
from ideabridge.server.resources import published_page
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text
from ideabridge.tools.errors import IdeabridgeError

Context = ServerRequestContext[Any, Any]


class IdeaPrompts:
    """The handlers of `prompts/*`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """One page of the published ideas whose context holds words; a page may hold fewer than it looked at."""

        def tell(one: Publication) -> types.Prompt | None:
            if not self._words(one):
                return None
            return types.Prompt(name=one.name, description=cut_description(one.description), arguments=_arguments(one))

        shown, following = published_page(self._bridge, params, caller_of(context), tell)
        return types.ListPromptsResult(prompts=shown, next_cursor=following)

    async def get(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """The words of an idea's context, then the input as given.

        Raises:
            MCPError: no such prompt, or arguments that are missing or unknown.
        """
        try:
            publication = self._bridge.store.publication(params.name, caller=caller_of(context))
        except UnknownPublicationError as error:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name[:64]!r}: {error}") from None
        words = self._words(publication)
        if not words:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name[:64]!r}: prompts/list has them")
        messages = [_prompt_message(message.role, str(message.value)) for message in words]
        given = _input(publication, params.arguments or {})
        if given:
            messages.append(_prompt_message("user", f"Input: {encode_text(given)}"))
        return types.GetPromptResult(description=publication.description, messages=messages)

    def _words(self, publication: Publication) -> list[Message]:
        stored = self._bridge.store.idea(publication.idea_id)
        try:
            messages = read_context(stored.idea.context)
        except IdeabridgeError:
            # Imported, with messages only their own types can read.
            return []
        return [message for message in messages if message.type == "text"]


def _prompt_message(role: str, text: str) -> types.PromptMessage:
    # The protocol knows no system role in prompts.
    shown: Literal["user", "assistant"] = "assistant" if role == "assistant" else "user"
    return types.PromptMessage(role=shown, content=types.TextContent(type="text", text=text))


def _properties(publication: Publication) -> JSONObject:
    properties = (publication.input_schema or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(publication: Publication) -> list[str]:
    required = (publication.input_schema or {}).get("required")
    return [str(name) for name in required] if isinstance(required, list) else []


def _arguments(publication: Publication) -> list[types.PromptArgument]:
    required = _required(publication)
    arguments: list[types.PromptArgument] = []
    for name, schema in _properties(publication).items():
        description = schema.get("description") if isinstance(schema, dict) else None
        told = cut_description(description) if isinstance(description, str) else None
        arguments.append(types.PromptArgument(name=name, description=told, required=name in required))
    return arguments


def _input(publication: Publication, arguments: dict[str, str]) -> JSONObject:
    """The input from a prompt's arguments, which are text: what is not text by the schema is read as JSON."""
    properties = _properties(publication)
    missing = [name for name in _required(publication) if name not in arguments]
    unknown = [name for name in arguments if name not in properties]
    if missing or unknown:
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise MCPError(types.INVALID_PARAMS, f"arguments of prompt {publication.name!r}: {'; '.join(problems)}")
    return {name: _value(properties[name], text) for name, text in arguments.items()}


def _value(schema: JSON, text: str) -> JSON:
    if isinstance(schema, dict) and schema.get("type") in ("number", "integer", "boolean", "array", "object"):
        try:
            return decode(text)
        except IdeabridgeError:
            return text
    return text
