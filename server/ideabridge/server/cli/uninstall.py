"""The command `ideabridge uninstall`, which removes ideabridge from a host's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ideabridge.server.cli.console import ExitCode, print_json, report, say
from ideabridge.server.cli.install import (
    HostArgument,
    ScopeOption,
    checked_project,
    undo_last,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSON

if TYPE_CHECKING:
    from ideabridge.server.hosts.editing.host_text import EditedFile
    from ideabridge.server.hosts.host import HostEnvironment, HostFile
    from ideabridge.server.hosts.table import Host


@command("project", "undo", "json")
def uninstall(
    options: Options,
    host: HostArgument,
    scope: ScopeOption = None,
) -> int:
    """Remove ideabridge's entry from a client's files.

    Everything else in the files keeps its bytes, and a backup is kept. Without --scope, the entry
    is removed from every file of the client that concerns this project.
    """
    from ideabridge.server.hosts.host import HostEnvironment, HostFileError
    from ideabridge.server.hosts.table import find_host

    chosen = find_host(host)
    environment = HostEnvironment(project=options.folder())
    if options.undo:
        return undo_last(options, f"uninstall {chosen.name}", chosen, environment, scope)

    files = [file for file in chosen.files(environment) if scope in (None, file.scope)]
    removed: list[EditedFile] = []
    problems: list[str] = []
    for file in files:
        try:
            edit = _removed(chosen, file, environment)
        except HostFileError as error:
            problems.append(str(error))
            continue
        if edit is not None:
            removed.append(edit)

    if removed:
        from ideabridge.server.hosts.editing.undo import record_edit

        record_edit(f"uninstall {chosen.name}", environment.project, removed)

    _print_removed(options, chosen, files, removed, problems)
    return ExitCode.FAILED if problems else ExitCode.DONE


def _removed(host: Host, file: HostFile, environment: HostEnvironment) -> EditedFile | None:
    """Remove the entry from the given file, if the file has one.

    Raises:
        HostFileError: the file cannot be read or written, or the entry starts another program.
    """
    from ideabridge.server.hosts.editing.host_text import read_host_text
    from ideabridge.server.hosts.editing.undo import recorded_edits, remove_entry
    from ideabridge.server.hosts.host import SERVER_NAME, HostFileError

    text = read_host_text(file.path, file.format)
    entry = text.entries(file.keys).get(SERVER_NAME)
    if entry is None:
        return None
    if not _is_ours(entry):
        raise HostFileError(
            f"{file.path}: the entry {SERVER_NAME!r} starts another program; remove it by hand"
        )

    installs = [
        edited
        for edit in recorded_edits(f"install {host.name}")
        for edited in edit.files
        if edited.path == file.path and any(entry.keys == file.keys for entry in edited.entries)
    ]
    return remove_entry(
        file.path,
        file.format,
        file.keys,
        SERVER_NAME,
        added=installs[0] if installs else None,
        project=checked_project(file, environment),
    )


def _is_ours(entry: JSON) -> bool:
    """Return whether an entry starts ideabridge, or connects to one of its servers."""
    from ideabridge.server.hosts.translate import is_ourselves, started_words

    if not isinstance(entry, dict):
        return False
    return not started_words(entry) or is_ourselves(entry)


def _print_removed(
    options: Options,
    host: Host,
    files: list[HostFile],
    removed: list[EditedFile],
    problems: list[str],
) -> None:
    if options.json:
        print_json(
            {
                "host": host.name,
                "removed": [
                    {"file": str(edit.path), "backup": str(edit.backup)} for edit in removed
                ],
                "errors": list[JSON](problems),
            }
        )
        return

    for edit in removed:
        say(f"{host.title}: ideabridge is removed from {edit.path}", "green")
        say(f"  backup: {edit.backup}", "dim")

    for problem in problems:
        report(problem)

    if removed:
        say(
            f"Restart {host.title} or reload its MCP servers. `ideabridge uninstall {host.name} "
            "--undo` undoes this."
        )
    elif not problems:
        paths = ", ".join(dict.fromkeys(str(file.path) for file in files))
        say(f"{host.title} has no entry 'ideabridge'; looked in {paths}")
