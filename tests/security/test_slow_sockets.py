"""Sockets that keep a server from its clients: a thousand slow ones, malformed requests, and
the log of both.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from ideabridge.server.operations.log import MOST_ALIKE
from ideabridge.server.transports import connections
from ideabridge.server.transports import http as http_transport
from ideabridge.server.transports.http import HTTPServer, bind_socket, http_server
from tests import preloaded
from tests.server.serving import LAUNCH, configured

pytestmark = pytest.mark.anyio

SOCKETS = 1000
DESCRIPTORS = 600
TOKEN = "a token of the tests, long enough"
NEW = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
POST = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = "Content-Length: 100000\r\n\r\n{"
KINDS = (
    "",
    "P",
    POST,
    f"{POST}{BODY}",
    f"{POST}Authorization: Bearer of somebody else\r\n{BODY}",
    f"{POST}Authorization: Bearer {TOKEN}\r\n{BODY}",
)
"""How far the slow sockets get by themselves: nothing, a byte, some headers, no body without and
with the token."""


class Served:
    """A server over HTTP with one token, which may have fewer descriptors than the
    attacker has sockets.
    """

    def __init__(self, folder: Path) -> None:
        limited = Path(__file__).with_name("limited.py")
        self.process = subprocess.Popen(
            preloaded.python(limited, str(DESCRIPTORS), str(LAUNCH), str(configured(folder)), "0"),
            stderr=subprocess.PIPE,
            env={**os.environ, "IDEABRIDGE_TOKEN": TOKEN},
        )
        assert self.process.stderr is not None
        url = self.process.stderr.readline().decode().split()[-1]
        self.pid = preloaded.number(self.process)
        self.address = "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])
        self.log = bytearray()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        while chunk := os.read(self.process.stderr.fileno(), 65536):
            self.log += chunk

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def call(self, connection: http.client.HTTPConnection | None = None) -> float:
        """Call a tool as a client with the token: the seconds until its answer is there."""
        began = time.monotonic()
        talk = connection or http.client.HTTPConnection(*self.address, timeout=30)
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "check_run", "arguments": {}, "_meta": META},
        }
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {TOKEN}",
            "mcp-protocol-version": NEW,
            "mcp-method": "tools/call",
            "mcp-name": "check_run",
        }
        talk.request("POST", "/mcp", json.dumps(message).encode(), headers)
        answer = talk.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        assert b"your latest runs" in body
        if connection is None:
            talk.close()

        return time.monotonic() - began

    def end(self) -> bytes:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._reading.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return bytes(self.log)


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS + 500
    assert hard == resource.RLIM_INFINITY or hard >= wanted, f"this test opens {SOCKETS} sockets"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    served = Served(tmp_path)
    try:
        yield served
    finally:
        served.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Attack:
    """Slow sockets of all kinds. Each sends another byte in every round, and those that were
    closed come again.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._sockets = [self._open(number) for number in range(SOCKETS)]
        self._stop = threading.Event()
        self.rounds = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._drip)
        self._thread.start()

    def _open(self, number: int) -> socket.socket:
        opened = self._served.connect()
        with suppress(OSError):
            opened.send(KINDS[number % len(KINDS)].encode())
        opened.setblocking(False)
        return opened

    def _drip(self) -> None:
        while not self._stop.is_set():
            for number, one in enumerate(self._sockets):
                if self._stop.is_set():
                    return
                try:
                    one.send(b"A" if KINDS[number % len(KINDS)] else b"")
                    if one.recv(1000) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    pass
                except OSError:
                    one.close()
                    self._sockets[number] = self._open(number)
            self.rounds.release()
            # These clients are slow on purpose: they send a byte every half second.
            self._stop.wait(0.5)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)
        for one in self._sockets:
            one.close()


def test_a_thousand_slow_sockets_keep_nobody_with_the_token_waiting(served: Served) -> None:
    """The promise: an authorised client is answered within a second throughout, over a new
    connection and over one that it has kept.
    """
    kept = http.client.HTTPConnection(*served.address, timeout=30)
    served.call(kept)
    attack = Attack(served)
    try:
        seconds: list[float] = []
        for _ in range(4):
            assert attack.rounds.acquire(timeout=20)
            seconds += [served.call(kept if number % 2 else None) for number in range(5)]
        held = served.descriptors()
    finally:
        attack.end()

    assert max(seconds) < 1, seconds
    assert held < DESCRIPTORS - 100
    served.call(kept)
    kept.close()
    log = served.end()
    assert len(log) < 20_000, log[:2000]


def test_a_server_ends_while_requests_are_still_arriving(served: Served) -> None:
    sockets = [served.connect() for _ in range(60)]
    for number, one in enumerate(sockets):
        one.send(KINDS[number % len(KINDS)].encode())

    # This was answered after everything that arrived before it had been read.
    served.call()
    assert served.end() == b""
    for one in sockets:
        one.close()


def test_malformed_requests_do_not_flood_the_log(served: Served) -> None:
    for _ in range(300):
        with served.connect() as one:
            one.sendall(b"\x00 this is not HTTP\r\n\r\n")
            assert b"400" in one.recv(1000)

    log = served.end()
    assert log.count(b"Invalid HTTP request") <= 2 * MOST_ALIKE
    assert b"more lines like these were left out" in log


def test_a_request_without_the_token_is_refused_before_its_body_is_read(served: Served) -> None:
    with served.connect() as one:
        one.sendall(f"{POST}Content-Length: 1000000\r\n\r\n".encode())
        assert one.recv(1000).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("token", ["", f"Authorization: Bearer {TOKEN}\r\n"])
def test_bodies_in_chunks_of_one_byte_keep_nobody_waiting(token: str, served: Served) -> None:
    """256 KB of them took half a second, in which nobody else was answered; and there was
    no end to them.
    """
    head = f"{POST}{token}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunks = b"1\r\na\r\n" * 40_000
    stop, begun = threading.Event(), threading.Semaphore(0)

    def flood() -> None:
        while not stop.is_set():
            with suppress(OSError), served.connect() as one:
                one.sendall(head)
                begun.release()
                while not stop.is_set():
                    one.sendall(chunks)

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for one in threads:
        one.start()

    try:
        seconds: list[float] = []
        for _ in range(10):
            assert begun.acquire(timeout=20)
            seconds.append(served.call())
    finally:
        stop.set()
        for one in threads:
            one.join(20)

    assert max(seconds) < 1, seconds


def test_a_body_in_chunks_of_a_usual_size_is_taken(served: Served) -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "nothing", "params": {"x": "y" * 1_000_000}}
    ).encode()
    with served.connect() as one:
        one.sendall(
            f"{POST}Authorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for start in range(0, len(body), 1000):
            piece = body[start : start + 1000]
            one.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        one.sendall(b"0\r\n\r\n")
        # The request makes no sense. What matters is that it was read.
        assert b"HTTP/1.1 406" in one.recv(1000)


# -- deadlines, with shorter ones ------------------------------------------------------------------


ANSWER = b"ok"
HELD = threading.Event()
"""Set when a part of a body is held."""


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request when its body is there."""
    if scope["type"] != "http":
        assert (await receive())["type"] == "lifespan.startup"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return

    connection = connections.connection_of(scope)
    assert connection is not None
    caller = next(
        (value.decode() for name, value in scope["headers"] if name == b"x-caller"), "somebody"
    )
    connection.admitted(caller)
    while (message := await receive()).get("more_body"):
        connection.hold(len(message["body"]))
        if message["body"]:
            HELD.set()

    if message["type"] == "http.request":
        connection.whole()
        length = str(len(ANSWER)).encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
        )
        await send({"type": "http.response.body", "body": ANSWER})


@asynccontextmanager
async def _serving(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.6) -> AsyncGenerator[int]:
    """A server in this process whose deadlines are over soon; gives its port."""
    for name, least in (
        ("HEADER_SECONDS", seconds),
        ("BODY_SECONDS", seconds),
        ("IDLE_SECONDS", 2 * seconds),
    ):
        monkeypatch.setattr(connections, name, least)
    with bind_socket("127.0.0.1", 0, token=None) as listening:
        port = listening.getsockname()[1]
        server: HTTPServer = http_server(_echo)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(server.serve, sockets=[listening]))
            with anyio.fail_after(20):
                yield port
            server.end()


async def _all(stream: anyio.abc.ByteReceiveStream) -> bytes:
    """What comes until the other side ends the connection."""
    told = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            told += await stream.receive()
    return told


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"POST / HT", b"the headers of the request did not arrive in time"),
        (HEAD, b"the body of the request did not arrive in time"),
        (HEAD + b"12345", b"the body of the request did not arrive in time"),
        (HEAD + b"1234567890", b"200 OK"),
        (HEAD + b"1234567890" + HEAD[:20], b"the headers of the request did not arrive in time"),
        (HEAD + b"1234567890\r\n", b"200 OK"),
    ],
)
async def test_every_step_of_a_request_has_a_deadline(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _serving(monkeypatch) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        if sent:
            await stream.send(sent)
        told = await _all(stream)
        assert answer in told
        assert bool(told) == bool(answer)


async def test_a_client_that_keeps_sending_has_the_time_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline of a body moves with what has arrived of it."""
    monkeypatch.setattr(connections, "BODY_RATE", 100)
    async with _serving(monkeypatch) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(HEAD.replace(b"10", b"1000") + b"x" * 999)
        async with await anyio.connect_tcp("127.0.0.1", port) as other:
            # In the meantime, the deadline of another client expires, which sends nothing more.
            await other.send(HEAD)
            assert b"408" in await _all(other)
        await stream.send(b"x")
        assert b"200 OK" in await stream.receive()


async def test_of_many_large_bodies_the_largest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_RECEIVED", 1000)
    HELD.clear()
    head = HEAD.replace(b"10", b"2000")
    async with (
        _serving(monkeypatch, 10) as port,
        await anyio.connect_tcp("127.0.0.1", port) as large,
    ):
        await large.send(head + b"x" * 900)
        await anyio.to_thread.run_sync(HELD.wait, 5)
        async with await anyio.connect_tcp("127.0.0.1", port) as small:
            await small.send(HEAD.replace(b"10", b"300") + b"x" * 299)
            assert await _all(large) == b""
            await small.send(b"x")
            assert b"200 OK" in await small.receive()


async def test_callers_who_send_much_end_no_request_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_transport, "MOST_CONNECTIONS", 128)

    async def begin(port: int, caller: bytes) -> anyio.abc.SocketStream:
        stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        await stream.send(
            HEAD.replace(
                b"Host: x", b"Host: x\r\nX-Caller: " + caller + b"\r\nExpect: 100-continue"
            )
        )
        # The request has been admitted as soon as the server asks for its body.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()
        return stream

    async with _serving(monkeypatch, 10) as port, AsyncExitStack() as stack:
        patient = await begin(port, b"carol")
        for _ in range(40):
            await begin(port, b"alice")
            await begin(port, b"bob")

        await patient.send(b"1234567890")
        assert b"200 OK" in await patient.receive()


async def test_a_client_that_does_not_read_its_answer_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "READING_SECONDS", 0.2)
    monkeypatch.setattr(sys.modules[__name__], "ANSWER", b"x" * 50_000_000)
    dropped = anyio.Event()
    drop = connections.GuardedProtocol.drop

    def noted(self: connections.GuardedProtocol) -> None:
        drop(self)
        dropped.set()

    monkeypatch.setattr(connections.GuardedProtocol, "drop", noted)
    async with (
        _serving(monkeypatch, 10) as port,
        await anyio.connect_tcp("127.0.0.1", port) as stream,
    ):
        await stream.send(HEAD + b"1234567890")
        await dropped.wait()
        assert len(await _all(stream)) < len(ANSWER)


async def test_answers_that_nobody_reads_take_a_bounded_part_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_UNSENT", 100_000_000)
    monkeypatch.setattr(sys.modules[__name__], "ANSWER", b"x" * 30_000_000)
    paused = anyio.Semaphore(0)
    pause = connections.GuardedProtocol.pause_writing

    def noted(self: connections.GuardedProtocol) -> None:
        pause(self)
        paused.release()

    monkeypatch.setattr(connections.GuardedProtocol, "pause_writing", noted)

    async def ask(caller: bytes) -> anyio.abc.SocketStream:
        stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        await stream.send(
            HEAD.replace(b"Host: x", b"Host: x\r\nX-Caller: " + caller) + b"1234567890"
        )
        await paused.acquire()
        return stream

    async with _serving(monkeypatch, 10) as port, AsyncExitStack() as stack:
        slow = await ask(b"alice")
        others = [await ask(b"mallory") for _ in range(5)]
        sizes = [len(await _first(stream, len(ANSWER))) for stream in (slow, *others)]
        assert sizes[0] >= len(ANSWER)
        assert 2 <= sum(size < len(ANSWER) for size in sizes) <= 3


async def _first(stream: anyio.abc.ByteReceiveStream, size: int) -> bytes:
    """At least `size` bytes, or what comes until the other side ends the connection."""
    told = bytearray()
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while len(told) < size:
            told += await stream.receive(1_000_000)
    return bytes(told)
