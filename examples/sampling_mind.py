"""The agent loop with the client's own model: one call of `solve`, and the server asks the model in between.

    python examples/sampling_mind.py

Once as up to 2025-11-25 (the server asks on the back-channel), once as in 2026-07-28 (the call is answered with the
question and comes again). The model is scripted here; a real client passes the question to the one it has.
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
    {"calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "number"}], "output": None},
    {"calls": [], "output": "†state.number"},
]


async def solve(mode: str) -> None:
    solutions = iter(SOLUTIONS)

    async def model(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        print(f"  the model is asked: {len(params.messages)} message, at most {params.max_tokens} tokens")
        text = json.dumps(next(solutions), ensure_ascii=False)
        content = types.TextContent(text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="scripted", stop_reason="endTurn")

    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "ideabridge.server", "serve", "--project", folder, "--store", str(Path(folder) / "s.sqlite")]
        server = StdioServerParameters(command=sys.executable, args=arguments)
        async with Client(server, mode=mode, sampling_callback=model) as client:
            print(f"MCP {client.protocol_version}")
            result = await client.call_tool("solve", TASK)
            told: dict[str, Any] = result.structured_content or {}
            print(f"  {told['status']}: {told['output']}, mind: {told['mind']['name']} ({told['mind']['why']})")


async def main() -> None:
    await solve("legacy")
    await solve("auto")


anyio.run(main)
