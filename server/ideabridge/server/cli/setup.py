"""The command `ideabridge setup`, which sets everything up for a new user, after one question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    confirm,
    let_read,
    print_json,
    read_line,
    report,
    say,
    say_wrapped,
    show_line,
    terminal_width,
    wrapped,
    wrapped_table,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable_line

if TYPE_CHECKING:
    from ideabridge.server.setup.execution import SetupOutcome
    from ideabridge.server.setup.plan import Choice, PlannedService, SetupPlan
    from ideabridge.server.setup.record import SetupRecord

_ANSWERS: Final[dict[str, Choice]] = {"c": "copy", "copy": "copy", "m": "move", "move": "move"}
_STYLES: Final = {"restored": "green", "edited": "yellow", "left": "yellow", "failed": "red"}


@command("project", "store", "json")
async def setup(
    options: Options,
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore everything to the state before the setup.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask, change only your own files, and do not read histories.",
        ),
    ] = False,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Let clients connect to one service (`ideabridge service`), which starts each "
            "server once for all of them. If the service is not installed, setup installs it.",
        ),
    ] = False,
) -> int:
    """Put the servers of all your clients behind ideabridge, and ideabridge into all your clients.

    You see what is there and what would change, and are asked once. Your servers are copied into
    your own configuration, and their secrets into the keyring or a file that only you can read.
    Servers of the project go into its ideabridge.json, if a person at a terminal agrees. --undo
    puts every byte back. The exit code is 2 if nothing was changed because there is no terminal and
    no --yes.
    """
    if undo:
        return _undo(options, dry_run=dry_run, yes=yes)

    plan = _plan(options, shared=shared)
    asks = at_terminal() and not (yes or dry_run or options.json)
    if yes:
        plan = plan.without_project()
    if not options.json:
        _show(plan, say if asks else show_line, terminal_width(of_errors=asks))

    choice: Choice | None = None
    if yes and not dry_run and not plan.changes_nothing:
        choice = "copy"
    elif asks and not plan.changes_nothing:
        choice = await _ask(plan)

    if choice is None:
        return await _leave_unchanged(options, plan, asks=asks, dry_run=dry_run)
    return await _set_up(options, plan, choice, asks=asks)


async def _set_up(options: Options, plan: SetupPlan, choice: Choice, *, asks: bool) -> int:
    """Carry out the plan, and return the exit code."""
    from ideabridge.server.cli.first_tools import offer_always, offer_histories
    from ideabridge.server.setup.execution import carry_out
    from ideabridge.server.setup.record import new_record, one_at_a_time

    with one_at_a_time():
        record = new_record()
        outcome = carry_out(plan, choice, record)

    if options.json:
        print_json(_done_json(plan, outcome, choice))
    else:
        _say_done(outcome)
        if asks:
            await _offer(offer_histories, options, plan, record)
            await _offer(offer_always, options, plan, record)
        _say_next(plan)

    return ExitCode.FAILED if outcome.problems else ExitCode.DONE


async def _leave_unchanged(options: Options, plan: SetupPlan, *, asks: bool, dry_run: bool) -> int:
    """Report why nothing was changed.

    If everything is already set up, offer to import the histories that have not been read yet.
    Return the exit code.
    """
    from ideabridge.server.cli.first_tools import offer_histories
    from ideabridge.server.setup.record import new_record

    code = _report_unchanged(options, plan, asks=asks, dry_run=dry_run)
    if asks and plan.changes_nothing:
        await _offer(offer_histories, options, plan, new_record())
    return code


async def _offer(
    offer: Callable[[Options, SetupPlan, SetupRecord], Awaitable[None]],
    options: Options,
    plan: SetupPlan,
    record: SetupRecord,
) -> None:
    """Make an offer based on what the clients have done or allowed so far. An error ends only this
    offer.
    """
    try:
        await offer(options, plan, record)
    except IdeabridgeError as error:
        report(str(error))


def _plan(options: Options, *, shared: bool) -> SetupPlan:
    """Read the files of all hosts, and determine what the setup will change.

    Raises:
        ServiceError: `shared` is set, and this system has no service manager.
    """
    from ideabridge.server.hosts.host import HostEnvironment
    from ideabridge.server.hosts.program import lasting_program
    from ideabridge.server.setup.inventory import take_inventory
    from ideabridge.server.setup.plan import plan_setup

    environment = HostEnvironment(project=options.folder())
    program = lasting_program(shared=False)
    words = [*program.words, "serve"]
    if options.place is not None:
        words += ["--store", options.place]
    inventory = take_inventory(environment)
    service = _planned_service(options, program.words) if shared else None
    plan = plan_setup(inventory, words, note=program.note, service=service)
    own = inventory.targets.user
    has_file = own.file.is_file() or any(change.path == own.file for change in plan.receiving())
    if service is not None and not has_file:
        raise UsageError(
            "no client has a server, and you have no configuration of your own, so the service "
            "would have no servers; run `ideabridge servers add` to add one"
        )
    return plan


def _planned_service(options: Options, program: Sequence[str]) -> PlannedService:
    """Return the installed service, or the one to install."""
    from ideabridge.bridge.configuration import user_file
    from ideabridge.server.cli.serve import DEFAULT_ADDRESS
    from ideabridge.server.service import (
        has_token,
        new_token,
        service_command,
        service_token,
        user_service,
    )
    from ideabridge.server.setup.plan import PlannedService

    service = user_service()
    is_installed = service.state() != "not installed"
    url = service.url if is_installed else f"http://{DEFAULT_ADDRESS}/mcp"
    return PlannedService(
        service,
        url,
        service_token() if has_token() else new_token(),
        tuple(service_command(program, DEFAULT_ADDRESS, user_file(), options.place)),
        is_installed,
    )


def _show(plan: SetupPlan, write: Callable[[str], None], width: int | None) -> None:
    """Print what exists and what the setup would change. Nothing is truncated, because a person
    decides based on this text.
    """
    from ideabridge.server.setup import report as pages

    rows = pages.server_rows(plan)
    of_project = pages.project_rows(plan)
    if rows:
        for line in wrapped_table(pages.TITLES, rows, width):
            write(line)
    else:
        write("Your clients have no servers of their own.")

    if of_project:
        write("")
        write("Servers of this project, chosen by the author of its files:")
        for line in wrapped_table(pages.TITLES, of_project, width):
            write(line)

    _section("Not taken over:", pages.refused_lines(plan), write, width)
    if plan.changes_nothing:
        return

    _section("Notes:", pages.difference_lines(plan), write, width)
    _section("What changes:", pages.change_lines(plan), write, width)
    _section(
        "Rules of your clients that name these servers. They apply to the calls that a client "
        "makes itself, as long as the servers stay there. Calls through ideabridge follow the "
        "rules of ideabridge, which asks before a call that may change something:",
        pages.habit_lines(plan),
        write,
        width,
    )


def _section(
    title: str, lines: Sequence[str], write: Callable[[str], None], width: int | None
) -> None:
    """Print a title with lines below it, or nothing if there are no lines."""
    if not lines:
        return
    write("")
    parts = [title] if width is None else wrapped(title, width)
    for part in parts:
        write(part)

    for line in lines:
        # Do not let a line begin with words from a file, because they could then pass for a line
        # that the setup wrote.
        text = printable_line(line.lstrip())
        indent = " " * (2 + len(line) - len(line.lstrip()))
        if width is None:
            write(f"{indent}{text}")
            continue
        for part in wrapped(text, width, first=indent, further=f"{indent}  "):
            write(part)


async def _ask(plan: SetupPlan) -> Choice | None:
    """Ask the person at the terminal. Return None if nothing should be changed."""
    if not plan.movable():
        return "copy" if confirm("Do this?") else None

    say("")
    say_wrapped(
        "Copied servers also stay in their clients. Each of them then starts twice: for the "
        "client, and behind ideabridge. Moved servers are removed from your own files of the "
        "clients."
    )
    await let_read()
    while True:
        line = await read_line("c(opy), m(ove), or Enter to change nothing: ")
        answer = (line or "").strip().lower()
        if not answer or answer in ("n", "no"):
            return None
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        say("c, m or Enter")


def _report_unchanged(options: Options, plan: SetupPlan, *, asks: bool, dry_run: bool) -> int:
    """Report why nothing was changed, and return the exit code."""
    from ideabridge.server.setup.report import plan_json

    if plan.changes_nothing:
        code = ExitCode.DONE
        text = "everything is already set up; nothing was changed"
    elif dry_run:
        code = ExitCode.DONE
        text = "nothing was changed"
    elif asks:
        code = ExitCode.FAILED
        text = "nothing was changed"
    else:
        code = ExitCode.USAGE
        text = (
            "nothing was changed, because setup cannot ask without a terminal. Run "
            "`ideabridge setup` at a terminal; `ideabridge setup --yes` changes your own files"
        )

    if options.json:
        print_json({"done": False, "why": text, **plan_json(plan)})
    else:
        say(text, "green" if code == ExitCode.DONE else "yellow")
    return code


def _done_json(plan: SetupPlan, outcome: SetupOutcome, choice: Choice) -> JSONObject:
    from ideabridge.server.setup.report import plan_json

    return {
        "done": True,
        "choice": choice,
        "written": [str(path) for path in outcome.written],
        "failed": [*outcome.problems],
        "stored": [{"name": name, "place": place} for name, place in outcome.secrets],
        "trusted": [str(path) for path in outcome.trusted],
        **plan_json(plan),
    }


def _say_done(outcome: SetupOutcome) -> None:
    """Report what was done."""
    from ideabridge.server.setup.report import listed_words, near

    for problem in outcome.problems:
        report(problem)

    for place in dict.fromkeys(place for _, place in outcome.secrets):
        names = [name for name, stored_in in outcome.secrets if stored_in == place]
        say_wrapped(f"{listed_words(names)}: in {place}", further="  ")

    files = listed_words([near(path) for path in outcome.written])
    say_wrapped(f"written: {files}", "green", further="  ")


def _say_next(plan: SetupPlan) -> None:
    """Tell the user what to do next."""
    from ideabridge.server.setup.report import listed_words

    titles = [host.host.title for host in plan.hosts if host.state != "blocked"]
    say("")
    if titles and plan.service is not None:
        text = f"1. Restart {listed_words(titles)}. They connect to the service then."
        say_wrapped(text, further="   ")
    elif titles:
        say_wrapped(
            f"1. Restart {listed_words(titles)}. They start ideabridge then.", further="   "
        )
    else:
        say_wrapped(
            "1. No client was found yet. `ideabridge install HOST` prints what a client needs."
        )
    say_wrapped(
        "2. `ideabridge servers list` shows which servers can be reached, and why others cannot.",
        further="   ",
    )
    say_wrapped('3. Ask one of the clients: "Which tools can ideabridge call?"')
    say_wrapped("4. `ideabridge setup --undo` restores everything.")


# -- undo ------------------------------------------------------------------------------------------


def _undo(options: Options, *, dry_run: bool, yes: bool) -> int:
    """Undo all setups, and return the exit code."""
    from ideabridge.server.setup.record import RemainingStep, one_at_a_time, setup_records
    from ideabridge.server.setup.undo import describe_step, undo

    with one_at_a_time():
        records = setup_records()
        lines = [
            describe_step(step)
            for record in records
            for step in record.steps
            if not isinstance(step, RemainingStep)
        ]
        reason = _undo_refusal(options, lines, dry_run=dry_run, yes=yes)
        if reason is not None:
            return _report_not_undone(options, lines, *reason)
        undone = list(undo(records))

    if options.json:
        print_json({"done": True, "steps": [step.to_json() for step in undone]})
    else:
        for step in undone:
            say_wrapped(step.text, _STYLES[step.result], further="  ")
    if any(step.result == "failed" for step in undone):
        return ExitCode.FAILED
    return ExitCode.DONE


def _undo_refusal(
    options: Options, lines: list[str], *, dry_run: bool, yes: bool
) -> tuple[str, ExitCode] | None:
    """Return why nothing is undone, with the exit code, or None if the person confirms."""
    if not lines:
        return "there is no setup to undo", ExitCode.DONE
    if dry_run:
        return "nothing was changed", ExitCode.DONE
    if yes:
        return None
    if options.json or not at_terminal():
        reason = "nothing was changed, because undoing needs a terminal; --yes does not ask"
        return reason, ExitCode.USAGE

    say("These will be restored:")
    for line in lines:
        say_wrapped(f"  {line}", further="    ")
    if confirm("Restore them?"):
        return None
    return "nothing was changed", ExitCode.FAILED


def _report_not_undone(options: Options, lines: list[str], why: str, code: ExitCode) -> int:
    if options.json:
        print_json({"done": False, "why": why, "changes": [*lines]})
        return code

    if code != ExitCode.FAILED:
        for line in lines:
            show_line(line)
    say(why, "green" if code == ExitCode.DONE else "yellow")
    return code
