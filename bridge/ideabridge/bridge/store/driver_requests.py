"""Store requests from other processes to the process that drives a run.

A request is stored as a setting: `cancel RUN`, or `ask MARK.RUN` with an event that the driver
should accept. The driver polls these settings, and answers `ask` under the same key:

| value of `ask MARK.RUN` | meaning |
|---|---|
| `{"event": ...}` | the request is open and can still be withdrawn |
| `{}` | the driver has begun to process the event |
| `{"error": ...}` | the answer: null, or why the driver did not accept the event |
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
    """Requests from other processes to a run's driver, either to cancel the run or to accept an
    event.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask the driver of a run to cancel it."""
        self._settings.set(f"{_CANCEL}{run_id}", reason.encode(), notice="ask")

    def cancels(self) -> dict[str, str]:
        """Return the runs to cancel, each with the reason."""
        settings = self._settings.under(_CANCEL)
        return {key.removeprefix(_CANCEL): value.decode() for key, value in settings.items()}

    def forget_cancel(self, run_id: str) -> None:
        """Delete the request to cancel a run, after the run has been cancelled."""
        self._settings.delete(f"{_CANCEL}{run_id}")

    def ask(self, run_id: str, event: JSONObject) -> str:
        """Ask the driver of a run to accept an event, and return the key of the request.

        Raises:
            InvalidJSONError: the event is not JSON.
        """
        # Use the form KIND.RUN, because pruning a run deletes the keys of this form.
        key = f"{_ASK}{secrets.token_hex(8)}.{run_id}"
        self._settings.set(key, encode({"event": event}), notice="ask")
        return key

    def open(self) -> list[tuple[str, str, JSONObject]]:
        """Return `(key, run, event)` for each request that no driver has begun to process yet."""
        requests: list[tuple[str, str, JSONObject]] = []
        for key, value in self._settings.under(_ASK).items():
            event = cast("JSONObject", decode_trusted(value)).get("event")
            if isinstance(event, dict):
                requests.append((key, key.partition(".")[2], event))

        return requests

    def begin(self, key: str) -> bool:
        """Begin to process a request. Return False if it was withdrawn."""
        return self._settings.replace(key, _BEGUN)

    def withdraw(self, key: str) -> bool:
        """Delete a request. Return False if the driver has already begun to process it."""
        cursor = self._database.change(
            "DELETE FROM settings WHERE key = ? AND value <> ?", (key, _BEGUN)
        )
        return cursor.rowcount == 1

    def answer(self, key: str, error: str | None) -> None:
        """Answer a request with None if the driver accepted the event, otherwise with the reason
        why it did not. If the request was deleted, this has no effect.
        """
        self._settings.replace(key, encode({"error": error}))

    def answer_to(self, key: str) -> JSONObject | None:
        """Return the driver's answer, `{"error": reason or null}`, or None if it has not answered
        yet.
        """
        value = self._settings.get(key)
        if value is None:
            answer: JSONObject = {"error": None}
        else:
            answer = cast("JSONObject", decode_trusted(value))
        return answer if "error" in answer else None

    def forget(self, key: str) -> None:
        """Delete a request that nobody is waiting for any longer."""
        self._settings.delete(key)
