"""A server on bare stdin and stdout whose handshake is odd in the way of its first argument.

Its second argument is a file, to which it adds the first method that each of its processes hears.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
VERSION = sys.argv[3] if len(sys.argv) > 3 else "2025-11-25"
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
INFO = {"name": "handshakes", "version": "1"}
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def refused(code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **({} if data is None else {"data": data})}}


def initialized(params: dict[str, Any]) -> dict[str, Any]:
    match MODE:
        case "dies_on_initialize":
            os._exit(5)
        case "names_modern":
            return refused(-32602, "no such version", {"supported": ["2026-07-28"]})
        case "names_versions" if params["protocolVersion"] != "2025-03-26":
            return refused(
                -32602, "Unsupported protocol version", {"supported": ["2024-11-05", "2025-03-26"]}
            )
        case "says_versions" if params["protocolVersion"] != "2025-03-26":
            return refused(-32000, "Bad version. Supported: 2024-11-05, 2025-03-26.")
        case "refuses":
            return refused(-32603, "no licence")
        case _:
            pass

    result: dict[str, Any] = {
        "protocolVersion": VERSION,
        "capabilities": {"tools": {}},
        "serverInfo": INFO,
    }
    match MODE:
        case "names_versions" | "says_versions":
            result["protocolVersion"] = params["protocolVersion"]
        case "number":
            result["protocolVersion"] = 20251125
        case "none":
            del result["protocolVersion"]
        case "null":
            result["protocolVersion"] = None
        case _:
            pass

    return {"result": result}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "server/discover":
            match MODE:
                case "dies_on_discover" | "dies":
                    os._exit(4)
                case "mute_on_discover":
                    return None
                case "names_modern" | "dies_on_initialize":
                    versions = {"supportedVersions": ["2026-07-28"]}
                    return {
                        "result": {
                            **versions,
                            "capabilities": {"tools": {}},
                            "serverInfo": INFO,
                            **COMPLETE,
                        }
                    }
                case _:
                    return refused(-32601, "no such method")
        case "initialize":
            if MODE == "dies":
                os._exit(4)
            return initialized(params)
        case "tools/list":
            more = COMPLETE if MODE in ("names_modern", "dies_on_initialize") else {}
            return {"result": {"tools": [TOOL], **more}}
        case "tools/call":
            if MODE in ("names_modern", "dies_on_initialize"):
                more = {"resultType": "complete"}
            else:
                more = {}
            return {"result": {"content": [{"type": "text", "text": "done"}], **more}}
        case _:
            return refused(-32601, "no such method")


def main() -> None:
    first = True
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if first:
            first = False
            with Path(sys.argv[2]).open("a") as file:
                file.write(f"{message['method']}\n")
        if "id" in message and "method" in message:
            answered = answer(message["method"], message.get("params") or {})
            if answered is not None:
                sys.stdout.write(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], **answered}) + "\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
