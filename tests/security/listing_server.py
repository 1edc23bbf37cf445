"""A module that lists what a file says, and tells who was called: `NAME.TOOL`.

Arguments: its name, and a folder. `NAME.json` there holds its tools, read at each `tools/list`;
where `NAME.down` is there, it does not start. A call of `refresh` tells the client that the list
has changed; each other call is a line of `NAME.calls`.
"""

import json
import sys
from pathlib import Path
from typing import Any

NAME = sys.argv[1]
FOLDER = Path(sys.argv[2])
INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def handle(message: dict[str, Any]) -> None:
    method = message.get("method")
    number = message.get("id")
    if method == "initialize":
        send({"id": number, "result": {**INFO, "serverInfo": {"name": NAME, "version": "1"}}})
    elif method == "tools/list":
        tools = json.loads((FOLDER / f"{NAME}.json").read_text(encoding="utf-8"))
        send({"id": number, "result": {"tools": tools}})
    elif method == "tools/call":
        tool = message["params"]["name"]
        if tool == "refresh":
            send({"method": "notifications/tools/list_changed"})
        else:
            with (FOLDER / f"{NAME}.calls").open("a", encoding="utf-8") as file:
                file.write(f"{tool}\n")

        send({"id": number, "result": {"content": [{"type": "text", "text": f"{NAME}.{tool}"}]}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    if (FOLDER / f"{NAME}.down").exists():
        sys.exit(f"{NAME} does not start")
    for line in sys.stdin.buffer:
        handle(json.loads(line))


if __name__ == "__main__":
    main()
