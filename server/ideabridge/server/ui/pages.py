"""Pages: every page of the site, beside the MCP server."""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.server.callers import Credentials
from ideabridge.server.server import Front
from ideabridge.server.ui.access import PREFIX, Access
from ideabridge.server.ui.admin import AdminPages
from ideabridge.server.ui.approvals import ApprovalPages
from ideabridge.server.ui.ideas import IdeaPages
from ideabridge.server.ui.modules import ModulePages
from ideabridge.server.ui.playground import Playground
from ideabridge.server.ui.runs import RunPages
from ideabridge.server.ui.site import Site

_PAGES = (RunPages, ApprovalPages, IdeaPages, ModulePages, Playground, AdminPages)


def routes_of(site: Site) -> list[Route]:
    """The routes of every page under `/ui`, beside those of the site itself."""
    return [route for page in _PAGES for route in page(site).routes()]


class Pages:
    """ASGI application that serves the pages at `/ui`, and passes every other request on.

    Args:
        app: the MCP server.
        front: the server over the open bridge.
        credentials: the valid tokens.
        hosts: the accepted Host headers.
        spend: see `Access`.
    """

    def __init__(
        self,
        app: ASGIApp,
        front: Front,
        credentials: Credentials,
        hosts: list[str],
        spend: Callable[[str], None],
    ) -> None:
        self._app = app
        bridge = front.running.bridge
        site = Site(bridge, front)
        store = bridge.store
        self._access = site.access = Access(
            site.application(routes_of(site)), credentials, store.users, hosts, spend, store.revision
        )

    def link(self) -> str:
        """The path of a new link that signs in the owner; see `Access.link`."""
        return self._access.link()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        is_page = scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        await (self._access if is_page else self._app)(scope, receive, send)
