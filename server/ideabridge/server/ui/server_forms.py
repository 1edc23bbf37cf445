"""Server forms: adding, importing, enabling, disabling and removing servers on the page.

The page changes the file that the server was started with, or else the user's own one, in the same
way as `ideabridge servers`: the entry is checked, its secrets go to the keyring, everything else in
the file keeps its bytes, and each change can be undone. The project's file needs a person at a
terminal, who reviews what it starts, so the page leaves it alone.

A command runs with the rights of the owner. So only the owner adds one, in a session that began
with the owner's link: a token can be in an assistant's files, where a model might find it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.configuration import (
    Configuration,
    ConfigurationError,
    is_user_file,
    user_file,
)
from ideabridge.bridge.server_entry import name_problem
from ideabridge.server.hosts.adopt import Adoption
from ideabridge.server.hosts.editing.host_text import EditedFile
from ideabridge.server.hosts.editing.undo import (
    RecordedEdit,
    UndoneFile,
    edits_of,
    entries_before,
    record_edit,
    undo_edit,
)
from ideabridge.server.hosts.entries import (
    EntryError,
    EntryFile,
    ServerExistsError,
    address_entry,
    header_of,
    is_on,
    is_server_address,
    missing_program,
    plan_addition,
    program_entry,
    read_entry_file,
    readable_values,
    secrets_named_in,
    started_by,
    switched,
    variable_of,
)
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.importing import ServerImport, destinations, plan_import
from ideabridge.server.hosts.table import HOSTS, Host, find_host
from ideabridge.server.ui.access import (
    FormFields,
    NotTheOwnerError,
    Visitor,
    expect_manager,
    expect_owner,
    form_of,
    visitor_of,
)
from ideabridge.server.ui.site import Site
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError

_COMMAND: Final = "page"
"""The command under which a change of the page is noted."""

_IMPORTS: Final = "servers import "

_FIELDS: Final = {
    "url": "start",
    "command": "start",
    "args": "start",
    "env": "env",
    "headers": "headers",
}
"""The field of the form for each key of an entry."""

_PLACED: Final = re.compile(
    rf"[^:]*: mcpServers\..+?\.(?P<key>{'|'.join(_FIELDS)})\b(?P<why>.*)", re.DOTALL
)
"""A problem of an entry, with its place. What follows the key names the variable or header."""

_MOST_CHECKED: Final = 100
"""Maximum number of published tools that are checked before and after a change."""

_Result = TypeVar("_Result")


class NoSessionError(IdeabridgeError):
    """A visitor without a session can read the page, but add nothing."""


class FieldError(EntryError):
    """A field of the form for a new server cannot be used.

    Attributes:
        field: the name of the field: `name`, `start`, `env` or `headers`.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class NoServersFileError(IdeabridgeError):
    """The page cannot change the configuration of this server. The message says why."""


@dataclass(frozen=True, slots=True)
class Typed:
    """What somebody has typed into the form for a new server, as it is shown again after an error.
    The values of variables and headers are left out, because they might be secrets.
    """

    name: str = ""
    start: str = ""


@dataclass(frozen=True, slots=True)
class FormRefusal:
    """Why a new server was refused.

    Attributes:
        why: the reason.
        field: the field that has to be changed, or "" if it is none in particular.
        namesake: the server that has the name already, or "".
    """

    why: str
    field: str = ""
    namesake: str = ""


@dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server of a host, as the page offers it.

    Attributes:
        name: its name.
        verdict: whether it can be imported; see `AdoptionVerdict`.
        why: the reason why it is not imported, or "".
        starts: its command or address, without secrets.
        source: the file of the host that lists it.
        notes: what happens to it.
        seal: identifies the entry that was shown; empty if it cannot be ticked.
    """

    name: str
    verdict: str
    why: str
    starts: str
    source: str
    notes: list[str]
    seal: str


@dataclass(frozen=True, slots=True)
class Added:
    """A server that was added.

    Attributes:
        text: a text for users that says what was written where.
        missing: its command, if no such program is found on this machine, or "".
    """

    text: str
    missing: str = ""


class ServerForms:
    """The forms that change the list of servers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/servers/add", self.show_add),
            Route("/servers/new", self.add, methods=["POST"]),
            Route("/servers/import", self.show_import),
            Route("/servers/take", changing(self.take_over), methods=["POST"]),
            Route("/servers/change", changing(self.change), methods=["POST"]),
            Route("/servers/undo", changing(self.undo), methods=["POST"]),
        ]

    # -- adding ------------------------------------------------------------------------------------

    async def show_add(self, request: Request) -> Response:
        """Show the form for a new server, which names a file of this machine."""
        visitor = visitor_of(request)
        expect_manager(visitor)
        if not visitor.may_change:
            raise NoSessionError("a server is added in a session: see how one begins above")
        return self._form(request, Typed())

    def _form(self, request: Request, typed: Typed, refusal: FormRefusal | None = None) -> Response:
        file = file_to_change(self._bridge.configuration)
        return self._site.page(
            request,
            "server_add.html",
            code=200 if refusal is None else 400,
            typed=typed,
            refusal=refusal,
            file=None if file is None else str(file),
        )

    async def add(self, request: Request) -> Response:
        """Add a server. If it is refused, show the form again, with the reason."""
        form = form_of(request)
        name = form.get("name").strip()
        try:
            added = await self._changed(partial(self._add, visitor_of(request), form))
        except IdeabridgeError as error:
            typed = Typed(name, form.get("start"))
            return self._form(request, typed, self._refusal(name, error))

        kind = "ask" if added.missing else "good"
        return self._site.back(request, f"/modules/{quote(name, safe='')}", added.text, kind=kind)

    def _refusal(self, name: str, error: IdeabridgeError) -> FormRefusal:
        """Return what the form shows about an error."""
        why = self._bridge.secrets.mask(str(error))
        if isinstance(error, ServerExistsError):
            return FormRefusal("this file already has a server of this name", "name", name)
        if isinstance(error, FieldError):
            return FormRefusal(why, error.field)

        placed = _PLACED.fullmatch(why)
        if isinstance(error, ConfigurationError) and placed is not None:
            return FormRefusal(placed["why"].lstrip(".: "), _FIELDS[placed["key"]])
        return FormRefusal(why)

    def _add(self, visitor: Visitor, form: FormFields) -> Added:
        expect_manager(visitor)
        file = self._read_file()
        name = form.get("name").strip()
        problem = name_problem(name)
        if problem is not None:
            raise FieldError("name", problem)

        addition = plan_addition(file, name, _typed_entry(form, visitor))
        stored_in = addition.store_secrets()
        edited = file.write(name, addition.entry)
        self._record(f"{name} was added", edited)
        lines = [f"{name} is added to {file.path}."]
        lines += [
            f"{place.place} is a secret ({place.why}): the file has ${{secret:{place.name}}}, and "
            f"{stored_in} the value."
            for place in addition.recognised.places
        ]
        if addition.in_plain_text:
            places = ", ".join(addition.in_plain_text)
            lines.append(f"{places}: in plain text in that file, but never shown.")
        readable = [
            place
            for place in readable_values(addition.entry)
            if place not in addition.in_plain_text
        ]
        if readable:
            lines.append(
                f"{', '.join(readable)}: readable in that file. If one is a secret, store it with "
                "`ideabridge secrets set NAME`, and write ${secret:NAME} in its place."
            )
        missing = missing_program(addition.entry)
        if missing is None:
            return Added("\n".join(lines))

        lines.insert(
            1,
            f"{missing} is not found on this machine, so the server cannot start. Install it, or "
            "remove the server.",
        )
        return Added("\n".join(lines), missing)

    # -- enabling, disabling, removing -------------------------------------------------------------

    async def change(self, request: Request) -> Response:
        """Enable, disable or remove a server."""
        visitor = visitor_of(request)
        expect_manager(visitor)
        form = form_of(request)
        name = form.get("name")
        if name not in {status.name for status in self._site.servers(visitor)}:
            raise UnknownToolError(f"there is no server {name[:100]!r}")

        callable_before = self._callable_tools(visitor)
        told = await self._changed(partial(self._change, name, form.get("action")))
        lost = sorted(callable_before - self._callable_tools(visitor))
        if not lost:
            return self._site.back(request, "/modules", told)

        told += f"\nPublished tools that need it, and cannot be called now: {', '.join(lost)}."
        return self._site.back(request, "/modules", told, kind="ask")

    def _callable_tools(self, visitor: Visitor) -> set[str]:
        """Return the names of the published tools that a visitor can call on this server, of the
        first ones by name.
        """
        tools = self._bridge.store.publications.page(_MOST_CHECKED, caller=visitor.scope)
        return {
            tool.name
            for tool in tools.items
            if self._bridge.why_not_here(tool, caller=visitor.caller) is None
        }

    def _change(self, name: str, action: str) -> str:
        file = self._read_file()
        if name not in file.servers:
            raise EntryError(
                f"{name} is not in {file.path}: change it with `ideabridge servers {action}`"
            )

        before = file.entry(name)
        if action == "remove":
            self._record(f"{name} was removed", file.write(name, None))
            return "\n".join([f"{name} is removed.", *_staying_secrets(before)])
        if action not in ("enable", "disable"):
            raise EntryError(f"action: expected enable, disable or remove, found {action[:40]!r}")

        on = action == "enable"
        if is_on(before) == on:
            return f"{name} is {action}d already."
        self._record(f"{name} was {action}d", file.write(name, switched(before, on=on)))
        return f"{name} is {action}d."

    # -- undoing -----------------------------------------------------------------------------------

    async def undo(self, request: Request) -> Response:
        """Undo one change to the servers."""
        edit_id = form_of(request).get("edit")
        told = await self._changed(partial(self._undo, visitor_of(request), edit_id))
        return self._site.back(request, "/modules", told)

    def _undo(self, visitor: Visitor, edit_id: str) -> str:
        expect_manager(visitor)
        file = self._read_file()
        edit = next((edit for edit in _edits(file.path) if _id_of(edit) == edit_id), None)
        if edit is None:
            raise EntryError("this change was undone already, or is not known any more")

        if not visitor.is_owner and _brings_back_a_command(edit, file):
            raise NotTheOwnerError(
                "this would bring a command back, which only the owner may do, in a session that "
                "began with the owner's link"
            )

        added = [
            entry.name
            for edited in edit.files
            for entry in edited.entries
            if entry.name not in entries_before(edited)
        ]
        named = [file.servers[name] for name in added if name in file.servers]
        lines = [_back_line(edit), *map(_left_line, undo_edit(edit))]
        lines += [line for entry in named for line in _staying_secrets(object_or_empty(entry))]
        return "\n".join(line for line in lines if line)

    # -- importing ---------------------------------------------------------------------------------

    async def show_import(self, request: Request) -> Response:
        """Show the hosts that have files here, and the servers of one of them."""
        visitor = visitor_of(request)
        expect_owner(visitor)
        hosts = await anyio.to_thread.run_sync(self._hosts_here)
        chosen = request.query_params.get("host", "")
        if not chosen and hosts:
            chosen = hosts[0].name

        plan: ServerImport | None = None
        servers: list[OfferedServer] = []
        if chosen:
            plan = await anyio.to_thread.run_sync(self._plan, find_host(chosen), ())
            servers = [self._offered(adoption) for adoption in plan.adoptions]

        return self._site.page(
            request,
            "server_import.html",
            hosts=hosts,
            chosen=chosen,
            servers=servers,
            problems=[] if plan is None else plan.problems,
        )

    async def take_over(self, request: Request) -> Response:
        """Import the servers that somebody has ticked."""
        told = await self._changed(partial(self._import, visitor_of(request), form_of(request)))
        return self._site.back(request, "/modules", told)

    def _import(self, visitor: Visitor, form: FormFields) -> str:
        expect_owner(visitor)
        names = form.all("which")
        if not names:
            raise EntryError("tick the servers that ideabridge is to take over")

        plan = self._plan(find_host(form.get("host")), names)
        seals = form.with_prefix("seal.")
        for adoption in plan.adoptions:
            if not self._may_take(adoption):
                raise EntryError(f"{adoption.shown_name} is not imported: {self._why(adoption)}")
            if seals.get(adoption.name) != _seal(adoption):
                raise EntryError(
                    f"{adoption.shown_name} has changed in {adoption.file} since the page showed "
                    "it: look at it again"
                )

        plan.check_files()
        plan.store_secrets()
        written = plan.write()
        plan.record(written)
        count = len(plan.adoptions)
        noun = "server" if count == 1 else "servers"
        return f"{count} {noun} of {plan.host.title} copied: {', '.join(names)}."

    def _hosts_here(self) -> list[Host]:
        environment = HostEnvironment(project=self._bridge.configuration.project.absolute())
        return [
            host for host in HOSTS if any(file.path.exists() for file in host.files(environment))
        ]

    def _plan(self, host: Host, names: Sequence[str]) -> ServerImport:
        project = self._bridge.configuration.project.absolute()
        file = self._read_file()
        config = None if file.scope == "user" else file.path
        targets = destinations(config, is_shared=file.in_repository, project=project)
        return plan_import(host, targets, project=project, names=names)

    def _may_take(self, adoption: Adoption) -> bool:
        is_changed_here = adoption.target.file == file_to_change(self._bridge.configuration)
        return adoption.adopted and is_changed_here

    def _why(self, adoption: Adoption) -> str:
        """Return why a server is not imported here, or "" if it may be."""
        if adoption.why or self._may_take(adoption):
            return adoption.why
        if adoption.verdict == "same":
            return "it is there already"
        return (
            f"it belongs into the project's file, {adoption.target.file}, which has to be trusted "
            "at a terminal: `ideabridge servers import` does that"
        )

    def _offered(self, adoption: Adoption) -> OfferedServer:
        return OfferedServer(
            name=adoption.name,
            verdict=adoption.verdict,
            why=self._why(adoption),
            starts=started_by(adoption.entry),
            source=f"{adoption.file} ({adoption.scope})",
            notes=adoption.all_notes if adoption.adopted else [],
            seal=_seal(adoption) if self._may_take(adoption) else "",
        )

    # -- the file ----------------------------------------------------------------------------------

    def _read_file(self) -> EntryFile:
        """Read the file that the page changes.

        Raises:
            NoServersFileError: the server does not follow a file.
            HostFileError: the file cannot be read.
        """
        path = file_to_change(self._bridge.configuration)
        if path is None or self._site.front.reloading is None:
            raise NoServersFileError(
                "this server was started by a program that gives it its configuration, so its "
                "servers cannot be changed here"
            )
        is_own = path == user_file() or is_user_file(path)
        return read_entry_file(path, "user" if is_own else "file", None)

    async def _changed(self, work: Callable[[], _Result]) -> _Result:
        """Change a file in a thread, and let this process follow it at once."""
        result = await anyio.to_thread.run_sync(work)
        reloading = self._site.front.reloading
        if reloading is not None:
            await reloading.look()
        return result

    def _record(self, what: str, *edited: EditedFile) -> None:
        project = self._bridge.configuration.project.absolute()
        record_edit(_COMMAND, project, edited, what=what)


@dataclass(frozen=True, slots=True)
class LatestChange:
    """The latest change to the servers that can be undone.

    Attributes:
        id: its id in the form that undoes it.
        what: a text for users that describes the change.
        at: the time of the change, in seconds since 1970.
    """

    id: str
    what: str
    at: float


def latest_change(configuration: Configuration) -> LatestChange | None:
    """Return the latest change that can be undone, or None if there is none. Blocks.

    Raises:
        HostFileError: the notes about changes cannot be read.
    """
    path = file_to_change(configuration)
    edits = [] if path is None else _edits(path)
    if not edits:
        return None
    return LatestChange(_id_of(edits[0]), _words_of(edits[0]), edits[0].at.timestamp())


def file_to_change(configuration: Configuration) -> Path | None:
    """Return the file whose servers the page changes: the one that the server was started with, or
    else the user's own. Return None if a program has given the configuration.
    """
    if configuration.embedded:
        return None
    for layer in configuration.layers:
        if not layer.is_own and not layer.is_project:
            return layer.file
    return user_file()


def is_changed_here(configuration: Configuration, name: str) -> bool:
    """Return whether the entry of a server is in the file that the page changes."""
    layer = configuration.layer_of(name)
    return layer is not None and layer.file == file_to_change(configuration)


def _typed_entry(form: FormFields, visitor: Visitor) -> JSONObject:
    """Return the entry that somebody has typed.

    Raises:
        EntryError: it is incomplete, or a line has another form.
        NotTheOwnerError: it is a command, or reads variables or secrets of the owner, and the
            visitor is not the owner.
    """
    try:
        words = shlex.split(form.get("start"))
    except ValueError as error:
        raise FieldError("start", str(error)) from None
    if not words:
        raise FieldError("start", "write the command that starts the server, or its address")

    if len(words) == 1 and is_server_address(words[0]):
        headers = dict(_pairs(form, "headers", header_of, "a header", "NAME: VALUE"))
        entry = address_entry(words[0], headers)
        if not visitor.is_owner and "${" in encode_text(entry):
            raise NotTheOwnerError(
                "only the owner may use variables and stored secrets, in a session that began with "
                "the owner's link: write no ${...}"
            )
        return entry

    expect_owner(visitor)
    variables = dict(_pairs(form, "env", variable_of, "a variable", "KEY=VALUE"))
    try:
        entry = program_entry(words, variables)
    except EntryError as error:
        raise FieldError("start", str(error)) from None

    command = words[0]
    if "/" in command and not command.startswith(("/", "~", "$")):
        raise FieldError(
            "start",
            f"the command {command[:100]!r} is a relative path: write an absolute one, or the name "
            "of a program",
        )
    return entry


def _pairs(
    form: FormFields,
    field: str,
    read: Callable[[str], tuple[str, str] | None],
    what: str,
    expected: str,
) -> Iterable[tuple[str, str]]:
    """Yield the name and the value of each line that is not empty."""
    for number, line in enumerate(form.get(field).splitlines(), 1):
        if not line.strip():
            continue
        pair = read(line.strip())
        if pair is None:
            # The line might be a secret.
            raise FieldError(field, f"{what} in line {number}: expected {expected}")
        yield pair


def _edits(path: Path) -> list[RecordedEdit]:
    """Return the changes of a file that the page undoes, the latest first: its own, and imports."""
    return [
        edit
        for edit in edits_of(path)
        if edit.command == _COMMAND or edit.command.startswith(_IMPORTS)
    ]


def _id_of(edit: RecordedEdit) -> str:
    return edit.at.isoformat()


def _words_of(edit: RecordedEdit) -> str:
    if edit.what:
        return edit.what
    names = ", ".join(entry.name for file in edit.files for entry in file.entries)
    return f"{edit.command} ({names})"


def _back_line(edit: RecordedEdit) -> str:
    """Return a sentence that says what is so again after an edit is undone."""
    entries = [entry for edited in edit.files for entry in edited.entries]
    before = [name for edited in edit.files for name in entries_before(edited)]
    if len(entries) == 1 and edit.what.endswith(" was removed") and before:
        return f"{before[0]} is back."
    return f"Undone: {_words_of(edit)}."


def _left_line(undone: UndoneFile) -> str:
    if not undone.left:
        return ""
    return f"{', '.join(undone.left)} stays: somebody has added another server of this name since."


def _brings_back_a_command(edit: RecordedEdit, file: EntryFile) -> bool:
    """Return whether undoing an edit writes a command that the file does not have now."""
    for edited in edit.files:
        for name, former in entries_before(edited).items():
            before = object_or_empty(former)
            now = object_or_empty(file.servers.get(name))
            if "command" in before and switched(before, on=True) != switched(now, on=True):
                return True
    return False


def _staying_secrets(entry: JSONObject) -> list[str]:
    return [
        f"Its secret {name} stays: `ideabridge secrets remove {name}` removes it."
        for name in secrets_named_in(entry)
    ]


def _seal(adoption: Adoption) -> str:
    """Return a text that identifies what the page shows of a server."""
    shown: JSON = [adoption.name, adoption.entry, str(adoption.file), str(adoption.target.file)]
    return hashlib.sha256(encode(shown)).hexdigest()
