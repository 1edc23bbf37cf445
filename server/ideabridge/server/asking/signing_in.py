"""Sign a person in to a server, using a browser redirect to this machine or a pasted address."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream

from ideabridge.bridge.modules.errors import ModuleError, ModuleSignInError
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.sign_ins import ModuleUser, SignInError
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.authorization import Person
    from ideabridge.bridge.modules.device import DevicePerson
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import ModuleConfiguration

SIGN_IN_SECONDS: Final = 600.0
"""Time limit, in seconds, for a person to sign in."""

_CONNECT_SECONDS: Final = 60.0
"""Extra time, in seconds, for the sign-in as a whole, on top of the person's time."""

_PATH: Final = "/callback"
_HEAD_BYTES: Final = 32 * 1024
_HEAD_SECONDS: Final = 10.0
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ideabridge</title>
<body style="font: 1.1em sans-serif; margin: 4em"><p>{}</p></body></html>
"""


class NoSignInError(IdeabridgeError):
    """Raised when signing in to a server is impossible or unnecessary. The message says why."""


def expect_sign_in(name: str, entry: ModuleConfiguration, user: str | None) -> None:
    """Raise `NoSignInError` unless a person can sign in to a server.

    Args:
        name: the name of the server.
        entry: the entry of the server.
        user: the user of ideabridge who wants to sign in, or None for the person who starts
            ideabridge.
    """
    if entry.url is None:
        raise NoSignInError(f"{name} is a program, which signs in on its own")
    if any(header.lower() == "authorization" for header in entry.headers):
        raise NoSignInError(
            f"mcpServers.{name}.headers contains the token for {name}, so no sign-in is needed"
        )

    if entry.auth is not None and entry.auth.grant == "client_credentials":
        raise NoSignInError(
            f"{name} needs no person to sign in: mcpServers.{name}.auth contains the credentials "
            "of a client"
        )

    if user is not None and not entry.has_sign_ins:
        raise NoSignInError(
            f'mcpServers.{name}.auth has "shared", so all users act with one sign-in'
        )


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A successful sign-in.

    Attributes:
        kept_in: where the tokens are stored, as readable text.
        problem: why the server still cannot be used, or "" if it can.
    """

    kept_in: str
    problem: str = ""


async def sign_in(
    configuration: Configuration,
    name: str,
    person: Person | DevicePerson,
    user: ModuleUser | None = None,
) -> SignedIn | None:
    """Sign a person in to a server. Return None if the server does not require a sign-in.

    Args:
        configuration: the configuration that contains the server.
        name: the name of the server.
        person: the person who signs in.
        user: the user whose calls use the sign-in, or None for the person who starts ideabridge.

    Raises:
        IdeabridgeError: the sign-in failed. The error might be inside an exception group.
    """
    seconds = SIGN_IN_SECONDS + _CONNECT_SECONDS
    patient = configuration.modules[name].model_copy(
        update={"connect_timeout": seconds, "disabled": False}
    )
    alone = configuration.model_copy(update={"modules": {name: patient}})
    # Call a tool the second time, because a server that lists its tools to everybody asks for a
    # sign-in only when a tool is called.
    for at_once in (False, True):
        async with Modules(alone, person=person, at_once=at_once, user=user) as modules:
            problem = ""
            try:
                await modules[name].ready(seconds)
            except ModuleError as error:
                # The person has signed in even if the server fails afterwards, unless it refuses
                # the token.
                if isinstance(error, ModuleSignInError) or _token_place(modules[name]) is None:
                    raise
                problem = str(error)

            kept_in = _token_place(modules[name])
            if kept_in is not None:
                return SignedIn(kept_in, problem)

    return None


def _token_place(module: Module) -> str | None:
    """Return where the tokens of a signed-in person are stored, or None if nobody has signed in."""
    return None if module.authorization is None else module.authorization.signed_in


class BrowserPerson:
    """A person with a browser on this machine.

    Args:
        redirect_uri: the address that the browser is redirected to.
        show: shows the address to the person.
        opens: whether to open the browser. If not, the person opens the address that `show` shows.
    """

    def __init__(
        self, redirect_uri: str, show: Callable[[str], None], *, opens: bool = True
    ) -> None:
        self.redirect_uri = redirect_uri
        self._show = show
        self._opens = opens
        self._state = ""
        self._back = ""
        self._arrived = anyio.Event()

    async def authorize(self, url: str) -> str:
        """Open the address, and wait until the browser is redirected to this machine.

        Raises:
            SignInError: the person does not sign in within the time limit.
        """
        self._state = _state_of(url)
        self._arrived = anyio.Event()
        self._show(url)
        with anyio.move_on_after(SIGN_IN_SECONDS):
            if self._opens:
                await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
            await self._arrived.wait()

        if not self._arrived.is_set():
            raise SignInError(f"nobody signed in within {SIGN_IN_SECONDS / 60:.0f} minutes")
        return self._back

    def paste(self, address: str) -> None:
        """Accept the address that a person's browser on another machine was redirected to.

        The address is accepted only if it contains the state of this sign-in.

        Raises:
            SignInError: the address is not the answer to this sign-in.
        """
        if not self._state or _state_of(address) != self._state:
            raise SignInError("this is not the address to which this sign-in redirects the browser")
        self._take(address)

    def _take(self, address: str) -> None:
        self._state = ""
        query = urlsplit(address).query
        self._back = urlsplit(self.redirect_uri)._replace(query=query).geturl()
        self._arrived.set()

    async def answer(self, stream: SocketStream) -> None:
        """Respond to an HTTP request from the browser. The request is accepted only if it contains
        the state of this sign-in, which nobody else knows.
        """
        async with stream:
            target = await _target(stream)
            address = urlsplit(target)
            if address.path != urlsplit(self.redirect_uri).path:
                await _respond(stream, "404 Not Found", "There is nothing here.")
            elif not self._state or _state_of(target) != self._state:
                await _respond(
                    stream,
                    "400 Bad Request",
                    "This is not the answer to a sign-in that ideabridge began.",
                )
            else:
                text = (
                    "ideabridge has received the answer. You can close this page and return to "
                    "the place where you began."
                )
                await _respond(stream, "200 OK", text)
                self._take(target)


class PastingPerson:
    """A person with a browser on another machine, who pastes the address that the browser ends up
    at.

    Args:
        redirect_uri: the address that the browser is redirected to. Nothing needs to listen there.
        show: shows the address to the person.
        read: reads a line.
    """

    def __init__(
        self,
        redirect_uri: str,
        show: Callable[[str], None],
        read: Callable[[], Awaitable[str | None]],
    ) -> None:
        self.redirect_uri = redirect_uri
        self._show = show
        self._read = read

    async def authorize(self, url: str) -> str:
        """Show the address, and read the address that the browser was redirected to.

        Raises:
            SignInError: the person pastes nothing.
        """
        self._show(url)
        text = None
        with anyio.move_on_after(SIGN_IN_SECONDS):
            text = await self._read()

        if text is None or not text.strip():
            raise SignInError("no address was pasted")
        return text.strip()


@asynccontextmanager
async def browser_person(
    redirect_uri: str | None, show: Callable[[str], None], *, opens: bool = True
) -> AsyncGenerator[BrowserPerson]:
    """Yield a person whose browser is redirected to a port on this machine.

    The port listens until the block ends. For the arguments, see `BrowserPerson`.

    Raises:
        SignInError: the port of `redirect_uri` is not free.
    """
    parts = urlsplit(redirect_uri or "")
    host = parts.hostname or "127.0.0.1"
    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=parts.port or 0)
    except OSError as error:
        raise SignInError(
            f"cannot listen on {redirect_uri or host}: {error.strerror or error}"
        ) from None

    async with listener, anyio.create_task_group() as group:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
        person = BrowserPerson(redirect_uri or f"http://127.0.0.1:{port}{_PATH}", show, opens=opens)
        group.start_soon(listener.serve, person.answer)
        try:
            yield person
        finally:
            group.cancel_scope.cancel()


def unused_address() -> str:
    """Return an address on this machine where nothing listens. The browser displays it but cannot
    open it.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}{_PATH}"


def _state_of(url: str) -> str:
    return parse_qs(urlsplit(url).query).get("state", [""])[0]


async def _target(stream: SocketStream) -> str:
    """Return the target of a GET request, or "" for any other request."""
    head = b""
    with anyio.move_on_after(_HEAD_SECONDS):
        try:
            while b"\r\n\r\n" not in head and len(head) <= _HEAD_BYTES:
                head += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return ""

    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" else ""


async def _respond(stream: SocketStream, status: str, text: str) -> None:
    body = _PAGE.format(text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; "
        f"charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    # The browser may have closed the connection before it got the page. By then, it has already
    # sent the answer.
    with anyio.move_on_after(_HEAD_SECONDS):
        try:
            await stream.send(head.encode() + body)
        except anyio.BrokenResourceError:
            return
