"""The site that serves the pages, with their routes and templates.

Every page is rendered on the server, works without JavaScript, and is an ordinary document with
links and forms. The script `static/ui.js` only does what a document cannot: when the store has
changed, it reloads the page and replaces the elements marked `data-live`.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.errors import UnknownModuleError
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.store.errors import (
    UnknownIdeaError,
    UnknownPublicationError,
    UnknownRunError,
)
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.users import LOCAL, owner_of
from ideabridge.server.callers import MissingScopeError
from ideabridge.server.transports.gate import CALLS, PAGE, SIGN_IN, WORKSPACE_PAGES, WORKSPACES
from ideabridge.server.transports.quotas import QuotaError
from ideabridge.server.ui.access import (
    REVISION,
    VISITOR,
    Note,
    PageLink,
    Visitor,
    access_of,
    cookie,
    form_of,
    visitor_of,
)
from ideabridge.server.ui.histories import Histories
from ideabridge.server.ui.rendering import FILES, render
from ideabridge.server.ui.showing import light
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from ideabridge.server.server import Front

Handler = Callable[[Request], Awaitable[Response]]

REFRESH: Final = "Ideabridge-Refresh"
"""The header that marks requests by the script to reload an open page."""

_LOOK_SECONDS: Final = 0.3
"""Interval, in seconds, at which the store is checked for changes on behalf of an open page."""

_REST_SECONDS: Final = 1.0
"""Minimum time, in seconds, between two events on one stream."""


_DOCUMENTATION: Final = "https://github.com/ideabridge/ideabridge/blob/main/docs/index.md"
"""The page with all documents, as given in `pyproject.toml`."""

_HOME: Final = PageLink("/home", "Home")

_LISTS: Final[dict[type[IdeabridgeError], PageLink]] = {
    UnknownRunError: PageLink("/runs", "All runs"),
    UnknownIdeaError: PageLink("/ideas?show=saved", "All ideas"),
    UnknownPublicationError: PageLink("/ideas", "All tools"),
    UnknownToolError: PageLink("/modules", "All servers"),
    UnknownModuleError: PageLink("/modules", "All servers"),
}
"""The errors that mean that something does not exist, each with a link to a list of what does
exist.
"""

_UNKNOWN: Final = tuple(_LISTS)


class _Noted:
    """ASGI middleware that records the revision of the site before a page reads anything."""

    def __init__(self, app: ASGIApp, revision: Callable[[], str]) -> None:
        self._app = app
        self._revision = revision

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REVISION] = self._revision()
        await self._app(scope, receive, send)


class Site:
    """The pages for an open bridge.

    Args:
        bridge: the bridge.
        front: the server, which publishes runs as tools.
        workspace: the name of the workspace that the bridge belongs to, or None for `/mcp`.
        has_workspaces: whether the server has workspaces.

    Attributes:
        bridge: the bridge.
        front: the server.
        workspace: see above.
        prefix: the path with which the paths of all pages begin.
        address: the path at which clients reach the server.
        histories: the journals that pages read.
    """

    def __init__(
        self,
        bridge: Bridge,
        front: Front,
        workspace: str | None = None,
        *,
        has_workspaces: bool = False,
    ) -> None:
        self.bridge = bridge
        self.front = front
        self.workspace = workspace
        self.prefix = PAGE if workspace is None else f"{WORKSPACE_PAGES}{workspace}"
        self.address = CALLS if workspace is None else f"{WORKSPACES}{workspace}"
        self.histories = Histories(bridge.store)
        self._has_workspaces = has_workspaces
        self._stirred = 0
        self._titles: dict[str | None, tuple[list[Tool], ToolTitles]] = {}

    def application(self, routes: Iterable[Route]) -> Starlette:
        """Return the application with its own routes and the routes of the pages. `Access` checks
        requests before they reach it.
        """
        return Starlette(
            routes=[
                Mount(
                    self.prefix,
                    routes=[
                        Route("/", self._home),
                        Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
                        Route("/sign-out", self._sign_out, methods=["POST"]),
                        Route("/live", self._live),
                        Mount("/static", StaticFiles(directory=FILES / "static")),
                        *routes,
                    ],
                ),
                Route(self.prefix, self._home),
            ],
            exception_handlers={
                IdeabridgeError: self._refused,
                HTTPException: self._missing,
            },
            middleware=[Middleware(_Noted, revision=self.revision)],
        )

    # -- services for pages ------------------------------------------------------------------------

    def page(self, request: Request, template: str, *, code: int = 200, **values: Any) -> Response:
        """Return a page rendered from a template, with the frame that all pages have."""
        return HTMLResponse(self._rendered(request, template, values)(), code)

    async def page_beside(
        self, request: Request, template: str, *, code: int = 200, **values: Any
    ) -> Response:
        """Return a page whose values may be large, so that it is rendered in a thread."""
        text = await compute_in_thread(self._rendered(request, template, values))
        return HTMLResponse(text, code)

    def _rendered(
        self, request: Request, template: str, values: dict[str, Any]
    ) -> Callable[[], str]:
        """Return a function that renders a page."""
        frame = self.frame(request)
        titles = self.titles(visitor_of(request))
        return partial(render, template, titles=titles, **frame, **values)

    def frame(self, request: Request) -> JSONObject:
        """Return the values that the templates of all pages need. This method removes the messages
        from the visitor, so that each message is shown only once.
        """
        visitor = visitor_of(request)
        notes: list[Note] = []
        if REFRESH not in request.headers:
            # Leave messages for the page that the visitor opens next, not for an open page that the
            # script reloads.
            notes = visitor.notes
            visitor.notes = []
        return {
            "visitor": {
                "name": visitor.name,
                "secret": visitor.secret,
                "may_change": visitor.may_change,
                "manages": visitor.manages,
                "is_owner": visitor.is_owner,
            },
            "ui": self.prefix,
            "root": PAGE,
            "workspace": self.workspace,
            "has_workspaces": self._has_workspaces and owner_of(visitor.caller) == LOCAL,
            "notes": [asdict(note) for note in notes],
            "path": request.url.path,
            "query": request.url.query,
            "waiting": self.waiting(visitor),
            "failing": sum(light(status) == "failing" for status in self.servers(visitor)),
            "revision": request.scope[REVISION],
            "documentation": _DOCUMENTATION,
            "link_command": self.front.running.deciding.commands.link,
            "now": time.time(),
        }

    def waiting(self, visitor: Visitor) -> int:
        """Return the number of runs, up to 100, that are waiting for the visitor's decision."""
        store = self.bridge.store
        statuses = ("needs_approval",)
        records = store.runs.newest(visitor.scope, statuses, limit=100, rooms=False)
        return len(records)

    def revision(self) -> str:
        """Return a string that changes whenever the store or a server's state changes or `stir` is
        called.
        """
        states = [(status.name, status.state) for status in self.bridge.modules.statuses()]
        digest = hashlib.sha256(repr(states).encode()).hexdigest()[:12]
        database, changes = self.bridge.store.revision()
        return f"{database}.{changes}.{digest}.{self._stirred}"

    def stir(self) -> None:
        """Update open pages after a change that affects neither the store nor a server's state."""
        self._stirred += 1

    def servers(self, visitor: Visitor) -> list[ModuleStatus]:
        """Return the statuses of the servers in the visitor's profile."""
        offer = self.bridge.offer.to(visitor.caller)
        statuses = self.bridge.modules.statuses()
        return [status for status in statuses if offer.has_server(status.name)]

    def titles(self, visitor: Visitor) -> ToolTitles:
        """Return the titles of the tools in the visitor's profile. A server that is not connected
        has the titles from its latest list.
        """
        offer = self.bridge.offer.to(visitor.caller)
        profile = None if offer.profile is None else offer.profile.name
        known = offer.known
        latest = self._titles.get(profile)
        # The list is the same object until something changes.
        if latest is not None and latest[0] is known:
            return latest[1]

        titles = ToolTitles.of_tools(known)
        self._titles[profile] = (known, titles)
        return titles

    def unused_files(self, visitor: Visitor) -> list[str]:
        """Return a sentence for each configuration file or tool file whose current content is not
        in effect. Only the owner and admins see these sentences.
        """
        return self.bridge.configuration.unused_files if visitor.manages else []

    def record(self, request: Request, run_id: str) -> RunRecord:
        """Return the run with this id, if the visitor may see it.

        Raises:
            UnknownRunError: no run has this id, or it belongs to someone else.
        """
        return self.bridge.store.runs.find(run_id, caller=visitor_of(request).scope)

    def back(
        self,
        request: Request,
        page: str,
        message: str = "",
        *,
        kind: Literal["good", "ask"] = "good",
        link: PageLink | None = None,
    ) -> Response:
        """Redirect the visitor to a page of this site, with a message.

        Args:
            request: the request.
            page: the path of the page, without the prefix of this site.
            message: the message, or "".
            kind: `ask` if the message says that something still has to be done.
            link: the page that the message links to, or None.
        """
        if message:
            visitor_of(request).notes.append(Note(kind, message, link))
        return RedirectResponse(f"{self.prefix}{page}", 303)

    def changing(self, work: Callable[[Request], Awaitable[Response]]) -> Handler:
        """Return a handler for a form. If `work` refuses the form, the handler redirects the
        visitor to the form's page, which shows the reason.
        """

        async def handle(request: Request) -> Response:
            try:
                return await work(request)
            except _UNKNOWN:
                raise
            except IdeabridgeError as error:
                fault = self.bridge.secrets.mask(str(error))
                visitor_of(request).notes.append(Note("bad", fault))
                return self.back_to_form(request)

        return handle

    def back_to_form(self, request: Request) -> Response:
        """Redirect the visitor to the page that contains the form."""
        return RedirectResponse(self._from(request), 303)

    # -- the site's own pages ----------------------------------------------------------------------

    async def _home(self, _request: Request) -> Response:
        return RedirectResponse(f"{self.prefix}/home", 303)

    async def _sign_in(self, request: Request) -> Response:
        access = access_of(request)
        wrong = ""
        is_dead_link = False
        key = None
        try:
            if request.method == "POST":
                key = await access.sign_in(form_of(request).get("token"), request.scope)
                wrong = "" if key else "This token is not valid."
            elif request.method == "GET" and "key" in request.query_params:
                # Ignore HEAD, with which chat programs and scanners probe a link, because the link
                # works only once and they must not use it up.
                key = access.follow_link(request.query_params["key"], request.scope)
                if key is None:
                    is_dead_link = True
                    wrong = (
                        "This link was already used, or is older than 10 minutes. Ask the person "
                        "who sent it for a new one."
                    )
        except MissingScopeError as error:
            wrong = f"This token cannot be used: {error}."
        except QuotaError as error:
            return access.refusal(
                429, str(error), {"Retry-After": str(math.ceil(error.retry_after))}
            )

        if key is None:
            text = render(
                "sign_in.html", ui=PAGE, root=PAGE, wrong=wrong, is_dead_link=is_dead_link
            )
            return HTMLResponse(text, 403 if wrong else 200)

        return RedirectResponse(f"{PAGE}/home", 303, {"Set-Cookie": cookie(request.scope, key)})

    async def _sign_out(self, request: Request) -> Response:
        access_of(request).sign_out(request.scope)
        return RedirectResponse(SIGN_IN, 303, {"Set-Cookie": cookie(request.scope, "")})

    async def _live(self, request: Request) -> Response:
        """Send a server-sent event each time the store or a server's state has changed since the
        page was rendered, at most one per second.
        """
        shown = request.query_params.get("since", "")

        async def changes() -> AsyncGenerator[str]:
            since = 0.0
            announced = shown
            # Send a comment at the start and then every 15 s, because proxies close connections on
            # which nothing is sent.
            yield ": ideabridge\n\n"
            quiet = time.monotonic()
            while not self.front.running.closing:
                await anyio.sleep(_LOOK_SECONDS)
                now = time.monotonic()
                revision = self.revision()
                if revision != announced and now - since >= _REST_SECONDS:
                    yield "event: changed\ndata: {}\n\n"
                    announced = revision
                    since = now
                    quiet = now
                elif now - quiet > 15:
                    yield ": still here\n\n"
                    quiet = now

        return StreamingResponse(
            changes(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    # -- refusals ----------------------------------------------------------------------------------

    async def _refused(self, request: Request, error: Exception) -> Response:
        reason = self.bridge.secrets.mask(str(error))
        ways = [way for kind, way in _LISTS.items() if isinstance(error, kind)]
        status = 404 if ways else 400
        if request.scope.get(VISITOR) is None:
            return HTMLResponse("this cannot be done now", status)
        if ways:
            return self.refused(request, status, "Not found", reason, ways[0])
        return self.refused(request, status, "This cannot be shown", reason)

    async def _missing(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        if request.scope.get(VISITOR) is None:
            return HTMLResponse("not found", status)
        reason = f"There is no page at {request.url.path}."
        return self.refused(request, status, "Page not found", reason)

    def refused(
        self, request: Request, status: int, title: str, why: str, way: PageLink = _HOME
    ) -> Response:
        """Return a page that explains why something is not shown, with a link to another page. A
        missing page is not styled as an alarm.
        """
        is_missing = status == 404
        return self.page(
            request,
            "refused.html",
            code=status,
            title=title,
            why=why,
            is_missing=is_missing,
            way=way,
        )

    def _from(self, request: Request) -> str:
        """Return the path of the page that contains the form, according to `Referer`."""
        parts = urlsplit(request.headers.get("referer", ""))
        is_here = parts.path.startswith(f"{self.prefix}/")
        same = is_here and parts.netloc == request.headers.get("host")
        if same and parts.query:
            return f"{parts.path}?{parts.query}"
        if same:
            return parts.path
        return f"{self.prefix}/runs"
