"""`ideabridge servers`, the MCP servers behind ideabridge, and `ideabridge tools`, the tools that
plans can call.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
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
    show,
)
from ideabridge.server.cli.inputs import read_input
from ideabridge.server.cli.options import InputOption, Options, command
from ideabridge.server.cli.serve import HostArgument
from ideabridge.server.cli.stores import open_bridge, open_store
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import printable, shown_name

if TYPE_CHECKING:
    from ideabridge.bridge.modules.authorization import Person
    from ideabridge.bridge.modules.device import DeviceCode, DevicePerson
    from ideabridge.bridge.modules.settings import AuthorizationSettings, ModuleStatus
    from ideabridge.bridge.modules.sign_ins import ModuleUser
    from ideabridge.bridge.runs.pins import ChangedTool
    from ideabridge.server.hosts.adopt import Adoption, Destinations


_CONNECT_SECONDS: Final = 60.0
"""Seconds for signing in that the person does not use."""

app = typer.Typer(
    help="List, test, sign in to and import the MCP servers behind ideabridge.",
    no_args_is_help=True,
)


@app.command("list")
@command("config", "project", "json")
async def list_modules(options: Options) -> int:
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
        rows.add(_row(status), None if _is_well(status) else "red")
        _say_notes(status)
        if users := signed_in_users(status.name):
            say(f"  {status.name}: these users are signed in: {', '.join(users)}", "dim")

        if not _is_well(status):
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
        where = (
            configuration.source
            or f"{configuration.project / 'ideabridge.json'}, which does not exist"
        )
        say(
            f"no servers are configured in {where}; `ideabridge servers import "
            "HOST` adds those of a host"
        )

    return ExitCode.DONE if all(map(_is_well, statuses)) else ExitCode.FAILED


def _say_notes(status: ModuleStatus) -> None:
    """Print what is odd about a module."""
    for note in status.notes:
        say(f"  {status.name}: {note}", "dim")


def _is_well(status: ModuleStatus) -> bool:
    return status.state in ("up", "disabled")


def _status_json(status: ModuleStatus) -> JSONObject:
    return {**cast("JSONObject", dataclasses.asdict(status)), "notes": list(status.notes)}


def _server(status: ModuleStatus) -> str:
    return " ".join(part for part in (status.server_name, status.server_version) if part)


def _row(status: ModuleStatus) -> tuple[str, ...]:
    took = f"{status.seconds:.2f} s" if status.seconds is not None else ""
    protocol = status.protocol_version or status.era or ""
    return (
        status.name,
        status.state,
        status.kind,
        protocol,
        str(status.tools),
        took,
        _server(status),
    )


@app.command("test")
@command("config", "project", "json")
async def check_module(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The server.")],
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="A tool to call.")] = None,
    input: InputOption = None,  # noqa: A002
    # The earlier name of --input.
    arguments: Annotated[list[str] | None, typer.Option("--arguments", "-a", hidden=True)] = None,
) -> int:
    """Connect to one server, and list its tools or call one of them."""
    from ideabridge.bridge.loop.policy import direct_policy
    from ideabridge.bridge.modules.errors import ModuleError
    from ideabridge.server.cli.connecting import SETTLE_SECONDS, Connecting
    from ideabridge.tools.schema import Validator

    words = [*(input or ()), *(arguments or ())]
    if tool is None and words:
        raise UsageError("--input goes with a TOOL")

    given = read_input(words or None) or {}
    configuration = options.configuration()
    alone = {key: entry for key, entry in configuration.modules.items() if key == name}
    if alone:
        # The other modules are not started.
        configuration = configuration.model_copy(update={"modules": alone})

    async with AsyncExitStack() as stack:
        connecting = stack.enter_context(Connecting(configuration)) if alone else None
        from ideabridge.bridge.modules.modules import Modules

        modules = await stack.enter_async_context(Modules(configuration))
        if connecting is not None:
            await connecting.wait(modules)

        await modules[name].ready(SETTLE_SECONDS)
        status = modules[name].status()
        if tool is not None:
            for one in modules.tools():
                if tool in (one.name, one.remote_name):
                    # A call that would need approval runs, because a person typed it.
                    verdict = direct_policy(configuration.approval_setting, one.name)(one, {})
                    if verdict.verdict == "deny":
                        raise UsageError(f"{tool} is denied by the configuration: {verdict.why}")
                    Validator(one.parameters, what=f"parameters of {tool}").check(given)

            try:
                result = await modules[name].call(tool, given)
            except ModuleError as error:
                _say_notes(modules[name].status())
                if error.sent is not None:
                    say(f"sent, and checked by nobody: {encode_text(error.sent)}")
                raise

            # The call may have shown more of what is odd.
            status = modules[name].status()
            if options.json:
                print_json({"module": _status_json(status), "tool": tool, "result": result})
            else:
                print_value(result)
                _say_notes(status)

            return ExitCode.DONE

        tools = modules.tools()
        if options.json:
            listed: list[JSON] = [one.to_json() for one in tools]
            print_json({"module": _status_json(status), "tools": listed})
            return ExitCode.DONE

        print_table(
            ("tool", "parameters"),
            [(shown_name(one.origin[1]), signature(one.parameters)) for one in tools],
        )
        server = _server(status) or "unnamed server"
        _say_notes(status)
        say(
            f"{name}: {status.state}, {server}, MCP {status.protocol_version}, {len(tools)} tools",
            "green",
        )
        return ExitCode.DONE


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
            help="Print the address, and take the one where the browser ends from stdin.",
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

    Over SSH and in containers, --device needs no browser on this machine. With --user, the calls of
    this user are made with the sign-in, and no others. Exit code 1 if the server asks for no
    sign-in.
    """
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.server.asking.signing_in import SECONDS

    if device and no_browser:
        raise UsageError("give --device or --no-browser: with --device, no address is pasted")

    configuration = options.configuration()
    entry = Modules(configuration)[name].configuration
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

    whose = None if user is None else _module_user(options, user)
    waiting = entry.model_copy(
        update={"connect_timeout": SECONDS + _CONNECT_SECONDS, "disabled": False}
    )
    configuration = configuration.model_copy(update={"modules": {name: waiting}})
    async with AsyncExitStack() as stack:
        person = await stack.enter_async_context(
            _person(entry.auth, no_browser=no_browser, device=device)
        )
        kept: str | None = None
        for at_once in (False, True):
            async with Modules(
                configuration, person=person, at_once=at_once, user=whose
            ) as modules:
                await modules[name].ready(SECONDS + _CONNECT_SECONDS)
                authorization = modules[name].authorization
                kept = None if authorization is None else authorization.signed_in
                if kept is not None:
                    break

    if options.json:
        print_json({"module": name, "user": user, "signed_in": kept is not None, "kept_in": kept})
    elif kept is not None:
        who = "" if user is None else f"{user} is "
        say(f"{who}signed in to {name}; the tokens are in {kept}", "green")
    else:
        say(f"{name} asks for no sign-in")

    return ExitCode.FAILED if kept is None else ExitCode.DONE


def _module_user(options: Options, name: str) -> ModuleUser:
    """A user of the store. Raises `UnknownUserError` if nobody has this name."""
    from ideabridge.bridge.modules.sign_ins import ModuleUser
    from ideabridge.bridge.store.errors import UserError

    with open_store(options) as store:
        if (found := store.users.get(name)).state != "active":
            raise UserError(f"{name!r} is {found.state}: only an active user can sign in")
        return ModuleUser(name, store.settings.sign_in_key(make=True))


@asynccontextmanager
async def _person(
    settings: AuthorizationSettings | None, *, no_browser: bool, device: bool
) -> AsyncGenerator[Person | DevicePerson]:
    from ideabridge.bridge.modules.device import DevicePerson
    from ideabridge.server.asking.signing_in import PastingPerson, browser_person, unused_address

    redirect_uri = None if settings is None else settings.redirect_uri

    def show_address(url: str) -> None:
        if no_browser:
            where = "in a browser"
        else:
            where = "in a browser on this machine, if none opens"

        say(f"open this address {where}:")
        # One line for copying, however wide the terminal is.
        sys.stderr.write(f"  {printable(url)}\n")
        if no_browser:
            say(
                "After that the browser is sent to an address that it cannot open. "
                "Paste that address here:"
            )

    if device:
        yield DevicePerson(_show_code)
        return
    if no_browser:
        yield PastingPerson(redirect_uri or unused_address(), show_address, lambda: read_line("> "))
        return

    async with browser_person(redirect_uri, show_address) as person:
        yield person


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
    """Delete the tokens of one person for servers with this name. Exit code 1 if
    none are stored.
    """
    from ideabridge.bridge.modules.sign_ins import forget, signed_in_users

    addresses = forget(name, user)
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

    who = "" if user is None else f"{user} is "
    for address in addresses:
        say(f"{who}signed out of {name} at {address}", "green")

    if not addresses:
        say(
            f"nobody is signed in to {name}"
            if user is None
            else f"{user} is not signed in to {name}"
        )

    if others:
        say(f"still signed in to {name}, which --user signs out: {', '.join(others)}", "dim")

    return ExitCode.DONE if addresses else ExitCode.FAILED


def signature(schema: JSONObject) -> str:
    """The names of the parameters, with brackets around the optional ones."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return ", ".join(name if name in needed else f"[{name}]" for name in names)


@app.command("accept")
@command("config", "project", "store", "tools", "json")
async def accept_module(
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
    """Let published ideas call changed tools of a server as they are now. Shows each difference.

    Without this, a call of a tool whose schema or behaviour hints changed is refused.
    """
    from ideabridge.bridge.loop.event import LOCAL_USER, Decider
    from ideabridge.server.cli.connecting import connected

    if own == (name is not None):
        raise UsageError("give a SERVER, or --own")

    module = name or ""
    asks = not yes and not options.json and at_terminal()
    async with connected(open_bridge(options)) as bridge:
        changed = await bridge.changed_tools(module)
        accepted = bool(changed) and yes
        if not options.json:
            for label, lines, ideas in _by_tool(changed):
                show(
                    f"{label}, which {', '.join(ideas)} {'calls' if len(ideas) == 1 else 'call'}:",
                    "bold",
                )
                for line in lines:
                    show(f"  {line}")

        if asks and changed:
            accepted = confirm("Let them call it as it is now?")
        elif changed and not yes and not options.json:
            raise UsageError("nothing was accepted: look at the differences, then add --yes")

        if accepted:
            bridge.accept(
                changed, by=Decider("person", "terminal" if asks else "command", LOCAL_USER)
            )

    if options.json:
        differences: list[JSON] = [
            {"tool": label, "differences": list[JSON](lines), "ideas": list[JSON](ideas)}
            for label, lines, ideas in _by_tool(changed)
        ]
        print_json({"module": module, "changed": differences, "accepted": accepted})
    elif not changed:
        say("no tool that a published idea calls has changed", "green")
    else:
        say("accepted" if accepted else "nothing was accepted", "green" if accepted else "yellow")

    return ExitCode.DONE if accepted or not changed else ExitCode.FAILED


def _by_tool(changed: list[ChangedTool]) -> list[tuple[str, list[str], list[str]]]:
    """(tool, differences, ideas that call it) for each set of differences of a tool."""
    groups: dict[tuple[str, ...], tuple[str, list[str], list[str]]] = {}
    for one in changed:
        group = groups.setdefault((one.pin.label, *one.lines), (one.pin.label, one.lines, []))
        group[2].append(f"{one.publication.name}@{one.publication.version}")
    return list(groups.values())


@app.command("import")
@command("config", "project", "json")
def import_modules(
    options: Options,
    host: HostArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these servers.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Copy them into ideabridge.json; a backup is kept.")
    ] = False,
    move: Annotated[
        bool,
        typer.Option(
            "--move", help="Copy them, then remove them from the host's file; a backup is kept."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace servers of the same name.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --move: do not ask.")] = False,
) -> int:
    """Show the MCP servers of a host, or copy or move them into ideabridge.json.

    Your own servers go into your own configuration, and those of the project into the project's. A
    server with a secret stays out of files that a repository may hold. Without --write or --move,
    nothing is changed. Without --replace, servers of the same name stay. ideabridge itself is
    never imported.
    """
    from ideabridge.bridge.trust import may_be_trusted, trust_command, trust_file
    from ideabridge.server.hosts.adopt import find_servers, merge_servers, movable, removals
    from ideabridge.server.hosts.host import HostEnvironment, find_host

    chosen = find_host(host)
    targets = _targets(options)
    places = HostEnvironment(project=options.folder())
    listed, files = find_servers(chosen, places, targets, replaces=replace, only=names or ())
    found = [
        _theirs(adoption) if adoption.name not in (names or ()) else adoption for adoption in listed
    ]
    receiving = [
        target
        for target in targets.all
        if any(one.adopted and one.target is target for one in found)
    ]
    # Copying does not make servers trusted that came with a cloned repository.
    trusted = [
        target.file
        for target in receiving
        if not target.is_own
        and may_be_trusted(target.file)
        and not any(
            one.adopted and one.target is target and one.scope == "project" for one in found
        )
    ]
    moving, staying = movable(found, names or ()) if move else ([], [])
    # Errors in the files are found before anything is written.
    changes = removals(chosen, places, moving)
    of_project = {adoption.file for adoption in moving if adoption.scope == "project"}
    if write or move:
        for target in receiving:
            target.document.check_strict()
            target.document.check_place(None if target.is_own else places.project)
        for document, _ in changes:
            document.check_place(places.project if document.path in of_project else None)

    if moving and not yes:
        if options.json or not at_terminal():
            raise UsageError(
                f"--move changes {' and '.join(str(one.path) for one, _ in changes)}: add --yes"
            )
        _print_found(found, reasons=False)
        if not _confirmed(moving, staying):
            say("nothing was changed", "yellow")
            return ExitCode.FAILED

    backups: dict[Path, Path | None] = {}
    if write or move:
        for target in receiving:
            backups[target.file] = target.document.write(
                merge_servers(target, found), private=target.is_own, shared=target.is_shared
            )
        for file in trusted:
            trust_file(file)

    removed = [
        (document.path, document.write(content, keep=True, shared=document.path in of_project))
        for document, content in changes
    ]
    adopted = [adoption for adoption in found if adoption.adopted]
    unusable = any(adoption.verdict in ("unusable", "taken") for adoption in found)
    code = ExitCode.FAILED if unusable and not adopted else ExitCode.DONE
    if options.json:
        result: JSONObject = {
            "host": chosen.name,
            "files": [str(file) for file in files],
            "servers": [_adoption_json(adoption) for adoption in found],
            "written": bool(backups),
            "configurations": [
                {"file": str(file), "backup": None if backup is None else str(backup)}
                for file, backup in backups.items()
            ],
        }
        if move:
            result["moved"] = [
                {
                    "name": one.name,
                    "from": str(one.file),
                    "scope": one.scope,
                    "to": str(one.target.file),
                }
                for one in moving
            ]
            result["moved_backups"] = [
                {"file": str(path), "backup": str(copy)} for path, copy in removed
            ]
            result["stays"] = list[JSON](staying)

        print_json(result)
        return code

    if not files:
        candidates = ", ".join(dict.fromkeys(str(file.path) for file in chosen.files(places)))
        say(f"{chosen.title} has no configuration here; looked for {candidates}")
    elif not found:
        say(f"{chosen.title} has no servers in {', '.join(map(str, files))}")
    elif not moving or yes:
        _print_found(found, reasons=not move)

    counts = {
        target.file: sum(one.adopted and one.target is target for one in found)
        for target in receiving
    }
    if receiving and not backups:
        copied = " and ".join(f"{count} to {file}" for file, count in counts.items())
        say(f"Nothing is changed yet. --write copies {copied};")
        say("--move also removes what it copies from the host's file.")

    for target in receiving if backups else ():
        count = counts[target.file]
        backup = backups[target.file]
        copied = f"; backup: {backup}" if backup else ""
        say(
            f"{count} written to {target.file}{copied}. `ideabridge servers list` connects to them",
            "green",
        )
        if not target.is_own and target.file not in trusted:
            say(
                f"{target.file} is not trusted; to look at it and trust it: "
                f"{trust_command(target.file)}",
                "yellow",
            )

    if yes or not moving:
        for line in staying:
            say(line, "yellow")

    for path, copy in removed:
        gone_from = [one.shown_name for one in moving if one.file == path]
        say(f"{', '.join(gone_from)} removed from {path}", "green")
        say(f"  to undo that: {shlex.join(['cp', str(copy), str(path)])}", "dim")

    if removed:
        say(f"`ideabridge install {chosen.name} --write` puts ideabridge in their place", "dim")

    return code


def _confirmed(moving: list[Adoption], staying: list[str]) -> bool:
    """Ask the person whether to move these servers, each with its old and new place."""
    for line in staying:
        say(line, "yellow")
    say("These are moved:")
    for adoption in moving:
        say(
            f"  {adoption.shown_name}: from {adoption.file} ({adoption.scope}) "
            f"to {adoption.target.file}"
        )
    return confirm(f"Move {'it' if len(moving) == 1 else f'these {len(moving)}'}?")


def _targets(options: Options) -> Destinations:
    """The configurations that receive servers: that of --config, or the user's and the
    project's.
    """
    from ideabridge.bridge.configuration import is_user_file, user_file
    from ideabridge.bridge.trust import FILE_NAME, repository_of
    from ideabridge.server.hosts.adopt import Destination, Destinations
    from ideabridge.server.hosts.host import read_host_document

    def target(file: Path, *, is_own: bool, is_shared: bool) -> Destination:
        in_repository = repository_of(Path(os.path.realpath(file)).parent) is not None
        return Destination(read_host_document(file), is_own, is_shared or in_repository)

    if options.config is not None:
        file = options.config.expanduser().absolute()
        named = target(
            file, is_own=is_user_file(file), is_shared=options.project_file() is not None
        )
        return Destinations(named, named)

    own = target(user_file(), is_own=True, is_shared=False)
    project = options.folder() / FILE_NAME
    if is_user_file(project):
        return Destinations(own, own)
    return Destinations(own, target(project, is_own=False, is_shared=True))


def _theirs(one: Adoption) -> Adoption:
    """A server from the project's file, which enters the user's configuration only by name."""
    why = "it is the project's; name it to have it in your own configuration"
    enters = one.adopted and one.target.is_own and one.scope == "project"
    return dataclasses.replace(one, verdict="unusable", why=why) if enters else one


def _adoption_json(one: Adoption) -> JSONObject:
    from ideabridge.bridge.masking import shown_definition

    entry: JSONObject = {
        "name": one.name,
        "verdict": one.verdict,
        "from": str(one.file),
        "scope": one.scope,
    }
    entry["to"] = str(one.target.file)
    if one.why:
        entry["why"] = one.why
    return {**entry, "entry": shown_definition(one.entry), "notes": list[JSON](one.notes)}


def _near(file: Path) -> str:
    """The path relative to the current folder or to the home folder, if it is in one of them."""
    for folder, start in ((Path.cwd(), ""), (Path.home(), "~/")):
        if file.is_relative_to(folder):
            return f"{start}{file.relative_to(folder)}"
    return str(file)


def _print_found(found: list[Adoption], *, reasons: bool) -> None:
    """Print what happens to each server; with `reasons`, also why one is not imported."""
    from ideabridge.bridge.masking import shown_definition

    rows: list[tuple[str, ...]] = []
    for one in found:
        shown = shown_definition(one.entry)
        arguments = shown.get("args")
        words = [
            shown.get("command") or shown.get("url") or "",
            *(arguments if isinstance(arguments, list) else []),
        ]
        if one.adopted or one.verdict == "same":
            to = _near(one.target.file)
        else:
            to = ""

        started = " ".join(str(word) for word in words)
        rows.append((one.shown_name, one.verdict, f"{_near(one.file)} ({one.scope})", to, started))

    print_table(("server", "verdict", "from", "to", "what it starts"), rows)
    for one in found:
        if one.why and reasons:
            say(f"{one.shown_name}: not imported: {one.why}", "yellow")
        for note in one.notes if one.adopted else ():
            say(f"{one.shown_name}: {note}", "dim")


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
        found = [
            tool
            for tool in bridge.tools()
            if all(
                word.lower() in f"{tool.module} {tool.name} {tool.description}".lower()
                for word in words
            )
        ]
        nothing = words and not found
        down = [status for status in bridge.modules.statuses() if not _is_well(status)]
        code = ExitCode.FAILED if down or nothing else ExitCode.DONE
        if options.json:
            listed: list[JSON] = [tool.to_json() for tool in found]
            errors: list[JSON] = [{"module": status.name, "error": status.error} for status in down]
            print_json({"tools": listed, "errors": errors})
            return code

        if nothing:
            say(
                f"no tool has {'the word' if len(words) == 1 else 'all the words'} "
                f"{' '.join(words)}"
            )
        elif schemas:
            for tool in found:
                show(f"{tool.name}  ({tool.module or 'here'})")
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
                for tool in found
            ]
            print_table(("tool", "server", "does", "description"), rows)

        for status in down:
            report(status.error or f"server {status.name!r} has not answered yet")

        return code
