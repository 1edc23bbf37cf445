"""Worlds: what the tasks are run on: real repositories, time zones, words; and the
tools over them.
"""

from __future__ import annotations

import os
import random
import shutil
import string
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox


@dataclass(frozen=True)
class World:
    """One: `commits` has (author, subject), oldest first; `dirty`: a file is changed
    and not committed.
    """

    word: str
    repo: str
    n: int
    zone: str
    clock: str
    commits: tuple[tuple[str, str], ...]
    dirty: bool

    @property
    def path(self) -> Path:
        return Path(self.repo)


_PEOPLE = ("Ann", "Bob", "Cleo", "Dan")
_SPECS = (
    ("anvil", 2, "Europe/Berlin", "09:15", 3, True),
    ("bellows", 3, "Asia/Tokyo", "13:40", 5, True),
    ("forge", 5, "Europe/Paris", "18:20", 7, True),
    ("cog", 1, "America/New_York", "22:05", 6, False),
    ("dynamo-x", 4, "Asia/Kolkata", "07:30", 7, True),
    ("ei", 6, "UTC", "00:45", 8, False),
)
"""The first three worlds are run by minds, the others are new to the plan."""


@contextmanager
def lettered_folder() -> Generator[Path]:
    """A folder whose path has no digits. The 2 in `/tmp/pytest-2/worlds` explains an answer 2, and
    a row of the tables changes with it.
    """
    letters = "".join(random.SystemRandom().choices(string.ascii_lowercase, k=16))
    parents = (os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()), "/tmp")
    parent = next(path for path in parents if not any(map(str.isdigit, path)))
    folder = Path(parent, f"worlds-{letters}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def make_worlds(folder: Path) -> list[World]:
    """Make the repositories."""
    return [_make(folder, number, *spec) for number, spec in enumerate(_SPECS)]


def _make(
    folder: Path, number: int, word: str, n: int, zone: str, clock: str, count: int, dirty: bool
) -> World:
    repo = folder / f"repo-{word}"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    commits: list[tuple[str, str]] = []
    for place in range(count):
        author = _PEOPLE[(place * (number + 1) + number) % (2 + number % 3)]
        subject = f"{word} change {place}"
        (repo / "notes.txt").write_text(notes_of(word, place + 1), encoding="utf-8")
        git(repo, "add", "notes.txt")
        stamp = f"2026-0{1 + number}-{10 + place}T10:00:00+00:00"
        env = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
        who = ("-c", f"user.name={author}", "-c", f"user.email={author.lower()}@example.org")
        git(repo, *who, "commit", "-q", "-m", subject, env=env)
        commits.append((author, subject))

    git(repo, "config", "user.name", "Table")
    git(repo, "config", "user.email", "table@example.org")
    git(repo, "branch", f"topic-{word}")
    if dirty:
        (repo / "notes.txt").write_text(f"{word} unsaved", encoding="utf-8")

    return World(word, str(repo), n, zone, clock, tuple(commits), dirty)


def notes_of(word: str, commits: int) -> str:
    """What the file of a repository holds after so many commits."""
    return "\n".join(f"{word} {line}" for line in range(commits))


def git(repo: Path | str, *words: str, env: dict[str, str] | None = None) -> str:
    """What git itself says."""
    base = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(repo), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(repo), *words]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**base, **(env or {})}
    ).stdout


def sha(world: World, back: int = 0) -> str:
    """The id of a commit, counted back from the last."""
    return git(world.repo, "rev-parse", f"HEAD~{back}").strip()


def converted(world: World, target: str) -> datetime:
    """Today's clock of a world, told in another zone."""
    hour, minute = map(int, world.clock.split(":"))
    now = datetime.now(ZoneInfo(world.zone))
    return now.replace(hour=hour, minute=minute, second=0, microsecond=0).astimezone(
        ZoneInfo(target)
    )


def shelf_of(word: str) -> list[JSONObject]:
    """Five books of a word, in an order that says nothing of their pages and prices."""
    seed = sum(map(ord, word))
    return [
        {
            "id": f"{word}-{place}",
            "title": f"{word} volume {place}",
            "pages": 100 + (seed * (place + 3) * 7919) % 997,
            "price": (seed * (place + 5) * 104729) % 89 + place / 100,
            "lent": (seed + place) % 2 == 0,
        }
        for place in range(5)
    ]


def card_of(word: str) -> JSONObject:
    """A record of a word; long words are of a high level."""
    return {
        "owner": f"{word}@example.org",
        "size": len(word) * 10,
        "label": str(len(word)),
        "level": "high" if len(word) > 3 else "low",
        "tags": [word.upper(), f"{word}!"],
        "place": {"row": len(word), "side": word[0]},
    }


@tool(read_only=True)
def books(shelf: str) -> list[JSONObject]:
    """The books on a shelf."""
    return shelf_of(shelf)


@tool(read_only=True)
def card(name: str) -> JSONObject:
    """The card of a name."""
    return card_of(name)


@tool(read_only=True)
def owner_of(name: str) -> str:
    """Who owns a name."""
    return f"{name}@example.org"


@tool(read_only=True)
def price(id: str) -> float:  # noqa: A002 - what a tool of books would call it
    """What a book costs."""
    for word in (id.rpartition("-")[0],):
        for book in shelf_of(word):
            if book["id"] == id:
                found = book["price"]
                assert isinstance(found, float)
                return found
    raise ActivityError(f"no book {id!r}")


@tool(read_only=True)
def length(text: str) -> int:
    """How many characters a text has."""
    return len(text)


@tool(read_only=True)
def repeat(text: str, times: int = 1, timeout: int = 30) -> str:
    """A text several times over."""
    return text * times


@tool(read_only=True)
def echo(value: JSON) -> JSON:
    """The value itself."""
    return value


@tool(read_only=True)
def subjects(log: str) -> list[str]:
    """The subjects of what git_log tells, newest first."""
    return [
        line.removeprefix("Message: ").strip()
        for line in log.splitlines()
        if line.startswith("Message: ")
    ]


@tool(read_only=True)
def authors(log: str) -> dict[str, int]:
    """How many commits of what git_log tells each author made."""
    names = [
        line.removeprefix("Author: ").strip()
        for line in log.splitlines()
        if line.startswith("Author: ")
    ]
    return {name: names.count(name) for name in dict.fromkeys(names)}


@tool(read_only=True)
def history(log: str) -> list[JSONObject]:
    """The commits of what git_log tells, by id, in no order that says anything."""
    found: list[JSONObject] = []
    for block in log.split("Commit: ")[1:]:
        lines = block.splitlines()
        found.append(
            {
                "sha": lines[0].strip(),
                "author": lines[1].removeprefix("Author: ").strip(),
                "date": lines[2].removeprefix("Date: ").strip(),
                "subject": lines[3].removeprefix("Message: ").strip(),
            }
        )
    return sorted(found, key=lambda one: str(one["sha"]))


@tool(read_only=True)
def picky(name: str) -> str:
    """A name, if it is not empty."""
    if not name.strip():
        raise ActivityError("the name is empty")
    return name.upper()


BUSY: list[str] = []
"""Whom the clerk sends away the next time: a mind's first attempt fails, and the same call
works afterwards."""


@tool(read_only=True)
def clerk(name: str) -> str:
    """A name, stamped, unless the clerk is busy."""
    if name in BUSY:
        BUSY.remove(name)
        raise ActivityError("busy: try again")
    return f"{name} (stamped)"


@tool(read_only=False, destructive=False, idempotent=True)
def write_file(path: str, text: str) -> str:
    """Write a text file."""
    Path(path).write_text(text, encoding="utf-8")
    return f"{len(text)} characters written"


def toolbox() -> Toolbox:
    """All of them."""
    return Toolbox(
        books,
        card,
        owner_of,
        price,
        length,
        repeat,
        echo,
        subjects,
        authors,
        history,
        picky,
        clerk,
        write_file,
    )
