"""The acceptance table of lifting: tasks by scripted minds over real servers, on two inputs and three new ones."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.replay.asking import open_asks
from ideabridge.bridge.replay.values import same
from ideabridge.tools.encoding import JSON, JSONObject
from tests.lifting.runs import called, solved
from tests.lifting.tasks import PLAIN, TASKS, TRAPS, Task
from tests.lifting.world import World, git, make_worlds, toolbox

TABLE = Path(__file__).with_name("table.md")
ANY: JSONObject = {"type": ["string", "number", "object", "array"]}


@dataclass
class Outcome:
    """What lifting made of a task. `wrong`: answers that were wrong, with who had accepted what."""

    one: str = ""
    two: str = ""
    becomes: str = ""
    wrong: list[str] = field(default_factory=list[str])
    wrong_unasked: list[str] = field(default_factory=list[str])


async def look_at(bridge: Bridge, worlds: list[World], number: int, task: Task) -> Outcome:
    outcome = Outcome()
    first, second, *fresh = worlds
    name = f"task_{number}"
    run = await solved(bridge, task.name, task.given(first), task.turns, ANY)
    restored(worlds)
    outcome.one = asked(bridge, run.id, {"runs": []})
    if published(bridge, run.id, name, {"runs": []}):
        outcome.wrong_unasked += await wrong(bridge, name, task, fresh)
    other = await solved(bridge, task.name, task.given(second), task.turns, ANY)
    restored(worlds)
    both: JSONObject = {"runs": [other.id]}
    outcome.two = asked(bridge, run.id, both)
    if published(bridge, run.id, name, both):
        outcome.becomes = "lifts wholly"
        outcome.wrong_unasked += await wrong(bridge, name, task, fresh)
    elif task.choices is None:
        outcome.becomes = "refused"
    else:
        bridge.publish(run.id, name, answer="plan", choices={**both, **task.choices})
        outcome.becomes = "with acceptance"
        outcome.wrong += await wrong(bridge, name, task, fresh)
    return outcome


def asked(bridge: Bridge, run: str, choices: JSONObject) -> str:
    """What a person is asked, in a line."""
    try:
        asks = open_asks(bridge.lift(run, choices=choices))
    except PublicationError as error:
        return f"no plan: {error}"
    return ", ".join(f"{one.kind} {one.path}" for one in asks) or "nothing"


def published(bridge: Bridge, run: str, name: str, choices: JSONObject) -> bool:
    """Whether it can be published with nobody's acceptance."""
    try:
        return bridge.publish(run, name, answer="plan", choices=choices).answer == "plan"
    except PublicationError:
        return False


async def wrong(bridge: Bridge, name: str, task: Task, fresh: list[World]) -> list[str]:
    """The new inputs for which the published plan gives a wrong answer."""
    found: list[str] = []
    for world in fresh:
        given: JSON = await called(bridge, name, task.given(world))
        right = task.answer(world)
        restored([world])
        if not same(given, right):
            found.append(f"{task.name} in {world.word}: {given!r} instead of {right!r}")
    return found


def restored(worlds: list[World]) -> None:
    """Take back what a task has done to the repositories."""
    for world in worlds:
        if git(world.repo, "rev-list", "--count", "HEAD").strip() != str(len(world.commits)):
            git(world.repo, "reset", "-q", "--hard", f"topic-{world.word}")
        dirt = f"{world.word} unsaved"
        if world.dirty:
            (world.path / "notes.txt").write_text(dirt, encoding="utf-8")
        elif git(world.repo, "status", "--porcelain"):
            git(world.repo, "checkout", "-q", "--", "notes.txt")
        (world.path / "more.txt").unlink(missing_ok=True)


async def look_at_all(folder: Path) -> dict[str, Outcome]:
    modules: JSONObject = {
        "git": {"command": sys.executable, "args": ["-m", "mcp_server_git"]},
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
    }
    worlds = make_worlds(folder)
    configuration = parse_configuration({"mcpServers": modules, "store": ":memory:"}, project=folder)
    async with Bridge(configuration, toolbox=toolbox()) as bridge:
        await bridge.modules.settled(30)
        return {task.name: await look_at(bridge, worlds, number, task) for number, task in enumerate(TASKS)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every task looked at, with one process of each server for all."""
    return anyio.run(look_at_all, tmp_path_factory.mktemp("worlds"))


def rows(outcomes: dict[str, Outcome]) -> list[str]:
    lines = [
        "| task | trap | one run asks | two runs ask | becomes |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        one = outcomes[task.name]
        lines.append(f"| {task.name} | {task.trap} | {one.one} | {one.two} | {one.becomes} |")
    return lines


def test_there_are_enough_tasks_and_traps() -> None:
    assert len(TASKS) >= 40
    assert len(TRAPS) >= 15
    assert len({task.name for task in TASKS}) == len(PLAIN) + len(TRAPS)


def test_what_lifting_makes_of_each_task_is_what_the_table_says(outcomes: dict[str, Outcome]) -> None:
    told = TABLE.read_text(encoding="utf-8").splitlines()
    assert [line for line in told if line.startswith("|")] == rows(outcomes)


def test_no_plan_gives_a_wrong_answer_that_nobody_accepted(outcomes: dict[str, Outcome]) -> None:
    assert [text for one in outcomes.values() for text in one.wrong_unasked] == []


def test_what_a_person_rightly_accepted_gives_right_answers(outcomes: dict[str, Outcome]) -> None:
    assert [text for one in outcomes.values() for text in one.wrong] == []


def test_the_document_tells_the_counts_of_the_table() -> None:
    told = [line.split(" | ")[-1].removesuffix(" |") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    wholly, accepted, refused = (told.count(what) for what in ("lifts wholly", "with acceptance", "refused"))
    document = (Path(__file__).parents[2] / "docs" / "lifting.md").read_text(encoding="utf-8")
    assert f"holds {len(TASKS)} tasks" in document
    assert f"{len(TRAPS)} of them are traps" in document
    assert f"nobody is asked | {wholly} |" in document
    assert f"accepts or takes | {accepted} |" in document
    assert f"make them right | {refused} |" in document
