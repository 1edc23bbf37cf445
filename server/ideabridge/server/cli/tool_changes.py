"""The command `ideabridge servers accept`, which lets published ideas call tools that have
changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    confirm,
    print_json,
    say,
    show_line,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import app
from ideabridge.server.cli.stores import open_bridge
from ideabridge.tools.encoding import JSON

if TYPE_CHECKING:
    from ideabridge.bridge.loop.event import Via
    from ideabridge.bridge.runs.pins import ChangedTool


@app.command("accept")
@command("config", "project", "store", "tools", "json")
async def accept_changes(
    options: Options,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SERVER]", help="The server, or idea:NAME for an idea that other ideas call."
        ),
    ] = None,
    own: Annotated[
        bool,
        typer.Option("--own", help="Accept the tools of the tool files instead of a server's."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Show each change in the tools of a server, and let published ideas call the tools as they are
    now.

    Until you accept a change in the schema or the behaviour hints of a tool, calls to this tool are
    refused.
    """
    from ideabridge.bridge.loop.event import LOCAL_USER, Decider
    from ideabridge.server.cli.connecting import connected

    if own == (name is not None):
        raise UsageError("give a SERVER, or --own")

    module = name or ""
    async with connected(open_bridge(options)) as bridge:
        changed = await bridge.changed_tools(module)
        differences = _differences(changed)
        if not options.json:
            _print_differences(differences)

        accepted = bool(changed) and yes
        via: Via = "command"
        if changed and not yes and not options.json:
            if not at_terminal():
                raise UsageError("nothing was accepted: review the differences, then add --yes")

            accepted = confirm("Allow calls of the tool as it is now?")
            via = "terminal"

        if accepted:
            bridge.accept(changed, by=Decider("person", via, LOCAL_USER))

    if options.json:
        entries: list[JSON] = [
            {
                "tool": difference.tool,
                "differences": list[JSON](difference.lines),
                "ideas": list[JSON](difference.ideas),
            }
            for difference in differences
        ]
        print_json({"module": module, "changed": entries, "accepted": accepted})
    elif not changed:
        say("no tool that a published idea calls has changed", "green")
    elif accepted:
        say("accepted", "green")
    else:
        say("nothing was accepted", "yellow")

    return ExitCode.DONE if accepted or not changed else ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class _Difference:
    """The changes to a tool since the ideas that call it were published.

    Attributes:
        tool: the tool.
        lines: the changes, one per line.
        ideas: the published ideas that call the tool, as NAME@VERSION.
    """

    tool: str
    lines: list[str]
    ideas: list[str]


def _differences(changed: list[ChangedTool]) -> list[_Difference]:
    """Group the changes. Ideas share a difference if a tool has changed in the same way for each of
    them.
    """
    differences: dict[tuple[str, ...], _Difference] = {}
    for change in changed:
        label = change.pin.label
        difference = differences.setdefault(
            (label, *change.lines), _Difference(label, change.lines, [])
        )
        difference.ideas.append(f"{change.publication.name}@{change.publication.version}")

    return list(differences.values())


def _print_differences(differences: list[_Difference]) -> None:
    for difference in differences:
        verb = "calls" if len(difference.ideas) == 1 else "call"
        show_line(f"{difference.tool}, which {', '.join(difference.ideas)} {verb}:", "bold")
        for line in difference.lines:
            show_line(f"  {line}")
