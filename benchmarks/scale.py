"""Several workers on one store in PostgreSQL: what a further worker adds, what saturates first, and
where one server of PostgreSQL ends.

    python benchmarks/scale.py [--json] [--seconds S]

It starts a server of PostgreSQL, durable as by default, two `ideabridge serve --http --workers`,
and 1, 2 and 4 `ideabridge worker`. Clients call `run_plan` with a chain of calls, each of which
reads the result of the one before.

1. Tools that wait 50 ms. Each worker has at most 4 runs at once, so that it makes at most 80 calls
   a second: the floor. With this little work per process, the machine has room for four of them,
   and the rows say whether the processes hinder each other.
2. Tools that take no time, with two workers: as many calls as this machine makes. CPU time, commits
   and bytes of the log of PostgreSQL are counted per call, for each kind of process.
3. A simulation with the figures of 2: servers, workers and PostgreSQL on machines of their own,
   with as many workers as are needed. A write waits for a core of PostgreSQL; a run that begins
   waits for the one lock under which runs leave the queue. The rows are the calls a second at which
   95% of the writes still take less than `SLOW`, and 95% of the runs leave the queue in
   `SLOW_QUEUE`. A simulation is no measurement: disks and the network have no limit in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.server import CallError, Client, Server

from ideabridge.bridge.store.run_record import Handover
from ideabridge.bridge.store.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.postgres import PostgresServer, run_sql

CHAIN = 20
"""Calls of a plan."""

RUNS = 4
WAITS = 0.05
"""Runs of a worker at once, and the seconds that a call waits, in the first part."""

LINEAR = 0.9
"""The target: the calls a second of four workers, beside four times those of one."""

SLOW = 0.005
SLOW_QUEUE = 0.25
"""Seconds that 95% of the writes, and 95% of the runs in the queue, take at most in the simulation,
before PostgreSQL counts as saturated.
"""

TOGETHER = 16
"""Runs that a worker takes from the queue at once, if as many wait, in the simulation: half of
those it may have."""

SIMULATED = 6.0
"""Seconds that are simulated; a run lasts one."""

TOOLS = f"""
import asyncio
from ideabridge.tools import tool

@tool(read_only=True)
async def wait(n: int) -> int:
    await asyncio.sleep({WAITS})
    return n + 1

@tool(read_only=True)
async def count(n: int) -> int:
    return n + 1
"""

Row = dict[str, Any]


def row(what: str, ours: float, *, floor: float | None = None, target: float | None = None) -> Row:
    ratio = None if floor is None else ours / floor
    met = True if target is None or ratio is None else ratio >= target
    return {
        "what": what,
        "ours": ours,
        "peer": None,
        "floor": floor,
        "ratio": ratio,
        "target": target,
        "met": met,
    }


def cpu(pid: int) -> float:
    """Seconds of CPU time that a process, and those of its children that have ended, have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(entry.name))

    return found


class Cluster:
    """PostgreSQL, two servers, and some workers.

    Args:
        folder: for the configuration and what the processes print.
        database: the server of PostgreSQL.
        workers: how many.
        runs: the most runs of each worker at once.
    """

    def __init__(self, folder: Path, database: PostgresServer, workers: int, runs: int) -> None:
        self.store = database.address()
        self._postmaster = int(
            (database.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
        )
        (folder / "tools.py").write_text(TOOLS)
        config = folder / "ideabridge.json"
        config.write_text(
            json.dumps({"store": self.store, "tools": ["tools.py"], "approval": "allow_all"})
        )
        self._ending = ExitStack()
        self.servers = [
            Server(config, folder / f"server{number}.log", "--workers") for number in range(2)
        ]
        for server in self.servers:
            self._ending.callback(server.kill)

        self.workers: list[subprocess.Popen[str]] = []
        for _ in range(workers):
            command = [
                sys.executable,
                "-m",
                "ideabridge.server",
                "worker",
                "--config",
                str(config),
                "--runs",
                str(runs),
            ]
            worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            self._ending.callback(self._kill, worker)
            self.workers.append(worker)

        for worker in self.workers:
            assert worker.stderr is not None
            line = worker.stderr.readline()
            if "taking up to" not in line:
                raise SystemExit(f"the worker does not start: {line}{worker.stderr.read()}")

    @staticmethod
    def _kill(worker: subprocess.Popen[str]) -> None:
        worker.kill()
        worker.communicate()

    def close(self) -> None:
        """End every process but PostgreSQL."""
        self._ending.close()

    def work(self) -> dict[str, float]:
        """Seconds of CPU time so far: of servers, workers, and PostgreSQL."""
        database = [self._postmaster, *children(self._postmaster)]
        return {
            "servers": sum(server.work() for server in self.servers),
            "workers": sum(cpu(worker.pid) for worker in self.workers),
            "PostgreSQL": sum(cpu(pid) for pid in database),
        }

    def counters(self) -> dict[str, float]:
        """Commits and bytes of the log of PostgreSQL so far."""
        run_sql(self.store, "SELECT pg_stat_clear_snapshot()")
        [(commits, log)] = run_sql(
            self.store,
            "SELECT sum(xact_commit), pg_current_wal_lsn() - '0/0'::pg_lsn FROM pg_stat_database",
        )
        return {"commits": float(commits), "bytes": float(log)}


@contextmanager
def cluster(database: PostgresServer, workers: int, runs: int) -> Generator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        made = Cluster(Path(folder), database, workers, runs)
        try:
            yield made
        finally:
            made.close()


async def load(
    made: Cluster, tool: str, clients: int, seconds: float
) -> tuple[int, float, dict[str, float]]:
    """(calls, seconds, CPU time and counters) of clients, each of which calls one
    plan after another.
    """
    calls: list[dict[str, Any]] = []
    for place in range(CHAIN):
        n = f"†state.v{place - 1}" if place else "†input.n"
        calls.append({"_tool": tool, "n": n, "_outputPath": f"v{place}"})

    plan = {"calls": calls, "input": {"n": 0}, "output": f"†state.v{CHAIN - 1}", "wait_s": 45}
    done = 0

    async def client(number: int, end: float) -> None:
        nonlocal done
        one = Client(made.servers[number % len(made.servers)].url)
        while time.monotonic() < end:
            result = (await one.call("run_plan", plan))["structuredContent"]
            if result["status"] != "done" or result["output"] != CHAIN:
                raise CallError(f"the plan is {result['status']}: {result}")
            done += CHAIN

        one.close()

    async def all_of(seconds: float) -> None:
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number, end))

    await all_of(min(2.0, seconds))
    before = {**made.work(), **made.counters()}
    done, begun = 0, time.monotonic()
    await all_of(seconds)
    spent = time.monotonic() - begun
    after = {**made.work(), **made.counters()}
    return done, spent, {name: after[name] - before[name] for name in after}


def claiming(database: PostgresServer, together: int) -> float:
    """Seconds for which the lock of the queue is held when `together` runs leave it,
    of 100 that wait.
    """
    rounds = 20
    with Store.open(database.address()) as store:
        for number in range(100 + rounds * together):
            run = f"run_{number}"
            store.runs.create(run, kind="plan", caller="", title="", fingerprint="f")
            epoch = store.leases.acquire(run, "driver", 3600, time.time())
            assert epoch is not None
            store.queue.put(run, epoch, Handover(needs=()))
        begun = time.perf_counter()
        for _ in range(rounds):
            assert len(store.queue.claim("f", together, lambda run, busy: True)) == together
        return (time.perf_counter() - begun) / rounds


@dataclass(frozen=True)
class Figures:
    """What the simulation is made from, measured: seconds of a core of PostgreSQL for a
    write, writes per call, and seconds for which the queue is locked when one run, or
    `TOGETHER`, leave it.
    """

    write: float
    writes: float
    claim_one: float
    claim_many: float

    def claim(self, runs: int) -> float:
        """Seconds for which the queue is locked while `runs` runs leave it."""
        return self.claim_one + (self.claim_many - self.claim_one) * (runs - 1) / (TOGETHER - 1)


def simulate(figures: Figures, cores: int, rate: float) -> tuple[float, float]:
    """Simulate runs that arrive at random, `rate` calls a second in all; returns the seconds within
    which 95% of their writes are done, and 95% of them leave the queue.
    """
    draw = random.Random(1)
    arrivals: list[float] = []
    at = draw.expovariate(rate / CHAIN)
    while at < SIMULATED:
        arrivals.append(at)
        at += draw.expovariate(rate / CHAIN)

    # Each event consists of a time, a kind, and the number of writes that are left. The kinds are:
    # 0, a run arrives; 1, the queue is unlocked; 2, a run writes.
    events = [(at, 0, 0) for at in arrivals]
    free = [0.0] * cores
    waiting: deque[float] = deque()
    leaving: list[float] = []
    total = round(figures.writes * CHAIN)
    took: list[float] = []
    queued: list[float] = []
    while events and events[0][0] < SIMULATED:
        now, kind, left = heapq.heappop(events)
        if kind == 2:
            ends = max(now, heapq.heappop(free)) + draw.expovariate(1 / figures.write)
            heapq.heappush(free, ends)
            took.append(ends - now)
            if left > 1:
                heapq.heappush(
                    events, (ends + draw.expovariate(total / CHAIN / WAITS), 2, left - 1)
                )

            continue

        if kind == 0:
            waiting.append(now)
        else:
            queued += [now - arrived for arrived in leaving]
            for _ in leaving:
                heapq.heappush(events, (now, 2, total))
            leaving = []

        if waiting and not leaving:
            leaving = [waiting.popleft() for _ in range(min(TOGETHER, len(waiting)))]
            heapq.heappush(events, (now + figures.claim(len(leaving)), 1, 0))

    # Leave out the first half, which fills the system.
    return _late(took), _late([*queued, *(SIMULATED - arrived for arrived in waiting)])


def _late(seconds: list[float]) -> float:
    """The 95th percentile of the second half."""
    return sorted(seconds[len(seconds) // 2 :])[int(0.95 * (len(seconds) - len(seconds) // 2))]


def most(figures: Figures, cores: int) -> tuple[float, str]:
    """(the most calls a second, to 2%, of one PostgreSQL with `cores` cores, what
    saturates first).
    """
    low = 1.0
    high = 2.0 * cores / (figures.write * figures.writes)
    why = "its cores"
    while high > 1.02 * low:
        middle = (low + high) / 2
        write, queued = simulate(figures, cores, middle)
        if write < SLOW and queued < SLOW_QUEUE:
            low = middle
        else:
            high = middle
            why = "its cores" if write >= SLOW else "the queue"

    return low, why


def measure(database: PostgresServer, seconds: float) -> list[Row]:
    rows: list[Row] = []
    rates: dict[int, float] = {}
    for workers in (1, 2, 4):
        with cluster(database, workers, RUNS) as made:
            calls, spent, _ = asyncio.run(load(made, "wait", 2 * RUNS * workers, seconds))
        rates[workers] = calls / spent
        rows.append(
            row(
                f"{workers} workers, calls of 50 ms (calls/s)",
                rates[workers],
                floor=workers * RUNS / WAITS,
            )
        )

    rows.append(
        row("4 workers beside 4 times one (calls/s)", rates[4], floor=4 * rates[1], target=LINEAR)
    )
    with cluster(database, 2, 32) as made:
        calls, spent, used = asyncio.run(load(made, "count", 32, seconds))

    rows.append(row("2 workers, calls without time (calls/s)", calls / spent))
    for kind in ("servers", "workers", "PostgreSQL"):
        rows.append(row(f"  CPU time of {kind} per call (ms)", 1000 * used[kind] / calls))

    rows.append(row("  commits of PostgreSQL per call", used["commits"] / calls))
    rows.append(row("  log of PostgreSQL per call (KB)", used["bytes"] / calls / 1000))
    writes = used["commits"] / calls
    one = claiming(database, 1)
    many = claiming(database, TOGETHER)
    rows.append(row("the queue is locked while a run leaves it (ms)", 1000 * one))
    rows.append(row(f"the queue is locked while {TOGETHER} runs leave it (ms)", 1000 * many))
    figures = Figures(used["PostgreSQL"] / used["commits"], writes, one, many)
    for cores in (2, 8, 32):
        rate, why = most(figures, cores)
        rows.append(
            row(f"simulated: PostgreSQL with {cores} cores, limited by {why} (calls/s)", rate)
        )

    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load lasts (10)")
    options = parser.parse_args()
    database = PostgresServer(durable=True)
    try:
        rows = measure(database, options.seconds)
    finally:
        database.close()

    if options.json:
        print(json.dumps({"benchmark": "scale", "rows": rows}))
    else:
        for one in rows:
            if one["floor"] is None:
                floor = ""
            else:
                floor = f" of {one['floor']:.0f}, ratio {one['ratio']:.2f}"
            print(f"{'ok  ' if one['met'] else 'MISS'} {one['what']}: {one['ours']:.3g}{floor}")

    return 0 if all(one["met"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
