"""The command `ideabridge servers logs`, which shows what a server wrote to standard error, and the
log messages that it sent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    print_json,
    row_lines,
    say,
    show_line,
    terminal_width,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.server_entries import ServerArgument
from ideabridge.server.cli.servers import app
from ideabridge.tools.encoding import JSON

if TYPE_CHECKING:
    from ideabridge.bridge.modules.server_log import ServerLogLine, ServerLogReader

_POLL_SECONDS: Final = 0.3
_WIDTHS: Final = (19, 10)
"""Widths, in terminal columns, of the time and the source of a line."""


@app.command("logs")
@command("config", "project", "json")
async def show_logs(
    options: Options,
    name: ServerArgument,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", min=1, max=100_000, help=("The maximum number to show.")
        ),
    ] = 50,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="LEVEL",
            help="Only log messages of this level or higher: debug, info, notice, warning, error, "
            "critical, alert, emergency.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show further lines until Ctrl-C.")
    ] = False,
) -> int:
    """Show the last lines that a server wrote to standard error, its log messages, and when it was
    up or failed.

    ideabridge keeps these lines while it is connected to the server, no matter who started
    ideabridge. Secrets are masked. The exit code is 1 if there are no lines.
    """
    from ideabridge.bridge.modules.server_log import LEVELS, ServerLogReader

    if level is not None and level not in LEVELS:
        raise UsageError(f"--level: expected one of {', '.join(LEVELS)}; found {level[:40]!r}")
    if follow and options.json:
        raise UsageError("--json prints one object: leave out --follow")

    file = options.configuration().with_only([name]).log_file_of(name)
    assert file is not None
    reader = ServerLogReader(file)
    entries = _matching([*reader.earlier(), *reader.new()], level)[-lines:]
    if options.json:
        listed: list[JSON] = [line.to_json() for line in entries]
        print_json({"server": name, "file": str(file), "lines": listed})
        return ExitCode.DONE if entries else ExitCode.FAILED

    _print(entries)
    if follow:
        await _follow(reader, level)
    elif not entries:
        say(f"{name} has written nothing yet; the log would be {file}")

    return ExitCode.DONE if entries else ExitCode.FAILED


def _matching(lines: Sequence[ServerLogLine], level: str | None) -> list[ServerLogLine]:
    return [line for line in lines if level is None or line.is_at_least(level)]


async def _follow(reader: ServerLogReader, level: str | None) -> None:
    """Print lines as they are added, until cancelled."""
    import anyio

    while True:
        await anyio.sleep(_POLL_SECONDS)
        _print(_matching(reader.new(), level))


def _print(lines: Sequence[ServerLogLine]) -> None:
    for line in lines:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.time))
        origin = line.level if line.source == "message" and line.level else line.source
        text = f"{line.logger}: {line.text}" if line.logger else line.text
        style = "red" if line.is_at_least("error") else None
        for row in row_lines((moment, origin, text), _WIDTHS, terminal_width(), cut=False):
            show_line(row, style)
