"""One `tools/call` to a module: its time-out, its progress, its questions, and the error for each failure."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.context.inquiry import Asker
from ideabridge.bridge.modules.asking import MAX_QUESTION_ROUNDS, Asking
from ideabridge.bridge.modules.connection import Connection
from ideabridge.bridge.modules.errors import (
    ModuleDownError,
    ModuleError,
    ModuleInputRequiredError,
    ModuleProtocolError,
    ModuleTimeoutError,
    ModuleToolError,
)
from ideabridge.bridge.modules.http import UNANSWERED, UNSENT
from ideabridge.bridge.modules.results import result_value, shown
from ideabridge.bridge.modules.stdio import OVERSIZED, UNREADABLE
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ResultLimitError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_LOST: Final = ("session not found", "session terminated", "session has been terminated")
_CUT_OFF: Final = ("sse stream ended", "sse stream failed")
"""How the SDK's errors about a truncated answer begin."""
_STRANGE: Final = (
    "failed to parse json response",
    "failed to parse sse message",
    "server answered a request with 202",
    "unexpected content type",
)
"""How the SDK's errors about an answer that is not MCP begin."""


class SessionLostError(ModuleError):
    """The server has lost the HTTP session, so it did not run the call."""

    outcome = "not_run"


async def remote_call(
    connection: Connection,
    module: str,
    tool: Tool,
    arguments: JSONObject,
    *,
    seconds: float,
    on_progress: Callable[[float, float | None, str | None], Awaitable[None]] | None,
    asker: Asker | None,
    secrets: Secrets,
    max_bytes: int,
    validator: Validator | None,
) -> JSON:
    """Call a tool over a connection. Cancelling this cancels the remote call, as does the time-out.

    Args:
        connection: one that is usable.
        module: the module's name.
        tool: the tool.
        arguments: by the module's own parameter names.
        seconds: how long the answer may take; the time in which a person is asked does not count.
        on_progress: called with progress notifications.
        asker: answers the module's questions; None: nobody.
        secrets: what to hide.
        max_bytes: bound on the result, in bytes of JSON.
        validator: checks the result, if the tool has an output schema.

    Raises:
        SessionLostError: to be sent again on a new connection.
        ModuleError: by cause, see `errors`; its `outcome` says what is known of the call.
        ResultLimitError: the answer is too large.
    """
    name = f"module {module!r}"
    asking = Asking(module, name, seconds, asker, secrets)
    # Not `client.call_tool`: it may list all tools again, and answers questions by itself.
    params = types.CallToolRequestParams(name=tool.remote_name or tool.name, arguments=arguments)

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        if on_progress is not None:
            await on_progress(progress, total, None if message is None else shown(message, secrets))

    async def send(params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
        # The clock is our own: the SDK's goes on while a person is asked.
        return await connection.client.session.send_request(
            types.CallToolRequest(params=params),
            _RESULT,
            request_read_timeout_seconds=math.inf,
            progress_callback=tell if on_progress is not None else None,
        )

    answered: types.CallToolResult | None = None
    try:
        with asking.scope, connection.backchannel.calling(asking):
            result = await send(params)
            for _ in range(MAX_QUESTION_ROUNDS):
                if not isinstance(result, types.InputRequiredResult):
                    break
                answers = await asking.answers(result)
                again = {"input_responses": answers or None, "request_state": result.request_state}
                result = await send(params.model_copy(update=again))
            if isinstance(result, types.InputRequiredResult):
                raise ModuleInputRequiredError(
                    module, f"{name} asks again and again: {MAX_QUESTION_ROUNDS} times in one call"
                )
            answered = result
    except MCPError as error:
        raise _failure(connection, module, tool.name, error, secrets) from None
    except ValidationError:
        what = f"{name} answered with what is no result of a tool call"
        raise ModuleProtocolError(module, what, outcome="unknown") from None
    except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The connection was closed between the look at it and the call.
        if connection.usable:
            raise
        raise ModuleDownError(
            module, f"module {module!r} {connection.end(f' before tool {tool.name!r} was called')}"
        ) from None
    if answered is None:
        raise ModuleTimeoutError(module, f"{name} did not answer within {seconds:g} s and was told to stop")
    try:
        # Outside of the time-out: validating a result may take long, which is not the module's fault.
        return await result_value(module, tool, answered, secrets=secrets, max_bytes=max_bytes, validator=validator)
    except ModuleToolError as error:
        raise ModuleToolError(module, "\n".join([str(error), *asking.refused])) from None


def _failure(
    connection: Connection, module: str, tool: str, error: MCPError, secrets: Secrets
) -> ModuleError | ResultLimitError:
    name = f"module {module!r}"
    text = shown(error.message, secrets)
    said = error.message.lower()
    if error.data == OVERSIZED:
        return ResultLimitError(f"{name}: {text}")
    if error.data == UNSENT:
        return ModuleDownError(module, f"{name} {text}")
    if error.data == UNANSWERED:
        return ModuleDownError(module, f"{name} {text} while tool {tool!r} was running", outcome="unknown")
    if error.code == types.CONNECTION_CLOSED and not connection.usable:
        what = f"{name} {connection.end(f' while tool {tool!r} was running')}"
        if connection.protocol_fault:
            return ModuleProtocolError(module, what, outcome="unknown")
        return ModuleDownError(module, what, outcome="unknown")
    if error.code == types.CONNECTION_CLOSED and said.startswith(_CUT_OFF):
        what = f"{name} cut its answer off while tool {tool!r} was running"
        return ModuleDownError(module, what, outcome="unknown")
    if error.code == types.INVALID_REQUEST and said.rstrip(".").startswith(_LOST):
        return SessionLostError(module, f"module {module!r} lost its HTTP session")
    if error.data == UNREADABLE or said.startswith(_STRANGE):
        return ModuleProtocolError(module, f"{name} answered with error {error.code}: {text}", outcome="unknown")
    return ModuleProtocolError(module, f"{name} answered with error {error.code}: {text}", code=error.code)
