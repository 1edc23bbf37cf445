"""The command `ideabridge service`, which manages one server over HTTP for all clients of a user.
The system starts this server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import ExitCode, UsageError, print_json, report, say, show_line
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.serve import DEFAULT_ADDRESS, read_host_and_port

if TYPE_CHECKING:
    from ideabridge.server.service import UserService

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

app = typer.Typer(
    help="Let the system start one server over HTTP for all your clients.", no_args_is_help=True
)


@app.command("install")
@command("store")
def install_service(
    options: Options,
    address: Annotated[
        str, typer.Argument(metavar="[HOST:PORT]", help="A loopback address.")
    ] = DEFAULT_ADDRESS,
    ui: Annotated[
        bool,
        typer.Option("--ui", help="Also serve the page for people, at /ui, for every workspace."),
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Also serve metrics for Prometheus, at /metrics.")
    ] = False,
) -> None:
    """Start `serve --http` now and whenever you sign in, as a service of systemd or launchd.

    The service uses your own configuration, not that of a project. Clients send a token, which is
    in the system's keyring or, if there is none, in a file that only you can read. Servers then
    start once for all clients. A server that keeps state, such as a browser or a shell, shares this
    state with all clients.
    """
    from ideabridge.bridge.configuration import user_file
    from ideabridge.server.hosts.program import lasting_program
    from ideabridge.server.service import create_token, service_command, user_service

    host, port = read_host_and_port(address)
    if host not in _LOOPBACK or port == 0:
        raise UsageError(
            f"expected a loopback address with a port, such as {DEFAULT_ADDRESS}; found {address!r}"
        )

    own = user_file()
    if not own.is_file():
        raise UsageError(
            f"{own} does not exist, so the service would have no servers; run `ideabridge setup` "
            "or `ideabridge servers add` to create it"
        )

    service = user_service()
    program = lasting_program(shared=False)
    place = create_token()
    words = service_command(program.words, address, own, options.place, ui=ui, metrics=metrics)
    service.install(words, Path.home())
    say(f"The service is installed: {service.file}", "green")
    say(f"Its token is in {place}.")
    say(
        f"`ideabridge install HOST --http --write` connects a client to it. Any other client "
        f"connects to {service.url} with the header"
    )
    say("  Authorization: Bearer TOKEN")
    say("where TOKEN is what `ideabridge service token` prints. Keep it out of project files.")
    if program.note:
        say(program.note, "yellow")


@app.command("status")
@command("json")
def show_service(options: Options) -> int:
    """Show whether the service is installed, and whether it is running."""
    from ideabridge.server.service import user_service

    service = user_service()
    state = service.state()
    if options.json:
        url = None if state == "not installed" else service.url
        print_json(
            {"manager": service.manager, "file": str(service.file), "state": state, "url": url}
        )
    else:
        say(f"The service is {state}", "green" if state == "running" else "yellow")
        if state != "not installed":
            say(f"address: {service.url}")
        say(f"file: {service.file}", "dim")
        say(f"log: {service.log_command}", "dim")

    return ExitCode.DONE if state == "running" else ExitCode.FAILED


@app.command("stop")
@command()
def stop_service(options: Options) -> None:
    """Stop the service until you sign in again. `service install` starts it immediately."""
    _installed().stop()
    say("The service is stopped", "green")


@app.command("uninstall")
@command()
def uninstall_service(options: Options) -> int:
    """Stop the service, and remove its file, its token and the names of its workspaces."""
    from ideabridge.server.service import forget_token, user_service
    from ideabridge.server.workspaces import forget_workspace, registered_workspaces

    service = user_service()
    was_installed = service.uninstall()
    forget_token()
    for name in registered_workspaces():
        forget_workspace(name)

    if not was_installed:
        report("the service is not installed")
        return ExitCode.FAILED

    say(f"The service is removed: {service.file}", "green")
    return ExitCode.DONE


@app.command("workspaces")
@command("json")
def list_workspaces(options: Options) -> None:
    """List the projects that clients reach at their own addresses. `install HOST --http --scope
    local` and `--scope project` register the folder in which they run.
    """
    from ideabridge.server.workspaces import registered_workspaces

    workspaces = registered_workspaces()
    address = "/mcp/w/"
    options.print_rows(
        {"workspaces": {name: str(folder) for name, folder in workspaces.items()}},
        ("name", "address", "folder"),
        [(name, f"{address}{name}", str(folder)) for name, folder in workspaces.items()],
        empty="no project is registered",
    )


@app.command("forget")
@command()
def forget_registered(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a workspace.")],
) -> None:
    """Remove a project from the workspaces of the service. The project's sessions end at their next
    request.
    """
    from ideabridge.server.workspaces import forget_workspace

    forget_workspace(name)
    say(f"Workspace {name} is removed", "green")


@app.command("token")
@command()
def print_service_token(options: Options) -> None:
    """Print the token that clients of the service send."""
    from ideabridge.server.service import service_token

    show_line(service_token())


def _installed() -> UserService:
    from ideabridge.server.service import user_service

    service = user_service()
    if service.state() == "not installed":
        raise UsageError("the service is not installed; run `ideabridge service install`")
    return service
