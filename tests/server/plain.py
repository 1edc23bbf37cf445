"""A module of the handshake era on bare stdin and stdout, which starts at once, or when it is let.

plain.py FILE: FILE holds `{"tools", "hold"}`: its tools, as `tools/list` gives them, and a named
pipe or null. The module answers nothing before a line can be read from that pipe.

`sized` gives a result of the wanted kind and size. `gated` waits for a line from the
named pipe `gate`, and gives how many calls of it there were. Every other tool gives its
own name and arguments.
"""

import json
import os
import select
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

GATES: list[int] = []
GATED: list[str] = []


def block(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def sized(kind: str, size: int) -> dict[str, Any]:
    """`size` is the length of the text, or of all texts together."""
    match kind:
        case "structured":
            value = {"log": "x" * size}
            return {"content": [block(json.dumps(value))], "structuredContent": value}
        case "texts":
            return {"content": [block("x" * (size // 2)), block("y" * (size - size // 2))]}
        case "blocks":
            image = {"type": "image", "data": "AAAA" * (size // 8), "mimeType": "image/png"}
            return {"content": [block("x" * (size - len(image["data"]))), image]}
        case _:
            return {"content": [block("x" * size)]}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "sized":
        return sized(arguments["kind"], arguments["size"])
    if name == "gated":
        if not GATES:
            GATES.append(os.open(arguments["gate"], os.O_RDONLY))

        os.read(GATES[0], len(b"open\n"))
        GATED.append(name)
        return {"content": [block(str(len(GATED)))]}

    return {"content": [block(json.dumps({"tool": name, "arguments": arguments}))]}


def messages(hold: str | None) -> Generator[Any]:
    """What comes in, until it ends; nothing before a line can be read from the pipe `hold`."""
    pipe = None if hold is None else os.open(hold, os.O_RDONLY)
    pending = b""
    while True:
        ready = select.select([0] if pipe is None else [0, pipe], [], [])[0]
        if pipe in ready:
            os.read(pipe, len(b"open\n"))
            pipe = None

        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            pending += data

        while pipe is None and b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            yield json.loads(line)


def main() -> None:
    told = json.loads(Path(sys.argv[1]).read_text())
    for message in messages(told["hold"]):
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                answer["result"] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "tools/list":
                answer["result"] = {"tools": told["tools"]}
            case "tools/call":
                params = message["params"]
                token = params.get("_meta", {}).get("progressToken")
                if token is not None:
                    told_first = {"progressToken": token, "progress": 1}
                    note = {
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": told_first,
                    }
                    sys.stdout.write(json.dumps(note) + "\n")
                if params["name"] == "sent":
                    answer |= params["arguments"]
                else:
                    answer["result"] = called(params["name"], params["arguments"])
            case _:
                answer["error"] = {"code": -32601, "message": "no such method"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
