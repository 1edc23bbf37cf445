"""A server whose definitions, errors and progress have everything that a gateway could lose.

faithful.py: over stdio, in both eras.
"""

import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "node": {
            "$anchor": "node",
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        }
    },
    "properties": {
        "list": {"$ref": "#node"},
        "kind": {"type": "string"},
        "size": {"type": "integer"},
    },
    "allOf": [
        {
            "if": {"properties": {"kind": {"const": "big"}}, "required": ["kind"]},
            "then": {"required": ["size"]},
        }
    ],
}
OUTPUT = {
    "type": "object",
    "properties": {"node": {"$ref": "#/$defs/node"}},
    "$defs": SCHEMA["$defs"],
}
OPEN = {
    "type": "object",
    "properties": {"seconds": {"type": "number"}, "times": {"type": "integer"}},
}

TOOLS = [
    types.Tool(
        name="rich",
        title="Rich",
        description="Has everything.",
        input_schema=SCHEMA,
        output_schema=OUTPUT,
        icons=[
            types.Icon(src="https://example.org/icon.png", mime_type="image/png", sizes=["48x48"])
        ],
        annotations=types.ToolAnnotations(
            title="Rich in annotations", read_only_hint=True, open_world_hint=False
        ),
        _meta={"example.org/cost": {"unit": 1}},
    ),
    types.Tool(name="meta", input_schema=OPEN),
    types.Tool(name="refuses", input_schema=OPEN),
    types.Tool(name="steps", description="Reports progress.", input_schema=OPEN),
]


async def list_tools(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    if params.name == "refuses":
        message = "the shop is closed" + "!" * arguments.get("cries", 0)
        data = "nine" * arguments.get("times", 1)
        raise MCPError(-32050, message, {"opens": f"at {data}"})

    if "logged" in arguments:
        words = types.LoggingMessageNotificationParams(level="info", data="x" * arguments["logged"])
        await ctx.session.send_notification(
            types.LoggingMessageNotification(params=words), ctx.request_id
        )

    if params.name == "steps":
        for number in range(arguments["times"]):
            await anyio.sleep(arguments["seconds"])
            await ctx.session.report_progress(number + 1, None, None)

    if params.name == "rich":
        answer: Any = {"node": {"value": 1}}
    else:
        answer = dict(params.meta or {})

    return types.CallToolResult(
        content=[types.TextContent(text=json.dumps(answer) + "ä" * arguments.get("size", 0))],
        structured_content=answer if params.name == "rich" else None,
    )


async def main() -> None:
    server = Server(
        "faithful",
        instructions="Ask for one thing at a time.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
