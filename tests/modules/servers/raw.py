"""A hostile server of the handshake era, on bare stdin and stdout: starts fast, does
what no SDK would.

Its first argument says how it behaves while connecting; its tools misbehave by name. Hundreds of
tests start it, so it imports little.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
CANCELLED: list[Any] = []
PAIR: list[Any] = []
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
TEXT_TOOLS = [
    "echo",
    "cancelled",
    "garbage",
    "latin",
    "big",
    "two_texts",
    "nothing",
    "environment",
    "progress",
    "null",
    "only_text",
]
ODD_TOOLS = [
    "crash",
    "crash_later",
    "hang",
    "long",
    "endless",
    "fails",
    "refuses",
    "blocks",
    "not_a_result",
    "no_object",
    "malformed",
    "pair",
    "takes_back",
]
TYPED_TOOLS = ["wrong", "missing", "structured"]
NAMES = [*TEXT_TOOLS, *ODD_TOOLS, *TYPED_TOOLS, "nan", "deep", "malformed"]


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def question(number: str) -> dict[str, Any]:
    params = {
        "message": "Whose?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    return {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}


def definitions() -> list[Any]:
    if MODE == "bad_tools":
        return [
            {
                "name": "good",
                "inputSchema": OBJECT,
                "annotations": {"readOnlyHint": True, "title": "Good"},
            },
            {"name": "array", "inputSchema": {"type": "array"}},
            {"name": "untyped", "inputSchema": {"properties": {"a": {}}}},
            {
                "name": "broken",
                "inputSchema": {"type": "object", "properties": {"a": {"type": "strange"}}},
            },
            {
                "name": "fetches",
                "inputSchema": {
                    "type": "object",
                    "properties": {"a": {"$ref": "http://127.0.0.1:9/"}},
                },
            },
            {"name": "hints", "inputSchema": OBJECT, "annotations": "none"},
            "not even an object",
            {"name": "good", "inputSchema": OBJECT},
            {
                "name": "meta",
                "inputSchema": {
                    "type": "object",
                    "properties": {"_id": {}, "x": {}},
                    "required": ["_id"],
                },
            },
        ]

    output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [{"name": name, "inputSchema": OBJECT} for name in NAMES]
    for tool in tools:
        if tool["name"] in TYPED_TOOLS:
            tool["outputSchema"] = output

    return tools


def call(number: Any, params: dict[str, Any]) -> None:
    name = params["name"]
    arguments = params["arguments"]
    result: dict[str, Any]
    match name:
        case "echo" | "meta" | "good":
            result = text(json.dumps(arguments))
        case "crash":
            print("last words with sesame-open-now", file=sys.stderr, flush=True)
            os._exit(7)
        case "hang":
            return
        case "pair":
            # As soon as there is a second call, the first asks and gets its result in a single
            # write.
            PAIR.append(number)
            if len(PAIR) > 1:
                result = {"jsonrpc": "2.0", "id": PAIR[0], "result": text("the first one")}
                write(b"".join(json.dumps(one).encode() + b"\n" for one in (question("q"), result)))
            return
        case "takes_back":
            for one in range(20):
                send(question(f"q{one}"))
                send({"method": "notifications/cancelled", "params": {"requestId": f"q{one}"}})
            result = text("done")
        case "cancelled":
            result = text(json.dumps(CANCELLED))
        case "garbage":
            write(b'starting up...\n\xff\xfe binary\n{"json": true}\n\n[1, 2]\n')
            result = text("after garbage")
        case "latin":
            write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}\n'
                % number
            )
            return
        case "long":
            body = b"x" * (17 * 1024 * 1024)
            write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}\n'
                % (number, body)
            )
            return
        case "endless":
            write(b"x" * (17 * 1024 * 1024) + b"\n")
            return
        case "wrong":
            result = {"content": [], "structuredContent": {"n": "three"}}
        case "missing":
            result = text("no number")
        case "null":
            result = {**text("no structure"), "structuredContent": None}
        case "structured":
            result = {"content": [], "structuredContent": {"n": 2**70}}
        case "fails":
            result = {**text("cannot open sesame-open-now: " + "y" * 10_000), "isError": True}
        case "refuses":
            send({"id": number, "error": {"code": -32001, "message": "no, says sesame-open-now"}})
            return
        case "nan":
            write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":{"b":NaN}}}}\n'
                % number
            )
            return
        case "deep":
            nested = b"[" * 150 + b"]" * 150
            write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":%s}}}\n'
                % (number, nested)
            )
            return
        case "big":
            result = text("z" * 5000)
        case "progress":
            token = params["_meta"]["progressToken"]
            for done in (1, 2):
                params = {
                    "progressToken": token,
                    "progress": done,
                    "total": 2,
                    "message": f"step {done}",
                }
                send({"method": "notifications/progress", "params": params})

            result = text("done")
        case "blocks":
            result = {
                "content": [
                    *text("see")["content"],
                    {"type": "image", "data": "AA==", "mimeType": "image/png"},
                ]
            }
        case "nothing":
            result = {"content": []}
        case "two_texts":
            result = {"content": text("one")["content"] + text("two")["content"]}
        case "not_a_result":
            result = {"answer": 42}
        case "only_text":
            result = {"content": "text"}
        case "no_object":
            send({"id": number, "result": "done"})
            return
        case "malformed":
            write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}\n' % number)
            return
        case "environment":
            result = text(json.dumps(dict(os.environ)))
        case _:
            send({"id": number, "error": {"code": -32602, "message": f"unknown tool {name}"}})
            return

    send({"id": number, "result": result})


def handle(message: dict[str, Any]) -> None:
    method = message.get("method")
    number = message.get("id")
    params = message.get("params", {})
    if method == "initialize":
        if len(sys.argv) > 2 and MODE == "stubborn":
            descriptor = os.open(sys.argv[2], os.O_WRONLY)
            os.write(
                descriptor, b"%d\n" % os.getpid()
            )  # held open: its end is seen when this process is gone

        info = {"name": "raw", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(
            {
                "id": number,
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": capabilities,
                    "serverInfo": info,
                },
            }
        )
    elif method == "tools/list":
        cursor = params.get("cursor")
        if MODE == "pages":
            page = int(cursor or 0)
            tools = [{"name": f"tool_{page}_{index}", "inputSchema": OBJECT} for index in range(3)]
            send(
                {
                    "id": number,
                    "result": {
                        "tools": tools,
                        **({"nextCursor": str(page + 1)} if page < 4 else {}),
                    },
                }
            )
        else:
            send({"id": number, "result": {"tools": definitions()}})
    elif method == "tools/call":
        if params["name"] == "crash_later":
            os.close(1)
            time.sleep(0.05)
            os._exit(3)
        call(number, params)
    elif number == "q" and PAIR:
        send({"id": PAIR[1], "result": text(json.dumps(message.get("result")))})
    elif method == "notifications/cancelled":
        CANCELLED.append(params["requestId"])
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    if MODE == "crash_at_start":
        print("cannot start: sesame-open-now is wrong", file=sys.stderr, flush=True)
        sys.exit(3)

    if MODE in ("stubborn", "mute"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    for line in sys.stdin.buffer:
        if MODE != "mute":
            handle(json.loads(line))

    while MODE in ("stubborn", "mute"):
        time.sleep(1)


if __name__ == "__main__":
    main()
