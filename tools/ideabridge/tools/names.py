"""Make names and text from outside safe to use and to show.

This includes safe names, names that look alike, nearest names, hidden characters, and numbers with
nouns.

`visible` escapes every character that a person would not recognise: control characters, direction
marks, zero-width and blank characters, and long runs of spaces. `printable` escapes only hidden
characters. Both use JSON escapes, so that escaped JSON text keeps its value. `readable_json`
returns JSON text that is safe to show to people anywhere.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from heapq import nlargest
from importlib import import_module
from itertools import islice
from typing import Any, Final

from ideabridge.tools.encoding import JSON

_BLANK: Final = frozenset(
    map(
        chr,
        [
            0x034F,  # combining grapheme joiner
            *(0x115F, 0x1160, 0x3164, 0xFFA0),  # Hangul fillers, which are blank letters
            *(0x17B4, 0x17B5),
            *range(0x180B, 0x1810),
            0x2800,  # the Braille pattern without dots
            *range(0xFE00, 0xFE10),  # variation selectors
            *range(0xE0100, 0xE01F0),
        ],
    )
)
"""Invisible characters in a category that counts as printable. Tags and direction marks never count
as printable.
"""

_SPACES: Final = 16
_MARKS: Final = 3
"""Maximum number of marks on one letter. Scripts use up to three. More would overlap the lines
above and below.
"""

_UNUSUAL: Final = re.compile("(?: {2,}|[^ -~])[^!-~]*")
"""Matches the parts that `visible` checks character by character. A run of spaces or marks is never
split between parts.
"""

_SELECTORS: Final = "\ufe0e\ufe0f"
_HIDDEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, all but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # reading order
    # zero-width characters
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"
    "\ufeff\uffa0"  # zero-width, too
    "\ufe00-\ufe0f"  # variation selectors
    "\u2028\u2029\ufff0-\ufffb"  # line and paragraph separators, annotations
    # halves of surrogate pairs, private use, noncharacters
    "\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # format characters for shorthand and music
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags, more variation selectors, private use
    "]"
)


def visible(text: str, keep: str = "") -> str:
    """Escape every character of `text` that a person would not recognise, except those in `keep`,
    such as line endings.
    """
    return _UNUSUAL.sub(lambda match: _visible(match.group(), keep), text)


def _visible(part: str, keep: str) -> str:
    characters: list[str] = []
    spaces = marks = 0
    for char in part:
        spaces = spaces + 1 if char == " " else 0
        marks = marks + 1 if unicodedata.category(char)[0] == "M" else 0
        plain = char.isprintable() and char not in _BLANK and spaces <= _SPACES and marks <= _MARKS
        characters.append(char if plain or char in keep else _escape(char))

    return "".join(characters)


def readable_json(value: JSON, indent: int | None = None, *, compact: bool = False) -> str:
    """Return a value as JSON text that is safe to read, either on one line (with `compact`, without
    spaces) or with `indent` spaces per level.

    In keys and values, every character that a person would not recognise (see `visible`) becomes a
    JSON escape, so the text is still JSON with the same value. An escape cannot be mistaken for a
    backslash in the original string, because JSON doubles backslashes.
    """
    separators = (",", ":") if compact else None
    lines = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).split("\n")
    if indent is None:
        return visible(lines[0])

    readable: list[str] = []
    for line in lines:
        content = line.lstrip(" ")
        # Leave the indentation as it is, because JSON allows escapes only in strings.
        readable.append(line[: len(line) - len(content)] + visible(content))

    return "\n".join(readable)


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def printable(text: str) -> str:
    """Escape the hidden characters in `text`: terminal controls, direction marks, zero-width
    characters.

    Line endings and all spaces are kept, and so is one variation selector after a visible
    character, as in most emoji. This function takes 8 ns per character.
    """
    return _HIDDEN.sub(_written, text)


def printable_line(text: str) -> str:
    """Return `printable(text)` on one line: line endings and tabs become spaces."""
    return printable(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def without_hidden(text: str) -> str:
    """Remove the hidden characters from `text`. Use the result only for comparisons, and never show
    it.
    """
    return _HIDDEN.sub("", text)


def _written(match: re.Match[str]) -> str:
    char = match.group()
    text = match.string
    place = match.start()
    if char == "\r" and text.startswith("\n", place + 1):
        return char
    if (
        char in _SELECTORS
        and place
        and not text[place - 1].isspace()
        and not _HIDDEN.match(text, place - 1)
    ):
        return char

    return _escape(char)


def wrap_visible(text: str, width: int, *, first: str = "", further: str = "") -> Iterator[str]:
    """Wrap a single line of visible text to lines of at most `width` columns.

    The first line begins with `first`, and all others begin with `further`.

    If the terminal itself wrapped a longer line, the rest would start at the left edge, and could
    be mistaken for a line from this program.
    """
    lead = first
    left = width - len(first)
    line: list[str] = []
    for char in text:
        columns = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if columns > left and line:
            yield f"{lead}{''.join(line)}"
            lead = further
            line = []
            left = width - len(lead)

        line.append(char)
        left -= columns

    yield f"{lead}{''.join(line)}"


# -- names -----------------------------------------------------------------------------------------

MAX_NAME: Final = 48
"""Maximum number of characters in a name. Hosts limit `server__tool` to 60."""

MAX_TOOL_NAME: Final = 128
"""Maximum number of characters that MCP allows in the name of a tool."""

_TOOL: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_SAFE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Names come from models and remote servers, and the comparison takes quadratic time, so the length
# and the number of names are limited.
_COMPARED: Final = 80
_CANDIDATES: Final = 20_000
_NEAR: Final = 0.6
_LOOKED_AT: Final = 32
_MEASURED: Final = 200
"""Maximum number of names that are compared. If there are more, only the most promising ones are,
because a comparison takes up to 0.2 ms.
"""


def is_tool_name(text: str) -> bool:
    """Return whether MCP allows `text` as a tool name: 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and
    `.`.
    """
    return _TOOL.match(text) is not None


def is_safe_name(text: str) -> bool:
    """Return whether `text` matches `^[a-z][a-z0-9_]{0,47}$`."""
    return _SAFE.match(text) is not None


def safe_name(text: str, taken: Collection[str] = ()) -> str:
    """Return a name that resembles `text`, matches `^[a-z][a-z0-9_]{0,47}$`, and is not in `taken`.

    Accents are removed, camelCase gets underscores, and other characters become `_`. Text without
    letters and digits becomes `tool`. If the name is taken, a number is appended: `report_2`.
    """
    name = name_from(text) or "tool"
    candidate = name
    number = 1
    while candidate in taken:
        number += 1
        tail = f"_{number}"
        candidate = name[: MAX_NAME - len(tail)].rstrip("_") + tail

    return candidate


def name_from(text: str) -> str:
    """Convert text to a name; see `safe_name`.

    Return "" if no letter from a to z and no digit remains.
    """
    if is_safe_name(text):
        return text
    decomposed = unicodedata.normalize("NFKD", text[: MAX_NAME * 4])
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    name = _OTHER.sub("_", _CAMEL.sub("_", plain).lower()).strip("_")
    if name and not name[0].isalpha():
        name = f"t_{name}"

    return name[:MAX_NAME].rstrip("_")


@lru_cache(maxsize=8192)
def folded(text: str) -> str:
    """Return a name or a pattern without accents, case, width and hidden characters, so that no
    alternative spelling can evade a rule.
    """
    decomposed = unicodedata.normalize("NFKD", without_hidden(text))
    plain = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
    return unicodedata.normalize("NFKC", plain)


@lru_cache(maxsize=8192)
def known_as(name: str, remote_name: str | None, module: str | None) -> tuple[str, ...]:
    """Return every folded name of a tool: its name, its name on the server, the safe forms of both,
    and each of these prefixed with the server's name and `.`, `_` or `/`.
    """
    own = [
        form
        for spelling in (name, remote_name)
        if spelling
        for form in (spelling, safe_name(spelling))
    ]
    names = [*own]
    if module:
        names += [
            f"{place}{sign}{spelling}"
            for place in (module, safe_name(module))
            for sign in "._/"
            for spelling in own
        ]
    return tuple(dict.fromkeys(folded(spelling) for spelling in names))


_LOOKS: Final = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o"})


@lru_cache(maxsize=16_384)
def skeleton(name: str) -> str:
    """Return a form that is the same for all names that look alike.

    Case, width, script, marks, hidden characters and similar shapes (`l`, `i` and `1`) are ignored.
    """
    plain = name if name.isascii() else _in_ascii(name)
    return plain.casefold().translate(_LOOKS).replace("rn", "m").replace("vv", "w")


def _in_ascii(name: str) -> str:
    parts: list[str] = []
    for char in unicodedata.normalize("NFKD", without_hidden(name)):
        if unicodedata.category(char) not in ("Cf", "Mn", "Me"):
            parts.append(char if char.isascii() else _ascii_shapes().get(char, char))
    return "".join(parts)


@cache
def _ascii_shapes() -> dict[str, str]:
    """Map characters of other scripts to the ASCII letters and digits that they look like."""
    # Import the tables only for a name that is not ASCII, because reading them takes longer than
    # all of `ideabridge --version`.
    data: dict[str, list[dict[str, Any]]] = import_module(
        "confusable_homoglyphs.confusables"
    ).confusables_data
    ascii_shapes: dict[str, str] = {}
    for char, lookalikes in data.items():
        if len(char) == 1 and not char.isascii():
            shapes = [
                lookalike["c"]
                for lookalike in lookalikes
                if len(lookalike["c"]) == 1 and lookalike["c"].isascii()
            ]
            if shapes:
                ascii_shapes[char] = shapes[0]

    return ascii_shapes


def is_disguised(name: str) -> bool:
    """Return whether a name looks like ASCII but contains letters of other scripts or hidden
    characters.
    """
    return not name.isascii() and skeleton(name).isascii()


def shown_name(name: str) -> str:
    r"""Return the form of a name to display.

    If the name only looks like ASCII, its non-ASCII characters are escaped (`g\u0456t_log`).
    """
    if is_disguised(name):
        return name.encode("ascii", "backslashreplace").decode()
    return name


def _distinguishable(name: str, candidates: list[str], spelled: Mapping[str, str]) -> list[str]:
    """Remove names that could be mistaken for other names.

    Of names that look alike, only the one nearest to `name` is kept, or none if several are equally
    near. Names that only look like ASCII are removed.
    """
    spellings = [(candidate, spelled.get(candidate, candidate)) for candidate in candidates]
    alike: dict[str, dict[str, float]] = {}
    for _, own in spellings:
        ratio = SequenceMatcher(None, name[:_COMPARED], own[:_COMPARED], autojunk=False).ratio()
        alike.setdefault(skeleton(own), {})[own] = ratio

    def is_nearest(own: str) -> bool:
        ratios = alike[skeleton(own)]
        return all(ratio < ratios[own] for other, ratio in ratios.items() if other != own)

    return [candidate for candidate, own in spellings if not is_disguised(own) and is_nearest(own)]


def nearest(
    name: str, names: Iterable[str], n: int = 3, spelled: Mapping[str, str] | None = None
) -> list[str]:
    """Return up to `n` of `names` that resemble `name`, nearest first.

    Case and the separators `_`, `-`, `.` and space are ignored. Names also resemble each other if
    one contains the other as a whole part (`search` and `github_search`). A name that could be
    mistaken for another name is never returned. `spelled` maps names to their original spelling
    where it differs.
    """
    compared_name = _compared(name)
    if not compared_name:
        return []

    candidates = list(islice(dict.fromkeys(names), _CANDIDATES))
    if len(candidates) > _MEASURED:
        candidates = _likeliest(compared_name, candidates)

    matcher: SequenceMatcher[str] = SequenceMatcher(autojunk=False)
    matcher.set_seq2(compared_name)
    scored: list[tuple[float, str]] = []
    for candidate in candidates:
        compared = _compared(candidate)
        if not compared:
            continue

        floor = 0.7 if _part_of(compared_name, compared) else 0.0
        matcher.set_seq1(compared)
        if matcher.real_quick_ratio() < _NEAR or matcher.quick_ratio() < _NEAR:
            ratio = floor
        else:
            ratio = max(matcher.ratio(), floor)

        if ratio >= _NEAR:
            scored.append((ratio, candidate))

    # The sort is stable, so equally near names keep their order.
    scored.sort(key=lambda pair: -pair[0])
    return _distinguishable(
        name, [candidate for _, candidate in scored[: n + _LOOKED_AT]], spelled or {}
    )[:n]


def _likeliest(compared_name: str, names: list[str]) -> list[str]:
    """Return the names that share the most pairs of letters with `compared_name`, in their original
    order.
    """
    pairs = {compared_name[place : place + 2] for place in range(max(len(compared_name) - 1, 1))}

    def alike(place: int) -> float:
        compared = _compared(names[place])
        return sum(pair in compared for pair in pairs) / (len(compared_name) + len(compared) + 1)

    return [names[place] for place in sorted(nlargest(_MEASURED, range(len(names)), key=alike))]


def _compared(name: str) -> str:
    return _folded(name[:_COMPARED])


@lru_cache(maxsize=32_768)
def _folded(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", _CAMEL.sub("_", name).casefold()).strip("_")


def _part_of(first: str, second: str) -> bool:
    short, long = sorted((first, second), key=len)
    return len(short) > 2 and f"_{short}_" in f"_{long}_"


def did_you_mean(name: str, names: Iterable[str], spelled: Mapping[str, str] | None = None) -> str:
    """Return a hint such as " Did you mean 'x' or 'y'?", or "" if no name is near.

    The hint ends an error message; see `nearest`.
    """
    suggestions = [f"'{candidate}'" for candidate in nearest(name, names, spelled=spelled)]
    if not suggestions:
        return ""

    *others, last = suggestions
    listed = f"{', '.join(others)} or {last}" if others else last
    return f" Did you mean {listed}?"


def duration_text(seconds: float) -> str:
    """Format a duration in one or two units: `3 ms`, `1.25 s`, `51 s`, `1 min`, `2 min 5 s`, `3 h
    20 min`, `4 days`.
    """
    if seconds < 1:
        return f"{max(0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds >= 86_400:
        return counted(int(seconds // 86_400), "day")

    if seconds < 3600:
        large, small = f"{int(seconds // 60)} min", f"{int(seconds % 60)} s"
    else:
        large, small = f"{int(seconds // 3600)} h", f"{int(seconds % 3600 // 60)} min"
    return large if small.startswith("0 ") else f"{large} {small}"


def whole_duration_text(seconds: float) -> str:
    """Format a changing duration in whole seconds: `0 s`, `7 s`, `2 min 5 s`."""
    return duration_text(int(seconds)) if seconds >= 1 else "0 s"


def age_text(seconds: float) -> str:
    """Format the time since a moment in one unit: `just now`, `5 s ago`, `3 min ago`, `2 h ago`, `4
    days ago`.
    """
    return "just now" if seconds < 1 else f"{_in_one_unit(seconds, math.floor)} ago"


def until_text(seconds: float) -> str:
    """Format the time until a moment in one unit, rounded up: `now`, `in 5 s`, `in 3 min`, `in 2
    h`, `in 4 days`.
    """
    return "now" if seconds < 1 else f"in {_in_one_unit(seconds, math.ceil)}"


def _in_one_unit(seconds: float, whole: Callable[[float], int]) -> str:
    if seconds < 60:
        return f"{whole(seconds)} s"
    if seconds < 3600:
        return f"{whole(seconds / 60)} min"
    if seconds < 86_400:
        return f"{whole(seconds / 3600)} h"
    return counted(whole(seconds / 86_400), "day")


def size_text(size: float) -> str:
    """Format a number of bytes in one unit: `512 bytes`, `1.5 KB`, `60.2 MB`, `2 GB`. A KB has 1024
    bytes.
    """
    if size < 1024:
        return counted(int(size), "byte")
    unit = "KB"
    size /= 1024
    for larger in ("MB", "GB"):
        if size < 1024:
            break
        unit = larger
        size /= 1024

    return f"{size:,.1f}".removesuffix(".0") + f" {unit}"


def joined(texts: Sequence[str], most: int) -> str:
    """Join at most `most` strings with commas, and say how many more there are."""
    first = ", ".join(texts[:most])
    more = len(texts) - most
    return f"{first} and {more:,} more" if more > 0 else first


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns, which can contain `*`, `?` and `[abc]`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, in the plural if needed: `1 call`, `2 calls`, `1.5 days`."""
    plural = "" if number == 1 else "s"
    return f"{number:,.15g} {noun}{plural}"
