"""Images, sounds and resources in the values of calls: what an answer shows of them, in plans,
programs and ideas.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from tests import preloaded

from .serving import ERAS, Open, configured, in_memory, over_stdio, structured, text

pytestmark = pytest.mark.anyio

GIVING = Path(__file__).parents[1] / "modules" / "servers" / "giving.py"
PNG = base64.b64encode(bytes(range(256)) * 80).decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
FILE = {
    "type": "resource",
    "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "what a says"},
}
LINK = {"type": "resource_link", "uri": "file:///b.txt", "name": "b"}


@asynccontextmanager
async def gateway(
    folder: Path, mode: str = "auto", opened: Open = in_memory, **top: Any
) -> AsyncGenerator[Client]:
    top = {"mcpServers": {"one": preloaded.module(GIVING)}, "approval": "allow_all", **top}
    async with opened(configured(folder, **top), mode) as client:
        yield client


def wire(result: types.CallToolResult) -> list[dict[str, Any]]:
    """The content blocks as they are on the wire, without the first, which is the text."""
    content = [
        block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content
    ]
    assert content[0]["type"] == "text"
    return content[1:]


def give(*content: Any, **more: Any) -> dict[str, Any]:
    return {"_tool": "give", "result": {"content": list(content), **more}}


def placed(block: dict[str, Any], number: int) -> dict[str, Any]:
    """The placeholder of a block."""
    said = f"content[{number}] of this answer"
    if "resource" in block:
        return {**block, "resource": {**block["resource"], "text": said}}
    return {**block, "data": said} if "data" in block else block


async def plan(client: Client, *calls: Any, **more: Any) -> types.CallToolResult:
    result = await client.call_tool("run_plan", {"calls": list(calls), **more})
    assert not result.is_error, text(result)
    return result


@pytest.mark.parametrize("mode", ERAS)
async def test_a_block_in_the_output_of_a_plan_is_a_block_beside_other_values(
    tmp_path: Path, mode: str
) -> None:
    async with gateway(tmp_path, mode, over_stdio) as client:
        for block in (IMAGE, SOUND, FILE, LINK):
            result = await plan(client, give(block), output={"chart": "†results.0.0", "n": 3})
            assert wire(result) == [block]
            assert structured(result)["output"] == {"chart": placed(block, 1), "n": 3}
            assert PNG[:100] not in text(result) + json.dumps(structured(result))
            if "data" in block:
                assert "content[1] of this answer" in text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_program_and_a_published_idea_return_blocks(tmp_path: Path, mode: str) -> None:
    program = (
        'import one\nr = await one.give(result=input["r"])\n{"pictures": [r[0], r[1]], "n": len(r)}'
    )
    given = {"r": {"content": [IMAGE, SOUND]}}
    async with gateway(tmp_path, mode) as client:
        ran = await client.call_tool(
            "run_plan", {"program": program, "input": given, "save_as": "pictures"}
        )
        replayed = await client.call_tool("pictures", given)

    expected = {"pictures": [placed(IMAGE, 1), placed(SOUND, 2)], "n": 2}
    for result, value in ((ran, structured(ran)["output"]), (replayed, structured(replayed))):
        assert wire(result) == [IMAGE, SOUND], text(result)
        assert value == expected
        assert PNG[:100] not in text(result)


async def test_output_that_is_a_block_or_lists_of_blocks_and_blocks_deep_within(
    tmp_path: Path,
) -> None:
    other = {**IMAGE, "data": "AAAA"}
    async with gateway(tmp_path) as client:
        alone = await plan(client, give(IMAGE), output="†results.0.0")
        listed = await plan(
            client, give({"type": "text", "text": "see"}, IMAGE, other), output="†results.0"
        )
        deep = await plan(
            client,
            give(IMAGE),
            output={"a": [{"b": {"c": "†results.0.0"}}], "again": "†results.0.0"},
        )
        whole = await plan(
            client, {**give(IMAGE, {"type": "text", "text": "x" * 30_000}), "_outputPath": "shot"}
        )

    assert (wire(alone), structured(alone)["output"]) == ([IMAGE], placed(IMAGE, 1))
    assert wire(listed) == [IMAGE, other]
    see = {"type": "text", "text": "see"}
    assert structured(listed)["output"] == [see, placed(IMAGE, 1), placed(other, 2)]
    assert wire(deep) == [IMAGE]
    assert structured(deep)["output"] == {
        "a": [{"b": {"c": placed(IMAGE, 1)}}],
        "again": placed(IMAGE, 1),
    }
    # The text makes the value too long to show, so it is read by reference.
    assert wire(whole) == []
    assert PNG[:50] not in json.dumps(structured(whole))


async def test_without_an_output_the_state_and_the_results_have_blocks(tmp_path: Path) -> None:
    async with gateway(tmp_path) as client:
        kept = await plan(client, {**give(IMAGE), "_outputPath": "shot"})
        unkept = await plan(client, give(IMAGE))
        run = structured(kept)["run"]
        whole = await client.call_tool(
            "check_run", {"run": run, "paths": ["†state.shot", "†state.shot.0"]}
        )

    assert (wire(kept), structured(kept)["state"]) == ([IMAGE], {"shot": [placed(IMAGE, 1)]})
    assert (wire(unkept), structured(unkept)["results"]) == ([IMAGE], {"0": [placed(IMAGE, 1)]})
    assert wire(whole) == [IMAGE]
    values = structured(whole)["values"]
    assert values == {"†state.shot": [placed(IMAGE, 1)], "†state.shot.0": placed(IMAGE, 1)}


async def test_blocks_over_the_bounds_are_said_and_reached_by_reference(tmp_path: Path) -> None:
    small = [{**IMAGE, "data": base64.b64encode(bytes([number])).decode()} for number in range(25)]
    large = [{**IMAGE, "data": letter * 500_000} for letter in "ABC"]
    async with gateway(tmp_path) as client:
        many = await plan(client, {**give(*small), "_outputPath": "all"})
        heavy = await plan(client, {**give(*large), "_outputPath": "all"})
        run = structured(heavy)["run"]
        last = await client.call_tool("check_run", {"run": run, "paths": ["†state.all.2"]})

    assert wire(many) == small[:20]
    assert structured(many)["state"]["all"][20]["data"].startswith(
        "not shown, 53 bytes: check_run with only this path"
    )
    assert wire(heavy) == large[:1]
    assert "check_run" in structured(heavy)["state"]["all"][2]["data"]
    assert wire(last) == large[2:]


async def test_an_object_that_only_looks_like_a_block_stays_what_it_is(tmp_path: Path) -> None:
    image = {**IMAGE, "data": "AAAA"}
    rows = [
        {**image, "caption": "mine"},
        {**image, "data": "no base64!"},
        {**image, "data": ""},
        {**image, "mimeType": "text/html"},
        {"type": "image", "file": "a.png"},
        {"type": "resource", "resource": {"uri": "file:///x", "owner": "ann", "text": "y"}},
        {"type": "html", "text": "<script>"},
    ]
    async with gateway(tmp_path) as client:
        result = await plan(
            client, give(structuredContent={"rows": rows}), output="†results.0.rows"
        )
    assert wire(result) == []
    assert structured(result)["output"] == rows


async def test_no_view_becomes_a_block_of_an_answer(tmp_path: Path) -> None:
    def page(uri: str, kind: str) -> dict[str, Any]:
        return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": "<script>"}}

    views = [
        page("ui://one/x", "text/html"),
        page("UI://ideabridge/run", "text/plain"),
        page("file:///x", "text/html;profile=mcp-app"),
        {"type": "resource_link", "uri": "ui://ideabridge/run", "name": "x"},
    ]
    plain = page("file:///x.html", "text/html")
    marked = {**IMAGE, "_meta": {"ui": {"resourceUri": "ui://one/x"}, "own": 1}}
    async with gateway(tmp_path) as client:
        values = {"structuredContent": {"views": views, "plain": plain, "marked": marked}}
        result = await plan(client, give(**values), output="†results.0")

    as_text = page("file:///x.html", "text/plain")
    assert wire(result) == [as_text, {**IMAGE, "_meta": {"own": 1}}]
    assert structured(result)["output"]["views"] == views


async def test_an_idea_whose_schema_refuses_a_placeholder_keeps_its_structured_content(
    tmp_path: Path,
) -> None:
    schema = {
        "type": "object",
        "properties": {"shot": {"type": "object", "properties": {"data": {"pattern": "^A+$"}}}},
    }
    image = {**IMAGE, "data": "AAAA"}
    async with gateway(tmp_path) as client:
        calls = [{**give(), "result": "†input.r"}]
        given = {"r": {"content": [image]}}
        keys = {
            "input": given,
            "output": {"shot": "†results.0.0"},
            "save_as": "strict",
            "output_schema": schema,
        }
        await plan(client, *calls, **keys)
        await client.list_tools()
        # The client checks structured content against the schema.
        result = await client.call_tool("strict", given)

    assert not result.is_error, text(result)
    assert (wire(result), structured(result)) == ([image], {"shot": image})
    assert '"data":"content[1] of this answer"' in text(result)


TOOL = '''
from ideabridge.tools.decorator import tool
@tool(read_only=True)
async def draw() -> dict:
    """Draw."""
    return {"type": "image", "data": "AAAA", "mimeType": "image/png"}
@tool(read_only=True)
async def plot():
    """Draw, with a number."""
    from mcp_types import ImageContent
    return ["here", ImageContent(data="AAAA", mime_type="image/png")]
'''


@pytest.mark.parametrize("mode", ERAS)
async def test_images_of_python_tools_are_blocks(tmp_path: Path, mode: str) -> None:
    (tmp_path / "drawing.py").write_text(TOOL)
    image = {**IMAGE, "data": "AAAA"}
    keys: dict[str, Any] = {"tools": [str(tmp_path / "drawing.py")], "expose": ["tools"]}
    async with gateway(tmp_path, mode, **keys) as client:
        await client.list_tools()
        drawn = await client.call_tool("draw", {})
        plotted = await client.call_tool("plot", {})
        both = await plan(
            client,
            {"_tool": "draw"},
            {"_tool": "plot"},
            output={"a": "†results.0", "b": "†results.1"},
        )

    assert (wire(drawn), structured(drawn)) == ([image], placed(image, 1))
    assert wire(plotted) == [image], text(plotted)
    assert wire(both) == [image]
    assert structured(both)["output"] == {"a": placed(image, 1), "b": ["here", placed(image, 1)]}


async def test_a_host_that_shows_structured_content_alone_gets_the_content(tmp_path: Path) -> None:
    info = types.Implementation(name="codex-mcp-client", version="1")
    configuration = configured(
        tmp_path, mcpServers={"one": preloaded.module(GIVING)}, approval="allow_all"
    )
    async with in_memory(configuration, "legacy", client_info=info) as client:
        shown = await plan(client, give(IMAGE), output={"chart": "†results.0.0"})
        plain = await plan(client, give({"type": "text", "text": "a"}), output="†results.0")

    assert (wire(shown), shown.structured_content) == ([IMAGE], None)
    assert "content[1] of this answer" in text(shown)
    assert structured(plain)["output"] == "a"


async def test_a_request_by_turns_has_no_base64_and_its_image_is_read_by_reference(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as client:
        asked = await client.call_tool(
            "solve", {"task": "Look.", "tools": ["give"], "mind": "turns"}
        )
        run = structured(asked)["run"]
        call = {**give(IMAGE), "_outputPath": "shot"}
        answered = await client.call_tool(
            "solve", {"run": run, "turn": 0, "solution": {"calls": [call], "output": None}}
        )
        looked = await client.call_tool("check_run", {"run": run, "paths": ["†state.shot"]})
        read = {"calls": [{"_tool": "read", "reference": "†state.shot"}], "output": None}
        shown = await client.call_tool("solve", {"run": run, "turn": 1, "solution": read})

    [request] = structured(answered)["requests"]
    [state] = [one["content"] for one in request["context"] if one["content"].startswith("State")]
    assert f"{len(PNG):,} characters" in state
    assert PNG[:40] not in state
    assert wire(looked) == [IMAGE]
    assert (wire(shown), structured(shown)["read"]) == (
        [IMAGE],
        {"†state.shot": [placed(IMAGE, 1)]},
    )
    assert PNG[:40] not in text(shown)
