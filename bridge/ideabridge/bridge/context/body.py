"""Body: a message, a schema or another part of a Request in its canonical JSON, and the parts of a whole Request.

The id of a Request is the SHA-256 of the canonical JSON of all its parts. In a long run most of them are those of the
Request before, so that each is encoded once, and only what is new is encoded for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from ideabridge.tools.encoding import JSON, encode

if TYPE_CHECKING:
    from _hashlib import HASH

Body: TypeAlias = tuple[bytes, str]
"""A part as it is stored: the SHA-256 of its canonical JSON (32 bytes), and this JSON as text."""


def body_of(value: JSON) -> Body:
    """The body of a value.

    Raises:
        InvalidJSONError: the value is not JSON.
    """
    raw = encode(value)
    # The encoder's bytes are not kept: they hold more memory than they fill.
    return sha256(raw).digest(), raw.decode()


@dataclass(frozen=True)
class EncodedRequest:
    """The parts of a Request in their canonical form.

    Attributes:
        messages: the bodies of its messages.
        schema: the body of its schema.
        shown: the body of the limits on what it shows; None: none were recorded.
    """

    messages: Sequence[Body]
    schema: Body
    shown: Body | None

    @classmethod
    def of(
        cls,
        context: Sequence[JSON],
        schema: JSON,
        shown: JSON,
        bodies: Sequence[Body] | None = None,
        schema_body: Body | None = None,
    ) -> EncodedRequest:
        """Encode every part.

        Args:
            context: the messages.
            schema: the schema.
            shown: the limits; None: none were recorded.
            bodies: the bodies of the messages, if they are known.
            schema_body: the body of the schema, if it is known.

        Raises:
            InvalidJSONError: a part is not JSON.
        """
        return cls(
            [body_of(message) for message in context] if bodies is None else bodies,
            schema_body or body_of(schema),
            None if shown is None else body_of(shown),
        )

    @property
    def id(self) -> bytes:
        """The id of the Request, 32 bytes."""
        return self._hashed[0]

    @property
    def size(self) -> int:
        """The bytes of which the id is the hash."""
        return self._hashed[2]

    def id_with(self, solution: bytes) -> bytes:
        """The id of the idea with this Solution, 32 bytes."""
        digest = self._hashed[1].copy()
        digest.update(b',"solution":%b}' % solution)
        return digest.digest()

    @cached_property
    def _hashed(self) -> tuple[bytes, HASH, int]:
        """The id, the hash of everything but the last brace, and the number of bytes that were hashed."""
        shown = "" if self.shown is None else f',"shown":{self.shown[1]}'
        messages = ",".join([text for _, text in self.messages])
        raw = f'{{"context":[{messages}],"schema":{self.schema[1]}{shown}'.encode()
        # The Request's bytes are a prefix of the idea's but for the last brace: the context is hashed once.
        open_ended = sha256(raw)
        request = open_ended.copy()
        request.update(b"}")
        return request.digest(), open_ended, len(raw) + 1
