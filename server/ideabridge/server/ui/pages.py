"""The routes of all pages on the site, and the site's door next to the MCP server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.routing import Route
from starlette.types import ASGIApp

from ideabridge.server.callers import Credentials
from ideabridge.server.server import Front
from ideabridge.server.transports.workspace_door import Workspaces
from ideabridge.server.ui.access import Access
from ideabridge.server.ui.admin import AdminPages
from ideabridge.server.ui.approvals import ApprovalPages
from ideabridge.server.ui.connecting import AssistantsPage
from ideabridge.server.ui.home import HomePage
from ideabridge.server.ui.ideas import IdeaPages
from ideabridge.server.ui.modules import ModulePages
from ideabridge.server.ui.playground import Playground
from ideabridge.server.ui.runs import RunPages
from ideabridge.server.ui.server_forms import ServerForms
from ideabridge.server.ui.sign_ins import SignInPages
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.workspaces import WorkspaceList, WorkspacePages
from ideabridge.server.ui.writing import WritingPage

_PAGES = (
    HomePage,
    RunPages,
    ApprovalPages,
    IdeaPages,
    ModulePages,
    ServerForms,
    SignInPages,
    Playground,
    WritingPage,
)


def routes_of(site: Site) -> list[Route]:
    """Return the routes of all pages on a site, except the site's own routes."""
    routes = [route for page in _PAGES for route in page(site).routes()]
    if site.workspace is None:
        # These pages exist only on the server's own site. Its store has the users. The page about
        # assistants connects an assistant for all projects; to connect one for a single project, a
        # person runs a command in the project's folder.
        routes += [*AssistantsPage(site).routes(), *AdminPages(site).routes()]
    return routes


def page_door(
    front: Front,
    credentials: Credentials,
    workspaces: Workspaces | None,
    folders: Callable[[], Mapping[str, Path]],
) -> Access:
    """Return the application that serves the pages at `/ui` for a server with an open bridge.

    Args:
        front: the server.
        credentials: checks tokens.
        workspaces: the workspaces, or None if the server has none.
        folders: see `WorkspaceList`.
    """
    bridge = front.running.bridge
    site = Site(bridge, front, has_workspaces=workspaces is not None)
    routes = routes_of(site)
    if workspaces is None:
        app = site.application(routes)
    else:
        routes += WorkspaceList(site, workspaces, folders).routes()
        app = WorkspacePages(site, site.application(routes), workspaces)
    return Access(app, credentials, bridge.store, front.quotas)


def pages_of_workspace(front: Front, name: str) -> ASGIApp:
    """Return the pages of a workspace for `WorkspacePages` to serve.

    Args:
        front: the server of the workspace.
        name: the name of the workspace.
    """
    site = Site(front.running.bridge, front, name, has_workspaces=True)
    return site.application(routes_of(site))
