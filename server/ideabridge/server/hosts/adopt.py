"""Adoption: copying the servers of a host into `ideabridge.json`, and removing them from the host.

The user's servers go into the user's file, and the project's servers into the project's file. A
repository may contain the project's file, so no server with a secret goes there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ideabridge.bridge.configuration import ConfigurationError, check_server_entry
from ideabridge.bridge.masking import hidden_in
from ideabridge.bridge.server_entry import with_own_keys
from ideabridge.server.hosts.host import (
    HostDocument,
    HostEnvironment,
    HostFile,
    HostFileError,
    Scope,
    read_host_document,
)
from ideabridge.server.hosts.relative import relative_places
from ideabridge.server.hosts.table import Host
from ideabridge.server.hosts.translate import Translation, is_ourselves, translate_server
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import visible

_MOST_NAME: Final = 64
_MOST_REASON: Final = 1000
"""Maximum number of characters shown of a server's name, or of a text that quotes its entry."""

AdoptionVerdict = Literal["new", "same", "taken", "replaced", "shadowed", "ourselves", "unusable"]
"""new: the server will be added. same: it is already configured. taken: another module has the name
and keeps it. replaced: the server replaces another module. shadowed: an earlier file of the host
has the same name. ourselves: the server starts ideabridge. unusable: see `why`."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A configuration that receives servers.

    Attributes:
        document: the current content of the configuration.
        is_own: whether it is the user's own configuration, which holds in every project.
        is_shared: whether a repository may contain it, so that no secret is written to it.
    """

    document: HostDocument
    is_own: bool
    is_shared: bool

    @property
    def file(self) -> Path:
        """The path of the configuration."""
        return self.document.path

    @property
    def servers(self) -> JSONObject:
        """The `mcpServers` of the configuration."""
        servers = self.document.content.get("mcpServers")
        return servers if isinstance(servers, dict) else {}


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where servers go: the user's configuration and the project's, or the one that the user has
    named for both.
    """

    user: Destination
    project: Destination

    def of(self, scope: Scope) -> Destination:
        """Return the configuration that receives the servers of a host's file."""
        return self.project if scope == "project" else self.user

    @property
    def all(self) -> list[Destination]:
        """Each configuration once."""
        if self.user.file == self.project.file:
            return [self.user]
        return [self.user, self.project]


@dataclass(frozen=True, slots=True)
class Adoption:
    """What happens to one server of a host.

    Attributes:
        name: the name of the server in the host, and the name of the module.
        entry: the entry of the server in `ideabridge.json`.
        file: the host's file that contains the server.
        scope: who uses the servers of that file.
        target: the configuration that receives the server.
        verdict: see `AdoptionVerdict`.
        why: the reason why the server is not adopted, if it is not.
        notes: hints for the user.
    """

    name: str
    entry: JSONObject
    file: Path
    scope: Scope
    target: Destination
    verdict: AdoptionVerdict
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def adopted(self) -> bool:
        """Return whether the server is written to `ideabridge.json`."""
        return self.verdict in ("new", "replaced")

    @property
    def shown_name(self) -> str:
        """The name in a form that fits into a line of text. The name may come from anybody, and may
        even contain line breaks.
        """
        return _line(self.name, _MOST_NAME)


def _line(text: str, most: int) -> str:
    clean = visible(text[:most])
    if len(clean) <= most and len(text) <= most:
        return clean
    return f"{clean[:most]}…"


def find_servers(
    host: Host,
    environment: HostEnvironment,
    targets: Destinations,
    *,
    replaces: bool = False,
    only: Iterable[str] = (),
) -> tuple[list[Adoption], list[Path]]:
    """Return every server of the host, in the order of its files, and the files that exist.

    Args:
        host: the host.
        environment: where the host's files are.
        targets: the configurations that receive servers.
        replaces: whether to replace modules of the same name.
        only: the names to adopt; empty for all.

    Raises:
        HostFileError: a file cannot be read, or the host has no server with a name in `only`.
    """
    wanted_names = list(only)
    adoptions: list[Adoption] = []
    read: dict[Path, HostDocument] = {}
    for file in host.files(environment):
        if file.path not in read:
            read[file.path] = read_host_document(file.path, file.format)

        content = read[file.path].content
        inputs = _inputs(content)
        earlier_names = {adoption.name for adoption in adoptions}
        for name, raw in file.servers(content).items():
            translation = _translated(raw, file, environment, inputs)
            problem = translation.problem or _problem(name, translation.entry, environment)
            target = targets.of(file.scope)
            if file.scope == "user":
                elsewhere = _starts_elsewhere(
                    translation.entry, environment.project, target.file.parent
                )
                if elsewhere and name in wanted_names:
                    translation.notes.append(elsewhere)
                elif elsewhere:
                    problem = problem or (
                        f"{elsewhere}. Write absolute paths or a 'cwd' "
                        "there, or name it to import it"
                    )

            adoption = Adoption(
                name,
                translation.entry,
                file.path,
                file.scope,
                target,
                "new",
                "",
                tuple(_line(note, _MOST_REASON) for note in translation.notes),
            )
            adoptions.append(
                _judged(adoption, problem, is_taken=name in earlier_names, replaces=replaces)
            )

    missing = [
        name for name in wanted_names if name not in {adoption.name for adoption in adoptions}
    ]
    if missing:
        names = ", ".join(dict.fromkeys(adoption.shown_name for adoption in adoptions))
        raise HostFileError(f"{host.title} has no server {missing[0]!r}; it has {names or 'none'}")

    if wanted_names:
        adoptions = [adoption for adoption in adoptions if adoption.name in wanted_names]

    return adoptions, [path for path, document in read.items() if document.text is not None]


def _depends_on_project(raw: JSONObject) -> bool:
    """Return whether the translation depends on the project, because it replaces
    `${workspaceFolder}` or a relative `cwd`.
    """
    folder = raw.get("cwd")
    if isinstance(folder, str) and not folder.startswith(("/", "~", "${")):
        return True
    return re.search(r"\$\{workspace(Folder|Root|FolderBasename)\}", json.dumps(raw)) is not None


def _translated(
    raw: JSON, file: HostFile, environment: HostEnvironment, inputs: dict[str, str]
) -> Translation:
    if not isinstance(raw, dict):
        return Translation({}, problem="is not an object")

    translation = translate_server(raw, environment, inputs)
    if file.scope == "local":
        # The host starts the server only in this project, and the words of its command may name
        # files of the project.
        if isinstance(translation.entry.get("command"), str):
            translation.entry.setdefault("cwd", str(environment.project))
        translation.notes.append(
            "the host has it in this project only; in your own configuration every project has it"
        )
    elif file.scope == "user" and _depends_on_project(raw):
        translation.notes.append(
            f"it is fixed to this project, {environment.project}; the host "
            "uses the project of each session"
        )

    return translation


def _starts_elsewhere(entry: JSONObject, project: Path, folder: Path) -> str:
    """Say which paths of a server refer to other files when ideabridge starts it in `folder`.
    Return "" if none does.
    """
    if entry.get("cwd") is not None or folder == project:
        return ""

    places = relative_places(entry, project)
    if not places:
        return ""

    has = "has a relative path" if len(places) == 1 else "have relative paths"
    return (
        f"{', '.join(places)} {has}: the host starts it in each project's "
        f"folder, ideabridge in {folder}"
    )


def _judged(adoption: Adoption, problem: str | None, *, is_taken: bool, replaces: bool) -> Adoption:
    """Return the adoption with its verdict filled in."""
    entry = adoption.entry
    target = adoption.target
    if is_ourselves(entry):
        return replace(adoption, verdict="ourselves", why="it is ideabridge itself")
    if is_taken:
        return replace(
            adoption, verdict="shadowed", why="an earlier file of the host has this name"
        )

    if problem is not None:
        return replace(adoption, verdict="unusable", why=_line(problem, _MOST_REASON))

    present = target.servers.get(adoption.name)
    if isinstance(present, dict) and with_own_keys(present) == with_own_keys(entry):
        return replace(adoption, verdict="same")
    if target.is_shared and (
        places := list(dict.fromkeys(hidden.place for hidden in hidden_in(entry)))
    ):
        return replace(adoption, verdict="unusable", why=_secret_refusal(adoption, places))

    if present is None:
        return adoption
    if replaces:
        return replace(adoption, verdict="replaced")
    return replace(
        adoption,
        verdict="taken",
        why="another server has this name; --replace uses this one instead",
    )


def _secret_refusal(adoption: Adoption, places: list[str]) -> str:
    """Return why a server with a secret stays where it is, and what the user can do."""
    place_list = _line(", ".join(places), _MOST_REASON)
    holds = f"{place_list} {'holds' if len(places) == 1 else 'hold'} what looks like a secret"
    problem = f"{holds}, and a repository may hold {adoption.target.file}"
    return f"{problem}. Write ${{VAR}} in its place in {adoption.file}, and set the variable"


def _problem(name: str, entry: JSONObject, environment: HostEnvironment) -> str | None:
    try:
        check_server_entry(name, entry, project=environment.project)
    except ConfigurationError as error:
        return error.problems[-1].removeprefix("ideabridge.json: ")
    return None


def _inputs(content: JSONObject) -> dict[str, str]:
    listed = content.get("inputs")
    if isinstance(listed, list):
        inputs = [entry for entry in listed if isinstance(entry, dict)]
    else:
        inputs = []
    return {
        str(entry["id"]): str(entry.get("description") or "")
        for entry in inputs
        if isinstance(entry.get("id"), str)
    }


def movable(
    adoptions: Sequence[Adoption], named: Iterable[str]
) -> tuple[list[Adoption], list[str]]:
    """Return the servers to remove from the host once `ideabridge.json` contains them, and a line
    about each server that stays.

    If the target belongs to one project, a server that the host starts in every project stays,
    unless the user named it.

    Args:
        adoptions: every server of the host.
        named: the names that the user has chosen.
    """
    named_set = set(named)
    moving: list[Adoption] = []
    staying: list[str] = []
    for adoption in adoptions:
        where = f"{adoption.shown_name}: stays in {adoption.file} ({adoption.scope})"
        if not (adoption.adopted or adoption.verdict == "same"):
            staying.append(f"{where}: {adoption.why}")
        elif (
            adoption.scope == "user"
            and not adoption.target.is_own
            and adoption.name not in named_set
        ):
            staying.append(
                f"{where}, where every project has it; `--move {adoption.name}` moves it anyway"
            )
        else:
            moving.append(adoption)

    names = {adoption.name for adoption in moving}
    staying += [
        (
            f"{adoption.shown_name}: the host starts the one of {adoption.file} "
            f"({adoption.scope}) from now on"
        )
        for adoption in adoptions
        if adoption.verdict == "shadowed" and adoption.name in names
    ]
    return moving, staying


def removals(
    host: Host, environment: HostEnvironment, moving: Iterable[Adoption]
) -> list[tuple[HostDocument, JSONObject]]:
    """Return the files that contain the servers, each with its content after the servers are
    removed.

    Raises:
        HostFileError: a file cannot be read.
        CommentedHostFileError: a file has comments, which writing would lose.
    """
    places_of = {(adoption.file, adoption.scope, adoption.name) for adoption in moving}
    edits: dict[Path, tuple[HostDocument, JSONObject]] = {}
    for file in host.files(environment):
        names = [
            name for path, scope, name in places_of if (path, scope) == (file.path, file.scope)
        ]
        if not names:
            continue

        if file.path in edits:
            document, content = edits[file.path]
        else:
            document = read_host_document(file.path, file.format)
            document.check_strict()
            content = document.content

        for name in names:
            content = file.without_server(content, name)

        edits[file.path] = document, content

    return list(edits.values())


def merge_servers(target: Destination, adoptions: Iterable[Adoption]) -> JSONObject:
    """Return a configuration's content with the servers that it receives. Everything else keeps its
    place.
    """
    merged: JSONObject = dict(target.servers)
    for adoption in adoptions:
        if adoption.adopted and adoption.target is target:
            merged[adoption.name] = adoption.entry
    return {**target.document.content, "mcpServers": merged}
