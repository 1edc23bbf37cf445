"""Agent/Instancing: several states in one Request, plans as guidance; what no other test holds
of its document.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, PlanError
from ideabridge.bridge.plan import read_plan
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.cli.conftest import Run
from tests.seeds.minds import Prepared
from tests.server.serving import call, configured, over_stdio

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def analyze(text: str) -> str:
    """Whether a text is positive or negative."""
    return "positive" if "wonderful" in text else "negative"


TEXTS = {f"i{number}": "wonderful" if number % 2 else "terrible" for number in range(6)}
STATES: list[JSON] = [
    {"_instance": name, "type": "state", "state": {"text": text}} for name, text in TEXTS.items()
]
PLAN: JSONObject = {
    "calls": [{"_tool": "analyze", "text": "†state.text", "_outputPath": "sentiment"}]
}


def aimed(name: str) -> JSONObject:
    return {
        "_tool": "analyze",
        "_instance": name,
        "text": "†state.text",
        "_outputPath": "sentiment",
    }


async def test_one_request_serves_all_instances_and_shows_them_together() -> None:
    calls: list[JSON] = [aimed(name) for name in TEXTS]
    output: JSONObject = {name: f"†{name}.state.sentiment" for name in TEXTS}
    mind = Prepared({"calls": calls, "output": output})
    schema: JSONObject = {"type": "object", "additionalProperties": {"type": "string"}}
    async with Bridge(toolbox=Toolbox(analyze), mind=mind) as bridge:
        run = await bridge.solve("Judge each.", context=STATES, output_schema=schema)
        expected = {
            name: "positive" if "wonderful" in text else "negative" for name, text in TEXTS.items()
        }
        assert await run.result() == expected
        assert run.state == {
            name: {"text": text, "sentiment": expected[name]} for name, text in TEXTS.items()
        }

    assert len(mind.requests) == 1
    assert all(name in mind.read(0) and text in mind.read(0) for name, text in TEXTS.items())


async def test_a_tool_knows_nothing_of_instances_and_meta_properties_begin_with_an_underscore() -> (
    None
):
    mind = Prepared({"calls": [], "output": "none"}, {"calls": [], "output": "none"})
    async with Bridge(toolbox=Toolbox(analyze), mind=mind) as bridge:
        for context in (STATES[:1], STATES):
            run = await bridge.solve("Judge.", context=context, tools=["analyze"])
            assert await run.result() == "none"

    alone, together = (_properties(request.schema) for request in mind.requests)
    assert [name for name in alone if not name.startswith("_")] == ["text"]
    assert [name for name in together if not name.startswith("_")] == ["text"]
    assert alone["text"] == together["text"]
    assert "_instance" in together


def _properties(schema: JSONObject) -> dict[str, Any]:
    properties: Any = schema["properties"]
    return properties["calls"]["items"]["anyOf"][0]["properties"]


async def test_a_plan_is_made_before_it_runs_refined_and_followed_for_each_instance() -> None:
    first: JSONObject = {
        "calls": [{"_tool": "analyze", "text": "†state.txt", "_outputPath": "sentiment"}]
    }
    async with Bridge(toolbox=Toolbox(analyze)) as bridge:
        # The rehearsal reports the fault without running anything, and the corrected plan passes.
        with pytest.raises(PlanError, match="†state has no 'txt'"):
            await bridge.dry_run({**first, "instances": {"a": {"text": "wonderful"}}})

        rehearsed = await bridge.dry_run({**PLAN, "instances": {"a": {"text": "wonderful"}}})
        assert "†state.text" in json.dumps(rehearsed, ensure_ascii=False)
        ran = [
            await bridge.run_plan(
                read_plan({**PLAN, "instances": {name: {"text": TEXTS[name]} for name in TEXTS}})
            )
            for _ in range(2)
        ]
        for run in ran:
            assert await run.wait(30) == "done"

        # The same plan over the same states always gives the same result.
        assert ran[0].state == ran[1].state

    mind = Prepared({"calls": [aimed("i0")], "output": None}, {"calls": [], "output": "done"})
    async with Bridge(toolbox=Toolbox(analyze), mind=mind) as bridge:
        context: list[JSON] = [*STATES[:2], {"type": "plan", "plan": PLAN}]
        run = await bridge.solve("Judge each.", context=context)
        assert await run.result() == "done"

    assert '"†state.text"' in mind.read(0)
    # The state of an instance says how far it is in the plan.
    assert "done in 1 of 2 instances, not in i1" in mind.read(1)


INSTANCES = {"①": {"text": "one two"}, "②": {"text": "one"}}


async def test_over_mcp_one_plan_writes_into_each_state(tmp_path: Path) -> None:
    calls = [{"_tool": "count_words", "text": "†state.text", "_outputPath": "words"}]
    async with over_stdio(configured(tmp_path), "auto") as client:
        done = await call(
            client, "run_plan", calls=calls, instances=INSTANCES, output="†state.words.words"
        )
        assert done["output"] == {"①": 2, "②": 1}
        state = await call(client, "check_run", run=done["run"], paths=["†①.state.words"])
        assert '"words": 2' in json.dumps(state, ensure_ascii=False)


def test_on_the_command_line_one_plan_writes_into_each_state(
    ideabridge: Run, project: Path
) -> None:
    plan: JSONObject = {
        "instances": {"①": {"names": ["Ada"]}, "②": {"names": ["Ada", "Grace"]}},
        "calls": [{"_tool": "count", "items": "†state.names", "_outputPath": "n"}],
        "output": "†state.n",
    }
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    done = ideabridge("run", "plan.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == {"①": 1, "②": 2}
