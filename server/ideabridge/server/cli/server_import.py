"""The command `ideabridge servers import`, which copies or moves a host's MCP servers into
`ideabridge.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    confirm,
    print_json,
    print_table,
    say,
)
from ideabridge.server.cli.install import HostArgument, print_undone
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import app
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.server.hosts.adopt import Adoption
    from ideabridge.server.hosts.editing.host_text import EditedFile
    from ideabridge.server.hosts.importing import ServerImport


@app.command("import")
@command("config", "project", "undo", "json")
def import_servers(
    options: Options,
    host: HostArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Import only these servers.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Copy them into ideabridge.json, and keep a backup.")
    ] = False,
    move: Annotated[
        bool,
        typer.Option(
            "--move", help="Copy them, then remove them from the host's file, and keep a backup."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace servers with the same name.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --move: do not ask.")] = False,
) -> int:
    """Show the MCP servers of a host, or copy or move them into ideabridge.json.

    Your own servers go into your own configuration, and the project's servers into the project's.
    Their secrets are stored in the keyring, or in a file that only you can read, and the entries
    name them. A server with a value that only might be a secret is not written to a file that a
    repository can contain. Without --write or --move, nothing is changed. Without --replace,
    servers of the same name stay. ideabridge itself is never imported. --undo reverts the last
    import from the client in this project.
    """
    if options.undo:
        return _undo(options, host)

    steps = _plan(options, host, names or [], replaces=replace, move=move)
    if write or move:
        steps.check_files()

    asks = bool(steps.moving) and not yes
    if asks and not _confirmed(steps, at_terminal=at_terminal() and not options.json):
        say("nothing was changed", "yellow")
        return ExitCode.FAILED

    written: list[EditedFile] = []
    removed: list[EditedFile] = []
    stored_in: list[str] = []
    if write or move:
        stored_in = steps.store_secrets()
        written = steps.write()
        removed = steps.remove()
        steps.record([*written, *removed])

    if options.json:
        result = _import_json(steps, written)
        result["secrets_stored_in"] = list[JSON](dict.fromkeys(stored_in))
        if move:
            result |= _move_json(steps, removed)

        print_json(result)
        return _code(steps)

    _say_result(steps, written, removed, was_asked=asks, move=move)
    for place in dict.fromkeys(stored_in):
        count = stored_in.count(place)
        verb = "secret is" if count == 1 else "secrets are"
        say(f"{count} {verb} stored in {place}; `ideabridge secrets list` lists them", "green")
    return _code(steps)


def _plan(
    options: Options, host_name: str, names: Sequence[str], *, replaces: bool, move: bool
) -> ServerImport:
    """Read the host's files and the configurations, and plan the import."""
    from ideabridge.server.hosts.importing import destinations, plan_import
    from ideabridge.server.hosts.table import find_host

    config = None
    if options.config is not None:
        config = options.config.expanduser().absolute()

    is_shared = options.project_file() is not None
    targets = destinations(config, is_shared=is_shared, project=options.folder())
    host = find_host(
        host_name,
        otherwise=(
            "To take over servers of any other client, copy the object that maps their names to "
            f"their commands into 'mcpServers' of {targets.user.file}"
        ),
    )
    return plan_import(
        host, targets, project=options.folder(), names=names, replaces=replaces, move=move
    )


def _code(steps: ServerImport) -> ExitCode:
    return ExitCode.FAILED if steps.has_failed else ExitCode.DONE


def _undo(options: Options, host_name: str) -> int:
    """Undo the last import from a host in this project, and report the changes to the files.

    Raises:
        UsageError: no import from this host can be undone.
        HostFileError: a file cannot be written.
    """
    from ideabridge.bridge.trust import may_be_trusted, trust_file
    from ideabridge.server.hosts.editing.undo import recorded_edits, undo_edit
    from ideabridge.server.hosts.importing import undone_as
    from ideabridge.server.hosts.table import find_host

    host = find_host(host_name)
    project = options.folder()
    edits = [edit for edit in recorded_edits(undone_as(host)) if edit.project == project]
    if not edits:
        raise UsageError(f"there is no `ideabridge {undone_as(host)}` in {project} to undo")

    # The import trusted the files that it wrote. Trust them again, unless someone has changed them
    # since.
    trusted = [file for file in edits[0].trusted if may_be_trusted(file)]
    undone = undo_edit(edits[0])
    for file in trusted:
        if file.exists():
            trust_file(file)

    print_undone(options, host, undone)
    return ExitCode.DONE


def _confirmed(steps: ServerImport, *, at_terminal: bool) -> bool:
    """Ask the person whether to move these servers, showing the old and new location of each.

    Raises:
        UsageError: there is no terminal, so nobody can be asked.
    """
    if not at_terminal:
        files = " and ".join(str(text.path) for text in steps.changes)
        raise UsageError(f"--move changes {files}: add --yes")

    _print_adoptions(steps.adoptions, reasons=False)
    for line in steps.staying:
        say(line, "yellow")

    say("These servers will be moved:")
    for adoption in steps.moving:
        say(
            f"  {adoption.shown_name}: from {adoption.file} ({adoption.scope}) "
            f"to {adoption.target.file}"
        )

    count = len(steps.moving)
    return confirm("Move it?" if count == 1 else f"Move these {count}?")


def _import_json(steps: ServerImport, written: list[EditedFile]) -> JSONObject:
    return {
        "host": steps.host.name,
        "files": [str(file) for file in steps.files],
        "problems": list[JSON](steps.problems),
        "servers": [_adoption_json(adoption) for adoption in steps.adoptions],
        "written": bool(written),
        "configurations": [
            {"file": str(edit.path), "backup": None if edit.backup is None else str(edit.backup)}
            for edit in written
        ],
    }


def _move_json(steps: ServerImport, removed: list[EditedFile]) -> JSONObject:
    moved: list[JSON] = [
        {
            "name": adoption.name,
            "from": str(adoption.file),
            "scope": adoption.scope,
            "to": str(adoption.target.file),
        }
        for adoption in steps.moving
    ]
    return {
        "moved": moved,
        "moved_backups": [{"file": str(edit.path), "backup": str(edit.backup)} for edit in removed],
        "stays": list[JSON](steps.staying),
    }


def _adoption_json(adoption: Adoption) -> JSONObject:
    from ideabridge.bridge.masking import shown_definition

    entry: JSONObject = {
        "name": adoption.name,
        "verdict": adoption.verdict,
        "from": str(adoption.file),
        "scope": adoption.scope,
        "to": str(adoption.target.file),
    }
    if adoption.why:
        entry["why"] = adoption.why

    entry["entry"] = shown_definition(adoption.entry)
    entry["secrets"] = [
        {"place": place.place, "name": place.name, "why": place.why} for place in adoption.secrets
    ]
    entry["notes"] = list[JSON](adoption.all_notes)
    return entry


def _say_result(
    steps: ServerImport,
    written: list[EditedFile],
    removed: list[EditedFile],
    *,
    was_asked: bool,
    move: bool,
) -> None:
    """Report what was found and what was done.

    If a person was asked, the servers are not listed again, because they were listed in the
    question.
    """
    from ideabridge.server.hosts.importing import undone_as

    for problem in steps.problems:
        say(f"{problem}; the readable part is below", "yellow")

    if not steps.files or not steps.adoptions:
        _say_nothing_found(steps)

    if not was_asked:
        _print_adoptions(steps.adoptions, reasons=not move)

    _say_written(steps, written)
    if not was_asked:
        for line in steps.staying:
            say(line, "yellow")

    _say_removed(steps, removed)
    if written:
        say(f"`ideabridge {undone_as(steps.host)} --undo` undoes this", "dim")


def _say_nothing_found(steps: ServerImport) -> None:
    title = steps.host.title
    if steps.files:
        say(f"{title} has no servers in {', '.join(map(str, steps.files))}")
        return

    candidates = dict.fromkeys(str(file.path) for file in steps.host.files(steps.places))
    say(f"{title} has no configuration here; looked for {', '.join(candidates)}")


def _say_unwritten(steps: ServerImport) -> None:
    """Report what `--write` and `--move` would change."""
    counts = [f"{len(steps.received_by(target))} to {target.file}" for target in steps.receiving]
    say(f"Nothing has changed yet. --write copies {' and '.join(counts)};")
    say("--move also removes what it copies from the host's file.")


def _say_written(steps: ServerImport, edits: list[EditedFile]) -> None:
    """Report each configuration that was or would be written, and how to trust it."""
    from ideabridge.bridge.trust import trust_command

    if not edits:
        if steps.receiving:
            _say_unwritten(steps)
        return

    for target, edit in zip(steps.receiving, edits, strict=True):
        file = target.file
        written = f"{len(steps.received_by(target))} written to {file}"
        if edit.backup is not None:
            written += f"; backup: {edit.backup}"

        say(f"{written}. `ideabridge servers list` connects to them", "green")
        if not target.is_own and file not in steps.trusted:
            say(
                f"{file} is not trusted; to review and trust it: {trust_command(file)}",
                "yellow",
            )


def _say_removed(steps: ServerImport, edits: list[EditedFile]) -> None:
    """Report what was removed from the host's files."""
    for edit in edits:
        names = [adoption.shown_name for adoption in steps.moving if adoption.file == edit.path]
        say(f"{', '.join(names)} removed from {edit.path}", "green")
        say(f"  backup: {edit.backup}", "dim")

    if edits:
        say(f"`ideabridge install {steps.host.name} --write` replaces them with ideabridge", "dim")


def _near(file: Path) -> str:
    """Return the path relative to the current folder or the home folder, if it is inside one of
    them.
    """
    for folder, start in ((Path.cwd(), ""), (Path.home(), "~/")):
        if file.is_relative_to(folder):
            return f"{start}{file.relative_to(folder)}"
    return str(file)


def _print_adoptions(adoptions: Sequence[Adoption], *, reasons: bool) -> None:
    """Print what happens to each server. With `reasons`, also print why servers are not
    imported.
    """
    if not adoptions:
        return

    from ideabridge.server.hosts.entries import started_by

    rows: list[tuple[str, ...]] = []
    for adoption in adoptions:
        target = ""
        if adoption.adopted or adoption.verdict == "same":
            target = _near(adoption.target.file)

        source = f"{_near(adoption.file)} ({adoption.scope})"
        starts = started_by(adoption.entry)
        rows.append((adoption.shown_name, adoption.verdict, source, target, starts))

    print_table(("server", "verdict", "from", "to", "what it starts"), rows)
    for adoption in adoptions:
        if adoption.why and reasons:
            say(f"{adoption.shown_name}: not imported: {adoption.why}", "yellow")
        if adoption.adopted:
            for note in adoption.all_notes:
                say(f"{adoption.shown_name}: {note}", "dim")
