"""What an answer assumed: its place in the text, in structured content that satisfies the output
schema, in `_meta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.store.idea import Publication
from ideabridge.server.answers import ToolAnswer, value_answer
from ideabridge.server.assumed import may_assume, reporting_output, with_report
from ideabridge.server.served_tools import published_description
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import Validator

from .assuming import ADDING, TOTAL, publish
from .assuming import ASSUMED as ASSUMED_LINE
from .sampled import Model, said
from .serving import ERAS, all_tools, configured, over_stdio, structured, text

COUNT: JSONObject = {"count": {"type": "integer"}}
ASSUMED: JSONObject = {
    "at": "calls.0.limit",
    "taken": 5,
    "from": "†input.n",
    "instead": [{"value": 7, "from": "always 7"}],
    "why": "its explanations differ",
}
NOTE: JSONObject = {"at": "†input.n", "what": "zero, 0, which no earlier run had"}
LINE = "calls.0.limit is 5 (†input.n); it could also be 7 (always 7): its explanations differ"


def reported(
    result: ToolAnswer, assumed: list[JSON], noted: list[JSON], approved: Sequence[JSON] = ()
) -> ToolAnswer:
    return with_report(result, assumed=assumed, approved=approved, noted=noted)


def published(output: JSONObject | None, gave: JSON = None, **more: Any) -> Publication:
    plan: JSONObject = {
        "calls": [],
        "output": None,
        "explained": [{"at": ["output"], "by": [{"constant": 1}]}],
    }
    fields: dict[str, Any] = {
        "plan": plan,
        "answer": "auto",
        "recorded": {"input": {}, "output": gave},
        **more,
    }
    return Publication(
        name="n",
        version=1,
        idea_id="i",
        description="D.",
        input_schema=None,
        output_schema=output,
        annotations={},
        **fields,
        owner=None,
        time="",
        live=True,
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("output", "recorded", "value", "wrapped"),
    [
        (
            {"type": "object", "properties": COUNT, "additionalProperties": False},
            {"count": 1},
            {"count": 2},
            False,
        ),
        (
            {"type": "object", "properties": COUNT, "required": ["count"]},
            {"count": 1},
            {"count": 2},
            False,
        ),
        ({"type": "object"}, {}, {"x": [1]}, False),
        # An open object has a member with this name now, although it had none in its recorded run.
        ({"type": "object"}, {}, {"assumed": 4, "notes": {}, "assumed_": 1}, False),
        ({"type": "object"}, {"assumed": 1}, {"assumed": 2}, True),
        ({"type": "object", "properties": {"assumed": {}}}, {}, {"assumed": True}, True),
        ({"type": "object", "properties": {"notes": {}}}, {}, {"notes": True}, False),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {},
            {"a": 1, "assumed": 2},
            True,
        ),
        (
            {"type": "object", "anyOf": [{"additionalProperties": False}, {"required": ["z"]}]},
            {},
            {},
            True,
        ),
        ({"type": "object", "maxProperties": 1}, {}, {"a": 1}, True),
        ({"type": "integer"}, 1, 2, True),
        ({"type": ["object", "null"]}, None, {"assumed": 3}, True),
        (None, None, {"a": 1}, False),
        (None, None, {"assumed": 1}, False),
    ],
)
async def test_every_place_has_the_assumptions_and_the_schema_admits_them(
    output: JSONObject | None, recorded: JSON, value: JSON, wrapped: bool
) -> None:
    schema, wraps = reporting_output(published(output, recorded))
    plain = await value_answer(value, wrapped=wraps)
    told = reported(plain, [ASSUMED], [NOTE])
    assert wraps == wrapped
    # An answer without assumptions is the same as ever.
    assert reported(plain, [], []) is plain
    members = dict(told["structuredContent"])
    if schema is not None:
        for one in (plain, told):
            Validator(schema, what="structured content").check(one["structuredContent"])
        assert "assumed" in (schema["properties"] if isinstance(schema["properties"], dict) else ())

    own = plain["structuredContent"]
    assert {name: members.pop(name) for name in own} == own
    assert list(members.values()) == [[LINE]]
    assert all(name.startswith("assumed") for name in members)
    text = "\n".join(block["text"] for block in told["content"])
    assert f"- {LINE}" in text
    assert "zero" not in text
    assert told["_meta"] == {"ideabridge/assumed": [ASSUMED], "ideabridge/notes": [NOTE]}
    noted = reported(plain, [], [NOTE])
    assert noted == {**plain, "_meta": {"ideabridge/notes": [NOTE]}}


@pytest.mark.anyio
async def test_many_assumptions_take_little_of_an_answer() -> None:
    many: list[JSON] = [{**ASSUMED, "at": f"calls.{place}.limit"} for place in range(500)]
    told = reported(await value_answer({"a": 1}, wrapped=False), [ASSUMED, *many], [])
    [_, block] = told["content"]
    assert len(block["text"]) < 2200
    assert "more" in told["structuredContent"]["assumed"][-1]
    assert len(told["_meta"]["ideabridge/assumed"]) > 100


def test_an_error_keeps_its_structured_content() -> None:
    failed: dict[str, Any] = {"content": [], "structuredContent": {"run": "r"}, "isError": True}
    told = reported(failed, [ASSUMED], [])
    assert told["structuredContent"] == {"run": "r"}
    assert LINE in told["content"][0]["text"]


@pytest.mark.parametrize(
    ("more", "may"),
    [
        ({}, True),
        ({"plan": {"calls": [], "seen": {"†input.n": {"null": {}}}}}, True),
        ({"plan": {"calls": [{"_tool": "x", "_module": "idea:x"}]}}, True),
        ({"plan": None, "recorded": {"solve": {"tools": [["idea:x", "x"]]}}}, True),
        ({"plan": {"calls": [{"_tool": "x", "_module": "git"}], "explained": []}}, False),
        ({"plan": None, "recorded": {"solve": {"tools": [["git", "git_log"]]}}}, False),
        ({"answer": "recorded"}, False),
    ],
)
def test_only_a_tool_that_can_assume_declares_it(more: dict[str, Any], may: bool) -> None:
    publication = published({"type": "object"}, **more)
    schema, wrapped = reporting_output(publication)
    assert may_assume(publication) == may
    assert (schema == {"type": "object"}) == (not may)
    assert not wrapped


def test_the_description_says_what_the_runs_leave_open() -> None:
    assert published_description(published(None)) == "D."
    assert published_description(published(None, plan={"calls": []})) == "D."


# -- over transports -------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_published_tool_says_what_it_assumed(era: str, tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    publish(store, "sums", ADDING, TOTAL)
    publish(store, "number", {**ADDING, "output": "†results.0"}, {"type": "integer"})
    outer: JSONObject = {"_tool": "sums", "_module": "idea:sums", "n": "†input.n", "m": "†input.m"}
    publish(store, "twice", {"calls": [outer], "output": "†results.0.total"})
    async with over_stdio(configured(tmp_path), era) as client:
        listed = await all_tools(client)
        assert "May assume b of add (made from 1 run)." in (listed["sums"].description or "")
        # The SDK checks structured content against the output schema.
        determined = await client.call_tool("sums", {"n": 2, "m": 5})
        assert (structured(determined), text(determined)) == ({"total": 7}, '{"total":7}')
        assert determined.meta is not None
        assert "ideabridge/assumed" not in determined.meta
        assumed = ASSUMED_LINE.format(7)
        told = await client.call_tool("sums", {"n": 2, "m": 7})
        assert structured(told) == {"total": 9, "assumed": [assumed]}
        assert f"- {assumed}" in text(told)
        assert told.meta is not None
        assert told.meta["ideabridge/assumed"][0]["instead"] == [{"value": 5, "from": "always 5"}]
        wrapped = await client.call_tool("number", {"n": -1, "m": 7})
        assert structured(wrapped) == {
            "result": 6,
            "assumed": [assumed],
        }
        assert wrapped.meta is not None
        assert [one["what"] for one in wrapped.meta["ideabridge/notes"]] == [
            "a negative number, -1, which no earlier run had"
        ]
        # What an inner idea assumed is added to the outer answer, and shown with the run.
        room = await client.call_tool("twice", {"n": 2, "m": 7})
        assert structured(room) == {"result": 9, "assumed": [f"calls.0: {assumed}"]}
        assert room.meta is not None
        checked = await client.call_tool("check_run", {"run": room.meta["ideabridge/run"]})
        assert structured(checked)["assumed"][0]["taken"] == 7
        assert f"assumed:\n- calls.0: {assumed}" in text(checked)
        plan = await client.call_tool(
            "run_plan", {"calls": [{**outer, "n": 2, "m": 7}], "output": "†results.0"}
        )
        assert structured(plan)["output"] == {"total": 9}
        assert f"- calls.0: {assumed}" in text(plan)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_clients_model_goes_on_where_the_plan_has_no_value(
    era: str, tmp_path: Path
) -> None:
    plan: JSONObject = {**ADDING, "explained": [{"at": ["calls", "0", "b"], "by": ["†input.m"]}]}
    guide: JSONObject = {
        "context": ["Add the numbers; 100 if there is one only."],
        "tools": [[None, "add"]],
        "output_schema": TOTAL,
        "plan": {"calls": ADDING["calls"], "output": ADDING["output"]},
    }
    publish(
        tmp_path / "ideas.sqlite",
        "sums",
        plan,
        TOTAL,
        recorded={"input": {}, "output": None, "solve": guide},
    )
    model = Model(
        {"calls": [{"_tool": "add", "a": "†input.n", "b": 100}], "output": {"total": "†results.1"}}
    )
    async with over_stdio(configured(tmp_path), era, **model.keys) as client:
        for arguments, total, way in (({"n": 2, "m": 7}, 9, "plan"), ({"n": 2}, 102, "solve")):
            result = await client.call_tool("sums", arguments)
            assert structured(result) == {"total": total}, text(result)
            assert result.meta is not None
            assert result.meta["ideabridge/answer"] == way

    [asked] = model.asked
    assert "calls.0.b has no value for this data" in said(asked)
