"""The agent loop by turns: an MCP client hands in each solution, as an assistant does. Works in every host.

    python examples/turns_mind.py

Starts `ideabridge serve` over stdio with a store of its own. The solutions are written here; an assistant's model
writes them after reading what `solve` and `submit_solution` answer.
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
    # No Solution: nothing of it runs, and the turn stays open.
    "Count the names.",
    # A tool that is not there: the other call runs, and the next Request says what was wrong.
    {
        "calls": [
            {"_tool": "cuont", "items": "†input.names", "_outputPath": "number"},
            {"_tool": "join", "items": "†input.names", "separator": ", ", "_outputPath": "line"},
        ],
        "output": None,
    },
    {"calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "number"}], "output": None},
    {"calls": [], "output": {"number": "†state.number", "line": "†state.line"}},
]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "ideabridge.server", "serve", "--project", folder, "--store", str(Path(folder) / "s.sqlite")]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            result = await client.call_tool("solve", TASK)
            told: dict[str, Any] = result.structured_content or {}
            print(f"{told['status']}, mind: {told['mind']['name']} ({told['mind']['why']})")
            run = told["run"]
            solutions = iter(SOLUTIONS)
            while told["status"] == "needs_solution":
                answer = {"run": run, "turn": told["turn"], "solution": next(solutions)}
                result = await client.call_tool("submit_solution", answer)
                if result.is_error:
                    said = [block.text for block in result.content if isinstance(block, types.TextContent)]
                    print(f"turn {told['turn']}: refused: {' '.join(said)}")
                    continue
                print(f"turn {told['turn']}: taken")
                told = result.structured_content or {}
                for one in told["errors"]:
                    print(f"  {one['error']['message']}")
            print(told["status"], told["output"])


anyio.run(main)
