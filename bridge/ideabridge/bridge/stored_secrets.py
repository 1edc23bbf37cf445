"""The values of `${secret:NAME}` in the entries of servers.

A person stores them with `ideabridge secrets set`. The values are in the system's keyring or,
without a keyring, in `secrets.json` in the user's data folder, a file that only the user can read.
That file also lists the names of all secrets, because a keyring cannot list them.

Each secret belongs to one configuration file: either the user's own or another, such as a
project's. An entry can read only the secrets that belong to its file, so a project's file cannot
name a secret of the user's own servers. If the file is not the user's own, the secret is also bound
to the servers for which it was stored, as they were defined at that time. If the entry of such a
server changes, a person must allow it again, because the changed server might send the secret
elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

import platformdirs

from ideabridge.bridge.keyring import Keyring, KeyringError, NoKeyringError
from ideabridge.bridge.secrets import NAME_PATTERN
from ideabridge.bridge.trust import (
    FILE_NAME,
    TrustError,
    locked,
    read_own,
    shell_words,
    write_own,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible

MAX_SECRET: Final = 32_768
"""Maximum length of a value, in characters."""

_MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class StoredSecretError(IdeabridgeError):
    """A secret is missing, or cannot be read, stored or used.

    The message says why, and what to do.
    """


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret. The value is included only if it is in `secrets.json`.

    Attributes:
        name: its name.
        file: the configuration file to which the secret belongs, or None for the user's own file.
        place: `keyring`, or `file` if the value is in `secrets.json`.
        servers: the servers that are allowed to use the secret, each with the digest of its entry
            (`entry_digest`). Every server in the user's own file is allowed to use a secret of this
            file.
        value: the value, if it is in `secrets.json`.
        set_at: the time when the value was stored, in seconds since 1970, or 0 if it is not known.
    """

    name: str
    file: str | None
    place: Literal["keyring", "file"]
    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    value: str | None = field(default=None, repr=False)
    set_at: float = 0.0

    @property
    def keyring_name(self) -> str:
        """The name of the secret's entry in the keyring."""
        return f"secret {self.name}" if self.file is None else f"secret {self.name} of {self.file}"


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """The configuration file whose secrets an entry is allowed to read.

    Attributes:
        file: the path of the file, with the links of its folder resolved, or None for the user's
            own configuration.
    """

    file: str | None = None

    @property
    def shown(self) -> str:
        """A description of the owner of the secrets, for users."""
        return "your own configuration" if self.file is None else visible(self.file)

    def set_command(self, name: str) -> str:
        """Return the command that stores a secret."""
        return self._command("set", name)

    def allow_command(self, name: str) -> str:
        """Return the command that lets changed entries use a secret."""
        return self._command("allow", name)

    def _command(self, verb: str, name: str) -> str:
        words = ["ideabridge", "secrets", verb, name]
        if self.file is not None:
            words += ["--config", self.file]
        return shell_words(words)


def secret_owner(file: Path | None) -> SecretOwner:
    """Return the owner of the secrets that the entries in a configuration file are allowed to read.

    Entries that are not from a file belong to a program, which can read everything that its user
    can read.
    """
    if file is None:
        return SecretOwner()

    own = platformdirs.user_config_path("ideabridge") / FILE_NAME
    if os.path.realpath(file) == os.path.realpath(own):
        return SecretOwner()
    return SecretOwner(str(Path(os.path.realpath(file.parent)) / file.name))


def secrets_path() -> Path:
    """Return the path of `secrets.json`."""
    return platformdirs.user_data_path("ideabridge") / "secrets.json"


def secret_name_problem(name: str) -> str | None:
    """Return why the name of a secret is invalid, or None if it is valid."""
    if re.fullmatch(NAME_PATTERN, name):
        return None
    return (
        f"{visible(name[:100])!r} is not a valid name for a secret: expected at most 100 letters, "
        "digits, '_', '-' and '.', beginning with a letter, a digit or '_'"
    )


def stored_secrets() -> list[StoredSecret]:
    """Return all secrets, sorted by file and name.

    Raises:
        StoredSecretError: `secrets.json` cannot be read, or others can read it.
    """
    try:
        stored = _read(secrets_path())
    except FileNotFoundError:
        return []
    except TrustError as error:
        raise StoredSecretError(str(error)) from None
    except OSError as error:
        raise StoredSecretError(
            f"{secrets_path()} cannot be read: {error.strerror or error}"
        ) from None
    return sorted(stored, key=lambda secret: (secret.file or "", secret.name))


def find_secret(owner: SecretOwner, name: str) -> StoredSecret | None:
    """Return the secret with this name, or None if the file has no such secret.

    Raises:
        StoredSecretError: `secrets.json` cannot be read.
    """
    matches = (
        secret for secret in stored_secrets() if (secret.file, secret.name) == (owner.file, name)
    )
    return next(matches, None)


def secret_value(owner: SecretOwner, name: str, server: str, digest: str) -> str:
    """Return the value of a secret for one server. Blocks.

    Args:
        owner: the file that contains the server's entry.
        name: the name of the secret.
        server: the name of the server.
        digest: the digest of the server's entry (`entry_digest`).

    Raises:
        StoredSecretError: the secret does not exist or cannot be read, or the server is not allowed
            to use it.
    """
    secret = find_secret(owner, name)
    if secret is None:
        raise StoredSecretError(f"the secret {name} is not stored; run: {owner.set_command(name)}")
    if owner.file is not None and secret.servers.get(server) != digest:
        raise StoredSecretError(
            f"the secret {name} was stored for other servers, or for this one before its entry "
            f"changed; to review the entry and allow it: {owner.allow_command(name)}"
        )

    if secret.value is not None:
        return secret.value

    try:
        value = Keyring().read(secret.keyring_name)
    except NoKeyringError as error:
        raise StoredSecretError(
            f"the secret {name} is in the keyring, which is not available: {error}; if there is no "
            f"keyring, run: {owner.set_command(name)}"
        ) from error
    except KeyringError as error:
        raise StoredSecretError(
            f"the keyring with the secret {name} cannot be read: {error}"
        ) from error

    if value is None:
        raise StoredSecretError(
            f"the secret {name} is no longer in the keyring; run: {owner.set_command(name)}"
        )
    return value


def set_secret(owner: SecretOwner, name: str, value: str, servers: Mapping[str, str]) -> str:
    """Store a secret in the keyring or, if that cannot be used, in `secrets.json`. Blocks.

    Return a phrase that tells users where the secret is stored.

    Args:
        owner: the configuration file that the secret belongs to.
        name: its name.
        value: its value.
        servers: the servers that are allowed to use the secret; see `StoredSecret`.

    Raises:
        StoredSecretError: the name or the value is not valid, or the file cannot be written.
    """
    problem = secret_name_problem(name) or _value_problem(value)
    if problem is not None:
        raise StoredSecretError(problem)

    secret = StoredSecret(name, owner.file, "keyring", servers, set_at=time.time())
    refusal = _to_keyring(secret.keyring_name, value)
    if refusal is not None:
        secret = replace(secret, place="file", value=value)

    def change(secrets: _Secrets) -> None:
        secrets[secret.file, secret.name] = secret

    _change(change)
    if refusal is None:
        return "the keyring"
    return f"{secrets_path()}, which only you can read ({refusal})"


def allow_secret(owner: SecretOwner, name: str, servers: Mapping[str, str]) -> None:
    """Let only these servers use a stored secret.

    Raises:
        StoredSecretError: the secret does not exist, or the file cannot be written.
    """

    def change(secrets: _Secrets) -> None:
        key = owner.file, name
        if key not in secrets:
            raise StoredSecretError(
                f"the secret {name} is not stored; run: {owner.set_command(name)}"
            )
        secrets[key] = replace(secrets[key], servers=servers)

    _change(change)


def remove_secret(owner: SecretOwner, name: str) -> bool:
    """Remove a secret. Return whether the secret existed. Blocks.

    Raises:
        StoredSecretError: the secret cannot be removed from the keyring or the file. It is still
            listed.
    """
    secret = find_secret(owner, name)
    if secret is None:
        return False

    if secret.place == "keyring":
        _delete_from_keyring(secret)

    def change(secrets: _Secrets) -> None:
        secrets.pop((secret.file, secret.name), None)

    _change(change)
    return True


# -- the keyring -----------------------------------------------------------------------------------


def _to_keyring(name: str, value: str) -> str | None:
    """Put a value into the keyring. Return the reason for a failure, or None."""
    keyring = Keyring()
    try:
        keyring.write(name, value)
        if keyring.read(name) == value:
            return None
        refusal = "the keyring did not store it"
    except NoKeyringError as error:
        return str(error)
    except KeyringError as error:
        first_sentence, _, _ = str(error).partition(". ")
        refusal = f"the keyring refuses it: {first_sentence.rstrip('.')[:200]}"

    with suppress(KeyringError, NoKeyringError):
        keyring.delete(name)
    return refusal


def _delete_from_keyring(secret: StoredSecret) -> None:
    keyring = Keyring()
    try:
        if keyring.read(secret.keyring_name) is not None:
            keyring.delete(secret.keyring_name)
    except (KeyringError, NoKeyringError) as error:
        raise StoredSecretError(
            f"the keyring cannot delete the secret {secret.name}: {error}"
        ) from error


def _value_problem(value: str) -> str | None:
    if not value:
        return "the value is empty"
    if "\0" in value:
        return "the value contains a NUL character, which commands and headers cannot contain"
    if len(value) > MAX_SECRET:
        return f"the value has {len(value):,} characters; the limit is {MAX_SECRET:,}"
    return None


# -- the file --------------------------------------------------------------------------------------

_Secrets = dict[tuple[str | None, str], StoredSecret]


def _change(change: Callable[[_Secrets], None]) -> None:
    """Change the secrets in `secrets.json`, holding a lock against other processes."""
    path = secrets_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(path.with_name(f"{path.name}.lock")):
            secrets = {(secret.file, secret.name): secret for secret in stored_secrets()}
            change(secrets)
            # If the file is a link, replace its target.
            write_own(Path(os.path.realpath(path)), _text(secrets.values()))
    except OSError as error:
        raise StoredSecretError(f"{path} cannot be written to: {error.strerror or error}") from None


def _text(secrets: Iterable[StoredSecret]) -> str:
    listed = [
        {
            "name": secret.name,
            "file": secret.file,
            "place": secret.place,
            "servers": dict(secret.servers),
            "set_at": secret.set_at,
            **({} if secret.value is None else {"value": secret.value}),
        }
        for secret in secrets
    ]
    return json.dumps({"version": 1, "secrets": listed}, indent=1)


def _read(path: Path) -> list[StoredSecret]:
    _check_private(path)
    data = read_own(path, _MAX_FILE_BYTES)
    try:
        document = cast("dict[str, Any]", json.loads(data))
        if document["version"] != 1:
            raise ValueError("version")
        return [_from_json(entry) for entry in document["secrets"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoredSecretError(
            f"{path} was not written by ideabridge; expected the list of stored secrets. Move "
            "the file away and store the secrets again"
        ) from None


def _from_json(entry: Any) -> StoredSecret:
    name = entry["name"]
    file = entry["file"]
    place = entry["place"]
    value = entry.get("value")
    is_text = isinstance(name, str) and isinstance(file, str | None)
    if (
        not is_text
        or place not in ("keyring", "file")
        or isinstance(value, str) != (place == "file")
    ):
        raise ValueError("secret")

    servers = {str(server): str(digest) for server, digest in entry["servers"].items()}
    return StoredSecret(name, file, place, servers, value, float(entry.get("set_at", 0.0)))


def _check_private(path: Path) -> None:
    """Raise an error unless the path leads to a regular file that other users cannot read."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise StoredSecretError(f"{path} is not a regular file")
    if sys.platform != "win32" and about.st_mode & 0o077:
        raise StoredSecretError(
            f"{path} is not used, because other users may read or write it (mode "
            f"{stat.S_IMODE(about.st_mode):04o}); run: chmod 600 {shlex.quote(str(path))}"
        )
