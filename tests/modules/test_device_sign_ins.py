"""Signing in to a module with a browser on another device (RFC 8628), over sockets; only the waiting takes no time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.auth import OAuthClientInformationFull

from ideabridge.bridge.modules.device import DEVICE_GRANT
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.sign_ins import ModuleUser, SignInFile
from ideabridge.bridge.secrets import Secrets

from .authorized import Authorized, Browser, Phone, authorized
from .conftest import configure

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@asynccontextmanager
async def opened(
    server: Authorized,
    phone: Phone | None = None,
    user: ModuleUser | None = None,
    secrets: Secrets | None = None,
    **keys: Any,
) -> AsyncGenerator[Modules]:
    person = None if phone is None else phone.person
    configuration = configure({"tickets": {"url": server.url, **keys}})
    async with Modules(configuration, person=person, user=user, secrets=secrets) as modules:
        with anyio.fail_after(20):
            await modules.settled()
            yield modules


async def error_of(server: Authorized, phone: Phone, user: ModuleUser | None = None, **keys: Any) -> str:
    """Why a sign-in fails. It leaves no tokens."""
    async with opened(server, phone, user, **keys) as modules:
        error = modules["tickets"].status().error
    assert error is not None
    assert not SignInFile("tickets", server.url, user).path.exists()
    assert "\n" not in error
    return error.removeprefix("module 'tickets' cannot be signed in to: ")


async def test_a_code_that_is_entered_elsewhere_signs_in_and_the_tokens_are_renewed() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        phone = Phone(agrees_at=3)
        async with opened(server, phone) as modules:
            assert modules["tickets"].status().error is None
            assert await modules["tickets"].call("read", {}) == "read"
        [shown] = phone.shown
        assert shown.address == f"{server.base}/activate"
        assert shown.complete == f"{server.base}/activate?user_code={shown.code}"
        assert shown.code == "WDJB-0001"
        assert shown.seconds == 600
        assert phone.waits == [5, 5, 5]
        assert devices.registered == [[DEVICE_GRANT, "refresh_token"]]
        assert [(one["scope"], one["resource"]) for one in devices.begun] == [("read", server.url)]
        assert {(one["device_code"], one["resource"]) for one in devices.asked} == {("device-code-1", server.url)}
        assert server.provider.asked == []  # no browser came here

        # Later processes use the tokens and renew them, also before they expire.
        file = SignInFile("tickets", server.url)
        found = file.read()
        assert found is not None
        assert found.expires_at is not None
        file.write(found.model_copy(update={"expires_at": found.expires_at - 3600}))
        async with opened(server) as modules:
            assert server.provider.refreshed == 1
            assert await modules["tickets"].call("read", {}) == "read"
            server.revoke()
            assert await modules["tickets"].call("read", {}) == "read"
            assert server.provider.refreshed == 2
        assert len(devices.begun) == 1


async def test_a_call_that_needs_more_asks_for_another_code() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        phone = Phone()
        async with opened(server, phone) as modules:
            assert modules["tickets"].status().error is None
            assert await modules["tickets"].call("write", {}) == "written"
        assert [set(one["scope"].split()) for one in devices.begun] == [{"read"}, {"read", "write"}]
        assert [one.code for one in phone.shown] == ["WDJB-0001", "WDJB-0002"]
        async with opened(server) as modules:
            assert await modules["tickets"].call("write", {}) == "written"


async def test_a_named_user_signs_in_for_themselves() -> None:
    async with authorized() as server:
        server.offer_devices()
        server.provider.person = "alice"
        alice = ModuleUser("alice", "a-store")
        async with opened(server, Phone(), alice) as modules:
            assert modules["tickets"].status().error is None
        assert not SignInFile("tickets", server.url).exists
        async with opened(server) as modules:
            modules.identify_store = lambda: "a-store"
            async with modules.using("tickets", "alice") as module:
                assert await module.call("whoami", {}) == "you are alice"


async def test_the_clock_of_the_request_stands_still_while_the_person_signs_in() -> None:
    # Otherwise the SDK would give the first request up after ten seconds, and take the module for an older one.
    deadlines: list[float] = []

    def look() -> None:
        clock = attrgetter("_clock")(import_module("mcp.shared._request_clock")).get()
        deadlines.append(attrgetter("_scope.deadline")(clock))

    async with authorized() as server:
        server.offer_devices()
        async with opened(server, Phone(on_wait=look)) as modules:
            status = modules["tickets"].status()
            assert (status.error, status.era) == (None, "modern")
    assert deadlines == [inf]


@pytest.mark.parametrize("status", [400, 200])
async def test_a_server_that_is_asked_too_often_is_asked_less_often(status: int) -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.status = status  # some servers send errors with 200
        devices.answers = ["authorization_pending", "slow_down", "authorization_pending", "slow_down"]
        phone = Phone(agrees_at=5)
        async with opened(server, phone) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
        assert phone.waits == [5, 5, 10, 10, 15]


async def test_a_server_that_fails_for_a_while_costs_no_sign_in() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.answers = [503, "authorization_pending", 429, 500, 502]
        phone = Phone(agrees_at=6)
        async with opened(server, phone) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
        assert phone.waits == [5, 10, 10, 20, 40, 60]


async def test_a_server_that_cannot_be_reached_is_asked_until_the_time_is_over() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        # Nothing listens there.
        devices.metadata["token_endpoint"] = "http://127.0.0.1:9/token"
        phone = Phone(agrees_at=0)
        error = await error_of(server, phone)
        assert error.startswith("nobody has signed in with the code in time; at the end, 127.0.0.1 cannot be reached")
        assert phone.waits[:6] == [5, 10, 20, 40, 60, 60]
        assert 540 <= sum(phone.waits) <= 600


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (["authorization_pending", "access_denied"], "the sign-in was refused in the browser"),
        (["authorization_pending", "expired_token"], "nobody has signed in with the code in time"),
        (["invalid_grant"], "its authorization server gives no tokens: HTTP 400 'invalid_grant'"),
        ([404], "its authorization server gives no tokens: HTTP 404"),
        ([b"no json"], "an answer is not what OAuth says"),
        ([b"[" * 100_000], "an answer is not what OAuth says"),
        ([b'{"refresh_token": "a-token"}'], "an answer is not what OAuth says"),
        (
            [b" " * 2_000_000] * 20,
            "in time; at the end, 127.0.0.1 cannot be reached: an answer has more than 1,048,576",
        ),
    ],
)
async def test_an_answer_without_tokens_ends_the_sign_in(answers: list[str | int | bytes], words: str) -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.answers = answers
        phone = Phone(agrees_at=0)
        error = await error_of(server, phone)
        assert words in error
        assert "a-token" not in error
        assert len(phone.shown) == 1


async def test_a_code_that_nobody_enters_expires() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.offered = {"expires_in": 12}
        phone = Phone(agrees_at=0)
        assert await error_of(server, phone) == "nobody has signed in with the code in time"
        assert phone.waits == [5, 5]
        assert phone.shown[0].seconds == 12
        assert server.provider.access == {}


async def test_a_server_without_the_device_grant_registers_nobody() -> None:
    async with authorized() as server:
        phone = Phone()
        error = await error_of(server, phone)
        what = (
            "its authorization server offers no sign-in by device. Without --device: ideabridge modules login tickets"
        )
        assert error == what
        assert await error_of(server, phone, ModuleUser("al ice", "a-store")) == f"{what} --user 'al ice'"
        devices = server.offer_devices()
        devices.metadata["device_authorization_endpoint"] = "no address"
        assert "has a device_authorization_endpoint that is no address" in await error_of(server, phone)
        server.missing = ("/.well-known",)
        assert "it names no authorization server. If it wants a token, write it into" in await error_of(server, phone)
        assert server.provider.clients == {}
        assert devices.registered == []
        assert phone.shown == []


async def test_a_server_may_refuse_to_begin() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.refusal = "unauthorized_client"
        error = await error_of(server, Phone())
        assert error == "its authorization server begins no sign-in by device: HTTP 400 'unauthorized_client'"


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ({"verification_uri": "http://login.example/device"}, "expected an address with https"),
        ({"verification_uri": "file:///etc/passwd"}, "expected an address with https"),
        ({"verification_uri": "javascript:alert(1)"}, "expected an address with https"),
        ({"verification_uri": "https://login.example@evil.example/"}, "expected an address without a user name"),
        ({"verification_uri": "https://a.example/\n\x1b[2K"}, "the field 'verification_uri' is missing or malformed"),
        (
            {"verification_uri": "https://a.example/ or https://b.example"},
            "the field 'verification_uri' is missing or malformed",
        ),
        ({"verification_uri": "https://\u0430.example/"}, "the field 'verification_uri' is missing or malformed"),
        (
            {"verification_uri": "https://a.example/" + "a" * 2000},
            "the field 'verification_uri' is missing or malformed",
        ),
        ({"verification_uri": "https://[bad"}, "an address is not one"),
        ({"verification_uri_complete": "http://login.example/?c=1"}, "expected an address with https"),
        ({"user_code": "A\x1b]8;;x\x07B"}, "the field 'user_code' is missing or malformed"),
        ({"user_code": "A" * 41}, "the field 'user_code' is missing or malformed"),
        ({"user_code": "A\nB"}, "the field 'user_code' is missing or malformed"),
        ({"user_code": None}, "the field 'user_code' is missing or malformed"),
        ({"user_code": 12345678}, "the field 'user_code' is missing or malformed"),
        ({"device_code": ""}, "the field 'device_code' is missing or malformed"),
        ({"expires_in": None}, "the field 'expires_in' is missing or malformed"),
        ({"expires_in": 0}, "the field 'expires_in' is missing or malformed"),
        ({"expires_in": -1}, "the field 'expires_in' is missing or malformed"),
        ({"interval": "often"}, "the field 'interval' is missing or malformed"),
        ({"padding": "x" * 2_000_000}, "has more than 1,048,576 bytes"),
    ],
)
async def test_what_a_terminal_does_not_show_as_it_is_is_refused(offered: dict[str, Any], words: str) -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.offered = offered
        phone = Phone()
        assert words in await error_of(server, phone)
        assert phone.shown == []
        assert devices.asked == []


@pytest.mark.parametrize(
    ("offered", "waits"),
    [
        ({"interval": 0}, [1.0]),
        ({"interval": -5}, [1.0]),
        ({"interval": 1e300}, [60.0]),
        ({"interval": None}, [5.0]),
        ({"interval": 10, "expires_in": 1e300}, [10.0]),
        ({"verification_uri_complete": None}, [5.0]),
    ],
)
async def test_the_times_of_a_server_are_bounded(offered: dict[str, Any], waits: list[float]) -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.offered = offered
        phone = Phone()
        async with opened(server, phone) as modules:
            assert modules["tickets"].status().error is None
        assert phone.waits == waits
        assert phone.shown[0].seconds == 600


@pytest.mark.parametrize("key", ["device_authorization_endpoint", "token_endpoint"])
async def test_no_endpoint_without_https_is_used(key: str) -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        devices.metadata[key] = "http://login.example/device"
        phone = Phone()
        error = await error_of(server, phone)
        assert error.startswith("the module sends us to http://login.example/device: expected")


async def test_another_issuer_than_the_configured_one_is_not_asked() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        error = await error_of(server, Phone(), auth={"issuer": "https://login.example"})
        assert "mcpServers.tickets.auth.issuer is https://login.example" in error
        assert devices.begun == []


@pytest.mark.parametrize("place", ["header", "body"])
async def test_a_configured_client_is_used(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "the-secret-of-reports")
    async with authorized() as server:
        devices = server.offer_devices()
        server.provider.clients["reports"] = OAuthClientInformationFull(
            client_id="reports",
            client_secret="the-secret-of-reports",
            token_endpoint_auth_method="client_secret_basic" if place == "header" else "client_secret_post",
            scope="read write",
        )
        auth = {"client_id": "reports", "client_secret": "${SECRET}", "secret_in": place, "issuer": server.base}
        async with opened(server, Phone(), auth=auth) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
        assert devices.registered == []
        assert ["client_secret" in one for one in [*devices.begun, *devices.asked]] == [place == "body"] * 2
        assert "the-secret-of-reports" not in SignInFile("tickets", server.url).path.read_text()
        async with opened(server, auth=auth) as modules:
            server.revoke()
            assert await modules["tickets"].call("read", {}) == "read"


async def test_the_device_code_and_the_tokens_are_hidden() -> None:
    async with authorized() as server:
        server.offer_devices()
        secrets = Secrets()
        async with opened(server, Phone(), secrets=secrets) as modules:
            assert modules["tickets"].status().error is None
        for value in ("device-code-1", *server.provider.access, *server.provider.refreshing):
            assert secrets.mask(value) == "[secret:tickets token]"


async def test_a_browser_signs_in_where_devices_do_too() -> None:
    async with authorized() as server:
        devices = server.offer_devices()
        browser = Browser()
        async with Modules(configure({"tickets": {"url": server.url}}), person=browser) as modules:
            await modules.settled(20)
            assert modules["tickets"].status().error is None
        assert len(browser.opened) == 1
        assert devices.begun == []
