"""The tests run or validate every JSON block of docs/chain.md; docs/ru-chain.md has
the same blocks.

A block `json message` is a list of spellings of one message. `json context` begins an example of
`solve`: blocks `json solution` are the answers of its mind in order, `json output schema` is the
wanted output, `json schema` a schema that admits the next Solution, `json next context` the context
of the Request after the last Solution. `json plan` begins an example of `run_plan`; its Solutions
are those of the minds in its rooms. `json result` has members of the answer and ends either. The
blocks named after tools of the server, such as `json run_plan`, are calls over MCP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from mcp import Client

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.plan import read_plan
from ideabridge.tools import META_PROPERTIES, Toolbox
from ideabridge.tools.encoding import JSON
from tests.seeds.minds import Prepared
from tests.server.serving import all_tools, over_stdio, structured

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent
PAGE = "docs/chain.md"
IN_RUSSIAN = "docs/ru-chain.md"
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TYPES = {"text", "data", "input", "state", "tool", "plan", "error", "correction", "call"}


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        place: page and line.
        kind: what stands behind the fence, without `json`.
        value: the JSON.
    """

    place: str
    kind: str
    value: Any


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            f"{page}:{text.count(chr(10), 0, match.start()) + 1}",
            match.group(1).removeprefix("json "),
            json.loads(match.group(2)),
        )
        for match in FENCE.finditer(text)
        if match.group(1).startswith("json ")
    ]


BLOCKS = blocks_of(PAGE)
MESSAGES = [block for block in BLOCKS if block.kind == "message"]


def examples(begin: str) -> list[list[Block]]:
    """Each block of a kind with those that follow, to its result."""
    found: list[list[Block]] = []
    for number, block in enumerate(BLOCKS):
        if block.kind == begin:
            end = next(
                place for place in range(number, len(BLOCKS)) if BLOCKS[place].kind == "result"
            )
            found.append(BLOCKS[number : end + 1])
    return found


def places(listed: Sequence[list[Block]]) -> list[str]:
    return [blocks[0].place for blocks in listed]


def values(blocks: list[Block], kind: str) -> list[Any]:
    return [block.value for block in blocks if block.kind == kind]


def tools_text() -> str:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    [program] = [
        match.group(2) for match in FENCE.finditer(text) if match.group(1) == "python tools"
    ]
    return program


def toolbox() -> Toolbox:
    names: dict[str, Any] = {}
    exec(compile(tools_text(), "the tools of the page", "exec"), names)
    return Toolbox(*(names[name] for name in ("sentiment", "shout", "whisper", "title")))


def configured(folder: Path) -> Path:
    """A configuration file with the tools of the page."""
    (folder / "tools.py").write_text(tools_text(), encoding="utf-8")
    path = folder / "ideabridge.json"
    path.write_text(json.dumps({"store": "ideas.sqlite", "tools": ["tools.py"]}), encoding="utf-8")
    return path


def bridge_with(mind: Prepared) -> Bridge:
    return Bridge(Configuration(approval="allow_all"), toolbox=toolbox(), mind=mind)


@pytest.mark.parametrize("block", MESSAGES, ids=[block.place for block in MESSAGES])
async def test_a_message_reads_the_same_in_every_spelling(block: Block) -> None:
    first, *others = [read_message(spelling) for spelling in block.value]
    assert others == [first] * len(others)
    assert others
    # The block is shown to a mind.
    mind = Prepared({"calls": [], "output": "read"})
    async with bridge_with(mind) as bridge:
        context = cast("list[JSON]", [block.value[0]])
        run = await bridge.solve("Read it.", context=context)
        assert await run.result() == "read"

    assert first.to_json() in mind.context(0)


def test_there_is_a_message_of_every_type_and_a_call_with_every_meta_property() -> None:
    assert {read_message(block.value[0]).type for block in MESSAGES} == TYPES
    calls = [call for block in BLOCKS if block.kind == "plan" for call in block.value["calls"]]
    assert {name for call in calls for name in call if name.startswith("_")} == set(META_PROPERTIES)


CONTEXTS = examples("context")


@pytest.mark.parametrize("blocks", CONTEXTS, ids=places(CONTEXTS))
async def test_each_example_of_a_request_ends_as_the_page_says(blocks: list[Block]) -> None:
    solutions = values(blocks, "solution")
    output_schemas = values(blocks, "output schema")
    mind = Prepared(*solutions)
    async with bridge_with(mind) as bridge:
        output_schema = output_schemas[0] if output_schemas else None
        run = await bridge.solve(context=blocks[0].value, output_schema=output_schema)
        assert await run.wait(20) == "done"
        answer = run.answer(whole=True)

    assert len(mind.requests) == len(solutions)
    [result] = values(blocks, "result")
    assert {name: answer.get(name) for name in result} == result
    first = [message.to_json() for message in map(read_message, blocks[0].value)]
    assert mind.context(0) == first
    for schema in values(blocks, "schema"):
        for sent in (schema, mind.requests[0].schema):
            jsonschema.validate(solutions[0], sent)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"calls": [], "output": 5}, sent)

    for context in values(blocks, "next context"):
        assert mind.context(-1) == context


async def test_over_mcp_each_example_of_a_request_ends_as_the_page_says(tmp_path: Path) -> None:
    async with over_stdio(configured(tmp_path), "auto") as client:
        for blocks in CONTEXTS:
            asked = {"context": blocks[0].value, "mind": "turns"}
            for output_schema in values(blocks, "output schema"):
                asked["output_schema"] = output_schema
            answer = structured(await client.call_tool("solve", asked))
            for turn, solution in enumerate(values(blocks, "solution")):
                handed_in = {"run": answer["run"], "turn": turn, "solution": solution}
                answer = structured(await client.call_tool("solve", handed_in))
            [result] = values(blocks, "result")
            # If there is an output, an assistant does not get the state.
            expected = {name: value for name, value in result.items() if name != "state"}
            assert {name: answer.get(name) for name in expected} == expected


PLANS = examples("plan")


@pytest.mark.parametrize("blocks", PLANS, ids=places(PLANS))
async def test_each_plan_ends_as_the_page_says(blocks: list[Block]) -> None:
    mind = Prepared(*values(blocks, "solution"))
    async with bridge_with(mind) as bridge:
        run = await bridge.run_plan(read_plan(blocks[0].value))
        assert await run.wait(20) == "done"
        answer = run.answer(whole=True)

    [result] = values(blocks, "result")
    assert {name: answer.get(name) for name in result} == result
    assert mind.solutions == []


async def test_over_mcp_an_idea_becomes_a_tool_and_a_call(tmp_path: Path) -> None:
    begin = next(number for number, block in enumerate(BLOCKS) if block.kind == "run_plan")
    answer: dict[str, Any] = {}
    ideas: list[Any] = []
    async with over_stdio(configured(tmp_path), "auto") as client:
        for block in BLOCKS[begin:]:
            if block.kind == "idea":
                ideas.append(block.value)
            elif block.kind == "tool":
                # What is published is also a resource: the idea itself.
                [shown] = ideas
                idea = await exported(client, block.value["name"])
                assert {name: idea[name] for name in shown} == shown
                listed = (await all_tools(client))[block.value["name"]].model_dump(by_alias=True)
                assert {
                    name: _within(listed[name], part) for name, part in block.value.items()
                } == block.value
            elif block.kind == "result":
                assert {name: answer.get(name) for name in block.value} == block.value
            else:
                arguments = {
                    name: answer["run"] if value == "RUN" else value
                    for name, value in block.value.items()
                }
                result = await client.call_tool(block.kind, arguments)
                assert not result.is_error, result.content
                answer = structured(result) | {
                    "run": structured(result).get("run", answer.get("run"))
                }


async def exported(client: Client, name: str) -> Any:
    resource = await client.read_resource(f"idea://{name}")
    return json.loads(cast("Any", resource.contents[0]).text)


def _within(listed: Any, shown: Any) -> Any:
    """The members that the page shows of a larger object."""
    if not isinstance(listed, dict) or not isinstance(shown, dict):
        return cast("Any", listed)
    members = cast("dict[str, Any]", shown)
    return {name: _within(listed[name], part) for name, part in members.items()}


def test_the_page_in_russian_has_the_same_json() -> None:
    assert [(block.kind, block.value) for block in blocks_of(IN_RUSSIAN)] == [
        (block.kind, block.value) for block in BLOCKS
    ]
