"""DriverRequests: requests from other processes to the process that drives a run.

A request is a setting: `cancel RUN`, or `ask MARK.RUN` with an event to take. The driver polls
these settings, and answers `ask` under the same key:

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
    """Requests from other processes to the process that drives a run, which ask it to cancel the
    run or to take an event.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask the driver of a run to cancel it."""
        self._settings.set(f"{_CANCEL}{run_id}", reason.encode(), notice="ask")

    def cancels(self) -> dict[str, str]:
        """Return the reason for each run that a request asks to cancel."""
        settings = self._settings.under(_CANCEL)
        return {key.removeprefix(_CANCEL): value.decode() for key, value in settings.items()}

    def forget_cancel(self, run_id: str) -> None:
        """Delete the request: the run is cancelled."""
        self._settings.delete(f"{_CANCEL}{run_id}")

    def ask(self, run_id: str, event: JSONObject) -> str:
        """Ask the driver of a run to take an event, and return the key of the request.

        Raises:
            InvalidJSONError: the event is not JSON.
        """
        # Pruning a run deletes the keys of the form KIND.RUN.
        key = f"{_ASK}{secrets.token_hex(8)}.{run_id}"
        self._settings.set(key, encode({"event": event}), notice="ask")
        return key

    def open(self) -> list[tuple[str, str, JSONObject]]:
        """Return (key, run, event) of each request that no driver has begun to take."""
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
        """Answer a request: with None if the driver took the event, else with the reason why not.
        This has no effect if the request was deleted.
        """
        self._settings.replace(key, encode({"error": error}))

    def answer_to(self, key: str) -> JSONObject | None:
        """Return `{"error": why the driver did not take the event, or null}`; None if it has not
        answered.
        """
        value = self._settings.get(key)
        if value is None:
            answer: JSONObject = {"error": None}
        else:
            answer = cast("JSONObject", decode_trusted(value))
        return answer if "error" in answer else None

    def forget(self, key: str) -> None:
        """Delete a request for whose answer nobody waits any more."""
        self._settings.delete(key)
