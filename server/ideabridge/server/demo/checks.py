"""The checks of the demo: they compare every answer with what git and the time zone database report."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError

MOST: Final = 500
"""The largest number of commits that the demo reads."""

_LARGE: Final = 4_000_000
"""Bytes of a patch that the server may refuse: a result has at most 8 MiB of JSON."""

_GIT_SECONDS: Final = 30
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class DemoSetupError(IdeabridgeError):
    """The demo cannot start: there is no repository or no commit, or a server is not installed."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository with a working tree. `commits` is the number of commits up to HEAD, at most `MOST`."""

    root: Path
    commits: int

    def facts(self, count: int, zone: ZoneInfo) -> JSONObject:
        """The numbers that the plan reports of the newest `count` commits; `newest_utc` is a time of day."""
        words = ("log", f"--max-count={count}", "--no-show-signature", "--format=%H%x00%an%x00%aI", "HEAD")
        commits = [line.split("\0") for line in _git(self.root, *words).split("\n") if line]
        dates = [datetime.fromisoformat(date.replace("Z", "+00:00")) for _, _, date in commits]
        days = Counter(_WEEKDAYS[date.astimezone(zone).weekday()] for date in dates)
        return {
            "commits": len(commits),
            "authors": dict[str, JSON](Counter(author.strip() for _, author, _ in commits)),
            "weekdays": {day: days[day] for day in _WEEKDAYS if days[day]},
            "newest": commits[0][0],
            "newest_utc": dates[0].astimezone(ZoneInfo("UTC")).strftime("%H:%M"),
        }

    def newest_change(self) -> tuple[JSONObject, int] | None:
        """The lines that the newest commit `added` and `removed`, and the bytes of its patch.

        None if git cannot compare: a shallow clone does not have the parent.
        """
        has_parent = "\nparent " in _git(self.root, "cat-file", "commit", "HEAD").split("\n\n", 1)[0]
        words = ["diff-tree", "-r", "-M", "--no-commit-id", *(["HEAD^1"] if has_parent else ["--root"]), "HEAD"]
        try:
            numbers = _git(self.root, *words, "--numstat")
            patch = _git(self.root, *words, "--patch")
        except DemoSetupError:
            return None
        counted = [line.split("\t")[:2] for line in numbers.split("\n") if line and not line.startswith("-")]
        added, removed = (sum(int(pair[side]) for pair in counted) for side in (0, 1))
        return {"added": added, "removed": removed}, len(patch)


def find_repository(given: Path | None) -> Repository:
    """The given repository, or else this project's own checkout, or else that of the current folder.

    Raises:
        DemoSetupError: there is none, it has no commits, or git is not installed.
    """
    own = Path(__file__).absolute().parents[4]
    if given is not None:
        folder = given.expanduser().absolute()
    elif (own / ".git").exists() and (own / "pyproject.toml").is_file():
        folder = own
    else:
        folder = Path.cwd()
    named = f"{folder} (choose a repository with --repo)"
    if not folder.is_dir():
        raise DemoSetupError(f"{named}: is not a folder")
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DemoSetupError as error:
        raise DemoSetupError(f"{named}: is not a git repository with a working tree: {error}") from None
    try:
        return Repository(root, int(_git(root, "rev-list", "--count", f"--max-count={MOST}", "HEAD", "--")))
    except DemoSetupError:
        raise DemoSetupError(f"{named}: has no commits yet") from None


def _git(folder: Path, *words: str) -> str:
    # git sets these three while it runs a hook. They name another repository than the one in `folder`.
    hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in hooks}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-c", "log.mailmap=false", "-c", "core.quotePath=true", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except FileNotFoundError:
        raise DemoSetupError("git is not installed; the demo reads a git repository") from None
    except subprocess.TimeoutExpired:
        raise DemoSetupError(f"git {words[0]} took longer than {_GIT_SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise DemoSetupError(said or f"git {words[0]} failed")
    return done.stdout.decode("utf-8", "replace")


@dataclass(slots=True)
class Checks:
    """The results: (what was compared, whether it holds, and if not, why)."""

    found: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def same(self, what: str, ours: JSON, theirs: JSON) -> None:
        """Check that two values are equal."""
        self.holds(what, ours == theirs, f"got {encode_text(ours)[:200]}, expected {encode_text(theirs)[:200]}")

    def holds(self, what: str, truth: bool, otherwise: str = "") -> None:
        """Record whether something holds; `otherwise` says why it does not."""
        self.found.append((what, truth, "" if truth else otherwise))

    @property
    def wrong(self) -> list[str]:
        """One line for each check that failed."""
        return [f"{what}: {why}" if why else what for what, truth, why in self.found if not truth]

    def to_json(self) -> list[JSON]:
        """The results for `--json`."""
        return [{"check": what, "holds": truth, **({"why": why} if why else {})} for what, truth, why in self.found]


def check_answer(checks: Checks, who: str, answer: JSONObject, repository: Repository, given: JSONObject) -> None:
    """Compare `answer`, the output of the plan for the input `given`, with git and the time zone database."""
    zone = str(given["timezone"])
    facts = repository.facts(int(str(given["count"])), ZoneInfo(zone))
    listed = answer.get("authors")
    authors = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    by_name: JSONObject = {str(one.get("name")): one.get("commits") for one in authors}
    checks.same(f"{who}: number of commits as git counts them", answer.get("commits"), facts["commits"])
    checks.same(f"{who}: commits by author as git counts them", by_name, facts["authors"])
    checks.same(f"{who}: commits by weekday in {zone}", answer.get("weekdays"), facts["weekdays"])
    checks.same(f"{who}: the newest commit", answer.get("newest"), facts["newest"])
    _check_time(checks, who, str(answer.get("newest_there")), str(facts["newest_utc"]), zone)
    change, expected = answer.get("change"), repository.newest_change()
    change = change if isinstance(change, dict) else {}
    if expected is None or ("message" in change and expected[1] > _LARGE):
        what = f"{who}: the plan reports that git cannot make the patch, and goes on"
        checks.holds(what, "message" in change, encode_text(change)[:200])
    else:
        what = f"{who}: lines the newest commit changes, as git counts them"
        checks.same(what, {key: change.get(key) for key in ("added", "removed")}, expected[0])


def _check_time(checks: Checks, who: str, time: str, utc: str, zone: str) -> None:
    """Check that `time` is the UTC time of day `utc`, shown by a clock in `zone`."""
    what = f"{who}: the newest commit's time of day in {zone}"
    try:
        there = datetime.fromisoformat(time)
    except ValueError:
        checks.holds(what, truth=False, otherwise=f"{time!r} is not a date")
        return
    right = there.astimezone(ZoneInfo(zone)).utcoffset() == there.utcoffset()
    at = there.astimezone(ZoneInfo("UTC")).strftime("%H:%M")
    checks.holds(what, right and at == utc, f"got {time}, which is {at} UTC; expected {utc} UTC")
