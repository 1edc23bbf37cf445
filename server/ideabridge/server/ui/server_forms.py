"""Add, change, import, enable, disable and remove servers on the page.

The page changes the file that the server was started with or, without such a file, the user's own
file. It does so in the same way as `ideabridge servers`: the entry is checked, its secrets go to
the keyring, the rest of the file is unchanged byte for byte, and each change can be undone. The
page does not change a project's file, because a person at a terminal has to review what this file
starts.

A command runs with the owner's rights. Therefore, only the owner can add a command, and only in a
session that began with the owner's link, because an assistant's files may contain a token that a
model could find.

Before an entry with values is written, a second page shows what changes and asks which values are
secrets. Until the answer arrives, this process keeps the typed entry (`_Drafts`), so that no secret
is sent back to the browser.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import (
    Configuration,
    ConfigurationError,
    is_user_file,
    user_file,
)
from ideabridge.bridge.loop.policy import policy_named
from ideabridge.bridge.loop.standing import coverable
from ideabridge.bridge.server_entry import name_problem
from ideabridge.bridge.store.rule_changes import ALWAYS, ASKS, DENIED, RUNS, RuleChange
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
    PlannedEntry,
    ServerExistsError,
    carry_secrets,
    is_on,
    missing_program,
    plan_addition,
    plan_change,
    read_entry_file,
    readable_values,
    secrets_named_in,
    started_by,
    switched,
)
from ideabridge.server.hosts.host import HostEnvironment, HostFileError
from ideabridge.server.hosts.importing import ServerImport, destinations, plan_import
from ideabridge.server.hosts.table import HOSTS, Host, find_host, host_title
from ideabridge.server.ui.access import (
    FormFields,
    Note,
    NotTheOwnerError,
    PageLink,
    Visitor,
    expect_manager,
    expect_owner,
    form_of,
    visitor_of,
)
from ideabridge.server.ui.connecting import ClientEntries
from ideabridge.server.ui.known_servers import KNOWN_SERVERS, folder_of, known_server
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.typed_server import (
    LABELS,
    FieldError,
    TypedValue,
    edited_entry,
    expect_may_edit,
    fields_of_entry,
    masked_form,
    new_settings,
    seal_of,
    typed_entry,
    typed_values,
    unmasked_form,
)
from ideabridge.tools.encoding import JSON, JSONObject, encode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.names import counted
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Tool

_COMMAND: Final = "page"
"""The command that is recorded for changes made on the page."""

_IMPORTS: Final = "servers import "

_FIELDS: Final = {
    "url": "address",
    "command": "command",
    "args": "command",
    "cwd": "cwd",
    "env": "env",
    "headers": "headers",
    "allow": "allow",
    "deny": "deny",
    "start": "begins",
    "idle": "idle",
    "sharing": "sharing",
    "parallel": "parallel",
    "timeout": "timeout",
    "connect_timeout": "connect_timeout",
}
"""The form's field for each key in an entry."""

_PLACED: Final = re.compile(
    rf"[^:]*: mcpServers\..+?\.(?P<key>{'|'.join(_FIELDS)})\b(?P<why>.*)", re.DOTALL
)
"""Matches a problem with an entry that says where in the entry it is. The text after the key is the
name of the variable or header.
"""

_MOST_CHECKED: Final = 100
"""Maximum number of published tools that are checked before and after a change."""

_Result = TypeVar("_Result")


class NoSessionError(IdeabridgeError):
    """Raised when a visitor without a session, who can only read the page, tries to add
    something.
    """


class NoServersFileError(IdeabridgeError):
    """Raised when the page cannot change the configuration of this server. The message says why."""


_MOST_DRAFTS: Final = 50
"""Maximum number of entries waiting for confirmation. The oldest are discarded."""

_DRAFT_SECONDS: Final = 3600.0
"""How long a typed entry waits for confirmation, in seconds."""


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """A typed server entry that has not been confirmed yet.

    Attributes:
        name: the name of the server.
        typed: the complete entry, with its secrets.
        before: the entry to replace, or None for a new server.
        session: the secret of the session in which the entry was typed.
        at: when the entry was typed, on the monotonic clock.
    """

    name: str
    typed: JSONObject = field(repr=False)
    before: JSONObject | None = field(repr=False)
    session: str = field(repr=False)
    at: float


@dataclass(frozen=True, slots=True)
class RefusedForm:
    """A refused form, which is shown again without the values of variables and headers.

    Attributes:
        form: the fields of the form, with these values.
        session: the secret of the session in which the form was filled in.
        at: when the form was filled in, on the monotonic clock.
    """

    form: FormFields = field(repr=False)
    session: str = field(repr=False)
    at: float


_Draft = TypeVar("_Draft", bound=ServerDraft | RefusedForm)


class _Drafts(Generic[_Draft]):
    """The drafts of all sessions, keyed by id."""

    def __init__(self) -> None:
        self._drafts: dict[str, _Draft] = {}

    def keep(self, draft: _Draft) -> str:
        """Keep a draft, and return its id."""
        oldest = draft.at - _DRAFT_SECONDS
        recent = [(key, other) for key, other in self._drafts.items() if other.at > oldest]
        self._drafts = dict(recent[1 - _MOST_DRAFTS :])
        draft_id = secrets.token_urlsafe(16)
        self._drafts[draft_id] = draft
        return draft_id

    def find(self, draft_id: str, visitor: Visitor) -> _Draft | None:
        """Return a draft, or None if the visitor's session has no draft with this id."""
        draft = self._drafts.get(draft_id)
        is_old = draft is not None and draft.at < time.monotonic() - _DRAFT_SECONDS
        if draft is None or is_old or draft.session != visitor.secret:
            return None
        return draft

    def forget(self, draft_id: str) -> None:
        """Forget a draft."""
        self._drafts.pop(draft_id, None)


@dataclass(frozen=True, slots=True)
class FormRefusal:
    """Why the page refused a server.

    Attributes:
        why: the reason.
        field: the field to correct, or "" if the reason is not about a single field.
        namesake: the server that already has the name, or "".
    """

    why: str
    field: str = ""
    namesake: str = ""


@dataclass(frozen=True, slots=True)
class ImportableServers:
    """The servers of a host, some of which can be imported.

    Attributes:
        host: the host.
        all: the number of its servers, not counting ideabridge.
        new: how many of these servers are not here yet.
    """

    host: Host
    all: int
    new: int


@dataclass(frozen=True, slots=True)
class OfferedServer:
    """A host's server that the page offers for import.

    Attributes:
        name: the name of the server.
        verdict: whether the server can be imported; see `AdoptionVerdict`.
        why: why the server is not imported, or "".
        starts: the server's command or address, without secrets.
        source: the host's file that lists the server.
        notes: sentences that say what the import changes about the server.
        moved: for each secret, a sentence that says where the import moves it.
        is_address: whether `starts` is an address.
        seal: identifies the entry that was shown, or "" if the server cannot be selected.
        replaces: the command or address of the server to be replaced, without secrets, or "".
    """

    name: str
    verdict: str
    why: str
    starts: str
    source: str
    notes: list[str]
    moved: list[str]
    is_address: bool
    seal: str
    replaces: str

    @property
    def secrets(self) -> int:
        """The number of its secrets."""
        return len(self.moved)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing an entry.

    Attributes:
        text: a message about the entry and the file to which it was written.
        missing: the entry's command if this machine has no such program, otherwise "".
    """

    text: str
    missing: str = ""


class ServerForms:
    """The forms that change the list of servers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        self._connections = ClientEntries(site)
        self._drafts = _Drafts[ServerDraft]()
        self._refused = _Drafts[RefusedForm]()

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/servers/add", self.show_add),
            Route("/servers/new", self.add, methods=["POST"]),
            Route("/servers/edit", self.show_edit),
            Route("/servers/edited", self.edit, methods=["POST"]),
            Route("/servers/check", self.show_check),
            Route("/servers/save", changing(self.save), methods=["POST"]),
            Route("/servers/import", self.show_import),
            Route("/servers/take", changing(self.take_over), methods=["POST"]),
            Route("/servers/change", changing(self.change), methods=["POST"]),
            Route("/servers/asking", changing(self.change_asking), methods=["POST"]),
            Route("/servers/undo", changing(self.undo), methods=["POST"]),
        ]

    # -- adding ------------------------------------------------------------------------------------

    async def show_add(self, request: Request) -> Response:
        """Show the servers to choose from or, after a choice, the form for a new server. The form
        names a file on this machine, so not every visitor may see it.
        """
        visitor = visitor_of(request)
        expect_manager(visitor)
        if not visitor.may_change:
            raise NoSessionError(
                "servers can be added only in a session; see above how to begin one"
            )
        can_add = file_to_change(self._bridge.configuration) is not None
        if can_add and "start" not in request.query_params:
            return await self._choice(request)

        known = known_server(request.query_params.get("start", ""))
        if known is None or (known.command and not visitor.is_owner):
            return self._add_form(request, FormFields([("kind", "command")]))
        taken = {status.name for status in self._bridge.modules.statuses()}
        return self._add_form(request, known.form(taken))

    async def _choice(self, request: Request) -> Response:
        """Show the assistants whose servers can be imported, and the known servers. Only the owner
        can import servers or add commands.
        """
        visitor = visitor_of(request)
        importable: list[ImportableServers] = []
        if visitor.is_owner:
            importable = await anyio.to_thread.run_sync(self._importable)
        return self._site.page(
            request,
            "server_choice.html",
            importable=importable,
            programs=[known for known in KNOWN_SERVERS if known.command and visitor.is_owner],
            services=[known for known in KNOWN_SERVERS if known.address],
            visible={status.name for status in self._site.servers(visitor)},
        )

    def _importable(self) -> list[ImportableServers]:
        """Return the hosts with servers that are not here yet."""
        importable: list[ImportableServers] = []
        for host in hosts_with_files(self._bridge.configuration):
            try:
                adoptions = self._plan(host, ()).adoptions
            except (HostFileError, NoServersFileError):
                # The import page says what is wrong. Other servers can be chosen here.
                continue
            new = [one for one in adoptions if one.verdict == "new" and self._may_take(one)]
            own = [one for one in adoptions if one.verdict not in ("ourselves", "shadowed")]
            if new:
                importable.append(ImportableServers(host, len(own), len(new)))
        return importable

    def _add_form(
        self, request: Request, form: FormFields, refusal: FormRefusal | None = None
    ) -> Response:
        """Show the form for a new server.

        After an error, the form contains what was typed, except that the values of variables and
        headers, which may be secrets, are shown as `•••`.
        """
        file = file_to_change(self._bridge.configuration)
        return self._site.page(
            request,
            "server_add.html",
            code=200 if refusal is None else 400,
            typed=masked_form(form),
            refused=self._keep_refused(request, form, refusal),
            settings=new_settings(),
            refusal=refusal,
            file=None if file is None else str(file),
            known=known_server(form.get("start")),
            visible={status.name for status in self._site.servers(visitor_of(request))},
        )

    def _keep_refused(self, request: Request, form: FormFields, refusal: FormRefusal | None) -> str:
        """Keep a refused form and return its id, or "" if the form was not refused."""
        if refusal is None:
            return ""
        session = visitor_of(request).secret
        return self._refused.keep(RefusedForm(form, session, time.monotonic()))

    def _filled_in(self, request: Request) -> FormFields:
        """Return the form of a request. If it was refused before, fill in the values that the page
        did not show again.
        """
        form = form_of(request)
        earlier = self._refused.find(form.get("refused"), visitor_of(request))
        return unmasked_form(form, FormFields() if earlier is None else earlier.form)

    async def add(self, request: Request) -> Response:
        """Add a server, or first show which of its values are assumed to be secrets.

        If the server is refused, show the form again with the reason.
        """
        form = self._filled_in(request)
        name = form.get("name").strip()
        visitor = visitor_of(request)
        expect_manager(visitor)
        try:
            completed = await anyio.to_thread.run_sync(self._completed, form, visitor)
            typed = self._typed(name, completed, visitor)
            planned = await anyio.to_thread.run_sync(self._planned, name, typed, None)
            # A command that the form did not show in full is shown before it is written.
            if completed is not form or _values_of(planned, typed):
                return self._to_check(request, name, typed, None)
            return await self._write(request, name, typed, None, {})
        except IdeabridgeError as error:
            return self._add_form(request, form, self._refusal(name, error))

    @staticmethod
    def _completed(form: FormFields, visitor: Visitor) -> FormFields:
        """Return the form, with the folder appended to its command if it is for a known server that
        needs a folder. Only the owner can find out which folders this computer has.
        """
        known = known_server(form.get("start"))
        if known is None or not known.folder:
            return form
        expect_owner(visitor)
        command = f"{form.get('command')} {shlex.quote(folder_of(form))}"
        others = [(name, text) for name, text in form.fields if name != "command"]
        return FormFields([*others, ("command", command)])

    @staticmethod
    def _typed(name: str, form: FormFields, visitor: Visitor) -> JSONObject:
        problem = name_problem(name)
        if problem is not None:
            raise FieldError("name", problem)
        return typed_entry(form, visitor)

    def _refusal(self, name: str, error: IdeabridgeError) -> FormRefusal:
        """Return the refusal to show in the form for an error."""
        why = self._bridge.secrets.mask(str(error))
        if isinstance(error, ServerExistsError):
            return FormRefusal("this file already has a server with this name", "name", name)
        if isinstance(error, FieldError):
            return FormRefusal(why, error.field)

        placed = _PLACED.fullmatch(why)
        if isinstance(error, ConfigurationError) and placed is not None:
            return FormRefusal(placed["why"].lstrip(".: "), _FIELDS[placed["key"]])
        return FormRefusal(why)

    # -- changing the entry ------------------------------------------------------------------------

    async def show_edit(self, request: Request) -> Response:
        """Show the form that changes a server."""
        visitor = visitor_of(request)
        expect_manager(visitor)
        if not visitor.may_change:
            raise NoSessionError(
                "servers can be changed only in a session; see above how to begin one"
            )
        name = request.query_params.get("name", "")
        self._expect_server(name, visitor)
        entry = await anyio.to_thread.run_sync(self._entry, name)
        expect_may_edit(entry, visitor)
        return self._edit_form(request, name, entry, fields_of_entry(entry).as_typed())

    def _edit_form(
        self,
        request: Request,
        name: str,
        entry: JSONObject,
        form: FormFields,
        refusal: FormRefusal | None = None,
    ) -> Response:
        fields = fields_of_entry(entry)
        return self._site.page(
            request,
            "server_edit.html",
            code=200 if refusal is None else 400,
            name=name,
            fields=fields,
            settings=fields.settings,
            typed=masked_form(form, fields.values),
            refused=self._keep_refused(request, form, refusal),
            refusal=refusal,
            file=str(file_to_change(self._bridge.configuration)),
        )

    async def edit(self, request: Request) -> Response:
        """Show what a form would change. If the change is refused, show the form again."""
        form = self._filled_in(request)
        name = form.get("name")
        visitor = visitor_of(request)
        expect_manager(visitor)
        self._expect_server(name, visitor)
        entry = await anyio.to_thread.run_sync(self._entry, name)
        expect_may_edit(entry, visitor)
        try:
            if form.get("seal") != seal_of(entry):
                raise EntryError(
                    f"{name} has changed since this page was shown; this is its current state"
                )
            typed = edited_entry(entry, form, visitor)
            await anyio.to_thread.run_sync(self._planned, name, typed, entry)
        except IdeabridgeError as error:
            return self._edit_form(request, name, entry, form, self._refusal(name, error))
        return self._to_check(request, name, typed, entry)

    def _expect_server(self, name: str, visitor: Visitor) -> None:
        """Raise `UnknownToolError` unless the visitor can see a server with this name."""
        if name not in {status.name for status in self._site.servers(visitor)}:
            raise UnknownToolError(f"there is no server {name[:100]!r}")

    def _entry(self, name: str) -> JSONObject:
        """Return a server's entry in the file that the page changes.

        Raises:
            EntryError: the entry is in another file.
        """
        return _entry_in(self._read_file(), name, "edit")

    # -- confirming --------------------------------------------------------------------------------

    def _to_check(
        self, request: Request, name: str, typed: JSONObject, before: JSONObject | None
    ) -> Response:
        """Keep the typed entry, and redirect to the page that asks for its confirmation."""
        session = visitor_of(request).secret
        draft_id = self._drafts.keep(ServerDraft(name, typed, before, session, time.monotonic()))
        return self._site.back(request, f"/servers/check?draft={draft_id}")

    def _draft(self, draft_id: str, visitor: Visitor) -> ServerDraft:
        """Return the draft with this id.

        Raises:
            EntryError: the visitor's session has no such draft.
        """
        draft = self._drafts.find(draft_id, visitor)
        if draft is None:
            raise EntryError(
                "what you typed is no longer here, because it was already saved or has expired: "
                "type it again"
            )
        return draft

    async def show_check(self, request: Request) -> Response:
        """Show the entry that would be written, and which of its values are assumed to be
        secrets.
        """
        visitor = visitor_of(request)
        draft_id = request.query_params.get("draft", "")
        draft = self._draft(draft_id, visitor)
        planned = await anyio.to_thread.run_sync(
            self._planned, draft.name, draft.typed, draft.before
        )
        return self._site.page(
            request,
            "server_check.html",
            draft=draft_id,
            name=draft.name,
            is_new=draft.before is None,
            starts=started_by(planned.entry),
            is_address="url" in planned.entry,
            changes=planned.changes,
            labels=LABELS,
            values=_values_of(planned, draft.typed),
            file=str(planned.file.path),
        )

    async def save(self, request: Request) -> Response:
        """Write the entry that a person has confirmed."""
        visitor = visitor_of(request)
        expect_manager(visitor)
        form = form_of(request)
        draft_id = form.get("draft")
        draft = self._draft(draft_id, visitor)
        ticked = form.all("is_secret")
        chosen = {place: place in ticked for place in form.all("shown")}
        response = await self._write(request, draft.name, draft.typed, draft.before, chosen)
        self._drafts.forget(draft_id)
        return response

    async def _write(
        self,
        request: Request,
        name: str,
        typed: JSONObject,
        before: JSONObject | None,
        chosen: Mapping[str, bool],
    ) -> Response:
        """Write an entry, and show the server."""
        written = await self._changed(partial(self._save, name, typed, before, chosen))
        kind = "ask" if written.missing else "good"
        place = f"/modules/{quote(name, safe='')}"
        return self._site.back(request, place, written.text, kind=kind)

    def _planned(
        self,
        name: str,
        typed: JSONObject,
        before: JSONObject | None,
        chosen: Mapping[str, bool] | None = None,
    ) -> PlannedEntry:
        """Return the entry that would be written. This method blocks.

        Raises:
            EntryError: the entry in the file is not the one to replace.
        """
        file = self._read_file()
        if before is None:
            return plan_addition(file, name, typed, chosen or {})
        if _entry_in(file, name, "edit") != before:
            raise EntryError(f"{name} has changed since this page was shown: review it again")
        return plan_change(file, name, typed, chosen or {})

    def _save(
        self,
        name: str,
        typed: JSONObject,
        before: JSONObject | None,
        chosen: Mapping[str, bool],
    ) -> Written:
        planned = self._planned(name, typed, before, chosen)
        stored_in = planned.store_secrets()
        edited = planned.file.write(name, planned.entry)
        change = "added" if before is None else "changed"
        self._record(f"{name} was {change}", edited)
        if before is not None:
            carry_secrets(planned.file, name, before, planned.entry)
        return _written(planned, stored_in)

    # -- enabling, disabling, removing -------------------------------------------------------------

    async def change(self, request: Request) -> Response:
        """Turn a server on or off, or remove it."""
        visitor = visitor_of(request)
        expect_manager(visitor)
        form = form_of(request)
        name = form.get("name")
        self._expect_server(name, visitor)
        callable_before = self._callable_tools(visitor)
        told = await self._changed(partial(self._change, name, form.get("action")))
        lost = sorted(callable_before - self._callable_tools(visitor))
        if not lost:
            return self._site.back(request, "/modules", told)

        told += f"\nPublished tools that need it, and cannot be called now: {', '.join(lost)}."
        return self._site.back(request, "/modules", told, kind="ask")

    async def change_asking(self, request: Request) -> Response:
        """Make calls of a tool ask for approval even though its server says that it is read-only,
        or undo this.
        """
        visitor = visitor_of(request)
        expect_manager(visitor)
        form = form_of(request)
        name = form.get("name")
        self._expect_server(name, visitor)
        looked_for = form.get("tool")
        known = self._bridge.modules[name].known_tools
        tool = next((tool for tool in known if tool.name_in_module == looked_for), None)
        if tool is None:
            raise UnknownToolError(f"{name} has no tool {looked_for[:80]!r}")

        asks = form.get("action") == "ask"
        before = _rule_for_calls(self._bridge, tool, visitor)
        told = await self._changed(partial(self._change_asking, name, tool, asks=asks))
        rules = self._bridge.standing_rules
        covered = coverable(tool)
        if asks and rules is not None and covered is not None:
            await compute_in_thread(rules.withdraw_all, visitor.caller, covered)
        after = RUNS if not asks and is_read_only_to_server(tool) else ASKS
        if after != before:
            by = visitor.decider.to_json()
            change = RuleChange(time.time(), by, name, tool.name_in_module, before, after)
            await compute_in_thread(self._bridge.store.rule_changes.add, visitor.caller, change)
        visitor.notes.append(Note("good", told))
        return self._site.back_to_form(request)

    def _change_asking(self, server: str, tool: Tool, *, asks: bool) -> str:
        name = tool.name_in_module
        file = self._read_file()
        before = _entry_in(file, server, "edit")
        tools = object_or_empty(before.get("tools"))
        settings = dict(object_or_empty(tools.get(name)))
        settings.pop("read_only", None)
        if asks:
            settings["read_only"] = False

        changed: JSONObject = {key: value for key, value in tools.items() if key != name}
        if settings:
            changed[name] = settings
        entry: JSONObject = {key: value for key, value in before.items() if key != "tools"}
        if changed:
            entry["tools"] = changed

        what = f"{name} of {server} follows its server"
        if asks:
            what = f"{name} of {server} asks first"
        elif is_read_only_to_server(tool):
            what = f"{name} of {server} runs without asking"

        self._record(what, file.write(server, entry))
        return f"{what}." if asks else f"{what} again."

    def _callable_tools(self, visitor: Visitor) -> set[str]:
        """Return the names of the published tools that a visitor can call on this server. Only the
        first `_MOST_CHECKED` tools by name are checked.
        """
        tools = self._bridge.store.publications.page(_MOST_CHECKED, caller=visitor.scope)
        return {
            tool.name
            for tool in tools.items
            if self._bridge.why_not_here(tool, caller=visitor.caller) is None
        }

    def _change(self, name: str, action: str) -> str:
        file = self._read_file()
        before = _entry_in(file, name, action)
        if action == "remove":
            self._record(f"{name} was removed", file.write(name, None))
            return "\n".join([f"{name} is removed.", *_staying_secrets(before)])
        if action not in ("enable", "disable"):
            raise EntryError(f"action: expected enable, disable or remove, found {action[:40]!r}")

        on = action == "enable"
        word = "on" if on else "off"
        if is_on(before) == on:
            return f"{name} is already {word}."
        self._record(f"{name} was turned {word}", file.write(name, switched(before, on=on)))
        return f"{name} is turned {word}."

    # -- undoing -----------------------------------------------------------------------------------

    async def undo(self, request: Request) -> Response:
        """Undo one change to the list of servers."""
        edit_id = form_of(request).get("edit")
        told = await self._changed(partial(self._undo, visitor_of(request), edit_id))
        return self._site.back(request, "/modules", told)

    def _undo(self, visitor: Visitor, edit_id: str) -> str:
        expect_manager(visitor)
        file = self._read_file()
        edit = next((edit for edit in _edits(file.path) if _id_of(edit) == edit_id), None)
        if edit is None:
            raise EntryError("this change was already undone, or is no longer known")

        if not visitor.is_owner and _brings_back_a_command(edit, file):
            raise NotTheOwnerError(
                "this would restore a command, which only the owner may do, in a session that "
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
        self._carry_back(edit, file)
        lines += [line for entry in named for line in _staying_secrets(object_or_empty(entry))]
        return "\n".join(line for line in lines if line)

    def _carry_back(self, edit: RecordedEdit, file: EntryFile) -> None:
        """After an edit has been undone, let the restored entries use their previous secrets
        again.
        """
        restored = self._read_file()
        for name in {entry.name for edited in edit.files for entry in edited.entries}:
            if name in file.servers and name in restored.servers:
                carry_secrets(restored, name, file.entry(name), restored.entry(name))

    # -- importing ---------------------------------------------------------------------------------

    async def show_import(self, request: Request) -> Response:
        """Show the hosts with files on this machine, and the servers of one host."""
        visitor = visitor_of(request)
        expect_owner(visitor)
        hosts = await anyio.to_thread.run_sync(hosts_with_files, self._bridge.configuration)
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
            title="" if plan is None else plan.host.title,
            servers=servers,
            problems=[] if plan is None else plan.problems,
        )

    async def take_over(self, request: Request) -> Response:
        """Import the servers that the owner has selected."""
        form = form_of(request)
        message = await self._changed(partial(self._import, visitor_of(request), form))
        host = find_host(form.get("host"))
        link: PageLink | None = None
        if await anyio.to_thread.run_sync(self._connections.may_connect, host):
            link = PageLink(f"/assistants#client-{host.name}", f"Connect {host.title}")
        return self._site.back(request, "/modules", message, link=link)

    def _import(self, visitor: Visitor, form: FormFields) -> str:
        expect_owner(visitor)
        chosen = form.with_prefix("replace.").items()
        names = [*form.all("which"), *(name for name, answer in chosen if answer == "yes")]
        if not names:
            raise EntryError("choose the servers to import")

        plan = self._plan(find_host(form.get("host")), names)
        seals = form.with_prefix("seal.")
        for adoption in plan.adoptions:
            if not self._may_take(adoption):
                raise EntryError(f"{adoption.shown_name} was not imported: {self._why(adoption)}")
            if seals.get(adoption.name) != _seal(adoption):
                raise EntryError(
                    f"{adoption.shown_name} has changed in {adoption.file} since this page was "
                    "shown: review it again"
                )

        plan.check_files()
        plan.store_secrets()
        written = plan.write()
        plan.record(written)
        servers = counted(len(plan.adoptions), "server")
        return f"{servers} of {plan.host.title} copied: {', '.join(names)}."

    def _plan(self, host: Host, names: Sequence[str]) -> ServerImport:
        project = self._bridge.configuration.project.absolute()
        file = self._read_file()
        config = None if file.scope == "user" else file.path
        targets = destinations(config, is_shared=file.in_repository, project=project)
        # A server that replaces another one is not ticked, and its seal names the one that it
        # replaces.
        return plan_import(host, targets, project=project, names=names, replaces=True)

    def _may_take(self, adoption: Adoption) -> bool:
        is_changed_here = adoption.target.file == file_to_change(self._bridge.configuration)
        return adoption.adopted and is_changed_here

    def _why(self, adoption: Adoption) -> str:
        """Return why a server cannot be imported here, or "" if it can."""
        if adoption.why or self._may_take(adoption):
            return adoption.why
        if adoption.verdict == "same":
            return "it is already there"
        return (
            f"it belongs in the project's file, {adoption.target.file}, which has to be trusted at "
            "a terminal: `ideabridge servers import` does that"
        )

    def _offered(self, adoption: Adoption) -> OfferedServer:
        may_take = self._may_take(adoption)
        replaces = ""
        if may_take and adoption.verdict == "replaced":
            replaces = started_by(object_or_empty(adoption.target.servers.get(adoption.name)))
        return OfferedServer(
            name=adoption.name,
            verdict=adoption.verdict,
            why=self._why(adoption),
            starts=started_by(adoption.entry),
            source=f"{adoption.file} ({adoption.scope})",
            notes=list(adoption.notes) if adoption.adopted else [],
            moved=adoption.moved_secrets if adoption.adopted else [],
            is_address="url" in adoption.entry,
            seal=_seal(adoption) if may_take else "",
            replaces=replaces,
        )

    # -- the file ----------------------------------------------------------------------------------

    def _read_file(self) -> EntryFile:
        """Read the file that the page changes.

        Raises:
            NoServersFileError: this server's configuration does not come from a file.
            HostFileError: the file cannot be read.
        """
        path = file_to_change(self._bridge.configuration)
        if path is None or self._site.front.reloading is None:
            raise NoServersFileError(
                "this ideabridge was started by a program that gives it its configuration, so its "
                "servers cannot be changed here"
            )
        is_own = path == user_file() or is_user_file(path)
        return read_entry_file(path, "user" if is_own else "file", None)

    async def _changed(self, work: Callable[[], _Result]) -> _Result:
        """Change a file in a thread, and apply the change to this process immediately."""
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
    """The latest undoable change to the servers.

    Attributes:
        id: the id of the change for the form that undoes it.
        what: a description of the change for users.
        at: the time of the change, in seconds since 1970.
    """

    id: str
    what: str
    at: float


def latest_change(configuration: Configuration) -> LatestChange | None:
    """Return the latest change, or None if no change can be undone. This function blocks.

    Raises:
        HostFileError: the record of changes cannot be read.
    """
    path = file_to_change(configuration)
    edits = [] if path is None else _edits(path)
    if not edits:
        return None
    return LatestChange(_id_of(edits[0]), _words_of(edits[0]), edits[0].at.timestamp())


def file_to_change(configuration: Configuration) -> Path | None:
    """Return the file whose servers the page changes: the file that the server was started with or,
    without such a file, the user's own. Return None if a program passed in the configuration.
    """
    if configuration.embedded:
        return None
    for layer in configuration.layers:
        if not layer.is_own and not layer.is_project:
            return layer.file
    return user_file()


def _rule_for_calls(bridge: Bridge, tool: Tool, visitor: Visitor) -> str:
    """Return the rule for the visitor's calls of a tool; see `RuleChange.before`."""
    verdict = policy_named(bridge.configuration.approval_setting)(tool, {}).verdict
    if verdict != "ask":
        return RUNS if verdict == "allow" else DENIED

    rules = bridge.standing_rules
    covered = coverable(tool)
    if rules is None or covered is None or rules.covering(visitor.caller, covered) is None:
        return ASKS
    return ALWAYS


def is_read_only_to_server(tool: Tool) -> bool:
    """Return whether a tool's server says that the tool is read-only, regardless of a person's
    settings.
    """
    return (tool.passes_to or tool).annotations.read_only is True


def is_changed_here(configuration: Configuration, name: str) -> bool:
    """Return whether a server's entry is in the file that the page changes."""
    layer = configuration.layer_of(name)
    return layer is not None and layer.file == file_to_change(configuration)


def _entry_in(file: EntryFile, name: str, action: str) -> JSONObject:
    """Return a server's entry in a file.

    Raises:
        EntryError: the file has no such entry, or the value under its name is not an entry.
    """
    if name not in file.servers:
        raise EntryError(
            f"{name} is not in {file.path}: change it with `ideabridge servers {action}`"
        )
    return file.entry(name)


def _values_of(planned: PlannedEntry, typed: JSONObject) -> list[TypedValue]:
    """Return the values for which a person decides whether they are secrets."""
    return typed_values(typed, [place.place for place in planned.recognised.places])


def _written(planned: PlannedEntry, stored_in: str | None) -> Written:
    """Return the messages to show about an entry that was written."""
    name = planned.name
    if planned.before is None:
        lines = [f"{name} is added to {planned.file.path}."]
    else:
        lines = [f"{name} is changed in {planned.file.path}."]
    lines += [
        f"{place.place} is a secret ({place.why}): the file has ${{secret:{place.name}}}, and "
        f"{stored_in} the value."
        for place in planned.recognised.places
    ]
    if planned.in_plain_text:
        places = ", ".join(planned.in_plain_text)
        lines.append(f"{places}: in plain text in that file, but never shown.")
    readable = [
        place for place in readable_values(planned.entry) if place not in planned.in_plain_text
    ]
    if readable:
        lines.append(f"{', '.join(readable)}: readable in that file.")
    lines += [
        f"Its former secret {secret} stays, so that the change can be undone. Run `ideabridge "
        f"secrets remove {secret}` to remove it."
        for secret in planned.left_secrets()
    ]
    missing = missing_program(planned.entry)
    if missing is None:
        return Written("\n".join(lines))

    lines.insert(
        1,
        f"{missing} was not found on this machine, so the server cannot start. Install it, or "
        "edit the server.",
    )
    return Written("\n".join(lines), missing)


def hosts_with_files(configuration: Configuration) -> list[Host]:
    """Return the hosts with files on this machine. This function blocks."""
    environment = HostEnvironment(project=configuration.project.absolute())
    return [host for host in HOSTS if any(file.path.exists() for file in host.files(environment))]


def has_servers_to_import(configuration: Configuration, visitor: Visitor) -> bool:
    """Return whether a visitor can import servers from a host. This function blocks."""
    return visitor.is_owner and bool(hosts_with_files(configuration))


def _edits(path: Path) -> list[RecordedEdit]:
    """Return the changes to a file that the page can undo: imports and changes made on the page,
    latest first.
    """
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
    entries = [entry.name for file in edit.files for entry in file.entries]
    names = ", ".join(entries)
    if edit.command.startswith(_IMPORTS):
        host = host_title(edit.command.removeprefix(_IMPORTS))
        verb = "was" if len(entries) == 1 else "were"
        return f"{names} {verb} imported from {host}"
    return f"{edit.command} ({names})"


def _back_line(edit: RecordedEdit) -> str:
    """Return a sentence about the entries restored by undoing an edit."""
    entries = [entry for edited in edit.files for entry in edited.entries]
    before = [name for edited in edit.files for name in entries_before(edited)]
    if len(entries) == 1 and edit.what.endswith(" was removed") and before:
        return f"{before[0]} is back."
    return f"Undone: {_words_of(edit)}."


def _left_line(undone: UndoneFile) -> str:
    if not undone.left:
        return ""
    return (
        f"{', '.join(undone.left)} stays, because somebody has since added another server with "
        "this name."
    )


def _brings_back_a_command(edit: RecordedEdit, file: EntryFile) -> bool:
    """Return whether undoing an edit would write a command that is currently not in the file."""
    for edited in edit.files:
        for name, former in entries_before(edited).items():
            before = object_or_empty(former)
            now = object_or_empty(file.servers.get(name))
            if "command" in before and switched(before, on=True) != switched(now, on=True):
                return True
    return False


def _staying_secrets(entry: JSONObject) -> list[str]:
    return [
        f"Its secret {name} stays. Run `ideabridge secrets remove {name}` to remove it."
        for name in secrets_named_in(entry)
    ]


def _seal(adoption: Adoption) -> str:
    """Return a hash of everything that the page shows about a server."""
    target = adoption.target
    replaced = target.servers.get(adoption.name)
    shown: JSON = [adoption.name, adoption.entry, str(adoption.file), str(target.file), replaced]
    return hashlib.sha256(encode(shown)).hexdigest()
