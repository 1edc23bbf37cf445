"""`ideabridge install HOST`: put ideabridge into a host's configuration."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ideabridge.server.cli.console import ExitCode, print_json, say, show
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSON, JSONObject

HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="claude-code, cursor or vscode.")]


@command("config", "project", "store", "json")
def install(
    options: Options,
    host: HostArgument,
    write: Annotated[bool, typer.Option("--write", help="Write it into the host's file; a backup is kept.")] = False,
    scope: Annotated[
        Literal["project", "user"],
        typer.Option(
            "--scope", metavar="project|user", help="project: this project's file. user: everywhere you work."
        ),
    ] = "project",
) -> int:
    """Print what a host needs to start ideabridge, or write it into the host's configuration.

    The host then starts this very program, by its absolute path. Everything else in the file stays.
    """
    from ideabridge.server.hosts.document import read_document
    from ideabridge.server.hosts.host import SERVER_NAME, CommentedHostFileError, HostEnvironment, find_host

    chosen = find_host(host)
    places = HostEnvironment(project=options.folder())
    file = chosen.target(places, scope)
    entry = chosen.entry([*executable(), "serve", *_arguments(options, scope)])
    document = read_document(file.path)
    before = file.servers(document.content).get(SERVER_NAME)
    content = file.with_server(document.content, SERVER_NAME, entry)
    result: JSONObject = {"host": chosen.name, "file": str(file.path), "scope": scope, "entry": entry, "written": False}
    refused: str | None = None
    if write and before != entry:
        try:
            backup = document.write(content)
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
            say(f"  it replaces another entry {SERVER_NAME!r}; the file as it was: {result['backup']}")
        say(
            f"Restart {chosen.title} or reload its MCP servers. `ideabridge modules import {chosen.name} --move` "
            "moves the servers it has already behind ideabridge."
        )
    else:
        if refused:
            say(f"ideabridge: {refused}; put this in by hand:", "yellow")
        else:
            say(f"{chosen.title} reads {file.path}; put this in, or run again with --write:")
        show(json.dumps(_nested((*file.keys, SERVER_NAME), entry), indent=2, ensure_ascii=False))
        if chosen.command is not None and not refused:
            say("or run:")
            show(shlex.join(chosen.command(scope, entry)))
    return ExitCode.FAILED if refused else ExitCode.DONE


def _nested(keys: tuple[str, ...], value: JSON) -> JSON:
    for key in reversed(keys):
        value = {key: value}
    return value


def _arguments(options: Options, scope: str) -> list[str]:
    """What `serve` needs to find the same configuration wherever the host starts it."""
    words: list[str] = []
    if options.config is not None:
        words += ["--config", str(options.config.expanduser().absolute())]
    if scope == "project" or options.project is not None:
        words += ["--project", str(options.folder())]
    if options.store is not None:
        words += ["--store", str(options.store.expanduser().absolute())]
    return words


def executable() -> list[str]:
    """The words that start this very ideabridge, by absolute path.

    Links are kept as they are: a tool installer's link goes on working after an upgrade.
    """
    names = ["ideabridge.exe", "ideabridge"] if sys.platform == "win32" else ["ideabridge"]
    started = Path(sys.argv[0])
    if started.name in names or started.stem == "ideabridge":
        found = shutil.which(str(started))
        if found:
            return [str(Path(found).absolute())]
    for name in names:
        beside = Path(sys.executable).parent / name
        if beside.is_file():
            return [str(beside.absolute())]
    # -P: a host starts this in a project's folder, whose files must not take the place of modules.
    return [sys.executable, "-P", "-m", "ideabridge.server"]
