"""Distilling over the acceptance table: programs that scripted minds write for the
runs of its tasks.

`distilled.md` has the counts. A wrong program is one that does something else in some world; it
must be refused, unless the recordings agree with it: then nothing can tell, and the row names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.errors import ProgramRefusedError
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools.encoding import JSON, JSONObject
from tests.bridge.test_minds import Scripted, solution
from tests.lifting.distilled import PROGRAMS
from tests.lifting.runs import answered, checked
from tests.lifting.tasks import PLAIN, TRAPS, Task
from tests.lifting.test_table import python_servers, restore_repositories, work
from tests.lifting.world import World, lettered_folder, make_worlds, toolbox

TASKS = {task.name: task for task in [*PLAIN, *TRAPS]}
TABLE = Path(__file__).with_name("distilled.md")
HEAD = [
    "| task | right in new worlds | wrong: refused by one run | only by two runs | by no run |",
    "|---|---|---|---|---|",
]


@dataclass
class Row:
    """What became of the programs of a task.

    Attributes:
        right: in how many new worlds the right program answers right.
        one, two: the wrong programs that one run refuses, and those that only a second one refuses.
        undecided: those that no run refuses.
    """

    right: int = 0
    one: list[str] = field(default_factory=list[str])
    two: list[str] = field(default_factory=list[str])
    undecided: list[str] = field(default_factory=list[str])


def properties_of(publication: Publication) -> JSONObject:
    properties = (publication.input_schema or {})["properties"]
    assert isinstance(properties, dict)
    return properties


async def look_at(bridge: Bridge, worlds: list[World], number: int, task: Task) -> Row:
    row = Row()
    runs: list[str] = []
    for world in worlds[:2]:
        runs.append((await work(bridge, task, world)).id)
        restore_repositories(worlds)

    right, *wrong = PROGRAMS[task.name]
    name = f"made_{number}"
    await bridge.publish(runs[0], f"{name}_alone", program=right)
    confirmed = await bridge.publish(
        runs[0], name, program=right, choices={"runs": list[JSON](runs[1:])}
    )
    assert checked(confirmed) == "confirmed"
    for world in worlds[-3:]:
        # Members that the program does not read are not parameters of the tool.
        given = {
            key: value
            for key, value in task.given(world).items()
            if key in properties_of(confirmed)
        }
        row.right += same((await answered(bridge, name, given)).value, task.answer(world))
        restore_repositories(worlds)

    for place, program in enumerate(wrong, 1):
        for known, refused in ((runs[:1], row.one), (runs, row.two)):
            try:
                await bridge.publish(
                    runs[0],
                    f"{name}_{place}",
                    program=program,
                    choices={"runs": list[JSON](known[1:])},
                )
            except ProgramRefusedError:
                refused.append(str(place))
                break
        else:
            row.undecided.append(str(place))

    return row


async def look_at_all(folder: Path) -> dict[str, Row]:
    worlds = make_worlds(folder)
    restore_repositories(worlds)
    configuration = parse_configuration(
        {"mcpServers": python_servers(folder), "store": "store.sqlite"}, project=folder
    )
    async with Bridge(configuration, toolbox=toolbox()) as bridge:
        await bridge.modules.settled(30)
        return {
            name: await look_at(bridge, worlds, number, TASKS[name])
            for number, name in enumerate(PROGRAMS)
        }


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    with lettered_folder() as folder:
        return anyio.run(look_at_all, folder)


def shown(rows: dict[str, Row]) -> list[str]:
    lines: list[str] = []
    for name, row in rows.items():
        undecided = ", ".join(f"no. {number}" for number in row.undecided)
        lines.append(
            f"| {name} | {row.right} of 3 | {len(row.one)} | {len(row.two)} | {undecided} |"
        )
    return lines


def test_there_are_enough_tasks() -> None:
    assert len(PROGRAMS) >= 30
    assert sum(len(wrong) for _, *wrong in PROGRAMS.values()) >= 80


def test_right_programs_are_accepted_and_wrong_ones_are_refused_where_a_run_can_tell(
    rows: dict[str, Row],
) -> None:
    assert [name for name, row in rows.items() if row.right != 3] == []
    table = [
        line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    assert table == [*HEAD, *shown(rows)]


@pytest.mark.anyio
async def test_a_mind_that_is_wrong_first_gets_it_right(tmp_path: Path) -> None:
    names = ["the thickest book", "a judgement as a number", "commits by the busiest, by key"]
    worlds = make_worlds(tmp_path)
    answers = [
        solution([], {"program": PROGRAMS[name][place]}) for name in names for place in (-1, 0)
    ]
    configuration = parse_configuration(
        {"mcpServers": python_servers(tmp_path), "store": "store.sqlite"}, project=tmp_path
    )
    async with Bridge(configuration, toolbox=toolbox(), mind=Scripted(*answers)) as bridge:
        await bridge.modules.settled(30)
        for number, name in enumerate(names):
            run = await work(bridge, TASKS[name], worlds[0])
            _, refused = await bridge.publisher.distill(PublishRequest(run.id, f"made_{number}"))
            assert len(refused) == 1
