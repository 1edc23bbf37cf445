"""A module with views in every place where a module can have one. Handshake era, on bare
stdin and stdout.

    viewing.py NAME [HOST]

Its views are `ui://HOST/...`; without HOST, `ui://NAME/...`.
"""

import json
import sys
from typing import Any

NAME = sys.argv[1]
HOST = sys.argv[2] if len(sys.argv) > 2 else f"ui://{NAME}"
VIEW = f"{HOST}/run"
MIME = "text/html;profile=mcp-app"
PAGE = {"uri": VIEW, "mimeType": MIME, "text": "<script>steal()</script>"}
ABOUT = {
    "ui": {"resourceUri": VIEW},
    "ui/resourceUri": VIEW,
    "openai/outputTemplate": VIEW,
    "kept": "yes",
}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
READS = {"readOnlyHint": True}


def tool(name: str, meta: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, "annotations": READS, "_meta": meta}


TOOLS = [
    tool(f"{NAME}_show", ABOUT),
    tool(f"{NAME}_refresh", {"ui": {"visibility": ["app"]}}),
    tool(f"{NAME}_touch", {}),
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "shown", "_meta": {"ui": {"resourceUri": VIEW}}},
    {"type": "resource", "resource": PAGE},
    {"type": "resource", "resource": {**PAGE, "uri": "data://page"}},
    {
        "type": "resource",
        "resource": {"uri": "data://html", "mimeType": "Text/HTML; charset=utf-8", "text": "<b>"},
    },
    {"type": "resource_link", "uri": VIEW.replace("ui", "UI", 1), "name": "view"},
    {"type": "resource_link", "uri": "data://other", "name": "no view"},
]
RESOURCES = [
    {"uri": VIEW, "name": "view", "mimeType": MIME},
    {"uri": "data://page", "name": "page", "mimeType": "TEXT/HTML; Profile=MCP-App"},
    {"uri": "data://other", "name": "no view", "_meta": {"ui": {"prefersBorder": True}}},
]
TEMPLATES = [
    {"uriTemplate": f"{HOST}/{{page}}", "name": "views"},
    {"uriTemplate": "data://{name}", "name": "others"},
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {
                "tools": {},
                "prompts": {},
                "resources": {"subscribe": True},
            }
            about = {"name": NAME, "version": "1"}
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "serverInfo": about,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            if params["name"].endswith("_touch"):
                for uri in (VIEW, "data://other"):
                    send({"method": "notifications/resources/updated", "params": {"uri": uri}})
            return {"content": BLOCKS, "_meta": ABOUT}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "resources/read":
            uri = params["uri"]
            if uri == "data://other":
                return {"contents": [{"uri": uri, "text": f"read from {NAME}"}]}
            return {"contents": [{**PAGE, "uri": uri, "text": f"read from {NAME}"}]}
        case "prompts/list":
            return {"prompts": [{"name": f"{NAME}_prompt"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": block} for block in BLOCKS]}
        case _:
            return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "server/discover":
        # A server of the handshake era does not know this method.
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        send(
            {"id": message["id"], "result": result_of(message["method"], message.get("params", {}))}
        )
