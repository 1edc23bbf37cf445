"""Keyrings for tests: backends of the package `keyring`, chosen through its public interface.

`conftest.py` tells every process of the tests that there is no keyring, so no test reads or writes
the one of the machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.compat import properties

HELD_IN = "TESTS_KEYRING"
"""The variable that names the file of a `FileKeyring`."""


class FakeKeyring(KeyringBackend):
    """A keyring in memory.

    Attributes:
        held: the texts, by service and name.
        failure: what every method raises, if anything.
    """

    @properties.classproperty
    def priority(self) -> float:
        return 9

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.failure: Exception | None = None

    def get_password(self, service: str, username: str) -> str | None:
        self._fail()
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._fail()
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._fail()
        del self.held[service, username]

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class FileKeyring(KeyringBackend):
    """A keyring that several processes share, in the file that `HELD_IN` names."""

    @properties.classproperty
    def priority(self) -> float:
        return 9

    def get_password(self, service: str, username: str) -> str | None:
        return self._held().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._held(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        held = self._held()
        del held[f"{service}/{username}"]
        self._write(held)

    def _held(self) -> dict[str, str]:
        path = Path(os.environ[HELD_IN])
        return json.loads(path.read_text()) if path.exists() else {}

    def _write(self, held: dict[str, str]) -> None:
        Path(os.environ[HELD_IN]).write_text(json.dumps(held))


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    """A keyring that this process finds until the test ends."""
    backend = FakeKeyring()
    use(monkeypatch, backend)
    return backend


def without_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keyring for this process, as on a machine without a desktop."""
    use(monkeypatch, fail.Keyring())


def use(monkeypatch: pytest.MonkeyPatch, backend: KeyringBackend) -> None:
    """Let this process find a backend until the test ends."""
    before = keyring.get_keyring()
    # `setattr` by itself would not undo what `set_keyring` does.
    monkeypatch.setattr(keyring.core, "_keyring_backend", before)
    keyring.set_keyring(backend)
