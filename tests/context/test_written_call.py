"""A call as written says which tool it names, whatever else stands in it."""

from __future__ import annotations

import pytest

from ideabridge.bridge.context.written_call import WrittenCall, tool_names, written_calls
from ideabridge.tools.encoding import JSON


def test_the_members_that_name_the_code_are_read() -> None:
    call: dict[str, JSON] = {"_tool": "log", "_module": "git", "_activity": "old", "n": 3}
    assert WrittenCall.of(call) == WrittenCall("log", "git", "old", members=call)
    assert WrittenCall.of({"_tool": "sum", "_output": None}).has_result


@pytest.mark.parametrize("call", [None, "log", 3, ["log"], {}, {"_tool": 3}, {"_tool": None}])
def test_what_is_no_call_names_no_tool(call: JSON) -> None:
    assert WrittenCall.of(call).tool == ""


@pytest.mark.parametrize("module", [None, 3, ["git"]])
def test_a_module_that_is_no_name_counts_as_absent(module: JSON) -> None:
    assert WrittenCall.of({"_tool": "log", "_module": module}).module is None


def test_another_tool_takes_the_place_of_the_named_one() -> None:
    call = WrittenCall.of({"n": 3, "_tool": "log", "_module": "git", "_id": "a"})
    assert call.with_tool(None, "log") == {"_tool": "log", "n": 3, "_id": "a"}
    moved = call.with_tool("hg", "show")
    assert list(moved.items()) == [("_tool", "show"), ("_module", "hg"), ("n", 3), ("_id", "a")]


def test_calls_keep_their_places_and_tools_are_named_once() -> None:
    calls: list[JSON] = [{"_tool": "b"}, "odd", {"_tool": "a"}, {"_tool": "b"}]
    assert [call.tool for call in written_calls(calls)] == ["b", "", "a", "b"]
    assert tool_names(calls) == ["b", "a"]
