"""A key-value table of bytes, for data without its own table."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, cast

from ideabridge.bridge.store.database import Database

_SIGN_INS: Final = "sign_in_key"


class StoredSettings:
    """Settings by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> bytes | None:
        """Return the value of a setting, or None if it is not set."""
        with self._database.guard:
            row = self._database.execute(
                "SELECT value FROM settings WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else cast("bytes", row[0])

    def under(self, prefix: str) -> dict[str, bytes]:
        """Return the settings whose keys begin with `prefix`, which must be ASCII."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?",
                (prefix, f"{prefix}\x7f"),
            ).fetchall()
        return {str(key): cast("bytes", value) for key, value in rows}

    def set(self, key: str, value: bytes, *, notice: str | None = None) -> None:
        """Store a setting, and notify other processes of the change."""
        with self._database.transaction(concurrent=True):
            self._database.change(
                "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE "
                "SET value = ?2",
                (key, value),
            )
            if notice is not None:
                self._database.notifier.notify(notice)

    def replace(self, key: str, value: bytes, *, notice: str | None = None) -> bool:
        """Replace a setting, and notify other processes of the change. Return False if the setting
        was not set.
        """
        with self._database.transaction(concurrent=True):
            cursor = self._database.change(
                "UPDATE settings SET value = ? WHERE key = ?", (value, key)
            )
            if notice is not None:
                self._database.notifier.notify(notice)
            return cursor.rowcount == 1

    def change(self, key: str, change: Callable[[bytes], bytes]) -> None:
        """Atomically replace a setting with `change(value)`. If the setting is not set, `value` is
        b"".
        """
        with self._database.transaction():
            self.set(key, change(self.get(key) or b""))

    def ensure(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of a setting, creating it if it is not set. If two processes create it
        at the same time, both get the same value.
        """
        value = self.get(key)
        if value is None:
            with self._database.transaction():
                value = self.get(key)
                if value is None:
                    value = make()
                    self.set(key, value)

        return value

    def sign_in_key(self, *, make: bool = False) -> str:
        """Return the key that distinguishes this store's users from those of other stores when they
        sign in to servers.

        If the store has no key, create one if `make` is set, otherwise return "".
        """
        if make:
            key = self.ensure(_SIGN_INS, lambda: secrets.token_bytes(16))
        else:
            key = self.get(_SIGN_INS)
        return (key or b"").hex()

    def delete(self, key: str) -> bool:
        """Delete a setting. Return False if it was not set. If two processes delete it at the same
        time, only one of them gets True.
        """
        return self._database.change("DELETE FROM settings WHERE key = ?", (key,)).rowcount == 1
