"""Objects that stand in for large results in a program.

A result over `LARGE_RESULT` bytes stays in this process, because passing it to the interpreter
takes a long time, and it might not fit into the memory of a program. The program receives a
`Handle` instead. The program can read a part with `await tools.read(handle, path)`, pass the handle
as a parameter, or return it. As a parameter or an output, a handle becomes a reference to the
result (`†results.0.rows`), which the machine resolves like any reference of a plan. The journal
therefore does not store the value twice, and a resumed program gets the same handles.

A handle is an object of this process, and the interpreter refers to it by an id within the session.
Results of tools are JSON, so they cannot be or imitate handles. A class with the same name in a
program is a different class. A session has handles only for its own results.

    rows = await db.query(sql="...")        # Handle(call=0, path='', type='array', length=40000,
        bytes=5200000)
    await tools.read(rows, "0.name")        # a part; over `LARGE_RESULT` bytes it is a handle again
    await files.write(path="rows.json", content=rows)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from ideabridge.bridge.context.references import (
    escaped,
    format_path,
    format_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing, describe_missing
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.errors import ProgramError
from ideabridge.tools.encoding import JSON, MAX_DEPTH, encode, expect_written, normalise
from ideabridge.tools.json_parts import values_in

LARGE_RESULT: Final = 1_000_000
"""The maximum size, in bytes of JSON, of a result that a program receives as a value."""

READ: Final = "read"
"""The function of the module `tools` that reads part of a result."""

CLASS: Final = "Handle"

SHOWN: Final = ("call", "path", "type", "length", "bytes")
"""The attributes of a handle that a program can see."""

STUB: Final = f'''
from typing import Any as _Any
class {CLASS}:
    """A result over 1 MB. Read a part of it with `await tools.read(handle, path)`, or pass it
    to a tool.
    """
    call: int
    path: str
    type: str
    length: int
    bytes: int
async def {READ}(result: _Any, path: str = "") -> _Any: ...
'''

HINT: Final = (
    "a result larger than 1 MB is a Handle: read a part of it with await tools.read(handle, "
    "path), or pass it to a tool"
)


@dataclass(frozen=True, eq=False)
class Handle:
    """A large result of a call, or a large part of one.

    Attributes:
        call: the number of the call in its program, from 0.
        keys: the path of the part within the result.
        value: the value.
        bytes: the size of the value in bytes of JSON.
    """

    call: int
    keys: tuple[str, ...]
    value: JSON = field(repr=False)
    bytes: int

    @property
    def path(self) -> str:
        """The path of the part as a string, such as `rows.0`."""
        return format_path(self.keys).removeprefix(".")

    @property
    def type(self) -> str:
        """The type of the value: `array`, `object` or `text`."""
        if isinstance(self.value, list):
            return "array"
        if isinstance(self.value, dict):
            return "object"
        return "text"

    @property
    def length(self) -> int:
        """The number of items, members or characters."""
        if isinstance(self.value, str | list | dict):
            return len(self.value)
        return 0

    def reference(self, first: int) -> str:
        """Return the reference to the value. `first` is the index, in the run, of the program's
        first call.
        """
        return format_reference(("results", str(first + self.call), *self.keys))


def handed(call: int, value: JSON, keys: tuple[str, ...] = ()) -> JSON | Handle:
    """Return the result of a call, or a part of it, as a program receives it: the value itself, or
    a handle if the value is large.
    """
    if not isinstance(value, str | list | dict) or (
        isinstance(value, str) and len(value) <= LARGE_RESULT // 6
    ):
        # A character takes at most 6 bytes of JSON, so short strings do not have to be measured.
        return value
    size = len(encode(value))
    return value if size <= LARGE_RESULT else Handle(call, keys, value, size)


def read_part_of(result: object, path: object) -> JSON | Handle:
    """Return the part of a handle or a value at the given path.

    The path is written as in references: `rows.0["odd key"]`. The path "" means the whole value.

    Raises:
        ProgramError: the path is malformed, or leads nowhere.
        InvalidJSONError: `result` is neither JSON nor a handle.
    """
    keys = _keys(path)
    if isinstance(result, Handle):
        part = read_path(result.value, keys)
        root: tuple[str, ...] = ("results", str(result.call), *result.keys)
        if not isinstance(part, Missing):
            return result if not keys else handed(result.call, part, (*result.keys, *keys))
        whole: JSON = result.value
    else:
        expect_written(result, what="the first argument of tools.read()")
        whole = normalise(result, what="the first argument of tools.read()")
        part = read_path(whole, keys)
        root = ("input", "result")
        if not isinstance(part, Missing):
            return part

    # Wrap the value, so that the error names the path in the notation of references.
    document: JSON = whole
    for key in reversed(root):
        document = {key: document}

    raise ProgramError(f"tools.read(): {describe_missing(document, (*root, *keys))}")


def _keys(path: object) -> tuple[str, ...]:
    if not isinstance(path, str):
        raise ProgramError(
            f'tools.read(): expected a path such as "rows.0.name", found {type(path).__name__}'
        )

    if not path:
        return ()

    dot = "" if path.startswith("[") else "."
    alternatives = parse_reference(f"†results{dot}{path}").alternatives
    if len(alternatives) != 1 or len(alternatives[0]) != 1:
        raise ProgramError("tools.read(): expected one path, without || and &&")
    return alternatives[0][0].path


def written(raw: object, refer: Callable[[Handle], JSON] | None, *, what: str) -> JSON:
    """Return a value from a program in the form that calls use, with escaped strings, and with
    references in place of handles.

    Args:
        raw: the value.
        refer: returns the reference that replaces a handle, or None if there are no handles.
        what: the name of the value in errors.

    Raises:
        ProgramError: a string in the value stands for a Python object that is not JSON.
        InvalidJSONError, LimitExceededError: as for `normalise`.
    """
    expect_written(raw, what=what)
    if refer is None:
        return escaped(_without_objects(normalise(raw, what=what), what))

    handles: list[tuple[tuple[object, ...], Handle]] = []
    value = escaped(_without_objects(normalise(_without(raw, handles, ()), what=what), what))
    for path, handle in handles:
        value = _put(value, path, refer(handle))

    return value


_OBJECT: Final = re.compile(
    r"<(function|class|module) '.{1,300}>|<coroutine (object "
    r".{1,300}|external_future\(\d+\))>|<\w+_iterator object>"
    r"|<re\.Match object; .*>|dict_(keys|values|items)\(.*\)|range\(-?\d+, -?\d+(, -?\d+)?\)",
    re.DOTALL,
)
"""Matches the string that the interpreter makes from an object that is not JSON."""


def _without_objects(value: JSON, what: str) -> JSON:
    """Return the value unchanged, after checking that no string in it stands for a Python object.

    Raises:
        ProgramError: a string in the value stands for a call that was not awaited, a function, a
            class, or another Python object.
    """
    for text in values_in(value):
        if isinstance(text, str) and text[:1] in ("<", "d", "r") and _OBJECT.fullmatch(text):
            if text.startswith("<cor"):
                fix = "; write await"
            elif text[0] != "<":
                fix = "; write list(...)"
            else:
                fix = ""
            raise ProgramError(f"{what} contains {text[:80]}, which is not JSON{fix}")
    return value


def _put(value: JSON, path: tuple[object, ...], reference: JSON) -> JSON:
    """Replace the null that `_without` left with a reference. Changing `value` is safe, because no
    other code uses it.
    """
    if not path:
        return reference

    match value, path[0]:
        case dict(), str(key):
            value[key] = _put(value[key], path[1:], reference)
        case list(), int(place):
            value[place] = _put(value[place], path[1:], reference)
        case _:
            raise ProgramError("a handle is used in a place that JSON cannot represent")

    return value


def _without(
    raw: object, handles: list[tuple[tuple[object, ...], Handle]], path: tuple[object, ...]
) -> object:
    """Return a copy with null in place of each handle. Values nested too deeply for JSON are
    returned unchanged.
    """
    if isinstance(raw, Handle):
        handles.append((path, raw))
        return None
    if len(path) > MAX_DEPTH:
        return raw
    if isinstance(raw, Mapping):
        members = cast("Mapping[object, object]", raw)
        return {key: _without(value, handles, (*path, key)) for key, value in members.items()}
    if isinstance(raw, list | tuple):
        items = cast("Sequence[object]", raw)
        return [_without(value, handles, (*path, place)) for place, value in enumerate(items)]

    return raw
