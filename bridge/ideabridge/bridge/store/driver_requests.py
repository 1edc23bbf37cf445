"""DriverRequests: requests of other processes to the process that drives a run.

A request is a setting: `cancel RUN`, or `ask MARK.RUN` with an event to take. The driver polls
them, and answers `ask` under the same key:

| value of `ask MARK.RUN` | meaning |
|---|---|
| `{"event": ...}` | the request is open and can be withdrawn |
| `{}` | the driver takes the event |
| `{"error": ...}` | the answer: null, or why the driver did not take the event |
"""

from __future__ import annotations

import secrets
from typing import Final, cast

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.settings import StoredSettings
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode

_ASK: Final = "ask "
_BEGUN: Final = b"{}"
_CANCEL: Final = "cancel "


class DriverRequests:
    """Requests of other processes to the process that drives a run: to cancel it, or
    to take an event.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask the driver of a run to cancel it."""
        self._settings.set(f"{_CANCEL}{run_id}", reason.encode(), notice="ask")

    def cancels(self) -> dict[str, str]:
        """Run -> reason, for the requests to cancel a run."""
        settings = self._settings.under(_CANCEL)
        return {key.removeprefix(_CANCEL): value.decode() for key, value in settings.items()}

    def forget_cancel(self, run_id: str) -> None:
        """Delete the request: the run is cancelled."""
        self._settings.delete(f"{_CANCEL}{run_id}")

    def ask(self, run_id: str, event: JSONObject) -> str:
        """Ask the driver of a run to take an event; returns the key of the request.

        Raises:
            InvalidJSONError: it is not JSON.
        """
        # Pruning deletes the keys KIND.RUN with the run.
        key = f"{_ASK}{secrets.token_hex(8)}.{run_id}"
        self._settings.set(key, encode({"event": event}), notice="ask")
        return key

    def open(self) -> list[tuple[str, str, JSONObject]]:
        """Return (key, run, event) of the requests that no driver has begun to take."""
        requests: list[tuple[str, str, JSONObject]] = []
        for key, value in self._settings.under(_ASK).items():
            event = cast("JSONObject", decode_trusted(value)).get("event")
            if isinstance(event, dict):
                requests.append((key, key.partition(".")[2], event))

        return requests

    def begin(self, key: str) -> bool:
        """Begin to take an event; return False if the request was withdrawn."""
        return self._settings.replace(key, _BEGUN)

    def withdraw(self, key: str) -> bool:
        """Delete a request; return False if the driver has begun to take the event."""
        cursor = self._database.change(
            "DELETE FROM settings WHERE key = ? AND value <> ?", (key, _BEGUN)
        )
        return cursor.rowcount == 1

    def answer(self, key: str, error: str | None) -> None:
        """Answer a request: None if the event was taken, or the reason why not. No effect if
        it was deleted.
        """
        self._settings.replace(key, encode({"error": error}))

    def answer_to(self, key: str) -> JSONObject | None:
        """Return `{"error": why the event was not taken, or null}`; None if the driver
        has not answered.
        """
        value = self._settings.get(key)
        if value is None:
            answer: JSONObject = {"error": None}
        else:
            answer = cast("JSONObject", decode_trusted(value))
        return answer if "error" in answer else None

    def forget(self, key: str) -> None:
        """Delete a request: nobody waits for its answer."""
        self._settings.delete(key)
