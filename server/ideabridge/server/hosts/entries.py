"""Add, change, remove, enable or disable one server in `ideabridge.json`.

The command line (`servers add` ...) and the page use these functions. All other bytes of a file
stay the same, including comments, and the previous file is backed up.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from ideabridge.bridge.configuration import (
    ConfigurationError,
    check_server_entry,
    parse_configuration,
)
from ideabridge.bridge.file_content import OTHER_NAMES
from ideabridge.bridge.masking import hidden_in, shown_definition
from ideabridge.bridge.modules.settings import ModuleConfiguration, entry_digest
from ideabridge.bridge.recognising import RecognisedSecrets, recognise_secrets
from ideabridge.bridge.server_entry import ServerStart
from ideabridge.bridge.stored_secrets import (
    allow_secret,
    find_secret,
    secret_owner,
    set_secret,
)
from ideabridge.bridge.trust import ProjectTrust, keep_trusted, look_at, repository_of
from ideabridge.server.hosts.editing.host_text import EditedFile, HostText, read_host_text
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode_text,
    list_or_empty,
    object_or_empty,
    plain_text,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import read_as

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"(?<!\$)\$\{secret:([^{}]*)\}")
_REFERENCE: Final = re.compile(r"(?<!\$)\$\{[^{}]+\}")
_LOCAL_ADDRESS: Final = re.compile(
    r"(?:localhost|[0-9]{1,3}(?:\.[0-9]{1,3}){3}):[0-9]{1,5}(?:/.*)?", re.IGNORECASE | re.DOTALL
)
_REMOTE_ADDRESS: Final = re.compile(
    r"(?P<host>(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?P<last>[a-z]{2,}))(?P<rest>[:/].*)?",
    re.IGNORECASE | re.DOTALL,
)
_DOMAIN: Final = re.compile(
    r"com|org|net|edu|gov|mil|int|info|biz|io|ai|app|dev|cloud|tech|site|online|xyz|co|me|eu|uk|us"
    r"|ca|au|nz|de|at|ch|fr|nl|be|it|es|pt|ie|se|no|fi|dk|jp|kr|cn|in|br"
)
"""Matches a last label that shows that a word without a path is a host name."""

_FILE_ENDING: Final = re.compile(
    r"py|pyz|sh|bash|js|mjs|cjs|ts|rb|pl|php|lua|go|rs|jar|exe|bat|cmd|ps|bin|json|toml"
)
"""Matches a last label that is more likely to be the file extension of a program."""

_NOTHING_CHOSEN: Final[Mapping[str, bool]] = MappingProxyType({})

_OFF: Final = ("disabled", "enabled")
"""The keys that turn a server off and on."""


class EntryError(IdeabridgeError):
    """Raised when an entry cannot be added or changed. The message says why."""


class ServerExistsError(EntryError):
    """Raised when the file already has a server with this name."""


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A configuration file in which one entry is changed.

    Attributes:
        text: the file as it was read.
        scope: the kind of file: the user's own, the project's, or the one that --config specifies.
        project: the project folder that the file belongs to; None if it belongs to no project.
        in_repository: whether the file can be part of a repository. No secrets are written to it
            then.
    """

    text: HostText
    scope: Literal["user", "project", "file"]
    project: Path | None
    in_repository: bool

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.text.path

    @property
    def title(self) -> str:
        """The name of the file for use in a sentence."""
        if self.scope == "user":
            return f"your own configuration, {self.path}"
        if self.scope == "project":
            return f"the project's configuration, {self.path}"
        return str(self.path)

    @property
    def servers(self) -> JSONObject:
        """The entries in the file, keyed by name."""
        return self.text.entries(self._keys)

    @property
    def _keys(self) -> tuple[str, ...]:
        """The keys that lead to the entries in the file. This is `mcpServers`, unless the file
        lacks this key but has exactly one of the names that other hosts use; then it is that name.
        """
        names = [name for name in OTHER_NAMES if name in self.text.content]
        if "mcpServers" not in self.text.content and len(names) == 1:
            return (names[0],)
        return ("mcpServers",)

    def entry(self, name: str) -> JSONObject:
        """Return the entry named `name`. Raise `EntryError` if the entry is not an object."""
        entry = self.servers[name]
        if not isinstance(entry, dict):
            raise EntryError(f"{self.path}: mcpServers.{name} is not an object; change it by hand")
        return entry

    def edited(self, name: str, entry: JSONObject | None) -> HostText:
        """Return the text with the given entry or, if `entry` is None, without the entry named
        `name`.

        Raises:
            HostFileError: the file cannot be edited without changing other parts of it.
        """
        if entry is None:
            return self.text.without_entry(self._keys, name)
        return self.text.with_entry(self._keys, name, entry)

    def write(self, name: str, entry: JSONObject | None) -> EditedFile:
        """Write the given entry or, if `entry` is None, remove the entry named `name`. Return the
        data needed to undo the change.

        Raises:
            HostFileError: the file cannot be edited without changing other parts of it, or cannot
                be written.
        """
        text = self.edited(name, entry)
        return text.edit(private=self.scope == "user", project=self.project)


def read_entry_file(
    path: Path, scope: Literal["user", "project", "file"], project: Path | None
) -> EntryFile:
    """Read a configuration file.

    Raises:
        HostFileError: the file cannot be read, or does not contain an object.
    """
    in_repository = repository_of(Path(os.path.realpath(path)).parent) is not None
    text = read_host_text(path, "json")
    return EntryFile(text, scope, project, in_repository or scope == "project")


def program_entry(words: list[str], variables: dict[str, str]) -> JSONObject:
    """Return the entry for a program: its command with arguments, and its environment.

    Raises:
        EntryError: the command looks like the address of a server.
    """
    address = address_meant(words[0])
    if address is not None:
        raise EntryError(
            f"{words[0][:100]!r} is not a program or file on this machine: did you mean {address}? "
            "If it is a program, write its whole path"
        )

    entry: JSONObject = {"command": words[0]}
    if len(words) > 1:
        entry["args"] = list[JSON](words[1:])
    if variables:
        entry["env"] = dict[str, JSON](variables)
    return entry


def address_entry(url: str, headers: dict[str, str]) -> JSONObject:
    """Return the entry for a server over HTTP: its address, and the headers to send with each
    request.
    """
    entry: JSONObject = {"url": url}
    if headers:
        entry["headers"] = dict[str, JSON](headers)
    return entry


def is_server_address(word: str) -> bool:
    """Return whether `word` is the address of a server rather than a command."""
    return word.lower().startswith(("http://", "https://"))


def address_meant(word: str) -> str | None:
    """If `word` looks like an address without its scheme, return the full address. Otherwise,
    return None. The name of a command on this machine is never taken for an address.
    """
    scheme, separator, rest = word.partition("://")
    if separator and scheme.isalnum():
        return f"https://{rest[:100]}"
    if os.path.lexists(word) or shutil.which(word) is not None:
        return None
    if _LOCAL_ADDRESS.fullmatch(word):
        return f"http://{word[:100]}"

    remote = _REMOTE_ADDRESS.fullmatch(word)
    if remote is None:
        return None
    last = remote["last"].lower()
    has_more = remote["rest"] is not None or word.lower().startswith("www.")
    if _DOMAIN.fullmatch(last) or (has_more and not _FILE_ENDING.fullmatch(last)):
        return f"https://{word[:100]}"
    return None


def variable_of(text: str) -> tuple[str, str] | None:
    """Return the name and the value in `KEY=VALUE`, or None if the text does not have this form."""
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        return None
    return name, value


def header_of(text: str) -> tuple[str, str] | None:
    """Return the name and the value in `NAME: VALUE`, or None if the text does not have this
    form.
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        return None
    return name.strip(), value.strip()


@dataclass(frozen=True, slots=True)
class PlannedEntry:
    """An entry to be written to a file.

    Attributes:
        file: the file, as it was read.
        name: the name of the server.
        before: the entry to be replaced, or None for a new server.
        recognised: the entry, with each secret replaced by `${secret:NAME}`, and the secrets.
        in_plain_text: where other values in the entry look like secrets.
    """

    file: EntryFile
    name: str
    before: JSONObject | None
    recognised: RecognisedSecrets
    in_plain_text: list[str]

    @property
    def entry(self) -> JSONObject:
        """The entry as written to the file."""
        return self.recognised.entry

    @property
    def changes(self) -> list[SettingChange]:
        """The differences from the entry to be replaced."""
        return setting_changes(self.before or {}, self.entry)

    def store_secrets(self) -> str | None:
        """Store the secrets for this server. Return a phrase that tells users where they are
        stored, or None if the entry has no secrets.

        Raises:
            StoredSecretError: a secret cannot be stored.
        """
        stored_in: str | None = None
        owner = secret_owner(self.file.path)
        servers: dict[str, str] = {}
        if owner.file is not None:
            servers[self.name] = entry_digest(_parsed(self.name, self.entry))
        for secret, value in self.recognised.values.items():
            stored_in = set_secret(owner, secret, value, servers)
        return stored_in

    def left_secrets(self) -> list[str]:
        """Return the names of the stored secrets that only the replaced entry uses. These secrets
        are kept, so that the change can be undone.
        """
        named = secrets_named_in(self.entry)
        return [secret for secret in secrets_named_in(self.before) if secret not in named]


def plan_addition(
    file: EntryFile,
    name: str,
    typed: JSONObject,
    chosen: Mapping[str, bool] = _NOTHING_CHOSEN,
) -> PlannedEntry:
    """Check a new entry, and choose names for its secrets. This function does not write anything.

    Args:
        file: the file that receives the entry.
        name: the name of the server.
        typed: the entry as a person wrote it, with its secrets.
        chosen: the person's decisions, by place, on whether a value is a secret; see
            `recognise_secrets`.

    Raises:
        ConfigurationError: the entry is invalid.
        EntryError: the file can be part of a repository, and the entry has a value that looks like
            a secret.
        ServerExistsError: the file already has a server with this name.
        StoredSecretError: the stored secrets cannot be read.
    """
    if name in file.servers:
        raise ServerExistsError(
            f"{file.path} already has a server named {name!r}; run `ideabridge servers remove "
            f"{name}` to remove it"
        )

    return _planned(file, name, None, typed, chosen)


def plan_change(
    file: EntryFile,
    name: str,
    typed: JSONObject,
    chosen: Mapping[str, bool] = _NOTHING_CHOSEN,
) -> PlannedEntry:
    """Check an entry that replaces the one named `name`, and choose names for its new secrets. This
    function does not write anything.

    Values that are already in the file are left unchanged, unless the file can be part of a
    repository.

    Args:
        file: the file that has the entry.
        name: the name of the server.
        typed: the whole new entry, with its new secrets.
        chosen: the person's decisions, by place, on whether a value is a secret; see
            `recognise_secrets`.

    Raises:
        ConfigurationError: the entry is invalid.
        EntryError: nothing would change, or the file can be part of a repository and the entry has
            a value that looks like a secret.
        StoredSecretError: the stored secrets cannot be read.
    """
    before = file.entry(name)
    if before == typed and not any(chosen.values()):
        raise EntryError(f"nothing would change: {name} already has these settings")

    kept: dict[str, bool] = {}
    if not file.in_repository:
        texts = {hidden.text for hidden in hidden_in(before)}
        kept = {hidden.place: False for hidden in hidden_in(typed) if hidden.text in texts}
    return _planned(file, name, before, typed, {**kept, **chosen})


def _planned(
    file: EntryFile,
    name: str,
    before: JSONObject | None,
    typed: JSONObject,
    chosen: Mapping[str, bool],
) -> PlannedEntry:
    recognised = _without_secrets(name, typed, file, chosen)
    return PlannedEntry(file, name, before, recognised, _check_entry(name, recognised.entry, file))


def _without_secrets(
    name: str, entry: JSONObject, file: EntryFile, chosen: Mapping[str, bool]
) -> RecognisedSecrets:
    """Return the entry with each secret replaced by `${secret:NAME}`. The names are new: no stored
    secret has any of them.
    """
    owner = secret_owner(file.path)
    recognised = recognise_secrets(name, entry, chosen=chosen)
    number = 2
    while any(find_secret(owner, secret) is not None for secret in recognised.values):
        recognised = recognise_secrets(f"{name}-{number}", entry, chosen=chosen)
        number += 1
    return recognised


def carry_secrets(file: EntryFile, name: str, before: JSONObject, after: JSONObject) -> None:
    """Let a changed entry use the stored secrets that it still names, and that it was allowed to
    use before the change.

    Call this only for a change that a person has reviewed, because the entry might send the secrets
    elsewhere.

    Raises:
        ConfigurationError: the new entry is invalid.
        StoredSecretError: the stored secrets cannot be read or written.
    """
    owner = secret_owner(file.path)
    if owner.file is None:
        # Every server in the user's own file can use the stored secrets, so there is nothing to
        # carry over.
        return

    try:
        former = entry_digest(_parsed(name, before))
    except ConfigurationError:
        # The previous entry could not be used, so it had no access to secrets.
        return

    digest = entry_digest(_parsed(name, after))
    still_named = secrets_named_in(after)
    for secret_name in secrets_named_in(before):
        secret = find_secret(owner, secret_name)
        is_allowed = secret is not None and secret.servers.get(name) == former
        if secret is not None and is_allowed and secret_name in still_named:
            allow_secret(owner, secret_name, {**secret.servers, name: digest})


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A changed setting of an entry. The texts contain no secrets.

    Attributes:
        name: `starts` for the command, `calls` for the address, and otherwise the key, followed by
            the name of the variable or header (`env.REGION`).
        before: the previous value, or None if the setting was not set.
        after: the new value, or None if the setting is no longer set.
    """

    name: str
    before: str | None
    after: str | None


def setting_changes(before: JSONObject, after: JSONObject) -> list[SettingChange]:
    """Return the settings that differ between two entries. Those of the old entry come first, then
    the new ones.
    """
    former = _shown_settings(before)
    present = _shown_settings(after)
    values_before = _settings(before)
    values_after = _settings(after)
    changes: list[SettingChange] = []
    for name in dict.fromkeys([*former, *present]):
        if values_before.get(name) == values_after.get(name):
            continue

        now = present.get(name)
        if now is not None and now == former.get(name):
            now = f"{now} (another value, which is not shown)"
        changes.append(SettingChange(name, former.get(name), now))

    return changes


def _shown_settings(entry: JSONObject) -> dict[str, str]:
    """Return the settings of an entry without its secrets."""
    return _settings(shown_definition(entry))


def _settings(entry: JSONObject) -> dict[str, str]:
    """Return each setting of an entry as text."""
    settings: dict[str, str] = {}
    if "command" in entry or "url" in entry:
        name = "starts" if "command" in entry else "calls"
        start = str(entry.get("command", entry.get("url")))
        words = list_or_empty(entry.get("args"))
        settings[name] = shlex.join([start, *map(str, words)]) if words else start

    for key, value in entry.items():
        if key in ("command", "args", "url"):
            continue
        if isinstance(value, dict):
            settings.update({f"{key}.{member}": _plain(part) for member, part in value.items()})
        else:
            settings[key] = _plain(value)

    return settings


def _plain(value: JSON) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return plain_text(value)


def _check_entry(name: str, entry: JSONObject, file: EntryFile) -> list[str]:
    """Return where an entry still has values that look like secrets.

    Raises:
        ConfigurationError: the entry is invalid.
        EntryError: the file can be part of a repository, and the entry has a secret.
    """
    _parsed(name, entry)
    places = list(dict.fromkeys(hidden.place for hidden in hidden_in(entry)))
    if places and file.in_repository:
        contain = "contains" if len(places) == 1 else "contain"
        raise EntryError(
            f"{', '.join(places)} {contain} what looks like a secret, and {file.path} may be in a "
            "repository. Write ${VAR} in its place, and set the variable"
        )
    return places


def _parsed(name: str, entry: JSONObject) -> ModuleConfiguration:
    check_server_entry(name, entry, project=Path.cwd())
    return parse_configuration({"mcpServers": {name: entry}}, project=Path.cwd()).modules[name]


def is_on(entry: JSONObject) -> bool:
    """Return whether an entry turns its server on."""
    return not (entry.get("disabled") is True or entry.get("enabled") is False)


def switched(entry: JSONObject, *, on: bool) -> JSONObject:
    """Return a copy of an entry with its server turned on or off."""
    changed: JSONObject = {key: value for key, value in entry.items() if key not in _OFF}
    if not on:
        changed["disabled"] = True
    return changed


def secrets_named_in(entry: JSON) -> list[str]:
    """Return the names of the stored secrets that an entry uses, each only once."""
    return list(dict.fromkeys(_SECRET.findall(encode_text(entry))))


def missing_program(entry: JSONObject) -> str | None:
    """Return the entry's command if the program is not installed on this machine, and None
    otherwise.
    """
    word = read_as(ServerStart, entry).command
    if word is None or "$" in word:
        return None
    program = os.path.expanduser(word)  # noqa: PTH111 - there may be no home
    return None if shutil.which(program) is not None else word


def readable_values(entry: JSONObject) -> list[str]:
    """Return where the entry contains values of variables and headers in plain text, rather than as
    references to stored secrets or variables.
    """
    return [
        f"{part}.{name}"
        for part in ("env", "headers")
        for name, value in object_or_empty(entry.get(part)).items()
        if value != "" and not _REFERENCE.search(str(value))
    ]


def started_by(entry: JSONObject) -> str:
    """Return a server's command line or address, without secrets."""
    return start_line(shown_definition(entry))


def start_line(shown: JSONObject) -> str:
    """Return the command line or address in an entry returned by `shown_definition`."""
    if "command" not in shown:
        return str(shown.get("url", ""))
    return shlex.join(map(str, [shown["command"], *list_or_empty(shown.get("args"))]))


def keep_trust(before: ProjectTrust, expected: str) -> bool:
    """Trust a project file again after a change that only removes something. Return False if
    another program has changed the file, or a file that it names, in the meantime.

    Args:
        before: the trust in the file before the change.
        expected: the digest that the file should have now.
    """
    trusted = {**before.found.covered(before.data), before.found.file.name: expected}
    found = look_at(before.found.file)
    data = before.data & found.data_files.keys()
    if not found.covered(data).items() <= trusted.items():
        return False
    keep_trusted(found, data)
    return True
