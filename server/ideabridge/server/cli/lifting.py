"""`ideabridge ideas lift`, `verify`: what a run would be as a tool, and whether the tools made so still hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.completion import names as published
from ideabridge.server.cli.console import clean
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import existing, idea_given, run_given
from ideabridge.tools.encoding import JSON, JSONObject, decode

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.errors import UndecidedError
    from ideabridge.bridge.ideas.records import Answer, Publication
    from ideabridge.bridge.replay.asking import Ask
    from ideabridge.bridge.replay.verify import Verdict

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
    from ideabridge.server.cli.exits import UsageError

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
        choices["runs"] = [run_given(options, run).id for run in runs]
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
    return anyio.run(_lift, options, idea_given(options, ref), choices, live)


async def _lift(options: Options, ref: str, choices: JSONObject, live: bool) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.replay.report import report_lines, report_of
    from ideabridge.server.cli.connecting import connected
    from ideabridge.server.cli.console import fitted, print_json, show

    async with connected(Bridge(existing(options))) as bridge:
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
            show(fitted(text, 4), style)
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
    from ideabridge.server.cli.console import print_json, say

    async with Bridge(existing(options)) as bridge:
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
    from ideabridge.server.cli.console import show

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
    from ideabridge.bridge.loop.decider import AT_TERMINAL, BY_COMMAND
    from ideabridge.server.cli.exits import standing_in_terminal

    decided = choices or {}
    if answer in ("auto", "plan") and not options.json and standing_in_terminal():
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
        by = AT_TERMINAL if standing_in_terminal() else BY_COMMAND
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
    from ideabridge.bridge.replay.asking import open_asks
    from ideabridge.bridge.replay.report import report_lines, report_of
    from ideabridge.server.cli.console import say

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
    from ideabridge.server.cli.console import say
    from ideabridge.server.cli.typed import line

    say(f"? {ask.text}{' (accepted, it is the same for every input)' if ask.kind == 'constant' else ''}", "bold yellow")
    origins = ask.leaf.origins if ask.leaf is not None else []
    for number, origin in enumerate(origins, 1):
        say(f"  {number}: {clean(origin.shown)}")
    words = [*([] if ask.kind == "varies" else ["a(ccept)"]), *(["a number to take it"] if origins else []), "q(uit)"]
    while True:
        typed = await line(f"  {', '.join(words)}: ")
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
