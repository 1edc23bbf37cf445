"""The JSON files of hosts: reading them leniently, and changing a part of them without losing the rest.

A host's file may contain odd values, such as half of a surrogate pair in a recorded conversation. They are kept.
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
"""Some hosts keep recorded conversations in the same file."""

_STRING_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostDocument:
    """The content of a host's file.

    Attributes:
        path: the file.
        text: its text; None if the file does not exist.
        content: its content; empty if the file does not exist.
        strict: whether it is plain JSON, so that rewriting it loses nothing.
    """

    path: Path
    text: str | None
    content: JSONObject
    strict: bool = True

    def write(self, content: JSONObject, *, keep: bool = False) -> Path | None:
        """Replace the content in one step and return the path of the backup, or None if there was no file.

        The backup is `NAME.bak`. Indentation, permissions and a symbolic link are preserved. Only its owner can read
        a new file, because such files contain tokens.

        Args:
            content: the new content.
            keep: use a free name for the backup (`NAME.1.bak`), so that no later backup replaces it.

        Raises:
            CommentedHostFileError: the file has comments, which would be lost.
            HostFileError: it cannot be written, or another program changed it.
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
    names = (target.with_name(f"{target.name}.{number}.bak") for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def read_document(path: Path) -> HostDocument:
    """Read a host's file. Comments and trailing commas are allowed, as in VS Code's files.

    Raises:
        HostFileError: it cannot be read, or is not a JSON object; the message contains line and column.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise HostFileError(f"{path}: is larger than {MAX_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return HostDocument(path, None, {})
    except UnicodeDecodeError:
        raise HostFileError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise HostFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not text.strip():
        return HostDocument(path, text, {})
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
    return HostDocument(path, text, content, strict)


def _parse(text: str) -> JSON:
    return cast("JSON", json.loads(text, parse_constant=_refuse))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)


def _plain(text: str) -> str:
    """Replace comments and trailing commas by spaces; lines and columns stay the same."""

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
        # UTF-8 cannot represent half of a surrogate pair; its escape is ASCII.
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
