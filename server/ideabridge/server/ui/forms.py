"""Create fields from a JSON Schema, read the object entered in them, and read numbers from
untrusted text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ideabridge.bridge.store.idea import Publication
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.showing import as_json, in_one_line
from ideabridge.server.views.value_table import tool_of
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty, objects_in
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.typed import read_as

_INPUTS: Final = {"integer": "number", "number": "number", "string": "text"}
_LONG: Final = 80
_TAKES: Final = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "yes or no",
    "array": "a list, as JSON",
    "object": "an object, as JSON",
}
_FORMATS: Final = {
    "date": "a date",
    "date-time": "a date and a time, such as 2026-01-31T12:00:00Z",
    "email": "an e-mail address",
    "uri": "an address, such as https://example.com",
}
_DATES: Final = {"date": "date", "email": "email", "uri": "url"}


@dataclass(frozen=True, slots=True)
class Field:
    """A form field for one member of an object.

    Attributes:
        kind: `text`, `number`, `choice`, `flag`, `long` (several lines of text) or `json`.
        type: the HTML input type.
        takes: the kind of value that the field accepts, in words, for example `a number`.
        choices: the values of a `choice`, each as text and as JSON.
        value: the initial content of the field.
        placeholder: the text shown in an empty field, such as an example, or "".
        hint: sentences that give an example and say what an empty field means, or "".
        default_in_words: what an empty field means, or "" if it means nothing. A field that says so
            does not also have to say that it is optional.
    """

    name: str
    kind: str
    type: str
    takes: str
    required: bool
    description: str
    choices: list[tuple[str, str]]
    value: str
    placeholder: str
    hint: str
    default_in_words: str = ""

    @property
    def label(self) -> str:
        """The name of the input in the form."""
        return f"p.{self.name}"

    @property
    def shows_placeholder(self) -> bool:
        """True if the browser can show the placeholder, which a list of choices or a date field
        cannot have.
        """
        return bool(self.placeholder) and self.kind != "choice" and self.type != "date"


@dataclass(frozen=True, slots=True)
class Audience:
    """The form fields that say for whom a tool is published.

    Attributes:
        to: `me`, `all`, `names`, or "" if nothing has been chosen.
        names: usernames, separated by commas.
    """

    to: str
    names: str

    @classmethod
    def of(cls, form: FormFields) -> Audience:
        """Read the fields of a form."""
        return cls(form.get("to").strip(), form.get("names").strip())

    @property
    def chosen(self) -> str | None:
        """The audience in the format of `read_audience`, or None to leave it unchanged."""
        if self.to == "names":
            return self.names
        return self.to or None


def number_from(text: str) -> int | None:
    """Parse a number of at most nine ASCII digits. Return None for any other text."""
    # Check the length and the script, too, because `isdigit` alone would accept thousands of
    # digits, and digits of other scripts.
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return None


def fields_of(schema: JSONObject | None, examples: Mapping[str, JSON] | None = None) -> list[Field]:
    """Return the fields for an object with the given schema.

    Args:
        schema: the JSON Schema of the object.
        examples: example values, keyed by member. The hint for a member without a default shows its
            example.
    """
    takes = read_as(SchemaKeywords, schema)
    fields = [
        _field(name, object_or_empty(member), name in takes.required)
        for name, member in takes.properties.items()
    ]
    return [_with_example(field, examples or {}) for field in fields]


def _with_example(field: Field, examples: Mapping[str, JSON]) -> Field:
    if field.name not in examples or field.kind == "choice" or field.hint:
        return field
    example = in_one_line(examples[field.name], _LONG)
    return replace(field, placeholder=f"for example, {example}", hint=f"For example: {example}")


def fields_of_tool(publication: Publication, examples: Mapping[str, JSON]) -> list[Field]:
    """Return the input fields of a published tool. `examples` is as in `fields_of`.

    If a parameter has no description, the publisher describes it by where its value is used, such
    as `customer of list_orders`. A person filling in the form does not need this description.
    """
    tools = {tool_of(call) for call in objects_in(publication.plan_parts.calls)}
    return [
        replace(field, description=without_place(field.description, tools))
        for field in fields_of(publication.input_schema, examples)
    ]


def without_place(description: str, tools: Collection[str]) -> str:
    """Return a description without the leading words about where the value is used."""
    place, _, further = description.partition(". ")
    _, _, tool = place.partition(" of ")
    return further if tool in tools else description


def with_values(fields: list[Field], values: Mapping[str, JSON]) -> list[Field]:
    """Return the fields, filled with the given values of an earlier call."""
    return [
        replace(field, value=_as_written(field, values[field.name]))
        if field.name in values
        else field
        for field in fields
    ]


def _as_written(field: Field, value: JSON) -> str:
    """Return a value as a person would type it into the field."""
    return _plain(value) if field.kind in ("text", "long") else as_json(value)


def _field(name: str, schema: JSONObject, required: bool) -> Field:
    keywords = read_as(SchemaKeywords, schema)
    kind = keywords.type
    default = schema.get("default")
    placeholder = ""
    hint = ""
    in_words = ""
    if "default" in schema and not required:
        in_words = _default_in_words(default)
        hint = f"Empty means {in_words}"
        if default not in (None, ""):
            placeholder = f"{in_words}, if left empty"
    field = Field(
        name,
        kind="json",
        type="",
        takes=_TAKES.get(kind, "any value, as JSON") if isinstance(kind, str) else "JSON",
        required=required,
        description=keywords.description or "",
        choices=[],
        value="",
        placeholder=placeholder,
        hint=hint,
        default_in_words=in_words,
    )
    if keywords.enum is not None:
        choices = [(_plain(option), as_json(option)) for option in keywords.enum]
        takes = f"one of {len(choices)}"
        return replace(field, kind="choice", takes=takes, choices=choices)

    if kind == "boolean":
        return replace(field, kind="choice", choices=[("yes", "true"), ("no", "false")])

    if isinstance(kind, str) and kind in _INPUTS:
        form = str(schema.get("format"))
        html = _DATES.get(form, _INPUTS[kind])
        takes = _FORMATS.get(form, field.takes)
        return replace(field, kind=_kind_of_text(html, default), type=html, takes=takes)

    return field


def _default_in_words(default: JSON) -> str:
    """Return what an empty field with this default means, in words."""
    if default is True:
        return "yes"
    if default is False:
        return "no"
    if default is None:
        return "nothing"
    if default == "":
        return "an empty text"
    return in_one_line(default, _LONG)


def _kind_of_text(html: str, default: JSON) -> str:
    """Return the `Field.kind` for the given HTML input type. An input with a long default has
    several lines.
    """
    if html == "number":
        return "number"
    if isinstance(default, str) and ("\n" in default or len(default) > _LONG):
        return "long"
    return "text"


def _plain(value: JSON) -> str:
    return value if isinstance(value, str) else as_json(value)


def read_fields(schema: JSONObject | None, form: FormFields) -> JSONObject:
    """Read the object from a filled-in form. Empty fields are left out. The form's `raw` field
    contains the members that have no field of their own.

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
