"""Modules: the servers behind this one, their tools with the rule for each, and test calls."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.loop.policy import policy_named
from ideabridge.server.ui.access import PREFIX, Visitor, form_of, visitor_of
from ideabridge.server.ui.forms import Field, fields_of, read_fields
from ideabridge.server.ui.site import Site
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.tool import Tool

OWN = "tools"
"""The name of the page about the tools of this process. No module's page has this name."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool, its fields, and the rule that applies when a plan calls it."""

    tool: Tool
    fields: list[Field]
    verdict: str
    why: str
    hints: list[str]


class ModulePages:
    """The pages about modules."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [
            Route("/modules", self.list),
            Route("/modules/{name}", self.show),
            Route("/modules/{name}/call", self._site.changing(self.call), methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """Show every module that the visitor may use, with its state."""
        modules = self._bridge.modules
        statuses = self._site.servers(visitor_of(request))
        memory = await anyio.to_thread.run_sync(
            lambda: {status.name: modules[status.name].memory() for status in statuses}
        )
        rows = [(status, modules[status.name].latency, memory[status.name]) for status in statuses]
        own = len(self._tools(OWN, visitor_of(request)))
        return self._site.page(request, "modules.html", rows=rows, own=own, own_name=OWN)

    def _own(self) -> list[Tool]:
        return [tool for tool in self._bridge.tools() if tool.module is None]

    def _tools(self, name: str, visitor: Visitor) -> list[Tool]:
        """Return the tools of a server, or of this process, that the visitor's profile has.

        Raises:
            UnknownToolError: the profile does not have the server.
        """
        offer = self._bridge.offer.to(visitor.caller)
        if name == OWN and OWN not in self._bridge.modules:
            tools = self._own()
        elif offer.profile is not None and not offer.has_server(name):
            raise UnknownToolError(offer.profile.refusal("server", name))
        else:
            tools = self._bridge.modules[name].known_tools
        return [tool for tool in tools if offer.has_tool(tool)]

    async def show(self, request: Request) -> Response:
        """Show one module: its state, its last output, and its tools."""
        name = request.path_params["name"]
        tools = self._tools(name, visitor_of(request))
        modules = self._bridge.modules
        is_module = name in modules
        module = modules[name] if is_module else None
        policy = policy_named(self._bridge.configuration.approval_setting)
        rows: list[ToolRow] = []
        for tool in sorted(tools, key=attrgetter("name")):
            verdict = policy(tool, {})
            hints = [key for key, value in tool.annotations.to_json().items() if value is True]
            rows.append(
                ToolRow(tool, fields_of(tool.parameters), verdict.verdict, verdict.why, hints)
            )

        return self._site.page(
            request,
            "module.html",
            name=name,
            module_status=None if module is None else module.status(),
            latency=None if module is None else module.latency,
            memory=None if module is None else await anyio.to_thread.run_sync(module.memory),
            # The last output may contain arguments from any caller.
            words=module.last_words if module is not None and visitor_of(request).manages else [],
            rows=rows,
        )

    async def call(self, request: Request) -> Response:
        """Call one tool as a plan of one call. The plan is recorded, and asks for approval like any
        other plan.
        """
        name = request.path_params["name"]
        visitor = visitor_of(request)
        form = form_of(request)
        tool = next(
            (tool for tool in self._tools(name, visitor) if tool.name == form.get("tool")), None
        )
        if tool is None:
            why = self._bridge.offer.to(visitor.caller).missing.why_refused(form.get("tool"), name)
            raise UnknownToolError(why or f"{name} has no tool {form.get('tool')[:80]!r}")

        call = {**read_fields(tool.parameters, form), "_tool": tool.name}
        if tool.module is not None:
            call["_module"] = tool.module

        run = await self._bridge.run_plan(
            calls=[call],
            output="†results.0",
            caller=visitor.caller,
            title=f"test of {tool.name}",
        )
        return self._site.back(request, f"{PREFIX}/runs/{run.id}")
