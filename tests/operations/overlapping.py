"""A module on bare stdin and stdout that notes when its calls begin and end; several calls run at
once, if it is let.

overlapping.py LOG GATE: `work` appends `begin PID` to the file LOG, waits for a line from the named
pipe GATE, which the modules of several processes share, and appends `end PID`.
"""

import json
import os
import sys
import threading
from typing import Any

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
GATE = os.open(sys.argv[2], os.O_RDWR)
LOCK = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def work(number: Any) -> None:
    os.write(LOG, f"begin {os.getpid()}\n".encode())
    os.read(GATE, len(b"open\n"))
    os.write(LOG, f"end {os.getpid()}\n".encode())
    send({"id": number, "result": {"content": [{"type": "text", "text": str(os.getpid())}]}})


for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            info = {"name": "overlapping", "version": "1"}
            known: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            send({"id": asked["id"], "result": known})
        case "tools/list":
            only = {
                "name": "work",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            }
            send({"id": asked["id"], "result": {"tools": [only]}})
        case "tools/call":
            threading.Thread(target=work, args=(asked["id"],), daemon=True).start()
        case _ if "id" in asked:
            send({"id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
        case _:
            pass
