"""The server's own tools, in both eras, over HTTP and stdio."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, load_configuration
from ideabridge.server import running
from ideabridge.server.own_tools import LISTED, OWN_TOOLS, own_tools
from ideabridge.server.server import Front
from ideabridge.tools.builtins import builtin_toolbox

from .serving import (
    ERAS,
    Gate,
    all_tools,
    call,
    configured,
    in_memory,
    over_stdio,
    refused,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

SHOWN = {"name", "description", "input_schema"}
"""What hosts show their models."""

BUDGET = 3_499
"""The most characters of what every client lists, with the instructions: about 820 tokens, as a
token is about 4 characters.
"""

SUM: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"},
        {"_tool": "add", "a": "†state.sum", "b": "†input.b", "_outputPath": "total"},
    ],
    "input": {"a": 1, "b": 2},
    "output": {"total": "†state.total"},
}


async def test_the_own_tools_are_few_closed_and_short(client: Client) -> None:
    tools = await all_tools(client)
    assert tools.keys() >= LISTED
    assert not {"submit_solution", "search_ideas"} & tools.keys()
    told = {name: tools[name].model_dump_json(include=SHOWN, by_alias=True) for name in LISTED}
    # Clients that show forms do not list decide_approval.
    shown = [definition for name, definition in told.items() if name != "decide_approval"]
    length = sum(map(len, shown)) + len(client.instructions or "")
    print(f"{BUDGET - length} characters are free")
    assert length <= BUDGET, f"{length - BUDGET} characters too many: shorten a description"
    assert not any("$ref" in one for one in told.values())
    for name in LISTED:
        assert tools[name].description

    annotations = tools["decide_approval"].annotations
    assert annotations is not None
    assert annotations.destructive_hint is True
    reading = tools["search_tools"].annotations
    assert reading is not None
    assert reading.read_only_hint is True


def schemas_in(schema: dict[str, Any]) -> Generator[dict[str, Any]]:
    yield schema
    for part in [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]:
        yield from schemas_in(part)
    if schema.get("items"):
        yield from schemas_in(schema["items"])


async def test_all_tools_are_listed_on_request() -> None:
    configuration = Configuration(own_tools="all")
    async with (
        Bridge(configuration, store=":memory:") as bridge,
        anyio.create_task_group() as group,
    ):
        async with Client(Front(bridge, group, "0").server) as client:
            tools = await all_tools(client)
            assert {*tools} == {str(one["name"]) for one in OWN_TOOLS}
            assert "instances" in tools["run_plan"].input_schema["properties"]
        group.cancel_scope.cancel()


async def test_parameters_that_are_not_listed_are_taken_and_checked(client: Client) -> None:
    assert "instances" not in (await all_tools(client))["run_plan"].input_schema["properties"]
    told = await call(
        client,
        "run_plan",
        calls=[{"_tool": "add", "a": "†state.x", "b": 1}],
        instances={"one": {"x": 1}},
    )
    assert told["status"] == "done"
    refused = await client.call_tool("run_plan", {"calls": [], "wait_s": 1_000})
    assert refused.is_error
    assert "600" in text(refused)


@pytest.mark.parametrize("every", [False, True])
def test_hosts_pass_the_schemas_of_own_tools_on_unchanged(every: bool) -> None:
    for schema in [
        part
        for one in own_tools(programs=True, every=every)
        for part in schemas_in(one["inputSchema"])
    ]:
        # Hosts drop a schema without a type together with its description, and rewrite lists of
        # types.
        assert isinstance(schema.get("type"), str) or len(schema["anyOf"]) > 1
        if schema.get("type") == "array":
            assert "items" in schema
        if schema.get("type") == "object":
            # Some hosts close an object that does not say that it is open.
            assert "additionalProperties" in schema


async def test_run_plan_describes_a_call(client: Client) -> None:
    calls = (await all_tools(client))["run_plan"].input_schema["properties"]["calls"]
    assert calls["items"]["required"] == ["_tool"]
    assert calls["items"]["additionalProperties"] is True
    for name in ("_module", "_outputPath", "_outputMethod", "_each", "_after", "_id", "_instance"):
        assert name in calls["description"]


async def test_run_plan_says_which_calls_wait_for_others(client: Client) -> None:
    description = (await all_tools(client))["run_plan"].description or ""
    assert "changes on one server keep their order" in description


async def test_run_plan_names_the_tools_that_are_always_there(client: Client) -> None:
    description = (await all_tools(client))["run_plan"].description or ""
    for tool in builtin_toolbox():
        properties = tool.parameters["properties"]
        required = tool.parameters["required"]
        assert isinstance(properties, dict)
        assert isinstance(required, list)
        names = [name if name in required else f"{name}?" for name in properties]
        assert f"{tool.name}({', '.join(names)})" in description


async def test_descriptions_that_confused_are_one_sentence(client: Client) -> None:
    tools = await all_tools(client)
    for description in (tools["decide_approval"].description, tools["publish_idea"].description):
        assert description is not None
        assert ". " not in description.removesuffix(".")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (["†state.sum", None], [3, None]),
        ("†state.sum", 3),
        ("text", "text"),
        (5, 5),
        (False, False),
        ({"sum": "†state.sum"}, {"sum": 3}),
    ],
)
async def test_the_output_of_a_plan_is_any_json(client: Client, output: Any, expected: Any) -> None:
    calls = [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}]
    assert (await call(client, "run_plan", calls=calls, output=output))["output"] == expected


async def test_a_plan_runs_and_answers_with_its_output(client: Client) -> None:
    told = await call(client, "run_plan", **SUM)
    assert told["status"] == "done"
    assert told["output"] == {"total": 5}
    assert told["errors"] == []
    assert told["run"].startswith("run_")
    assert "idea" not in told


async def test_without_an_output_a_plan_answers_with_its_state(client: Client) -> None:
    told = await call(
        client, "run_plan", calls=[{"_tool": "add", "a": 2, "b": 3, "_outputPath": "sum"}]
    )
    assert told["state"] == {"sum": 5}
    assert "output" not in told


async def test_an_error_in_a_call_is_told_and_the_rest_runs(client: Client) -> None:
    result = await client.call_tool(
        "run_plan",
        {
            "calls": [
                {"_tool": "fail", "message": "no luck", "_outputPath": "x"},
                {"_tool": "add", "a": 1, "b": 1, "_outputPath": "sum"},
            ]
        },
    )
    told = structured(result)
    assert not result.is_error
    assert told["status"] == "done"
    assert told["state"] == {"sum": 2}
    assert told["errors"][0]["call"]["_tool"] == "fail"
    assert "no luck" in text(result)


async def test_a_dry_run_calls_nothing(client: Client, tmp_path: Path) -> None:
    note = tmp_path / "note"
    told = await call(
        client,
        "run_plan",
        calls=[*SUM["calls"], {"_tool": "write_note", "path": str(note), "text": "x"}],
        input=SUM["input"],
        dry_run=True,
    )
    assert told["layers"][0][0] == 0
    assert told["not_read_only"] == [2]
    assert "2 write_note" in told["drawing"]
    assert not note.exists()


async def test_a_plan_runs_for_every_instance(client: Client) -> None:
    told = await call(
        client,
        "run_plan",
        calls=[{"_tool": "add", "a": "†state.n", "b": 1, "_outputPath": "m"}],
        instances={"①": {"n": 1}, "②": {"n": 2}},
    )
    assert told["state"]["①"]["m"] == 2
    assert told["state"]["②"]["m"] == 3


async def test_large_values_come_as_references_and_whole_by_path(client: Client) -> None:
    told = await call(
        client, "run_plan", calls=[{"_tool": "big", "size": 50_000, "_outputPath": "big"}]
    )
    assert told["state"]["big"]["small"] == "here"
    reference = told["state"]["big"]["large"]["reference"]
    assert told["state"]["big"]["large"]["bytes"] > 50_000
    whole = await call(client, "check_run", run=told["run"], paths=[reference, "†state.nothing"])
    assert whole["values"][reference] == "x" * 50_000
    assert "†state.nothing" in whole["missing"]


async def test_a_value_too_large_for_an_answer_is_shown_by_its_parts(client: Client) -> None:
    told = await call(
        client, "run_plan", calls=[{"_tool": "big", "size": 900_000, "_outputPath": "big"}]
    )
    whole = await call(client, "check_run", run=told["run"], paths=["†state.big"])
    shown = whole["values"]["†state.big"]
    assert shown["bytes"] > 900_000
    assert "small, large" in shown["note"]
    part = await call(client, "check_run", run=told["run"], paths=["†state.big.small"])
    assert part["values"] == {"†state.big.small": "here"}


async def test_check_run_without_a_run_tells_the_latest(client: Client) -> None:
    run = (await call(client, "run_plan", **SUM))["run"]
    latest = await call(client, "check_run")
    assert latest["runs"][0]["run"] == run
    assert latest["runs"][0]["status"] == "done"


def held(gate: Gate) -> dict[str, Any]:
    return {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}


async def test_a_long_run_answers_running_and_goes_on(client: Client, gate: Gate) -> None:
    told = await call(
        client,
        "run_plan",
        calls=[{"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}],
        wait_s=0,
    )
    assert told["status"] == "running"
    gate.open()
    done = await call(client, "check_run", run=told["run"], wait_s=10)
    assert done["status"] == "done"
    assert done["state"] == {"x": "open"}


async def test_a_run_can_be_cancelled(client: Client, gate: Gate) -> None:
    told = await call(
        client,
        "run_plan",
        calls=[{"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}],
        wait_s=0,
    )
    ended = await call(client, "check_run", run=told["run"], cancel=True)
    assert ended["status"] == "cancelled"
    again = await call(client, "check_run", run=told["run"], cancel=True)
    assert again["status"] == "cancelled"


async def test_tools_are_found_by_words(client: Client) -> None:
    found = await call(client, "search_tools", words="count the words of a text", limit=2)
    assert found["tools"][0]["name"] == "count_words"
    assert found["tools"][0]["signature"].startswith("tools.count_words(text: str")
    assert "parameters" not in found["tools"][0]
    assert "annotations" not in found["tools"][0]
    assert len(found["tools"]) <= 2
    everything = await call(client, "search_tools", words="", limit=100)
    assert {"add", "big"} <= {tool["name"] for tool in everything["tools"]}
    for name in ("count_words", "tools.count_words"):
        named = (await call(client, "search_tools", words=name))["tools"][0]
        assert named["name"] == "count_words"
        assert named["parameters"]["properties"]["text"]["type"] == "string"


async def test_ideas_are_found_published_and_called(client: Client) -> None:
    name = f"add_twice_{client.protocol_version.replace('-', '_')}"
    run = (await call(client, "run_plan", **SUM))["run"]
    told = await call(client, "publish_idea", idea=run, name=name, description="Add b twice to a.")
    assert told["version"] == 1
    assert told["answer"] == "auto"
    tool = (await all_tools(client))[name]
    assert tool.input_schema["required"] == ["a", "b"]
    assert tool.description == "Add b twice to a."
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert await call(client, name, a=10, b=5) == {"total": 20}
    assert "a" in await refused(client, name, a="ten", b=5)
    found = await call(client, "search_ideas", words="add b twice")
    assert name in found["ideas"][0]["published_as"]


async def test_a_plan_can_be_saved_as_a_tool_when_done(client: Client) -> None:
    name = f"saved_{client.protocol_version.replace('-', '_')}"
    told = await call(client, "run_plan", **SUM, save_as=name)
    assert told["saved"]["name"] == name
    assert told["saved"]["version"] == 1
    assert await call(client, name, a=1, b=1) == {"total": 3}
    again = await call(client, "check_run", run=told["run"])
    assert again["saved"] == told["saved"]


async def test_an_answer_waits_as_long_for_the_tool_of_a_run_as_for_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_SAVED_S", 0.0)
    async with (
        Bridge(Configuration(), store=":memory:") as bridge,
        anyio.create_task_group() as group,
        Client(Front(bridge, group, "0").server) as client,
    ):
        calls = [{"_tool": "count", "items": "†input.rows", "_outputPath": "n"}]
        told = await call(client, "run_plan", calls=calls, input={"rows": [1]}, save_as="count_up")
        assert told["saved"]["version"] == 1
        assert await call(client, "count_up", rows=[1, 2]) == {"n": 2}
        group.cancel_scope.cancel()


async def test_a_plan_of_constants_is_saved_with_them_as_parameters(client: Client) -> None:
    told = await call(
        client,
        "run_plan",
        calls=[{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}],
        save_as="constants",
    )
    assert told["status"] == "done"
    assert told["saved"]["name"] == "constants"
    assert (await call(client, "constants"))["sum"] == 3
    assert (await call(client, "constants", b=5))["sum"] == 6
    parameters = (await all_tools(client))["constants"].input_schema
    assert {key: one["default"] for key, one in parameters["properties"].items()} == {
        "a": 1,
        "b": 2,
    }
    assert not parameters.get("required")


async def test_a_failure_to_save_is_told_in_the_answer(client: Client, gate: Gate) -> None:
    started = await call(client, "run_plan", calls=[held(gate)], save_as="never", wait_s=0)
    await call(client, "check_run", run=started["run"], cancel=True)
    told = await call(client, "check_run", run=started["run"], wait_s=10)
    assert told["status"] == "cancelled"
    assert told["saved"] == {"name": "never", "error": "not published: the run is cancelled"}
    assert "never" not in await all_tools(client)


async def test_a_name_that_is_taken_before_the_run_ends_is_reported_once_and_not_tried_again(
    tmp_path: Path,
) -> None:
    configuration = configured(tmp_path)
    note = {
        "_tool": "write_note",
        "path": "†input.path",
        "text": "†input.text",
        "_outputPath": "written",
    }
    async with in_memory(configuration, "legacy") as client:
        given = {"path": str(tmp_path / "note"), "text": "oak"}
        told = await call(client, "run_plan", calls=[note], input=given, save_as="noted")
        assert told["status"] == "needs_approval"

    async with Bridge(load_configuration(configuration)) as bridge:
        other = await bridge.run_plan(SUM, caller="bob")
        await other.wait()
        await bridge.publish(other.id, "noted", caller="bob")

    async with in_memory(configuration, "legacy") as client:
        approve = {"approval": told["approvals"][0]["approval"], "decision": "approve"}
        told = await call(client, "decide_approval", run=told["run"], decisions=[approve])
        assert told["status"] == "done"
        taken = "another owner has published the name 'noted'; choose another name"
        assert told["saved"] == {"name": "noted", "error": taken}
        assert (await call(client, "check_run", run=told["run"]))["saved"] == told["saved"]


async def test_a_recorded_idea_answers_for_its_input_alone(client: Client) -> None:
    name = f"recorded_{client.protocol_version.replace('-', '_')}"
    run = (await call(client, "run_plan", **SUM))["run"]
    told = await call(client, "publish_idea", idea=run, name=name, answer="recorded")
    assert told["answer"] == "recorded"
    assert await call(client, name, b=2, a=1) == {"total": 5}
    assert "recorded with" in await refused(client, name, a=7, b=7)


async def test_the_text_alone_suffices(client: Client) -> None:
    result = await client.call_tool("run_plan", SUM)
    run = structured(result)["run"]
    assert run in text(result)
    assert '"total":5' in text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_everything_works_over_stdio(tmp_path: Path, mode: str) -> None:
    async with over_stdio(configured(tmp_path), mode) as client:
        assert (await all_tools(client)).keys() >= LISTED
        told = await call(client, "run_plan", **SUM, save_as="add_twice")
        assert told["output"] == {"total": 5}
        # No recorded run had a zero, but this alone does not make an answer wrong.
        result = await client.call_tool("add_twice", {"a": 0, "b": 1})
        assert structured(result) == {"total": 2}
        assert result.meta is not None
        assert any("zero" in one["what"] for one in result.meta["ideabridge/notes"])
        big = await call(
            client, "run_plan", calls=[{"_tool": "big", "size": 300_000, "_outputPath": "big"}]
        )
        whole = await call(client, "check_run", run=big["run"], paths=["†state.big.large"])
        assert len(whole["values"]["†state.big.large"]) == 300_000


@pytest.mark.parametrize("mode", ERAS)
async def test_cancelling_the_request_cancels_the_run(
    tmp_path: Path, mode: str, gate: Gate
) -> None:
    plan = {"calls": [held(gate)]}
    started = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with over_stdio(configured(tmp_path), mode) as client, anyio.create_task_group() as group:

        async def run() -> None:
            await client.call_tool("run_plan", plan, progress_callback=on_progress)

        group.start_soon(run)
        with anyio.fail_after(20):
            await started.wait()

        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            latest = await call(client, "check_run")
            ended = await call(client, "check_run", run=latest["runs"][0]["run"], wait_s=10)
            assert ended["status"] == "cancelled"
            gate.open()


async def test_a_tool_that_nobody_described_tells_what_it_calls_and_gives(client: Client) -> None:
    name = f"untold_{client.protocol_version.replace('-', '_')}"
    run = (await call(client, "run_plan", **SUM))["run"]
    await call(client, "publish_idea", idea=run, name=name)
    assert str((await all_tools(client))[name].description).startswith("Calls add and gives total.")
    await call(client, "publish_idea", idea=run, name=name, answer="recorded")
    description = (await all_tools(client))[name].description
    assert str(description).endswith('That input: {"a":1,"b":2}')
    found = await call(client, "search_tools", words=name)
    assert found["tools"][0]["description"] == description
    assert "annotations" not in found["tools"][0]


async def test_a_plan_calls_an_idea_by_its_name_or_as_the_module_it_is(client: Client) -> None:
    name = f"named_{client.protocol_version.replace('-', '_')}"
    await call(client, "run_plan", **SUM, save_as=name)
    for module in ({}, {"_module": f"idea:{name}"}):
        run = await call(client, "run_plan", calls=[{"_tool": name, **module, "a": 1, "b": 2}])
        assert run["errors"] == []


async def test_several_questions_are_answered_together(client: Client) -> None:
    found = await call(
        client,
        "search_tools",
        words=["count the items of an array", "join texts", "join texts", "add"],
    )
    names = [one["name"] for one in found["tools"]]
    assert {"count", "join", "add"} <= {*names}
    assert len(names) == len({*names})
    exact = await call(client, "search_tools", words=["add", "something else"])
    assert "parameters" in next(one for one in exact["tools"] if one["name"] == "add")
    assert (await call(client, "search_tools", words=[]))["found"] > 3
