"""Repository: which one the demo looks into, and what git itself says of it, asked apart from everything else."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from ideabridge.server.demo.errors import DemoSetupError
from ideabridge.tools.encoding import JSON, JSONObject

MOST: Final = 500
"""Commits the demo looks at, at most."""

_GIT_SECONDS: Final = 30
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository with a working tree and at least one commit.

    Attributes:
        root: its top folder.
        commits: how many commits there are from HEAD, at most `MOST`.
    """

    root: Path
    commits: int

    def facts(self, count: int, timezone: str) -> JSONObject:
        """What git says of the newest `count` commits: `commits`, `authors`, `weekdays`, `newest`, `newest_utc`.

        Raises:
            DemoSetupError: git fails.
        """
        lines = _git(
            self.root, "log", f"--max-count={count}", "--no-show-signature", "--format=%H%x00%an%x00%aI", "HEAD"
        )
        zone = ZoneInfo(timezone)
        commits = [line.split("\0") for line in lines.split("\n") if line]
        dates = [datetime.fromisoformat(date.replace("Z", "+00:00")) for _, _, date in commits]
        days = Counter(_WEEKDAYS[date.astimezone(zone).weekday()] for date in dates)
        authors: JSONObject = dict[str, JSON](Counter(author.strip() for _, author, _ in commits))
        return {
            "commits": len(commits),
            "authors": authors,
            "weekdays": {day: days[day] for day in _WEEKDAYS if days[day]},
            "newest": commits[0][0],
            "newest_utc": dates[0].astimezone(ZoneInfo("UTC")).strftime("%H:%M"),
        }

    def newest_change(self) -> JSONObject | None:
        """Lines the newest commit added and removed, against its first parent, and the `bytes` of its patch; None
        where git cannot tell (a shallow clone does not have the parent).
        """
        parents = _git(self.root, "cat-file", "commit", "HEAD").split("\n\n", 1)[0].count("\nparent ")
        words = ["diff-tree", "-r", "-M", "--no-commit-id", *(["HEAD^1", "HEAD"] if parents else ["--root", "HEAD"])]
        try:
            text = _git(self.root, *words, "--numstat")
            patch = len(_git(self.root, *words, "--patch"))
        except DemoSetupError:
            return None
        counted = [line.split("\t")[:2] for line in text.split("\n") if line]
        pairs = [(int(added), int(removed)) for added, removed in counted if added != "-"]
        return {"added": sum(pair[0] for pair in pairs), "removed": sum(pair[1] for pair in pairs), "bytes": patch}


def find_repository(given: Path | None) -> Repository:
    """The repository to look into: the one given, else this project's own checkout, else the current folder's.

    Raises:
        DemoSetupError: there is none, it has no commits, or there is no git.
    """
    if given is not None:
        folder = given.expanduser().absolute()
        if not folder.is_dir():
            raise DemoSetupError(f"--repo: {folder} is no folder")
        return _open(folder, f"--repo: {folder}")
    own = Path(__file__).absolute().parents[4]
    if (own / ".git").exists() and (own / "pyproject.toml").is_file():
        return _open(own, str(own))
    here = Path.cwd()
    return _open(here, f"{here} (name another with --repo)")


def _open(folder: Path, told: str) -> Repository:
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DemoSetupError as error:
        raise DemoSetupError(f"{told}: is no git repository with a working tree: {error}") from None
    try:
        count = int(_git(root, "rev-list", "--count", f"--max-count={MOST}", "HEAD", "--"))
    except DemoSetupError:
        raise DemoSetupError(f"{told}: has no commits yet") from None
    return Repository(root, count)


def _git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        # Set while git runs a hook: they would point past the folder that was asked for.
        environment.pop(name, None)
    command = ["git", "-c", "log.mailmap=false", "-c", "core.quotePath=true", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except FileNotFoundError:
        raise DemoSetupError("git is not installed; the demo looks into a git repository") from None
    except subprocess.TimeoutExpired:
        raise DemoSetupError(f"git {words[0]} took longer than {_GIT_SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise DemoSetupError(said or f"git {words[0]} failed")
    return done.stdout.decode("utf-8", "replace")
