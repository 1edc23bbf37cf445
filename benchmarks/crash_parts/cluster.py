"""A cluster: two servers and two workers on one store in PostgreSQL, with clients that reach them
through a balancer.

One of the processes is killed again and again, or connections to PostgreSQL are cut, or PostgreSQL
itself crashes. The clients ask again, answer every question about an unknown outcome with `skip`,
and take the turns of tasks. A process that was killed starts again while the others go on.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psycopg
from serving.server import NEW, OLD, CallError, Client

from ideabridge.bridge.store.errors import PASSING
from ideabridge.bridge.store.store import Store

from .harm import drawn
from .life import MODULE
from .mind import TASK, solution_of
from .plans import Plan, named_by, plan_of, program_of
from .reading import told_by
from .rooms import OUTPUT, TOOLS, rooms_plan, task_of
from .witness import Witness

sys.path.insert(1, str(Path(__file__).parents[2]))
from examples.cluster.balancer import balancing
from examples.cluster.member import Member, MemberError
from examples.cluster.postgres import PostgresServer
from tests.members import PreloadedMember

from ideabridge.bridge.store.users import SEES_ALL

CLIENTS: Final = 20
SLOWNESS: Final = 150
"""Most milliseconds that a call takes."""

SETTLES: Final = 30.0
"""Seconds within which a run settles after its client has begun it, answered it or taken its turn.
Time in which both servers, both workers, or PostgreSQL are starting does not count: then nobody
can go on with it.
"""

PAUSES: Final = (0.2, 2.0)
"""Least and most seconds between two events."""

KINDS: Final = {"worker": 4, "server": 4, "connections": 4}
"""What happens, and how often each is drawn after it has come once. A fourth kind, `postgres`, lets
PostgreSQL crash and start again."""

_BEGINS: Final = ("plan", "plan", "program", "ideas", "solve")
_ENDED: Final = ("done", "failed", "cancelled", "limit", "stalled")
_WAIT_S: Final = 10
_STARTS: Final = 3
_AGAIN: Final = 0.1
"""Seconds until a client asks again what was not answered."""


class _Uptime:
    """A clock that stands while no server, no worker or no store is ready."""

    def __init__(self) -> None:
        self._passed, self._since = 0.0, time.monotonic()
        self._runs = True

    def now(self) -> float:
        """Seconds for which all of them were ready."""
        return self._passed + (time.monotonic() - self._since if self._runs else 0.0)

    def set(self, *, runs: bool) -> None:
        """Let the clock run or stand."""
        self._passed, self._since = self.now(), time.monotonic()
        self._runs = runs


class Cluster:
    """The members of a cluster, their clients, and what happens to them.

    Args:
        folder: holds the configuration and the log of executions.
        seed: of the plans, and of what happens.
        witness: gets what is wrong.
        postgres: the server with the store.
        address: that of the store.

    Attributes:
        begun: the kind and the number of every run that was acknowledged.
        unheard: the same of the other runs.
        counts: figures.
        slowest: most seconds until a run had settled.
    """

    def __init__(
        self, folder: Path, seed: int, witness: Witness, postgres: PostgresServer, address: str
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._witness = witness
        self._postgres = postgres
        self._address = address
        self._draw = random.Random(seed)
        self._numbers: Iterator[int] = iter(range(10**6))
        self._left = False
        self.begun: dict[str, tuple[str, int]] = {}
        self.unheard: dict[str, tuple[str, int]] = {}
        self._ended: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        config = folder / "ideabridge.json"
        entry = {
            "command": sys.executable,
            "args": ["-I", "-S", str(MODULE), str(folder / "log")],
            "parallel": 8,
        }
        told = {"store": address, "approval": "allow_all", "mcpServers": {"crash": entry}}
        config.write_text(json.dumps(told))
        self._members = [
            PreloadedMember(
                "server" if name.startswith("s") else "worker", config, folder / f"{name}.log"
            )
            for name in ("s1", "s2", "w1", "w2")
        ]
        self._up = _Uptime()
        self._starting: dict[Member, asyncio.Task[None]] = {}
        self.refused: Counter[str] = Counter()

    async def disturb(
        self, events: int, kinds: dict[str, int] = KINDS, clients: int = CLIENTS
    ) -> None:
        """Let clients drive runs while events happen, and then until all that they
        began have settled.
        """
        try:
            for member in self._members:
                member.begin()
            for member in self._members:
                await asyncio.to_thread(member.wait_ready)
            servers = [member.url for member in self._members if member.kind == "server"]
            with Store.open(self._address) as store:
                async with balancing(servers) as (_, url):
                    async with asyncio.TaskGroup() as group:
                        for number in range(clients):
                            group.create_task(self._visit(url, number))
                        for kind in islice(drawn(self._draw, kinds), events):
                            await asyncio.sleep(self._draw.uniform(*PAUSES))
                            await self._event(kind, store)
                        await asyncio.gather(*self._starting.values())
                        self._left = True
                    await self._find_unheard(url, store)
                for member in self._members:
                    member.kill()
                self._wait_quiet()
                self._witness.look_into(store, 0)
                for run, status in self._ended.items():
                    record = store.runs.get(run)
                    if record is None or record.status != status:
                        self._witness.violations.append(
                            f"run {run} was acknowledged as {status}, and is {record}"
                        )
                self.counts["runs acknowledged as ended"] = len(self._ended)
        finally:
            for member in self._members:
                member.kill()
        self._witness.expect_no_module()

    async def _find_unheard(self, url: str, store: Store) -> None:
        """Follow the runs that began although their client did not hear of it."""
        unheard: list[str] = []
        after: str | None = None
        while page := store.runs.newest(limit=100, after=after, rooms=False, caller=SEES_ALL):
            unheard += [record.id for record in page if record.id not in self.begun]
            after = page[-1].id

        async with asyncio.TaskGroup() as group:
            for run in unheard:
                group.create_task(self._follow(Client(url), run))

        for run in unheard:
            self.unheard[run] = named_by(told_by(store, run).calls)

        self.counts["runs of whose beginning no client heard"] = len(unheard)

    # -- what happens ------------------------------------------------------------------------------

    async def _event(self, kind: str, store: Store) -> None:
        if kind == "connections":
            cut = self._sql(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE "
                "application_name = 'ideabridge' ORDER BY random() LIMIT %s) AS found",
                self._draw.choice((1, 1, 2, 5, 100)),
            )
            self.counts["connections cut"] += len(cut)
        elif kind == "postgres":
            self._up.set(runs=False)
            await asyncio.to_thread(self._postgres.stop, "immediate")
            await asyncio.sleep(self._draw.uniform(0, 2))
            await asyncio.to_thread(self._postgres.start)
            self._note_up()
        else:
            alive = [one for one in self._members if one.kind == kind and one not in self._starting]
            while not alive:
                # Both members are starting.
                await asyncio.wait(self._starting.values(), return_when=asyncio.FIRST_COMPLETED)
                alive = [
                    one for one in self._members if one.kind == kind and one not in self._starting
                ]
            self._kill(self._draw.choice(alive), store)
        self.counts[f"events: {kind}"] += 1

    def _kill(self, victim: Member, store: Store) -> None:
        """Kill a process, and look at the store as it leaves it: the others are
        frozen meanwhile.
        """
        others = [member for member in self._members if member is not victim and member.runs]
        for member in others:
            member.signal(signal.SIGSTOP)

        victim.kill()
        self._wait_quiet()
        self._witness.look_into(store, victim.pid)
        for member in others:
            member.signal(signal.SIGCONT)

        self._starting[victim] = asyncio.create_task(self._start(victim))
        self._note_up()

    async def _start(self, member: Member) -> None:
        for again in range(_STARTS):
            try:
                await asyncio.to_thread(member.start)
                break
            except MemberError as error:
                # A supervisor would start it again, because other members may have kept the store
                # locked while they were frozen.
                self.counts["starts that failed"] += 1
                if again == _STARTS - 1:
                    self._witness.violations.append(str(error))

        del self._starting[member]
        self._note_up()

    def _note_up(self) -> None:
        ready = {member.kind for member in self._members if member not in self._starting}
        self._up.set(runs=len(ready) == len({member.kind for member in self._members}))

    def _wait_quiet(self) -> None:
        """Wait until PostgreSQL has ended what the killed process had sent it. What waits for a
        lock was not sent to be committed, and what waits for its client is a statement of a
        frozen process.
        """
        deadline = time.monotonic() + 5
        sql = (
            "SELECT wait_event_type, wait_event, left(query, 100) FROM pg_stat_activity "
            "WHERE application_name = "
            "'ideabridge' AND state = 'active' "
            "AND coalesce(wait_event_type, '') NOT IN ('Lock', 'Client')"
        )
        while found := self._sql(sql):
            if time.monotonic() > deadline:
                self._witness.violations.append(
                    f"a statement of a killed process takes longer than 5 s: {found}"
                )
                return

            time.sleep(0.002)

    def _sql(self, sql: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(
            host=str(self._postgres.folder), user=self._postgres.user, dbname="postgres"
        ) as own:
            return own.execute(sql.encode(), parameters).fetchall()

    # -- clients -----------------------------------------------------------------------------------

    async def _visit(self, url: str, place: int) -> None:
        """One client: it begins a run, follows it until it has settled, and begins the next one."""
        draw = random.Random(f"{self._seed} client {place}")
        client = Client(url, OLD if place % 4 == 3 else NEW)
        while not self._left:
            kind = draw.choice(_BEGINS)
            number = next(self._numbers)
            try:
                if kind == "solve":
                    task = {
                        "task": task_of(number, self._seed),
                        "tools": TOOLS,
                        "output_schema": OUTPUT,
                    }
                    answer = await client.call("solve", {**task, "mind": "turns", "wait_s": 0})
                else:
                    answer = await client.call(
                        "run_plan", {**self._plan(kind, number), "wait_s": 0}
                    )
            except (OSError, EOFError, CallError) as error:
                self._note_refused("a run", client, error)
                await asyncio.sleep(_AGAIN)
                continue

            told: dict[str, Any] = answer["structuredContent"]
            self.begun[told["run"]] = kind, number
            await self._follow(client, told["run"])

        client.close()

    def _plan(self, kind: str, number: int) -> Plan:
        if kind == "ideas":
            plan = rooms_plan(number, self._seed, minded=False)
        else:
            plan = (plan_of if kind == "plan" else program_of)(number, self._seed, SLOWNESS)
        del plan["name"]
        return plan

    def _note_refused(self, what: str, client: Client, error: Exception) -> None:
        client.close()
        if isinstance(error, CallError):
            why = str(error).split("\n")[0][:160]
        else:
            why = type(error).__name__
        self.refused[f"{what}: {why}"] += 1

    async def _follow(self, client: Client, run: str) -> None:
        """Ask for a run until it has settled."""
        since = self._up.now()
        is_late = False
        while True:
            if not is_late and self._up.now() - since > SETTLES:
                is_late = True
                self._witness.violations.append(
                    f"run {run} has not settled within {SETTLES:g} s: {self._how(run)}"
                )

            if is_late and self._left:
                return
            try:
                answer = await client.call("check_run", {"run": run, "wait_s": _WAIT_S})
                told: dict[str, Any] = answer["structuredContent"]
                if told["status"] in _ENDED or "is set aside" in str(told.get("reason")):
                    break
                moved = await self._move(client, run, told)
            except (OSError, EOFError, CallError) as error:
                self._note_refused("a question", client, error)
                await asyncio.sleep(_AGAIN)
                continue

            if moved:
                self.slowest = max(self.slowest, self._up.now() - since)
                since = self._up.now()

        self.slowest = max(self.slowest, self._up.now() - since)
        if told["status"] in _ENDED:
            self._ended[run] = told["status"]

    async def _move(self, client: Client, run: str, told: dict[str, Any]) -> bool:
        """Answer what a run asks; whether it asked."""
        approvals: list[dict[str, Any]] = told.get("approvals", [])
        if told["status"] == "needs_approval":
            decisions = [{"approval": one["approval"], "decision": "skip"} for one in approvals]
            await client.call("decide_approval", {"run": run, "decisions": decisions, "wait_s": 0})
            self.counts["asked about"] += len(approvals)
            return True

        if told["status"] == "needs_solution":
            [request] = told["requests"]
            texts = " ".join(str(message["content"]) for message in request["context"])
            task = json.JSONDecoder().raw_decode(texts.split(TASK)[1])[0]
            done = [f"v{place}" for place in range(task["count"] // 2)] if told["turn"] else []
            solution = solution_of(task, done)
            await client.call(
                "solve", {"run": run, "turn": told["turn"], "solution": solution, "wait_s": 0}
            )
            self.counts["turns taken"] += 1
            return True

        return False

    def _how(self, run: str) -> str:
        """How a run stands, for whoever reads a violation."""
        with suppress(*PASSING), Store.open(self._address) as store:
            return str(store.runs.get(run))
        return "the store cannot be read"
