"""The agent loop with the client's own model: during one call of `solve`, the server
asks the model.

    python examples/sampling_mind.py

It runs twice: with MCP 2025-11-25 (the server sends a request to the client), and with 2026-07-28
(the call is answered with the Request and is repeated). The model is scripted; a real client passes
the Request to its own model.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, types

TASK = {
    "task": "How many names are there?",
    "input": {"names": ["Ada", "Grace", "Barbara"]},
    "output_schema": {"type": "integer"},
    "tools": ["count"],
}
SOLUTIONS: list[dict[str, Any]] = [
    {
        "calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "number"}],
        "output": None,
    },
    {"calls": [], "output": "†state.number"},
]


async def solve(mode: str) -> None:
    solutions = iter(SOLUTIONS)

    async def model(
        context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        print(
            f"  the model is asked: {len(params.messages)} message, at most "
            f"{params.max_tokens} tokens"
        )
        text = json.dumps(next(solutions), ensure_ascii=False)
        content = types.TextContent(text=text)
        return types.CreateMessageResult(
            role="assistant", content=content, model="scripted", stop_reason="endTurn"
        )

    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            "-m",
            "ideabridge.server",
            "serve",
            "--project",
            folder,
            "--store",
            str(Path(folder) / "s.sqlite"),
        ]
        server = StdioServerParameters(command=sys.executable, args=arguments)
        async with Client(server, mode=mode, sampling_callback=model) as client:
            print(f"MCP {client.protocol_version}")
            result = await client.call_tool("solve", TASK)
            answer: dict[str, Any] = result.structured_content or {}
            print(
                f"  {answer['status']}: {answer['output']}, mind: {answer['mind']['name']} "
                f"({answer['mind']['why']})"
            )


async def main() -> None:
    await solve("legacy")
    await solve("auto")


anyio.run(main)
