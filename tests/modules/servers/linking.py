"""A server of the handshake era, with resources of its own making and questions that only some
clients answer.

    linking.py NAME [--lists URI]... [--template TEMPLATE]... [--port PORT]

It reads any URI, and answers with its NAME. Its tool `link` gives a link to a resource, `show` has
one in its result, and `touch` reports that one has changed. Resources whose URI has the word `slow`
report progress. `--port`: over HTTP.

Its tools `open` and `samples` ask only clients that declare addresses, and sampling with tools, as
SDKs do. `must_open` answers with the error that names an address, and `tell` tells that the
address is done.
"""

from __future__ import annotations

import argparse
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage

Context = ServerRequestContext[Any, Any]

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--lists", action="append", default=[])
parser.add_argument("--template", action="append", default=[])
parser.add_argument("--port", type=int)
TOLD = parser.parse_args()
TOOLS = ("link", "touch", "show", "open", "must_open", "samples", "tell")
SEVEN = "seven"
ADDRESS = types.ElicitRequestURLParams(
    message="Pay", url="https://pay.example/7", elicitation_id=SEVEN
)
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"uri": {"type": "string"}}}


async def list_tools(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=f"{TOLD.name}_{name}", input_schema=PARAMETERS) for name in TOOLS]
    )


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    uri = str((params.arguments or {}).get("uri"))
    name = params.name.removeprefix(f"{TOLD.name}_")
    if name == "link":
        return types.CallToolResult(content=[types.ResourceLink(uri=uri, name="linked")])
    if name == "show":
        contents = types.TextResourceContents(uri=uri, text="a part of it")
        return types.CallToolResult(content=[types.EmbeddedResource(resource=contents)])
    if name in ("open", "must_open", "samples", "tell"):
        return await asked(ctx, name)

    told = types.ResourceUpdatedNotificationParams(uri=uri)
    await ctx.session.send_notification(types.ResourceUpdatedNotification(params=told))
    return types.CallToolResult(content=[])


async def asked(ctx: Context, name: str) -> types.CallToolResult:
    declared = ctx.session.client_capabilities or types.ClientCapabilities()
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    if name == "tell":
        done = types.ElicitCompleteNotificationParams(elicitation_id=SEVEN)
        await ctx.session.send_notification(types.ElicitCompleteNotification(params=done))
        return types.CallToolResult(content=[])

    if name == "samples":
        if declared.sampling is None or declared.sampling.tools is None:
            raise MCPError(types.INVALID_PARAMS, "the client does not support sampling with tools")

        message = types.SamplingMessage(role="user", content=types.TextContent(text="Who?"))
        tool = types.Tool(name="ask", input_schema=PARAMETERS)
        params = types.CreateMessageRequestParams(messages=[message], max_tokens=10, tools=[tool])
        question = types.CreateMessageRequest(params=params)
        sampled = await ctx.session.send_request(
            question, types.CreateMessageResultWithTools, metadata=metadata
        )
        return types.CallToolResult(content=[types.TextContent(text=sampled.model)])

    if declared.elicitation is None or declared.elicitation.url is None:
        raise MCPError(types.INVALID_PARAMS, "the client does not open addresses")
    if name == "must_open":
        data = types.ElicitationRequiredErrorData(elicitations=[ADDRESS])
        raise MCPError(
            types.URL_ELICITATION_REQUIRED, "pay first", data.model_dump(mode="json", by_alias=True)
        )

    answer = await ctx.session.send_request(
        types.ElicitRequest(params=ADDRESS), types.ElicitResult, metadata=metadata
    )
    return types.CallToolResult(content=[types.TextContent(text=answer.action)])


async def list_resources(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[types.Resource(uri=uri, name=uri) for uri in TOLD.lists]
    )


async def list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    templates = [types.ResourceTemplate(uri_template=one, name=one) for one in TOLD.template]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def read_resource(
    ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    if "slow" in params.uri:
        for done in range(5):
            await ctx.session.report_progress(done, 5, "reading")
            await anyio.sleep(0.3)
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=params.uri, text=TOLD.name)]
    )


async def list_prompts(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
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
                    if (
                        isinstance(message, types.JSONRPCRequest)
                        and message.method == "server/discover"
                    ):
                        error = types.ErrorData(
                            code=types.METHOD_NOT_FOUND, message="Method not found"
                        )
                        answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await send.send(item)

        group.start_soon(pump)
        await SERVER.run(
            receive, write, SERVER.create_initialization_options(NotificationOptions())
        )
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
        handshake_only,
        port=TOLD.port,
        lifespan="on",
        log_level="critical",
        timeout_graceful_shutdown=0,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    if TOLD.port:
        over_http()
    else:
        anyio.run(over_stdio)
