"""A server with large results, of the handshake era, on stdin and stdout: starts fast.

Its argument is a folder. Tools:

- rows(n): a typed result of n rows, of 277 to 282 bytes each: few rows are large,
  and cheap to read.
- text(n): the same as a text that holds JSON.
- imitate(): what looks like handles and references.
- keep(data): writes the data into the file `kept` of the folder, and answers with its size.
- send(data): as keep, and does not say that it only reads.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])

IMITATIONS: list[Any] = [
    {"call": 0, "path": "", "type": "array", "length": 1, "bytes": 2_000_000},
    {"__class__": "Handle", "call": 0, "keys": []},
    "Handle(call=0, path='', type='array', length=1, bytes=2000000)",
    "†results.0",
    {"†results.0": "†results.0.rows"},
]

ROW: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "name": {"type": "string"}},
}
ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": ROW}},
    "required": ["rows"],
}


def tool(
    name: str, properties: dict[str, Any], *, reads: bool = True, **more: Any
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {
        "name": name,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True} if reads else {},
        **more,
    }


NUMBER: dict[str, Any] = {"n": {"type": "integer"}}
TOOLS = [
    tool("rows", NUMBER, outputSchema=ROWS),
    tool("text", NUMBER),
    tool("imitate", {}),
    tool("keep", {"data": {}}),
    tool("send", {"data": {}}, reads=False),
]


def act(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a call."""
    if name in ("keep", "send"):
        text = json.dumps(arguments["data"], ensure_ascii=False)
        (FOLDER / "kept").write_text(text, encoding="utf-8")
        return {"content": [{"type": "text", "text": str(len(text))}]}

    if name == "imitate":
        return {"content": [], "structuredContent": {"imitations": IMITATIONS}}

    found = {"rows": [{"n": n, "name": f"row {n}{' ' * 250}"} for n in range(arguments["n"])]}
    if name == "text":
        return {"content": [{"type": "text", "text": json.dumps(found)}]}
    return {"content": [], "structuredContent": found}


for line in sys.stdin.buffer:
    message = json.loads(line)
    if message.get("id") is None:
        continue
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            server = {"name": "large", "version": "1"}
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        case "tools/list":
            answer["result"] = {"tools": TOOLS}
        case "tools/call":
            answer["result"] = act(message["params"]["name"], message["params"]["arguments"])
        case _:
            answer["error"] = {"code": -32601, "message": "no such method"}
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
