"""Options that choose among ideas, and `ideabridge ideas suggest`."""

from __future__ import annotations

from typing import Annotated

import typer

from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import opened
from ideabridge.tools.encoding import JSON

ToolOption = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only what calls this tool.")]
ModuleOption = Annotated[str | None, typer.Option("--module", metavar="NAME", help="Only what calls this server.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Saved since: 2026-11-21, or how long ago: 3d, 12h.")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Saved before.")]
OutcomeOption = Annotated[
    str | None, typer.Option("--outcome", metavar="HOW", help="Only what ended so: done, failed, ...")
]
MindOption = Annotated[str | None, typer.Option("--mind", metavar="WHO", help="Who answered: turns, model, ...")]
TagOption = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only what has this tag.")]


@command("config", "project", "store", "json")
def suggest_ideas(
    options: Options,
    least: Annotated[int, typer.Option("--least", min=2, max=1000, help="Done at least so often.")] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many at most.")] = 10,
) -> int:
    """What was done over and over, only with other values, and is no tool yet. Exit code 1 if there is nothing."""
    from ideabridge.server.cli.console import print_json, say, show

    with opened(options) as store:
        found = store.repeated(least, limit)
    if options.json:
        ideas: list[JSON] = [{"times": one.times, "idea": one.latest.id, **one.latest.meta.to_json()} for one in found]
        print_json({"suggestions": ideas})
        return 0 if found else 1
    for one in found:
        meta = one.latest.meta
        what = meta.title or ", ".join(meta.tools)
        show(f"done {one.times} times: {what[:100]}", "bold")
        show(f"  publish it? ideabridge ideas publish {meta.run or one.latest.id[:12]} NAME")
    if not found:
        say(f"nothing was done {least} times that is not published already")
    return 0 if found else 1
