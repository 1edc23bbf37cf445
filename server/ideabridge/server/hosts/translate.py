"""Translate a server's entry in a host's file to an entry of `mcpServers` in `ideabridge.json`.

The keys of all hosts are accepted in every file, because people copy entries from host to host. A
key that has no meaning for ideabridge is omitted, and a note names it. A server is unusable only if
its meaning cannot be guessed: it has neither a command nor an address, or has both, or has an
unreadable list of forbidden tools.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import urlsplit

from ideabridge.bridge.server_entry import HINTS, IGNORED, KINDS, MAX_SECONDS, SYNONYMS, ServerStart
from ideabridge.bridge.trust import TrustError, read_plain
from ideabridge.server.hosts.host import HostEnvironment, Scope
from ideabridge.server.hosts.notation import HostVariables, Input, as_written
from ideabridge.server.hosts.salvage import PartialObject, ReadObject
from ideabridge.server.hosts.table import Host
from ideabridge.tools.encoding import JSON, JSONObject, number_or_none, object_or_empty
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.typed import read_as

_NAMED_ALIKE: Final = ("type", "command", "args", "env", "cwd", "url", "headers", "auth")
_OWN_KEYS: Final[Mapping[str, str]] = {
    **{key: own for key, own in SYNONYMS.items() if own in (*_NAMED_ALIKE, "allow", "deny")},
    **{key: key for key in (*_NAMED_ALIKE, "disabled", "enabled", "allow", "deny")},
    "server_type": "type",
    "cmd": "command",
    **dict.fromkeys(("workingDirectory", "working_directory"), "cwd"),
    "isActive": "enabled",
    **dict.fromkeys(("allowed_tools", "available_tools"), "allow"),
    # `tools` has several forms, so no single key corresponds to it.
    "tools": "",
}
"""Maps keys of hosts to the keys of an entry in `ideabridge.json`; `enabled` is the opposite of
`disabled`."""

_APPROVALS: Final = ("alwaysAllow", "autoApprove", "trust", "default_tools_approval_mode")
"""Keys that name the tools that a host calls without asking."""

_SIGN_IN_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("scopes", "oauthScopes"), "scope"),
    **dict.fromkeys(("oauthClientId", "oauth_client_id"), "client_id"),
    "oauthGrantType": "grant",
    "oauth_callback_port": "callbackPort",
}
"""Maps an entry's keys for signing in to members of `auth`."""

_NO_MEANING: Final = frozenset({*IGNORED, "bundled", "display_name", "faviconUrl", "serverName"})
"""Keys without any effect, which are not mentioned in notes."""

_RESTRICTIONS: Final[Mapping[str, str]] = {
    "sandbox": "restricts what the server may do in the client",
    "sandboxEnabled": "restricts what the server may do in the client",
    "experimental_environment": "makes the client run the server on another machine",
    "remote": "makes the client run the server on another machine",
    "authProviderType": "makes the client sign in with credentials of this machine",
}
"""Keys that restrict a server. Without them, it runs differently."""

_ELSEWHERE: Final[Mapping[str, str]] = {
    "settings": "has only the settings of an extension of the client; expected 'command' or 'url'",
    "uses": "names a block of the client's hub ('uses'); expected 'command' or 'url'",
}
"""Keys of entries that have neither a command nor an address."""

_DOCKER: Final = frozenset({"docker", "podman", "nerdctl"})
_DOCKER_FLAGS: Final = re.compile(
    r"-[dithPq]+|--(rm|init|detach|interactive|tty|privileged|read-only|publish-all|quiet"
    r"|no-healthcheck|oom-kill-disable|sig-proxy|disable-content-trust)|--[^=]+=.*",
    re.DOTALL,
)
"""Matches options of `docker run` that do not take the next word as their value."""

_SHELL_CHARACTERS: Final = re.compile(r"""[|&;<>()$`\\"'*?\[\]#~=%!{}\n]""")
_ABSOLUTE: Final = re.compile(r"[/\\~$]|[A-Za-z]:[/\\]")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_LINE: Final = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)$", re.MULTILINE
)
_MAX_ENV_FILE: Final = 256 * 1024
"""Maximum size, in bytes, of a file with variables."""


class UnusableEntryError(Exception):
    """Raised when an entry cannot be translated. The message says why."""


@dataclass(slots=True)
class Translation:
    """The result of a translation.

    Attributes:
        entry: the entry in `ideabridge.json`.
        notes: hints for the user, such as the variables to set and the keys that were omitted.
        problem: why the server cannot be adopted, or None if it can.
        approved: the tools that the host calls without asking; `*` stands for all of them.
    """

    entry: JSONObject
    notes: list[str] = field(default_factory=list[str])
    problem: str | None = None
    approved: tuple[str, ...] = ()


def translate_server(
    raw: JSON,
    host: Host,
    environment: HostEnvironment,
    inputs: Mapping[str, Input],
    scope: Scope = "user",
) -> Translation:
    """Translate a server's entry.

    Args:
        raw: the entry in the host's file.
        host: the host.
        environment: the values of variables such as `${workspaceFolder}`.
        inputs: the values that the host prompts the user for.
        scope: who uses the servers in the file.
    """
    if not isinstance(raw, dict):
        return Translation({}, problem="is not an object")
    if any(isinstance(part, PartialObject) for part in values_in(raw)):
        return Translation(
            {}, problem=("is malformed in the file, or the file ends in the middle of it")
        )

    translator = _Translator(host, environment, inputs, scope)
    try:
        translator.read(raw)
    except UnusableEntryError as error:
        return Translation(translator.entry.to_json(), translator.notes, problem=str(error))
    return Translation(
        translator.entry.to_json(),
        translator.notes,
        approved=tuple(dict.fromkeys(translator.approved)),
    )


@dataclass(slots=True)
class _Entry:
    """The entry for `ideabridge.json`, which is built up as the keys of the host's entry are read.

    An attribute is None or empty until its key has been read.

    Attributes:
        times: `timeout` and `connect_timeout`, in seconds.
    """

    type: str | None = None
    command: str | None = None
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    auth: dict[str, str] = field(default_factory=dict[str, str])
    times: dict[str, float] = field(default_factory=dict[str, float])
    allow: list[str] | None = None
    deny: list[str] = field(default_factory=list[str])
    disabled: bool = False

    def to_json(self) -> JSONObject:
        """Return the entry without the attributes that are None, empty or False."""
        members: JSONObject = {
            "type": self.type,
            "command": self.command,
            "args": list[JSON](self.args),
            "env": dict[str, JSON](self.env),
            "cwd": self.cwd,
            "url": self.url,
            "headers": dict[str, JSON](self.headers),
            "auth": dict[str, JSON](self.auth),
            **self.times,
            "deny": list[JSON](self.deny),
            "disabled": self.disabled,
        }
        entry: JSONObject = {}
        for key, value in members.items():
            if value not in (None, [], {}, False):
                entry[key] = value

        if self.allow is not None:
            # Do not leave out an empty list, because it allows no tool.
            entry["allow"] = list[JSON](self.allow)
        return entry


class _Translator:
    """Reads the keys of an entry one at a time."""

    def __init__(
        self,
        host: Host,
        environment: HostEnvironment,
        inputs: Mapping[str, Input],
        scope: Scope,
    ) -> None:
        self.entry = _Entry()
        self.notes: list[str] = []
        self.approved: list[str] = []
        self._host = host
        self._environment = environment
        self._scope: Scope = scope
        self._variables = HostVariables(
            host.title,
            host.notations,
            frozenset(host.project_variables),
            environment,
            inputs,
            self.notes,
        )

    def read(self, raw: JSONObject) -> None:
        """Translate an entry.

        Raises:
            UnusableEntryError: the meaning of the entry cannot be guessed.
        """
        self._refuse_own_kind(raw)
        if "shell" in self._host.notations and "$(" in json.dumps(raw):
            raise UnusableEntryError("has a command in a value, $(...); ideabridge never runs it")
        if isinstance(raw, ReadObject):
            self.notes += [f"has {key!r} twice; the last one is used" for key in raw.repeated]

        for key, value in _flat(raw):
            if value is not None:
                self._read_key(key, value, raw)

        command = self.entry.command
        if command is None and self.entry.url is None:
            self._refuse_empty(raw)
        if command is not None and self.entry.url is not None:
            raise UnusableEntryError("has both 'command' and 'url'; expected one of them")

        self._read_type(raw)
        if command is not None:
            self._drop_keys_of_addresses()
            self._finish_program(command)
        else:
            self._fill_headers()
            self._drop_keys_of_programs()

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    # -- entries that are not servers --------------------------------------------------------------

    def _refuse_own_kind(self, raw: JSONObject) -> None:
        kind = raw.get("type", raw.get("source"))
        if isinstance(kind, str) and kind in self._host.own_kinds:
            raise UnusableEntryError(f"is part of {self._host.title} ({kind}), not a server")
        for key, hint in HINTS.items():
            if key != "envFile" and raw.get(key) is not None:
                raise UnusableEntryError(f"{key}: {hint}")

    def _refuse_empty(self, raw: JSONObject) -> None:
        for key, reason in _ELSEWHERE.items():
            if key in raw:
                raise UnusableEntryError(reason)
        raise UnusableEntryError(
            "expected 'command' (a program to start) or 'url' (a server to call)"
        )

    # -- keys --------------------------------------------------------------------------------------

    def _read_key(self, key: str, value: JSON, raw: JSONObject) -> None:
        own_key = _OWN_KEYS.get(key)
        if key in self._host.timeouts:
            self._read_timeout(key, value)
        elif own_key and own_key != key and own_key in raw:
            self._leave_out(key, value)
        elif own_key in ("allow", "deny"):
            self._read_tools(own_key, key, value)
        elif own_key in ("disabled", "enabled"):
            self._read_switch(key, value, is_on=own_key == "enabled")
        elif own_key and own_key != "type":
            self._read_own_key(own_key, key, value)
        elif not own_key:
            self._read_other_key(key, value)

    def _read_own_key(self, own_key: str, key: str, value: JSON) -> None:
        match own_key:
            case "command":
                self._read_command(key, value)
            case "args":
                self.entry.args += self._arguments(self._words(key, value))
            case "env":
                self.entry.env |= self._filled(self._texts(key, value, "="))
            case "headers":
                self._add_headers(self._texts(key, value, ":"))
            case "auth":
                self._read_auth(key, value)
            case "cwd":
                self.entry.cwd = self._variables.text(self._text(key, value)) or self.entry.cwd
            case _:
                self.entry.url = self._variables.text(self._text(key, value)) or self.entry.url

    def _read_other_key(self, key: str, value: JSON) -> None:
        match key:
            case "envFile":
                self._read_env_file(value)
            case "env_vars" | "env_keys":
                self._pass_on(key, value)
            case "env_http_headers" | "bearer_token_env_var" | "bearer_token":
                self._read_header_key(key, value)
            case "requestOptions" if isinstance(value, dict):
                self._read_request_options(value)
            case "tools":
                self._read_tool_table(value)
            case "timeout":
                self._read_time("timeout", key, key, value)
            case _ if key in _SIGN_IN_KEYS:
                self._read_auth(key, {_SIGN_IN_KEYS[key]: value})
            case _ if key in _APPROVALS:
                self._read_approvals(key, value)
            case _:
                self._leave_out(key, value)

    def _read_header_key(self, key: str, value: JSON) -> None:
        """Read a header, or a list of variables that contain header values."""
        if key == "env_http_headers":
            names = self._texts(key, value, ":")
            self._add_headers({name: f"${{env:{text}}}" for name, text in names.items()})
        elif key == "bearer_token":
            self._add_headers({"Authorization": f"Bearer {self._text(key, value)}"})
        else:
            self._add_headers({"Authorization": f"Bearer ${{env:{self._text(key, value)}}}"})

    def _leave_out(self, key: str, value: JSON) -> None:
        """Note that a key is omitted, unless it would have no effect."""
        if key in _NO_MEANING or key.startswith(("_", "$", "//")) or value in ({}, [], "", False):
            return
        meaning = _RESTRICTIONS.get(key)
        if meaning is not None:
            self._note(f"'{key}' {meaning}; ideabridge uses the server without it")
        else:
            self._note(f"'{key}' has no meaning in ideabridge and is left out")

    def _read_command(self, key: str, value: JSON) -> None:
        """Read a program, a list with a program and its arguments, or an object with both (Zed)."""
        if isinstance(value, dict):
            path = value.get("path", value.get("command"))
            self._read_command(key, path)
            for member in ("args", "env"):
                if value.get(member) is not None:
                    self._read_own_key(member, member, value[member])
            return

        if isinstance(value, list):
            words = self._words(key, value)
            if not words:
                raise UnusableEntryError("'command' is empty; expected a program")
            value = words[0]
            self.entry.args = [*self._arguments(words[1:]), *self.entry.args]

        text = self._text(key, value)
        if not text.strip():
            raise UnusableEntryError("'command' is empty; expected a program")
        self.entry.command = self._variables.text(text)

    def _arguments(self, words: list[str]) -> list[str]:
        return [self._variables.text(word, is_argument=True) for word in words]

    def _filled(self, members: Mapping[str, str]) -> dict[str, str]:
        """Translate values, keyed by name, from the host's notation to ideabridge's."""
        return {name: self._variables.text(text) for name, text in members.items()}

    def _add_missing_variables(self, members: Mapping[str, str]) -> None:
        """Add variables to the server's environment, except those that are already set."""
        self.entry.env = {**self._filled(members), **self.entry.env}

    def _add_headers(self, members: Mapping[str, str]) -> None:
        self.entry.headers |= self._filled(members)

    def _pass_on(self, key: str, value: JSON) -> None:
        """Read a list of variables that the host passes on from its own environment."""
        names: dict[str, str] = {}
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, dict) and item.get("source") == "remote":
                self._note(f"'{key}' names a variable of another machine, which is left out")
                continue

            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str) or not _VARIABLE_NAME.fullmatch(name):
                self._note(f"'{key}' has an item that is not a valid variable name; it is left out")
            else:
                names[name] = f"${{env:{name}}}"

        self._add_missing_variables(names)
        if names and key == "env_keys":
            self._note(
                f"{self._host.title} keeps the values of {', '.join(names)}: set these variables"
            )

    def _read_request_options(self, value: JSONObject) -> None:
        for member, item in value.items():
            if member == "headers" and item is not None:
                self._add_headers(self._texts("requestOptions.headers", item, ":"))
            elif item is not None:
                self._note(
                    f"'requestOptions.{member}' has no meaning in ideabridge and is left out"
                )

    def _read_env_file(self, value: JSON) -> None:
        """Read the variables in a file.

        If the host's file belongs to the project, it is allowed to name only a file in the project.
        The values in the named file are then not copied, because the configuration that receives
        them can be part of a repository.
        """
        path = Path(
            self._variables.text(self._text("envFile", value)).replace(
                "${HOME}", str(self._environment.home)
            )
        ).expanduser()
        path = self._environment.project / path
        is_shared = self._scope == "project"
        if is_shared:
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(os.path.realpath(self._environment.project)):
                raise UnusableEntryError(
                    f"envFile: {path} is outside the project, so it is not read"
                )

        try:
            text = read_plain(path, _MAX_ENV_FILE).decode("utf-8-sig")
        except (OSError, TrustError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UnusableEntryError(
                f"envFile: {path} cannot be read ({reason}); name the variables in 'env': "
                '"TOKEN": "${TOKEN}"'
            ) from None

        values = _variables_in(text)
        names = ", ".join(values) or "no variables"
        if is_shared:
            self._add_missing_variables({name: f"${{env:{name}}}" for name in values})
            self._note(f"'envFile' ({path}) contains {names}: set these variables")
        else:
            copied = {name: as_written(text) for name, text in values.items()}
            self.entry.env = {**copied, **self.entry.env}
            self._note(f"the values of {names} are copied from 'envFile' ({path})")

    # -- tools -------------------------------------------------------------------------------------

    def _read_tools(self, own_key: str, key: str, value: JSON) -> None:
        """Read a list of the tools that are offered, or of the tools that are not."""
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise UnusableEntryError(f"{key}: expected a list of tool names")

        names = list(dict.fromkeys(map(str, listed)))
        if own_key == "deny":
            self.entry.deny = list(dict.fromkeys([*self.entry.deny, *names]))
        elif (names or key != "available_tools") and "*" not in names:
            # If an entry has two lists, a tool is offered only if it is in both of them.
            allowed = self.entry.allow
            if allowed is not None:
                names = [name for name in allowed if name in names]
            self.entry.allow = names

    def _read_tool_table(self, value: JSON) -> None:
        """Read `tools`, which contains either the names of the offered tools or settings keyed by
        tool.
        """
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            self._read_tools("allow", "tools", value)
            return

        table = object_or_empty(value)
        for name, settings in table.items():
            is_off = settings is False
            if isinstance(settings, dict):
                is_off = settings.get("enabled") is False
                if settings.get("approval_mode") == "approve":
                    self.approved.append(name)
            if is_off:
                self._read_tools("deny", "tools", name)

        self._note("'tools' also has settings that have no meaning in ideabridge and are left out")

    def _read_approvals(self, key: str, value: JSON) -> None:
        """Record the tools that the host calls without asking. Whether ideabridge asks depends on
        its own rules.
        """
        if isinstance(value, list):
            self.approved += [name for name in value if isinstance(name, str) and name]
        elif value is True or value == "approve":
            self.approved.append("*")

        if value not in ([], False):
            self._note(
                f"'{key}' says which tools {self._host.title} calls without asking; ideabridge "
                "asks by its own rules"
            )

    def _read_switch(self, key: str, value: JSON, *, is_on: bool) -> None:
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            self._note(f"'{key}' is neither true nor false; the server is imported as disabled")
            value = not is_on
        if value != is_on:
            self.entry.disabled = True

    # -- timeouts ----------------------------------------------------------------------------------

    def _read_timeout(self, key: str, value: JSON) -> None:
        if isinstance(value, dict):
            for member, item in value.items():
                self._read_time(_TIME_MEMBERS.get(member, ""), f"{key}.{member}", key, item)
        else:
            self._read_time(self._host.timeouts[key][0], key, key, value)

    def _read_time(self, own_key: str, place: str, key: str, value: JSON) -> None:
        if not own_key:
            self._note(f"'{place}' has no meaning in ideabridge and is left out")
            return
        time = number_or_none(value)
        if time is None or time <= 0:
            self._note(f"'{place}' is not a time; it is left out")
            return

        units = self._units(key, time)
        if units is None:
            self._note(
                f"'{place}' is left out, because the documentation of {self._host.title} does not "
                "state its unit"
            )
            return

        seconds = min(time, 2 * MAX_SECONDS * units) / units
        if not seconds <= MAX_SECONDS:
            self._note(f"'{place}' is longer than {MAX_SECONDS} s, the limit of ideabridge")
            seconds = float(MAX_SECONDS)

        self.entry.times.setdefault(own_key, int(seconds) if seconds.is_integer() else seconds)

    def _units(self, key: str, value: float) -> int | None:
        """Return how many of a timeout's units make one second, or None if the unit is unknown.

        Unless the key names the unit, a number might come from another host's file: a number below
        1,000 is surely in seconds, and a number larger than any timeout in seconds is surely in
        milliseconds.
        """
        units = self._host.timeouts.get(key, ("", 0))[1]
        if units and key.lower().endswith(("ms", "sec")):
            return units
        if value > MAX_SECONDS:
            return 1000
        return 1 if value < 1000 else units or None

    # -- signing in --------------------------------------------------------------------------------

    def _read_auth(self, key: str, value: JSON) -> None:
        """Read the sign-in settings that ideabridge needs."""
        if not isinstance(value, dict):
            if value not in ("oauth", True):
                self._note(f"'{key}' has no meaning in ideabridge and is left out")
            return

        for member, item in value.items():
            if item is not None:
                self._read_auth_member(f"{key}.{member}", member, item)

    def _read_auth_member(self, place: str, member: str, item: JSON) -> None:
        auth = self.entry.auth
        own_member = _AUTH_KEYS.get(member)
        match own_member:
            case "scope":
                text = item.replace(",", " ").split() if isinstance(item, str) else item
                words = self._words(place, list(text) if isinstance(text, list) else text)
                if words:
                    auth["scope"] = " ".join(words)
            case "callbackPort" if isinstance(item, int) and not isinstance(item, bool):
                auth["redirect_uri"] = f"http://localhost:{item}/callback"
            case "redirect_uri" if not _is_loopback(item):
                self._note(f"'{place}' is not on this machine; it is left out")
            case None | "callbackPort":
                if member != "enabled":
                    self._note(f"'{place}' has no meaning in ideabridge and is left out")
            case _:
                auth[own_member] = self._variables.text(self._text(place, item))

    # -- completing the entry ----------------------------------------------------------------------

    def _read_type(self, raw: JSONObject) -> None:
        """Read the transport. A transport that is unknown, or that does not match the other keys,
        is omitted.
        """
        kinds = {key: value for key, value in _flat(raw) if _OWN_KEYS.get(key) == "type"}
        written = kinds.get("type") or next(filter(None, kinds.values()), None)
        kind = written if isinstance(written, str) else ""
        if kind.lower() in ("ws", "websocket"):
            raise UnusableEntryError(f"type: {kind!r} is a transport that ideabridge does not have")

        own_kind = KINDS.get(kind, _OTHER_KINDS.get(kind.lower(), ""))
        is_program = self.entry.command is not None
        if written is not None and not own_kind:
            self._note("'type' is unknown and is left out")
        elif own_kind and (own_kind == "stdio") != is_program:
            self._note(f"'type' is {kind!r}, which does not fit; it is left out")
        elif own_kind and own_kind != "stdio" and kind != "remote":
            self.entry.type = own_kind

        if self.entry.type is None and not is_program:
            used = next((key for key, _ in _flat(raw) if _OWN_KEYS.get(key) == "url"), "")
            self.entry.type = self._host.url_kinds.get(used)

    def _drop_keys_of_addresses(self) -> None:
        """Remove the keys that are not allowed in an entry with a program."""
        if self.entry.headers:
            self._note("'headers' is not allowed with a program; it is left out")
            self.entry.headers = {}
        if self.entry.auth:
            self._note("'auth' is not allowed with a program; it is left out")
            self.entry.auth = {}

    def _drop_keys_of_programs(self) -> None:
        """Remove the keys that are not allowed in an entry with an address."""
        if self.entry.args:
            self._note("'args' is not allowed with an address; it is left out")
            self.entry.args = []
        if self.entry.env:
            self._note("'env' is not allowed with an address; it is left out")
            self.entry.env = {}
        if self.entry.cwd:
            self._note("'cwd' is not allowed with an address; it is left out")
            self.entry.cwd = None

    def _fill_headers(self) -> None:
        """Replace variables in headers with values from the entry's own environment, as Goose
        does.
        """
        used = False
        for name, text in self.entry.headers.items():
            for variable, value in self.entry.env.items():
                reference = f"${{{variable}}}"
                if reference in text:
                    text = text.replace(reference, value)
                    used = True
            self.entry.headers[name] = text

        if used:
            self.entry.env = {}

    def _finish_program(self, command: str) -> None:
        first, _, rest = command.partition(" ")
        if rest and not self.entry.args and not re.search(r"[/\\:$~]", first):
            self._split_command(command)

        folder = self.entry.cwd
        if folder is not None and not _ABSOLUTE.match(folder):
            # Make the path absolute, because the host resolves it relative to the project.
            self.entry.cwd = str(Path(as_written(str(self._environment.project))) / folder)

        for name in _docker_names(command, self.entry.args):
            self._add_missing_variables({name: f"${{env:{name}}}"})

    def _split_command(self, line: str) -> None:
        """Split a command line into words, because no program is named like a whole command line.
        Refuse a line that only a shell can interpret.
        """
        if _SHELL_CHARACTERS.search(line):
            raise UnusableEntryError(
                f"'command' is a command line ({line!r}); write its words in 'args'"
            )

        words = line.split()
        self.entry.command = words[0]
        self.entry.args = words[1:]
        self._note("'command' is a command line; its words are the program and its arguments")

    # -- values ------------------------------------------------------------------------------------

    def _text(self, place: str, value: JSON) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise UnusableEntryError(f"{place}: expected text")

    def _words(self, place: str, value: JSON) -> list[str]:
        if isinstance(value, str) and value.strip() and not re.search(r"\s", value):
            value = [value]
        if not isinstance(value, list):
            raise UnusableEntryError(f"{place}: expected a list of words")
        return [
            self._text(f"{place}.{number}", item)
            for number, item in enumerate(value)
            if item is not None
        ]

    def _texts(self, place: str, value: JSON, separator: str) -> dict[str, str]:
        """Return strings keyed by name. Some hosts write them as a list of `NAME=TEXT`, or of
        objects with `name` and `value`.
        """
        if isinstance(value, list):
            value = dict(self._pairs(place, value, separator))
        if not isinstance(value, dict):
            raise UnusableEntryError(f"{place}: expected an object that maps names to strings")
        return {
            name: self._text(f"{place}.{name}", item)
            for name, item in value.items()
            if item is not None
        }

    def _pairs(self, place: str, items: list[JSON], separator: str) -> Iterator[tuple[str, JSON]]:
        for number, item in enumerate(items):
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                yield str(item["name"]), item.get("value")
            elif isinstance(item, str) and separator in item:
                name, _, text = item.partition(separator)
                yield name.strip(), text.strip() if separator == ":" else text
            else:
                raise UnusableEntryError(f"{place}.{number}: expected NAME{separator}TEXT")


_TIME_MEMBERS: Final[Mapping[str, str]] = {
    "startup": "connect_timeout",
    "execution": "timeout",
    "request": "timeout",
}
"""Maps the members of a timeout that is written as an object (opencode) to keys in an entry."""

_AUTH_KEYS: Final[Mapping[str, str]] = {
    **{
        key: key
        for key in (
            "grant",
            "issuer",
            "client_id",
            "client_secret",
            "secret_in",
            "private_key",
            "algorithm",
            "client_metadata_url",
            "redirect_uri",
            "scope",
        )
    },
    **dict.fromkeys(("clientId", "CLIENT_ID"), "client_id"),
    **dict.fromkeys(("clientSecret", "CLIENT_SECRET"), "client_secret"),
    "redirectUri": "redirect_uri",
    "scopes": "scope",
    **dict.fromkeys(("callback_port", "callbackPort"), "callbackPort"),
}
"""Maps keys for signing in to keys of `auth`."""

_OTHER_KINDS: Final[Mapping[str, str]] = {
    "streamablehttp": "http",
    "streamable": "http",
    "http-stream": "http",
    "http-streaming": "http",
    "https": "http",
}
"""Other names for transports, in lower case."""


def _flat(raw: JSONObject) -> Iterator[tuple[str, JSON]]:
    """Yield the keys and values of an entry, including those in a nested object that describes the
    server.
    """
    for key, value in raw.items():
        is_nested = key == "transport" or (key == "config" and not _is_server(raw))
        if is_nested and isinstance(value, dict) and (key == "transport" or _is_server(value)):
            yield from ((inner, item) for inner, item in value.items() if inner not in raw)
        else:
            yield key, value


def _is_server(value: JSONObject) -> bool:
    return any(_OWN_KEYS.get(key) in ("command", "url") for key in value)


def _is_loopback(value: JSON) -> bool:
    return isinstance(value, str) and bool(
        re.match(r"http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}/", value)
    )


def _docker_names(command: str, words: list[str]) -> Iterator[str]:
    """Yield the names of the variables that `docker run -e NAME` passes to the container."""
    name = PurePath(command.replace("\\", "/")).name.lower().removesuffix(".exe")
    if name not in _DOCKER or "run" not in words:
        return

    options = iter(words[words.index("run") + 1 :])
    for word in options:
        if not word.startswith("-"):
            return
        if word in ("-e", "--env"):
            text = next(options, "")
        elif word.startswith("--env="):
            text = word.removeprefix("--env=")
        else:
            if not _DOCKER_FLAGS.fullmatch(word):
                next(options, None)
            continue

        if _VARIABLE_NAME.fullmatch(text):
            yield text


def _variables_in(text: str) -> dict[str, str]:
    """Return the variables in a file such as `.env`."""
    values: dict[str, str] = {}
    for match in _ENV_LINE.finditer(text):
        value = match.group(2).strip()
        quoted = re.match(r"(['\"])(.*?)\1", value)
        if quoted is not None:
            value = quoted.group(2)
        else:
            value = re.sub(r"\s+#.*$", "", value)

        values[match.group(1)] = value

    return values


def is_ourselves(entry: JSONObject) -> bool:
    """Return whether an entry in any host's format starts ideabridge, which cannot be its own
    server.
    """
    words = started_words(entry)
    if "ideabridge.server" in words:
        return True
    return "serve" in words and any(_is_our_name(word) for word in words[: words.index("serve")])


def started_words(entry: JSONObject) -> list[str]:
    """Return the program that an entry in any host's format starts, and its arguments. The list is
    empty if the entry starts no program.
    """
    words: list[JSON] = []
    for key in ("command", "cmd", "args"):
        value = entry.get(key)
        words += value if isinstance(value, list) else [value]
    return [word for word in words if isinstance(word, str)]


def connects_here(entry: JSONObject) -> bool:
    """Return whether an entry connects to a server on this machine, at ideabridge's path."""
    parts = urlsplit(read_as(ServerStart, entry).url or "")
    if not parts.path.startswith("/mcp"):
        return False
    return parts.hostname in ("127.0.0.1", "localhost", "::1")


def _is_our_name(word: str) -> bool:
    name = PurePath(word.replace("\\", "/")).name.lower().removesuffix(".exe")
    return re.split(r"[\[@=<>~! ]", name, maxsplit=1)[0] == "ideabridge"
