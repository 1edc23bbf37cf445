"""Encode each part of a Request, such as a message or a schema, in canonical JSON, and combine the
parts into the whole Request.

The id of a Request is the SHA-256 of the canonical JSON of all its parts. In a long run, most parts
of a Request are the same as in the previous one. Each part is therefore encoded only once, and each
Request encodes only the parts that are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from operator import is_
from typing import Final, TypeAlias

from ideabridge.tools.encoding import JSON, encode

Body: TypeAlias = tuple[bytes, str]
"""A part as stored: the SHA-256 of its canonical JSON (32 bytes), and the JSON itself."""


def body_of(value: JSON) -> Body:
    """Return the body of a value.

    Raises:
        InvalidJSONError: the value is not JSON.
    """
    raw = encode(value)
    # Keep a string rather than the encoder's bytes, because these take up more memory than their
    # length suggests.
    return sha256(raw).digest(), raw.decode()


_BEGIN: Final = b'{"context":['


class EncodedRequest:
    """The parts of a Request in their canonical form, and its id.

    Args:
        messages: the bodies of the messages.
        schema: the body of the schema.
        shown: the body of the limits on what the Request shows, or None if no limits were recorded.
        last: the previous Request in the same run. If this Request begins with all messages of the
            previous Request, those messages are not hashed again.

    Attributes:
        messages, schema, shown: the arguments with the same names.
        id: the id of the Request, as 32 bytes.
        size: the number of bytes that the id is computed from.
    """

    def __init__(
        self,
        messages: Sequence[Body],
        schema: Body,
        shown: Body | None,
        last: EncodedRequest | None = None,
    ) -> None:
        self.messages = messages
        self.schema = schema
        self.shown = shown
        unchanged = 0
        self._context = sha256(_BEGIN)
        self._context_size = len(_BEGIN)
        if (
            last is not None
            and len(last.messages) <= len(messages)
            and all(map(is_, last.messages, messages))
        ):
            unchanged = len(last.messages)
            self._context = last._context.copy()
            self._context_size = last._context_size

        texts = [text for _, text in messages[unchanged:]]
        # If messages have already been hashed, the new text begins with the comma that follows
        # them.
        new = ",".join(["", *texts] if unchanged and texts else texts).encode()
        self._context.update(new)
        self._context_size += len(new)
        limits = "" if shown is None else f',"shown":{shown[1]}'
        end = f'],"schema":{schema[1]}{limits}'.encode()
        # An idea's bytes begin with the bytes of its Request, apart from the last brace, so hash
        # the context only once for both.
        self._open = self._context.copy()
        self._open.update(end)
        closed = self._open.copy()
        closed.update(b"}")
        self.id = closed.digest()
        self.size = self._context_size + len(end) + 1

    @classmethod
    def of(cls, context: Sequence[JSON], schema: JSON, shown: JSON) -> EncodedRequest:
        """Encode all parts. `shown` is None if no limits were recorded.

        Raises:
            InvalidJSONError: a part is not JSON.
        """
        limits = None if shown is None else body_of(shown)
        return cls([body_of(message) for message in context], body_of(schema), limits)

    def id_with(self, solution: bytes) -> bytes:
        """Return the id, as 32 bytes, of the idea made up of this Request and the Solution."""
        digest = self._open.copy()
        digest.update(b',"solution":%b}' % solution)
        return digest.digest()
