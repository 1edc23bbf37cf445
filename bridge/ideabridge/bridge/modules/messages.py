"""Read the bytes that a server sends as JSON-RPC messages.

Every transport passes the lines, bodies or events that it receives to a `MessageReader`, one at a
time. A well-formed message is parsed in one pass. Only input that the parser rejects is read again,
in three layers:

    bytes     not UTF-8, a byte order mark, NUL bytes, halves of surrogate pairs: skipped or replaced
    text      prompts and banners around messages, several messages, one message on several lines
    envelope  `jsonrpc`, `id`, `method`, `params`, `result` and `error`, each by itself

An answer belongs to the request with the same id, even if the rest of the answer is malformed. A
repair never turns an error into a success: an answer that might be an error counts as an error. The
reader records everything that it skips or repairs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, cast

from mcp_types import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.methods import SPEC_CLIENT_METHODS
from pydantic import Field, TypeAdapter

from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.tools.encoding import kind_of, nests_deeper


class Replaced(Enum):
    """The `data` of an error that replaces an answer. Servers cannot forge it, because it is not
    JSON.

    Attributes:
        OVERSIZED: the answer is larger than the limit.
        UNREADABLE: the answer is not a message, or not a valid result of its method.
    """

    OVERSIZED = 1
    UNREADABLE = 2


MAX_NESTING: Final = 500
"""The maximum nesting depth of a message. The parser for odd messages needs a stack frame for each
level.
"""

PLAIN_NESTING: Final = 200
"""The maximum nesting depth that the SDK accepts."""

MAX_CUT_BYTES: Final = 1024 * 1024
"""The maximum size, in bytes, of a message in which only the values that are nested too deeply are
replaced. A larger message is refused entirely.
"""

MAX_JOINED_BYTES: Final = 4 * 1024 * 1024
"""The maximum size, in bytes, of one message that spans several lines."""

MAX_PARTS: Final = 1000
"""The maximum number of messages on one line and in one list. Messages beyond the limit are
skipped.
"""

_ENDS: Final = 512
_MOST_TRIES: Final = 32
_WORK: Final = 4 * 1024 * 1024
_WORDS: Final = 128 * 1024
_DIGITS: Final = 18

_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?P<colon>\s*:)?|[\[\]{}]', re.DOTALL)
_ID: Final = re.compile(rb'\s*"?(\d{1,15})"?\s*[,}]')
_LAST_ID: Final = re.compile(rb'[}\]"]\s*,\s*"id"\s*:\s*"?(\d{1,15})"?\s*\}\s*$')
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_START: Final = re.compile(r'\{\s*["}]|\[\s*[\[{\]]')
_HALF: Final = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""Matches an escaped backslash or a whole surrogate pair (group 1), or a lone surrogate."""


# The SDK's models ignore unknown members. These models reject a message that is both an answer and
# something else, so that it is read again with more care: an answer that contains an error must not
# count as a success.
class _Request(JSONRPCRequest):
    result: None = None
    error: None = None


class _Notification(JSONRPCNotification):
    id: None = None
    result: None = None
    error: None = None


class _Response(JSONRPCResponse):
    method: None = None
    error: None = None


class _Error(JSONRPCError):
    method: None = None
    result: None = None


# A message fits at most one of these models, so the first match is the right one. Answers come
# first, because they are the most frequent.
_MESSAGE: Final[TypeAdapter[JSONRPCMessage]] = TypeAdapter(
    Annotated[_Response | _Notification | _Request | _Error, Field(union_mode="left_to_right")]
)

_Object: TypeAlias = "dict[str, Any]"


class OddResultError(JSONRPCError):
    """An answer whose result is not an object.

    For requests whose result is always empty or a list, the value still shows whether the request
    failed. For all other requests, the answer counts as an error.

    Attributes:
        value: what the server sent as the result.
    """

    value: Any = None


class DeepResponse(JSONRPCResponse):
    """An answer that might be nested deeper than the SDK accepts."""


class MessageReader:
    """Reads the messages of one connection.

    Args:
        oddities: records everything that is skipped or repaired.
        joins_lines: True if a message can span several lines, which arrive one by one.
    """

    def __init__(self, oddities: Oddities, *, joins_lines: bool = False) -> None:
        self.oddities = oddities
        self._joins_lines = joins_lines
        self._begun: _BegunMessage | None = None

    def read(self, data: bytes) -> list[JSONRPCMessage]:
        """Return the messages in a line, body or event, or an empty list if it contains only noise.

        An unreadable answer becomes an error for its request, if its id can be found.
        """
        message = _well_formed(data)
        if message is None:
            return self._read_odd(data)
        if self._begun is None:
            return [message]
        return [*self.end(), message]

    def end(self) -> list[JSONRPCMessage]:
        """Return the messages in what remains of a multi-line message that never ended."""
        begun = self._begun
        self._begun = None
        return [] if begun is None else self._in_text(begun.text)

    def _read_odd(self, data: bytes) -> list[JSONRPCMessage]:
        text = self._text(data)
        if self._begun is not None:
            return self._continue(self._begun, text)
        if not text:
            return []

        message = _well_formed(text)
        if message is not None:
            return [message]

        if self._joins_lines and _is_incomplete(text):
            begun = _BegunMessage()
            begun.add(text)
            if begun.goes_on:
                self._begun = begun
                return []

        return self._in_text(text)

    def _continue(self, begun: _BegunMessage, text: str) -> list[JSONRPCMessage]:
        if _is_odd_message(text):
            # The earlier lines are part of a truncated log line, which must not swallow the answers
            # that follow.
            return [*self.end(), *self._in_text(text)]

        begun.add(text)
        if begun.goes_on and begun.size <= MAX_JOINED_BYTES:
            return []

        messages = self.end()
        if messages:
            self.oddities.note("wrote messages on several lines, which were read as one")

        return messages

    def _text(self, data: bytes) -> str:
        """Decode bytes to text, dropping the characters that JSON cannot contain."""
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.oddities.note("wrote bytes that are not UTF-8; they were replaced by U+FFFD")
            text = data.decode("utf-8", "replace")

        if "\0" in text:
            self.oddities.note("wrote NUL bytes, which were skipped")
            text = text.replace("\0", "")

        if "\\ud" in text or "\\uD" in text:
            text, halves = _HALF.subn(lambda match: match[1] or "\\ufffd", text)
            if halves and "\\ufffd" in text:
                self.oddities.note("wrote unpaired surrogates; they were replaced by U+FFFD")

        return text.strip("\ufeff \t\r\n")

    # -- several messages, and noise ---------------------------------------------------------------

    def _in_text(self, text: str) -> list[JSONRPCMessage]:
        """Return the messages in a string that is not one well-formed message.

        Noise can come before or after a message. A message with noise on both sides is more likely
        a quotation in a log, or a part of a malformed message.
        """
        if nests_deeper(text.encode("utf-8", "replace"), MAX_NESTING):
            return self._in_deep_text(text)

        is_deep = nests_deeper(text.encode("utf-8", "replace"), PLAIN_NESTING)
        parts = list(islice(_parts(text), MAX_PARTS))
        messages: list[JSONRPCMessage] = []
        after_noise = False
        for index, part in enumerate(parts):
            if part.is_noise:
                messages += _unreadable(part.text, _NO_MESSAGE)
                self._skip(part.text)
                after_noise = True
                continue

            before_noise = index + 1 < len(parts) and parts[index + 1].is_noise
            if after_noise and before_noise:
                read = []
            else:
                read = self._of_value(part.value, after_noise=after_noise)

            messages += read
            if not read:
                self._skip(part.text)
                after_noise = True

        if not messages and parts and parts[0].is_noise:
            # The string might be a malformed answer. Its well-formed parts are not messages.
            messages = _unreadable(text, _NO_MESSAGE)

        return [_deep(message) for message in messages] if is_deep else messages

    def _in_deep_text(self, text: str) -> list[JSONRPCMessage]:
        """Return the answers in a string that is nested deeper than `MAX_NESTING`, without the
        values below that depth.
        """
        cut = _without_depths(text)
        if nests_deeper(cut.encode("utf-8", "replace"), MAX_NESTING):
            self._skip(text)
            return _unreadable(text, f"its answer is nested deeper than {MAX_NESTING} levels")
        return [
            message
            for message in self._in_text(cut)
            if isinstance(message, JSONRPCResponse | JSONRPCError)
        ]

    def _skip(self, text: str) -> None:
        self.oddities.note("wrote something that is not a message, which was skipped", text)

    def _of_value(self, value: object, *, after_noise: bool) -> list[JSONRPCMessage]:
        """Return an object, or each object in a list, as a message."""
        if isinstance(value, list):
            values = cast("list[object]", value)
            self.oddities.note("sent several messages in one list")
            if len(values) > MAX_PARTS:
                self.oddities.note(
                    f"sent more than {MAX_PARTS:,} messages in one list; the rest were skipped"
                )
                del values[MAX_PARTS:]
        else:
            values = [value]

        messages = [self._message(item, after_noise=after_noise) for item in values]
        return [message for message in messages if message is not None]

    # -- the envelope ------------------------------------------------------------------------------

    def _message(self, value: object, *, after_noise: bool) -> JSONRPCMessage | None:
        """Return a value as a message, or None if it is not a message."""
        if not isinstance(value, dict):
            return None

        members = cast("_Object", value)
        # A server that logs to standard output might log JSON. It might even log messages that it
        # has received, such as a request for its tools, which a server never sends to a client.
        if "jsonrpc" not in members and not _MEMBERS.issuperset(members):
            return None

        method = members.get("method")
        is_quoted = isinstance(method, str) and method in SPEC_CLIENT_METHODS and method != "ping"
        if after_noise and (is_quoted or "jsonrpc" not in members):
            return None

        return _well_formed(members) or self._repaired(members)

    def _repaired(self, members: _Object) -> JSONRPCMessage | None:
        is_answer = "result" in members or "error" in members
        is_empty = not is_answer and "method" not in members
        if is_empty and ("jsonrpc" not in members or _request_id(members.get("id")) is None):
            return None

        if members.get("jsonrpc") != "2.0":
            self.oddities.note(
                'sent messages whose `jsonrpc` is not "2.0"', _shown(members.get("jsonrpc"))
            )

        if is_answer or is_empty:
            return self._answer(members)
        return self._question(members)

    def _question(self, members: _Object) -> JSONRPCMessage | None:
        """Return a request or notification."""
        method = members["method"]
        params: object = members.get("params")
        request = members.get("id")
        if isinstance(request, float) and request.is_integer():
            request = int(request)

        if request is not None and (
            isinstance(request, bool) or not isinstance(request, int | str)
        ):
            return None

        if not isinstance(method, str):
            self.oddities.note("sent a message whose `method` is not a string", _shown(method))
            # Use an empty method, because the SDK itself answers requests with an unknown method.
            method = ""

        if params is not None and not isinstance(params, dict):
            self.oddities.note(
                f"sent {_quoted(method)} with `params` that are not an object; left out",
                _shown(params),
            )
            params = None

        content = cast("_Object | None", params)
        if request is not None:
            return JSONRPCRequest(jsonrpc="2.0", id=request, method=method, params=content)
        if not method:
            return None
        return JSONRPCNotification(jsonrpc="2.0", method=method, params=content)

    def _answer(self, members: _Object) -> JSONRPCMessage | None:
        request = _request_id(members.get("id"))
        if members.get("error") is not None or "result" not in members:
            if "result" in members:
                self.oddities.note("answered with both `result` and `error`, which is an error")
            return JSONRPCError(jsonrpc="2.0", id=request, error=self._error(members))

        if request is None:
            return None

        result: object = members["result"]
        if isinstance(result, dict):
            return JSONRPCResponse(jsonrpc="2.0", id=request, result=cast("_Object", result))

        kind = kind_of(result)
        self.oddities.note(
            f"answered with {kind} in place of an object in `result`", _shown(result)
        )
        words = f"its result is {kind}, not an object: {_shown(result)}"
        error = ErrorData(code=PARSE_ERROR, message=words, data=Replaced.UNREADABLE)
        return OddResultError(jsonrpc="2.0", id=request, error=error, value=result)

    def _error(self, members: _Object) -> ErrorData:
        """Return the error of an answer, in the server's own words."""
        if "error" not in members:
            self.oddities.note("sent an answer with neither `result` nor `error`")
            return ErrorData(
                code=PARSE_ERROR,
                message="its answer has neither a result nor an error",
                data=Replaced.UNREADABLE,
            )

        error: object = members["error"]
        if not isinstance(error, dict):
            self.oddities.note("answered with an `error` that is not an object", _shown(error))
            if isinstance(error, str):
                words = error
            elif error is None:
                words = ""
            else:
                words = _shown(error)

            return ErrorData(code=INTERNAL_ERROR, message=words or "an error without a message")

        parts = cast("_Object", error)
        code = _integer(parts.get("code"))
        message = parts.get("message")
        if code is None:
            self.oddities.note(
                "answered with an error whose `code` is not an integer", _shown(parts.get("code"))
            )

        if not isinstance(message, str):
            self.oddities.note(
                "answered with an error whose `message` is not a string", _shown(message)
            )
            message = _shown(
                {name: part for name, part in parts.items() if name != "data"} or parts
            )
        elif code is None and parts.get("code") is not None:
            message = f"{message} ({_shown(parts['code'])})"

        return ErrorData(
            code=INTERNAL_ERROR if code is None else code, message=message, data=parts.get("data")
        )


class _BegunMessage:
    """A message that spans several lines, which are added as they arrive."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._in_string = False
        self.size = 0

    def add(self, line: str) -> None:
        self._lines.append(line)
        self.size += len(line)
        # Without escaped characters, every quote begins or ends a string.
        plain = line.replace("\\\\", "").replace('\\"', "")
        pieces = plain.split('"')
        for piece in pieces[self._in_string :: 2]:
            self._depth += piece.count("{") + piece.count("[") - piece.count("}") - piece.count("]")

        self._in_string ^= len(pieces) % 2 == 0

    @property
    def is_whole(self) -> bool:
        """Whether every bracket is closed."""
        return self._depth <= 0 and not self._in_string

    @property
    def goes_on(self) -> bool:
        """Whether the next line belongs to the message.

        A message does not continue after a line that ends within a string, because programs that
        write JSON do not break lines within strings.
        """
        return self._depth > 0 and not self._in_string

    @property
    def text(self) -> str:
        return "\n".join(self._lines)


_NO_MESSAGE: Final = "its answer is not a JSON-RPC message"
_DECODER: Final = json.JSONDecoder(strict=False)


def _well_formed(data: bytes | str | _Object) -> JSONRPCMessage | None:
    """Return the message in a string or an object, or None unless it is exactly one message."""
    try:
        if isinstance(data, dict):
            message = _MESSAGE.validate_python(data, by_name=False)
        else:
            message = _MESSAGE.validate_json(data, by_name=False)
    except ValueError:
        return None

    if isinstance(message, JSONRPCResponse | JSONRPCError) and isinstance(message.id, str):
        message.id = _number(message.id)
    return message


def _without_depths(text: str) -> str:
    """Replace each value nested deeper than `MAX_NESTING` with a digest, so that a single schema
    does not make a whole list unusable. Call results that are nested this deeply are rejected by
    `Repairs`.
    """
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_CUT_BYTES:
        return text

    parts: list[bytes] = []
    depth = 0
    place = 0
    for token in _TOKEN.finditer(data):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == MAX_NESTING + 1:
                parts.append(data[place : token.start()])
                place = token.start()
        elif token[0] in (b"}", b"]"):
            if depth == MAX_NESTING + 1:
                digest = hashlib.sha256(data[place : token.end()]).hexdigest()
                parts.append(b'"sha256:%s"' % digest.encode())
                place = token.end()
            depth = max(0, depth - 1)

    parts.append(data[place:])
    return b"".join(parts).decode()


def _is_whole(text: str) -> bool:
    message = _BegunMessage()
    message.add(text)
    return message.is_whole


def _deep(message: JSONRPCMessage) -> JSONRPCMessage:
    if not isinstance(message, JSONRPCResponse):
        return message
    return DeepResponse(jsonrpc="2.0", id=message.id, result=message.result)


def _is_odd_message(text: str) -> bool:
    """Return whether a line is an object that claims to be a message, even a malformed one."""
    if not (text.startswith("{") and text.endswith("}") and '"jsonrpc"' in text):
        return False
    try:
        members: object = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(members, dict) and "jsonrpc" in members


def _is_incomplete(text: str) -> bool:
    """Return whether a string could be the beginning of a JSON array or object."""
    if not text.startswith(("{", "[")):
        return False

    try:
        _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text)
    except (ValueError, RecursionError):
        pass

    return False


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a string: an array, an object, or the noise between them."""

    text: str
    is_noise: bool
    value: object = None


def _parts(text: str) -> Iterator[_Part]:
    """Yield the arrays and objects in a string, and the noise between them."""
    tries = max(2, min(_MOST_TRIES, _WORK // max(1, len(text))))
    place = looked = 0
    while (match := _START.search(text, looked)) is not None and tries:
        try:
            value, end = cast("tuple[object, int]", _DECODER.raw_decode(text, match.start()))
        except (ValueError, RecursionError) as error:
            tries -= 1
            # Skip the text that was read: a well-formed part of malformed text is not a message.
            read = error.pos if isinstance(error, json.JSONDecodeError) else 0
            looked = max(read, match.start() + 1)
            continue

        between = text[place : match.start()].strip()
        if between:
            yield _Part(between, is_noise=True)

        yield _Part(
            text[match.start() : min(end, match.start() + _ENDS)], is_noise=False, value=value
        )
        place = looked = end

    remainder = text[place:].strip()
    if remainder:
        yield _Part(remainder, is_noise=True)


def _unreadable(text: str, what: str) -> list[JSONRPCMessage]:
    """Return an error for the request that an unreadable `text` answers, in a list, or an empty
    list if `text` is not an answer.
    """
    if not text.startswith("{"):
        # Text that does not begin with `{` is not treated as an answer, because it might be a log
        # line that quotes the beginning of one.
        return []

    start = text[:_ENDS].encode("utf-8", "replace")
    if _is_whole(text):
        end = text[-_ENDS:].encode("utf-8", "replace")
    else:
        end = b""

    error = answer_instead(start, end, what, Replaced.UNREADABLE)
    return [] if error is None else [error]


def answer_instead(start: bytes, end: bytes, what: str, data: Replaced) -> JSONRPCMessage | None:
    """Return an error in place of an unusable answer, or None if the answer's id cannot be found.

    Args:
        start: the first bytes of the answer.
        end: the last bytes of the answer, or empty if the answer is cut off, because the last
            bytes could then belong to any value.
        what: the message of the error.
        data: the data of the error.
    """
    members = dict(_first_members(start))
    if b"method" in members or not members.keys() & {b"result", b"error"}:
        return None

    id_match = _ID.match(members.get(b"id", b"")) or _LAST_ID.search(end)
    if id_match is None:
        return None

    error = ErrorData(code=PARSE_ERROR, message=what, data=data)
    return JSONRPCError(jsonrpc="2.0", id=int(id_match[1]), error=error)


def _first_members(start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name of each member in the first bytes of an object, with the bytes that follow it.

    Names inside the members are ignored, because anybody could have written that content.
    """
    depth = 0
    for token in _TOKEN.finditer(start):
        first = start[token.start() : token.start() + 1]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and token["colon"] is not None:
            yield token[0][1 : token[0].index(b'"', 1)], start[token.end() :]


def _request_id(value: object) -> int | str | None:
    """Return the id of one of our requests. Our ids are integers, but some servers answer 1 with
    "1" or 1.0.
    """
    return _number(value) if isinstance(value, str) else _integer(value)


def _number(request: str) -> int | str:
    if request.isascii() and request.isdecimal() and len(request) <= _DIGITS:
        return int(request)
    return request


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return None


def _shown(value: object) -> str:
    """Return a JSON value as text, cut well after the part that is shown, because the mask would
    not recognise a secret cut in two.
    """
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WORDS else text[:_WORDS] + "…"


def _quoted(name: str) -> str:
    return repr(name[:100])
