"""`_activity`: other code than the tool's own runs under the rules for that code, never under
those of the tool.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.tools import JSON, Activity, ActivityContext, JSONObject, Toolbox, tool

pytestmark = pytest.mark.anyio

DELETED: list[str] = []


@tool(read_only=True)
def show(path: str) -> str:
    """Show a file."""
    return f"shown {path}"


@tool(read_only=True)
def peek(path: str) -> str:
    """Look at the beginning of a file."""
    return f"seen {path}"


@tool(destructive=True)
def delete(path: str) -> str:
    """Delete a file."""
    DELETED.append(path)
    return "gone"


async def wipe(parameters: JSONObject, context: ActivityContext) -> JSON:
    DELETED.append("all")
    return "wiped"


BOX = Toolbox(show, peek, delete, Activity("wipe", wipe))
ASKS: Any = {"approval": {"default": "read_only"}}
BY_NAME: Any = {"approval": {"default": "read_only", "rules": [{"then": "allow", "tool": "show"}]}}
DENIED: Any = {"approval": {"default": "allow", "rules": [{"then": "deny", "tool": "delete"}]}}


def other(activity: str) -> JSONObject:
    return {"_tool": "show", "path": "a", "_activity": activity}


@pytest.fixture(autouse=True)
def nothing_is_deleted() -> None:
    DELETED.clear()


@pytest.mark.parametrize("configuration", [ASKS, BY_NAME])
@pytest.mark.parametrize("activity", ["delete", "wipe"])
async def test_a_person_is_asked_before_other_code_runs_under_the_name_of_a_reader(
    configuration: Any, activity: str
) -> None:
    async with Bridge(
        Configuration.model_validate_json(json.dumps(configuration)), toolbox=BOX
    ) as bridge:
        plan = await bridge.run_plan({"calls": [other(activity)]})
        assert await plan.wait(30) == "needs_approval"
        assert f"'{activity}'" in str(plan.answer()["approvals"])
        # A task is offered the tool without the code, and naming the code does not get around that.
        run = await bridge.solve("x", tools=["show"])
        run.submit(0, {"calls": [other(activity)]})
        assert await run.wait(30) == "needs_approval"
        reads = await bridge.run_plan({"calls": [other("peek")]})
        assert (await reads.wait(30), reads.value("†results.0")) == ("done", "seen a")
        assert DELETED == []


async def test_a_rule_that_denies_the_code_holds_under_every_name() -> None:
    async with Bridge(Configuration.model_validate_json(json.dumps(DENIED)), toolbox=BOX) as bridge:
        run = await bridge.run_plan({"calls": [other("delete")]})
        await run.wait(30)
        assert "denied by policy" in str(run.errors())
        dry = await bridge.dry_run({"calls": [other("delete"), other("peek")]})
        assert [one["read_only"] for one in dry["calls"]] == [False, True]
        assert DELETED == []


async def test_a_tool_of_a_context_runs_under_the_rules_for_the_code_that_it_names() -> None:
    rules: Any = {
        "approval": {"default": "read_only", "rules": [{"then": "allow", "tool": "tidy"}]}
    }
    definition: JSONObject = {
        "name": "tidy",
        "parameters": {"properties": {"path": {"type": "string"}}},
    }
    async with Bridge(Configuration.model_validate_json(json.dumps(rules)), toolbox=BOX) as bridge:
        for activity, status in (
            ("delete", "needs_approval"),
            ("wipe", "needs_approval"),
            ("peek", "needs_solution"),
        ):
            context: list[JSON] = [{"type": "tool", "tool": {**definition, "_activity": activity}}]
            run = await bridge.solve("x", context=context)
            run.submit(0, {"calls": [{"_tool": "tidy", "path": "a"}]})
            assert await run.wait(30) == status

        assert run.value("†results.0") == "seen a"
        assert DELETED == []
