"""The commands `ideabridge run`, which runs a plan, and `ideabridge solve`, which runs the agent
loop on a task.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.store.run_record import CLIENT
from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    fit,
    print_json,
    print_value,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.inputs import (
    expect_names,
    expect_parameters,
    inputs_taken,
    read_document_at,
    read_input,
    read_solution_at,
)
from ideabridge.server.cli.options import InputOption, Line, Options, command
from ideabridge.server.cli.serve import read_model_option
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, objects_in
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted, readable_json

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.minds.recorded import Recorded
    from ideabridge.bridge.plan import Plan
    from ideabridge.server.cli.follow import Followed


@command("config", "project", "store", "tools", "allow_all", "json")
async def run(
    options: Options,
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="plan.json or program.py; - reads a plan from standard input."
        ),
    ],
    input: InputOption = None,  # noqa: A002
    save_as: Annotated[
        str | None,
        typer.Option(
            "--save-as",
            metavar="NAME",
            help="Publish the run as a tool or, with --dry-run, the plan.",
        ),
    ] = None,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Show the plan, and run it only after you accept it.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show order, reads, writes, approvals and missing input, but run nothing.",
        ),
    ] = False,
    draw: Annotated[
        str | None,
        typer.Option(
            "--draw",
            metavar="mermaid|text",
            help="Print a drawing of the plan, without running anything.",
        ),
    ] = None,
) -> int:
    """Run a plan: calls connected by references, or a program. Each call starts as soon as
    its inputs exist.

    The result goes to standard output, everything else to standard error.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.plan import read_plan
    from ideabridge.bridge.store.publications import check_name
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    raw = read_solution_at(plan, "PROGRAM.py" if plan.endswith(".py") else "PLAN.json")
    parsed = read_plan(raw)
    arguments = read_input(input)
    if arguments is not None:
        parsed = dataclasses.replace(parsed, input={**(parsed.input or {}), **arguments})

    if save_as is not None:
        # Check the name before anything runs. Otherwise, with an invalid name, the calls would take
        # effect although no tool could be published.
        check_name(save_as)

    CLIENT.set("ideabridge run")
    async with Bridge(options.configuration(), standing_rules=True) as bridge:
        _expect_inputs(bridge, parsed, arguments or {})
        if dry_run or draw is not None:
            await _look_at(bridge, parsed, options, rehearses=dry_run, draw=draw, save_as=save_as)
            return ExitCode.DONE

        async with show_connecting(bridge, quiet=options.json):
            run = await bridge.run_plan(parsed, planning="lazy" if lazy else "eager")

        outcome = await follow(run, quiet=options.json)
        if save_as is None:
            return print_result(outcome, options)
        if outcome.code() == ExitCode.DONE:
            return await _print_and_publish(bridge, outcome, save_as, options)

        code = print_result(outcome, options)
        if code == ExitCode.WAITING:
            report(
                f"not published as {save_as!r} yet: after it ends, run `ideabridge ideas publish "
                f"{run.id} {save_as}`"
            )
        else:
            report(f"not published as {save_as!r}: the run did not end without errors")

        return code


def _expect_inputs(bridge: Bridge, plan: Plan, arguments: JSONObject) -> None:
    """Raise `UsageError` if `arguments` has a member that the plan does not read."""
    if not arguments or plan.input_schema is not None:
        # If the input is declared, it is checked when the run starts.
        expect_parameters(arguments, plan.input_schema or {}, "the plan")
        return

    names = inputs_taken(bridge, plan)
    if names is not None:
        expect_names(arguments, sorted(names), "the plan")


async def _look_at(
    bridge: Bridge,
    plan: Plan,
    options: Options,
    *,
    rehearses: bool,
    draw: str | None,
    save_as: str | None,
) -> None:
    """Perform `--dry-run` or `--draw`: print a report on the plan or a drawing of it, without
    running anything.
    """
    from ideabridge.server.cli.connecting import show_connecting

    rehearsal: JSONObject = {}
    drawing: str | None = None
    async with show_connecting(bridge, quiet=options.json):
        if rehearses:
            rehearsal = await _rehearse(bridge, plan)
        if draw is not None:
            drawing = await bridge.draw(plan, cast("Literal['mermaid', 'text']", draw))

    if save_as is not None:
        rehearsal["published"] = await _publish_unrun(bridge, plan, save_as, rehearsal, options)

    _print_rehearsal(rehearsal, drawing, options)


async def _print_and_publish(
    bridge: Bridge, outcome: Followed, name: str, options: Options
) -> ExitCode:
    """Print the result of a run, and publish the run under the given name."""
    from ideabridge.server.cli.follow import print_result

    extra: JSONObject = {}
    if options.json:
        problem = await _publish(bridge, outcome.run.id, name, options, extra)
        code = print_result(outcome, options, extra=extra)
    else:
        # Print the result before publishing, because publishing asks the person questions about it.
        code = print_result(outcome, options)
        problem = await _publish(bridge, outcome.run.id, name, options, extra)

    if problem is not None:
        report(problem)
        return ExitCode.FAILED

    say(
        f"published as {name}; every assistant connected to this store can now call it as a tool",
        "green",
    )
    return code


async def _publish(
    bridge: Bridge, run: str, name: str, options: Options, extra: JSONObject
) -> str | None:
    """Publish the run, and add the result to `extra`.

    Return why the run was not published, or None if it was.
    """
    from ideabridge.bridge.publishing.publish_request import PublishRequest
    from ideabridge.server.cli.publishing import publish

    try:
        publication = await publish(bridge, PublishRequest(run, name), options)
    except IdeabridgeError as error:
        extra["publish_error"] = str(error)
        return f"not published as {name!r}: {error}"

    extra["published"] = {"name": publication.name, "version": publication.version}
    return None


async def _publish_unrun(
    bridge: Bridge, plan: Plan, name: str, rehearsal: JSONObject, options: Options
) -> JSONObject | None:
    """Publish a plan that has not run, with its literals as constants. Return None if this exact
    plan is already published.

    Raises:
        IdeabridgeError: the plan cannot be published; see `Bridge.save_idea`.
    """
    from ideabridge.bridge.publishing.written import plan_document

    missing = rehearsal.get("missing_inputs")
    document = plan_document(plan, name, list_or_empty(missing))
    saved = await bridge.save_idea(document)
    publication = saved.publication
    if publication is None or saved.is_unchanged:
        return None

    if not options.json:
        say(
            f"nothing ran; published as {name}, version {publication.version}, with "
            "its literals as constants",
            "green",
        )

    return {"name": publication.name, "version": publication.version}


def _print_rehearsal(rehearsal: JSONObject, drawing: str | None, options: Options) -> None:
    """Print a dry run, a drawing, or both, as text on a terminal and as JSON otherwise.

    A drawing without a dry run is always printed as text, unless `--json` is set.
    """
    both = rehearsal if drawing is None else {**rehearsal, "drawing": drawing}
    if options.json:
        print_json(both)
    elif not rehearsal:
        print_value(drawing)
    elif sys.stdout.isatty():
        for text, style in _lines(rehearsal, options):
            show_line(fit(text), style)
        if drawing is not None:
            print_value(drawing)
    else:
        print_value(both)


async def _rehearse(bridge: Bridge, plan: Plan) -> JSONObject:
    """Call `Bridge.dry_run`, and add to each call why it would wait for approval (`asks`) or would
    not run (`denied`).
    """
    from ideabridge.bridge.loop.policy import policy_named
    from ideabridge.bridge.offer.plan_tools import PlanTools
    from ideabridge.bridge.store.users import LOCAL

    rehearsal = await bridge.dry_run(plan)
    if plan.program is not None:
        return rehearsal

    catalogue = PlanTools(bridge.offer, plan, LOCAL).present()
    policy = policy_named(bridge.settings().approval)
    for entry in objects_in(rehearsal.get("calls")):
        place = entry.get("place")
        call = plan.calls[place] if isinstance(place, int) else None
        tool = catalogue.look_up(WrittenCall.of(call))
        if tool is None or tool.key in catalogue.latent:
            continue

        verdict = policy(tool, {})
        if verdict.verdict == "ask":
            entry["asks"] = verdict.why
        elif verdict.verdict == "deny":
            entry["denied"] = verdict.why

    return rehearsal


def _lines(rehearsal: JSONObject, options: Options) -> Iterator[Line]:
    if rehearsal.get("program"):
        yield from _program_lines(rehearsal, options)
        return

    calls = {_named(entry): entry for entry in objects_in(rehearsal.get("calls"))}
    layers = [
        [str(name) for name in list_or_empty(layer)]
        for layer in list_or_empty(rehearsal.get("layers"))
    ]
    yield (
        f"{counted(len(calls), 'call')} in {counted(len(layers), 'step')}; nothing was run",
        "bold",
    )
    width = max(map(len, calls), default=1)
    for number, layer in enumerate(layers, 1):
        at_once = f": {len(layer)} calls at the same time" if len(layer) > 1 else ""
        yield f"step {number}{at_once}", "cyan"
        for name in layer:
            yield from _call_lines(name, calls[name], width)

    missing = [str(path) for path in list_or_empty(rehearsal.get("missing_inputs"))]
    if missing:
        keys = dict.fromkeys(path.removeprefix("†input.").split(".")[0] for path in missing)
        arguments = " ".join(f"-i {key}=..." for key in keys)
        yield f"missing input: {', '.join(missing)}; give it with {arguments}", "red"

    asking = [f"{name} ({entry.get('tool')})" for name, entry in calls.items() if "asks" in entry]
    if asking:
        text = f"needs approval: {', '.join(asking)}; you are asked at a terminal; "
        yield f"{text}--allow-all runs them", "yellow"
    elif not options.allow_all:
        yield "nothing needs approval", "green"

    for note in list_or_empty(rehearsal.get("notes")):
        yield f"note: {note}", "dim"


def _call_lines(name: str, entry: JSONObject, width: int) -> Iterator[Line]:
    """Yield lines that describe a call in a plan: its tool, what it needs, and whether it is
    allowed to run.
    """
    module = f"{entry['module']}/" if entry.get("module") else ""
    yield f"  {name:>{width}}  {module}{entry.get('tool')}", None
    indent = " " * (width + 6)
    for label, items in _needs(entry):
        if items:
            yield f"{indent}{label} {', '.join(dict.fromkeys(map(str, items)))}", "dim"

    if "asks" in entry:
        yield f"{indent}asks for approval: {entry['asks']}", "yellow"
    if "denied" in entry:
        yield f"{indent}would be denied: {entry['denied']}", "red"


def _program_lines(rehearsal: JSONObject, options: Options) -> Iterator[Line]:
    tools = objects_in(rehearsal.get("tools"))
    yield f"the program can call {counted(len(tools), 'tool')}; nothing was run", "bold"
    for entry in tools:
        yield f"  {entry['signature']}", None
        for key, label, style in (
            ("asks", "asks for approval", "yellow"),
            ("denied", "would be denied", "red"),
        ):
            if key in entry:
                yield f"      {label}: {entry[key]}", style

    for pair in list_or_empty(rehearsal.get("renamed")):
        yield f"note: {' is called '.join(map(str, list_or_empty(pair)))}", "dim"

    if not options.allow_all and not any("asks" in entry for entry in tools):
        yield "nothing needs approval", "green"


def _needs(entry: JSONObject) -> Iterator[tuple[str, list[JSON]]]:
    """Yield labelled lists of what a call reads, writes and waits for."""
    ordered = list_or_empty(entry.get("ordered_after"))
    yield "reads", list_or_empty(entry.get("reads"))
    yield "writes", list_or_empty(entry.get("writes"))
    yield (
        "waits for",
        [place for place in list_or_empty(entry.get("after")) if place not in ordered],
    )
    yield "keeps its order after", ordered


def _named(entry: JSONObject) -> str:
    if entry.get("instance"):
        return f"{entry.get('place')} ({entry['instance']})"
    return str(entry.get("place"))


def _read_context(place: str) -> list[JSON]:
    """Read the messages in the file given by `--context`, and report the names of ignored
    members.
    """
    from ideabridge.bridge.arguments import read_context_document

    messages, unread = read_context_document(read_document_at(place, "--context"), "--context")
    if unread:
        say(f"--context: not read: {', '.join(unread)[:200]}", "dim")
    return messages


@command("config", "project", "store", "tools", "allow_all", "json")
async def solve(
    options: Options,
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="What to do, in words. Not needed with --context."),
    ] = None,
    input: InputOption = None,  # noqa: A002
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="FILE",
            help="Messages that precede the task, as JSON or YAML; - is standard input.",
        ),
    ] = None,
    output_schema: Annotated[
        list[str] | None,
        typer.Option(
            "--output-schema",
            metavar="JSON|@FILE",
            help="JSON Schema of the output. Default: text.",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            "-t",
            metavar="TOOL",
            help="A tool or idea to offer, or a pattern; may be repeated.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="A lower limit: requests=10, calls=50; may be repeated.",
        ),
    ] = None,
    mind: Annotated[
        Literal["auto", "turns", "model"],
        typer.Option(
            "--mind",
            metavar="auto|model|turns",
            help=(
                "Who answers: the configured model, or you on standard input (turns). "
                "auto: the model, if any."
            ),
        ),
    ] = "auto",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="PROVIDER:MODEL", help="The model that answers: openai:gpt-5-mini."
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="STORE|FILE",
            help="Answer from a recording: a store, or a file of --record.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="FILE", help="Write every request and its solution to a file."
        ),
    ] = None,
    thought_process: Annotated[
        bool | None,
        typer.Option(
            "--thought-process/--no-thought-process",
            help="Whether the mind writes its reasoning before the calls. Default: as configured.",
        ),
    ] = None,
    shown: Annotated[
        list[str] | None,
        typer.Option(
            "--shown",
            metavar="NAME=BYTES",
            help=(
                "How many bytes of results the mind sees: value=8192 of one, request=65536 of "
                "all; may be repeated."
            ),
        ),
    ] = None,
) -> int:
    """Solve a task: a mind chooses calls and sees their results, until it gives the output.

    With `--mind turns`, each solution is read from standard input as one JSON object. The result
    goes to standard output, everything else to standard error.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.context.shown import read_shown
    from ideabridge.bridge.minds.choice import choose
    from ideabridge.bridge.minds.recorded import recording
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    if task is None and context is None:
        raise UsageError("expected a TASK, or --context FILE with messages that say what to do")
    if context == "-" and mind == "turns":
        raise UsageError(
            "--context -: standard input is used for the solutions; name a file instead"
        )
    if replay is not None and (mind != "auto" or model is not None):
        raise UsageError("--replay cannot be combined with --mind or --model")
    if record is not None and not record.expanduser().absolute().parent.is_dir():
        raise UsageError(f"--record: {record.parent.absolute()} is not a folder")

    arguments = read_input(input)
    _expect_inputs_of_task(task or "", arguments or {})
    schema = read_input(output_schema, "--output-schema")
    limits = read_input(limit, "--limit")
    bytes_shown = None if shown is None else read_shown(read_input(shown, "--shown"))
    messages = [] if context is None else _read_context(context)
    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_model_option(model)})

    async with AsyncExitStack() as stack:
        recorded: Recorded | None = None
        if replay is not None:
            recorded = stack.enter_context(recording(replay.expanduser().absolute()))

        bridge = await stack.enter_async_context(
            Bridge(configuration, mind=recorded, standing_rules=True)
        )
        async with show_connecting(bridge, quiet=options.json):
            run = await bridge.solve(
                task,
                input=arguments,
                context=messages,
                output_schema=schema,
                tools=tool,
                limits=limits,
                mind=choose(mind, bridge.mind),
                thought_process=thought_process,
                shown=bytes_shown,
            )

        if not options.json:
            say(f"mind: {run.turns.mind} ({run.turns.why})", "dim")

        outcome = await follow(run, quiet=options.json, by_turns=True)
        if record is None:
            return print_result(outcome, options)
        return _print_and_record(bridge, outcome, record, options)


def _expect_inputs_of_task(task: str, arguments: JSONObject) -> None:
    """Raise `UsageError` if the input has a member that the task does not read, and lacks one that
    it does: the name might be misspelled. Otherwise, a task accepts every member, because the mind
    sees the whole input.
    """
    names = {match["name"] for match in _READ_BY_TASK.finditer(task)}
    if arguments and not names <= arguments.keys():
        expect_names(arguments, sorted(names), "the task")


_READ_BY_TASK: Final = re.compile(r"†input\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)")


def _print_and_record(bridge: Bridge, outcome: Followed, file: Path, options: Options) -> ExitCode:
    """Write the Requests and Solutions of a run to a file, and print the result of the run."""
    from ideabridge.bridge.minds.recorded import recording_of
    from ideabridge.server.cli.follow import print_result
    from ideabridge.server.cli.sharing import write_text

    export = partial(bridge.export_idea, results=True)
    try:
        documents: list[JSON] = [*recording_of(bridge.store, outcome.run.id, export)]
        write_text(file.expanduser(), readable_json(documents, 1) + "\n")
    except IdeabridgeError as error:
        # Print the result even though it cannot be recorded, because it has already cost money.
        code = print_result(outcome, options, extra={"recorded": None})
        report(f"--record: {error}")
        return code or ExitCode.FAILED

    code = print_result(outcome, options, extra={"recorded": str(file)})
    if not options.json:
        say(f"recorded in {file}: ideabridge solve ... --replay {file}", "green")

    return code
