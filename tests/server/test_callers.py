"""Callers over HTTP: a token where one is set, and nobody sees another's runs."""

from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.configuration import Configuration
from ideabridge.server.serve import HttpOptions, serve_http
from ideabridge.server.transports.gate import HostNames
from ideabridge.server.transports.http import ServeError, host_names_of

from .serving import call, configured, http_process, over_stdio, refused

pytestmark = pytest.mark.anyio
TOKEN = "a-token-of-the-tests"


async def test_a_token_is_asked_for_and_makes_the_caller(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    with http_process(configuration, IDEABRIDGE_TOKEN=TOKEN) as url:
        async with httpx2.AsyncClient() as plain:
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"authorization": f"Basic {TOKEN}"},
            ):
                answer = await plain.post(url, headers=headers, json={})
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")

        for mode in ("legacy", "auto"):
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as authorised,
                Client(streamable_http_client(url, http_client=authorised), mode=mode) as client,
            ):
                run = (await call(client, "run_plan", calls=[{"_tool": "add", "a": 1, "b": 2}]))[
                    "run"
                ]
                assert (await call(client, "check_run"))["runs"][0]["run"] == run

    async with over_stdio(configuration, "auto") as local:
        assert (await call(local, "check_run"))["runs"] == []
        assert "unknown run" in await refused(local, "check_run", run=run)
        assert "no idea" in await refused(local, "publish_idea", idea=run, name="stolen")
        assert (await call(local, "search_ideas", words="add"))["ideas"] == []


async def test_other_addresses_need_a_token() -> None:
    with pytest.raises(ServeError, match="IDEABRIDGE_TOKEN"):
        await serve_http(Configuration(), HttpOptions(host="0.0.0.0", port=0))
    with pytest.raises(ServeError, match="16 to 4096"):
        await serve_http(Configuration(), HttpOptions(host="0.0.0.0", port=0, token="short"))
    with pytest.raises(ServeError, match="cannot listen"):
        await serve_http(Configuration(), HttpOptions(host="192.0.2.1", port=0, token=TOKEN))


def status_of(names: HostNames, host: str, origin: str = "") -> int | None:
    """The status with which a request is refused; None if it is not."""
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    doubt = names.doubt({"type": "http", "headers": headers})
    return None if doubt is None else doubt[0]


def test_hosts_that_are_taken() -> None:
    loopback = host_names_of("127.0.0.1", ())
    for host in ("127.0.0.1", "127.0.0.1:8787", "LOCALHOST:1", "[::1]", "[::1]:8787"):
        assert status_of(loopback, host) is None

    for host in ("", "evil.example", "127.0.0.1.evil.example", "localhost:80:80", "[::1]:x", "::1"):
        assert status_of(loopback, host) == 421

    for origin in ("http://localhost:3000", "https://127.0.0.1"):
        assert status_of(loopback, "localhost", origin) is None

    for origin in (
        "null",
        "https://evil.example",
        "file://localhost",
        "localhost",
        "https://localhost@evil.example",
    ):
        assert status_of(loopback, "localhost", origin) == 403

    everywhere = host_names_of("0.0.0.0", ("tools.example", "other.example:8080"))
    assert status_of(everywhere, "tools.example", "https://tools.example") is None
    assert status_of(everywhere, "0.0.0.0") == 421
    assert status_of(everywhere, "other.example:8080") is None
    assert status_of(everywhere, "other.example:8081") == 421
