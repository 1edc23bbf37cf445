"""The commands in `ideabridge ideas` that lift, publish, share, call and verify ideas, and select
the version that a name refers to.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.completion import complete_names
from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    first_line,
    fit,
    print_json,
    print_value,
    say,
    show_line,
    terminal_width,
    working,
)
from ideabridge.server.cli.ideas import RefArgument, app, publication_json
from ideabridge.server.cli.inputs import (
    ask_input,
    expect_parameters,
    read_input,
    value_of,
)
from ideabridge.server.cli.options import InputOption, Line, Options, command
from ideabridge.server.cli.stores import (
    lookup_called,
    lookup_idea,
    open_bridge,
    open_store,
    resolve_idea,
)
from ideabridge.server.views.text import shortened_json, source_text
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text, object_or_empty
from ideabridge.tools.errors import ValueMismatchError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import counted
from ideabridge.tools.typed import read_as

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.publish_request import PublishRequest
    from ideabridge.bridge.publishing.suggestions import Suggestion
    from ideabridge.bridge.store.idea import Publication

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_names, help="The published name.")
]
VersionArgument = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="One version of a published name.")
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="me|all|USER,...",
        help="Who can use the tool. Default: as before; for a new name, everybody.",
    ),
]
TakeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--take",
        metavar="PATH=REFERENCE",
        help=(
            "Where a copied value comes from, such as calls.0.repo=†input.repo; "
            "PATH=keep keeps the recorded value."
        ),
    ),
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="NAME=NEW", help="Rename a parameter."),
]
MergeOption = Annotated[
    list[str] | None,
    typer.Option("--merge", metavar="NAME=OTHER", help="Use OTHER in place of NAME."),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix", metavar="NAME", help="Keep the recorded value instead of making it a parameter."
    ),
]
DescribeOption = Annotated[
    list[str] | None, typer.Option("--describe", metavar="NAME=TEXT", help="Describe a parameter.")
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option("--require", metavar="NAME", help="Callers must pass this parameter."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=PATH",
        help="Make the value at PATH a parameter; may be repeated.",
    ),
]
OrSolveOption = Annotated[
    bool, typer.Option("--or-solve", help="A mind continues where the plan cannot.")
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict", help="Ask before any assumed value is used, even in calls that only read."
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="RUN", help="Another run of the same task, or a session; may be repeated."
    ),
]


CallsOption = Annotated[
    str | None,
    typer.Option(
        "--calls",
        metavar="FIRST-LAST",
        help="Only these calls of a run or session, counted from 0: 2-5.",
    ),
]


ProgramOption = Annotated[
    str | None,
    typer.Option(
        "--program",
        metavar="FILE|ask|show",
        help="A program that does what the run did, also for different input. ask: the configured "
        "model writes it, in at most three attempts. show: print what it must do, and "
        "publish nothing.",
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="JSON",
        help=(
            "With a program in a FILE: an array with the input of each run, "
            "beyond what the run was given."
        ),
    ),
]

_ASK: Final = "ask"
_SHOW: Final = "show"

_MOST_OPEN_POINTS: Final = 5
"""Maximum number of open points that are shown."""


@dataclass(frozen=True, slots=True)
class _ProgramChoice:
    """The program option (`ask`, `show`, or the text of a file) and the inputs of the runs."""

    program: str
    is_text: bool
    inputs: list[JSON] | None


def _read_program(
    program: str | None, inputs: str | None, *, no_program: bool
) -> _ProgramChoice | None:
    """Read the program options. Return None if they do not ask for a program.

    Raises:
        UsageError: the options contradict each other, or the file cannot be read.
    """
    if program is None:
        if inputs is not None:
            raise UsageError("--inputs requires --program FILE")
        return None

    if no_program:
        raise UsageError("--no-program cannot be combined with --program")

    listed = decode(inputs, what="--inputs") if inputs is not None else None
    if listed is not None and (not isinstance(listed, list) or program in (_ASK, _SHOW)):
        raise UsageError(
            "--inputs: expected an array with an object for each run, together with --program FILE"
        )

    if program in (_ASK, _SHOW):
        return _ProgramChoice(program, False, None)

    try:
        text = Path(program).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--program: {program[:200]!r} cannot be read: {error}") from None

    return _ProgramChoice(text, True, listed)


def calls_option(text: str | None) -> list[int] | None:
    """Read the `--calls` option as [first, last]. A single number is both.

    Raises:
        UsageError: the option is not FIRST-LAST.
    """
    if text is None:
        return None
    numbers = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    if numbers is None:
        raise UsageError(f"--calls: expected FIRST-LAST, such as 2-5, found {text[:80]!r}")
    return [int(numbers[1]), int(numbers[2] or numbers[1])]


def choices_of_options(
    options: Options, take: list[str] | None, runs: list[str] | None
) -> JSONObject:
    """Return the options in the form of the `choices` of `Bridge.lift`. `--take` can also be an
    explanation: `PATH={"item_of": ...}`.

    Raises:
        UsageError: `--take` is not PATH=REFERENCE.
        UnknownIdeaError: `--with` names no run, idea or session.
    """
    choices: JSONObject = {}
    references: JSONObject = {}
    for path, value in _pairs("--take", "PATH=REFERENCE", take):
        if value.startswith("{"):
            references[path] = decode(value, what="--take")
        else:
            references[path] = value

    if references:
        choices["take"] = references

    if runs:
        choices["runs"] = [lookup_called(options, run) for run in runs]

    return choices


def read_parameters(
    rename: list[str] | None,
    merge: list[str] | None,
    fix: list[str] | None,
    describe: list[str] | None,
    require: list[str] | None,
    parameter: list[str] | None,
) -> JSONObject:
    """Return the options in the form of the `parameters` of `Bridge.publish`.

    Raises:
        UsageError: an option lacks a `=`.
    """
    decisions: dict[str, JSONObject] = {}
    for name, path in _pairs("--parameter", "NAME=PATH", parameter):
        at = decisions.setdefault(name, {}).setdefault("at", [])
        if isinstance(at, list):
            at.append(path)

    for name, new in _pairs("--rename", "NAME=NEW", rename):
        decisions.setdefault(name, {})["rename"] = new

    for name, target in _pairs("--merge", "NAME=OTHER", merge):
        decisions.setdefault(name, {})["merge"] = target

    for name, text in _pairs("--describe", "NAME=TEXT", describe):
        decisions.setdefault(name, {})["description"] = text

    for name in fix or []:
        decisions.setdefault(name, {})["fix"] = True

    for name in require or []:
        decisions.setdefault(name, {})["required"] = True

    return dict[str, JSON](decisions)


def _pairs(option: str, form: str, texts: list[str] | None) -> Iterator[tuple[str, str]]:
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option}: expected {form}, found {text[:80]!r}")
        yield name, value


async def _called_run(bridge: Bridge, ref: str, part: list[int] | None) -> str:
    """Turn a direct-call session, or some of the calls of a session or run, into a run, and return
    its id. Any other `ref` is returned unchanged.
    """
    from ideabridge.bridge.runs.direct import SESSION
    from ideabridge.bridge.store.users import LOCAL

    if ref == SESSION:
        ref = bridge.direct_sessions.find(LOCAL)
    return await bridge.direct_sessions.part(ref, part, LOCAL)


async def _with_called_runs(bridge: Bridge, choices: JSONObject) -> JSONObject:
    """Return the choices, with each direct-call session in `runs` replaced by the run that was
    created from it.
    """
    runs = choices.get("runs")
    if not isinstance(runs, list):
        return choices
    return {**choices, "runs": [await _called_run(bridge, str(run), None) for run in runs]}


@app.command("lift")
@command("config", "project", "store", "tools", "allow_all", "json")
async def lift_run(
    options: Options,
    ref: Annotated[
        str, typer.Argument(metavar="RUN", help="A run (`last`: the newest), or an idea.")
    ],
    take: TakeOption = None,
    runs: WithOption = None,
    rename: RenameOption = None,
    merge: MergeOption = None,
    fix: FixOption = None,
    describe: DescribeOption = None,
    require: RequireOption = None,
    parameter: ParameterOption = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Also run the plan, if it only reads (or with --allow-all)."),
    ] = False,
) -> int:
    """Show the tool that a run would become: its parameters, and what each copied value might be
    for other data.

    The exit code is 1 if the plan does not do what the run did.
    """
    from ideabridge.bridge.lifting.report import ToolReport, report_lines, report_of
    from ideabridge.bridge.store.users import LOCAL
    from ideabridge.server.cli.connecting import connected

    choices = choices_of_options(options, take, runs)
    parameters = read_parameters(rename, merge, fix, describe, require, parameter)
    ref = lookup_idea(options, ref)
    async with connected(open_bridge(options)) as bridge:
        choices = await _with_called_runs(bridge, choices)
        draft = bridge.lift(ref, parameters=parameters, choices=choices)
        report = report_of(draft, bridge.store, LOCAL)
        lines = report_lines(report, terminal_width())
        different = None
        if live:
            function = draft.lifted.function
            plan = draft.with_input(draft.arguments(draft.lifted.aligned))
            reason, different = await bridge.drift(
                plan, function.run.result, effects=options.allow_all
            )
            report["live"] = {"not_run": reason, "difference": different}
            if reason is not None:
                result = f"not run: {reason}"
            else:
                result = different or "when run again, it gives the same result"

            lines.append(
                (
                    f"live: {result}",
                    "yellow" if reason is not None or different is not None else "green",
                )
            )

    options.print_lines(report, ((fit(text, 4), style) for text, style in lines))
    is_same = different is None and read_as(ToolReport, report).consistent
    return 0 if is_same else 1


@app.command("verify")
@command("config", "project", "store", "tools", "allow_all", "json")
async def verify_ideas(
    options: Options,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            autocompletion=complete_names,
            help="Published names. Default: all.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option(help="Run plans that only read (with --allow-all: every plan).")
    ] = True,
) -> int:
    """Check that published ideas still work: their tools are unchanged, and their plans give
    the same results.

    The exit code is 1 if an idea no longer works.
    """
    async with open_bridge(options) as bridge:
        with working("checking published ideas", quiet=options.json):
            verdicts = await bridge.verify(names or [], live=live, effects=options.allow_all)

    if options.json:
        print_json({"ideas": [{**asdict(entry), "holds": not entry.faults} for entry in verdicts]})
    elif not verdicts:
        say("nothing is published")
    else:
        for verdict in verdicts:
            notes = f" ({'; '.join(verdict.notes)})" if verdict.notes else ""
            mark, style = ("fails the check", "red") if verdict.faults else ("holds", "green")
            show_line(f"{verdict.name}, version {verdict.version}: {mark}{notes}", style)
            for fault in verdict.faults:
                show_line(f"  {fault}")

    return 1 if any(verdict.faults for verdict in verdicts) else 0


async def publish(
    bridge: Bridge, request: PublishRequest, options: Options, *, wants_program: bool = True
) -> Publication:
    """Publish an idea or a run. Without `--json`, show the published tool.

    Args:
        bridge: the bridge that publishes.
        request: what to publish.
        options: the options of the command.
        wants_program: whether to show what the copied values leave open, and how a program would
            settle it.

    Raises:
        PublicationError: the idea or run cannot be published in this way.
        UnknownIdeaError, UnknownRunError, PublicationNameError: see `Bridge.publish`.
    """
    from ideabridge.bridge.loop.event import AT_TERMINAL, BY_COMMAND

    by = AT_TERMINAL if at_terminal() else BY_COMMAND
    published = await bridge.saver.publish_run(replace(request, by=by))
    if not options.json:
        _say_report(published)
        if wants_program and bridge.configuration.programs:
            _say_open(published, request.ref)

    return published


async def publish_suggestion(
    bridge: Bridge, suggestion: Suggestion, options: Options
) -> Publication:
    """Publish the tool that a suggestion describes, as the suggested command would.

    Raises:
        PublicationError: the tool cannot be published.
    """
    from ideabridge.bridge.lifting.choices import read_choices
    from ideabridge.bridge.publishing.publish_request import PublishRequest

    latest, *others = (occurrence.ref for occurrence in suggestion.occurrences)
    choices = await _with_called_runs(bridge, choices_of_options(options, None, others))
    ref = await _called_run(bridge, lookup_called(options, latest), None)
    parameters = read_parameters(None, None, None, None, suggestion.required, None)
    request = PublishRequest(
        ref, suggestion.name, parameters=parameters, choices=read_choices(choices)
    )
    return await publish(bridge, request, options)


@app.command("publish")
@command("config", "project", "store", "tools", "json")
async def publish_idea(
    options: Options,
    ref: RefArgument,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the tool: a-z, 0-9 and _.")
    ],
    description: Annotated[
        str | None,
        typer.Option(
            "--description", "-d", metavar="TEXT", help="A description of the tool for assistants."
        ),
    ] = None,
    answer: Annotated[
        Literal["auto", "recorded", "plan", "program", "solve"],
        typer.Option(
            "--answer",
            metavar="auto|recorded|plan|program|solve",
            help="recorded: the stored answer, for the recorded input. plan, program: run it with "
            "new input. solve: ask a mind again, guided by the plan. auto: the program or "
            "plan if there is one, else solve.",
        ),
    ] = "auto",
    take: TakeOption = None,
    runs: WithOption = None,
    rename: RenameOption = None,
    merge: MergeOption = None,
    fix: FixOption = None,
    describe: DescribeOption = None,
    require: RequireOption = None,
    parameter: ParameterOption = None,
    strict: StrictOption = False,
    or_solve: OrSolveOption = False,
    to: ToOption = None,
    calls: CallsOption = None,
    program: ProgramOption = None,
    inputs: InputsOption = None,
    no_program: Annotated[
        bool, typer.Option("--no-program", help="Do not ask for a program.")
    ] = False,
) -> int:
    """Publish an idea, or the last idea of a run, as a tool for every assistant connected to this
    store.

    Its constants become parameters with the recorded values as defaults. Where the run copied a
    value from its input or from an earlier result, the tool's calls read the value from the same
    place. If the run does not determine what the tool does with other input, the command says so,
    and a program can settle it (--program). `ideas lift` shows the tool before it is published.

    The REF `session` stands for the latest direct calls of an assistant.
    """
    from ideabridge.bridge.lifting.choices import read_choices
    from ideabridge.bridge.publishing.publish_request import PublishRequest
    from ideabridge.server.cli.connecting import connected

    choices = choices_of_options(options, take, runs)
    parameters = read_parameters(rename, merge, fix, describe, require, parameter)
    part = calls_option(calls)
    chosen = _read_program(program, inputs, no_program=no_program)
    ref = lookup_called(options, ref)
    async with connected(open_bridge(options)) as bridge:
        ref = await _called_run(bridge, ref, part)
        choices = await _with_called_runs(bridge, choices)
        request = PublishRequest(
            ref,
            name,
            description=description,
            answer=answer,
            parameters=parameters,
            choices=read_choices(choices),
            strict=strict,
            or_solve=or_solve,
            to=to,
        )
        if chosen is not None and not chosen.is_text and chosen.program == _SHOW:
            program_request = await bridge.program_request(
                *request.refs, name=name, description=description
            )
            options.print_or_say(program_request.to_json(), program_request.text)
            return 0

        # Connect the servers, because the definitions of their tools say what is read-only and what
        # is required.
        if chosen is not None:
            publication = await _publish_program(bridge, request, options, chosen)
        else:
            publication = await publish(bridge, request, options, wants_program=not no_program)

        change = bridge.store.change_of(publication)
        shares = bridge.store.publications.shares(name)

    if options.json:
        print_json({**publication_json(publication), "breaking": list[JSON](change.breaking)})
    else:
        say(
            f"{publication.name}, version {publication.version}, answers by {publication.answer}",
            "green",
        )
        say(publication.description, "dim")
        if to is not None:
            say(_audience_text(name, shares))

        for line in change.breaking:
            say(f"breaking changes since the previous version: {line}", "yellow")

        if not publication.live:
            say(
                f"{name} is pinned to another version and still refers to it (`ideas unpin`)",
                "yellow",
            )

    return 0


async def _publish_program(
    bridge: Bridge, request: PublishRequest, options: Options, choice: _ProgramChoice
) -> Publication:
    """Publish the program in a file, or let the configured model write one. Without `--json`, show
    the program.

    Raises:
        PublicationError: the program does not do what the runs did, or no model is configured.
    """
    from ideabridge.bridge.publishing.publish_request import program_to_publish

    if not choice.is_text:
        with working("the model writes a program", quiet=options.json):
            publication, refused = await bridge.publisher.distill(request)
        for number, attempt in enumerate(refused):
            say(f"program {number + 1} was refused: {attempt.why}", "yellow")
    else:
        written = program_to_publish(choice.program, choice.inputs)
        publication = await bridge.saver.publish_run(request.for_program(written))

    if not options.json:
        _say_report(publication)
    return publication


def _say_report(publication: Publication) -> None:
    """Show the published program, and the publication's table, on standard error."""
    from ideabridge.bridge.lifting.report import report_lines

    program = publication.program
    if program is not None:
        for line in source_text(program).splitlines():
            say(f"  {line}")

    if publication.report is not None:
        for text, style in report_lines(publication.report, terminal_width(of_errors=True)):
            say(text, style)


def _say_open(publication: Publication, ref: str) -> None:
    """Show which copied values are ambiguous, and the commands that resolve them with a program."""
    from ideabridge.bridge.lifting.plain import read_open

    points = read_open(publication.report_parts.open)
    if not points:
        return
    say("this works, but the run leaves open what it does for different input:", "yellow")
    for point in points[:_MOST_OPEN_POINTS]:
        say(f"  {point.line}", "yellow")

    if len(points) > _MOST_OPEN_POINTS:
        say(f"  and {counted(len(points) - _MOST_OPEN_POINTS, 'more point')}", "yellow")

    say(
        "a program can settle this. ideabridge checks it against the recorded run. Let the "
        "configured model write the program:"
    )
    say(f"  ideabridge ideas publish {ref} {publication.name} --program ask")
    say(
        "or write it yourself (--program show says what it must do, --program FILE submits "
        "it). --no-program publishes without one."
    )


def _audience_text(name: str, shares: tuple[str, ...]) -> str:
    """Return a sentence that says who can use a published name besides its owner."""
    from ideabridge.bridge.store.users import EVERYBODY, person_of

    if not shares:
        return f"only its owner can use {name}"
    if EVERYBODY in shares:
        return f"{name} is shared with everybody"
    people = ", ".join(map(person_of, shares))
    return f"{name} is shared with {people}"


@app.command("share")
@command("config", "project", "store", "json")
def share_idea(
    options: Options,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="me|all|USER,...",
            help="Who can use it: only its owner, everybody, or users.",
        ),
    ],
) -> None:
    """Change the users of a published tool. Its owner stays the same."""
    from ideabridge.bridge.publishing.publisher import read_audience
    from ideabridge.bridge.store.users import person_of

    with open_store(options) as store:
        store.publications.share(name, read_audience(store, to))
        shares = store.publications.shares(name)

    people: list[JSON] = [person_of(caller) or "all" for caller in shares]
    options.print_or_say({"name": name, "to": people}, _audience_text(name, shares))


@app.command("unpublish")
@command("config", "project", "store", "json")
def unpublish_idea(options: Options, name: NameArgument) -> None:
    """Withdraw a published tool. The idea and all versions stay in the store."""
    with open_store(options) as store:
        store.publications.unpublish(name)
    options.print_or_say({"unpublished": name}, f"{name} is no longer a tool")


@app.command("call")
@command("config", "project", "store", "tools", "allow_all", "json")
async def call_idea(
    options: Options,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete_names,
            help="The published name, or NAME@VERSION.",
        ),
    ],
    input: InputOption = None,  # noqa: A002
) -> int:
    """Call a published idea as an assistant would, and print its answer.

    At a terminal you are asked for missing required input.
    """
    from ideabridge.bridge.runs.replay import check_arguments
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    arguments = read_input(input) or {}
    with open_store(options) as store:
        publication = store.publications.named(name, caller=SEES_ALL)

    expect_parameters(arguments, publication.input_schema or {"properties": {}}, name)
    takes = read_as(SchemaKeywords, publication.input_schema)
    if at_terminal() and not arguments.keys() >= {*takes.required}:
        say(f"{name}: {first_line(publication.description.split('. ')[0])}", "bold")
        complete = await ask_input(publication.input_schema or {}, arguments)
        if complete is None:
            say("nothing was called", "yellow")
            return ExitCode.FAILED

        arguments = complete

    try:
        check_arguments(publication, arguments)
    except ValueMismatchError as error:
        raise ValueMismatchError(
            "\n".join([str(error), *_input_lines(name, publication)])
        ) from None

    async with open_bridge(options) as bridge:
        async with show_connecting(bridge, quiet=options.json):
            replay = await bridge.start_idea(name, arguments)

        if replay.run is not None:
            outcome = await follow(replay.run, quiet=options.json, by_turns=True)
            return print_result(outcome, options, extra={"answer": replay.run.way})

        if options.json:
            print_json({"status": "done", "answer": replay.answer, "output": replay.output})
        else:
            print_value(replay.output)

        return 0


def _input_lines(name: str, publication: Publication) -> Iterator[str]:
    """Yield lines that describe the input of a published idea: one for each member, and an example
    call.
    """
    takes = read_as(SchemaKeywords, publication.input_schema)
    yield "it takes:" if takes.properties else "it takes no input"
    for key, schema in takes.properties.items():
        member = object_or_empty(schema)
        keywords = read_as(SchemaKeywords, member)
        kinds = " or ".join(keywords.types) or "any"
        description = ""
        if keywords.description:
            description = f": {first_line(keywords.description)}"

        default = f": {shortened_json(member['default'])}" if "default" in member else ""
        optional = "" if key in takes.required else f", may be left out{default}"
        yield f"  {key} ({kinds}{optional}){description}"

    recorded_input = publication.recording.input
    if recorded_input:
        words = [_word(key, value) for key, value in list(recorded_input.items())[:5]]
        yield f"example: ideabridge ideas call {name} {' '.join(f'-i {word}' for word in words)}"


def _word(key: str, value: JSON) -> str:
    # Write a string as a JSON string if it would otherwise be read as some other value.
    plain = isinstance(value, str) and value_of(value) == value
    text = str(value) if plain else encode_text(value)
    return shlex.quote(f"{key}={text}" if len(text) <= 100 else f"{key}=...")


@app.command("history")
@command("config", "project", "store", "json")
def show_history(options: Options, name: NameArgument) -> int:
    """List the versions of a name: the time, the idea, and the changes that break callers."""
    listed: list[JSON] = []
    lines: list[Line] = []
    with open_store(options) as store:
        versions = store.publications.versions(name, caller=SEES_ALL)
        for publication, before in itertools.zip_longest(versions, versions[1:]):
            meta = store.ideas.get(publication.idea_id, caller=SEES_ALL).meta
            record = store.runs.get(meta.run) if meta.run else None
            forked_from = record.forked_from if record is not None else None
            if before is None:
                change = None
            else:
                change = store.change(
                    f"{name}@{before.version}", f"{name}@{publication.version}", caller=SEES_ALL
                )

            breaking = [] if change is None else change.breaking
            version: JSONObject = {
                "version": publication.version,
                "live": publication.live,
                "pinned": publication.pinned,
                "time": publication.time,
                "answer": publication.answer,
                "idea": publication.idea_id,
                "run": meta.run,
                "parent": meta.parent,
                "forked_from": forked_from,
                "breaking": list[JSON](breaking),
            }
            listed.append(version if change is None else {**version, "changed": len(change.lines)})
            live = " <- the live version" if publication.live else ""
            pinned = " (pinned)" if publication.pinned else ""
            run = f", run {meta.run}" if meta.run else ""
            fork = f", forked from {forked_from}" if forked_from else ""
            origin = f"idea {publication.idea_id[:12]}{run}{fork}"
            when = publication.time[:19].replace("T", " ")
            head = f"{name}@{publication.version}  {when}  {publication.answer}"
            lines.append((f"{head}  {origin}{live}{pinned}", "bold"))
            lines += [(f"  breaking: {text}", "red") for text in breaking]

    options.print_lines({"name": name, "versions": listed}, lines)
    return 0


@app.command("diff")
@command("config", "project", "store", "json")
def diff_ideas(
    options: Options,
    old: RefArgument,
    new: Annotated[
        str, typer.Argument(metavar="REF", help="The idea or version to compare it with.")
    ],
) -> int:
    """Compare two ideas or versions: schemas, plan, constants, explanations, context. The exit code
    is 1 if they differ.
    """
    with open_store(options) as store:
        change = store.change(resolve_idea(store, old), resolve_idea(store, new), caller=SEES_ALL)

    styles = {"+": "green", "-": "red", "~": "yellow"}
    lines: list[Line] = [(line, styles.get(line[0])) for line in change.lines]
    lines += [(f"breaking: {line}", "bold red") for line in change.breaking]
    options.print_lines(
        {"changes": list[JSON](change.lines), "breaking": list[JSON](change.breaking)}, lines
    )
    if not (change.lines or options.json):
        say("they are equal")

    return 1 if change.lines else 0


@app.command("pin")
@command("config", "project", "store", "json")
def pin_version(options: Options, ref: VersionArgument) -> None:
    """Make a name always refer to one version, even if others are published later."""
    _choose_version(options, ref, pinned=True)


@app.command("unpin")
@command("config", "project", "store", "json")
def unpin_name(options: Options, name: NameArgument) -> None:
    """Make a pinned name refer to its latest version again."""
    with open_store(options) as store:
        publication = store.publications.stand_for(name)
    _print_choice(options, publication)


@app.command("rollback")
@command("config", "project", "store", "json")
def roll_back(options: Options, ref: VersionArgument) -> None:
    """Make a name refer to an earlier version again, until the next one is published."""
    _choose_version(options, ref, pinned=False)


def _choose_version(options: Options, ref: str, *, pinned: bool) -> None:
    name, _, version = ref.partition("@")
    if not (version.isascii() and version.isdigit()):
        raise UsageError(
            "NAME@VERSION: expected a name and a version, such as weekly_report@2, found "
            f"{ref[:80]!r}"
        )
    with open_store(options) as store:
        publication = store.publications.stand_for(name, int(version), pinned=pinned)
    _print_choice(options, publication)


def _print_choice(options: Options, publication: Publication) -> None:
    value: JSONObject = {
        "name": publication.name,
        "version": publication.version,
        "pinned": publication.pinned,
    }
    pinned = ", pinned" if publication.pinned else ""
    options.print_or_say(value, f"{publication.name} means version {publication.version}{pinned}")
