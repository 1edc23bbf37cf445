"""List the hosts on this machine, their servers, and their entries for ideabridge, without changing
anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.trust import FILE_NAME, MAX_FILE_BYTES, may_be_trusted, trust_command
from ideabridge.server.hosts.adopt import Adoption, Destination, Destinations, find_servers
from ideabridge.server.hosts.editing.host_text import HostText, read_host_text, text_of_bytes
from ideabridge.server.hosts.editing.writing import check_place
from ideabridge.server.hosts.host import (
    HostEnvironment,
    HostFile,
    HostFileError,
)
from ideabridge.server.hosts.table import HOSTS, Host
from ideabridge.server.setup.extraction import KnownSecrets, known_secrets


@dataclass(frozen=True, slots=True)
class HostInventory:
    """A host, with its servers and its entry for ideabridge.

    Attributes:
        host: the host.
        is_here: whether the host is installed for this user. A file in the project's folder does
            not prove this, because other users of the project might have created it.
        servers: the servers of the host, each with its entry for `ideabridge.json`.
        own: where to put the entry that makes the host use ideabridge in every project.
        problems: the errors in the host's files, each with the file's path.
    """

    host: Host
    is_here: bool
    servers: tuple[Adoption, ...]
    own: HostFile
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts, and the text of each file that setup might write.

    Attributes:
        environment: the folders and variables that locate the files.
        targets: the configurations that receive servers.
        hosts: the hosts that are installed, or that have servers in the project's files.
        texts: the files that setup might write.
        unreadable: why files cannot be written, keyed by path.
        secrets: the stored secrets.
        project_problem: why the project's configuration cannot receive servers, or "" if it can.
    """

    environment: HostEnvironment
    targets: Destinations
    hosts: tuple[HostInventory, ...]
    texts: Mapping[Path, HostText]
    unreadable: Mapping[Path, str]
    secrets: KnownSecrets
    project_problem: str = ""


def take_inventory(environment: HostEnvironment) -> Inventory:
    """Read the files of all hosts. A file that cannot be read does not affect the others.

    Args:
        environment: the folders and variables that locate the files.

    Raises:
        HostFileError: one of ideabridge's configurations cannot be read.
        StoredSecretError: the list of stored secrets cannot be read.
    """
    targets = _targets(environment)
    hosts = [_host(host, environment, targets) for host in HOSTS]
    present = tuple(entry for entry in _without_absent(hosts) if entry.is_here or entry.servers)
    places = [
        *(entry.own for entry in present if entry.is_here),
        *(adoption.place for entry in present for adoption in entry.servers),
    ]
    texts = {target.file: target.text for target in targets.all}
    unreadable: dict[Path, str] = {}
    for place in places:
        if place.path in texts or place.path in unreadable:
            continue
        try:
            texts[place.path] = read_host_text(place.path, place.format)
        except HostFileError as error:
            unreadable[place.path] = str(error)

    return Inventory(
        environment,
        targets,
        present,
        texts,
        unreadable,
        known_secrets(targets),
        _project_problem(targets, environment.project),
    )


def _without_absent(hosts: list[HostInventory]) -> Iterator[HostInventory]:
    """Yield the hosts. If several hosts read a project file, its servers belong to the installed
    hosts or, if none of these is installed, to only one of them.
    """
    read = {server.file for host in hosts if host.is_here for server in host.servers}
    for host in hosts:
        if host.is_here:
            yield host
            continue

        servers = tuple(server for server in host.servers if server.file not in read)
        read.update(server.file for server in servers)
        yield replace(host, servers=servers)


def _targets(environment: HostEnvironment) -> Destinations:
    """Return the configurations that receive servers: the user's and the project's."""
    own_file = user_file()
    own = Destination(read_host_text(own_file), is_own=True, is_shared=False)
    file = environment.project / FILE_NAME
    if not _is_project(environment) or _is_folder_of(environment, own_file):
        return Destinations(own, own)
    # Secrets in the file's entries become `${secret:NAME}`, so the file shares no secret.
    try:
        text = _read_project_file(file)
    except HostFileError:
        # The setup does not write to this file, for the reason that `_project_problem` returns.
        text = text_of_bytes(file, "jsonc", None)
    return Destinations(own, Destination(text, is_own=False, is_shared=False))


def _read_project_file(file: Path) -> HostText:
    return read_host_text(file, max_bytes=MAX_FILE_BYTES)


def _is_folder_of(environment: HostEnvironment, own_file: Path) -> bool:
    """Return whether the current folder is that of the user's configuration.

    A link in a project to this configuration does not count, because a repository can contain the
    link.
    """
    return os.path.realpath(environment.project) == os.path.realpath(own_file.parent)


def _project_problem(targets: Destinations, project: Path) -> str:
    """Return why the project's file cannot receive servers, or "" if it can."""
    file = targets.project.file
    if targets.project.is_own:
        return ""
    try:
        check_place(file, project)
        _read_project_file(file)
    except HostFileError as error:
        return str(error)
    if may_be_trusted(file):
        return ""
    return f"{file} is not trusted; to review and trust it first: {trust_command(file)}"


def _is_project(environment: HostEnvironment) -> bool:
    """Return whether the current folder can be a project, that is, whether it is neither the home
    folder nor the root.
    """
    return environment.project not in (environment.home, Path(environment.project.anchor))


def _host(host: Host, environment: HostEnvironment, targets: Destinations) -> HostInventory:
    servers = find_servers(host, environment, targets)
    is_here = is_installed(host, environment)
    return HostInventory(
        host,
        is_here,
        tuple(
            adoption
            for adoption in servers.adoptions
            if adoption.scope != "project" or _is_project(environment)
        ),
        host.target(environment, "user"),
        tuple(servers.problems),
    )


def is_installed(host: Host, environment: HostEnvironment) -> bool:
    """Return whether the host appears to be installed for the user.

    It counts as installed if one of its configuration files outside the project exists, or if the
    folder of its user file does.
    """
    if host.platforms and environment.platform not in host.platforms:
        return False

    project = environment.project
    everybody = {environment.home, environment.home / ".config", project, *project.parents}
    for file in host.files(environment):
        if file.scope_in(project) == "project":
            continue
        if file.path.exists():
            return True
        if file.scope == "user" and file.path.parent not in everybody and file.path.parent.is_dir():
            return True

    return False
