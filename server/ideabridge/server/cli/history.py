"""`ideabridge runs show` and `runs fork`: what happened in a run, and another way on from a point of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.inputs import read_input, read_json
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.runs import next_step, standing_of
from ideabridge.server.cli.stores import RunArgument, existing, opened, run_given, run_named
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.records import RunRecord
    from ideabridge.bridge.ideas.store import Store
    from ideabridge.server.cli.run_text import Story


@command("config", "project", "store", "json")
def show_run(
    options: Options,
    run: RunArgument,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", help="What stood after event N, and what the mind had been told.")
    ] = None,
) -> int:
    """Show what happened in a run: every event, with the calls, errors, approvals and tokens. Nothing is started."""
    from ideabridge.server.cli.exits import UsageError
    from ideabridge.server.cli.run_text import read_story

    with opened(options) as store:
        record = run_named(store, run)
        journal = list(store.events(record.id))
        if at is not None and not 1 <= at <= len(journal):
            raise UsageError(f"--at: expected 1 to {len(journal)}, an event of the run, found {at}")
        story = read_story(journal[:at], store.event_times(record.id))
        lineage = _lineage(store, record)
    if at is not None:
        return _show_moment(options, record, story)
    if options.json:
        from ideabridge.server.cli.console import print_json

        print_json({**_run_json(record, story), **lineage, "events": _events(journal, story)})
        return 0
    _print_story(record, story, lineage)
    return 0


def _lineage(store: Store, record: RunRecord) -> JSONObject:
    """Where the run comes from, and what came of it."""
    told: JSONObject = {}
    if record.parent is not None:
        told["part_of"] = record.parent
    if record.forked_from is not None:
        told["forked_from"] = {"run": record.forked_from, "at": record.forked_at}
    forks: list[JSON] = [{"run": run, "at": at} for run, at in store.forks(record.id)]
    if forks:
        told["forks"] = forks
    rooms: list[JSON] = [{"run": one.id, "status": one.status, "title": one.title} for one in store.rooms_of(record.id)]
    if rooms:
        told["rooms"] = rooms
    ideas: list[JSON] = [one.id for one in store.step_ideas(record.id)]
    return {**told, "ideas": ideas} if ideas else told


def _run_json(record: RunRecord, story: Story) -> JSONObject:
    from ideabridge.server.cli.run_text import call_told

    machine = story.machine
    status, why = standing_of(record)
    told: JSONObject = {
        "run": record.id,
        "status": status,
        "kind": record.kind,
        "caller": record.caller,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
        "calls": [call_told(number, one) for number, one in enumerate(machine.history)],
        "errors": [dict(error) for error in machine.errors],
        "usage": {"tokens": machine.usage.tokens, "cost": machine.usage.cost},
    }
    reason = machine.reason or why
    if reason:
        told["reason"] = reason
    if machine.has_output:
        told["output"] = machine.output
    if not machine.has_output or (machine.mode == "solve" and machine.has_state):
        told["state"] = machine.state
    return {**told, "broken": story.broken} if story.broken else told


def _events(journal: list[tuple[int, JSONObject]], story: Story) -> list[JSON]:
    told: list[JSON] = []
    for (number, raw), moment in zip(journal, story.moments, strict=False):
        when = None if moment.at is None else datetime.fromtimestamp(moment.at, UTC).isoformat(timespec="milliseconds")
        told.append({"number": number, "time": when, "text": moment.text, "event": raw})
    return told


def _print_story(record: RunRecord, story: Story, lineage: JSONObject) -> None:
    from collections import Counter

    from ideabridge.server.cli.console import errors_told, fitted, say, show
    from ideabridge.server.cli.follow import error_line

    machine = story.machine
    status, why = standing_of(record)
    reason = machine.reason or why
    show(f"run {record.id}: {status}{errors_told(len(machine.errors))}{f' ({reason})' if reason else ''}", "bold")
    show(fitted(f"  {record.kind} of {record.caller}, {record.created[:19].replace('T', ' ')} UTC: {record.title}", 4))
    for line in _lineage_lines(lineage):
        show(fitted(f"  {line}", 4))
    show("events (number, seconds, what)", "bold")
    begun = next((one.at for one in story.moments if one.at is not None), 0.0)
    width = len(str(len(story.moments)))
    for moment in story.moments:
        seconds = "" if moment.at is None else f"{moment.at - begun:8.3f}"
        show(fitted(f"  {moment.number:>{width}} {seconds:>8}  {moment.text}", width + 13), moment.style)
    if story.broken:
        show(f"  {story.broken}", "red")
    counted = Counter(one.standing.value for one in machine.history)
    calls = ", ".join(f"{count} {name}" for name, count in counted.items()) or "none"
    show(f"calls: {calls}; tokens: {machine.usage.tokens}; cost: {machine.usage.cost or 0:g}")
    for error in machine.errors:
        show(fitted(f"  error: {error_line(error)}", 4), "red")
    # The person reads it here; the last line says what they can do.
    advice = next_step(record.id, status)
    if advice is not None:
        say(advice, "dim")


def _lineage_lines(lineage: JSONObject) -> Iterator[str]:
    """What `_lineage` tells, for people."""
    for key, value in lineage.items():
        listed = value if isinstance(value, list) else [value]
        told = ", ".join(_related(one) for one in listed)
        yield f"{key.replace('_', ' ')}: {told}"


def _related(value: JSON) -> str:
    """A run, with how it stands or after which event it was forked; or an idea."""
    if not isinstance(value, dict):
        text = str(value)
        return text if text.startswith("run_") else text[:12]
    at, status = value.get("at"), value.get("status")
    return f"{value.get('run')}{f' after event {at}' if at else ''}{f' ({status})' if status else ''}"


def _show_moment(options: Options, record: RunRecord, story: Story) -> int:
    """What stood after an event: the Request at hand as the mind was told it, and the state."""
    from ideabridge.bridge.context.handlers import Handlers
    from ideabridge.bridge.loop.event import RequestMade
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.loop.request import Composer, SchemaCache
    from ideabridge.server.cli.console import print_json, print_value, show

    asked = [number for number, one in enumerate(story.moments) if isinstance(one.event, RequestMade)]
    machine = Machine()
    # Composed where it was made: what it told stands in the machine only until it is answered.
    for moment in story.moments[: asked[-1]] if asked else story.moments[:1]:
        machine.receive(moment.event)
    made = story.moments[asked[-1]].event if asked else None
    request = Composer(Handlers(), SchemaCache()).compose(machine, made if isinstance(made, RequestMade) else None)
    same = not isinstance(made, RequestMade) or made.request == request.id
    now = story.machine
    last = story.moments[-1]
    if options.json:
        from ideabridge.server.cli.run_text import call_told

        print_json(
            {
                "run": record.id,
                "at": last.number,
                "event": last.text,
                "request": request.id if asked else None,
                "exact": same,
                "context": list[JSON](request.texts),
                # With the schema, what the id is of.
                "messages": request.context,
                "schema": request.schema if asked else None,
                "state": now.state,
                "calls": [call_told(number, one) for number, one in enumerate(now.history)],
            }
        )
        return 0
    show(f"run {record.id} after event {last.number}: {last.text}", "bold")
    told = f"request {machine.step}, as the mind was told it" if asked else "context (no mind was asked)"
    show(told if same else f"{told}, but for what handlers of its own made of it", "bold")
    for message in request.texts:
        show(f"  [{message.get('role')}]", "cyan")
        for line in str(message.get("content")).split("\n"):
            show(f"    {line}")
    show("state", "bold")
    print_value(now.state)
    show("calls", "bold")
    for number, one in enumerate(now.history):
        show(f"  {number} {one.call.name}: {one.standing.value}")
    return 0


@command("config", "project", "store", "tools", "allow_all", "json")
def fork_run(
    options: Options,
    run: RunArgument,
    at: Annotated[int, typer.Option("--at", metavar="N", help="After which event, as `runs show` numbers them.")],
    solution: Annotated[
        str | None,
        typer.Option("--solution", metavar="FILE", help="Another solution of that step; - reads standard input."),
    ] = None,
    input: Annotated[  # noqa: A002 - the vocabulary's word
        list[str] | None,
        typer.Option("--input", "-i", metavar="JSON|@FILE|KEY=VALUE", help="Other input, laid over what it had."),
    ] = None,
) -> int:
    """Go on from a point of a run, in a run of its own: the calls started before are not run again."""
    import anyio

    words = [f"@{word}" if not word.startswith(("@", "{")) and Path(word).is_file() else word for word in input or []]
    given = read_input(words) if input else None
    other = read_json(solution, "--solution") if solution is not None else None
    return anyio.run(_fork, options, run_given(options, run), at, other, given)


async def _fork(options: Options, record: RunRecord, at: int, solution: JSON, given: JSONObject | None) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.console import say
    from ideabridge.server.cli.follow import follow, tell

    async with Bridge(existing(options)) as bridge:
        if given is not None:
            given = {**_input_of(bridge.store, record.id), **given}
        fork = await bridge.fork(record.id, at, solution=solution, input=given, caller=record.caller)
        say(f"run {fork.id} goes on from {record.id} after event {at}", "dim")
        return tell(await follow(fork, quiet=options.json), options)


def _input_of(store: Store, run_id: str) -> JSONObject:
    """What the run was given."""
    from ideabridge.bridge.context.message import read_context
    from ideabridge.bridge.loop.event import RunStarted, event_from_json

    first = next(store.events(run_id), None)
    started = event_from_json(first[1]) if first is not None else None
    if isinstance(started, RunStarted):
        for message in read_context(started.context):
            if message.type == "input" and not message.instance and isinstance(message.value, dict):
                return message.value
    return {}
