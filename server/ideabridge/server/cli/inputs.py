"""Inputs: what `--input` and file arguments say."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from ideabridge.server.cli.exits import UsageError
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError

MAX_FILE_BYTES: Final = 128 * 1024 * 1024
"""How much is read of a file: twice the largest idea (`MAX_DOCUMENT_BYTES`), which may be written with indents."""


def read_json(place: str, what: str, *, follow: bool = True) -> JSON:
    """The JSON in a file, or on standard input where `place` is `-`.

    Args:
        place: names it.
        what: the option or argument, for errors.
        follow: whether a link is followed; only what a person named is.

    Raises:
        UsageError: it cannot be read, is larger than `MAX_FILE_BYTES`, or is not JSON.
    """
    name = "standard input" if place == "-" else place
    try:
        if place == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
            if not follow:
                flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(Path(place).expanduser(), flags), "rb") as file:
                # The size of what is no plain file is not known before it is read.
                size = os.fstat(file.fileno()).st_size
                data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else None
    except OSError as error:
        raise UsageError(f"{what}: {place} cannot be read: {error.strerror or error}") from None
    if data is None or len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{what}: {name} has more than {MAX_FILE_BYTES:,} bytes, which is all that is read")
    try:
        return decode(data.removeprefix(b"\xef\xbb\xbf"), what=name)
    except IdeabridgeError as error:
        raise UsageError(str(error)) from None


def read_input(words: list[str] | None, option: str = "--input") -> JSONObject | None:
    """What `--input` gives, taken together in order; None where it was not given.

    Each is a JSON object, `@FILE` with one (`@-`: standard input), or `key=value`, where the value is JSON if it
    reads as JSON, else text.

    Raises:
        UsageError: it is none of these.
    """
    if words is None:
        return None
    result: JSONObject = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word.lstrip().startswith("{"):
            result.update(_object(_decoded(word, option), option))
        elif word.startswith("@"):
            result.update(_object(read_json(word[1:], option), f"{option} {word}"))
        elif equals and key:
            result[key] = value_of(value)
        else:
            raise UsageError(f"{option}: expected a JSON object, @FILE or key=value, found {word[:60]!r}")
    return result


def _decoded(word: str, option: str) -> JSON:
    try:
        return decode(word, what=option)
    except IdeabridgeError as error:
        raise UsageError(str(error)) from None


def _object(value: JSON, what: str) -> JSONObject:
    if not isinstance(value, dict):
        raise UsageError(f"{what}: expected a JSON object")
    return value


def value_of(text: str) -> JSON:
    """The JSON a text is; the text itself where it is none."""
    try:
        return decode(text, what="value")
    except IdeabridgeError:
        return text
