"""A module on bare stdin and stdout that writes what it is called with to standard error; a call
of `die` ends it.
"""

import json
import sys
from typing import Any

TOOLS = [
    {
        "name": name,
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    for name in ("say", "die")
]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "talkative", "version": "1"},
            }
        case "tools/list":
            return {"tools": TOOLS}
        case _:
            text = str(params.get("arguments", {}).get("text"))
            sys.stderr.write(f"called with {text}\n")
            sys.stderr.flush()
            # This is not a message either.
            sys.stdout.write(f"debug: {text}\n")
            if params.get("name") == "die":
                sys.stdout.flush()
                sys.exit(3)
            return {"content": [{"type": "text", "text": "said"}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
