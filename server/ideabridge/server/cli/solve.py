"""`ideabridge solve TASK`: the agent loop on a task, with a model, a recording, or standard input as its mind."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ideabridge.server.cli.inputs import read_input
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.server.cli.serve import read_option
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.visible import printable

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration


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

    from ideabridge.server.cli.exits import UsageError

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
    from ideabridge.server.cli.connecting import showing
    from ideabridge.server.cli.console import report, say
    from ideabridge.server.cli.exits import ExitCode
    from ideabridge.server.cli.follow import follow, tell

    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": model})
    with ExitStack() as stack:
        recorded = None if task.replay is None else stack.enter_context(recording(task.replay.expanduser()))
        async with Bridge(configuration, mind=recorded) as bridge:
            async with showing(bridge, quiet=options.json):
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
            code = tell(outcome, options, extra=extra)
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
