"""Requests to a module, with the error for each failure.

They are `tools/call`, with its time-out, progress, questions and result, and requests of clients
that are passed on.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

import anyio
import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from ideabridge.bridge.context.inquiry import Asker
from ideabridge.bridge.modules.asking import MAX_QUESTION_ROUNDS, Asking, DirectClient
from ideabridge.bridge.modules.connection import Connection
from ideabridge.bridge.modules.errors import (
    MAX_ERROR,
    LegacyQuestionError,
    ModuleDownError,
    ModuleError,
    ModuleInputRequiredError,
    ModuleOutputError,
    ModuleProtocolError,
    ModuleSignInError,
    ModuleTimeoutError,
    ModuleToolError,
    shown,
)
from ideabridge.bridge.modules.http import Mark
from ideabridge.bridge.modules.messages import Replaced
from ideabridge.bridge.modules.offering import wire
from ideabridge.bridge.modules.repairs import restore_structured
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode, encode_text, normalise
from ideabridge.tools.errors import (
    IdeabridgeError,
    InvalidJSONError,
    LimitExceededError,
    ResultLimitError,
)
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

ResultT = TypeVar("ResultT", bound=BaseModel)
PassedOn = types.ReadResourceRequest | types.GetPromptRequest | types.CompleteRequest
"""The requests of clients that are passed on."""

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
MAX_ERROR_DATA: Final = 64 * 1024
"""Bytes of JSON of the data of an error, and characters of its message. Data that has more is left
out, and the message says so.
"""
_NO_CHANNEL: Final = (
    "no back-channel for server-initiated requests",
    "server-to-client requests are not available on protocol revision",
)
"""In the errors of the Python and the TypeScript SDK: the tool asks by a request, which
2026-07-28 does not have."""
_DATA: Final = 1000
"""Characters of the data of an error in its message."""

_PARTS: Final = 100
"""Blocks of a result, and members or items of its structured content, that are compared."""

_FAULTS: Final = 800
"""Characters of an error about a result that violates the schema."""


class Answer(NamedTuple):
    """The answer to a call.

    Attributes:
        value: the value of the call in a run, see `_result_value`.
        result: the whole result of a direct call, in wire form; None in a run.
        aside: the content blocks of the result, if these say something else than the
            value, in a run.
    """

    value: JSON
    result: JSONObject | None
    aside: list[JSON] | None = None


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
    client: DirectClient | None,
    secrets: Secrets,
    max_bytes: int,
    validator: Validator | None,
) -> Answer:
    """Call a tool over a usable connection. Cancelling this cancels the remote call, as
    does the time-out.

    `arguments` have the module's own parameter names. `seconds` bounds the answer, without the time
    in which a person is asked; each progress notification of the module starts it anew, `LONGEST`
    times that at most. Without an `asker` or a `client`, nobody can be asked. The result may have
    `max_bytes` bytes of JSON, and `validator` checks it if the tool has an output schema. With a
    `client` the answer has the whole result.

    Raises:
        SessionLostError: the call must be sent again over a new connection.
        LegacyQuestionError: the tool asks in the way of another era than the connection's.
        ModuleError: one class for each cause; its `outcome` says whether the call may
            have taken effect.
        ResultLimitError: the result is too large.
        ModuleAsks: the module asks first, and `client` takes questions in place of a result.
    """
    name = f"server {module!r}"
    asking = Asking(module, name, seconds, asker, secrets, client)
    # Not `client.call_tool`: it may list all tools again, and answers questions by itself.
    params = types.CallToolRequestParams(
        name=tool.name_in_module,
        arguments=arguments,
        _meta=None if client is None else client.meta,
    )
    modern = connection.peer is not None and connection.peer.era == "modern"
    answered: types.CallToolResult | None = None
    try:
        with asking.scope, connection.backchannel.calling(asking):
            answered = await _in_rounds(
                connection,
                asking,
                module,
                types.CallToolRequest(params=params),
                _RESULT,
                _report(asking, on_progress, secrets),
            )
    except MCPError as error:
        if client is not None:
            error = asking.addresses(client, error)
            for own_id in asking.own_ids:
                connection.backchannel.addressed(own_id, asking)

        failure = _failure(connection, module, tool.name, error, secrets)
        if asking.refused and isinstance(failure, ModuleProtocolError):
            # Not the module's own error: nobody was asked what it needs.
            failure = ModuleProtocolError(module, str(failure))

        raise (
            _legacy_question(failure) if modern and isinstance(failure, ModuleError) else failure
        ) from None
    except ValidationError:
        text = f"{name} answered with something that is not the result of a tool call"
        raise ModuleProtocolError(module, text, outcome="unknown") from None
    except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The connection was closed after it was found usable.
        if connection.usable:
            raise
        raise ModuleDownError(
            module, f"server {module!r} {connection.end(f' before tool {tool.name!r} was called')}"
        ) from None

    if answered is None:
        raise ModuleTimeoutError(
            module, f"{name} did not answer within {asking.allowed:g} s and was told to stop"
        )

    if client is None:
        whole = None
    else:
        whole = _whole(module, answered, asking.refused, secrets=secrets, max_bytes=max_bytes)

    try:
        # Outside of the time-out: validating a result may take long, which is not the
        # module's fault.
        value = await _result_value(
            module, tool, answered, secrets=secrets, max_bytes=max_bytes, validator=validator
        )
    except ModuleToolError as error:
        failure = ModuleToolError(
            module, "\n".join([str(error), *asking.refused]), whole, sent=error.sent
        )
        raise _legacy_question(failure) if modern else failure from None
    except ModuleOutputError as error:
        if whole is not None:
            error.result = _as_error(whole, error)
        raise

    if whole is not None and (tool.output is not None or answered.structured_content is not None):
        whole["structuredContent"] = value
        _add_text(whole, value)

    if whole is not None or answered.structured_content is None:
        return Answer(value, whole)

    content = (_sent(answered, secrets=secrets, max_bytes=max_bytes) or {}).get("content")
    return Answer(value, None, cast("list[JSON] | None", content))


def _report(
    asking: Asking,
    on_progress: Callable[[float, float | None, str | None], Awaitable[None]] | None,
    secrets: Secrets,
) -> ProgressFnT:
    """A function that extends the time-out of a request, and passes progress on without secrets."""

    async def report(progress: float, total: float | None, message: str | None) -> None:
        asking.extend()
        if on_progress is not None:
            with asking.telling():
                await on_progress(
                    progress, total, None if message is None else shown(message, secrets)
                )

    return report


def _legacy_question(failure: ModuleError) -> ModuleError:
    """The same failure, with its own class if the tool could not ask in this era."""
    if not any(phrase in str(failure).lower() for phrase in _NO_CHANNEL):
        return failure
    return LegacyQuestionError(failure.module, str(failure))


async def _in_rounds(
    connection: Connection,
    asking: Asking,
    module: str,
    request: types.CallToolRequest | PassedOn,
    adapter: TypeAdapter[ResultT | types.InputRequiredResult],
    on_progress: ProgressFnT | None = None,
) -> ResultT:
    """Send a request such as `tools/call`, and again with the answers as often as the module asks
    in place of a result (2026-07-28).
    """
    client = asking.client
    if client is not None and connection.peer is not None and connection.peer.era == "modern":
        request = _again(request, client.responses, client.state)

    for number in range(MAX_QUESTION_ROUNDS + 1):
        result = await connection.client.session.send_request(
            request,
            adapter,
            # Without the SDK's time-out, which also counts the time in which a person is asked.
            request_read_timeout_seconds=math.inf,
            progress_callback=on_progress,
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
        request = _again(request, await asking.answers(result) or None, result.request_state)

    text = f"server {module!r} asks again and again: {MAX_QUESTION_ROUNDS} times in one call"
    raise ModuleInputRequiredError(module, text)


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


async def pass_on(
    connection: Connection,
    module: str,
    request: PassedOn,
    *,
    seconds: float,
    on_progress: Callable[[float, float | None, str | None], Awaitable[None]] | None,
    client: DirectClient,
    secrets: Secrets,
    max_bytes: int,
) -> JSONObject:
    """Send a request for a resource, a prompt or a completion; return the result in wire form,
    without secrets.

    Progress is passed on and extends the time-out, as in `remote_call`.

    Raises:
        SessionLostError: the request must be sent again over a new connection.
        MCPError: the answer of the module is this error.
        ModuleError: the module does not answer, or its answer is not what the protocol says.
        ResultLimitError: the result is too large.
    """
    name = f"server {module!r}"
    method = request.method
    asking = Asking(module, name, seconds, None, secrets, client)
    report = _report(asking, on_progress, secrets)
    result: BaseModel | None = None
    try:
        with asking.scope, connection.backchannel.calling(asking):
            result = await _in_rounds(
                connection, asking, module, _without_envelope(request), _PASSED_ON[method], report
            )
    except MCPError as error:
        failure = _failure(connection, module, method, asking.addresses(client, error), secrets)
        if not isinstance(failure, ModuleProtocolError) or failure.code is None:
            raise failure from None
        raise MCPError(failure.code, failure.said, failure.data) from None
    except ValidationError:
        raise ModuleProtocolError(
            module, f"{name} answered {method} with something that is not its result"
        ) from None
    except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The connection was closed after it was found usable.
        if connection.usable:
            raise
        raise ModuleDownError(
            module, f"{name} {connection.end(f' before {method} was sent')}"
        ) from None

    if result is None:
        within = f"{asking.allowed:g} s"
        raise ModuleTimeoutError(
            module, f"{name} did not answer {method} within {within} and was told to stop"
        )

    value = secrets.redact(normalise(wire(result), what="the result"))
    size = len(encode(value))
    if size > max_bytes:
        raise ResultLimitError(
            f"{name} answered {method} with {size:,} bytes; at most {max_bytes:,} are "
            "taken (limits.result_bytes)"
        )

    return cast("JSONObject", value)


def meta_to_pass_on(meta: types.RequestParamsMeta | None) -> types.RequestParamsMeta | None:
    """The `_meta` of a client's request without what it says about the client's connection, such
    as its version.
    """
    passed_on = {
        key: value
        for key, value in (meta or {}).items()
        if key not in ("progress_token", "progressToken")
        and not key.startswith("io.modelcontextprotocol/")
    }
    return cast("types.RequestParamsMeta", passed_on) if passed_on else None


def _without_envelope(request: PassedOn) -> PassedOn:
    """The request without what its `_meta` says about the connection of the client, such as its
    protocol version, and without answers and state, which belong to the rounds with the client.
    """
    update: dict[str, Any] = {"meta": meta_to_pass_on(request.params.meta)}
    if not isinstance(request, types.CompleteRequest):
        update |= {"input_responses": None, "request_state": None}
    return request.model_copy(update={"params": request.params.model_copy(update=update)})


def is_session_lost(error: MCPError) -> bool:
    """Return whether the server refused a request because it does not know the HTTP session."""
    return error.data is Mark.SESSION_LOST


def _failure(
    connection: Connection, module: str, tool: str, error: MCPError, secrets: Secrets
) -> ModuleError | ResultLimitError:
    name = f"server {module!r}"
    text = shown(error.message, secrets)
    if error.data is Replaced.OVERSIZED:
        return ResultLimitError(f"{name}: {text}")
    if error.data in (Mark.SIGN_IN, Mark.SIGN_IN_LATER):
        return ModuleSignInError(module, f"{name} {text}")
    if error.data is Mark.UNSENT:
        return ModuleDownError(module, f"{name} {text}")
    if error.data is Mark.UNANSWERED:
        return ModuleDownError(
            module, f"{name} {text} while tool {tool!r} was running", outcome="unknown"
        )

    if error.code == types.CONNECTION_CLOSED and not connection.usable:
        what = f"{name} {connection.end(f' while tool {tool!r} was running')}"
        if connection.protocol_fault:
            return ModuleProtocolError(module, what, outcome="unknown")
        return ModuleDownError(module, what, outcome="unknown")

    if error.data is Mark.CUT_OFF:
        what = f"{name} cut its answer off while tool {tool!r} was running"
        return ModuleDownError(module, what, outcome="unknown")
    if is_session_lost(error):
        return SessionLostError(module, f"{name} lost its HTTP session: {text}")
    if error.data is Replaced.UNREADABLE:
        return ModuleProtocolError(module, f"{name}: {text}", outcome="unknown")
    if error.data is Mark.REFUSED:
        return ModuleProtocolError(module, f"{name} {text}", code=error.code, said=text)

    message = shown(error.message, secrets, MAX_ERROR_DATA)
    data = None
    try:
        data = normalise(error.data, what="the data of an error")
        if (size := len(encode(data))) > MAX_ERROR_DATA:
            message = (
                f"{message} (its data of {size:,} bytes is left out; at most "
                f"{MAX_ERROR_DATA:,} are passed on)"
            )
            data = None
    except IdeabridgeError:
        message = f"{message} (its data is left out, because it is no JSON)"

    what = f"{name} answered with error {error.code}: {text or 'it does not say why'}"
    if data is not None:
        what = f"{what} (data: {shown(encode_text(data), secrets, _DATA)})"

    return ModuleProtocolError(
        module, what, code=error.code, said=message, data=secrets.redact(data)
    )


async def _result_value(
    module: str,
    tool: Tool,
    result: types.CallToolResult,
    *,
    secrets: Secrets,
    max_bytes: int,
    validator: Validator | None,
) -> JSON:
    """The value of a call: its structured content; else its text (several blocks joined by line
    ends); else the list of its content blocks; null without any content.

    Raises:
        ModuleToolError: the tool failed.
        ModuleOutputError: the tool promises another value, or what it sent is no JSON.
        ResultLimitError: the result is too large.
    """
    name = f"server {module!r}"
    if result.is_error:
        raise _tool_error(module, tool, result, secrets=secrets, max_bytes=max_bytes)

    try:
        value = normalise(_raw_value(result), what="the result")
        size = len(encode(value))
    except LimitExceededError as error:
        raise ResultLimitError(f"{name}: {error}") from None
    except IdeabridgeError as error:
        raise ModuleOutputError(
            module, f"{name}: {error}", sent=_sent(result, secrets=secrets, max_bytes=max_bytes)
        ) from None

    if size > max_bytes:
        raise ResultLimitError(
            f"{name} answered with {size:,} bytes; at most {max_bytes:,} are "
            "taken (limits.result_bytes)"
        )

    if validator is None:
        return secrets.redact(value)

    has_structure = result.structured_content is not None
    if not has_structure and "structured_content" in result.model_fields_set:
        # A tool may promise null.
        with suppress(IdeabridgeError):
            await validator.check_apart(None)
            return None

    try:
        if has_structure:
            await validator.check_apart(value)
            return secrets.redact(value)
        return secrets.redact(await _in_text(value, validator))
    except IdeabridgeError as error:
        text = f"{name} answered against its own schema: {shown(str(error), secrets, _FAULTS)}"
        if not has_structure:
            text = (
                f"{name} has an output schema but sent no structured content; {_described(result)}"
            )

        sent = _sent(result, secrets=secrets, max_bytes=max_bytes)
        raise ModuleOutputError(module, text, sent=sent) from None


async def _in_text(value: JSON, validator: Validator) -> JSON:
    """The value of a tool with an output schema that sent text alone, as older servers do: what the
    text has as JSON, or else the text itself, whichever satisfies the schema.

    Raises:
        IdeabridgeError: neither does, or the value is no text.
    """
    if not isinstance(value, str):
        raise InvalidJSONError("it is no text")

    with suppress(IdeabridgeError):
        parsed = decode(value, what="its text")
        await validator.check_apart(parsed)
        return parsed

    await validator.check_apart(value)
    return value


def _raw_value(result: types.CallToolResult) -> Any:
    if result.structured_content is not None or not result.content:
        return result.structured_content
    texts = _texts(result)
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return _blocks(result)


def _texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def _blocks(result: types.CallToolResult) -> list[JSON]:
    """The content blocks in wire form."""
    return [
        block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content
    ]


def _described(result: types.CallToolResult) -> str:
    """What a result has in its content, in words."""
    kinds = dict.fromkeys(block.type for block in result.content)
    return f"its content is {' and '.join(kinds)}" if kinds else "no content"


# -- what a failed call sent -----------------------------------------------------------------------


def _tool_error(
    module: str, tool: Tool, result: types.CallToolResult, *, secrets: Secrets, max_bytes: int
) -> ModuleToolError:
    """The error of a tool that says that it failed: its text, or else its structured
    content as text.
    """
    text = "\n".join(_texts(result))
    sent = _sent(result, secrets=secrets, max_bytes=max_bytes)
    if not text and sent is not None and "structuredContent" in sent:
        text = encode_text(sent["structuredContent"])
        if len(text) <= MAX_ERROR:
            del sent["structuredContent"]

    if (
        text
        and len(text) <= MAX_ERROR
        and sent is not None
        and len(_texts(result)) == len(result.content)
    ):
        # The message has all of it.
        sent.pop("content", None)
        if "structuredContent" in sent and _decoded(text) == sent["structuredContent"]:
            del sent["structuredContent"]

    # The prefix of the Python SDK; the message of the run contains the name anyway.
    message = shown(text, secrets).removeprefix(f"Error executing tool {tool.name_in_module}: ")
    if not message.strip():
        message = f"server {module!r} failed without saying why; {_described(result)}"

    return ModuleToolError(module, message, sent=sent or None)


def _sent(result: types.CallToolResult, *, secrets: Secrets, max_bytes: int) -> JSONObject | None:
    """The structured content of a result, and the content that says something else, as far as they
    are JSON and have at most `max_bytes` bytes; None: neither.
    """
    sent: JSONObject = {}
    if result.structured_content is not None:
        with suppress(IdeabridgeError):
            sent["structuredContent"] = normalise(result.structured_content)

    if result.content and not _says_the_same(result, sent.get("structuredContent")):
        with suppress(IdeabridgeError):
            sent["content"] = normalise(_blocks(result))

    if not sent or len(encode(sent)) > max_bytes:
        return None
    return cast("JSONObject", secrets.redact(sent))


def _says_the_same(result: types.CallToolResult, structured: JSON) -> bool:
    """Return whether the content of a result is its structured content, or parts of it, as text.
    The Python SDK sends a block for each item of a list.
    """
    texts = _texts(result)
    if structured is None or len(texts) < len(result.content) or len(texts) > _PARTS:
        return False

    parts: list[JSON] = [structured]
    if isinstance(structured, dict):
        members = list(structured.values())
    else:
        members = [structured]

    for member in members[:_PARTS]:
        parts += [member, *member[:_PARTS]] if isinstance(member, list) else [member]

    return all(text in parts or _decoded(text) in parts for text in texts)


def _decoded(text: str) -> JSON:
    # To compare, which needs no exactness; `decode` takes long for texts of megabytes.
    try:
        return cast("JSON", from_json(text))
    except ValueError:
        return text


# -- the whole result of a direct call -------------------------------------------------------------


def _whole(
    module: str,
    result: types.CallToolResult,
    refused: list[str],
    *,
    secrets: Secrets,
    max_bytes: int,
) -> JSONObject:
    """The content, `_meta` and `isError` of a result as they were sent, without secrets. That of an
    error has its structured content, too, and the messages about questions that nobody was asked.
    """
    left_out = None if result.is_error else {"structured_content"}
    sent = result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)
    try:
        whole = cast("JSONObject", normalise(sent, what="the result"))
    except LimitExceededError as error:
        raise ResultLimitError(f"server {module!r}: {error}") from None
    except IdeabridgeError as error:
        raise ModuleOutputError(module, f"server {module!r}: {error}") from None

    meta = whole.get("_meta")
    if isinstance(meta, dict):
        # What it says about the module; the gateway answers in its own name.
        meta.pop(types.SERVER_INFO_META_KEY, None)
        if not meta:
            del whole["_meta"]

    size = len(encode(whole))
    if size > max_bytes:
        raise ResultLimitError(
            f"server {module!r} answered with {size:,} bytes; at most {max_bytes:,} are "
            "taken (limits.result_bytes)"
        )

    whole = cast("JSONObject", secrets.redact(whole))
    if result.is_error:
        _add_text(whole, whole.get("structuredContent"))

    if result.is_error and refused:
        content = cast("list[JSON]", whole["content"])
        whole["content"] = [*content, {"type": "text", "text": "\n".join(refused)}]

    return whole


def _add_text(whole: JSONObject, structured: JSON) -> None:
    """Add the structured content to a result without content as text, for hosts that
    show text alone.
    """
    if structured is not None and not whole["content"]:
        whole["content"] = [{"type": "text", "text": encode_text(structured)}]


def _as_error(whole: JSONObject, error: ModuleOutputError) -> JSONObject:
    """The result of a direct call that broke its promise, as an error that has all
    that the tool sent.
    """
    content: list[JSON] = [
        {"type": "text", "text": str(error)},
        *cast("list[JSON]", whole["content"]),
    ]
    result: JSONObject = {**whole, "isError": True, "content": content}
    sent = error.sent or {}
    if "structuredContent" in sent and ("content" in sent or not whole["content"]):
        content.append(
            {"type": "text", "text": f"structuredContent: {encode_text(sent['structuredContent'])}"}
        )

    if isinstance(sent.get("structuredContent"), dict):
        result["structuredContent"] = sent["structuredContent"]

    return result
