"""JSON as ideabridge stores and compares it.

UTF-8, compact, with the order of keys, exact integers and shortest floats; without NaN and lone surrogates; bounded in
depth and size. `orjson` does this fast; the standard library does it for what orjson refuses (integers past 64 bits).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import orjson

from ideabridge.tools.errors import InvalidJSONError, LimitExceededError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""Any JSON value."""

JSONObject: TypeAlias = "dict[str, JSON]"
"""A JSON object."""

JSONLike: TypeAlias = "bool | int | float | str | Sequence[JSONLike] | Mapping[str, JSONLike] | None"
"""What a program may hand over as JSON: any mapping and sequence, whatever a type checker infers of a literal."""

ObjectLike: TypeAlias = "Mapping[str, JSONLike] | Mapping[str, object]"
"""What a program may hand over as a JSON object. It is checked when it is read: a checker may know less of it."""

MAX_DEPTH: Final = 100
"""How deeply arrays and objects may nest in a value from outside."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of JSON text one value from outside may have."""

BYTES_PER_VALUE: Final = 8
"""A text may hold one value (number, text, list, ...) for so many of the bytes it may have: values cost far more."""

MAX_VALUES: Final = MAX_BYTES // BYTES_PER_VALUE
"""How many values one value from outside may hold."""

# An integer of n digits takes O(n^2) to parse; CPython itself stops at 4300 digits.
_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1

_WINDOW: Final = 256 * 1024

_AS_DIGITS: Final = bytes(b"0"[0] if chr(byte) in "0123456789" else b" "[0] for byte in range(256))
"""Translates every digit to 0 and every other byte to a space."""

_LONG: Final = b"0" * 19
"""As many digits as the smallest integers past 64 bits have."""


def encode(value: JSON) -> bytes:
    """Encode a JSON value to its one canonical byte form.

    Args:
        value: a value that `decode` or `normalise` gave; they are the gate, this is the hot path.

    Raises:
        InvalidJSONError: the value is not JSON.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        pass
    try:
        # orjson refuses integers past 64 bits: they are put in as text, so that everything else keeps one form.
        return orjson.dumps(_with_big_integers(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJSONError(f"not a JSON value: {error}") from None


def _with_big_integers(value: Any) -> Any:
    if isinstance(value, int) and not _INT64_MIN <= value <= _UINT64_MAX:
        return orjson.Fragment(str(value))
    if isinstance(value, list):
        return [_with_big_integers(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _with_big_integers(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def encode_text(value: JSON) -> str:
    """Encode a JSON value as canonical text (see `encode`)."""
    return encode(value).decode("utf-8")


def content_hash(value: JSON) -> str:
    """SHA-256, as 64 hex digits, of the canonical encoding of `value`."""
    return hashlib.sha256(encode(value)).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJSONError(f"{name} is not JSON")


def _unique_object(pairs: list[tuple[str, JSON]]) -> JSONObject:
    result: JSONObject = {}
    for key, value in pairs:
        if key in result:
            raise InvalidJSONError(f"the key {key!r} stands twice in one object")
        result[key] = value
    return result


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique_object, parse_constant=_refuse_constant)


# Text is one token, so that brackets in it do not count; text that is cut off runs to the end.
_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def nests_deeper(text: bytes, limit: int) -> bool:
    """Whether JSON text nests deeper than `limit`: asked before a recursive parser runs."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def count_values(text: bytes, limit: int) -> int:
    """About how many values JSON text holds, seen without reading it: commas and opening brackets outside of texts.

    Text that is no JSON has some count as well, as soon. Counting ends soon after `limit`, whatever follows.
    """
    most = _marks(text)
    if most <= limit:
        return most
    # A backslash only stands in texts. Without `\\` and then without `\"`, every quote begins or ends one.
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    if plain.count(b'"') > 4 * (limit + 1):
        # Each value has two quotes, and two more where it has a key.
        return limit + 1
    count = inside = 0
    for start in range(0, len(plain), _WINDOW):
        pieces = plain[start : start + _WINDOW].split(b'"')
        count += _marks(b" ".join(pieces[inside::2]))
        inside ^= len(pieces) % 2 == 0
        if count > limit:
            break
    return count


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def decode(data: str | bytes, *, what: str = "text", max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> JSON:
    """Decode JSON text from outside, exactly and within bounds.

    Args:
        data: JSON text, UTF-8 if bytes.
        what: what the text is, for the error message ("the plan", "plan.json", ...).
        max_bytes: bound on the size of the text, in bytes.
        max_depth: bound on the nesting.

    Raises:
        InvalidJSONError: not JSON, a key stands twice in one object, NaN, a lone surrogate.
        LimitExceededError: larger or deeper than the bounds, or it holds more than a million values.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InvalidJSONError(f"{what} is not UTF-8 (byte {error.start})") from None
    size = len(data) if isinstance(data, bytes) else len(text)
    if size > max_bytes:
        raise LimitExceededError(f"{what} has {size:,} bytes; at most {max_bytes:,} are taken")
    plain = data if isinstance(data, bytes) else text.encode("utf-8", "replace")
    max_values = max(MAX_VALUES, max_bytes // BYTES_PER_VALUE)
    if count_values(plain, max_values) > max_values:
        raise LimitExceededError(f"{what} holds more than {max_values:,} values (numbers, texts, lists, ...)")
    if nests_deeper(plain, max_depth):
        raise LimitExceededError(f"{what} nests deeper than {max_depth} levels")
    try:
        value = cast("JSON", _DECODER.decode(text))
    except InvalidJSONError as error:
        raise InvalidJSONError(f"{what} is not JSON: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidJSONError(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidJSONError(f"{what} is not JSON: {error}") from None
    return normalise(value, what=what, max_depth=max_depth)


def decode_at(text: str, position: int) -> tuple[JSON, int] | None:
    """The value whose text begins at `position`, as exact as `decode`, and where that text ends.

    None where it is cut off, is no JSON, or nests too deep: `decode` of the whole text tells.
    """
    try:
        value, end = cast("tuple[JSON, int]", _DECODER.raw_decode(text, position))
        return normalise(value), end
    except (ValueError, RecursionError, InvalidJSONError, LimitExceededError):
        return None


def decode_trusted(data: str | bytes) -> JSON:
    """Decode text that `encode` wrote: the fast way, without bounds."""
    try:
        value = cast("JSON", orjson.loads(data))
    except orjson.JSONDecodeError:
        # An integer past the largest double is no number to orjson, and one to us.
        try:
            return cast("JSON", json.loads(data, parse_constant=_refuse_constant))
        except (ValueError, RecursionError, InvalidJSONError) as error:
            raise InvalidJSONError(f"stored text is not JSON: {error}") from None
    # orjson reads integers past 64 bits as floats; such text is rare, and then read again exactly. Most has no number
    # that long, which is seen far faster in its bytes than by a walk through the value.
    digits = (data.encode() if isinstance(data, str) else data).translate(_AS_DIGITS)
    return cast("JSON", json.loads(data)) if _LONG in digits and _has_big_float(value) else value


def _has_big_float(value: JSON) -> bool:
    if isinstance(value, float):
        # The next integers below the least one of 64 bits round to that: a float of its size may be any of them.
        return value.is_integer() and not _INT64_MIN < value <= _UINT64_MAX
    if isinstance(value, list):
        return any(_has_big_float(item) for item in value)
    if isinstance(value, dict):
        return any(_has_big_float(item) for item in value.values())
    return False


class _NotJSONError(Exception):
    """Carries the path of the offending part outwards; the path is built only when there is a fault."""

    def __init__(self, kind: type[InvalidJSONError | LimitExceededError], message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.path: list[str] = []


def normalise(value: Any, *, what: str = "value", max_depth: int = MAX_DEPTH) -> JSON:
    """A fresh JSON value equal to `value`: copies containers and refuses what is not JSON.

    Tuples become arrays. Every other conversion (models, dates, sets) is the caller's: a silent one would make
    two different values equal.

    Raises:
        InvalidJSONError: something in it is not JSON; the message names the path.
        LimitExceededError: it nests deeper than `max_depth`.
    """
    try:
        return _copy(value, max_depth)
    except _NotJSONError as error:
        # A path as deep as the limit helps nobody: its beginning does.
        where = f"{what} at {'.'.join(reversed(error.path[-8:]))}" if error.path else what
        raise error.kind(f"{where} {error.message}") from None


def _text(value: str) -> str:
    # `isascii` is O(1) in CPython: only text with other characters can hold a surrogate.
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _NotJSONError(InvalidJSONError, "holds half a surrogate pair") from None
    return value if type(value) is str else str(value)


def _copy(value: Any, depth: int) -> JSON:
    kind = cast("type[Any]", type(value))
    if kind is str and value.isascii():
        return value
    if value is None or kind is int or kind is bool:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _NotJSONError(InvalidJSONError, f"is {value}, which JSON does not have")
        return float(value)
    if depth <= 0:
        raise _NotJSONError(LimitExceededError, "nests deeper than the limit")
    key: Any = None
    try:
        # Asked first, because asking for a Mapping takes longer than the copy of a small object.
        if kind is dict or isinstance(value, Mapping):
            result: JSONObject = {}
            for key, item in cast("Mapping[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise _NotJSONError(InvalidJSONError, "is a key that is not text")
                result[_text(key)] = _copy(item, depth - 1)
            return result
        if isinstance(value, list | tuple):
            items: list[JSON] = []
            for item in cast("list[Any]", value):
                key = len(items)
                items.append(_copy(item, depth - 1))
            return items
    except _NotJSONError as error:
        error.path.append(str(key).encode("utf-8", "replace").decode())
        raise
    raise _NotJSONError(InvalidJSONError, f"is a {type(value).__name__}, which is not JSON")
