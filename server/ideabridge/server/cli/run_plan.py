"""`ideabridge run PLAN.json`: run a plan here, and see its calls start and finish."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ideabridge.server.cli.inputs import read_input, read_json
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.loop.settings import Planning
    from ideabridge.bridge.plan import Plan


@command("config", "project", "store", "tools", "allow_all", "json")
def run(
    options: Options,
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="The plan; - reads it from standard input.")],
    input: InputOption = None,  # noqa: A002 - the vocabulary's word
    save_as: Annotated[
        str | None, typer.Option("--save-as", metavar="NAME", help="Publish the run as a tool of this name.")
    ] = None,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Show the plan, and run nothing of it before you have accepted it.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing: tell the order, what runs in parallel, reads and writes.")
    ] = False,
    draw: Annotated[
        str | None, typer.Option("--draw", metavar="mermaid|text", help="Run nothing: print a drawing of the plan.")
    ] = None,
) -> int:
    """Run a plan: calls wired by references, each started the moment its inputs exist.

    The result goes to standard output, everything else to standard error.
    """
    import anyio

    raw = read_json(plan, "PLAN.json")
    given = read_input(input)
    planning = "lazy" if lazy else "eager"
    return anyio.run(_run, options, raw, given, planning, save_as, dry_run, draw)


async def _run(
    options: Options,
    raw: JSON,
    given: JSONObject | None,
    planning: str,
    save_as: str | None,
    dry: bool,
    draw: str | None,
) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.plan import read_plan
    from ideabridge.server.cli.console import report, say
    from ideabridge.server.cli.exits import ExitCode
    from ideabridge.server.cli.follow import follow, tell
    from ideabridge.tools.errors import IdeabridgeError

    plan = read_plan(raw)
    if given is not None:
        plan = dataclasses.replace(plan, input={**(plan.input or {}), **given})
    configuration = options.configuration()
    async with Bridge(configuration) as bridge:
        if dry or draw is not None:
            await _rehearse(bridge, plan, options, dry, draw)
            return ExitCode.DONE
        run = await bridge.run_plan(plan, planning=cast("Planning", planning))
        outcome = await follow(run, quiet=options.json)
        extra: JSONObject = {}
        problem: str | None = None
        if save_as is not None and outcome.code() == ExitCode.DONE:
            try:
                publication = bridge.publish(run.id, save_as)
                extra["published"] = {"name": publication.name, "version": publication.version}
            except IdeabridgeError as error:
                problem = str(error)
                extra["publish_error"] = problem
        code = tell(outcome, json=options.json, extra=extra)
        if problem is not None:
            report(f"not published as {save_as!r}: {problem}")
            return ExitCode.FAILED
        if "published" in extra:
            say(f"published as {save_as}; every assistant connected to this store has it as a tool now", "green")
        elif save_as is not None:
            report(f"not published as {save_as!r}: the run did not end without errors")
        return code


async def _rehearse(bridge: Bridge, plan: Plan, options: Options, dry: bool, draw: str | None) -> None:
    """Tell what the plan would do: with --json as one value, else the drawing as it is."""
    from ideabridge.server.cli.console import print_json, print_value

    told = await bridge.dry_run(plan) if dry else {}
    drawing = None if draw is None else await bridge.draw(plan, cast("Literal['mermaid', 'text']", draw))
    if drawing is not None and (options.json or dry):
        told = {**told, "drawing": drawing}
    if options.json:
        print_json(told)
    else:
        print_value(told if dry or drawing is None else drawing)
