"""`ideabridge serve`, the MCP server, and `ideabridge install`, which configures a
host to start it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    print_json,
    report,
    say,
    show,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.names import readable_json

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.minds.settings import ModelConfiguration
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.server.asking.forms import Commands
    from ideabridge.server.serve import OwnerLink, Ready

DEFAULT_ADDRESS = "127.0.0.1:8787"
UI_ADDRESS = "127.0.0.1:8788"


@command("config", "project", "store", "tools", "allow_all")
async def serve(
    options: Options,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help=f"Serve over streamable HTTP at HOST:PORT. Default: {DEFAULT_ADDRESS}."
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Argument(metavar="[HOST:PORT]", help="Only with --http. Port 0: any free port."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A host name that clients may use for this server; may be repeated.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PROVIDER:MODEL",
            help="The model that answers solve: openai:gpt-5-mini.",
        ),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="With --http: also the page for people, at /ui.")
    ] = False,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="With --http: also metrics for Prometheus, at /metrics."),
    ] = False,
    workers: Annotated[
        bool,
        typer.Option(
            "--workers", help="With --http: leave the calls of runs to `ideabridge worker`."
        ),
    ] = False,
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help=(
                "error, warning, info (also a line for each request), or debug (also for "
                "each request for health)."
            ),
        ),
    ] = "warning",
) -> None:
    """Serve MCP over stdio, or with --http over streamable HTTP.

    Hosts start this command; `ideabridge install` adds it to a host's configuration. An address
    other than loopback requires users (`ideabridge users add`), or a bearer token in the
    environment variable IDEABRIDGE_TOKEN.
    """
    if not http and (address is not None or allow_host or ui or metrics or workers):
        settings = {
            "--ui": ui,
            "--metrics": metrics,
            "--workers": workers,
            "--allow-host": allow_host,
        }
        setting = next(
            (name for name, value in settings.items() if value), f"an address ({address})"
        )
        raise UsageError(f"{setting} goes with --http")

    place = read_address(address or DEFAULT_ADDRESS) if http else None
    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_option(model)})

    if at_terminal():
        _introduce(configuration, stdio=place is None)

    print_status = _print_status if at_terminal() else _print_unusable
    from ideabridge.server.serve import serve_http, serve_stdio

    if place is None:
        await serve_stdio(
            configuration, on_status=print_status, commands=_commands(options), log_level=log_level
        )
    else:
        hosts = tuple(allow_host or ())
        ready = partial(_welcome, configuration, hosts)
        await serve_http(
            configuration,
            host=place[0],
            port=place[1],
            hosts=hosts,
            on_status=print_status,
            ready=ready,
            ui=ui,
            metrics=metrics,
            workers=workers,
            commands=_commands(options),
            log_level=log_level,
        )


@command("config", "project", "store", "tools", "allow_all")
async def work(
    options: Options,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--module",
            metavar="NAME",
            help="Run only this server here; may be repeated. Default: all.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--runs", min=1, max=1000, help="The most runs at once.")
    ] = 32,
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="How long to wait for running calls at the end.",
        ),
    ] = 30.0,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PROVIDER:MODEL",
            help="The model that answers solve: openai:gpt-5-mini.",
        ),
    ] = None,
) -> None:
    """Run the runs of servers that were started with `serve --http --workers` on the same store.

    A worker takes a run from the queue if the servers that the run may call run here. SIGTERM or
    Ctrl-C lets it begin no more calls; it ends when its running calls have ended, and other workers
    continue its runs.
    """
    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_option(model)})

    if configuration.store == ":memory:":
        raise UsageError(
            "a worker needs the store of the servers; this configuration keeps it in memory"
        )

    from ideabridge.server.serve import run_worker

    print_status = _print_status if at_terminal() else _print_unusable
    await run_worker(
        configuration, most=most, only=modules or None, drain_seconds=drain, on_status=print_status
    )


@command("config", "project", "store", "tools", "allow_all")
async def show_ui(
    options: Options,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]", help=f"Default: {UI_ADDRESS}. Port 0: any free port."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Start nothing: print a link that signs you in, as the owner, to the page of the "
            f"server that runs at HOST:PORT on the same store. Default: {DEFAULT_ADDRESS}.",
        ),
    ] = False,
) -> None:
    """Open the page: runs as they happen, approvals, ideas, servers, and a playground.

    It shows the runs of every assistant that uses this store, also those of other processes. Ctrl-C
    ends it. It is a server over HTTP, too: `serve --http --ui` has the same page.
    """
    if link:
        _print_link(options, *read_address(address or DEFAULT_ADDRESS))
        return

    place = read_address(address or UI_ADDRESS)
    configuration = options.configuration()
    from ideabridge.server.serve import serve_http

    print_status = _print_status if at_terminal() else _print_unusable
    ready = partial(_open_page, opens=not no_browser and at_terminal())
    await serve_http(
        configuration,
        host=place[0],
        port=place[1],
        on_status=print_status,
        ready=ready,
        ui=True,
        commands=_commands(options),
    )


def _print_link(options: Options, host: str, port: int) -> None:
    """Print a link to the page of another server. Whoever types the command asks for it, so it goes
    to standard output wherever that leads.
    """
    from ideabridge.server.cli.stores import open_store
    from ideabridge.server.serve import link_to
    from ideabridge.server.transports.gate import PAGE

    name = f"[{host}]" if ":" in host else host
    with open_store(options) as store:
        show(link_to(f"http://{name}:{port}{PAGE}/", store.owner_links))


def _open_page(ready: Ready, *, opens: bool) -> None:
    """Open the page in a browser, signed in as the owner, and print the owner's link at a terminal.
    Elsewhere standard output may be a log, so it gets the address alone, and standard error the
    command that makes a link.
    """
    assert ready.page is not None
    assert ready.owner_link is not None
    address = ready.page
    if opens or sys.stdout.isatty():
        address = ready.owner_link.make()

    if sys.stdout.isatty():
        say(f"{_OWNER_LINK}:")
        shown = address
    else:
        say(
            "The page is at the address on standard output. This command prints a link "
            "that signs you in to it:"
        )
        sys.stderr.write(f"  {ready.owner_link.command}\n")
        shown = ready.page

    # One line for copying, however wide the terminal is.
    sys.stdout.write(f"  {shown}\n")
    sys.stdout.flush()
    if opens:
        import threading
        import webbrowser

        # A browser in a terminal would block the server.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _commands(options: Options) -> Commands:
    """The commands that decide about the runs of this server, from any folder."""
    from ideabridge.server.asking.forms import Commands

    absolute = _absolute(options)
    return Commands(
        f"ideabridge approvals list{replace(absolute, tools=(), allow_all=False).again}",
        f"ideabridge approvals decide{absolute.again}",
        f"ideabridge ideas publish{replace(absolute, allow_all=False).again}",
        f"ideabridge ui --link{replace(absolute, tools=(), allow_all=False).again}",
    )


def _absolute(options: Options) -> Options:
    """The options with which a command finds the same configuration from any folder."""
    return Options(
        None if options.config is None else options.config.expanduser().absolute(),
        options.folder(),
        options.place,
        tools=tuple(file.expanduser().absolute() for file in options.tools),
        allow_all=options.allow_all,
    )


def _introduce(configuration: Configuration, *, stdio: bool) -> None:
    """Explain the server to a person at the terminal on standard error; standard output belongs
    to the protocol.
    """
    if stdio:
        say("ideabridge waits for an MCP host on standard input and output. Ctrl-C ends it.")
        say("To let a host start it: `ideabridge install claude-code --write`.")
    else:
        say("ideabridge serves MCP over HTTP. Ctrl-C ends it.")

    files = " over ".join(str(layer.file) for layer in reversed(configuration.layers))
    say(f"configuration: {files or 'none, so the defaults apply'}", "dim")
    say(f"store: {configuration.store}", "dim")
    names = [name for name, entry in configuration.modules.items() if not entry.disabled]
    say(
        f"connecting to servers: {', '.join(names)}" if names else "no servers are configured",
        "dim",
    )


_OWNER_LINK: Final = "To sign in to the page as the owner, open this link, once, within 10 minutes"


def _welcome(configuration: Configuration, hosts: tuple[str, ...], ready: Ready) -> None:
    """Explain how clients connect to the server over HTTP, and people to its page."""
    from ideabridge.bridge.bridge import TOKEN_VARIABLE
    from ideabridge.server.transports.http import reachable

    url = reachable(ready.url, hosts)
    words = ["claude", "mcp", "add", "--transport", "http", "ideabridge", url]
    if ready.asks:
        say(f"Clients connect to {url} with the header")
        say("  Authorization: Bearer TOKEN")
        kinds = ["a user's (`ideabridge users add NAME` makes one)"]
        kinds += [f"the value of {TOKEN_VARIABLE}"] if os.environ.get(TOKEN_VARIABLE) else []
        kinds += (
            []
            if configuration.auth is None
            else [f"an access token of {configuration.auth.issuer}"]
        )
        for number, kind in enumerate(kinds):
            say(f"{'or' if number else 'where TOKEN is'} {kind}")

        words += ["--header", "Authorization: Bearer TOKEN"]
    else:
        say(f"Clients connect to {url}, without a token.")
        say("Once there is a user (`ideabridge users add NAME`), clients need a token.")

    say("For example:")
    # One line for copying, however wide the terminal is.
    sys.stderr.write(f"  {shlex.join(words)}\n")
    if ready.page is not None and ready.owner_link is not None:
        say("The page for people is at")
        sys.stderr.write(f"  {reachable(ready.page, hosts)}\n")
        if ready.asks:
            say("People sign in there with their token.")
        else:
            say("Everybody who reaches it reads it there. Whoever decides must sign in.")

        _tell_owner(ready.owner_link, as_command=configuration.store != ":memory:")

    say("Other names for this server are refused (421): `--allow-host NAME` allows one.", "dim")


def _tell_owner(link: OwnerLink, *, as_command: bool) -> None:
    """Tell the owner how to sign in. The link is a secret, which would end in a log if there is no
    terminal: then the text names the command that prints one, if `as_command`.
    """
    if at_terminal():
        say(f"{_OWNER_LINK}:")
        sys.stderr.write(f"  {link.make()}\n")
    elif as_command:
        say("The owner gets a link for signing in with this command, on this machine:")
        sys.stderr.write(f"  {link.command}\n")


def _print_status(status: ModuleStatus) -> None:
    if status.state == "up":
        say(f"server {status.name}: up, {status.tools} tools, {status.seconds or 0:.1f} s", "green")
    elif status.state != "disabled":
        say(status.why if status.error else f"server {status.name!r}: {status.state}", "yellow")


def _print_unusable(status: ModuleStatus) -> None:
    """Print, once and for a log, why a module cannot start before somebody changes something."""
    if status.is_unusable:
        report(status.why)


def read_option(model: str) -> ModelConfiguration:
    """The model of `--model`; `UsageError` unless it is PROVIDER:MODEL."""
    from pydantic import ValidationError

    from ideabridge.bridge.minds.settings import read_model

    try:
        return read_model(model)
    except ValidationError:
        raise UsageError(
            f"--model: expected PROVIDER:MODEL, such as openai:gpt-5-mini; found {model[:80]!r}"
        ) from None


def read_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`, `:PORT`, `PORT` or `[IPv6]:PORT`; the default host is loopback.

    Raises:
        UsageError: the text has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdigit():
        host = text
        port = DEFAULT_ADDRESS.rpartition(":")[2]

    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"--http: an IPv6 address goes into brackets: [{host}]:{port}")

    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(
            f"--http: expected HOST:PORT with a port from 0 to 65535, found {text[:80]!r}"
        )

    return host or "127.0.0.1", int(port)


HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="claude-code, cursor or vscode.")]


@command("config", "project", "store", "json")
def install(
    options: Options,
    host: HostArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write it to the host's file; a backup is kept.")
    ] = False,
    scope: Annotated[
        Literal["project", "user"],
        typer.Option(
            "--scope",
            metavar="project|user",
            help="project: this project's file. user: everywhere you work.",
        ),
    ] = "project",
) -> int:
    """Print the configuration with which a host starts ideabridge, or write it to the host's file.

    The host then starts this program by its absolute path. Everything else in the file stays.
    """
    from ideabridge.server.hosts.host import (
        SERVER_NAME,
        CommentedHostFileError,
        HostEnvironment,
        find_host,
        read_host_document,
    )

    chosen = find_host(host)
    places = HostEnvironment(project=options.folder())
    file = chosen.target(places, scope)
    entry = chosen.entry([*executable(), "serve", *_arguments(options, scope)])
    document = read_host_document(file.path)
    before = file.servers(document.content).get(SERVER_NAME)
    content = file.with_server(document.content, SERVER_NAME, entry)
    result: JSONObject = {
        "host": chosen.name,
        "file": str(file.path),
        "scope": scope,
        "entry": entry,
        "written": False,
    }
    refused: str | None = None
    if write and before != entry:
        try:
            backup = document.write(
                content,
                shared=scope == "project",
                project=places.project if scope == "project" else None,
            )
            result["written"] = True
            result["backup"] = str(backup) if backup else None
        except CommentedHostFileError as error:
            refused = str(error)
            result["error"] = refused

    if options.json:
        print_json(result)
    elif before == entry:
        say(f"{chosen.title}: {file.path} has it already", "green")
    elif result["written"]:
        say(f"{chosen.title}: written to {file.path}", "green")
        if isinstance(before, dict):
            say(f"  it replaces another entry {SERVER_NAME!r}; backup: {result['backup']}")

        move = f"`ideabridge servers import {chosen.name} --move`"
        say(
            f"Restart {chosen.title} or reload its MCP servers. {move} moves its other "
            "servers behind ideabridge."
        )
    else:
        if refused:
            say(f"ideabridge: {refused}; add this by hand:", "yellow")
        else:
            say(f"{chosen.title} reads {file.path}; add this, or run again with --write:")

        part: JSONObject = {SERVER_NAME: entry}
        for key in reversed(file.keys):
            part = {key: part}

        show(readable_json(part, 2))
        if chosen.command is not None and not refused:
            say("or run:")
            show(shlex.join(chosen.command(scope, entry)))

    return ExitCode.FAILED if refused else ExitCode.DONE


def _arguments(options: Options, scope: str) -> list[str]:
    """The options with which `serve` finds the same configuration in any folder."""
    words: list[str] = []
    if options.config is not None:
        words += ["--config", str(options.config.expanduser().absolute())]

    if scope == "project" or options.project is not None:
        words += ["--project", str(options.folder())]

    if options.store is not None:
        words += ["--store", str(options.place)]

    return words


def executable() -> list[str]:
    """The words that start this ideabridge, with its absolute path.

    Links are not resolved: the link of a tool installer still works after an upgrade.
    """
    if sys.platform == "win32":
        names = ["ideabridge.exe", "ideabridge"]
    else:
        names = ["ideabridge"]

    started = Path(sys.argv[0])
    if started.name in names or started.stem == "ideabridge":
        command = shutil.which(str(started))
        if command:
            return [str(Path(command).absolute())]

    for name in names:
        beside = Path(sys.executable).parent / name
        if beside.is_file():
            return [str(beside.absolute())]

    # -P: a host starts this in a project's folder, whose files must not replace Python modules.
    return [sys.executable, "-P", "-m", "ideabridge.server"]
