"""`ideabridge servers import`: copies or moves the MCP servers of a host into `ideabridge.json`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
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
    from ideabridge.server.hosts.adopt import Adoption, Destination, Destinations
    from ideabridge.server.hosts.editing.host_text import EditedFile, HostText
    from ideabridge.server.hosts.host import HostEnvironment
    from ideabridge.server.hosts.table import Host


@app.command("import")
@command("config", "project", "undo", "json")
def import_servers(
    options: Options,
    host: HostArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these servers.")
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

    Your own servers go into your own configuration, and those of the project into the project's.
    Their secrets are stored in the keyring, or in a file that only you can read, and the entries
    name them. A server with what only may be a secret is not written to a file that a repository
    may contain. Without --write or
    --move, nothing is changed. Without --replace, servers of the same name stay. ideabridge itself
    is never imported. --undo takes back the last import from the client in this project.
    """
    if options.undo:
        return _undo(options, host)

    steps = _plan_import(options, host, names or [], replaces=replace, move=move)
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
        return steps.code

    _say_result(steps, written, removed, was_asked=asks, move=move)
    for place in dict.fromkeys(stored_in):
        count = stored_in.count(place)
        verb = "secret is" if count == 1 else "secrets are"
        say(f"{count} {verb} stored in {place}; `ideabridge secrets list` lists them", "green")
    return steps.code


@dataclass(frozen=True, slots=True)
class _Import:
    """The steps of an import.

    Attributes:
        host: the host whose servers are imported.
        places: the folders and variables that locate the files of the host.
        files: the host's files that exist.
        problems: what is wrong with files of the host, each with its path.
        adoptions: what happens to each server of the host.
        receiving: the configurations that receive servers.
        trusted: the project's files that receive servers and are trusted afterwards.
        moving: the servers that are removed from the host.
        staying: with `--move`, a line for each server that stays in the host.
        changes: the files of the host from which servers are removed, each with its new text.
    """

    host: Host
    places: HostEnvironment
    files: list[Path]
    problems: list[str]
    adoptions: list[Adoption]
    receiving: list[Destination]
    trusted: list[Path]
    moving: list[Adoption]
    staying: list[str]
    changes: list[HostText]

    @property
    def code(self) -> ExitCode:
        """`FAILED` if no server is adopted and at least one, or a file, cannot be; otherwise
        `DONE`.
        """
        adopted = any(adoption.adopted for adoption in self.adoptions)
        unusable = any(adoption.verdict in ("unusable", "taken") for adoption in self.adoptions)
        is_failure = (unusable or bool(self.problems)) and not adopted
        return ExitCode.FAILED if is_failure else ExitCode.DONE

    def received_by(self, target: Destination) -> list[Adoption]:
        """Return the servers that are written to a configuration."""
        return _received(self.adoptions, target)

    def check_files(self) -> None:
        """Find the errors in the files before anything is written."""
        from ideabridge.server.hosts.adopt import merge_servers
        from ideabridge.server.hosts.editing.writing import check_place

        for target in self.receiving:
            check_place(target.file, self._project_of(target))
            merge_servers(target, self.adoptions)

        for text in self.changes:
            check_place(text.path, self._project_around(text))

    def store_secrets(self) -> list[str]:
        """Store the secrets of the servers that are written. Return the place of each."""
        from ideabridge.server.hosts.adopt import store_secrets

        return [
            place
            for target in self.receiving
            for adoption in self.received_by(target)
            for place in store_secrets(adoption)
        ]

    def write(self) -> list[EditedFile]:
        """Write the configurations that receive servers, and trust those in `trusted`."""
        from ideabridge.bridge.trust import trust_file
        from ideabridge.server.hosts.adopt import merge_servers

        written = [
            merge_servers(target, self.adoptions).edit(
                private=target.is_own, project=self._project_of(target)
            )
            for target in self.receiving
        ]
        for file in self.trusted:
            trust_file(file)

        return written

    def remove(self) -> list[EditedFile]:
        """Remove the moved servers from the host's files."""
        return [text.edit(project=self._project_around(text)) for text in self.changes]

    def record(self, files: list[EditedFile]) -> None:
        """Note what was written, so that it can be undone."""
        from ideabridge.server.hosts.editing.undo import record_edit

        if files:
            record_edit(_undone_as(self.host), self.places.project, files, self.trusted)

    def _project_of(self, target: Destination) -> Path | None:
        return None if target.is_own else self.places.project

    def _project_around(self, text: HostText) -> Path | None:
        """Return the project folder if a file of the host belongs to the project."""
        belongs = any(
            adoption.file == text.path and adoption.scope == "project" for adoption in self.moving
        )
        return self.places.project if belongs else None


def _undone_as(host: Host) -> str:
    """Return the command under which an import is noted."""
    return f"servers import {host.name}"


def _undo(options: Options, host_name: str) -> int:
    """Take back the last import from a host in this project, and say what became of the files.

    Raises:
        UsageError: there is no such import.
        HostFileError: a file cannot be written.
    """
    from ideabridge.bridge.trust import may_be_trusted, trust_file
    from ideabridge.server.hosts.editing.undo import recorded_edits, undo_edit
    from ideabridge.server.hosts.table import find_host

    host = find_host(host_name)
    project = options.folder()
    edits = [edit for edit in recorded_edits(_undone_as(host)) if edit.project == project]
    if not edits:
        raise UsageError(f"there is no `ideabridge {_undone_as(host)}` in {project} to undo")

    # A file that the import has trusted stays trusted, unless someone has changed it since.
    trusted = [file for file in edits[0].trusted if may_be_trusted(file)]
    undone = undo_edit(edits[0])
    for file in trusted:
        if file.exists():
            trust_file(file)

    print_undone(options, host, undone)
    return ExitCode.DONE


def _plan_import(
    options: Options, host_name: str, names: Sequence[str], *, replaces: bool, move: bool
) -> _Import:
    """Read the files of the host and the configurations, and plan the import. `names` are the
    servers that the person named.
    """
    from ideabridge.bridge.trust import may_be_trusted
    from ideabridge.server.hosts.adopt import find_servers, movable, removals
    from ideabridge.server.hosts.host import HostEnvironment
    from ideabridge.server.hosts.table import find_host

    targets = _targets(options)
    host = find_host(
        host_name,
        otherwise=(
            "To take over servers of any other client, copy the object that maps their names to "
            f"their commands into 'mcpServers' of {targets.user.file}"
        ),
    )
    places = HostEnvironment(project=options.folder())
    findings = find_servers(host, places, targets, replaces=replaces, only=names)
    adoptions = [
        adoption if adoption.name in names else _left_to_project(adoption)
        for adoption in findings.adoptions
    ]
    receiving = [target for target in targets.all if _received(adoptions, target)]
    # Servers that came with a cloned repository must not become trusted just by being copied.
    trusted = [
        target.file
        for target in receiving
        if not target.is_own
        and may_be_trusted(target.file)
        and all(adoption.scope != "project" for adoption in _received(adoptions, target))
    ]
    moving: list[Adoption] = []
    staying: list[str] = []
    if move:
        moving, staying = movable(adoptions, names, findings.damaged)

    changes, refused = removals(moving)
    for adoption in moving:
        if adoption.file in refused:
            staying.append(f"{adoption.shown_name}: stays: {refused[adoption.file]}")

    return _Import(
        host=host,
        places=places,
        files=findings.files,
        problems=findings.problems,
        adoptions=adoptions,
        receiving=receiving,
        trusted=trusted,
        moving=[adoption for adoption in moving if adoption.file not in refused],
        staying=staying,
        changes=changes,
    )


def _received(adoptions: Sequence[Adoption], target: Destination) -> list[Adoption]:
    return [adoption for adoption in adoptions if adoption.adopted and adoption.target is target]


def _targets(options: Options) -> Destinations:
    """Return the configurations that receive servers: the one that --config names, or the user's
    and the project's.
    """
    from ideabridge.bridge.configuration import is_user_file, user_file
    from ideabridge.bridge.trust import FILE_NAME, repository_of
    from ideabridge.server.hosts.adopt import Destination, Destinations
    from ideabridge.server.hosts.editing.host_text import read_host_text

    def target(file: Path, *, is_own: bool, is_shared: bool) -> Destination:
        in_repository = repository_of(Path(os.path.realpath(file)).parent) is not None
        return Destination(read_host_text(file), is_own, is_shared or in_repository)

    if options.config is not None:
        file = options.config.expanduser().absolute()
        is_shared = options.project_file() is not None
        configured = target(file, is_own=is_user_file(file), is_shared=is_shared)
        return Destinations(configured, configured)

    own = target(user_file(), is_own=True, is_shared=False)
    project = options.folder() / FILE_NAME
    if is_user_file(project):
        return Destinations(own, own)
    return Destinations(own, target(project, is_own=False, is_shared=True))


def _left_to_project(adoption: Adoption) -> Adoption:
    """Leave a server from the project's file out of the user's configuration, unless the person
    named it.
    """
    if adoption.adopted and adoption.target.is_own and adoption.scope == "project":
        reason = "it belongs to the project; name it to import it into your own configuration"
        return dataclasses.replace(adoption, verdict="unusable", why=reason)
    return adoption


def _confirmed(steps: _Import, *, at_terminal: bool) -> bool:
    """Ask the person whether to move these servers, each with its old and new place.

    Raises:
        UsageError: there is nobody at a terminal to ask.
    """
    if not at_terminal:
        files = " and ".join(str(text.path) for text in steps.changes)
        raise UsageError(f"--move changes {files}: add --yes")

    _print_adoptions(steps.adoptions, reasons=False)
    for line in steps.staying:
        say(line, "yellow")

    say("These are moved:")
    for adoption in steps.moving:
        say(
            f"  {adoption.shown_name}: from {adoption.file} ({adoption.scope}) "
            f"to {adoption.target.file}"
        )

    count = len(steps.moving)
    return confirm("Move it?" if count == 1 else f"Move these {count}?")


def _import_json(steps: _Import, written: list[EditedFile]) -> JSONObject:
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


def _move_json(steps: _Import, removed: list[EditedFile]) -> JSONObject:
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
    steps: _Import,
    written: list[EditedFile],
    removed: list[EditedFile],
    *,
    was_asked: bool,
    move: bool,
) -> None:
    """Report what was found and what was done. A person who was asked has seen the servers."""
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
        say(f"`ideabridge {_undone_as(steps.host)} --undo` undoes this", "dim")


def _say_nothing_found(steps: _Import) -> None:
    title = steps.host.title
    if steps.files:
        say(f"{title} has no servers in {', '.join(map(str, steps.files))}")
        return

    candidates = dict.fromkeys(str(file.path) for file in steps.host.files(steps.places))
    say(f"{title} has no configuration here; looked for {', '.join(candidates)}")


def _say_unwritten(steps: _Import) -> None:
    """Report what `--write` and `--move` would change."""
    counts = [f"{len(steps.received_by(target))} to {target.file}" for target in steps.receiving]
    say(f"Nothing has changed yet. --write copies {' and '.join(counts)};")
    say("--move also removes what it copies from the host's file.")


def _say_written(steps: _Import, edits: list[EditedFile]) -> None:
    """Report each configuration that was written, or would be written, and how to trust it."""
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


def _say_removed(steps: _Import, edits: list[EditedFile]) -> None:
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
    """Print what happens to each server. With `reasons`, also say why a server is not imported."""
    if not adoptions:
        return

    rows: list[tuple[str, ...]] = []
    for adoption in adoptions:
        target = ""
        if adoption.adopted or adoption.verdict == "same":
            target = _near(adoption.target.file)

        source = f"{_near(adoption.file)} ({adoption.scope})"
        rows.append((adoption.shown_name, adoption.verdict, source, target, _started(adoption)))

    print_table(("server", "verdict", "from", "to", "what it starts"), rows)
    for adoption in adoptions:
        if adoption.why and reasons:
            say(f"{adoption.shown_name}: not imported: {adoption.why}", "yellow")
        if adoption.adopted:
            for note in adoption.all_notes:
                say(f"{adoption.shown_name}: {note}", "dim")


def _started(adoption: Adoption) -> str:
    """Return a server's command line or address."""
    from ideabridge.bridge.masking import shown_definition

    entry = shown_definition(adoption.entry)
    words: list[JSON] = [entry.get("command") or entry.get("url") or ""]
    arguments = entry.get("args")
    if isinstance(arguments, list):
        words += arguments

    return " ".join(map(str, words))
