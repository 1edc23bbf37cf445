"""Published ideas that a mind solves anew, called as tools: a model, sampling,
turns; and `auto`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ideabridge.bridge.store.store import Store
from tests.minds.fake import endpoint, say

from .sampled import Model, said
from .serving import (
    ERAS,
    all_tools,
    call,
    configured,
    http_process,
    over_stdio,
    refused,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

SUM: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": 1, "_outputPath": "sum"}],
    "input": {"a": 1},
    "output": {"total": "†state.sum"},
    "output_schema": {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    },
}
SOLUTION: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": 1, "_outputPath": "sum"}],
    "output": {"total": "†state.sum"},
}
WRONG: dict[str, Any] = {"calls": [], "output": {"total": "many"}}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def publish(
    client: Client, answer: str, name: str = "plus_one", **plan: Any
) -> dict[str, Any]:
    ran = await call(client, "run_plan", **{**SUM, **plan})
    arguments = {"idea": ran["run"], "name": name, "description": "Add one to a.", "answer": answer}
    return await call(client, "publish_idea", **arguments)


async def test_the_configured_model_solves_a_published_idea_anew(tmp_path: Path) -> None:
    answers = [say(json.dumps(one, ensure_ascii=False)) for one in (WRONG, SOLUTION)]
    async with endpoint(*answers, *answers) as fake:
        configuration = configured(
            tmp_path, model={"name": "openai:tiny-1", "base_url": fake.base_url}
        )
        with http_process(configuration) as url:
            for asked, era in enumerate(ERAS):
                name = f"plus_one_{era}"
                async with Client(url, mode=era, read_timeout_seconds=60) as client:
                    told = await publish(client, "solve", name)
                    assert told["answer"] == "solve"
                    definition = (await all_tools(client))[name]
                    assert "A model solves the task again" in (definition.description or "")
                    assert definition.annotations is not None
                    assert definition.annotations.read_only_hint is True
                    result = await client.call_tool(name, {"a": 41})
                assert not result.is_error, text(result)
                # The output that did not satisfy the output schema was not sent.
                assert structured(result) == {"total": 42}
                assert result.meta is not None
                assert result.meta["ideabridge/answer"] == "solve"
                first = 2 * asked
                assert "found" in fake.texts(first + 1)
                for part in ("Add one to a.", "how it was solved before", "41"):
                    assert part in fake.texts(first)
                # Only the tools that the idea was offered can be called.
                assert "write_note" not in json.dumps(fake.bodies[first])
                with Store.open(tmp_path / "ideas.sqlite") as store:
                    steps = store.ideas.of_run(result.meta["ideabridge/run"])
                    assert steps[0].meta.parent == told["idea"]
                    assert steps[0].meta.mind == "model"


async def solved_anew(client: Client, model: Model, name: str) -> None:
    """The client's model solves a published idea, called as a tool and in a run of its own."""
    await publish(client, "solve", name)
    result = await client.call_tool(name, {"a": 4})
    assert not result.is_error, text(result)
    assert structured(result) == {"total": 5}
    # The same holds if a mind that samples calls it in a run of its own.
    inner = {"_tool": name, "_module": f"idea:{name}", "a": 6, "_outputPath": "x"}
    model.answers.insert(0, {"calls": [inner], "output": "†state.x.total"})
    arguments: dict[str, Any] = {
        "task": "Add.",
        "tools": [f"idea:{name}"],
        "output_schema": {"type": "integer"},
    }
    told = await call(client, "solve", **arguments)
    assert (told["status"], told["output"]) == ("done", 7)
    assert model.answers == []
    assert "how it was solved before" in said(model.asked[0])


async def test_the_clients_model_solves_a_published_idea_anew(era: str, tmp_path: Path) -> None:
    model = Model(WRONG, SOLUTION, SOLUTION)
    async with over_stdio(configured(tmp_path), era, **model.keys) as client:
        await solved_anew(client, model, "plus_one")


async def test_over_http_too_the_clients_model_solves_a_published_idea_anew(
    era: str, shared_url: str
) -> None:
    model = Model(WRONG, SOLUTION, SOLUTION)
    async with Client(shared_url, mode=era, read_timeout_seconds=60, **model.keys) as client:
        await solved_anew(client, model, f"sampled_{era}")


async def test_by_turns_the_answer_is_an_error_that_holds_the_request(client: Client) -> None:
    name = f"plus_{client.protocol_version.replace('-', '_')}"
    await publish(client, "solve", name)
    assert "a" in await refused(client, name, a="four")
    result = await client.call_tool(name, {"a": 4})
    # There is no output yet, and what is returned instead does not satisfy its output schema.
    assert result.is_error
    told = structured(result)
    assert told["status"] == "needs_solution"
    for part in ("with solve", "Add one to a.", "how it was solved before", told["run"], "turn: 0"):
        assert part in text(result)

    assert "found" in await refused(
        client, "submit_solution", run=told["run"], turn=0, solution={"calls": 1}
    )
    run = told["run"]
    told = await call(client, "submit_solution", run=run, turn=0, solution=WRONG)
    assert told["status"] == "needs_solution"
    told = await call(client, "submit_solution", run=run, turn=1, solution=SOLUTION)
    assert (told["status"], told["output"]) == ("done", {"total": 5})


async def test_by_turns_the_step_of_a_plan_that_solves_anew_is_asked_for(client: Client) -> None:
    name = f"step_{client.protocol_version.replace('-', '_')}"
    await publish(client, "solve", name)
    calls = [{"_tool": name, "_module": f"idea:{name}", "a": 4, "_outputPath": "x"}]
    told = await call(client, "run_plan", calls=calls, output="†state.x.total")
    assert told["status"] == "needs_solution"
    [request] = told["requests"]
    told = await call(
        client, "submit_solution", run=request["run"], turn=request["turn"], solution=SOLUTION
    )
    assert (told["status"], told["output"]) == ("done", 5)


async def test_the_answer_says_which_way_auto_took(client: Client) -> None:
    name = f"auto_{client.protocol_version.replace('-', '_')}"
    told = await publish(client, "auto", name, calls=[{**SUM["calls"][0], "b": "†input.a"}])
    assert told["answer"] == "auto"
    runs: set[str] = set()
    for _ in range(2):
        result = await client.call_tool(name, {"a": 7})
        assert structured(result) == {"total": 14}
        assert result.meta is not None
        assert result.meta["ideabridge/answer"] == "plan"
        runs.add(result.meta["ideabridge/run"])

    assert len(runs) == 2
