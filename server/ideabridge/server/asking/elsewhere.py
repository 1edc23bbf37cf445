"""Pass answers to calls that are parked on other servers with the same store (see `relaying`).

When a client repeats its request, a load balancer can send it to a server other than the one that
holds its call. The server that receives the request (the asker) writes the answers to the store.
The server that holds the call (the holder) passes them to the call and writes the outcome back:

    asker {"caller", "responses"}
    -> holder {"taken": n}, with another n every 3 s
    -> holder {"outcome"} -> deleted

The asker deletes the row early if its client disconnects. The holder then cancels the call.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.errors import ModuleOutputError, ModuleProtocolError, ModuleToolError
from ideabridge.bridge.modules.module_call import Answer
from ideabridge.bridge.modules.offering import wire
from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.asking.rounds import InputRequired, read_state
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode
from ideabridge.tools.errors import IdeabridgeError

_TOPIC: Final = "parked"
_LOOKS_SECONDS: Final = 0.5
_TAKES_SECONDS: Final = 5.0
"""Time limit, in seconds, for the holder to fetch the answers."""

_BEATS_SECONDS: Final = 3.0
_SILENT_SECONDS: Final = 15.0
"""How long, in seconds, until a silent holder is considered dead."""

_KEPT_SECONDS: Final = 30.0
"""How long, in seconds, the holder keeps an outcome that the asker does not fetch."""

_RESPONSES: Final[TypeAdapter[dict[str, types.InputResponse]]] = TypeAdapter(
    dict[str, types.InputResponse]
)

Resume: TypeAlias = Callable[[str, str, Mapping[str, types.InputResponse]], Awaitable[Any]]
"""Accepts (key, caller, responses). Returns the result of a call that is parked here, or raises its
next question as `InputRequired`."""


class CallElsewhereError(IdeabridgeError):
    """Raised when the server that holds a call does not respond, or responds with an error."""


class CallsElsewhere:
    """Sends answers to the other servers on a store, and handles answers that other servers send.

    Args:
        bridge: the bridge, whose store the servers share.
        group: a task group with the same lifetime as the server.
        held_keys: returns the keys of the calls that are parked here.
        resume: continues a parked call.
        give_up: cancels a parked call.
    """

    def __init__(
        self,
        bridge: Bridge,
        group: TaskGroup,
        held_keys: Callable[[], Collection[str]],
        resume: Resume,
        give_up: Callable[[str], None],
    ) -> None:
        self._bridge = bridge
        self._group = group
        self._held_keys = held_keys
        self._resume = resume
        self._give_up = give_up
        self._waiting: dict[str, anyio.Event] = {}
        self._serving: set[str] = set()

    async def run(self) -> None:
        """Handle answers from other servers until cancelled."""
        while True:
            about = await self._bridge.notices.wait(_TOPIC, _LOOKS_SECONDS)
            for key, event in self._waiting.items():
                if about is None or key in about:
                    event.set()
            with suppress(StoreError):
                # Ignore an error, because the next iteration finds the same rows and tries again.
                self._look(about)

    def _look(self, about: set[str] | None) -> None:
        keys = {key for key in self._held_keys() if about is None or key in about}
        if not keys:
            return

        rows = self._bridge.store.settings.under(f"{_TOPIC} ")
        for row, value in rows.items():
            key = row.removeprefix(f"{_TOPIC} ").partition(".")[0]
            question = cast("JSONObject", decode_trusted(value))
            if key in keys and "responses" in question and row not in self._serving:
                self._serving.add(row)
                self._group.start_soon(self._serve, row, key, question)

    async def _serve(self, row: str, key: str, question: JSONObject) -> None:
        """Pass the answers to a call that is parked here, and write the outcome of the call."""
        try:
            if not await self._replace(row, {"taken": 0}):
                return
            async with anyio.create_task_group() as group:
                beat = group.start_soon(self._beat, row, key)
                outcome = await self._outcome(key, question)
                beat.cancel()
                await self._replace(row, {"outcome": outcome}, notice=f"{_TOPIC} {key}")
            with anyio.move_on_after(_KEPT_SECONDS):
                while self._bridge.store.settings.get(row) is not None:  # noqa: ASYNC110 - another process deletes it
                    await anyio.sleep(_LOOKS_SECONDS)
                return
            await self._delete(row)
        except StoreError:
            # The server that asked gets no further response from here, and reports an error to its
            # client.
            return
        finally:
            self._serving.discard(row)

    async def _beat(self, row: str, key: str) -> None:
        beats = 0
        while True:
            await anyio.sleep(_BEATS_SECONDS)
            beats += 1
            if not await self._replace(row, {"taken": beats}):
                self._give_up(key)
                return

    async def _outcome(self, key: str, question: JSONObject) -> JSONObject:
        try:
            responses = _RESPONSES.validate_python(question["responses"])
            result = await self._resume(key, str(question["caller"]), responses)
        except InputRequired as asking:
            return {"asks": cast("JSON", asking.result)}
        except ModuleToolError as error:
            return {"failed": [error.module, str(error), error.result]}
        except ModuleOutputError as error:
            return {"unusable": [error.module, str(error), error.result]}
        except ModuleProtocolError as error:
            return {"refused": [error.module, str(error), error.code, error.said, error.data]}
        except MCPError as error:
            return {
                "error": [error.error.code, error.error.message, cast("JSON", error.error.data)]
            }
        except IdeabridgeError as error:
            return {"message": str(error)}

        if isinstance(result, Answer):
            return {"answer": [result.value, result.result]}
        return {"result": result}

    async def ask(
        self, key: str, caller: str, responses: Mapping[str, types.InputResponse], lost: str
    ) -> Any:
        """Send answers to a call that is parked on another server, and return the result of the
        call.

        Args:
            key: the key of the call.
            caller: the caller that the call belongs to.
            responses: the answers for the call.
            lost: the error message if the other server does not respond.

        Raises:
            InputRequired: the server asks another question.
            CallElsewhereError: the other server does not respond, or the call has failed.
            ModuleToolError, ModuleOutputError, ModuleProtocolError, MCPError: the called server or
                the client returned this error.
        """
        row = f"{_TOPIC} {key}.{secrets.token_hex(8)}"
        answers: JSONObject = {name: wire(response) for name, response in responses.items()}
        question = encode({"caller": caller, "responses": answers})
        self._waiting.setdefault(key, anyio.Event())
        try:
            await self._write(
                lambda: self._bridge.store.settings.set(row, question, notice=f"{_TOPIC} {key}")
            )
            return _opened(await self._outcome_of(row, key, lost))
        finally:
            self._waiting.pop(key, None)
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await self._delete(row)

    async def _outcome_of(self, row: str, key: str, lost: str) -> JSONObject:
        last_value: bytes | None = None
        until = anyio.current_time() + _TAKES_SECONDS
        while True:
            value = self._bridge.store.settings.get(row)
            record = {} if value is None else cast("JSONObject", decode_trusted(value))
            outcome = record.get("outcome")
            if isinstance(outcome, dict):
                return outcome

            if value != last_value and "taken" in record:
                last_value = value
                until = anyio.current_time() + _SILENT_SECONDS

            silent = until - anyio.current_time()
            if value is None or silent <= 0:
                raise CallElsewhereError(lost)

            event = self._waiting[key] = anyio.Event()
            with anyio.move_on_after(min(silent, _BEATS_SECONDS)):
                await event.wait()

    async def _replace(self, row: str, value: JSONObject, notice: str | None = None) -> bool:
        data = encode(value)
        return await self._write(
            lambda: self._bridge.store.settings.replace(row, data, notice=notice)
        )

    async def _delete(self, row: str) -> None:
        await self._write(lambda: self._bridge.store.settings.delete(row))

    async def _write(self, call: Callable[[], Any]) -> Any:
        return await self._bridge.patiently(call)


def _opened(outcome: JSONObject) -> Any:
    """Return the result in an outcome, or raise the error or question in it."""
    [(kind, value)] = outcome.items()
    body = cast("Any", value)
    match kind:
        case "asks":
            raise InputRequired(body["inputRequests"], read_state(body["requestState"]))
        case "failed":
            raise ModuleToolError(*body)
        case "unusable":
            raise ModuleOutputError(*body)
        case "refused":
            module, message, code, answer, data = body
            raise ModuleProtocolError(module, message, code=code, said=answer, data=data)
        case "error":
            raise MCPError(*body)
        case "message":
            raise CallElsewhereError(body)
        case "answer":
            return Answer(*body)
        case _:
            return body
