"""`ideabridge install`: configures a host to start this program."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ideabridge.server.cli.console import ExitCode, print_json, say, show_line
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSONObject

if TYPE_CHECKING:
    from ideabridge.server.hosts.host import HostFile

HostArgument = Annotated[
    str, typer.Argument(metavar="HOST", help="A client, such as claude-code or cursor.")
]


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
    """Print the configuration that makes a host start ideabridge, or write it to the host's file.

    The host then starts this program by its absolute path. Everything else in the file stays.
    """
    from ideabridge.server.hosts.block import block_for_others
    from ideabridge.server.hosts.host import (
        SERVER_NAME,
        CommentedHostFileError,
        HostEnvironment,
        read_host_document,
    )
    from ideabridge.server.hosts.table import EntryShape, find_host

    words = [*executable(), "serve", *_arguments(options, scope)]
    chosen = find_host(host, otherwise=block_for_others(SERVER_NAME, EntryShape().entry(words)))
    places = HostEnvironment(project=options.folder())
    file = chosen.target(places, scope)
    entry = chosen.entry(words)
    document = read_host_document(file.path, file.format)
    before = file.servers(document.content).get(SERVER_NAME)
    content = file.with_server(document.content, SERVER_NAME, entry)
    result: JSONObject = {
        "host": chosen.name,
        "file": str(file.path),
        "scope": scope,
        "entry": entry,
        "written": False,
    }
    refusal: str | None = None
    if write and before != entry:
        is_shared = scope == "project"
        project = places.project if is_shared else None
        try:
            backup = document.write(content, shared=is_shared, project=project)
            result["written"] = True
            result["backup"] = str(backup) if backup else None
        except CommentedHostFileError as error:
            refusal = str(error)
            result["error"] = refusal

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
    elif refusal:
        say(f"ideabridge: {refusal}; add this by hand:", "yellow")
        _show_entry(file, entry)
    else:
        say(f"{chosen.title} reads {file.path}; add this, or run again with --write:")
        _show_entry(file, entry)
        if shell_command := chosen.shell_command(scope, words):
            say("or run:")
            show_line(shlex.join(shell_command))

    return ExitCode.FAILED if refusal else ExitCode.DONE


def _show_entry(file: HostFile, entry: JSONObject) -> None:
    """Print the entry of ideabridge, nested in the keys under which the file lists its servers."""
    from ideabridge.server.hosts.block import paste_block
    from ideabridge.server.hosts.host import SERVER_NAME

    show_line(paste_block(file, SERVER_NAME, entry))


def _arguments(options: Options, scope: str) -> list[str]:
    """Return the options that make `serve` find the same configuration from any folder."""
    words: list[str] = []
    if options.config is not None:
        words += ["--config", str(options.config.expanduser().absolute())]

    if scope == "project" or options.project is not None:
        words += ["--project", str(options.folder())]

    if options.store is not None:
        words += ["--store", str(options.place)]

    return words


def executable() -> list[str]:
    """Return the command that starts this ideabridge, as a list of words with an absolute path.

    Symbolic links are not resolved, because a link that a tool installer creates still works after
    an upgrade.
    """
    names = ["ideabridge"]
    if sys.platform == "win32":
        names = ["ideabridge.exe", "ideabridge"]

    started = Path(sys.argv[0])
    if started.name in names or started.stem == "ideabridge":
        command = shutil.which(str(started))
        if command:
            return [str(Path(command).absolute())]

    for name in names:
        beside = Path(sys.executable).parent / name
        if beside.is_file():
            return [str(beside.absolute())]

    # -P is needed because a host starts this in a project's folder, whose files must not replace
    # Python modules.
    return [sys.executable, "-P", "-m", "ideabridge.server"]
