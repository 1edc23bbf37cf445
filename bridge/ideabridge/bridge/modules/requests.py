"""Send requests to a server, and turn each failure into an error.

A request is either `tools/call`, with its timeout, progress, questions and result, or a client's
request that is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import anyio
import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, TypeAdapter, ValidationError

from ideabridge.bridge.modules.asking import MAX_QUESTION_ROUNDS, Asking, DirectClient
from ideabridge.bridge.modules.connection import Connection
from ideabridge.bridge.modules.errors import (
    LegacyQuestionError,
    ModuleDownError,
    ModuleError,
    ModuleInputRequiredError,
    ModuleOutputError,
    ModuleProtocolError,
    ModuleSignInError,
    ModuleTimeoutError,
    ModuleToolError,
    SharedQuestionError,
    shown,
)
from ideabridge.bridge.modules.http import Mark
from ideabridge.bridge.modules.messages import Replaced
from ideabridge.bridge.modules.module_call import Answer, ModuleCall, OnProgress
from ideabridge.bridge.modules.offering import wire
from ideabridge.bridge.modules.repairs import restore_structured
from ideabridge.bridge.modules.results import ResultReader, add_text, broken_result
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text, normalise
from ideabridge.tools.errors import IdeabridgeError, Outcome, ResultLimitError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

ResultT = TypeVar("ResultT", bound=BaseModel)
PassedOn = types.ReadResourceRequest | types.GetPromptRequest | types.CompleteRequest
"""The kinds of clients' requests that are passed on."""

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
MAX_ERROR_DATA: Final = 64 * 1024
"""The maximum size of an error's data, in bytes of JSON, and of its message, in characters. Larger
data is left out, and the message says so.
"""
_NO_CHANNEL: Final = (
    "no back-channel for server-initiated requests",
    "server-to-client requests are not available on protocol revision",
)
"""Phrases in errors from the Python SDK and the TypeScript SDK. They mean that the tool asks a
question in a separate request, which version 2026-07-28 does not allow.
"""
_DATA: Final = 1000
"""The maximum number of characters of an error's data that the error's message shows."""

_CLOSED: Final = (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The messages of the errors that the SDK raises if a connection that was usable closes."""


def _text_in(result: types.CallToolResult) -> str:
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    return "\n".join(texts)


class SessionLostError(ModuleError):
    """Raised when a server has lost the HTTP session, so that it did not run the call."""

    outcome = "not_run"


class Requests:
    """Sends requests to one server, and reads the answers.

    Args:
        module: the server's name.
        secrets: the values to remove from the answers.
        max_bytes: the maximum size of a result, in bytes of JSON (`limits.result_bytes`).
    """

    def __init__(self, module: str, secrets: Secrets, max_bytes: int) -> None:
        self._module = module
        self._name = f"server {module!r}"
        self._secrets = secrets
        self._results = ResultReader(module, secrets, max_bytes)

    async def call(
        self,
        connection: Connection,
        tool: Tool,
        call: ModuleCall,
        seconds: float,
        validator: Validator | None,
    ) -> Answer:
        """Call a tool over a usable connection. If the task is cancelled or the timeout expires,
        the remote call is cancelled.

        Args:
            connection: the connection.
            tool: the current definition of the tool.
            call: the call. Its arguments have the server's own parameter names.
            seconds: the timeout, not counting the time spent asking a person. Each progress
                notification restarts the timeout, but the total is at most `LONGEST` times this
                value.
            validator: checks the result, or None if the tool has no output schema.

        Raises:
            SessionLostError: the call must be sent again over a new connection.
            LegacyQuestionError: the tool asks a question in a way that the era of the connection
                does not allow.
            ModuleError: the call failed. There is a subclass for each cause, and `outcome` says
                whether the call might have taken effect.
            ResultLimitError: the result is too large.
            ModuleAsks: the server asks questions first, and the client accepts questions in place
                of a result.
        """
        client = call.client
        asking = Asking(self._module, self._name, seconds, call.asker, self._secrets, client)
        # Do not use `client.call_tool`, because it might list all tools again, and it answers
        # questions itself.
        params = types.CallToolRequestParams(
            name=tool.name_in_module,
            arguments=call.arguments,
            _meta=None if client is None else client.meta,
        )
        request = types.CallToolRequest(params=params)
        try:
            result = await self._sent(connection, asking, tool, request, call.progress)
        except MCPError as error:
            if client is not None:
                error = asking.addresses(client, error)
                for own_id in asking.own_ids:
                    connection.backchannel.addressed(own_id, asking)

            failure = self._failure(connection, tool.name, error)
            if asking.refused and isinstance(failure, ModuleProtocolError):
                # Replace the server's own error, because nobody was asked for what the server
                # needs.
                failure = ModuleProtocolError(self._module, str(failure))
            raise _with_class(failure, connection) from None
        except ValidationError:
            text = f"{self._name} answered with something that is not the result of a tool call"
            raise ModuleProtocolError(self._module, text, outcome="unknown") from None
        except _CLOSED:
            if connection.usable:
                raise
            text = f"{self._name} {connection.end(f' before tool {tool.name!r} was called')}"
            raise ModuleDownError(self._module, text) from None

        if result is None:
            seconds_allowed = f"{asking.allowed:g} s"
            raise ModuleTimeoutError(
                self._module,
                f"{self._name} did not answer within {seconds_allowed} and was told to stop",
            )

        try:
            return await self._answer(tool, result, validator, asking)
        except ModuleToolError as error:
            raise _with_class(error, connection) from None

    async def _sent(
        self,
        connection: Connection,
        asking: Asking,
        tool: Tool,
        request: types.CallToolRequest,
        progress: OnProgress | None,
    ) -> types.CallToolResult | None:
        """Send a call, and return its result; see `_send`.

        Raises:
            SharedQuestionError: the server asked a question that might belong to another session.
        """
        try:
            result = await self._send(connection, asking, request, _RESULT, progress)
        except MCPError as error:
            if not asking.is_mixed:
                raise
            said = shown(error.message, self._secrets)
            raise self._mixed(tool, said, "failed") from None

        if result is None or not asking.is_mixed:
            return result
        said = shown(_text_in(result), self._secrets)
        mixed = self._mixed(tool, said, "failed" if result.is_error else "ran")
        mixed.sent = self._results.sent(result)
        raise mixed

    def _mixed(self, tool: Tool, said: str, outcome: Outcome) -> SharedQuestionError:
        """Return the error for a call during which the server asked a question that was not passed
        on.

        Args:
            tool: the tool.
            said: the server's final answer, without secrets.
            outcome: the outcome of the call, according to the server.
        """
        text = (
            f"{self._name} asked a question that may belong to a call of another session, so "
            "nobody was asked. From now on, each session has its own process of this server. The "
            f"call has ended with this answer: {said}"
        )
        repeatable = tool.annotations.read_only is True
        return SharedQuestionError(self._module, text, outcome=outcome, repeatable=repeatable)

    async def _answer(
        self,
        tool: Tool,
        result: types.CallToolResult,
        validator: Validator | None,
        asking: Asking,
    ) -> Answer:
        """Return the answer to a call from its result.

        The timeout no longer applies here, because the server is not to blame if validating a
        result takes a long time.
        """
        whole: JSONObject | None = None
        if asking.client is not None:
            whole = self._results.whole(result, asking.refused)

        try:
            value = await self._results.value(tool, result, validator)
        except ModuleToolError as error:
            text = "\n".join([str(error), *asking.refused])
            raise ModuleToolError(self._module, text, whole, sent=error.sent) from None
        except ModuleOutputError as error:
            if whole is not None:
                error.result = broken_result(whole, error)
            raise

        has_structure = result.structured_content is not None
        if whole is not None:
            if has_structure or tool.output is not None:
                whole["structuredContent"] = value
                add_text(whole, value)
            return Answer(value, whole)

        aside: JSON = None
        if has_structure:
            aside = (self._results.sent(result) or {}).get("content")
        return Answer(value, None, cast("list[JSON] | None", aside))

    async def pass_on(
        self,
        connection: Connection,
        request: PassedOn,
        client: DirectClient,
        seconds: float,
        on_progress: OnProgress | None,
    ) -> JSONObject:
        """Send a request for a resource, a prompt or a completion. Return the result as protocol
        JSON, without secrets.

        Progress is passed on and extends the timeout, as in `call`.

        Raises:
            SessionLostError: the request must be sent again over a new connection.
            MCPError: the server responded with this error.
            ModuleError: the server does not respond, or its response violates the protocol.
            ResultLimitError: the result is too large.
        """
        method = request.method
        asking = Asking(self._module, self._name, seconds, None, self._secrets, client)
        sent = _without_envelope(request)
        try:
            result = await self._send(connection, asking, sent, _PASSED_ON[method], on_progress)
        except MCPError as error:
            failure = self._failure(connection, method, asking.addresses(client, error))
            if not isinstance(failure, ModuleProtocolError) or failure.code is None:
                raise failure from None
            raise MCPError(failure.code, failure.said, failure.data) from None
        except ValidationError:
            text = f"{self._name} answered {method} with something that is not its result"
            raise ModuleProtocolError(self._module, text) from None
        except _CLOSED:
            if connection.usable:
                raise
            text = f"{self._name} {connection.end(f' before {method} was sent')}"
            raise ModuleDownError(self._module, text) from None

        if result is None:
            seconds_allowed = f"{asking.allowed:g} s"
            raise ModuleTimeoutError(
                self._module,
                f"{self._name} did not answer {method} within {seconds_allowed} and was told to "
                "stop",
            )

        value = self._secrets.redact(normalise(wire(result), what="the result"))
        self._results.expect_size(len(encode(value)), f"answered {method}")
        return cast("JSONObject", value)

    async def _send(
        self,
        connection: Connection,
        asking: Asking,
        request: types.CallToolRequest | PassedOn,
        adapter: TypeAdapter[ResultT | types.InputRequiredResult],
        on_progress: OnProgress | None,
    ) -> ResultT | None:
        """Send a request such as `tools/call`. Return None if the timeout expires.

        Whenever the server sends questions in place of a result (2026-07-28), the request is sent
        again with the answers.
        """
        client = asking.client
        if client is not None and connection.is_modern:
            request = _again(request, client.responses, client.state)

        report = self._report(asking, on_progress)
        with asking.scope, connection.backchannel.calling(asking):
            for number in range(MAX_QUESTION_ROUNDS + 1):
                result = await connection.client.session.send_request(
                    request,
                    adapter,
                    # The SDK's timeout would also count the time that a person takes to answer.
                    request_read_timeout_seconds=math.inf,
                    progress_callback=report,
                )
                if not isinstance(result, types.InputRequiredResult):
                    await asking.all_passed_on()
                    if isinstance(result, types.CallToolResult):
                        restore_structured(result)
                    return result

                if client is not None and client.takes_rounds:
                    raise asking.asked_by(result)
                if number == MAX_QUESTION_ROUNDS:
                    break
                answers = await asking.answers(result)
                request = _again(request, answers or None, result.request_state)

            text = f"{self._name} keeps asking questions: {MAX_QUESTION_ROUNDS} times in one call"
            raise ModuleInputRequiredError(self._module, text)

        return None

    def _report(self, asking: Asking, on_progress: OnProgress | None) -> ProgressFnT:
        """Return a function that extends the timeout of a request, and passes on progress without
        secrets.
        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            asking.extend()
            if on_progress is not None:
                if message is not None:
                    message = shown(message, self._secrets)
                with asking.telling():
                    await on_progress(progress, total, message)

        return report

    # -- errors ------------------------------------------------------------------------------------

    def _failure(
        self, connection: Connection, tool: str, error: MCPError
    ) -> ModuleError | ResultLimitError:
        """Convert an error that the server or the transport sent in response to a request into the
        error of the call.
        """
        text = shown(error.message, self._secrets)
        if error.data is Replaced.OVERSIZED:
            return ResultLimitError(f"{self._name}: {text}")
        if error.data in (Mark.SIGN_IN, Mark.SIGN_IN_LATER):
            return ModuleSignInError(self._module, f"{self._name} {text}")

        unanswered = self._unanswered(connection, tool, error, text)
        if unanswered is not None:
            return unanswered
        if lost_session(error):
            return SessionLostError(self._module, f"{self._name} lost its HTTP session: {text}")
        if error.data is Replaced.UNREADABLE:
            return ModuleProtocolError(self._module, f"{self._name}: {text}", outcome="unknown")
        if error.data is Mark.REFUSED:
            return ModuleProtocolError(
                self._module, f"{self._name} {text}", code=error.code, said=text
            )
        return self._error_of_module(error, text)

    def _unanswered(
        self, connection: Connection, tool: str, error: MCPError, text: str
    ) -> ModuleError | None:
        """Return the error for a request that was not answered, or None if it was answered."""
        while_running = f" while tool {tool!r} was running"
        if error.data is Mark.UNSENT:
            return ModuleDownError(self._module, f"{self._name} {text}")
        if error.data is Mark.UNANSWERED:
            # A reason after a colon would otherwise seem to go on.
            comma = "," if ": " in text else ""
            return self._down(f"{text}{comma}{while_running}")
        if error.code == types.CONNECTION_CLOSED and not connection.usable:
            ending = connection.end(while_running)
            if connection.protocol_fault:
                text = f"{self._name} {ending}"
                return ModuleProtocolError(self._module, text, outcome="unknown")
            return self._down(ending)
        if error.data is Mark.CUT_OFF:
            return self._down(f"cut its answer off{while_running}")
        return None

    def _down(self, text: str) -> ModuleDownError:
        return ModuleDownError(self._module, f"{self._name} {text}", outcome="unknown")

    def _error_of_module(self, error: MCPError, text: str) -> ModuleProtocolError:
        """Return the server's error as a `ModuleProtocolError`, including its data if that is
        small.
        """
        message = shown(error.message, self._secrets, MAX_ERROR_DATA)
        data: JSON = None
        try:
            data = normalise(error.data, what="the data of an error")
            size = len(encode(data))
            if size > MAX_ERROR_DATA:
                data = None
                message = (
                    f"{message} (its data of {size:,} bytes is left out; the limit is "
                    f"{MAX_ERROR_DATA:,})"
                )
        except IdeabridgeError:
            message = f"{message} (its data is left out, because it is not JSON)"

        reason = text or "it does not say why"
        answer = f"{self._name} answered with error {error.code}: {reason}"
        if data is not None:
            answer += f" (data: {shown(encode_text(data), self._secrets, _DATA)})"

        redacted = self._secrets.redact(data)
        return ModuleProtocolError(
            self._module, answer, code=error.code, said=message, data=redacted
        )


def lost_session(error: MCPError) -> bool:
    """Return whether an error says that the server does not know the HTTP session."""
    return error.data is Mark.SESSION_LOST


def _with_class(
    failure: ModuleError | ResultLimitError, connection: Connection
) -> ModuleError | ResultLimitError:
    """Return the failure as a `LegacyQuestionError` if the tool could not ask its question in this
    era, otherwise unchanged.
    """
    could_ask = not any(phrase in str(failure).lower() for phrase in _NO_CHANNEL)
    if could_ask or not connection.is_modern or isinstance(failure, ResultLimitError):
        return failure
    return LegacyQuestionError(failure.module, str(failure))


def _again(
    request: types.CallToolRequest | PassedOn,
    responses: Mapping[str, types.InputResponse] | None,
    state: str | None,
) -> types.CallToolRequest | PassedOn:
    if isinstance(request, types.CompleteRequest) or (responses is None and state is None):
        return request
    update = {"input_responses": responses, "request_state": state}
    return request.model_copy(update={"params": request.params.model_copy(update=update)})


_PASSED_ON: Final[Mapping[str, TypeAdapter[Any]]] = {
    "resources/read": TypeAdapter(types.ReadResourceResult | types.InputRequiredResult),
    "prompts/get": TypeAdapter(types.GetPromptResult | types.InputRequiredResult),
    "completion/complete": TypeAdapter(types.CompleteResult),
}


def meta_to_pass_on(meta: types.RequestParamsMeta | None) -> types.RequestParamsMeta | None:
    """Return the `_meta` of a client's request, without the members about the client's connection,
    such as its version.
    """
    passed_on = {
        key: value
        for key, value in (meta or {}).items()
        if key not in ("progress_token", "progressToken")
        and not key.startswith("io.modelcontextprotocol/")
    }
    return cast("types.RequestParamsMeta", passed_on) if passed_on else None


def _without_envelope(request: PassedOn) -> PassedOn:
    """Return a request without what is meant for ideabridge: the client's answers and state, and
    the members of `_meta` about the client's connection.
    """
    update: dict[str, Any] = {"meta": meta_to_pass_on(request.params.meta)}
    if not isinstance(request, types.CompleteRequest):
        update |= {"input_responses": None, "request_state": None}
    return request.model_copy(update={"params": request.params.model_copy(update=update)})
