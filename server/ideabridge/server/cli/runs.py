"""`ideabridge runs`: list, show, fork and cancel runs; and `ideabridge resume`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.console import (
    UsageError,
    errors_text,
    fit,
    print_json,
    print_table,
    print_value,
    report,
    say,
    show,
)
from ideabridge.server.cli.inputs import read_input, read_json
from ideabridge.server.cli.options import AfterOption, LimitOption, Options, command
from ideabridge.server.cli.stores import RunArgument, lookup_run, open_store, resolve_run, with_existing_store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.store.idea import RunRecord
    from ideabridge.bridge.store.journal import DirectCall
    from ideabridge.bridge.store.store import Store
    from ideabridge.server.cli.follow import RunHistory


app = typer.Typer(help="List, show, fork and cancel runs.", no_args_is_help=True)

_PAGE: Final = 200
_ENDED: Final = ("done", "stalled", "limit", "cancelled", "failed")


class Status(StrEnum):
    """How a run can stand in the store."""

    RUNNING = "running"
    NEEDS_SOLUTION = "needs_solution"
    NEEDS_APPROVAL = "needs_approval"
    INTERRUPTED = "interrupted"
    DONE = "done"
    STALLED = "stalled"
    LIMIT = "limit"
    CANCELLED = "cancelled"
    FAILED = "failed"


@app.command("list")
@command("config", "project", "store", "json")
def list_runs(
    options: Options,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="Only runs that stand so.")] = None,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="RUN", help="Go on after this run.")] = None,
) -> int:
    """List runs, newest first: those of every caller. A run is interrupted where its process ended in the middle."""
    with open_store(options) as store:
        listed = _listed(store, status, None if after is None else resolve_run(store, after).id)
        records = list(itertools.islice(listed, limit))
    following = records[-1].id if len(records) == limit else None
    if options.json:
        runs: list[JSON] = [_run_json(record) for record in records]
        print_json({"runs": runs, "next": following})
    elif records:
        callers = {record.caller for record in records}
        titles = ["run", "status", "kind", *(["caller"] if len(callers) > 1 else []), "started (UTC)", "title"]
        print_table(titles, [_row(one, len(callers) > 1) for one in records], cut=True)
        for stands in dict.fromkeys(run_status(record)[0] for record in records):
            advice = next_step("RUN", stands)
            if advice is not None:
                say(advice, "dim")
        if following:
            say(f"more: --after {following}", "dim")
    elif after is not None:
        say(f"no run{f' that is {status.value}' if status else ''} comes after {after}")
    else:
        say("no runs yet" if status is None else f"no run is {status.value}")
    return 0


def _listed(store: Store, status: Status | None, after: str | None) -> Iterator[RunRecord]:
    """The runs that stand so, newest first."""
    # Only a look at its process tells whether a run that is noted as running is interrupted.
    noted = [] if status is None else ["running", "interrupted"] if status is Status.INTERRUPTED else [status.value]
    while True:
        page = store.runs.newest(status=noted, limit=_PAGE, after=after, rooms=False)
        yield from (record for record in page if status is None or run_status(record)[0] == status.value)
        if len(page) < _PAGE:
            return
        after = page[-1].id


def run_status(record: RunRecord) -> tuple[str, str | None]:
    """(status, why it stands so, where that is known) of a run, as far as its record tells."""
    from ideabridge.bridge.runs.driver import LEFT, is_left

    if is_left(record):
        return Status.INTERRUPTED.value, LEFT
    reason = (record.summary or {}).get("reason")
    return record.status, reason if isinstance(reason, str) else None


def errors_of(record: RunRecord) -> int:
    """How many calls or outputs of a run that has ended have failed."""
    errors = (record.summary or {}).get("errors")
    return errors if isinstance(errors, int) else 0


def status_text(record: RunRecord) -> str:
    """How a run stands, and how many errors it ended with."""
    return run_status(record)[0] + errors_text(errors_of(record))


@app.command("direct")
@command("config", "project", "store", "json")
def list_direct_calls(
    options: Options,
    limit: LimitOption = 20,
    after: AfterOption = None,
) -> None:
    """List direct calls of exposed tools, newest first: those of every caller. No parameters and results are kept."""
    with open_store(options) as store:
        page = store.direct_calls.page(limit, after)
    calls: list[JSON] = [cast("JSONObject", one._asdict()) for one in page.items]
    options.print_rows(
        {"calls": calls, "next": page.next},
        ("time (UTC)", "outcome", "took", "tool", "by"),
        [_direct(one) for one in page.items],
        empty="no direct calls are recorded" if after is None else "no direct call comes after this cursor",
        more=page.next,
    )


def _direct(one: DirectCall) -> list[str]:
    at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    tool = f"{one.module}/{one.tool}" if one.module else one.tool
    by = [one.run or "", one.caller, one.client, f"{one.bytes_in:,} bytes in, {one.bytes_out:,} out"]
    return [at, one.outcome, f"{one.seconds:.3f} s", tool, ", ".join(part for part in by if part)]


def _run_json(record: RunRecord) -> JSONObject:
    status, reason = run_status(record)
    told: JSONObject = {
        "run": record.id,
        "status": status,
        "errors": errors_of(record),
        "kind": record.kind,
        "caller": record.caller,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
    }
    return {**told, "reason": reason} if reason else told


def _row(record: RunRecord, with_caller: bool) -> list[str]:
    reason = run_status(record)[1]
    title = f"{record.title} ({reason})" if reason else record.title
    caller = [record.caller] if with_caller else []
    return [record.id, status_text(record), record.kind, *caller, record.created[:16].replace("T", " "), title]


def next_step(run: str, status: str) -> str | None:
    """What a person can do about a run that stands so; None where there is nothing to do."""
    match status:
        case "interrupted":
            return f"interrupted: `ideabridge resume {run}` goes on with it"
        case "needs_approval":
            return f"needs_approval: `ideabridge approvals list {run}` shows what waits, and how to answer"
        case "needs_solution":
            return f"needs_solution: `ideabridge resume {run}` takes it from you, or from the configured model"
        case _:
            return None


@command("config", "project", "store", "tools", "allow_all", "json")
def resume(
    options: Options,
    run: RunArgument,
) -> int:
    """Go on with a run that waits or whose process died, and follow it as `run` does.

    Finished calls do not run again. A call that was in flight runs again where its tool says that it may run twice;
    else you are asked what came of it, or, in a `solve`, the mind is told. It needs the configuration the run was
    started under, --tools and --allow-all included.
    """
    import anyio

    return anyio.run(_resume, options, lookup_run(options, run).id)


async def _resume(options: Options, run_id: str) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.follow import follow, print_result

    async with Bridge(with_existing_store(options)) as bridge:
        # What a room gives belongs to its run: that is what goes on.
        run = (await bridge.resume(run_id)).root
        outcome = await follow(run, quiet=options.json, by_turns=True)
        return print_result(outcome, options)


@app.command("cancel")
@command("config", "project", "store", "tools", "allow_all", "json")
def cancel(
    options: Options,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs: ids, beginnings of them, or `last`.")],
) -> int:
    """End runs, and their calls. What was done stays.

    A run that nobody is at work on is ended here, without going on with it first. Where another process is at work on
    it, that one is asked to, and has 5 seconds.
    """
    import anyio

    return anyio.run(_cancel, options, [lookup_run(options, run) for run in runs])


async def _cancel(options: Options, records: list[RunRecord]) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.errors import FinishedRunError

    told: list[JSON] = []
    faults: list[IdeabridgeError] = []
    async with Bridge(with_existing_store(options)) as bridge:
        for record in records:
            # What a room gives belongs to its run: that is what ends.
            root = record.id.partition(".")[0]
            try:
                before = bridge.store.runs.get(root)
                if before is not None and before.status in _ENDED:
                    raise FinishedRunError(f"run {root} has ended ({before.status}); there is nothing to cancel")
                run = await bridge.cancel(root, "cancelled at the command line")
            except IdeabridgeError as error:
                faults.append(error)
                continue
            told.append({"run": run.id, "status": run.status})
            if not options.json:
                say(f"{run.id}: {run.status}", "green")
    if len(records) == 1 and faults:
        raise faults[0]
    if options.json:
        print_json(told[0] if len(records) == 1 else {"runs": told, "errors": [str(error) for error in faults]})
    for error in faults:
        report(str(error))
    return 1 if faults else 0


# -- show and fork -----------------------------------------------------------------------------------------------------


@app.command("show")
@command("config", "project", "store", "json")
def show_run(
    options: Options,
    run: RunArgument,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", help="What stood after event N, and what the mind had been told.")
    ] = None,
) -> int:
    """Show what happened in a run: every event, with the calls, errors, approvals and tokens. Nothing is started."""
    from ideabridge.server.cli.follow import read_history

    with open_store(options) as store:
        record = resolve_run(store, run)
        journal = list(store.runs.events(record.id))
        if at is not None and not 1 <= at <= len(journal):
            raise UsageError(f"--at: expected 1 to {len(journal)}, an event of the run, found {at}")
        history = read_history(journal[:at], store.runs.event_times(record.id))
        lineage = _lineage(store, record)
    if at is not None:
        return _show_at(options, record, history)
    if options.json:
        print_json({**_history_json(record, history), **lineage, "events": _events(journal, history)})
        return 0
    _print_history(record, history, lineage)
    return 0


def _lineage(store: Store, record: RunRecord) -> JSONObject:
    """Where the run comes from, and what came of it."""
    told: JSONObject = {}
    if record.parent is not None:
        told["part_of"] = record.parent
    if record.forked_from is not None:
        told["forked_from"] = {"run": record.forked_from, "at": record.forked_at}
    forks: list[JSON] = [{"run": run, "at": at} for run, at in store.runs.forks(record.id)]
    if forks:
        told["forks"] = forks
    rooms: list[JSON] = [
        {"run": one.id, "status": one.status, "title": one.title} for one in store.runs.rooms(record.id)
    ]
    if rooms:
        told["rooms"] = rooms
    ideas: list[JSON] = [one.id for one in store.ideas.of_run(record.id)]
    return {**told, "ideas": ideas} if ideas else told


def _history_json(record: RunRecord, history: RunHistory) -> JSONObject:
    from ideabridge.server.cli.follow import call_json

    machine = history.machine
    status, why = run_status(record)
    told: JSONObject = {
        "run": record.id,
        "status": status,
        "kind": record.kind,
        "caller": record.caller,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
        "calls": [call_json(number, one) for number, one in enumerate(machine.history)],
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
    return {**told, "broken": history.broken} if history.broken else told


def _events(journal: list[tuple[int, JSONObject]], history: RunHistory) -> list[JSON]:
    told: list[JSON] = []
    for (number, raw), entry in zip(journal, history.entries, strict=False):
        when = None if entry.at is None else datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
        told.append({"number": number, "time": when, "text": entry.text, "event": raw})
    return told


def _print_history(record: RunRecord, history: RunHistory, lineage: JSONObject) -> None:
    from collections import Counter

    from ideabridge.server.cli.follow import error_line

    machine = history.machine
    status, why = run_status(record)
    reason = machine.reason or why
    show(f"run {record.id}: {status}{errors_text(len(machine.errors))}{f' ({reason})' if reason else ''}", "bold")
    show(fit(f"  {record.kind} of {record.caller}, {record.created[:19].replace('T', ' ')} UTC: {record.title}", 4))
    for line in _lineage_lines(lineage):
        show(fit(f"  {line}", 4))
    show("events (number, seconds, what)", "bold")
    begun = next((one.at for one in history.entries if one.at is not None), 0.0)
    width = len(str(len(history.entries)))
    for entry in history.entries:
        seconds = "" if entry.at is None else f"{entry.at - begun:8.3f}"
        show(fit(f"  {entry.number:>{width}} {seconds:>8}  {entry.text}", width + 13), entry.style)
    if history.broken:
        show(f"  {history.broken}", "red")
    counted = Counter(one.status.value for one in machine.history)
    calls = ", ".join(f"{count} {name}" for name, count in counted.items()) or "none"
    show(f"calls: {calls}; tokens: {machine.usage.tokens}; cost: {machine.usage.cost or 0:g}")
    for error in machine.errors:
        show(fit(f"  error: {error_line(error)}", 4), "red")
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


def _show_at(options: Options, record: RunRecord, history: RunHistory) -> int:
    """What stood after an event: the Request at hand as the mind was told it, and the state."""
    from ideabridge.bridge.context.messages import Handlers
    from ideabridge.bridge.loop.event import RequestMade
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.loop.request import Composer, SchemaCache

    asked = [number for number, one in enumerate(history.entries) if isinstance(one.event, RequestMade)]
    machine = Machine()
    # Composed where it was made: what it told stands in the machine only until it is answered.
    for entry in history.entries[: asked[-1]] if asked else history.entries[:1]:
        machine.receive(entry.event)
    made = history.entries[asked[-1]].event if asked else None
    request = Composer(Handlers(), SchemaCache()).compose(machine, made if isinstance(made, RequestMade) else None)
    same = not isinstance(made, RequestMade) or made.request == request.id
    now = history.machine
    last = history.entries[-1]
    if options.json:
        from ideabridge.server.cli.follow import call_json

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
                "calls": [call_json(number, one) for number, one in enumerate(now.history)],
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
        show(f"  {number} {one.call.name}: {one.status.value}")
    return 0


@app.command("fork")
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
    return anyio.run(_fork, options, lookup_run(options, run), at, other, given)


async def _fork(options: Options, record: RunRecord, at: int, solution: JSON, given: JSONObject | None) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.follow import follow, print_result

    async with Bridge(with_existing_store(options)) as bridge:
        if given is not None:
            given = {**_input_of(bridge.store, record.id), **given}
        fork = await bridge.fork(record.id, at, solution=solution, input=given, caller=record.caller)
        say(f"run {fork.id} goes on from {record.id} after event {at}", "dim")
        return print_result(await follow(fork, quiet=options.json), options)


def _input_of(store: Store, run_id: str) -> JSONObject:
    """What the run was given."""
    from ideabridge.bridge.context.messages import read_context
    from ideabridge.bridge.loop.event import RunStarted, event_from_json

    first = next(store.runs.events(run_id), None)
    started = event_from_json(first[1]) if first is not None else None
    if isinstance(started, RunStarted):
        for message in read_context(started.context):
            if message.type == "input" and not message.instance and isinstance(message.value, dict):
                return message.value
    return {}
