"""The Typer application: its commands, their help with examples, and the handling of usage errors."""

from __future__ import annotations

import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ideabridge.bridge.secrets import clean_logs, everywhere_masked
from ideabridge.server.cli import (
    approvals,
    demo,
    doctor,
    ideas,
    modules,
    publishing,
    run_plan,
    runs,
    serve,
    sharing,
    stores,
    trust,
    users,
)
from ideabridge.server.cli.console import ExitCode, clean, echo, report
from ideabridge.server.cli.options import AllowAllOption, ConfigOption, Options, ProjectOption, StoreOption, ToolsOption

# -- examples --------------------------------------------------------------------------------------------------------

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": (
        "ideabridge demo",
        "ideabridge modules import claude-code --write",
        "ideabridge install claude-code --write",
        "ideabridge run plan.json -i repo=.",
    ),
    "serve": ("ideabridge serve", "ideabridge serve --http 127.0.0.1:8787 --model openai:gpt-5-mini"),
    "run": ("ideabridge run plan.json -i repo=. -i count=20", "ideabridge run - --json < plan.json"),
    "solve": (
        'ideabridge solve "Which names stand twice?" -i @names.json --tool count',
        'ideabridge solve "Summarise the week" --model openai:gpt-5-mini',
    ),
    "resume": ("ideabridge resume run_1f0c9a3b5d7e2468", "ideabridge resume last"),
    "approvals": ("ideabridge approvals list", "ideabridge approvals decide approve run_1f0c9a3b5d7e2468"),
    "approvals list": ("ideabridge approvals list", "ideabridge approvals list last --json"),
    "approvals decide": (
        "ideabridge approvals decide",
        'ideabridge approvals decide deny a2-9c4cc4fa1c30 --reason "not before Monday"',
        "ideabridge approvals decide retry run_1f0c9a3b5d7e2468",
    ),
    "install": ("ideabridge install claude-code", "ideabridge install cursor --scope user --write"),
    "trust": ("ideabridge trust", "ideabridge trust --show", "ideabridge trust --env TICKETS_TOKEN"),
    "doctor": ("ideabridge doctor", "ideabridge doctor --json"),
    "demo": ("ideabridge demo", "ideabridge demo --repo ~/src/project"),
    "runs": ("ideabridge runs list --status needs_approval", "ideabridge runs show run_1f0c9a3b5d7e2468"),
    "runs direct": ("ideabridge runs direct", "ideabridge runs direct --json --limit 100"),
    "runs list": ("ideabridge runs list -n 5", "ideabridge runs list --status needs_approval --json"),
    "runs cancel": ("ideabridge runs cancel run_1f0c9a3b5d7e2468", "ideabridge runs cancel 1f0c 7d2e"),
    "runs show": (
        "ideabridge runs show last",
        "ideabridge runs show run_1f0c9a3b5d7e2468 --at 7",
    ),
    "runs fork": (
        "ideabridge runs fork run_1f0c9a3b5d7e2468 --at 7",
        "ideabridge runs fork run_1f0c9a3b5d7e2468 --at 7 --input name=other",
    ),
    "ideas": ("ideabridge ideas search weekly report", "ideabridge ideas call weekly_report -i week=3"),
    "ideas list": ("ideabridge ideas list --tool git_log --since 3d", "ideabridge ideas list --published"),
    "ideas search": ("ideabridge ideas search weekly report", "ideabridge ideas search report --module git -n 5"),
    "ideas show": ("ideabridge ideas show weekly_report", "ideabridge ideas show 3fa94c"),
    "ideas lift": (
        "ideabridge ideas lift run_1f0c9a3b5d7e2468",
        "ideabridge ideas lift run_1f0c9a3b5d7e2468 --accept all --live",
    ),
    "ideas verify": ("ideabridge ideas verify", "ideabridge ideas verify weekly_report --no-live"),
    "ideas publish": (
        "ideabridge ideas publish run_1f0c9a3b5d7e2468 weekly_report",
        "ideabridge ideas publish 3fa94c weekly_report --answer plan",
    ),
    "ideas share": (
        "ideabridge ideas share weekly_report --to alice,bob",
        "ideabridge ideas share weekly_report --to all",
    ),
    "ideas unpublish": ("ideabridge ideas unpublish weekly_report",),
    "ideas call": (
        "ideabridge ideas call weekly_report -i week=3",
        "ideabridge ideas call weekly_report@2 -i @week.json",
    ),
    "ideas history": ("ideabridge ideas history weekly_report",),
    "ideas diff": ("ideabridge ideas diff weekly_report@1 weekly_report@2",),
    "ideas pin": ("ideabridge ideas pin weekly_report@1",),
    "ideas unpin": ("ideabridge ideas unpin weekly_report",),
    "ideas rollback": ("ideabridge ideas rollback weekly_report@1",),
    "ideas tag": ("ideabridge ideas tag weekly_report kept", "ideabridge ideas tag 3fa94c --remove kept"),
    "ideas suggest": ("ideabridge ideas suggest", "ideabridge ideas suggest --least 5 -n 3"),
    "ideas prune": (
        "ideabridge ideas prune --older-than 90d --dry-run",
        "ideabridge ideas prune --older-than 90d --yes",
    ),
    "ideas export": (
        "ideabridge ideas export weekly_report --output weekly_report.json",
        "ideabridge ideas export --published --folder shared",
    ),
    "ideas import": ("ideabridge ideas import weekly_report.json", "ideabridge ideas import shared --publish"),
    "users": ("ideabridge users add alice", "ideabridge users token add alice --expires 90d"),
    "users add": ("ideabridge users add alice", "ideabridge users add bob --role admin --expires 90d"),
    "users list": ("ideabridge users list", "ideabridge users list --json"),
    "users disable": ("ideabridge users disable alice",),
    "users enable": ("ideabridge users enable alice",),
    "users remove": ("ideabridge users remove alice",),
    "users role": ("ideabridge users role alice admin",),
    "users token": ("ideabridge users token list alice", "ideabridge users token revoke 1f0c9a3b5d7e"),
    "users token add": ("ideabridge users token add alice --label laptop --expires 90d",),
    "users token list": ("ideabridge users token list", "ideabridge users token list alice --json"),
    "users token revoke": ("ideabridge users token revoke 1f0c9a3b5d7e",),
    "store": ("ideabridge store backup ideas-2026-11-22.sqlite",),
    "store backup": ("ideabridge store backup ideas-2026-11-22.sqlite",),
    "store vacuum": ("ideabridge store vacuum",),
    "modules": ("ideabridge modules list", "ideabridge modules test git git_log -i repo_path=."),
    "modules list": ("ideabridge modules list", "ideabridge modules list --json"),
    "modules test": (
        "ideabridge modules test git",
        "ideabridge modules test git git_log -i repo_path=. -i max_count=3",
    ),
    "modules accept": ("ideabridge modules accept git", "ideabridge modules accept --own --yes"),
    "modules import": ("ideabridge modules import claude-code", "ideabridge modules import vscode github --move"),
    "tools": ("ideabridge tools list", "ideabridge tools list git log"),
    "tools list": ("ideabridge tools list git log", "ideabridge tools list --schemas"),
}
"""By the command, without the program's name; each command line is one that can be typed."""


# -- help ------------------------------------------------------------------------------------------------------------

_MOST: Final = 100
"""Longer lines are hard to read."""

_WIDEST: Final = 26
"""A longer name stands in a line of its own."""

_SHARED: Final = ("config", "project", "store", "tools", "allow_all", "json", "help")
"""What many commands take; listed after a command's own options."""

_REWORDED: Final = {
    "install_completion": "Install completion for the shell you are in (bash, zsh, fish or PowerShell).",
    "show_completion": "Print the completion script of the shell you are in, to install it yourself.",
    "help": "Show this help.",
}

_Row = tuple[str, str]


class Command(TyperCommand):
    """A command whose help is plain text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))


class CommandGroup(TyperGroup):
    """A group of commands whose help is plain text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))


def use_plain_help(app: typer.Typer) -> None:
    """Give the application, and every command in it, this help."""
    app.info.cls = CommandGroup
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = CommandGroup
        if group.typer_instance is not None:
            use_plain_help(group.typer_instance)


def _help(command: Any, ctx: Any) -> str:
    width = max(40, min(shutil.get_terminal_size((80, 24)).columns, _MOST))
    commands: dict[str, Any] = getattr(command, "commands", {})
    shown = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    words = [ctx.command_path, *map(_place, arguments), "[OPTIONS]", *(["COMMAND ..."] if commands else [])]
    parts = [_wrapped(f"Usage: {' '.join(words)}", width, "       ")]
    parts += [_wrapped(" ".join(text.split()), width) for text in (command.help or "").split("\n\n") if text.strip()]
    examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
    if examples:
        parts.append("\n".join(["Examples:", *(f"  {line}" for line in examples)]))
    parts += _section("Arguments:", [(_named(one), _said(one)) for one in arguments], width)
    parts += _section("Commands:", [(name, _first(one)) for name, one in commands.items()], width)
    own = [one for one in options if one.name not in _SHARED]
    shared = sorted((one for one in options if one.name in _SHARED), key=lambda one: _SHARED.index(one.name))
    if not commands or len(own) + len(shared) > 1:
        parts += _section("Options:", [_option(one) for one in own], width)
    title = "Options:" if len(shared) == 1 else "Shared options:"
    if commands and own:
        title = "Shared options, before or after the command:"
    parts += _section(title, [_option(one) for one in shared], width)
    if command.epilog:
        parts.append(_wrapped(command.epilog, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, rows: Sequence[_Row], width: int) -> list[str]:
    if not rows:
        return []
    lines = [title]
    indent = 2 + min(_WIDEST, max(len(name) + 2 for name, _ in rows))
    for name, text in rows:
        start = f"  {name}"
        if len(start) > indent - 2:
            lines.append(start)
            start = ""
        wrapped = textwrap.wrap(text, width - indent, break_on_hyphens=False, break_long_words=False) or [""]
        lines.append(f"{start:<{indent}}{wrapped[0]}".rstrip())
        lines += [" " * indent + line for line in wrapped[1:]]
    return ["\n".join(lines)]


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _named(argument: Any) -> str:
    """What an argument is called: its metavar without the signs for optional and repeated."""
    return str(argument.metavar or argument.name.upper()).strip("[]").removesuffix("...").rstrip("]")


def _place(argument: Any) -> str:
    """An argument in the usage line."""
    name = _named(argument)
    repeated = "..." if argument.nargs == -1 else ""
    return f"{name}{repeated}" if argument.required else f"[{name}{repeated}]"


def _option(option: Any) -> _Row:
    """An option with its value, and what it does."""
    short = [name for name in option.opts if not name.startswith("--")]
    long = [name for name in option.opts if name.startswith("--")]
    names = ", ".join([*short, " / ".join([*long, *option.secondary_opts])])
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"{names if short else f'    {names}'}{value}", _said(option)


def _said(parameter: Any) -> str:
    text = _REWORDED.get(parameter.name, parameter.help or "")
    default = getattr(parameter, "default", None)
    if isinstance(default, str | int) and not isinstance(default, bool) and "Default" not in text:
        text += f" Default: {default}."
    if parameter.required and parameter.param_type_name == "option":
        text += " Required."
    return text.strip()


def _first(command: Any) -> str:
    """The first sentence of a command's help."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")


# -- app -------------------------------------------------------------------------------------------------------------

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


# These two add their commands to `ideas.app`.
assert publishing.app is ideas.app
assert sharing.app is ideas.app
app.command("serve")(serve.serve)
app.command("run")(run_plan.run)
app.command("solve")(run_plan.solve)
app.command("resume")(runs.resume)
app.add_typer(runs.app, name="runs")
app.add_typer(approvals.app, name="approvals")
app.add_typer(ideas.app, name="ideas")
app.add_typer(stores.app, name="store")
app.add_typer(users.app, name="users")
app.add_typer(modules.app, name="modules")
app.add_typer(modules.tools_app, name="tools")
app.command("install")(serve.install)
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
