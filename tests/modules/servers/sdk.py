"""A server on the SDK: both eras, over stdio or (with --http) over loopback HTTP with a
required header.

--http prints the port. With --legacy the HTTP side knows the handshake era only. A GET of /forget
makes it lose its sessions.
"""

import json
import socket
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

BUS = InMemorySubscriptionBus()
TOOLS = ["add_tool", "slow", "log", "ask", "who"]
LOG: list[str] = []
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=OBJECT) for name in TOOLS]
    )


async def call_tool(
    ctx: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    answer = "done"
    match params.name:
        case "add_tool":
            TOOLS.append(f"tool_{len(TOOLS)}")
            await BUS.publish(ToolsListChanged())
            if ctx.session.protocol_version != "2026-07-28":
                await ctx.session.send_tool_list_changed()
        case "slow":
            LOG.append("started")
            await ctx.session.report_progress(1, 2, "started")
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                LOG.append("cancelled")
                raise
        case "log":
            answer = json.dumps(LOG)
        case "ask":
            question = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="Who?", requested_schema={"type": "object", "properties": {}}
                )
            )
            return types.InputRequiredResult(input_requests={"q": question})
        case _:
            answer = params.name

    return types.CallToolResult(content=[types.TextContent(text=answer)])


SERVER = Server(
    "sdk",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=ListenHandler(BUS),
)


class Gate:
    """Wants a token; forgets sessions on demand."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.lost: set[bytes] = set()
        self.seen: set[bytes] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        headers = dict(scope["headers"])
        session = headers.get(b"mcp-session-id")
        if scope["path"] == "/forget":
            self.lost |= self.seen
            await self.answer(send, 200, b"forgotten")
        elif headers.get(b"authorization") != b"Bearer sesame-open-now":
            await self.answer(send, 401, b"no sesame")
        elif (
            "--legacy" in sys.argv and headers.get(b"mcp-method") == b"server/discover"
        ) or session in self.lost:
            await self.answer(send, 404, b"")
        else:
            if session is not None:
                self.seen.add(session)
            await self.app(scope, receive, send)

    async def answer(self, send: Any, status: int, body: bytes) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"text/plain")],
            }
        )
        await send({"type": "http.response.body", "body": body})


class Old:
    """The transport before streamable HTTP: a stream of events, and posts beside it."""

    def __init__(self) -> None:
        self.transport = SseServerTransport("/messages/")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/mcp":
            async with self.transport.connect_sse(scope, receive, send) as (read, write):
                await SERVER.run(read, write, SERVER.create_initialization_options())
        else:
            await self.transport.handle_post_message(scope, receive, send)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        options = SERVER.create_initialization_options(NotificationOptions(tools_changed=True))
        await SERVER.run(read, write, options)


def main() -> None:
    if "--http" not in sys.argv:
        anyio.run(serve_stdio)
        return

    import uvicorn

    listener = socket.socket()
    # Servers that open their own socket set this. Without it, each reuse of a connection would cost
    # 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", 0))
    # Listen before printing the port, because whoever reads it may connect immediately.
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = Old() if "--sse" in sys.argv else SERVER.streamable_http_app()
    config = uvicorn.Config(
        Gate(app),
        lifespan="off" if "--sse" in sys.argv else "on",
        log_level="critical",
        timeout_graceful_shutdown=0,
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
