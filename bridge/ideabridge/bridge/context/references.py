"""Parse strings such as `†kind.path`, which are replaced with values when a call runs.

Only a whole string is a reference. `††` at the beginning is a literal dagger. `a || b` is the first
value that exists. `a && b` is the last value, provided that all exist. `&&` binds more tightly.
Every operand starts with a dagger.

A reference inside a longer text is an error, because it would not be replaced. `††state.x` inside
other text stands for `†state.x`. Any other dagger is plain text.

    expression  = all ("||" all)*            all = operand ("&&" operand)*
    operand     = "†" [instance "."] kind segment*
    segment     = "." name | "[" digits "]" | "[" JSON-string "]"
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.tools.encoding import JSON, MAX_DEPTH, encode_text
from ideabridge.tools.json_parts import map_strings

DAGGER: Final = "†"
KINDS: Final = ("state", "input", "data", "results", "item")
MAX_LENGTH: Final = 4096
"""The maximum length of a reference, in characters."""

MAX_TARGET_KEYS: Final = 32
"""The maximum number of keys in an output path. It keeps a document that contains the written value
from becoming too deeply nested to encode.
"""

_ITEM: Final = f"{DAGGER}item"

_SHORT_LENGTH: Final = 200
"""The maximum length of a short reference, in characters. Many short references are kept in a cache
after they are parsed, because a plan can contain thousands of them.
"""

Path = tuple[str, ...]
"""The keys from a document's root. An array index is a string of decimal digits."""

_NAME = r"[^\s.\[\]|&†\"]+"
_PLAIN = re.compile(_NAME)
_HEAD = re.compile(rf"†({_NAME})")
_SEGMENT = re.compile(rf'\.({_NAME})|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
_SPLIT = re.compile(r'"(?:[^"\\]|\\.)*"|(\|\||&&)')
_OPERATOR = re.compile(r"\s*(\|\||&&)\s*")
_PUNCTUATION = ",;:!?)"
_HEAD_DAGGERS = re.compile(f"{DAGGER}*")
# Matches the daggers in front of a kind, or in front of an instance and a kind.
_INSIDE = re.compile(rf"(?<![†])†+(?!†)(?=(?:{_NAME}\.)?(?:{'|'.join(KINDS)})(?![\w-]))")


@dataclass(frozen=True, slots=True)
class Reference:
    """One operand of a reference.

    Attributes:
        instance: the instance in the reference (`†①.state.x`). None means the call's own instance.
        kind: one of `KINDS`.
        path: the keys below the kind.
        text: the reference as it was written.
    """

    instance: str | None
    kind: str
    path: Path
    text: str

    @property
    def full(self) -> Path:
        """The path from the root of an instance's document: the kind, followed by `path`."""
        return (self.kind, *self.path)


@dataclass(frozen=True, slots=True)
class Expression:
    """A whole reference string: alternatives (`||`) of conjunctions (`&&`) of operands."""

    alternatives: tuple[tuple[Reference, ...], ...]
    text: str

    def operands(self) -> Iterator[Reference]:
        """Yield all operands, in the order in which they are written."""
        for alternative in self.alternatives:
            yield from alternative

    @property
    def uses_item(self) -> bool:
        """True if an operand is `†item`."""
        return _ITEM in self.text and any(operand.kind == "item" for operand in self.operands())


def clipped(text: str, limit: int = 100) -> str:
    """Return external text for use in a message, truncated if it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def quoted(text: str, limit: int = 100) -> str:
    """Return external text for use in a message, in quotes and truncated if it is long."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}... ({len(text):,} characters)"


def is_reference(text: str) -> bool:
    """Return whether a string is a reference, that is, whether it starts with exactly one
    dagger.
    """
    return text.startswith(DAGGER) and not text.startswith(DAGGER + DAGGER)


def is_instance_name(text: str) -> bool:
    """Return whether a string can name an instance in a reference, as in `†NAME.state.x`."""
    return text not in KINDS and _PLAIN.fullmatch(text) is not None


def unescape(text: str) -> str:
    """Return the literal that a string stands for: `††x` stands for `†x`, and `see ††state.x` for
    `see †state.x`.
    """
    if DAGGER not in text:
        return text
    daggers, rest = _split(text)
    if len(daggers) > 1:
        daggers = daggers[1:]

    return daggers + _INSIDE.sub(lambda inside: inside.group()[1:] or DAGGER, rest)


def escape(text: str) -> str:
    """Return the string that stands for the literal `text`."""
    if DAGGER not in text:
        return text
    head, rest = _split(text)
    return (head and DAGGER + head) + _INSIDE.sub(lambda dagger: DAGGER + dagger.group(), rest)


def escaped(value: JSON) -> JSON:
    """Return the value with `escape` applied to every string."""
    return map_strings(value, escape)


def map_references(value: JSON, change: Callable[[str], JSON]) -> JSON:
    """Return a value as written (with escapes), but with each reference replaced by the result of
    `change`.

    Args:
        value: any JSON value. Keys of objects are never references.
        change: returns the value that replaces a reference, which can be malformed.
    """
    return map_strings(value, lambda text: change(text) if is_reference(text) else text)


def _split(text: str) -> tuple[str, str]:
    """Split a string into its leading daggers and the rest."""
    head = _HEAD_DAGGERS.match(text)
    end = head.end() if head is not None else 0
    return text[:end], text[end:]


def _inside(text: str) -> str | None:
    """Return the error for a string that contains a reference inside other text, or None for any
    other string.
    """
    start = 0
    if is_reference(text):
        # The string begins with a reference, but more text follows it.
        try:
            _, end = _operand(text, 0)
        except ReferenceSyntaxError:
            return None
        rest = text[end:]
        if (
            not rest.strip()
            or not (rest[0].isspace() or rest[0] in _PUNCTUATION)
            or _OPERATOR.match(rest)
        ):
            return None
    else:
        head, rest = _split(text)
        dagger = next((match for match in _INSIDE.finditer(rest) if len(match.group()) == 1), None)
        if dagger is None:
            return None
        start = len(head) + dagger.start()

    try:
        reference, _ = _operand(text, start)
        written = reference.text
    except ReferenceSyntaxError:
        written = text[start : start + MAX_LENGTH].split()[0]

    read_as = clipped(written.rstrip(_PUNCTUATION))
    value = json.dumps(read_as, ensure_ascii=False)
    call = f'{{"_tool": "template", "text": "... {{x}} ...", "values": {{"x": {value}}}}}'
    return (
        f"{quoted(text)}: {read_as} is inside a longer text, where references are not replaced. To "
        f"insert values into a text, use the tool template: {call}. To keep the text as it is, "
        f"write two daggers: {DAGGER}{read_as}"
    )


def format_path(path: Path) -> str:
    """Return the part of a reference after its kind: `.a.b["odd.key"].0`."""
    return "".join(
        f".{key}" if _PLAIN.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"
        for key in path
    )


def dotted_key(key: str) -> str:
    """Return a key as part of a dotted path, in quotes if it is empty or contains a dot."""
    if not key or "." in key or key.startswith('"'):
        return encode_text(key)
    return key


def format_reference(path: Path, instance: str | None = None) -> str:
    """Return the reference for a full path (kind first), such as `†state.a.b` or `†①.state.a`."""
    return DAGGER + (f"{instance}." if instance else "") + path[0] + format_path(path[1:])


def _segments(text: str, position: int, whole: str) -> tuple[Path, int]:
    keys: list[str] = []
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None:
            break

        name, index, key = cast("tuple[str | None, str | None, str | None]", match.groups())
        if name is not None:
            keys.append(name)
        elif index is not None:
            keys.append(str(int(index)) if len(index) < 19 else index)
        elif key is not None:
            try:
                keys.append(cast("str", json.loads(key)))
            except json.JSONDecodeError:
                raise ReferenceSyntaxError(
                    f"{quoted(whole)}: {quoted(key)} is not a quoted key"
                ) from None

        position = match.end()

    if len(keys) > MAX_DEPTH:
        raise ReferenceSyntaxError(f"the path has {len(keys)} keys; the limit is {MAX_DEPTH}")
    return tuple(keys), position


def _operand(text: str, position: int) -> tuple[Reference, int]:
    head = _HEAD.match(text, position)
    if head is None:
        raise ReferenceSyntaxError(
            f"{quoted(text)}: expected a reference such as †state.x at character {position + 1};"
            " every operand starts with †"
        )

    first = head.group(1)
    keys, end = _segments(text, head.end(), text)
    written = text[position:end]
    if first in KINDS:
        return Reference(None, first, keys, written), end
    if keys and keys[0] in KINDS:
        if keys[0] == "item":
            raise ReferenceSyntaxError(
                f"{quoted(text)}: †item belongs to its own call and cannot be read across instances"
            )
        return Reference(first, keys[0], keys[1:], written), end

    raise ReferenceSyntaxError(
        f"{quoted(text)}: unknown kind {quoted(first)}; expected one of "
        f"{', '.join(DAGGER + kind for kind in KINDS)} (to write a literal that begins with a "
        "dagger, use two: ††)"
    )


def parse_reference(text: str) -> Expression:
    """Parse a reference string.

    Raises:
        ReferenceSyntaxError: the string is malformed; the message says where, and what was
            expected.
    """
    return _parse_short(text) if len(text) <= _SHORT_LENGTH else _parse_long(text)


def _parse(text: str) -> Expression:
    if len(text) > MAX_LENGTH:
        raise ReferenceSyntaxError(
            f"the reference has {len(text):,} characters; the limit is {MAX_LENGTH:,}"
        )

    stripped = text.strip()
    alternatives: list[tuple[Reference, ...]] = []
    group: list[Reference] = []
    position = 0
    while True:
        reference, position = _operand(stripped, position)
        group.append(reference)
        if position == len(stripped):
            break

        operator = _OPERATOR.match(stripped, position)
        if operator is None:
            raise ReferenceSyntaxError(
                f"{quoted(text)}: unexpected {stripped[position]!r} at character {position + 1}; "
                'put a key with other characters in quotes: †state["odd key"]'
            )

        if operator.group(1) == "||":
            alternatives.append(tuple(group))
            group = []

        position = operator.end()

    alternatives.append(tuple(group))
    return Expression(tuple(alternatives), stripped)


_parse_short = lru_cache(maxsize=32_768)(_parse)
_parse_long = lru_cache(maxsize=1_024)(_parse)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed `_outputPath`: where a result is written.

    Attributes:
        mode: `one`; `either` (`p || q`: a success is written to the first, a failure to the
            second); `both` (`p && q`).
        paths: the full paths (kind first), in the order of the text.
        texts: the same paths as written.
    """

    mode: str
    paths: tuple[Path, ...]
    texts: tuple[str, ...]


def _target_path(text: str) -> Path:
    if not text:
        raise ReferenceSyntaxError("an output path is empty")
    if text.startswith(DAGGER):
        reference, end = _operand(text, 0)
        if end != len(text):
            raise ReferenceSyntaxError(
                f"output path {quoted(text)}: unexpected {text[end]!r} at character {end + 1}"
            )

        if reference.kind != "state":
            raise ReferenceSyntaxError(
                f"output path {quoted(text)}: only state can be written, not {reference.kind}"
            )

        if reference.instance is not None:
            raise ReferenceSyntaxError(
                f"output path {quoted(text)}: a call can only write to its own instance (_instance)"
            )

        return reference.full

    # Without a dagger, the path begins with a name or a quoted key.
    dotted = text if text.startswith("[") else "." + text
    keys, end = _segments(dotted, 0, text)
    if end != len(dotted):
        raise ReferenceSyntaxError(
            f"output path {quoted(text)}: unexpected {dotted[end]!r}; expected keys such as "
            'report.title or ["odd key"]'
        )

    if keys[0] in KINDS and len(keys) > 1:
        # Taken literally, `state.x` would mean †state.state.x, which nobody intends.
        without_kind = format_path(keys[1:]).lstrip(".")
        if len(without_kind) <= 100:
            hint = f"write {without_kind!r} or '{DAGGER}state{format_path(keys[1:])}'"
        else:
            hint = "leave out the kind in front"
        raise ReferenceSyntaxError(f"output path {quoted(text)}: {hint}")

    return ("state", *keys)


@lru_cache(maxsize=8192)
def parse_target(text: str) -> Target:
    """Parse an `_outputPath`: `sentiment` (short for `†state.sentiment`), `p || q` or `p && q`.

    Raises:
        ReferenceSyntaxError: the string is malformed, mixes both operators, or leads outside the
            state.
    """
    if len(text) > MAX_LENGTH:
        raise ReferenceSyntaxError(
            f"the output path has {len(text):,} characters; the limit is {MAX_LENGTH:,}"
        )

    # Skip operators between quotes, because they are part of a key.
    parts: list[str] = []
    operators: set[str] = set()
    start = 0
    for match in _SPLIT.finditer(text):
        if match.group(1):
            parts.append(text[start : match.start()])
            operators.add(match.group(1))
            start = match.end()

    parts.append(text[start:])
    if len(operators) > 1:
        raise ReferenceSyntaxError(
            f"output path {quoted(text)}: use || (success || failure) or && (both), not a mix"
        )

    mode = {"||": "either", "&&": "both"}[operators.pop()] if operators else "one"
    if mode == "either" and len(parts) != 2:
        raise ReferenceSyntaxError(
            f"output path {quoted(text)}: expected two paths: success || failure"
        )

    texts = tuple(part.strip() for part in parts)
    paths = tuple(_target_path(part) for part in texts)
    deepest = max(len(path) - 1 for path in paths)
    if deepest > MAX_TARGET_KEYS:
        raise ReferenceSyntaxError(
            f"output path {quoted(text)} has {deepest} nested keys; the limit is {MAX_TARGET_KEYS}"
        )

    return Target(mode, paths, texts)


@dataclass(slots=True, eq=False)
class Hole:
    """A reference in a compiled value, and its location there."""

    expression: Expression
    path: Path


Compiled = object
"""A JSON value with each reference replaced by a `Hole` and with escapes resolved."""


def compile_value(
    value: JSON, holes: list[Hole], problems: list[tuple[Path, str]], path: Path = ()
) -> Compiled:
    """Find the references in a value written by a mind or the author of a plan. Keys of objects are
    never references.

    Args:
        value: any JSON value.
        holes: receives a `Hole` for every reference.
        problems: receives (path, message) for every malformed reference.
        path: the path to `value`.

    Returns:
        `value` itself if it contains no references or escapes, and a copy with holes otherwise.
    """
    if isinstance(value, str):
        return _compile_text(value, holes, problems, path) if DAGGER in value else value
    if isinstance(value, list):
        items: list[object] | None = None
        for index, item in enumerate(value):
            if _may_refer(item):
                compiled = compile_value(item, holes, problems, (*path, str(index)))
                if compiled is not item:
                    items = [*value] if items is None else items
                    items[index] = compiled

        return value if items is None else items

    if isinstance(value, dict):
        members: dict[str, object] | None = None
        for key, item in value.items():
            if _may_refer(item):
                compiled = compile_value(item, holes, problems, (*path, key))
                if compiled is not item:
                    members = {**value} if members is None else members
                    members[key] = compiled

        return value if members is None else members

    return value


def holes_in(value: JSON) -> list[Hole]:
    """Return the well-formed references in a value written by a mind or the author of a plan."""
    holes: list[Hole] = []
    compile_value(value, holes, [])
    return holes


def _may_refer(value: JSON) -> bool:
    if isinstance(value, str):
        return DAGGER in value
    return isinstance(value, list | dict)


def _compile_text(
    text: str, holes: list[Hole], problems: list[tuple[Path, str]], path: Path
) -> Compiled:
    if is_reference(text):
        try:
            hole = Hole(parse_reference(text), path)
        except ReferenceSyntaxError as error:
            problems.append((path, _inside(text) or str(error)))
            return text

        holes.append(hole)
        return hole

    fault = _inside(text)
    if fault is None:
        return unescape(text)
    problems.append((path, fault))
    return text


def fill(compiled: Compiled, resolve: Callable[[Expression], JSON]) -> JSON:
    """Replace the holes with values. References inside these values are not replaced."""
    if isinstance(compiled, Hole):
        return resolve(compiled.expression)
    if isinstance(compiled, list):
        return [fill(item, resolve) for item in cast("list[object]", compiled)]
    if isinstance(compiled, dict):
        return {
            key: fill(item, resolve) for key, item in cast("dict[str, object]", compiled).items()
        }

    return cast("JSON", compiled)


# -- overlapping paths -----------------------------------------------------------------------------


class _Node:
    __slots__ = ("children", "writers")

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.children: dict[str, _Node] = {}


class PathIndex:
    """A trie of the paths that calls write. A path overlaps with itself, its prefixes and its
    extensions.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, path: Path, writer: int) -> None:
        """Add a path, together with the call that writes it."""
        node = self._root
        for key in path:
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _Node()
            node = child

        node.writers.append(writer)

    def has_overlap(self, path: Path) -> bool:
        """Return whether any path in the index overlaps `path`. The time depends on the length of
        the path, not on the size of the index.
        """
        node = self._root
        for key in path:
            if node.writers:
                return True
            child = node.children.get(key)
            if child is None:
                return False
            node = child

        # A node with children also counts, because its children belong to longer paths that have
        # been added.
        return bool(node.writers or node.children)

    def overlapping(self, path: Path) -> set[int]:
        """Return the writers of every path that overlaps `path`."""
        node: _Node | None = self._root
        writers: set[int] = set(self._root.writers)
        for key in path:
            node = node.children.get(key)
            if node is None:
                return writers
            writers.update(node.writers)

        below = list(node.children.values())
        while below:
            child = below.pop()
            writers.update(child.writers)
            below.extend(child.children.values())

        return writers
