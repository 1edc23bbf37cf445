"""Results that are not what their tool promises, and errors: everything that can be read
reaches the caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types
from mcp.shared.exceptions import MCPError

from ideabridge.tools.encoding import encode_text

from .serving import ERAS, over_stdio, structured, text
from .test_blocks import IMAGE, PNG, gateway, placed, wire

pytestmark = pytest.mark.anyio

WRONG = {"n": "three", "note": "kept"}
SAID = {"type": "text", "text": "cannot open it"}


async def failed(client: Client, tool: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The error of the only call of a plan, after a look at the text of the answer."""
    result = await client.call_tool("run_plan", {"calls": [{"_tool": tool, **given, **more}]})
    [error] = structured(result)["errors"]
    for part in error["error"].get("sent", {}).values():
        if PNG not in json.dumps(part):
            assert json.dumps(part, separators=(",", ":"))[:200] in text(result)
    return {**error["error"], "blocks": wire(result)}


async def in_program(client: Client, tool: str, given: dict[str, Any]) -> str:
    """What a program sees of an error."""
    program = (
        f"import one\ntry:\n    r = await one.{tool}(**input)\nexcept RuntimeError as e:\n    "
        "r = str(e)\nr"
    )
    result = await client.call_tool("run_plan", {"program": program, "input": given})
    return str(structured(result)["output"])


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("tool", ["typed", "change"])
async def test_a_result_that_breaks_its_schema_is_shown_with_the_error(
    tmp_path: Path, mode: str, tool: str
) -> None:
    given = {"result": {"content": [SAID, IMAGE], "structuredContent": WRONG}}
    async with gateway(tmp_path, mode, over_stdio, expose=["modules"]) as client:
        await client.list_tools()
        direct = await client.call_tool(tool, given)
        error = await failed(client, tool, given)
        caught = await in_program(client, tool, given)

    assert direct.is_error
    assert "does not match its tool's output schema" in text(direct)
    assert ("ran, but its result cannot be used" in text(direct)) == (tool == "change")
    assert '"n":"three"' in text(direct)
    # Clients of the TypeScript SDK discard an error whose structured content violates the schema of
    # the tool.
    assert direct.structured_content is None
    assert (direct.meta or {})["ideabridge/structured"] == WRONG
    assert IMAGE in wire(direct)
    assert error["kind"] == ("ran" if tool == "change" else "runtime")
    assert 'n: found "three", expected an integer' in error["message"]
    assert error["sent"] == {"structuredContent": WRONG, "content": [SAID, placed(IMAGE, 1)]}
    assert error["blocks"] == [IMAGE]
    assert '{"structuredContent":{"n":"three","note":"kept"}' in caught
    assert PNG[:50] not in caught


async def test_what_breaks_its_schema_is_no_value_that_later_calls_read(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {
        "_tool": "typed",
        "result": {"content": [], "structuredContent": WRONG},
    }
    async with gateway(tmp_path) as client:
        calls = [
            {**wrong, "_outputPath": "a || b"},
            wrong,
            {"_tool": "template", "text": "{x}", "values": "†results.1"},
        ]
        result = await client.call_tool("run_plan", {"calls": calls})
        run = structured(result)["run"]
        read = await client.call_tool(
            "check_run", {"run": run, "paths": ["†data.error.1.error.sent"]}
        )

    own, dependent = structured(result)["errors"]
    assert own["error"]["sent"] == {"structuredContent": WRONG}
    assert dependent["error"]["kind"] == "dependency"
    state = structured(result)["state"]
    assert "a" not in state
    assert state["b"]["sent"] == {"structuredContent": WRONG}
    assert structured(read)["values"] == {"†data.error.1.error.sent": {"structuredContent": WRONG}}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_that_sends_no_structure_has_its_text_shown(tmp_path: Path, mode: str) -> None:
    async with gateway(tmp_path, mode, expose=["modules"]) as client:
        await client.list_tools()
        parsed = await client.call_tool(
            "typed", {"result": {"content": [{"type": "text", "text": '{"n": 4}'}]}}
        )
        direct = await client.call_tool("typed", {"result": {"content": [SAID]}})
        error = await failed(client, "typed", {"result": {"content": [SAID, IMAGE]}})
        nothing = await failed(client, "typed", {"result": {"content": []}})

    assert (parsed.is_error, structured(parsed)) == (False, {"n": 4})
    assert direct.is_error
    assert "cannot open it" in text(direct)
    assert "sent no structured content; its content is text and image" in error["message"]
    assert error["sent"] == {"content": [SAID, placed(IMAGE, 1)]}
    assert "no content" in nothing["message"]
    assert "sent" not in nothing


@dataclass(frozen=True)
class Failure:
    """An error that a module sends, and what callers see of it.

    Attributes:
        result: what the module sends.
        said: a part of the message.
        sent: what the error of a run holds, and None where the message says everything.
        blocks: the blocks beside the error of a run.
    """

    result: dict[str, Any]
    said: str
    sent: dict[str, Any] | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


FAILURES = (
    Failure({"content": [SAID]}, "cannot open it"),
    Failure({"content": []}, "failed without saying why; no content"),
    Failure({"content": [], "structuredContent": {"why": "full"}}, '{"why":"full"}'),
    Failure({"content": [IMAGE]}, "its content is image", {"content": [placed(IMAGE, 1)]}, [IMAGE]),
    Failure(
        {"content": [SAID, IMAGE], "structuredContent": {"why": "full"}},
        "cannot open it",
        {"structuredContent": {"why": "full"}, "content": [SAID, placed(IMAGE, 1)]},
        [IMAGE],
    ),
    Failure(
        {"content": [SAID], "structuredContent": WRONG},
        "cannot open it",
        {"structuredContent": WRONG},
    ),
)


@pytest.mark.parametrize("mode", ERAS)
async def test_everything_of_an_error_reaches_the_caller(tmp_path: Path, mode: str) -> None:
    async with gateway(tmp_path, mode, expose=["modules"]) as client:
        await client.list_tools()
        for failure in FAILURES:
            given = {"result": {**failure.result, "isError": True}}
            direct = await client.call_tool("typed", given)
            error = await failed(client, "typed", given)
            check_direct(direct, failure)
            assert failure.said in error["message"]
            assert (error.get("sent"), error["blocks"]) == (failure.sent, failure.blocks)


def check_direct(direct: types.CallToolResult, failure: Failure) -> None:
    """Check that a direct call gives everything of an error."""
    sent = failure.result
    assert direct.is_error
    assert direct.structured_content is None
    assert (direct.meta or {}).get("ideabridge/structured") == sent.get("structuredContent")
    if "structuredContent" in sent:
        assert encode_text(sent["structuredContent"]) in text(direct)

    content = [
        block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in direct.content
    ]
    assert content[: len(sent["content"])] == sent["content"]
    if not sent["content"] and "structuredContent" in sent:
        assert text(direct) == failure.said


@pytest.mark.parametrize("mode", ERAS)
async def test_structured_content_alone_is_text_too(tmp_path: Path, mode: str) -> None:
    async with gateway(tmp_path, mode, expose=["modules"]) as client:
        await client.list_tools()
        typed = await client.call_tool(
            "typed", {"result": {"content": [], "structuredContent": {"n": 3}}}
        )
        both = await client.call_tool(
            "typed", {"result": {"content": [SAID], "structuredContent": {"n": 3}}}
        )
    assert (text(typed), structured(typed)) == ('{"n":3}', {"n": 3})
    assert (text(both), structured(both)) == ("cannot open it", {"n": 3})


@pytest.mark.parametrize("mode", ERAS)
async def test_the_data_of_an_error_of_the_protocol_reaches_the_caller(
    tmp_path: Path, mode: str
) -> None:
    given = {"error": {"code": -32000, "message": "", "data": {"detail": "the disk is full"}}}
    async with gateway(tmp_path, mode, expose=["modules"]) as client:
        await client.list_tools()
        with pytest.raises(MCPError) as caught:
            await client.call_tool("give", given)
        error = await failed(client, "give", given)

    assert caught.value.data == {"detail": "the disk is full"}
    assert "the disk is full" in error["message"]


@pytest.mark.parametrize("mode", ERAS)
async def test_content_beside_structured_content_is_read_by_reference(
    tmp_path: Path, mode: str
) -> None:
    beside = {"result": {"content": [SAID, IMAGE], "structuredContent": {"n": 3}}}
    async with gateway(tmp_path, mode) as client:
        calls = [{"_tool": "typed", **beside}, {"_tool": "typed", "_each": ["a", "b"], **beside}]
        result = await client.call_tool("run_plan", {"calls": calls, "output": "†results.0"})
        run = structured(result)["run"]
        read = await client.call_tool(
            "check_run", {"run": run, "paths": ["†content.0", "†content.1.1.1", "†content.2"]}
        )

    assert structured(result)["output"] == {"n": 3}
    assert "calls[0] sent more than its value; read it at †content.0" in structured(result)["notes"]
    values = structured(read)["values"]
    assert values == {"†content.0": [SAID, placed(IMAGE, 1)], "†content.1.1.1": placed(IMAGE, 1)}
    assert wire(read) == [IMAGE]
    assert "†content.2" in structured(read)["missing"]


async def test_content_that_says_the_same_as_structured_content_is_not_kept_twice(
    tmp_path: Path,
) -> None:
    def texts(*given: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": one} for one in given]

    same = [
        {"content": texts('{ "n": 3 }'), "structuredContent": {"n": 3}},
        {"content": texts("a", "b"), "structuredContent": {"result": ["a", "b"]}},
        {
            "content": texts('{"x": 1}', '{"x": 2}'),
            "structuredContent": {"result": [{"x": 1}, {"x": 2}]},
        },
        {"content": texts("hello"), "structuredContent": {"result": "hello"}},
    ]
    async with gateway(tmp_path) as client:
        result = await client.call_tool(
            "run_plan", {"calls": [{"_tool": "give", "result": one} for one in same]}
        )

    assert structured(result)["errors"] == []
    assert "notes" not in structured(result)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("structure", [[1, 2], "abc"])
async def test_structured_content_that_is_no_object_reaches_the_caller(
    tmp_path: Path, mode: str, structure: Any
) -> None:
    given = {"content": [SAID], "structuredContent": structure}
    async with gateway(tmp_path, mode, expose=["modules"]) as client:
        await client.list_tools()
        direct = await client.call_tool("give", {"result": given})
        wrong = await client.call_tool("typed", {"result": given})
        bad = await client.call_tool("give", {"result": {**given, "isError": True}})
        ran = await client.call_tool(
            "run_plan", {"calls": [{"_tool": "give", "result": given}], "output": "†results.0"}
        )
        error = await failed(client, "typed", {"result": given})

    assert structured(ran)["output"] == structure
    for result in (direct, wrong, bad):
        assert "cannot open it" in text(result)
        assert json.dumps(structure).replace(" ", "") in text(result) + encode_text(
            result.structured_content
        )
        assert "ideabridge/structuredContent" not in str(result.meta)

    assert wrong.is_error
    assert error["sent"] == {"structuredContent": structure, "content": [SAID]}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": "plain words"}, "plain words"),
        ({"content": [{"type": "chart", "points": [1, 2]}, SAID]}, '"points": [1, 2]'),
        ({"content": [{"type": "text", "text": 5}], "isError": None}, "5"),
        ({"content": [{"text": "no type"}], "isError": "true"}, "no type"),
    ],
)
async def test_an_odd_member_does_not_make_the_outcome_of_a_change_unknown(
    tmp_path: Path, result: dict[str, Any], said: str
) -> None:
    given = {**result, "structuredContent": {"n": 3}}
    async with gateway(tmp_path) as client:
        calls = [{"_tool": "change", "result": given}]
        ran = await client.call_tool("run_plan", {"calls": calls, "output": "†results.0"})
        run = structured(ran)["run"]
        read = await client.call_tool(
            "check_run", {"run": run, "paths": ["†content.0", "†data.error.0.error.message"]}
        )

    assert structured(ran).get("approvals") is None
    if result.get("isError"):
        assert [one["error"]["kind"] for one in structured(ran)["errors"] if one["call"]] == [
            "runtime"
        ]
    else:
        assert structured(ran)["output"] == {"n": 3}

    assert said in text(read).replace('\\"', '"')
