"""OwnerLinks: links that sign the owner in to the page."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Final

from ideabridge.bridge.store.settings import StoredSettings

LINK_SECONDS: Final = 600
"""The seconds for which a link of the owner can be used."""

_LINK: Final = "owner link "
"""The prefix of the key of a setting. Its value is the time until which the link can be used, in
seconds since 1970.
"""


class OwnerLinks:
    """Links each of which signs the owner in to the page once. Whoever can write the store can make
    one, and every server on the store accepts it. The store keeps only their hashes.
    """

    def __init__(self, settings: StoredSettings) -> None:
        self._settings = settings

    def make(self) -> str:
        """Make the secret key of a link that can be used within `LINK_SECONDS`."""
        now = time.time()
        for name, until in self._settings.under(_LINK).items():
            if float(until) < now:
                self._settings.delete(name)

        key = secrets.token_urlsafe(32)
        self._settings.set(_link_name(key), str(now + LINK_SECONDS).encode())
        return key

    def use(self, key: str) -> bool:
        """Use up a link. Return whether a link with this key existed and was recent enough."""
        until = self._settings.get(_link_name(key))
        return (
            until is not None
            and self._settings.delete(_link_name(key))
            and time.time() < float(until)
        )


def _link_name(key: str) -> str:
    return _LINK + hashlib.sha256(key.encode()).hexdigest()
