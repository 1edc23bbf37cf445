"""Plan the changes of a setup from an inventory. A person sees the changes before they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from ideabridge.bridge.server_entry import name_problem, with_own_keys
from ideabridge.server.hosts.adopt import Adoption, Destination
from ideabridge.server.hosts.host import SERVER_NAME, HostFile
from ideabridge.server.hosts.table import Host
from ideabridge.server.hosts.translate import connects_here, is_ourselves
from ideabridge.server.service import UserService
from ideabridge.server.setup.extraction import Extraction, NewSecret, masked
from ideabridge.server.setup.file_change import EntryEdit, FileChange
from ideabridge.server.setup.habits import Habit, find_habits
from ideabridge.server.setup.inventory import HostInventory, Inventory
from ideabridge.tools.encoding import JSON, JSONObject, content_hash

_STARTING: Final = ("command", "args", "env", "cwd", "url", "headers", "auth")
"""The keys of an entry that define the command or the address, and its settings."""

_MOST_SHOWN: Final = 3

Choice = Literal["copy", "move"]
"""Whether servers remain in their hosts. `copy`: they do. `move`: they are removed from their
hosts.
"""


@dataclass(frozen=True, slots=True)
class ServerSource:
    """A server in one host."""

    host: Host
    adoption: Adoption


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """A server that ideabridge offers after the setup.

    Attributes:
        name: the name of the server in `ideabridge.json`.
        entry: the entry of the server in `ideabridge.json`, which names stored secrets.
        target: the configuration that contains the server.
        sources: the servers in hosts that the server was merged from.
        secrets: the secrets named by the entry that must still be stored.
        is_new: whether the setup adds the server to the configuration.
        is_certain: whether the secrets in the entry in the configuration could be compared.
        notes: sentences for users about the differences from the servers in the hosts.
    """

    name: str
    entry: JSONObject
    target: Destination
    sources: tuple[ServerSource, ...]
    secrets: tuple[NewSecret, ...] = ()
    is_new: bool = True
    is_certain: bool = True
    notes: tuple[str, ...] = ()

    @property
    def titles(self) -> list[str]:
        """The titles of the hosts that have the server, without duplicates."""
        return list(dict.fromkeys(source.host.title for source in self.sources))


@dataclass(frozen=True, slots=True)
class RefusedServer:
    """A server that cannot be adopted."""

    name: str
    host: Host
    why: str


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """The entry for ideabridge in a host.

    Attributes:
        host: the host.
        place: where the entry is in the host's file.
        entry: the entry.
        state: `new` if the entry will be added, `present` if it is already there, `replaced` if it
            replaces an entry that starts ideabridge differently, and `blocked` if it cannot be
            added; see `why`.
        why: why the entry cannot be added, or "" if it can.
    """

    host: Host
    place: HostFile
    entry: JSONObject
    state: Literal["new", "present", "replaced", "blocked"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlannedService:
    """The service that hosts connect to.

    Attributes:
        service: the user's service.
        url: the address of the service.
        token: the token of the service, which is a secret.
        command: the command that the service runs.
        is_installed: whether the service is already installed.
    """

    service: UserService
    url: str
    token: str
    command: tuple[str, ...]
    is_installed: bool


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The changes that a setup will make.

    Attributes:
        inventory: the hosts on this machine.
        servers: the servers from hosts that ideabridge offers afterwards.
        refused: the servers that cannot be adopted.
        hosts: the entries for ideabridge in hosts.
        habits: the hosts' rules that name servers and have no effect once the servers have moved.
        note: a note for the user about the command that hosts use to start ideabridge, or "".
        asks_person: the project's servers, which only a person at a terminal can adopt.
        service: the service that hosts connect to, or None if each host starts its own ideabridge.
    """

    inventory: Inventory
    servers: tuple[PlannedServer, ...]
    refused: tuple[RefusedServer, ...]
    hosts: tuple[PlannedHost, ...]
    habits: tuple[Habit, ...]
    note: str = ""
    asks_person: tuple[PlannedServer, ...] = ()
    service: PlannedService | None = None

    @property
    def secrets(self) -> list[NewSecret]:
        """The secrets to store, without duplicates."""
        return list(dict.fromkeys(name for server in self.new_servers for name in server.secrets))

    @property
    def new_servers(self) -> list[PlannedServer]:
        """The servers to add to a configuration."""
        return [server for server in self.servers if server.is_new]

    @property
    def new_hosts(self) -> list[PlannedHost]:
        """The hosts to add ideabridge to."""
        return [host for host in self.hosts if host.state in ("new", "replaced")]

    @property
    def changes_nothing(self) -> bool:
        """True if everything is already set up."""
        needs_service = self.service is not None and not self.service.is_installed
        return not (self.new_servers or self.new_hosts or needs_service)

    @property
    def apart(self) -> list[PlannedHost]:
        """The hosts that start their own ideabridge process even though there is a service."""
        if self.service is None:
            return []
        return [host for host in self.hosts if host.host.address is None]

    def names_in(self, host: str) -> dict[str, str]:
        """Return the names in `ideabridge.json` of a host's servers, keyed by their names in the
        host.
        """
        return {
            source.adoption.name: server.name
            for server in self.servers
            for source in server.sources
            if source.host.name == host
        }

    def approved(self) -> dict[str, tuple[str, ...]]:
        """Return the tools that the user's own files let hosts call without asking, keyed by
        server; `*` stands for all of a server's tools.
        """
        approved: dict[str, tuple[str, ...]] = {}
        for server in self.servers:
            names = [
                name
                for source in server.sources
                if source.adoption.scope == "user"
                for name in source.adoption.approved
            ]
            if names:
                approved[server.name] = tuple(dict.fromkeys(names))
        return approved

    def movable(self) -> list[ServerSource]:
        """Return the servers that a move removes from their hosts: those in the user's own files.

        Servers in the project's files remain, because other people use these files, too. A server
        with a secret that could not be compared remains, because its host might have the only copy.
        """
        return [
            source
            for server in self.servers
            for source in server.sources
            if server.is_certain
            and source.adoption.scope != "project"
            and source.adoption.file in self.inventory.texts
        ]

    def without_project(self) -> SetupPlan:
        """Return the plan without the changes that only a person at a terminal can confirm."""
        own = self.inventory.targets.user
        return replace(
            self,
            servers=tuple(server for server in self.servers if server.target is own),
            asks_person=tuple(server for server in self.new_servers if server.target is not own),
        )

    def receiving(self) -> list[FileChange]:
        """Return the changes to the configurations that receive servers."""
        return [
            change
            for target in self.inventory.targets.all
            if (change := self._received(target)) is not None
        ]

    def in_hosts(self, choice: Choice) -> list[FileChange]:
        """Return the changes to the hosts' files: ideabridge is added and, in a move, the servers
        are removed.
        """
        edits: dict[Path, list[EntryEdit]] = {}
        places: dict[Path, tuple[Host, HostFile]] = {}
        for planned in self.new_hosts:
            place = planned.place
            edits.setdefault(place.path, []).append(
                EntryEdit(place.keys, SERVER_NAME, planned.entry, place.is_list)
            )
            places.setdefault(place.path, (planned.host, place))

        removable = self.movable() if choice == "move" else []
        for source in removable:
            place = source.adoption.place
            edits.setdefault(place.path, []).append(
                EntryEdit(place.keys, source.adoption.name, None, place.is_list)
            )
            places.setdefault(place.path, (source.host, place))

        return [
            FileChange(
                path,
                places[path][0].title,
                places[path][1].format,
                tuple(edits[path]),
                new_content=places[path][1].new_content,
            )
            for path in edits
        ]

    def _received(self, target: Destination) -> FileChange | None:
        edits = [
            EntryEdit(("mcpServers",), server.name, server.entry)
            for server in self.new_servers
            if server.target is target
        ]
        if not edits:
            return None
        return FileChange(
            target.file,
            "your own configuration" if target.is_own else "the project's configuration",
            "jsonc",
            tuple(edits),
            is_private=target.is_own,
            project=None if target.is_own else self.inventory.environment.project,
        )


def plan_setup(
    inventory: Inventory,
    command: list[str],
    *,
    note: str = "",
    service: PlannedService | None = None,
) -> SetupPlan:
    """Determine the changes of a setup.

    Args:
        inventory: the hosts on this machine.
        command: the command for hosts to start ideabridge, as a list of words.
        note: a note for the user about this command.
        service: the service that hosts connect to, or None for no service. A host whose form of
            entry for an address is unknown starts the command instead.
    """
    merging = _Merging(inventory)
    for host in inventory.hosts:
        for adoption in host.servers:
            merging.add(ServerSource(host.host, adoption))

    servers = tuple(merging.planned())
    hosts = [
        _planned_host(host, inventory, command, service) for host in inventory.hosts if host.is_here
    ]
    return SetupPlan(
        inventory,
        servers,
        tuple(merging.refused),
        tuple(hosts),
        tuple(_habits(inventory, servers)),
        note,
        service=service,
    )


def _habits(inventory: Inventory, servers: tuple[PlannedServer, ...]) -> Iterator[Habit]:
    """Yield the hosts' rules that name movable servers."""
    names: dict[str, list[str]] = {}
    for server in servers:
        for source in server.sources:
            adoption = source.adoption
            if adoption.scope == "project":
                continue

            names.setdefault(source.host.name, []).append(adoption.name)
            if adoption.approved:
                # The server's own entry contains these rules.
                words = tuple(
                    "calls every tool without asking"
                    if name == "*"
                    else f"calls {name} without asking"
                    for name in adoption.approved
                )
                yield Habit(
                    source.host.title, adoption.name, adoption.file, words[:_MOST_SHOWN], len(words)
                )

    for host in inventory.hosts:
        yield from find_habits(host.host, inventory.environment, names.get(host.host.name, ()))


def _planned_host(
    host: HostInventory,
    inventory: Inventory,
    command: list[str],
    service: PlannedService | None,
) -> PlannedHost:
    place = host.own
    address = host.host.address
    if service is not None and address is not None:
        entry = address.entry(service.url, service.token)
    else:
        entry = host.host.entry(command)
    planned = PlannedHost(host.host, place, entry, "new")
    text = inventory.texts.get(place.path)
    if text is None:
        return replace(planned, state="blocked", why=inventory.unreadable[place.path])

    present = text.entries(place.keys).get(SERVER_NAME)
    if present is None:
        return planned
    connects = isinstance(present, dict) and connects_here(with_own_keys(present))
    if connects and service is None:
        # The host already connects to the user's service, so leave this choice of the user alone.
        return replace(planned, state="present")
    if not isinstance(present, dict) or not (connects or is_ourselves(present)):
        reason = f"{place.path} has another server named {SERVER_NAME!r}"
        return replace(planned, state="blocked", why=reason)
    own_keys = {key: value for key, value in present.items() if key in entry}
    return replace(planned, state="present" if own_keys == entry else "replaced")


# -- merging ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Servers with the same command or address."""

    target: Destination
    sources: list[ServerSource] = field(default_factory=list[ServerSource])


class _Merging:
    """Merges servers from all hosts that start the same command or call the same address.

    Attributes:
        refused: the servers that cannot be adopted.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.refused: list[RefusedServer] = []
        self._inventory = inventory
        self._groups: dict[tuple[Path, str], _Group] = {}

    def add(self, source: ServerSource) -> None:
        """Add a host's server, unless it is ideabridge."""
        adoption = source.adoption
        if adoption.verdict == "ourselves":
            return
        reason = self._refusal(adoption)
        if reason:
            self.refused.append(RefusedServer(adoption.shown_name, source.host, reason))
            return

        digest = start_digest(adoption.host_entry)
        own_key = (self._inventory.targets.user.file, digest)
        # If the user has the server in every project, it is not needed in the project's file.
        key = own_key if own_key in self._groups else (adoption.target.file, digest)
        group = self._groups.setdefault(key, _Group(adoption.target))
        group.sources.append(source)

    def _refusal(self, adoption: Adoption) -> str:
        """Return why a server cannot be adopted, or "" if it can."""
        if adoption.verdict == "unusable":
            return adoption.why
        if not adoption.target.is_own and self._inventory.project_problem:
            return self._inventory.project_problem
        return name_problem(adoption.name) or ""

    def planned(self) -> Iterator[PlannedServer]:
        """Yield the merged servers."""
        present = {target.file: self._present(target) for target in self._inventory.targets.all}
        own_file = self._inventory.targets.user.file
        extraction = Extraction(self._inventory.secrets)
        # Begin with the user's own servers, so that their names are known.
        groups = sorted(self._groups.items(), key=lambda item: item[0][0] != own_file)
        for (file, digest), group in groups:
            digests = present[file]
            sources = tuple(group.sources)
            name = _known_name(digests, group)
            if name is not None:
                entry = group.target.servers[name]
                assert isinstance(entry, dict)
                yield PlannedServer(
                    name,
                    entry,
                    group.target,
                    sources,
                    is_new=False,
                    is_certain=digests[name] == digest,
                )
                continue

            name = _free_name(sources[0], digests)
            digests[name] = digest
            # Merge only servers for the same configuration, because the settings that a server has
            # in one project must not change one that the user has in every project.
            merged, notes = _merged(
                [source for source in sources if source.adoption.target is group.target]
            )
            if not group.target.is_own and name in present[own_file]:
                notes = (*notes, "in this project, it replaces your own server with this name")
            extracted = extraction.extracted(group.target, name, merged)
            if extracted.left and not group.target.is_own:
                self.refused.append(_with_secret(sources[0], extracted.left))
                continue
            yield PlannedServer(
                name, extracted.entry, group.target, sources, extracted.secrets, notes=notes
            )

    def _present(self, target: Destination) -> dict[str, str]:
        """Return digests of the commands or addresses in a configuration, keyed by server name.
        Servers whose secrets cannot be read are omitted.
        """
        digests: dict[str, str] = {}
        for name, entry in target.servers.items():
            if not isinstance(entry, dict):
                digests[name] = ""
                continue
            filled = self._inventory.secrets.filled(target, entry)
            digests[name] = start_digest(masked(entry) if filled is None else filled)

        return digests


def _with_secret(source: ServerSource, places: Sequence[str]) -> RefusedServer:
    reason = (
        f"{', '.join(places)} may be executed and contain what looks like a secret, and "
        f"{source.adoption.target.file} may be in a repository. Write ${{VAR}} there, and set the "
        "variable"
    )
    return RefusedServer(source.adoption.shown_name, source.host, reason)


def _known_name(digests: Mapping[str, str], group: _Group) -> str | None:
    """Return the name of the configured server with the same command or address as a group, or None
    if there is none.
    """
    entry = group.sources[0].adoption.host_entry
    wanted = (start_digest(entry), start_digest(masked(entry)))
    return next((name for name, digest in digests.items() if digest in wanted), None)


def start_digest(entry: JSONObject) -> str:
    """Return a hash of the command or the address of an entry, with its settings."""
    own = with_own_keys(entry)
    starting: dict[str, JSON] = {key: own[key] for key in _STARTING if own.get(key)}
    if "url" in starting and own.get("type") == "sse":
        starting["type"] = "sse"
    return content_hash(starting)


def _free_name(source: ServerSource, present: Mapping[str, str]) -> str:
    """Return a name for a server that is not yet used in the configuration."""
    name = source.adoption.name
    if name not in present:
        return name

    base = f"{name[:40]}_{source.host.name.replace('-', '_')}"
    names = (base, *(f"{base}_{number}" for number in range(2, len(present) + 3)))
    return next(one for one in names if one not in present)


def _merged(sources: Sequence[ServerSource]) -> tuple[JSONObject, tuple[str, ...]]:
    """Return the merged entry for servers with the same command or address, and notes for the user.
    Everything that any of the hosts forbids remains forbidden.
    """
    entries = [source.adoption.host_entry for source in sources]
    entry: JSONObject = dict(entries[0])
    if any(not other.get("disabled") for other in entries):
        entry.pop("disabled", None)

    denied = dict.fromkeys(str(name) for other in entries for name in _names(other, "deny") or ())
    if denied:
        entry["deny"] = [*denied]

    allowed = [names for other in entries if (names := _names(other, "allow")) is not None]
    if allowed:
        entry["allow"] = [name for name in allowed[0] if all(name in names for names in allowed)]

    notes = [note for source in sources for note in source.adoption.notes]
    notes += _restrictions(entry, entries)
    return entry, tuple(dict.fromkeys(notes))


def _restrictions(entry: JSONObject, sources: Sequence[JSONObject]) -> Iterator[str]:
    """Yield the restrictions in a merged entry that some of its sources lack."""
    allowed = _names(entry, "allow")
    if allowed is not None and any(_names(source, "allow") != allowed for source in sources):
        names = ", ".join(map(str, allowed)) or "none"
        yield f"some of its clients do not allow all tools; ideabridge calls only these: {names}"

    denied = _names(entry, "deny")
    if denied is not None and any(_names(source, "deny") != denied for source in sources):
        names = ", ".join(map(str, denied))
        yield f"some of its clients forbid tools; ideabridge never calls these: {names}"


def _names(entry: JSONObject, key: str) -> list[JSON] | None:
    names = entry.get(key)
    return names if isinstance(names, list) else None
