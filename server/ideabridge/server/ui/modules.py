"""The pages of the servers behind this one, with their tools, the rule for each tool, and test
calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, cast
from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.modules.module import Module
from ideabridge.bridge.modules.server_log import LEVELS, ServerLogLine, ServerLogReader
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.modules.sign_ins import logout_command
from ideabridge.bridge.store.daily_use import ModuleUse
from ideabridge.bridge.store.users import user_of
from ideabridge.server.hosts.entries import started_by
from ideabridge.server.hosts.host import HostFileError
from ideabridge.server.ui.access import Visitor, expect_manager, form_of, visitor_of
from ideabridge.server.ui.forms import fields_of, number_from, read_fields, with_values
from ideabridge.server.ui.readable_names import has_words
from ideabridge.server.ui.server_forms import (
    LatestChange,
    has_servers_to_import,
    is_changed_here,
    latest_change,
)
from ideabridge.server.ui.servers_by_state import ServersByState
from ideabridge.server.ui.showing import light
from ideabridge.server.ui.sign_ins import can_sign_in, servers_to_sign_in_to
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.tool_policies import (
    OWN,
    OfferedRule,
    give_offered,
    offered_rule,
    page_of,
    tool_row,
)
from ideabridge.server.ui.trials import page_after, trial_of
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Tool

_MOST_TOOLS: Final = 100
"""Maximum number of a server's tools on one page."""

_NAMED_TOOLS: Final = 12
"""Maximum number of a server's tools that the list of servers names."""

_MOST_LINES: Final = 100
"""Maximum number of lines of a log on one page."""

_LAST_LINES: Final = 8
"""Number of the last lines of the log that the page of a failing server shows."""

_NEWEST: Final = 500
"""Number of the newest runs, and of the newest direct calls, among which the list looks for the
latest use of each server.
"""

_LATEST_USES: Final = 5
"""Maximum number of latest uses that the page of a server lists."""

_RETRY_SECONDS: Final = 10.0
"""Time, in seconds, for which a page waits for an attempt to connect that a visitor has
requested.
"""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server in the list.

    Attributes:
        status: the state of the server.
        tools: the names of the server's first tools.
        count: the number of known tools, whether or not they can be called now.
        latency: how long calls to the server take, in seconds, or None before the first call.
        used: when one of the visitor's latest runs or direct calls last used the server, in seconds
            since 1970, or None if none of them did.
        is_changed_here: whether the page can change the server's entry.
    """

    status: ModuleStatus
    tools: list[str]
    count: int
    latency: float | None
    used: float | None
    is_changed_here: bool


@dataclass(frozen=True, slots=True)
class LogView:
    """A visitor's filter for a log: the words that lines must contain, and the level of
    messages.
    """

    words: str
    level: str

    def shows(self, line: ServerLogLine) -> bool:
        """Return whether a line matches the words and the level."""
        if self.level in LEVELS and not line.is_at_least(self.level):
            return False
        return self.words.casefold() in f"{line.logger} {line.text}".casefold()


class ModulePages:
    """The pages about servers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [
            Route("/modules", self.list),
            Route("/modules/{name}", self.show),
            Route("/modules/{name}/log", self.log),
            Route("/modules/{name}/tools/{tool:path}", self.show_tool),
            Route("/modules/{name}/allow", self._site.changing(self.allow), methods=["POST"]),
            Route("/modules/{name}/call", self._site.changing(self.call), methods=["POST"]),
            Route("/modules/{name}/retry", self._site.changing(self.retry), methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """Show every server that the visitor may use, with its state."""
        visitor = visitor_of(request)
        statuses = self._site.servers(visitor)
        rows = await anyio.to_thread.run_sync(self._rows, statuses, visitor)
        has_imports = not rows and await anyio.to_thread.run_sync(
            has_servers_to_import, self._bridge.configuration, visitor
        )
        change: LatestChange | None = None
        problems = [*self._site.unused_files(visitor)]
        if visitor.manages and visitor.may_change:
            try:
                change = await anyio.to_thread.run_sync(latest_change, self._bridge.configuration)
            except HostFileError as error:
                # Show the servers even if the notes about changes are damaged.
                problems.append(str(error))

        return self._site.page(
            request,
            "modules.html",
            unused_files=problems,
            rows=rows,
            by_state=ServersByState.of([row.status for row in rows]),
            has_imports=has_imports,
            own=len(self._tools(OWN, visitor)),
            own_name=OWN,
            change=change,
            profiles=self._bridge.configuration.profiles if visitor.manages else {},
            address=self._site.address,
        )

    def _rows(self, statuses: Sequence[ModuleStatus], visitor: Visitor) -> list[ServerRow]:
        """Return the rows of the list. This method blocks, because it reads configuration files and
        the store.
        """
        store = self._bridge.store
        store.ideas.index_all()
        used = store.daily_use.modules_used(_NEWEST, caller=visitor.scope)
        rows: list[ServerRow] = []
        for status in statuses:
            tools = self._tools(status.name, visitor)
            row = ServerRow(
                status,
                [tool.name for tool in tools[:_NAMED_TOOLS]],
                len(tools),
                self._bridge.modules[status.name].latency,
                used.get(status.name),
                visitor.manages and is_changed_here(self._bridge.configuration, status.name),
            )
            rows.append(row)

        # List servers that need a person's attention first.
        order = {"failing": 0, "needs sign-in": 1}
        return sorted(rows, key=lambda row: order.get(light(row.status), 2))

    def _latest_uses(self, name: str, visitor: Visitor) -> list[ModuleUse]:
        """Return which of a server's tools the visitor's newest runs called. This method blocks."""
        store = self._bridge.store
        store.ideas.index_all()
        return store.daily_use.latest_uses(name, _LATEST_USES, _NEWEST, caller=visitor.scope)

    def _own(self) -> list[Tool]:
        return [tool for tool in self._bridge.tools() if tool.module is None]

    def _tools(self, name: str, visitor: Visitor) -> list[Tool]:
        """Return the tools in the visitor's profile that come from a server or from this process.

        Raises:
            UnknownToolError: the server is not in the profile.
        """
        offer = self._bridge.offer.to(visitor.caller)
        if name == OWN and OWN not in self._bridge.modules:
            tools = self._own()
        elif offer.profile is not None and not offer.has_server(name):
            raise UnknownToolError(offer.profile.refusal("server", name))
        else:
            tools = self._bridge.modules[name].known_tools
        return [tool for tool in tools if offer.has_tool(tool)]

    def _tool(self, request: Request, remote_name: str) -> Tool:
        """Return a tool of the server named in the request's path.

        Raises:
            UnknownToolError: the server or the visitor's profile does not contain the tool.
        """
        name = request.path_params["name"]
        visitor = visitor_of(request)
        for tool in self._tools(name, visitor):
            if tool.name == remote_name:
                return tool

        reason = self._bridge.offer.to(visitor.caller).missing.why_refused(remote_name, name)
        raise UnknownToolError(reason or f"{name} has no tool {remote_name[:80]!r}")

    async def show(self, request: Request) -> Response:
        """Show one module with its state, its last output and its tools."""
        name = request.path_params["name"]
        visitor = visitor_of(request)
        words = request.query_params.get("q", "").strip()
        first = number_from(request.query_params.get("first", "0")) or 0
        tools = [
            tool
            for tool in sorted(self._tools(name, visitor), key=attrgetter("name"))
            if has_words(tool, words)
        ]
        module = None
        log_end: list[str] = []
        if name in self._bridge.modules:
            module = self._bridge.modules[name]
            status = module.status()
            if visitor.manages and light(status) == "failing":
                lines = await anyio.to_thread.run_sync(self._log_lines, name)
                # The page already shows the error.
                texts = [line.text for line in lines if line.text != status.error]
                log_end = texts[-_LAST_LINES:]

        return self._site.page(
            request,
            "module.html",
            name=name,
            own_name=OWN,
            module_status=None if module is None else module.status(),
            latency=None if module is None else module.latency,
            memory=None if module is None else await anyio.to_thread.run_sync(module.memory),
            # Show the last output only to the owner and admins, because it might contain arguments
            # from any caller.
            words=module.last_words if module is not None and visitor.manages else [],
            log_end=log_end,
            uses=[]
            if module is None
            else await anyio.to_thread.run_sync(self._latest_uses, name, visitor),
            asked=words,
            rows=[
                tool_row(self._bridge, tool, visitor) for tool in tools[first : first + _MOST_TOOLS]
            ],
            count=len(tools),
            can_sign_in=module is not None and can_sign_in(module.configuration, visitor),
            logout=logout_command(name, user_of(visitor.caller)),
            is_signed_in=module is not None and _is_signed_in(module, visitor),
            is_changed_here=is_changed_here(self._bridge.configuration, name),
            starts=_started_by(module) if module is not None and visitor.manages else "",
            remedy="" if module is None else _remedy(module.status()),
            must_be_edited=module is not None and _must_be_edited(module.status()),
            first=first,
            following=first + _MOST_TOOLS if len(tools) > first + _MOST_TOOLS else None,
        )

    async def show_tool(self, request: Request) -> Response:
        """Show one tool of a server, with a form that calls it."""
        tool = self._tool(request, request.path_params["tool"])
        visitor = visitor_of(request)
        trial = await trial_of(self._site, request)
        fields = fields_of(tool.parameters)
        offered: OfferedRule | None = None
        if "allow" in request.query_params:
            offered = await compute_in_thread(offered_rule, self._bridge, tool, visitor)

        return await self._site.page_beside(
            request,
            "module_tool.html",
            name=request.path_params["name"],
            row=tool_row(self._bridge, tool, visitor),
            offered=offered,
            fields=fields if trial is None else with_values(fields, trial.values),
            needs_sign_in=tool.module in servers_to_sign_in_to(self._bridge, visitor),
            trial=trial,
            is_changed_here=is_changed_here(
                self._bridge.configuration, request.path_params["name"]
            ),
        )

    async def allow(self, request: Request) -> Response:
        """Let one tool run without asking. The tool's page has explained what this allows."""
        visitor = visitor_of(request)
        form = form_of(request)
        tool = self._tool(request, form.get("tool"))
        await compute_in_thread(give_offered, self._bridge, tool, visitor, form.get("seal"))
        title = self._site.titles(visitor).with_server(tool.name, tool.module)
        text = f"From now on, {title} runs without asking."
        return self._site.back(request, f"/{page_of(self._bridge, tool)}", text)

    async def log(self, request: Request) -> Response:
        """Show the log of one server. The log can contain arguments from any caller, so only the
        owner and admins may see it.
        """
        name = request.path_params["name"]
        visitor = visitor_of(request)
        self._tools(name, visitor)
        expect_manager(visitor)
        view = LogView(
            request.query_params.get("q", "").strip(), request.query_params.get("level", "")
        )
        read = await anyio.to_thread.run_sync(self._log_lines, name)
        lines = [line for line in read if view.shows(line)]
        return self._site.page(
            request,
            "module_log.html",
            name=name,
            view=view,
            levels=LEVELS,
            lines=lines[: -_MOST_LINES - 1 : -1],
            more=max(0, len(lines) - _MOST_LINES),
            is_kept=self._bridge.configuration.log_file_of(name) is not None,
            can_sign_in=name in self._bridge.modules
            and can_sign_in(self._bridge.modules[name].configuration, visitor),
        )

    def _log_lines(self, name: str) -> list[ServerLogLine]:
        """Return the lines of a server's log, oldest first, or no lines if no log is kept. This
        method blocks.
        """
        file = self._bridge.configuration.log_file_of(name)
        if file is None:
            return []
        reader = ServerLogReader(file)
        return [*reader.earlier(), *reader.new()]

    async def call(self, request: Request) -> Response:
        """Call one tool by running a plan with one call, which is recorded and may need approval
        like any other plan.
        """
        visitor = visitor_of(request)
        form = form_of(request)
        tool = self._tool(request, form.get("tool"))
        call = {**read_fields(tool.parameters, form), "_tool": tool.name}
        if tool.module is not None:
            call["_module"] = tool.module

        run = await self._bridge.run_plan(
            calls=[call],
            output="†results.0",
            caller=visitor.caller,
            title=f"test of {tool.name}",
        )
        name = request.path_params["name"]
        page = f"modules/{quote(name, safe='')}/tools/{quote(tool.name, safe='')}"
        return self._site.back(request, await page_after(run, form, page))

    async def retry(self, request: Request) -> Response:
        """Immediately retry the connection to a failed server."""
        name = request.path_params["name"]
        visitor = visitor_of(request)
        expect_manager(visitor)
        self._tools(name, visitor)
        module = self._bridge.modules[name]
        await module.reconnect_now(_RETRY_SECONDS)
        status = module.status()
        if status.error is None:
            text = f"{name} is {light(status)}."
        else:
            text = f"ideabridge tried again: {name} is {light(status)}."
        kind = "good" if status.state == "up" else "ask"
        return self._site.back(request, f"/modules/{quote(name, safe='')}", text, kind=kind)


def _remedy(status: ModuleStatus) -> str:
    """Return a sentence that says how to repair a failing server, or "" if the server is not
    failing.
    """
    if light(status) != "failing":
        return ""
    if status.state == "unusable":
        return (
            "Its settings cannot be used: a variable or a secret that they name is missing, or a "
            "value is not understood. Correct them, or set the variable and try again."
        )
    if status.kind == "stdio":
        return (
            "ideabridge starts this server with a command. Check the command and its variables, or "
            "install the program and try again."
        )
    return (
        "ideabridge reaches this server at an address. Check that it is running, and that the "
        "address and the headers are right, and try again."
    )


def _must_be_edited(status: ModuleStatus) -> bool:
    """Return whether a server cannot start until someone corrects its command or settings."""
    return status.state == "unusable" or (status.kind == "stdio" and status.state == "failed")


def _started_by(module: Module) -> str:
    """Return the command or address of a server, without secrets."""
    entry = module.configuration.model_dump(mode="json", exclude_unset=True)
    return started_by(cast("JSONObject", entry))


def _is_signed_in(module: Module, visitor: Visitor) -> bool:
    """Return whether a visitor is signed in to a server. Return False for users, who have
    connections of their own that the server's connection says nothing about.
    """
    if user_of(visitor.caller) is not None:
        return False
    return module.has_token and can_sign_in(module.configuration, visitor)
