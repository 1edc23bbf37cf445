"""What a published run takes in place of its literals is chosen by the person, not by the model
in their place.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.asking.forms import Commands, publication_form
from ideabridge.tools.encoding import JSONObject
from tests import preloaded
from tests.server.serving import (
    BIN,
    ERAS,
    all_tools,
    call,
    configured,
    in_memory,
    over_stdio,
    refused,
    text,
)

pytestmark = pytest.mark.anyio

UNHURRIED = Path(__file__).parent / "launch_unhurried.py"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def unhurried(path: Path) -> list[str]:
    return preloaded.python(UNHURRIED, str(path))


def person(
    action: Any, decision: str | None = None
) -> tuple[list[str], Callable[..., Awaitable[types.ElicitResult]]]:
    """What the forms said that a person was shown, and what answers them."""
    shown: list[str] = []

    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        shown.append(params.message)
        return types.ElicitResult(
            action=action, content=None if decision is None else {"decision": decision}
        )

    return shown, callback


async def solved(client: Client, a: str | int = "41") -> str:
    """A run of which nobody can tell whether its literals are the same for every input."""
    told = await call(
        client, "solve", task="Add.", input={"a": a}, output_schema={"type": "integer"}
    )
    solution = {
        "calls": [{"_tool": "add", "a": 41, "b": 7, "_outputPath": "sum"}],
        "output": "†state.sum",
    }
    done = await call(client, "submit_solution", run=told["run"], turn=0, solution=solution)
    assert done["status"] == "done"
    return done["run"]


def decided_by(folder: Path, name: str) -> Any:
    with Store.open(folder / "ideas.sqlite") as store:
        plan: Any = store.publications.get(name, caller=SEES_ALL).plan
        return plan["lifting"]["decided_by"]


TAKEN: dict[str, Any] = {
    "take": {"calls.0.a": {"convert": "†input.a", "by": ["number"]}, "calls.0.b": "keep"}
}


async def test_publishing_without_choices_asks_nobody_and_says_what_it_takes(
    era: str, tmp_path: Path
) -> None:
    shown, callback = person("accept", "approve")
    async with over_stdio(configured(tmp_path), era, elicitation_callback=callback) as client:
        run = await solved(client, 1)
        result = await client.call_tool(
            "publish_idea", {"idea": run, "name": "sum_up", "answer": "plan"}
        )
        assert not result.is_error, text(result)
        for line in ("add_a (e.g. 41): always the same", "b (e.g. 7): always the same"):
            assert f"\n{line}\n" in text(result)

        assert await call(client, "sum_up", a=1) == {"result": 48}
        assert await call(client, "sum_up", a=1, add_a=50, b=8) == {"result": 58}

    assert not shown
    with Store.open(tmp_path / "ideas.sqlite") as store:
        plan: Any = store.publications.get("sum_up", caller=SEES_ALL).plan

    # Nobody has decided anything.
    assert "decided_by" not in plan["lifting"]


async def test_the_person_accepts_the_choices_in_a_form(era: str, tmp_path: Path) -> None:
    shown, callback = person("accept", "approve")
    async with in_memory(configured(tmp_path), era, elicitation_callback=callback) as client:
        run = await solved(client)
        told = await call(
            client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN
        )
        assert [*told["input_schema"]["properties"]] == ["a"]
        assert await call(client, "sum_up", a="42") == {"result": 49}

    [form] = shown
    assert form.startswith(f"Publish {run} as the tool sum_up, with these choices?\n\n  | take  ")
    # The form breaks long lines, and marks each of them.
    whole = " ".join(form.replace("  | ", "").split())
    for path, value in TAKEN["take"].items():
        assert f'"{path}": {json.dumps(value, ensure_ascii=False)}' in whole

    assert "The assistant made the choices." in form
    assert decided_by(tmp_path, "sum_up") == {"kind": "person", "via": "form", "user": "local"}


@pytest.mark.parametrize(
    ("action", "decision", "expected"),
    [
        ("accept", "deny", "the person refused them"),
        ("accept", None, "has not accepted them"),
        ("accept", "yes", "has not accepted them"),
        ("cancel", None, "has not accepted them"),
    ],
)
async def test_without_the_person_nothing_is_published(
    era: str, action: str, decision: str | None, expected: str, tmp_path: Path
) -> None:
    shown, callback = person(action, decision)
    async with in_memory(configured(tmp_path), era, elicitation_callback=callback) as client:
        run = await solved(client)
        said = await refused(
            client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN
        )
        assert expected in said
        assert "sum_up" not in await all_tools(client)

    assert len(shown) == 1


async def test_where_no_forms_are_shown_the_choices_are_the_assistants(
    era: str, tmp_path: Path
) -> None:
    async with in_memory(configured(tmp_path), era) as client:
        run = await solved(client)
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN)
    assert decided_by(tmp_path, "sum_up") == {"kind": "assistant", "via": "tool", "user": "local"}


async def test_approval_by_person_leaves_the_choices_to_the_terminal(
    era: str, tmp_path: Path
) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    async with in_memory(configuration, era) as client:
        run = await solved(client)
        said = await refused(
            client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN
        )
        assert f"at a terminal: ideabridge ideas publish {run} sum_up" in said
        assert "sum_up" not in await all_tools(client)

    options = ["--take", "calls.0.b=keep", "--config", str(configuration)]
    command = preloaded.python(BIN / "ideabridge", "ideas", "publish", run, "sum_up", *options)
    ended = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert decided_by(tmp_path, "sum_up") == {"kind": "person", "via": "command", "user": "local"}


async def test_a_form_declined_at_once_is_nobodys_answer(era: str, tmp_path: Path) -> None:
    shown, callback = person("decline")
    async with over_stdio(
        configured(tmp_path), era, start=unhurried, elicitation_callback=callback
    ) as client:
        run = await solved(client)
        said = await refused(
            client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN
        )
        assert "nobody was asked: the client declined the form at once" in said
        # From now on, this session counts as one without forms.
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKEN)

    assert len(shown) == 1
    assert decided_by(tmp_path, "sum_up")["kind"] == "assistant"


def test_choices_that_are_not_shown_whole_cannot_be_approved() -> None:
    taken: JSONObject = {f"calls.{number}.path": "keep" for number in range(500)}
    taken["calls.500.path"] = "†input.path"
    shown, form = publication_form("run_1", "sum_up", {"take": taken}, Commands())
    asked: Any = form
    assert asked["properties"]["decision"]["enum"] == ["deny"]
    assert "  ideabridge ideas publish run_1 sum_up" in shown.split("\n")
    assert len(shown) < 3000
