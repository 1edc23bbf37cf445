"""Find the files in a server's definition that a person can confirm as the server's data.

Trust covers every file that a definition names. A server's own data changes with each use, so a
person can confirm that a file is only data. The author of a project might try to pass off code as
data. A file can therefore be confirmed only if every word that names it is in a position where data
is expected, its extension is used for neither code nor configuration, and the file is either absent
or an ordinary, non-executable file at each start. Trust still covers every other file.

A word without an option's name counts as data only after one of the project's own programs or
scripts: any other program might be an interpreter that executes the word.

Like `trust.py`, this file imports only the standard library and small files.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ideabridge.bridge.command_line import names_starter, read_arguments

_DATA_NAME: Final = re.compile(
    r"(.*[-_])?(db|database|data|datasets?|sqlite3?|duckdb|memory|memories|graph|store|storage|state|cache|logs?|history"
    r"|journal|notes?|records?|output|out|results?|index)([-_](file|path|filename|name|location|uri|url|db))*",
    re.IGNORECASE,
)
"""Matches the name of an option or a variable whose value is data."""

_NOT_DATA_NAME: Final = re.compile(
    r"(^|[-_])(no|experimental|enable|disable|use|with|without|allow|skip|clear|force|config|conf|settings?|scripts?"
    r"|preload|require|import|loader|hooks?|plugins?|exec|commands?|cmd|bin|init|startup|rc|options?|opts?|lib|library"
    r"|modules?|python|node|perl|ruby|bash|sh|shell|git|ssh|java|ld|dyld|env|templates?|npm|uv|pip)($|[-_])",
    re.IGNORECASE,
)
"""Matches a part of a name that suggests code, a configuration, or a switch."""

_DATA_SUFFIXES: Final = frozenset(
    {
        ".db",
        ".db3",
        ".sqlite",
        ".sqlite3",
        ".duckdb",
        ".jsonl",
        ".ndjson",
        ".csv",
        ".tsv",
        ".log",
        ".parquet",
    }
)
"""File extensions used for data. A file with one of these extensions can also be an argument
without an option.
"""

_CODE_SUFFIXES: Final = frozenset(
    {
        *(
            ".py",
            ".pyc",
            ".pyw",
            ".pyd",
            ".pyz",
            ".pth",
            ".ipynb",
            ".whl",
            ".egg",
            ".zip",
            ".js",
            ".mjs",
            ".cjs",
        ),
        *(
            ".jsx",
            ".ts",
            ".mts",
            ".cts",
            ".tsx",
            ".node",
            ".wasm",
            ".sh",
            ".bash",
            ".zsh",
            ".fish",
            ".ksh",
            ".csh",
        ),
        *(
            ".ps1",
            ".psm1",
            ".bat",
            ".cmd",
            ".com",
            ".exe",
            ".msi",
            ".vbs",
            ".rb",
            ".pl",
            ".pm",
            ".php",
            ".lua",
        ),
        *(
            ".tcl",
            ".r",
            ".jl",
            ".so",
            ".dylib",
            ".dll",
            ".a",
            ".o",
            ".jar",
            ".war",
            ".class",
            ".groovy",
            ".kts",
        ),
        *(
            ".scala",
            ".go",
            ".rs",
            ".c",
            ".cc",
            ".cpp",
            ".h",
            ".el",
            ".awk",
            ".sed",
            ".mk",
            ".gradle",
            ".sql",
        ),
        *(
            ".toml",
            ".yaml",
            ".yml",
            ".ini",
            ".cfg",
            ".conf",
            ".config",
            ".properties",
            ".env",
            ".lock",
            ".rc",
        ),
        *(
            ".service",
            ".desktop",
            ".plist",
            ".xml",
            ".html",
            ".htm",
            ".svg",
            ".j2",
            ".jinja",
            ".jinja2",
            ".tmpl",
        ),
        *(".template", ".tf", ".nix", ".pem", ".key", ".crt"),
    }
)
_SETTINGS: Final = re.compile(
    r"(ideabridge|mcp|package|package-lock|tsconfig|jsconfig|composer|deno|launch|tasks|manifest)\.jsonc?"
    r"|.*(config|conf|settings|options|prefs|preferences)\.jsonc?",
    re.IGNORECASE,
)
"""Names of settings files whose extension (`.json`) is also used for data."""

_SHORT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")
_ADDRESS: Final = re.compile(r"(?:sqlite3?|duckdb|file)(?:\+\w+)?:(.+)", re.IGNORECASE | re.DOTALL)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_EXECUTABLE: Final = (
    b"#!",
    b"\x7fELF",
    b"MZ",
    b"PK\x03\x04",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)
"""The first bytes of executable files and archives."""


def can_have_data(command: str, words: Sequence[str]) -> bool:
    """Return whether a server can have data files.

    A server cannot have data files if it executes program text, or if its arguments could hide what
    it executes.

    The table of interpreters is not complete. If the arguments of an unknown program name an
    interpreter, the program might start it.
    """
    for argument in read_arguments(command, words):
        if argument.is_inline or (not argument.is_code and names_starter(argument.text)):
            return False
    return True


def data_words(
    command: str,
    words: Sequence[str],
    server: str,
    is_own_file: Callable[[str], bool],
    *,
    is_own_program: bool,
) -> Iterator[tuple[int, str, str]]:
    """Yield (number, path, description of the place) for each argument that might name a data file.

    Args:
        command: the command's name.
        words: the arguments of the command.
        server: the name of the server.
        is_own_file: returns whether a path can only refer to a file in the project.
        is_own_program: whether the command can only refer to a file in the project.
    """
    arguments = read_arguments(command, words)
    script = next((argument.text for argument in reversed(arguments) if argument.is_code), "")
    # In `node inspect` and `tsx watch`, a subcommand takes the place of the script.
    is_script = Path(script).suffix.lower() in _CODE_SUFFIXES
    is_own_script = is_script and is_own_file(script)
    for number, argument in enumerate(arguments):
        value = _path(argument.value)
        if argument.is_code or value is None or (argument.follows == "script" and not is_script):
            continue
        if argument.follows == "command":
            is_own = is_own_program
        else:
            is_own = argument.follows == "script" and is_own_script

        if argument.option.startswith("--") and _names_data(argument.option):
            yield number, value, f"the option {argument.option} of {server}"
        elif is_own and Path(value).suffix.lower() in _DATA_SUFFIXES:
            yield number, value, f"an argument of {server}"


def data_variables(environment: Mapping[str, str], server: str) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, path, description of the place) for each variable that might name a data
    file.
    """
    for name, text in environment.items():
        value = _path(text)
        if value is not None and _names_data(name):
            yield name, value, f"the variable {name} of {server}"


def _names_data(name: str) -> bool:
    # The name is quoted in a question to a person, so it must not look like a part of the question.
    if not _SHORT_NAME.fullmatch(name):
        return False
    plain = _CAMEL.sub("-", name.lstrip("-"))
    return _DATA_NAME.fullmatch(plain) is not None and _NOT_DATA_NAME.search(plain) is None


def _path(value: str) -> str | None:
    """Return the path to data in a value, or None if the value contains no such path.

    The path is the whole value, or the part after a scheme such as `sqlite:`.
    """
    match = _ADDRESS.fullmatch(value)
    path = match.group(1) if match is not None else value
    return path if _is_data_path(Path(path)) else None


def _is_data_path(path: Path) -> bool:
    """Return whether a file has an extension that is used for neither code nor configuration."""
    suffix = path.suffix.lower()
    return (
        suffix not in ("", ".")
        and suffix not in _CODE_SUFFIXES
        and not _SETTINGS.fullmatch(path.name)
    )


def is_in_project(path: Path, folder: Path) -> bool:
    """Return whether a path is in a project's folder, outside folders of installed programs.

    Links are resolved. Hidden folders and `node_modules` count as folders of installed programs.
    """
    real_folder = Path(os.path.realpath(folder))
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(real_folder):
        return False
    return not any(
        part.startswith(".") or part == "node_modules"
        for part in real.relative_to(real_folder).parts
    )


def may_be_data(path: Path, folder: Path) -> bool:
    """Return whether a file inside a folder is absent, or an ordinary file that cannot be executed.

    Return False for a file that is hidden, in a hidden folder or behind a link. Also return False
    for a file with a second hard link, execute permission, or the first bytes of a program.
    """
    real_folder = Path(os.path.realpath(folder))
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(real_folder):
        return False

    inner = real.relative_to(real_folder)
    if not _is_data_path(inner) or any(part.startswith(".") for part in inner.parts):
        return False
    if Path(os.path.normpath(path)) not in (folder / inner, real):
        return False
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            return False
        if sys.platform != "win32" and about.st_mode & 0o111:
            return False
        with path.open("rb") as file:
            return not file.read(4).startswith(_EXECUTABLE)
    except FileNotFoundError:
        return True
    except OSError:
        return False
