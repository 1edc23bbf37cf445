"""The commands `ideabridge servers list` and `test`, which show and test the MCP servers behind
ideabridge.

The other commands of the group are in `server_entries.py`, `server_logs.py`, `server_sign_ins.py`,
`server_import.py` and `tool_changes.py`.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    Rows,
    UsageError,
    at_terminal,
    confirm,
    print_json,
    print_table,
    print_value,
    report,
    row_lines,
    say,
    show_line,
    terminal_width,
)
from ideabridge.server.cli.inputs import expect_parameters, read_input
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.server.cli.stored_lists import StoredLists
from ideabridge.server.views.text import parameters_text
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import counted, duration_text, readable_json, shown_name, size_text

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.tools.tool import Tool

_TITLE_WIDTH: Final = 9
"""Width, in columns, of the titles in a server's details."""

_SHOWN_APART: Final = ("cwd", "disabled")
"""The keys of an entry that a server's details show in another form."""

app = typer.Typer(
    help="Add, list, test, sign in to and import the MCP servers behind ideabridge.",
    no_args_is_help=True,
)


@app.command("list")
@command("config", "project", "json")
async def list_servers(
    options: Options,
    name: Annotated[
        str | None, typer.Argument(metavar="[SERVER]", help="Show only this server, in detail.")
    ] = None,
) -> int:
    """Show the state of every configured server, or connect to one and show everything about it.
    The exit code is 1 if a server failed.

    Servers with a stored list of tools are not started: `ideabridge servers test SERVER` starts one
    server, and `ideabridge doctor` starts all.
    """
    configuration = options.configuration()
    if name is not None:
        return await _show_server(configuration, name, as_json=options.json)

    from ideabridge.server.cli.connecting import Connecting

    rows: Rows | None = None
    if configuration.modules and not options.json:
        titles = ("server", "state", "kind", "protocol", "tools", "took", "memory", "program")
        rows = Rows(titles, (max(map(len, configuration.modules)), 10, 5, 10, 5, 7, 8))

    def print_status(status: ModuleStatus) -> None:
        if rows is None:
            return

        rows.add(_row(status, modules[status.name].memory()), None if is_well(status) else "red")
        _say_notes(status)
        _say_users_and_age(status)
        # Problems with unusable entries have already been reported, when the configuration was
        # read.
        if not is_well(status) and status.name not in configuration.unusable:
            report(status.error or f"server {status.name!r} has not answered yet")

    with ExitStack() as stack:
        lists = stack.enter_context(StoredLists(configuration))
        connecting = stack.enter_context(Connecting(configuration, lists.names))

        from ideabridge.bridge.modules.sign_ins import signed_in_users
        from ideabridge.bridge.offer.tool_names import naming_notes
        from ideabridge.tools.toolbox import Toolbox

        async with lists.modules() as modules:
            await connecting.wait(modules, print_status)
            statuses = modules.statuses()
            memory = {name: modules[name].memory() for name in modules.names}
            notes = naming_notes(Toolbox(), modules.known_tools())

    if options.json:
        source = str(configuration.source) if configuration.source else None
        listed: list[JSON] = [
            {
                **_status_json(status),
                "memory": memory[status.name],
                "users": list[JSON](signed_in_users(status.name)),
            }
            for status in statuses
        ]
        print_json(
            {
                "configuration": source,
                "modules": listed,
                "names": list[JSON](notes),
                "warnings": list[JSON](configuration.warnings),
            }
        )
    elif not statuses:
        _say_none_configured(configuration)
    else:
        for note in notes:
            say(note, "yellow")

    return ExitCode.DONE if all(map(is_well, statuses)) else ExitCode.FAILED


def _say_users_and_age(status: ModuleStatus) -> None:
    """Report which users are signed in to a server, and how old its stored list of tools is."""
    from ideabridge.bridge.modules.sign_ins import signed_in_users

    users = signed_in_users(status.name)
    if users:
        say(f"  {status.name}: these users are signed in: {', '.join(users)}", "dim")
    if status.sharing_text:
        say(f"  {status.name}: {status.sharing_text}", "dim")
    if status.listed_at:
        say(f"  {status.name}: starts when it is used; tools as of {status.listed_at}", "dim")


def _say_none_configured(configuration: Configuration) -> None:
    if configuration.untrusted is not None:
        say("no servers are configured")
        return

    missing = f"{configuration.project / 'ideabridge.json'}, which does not exist"
    say(
        f"no servers are configured in {configuration.source or missing}; `ideabridge servers "
        "import HOST` adds those of a client, `ideabridge servers add` a single one"
    )


async def _show_server(configuration: Configuration, name: str, *, as_json: bool) -> int:
    """Connect to the server named `name`, and print everything about it."""
    from ideabridge.server.cli.connecting import Connecting

    only = configuration.with_only([name])
    with Connecting(only) as connecting:
        from ideabridge.bridge.modules.modules import Modules
        from ideabridge.bridge.modules.sign_ins import signed_in_users

        async with Modules(only) as modules:
            await connecting.wait(modules)
            status = modules[name].status()
            memory = modules[name].memory()
            changes = modules[name].changes
            tools = [
                _ListedTool(
                    tool.origin[1],
                    changes.shown[tool.name].name if tool.name in changes.shown else None,
                    tool.name in changes.hidden,
                )
                for tool in modules.tools()
            ]

    shown = _ShownServer(only, status, memory, tools, signed_in_users(name))
    if as_json:
        print_json(shown.to_json())
    else:
        for title, text in shown.lines():
            for line in row_lines((title, text), (_TITLE_WIDTH,), terminal_width(), cut=False):
                show_line(line)
        if not is_well(status):
            report(status.error or f"server {name!r} has not answered yet")

    return ExitCode.DONE if is_well(status) else ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class _ListedTool:
    """A tool of a server.

    Attributes:
        name: the name that the server lists.
        shown_as: the name that the configuration gives the tool, or None if it is not renamed.
        is_hidden: whether the configuration hides the tool.
    """

    name: str
    shown_as: str | None
    is_hidden: bool

    def text(self) -> str:
        """Return the name of the tool, with a note if the configuration hides or renames it."""
        if self.is_hidden:
            return f"{shown_name(self.name)} (hidden)"
        if self.shown_as is not None:
            return f"{shown_name(self.name)} (shown as {self.shown_as})"
        return shown_name(self.name)


@dataclass(frozen=True, slots=True)
class _ShownServer:
    """Everything known about one server.

    Attributes:
        configuration: the configuration that contains the server's entry.
        status: the status of the server.
        memory: the memory that the server's program uses, in bytes, or None if no program of the
            server is running on this machine.
        tools: the tools of the server.
        users: the users of ideabridge who are signed in to the server.
    """

    configuration: Configuration
    status: ModuleStatus
    memory: int | None
    tools: list[_ListedTool]
    users: list[str]

    @property
    def entry(self) -> JSONObject:
        """The entry, without its secrets."""
        from ideabridge.bridge.masking import shown_definition

        entry = self.configuration.modules[self.status.name]
        return shown_definition(
            cast("JSONObject", entry.model_dump(mode="json", exclude_defaults=True))
        )

    @property
    def file(self) -> Path | None:
        """The configuration file that contains the entry."""
        layer = self.configuration.layer_of(self.status.name)
        return None if layer is None else layer.file

    @property
    def folder(self) -> Path | None:
        """The folder in which the server runs, or None for a server over HTTP."""
        module = self.configuration.modules[self.status.name]
        if module.command is None:
            return None
        if module.cwd is None:
            return self.configuration.working_folder_of(self.status.name)
        return self.configuration.folder_of(self.status.name) / Path(module.cwd).expanduser()

    def to_json(self) -> JSONObject:
        """Return the server as `--json` prints it."""
        log_file = self.configuration.log_file_of(self.status.name)
        return {
            "module": {
                **_status_json(self.status),
                "memory": self.memory,
                "users": list[JSON](self.users),
            },
            "configuration": None if self.file is None else str(self.file),
            "entry": self.entry,
            "folder": None if self.folder is None else str(self.folder),
            "tools": [tool.name for tool in self.tools],
            "shown_as": {
                tool.name: tool.shown_as for tool in self.tools if tool.shown_as is not None
            },
            "hidden": [tool.name for tool in self.tools if tool.is_hidden],
            "log": None if log_file is None else str(log_file),
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return the title and text of each line to display."""
        from ideabridge.bridge.trust_snapshot import setting_lines
        from ideabridge.server.hosts.entries import started_by

        status = self.status
        state = status.state
        if status.seconds is not None:
            state += f", connected in {duration_text(status.seconds)}"
        if self.memory is not None:
            state += f", takes {size_text(self.memory)} of memory"

        lines = [("server", status.name), ("state", state)]
        if self.file is not None:
            lines.append(("file", str(self.file)))
        start = started_by(self.entry)
        if start:
            lines.append(("starts" if self.folder else "calls", start))
        if self.folder is not None:
            lines.append(("in", str(self.folder)))

        settings = {key: value for key, value in self.entry.items() if key not in _SHOWN_APART}
        lines += [("with", text) for text in setting_lines(settings)]
        if status.state == "up":
            lines.append(("program", _program(status) or "unnamed"))
            lines.append(("protocol", f"MCP {status.protocol_version}, over {status.kind}"))
            names = ", ".join(tool.text() for tool in self.tools)
            lines.append(("tools", f"{len(self.tools)}: {names}" if self.tools else "none"))
        if self.users:
            lines.append(("signed in", ", ".join(self.users)))

        if status.sharing_text:
            lines.append(("processes", status.sharing_text))
        lines += [("note", note) for note in status.notes]
        lines.append(("log", f"ideabridge servers logs {shlex.quote(status.name)}"))
        return lines


def _say_notes(status: ModuleStatus) -> None:
    """Report the notes about a server."""
    for note in status.notes:
        say(f"  {status.name}: {note}", "dim")


def is_well(status: ModuleStatus) -> bool:
    """Return whether a server is in one of the states that its entry allows: up, disabled, or
    stopped because nobody uses it.
    """
    return status.state in ("up", "idle", "disabled")


def _status_json(status: ModuleStatus) -> JSONObject:
    return {**cast("JSONObject", dataclasses.asdict(status)), "notes": list(status.notes)}


def _program(status: ModuleStatus) -> str:
    """Return the name and version that a server reports about itself."""
    return " ".join(part for part in (status.server_name, status.server_version) if part)


def _row(status: ModuleStatus, memory: int | None) -> tuple[str, ...]:
    duration = "" if status.seconds is None else duration_text(status.seconds)
    return (
        status.name,
        status.state,
        status.kind,
        status.protocol_version or status.era or "",
        str(status.tools),
        duration,
        "" if memory is None else size_text(memory),
        _program(status),
    )


@app.command("test")
@command("config", "project", "json")
async def check_server(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")],
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="A tool to call.")] = None,
    input: InputOption = None,  # noqa: A002
    # `--arguments` is the earlier name of `--input`.
    arguments: Annotated[list[str] | None, typer.Option("--arguments", "-a", hidden=True)] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help=("Call the tool without asking, even if it may change something.")
        ),
    ] = False,
) -> int:
    """Connect to one server, say how long that took, and list its tools or call one of them.

    A tool that does not declare itself read-only is called only after confirmation, or with --yes,
    unless the rules of `approval` allow the call.
    """
    from ideabridge.server.cli.connecting import SETTLE_SECONDS, Connecting

    words = [*(input or ()), *(arguments or ())]
    if tool is None and words:
        raise UsageError("--input requires a TOOL")

    parameters = read_input(words or None) or {}
    configuration = options.configuration()
    if name in configuration.modules:
        # Do not start any other servers.
        configuration = configuration.model_copy(
            update={"modules": {name: configuration.modules[name]}}
        )

    async with AsyncExitStack() as stack:
        connecting: Connecting | None = None
        if name in configuration.modules:
            connecting = stack.enter_context(Connecting(configuration))

        from ideabridge.bridge.modules.modules import Modules

        modules = await stack.enter_async_context(Modules(configuration))
        if connecting is not None:
            await connecting.wait(modules)

        module = modules[name]
        await module.ready(SETTLE_SECONDS)
        if tool is None:
            _print_tools(module.status(), modules.tools(), as_json=options.json)
            return ExitCode.DONE

        for definition in modules.tools():
            if tool in (definition.name, definition.remote_name):
                asks = _check_call(configuration, definition, tool, parameters)
                if asks and not yes and not _confirmed(asks, tool, parameters, options):
                    say("nothing was called", "yellow")
                    return ExitCode.FAILED

        began = time.monotonic()
        result = await _call(module, tool, parameters)
        seconds = time.monotonic() - began
        # Read the status again, because the call might have added notes.
        status = module.status()
        if options.json:
            called: JSONObject = {"tool": tool, "result": result, "seconds": round(seconds, 3)}
            print_json({"module": _status_json(status), **called})
        else:
            print_value(result)
            _say_notes(status)
            say(f"{shown_name(tool)} answered in {duration_text(seconds)}", "green")

        return ExitCode.DONE


def _check_call(
    configuration: Configuration, definition: Tool, name: str, parameters: JSONObject
) -> str:
    """Check the parameters of a call, and that the configuration does not deny the call. Return why
    a person must be asked before the call, or "" if no question is needed.

    Raises:
        UsageError: the configuration denies the call.
        ValidationError: the parameters do not satisfy the schema.
    """
    from ideabridge.bridge.loop.policy import direct_policy, policy_named
    from ideabridge.tools.schema import Validator

    policy = direct_policy(configuration.approval_setting, definition.name)
    verdict = policy(definition, {})
    if verdict.verdict == "deny":
        raise UsageError(f"{name} is denied by the configuration: {verdict.why}")

    expect_parameters(parameters, definition.parameters, shown_name(name))
    Validator(definition.parameters, what=f"parameters of {name}").check(parameters)
    in_plan = policy_named(configuration.approval_setting)(definition, {})
    if in_plan.verdict == "allow":
        return ""
    return in_plan.why or f"the rules of `approval` ask about {name}"


def _confirmed(why: str, tool: str, parameters: JSONObject, options: Options) -> bool:
    """Ask the person at the terminal whether to make a call.

    Raises:
        UsageError: there is no terminal, so nobody can be asked.
    """
    if options.json or not at_terminal():
        raise UsageError(f"{why}: to call it without a question, add --yes")

    say(f"{why}. It would be called with:")
    for line in readable_json(parameters, 2).splitlines():
        say(f"  {line}")
    return confirm(f"Call {shown_name(tool)}?")


async def _call(module: Module, tool: str, parameters: JSONObject) -> JSON:
    """Call a tool. If the call fails, also report the server's notes."""
    from ideabridge.bridge.modules.errors import ModuleError

    try:
        return await module.call(tool, parameters)
    except ModuleError as error:
        _say_notes(module.status())
        if error.sent is not None:
            say(f"the server sent the following, which nobody checked: {encode_text(error.sent)}")
        raise


def _print_tools(status: ModuleStatus, tools: list[Tool], *, as_json: bool) -> None:
    """Print the tools of one server."""
    if as_json:
        definitions: list[JSON] = [tool.to_json() for tool in tools]
        print_json({"module": _status_json(status), "tools": definitions})
        return

    rows = [(shown_name(tool.origin[1]), parameters_text(tool.parameters)) for tool in tools]
    print_table(("tool", "parameters"), rows)
    _say_notes(status)
    program = _program(status) or "unnamed server"
    say(
        f"{status.name}: {status.state}, {program}, MCP {status.protocol_version}, "
        f"{counted(len(tools), 'tool')}, connected in {duration_text(status.seconds or 0)}",
        "green",
    )
