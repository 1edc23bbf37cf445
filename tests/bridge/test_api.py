"""What an application developer holds in hand: dry runs, drawings, events, typed results, the façade for scripts."""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge, PlanError, read_plan
from ideabridge.bridge.plan import Plan
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON

pytestmark = pytest.mark.anyio


@tool(destructive=False)
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


# -- dry runs and drawings ---------------------------------------------------------------------------------------


def plan_without_input() -> Plan:
    return read_plan(
        {
            "calls": [
                {"_tool": "count", "items": "†input.names", "_outputPath": "n", "_imports": ["input.extra"]},
                {"_tool": "send", "to": "†state.n || †input.to", "_each": "†input.rows", "_outputPath": 'a["<b>|#"]'},
            ],
            "output": ["†input.names.0", "†input"],
        }
    )


async def test_a_dry_run_tells_the_inputs_that_are_missing() -> None:
    async with Bridge(toolbox=Toolbox(send)) as bridge:
        told = await bridge.dry_run(plan_without_input())
        # †input.to has another operand, and †input alone is there, empty.
        assert told["missing_inputs"] == ["†input.names", "†input.rows", "†input.extra", "†input.names.0"]
        with pytest.raises(PlanError, match=r"nothing supplies †input.names"):
            await bridge.run_plan(plan_without_input())


async def test_a_dry_run_refuses_what_was_given_and_does_not_fit() -> None:
    async with Bridge() as bridge:
        plans: list[tuple[JSON, str]] = [
            ({"input": {"a": 1}, "calls": [{"_tool": "count", "items": "†input.b"}]}, "†input.b"),
            ({"calls": [{"_tool": "cuont", "items": "†input.b"}]}, "Did you mean 'count'"),
            ({"calls": [{"_tool": "count", "items": "†state.b", "_each": "†input.x"}]}, "†state.b"),
        ]
        for raw, fault in plans:
            with pytest.raises(PlanError, match=fault):
                await bridge.dry_run(read_plan(raw))


async def test_drawings_mark_what_changes_things_and_what_is_missing() -> None:
    async with Bridge(toolbox=Toolbox(send)) as bridge:
        text = await bridge.draw(plan_without_input(), "text")
        assert "1 send for each" in text
        assert text.count("! not read-only") == 1
        assert "missing inputs: †input.names, †input.rows" in text
        mermaid = await bridge.draw(plan_without_input())
        assert mermaid.startswith("flowchart TD\n")
        assert "  class c1 changing\n" in mermaid
        assert '  c0 -->|"†state.n"| c1\n' in mermaid
        # Nothing that Mermaid or HTML would read as its own stands in a label.
        assert "#60;b#62;#124;#35;" in mermaid
        with pytest.raises(PlanError, match="expected 'mermaid' or 'text', found 'svg'"):
            await bridge.draw(plan_without_input(), "svg")


async def test_calls_that_wait_for_each_other_by_later_alternatives_are_drawn_last() -> None:
    plan = read_plan(
        {
            "input": {"a": []},
            "calls": [
                {"_tool": "count", "items": "†state.none || †state.y || †input.a", "_outputPath": "x"},
                {"_tool": "count", "items": "†state.none || †state.x || †input.a", "_outputPath": "y || none"},
            ],
        }
    )
    async with Bridge() as bridge:
        told = await bridge.dry_run(plan)
        assert told["layers"] == [[0, 1]]


async def test_a_drawing_holds_every_instance() -> None:
    plan = read_plan(
        {"instances": {"①": {"n": []}, "②": {"n": []}}, "calls": [{"_tool": "count", "items": "†state.n"}]}
    )
    async with Bridge() as bridge:
        text = await bridge.draw(plan, "text")
        assert "0 (①) count" in text
        assert "0 (②) count" in text
