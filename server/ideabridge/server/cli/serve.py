"""`ideabridge serve`: the MCP server."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import UsageError, at_terminal, say
from ideabridge.server.cli.options import Options, command

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.minds.settings import ModelConfiguration
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.server.asking.forms import Commands

DEFAULT_ADDRESS = "127.0.0.1:8787"


@command("config", "project", "store", "tools", "allow_all")
def serve(
    options: Options,
    http: Annotated[
        bool, typer.Option("--http", help=f"Serve over streamable HTTP at HOST:PORT. Default: {DEFAULT_ADDRESS}.")
    ] = False,
    address: Annotated[
        str | None, typer.Argument(metavar="[HOST:PORT]", help="Only with --http. Port 0: any free one.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name clients may call this server by; may be repeated."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PROVIDER:MODEL", help="The model that answers solve: openai:gpt-5-mini."),
    ] = None,
) -> int:
    """Serve MCP over stdio, or with --http over streamable HTTP.

    This is what a host starts; `ideabridge install` writes it into the host's configuration. An address other than
    loopback needs users (`ideabridge users add`), or a bearer token in the environment variable IDEABRIDGE_TOKEN.
    """
    if not http and (address is not None or allow_host):
        raise UsageError(f"{'--allow-host' if allow_host else f'an address ({address})'} goes with --http")
    place = read_address(address or DEFAULT_ADDRESS) if http else None
    configuration = options.configuration()
    if model is not None:
        configuration = configuration.model_copy(update={"model": read_option(model)})
    told = None
    if at_terminal():
        _introduce(configuration, stdio=place is None)
        told = _tell
    import anyio

    from ideabridge.server.serve import serve_http, serve_stdio

    async def work() -> None:
        if place is None:
            await serve_stdio(configuration, told=told, commands=_commands(options))
        else:
            hosts = tuple(allow_host or ())
            ready = partial(_welcome, configuration, hosts)
            await serve_http(configuration, host=place[0], port=place[1], hosts=hosts, told=told, ready=ready)

    anyio.run(work)
    return 0


def _commands(options: Options) -> Commands:
    """What a person writes at a terminal, in any folder, to decide about the runs of this server."""
    from ideabridge.server.asking.forms import Commands

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    place = Options(absolute(options.config), options.folder(), absolute(options.store))
    whole = replace(
        place, tools=tuple(one.expanduser().absolute() for one in options.tools), allow_all=options.allow_all
    )
    return Commands(
        f"ideabridge approvals list{place.again}",
        f"ideabridge approvals decide{whole.again}",
        f"ideabridge ideas publish{replace(whole, allow_all=False).again}",
    )


def _introduce(configuration: Configuration, *, stdio: bool) -> None:
    """Tell a person at the terminal, on standard error, what this is; standard output belongs to the protocol."""
    if stdio:
        say("ideabridge waits for an MCP host on standard input and output. Ctrl-C ends it.")
        say("Set a host up to start it by itself: `ideabridge install claude-code --write`.")
    else:
        say("ideabridge serves MCP over HTTP. Ctrl-C ends it.")
    files = " over ".join(str(layer.file) for layer in reversed(configuration.layers))
    say(f"configuration: {files or 'none, so the defaults hold'}", "dim")
    say(f"store: {configuration.store}", "dim")
    names = [name for name, entry in configuration.modules.items() if not entry.disabled]
    say(f"connecting to modules: {', '.join(names)}" if names else "no modules are configured", "dim")


def _welcome(configuration: Configuration, hosts: tuple[str, ...], url: str, asked_for: bool) -> None:
    """Tell how clients reach a server over HTTP."""
    import os
    import shlex
    import socket
    from urllib.parse import urlsplit, urlunsplit

    from ideabridge.bridge.bridge import TOKEN_VARIABLE

    parts = urlsplit(url)
    everywhere = parts.hostname in ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
    if hosts or everywhere:
        host = hosts[0] if hosts else socket.gethostname()
        url = urlunsplit(parts._replace(netloc=f"{host}:{parts.port}"))
    words = ["claude", "mcp", "add", "--transport", "http", "ideabridge", url]
    if asked_for:
        say(f"Clients connect to {url} with the header")
        say("  Authorization: Bearer TOKEN")
        kinds = ["a user's (`ideabridge users add NAME` makes one)"]
        kinds += [f"the value of {TOKEN_VARIABLE}"] if os.environ.get(TOKEN_VARIABLE) else []
        kinds += [] if configuration.auth is None else [f"an access token of {configuration.auth.issuer}"]
        for number, kind in enumerate(kinds):
            say(f"{'or' if number else 'where TOKEN is'} {kind}")
        words += ["--header", "Authorization: Bearer TOKEN"]
    else:
        say(f"Clients connect to {url}, without a token.")
        say("From the first user on (`ideabridge users add NAME`) every client needs a token.")
    say("For example:")
    # One line, however wide the terminal is: it is for copying.
    sys.stderr.write(f"  {shlex.join(words)}\n")
    say("Other names for this server are refused (421): `--allow-host NAME` allows one.", "dim")


def _tell(status: ModuleStatus) -> None:
    """Tell a person at the terminal how a module is."""
    if status.state == "up":
        say(f"module {status.name}: up, {status.tools} tools, {status.seconds or 0:.1f} s", "green")
    elif status.state != "disabled":
        say(status.why if status.error else f"module {status.name!r}: {status.state}", "yellow")


def read_option(model: str) -> ModelConfiguration:
    """What --model names.

    Raises:
        UsageError: it is no PROVIDER:MODEL.
    """
    from pydantic import ValidationError

    from ideabridge.bridge.minds.settings import read_model

    try:
        return read_model(model)
    except ValidationError:
        raise UsageError(f"--model: expected PROVIDER:MODEL, such as openai:gpt-5-mini; found {model[:80]!r}") from None


def read_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT`, `PORT` or `[IPv6]:PORT` -> host and port; without a host, loopback.

    Raises:
        UsageError: it is none.
    """
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdigit():
        host, port = text, DEFAULT_ADDRESS.rpartition(":")[2]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"--http: an IPv6 address goes into brackets: [{host}]:{port}")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--http: expected HOST:PORT with a port from 0 to 65535, found {text[:80]!r}")
    return host or "127.0.0.1", int(port)
