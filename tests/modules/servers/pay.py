"""A server that pays, of the handshake era, on stdin and stdout or (with --http PORT) over
HTTP: starts fast.

Its first argument is a folder. Every payment stands in `ledger` there before anything else happens,
one line each. What a call does next is told by its argument `do`:

- answer: it answers.
- die: the process ends with exit code 3, or over HTTP with the connection.
- die_once: the first such call of all processes ends the process, the next ones answer.
- hang: it never answers. It pays only when somebody writes into the pipe `release`, and then writes
  into `released`.
- close: it closes its output (over HTTP the stream of the answer), and goes on.
- close_once: as die_once.
- ask: over stdio it asks a question, and its process ends when somebody writes into the
  pipe `release`.
- garbage, strange, big: it answers with what is no JSON, no result, or over the limit.
- refuse: it reports an error, and has not paid.
- http_NNN: over HTTP it answers with that status.

With --late it ends with exit code 3 for as long as there is no file `open` in its folder.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "do": {"type": "string"}},
}
TOOLS: list[dict[str, Any]] = [
    {"name": "pay", "inputSchema": OBJECT},
    {"name": "refund", "inputSchema": {"type": "object", "properties": {"of": {}}}},
    {"name": "look", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}},
    {
        "name": "put",
        "inputSchema": OBJECT,
        "annotations": {"idempotentHint": True, "destructiveHint": False},
    },
]


class CutError(Exception):
    """The answer breaks off here."""


class RefusedError(Exception):
    """The tool reports an error."""


def record(line: str) -> None:
    """Write a line so that it is there whatever happens next."""
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{line}\n")
        ledger.flush()
        os.fsync(ledger.fileno())


def first() -> bool:
    """Whether no process has come here before."""
    try:
        (FOLDER / "once").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def act(name: str, arguments: dict[str, Any]) -> Any:
    """What a call comes to: its result."""
    do = arguments.get("do", "answer")
    what = f"{name} {arguments.get('to', arguments.get('of'))}"
    if do == "hang":
        (FOLDER / "release").read_text()
        record(what)
        (FOLDER / "released").write_text("paid")
        threading.Event().wait()

    if do == "ask":
        form = {"type": "object", "properties": {"pin": {"type": "string"}}}
        question = {
            "method": "elicitation/create",
            "params": {"message": "Your PIN?", "requestedSchema": form},
        }
        os.write(1, json.dumps({"jsonrpc": "2.0", "id": "q", **question}).encode() + b"\n")
        (FOLDER / "release").read_text()
        os._exit(3)

    if do == "refuse":
        raise RefusedError
    record(what)
    if do == "die" or (do == "die_once" and first()):
        os._exit(3)

    if do == "close" or (do == "close_once" and first()):
        raise CutError
    if do == "strange":
        return "no object"
    return {"content": [{"type": "text", "text": "x" * 5000 if do == "big" else f"done: {what}"}]}


def answer(message: dict[str, Any]) -> bytes | None:
    """The answer to one message, as JSON."""
    method = message.get("method")
    number = message.get("id")
    params = message.get("params", {})
    if number is None:
        return None

    if method == "initialize":
        info = {"name": "pay", "version": "1"}
        result: Any = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        arguments = params["arguments"]
        try:
            result = act(params["name"], arguments)
        except RefusedError:
            result = {"content": [{"type": "text", "text": "no money"}], "isError": True}
        if arguments.get("do") == "garbage":
            return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}' % number
    else:
        error = {"code": -32601, "message": "no such method"}
        return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()

    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def serve_stdio() -> None:
    """Each message in a thread of its own, as calls may hang."""
    lock = threading.Lock()

    def handle(line: bytes) -> None:
        try:
            said = answer(json.loads(line))
        except CutError:
            os.close(1)
            return
        if said is not None:
            with lock:
                os.write(1, said + b"\n")

    for line in sys.stdin.buffer:
        threading.Thread(target=handle, args=(line,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """Answers calls by a stream of events, and everything else by JSON."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        do = str(message.get("params", {}).get("arguments", {}).get("do", ""))
        if message.get("method") == "tools/call":
            if do.startswith("http_"):
                record(f"{message['params']['name']} {do}")
                self.whole(int(do[5:]), "text/plain", b"sorry")
                return

            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b": under way\n\n")
            self.wfile.flush()
            self.close_connection = True
            try:
                said = answer(message)
            except CutError:
                return

            self.wfile.write(b"event: message\ndata: " + (said or b"") + b"\n\n")
            return

        said = answer(message)
        self.whole(202 if said is None else 200, "application/json", said or b"")

    def do_GET(self) -> None:
        self.whole(405, "text/plain", b"")

    def whole(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


def main() -> None:
    if "--late" in sys.argv and not (FOLDER / "open").exists():
        print("the bank is closed", file=sys.stderr, flush=True)
        sys.exit(3)

    if "--http" not in sys.argv:
        serve_stdio()
        return

    server = ThreadingHTTPServer(
        ("127.0.0.1", int(sys.argv[sys.argv.index("--http") + 1])), Handler
    )
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
