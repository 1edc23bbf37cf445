"""`ideabridge demo`: the whole of it, on real input, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ideabridge.server.cli.options import Options, command


@command("json")
def demo(
    options: Options,
    repo: Annotated[
        Path | None,
        typer.Option("--repo", metavar="DIR", help="The git repository to look into. Default: this project's own."),
    ] = None,
) -> int:
    """Show how it works: two assistants, two MCP servers by others, one plan that becomes a tool.

    Nothing leaves this machine, no model is asked, and the repository is only read.
    """
    import anyio

    from ideabridge.server.demo.demo import run_demo

    return anyio.run(run_demo, repo, options.json)
