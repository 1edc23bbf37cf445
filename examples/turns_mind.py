"""The agent loop by turns: an MCP client submits each solution, as an assistant does. This
works in every host.

    python examples/turns_mind.py

The program starts `ideabridge serve` over stdio with its own store. Its solutions are fixed; an
assistant's model writes them after reading the answers of `solve` and `submit_solution`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, types

TASK = {
    "task": "How many names are there, and how do they read in one line?",
    "input": {"names": ["Ada", "Grace", "Barbara"]},
    "output_schema": {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "line": {"type": "string"}},
        "required": ["number", "line"],
    },
    "tools": ["count", "join"],
    "mind": "turns",
}
SOLUTIONS: list[Any] = [
    # This is not a Solution, so nothing runs and the turn stays open.
    "Count the names.",
    # One tool is unknown. The other call runs, and the next Request contains the error.
    {
        "calls": [
            {"_tool": "cuont", "items": "†input.names", "_outputPath": "number"},
            {"_tool": "join", "items": "†input.names", "separator": ", ", "_outputPath": "line"},
        ],
        "output": None,
    },
    {
        "calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "number"}],
        "output": None,
    },
    {"calls": [], "output": {"number": "†state.number", "line": "†state.line"}},
]


async def main() -> None:
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
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            result = await client.call_tool("solve", TASK)
            answer: dict[str, Any] = result.structured_content or {}
            print(f"{answer['status']}, mind: {answer['mind']['name']} ({answer['mind']['why']})")
            run = answer["run"]
            solutions = iter(SOLUTIONS)
            while answer["status"] == "needs_solution":
                submission = {"run": run, "turn": answer["turn"], "solution": next(solutions)}
                result = await client.call_tool("submit_solution", submission)
                if result.is_error:
                    texts = [
                        block.text
                        for block in result.content
                        if isinstance(block, types.TextContent)
                    ]
                    print(f"turn {answer['turn']}: refused: {' '.join(texts)}")
                    continue
                print(f"turn {answer['turn']}: taken")
                answer = result.structured_content or {}
                for one in answer["errors"]:
                    print(f"  {one['error']['message']}")
            print(answer["status"], answer["output"])


anyio.run(main)
