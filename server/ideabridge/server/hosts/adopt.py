"""Adoption: copying the servers of a host into `ideabridge.json`, and removing them from the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ideabridge.bridge.configuration import ConfigurationError, parse_configuration
from ideabridge.bridge.modules.settings import adapt
from ideabridge.server.hosts.host import (
    Host,
    HostDocument,
    HostEnvironment,
    HostFile,
    HostFileError,
    Scope,
    read_document,
)
from ideabridge.server.hosts.translate import Translation, is_ourselves, translate
from ideabridge.tools.encoding import JSON, JSONObject

AdoptionVerdict = Literal["new", "same", "taken", "replaced", "shadowed", "ourselves", "unusable"]
"""new: it will be added. same: it is there already. taken: another module keeps the name. replaced: it replaces another
module. shadowed: an earlier file of the host has the name. ourselves: it starts ideabridge. unusable: see `why`."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What happens to one server of a host.

    Attributes:
        name: its name in the host, and the name of the module.
        entry: its entry in `ideabridge.json`.
        file: the host's file that has it.
        scope: who uses the servers of that file.
        verdict: see `AdoptionVerdict`.
        why: the reason if it is not adopted.
        notes: hints for the user.
    """

    name: str
    entry: JSONObject
    file: Path
    scope: Scope
    verdict: AdoptionVerdict
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def adopted(self) -> bool:
        """Return whether it is written to `ideabridge.json`."""
        return self.verdict in ("new", "replaced")


def find_servers(
    host: Host, environment: HostEnvironment, configured: JSONObject, *, replace: bool = False, only: Iterable[str] = ()
) -> tuple[list[Adoption], list[Path]]:
    """Every server of the host, in the order of its files, and the files that exist.

    Args:
        host: the host.
        environment: where its files are.
        configured: `mcpServers` of `ideabridge.json`.
        replace: whether to replace modules of the same name.
        only: the names to adopt; empty for all.

    Raises:
        HostFileError: a file cannot be read, or the host has no server of a name in `only`.
    """
    found: list[Adoption] = []
    read: dict[Path, HostDocument] = {}
    for file in host.files(environment):
        if file.path not in read:
            read[file.path] = read_document(file.path)
        content = read[file.path].content
        inputs = _inputs(content)
        taken = {one.name for one in found}
        for name, raw in file.servers(content).items():
            found.append(_judge(name, raw, file, environment, inputs, taken, configured, replace=replace))
    wanted = list(only)
    missing = [name for name in wanted if name not in {one.name for one in found}]
    if missing:
        names = ", ".join(dict.fromkeys(one.name for one in found))
        raise HostFileError(f"{host.title} has no server {missing[0]!r}; it has {names or 'none'}")
    if wanted:
        found = [one for one in found if one.name in wanted]
    return found, [path for path, document in read.items() if document.text is not None]


def _judge(
    name: str,
    raw: JSON,
    file: HostFile,
    environment: HostEnvironment,
    inputs: dict[str, str],
    taken: set[str],
    configured: JSONObject,
    *,
    replace: bool,
) -> Adoption:
    translation = (
        translate(raw, environment, inputs) if isinstance(raw, dict) else Translation({}, problem="is not an object")
    )
    entry = translation.entry

    def say(verdict: AdoptionVerdict, why: str = "") -> Adoption:
        return Adoption(name, entry, file.path, file.scope, verdict, why, tuple(translation.notes))

    if is_ourselves(entry):
        return say("ourselves", "it is ideabridge itself")
    if name in taken:
        return say("shadowed", "an earlier file of the host has this name")
    problem = translation.problem or _problem(name, entry, environment)
    if problem:
        return say("unusable", problem)
    if name not in configured:
        return say("new")
    there = configured[name]
    if isinstance(there, dict) and adapt(there) == adapt(entry):
        return say("same")
    if replace:
        return say("replaced")
    return say("taken", "another module has this name; --replace takes this one instead")


def _problem(name: str, entry: JSONObject, environment: HostEnvironment) -> str | None:
    try:
        parse_configuration({"mcpServers": {name: entry}}, project=environment.project)
    except ConfigurationError as error:
        return error.problems[0].removeprefix("ideabridge.json: ")
    return None


def _inputs(content: JSONObject) -> dict[str, str]:
    listed = content.get("inputs")
    inputs = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {str(one["id"]): str(one.get("description") or "") for one in inputs if isinstance(one.get("id"), str)}


def movable(found: Iterable[Adoption], named: Iterable[str], *, for_project: bool) -> tuple[list[Adoption], list[str]]:
    """Return the servers to remove from the host after `ideabridge.json` has them, and a line for each that stays.

    Args:
        found: every server of the host.
        named: the names that the user gave.
        for_project: whether `ideabridge.json` belongs to one project. Then a server that the host starts in every
            project stays, unless the user named it.
    """
    listed = list(found)
    having = [one for one in listed if one.adopted or one.verdict == "same"]
    wanted = set(named)
    stays = [one for one in having if for_project and one.scope == "user" and one.name not in wanted]
    why = [
        f"{one.name}: stays in {one.file}, where every project has it; `--move {one.name}` moves it all the same"
        for one in stays
    ]
    moving = [one for one in having if one not in stays]
    names = {one.name for one in moving}
    why += [
        f"{one.name}: the host has another of this name in {one.file} ({one.scope}), and starts that one from now on"
        for one in listed
        if one.verdict == "shadowed" and one.name in names
    ]
    return moving, why


def removals(
    host: Host, environment: HostEnvironment, moving: Iterable[Adoption]
) -> list[tuple[HostDocument, JSONObject]]:
    """Return the files that contain the servers, each with its content without them.

    Raises:
        HostFileError: a file cannot be read.
        CommentedHostFileError: a file has comments, which writing would lose.
    """
    places_of = {(one.file, one.scope, one.name) for one in moving}
    found: dict[Path, tuple[HostDocument, JSONObject]] = {}
    for file in host.files(environment):
        names = [name for path, scope, name in places_of if (path, scope) == (file.path, file.scope)]
        if not names:
            continue
        if file.path in found:
            document, content = found[file.path]
        else:
            document = read_document(file.path)
            document.check_strict()
            content = document.content
        for name in names:
            content = file.without_server(content, name)
        found[file.path] = document, content
    return list(found.values())


def merge(content: JSONObject, adoptions: Iterable[Adoption]) -> JSONObject:
    """The content of `ideabridge.json` with the adopted servers; everything else keeps its place."""
    servers = content.get("mcpServers")
    merged: JSONObject = dict(servers) if isinstance(servers, dict) else {}
    for one in adoptions:
        if one.adopted:
            merged[one.name] = one.entry
    return {**content, "mcpServers": merged}
