"""`ideabridge servers` (the MCP servers behind ideabridge) and `ideabridge tools` (the tools that
plans can call).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    Rows,
    UsageError,
    at_terminal,
    confirm,
    first_line,
    print_json,
    print_table,
    print_value,
    read_line,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.inputs import read_input
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.server.cli.stores import open_bridge, open_store
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import printable, shown_name

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.loop.event import Via
    from ideabridge.bridge.modules.authorization import Person
    from ideabridge.bridge.modules.device import DeviceCode, DevicePerson
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import (
        AuthorizationSettings,
        ModuleConfiguration,
        ModuleStatus,
    )
    from ideabridge.bridge.modules.sign_ins import ModuleUser
    from ideabridge.bridge.runs.pins import ChangedTool
    from ideabridge.tools.tool import Tool


_CONNECT_SECONDS: Final = 60.0
"""Extra seconds that a sign-in may take, on top of the time that the person has."""

app = typer.Typer(
    help="List, test, sign in to and import the MCP servers behind ideabridge.",
    no_args_is_help=True,
)


@app.command("list")
@command("config", "project", "json")
async def list_servers(options: Options) -> int:
    """Connect to every configured server and show its state. Exit code 1 if one failed."""
    from ideabridge.server.cli.connecting import Connecting

    configuration = options.configuration()
    rows: Rows | None = None
    if configuration.modules and not options.json:
        titles = ("server", "state", "kind", "protocol", "tools", "took", "program")
        rows = Rows(titles, (max(map(len, configuration.modules)), 10, 5, 10, 5, 7))

    def print_status(status: ModuleStatus) -> None:
        if rows is None:
            return

        is_well = _is_well(status)
        rows.add(_row(status), None if is_well else "red")
        _say_notes(status)
        users = signed_in_users(status.name)
        if users:
            say(f"  {status.name}: these users are signed in: {', '.join(users)}", "dim")
        if not is_well:
            report(status.error or f"server {status.name!r} has not answered yet")

    with Connecting(configuration) as connecting:
        from ideabridge.bridge.modules.modules import Modules
        from ideabridge.bridge.modules.sign_ins import signed_in_users
        from ideabridge.bridge.offer.tool_names import naming_notes
        from ideabridge.tools.toolbox import Toolbox

        async with Modules(configuration) as modules:
            await connecting.wait(modules, print_status)
            statuses = modules.statuses()
            notes = naming_notes(Toolbox(), modules.known_tools())

    if options.json:
        source = str(configuration.source) if configuration.source else None
        listed: list[JSON] = [
            {**_status_json(status), "users": list[JSON](signed_in_users(status.name))}
            for status in statuses
        ]
        print_json({"configuration": source, "modules": listed, "names": list[JSON](notes)})
    elif statuses:
        for note in notes:
            say(note, "yellow")
    elif configuration.untrusted is not None:
        say("no servers are configured")
    else:
        missing = f"{configuration.project / 'ideabridge.json'}, which does not exist"
        say(
            f"no servers are configured in {configuration.source or missing}; `ideabridge "
            "servers import HOST` adds those of a host"
        )

    return ExitCode.DONE if all(map(_is_well, statuses)) else ExitCode.FAILED


def _say_notes(status: ModuleStatus) -> None:
    """Report the notes on a server."""
    for note in status.notes:
        say(f"  {status.name}: {note}", "dim")


def _is_well(status: ModuleStatus) -> bool:
    return status.state in ("up", "disabled")


def _status_json(status: ModuleStatus) -> JSONObject:
    return {**cast("JSONObject", dataclasses.asdict(status)), "notes": list(status.notes)}


def _program(status: ModuleStatus) -> str:
    """Return the name and version that a server states."""
    return " ".join(part for part in (status.server_name, status.server_version) if part)


def _row(status: ModuleStatus) -> tuple[str, ...]:
    duration = "" if status.seconds is None else f"{status.seconds:.2f} s"
    return (
        status.name,
        status.state,
        status.kind,
        status.protocol_version or status.era or "",
        str(status.tools),
        duration,
        _program(status),
    )


@app.command("test")
@command("config", "project", "json")
async def check_server(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The server.")],
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="A tool to call.")] = None,
    input: InputOption = None,  # noqa: A002
    # `--arguments` is the earlier name of --input.
    arguments: Annotated[list[str] | None, typer.Option("--arguments", "-a", hidden=True)] = None,
) -> int:
    """Connect to one server, and list its tools or call one of them."""
    from ideabridge.server.cli.connecting import SETTLE_SECONDS, Connecting

    words = [*(input or ()), *(arguments or ())]
    if tool is None and words:
        raise UsageError("--input goes with a TOOL")

    parameters = read_input(words or None) or {}
    configuration = options.configuration()
    if name in configuration.modules:
        # Do not start the other servers.
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
                _check_call(configuration, definition, tool, parameters)

        result = await _call(module, tool, parameters)
        # The call may have added notes.
        status = module.status()
        if options.json:
            print_json({"module": _status_json(status), "tool": tool, "result": result})
        else:
            print_value(result)
            _say_notes(status)

        return ExitCode.DONE


def _check_call(
    configuration: Configuration, definition: Tool, name: str, parameters: JSONObject
) -> None:
    """Check the parameters of a call, and whether the configuration denies it. A call that would
    need approval may run, because a person typed it.

    Raises:
        UsageError: the call is denied.
        ValidationError: the parameters do not fit the schema.
    """
    from ideabridge.bridge.loop.policy import direct_policy
    from ideabridge.tools.schema import Validator

    policy = direct_policy(configuration.approval_setting, definition.name)
    verdict = policy(definition, {})
    if verdict.verdict == "deny":
        raise UsageError(f"{name} is denied by the configuration: {verdict.why}")

    Validator(definition.parameters, what=f"parameters of {name}").check(parameters)


async def _call(module: Module, tool: str, parameters: JSONObject) -> JSON:
    """Call a tool. If the call fails, also report the notes on the server."""
    from ideabridge.bridge.modules.errors import ModuleError

    try:
        return await module.call(tool, parameters)
    except ModuleError as error:
        _say_notes(module.status())
        if error.sent is not None:
            say(f"sent, and checked by nobody: {encode_text(error.sent)}")
        raise


def _print_tools(status: ModuleStatus, tools: list[Tool], *, as_json: bool) -> None:
    """Print the tools of one server."""
    if as_json:
        definitions: list[JSON] = [tool.to_json() for tool in tools]
        print_json({"module": _status_json(status), "tools": definitions})
        return

    rows = [(shown_name(tool.origin[1]), signature(tool.parameters)) for tool in tools]
    print_table(("tool", "parameters"), rows)
    _say_notes(status)
    program = _program(status) or "unnamed server"
    say(
        f"{status.name}: {status.state}, {program}, MCP {status.protocol_version}, "
        f"{len(tools)} tools",
        "green",
    )


UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="USER",
        help="A user of ideabridge on this store. Default: whoever starts it.",
    ),
]


@app.command("login")
@command("config", "project", "store", "json")
async def log_in(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The server.")],
    user: UserOption = None,
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            help="Print the address, and read the one where the browser ends up from stdin.",
        ),
    ] = False,
    device: Annotated[
        bool,
        typer.Option(
            "--device", help="Print an address and a code, to enter with a browser on any device."
        ),
    ] = False,
) -> int:
    """Sign in to a server over HTTP with a browser (OAuth), so that every ideabridge that runs here
    can use it.

    Over SSH and in containers, --device needs no browser on this machine. With --user, only the
    calls of this user use the sign-in. Exit code 1 if the server asks for no sign-in.
    """
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.server.asking.signing_in import SECONDS

    if device and no_browser:
        raise UsageError("give --device or --no-browser: with --device, no address is pasted")

    configuration = options.configuration()
    entry = Modules(configuration)[name].configuration
    _check_sign_in(name, entry, user)
    module_user: ModuleUser | None = None
    if user is not None:
        module_user = _module_user(options, user)

    patient = entry.model_copy(
        update={"connect_timeout": SECONDS + _CONNECT_SECONDS, "disabled": False}
    )
    configuration = configuration.model_copy(update={"modules": {name: patient}})
    token_place: str | None = None
    async with _person(entry.auth, no_browser=no_browser, device=device) as person:
        for at_once in (False, True):
            async with Modules(
                configuration, person=person, at_once=at_once, user=module_user
            ) as modules:
                await modules[name].ready(SECONDS + _CONNECT_SECONDS)
                authorization = modules[name].authorization
                if authorization is not None:
                    token_place = authorization.signed_in

            if token_place is not None:
                break

    signed_in = token_place is not None
    if options.json:
        print_json({"module": name, "user": user, "signed_in": signed_in, "kept_in": token_place})
    elif signed_in:
        say(f"{_subject(user)}signed in to {name}; the tokens are in {token_place}", "green")
    else:
        say(f"{name} asks for no sign-in")

    return ExitCode.DONE if signed_in else ExitCode.FAILED


def _check_sign_in(name: str, entry: ModuleConfiguration, user: str | None) -> None:
    """Raise `UsageError` if a person, or this user, cannot sign in to a server."""
    if entry.url is None:
        raise UsageError(f"{name} is a program: it signs in by itself")
    if any(header.lower() == "authorization" for header in entry.headers):
        raise UsageError(
            f"mcpServers.{name}.headers has the token for {name}: nobody signs in to it"
        )

    if entry.auth is not None and entry.auth.grant == "client_credentials":
        raise UsageError(
            f"{name} needs no person: mcpServers.{name}.auth has the credentials of a client"
        )

    if user is not None and not entry.has_sign_ins:
        raise UsageError(f'mcpServers.{name}.auth has "shared": all users act with one sign-in')


def _subject(user: str | None) -> str:
    """Return the start of a sentence about a sign-in. It names the user, unless that is whoever
    starts ideabridge.
    """
    if user is None:
        return ""
    return f"{user} is "


def _module_user(options: Options, name: str) -> ModuleUser:
    """Return an active user of the store. Raise `UnknownUserError` if nobody has this name, and
    `UserError` if the user is not active.
    """
    from ideabridge.bridge.modules.sign_ins import ModuleUser
    from ideabridge.bridge.store.errors import UserError

    with open_store(options) as store:
        state = store.users.get(name).state
        if state != "active":
            raise UserError(f"{name!r} is {state}: only an active user can sign in")
        return ModuleUser(name, store.settings.sign_in_key(make=True))


@asynccontextmanager
async def _person(
    settings: AuthorizationSettings | None, *, no_browser: bool, device: bool
) -> AsyncGenerator[Person | DevicePerson]:
    """Yield the person who signs in, using the browser or the device that the options name."""
    from ideabridge.bridge.modules.device import DevicePerson
    from ideabridge.server.asking.signing_in import PastingPerson, browser_person, unused_address

    redirect_uri = None if settings is None else settings.redirect_uri
    if device:
        yield DevicePerson(_show_code)
    elif no_browser:
        yield PastingPerson(
            redirect_uri or unused_address(), _show_address_to_paste, lambda: read_line("> ")
        )
    else:
        async with browser_person(redirect_uri, _show_address) as person:
            yield person


def _show_address(url: str) -> None:
    say("open this address in a browser on this machine, if none opens:")
    # The link stays on one line for copying, however wide the terminal is.
    sys.stderr.write(f"  {printable(url)}\n")


def _show_address_to_paste(url: str) -> None:
    say("open this address in a browser:")
    sys.stderr.write(f"  {printable(url)}\n")
    say(
        "After that the browser is sent to an address that it cannot open. Paste that address here:"
    )


def _show_code(code: DeviceCode) -> None:
    say("open this address in a browser on any device, and enter the code there:")
    sys.stderr.write(f"  address: {printable(code.address)}\n     code: {printable(code.code)}\n")
    if code.complete is not None:
        say("or open this address, which contains the code, and compare the code there:")
        sys.stderr.write(f"  {printable(code.complete)}\n")

    if code.stranger is not None:
        say(f"the code comes from {printable(code.stranger)}, and the page is on another host:")
        say(
            "sign in only if the page names the server or that host, and asks "
            "for rights that you expect"
        )

    say(
        f"waiting until somebody has signed in there; the code is valid for {code.seconds:.0f} s",
        "dim",
    )


@app.command("logout")
@command("json")
def log_out(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The server.")],
    user: UserOption = None,
) -> int:
    """Delete the tokens of one person for servers with this name. Exit code 1 if no tokens are
    stored.
    """
    from ideabridge.bridge.modules.sign_ins import forget_sign_ins, signed_in_users

    addresses = forget_sign_ins(name, user)
    others = signed_in_users(name)
    if options.json:
        print_json(
            {
                "module": name,
                "user": user,
                "signed_out": list[JSON](addresses),
                "users": list[JSON](others),
            }
        )
        return ExitCode.DONE if addresses else ExitCode.FAILED

    for address in addresses:
        say(f"{_subject(user)}signed out of {name} at {address}", "green")

    if not addresses and user is None:
        say(f"nobody is signed in to {name}")
    elif not addresses:
        say(f"{user} is not signed in to {name}")

    if others:
        say(f"still signed in to {name} (--user signs them out): {', '.join(others)}", "dim")

    return ExitCode.DONE if addresses else ExitCode.FAILED


def signature(schema: JSONObject) -> str:
    """Return the parameter names, with brackets around the optional ones."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return ""

    required = schema.get("required")
    if not isinstance(required, list):
        required = []

    return ", ".join(name if name in required else f"[{name}]" for name in properties)


@app.command("accept")
@command("config", "project", "store", "tools", "json")
async def accept_changes(
    options: Options,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SERVER]", help="The server, or idea:NAME for the calls of an idea by an idea."
        ),
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="The tools of the tool files instead of a server's.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Show each change in the tools of a server, and let published ideas call the tools as they are
    now.

    Until then, a call of a tool whose schema or behaviour hints have changed is refused.
    """
    from ideabridge.bridge.loop.event import LOCAL_USER, Decider
    from ideabridge.server.cli.connecting import connected

    if own == (name is not None):
        raise UsageError("give a SERVER, or --own")

    module = name or ""
    async with connected(open_bridge(options)) as bridge:
        changed = await bridge.changed_tools(module)
        differences = _differences(changed)
        if not options.json:
            _print_differences(differences)

        accepted = bool(changed) and yes
        via: Via = "command"
        if changed and not yes and not options.json:
            if not at_terminal():
                raise UsageError("nothing was accepted: look at the differences, then add --yes")

            accepted = confirm("Let them call it as it is now?")
            via = "terminal"

        if accepted:
            bridge.accept(changed, by=Decider("person", via, LOCAL_USER))

    if options.json:
        entries: list[JSON] = [
            {
                "tool": difference.tool,
                "differences": list[JSON](difference.lines),
                "ideas": list[JSON](difference.ideas),
            }
            for difference in differences
        ]
        print_json({"module": module, "changed": entries, "accepted": accepted})
    elif not changed:
        say("no tool that a published idea calls has changed", "green")
    elif accepted:
        say("accepted", "green")
    else:
        say("nothing was accepted", "yellow")

    return ExitCode.DONE if accepted or not changed else ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class _Difference:
    """How a tool has changed since the ideas that call it were published.

    Attributes:
        tool: the tool.
        lines: the changes, one per line.
        ideas: the published ideas that call it, as NAME@VERSION.
    """

    tool: str
    lines: list[str]
    ideas: list[str]


def _differences(changed: list[ChangedTool]) -> list[_Difference]:
    """Group the changes: ideas share one difference if a tool has changed for them in the same
    way.
    """
    differences: dict[tuple[str, ...], _Difference] = {}
    for change in changed:
        label = change.pin.label
        difference = differences.setdefault(
            (label, *change.lines), _Difference(label, change.lines, [])
        )
        difference.ideas.append(f"{change.publication.name}@{change.publication.version}")

    return list(differences.values())


def _print_differences(differences: list[_Difference]) -> None:
    for difference in differences:
        verb = "calls" if len(difference.ideas) == 1 else "call"
        show_line(f"{difference.tool}, which {', '.join(difference.ideas)} {verb}:", "bold")
        for line in difference.lines:
            show_line(f"  {line}")


def _has_words(tool: Tool, words: list[str]) -> bool:
    text = f"{tool.module} {tool.name} {tool.description}".lower()
    return all(word.lower() in text for word in words)


tools_app = typer.Typer(help="List the tools that plans can call.", no_args_is_help=True)


@tools_app.command("list")
@command("config", "project", "tools", "json")
async def list_tools(
    options: Options,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only tools with all these words."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Print parameter schemas too.")
    ] = False,
) -> int:
    """List the tools that plans can call: the Python tools, then those of the servers.

    Exit code 1 if no tool has the words.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected

    words = words or []
    async with connected(Bridge(options.configuration(), store=":memory:")) as bridge:
        tools = [tool for tool in bridge.tools() if _has_words(tool, words)]
        no_match = bool(words) and not tools
        down = [status for status in bridge.modules.statuses() if not _is_well(status)]
        code = ExitCode.FAILED if down or no_match else ExitCode.DONE
        if options.json:
            definitions: list[JSON] = [tool.to_json() for tool in tools]
            errors: list[JSON] = [{"module": status.name, "error": status.error} for status in down]
            print_json({"tools": definitions, "errors": errors})
            return code

        if no_match:
            condition = "the word" if len(words) == 1 else "all the words"
            say(f"no tool has {condition} {' '.join(words)}")
        elif schemas:
            for tool in tools:
                show_line(f"{tool.name}  ({tool.module or 'here'})")
                print_value(tool.parameters)
        else:
            effects = {True: "reads", False: "changes", None: "?"}
            rows = [
                (
                    tool.name,
                    tool.module or "",
                    effects[tool.annotations.read_only],
                    first_line(tool.description),
                )
                for tool in tools
            ]
            print_table(("tool", "server", "does", "description"), rows)

        for status in down:
            report(status.error or f"server {status.name!r} has not answered yet")

        return code
