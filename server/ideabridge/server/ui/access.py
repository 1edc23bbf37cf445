"""Access: who may open the page, and what a request must have.

The page shows results of tools and lets a person approve calls, so another web page must not reach it through the
person's browser:

- A request names a host of this server, or it is refused (421): a foreign name may point to this machine.
- A visitor has a random session in a cookie (`HttpOnly`, `SameSite=Strict`). If the server requires tokens, the session
  begins with a token, or with the link that `ideabridge ui` prints, and each request checks the token again.
- Every POST carries the secret of its session in its form, and comes from this page by `Origin` and `Sec-Fetch-Site`.
- The answers allow scripts and styles of this server only, and no frames (`Content-Security-Policy`).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, Users, Viewer, person_of
from ideabridge.server.callers import Credentials
from ideabridge.server.operations.requests import note_user
from ideabridge.server.transports.connections import connection_of
from ideabridge.server.transports.quotas import QuotaError
from ideabridge.tools.errors import IdeabridgeError

PREFIX: Final = "/ui"
COOKIE: Final = "ideabridge_ui"
FORM: Final = "ideabridge.ui.form"
VISITOR: Final = "ideabridge.ui.visitor"
REVISION: Final = "ideabridge.ui.revision"

MAX_FORM: Final = 4 * 1024 * 1024
"""Bytes of the body of a POST."""

MOST_FIELDS: Final = 1000
"""Fields of a form."""

_IDLE_SECONDS: Final = 12 * 3600.0
_LINK_SECONDS: Final = 600.0
_MOST_SESSIONS: Final = 1000

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_STATIC: Final = f"{PREFIX}/static/"
_KEEP: Final = "private, max-age=31536000, immutable"

Note = tuple[Literal["good", "bad"], str]
"""A message for the next page that a visitor opens."""


@dataclass(slots=True)
class Visitor:
    """One session of a browser.

    Attributes:
        caller: whose runs it sees: `local`, `user:NAME` or `token_HASH`.
        token: the token that it began with; None: no token was required, or it began with the link.
        by_link: it began with the link of `ideabridge ui`, which only a person at this machine sees, or is that of the
            owner who has added the first user.
        secret: what every form of this session carries.
        used: when it was last used, by the monotonic clock.
        notes: messages for the next page.
        manages: it is the owner of the store or an admin, and sees the runs of everybody.
    """

    caller: str
    token: bytes | None = None
    by_link: bool = False
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used: float = 0.0
    notes: list[Note] = field(default_factory=list[Note])
    manages: bool = False

    @property
    def name(self) -> str:
        """The name of the person."""
        return person_of(self.caller)

    @property
    def decider(self) -> Decider:
        """Who decides when this visitor decides."""
        return Decider("person", "page", self.name)

    @property
    def scope(self) -> Viewer:
        """What it sees: as its caller, or everything."""
        return SEES_ALL if self.manages else self.caller


def visitor_of(request: Request) -> Visitor:
    """The visitor of a request that `Access` passed on."""
    found = request.scope[VISITOR]
    assert isinstance(found, Visitor)
    return found


def form_of(request: Request) -> FormFields:
    """The form of a POST that `Access` passed on."""
    found = request.scope[FORM]
    assert isinstance(found, FormFields)
    return found


class FormFields:
    """The fields of a form, in order."""

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self.fields = list(fields)

    def get(self, name: str, otherwise: str = "") -> str:
        """The first field of that name, with the line ends of Python."""
        return next((value.replace("\r\n", "\n") for key, value in self.fields if key == name), otherwise)

    def all(self, name: str) -> list[str]:
        """Every field of that name."""
        return [value for key, value in self.fields if key == name]


class Access:
    """ASGI middleware of the page; see the module.

    Args:
        app: the page.
        credentials: the valid tokens.
        users: says who sees everybody's runs.
        hosts: the accepted Host headers; `NAME:*` accepts every port.
        spend: counts a change that a caller requests, and raises `QuotaError` when there are too many.
        revision: the revision of the store, which a page notes before it reads anything.
    """

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        users: Users,
        hosts: list[str],
        spend: Callable[[str], None],
        revision: Callable[[], tuple[int, int]],
    ) -> None:
        self._app = app
        self._revision = revision
        self._credentials = credentials
        self._users = users
        self._hosts = hosts
        self._spend = spend
        self._visitors: OrderedDict[str, Visitor] = OrderedDict()
        self._links: dict[str, float] = {}

    def link(self) -> str:
        """The path of a link that signs the person at this machine in as the owner, once, within 10
        minutes. It is a secret.
        """
        key = secrets.token_urlsafe(24)
        self._links[key] = time.monotonic() + _LINK_SECONDS
        return f"{PREFIX}/sign-in?key={key}"

    # -- requests ----------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        headers = Headers(scope=scope)
        connection = connection_of(scope)
        connection.admitted()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _HEADERS.items():
                    answered.setdefault(name, value)
                # The address of a file of the page changes with its content.
                is_file = message["status"] == 200 and scope["query_string"] and scope["path"].startswith(_STATIC)
                answered.setdefault("Cache-Control", _KEEP if is_file else "no-store")
            await send(message)

        async def refuse(status: int, why: str) -> None:
            connection.whole()
            await PlainTextResponse(why + "\n", status)(scope, receive, guarded)

        if not self._names_us(headers.get("host", "")):
            await refuse(421, "this is not a name of this server: start it with --allow-host NAME to allow it")
            return
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            await refuse(405, "expected GET or POST")
            return
        form = FormFields()
        if method == "POST":
            body = await _body(receive, connection.hold)
            if body is None:
                await refuse(413, f"a form has at most {MAX_FORM:,} bytes")
                return
            try:
                fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
            except ValueError:
                await refuse(400, "the form cannot be read")
                return
            form = FormFields(fields)
        connection.whole()
        try:
            key, visitor = await self._visitor(Request(scope))
        except IdeabridgeError as error:
            await refuse(503, f"tokens cannot be checked now: {error}")
            return
        if method == "POST" and (why := self._doubt(headers, form, visitor)) is not None:
            await refuse(403, why)
            return
        if method == "POST" and visitor is not None:
            try:
                self._spend(visitor.caller)
            except QuotaError as error:
                await refuse(429, str(error))
                return
        if visitor is not None:
            note_user(scope, visitor.caller)
        scope[FORM], scope[VISITOR], scope[REVISION] = form, visitor, "{}.{}".format(*self._revision())
        path: str = scope["path"]
        if visitor is None and not path.startswith((_STATIC, f"{PREFIX}/sign-in")):
            await _Redirect(f"{PREFIX}/sign-in")(scope, receive, guarded)
            return

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and key is not None:
                answered = MutableHeaders(raw=message.setdefault("headers", []))
                answered.append("Set-Cookie", self.cookie(scope, key))
            await guarded(message)

        await self._app(scope, receive, with_cookie)

    def _names_us(self, host: str) -> bool:
        name = urlsplit(f"//{host}").netloc
        bare = name[: name.rindex(":")] if ":" in name.rpartition("]")[2] else name
        return bool(name) and (name in self._hosts or f"{bare}:*" in self._hosts)

    def _doubt(self, headers: Headers, form: FormFields, visitor: Visitor | None) -> str | None:
        """Why a POST may come from another page; None if it comes from this one."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return "this form was sent from another site"
        if site not in (None, "same-origin", "none"):
            return "this form was sent from another site"
        if visitor is not None and not hmac.compare_digest(form.get("secret").encode(), visitor.secret.encode()):
            return "the page is out of date: go back, load it again, and repeat what you did"
        return None

    # -- sessions ----------------------------------------------------------------------------------------------

    async def _visitor(self, request: Request) -> tuple[str | None, Visitor | None]:
        """(the key of a new session for the cookie, the visitor); None: the visitor must sign in first."""
        self._forget_idle()
        key = request.cookies.get(COOKIE, "")
        visitor = self._visitors.get(key)
        if visitor is not None and not await self._is_valid(visitor):
            del self._visitors[key]
            visitor = None
        if visitor is not None:
            visitor.used = time.monotonic()
            visitor.manages = self._users.manages(visitor.caller)
            self._visitors.move_to_end(key)
            return None, visitor
        if self._credentials.are_required:
            return None, None
        return self.begin(LOCAL)

    def begin(self, caller: str, token: bytes | None = None, *, by_link: bool = False) -> tuple[str, Visitor]:
        """Begin a session; returns its key and the visitor."""
        key = secrets.token_urlsafe(32)
        visitor = Visitor(caller, token, by_link, used=time.monotonic(), manages=self._users.manages(caller))
        self._visitors[key] = visitor
        if len(self._visitors) > _MOST_SESSIONS:
            self._visitors.popitem(last=False)
        return key, visitor

    async def _is_valid(self, visitor: Visitor) -> bool:
        if visitor.token is not None:
            access = await self._credentials.verify(visitor.token)
            return access is not None and access.client_id == visitor.caller
        return visitor.by_link or not self._credentials.are_required

    def _forget_idle(self) -> None:
        now = time.monotonic()
        while self._visitors:
            key, visitor = next(iter(self._visitors.items()))
            if now - visitor.used < _IDLE_SECONDS:
                return
            del self._visitors[key]

    async def sign_in(self, token: str) -> str | None:
        """Begin a session with a token; returns the key for the cookie, or None if the token is not valid."""
        given = token.strip().encode()
        access = await self._credentials.verify(given) if given else None
        return None if access is None else self.begin(access.client_id, given)[0]

    def follow_link(self, key: str) -> str | None:
        """Begin a session with a link; returns the key for the cookie, or None if the link is used or too old."""
        until = self._links.pop(key, 0.0)
        return self.begin(LOCAL, by_link=True)[0] if until > time.monotonic() else None

    def sign_out(self, request: Request) -> None:
        """End the session of a request."""
        self._visitors.pop(request.cookies.get(COOKIE, ""), None)

    @staticmethod
    def cookie(scope: Scope, key: str) -> str:
        """The header that sets the session's cookie; an empty key deletes it."""
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        ends = "" if key else "; Max-Age=0"
        return f"{COOKIE}={key}; Path={PREFIX}; HttpOnly; SameSite=Strict{secure}{ends}"


class _Redirect(PlainTextResponse):
    def __init__(self, where: str) -> None:
        super().__init__("", 303, {"Location": where})


async def _body(receive: Receive, hold: Callable[[int], None]) -> bytes | None:
    """The body of a request; None if it is too large."""
    body, last = bytearray(), await receive()
    while last["type"] == "http.request":
        piece: bytes = last.get("body", b"")
        body += piece
        hold(len(piece))
        if len(body) > MAX_FORM:
            return None
        if not last.get("more_body", False):
            return bytes(body)
        last = await receive()
    return None
