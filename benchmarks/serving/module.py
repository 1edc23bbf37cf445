"""An MCP server on bare stdin and stdout, which starts in a few milliseconds.

    module.py KIND LOG

KIND is `fast` (a read-only tool `look`), `slow` (a read-only tool `wait` that takes 50 ms), or
`changing` (an idempotent tool `put` and a tool `change` that says nothing of the kind, of 5 ms
each). LOG gets a line `KIND PID`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

INTEGER = {"type": "integer"}
PARAMETERS = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
OUTPUT = {"type": "object", "properties": {"value": INTEGER}, "required": ["value"]}
TOOLS: dict[str, dict[str, dict[str, bool]]] = {
    "fast": {"look": {"readOnlyHint": True}},
    "slow": {"wait": {"readOnlyHint": True}},
    "changing": {
        "put": {"readOnlyHint": False, "idempotentHint": True},
        "change": {"readOnlyHint": False, "idempotentHint": False},
    },
}
SECONDS = {"look": 0.0, "wait": 0.05, "put": 0.005, "change": 0.005}
WRITING = threading.Lock()


def answer(number: Any, **members: Any) -> None:
    """Send one message to the client, and exit where the client is gone."""
    data = json.dumps({"jsonrpc": "2.0", "id": number, **members}).encode() + b"\n"
    with WRITING:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            os._exit(1)


def run(number: Any, name: str, n: int) -> None:
    """Run one call."""
    time.sleep(SECONDS[name])
    value = {"value": n + 1}
    answer(
        number,
        result={
            "content": [{"type": "text", "text": json.dumps(value)}],
            "structuredContent": value,
        },
    )


def handle(kind: str, message: dict[str, Any]) -> None:
    """Answer one message of the client."""
    method = message.get("method")
    number = message.get("id")
    params = message.get("params", {})
    if method == "initialize":
        told: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        answer(number, result={**told, "serverInfo": {"name": kind, "version": "1"}})
    elif method == "tools/list":
        tools = [
            {"name": name, "inputSchema": PARAMETERS, "outputSchema": OUTPUT, "annotations": hints}
            for name, hints in TOOLS[kind].items()
        ]
        answer(number, result={"tools": tools})
    elif method == "tools/call":
        name = params["name"]
        n = params["arguments"]["n"]
        if SECONDS[name]:
            threading.Thread(target=run, args=(number, name, n), daemon=True).start()
        else:
            run(number, name, n)
    elif number is not None:
        answer(number, error={"code": -32601, "message": "no such method"})


def main() -> None:
    """Serve until the client closes our input."""
    kind, log = sys.argv[1:]
    with Path(log).open("a") as lines:
        lines.write(f"{kind} {os.getpid()}\n")
    for line in sys.stdin.buffer:
        handle(kind, json.loads(line))


if __name__ == "__main__":
    main()
