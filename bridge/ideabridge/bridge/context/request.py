"""The question that a run asks a mind: a context, and the schema of the Solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.body import EncodedRequest
from ideabridge.bridge.context.messages import Message, read_message
from ideabridge.tools.encoding import JSON, JSONObject, encode

_USUAL: Final = 4
"""The approximate number of bytes in one token of English or JSON."""

_MOST_BYTES_PER_TOKEN: Final = 8
"""A high estimate of the number of bytes per token. Hardly any text has more bytes per token on
average.
"""

_TITLE: Final = 60


def least_tokens_of(size: int) -> int:
    """Estimate the minimum number of tokens in `size` bytes of text."""
    return size // _MOST_BYTES_PER_TOKEN


def tokens_of(size: int) -> int:
    """Estimate the number of tokens in `size` bytes of text."""
    return size // _USUAL


@dataclass(frozen=True, slots=True)
class Request:
    """A self-contained question to a mind, which does not refer to earlier Requests.

    Attributes:
        context_json: the messages as stored in the idea.
        schema: the JSON Schema of the Solution.
        texts: the messages as the mind reads them: `{"role", "content"}`.
        model: the model settings requested by handlers.
        offered: the tools and output schema as changed by handlers, in the form of `RequestMade`,
            or None if they were not changed.
        shown: the limits on the results in `texts`, `{"value": bytes, "request": bytes}`: for one
            result and for all of them. None if no limits were recorded.
        schema_size: the size of the schema in bytes of JSON, if known.
        members: the schemas of the members that handlers added to the Solution, keyed by name.
    """

    context_json: list[JSON]
    schema: JSONObject
    texts: list[JSONObject]
    model: JSONObject
    offered: JSONObject | None = None
    shown: JSONObject | None = None
    schema_size: int | None = field(default=None, repr=False, compare=False)
    members: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    _encoded: list[EncodedRequest] = field(
        default_factory=list[EncodedRequest], init=False, repr=False, compare=False
    )
    _sizes: list[int] = field(default_factory=list[int], init=False, repr=False, compare=False)

    @property
    def context(self) -> list[Message]:
        """The typed messages."""
        return [read_message(message) for message in self.context_json]

    @property
    def id(self) -> str:
        """The SHA-256 of the context, the schema and `shown`, computed only once. Equal Requests
        have equal ids.
        """
        return self.encoded.id.hex()

    @property
    def encoded(self) -> EncodedRequest:
        """The parts that the id is computed from, in canonical form.

        Raises:
            InvalidJSONError: a part is not JSON.
        """
        if not self._encoded:
            self._encoded.append(EncodedRequest.of(self.context_json, self.schema, self.shown))
        return self._encoded[0]

    def know(self, encoded: EncodedRequest) -> None:
        """Set `encoded` to an existing encoding. Copies of the Request with other parts do not
        inherit it.
        """
        self._encoded[:] = [encoded]

    @property
    def stored_size(self) -> int:
        """The number of bytes that the id is computed from."""
        return self.encoded.size

    @property
    def size(self) -> int:
        """The number of bytes that the mind reads: the messages and the schema."""
        schema_size = self.schema_size
        if schema_size is None:
            schema_size = len(encode(self.schema))
        return self.text_size + schema_size

    @property
    def text_size(self) -> int:
        """The size of `texts` in bytes, computed once."""
        if not self._sizes:
            contents = [str(text["content"]) for text in self.texts]
            self._sizes.append(sum(len(text.encode("utf-8", "replace")) for text in contents))
        return self._sizes[0]

    @property
    def about_tokens(self) -> int:
        """The approximate number of tokens in the Request, estimated from its size."""
        return tokens_of(self.size)

    @property
    def least_tokens(self) -> int:
        """A low estimate of the number of tokens in the Request. Only `texts` are counted, because
        some minds get a shorter form of the schema.
        """
        return least_tokens_of(self.text_size)

    def largest(self) -> str:
        """Return a sentence about the largest message that the mind reads: its number, first words
        and size.
        """
        sizes = [len(str(text["content"]).encode("utf-8", "replace")) for text in self.texts]
        if not sizes:
            return f"its schema has {self.size:,} bytes"

        number = max(range(len(sizes)), key=sizes.__getitem__)
        title = str(self.texts[number]["content"]).partition("\n")[0]
        beginning = title if len(title) <= _TITLE else f"{title[:_TITLE]}..."
        part = self._largest_part(title)
        return (
            f"its largest message, number {number + 1} of {len(sizes)}, has {sizes[number]:,} of "
            f"{self.size:,} bytes: {beginning}{part}"
        )

    def _largest_part(self, title: str) -> str:
        """Return the largest member of the input, state or data whose text has the given title."""
        kind = title.partition(",")[0].lower()
        members = [
            (len(encode(value)), name)
            for message in self.context_json
            if isinstance(message, dict) and message.get("type") == kind
            for name, value in _members(message, kind)
        ]
        if not members:
            return ""
        size, name = max(members)
        return f" (most of it is {name}, {size:,} bytes)"


def _members(message: JSONObject, kind: str) -> list[tuple[str, JSON]]:
    value = message.get(kind)
    where = f"{kind}.{message.get('kind')}" if kind == "data" else kind
    instance = message.get("_instance")
    start = f"{instance}.{where}" if isinstance(instance, str) else where
    if isinstance(value, dict):
        return [(f"†{start}.{key[:_TITLE]}", item) for key, item in value.items()]
    return [(f"†{start}", value)]
