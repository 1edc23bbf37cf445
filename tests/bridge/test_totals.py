"""What a run has used: all that its rooms have, however they ended."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.context.mind import MindError, Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.event import (
    CallProposed,
    RequestMade,
    SolutionProposed,
    UsageNoted,
    event_from_json,
)
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass
class Node:
    """A room: what its answers take, the rooms it opens, and how it ends."""

    rooms: list[Node]
    tokens: int
    end: Literal["answers", "stays", "fails", "idles"]
    number: int = 0
    asked: int = field(default=0, compare=False)


class Answer:
    """An answer that tells what it has taken until now."""

    def __init__(self, mind: Tree, node: Node) -> None:
        self._pieces = mind.pieces(node)
        self.told = Usage(node.tokens, 1, 0.25)

    def so_far(self) -> Usage:
        return self.told

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> str | Usage:
        return await anext(self._pieces)


class Tree:
    """A mind that answers in every room of a tree as its node says."""

    name = "tree"

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.roots = nodes
        self.nodes: dict[int, Node] = {}
        self.staying = 0
        self.changed = anyio.Event()
        for node in nodes:
            self._number(node)

    def _number(self, node: Node) -> None:
        node.number = len(self.nodes)
        self.nodes[node.number] = node
        for room in node.rooms:
            self._number(room)

    def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        text = "\n".join(str(message["content"]) for message in request.texts)
        number = int(text.partition("Node ")[2].partition(".")[0])
        return Answer(self, self.nodes[number])

    async def pieces(self, node: Node) -> AsyncIterator[str | Usage]:
        node.asked += 1
        usage = Usage(node.tokens, 1, 0.25)
        if node.rooms and node.asked == 1:
            yield json.dumps({"calls": opening(node.rooms), "output": None})
        elif node.end == "fails":
            yield usage
            raise MindError("it will not")
        elif node.end == "stays":
            self.staying += 1
            self.changed.set()
            await anyio.sleep_forever()
        else:
            yield json.dumps({"calls": [], "output": "done" if node.end == "answers" else None})

        yield usage

    async def until_all_stay(self) -> None:
        """Until every room that never ends has been asked."""
        while self.staying < sum(staying(node) for node in self.roots):
            self.changed = anyio.Event()
            await self.changed.wait()


def staying(node: Node) -> int:
    """How many rooms of a node never end: it goes on only when its own have."""
    below = sum(staying(room) for room in node.rooms)
    return below or int(node.end == "stays")


def opening(rooms: Sequence[Node]) -> list[JSON]:
    room: JSONObject = {"_tool": "solve", "_module": "anonymous", "tools": ["anonymous.solve"]}
    return [{**room, "task": f"Node {one.number}."} for one in rooms]


def told(run: Run) -> JSONObject:
    """What the run says that it has used."""
    spent = run.spent()
    usage = run.answer()["usage"]
    return {
        "requests": usage["requests"],
        "tokens": usage["tokens"],
        "cost": usage.get("cost", 0),
        "calls": spent.calls,
    }


def journaled(store: Store, run: str) -> JSONObject:
    """What all journals hold together: of the run and its rooms."""
    requests = tokens = calls = 0
    cost = 0.0
    for record in store.runs.newest(limit=100, caller=SEES_ALL):
        if record.id != run and not record.id.startswith(f"{run}."):
            continue
        for _, raw in store.runs.events(record.id):
            event = event_from_json(raw)
            if isinstance(event, RequestMade):
                requests += 1
            elif isinstance(event, CallProposed):
                calls += 1
            elif isinstance(event, SolutionProposed):
                calls += len(event.calls)
            elif isinstance(event, UsageNoted):
                usage = Usage(**cast("dict[str, Any]", event.usage))
                tokens += usage.input_tokens + usage.output_tokens
                cost += usage.cost or 0.0

    return {"requests": requests, "tokens": tokens, "cost": cost, "calls": calls}


def nodes(depth: int) -> st.SearchStrategy[Node]:
    rooms = st.lists(nodes(depth - 1), max_size=2) if depth else st.just(list[Node]())
    return st.builds(
        Node, rooms, st.integers(0, 50), st.sampled_from(["answers", "stays", "fails", "idles"])
    )


async def ended(run: Run, tree: Tree) -> None:
    async def cancel() -> None:
        await tree.until_all_stay()
        # Everything that has not ended is cancelled now, whatever it is doing.
        run.cancel("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        await run.wait()
        group.cancel_scope.cancel()


async def totals(roots: list[Node], most: int | None, folder: Path) -> None:
    tree = Tree(roots)
    path = folder / "ideas.sqlite"
    configuration = Configuration(limits=Limits(tokens=most, requests=40), order="none")
    async with Bridge(configuration, store=path, mind=tree) as bridge:
        run = await bridge.run_plan(read_plan({"calls": opening(roots)}))
        with anyio.fail_after(20):
            await ended(run, tree)

        assert run.machine.ended
        assert told(run) == journaled(bridge.store, run.id)
        given_before = told(run)

    async with Bridge(configuration, store=path, mind=Tree(roots)) as bridge:
        assert told(await bridge.run(run.id)) == given_before


@pytest.mark.usefixtures("writes")
@given(st.lists(nodes(2), min_size=1, max_size=3), st.one_of(st.none(), st.integers(1, 200)))
# A room whose Request costs more than what is left ends the whole run, even beside a room that
# never ends.
@example(
    [
        Node(
            [
                Node([Node([], 19, "stays")], 24, "answers"),
                Node([Node([], 44, "fails")], 12, "stays"),
            ],
            15,
            "answers",
        )
    ],
    143,
)
@settings(max_examples=20)
def test_a_run_has_used_what_it_and_its_rooms_have_however_they_ended(
    roots: list[Node], most: int | None
) -> None:
    for node in Tree(roots).nodes.values():
        node.asked = 0
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(totals, roots, most, Path(folder))


@pytest.mark.anyio
async def test_the_totals_hold_what_an_alternative_used_that_was_not_needed() -> None:
    tree = Tree([Node([], 5, "answers"), Node([], 70, "stays")])
    async with Bridge(mind=tree) as bridge:
        room: JSONObject = {
            "_tool": "solve",
            "_module": "anonymous",
            "task": "†input.task",
            "_outputPath": "said",
        }
        taught = await bridge.run_plan(read_plan({"calls": [room], "input": {"task": "Node 0."}}))
        await taught.result()
        await bridge.publish(taught.id, "ask", answer="plan")
        async with (
            bridge.session(tools=["idea:ask"]) as session,
            anyio.create_task_group() as group,
        ):

            async def alternatives() -> None:
                asks: list[JSONObject] = [
                    {"_tool": "ask", "_module": "idea:ask", "task": f"Node {n}."} for n in (1, 0)
                ]
                await session.run_any(asks)

            group.start_soon(alternatives)
        run = session.underlying
        assert told(run) == journaled(bridge.store, run.id)
        assert told(run)["tokens"] == 77
