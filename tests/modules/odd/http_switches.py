"""The switches of the odd server over HTTP: what each does to a response, and what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.modules.servers.odd import MODERN, RIGHT, Edit

LOOK: Final = RIGHT + "look"


@dataclass(frozen=True, slots=True)
class HttpSwitch:
    """One oddity of HTTP.

    Attributes:
        name: names it in the tests.
        edits: what the server does; see `odd.py`.
        options: of the site: `sse`, `old_sse`, `session`, `path`, `moved`, `begin`, `endpoint`.
        era: of the server.
        entry: members of the configured module; its `url` is that of the site, unless `place`
            replaces its path.
        error: a pattern of the error that the first call gives; None: it gives the right value.
        tool: of the first call.
        calls: how often a call of the tool reaches the server, at most.
        later: the second call gives the right value.
        up: the module comes up; `says`: a pattern of its error, where it does not.
        note: a pattern of a note.
        seconds: for everything.
    """

    name: str
    edits: list[Edit] = field(default_factory=list[Edit])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    era: str = "legacy"
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    place: str | None = None
    error: str | None = None
    tool: str = "look"
    calls: int = 2
    later: bool = True
    up: bool = True
    says: str = ""
    note: str | None = None
    seconds: float = 40.0


HTTP: list[HttpSwitch] = []


def add(name: str, *edits: Edit, **expects: Any) -> None:
    """Add a switch."""
    HTTP.append(HttpSwitch(name, list(edits), **expects))


FIRST: Final = "tools/call#1"
SSE: Final = {"Content-Type": "text/event-stream"}

# -- sessions that are lost ------------------------------------------------------------------------

REFUSAL = '{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"%s"}}'
for status, words in (
    (404, ""),
    (404, "Session not found"),
    (404, REFUSAL % ("null", -32600, "Session not found")),
    (404, REFUSAL % ("%ID%", -32001, "Session not found")),
    (404, REFUSAL % ("null", -32000, "Bad Request: No valid session ID provided")),
    (400, REFUSAL % ("null", -32000, "Bad Request: No valid session ID provided")),
    (400, REFUSAL % ("null", -32000, "Bad Request: Server not initialized")),
    (400, REFUSAL % ("%ID%", -32600, "Bad Request: Missing session ID")),
    (400, REFUSAL % ("null", -32600, "Invalid session ID")),
    (400, "No valid session ID"),
    (400, "Invalid or missing session ID"),
    (410, ""),
    (410, "Session expired"),
    (410, REFUSAL % ("null", -32001, "Session gone")),
):
    for tool in ("look", "delete"):
        if len(words) < 30:
            said = words
        else:
            said = words.rpartition('"message":"')[2][:-3]
        add(
            f"lost session: {status} {said!r}: {tool}",
            ["tools/call", "lose", status, words],
            tool=tool,
        )
add("lost session while listing", ["resources/list", "lose", 404, ""])

# -- statuses --------------------------------------------------------------------------------------

for status in (500, 501, 502, 503, 504, 400, 403, 405, 406, 408, 409, 413, 415, 422, 429):
    # A tool that may change something is never called a second time if the first call may have run.
    add(f"a call answered {status}", [FIRST, "status", status, "it went wrong"], error=str(status), tool="delete",
        calls=1)  # fmt: skip
for status in (500, 503, 504):
    add(f"a call that only reads answered {status}", [FIRST, "status", status, "it went wrong"])
add("a call answered 500 in HTML", [FIRST, "status", 500, "<html><body>it went wrong</body></html>"], error="500",
    tool="delete", calls=1)  # fmt: skip
add("every call answered 404 inside a session", ["tools/call", "status", 404, ""], error="404|session", later=False,
    calls=4)  # fmt: skip
add("initialize answered 500", ["initialize", "status", 500, "it went wrong"], up=False, says="500")
add(
    "initialize answered 404",
    ["initialize", "status", 404, ""],
    ["GET", "status", 404],
    up=False,
    says="404",
)
add("initialize answered 403", ["initialize", "status", 403, "no"], up=False, says="403")
add("the notification answered 200 with a body", ["notifications/initialized", "wire",
    'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'])  # fmt: skip
add(
    "the notification answered 204",
    ["notifications/initialized", "wire", "HTTP/1.1 204 No Content\r\n\r\n"],
)
add("the notification answered 400", ["notifications/initialized", "status", 400, "no"])
add("the notification answered 500", ["notifications/initialized", "status", 500, "no"])
for status in (400, 401, 403, 404, 500, 501):
    add(f"the stream of GET answered {status}", ["GET", "status", status])
add("the stream of GET answered in HTML", ["GET", "wire",
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"])  # fmt: skip
add(
    "the stream of GET ends at once",
    ["GET", "wire", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"],
)
add("the stream of GET has noise", ["GET", "wire",
    ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
        "hello\n\nevent: ping\ndata: {}\n\n")])  # fmt: skip
add("the end of the session answered 405", ["DELETE", "status", 405])
add("the end of the session answered 500", ["DELETE", "status", 500])
add(
    "a call whose connection is cut",
    [FIRST, "wire", ""],
    error="connection|answer|HTTP|end",
    tool="delete",
    calls=1,
)
add("a call whose answer is cut", [FIRST, "wire",
    'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"jsonrpc"'],
    error="connection|answer|HTTP|end|cut", tool="delete", calls=1)  # fmt: skip
add("a call answered with 202 and nothing", [FIRST, "wire", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"],
    error="202|answer")  # fmt: skip
add(
    "a call answered with 204 and nothing",
    [FIRST, "wire", "HTTP/1.1 204 No Content\r\n\r\n"],
    error="204|answer",
)
add("a call answered with 200 and nothing", [FIRST, "body", ""], error="answer|empty|JSON")
add("a call answered with a page", [FIRST, "headers", {"Content-Type": "text/html"}],
    [FIRST, "body", "<html><body>Sign in</body></html>"], error="text/html|HTML|MCP|answer")  # fmt: skip
add("a call answered with noise", [FIRST, "body", "hello"], error="JSON|MCP|answer")

# -- bodies ----------------------------------------------------------------------------------------

BODY = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\n\r\n%s"
for name, kind, body in (
    ("a byte order mark", "application/json", "\xef\xbb\xbf%M%"),
    ("line ends around", "application/json", "\r\n\r\n%M%\r\n"),
    ("a charset", "application/json; charset=utf-8", "%M%"),
    ("a charset in capitals", "Application/JSON;Charset=UTF-8", "%M%"),
    ("text/plain", "text/plain", "%M%"),
    ("a kind of JSON", "application/vnd.mcp+json", "%M%"),
    ("a batch", "application/json", "[%M%]"),
    ("noise before", "application/json", "debug: x\n%M%"),
    ("NUL after", "application/json", "%M%\x00"),
):
    add(f"JSON: {name}", [FIRST, "wire", BODY % (kind, body)])
    if name in ("a byte order mark", "a charset", "text/plain", "a batch"):
        add(
            f"JSON: {name}: initialize",
            ["initialize", "wire", BODY % (kind, body)],
            options={"session": False},
        )
add("JSON: no content type", [FIRST, "wire", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%M%"])
for name, body in (
    ("plain", "data: %M%\n\n"),
    ("without a space", "data:%M%\n\n"),
    ("with CRLF", "event: message\r\ndata: %M%\r\n\r\n"),
    ("with CR", "event: message\rdata: %M%\r\r"),
    ("without the last blank line", "event: message\ndata: %M%"),
    ("with one line end at last", "event: message\ndata: %M%\n"),
    ("a byte order mark", "\xef\xbb\xbfdata: %M%\n\n"),
    ("comments", ": hello\n\n: ping\n\ndata: %M%\n\n"),
    ("a ping event", "event: ping\ndata: {}\n\ndata: %M%\n\n"),
    ("a ping event with words", "event: ping\ndata: 2026-01-01T00:00:00Z\n\ndata: %M%\n\n"),
    ("an empty data", "data:\n\ndata: %M%\n\n"),
    ("an empty data with an id", "id: 1\ndata:\n\ndata: %M%\n\n"),
    ("a heartbeat as data", "data: ping\n\ndata: %M%\n\n"),
    ("a heartbeat as JSON", "data: {}\n\ndata: null\n\ndata: %M%\n\n"),
    ("DONE after", "data: %M%\n\ndata: [DONE]\n\n"),
    ("DONE before", "data: [DONE]\n\ndata: %M%\n\n"),
    ("an unknown event", "event: odd\ndata: {\"a\": 1}\n\ndata: %M%\n\n"),
    ("the answer in an unknown event", "event: result\ndata: %M%\n\n"),
    ("ids and retry", "id: 5\nretry: 10\nevent: message\ndata: %M%\n\n"),
    ("a retry that is no number", "retry: soon\ndata: %M%\n\n"),
    ("an id with NUL", "id: a\x00b\ndata: %M%\n\n"),
    ("a cut message before", "data: {\"jsonrpc\":\n\ndata: %M%\n\n"),
    ("a notification before", 'data: {"jsonrpc":"2.0","method":"notifications/odd"}\n\ndata: %M%\n\n'),
    ("an answer to nobody before", 'data: {"jsonrpc":"2.0","id":98765,"result":{}}\n\ndata: %M%\n\n'),
    ("the answer twice", "data: %M%\n\ndata: %M%\n\n"),
    ("a batch", "data: [%M%]\n\n"),
    ("noise before", "data: log%M%\n\n"),
    ("a field without colon", "data\n\nodd\ndata: %M%\n\n"),
):  # fmt: skip
    add(f"SSE: {name}", [FIRST, "wire", BODY % ("text/event-stream", body)])
    if name in (
        "plain",
        "without the last blank line",
        "a heartbeat as data",
        "a ping event with words",
        "DONE before",
    ):
        add(f"SSE: {name}: initialize", ["initialize", "wire", BODY % ("text/event-stream", body)],
            options={"session": False})  # fmt: skip
        add(f"SSE: {name}: tools/list", ["tools/list", "wire", BODY % ("text/event-stream", body)])
add("SSE: only noise", [FIRST, "wire", BODY % ("text/event-stream", "data: ping\n\n")],
    error="ended|answer", tool="delete", calls=1)  # fmt: skip
add(
    "SSE: nothing",
    [FIRST, "wire", BODY % ("text/event-stream", "")],
    error="ended|answer",
    tool="delete",
    calls=1,
)
add("SSE: capitals", [FIRST, "wire", BODY % ("Text/Event-Stream; Charset=UTF-8", "data: %M%\n\n")])
add("SSE: a message over several lines", [FIRST, "raw", '{"jsonrpc": "2.0",\ndata: "id": %ID%,\ndata: "result": '
    '{"content": [{"type": "text", "text": "' + LOOK + '"}]}}'], options={"sse": True})  # fmt: skip
add("SSE everywhere", options={"sse": True})
add("SSE everywhere, modern", options={"sse": True}, era="modern")
add("modern")
add("no sessions", options={"session": False})
add("a session id with odd characters", ["initialize", "headers", {"Mcp-Session-Id": "a/b=c; d"}],
    options={"session": False})  # fmt: skip
add(
    "an empty session id",
    ["initialize", "headers", {"Mcp-Session-Id": ""}],
    options={"session": False},
)
add("modern answers without members", *([method, "drop", ["result", member]]
    for method in ("server/discover", "tools/list", "tools/call") for member in ("ttlMs", "cacheScope", "resultType")),
    era="modern")  # fmt: skip
add("discover answered 404", ["server/discover", "status", 404, ""])
add("discover answered 400", ["server/discover", "status", 400, "Bad Request: no session"])
add("discover answered 500", ["server/discover", "status", 500, ""])
add("discover answered 405", ["server/discover", "status", 405, ""])
add("discover cut", ["server/discover", "wire", ""])
add("discover with a page", ["server/discover", "headers", {"Content-Type": "text/html"}],
    ["server/discover", "body", "<html></html>"])  # fmt: skip

# -- redirects -------------------------------------------------------------------------------------

for status in (307, 308):
    add(f"redirect {status} to the path with a slash", options={"path": "mcp/", "moved": (status, "%SITE%/mcp/")},
        place="old")  # fmt: skip
    add(
        f"redirect {status} to the same origin, whole",
        options={"moved": (status, "%ORIGIN%%SITE%/mcp")},
        place="old",
    )
    add(f"redirect {status} to a relative path", options={"moved": (status, "mcp")}, place="old")
    add(f"redirect {status} to another origin", options={"moved": (status, "http://127.0.0.1:9/mcp")}, place="old",
        up=False, says="127.0.0.1:9")  # fmt: skip
    add(f"redirect {status} to another host", options={"moved": (status, "http://localhost:9/mcp")}, place="old",
        up=False, says="localhost:9")  # fmt: skip
    add(f"redirect {status} in a circle", options={"moved": (status, "%SITE%/old")}, place="old", up=False,
        says="redirect|circle|loop")  # fmt: skip
    add(f"redirect {status} of a call", [FIRST, "redirect", status, "%SITE%/mcp"])
add(
    "redirect without a place",
    options={"moved": (307, "")},
    place="old",
    up=False,
    says="redirect|307|circle|loop",
)
for status in (301, 302, 303):
    add(f"redirect {status}", options={"moved": (status, "%SITE%/mcp")}, place="old", up=False,
        says=f"{status}|[rR]edirect")  # fmt: skip

# -- answers on each other's streams ---------------------------------------------------------------

add("crossed answers", ["tools/call", "cross"], later=False)

# -- the older HTTP+SSE ----------------------------------------------------------------------------

OLD = {"old_sse": True}
for name, options in (
    ("plain", {}),
    ("a whole address", {"endpoint": "%ORIGIN%/%SITE%/messages?session=%SESSION%"}),
    ("a relative path", {"endpoint": "messages?session=%SESSION%"}),
    (
        "noise before the endpoint",
        {"begin": ": hello\n\nevent: ping\ndata: x\n\nevent: endpoint\ndata: %ENDPOINT%\n\n"},
    ),
    ("CRLF", {"begin": "event: endpoint\r\ndata: %ENDPOINT%\r\n\r\n"}),
    ("data without a space", {"begin": "event:endpoint\ndata:%ENDPOINT%\n\n"}),
):
    add(f"old SSE: {name}", options={**OLD, **options}, entry={"type": "sse"})
    add(f"old SSE without type: {name}", options={**OLD, **options})
add("old SSE: another origin", options={**OLD, "endpoint": "http://127.0.0.1:9/messages?session=%SESSION%"},
    entry={"type": "sse"}, up=False, says="127.0.0.1:9|origin")  # fmt: skip
for name, body in (
    ("noise before the answer", "data: ping\n\nevent: message\ndata: %M%\n\n"),
    ("a ping event", "event: ping\ndata: {}\n\nevent: message\ndata: %M%\n\n"),
    ("without event", "data: %M%\n\n"),
    ("an answer to nobody", 'data: {"jsonrpc":"2.0","id":98765,"result":{}}\n\ndata: %M%\n\n'),
    ("a batch", "data: [%M%]\n\n"),
    ("noise in the message", "data: log%M%\n\n"),
):
    add(f"old SSE: {name}", [FIRST, "body", body], options=OLD, entry={"type": "sse"})
for status in (200, 201, 204):
    add(
        f"old SSE: messages answered {status}",
        ["*", "status", status],
        options=OLD,
        entry={"type": "sse"},
    )
add("old SSE: a call answered 500", [FIRST, "status", 500], options=OLD, entry={"type": "sse"}, error="500",
    tool="delete", calls=1)  # fmt: skip
# The server does not know the session, not even the new one.
add("old SSE: a call answered 404", [FIRST, "status", 404], options=OLD, entry={"type": "sse"}, error="404",
    later=False)  # fmt: skip

PROTOCOL: Final = MODERN
