"""Extract images, audio and resources from values, so that answers contain them as content blocks.

A tool answers with content blocks, and a call stores them as JSON in its value. A model sees an
image only if the image is a content block of an answer. As text, the image is a few thousand
characters of base64. Therefore, this module removes the blocks from the values that an answer
shows, leaves a placeholder for each block, and appends the blocks to the text of the answer:

    {"chart": {"type": "image", "mimeType": "image/png", "data": "content[1] of this answer"}, "n": 3}

An object counts as a block only if the protocol defines all its members. This way, no member is
lost, and user data that only resembles a block stays data. A view (an HTML page that hosts run; see
`views`) also stays JSON, because this module does not know which server the view comes from. HTML
that is not a view becomes plain text, as in direct calls.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from operator import is_not
from typing import Final

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.context.payloads import payload_of, with_payload, write_payload
from ideabridge.bridge.modules.views import is_html, is_view, without_views
from ideabridge.tools.encoding import JSON, JSONObject, encode

MOST_BLOCKS: Final = 20
"""The maximum number of blocks in one answer."""

_MODELS: Final[Mapping[str, TypeAdapter[types.ContentBlock]]] = {
    "image": TypeAdapter(types.ImageContent),
    "audio": TypeAdapter(types.AudioContent),
    "resource": TypeAdapter(types.EmbeddedResource),
    "resource_link": TypeAdapter(types.ResourceLink),
}
"""The types of blocks that are taken out of values. Text blocks stay, because they are readable
inside the value.
"""

_MARKS: Final = (b'"mimeType"', b'"type":"resource')
"""Strings that occur in the JSON of every block. If the JSON of a value contains none of these
strings, the value contains no block.
"""

_MOST_VALUES: Final = 100_000
"""The maximum number of values that are searched for blocks. Further blocks stay in the value."""

_CHECKED: Final = 64 * 1024
"""The number of base64 characters that are checked. A check of a whole image of several megabytes
would block the event loop.
"""


def native(value: JSONObject) -> JSONObject | None:
    """Return a value as a content block for an answer, or None if the value is not a content
    block.
    """
    kind = value.get("type")
    model = _MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        return None

    try:
        block = model.validate_python(value, by_name=False)
    except ValidationError:
        return None

    # Do not convert the value, because members that the protocol does not define would be lost.
    if block.model_dump(mode="json", by_alias=True, exclude_unset=True) != value:
        return None
    if isinstance(block, types.ImageContent | types.AudioContent):
        data = _base64(block.data)
        if data is None or not block.mime_type.lower().startswith(f"{kind}/"):
            return None
        return {**_without_views(value), "data": data}
    if kind == "resource_link":
        return _native_resource(value)

    embedded = value["resource"]
    assert isinstance(embedded, dict)
    resource = _native_resource(embedded)
    if resource is None:
        return None
    return {**_without_views(value), "resource": resource}


def _native_resource(resource: JSONObject) -> JSONObject | None:
    """Return a resource in the form that a block can contain. Return None if the resource is a
    view, or if its data is not base64.
    """
    if is_view(resource):
        return None

    plain = _without_views(resource)
    blob = resource.get("blob")
    if isinstance(blob, str):
        data = _base64(blob)
        if data is None:
            return None
        plain["blob"] = data

    if is_html(resource.get("mimeType")):
        plain["mimeType"] = "text/plain"
    return plain


def _base64(text: str) -> str | None:
    """Return a block's base64 without line endings, or None if the text is empty or not base64."""
    data = text.replace("\r", "").replace("\n", "")
    try:
        is_base64 = bool(binascii.a2b_base64(data[:_CHECKED], strict_mode=True))
    except ValueError:
        return None
    return data if is_base64 else None


def _without_views(part: JSONObject) -> JSONObject:
    """Return a copy of a block or resource, without nulls and without the members of `_meta` that
    concern views.
    """
    copied: JSONObject = {key: value for key, value in part.items() if value is not None}
    meta = copied.pop("_meta", None)
    other_meta = without_views(meta) if isinstance(meta, dict) else None
    if other_meta:
        copied["_meta"] = other_meta
    return copied


class Blocks:
    """Takes the blocks out of the values in one answer.

    Call `take` with each value, shorten the values that it returns, then call `place` with
    everything that is shown.
    """

    def __init__(self) -> None:
        # Blocks, keyed by the `id()` of their placeholder. Each entry keeps the placeholder alive
        # so that the id cannot be reused.
        self._taken: dict[int, tuple[JSONObject, JSONObject]] = {}
        self._left = 0

    @property
    def placeholders(self) -> list[JSON]:
        """The placeholders of the blocks that were taken, in order."""
        return [placeholder for placeholder, _ in self._taken.values()]

    def take(self, value: JSON) -> JSON:
        """Return the value with each block replaced by a placeholder, or the same object if it
        contains no block.
        """
        if not isinstance(value, dict | list):
            return value

        data = encode(value)
        if not any(mark in data for mark in _MARKS):
            return value

        self._left = _MOST_VALUES
        return self._without(value)

    def _without(self, value: JSON) -> JSON:
        self._left -= 1
        if self._left < 0:
            return value
        if isinstance(value, list):
            items = [self._without(item) for item in value]
            return items if any(map(is_not, items, value)) else value
        if not isinstance(value, dict):
            return value

        block = native(value)
        if block is not None:
            return self._placeholder(value, block)

        members = {key: self._without(item) for key, item in value.items()}
        if any(map(is_not, members.values(), value.values())):
            return members
        return value

    def _placeholder(self, value: JSONObject, block: JSONObject) -> JSONObject:
        placeholder = with_payload(value, f"{len(payload_of(value)):,} characters")
        self._taken[id(placeholder)] = (placeholder, block)
        return placeholder

    def place(self, shown: JSON, *, first: int, room: int, otherwise: str) -> list[JSONObject]:
        """Return the blocks whose placeholders are shown, in order, and write each block's number
        into its placeholder.

        Args:
            shown: the parts of the values that the answer shows.
            first: the number of the first block among the content blocks of the answer.
            room: the maximum total size of the blocks, in bytes of JSON.
            otherwise: the text that follows the size in the placeholder of a block for which there
                is no room.
        """
        blocks: list[JSONObject] = []
        numbers: dict[bytes, int] = {}
        waiting = [shown] if self._taken else []
        while waiting:
            part = waiting.pop()
            if isinstance(part, list):
                waiting += reversed(part)
            elif isinstance(part, dict) and id(part) not in self._taken:
                waiting += reversed(part.values())
            elif isinstance(part, dict):
                placeholder, block = self._taken[id(part)]
                data = encode(block)
                if data not in numbers and (len(data) > room or len(blocks) == MOST_BLOCKS):
                    write_payload(placeholder, f"not shown, {len(data):,} bytes: {otherwise}")
                    continue

                if data not in numbers:
                    # One block is enough for an image that occurs twice.
                    numbers[data] = first + len(blocks)
                    room -= len(data)
                    blocks.append(block)

                write_payload(placeholder, f"content[{numbers[data]}] of this answer")

        return blocks
