"""A keyring for tests, in place of the package `keyring`, which need not be installed."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

import pytest


class NoKeyringError(RuntimeError):
    """The package's own error where it finds no backend."""


class FakeKeyring(types.ModuleType):
    """What the package offers to programs.

    Attributes:
        held: the texts, by service and name.
        failure: what every function raises, if anything.
    """

    errors = types.SimpleNamespace(NoKeyringError=NoKeyringError)

    def __init__(self) -> None:
        super().__init__("keyring")
        self.__spec__ = ModuleSpec("keyring", None)
        self.held: dict[tuple[str, str], str] = {}
        self.failure: Exception | None = None

    def get_password(self, service: str, name: str) -> str | None:
        self._fail()
        return self.held.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self._fail()
        self.held[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        self._fail()
        del self.held[service, name]

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    """A keyring that programs find until the test ends."""
    keyring = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    return keyring


def without_backend(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    """A package that is installed and finds no backend, as on a machine without a desktop."""
    keyring = installed(monkeypatch)
    keyring.failure = NoKeyringError(
        "No recommended backend was available. Install a recommended 3rd party backend"
    )
    return keyring
