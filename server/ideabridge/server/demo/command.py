"""The command `ideabridge demo`, a demonstration on real input in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ideabridge.server.cli.console import ExitCode, fit, print_json, report, show_line
from ideabridge.server.cli.options import Options, command


@command("json")
def demo(
    options: Options,
    repo: Annotated[
        Path | None,
        typer.Option(
            "--repo",
            metavar="DIR",
            help="The git repository to read. Default: that of this project.",
        ),
    ] = None,
) -> int:
    """Show how it works: two assistants, two MCP servers by others, one plan that becomes a tool.

    Nothing leaves this machine, no model is asked, and the repository is only read.
    """
    import time

    import anyio

    from ideabridge.server.demo.demo import Demo, find_repository
    from ideabridge.server.hosts.program import this_program

    def say(text: str, style: str | None) -> None:
        if not options.json:
            # A timeline always fits into 80 columns. `fit` would break its lines, because it allows
            # for terminals on which a block character is two columns wide.
            show_line(text if "█" in text else fit(text), style)

    began = time.monotonic()
    demo = Demo(find_repository(repo), this_program(), say)
    results = anyio.run(demo.run)
    seconds = time.monotonic() - began
    checks = demo.checks
    if options.json:
        print_json(
            {
                **results,
                "seconds": round(seconds, 3),
                "checks": list(checks.found),
                "ok": not checks.wrong,
            }
        )

    demo.end(seconds)
    for line in checks.wrong:
        report(line)

    return ExitCode.FAILED if checks.wrong else ExitCode.DONE
