"""A question that a server asks its caller, and the answer (MCP's elicitation in form mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from ideabridge.tools.encoding import JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.schema import Validator
from ideabridge.tools.typed import read_as

Action: TypeAlias = Literal["accept", "decline", "cancel"]
"""What a person did with the form: filled it in, refused it, or closed it."""

_ANSWER_BYTES: Final = 100_000
"""The maximum size of the answer to a form, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A server's question, as a form. The message and the schema come from the server and are not
    trusted.

    Attributes:
        module: the name of the server.
        message: the text of the question.
        schema: the JSON Schema of the form, an object of plain values.
    """

    module: str
    message: str
    schema: JSONObject


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The answer to the server. `content` satisfies the schema of the form, and is set only with
    `accept`.
    """

    action: Action
    content: JSONObject | None = None


class AnswerError(IdeabridgeError):
    """Raised when an answer is withheld from the server, because it does not fit the question or
    contains a secret.
    """


def read_answer(module: str, schema: JSONObject, value: object) -> JSONObject:
    """Return a person's input for a server's form, if it fits the form.

    Raises:
        AnswerError: the answer does not fit.
    """
    what = f"the answer to server {module}"
    try:
        content = normalise(value, what=what)
    except IdeabridgeError as error:
        raise AnswerError(f"the value does not fit the form: {error}") from None

    size = len(encode(content))
    if size > _ANSWER_BYTES:
        raise AnswerError(f"{what} has {size:,} bytes of JSON; the limit is {_ANSWER_BYTES:,}")
    if not isinstance(content, dict):
        raise AnswerError(
            "the decision 'value' requires `value`: an object that fits the form of the question"
        )

    fields = read_as(SchemaKeywords, schema).properties
    strange = next((name for name in content if name not in fields), None)
    if strange is not None:
        names = ", ".join(fields) or "none"
        raise AnswerError(
            f"{what}: {strange[:60]!r} is not a field of its form; the fields are {names}"
        )

    try:
        Validator(schema, what=what).check(content)
    except IdeabridgeError as error:
        raise AnswerError(f"the value does not fit the form: {error}") from None

    return content


class Asker(Protocol):
    """Passes a server's questions on to the caller."""

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Ask a question, and wait for the answer without a time limit.

        This method raises no errors, but can be cancelled.
        """
        ...

    def withdraw(self) -> None:
        """Withdraw the last question."""
        ...

    def refuse(self, message: str, why: str) -> None:
        """Report that a question was not passed to anyone. `message` is the text of the question,
        and `why` is the reason.
        """
        ...
