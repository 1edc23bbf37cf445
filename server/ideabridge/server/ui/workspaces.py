"""The pages of workspaces. `/ui/w/NAME` has all pages of the workspace with this name, and
`/ui/workspaces` lists the workspaces.

As at `/mcp/w/NAME`, only the user of this machine can see workspaces. The first request to a
workspace opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.store.users import LOCAL, owner_of
from ideabridge.server.transports.gate import PAGE, WORKSPACE_PAGES, WORKSPACES
from ideabridge.server.transports.workspace_door import Workspaces
from ideabridge.server.ui.access import REVISION, Visitor, visitor_of
from ideabridge.server.ui.site import Site
from ideabridge.server.workspaces import UnknownWorkspaceError, WorkspaceError
from ideabridge.tools.errors import IdeabridgeError

_SHOWN_SERVERS: Final = 20
"""Maximum number of servers that the list shows for one workspace."""


@dataclass(frozen=True, slots=True)
class WorkspaceRow:
    """A workspace in the list.

    Attributes:
        name: the name of the workspace, or "" for the server itself, which has no project.
        folder: the folder of the workspace, or None for the server itself.
        address: the path at which clients reach the workspace.
        pages: the path of the workspace's pages.
        is_open: whether the workspace is open. If not, its servers and profiles are unknown.
        servers: the statuses of its own servers, at most `_SHOWN_SERVERS` of them.
        more: how many of its own servers are not shown.
        shared: how many servers it shares with `/mcp`.
        profiles: the names of its profiles.
    """

    name: str
    folder: Path | None
    address: str
    pages: str
    is_open: bool
    servers: Sequence[ModuleStatus] = ()
    more: int = 0
    shared: int = 0
    profiles: Sequence[str] = ()


class WorkspacePages:
    """ASGI middleware behind `Access` that serves the pages of workspaces.

    Args:
        site: the pages of the server itself.
        app: the application that serves those pages.
        workspaces: the workspaces.
    """

    def __init__(self, site: Site, app: ASGIApp, workspaces: Workspaces) -> None:
        self._site = site
        self._app = app
        self._workspaces = workspaces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path: str = scope["path"]
        if not path.startswith(WORKSPACE_PAGES):
            await self._app(scope, receive, send)
            return

        name = path.removeprefix(WORKSPACE_PAGES).partition("/")[0]
        pages = await self._pages(name, Request(scope))
        await pages(scope, receive, send)

    async def _pages(self, name: str, request: Request) -> ASGIApp:
        """Return the pages of a workspace, or a page that says why they are unavailable."""
        if not sees_workspaces(visitor_of(request)):
            return self._refusal(request, "workspaces are for the user of this machine only", 404)
        try:
            served = await self._workspaces.opened(name)
        except UnknownWorkspaceError as error:
            return self._refusal(request, str(error), 404)
        except IdeabridgeError as error:
            return self._refusal(request, str(error), 503)

        assert served.pages is not None
        return served.pages

    def _refusal(self, request: Request, why: str, status: int) -> Response:
        request.scope[REVISION] = self._site.revision()
        title = "This workspace cannot be shown"
        return self._site.refused(request, status, title, why)


class WorkspaceList:
    """The page that lists the workspaces.

    Args:
        site: the pages of the server itself.
        workspaces: the workspaces.
        folders: returns the registered folders, keyed by name. Raises `WorkspaceError`.
    """

    def __init__(
        self, site: Site, workspaces: Workspaces, folders: Callable[[], Mapping[str, Path]]
    ) -> None:
        self._site = site
        self._workspaces = workspaces
        self._folders = folders

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [Route("/workspaces", self.list)]

    async def list(self, request: Request) -> Response:
        """Show every registered workspace, with its servers if it is open."""
        visitor = visitor_of(request)
        own = _row(
            visitor,
            WorkspaceRow("", None, self._site.address, PAGE, is_open=True),
            self._site.bridge,
        )
        rows = [_row(visitor, own, self._site.bridge)]
        problem = ""
        if sees_workspaces(visitor):
            try:
                rows += self._rows(visitor)
            except WorkspaceError as error:
                problem = str(error)

        return self._site.page(request, "workspaces.html", rows=rows, problem=problem)

    def _rows(self, visitor: Visitor) -> list[WorkspaceRow]:
        open_now = self._workspaces.open_now()
        rows: list[WorkspaceRow] = []
        for name, folder in self._folders().items():
            served = open_now.get(name)
            pages = f"{WORKSPACE_PAGES}{name}"
            row = WorkspaceRow(
                name, folder, f"{WORKSPACES}{name}", pages, is_open=served is not None
            )
            rows.append(row if served is None else _row(visitor, row, served.bridge))

        return rows


def _row(visitor: Visitor, row: WorkspaceRow, bridge: Bridge) -> WorkspaceRow:
    """Return the row for an open workspace, limited to what the visitor's profile contains."""
    offer = bridge.offer.to(visitor.caller)
    statuses = [status for status in bridge.modules.statuses() if offer.has_server(status.name)]
    own_names = bridge.modules.own_names
    own = [status for status in statuses if status.name in own_names]
    return replace(
        row,
        servers=own[:_SHOWN_SERVERS],
        more=len(own[_SHOWN_SERVERS:]),
        shared=len(statuses) - len(own),
        profiles=[*bridge.configuration.profiles],
    )


def sees_workspaces(visitor: Visitor) -> bool:
    """Return whether a visitor is the user of this machine."""
    return owner_of(visitor.caller) == LOCAL
