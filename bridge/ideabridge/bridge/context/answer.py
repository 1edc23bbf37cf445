"""Read a Solution as it streams in, and return each call as soon as its JSON object is complete.

The text can arrive in pieces of any size, split anywhere. The scanner only finds where values end,
one token at a time; each value is then decoded separately. The cost is linear in the length of the
text. Integers can have any size. A Markdown fence or prose around the object is ignored.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ideabridge.tools.encoding import JSON, MAX_BYTES, MAX_DEPTH, JSONObject, decode, decode_at
from ideabridge.tools.errors import (
    IdeabridgeError,
    InvalidJSONError,
    LimitExceededError,
    ValueMismatchError,
)
from ideabridge.tools.reading import (
    BESIDE_PROGRAM,
    read_call_text,
    read_calls,
    read_output,
    read_program,
)


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A complete call."""

    call: JSON


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """A complete output that is not null."""

    output: JSON


@dataclass(frozen=True, slots=True)
class EndPiece:
    """The end of the answer.

    Attributes:
        broken: why the answer is invalid or incomplete, or None if it is valid and complete.
        extra: the other members of the answer.
        program: the program, or None if the answer is not one.
    """

    broken: str | None
    extra: JSONObject
    program: str | None = None


Piece: TypeAlias = CallPiece | OutputPiece | EndPiece


class _State(Enum):
    """The position of the scanner in `{"calls": [...], "output": ...}` or `{"program": "..."}`."""

    BEFORE = "before the object"
    OPENED = "after a brace that may open the object"
    KEY = "before a key"
    COLON = "before a colon"
    VALUE = "before a value"
    INSIDE = "inside a value"
    COMMA = "after a member"
    ITEM = "before a call"
    ITEM_COMMA = "after a call"
    DONE = "after the object"


_SPACE: Final = re.compile(r"\s*")
_OUTSIDE: Final = re.compile(r'["{}\[\]]')
_STRING: Final = re.compile(r'["\\]')
_SCALAR_END: Final = re.compile(r"[\s,}\]]")


class AnswerReader:
    """Reads one streamed answer."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._state = _State.BEFORE
        self._pieces: list[Piece] = []
        self._extra: JSONObject = {}
        self._seen: set[str] = set()
        self._key = ""
        self._in_calls = False
        self._length = 0
        self._ended = False
        # True once the answer has had a call or an output.
        self._has_begun = False
        # The state of the current value: its text so far, the depth of its brackets, and whether a
        # string or an escape is open.
        self._captured: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._scalar = False
        self._is_key = False

    def feed(self, piece: str | bytes) -> list[Piece]:
        """Read the next part of the answer's text. Return the pieces completed by this part, or []
        after an `EndPiece`.
        """
        if self._ended:
            return []
        self._begin_pieces()
        try:
            if isinstance(piece, bytes):
                text = self._decoder.decode(piece)
            else:
                text = piece

            self._length += len(text)
            if self._length > MAX_BYTES:
                raise LimitExceededError(f"the answer has more than {MAX_BYTES:,} characters")

            position = 0
            while position < len(text):
                position = self._step(text, position)
        except UnicodeDecodeError:
            self._end("it is not UTF-8")
        except IdeabridgeError as error:
            self._end(str(error))

        return self._pieces

    @property
    def is_whole(self) -> bool:
        """True if the object of the Solution is complete."""
        return self._state is _State.DONE

    def close(self) -> list[Piece]:
        """End the answer and return its last pieces, or [] if it has already ended."""
        if self._ended:
            return []
        self._begin_pieces()
        if self._state is _State.DONE:
            self._end(None)
        elif self._state in (_State.BEFORE, _State.OPENED):
            self._end("it contains no JSON object")
        elif self._key:
            self._end(f"it ended {self._state.value} of {self._key!r}")
        else:
            self._end(f"it ended {self._state.value}")

        return self._pieces

    def _begin_pieces(self) -> None:
        self._has_begun = self._has_begun or bool(self._pieces)
        self._pieces = []

    def _end(self, broken: str | None) -> None:
        if broken is None and "_tool" in self._extra and not self._seen & {"calls", "output"}:
            # Models sometimes write a single call instead of a Solution, so accept it as one.
            self._pieces.append(CallPiece(self._extra))
            self._extra = {}

        self._ended = True
        program = None
        if broken is None:
            program, broken = self._program()

        self._pieces.append(EndPiece(broken, self._extra, program))

    def _program(self) -> tuple[str | None, str | None]:
        """Return the answer's program, and why it is malformed. Either can be None.

        A malformed program is left in `extra`.
        """
        try:
            program = read_program(self._extra.get("program"))
        except ValueMismatchError as error:
            return None, str(error)

        if program is not None and (self._has_begun or self._pieces):
            return None, BESIDE_PROGRAM
        self._extra.pop("program", None)
        return program, None

    # -- reading one token -------------------------------------------------------------------------

    def _step(self, text: str, position: int) -> int:
        if self._state is _State.INSIDE:
            return self._inside(text, position)
        if self._state is _State.DONE:
            return len(text)
        if self._state is _State.BEFORE:
            brace = text.find("{", position)
            if brace < 0:
                return len(text)
            self._state = _State.OPENED
            return brace + 1

        match = _SPACE.match(text, position)
        position = match.end() if match else position
        if position == len(text):
            return position
        return self._token(text, position, text[position])

    def _token(self, text: str, position: int, char: str) -> int:
        match self._state:
            case _State.OPENED:
                # Prose can contain braces, so only `{"` and `{}` count as the beginning of an
                # object.
                if char not in '"}':
                    self._state = _State.BEFORE
                    return position
                self._state = _State.KEY
                return position
            case _State.KEY if char == '"':
                self._is_key = True
                return self._begin(position)
            case _State.COLON if char == ":":
                self._state = _State.VALUE
            case _State.VALUE if char == "[" and self._key == "calls":
                self._in_calls = True
                self._state = _State.ITEM
            case _State.ITEM | _State.ITEM_COMMA if char == "]":
                self._in_calls = False
                self._state = _State.COMMA
            case _State.ITEM if char == "{" and (whole := decode_at(text, position)) is not None:
                # Most calls arrive in one piece, so try to decode the whole call first. If that
                # fails, the scanner looks for its end.
                self._state = _State.ITEM_COMMA
                self._pieces.append(CallPiece(whole[0]))
                return whole[1]
            case _State.VALUE | _State.ITEM if char not in ",:}]":
                return self._begin(position)
            case _State.ITEM_COMMA if char == ",":
                self._state = _State.ITEM
            case _State.COMMA if char == ",":
                self._state = _State.KEY
            case _State.COMMA | _State.KEY if char == "}":
                self._state = _State.DONE
                self._key = ""
            case _:
                raise InvalidJSONError(f"it is not JSON: {char!r} {self._state.value}")
        return position + 1

    def _begin(self, position: int) -> int:
        self._state = _State.INSIDE
        self._captured = []
        self._depth = 0
        self._in_string = self._escaped = self._scalar = False
        return position

    def _inside(self, text: str, position: int) -> int:
        start = position
        if not self._captured and not self._depth and not self._in_string:
            self._scalar = text[position] not in '"{['

        while position < len(text):
            if self._escaped:
                self._escaped = False
                position += 1
                continue

            if self._scalar:
                end = _SCALAR_END.search(text, position)
                position = end.start() if end else len(text)
                if end:
                    return self._finish(text[start:position], position)
                break

            token = (_STRING if self._in_string else _OUTSIDE).search(text, position)
            if token is None:
                position = len(text)
                break

            position = token.end()
            char = token.group()
            if char == "\\":
                self._escaped = True
            elif char == '"':
                self._in_string = not self._in_string
            elif char in "{[":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise LimitExceededError(f"it is nested deeper than {MAX_DEPTH} levels")
            else:
                self._depth -= 1

            if not self._depth and not self._in_string and not self._escaped:
                return self._finish(text[start:position], position)

        self._captured.append(text[start:position])
        return position

    def _finish(self, rest: str, position: int) -> int:
        self._captured.append(rest)
        text = "".join(self._captured)
        self._captured = []
        if self._is_key:
            self._is_key = False
            self._key = str(decode(text, what="a key"))
            if self._key in self._seen:
                raise InvalidJSONError(f"the key {self._key!r} occurs twice")
            self._seen.add(self._key)
            self._state = _State.COLON
            return position

        where = "a call" if self._in_calls else repr(self._key)
        value = decode(text, what=where)
        if self._in_calls:
            self._state = _State.ITEM_COMMA
            self._pieces.append(CallPiece(read_call_text(value, "a call", [])))
            return position

        self._state = _State.COMMA
        if self._key == "calls":
            # The text contains the JSON of an array, of a single call, or of null.
            self._pieces.extend(CallPiece(call) for call in read_calls(value, []))
        elif self._key == "output":
            if value is not None:
                self._pieces.append(OutputPiece(read_output(value, [])))
        else:
            self._extra[self._key] = value

        return position
