"""The commands `ideabridge serve` (the MCP server), `ideabridge worker` (which drives the servers'
runs), and `ideabridge ui` (which opens their page).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.names import counted, duration_text

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.minds.settings import ModelConfiguration
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.server.asking.forms import Commands
    from ideabridge.server.serve import OwnerLink, Ready, WorkspaceSource

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
        typer.Argument(
            metavar="[HOST:PORT]", help="Only with --http. Port 0 selects any free port."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A host name that clients can use for this server; may be repeated.",
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
        bool, typer.Option("--ui", help="With --http: also serve the page for people, at /ui.")
    ] = False,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics", help="With --http: also serve metrics for Prometheus, at /metrics."
        ),
    ] = False,
    workers: Annotated[
        bool,
        typer.Option(
            "--workers", help="With --http: leave the calls of runs to `ideabridge worker`."
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Offer only the servers, tools and ideas of this profile of the configuration.",
        ),
    ] = None,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="With --http: clients send the token of your service; see `ideabridge service`.",
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

    Clients start this command; `ideabridge install` adds it to a client's configuration. An address
    other than loopback requires users (`ideabridge users add`), or a bearer token in the
    environment variable IDEABRIDGE_TOKEN.
    """
    if not http:
        settings = {
            "--ui": ui,
            "--metrics": metrics,
            "--workers": workers,
            "--service": service,
            "--allow-host": allow_host,
            f"an address ({address})": address is not None,
        }
        for setting, value in settings.items():
            if value:
                raise UsageError(f"{setting} requires --http")

    place = read_host_and_port(address or DEFAULT_ADDRESS)
    configuration = options.configuration(tolerant=True)
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_model_option(model)})

    if profile is not None:
        from ideabridge.bridge.profiles import Profiles

        # Reject a profile that does not exist before starting any server.
        Profiles(configuration).named(profile)
        configuration = configuration.model_copy(update={"restricted_to": profile})

    if at_terminal():
        _introduce(configuration, stdio=not http)

    print_status = _status_printer(configuration)
    from ideabridge.bridge.store.users import LOCAL
    from ideabridge.server.serve import HttpOptions, serve_http, serve_stdio

    if not http:
        await serve_stdio(
            configuration,
            on_status=print_status,
            commands=_commands(options),
            log_level=log_level,
            read=partial(_read_again, options),
        )
    else:
        hosts = tuple(allow_host or ())
        listening = HttpOptions(
            *place,
            token=_token_of_service() if service else None,
            # The service has one user, who also uses the store without it, for example on the
            # command line. Both must be the same caller.
            caller=LOCAL if service else None,
            hosts=hosts,
            ui=ui,
            metrics=metrics,
            workers=workers,
            workspaces=_workspaces(options, model) if service else None,
            ready=partial(_welcome, configuration, hosts),
            read=partial(_read_again, options),
        )
        await serve_http(
            configuration,
            listening,
            on_status=print_status,
            commands=_commands(options),
            log_level=log_level,
        )


@command("config", "project", "store", "tools", "allow_all")
async def work(
    options: Options,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            "--module",
            metavar="SERVER",
            help="Run only this server here; may be repeated. Default: all.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--runs", min=1, max=1000, help="The maximum number of runs at once.")
    ] = 32,
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="How long to wait for running calls when the worker stops.",
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
    """Carry out the runs of servers that were started with `serve --http --workers` on the same
    store.

    A worker takes a run from the queue only if it has the servers that the run can call. After
    SIGTERM or Ctrl-C it starts no more calls, and ends when its running calls have ended. Other
    workers continue its runs.
    """
    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_model_option(model)})

    if configuration.store == ":memory:":
        raise UsageError(
            "a worker needs the store of the servers, but this configuration keeps it in memory"
        )

    from ideabridge.server.serve import run_worker

    print_status = _status_printer(configuration)
    await run_worker(
        configuration,
        most=most,
        only=modules or None,
        drain_seconds=drain,
        on_status=print_status,
        read=partial(_read_again, options),
    )


@command("config", "project", "store", "tools", "allow_all")
async def show_ui(
    options: Options,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]", help=f"Default: {UI_ADDRESS}. Port 0 selects any free port."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and do not open a browser.")
    ] = False,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Do not start a server, but print a link that signs you in, as the owner, to the "
            "page of the server that runs at HOST:PORT on the same store. "
            f"Default: {DEFAULT_ADDRESS}.",
        ),
    ] = False,
) -> None:
    """Open the page: runs as they happen, approvals, ideas, servers, and a playground.

    The page shows the runs of every assistant that uses this store, including those of other
    processes. Ctrl-C ends the command. The command is an HTTP server, too: `serve --http --ui` has
    the same page.
    """
    if link:
        _print_link(options, *read_host_and_port(address or DEFAULT_ADDRESS))
        return

    place = read_host_and_port(address or UI_ADDRESS)
    configuration = options.configuration()
    from ideabridge.server.serve import HttpOptions, serve_http

    print_status = _status_printer(configuration)
    ready = partial(_open_page, opens=not no_browser and at_terminal())
    await serve_http(
        configuration,
        HttpOptions(*place, ui=True, ready=ready, read=partial(_read_again, options)),
        on_status=print_status,
        commands=_commands(options),
    )


def _workspaces(options: Options, model: str | None) -> WorkspaceSource:
    """Return the source of the service's workspaces.

    The options on the command line apply to every workspace, except for `--config`, because every
    workspace uses the user's own configuration anyway.
    """
    from ideabridge.server.serve import WorkspaceSource
    from ideabridge.server.workspaces import registered_workspaces, workspace_folder

    def options_in(folder: Path) -> Options:
        return replace(_absolute(options), config=None, project=folder)

    def read(folder: Path) -> Configuration:
        configuration = _read_again(options_in(folder))
        if model is None:
            return configuration
        return configuration.model_copy(update={"model": read_model_option(model)})

    return WorkspaceSource(
        registered_workspaces,
        workspace_folder,
        read,
        lambda folder: _commands(options_in(folder)),
    )


def _token_of_service() -> str:
    from ideabridge.server.service import service_token

    return service_token()


def _read_again(options: Options) -> Configuration:
    """Reload the configuration from its files."""
    return options.configuration(asking=False, tolerant=True)


def _print_link(options: Options, host: str, port: int) -> None:
    """Print a link to another server's page.

    The link goes to standard output even if it is not a terminal, because the user asked for the
    link.
    """
    from ideabridge.server.cli.stores import open_store
    from ideabridge.server.serve import link_to
    from ideabridge.server.transports.gate import PAGE

    name = f"[{host}]" if ":" in host else host
    with open_store(options) as store:
        show_line(link_to(f"http://{name}:{port}{PAGE}/", store.owner_links))


def _open_page(ready: Ready, *, opens: bool) -> None:
    """Open the page in a browser, signed in as the owner, and print the owner's link to the
    terminal.

    If standard output is not a terminal, it might be a log, where a secret link does not belong. In
    that case, print only the address to standard output, and the command that creates a link to
    standard error.
    """
    assert ready.page is not None
    assert ready.owner_link is not None
    prints_link = sys.stdout.isatty()
    link = ready.owner_link.make() if opens or prints_link else ""
    # Never wrap the link, so that it can be copied even from a narrow terminal.
    if prints_link:
        say(f"{_OWNER_LINK}:")
        sys.stdout.write(f"  {link}\n")
    else:
        say(
            "The page is at the address on standard output. This command prints a link "
            "that signs you in to it:"
        )
        sys.stderr.write(f"  {ready.owner_link.command}\n")
        sys.stdout.write(f"  {ready.page}\n")

    sys.stdout.flush()
    if opens:
        import threading
        import webbrowser

        # Use a thread, because a browser in a terminal would block the server.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def _commands(options: Options) -> Commands:
    """Return the commands for deciding about this server's runs. They work in any folder."""
    from ideabridge.server.asking.forms import Commands
    from ideabridge.server.cli.install import serve_arguments

    absolute = _absolute(options)
    asking = replace(absolute, allow_all=False)
    without_tools = replace(asking, tools=())
    return Commands(
        f"ideabridge approvals list{without_tools.again}",
        f"ideabridge approvals decide{absolute.again}",
        f"ideabridge ideas publish{asking.again}",
        f"ideabridge ui{without_tools.again}",
        f"ideabridge ui --link{without_tools.again}",
        serve=("serve", *serve_arguments(options, "user")),
    )


def _absolute(options: Options) -> Options:
    """Return options that make a command find the same configuration from any folder."""
    return Options(
        None if options.config is None else options.config.expanduser().absolute(),
        options.folder(),
        options.place,
        tools=tuple(file.expanduser().absolute() for file in options.tools),
        allow_all=options.allow_all,
    )


def _introduce(configuration: Configuration, *, stdio: bool) -> None:
    """Explain the server to a person at the terminal. The text goes to standard error, because
    standard output is reserved for the protocol.
    """
    if stdio:
        say("ideabridge waits for an MCP client on standard input and output. Ctrl-C ends it.")
        say("To let a client start it: `ideabridge install claude-code --write`.")
    else:
        say("ideabridge serves MCP over HTTP. Ctrl-C ends it.")

    files = " over ".join(str(layer.file) for layer in reversed(configuration.layers))
    say(f"configuration: {files or 'no file, so the defaults apply'}", "dim")
    say(f"store: {configuration.store}", "dim")
    names = configuration.enabled_modules
    if names:
        say(f"connecting to servers: {', '.join(names)}", "dim")
    else:
        say("no servers are configured", "dim")


_OWNER_LINK: Final = (
    "To sign in to the page as the owner, open this link within 10 minutes; it works only once"
)


def _welcome(configuration: Configuration, hosts: tuple[str, ...], ready: Ready) -> None:
    """Explain how clients connect to the HTTP server, and how people open its page."""
    from ideabridge.bridge.bridge import TOKEN_VARIABLE
    from ideabridge.server.transports.http import reachable

    url = reachable(ready.url, hosts)
    words = ["claude", "mcp", "add", "--transport", "http", "ideabridge", url]
    if ready.asks:
        say(f"Clients connect to {url} with the header")
        say("  Authorization: Bearer TOKEN")
        say("where TOKEN is a user's token (`ideabridge users add NAME` creates one)")
        if os.environ.get(TOKEN_VARIABLE):
            say(f"or the value of {TOKEN_VARIABLE}")
        if configuration.auth is not None:
            say(f"or an access token of {configuration.auth.issuer}")

        words += ["--header", "Authorization: Bearer TOKEN"]
    else:
        say(f"Clients connect to {url}, without a token.")
        say("Once there is a user (`ideabridge users add NAME`), clients need a token.")

    say("For example:")
    # Never wrap the line, so that it can be copied even from a narrow terminal.
    sys.stderr.write(f"  {shlex.join(words)}\n")
    if ready.page is not None and ready.owner_link is not None:
        say("The page for people is at")
        sys.stderr.write(f"  {reachable(ready.page, hosts)}\n")
        if ready.asks:
            say("People sign in there with their token.")
        else:
            say("Everybody who can open the page can read it. To decide, a person must sign in.")

        _tell_owner(ready.owner_link, as_command=configuration.store != ":memory:")

    say(
        "Requests under other names are refused (421); to allow a name, use `--allow-host NAME`.",
        "dim",
    )


def _tell_owner(link: OwnerLink, *, as_command: bool) -> None:
    """Tell the owner how to sign in.

    The link is a secret, and could end up in a log if there is no terminal. In that case, or with
    `as_command`, name the command that prints a link instead.
    """
    if at_terminal():
        say(f"{_OWNER_LINK}:")
        sys.stderr.write(f"  {link.make()}\n")
    elif as_command:
        say("To get a sign-in link, the owner runs this command on this machine:")
        sys.stderr.write(f"  {link.command}\n")


def _status_printer(configuration: Configuration) -> Callable[[ModuleStatus], None]:
    """Return a function that reports the states of servers.

    The function skips servers with unusable entries, because these were reported when the
    configuration was read.
    """
    print_status = _print_status if at_terminal() else _print_unusable

    def print_unless_known(status: ModuleStatus) -> None:
        if status.name not in configuration.unusable:
            print_status(status)

    return print_unless_known


def _print_status(status: ModuleStatus) -> None:
    if status.state == "up":
        tools = counted(status.tools, "tool")
        say(f"server {status.name}: up, {tools}, {duration_text(status.seconds or 0)}", "green")
    elif status.state != "disabled":
        say(status.why if status.error else f"server {status.name!r}: {status.state}", "yellow")


def _print_unusable(status: ModuleStatus) -> None:
    """Report, on one line suitable for a log, why a server cannot start until someone changes
    something.
    """
    if status.state == "unusable":
        report(status.why)


def read_model_option(model: str) -> ModelConfiguration:
    """Parse the `--model` option. Raise `UsageError` unless it has the form PROVIDER:MODEL."""
    from pydantic import ValidationError

    from ideabridge.bridge.minds.settings import read_model

    try:
        return read_model(model)
    except ValidationError:
        raise UsageError(
            f"--model: expected PROVIDER:MODEL, such as openai:gpt-5-mini; found {model[:80]!r}"
        ) from None


def read_host_and_port(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `:PORT`, `PORT` or `[IPv6]:PORT`. The host defaults to loopback.

    Raises:
        UsageError: the text does not have one of these forms.
    """
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdigit():
        host = text
        port = DEFAULT_ADDRESS.rpartition(":")[2]

    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"--http: write an IPv6 address in brackets: [{host}]:{port}")

    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(
            f"--http: expected HOST:PORT with a port from 0 to 65535, found {text[:80]!r}"
        )

    return host or "127.0.0.1", int(port)
