"""Read hand-written documents in JSON, JSON with comments and trailing commas, or YAML 1.2.

YAML is read from the parser's events, without constructing objects, so the result is always JSON.
The core schema of YAML 1.2 applies: `no` and `12:30` are strings. Tags and duplicate keys are
rejected. An alias counts each time it occurs, so a short document cannot expand to a huge value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ideabridge.tools.encoding import JSON, MAX_BYTES, MAX_DEPTH, MAX_VALUES, decode, normalise
from ideabridge.tools.errors import InvalidJSONError, LimitExceededError

YAML_SUFFIXES: Final = (".yaml", ".yml")
JSON_SUFFIXES: Final = (".json", ".jsonc")

MAX_YAML_BYTES: Final = 256 * 1024
"""Maximum size, in bytes, of a YAML document. The YAML parser takes up to 20 s for a megabyte, so
larger documents must be JSON.
"""


def read_written(
    data: str | bytes, *, what: str, name: str = "", max_bytes: int = MAX_BYTES
) -> JSON:
    """Read a document that a person wrote.

    Args:
        data: the text, as a string or as bytes in UTF-8.
        what: the name of the text in error messages.
        name: the file name. `.yaml` and `.yml` mean YAML, `.json` and `.jsonc` mean JSON. For any
            other name, the text is read as JSON if it begins with a bracket or a JSON comment, and
            as YAML otherwise.
        max_bytes: the maximum size of JSON text, in bytes. YAML that is not JSON is limited to
            `MAX_YAML_BYTES`.

    Raises:
        InvalidJSONError: the text is malformed, or its value is not JSON. The message names the
            line.
        LimitExceededError: the text is too large or too deeply nested, or its aliases expand too
            far.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InvalidJSONError(f"{what} is not UTF-8 (byte {error.start})") from None

    text = text.removeprefix("\ufeff")
    suffix = name.lower()
    if suffix.endswith(YAML_SUFFIXES):
        if text.lstrip().startswith(("{", "[")):
            # Try JSON first, because YAML allows at most 1,024 characters before the colon of a key
            # in braces, and JSON has no such limit.
            with suppress(InvalidJSONError):
                return decode(text, what=what, max_bytes=max_bytes)

        return _read_yaml(text, what)

    if suffix.endswith(JSON_SUFFIXES) or text.lstrip().startswith(("{", "[", "//", "/*")):
        if len(text) > max_bytes:
            raise LimitExceededError(
                f"{what} has {len(text):,} characters; the limit is {max_bytes:,} bytes"
            )
        return decode(blank_comments(text), what=what, max_bytes=max_bytes)

    return _read_yaml(text, what)


def has_comments(text: str) -> bool:
    """Return whether a document that `read_written` accepts has comments. Its value lacks them."""
    if text.lstrip().startswith(("{", "[", "//", "/*")):
        pairs = zip(text, blank_comments(text), strict=True)
        return any(before not in (after, ",") for before, after in pairs)

    from ruamel.yaml import YAML

    scanner: Any = YAML(typ="safe", pure=True)
    end = 0
    for token in scanner.scan(text):
        # Between two tokens, there are only spaces and comments.
        if "#" in text[end : token.start_mark.index]:
            return True
        end = token.end_mark.index
    return False


# -- JSON with comments ----------------------------------------------------------------------------

_PIECE: Final = re.compile(r'"|//|/\*|,')
_STRING_END: Final = re.compile(r'["\\\n]')
_BEHIND: Final = re.compile(r"\S")


def blank_comments(text: str) -> str:
    """Replace comments and trailing commas with spaces, preserving lines and columns.

    Each character is read only once, because the text can come from anywhere.
    """
    parts: list[str] = []
    commas: list[int] = []
    done = 0
    while (piece := _PIECE.search(text, done)) is not None:
        start = piece.start()
        parts.append(text[done:start])
        match piece.group():
            case '"':
                done = _string_end(text, start + 1)
                parts.append(text[start:done])
            case ",":
                done = start + 1
                parts.append(",")
                commas.append(start)
            case "//":
                end = text.find("\n", start)
                done = len(text) if end < 0 else end
                parts.append(" " * (done - start))
            case _:
                end = text.find("*/", start + 2)
                done = len(text) if end < 0 else end + 2
                parts.append(_blank(text[start:done]))

    parts.append(text[done:])
    plain = "".join(parts)
    trailing = [place for place in commas if _is_trailing(plain, place)]
    return "".join(_with_spaces_at(plain, trailing))


def _string_end(text: str, place: int) -> int:
    """Return the end of the string whose opening quote is just before `place`.

    This is the position after the closing quote or, if there is none, the end of the line or text.
    """
    while (mark := _STRING_END.search(text, place)) is not None:
        if mark.group() == "\\":
            place = mark.end() + 1
            continue
        return mark.end() if mark.group() == '"' else mark.start()
    return len(text)


def _blank(comment: str) -> str:
    return "\n".join(" " * len(line) for line in comment.split("\n"))


def _is_trailing(text: str, comma: int) -> bool:
    """Return whether a comma is between a value and the end of its object or array."""
    before = comma - 1
    while before >= 0 and text[before].isspace():
        before -= 1
    if before < 0 or text[before] in "{[,:":
        return False

    behind = _BEHIND.search(text, comma + 1)
    return behind is not None and behind.group() in "}]"


def _with_spaces_at(text: str, places: list[int]) -> Iterator[str]:
    done = 0
    for place in places:
        yield text[done:place]
        yield " "
        done = place + 1
    yield text[done:]


# -- YAML ------------------------------------------------------------------------------------------

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_LONGEST_NUMBER: Final = 4300
"""Maximum number of digits in an integer that Python converts."""


@dataclass(slots=True)
class _Value:
    """A value, and the size that each occurrence of it adds to the document."""

    value: JSON
    values: int
    size: int
    height: int


@dataclass(slots=True)
class _Open:
    """A list or an object that is still being read. `key` is the key of the next member."""

    whole: _Value
    anchor: str | None
    key: str | None = None


class _Reading:
    """Builds a value from the events of a YAML text."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._open: list[_Open] = []
        self._anchors: dict[str, _Value] = {}
        self._documents = 0
        self._found: _Value | None = None

    @property
    def value(self) -> JSON:
        """The value of the whole document, or null if it is empty."""
        return None if self._found is None else self._found.value

    def take(self, event: Any) -> None:
        """Process the next event.

        Raises:
            InvalidJSONError, LimitExceededError: see `read_written`.
        """
        where = f"{self._what}, line {event.start_mark.line + 1}"
        if getattr(event, "tag", None) is not None:
            raise InvalidJSONError(
                f"{where}: found a tag ({str(event.tag)[:60]}), which is not allowed; write plain "
                "values"
            )

        match type(event).__name__:
            case "DocumentStartEvent":
                self._begin(event, where)
            case "MappingStartEvent":
                self._enter({}, event.anchor, where)
            case "SequenceStartEvent":
                self._enter([], event.anchor, where)
            case "MappingEndEvent" | "SequenceEndEvent":
                ended = self._open.pop()
                self._put(ended.whole, ended.anchor, where)
            case "ScalarEvent":
                self._scalar(event, where)
            case "AliasEvent":
                value = self._anchors.get(event.anchor)
                if value is None:
                    raise InvalidJSONError(
                        f"{where}: *{event.anchor} refers to an anchor that no earlier value has"
                    )
                self._put(value, None, where)
            case _:
                pass

    def _begin(self, event: Any, where: str) -> None:
        self._documents += 1
        if self._documents > 1:
            raise InvalidJSONError(f"{where}: found a second document; a file can contain only one")
        if event.version is not None and tuple(event.version) != (1, 2):
            raise InvalidJSONError(
                f"{where}: expected YAML 1.2, found %YAML {'.'.join(map(str, event.version))}"
            )

    def _enter(self, value: JSON, anchor: str | None, where: str) -> None:
        self._expect_room(len(self._open) + 1, where)
        if (
            self._open
            and isinstance(self._open[-1].whole.value, dict)
            and self._open[-1].key is None
        ):
            raise InvalidJSONError(f"{where}: found a list or a mapping as a key; expected text")
        self._open.append(_Open(_Value(value, 1, 2, 1), anchor))

    def _scalar(self, event: Any, where: str) -> None:
        text = _whole(str(event.value))
        if (
            self._open
            and isinstance(self._open[-1].whole.value, dict)
            and self._open[-1].key is None
        ):
            # Do not convert a key: it is a string even if it looks like a number.
            if text == "<<" and event.implicit[0]:
                raise InvalidJSONError(
                    f"{where}: found <<, a merge key of YAML 1.1; write the members out, or put "
                    "the key << in quotes"
                )

            self._key(text, where)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Value(text, 1, len(text), 0)
            return

        # Only a plain scalar, one without quotes, can be anything other than a string.
        value = _plain(text, where) if event.implicit[0] else text
        self._put(_Value(value, 1, len(text) + 1, 0), event.anchor, where)

    def _key(self, text: str, where: str) -> None:
        container = self._open[-1]
        if isinstance(container.whole.value, dict) and text in container.whole.value:
            raise InvalidJSONError(f"{where}: the key {text[:100]!r} occurs twice in one mapping")
        container.key = text
        container.whole.size += len(text) + 1

    def _put(self, value: _Value, anchor: str | None, where: str) -> None:
        if anchor is not None:
            self._anchors[anchor] = value

        if not self._open:
            self._found = value
            return

        container = self._open[-1]
        if isinstance(container.whole.value, list):
            container.whole.value.append(value.value)
        elif isinstance(container.whole.value, dict):
            if container.key is None:
                if not isinstance(value.value, str):
                    raise InvalidJSONError(f"{where}: found a key that is not text")
                self._key(value.value, where)
                return

            container.whole.value[container.key] = value.value
            container.key = None

        self._expect_room(len(self._open) + value.height, where)
        container.whole.values += value.values
        container.whole.size += value.size
        container.whole.height = max(container.whole.height, value.height + 1)
        if container.whole.values > MAX_VALUES or container.whole.size > MAX_BYTES:
            raise LimitExceededError(
                f"{where}: with its aliases expanded, the document has more than {MAX_VALUES:,} "
                "values or "
                f"{MAX_BYTES:,} bytes"
            )

    def _expect_room(self, depth: int, where: str) -> None:
        if depth > MAX_DEPTH:
            raise LimitExceededError(f"{where}: is nested deeper than {MAX_DEPTH} levels")


def _whole(text: str) -> str:
    """Combine surrogate pairs, which JSON uses to escape some characters, into single
    characters.
    """
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _plain(text: str, where: str) -> JSON:
    """Return the value of an unquoted scalar according to the core schema of YAML 1.2."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _INTEGER.fullmatch(text):
        if len(text) > _LONGEST_NUMBER:
            raise InvalidJSONError(
                f"{where}: found a number with {len(text):,} digits; write it as text, in quotes"
            )
        return int(text)

    if len(text) <= _LONGEST_NUMBER:
        if _OCTAL.fullmatch(text):
            return int(text[2:], 8)
        if _HEXADECIMAL.fullmatch(text):
            return int(text[2:], 16)
        if _FLOAT.fullmatch(text):
            return _finite(float(text), text, where)

    if _NOT_FINITE.fullmatch(text):
        raise InvalidJSONError(f"{where}: {text} is not a JSON number; write it as text, in quotes")
    return text


def _finite(number: float, text: str, where: str) -> float:
    if number in (float("inf"), float("-inf")):
        raise InvalidJSONError(f"{where}: {text[:40]} is too large to be read as a number")
    return number


def _read_yaml(text: str, what: str) -> JSON:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_YAML_BYTES:
        raise LimitExceededError(
            f"{what} has {size:,} bytes of YAML; the limit is {MAX_YAML_BYTES:,}; write it as JSON "
            "instead"
        )

    # Import these only when they are needed, because most programs never read YAML.
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    reading = _Reading(what)
    parser: Any = YAML(typ="safe", pure=True)
    try:
        for event in parser.parse(io.StringIO(text)):
            reading.take(event)
    except YAMLError as error:
        raise InvalidJSONError(f"{what}: {_one_line(error)}") from None

    return normalise(reading.value, what=what)


def _one_line(error: Any) -> str:
    """Return the error and its position on one line.

    The library's own message has several lines, some of which quote the document.
    """
    problem = (
        getattr(error, "problem", None)
        or getattr(error, "reason", None)
        or str(error).split("\n", 1)[0]
    )
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        where = ""
    else:
        where = f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"{str(problem)[:200]}{where}; expected YAML 1.2"
