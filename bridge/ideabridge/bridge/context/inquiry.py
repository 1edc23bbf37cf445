"""Inquiry: a question of a module to its caller, and the answer (MCP's elicitation in form mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from ideabridge.tools.encoding import JSONObject

Action: TypeAlias = Literal["accept", "decline", "cancel"]
"""A person filled in the form, refused it, or closed it."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """One question of a module, as a form. Its message and schema come from the module and are untrusted.

    Attributes:
        module: the name of the module.
        message: the text of the question.
        schema: JSON Schema of the form: an object of plain values.
    """

    module: str
    message: str
    schema: JSONObject


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The answer to the module. `content` satisfies the schema of the form; it is set only with `accept`."""

    action: Action
    content: JSONObject | None = None


class Asker(Protocol):
    """Passes the questions of a module to the caller."""

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Ask a question and wait for the answer without a time-out. Raises nothing but cancellation."""
        ...

    def withdraw(self) -> None:
        """Withdraw the last question."""
        ...

    def refuse(self, message: str, why: str) -> None:
        """Report a question that nobody was asked: its text, and the reason."""
        ...
