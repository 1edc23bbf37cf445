"""A process that drives runs, told what to do line by line; it answers line by line.

    process.py STORE LEASE_SECONDS [AHEAD]

`start`: start a run of two calls, of which each says `started NAME` and waits for `go`.
`resume RUN`: take it up, answer `mine` or why not. `recover`: take up what was left behind.
`block SECONDS`: say `blocking`, and let no task of this process run for so long. Runs that end here
say `ended STATUS`.

With AHEAD the process is on another machine, whose clock is ahead by so many seconds.
"""

import sys
import time
from functools import partial

import anyio
import anyio.to_thread

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.driving import driver
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.toolbox import Toolbox

PLAN: JSON = {
    "calls": [
        {"_tool": "held", "name": "first", "_outputPath": "a"},
        {"_tool": "held", "name": "second", "_imports": ["†state.a"], "_outputPath": "b"},
    ],
    "output": ["†state.a", "†state.b"],
}

say = partial(print, flush=True)


class Gate:
    """Lets one call through for each `go`."""

    def __init__(self) -> None:
        self.going = anyio.Semaphore(0)

    async def held(self, name: str) -> str:
        say("started", name)
        await self.going.acquire()
        return name


async def main() -> None:
    gate = Gate()

    @tool(read_only=True)
    async def held(name: str) -> str:
        """Wait for the test."""
        return await gate.held(name)

    store, lease, *ahead = sys.argv[1:]
    if ahead:
        now = time.time
        time.time = lambda: now() + float(ahead[0])
        driver._place = lambda: (f"a boot of machine {ahead[0]}", "pid:[1]")  # pyright: ignore[reportPrivateUsage]

    async with (
        Bridge(toolbox=Toolbox(held), store=store, lease_seconds=float(lease)) as bridge,
        anyio.create_task_group() as group,
    ):

        async def follow(run: Run) -> None:
            say("ended", await run.wait())

        def tell(record: RunRecord, why: str) -> None:
            say("left", record.id, why)

        def taken_up(run: Run) -> None:
            group.start_soon(follow, run)

        say("ready")
        while line := (
            await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        ).split():
            match line:
                case ["start"]:
                    run = await bridge.run_plan(read_plan(PLAN))
                    say("run", run.id)
                    group.start_soon(follow, run)
                case ["go"]:
                    gate.going.release()
                case ["block", seconds]:
                    say("blocking")
                    time.sleep(float(seconds))  # noqa: ASYNC251 - it is what a busy process does
                case ["recover"]:
                    group.start_soon(bridge.recover_runs, tell, taken_up)
                case ["resume", run_id]:
                    try:
                        run = await bridge.resume(run_id)
                    except IdeabridgeError as error:
                        say("not mine:", error)
                    else:
                        say("mine")
                        group.start_soon(follow, run)
                case _:
                    raise ValueError(line)

        group.cancel_scope.cancel()


anyio.run(main)
