"""`ideabridge run`, which runs a plan, and `ideabridge solve`, which runs the agent loop on a task."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ideabridge.server.cli.console import ExitCode, UsageError, counted, fit, print_json, print_value, report, say, show
from ideabridge.server.cli.inputs import read_input, read_json
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.server.cli.serve import read_option
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.loop.settings import Planning
    from ideabridge.bridge.minds.settings import ModelConfiguration
    from ideabridge.bridge.plan import Plan


# -- run plan --------------------------------------------------------------------------------------------------------


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
        bool,
        typer.Option("--dry-run", help="Run nothing: show order, reads, writes, what asks, what is missing."),
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
    from ideabridge.bridge.store.publications import check_name
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    plan = read_plan(raw)
    if given is not None:
        plan = dataclasses.replace(plan, input={**(plan.input or {}), **given})
    if save_as is not None:
        # Before anything runs: what it did would be done, and no tool.
        check_name(save_as)
    async with Bridge(options.configuration()) as bridge:
        if dry or draw is not None:
            async with show_connecting(bridge, quiet=options.json):
                told, drawing = await _rehearse(bridge, plan, dry, draw)
            _print_rehearsal(told, drawing, options, dry)
            return ExitCode.DONE
        async with show_connecting(bridge, quiet=options.json):
            run = await bridge.run_plan(plan, planning=cast("Planning", planning))
        outcome = await follow(run, quiet=options.json)
        extra: JSONObject = {}
        if save_as is None or options.json or outcome.code() != ExitCode.DONE:
            problem = None
            if save_as is not None and outcome.code() == ExitCode.DONE:
                problem = await _publish(bridge, run.id, save_as, options, extra)
            code = print_result(outcome, options, extra=extra)
        else:
            # The result first: what is asked then is about it.
            code = print_result(outcome, options)
            problem = await _publish(bridge, run.id, save_as, options, extra)
        if problem is not None:
            report(problem)
            return ExitCode.FAILED
        if "published" in extra:
            say(f"published as {save_as}; every assistant connected to this store has it as a tool now", "green")
        elif save_as is not None and code == ExitCode.WAITING:
            report(
                f"not published as {save_as!r} yet: once it has ended, `ideabridge ideas publish {run.id} {save_as}`"
            )
        elif save_as is not None:
            report(f"not published as {save_as!r}: the run did not end without errors")
        return code


async def _publish(bridge: Bridge, run: str, name: str, options: Options, extra: JSONObject) -> str | None:
    """Publish the run, and note it in `extra`; what must be decided first is asked at a terminal.

    Returns:
        Why it is not published; None: it is.
    """
    from ideabridge.server.cli.publishing import publish

    try:
        publication = await publish(bridge, run, name, options)
    except IdeabridgeError as error:
        extra["publish_error"] = str(error)
        return f"not published as {name!r}: {error}"
    if publication is None:
        return f"not published as {name!r}: you gave up; `ideabridge ideas publish {run} {name}` asks again"
    extra["published"] = {"name": publication.name, "version": publication.version}
    return None


async def _rehearse(bridge: Bridge, plan: Plan, dry: bool, draw: str | None) -> tuple[JSONObject, str | None]:
    """What the plan would do, and the drawing of it."""
    told = await _dry_run_json(bridge, plan) if dry else {}
    drawing = None if draw is None else await bridge.draw(plan, cast("Literal['mermaid', 'text']", draw))
    return told, drawing


def _print_rehearsal(told: JSONObject, drawing: str | None, options: Options, dry: bool) -> None:
    """Show what the plan would do: readable at a terminal, else one JSON value; the drawing alone as it is."""
    if drawing is not None and (options.json or dry):
        told = {**told, "drawing": drawing}
    if options.json:
        print_json(told)
    elif dry and sys.stdout.isatty():
        for text, style in _lines(told, options):
            show(fit(text), style)
        if drawing is not None:
            print_value(drawing)
    else:
        print_value(told if dry or drawing is None else drawing)


async def _dry_run_json(bridge: Bridge, plan: Plan) -> JSONObject:
    """`Bridge.dry_run`, and of each call `asks` or `denied`: why it would wait for approval, or not run at all."""
    from ideabridge.bridge.loop.policy import policy_named
    from ideabridge.bridge.store.users import LOCAL

    told = await bridge.dry_run(plan)
    catalogue, policy = bridge.offer.of_plan(plan, LOCAL), policy_named(bridge.settings().approval)
    for entry in _objects(told.get("calls")):
        place = entry.get("place")
        call = plan.calls[place] if isinstance(place, int) else None
        tool = catalogue.look_up(call) if isinstance(call, dict) else None
        verdict = None if tool is None or tool.key in catalogue.latent else policy(tool, {})
        if verdict is not None and verdict.verdict != "allow":
            entry["asks" if verdict.verdict == "ask" else "denied"] = verdict.why
    return told


def _lines(told: JSONObject, options: Options) -> Iterator[tuple[str, str | None]]:
    """What the plan would do, for people: (text, style) of each line."""
    calls = {_named(entry): entry for entry in _objects(told.get("calls"))}
    layers = [[str(name) for name in layer] for layer in _lists(told.get("layers"))]
    yield f"{counted(len(calls), 'call')} in {counted(len(layers), 'step')}; nothing was run", "bold"
    width = max((len(name) for name in calls), default=1)
    for number, layer in enumerate(layers, 1):
        together = f": {len(layer)} calls side by side" if len(layer) > 1 else ""
        yield f"step {number}{together}", "cyan"
        for name in layer:
            entry = calls[name]
            module = f"{entry['module']}/" if entry.get("module") else ""
            yield f"  {name:>{width}}  {module}{entry.get('tool')}", None
            indent = " " * (width + 6)
            for label, listed in _needs(entry):
                if listed:
                    yield f"{indent}{label} {', '.join(dict.fromkeys(map(str, listed)))}", "dim"
            if "asks" in entry:
                yield f"{indent}asks for approval: {entry['asks']}", "yellow"
            if "denied" in entry:
                yield f"{indent}would be denied: {entry['denied']}", "red"
    missing = [str(one) for one in _list(told.get("missing_inputs"))]
    if missing:
        keys = dict.fromkeys(one.removeprefix("†input.").split(".")[0] for one in missing)
        yield f"missing input: {', '.join(missing)}; give it with {' '.join(f'-i {key}=...' for key in keys)}", "red"
    asking = [f"{name} ({entry.get('tool')})" for name, entry in calls.items() if "asks" in entry]
    if asking:
        yield f"needs approval: {', '.join(asking)}; you are asked at a terminal, --allow-all runs them", "yellow"
    elif not options.allow_all:
        yield "nothing needs approval", "green"
    for note in _list(told.get("notes")):
        yield f"note: {note}", "dim"


def _needs(entry: JSONObject) -> Iterator[tuple[str, list[JSON]]]:
    """What a call reads, writes and waits for: (label, what)."""
    ordered = _list(entry.get("ordered_after"))
    yield "reads", _list(entry.get("reads"))
    yield "writes", _list(entry.get("writes"))
    yield "waits for", [one for one in _list(entry.get("after")) if one not in ordered]
    yield "keeps its order after", ordered


def _named(entry: JSONObject) -> str:
    return f"{entry.get('place')} ({entry['instance']})" if entry.get("instance") else str(entry.get("place"))


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _lists(value: JSON) -> list[list[JSON]]:
    return [one for one in _list(value) if isinstance(one, list)]


def _objects(value: JSON) -> list[JSONObject]:
    return [one for one in _list(value) if isinstance(one, dict)]


# -- solve -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    text: str
    input: JSONObject | None
    output_schema: JSONObject | None
    tools: list[str] | None
    limits: JSONObject | None
    mind: str
    replay: Path | None
    record: Path | None
    thought_process: bool | None


@command("config", "project", "store", "tools", "allow_all", "json")
def solve(
    options: Options,
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to do, in words.")],
    input: InputOption = None,  # noqa: A002 - the vocabulary's word
    output_schema: Annotated[
        list[str] | None,
        typer.Option("--output-schema", metavar="JSON|@FILE", help="JSON Schema of the output. Default: text."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", "-t", metavar="TOOL", help="A tool to offer, or a pattern (git_*); may be repeated."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=NUMBER", help="A lower limit: requests=10, calls=50; may be repeated."),
    ] = None,
    mind: Annotated[
        Literal["auto", "turns", "model"],
        typer.Option(
            "--mind",
            metavar="auto|model|turns",
            help="Who answers: the configured model, or by turns standard input. auto: a model where it is.",
        ),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option("--model", metavar="PROVIDER:MODEL", help="The model that answers: openai:gpt-5-mini.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="STORE|FILE", help="Answer from a recording: a store, or what --record wrote."
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Write every request and its solution into a file.")
    ] = None,
    thought_process: Annotated[
        bool | None,
        typer.Option(
            "--thought-process/--no-thought-process",
            help="Whether the mind writes its reasoning before the calls. Default: as configured.",
        ),
    ] = None,
) -> int:
    """Solve a task: a mind is asked for calls and sees what comes of them, until it gives the output.

    By turns, each solution is read from standard input as one JSON object. The result goes to standard output,
    everything else to standard error.
    """
    import anyio

    if replay is not None and (mind != "auto" or model is not None):
        raise UsageError("--replay answers by itself; it goes with neither --mind nor --model")
    if record is not None and not record.expanduser().absolute().parent.is_dir():
        raise UsageError(f"--record: {record.parent} is no folder")
    wanted = _Task(
        task,
        read_input(input),
        read_input(output_schema, "--output-schema"),
        tool,
        read_input(limit, "--limit"),
        mind,
        replay,
        record,
        thought_process,
    )
    return anyio.run(_solve, options, wanted, None if model is None else read_option(model))


async def _solve(options: Options, task: _Task, model: ModelConfiguration | None) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.minds.choice import choose
    from ideabridge.bridge.minds.recorded import recording
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": model})
    with ExitStack() as stack:
        recorded = None if task.replay is None else stack.enter_context(recording(task.replay.expanduser()))
        async with Bridge(configuration, mind=recorded) as bridge:
            async with show_connecting(bridge, quiet=options.json):
                run = await bridge.solve(
                    task.text,
                    input=task.input,
                    output_schema=task.output_schema,
                    tools=task.tools,
                    limits=task.limits,
                    mind=choose(task.mind, bridge.mind),
                    thought_process=task.thought_process,
                )
            if not options.json:
                say(f"mind: {run.turns.mind} ({run.turns.why})", "dim")
            outcome = await follow(run, quiet=options.json, by_turns=True)
            extra: JSONObject = {}
            fault: str | None = None
            if task.record is not None:
                try:
                    extra["recorded"] = _record(bridge, run.id, task.record)
                except IdeabridgeError as error:
                    # What the run gave was paid for: it is told all the same.
                    extra["recorded"], fault = None, str(error)
            code = print_result(outcome, options, extra=extra)
            if fault is not None:
                report(f"--record: {fault}")
                return code or ExitCode.FAILED
            if task.record is not None and not options.json:
                say(f"recorded in {task.record}: ideabridge solve ... --replay {task.record}", "green")
            return code


def _record(bridge: Bridge, run_id: str, path: Path) -> str:
    """Write the ideas of a run into a file."""
    from ideabridge.bridge.minds.recorded import recording_of
    from ideabridge.server.cli.sharing import write_file

    documents: list[JSON] = [*recording_of(bridge.store, run_id, bridge.export_idea)]
    text = json.dumps(documents, ensure_ascii=False, indent=1) + "\n"
    write_file(path.expanduser(), printable(text))
    return str(path)
