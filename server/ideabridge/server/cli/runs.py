"""The commands `ideabridge runs`, which lists, shows, forks and cancels runs, and `ideabridge
resume`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.console import (
    UsageError,
    errors_text,
    fit,
    print_json,
    print_value,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.inputs import (
    expect_names,
    inputs_taken,
    read_input,
    read_solution_at,
)
from ideabridge.server.cli.options import AfterOption, InputOption, LimitOption, Options, command
from ideabridge.server.cli.stores import (
    RunArgument,
    lookup_run,
    open_bridge,
    open_store,
    resolve_run,
)
from ideabridge.server.views.records import (
    ListedStatus,
    input_of,
    lineage_of,
    listed_runs,
    run_status,
    solution_of_plan,
)
from ideabridge.server.views.text import error_line, skipped_line
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import duration_text, size_text

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.loop.event import RequestMade
    from ideabridge.bridge.store.direct_calls import DirectCall
    from ideabridge.bridge.store.run_record import RunRecord
    from ideabridge.server.views.history import RunHistory


app = typer.Typer(help="List, show, fork and cancel runs.", no_args_is_help=True)


@app.command("list")
@command("config", "project", "store", "json")
def list_runs(
    options: Options,
    status: Annotated[
        ListedStatus | None,
        typer.Option("--status", "-s", metavar="STATUS", help="List only runs with this status."),
    ] = None,
    limit: LimitOption = 20,
    after: Annotated[
        str | None, typer.Option("--after", metavar="RUN", help="Continue after this run.")
    ] = None,
) -> None:
    """List the runs of every caller, newest first. A run is interrupted if its process ended
    before the run did.
    """
    with open_store(options) as store:
        cursor = None if after is None else resolve_run(store, after).id
        records = listed_runs(store, SEES_ALL, limit, status=status, after=cursor)

    following = records[-1].id if len(records) == limit else None
    titles = ["run", "status", "kind", "started (UTC)", "title"]
    rows = [_row(record) for record in records]
    if len({record.caller for record in records}) > 1:
        titles.insert(3, "caller")
        for row, record in zip(rows, records, strict=True):
            row.insert(3, record.caller)

    options.print_rows(
        {"runs": [_listed_json(record) for record in records], "next": following},
        titles,
        rows,
        empty=_empty_list(status, after),
        more=following,
    )
    if not options.json:
        for advice in dict.fromkeys(next_step("RUN", run_status(record)[0]) for record in records):
            if advice is not None:
                say(advice, "dim")


def _empty_list(status: ListedStatus | None, after: str | None) -> str:
    """Return the text that `runs list` prints if it finds no runs."""
    if after is None:
        return "no runs yet" if status is None else f"no run has the status {status}"
    if status is None:
        return f"no run comes after {after}"
    return f"no run with the status {status} comes after {after}"


def status_text(record: RunRecord) -> str:
    """Return the status of a run, with the number of its errors."""
    return run_status(record)[0] + errors_text(record.summary.errors)


@app.command("direct")
@command("config", "project", "store", "json")
def list_direct_calls(options: Options, limit: LimitOption = 20, after: AfterOption = None) -> None:
    """List every caller's direct calls to exposed tools, newest first. Parameters and results are
    not stored.
    """
    with open_store(options) as store:
        page = store.direct_calls.page(limit, after, caller=SEES_ALL)

    empty = "no direct calls are recorded"
    if after is not None:
        empty = "no direct call comes after this cursor"

    calls: list[JSON] = [cast("JSONObject", call._asdict()) for call in page.items]
    options.print_rows(
        {"calls": calls, "next": page.next},
        ("time (UTC)", "outcome", "took", "tool", "by"),
        [_direct(call) for call in page.items],
        empty=empty,
        more=page.next,
    )


def _direct(call: DirectCall) -> list[str]:
    at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    tool = f"{call.module}/{call.tool}" if call.module else call.tool
    by = [
        call.run or "",
        call.caller,
        call.client,
        f"{size_text(call.bytes_in)} in, {size_text(call.bytes_out)} out",
    ]
    return [
        at,
        call.outcome,
        duration_text(call.seconds),
        tool,
        ", ".join(part for part in by if part),
    ]


def _listed_json(record: RunRecord) -> JSONObject:
    """Return a run as JSON for the list. Here, `errors` is a number; in `_history_json`, it is a
    list.
    """
    return {**_record_json(record), "errors": record.summary.errors}


def _record_json(record: RunRecord) -> JSONObject:
    """Return the JSON members that the list of runs and the history of a run have in common."""
    status, reason = run_status(record)
    run: JSONObject = {
        "run": record.id,
        "status": status,
        "kind": record.kind,
        "caller": record.caller,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
    }
    if reason:
        run["reason"] = reason
    return run


def _row(record: RunRecord) -> list[str]:
    reason = run_status(record)[1]
    title = f"{record.title} ({reason})" if reason else record.title
    started = record.created[:16].replace("T", " ")
    return [record.id, status_text(record), record.kind, started, title]


def next_step(run: str, status: str) -> str | None:
    """Return a sentence that suggests the next step for a run with the given status.

    Return None if nothing is left to do.
    """
    match status:
        case "queued":
            return (
                "queued: `ideabridge worker` continues it, under the configuration of the server "
                "that queued it"
            )
        case "interrupted":
            return f"interrupted: `ideabridge resume {run}` continues it"
        case "needs_approval":
            return (
                f"needs_approval: `ideabridge approvals list {run}` shows the open "
                "decisions and their answers"
            )
        case "needs_solution":
            return (
                f"needs_solution: `ideabridge resume {run}` gets it from you or from the "
                "configured model"
            )
        case _:
            return None


@command("config", "project", "store", "tools", "allow_all", "json")
async def resume(options: Options, run: RunArgument) -> int:
    """Continue a run that is waiting or whose process died, and follow it as `run` does.

    Finished calls do not run again. A call that was in flight runs again if its tool can safely run
    twice. Otherwise its outcome is unknown. If a plan or a program made the call, you are asked for
    the outcome. If a mind made it, the mind is told that the outcome is unknown. The command needs
    the servers and tools of the run, including those of --tools.
    """
    from ideabridge.server.cli.follow import follow, print_result

    record = lookup_run(options, run)
    async with open_bridge(options) as bridge:
        # A room hands its result to the run that opened it, so continue that run.
        continued = (await bridge.resume(record.id, caller=SEES_ALL)).root
        return print_result(await follow(continued, quiet=options.json, by_turns=True), options)


@app.command("cancel")
@command("config", "project", "store", "tools", "allow_all", "json")
async def cancel(
    options: Options,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Runs: ids, beginnings of ids, or `last` (the newest)."
        ),
    ],
) -> int:
    """End runs, and their calls. Completed work is kept.

    A run that no process is executing ends immediately, without being continued. A process that is
    executing the run is asked to end it, and has 5 seconds.
    """
    from ideabridge.bridge.errors import FinishedRunError

    records = [lookup_run(options, run) for run in runs]
    cancelled: list[JSON] = []
    errors: list[IdeabridgeError] = []
    async with open_bridge(options) as bridge:
        for record in records:
            # Cancel the run that a room belongs to, because the room ends with it.
            root = record.id.partition(".")[0]
            try:
                before = bridge.store.runs.get(root)
                if before is not None and before.status in ENDED:
                    raise FinishedRunError(
                        f"run {root} has ended ({before.status}); there is nothing to cancel"
                    )
                run = await bridge.cancel(root, "cancelled at the command line", caller=SEES_ALL)
            except IdeabridgeError as error:
                errors.append(error)
                continue

            cancelled.append({"run": run.id, "status": run.status})
            if not options.json:
                say(f"{run.id}: {run.status}", "green")

    if len(records) == 1 and errors:
        raise errors[0]

    if options.json:
        texts: list[JSON] = [str(error) for error in errors]
        print_json(cancelled[0] if len(records) == 1 else {"runs": cancelled, "errors": texts})

    for error in errors:
        report(str(error))

    return 1 if errors else 0


@app.command("show")
@command("config", "project", "store", "json")
def show_run(
    options: Options,
    run: RunArgument,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="N", help="The state after event N, and the context of the mind."
        ),
    ] = None,
) -> int:
    """Show the history of a run: every event, with calls, errors, approvals and tokens. This
    command does not start or continue any run.
    """
    from ideabridge.server.views.history import read_history

    with open_store(options) as store:
        record = resolve_run(store, run)
        journal = list(store.runs.events(record.id))
        if at is not None and not 1 <= at <= len(journal):
            raise UsageError(f"--at: expected 1 to {len(journal)}, an event of the run, found {at}")

        history = read_history(journal[:at], store.runs.event_times(record.id))
        lineage = lineage_of(store, record)

    if at is not None:
        return _show_at(options, record, history)
    if options.json:
        print_json(
            {**_history_json(record, history), **lineage, "events": _events(journal, history)}
        )
        return 0

    _print_history(record, history, lineage)
    return 0


def _history_json(record: RunRecord, history: RunHistory) -> JSONObject:
    from ideabridge.bridge.runs.values import skipped_calls
    from ideabridge.server.views.history import call_json

    machine = history.machine
    run: JSONObject = {
        **_record_json(record),
        "calls": [call_json(number, call) for number, call in enumerate(machine.history)],
        "errors": [dict(error) for error in machine.errors],
        "usage": {"tokens": machine.usage.tokens, "cost": machine.usage.cost},
    }
    skipped = skipped_calls(machine)
    if skipped:
        run["skipped"] = list[JSON](skipped)

    if machine.reason:
        run["reason"] = machine.reason

    run.update(machine.doubts.to_json() or {})
    if machine.has_output:
        run["output"] = machine.output

    if not machine.has_output or (machine.mode == "solve" and machine.has_state):
        run["state"] = machine.state

    if history.broken:
        run["broken"] = history.broken
    return run


def _events(journal: list[tuple[int, JSONObject]], history: RunHistory) -> list[JSON]:
    events: list[JSON] = []
    for (number, raw), entry in zip(journal, history.entries, strict=False):
        event: JSONObject = {"number": number, "time": None, "text": entry.text, "event": raw}
        if entry.at is not None:
            time = datetime.fromtimestamp(entry.at, UTC)
            event["time"] = time.isoformat(timespec="milliseconds")
        events.append(event)

    return events


def _origin_lines(record: RunRecord) -> list[str]:
    """Return lines that say where an imported run comes from, and which of its results are
    incomplete.
    """
    origin = record.summary.origin
    lines: list[str] = []
    if origin.host is not None:
        lines.append(f"imported from {origin.host}, conversation {origin.conversation}")
        imported = origin.imported[:16].replace("T", " ")
        lines.append(f"imported at {imported} UTC; the times of its calls are those of the log")

    lines += [
        f"call {mark.call}: the result is incomplete: {mark.why}" for mark in origin.incomplete
    ]
    return lines


def _print_history(record: RunRecord, history: RunHistory, lineage: JSONObject) -> None:
    from collections import Counter

    from ideabridge.bridge.runs.values import skipped_calls
    from ideabridge.server.views.history import doubt_lines

    machine = history.machine
    status, stored_reason = run_status(record)
    reason = machine.reason or stored_reason
    head = f"run {record.id}: {status}{errors_text(len(machine.errors))}"
    show_line(f"{head} ({reason})" if reason else head, "bold")
    created = record.created[:19].replace("T", " ")
    show_line(fit(f"  {record.kind} of {record.caller}, {created} UTC: {record.title}", 4))
    for line in [*_lineage_lines(lineage), *_origin_lines(record)]:
        show_line(fit(f"  {line}", 4))

    show_line("events (number, seconds, what)", "bold")
    begun = next((entry.at for entry in history.entries if entry.at is not None), 0.0)
    width = len(str(len(history.entries)))
    for entry in history.entries:
        seconds = "" if entry.at is None else f"{entry.at - begun:8.3f}"
        show_line(
            fit(f"  {entry.number:>{width}} {seconds:>8}  {entry.text}", width + 13), entry.style
        )

    if history.broken:
        show_line(f"  {history.broken}", "red")

    statuses = Counter(call.status.value for call in machine.history)
    calls = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "none"
    show_line(f"calls: {calls}; tokens: {machine.usage.tokens}; cost: {machine.usage.cost or 0:g}")
    for line in doubt_lines(machine):
        show_line(fit(f"  {line}", 4), "yellow")

    for error in machine.errors:
        show_line(fit(f"  error: {error_line(error)}", 4), "red")

    for skipped in skipped_calls(machine):
        show_line(fit(f"  skipped: {skipped_line(skipped)}", 4), "dim")

    advice = next_step(record.id, status)
    if advice is not None:
        say(advice, "dim")


def _lineage_lines(lineage: JSONObject) -> Iterator[str]:
    for key, value in lineage.items():
        related = ", ".join(map(_related, value if isinstance(value, list) else [value]))
        yield f"{key.replace('_', ' ')}: {related}"


def _related(value: JSON) -> str:
    """Describe an idea or another run that is related to a run.

    For another run, the description includes its status, or the event after which it was forked.
    """
    if not isinstance(value, dict):
        text = str(value)
        return text if text.startswith("run_") else text[:12]

    text = str(value.get("run"))
    if value.get("at"):
        text += f" after event {value['at']}"
    if value.get("status"):
        text += f" ({value['status']})"
    return text


def _show_at(options: Options, record: RunRecord, history: RunHistory) -> int:
    """Show the latest Request, the state and the calls as of the last event in `history`."""
    from ideabridge.bridge.context.messages import Handlers
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.loop.request import Composer, SchemaCache
    from ideabridge.bridge.programs.names import program_schema

    machine = Machine()
    latest, end = _latest_request(history)
    # The machine keeps the contents of a Request only until it is answered, so compose them again
    # from the events before the Request.
    for entry in history.entries[:end]:
        machine.receive(entry.event)

    composer = Composer(Handlers(), SchemaCache(), program_schema=program_schema)
    request = composer.compose(machine, latest)
    is_exact = latest is None or latest.request == request.id
    now = history.machine
    last = history.entries[-1]
    if options.json:
        from ideabridge.server.views.history import call_json

        result: JSONObject = {
            "run": record.id,
            "at": last.number,
            "event": last.text,
            "request": None,
            "exact": is_exact,
            "context": list[JSON](request.texts),
            "messages": request.context_json,
            "schema": None,
            "shown": None,
            "state": now.state,
            "calls": [call_json(number, call) for number, call in enumerate(now.history)],
        }
        if latest is not None:
            # These are the parts from which the id is computed.
            result |= {"request": request.id, "schema": request.schema, "shown": request.shown}

        print_json(result)
        return 0

    show_line(f"run {record.id} after event {last.number}: {last.text}", "bold")
    title = "context (no mind was asked)"
    if latest is not None:
        title = f"request {machine.step}, as the mind saw it"
    if not is_exact:
        title += ", except for changes by the program's own handlers"

    show_line(title, "bold")
    for message in request.texts:
        show_line(f"  [{message.get('role')}]", "cyan")
        for line in str(message.get("content")).split("\n"):
            show_line(f"    {line}")

    show_line("state", "bold")
    print_value(now.state)
    show_line("calls", "bold")
    for number, call in enumerate(now.history):
        show_line(f"  {number} {call.call.name}: {call.status.value}")

    return 0


def _latest_request(history: RunHistory) -> tuple[RequestMade | None, int]:
    """Return the latest Request and the number of entries before it, or (None, 1) if there is no
    Request.
    """
    from ideabridge.bridge.loop.event import RequestMade

    for number, entry in reversed(list(enumerate(history.entries))):
        if isinstance(entry.event, RequestMade):
            return entry.event, number

    return None, 1


@app.command("fork")
@command("config", "project", "store", "tools", "allow_all", "json")
async def fork_run(
    options: Options,
    run: RunArgument,
    at: Annotated[
        int, typer.Option("--at", metavar="N", help="The number of the event, as in `runs show`.")
    ],
    solution: Annotated[
        str | None,
        typer.Option(
            "--solution",
            metavar="FILE",
            help=(
                "A different solution for that step: solution.json or program.py; - reads JSON "
                "from standard input."
            ),
        ),
    ] = None,
    input: InputOption = None,  # noqa: A002
) -> int:
    """Start a new run that continues from a point in another run, with different input or a
    different solution.

    Calls that started before that point do not run again. The members of --input override those of
    the run's input.
    """
    from ideabridge.server.cli.follow import follow, print_result

    changes = read_input([_file_or_word(word) for word in input]) if input else None
    replacement = read_solution_at(solution, "--solution") if solution is not None else None
    record = lookup_run(options, run)
    async with open_bridge(options) as bridge:
        changed_input: JSONObject | None = None
        if changes is not None:
            recorded_input = input_of(bridge.store, record.id)
            if record.kind == "plan":
                _expect_inputs(bridge, record.id, replacement, recorded_input, changes)
            changed_input = {**recorded_input, **changes}

        fork = await bridge.fork(
            record.id, at, solution=replacement, input=changed_input, caller=record.caller
        )
        say(f"run {fork.id} continues {record.id} after event {at}", "dim")
        return print_result(await follow(fork, quiet=options.json), options)


def _expect_inputs(
    bridge: Bridge, run_id: str, solution: JSON, recorded_input: JSONObject, changes: JSONObject
) -> None:
    """Raise `UsageError` if `changes` adds a member to a run's input that the plan of the fork does
    not read. The plan of the fork is `solution` or, if that is None, the plan of the run.
    """
    from ideabridge.bridge.errors import PlanError
    from ideabridge.bridge.plan import read_plan

    try:
        plan = read_plan(solution_of_plan(bridge.store, run_id) if solution is None else solution)
    except PlanError:
        # The plan is malformed, and the fork itself will say what is wrong with it.
        return

    names = inputs_taken(bridge, plan)
    if names is not None:
        expect_names(changes, sorted({*names, *recorded_input}), "the run")


def _file_or_word(word: str) -> str:
    """Return `@FILE` if `word` is the path of a file, and the word unchanged otherwise."""
    # `key=value` can be too long for a file name, which raises an error.
    with suppress(OSError):
        if not word.startswith(("@", "{")) and Path(word).is_file():
            return f"@{word}"
    return word
