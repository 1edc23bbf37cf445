"""Each JSON example of the documents runs as it stands there: in Python, over MCP, and on
the command line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Run
from ideabridge.tools import JSON, ArgumentError, Toolbox, load_tool_file
from tests.cli.conftest import Run as Command
from tests.seeds.examples import INPUT_CONTENT, INSTANCES, MESSAGES, PLAN
from tests.seeds.minds import Prepared
from tests.server.serving import call, configured, over_stdio
from tests.server.serving import refused as refused_over_mcp
from tests.trusting import write_trusted

pytestmark = pytest.mark.anyio

TOOLS = """
from ideabridge.tools import Activity, Annotations, Tool

analyze = Tool(
    "analyzeSentiment", "Whether a text is positive or negative.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    {"type": "string"}, Annotations(read_only=True),
)


async def judge(parameters, context):
    return "positive" if "wonderful" in parameters["text"] else "negative"


analyzing = Activity("analyzeSentiment", judge)
"""
STATES = {
    "①": {"text": "This is wonderful!", "sentiment": "positive"},
    "②": {"text": "This is terrible.", "sentiment": "negative"},
}
INPUT = INPUT_CONTENT.replace("...", '"city": "Paris"')
END = '{"calls": [], "output": "†①.state.sentiment"}'


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "tools.py"
    file.write_text(TOOLS, encoding="utf-8")
    return file


def toolbox(tools: Path) -> Toolbox:
    return load_tool_file(tools)


async def ended(run: Run) -> JSON:
    return await run.result()


# -- Agent/Instancing ------------------------------------------------------------------------------


async def test_both_examples_of_instancing_run_in_python(tools: Path) -> None:
    async with Bridge(toolbox=toolbox(tools)) as bridge:
        run = await bridge.solve(**json.loads(INSTANCES))
        run.submit(0, json.loads(PLAN))
        assert await run.wait(30) == "needs_solution"
        assert run.state == STATES
        run.submit(1, json.loads(END))
        assert await run.result() == "positive"
        # The plan is also a message of a context: agents follow it for each state.
        guided = await bridge.solve(
            context=[*json.loads(INSTANCES)["context"], {"type": "plan", "plan": json.loads(PLAN)}]
        )
        assert "Plan to follow" in str(guided.answer()["requests"])
        states = {name: {"text": state["text"]} for name, state in STATES.items()}
        planned = await bridge.run_plan({**json.loads(PLAN), "instances": states})
        assert await planned.result() == STATES


async def test_both_examples_of_instancing_run_over_mcp(tmp_path: Path, tools: Path) -> None:
    async with over_stdio(configured(tmp_path, tools=[str(tools)]), "auto") as client:
        told = await call(client, "solve", **json.loads(INSTANCES))
        assert told["status"] == "needs_solution"
        told = await call(client, "solve", run=told["run"], turn=0, solution=json.loads(PLAN))
        assert told["status"] == "needs_solution"
        assert '"sentiment": "negative"' in json.dumps(
            told["requests"], ensure_ascii=False
        ).replace("\\", "")
        done = await call(client, "solve", run=told["run"], turn=1, solution=json.loads(END))
        assert (done["status"], done["output"]) == ("done", "positive")
        states = await call(client, "check_run", run=told["run"], paths=["†①.state", "†②.state"])
        assert states["values"] == {"†①.state": STATES["①"], "†②.state": STATES["②"]}


def test_both_examples_of_instancing_run_on_the_command_line(
    ideabridge: Command, project: Path, tools: Path
) -> None:
    write_trusted(project, {"tools": [str(tools)]})
    (project / "context.json").write_text(INSTANCES, encoding="utf-8")
    typed = f"{PLAN.replace(chr(10), ' ')}\n{END}\n"
    done = ideabridge("solve", "--context", "context.json", "--json", typed=typed)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert (told["output"], told["state"]) == ("positive", STATES)


# -- Agent/Request ---------------------------------------------------------------------------------


async def test_the_array_of_messages_is_a_context(tmp_path: Path) -> None:
    mind = Prepared({"output": "Paris"})
    messages: list[JSON] = json.loads(MESSAGES)
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve(context=messages)
        assert await run.result() == "Paris"
        assert [one["title"] for one in bridge.runs()] == ["What is the capital of France?"]

    assert mind.requests[0].texts == messages
    async with over_stdio(configured(tmp_path), "auto") as client:
        told = await call(client, "solve", context=messages)
        # The answer does not repeat what the host sent in this call, but the whole Request can be
        # read.
        assert "You are a helpful assistant." not in str(told["requests"])
        told = await call(client, "check_run", run=told["run"])
        assert "You are a helpful assistant." in str(told["requests"])
        done = await call(client, "solve", run=told["run"], turn=0, solution={"output": "Paris"})
        assert done["output"] == "Paris"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("context.json", MESSAGES),
        ("context.jsonc", f"// What it is about\n{MESSAGES}"),
        (
            "context.yaml",
            (
                "- role: system\n  content: You are a helpful assistant.\n- What is "
                "the capital of France?\n"
            ),
        ),
    ],
)
def test_a_file_of_messages_is_a_context(
    ideabridge: Command, project: Path, name: str, text: str
) -> None:
    (project / name).write_text(text, encoding="utf-8")
    done = ideabridge("solve", "--context", name, typed='{"output": "Paris"}\n')
    assert (done.returncode, done.stdout) == (0, "Paris\n"), done.stderr
    assert "You are a helpful assistant." in done.stderr


async def test_the_content_of_a_message_is_a_typed_object(tmp_path: Path) -> None:
    messages: list[JSON] = [
        {"role": "user", "content": json.loads(INPUT)},
        json.loads(INPUT),
        "Name its country.",
    ]
    solution: JSON = {"output": "†input.city"}
    async with Bridge(mind=Prepared(solution)) as bridge:
        assert await ended(await bridge.solve(context=messages)) == "Paris"

    async with over_stdio(configured(tmp_path), "auto") as client:
        told = await call(client, "solve", context=messages)
        assert (await call(client, "solve", run=told["run"], turn=0, solution=solution))[
            "output"
        ] == "Paris"


# -- what a context may hold -----------------------------------------------------------------------

EVERY_TYPE: list[JSON] = [
    {"role": "system", "content": "Be brief."},
    {"type": "data", "kind": "rates", "data": {"eur": 1.1}, "description": "of today"},
    {"type": "weather", "weather": {"sky": "blue"}},
    {"type": "input", "input": {"city": "Paris"}, "_instance": "a"},
    {"type": "state", "state": {"n": 1}, "_instance": "a", "schema": {"type": "object"}},
    {
        "type": "tool",
        "tool": {"name": "guess", "description": "Guess it.", "_output": {"type": "integer"}},
    },
    {"type": "tool", "tool": "count"},
    {"type": "plan", "plan": {"calls": [{"_tool": "guess", "_outputPath": "n"}]}},
    {"type": "error", "error": {"call": None, "error": {"message": "it broke"}}},
    {"type": "correction", "correction": {"by": "Ann", "reason": "not so"}},
    {"role": "user", "content": "Go on."},
]
SHOWN = ("Be brief.", "†data.rates (of today)", "†data.weather", "Input, read as", "State, read as", "Guess it.",
         "Plan to follow", "it broke", "not so", "Go on.")  # fmt: skip


async def test_over_mcp_a_context_holds_every_type_of_message(tmp_path: Path) -> None:
    async with over_stdio(configured(tmp_path), "auto") as client:
        told = await call(client, "solve", context=EVERY_TYPE, tools=["pick"], thought_process=True)
        [request] = (await call(client, "check_run", run=told["run"]))["requests"]
        text = json.dumps(request, ensure_ascii=False)
        assert [one for one in SHOWN if one not in text] == []
        assert next(iter(request["schema"]["properties"])) == "thought_process"
        assert [name for name in ("pick(", "count(", "guess(", "template(") if name in text] == [
            "pick(",
            "count(",
            "guess(",
        ]
        solution: JSON = {
            "thought_process": "I guess.",
            "calls": [{"_tool": "guess", "_instance": "a", "_output": 3, "_outputPath": "n"}],
            "output": "†a.input.city",
        }
        done = await call(client, "solve", run=told["run"], turn=0, solution=solution)
        assert done["output"] == "Paris"
        assert "3" in str(await call(client, "check_run", run=told["run"], paths=["†a.state.n"]))


async def test_over_mcp_what_a_context_cannot_hold_is_told(tmp_path: Path) -> None:
    wrong: list[tuple[list[Any], str]] = [
        ([], "the context is empty"),
        ([{"type": "state"}], "context.0: a message of type 'state' requires the member 'state'"),
        (
            ["a", {"role": "robot", "content": "x"}],
            "context.1: role must be system, user or assistant",
        ),
        (
            [{"type": "tool", "tool": "cuont"}],
            "names 'cuont', which is not available here. Did you mean 'count'?",
        ),
        ([{"type": "tool", "tool": "c*"}], "expected the name of one tool"),
        (
            [{"type": "tool", "tool": {"name": "x", "_activity": "rm -rf"}}],
            "_activity: unknown activity 'rm -rf'",
        ),
        (
            [{"type": "tool", "tool": {"name": "x", "_module": "https://evil.example"}}],
            "unknown server",
        ),
    ]
    async with over_stdio(configured(tmp_path), "auto") as client:
        for context, told in wrong:
            assert told in await refused_over_mcp(client, "solve", context=context)


async def test_a_task_or_a_context_is_needed(ideabridge: Command, project: Path) -> None:
    async with Bridge() as bridge:
        contexts: list[list[JSON] | None] = [None, []]
        for context in contexts:
            with pytest.raises(
                ArgumentError, match="pass a task, or a context that says what to do"
            ):
                await bridge.solve(context=context)

    (project / "context.json").write_text(
        '{"context": [], "schema": {}, "solution": null}', encoding="utf-8"
    )
    (project / "none.json").write_text('{"messages": []}', encoding="utf-8")
    for words, told in (
        ((), "expected a TASK, or --context FILE"),
        (("--context", "none.json"), 'expected a list of messages, or {"context": [...]}'),
        (("--context", "context.json"), "--context: not read: schema, solution"),
        (("--context", "-", "--mind", "turns"), "standard input is used for the solutions"),
    ):
        done = ideabridge("solve", *words)
        assert done.returncode == 2
        assert told in done.stderr
