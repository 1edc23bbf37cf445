"""The fields in which a visitor edits the parameters of a call that needs approval, and the
resulting call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.question import Question
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.showing import as_json
from ideabridge.server.views.shown import call_without_ids
from ideabridge.server.views.value_table import parameter_label
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import printable

_MOST: Final = 30
"""Maximum number of parameters that have fields. A call with more is edited as JSON."""

_LONG: Final = 60


class EditFieldError(ArgumentError):
    """Raised when a field that should contain JSON does not.

    Attributes:
        field: the name of the field in the form.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class EditField:
    """The field for one parameter of a call.

    Attributes:
        label: the name of the parameter, in words.
        name: the name of the field in the form.
        text: the value as the field shows it: plain text, or JSON for any other value.
        is_text: whether the field shows plain text.
    """

    label: str
    name: str
    text: str
    is_text: bool

    @property
    def is_code(self) -> bool:
        """True if the field contains JSON that does not read like text: a list, an object, or a
        string with quotes.
        """
        return not self.is_text and self.text[:1] in ("{", "[", '"')

    @property
    def is_long(self) -> bool:
        """True if the field has several lines."""
        return len(self.text) > _LONG or "\n" in self.text


def edit_fields(question: Question) -> list[EditField]:
    """Return a field for each parameter of the call in question, or no fields if the call has to be
    edited as JSON.
    """
    if question.kind != "call":
        return []
    values = _parameters(question)
    if len(values) > _MOST:
        return []
    return [_field(number, name, value) for number, (name, value) in enumerate(values.items())]


def call_of_fields(question: Question, form: FormFields) -> JSONObject:
    """Return the call in question with the values from a form. Values of unchanged fields stay
    exactly as they were.

    Raises:
        EditFieldError: a field that should contain JSON does not.
    """
    call = call_without_ids(question.shown)
    for field, (name, value) in zip(
        edit_fields(question), _parameters(question).items(), strict=False
    ):
        text = form.get(field.name, field.text)
        if text == field.text:
            call[name] = value
        elif field.is_text:
            call[name] = text
        else:
            call[name] = _decoded(field, text)

    return call


def has_edited_fields(question: Question, form: FormFields) -> bool:
    """Return whether a visitor has changed any of the call's fields in a form."""
    return any(form.get(field.name, field.text) != field.text for field in edit_fields(question))


def _parameters(question: Question) -> JSONObject:
    return {name: value for name, value in question.shown.items() if not name.startswith("_")}


def _field(number: int, name: str, value: JSON) -> EditField:
    label = parameter_label(name)
    if label == name:
        label = name.replace("_", " ")

    # A browser changes some characters, and a page shows hidden ones escaped.
    is_text = isinstance(value, str) and "\r" not in value and printable(value) == value
    text = value if is_text and isinstance(value, str) else as_json(value)
    return EditField(label, f"v.{number}", text, is_text)


def _decoded(field: EditField, text: str) -> JSON:
    try:
        return decode(text, what=field.label)
    except IdeabridgeError:
        raise EditFieldError(
            field.name,
            f"{field.label}: expected a value such as {field.text[:40]!r}, found {text[:40]!r}",
        ) from None
