"""An odd server on bare sockets and pipes, without an SDK: it does whatever its edits say.

An edit is a list, `[when, what, ...]`. `when` is the method that a message answers or
has: "tools/list", or "tools/list#2" for the second such message of the connection, or
"*". What an edit does:

    put PATH VALUE     sets a member of the message; drop PATH removes it; rename PATH NEW renames it
    double PATH        a list item, or the whole message (an empty path), comes twice
    raw TEXT           is written instead; %M% stands for the message, %ID% for its id, each character for a byte
    silent             nothing is written; late: the message is written together with the next answer
    pages N FULL       a list has N pages, each with one tool if it is FULL, or none
    exit CODE          the process ends, or the connection is closed
    notify METHOD PARAMS, request ID METHOD PARAMS    is written before the message

and over HTTP, where `when` may also be GET or DELETE:

    status CODE TEXT, headers {}, body TEXT (%M% in it), redirect CODE PLACE, sse, wire TEXT (all bytes), cross
    lose STATUS TEXT   the session of this request is unknown, once

A connection has edits from the command line, and a call has those in its argument `edits`, as JSON.
So one process, or `Web` in one thread, serves many cases.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

Edit = list[Any]
Message = dict[str, Any]

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
RIGHT = "right: "
EDITS: Message = {"type": "string"}
HUGE = "%HUGE%"
"""In an edit: a text of 100,000 characters."""

PICTURE = "iVBORw0KGgo="
META = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


def tool(
    name: str, *, annotations: Message | None = None, output: Message | None = None
) -> Message:
    """A definition with every member that one can have."""
    made: Message = {
        "name": name,
        "title": name.title(),
        "description": f"The tool {name}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "edits": EDITS,
                "q": {"type": "string"},
                "n": {"type": "integer", "minimum": 0},
            },
        },
        "annotations": annotations
        or {"title": name.title(), "readOnlyHint": True, "openWorldHint": False},
        "icons": [
            {"src": "https://icons.invalid/a.png", "mimeType": "image/png", "sizes": ["48x48"]}
        ],
        "_meta": {"odd.example/x": 1},
    }
    if output is not None:
        made["outputSchema"] = output
    return made


OUTPUT: Message = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS: list[Message] = [
    tool("look"),
    tool("typed", output=OUTPUT),
    tool(
        "change",
        annotations={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    ),
    tool("delete", annotations={"readOnlyHint": False, "destructiveHint": True}),
    tool("fails"),
    tool("picture"),
    tool("blocks"),
    tool("ask"),
    tool("chatty"),
]
RESOURCES: list[Message] = [
    {
        "uri": f"odd://text/{name}",
        "name": name,
        "title": name.title(),
        "description": f"The text {name}.",
        "mimeType": "text/plain",
        "size": 5,
        "annotations": {"audience": ["user"], "priority": 0.5},
    }
    for name in ("first", "second", "third")
]
TEMPLATES: list[Message] = [
    {
        "uriTemplate": f"odd://{name}/{{x}}",
        "name": name,
        "description": "A template.",
        "mimeType": "text/plain",
    }
    for name in ("some", "other")
]
PROMPTS: list[Message] = [
    {
        "name": name,
        "description": f"The prompt {name}.",
        "arguments": [{"name": "who", "description": "Who is greeted.", "required": False}],
    }
    for name in ("greet", "part")
]
QUESTIONS: dict[str, Message] = {
    "elicitation/create": {
        "message": "Whose?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Say something."}}],
        "maxTokens": 10,
    },
    "roots/list": {},
}


def text(value: str) -> Message:
    """A block of text."""
    return {"type": "text", "text": value}


def object_in(members: Message, name: str) -> Message:
    """The object that a member is; an empty one if it is something else, or missing."""
    value: Any = members.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


class Server:
    """One connection to the server, without any input and output: `handle` takes a message and
    returns texts to write.

    Args:
        edits: those of the connection.
        era: "legacy" answers `initialize` alone, "modern" `server/discover` alone, "both" either.

    Attributes:
        exit: set when the process or connection ends after what `handle` returned.
        http: the edits of the last message that concern HTTP, by their names.
        received: each message that was handled.
        sent: each message that was made, after its edits: the method, and the message.
    """

    def __init__(self, edits: list[Edit], era: str = "legacy") -> None:
        self.edits = edits
        self.era = era
        self.exit: int | None = None
        self.http: dict[str, list[Any]] = {}
        self.received: list[Message] = []
        self.sent: list[tuple[str, Message]] = []
        self._counts: dict[str, int] = {}
        self._late: list[str] = []
        # The calls that are waiting for an answer to a question, keyed by the question's id.
        self._asking: dict[str, Message] = {}
        self._questions = 0

    def handle(self, message: Message) -> list[str]:
        """The texts to write after a message of the client."""
        self.http = {}
        self.received.append(message)
        method = message.get("method")
        number = message.get("id")
        if method is None:
            asked = self._asking.pop(str(number), None)
            if asked is None:
                return []
            answer = message.get("result", message.get("error"))
            return self._written(
                "tools/call", asked["id"], {"content": [text(json.dumps(answer))]}, asked
            )

        if number is None:
            return self._apply(str(method), None, [])
        return self._answered(str(method), number, message)

    def _answered(self, method: str, number: Any, message: Message) -> list[str]:
        params = object_in(message, "params")
        if method == "tools/call":
            return self._called(number, params, message)

        result = self._result(method, params)
        if result is None:
            error = {"code": -32601, "message": f"no method {method}"}
            return self._apply(method, {"jsonrpc": "2.0", "id": number, "error": error}, [])

        return self._written(method, number, result, message)

    def _written(self, method: str, number: Any, result: Message, message: Message) -> list[str]:
        if self.modern(message) and "resultType" not in result:
            result = {**result, "resultType": "complete"}
        if self.modern(message) and method.endswith(("/list", "/read", "/discover")):
            result = {**META, **result}
        own = own_edits(message) if method == "tools/call" else []
        return self._apply(method, {"jsonrpc": "2.0", "id": number, "result": result}, own)

    @staticmethod
    def modern(message: Message) -> bool:
        """True if a request is one of 2026-07-28, which says so in its `_meta`."""
        meta = object_in(object_in(message, "params"), "_meta")
        return meta.get("io.modelcontextprotocol/protocolVersion") == MODERN

    def _result(self, method: str, params: Message) -> Message | None:
        capabilities: Message = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        info = {"name": "odd", "version": "1"}
        match method:
            case "initialize" if self.era != "modern":
                return {
                    "protocolVersion": LEGACY,
                    "capabilities": capabilities,
                    "serverInfo": info,
                    "instructions": "Be kind.",
                }
            case "server/discover" if self.era != "legacy":
                return {
                    "supportedVersions": [MODERN],
                    "capabilities": {**capabilities, "tools": {}, "resources": {}, "prompts": {}},
                    "instructions": "Be kind.",
                    "_meta": {"io.modelcontextprotocol/serverInfo": info},
                }
            case "tools/list":
                return self._page("tools", TOOLS, params)
            case "resources/list":
                return self._page("resources", RESOURCES, params)
            case "resources/templates/list":
                return self._page("resourceTemplates", TEMPLATES, params)
            case "prompts/list":
                return self._page("prompts", PROMPTS, params)
            case "resources/read":
                uri = params.get("uri")
                return {
                    "contents": [{"uri": uri, "mimeType": "text/plain", "text": RIGHT + str(uri)}]
                }
            case "prompts/get":
                said = RIGHT + str(params.get("name"))
                return {
                    "description": "A prompt.",
                    "messages": [{"role": "user", "content": text(said)}],
                }
            case "completion/complete":
                return {"completion": {"values": ["ada", "bob"], "total": 2, "hasMore": False}}
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
                return {}
            case _:
                return None

    def _page(self, name: str, entries: list[Message], params: Message) -> Message:
        """A page of a list. It has two where an edit changes `nextCursor`: the second has
        the last entry.
        """
        if name == "resourceTemplates":
            method = "resources/templates/list"
        else:
            method = f"{name}/list"

        for edit in self.edits:
            if edit[:2] == [method, "pages"]:
                number = int(params.get("cursor") or 0)
                more = {"nextCursor": str(number + 1)} if number + 1 < edit[2] else {}
                full = [{**TOOLS[0], "name": f"any_{number}"}] if edit[3] else []
                return {name: entries if number == 0 else full, **more}

        paged = any(
            edit[0].split("#")[0] == method and ["result", "nextCursor"] in edit
            for edit in self.edits
        )
        if not paged:
            return {name: entries}
        if params.get("cursor") is None:
            return {name: entries[:-1], "nextCursor": "2"}
        return {name: entries[-1:]}

    def _called(self, number: Any, params: Message, message: Message) -> list[str]:
        name = params.get("name")
        arguments = object_in(params, "arguments")
        before: list[str] = []
        result: Message
        match name:
            case "look" | "change" | "delete":
                result = {"content": [text(RIGHT + name)]}
            case "typed":
                result = {"content": [text('{"n": 3}')], "structuredContent": {"n": 3}}
            case "fails":
                result = {"content": [text("it went wrong")], "isError": True}
            case "picture":
                result = {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}
            case "blocks":
                result = {"content": [text(RIGHT + name), *BLOCKS]}
            case "ask":
                return self._asked(number, arguments.get("q", "elicitation/create"), message)
            case "chatty":
                result = {"content": [text(RIGHT + name)]}
                before = self._chat(params)
            case str() if name.startswith("any_"):
                result = {"content": [text(RIGHT + name)]}
            case _:
                error = {"code": -32602, "message": f"no tool {name}"}
                return self._apply(
                    "tools/call", {"jsonrpc": "2.0", "id": number, "error": error}, []
                )

        return [*before, *self._written("tools/call", number, result, message)]

    def _chat(self, params: Message) -> list[str]:
        token = object_in(params, "_meta").get("progressToken")
        sent: list[Message] = [
            {
                "method": "notifications/message",
                "params": {"level": "info", "logger": "odd", "data": "hello"},
            },
            {"method": "notifications/tools/list_changed"},
        ]
        if token is not None:
            said = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            sent.insert(0, {"method": "notifications/progress", "params": said})
        return [
            line
            for one in sent
            for line in self._apply(one["method"], {"jsonrpc": "2.0", **one}, [])
        ]

    def _asked(self, number: Any, kind: str, message: Message) -> list[str]:
        params = message["params"]
        if self.modern(message):
            if params.get("inputResponses") is not None:
                told = {"content": [text(json.dumps(params["inputResponses"]))]}
                return self._written("tools/call", number, told, message)

            question = {"method": kind, "params": QUESTIONS[kind]}
            asks = {
                "resultType": "input_required",
                "inputRequests": {"a": question},
                "requestState": "s",
            }
            return self._written("tools/call#asks", number, asks, message)

        self._questions += 1
        name = f"q{self._questions}"
        self._asking[name] = message
        asked = {"jsonrpc": "2.0", "id": name, "method": kind, "params": QUESTIONS[kind]}
        return self._apply(kind, asked, own_edits(message))

    # -- edits -------------------------------------------------------------------------------------

    def _apply(self, method: str, message: Message | None, own: list[Edit]) -> list[str]:
        count = self._counts[method] = self._counts.get(method, 0) + 1
        before: list[str] = []
        raw: str | None = None
        copies = 1
        late = silent = False
        for when, what, *values in [*self.edits, *own]:
            if when not in ("*", method, f"{method}#{count}"):
                continue
            match what:
                case "put" | "drop" | "rename":
                    if message is not None:
                        message = changed(message, what, *values)
                case "double":
                    if not values[0]:
                        copies = 2
                    elif message is not None:
                        message = changed(message, "double", *values)
                case "raw":
                    raw = values[0]
                case "silent":
                    silent = True
                case "late":
                    late = True
                case "pages":
                    pass
                case "exit":
                    self.exit = values[0]
                case "notify":
                    note = {"jsonrpc": "2.0", "method": values[0]}
                    before.append(
                        json.dumps(note if len(values) == 1 else {**note, "params": values[1]})
                    )
                case "request":
                    asked = {"jsonrpc": "2.0", "id": values[0], "method": values[1]}
                    before.append(
                        json.dumps(asked if len(values) < 3 else {**asked, "params": values[2]})
                    )
                case _:
                    self.http[what] = values

        if message is not None:
            self.sent.append((method, message))

        if silent or (message is None and raw is None):
            return before

        written = json.dumps(message)
        if raw is not None:
            number = json.dumps(message.get("id")) if message is not None else "null"
            written = raw.replace("%ID%", number).replace("%M%", written)

        lines = [*before, *[written] * copies]
        if late:
            self._late += lines
            return []

        if message is not None and "id" in message:
            lines += self._late
            self._late = []

        return lines


BLOCKS: list[Message] = [
    {
        "type": "image",
        "data": PICTURE,
        "mimeType": "image/png",
        "annotations": {"audience": ["user"]},
    },
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "odd://text/first", "name": "first", "mimeType": "text/plain"},
    {
        "type": "resource",
        "resource": {"uri": "odd://text/second", "mimeType": "text/plain", "text": "inside"},
    },
]


def own_edits(message: Message) -> list[Edit]:
    """The edits in the arguments of a call."""
    told = object_in(object_in(message, "params"), "arguments").get("edits")
    return json.loads(told) if isinstance(told, str) else []


def changed(value: Any, what: str, path: list[Any], new: Any = None) -> Any:
    """A copy of a value with one member changed; the value itself if there is no such
    member to change.
    """
    if new == HUGE:
        new = "x" * 100_000

    if not path:
        return new if what == "put" else value

    key = path[0]
    rest = path[1:]
    if isinstance(value, dict):
        return _changed_object(value, what, key, rest, new)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list) and isinstance(key, int):
        return _changed_list(value, what, key, rest, new)  # pyright: ignore[reportUnknownArgumentType]
    return value  # pyright: ignore[reportUnknownVariableType]


def _changed_object(value: Message, what: str, key: str, rest: list[Any], new: Any) -> Message:
    if rest:
        if key not in value and what != "put":
            return value
        return {**value, key: changed(value.get(key, {}), what, rest, new)}

    if what == "put":
        return {**value, key: new}
    if what == "drop":
        return {name: member for name, member in value.items() if name != key}
    if what == "rename":
        return {(new if name == key else name): member for name, member in value.items()}
    return value


def _changed_list(value: list[Any], what: str, key: int, rest: list[Any], new: Any) -> list[Any]:
    if key == len(value) and what == "put" and not rest:
        return [*value, new]
    if key >= len(value):
        return value

    items = value.copy()
    if rest:
        items[key] = changed(items[key], what, rest, new)
    elif what == "put":
        items[key] = new
    elif what == "double":
        items.insert(key, items[key])
    else:
        del items[key]

    return items


# -- stdio -----------------------------------------------------------------------------------------


def encoded(line: str) -> bytes:
    """The bytes of a text: one for each character, because edits hold bytes so."""
    if line.isascii() or max(line) < "\u0100":
        return line.encode("latin-1")
    return line.encode()


def over_stdio(server: Server) -> None:
    """Serve until the input ends."""
    for line in sys.stdin.buffer:
        for told in server.handle(json.loads(line)):
            sys.stdout.buffer.write(encoded(told) + b"\n")
        sys.stdout.buffer.flush()
        if server.exit is not None:
            os._exit(server.exit)


# -- HTTP ------------------------------------------------------------------------------------------


class Site:
    """One case at one address: its edits, and its sessions."""

    def __init__(self, edits: list[Edit], era: str, options: Message) -> None:
        self.edits = edits
        self.era = era
        self.options = options
        self.sessions: dict[str, Server] = {}
        self.lost: set[str] = set()
        self.requests: list[tuple[str, str, Message]] = []
        self.streams: dict[str, socket.socket] = {}
        self.crossed: list[Any] = []
        self.lock = threading.Lock()
        self.counts: dict[str, int] = {}


class Web:
    """Sites of many cases behind one port. Each connection is a thread; the bytes are
    written by hand.
    """

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.origin = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sites: dict[str, Site] = {}
        self.closed = False

    def add(self, name: str, edits: list[Edit], era: str = "legacy", **options: Any) -> str:
        """Add a site; returns its address. `sse=True`: answers are streams of events; `path`,
        `session=False`.
        """
        self.sites[name] = Site(edits, era, options)
        return f"{self.origin}/{name}/{options.get('path', 'mcp')}"

    def start(self) -> None:
        """Serve in threads."""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        """Serve until `close`."""
        while not self.closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self.closed = True
        self.listener.close()

    def _talk(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while self._serve_request(connection, reader):
                    pass
        except (OSError, ValueError):
            return

    def _serve_request(self, connection: socket.socket, reader: Any) -> bool:
        """Answer one request; False if the connection ends."""
        first = reader.readline().decode("latin-1").split()
        if len(first) < 2:
            return False

        method = first[0]
        path = first[1]
        headers: dict[str, str] = {}
        while (line := reader.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()

        body = reader.read(int(headers.get("content-length", 0)))
        _, name, *rest = path.split("/", 2)
        site = self.sites.get(name)
        if site is None:
            connection.sendall(response(404, "no such site"))
            return True

        message: Message = json.loads(body) if body else {}
        site.requests.append((method, path, message))
        wanted = site.options.get("path", "mcp")
        place = rest[0] if rest else ""
        exchange = Exchange(self, site, name, connection, headers, method, message)
        if site.options.get("old_sse"):
            return exchange.old_sse(place)
        if place.split("?")[0] != wanted:
            return exchange.elsewhere(place)
        return exchange.answer()


def response(status: int, body: str = "", headers: Message | None = None) -> bytes:
    """The bytes of a response."""
    data = encoded(body)
    sent = {"Content-Length": len(data), "Content-Type": "text/plain", **(headers or {})}
    lines = [
        f"HTTP/1.1 {status} Status",
        *(f"{name}: {value}" for name, value in sent.items() if value is not None),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Exchange:
    """One request of HTTP and its response."""

    def __init__(
        self,
        web: Web,
        site: Site,
        name: str,
        connection: socket.socket,
        headers: dict[str, str],
        method: str,
        message: Message,
    ) -> None:
        self.web = web
        self.site = site
        self.name = name
        self.connection = connection
        self.headers = headers
        self.method = method
        self.message = message

    def elsewhere(self, place: str) -> bool:
        """Answer at another path than the site's own; `moved` says where that is."""
        moved = self.site.options.get("moved")
        if moved is not None and place == "old":
            self.connection.sendall(response(moved[0], "", {"Location": self._put_in(moved[1])}))
        else:
            self.connection.sendall(response(404, "not here"))
        return True

    def _put_in(self, place: str) -> str:
        return place.replace("%ORIGIN%", self.web.origin).replace("%SITE%", f"/{self.name}")

    def answer(self) -> bool:
        """Answer at the site's path."""
        site = self.site
        if self.method != "POST":
            return self._answer_other()

        with site.lock:
            server, session = self._session()
            lost = self._lost(session)
            if lost is not None:
                self.connection.sendall(lost)
                return True

            assert server is not None
            lines = server.handle(self.message)
            edits = server.http

        return self._respond(lines, edits, session, server)

    def _answer_other(self) -> bool:
        for when, what, *values in self.site.edits:
            if when != self.method:
                continue
            if what == "status":
                self.connection.sendall(response(values[0], values[1] if len(values) > 1 else ""))
                return True
            if what == "wire":
                self.connection.sendall(encoded(values[0]))
                return False

        self.connection.sendall(response(405 if self.method == "GET" else 200))
        return True

    def _session(self) -> tuple[Server | None, str]:
        site = self.site
        session = self.headers.get("mcp-session-id", "")
        if site.options.get("session") is False or Server.modern(self.message):
            session = "none"
            return site.sessions.setdefault(session, Server(site.edits, site.era)), session

        method = self.message.get("method")
        if method in ("initialize", "server/discover"):
            session = f"s{len(site.sessions) + 1}"
            site.sessions[session] = Server(site.edits, site.era)

        return site.sessions.get(session), session

    def _lost(self, session: str) -> bytes | None:
        """The refusal of a session that this request loses, or that was lost before."""
        site = self.site
        method = str(self.message.get("method"))
        for when, what, *values in site.edits:
            if what != "lose" or when != method:
                continue
            count = site.counts[when] = site.counts.get(when, 0) + 1
            if count == 1:
                site.lost.add(session)

            if session in site.lost:
                said = values[1] if len(values) > 1 else ""
                kind = "application/json" if said.startswith("{") else "text/plain"
                number = json.dumps(self.message.get("id"))
                return response(values[0], said.replace("%ID%", number), {"Content-Type": kind})

        if session not in site.sessions:
            error = {
                "jsonrpc": "2.0",
                "id": None,
                "error": {"code": -32600, "message": "Session not found"},
            }
            return response(404, json.dumps(error), {"Content-Type": "application/json"})

        return None

    def _respond(
        self, lines: list[str], edits: dict[str, list[Any]], session: str, server: Server
    ) -> bool:
        connection = self.connection
        if "wire" in edits:
            connection.sendall(encoded(edits["wire"][0].replace("%M%", lines[-1] if lines else "")))
            return False
        if "redirect" in edits:
            place = self._put_in(edits["redirect"][1])
            connection.sendall(response(edits["redirect"][0], "", {"Location": place}))
            return True

        headers: Message = {} if session == "none" else {"Mcp-Session-Id": session}
        headers |= edits.get("headers", [{}])[0]
        if "status" in edits:
            connection.sendall(response(edits["status"][0], *edits["status"][1:2]))
            return True
        if server.exit is not None:
            return False
        if not lines and "body" not in edits:
            if "id" in self.message and "method" in self.message:
                time.sleep(3)
                return False
            connection.sendall(response(202, "", headers))
            return True

        if "cross" in edits:
            return self._cross(lines, headers)

        if "sse" in edits or self.site.options.get("sse") or len(lines) > 1:
            body = "".join(f"event: message\ndata: {line}\n\n" for line in lines)
            headers = {"Content-Type": "text/event-stream", **headers}
        else:
            body = lines[-1] if lines else ""
            headers = {"Content-Type": "application/json", **headers}

        if "body" in edits:
            body = (
                edits["body"][0]
                .replace("%M%", lines[-1] if lines else "")
                .replace("%EVENTS%", body)
            )

        connection.sendall(response(200, body, headers))
        return True

    def _cross(self, lines: list[str], headers: Message) -> bool:
        """Write the answers of two calls on each other's streams."""
        site = self.site
        with site.lock:
            site.crossed.append((self.connection, lines))
            if len(site.crossed) % 2:
                waits = True
            else:
                waits = False
                (other, others), (own, owns) = site.crossed[-2:]
                headers = {"Content-Type": "text/event-stream", "Connection": "close", **headers}
                for connection, told in ((other, owns), (own, others)):
                    body = "".join(f"event: message\ndata: {line}\n\n" for line in told)
                    connection.sendall(response(200, body, headers))

        if waits:
            time.sleep(2)
        return False

    # -- HTTP+SSE ----------------------------------------------------------------------------------

    def old_sse(self, place: str) -> bool:
        """Answer as servers of 2024-11-05 do."""
        site = self.site
        connection = self.connection
        if self.method == "GET":
            session = f"s{len(site.streams) + 1}"
            site.streams[session] = connection
            site.sessions[session] = Server(site.edits, site.era)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            endpoint = site.options.get("endpoint", "/%SITE%/messages?session=%SESSION%")
            endpoint = endpoint.replace("/%SITE%", f"/{self.name}").replace("%SESSION%", session)
            begin = site.options.get("begin", "event: endpoint\ndata: %ENDPOINT%\n\n")
            connection.sendall(
                encoded(begin.replace("%ENDPOINT%", endpoint.replace("%ORIGIN%", self.web.origin)))
            )
            while not self.web.closed:
                time.sleep(0.2)
                if connection.fileno() < 0:
                    return False

            return False

        if "session=" not in place:
            connection.sendall(response(405))
            return True

        session = place.partition("session=")[2]
        server = site.sessions[session]
        lines = server.handle(self.message)
        body = "".join(f"event: message\ndata: {line}\n\n" for line in lines)
        if "body" in server.http:
            body = (
                server.http["body"][0]
                .replace("%M%", lines[-1] if lines else "")
                .replace("%EVENTS%", body)
            )

        status = server.http.get("status", [202])[0]
        connection.sendall(response(status))
        if status < 300:
            site.streams[session].sendall(encoded(body))

        return True


def main() -> None:
    """Serve: `odd.py [EDITS [ERA]]` over stdio, `odd.py --http EDITS [ERA]` over HTTP, whose
    address is printed.
    """
    arguments = sys.argv[1:]
    web = arguments[:1] == ["--http"]
    edits, era, *_ = (
        [*arguments[web:], "[]", "legacy"]
        if len(arguments) - web == 0
        else [*arguments[web:], "legacy"]
    )
    if not web:
        over_stdio(Server(json.loads(edits), era))
        return

    server = Web()
    print(server.add("odd", json.loads(edits), era), flush=True)
    server.serve()


if __name__ == "__main__":
    main()
