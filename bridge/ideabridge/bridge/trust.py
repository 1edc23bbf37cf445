"""Trust: which project files a person has trusted, by their content.

A project file (`ideabridge.json` in a folder) can start commands and import Python files, so it is used only after a
person has trusted exactly this content. `trust.json` in the user's configuration folder keeps what was trusted: for
each project file the SHA-256 of the file and of every file that it names, and the environment variables it may name.

The shell's completion asks at each press of a key, so this module imports little: the standard library,
platformdirs, and the two modules below.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import platformdirs

from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible

if TYPE_CHECKING:
    from ideabridge.tools.encoding import JSON, JSONObject

FILE_NAME: Final = "ideabridge.json"
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one project file, and of `trust.json` four times as many."""

MAX_NAMED_FILES: Final = 1000
MAX_NAMED_BYTES: Final = 256 * 1024 * 1024
MAX_NAMES: Final = 10_000
"""Words, each in each folder it may be relative to: so many are looked for."""

HARMLESS: Final = frozenset(
    {
        *("HOME", "LOGNAME", "USER", "USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "SHELL", "HOSTNAME"),
        *("PATH", "PATHEXT", "PWD", "TMPDIR", "TEMP", "TMP", "TZ", "TERM", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
        *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "WINDIR"),
    }
)
"""Variables that hold no secret: a project file may name them without being allowed to."""

_VARIABLE: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BETWEEN: Final = re.compile(r"[\s:;,=&|()<>'\"`]+")
"""What stands between names of files within a word: in a line for a shell, in a list of folders, in an address."""

_MODULE: Final = re.compile(r"-[A-Za-z]*?m(.*)", re.DOTALL)
"""Python's option for a module, alone or behind other letters, with the name or before it."""

_ENTRIES: Final = ("__main__.py", "index.js", "package.json")
"""What Python and Node start where a word names a folder."""

_KEPT: Final = (".git", ".hg", ".jj", ".svn")
"""What a working copy has at its top."""

_GONE: Final = "gone"
_UNREADABLE: Final = "unreadable"


class TrustError(IdeabridgeError):
    """A file that cannot be trusted as it is, or trust that cannot be kept. The message says why."""


# -- reading files ----------------------------------------------------------------------------------------------------


def read_own(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a file that nobody else may have written.

    Raises:
        TrustError: others may write it, its owner is neither the user nor root, or it is larger than `max_bytes`.
        OSError: it cannot be read.
    """
    with _opened(path) as (file, about):
        problem = _unsafe(about, path) if stat.S_ISREG(about.st_mode) else None
        if problem is not None:
            raise TrustError(f"{path}: is refused: {problem}")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TrustError(f"{path}: is larger than {max_bytes:,} bytes")
    return data


def write_own(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file in one step: readers, and a system that fails, see either the old content or all of `text`.

    Raises:
        OSError: it cannot be written.
    """
    import tempfile  # its import takes time, which commands that write nothing save

    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


@contextmanager
def _opened(path: Path) -> Generator[tuple[BufferedReader, os.stat_result]]:
    """A file, open, and what the system says of exactly this one.

    Raises:
        OSError: it cannot be opened, or is a folder.
    """
    # A pipe that nobody writes to must not hold us; one that somebody writes to (`<(...)`) is read to its end.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
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
    """Why others could have written a file; None: they could not, or the system has no such modes."""
    if sys.platform == "win32":
        return None
    if about.st_mode & stat.S_IWOTH:
        return f"every user of this machine may write it; run: chmod o-w {shlex.quote(str(path))}"
    if about.st_uid not in (os.geteuid(), 0):
        return f"its owner is user {about.st_uid}, neither you ({os.geteuid()}) nor root; copy it or change its owner"
    return None


# -- what a project file names ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A project file as it is now: its bytes, and the digests of the files it names.

    Attributes:
        file: where it is, absolute.
        data: its bytes. Whatever is read from it is parsed from these.
        digests: SHA-256 in hex by path, of itself and of every file it names: below its folder as a relative path with
            `/`, elsewhere (tool files only) as an absolute one.
    """

    file: Path
    data: bytes
    digests: Mapping[str, str]

    @property
    def hash(self) -> str:
        """SHA-256 over all digests, in hex: what a person trusts."""
        return hashlib.sha256(json.dumps(sorted(self.digests.items())).encode()).hexdigest()

    def digest_of(self, path: str) -> str:
        """The digest of a tool file that it names; "": there was none when the project file was read."""
        return self.digests.get(_told(Path(path), self.file.parent), "")


def project_file(file: Path, data: bytes, content: JSON) -> ProjectFile:
    """A project file with the digests of what it names.

    Named is every file in `tools`, wherever it is; and every file inside the folder that stands in a server's
    `command`, `args` (also `--flag=FILE`, `-m MODULE` and within a line for a shell) or `env`, relative to the folder
    or to the server's `cwd`; what Python and Node start in a folder that is named so; and what `command` and MODULE
    stand for in the server's own PATH and PYTHONPATH. Of a link the content of its target counts. What these files load
    is not covered.

    Args:
        file: where it is.
        data: its bytes.
        content: the same, decoded.

    Raises:
        TrustError: it names more files, or files of more bytes, than are looked at.
    """
    folder = file.parent
    digests = {file.name: hashlib.sha256(data).hexdigest()}
    left = MAX_NAMED_BYTES
    seen: set[Path] = set()
    for number, (path, anywhere) in enumerate(_named(content, folder)):
        if number > MAX_NAMES:
            raise TrustError(f"{file}: has more than {MAX_NAMES:,} words that may name files; nobody can look at these")
        # Most words are no files, and that takes the least time to see.
        if path in seen or not os.path.lexists(path) or not (anywhere or _is_inside(path, folder)):
            continue
        seen.add(path)
        found = _digest(path, left)
        if found is None:
            continue
        digests[_told(path, folder)], size = found
        left -= size
        if left < 0 or len(digests) > MAX_NAMED_FILES:
            raise TrustError(
                f"{file}: names more files than can be trusted: at most {MAX_NAMED_FILES:,} of"
                f" {MAX_NAMED_BYTES // 1024**2} MiB together"
            )
    return ProjectFile(file, data, digests)


def _named(content: JSON, folder: Path) -> Iterator[tuple[Path, bool]]:
    """Every path that the content may name, and whether it counts outside the folder too."""
    members: JSONObject = content if isinstance(content, dict) else {}
    for text in _texts(members.get("tools")):
        yield folder / os.path.expanduser(text), True  # noqa: PTH111 - Path.expanduser raises where there is no home
    servers = members.get("mcpServers")
    entries = list(servers.values()) if isinstance(servers, dict) else []
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        given = entry.get("env")
        environment: JSONObject = given if isinstance(given, dict) else {}
        commands, arguments = _texts([entry.get("command")]), _texts(entry.get("args"))
        found = [*commands, *(f"{at}/{command}" for at in _listed(environment, "PATH") for command in commands)]
        for number, word in enumerate(arguments):
            option = _MODULE.fullmatch(word)
            for name in (option.group(1), *arguments[number + 1 : number + 2]) if option is not None else ():
                inner = name.replace(".", "/")
                for at in (".", *_listed(environment, "PYTHONPATH")):
                    found += [f"{at}/{inner}.py", f"{at}/{inner}/__main__.py", f"{at}/{inner}/__init__.py"]
        for word in (*commands, *arguments):
            # `-r./FILE`; and what stands for a file to Python and Node.
            found += [word, word[2:], f"{word}.js", *(f"{word}/{inner}" for inner in _ENTRIES)]
        for word in (*commands, *arguments, *_texts(list(environment.values()))):
            found += [word, word.partition("=")[2], *_BETWEEN.split(word)]
        bases = dict.fromkeys([folder, *(folder / _filled(text) for text in _texts([entry.get("cwd")]))])
        for text in dict.fromkeys(found):
            for base in bases if text else ():
                yield base / _filled(text), False


def _listed(environment: JSONObject, name: str) -> list[str]:
    """The folders in a variable that an entry sets, such as PATH."""
    return [folder or "." for text in _texts([environment.get(name)]) for folder in text.split(os.pathsep)]


def _texts(value: JSON) -> list[str]:
    """The texts of a list that a path can have."""
    found: list[str] = []
    for one in value if isinstance(value, list) else []:
        try:
            if isinstance(one, str) and b"\0" not in os.fsencode(one):
                found.append(one)
        except UnicodeEncodeError:  # half a surrogate pair
            continue
    return found


def _filled(text: str) -> str:
    """A path with the harmless variables and `~` filled in, as starting the server fills them in; `$${` is `${`."""

    def value(match: re.Match[str]) -> str:
        if match.group().startswith("$$"):
            return match.group()[1:]
        known = os.environ.get(match.group(1)) if match.group(1) in HARMLESS else None
        return known or match.group(2) or ""

    return os.path.expanduser(_VARIABLE.sub(value, text))  # noqa: PTH111 - as above


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, or what it leads to, is below a folder."""
    if Path(os.path.normpath(path)).is_relative_to(folder):
        return True
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118


def _told(path: Path, folder: Path) -> str:
    # `..` stays as it is: behind a link it leads elsewhere than the text says.
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def _digest(path: Path, most: int) -> tuple[str, int] | None:
    """(SHA-256 in hex, bytes) of a file; None: there is no file."""
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


# -- what was trusted -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trusted:
    """What a person has trusted.

    Attributes:
        digests: as in `ProjectFile`; empty: only variables were allowed.
        variables: the environment variables that the file may name.
        at: when, in seconds since 1970.
    """

    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: frozenset[str] = frozenset()
    at: float = 0.0


def trust_path() -> Path:
    """Where it is kept what was trusted."""
    return platformdirs.user_config_path("ideabridge") / "trust.json"


def read_trusted() -> tuple[dict[str, Trusted], str | None]:
    """(what was trusted, by the path of the project file; what is wrong with `trust.json`: then nothing is trusted)."""
    path = trust_path()
    try:
        data = read_own(path, 4 * MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}, None
    except TrustError as error:
        return {}, str(error)
    except OSError as error:
        return {}, f"{path}: cannot be read: {error.strerror or error}"
    try:
        held = cast("dict[str, Any]", json.loads(data))
        if held["version"] != 1:
            raise ValueError("version")
        return {str(key): _from_json(one) for key, one in cast("dict[str, Any]", held["files"]).items()}, None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, f"{path}: is not what ideabridge wrote there, so it trusts nothing; remove it, and trust files again"


def _from_json(value: Any) -> Trusted:
    digests = {str(path): str(digest) for path, digest in value["digests"].items()}
    return Trusted(digests, frozenset(map(str, value["variables"])), float(value["at"]))


def _key(file: Path) -> str:
    """By the folder with its links resolved, and the name of the file in it: a link there is content."""
    return str(Path(os.path.realpath(file.parent)) / file.name)


def is_project_file(file: Path, folder: Path) -> bool:
    """Whether a configuration file belongs to a project folder: it, or what it leads to, is inside.

    A folder that holds the home folder is no project; the user's own configuration folder belongs to the user.
    """
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is none
    if Path(home).is_relative_to(os.path.realpath(folder)):
        return False
    return _is_inside(file, folder) and not _is_inside(file, platformdirs.user_config_path("ideabridge"))


def repository_of(folder: Path) -> Path | None:
    """The working copy that a folder is in; None: it is in none."""
    real = Path(os.path.realpath(folder))
    return next((one for one in (real, *real.parents) if any(os.path.lexists(one / kept) for kept in _KEPT)), None)


@dataclass(frozen=True, slots=True)
class ProjectTrust:
    """How a project file stands.

    Attributes:
        found: the file as it is now.
        before: what was trusted of it; None: nothing.
        problem: what is wrong with `trust.json`; None: nothing.
    """

    found: ProjectFile
    before: Trusted | None = None
    problem: str | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether exactly this content was trusted."""
        return self.before is not None and dict(self.before.digests) == dict(self.found.digests)

    @property
    def variables(self) -> Variables:
        """The variables that the file may name."""
        return Variables(self.found.file, self.before.variables if self.before is not None else frozenset())

    @property
    def changed(self) -> list[tuple[str, str]]:
        """(path, `changed`, `new` or `gone`) of each file that differs from what was trusted."""
        before = dict(self.before.digests) if self.before is not None else dict[str, str]()
        if not before:
            return []
        now = self.found.digests
        paths = sorted(before.keys() | now.keys(), key=lambda path: (path != self.found.file.name, path))
        found: list[tuple[str, str]] = []
        for path in paths:
            if before.get(path) != now.get(path):
                found.append((path, "new" if path not in before else _GONE if path not in now else "changed"))
        return found


def project_trust(found: ProjectFile) -> ProjectTrust:
    """How a project file stands."""
    trusted, problem = read_trusted()
    return ProjectTrust(found, trusted.get(_key(found.file)), problem)


def is_trusted(file: Path) -> bool:
    """Whether a person has trusted exactly what a project file holds now.

    Raises:
        TrustError, OSError: as `look_at`.
    """
    return was_trusted(file) and project_trust(look_at(file)).is_trusted


def was_trusted(file: Path) -> bool:
    """Whether a person has trusted a project file once: where not, what it names need not be read."""
    before = read_trusted()[0].get(_key(file.absolute()))
    return before is not None and bool(before.digests)


def may_be_trusted(file: Path) -> bool:
    """Whether we may trust a project file after we have changed it: it is trusted as it is now, or does not exist."""
    try:
        return not os.path.lexists(file) or is_trusted(file)
    except (TrustError, OSError):
        return False


def look_at(file: Path) -> ProjectFile:
    """A project file as it is now. Its content is not checked.

    Raises:
        TrustError: it is no JSON, or see `read_own` and `project_file`.
        OSError: it cannot be read.
    """
    data = read_own(file)
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise TrustError(f"{file}: is not JSON") from None
    return project_file(file.absolute(), data, content)


def keep_trusted(found: ProjectFile) -> None:
    """Keep that a person trusts exactly this content. The variables that the file may name stay.

    Raises:
        TrustError: it cannot be kept.
    """
    _change(found.file, lambda one: Trusted(found.digests, one.variables if one else frozenset(), time.time()))


def trust_file(file: Path) -> None:
    """Trust a project file as it is now: for programs that wrote it themselves.

    Raises:
        TrustError: it is no JSON, others may write it, or trust cannot be kept.
        OSError: it cannot be read.
    """
    keep_trusted(look_at(file.absolute()))


def allow_variables(file: Path, names: frozenset[str]) -> None:
    """Let a project file name environment variables.

    Raises:
        TrustError: a name that is none, or it cannot be kept.
    """
    for name in sorted(names):
        if not _NAME.fullmatch(name):
            raise TrustError(f"{name[:80]!r} is not the name of an environment variable")
    before = Trusted()
    _change(file, lambda one: Trusted((one or before).digests, (one or before).variables | names, time.time()))


def forget(file: Path) -> bool:
    """Trust a project file no more, and take back its variables. Returns whether there was anything to take back.

    Raises:
        TrustError: it cannot be kept.
    """
    return _change(file, lambda one: None)


def _change(file: Path, change: Callable[[Trusted | None], Trusted | None]) -> bool:
    path, key = trust_path(), _key(file.absolute())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(path.with_name(f"{path.name}.lock")):
            trusted, problem = read_trusted()
            if problem is not None:
                raise TrustError(problem)
            before, after = trusted.pop(key, None), None
            after = change(before)
            if after is not None:
                trusted[key] = after
            if after != before:
                _write(path, trusted)
            return before is not None
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror or error}") from None


def _write(path: Path, trusted: Mapping[str, Trusted]) -> None:
    files = {
        key: {"digests": dict(one.digests), "variables": sorted(one.variables), "at": one.at}
        for key, one in sorted(trusted.items())
    }
    write_own(path, json.dumps({"version": 1, "files": files}, indent=1))


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Alone among all processes that change what is trusted."""
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


# -- what is told -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables that a project file may name.

    Attributes:
        file: the project file.
        names: those a person allowed.
    """

    file: Path
    names: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in HARMLESS or name in self.names

    def refusal(self, name: str) -> str:
        """Why a variable is not filled in, and the command that allows it."""
        return (
            f"the variable {name} is not allowed in {self.file}; to allow it: {trust_command(self.file, '--env', name)}"
        )


def trust_command(file: Path, *words: str, anywhere: bool = False) -> str:
    """The command that trusts a project file, as it is typed in the current folder.

    Args:
        file: the project file.
        words: options of the command.
        anywhere: name the folder also where it is the current one.
    """
    found = ["ideabridge", "trust", *words]
    if file.name != FILE_NAME:
        found += ["--config", str(file)]
    elif anywhere or file.parent != Path.cwd():
        found.append(str(file.parent))
    return " ".join(map(_quoted, found))


def _quoted(word: str) -> str:
    """A word for a shell, in one line and without hidden characters; bash and zsh read the escapes as what they are."""
    if visible(word) == word:
        return shlex.quote(word)
    found = list[str]()
    for one in word:
        code = ord(one)
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
            found.append(f"\\x{code - 0xDC00:02x}")
        elif visible(one) != one:
            found.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
        else:
            found.append(f"\\{one}" if one in "\\'" else one)
    return f"$'{''.join(found)}'"


@dataclass(frozen=True, slots=True)
class Untrusted:
    """A project file that is not used.

    Attributes:
        file: the project file.
        changed: the files that differ from what was trusted, by path; empty: nothing was trusted.
        problem: what is wrong with `trust.json`; None: nothing.
    """

    file: Path
    changed: tuple[str, ...] = ()
    problem: str | None = None

    def told(self, *, anywhere: bool = True) -> str:
        """For a person at the command line: why it is not used, and the exact command that trusts it.

        Args:
            anywhere: whether it may be read in another folder than the current one, as in a host's log.
        """
        why = "nobody has trusted it"
        if self.changed:
            more = f" and {len(self.changed) - 3} more" if len(self.changed) > 3 else ""
            # What files are called is not ours: no name begins a line of its own.
            why = f"{visible(', '.join(self.changed[:3]))}{more} changed since it was trusted"
        problem = f"{self.problem}\n" if self.problem else ""
        command = trust_command(self.file, anywhere=anywhere)
        return f"{problem}{visible(str(self.file))} is not used: {why}. To look at it and trust it: {command}"

    def told_to_hosts(self) -> str:
        """For a model: what is missing, and what the user can do. Nothing of the file stands in it."""
        command = trust_command(self.file, anywhere=True)
        # A command that is cut would name another folder.
        shown = f"`{command}` in a terminal" if len(command) <= 400 else "`ideabridge trust`, in the project's folder"
        return (
            "The project's ideabridge.json is not trusted and not used, so its servers and tools are missing. Only the"
            f" user decides about that: with {shown}. Then this server must be restarted."
        )
