"""What only a person can know of a run that is published is not accepted by the model in their place."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from ideabridge.bridge.store.store import Store
from ideabridge.server.asking.forms import Commands, publication_form
from ideabridge.tools.encoding import JSON
from tests import preloaded
from tests.server.serving import BIN, ERAS, all_tools, call, configured, over_stdio, refused

pytestmark = pytest.mark.anyio

UNHURRIED = Path(__file__).parent / "launch_unhurried.py"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def unhurried(path: Path) -> list[str]:
    return preloaded.python(UNHURRIED, str(path))


def person(action: Any, decision: str | None = None) -> tuple[list[str], Callable[..., Awaitable[types.ElicitResult]]]:
    """What the forms said that a person was shown, and what answers them."""
    shown: list[str] = []

    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        shown.append(params.message)
        return types.ElicitResult(action=action, content=None if decision is None else {"decision": decision})

    return shown, callback


async def solved(client: Client) -> str:
    """A run of which nobody can tell whether its literals are the same for every input."""
    told = await call(client, "solve", task="Add.", input={"a": 1}, output_schema={"type": "integer"})
    solution = {"calls": [{"_tool": "add", "a": 41, "b": 7, "_outputPath": "sum"}], "output": "†state.sum"}
    done = await call(client, "submit_solution", run=told["run"], turn=0, solution=solution)
    assert done["status"] == "done"
    return done["run"]


def decided_by(folder: Path, name: str) -> Any:
    with Store.open(folder / "ideas.sqlite") as store:
        plan: Any = store.publications.get(name).plan
        return plan["lifting"]["decided_by"]


TAKE: dict[str, Any] = {"take": {"calls.0.b": "keep"}}


async def test_the_person_accepts_the_choices_in_a_form(era: str, tmp_path: Path) -> None:
    shown, callback = person("accept", "approve")
    async with over_stdio(configured(tmp_path), era, elicitation_callback=callback) as client:
        run = await solved(client)
        # Without choices nothing is decided, so nobody is asked.
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan")
        assert not shown
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
    [text] = shown
    assert text.startswith(f"Publish {run} as the tool sum_up, with these choices?\n\n  | take: {{")
    assert '"calls.0.b": "keep"' in text or '"calls.0.b":"keep"' in text
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
    async with over_stdio(configured(tmp_path), era, elicitation_callback=callback) as client:
        run = await solved(client)
        said = await refused(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
        assert expected in said
        assert "sum_up" not in await all_tools(client)
    assert len(shown) == 1


async def test_where_no_forms_are_shown_the_choices_are_the_assistants(era: str, tmp_path: Path) -> None:
    async with over_stdio(configured(tmp_path), era) as client:
        run = await solved(client)
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
    assert decided_by(tmp_path, "sum_up") == {"kind": "assistant", "via": "tool", "user": "local"}


async def test_approval_by_person_leaves_the_choices_to_the_terminal(era: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    async with over_stdio(configuration, era) as client:
        run = await solved(client)
        said = await refused(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
        assert f"at a terminal: ideabridge ideas publish {run} sum_up" in said
        assert "sum_up" not in await all_tools(client)
    command = [
        BIN / "ideabridge",
        "ideas",
        "publish",
        run,
        "sum_up",
        "--take",
        "calls.0.b=keep",
        "--config",
        configuration,
    ]
    ended = await anyio.run_process([str(one) for one in command], stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert decided_by(tmp_path, "sum_up") == {"kind": "person", "via": "command", "user": "local"}


async def test_a_form_declined_at_once_is_nobodys_answer(era: str, tmp_path: Path) -> None:
    shown, callback = person("decline")
    async with over_stdio(configured(tmp_path), era, start=unhurried, elicitation_callback=callback) as client:
        run = await solved(client)
        said = await refused(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
        assert "nobody was asked: the client declined the form at once" in said
        # From now on the session counts as one without forms.
        await call(client, "publish_idea", idea=run, name="sum_up", answer="plan", choices=TAKE)
    assert len(shown) == 1
    assert decided_by(tmp_path, "sum_up")["kind"] == "assistant"


def test_choices_that_are_not_shown_whole_cannot_be_approved() -> None:
    take: JSON = {f"calls.{number}.path": f"†input.path_{number}" for number in range(500)}
    text, form = publication_form("run_1", "sum_up", {"take": take}, Commands())
    asked: Any = form
    assert asked["properties"]["decision"]["enum"] == ["deny"]
    assert "  ideabridge ideas publish run_1 sum_up" in text.split("\n")
    assert len(text) < 3000
