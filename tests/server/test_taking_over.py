"""Several requests that wait for one run, whose question the client of one has been put."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp import Client

from .sampled import Model, said
from .serving import ERAS, TOOLS, call, configured, http_process, over_stdio, structured

pytestmark = pytest.mark.anyio

LATENT = """
from ideabridge.tools import Tool

text = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
said = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
spell = Tool("spell", "The number in words.", text, said)
"""
ONE_BY_ONE: dict[str, Any] = {
    "calls": [
        {"_tool": "spell", "number": 1, "_outputPath": "one"},
        {"_tool": "spell", "number": 2, "_outputPath": "two"},
        # This call asks when the first has been answered.
        {"_tool": "spell", "number": 3, "_outputPath": "three", "_after": ["first"]},
    ],
    "output": ["†state.one.words", "†state.two.words", "†state.three.words"],
}
ONE_BY_ONE["calls"][0]["_id"] = "first"
SPELL: dict[str, Any] = {"calls": ONE_BY_ONE["calls"][:1], "output": ["†state.one.words"]}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def latent(folder: Path) -> Path:
    (folder / "latent.py").write_text(LATENT)
    return configured(folder, tools=[str(TOOLS), "latent.py"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with http_process(latent(tmp_path_factory.mktemp("over"))) as url:
        yield url


class Asked(Model):
    """A model that tells what it is asked, and answers each number when it is let."""

    def __init__(self, name: str, *free: int) -> None:
        super().__init__()
        self.name = name
        self.shown = {number: anyio.Event() for number in (1, 2, 3)}
        self.free = {number: anyio.Event() for number in (1, 2, 3)}
        self.numbers: list[int] = []
        for number in free:
            self.free[number].set()

    async def __call__(self, context: Any, params: Any) -> Any:
        number = next(number for number in self.shown if f'"number":{number}' in said(params))
        self.numbers.append(number)
        self.shown[number].set()
        await self.free[number].wait()
        self.answers.append({"calls": [], "output": {"words": f"{number} by {self.name}"}})
        return await super().__call__(context, params)


class Waiting:
    """A request that waits for a run, of a client of its own or of one that has others."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.leave: Callable[[], None] = lambda: None
        self.arrived = anyio.Event()
        self.gone = anyio.Event()

    async def ask(self, client: Client, run: str) -> None:
        """Call `check_run`, until it is answered or `leave` is called."""

        async def noted(progress: float, total: float | None, message: str | None) -> None:
            # Progress is reported to whoever starts to wait, because the call that the room answers
            # is running.
            self.arrived.set()

        with anyio.CancelScope() as scope:
            self.leave = scope.cancel
            self.told = structured(
                await client.call_tool("check_run", {"run": run}, progress_callback=noted)
            )

    async def connect(self, url: str, era: str, model: Model, run: str) -> None:
        async with Client(url, mode=era, read_timeout_seconds=60, **model.keys) as client:
            await self.ask(client, run)
        self.gone.set()

    async def come(self, group: TaskGroup, url: str, era: str, model: Model, run: str) -> None:
        """Begin to wait for the run, as a client of its own."""
        group.start_soon(self.connect, url, era, model, run)
        await self.arrived.wait()


async def begun(url: str, era: str, arguments: dict[str, Any]) -> str:
    """A run of a plan that is answered by sampling, and that nobody waits for."""
    async with Client(url, mode=era, read_timeout_seconds=60, **Asked("nobody").keys) as client:
        return (await call(client, "run_plan", **arguments, wait_s=0))["run"]


async def test_who_waits_takes_a_question_over_when_the_client_it_was_put_to_leaves(
    era: str, url: str
) -> None:
    first = Asked("first")
    second = Asked("second", 1)
    asked = Waiting()
    other = Waiting()
    run = await begun(url, era, SPELL)
    async with anyio.create_task_group() as group:
        await asked.come(group, url, "legacy", first, run)
        await first.shown[1].wait()
        await other.come(group, url, era, second, run)
        assert not second.numbers
        asked.leave()

    assert other.told["output"] == ["1 by second"]
    assert second.numbers == [1]


async def test_a_request_takes_over_from_another_of_the_same_client_that_is_given_up(
    tmp_path: Path,
) -> None:
    model = Asked("the model")
    one = Waiting()
    other = Waiting()
    async with (
        over_stdio(latent(tmp_path), "legacy", **model.keys) as client,
        anyio.create_task_group() as group,
    ):
        run = (await call(client, "run_plan", **SPELL, wait_s=0))["run"]
        group.start_soon(one.ask, client, run)
        await model.shown[1].wait()
        group.start_soon(other.ask, client, run)
        await other.arrived.wait()
        model.shown[1] = anyio.Event()
        one.leave()
        await model.shown[1].wait()
        model.free[1].set()

    assert other.told["output"] == ["1 by the model"]
    assert model.numbers == [1, 1]


async def test_what_is_left_of_the_rooms_is_taken_over_while_another_is_still_answered(
    url: str,
) -> None:
    first = Asked("first")
    second = Asked("second", 2)
    asked = Waiting()
    other = Waiting()
    run = await begun(url, "legacy", ONE_BY_ONE)
    async with anyio.create_task_group() as group:
        await asked.come(group, url, "legacy", first, run)
        await first.shown[1].wait()
        await first.shown[2].wait()
        await other.come(group, url, "legacy", second, run)
        first.free[1].set()
        # Whichever client is told first asks its model about the room that has opened since. The
        # other question is still open.
        async with anyio.create_task_group() as either:
            for model in (first, second):
                either.start_soon(seen, model.shown[3], either)

        asked.leave()
        await asked.gone.wait()
        # This client must be asked about the second room although the third has not been answered
        # yet, whichever client was asked about that one.
        await second.shown[2].wait()
        await second.shown[3].wait()
        second.free[3].set()

    assert other.told["output"] == ["1 by first", "2 by second", "3 by second"]
    assert second.numbers.count(2) == 1


async def seen(event: anyio.Event, group: TaskGroup) -> None:
    await event.wait()
    group.cancel_scope.cancel()


async def test_of_several_that_wait_one_takes_over_and_the_next_when_that_one_leaves_too(
    url: str,
) -> None:
    first = Asked("first")
    others = [Asked("others"), Asked("others")]
    asked = Waiting()
    waiting = [Waiting(), Waiting()]
    run = await begun(url, "legacy", SPELL)
    async with anyio.create_task_group() as group:
        await asked.come(group, url, "legacy", first, run)
        await first.shown[1].wait()
        for one, model in zip(waiting, others, strict=True):
            await one.come(group, url, "legacy", model, run)

        asked.leave()
        async with anyio.create_task_group() as either:
            for model in others:
                either.start_soon(seen, model.shown[1], either)

        # There is one question, for one of them.
        [taker] = [number for number, model in enumerate(others) if model.shown[1].is_set()]
        left = 1 - taker
        others[left].free[1].set()
        waiting[taker].leave()
        await others[left].shown[1].wait()

    assert [one.told.get("output") for one in waiting].count(["1 by others"]) == 1
    assert [model.numbers for model in others] == [[1], [1]]


async def test_when_all_have_left_the_next_to_come_is_asked(era: str, url: str) -> None:
    models = [Asked("first"), Asked("second")]
    gone = [Waiting(), Waiting()]
    run = await begun(url, era, SPELL)
    async with anyio.create_task_group() as group:
        for one, model in zip(gone, models, strict=True):
            await one.come(group, url, "legacy", model, run)

        await models[0].shown[1].wait()
        # Both clients leave at the same time, so the second may leave before it knows that the
        # first has left.
        for one in gone:
            one.leave()

        for one in gone:
            await one.gone.wait()

    last = Asked("last", 1)
    async with Client(url, mode=era, read_timeout_seconds=60, **last.keys) as client:
        assert (await call(client, "check_run", run=run))["output"] == ["1 by last"]


async def test_an_answer_that_comes_in_time_is_not_asked_for_twice(era: str, url: str) -> None:
    first = Asked("first")
    second = Asked("second", 1)
    asked = Waiting()
    other = Waiting()
    run = await begun(url, era, SPELL)
    async with anyio.create_task_group() as group:
        await asked.come(group, url, "legacy", first, run)
        await first.shown[1].wait()
        await other.come(group, url, era, second, run)
        first.free[1].set()

    assert asked.told["output"] == other.told["output"] == ["1 by first"]
    assert not second.numbers
