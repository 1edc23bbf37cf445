"""Servers that leave runs to workers: processes of their own over one store, in a file
and in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.store.run_record import Handover
from ideabridge.bridge.store.store import Store
from ideabridge.tools.errors import LimitExceededError
from tests import postgres, preloaded
from tests.modules.conftest import SERVERS
from tests.modules.starting import Starting
from tests.processes import processes_with
from tests.server.serving import (
    BIN,
    Gate,
    all_tools,
    call,
    in_memory,
    listening,
    plain,
    served,
    structured,
    text,
)
from tests.waiting import until

pytestmark = pytest.mark.anyio

TOOLS = '''
import os
from pathlib import Path
from ideabridge.tools import tool

@tool(read_only=True)
def where() -> int:
    """The process in which the call runs."""
    return os.getpid()

@tool
def hold(gate: str, log: str) -> int:
    """Note the call, and wait until the gate opens."""
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    with open(gate) as file:
        file.readline()
    return os.getpid()

@tool
def note(log: str, word: str) -> None:
    """Note a word."""
    with open(log, "a") as file:
        file.write(f"{word}\\n")

@tool
def send(text: str) -> str:
    """Sends a text."""
    return f"sent {text}"
'''


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "ideas.sqlite")
    return postgres.server().address()


@pytest.fixture
def configuration(tmp_path: Path, store: str) -> Callable[..., Path]:
    def configured(**top: Any) -> Path:
        (tmp_path / "tools.py").write_text(TOOLS)
        path = tmp_path / "ideabridge.json"
        path.write_text(
            json.dumps({"store": store, "tools": ["tools.py"], "approval": "allow_all", **top})
        )
        return path

    return configured


@dataclass(frozen=True)
class Worker:
    """A worker process.

    Attributes:
        process: what started it; it ends as the worker does.
        pid: the number of the worker.
    """

    process: subprocess.Popen[str]
    pid: int


@contextmanager
def working(configuration: Path, *more: str) -> Generator[Worker]:
    """A worker process that is ready."""
    program = preloaded.python(BIN / "ideabridge", "worker", "--config", str(configuration), *more)
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "taking up to" in line, line
        yield Worker(process, preloaded.number(process))
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate(timeout=30)


@asynccontextmanager
async def front(configuration: Path) -> AsyncGenerator[Client]:
    """A client of a server that leaves runs to workers."""
    with listening(served(configuration, "--http", "0", "--workers")) as url:
        async with Client(url, read_timeout_seconds=30) as client:
            yield client


def front_in_memory(configuration: Path) -> AbstractAsyncContextManager[Client]:
    """The same of a server in this process."""
    return in_memory(configuration, "auto", role="front")


async def test_workers_run_the_calls_of_runs_that_servers_take(
    configuration: Callable[..., Path],
) -> None:
    path = configuration()
    with working(path) as one, working(path) as two:
        async with front(path) as client:
            calls = [{"_tool": "where", "_outputPath": f"n{number}"} for number in range(3)]
            answers = [
                await call(client, "run_plan", calls=calls, output="†state") for _ in range(4)
            ]
            nothing = await call(client, "run_plan", calls=[], output=1)

    for answer in answers:
        assert answer["status"] == "done"
        assert len({*answer["output"].values()}) == 1
        assert {*answer["output"].values()} <= {one.pid, two.pid}

    assert nothing["output"] == 1


async def test_a_run_waits_for_a_worker_and_continues_after_a_decision_and_by_turns(
    configuration: Callable[..., Path], store: str
) -> None:
    path = configuration(approval="default")
    async with front_in_memory(path) as client:
        plan = {
            "calls": [{"_tool": "send", "text": "a", "_outputPath": "sent"}],
            "output": "†state.sent",
        }
        waiting = await call(client, "run_plan", **plan, wait_s=0)
        assert waiting["status"] == "needs_approval"
        task = await call(client, "solve", task="Where?")
        turn = {
            "run": task["run"],
            "turn": 0,
            "solution": {"calls": [{"_tool": "where", "_outputPath": "at"}]},
        }
        queued = await call(client, "solve", **turn, wait_s=0)
        assert queued["status"] == "running"
        with Store.open(store) as opened:
            await until(lambda: opened.queue.count() == 1)
        seen = await call(client, "check_run", run=task["run"], wait_s=0)
        assert seen["progress"] == "0 of 1 call done; it waits for a worker"
        with working(path) as worker:
            one = {"approval": waiting["approvals"][0]["approval"], "decision": "approve"}
            decided = await call(
                client, "decide_approval", run=waiting["run"], decisions=[one], wait_s=20
            )
            assert (decided["status"], decided["output"]) == ("done", "sent a")
            again = await call(client, "check_run", run=task["run"], wait_s=20)
            assert again["status"] == "needs_solution"
            ended = await call(
                client, "solve", run=task["run"], turn=1, solution={"output": "done"}, wait_s=20
            )
            assert ended["output"] == "done"
            assert str(worker.pid) in json.dumps(again)
        cancelled = await call(client, "run_plan", calls=[{"_tool": "where"}], wait_s=0)
        ended = await call(client, "check_run", run=cancelled["run"], cancel=True)
        assert ended["status"] == "cancelled"


async def test_a_run_that_was_queued_before_the_configuration_changed_is_taken(
    configuration: Callable[..., Path],
) -> None:
    calls = [{"_tool": "where", "_outputPath": "at"}]
    async with front_in_memory(configuration()) as client:
        queued = await call(client, "run_plan", calls=calls, output="†state.at", wait_s=0)
        assert queued["status"] == "running"
        with working(configuration(limits={"calls": 77})) as worker:
            ended = await call(client, "check_run", run=queued["run"], wait_s=20)
            assert (ended["status"], ended["output"]) == ("done", worker.pid)


async def ran(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Run a plan of one call as soon as the server knows its tool."""
    plan = {"calls": [{"_tool": tool, **arguments, "_outputPath": "at"}], "output": "†state.at"}
    with anyio.fail_after(20):
        while True:
            answer = await client.call_tool("run_plan", {**plan, "wait_s": 20})
            if not answer.is_error:
                return structured(answer)
            said = text(answer)
            assert "unknown tool" in said or "is still connecting" in said


async def test_a_worker_follows_its_files(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    servers = {"left": plain(tmp_path, "left", "left_work")}
    path = configuration(mcpServers=servers)
    with working(path) as worker:
        async with front(path) as client:
            assert (await ran(client, "where"))["output"] == worker.pid
            servers["right"] = plain(tmp_path, "right", "right_work")
            configuration(mcpServers=servers)
            right = await ran(client, "right_work", x="1")
            assert "right_work" in right["output"]

            # A call of a tool with new code runs in the worker, too.
            (tmp_path / "tools.py").write_text(TOOLS.replace("def where(", "def place("))
            place = await ran(client, "place")
            assert (place["status"], place["output"]) == ("done", worker.pid)

            path.write_text('{"mcpServers": {')
            lines = worker.process.stderr
            assert lines is not None
            with anyio.fail_after(20):
                while "is not JSON" not in await anyio.to_thread.run_sync(
                    lines.readline, abandon_on_cancel=True
                ):
                    pass

            assert (await ran(client, "place"))["output"] == worker.pid
            left = await ran(client, "left_work", x="2")
            assert "left_work" in left["output"]


async def test_a_lazy_server_starts_at_a_worker_and_stops_there(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    server = Starting(tmp_path, idle=0.05)
    path = configuration(mcpServers={"m": server.entry}, expose=["modules"])
    async with front(path) as client:
        with anyio.fail_after(20):
            while "tally" not in await all_tools(client):
                pass

    starts = server.starts
    with working(path):
        async with front(path) as client:
            assert "tally" in await all_tools(client)
            assert server.starts == starts
            # The server that the client uses starts the module in order to check the plan, and the
            # worker starts it for the call.
            first = await ran(client, "tally")
            assert (first["status"], first["output"]) == ("done", "1")
            assert server.starts == starts + 2
            await until(lambda: processes_with(str(SERVERS / "starting.py"), str(tmp_path)) == [])
            again = await ran(client, "tally")
            assert again["output"] == "1"


async def test_metrics_count_the_runs_that_wait(configuration: Callable[..., Path]) -> None:
    path = configuration()

    async def queued(http: httpx2.AsyncClient, base: str) -> str:
        lines = (await http.get(f"{base}/metrics")).text.splitlines()
        name = 'ideabridge_runs_queued{workspace=""} '
        return next(line.split()[1] for line in lines if line.startswith(name))

    with listening(served(path, "--http", "0", "--workers", "--metrics")) as url:
        base = url.removesuffix("/mcp")
        async with Client(url, read_timeout_seconds=30) as client, httpx2.AsyncClient() as http:
            assert await queued(http, base) == "0.0"
            run = (await call(client, "run_plan", calls=[{"_tool": "where"}], wait_s=0))["run"]
            with anyio.fail_after(20):
                while await queued(http, base) != "1.0":
                    pass

            with working(path):
                await call(client, "check_run", run=run, wait_s=20)

            assert await queued(http, base) == "0.0"


async def test_programs_rooms_and_ideas_run_at_workers(configuration: Callable[..., Path]) -> None:
    path = configuration()
    program = "import tools\nfound = [await tools.where() for _ in range(3)]\nfound"
    with working(path) as worker:
        async with front_in_memory(path) as client:
            answer = await call(client, "run_plan", program=program, wait_s=20)
            assert answer["output"] == [worker.pid] * 3
            await call(
                client,
                "publish_idea",
                idea=answer["run"],
                name="three",
                description="Three places.",
            )
            nested = [{"_tool": "three", "_module": "idea:three", "_outputPath": "found"}]
            within = await call(client, "run_plan", calls=nested, output="†state.found", wait_s=20)
            assert within["output"] == [worker.pid] * 3
            direct = await client.call_tool("three", {})
            assert str(worker.pid) in str(direct.content)


async def test_a_run_goes_to_a_worker_that_has_its_modules(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    modules = {name: plain(tmp_path, name, f"{name}_work") for name in ("left", "right")}
    path = configuration(mcpServers=modules)
    with working(path, "--module", "left"):
        async with front_in_memory(path) as client:
            left = await call(
                client, "run_plan", calls=[{"_tool": "left_work", "x": "1"}], wait_s=20
            )
            assert left["status"] == "done"
            right = await call(
                client, "run_plan", calls=[{"_tool": "right_work", "x": "1"}], wait_s=0
            )
            task = await call(client, "run_plan", calls=[{"_tool": "where"}], wait_s=20)
            assert task["status"] == "done"
            assert (await call(client, "check_run", run=right["run"], wait_s=0))[
                "status"
            ] == "running"
            with working(path, "--module", "right"):
                assert (await call(client, "check_run", run=right["run"], wait_s=20))[
                    "status"
                ] == "done"


async def test_a_worker_that_is_ended_finishes_its_calls_and_others_continue_its_runs(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    path = configuration()
    log = tmp_path / "log"
    gate = Gate(tmp_path)
    calls = [
        {
            "_tool": "hold",
            "_id": "held",
            "gate": str(gate.path),
            "log": str(log),
            "_outputPath": "first",
        },
        {"_tool": "where", "_after": "held", "_outputPath": "second"},
    ]
    with ExitStack() as stack:
        stack.callback(gate.close)
        first = stack.enter_context(working(path))
        async with front_in_memory(path) as client:
            run = await call(client, "run_plan", calls=calls, output="†state", wait_s=0)
            await until(lambda: log.exists() and bool(log.read_text()))
            second = stack.enter_context(working(path))
            first.process.send_signal(signal.SIGTERM)
            more = await call(
                client,
                "run_plan",
                calls=[{"_tool": "where", "_outputPath": "at"}],
                output="†state.at",
            )
            assert more["output"] == second.pid
            gate.open()
            ended = await call(client, "check_run", run=run["run"], wait_s=20)
            assert ended["output"] == {"first": first.pid, "second": second.pid}
            assert await anyio.to_thread.run_sync(lambda: first.process.wait(30)) == 0

    assert log.read_text().split() == [str(first.pid)]


async def test_the_runs_of_a_killed_worker_continue_at_another(
    configuration: Callable[..., Path], tmp_path: Path, store: str
) -> None:
    path = configuration()
    log = tmp_path / "log"
    gate = Gate(tmp_path)
    held = {"_tool": "hold", "gate": str(gate.path), "log": str(log), "_outputPath": "held"}
    calls = [{"_tool": "where", "_outputPath": "first"}, held]
    with ExitStack() as stack:
        stack.callback(gate.close)
        first = stack.enter_context(working(path))
        async with front(path) as client:
            run = await call(client, "run_plan", calls=calls, output="†state", wait_s=0)
            await until(lambda: log.exists() and bool(log.read_text()))
            with Store.open(store) as opened:
                taken = opened.runs.get(run["run"])
                # The server did not die, so this does not count as resuming the run for the first
                # time, or towards setting it aside.
                assert taken is not None
                assert taken.summary.handover.taken_up == 0

            os.kill(first.pid, signal.SIGKILL)
            first.process.wait(30)
            with working(path):
                # The call may have taken effect, so a person is asked.
                asked = await call(client, "check_run", run=run["run"], wait_s=25)
                assert asked["status"] == "needs_approval"
                one = {
                    "approval": asked["approvals"][0]["approval"],
                    "decision": "value",
                    "value": 7,
                }
                ended = await call(
                    client, "decide_approval", run=run["run"], decisions=[one], wait_s=20
                )
                assert ended["output"] == {"first": first.pid, "held": 7}

    assert len(log.read_text().split()) == 1


async def test_the_rooms_of_a_killed_worker_wait_with_their_run(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    path = configuration()
    log = tmp_path / "log"
    gate = Gate(tmp_path)
    told: list[str] = []
    held = {"_tool": "hold", "gate": str(gate.path), "log": str(log), "_outputPath": "held"}
    with ExitStack() as stack:
        stack.callback(gate.close)
        first = stack.enter_context(working(path))
        async with front(path) as client:
            gate.open()
            run = await call(client, "run_plan", calls=[held], output="†state.held", wait_s=20)
            await call(
                client,
                "publish_idea",
                idea=run["run"],
                name="slow",
                description="Waits.",
                answer="plan",
            )
            nested = [{"_tool": "slow", "_module": "idea:slow", "_outputPath": "found"}]
            run = await call(client, "run_plan", calls=nested, output="†state.found", wait_s=0)
            await until(lambda: log.read_text().count("\n") == 2)
            os.kill(first.pid, signal.SIGKILL)
            first.process.wait(30)
            async with (
                Bridge(load_configuration(path), role="front") as bridge,
                anyio.create_task_group() as group,
            ):
                # This is a second server, whose reports are recorded.
                group.start_soon(
                    partial(bridge.recover_runs, lambda _, why: told.append(why), keep=True)
                )
                await until(lambda: bridge.store.queue.count() == 1)
                stack.enter_context(working(path))
                asked = await call(client, "check_run", run=run["run"], wait_s=25)
                assert asked["status"] == "needs_approval"
                one = {
                    "approval": asked["approvals"][0]["approval"],
                    "decision": "value",
                    "value": 7,
                }
                ended = await call(
                    client, "decide_approval", run=run["run"], decisions=[one], wait_s=20
                )
                assert ended["output"] == 7
                group.cancel_scope.cancel()

    assert told == []


async def test_a_worker_with_an_unknown_module_does_not_start(
    configuration: Callable[..., Path],
) -> None:
    path = configuration()
    program = preloaded.python(
        BIN / "ideabridge", "worker", "--config", str(path), "--module", "nowhere"
    )
    done = await anyio.run_process(program, check=False)
    assert done.returncode == 2
    assert "server 'nowhere' is not configured" in done.stderr.decode()


def test_the_queue_is_fair_and_keeps_to_the_limits_of_users(store: str) -> None:
    with Store.open(store) as opened:
        runs = opened.runs

        def queue(name: str, caller: str, *needs: str, begun: bool = False) -> None:
            runs.create(name, kind="plan", caller=caller, title="", fingerprint="f")
            for _ in range(2 if begun else 1):
                epoch = opened.leases.acquire(name, "server", 15, 0)
                assert epoch is not None
                opened.queue.put(name, epoch, Handover(needs=needs))

        def claim(most: int, limit: int = 9, modules: set[str] | None = None) -> list[str]:
            return opened.queue.claim(
                "f",
                most,
                lambda run, busy: busy < limit and (modules is None or set(run.needs) <= modules),
            )

        for number in range(3):
            queue(f"a{number}", "ann")
        queue("b0", "bob", "git")
        queue("b1", "bob")
        queue("c0", "cleo", begun=True)
        runs.create("other", kind="plan", caller="ann", title="", fingerprint="g")
        assert opened.queue.count("f", 100) == 6
        assert claim(3, modules=set()) == ["c0", "b1", "a0"]
        assert claim(9, limit=3) == ["b0", "a1"]
        assert claim(9, limit=3) == []
        record = runs.get("a1")
        assert record is not None
        assert (record.status, record.driver) == ("running", None)
        assert claim(9) == ["a2"]
        assert opened.queue.count("f", 100) == 0
        # Runs of jobs wait until nothing else is waiting, even if they have already begun.
        queue("d0", "nightly", begun=True)
        queue("d1", "nightly")
        queue("a3", "ann")
        last = opened.queue.claim(
            "f", 2, lambda _run, _busy: True, lambda caller: caller == "nightly"
        )
        assert last == ["a3", "d0"]


async def test_jobs_of_a_user_in_the_background_run_when_nothing_else_waits(
    configuration: Callable[..., Path], tmp_path: Path
) -> None:
    path = configuration(users={"background": ["nightly"]})
    log = tmp_path / "log"
    gate = Gate(tmp_path)
    held = {"_tool": "hold", "gate": str(gate.path), "log": str(log)}
    async with Bridge(load_configuration(path), role="front") as bridge:
        # While this run is being driven, bob's run comes before ann's next one.
        await bridge.run_plan({"calls": [held]}, caller="user:ann")
        with working(path, "--runs", "1"):
            await until(lambda: log.exists() and bool(log.read_text()))
            for word, caller in (("job", "user:nightly"), ("ann", "user:ann"), ("bob", "user:bob")):
                await bridge.run_plan(
                    {"calls": [{"_tool": "note", "log": str(log), "word": word}]}, caller=caller
                )

            await until(lambda: bridge.store.queue.count(most=9) == 3)
            gate.open()
            await until(lambda: len(log.read_text().split()) == 4)

    gate.close()
    assert log.read_text().split()[1:] == ["ann", "bob", "job"]


async def test_more_runs_than_may_wait_are_refused(
    configuration: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.driving.queue.MOST_QUEUED", 2)
    async with Bridge(load_configuration(configuration()), role="front") as bridge:
        plan = {"calls": [{"_tool": "where"}]}
        first = await bridge.run_plan(plan)
        await bridge.run_plan(plan)
        await until(lambda: bridge.store.queue.count(most=9) == 2)
        with pytest.raises(
            LimitExceededError, match="2 runs are waiting for a worker, which is the limit"
        ):
            await bridge.run_plan(plan)
        await bridge.cancel(first.id, "not needed")
        await bridge.run_plan(plan)


async def test_one_user_cannot_take_every_place_of_the_queue(
    configuration: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.driving.queue.MOST_QUEUED", 4)
    monkeypatch.setattr("ideabridge.bridge.driving.queue.MOST_OF_ONE_CALLER", 2)
    async with Bridge(load_configuration(configuration()), role="front") as bridge:
        plan = {"calls": [{"_tool": "where"}]}
        for number in (1, 2):
            await bridge.run_plan(plan, caller="user:ann")
            await until(lambda most=number: bridge.store.queue.count(most=9) == most)

        with pytest.raises(
            LimitExceededError,
            match=r"2 of your runs are waiting for a worker.* which is the limit for one user",
        ):
            await bridge.run_plan(plan, caller="user:ann")

        await bridge.run_plan(plan, caller="user:bob")
