"""The page that connects assistants to ideabridge, as `ideabridge install` does, and shows which
assistants have called ideabridge lately.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Literal, get_args

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import Viewer
from ideabridge.server.hosts.block import paste_block, texts_with_entry
from ideabridge.server.hosts.editing.undo import (
    RecordedEdit,
    record_edit,
    recorded_edits,
    undo_edit,
)
from ideabridge.server.hosts.host import SERVER_NAME, HostEnvironment, HostFile, HostFileError
from ideabridge.server.hosts.program import lasting_program
from ideabridge.server.hosts.table import HOSTS, Host, find_host
from ideabridge.server.setup.inventory import is_installed
from ideabridge.server.ui.access import (
    Visitor,
    expect_owner,
    form_of,
    visitor_of,
)
from ideabridge.server.ui.askers import AskingProgram
from ideabridge.server.ui.last_days import first_of_last_days
from ideabridge.server.ui.site import Site
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.threads import compute_in_thread

_SEARCHED: Final = 100
"""Number of the latest runs, and of the latest direct calls, that are searched for assistants."""

_MOST_TOOLS: Final = 3
"""Maximum number of tools that the list names for each assistant."""


AssistantGroup = Literal["connected", "seen", "here", "elsewhere"]
"""The groups of assistants: those with an entry for ideabridge in their settings, those that called
lately without one, those that are installed on this machine, and all others.
"""


_GROUPS: Final[tuple[AssistantGroup, ...]] = get_args(AssistantGroup)


class NothingToUndoError(IdeabridgeError):
    """Raised when the assistant's file was not written, or when the change has already been
    undone.
    """


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """Instructions for connecting an assistant.

    Attributes:
        name: the name of the host.
        title: the name of the assistant's program.
        file: the file in which the program lists MCP servers.
        block: the text to add to this file.
        command: the host's own command for adding the entry, or "".
        is_here: whether the host is installed for this user.
        state: `missing` if the file has no entry named `ideabridge`, `other` if it has a different
            entry with this name, `connected` if it has this entry, and `unreadable` if it cannot be
            read or edited.
        problem: why the file cannot be read or edited, or "".
        can_undo: whether the change to the file can be undone.
    """

    name: str
    title: str
    file: str
    block: str
    command: str
    is_here: bool
    state: Literal["missing", "other", "connected", "unreadable"]
    problem: str
    can_undo: bool


@dataclass(frozen=True, slots=True)
class SeenAssistant:
    """An assistant that has called ideabridge lately.

    Attributes:
        asker: the assistant's program, in the version that called last.
        at: the time of the assistant's last call, in seconds since 1970.
        has_run: whether the assistant asked for a run rather than only calling tools directly.
        runs: the number of its runs in the last seven days.
        tools: the names of the tools that it used most in that time.
    """

    asker: AskingProgram
    at: float
    has_run: bool
    runs: int = 0
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assistant:
    """An assistant that can be connected or has called lately.

    Attributes:
        name: the name that people know the assistant by.
        entry: the instructions for connecting the assistant, or None if there are none or the
            visitor is not allowed to see them.
        seen: what the assistant did lately, or None if it has not called.
    """

    name: str
    entry: ClientEntry | None
    seen: SeenAssistant | None

    @property
    def group(self) -> AssistantGroup:
        """The group in which the page lists the assistant."""
        if self.entry is not None and self.entry.state == "connected":
            return "connected"
        if self.seen is not None:
            return "seen"
        if self.entry is not None and self.entry.is_here:
            return "here"
        return "elsewhere"


class ClientEntries:
    """The entries for ideabridge in assistants' files, which belong to the user of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    @property
    def _environment(self) -> HostEnvironment:
        return HostEnvironment(project=self._bridge.configuration.project.absolute())

    def _words(self) -> list[str]:
        commands = self._site.front.running.deciding.commands
        return [*lasting_program(shared=False).words, *commands.serve]

    def all(self, visitor: Visitor) -> list[ClientEntry]:
        """Return the instructions for connecting each assistant, with the assistants on this
        machine first.

        The page shows them only to the owner or an admin in a session, because they name files on
        this machine. This method blocks.
        """
        if not (visitor.manages and visitor.may_change):
            return []

        words = self._words()
        entries = [self._entry(host, words) for host in HOSTS if "user" in host.scopes()]
        return sorted(entries, key=lambda entry: not entry.is_here)

    def may_connect(self, host: Host) -> bool:
        """Return whether the host is not connected yet and the page can connect it. This method
        blocks.
        """
        if self._site.workspace is not None or "user" not in host.scopes():
            return False
        return self._entry(host, self._words()).state in ("missing", "other")

    def _entry(self, host: Host, words: list[str]) -> ClientEntry:
        file = host.target(self._environment, "user")
        entry = host.entry(words)
        state: Literal["missing", "other", "connected", "unreadable"] = "missing"
        problem = ""
        if file.path.exists():
            try:
                state = _state(file, entry)
            except HostFileError as error:
                state = "unreadable"
                problem = str(error)

        can_undo = False
        try:
            can_undo = _written(host, file) is not None
        except HostFileError as error:
            # The notes about changes are damaged.
            problem = problem or str(error)

        return ClientEntry(
            name=host.name,
            title=host.title,
            file=str(file.path),
            block=paste_block(file, SERVER_NAME, entry),
            command=shlex.join(host.shell_command("user", words)),
            is_here=is_installed(host, self._environment),
            state=state,
            problem=problem,
            can_undo=can_undo,
        )

    def write(self, host: Host) -> str:
        """Write the entry to a host's file, and return a message about the result. This method
        blocks.

        Raises:
            HostFileError: the file cannot be written.
        """
        file = host.target(self._environment, "user")
        before, after = texts_with_entry(file, host.entry(self._words()))
        if before.content == after.content:
            return f"{host.title} is already connected."

        record_edit(_command(host), self._environment.project, [after.edit()])
        return f"{host.title} is connected. Restart {host.title}, so that it sees ideabridge."

    def undo(self, host: Host) -> str:
        """Undo the last change to a host's file, and return a message about the result. This method
        blocks.

        Raises:
            NothingToUndoError: nothing was written.
            HostFileError: the file cannot be written.
        """
        edit = _written(host, host.target(self._environment, "user"))
        if edit is None:
            raise NothingToUndoError(f"there is nothing to undo for {host.title}")
        undo_edit(edit)
        return f"{host.title} is as it was before."


class AssistantsPage:
    """The page about assistants."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connections = ClientEntries(site)

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/assistants", self.show),
            Route("/assistants/write", changing(self.write), methods=["POST"]),
            Route("/assistants/undo", changing(self.undo), methods=["POST"]),
            # Keep the page's earlier address, because people may have bookmarked it.
            Route("/connect", self.move),
        ]

    async def show(self, request: Request) -> Response:
        """Show instructions for connecting assistants, and the assistants that have called
        lately.
        """
        visitor = visitor_of(request)
        entries = await anyio.to_thread.run_sync(self._connections.all, visitor)
        store = self._site.bridge.store
        assistants = await compute_in_thread(known_assistants, store, visitor, entries)
        return self._site.page(
            request,
            "assistants.html",
            groups={group: [one for one in assistants if one.group == group] for group in _GROUPS},
            can_connect=bool(entries),
        )

    async def move(self, _request: Request) -> Response:
        """Redirect from the page's former address to its current one."""
        return RedirectResponse(f"{self._site.prefix}/assistants", 303)

    async def write(self, request: Request) -> Response:
        """Connect an assistant."""
        return await self._change(request, self._connections.write)

    async def undo(self, request: Request) -> Response:
        """Disconnect an assistant that was connected on this page or with `ideabridge install`."""
        return await self._change(request, self._connections.undo)

    async def _change(self, request: Request, work: Callable[[Host], str]) -> Response:
        # Only the owner can connect an assistant, because it then starts a command with the owner's
        # rights.
        expect_owner(visitor_of(request))
        form = form_of(request)
        host = find_host(form.get("host"))
        message = await anyio.to_thread.run_sync(partial(work, host))
        # The first steps on Home have the same buttons, so go back there.
        page = "/home" if form.get("page") == "home" else "/assistants"
        return self._site.back(request, page, message)


def known_assistants(
    store: Store, visitor: Visitor, entries: Sequence[ClientEntry]
) -> list[Assistant]:
    """Return the assistants that have an entry or have called lately, by group. In each group, the
    assistant with the latest call comes first.

    Call this function in a thread, because it may have to index ideas first.
    """
    seen = _seen_assistants(store, visitor.scope)
    _add_week(seen, store, visitor.scope)
    assistants = [Assistant(entry.title, entry, seen.pop(entry.title, None)) for entry in entries]
    assistants += [Assistant(name, None, assistant) for name, assistant in seen.items()]

    def place(assistant: Assistant) -> tuple[int, float]:
        at = 0.0 if assistant.seen is None else assistant.seen.at
        return _GROUPS.index(assistant.group), -at

    return sorted(assistants, key=place)


def _seen_assistants(store: Store, scope: Viewer) -> dict[str, SeenAssistant]:
    """Return the assistants that made the latest runs and direct calls in a scope, keyed by
    name.
    """
    uses = [
        (run.client, datetime.fromisoformat(run.created).timestamp(), True)
        for run in store.runs.newest(scope, limit=_SEARCHED, rooms=False)
    ]
    direct_calls = store.direct_calls.page(_SEARCHED, caller=scope).items
    uses += [(call.client, call.at, False) for call in direct_calls]
    uses.sort(key=lambda use: use[1], reverse=True)

    seen: dict[str, SeenAssistant] = {}
    for client, at, is_run in uses:
        asker = AskingProgram.of(client)
        if asker is None or asker.is_page:
            continue
        latest = seen.setdefault(asker.name, SeenAssistant(asker, at, is_run))
        if is_run and not latest.has_run:
            seen[asker.name] = replace(latest, has_run=True)
    return seen


def _add_week(seen: dict[str, SeenAssistant], store: Store, scope: Viewer) -> None:
    """Add each assistant's number of runs and most used tools of the last seven days."""
    store.ideas.index_all()
    first = first_of_last_days().isoformat()
    runs = Counter[str]()
    for client, number in store.daily_use.runs_by_asker(first, caller=scope).items():
        runs[_name_of(client)] += number

    tools: dict[str, Counter[str]] = {}
    for client, used in store.daily_use.tools_by_asker(first, caller=scope).items():
        of_assistant = tools.setdefault(_name_of(client), Counter[str]())
        for tool in used:
            of_assistant[tool.tool] += tool.times

    for name, assistant in seen.items():
        most_used = tools.get(name, Counter[str]()).most_common(_MOST_TOOLS)
        names = tuple(tool for tool, _ in most_used)
        seen[name] = replace(assistant, runs=runs[name], tools=names)


def _name_of(client: str) -> str:
    """Return the name of the program that asked for runs, without its version."""
    asker = AskingProgram.of(client)
    return "" if asker is None else asker.name


def _command(host: Host) -> str:
    """Return the command that is recorded for a connection, so that the command line can undo the
    connection, too.
    """
    return f"install {host.name}"


def _written(host: Host, file: HostFile) -> RecordedEdit | None:
    """Return the last edit that connected a host, or None if no such edit can be undone.

    Raises:
        HostFileError: the record cannot be read.
    """
    for edit in recorded_edits(_command(host)):
        if all(edited.path == file.path for edited in edit.files):
            return edit
    return None


def _state(file: HostFile, entry: JSONObject) -> Literal["missing", "other", "connected"]:
    """Return whether a file has ideabridge's entry.

    Raises:
        HostFileError: the file cannot be read or edited.
    """
    before, after = texts_with_entry(file, entry)
    if before.content == after.content:
        return "connected"
    return "other" if SERVER_NAME in before.entries(file.keys) else "missing"
