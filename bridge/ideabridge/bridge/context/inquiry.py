"""Inquiry: what a module asks whoever called it, and what they answered (MCP's elicitation in form mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from ideabridge.tools.encoding import JSONObject

Action: TypeAlias = Literal["accept", "decline", "cancel"]
"""What somebody did about a form: filled it in, refused, or left it."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """One question of a module: a form to be filled in. Its words are the module's, and are to be trusted as little.

    Attributes:
        module: who asks.
        message: what it says.
        schema: JSON Schema of the form: an object of plain values.
    """

    module: str
    message: str
    schema: JSONObject


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """What goes back to the module; `content` fits the schema of what was asked, and is there with `accept` only."""

    action: Action
    content: JSONObject | None = None


class Asker(Protocol):
    """Whoever made a call, as its module may ask them."""

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Put a question, and wait for the answer, for however long it takes. Never raises but for cancellation."""
        ...

    def withdraw(self) -> None:
        """What was asked last is taken back."""
        ...

    def refuse(self, message: str, why: str) -> None:
        """Report a question that was not put.

        Args:
            message: what the module said.
            why: why nobody was asked.
        """
        ...
