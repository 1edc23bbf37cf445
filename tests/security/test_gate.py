"""The one gate of the server over HTTP: what somebody unknown gets, and what one
caller may hold.
"""

from __future__ import annotations

import http.client
import re
import resource
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.store.store import Store
from ideabridge.server.callers import Credentials
from ideabridge.server.serve import link_to
from ideabridge.server.transports.gate import Admission, Gate, HostNames
from ideabridge.server.transports.http import bind_socket, http_server
from ideabridge.server.transports.quotas import Quotas
from tests import preloaded
from tests.server.serving import BIN, LAUNCH, configured, listening, served

pytestmark = pytest.mark.anyio

STREAMS = 200
SESSIONS = 20
LIMITED = Path(__file__).with_name("limited.py")
DESCRIPTORS = 1200
"""How many files a server may have open in a test that takes all its connections: the half."""

SOCKETS = 700
"""How many connections such a test opens."""

SIGN_INS = 60
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


class Site:
    """A server with the page in a process of its own, with users."""

    def __init__(self, url: str, store: Path, *names: str) -> None:
        self.base = url.removesuffix("/mcp")
        self.store = store
        host, _, port = self.base.removeprefix("http://").partition(":")
        self.address = host, int(port)
        self.tokens: dict[str, str] = {}
        with Store.open(store) as opened:
            for name in names:
                opened.users.add(name)
                self.tokens[name] = opened.users.add_token(name)[1]

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=30)

    def sign_in(self, web: httpx.Client, name: str) -> int:
        return web.post("/ui/sign-in", data={"token": self.tokens[name]}).status_code

    def session(self, name: str) -> str:
        """The cookie of a new session of a user."""
        with self.browser() as web:
            assert self.sign_in(web, name) == 303
            return "; ".join(f"{key}={value}" for key, value in web.cookies.items())

    def connect(self, request: str = "") -> socket.socket:
        """Open a connection, and send the beginning of a request."""
        opened = socket.create_connection(self.address, timeout=30)
        opened.sendall(request.encode())
        return opened

    def stream(self, **headers: str) -> socket.socket:
        """Open a stream of changes of the page; what it answers is not read."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return self.connect(f"GET /ui/live HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n")

    def health(self) -> None:
        for path in ("/healthz", "/readyz"):
            probe = http.client.HTTPConnection(*self.address, timeout=10)
            probe.request("GET", path)
            answer = probe.getresponse()
            assert answer.status == 200, (path, answer.read())
            probe.close()


@contextmanager
def site(folder: Path, *names: str) -> Generator[Site]:
    command = served(configured(folder), "--http", "127.0.0.1:0", "--ui")
    with listening(command) as url:
        yield Site(url, folder / "ideas.sqlite", *names)


@contextmanager
def limited_site(folder: Path, *names: str) -> Generator[Site]:
    """A site with fewer connections than `SOCKETS`."""
    start = ["serve", "--config", str(configured(folder)), "--http", "127.0.0.1:0", "--ui"]
    command = preloaded.python(LIMITED, str(DESCRIPTORS), str(BIN / "ideabridge"), *start)
    with listening(command) as url:
        yield Site(url, folder / "ideas.sqlite", *names)


@pytest.fixture
def many_sockets() -> Generator[None]:
    """`SOCKETS` and some more may be open here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS + 400
    assert hard == resource.RLIM_INFINITY or hard >= wanted, f"this test opens {SOCKETS} sockets"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def status_of(opened: socket.socket) -> int:
    return int(opened.recv(100).split(b" ", 2)[1])


@pytest.mark.usefixtures("many_sockets")
def test_streams_of_one_member_leave_connections_for_others_and_for_health(tmp_path: Path) -> None:
    with limited_site(tmp_path, "ann", "bob") as team, ExitStack() as stack:
        # More sessions of one caller do not make more callers.
        cookies = [team.session("ann") for _ in range(5)]
        streams = [
            stack.enter_context(team.stream(Cookie=cookies[number % 5]))
            for number in range(SOCKETS)
        ]
        statuses = [status_of(one) for one in streams]
        assert statuses.count(200) == STREAMS
        assert statuses.count(429) == SOCKETS - STREAMS
        # The streams of MCP count towards the same share.
        headers = {"authorization": f"Bearer {team.tokens['ann']}", "accept": "text/event-stream"}
        refused = httpx.get(f"{team.base}/mcp", headers=headers)
        assert refused.status_code == 429
        assert f"you have {STREAMS} streams" in refused.text
        team.health()
        with team.stream(Cookie=team.session("bob")) as stream:
            assert status_of(stream) == 200


@pytest.mark.parametrize(
    "request_", ["", "G", "GET /ui/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
)
@pytest.mark.usefixtures("many_sockets")
def test_connections_of_strangers_leave_one_for_health(request_: str, tmp_path: Path) -> None:
    with limited_site(tmp_path, "ann") as team, ExitStack() as stack:
        for number in range(SOCKETS):
            stack.enter_context(team.connect(request_))
            if number % 200 == 199:
                team.health()
        team.health()
        assert team.session("ann")


def test_many_callers_together_leave_connections_for_one_more(tmp_path: Path) -> None:
    names = [f"user{number}" for number in range(12)]
    command = preloaded.python(LIMITED, "600", str(LAUNCH), str(configured(tmp_path)), "0")
    with listening(command) as url, ExitStack() as stack:
        team = Site(url, tmp_path / "ideas.sqlite", *names, "late")
        for name in names:
            head = (
                "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: "
                f"Bearer {team.tokens[name]}\r\n"
            )
            for _ in range(40):
                stack.enter_context(team.connect(f"{head}Content-Length: 1000\r\n\r\n{{"))

        team.health()
        # The request makes no sense, but it is answered, so it was read.
        headers = {"authorization": f"Bearer {team.tokens['late']}", "accept": "text/html"}
        assert httpx.post(f"{team.base}/mcp", headers=headers, json={}).status_code == 400


def test_a_body_is_not_read_before_it_is_known_who_sends_it(tmp_path: Path) -> None:
    head = f"Host: 127.0.0.1\r\n{FORM}Content-Length: 4000000\r\n"
    with site(tmp_path) as open_to_all:
        for path in ("/ui/approvals", "/ui/playground", "/ui/admin/users"):
            with open_to_all.connect(f"POST {path} HTTP/1.1\r\n{head}\r\n") as one:
                assert status_of(one) == 403

    with site(tmp_path, "ann") as team:
        for path, status in (("/ui/approvals", 303), ("/mcp", 401), ("/metrics", 401)):
            with team.connect(f"POST {path} HTTP/1.1\r\n{head}\r\n") as one:
                assert status_of(one) == status
        # A stranger may send a token, but nothing larger.
        with team.browser() as web:
            assert web.post("/ui/sign-in", data={"token": "x" * 20_000}).status_code == 413


# -- sessions and sign-ins -------------------------------------------------------------------------


def test_sign_ins_are_bounded_and_end_sessions_of_the_same_member_alone(tmp_path: Path) -> None:
    with site(tmp_path, "ann", "bob") as team, team.browser() as bob, team.browser() as web:
        assert team.sign_in(bob, "bob") == 303
        began = time.monotonic()
        sessions: list[httpx.Cookies] = []
        # Use one connection for all, because on a busy machine, a new one can take longer than a
        # second, and one more sign-in is allowed in each second.
        while (status := team.sign_in(web, "ann")) != 429:
            assert status == 303
            sessions.append(httpx.Cookies(web.cookies))
            web.cookies.clear()
            assert len(sessions) <= SIGN_INS + time.monotonic() - began

        assert len(sessions) >= SIGN_INS - 1
        valid: list[bool] = []
        for cookies in sessions:
            web.cookies = cookies
            valid.append(web.get("/ui/runs").status_code == 200)

        assert valid == [False] * (len(sessions) - SESSIONS) + [True] * SESSIONS
        assert bob.get("/ui/runs").status_code == 200
        assert team.sign_in(bob, "bob") == 303


def test_failed_sign_ins_are_bounded_and_keep_nobody_from_signing_in(tmp_path: Path) -> None:
    with site(tmp_path, "bob") as team, team.browser() as stranger, team.browser() as bob:
        for _ in range(3 * SIGN_INS):
            stranger.get("/ui/sign-in?x")

        def guess(is_link: bool) -> int:
            # Following a link is a sign-in, too.
            if is_link:
                return stranger.get("/ui/sign-in?key=guess").status_code
            return stranger.post("/ui/sign-in", data={"token": "guess"}).status_code

        # One more guess is allowed each second. Send several at the same time, because on a busy
        # machine, the answer to a single one can take as long.
        answers = {403}
        with ThreadPoolExecutor(8) as threads:
            while 429 not in answers:
                answers.update(threads.map(guess, [True, False] * 4))

        assert answers == {403, 429}
        assert stranger.get("/ui/sign-in").status_code == 200
        assert team.sign_in(bob, "bob") == 303
        with Store.open(team.store) as store:
            link = link_to(f"{team.base}/ui/", store.owner_links)
        assert bob.get(link).headers["location"] == "/ui/home"


def _disable(team: Site, _web: httpx.Client) -> None:
    with Store.open(team.store) as store:
        store.users.change("ann", state="disabled")


def _revoke(team: Site, _web: httpx.Client) -> None:
    with Store.open(team.store) as store:
        store.users.revoke(team.tokens["ann"])


def _sign_out(team: Site, web: httpx.Client) -> None:
    secret = re.search(r'name="secret" value="([^"]+)"', web.get("/ui/runs").text)
    assert secret is not None
    assert web.post("/ui/sign-out", data={"secret": secret[1]}).status_code == 303


@pytest.mark.parametrize("end", [_disable, _revoke, _sign_out])
def test_a_stream_of_the_page_ends_with_its_session(
    end: Callable[[Site, httpx.Client], None], tmp_path: Path
) -> None:
    with site(tmp_path, "ann") as team, team.browser() as web:
        team.sign_in(web, "ann")
        with web.stream("GET", "/ui/live") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": ideabridge"
            end(team, web)
            # The server ends the stream. Changes from before may still be announced.
            assert all(line in ("", "event: changed", "data: {}") for line in lines)
        assert web.get("/ui/runs").status_code == 303


def test_a_stream_that_needed_no_token_ends_with_the_first_user(tmp_path: Path) -> None:
    with site(tmp_path) as team, team.browser() as web:
        with web.stream("GET", "/ui/live") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": ideabridge"
            with Store.open(team.store) as store:
                store.users.add("ann")
            assert all(line in ("", "event: changed", "data: {}") for line in lines)
        assert web.get("/ui/runs").status_code == 303


def test_a_link_works_once_at_every_server_on_the_store(tmp_path: Path) -> None:
    with (
        site(tmp_path) as one,
        site(tmp_path) as other,
        one.browser() as web,
        other.browser() as late,
    ):
        with Store.open(one.store) as store:
            link = link_to("/ui/", store.owner_links)
            key = link.partition("=")[2]
            assert key not in str(store.settings.under("owner link "))
        assert web.get(link).status_code == 303
        assert late.get(link).status_code == 403
        assert web.get(link).status_code == 403


# -- requests in progress, with doors of the test --------------------------------------------------


class Room:
    """A door that lets everybody in who names themselves. What is behind it waits until the
    request is ended.
    """

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.left = anyio.Event()
        self.is_open = True

    async def identify(self, scope: Scope) -> Admission | ASGIApp:
        if not self.is_open:
            return self.refusal(401, "closed", {})
        return Admission("ann", session="one")

    def holds(self, admission: Admission) -> bool:
        return self.is_open

    def refusal(self, status: int, why: str, headers: Mapping[str, str]) -> Response:
        return PlainTextResponse(why, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            assert (await receive())["type"] == "lifespan.startup"
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return

        self.entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.left.set()


@asynccontextmanager
async def gated(room: Room) -> AsyncGenerator[int]:
    """A server in this process with the room behind its page; gives its port."""
    with Store.open(":memory:") as store, bind_socket("127.0.0.1", 0, token=None) as bound:
        gate = Gate(
            Room(),
            room,
            PlainTextResponse("ok"),
            names=HostNames(["127.0.0.1"]),
            credentials=Credentials(store),
            quotas=Quotas(),
            per_minute=1000,
        )
        server = http_server(gate)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(server.serve, sockets=[bound]))
            group.start_soon(gate.watch)
            with anyio.fail_after(20):
                yield bound.getsockname()[1]
            server.end()
            group.cancel_scope.cancel()


GET = b"GET /ui/slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def test_a_page_that_nobody_waits_for_any_more_is_not_made() -> None:
    room = Room()
    async with gated(room) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(GET)
            await room.entered.wait()
        await room.left.wait()


async def test_a_page_is_not_made_for_somebody_who_may_no_longer_see_it() -> None:
    room = Room()
    async with gated(room) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(GET)
        await room.entered.wait()
        room.is_open = False
        assert (await stream.receive()).startswith(b"HTTP/1.1 401")
        assert room.left.is_set()


async def test_one_caller_has_few_pages_in_progress() -> None:
    room = Room()
    async with gated(room) as port:
        streams = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(17)]
        for stream in streams[:-1]:
            room.entered = anyio.Event()
            await stream.send(GET)
            await room.entered.wait()
        await streams[-1].send(GET)
        answer = await streams[-1].receive()
        assert answer.startswith(b"HTTP/1.1 429")
        for stream in streams:
            await stream.aclose()
