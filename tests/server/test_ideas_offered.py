"""`solve` over MCP and on the command line offers published ideas, and plans call them by
their plain names.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.server.serving import BIN, call, configured, over_stdio, refused, served

pytestmark = pytest.mark.anyio

PLAN: dict[str, Any] = {
    "input": {"text": "hi"},
    "calls": [
        {"_tool": "template", "text": "{t}!", "values": {"t": "†input.text"}, "_outputPath": "said"}
    ],
    "output": "†state.said",
}
CALL = {"_tool": "shout", "text": "hello", "_outputPath": "loud"}


async def test_a_host_offers_ideas_to_itself_and_calls_them_by_name(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    async with over_stdio(configuration, "auto", served) as client:
        await call(client, "run_plan", **PLAN, save_as="shout")
        for patterns in (["*"], ["shout"], ["idea:*"]):
            asked = await call(client, "solve", task="Shout.", tools=patterns)
            assert "shout(" in json.dumps(asked["requests"]), asked["requests"]
            solution = {"calls": [CALL], "output": "†state.loud"}
            answer = await call(client, "solve", run=asked["run"], turn=0, solution=solution)
            assert answer["output"] == "hello!"
        answer = await call(client, "run_plan", calls=[CALL], output="†state.loud")
        assert answer["output"] == "hello!"
        assert "nothing matches shuot" in await refused(client, "solve", task="x", tools=["shuot"])


def test_the_command_line_offers_ideas(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))

    def run(*arguments: str, **keys: Any) -> dict[str, Any]:
        program = preloaded.python(
            BIN / "ideabridge", *arguments, "--config", str(configuration), "--json"
        )
        told = subprocess.run(
            program, capture_output=True, text=True, check=False, cwd=tmp_path, **keys
        )
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    run("run", "plan.json", "--save-as", "shout")
    solution = json.dumps({"calls": [CALL], "output": "†state.loud"})
    assert (
        run("solve", "Shout.", "--tool", "idea:*", "--mind", "turns", input=solution)["output"]
        == "hello!"
    )
