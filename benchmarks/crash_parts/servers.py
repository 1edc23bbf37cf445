"""Three servers on one store: when one of them is killed, the others take its runs up
without being asked.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from serving.server import CallError, Client, Server

from ideabridge.bridge.store.sqlite import sqlite3

from .life import MODULE
from .plans import plan_of
from .witness import Witness

SERVERS = 3
RUNS_EACH = 3
"""Runs that each server has at work when one is killed."""

SLOWNESS = 250
"""Most milliseconds that a call takes: a run is at work for one to three seconds."""

WITHIN = 10.0
"""Seconds within which every run has settled after a kill."""

ANSWERS = 2.0
"""Seconds within which another server answers `check_run` when the run has ended."""

_SETTLED = ("done", "needs_approval")


class Servers:
    """The servers, and what they do to their runs.

    Args:
        folder: holds the store and the log.
        seed: of the plans.
        witness: gets what is wrong.

    Attributes:
        begun: all runs, and the numbers of their plans.
        counts: figures.
        slowest: seconds until all runs had settled after a kill, at most.
    """

    def __init__(self, folder: Path, seed: int, witness: Witness) -> None:
        self._folder = folder
        self._seed = seed
        self._witness = witness
        self._draw = random.Random(seed)
        self._number = 0
        self.begun: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.slowest = self.slowest_answer = 0.0
        self._config = folder / "ideabridge.json"
        entry = {
            "command": sys.executable,
            "args": ["-I", "-S", str(MODULE), str(folder / "log")],
            "parallel": 8,
        }
        told = {
            "store": str(folder / "store.sqlite"),
            "approval": "allow_all",
            "mcpServers": {"crash": entry},
        }
        self._config.write_text(json.dumps(told))

    async def disturb(self, kills: int) -> None:
        """Kill one of the servers again and again, and start it anew. Before that, ask a server
        for others' runs.
        """
        servers = [self._server() for _ in range(SERVERS)]
        try:
            await self._ask_elsewhere(servers)
            for _ in range(kills):
                await self._kill_one(servers)
        except OSError as error:
            ended = [f"{server.url}: {server.ended()}" for server in servers]
            printed = (self._folder / "noise").read_text()[-2000:]
            self._witness.violations.append(
                f"a server does not answer ({error}); exit codes {ended}; {printed}"
            )
        finally:
            for server in servers:
                server.kill()

        self._witness.expect_no_module()

    def _server(self) -> Server:
        return Server(self._config, self._folder / "noise")

    async def _begin(self, server: Server) -> list[str]:
        """Start runs at a server; their ids."""
        client = Client(server.url)
        found: list[str] = []
        for _ in range(RUNS_EACH):
            plan = plan_of(self._number, self._seed, SLOWNESS)
            del plan["name"]
            result = await client.call("run_plan", {**plan, "wait_s": 0})
            found.append(result["structuredContent"]["run"])
            self.begun[found[-1]] = self._number
            self._number += 1

        client.close()
        self.counts["servers: runs"] += len(found)
        return found

    async def _ask_elsewhere(self, servers: list[Server]) -> None:
        """`check_run` at another server answers when the run ends."""
        ids = await self._begin(servers[0])

        async def ask(run_id: str) -> None:
            client = Client(servers[1].url)
            try:
                result = await client.call("check_run", {"run": run_id, "wait_s": 30})
            except CallError as error:
                self._witness.violations.append(
                    f"run {run_id}: check_run at another server failed: {error}"
                )
                return

            answered[run_id] = time.monotonic()
            status = result["structuredContent"]["status"]
            if status not in _SETTLED:
                self._witness.violations.append(
                    f"run {run_id}: check_run at another server answered {status}"
                )

        answered: dict[str, float] = {}
        settled: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            for run_id in ids:
                group.create_task(ask(run_id))
            while len(settled) < len(ids):
                now = time.monotonic()
                settled |= {
                    one: now
                    for one, how in self._statuses(ids).items()
                    if how in _SETTLED and one not in settled
                }
                await asyncio.sleep(0.05)

        for run_id, moment in answered.items():
            late = moment - settled[run_id]
            self.slowest_answer = max(self.slowest_answer, late)
            if late > ANSWERS:
                self._witness.violations.append(
                    f"run {run_id}: check_run at another server answered "
                    f"{late:.1f} s after it had ended"
                )

    async def _kill_one(self, servers: list[Server]) -> None:
        ids = [await self._begin(server) for server in servers]
        victim = self._draw.randrange(len(servers))
        await asyncio.sleep(self._draw.uniform(0, 1))
        # Stop the servers first, so that nobody writes to the store before its state after the kill
        # is examined.
        for server in servers:
            server.signal(signal.SIGSTOP)

        servers[victim].kill()
        killed = time.monotonic()
        self._witness.look_at_frozen(dead=frozenset(ids[victim]))
        for place, server in enumerate(servers):
            if place != victim:
                server.signal(signal.SIGCONT)

        every = [run_id for some in ids for run_id in some]
        open_: dict[str, str] = {}
        while (taken := time.monotonic() - killed) < WITHIN:
            open_ = {one: how for one, how in self._statuses(every).items() if how not in _SETTLED}
            if not open_:
                break
            await asyncio.sleep(0.05)
        else:
            for one, how in open_.items():
                whose = "the killed" if one in ids[victim] else "another"
                self._witness.violations.append(
                    f"run {one} of {whose} server is {how} {WITHIN:g} s after the kill"
                )

        self.slowest = max(self.slowest, taken)
        self.counts["servers: killed"] += 1
        await self._skip(servers[victim - 1], every)
        servers[victim] = self._server()

    async def _skip(self, server: Server, ids: list[str]) -> None:
        """Answer every question about an unknown outcome with `skip`."""
        client = Client(server.url)
        for run_id, status in self._statuses(ids).items():
            if status == "needs_approval":
                result = await client.call("check_run", {"run": run_id, "wait_s": 0})
                asked: list[dict[str, Any]] = result["structuredContent"].get("approvals", [])
                self.counts["servers: asked about"] += len(asked)
                decisions = [{"approval": one["approval"], "decision": "skip"} for one in asked]
                await client.call(
                    "decide_approval", {"run": run_id, "decisions": decisions, "wait_s": 30}
                )

        client.close()

    def _statuses(self, ids: list[str]) -> dict[str, str]:
        with closing(
            sqlite3.connect(f"file:{self._folder / 'store.sqlite'}?mode=ro", uri=True)
        ) as connection:
            found = dict(connection.execute("SELECT run, status FROM run_list").fetchall())
        return {one: found.get(one, "lost") for one in ids}
