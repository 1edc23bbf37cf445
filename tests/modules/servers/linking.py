"""A server of resources of its own making, of the handshake era.

    linking.py NAME [--lists URI]... [--template TEMPLATE]... [--port PORT]

It reads any URI, and answers with its NAME. Its tool `link` gives a link to a resource, `show` has one in its result,
and `touch` reports that one has changed. Resources whose URI has the word `slow` report progress. `--port`: over HTTP.
"""

from __future__ import annotations

import argparse
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

Context = ServerRequestContext[Any, Any]

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--lists", action="append", default=[])
parser.add_argument("--template", action="append", default=[])
parser.add_argument("--port", type=int)
TOLD = parser.parse_args()
PARAMETERS = {"type": "object", "properties": {"uri": {"type": "string"}}}


async def list_tools(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=f"{TOLD.name}_{name}", input_schema=PARAMETERS) for name in ("link", "touch", "show")]
    )


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    uri = str((params.arguments or {}).get("uri"))
    name = params.name.removeprefix(f"{TOLD.name}_")
    if name == "link":
        return types.CallToolResult(content=[types.ResourceLink(uri=uri, name="linked")])
    if name == "show":
        contents = types.TextResourceContents(uri=uri, text="a part of it")
        return types.CallToolResult(content=[types.EmbeddedResource(resource=contents)])
    told = types.ResourceUpdatedNotificationParams(uri=uri)
    await ctx.session.send_notification(types.ResourceUpdatedNotification(params=told))
    return types.CallToolResult(content=[])


async def list_resources(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri=uri, name=uri) for uri in TOLD.lists])


async def list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    templates = [types.ResourceTemplate(uri_template=one, name=one) for one in TOLD.template]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    if "slow" in params.uri:
        for done in range(5):
            await ctx.session.report_progress(done, 5, "reading")
            await anyio.sleep(0.3)
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=TOLD.name)])


async def list_prompts(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name=f"{TOLD.name}_prompt")])


async def get_prompt(_ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    content = types.TextContent(text=params.name)
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def subscribe(_ctx: Context, _params: types.SubscribeRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


SERVER = Server(
    TOLD.name,
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_subscribe_resource=subscribe,
)


async def over_stdio() -> None:
    async with stdio_server() as (read, write), anyio.create_task_group() as group:
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()

        async def pump() -> None:
            async with send:
                async for item in read:
                    message = item.message if isinstance(item, SessionMessage) else None
                    if isinstance(message, types.JSONRPCRequest) and message.method == "server/discover":
                        error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
                        answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await send.send(item)

        group.start_soon(pump)
        await SERVER.run(receive, write, SERVER.create_initialization_options(NotificationOptions()))
        group.cancel_scope.cancel()


def over_http() -> None:
    import uvicorn

    app = SERVER.streamable_http_app()

    async def handshake_only(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") == b"server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    config = uvicorn.Config(
        handshake_only, port=TOLD.port, lifespan="on", log_level="critical", timeout_graceful_shutdown=0
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    if TOLD.port:
        over_http()
    else:
        anyio.run(over_stdio)
