"""Translate an entry in `mcpServers`, as assistants and people write it, into ideabridge's keys.

If a value is unusual but clear, such as a timeout in milliseconds or a number in `env`, it is read
and noted. An ambiguous value is a problem and makes the server unusable. No value is read in a way
that would let a server do more than its entry says: a key that restricts the server (`deny`,
`allow`, `disabled`, `auth`) is either understood or refused.

Shell completion reads entries at each key press, so this file imports only the standard library and
small files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from ideabridge.tools.encoding import JSON, JSONObject, number_or_none
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.names import folded
from ideabridge.tools.typed import member, read_as

ModuleKind = Literal["stdio", "http", "sse"]
"""How a module is reached."""

MAX_SECONDS: Final = 3600
"""The largest timeout of a server."""

KINDS: Final[MappingProxyType[str, ModuleKind]] = MappingProxyType(
    {
        "stdio": "stdio",
        "local": "stdio",
        "http": "http",
        "streamable-http": "http",
        "streamable_http": "http",
        "streamableHttp": "http",
        "remote": "http",
        "sse": "sse",
    }
)
"""Maps each value of `type` to the kind of module."""

SYNONYMS: Final[MappingProxyType[str, str]] = MappingProxyType(
    {
        "connectTimeout": "connect_timeout",
        "startup_timeout_sec": "connect_timeout",
        "tool_timeout_sec": "timeout",
        "environment": "env",
        "envs": "env",
        "http_headers": "headers",
        "httpUrl": "url",
        "serverUrl": "url",
        "uri": "url",
        "transport": "type",
        "transportType": "type",
        "tools": "allow",
        "allowedTools": "allow",
        "includeTools": "allow",
        "enabledTools": "allow",
        "enabled_tools": "allow",
        "deniedTools": "deny",
        "excludeTools": "deny",
        "disabledTools": "deny",
        "disabled_tools": "deny",
        "oauth": "auth",
    }
)
"""Maps other hosts' keys to ideabridge's keys."""

AUTH_SYNONYMS: Final = {
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "redirectUri": "redirect_uri",
}
"""Maps other hosts' keys in `auth` to ideabridge's keys."""

IGNORED: Final = frozenset(
    {
        *(
            "$comment",
            "_comment",
            "alwaysAllow",
            "author",
            "autoApprove",
            "category",
            "comment",
            "description",
            "dev",
        ),
        *(
            "gallery",
            "icon",
            "iconUrl",
            "icons",
            "id",
            "name",
            "note",
            "notes",
            "tags",
            "title",
            "trust",
            "version",
        ),
    }
)
"""Keys of other hosts that have no meaning in ideabridge."""

HINTS: Final[MappingProxyType[str, str]] = MappingProxyType(
    {
        "envFile": (
            "ideabridge does not read files with variables; name each variable in 'env', for "
            'example "TOKEN": "${TOKEN}"'
        ),
        "headersHelper": (
            "ideabridge does not run programs to get headers; write them into 'headers'"
        ),
    }
)
"""Maps keys of other hosts that would change the behaviour, but are not supported, to the reasons
why they are refused.
"""

MILLISECONDS: Final = {
    "timeoutMs": "timeout",
    "timeout_ms": "timeout",
    "requestTimeoutMs": "timeout",
    "request_timeout_ms": "timeout",
    "startup_timeout_ms": "connect_timeout",
}
"""Maps other hosts' keys in milliseconds to ideabridge's keys in seconds."""

_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) *(ms|s|sec|seconds|m|min|minutes)?")
_UNITS: Final = {"ms": 0.001, "m": 60, "min": 60, "minutes": 60}
_VARIABLE: Final = re.compile(r"\$?\$\{([^{}]*)\}")
_ENV_VARIABLE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*(?::-.*)?)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FILLED: Final = ("command", "args", "env", "cwd", "url", "headers", "auth")
"""The keys whose values can contain variables."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A note on something unusual in a configuration file.

    Attributes:
        place: the path, such as `limits.calls`, or "" for the whole document.
        text: a description of what is unusual. It contains no value that might be secret.
    """

    place: str
    text: str

    def below(self, place: str) -> Remark:
        """Return the remark with its place prefixed by `place`, the place of the enclosing
        value.
        """
        return Remark(".".join(part for part in (place, self.place) if part), self.text)

    def continued(self, sentence: str) -> Remark:
        """Return the remark with a further sentence."""
        stop = "" if self.text.endswith(("?", ".")) else "."
        return Remark(self.place, f"{self.text}{stop} {sentence}")

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


@dataclass(slots=True)
class ServerEntry:
    """One entry in `mcpServers`, in ideabridge's keys.

    Attributes:
        members: the keys and values. Values that are not understood stay as they are written in the
            file.
        notes: notes on what was unusual and how it was read.
        problems: the reasons why the server cannot be used.
    """

    members: JSONObject = field(default_factory=dict[str, JSON])
    notes: list[Remark] = field(default_factory=list[Remark])
    problems: list[Remark] = field(default_factory=list[Remark])

    def note(self, place: str, text: str) -> None:
        """Add a note."""
        self.notes.append(Remark(place, text))

    def refuse(self, place: str, text: str) -> None:
        """Add a problem."""
        self.problems.append(Remark(place, text))


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The members of an entry that determine how its server is started or called.

    The entry has ideabridge's keys. Members of the wrong type count as absent.

    Attributes:
        kind: the member `type`.
        env: the variables whose values are strings, keyed by name.
    """

    kind: str | None = field(default=None, metadata=member("type"))
    command: str | None = None
    args: list[JSON] = field(default_factory=list[JSON])
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str | None = None

    @property
    def words(self) -> list[str]:
        """The arguments. Arguments that are not strings are replaced with ""."""
        return [word if isinstance(word, str) else "" for word in self.args]


_KINDS: Final = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}


def found_kind(value: JSON) -> str:
    """Return a description of a value's kind.

    It does not quote the value, which might be a secret.
    """
    return _KINDS[json_type(value)]


@lru_cache(maxsize=1024)
def spelling_of(key: str) -> str:
    """Return a key without case, accents, hidden characters and separators, for comparison."""
    return re.sub(r"[\s_.-]", "", folded(key))


def read_server_entry(raw: JSON, workspace: Path) -> ServerEntry:
    """Read an entry as it is written in a file.

    Args:
        raw: the entry.
        workspace: the folder that `${workspaceFolder}` stands for.
    """
    entry = ServerEntry()
    if not isinstance(raw, dict):
        entry.refuse("", f"expected an object, found {found_kind(raw)}")
        return entry

    entry.members = _with_own_names(_without_transport(raw, entry), entry)
    auth = entry.members.get("auth")
    if isinstance(auth, dict):
        entry.members["auth"] = _auth_with_own_keys(auth)

    _read_switch(entry)
    _read_kind(entry)
    _read_command(entry)
    _read_lists(entry)
    _read_tools(entry)
    for key in ("env", "headers"):
        _read_texts(entry, key)
    for key in ("timeout", "connect_timeout"):
        _read_seconds(entry, key)

    for key in _FILLED:
        if key in entry.members:
            entry.members[key] = _with_own_variables(entry.members[key], key, entry, workspace)

    return entry


def with_own_keys(raw: JSONObject) -> JSONObject:
    """Return an entry, possibly from another host's configuration, with ideabridge's keys and
    without ignored keys.
    """
    return read_server_entry(raw, Path.cwd()).members


def with_settings(raw: JSONObject, settings: Mapping[str, JSON]) -> JSONObject:
    """Return an entry with new values for some settings. All other settings stay as they are
    written, even in another host's form.

    Args:
        raw: the entry as it is written in a file.
        settings: the new values, keyed by ideabridge's keys. None removes a setting.
    """
    nested = raw.get("transport")
    if isinstance(nested, dict):
        raw = _without_transport(raw, ServerEntry())

    left = dict(settings)
    result: JSONObject = {}
    for key, value in raw.items():
        own = _own_name(key, value)
        if own not in settings:
            result[key] = value
        elif left.get(own) is not None:
            # Put the new value where the key first occurred, because a person looks for it there.
            result[own] = left.pop(own)

    result.update({key: value for key, value in left.items() if value is not None})
    return result


def _own_name(key: str, value: JSON) -> str:
    """Return ideabridge's name for a key."""
    if key in MILLISECONDS:
        return MILLISECONDS[key]
    if key == "tools" and isinstance(value, dict):
        # As a list, `tools` names the allowed tools. As an object, it says how single tools are
        # shown.
        return key
    return SYNONYMS.get(key, key)


def _without_transport(raw: JSONObject, entry: ServerEntry) -> JSONObject:
    """Return an entry with the members of its nested `transport` moved up into the entry."""
    nested = raw.get("transport")
    if not isinstance(nested, dict):
        return raw

    result = {key: value for key, value in raw.items() if key != "transport"}
    for key, value in nested.items():
        if result.setdefault(key, value) != value:
            entry.refuse(f"transport.{key}", f"contradicts {key!r} of the entry itself")

    entry.note("transport", "its keys are read as keys of the entry itself")
    return result


def _with_own_names(raw: JSONObject, entry: ServerEntry) -> JSONObject:
    """Return an entry with ideabridge's key names and without ignored keys."""
    result: JSONObject = {}
    spellings: dict[str, str] = {}
    for key, written in raw.items():
        if key in IGNORED:
            continue

        own = _own_name(key, written)
        value = _seconds(written, key, entry) if key in MILLISECONDS else written

        if own not in spellings:
            result[own] = value
            spellings[own] = key
        elif own == "deny":
            result[own] = _joined(result[own], value)
        elif result[own] != value:
            entry.refuse(
                own, f"is given as {spellings[own]!r} and as {key!r}, which differ; expected one"
            )

    return result


def _joined(first: JSON, second: JSON) -> JSON:
    """Return both values of `deny` as a single list, so that neither is lost."""
    return [
        pattern
        for value in (first, second)
        for pattern in (value if isinstance(value, list) else [value])
    ]


def _seconds(value: JSON, key: str, entry: ServerEntry) -> JSON:
    """Return a value in milliseconds as seconds."""
    number = number_or_none(value)
    if number is None:
        entry.refuse(key, f"expected a number of milliseconds, found {found_kind(value)}")
        return None
    return number / 1000


def _auth_with_own_keys(raw: JSONObject) -> JSONObject:
    """Return `auth` with ideabridge's keys."""
    result: JSONObject = {AUTH_SYNONYMS.get(key, key): value for key, value in raw.items()}
    if isinstance(result.get("enabled"), bool):
        # The key is not needed, because the server itself reports whether it requires a sign-in.
        del result["enabled"]

    scopes = result.get("scopes")
    port = result.get("callbackPort")
    if isinstance(scopes, list | str) and "scope" not in result:
        del result["scopes"]
        if scopes:
            result["scope"] = scopes if isinstance(scopes, str) else " ".join(map(str, scopes))

    if isinstance(port, int) and "redirect_uri" not in result:
        del result["callbackPort"]
        result["redirect_uri"] = f"http://localhost:{port}/callback"

    return result


def _read_switch(entry: ServerEntry) -> None:
    """Read `disabled` and `enabled` as `disabled`. The server is used only if neither key forbids
    it.
    """
    flags = {"true": True, "false": False}
    for key in ("disabled", "enabled"):
        value = entry.members.get(key)
        if isinstance(value, str) and value.lower() in flags:
            entry.members[key] = flags[value.lower()]
            entry.note(key, "text is read as true or false; write it without quotes")

    enabled = entry.members.get("enabled")
    disabled = entry.members.get("disabled", False)
    if isinstance(enabled, bool) and isinstance(disabled, bool):
        del entry.members["enabled"]
        entry.members["disabled"] = disabled or not enabled


def _read_kind(entry: ServerEntry) -> None:
    """Read a `type` that differs from one of ideabridge's types only in case and separators."""
    kind = entry.members.get("type")
    if not isinstance(kind, str) or kind in KINDS:
        return

    for known, own in KINDS.items():
        if spelling_of(known) == spelling_of(kind):
            entry.members["type"] = own
            entry.note("type", f"{kind[:40]!r} is read as {own!r}")
            return


def _read_command(entry: ServerEntry) -> None:
    """Read a `command` that is a list of words, and `args` in one string without spaces."""
    command = entry.members.get("command")
    arguments = entry.members.get("args", [])
    if isinstance(arguments, str):
        if re.search(r"\s", arguments):
            entry.refuse("args", "expected a list, found a string; write each argument as a string")
        else:
            entry.note("args", "text is read as a list of one argument")
        words: list[JSON] = [arguments] if arguments else []
        arguments = words
        entry.members["args"] = words

    if isinstance(command, list) and command and isinstance(arguments, list):
        entry.members["command"] = command[0]
        entry.members["args"] = [*command[1:], *arguments]
        entry.note("command", "a list is read as the program and its arguments")

    found = entry.members.get("args")
    if isinstance(found, list) and any(_is_whole_number(word) for word in found):
        texts: list[JSON] = [str(word) if _is_whole_number(word) else word for word in found]
        entry.members["args"] = texts
        entry.note("args", "numbers are read as text; write them in quotes")


def _is_whole_number(value: JSON) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_ONE_NAME: Final = re.compile(r"""(?!(?:null|none|true|false|\d+)$)[^\s,;"'{}]+""", re.IGNORECASE)
"""Matches a name or a pattern that cannot be meant as a list of names or as another kind of
value.
"""


def _read_lists(entry: ServerEntry) -> None:
    """Where a list of names or patterns is expected, read a single string as a list with one
    item.
    """
    for key in ("allow", "deny", "read_only"):
        value = entry.members.get(key)
        if isinstance(value, str) and _ONE_NAME.fullmatch(value):
            entry.members[key] = [value]
            entry.note(key, "text is read as a list of one name")


def _read_tools(entry: ServerEntry) -> None:
    """Read the forms in which changes to individual tools are written."""
    tools = entry.members.get("tools")
    if not isinstance(tools, dict):
        return

    read: JSONObject = {}
    for name, settings in tools.items():
        read[name] = settings
        if not isinstance(settings, dict):
            continue

        for key in ("enabled", "disabled"):
            if key in settings:
                reason = "to forbid a tool, name it in 'deny' of the server"
                entry.refuse(f"tools.{name}.{key}", reason)

        hidden = settings.get("hide")
        if isinstance(hidden, list) and "hide_parameters" not in settings:
            others = {key: value for key, value in settings.items() if key != "hide"}
            read[name] = {**others, "hide_parameters": hidden}

    entry.members["tools"] = read


def _read_texts(entry: ServerEntry, key: str) -> None:
    """Read the forms in which `env` and `headers` are written."""
    pairs = _pairs(entry.members.get(key), key)
    if pairs is None:
        return
    if not isinstance(entry.members[key], dict):
        entry.note(key, "a list is read as an object of named values")

    texts: JSONObject = {}
    for name, value in pairs:
        place = f"{key}.{name}"
        if name in texts and texts[name] != value:
            entry.refuse(place, "occurs several times with different values; expected one")
        elif value is None:
            entry.note(place, "null is read as if it were absent")
        elif isinstance(value, int):
            # A boolean is also an int in Python, so write it in lower case, as JSON does.
            texts[name] = str(value).lower()
            entry.note(place, f"{found_kind(value)} is read as text; write it in quotes")
        else:
            texts[name] = value

    entry.members[key] = texts


def _pairs(value: JSON, key: str) -> list[tuple[str, JSON]] | None:
    """Return the names and values in an object, in a list of `{"name", "value"}` or, for `env`, in
    a list of NAME=VALUE. Return None for a value that has none of these forms.
    """
    if isinstance(value, dict):
        return list(value.items())
    if not isinstance(value, list):
        return None

    pairs: list[tuple[str, JSON]] = []
    for item in value:
        assignment = _ASSIGNMENT.fullmatch(item) if isinstance(item, str) and key == "env" else None
        if assignment is not None:
            pairs.append((assignment.group(1), assignment.group(2)))
        elif isinstance(item, dict) and item.keys() == {"name", "value"}:
            pairs.append((str(item["name"]), item["value"]))
        else:
            return None

    return pairs


def _read_seconds(entry: ServerEntry, key: str) -> None:
    """Read a timeout that has a unit, or that can only be in milliseconds."""
    value = entry.members.get(key)
    if isinstance(value, str):
        duration = _DURATION.fullmatch(value.strip().lower())
        if duration is None:
            return
        value = float(duration.group(1))
        unit = duration.group(2)
        if unit is not None:
            value *= _UNITS.get(unit, 1)
        entry.members[key] = value
        entry.note(key, f"text is read as {value:g} seconds; write {value:g}")
        if unit is not None:
            return

    number = number_or_none(value)
    if number is not None and MAX_SECONDS < number <= MAX_SECONDS * 1000:
        entry.members[key] = number / 1000
        entry.note(
            key,
            f"is in seconds, at most {MAX_SECONDS}, so {number:g} is read as milliseconds; write "
            f"{number / 1000:g}",
        )


def _with_own_variables(value: JSON, place: str, entry: ServerEntry, workspace: Path) -> JSON:
    """Return a value in which hosts' variables are replaced by ideabridge's variables or by their
    own values.
    """
    if isinstance(value, list):
        return [
            _with_own_variables(item, f"{place}.{number}", entry, workspace)
            for number, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            key: _with_own_variables(item, f"{place}.{key}", entry, workspace)
            for key, item in value.items()
        }
    if not isinstance(value, str) or "${" not in value:
        return value

    def replacement(match: re.Match[str]) -> str:
        inside = match.group(1)
        own = None if match.group().startswith("$$") else _own_variable(inside, workspace)
        if own is None:
            return match.group()

        entry.note(place, f"${{{inside[:80]}}} of other hosts is read as {own[:200]}")
        return own

    return _VARIABLE.sub(replacement, value)


def _own_variable(inside: str, workspace: Path) -> str | None:
    """Return the replacement for a host's variable, or None if the variable has no meaning in
    ideabridge.
    """
    named = _ENV_VARIABLE.fullmatch(inside)
    if named is not None:
        return f"${{{named.group(1)}}}"

    folder = str(workspace).replace("${", "$${")
    home = "${USERPROFILE}" if sys.platform == "win32" else "${HOME}"
    values = {
        "workspaceFolder": folder,
        "workspaceRoot": folder,
        "workspaceFolderBasename": workspace.name.replace("${", "$${"),
        "userHome": home,
        "pathSeparator": os.sep,
        "/": os.sep,
    }
    return values.get(inside)


def entry_problems(entry: JSONObject) -> Iterator[tuple[str, str]]:
    """Yield (key, problem) for each key in an entry (from `read_server_entry`) that contradicts
    other keys or whose value is clearly a mistake.
    """
    yield from _kind_problems(entry)
    url = read_as(ServerStart, entry).url
    if url is not None and not url.lower().startswith(("http://", "https://", "${")):
        yield "url", "expected an address that starts with http:// or https://"
    elif url is not None and url.lower().partition("://")[1:] == ("://", ""):
        yield "url", f"expected a host after {url}"

    if "enabled" in entry:
        yield "enabled", "expected true or false"


def _kind_problems(entry: JSONObject) -> Iterator[tuple[str, str]]:
    """Yield (key, problem) for each key that does not fit the server's kind: a program to start, or
    an address to call.
    """
    kind = read_as(ServerStart, entry).kind
    known_kind = KINDS.get(kind or "")
    if kind is not None and known_kind is None:
        yield "type", f"expected 'stdio', 'http' or 'sse', found {kind[:40]!r}"

    has_command = entry.get("command") is not None
    has_url = entry.get("url") is not None
    if has_command and has_url:
        yield "", "has both 'command' and 'url'; expected one of them"
        return
    if not has_command and not has_url:
        yield "", "expected 'command' (a program to start) or 'url' (a server to call)"
        return

    other = "url" if has_command else "command"
    if known_kind is not None and (known_kind == "stdio") != has_command:
        yield "type", f"{kind!r} requires {other}, which is missing"

    keys_of_other = ("headers", "auth") if has_command else ("args", "env", "cwd")
    for key in keys_of_other:
        if entry.get(key):
            yield key, f"is allowed only with {other!r}"


def name_problem(name: str) -> str | None:
    """Return why the name of a server is invalid, or None if it is valid."""
    if not 1 <= len(name) <= 64:
        return "a server's name must have 1 to 64 characters"
    if not name.isprintable():
        return "a server's name must not contain control characters"
    if name == "anonymous" or name.startswith("idea:"):
        return (
            "this name is reserved: 'anonymous' is a clean room and 'idea:...' is an idea; choose "
            "another"
        )

    return None
