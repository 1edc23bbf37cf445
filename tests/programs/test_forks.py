"""Runs of programs are forked: what had run is kept, and what the program does after
it is done anew.
"""

from __future__ import annotations

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import PlanError, RejectedSolutionError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.toolbox import Toolbox

pytestmark = pytest.mark.anyio

PROGRAM = """
import tools
found = await tools.look(name=input["name"])
print(found)
sent = await tools.send(text=found)
await tools.look(name=sent) + "!"
"""
"""Its calls need the results of those before them."""

ALLOWED = Configuration(approval="allow_all")


class Ran:
    """Tools, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(read_only=True)
        def look(name: str) -> str:
            """Look."""
            self.calls.append(f"look {name}")
            return f"seen {name}"

        @tool
        def send(text: str) -> str:
            """Send."""
            self.calls.append(f"send {text}")
            return f"sent {text}"

        self.toolbox = Toolbox(look, send)


async def settled(run: Run) -> JSON:
    """The output of a run that ends by itself; None without one."""
    with anyio.fail_after(30):
        await run.wait()
    return run.given() if run.status == "done" else None


async def names_of(run: Run) -> list[str]:
    with anyio.fail_after(30):
        return [event.name async for event in run]


async def test_a_fork_of_a_program_runs_only_what_had_not_been_started() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await bridge.run_plan({"program": PROGRAM, "input": {"name": "x"}})
        whole = await settled(parent)
        assert whole == "seen sent seen x!"
        every = ran.calls
        events = await names_of(parent)
        for at in range(1, len(events) + 1):
            ran.calls = []
            fork = await bridge.fork(parent.id, at)
            assert await settled(fork) == whole, at
            # Calls that were running keep the results that they had.
            assert ran.calls == every[events[:at].count("call_started") :], at
            assert (await names_of(fork)).count("printed") == 1
            assert len(fork.calls()) == 3


async def test_a_fork_with_another_input_begins_anew_or_says_where_it_differs() -> None:
    ran = Ran()
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        parent = await bridge.run_plan({"program": PROGRAM, "input": {"name": "x"}})
        await settled(parent)
        assert (
            await settled(await bridge.fork(parent.id, 1, input={"name": "y"}))
            == "seen sent seen y!"
        )
        ran.calls = []
        after = (await names_of(parent)).index("call_finished") + 1
        fork = await bridge.fork(parent.id, after, input={"name": "y"})
        assert await settled(fork) is None
        assert "diverged: instead of its call 0" in str(fork.machine.reason)
        assert ran.calls == []


async def test_another_solution_may_be_a_program() -> None:
    ran = Ran()
    other: JSON = {"program": "import tools\nawait tools.look(name=input['name'] + '2')"}
    async with Bridge(ALLOWED, toolbox=ran.toolbox) as bridge:
        plan = await bridge.run_plan(
            calls=[{"_tool": "look", "name": "†input.name"}], input={"name": "x"}
        )
        await settled(plan)
        solved = await bridge.solve("Look.", input={"name": "x"})
        solved.submit(0, {"calls": [], "output": "nothing"})
        await settled(solved)
        for parent in (plan, solved):
            fork = await bridge.fork(parent.id, 2, solution=other)
            assert await settled(fork) == "seen x2", parent.status

        with pytest.raises(PlanError, match="has no member `lok`"):
            await bridge.fork(
                plan.id, 2, solution={"program": "import tools\nawait tools.lok(name='x')"}
            )

        for parent in (plan, solved):
            with pytest.raises(RejectedSolutionError, match="leave out calls and output"):
                await bridge.fork(parent.id, 2, solution={"program": "1", "output": 2})
