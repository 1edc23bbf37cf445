"""The MCP server: a single `Front` handles the requests of all clients, over every transport and
protocol version.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.client_session import set_client_session
from ideabridge.bridge.store.errors import CursorError
from ideabridge.bridge.store.run_record import CLIENT
from ideabridge.bridge.store.users import LOCAL, in_profile
from ideabridge.server.announcements import Announcements
from ideabridge.server.answers import PLAIN_HOSTS, STRUCTURED_HOSTS, ToolAnswer, refusal
from ideabridge.server.asking.elicitation import TOOL as DECIDE
from ideabridge.server.asking.forms import COMMANDS, Commands
from ideabridge.server.asking.rounds import InputRequired, ToolRequest
from ideabridge.server.callers import (
    Context,
    Serving,
    caller_of,
    client_key,
    client_session_of,
    client_text,
)
from ideabridge.server.catalogue import CursorSyntaxError, ToolCatalogue
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.extensions.apps import URI as VIEW_URI
from ideabridge.server.extensions.apps import RunViews, wants_views, with_views
from ideabridge.server.extensions.apps import page as view_page
from ideabridge.server.extensions.skills import EXTENSION as SKILLS
from ideabridge.server.extensions.skills import GetSkillParams, IdeaSkills
from ideabridge.server.extensions.tasks import EXTENSION as TASKS
from ideabridge.server.extensions.tasks import (
    STARTING,
    WAIT_S,
    RunTasks,
    TaskParams,
    UpdateTaskParams,
    takes_tasks,
)
from ideabridge.server.offerings import Offerings
from ideabridge.server.operations.requests import note_failure, note_tool
from ideabridge.server.own_handlers import OwnHandlers
from ideabridge.server.own_tools import OWN_NAMES, VIEW_RUN
from ideabridge.server.reloading import Reloading
from ideabridge.server.running import CANCELLED, Running
from ideabridge.server.served_tools import PublishedTool
from ideabridge.server.transports.quotas import QuotaError, Quotas
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import MAX_BYTES, JSONObject, encode, normalise, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError, UnknownToolError
from ideabridge.tools.names import visible
from ideabridge.tools.threads import compute_beside
from ideabridge.tools.turns import asked_by

logger: Final = logging.getLogger(__name__)

NAME: Final = "ideabridge"
_USE: Final = (
    "For more than one call use run_plan: calls run concurrently by data flow, and large results "
    "stay out of your context."
)
_FRESH_MS: Final = 1000
_HELLO: Final = ("initialize", "server/discover")

MOST_INSTRUCTIONS: Final = 4000
"""Limit, in characters, on the combined instructions of all exposed servers. A model reads them at
the start of each conversation.
"""

MOST_REQUESTS: Final = 1000
"""Maximum number of requests from one caller that are in progress, including those that listen."""

MOST_RUNS: Final = 200
"""Maximum number of active runs of one caller in this process. Each run can have up to
`limits.parallel_calls` running calls.
"""

MOST_ARGUMENTS: Final = 32 * MAX_BYTES
"""Limit on the combined size, in bytes, of the arguments of a caller's calls in progress."""


_session_begun: ContextVar[float | None] = ContextVar("session_begun", default=None)
"""The time when the client of the current request connected; see `Announcements.begun`."""


class FrontServer(Server[Any]):
    """The SDK's server, extended to declare that its lists can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the options with every list marked as changeable. This method is overridden
        because the SDK provides no other way to pass these options to a server over HTTP.
        """
        changing = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )


class Front:
    """Connects the SDK to an open bridge. The task group must outlive the server.

    Args:
        bridge: the bridge.
        group: runs the work that continues after a request has ended.
        version: the version of ideabridge.
        commands: the commands for deciding about runs.
        quotas: counts what callers use, together with other servers in this process; None to count
            for this server alone.

    Attributes:
        group: the task group.
        reloading: follows the configuration files, or None if the configuration never changes.

    Raises:
        ProfileError: the configuration restricts everything to a profile that does not exist or
            cannot be used.
    """

    def __init__(
        self,
        bridge: Bridge,
        group: TaskGroup,
        version: str,
        commands: Commands = COMMANDS,
        quotas: Quotas | None = None,
    ) -> None:
        self._bridge = bridge
        self._serving = Serving()
        if bridge.configuration.restricted_to is not None:
            # This is how the profile restricts the client on stdio. Over HTTP, the gate restricts
            # each request.
            profile = bridge.profiles.named(bridge.configuration.restricted_to)
            self._serving = Serving(in_profile(profile.name, LOCAL))

        self.group = group
        self.reloading: Reloading | None = None
        self.quotas = Quotas() if quotas is None else quotas
        self.secrets = bridge.secrets
        self.running = Running(bridge, group, commands)
        self.direct_calls = DirectCalls(bridge)
        self.catalogue = ToolCatalogue(self.running, self.direct_calls)
        self.offerings = Offerings(bridge, self.running.relaying, self.running.module_views, group)
        self.announcements = Announcements(self.catalogue, self.quotas, self.offerings)
        bridge.modules.on_event = self.announcements.heard
        self.running.deciding.changed = self.announcements.tools_changed
        self.running.published = self.announcements.poke
        self._views = RunViews(bridge)
        self._skills = IdeaSkills(bridge)
        # For each client, the unused configured files that were named in the latest report to it.
        self._told: dict[Hashable, tuple[str, ...]] = {}
        self._own = OwnHandlers(self.running, self.catalogue, self.direct_calls)
        self._tasks = RunTasks(self.running)
        self.server = self._served(version)
        bridge.session_begun = _session_begun.get

    def disconnected(self, session: str) -> None:
        """Forget a client whose HTTP session has ended, and end the servers of that session."""
        self.announcements.disconnected(session)
        self._bridge.modules.end_session(session)

    def close(self) -> None:
        """End the requests that listen for changes, because the process is about to end.

        Runs are not affected, even if their clients disconnect now.
        """
        self.running.closing = True
        self.announcements.close()

    def follow_configuration(self) -> None:
        """Switch to the bridge's current configuration, and tell clients what has changed."""
        self.running.module_views.follow()
        self.direct_calls.follow()
        self.catalogue.follow()
        self.offerings.follow()
        self.announcements.follow()

    def _served(self, version: str) -> FrontServer:
        offerings = self.offerings
        announcements = self.announcements
        hint = CacheHint(ttl_ms=_FRESH_MS, scope="private")
        server = FrontServer(
            NAME,
            version=version,
            title="ideabridge",
            lifespan=self._lifespan,
            cache_hints={
                "tools/list": hint,
                "resources/list": hint,
                "resources/templates/list": CacheHint(ttl_ms=3_600_000, scope="public"),
                "resources/read": hint,
                "prompts/list": hint,
            },
            get_tool_input_schema=self.catalogue.input_schema,
            on_subscribe_resource=announcements.subscribe,
            on_unsubscribe_resource=announcements.unsubscribe,
            on_subscriptions_listen=announcements.on_listen,
        )
        # Add these handlers here, because their results are already in wire form, which the types
        # of the constructor do not allow.
        server.add_request_handler("tools/list", types.PaginatedRequestParams, self.list_tools)
        server.add_request_handler("tools/call", types.CallToolRequestParams, self.call_tool)
        server.add_request_handler(
            "resources/list", types.PaginatedRequestParams, offerings.resources
        )
        server.add_request_handler(
            "resources/templates/list", types.PaginatedRequestParams, offerings.templates
        )
        server.add_request_handler(
            "resources/read", types.ReadResourceRequestParams, self.read_resource
        )
        server.extensions.update({SKILLS: {}, TASKS: {}})
        server.add_request_handler("tasks/get", TaskParams, self.get_task)
        server.add_request_handler("tasks/update", UpdateTaskParams, self.update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel_task)
        server.add_request_handler("skills/list", types.PaginatedRequestParams, self._skills.page)
        server.add_request_handler("skills/get", GetSkillParams, self._skills.entry)
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, offerings.prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, offerings.prompt)
        server.add_request_handler(
            "completion/complete", types.CompleteRequestParams, offerings.complete
        )
        if offerings.has_modules:
            # Add this handler only if servers are exposed, because ideabridge itself sends no log
            # messages to clients.
            server.add_request_handler(
                "logging/setLevel", types.SetLevelRequestParams, offerings.set_log_level
            )

        server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, announcements.connected
        )
        server.middleware.append(self._guard)
        server.middleware.append(self.running.boundary(NAME))
        return server

    @asynccontextmanager
    async def _lifespan(self, _server: Server[Any]) -> AsyncGenerator[Serving]:
        yield self._serving

    def _instructions(self, caller: str) -> str:
        """Return the instructions of this server and of the servers whose tools hosts see.
        Instructions that are not known yet are omitted.
        """
        configuration = self._bridge.configuration
        offer = self._bridge.offer.to(caller)
        parts = [f"{self._behind(caller)} {_USE}"]
        if offer.profile is not None:
            parts[0] += (
                " This session has only the servers, tools and ideas of profile"
                f" {offer.profile.name!r}."
            )

        for sentence in configuration.unused_files:
            parts[0] += f" {self._bridge.secrets.mask(sentence)}"

        room = MOST_INSTRUCTIONS
        for name in self._bridge.modules.names:
            if configuration.exposes(name) and offer.has_server(name):
                text = visible(self._bridge.modules[name].instructions).strip()
            else:
                text = ""
            if text:
                parts.append(f"Instructions of the server {name}:\n{text}"[:room])
                room -= len(parts[-1])
            if room <= 0:
                break

        return "\n\n".join(parts)

    def _behind(self, caller: str) -> str:
        """Return a sentence about the servers and tools that a caller can reach through this
        server.
        """
        offer = self._bridge.offer.to(caller)
        has_servers = any(
            not module.disabled and offer.has_server(name)
            for name, module in self._bridge.configuration.modules.items()
        )
        built_in = builtin_toolbox()
        has_tools = any(
            tool.name not in built_in and offer.has_tool(tool) for tool in self._bridge.toolbox
        )
        if has_servers and has_tools:
            return "The MCP servers and own tools of the user are behind this one."
        if has_servers:
            return "The MCP servers of the user are behind this one."
        if has_tools:
            return "The user's own tools are behind this one; no MCP server is configured here."
        if self.catalogue.lists_ideas(caller):
            return (
                "This server offers tools that were published from runs; no MCP server is "
                "configured here."
            )

        return (
            "No MCP server and no tool of the user is configured here, so there are "
            "only the built-in tools."
        )

    async def _guard(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle all requests as middleware.

        It counts requests, records why they are cancelled, explains arguments that are not an
        object, and keeps internal details out of error messages.
        """
        if ctx.method == CANCELLED:
            self.running.cancellations.note(ctx)

        if ctx.method == "tools/call" and ctx.params is not None:
            arguments = ctx.params.get("arguments")
            if arguments is not None and not isinstance(arguments, dict):
                return refusal(f"arguments: expected an object, found {type(arguments).__name__}")

        _session_begun.set(self.announcements.begun(ctx))
        set_client_session(client_session_of(ctx))
        CLIENT.set(client_text(ctx, self._bridge.secrets.mask))
        try:
            # Count requests here, where their end is certain, because a request can still be in
            # progress after its client has disconnected.
            if ctx.request_id is None:
                return await call_next(ctx)
            with self.quotas.holding(caller_of(ctx), "requests in progress", MOST_REQUESTS):
                result = await call_next(ctx)

            if ctx.method in _HELLO and isinstance(result, dict):
                # The instructions depend on the caller and can change over time. The SDK has a
                # single text for all callers and, over stdio, keeps the one that it got at the
                # start.
                result["instructions"] = self._instructions(caller_of(ctx))

            return result
        except (MCPError, ValidationError):
            raise
        except QuotaError as error:
            if ctx.method == "tools/call":
                return refusal(str(error))
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        except IdeabridgeError as error:
            raise MCPError(types.INTERNAL_ERROR, self._bridge.secrets.mask(str(error))) from None
        except Exception as error:  # noqa: BLE001 - clients must not see internals
            self._log(ctx.method, error)
            raise MCPError(
                types.INTERNAL_ERROR,
                f"{ctx.method} failed because of an error in ideabridge itself",
            ) from None

    def _log(self, place: str, error: Exception) -> None:
        note_failure()
        text = self._bridge.secrets.mask("".join(traceback.format_exception(error)))
        logger.error("ideabridge: error in %s: %s", place[:64], text)

    # -- tools -------------------------------------------------------------------------------------

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> dict[str, Any]:
        """Return one page of tools. For the first page, this method waits for servers whose tools
        are not known yet. Tools that arrive later are announced.

        Raises:
            MCPError: the cursor does not come from this list.
        """
        if params is None or params.cursor is None:
            await self.catalogue.await_modules()

        try:
            tools, following = self.catalogue.page(
                params.cursor if params else None,
                caller_of(context),
                as_sent=self._takes_any_schema(context),
            )
            request = ToolRequest(caller_of(context), context)
            if not self.running.deciding.offers(request):
                tools = [tool for tool in tools if tool["name"] != DECIDE]

            module_views = self.running.module_views
            if module_views.module is not None:
                tools = [
                    tool
                    if self.catalogue.module_of(tool["name"]) == module_views.module
                    else module_views.for_models(tool)
                    for tool in tools
                ]
            elif wants_views(request):
                tools = with_views(tools)
        except (CursorSyntaxError, CursorError) as error:
            raise MCPError(types.INVALID_PARAMS, f"cursor: {error}") from None

        result: dict[str, Any] = {"tools": tools, "resultType": "complete"}
        if following is not None:
            result["nextCursor"] = following

        return result

    def _takes_any_schema(self, context: Context) -> bool:
        setting = self._bridge.configuration.schemas
        client = context.session.client_params
        if setting != "auto":
            return setting == "as_sent"
        return client is None or not _is_one_of(client, PLAIN_HOSTS)

    # -- tasks -------------------------------------------------------------------------------------

    async def get_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """See `RunTasks.get`."""
        return await self._tasks.get(params, ToolRequest(caller_of(context), context))

    async def update_task(self, context: Context, params: UpdateTaskParams) -> dict[str, Any]:
        """See `RunTasks.update`."""
        return await self._tasks.update(params, ToolRequest(caller_of(context), context))

    async def cancel_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """See `RunTasks.cancel`."""
        return await self._tasks.cancel(params, ToolRequest(caller_of(context), context))

    # -- resources and tools -----------------------------------------------------------------------

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> dict[str, Any] | types.ReadResourceResult:
        """Read a run's view, an idea, or a server's resource.

        Raises:
            MCPError: no resource has this URI, or its server refuses it.
        """
        uri = str(params.uri)
        if uri == VIEW_URI and self.running.module_views.module is None:
            return view_page()
        if uri.startswith("skill://"):
            return await self._skill_file(context, params)
        return await self.offerings.read(context, params)

    async def _skill_file(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> dict[str, Any] | types.ReadResourceResult:
        """Read a file of a skill. If no idea has such a skill, the file is read from a server,
        because servers can have their own skills.
        """
        try:
            return await self._skills.read(str(params.uri), caller_of(context))
        except MCPError:
            if not self.offerings.has_modules:
                raise
            return await self.offerings.read(context, params)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> ToolAnswer:
        """Answer a call. Every failure becomes a tool error that says why.

        Raises:
            MCPError: a server needs a capability that the client does not declare.
        """
        try:
            return await self._called(context, params)
        except InputRequired as asking:
            return asking.result
        except MCPError:
            raise
        except IdeabridgeError as error:
            return refusal(
                self._bridge.secrets.mask(str(error)) or f"{params.name} failed without a message"
            )
        except Exception as error:  # noqa: BLE001 - it must not end the connection, and clients must not see internals
            self._log(params.name, error)
            return refusal(
                f"{params.name[:64]} failed because of an error in ideabridge itself; see its log "
                "on stderr"
            )
        finally:
            self.catalogue.stop_waiting()

    async def _called(self, context: Context, params: types.CallToolRequestParams) -> ToolAnswer:
        name = params.name
        caller = caller_of(context)
        asked_by.set(caller)
        arguments, size = await compute_beside(params.arguments, _arguments_in, params)
        if size > MAX_BYTES:
            raise LimitExceededError(
                f"arguments of {name[:64]} have {size:,} bytes; the limit is {MAX_BYTES:,}"
            )

        request = ToolRequest(caller, context, responses=params.input_responses)
        if params.request_state is not None:
            await self.running.take_up(request, params.request_state, params.input_responses)

        with self.quotas.holding(
            request.caller, "bytes of arguments in progress", MOST_ARGUMENTS, size
        ):
            if name in OWN_NAMES:
                note_tool(name, "own")

            if name == VIEW_RUN:
                if self.running.module_views.module is not None:
                    reason = (
                        f"{name} is for the view of a run, which is not offered together with the "
                        "views of a server"
                    )
                    raise UnknownToolError(reason)

                may_decide = self.running.deciding.offers(request)
                return await self._views.call(arguments, request.caller, may_decide=may_decide)

            if name in OWN_NAMES:
                starts = self._own.starts_run(name, arguments)
                if starts:
                    self._expect_place(request)

                if starts and name in STARTING and takes_tasks(request):
                    return self._tasks.answer(
                        await self._own.call(name, {"wait_s": WAIT_S, **arguments}, request)
                    )

                result = await self._own.call(name, arguments, request)
                return _for_host(context, self._naming_unused_files(context, name, result))

            tool = await self.catalogue.find(name, request.caller)
            note_tool(name, "idea" if isinstance(tool, PublishedTool) else "exposed")
            if isinstance(tool, PublishedTool):
                self._expect_place(request)

            return await tool.call(arguments, request)

    def _naming_unused_files(self, context: Context, name: str, result: ToolAnswer) -> ToolAnswer:
        """Return the answer from an own tool.

        A client's first answer about a run also names the configured files that are not used.
        """
        unused = tuple(self._bridge.configuration.unused_files)
        client = client_key(context)
        is_told = self._told.get(client) == unused
        if name not in ("run_plan", "check_run") or not unused or is_told:
            return result

        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[client] = unused
        note = self._bridge.secrets.mask(" ".join(unused))
        first, *others = result["content"]
        if note in first["text"]:
            return result

        noted = {**result, "content": [{**first, "text": f"{first['text']}\n{note}"}, *others]}
        if "structuredContent" in result:
            noted["structuredContent"] = {**result["structuredContent"], "note": note}
        return noted

    def _expect_place(self, request: ToolRequest) -> None:
        """Refuse to start a run if the caller has too many active runs.

        A resumed request is not refused, because its run already exists.
        """
        if request.resumed is not None:
            count = 0
        else:
            count = self._bridge.runs_at_work(request.caller)
        if count >= MOST_RUNS:
            raise QuotaError(
                f"you have {count} active runs; the limit for one caller is {MOST_RUNS}. "
                "check_run lists and cancels them"
            )


_MOST_TOLD: Final = 1000
"""Maximum number of clients for which the server tracks the unused files that it has reported."""


def _is_one_of(client: types.InitializeRequestParams, hosts: Sequence[str]) -> bool:
    """Return whether a client identifies itself by one of these names."""
    return any(host in client.client_info.name.lower() for host in hosts)


def _for_host(context: Context, result: ToolAnswer) -> ToolAnswer:
    """Return the answer from an own tool.

    The structured content is omitted if the host would show it instead of the images.
    """
    client = context.session.client_params
    if len(result["content"]) == 1 or client is None or not _is_one_of(client, STRUCTURED_HOSTS):
        return result
    # Nothing is lost without the structured content, because the text contains all of it, and own
    # tools declare no output schema.
    return {key: part for key, part in result.items() if key != "structuredContent"}


def _arguments_in(params: types.CallToolRequestParams) -> tuple[JSONObject, int]:
    """Return the arguments of a call, and their size in bytes of JSON."""
    value = normalise(params.arguments or {}, what="arguments")
    arguments = object_or_empty(value)
    return arguments, len(encode(arguments))
