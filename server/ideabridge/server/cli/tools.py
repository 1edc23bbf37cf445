"""The command `ideabridge tools`, which shows the tools that plans can call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    first_line,
    print_json,
    print_table,
    print_value,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import is_well
from ideabridge.server.cli.stored_lists import StoredLists
from ideabridge.tools.encoding import JSON

if TYPE_CHECKING:
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.tools.tool import Tool


def _has_words(tool: Tool, words: list[str]) -> bool:
    text = f"{tool.module} {tool.name} {tool.description}".lower()
    return all(word.lower() in text for word in words)


app = typer.Typer(help="List the tools that plans can call.", no_args_is_help=True)


@app.command("list")
@command("config", "project", "tools", "json")
async def list_tools(
    options: Options,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="List only tools that contain all these words."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Also print the schemas of the parameters.")
    ] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Start every server, and ask it for its tools.")
    ] = False,
) -> int:
    """List the tools that plans can call: the Python tools, then those of the servers.

    Servers with a stored list of tools are not started, except with --refresh. The exit code is 1
    if no tool has the words, or if a server failed.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected

    words = words or []
    with StoredLists(options.configuration()) as lists:
        idle = () if refresh else lists.names
        async with connected(
            Bridge(lists.configuration, store=lists.store or ":memory:"), idle
        ) as bridge:
            tools = [tool for tool in bridge.tools() if _has_words(tool, words)]
            statuses = bridge.modules.statuses()

    down = [status for status in statuses if not is_well(status)]
    no_match = bool(words) and not tools
    code = ExitCode.FAILED if down or no_match else ExitCode.DONE
    if options.json:
        _print_json(tools, statuses, down)
        return code

    if no_match:
        condition = "the word" if len(words) == 1 else "all the words"
        say(f"no tool has {condition} {' '.join(words)}")
    elif schemas:
        for tool in tools:
            show_line(f"{tool.name}  ({tool.module or 'here'})")
            print_value(tool.parameters)
    else:
        _print_tools(tools)

    for status in statuses:
        if status.listed_at:
            say(f"  {status.name}: tools as of {status.listed_at}; --refresh asks it", "dim")
    for status in down:
        report(status.error or f"server {status.name!r} has not answered yet")

    return code


def _print_json(tools: list[Tool], statuses: list[ModuleStatus], down: list[ModuleStatus]) -> None:
    definitions: list[JSON] = [tool.to_json() for tool in tools]
    stored: list[JSON] = [
        {"module": status.name, "listed_at": status.listed_at}
        for status in statuses
        if status.listed_at
    ]
    errors: list[JSON] = [{"module": status.name, "error": status.error} for status in down]
    print_json({"tools": definitions, "stored": stored, "errors": errors})


def _print_tools(tools: list[Tool]) -> None:
    effects = {True: "reads", False: "changes", None: "?"}
    rows = [
        (
            tool.name,
            tool.module or "",
            effects[tool.annotations.read_only],
            first_line(tool.description),
        )
        for tool in tools
    ]
    print_table(("tool", "server", "does", "description"), rows)
