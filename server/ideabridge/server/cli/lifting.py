"""`ideabridge ideas lift`, `verify`: what a run would be as a tool, and whether the tools made so still hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    clean,
    fit,
    print_json,
    read_line,
    say,
    shortened,
    show,
)
from ideabridge.server.cli.options import Options, command, names
from ideabridge.server.cli.options import names as published
from ideabridge.server.cli.stores import (
    REF_HELP,
    lookup_idea,
    lookup_run,
    open_store,
    resolve_idea,
    with_existing_store,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.errors import UndecidedError
    from ideabridge.bridge.lifting.asking import Ask
    from ideabridge.bridge.publishing.verify import Verdict
    from ideabridge.bridge.store.idea import Answer, Publication, Repeated
    from ideabridge.bridge.store.store import Store


# -- lifting ---------------------------------------------------------------------------------------------------------

_NAMED: Final = 4
"""Paths that an example names one by one."""

AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept", metavar="all|PATH", help="What may stay as it is; may be repeated."),
]
TakeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--take", metavar="PATH=REFERENCE", help="What stands there instead, such as calls.0.repo=†input.repo."
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="RUN", help="Another run of the same task; may be repeated. Default: alike ones."),
]


def read_decisions(
    options: Options, accept: list[str] | None, take: list[str] | None, runs: list[str] | None
) -> JSONObject:
    """The options as `choices`; a pick is written `PATH={"pick": JMESPath, "from": REFERENCE}`.

    Raises:
        UsageError: `--take` is not PATH=REFERENCE.
        UnknownRunError: `--with` names no run.
    """
    choices: JSONObject = {}
    if accept:
        choices["accept"] = True if "all" in accept else list[JSON](accept)
    taken: JSONObject = {}
    for one in take or []:
        path, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"--take: expected PATH=REFERENCE, found {one[:80]!r}")
        taken[path] = decode(value, what="--take") if value.startswith("{") else value
    if taken:
        choices["take"] = taken
    if runs:
        choices["runs"] = [lookup_run(options, run).id for run in runs]
    return choices


@command("config", "project", "store", "tools", "allow_all", "json")
def lift_run(
    options: Options,
    ref: Annotated[str, typer.Argument(metavar="RUN", help="A run (`last`: the newest), or an idea.")],
    accept: AcceptOption = None,
    take: TakeOption = None,
    runs: WithOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Run the plan too, if it only reads (or with --allow-all).")
    ] = False,
) -> int:
    """Show the plan a run would be published as: each part, where it comes from, and what a person must accept.

    Exit code 1 where something is still to be accepted, or the plan does not do what the run did.
    """
    import anyio

    choices = read_decisions(options, accept, take, runs)
    return anyio.run(_lift, options, lookup_idea(options, ref), choices, live)


async def _lift(options: Options, ref: str, choices: JSONObject, live: bool) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.lifting.asking import report_lines, report_of
    from ideabridge.server.cli.connecting import connected

    async with connected(Bridge(with_existing_store(options))) as bridge:
        decided = bridge.lift(ref, choices=choices)
        report = report_of(decided)
        lines = report_lines(report)
        if live:
            function = decided.lifted.function
            plan = decided.with_input(function.input or {})
            why, different = await bridge.drift(plan, function.run.result, effects=options.allow_all)
            report["live"] = {"not_run": why, "difference": different}
            told = f"not run: {why}" if why is not None else different or "run again, it gives the same"
            lines.append((f"live: {told}", "yellow" if why is not None or different is not None else "green"))
    if options.json:
        print_json(report)
    else:
        for text, style in lines:
            show(fit(text, 4), style)
    still = any(not one["accepted"] for one in report["asks"])
    drifted = _object(report.get("live")).get("difference") is not None
    return 1 if still or drifted or not report["consistent"] else 0


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


@command("config", "project", "store", "tools", "allow_all", "json")
def verify_ideas(
    options: Options,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", autocompletion=published, help="Published names; none: all."),
    ] = None,
    live: Annotated[bool, typer.Option(help="Run plans that only read (with --allow-all: every plan).")] = True,
) -> int:
    """Check whether published ideas still work: whether their tools are unchanged, and their plans give what they
    gave. Exit code 1 if one does not.
    """
    import anyio

    return anyio.run(_verify, options, names or [], live)


async def _verify(options: Options, names: list[str], live: bool) -> int:
    from ideabridge.bridge.bridge import Bridge

    async with Bridge(with_existing_store(options)) as bridge:
        verdicts = await bridge.verify(names, live=live, effects=options.allow_all)
    if options.json:
        print_json({"ideas": list[JSON](one.to_json() for one in verdicts)})
    elif not verdicts:
        say("nothing is published")
    else:
        for verdict in verdicts:
            _tell(verdict)
    return 1 if any(verdict.faults for verdict in verdicts) else 0


def _tell(verdict: Verdict) -> None:

    notes = f" ({'; '.join(verdict.notes)})" if verdict.notes else ""
    mark, style = ("holds", "green") if not verdict.faults else ("does not hold", "red")
    show(f"{verdict.name}, version {verdict.version}: {mark}{notes}", style)
    for fault in verdict.faults:
        show(f"  {fault}")


# -- publishing ----------------------------------------------------------------------------------------------------


async def publish(
    bridge: Bridge,
    ref: str,
    name: str,
    options: Options,
    *,
    description: str | None = None,
    answer: str = "auto",
    choices: JSONObject | None = None,
    to: str | None = None,
) -> Publication | None:
    """Publish an idea or a run; what a person must decide first is asked at a terminal. None: the person gave up.

    Raises:
        PublicationError: it cannot be published so. Where something is to be decided, it says with which options.
        UnknownIdeaError, UnknownRunError, PublicationNameError: see `Bridge.publish`.
    """
    from ideabridge.bridge.errors import PublicationError, UndecidedError
    from ideabridge.bridge.loop.event import AT_TERMINAL, BY_COMMAND

    decided = choices or {}
    if answer in ("auto", "plan") and not options.json and at_terminal():
        try:
            found = await decided_at_terminal(bridge, ref, decided)
        except PublicationError:
            # It cannot be a plan; publishing says why, or that it answers as recorded.
            found = decided
        if found is None:
            return None
        decided = found
    try:
        way = cast("Answer", answer)
        by = AT_TERMINAL if at_terminal() else BY_COMMAND
        return await bridge.publish(ref, name, description=description, answer=way, choices=decided, by=by, to=to)
    except UndecidedError as error:
        raise PublicationError("\n".join(_how_to_decide(error, f"{ref} {name}{options.again}"))) from None


def _how_to_decide(error: UndecidedError, again: str) -> Iterator[str]:
    """What is open, and the command line that decides it."""
    yield from error.open
    if error.unexplained:
        yield "say where these values come from: --take PATH=†input.NAME, or --take PATH=†results.0"
    if error.paths:
        yield "accept what may stay (--accept PATH, or --accept all), or name another run of the task (--with RUN)"
    accepted = error.paths if len(error.paths) <= _NAMED else ["all"]
    words = [*(f"--take {path}=†input.NAME" for path in error.unexplained), *(f"--accept {path}" for path in accepted)]
    yield f"ideabridge ideas publish {again} {' '.join(words)}"
    yield f"ideabridge ideas publish {again} --answer recorded gives the recorded answer, and nothing runs"


# -- deciding at the terminal --------------------------------------------------------------------------------------


async def decided_at_terminal(bridge: Bridge, ref: str, choices: JSONObject) -> JSONObject | None:
    """Ask a person about everything that is still open; None: the person gave up.

    Raises:
        PublicationError: it cannot be a plan whatever is accepted.
    """
    from ideabridge.bridge.lifting.asking import open_asks, report_lines, report_of

    if choices.get("accept") is True:
        return choices
    shown = False
    while True:
        decided = bridge.lift(ref, choices=choices)
        left = open_asks(decided)
        if not left:
            return choices
        if not shown:
            for text, style in report_lines(report_of(decided)):
                say(text, style)
            shown = True
        answer = await _ask(left[0])
        if answer is None:
            return None
        accept, take = choices.get("accept"), choices.get("take")
        if answer == "accept":
            choices = {**choices, "accept": [*(accept if isinstance(accept, list) else []), left[0].path]}
        else:
            choices = {**choices, "take": {**_object(take), left[0].path: answer}}


async def _ask(ask: Ask) -> JSON:
    """`accept`, what to take instead, or None to give up."""
    say(f"? {ask.text}{' (accepted, it is the same for every input)' if ask.kind == 'constant' else ''}", "bold yellow")
    origins = ask.leaf.origins if ask.leaf is not None else []
    for number, origin in enumerate(origins, 1):
        say(f"  {number}: {clean(origin.shown)}")
    words = [*([] if ask.kind == "varies" else ["a(ccept)"]), *(["a number to take it"] if origins else []), "q(uit)"]
    while True:
        typed = await read_line(f"  {', '.join(words)}: ")
        if typed is None or typed.strip().lower() in ("q", "quit"):
            return None
        word = typed.strip().lower()
        if word in ("a", "accept") and ask.kind != "varies":
            return "accept"
        if word.isdecimal() and 0 < int(word) <= len(origins):
            return origins[int(word) - 1].take
        if word.startswith("†"):
            return typed.strip()
        say(f"  expected {', '.join(words)}, or a reference that begins with †")


# -- versions --------------------------------------------------------------------------------------------------------
#
# `ideabridge ideas history`, `diff`, `pin`, `unpin`, `rollback` and `tag`: what a name stood for, and stands for.

NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names, help="The published name.")]
VersionArgument = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="One version of a published name.")]


@command("config", "project", "store", "json")
def show_history(options: Options, name: NameArgument) -> int:
    """List the versions of a name: when each was published, from which idea, and what in it breaks callers."""
    told: list[JSONObject] = []
    with open_store(options) as store:
        versions = store.publications.versions(name)
        for place, one in enumerate(versions):
            before = versions[place + 1] if place + 1 < len(versions) else None
            meta = store.ideas.get(one.idea_id).meta
            record = store.runs.get(meta.run) if meta.run else None
            line: JSONObject = {
                "version": one.version,
                "live": one.live,
                "pinned": one.pinned,
                "time": one.time,
                "answer": one.answer,
                "idea": one.idea_id,
                "run": meta.run,
                "parent": meta.parent,
                "forked_from": record.forked_from if record is not None else None,
                "breaking": [],
            }
            if before is not None:
                change = store.change(f"{name}@{before.version}", f"{name}@{one.version}")
                line["changed"], line["breaking"] = len(change.lines), list[JSON](change.breaking)
            told.append(line)
    if options.json:
        print_json({"name": name, "versions": list[JSON](told)})
        return 0
    for one, line in zip(versions, told, strict=True):
        stands = " <- the name stands for this" if one.live else ""
        pinned = " (pinned)" if one.pinned else ""
        fork = f", forked from {line['forked_from']}" if line["forked_from"] else ""
        run = f", run {line['run']}" if line["run"] else ""
        made = f"idea {one.idea_id[:12]}{run}{fork}"
        show(f"{name}@{one.version}  {one.time[:19].replace('T', ' ')}  {one.answer}  {made}{stands}{pinned}", "bold")
        broken = line["breaking"]
        for text in broken if isinstance(broken, list) else []:
            show(f"  breaking: {text}", "red")
    return 0


@command("config", "project", "store", "json")
def diff_ideas(
    options: Options,
    old: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    new: Annotated[str, typer.Argument(metavar="REF", help="What to compare it with.")],
) -> int:
    """Compare two ideas or versions: schemas, plan, constants, context. Exit code 1 if they differ."""
    with open_store(options) as store:
        change = store.change(resolve_idea(store, old), resolve_idea(store, new))
    if options.json:
        print_json({"changes": list[JSON](change.lines), "breaking": list[JSON](change.breaking)})
        return 1 if change.lines else 0
    styles = {"+": "green", "-": "red", "~": "yellow"}
    for line in change.lines:
        show(line, styles.get(line[0]))
    for line in change.breaking:
        show(f"breaking: {line}", "bold red")
    if not change.lines:
        say("they are equal")
    return 1 if change.lines else 0


@command("config", "project", "store", "json")
def pin_version(options: Options, ref: VersionArgument) -> int:
    """Make a name stand for one version, even when others are published later."""
    return _stand(options, ref, pinned=True)


@command("config", "project", "store", "json")
def roll_back(options: Options, ref: VersionArgument) -> int:
    """Make a name stand for an earlier version again, until the next is published."""
    return _stand(options, ref, pinned=False)


@command("config", "project", "store", "json")
def unpin_name(options: Options, name: NameArgument) -> int:
    """Make a pinned name stand for its latest version again."""
    with open_store(options) as store:
        told = store.publications.stand_for(name)
    return _print_publication(options, told)


def _stand(options: Options, ref: str, *, pinned: bool) -> int:

    name, _, version = ref.partition("@")
    if not (version.isascii() and version.isdigit()):
        raise UsageError(f"NAME@VERSION: expected a name and a version, as weekly_report@2, found {ref[:80]!r}")
    with open_store(options) as store:
        told = store.publications.stand_for(name, int(version), pinned=pinned)
    return _print_publication(options, told)


def _print_publication(options: Options, publication: Publication) -> int:

    if options.json:
        print_json({"name": publication.name, "version": publication.version, "pinned": publication.pinned})
    else:
        say(
            f"{publication.name} stands for version {publication.version}{', pinned' if publication.pinned else ''}",
            "green",
        )
    return 0


@command("config", "project", "store", "json")
def tag_idea(
    options: Options,
    ref: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
) -> int:
    """Add tags to an idea, or remove them. A tagged idea is never pruned."""
    with open_store(options) as store:
        now = store.ideas.tag(resolve_idea(store, ref), tags or (), remove or ())
    if options.json:
        print_json({"tags": list[JSON](now)})
    else:
        say(f"tags: {', '.join(now) or 'none'}", "green")
    return 0


# -- suggest ---------------------------------------------------------------------------------------------------------
#
# `ideabridge ideas suggest`: what was done over and over, and is no tool yet.

_LOOKED_AT: Final = 500
_LITERALS_SHOWN: Final = 3


@command("config", "project", "store", "json")
def suggest_ideas(
    options: Options,
    least: Annotated[
        int, typer.Option("--least", metavar="N", min=2, max=1000, help="Only what was done at least N times.")
    ] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="How many at most.")] = 10,
) -> int:
    """Show what was done repeatedly with different values and is not a tool yet. Exit code 1 if there is nothing."""
    with open_store(options) as store:
        # What ends with errors is no tool, however often it was tried.
        well = [one for one in store.ideas.repeated(least, _LOOKED_AT) if _ended_well(store, one)][:limit]
        found = [(one, store.ideas.get(one.latest.id).idea.solution) for one in well]
    if options.json:
        ideas: list[JSON] = [
            {"times": one.times, "idea": one.latest.id, **one.latest.meta.to_json(), "literals": _literals(solution)}
            for one, solution in found
        ]
        print_json({"suggestions": ideas})
        return 0 if found else 1
    for one, solution in found:
        meta = one.latest.meta
        tools = ", ".join(meta.tools)
        what = f"{meta.title}: {tools}" if meta.title and meta.title != tools else tools
        show(f"done {one.times} times: {what[:100]}", "bold")
        for line in _lines(solution):
            show(f"    {line}", "dim")
        _advise(f"ideabridge ideas publish {meta.run or one.latest.id[:12]} NAME", _literals(solution))
    if not found:
        say(f"nothing was done {least} times that is not published already")
    return 0 if found else 1


def _ended_well(store: Store, one: Repeated) -> bool:
    record = store.runs.get(one.latest.meta.run) if one.latest.meta.run else None
    return record is None or not (record.summary or {}).get("errors")


def _advise(publish: str, literals: list[JSON]) -> None:

    if not literals:
        show(f"  publish it? {publish}")
        return
    named = ", ".join(str(one) for one in literals[:_LITERALS_SHOWN]) + (
        ", ..." if len(literals) > _LITERALS_SHOWN else ""
    )
    show(f"  its values stand in the calls ({named}). Run it once with them as input, †input.KEY in their places, and")
    show(f"  publish that run; or publish this one as it is: {publish} --accept all")


def _calls(solution: JSON) -> list[JSONObject]:
    calls = solution.get("calls") if isinstance(solution, dict) else None
    return [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []


def _lines(solution: JSON) -> list[str]:
    """Each call in a line."""
    lines: list[str] = []
    for call in _calls(solution)[:10]:
        given: JSONObject = {key: value for key, value in call.items() if key not in ("_tool", "_outputPath")}
        path = call.get("_outputPath")
        lines.append(f"{call.get('_tool')} {shortened(given)}{f' -> {path}' if isinstance(path, str) else ''}")
    more = len(_calls(solution)) - len(lines)
    return [*lines, f"... and {more} more"] if more else lines


def _literals(solution: JSON) -> list[JSON]:
    """The places of parameters that hold no reference: what a tool would have to be given."""
    from ideabridge.bridge.store.shapes import is_literal
    from ideabridge.tools.tool import META_PROPERTIES

    return [
        f"calls.{place}.{key}"
        for place, call in enumerate(_calls(solution))
        for key, value in call.items()
        if (key not in META_PROPERTIES or key == "_each") and is_literal(value)
    ]
