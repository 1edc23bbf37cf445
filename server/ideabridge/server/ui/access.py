"""Decide who may open the page, and check each request to it.

The page shows results from tools and lets a person approve calls. It must therefore be protected
from other web pages in the person's browser, and from programs that can merely reach its address:

- A visitor has a session with a random key in a cookie (`HttpOnly`, `SameSite=Strict`). The session
  begins with a token or with the owner's link. The gate checks the token again while requests are
  in progress.
- Without users and a token, anyone who can reach the page can read it. Every change still needs a
  session: a model that can send requests to this machine must not approve its own calls.
- Every POST must contain the session's secret in its form, and must come from this page according
  to `Origin` and `Sec-Fetch-Site`.
- Responses allow only scripts and styles from this server, and no frames
  (`Content-Security-Policy`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.store.run_record import CLIENT
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, Viewer, person_of
from ideabridge.server.callers import Credentials
from ideabridge.server.transports.connections import connection_of
from ideabridge.server.transports.gate import (
    ANYBODY,
    PAGE,
    SIGN_IN,
    STATIC,
    STRANGER,
    Admission,
    header,
)
from ideabridge.server.transports.quotas import Quotas
from ideabridge.tools.errors import IdeabridgeError

FORM: Final = "ideabridge.ui.form"
VISITOR: Final = "ideabridge.ui.visitor"
REVISION: Final = "ideabridge.ui.revision"
_ACCESS: Final = "ideabridge.ui.access"

PAGE_CLIENT: Final = "the page"
"""The `client` of runs that a person starts on the page."""

MAX_FORM: Final = 4 * 1024 * 1024
"""Maximum size of a POST request's body, in bytes."""

MOST_FIELDS: Final = 1000
"""Maximum number of fields in a form."""

_MOST_SIGN_IN: Final = 16 * 1024
"""Maximum size, in bytes, of the sign-in form that a stranger sends."""

_MOST_SIGN_INS: Final = 60
"""Maximum number of sign-ins by one caller, and of failed sign-ins from one address, per minute."""

_MOST_FAILURES: Final = 600
"""Maximum number of failed sign-ins per minute, from all addresses together."""

_IDLE_SECONDS: Final = 12 * 3600.0

_MOST_SESSIONS: Final = 20
"""Maximum number of sessions per caller. Beyond it, a new session ends the least recently used
one.
"""

_LONGEST_AGENT: Final = 300
"""Maximum number of characters kept from a `User-Agent`."""

_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-httpx/", "python-httpx"),
)
"""The text in a `User-Agent` that identifies each browser. Some browsers also name browsers that
come later in this list.
"""

_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)

_READS_ONLY: Final = (
    "You may read this page, but not change anything: a change needs a session. Run `ideabridge "
    "ui --link HOST:PORT` on the machine of this ideabridge, and open the link that it prints."
)

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_KEEP: Final = "private, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link to another page.

    Attributes:
        path: the path of the page, without the site's prefix.
        label: the text of the link.
    """

    path: str
    label: str


@dataclass(frozen=True, slots=True)
class Note:
    """A message to show on the next page that a visitor opens.

    Attributes:
        kind: `ask` if something still has to be done, or `text` if the message is for the visitor
            to copy.
        text: the message.
        link: the page that the message links to, or None.
    """

    kind: Literal["good", "ask", "bad", "text"]
    text: str
    link: PageLink | None = None


@dataclass(slots=True)
class Visitor:
    """A person viewing the page.

    Attributes:
        caller: the caller whose runs the visitor sees: `local`, `user:NAME` or `token_HASH`.
        token: the token that started the session, or None if the session began with the owner's
            link or there is no session.
        secret: the string that every form of the session contains, or "" if the visitor has no
            session and can only read.
        used: when the session was last used, on the monotonic clock.
        began: when the session began, in seconds since 1970.
        address: the network address from which the session began, or "" if unknown.
        agent: the `User-Agent` of the browser that began the session, or "" if unknown.
        notes: messages to show on the next page.
        manages: whether the visitor is the store's owner or an admin, and can therefore see all
            users' runs.
    """

    caller: str
    token: bytes | None = None
    secret: str = ""
    used: float = 0.0
    began: float = 0.0
    address: str = ""
    agent: str = ""
    notes: list[Note] = field(default_factory=list[Note])
    manages: bool = False

    @property
    def may_change(self) -> bool:
        """True if the visitor has a session and can therefore make changes."""
        return bool(self.secret)

    @property
    def is_owner(self) -> bool:
        """True if the session began with the owner's link, which works only once, rather than with
        a token.
        """
        return self.may_change and self.caller == LOCAL and self.token is None

    @property
    def name(self) -> str:
        """The name of the person."""
        return person_of(self.caller)

    @property
    def decider(self) -> Decider:
        """The decider to record for this visitor's decisions."""
        return Decider("person", "page", self.name)

    @property
    def scope(self) -> Viewer:
        """The viewer for store queries: `SEES_ALL` if the visitor manages, otherwise the visitor's
        caller.
        """
        return SEES_ALL if self.manages else self.caller


class NotAManagerError(IdeabridgeError):
    """Raised when a visitor tries to see or change what only the store's owner and admins may."""


class UnknownSessionError(IdeabridgeError):
    """Raised when no session on the page has the given id."""


class NotTheOwnerError(IdeabridgeError):
    """Raised when a visitor tries to do what only the owner may, in a session that began with the
    owner's link.
    """


def expect_manager(visitor: Visitor) -> None:
    """Raise `NotAManagerError` unless the visitor is the owner or an admin."""
    if not visitor.manages:
        raise NotAManagerError(
            "only the owner of this ideabridge and admins may see or change this"
        )


def expect_owner(visitor: Visitor) -> None:
    """Raise `NotTheOwnerError` unless the session began with the owner's link."""
    if not visitor.is_owner:
        raise NotTheOwnerError(
            "only the owner may do this, in a session that began with the owner's link: a token is "
            "not enough"
        )


def visitor_of(request: Request) -> Visitor:
    """Return the visitor who sent a request that has passed `Access`."""
    visitor = request.scope[VISITOR]
    assert isinstance(visitor, Visitor)
    return visitor


def form_of(request: Request) -> FormFields:
    """Return the form of a POST request that has passed `Access`."""
    form = request.scope[FORM]
    assert isinstance(form, FormFields)
    return form


@dataclass(frozen=True, slots=True)
class PageSession:
    """A session on the page, as the page lists it.

    Attributes:
        id: identifies the session without revealing its key.
        caller: the caller of the visitor.
        is_owner: whether the session began with the owner's link.
        idle: the number of seconds since the session was last used.
        began: when the session began, in seconds since 1970.
        address: the network address from which the session began, or "" if unknown.
        browser: the browser that began the session, such as `Firefox on Linux`, or "" if unknown.
        is_own: whether this is the session that makes the request.
    """

    id: str
    caller: str
    is_owner: bool
    idle: float
    began: float
    address: str
    browser: str
    is_own: bool

    @property
    def name(self) -> str:
        """The name of the person."""
        return person_of(self.caller)


def access_of(request: Request) -> Access:
    """Return the `Access` that let the request through."""
    access = request.scope[_ACCESS]
    assert isinstance(access, Access)
    return access


class FormFields:
    """The fields of a form, in order."""

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self.fields = list(fields)

    def get(self, name: str, otherwise: str = "") -> str:
        """Return the value of the first field named `name`, with Unix line endings."""
        return next(
            (value.replace("\r\n", "\n") for key, value in self.fields if key == name), otherwise
        )

    def all(self, name: str) -> list[str]:
        """Return every field with this name."""
        return [value for key, value in self.fields if key == name]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the first value of each field whose name begins with `prefix`, keyed by the rest
        of the name.
        """
        names = [name for name, _ in self.fields if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.get(name) for name in names}


class Access:
    """The `Door` to the page. The module docstring describes the rules.

    Args:
        app: the page.
        credentials: checks tokens.
        store: the store, which contains the users, what each user may see, and the owner's links.
        quotas: counts what callers use.
    """

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        store: Store,
        quotas: Quotas,
    ) -> None:
        self._app = app
        self._quotas = quotas
        self._credentials = credentials
        self._store = store
        # The sessions, keyed by the key in their cookie, least recently used first.
        self._sessions: OrderedDict[str, Visitor] = OrderedDict()

    # -- identifying visitors ----------------------------------------------------------------------

    @property
    def needs_token(self) -> bool:
        """True if requests to the server need a token."""
        return self._credentials.are_required

    async def identify(self, scope: Scope) -> Admission | ASGIApp:
        """See `Door`."""
        method = scope["method"]
        path = scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            return self.refusal(405, "expected GET or POST", {"Allow": "GET, HEAD, POST"})
        if method == "POST" and _comes_from_elsewhere(Headers(scope=scope)):
            return self.refusal(403, "this form was sent from another site", {})
        if _is_part_of_another_site(Headers(scope=scope)):
            return self.refusal(403, "another site cannot load this page", {})

        scope[VISITOR] = None
        if path.startswith(STATIC) or path == SIGN_IN:
            return STRANGER

        CLIENT.set(PAGE_CLIENT)
        key = _session_key(scope)
        visitor = await self._visitor(key)
        if visitor is not None:
            scope[VISITOR] = visitor
            return Admission(visitor.caller, visitor.token, key)
        if self._credentials.are_required:
            return self.refusal(303, "sign in first", {"Location": SIGN_IN})
        if method == "POST":
            return self.refusal(403, _READS_ONLY, {})

        scope[VISITOR] = Visitor(LOCAL, manages=True)
        return ANYBODY

    def holds(self, admission: Admission) -> bool:
        """See `Door`."""
        if admission.session is not None:
            return admission.session in self._sessions
        return admission.caller is None or not self._credentials.are_required

    def refusal(self, status: int, why: str, headers: Mapping[str, str]) -> Response:
        """See `Door`."""
        return PlainTextResponse(
            f"{why}\n", status, {**_HEADERS, "Cache-Control": "no-store", **headers}
        )

    # -- requests ----------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Door`."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # Browsers can cache static files, because their URLs change with their content.
                is_file = (
                    message["status"] == 200
                    and scope["query_string"]
                    and scope["path"].startswith(STATIC)
                )
                headers.setdefault("Cache-Control", _KEEP if is_file else "no-store")
            await send(message)

        form = FormFields()
        if scope["method"] == "POST":
            form = await self._read_form(scope, receive)
            if isinstance(form, Response):
                await form(scope, receive, send)
                return

        scope[FORM] = form
        scope[_ACCESS] = self
        await self._app(scope, receive, guarded)

    async def _read_form(self, scope: Scope, receive: Receive) -> FormFields | Response:
        """Return the form of a POST request, or the response that refuses the request."""
        visitor: Visitor | None = scope[VISITOR]
        connection = connection_of(scope)
        most = _MOST_SIGN_IN if visitor is None else MAX_FORM
        body = await _body(receive, connection.hold, most)
        if visitor is not None:
            connection.whole()
        if body is None:
            return self.refusal(413, f"this form may have at most {most:,} bytes", {})

        try:
            text = body.decode()
            fields = parse_qsl(
                text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
            )
        except ValueError:
            return self.refusal(400, "the form cannot be read", {})

        form = FormFields(fields)
        secret = form.get("secret").encode()
        if visitor is not None and not hmac.compare_digest(secret, visitor.secret.encode()):
            reason = "the page is out of date: go back, load it again, and repeat what you did"
            return self.refusal(403, reason, {})
        return form

    # -- sessions ----------------------------------------------------------------------------------

    async def _visitor(self, key: str) -> Visitor | None:
        """Return the visitor whose session has this key, or None if the session does not exist or
        its token is no longer valid.
        """
        self._forget_idle()
        visitor = self._sessions.get(key)
        if visitor is None:
            return None
        if visitor.token is not None and not await self._credentials.still_name(
            visitor.token, visitor.caller
        ):
            self._sessions.pop(key, None)
            return None

        if key not in self._sessions:
            # The session was ended while its token was being checked.
            return None

        visitor.used = time.monotonic()
        visitor.manages = self._store.users.manages(visitor.caller)
        self._sessions.move_to_end(key)
        return visitor

    def _begin(self, caller: str, token: bytes | None, scope: Scope) -> str:
        """Begin a session for the sender of a request and return the session's key."""
        own = [key for key, visitor in self._sessions.items() if visitor.caller == caller]
        if len(own) >= _MOST_SESSIONS:
            del self._sessions[own[0]]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Visitor(
            caller,
            token,
            secrets.token_urlsafe(24),
            used=time.monotonic(),
            began=time.time(),
            address=_address(scope),
            agent=header(scope, b"user-agent")[:_LONGEST_AGENT],
        )
        return key

    def _forget_idle(self) -> None:
        now = time.monotonic()
        while self._sessions:
            key, visitor = next(iter(self._sessions.items()))
            if now - visitor.used < _IDLE_SECONDS:
                return
            del self._sessions[key]

    async def sign_in(self, token: str, scope: Scope) -> str | None:
        """Begin a session with a token. Return the key for the cookie, or None if the token is
        invalid.

        Raises:
            MissingScopeError: the token lacks a scope.
            QuotaError: the caller has signed in too often, or too many attempts from the same
                address have failed.
        """
        token_bytes = token.strip().encode()
        access = await self._credentials.verify(token_bytes) if token_bytes else None
        if access is None:
            self._count_failure(scope)
            return None

        self._quotas.spend(access.client_id, "sign-ins", _MOST_SIGN_INS, 60)
        return self._begin(access.client_id, token_bytes, scope)

    def follow_link(self, key: str, scope: Scope) -> str | None:
        """Begin a session with the owner's link. Return the key for the cookie, or None if the link
        has already been used or has expired.

        Raises:
            QuotaError: too many attempts from the visitor's address have failed.
        """
        if self._store.owner_links.use(key):
            return self._begin(LOCAL, None, scope)
        self._count_failure(scope)
        return None

    def _count_failure(self, scope: Scope) -> None:
        # Count only failures, so that strangers cannot use up the users' sign-ins.
        self._quotas.spend(_address(scope), "failed sign-ins from this address", _MOST_SIGN_INS, 60)
        self._quotas.spend("", "failed sign-ins", _MOST_FAILURES, 60)

    def sessions(self, visitor: Visitor) -> list[PageSession]:
        """Return the sessions in this process, most recently used first.

        Args:
            visitor: the visitor making the request, whose own session is marked.
        """
        now = time.monotonic()
        return [
            PageSession(
                _session_id(key),
                other.caller,
                other.is_owner,
                now - other.used,
                other.began,
                other.address,
                _browser(other.agent),
                is_own=other is visitor,
            )
            for key, other in reversed(self._sessions.items())
        ]

    def end_session(self, session_id: str, visitor: Visitor) -> PageSession:
        """End a session. Only the owner may end a session that began with the owner's link.

        Raises:
            UnknownSessionError: the session no longer exists.
            NotTheOwnerError: the session is the owner's.
        """
        for key, session in zip(reversed([*self._sessions]), self.sessions(visitor), strict=True):
            if session.id == session_id:
                if session.is_owner:
                    expect_owner(visitor)
                del self._sessions[key]
                return session
        raise UnknownSessionError("this session has already ended")

    def end_other_sessions(self, visitor: Visitor) -> int:
        """End every session that the visitor may end, except the visitor's own. Return the number
        of sessions ended.
        """
        others = [
            key
            for key, other in self._sessions.items()
            if other is not visitor and (visitor.is_owner or not other.is_owner)
        ]
        for key in others:
            del self._sessions[key]
        return len(others)

    def sign_out(self, scope: Scope) -> None:
        """End the session that a request belongs to."""
        self._sessions.pop(_session_key(scope), None)


def _address(scope: Scope) -> str:
    """Return the network address that a request comes from, which is the proxy's address if there
    is a proxy.
    """
    return scope["client"][0] if scope["client"] else ""


def _browser(agent: str) -> str:
    """Return the browser and operating system that a `User-Agent` names, or "" if it names no known
    browser.

    The header can contain anything, so the result only helps people recognise their sessions.
    """
    browser = next((name for sign, name in _BROWSERS if sign in agent), "")
    system = next((name for sign, name in _SYSTEMS if sign in agent), "")
    return f"{browser} on {system}" if browser and system else browser


def _session_id(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def cookie(scope: Scope, key: str) -> str:
    """Return the header that sets the session cookie, or deletes it if `key` is empty."""
    ends = "" if key else "; Max-Age=0"
    place = "Path=/; Secure" if is_encrypted(scope) else f"Path={PAGE}"
    return f"{_cookie_name(scope)}={key}; {place}; HttpOnly; SameSite=Strict{ends}"


def _cookie_name(scope: Scope) -> str:
    """Return the name of the cookie, which contains the port because browsers send cookies to every
    port of a host.
    """
    name = f"ideabridge_ui_{scope['server'][1]}"
    # Browsers accept a cookie with this prefix only over an encrypted connection and only from this
    # host.
    return f"__Host-{name}" if is_encrypted(scope) else name


def is_encrypted(scope: Scope) -> bool:
    """Return whether the browser's connection is encrypted, as far as the server can tell from a
    proxy's headers.

    If a client falsely claims that its connection is encrypted, its browser merely does not store
    the cookie.
    """
    return scope.get("scheme") == "https" or header(scope, b"x-forwarded-proto") == "https"


def _session_key(scope: Scope) -> str:
    return cookie_parser(header(scope, b"cookie")).get(_cookie_name(scope), "")


def _comes_from_elsewhere(headers: Headers) -> bool:
    """Return whether the headers say that a form was sent from another site."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return True
    return site not in (None, "same-origin", "none")


def _is_part_of_another_site(headers: Headers) -> bool:
    """Return whether a browser is loading something, such as an image, as part of another site's
    page. Following a link does not count.
    """
    return (
        headers.get("sec-fetch-site") == "cross-site"
        and headers.get("sec-fetch-mode") != "navigate"
    )


async def _body(receive: Receive, hold: Callable[[int], None], most: int) -> bytes | None:
    """Return the body of a request, or None if it is larger than `most` bytes."""
    body = bytearray()
    last = await receive()
    while last["type"] == "http.request":
        piece: bytes = last.get("body", b"")
        body += piece
        hold(len(piece))
        if len(body) > most:
            return None
        if not last.get("more_body", False):
            return bytes(body)
        last = await receive()

    return None
