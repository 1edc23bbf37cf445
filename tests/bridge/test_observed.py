"""Shapes of results: learned from runs, by owner, bounded, and without anything of the values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, read_plan
from ideabridge.bridge.runs import observed
from ideabridge.bridge.runs.observed import merged, observed_shape
from ideabridge.bridge.store.errors import StoreFullError
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Activity, ActivityContext, Annotations, Tool
from ideabridge.tools.toolbox import Toolbox

pytestmark = pytest.mark.anyio

LEAVES: st.SearchStrategy[JSON] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=60,
)
ISSUES: JSON = [
    {"number": 7, "title": "tr0ub4dor", "labels": ["bug"], "closed": None},
    {"number": 8, "title": "another", "labels": [], "closed": "2026-11-22"},
]
ISSUE: JSONObject = {
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "closed": {"type": ["null", "string"]},
    },
}


@given(VALUES)
def test_a_value_has_its_shape(value: JSON) -> None:
    shape = observed_shape(value)
    assert len(encode(shape)) <= 1500
    if not isinstance(value, list | dict):
        Validator(shape, what="shape").check(value)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_merging_is_settled(values: list[JSON]) -> None:
    shapes: list[JSON] = [observed_shape(value) for value in values]
    whole = merged(shapes)
    Validator(whole, what="shape")
    assert merged([whole, *shapes]) == whole


def test_shapes_tell_types_and_names() -> None:
    assert observed_shape(ISSUES) == {"type": "array", "items": ISSUE}
    told = observed_shape(json.dumps({"issues": ISSUES}))
    assert told["contentMediaType"] == "application/json"
    assert told["contentSchema"] == {
        "type": "object",
        "properties": {"issues": {"type": "array", "items": ISSUE}},
    }
    assert observed_shape("{not JSON") == {"type": "string"}
    assert merged([observed_shape("plain"), told]) == {"type": "string"}
    assert merged([observed_shape(1), observed_shape(1.5), observed_shape(None)]) == {
        "type": ["number", "null"]
    }


@pytest.mark.parametrize(
    "keys",
    [
        ["a@example.com", "b@example.com"],
        ["2026-11-22", "2026-11-23"],
        ["f00ba47", "1e9fc3d"],
        ["user_48151623", "user_42"],
        ["What is it?"],
        [f"word{number}" for number in range(21)],
        ["x" * 41],
    ],
)
def test_names_that_look_like_data_are_not_told(keys: list[str]) -> None:
    value: JSONObject = {"by": {key: {"count": 1} for key in keys}}
    counted: JSONObject = {"type": "object", "properties": {"count": {"type": "integer"}}}
    by: JSONObject = {"type": "object", "additionalProperties": counted}
    assert observed_shape(value) == {"type": "object", "properties": {"by": by}}


def test_huge_and_deep_results_have_small_shapes() -> None:
    wide: JSON = {f"name_{chr(97 + number)}": None for number in range(20)}
    for _ in range(4):
        wide = {f"name_{chr(97 + number)}": wide for number in range(20)}

    deep: JSON = 1
    for _ in range(90):
        deep = {"inner": [deep]}

    numbers: JSON = {str(number): number for number in range(100_000)}
    many: list[JSON] = [wide] * 100_000
    values: list[JSON] = [wide, deep, many, "[" * 100_000, "[" * 30_000, numbers]
    for value in values:
        assert len(encode(observed_shape(value))) <= 1500


class World:
    """A tool that declares no output, and what it gives next."""

    def __init__(self) -> None:
        self.value: JSON = None
        parameters: JSONObject = {"type": "object", "properties": {}}
        read_only = Annotations(read_only=True)
        self.toolbox = Toolbox(
            Tool("ask_it", "Ask.", parameters, annotations=read_only),
            Tool("told", "Tell.", parameters, {"type": "integer"}, annotations=read_only),
            Activity("ask_it", self.answer),
            Activity("told", self.answer),
        )

    async def answer(self, arguments: JSONObject, context: ActivityContext) -> JSON:
        return self.value

    async def gives(
        self, bridge: Bridge, value: JSON, caller: str = "local", tool: str = "ask_it"
    ) -> None:
        """Run a plan in which the tool gives a value."""
        self.value = value
        calls: list[JSON] = [{"_tool": tool}]
        run = await bridge.run_plan(read_plan({"calls": calls}), caller=caller)
        assert await run.wait(30) == "done"


def seen(bridge: Bridge, caller: str = "local", name: str = "ask_it") -> JSONObject | None:
    tool = next(tool for tool in bridge.tools() if tool.name == name)
    return bridge.observed(tool, caller=caller)


async def test_each_owner_learns_from_its_own_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "INSPECTION_SECONDS", 0.0)
    world = World()
    store = tmp_path / "store.sqlite"
    async with Bridge(toolbox=world.toolbox, store=store) as bridge:
        assert seen(bridge) is None
        await world.gives(bridge, ISSUES)
        await world.gives(bridge, {"private": 1}, caller="another")
        await world.gives(bridge, 7, tool="told")
        assert seen(bridge) == observed_shape(ISSUES)
        assert seen(bridge, "another") == observed_shape({"private": 1})
        assert seen(bridge, "nobody") is None
        assert seen(bridge, name="told") is None
        # The last few shapes are merged.
        await world.gives(bridge, [])
        await world.gives(bridge, None)
        assert seen(bridge) == {"type": ["null", "array"], "items": ISSUE}

    # The shape is kept after a restart, but not for a tool with another definition.
    async with Bridge(toolbox=world.toolbox, store=store) as bridge:
        assert seen(bridge) == {"type": ["null", "array"], "items": ISSUE}

    world.toolbox.add(Tool("ask_it", "Ask another question."))
    async with Bridge(toolbox=world.toolbox, store=store) as bridge:
        assert seen(bridge) is None

    with sqlite3.connect(store) as connection:
        kept = str(connection.execute("SELECT * FROM tool_memory WHERE kind = 'shapes'").fetchall())

    connection.close()
    assert "title" in kept
    assert "tr0ub4dor" not in kept


async def test_of_many_calls_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[JSON] = []

    def look(value: JSON) -> JSONObject:
        looked.append(value)
        return observed_shape(value)

    monkeypatch.setattr(observed, "observed_shape", look)
    monkeypatch.setattr(observed, "INSPECTION_SECONDS", 60.0)
    world = World()
    async with Bridge(toolbox=world.toolbox) as bridge:
        world.value = 1
        calls: list[JSON] = [{"_tool": "ask_it"} for _ in range(50)]
        run = await bridge.run_plan(read_plan({"calls": calls}))
        assert await run.wait(30) == "done"

    assert looked == [1]


async def test_a_full_store_does_not_hinder_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    async with Bridge(toolbox=world.toolbox) as bridge:

        def full(*_: object) -> None:
            raise StoreFullError("no space is left")

        monkeypatch.setattr(bridge.store.tool_memory, "keep_shapes", full)
        await world.gives(bridge, ISSUES)
        assert seen(bridge) is None
