"""What models get wrong in a call is named with the right form, whoever hands the call in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, read_plan
from ideabridge.bridge.configuration import Configuration, load_configuration
from ideabridge.bridge.errors import DecisionError, PlanError
from ideabridge.bridge.runs.run import Run
from ideabridge.server.server import Front
from ideabridge.tools import SchemaError, Tool, Toolbox, ToolDefinitionError, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations
from tests import preloaded
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("wrapping_server.py")


@tool(read_only=True)
def echo(text: str, times: int = 1) -> str:
    """Say it again."""
    return text * times


@tool(read_only=False)
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


LONG_REASON = (
    f"The file has no column 'total'. Its columns are: {', '.join('abcd' * 60)}. Name one."
)


@tool(read_only=True)
def refuse(text: str) -> str:
    """Refuse the text."""
    raise ValueError(f"{LONG_REASON}{text}")


OPEN = Tool(
    "anything", "Takes any parameter.", {"type": "object"}, annotations=Annotations(read_only=True)
)
NUMBERED = Tool(
    "numbered",
    "Number it.",
    output={"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]},
)


def toolbox() -> Toolbox:
    return Toolbox(echo, send, refuse, OPEN, NUMBERED)


async def refused(bridge: Bridge, *calls: JSON, output: JSON = None) -> str:
    with pytest.raises(PlanError) as caught:
        await bridge.run_plan(read_plan({"calls": list(calls), "output": output}))
    return str(caught.value)


def told_of(run: Run, what: str) -> list[Any]:
    told: Any = run.answer()[what]
    return told


async def output_of(bridge: Bridge, *calls: JSON, output: JSON, **more: JSON) -> JSON:
    run = await bridge.run_plan(read_plan({"calls": list(calls), "output": output, **more}))
    assert await run.wait(30) == "done"
    assert run.errors() == []
    return run.answer()["output"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"text": "a", "time": 2}, "no parameter with this name; the parameters are 'text', 'times'. Did you mean 'times'?"),
        ({"txt": "a", "times": "x"}, "Did you mean 'text'?"),
        ({"text": "a", "_outputpath": "x"}, "Did you mean '_outputPath'?"),
        ({"text": "a", "outputPath": "x"}, "Did you mean '_outputPath'?"),
        ({"text": "a", "_ouputPath": "x"}, "Did you mean '_outputPath'?"),
        ({"text": "a", "_output_path": "x"}, "Did you mean '_outputPath'?"),
        ({"text": "a", "after": ["b"]}, "Did you mean '_after'?"),
        ({"text": "†item", "each": ["b"]}, "Did you mean '_each'?"),
        ({"args": {"text": "a"}}, 'go next to _tool, not into a separate object; write {"_tool"'),
        ({"arguments": '{"text": "a"}'}, 'write {"_tool": "echo", "text": "a"}'),
        ({"params": {"text": "a"}}, "go next to _tool"),
        ({"parameters": {"text": "a"}}, "go next to _tool"),
        ({"input": {"text": "a"}}, "go next to _tool"),
        ({"text": "†item", "_each": ["a"], "time": 2}, "Did you mean 'times'?"),
        ({"text": "a", "_outputPath": "$.log"}, "_outputPath: output path '$.log': write 'log'"),
        ({"text": "a", "_outputPath": "{{log}}"}, "write 'log'"),
        ({"text": "a", "_outputPath": "log || $.error"}, "output path '$.error': write 'error'"),
        ({"text": "$.state.x"}, "text: '$.state.x' is not a reference; write '†state.x'"),
        ({"text": "{state.x}"}, "write '†state.x'"),
        ({"text": "$ref:state.x"}, "write '†state.x'"),
    ],
)  # fmt: skip
async def test_a_misspelt_call_is_refused_with_what_was_meant(call: JSONObject, says: str) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        assert says in await refused(bridge, {"_tool": "echo", **call})


async def test_every_fault_of_a_call_is_told_at_once() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        told = await refused(bridge, {"_tool": "echo", "txt": "a", "times": "x"})
        assert "Did you mean 'text'?" in told
        assert 'times: found "x", expected an integer' in told


async def test_a_tool_without_listed_parameters_takes_any_name_but_a_misspelt_meta_property() -> (
    None
):
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        call: JSONObject = {
            "_tool": "anything",
            "_output": "1",
            "args": {"a": 1},
            "outputPath": "x",
            "_mark": 2,
            "id": 3,
        }
        assert await output_of(bridge, call, output="†results.0") == "1"
        # No schema describes the result, so it is text.
        assert "_output: expected text" in await refused(bridge, {**call, "_output": 1})
        run = await bridge.run_plan({"calls": [{**call, "_output": "†input.n"}], "input": {"n": 1}})
        await run.wait(30)
        [read] = told_of(run, "errors")
        assert "_output of anything: found 1, expected text" in str(read)
        assert "Did you mean '_outputPath'?" in await refused(bridge, {**call, "_ouputPath": "x"})


async def test_the_same_holds_by_turns_streamed_and_in_edits() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("say it")
        run.submit(0, {"calls": [{"_tool": "echo", "text": "a", "time": 2}], "output": None})
        assert await run.wait(30) == "needs_solution"
        assert "Did you mean 'times'" in str(run.errors())
        run.submit(1, {"calls": [{"_tool": "send", "to": "ada"}], "output": "sent"})
        assert await run.wait(30) == "needs_approval"
        [approval] = [str(one["approval"]) for one in told_of(run, "approvals")]
        with pytest.raises(DecisionError, match=r"too: there is no parameter .*Did you mean 'to'"):
            run.decide(approval, "edit", by="Ann", call={"_tool": "send", "too": "bob"})
        with pytest.raises(DecisionError, match="time: there is no parameter"):
            run.decide(approval, "edit", by="Ann", call={"_tool": "echo", "text": "a", "time": 3})
        run.decide(approval, "approve", by="Ann")
        assert await run.wait(30) == "done"


async def test_a_reference_inside_a_longer_text_is_refused_and_names_template() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        first: JSONObject = {"_tool": "echo", "text": "x", "_outputPath": "log"}
        for text in (
            "Log is: †state.log",
            "†state.log is the log",
            "see (†results.0)",
            "†state.log, †state.log",
            "a †input",
        ):
            told = await refused(bridge, first, {"_tool": "echo", "text": text})
            assert "is inside a longer text" in told
            assert '"_tool": "template"' in told
        assert "template" in await refused(bridge, first, output={"said": ["Log is: †state.log"]})
        assert "write '†state.log'" in await refused(bridge, first, output="$state.log")
        assert "template" in await refused(
            bridge, {"_tool": "echo", "text": "is †item", "_each": ["a"]}
        )
        assert "template" in await refused(
            bridge, {"_tool": "numbered", "_output": {"n": "it is †state.log"}}
        )


async def test_daggers_that_are_no_references_stay_and_two_are_one_where_they_would_be() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        prose = "Smith† and Jones††, see † below; †foot, $5 of {state}, see $.state.x, †states"
        texts: list[JSON] = [prose, "Log is: ††state.log", "††state.log and ††input", "†††item"]
        expected: list[JSON] = [prose, "Log is: †state.log", "†state.log and †input", "††item"]
        calls: list[JSON] = [{"_tool": "echo", "text": text} for text in texts]
        assert (
            await output_of(bridge, *calls, output=[f"†results.{n}" for n in range(4)]) == expected
        )
        assert await output_of(bridge, output={"text": "Log is: ††state.log"}) == {
            "text": "Log is: †state.log"
        }
        # Values are never searched for references.
        given: JSONObject = {"text": "Log is: †state.log", "path": "$.state.x"}
        read: JSONObject = {"_tool": "echo", "text": "†input.text"}
        assert await output_of(
            bridge, read, output=["†results.0", "†input.path"], input=given
        ) == list(given.values())


async def test_placeholders_of_a_template_are_no_references() -> None:
    async with Bridge() as bridge:
        call: JSONObject = {"_tool": "template", "text": "{item.name}", "values": {"item": "†item"}}
        people: JSON = [{"name": "Ada"}, {"name": "Grace"}]
        assert await output_of(bridge, {**call, "_each": people}, output="†results.0") == [
            "Ada",
            "Grace",
        ]
        assert "write '†item.name'" in await refused(
            bridge, {**call, "values": {}, "_each": people}
        )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            {"_tool": "pick", "data": {"a": 1}, "path": "a["},
            'path: "a[" is not a JMESPath expression',
        ),
        (
            {"_tool": "pick", "data": {"a": 1}, "path": "lenght(a)"},
            "no function 'lenght'. Did you mean 'length'?",
        ),
        (
            {"_tool": "filter", "items": "†state.log", "where": "contains(a)"},
            "contains takes 2 argument",
        ),
        ({"_tool": "count", "items": [], "by": "a =="}, 'by: "a ==" is not a JMESPath expression'),
    ],
)
async def test_a_wrong_query_is_found_before_anything_runs(call: JSON, says: str) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        assert says in await refused(
            bridge, {"_tool": "echo", "text": "x", "_outputPath": "log"}, call
        )


async def test_a_path_goes_into_text_that_holds_json_wherever_it_stands() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        rows = json.dumps([{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}])
        calls: list[JSON] = [
            {"_tool": "echo", "text": rows, "_outputPath": "rows"},
            {"_tool": "echo", "text": rows},
            {"_tool": "count", "items": "†state.rows.0.tags"},
            {"_tool": "count", "items": "†item.tags", "_each": "†input.people"},
            {"_tool": "count", "items": "†state.none || †results.1.1.tags"},
        ]
        given: JSONObject = {"doc": rows, "people": [json.dumps({"tags": ["x", "y"]})]}
        output: JSON = [
            "†state.rows.1.id",
            "†results.1.0.id",
            "†input.doc.1.id",
            "†results.2",
            "†results.3",
            "†results.4",
        ]
        assert await output_of(bridge, *calls, output=output, input=given) == [2, 1, 2, 1, [2], 0]


async def test_text_that_holds_no_json_says_what_it_begins_with_and_what_takes_it_apart() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        log = "commit 3f2a\nAuthor: Ada\n" * 1_000
        plan: JSONObject = {
            "calls": [
                {"_tool": "echo", "text": log, "_outputPath": "log"},
                {"_tool": "echo", "text": "†state.log.0.message"},
                {
                    "_tool": "pick",
                    "data": "†state.log",
                    "path": "split(@, '\n')[1]",
                    "_outputPath": "author",
                },
            ],
            "output": "†state.author",
        }
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "Author: Ada"
        told = str(run.errors()[0]["error"])
        assert "†state.log is text that begins with" in told
        assert "commit 3f2a" in told
        assert "To take text apart, use the tool pick" in told
        assert len(told) < 400


async def test_a_latent_output_is_held_to_the_schema_of_its_tool() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        for written in list[JSON]([{"n": 5}, "plain", None]):
            call: JSONObject = {"_tool": "numbered", "_output": written}
            run = await bridge.run_plan(read_plan({"calls": [call]}))
            assert await run.wait(30) == "done"
            assert "the _output of numbered: " in str(run.errors()[0]["error"])
        good: JSONObject = {"_tool": "numbered", "_output": {"n": "†input.n"}}
        assert await output_of(bridge, good, output="†results.0", input={"n": "5"}) == {"n": "5"}
        run = await bridge.solve("number it")
        run.submit(0, {"calls": [{"_tool": "numbered", "_output": {"n": 5}}], "output": None})
        assert await run.wait(30) == "needs_solution"
        assert "n: found 5, expected text" in str(run.answer()["requests"])


@pytest.mark.parametrize("module", [None, "anonymous"])
async def test_a_latent_result_written_in_a_room_is_held_to_the_schema_too(
    module: str | None,
) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        where: JSONObject = {} if module is None else {"_module": module}
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "numbered", **where}], "output": "†results.0"})
        )
        assert await run.wait(30) == "needs_solution"
        request = told_of(run, "requests")[0]
        room = await bridge.run(str(request["run"]))
        room.submit(request["turn"], {"calls": [], "output": {"n": 5}})
        assert await run.wait(30) == "needs_solution"
        assert "n: found 5, expected text" in str(told_of(run, "requests"))


@pytest.mark.parametrize(
    "bad", [{"type": "dict"}, {"type": "object", "properties": {"a": {"type": "float"}}}]
)
async def test_an_invalid_schema_is_refused_when_the_tool_is_added(bad: JSONObject) -> None:
    with pytest.raises(
        ToolDefinitionError, match=r"tool 'x', parameters: the schema is invalid: .*type: found"
    ):
        Toolbox(Tool("x", parameters=bad))

    with pytest.raises(ToolDefinitionError, match="tool 'x', output: the schema is invalid"):
        Toolbox(Tool("x", output=bad))

    with pytest.raises(ToolDefinitionError, match="tool 'bad', output"):
        tool(name="bad", output_schema=bad)(lambda: None)

    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        with pytest.raises(SchemaError, match="the parameters of x: the schema is invalid"):
            await bridge.solve(
                "x", context=[{"type": "tool", "tool": {"name": "x", "parameters": bad}}]
            )


def modules(tmp_path: Path) -> Configuration:
    server = preloaded.module(SERVER)
    document = {"mcpServers": {"sdk": server}, "expose": ["modules"]}
    (tmp_path / "ideabridge.json").write_text(json.dumps(document), encoding="utf-8")
    return load_configuration(tmp_path / "ideabridge.json", project=tmp_path)


async def test_tools_of_a_module_are_named_with_it_and_wrapped_results_are_unwrapped(
    tmp_path: Path,
) -> None:
    async with Bridge(modules(tmp_path), toolbox=toolbox()) as bridge:
        calls: list[JSON] = [
            {"_tool": "sdk.greet", "name": "Ada", "_outputPath": "hello"},
            {"_tool": "sdk/rows", "_outputPath": "rows"},
            {"_tool": "found", "_module": "sdk", "_outputPath": "found"},
            {"_tool": "sdk.greet", "_module": "sdk", "name": "†state.rows.0.name"},
        ]
        output: JSON = ["†state.hello", "†state.rows.1.name", "†state.found", "†results.3"]
        told = await output_of(bridge, *calls, output=output)
        # An object of a class that has a single member `result` stays as it is.
        assert told == ["hello Ada", "Grace", {"result": "x"}, "hello Ada"]
        run = await bridge.run_plan({"calls": calls, "output": ["†state.hello.result"]})
        await run.wait(30)
        assert "'result' of call 0 (greet); leave out '.result'" in str(run.errors())
        by_name = {one.name: one for one in bridge.modules.tools()}
        assert by_name["greet"].output == {"type": "string"}
        assert by_name["rows"].output is not None
        assert by_name["rows"].output["type"] == "array"
        assert by_name["found"].wrapper is None
        # Clients receive the schema that the module declares, including the marks.
        async with anyio.create_task_group() as group:
            exposed = (await Front(bridge, group, "0").catalogue.find("greet", "local")).definition
            assert exposed["outputSchema"]["title"] == "greetOutput"
            group.cancel_scope.cancel()
        # A direct call returns exactly what the module sent.
        assert await bridge.modules["sdk"].call("greet", {"name": "Ada"}) == {"result": "hello Ada"}
        assert "Did you mean 'name'?" in await refused(bridge, {"_tool": "sdk.greet", "nam": "Ada"})
        assert "unknown tool 'git.greet'" in await refused(
            bridge, {"_tool": "git.greet", "name": "Ada"}
        )
        # A type that JSON does not have is read as the type that it resembles, and a notice says so.
        assert by_name["broken"].parameters["required"] == ["options"]
        assert any(
            "'broken' has an odd" in note and '"dict"' in note
            for note in bridge.modules["sdk"].status().notes
        )


async def test_the_reason_of_a_failed_call_is_shown_in_full_up_to_a_thousand_characters() -> None:
    assert 700 < len(LONG_REASON) < 1_000
    calls: list[JSON] = [
        {"_tool": "refuse", "text": ""},
        {"_tool": "refuse", "text": "x" * 2_000},
    ]
    async with Bridge(toolbox=toolbox()) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        await run.wait(30)
        short, long = (entry["error"]["message"] for entry in told_of(run, "errors"))
        assert short.endswith(LONG_REASON)
        assert LONG_REASON[:500] in long
        assert long.endswith(" characters)")
        assert len(long) < 1_000
