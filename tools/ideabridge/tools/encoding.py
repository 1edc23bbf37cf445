"""Read and write JSON in the form that ideabridge stores and compares.

The encoding is compact UTF-8 that preserves key order, with exact integers and shortest floats. NaN
and lone surrogates are rejected, and depth and size are limited. `orjson` encodes all values except
integers beyond 64 bits, which the standard library encodes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import orjson

from ideabridge.tools.errors import InvalidJSONError, LimitExceededError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""Any JSON value."""

JSONObject: TypeAlias = "dict[str, JSON]"
"""A JSON object."""

JSONLike: TypeAlias = (
    "bool | int | float | str | Sequence[JSONLike] | Mapping[str, JSONLike] | None"
)
"""Values that a program can pass as JSON. Any mapping or sequence is allowed, so that type checkers
accept literals.
"""

ObjectLike: TypeAlias = "Mapping[str, JSONLike] | Mapping[str, object]"
"""Values that a program can pass as a JSON object. They are checked at run time, because type
checkers might not know the types of the members.
"""

MAX_DEPTH: Final = 100
"""Maximum nesting depth of arrays and objects in an external value."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum size, in bytes, of the JSON text of an external value."""

BYTES_PER_VALUE: Final = 8
"""How many bytes of the size limit each value (number, string, list, ...) uses up. A value takes
far more memory than its text.
"""

MAX_VALUES: Final = MAX_BYTES // BYTES_PER_VALUE
"""Maximum number of values in an external value."""

MAX_WRITTEN: Final = 64 * 1024 * 1024
"""Maximum size, in bytes of JSON, of a value that sandboxed code creates."""

WRITTEN_PER_VALUE: Final = MAX_WRITTEN // MAX_VALUES
"""How many bytes of `MAX_WRITTEN` each part of such a value uses up. Many small values can take
more memory and time than one long string.
"""

_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1

_WINDOW: Final = 256 * 1024

_AS_DIGITS: Final = bytes(b"0"[0] if chr(byte) in "0123456789" else b" "[0] for byte in range(256))
"""Translation table that maps every digit to 0 and every other byte to a space."""

_LONG: Final = b"0" * 19
"""A zero for each digit of the smallest integers beyond 64 bits."""


def encode(value: JSON) -> bytes:
    """Encode a JSON value returned by `decode` or `normalise`, which check values.

    Equal values can have different encodings: key order is preserved, and 1 and 1.0 differ. This
    function must be fast, because it is called very often.

    Raises:
        InvalidJSONError: the value is not JSON.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        pass
    try:
        # orjson rejects integers beyond 64 bits. Insert them as text afterwards, so that all other
        # values are written as usual.
        return orjson.dumps(_with_big_integers(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJSONError(f"not a JSON value: {error}") from None


def _with_big_integers(value: Any) -> Any:
    if isinstance(value, int) and not _INT64_MIN <= value <= _UINT64_MAX:
        return orjson.Fragment(str(value))
    if isinstance(value, list):
        return [_with_big_integers(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            key: _with_big_integers(item) for key, item in cast("dict[str, Any]", value).items()
        }

    return value


def encode_text(value: JSON) -> str:
    """Return a JSON value as text; see `encode`."""
    return encode(value).decode("utf-8")


def kind_of(value: object) -> str:
    """Return the kind of a JSON value in words: "null", "true", "false", "a number", "a string", "a
    list" or "an object".
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def list_or_empty(value: JSON) -> list[JSON]:
    """Return the value if it is a list, or an empty list otherwise."""
    return value if isinstance(value, list) else []


def object_or_empty(value: JSON) -> JSONObject:
    """Return the value if it is an object, or an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def objects_in(value: JSON) -> list[JSONObject]:
    """Return the objects in a list. A value that is not a list contains no objects."""
    return [item for item in list_or_empty(value) if isinstance(item, dict)]


def number_or_none(value: object) -> int | float | None:
    """Return the value if it is a number, or None otherwise.

    Booleans are numbers in Python, but not in JSON.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def plain_text(value: JSON) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else encode_text(value)


def memory_of(data: bytes) -> int:
    """Estimate how much memory a value takes in Python, in bytes, from its JSON without spaces."""
    # The factors are the sizes of CPython's objects, members, arrays and items. The estimate can be
    # too high, because strings can contain the counted characters, too.
    return (
        len(data)
        + 150 * data.count(b"{")
        + 80 * data.count(b'":')
        + 60 * data.count(b"[")
        + 30 * data.count(b",")
    )


def content_hash(value: JSON) -> str:
    """Return the SHA-256 of `encode(value)` as 64 hex digits."""
    return hashlib.sha256(encode(value)).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJSONError(f"{name} is not JSON")


def _unique_object(pairs: list[tuple[str, JSON]]) -> JSONObject:
    result: JSONObject = {}
    for key, value in pairs:
        if key in result:
            raise InvalidJSONError(f"the key {key!r} occurs twice in one object")
        result[key] = value
    return result


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_object, parse_constant=_refuse_constant
)


REPEATED: Final = "\0"
"""The start of the suffix that `decode` adds to a repeated key in an object."""


def _numbered_object(pairs: list[tuple[str, JSON]]) -> JSONObject:
    result: JSONObject = {}
    for number, (key, value) in enumerate(pairs):
        result[key if key not in result else f"{key}{REPEATED}{number}"] = value
    return result


_NUMBERING_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_numbered_object, parse_constant=_refuse_constant
)


# Matches a whole JSON string as one token, so that brackets inside it are ignored. An unterminated
# string extends to the end of the text.
_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def nests_deeper(text: bytes, limit: int) -> bool:
    """Return whether JSON text is nested deeper than `limit`. Call this before a recursive
    parser.
    """
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
    """Estimate the number of values in JSON text without parsing it.

    Commas and opening brackets outside strings are counted, until soon after `limit`. Text that is
    not JSON also gets an estimate, in the same time.
    """
    most = _marks(text)
    if most <= limit:
        return most

    # Backslashes occur only in strings. Once every `\\` and then every `\"` has been removed, each
    # remaining quote begins or ends a string.
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    if plain.count(b'"') > 4 * (limit + 1):
        # A value accounts for at most four quotes: two of its own and two of its key. With more
        # quotes than that, there must be more values than the limit allows.
        return limit + 1

    count = 0
    for piece in _outside_strings(plain):
        count += _marks(piece)
        if count > limit:
            break

    return count


def count_encoded_values(data: bytes) -> int:
    """Return the number of values in JSON produced by `encode`.

    For megabytes of JSON, the count can be slightly too high.
    """
    # Count one for every comma, one for every array or object that is not empty, and one for the
    # value itself.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    pieces = _outside_strings(plain) if b'"' in plain else (plain,)
    return 1 + sum(_marks(piece) - piece.count(b"[]") - piece.count(b"{}") for piece in pieces)


def _outside_strings(plain: bytes) -> Iterator[bytes]:
    """Yield the parts of JSON that are outside strings. Every quote must begin or end a string."""
    inside = 0
    for start in range(0, len(plain), _WINDOW):
        pieces = plain[start : start + _WINDOW].split(b'"')
        yield b" ".join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def decode(
    data: str | bytes,
    *,
    what: str = "text",
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    keep_repeated: bool = False,
) -> JSON:
    """Decode external JSON text exactly and within limits.

    Args:
        data: the JSON text, as a string or as bytes in UTF-8.
        what: the name of the text in error messages ("the plan", "plan.json", ...).
        max_bytes: the maximum size of the text, in bytes.
        max_depth: the maximum nesting depth.
        keep_repeated: whether to keep the further values of a duplicate key in an object, each
            under the key with a suffix that begins with `REPEATED`.

    Raises:
        InvalidJSONError: the text is not JSON, or contains NaN, a lone surrogate, or, unless
            `keep_repeated` is set, an object with a duplicate key.
        LimitExceededError: the text exceeds a limit, or contains more than a million values.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InvalidJSONError(f"{what} is not UTF-8 (byte {error.start})") from None

    size = len(data) if isinstance(data, bytes) else len(text)
    if size > max_bytes:
        raise LimitExceededError(f"{what} has {size:,} bytes; the limit is {max_bytes:,}")

    if isinstance(data, bytes):
        plain = data
    else:
        plain = text.encode("utf-8", "replace")

    max_values = max(MAX_VALUES, max_bytes // BYTES_PER_VALUE)
    if count_values(plain, max_values) > max_values:
        raise LimitExceededError(
            f"{what} contains more than {max_values:,} values (numbers, strings, lists, ...)"
        )

    if nests_deeper(plain, max_depth):
        raise LimitExceededError(f"{what} is nested deeper than {max_depth} levels")

    decoder = _NUMBERING_DECODER if keep_repeated else _DECODER
    try:
        value = cast("JSON", decoder.decode(text))
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise InvalidJSONError(f"{what} is not JSON: {reason}") from None
    except (InvalidJSONError, ValueError, RecursionError) as error:
        raise InvalidJSONError(f"{what} is not JSON: {error}") from None

    return normalise(value, what=what, max_depth=max_depth)


def decode_at(text: str, position: int) -> tuple[JSON, int] | None:
    """Decode the value that begins at `position`, as exactly as `decode` does.

    Returns:
        The value and the position after it, or None if the text is incomplete, is not JSON, or is
        nested too deeply. To find out which, call `decode` with the whole text.
    """
    try:
        value, end = cast("tuple[JSON, int]", _DECODER.raw_decode(text, position))
        return normalise(value), end
    except (ValueError, RecursionError, InvalidJSONError, LimitExceededError):
        return None


def decode_trusted(data: str | bytes) -> JSON:
    """Decode text written by `encode`, fast and without limits."""
    try:
        value = cast("JSON", orjson.loads(data))
    except orjson.JSONDecodeError:
        # orjson rejects integers that are larger than the largest double, but `json` reads them.
        try:
            return cast("JSON", json.loads(data, parse_constant=_refuse_constant))
        except (ValueError, RecursionError, InvalidJSONError) as error:
            raise InvalidJSONError(f"stored text is not JSON: {error}") from None

    # orjson reads integers beyond 64 bits as floats, so text that contains one must be read again
    # to get it exactly. Search the bytes for such long numbers first, because most texts contain no
    # such numbers, and searching the bytes is far faster than walking through the value.
    digits = (data.encode() if isinstance(data, str) else data).translate(_AS_DIGITS)
    if _LONG in digits and _has_big_float(value):
        return cast("JSON", json.loads(data))
    return value


def _has_big_float(value: JSON) -> bool:
    if isinstance(value, float):
        # An integer that is slightly below the first one beyond 64 bits is rounded up to it as a
        # float, so a float of exactly this size can also stand for an integer beyond 64 bits.
        return value.is_integer() and not _INT64_MIN < value <= _UINT64_MAX

    if isinstance(value, list):
        return any(_has_big_float(item) for item in value)
    if isinstance(value, dict):
        return any(_has_big_float(item) for item in value.values())
    return False


class _NotJSONError(Exception):
    """Raised with the path of an invalid part. Paths are built only for errors."""

    def __init__(self, kind: type[InvalidJSONError | LimitExceededError], message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.path: list[str] = []


_DIGITS: Final = 4_300
"""Maximum number of digits in an integer that Python reads and writes."""

_TOO_LARGE: Final = 10**_DIGITS


def normalise(value: Any, *, what: str = "value", max_depth: int = MAX_DEPTH) -> JSON:
    """Return a new JSON value equal to `value`.

    Tuples become arrays. No other value is converted, because silently converting models, dates or
    sets would make different values equal.

    Raises:
        InvalidJSONError: a part is not JSON; the message names the path.
        LimitExceededError: the value is nested deeper than `max_depth`.
    """
    try:
        return _copy(value, max_depth)
    except _NotJSONError as error:
        # The start of a very deep path is enough to find the part.
        where = f"{what} at {'.'.join(reversed(error.path[-8:]))}" if error.path else what
        raise error.kind(f"{where} {error.message}") from None


def expect_written(value: object, *, what: str, most: int = MAX_WRITTEN) -> None:
    """Raise an error if a value is too large when written out.

    `x = [x] * 60`, repeated five times, takes 3 KB in memory but contains 800 million values. The
    check visits no more values than `most` allows.

    Args:
        value: the value, which might not be JSON.
        what: the name of the value in error messages.
        most: the maximum size of the value in bytes. Each nested value counts as
            `WRITTEN_PER_VALUE` bytes.

    Raises:
        LimitExceededError: the value is too large.
    """
    left = most
    stack: list[object] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            left -= len(part)
        elif isinstance(part, int):
            left -= part.bit_length() // 4
        elif isinstance(part, Mapping):
            members = cast("Mapping[object, object]", part)
            # Count the values before pushing them onto the stack, so that a huge value cannot make
            # the stack huge.
            left -= 2 * WRITTEN_PER_VALUE * len(members)
            if left >= 0:
                left -= sum(len(key) for key in members if isinstance(key, str))
                stack.extend(members.values())
        elif isinstance(part, list | tuple):
            items = cast("Sequence[object]", part)
            left -= WRITTEN_PER_VALUE * len(items)
            if left >= 0:
                stack.extend(items)

        if left < 0:
            values = most // WRITTEN_PER_VALUE
            raise LimitExceededError(
                f"{what} has more than {most >> 20:,} MB once written out, or "
                f"more than {values:,} values"
            )


def _text(value: str) -> str:
    # Only a string with non-ASCII characters can contain a surrogate. `isascii` takes constant time
    # in CPython, so checking it first makes most strings cheap.
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _NotJSONError(InvalidJSONError, "contains half a surrogate pair") from None
    return value if type(value) is str else str(value)


def _copy(value: Any, depth: int) -> JSON:
    kind = cast("type[Any]", type(value))
    if kind is str and value.isascii():
        return value
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if not -_TOO_LARGE < value < _TOO_LARGE:
            raise _NotJSONError(InvalidJSONError, f"is an integer of more than {_DIGITS:,} digits")
        return value if kind is int else int(value)

    if isinstance(value, float):
        if not math.isfinite(value):
            raise _NotJSONError(InvalidJSONError, f"is {value}, which JSON cannot represent")
        return float(value)

    if depth <= 0:
        raise _NotJSONError(LimitExceededError, "is nested deeper than the limit")

    key: Any = None
    try:
        # Compare the type first, because `isinstance(value, Mapping)` alone takes longer than
        # copying a small object.
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
