"""The command line put together: one Typer application, its commands, and what every error becomes."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

import typer
from typer.core import TyperGroup

from ideabridge.bridge.modules.secrets import clean_logs, everywhere_masked
from ideabridge.server.cli import (
    approvals,
    demo,
    doctor,
    history,
    ideas,
    install,
    keeping,
    modules,
    prune,
    run_plan,
    runs,
    serve,
    sharing,
    solve,
    suggest,
    tools,
    trust,
    users,
    versions,
)
from ideabridge.server.cli.console import clean, echo, report
from ideabridge.server.cli.exits import ExitCode
from ideabridge.server.cli.help import use_plain_help
from ideabridge.server.cli.options import AllowAllOption, ConfigOption, Options, ProjectOption, StoreOption, ToolsOption

app = typer.Typer(
    name="ideabridge",
    help="One MCP server between your assistants and all their tools: plans run by data flow, runs become tools.",
    epilog="Exit codes: 0 done, 1 done with errors, 2 wrong usage, input or configuration, 3 store, 4 a run waits, "
    "130 stopped by Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    config: ConfigOption = None,
    project: ProjectOption = None,
    store: StoreOption = None,
    tools: ToolsOption = None,
    allow_all: AllowAllOption = False,
    version: bool = typer.Option(False, "--version", "-V", help="Print the version and exit."),
) -> None:
    """Take the options that stand before the command."""
    if version:
        from importlib.metadata import version as installed_version

        echo(f"ideabridge {installed_version('ideabridge')}")
        raise typer.Exit
    ctx.obj = Options(config, project, store, tuple(tools or ()), allow_all)
    if ctx.invoked_subcommand is None:
        echo(ctx.get_help())
        raise typer.Exit(ExitCode.DONE)


app.command("serve")(serve.serve)
app.command("run")(run_plan.run)
app.command("solve")(solve.solve)
app.command("resume")(runs.resume)
runs.app.command("show")(history.show_run)
runs.app.command("fork")(history.fork_run)
runs.app.command("cancel")(runs.cancel)
app.add_typer(runs.app, name="runs")
app.add_typer(approvals.app, name="approvals")
ideas.app.command("history")(versions.show_history)
ideas.app.command("diff")(versions.diff_ideas)
ideas.app.command("pin")(versions.pin_version)
ideas.app.command("unpin")(versions.unpin_name)
ideas.app.command("rollback")(versions.roll_back)
ideas.app.command("tag")(versions.tag_idea)
ideas.app.command("suggest")(suggest.suggest_ideas)
ideas.app.command("prune")(prune.prune_ideas)
ideas.app.command("export")(sharing.export_ideas)
ideas.app.command("import")(sharing.import_ideas)
app.add_typer(ideas.app, name="ideas")
app.add_typer(keeping.app, name="store")
app.add_typer(users.app, name="users")
app.add_typer(modules.app, name="modules")
app.add_typer(tools.app, name="tools")
app.command("install")(install.install)
app.command("trust")(trust.trust)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
use_plain_help(app)


def run(arguments: list[str]) -> int:
    """Run the command line; every error is one line on standard error, and an exit code."""
    clean_logs()
    sys.excepthook = _excepthook
    # `--http=HOST:PORT` is what people write; the address is an argument, so that it may be left out.
    arguments = [part for word in arguments for part in (_split(word) if word.startswith("--http=") else [word])]
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    try:
        result = group.main(arguments, prog_name="ideabridge", standalone_mode=False)
    except typer.Abort:
        return ExitCode.CANCELLED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _misused(error, str(message()))
    return result if isinstance(result, int) else ExitCode.DONE


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A traceback, where one is wanted (IDEABRIDGE_TRACEBACK), holds what modules said."""
    sys.stderr.write(clean(everywhere_masked("".join(traceback.format_exception(kind, error, trace)))))


def _split(word: str) -> list[str]:
    option, _, value = word.partition("=")
    return [option, value]


def _misused(error: Exception, message: str) -> int:
    """A usage error of Typer's: its line, and where help is."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "ideabridge")
    if type(error).__name__ == "NoArgsIsHelpError":
        if message:
            echo(message)
        return ExitCode.DONE
    # What pydantic says of a value is put as everywhere else.
    told = " ".join(message.split()).replace("Value error, ", "").replace("Input should be ", "expected ")
    report(f"{told.removesuffix('.')} (see `{path} --help`)")
    return ExitCode.USAGE
