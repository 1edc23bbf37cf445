"""Pages: the routes of every page of the site, and the site's door next to the MCP server."""

from __future__ import annotations

from starlette.routing import Route

from ideabridge.server.callers import Credentials
from ideabridge.server.server import Front
from ideabridge.server.ui.access import Access
from ideabridge.server.ui.admin import AdminPages
from ideabridge.server.ui.approvals import ApprovalPages
from ideabridge.server.ui.connecting import ConnectPage
from ideabridge.server.ui.home import HomePage
from ideabridge.server.ui.ideas import IdeaPages
from ideabridge.server.ui.modules import ModulePages
from ideabridge.server.ui.playground import Playground
from ideabridge.server.ui.runs import RunPages
from ideabridge.server.ui.server_forms import ServerForms
from ideabridge.server.ui.sign_ins import SignInPages
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.writing import WritingPage

_PAGES = (
    HomePage,
    ConnectPage,
    RunPages,
    ApprovalPages,
    IdeaPages,
    ModulePages,
    ServerForms,
    SignInPages,
    Playground,
    WritingPage,
    AdminPages,
)


def routes_of(site: Site) -> list[Route]:
    """Return the routes of every page under `/ui`, except the site's own routes."""
    return [route for page in _PAGES for route in page(site).routes()]


def page_door(front: Front, credentials: Credentials) -> Access:
    """Return the door to the pages at `/ui`, for the open bridge of a server."""
    store = front.running.bridge.store
    site = Site(front.running.bridge, front)
    access = site.access = Access(
        site.application(routes_of(site)), credentials, store, front.quotas, site.revision
    )
    return access
