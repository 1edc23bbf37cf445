"""The protocol for objects that answer Requests, and `Usage`, the tokens and cost of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from ideabridge.bridge.context.request import Request
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError

_LONGEST_NAME: Final = 200

TURNS: Final = "turns"
"""The name of the mind in a run whose caller submits the Solutions."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and cost of one answer, as far as known.

    Attributes:
        input_tokens: the number of tokens in the Request.
        output_tokens: the number of tokens in the answer, including thinking tokens.
        cost: the cost in US dollars, or None if the price is unknown.
        model: the name of the model that answered, as the provider writes it.
        partial: whether the answer might have used more than recorded, because it was stopped or
            cut off, or because the provider does not report usage.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    model: str | None = None
    partial: bool = False

    def to_json(self) -> JSONObject:
        """Return the usage as stored in journals and ideas, without unknown members."""
        usage: JSONObject = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        if self.cost is not None:
            usage["cost"] = self.cost

        if self.model is not None:
            usage["model"] = self.model

        if self.partial:
            usage["partial"] = True

        return usage


def bounded_name(name: str) -> str:
    """Return the name of a model for storage.

    The name comes from outside, so only the first 200 printable characters are kept.
    """
    return "".join(letter for letter in name if letter.isprintable())[:_LONGEST_NAME]


def total(first: Usage, second: Usage) -> Usage:
    """Return the sum of two usages. An unknown cost counts as 0, unless both are unknown."""
    costs = [usage.cost for usage in (first, second) if usage.cost is not None]
    return Usage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        sum(costs) if costs else None,
        second.model or first.model,
        first.partial or second.partial,
    )


class MindError(IdeabridgeError):
    """Raised when a mind cannot answer at all. The run ends as failed, with the error's message as
    the reason.
    """


@runtime_checkable
class Counting(Protocol):
    """An answer that can report its usage at any time.

    A mind's `answer` can return such an object. The runner reads the usage when it stops an answer
    because the rest is unusable or the run was cancelled.
    """

    def so_far(self) -> Usage | None:
        """Return the usage so far, or None if it is unknown."""
        ...


@runtime_checkable
class Closing(Protocol):
    """An answer that holds a resource open, such as a connection. An example is an async generator.

    The runner closes the answer when it has ended or is stopped.
    """

    async def aclose(self) -> None:
        """Close all resources that the answer holds open."""
        ...


@runtime_checkable
class Titled(Protocol):
    """A mind with a title for people. The `name` of a mind only states its kind."""

    @property
    def title(self) -> str:
        """The title, without secrets: `openai:gpt-5-mini`, `openai:tiny at 127.0.0.1:8080`."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A mind that limits how much of the calls' results Requests show."""

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """The limits (`value` and `request` of `Shown`) that the mind specifies, in bytes. Runs can
        override them.
        """
        ...


class Mind(Protocol):
    """Answers Requests by itself, in pieces. A host's model, which answers turn by turn, is not a
    `Mind`.

    The pieces are the text of one Solution as the mind writes it. A call starts as soon as its
    object is complete, so calls start earlier if the mind streams its answer instead of returning
    it in one piece. A program starts when the answer is complete. An exception ends the answer
    early: the calls proposed so far remain, and the next Request reports the exception. A
    `MindError` ends the run.
    """

    @property
    def name(self) -> str:
        """The mind's name in runs, ideas and `check_run`, such as `model` or `recorded`."""
        ...

    def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """Yield the Solution to a Request in pieces of any size, and the usage once it is known.

        The model reads `texts` and `schema` of the Request. `model` contains the settings that
        handlers chose.
        """
        ...
