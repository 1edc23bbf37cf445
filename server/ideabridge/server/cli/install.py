"""The command `ideabridge install`, which adds ideabridge to a host's configuration."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    print_json,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from pathlib import Path

    from ideabridge.server.hosts.editing.undo import UndoneFile
    from ideabridge.server.hosts.host import HostEnvironment, HostFile, Scope
    from ideabridge.server.hosts.table import AddressShape, Host

SERVICE_VARIABLE: Final = "IDEABRIDGE_SERVICE_TOKEN"
"""The variable from which clients read the token of the service if their entry is in a project's
file.
"""

HostArgument = Annotated[
    str, typer.Argument(metavar="HOST", help="A client, such as claude-code or cursor.")
]

ScopeOption = Annotated[
    Literal["local", "project", "user"] | None,
    typer.Option(
        "--scope",
        "-s",
        metavar="SCOPE",
        help="project: this project's file, which a team may share. local: this project, only for "
        "you. user: everywhere you work.",
    ),
]


@command("config", "project", "store", "undo", "json")
def install(
    options: Options,
    host: HostArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write it to the client's file, and keep a backup.")
    ] = False,
    scope: ScopeOption = None,
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help="Connect the client to your service (`ideabridge service`). Default scope: user.",
        ),
    ] = False,
) -> int:
    """Print the entry that makes a client start ideabridge, or write it to the client's file.

    Everything else in the file keeps its bytes: comments, order, numbers, line breaks. Without
    --scope, the entry goes into the project's file, or into your own file if the client has no file
    for projects. In a file that a team might share, the entry names no path on this machine.

    With --http and --scope user, the client uses your own configuration. With another scope, it
    also uses the project's ideabridge.json, tool files and store: the project is registered with
    the service. A file in the project never holds the token.
    """
    from ideabridge.server.hosts.block import block_for_others
    from ideabridge.server.hosts.host import SERVER_NAME, HostEnvironment
    from ideabridge.server.hosts.program import lasting_program
    from ideabridge.server.hosts.table import EntryShape, find_host

    own_words = [*lasting_program(shared=False).words, "serve", *serve_arguments(options, "local")]
    others = block_for_others(SERVER_NAME, EntryShape().entry(own_words))
    chosen = find_host(host, otherwise=others)
    environment = HostEnvironment(project=options.folder())
    if options.undo:
        return undo_last(options, f"install {chosen.name}", chosen, environment, scope)

    if http:
        scope = scope or "user"
    file = chosen.target(environment, scope or _default_scope(chosen))
    if http:
        prepared = _service_entry(chosen, file, environment)
    else:
        program = lasting_program(shared=file.scope == "project")
        words = [*program.words, "serve", *serve_arguments(options, file.scope, chosen.folder)]
        prepared = _Entry(chosen.entry(words), program.note, words)
    return _install(options, chosen, environment, file, prepared, write=write)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry to write to a host's file.

    Attributes:
        content: the entry.
        note: what the user must do before the entry works, or "" if it already works.
        words: the command that the entry starts; empty if the entry connects to the service.
    """

    content: JSONObject
    note: str = ""
    words: list[str] = field(default_factory=list[str])


def _service_entry(host: Host, file: HostFile, environment: HostEnvironment) -> _Entry:
    """Return the entry that connects a host to the user's service.

    An entry for a project leads to the workspace of the project's folder, which this function
    registers.

    Raises:
        UsageError: ideabridge does not know the host's format for such an entry.
        ServiceError: the service is not installed.
        WorkspaceError: the folder cannot be registered.
    """
    from ideabridge.server.service import service_token, user_service

    url = user_service().url
    if host.address is None:
        raise UsageError(
            f"ideabridge does not know how {host.title} connects to an address with headers: give "
            f"it {url} and the header Authorization, with the token of `ideabridge service token`"
        )
    if file.scope == "user":
        return _Entry(host.address.entry(url, service_token()))

    is_in_project = file.path.resolve().is_relative_to(environment.project.resolve())
    if is_in_project and host.address.entry_with_variable(url, SERVICE_VARIABLE) is None:
        raise UsageError(
            f"{file.path}: a project file must not contain the token, and ideabridge does not "
            f"know how {host.title} reads a header from an environment variable: use --scope user"
        )
    return _workspace_entry(host.address, environment.project, has_token=not is_in_project)


def _workspace_entry(address: AddressShape, project: Path, *, has_token: bool) -> _Entry:
    """Register a project with the service, and return the entry that leads to its workspace."""
    from ideabridge.bridge.trust import FILE_NAME, is_trusted, trust_command
    from ideabridge.server.service import service_token, user_service
    from ideabridge.server.workspaces import register_workspace

    name = register_workspace(project)
    url = f"{user_service().url}/w/{name}"
    notes = [f"This folder is workspace {name!r} of the service."]
    file = project / FILE_NAME
    if file.is_file() and not is_trusted(file):
        notes.append(f"Its {FILE_NAME} is not used before you trust it: `{trust_command(file)}`")

    entry = None if has_token else address.entry_with_variable(url, SERVICE_VARIABLE)
    if entry is None:
        return _Entry(address.entry(url, service_token()), " ".join(notes))

    notes.append(
        f"The client reads the token from the variable {SERVICE_VARIABLE}: start it with "
        f'`export {SERVICE_VARIABLE}="$(ideabridge service token)"`.'
    )
    return _Entry(entry, " ".join(notes))


def _default_scope(host: Host) -> Scope:
    scopes = host.scopes()
    return "project" if "project" in scopes else scopes[0]


def _install(
    options: Options,
    host: Host,
    environment: HostEnvironment,
    file: HostFile,
    prepared: _Entry,
    *,
    write: bool,
) -> int:
    from ideabridge.server.hosts.block import paste_block, texts_with_entry
    from ideabridge.server.hosts.editing.undo import record_edit
    from ideabridge.server.hosts.host import SERVER_NAME, HostFileError

    entry = prepared.content
    result: JSONObject = {
        "host": host.name,
        "file": str(file.path),
        "scope": file.scope,
        "entry": entry,
        "written": False,
    }
    if prepared.note:
        result["note"] = prepared.note

    try:
        before, after = texts_with_entry(file, entry)
        is_there = before.content == after.content
        if write and not is_there:
            edit = after.edit(project=checked_project(file, environment))
            record_edit(f"install {host.name}", environment.project, [edit])
            result |= {"written": True, "backup": str(edit.backup) if edit.backup else None}
    except HostFileError as error:
        if options.json:
            print_json({**result, "error": str(error)})
        else:
            report(f"{error}. Add this by hand:")
            show_line(paste_block(file, SERVER_NAME, entry))
        return ExitCode.FAILED

    if options.json:
        print_json(result)
        return ExitCode.DONE

    if is_there:
        say(f"{host.title}: {file.path} already lists ideabridge", "green")
    elif write:
        _say_written(host, file, result, replaces=SERVER_NAME in before.entries(file.keys))
    else:
        _show_entry(host, file, entry, prepared.words)

    if prepared.note:
        say(prepared.note, "yellow")
    return ExitCode.DONE


def _say_written(host: Host, file: HostFile, result: JSONObject, *, replaces: bool) -> None:
    say(f"{host.title}: written to {file.path}", "green")
    if replaces:
        say("  it replaces another entry 'ideabridge'")
    if result["backup"] is not None:
        say(f"  backup: {result['backup']}", "dim")

    say(
        f"Restart {host.title} or reload its MCP servers. `ideabridge servers import {host.name} "
        f"--move` moves its other servers behind ideabridge; `ideabridge install {host.name} "
        "--undo` undoes this."
    )


def _show_entry(host: Host, file: HostFile, entry: JSONObject, words: list[str]) -> None:
    from ideabridge.server.hosts.block import paste_block
    from ideabridge.server.hosts.host import SERVER_NAME

    say(f"{host.title} reads {file.path}; add this, or run again with --write:")
    show_line(paste_block(file, SERVER_NAME, entry))
    if words and (shell_command := host.shell_command(file.scope, words)):
        say("or run:")
        show_line(shlex.join(shell_command))


def serve_arguments(options: Options, scope: Scope, folder: str = ".") -> list[str]:
    """Return the options that make `serve` find the same configuration.

    Args:
        options: the options on the command line.
        scope: the scope of the file that the options are written to.
        folder: the notation for the project's folder in an entry of a project's file.
    """
    project = options.folder()
    words: list[str] = []
    if options.config is not None:
        config = options.config.expanduser().absolute()
        name = str(config)
        if scope == "project" and config.is_relative_to(project):
            name = f"{folder}/{config.relative_to(project).as_posix()}"
        words += ["--config", name]

    if scope == "project":
        words += ["--project", folder]
    elif scope == "local" or options.project is not None:
        words += ["--project", str(project)]
    if options.store is not None:
        words += ["--store", str(options.place)]

    return words


def checked_project(file: HostFile, environment: HostEnvironment) -> Path | None:
    """Return the project folder that symbolic links in the path of the host's file must not lead
    out of. Return None for the user's own files, whose paths can contain any links.
    """
    is_own = file.scope == "user" or environment.project == environment.home
    return None if is_own else environment.project


# -- undoing ---------------------------------------------------------------------------------------


def undo_last(
    options: Options,
    command_line: str,
    host: Host,
    environment: HostEnvironment,
    scope: Scope | None,
) -> int:
    """Undo a command's last edit to a host's files, and print the result for each file.

    Args:
        options: the options of the command.
        command_line: the command to undo, without options.
        host: the host.
        environment: the folders and variables that locate the host's files.
        scope: the scope that the files belong to; None for all.

    Raises:
        UsageError: the command has made no edit that can be undone.
        HostFileError: a file cannot be written to.
    """
    from ideabridge.server.hosts.editing.undo import recorded_edits, undo_edit

    paths = {file.path for file in host.files(environment) if scope in (None, file.scope)}
    for edit in recorded_edits(command_line):
        if any(file.path in paths for file in edit.files):
            undone = undo_edit(edit)
            print_undone(options, host, undone)
            return ExitCode.DONE

    raise UsageError(f"there is no `ideabridge {command_line}` here to undo")


def print_undone(options: Options, host: Host, files: Sequence[UndoneFile]) -> None:
    """Print the result of undoing an edit for each file."""
    if options.json:
        undone: list[JSON] = [
            {"file": str(file.path), "undone": file.how, "left": list[JSON](file.left)}
            for file in files
        ]
        print_json({"host": host.name, "undone": undone})
        return

    for file in files:
        match file.how:
            case "restored":
                say(f"{file.path} was restored byte for byte", "green")
            case "deleted":
                say(f"{file.path} was removed, because it did not exist before", "green")
            case "entries":
                say(
                    f"{file.path} has changed since then, so only the entries were removed",
                    "yellow",
                )
            case "nothing":
                say(f"there is nothing to undo in {file.path}", "yellow")

        for name in file.left:
            say(f"{file.path}: {name!r} stays, because another entry now has this name", "yellow")
