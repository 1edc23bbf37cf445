"""Read and write ideabridge's entries in the system's keyring.

This file uses the `keyring` package. The package is imported only when an entry is needed, because
importing it asks the desktop for its keyrings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Final, cast

from ideabridge.tools.errors import IdeabridgeError

ANSWER_SECONDS: Final = 20.0
"""Maximum time, in seconds, that a keyring can take to answer. Without this limit, a locked keyring
might wait forever for someone to type a password on an unattended desktop.
"""

PAUSE_SECONDS: Final = 60.0
"""How long, in seconds, a keyring that did not answer is left alone."""

_LEAST_PRIORITY: Final = 1
"""The minimum priority of a usable backend. The package gives a lower priority to backends that
store nothing, or that store passwords in files.
"""


class KeyringError(IdeabridgeError):
    """The keyring fails, for example because it is locked. The message comes from the keyring."""


class NoKeyringError(IdeabridgeError):
    """No keyring is available on this system."""


class Keyring:
    """ideabridge's entries in the system's keyring.

    Each method blocks for at most `ANSWER_SECONDS`. After a call that gets no answer, all calls in
    the process fail immediately for the next `PAUSE_SECONDS` seconds.

    Every method raises `NoKeyringError` if no keyring is available, and `KeyringError` if the
    keyring fails.
    """

    _SERVICE: Final = "ideabridge"
    _silent_until: ClassVar[float] = 0.0

    def read(self, name: str) -> str | None:
        """Return the text stored under a name, or None."""
        text = self._call(lambda backend: backend.get_password(self._SERVICE, name))
        return text if isinstance(text, str) else None

    def write(self, name: str, text: str) -> None:
        """Store a string under a name."""
        self._call(lambda backend: backend.set_password(self._SERVICE, name, text))

    def delete(self, name: str) -> None:
        """Delete the text stored under a name."""
        self._call(lambda backend: backend.delete_password(self._SERVICE, name))

    def _call(self, function: Callable[[Any], object]) -> object:
        if time.monotonic() < Keyring._silent_until:
            raise KeyringError("it did not answer a moment ago; it may be locked")

        call = _Call(function)
        # Use a daemon thread, so that a keyring that never answers cannot keep the process alive.
        thread = threading.Thread(target=call.run, name="keyring", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)
        if thread.is_alive():
            Keyring._silent_until = time.monotonic() + PAUSE_SECONDS
            raise KeyringError(
                f"it did not answer within {ANSWER_SECONDS:g} seconds; it may be locked and "
                "waiting to be unlocked"
            )
        if call.error is not None:
            raise call.error
        return call.result


class _Call:
    """One call to the package, in a separate thread.

    Attributes:
        result: the value that the package returned.
        error: the reason why there is no result, or None.
    """

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function
        self.result: object = None
        self.error: KeyringError | NoKeyringError | None = None

    def run(self) -> None:
        try:
            keyring: Any = import_module("keyring")
            backend = keyring.get_keyring()
            if cast("float", backend.priority) < _LEAST_PRIORITY:
                self.error = NoKeyringError("the package keyring has no backend on this system")
                return

            self.result = self._function(backend)
        except Exception as error:  # noqa: BLE001 - each backend raises its own errors
            self.error = KeyringError(str(error) or type(error).__name__)
