"""An MCP server on bare stdin and stdout whose tools write down each execution durably before
they do their work.

    module.py LOG

LOG gets a line `start PID` once, and for every execution `ran PID KEY N`, each synced to the disk
before anything else happens; then `saying PID KEY N` before its answer is written, and
`said PID KEY N` after that. `look` is read-only, `put` idempotent, `bump` and `fail` say nothing of
the kind, and `fail` always answers with an error.
"""

import json
import os
import sys
import threading
import time
from typing import Any

INTEGER = {"type": "integer"}
PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "n": INTEGER, "ms": INTEGER},
    "required": ["key", "n", "ms"],
}
OUTPUT = {"type": "object", "properties": {"value": INTEGER}, "required": ["value"]}
HINTS = {
    "look": {"readOnlyHint": True},
    "put": {"readOnlyHint": False, "idempotentHint": True},
    "bump": {"readOnlyHint": False, "idempotentHint": False},
    "fail": {"readOnlyHint": False, "idempotentHint": False},
}
FACTORS = {"look": 2, "put": 3, "bump": 5}
WRITING = threading.Lock()


def note(line: str, *, sync: bool = True) -> None:
    """Write one line of the log; with `sync` it is on the disk when this returns."""
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{line}\n".encode())
    if sync:
        os.fsync(log)
    os.close(log)


def answer(number: Any, execution: str = "", **members: Any) -> None:
    """Send one message to the client, and exit where the client is gone. `execution` is what the
    message answers.
    """
    data = json.dumps({"jsonrpc": "2.0", "id": number, **members}).encode() + b"\n"
    with WRITING:
        if execution:
            note(f"saying {execution}", sync=False)
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            os._exit(1)
        if execution:
            note(f"said {execution}", sync=False)


def run(number: Any, name: str, arguments: dict[str, Any]) -> None:
    """One execution."""
    execution = f"{os.getpid()} {arguments['key']} {arguments['n']}"
    note(f"ran {execution}")
    time.sleep(arguments["ms"] / 1000)
    if name == "fail":
        content = [{"type": "text", "text": f"{arguments['key']} is refused"}]
        answer(number, execution, result={"content": content, "isError": True})
        return

    value = {"value": arguments["n"] * FACTORS[name] % 1_000_003 + 1}
    content = [{"type": "text", "text": json.dumps(value)}]
    answer(number, execution, result={"content": content, "structuredContent": value})


def handle(message: dict[str, Any]) -> None:
    """Answer one message of the client."""
    method = message.get("method")
    number = message.get("id")
    params = message.get("params", {})
    if method == "initialize":
        info = {"name": "crash", "version": "1"}
        can: dict[str, Any] = {"tools": {}}
        told = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info}
        answer(number, result=told)
    elif method == "tools/list":
        tools = [
            {"name": name, "inputSchema": PARAMETERS, "outputSchema": OUTPUT, "annotations": hints}
            for name, hints in HINTS.items()
        ]
        answer(number, result={"tools": tools})
    elif method == "tools/call":
        threading.Thread(
            target=run, args=(number, params["name"], params["arguments"]), daemon=True
        ).start()
    elif number is not None:
        answer(number, error={"code": -32601, "message": "no such method"})


def main() -> None:
    """Serve until the client closes our input."""
    note(f"start {os.getpid()}")
    for line in sys.stdin.buffer:
        handle(json.loads(line))


if __name__ == "__main__":
    main()
