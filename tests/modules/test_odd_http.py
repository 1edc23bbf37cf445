"""Servers over HTTP that are a little odd: what they mean arrives, and what cannot be meant
is said at once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ideabridge.bridge.modules import http_transport, streamable_http
from ideabridge.bridge.modules.errors import (
    ModuleDownError,
    ModuleError,
    ModuleProtocolError,
    ModuleTimeoutError,
)
from ideabridge.bridge.modules.module import Module

from .conftest import modules_of
from .web import Answerer, Asked, Web, said, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def module_at(web: Web, type: str | None = "http", **entry: Any) -> AsyncGenerator[Module]:  # noqa: A002
    if type is not None:
        entry["type"] = type
    async with modules_of({"web": {"url": web.url, **entry}}) as modules:
        await modules.settled(30)
        yield modules["web"]


@asynccontextmanager
async def up(
    on: dict[str, Answerer] | None = None, **entry: Any
) -> AsyncGenerator[tuple[Module, Web]]:
    async with serving(Web(on or {})) as web, module_at(web, **entry) as module:
        assert module.status().error is None
        yield module, web


# -- whose answer it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("events", [False, True])
async def test_two_calls_whose_answers_are_crossed_each_get_their_own(events: bool) -> None:
    calls: dict[str, Asked] = {}
    both = anyio.Event()

    async def crossed(asked: Asked) -> None:
        name = asked.message["params"]["name"]
        calls[name] = asked
        if len(calls) == 2:
            both.set()

        await both.wait()
        theirs = calls["other" if name == "look" else "look"]
        answer = said(theirs.id, theirs.message["params"]["name"])
        if events:
            await asked.answer(200, f"data: {answer}\n\n", "text/event-stream")
        else:
            await asked.answer(200, answer)

    values: dict[str, Any] = {}
    async with (
        up({"look": crossed, "other": crossed}) as (module, _web),
        anyio.create_task_group() as group,
    ):

        async def call(name: str) -> None:
            values[name] = await module.call(name, {})

        group.start_soon(call, "look")
        group.start_soon(call, "other")

    assert values == {"look": "look", "other": "other"}


async def test_an_answer_with_a_strange_id_is_said() -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(200, said(4711, "look"))

    async with up({"look": look}) as (module, web):
        with pytest.raises(
            ModuleProtocolError,
            match="server 'web': its answer has an id that no waiting request has",
        ):
            await module.call("look", {})
        assert sum(asked.rpc == "tools/call" for asked in web.asked) == 1
        assert any("never sent" in note for note in module.status().notes)


async def test_an_answer_may_follow_another_on_a_stream_that_was_answered() -> None:
    looking: list[Asked] = []
    asked_both = anyio.Event()

    async def look(asked: Asked) -> None:
        await asked.begin()
        looking.append(asked)
        asked_both.set()
        await anyio.sleep_forever()

    async def other(asked: Asked) -> None:
        await asked_both.wait()
        answers = said(asked.id, "other"), said(looking[0].id, "look")
        await asked.begin()
        for answer in answers:
            await asked.write(f"data: {answer}\n\n")

    values: list[Any] = []
    async with (
        up({"look": look, "other": other}) as (module, _web),
        anyio.create_task_group() as group,
    ):

        async def call(name: str) -> None:
            values.append(await module.call(name, {}, timeout=5))

        group.start_soon(call, "look")
        group.start_soon(call, "other")

    assert sorted(values) == ["look", "other"]


async def test_an_answer_to_an_unknown_request_is_skipped_and_noted() -> None:
    async def look(asked: Asked) -> None:
        body = f"data: {said(7777, 'not yours')}\n\ndata: {said(asked.id, 'yours')}\n\n"
        await asked.answer(200, body, "text/event-stream")

    async with up({"look": look}) as (module, _web):
        assert await module.call("look", {}) == "yours"
        assert any("never sent" in note for note in module.status().notes)


async def test_an_id_that_is_a_text_is_the_same_id() -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(200, said(str(asked.id), "look"))

    async with up({"look": look}) as (module, _web):
        assert await module.call("look", {}) == "look"


async def test_an_error_without_an_id_is_that_of_the_request_it_answers() -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(
            200, '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot parse this"}}'
        )

    async with up({"look": look}) as (module, _web):
        with pytest.raises(ModuleProtocolError, match="cannot parse this"):
            await module.call("look", {})


# -- how it is written -----------------------------------------------------------------------------

ODD_BODIES: dict[str, tuple[int, str | None, str]] = {
    "json as text": (200, "text/plain", "ANSWER"),
    "json without a type": (200, None, "ANSWER"),
    "json as a stream": (200, "text/event-stream", "ANSWER"),
    "json with a charset": (200, "application/json; charset=utf-8", "ANSWER"),
    "json of a kind": (200, "application/vnd.mcp+json", "ANSWER"),
    "json as html": (200, "text/html", " \n ANSWER"),
    "a byte order mark": (200, "application/json", "\ufeffANSWER"),
    "a byte order mark in an event": (200, "text/event-stream", "data: \ufeffANSWER\n\n"),
    "a byte order mark before events": (200, "text/event-stream", "\ufeffdata: ANSWER\n\n"),
    "events as json": (200, "application/json", "event: message\ndata: ANSWER\n\n"),
    "events as text": (200, "text/plain", "data: ANSWER\n\n"),
    "events without a type": (200, None, ": hello\n\ndata: ANSWER\n\n"),
    "events with a charset": (200, "Text/Event-Stream; charset=UTF-8", "data: ANSWER\n\n"),
    "no blank line": (200, "text/event-stream", "data: ANSWER\n"),
    "no line end": (200, "text/event-stream", "event: message\ndata: ANSWER"),
    "no space": (200, "text/event-stream", "data:ANSWER\n\n"),
    "cr": (200, "text/event-stream", "event: message\rdata: ANSWER\r\r"),
    "crlf": (200, "text/event-stream", "event: message\r\ndata: ANSWER\r\n\r\n"),
    "another name": (200, "text/event-stream", "event: response\ndata: ANSWER\n\n"),
    "heartbeats": (
        200,
        "text/event-stream",
        ": ping\n\nevent: ping\ndata: {}\n\nevent: heartbeat\n\ndata: ANSWER\n\n",
    ),
    "noise": (
        200,
        "text/event-stream",
        "data:\n\ndata: {}\n\ndata: hello\n\ndata: ANSWER\n\ndata: [DONE]\n\n",
    ),
    "accepted": (202, "application/json", "ANSWER"),
    "accepted as events": (202, "text/event-stream", "data: ANSWER\n\n"),
    "created": (201, "application/json", "ANSWER"),
}


@pytest.mark.parametrize("case", ODD_BODIES)
async def test_an_answer_is_read_however_it_is_labelled_and_cut(case: str) -> None:
    status, kind, body = ODD_BODIES[case]

    async def look(asked: Asked) -> None:
        text = body.replace("ANSWER", said(asked.id, "größer")).encode()
        await asked.begin(kind, status)
        for place in range(0, len(text), 7):
            await asked.write(text[place : place + 7])
            if place < 70:
                await anyio.lowlevel.checkpoint()

    async with up({"look": look}) as (module, _web):
        assert await module.call("look", {}) == "größer"
        assert await module.call("other", {}) == "other"


async def test_an_answer_on_several_data_lines_is_read() -> None:
    async def look(asked: Asked) -> None:
        text = json.dumps(json.loads(said(asked.id, "look")), indent=2)
        lines = "".join(f"data: {line}\r\n" for line in text.splitlines())
        await asked.answer(200, f"{lines}\r\n", "text/event-stream")

    async with up({"look": look}) as (module, _web):
        assert await module.call("look", {}) == "look"


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, None, ""),
        (202, None, ""),
        (204, None, ""),
        (202, "text/plain", "Accepted"),
        (200, "application/json", ""),
    ],
)
async def test_a_request_that_is_only_accepted_is_an_error_at_once(
    status: int, kind: str | None, body: str
) -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(status, body, kind)

    async with up({"look": look}) as (module, _web):
        with (
            pytest.raises(ModuleProtocolError, match="its answer has no content"),
            anyio.fail_after(20),
        ):
            await module.call("look", {})
        assert await module.call("other", {}) == "other"


@pytest.mark.parametrize("body", ["<html>Sign in!</html>", "hello", "null"])
async def test_what_is_neither_json_nor_events_is_an_error_at_once(body: str) -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(200, body, "text/html")

    async with up({"look": look}) as (module, _web):
        with (
            pytest.raises(ModuleProtocolError, match="neither JSON nor a stream of events"),
            anyio.fail_after(20),
        ):
            await module.call("look", {})


@pytest.mark.parametrize("status", [200, 202, 204])
@pytest.mark.parametrize("body", ["", "Accepted", '{"jsonrpc":"2.0","result":{}}', "null", "{}"])
async def test_what_is_said_to_a_notification_does_not_matter(status: int, body: str) -> None:
    async def notified(asked: Asked) -> None:
        await asked.answer(
            status, "" if status == 204 else body, "application/json" if body else None
        )

    async with up({"notifications/initialized": notified}) as (module, _web):
        assert await module.call("look", {}) == "look"


async def test_an_accepted_request_is_answered_on_the_stream_for_the_rest() -> None:
    stream = anyio.Event()
    opened: list[Asked] = []

    async def listen(asked: Asked) -> None:
        await asked.begin()
        opened.append(asked)
        stream.set()
        await anyio.sleep_forever()

    async def look(asked: Asked) -> None:
        await asked.answer(202, kind=None)
        await stream.wait()
        await opened[0].write(f"data: {said(asked.id, 'look')}\n\n")

    async with up({"GET": listen, "look": look}) as (module, _web):
        with anyio.fail_after(20):
            assert await module.call("look", {}) == "look"


async def test_a_stream_that_ends_without_the_answer_fails_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable_http, "ELSEWHERE_SECONDS", 0.1)

    async def look(asked: Asked) -> None:
        await asked.answer(200, ": nothing\n\n", "text/event-stream")

    async def listen(asked: Asked) -> None:
        await asked.begin()
        await anyio.sleep_forever()

    async with up({"GET": listen, "look": look}, retry={"look": 1}) as (module, _web):
        with pytest.raises(ModuleDownError, match="cut its answer off"), anyio.fail_after(20):
            await module.call("look", {})


async def test_a_large_event_fails_its_call_and_the_rest_goes_on() -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(
            200, f"data: {said(asked.id, 'x' * 17_000_000)}\n\n", "text/event-stream"
        )

    async with up({"look": look}) as (module, _web):
        with pytest.raises(Exception, match="its answer has 17,000,"):
            await module.call("look", {})
        assert await module.call("other", {}) == "other"


# -- statuses --------------------------------------------------------------------------------------

ERROR = '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"it broke"}}'


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("text/html", "<html><body>Oops</body></html>", "answered HTTP 500 Odd while"),
        ("text/plain", "the disk is full", "answered HTTP 500 Odd: the disk is full"),
        ("application/json", '{"detail":"boom"}', "answered HTTP 500 Odd: .*boom"),
        ("application/json", ERROR, "it broke"),
        ("text/event-stream", f"event: message\ndata: {ERROR}\n\n", "it broke"),
        (None, "", "answered HTTP 500 Odd"),
    ],
)
async def test_a_fault_of_the_server_is_an_error_at_once(
    kind: str | None, body: str, message: str
) -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(500, body, kind)

    async with up({"look": look}, retry={"look": 1}) as (module, _web):
        with pytest.raises(ModuleError, match=message), anyio.fail_after(20):
            await module.call("look", {})
        assert await module.call("other", {}) == "other"


@pytest.mark.parametrize("where", ["head", "body", "stream", "refusal"])
async def test_a_call_that_hangs_ends_in_time_and_the_others_go_on(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.modules.http._ERROR_SECONDS", 0.1)

    async def look(asked: Asked) -> None:
        if where == "refusal":
            await asked.begin("text/plain", 400)
            await asked.write("because")
        elif where != "head":
            await asked.begin("application/json" if where == "body" else "text/event-stream")
            await asked.write(' {"jsonrpc":' if where == "body" else "data: {")
        await anyio.sleep_forever()

    async with up({"look": look}) as (module, _web), anyio.create_task_group() as group:

        async def call() -> None:
            expected = ModuleProtocolError if where == "refusal" else ModuleTimeoutError
            with pytest.raises(expected):
                await module.call("look", {}, timeout=1)

        group.start_soon(call)
        with anyio.fail_after(20):
            for _ in range(5):
                assert await module.call("other", {}) == "other"


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_without_a_stream_for_the_rest_nothing_is_tried_again(status: int) -> None:
    async def listen(asked: Asked) -> None:
        await asked.answer(status)

    async with up({"GET": listen}) as (module, web):
        for _ in range(3):
            assert await module.call("look", {}) == "look"
        assert web.count("GET") <= 2


# -- redirects -------------------------------------------------------------------------------------


def redirecting(to: str, status: int, *, gets_only: bool = False) -> Answerer:
    async def redirect(asked: Asked) -> None:
        if asked.path == "/mcp" and (asked.method == "GET" or not gets_only):
            await asked.answer(status, "Moved.", "text/plain", location=to)
        else:
            await Web.well(Web(), asked)

    return redirect


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("to", ["/mcp/", "http://127.0.0.1:PORT/mcp/", "mcp/?a=b"])
async def test_redirects_within_the_origin_are_followed_and_remembered(
    status: int, to: str
) -> None:
    async with serving(Web()) as web:
        web.on["any"] = redirecting(to.replace("PORT", str(web.port)), status)
        async with module_at(web, headers={"X-Key": "a-long-key"}) as module:
            assert module.status().error is None
            assert await module.call("look", {}) == "look"
        redirected = [
            asked for asked in web.asked if asked.path == "/mcp" and asked.method == "POST"
        ]
        assert len(redirected) == 1
        assert all(asked.headers["x-key"] == "a-long-key" for asked in web.asked)


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_drops_the_content_says_what_to_do(status: int) -> None:
    async with serving(Web({"any": redirecting("/mcp/", status)})) as web, module_at(web) as module:
        error = module.status().error or ""
        assert (
            f"answered HTTP {status} with a redirect to http://127.0.0.1:{web.port}/mcp/" in error
        )
        assert "Write that address into 'url'" in error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_stream_for_the_rest_follows_every_redirect(status: int) -> None:
    stream = anyio.Event()

    async def redirect(asked: Asked) -> None:
        if asked.method == "GET" and asked.path == "/events":
            await asked.begin()
            stream.set()
            await anyio.sleep_forever()
        else:
            await redirecting("/events", status, gets_only=True)(asked)

    async with up({"any": redirect}) as (module, _web), anyio.create_task_group():
        with anyio.fail_after(20):
            await stream.wait()
        assert await module.call("look", {}) == "look"


@pytest.mark.parametrize("status", [301, 307, 308])
@pytest.mark.parametrize(
    "to",
    [
        "https://127.0.0.1:PORT/mcp",
        "http://localhost:PORT/mcp",
        "http://127.0.0.1:1/mcp",
        "//other.test/",
        "file:///etc/passwd",
    ],
)
async def test_another_origin_is_refused_by_name(status: int, to: str) -> None:
    async with serving(Web()) as web:
        to = to.replace("PORT", str(web.port))
        web.on["any"] = redirecting(to, status)
        async with module_at(web) as module:
            error = module.status().error or ""
            named = to.replace("file:///", "file:/").removeprefix("//")
            assert "redirects to " in error
            assert named in error
            assert "does not follow this redirect" in error


async def test_what_is_secret_in_a_redirect_is_not_shown_and_not_used() -> None:
    async with serving(Web()) as web:
        web.on["any"] = redirecting(f"http://eve:word@127.0.0.1:{web.port}/other?token=abcdef", 307)
        async with module_at(web) as module:
            assert module.status().error is None
        assert not any("authorization" in asked.headers for asked in web.asked)
        web.on["any"] = redirecting("http://eve:word@elsewhere.test/other?token=abcdef", 307)
        async with module_at(web) as module:
            error = module.status().error or ""
            assert "http://elsewhere.test/other" in error
            assert "word" not in error
            assert "abcdef" not in error


async def test_a_loop_is_said() -> None:
    async def around(asked: Asked) -> None:
        await asked.answer(308, location="/b" if asked.path == "/mcp" else "/mcp")

    async def further(asked: Asked) -> None:
        await asked.answer(307, location=f"{asked.path}/on")

    async with serving(Web({"any": around})) as web:
        async with module_at(web) as module:
            assert "redirects in a loop" in (module.status().error or "")
        web.on["any"] = further
        async with module_at(web) as module:
            assert "redirects more than 5 times" in (module.status().error or "")


# -- sessions --------------------------------------------------------------------------------------


def rpc_error(code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


LOST: list[tuple[int, str, str]] = [
    (404, "text/plain", ""),
    (404, "application/json", rpc_error(-32001, "Session not found")),
    (410, "text/plain", "gone"),
    (400, "application/json", rpc_error(-32000, "Bad Request: No valid session ID provided")),
    (400, "application/json", rpc_error(-32000, "Bad Request: Server not initialized")),
    (400, "application/json", rpc_error(-32600, "Session has expired")),
    (400, "application/json", rpc_error(-32000, "Bad Request: Mcp-Session-Id header is required")),
    (400, "text/plain", "Invalid session ID"),
    (400, "text/plain", "Missing Mcp-Session-Id header"),
    (200, "application/json", rpc_error(-32600, "Session not found")),
]


@pytest.mark.parametrize(("status", "kind", "body"), LOST)
async def test_a_lost_session_is_opened_anew_and_the_call_sent_again(
    status: int, kind: str, body: str
) -> None:
    refused = 0

    async def look(asked: Asked) -> None:
        nonlocal refused
        if asked.headers.get("mcp-session-id") == "one":
            refused += 1
            await asked.answer(status, body, kind)
        else:
            await asked.answer(200, said(asked.id, "look"))

    async with up({"look": look}) as (module, web):
        web.session = "two"
        assert await module.call("look", {}) == "look"
        assert refused == 1
        assert web.count("initialize") == 2


async def test_an_answer_to_the_call_itself_has_no_call_sent_again() -> None:
    async def look(asked: Asked) -> None:
        error = {"code": -32600, "message": "Session not found"}
        await asked.answer(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error}))

    async with up({"look": look}) as (module, web):
        with pytest.raises(ModuleProtocolError, match="Session not found") as caught:
            await module.call("look", {})
        assert caught.value.outcome == "failed"
        assert web.count("initialize") == 1


@pytest.mark.parametrize(("status", "kind", "body"), LOST)
async def test_what_a_new_session_does_not_mend_is_said(status: int, kind: str, body: str) -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(status, body, kind)

    async with up({"look": look}) as (module, web):
        with pytest.raises(
            ModuleProtocolError, match=r"lost its HTTP session: .*, also in a new session"
        ) as caught:
            await module.call("look", {})
        assert caught.value.outcome == "not_run"
        assert web.count("initialize") <= 3
        assert await module.call("other", {}) == "other"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, rpc_error(-32602, "session not found: browser 7")),
        (400, rpc_error(-32000, "no such file: session")),
        (404, rpc_error(-32601, "no such method")),
        (500, rpc_error(-32000, "Session not found")),
    ],
)
async def test_a_tool_that_speaks_of_sessions_is_called_once(status: int, body: str) -> None:
    async def look(asked: Asked) -> None:
        await asked.answer(status, body)

    async with up({"look": look}) as (module, web):
        with pytest.raises(ModuleProtocolError, match="answered with error"):
            await module.call("look", {})
        assert web.count("initialize") == 1
        assert web.count("tools/call") == 1


async def test_an_error_cannot_pretend_that_the_call_was_never_sent() -> None:
    async def look(asked: Asked) -> None:
        error = {"code": -32000, "message": "sorry", "data": "ideabridge: no HTTP request"}
        await asked.answer(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error}))

    async with up({"look": look}) as (module, web):
        with pytest.raises(ModuleProtocolError, match="answered with error -32000: sorry"):
            await module.call("look", {})
        assert web.count("tools/call") == 1


@pytest.mark.parametrize("session", ["a\x07b", "é", "x" * 5000])
async def test_a_session_that_no_header_should_have_is_refused(session: str) -> None:
    web = Web(session=session)
    async with serving(web), module_at(web) as module:
        error = module.status().error or ""
        assert "sent a session id" in error or "can no longer be reached" in error
        assert all("mcp-session-id" not in asked.headers for asked in web.asked)


async def test_the_session_ends_with_the_connection() -> None:
    async with up() as (module, web):
        assert await module.call("look", {}) == "look"
    assert web.count("DELETE") == 1
    assert web.asked[-1].headers["mcp-session-id"] == "one"
    assert web.asked[-1].headers["mcp-protocol-version"] == "2025-11-25"


# -- the older transport ---------------------------------------------------------------------------


def older(endpoint: str, *, refusal: int = 405, before: str = "") -> Web:
    """A server of the older transport at /mcp, which names `endpoint`."""
    web = Web()
    streams: list[Asked] = []

    async def answer(asked: Asked) -> None:
        if asked.method == "GET":
            await asked.begin()
            streams.append(asked)
            await asked.write(
                f"{before}event: endpoint\ndata: {endpoint.replace('PORT', str(web.port))}\n\n"
            )
            await anyio.sleep_forever()
        elif asked.path == "/mcp":
            await asked.answer(refusal, "Not here", "text/plain")
        else:
            posted = Asked(
                _Captured(streams[-1]), asked.method, asked.path, asked.headers, asked.body
            )
            await asked.answer(202, "Accepted", "text/plain")
            if asked.id is not None:
                await web.well(posted)

    web.on["any"] = answer
    return web


class _Captured:
    """Turns an answer over HTTP into an event of a stream."""

    def __init__(self, stream: Asked) -> None:
        self._stream = stream

    async def send(self, item: bytes, /) -> None:
        await self._stream.write(
            b"event: message\ndata: " + item.partition(b"\r\n\r\n")[2] + b"\n\n"
        )


@pytest.mark.parametrize("refusal", [400, 404, 405, 406, 415, 422, 501])
@pytest.mark.parametrize(
    "endpoint", ["/messages?session_id=1", "messages", "http://127.0.0.1:PORT/messages/"]
)
async def test_without_a_type_the_older_transport_is_tried(refusal: int, endpoint: str) -> None:
    web = older(endpoint, refusal=refusal, before=": hello\n\nevent: ping\ndata: {}\n\n")
    async with serving(web), modules_of({"web": {"url": web.url}}) as modules:
        await modules.settled(30)
        module = modules["web"]
        assert module.status().error is None
        assert module.status().kind == "sse"
        assert await module.call("look", {}) == "look"
        refused = sum(asked.path == "/mcp" and asked.method == "POST" for asked in web.asked)
        # From now on, the module remembers what worked.
        web.asked.clear()
        connection = module._connection  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        connection.stop()
        await connection.done.wait()
        assert await module.call("look", {}) == "look"
        assert refused == 2
        assert not [asked for asked in web.asked if asked.path == "/mcp" and asked.method == "POST"]


@pytest.mark.parametrize("stays_open", [True, False])
async def test_a_server_that_answers_posts_with_the_older_stream_is_tried_in_the_older_transport(
    stays_open: bool,
) -> None:
    web = older("/messages")
    well = web.on["any"]

    async def answer(asked: Asked) -> None:
        if asked.method == "POST" and asked.path == "/mcp":
            await asked.begin()
            await asked.write("event: endpoint\ndata: /messages\n\n")
            if stays_open:
                await anyio.sleep_forever()
        else:
            await well(asked)

    web.on["any"] = answer
    async with serving(web), module_at(web, type=None) as module:
        with anyio.fail_after(20):
            assert await module.call("look", {}) == "look"
        assert module.status().kind == "sse"

    async with serving(web), module_at(web, type="http") as module:
        assert "answers as a server of the older transport" in (module.status().error or "")


async def test_with_a_type_the_older_transport_is_not_tried() -> None:
    web = older("/messages")
    async with serving(web), module_at(web, type="http") as module:
        assert "answered HTTP 405" in (module.status().error or "")
        assert web.count("GET") == 0


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_other_refusals_do_not_speak_of_the_older_transport(status: int) -> None:
    async with serving(older("/messages", refusal=status)) as web:
        entry = {"url": web.url, "headers": {"Authorization": "Bearer some-long-token"}}
        async with modules_of({"web": entry}) as modules:
            await modules.settled(30)
            assert f"answered HTTP {status}" in (modules["web"].status().error or "")
            assert web.count("GET") == 0


@pytest.mark.parametrize("first", ["silent", "html", "refused"])
async def test_a_server_that_speaks_neither_gets_the_first_refusal(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "ENDPOINT_SECONDS", 0.1)

    async def answer(asked: Asked) -> None:
        if asked.method == "POST":
            await asked.answer(400, "I do not like you", "text/plain")
        elif first == "silent":
            await asked.begin()
            await anyio.sleep_forever()
        else:
            await asked.answer(200 if first == "html" else 404, "<html></html>", "text/html")

    async with (
        serving(Web({"any": answer})) as web,
        modules_of({"web": {"url": web.url}}) as modules,
    ):
        await modules.settled(30)
        assert "answered HTTP 400 Odd: I do not like you" in (modules["web"].status().error or "")
        assert modules["web"].status().kind == "http"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:1/messages",
        "https://127.0.0.1:PORT/m",
        "//elsewhere.test/m",
        "file:///etc/passwd",
    ],
)
@pytest.mark.parametrize("type_", ["sse", None])
async def test_an_older_server_cannot_send_requests_elsewhere(
    endpoint: str, type_: str | None
) -> None:
    web = older(endpoint)
    async with serving(web), module_at(web, type=type_) as module:
        error = module.status().error or ""
        assert "asks for requests to be sent to" in error
        assert "not on the origin" in error
        assert all(asked.path == "/mcp" for asked in web.asked)
        assert type_ is None or web.count("POST") == 0


async def test_a_post_that_an_older_server_refuses_fails_its_call_at_once() -> None:
    web = older("/messages")
    well = web.on["any"]

    async def answer(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.answer(503, "later", "text/plain", retry_after="1")
        else:
            await well(asked)

    web.on["any"] = answer
    async with serving(web), module_at(web, type="sse") as module:
        assert module.status().error is None
        with pytest.raises(ModuleProtocolError, match="answered HTTP 503"), anyio.fail_after(20):
            await module.call("look", {})


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "text/plain"), (200, "text/html"), (200, "application/json")]
)
async def test_an_address_without_the_older_transport_is_said(status: int, kind: str) -> None:
    async def listen(asked: Asked) -> None:
        await asked.answer(status, "{}" if kind == "application/json" else "<p>hello", kind)

    async with serving(Web({"GET": listen})) as web, module_at(web, type="sse") as module:
        error = module.status().error or ""
        assert (
            "answered HTTP 404" if status == 404 else "offers no event stream that names an address"
        ) in error
