"""Derive names of parameters and tools from a run.

A parameter is named after the tool parameter that it fills. If several parameters would have the
same name, each gets a prefix from the first of the following that distinguishes it: the object
around it (`from_city`), the key that its value was copied from (`owner_id`), its tool
(`write_file_path`), or the file or folder named by the parameter (`notes_folder`) or by its call
(`notes_content`). If nothing distinguishes them, they are numbered: the first ten with words
(`first_city`), the others with digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.references import Path
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import MAX_NAME

LONGEST_PARAMETER: Final = 64
"""The maximum length, in characters, of a parameter's name."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ROOT: Final = re.compile(r"[A-Za-z]:[/\\]|[a-z][a-z0-9+.-]*://|[/\\~.]")
_FILE: Final = re.compile(r"(?P<stem>.+)\.[A-Za-z][A-Za-z0-9]{0,7}")
_PLACES: Final = frozenset(
    {"path", "file", "filename", "filepath", "dir", "directory", "folder", "uri", "url"}
)
"""If the name of a parameter ends in one of these words, its value is the path or address of a file
or folder.
"""

_ORDINALS: Final = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)

_WORDS: Final = 5
"""The maximum number of words that the name of a new tool borrows from the name of a tool that it
calls.
"""

_WORD_WITH_DIGITS: Final = re.compile(
    r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+(?:[0-9]+[a-z]*)*|[0-9]+[a-z]*"
)
_LETTERS: Final = re.compile(r"[a-z]{2}")
_PREPOSITIONS: Final = frozenset(
    {"a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"}
)

_LONGEST_SENTENCE: Final = 300
_SENTENCE_END: Final = re.compile(r"(?<![\s(.]\w)[.!?](?=[\s\"')\]])|[\u3002\uff01\uff1f]")
"""Matches the end of a sentence before another sentence. The full stops in an abbreviation such as
`e.g.` do not count.
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """The values that a parameter fills, from which its name is derived.

    Attributes:
        tool: the tool of the first call that the parameter fills.
        keys: the keys that lead to the value in that call.
        value: the recorded value.
        source: the keys, below the result or the input, that lead to the value that was copied.
            Empty if the value was not copied.
        call: the place of the first call that the parameter fills, or None if the parameter belongs
            to the output.
    """

    tool: str
    keys: Path
    value: JSON
    source: Path = ()
    call: int | None = None


def parameter_names(filled: Sequence[Filled], reserved: Collection[str] = ()) -> list[str]:
    """Return a unique name for each parameter, of at most 64 letters, digits, `_` and `-`.

    Args:
        filled: the values that the parameters fill.
        reserved: names that a parameter must not have.
    """
    names: dict[int, str] = {}
    names_in_use = set(reserved)
    places = _places_of_calls(filled)

    def with_place_of_call(parameter: Filled) -> str:
        return _name_after(places.get(parameter.call, ()), parameter)

    candidates = (
        _alone,
        _with_parents,
        _with_source,
        _with_tool,
        _with_place,
        with_place_of_call,
    )
    for candidate in candidates:
        _name_unique(filled, candidate, names, names_in_use)

    _count_the_rest(filled, names, names_in_use)
    return [names[number] for number in range(len(filled))]


def _name_unique(
    filled: Sequence[Filled],
    candidate: Callable[[Filled], str],
    names: dict[int, str],
    names_in_use: set[str],
) -> None:
    """Name each unnamed parameter whose candidate name is unique."""
    candidates: dict[int, str] = {}
    for number, parameter in enumerate(filled):
        if number not in names:
            candidates[number] = candidate(parameter)

    times = Counter(candidates.values())
    unique = {
        number: name
        for number, name in candidates.items()
        if name and name not in names_in_use and times[name] == 1
    }
    names.update(unique)
    names_in_use.update(unique.values())


def _count_the_rest(
    filled: Sequence[Filled], names: dict[int, str], names_in_use: set[str]
) -> None:
    """Name the remaining parameters by their order: `first_city`, `second_city`."""
    rest = [number for number in range(len(filled)) if number not in names]
    tools = defaultdict[str, set[str]](set)
    for number in rest:
        parameter = filled[number]
        tools[own_name(parameter.keys)].add(parameter.tool)

    counts: Counter[str] = Counter()
    for number in rest:
        parameter = filled[number]
        base = own_name(parameter.keys)
        if len(tools[base]) > 1:
            base = _with_tool(parameter) or base

        while True:
            name = _counted(base, counts[base])
            counts[base] += 1
            if name not in names_in_use:
                break

        names[number] = name
        names_in_use.add(name)


def _counted(base: str, before: int) -> str:
    """Return the name of a parameter after `before` others with the same base name."""
    if before < len(_ORDINALS):
        return f"{_ORDINALS[before]}_{base}"[:LONGEST_PARAMETER]
    tail = f"_{before + 1}"
    return base[: LONGEST_PARAMETER - len(tail)] + tail


# -- distinguishing parameters of the same name ----------------------------------------------------


def own_name(keys: Path) -> str:
    """Return the name that a parameter would have if it were the only one, derived from the keys
    that lead to the value.
    """
    words = _named_keys(keys)
    key = words[-1] if words else "output"
    if key == "_each":
        return "items"

    clean = _OTHER.sub("_", key).strip("_")[:LONGEST_PARAMETER]
    if _NAME.fullmatch(clean):
        return clean
    return f"value_{clean}".rstrip("_")[:LONGEST_PARAMETER]


def _alone(parameter: Filled) -> str:
    return own_name(parameter.keys)


def _with_parents(parameter: Filled) -> str:
    return _name_after(_named_keys(parameter.keys)[-2:-1], parameter)


def _with_source(parameter: Filled) -> str:
    # With the source `issue.id`, a parameter `id` is renamed `issue_id`. With the source
    # `head.sha`, a `ref` is renamed `sha_ref`.
    for key in reversed(_named_keys(parameter.source)):
        name = _name_after([key], parameter)
        if name:
            return name
    return ""


def _with_tool(parameter: Filled) -> str:
    return _name_after([parameter.tool], parameter)


def _with_place(parameter: Filled) -> str:
    """Return a name such as `notes_folder` for the path of a folder `notes`, or `report_file` for
    the path of `report.md`. Return "" if the value is not the path of a file or folder.
    """
    words = _place_words(parameter)
    if not words:
        return ""

    text = str(parameter.value)
    own_words = words_of(own_name(parameter.keys))
    kind = "file" if _FILE.fullmatch(_last_segment(text)) else "folder"
    if "://" in text:
        kind = own_words[-1]

    # Keep the other words of the name, such as `source` in `source_path`, because they say which
    # path is meant.
    return "_".join([*own_words[:-1], *words, kind])[:LONGEST_PARAMETER]


def _places_of_calls(filled: Sequence[Filled]) -> dict[int | None, list[str]]:
    """Return the words in the name of the file or folder, for each call whose parameters name
    exactly one.
    """
    places: dict[int | None, list[list[str]]] = {}
    for parameter in filled:
        words = _place_words(parameter)
        if words and parameter.call is not None:
            places.setdefault(parameter.call, []).append(words)
    return {call: words[0] for call, words in places.items() if len(words) == 1}


def _place_words(parameter: Filled) -> list[str]:
    """Return the words in the last segment of a parameter's path or address, without the file
    extension, or nothing if it is neither a path nor an address.
    """
    if not isinstance(parameter.value, str):
        return []

    own_words = words_of(own_name(parameter.keys))
    if not own_words or own_words[-1] not in _PLACES:
        return []

    text = parameter.value
    if not _ROOT.match(text) and "/" not in text and _FILE.fullmatch(text) is None:
        return []

    name = _last_segment(text)
    file = _FILE.fullmatch(name)
    if file is not None:
        name = file["stem"]

    words = words_of(name)
    if words and words[0][0].isalpha() and len(words) <= _WORDS:
        return words
    return []


def _last_segment(text: str) -> str:
    """Return the last segment of a path or an address, without the query."""
    segments = re.split(r"[/\\]", text.rstrip("/\\"))
    segment, _, _ = segments[-1].partition("?")
    return segment


def _name_after(before: Iterable[str], parameter: Filled) -> str:
    """Return a parameter's name with words in front of it, or "" if the words add nothing to the
    name.
    """
    words = [word for text in before for word in words_of(text)]
    own = own_name(parameter.keys)
    own_words = words_of(own)
    # Do not repeat a word: with `git_branch` in front, a parameter `branch` is renamed
    # `git_branch`, not `git_branch_branch`.
    while words and words[-1] in own_words:
        words.pop()

    words = [word for word in words if not word.isdecimal()]
    if not words:
        return ""
    return "_".join([*words, own])[:LONGEST_PARAMETER]


def _named_keys(keys: Path) -> list[str]:
    return [key for key in keys if not key.isdecimal()]


def words_of(text: str) -> list[str]:
    """Return the words in a string, in lower-case ASCII without accents."""
    return [word.lower() for word in _WORD.findall(_without_accents(text))]


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


# -- tools -----------------------------------------------------------------------------------------


def tool_name(tools: Sequence[str], parameters: Sequence[str], taken: Collection[str] = ()) -> str:
    """Return a name for calls that were made repeatedly.

    The name consists of the names of the first and last tools and, if that is taken, the name of
    the first parameter. The task is not used, because few of its words describe the calls.

    Args:
        tools: the tools that were called, in order, at least one.
        parameters: the parameters that callers must pass.
        taken: names that are already taken.

    Returns:
        Words joined by `_`, of at most 48 characters. The result might still need `safe_name`.
    """
    names = _names_with_words(dict.fromkeys(tools))
    if not names:
        # Parameters whose names are in a non-Latin script or consist of single letters have no
        # words that can be used.
        names = _names_with_words(parameters)[:1]

    first = names[0] if names else ["repeated", "calls"]
    last = names[-1] if len(names) > 1 else []
    name = _joined(first, _without_beginning(last, first))
    if not has_word(name):
        name = "repeated_calls"
    if name in taken and parameters:
        by = _words_of_tool(parameters[0]) or ["value"]
        return _joined(name.split("_"), by, "by")
    return name


def has_word(name: str) -> bool:
    """Return whether a name contains a word of at least two letters, so that it means something to
    people.
    """
    return any(_LETTERS.search(word) for word in _words_with_digits(name))


def _names_with_words(names: Iterable[str]) -> list[list[str]]:
    """Return the words of each name that has words; see `_words_of_tool`."""
    words_of_names = map(_words_of_tool, names)
    return [words for words in words_of_names if words]


def _words_of_tool(name: str) -> list[str]:
    """Return the first words of a name, or nothing if none of them has two letters."""
    all_words = _words_with_digits(name)
    words = all_words[:_WORDS]
    if len(words) < len(all_words):
        words = _without_prepositions(words)
    return words if has_word("_".join(words)) else []


def _without_prepositions(words: list[str]) -> list[str]:
    """Strip prepositions and articles from the end of a list of words, because the words that they
    belonged to were left out.
    """
    while len(words) > 1 and words[-1] in _PREPOSITIONS:
        words = words[:-1]
    return words


def _words_with_digits(name: str) -> list[str]:
    """Return the words in a name, in lower-case ASCII. Digits belong to the preceding word: `s3`,
    `k8s`, `v2`.
    """
    return [word.lower() for word in _WORD_WITH_DIGITS.findall(_without_accents(name))]


def _without_beginning(words: list[str], others: list[str]) -> list[str]:
    """Strip the beginning that words share with `others`, as in `git_add_and_commit` for `git_add`
    and `git_commit`. If `others` consists only of this beginning, return all words.
    """
    same = 0
    for word, other in zip(words[:-1], others, strict=False):
        if word != other:
            break
        same += 1
    return words if same == len(others) else words[same:]


def _joined(first: list[str], last: list[str], between: str = "and") -> str:
    """Join words into a name of at most 48 characters.

    If they are too long, drop the last words of the longer half, and any prepositions that this
    leaves at its end.
    """
    while True:
        halves = ["_".join(words) for words in (first, last) if words]
        name = f"_{between}_".join(halves)
        if len(name) <= MAX_NAME or max(len(first), len(last)) < 2:
            return name

        # Leave at least one word in each half.
        is_first_longer = len("_".join(first)) > len("_".join(last))
        if len(last) < 2 or (is_first_longer and len(first) > 1):
            first = _without_prepositions(first[:-1])
        else:
            last = _without_prepositions(last[:-1])


# -- descriptions ----------------------------------------------------------------------------------


def first_sentence(task: str) -> str:
    """Return the first sentence of a task, on one line, or "" if it is longer than 300 characters,
    because a truncated sentence can mean something else.
    """
    line = next((line for line in map(str.strip, task.splitlines()) if line), "")
    end = _SENTENCE_END.search(line)
    sentence = line if end is None else line[: end.end()]
    sentence = " ".join(sentence.split())
    return sentence if len(sentence) <= _LONGEST_SENTENCE else ""
