"""The Typer application, with its commands, their help and examples, and its handling of usage
errors.
"""

from __future__ import annotations

import copy
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
    doctor,
    history,
    ideas,
    install,
    publishing,
    run_plan,
    runs,
    secrets,
    serve,
    server_entries,
    server_import,
    server_logs,
    server_sign_ins,
    servers,
    service,
    setup,
    sharing,
    stores,
    tool_changes,
    tools,
    trust,
    uninstall,
    users,
    writing,
)
from ideabridge.server.cli.console import (
    ExitCode,
    begin_output,
    drop_output,
    echo,
    print_failure,
    report,
)
from ideabridge.server.cli.options import (
    AllowAllOption,
    ConfigOption,
    Options,
    ProjectOption,
    StoreOption,
    ToolsOption,
    guarded,
)
from ideabridge.server.demo.command import demo
from ideabridge.tools.names import printable

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": (
        "setup",
        "demo",
        "servers import claude-code --write",
        "install claude-code --write",
        "run plan.json -i repo=.",
    ),
    "worker": ("worker", "worker --server browser --runs 8"),
    "serve": ("serve", "serve --http 127.0.0.1:8787 --model openai:gpt-5-mini"),
    "ui": ("ui", "ui 127.0.0.1:9000 --no-browser"),
    "run": ("run plan.json -i repo=. -i count=20", "run - --json < plan.json"),
    "solve": (
        'solve "Which names occur twice?" -i @names.json --tool count',
        'solve "Summarise the week" --model openai:gpt-5-mini',
    ),
    "resume": ("resume run_1f0c9a3b5d7e2468", "resume last"),
    "approvals": ("approvals list", "approvals decide approve run_1f0c9a3b5d7e2468"),
    "approvals list": ("approvals list", "approvals list last --json"),
    "approvals rules": ("approvals rules", "approvals rules --remove 4f1a9c3b5d7e"),
    "approvals decide": (
        "approvals decide",
        'approvals decide deny a2-9c4cc4fa1c30 --reason "not before Monday"',
        "approvals decide retry run_1f0c9a3b5d7e2468",
    ),
    "setup": ("setup", "setup --dry-run", "setup --undo"),
    "install": (
        "install claude-code",
        "install cursor --scope user --write",
        "install cursor --http",
    ),
    "service": ("service install", "service status"),
    "service install": ("service install", "service install 127.0.0.1:9000"),
    "service status": ("service status", "service status --json"),
    "service stop": ("service stop",),
    "service uninstall": ("service uninstall",),
    "service workspaces": ("service workspaces", "service workspaces --json"),
    "service forget": ("service forget shop",),
    "service token": ("service token",),
    "uninstall": ("uninstall cursor", "uninstall cursor --undo"),
    "trust": ("trust", "trust --show", "trust --env TICKETS_TOKEN"),
    "doctor": ("doctor", "doctor --json"),
    "demo": ("demo", "demo --repo ~/src/project"),
    "runs": ("runs list --status needs_approval", "runs show run_1f0c9a3b5d7e2468"),
    "runs direct": ("runs direct", "runs direct --json --limit 100"),
    "runs list": ("runs list -n 5", "runs list --status needs_approval --json"),
    "runs cancel": ("runs cancel run_1f0c9a3b5d7e2468", "runs cancel 1f0c 7d2e"),
    "runs show": ("runs show last", "runs show run_1f0c9a3b5d7e2468 --at 7"),
    "runs fork": (
        "runs fork run_1f0c9a3b5d7e2468 --at 7",
        "runs fork run_1f0c9a3b5d7e2468 --at 7 --input name=other",
    ),
    "ideas": ("ideas search weekly report", "ideas call weekly_report -i week=3"),
    "ideas list": ("ideas list --tool git_log --since 3d", "ideas list --published"),
    "ideas search": ("ideas search weekly report", "ideas search report --server git -n 5"),
    "ideas show": ("ideas show weekly_report", "ideas show 3fa94c"),
    "ideas lift": (
        "ideas lift run_1f0c9a3b5d7e2468",
        "ideas lift run_1f0c9a3b5d7e2468 --rename path=repo --live",
    ),
    "ideas verify": ("ideas verify", "ideas verify weekly_report --no-live"),
    "ideas publish": (
        "ideas publish run_1f0c9a3b5d7e2468 weekly_report",
        "ideas publish run_1f0c9a3b weekly_report --program ask",
        "ideas publish 3fa94c weekly_report --answer plan",
    ),
    "ideas share": (
        "ideas share weekly_report --to alice,bob",
        "ideas share weekly_report --to all",
    ),
    "ideas unpublish": ("ideas unpublish weekly_report",),
    "ideas call": (
        "ideas call weekly_report -i week=3",
        "ideas call weekly_report@2 -i @week.json",
    ),
    "ideas history": ("ideas history weekly_report",),
    "ideas diff": ("ideas diff weekly_report@1 weekly_report@2",),
    "ideas pin": ("ideas pin weekly_report@1",),
    "ideas unpin": ("ideas unpin weekly_report",),
    "ideas rollback": ("ideas rollback weekly_report@1",),
    "ideas tag": ("ideas tag weekly_report kept", "ideas tag 3fa94c --remove kept"),
    "ideas suggest": ("ideas suggest", "ideas suggest --least 5 -n 3"),
    "ideas prune": ("ideas prune --older-than 90d --dry-run", "ideas prune --older-than 90d --yes"),
    "ideas export": (
        "ideas export weekly_report --output weekly_report.json",
        "ideas export --published --folder shared",
    ),
    "ideas add": ("ideas add translate.yaml", "ideas add ideas --yes"),
    "ideas import": ("ideas import weekly_report.json", "ideas import shared --publish"),
    "history": ("history import claude-code", "history import codex --dry-run"),
    "history import": (
        "history import claude-code --dry-run",
        "history import codex --server github=gh --yes",
    ),
    "users": ("users add alice", "users token add alice --expires 90d"),
    "users add": ("users add alice", "users add bob --role admin --expires 90d"),
    "users list": ("users list", "users list --json"),
    "users disable": ("users disable alice",),
    "users enable": ("users enable alice",),
    "users remove": ("users remove alice",),
    "users role": ("users role alice admin",),
    "users token": ("users token list alice", "users token revoke 1f0c9a3b5d7e"),
    "users token add": ("users token add alice --label laptop --expires 90d",),
    "users token list": ("users token list", "users token list alice --json"),
    "users token revoke": ("users token revoke 1f0c9a3b5d7e",),
    "store": ("store backup ideas-2026-11-22.sqlite",),
    "store backup": ("store backup ideas-2026-11-22.sqlite",),
    "store copy": (
        "store copy ideas.sqlite postgresql://ideas@db.internal/ideas",
        "store copy postgresql://ideas@db.internal/ideas ideas.sqlite",
    ),
    "store query": (
        "store query 'SELECT title, time FROM idea_list LIMIT 5'",
        "store query 'SELECT * FROM run_list WHERE kind=:k' -p k=plan --csv",
    ),
    "store vacuum": ("store vacuum",),
    "servers": (
        "servers add git -- uvx mcp-server-git --repository .",
        "servers list",
        "servers test git git_log -i repo_path=.",
    ),
    "servers add": (
        "servers add git -- uvx mcp-server-git --repository .",
        "servers add shop -e 'TOKEN=${SHOP_TOKEN}' -- npx -y shop-server",
        "servers add tickets --url https://tickets.example/mcp",
    ),
    "servers edit": (
        "servers edit git --set timeout=120 --set 'deny=[\"git_push\"]'",
        "servers edit shop -e REGION=eu --unset env.TOKEN",
        "servers edit git -- uvx mcp-server-git --repository ..",
    ),
    "servers remove": ("servers remove git", "servers remove git --scope project"),
    "servers enable": ("servers enable git",),
    "servers disable": ("servers disable git",),
    "servers logs": ("servers logs git", "servers logs git --follow", "servers logs git -n 200"),
    "servers list": ("servers list", "servers list git", "servers list --json"),
    "servers test": ("servers test git", "servers test git git_log -i repo_path=. -i max_count=3"),
    "servers accept": ("servers accept git", "servers accept --own --yes"),
    "servers login": (
        "servers login github",
        "servers login github --no-browser",
        "servers login github --device",
    ),
    "servers logout": ("servers logout github",),
    "servers import": ("servers import claude-code", "servers import vscode github --move"),
    "secrets": ("secrets set github-token", "secrets list"),
    "secrets set": (
        "secrets set github-token",
        "secrets set tickets-token --config ideabridge.json",
    ),
    "secrets list": ("secrets list", "secrets list --json"),
    "secrets remove": ("secrets remove github-token",),
    "secrets allow": ("secrets allow tickets-token --config ideabridge.json",),
    "tools": ("tools list", "tools list git log"),
    "tools list": ("tools list git log", "tools list --schemas"),
}
"""Example command lines for each command. Keys and values omit the program's name."""

_MOST_WIDTH: Final = 100
"""Maximum width of a line of help, in columns."""

_WIDEST_NAME: Final = 26
"""Maximum width, in columns, of the names in a section of help. A longer name gets its own line."""

_SHARED: Final = ("config", "project", "store", "tools", "allow_all", "json", "help")
"""The options that many commands share. Help lists them after each command's own options."""

_EARLIER: Final = ("--module",)
"""Former names of options, which still work but are not in the help."""

_REWORDED: Final = {
    "install_completion": "Install completion for your shell (bash, zsh, fish or PowerShell).",
    "show_completion": "Print the completion script for your shell, to install it yourself.",
    "help": "Show this help.",
}


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


def _use_plain_help(app: typer.Typer) -> None:
    app.info.cls = CommandGroup
    for command in app.registered_commands:
        command.cls = Command

    for group in app.registered_groups:
        group.cls = CommandGroup
        if group.typer_instance is not None:
            _use_plain_help(group.typer_instance)


def _help(command: Any, ctx: Any) -> str:
    width = max(40, min(shutil.get_terminal_size((80, 24)).columns, _MOST_WIDTH))
    subcommands: dict[str, Any] = getattr(command, "commands", {})
    commands = {name: entry for name, entry in subcommands.items() if not entry.hidden}
    parameters = [entry for entry in command.get_params(ctx) if not getattr(entry, "hidden", False)]
    arguments = [entry for entry in parameters if entry.param_type_name == "argument"]
    options = [entry for entry in parameters if entry.param_type_name == "option"]
    words = [ctx.command_path, *map(_argument_usage, arguments), "[OPTIONS]"]
    if commands:
        words.append("COMMAND ...")

    parts = [_wrapped(f"Usage: {' '.join(words)}", width, "       ")]
    for text in (command.help or "").split("\n\n"):
        if text.strip():
            parts.append(_wrapped(" ".join(text.split()), width))

    examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
    if examples:
        parts.append("\n".join(["Examples:", *(f"  ideabridge {line}" for line in examples)]))

    argument_rows = [(_argument_name(argument), _description(argument)) for argument in arguments]
    parts += _section("Arguments:", argument_rows, width)
    command_rows = [(name, _first_sentence(entry)) for name, entry in commands.items()]
    parts += _section("Commands:", command_rows, width)
    own = [option for option in options if option.name not in _SHARED]
    shared = [option for option in options if option.name in _SHARED]
    shared.sort(key=lambda option: _SHARED.index(option.name))
    if not commands or len(own) + len(shared) > 1:
        parts += _section("Options:", [_option(option) for option in own], width)

    title = "Options:" if len(shared) == 1 else "Shared options:"
    if commands and own:
        title = "Shared options, before or after the command:"

    parts += _section(title, [_option(option) for option in shared], width)
    if command.epilog:
        parts.append(_wrapped(command.epilog, width))

    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    if not rows:
        return []

    lines = [title]
    indent = 2 + min(_WIDEST_NAME, max(len(name) + 2 for name, _ in rows))
    for name, text in rows:
        start = f"  {name}"
        if len(start) > indent - 2:
            lines.append(start)
            start = ""

        wrapped = textwrap.wrap(
            text, width - indent, break_on_hyphens=False, break_long_words=False
        ) or [""]
        lines.append(f"{start:<{indent}}{wrapped[0]}".rstrip())
        lines += [" " * indent + line for line in wrapped[1:]]

    return ["\n".join(lines)]


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _argument_name(argument: Any) -> str:
    """Return the metavar without the marks for optional and repeated arguments."""
    metavar = str(argument.metavar or argument.name.upper())
    return metavar.strip("[]").removesuffix("...").rstrip("]")


def _argument_usage(argument: Any) -> str:
    name = _argument_name(argument)
    if argument.nargs == -1:
        name += "..."
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> tuple[str, str]:
    """Return the names of an option, followed by its metavar, and the description of the option."""
    short = [name for name in option.opts if not name.startswith("--")]
    long = [name for name in option.opts if name.startswith("--") and name not in _EARLIER]
    names = ", ".join([*short, " / ".join([*long, *option.secondary_opts])])
    if not short:
        names = f"    {names}"
    if not option.is_flag:
        names += f" {option.metavar or option.name.upper()}"
    return names, _description(option)


def _description(parameter: Any) -> str:
    text = _REWORDED.get(parameter.name, parameter.help or "")
    default = getattr(parameter, "default", None)
    if isinstance(default, str | int) and not isinstance(default, bool) and "Default" not in text:
        text += f" Default: {default}."

    if parameter.required and parameter.param_type_name == "option":
        text += " Required."

    return text.strip()


def _first_sentence(command: Any) -> str:
    """Return the first sentence of a command's help."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")


app = typer.Typer(
    name="ideabridge",
    help=(
        "One MCP server between your assistants and all their tools: plans run by data flow, and "
        "runs become tools."
    ),
    epilog=(
        "Exit codes: 0 done, 1 done with errors, 2 wrong usage, input or configuration, 3 store "
        "error, 4 a run is waiting, 130 stopped by Ctrl-C."
    ),
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
    """Read the options before the command."""
    if version:
        from importlib.metadata import version as installed_version

        echo(f"ideabridge {installed_version('ideabridge')}")
        raise typer.Exit

    ctx.obj = Options(config, project, store, tuple(tools or ()), allow_all)
    if ctx.invoked_subcommand is None:
        echo(ctx.get_help())
        raise typer.Exit(ExitCode.DONE)


# Each of these files adds its commands to the `app` of another file, so there is nothing more to
# add here.
assert publishing.app is ideas.app
assert sharing.app is ideas.app
assert writing.app is ideas.app
assert server_entries.app is servers.app
assert server_import.app is servers.app
assert server_logs.app is servers.app
assert server_sign_ins.app is servers.app
assert tool_changes.app is servers.app
app.command("serve")(serve.serve)
app.command("worker")(serve.work)
app.command("ui")(serve.show_ui)
app.command("run")(run_plan.run)
app.command("solve")(run_plan.solve)
app.command("resume")(runs.resume)
app.add_typer(runs.app, name="runs")
app.add_typer(approvals.app, name="approvals")
app.add_typer(ideas.app, name="ideas")
app.add_typer(history.app, name="history")
app.add_typer(stores.app, name="store")
app.add_typer(users.app, name="users")
app.add_typer(servers.app, name="servers")
app.add_typer(service.app, name="service")
app.add_typer(secrets.app, name="secrets")
# `modules` is the earlier name of `servers`.
app.add_typer(servers.app, name="modules", hidden=True)
app.add_typer(tools.app, name="tools")
app.command("setup")(setup.setup)
app.command("install")(install.install)
app.command("uninstall")(uninstall.uninstall)
app.command("trust")(trust.trust)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo)
_use_plain_help(app)


def called(application: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """Return the application with only the command that the arguments name, because Typer would
    otherwise build every command.

    If the first argument names no command, return the application with all its commands. The
    argument might be missing, an option, or a misspelled command, for which the error message
    suggests names.
    """
    word = arguments[0] if arguments else None
    commands = [
        registered for registered in application.registered_commands if registered.name == word
    ]
    groups = [
        copy.copy(registered)
        for registered in application.registered_groups
        if registered.name == word
    ]
    if not commands and not groups:
        return application

    for group in groups:
        assert group.typer_instance is not None
        group.typer_instance = called(group.typer_instance, arguments[1:])

    only = copy.copy(application)
    only.registered_commands = commands
    only.registered_groups = groups
    return only


def run_command_line(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Each error is one line on standard error."""
    clean_logs()
    sys.excepthook = _excepthook
    # Split `--http=HOST:PORT`, because people write it, although the address is a separate argument
    # (it is optional).
    words: list[str] = []
    for argument in arguments:
        if argument.startswith("--http="):
            words += argument.split("=", 1)
        else:
            words.append(argument)

    begin_output()
    options = words[: words.index("--")] if "--" in words else words
    return guarded(lambda: _run_words(words, "--json" in options), json="--json" in options)


def _run_words(words: list[str], json: bool) -> int:
    """Run the command given by `words`, and return its exit code. With `json`, usage errors are
    also reported as an object.
    """
    group = typer.main.get_command(called(app, words))
    assert isinstance(group, TyperGroup)
    try:
        result = group.main(words, prog_name="ideabridge", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            # Click ends the process when nobody reads the help text any more, which is not an
            # error.
            drop_output()
            return ExitCode.DONE

        return end.code if isinstance(end.code, int) else ExitCode.FAILED
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _misused(error, str(message()), json)

    return result if isinstance(result, int) else ExitCode.DONE


def _excepthook(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Write a traceback (see IDEABRIDGE_TRACEBACK) with secrets removed, because tracebacks can
    contain text from servers.
    """
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(printable(everywhere_masked(text)))


def _misused(error: Exception, message: str, json: bool) -> int:
    """Report a usage error from Typer, and name the command that prints help."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "ideabridge")
    if type(error).__name__ == "NoArgsIsHelpError":
        if message:
            echo(message)
        return ExitCode.DONE

    # Adapt the wording of pydantic, because Typer's messages can quote it.
    text = " ".join(message.split())
    text = text.replace("Value error, ", "").replace("Input should be ", "expected ")
    text = f"{text.removesuffix('.')} (see `{path} --help`)"
    report(text)
    if json:
        print_failure(text, "UsageError", ExitCode.USAGE)

    return ExitCode.USAGE
