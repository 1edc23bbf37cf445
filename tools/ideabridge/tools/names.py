"""Names: those every host takes, and the nearest ones to a name nobody knows (DESIGN 4.2, 6)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from ideabridge.tools.visible import without_hidden

MAX_NAME: Final = 48
"""Characters in a name: hosts cap `server__tool` at 60."""

_SAFE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Names come from models and remote servers: the quadratic comparison stays bounded in both directions.
_COMPARED: Final = 80
_CANDIDATES: Final = 20_000
_NEAR: Final = 0.6


def is_safe_name(text: str) -> bool:
    """Whether `text` fits `^[a-z][a-z0-9_]{0,47}$` (DESIGN 6)."""
    return _SAFE.match(text) is not None


def safe_name(text: str, taken: Collection[str] = ()) -> str:
    """The name nearest to `text` that fits `^[a-z][a-z0-9_]{0,47}$` and is not in `taken`.

    Accents are folded, camelCase gets underscores, anything else becomes `_`; text with nothing usable becomes
    `tool`. A name already taken gets a number: `report_2`. A safe name not taken stays as it is.
    """
    name = text if is_safe_name(text) else _fold(text)
    candidate = name
    number = 1
    while candidate in taken:
        number += 1
        tail = f"_{number}"
        candidate = name[: MAX_NAME - len(tail)].rstrip("_") + tail
    return candidate


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text[: MAX_NAME * 4])
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    name = _OTHER.sub("_", _CAMEL.sub("_", plain).lower()).strip("_")
    if not name:
        return "tool"
    if not name[0].isalpha():
        name = f"t_{name}"
    return name[:MAX_NAME].rstrip("_")


@lru_cache(maxsize=8192)
def folded(text: str) -> str:
    """A name, or a pattern of names, as names are compared that must not pass by a rule: without accents, case, width
    and hidden characters.
    """
    decomposed = unicodedata.normalize("NFKD", without_hidden(text))
    plain = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
    return unicodedata.normalize("NFKC", plain)


@lru_cache(maxsize=8192)
def known_as(name: str, remote_name: str | None, module: str | None) -> tuple[str, ...]:
    """Every name, folded, that a tool is reached by: its own, the one its module has for it, the safe form of each, and
    each behind the module's name and `.`, `_` or `/`.
    """
    own = [form for one in (name, remote_name) if one for form in (one, safe_name(one))]
    names = [*own]
    if module:
        names += [f"{place}{sign}{one}" for place in (module, safe_name(module)) for sign in "._/" for one in own]
    return tuple(dict.fromkeys(folded(one) for one in names))


def nearest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """At most `n` of `names` that look like `name`, the most alike first; none where none does.

    Case does not count, nor do the separators `_`, `-`, `.` and space; a name that holds the other as a whole part
    (`search` and `github_search`) counts as alike.
    """
    wanted = _compared(name)
    if not wanted:
        return []
    matcher: SequenceMatcher[str] = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    scored: list[tuple[float, str]] = []
    for number, candidate in enumerate(dict.fromkeys(names)):
        if number >= _CANDIDATES:
            break
        other = _compared(candidate)
        if not other:
            continue
        floor = 0.7 if _part_of(wanted, other) else 0.0
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < _NEAR or matcher.quick_ratio() < _NEAR:
            ratio = floor
        else:
            ratio = max(matcher.ratio(), floor)
        if ratio >= _NEAR:
            scored.append((ratio, candidate))
    # A stable sort: equally near names keep the order they were given in.
    scored.sort(key=lambda pair: -pair[0])
    return [candidate for _, candidate in scored[:n]]


def _compared(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", _CAMEL.sub("_", name[:_COMPARED]).casefold()).strip("_")


def _part_of(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and f"_{short}_" in f"_{long}_"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error message: " Did you mean 'x' or 'y'?", or "" where nothing is near."""
    found = [f"'{candidate}'" for candidate in nearest(name, names)]
    if not found:
        return ""
    if len(found) == 1:
        return f" Did you mean {found[0]}?"
    return f" Did you mean {', '.join(found[:-1])} or {found[-1]}?"
