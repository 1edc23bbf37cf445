"""Find relative paths in the entry of a server that a host starts in each project's folder.

ideabridge starts a server that has no `cwd` in the folder of ideabridge's own configuration, where
a relative path refers to a different file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ideabridge.bridge.command_line import read_arguments
from ideabridge.bridge.server_entry import ServerStart
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.typed import read_as

_DOTTED: Final = re.compile(r"\.{1,2}([/\\].*)?", re.DOTALL)
"""Matches `.`, `..`, and paths that begin with one of these as a folder."""

_FILE: Final = re.compile(
    r"[^\s:$~/\\@][^\s:$~@]*\.(py|pyz|m?js|cjs|m?ts|sh|rb|pl|php|jar|json|jsonl|ya?ml|toml|db|sqlite3?|csv|txt|md|env|log)",
    re.IGNORECASE,
)
"""Matches a relative path that ends with the name of a file of a known type."""

_FOLDER_VARIABLE: Final = re.compile(r"(PATH|DIR|DIRS|DIRECTORY|FOLDER|ROOT)$", re.IGNORECASE)


def relative_places(entry: JSONObject, project: Path) -> list[str]:
    """Return where an entry contains relative paths, such as `args.1` or `env.DB`.

    Args:
        entry: the entry in `ideabridge.json`.
        project: the folder of a project in which the host starts the server.
    """
    start = read_as(ServerStart, entry)
    command = start.command
    if command is None:
        return []

    if re.search(r"[/\\]", command) and not _is_absolute(command):
        places = ["command"]
    else:
        places = []

    for number, argument in enumerate(read_arguments(command, start.words)):
        # Code in an argument is often the name of a package or a subcommand, and a folder can have
        # the same name.
        may_be_folder = not argument.is_code
        if any(
            _is_relative(part, project, may_be_folder=may_be_folder)
            for part in _parts(argument.text)
        ):
            places.append(f"args.{number}")

    for name, text in start.env.items():
        may_be_folder = _FOLDER_VARIABLE.search(name) is not None
        parts = text.split(os.pathsep)
        if any(_is_relative(part, project, may_be_folder=may_be_folder) for part in parts):
            places.append(f"env.{name}")

    return places


def _parts(word: str) -> Iterator[str]:
    yield word
    yield word.partition("=")[2]


def _is_absolute(text: str) -> bool:
    return text.startswith(("/", "\\", "~", "$")) or re.match(r"[A-Za-z]:[/\\]", text) is not None


def _is_relative(text: str, project: Path, *, may_be_folder: bool) -> bool:
    if not text or _is_absolute(text) or "\0" in text:
        return False
    if _DOTTED.fullmatch(text) or _FILE.fullmatch(text):
        return True
    try:
        path = project / text
        return path.exists() if may_be_folder or "/" in text else path.is_file()
    except OSError:  # Checking the word raised an error because it is too long to be a file name.
        return False
