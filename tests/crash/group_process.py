"""A process that is killed in the middle of a group: one call has ended, another is at work
and never ends.

    group_process.py STORE TOOL

`TOOL` is what the call at work runs: `look` or `pay`. The process says `session RUN`, and
`ready` to be killed.
"""

import sys
from functools import partial

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.runs.session import Session
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.toolbox import Toolbox

say = partial(print, flush=True)


def group_of(name: str) -> list[JSONObject]:
    return [
        {"_tool": "look", "name": "first", "_outputPath": "first"},
        {"_tool": name, "name": "second", "_outputPath": "second"},
    ]


async def work(session: Session, name: str) -> None:
    await session.run_all(group_of(name))


async def main() -> None:
    @tool(read_only=True)
    async def look(name: str) -> str:
        """Look; the second never sees anything."""
        if name == "second":
            await anyio.sleep_forever()
        return name

    @tool(read_only=False)
    async def pay(name: str) -> str:
        """Pay, and never hear of it."""
        await anyio.sleep_forever()
        return name

    store, name = sys.argv[1:]
    configuration = Configuration.model_validate({"approval": "allow_all"})
    async with (
        Bridge(configuration, toolbox=Toolbox(look, pay), store=store) as bridge,
        bridge.session(state={"before": 1}) as session,
        anyio.create_task_group() as group,
    ):
        say("session", session.id)
        group.start_soon(work, session, name)
        run = session.underlying
        while [one.status.value for one in run.calls()] != ["done", "running"]:
            await run.runner.wait_changed()

        say("ready")


if __name__ == "__main__":
    anyio.run(main)
