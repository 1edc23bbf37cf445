"""Copy or move a host's MCP servers into `ideabridge.json`.

`servers import` and the page use this module. `plan_import` reads the host's files and plans the
steps; the plan's methods carry them out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ideabridge.bridge.configuration import is_user_file, user_file
from ideabridge.bridge.trust import FILE_NAME, may_be_trusted, repository_of, trust_file
from ideabridge.server.hosts.adopt import (
    Adoption,
    Destination,
    Destinations,
    find_servers,
    merge_servers,
    movable,
    removals,
    store_secrets,
)
from ideabridge.server.hosts.editing.host_text import EditedFile, HostText, read_host_text
from ideabridge.server.hosts.editing.undo import record_edit
from ideabridge.server.hosts.editing.writing import check_place
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import Host


@dataclass(frozen=True, slots=True)
class ServerImport:
    """The steps of an import.

    Attributes:
        host: the host whose servers are imported.
        places: the folders and variables that locate the host's files.
        files: the host's files that exist.
        problems: the errors in the host's files, each with the file's path.
        adoptions: the adoption of each of the host's servers.
        receiving: the configurations that receive servers.
        trusted: the project's files that receive servers and are trusted afterwards.
        moving: the servers that are removed from the host.
        staying: with `--move`, a line for each server that remains in the host.
        changes: the host's files that servers are removed from, each with its new text.
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
    def has_failed(self) -> bool:
        """True if no server is adopted, and there are servers that cannot be adopted or problems
        with the host's files.
        """
        adopted = any(adoption.adopted for adoption in self.adoptions)
        unusable = any(adoption.verdict in ("unusable", "taken") for adoption in self.adoptions)
        return (unusable or bool(self.problems)) and not adopted

    def received_by(self, target: Destination) -> list[Adoption]:
        """Return the servers that are added to the given configuration."""
        return _received(self.adoptions, target)

    def check_files(self) -> None:
        """Raise any errors in the files before anything is written."""
        for target in self.receiving:
            check_place(target.file, self._project_of(target))
            merge_servers(target, self.adoptions)

        for text in self.changes:
            check_place(text.path, self._project_around(text))

    def store_secrets(self) -> list[str]:
        """Store the secrets of the servers that are written. Return a phrase for each secret that
        tells users where it is stored.
        """
        return [
            place
            for target in self.receiving
            for adoption in self.received_by(target)
            for place in store_secrets(adoption)
        ]

    def write(self) -> list[EditedFile]:
        """Write the configurations that receive servers, and trust those in `trusted`."""
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
        """Record the files that were written, so that the import can be undone."""
        if files:
            record_edit(undone_as(self.host), self.places.project, files, self.trusted)

    def _project_of(self, target: Destination) -> Path | None:
        return None if target.is_own else self.places.project

    def _project_around(self, text: HostText) -> Path | None:
        """Return the project folder if the given file of a host belongs to the project, and None
        otherwise.
        """
        belongs = any(
            adoption.file == text.path and adoption.scope == "project" for adoption in self.moving
        )
        return self.places.project if belongs else None


def undone_as(host: Host) -> str:
    """Return the name of an import's command in the records of edits."""
    return f"servers import {host.name}"


def destinations(config: Path | None, *, is_shared: bool, project: Path) -> Destinations:
    """Return the configurations that receive servers.

    Args:
        config: the absolute path of the file that receives all servers, or None for the user's and
            the project's configurations.
        is_shared: whether `config` can be part of a repository.
        project: the project folder.

    Raises:
        HostFileError: a file cannot be read.
    """

    def target(file: Path, *, is_own: bool, is_shared: bool) -> Destination:
        in_repository = repository_of(Path(os.path.realpath(file)).parent) is not None
        return Destination(read_host_text(file), is_own, is_shared or in_repository)

    if config is not None:
        configured = target(config, is_own=is_user_file(config), is_shared=is_shared)
        return Destinations(configured, configured)

    own = target(user_file(), is_own=True, is_shared=False)
    project_file = project / FILE_NAME
    if is_user_file(project_file):
        return Destinations(own, own)
    return Destinations(own, target(project_file, is_own=False, is_shared=True))


def plan_import(
    host: Host,
    targets: Destinations,
    *,
    project: Path,
    names: Sequence[str] = (),
    replaces: bool = False,
    move: bool = False,
) -> ServerImport:
    """Read the files of the host, and plan the import. This function does not write anything.

    Args:
        host: the host.
        targets: the configurations that receive servers.
        project: the project folder.
        names: the servers that the user named. If empty, all are imported.
        replaces: whether to replace servers with the same name.
        move: whether to remove the servers from the host.

    Raises:
        HostFileError: the host has no server with one of these names.
    """
    places = HostEnvironment(project=project)
    findings = find_servers(host, places, targets, replaces=replaces, only=names)
    adoptions = [
        adoption if adoption.name in names else _left_to_project(adoption)
        for adoption in findings.adoptions
    ]
    receiving = [target for target in targets.all if _received(adoptions, target)]
    # Servers that came with a cloned repository must not become trusted merely because they are
    # copied.
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

    return ServerImport(
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


def _left_to_project(adoption: Adoption) -> Adoption:
    """Do not adopt a server from the project's file into the user's configuration, unless the user
    named it.
    """
    if adoption.adopted and adoption.target.is_own and adoption.scope == "project":
        reason = "it belongs to the project; name it to import it into your own configuration"
        return dataclasses.replace(adoption, verdict="unusable", why=reason)
    return adoption
