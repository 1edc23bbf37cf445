"""`ideabridge resume RUN` and `ideabridge runs`: runs a process left behind, and all the others."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.ideas import LimitOption
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import existing, opened
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.records import RunRecord

app = typer.Typer(help="The runs: how each stands.", no_args_is_help=True)


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
    """List runs, newest first: those of every caller."""
    from ideabridge.server.cli.console import print_json, print_table, say

    with opened(options) as store:
        records = store.runs(status=status.value if status else None, limit=limit, after=after, rooms=False)
    following = records[-1].id if len(records) == limit else None
    if options.json:
        runs: list[JSON] = [_told(record) for record in records]
        print_json({"runs": runs, "next": following})
    elif records:
        titles = ("run", "status", "kind", "caller", "started", "title")
        print_table(titles, [_row(record) for record in records])
        if following:
            say(f"more: --after {following}", "dim")
    elif after is not None:
        say(f"no run{f' that is {status.value}' if status else ''} comes after {after}")
    else:
        say("no runs yet" if status is None else f"no run is {status.value}")
    return 0


def _told(record: RunRecord) -> JSONObject:
    told: JSONObject = {
        "run": record.id,
        "status": record.status,
        "kind": record.kind,
        "caller": record.caller,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
    }
    reason = _reason(record)
    return {**told, "reason": reason} if reason else told


def _row(record: RunRecord) -> tuple[str, ...]:
    reason = _reason(record)
    title = f"{record.title} ({reason})" if reason else record.title
    started = record.created[:19].replace("T", " ")
    return record.id, record.status, record.kind, record.caller, started, title


def _reason(record: RunRecord) -> str | None:
    """Why it stands so, where that was noted."""
    reason = (record.summary or {}).get("reason")
    return reason if isinstance(reason, str) else None


@command("config", "project", "store", "tools", "allow_all", "json")
def resume(
    options: Options,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, as `ideabridge runs list` names it.")],
) -> int:
    """Take up a run whose process died, and stay with it as `run` does.

    Finished calls do not run again; those in flight do where their tool says that it may run twice, else you are asked
    what came of them (of a mind's calls it is told). It needs the configuration the run was started under, --tools and
    --allow-all included.
    """
    import anyio

    return anyio.run(_resume, options, run)


async def _resume(options: Options, run_id: str) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.follow import follow, tell

    async with Bridge(existing(options)) as bridge:
        # What a room gives belongs to its run: that is what goes on.
        run = (await bridge.resume(run_id)).root
        outcome = await follow(run, quiet=options.json, by_turns=True)
        return tell(outcome, json=options.json)
