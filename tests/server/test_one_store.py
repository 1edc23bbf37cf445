"""Several servers on one store act as one: a run of one is seen, decided on and taken
up at the others.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from tests.postgres import place, server

from .serving import (
    ERAS,
    TOOLS,
    Gate,
    call,
    command,
    configured,
    listening,
    over_stdio,
    refused,
    served,
    structured,
)

pytestmark = pytest.mark.anyio

__all__ = ["place"]

SLOW = """
from pathlib import Path

import anyio

from ideabridge.tools import tool


@tool(read_only=False)
async def pay(gate: str) -> str:
    '''Pay when the named pipe is opened.'''
    def read() -> str:
        with Path(gate).open() as pipe:
            return pipe.readline().strip()

    return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
"""


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def gate(tmp_path: Path) -> Generator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def shared(folder: Path, place: str, **top: Any) -> Path:
    """A configuration of servers on one store."""
    (folder / "slow.py").write_text(SLOW)
    return configured(folder, tools=[str(TOOLS), "slow.py"], store=place, **top)


def driver_of(record: RunRecord | None) -> int:
    """The process that drives a run."""
    assert record is not None
    return int(str(record.driver).rsplit("|", 5)[3])


async def settled(store: Store, runs: list[str]) -> set[str]:
    """How runs stand when none is at work any more, and nobody has asked for them."""
    while True:
        records = [store.runs.get(run) for run in runs]
        standing = {record.status for record in records if record is not None}
        if not standing & {"running", "interrupted"}:
            return standing
        await anyio.sleep(0.05)


async def test_with_three_servers_every_run_settles_within_10_s_of_a_kill(
    tmp_path: Path, place: str
) -> None:
    configuration = shared(tmp_path, place, approval="allow_all")
    with ExitStack() as stack:
        urls = [
            stack.enter_context(listening(served(configuration, "--http", "127.0.0.1:0")))
            for _ in range(3)
        ]
        store = stack.enter_context(Store.open(place))
        gates = [Gate(tmp_path, f"gate{number}") for number in range(12)]
        runs: dict[str, list[str]] = {"hold": [], "pay": []}
        async with Client(urls[0]) as client:
            for tool, started in runs.items():
                for gate in gates:
                    plan = [{"_tool": tool, "gate": str(gate.path), "_outputPath": "x"}]
                    started.append((await call(client, "run_plan", calls=plan, wait_s=0))["run"])
        [driver] = {driver_of(store.runs.get(run)) for run in (*runs["hold"], *runs["pay"])}
        process = os.pidfd_open(driver)
        stack.callback(os.close, process)
        os.kill(driver, signal.SIGKILL)
        with anyio.fail_after(20):
            # Until it has ended, the killed server may still read what is written to a pipe.
            await anyio.wait_readable(process)
            for gate in gates:
                gate.open()
            assert await settled(store, runs["hold"]) == {"done"}
            # For a payment that was cut off, a person is asked.
            assert await settled(store, runs["pay"]) == {"needs_approval"}
        for gate in gates:
            gate.close()


@pytest.fixture(scope="module")
def urls_of(tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[[str], list[str]]]:
    """Returns the URLs of two servers on one store of a kind. The tests share them: each has runs
    of its own.
    """
    with ExitStack() as stack:

        @cache
        def urls(kind: str) -> list[str]:
            folder = tmp_path_factory.mktemp(kind)
            place = server().address() if kind == "postgres" else str(folder / "ideas.sqlite")
            configuration = shared(folder, place)
            return [stack.enter_context(listening(command(configuration, "0"))) for _ in range(2)]

        yield urls


@asynccontextmanager
async def over_http(
    urls: list[str], era: str, **keys: Any
) -> AsyncGenerator[tuple[Client, Client]]:
    async with (
        Client(urls[0], mode=era, read_timeout_seconds=60) as one,
        Client(urls[1], mode=era, read_timeout_seconds=60, **keys) as other,
    ):
        yield one, other


@asynccontextmanager
async def over_pipes(
    configuration: Path, era: str, **keys: Any
) -> AsyncGenerator[tuple[Client, Client]]:
    async with (
        over_stdio(configuration, era) as one,
        over_stdio(configuration, era, **keys) as other,
    ):
        yield one, other


Two = Callable[..., AbstractAsyncContextManager[tuple[Client, Client]]]


@pytest.fixture(params=["sqlite", "postgres"])
def two(
    request: pytest.FixtureRequest, tmp_path: Path, era: str, urls_of: Callable[[str], list[str]]
) -> Two:
    """Opens clients of two servers on one store. Its arguments are those of the second client.

    Stores, eras and transports know nothing of each other, so four combinations are enough: any
    two of the three meet in one of them.
    """
    if request.param == "sqlite":
        if era == "auto":
            return partial(over_http, urls_of("sqlite"), era)
        return partial(over_pipes, shared(tmp_path, str(tmp_path / "ideas.sqlite")), era)

    if era == "legacy":
        return partial(over_http, urls_of("postgres"), era)
    return partial(over_pipes, shared(tmp_path, server().address()), era)


async def test_check_run_at_another_server_answers_when_the_run_ends(
    tmp_path: Path, gate: Gate, two: Two
) -> None:
    answers: list[dict[str, Any]] = []
    notes: list[str] = []
    begun = anyio.Event()

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        notes.append(str(message))
        begun.set()

    async with two() as (one, other):
        calls = [
            {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
            {"_tool": "count_words", "text": "†state.x", "_outputPath": "y"},
        ]
        run = (await call(one, "run_plan", calls=calls, output="†state.y", wait_s=0))["run"]

        async def check() -> None:
            result = await other.call_tool(
                "check_run", {"run": run, "wait_s": 20}, progress_callback=noted
            )
            answers.append(structured(result))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(check)
                await begun.wait()
                gate.open()

    [answer] = answers
    assert (answer["status"], answer["output"]) == ("done", {"words": 1})
    # This server reports the progress of a run that another one drives.
    assert any("hold done" in note for note in notes)
    assert any("count_words done (2 of 2)" in note for note in notes)


async def test_a_run_at_work_at_one_server_asks_at_another_and_goes_on_there(
    tmp_path: Path, gate: Gate, two: Two
) -> None:
    async with two() as (one, other):
        calls = [
            {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
            {
                "_tool": "write_note",
                "path": str(tmp_path / "note"),
                "text": "†state.x",
                "_outputPath": "y",
            },
        ]
        run = (await call(one, "run_plan", calls=calls, output="†state.y", wait_s=0))["run"]
        asked: list[dict[str, Any]] = []

        async def check() -> None:
            asked.append(await call(other, "check_run", run=run, wait_s=20))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(check)
                assert (await call(other, "check_run", run=run, wait_s=0))["status"] == "running"
                gate.open()
        [waiting] = asked
        assert waiting["status"] == "needs_approval"
        [approval] = waiting["approvals"]
        told = await call(
            other,
            "decide_approval",
            run=run,
            decisions=[{"approval": approval["approval"], "decision": "approve"}],
        )
        assert (told["status"], told["output"]) == ("done", 4)
        assert (await call(one, "check_run", run=run))["output"] == 4


async def test_turns_are_taken_at_any_server(two: Two) -> None:
    async with two() as (one, other):
        run = (await call(one, "solve", task="add", output_schema={"type": "integer"}))["run"]
        for turn, client in enumerate((other, one, other)):
            assert (await call(client, "check_run", run=run))["turn"] == turn
            solution: dict[str, Any] = {
                "calls": [{"_tool": "add", "a": turn, "b": 1}],
                "output": None,
            }
            told = await call(client, "submit_solution", run=run, turn=turn, solution=solution)
            assert (told["status"], told["turn"]) == ("needs_solution", turn + 1)
        told = await call(
            one, "submit_solution", run=run, turn=3, solution={"calls": [], "output": "†results.2"}
        )
        assert (told["status"], told["output"]) == ("done", 3)
        assert (await call(other, "check_run", run=run))["output"] == 3


def busy_and_asking(tmp_path: Path, gate: Gate) -> list[dict[str, Any]]:
    """Calls of which one is at work while the other waits to be approved."""
    return [
        {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
        {
            "_tool": "write_note",
            "path": str(tmp_path / "note"),
            "text": "hello",
            "_outputPath": "y",
        },
    ]


async def test_what_a_run_at_work_asks_is_decided_at_another_server(
    tmp_path: Path, gate: Gate, two: Two
) -> None:
    async with two() as (one, other):
        run = (await call(one, "run_plan", calls=busy_and_asking(tmp_path, gate), wait_s=0))["run"]
        told = await call(other, "check_run", run=run, wait_s=0)
        assert told["status"] == "running"
        [approval] = told["approvals"]
        decisions = [{"approval": approval["approval"], "decision": "approve"}]
        told = await call(other, "decide_approval", run=run, decisions=decisions, wait_s=0)
        assert (told["status"], told.get("approvals")) == ("running", None)
        # This is true at both servers: what has been decided cannot be decided again.
        for client in (one, other):
            assert "no approval" in await refused(
                client, "decide_approval", run=run, decisions=decisions
            )
        gate.open()
        assert (await call(other, "check_run", run=run, wait_s=20))["state"] == {
            "x": "open",
            "y": 5,
        }
        assert "the assistant" in str((await call(one, "check_run", run=run))["decided"])


async def test_a_form_at_another_server_decides_about_a_run_at_work(
    tmp_path: Path, gate: Gate, two: Two
) -> None:
    forms: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        gate.open()
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with two(elicitation_callback=person) as (one, other):
        run = (await call(one, "run_plan", calls=busy_and_asking(tmp_path, gate), wait_s=0))["run"]
        told = await call(other, "check_run", run=run, wait_s=20)
        assert (told["status"], told["state"]) == ("done", {"x": "open", "y": 5})

    assert len(forms) == 1


async def test_what_a_run_asked_whose_server_died_is_asked_at_another(
    tmp_path: Path, place: str, era: str
) -> None:
    forms: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    configuration = shared(tmp_path, place)
    note = {
        "_tool": "write_note",
        "path": str(tmp_path / "note"),
        "text": "hello",
        "_outputPath": "y",
    }
    with ExitStack() as stack:
        urls = [stack.enter_context(listening(command(configuration, "0"))) for _ in range(2)]
        async with Client(urls[0], mode=era) as client:
            pid = (
                await call(client, "run_plan", calls=[{"_tool": "process"}], output="†results.0")
            )["output"]
            run = (await call(client, "run_plan", calls=[note], wait_s=0))["run"]

        os.kill(int(pid), signal.SIGKILL)
        async with Client(
            urls[1], mode=era, read_timeout_seconds=60, elicitation_callback=person
        ) as client:
            told = await call(client, "check_run", run=run, wait_s=20)
            assert (told["status"], told["state"]) == ("done", {"y": 5})

    assert len(forms) == 1


async def test_a_server_that_does_not_answer_takes_no_decision(
    tmp_path: Path, place: str, gate: Gate
) -> None:
    async with over_pipes(shared(tmp_path, place), "auto") as (one, other):
        run = (await call(one, "run_plan", calls=busy_and_asking(tmp_path, gate), wait_s=0))["run"]
        [approval] = (await call(other, "check_run", run=run, wait_s=0))["approvals"]
        with Store.open(place) as store:
            driver = driver_of(store.runs.get(run))
            os.kill(driver, signal.SIGSTOP)
            try:
                decisions = [{"approval": approval["approval"], "decision": "approve"}]
                said = await refused(other, "decide_approval", run=run, decisions=decisions)
                assert f"process {driver} on " in said
                assert (
                    "(which is stopped) is working on this run and did not accept the decision "
                    "within 5 s"
                ) in said
                assert store.requests.open() == []
            finally:
                os.kill(driver, signal.SIGCONT)
        assert len((await call(one, "check_run", run=run, wait_s=0))["approvals"]) == 1
