"""The acceptance table of lifting: tasks by scripted minds over real servers, on two inputs and three new ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.asking import open_asks
from ideabridge.bridge.lifting.function import same
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded
from tests.lifting.file_tasks import FILES, file_toolbox, make_papers
from tests.lifting.people_tasks import PEOPLE
from tests.lifting.runs import Shortener, called, solved
from tests.lifting.tasks import PLAIN, TRAPS, Task
from tests.lifting.world import World, git, make_worlds, toolbox
from tests.npm import needs, program

BIN = Path(sys.executable).parent
TASKS = [*PLAIN, *TRAPS, *PEOPLE]
EVERY = [*TASKS, *FILES]
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
    run = await work(bridge, task, first)
    restored(worlds)
    outcome.one = asked(bridge, run.id, {"runs": []})
    if await published(bridge, run.id, name, {"runs": []}):
        outcome.wrong_unasked += await wrong(bridge, name, task, fresh)
    other = await work(bridge, task, second)
    restored(worlds)
    both: JSONObject = {"runs": [other.id]}
    outcome.two = asked(bridge, run.id, both)
    if await published(bridge, run.id, name, both):
        outcome.becomes = "lifts wholly"
        outcome.wrong_unasked += await wrong(bridge, name, task, fresh)
    elif task.choices is None:
        outcome.becomes = "refused"
    else:
        await bridge.publish(run.id, name, answer="plan", choices={**both, **task.choices})
        outcome.becomes = "with acceptance"
        outcome.wrong += await wrong(bridge, name, task, fresh)
    return outcome


async def work(bridge: Bridge, task: Task, world: World) -> Run:
    """What the mind, and the people about it, do of a task in a world."""
    given = task.given(world)
    return await solved(bridge, task.name, given, task.turns, ANY, person=task.person, context=task.context)


def asked(bridge: Bridge, run: str, choices: JSONObject) -> str:
    """What a person is asked, in a line."""
    try:
        asks = open_asks(bridge.lift(run, choices=choices))
    except PublicationError as error:
        return f"no plan: {error}"
    return ", ".join(f"{one.kind} {one.path}" for one in asks) or "nothing"


async def published(bridge: Bridge, run: str, name: str, choices: JSONObject) -> bool:
    """Whether it can be published with nobody's acceptance."""
    try:
        return (await bridge.publish(run, name, answer="plan", choices=choices)).answer == "plan"
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
    """Take back what a task has done to the repositories and papers."""
    make_papers(worlds)
    for world in worlds:
        if git(world.repo, "rev-list", "--count", "HEAD").strip() != str(len(world.commits)):
            git(world.repo, "reset", "-q", "--hard", f"topic-{world.word}")
        dirt = f"{world.word} unsaved"
        if world.dirty:
            (world.path / "notes.txt").write_text(dirt, encoding="utf-8")
        elif git(world.repo, "status", "--porcelain"):
            git(world.repo, "checkout", "-q", "--", "notes.txt")
        (world.path / "more.txt").unlink(missing_ok=True)


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
    """A part of the table: tasks over the same servers. `shown`: the rows that a test must find again."""

    name: str
    tasks: list[Task]
    tools: Callable[[], Toolbox]
    servers: Callable[[Path], JSONObject]

    @property
    def table(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.md")

    @property
    def shown(self) -> list[str]:
        return [line for line in self.table.read_text(encoding="utf-8").splitlines() if line.startswith("|")]


PARTS = [Part("table", TASKS, toolbox, python_servers), Part("table_files", FILES, file_toolbox, npm_servers)]


async def look_at_all(folder: Path, part: Part) -> dict[str, Outcome]:
    worlds = make_worlds(folder)
    restored(worlds)
    configuration = parse_configuration({"mcpServers": part.servers(folder), "store": ":memory:"}, project=folder)
    async with Bridge(configuration, toolbox=part.tools(), mind=Shortener()) as bridge:
        await bridge.modules.settled(30)
        return {task.name: await look_at(bridge, worlds, number, task) for number, task in enumerate(part.tasks)}


@pytest.fixture(
    scope="module",
    params=[PARTS[0], pytest.param(PARTS[1], marks=needs("@modelcontextprotocol/server-filesystem"))],
    ids=lambda part: part.name,
)
def part(request: pytest.FixtureRequest) -> Part:
    return request.param


@pytest.fixture(scope="module")
def outcomes(part: Part, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every task looked at, with one process of each server for all."""
    return anyio.run(look_at_all, tmp_path_factory.mktemp("worlds"), part)


def rows(part: Part, outcomes: dict[str, Outcome]) -> list[str]:
    lines = [
        "| task | trap | one run asks | two runs ask | becomes |",
        "|---|---|---|---|---|",
    ]
    for task in part.tasks:
        one = outcomes[task.name]
        lines.append(f"| {task.name} | {task.trap} | {one.one} | {one.two} | {one.becomes} |")
    return lines


def test_there_are_enough_tasks_and_traps() -> None:
    assert len(TASKS) >= 40
    assert len([task for task in TASKS if task.trap]) >= 15
    names = [task.name for task in EVERY]
    assert len(set(names)) == len(names)


def test_what_lifting_makes_of_each_task_is_what_the_table_says(part: Part, outcomes: dict[str, Outcome]) -> None:
    assert part.shown == rows(part, outcomes)


def test_no_plan_gives_a_wrong_answer_that_nobody_accepted(outcomes: dict[str, Outcome]) -> None:
    assert [text for one in outcomes.values() for text in one.wrong_unasked] == []


def test_what_a_person_rightly_accepted_gives_right_answers(outcomes: dict[str, Outcome]) -> None:
    assert [text for one in outcomes.values() for text in one.wrong] == []


def counts(tables: Iterable[Part]) -> list[int]:
    """How many tasks lift wholly, with what a person accepts, and not at all."""
    told = [line.split(" | ")[-1].removesuffix(" |") for part in tables for line in part.shown]
    return [told.count(what) for what in ("lifts wholly", "with acceptance", "refused")]


def test_the_document_tells_the_counts_of_the_tables() -> None:
    wholly, accepted, refused = counts(PARTS)
    assert wholly + accepted + refused == len(EVERY)
    document = (Path(__file__).parents[2] / "docs" / "lifting.md").read_text(encoding="utf-8")
    assert f"hold {len(EVERY)} tasks" in document
    assert f"{len([task for task in EVERY if task.trap])} of them are traps" in document
    assert f"nobody is asked | {wholly} |" in document
    assert f"accepts or takes | {accepted} |" in document
    assert f"make them right | {refused} |" in document
