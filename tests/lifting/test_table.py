"""The acceptance table of lifting: tasks by scripted minds over real servers, and what
their tools answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded
from tests.lifting.file_tasks import FILES, file_toolbox, make_papers
from tests.lifting.people_tasks import PEOPLE
from tests.lifting.runs import Shortener, answered, solved
from tests.lifting.tasks import PLAIN, TRAPS, Task
from tests.lifting.world import World, git, lettered_folder, make_worlds, notes_of, toolbox
from tests.npm import needs, program

BIN = Path(sys.executable).parent
TASKS = [*PLAIN, *TRAPS, *PEOPLE]
EVERY = [*TASKS, *FILES]
ANY: JSONObject = {"type": ["string", "number", "object", "array"]}


@dataclass
class Outcome:
    """What one, two and three runs make of a task: the cells of its row, and its
    silently wrong answers.
    """

    cells: list[str] = field(default_factory=list[str])
    silent: list[str] = field(default_factory=list[str])


Restore = Callable[[list[World]], None]
"""A function that takes back what tasks have done in some worlds."""


async def look_at(
    bridge: Bridge, worlds: list[World], number: int, task: Task, most: int, restore: Restore
) -> Outcome:
    """Publish a task from one run, from two, ..., and call each tool with three new inputs."""
    outcome = Outcome()
    runs: list[str] = []
    for count in range(1, most + 1):
        runs.append((await work(bridge, task, worlds[count - 1])).id)
        restore(worlds)
        name = f"task_{number}_{count}"
        try:
            published = await bridge.publish(runs[0], name, choices={"runs": list[JSON](runs[1:])})
        except PublicationError:
            # Runs that are named must have the same shape.
            outcome.cells.append("another shape")
            continue

        if published.plan is None:
            outcome.cells.append("solved anew" if published.guide is not None else "recorded")
            continue

        outcome.cells.append(await replayed(bridge, name, task, worlds[-3:], outcome, restore))

    return outcome


async def replayed(
    bridge: Bridge, name: str, task: Task, fresh: list[World], outcome: Outcome, restore: Restore
) -> str:
    """The cell for one published plan: how many answers were right, and whether they said
    what they assumed.
    """
    tally: Counter[str] = Counter()
    asked = False
    for world in fresh:
        try:
            answer = await answered(bridge, name, task.given(world))
            right = task.answer(world)
        except IdeabridgeError:
            tally["failed"] += 1
            continue
        finally:
            restore([world])

        asked = asked or bool(answer.asked)
        correct = same(answer.value, right)
        if not correct and answer.is_sure:
            outcome.silent.append(
                f"{name} {task.name} in {world.word}: {answer.value!r} instead of {right!r}"
            )

        tally[f"{'right' if correct else 'wrong'}{'' if answer.is_sure else ', assumed'}"] += 1

    cell = "; ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    return f"{cell}; asked" if asked else cell


async def work(bridge: Bridge, task: Task, world: World) -> Run:
    """What the mind, and the people about it, do of a task in a world."""
    given = task.given(world)
    return await solved(
        bridge, task.name, given, task.turns, ANY, person=task.person, context=task.context
    )


def restore_repositories(worlds: list[World]) -> None:
    """Take back what a task has done to the repositories."""
    for world in worlds:
        # Read the files of the repository directly, because starting git thousands of times takes
        # longer than everything else here.
        if tip_of(world.path) != (world.path / f".git/refs/heads/topic-{world.word}").read_text(
            encoding="utf-8"
        ):
            git(world.repo, "reset", "-q", "--hard", f"topic-{world.word}")
        notes = world.path / "notes.txt"
        if world.dirty:
            notes.write_text(f"{world.word} unsaved", encoding="utf-8")
        elif notes.read_text(encoding="utf-8") != notes_of(world.word, len(world.commits)):
            git(world.repo, "checkout", "-q", "--", "notes.txt")
        (world.path / "more.txt").unlink(missing_ok=True)


def tip_of(repo: Path) -> str:
    """The id of the commit that is checked out, as git writes it."""
    head = (repo / ".git/HEAD").read_text(encoding="utf-8")
    return (repo / ".git" / head.removeprefix("ref: ").strip()).read_text(encoding="utf-8")


def python_servers(_: Path) -> JSONObject:
    return {
        "git": preloaded.module(BIN / "mcp-server-git"),
        "time": preloaded.module(BIN / "mcp-server-time", "--local-timezone", "UTC"),
    }


def npm_servers(folder: Path) -> JSONObject:
    command, *arguments = program("mcp-server-filesystem")
    return {"files": {"command": command, "args": [*arguments, str(folder.resolve())]}}


@dataclass(frozen=True)
class Part:
    """A part of the table: tasks over the same servers. `restore`: takes back what its tasks have
    done. `shown`: the rows that a test must find again.
    """

    name: str
    tasks: list[Task]
    tools: Callable[[], Toolbox]
    servers: Callable[[Path], JSONObject]
    restore: Restore

    @property
    def table(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.md")

    @property
    def shown(self) -> list[str]:
        return [
            line
            for line in self.table.read_text(encoding="utf-8").splitlines()
            if line.startswith("|")
        ]


PARTS = [
    Part("table", TASKS, toolbox, python_servers, restore_repositories),
    Part("table_files", FILES, file_toolbox, npm_servers, make_papers),
]


def looked_at(part: Part, most: int) -> dict[str, Outcome]:
    with lettered_folder() as folder:
        return anyio.run(look_at_all, folder, part, most)


async def look_at_all(folder: Path, part: Part, most: int) -> dict[str, Outcome]:
    worlds = make_worlds(folder)
    part.restore(worlds)
    raw: JSONObject = {
        "mcpServers": part.servers(folder),
        "store": "store.sqlite",
        "approval": {"default": "read_only"},
    }
    configuration = parse_configuration(raw, project=folder)
    async with Bridge(configuration, toolbox=part.tools(), mind=Shortener()) as bridge:
        await bridge.modules.settled(30)
        return {
            task.name: await look_at(bridge, worlds, number, task, most, part.restore)
            for number, task in enumerate(part.tasks)
        }


_PARTS = [PARTS[0], pytest.param(PARTS[1], marks=needs("@modelcontextprotocol/server-filesystem"))]


@pytest.fixture(scope="module", params=_PARTS, ids=lambda part: part.name)
def part(request: pytest.FixtureRequest) -> Part:
    return request.param


@pytest.fixture(scope="module")
def outcomes(part: Part) -> dict[str, Outcome]:
    """Every task from one and two runs, with one process of each server for all."""
    return looked_at(part, 2)


@pytest.fixture(scope="module")
def all_outcomes(part: Part) -> dict[str, Outcome]:
    """Every task from one, two and three runs."""
    return looked_at(part, 3)


HEAD = ["| task | trap | one run | two runs | three runs |", "|---|---|---|---|---|"]


def rows(part: Part, outcomes: dict[str, Outcome]) -> list[str]:
    return [
        f"| {task.name} | {task.trap} | {' | '.join(outcomes[task.name].cells)} |"
        for task in part.tasks
    ]


def test_there_are_enough_tasks_and_traps() -> None:
    assert len(TASKS) >= 40
    assert len([task for task in TASKS if task.trap]) >= 15
    names = [task.name for task in EVERY]
    assert len(set(names)) == len(names)


def test_what_one_and_two_runs_make_of_each_task_is_what_the_table_says(
    part: Part, outcomes: dict[str, Outcome]
) -> None:
    shown = [f"{line.rpartition(' | ')[0]} |" for line in part.shown[2:]]
    assert shown == rows(part, outcomes)
    # No result is wrong without a warning.
    assert [text for one in outcomes.values() for text in one.silent] == []


@pytest.mark.long
def test_what_three_runs_make_of_each_task_is_what_the_table_says(
    part: Part, all_outcomes: dict[str, Outcome]
) -> None:
    assert part.shown == [*HEAD, *rows(part, all_outcomes)]
    assert [text for one in all_outcomes.values() for text in one.silent] == []
