"""Results, notifications and requests of modules with odd members: what is left of
them, and the notes.
"""

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import (
    CallToolResult,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    methods,
)

from ideabridge.bridge.modules.members import Unusable
from ideabridge.bridge.modules.messages import DeepResponse, MessageReader, OddResultError
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.repairs import (
    STRUCTURED,
    Repairs,
    hints_as_sent,
    repair_notification,
    repair_request,
    repair_result,
    schema_as_sent,
)

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
TEXT: dict[str, Any] = {"type": "text", "text": "hello"}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
CACHED: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
ICON: dict[str, Any] = {"src": "https://x.example/i.png", "sizes": ["any"], "mimeType": "image/png"}

TOOL: dict[str, Any] = {
    "name": "search",
    "title": "Search",
    "description": "Finds things",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "annotations": {
        "readOnlyHint": True,
        "destructiveHint": False,
        "openWorldHint": True,
        "title": "Search",
    },
    "icons": [ICON],
    "_meta": {"a": 1},
}
RESOURCE: dict[str, Any] = {
    "uri": "file:///a",
    "name": "a",
    "size": 5,
    "icons": [ICON],
    "annotations": {"priority": 0.5, "audience": ["user"]},
}
FORM: dict[str, Any] = {
    "message": "Who?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "title": "Name"}},
    },
}
BLOCKS: list[dict[str, Any]] = [
    TEXT,
    {"type": "image", "data": "AA==", "mimeType": "image/png", "annotations": {"priority": 1}},
    {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA=="}},
]
INFO: dict[str, Any] = {"name": "server", "version": "1", "icons": [ICON]}
CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": False},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
    "experimental": {"x": {"y": 1}},
}
PROMPT: dict[str, Any] = {
    "name": "p",
    "description": "d",
    "arguments": [{"name": "a", "required": True}],
    "icons": [],
}

RESULTS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "initialize",
        LEGACY,
        {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO},
    ),
    (
        "server/discover",
        MODERN,
        {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, **CACHED},
    ),
    ("ping", LEGACY, {"_meta": {"a": 1}}),
    *(
        sample
        for version, also in ((LEGACY, {}), (MODERN, CACHED))
        for sample in (
            (
                "tools/list",
                version,
                {"tools": [TOOL, {**TOOL, "name": "other"}], "nextCursor": "2", **also},
            ),
            (
                "resources/list",
                version,
                {"resources": [RESOURCE, {**RESOURCE, "uri": "file:///b"}], **also},
            ),
            (
                "resources/templates/list",
                version,
                {"resourceTemplates": [{"uriTemplate": "file:///{a}", "name": "t"}], **also},
            ),
            ("prompts/list", version, {"prompts": [PROMPT, {"name": "q"}], **also}),
            ("resources/read", version, {"contents": [{"uri": "file:///a", "text": "x"}], **also}),
        )
    ),
    *(
        sample
        for version, also in ((LEGACY, {}), (MODERN, {"resultType": "complete"}))
        for sample in (
            (
                "tools/call",
                version,
                {"content": BLOCKS, "structuredContent": {"n": 1}, "isError": False, **also},
            ),
            ("tools/call", version, {"content": [TEXT], "isError": True, **also}),
            (
                "prompts/get",
                version,
                {
                    "description": "d",
                    "messages": [{"role": "user", "content": TEXT} for _ in range(2)],
                    **also,
                },
            ),
            (
                "completion/complete",
                version,
                {"completion": {"values": ["a", "b"], "total": 2, "hasMore": False}, **also},
            ),
        )
    ),
    (
        "tools/call",
        MODERN,
        {
            "resultType": "input_required",
            "inputRequests": {
                "q": {"method": "elicitation/create", "params": {"mode": "form", **FORM}}
            },
            "requestState": "s",
        },
    ),
]
NAMES = [f"{method} {version} {index}" for index, (method, version, _) in enumerate(RESULTS)]


def repaired(method: str, result: Any, version: str = LEGACY, **params: Any) -> Any:
    return repair_result(method, version, result, Oddities(), params)


def parsed(method: str, version: str, result: dict[str, Any]) -> Any:
    """What the SDK reads; raises what it raises."""
    return methods.parse_server_result(method, version, result)


@pytest.mark.parametrize(("method", "version", "result"), RESULTS, ids=NAMES)
def test_a_well_formed_result_is_the_same_object_without_a_note(
    method: str, version: str, result: dict[str, Any]
) -> None:
    oddities = Oddities()
    assert repair_result(method, version, result, oddities) is result
    assert oddities.lines == []
    parsed(method, version, result)


# -- any member of any result ----------------------------------------------------------------------


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all members and items."""
    parts: Any = value
    for key, part in (
        parts.items()
        if isinstance(value, dict)
        else enumerate(parts)
        if isinstance(value, list)
        else ()
    ):
        yield (*place, key)
        yield from places(part, (*place, key))


ODD: list[Any] = [
    None,
    5,
    -1,
    1.5,
    "",
    "odd",
    True,
    False,
    [],
    {},
    [5],
    {"x": 5},
    ["odd", None],
    [[]],
    {"type": "odd"},
]
DROPPED = object()


def mutated(result: dict[str, Any], place: tuple[str | int, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(result)
    parent: Any = changed
    for key in place[:-1]:
        parent = parent[key]

    if odd is DROPPED:
        del parent[place[-1]]
    else:
        parent[place[-1]] = copy.deepcopy(odd)

    return changed


@pytest.mark.parametrize(("method", "version", "result"), RESULTS, ids=NAMES)
def test_any_one_odd_member_leaves_a_result_that_the_sdk_takes(
    method: str, version: str, result: dict[str, Any]
) -> None:
    for place in places(result):
        for odd in (*ODD, DROPPED):
            changed = mutated(result, place, odd)
            before = copy.deepcopy(changed)
            oddities = Oddities()
            fixed = repair_result(method, version, changed, oddities, {"uri": "file:///a"})
            where = f"{place} = {odd!r}"
            assert changed == before, where
            if isinstance(fixed, Unusable):
                assert "input" not in fixed.why.lower() or "inputRequests" in fixed.why, where
                assert oddities.lines or fixed.why, where
                assert method in {
                    "server/discover",
                    "tools/call",
                    "prompts/get",
                    "resources/read",
                }, (where, fixed)
                continue
            read = parsed(method, version, fixed)
            # Notes on schemas are made when the schemas are read.
            if fixed is not changed and "Schema" not in str(place):
                assert oddities.lines or version == LEGACY, where
            for line in oddities.lines:
                assert "validation" not in line
                assert "pydantic" not in line
            keeps_the_laws(method, changed, fixed, read, where)


@given(st.data())
@settings(max_examples=100)
def test_several_odd_members_leave_a_result_that_the_sdk_takes(data: st.DataObject) -> None:
    method, version, result = data.draw(st.sampled_from(RESULTS))
    changed = result
    for _ in range(data.draw(st.integers(1, 4))):
        all_places = list(places(changed))
        if not all_places:
            break
        changed = mutated(
            changed,
            data.draw(st.sampled_from(all_places)),
            data.draw(st.sampled_from([*ODD, DROPPED])),
        )

    fixed = repair_result(method, version, changed, Oddities(), {"uri": "file:///a"})
    if not isinstance(fixed, Unusable):
        keeps_the_laws(method, changed, fixed, parsed(method, version, fixed), changed)


def tools_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    tools: list[Any] = result["tools"] if isinstance(result.get("tools"), list) else []
    return [tool for tool in tools if isinstance(tool, dict)]


def keeps_the_laws(
    method: str, sent: dict[str, Any], fixed: dict[str, Any], read: Any, where: Any
) -> None:
    """A failure is no success, no hint is added, and nothing is renamed."""
    if isinstance(read, CallToolResult):
        failed = sent.get("isError")
        if failed not in (None, False, "", 0) or failed == "":
            assert read.is_error, where
        if read.structured_content is not None:
            assert read.structured_content == sent["structuredContent"], where

    if isinstance(read, InputRequiredResult):
        assert sent.get("requestState") == read.request_state, where

    if method == "tools/list":
        by_name = {
            tool["name"]: tool for tool in tools_of(sent) if isinstance(tool.get("name"), str)
        }
        for tool in tools_of(fixed):
            hints: dict[str, Any] = tool.get("annotations") or {}
            for name, hint in hints.items():
                assert hint == by_name[tool["name"]]["annotations"][name], where
                assert not name.endswith("Hint") or hint is None or isinstance(hint, bool), where


# -- calls -----------------------------------------------------------------------------------------

CONTENTS: list[tuple[Any, list[Any]]] = [
    (None, []),
    ("done", [{"type": "text", "text": "done"}]),
    (5, [{"type": "text", "text": "5"}]),
    (TEXT, [TEXT]),
    (["done", TEXT], [{"type": "text", "text": "done"}, TEXT]),
    ([{"type": "text", "text": 5}], [{"type": "text", "text": "5"}]),
    ([{"type": "text", "text": {"a": 1}}], [{"type": "text", "text": '{"a": 1}'}]),
    ([{"text": "done"}], [{"text": "done", "type": "text"}]),
    ([{"type": "text"}, TEXT], [{"type": "text", "text": '{"type": "text"}'}, TEXT]),
    (
        [{"type": "video", "data": "x"}],
        [{"type": "text", "text": '{"type": "video", "data": "x"}'}],
    ),
    (
        [{"type": "image", "data": "AA==", "mime_type": "image/png"}],
        [{"type": "image", "data": "AA==", "mime_type": "image/png", "mimeType": "image/png"}],
    ),
    (
        [{"type": "image", "data": "iVBORw0KGgo="}],
        [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}],
    ),
    (
        [{"type": "image", "data": "AAAA"}],
        [{"type": "text", "text": '{"type": "image", "data": "AAAA"}'}],
    ),
    (
        [{"data": "AA==", "mimeType": "audio/wav"}],
        [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}],
    ),
    (
        [{"type": "resource_link", "uri": "file:///a"}],
        [{"type": "resource_link", "uri": "file:///a", "name": "file:///a"}],
    ),
    (
        [
            {
                "type": "text",
                "text": "done",
                "annotations": {"priority": "high", "audience": ["user"]},
            }
        ],
        [{"type": "text", "text": "done", "annotations": {"audience": ["user"]}}],
    ),
]


@pytest.mark.parametrize(("content", "expected"), CONTENTS)
@pytest.mark.parametrize("is_error", [True, False])
def test_what_can_be_read_of_a_content_is_shown(
    content: Any, expected: list[Any], is_error: bool
) -> None:
    fixed = repaired("tools/call", {"content": content, "isError": is_error})
    assert fixed["content"] == expected
    assert parsed("tools/call", LEGACY, fixed).is_error is is_error


@pytest.mark.parametrize("odd", ["true", "error", "yes", "", "failed", 1, 2, [], {}, ["x"], 1.5])
@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_what_may_be_an_error_is_one(odd: Any, version: str) -> None:
    fixed = repaired("tools/call", {"content": [TEXT], "isError": odd}, version)
    assert parsed("tools/call", version, fixed).is_error


def test_an_error_of_another_name_is_one() -> None:
    assert repaired("tools/call", {"content": [TEXT], "is_error": True})["isError"] is True
    assert "isError" not in repaired("tools/call", {"content": [TEXT], "is_error": False})


def test_null_is_no_error() -> None:
    assert not parsed(
        "tools/call", LEGACY, repaired("tools/call", {"content": [TEXT], "isError": None})
    ).is_error


def test_a_result_that_says_something_else_is_an_error_with_its_words() -> None:
    fixed = repaired("tools/call", {"message": "no such city"})
    assert fixed["isError"] is True
    assert fixed["content"] == [{"type": "text", "text": '{"message": "no such city"}'}]
    assert repaired("tools/call", {}) == {"content": []}
    assert repaired("tools/call", {"structuredContent": {"n": 1}})["content"] == []


def test_structured_content_that_is_no_object_stays_what_it_is() -> None:
    for value in ([1, 2], "text", 5, True, []):
        fixed = repaired("tools/call", {"content": [], "structuredContent": value})
        assert "structuredContent" not in fixed
        assert fixed["_meta"][STRUCTURED] == value
        fixed = repaired("tools/call", {"content": [], "structuredContent": value}, MODERN)
        assert fixed["structuredContent"] == value


def test_a_question_is_read_whole_or_not_at_all() -> None:
    asks: dict[str, Any] = {"q": {"method": "elicitation/create", "params": {"message": "Who?"}}}
    fixed = repaired("tools/call", {"inputRequests": asks}, MODERN)
    assert fixed["resultType"] == "input_required"
    assert fixed["inputRequests"]["q"]["params"]["message"] == "Who?"
    broken: dict[str, Any] = {**asks, "p": {"method": "elicitation/create", "params": {}}}
    fixed = repaired(
        "tools/call", {"resultType": "input_required", "inputRequests": broken}, MODERN
    )
    assert isinstance(fixed, Unusable)
    assert fixed.why == "inputRequests: p: params: `message` is missing"


# -- lists -----------------------------------------------------------------------------------------


def test_one_odd_tool_hides_no_other() -> None:
    tools = [{"name": 5}, TOOL, "tool", None, {**TOOL, "name": "other"}, {"inputSchema": OBJECT}]
    assert [tool["name"] for tool in repaired("tools/list", {"tools": tools})["tools"]] == [
        "search",
        "other",
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"icons": 5},
        {"icons": [{"src": 5}]},
        {"title": 5},
        {"description": []},
        {"_meta": "x"},
        {"execution": 5},
    ],
)
def test_one_odd_member_of_a_tool_drops_no_good_hint(odd: dict[str, Any]) -> None:
    (tool,) = repaired("tools/list", {"tools": [{**TOOL, **odd}]})["tools"]
    assert tool["annotations"] == TOOL["annotations"]
    assert tool["inputSchema"] == TOOL["inputSchema"]
    assert tool["outputSchema"] == TOOL["outputSchema"]


@pytest.mark.parametrize("odd", ["true", "yes", 1, 0, 1.0, "", [], {}])
def test_a_hint_that_is_neither_true_nor_false_is_none(odd: Any) -> None:
    annotations = {"readOnlyHint": odd, "destructiveHint": False, "idempotentHint": odd}
    (tool,) = repaired("tools/list", {"tools": [{**TOOL, "annotations": annotations}]})["tools"]
    assert tool["annotations"] == {"destructiveHint": False}
    sent = hints_as_sent(tool["inputSchema"])
    assert sent is not None
    assert list(sent) == ["readOnlyHint", "idempotentHint"]
    assert schema_as_sent(tool["inputSchema"]) == TOOL["inputSchema"]


@pytest.mark.parametrize(
    "schema", [None, 5, [], "x", {"type": "dict"}, {"type": "object", "required": True}]
)
def test_a_schema_that_the_sdk_refuses_is_read_as_it_was_sent(schema: Any) -> None:
    (tool,) = repaired("tools/list", {"tools": [{**TOOL, "inputSchema": schema}]})["tools"]
    assert schema_as_sent(tool["inputSchema"]) == schema
    if schema is not None:
        (tool,) = repaired("tools/list", {"tools": [{**TOOL, "outputSchema": schema}]})["tools"]
        assert schema_as_sent(tool["outputSchema"]) == schema


def test_no_server_can_name_the_keyword_that_carries_a_schema() -> None:
    (tool,) = repaired("tools/list", {"tools": [{**TOOL, "inputSchema": 5}]})["tools"]
    (keyword,) = tool["inputSchema"].keys() - {"type"}
    assert len(keyword) >= 24


def test_items_without_a_name_have_their_address() -> None:
    assert repaired("resources/list", {"resources": [{"uri": "a:b"}, {"name": "x"}]}) == {
        "resources": [{"uri": "a:b", "name": "a:b"}]
    }
    templates = [{"uriTemplate": "a:{b}"}, {}]
    assert repaired("resources/templates/list", {"resourceTemplates": templates}) == {
        "resourceTemplates": [{"uriTemplate": "a:{b}", "name": "a:{b}"}]
    }


def test_a_cursor_that_is_a_number_is_sent_back_as_a_text() -> None:
    assert repaired("prompts/list", {"prompts": [], "nextCursor": 7})["nextCursor"] == "7"
    assert "nextCursor" not in repaired("prompts/list", {"prompts": [], "nextCursor": {"page": 7}})


def test_what_many_servers_leave_out_in_2026_is_filled_in() -> None:
    fixed = repaired("tools/list", {"tools": [TOOL]}, MODERN)
    assert fixed == {"tools": [TOOL], **CACHED}
    assert repaired("tools/call", {"content": [TEXT]}, MODERN) == {
        "content": [TEXT],
        "resultType": "complete",
    }


def test_messages_of_a_prompt() -> None:
    messages = [
        {"role": "system", "content": "a"},
        {"role": "assistant", "content": [TEXT, TEXT]},
        "b",
        {"role": "user"},
    ]
    assert repaired("prompts/get", {"messages": messages})["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "assistant", "content": TEXT},
        {"role": "assistant", "content": TEXT},
        {"role": "user", "content": {"type": "text", "text": "b"}},
    ]


def test_the_contents_of_a_resource() -> None:
    fixed = repaired("resources/read", {"contents": {"text": {"a": 1}}}, uri="file:///a")
    assert fixed == {"contents": [{"uri": "file:///a", "text": '{"a": 1}'}]}
    assert isinstance(repaired("resources/read", {"text": "x"}), Unusable)


# -- the handshake ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("2025-06-18", "2025-06-18"),
        ("2027-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2025-04-01", "2025-03-26"),
        ("2024-10-07", "2024-11-05"),
        (20251125, "2025-03-26"),
        (None, "2025-03-26"),
        ("latest", "2025-03-26"),
    ],
)
def test_a_version_that_nobody_knows_becomes_one_that_both_know(said: Any, taken: str) -> None:
    fixed = repaired(
        "initialize", {"protocolVersion": said, "capabilities": {}, "serverInfo": INFO}
    )
    assert fixed["protocolVersion"] == taken


@pytest.mark.parametrize("odd", [None, 5, "x", [], True])
def test_the_answer_to_the_handshake_may_be_odd(odd: Any) -> None:
    fixed = repaired(
        "initialize", {"protocolVersion": LEGACY, "capabilities": odd, "serverInfo": odd}
    )
    assert fixed["capabilities"] == {}
    assert fixed["serverInfo"] == {"name": "", "version": ""}
    fixed = repaired(
        "initialize",
        {"protocolVersion": LEGACY, "capabilities": {"prompts": True}, "serverInfo": INFO},
    )
    assert fixed["capabilities"] == {"prompts": {}}


def test_a_server_that_answers_anything_with_nothing_does_not_discover() -> None:
    assert isinstance(repaired("server/discover", {}), Unusable)
    fixed = repaired("server/discover", {"capabilities": {"tools": {}}})
    assert fixed["supportedVersions"] == [MODERN]


# -- notifications and requests --------------------------------------------------------------------


def test_notifications() -> None:
    oddities = Oddities()
    progress = {"progressToken": 1, "progress": 1, "total": "many", "message": 5}
    assert repair_notification("notifications/progress", LEGACY, progress, oddities) == {
        "progressToken": 1,
        "progress": 1,
    }
    log = {"level": "WARN", "data": {"a": 1}}
    assert repair_notification("notifications/message", LEGACY, log, oddities) == {
        "level": "warning",
        "data": {"a": 1},
    }
    assert isinstance(
        repair_notification("notifications/resources/updated", LEGACY, {}, oddities), Unusable
    )
    assert isinstance(repair_notification("notifications/odd", LEGACY, None, oddities), Unusable)


def test_a_question_for_a_model_is_asked_as_a_whole() -> None:
    oddities = Oddities()
    question: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}],
        "maxTokens": 5,
        "temperature": "hot",
    }
    assert repair_request("sampling/createMessage", LEGACY, question, oddities) == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        "maxTokens": 5,
    }
    question["messages"].append({"role": "user", "content": None})
    assert isinstance(
        repair_request("sampling/createMessage", LEGACY, question, oddities), Unusable
    )
    assert isinstance(
        repair_request("sampling/createMessage", LEGACY, {"messages": []}, oddities), Unusable
    )


# -- the messages of a connection ------------------------------------------------------------------


def sent(repairs: Repairs, method: str, number: int = 1, **params: Any) -> None:
    repairs.sent(JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params or None))


def answer(result: Any, number: int = 1) -> Any:
    (message,) = MessageReader(Oddities()).read(
        json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    )
    return message


@pytest.mark.parametrize(
    ("method", "value", "result"),
    [
        ("ping", None, {}),
        ("logging/setLevel", True, {}),
        ("tools/list", [TOOL], {"tools": [TOOL]}),
        ("tools/list", None, {"tools": []}),
        ("resources/list", [], {"resources": []}),
    ],
)
def test_a_result_without_braces_where_it_can_only_mean_one_thing(
    method: str, value: Any, result: Any
) -> None:
    repairs = Repairs(Oddities())
    sent(repairs, method)
    message = repairs.repaired(answer(value), LEGACY)
    assert isinstance(message, JSONRPCResponse)
    assert message.result == result


@pytest.mark.parametrize("value", [None, "done", [TEXT], True, 5])
def test_any_other_result_without_braces_is_an_error(value: Any) -> None:
    repairs = Repairs(Oddities())
    for method in ("tools/call", "initialize", "resources/read"):
        sent(repairs, method)
        assert isinstance(repairs.repaired(answer(value), LEGACY), OddResultError)


def test_answers_have_the_shape_of_their_own_request() -> None:
    repairs = Repairs(Oddities())
    sent(repairs, "tools/list", 1)
    sent(repairs, "tools/call", 2)
    call = repairs.repaired(answer({"content": "x"}, 2), LEGACY)
    page = repairs.repaired(answer({"tools": "x"}, 1), LEGACY)
    assert isinstance(call, JSONRPCResponse)
    assert isinstance(page, JSONRPCResponse)
    assert call.result == {"content": [{"type": "text", "text": "x"}]}
    assert page.result == {"tools": []}
    late = answer({"content": "x"}, 2)
    assert repairs.repaired(late, LEGACY) is late


def test_unknown_notifications_are_skipped_and_counted() -> None:
    oddities = Oddities()
    repairs = Repairs(oddities)
    for _ in range(3):
        message = JSONRPCNotification(jsonrpc="2.0", method="notifications/heartbeat")
        assert repairs.repaired(message, LEGACY) is None
    assert oddities.lines == [
        "notifications/heartbeat: is not known in version 2025-11-25; skipped (3 times)"
    ]


def test_deep_schemas_reach_their_tool_and_other_deep_answers_are_errors() -> None:
    repairs = Repairs(Oddities())
    sent(repairs, "tools/list")
    page = answer({"tools": [{**TOOL, "inputSchema": json.loads("[" * 450 + "]" * 450)}, TOOL]})
    assert isinstance(page, DeepResponse)
    message = repairs.repaired(page, LEGACY)
    assert isinstance(message, JSONRPCResponse)
    first, second = message.result["tools"]
    assert schema_as_sent(first["inputSchema"])[0][0][0] is not None
    assert second == TOOL
    parsed("tools/list", LEGACY, message.result)

    sent(repairs, "tools/call")
    message = repairs.repaired(
        answer({"content": [], "structuredContent": {"a": json.loads("[" * 300 + "]" * 300)}}),
        LEGACY,
    )
    assert isinstance(message, JSONRPCError)
    assert (
        message.error.message
        == "its answer to tools/call cannot be read: it is nested deeper than 200 levels"
    )


def test_a_page_of_nothing_but_odd_tools_takes_little_time() -> None:
    for tools in (
        [{"name": f"t{n}", "icons": 5, "inputSchema": 5} for n in range(5_000)],
        [5] * 100_000,
    ):
        oddities = Oddities()
        began = time.process_time()
        repair_result("tools/list", LEGACY, {"tools": tools}, oddities)
        assert time.process_time() - began < 5
        assert len(oddities.lines) <= 41
