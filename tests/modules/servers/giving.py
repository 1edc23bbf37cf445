"""A server of the handshake era, on bare stdin and stdout, whose tools answer with what
they are given.
"""

import json
import sys
from typing import Any

GIVEN = {
    "type": "object",
    "properties": {"result": {"type": "object"}, "error": {}},
    "additionalProperties": False,
}
TYPED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READS = {"annotations": {"readOnlyHint": True}}
TOOLS: list[dict[str, Any]] = [
    {"name": "give", "inputSchema": GIVEN, **READS},
    {"name": "typed", "inputSchema": GIVEN, "outputSchema": TYPED, **READS},
    {"name": "change", "inputSchema": GIVEN, "outputSchema": TYPED},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}}
            info = {"name": "giving", "version": "1"}
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": capabilities,
                    "serverInfo": info,
                }
            }
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            given = params["arguments"]
            if "error" in given:
                return {"error": given["error"]}
            return {"result": given.get("result", {"content": []})}
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answered = {
                "jsonrpc": "2.0",
                "id": message["id"],
                **answer(message["method"], message.get("params", {})),
            }
            sys.stdout.buffer.write(json.dumps(answered).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
