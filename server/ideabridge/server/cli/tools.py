"""`ideabridge tools`: what can be called."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from ideabridge.server.cli.options import Options, command

app = typer.Typer(help="List the tools that plans can call.", no_args_is_help=True)


@app.command("list")
@command("config", "project", "tools", "json")
def list_tools(
    options: Options,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Only tools with all these words.")
    ] = None,
    schemas: Annotated[bool, typer.Option("--schemas", help="Print parameter schemas too.")] = False,
) -> int:
    """List the tools that plans can call: the Python tools, then those of the modules.

    Exit code 1 if none has the words.
    """
    import anyio

    return anyio.run(_list, options, words or [], schemas)


async def _list(options: Options, words: list[str], schemas: bool) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected
    from ideabridge.server.cli.console import print_json, print_table, print_value, report, say, show
    from ideabridge.server.cli.exits import ExitCode
    from ideabridge.tools.encoding import JSON

    async with connected(Bridge(options.configuration(), store=":memory:")) as bridge:
        found = [
            tool
            for tool in bridge.tools()
            if all(word.lower() in f"{tool.module} {tool.name} {tool.description}".lower() for word in words)
        ]
        nothing = words and not found
        down = [status for status in bridge.modules.statuses() if status.state not in ("up", "disabled")]
        code = ExitCode.FAILED if down or nothing else ExitCode.DONE
        if options.json:
            listed: list[JSON] = [tool.to_json() for tool in found]
            errors: list[JSON] = [{"module": status.name, "error": status.error} for status in down]
            print_json({"tools": listed, "errors": errors})
            return code
        if nothing:
            say(f"no tool has {'the word' if len(words) == 1 else 'all the words'} {' '.join(words)}")
        elif schemas:
            for tool in found:
                show(f"{tool.name}  ({tool.module or 'here'})")
                print_value(tool.parameters)
        else:
            rows = [
                (tool.name, tool.module or "", _effect(tool.annotations.read_only), _first(tool.description))
                for tool in found
            ]
            print_table(("tool", "module", "does", "description"), rows)
        for status in down:
            report(status.error or f"module {status.name!r} has not answered yet")
        return code


def _effect(read_only: bool | None) -> str:
    return {True: "reads", False: "changes", None: "?"}[read_only]


def _first(description: str) -> str:
    return textwrap.shorten(description.strip().split("\n")[0], 100, placeholder=" ...")
