"""Checks: the git repository the demo reads, and every answer compared with what git and the time zones say."""

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
"""Commits the demo looks at, at most."""

_LARGE: Final = 4_000_000
"""Bytes from which a patch may be refused: one result has at most 8 MiB of JSON."""

_GIT_SECONDS: Final = 30
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class DemoSetupError(IdeabridgeError):
    """The demo cannot start: no repository, no commits, servers that are not installed."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository with a working tree, and how many commits it has from HEAD, at most `MOST`."""

    root: Path
    commits: int

    def facts(self, count: int, zone: ZoneInfo) -> JSONObject:
        """`commits`, `authors` and `weekdays` of the newest `count` commits, and the `newest` with its `newest_utc`."""
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
        """Lines the newest commit `added` and `removed` against its first parent, and the bytes of its patch.

        None where git cannot compare: a shallow clone does not have the parent.
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
    """The repository given, else this project's own checkout, else the current folder's.

    Raises:
        DemoSetupError: there is none, it has no commits, or git is not installed.
    """
    own = Path(__file__).absolute().parents[4]
    if given is not None:
        folder = given.expanduser().absolute()
        named = f"--repo: {folder}"
        if not folder.is_dir():
            raise DemoSetupError(f"{named} is no folder")
    elif (own / ".git").exists() and (own / "pyproject.toml").is_file():
        folder, named = own, str(own)
    else:
        folder = Path.cwd()
        named = f"{folder} (name another with --repo)"
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DemoSetupError as error:
        raise DemoSetupError(f"{named}: is no git repository with a working tree: {error}") from None
    try:
        return Repository(root, int(_git(root, "rev-list", "--count", f"--max-count={MOST}", "HEAD", "--")))
    except DemoSetupError:
        raise DemoSetupError(f"{named}: has no commits yet") from None


def _git(folder: Path, *words: str) -> str:
    # Set while git runs a hook, these three would point to another repository than the one in `folder`.
    hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in hooks}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
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


@dataclass(slots=True)
class Checks:
    """What was compared: (what, whether it holds, and if not why)."""

    found: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def same(self, what: str, ours: JSON, theirs: JSON) -> None:
        """Note whether two values are equal."""
        self.holds(what, ours == theirs, f"got {encode_text(ours)[:200]}, expected {encode_text(theirs)[:200]}")

    def holds(self, what: str, truth: bool, otherwise: str = "") -> None:
        """Note whether something holds, and `otherwise` why it does not."""
        self.found.append((what, truth, "" if truth else otherwise))

    @property
    def wrong(self) -> list[str]:
        """What does not hold, one line each."""
        return [f"{what}: {why}" if why else what for what, truth, why in self.found if not truth]

    def to_json(self) -> list[JSON]:
        """What was compared, for machines."""
        return [{"check": what, "holds": truth, **({"why": why} if why else {})} for what, truth, why in self.found]


def check_answer(checks: Checks, who: str, answer: JSONObject, repository: Repository, given: JSONObject) -> None:
    """Compare one output of the plan with git and the time zone database.

    Args:
        checks: takes the findings.
        who: whose answer it is.
        answer: the plan's output.
        repository: is asked.
        given: the input: `count` and `timezone`.
    """
    count, zone = given["count"], str(given["timezone"])
    assert isinstance(count, int)
    facts = repository.facts(count, ZoneInfo(zone))
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
        what = f"{who}: a patch that cannot be made is reported as such, and the plan went on"
        checks.holds(what, "message" in change, encode_text(change)[:200])
    else:
        what = f"{who}: lines the newest commit changes, as git counts them"
        checks.same(what, {key: change.get(key) for key in ("added", "removed")}, expected[0])


def _check_time(checks: Checks, who: str, time: str, utc: str, zone: str) -> None:
    """Check that `time` is the UTC time of day `utc` on a clock in `zone`, on the day the plan ran."""
    what = f"{who}: the newest commit's time of day in {zone}"
    try:
        there = datetime.fromisoformat(time)
    except ValueError:
        checks.holds(what, truth=False, otherwise=f"{time!r} is no date")
        return
    right = there.astimezone(ZoneInfo(zone)).utcoffset() == there.utcoffset()
    at = there.astimezone(ZoneInfo("UTC")).strftime("%H:%M")
    checks.holds(what, right and at == utc, f"got {time}, which is {at} UTC; expected {utc} UTC")
