"""The world of the everyday tasks: a folder with files and git repositories, and an
SQLite database.

It is made and looked at directly, without ideabridge and without the servers that the tasks use. A
task says what it expects as an `Expectation`: what differs in the world afterwards, and what the
answer contains. Whatever it does not name must be as it was before, so a tool that writes into the
wrong project is found.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

Value = str | int | float | None
Row = tuple[Value, ...]

DATABASE = "office.sqlite"


@dataclass(frozen=True)
class Commit:
    """A commit to make: its message, its day (2026-03-01), and the files that it
    writes, by name.
    """

    message: str
    day: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Repository:
    """What a task can change of a repository: messages by branch (newest first), the branch in
    use, open changes.
    """

    branches: Mapping[str, tuple[str, ...]]
    head: str
    open_changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expectation:
    """What is to be after a task.

    files: texts by path below the folder of the world; None for a file that is gone. A line break
    at the end does not count. tables: all rows of a table, in any order. repositories: by path.
    answer: texts that the answer of a task that only reads contains, all of them; forbidden: texts
    that it does not contain.
    """

    files: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    repositories: Mapping[str, Repository] = field(default_factory=dict[str, Repository])
    answer: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The whole world at one moment."""

    files: Mapping[str, str]
    tables: Mapping[str, Sequence[Row]]
    repositories: Mapping[str, Repository]

    def after(self, expected: Expectation) -> Snapshot:
        """The world with the expected changes."""
        files = dict(self.files)
        for path, text in expected.files.items():
            if text is None:
                files.pop(path, None)
            else:
                files[path] = text.rstrip("\n")
        return Snapshot(
            files,
            {**self.tables, **{name: _ordered(rows) for name, rows in expected.tables.items()}},
            {**self.repositories, **expected.repositories},
        )

    def differences(self, other: Snapshot) -> list[str]:
        """What this world (the expected one) and the other (the real one) do not
        share, one line each.
        """
        pairs: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
            ("file", self.files, other.files),
            ("table", self.tables, other.tables),
            ("repository", self.repositories, other.repositories),
        )
        return [
            f"{kind} {name}: expected {mine.get(name)!r}, is {theirs.get(name)!r}"
            for kind, mine, theirs in pairs
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]


class World:
    """A folder, and a database in it, in which tasks are done."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / DATABASE

    def clear(self) -> None:
        """Remove everything, but leave the database file where it is: the server holds its path."""
        self.root.mkdir(parents=True, exist_ok=True)
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.startswith(DATABASE):
                path.unlink()

        with closing(sqlite3.connect(self.database)) as connection, connection:
            for name in _tables(connection):
                connection.execute(f'DROP TABLE "{name}"')

    def path(self, *parts: str) -> str:
        """An absolute path in the world, as assistants write it."""
        return str(self.root.joinpath(*parts))

    def write(self, path: str, text: str, changed: str | None = None) -> None:
        """Write a file; changed: its time of change, as ISO 8601 in UTC."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if changed is not None:
            seconds = datetime.fromisoformat(changed).replace(tzinfo=UTC).timestamp()
            os.utime(file, (seconds, seconds))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Make a table with these rows."""
        names = ", ".join(columns)
        marks = ", ".join("?" for _ in columns)
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(f'CREATE TABLE "{name}" ({names})')
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def repository(
        self, path: str, commits: Sequence[Commit], *, tag: tuple[str, str] | None = None
    ) -> None:
        """Make a repository on the branch main; tag: a name, and the message of the
        commit that gets it.
        """
        (self.root / path).mkdir(parents=True)
        self._git(path, "init", "-q", "-b", "main")
        self._git(path, "config", "user.name", "Ann")
        self._git(path, "config", "user.email", "ann@example.com")
        for commit in commits:
            self.commit(path, commit)
            if tag is not None and commit.message == tag[1]:
                self._git(path, "tag", tag[0])

    def commit(self, path: str, commit: Commit) -> None:
        """Commit files."""
        for name, text in commit.files.items():
            self.write(f"{path}/{name}", text)
        self._git(path, "add", ".")
        self._git(path, "commit", "-q", "-m", commit.message, day=commit.day)

    def branch(self, path: str, name: str, commits: Sequence[Commit]) -> None:
        """Make a branch from main with these commits; main stays the branch in use."""
        self._git(path, "checkout", "-q", "-b", name)
        for commit in commits:
            self.commit(path, commit)
        self._git(path, "checkout", "-q", "main")

    def snapshot(self) -> Snapshot:
        """The world as it is now."""
        repositories = sorted(
            str(git.parent.relative_to(self.root)) for git in self.root.rglob(".git")
        )
        files = {
            str(path.relative_to(self.root)): path.read_text().rstrip("\n")
            for path in self.root.rglob("*")
            if path.is_file() and ".git" not in path.parts and not path.name.startswith(DATABASE)
        }
        with closing(sqlite3.connect(self.database)) as connection:
            tables = {
                name: _ordered(connection.execute(f'SELECT * FROM "{name}"').fetchall())
                for name in _tables(connection)
            }
        return Snapshot(files, tables, {path: self._state(path) for path in repositories})

    def _state(self, path: str) -> Repository:
        """What can change of a repository."""
        names = self._git(path, "branch", "--format=%(refname:short)").split()
        return Repository(
            branches={
                name: tuple(self._git(path, "log", "--format=%s", name).splitlines())
                for name in names
            },
            head=self._git(path, "rev-parse", "--abbrev-ref", "HEAD").strip(),
            open_changes=tuple(self._git(path, "status", "--porcelain").splitlines()),
        )

    def _git(self, path: str, *arguments: str, day: str = "2026-01-01") -> str:
        """The output of a git command; the commits that it makes are of this day."""
        moment = f"{day}T10:00:00+00:00"
        environment = {**os.environ, "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        done = subprocess.run(
            ["git", "-C", str(self.root / path), *arguments],
            check=True,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.stdout


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows: list[tuple[str]] = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table'"
    ).fetchall()
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _ordered(rows: Sequence[Row]) -> Sequence[Row]:
    return sorted(rows, key=repr)
