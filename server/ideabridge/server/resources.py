"""Offer published ideas as resources (`idea://NAME`, `idea://NAME/VERSION`) and as prompts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.messages import Message, read_context
from ideabridge.bridge.context.preview import cut_description
from ideabridge.bridge.store.errors import (
    CursorError,
    SecretInIdeaError,
    UnknownIdeaError,
    UnknownPublicationError,
)
from ideabridge.bridge.store.idea import Publication
from ideabridge.server.answers import MAX_RESULT
from ideabridge.server.callers import Context, caller_of
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import MAX_NAME, is_safe_name
from ideabridge.tools.typed import read_as

PAGE: Final = 100
"""Number of entries on one page."""

PAGE_BYTES: Final = 512 * 1024
"""Maximum size of one page, in bytes, unless its first entry alone is larger."""

_URI: Final = re.compile(rf"idea://([a-z][a-z0-9_]{{0,{MAX_NAME - 1}}})(?:/([0-9]{{1,9}}))?/?\Z")
_MIME: Final = "application/json"
_COMPLETIONS: Final = 100


def _refusal(problem: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, problem)


Entry = TypeVar("Entry", types.Resource, types.Prompt)


def published_page(
    bridge: Bridge,
    params: types.PaginatedRequestParams | None,
    caller: str,
    entry_of: Callable[[Publication], Entry | None],
) -> tuple[list[Entry], str | None]:
    """Return one page of the ideas that a caller sees, and the cursor for the next page.

    `entry_of` returns the entry for an idea, or None to omit it.

    Raises:
        MCPError: the cursor does not come from this list.
    """
    cursor = params.cursor if params else None
    try:
        page = bridge.store.publications.page(PAGE, cursor, caller=caller)
    except CursorError as error:
        raise _refusal(f"cursor: {error}") from None

    entries: list[Entry] = []
    room = PAGE_BYTES
    before = cursor
    for publication in page.items:
        entry = entry_of(publication)
        if entry is not None:
            room -= len(entry.model_dump_json())
            if room < 0 and entries:
                # The cursor of a page is the last name on the page before it.
                return entries, before
            entries.append(entry)

        before = publication.name

    return entries, page.next


def uri_name(uri: str) -> str | None:
    """Return the name of the idea in an `idea:` URI, or None for any other URI."""
    match = _URI.match(uri)
    return match[1] if match else None


class IdeaResources:
    """Handles `resources/*` and completions for published ideas."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return one page of published ideas."""

        def entry_of(publication: Publication) -> types.Resource:
            description = (
                f"{cut_description(publication.description)} (version {publication.version})"
            )
            return types.Resource(
                uri=f"idea://{publication.name}",
                name=publication.name,
                description=description,
                mime_type=_MIME,
            )

        resources, following = published_page(self._bridge, params, caller_of(context), entry_of)
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    async def templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the URI templates."""
        latest = types.ResourceTemplate(
            uri_template="idea://{name}",
            name="idea",
            description="A published idea as a portable document: context, schema, solution.",
            mime_type=_MIME,
        )
        version = types.ResourceTemplate(
            uri_template="idea://{name}/{version}",
            name="idea_version",
            description="One version of a published idea.",
            mime_type=_MIME,
        )
        return types.ListResourceTemplatesResult(resource_templates=[latest, version])

    async def read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read an idea as an exported document.

        Raises:
            MCPError: no idea has this URI, or the idea is too large for one response.
        """
        uri = str(params.uri)
        match = _URI.match(uri)
        if match is None:
            raise _refusal(
                f"unknown resource {uri[:120]!r}: expected idea://NAME or "
                "idea://NAME/VERSION."
                f"{self._bridge.offer.to(caller_of(context)).missing.sentences()}"
            )

        name = match[1]
        version = match[2]
        try:
            number = int(version) if version else None
            caller = caller_of(context)
            publication = self._bridge.store.publications.get(name, number, caller=caller)
            document = self._bridge.export_idea(f"{name}@{publication.version}", caller=caller)
        except SecretInIdeaError as error:
            raise _refusal(f"{uri} cannot be shown: {error}") from None
        except (UnknownPublicationError, UnknownIdeaError) as error:
            raise _refusal(f"unknown resource {uri!r}: {error}") from None

        text = encode_text(document)
        if len(text) > MAX_RESULT:
            raise _refusal(
                f"{uri} has {len(text):,} characters; the limit for one response is "
                f"{MAX_RESULT:,}; `ideabridge ideas export` writes it to a file"
            )

        content = types.TextResourceContents(uri=uri, mime_type=_MIME, text=text)
        return types.ReadResourceResult(contents=[content])

    async def complete(
        self, context: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Complete the names of ideas, and the versions of an idea."""
        argument = params.argument
        others = (params.context.arguments if params.context else None) or {}
        values: list[str] = []
        if isinstance(params.ref, types.ResourceTemplateReference):
            if argument.name == "name":
                values = self._names(argument.value, caller_of(context))
            elif argument.name == "version":
                values = self._versions(others.get("name", ""), argument.value, caller_of(context))

        return types.CompleteResult(
            completion=types.Completion(
                values=values[:_COMPLETIONS], total=len(values), has_more=len(values) > _COMPLETIONS
            )
        )

    def _names(self, start: str, caller: str) -> list[str]:
        # The list is sorted by name, so names that share a prefix are next to each other.
        names: list[str] = []
        after = start[:-1] if is_safe_name(start[:-1]) else None
        while len(names) <= _COMPLETIONS:
            page = self._bridge.store.publications.page(PAGE, after, caller=caller)
            names += [
                publication.name for publication in page.items if publication.name.startswith(start)
            ]
            after = page.next
            if after is None or (after > start and not after.startswith(start)):
                break

        return names

    def _versions(self, name: str, start: str, caller: str) -> list[str]:
        publications = self._bridge.store.publications
        if publications.find(name, None, caller) is None:
            return []
        # Read all versions, because the name can be pinned to an earlier one than the latest.
        numbers = [
            str(publication.version) for publication in publications.versions(name, caller=caller)
        ]
        return [number for number in numbers if number.startswith(start)]


class IdeaPrompts:
    """Handles `prompts/*` for published ideas."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return one page of the published ideas whose context has text."""

        def entry_of(publication: Publication) -> types.Prompt | None:
            if not self._words(publication, caller_of(context)):
                return None
            return types.Prompt(
                name=publication.name,
                description=cut_description(publication.description),
                arguments=_arguments(publication),
            )

        prompts, following = published_page(self._bridge, params, caller_of(context), entry_of)
        return types.ListPromptsResult(prompts=prompts, next_cursor=following)

    async def get(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return the text messages of an idea's context, followed by the input.

        Raises:
            MCPError: no prompt has this name, or an argument is missing or unknown.
        """
        try:
            publication = self._bridge.store.publications.get(
                params.name, caller=caller_of(context)
            )
        except UnknownPublicationError as error:
            missing = self._bridge.offer.to(caller_of(context)).missing
            problem = f"{error}.{missing.sentences()}"
            raise _refusal(f"unknown prompt {params.name[:64]!r}: {problem}") from None

        words = self._words(publication, caller_of(context))
        if not words:
            raise _refusal(f"unknown prompt {params.name[:64]!r}: prompts/list lists them")

        messages = [_prompt_message(message.role, str(message.value)) for message in words]
        value = _input(publication, params.arguments or {})
        if value:
            messages.append(_prompt_message("user", f"Input: {encode_text(value)}"))

        return types.GetPromptResult(description=publication.description, messages=messages)

    def _words(self, publication: Publication, caller: str) -> list[Message]:
        stored = self._bridge.store.ideas.get(publication.idea_id, caller=caller)
        try:
            messages = read_context(stored.idea.context)
        except IdeabridgeError:
            # An imported idea can contain messages whose types this process does not know. It then
            # has no prompt.
            return []
        return [message for message in messages if message.type == "text"]


def _prompt_message(role: str, text: str) -> types.PromptMessage:
    # The protocol has no system role for the messages of a prompt, so use the role `user` instead.
    prompt_role: Literal["user", "assistant"] = "assistant" if role == "assistant" else "user"
    return types.PromptMessage(role=prompt_role, content=types.TextContent(type="text", text=text))


def _arguments(publication: Publication) -> list[types.PromptArgument]:
    takes = read_as(SchemaKeywords, publication.input_schema)
    arguments: list[types.PromptArgument] = []
    for name, schema in takes.properties.items():
        description = read_as(SchemaKeywords, schema).description
        short = None if description is None else cut_description(description)
        arguments.append(
            types.PromptArgument(name=name, description=short, required=name in takes.required)
        )

    return arguments


def _input(publication: Publication, arguments: dict[str, str]) -> JSONObject:
    """Convert the arguments of a prompt to input.

    These arguments are always strings, so the arguments for non-string members are parsed as JSON.
    """
    takes = read_as(SchemaKeywords, publication.input_schema)
    missing = [name for name in takes.required if name not in arguments]
    unknown = [name for name in arguments if name not in takes.properties]
    if missing or unknown:
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        if unknown:
            problems.append(f"unknown: {', '.join(unknown)}")
        raise _refusal(f"arguments of prompt {publication.name!r}: {'; '.join(problems)}")

    return {name: _value(takes.properties[name], text) for name, text in arguments.items()}


def _value(schema: JSON, text: str) -> JSON:
    kind = read_as(SchemaKeywords, schema).type
    if kind in ("number", "integer", "boolean", "array", "object"):
        try:
            return decode(text)
        except IdeabridgeError:
            return text
    return text
