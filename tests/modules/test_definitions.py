"""Definitions of tools that are odd: the tools stay, with what each was sent as in its digest."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.modules.listing import Listing, make_listing
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.repairs import Repairs
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode
from ideabridge.tools.rename import rename_meta_parameters
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool, ToolChangedError
from tests.modules.conftest import configure
from tests.tools.schemas import parameters, places, replaced

VERSIONS = ["2025-11-25", "2026-07-28"]
TEXT: JSONObject = {"type": "string"}
EMPTY: list[JSON] = []
ODD: list[JSON] = [
    *(None, True, False, 5, "x", EMPTY, {"type": "dict"}, {"type": "array"}, {"type": None}),
    {"type": "object", "properties": None},
    {"type": "object", "properties": EMPTY, "required": None},
    {"type": "object", "properties": {"a": {"type": "str"}}},
    {"type": "object", "properties": {"a": {"type": "int"}}},
    {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
    {"type": "object", "properties": {"a": {"pattern": "("}}},
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}},
    },
    {"type": "object", "title": None},
    {"type": "object", "description": "x" * 300_000},
    {"type": "object", "description": "y" * 300_000},
]
USUAL: JSONObject = {"type": "object"}


def configuration() -> ModuleConfiguration:
    return configure({"m": {"command": "x"}}).modules["m"]


CONFIGURATION = configuration()


def listed(tools: list[JSON], version: str = "2025-11-25") -> Listing:
    """The listing of a page as a server sent it, repaired as its connection does."""
    page: dict[str, Any] = {"tools": tools}
    if version == "2026-07-28":
        page |= {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

    repairs = Repairs(Oddities())
    repairs.sent(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))
    answer = repairs.repaired(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=page), version)
    assert isinstance(answer, types.JSONRPCResponse)
    return make_listing(
        "m", types.ListToolsResult.model_validate(answer.result).tools, CONFIGURATION
    )


def tool_of(schema: JSON, output: JSON = None, version: str = "2025-11-25") -> Tool:
    more: JSONObject = {} if output is None else {"outputSchema": output}
    return listed([{"name": "t", "inputSchema": schema, **more}], version).tools["t"]


def digest_before(schema: JSONObject, output: JSONObject | None = None) -> str:
    """The digest of a definition that was always accepted, made without what reads odd ones."""
    ours, renamed = rename_meta_parameters(schema)
    return Tool("t", parameters=ours, output=output, module="m", renamed=renamed).digest


@pytest.mark.parametrize("version", VERSIONS)
def test_every_tool_stays_whatever_its_schemas_are(version: str) -> None:
    entries: list[JSON] = [{"name": f"in_{n}", "inputSchema": odd} for n, odd in enumerate(ODD)]
    entries.extend(
        {"name": f"out_{n}", "inputSchema": USUAL, "outputSchema": odd} for n, odd in enumerate(ODD)
    )
    entries.append({"name": "missing"})
    listing = listed(entries, version)
    assert len(listing.tools) == len(entries)
    assert not any("left out" in note for note in listing.notes)
    for tool in listing.tools.values():
        Validator(tool.parameters, what="W").compile()
        assert tool.parameters["type"] == "object"
        if tool.output is not None:
            Validator(tool.output, what="W").compile()

    assert "tool 'missing' has no input schema, so it accepts any parameters" in listing.notes
    note = next(note for note in listing.notes if "'in_11'" in note)
    assert note.endswith(
        '(its server checks what ideabridge ignores): properties.a.type: found "str", read as '
        '"string"'
    )


def test_no_odd_definition_has_the_digest_of_another() -> None:
    tools = [tool_of(odd) for odd in ODD]
    # These are the tools as they are after reading.
    tools += [
        Tool("t", parameters=tool.parameters, output=tool.output, module="m") for tool in tools
    ]
    odd = [tool.digest for tool in tools if tool.sent_parameters]
    valid = {tool.digest for tool in tools if not tool.sent_parameters}
    assert len(set(odd)) == len(odd)
    assert not valid & set(odd)


def test_an_invalid_output_schema_was_never_a_part_of_the_digest() -> None:
    for odd in ODD:
        tool = tool_of(USUAL, odd) if odd is not None else tool_of(USUAL)
        if tool.sent_output is not None and not tool.sent_output.was_valid:
            assert tool.digest == tool_of(USUAL).digest


def test_a_definition_that_was_accepted_keeps_its_digest_when_it_is_converted() -> None:
    draft_4: JSONObject = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "https://example.com/t.json",
        "type": "object",
        "properties": {"_id": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}},
        "required": ["_id"],
    }
    tool = tool_of(draft_4)
    (ours,) = tool.renamed
    assert tool.parameters["properties"] == {ours: {"type": "integer", "exclusiveMinimum": 1}}
    assert tool.parameters["required"] == [ours]
    assert tool.digest == digest_before(draft_4)
    items: JSONObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "items": [TEXT], "additionalItems": False}},
    }
    assert tool_of(items, items).digest == digest_before(items, items)
    assert tool_of({"properties": {"a": TEXT}}).digest == digest_before(
        {"type": "object", "properties": {"a": TEXT}}
    )


@settings(max_examples=30)
@given(parameters, parameters)
def test_a_valid_definition_keeps_its_digest(
    pair: tuple[JSONObject, JSONObject], output: tuple[JSONObject, JSON]
) -> None:
    tool = tool_of(pair[0], output[0], "2026-07-28")
    assert tool.digest == digest_before(pair[0], tool.wrapper or output[0])
    assert tool.sent_parameters is None
    assert tool.sent_output is None


JUNK: st.SearchStrategy[JSON] = st.sampled_from(
    [None, 5, "x", "str", EMPTY, {"type": "strange"}, {"pattern": "("}]
)


@settings(max_examples=40)
@given(parameters, st.data())
def test_a_damaged_definition_is_another_tool_also_after_it_was_stored(
    pair: tuple[JSONObject, JSONObject], data: st.DataObject
) -> None:
    valid = tool_of(pair[0])
    place = data.draw(st.sampled_from(places(pair[0])))
    sent = replaced(pair[0], place, data.draw(JUNK))
    tool = tool_of(sent)
    stored = Tool.from_json(decode(encode(tool.to_json())))  # pyright: ignore[reportArgumentType]
    assert stored == tool
    assert stored.digest == tool.digest
    assert stored.prose_digest == tool.prose_digest
    if tool.sent_parameters is not None and not tool.sent_parameters.was_valid:
        assert tool.digest != valid.digest
        assert tool.digest != tool_of(tool.parameters).digest
        with pytest.raises(ToolChangedError, match="AsSent"):
            tool.expect_same(valid)


def test_hints_are_neither_lost_nor_won_by_a_schema() -> None:
    hints: JSONObject = {"readOnlyHint": True, "destructiveHint": False}
    odd = listed([{"name": "t", "inputSchema": {"type": "dict"}, "annotations": hints}]).tools["t"]
    assert odd.annotations.to_json() == hints
    within = tool_of(
        {"type": "dict", "annotations": hints, "readOnlyHint": True, "x": {"readOnlyHint": True}}
    )
    assert within.annotations.to_json() == {}


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
def test_only_a_name_that_cannot_be_used_leaves_a_tool_out(name: str) -> None:
    listing = listed([{"name": name, "inputSchema": USUAL}, {"name": "good", "inputSchema": USUAL}])
    assert list(listing.tools) == ["good"]
    assert any(
        "its name is empty, has more than 256 characters or is not printable" in note
        for note in listing.notes
    )


def test_several_tools_with_one_id_have_their_own_definitions() -> None:
    def of(kind: str) -> JSONObject:
        return {
            "$id": "https://example.com/input.json",
            "type": "object",
            "properties": {"a": {"$ref": "https://example.com/input.json#/$defs/A"}},
            "$defs": {"A": {"type": kind}},
        }

    tools = listed(
        [{"name": kind, "inputSchema": of(kind)} for kind in ("string", "integer")]
    ).tools
    assert Validator(tools["string"].parameters, what="W").is_valid({"a": "x"})
    assert Validator(tools["integer"].parameters, what="W").is_valid({"a": 5})
    assert not Validator(tools["integer"].parameters, what="W").is_valid({"a": "x"})


def test_no_server_can_pretend_that_it_sent_something_else() -> None:
    """The schemas travel through the SDK's models in a keyword that no server knows."""
    tool = tool_of({"type": "object", "as-sent": {"type": "object", "properties": {"a": TEXT}}})
    assert tool.sent_parameters is None
    assert "properties" not in tool.parameters


def test_thousands_of_hostile_schemas_take_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ideabridge.bridge.modules.listing.MAX_REPAIR_SECONDS", 0.0)
    entries: list[JSON] = [
        {"name": f"t{n}", "inputSchema": {"type": "dict", "properties": {"a": TEXT}}}
        for n in (1, 2)
    ]
    listing = listed(entries)
    assert listing.tools["t1"].parameters == {"type": "object"}
    assert "not checked: too much of this list has to be repaired" in listing.notes[0]
    # The digest does not depend on how much time was left.
    monkeypatch.undo()
    assert listing.tools["t1"].digest == listed(entries).tools["t1"].digest


def test_a_result_that_its_protocol_version_does_not_have_is_not_checked() -> None:
    array: JSONObject = {"type": "array", "items": TEXT}
    assert tool_of(USUAL, array, "2026-07-28").output == array
    old = tool_of(USUAL, array)
    assert old.output is None
    assert old.sent_output is not None
    # Such a schema was never used, so it is not part of the definition that plans have pinned.
    assert old.digest == tool_of(USUAL).digest
