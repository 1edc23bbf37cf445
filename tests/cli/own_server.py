"""A small server over stdio: it says where it runs, saves a note, and writes to standard error."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "name": "where",
        "description": "Say in which folder the server runs.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "save",
        "description": "Keep a text in a file.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
    {
        "name": "speak",
        "description": "Say a text, also on standard error.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    },
]


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(name: str, arguments: dict[str, Any]) -> str:
    if name == "where":
        return str(Path.cwd())
    text = str(arguments.get("text", ""))
    if name == "save":
        Path("saved.txt").write_text(text, encoding="utf-8")
        return "saved"

    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    data = {"level": "warning", "logger": "own", "data": f"said {text}"}
    send(method="notifications/message", params=data)
    return text


def main() -> None:
    sys.stderr.write(f"own server starts with {os.environ.get('OWN_TOKEN', 'no token')}\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if "id" not in message:
            continue

        if method == "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
            info = {"name": "own", "version": "1.2"}
            version = {"protocolVersion": "2025-11-25"}
            send(
                id=message["id"],
                result={**version, "capabilities": capabilities, "serverInfo": info},
            )
        elif method == "tools/list":
            send(id=message["id"], result={"tools": TOOLS})
        elif method == "tools/call":
            text = call(message["params"]["name"], message["params"].get("arguments", {}))
            send(id=message["id"], result={"content": [{"type": "text", "text": text}]})
        else:
            send(id=message["id"], error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()
