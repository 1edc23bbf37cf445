"""Mind: whoever answers a Request (DESIGN 2, 5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from ideabridge.bridge.context.request import Request
from ideabridge.bridge.minds.usage import Usage
from ideabridge.tools.errors import IdeabridgeError


class MindError(IdeabridgeError):
    """Raised by a mind that cannot answer at all: its run ends as failed, with the message as the reason."""


@runtime_checkable
class Counting(Protocol):
    """An answer that can tell at any moment what it has taken: a mind's `answer` may give one. It is asked where the
    answer is hung up on, because nothing more of it can be used, or its run was cancelled.
    """

    def so_far(self) -> Usage | None:
        """What the answer has taken so far; None: nothing that would be known."""
        ...


@runtime_checkable
class Titled(Protocol):
    """A mind that can tell what answers in it, for people: `name` says only of which kind it is."""

    @property
    def title(self) -> str:
        """In words, without secrets: `openai:gpt-5-mini`, `openai:tiny at 127.0.0.1:8080`."""
        ...


class Mind(Protocol):
    """Answers Requests by itself, in pieces as they come; the host's own model, by turns, needs none of this.

    The pieces are the text of one Solution as the mind writes it. Calls start the moment they close, so a mind that
    streams is faster than one that hands over its whole answer. An exception breaks the answer off: what was
    proposed until then stands, and the next Request says what happened. A `MindError` ends the run.
    """

    @property
    def name(self) -> str:
        """What runs, ideas and `check_run` call it: `model`, `recorded`, or a name of its own."""
        ...

    def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """The Solution of a Request, in pieces of any size, and what it took, once that is known.

        Args:
            request: `texts` and `schema` are what to send to a model; `model` holds settings handlers asked for.
        """
        ...
