"""Edit YAML text.

From the positions of the parser's events, this module builds a tree of values that shows where the
lines of each entry begin and end. Inside brackets, YAML is edited like JSON.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ideabridge.server.hosts.editing.brackets import (
    Bracketed,
    Layout,
    Render,
    Splice,
    TextItem,
    newline_of,
    spliced,
    with_item,
    with_value,
    without_item,
)
from ideabridge.server.hosts.editing.change import (
    EntryChange,
    UneditableError,
    entry_value,
    key_path,
    nested,
)
from ideabridge.tools.documents import read_written
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that a YAML parser can read as a value other than text."""

_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_COMMENT: Final = re.compile(r"(?<!\S)#[^\r\n]*")


def parse_yaml(text: str) -> JSON:
    """Parse YAML text. A text that contains only whitespace and comments is an empty object.

    Raises:
        ValueError: the text is not YAML, or JSON cannot represent its value.
    """
    try:
        value = read_written(text, what="", name="host.yaml")
    except IdeabridgeError as error:
        # `what` is empty, so the message begins with the punctuation that follows it.
        raise ValueError(str(error).lstrip(" ,:")) from None

    if value is None:
        return {}
    return value


@dataclass(slots=True)
class _Node:
    """A value in the text.

    Attributes:
        kind: the kind of the value.
        start: the position where the value begins.
        end: the position where the value ends, before any comments and blank lines that follow.
        flow: whether the value is written in brackets.
        text: the text of a scalar.
        children: the elements of a sequence; the keys and values of a mapping, alternating.
    """

    kind: Literal["mapping", "sequence", "scalar", "alias"]
    start: int
    end: int
    flow: bool = False
    text: str = ""
    children: list[_Node] = field(default_factory=list["_Node"])

    def members(self) -> Iterator[tuple[_Node, _Node]]:
        """Yield the key and the value of each member of a mapping."""
        keys = self.children[::2]
        values = self.children[1::2]
        return zip(keys, values, strict=True)

    def find(self, name: str) -> tuple[_Node, _Node] | None:
        """Return the member of a mapping with the given key."""
        for key, value in self.members():
            if key.text == name:
                return key, value
        return None


def put_yaml(text: str, change: EntryChange) -> str:
    """Return the text with the change applied.

    Raises:
        UneditableError: a value on the path to the entry is not a mapping, or the entry shares a
            line with something else.
    """
    node = _tree(text)
    if node is None:
        return _with_root(text, nested(change.keys, change))

    for depth, key in enumerate(change.keys, start=1):
        rest = change.keys[depth:]
        member: tuple[_Node, _Node] | None = None
        if node.kind == "mapping":
            member = node.find(key)
        if member is None:
            return _with_member(text, node, key, nested(rest, change))

        _, value = member
        if _is_null(value):
            return _in_place_of_null(text, node, member, nested(rest, change))

        _check(value, change.keys[:depth], allows_list=not rest)
        node = value

    return _with_entry(text, node, change)


def _with_entry(text: str, node: _Node, change: EntryChange) -> str:
    """Return the text with the change applied to `node`, the mapping or sequence of entries."""
    if node.kind == "sequence":
        return _put_element(text, node, change.name, entry_value(change, listed=True))

    member = node.find(change.name)
    if member is None:
        return _with_member(text, node, change.name, change.entry)
    if node.flow:
        inside = _bracketed(text, node)
        item = inside.find(change.name)
        assert item is not None
        return with_value(text, inside, item, _flow_value(change.entry))

    key, value = member
    indent = _indent_of(text, key.start)
    lines = _member_lines(change.name, change.entry, indent)
    # The indentation of the first line stays.
    new = newline_of(text).join(lines).removeprefix(indent)
    end = _own_end(text, value.end)
    return spliced(text, [Splice(key.start, end, new)])


def remove_yaml(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text without the entry, or the same text if it has no such entry.

    Raises:
        UneditableError: the entry shares a line with something else.
    """
    node = _at(_tree(text), keys)
    if node is None or node.kind not in ("mapping", "sequence"):
        return text
    if node.flow:
        inside = _bracketed(text, node)
        item = inside.find(name)
        if item is None:
            return text

        shorter = without_item(text, inside, item)
        # Inside brackets, more than one item can have this name, so search again.
        return remove_yaml(shorter, keys, name)

    if node.kind == "mapping":
        member = node.find(name)
        if member is None:
            return text

        key, value = member
        return _without_lines(text, key.start, value.end)

    for element, dash in zip(node.children, _dashes(text, node), strict=True):
        if _name_of(element) == name:
            shorter = _without_lines(text, dash, element.end)
            # More than one element of a sequence can have this name, so search again.
            return remove_yaml(shorter, keys, name)

    return text


def _at(node: _Node | None, keys: Sequence[str]) -> _Node | None:
    """Return the value at these keys, or None if it does not exist."""
    for key in keys:
        if node is None or node.kind != "mapping":
            return None
        member = node.find(key)
        if member is None:
            return None
        _, node = member

    return node


def _check(node: _Node, keys: Sequence[str], *, allows_list: bool) -> None:
    match node.kind:
        case "mapping":
            return
        case "sequence" if allows_list:
            return
        case "sequence":
            actual = "a list"
        case "alias":
            actual = "an alias"
        case "scalar":
            actual = repr(node.text)[:40]

    raise UneditableError(f"{key_path(keys)} is {actual}; expected an object")


def _is_null(node: _Node) -> bool:
    return node.kind == "scalar" and node.text in ("", "~", "null")


# -- the tree --------------------------------------------------------------------------------------


def _tree(text: str) -> _Node | None:
    """Return the root of the tree of values in a valid text, or None if the text contains no
    value.
    """
    from ruamel.yaml import YAML

    open_nodes: list[_Node] = []
    root: _Node | None = None
    parser: Any = YAML(typ="safe", pure=True)
    for event in parser.parse(io.StringIO(text)):
        if type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
            ended = open_nodes.pop()
            if ended.flow:
                ended.end = event.end_mark.index
            else:
                # End the block at its last child, because the parser reports the end only at the
                # next token, after any comments and blank lines.
                ended.end = ended.children[-1].end
            continue

        node = _begun(event)
        if node is None:
            continue

        if open_nodes:
            parent = open_nodes[-1]
            if node.kind == "scalar" and node.start == node.end:
                place = _empty_place(text, parent, node)
                node.start = place
                node.end = place
            parent.children.append(node)
        else:
            root = node

        if node.kind in ("mapping", "sequence"):
            open_nodes.append(node)

    if root is None or (root.kind == "scalar" and not root.text):
        return None
    return root


def _begun(event: Any) -> _Node | None:
    """Return the value that begins with a parser event, or None if the event does not begin a
    value.
    """
    start: int = event.start_mark.index
    end: int = event.end_mark.index
    match type(event).__name__:
        case "MappingStartEvent":
            return _Node("mapping", start, end, bool(event.flow_style))
        case "SequenceStartEvent":
            return _Node("sequence", start, end, bool(event.flow_style))
        case "ScalarEvent":
            return _Node("scalar", start, end, text=str(event.value))
        case "AliasEvent":
            return _Node("alias", start, end)
        case _:
            return None


def _empty_place(text: str, parent: _Node, node: _Node) -> int:
    """Return the position of an empty value: after the colon of its key, or after its dash. For
    such a value, the parser reports the position of the next token.
    """
    before = parent.start
    if parent.children:
        before = parent.children[-1].end

    mark = ":" if parent.kind == "mapping" else "-"
    place = _outside_comments(text, mark, before, node.start)
    if place is None:
        return before
    return place + 1


def _outside_comments(text: str, mark: str, start: int, end: int) -> int | None:
    """Return the position of the first `mark` that is not in a comment."""
    place = start
    while place < end:
        comment = _COMMENT.match(text, place)
        if comment is not None:
            place = comment.end()
        elif text[place] == mark:
            return place
        else:
            place += 1

    return None


def _name_of(node: _Node) -> str | None:
    """Return the `name` of an element of a sequence, or None if the element has no name."""
    if node.kind != "mapping":
        return None
    member = node.find("name")
    if member is None:
        return None

    _, value = member
    return value.text


def _bracketed(text: str, node: _Node) -> Bracketed:
    """Return the bracketed collection that `node` represents."""
    items: list[TextItem] = []
    if node.kind == "mapping":
        opening = text.index("{", node.start)
        for key, value in node.members():
            items.append(TextItem(key.text, key.start, value.start, value.end))
    else:
        opening = text.index("[", node.start)
        for child in node.children:
            items.append(TextItem(_name_of(child), child.start, child.start, child.end))

    return Bracketed(opening, node.end, tuple(items))


def _dashes(text: str, sequence: _Node) -> list[int]:
    """Return the position of each element's dash."""
    dashes: list[int] = []
    before = sequence.start
    for child in sequence.children:
        dash = _outside_comments(text, "-", before, child.start + 1)
        assert dash is not None
        dashes.append(dash)
        before = child.end

    return dashes


# -- lines -----------------------------------------------------------------------------------------


def _indent_of(text: str, place: int) -> str:
    """Return the blanks before the given position on its line.

    Raises:
        UneditableError: the line contains something other than blanks before the position.
    """
    start = text.rfind("\n", 0, place) + 1
    indent = text[start:place]
    if indent.strip(" "):
        line = text.count("\n", 0, place) + 1
        raise UneditableError(f"line {line} contains more than the entry")
    return indent


def _own_end(text: str, end: int) -> int:
    """Return the end of a value, excluding the line break that ends a block scalar."""
    return len(text[:end].rstrip("\r\n"))


def _line_end(text: str, end: int) -> int:
    """Return the end of the line on which a value ends, before the line break. A block scalar
    includes its last line break.
    """
    if text[:end].endswith("\n"):
        line_break = end - 1
    else:
        line_break = text.find("\n", end)
        if line_break < 0:
            return len(text)

    return len(text[:line_break].removesuffix("\r"))


def _with_lines(text: str, end: int, lines: Sequence[str]) -> str:
    """Return the text with lines added below the line on which a value ends."""
    newline = newline_of(text)
    place = _line_end(text, end)
    new = "".join(f"{newline}{line}" for line in lines)
    return spliced(text, [Splice(place, place, new)])


def _without_lines(text: str, start: int, end: int) -> str:
    """Return the text without the lines of the given value."""
    line_start = start - len(_indent_of(text, start))
    place = _line_end(text, end)
    after = text[place:]
    if line_start == 0:
        # No line break comes before the first line, so remove the one after the value.
        return after.removeprefix("\r").removeprefix("\n")

    before = text[:line_start].removesuffix("\n").removesuffix("\r")
    return before + after


def _with_root(text: str, value: JSON) -> str:
    """Add `value` after the comments in a text that has no value yet, and return the text."""
    newline = newline_of(text)
    lines = newline.join(_value_lines(value, ""))
    if not text or text.endswith("\n"):
        return f"{text}{lines}{newline}"
    return f"{text}{newline}{lines}"


def _with_member(text: str, mapping: _Node, name: str, value: JSON) -> str:
    """Return the text with a member added to a mapping."""
    if mapping.flow:
        inside = _bracketed(text, mapping)
        one_line = "\n" not in text[inside.start : inside.end]
        return with_item(text, inside, _flow_member(name, value), one_line=one_line)

    indent = _indent_of(text, mapping.children[0].start)
    return _with_lines(text, mapping.end, _member_lines(name, value, indent))


def _in_place_of_null(text: str, mapping: _Node, member: tuple[_Node, _Node], value: JSON) -> str:
    """Return the text with null replaced by `value`. If nothing follows the colon, the value is
    written on the lines below.
    """
    key, null = member
    if null.start == null.end and not mapping.flow:
        indent = _indent_of(text, key.start)
        return _with_lines(text, null.end, _value_lines(value, f"{indent}  "))

    new = _quoted(value)
    if not text[null.start - 1].isspace():
        # Without a space behind it, a colon can be part of the key.
        new = f" {new}"
    return spliced(text, [Splice(null.start, null.end, new)])


def _put_element(text: str, sequence: _Node, name: str, value: JSON) -> str:
    """Return the text with an element added to a sequence, or with the element named `name`
    replaced.
    """
    if sequence.flow:
        inside = _bracketed(text, sequence)
        item = inside.find(name)
        if item is not None:
            return with_value(text, inside, item, _flow_value(value))
        one_line = "\n" not in text[inside.start : inside.end]
        return with_item(text, inside, _flow_value(value), one_line=one_line)

    dashes = _dashes(text, sequence)
    indent = _indent_of(text, dashes[0])
    lines = _element_lines(value, indent)
    for element, dash in zip(sequence.children, dashes, strict=True):
        if _name_of(element) == name:
            # This raises an error if the element shares its line with something else.
            _indent_of(text, dash)
            new = newline_of(text).join(lines).removeprefix(indent)
            return spliced(text, [Splice(dash, _own_end(text, element.end), new)])

    return _with_lines(text, sequence.end, lines)


# -- writing ---------------------------------------------------------------------------------------


def _value_lines(value: JSON, indent: str) -> list[str]:
    """Return the lines of a non-empty object or list."""
    lines: list[str] = []
    if isinstance(value, dict):
        for key, member in value.items():
            lines += _member_lines(key, member, indent)
    elif isinstance(value, list):
        for element in value:
            lines += _element_lines(element, indent)

    return lines


def _member_lines(key: str, value: JSON, indent: str) -> list[str]:
    start = f"{indent}{_scalar(key)}:"
    if isinstance(value, (dict, list)) and value:
        return [start, *_value_lines(value, f"{indent}  ")]
    return [f"{start} {_scalar(value)}"]


def _element_lines(value: JSON, indent: str) -> list[str]:
    if isinstance(value, (dict, list)) and value:
        first, *others = _value_lines(value, f"{indent}  ")
        # The dash and its space stand in place of the indentation of the first line.
        return [f"{indent}- {first.lstrip(' ')}", *others]
    return [f"{indent}- {_scalar(value)}"]


def _scalar(value: JSON) -> str:
    if not isinstance(value, str):
        return _quoted(value)

    is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    if not is_plain:
        return _quoted(value)
    return value


def _quoted(value: JSON, indent: str | None = None) -> str:
    """Return a value as JSON, with characters that YAML does not allow escaped."""
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


def _flow_value(value: JSON) -> Render:
    def write(layout: Layout) -> str:
        if layout.indent is None:
            return _quoted(value)

        lines = _quoted(value, layout.unit).split("\n")
        line_break = f"{layout.newline}{layout.indent}"
        return line_break.join(lines)

    return write


def _flow_member(name: str, value: JSON) -> Render:
    write_value = _flow_value(value)

    def write(layout: Layout) -> str:
        return f"{_quoted(name)}: {write_value(layout)}"

    return write
