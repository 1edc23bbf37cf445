"""What one caller may hold of a server: sessions, streams, runs, requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.transports.quotas import QuotaError, Quotas
from tests import preloaded
from tests.security.launch_few import MOST
from tests.server.serving import Gate, configured, listening

OLD = "2025-11-25"
NEW = "2026-07-28"
CLIENT = {"name": "tests", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LAUNCH_FEW = Path(__file__).with_name("launch_few.py")


class Caller:
    """A client in bytes."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://").partition("/")[0]
        self._kept = http.client.HTTPConnection(self._address, timeout=20)
        self._connections = [self._kept]

    def send(
        self,
        method: str,
        message: dict[str, Any] | str | None,
        headers: dict[str, str],
        *,
        apart: bool = False,
    ) -> http.client.HTTPResponse:
        """Send a request, over a connection of its own (`apart`) or the one that is kept."""
        if apart:
            connection = http.client.HTTPConnection(self._address, timeout=20)
        else:
            connection = self._kept

        if apart:
            self._connections.append(connection)

        accept = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if isinstance(message, dict):
            text = json.dumps({"jsonrpc": "2.0", **message})
        else:
            text = message

        connection.request(
            method, "/mcp", None if text is None else text.encode(), {**accept, **headers}
        )
        return connection.getresponse()

    def begin(self, method: str = '"initialize"') -> str:
        """Open a session of the handshake era, with the method written in this way; gives its
        id.
        """
        params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT}
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "METHOD", "params": params})
        answer = self.send("POST", message.replace('"METHOD"', method), {})
        assert answer.status == 200, answer.read()
        answer.read()
        session = answer.headers["mcp-session-id"]
        assert session is not None
        return session

    def ping(self, session: str) -> tuple[int, str]:
        """Use a session: the status, and what was said."""
        headers = {"mcp-session-id": session, "mcp-protocol-version": OLD}
        answer = self.send("POST", {"id": 2, "method": "ping"}, headers)
        return answer.status, answer.read().decode()

    def call(self, name: str, **arguments: Any) -> str:
        """Call a tool as a client of 2026-07-28: the text of its answer."""
        params = {"name": name, "arguments": arguments, "_meta": META}
        headers = {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": name}
        answer = self.send("POST", {"id": 3, "method": "tools/call", "params": params}, headers)
        told = json.loads(answer.read())
        return str(told["result"]["content"][0]["text"])

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def caller(tmp_path: Path) -> Generator[Caller]:
    with listening(preloaded.python(LAUNCH_FEW, str(configured(tmp_path)), "0")) as url:
        caller = Caller(url)
        yield caller
        caller.close()


def test_the_session_that_is_unused_for_longest_makes_room(caller: Caller) -> None:
    first, second, *_ = [caller.begin() for _ in range(MOST)]
    # A request that opens no session does not count.
    assert (
        caller.send("POST", {"id": 2, "method": "ping"}, {"accept": "text/html"}, apart=True).status
        == 406
    )
    # The first session has just been used, so the second has been unused for longest.
    assert caller.ping(first)[0] == 200
    last = caller.begin()
    status, said = caller.ping(second)
    assert status == 404
    assert f"you opened more than {MOST}" in said
    assert caller.ping(first)[0] == 200
    assert caller.ping(last)[0] == 200


@pytest.mark.parametrize("method", ['"initi\\u0061lize"', '\n"initialize"', '"\\u0069nitialize"'])
def test_sessions_are_counted_however_their_opening_is_written(caller: Caller, method: str) -> None:
    first, second, *_ = [caller.begin(method) for _ in range(MOST + 1)]
    status, said = caller.ping(first)
    assert status == 404
    assert f"you opened more than {MOST}" in said
    assert caller.ping(second)[0] == 200


def test_streams_of_one_caller_are_bounded(caller: Caller) -> None:
    sessions = [caller.begin() for _ in range(MOST)]
    headers = {"mcp-protocol-version": OLD, "accept": "text/event-stream"}
    streams: list[http.client.HTTPResponse] = []
    for session in sessions:
        streams.append(caller.send("GET", None, {**headers, "mcp-session-id": session}, apart=True))
        assert streams[-1].status == 200

    answer = caller.send("GET", None, {**headers, "mcp-session-id": sessions[0]}, apart=True)
    assert answer.status == 429
    assert f"you have {MOST} streams; the limit for one caller is {MOST}" in answer.read().decode()
    # Sessions that are in use are not ended to make room for another.
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT}
    refused = caller.send("POST", {"id": 1, "method": "initialize", "params": params}, {})
    assert refused.status == 429
    assert "sessions in use" in refused.read().decode()
    for one in streams:
        one.close()


def test_listeners_of_one_caller_are_bounded(caller: Caller) -> None:
    message = {
        "id": 4,
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
    }
    headers = {"mcp-protocol-version": NEW, "mcp-method": "subscriptions/listen"}
    streams: list[http.client.HTTPResponse] = []
    for _ in range(MOST):
        streams.append(caller.send("POST", message, headers, apart=True))
        assert streams[-1].status == 200

    answer = caller.send("POST", message, headers, apart=True)
    assert f"you have {MOST} listeners" in answer.read().decode()
    for one in streams:
        one.close()


def test_runs_of_one_caller_at_work_are_bounded(caller: Caller, tmp_path: Path) -> None:
    gate = Gate(tmp_path, "held")
    held = [{"_tool": "hold", "gate": str(gate.path)}]
    for _ in range(MOST):
        assert "running" in caller.call("run_plan", calls=held, wait_s=0)

    assert f"you have {MOST} active runs" in caller.call("run_plan", calls=held, wait_s=0)
    latest = caller.call("check_run").splitlines()[1].partition(":")[0]
    assert "cancelled" in caller.call("check_run", run=latest, cancel=True)
    assert "running" in caller.call("run_plan", calls=held, wait_s=0)
    gate.close()


def test_quotas_are_counted_by_caller_and_given_back() -> None:
    quotas = Quotas()
    with quotas.holding("ann", "things", 2), quotas.holding("ann", "things", 2):
        full = quotas.holding("ann", "things", 2)
        with (
            pytest.raises(QuotaError, match="you have 2 things; the limit for one caller is 2"),
            full,
        ):
            pass

        with quotas.holding("ben", "things", 2, 1), quotas.holding("ben", "things", 2, 1):
            pass

    with quotas.holding("ann", "things", 2, 2):
        pass

    with quotas.holding("ann", "bytes", 100, 80):
        more = quotas.holding("ann", "bytes", 100, 30)
        with pytest.raises(QuotaError, match="you have 80 bytes and ask for 30 more"), more:
            pass


def test_rates_are_counted_by_caller_over_time() -> None:
    now = 100.0
    quotas = Quotas(lambda: now)
    for _ in range(3):
        quotas.spend("ann", "calls", 3, 60)

    with pytest.raises(
        QuotaError,
        match=r"too many calls: the limit for one caller is 3 in 60 s; try again in 20\.0 s",
    ) as told:
        quotas.spend("ann", "calls", 3, 60)

    assert told.value.retry_after == pytest.approx(20)
    quotas.spend("ben", "calls", 3, 60)
    now += 20.001
    quotas.spend("ann", "calls", 3, 60)
    with pytest.raises(QuotaError):
        quotas.spend("ann", "calls", 3, 60)
