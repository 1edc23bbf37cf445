"""Mind: whoever answers a Request (DESIGN 2, 5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from ideabridge.bridge.context.request import Request
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError

# -- usage -----------------------------------------------------------------------------------------------------------
#
# Usage: what one answer of a mind took (DESIGN 4.4.5, 5).

_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer took, as far as the mind knows.

    Attributes:
        input_tokens: tokens of the Request.
        output_tokens: tokens of the answer, those of thinking among them.
        cost: in US dollars; None: nobody knows the price.
        model: the model that answered, as its provider calls it.
        partial: it took more than is told here: the provider did not tell all of it, or nothing, for it was hung up on,
            or broke off, or never tells.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    model: str | None = None
    partial: bool = False

    def to_json(self) -> JSONObject:
        """The usage as journals and ideas hold it; what nobody knows is left out."""
        told: JSONObject = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        if self.cost is not None:
            told["cost"] = self.cost
        if self.model is not None:
            told["model"] = self.model
        if self.partial:
            told["partial"] = True
        return told


def bounded_name(name: str) -> str:
    """The name of a model as others tell it, fit to be stored: of printable letters, 200 at most."""
    return "".join(letter for letter in name if letter.isprintable())[:_LONGEST_NAME]


def total(first: Usage, second: Usage) -> Usage:
    """What two answers took together; where the price of one is not known, that of the other."""
    costs = [usage.cost for usage in (first, second) if usage.cost is not None]
    return Usage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        sum(costs) if costs else None,
        second.model or first.model,
        first.partial or second.partial,
    )


# -- mind ------------------------------------------------------------------------------------------------------------


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
