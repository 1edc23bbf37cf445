"""Replace the secrets in servers' entries with references (`${secret:NAME}`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.configuration import ConfigurationError, parse_configuration
from ideabridge.bridge.masking import MASK
from ideabridge.bridge.modules.settings import entry_digest
from ideabridge.bridge.recognising import (
    recognise_secrets,
    secret_names_in,
    with_secret_values,
)
from ideabridge.bridge.stored_secrets import (
    MAX_SECRET,
    NAME_PATTERN,
    SecretOwner,
    StoredSecretError,
    secret_owner,
    secret_value,
    stored_secrets,
)
from ideabridge.server.hosts.adopt import Destination, Destinations
from ideabridge.tools.encoding import JSONObject

_REFERENCE: Final = re.compile(rf"(?<!\$)\$\{{secret:({NAME_PATTERN})\}}")

_Key = tuple[str | None, str]
"""The file that a secret belongs to, as in `StoredSecret`, and the secret's name."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret that a setup stores.

    Attributes:
        owner: the configuration that the secret belongs to.
        name: the name of the secret.
        value: the value of the secret.
    """

    owner: SecretOwner
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExtractedEntry:
    """An entry without its secrets.

    Attributes:
        entry: the entry with references instead of secrets.
        secrets: the secrets that are not stored yet.
        left: where secrets remain in the entry.
    """

    entry: JSONObject
    secrets: tuple[NewSecret, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """The stored secrets.

    Attributes:
        names: the names of the secrets, with their owners.
        values: the values of the secrets named by entries in the configurations. Secrets that
            cannot be read are missing.
    """

    names: frozenset[_Key] = frozenset()
    values: Mapping[_Key, str] = field(default_factory=dict[_Key, str], repr=False)

    def filled(self, target: Destination, entry: JSONObject) -> JSONObject | None:
        """Return an entry from a configuration with the values of its secrets filled in, or None if
        a secret cannot be read.
        """
        owner = secret_owner(target.file)
        names = secret_names_in(entry)
        if any((owner.file, name) not in self.values for name in names):
            return None

        return with_secret_values(entry, {name: self.values[owner.file, name] for name in names})


def masked(entry: JSONObject) -> JSONObject:
    """Return an entry with every secret and every `${secret:NAME}` replaced by the same mark."""
    named = recognise_secrets("", entry).entry
    return with_secret_values(named, dict.fromkeys(secret_names_in(named), MASK))


def known_secrets(targets: Destinations) -> KnownSecrets:
    """Read the secrets named by the entries in the configurations. This function blocks.

    Raises:
        StoredSecretError: the list of secrets cannot be read.
    """
    values: dict[_Key, str] = {}
    for target in targets.all:
        owner = secret_owner(target.file)
        for server, entry in target.servers.items():
            names = secret_names_in(entry)
            if not names or not isinstance(entry, dict):
                continue
            try:
                read = parse_configuration({"mcpServers": {server: entry}}).modules[server]
                digest = entry_digest(read)
                for name in names:
                    values[owner.file, name] = secret_value(owner, name, server, digest)
            except (ConfigurationError, StoredSecretError):
                # Compare the entry without its secrets if they cannot be read.
                continue

    return KnownSecrets(
        frozenset((secret.file, secret.name) for secret in stored_secrets()), values
    )


class Extraction:
    """Replaces secrets in entries, giving each secret a unique name.

    Args:
        known: the stored secrets.
    """

    def __init__(self, known: KnownSecrets) -> None:
        # For each stored secret, its value, or None if it could not be read.
        self._values: dict[_Key, str | None] = {key: known.values.get(key) for key in known.names}
        self._stored = known.names

    def extracted(self, target: Destination, server: str, entry: JSONObject) -> ExtractedEntry:
        """Return an entry without its secrets."""
        owner = secret_owner(target.file)
        recognised = recognise_secrets(server, entry)
        names: dict[str, str] = {}
        references: dict[str, str] = {}
        for wanted, value in recognised.values.items():
            if len(value) <= MAX_SECRET and "\0" not in value:
                names[wanted] = self._name(owner, wanted, value)
                references[wanted] = f"${{secret:{names[wanted]}}}"
            else:
                references[wanted] = value

        new_secrets: list[NewSecret] = []
        for wanted, name in names.items():
            if (owner.file, name) not in self._stored:
                new_secrets.append(NewSecret(owner, name, recognised.values[wanted]))

        entry_without_secrets = with_secret_values(recognised.entry, references)
        return ExtractedEntry(entry_without_secrets, tuple(new_secrets), recognised.left)

    def _name(self, owner: SecretOwner, wanted: str, value: str) -> str:
        """Return a name for a value: `wanted`, unless another value already has it."""
        numbered = (f"{wanted[:90]}-{number}" for number in itertools.count(2))
        for name in itertools.chain([wanted], numbered):
            key = owner.file, name
            if key not in self._values or self._values[key] == value:
                self._values[key] = value
                return name

        raise AssertionError("the numbers never end")
