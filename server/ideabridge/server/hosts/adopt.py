"""Copy a host's servers to `ideabridge.json`, and remove them from the host.

The user's servers are added to the user's file, and the project's servers to the project's file.
The secrets in an entry are moved to the keyring or to one of the user's files, and the entry refers
to them by name. The project's file can be part of a repository, so a server with any secret that
cannot be moved is not added to it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ideabridge.bridge.configuration import (
    ConfigurationError,
    check_server_entry,
    parse_configuration,
)
from ideabridge.bridge.masking import hidden_in
from ideabridge.bridge.modules.settings import ModuleConfiguration, entry_digest
from ideabridge.bridge.recognising import (
    RecognisedSecrets,
    SecretPlace,
    recognise_secrets,
    secret_names_in,
    with_secret_values,
)
from ideabridge.bridge.server_entry import with_own_keys
from ideabridge.bridge.stored_secrets import (
    StoredSecretError,
    secret_owner,
    set_secret,
    stored_secrets,
)
from ideabridge.server.hosts.editing.host_text import HostText, read_host_text
from ideabridge.server.hosts.host import (
    MAX_BYTES,
    MAX_PROJECT_BYTES,
    SERVER_NAME,
    HostDocument,
    HostEnvironment,
    HostFile,
    HostFileError,
    Scope,
    is_like_a_server,
    read_tolerantly,
)
from ideabridge.server.hosts.notation import as_written, read_host_inputs
from ideabridge.server.hosts.refusals import HostRefusals, Refused
from ideabridge.server.hosts.relative import relative_places
from ideabridge.server.hosts.salvage import ReadObject
from ideabridge.server.hosts.table import Host
from ideabridge.server.hosts.translate import (
    Translation,
    connects_here,
    is_ourselves,
    translate_server,
)
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible

_MOST_NAME: Final = 64
_MOST_REASON: Final = 1000
_MOST_SERVERS: Final = 1000
"""Maximum number of characters shown from a server's name and from a line that quotes its entry,
and maximum number of servers read from one file.
"""

_OWN_KEYS: Final = ("mcpServers",)
"""The keys that lead to the servers in `ideabridge.json`."""

AdoptionVerdict = Literal["new", "same", "taken", "replaced", "shadowed", "ourselves", "unusable"]
"""What happens to a server. `new`: it will be added. `same`: it is already configured. `taken`:
another server already has this name and keeps it. `replaced`: it replaces another server.
`shadowed`: an earlier file of the host has a server with the same name. `ourselves`: it starts
ideabridge. `unusable`: see `why`.
"""


@dataclass(frozen=True, slots=True)
class Destination:
    """A configuration that receives servers.

    Attributes:
        text: the current text of the configuration.
        is_own: whether this is the user's own configuration, which applies to every project.
        is_shared: whether the configuration can be part of a repository. No secrets are written to
            it then.
    """

    text: HostText
    is_own: bool
    is_shared: bool

    @property
    def file(self) -> Path:
        """The path of the configuration."""
        return self.text.path

    @property
    def servers(self) -> JSONObject:
        """The `mcpServers` in the configuration."""
        return self.text.entries(_OWN_KEYS)


@dataclass(frozen=True, slots=True)
class Destinations:
    """The configurations that receive servers: the user's and the project's, or a single one that
    the user has specified.
    """

    user: Destination
    project: Destination

    def of(self, scope: Scope) -> Destination:
        """Return the configuration that receives the servers from a host's file with the given
        scope.
        """
        return self.project if scope == "project" else self.user

    @property
    def all(self) -> list[Destination]:
        """The configurations, without duplicates."""
        if self.user.file == self.project.file:
            return [self.user]
        return [self.user, self.project]


@dataclass(frozen=True, slots=True)
class Adoption:
    """The adoption of one server from a host.

    Attributes:
        name: the name of the server in the host, and in ideabridge's configuration.
        entry: the entry of the server in `ideabridge.json`.
        place: where the host's file lists the server.
        target: the configuration that receives the server.
        verdict: see `AdoptionVerdict`.
        why: why the server is not adopted, or "" if it is adopted.
        notes: hints for the user.
        approved: the tools that the host calls without asking; `*` stands for all of them.
        secrets: the secrets from the host's entry, which `entry` names.
    """

    name: str
    entry: JSONObject
    place: HostFile
    target: Destination
    verdict: AdoptionVerdict
    why: str = ""
    notes: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    secrets: tuple[SecretPlace, ...] = ()

    @property
    def file(self) -> Path:
        """The host's file that contains the server."""
        return self.place.path

    @property
    def host_entry(self) -> JSONObject:
        """The entry with the actual secrets instead of their names."""
        return with_secret_values(self.entry, {one.name: one.value for one in self.secrets})

    @property
    def all_notes(self) -> list[str]:
        """The notes, followed by `moved_secrets`."""
        return [*self.notes, *self.moved_secrets]

    @property
    def moved_secrets(self) -> list[str]:
        """A line for each secret that says which name it is stored under."""
        return [
            _line(f"{place.place}: the secret moves to ${{secret:{place.name}}}", _MOST_REASON)
            for place in self.secrets
        ]

    @property
    def scope(self) -> Scope:
        """The scope of the host's file: who uses the servers in it."""
        return self.place.scope

    @property
    def adopted(self) -> bool:
        """True if the server is written to `ideabridge.json`."""
        return self.verdict in ("new", "replaced")

    @property
    def shown_name(self) -> str:
        """The name, escaped and shortened to fit on one line. Anybody might have chosen the name,
        so it can contain anything, even line breaks.
        """
        return _line(self.name, _MOST_NAME)


def _line(text: str, most: int) -> str:
    clean = visible(text[:most])
    if len(clean) <= most and len(text) <= most:
        return clean
    return f"{clean[:most]}…"


@dataclass(frozen=True, slots=True)
class FoundServers:
    """The servers of a host.

    Attributes:
        adoptions: the adoption of each server, in the order of the host's files.
        files: the host's files that exist.
        damaged: the malformed files in `files`, which are never edited.
        problems: the errors in the files, each with the file's path.
    """

    adoptions: list[Adoption]
    files: list[Path]
    damaged: list[Path]
    problems: list[str]


def find_servers(
    host: Host,
    environment: HostEnvironment,
    targets: Destinations,
    *,
    replaces: bool = False,
    only: Iterable[str] = (),
) -> FoundServers:
    """Find all of the host's servers.

    An unreadable file does not affect the other files, and an entry that cannot be translated does
    not affect the other entries.

    Args:
        host: the host.
        environment: the folders and variables that locate the host's files.
        targets: the configurations that receive servers.
        replaces: whether to replace servers with the same name.
        only: the names of the servers to adopt. If empty, all are adopted.

    Raises:
        HostFileError: `only` contains a name that no server of the host has.
    """
    search = _Search(host, environment, targets, replaces=replaces, only=list(only))
    for file in host.files(environment):
        search.read(replace(file, scope=file.scope_in(environment.project)))

    return search.found()


class _Search:
    """Reads the files of a host one at a time."""

    def __init__(
        self,
        host: Host,
        environment: HostEnvironment,
        targets: Destinations,
        *,
        replaces: bool,
        only: list[str],
    ) -> None:
        self._host = host
        self._environment = environment
        self._targets = targets
        self._replaces = replaces
        self._only = only
        self._documents: dict[Path, HostDocument] = {}
        self._paths: list[Path] = []
        self._adoptions: list[Adoption] = []
        self._problems: list[str] = []
        # How many bytes may still be read from files in the project.
        self._left = MAX_PROJECT_BYTES
        self._refusals = HostRefusals(host, environment, self._content)

    def read(self, file: HostFile) -> None:
        """Add the servers in one file."""
        if file.path not in self._paths:
            self._paths.append(file.path)

        content = self._content(file)
        place = file.located(content)
        servers = place.servers(content)
        if len(servers) > _MOST_SERVERS:
            self._problems.append(
                f"{file.path} has {len(servers):,} servers; the limit is {_MOST_SERVERS:,}"
            )

        inputs = read_host_inputs(content, place.keys)
        taken_names = {adoption.name for adoption in self._adoptions}
        repeated = servers.repeated if isinstance(servers, ReadObject) else ()
        for name, raw in itertools.islice(servers.items(), _MOST_SERVERS):
            if name == "servers" and _is_container(raw):
                continue

            translation = translate_server(
                raw, self._host, self._environment, inputs, scope=file.scope
            )
            if name in repeated:
                translation.notes.append(
                    "the file lists this name twice; ideabridge uses the last entry"
                )
            if place.keys != file.keys:
                translation.notes.append(
                    f"{self._host.title} does not look for servers under this key; "
                    f"it reads {'.'.join(file.keys)}"
                )

            self._adoptions.append(
                self._adoption(name, raw, place, translation, is_taken=name in taken_names)
            )

    def found(self) -> FoundServers:
        """Return the servers found so far.

        Raises:
            HostFileError: the host has no server with one of the requested names.
        """
        names = {adoption.name for adoption in self._adoptions}
        missing = [name for name in self._only if name not in names]
        if missing:
            shown = ", ".join(dict.fromkeys(adoption.shown_name for adoption in self._adoptions))
            raise HostFileError(
                f"{self._host.title} has no server {missing[0]!r}; it has {shown or 'none'}"
            )

        documents = [self._documents[path] for path in self._paths]
        return FoundServers(
            [item for item in self._adoptions if not self._only or item.name in self._only],
            files=[document.path for document in documents if document.text is not None],
            damaged=[document.path for document in documents if document.damage],
            problems=self._problems,
        )

    def _content(self, file: HostFile) -> JSONObject:
        """Return the content of the file, or the valid parts of a damaged file. Record any errors
        in the file.
        """
        if file.path not in self._documents:
            is_in_project = self._is_in_project(file.path)
            most = self._left if is_in_project else MAX_BYTES
            try:
                document = read_tolerantly(file.path, file.format, most)
            except HostFileError as error:
                self._problems.append(_line(str(error), _MOST_REASON))
                document = HostDocument(file.path, None, {})

            if document.damage:
                self._problems.append(_line(f"{file.path}: {document.damage}", _MOST_REASON))
            self._documents[file.path] = document
            if is_in_project:
                size = len((document.text or "").encode("utf-8", "replace"))
                self._left = max(0, self._left - size)

        return self._documents[file.path].content

    def _is_in_project(self, path: Path) -> bool:
        """Return whether a file can be part of a repository."""
        project = self._environment.project
        return path.is_relative_to(project) and not self._environment.home.is_relative_to(project)

    def _adoption(
        self, name: str, raw: JSON, place: HostFile, translation: Translation, *, is_taken: bool
    ) -> Adoption:
        project = self._environment.project
        entry = translation.entry
        target = self._targets.of(place.scope)
        _refuse(translation, self._refusals.of(name, place.scope, entry))
        _settle_folder(translation, raw, place.scope, project, target)
        problem = translation.problem or _problem(name, entry, self._environment)
        if place.scope == "user":
            elsewhere = _starts_elsewhere(entry, project, target)
            if elsewhere and name in self._only:
                translation.notes.append(elsewhere)
            elif elsewhere:
                problem = problem or (
                    f"{elsewhere}. Write absolute paths or a 'cwd' there, or name it to import it"
                )

        adoption = Adoption(
            name,
            entry,
            place,
            target,
            "new",
            "",
            tuple(_line(note, _MOST_REASON) for note in translation.notes),
            translation.approved,
        )
        recognised = RecognisedSecrets(entry)
        try:
            recognised = self._recognised(adoption)
        except StoredSecretError as error:
            problem = problem or str(error)

        judged = _judged(
            adoption, problem, recognised.entry, is_taken=is_taken, replaces=self._replaces
        )
        return _without_secrets(judged, recognised) if judged.adopted else judged

    def _recognised(self, adoption: Adoption) -> RecognisedSecrets:
        """Find the secrets in the entry, and choose a name for each.

        Raises:
            StoredSecretError: the entry has secrets, and the list of stored secrets cannot be read.
        """
        recognised = recognise_secrets(adoption.name, adoption.entry)
        if not recognised.places:
            return recognised
        return recognise_secrets(adoption.name, adoption.entry, self._secret_names(adoption))

    def _secret_names(self, adoption: Adoption) -> set[str]:
        """Return the names of the secrets that are stored for the configuration, or that other
        servers in the configuration use.
        """
        target = adoption.target
        owner = secret_owner(target.file)
        names = {secret.name for secret in stored_secrets() if secret.file == owner.file}
        names |= secret_names_in({**target.servers, adoption.name: None})
        names -= secret_names_in(target.servers.get(adoption.name))
        for other in self._adoptions:
            if other.target is target:
                names |= {place.name for place in other.secrets}

        return names


def _is_container(raw: JSON) -> bool:
    """Return whether `raw` maps names to servers, as `mcp.servers` does in opencode's files."""
    return (
        isinstance(raw, dict)
        and bool(raw)
        and not is_like_a_server(raw)
        and all(map(is_like_a_server, raw.values()))
    )


def _refuse(translation: Translation, refused: Refused) -> None:
    """Apply the refusals from the host's other files to the translated server."""
    translation.notes += refused.notes
    if translation.problem is not None:
        return
    if refused.is_off:
        translation.entry["disabled"] = True
    elif refused.denied_tools:
        others = list_or_empty(translation.entry.get("deny"))
        translation.entry["deny"] = [*others, *refused.denied_tools]


def _settle_folder(
    translation: Translation, raw: JSON, scope: Scope, project: Path, target: Destination
) -> None:
    """Choose the folder that the server runs in, and note anything that ties the server to this
    project.
    """
    entry = translation.entry
    is_program = isinstance(entry.get("command"), str)
    if scope == "local":
        # The host starts the server only in this project, so the arguments of its command might
        # name files in the project.
        if is_program:
            folder = as_written(str(project))
            entry.setdefault("cwd", folder)
            command = str(entry["command"])
            if command.startswith(("./", "../")):
                entry["command"] = str(Path(folder) / command)
        translation.notes.append(
            "the host has it only in this project; in your own configuration, every project would "
            "have it"
        )
    elif (
        scope == "user"
        and str(project) in json.dumps(entry)
        and str(project) not in json.dumps(raw)
    ):
        translation.notes.append(
            f"it always uses this project, {project}; the host uses the project of each session"
        )
    elif scope == "project" and is_program and target.file.parent == project:
        folder = Path(str(entry.get("cwd") or ""))
        if folder.is_absolute() and folder.is_relative_to(project):
            # Make the path relative to the project, because other people have the project in a
            # different folder.
            entry["cwd"] = str(folder.relative_to(project))


def _starts_elsewhere(entry: JSONObject, project: Path, target: Destination) -> str:
    """Return a note about the paths in the entry that refer to different files when ideabridge
    starts the server, or "" if every path refers to the same file.

    A server in the user's own file starts in the project folder, as it does in the host, but a
    relative path to its program is resolved against the folder of that file.
    """
    folder = target.file.parent
    if entry.get("cwd") is not None or folder == project:
        return ""

    places = relative_places(entry, project)
    if target.is_own:
        places = [place for place in places if place == "command"]
    if not places:
        return ""

    has = "has a relative path" if len(places) == 1 else "have relative paths"
    return (
        f"{', '.join(places)} {has}: the host starts it in each project's folder, but ideabridge "
        f"starts it in {folder}"
    )


def _judged(
    adoption: Adoption,
    problem: str | None,
    named_entry: JSONObject,
    *,
    is_taken: bool,
    replaces: bool,
) -> Adoption:
    """Return the adoption with its verdict. `named_entry` is the entry with the names of the
    secrets instead of the secrets themselves.
    """
    entry = adoption.entry
    target = adoption.target
    if is_ourselves(entry) or (adoption.name == SERVER_NAME and connects_here(entry)):
        return replace(adoption, verdict="ourselves", why="it is ideabridge itself")
    if problem is not None:
        return replace(adoption, verdict="unusable", why=_line(problem, _MOST_REASON))

    stored_names = sorted(secret_names_in(entry))
    if stored_names:
        # The host's file may be in a repository, so it must not be able to name the user's secrets.
        reason = (
            f"names the stored secret {stored_names[0]}; only an ideabridge.json is allowed to "
            "name one"
        )
        return replace(adoption, verdict="unusable", why=_line(reason, _MOST_REASON))

    if is_taken:
        return replace(
            adoption, verdict="shadowed", why="an earlier file of the host already has this name"
        )

    present = target.servers.get(adoption.name)
    if isinstance(present, dict) and meaning_of(present) in (
        meaning_of(entry),
        meaning_of(named_entry),
    ):
        return replace(adoption, verdict="same")

    if present is None:
        return adoption
    if replaces:
        return replace(adoption, verdict="replaced")
    return replace(
        adoption,
        verdict="taken",
        why="another server has this name; --replace uses this one instead",
    )


def _without_secrets(adoption: Adoption, recognised: RecognisedSecrets) -> Adoption:
    """Replace the secrets with their names. A server with any other secret is not adopted if the
    configuration can be part of a repository.
    """
    if adoption.target.is_shared and (hidden := hidden_in(recognised.entry)):
        places = list(dict.fromkeys(text.place for text in hidden))
        return replace(adoption, verdict="unusable", why=_secret_refusal(adoption, places))

    return replace(adoption, entry=recognised.entry, secrets=recognised.places)


def store_secrets(adoption: Adoption) -> list[str]:
    """Store the secrets of an adopted server for the configuration that receives the server.

    Return a phrase for each secret that tells the user where it is stored.

    Raises:
        StoredSecretError: a secret cannot be stored.
    """
    if not adoption.secrets:
        return []

    owner = secret_owner(adoption.target.file)
    servers: dict[str, str] = {}
    if owner.file is not None:
        parsed = parse_configuration({"mcpServers": {adoption.name: adoption.entry}})
        servers[adoption.name] = entry_digest(parsed.modules[adoption.name])

    values = {place.name: place.value for place in adoption.secrets}
    return [set_secret(owner, name, value, servers) for name, value in values.items()]


def _secret_refusal(adoption: Adoption, places: list[str]) -> str:
    """Explain why a server with a secret is not adopted, and what the user can do about it."""
    place_list = _line(", ".join(places), _MOST_REASON)
    verb = "contains" if len(places) == 1 else "contain"
    holds = f"{place_list} {verb} what looks like a secret"
    problem = f"{holds}, and {adoption.target.file} may be in a repository"
    return f"{problem}. Write ${{VAR}} in its place in {adoption.file}, and set the variable"


def meaning_of(entry: JSONObject) -> JSONObject | None:
    """Return the normalised form of an entry in `ideabridge.json`, or None if the entry is invalid.
    Entries that describe the same server in different notations have the same normalised form.
    """
    try:
        configuration = ModuleConfiguration.model_validate_json(json.dumps(with_own_keys(entry)))
    except ValueError:
        return None
    meaning = configuration.model_dump(mode="json", exclude={"type"})
    return {**meaning, "kind": configuration.kind}


def _problem(name: str, entry: JSONObject, environment: HostEnvironment) -> str | None:
    try:
        check_server_entry(name, entry, project=environment.project)
    except ConfigurationError as error:
        return error.problems[-1].removeprefix("ideabridge.json: ")
    except IdeabridgeError as error:
        # The entry contains a value that JSON cannot represent, such as half of a surrogate pair.
        return str(error)
    return None


def movable(
    adoptions: Sequence[Adoption], named: Iterable[str], damaged: Iterable[Path] = ()
) -> tuple[list[Adoption], list[str]]:
    """Return the servers to remove from the host once they are in `ideabridge.json`, and a line
    about each server that remains in the host.

    If the target belongs to one project, a server that the host starts in every project remains,
    unless the user named it.

    Args:
        adoptions: all of the host's servers.
        named: the servers that the user named.
        damaged: the malformed files, which are never edited.
    """
    named_set = set(named)
    damaged_set = set(damaged)
    moving: list[Adoption] = []
    staying: list[str] = []
    for adoption in adoptions:
        where = f"{adoption.shown_name}: stays in {adoption.file} ({adoption.scope})"
        if not (adoption.adopted or adoption.verdict == "same"):
            staying.append(f"{where}: {adoption.why}")
        elif adoption.file in damaged_set:
            staying.append(f"{where}: the file is malformed; repair it first")
        elif (
            adoption.scope == "user"
            and not adoption.target.is_own
            and adoption.name not in named_set
        ):
            staying.append(
                f"{where}, which applies to every project; `--move {adoption.name}` moves it anyway"
            )
        else:
            moving.append(adoption)

    names = {adoption.name for adoption in moving}
    staying += [
        (
            f"{adoption.shown_name}: from now on, the host starts the one in {adoption.file} "
            f"({adoption.scope})"
        )
        for adoption in adoptions
        if adoption.verdict == "shadowed" and adoption.name in names
    ]
    return moving, staying


def removals(moving: Iterable[Adoption]) -> tuple[list[HostText], dict[Path, str]]:
    """Return the texts of the hosts' files with the servers removed, and, keyed by path, why other
    files cannot be edited.
    """
    texts: dict[Path, HostText] = {}
    refused: dict[Path, str] = {}
    for adoption in moving:
        place = adoption.place
        try:
            text = texts.get(place.path) or read_host_text(place.path, place.format)
            if adoption.name not in text.entries(place.keys):
                raise HostFileError(f"{place.path}: the entry of {adoption.shown_name} has no name")
            texts[place.path] = text.without_entry(place.keys, adoption.name)
        except HostFileError as error:
            refused[place.path] = str(error)

    return [text for path, text in texts.items() if path not in refused], refused


def merge_servers(target: Destination, adoptions: Iterable[Adoption]) -> HostText:
    """Return the text of a configuration with its new servers added. All other bytes stay the same.

    Raises:
        HostFileError: the text cannot be edited without changing other parts of it.
    """
    text = target.text
    for adoption in adoptions:
        if adoption.adopted and adoption.target is target:
            text = text.with_entry(_OWN_KEYS, adoption.name, adoption.entry)
    return text
