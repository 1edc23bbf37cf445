"""Forms: makes fields from a JSON Schema, reads the object that someone entered in them, and reads
numbers from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.showing import as_json, in_one_line
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.typed import read_as

_INPUTS: Final = {"integer": "number", "number": "number", "string": "text"}
_LONG: Final = 80
_JSON: Final = "JSON"
_DATES: Final = {"date": "date", "email": "email", "uri": "url"}


@dataclass(frozen=True, slots=True)
class Field:
    """One member of an object.

    Attributes:
        kind: `text`, `number`, `choice`, `flag`, `long` (several lines of text) or `json`.
        type: the type of the HTML input.
        choices: the values of a `choice`, each as text and as JSON.
        value: the initial content of the field.
        hint: a text that says what the field can contain.
    """

    name: str
    kind: str
    type: str
    required: bool
    description: str
    choices: list[tuple[str, str]]
    value: str
    hint: str

    @property
    def label(self) -> str:
        """The name of the input in the form."""
        return f"p.{self.name}"


@dataclass(frozen=True, slots=True)
class Audience:
    """The fields of a form that say to whom a tool is published.

    Attributes:
        to: `me`, `all`, `names`, or "" if nobody has chosen.
        names: the names of users, separated by commas.
    """

    to: str
    names: str

    @classmethod
    def of(cls, form: FormFields) -> Audience:
        """Read the fields of a form."""
        return cls(form.get("to").strip(), form.get("names").strip())

    @property
    def chosen(self) -> str | None:
        """The audience in the form that `read_audience` accepts, or None to leave it as it was."""
        if self.to == "names":
            return self.names
        return self.to or None


def number_from(text: str) -> int | None:
    """Read a number of at most nine ASCII digits. Return None for any other text."""
    # Check the length and the script, too, because `isdigit` alone would accept thousands of
    # digits, and digits of other scripts.
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return None


def fields_of(schema: JSONObject | None, examples: Mapping[str, JSON] | None = None) -> list[Field]:
    """Return the fields for an object with this schema.

    Args:
        schema: the JSON Schema of the object.
        examples: a value for each member that has one. The field of a member without a default
            shows it.
    """
    takes = read_as(SchemaKeywords, schema)
    fields = [
        _field(name, object_or_empty(member), name in takes.required)
        for name, member in takes.properties.items()
    ]
    return [_with_example(field, examples or {}) for field in fields]


def _with_example(field: Field, examples: Mapping[str, JSON]) -> Field:
    if field.name not in examples or field.kind == "choice" or field.hint not in ("", _JSON):
        return field

    example = f"for example: {in_one_line(examples[field.name], _LONG)}"
    return replace(field, hint=f"{field.hint}, {example}" if field.hint else example)


def _field(name: str, schema: JSONObject, required: bool) -> Field:
    keywords = read_as(SchemaKeywords, schema)
    kind = keywords.type
    default = schema.get("default")
    has_default = "default" in schema
    field = Field(
        name,
        kind="json",
        type="",
        required=required,
        description=keywords.description or "",
        choices=[],
        value="",
        hint=f"default: {_plain(default)}" if has_default and not required else "",
    )
    if keywords.enum is not None:
        choices = [(_plain(option), as_json(option)) for option in keywords.enum]
        value = as_json(default) if has_default else ""
        return replace(field, kind="choice", choices=choices, value=value)

    if kind == "boolean":
        hint = field.hint and f"default: {'yes' if default is True else 'no'}"
        return replace(field, kind="choice", choices=[("yes", "true"), ("no", "false")], hint=hint)

    if isinstance(kind, str) and kind in _INPUTS:
        html = _DATES.get(str(schema.get("format")), _INPUTS[kind])
        return replace(field, kind=_kind_of_text(html, default), type=html)

    return replace(field, hint=field.hint or _JSON)


def _kind_of_text(html: str, default: JSON) -> str:
    """Return the `Field.kind` for an input of this type. An input with a long default has several
    lines.
    """
    if html == "number":
        return "number"
    if isinstance(default, str) and ("\n" in default or len(default) > _LONG):
        return "long"
    return "text"


def _plain(value: JSON) -> str:
    return value if isinstance(value, str) else as_json(value)


def read_fields(schema: JSONObject | None, form: FormFields) -> JSONObject:
    """Read the object from a filled-in form. Empty fields are left out. `raw` contains the members
    that have no field.

    Raises:
        ArgumentError: a field does not contain a value of its type.
    """
    raw = form.get("raw").strip()
    members = decode(raw, what="the input") if raw else {}
    if not isinstance(members, dict):
        raise ArgumentError("the input: expected an object")
    return {**members, **dict(_members(schema, form))}


def _members(schema: JSONObject | None, form: FormFields) -> Iterator[tuple[str, JSON]]:
    for field in fields_of(schema):
        text = form.get(field.label)
        if not text.strip():
            # A text field cannot show the difference between an empty string and a missing member,
            # so an empty string must be written in `raw`.
            continue
        if field.kind in ("text", "long"):
            yield field.name, text
            continue
        try:
            yield field.name, decode(text, what=field.name)
        except IdeabridgeError:
            expected = "a number" if field.kind == "number" else "JSON"
            raise ArgumentError(f"{field.name}: expected {expected}, found {text[:80]!r}") from None
