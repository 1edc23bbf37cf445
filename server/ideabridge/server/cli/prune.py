"""`ideabridge ideas prune`: deletes old runs and ideas from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import opened
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.pruning import Prunable


@command("config", "project", "store", "json")
def prune_ideas(
    options: Options,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="WHEN", help="What ended before: 90d, 12h, 2w, or 2026-11-21.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete old runs with their rooms, forks and ideas. Published and tagged ideas and unfinished runs stay.

    Other processes may use the store meanwhile. The file is smaller after `store vacuum`.
    """
    from ideabridge.bridge.ideas.filters import read_time
    from ideabridge.server.cli.console import print_json, say
    from ideabridge.server.cli.exits import UsageError, standing_in_terminal

    if not (dry_run or yes or standing_in_terminal()):
        raise UsageError("there is no terminal to ask at: add --yes, or look first with --dry-run")
    read_time(older_than, "--older-than")
    with opened(options) as store:
        found = store.prunable(before=older_than)
        if options.json and (dry_run or not found.families):
            print_json({"pruned": None, **_prunable_json(found)})
        elif not options.json:
            for line in lines_of(found):
                say(line)
        if dry_run or not found.families:
            return 0
        if not yes and not typer.confirm("Delete them?", err=True):
            say("nothing was deleted", "yellow")
            return 0
        pruned = store.prune(found)
    if options.json:
        done: JSONObject = {
            "runs": pruned.runs,
            "ideas": pruned.ideas,
            "contents": pruned.contents,
            "before": pruned.before,
            "after": pruned.after,
        }
        print_json({"pruned": done, **_prunable_json(found)})
    else:
        freed = f"{_size(pruned.before)} were in use, {_size(pruned.after)} are"
        say(f"{_count(pruned.runs, 'run')} and {_count(pruned.ideas, 'idea')} deleted; {freed}", "green")
        say("the file keeps its size until `ideabridge store vacuum`", "dim")
    return 0


def lines_of(found: Prunable) -> list[str]:
    """What goes and what stays, for a person."""
    if not found.families:
        lines = [f"nothing to delete; {_size(found.used)} are in use"]
    else:
        between = f"from {found.oldest[:10]} to {found.newest[:10]}"
        what = f"{_count(found.runs, 'run')} and {_count(found.ideas, 'idea')}"
        lines = [f"{what} would go, {between}; {_size(found.used)} are in use"]
    if found.kept:
        kept = ", ".join(f"{why}: {count}" for why, count in sorted(found.kept.items()))
        lines.append(f"as old, but kept: {kept}")
    return lines


def _prunable_json(found: Prunable) -> JSONObject:
    return {
        "runs": found.runs,
        "ideas": found.ideas,
        "used": found.used,
        "oldest": found.oldest,
        "newest": found.newest,
        "kept": dict[str, JSON](found.kept),
    }


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GB"
