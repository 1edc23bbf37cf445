"""Create and check links that sign the owner in to the page."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Final

from ideabridge.bridge.store.settings import StoredSettings

LINK_SECONDS: Final = 600
"""How long, in seconds, an owner's link is valid."""

_LINK: Final = "owner link "
"""The prefix of a link's key in the settings. The value of the setting is the time when the link
expires, in seconds since 1970.
"""


class OwnerLinks:
    """Single-use links that sign the owner in to the page.

    Anyone who can write to the store can create such a link, and every server that uses the store
    accepts it. The store contains only hashes of the links.
    """

    def __init__(self, settings: StoredSettings) -> None:
        self._settings = settings

    def make(self) -> str:
        """Create a link that is valid for `LINK_SECONDS`, and return its secret key."""
        now = time.time()
        for name, until in self._settings.under(_LINK).items():
            if float(until) < now:
                self._settings.delete(name)

        key = secrets.token_urlsafe(32)
        self._settings.set(_link_name(key), str(now + LINK_SECONDS).encode())
        return key

    def use(self, key: str) -> bool:
        """Use up the link with the given key. Return whether it existed and had not expired."""
        until = self._settings.get(_link_name(key))
        return (
            until is not None
            and self._settings.delete(_link_name(key))
            and time.time() < float(until)
        )


def _link_name(key: str) -> str:
    return _LINK + hashlib.sha256(key.encode()).hexdigest()
