"""An example of a file of Python tools: they evaluate a git history as `mcp-server-git` returns it.

A tool is a typed function with a docstring. Load the file with `ideabridge serve --tools
examples/git_history.py`, or list it under "tools" in ideabridge.json. `ideabridge demo` runs these
tools in a plan.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ideabridge.tools import ActivityError, tool

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_COMMIT = re.compile(
    r"^Commit: ([0-9a-f]{40}|[0-9a-f]{64})\nAuthor: (.*)\nDate: (.+)\nMessage: ", re.MULTILINE
)
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass
class Commit:
    """One commit. `date` is ISO 8601 with the author's offset; `time` is HH:MM in
    `timezone`, which is UTC.
    """

    sha: str
    author: str
    date: str
    subject: str
    time: str
    timezone: str


@dataclass
class Author:
    """The number of commits of one author."""

    name: str
    commits: int


@dataclass
class Summary:
    """The commits by author, and by day of the week in a time zone."""

    commits: int
    authors: list[Author]
    weekdays: dict[str, int]
    timezone: str
    days: int


@dataclass
class Size:
    """The size of a patch in files, lines and bytes."""

    files: int
    added: int
    removed: int
    bytes: int


@tool(read_only=True)
def parse_git_log(log: str) -> list[Commit]:
    """Split the text of git_log into commits, newest first, in the order of the text.

    Args:
        log: the answer of the tool git_log of mcp-server-git.
    """
    commits: list[Commit] = []
    found = list(_COMMIT.finditer(log))
    for match, following in zip(found, [*found[1:], None], strict=False):
        message = log[match.end() : following.start() if following else len(log)]
        try:
            when = datetime.fromisoformat(match.group(3).strip())
        except ValueError:
            raise ActivityError(
                f"commit {match.group(1)[:12]}: {match.group(3)!r} is not a date"
            ) from None

        commits.append(
            Commit(
                sha=match.group(1),
                author=match.group(2).strip(),
                date=when.isoformat(),
                subject=message.strip().split("\n")[0],
                time=when.astimezone(UTC).strftime("%H:%M"),
                timezone="UTC",
            )
        )

    if not commits:
        raise ActivityError("the text holds no commits as git_log writes them")
    return commits


@tool(read_only=True)
def summarise_commits(commits: list[Commit], timezone: str) -> Summary:
    """Count commits by author and by day of the week.

    Args:
        commits: as parse_git_log returns them.
        timezone: IANA name of the time zone of the days.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ActivityError(f"{timezone!r} is not a known time zone") from None

    dates = [datetime.fromisoformat(commit.date).astimezone(zone) for commit in commits]
    if not dates:
        raise ActivityError("there are no commits to count")

    authors = Counter(commit.author for commit in commits)
    days = Counter(WEEKDAYS[date.weekday()] for date in dates)
    return Summary(
        commits=len(commits),
        authors=[Author(name, count) for name, count in authors.most_common()],
        weekdays={day: days[day] for day in WEEKDAYS if days[day]},
        timezone=timezone,
        days=(max(dates).date() - min(dates).date()).days + 1,
    )


@tool(read_only=True)
def measure_patch(patch: str) -> Size:
    """Count the files and lines a commit changes.

    Args:
        patch: the answer of the tool git_show of mcp-server-git for a commit.
    """
    files = added = removed = 0
    old = new = 0
    lines = patch.split("\n")
    for number, line in enumerate(lines):
        if old > 0 or new > 0:
            # The counts of a hunk decide where it ends, because a line `--- a` inside it may be the
            # removed line `-- a`.
            added += line.startswith("+")
            removed += line.startswith("-")
            old -= not line.startswith(("+", "\\"))
            new -= not line.startswith(("-", "\\"))
        elif hunk := _HUNK.match(line):
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
        elif (
            line.startswith("--- ")
            and lines[number + 1 : number + 2]
            and lines[number + 1].startswith("+++ ")
        ):
            files += 1

    return Size(files, added, removed, bytes=len(patch.encode("utf-8", "replace")))


@tool(read_only=True)
def activity_report(
    summary: Summary,
    newest: Commit,
    newest_there: str,
    now: str,
    status: str,
    change: dict[str, int | str],
) -> str:
    """Write a report of a few lines for a person.

    Args:
        summary: as summarise_commits returns it.
        newest: the newest commit.
        newest_there: the time of this commit in the summary's time zone, ISO 8601.
        now: the current time, ISO 8601.
        status: the answer of the tool git_status of mcp-server-git.
        change: as measure_patch returns it, or {"message"} if the patch cannot be read.
    """
    authors = ", ".join(f"{one.name} {one.commits}" for one in summary.authors[:3])
    busiest = max(summary.weekdays, key=lambda day: summary.weekdays[day])
    if "files" in change:
        size = f"{_count(change['files'], 'file')}, +{change['added']} -{change['removed']}"
    else:
        size = f"its patch cannot be read here ({str(change.get('message', '')).strip()[:80]})"

    tree = "is clean" if "nothing to commit" in status else "has changes"
    span = f"{_count(summary.commits, 'commit')} in {_count(summary.days, 'day')}"
    lines = (
        f"{span}, most on a {busiest} ({summary.timezone})",
        f"by {authors}",
        f"newest: {newest.sha[:10]} {newest.subject[:60]} ({newest_there[11:16]} there), {size}",
        f"the working tree {tree} at {now}",
    )
    return "\n".join(lines)


def _count(number: int | str, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
