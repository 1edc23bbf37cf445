"""A run that ends its processes is not taken up for ever, and can be ended by a person."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.server.main import main
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded
from tests.server.serving import Gate, call, configured, over_stdio
from tests.waiting import until

pytestmark = pytest.mark.anyio

DRIVER = Path(__file__).parents[1] / "crash" / "process.py"
PLAN: JSON = {
    "calls": [
        {"_tool": "quick", "_outputPath": "a"},
        {"_tool": "stuck", "_imports": ["†state.a"], "_outputPath": "b"},
    ],
    "output": "†state.b",
}


class Desk:
    """Tools of a bridge; `stuck` never ends, unless it is `free`."""

    def __init__(self, *, free: bool = False) -> None:
        self.started = 0
        self.begun = anyio.Event()
        self.left: list[tuple[str, str]] = []
        self.taken: list[str] = []

        @tool(read_only=True)
        async def quick() -> str:
            """Quick."""
            return "quick"

        @tool(read_only=True)
        async def stuck() -> str:
            """Stuck."""
            self.started += 1
            self.begun.set()
            if not free:
                await anyio.sleep_forever()
            return "free"

        self.toolbox = Toolbox(quick, stuck)

    def tell(self, record: RunRecord, why: str) -> None:
        self.left.append((record.id, why))

    async def recover(self, bridge: Bridge) -> None:
        with anyio.fail_after(20):
            await bridge.recover_runs(self.tell, lambda run: self.taken.append(run.id))


async def stuck_run(store: Path) -> str:
    desk = Desk()
    async with Bridge(toolbox=desk.toolbox, store=store) as bridge:
        run = await bridge.run_plan(read_plan(PLAN))
        await desk.begun.wait()
        return run.id


def as_if_killed(store: Path) -> Path:
    """Copy a store as a process would leave it that is killed now: with its leases."""
    copy = store.with_name("killed.sqlite")
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)

    return copy


async def taken_up(store: Path, *, killed: bool = True) -> Desk:
    """A process that takes up what was left, and is killed or shut down while its call is at work,
    or has nothing to do.
    """
    desk = Desk()
    copy = None
    async with (
        Bridge(toolbox=desk.toolbox, store=store) as bridge,
        anyio.create_task_group() as group,
    ):
        ended = anyio.Event()

        async def recover() -> None:
            await desk.recover(bridge)
            ended.set()

        group.start_soon(recover)
        await until(lambda: desk.begun.is_set() or ended.is_set())
        if killed:
            copy = as_if_killed(store)

        group.cancel_scope.cancel()

    if copy is not None:
        copy.replace(store)

    return desk


async def test_a_run_that_comes_no_further_is_set_aside_and_named(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await stuck_run(path)
    for _ in range(2):
        assert (await taken_up(path)).started == 1

    third = await taken_up(path)
    assert third.started == 0
    [(left, why)] = third.left
    assert left == run_id
    assert "resumed 2 times without progress, while call 1 (stuck) was running" in why
    assert f"`ideabridge resume {run_id}`" in why
    assert f"`ideabridge runs cancel {run_id}`" in why
    # This is reported once. Nothing resumes the run by itself, not even looking at it.
    fourth = await taken_up(path)
    assert (fourth.started, fourth.left) == (0, [])
    desk = Desk()
    async with Bridge(toolbox=desk.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "interrupted"
        assert "set aside" in str(run.answer()["reason"])
        [listed] = bridge.runs()
        assert (listed["status"], "set aside" in listed.get("reason", "")) == ("interrupted", True)
        assert desk.started == 0


async def test_a_run_is_not_set_aside_because_its_processes_were_shut_down(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await stuck_run(path)
    for killed in (False, False, False, True, False, True, True):
        desk = await taken_up(path, killed=killed)
        assert (desk.started, desk.left) == (1, [])

    # The last two processes were killed.
    last = await taken_up(path)
    assert (last.started, [left for left, _ in last.left]) == (0, [run_id])


async def test_a_run_is_not_set_aside_while_its_mind_takes_longer_than_its_processes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    asked = anyio.Event()

    async def slow(_: Request) -> JSONObject:
        asked.set()
        await anyio.sleep_forever()
        return {}

    async def quick(_: Request) -> JSONObject:
        return {"calls": [], "output": "free"}

    run_id = ""
    for _ in range(4):
        asked = anyio.Event()
        async with Bridge(mind=slow, store=path) as bridge:
            if run_id:
                run = await bridge.run(run_id)
            else:
                run = await bridge.solve("x", output_schema={"type": "string"})

            run_id = run.id
            with anyio.fail_after(20):
                await asked.wait()

    async with Bridge(mind=quick, store=path) as bridge:
        run = await bridge.run(run_id)
        with anyio.fail_after(20):
            assert await run.result() == "free"


async def test_a_room_does_not_go_on_when_its_run_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    free = Desk(free=True)
    async with Bridge(toolbox=free.toolbox, store=path) as bridge:
        run = await bridge.run_plan(read_plan(PLAN))
        await run.wait()
        await bridge.publish(run.id, "stuck_again")

    desk = Desk()
    async with Bridge(toolbox=desk.toolbox, store=path) as bridge:
        calls: JSON = [{"_tool": "stuck_again", "_module": "idea:stuck_again"}]
        run = await bridge.run_plan(read_plan({"calls": calls}))
        await desk.begun.wait()

    for _ in range(2):
        assert (await taken_up(path)).started == 1

    third = await taken_up(path)
    [(left, why)] = third.left
    assert (left, third.started) == (run.id, 0)
    assert "resumed 2 times without progress" in why

    fourth = Desk(free=True)
    async with Bridge(toolbox=fourth.toolbox, store=path) as bridge:
        await fourth.recover(bridge)
        assert fourth.started == 0
        run = await bridge.resume(run.id)
        with anyio.fail_after(20):
            await run.wait()
        assert (run.status, fourth.started) == ("done", 1)


async def test_a_person_may_take_it_up_and_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await stuck_run(path)
    for _ in range(3):
        await taken_up(path)

    desk = Desk(free=True)
    async with Bridge(toolbox=desk.toolbox, store=path) as bridge:
        run = await bridge.resume(run_id)
        with anyio.fail_after(20):
            assert await run.result() == "free"


async def test_a_server_that_leaves_runs_to_workers_queues_what_a_person_takes_up(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await stuck_run(path)
    for _ in range(3):
        await taken_up(path)

    desk = Desk(free=True)
    async with Bridge(toolbox=desk.toolbox, store=path, role="front") as front:
        run = await front.resume(run_id)
        assert (run.status, desk.started) == ("running", 0)
        record = front.store.runs.get(run_id)
        assert record is not None
        assert (record.status, record.driver) == ("queued", None)
        async with (
            Bridge(toolbox=desk.toolbox, store=path, role="worker") as bridge,
            anyio.create_task_group() as group,
        ):
            group.start_soon(bridge.worker().run)
            with anyio.fail_after(20):
                assert await run.result() == "free"
            group.cancel_scope.cancel()

    assert desk.started == 1


async def test_a_room_whose_run_is_queued_is_not_said_to_be_driven(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    free = Desk(free=True)
    async with Bridge(toolbox=free.toolbox, store=path) as bridge:
        run = await bridge.run_plan(read_plan(PLAN))
        await run.wait()
        await bridge.publish(run.id, "stuck_again")

    desk = Desk()
    async with Bridge(toolbox=desk.toolbox, store=path) as bridge:
        calls: JSON = [{"_tool": "stuck_again", "_module": "idea:stuck_again"}]
        run = await bridge.run_plan(read_plan({"calls": calls}))
        await desk.begun.wait()
        [room] = bridge.store.runs.rooms(run.id)

    async with Bridge(toolbox=desk.toolbox, store=path, role="front") as front:
        reached = await front.resume(room.id)
        assert (reached.root.id, reached.root.status) == (run.id, "running")
        record = front.store.runs.get(run.id)
        assert record is not None
        assert record.status == "queued"


def stepping(reaches: int, reached: list[int], at_work: anyio.Event) -> Toolbox:
    """A tool whose calls end up to the one numbered `reaches`."""

    @tool(read_only=True)
    async def step(n: int) -> int:
        """Step."""
        if n > reaches:
            at_work.set()
            await anyio.sleep_forever()
        reached.append(n)
        return n

    return Toolbox(step)


async def test_what_comes_further_is_taken_up_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    calls: list[JSON] = [
        {
            "_tool": "step",
            "n": n,
            "_outputPath": f"s{n}",
            **({"_imports": [f"†state.s{n - 1}"]} if n else {}),
        }
        for n in range(6)
    ]
    run_id = ""
    for process in range(6):
        reached = list[int]()
        at_work = anyio.Event()
        async with Bridge(toolbox=stepping(process, reached, at_work), store=path) as bridge:
            if not run_id:
                run_id = (
                    await bridge.run_plan(read_plan({"calls": calls, "output": "†state.s5"}))
                ).id

            run = await bridge.run(run_id)
            with anyio.fail_after(20):
                if process < 5:
                    await at_work.wait()
                else:
                    assert await run.result() == 5

            assert reached == [process]


@pytest.mark.parametrize("takings", [0, 3])
@pytest.mark.parametrize("same", [True, False])
async def test_a_run_that_was_left_is_cancelled_without_being_taken_up(
    tmp_path: Path, takings: int, *, same: bool
) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await stuck_run(path)
    for _ in range(takings):
        await taken_up(path)

    desk = Desk()
    # Under another configuration, the run could not continue, but it can still be ended.
    async with Bridge(toolbox=desk.toolbox if same else None, store=path) as bridge:
        run = await bridge.cancel(run_id, "enough")
        assert (run.status, run.machine.reason, desk.started) == ("cancelled", "enough", 0)
        events = [event["event"] for _, event in bridge.store.runs.events(run_id)]
        assert events[-1] == "run_ended"
        record = bridge.store.runs.get(run_id)
        assert record is not None
        assert (record.status, record.driver) == ("cancelled", None)


async def test_a_run_of_another_process_is_cancelled_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gate = Gate(tmp_path)
    configuration = configured(tmp_path)
    async with over_stdio(configuration, "auto") as client:
        begun = await call(
            client,
            "run_plan",
            calls=[{"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}],
            wait_s=0,
        )
        assert begun["status"] == "running"
        run_id = str(begun["run"])
        code = await anyio.to_thread.run_sync(
            main, ["runs", "cancel", run_id, "--config", str(configuration), "--json"]
        )
        out = json.loads(capfd.readouterr().out)
        assert (code, out) == (0, {"run": run_id, "status": "cancelled"})
        told = await call(client, "check_run", run=run_id, wait_s=5)
        assert (told["status"], told["reason"]) == ("cancelled", "cancelled at the command line")

    gate.close()


async def test_check_run_cancels_across_processes(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    configuration = configured(tmp_path)
    async with over_stdio(configuration, "auto") as one, over_stdio(configuration, "auto") as other:
        begun = await call(
            one,
            "run_plan",
            calls=[{"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}],
            wait_s=0,
        )
        told = await call(other, "check_run", run=begun["run"], cancel=True)
        assert told["status"] == "cancelled"

    gate.close()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a process is stopped")
def test_a_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """A driver that stands still: the wish is kept, and whoever takes the run up ends it."""
    store = tmp_path / "store.sqlite"
    with subprocess.Popen(
        preloaded.python(DRIVER, str(store), "60"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("start\n")
        process.stdin.flush()
        lines = sorted(process.stdout.readline().split() for _ in range(2))
        [run_id] = [words[1] for words in lines if words[0] == "run"]
        with Store.open(store) as looking:
            record = looking.runs.get(run_id)
            assert record is not None
            driver = int(str(record.driver).rsplit("|", 5)[3])

        os.kill(driver, signal.SIGSTOP)

        async def cancel() -> None:
            async with Bridge(store=store) as bridge:
                with pytest.raises(InterruptedRunError, match=f"process {driver} on .* within 5 s"):
                    await bridge.cancel(run_id, "enough")
                assert bridge.store.requests.cancels() == {run_id: "enough"}

        anyio.run(cancel)
        os.kill(driver, signal.SIGCONT)
        assert process.stdout.readline() == "ended cancelled\n"
        process.stdin.close()

    with Store.open(store) as looking:
        assert looking.requests.cancels() == {}
