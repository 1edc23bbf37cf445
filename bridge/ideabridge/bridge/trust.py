"""Record which project files a person has trusted, by their content.

A project file (`ideabridge.json` in a folder) can start commands and import Python files, so it is
used only after a person has trusted exactly this content. `trust.json` in the user's configuration
folder stores what is trusted: for each project file, the SHA-256 of the file and of every file that
it names, the files that the person confirmed as data (`data_files`), and the environment variables
that the project file is allowed to name.

Shell completion reads `trust.json` at each key press, so this file imports only the standard
library, platformdirs, and small files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import platformdirs

from ideabridge.bridge.command_line import program_name
from ideabridge.bridge.data_files import (
    can_have_data,
    data_variables,
    data_words,
    is_in_project,
    may_be_data,
)
from ideabridge.bridge.trust_snapshot import (
    MAX_TEXT_BYTES,
    Snapshot,
    snapshot_of,
    snapshot_path,
)
from ideabridge.tools.encoding import list_or_empty, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted, joined, size_text, visible

if TYPE_CHECKING:
    from ideabridge.tools.encoding import JSON, JSONObject

logger: Final = logging.getLogger(__name__)

FILE_NAME: Final = "ideabridge.json"
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size, in bytes, of a project file. The limit for `trust.json` is four times as large."""

MAX_NAMED_FILES: Final = 1000
MAX_NAMED_BYTES: Final = 256 * 1024 * 1024
MAX_NAMES: Final = 10_000
"""Maximum number of paths to look up: one for each combination of a word and a folder that the word
might be relative to.
"""

HARMLESS: Final = frozenset(
    {
        *(
            "HOME",
            "LOGNAME",
            "USER",
            "USERNAME",
            "USERPROFILE",
            "HOMEDRIVE",
            "HOMEPATH",
            "SHELL",
            "HOSTNAME",
        ),
        *(
            "PATH",
            "PATHEXT",
            "PWD",
            "TMPDIR",
            "TEMP",
            "TMP",
            "TZ",
            "TERM",
            "LANG",
            "LANGUAGE",
            "LC_ALL",
            "LC_CTYPE",
        ),
        *(
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
        ),
        *(
            "APPDATA",
            "LOCALAPPDATA",
            "PROGRAMDATA",
            "PROGRAMFILES",
            "SYSTEMDRIVE",
            "SYSTEMROOT",
            "WINDIR",
        ),
    }
)
"""Variables that do not contain secrets, so that a project file can name them without
permission.
"""

_VARIABLE: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_NAME: Final = re.compile(r"[\w.@/:-]+")
_BETWEEN: Final = re.compile(r"[\s:;,=&|()<>'\"`]+")
"""Separates the file names within a word. The word can be a shell command, a list of folders, or an
address.
"""

_MODULE: Final = re.compile(r"-[A-Za-z]*?m(.*)", re.DOTALL)
"""Python's option `-m`, alone or after other letters in the same word, with or without the name of
a module.
"""

_MOST_PROGRAM_NAMES: Final = 20
"""Maximum number of names for a server's command, including link targets. The arguments of the
command are read for each of these names.
"""

_ENTRIES: Final = ("__main__.py", "index.js", "package.json")
"""The files that Python and Node execute when they are started with a folder as the argument."""

_KEPT: Final = (".git", ".hg", ".jj", ".svn")
"""The folders that mark the root of a working copy."""

_GONE: Final = "gone"
_UNREADABLE: Final = "unreadable"
_NOT_DATA: Final = "not data"


class TrustError(IdeabridgeError):
    """A file cannot be trusted in its current state, or a change in trust cannot be saved. The
    message says why.
    """


# -- reading files ---------------------------------------------------------------------------------


def read_own(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a file, after checking that no other user could have written it.

    Raises:
        TrustError: others can write to the file, its owner is neither the user nor root, or it is
            larger than `max_bytes`.
        OSError: the file cannot be read.
    """
    data = read_own_beginning(path, max_bytes + 1)
    if len(data) > max_bytes:
        raise TrustError(f"{path} is larger than {max_bytes:,} bytes")
    return data


def read_plain(path: Path, max_bytes: int) -> bytes:
    """Read a regular file, directly or through a link, no matter who wrote it.

    Any other kind of file is refused, because in a cloned folder, the path could be a link to a
    device, which is endless, or to a pipe, which would block.

    Raises:
        TrustError: the file is not a regular file, or is larger than `max_bytes`.
        OSError: the file cannot be read.
    """
    with _opened(path) as (file, about):
        if not stat.S_ISREG(about.st_mode):
            raise TrustError(f"{path} is not a regular file")
        data = file.read(max_bytes + 1)

    if len(data) > max_bytes:
        raise TrustError(f"{path} is larger than {max_bytes:,} bytes")
    return data


def read_own_beginning(path: Path, size: int) -> bytes:
    """Read up to `size` bytes of a file, after checking that no other user could have written it.
    Raises the same errors as `read_own`, except for a file that is too large.
    """
    with _opened(path) as (file, about):
        problem = _unsafe(about, path) if stat.S_ISREG(about.st_mode) else None
        if problem is not None:
            raise TrustError(f"{path} was rejected: {problem}")
        return file.read(size)


def link_out(path: Path, folder: Path) -> Path | None:
    """Return the first link on a path in a folder that leads out of the folder, or None.

    Return None also if the path is not in the folder. The author of the folder, for example of a
    repository, chose where the link leads.
    """
    base = Path(os.path.normpath(folder.absolute()))
    place = Path(os.path.normpath(path.absolute()))
    if not place.is_relative_to(base):
        return None

    real = Path(os.path.realpath(base))
    below = base
    for part in place.relative_to(base).parts:
        below = below / part
        if below.is_symlink() and not Path(os.path.realpath(below)).is_relative_to(real):
            return below

    return None


def write_own(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Replace a file in one step. Readers see either the old content or the whole of `data`, even
    after a system crash.

    Raises:
        OSError: the file cannot be written.
    """
    with staged(path, data.encode() if isinstance(data, str) else data) as new:
        new.chmod(mode)
        new.replace(path)


@contextmanager
def staged(path: Path, data: bytes) -> Generator[Path]:
    """Write a new file that only the user can read, next to a path, and return the new file's path.

    If the caller does not move the file to its destination, it is removed at the end.

    Raises:
        OSError: the file cannot be written.
    """
    # Import this only when it is needed, because it takes time and most commands do not write.
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


@contextmanager
def _opened(path: Path) -> Generator[tuple[BufferedReader, os.stat_result]]:
    """Open a file, and return it with its status.

    Raises:
        OSError: the file cannot be opened, or is a folder.
    """
    # Do not block on a pipe that has no writer. A pipe that has one (`<(...)`) is read to its end.
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if sys.platform != "win32":
            os.set_blocking(descriptor, True)
        with open(descriptor, "rb", closefd=False) as file:
            yield file, about
    finally:
        os.close(descriptor)


def _unsafe(about: os.stat_result, path: Path) -> str | None:
    """Return how another user could have written a file, or None if that is impossible.

    Return None also if the system has no file modes.
    """
    if sys.platform == "win32":
        return None
    if about.st_mode & stat.S_IWOTH:
        return (
            f"every user of this machine can write to it; run: chmod o-w {shlex.quote(str(path))}"
        )
    if about.st_uid not in (os.geteuid(), 0):
        return (
            f"its owner is user {about.st_uid}, not you ({os.geteuid()}) or root; copy it or "
            "change its owner"
        )

    return None


# -- files that a project file names ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a person can confirm as data.

    Attributes:
        path: the absolute path. The file does not have to exist.
        named_by: the places that name the file, for example `the variable DB_PATH of shop`.
    """

    path: Path
    named_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The current content of a project file, and the digests of the files that it names.

    Attributes:
        file: the absolute path.
        data: the bytes of the file, from which everything is parsed.
        digests: the SHA-256, in hex, of the file and of every file that it names, except for the
            files in `data_files`, keyed by path. The path of a file in the project file's folder is
            relative, with `/`. The path of any other file, which can only be a tool file, is
            absolute.
        data_files: the files that a person can confirm as data, keyed by path.
        left: the number of bytes of data files that trust can still cover.
    """

    file: Path
    data: bytes
    digests: Mapping[str, str]
    data_files: Mapping[str, DataFile] = field(default_factory=dict[str, DataFile])
    left: int = MAX_NAMED_BYTES
    _read: dict[str, tuple[str, int] | None] = field(
        default_factory=dict[str, "tuple[str, int] | None"], compare=False, repr=False
    )

    def covered(self, confirmed: Collection[str] = ()) -> dict[str, str]:
        """Return the digests of all files that trust covers.

        Args:
            confirmed: the paths of the files that a person confirmed as data. Trust does not cover
                these files.
        """
        digests = dict(self.digests)
        left = self.left
        for path in self.data_files:
            content = None if path in confirmed else self._content(path, left)
            if content is not None:
                digests[path], size = content
                if digests[path] != _UNREADABLE:
                    left -= size

        return digests

    def _content(self, path: str, left: int) -> tuple[str, int] | None:
        """Return the digest and the size of a data file. A file larger than `left` bytes counts as
        unreadable.
        """
        content = self._read.get(path, (_UNREADABLE, 0))
        # Compute each digest only once, so that the stored one belongs to the content that the
        # person was shown.
        if content is not None and content[0] == _UNREADABLE:
            content = self._read[path] = _digest(self.data_files[path].path, left)
        if content is not None and content[1] > left:
            return (_UNREADABLE, content[1])
        return content

    def hash(self, confirmed: Collection[str] = ()) -> str:
        """Return the SHA-256, in hex, of everything that a person trusts: the covered files, and
        the decision which files are data.
        """
        covered = sorted(self.covered(confirmed).items())
        trusted = {"files": covered, "data": sorted(confirmed)} if confirmed else covered
        return hashlib.sha256(json.dumps(trusted).encode()).hexdigest()

    def digest_of(self, path: str) -> str:
        """Return the digest of a tool file, or "" if the file did not exist when the project file
        was read.
        """
        return self.digests.get(_shown(Path(path), self.file.parent), "")


def project_file(file: Path, data: bytes, content: JSON) -> ProjectFile:
    """Compute the digests of a project file and of the files that it names.

    These are the files in `tools`, in any folder, and the following files inside the project's
    folder:

    - files that a server's `command`, `args` (also as `--flag=FILE`, as `-m MODULE` and within a
      shell command) or `env` names, relative to the folder or to the server's `cwd`;
    - the files that Python and Node execute when one of these words names a folder;
    - the files that `command` and MODULE stand for in the server's own PATH and PYTHONPATH.

    The digest of a link is the digest of its target. Files that only the covered files load are not
    covered themselves.

    Args:
        file: the path of the project file.
        data: the bytes of the file.
        content: the decoded content of `data`.

    Raises:
        TrustError: the project file names too many files, or the files together are too large.
    """
    folder = file.parent
    digests = {file.name: hashlib.sha256(data).hexdigest()}
    left = MAX_NAMED_BYTES
    named: dict[Path, bool] = {}
    data_names: dict[Path, list[str]] = {}
    code = {file}
    for number, mention in enumerate(_named(content, folder)):
        if number > MAX_NAMES:
            raise TrustError(
                f"{file} has more than {MAX_NAMES:,} words that may name files, which is too "
                "many to review"
            )

        path = mention.path
        if mention.data_of is None:
            code.add(path)
        else:
            data_names.setdefault(path, []).append(mention.data_of)

        if path not in named:
            named[path] = mention.anywhere
        elif mention.anywhere:
            named[path] = True

    data_files = _data_files(data_names, code, folder)
    too_many = TrustError(
        f"{file} names more files than can be trusted: at most {MAX_NAMED_FILES:,} of "
        f"{size_text(MAX_NAMED_BYTES)} together"
    )
    if len(digests) + len(data_files) > MAX_NAMED_FILES:
        raise too_many

    for path, anywhere in named.items():
        # Test the cheapest condition first, because most words do not name a file.
        if (
            path in data_files
            or not os.path.lexists(path)
            or not (anywhere or _is_inside(path, folder))
        ):
            continue

        digest_and_size = _digest(path, left)
        if digest_and_size is None:
            continue

        digests[_shown(path, folder)], size = digest_and_size
        left -= size
        if left < 0 or len(digests) + len(data_files) > MAX_NAMED_FILES:
            raise too_many

    by_name = {_shown(path, folder): data_file for path, data_file in data_files.items()}
    return ProjectFile(file, data, digests, by_name, left)


def _data_files(
    named: Mapping[Path, list[str]], code: Collection[Path], folder: Path
) -> dict[Path, DataFile]:
    """Return the files that can be data: those whose every mention names them as data."""
    if not named:
        return {}
    # Ignore case, because some file systems do.
    real_code = {os.path.realpath(path).casefold() for path in code}
    return {
        path: DataFile(path, tuple(dict.fromkeys(places)))
        for path, places in named.items()
        if os.path.realpath(path).casefold() not in real_code and may_be_data(path, folder)
    }


@dataclass(frozen=True, slots=True)
class _Mention:
    """A path that a project file might name.

    Attributes:
        path: the path.
        anywhere: whether the path also counts if it is outside the folder.
        data_of: the place that names the path as data, or None if the path might be code.
    """

    path: Path
    anywhere: bool = False
    data_of: str | None = None


def _named(content: JSON, folder: Path) -> Iterator[_Mention]:
    """Yield every path that the content might name."""
    members = object_or_empty(content)
    for text in _texts(members.get("tools")):
        path = folder / os.path.expanduser(text)  # noqa: PTH111 - Path.expanduser raises where there is no home
        yield _Mention(path, anywhere=True)

    servers = members.get("mcpServers")
    for name, entry in object_or_empty(servers).items():
        if isinstance(entry, dict):
            # Quote a name with spaces in it, because it could otherwise pose as a part of the
            # sentence that asks a person about a data file.
            shown = name if _PLAIN_NAME.fullmatch(name) else visible(repr(name))
            yield from _named_by(shown, entry, folder)


def _named_by(server: str, entry: JSONObject, folder: Path) -> Iterator[_Mention]:
    """Yield every path that a server's entry might name."""
    environment = object_or_empty(entry.get("env"))
    commands = _texts([entry.get("command")])
    arguments = _texts(entry.get("args"))
    programs = [
        *commands,
        *(f"{at}/{command}" for at in _listed(environment, "PATH") for command in commands),
    ]
    code = [*programs, *_modules(arguments, environment)]
    for word in (*commands, *arguments):
        # Files that Python or Node would also look for under this name.
        code += [f"{word}.js", *(f"{word}/{inner}" for inner in _ENTRIES)]
        if not word.startswith("./"):
            code.append(word[2:])  # `-r./FILE`

    variables = {name: text for name, value in environment.items() for text in _texts([value])}
    own = [folder / _filled(text) for text in _texts([entry.get("cwd")])]
    data_of_words: dict[int, tuple[str, str]] = {}
    data_of_variables: dict[str, tuple[str, str]] = {}
    names = _program_names(programs, folder)
    filled = [_filled(word) for word in arguments]
    readable = len(names) <= _MOST_PROGRAM_NAMES
    if readable and all(
        can_have_data(name, words) for name in names for words in (arguments, filled)
    ):
        bases = [folder, *own]
        is_own_program = any(
            os.sep in command and _is_own_file(command, bases) for command in commands
        )
        data_of_words = _data_arguments(
            names,
            arguments,
            server,
            lambda text: _is_own_file(text, bases),
            is_own_program=is_own_program,
        )
        data_of_variables = {
            name: (path, place) for name, path, place in data_variables(variables, server)
        }

    values: list[tuple[str, tuple[str, str] | None]] = [(word, None) for word in commands]
    values += [(word, data_of_words.get(number)) for number, word in enumerate(arguments)]
    values += [(text, data_of_variables.get(name)) for name, text in variables.items()]
    data: list[tuple[str, str]] = []
    for value, as_data in values:
        for text in (value, value.partition("=")[2], *_BETWEEN.split(value)):
            if as_data is not None and text == as_data[0]:
                data.append(as_data)
            else:
                code.append(text)

    code_folders = dict.fromkeys([folder, *own])
    for text in dict.fromkeys(filter(None, code)):
        for base in code_folders:
            yield _Mention(base / _filled(text))

    for text, place in dict.fromkeys(data):
        # Paths start from the folder in which the server runs.
        for base in own or [folder]:
            yield _Mention(base / _filled(text), data_of=place)
        if own and os.path.lexists(folder / _filled(text)):
            yield _Mention(folder / _filled(text), data_of=place)


def _modules(arguments: list[str], environment: JSONObject) -> Iterator[str]:
    """Yield the files that Python might execute for `-m MODULE`."""
    for number, word in enumerate(arguments):
        option = _MODULE.fullmatch(word)
        if option is None:
            continue

        names = [option.group(1), *arguments[number + 1 : number + 2]]
        for name in names:
            inner = name.replace(".", "/")
            for at in (".", *_listed(environment, "PYTHONPATH")):
                yield from (
                    f"{at}/{inner}.py",
                    f"{at}/{inner}/__main__.py",
                    f"{at}/{inner}/__init__.py",
                )


def _program_names(programs: list[str], folder: Path) -> list[str]:
    """Return the names of a server's command.

    A command can have several names, because the name of a link can differ from the name of the
    interpreter that the link points to.
    """
    paths = [*programs, *(os.path.realpath(folder / _filled(program)) for program in programs)]
    return list(dict.fromkeys(map(program_name, paths)))


def _data_arguments(
    names: list[str],
    arguments: list[str],
    server: str,
    is_own_file: Callable[[str], bool],
    *,
    is_own_program: bool,
) -> dict[int, tuple[str, str]]:
    """Return (path, description of the place), keyed by argument number, for arguments that name
    data.

    An argument counts only if it names data under each of the command's names.
    """
    readings = [
        list(data_words(name, arguments, server, is_own_file, is_own_program=is_own_program))
        for name in names
    ]
    if not readings:
        return {}

    first, *others = readings
    return {
        number: (path, place)
        for number, path, place in first
        if all((number, path, place) in reading for reading in others)
    }


def _is_own_file(text: str, bases: list[Path]) -> bool:
    """Return whether a path can only refer to a file in the project.

    Args:
        text: the path.
        bases: the folders that the path can be relative to. The first folder is the project folder.
    """
    # The value of a variable is unknown until the server starts.
    if "$" in text or text.startswith("~"):
        return False
    paths = [base / text for base in bases]
    return any(path.is_file() for path in paths) and all(
        is_in_project(path, bases[0]) for path in paths
    )


def _listed(environment: JSONObject, name: str) -> list[str]:
    """Return the folders that a variable set by an entry lists, such as PATH."""
    return [
        folder or "."
        for text in _texts([environment.get(name)])
        for folder in text.split(os.pathsep)
    ]


def _texts(value: JSON) -> list[str]:
    """Return the strings in a list that can be used as paths."""
    texts: list[str] = []
    for entry in list_or_empty(value):
        try:
            if isinstance(entry, str) and b"\0" not in os.fsencode(entry):
                texts.append(entry)
        except UnicodeEncodeError:  # a lone half of a surrogate pair
            continue

    return texts


def _filled(text: str) -> str:
    """Expand the harmless variables and `~` in a path, as happens when a server starts. `$${`
    stands for `${`.
    """

    def value(match: re.Match[str]) -> str:
        if match.group().startswith("$$"):
            return match.group()[1:]
        if match.group(1) in HARMLESS:
            variable = os.environ.get(match.group(1))
        else:
            variable = None
        return variable or match.group(2) or ""

    return os.path.expanduser(_VARIABLE.sub(value, text))  # noqa: PTH111 - as above


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path, or the target that it links to, is inside a folder."""
    if Path(os.path.normpath(path)).is_relative_to(folder):
        return True
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118


def _shown(path: Path, folder: Path) -> str:
    # Do not resolve `..`, because after a link, it does not lead to the folder that the text
    # suggests.
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return str(path)


def _digest(path: Path, most: int) -> tuple[str, int] | None:
    """Return the SHA-256, in hex, and the size of a file, or None if the file does not exist."""
    try:
        with _opened(path) as (file, about):
            if not stat.S_ISREG(about.st_mode):
                return None
            if about.st_size > most:
                return _UNREADABLE, about.st_size
            return hashlib.file_digest(file, "sha256").hexdigest(), about.st_size
    except PermissionError:
        return _UNREADABLE, 0
    except (OSError, ValueError):
        return None


# -- the record of trusted files -------------------------------------------------------------------


_MOST_EARLIER: Final = 10
"""Maximum number of earlier contents of a project file that stay trusted."""

_MOST_EARLIER_FILES: Final = 2000
"""Maximum number of digests in all earlier contents together."""


@dataclass(frozen=True, slots=True)
class TrustedContent:
    """One version of a project file's content that a person has trusted.

    Attributes:
        digests: the digests of all covered files; see `ProjectFile.covered`.
        data: the paths of the files that the person confirmed as data.
        at: the time, in seconds since 1970.
    """

    digests: Mapping[str, str]
    data: frozenset[str]
    at: float


@dataclass(frozen=True, slots=True)
class Trusted:
    """A person's trust in one project file.

    Attributes:
        digests: the digests of all covered files; see `ProjectFile.covered`. This mapping is empty
            if the person allowed only variables.
        data: the paths of the files that the person confirmed as data.
        variables: the environment variables that the file is allowed to name.
        at: the time, in seconds since 1970.
        earlier: contents that the person trusted before, newest first. If the file returns to one
            of these contents, for example on another branch, it is trusted.
    """

    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: frozenset[str] = frozenset()
    data: frozenset[str] = frozenset()
    at: float = 0.0
    earlier: tuple[TrustedContent, ...] = ()

    @property
    def contents(self) -> tuple[TrustedContent, ...]:
        """All trusted contents, newest first."""
        if not self.digests:
            return self.earlier
        return (TrustedContent(self.digests, self.data, self.at), *self.earlier)

    def with_content(self, content: TrustedContent) -> Trusted:
        """Return a copy of the trust with `content` added as the newest."""
        earlier: list[TrustedContent] = []
        files = 0
        for other in self.contents:
            files += len(other.digests)
            is_same = other.digests == content.digests and other.data == content.data
            if not is_same and files <= _MOST_EARLIER_FILES:
                earlier.append(other)

        return Trusted(
            content.digests,
            self.variables,
            content.data,
            content.at,
            tuple(earlier[:_MOST_EARLIER]),
        )


def trust_path() -> Path:
    """Return the path of `trust.json`."""
    return platformdirs.user_config_path("ideabridge") / "trust.json"


def read_trusted() -> tuple[dict[str, Trusted], str | None]:
    """Return the trust in each project file, keyed by path, and the problem with `trust.json`, if
    any.
    """
    path = trust_path()
    try:
        data = read_own(path, 4 * MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}, None
    except TrustError as error:
        return {}, str(error)
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror or error}"

    try:
        document = cast("dict[str, Any]", json.loads(data))
        if document["version"] != 1:
            raise ValueError("version")
        return {
            str(key): _from_json(entry)
            for key, entry in cast("dict[str, Any]", document["files"]).items()
        }, None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return (
            {},
            (
                f"{path} was not written by ideabridge, so ideabridge trusts nothing; remove the "
                "file and trust your files again"
            ),
        )


def last_trusted(file: Path) -> float | None:
    """Return when a person last trusted any version of a project file, or None if never.

    The time is in seconds since 1970.
    """
    trusted = read_trusted()[0].get(_key(file.absolute()))
    return trusted.contents[0].at if trusted is not None and trusted.contents else None


def _from_json(value: Any) -> Trusted:
    content = _content_from_json(value)
    return Trusted(
        content.digests,
        frozenset(map(str, value["variables"])),
        content.data,
        content.at,
        tuple(map(_content_from_json, value.get("earlier", ()))),
    )


def _content_from_json(value: Any) -> TrustedContent:
    digests = {str(path): str(digest) for path, digest in value["digests"].items()}
    # Earlier versions wrote no data files, because their trust covers every named file.
    data = frozenset(map(str, value.get("data", ())))
    return TrustedContent(digests, data, float(value["at"]))


def _key(file: Path) -> str:
    """Return the path with the links in its folder resolved. If the file itself is a link, this
    link is not followed.
    """
    return str(Path(os.path.realpath(file.parent)) / file.name)


def contains_home(folder: Path) -> bool:
    """Return whether a folder is the home folder or contains it. Such a folder is not a project."""
    # `Path.home` would raise an error for a user without a home folder.
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    return Path(home).is_relative_to(os.path.realpath(folder))


def is_project_file(file: Path, folder: Path) -> bool:
    """Return whether a configuration file, or the target that it links to, is inside a
    project folder.

    A folder that contains the home folder is not a project, and the user's configuration folder is
    not part of one.
    """
    if contains_home(folder):
        return False
    return _is_inside(file, folder) and not _is_inside(
        file, platformdirs.user_config_path("ideabridge")
    )


def repository_of(folder: Path) -> Path | None:
    """Return the root of the working copy that contains a folder, or None."""
    real = Path(os.path.realpath(folder))
    return next(
        (
            ancestor
            for ancestor in (real, *real.parents)
            if any(os.path.lexists(ancestor / marker) for marker in _KEPT)
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class ProjectTrust:
    """The trust in one project file.

    Attributes:
        found: the current content of the file.
        before: the trust that a person has stored for the file, or None.
        problem: the problem with `trust.json`, or None.
    """

    found: ProjectFile
    before: Trusted | None = None
    problem: str | None = None

    @property
    def is_trusted(self) -> bool:
        """True if a person has trusted exactly this content, now or earlier."""
        return self.trusted_content is not None

    @property
    def trusted_content(self) -> TrustedContent | None:
        """The trusted content that matches the file's current content, or None."""
        if self.before is None:
            return None

        for content in self.before.contents:
            if not content.data <= self.found.data_files.keys():
                continue
            if dict(content.digests) == self.found.covered(content.data):
                return content
        return None

    @property
    def data(self) -> frozenset[str]:
        """The paths of the files that the person confirmed as data and that can still be data."""
        trusted = self.trusted_content or self.before
        if trusted is None:
            return frozenset()
        return trusted.data & self.found.data_files.keys()

    @property
    def _covered(self) -> dict[str, str]:
        return self.found.covered(self.data)

    @property
    def variables(self) -> Variables:
        """The variables that the file is allowed to name."""
        return Variables(
            self.found.file, self.before.variables if self.before is not None else frozenset()
        )

    @property
    def changed(self) -> list[tuple[str, str]]:
        """Each file that differs from what was trusted, as (path, how it differs): `changed`,
        `new`, `gone` or `not data`.

        `not data`: the file was confirmed as data, but might now be code.
        """
        if self.before is None or not self.before.digests or self.is_trusted:
            return []

        before = dict(self.before.digests)
        now = self._covered
        for path in self.before.data - self.data:
            before[path] = _NOT_DATA
            now[path] = ""

        paths = sorted(
            before.keys() | now.keys(), key=lambda path: (path != self.found.file.name, path)
        )
        changes: list[tuple[str, str]] = []
        for path in paths:
            if before.get(path) != now.get(path):
                changes.append((path, _change_of(before.get(path), now.get(path))))

        return changes

    def snapshots(self) -> tuple[Snapshot, Snapshot] | None:
        """Return snapshots, without secrets, of the file as last trusted and as it is now.

        Return None if nobody has trusted the file, or if no snapshot was kept.
        """
        if self.before is None:
            return None
        before = _read_snapshot(self.found.file)
        if before is None or before.digests != self.before.digests:
            return None
        return before, _snapshot(self.found, self._covered)


def _change_of(before: str | None, now: str | None) -> str:
    if before is None:
        return "new"
    if now is None:
        return _GONE
    return _NOT_DATA if before == _NOT_DATA else "changed"


def project_trust(project_file: ProjectFile) -> ProjectTrust:
    """Look up whether a project file is trusted."""
    trusted, problem = read_trusted()
    return ProjectTrust(project_file, trusted.get(_key(project_file.file)), problem)


def is_trusted(file: Path) -> bool:
    """Return whether a person has trusted exactly the current content of a project file.

    Raises:
        TrustError, OSError: as for `look_at`.
    """
    return was_trusted(file) and project_trust(look_at(file)).is_trusted


def was_trusted(file: Path) -> bool:
    """Return whether a person has ever trusted a project file.

    If not, the files that it names need not be read.
    """
    before = read_trusted()[0].get(_key(file.absolute()))
    return before is not None and bool(before.digests)


def may_be_trusted(file: Path) -> bool:
    """Return whether a program that changes a project file is allowed to trust it afterwards.

    It is if the file is trusted now, or does not exist.
    """
    try:
        return not os.path.lexists(file) or is_trusted(file)
    except (TrustError, OSError):
        return False


def look_at(file: Path) -> ProjectFile:
    """Read a project file, without checking its content.

    Raises:
        TrustError: the file is not JSON, or as for `read_own` and `project_file`.
        OSError: the file cannot be read.
    """
    data = read_own(file)
    place = file.absolute()
    return project_file(place, data, _members(file, data))


def _members(file: Path, data: bytes) -> JSONObject:
    """Return the content of a project file in ideabridge's keys. Raise `TrustError` if it is not
    JSON.
    """
    # Import this only when it is needed, because most uses of this file do not decode anything.
    from ideabridge.bridge.file_content import decode_file_content

    try:
        document = decode_file_content(
            data, what=str(file), max_bytes=MAX_FILE_BYTES, workspace=file.absolute().parent
        )
    except IdeabridgeError as error:
        raise TrustError(str(error)) from None
    return document.content


def keep_trusted(project_file: ProjectFile, confirmed: Collection[str] = ()) -> None:
    """Store that a person trusts exactly this content. The variables that the file can name do not
    change.

    Args:
        project_file: the file, with the content that was read.
        confirmed: the paths of the data files that the person confirmed as data.

    Raises:
        TrustError: one of the data files cannot be data, another file is too large, or trust cannot
            be stored.
    """
    data = frozenset(confirmed)
    for path in sorted(data - project_file.data_files.keys()):
        raise TrustError(f"{path} cannot be trusted as data: {_why_not_data(project_file)}")

    covered = project_file.covered(data)
    for path in sorted(project_file.data_files.keys() & covered.keys()):
        if covered[path] == _UNREADABLE:
            raise TrustError(
                f"{path} cannot be read or is too large, so it can be trusted only as data"
            )

    content = TrustedContent(covered, data, time.time())
    _change(project_file.file, lambda before: (before or Trusted()).with_content(content))
    _save_snapshot(project_file, covered)


def _snapshot(project_file: ProjectFile, covered: Mapping[str, str]) -> Snapshot:
    def read(path: str) -> bytes | None:
        if path == project_file.file.name:
            return None
        try:
            return read_plain(project_file.file.parent / path, MAX_TEXT_BYTES)
        except (OSError, TrustError):
            return None

    return snapshot_of(_members(project_file.file, project_file.data), covered, read)


def _save_snapshot(project_file: ProjectFile, covered: Mapping[str, str]) -> None:
    """Store a snapshot of a file.

    Without the snapshot, the next question about the file shows its whole content.
    """
    path = snapshot_path(_key(project_file.file))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_own(path, json.dumps(_snapshot(project_file, covered).to_json()))
    except (OSError, TrustError, ValueError, RecursionError) as error:
        logger.warning("%s: the trusted version cannot be stored for comparison: %s", path, error)


def _read_snapshot(file: Path) -> Snapshot | None:
    try:
        return Snapshot.from_json(
            json.loads(read_own(snapshot_path(_key(file)), 4 * MAX_FILE_BYTES))
        )
    except (OSError, TrustError, ValueError, RecursionError):
        return None


def _why_not_data(project_file: ProjectFile) -> str:
    possible = ", ".join(project_file.data_files) or "none"
    return (
        "it may be code or a configuration, or no server names it as data. Files "
        f"that can be data: {possible}"
    )


def trust_file(file: Path) -> None:
    """Trust the current content of a project file. Only a program that has itself written the file
    is allowed to call this.

    Raises:
        TrustError: the file is not JSON, others can write to it, or trust cannot be stored.
        OSError: the file cannot be read.
    """
    standing = project_trust(look_at(file.absolute()))
    keep_trusted(standing.found, standing.data)


def allow_variables(file: Path, names: frozenset[str]) -> None:
    """Let a project file name environment variables.

    Raises:
        TrustError: a name is not a variable name, or the permission cannot be saved.
    """
    for name in sorted(names):
        if not _NAME.fullmatch(name):
            raise TrustError(f"{name[:80]!r} is not a valid name for an environment variable")

    def change(before: Trusted | None) -> Trusted:
        trusted = before or Trusted()
        return replace(trusted, variables=trusted.variables | names, at=time.time())

    _change(file, change)


def forget(file: Path) -> bool:
    """Revoke the trust in a project file and its permission to name variables. Return whether there
    was any trust or permission to revoke.

    Raises:
        TrustError: the change cannot be saved.
    """
    snapshot_path(_key(file.absolute())).unlink(missing_ok=True)
    return _change(file, lambda one: None)


def _change(file: Path, change: Callable[[Trusted | None], Trusted | None]) -> bool:
    path = trust_path()
    key = _key(file.absolute())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(path.with_name(f"{path.name}.lock")):
            trusted, problem = read_trusted()
            if problem is not None:
                raise TrustError(problem)

            before = trusted.pop(key, None)
            after = None
            after = change(before)
            if after is not None:
                trusted[key] = after

            if after != before:
                _write(path, trusted)

            return before is not None
    except OSError as error:
        raise TrustError(f"{path} cannot be written to: {error.strerror or error}") from None


def _write(path: Path, trusted: Mapping[str, Trusted]) -> None:
    files = {
        key: {
            **_content_to_json(TrustedContent(entry.digests, entry.data, entry.at)),
            "variables": sorted(entry.variables),
            "earlier": list(map(_content_to_json, entry.earlier)),
        }
        for key, entry in sorted(trusted.items())
    }
    write_own(path, json.dumps({"version": 1, "files": files}, indent=1))


def _content_to_json(content: TrustedContent) -> JSONObject:
    data: list[JSON] = [*sorted(content.data)]
    return {"digests": dict(content.digests), "data": data, "at": content.at}


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock, so that processes that change the same files take turns. `path` is the lock
    file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- variables and messages ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables that a project file is allowed to name.

    Attributes:
        file: the project file.
        names: the variables that a person has allowed.
    """

    file: Path
    names: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in HARMLESS or name in self.names

    def refusal(self, *names: str) -> str:
        """Return a sentence about why variables are not expanded, and which command allows them
        from any folder.
        """
        words = [word for name in names for word in ("--env", name)]
        are = "is" if len(names) == 1 else "are"
        pronoun = "it" if len(names) == 1 else "them"
        command = trust_command(self.file, *words, anywhere=True)
        refused = f"{variables_text(names)} {are} not allowed in {self.file}"
        return f"{refused}; to allow {pronoun}: {command}"


def variables_text(names: Sequence[str]) -> str:
    """Return variables as the subject of a sentence: `the variable A`, `the variables A and B`."""
    if len(names) == 1:
        return f"the variable {names[0]}"
    *first, last = names
    return f"the variables {', '.join(first)} and {last}"


def trust_command(file: Path, *words: str, anywhere: bool = False) -> str:
    """Return the command, to be typed in the current folder, that trusts a project file.

    Args:
        file: the project file.
        words: options of the command.
        anywhere: whether the command names the folder even if it is the current folder.
    """
    command = ["ideabridge", "trust", *words]
    if file.name != FILE_NAME:
        command += ["--config", str(file)]
    elif anywhere or file.parent != Path.cwd():
        command.append(str(file.parent))
    return shell_words(command)


def shell_words(words: Sequence[str]) -> str:
    """Return a command line that a person can copy into a shell, on one line and without hidden
    characters.
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word for a shell, on one line and without hidden characters. The escapes are those
    that bash and zsh understand.
    """
    if visible(word) == word:
        return shlex.quote(word)

    quoted = list[str]()
    for character in word:
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
            quoted.append(f"\\x{code - 0xDC00:02x}")
        elif visible(character) != character:
            quoted.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
        else:
            quoted.append(f"\\{character}" if character in "\\'" else character)

    return f"$'{''.join(quoted)}'"


_MOST_PROBLEMS: Final = 20
"""Maximum number of problems that are shown for an unused project file."""


@dataclass(frozen=True, slots=True)
class Untrusted:
    """A project file that is not used.

    Attributes:
        file: the project file.
        changed: the paths of the files that differ from their trusted content. The list is empty if
            no content was trusted.
        problem: the problem with `trust.json`, or None.
        servers: the names of the servers in the file.
        keys: the top-level keys of the file.
        problems: why the file could not be used even if it were trusted, or () if it could be used.
        reason: the problems in a few words, none of which come from the file.
        is_readable: whether the top-level keys of the file are known.
        was_trusted: whether a person has trusted an earlier content of the file.
    """

    file: Path
    changed: tuple[str, ...] = ()
    problem: str | None = None
    servers: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    reason: str = ""
    is_readable: bool = True
    was_trusted: bool = False

    def told(self, *, anywhere: bool = True) -> str:
        """Return a message for the command line: why the file is not used, and which command trusts
        it.

        Args:
            anywhere: whether the message might be read in another folder, for example in a host's
                log.
        """
        if self.problems:
            lines = [f"{visible(str(self.file))} is not used: it {self.reason}"]
            further = [problem for problem in self.problems if self.reason not in problem]
            return "\n".join([*lines, *map(visible, further[:_MOST_PROBLEMS])])

        reason = "nobody has trusted it"
        if self.changed:
            # A file can have any name. `visible` removes line endings, so that no name can pose as
            # a line from ideabridge.
            reason = f"{visible(joined(self.changed, 3))} changed since it was trusted"

        problem = f"{self.problem}\n" if self.problem else ""
        command = trust_command(self.file, anywhere=anywhere)
        return (
            f"{problem}{visible(str(self.file))} is not used: {reason}. To review and trust it: "
            f"{command}"
        )

    def told_to_hosts(self, *, keeps_earlier: bool = False) -> str:
        """Return a message for a model about what is missing and what the user can do. It reveals
        only the number of servers in the file, because nobody has reviewed their names yet, and a
        name could be a whole sentence.

        Args:
            keeps_earlier: whether an earlier, trusted version of the file is in force.
        """
        consequence = "so its earlier content stays in force"
        if self.problems:
            if not keeps_earlier:
                consequence = "so its servers and tools are missing"
            return (
                f"The project file {visible(str(self.file))[:400]} {self.reason} and is not used, "
                f"{consequence}. Only the user can correct it; `ideabridge doctor`, run in its "
                "folder, says what is wrong. A corrected file takes effect at once."
            )

        command = trust_command(self.file, anywhere=True)
        # Leave a long command out instead of truncating it, because a truncated one could name a
        # different folder.
        if len(command) <= 400:
            shown = f"`{command}` in a terminal"
        else:
            shown = "`ideabridge trust`, in the project's folder"

        reason = "is not trusted and not used"
        if self.changed:
            reason = (
                "is not used, because it or a file that it names has changed since the user "
                "trusted it"
            )

        if self.problem:
            reason = "is not used, because the file that says what the user trusts cannot be used"

        if not keeps_earlier:
            count = len(self.servers)
            servers = ""
            if count:
                servers = f"its {counted(count, 'server')} and "
            consequence = f"so {servers}its tools are missing"

        return (
            f"The project's ideabridge.json {reason}, {consequence}. Only the user can trust it, "
            f"with {shown}. Then it takes effect at once."
        )
