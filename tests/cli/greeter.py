"""A server over stdio whose only tool has the name that the command line gives it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

tool = {
    "name": sys.argv[1],
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue

    text = f"{sys.argv[1]} {os.environ.get('GREETER_TOKEN', '')}".strip()
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greeter", "version": "1"},
        },
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": text}]},
    }
    method = message["method"]
    error = {"code": -32601, "message": "no such method"}
    answer: dict[str, Any] = {"result": results[method]} if method in results else {"error": error}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
