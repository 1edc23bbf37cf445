"""Let visitors sign in to servers on the page (OAuth).

The visitor's browser opens the authorization server's URL, and is then redirected to a port on the
machine that runs this server. A browser on another machine cannot open that URL, so the visitor
pastes it into the page.

If all callers share one sign-in to a server, the owner signs in. This requires a session that began
with the owner's link, because otherwise someone else could sign in with their own account, which
all calls would then use. If callers do not share a sign-in, users sign in for their own calls.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.errors import ModuleError
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.modules.sign_ins import (
    ModuleUser,
    SignInError,
    forget_sign_ins,
    logout_command,
)
from ideabridge.bridge.store.users import user_of
from ideabridge.server.asking.signing_in import (
    BrowserPerson,
    NoSignInError,
    browser_person,
    expect_sign_in,
    sign_in,
)
from ideabridge.server.ui.access import Visitor, expect_owner, form_of, visitor_of
from ideabridge.server.ui.site import Site
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError

logger: Final = logging.getLogger(__name__)

_BEGIN_SECONDS: Final = 20.0
"""How long a visitor waits for the authorization server's URL, in seconds."""

_REACH_SECONDS: Final = 30.0


@dataclass(slots=True)
class Attempt:
    """One attempt to sign in.

    Attributes:
        server: the name of the server.
        scope: the cancel scope that ends the attempt.
        person: the visitor, once the port is listening.
        address: the URL at which the visitor signs in, or "" until it is known.
        kept_in: where the tokens are stored, or None until the visitor has signed in.
        problem: why the attempt failed, or "".
        connection_problem: why the server cannot be used after the sign-in, or "".
        is_over: whether the attempt has ended. An attempt that succeeds connects to the server
            before it ends.
        known: set once the attempt has something to show: a URL, a result or a problem.
    """

    server: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    person: BrowserPerson | None = None
    address: str = ""
    kept_in: str | None = None
    problem: str = ""
    connection_problem: str = ""
    is_over: bool = False
    known: anyio.Event = field(default_factory=anyio.Event)

    def show(self, address: str) -> None:
        """Record the URL at which the visitor signs in.

        Raises:
            SignInError: a browser must not open the URL.
        """
        # Check the scheme, because the address comes from a server, and a link with another scheme
        # could run a script.
        if urlsplit(address).scheme not in ("http", "https"):
            raise SignInError("the authorization server's address is not a web address")
        self.address = address
        self.known.set()

    @property
    def host(self) -> str:
        """The host of the authorization server."""
        return urlsplit(self.address).netloc


class SignInPages:
    """The page that signs a visitor in to a server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        # The attempts, keyed by caller and server.
        self._attempts: dict[tuple[str, str], Attempt] = {}

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/modules/{name}/sign-in", self.show),
            Route("/modules/{name}/sign-in/begin", changing(self.begin), methods=["POST"]),
            Route("/modules/{name}/sign-in/paste", changing(self.paste), methods=["POST"]),
            Route("/modules/{name}/sign-out", changing(self.sign_out), methods=["POST"]),
        ]

    def _expect_server(self, request: Request) -> str:
        """Return the name of the server in the path, if the visitor can see the server and may sign
        in.

        Raises:
            UnknownToolError: the visitor cannot see a server with this name.
            NoSignInError: nobody can sign in to the server.
            NotTheOwnerError: only the owner can sign in to the server.
        """
        name = request.path_params["name"]
        visitor = visitor_of(request)
        if name not in {status.name for status in self._site.servers(visitor)}:
            raise UnknownToolError(f"there is no server {name[:100]!r}")

        user = user_of(visitor.caller)
        expect_sign_in(name, self._bridge.modules[name].configuration, user)
        if user is None:
            expect_owner(visitor)
        return name

    async def show(self, request: Request) -> Response:
        """Show how the visitor can sign in or, after an attempt, whether it was successful."""
        name = self._expect_server(request)
        visitor = visitor_of(request)
        attempt = self._attempts.get((visitor.caller, name))
        mask = self._bridge.secrets.mask
        return self._site.page(
            request,
            "sign_in_server.html",
            name=name,
            attempt=attempt,
            problem="" if attempt is None else mask(attempt.problem),
            connection_problem="" if attempt is None else mask(attempt.connection_problem),
            logout=logout_command(name, user_of(visitor.caller)),
            who_acts=self._who_acts(name, visitor),
        )

    def _who_acts(self, name: str, visitor: Visitor) -> str:
        """Return a sentence that says whose calls use the visitor's sign-in, or "" if ideabridge
        has no users and all calls are the visitor's.
        """
        if user_of(visitor.caller) is not None:
            return "Only your own calls use this sign-in."
        if not self._bridge.store.users.exist():
            return ""
        if self._bridge.modules[name].configuration.has_sign_ins:
            return "Your own calls use this sign-in. Each user signs in separately."
        return "The calls of all users use this sign-in."

    async def begin(self, request: Request) -> Response:
        """Start a sign-in, and end any earlier attempt by the same visitor."""
        name = self._expect_server(request)
        visitor = visitor_of(request)
        key = (visitor.caller, name)
        earlier = self._attempts.get(key)
        if earlier is not None:
            earlier.scope.cancel()

        attempt = self._attempts[key] = Attempt(name)
        self._site.front.group.start_soon(self._attempt, attempt, visitor)
        with anyio.move_on_after(_BEGIN_SECONDS):
            await attempt.known.wait()
        return self._site.back(request, f"/modules/{quote(name)}/sign-in")

    async def paste(self, request: Request) -> Response:
        """Accept the URL to which the visitor's browser was redirected."""
        name = self._expect_server(request)
        attempt = self._attempts.get((visitor_of(request).caller, name))
        if attempt is None or attempt.person is None or attempt.is_over:
            raise SignInError("no sign-in is in progress: start again")
        attempt.person.paste(form_of(request).get("address").strip())
        return self._site.back(request, f"/modules/{quote(name)}/sign-in")

    async def sign_out(self, request: Request) -> Response:
        """Delete the visitor's tokens for a server, and end the connections that use them."""
        name = self._expect_server(request)
        visitor = visitor_of(request)
        attempt = self._attempts.pop((visitor.caller, name), None)
        if attempt is not None:
            attempt.scope.cancel()

        user = user_of(visitor.caller)
        addresses = await anyio.to_thread.run_sync(forget_sign_ins, name, user)
        # A connection keeps its tokens in memory. Other processes notice that the file is gone; see
        # `Reloading`.
        await self._bridge.renew(name)
        self._site.stir()
        page = f"/modules/{quote(name, safe='')}"
        if not addresses:
            return self._site.back(request, page, f"You were not signed in to {name}.", kind="ask")
        return self._site.back(request, page, f"You are signed out of {name}.")

    async def _attempt(self, attempt: Attempt, visitor: Visitor) -> None:
        """Sign in, so that this process can use the server immediately. A failure ends only the
        attempt, not this process.
        """
        try:
            with attempt.scope:
                await self._sign_in(attempt, visitor)
        except Exception as error:  # noqa: BLE001 - the page shows it, or the log has it
            attempt.problem = self._problem(attempt, error)
        finally:
            attempt.is_over = True
            attempt.known.set()
            self._site.stir()

    def _problem(self, attempt: Attempt, error: Exception) -> str:
        """Return why an attempt failed, as text for the visitor."""
        known = _own_error(error)
        if known is not None:
            return str(known)
        trace = self._bridge.secrets.mask("".join(traceback.format_exception(error)))
        logger.error("signing in to %s failed: %s", attempt.server, trace)
        return "The sign-in failed; the log of ideabridge says why."

    async def _sign_in(self, attempt: Attempt, visitor: Visitor) -> None:
        name = attempt.server
        configuration = self._bridge.configuration
        entry = configuration.modules[name]
        user_name = user_of(visitor.caller)
        user: ModuleUser | None = None
        if user_name is not None:
            key = self._bridge.store.settings.sign_in_key(make=True)
            user = ModuleUser(user_name, key)

        redirect_uri = None if entry.auth is None else entry.auth.redirect_uri
        async with browser_person(redirect_uri, attempt.show, opens=False) as person:
            attempt.person = person
            signed_in = await sign_in(configuration, name, person, user)

        if signed_in is None:
            attempt.problem = f"{name} does not require a sign-in"
            return

        attempt.kept_in = signed_in.kept_in
        if user is not None:
            attempt.connection_problem = signed_in.problem
            return

        # Let open pages say that the sign-in has succeeded, because connecting can take a while.
        self._site.stir()
        await self._connect(attempt)

    async def _connect(self, attempt: Attempt) -> None:
        """Connect to a server after the sign-in, so that it can be used immediately."""
        try:
            with anyio.fail_after(_REACH_SECONDS):
                await self._bridge.modules[attempt.server].reach()
        except TimeoutError:
            attempt.connection_problem = (
                f"server {attempt.server!r} did not connect within {_REACH_SECONDS:g} s"
            )
        except ModuleError as error:
            attempt.connection_problem = str(error)


def can_sign_in(entry: ModuleConfiguration, visitor: Visitor) -> bool:
    """Return whether a visitor can sign in to a server on the page."""
    user = user_of(visitor.caller)
    try:
        expect_sign_in("", entry, user)
    except NoSignInError:
        return False
    return visitor.may_change if user is not None else visitor.is_owner


def servers_to_sign_in_to(bridge: Bridge, visitor: Visitor) -> set[str]:
    """Return the names of the servers that need the visitor to sign in.

    Users have connections of their own, which the servers' states say nothing about.
    """
    if user_of(visitor.caller) is not None:
        return set()
    return {
        status.name
        for status in bridge.modules.statuses()
        if status.needs_sign_in and can_sign_in(bridge.modules[status.name].configuration, visitor)
    }


def _own_error(error: BaseException) -> IdeabridgeError | None:
    """Return the first ideabridge error in nested exception groups."""
    if isinstance(error, IdeabridgeError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return next(filter(None, map(_own_error, inner)), None)
