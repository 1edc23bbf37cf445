"""flooding.py KIND [--http]: a server of the handshake era that sends far more than
it was asked for.

Over stdio, or over HTTP on a free port that it prints. KIND says how it lists its tools; calls
flood by their names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

KIND = sys.argv[1]
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
FLOODS = ("progress", "changed", "ping", "stderr", "lists", "quick")
POSTED: SimpleQueue[bytes] = SimpleQueue()
listed = 0


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def page(cursor: str | None) -> dict[str, Any]:
    global listed
    listed += 1
    if KIND == "pages":
        number = int(cursor or 0)
        tools = [
            {"name": f"t{number}_{index}", "inputSchema": {**OBJECT, "x-more": "x" * 200_000}}
            for index in range(30)
        ]
        return {"tools": tools, "nextCursor": str(number + 1)}

    names = [*FLOODS, f"list_{listed}"] if KIND == "changing" else FLOODS
    return {
        "tools": [
            {"name": name, "description": "d" * 5000, "inputSchema": OBJECT} for name in names
        ]
    }


def answers(message: dict[str, Any]) -> Iterator[bytes]:
    """What is sent for a request; the answer itself is last."""
    method = message.get("method")
    number = message.get("id")
    params = message.get("params", {})
    if method == "initialize":
        info = {"name": "flooding", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        yield encoded({"id": number, "result": result})
    elif method == "tools/list":
        yield encoded({"id": number, "result": page(params.get("cursor"))})
    elif method == "tools/call":
        name = params["name"]
        if name == "progress":
            told = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
            yield from [encoded({"method": "notifications/progress", "params": told})] * 20_000
        elif name == "changed":
            yield from [encoded({"method": "notifications/tools/list_changed"})] * 20_000
        elif name == "ping":
            yield from (encoded({"id": one, "method": "ping"}) for one in range(20_000))
        elif name == "stderr":
            for _ in range(15):
                sys.stderr.write("\n" * 500_000 + "one more line\n" * 10_000)
            print("the last word", file=sys.stderr, flush=True)
        elif name == "lists":
            lists = b"[" + b",".join([b"[]"] * 2_600_000) + b"]"
            yield (
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"x":%b}}}'
                % (number, lists)
            )
            return

        yield encoded({"id": number, "result": {"content": [{"type": "text", "text": "done"}]}})
    elif number is not None and method is not None:
        yield encoded({"id": number, "error": {"code": -32601, "message": "no such method"}})


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP; the address says whether an answer is a stream of events or one JSON
    text.
    """

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        events = self.path == "/events"
        found = list(answers(message))
        if self.path == "/messages":
            for one in found:
                POSTED.put(one)
            found = []

        self.send_response(200 if found else 202)
        self.send_header("content-type", "text/event-stream" if events else "application/json")
        if events:
            body = b"".join(b"event: message\ndata: " + one + b"\n\n" for one in found)
        else:
            body = b"".join(found[-1:])

        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """The older transport: what is posted to /messages is answered on this stream."""
        self.send_response(200 if self.path == "/sse" else 405)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if self.path == "/sse":
            self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
            while True:
                self.wfile.write(b"event: message\ndata: " + POSTED.get() + b"\n\n")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing is logged."""


def main() -> None:
    if "--http" in sys.argv:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_port, flush=True)
        server.serve_forever()
    for line in sys.stdin.buffer:
        for message in answers(json.loads(line)):
            sys.stdout.buffer.write(message + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
