"""A process is killed in the middle of a group of calls: all or nothing holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, GroupFailedError
from ideabridge.bridge.loop.event import GroupCommitted
from ideabridge.tools import Toolbox, tool
from tests.crash.group_process import group_of

pytestmark = pytest.mark.anyio

PROCESS = Path(__file__).with_name("group_process.py")


def killed(store: Path, name: str) -> str:
    """The id of a session whose process was killed while the second call of its
    group was at work.
    """
    root = str(Path(__file__).parents[2])
    command = [sys.executable, str(PROCESS), str(store), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        try:
            word, _, run_id = process.stdout.readline().strip().partition(" ")
            assert word == "session"
            assert process.stdout.readline() == "ready\n"
        finally:
            process.kill()

    return run_id


class Desk:
    """The same tools in the next process; they end at once."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(read_only=True)
        async def look(name: str) -> str:
            """Look."""
            self.ran.append(f"look {name}")
            return name

        @tool(read_only=False)
        async def pay(name: str) -> str:
            """Pay."""
            self.ran.append(f"pay {name}")
            return name

        self.toolbox = Toolbox(look, pay)


async def test_what_may_run_twice_goes_on_and_all_of_it_is_committed_at_once(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store.sqlite"
    run_id = killed(store, "look")
    desk = Desk()
    configuration = Configuration.model_validate({"approval": "allow_all"})
    async with Bridge(configuration, toolbox=desk.toolbox, store=store) as bridge:
        async with bridge.session(run_id=run_id) as session:
            with anyio.fail_after(20):
                assert await session.run_all(group_of("look")) == ["first", "second"]
            assert session.state == {"before": 1, "first": "first", "second": "second"}

        assert desk.ran == ["look second"]
        run = await bridge.run(run_id)
        assert run.status == "done"
        assert (
            len([event async for event in run.events() if isinstance(event, GroupCommitted)]) == 1
        )


async def test_an_unknown_outcome_fails_the_group_and_nothing_of_it_is_committed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store.sqlite"
    run_id = killed(store, "pay")
    desk = Desk()
    configuration = Configuration.model_validate({"approval": "allow_all"})
    async with Bridge(configuration, toolbox=desk.toolbox, store=store) as bridge:
        async with bridge.session(run_id=run_id) as session:
            with (
                anyio.fail_after(20),
                pytest.raises(GroupFailedError, match="outcome unknown") as failed,
            ):
                await session.run_all(group_of("pay"))

            assert [(one["place"], one["outcome"]) for one in failed.value.effects] == [
                (1, "unknown")
            ]
            assert session.state == {"before": 1}
            # The session continues.
            assert await session.run({"_tool": "look", "name": "again"}) == "again"

        assert desk.ran == ["look again"]
        run = await bridge.run(run_id)
        assert not [event async for event in run.events() if isinstance(event, GroupCommitted)]
