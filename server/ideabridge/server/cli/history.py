"""The command `ideabridge history`, which imports the conversations that hosts keep on this machine
as runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    confirm,
    fit,
    print_json,
    print_table,
    report,
    say,
    show_line,
    working,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import open_store
from ideabridge.tools.names import counted, joined

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.history.host_logs import HostLogs
    from ideabridge.bridge.history.importer import HistoryImport
    from ideabridge.bridge.history.report import HistoryReport, HistoryRun

app = typer.Typer(
    help="Import what assistants have done with your tools so far.", no_args_is_help=True
)

_SHOWN_ID = 13
"""Number of characters of a conversation's id that the table shows. Ids are UUIDs, and some begin
with a time, so a few characters would not distinguish them.
"""

_SERVERS = 8
"""Maximum number of servers that the command names as not configured."""

_MOST_ROWS = 20
"""Maximum number of runs shown in the table. With more rows, the summary would be pages further
down.
"""

_REASONS = 5
"""Maximum number of reasons given for runs that were not saved."""


@app.callback()
def history() -> None:
    """Keep `import` a subcommand: Typer runs a single command without its name."""


@app.command("import")
@command("config", "project", "store", "json")
async def import_history(
    options: Options,
    host: Annotated[
        str,
        typer.Argument(
            metavar="HOST", help="claude-code, codex, copilot-cli, gemini-cli or opencode."
        ),
    ],
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            "--module",
            metavar="LOGNAME=SERVER",
            help=(
                "The configured server that LOGNAME in the logs stands for, if its name in the "
                "host differs; may be repeated."
            ),
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be imported.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Read the logs without asking.")] = False,
) -> int:
    """Save the calls of configured servers in a host's logs as runs, from which tools
    can be published.

    You are asked before the logs are read. Only calls of these servers, their results, and what you
    had asked for are saved. Calls that were imported before are not imported again. The exit code
    is 1 if a log could not be read.
    """
    from ideabridge.bridge.history.host_logs import HostLogs
    from ideabridge.bridge.store.users import LOCAL

    names = _names(module or [])
    if not yes and (options.json or not at_terminal()):
        raise UsageError("cannot ask for permission to read the logs without a terminal: add --yes")

    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(options, create=True))
        modules = options.configuration().enabled_modules
        logs = HostLogs(host, store, modules, caller=LOCAL, renamed=names)
        if not logs.modules:
            raise UsageError(
                "no servers are configured, so there is nothing to import (`ideabridge servers "
                "import HOST`)"
            )

        if not logs.inventory.files:
            folders = ", ".join(map(str, logs.folders))
            raise UsageError(f"{logs.title} has no logs in {folders}")
        if not yes and not _may_read(logs):
            say("nothing was read")
            return 0

        # Start the bridge only if there is a log to read, because starting it takes a second.
        report = logs.report_unchanged()
        if report is None:
            report = await _read(options, logs, names, stack, dry_run=dry_run)

    if options.json:
        print_json({"dry_run": dry_run, **report.to_json(), "unread_logs": logs.inventory.unread})
    else:
        _print(logs, report, dry_run=dry_run)

    return 1 if report.failed else 0


async def _read(
    options: Options,
    logs: HostLogs,
    names: dict[str, str],
    stack: AsyncExitStack,
    *,
    dry_run: bool,
) -> HistoryReport:
    """Read the logs that have changed, and import their calls, unless this is a dry run."""
    from ideabridge.bridge.bridge import Bridge

    bridge = Bridge(options.configuration(), store=logs.store)
    history = bridge.history(logs.name, modules=names)
    if not dry_run:
        return await _take(history, bridge, stack, quiet=options.json)

    with working(_progress("reading logs", history), quiet=options.json):
        return await history.survey()


async def _take(
    history: HistoryImport, bridge: Bridge, stack: AsyncExitStack, *, quiet: bool
) -> HistoryReport:
    """Import the logs, and show progress on the terminal."""
    from ideabridge.server.cli.connecting import connected

    with ExitStack() as shown:
        shown.enter_context(_saying_what_stays(history))
        line = shown.enter_context(ExitStack())
        line.enter_context(working(_progress("reading logs", history), quiet=quiet))

        async def connect() -> None:
            # Start the servers only if there are calls to import. They show a line of their own
            # while they connect, so remove the import's line first.
            line.close()
            await stack.enter_async_context(connected(bridge))
            line.enter_context(working(_progress("saving runs", history), quiet=quiet))

        return await history.take(connect)


def _progress(task: str, history: HistoryImport) -> Callable[[], str]:
    total = len(history.logs.inventory.files)
    return lambda: f"{task}: {history.done:,} of {counted(total, 'log')}"


@contextmanager
def _saying_what_stays(history: HistoryImport) -> Generator[None]:
    """If an import ends early, report the runs that it has already saved."""
    try:
        yield
    except BaseException:
        saved = [run for run in history.report.runs if run.run is not None]
        if saved:
            say(f"already saved: {counted(len(saved), 'run')}; the next import continues there")
        raise


def _names(words: list[str]) -> dict[str, str]:
    """Return a mapping of the names in the logs to the names of servers."""
    names: dict[str, str] = {}
    for word in words:
        name, equals, module = word.rpartition("=")
        if not equals or not name or not module:
            raise UsageError(f"--server: expected LOGNAME=SERVER, found {word[:100]!r}")
        names[name] = module

    return names


def _may_read(logs: HostLogs) -> bool:
    folders = [
        str(folder)
        for folder in logs.folders
        if any(log.is_relative_to(folder) for log in logs.inventory.files)
    ]
    say(
        f"{counted(len(logs.inventory.files), 'log')} of {logs.title} in {', '.join(folders)}",
        "bold",
    )
    say(
        f"ideabridge imports calls to {', '.join(logs.modules)}, their results, and what you asked "
        "for; they stay in your store"
    )
    return confirm("Read the logs?")


def _print(logs: HostLogs, imported: HistoryReport, *, dry_run: bool) -> None:
    if 0 < len(imported.runs) <= _MOST_ROWS:
        titles = ["conversation", "time (UTC)", "calls", "servers", "unread", "run"]
        print_table(titles, [_row(run, dry_run=dry_run) for run in imported.runs])

    for line in _incomplete(imported.runs):
        say(line, "yellow")

    for log, reason in imported.failed.items():
        report(f"{log}: {reason}")

    for line in _counts(logs, imported):
        say(line, "dim")

    new = [run for run in imported.runs if not run.why]
    calls = counted(sum(run.calls for run in new), "call")
    if not new:
        if imported.known:
            say("there is nothing new")
        else:
            say("there are no calls of configured servers")
        return

    runs = f"{counted(len(new), 'run')} with {calls}{_period(new)}"
    if dry_run:
        say(f"{runs} would be saved")
        return

    say(f"saved: {runs}", "green")
    if len(imported.runs) > _MOST_ROWS:
        show_line(fit("`ideabridge runs list` shows the newest; --json prints all"))
    show_line(fit("`ideabridge ideas suggest` shows repeated work that could become tools"))


def _row(run: HistoryRun, *, dry_run: bool) -> list[str]:
    state = run.run or run.why or ("would be saved" if dry_run else "")
    time = run.time[:16].replace("T", " ")
    return [_shown_id(run), time, str(run.calls), ", ".join(run.modules), str(run.unread), state]


def _shown_id(run: HistoryRun) -> str:
    """Return the first characters of a conversation's id, including those of the part for the
    subagent, if any.
    """
    conversation, slash, part = run.conversation.partition("/")
    return f"{conversation[:_SHOWN_ID]}{slash}{part[:_SHOWN_ID]}"


def _incomplete(runs: Sequence[HistoryRun]) -> list[str]:
    """Return sentences about the parts of conversations that are missing from their runs: one for
    each run or, if there are many runs, one for each reason.
    """
    if len(runs) <= _MOST_ROWS:
        return [
            f"  {_shown_id(run)}: {sentence}"
            for run in runs
            for sentence in _incomplete_sentences(run.left, run.incomplete)
        ]

    left: Counter[str] = Counter()
    not_saved: Counter[str] = Counter()
    for run in runs:
        left += run.left
        if run.why:
            not_saved[run.why] += 1

    sentences = _incomplete_sentences(left, sum(run.incomplete for run in runs))
    for reason, count in not_saved.most_common(_REASONS):
        sentences.append(f"not saved: {reason} ({counted(count, 'run')})")

    if len(not_saved) > _REASONS:
        others = not_saved.total() - sum(count for _, count in not_saved.most_common(_REASONS))
        sentences.append(f"not saved for other reasons: {counted(others, 'run')}")
    return sentences


def _incomplete_sentences(left: Counter[str], incomplete: int) -> list[str]:
    sentences = [f"left out: {counted(count, 'call')} {reason}" for reason, count in left.items()]
    if incomplete:
        sentences.append(f"incomplete in the log: {counted(incomplete, 'result')}")
    return sentences


def _period(runs: Sequence[HistoryRun]) -> str:
    """Return the first and last day of the runs if there are many. If there are few, return "",
    because the table shows the day of each run.
    """
    days = sorted(run.time[:10] for run in runs if run.time)
    if len(runs) <= _MOST_ROWS or not days:
        return ""
    if days[0] == days[-1]:
        return f", of {days[0]}"
    return f", of {days[0]} to {days[-1]}"


def _counts(logs: HostLogs, report: HistoryReport) -> list[str]:
    """Return sentences about how much an import read and repaired, and what it did not import."""
    unread = ", ".join(
        f"{counted(count, 'line')} {why}" for why, count in report.unread.most_common()
    )
    read = f"{counted(report.logs, 'log')} read"
    if unread:
        read = f"{read}; left out: {unread}"

    lines = [read]
    if report.repaired:
        lines.append(f"{counted(report.repaired, 'damaged line')} repaired")

    if report.known:
        lines.append(f"{counted(report.known, 'call')} already imported")

    if report.others:
        others = [f"{name} ({count:,})" for name, count in report.others.most_common()]
        lines.append(
            f"not imported: calls to {joined(others, _SERVERS)}, which are not servers here "
            "(--server LOGNAME=SERVER)"
        )

    for count, text in (
        (logs.inventory.links, "link not followed"),
        (logs.inventory.compressed, "compressed log not read without the package backports.zstd"),
        (logs.inventory.left_off, "older log not read"),
    ):
        if count:
            noun, _, reason = text.partition(" not ")
            lines.append(f"{counted(count, noun)} not {reason}")

    return lines
