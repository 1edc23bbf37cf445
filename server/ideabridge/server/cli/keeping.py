"""`ideabridge store`: the file of ideas and runs: a copy of it, and room given back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import opened

app = typer.Typer(help="Back up or shrink the file of ideas and runs.", no_args_is_help=True)


@app.command("backup")
@command("config", "project", "store", "json")
def back_up(
    options: Options,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
) -> int:
    """Copy the store to a new file, also while it is in use. Nothing is overwritten."""
    from ideabridge.server.cli.console import print_json, say

    target = file.expanduser()
    with opened(options) as store:
        size = store.back_up(target)
    if options.json:
        print_json({"file": str(target), "bytes": size})
    else:
        say(f"{size:,} bytes copied to {target}", "green")
    return 0


@app.command("vacuum")
@command("config", "project", "store", "json")
def vacuum(options: Options) -> int:
    """Give unused space in the store's file back to the disk. Other processes wait meanwhile."""
    from ideabridge.server.cli.console import print_json, say

    with opened(options) as store:
        before, after = store.vacuum()
    if options.json:
        print_json({"before": before, "after": after})
    else:
        say(f"{before:,} bytes before, {after:,} after", "green")
    return 0
