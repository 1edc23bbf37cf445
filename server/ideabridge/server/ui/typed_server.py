"""Read a server's entry from the page's forms, and fill in the form for editing an entry.

Secrets are never sent to the browser. The field for a secret is empty, and leaving it empty keeps
the value. In a command or an address, `•••` stands for a secret, and for the same secret when the
form is submitted. In a refused form, `•••` stands for each value that was typed for a variable or a
header.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ideabridge.bridge.masking import MASK, hidden_in, shown_definition
from ideabridge.bridge.modules.settings import ModuleConfiguration, Sharing
from ideabridge.bridge.server_entry import with_own_keys, with_settings
from ideabridge.server.hosts.entries import (
    EntryError,
    address_entry,
    address_meant,
    header_of,
    is_server_address,
    program_entry,
    secrets_named_in,
    started_by,
    variable_of,
)
from ideabridge.server.ui.access import FormFields, NotTheOwnerError, Visitor, expect_owner
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    encode,
    encode_text,
    list_or_empty,
    number_or_none,
    object_or_empty,
    plain_text,
)
from ideabridge.tools.errors import IdeabridgeError

_PARTS: Final = ("env", "headers")
"""The keys in an entry that have a field for each of their members."""

_KINDS: Final = ("command", "address")
"""The kinds of servers in a form: a command that starts the server on this machine, or the address
of the server.
"""

_PATTERNS: Final = ("allow", "deny")
_NUMBERS: Final = ("timeout", "connect_timeout", "idle", "parallel")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "begins": ("eager", "lazy"),
    "sharing": get_args(Sharing),
}
_KEYS: Final = {"begins": "start"}
"""The keys whose fields have another name."""

_OF_ONE_KIND: Final = ("type", "command", "args", "env", "cwd", "url", "headers", "auth")
"""The settings that belong to a command or to an address, but not to both."""

_SHOWN: Final = {"command", "args", "url", "env", "headers", "cwd", "disabled", "type"}


class FieldError(EntryError):
    """Raised when the value of a field in a server's form cannot be used.

    Attributes:
        field: the name of the field, such as `name`, `command`, `env` or `timeout`.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


@dataclass(frozen=True, slots=True)
class ValueField:
    """The field for a variable or a header in an entry.

    Attributes:
        place: where the value is in the entry, such as `env.REGION`.
        name: the name of the variable or header.
        text: the value of the variable or header, or "" if it is not shown.
        kept: why the value is not shown and stays the same, or "" if it is shown.
    """

    place: str
    name: str
    text: str
    kept: str

    @property
    def field(self) -> str:
        """The name of the value's field in the form."""
        return f"value.{self.place}"


@dataclass(frozen=True, slots=True)
class SettingField:
    """The field for any other setting.

    Attributes:
        name: the name of the field.
        kind: `number`, `lines` or `choice`.
        label: the setting's name for people.
        hint: an explanation of the setting.
        text: the value of the setting, or "" for the default.
        default: the default as text, or "".
        choices: the (value, label) of each option of a `choice`.
    """

    name: str
    kind: Literal["number", "lines", "choice"]
    label: str
    hint: str
    text: str
    default: str = ""
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerFields:
    """The contents of the form for editing a server.

    Attributes:
        seal: identifies the entry that the form was filled with.
        start: the command or the address.
        is_program: whether `start` is a command.
        cwd: the folder in which the command runs, or "".
        values: the fields for variables and headers.
        settings: the fields for other settings.
        others: the settings of the entry that are not in the form.
    """

    seal: str
    start: str
    is_program: bool
    cwd: str
    values: list[ValueField]
    settings: list[SettingField]
    others: list[str]

    def as_typed(self) -> FormFields:
        """Return the content of the form before anything has been changed."""
        fields = [("kind", "command"), ("command", self.start), ("cwd", self.cwd)]
        if not self.is_program:
            fields = [("kind", "address"), ("address", self.start)]
        fields += [(value.field, value.text) for value in self.values]
        fields += [(setting.name, setting.text) for setting in self.settings]
        return FormFields(fields)


# -- a new server ----------------------------------------------------------------------------------


def new_settings() -> list[SettingField]:
    """Return the fields for the settings of a new server."""
    return [_setting_field(name, {}) for name in _LABELS]


def typed_entry(form: FormFields, visitor: Visitor) -> JSONObject:
    """Return the entry of a new server from a filled-in form.

    Raises:
        FieldError: the entry is incomplete, or a line is malformed.
        NotTheOwnerError: the entry is a command, or reads the owner's variables or secrets, and the
            visitor is not the owner.
    """
    if _is_command(form):
        expect_owner(visitor)
        entry = _program(_words(form.get("command")), dict(_variables(form)))
        cwd = form.get("cwd").strip()
        if cwd:
            entry["cwd"] = cwd
    else:
        entry = address_entry(_address(form.get("address")), dict(_headers(form)))

    for field in new_settings():
        value = _setting(field, _lines(form.get(field.name)))
        if value is not None:
            entry[_key(field.name)] = value

    _expect_no_variables(entry, visitor)
    return entry


def _is_command(form: FormFields) -> bool:
    """Return whether a form describes a command. The fields for the other kind of server are
    hidden, so they are not read.
    """
    kind = form.get("kind")
    if kind not in _KINDS:
        raise FieldError("kind", "choose where the server runs")
    return kind == "command"


def _words(text: str) -> list[str]:
    if text.lstrip().startswith("{"):
        raise FieldError(
            "command",
            "this is JSON: write the command and its arguments as you would at a terminal, and the "
            "contents of `env` as environment variables",
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise FieldError("command", str(error)) from None
    if not words:
        raise FieldError("command", "write the command that starts the server")
    if len(words) == 1 and is_server_address(words[0]):
        raise FieldError("command", "this is the address of a server: choose “On the web”")
    return words


def _address(text: str) -> str:
    address = text.strip()
    if not address:
        raise FieldError("address", "write the address of the server")
    if is_server_address(address):
        return address

    meant = address_meant(address)
    hint = "expected https:// or http:// at its beginning"
    raise FieldError("address", hint if meant is None else f"did you mean {meant}?")


def _program(words: list[str], variables: dict[str, str]) -> JSONObject:
    try:
        entry = program_entry(words, variables)
    except EntryError as error:
        raise FieldError("command", str(error)) from None

    command = words[0]
    if "/" in command and not command.startswith(("/", "~", "$")):
        raise FieldError(
            "command",
            f"the command {command[:100]!r} is a relative path: write an absolute one, or the name "
            "of a program",
        )
    return entry


def _variables(form: FormFields) -> Iterable[tuple[str, str]]:
    return _pairs(form, "env", variable_of, "a variable", "KEY=VALUE")


def _headers(form: FormFields) -> Iterable[tuple[str, str]]:
    return _pairs(form, "headers", header_of, "a header", "NAME: VALUE")


_FORGOTTEN: Final = f"the value that {MASK} stands for is no longer known: write it again"


def _pairs(
    form: FormFields,
    field: str,
    read: Callable[[str], tuple[str, str] | None],
    what: str,
    expected: str,
) -> Iterable[tuple[str, str]]:
    """Yield the name and value on each non-empty line."""
    for number, line in enumerate(form.get(field).splitlines(), 1):
        if not line.strip():
            continue
        pair = read(line.strip())
        if pair is None:
            # Do not quote the line, because it might be a secret.
            raise FieldError(field, f"{what} in line {number}: expected {expected}")
        if pair[1] == MASK:
            raise FieldError(field, f"{what} in line {number}: {_FORGOTTEN}")
        yield pair


def _expect_no_variables(entry: JSONObject, visitor: Visitor) -> None:
    """Raise `NotTheOwnerError` if an entry reads the owner's variables or secrets and the visitor
    is not the owner.
    """
    if not visitor.is_owner and "${" in encode_text(entry):
        raise NotTheOwnerError(
            "only the owner may use variables and stored secrets, in a session that began with the "
            "owner's link: write no ${...}"
        )


# -- an existing server ----------------------------------------------------------------------------


def expect_may_edit(entry: JSONObject, visitor: Visitor) -> None:
    """Raise `NotTheOwnerError` if a visitor is not allowed to edit an entry.

    An edited command runs with the owner's rights, and an edited address would receive the entry's
    secrets.
    """
    if visitor.is_owner:
        return
    reads = "${" in encode_text(entry) or bool(hidden_in(entry))
    if reads or "url" not in with_own_keys(entry):
        raise NotTheOwnerError(
            "only the owner changes a server that starts a command or has secrets, in a session "
            "that began with the owner's link"
        )


def fields_of_entry(entry: JSONObject) -> ServerFields:
    """Return the contents of the form for editing an entry, without secrets."""
    now = with_own_keys(entry)
    shown = shown_definition(now)
    values: list[ValueField] = []
    for part in _PARTS:
        shown_members = object_or_empty(shown.get(part))
        for name, value in object_or_empty(now.get(part)).items():
            values.append(_value_field(part, name, value, shown_members.get(name)))

    return ServerFields(
        seal=seal_of(entry),
        start=started_by(now),
        is_program="command" in now,
        cwd=str(shown.get("cwd", "")),
        values=values,
        settings=[_setting_field(name, now) for name in _LABELS],
        others=[key for key in now if key not in _SHOWN and key not in _edited_keys()],
    )


def seal_of(entry: JSONObject) -> str:
    """Return a hash that identifies an entry."""
    return hashlib.sha256(encode(entry)).hexdigest()


def _value_field(part: str, name: str, value: JSON, shown: JSON) -> ValueField:
    secrets = secrets_named_in(value)
    if secrets:
        kept = f"stored as {', '.join(secrets)}"
    elif MASK in str(shown):
        kept = "in the file, not shown here"
    else:
        return ValueField(f"{part}.{name}", name, plain_text(value), "")
    return ValueField(f"{part}.{name}", name, "", kept)


_LABELS: Final = {
    "allow": ("Only these tools", "Names or patterns (search_*), one per line. Empty: all."),
    "deny": (
        "Never these tools",
        "Names or patterns, one per line. They also exclude tools listed above.",
    ),
    "begins": ("Starts", "By default when it is first used, once its tools are known."),
    "idle": ("Stops if unused for, in seconds", "Empty: it keeps running."),
    "sharing": ("Clients share", "A browser or a shell keeps state: give each session its own."),
    "parallel": ("Calls at the same time", "1 for a server that does one thing at a time."),
    "timeout": ("A call may take, in seconds", "Then the call fails."),
    "connect_timeout": ("Connecting may take, in seconds", "Then it is tried again."),
}
"""The label and the explanation of each setting in the form, in the form's order."""

_CHOSEN: Final = {
    "eager": "with ideabridge",
    "lazy": "when it is first used",
    "shared": "one process or connection",
    "session": "nothing: each session has its own",
}
"""The labels of the values that can be chosen."""

LABELS: Final = {_KEYS.get(name, name): label for name, (label, _) in _LABELS.items()}
"""The labels of settings, keyed by the setting's key."""


def _key(name: str) -> str:
    return _KEYS.get(name, name)


def _edited_keys() -> set[str]:
    return {_key(name) for name in _LABELS}


def _setting_field(name: str, now: JSONObject) -> SettingField:
    about = ModuleConfiguration.model_fields[_key(name)]
    label, hint = _LABELS[name]
    value = now.get(_key(name))
    if name in _PATTERNS:
        return SettingField(name, "lines", label, hint, "\n".join(map(str, list_or_empty(value))))

    default = "" if about.default is None else plain_text(about.default)
    text = "" if value is None else plain_text(value)
    if name in _CHOICES:
        choices = tuple((choice, _CHOSEN[choice]) for choice in _CHOICES[name])
        default = _CHOSEN.get(default, default)
        return SettingField(name, "choice", label, hint, text, default, choices)
    return SettingField(name, "number", label, hint, text, default)


def edited_entry(entry: JSONObject, form: FormFields, visitor: Visitor) -> JSONObject:
    """Return an entry with the edits from its form applied.

    Raises:
        FieldError: the value of a field cannot be used.
        NotTheOwnerError: the visitor is not the owner, and either `expect_may_edit` forbids the
            edit, or the edited entry is a command or reads the owner's variables or secrets.
    """
    expect_may_edit(entry, visitor)
    shown = fields_of_entry(entry)
    is_command = _is_command(form)
    settings = _edited_start(entry, shown, form, visitor)
    part = "env" if is_command else "headers"
    pairs = dict(_variables(form) if is_command else _headers(form))
    members = _edited_members(entry, part, shown, form) if is_command == shown.is_program else {}
    settings[part] = {**members, **pairs} or None

    cwd = form.get("cwd").strip()
    if is_command and cwd != shown.cwd:
        settings["cwd"] = cwd or None
    for field in shown.settings:
        text = _lines(form.get(field.name))
        if text != _lines(field.text):
            settings[_key(field.name)] = _setting(field, text)

    now = with_own_keys(entry)
    changes = {key: value for key, value in settings.items() if value != now.get(key)}
    changed = with_settings(entry, changes)
    _expect_no_variables(changed, visitor)
    return changed


def _edited_start(
    entry: JSONObject, shown: ServerFields, form: FormFields, visitor: Visitor
) -> dict[str, JSON]:
    """Return the settings that change if the command or address was edited."""
    is_command = _is_command(form)
    text = form.get("command" if is_command else "address").strip()
    if is_command == shown.is_program and text == shown.start:
        return {}

    if is_command:
        expect_owner(visitor)
        words = [_with_secrets("command", word, entry) for word in _words(text)]
        start = {"args": None, **_program(words, {})}
    else:
        start = address_entry(_with_secrets("address", _address(text), entry), {})

    if is_command == shown.is_program:
        return start
    # Remove settings that belong to the other kind of server.
    return {**dict.fromkeys(_OF_ONE_KIND), **start}


def _with_secrets(field: str, word: str, entry: JSONObject) -> str:
    """Return a word typed into a field, with `•••` replaced by the secret that it stands for.

    Raises:
        FieldError: no word in the entry matches.
    """
    if MASK not in word:
        return word
    now = with_own_keys(entry)
    shown = shown_definition(now)
    texts = [now.get("url"), now.get("command"), *list_or_empty(now.get("args"))]
    masked = [shown.get("url"), shown.get("command"), *list_or_empty(shown.get("args"))]
    for text, hidden in zip(texts, masked, strict=True):
        if hidden == word and isinstance(text, str):
            return text
    raise FieldError(
        field,
        f"{MASK} stands for a value that is not shown: leave that word as it was, or write the "
        "whole word again",
    )


def _edited_members(
    entry: JSONObject, part: str, shown: ServerFields, form: FormFields
) -> JSONObject:
    """Return the variables or headers that were not removed, with their new values.

    If a field is empty because the value is not shown, the variable or header keeps its value.
    """
    present = object_or_empty(with_own_keys(entry).get(part))
    removed = form.all("remove")
    members: JSONObject = {}
    for field in shown.values:
        if not field.place.startswith(f"{part}.") or field.place in removed:
            continue
        typed = form.get(field.field)
        if typed == MASK:
            raise EntryError(f"{field.name}: {_FORGOTTEN}")
        is_kept = typed == field.text
        members[field.name] = present[field.name] if is_kept else typed
    return members


def _lines(text: str) -> str:
    """Return the lines of a text, stripped and without blank lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _setting(field: SettingField, text: str) -> JSON:
    """Return the typed value of a setting, or None for the default.

    Raises:
        FieldError: the text is not a valid value for the setting.
    """
    if not text:
        return None
    if field.kind == "lines":
        return list[JSON](text.splitlines())
    if field.kind == "choice":
        values = [value for value, _ in field.choices]
        if text not in values:
            raise FieldError(field.name, f"expected {' or '.join(values)}")
        return text
    try:
        number = number_or_none(decode(text, what=field.label))
    except IdeabridgeError:
        number = None
    if number is None:
        raise FieldError(field.name, f"expected a number, found {text[:40]!r}")
    return number


# -- a form that was refused -----------------------------------------------------------------------


def masked_form(form: FormFields, values: Sequence[ValueField] = ()) -> FormFields:
    """Return a form to show again, with `•••` in place of the values of variables and headers,
    except those that the form showed before.

    Args:
        form: the filled-in form.
        values: the fields for the variables and headers in the entry.
    """
    shown = {value.field: value.text for value in values}
    fields: list[tuple[str, str]] = []
    for name, text in form.fields:
        if name in _LINES:
            lines = [_masked_line(_LINES[name], line.strip()) for line in text.splitlines()]
            text = "\n".join(lines)
        elif name in shown and text not in ("", shown[name]):
            text = MASK
        fields.append((name, text))

    return FormFields(fields)


def unmasked_form(form: FormFields, earlier: FormFields) -> FormFields:
    """Return a form in which each `•••` is replaced by the corresponding value from `earlier`.

    If `earlier` has no corresponding value, the `•••` stays.
    """
    fields: list[tuple[str, str]] = []
    for name, text in form.fields:
        if name in _LINES:
            kind = _LINES[name]
            known = dict(filter(None, map(kind.read, _lines(earlier.get(name)).splitlines())))
            lines = [_unmasked_line(kind, line.strip(), known) for line in text.splitlines()]
            text = "\n".join(lines)
        elif name.startswith("value.") and text == MASK:
            text = earlier.get(name, MASK)
        fields.append((name, text))

    return FormFields(fields)


@dataclass(frozen=True, slots=True)
class _LineKind:
    """The format of the lines in one field.

    Attributes:
        read: returns the name and the value in a line, or None if the line is malformed.
        separator: the text between the name and the value.
    """

    read: Callable[[str], tuple[str, str] | None]
    separator: str


_LINES: Final = {"env": _LineKind(variable_of, "="), "headers": _LineKind(header_of, ": ")}


def _masked_line(kind: _LineKind, line: str) -> str:
    """Return a line with its value masked. A malformed line is masked completely, because all of it
    might be a secret.
    """
    pair = kind.read(line)
    if pair is None:
        return MASK if line else ""
    name, value = pair
    shown_value = MASK if value else ""
    return f"{name}{kind.separator}{shown_value}"


def _unmasked_line(kind: _LineKind, line: str, known: Mapping[str, str]) -> str:
    pair = kind.read(line)
    if pair is None or pair[1] != MASK:
        return line
    return f"{pair[0]}{kind.separator}{known.get(pair[0], MASK)}"


# -- recognising secrets ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value for which a person decides whether it is a secret.

    Attributes:
        place: where the value is in the entry, such as `env.REGION`.
        name: the name of the variable or header, or a description of any other place.
        shown: the value, with any secrets hidden.
        is_secret: whether the value is assumed to be a secret unless a person decides otherwise.
    """

    place: str
    name: str
    shown: str
    is_secret: bool


_PLACES: Final = re.compile(r"args\.(\d+)|url|command|cwd")


def typed_values(entry: JSONObject, recognised: Iterable[str]) -> list[TypedValue]:
    """Return the values for a person to decide on: the variables and headers whose values are in
    the entry itself, and anything else that is recognised as a secret.

    Args:
        entry: the entry as typed.
        recognised: where the values recognised as secrets are in the entry.
    """
    shown = shown_definition(entry)
    places = set(recognised)
    values: list[TypedValue] = []
    for part in _PARTS:
        shown_members = object_or_empty(shown.get(part))
        for name, value in object_or_empty(entry.get(part)).items():
            place = f"{part}.{name}"
            if isinstance(value, str) and value and "${" not in value:
                text = str(shown_members.get(name, MASK))
                values.append(TypedValue(place, name, text, place in places))

    for place in sorted(places):
        match = _PLACES.fullmatch(place)
        if match is None:
            continue
        words = list_or_empty(shown.get("args"))
        text = shown.get(place) if match[1] is None else words[int(match[1])]
        name = "in the address" if place == "url" else "in the command"
        values.append(TypedValue(place, name, str(text), is_secret=True))

    return values
