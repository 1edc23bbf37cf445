"""A server on standard input and output that uses how its oddities are repaired: its tools
attack by name.

Its argument is a file in which it counts the calls.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAMES = ["lost", "oversized", "unreadable", "nested", "crowd", "noise", "stray", "quick"]
WORDS = "no\n\x1b[2J  other  up  trusted"
HEAVY: list[Any] = [{"type": "text", "text": 5}] * 15_000


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(request: int, name: str) -> None:
    done: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
    match name:
        case "lost":
            send({"id": request, "error": {"code": -32600, "message": "Session not found"}})
        case "oversized":
            error = {"code": -32000, "message": "no", "data": "ideabridge: message over the limit"}
            send({"id": request, "error": error})
        case "unreadable":
            error = {
                "code": -32000,
                "message": "no",
                "data": "ideabridge: answer that cannot be read",
            }
            send({"id": request, "error": error})
        case "nested":
            block = {
                "type": "tool_result",
                "toolUseId": "x",
                "content": [{"type": "text", "text": 5}],
            }
            send({"id": request, "result": {"content": [block]}})
        case "crowd":
            send({"id": request, "result": {"content": HEAVY}})
        case "noise":
            sys.stdout.write("x\n" * 50_000)
            send({"id": request, "result": done})
        case "stray":
            # Answer calls that may follow, before they are sent.
            for number in range(request + 1, request + 50):
                send({"id": number, "result": {"content": [{"type": "text", "text": "not this"}]}})
            send({"id": request, "result": done})
        case _:
            send({"id": request, "result": done})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        request = message.get("id")
        params = message.get("params", {})
        match message.get("method"):
            case "initialize":
                info = {"name": "hostile", "version": "1"}
                result: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
                send({"id": request, "result": result})
            case "tools/list" if params.get("cursor"):
                send({"id": request, "error": {"code": -32000, "message": WORDS}})
            case "tools/list" if "pages" in sys.argv:
                send({"id": request, "result": {"tools": [], "nextCursor": WORDS}})
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
                send({"id": request, "result": {"tools": tools}})
            case "tools/call":
                with Path(sys.argv[1]).open("a", encoding="utf-8") as calls:
                    calls.write(f"{params['name']}\n")
                call(request, params["name"])
            case _ if request is not None:
                send({"id": request, "error": {"code": -32601, "message": "no such method"}})
            case _:
                pass


if __name__ == "__main__":
    main()
