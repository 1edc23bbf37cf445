"""`ideabridge resume RUN` and `ideabridge runs`: runs a process left behind, and all the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.console import errors_told
from ideabridge.server.cli.options import LimitOption, Options, command
from ideabridge.server.cli.stores import RunArgument, existing, opened, run_given, run_named
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.direct_calls import DirectCall
    from ideabridge.bridge.ideas.records import RunRecord
    from ideabridge.bridge.ideas.store import Store

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
    from ideabridge.server.cli.console import print_json, print_table, say

    with opened(options) as store:
        listed = _listed(store, status, None if after is None else run_named(store, after).id)
        records = list(itertools.islice(listed, limit))
    following = records[-1].id if len(records) == limit else None
    if options.json:
        runs: list[JSON] = [_run_json(record) for record in records]
        print_json({"runs": runs, "next": following})
    elif records:
        callers = {record.caller for record in records}
        titles = ["run", "status", "kind", *(["caller"] if len(callers) > 1 else []), "started (UTC)", "title"]
        print_table(titles, [_row(one, len(callers) > 1) for one in records], cut=True)
        for stands in dict.fromkeys(standing_of(record)[0] for record in records):
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
        page = store.runs(status=noted, limit=_PAGE, after=after, rooms=False)
        yield from (record for record in page if status is None or standing_of(record)[0] == status.value)
        if len(page) < _PAGE:
            return
        after = page[-1].id


def standing_of(record: RunRecord) -> tuple[str, str | None]:
    """(status, why it stands so, where that is known) of a run, as far as its record tells."""
    from ideabridge.bridge.driver import LEFT, is_left

    if is_left(record):
        return Status.INTERRUPTED.value, LEFT
    reason = (record.summary or {}).get("reason")
    return record.status, reason if isinstance(reason, str) else None


def errors_of(record: RunRecord) -> int:
    """How many calls or outputs of a run that has ended have failed."""
    errors = (record.summary or {}).get("errors")
    return errors if isinstance(errors, int) else 0


def standing_text(record: RunRecord) -> str:
    """How a run stands, and how many errors it ended with."""
    return standing_of(record)[0] + errors_told(errors_of(record))


@app.command("direct")
@command("config", "project", "store", "json")
def list_direct_calls(
    options: Options,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Go on after this cursor.")] = None,
) -> int:
    """List direct calls of exposed tools, newest first: those of every caller. No parameters and results are kept."""
    from ideabridge.server.cli.console import print_json, print_table, say

    with opened(options) as store:
        page = store.direct_calls(limit, after)
    if options.json:
        calls: list[JSON] = [cast("JSONObject", one._asdict()) for one in page.items]
        print_json({"calls": calls, "next": page.next})
    elif page.items:
        titles = ("time (UTC)", "outcome", "took", "tool", "by")
        print_table(titles, [_direct(one) for one in page.items], cut=True)
        if page.next:
            say(f"more: --after {page.next}", "dim")
    else:
        say("no direct call comes after this cursor" if after is not None else "no direct calls are recorded")
    return 0


def _direct(one: DirectCall) -> list[str]:
    at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    tool = f"{one.module}/{one.tool}" if one.module else one.tool
    by = [one.run or "", one.caller, one.client, f"{one.bytes_in:,} bytes in, {one.bytes_out:,} out"]
    return [at, one.outcome, f"{one.seconds:.3f} s", tool, ", ".join(part for part in by if part)]


def _run_json(record: RunRecord) -> JSONObject:
    status, reason = standing_of(record)
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
    reason = standing_of(record)[1]
    title = f"{record.title} ({reason})" if reason else record.title
    caller = [record.caller] if with_caller else []
    return [record.id, standing_text(record), record.kind, *caller, record.created[:16].replace("T", " "), title]


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

    return anyio.run(_resume, options, run_given(options, run).id)


async def _resume(options: Options, run_id: str) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.follow import follow, tell

    async with Bridge(existing(options)) as bridge:
        # What a room gives belongs to its run: that is what goes on.
        run = (await bridge.resume(run_id)).root
        outcome = await follow(run, quiet=options.json, by_turns=True)
        return tell(outcome, options)


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

    return anyio.run(_cancel, options, [run_given(options, run) for run in runs])


async def _cancel(options: Options, records: list[RunRecord]) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.errors import FinishedRunError
    from ideabridge.server.cli.console import print_json, report, say
    from ideabridge.tools.errors import IdeabridgeError

    told: list[JSON] = []
    faults: list[IdeabridgeError] = []
    async with Bridge(existing(options)) as bridge:
        for record in records:
            # What a room gives belongs to its run: that is what ends.
            root = record.id.partition(".")[0]
            try:
                before = bridge.store.run(root)
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
