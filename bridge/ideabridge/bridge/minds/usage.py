"""Usage: what one answer of a mind took (DESIGN 4.4.5, 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ideabridge.tools.encoding import JSONObject

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
