"""Document: one JSON file of a host, read leniently and written so that everything else in it stays.

Such a file is not ours: it is read with the bounds of a configuration, but what is odd in it (half a surrogate
pair in somebody's history) is kept, not refused.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ideabridge.server.hosts.host import CommentedHostFileError, HostFileError
from ideabridge.tools.encoding import JSON, JSONObject

MAX_BYTES: Final = 64 * 1024 * 1024
"""Hosts keep their history in the same file."""

_STRING_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """A host's file as it stands.

    Attributes:
        path: where it is.
        text: its text; None: there is no such file.
        content: what it holds; an empty object where there is no file.
        strict: whether it is plain JSON, so that writing it again loses nothing.
    """

    path: Path
    text: str | None
    content: JSONObject
    strict: bool = True

    def write(self, content: JSONObject, *, keep: bool = False) -> Path | None:
        """Put `content` into the file's place, in one step, in the indentation it had; returns the backup's path.

        The backup (`NAME.bak`) holds the file as it was; None: there was none. A link stays a link, and the file's
        permissions stay; a new file is for its owner only, since such files hold tokens.

        Args:
            content: what the file shall hold.
            keep: give the backup a name that is free (`NAME.1.bak`), so that no later backup takes its place.

        Raises:
            CommentedHostFileError: the file has comments, which would be lost.
            HostFileError: it cannot be written, or somebody changed it meanwhile.
        """
        if not self.strict:
            raise CommentedHostFileError(f"{self.path}: has comments or trailing commas, which writing would lose")
        target = Path(os.path.realpath(self.path))
        backup: Path | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = stat.S_IMODE(target.stat().st_mode) if self.text is not None else 0o600
            if self.text is not None:
                backup = _free(target) if keep else target.with_name(target.name + ".bak")
                _replace(backup, self.text, mode)
            now = target.read_text(encoding="utf-8-sig") if target.exists() else None
            if now != self.text:
                raise HostFileError(f"{self.path}: was changed by another program just now; run the command again")
            _replace(target, _render(content, self.text), mode)
        except OSError as error:
            raise HostFileError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        return backup


def _free(target: Path) -> Path:
    """The first name for a backup that nothing has yet."""
    return next(
        path
        for path in (target.with_name(f"{target.name}.{number}.bak") for number in itertools.count(1))
        if not path.exists()
    )


def read_document(path: Path) -> Document:
    """Read a host's file; comments and trailing commas are understood (VS Code's files may have them).

    Raises:
        HostFileError: it cannot be read, is not JSON, or is no object; line and column are told.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise HostFileError(f"{path}: is larger than {MAX_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Document(path, None, {})
    except UnicodeDecodeError:
        raise HostFileError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise HostFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not text.strip():
        return Document(path, text, {})
    strict = True
    try:
        content = _parse(text)
    except ValueError:
        strict = False
        try:
            content = _parse(_plain(text))
        except (ValueError, RecursionError) as error:
            raise HostFileError(f"{path}: is not JSON: {_where(error)}") from None
    except RecursionError:
        raise HostFileError(f"{path}: nests too deeply") from None
    if not isinstance(content, dict):
        raise HostFileError(f"{path}: expected an object")
    return Document(path, text, content, strict)


def _parse(text: str) -> JSON:
    return cast("JSON", json.loads(text, parse_constant=_refuse))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)


def _plain(text: str) -> str:
    """JSON with comments and trailing commas -> JSON, with every line and column where it was."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return _STRING_OR_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text))


def _render(content: JSONObject, before: str | None) -> str:
    found = _INDENT.search(before) if before else None
    indent: str | int = found.group(1) if found else 2
    try:
        text = json.dumps(content, indent=indent, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair cannot stand in UTF-8, but its escape can.
        text = json.dumps(content, indent=indent)
    return text if before is not None and before and not before.endswith("\n") else text + "\n"


def _replace(path: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
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
