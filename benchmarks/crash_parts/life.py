"""Lives: processes that drive runs. Each takes up what the last one left, starts runs of its
own, and is killed.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

from .mind import SlowMind
from .plans import plan_of, program_of
from .rooms import OUTPUT, TOOLS, rooms_plan, task_of

sys.path.insert(1, str(Path(__file__).parents[2]))
from tests.disk import Disk

# Import these before the fork. A life should be killed while it works, not during these imports,
# which otherwise happen when the first module is needed.
driver = importlib.import_module("ideabridge.bridge.driving.driver")
importlib.import_module("ideabridge.bridge.modules.module")

MODULE = Path(__file__).with_name("module.py")

LEASE = 1.5
"""Seconds for which a life holds a run without a heartbeat."""

BATCHES = 20
"""How often a life starts runs, each time when the last ones have ended."""

RUNS_EACH = 2
"""How many plans without rooms a life starts at a time; one with rooms and one run of
a mind besides."""

NUMBERS = BATCHES * RUNS_EACH
"""How many numbers of plans one life may use."""

PAUSE = 0.1
"""Seconds until a life asks again what the store refused."""

Say = Callable[[str], None]


def configured(log: Path, reloads: int = 0) -> Configuration:
    """The configuration of every life: one module over stdio, nobody is asked. After a reload, the
    module gets another process although it starts in the same way, and a further one comes or
    goes.
    """
    entry: dict[str, JSON] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(MODULE), str(log)],
        "parallel": 8 + reloads % 2,
    }
    servers: dict[str, JSON] = {"crash": entry}
    if reloads % 2:
        others: list[JSON] = ["-I", "-S", str(MODULE), f"{log}.idle"]
        servers["idle"] = {**entry, "args": others, "deny": ["*"]}
    return parse_configuration({"mcpServers": servers, "approval": "allow_all"}, project=log.parent)


def skip_unknown(run: Run) -> int:
    """Answer every question about an unknown outcome with `skip`. Returns how many there were."""
    asked = run.questions()
    for question in asked:
        run.decide(question.approval, "skip", by="the life after")
    return len(asked)


async def begin_run(bridge: Bridge, kind: str, number: int, seed: int, slowness: int = 25) -> Run:
    """Start a run: a `plan`, a `program`, a plan with `rooms` (`ideas`: without that of a mind), or
    one that a mind has to `solve`. Its title says which.

    `slowness`: most milliseconds that a call of a plan takes.
    """
    if kind == "solve":
        task = task_of(number, seed)
        return await bridge.solve(task, tools=TOOLS, output_schema=OUTPUT)

    if kind in ("rooms", "ideas"):
        plan = rooms_plan(number, seed, minded=kind == "rooms")
    else:
        if kind == "plan":
            plan = plan_of(number, seed, slowness)
        else:
            plan = program_of(number, seed, slowness)

    return await bridge.run_plan(read_plan(plan), title=f"{kind} {number}")


async def begin_when_served(bridge: Bridge, kind: str, number: int, seed: int) -> Run:
    """Start a run as `begin_run` does. While the module is down because it was killed before it was
    up, the plan is refused, as it should be, and this asks again.
    """
    while True:
        try:
            return await begin_run(bridge, kind, number, seed)
        except PlanError as error:
            if "was ended by SIGKILL" not in str(error):
                raise

        await anyio.sleep(PAUSE)


async def live(folder: Path, first: int, seed: int, say: Say) -> None:
    """Live until killed.

    Args:
        folder: holds the store and the log.
        first: number of the first plan to start.
        seed: of the plans.
        say: reports to the parent: `run ID`, `resumed ID`, `late ID` where the store hinders that,
            `aside ID` where it is set aside, `ended ID STATUS WHY`, `idea ID`, `asked REQUEST`,
            `refused KIND NUMBER` where the store did not take a run, `skipped COUNT` for answered
            questions, or `trouble WORDS`.
    """

    def tell(record: RunRecord, why: str) -> None:
        if "could not be written" in why:
            # The store is failing, so try the run again later.
            say(f"late {record.id}")
        elif "is set aside" in why:
            say(f"aside {record.id}")
        else:
            say(f"trouble run {record.id} is not resumed: {why}")

    log = folder / "log"
    async with (
        Bridge(
            configured(log), store=folder / "store.sqlite", mind=SlowMind(say), lease_seconds=LEASE
        ) as bridge,
        anyio.create_task_group() as group,
    ):

        async def follow(run: Run) -> None:
            while await run.wait() == "needs_approval":
                try:
                    say(f"skipped {skip_unknown(run)}")
                except IdeabridgeError:
                    # Either the store is failing, or another life has the run, which is then no
                    # longer needed here.
                    if run.runner.lost is None:
                        await anyio.sleep(PAUSE)
            say(f"ended {run.id} {run.status} {run.runner.lost or ''}")

        def taken_up(run: Run) -> None:
            say(f"resumed {run.id}")
            group.start_soon(follow, run)

        async def drive(kind: str, number: int) -> None:
            try:
                run = await begin_when_served(bridge, kind, number, seed)
            except StoreError as error:
                say(f"refused {kind} {number} {error}")
                return

            say(f"run {run.id}")
            say(f"began {kind}")
            if kind == "plan":
                alone = Idea(
                    [{"role": "user", "content": f"alone {number}"}],
                    {"type": "string"},
                    {"calls": []},
                )
                try:
                    say(f"idea {bridge.store.ideas.save(alone, IdeaMeta(title='alone'))}")
                except StoreError:
                    say(f"refused idea {number}")

            await follow(run)
            if kind == "plan" and run.idea is not None:
                say(f"idea {run.idea}")

        group.start_soon(_follow_reloads, bridge, log)
        group.start_soon(partial(bridge.recover_runs, tell, taken_up, keep=True))
        for batch in range(BATCHES):
            number = first + batch * RUNS_EACH
            async with anyio.create_task_group() as runs:
                for plan in range(number, number + RUNS_EACH):
                    runs.start_soon(drive, "plan", plan)
                    runs.start_soon(drive, "program", plan)
                runs.start_soon(drive, "rooms", number)
                runs.start_soon(drive, "solve", number)

        await anyio.sleep_forever()


async def _follow_reloads(bridge: Bridge, log: Path) -> None:
    """Let a bridge follow another configuration at each signal."""
    reloads = 0
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            reloads += 1
            await bridge.reconfigure(configured(log, reloads))


class Life:
    """A process that runs `live`, as its parent sees it.

    Args:
        folder: holds the store and the log.
        first: number of the first plan it starts.
        seed: of the plans.
        hear: gets every line that it says.
        elsewhere: it takes itself for a process of another machine: it cannot see whether the
            drivers of this one live.

    Attributes:
        pid: its process id.
        alive: whether it has not ended as far as is known. It never ends by itself but by a
            defect, which it says.
        heard: whether it has said something: then it has opened the store.
        disk: on which it writes the store.
        open: runs that it drives as far as it has said.
        given_up: runs that ended here as `interrupted`, with the reason.
        said: the words that it said about each run, in their order.
        began: the kinds of the runs that it has begun.
        slept: it was frozen for longer than its leases hold: others may have its runs.
    """

    def __init__(
        self,
        folder: Path,
        first: int,
        seed: int,
        hear: Callable[[str], None],
        *,
        elsewhere: bool = False,
    ) -> None:
        self._reading, writing = os.pipe()
        self._hear = hear
        self._rest = b""
        self.heard = False
        self.open: set[str] = set()
        self.given_up: dict[str, str] = {}
        self.said: dict[str, list[str]] = {}
        self.began: set[str] = set()
        self.alive = True
        self._frozen = False
        self.slept = False
        self.disk = Disk(folder / "disk")
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            os.set_blocking(self._reading, False)
            return

        say = partial(_say, writing)
        try:
            os.close(self._reading)
            # Write the log to a file, where it is counted and does not mix with the output of the
            # parent.
            noise = os.open(folder / "noise", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(noise, 2)
            if elsewhere:
                setattr(driver, "_place", lambda: ("another boot", "another space"))  # noqa: B010 - it is private

            # Ignore a reload that arrives before the life can follow it.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            with self.disk:
                anyio.run(live, folder, first, seed, say)
        except BaseException as error:  # noqa: BLE001 - the parent must hear of a life that ends by itself
            say(f"trouble a life ended by itself: {_cause(error)}")
        finally:
            os._exit(1)

    def hear(self, seconds: float = 0.0) -> bool:
        """Wait for its next lines, at most `seconds`, and take them in. False where it has
        ended.
        """
        poll = select.poll()
        poll.register(self._reading, select.POLLIN | select.POLLHUP)
        if not poll.poll(max(seconds, 0) * 1000):
            return True

        try:
            data = os.read(self._reading, 1 << 20)
        except BlockingIOError:
            return True

        self.heard = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode())

        return bool(data)

    def hear_of(self, kind: str, seconds: float) -> None:
        """Take in what it says until it has begun a run of a kind, for at most `seconds`."""
        end = time.monotonic() + seconds
        while kind not in self.began and (left := end - time.monotonic()) > 0 and self.hear(left):
            pass

    def hear_for(self, seconds: float) -> bool:
        """Take in what it says for a time. False where it has ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.hear(left):
                return False
        return True

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "began":
            self.began.add(rest)
            return

        self.said.setdefault(rest.partition(" ")[0], []).append(word)
        if word in ("run", "resumed", "late"):
            # A room continues together with the run that it belongs to.
            self.open.update({rest} if "." not in rest else ())
        elif word == "aside":
            # The run waits for a person.
            self.open.discard(rest)
        elif word == "ended":
            run_id, status, why = rest.split(" ", 2)
            self.open.discard(run_id)
            if status == "interrupted" and not self.slept:
                self.given_up[run_id] = why

        self._hear(line)

    def reload(self) -> None:
        """Let it follow another configuration."""
        if self.alive and not self._frozen:
            os.kill(self.pid, signal.SIGUSR1)

    def stop(self) -> None:
        """Freeze it, where it is not frozen."""
        if not self._frozen:
            self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)
            _, how = os.waitpid(self.pid, os.WUNTRACED | os.WCONTINUED)
            self._frozen = os.WIFSTOPPED(how)
            self.alive = self._frozen or os.WIFCONTINUED(how)

    def kill(self) -> None:
        """End it with SIGKILL, and take in the rest of what it said."""
        self._signal(signal.SIGKILL)
        while self.hear():
            pass
        os.close(self._reading)


def _cause(error: BaseException) -> str:
    """An exception in words, or the first of a group, with the places in our code that
    it came through.
    """
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    frames = [
        frame
        for frame in traceback.extract_tb(first.__traceback__)
        if "ideabridge" in frame.filename
    ]
    return (
        f"{first!r} at "
        f"{' < '.join(f'{Path(one.filename).name}:{one.lineno}' for one in reversed(frames))}"
    )


def _say(writing: int, line: str) -> None:
    # A pipe takes a line of this length in one piece, so it is written either completely or not at
    # all.
    os.write(writing, " ".join(line[:500].split("\n")).encode() + b"\n")
