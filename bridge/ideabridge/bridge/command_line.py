"""Distinguish the words after a server's command that are executed from those that are only
arguments to a program.

An interpreter (`python x.py`) or a runner (`npx PACKAGE`) executes its operand. The distinction
matters in two places: an executed word never counts as data, and a person is shown all of it except
for secrets. The tables list the options whose meaning is known. Every word after any other option
of an interpreter counts as executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Follows = Literal["", "command", "package", "module", "script"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One word after a command.

    Attributes:
        text: the word.
        option: the option whose value the word is, or "". For the word `--db-path=FILE`, it is
            `--db-path`.
        is_code: whether an interpreter or a runner executes the word, or reads it as an option of
            its own.
        is_inline: whether the word might be program text, as after `sh -c`.
        follows: what the word is an argument to: the command itself, the package or module that the
            command runs, or the command's script (the word before the first argument). It is "" if
            the word is an argument to none of these.
    """

    text: str
    option: str = ""
    is_code: bool = False
    is_inline: bool = False
    follows: Follows = ""

    @property
    def value(self) -> str:
        """The word without the name of its option."""
        prefix = f"{self.option}="
        return self.text.removeprefix(prefix) if self.option else self.text


@dataclass(frozen=True, slots=True)
class _Starter:
    """How a program that executes its operand parses its arguments.

    Attributes:
        operand: the kind of operand that the program executes. `script` is a file. `program` is a
            package or a program, which takes the words after it as arguments. With `other`, every
            word counts as executed.
        flags: the options of the program that take no value.
        valued: the options of the program whose value is the next word.
        subcommands: the subcommands that execute the operand which follows them.
        has_modules: whether `-m` names a module to execute.
        has_scripts: whether a program that is run in this way can be a script in the project.
    """

    operand: Literal["script", "program", "other"]
    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    subcommands: frozenset[str] = frozenset()
    has_modules: bool = False
    has_scripts: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SCRIPT: Final = _Starter("script")
_PROGRAM: Final = _Starter("program")
_OTHER: Final = _Starter("other")
_UNKNOWN: Final = _Starter("other")
_SHELL: Final = _Starter("script", _words("-e -u -x -l --login --posix --norc --noprofile"))
_NPX: Final = _Starter(
    "program", _words("-y --yes -q --quiet --no --no-install --"), _words("-p --package")
)
_UVX: Final = _Starter(
    "program",
    _words(
        "-q --quiet -v --verbose -n --no-cache --offline --isolated --frozen "
        "--locked --no-sync --no-project"
    ),
    _words(
        "--directory --project --from --with --with-editable --with-requirements -p "
        "--python --extra --group"
    ),
)
_STARTERS: Final[dict[str, _Starter]] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash"), _SHELL),
    **dict.fromkeys(
        ("rbash", "csh", "tcsh", "mksh", "pdksh", "yash", "elvish", "nu", "xonsh"), _SCRIPT
    ),
    **dict.fromkeys(("expect", "gjs", "hy", "raku", "racket", "wish", "qjs", "irb"), _SCRIPT),
    **dict.fromkeys(
        ("ruby", "perl", "php", "lua", "luajit", "tclsh", "rscript", "guile", "julia"), _SCRIPT
    ),
    **dict.fromkeys(("elixir", "escript", "groovy", "osascript", "pwsh", "powershell"), _SCRIPT),
    **dict.fromkeys(("tsx", "ts-node", "esno", "zx", "babel-node", "ipython"), _SCRIPT),
    **dict.fromkeys(("npx", "bunx", "pnpx"), _NPX),
    **dict.fromkeys(
        ("pipx", "poetry", "hatch", "pdm"), replace(_PROGRAM, subcommands=_words("run"))
    ),
    **dict.fromkeys(
        ("xargs", "find", "time", "timeout", "nice", "nohup", "env", "sudo", "doas", "setsid"),
        _OTHER,
    ),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "ssh", "wsl", "nix", "direnv", "mise", "asdf"), _OTHER
    ),
    **dict.fromkeys(
        ("cmd", "make", "awk", "gawk", "mawk", "nawk", "sed", "busybox", "java", "gdb"), _OTHER
    ),
    **dict.fromkeys(
        ("stdbuf", "flock", "taskset", "unshare", "nsenter", "strace", "ltrace", "chroot"), _OTHER
    ),
    **dict.fromkeys(("systemd-run", "bwrap", "firejail", "ionice", "chrt", "parallel"), _OTHER),
    "python": _Starter(
        "script",
        _words("-u -B -E -I -O -OO -P -q -s -S -v -b -d -i -x"),
        _words("-W -X"),
        has_modules=True,
    ),
    **dict.fromkeys(("py", "pythonw"), _Starter("script", has_modules=True)),
    "pypy": _Starter("script", _words("-u -B -E -I -s -S"), has_modules=True),
    **dict.fromkeys(
        ("node", "nodejs"),
        _Starter(
            "script", _words("--no-warnings --no-deprecation --enable-source-maps --trace-warnings")
        ),
    ),
    "uvx": _UVX,
    "uv": replace(_UVX, subcommands=_words("run"), has_scripts=True),
    "npm": replace(_NPX, subcommands=_words("exec x")),
    "pnpm": replace(_NPX, subcommands=_words("dlx exec")),
    "yarn": replace(_NPX, subcommands=_words("dlx exec")),
    "bun": replace(_PROGRAM, subcommands=_words("run x")),
    "deno": replace(_SCRIPT, subcommands=_words("run")),
}

_BUILD: Final = re.compile(r"(?<=[a-z])([-.]?\d.*|[-.](static|dbg|debug))$")
"""Matches the version in a program's name and everything after it, or the name of a build:
`python3.13t`, `bash-static`.
"""

_MODULE: Final = re.compile(r"-[BEIOPSbdiqsuvx]*m(.*)", re.DOTALL)
"""Python's option `-m`, alone or after flags in the same word, with or without the name of a
module.
"""

_CALLS: Final = frozenset({"-c", "--call", "--shell-mode"})
"""Options after which a runner expects program text."""

_BETWEEN: Final = re.compile(r"(?:[\s=;,|&()<>'\"`{}]|:-?)+")
"""Separates the parts of a word that might name a program, such as the default in `${NAME:-sh}`."""

_SHELL_VARIABLE: Final = re.compile(r"\$\{?SHELL\b")
"""The variable that contains the user's shell. It is often unset when a server is started as a
service.
"""

_SCRIPT_FILE: Final = re.compile(r".+\.(py|pyw|js|mjs|cjs|ts|mts|sh|rb|pl|php)", re.IGNORECASE)


def program_name(command: str) -> str:
    """Return a program's name without its folder, version and `.exe`, or a package's name without
    its scope and version.
    """
    name = re.split(r"[/\\]", command)[-1].lower()
    name = re.sub(r"\.(exe|cmd|bat)$", "", name)
    name = name.partition("@")[0] or name
    return _BUILD.sub("", name)


def read_arguments(command: str, words: Sequence[str]) -> list[Argument]:
    """Read the words after a server's command.

    Args:
        command: the command as configured, or the file that it links to.
        words: the arguments of the command.
    """
    position = 0
    follows: Follows = "command"
    starter = _starter(command)
    while starter is not None:
        end = _operand(starter, words, position)
        if end is None:
            return _unread(starter, words)
        position = end + 1
        if starter.operand == "program" and not _SCRIPT_FILE.fullmatch(words[end]):
            follows = "package"
            starter = _starter(words[end])
        else:
            follows = _operand_kind(starter, words, end)
            starter = None

    executed = _executed(words[:position], is_inline=False)
    return [*executed, *_options(words[position:], follows)]


def names_starter(word: str) -> bool:
    """Return whether a part of a word names an interpreter, or a program that starts others."""
    if _SHELL_VARIABLE.search(word):
        return True
    return any(program_name(part) in _STARTERS for part in _BETWEEN.split(word))


def _starter(program: str) -> _Starter | None:
    name = program_name(program)
    # A name with a variable in it is unknown until the server starts.
    return _UNKNOWN if "$" in name else _STARTERS.get(name)


def _unread(starter: _Starter, words: Sequence[str]) -> list[Argument]:
    """Return the words after a program whose operand is not known. An interpreter might treat any
    of these words as program text.
    """
    if starter.operand == "program":
        return _executed(words, is_inline=not _CALLS.isdisjoint(words))
    if starter.operand == "script" or starter is _UNKNOWN:
        return _executed(words, is_inline=True)

    # An interpreter can also come later: in `docker run IMAGE sh -c TEXT`, `sh` executes the text.
    scripts = (place for place, word in enumerate(words) if _starts_scripts(word))
    inner = next(scripts, len(words) - 1)
    before = _executed(words[: inner + 1], is_inline=False)
    if inner + 1 < len(words):
        behind = read_arguments(words[inner], words[inner + 1 :])
    else:
        behind = []

    return [*before, *(replace(argument, is_code=True, follows="") for argument in behind)]


def _starts_scripts(word: str) -> bool:
    starter = _starter(word)
    return starter is not None and starter.operand == "script"


def _operand(starter: _Starter, words: Sequence[str], position: int) -> int | None:
    """Return the index of the operand. Return None if there is no operand, or if an unknown option
    precedes it.
    """
    if starter.operand == "other":
        return None

    subcommands = starter.subcommands
    while position < len(words):
        word = words[position]
        module = _MODULE.fullmatch(word) if starter.has_modules else None
        if module is not None:
            if module.group(1) or position + 1 == len(words):
                return position
            return position + 1

        if word in starter.valued:
            position += 2
        elif word in starter.flags or (
            starter.operand == "program" and word.startswith("--") and "=" in word
        ):
            position += 1
        elif word.startswith("-") or (subcommands and word not in subcommands):
            return None
        elif subcommands:
            subcommands = frozenset[str]()
            position += 1
        else:
            return position

    return None


def _operand_kind(starter: _Starter, words: Sequence[str], end: int) -> Follows:
    """Return the kind of the operand: a module for `python -m`, a package for `npx x.js`."""
    if starter.has_modules and any(
        _MODULE.fullmatch(word) for word in words[max(end - 1, 0) : end + 1]
    ):
        return "module"
    if starter.operand == "script" or starter.has_scripts:
        return "script"
    return "package"


def _executed(words: Sequence[str], *, is_inline: bool) -> list[Argument]:
    arguments = _options(words, "")
    return [replace(argument, is_code=True, is_inline=is_inline) for argument in arguments]


def _options(words: Sequence[str], follows: Follows) -> list[Argument]:
    """Read a program's arguments. An option's value follows `=` or is the next word."""
    arguments: list[Argument] = []
    before = ""
    for word in words:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            option = name if equals else ""
            before = "" if equals else word
        else:
            option = before
            before = ""

        arguments.append(Argument(word, option, follows=follows))

    return arguments
