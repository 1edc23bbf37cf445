"""Many clients at one server over HTTP, while the server's modules are killed again and again.

    python benchmarks/load.py [--json] [--seconds S] [--clients N] [--every S]

N clients, half of them in each era of the protocol, call a real `ideabridge serve`: exposed tools
directly, plans, tasks that they answer by turns, and `check_run`. Behind the server are three
modules over stdio: a fast one, a slow one, and one that changes something. Every 12 s one of them
is killed with SIGKILL. Then:

- fewer than 0.5% of what the clients ask for fails. An error counts whatever its cause, with one
  exception: a call that a killed module had begun, and whose tool may not run twice, has an unknown
  outcome, and the honest answer says so or asks a person. That is counted as `asked` instead, and
  only for the one tool that may not run twice;
- the 99th percentile of a direct call is at most twice that of a call in a plan. Compared are
  direct calls of the fast module, and plans of four calls of it, each of which reads the result of
  the one before, divided by four;
- in the last fifth of the time the server holds at most 5% more memory than before the middle of
  it (30% to 50%);
- no process of a module is left when the server has ended, and it ends with exit code
  0 after SIGTERM.

Besides, it reports open files, processes of modules, lines that the server printed, and the
size of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serving.server import NEW, OLD, CallError, Client, Server

MODULE = Path(__file__).parent / "serving" / "module.py"
KINDS = ("fast", "slow", "changing")

SECONDS = 240.0
CLIENTS = 50
EVERY = 12.0
THINKS = 0.4
"""Most seconds that a client thinks between two requests."""

ANSWERS = 50.0
"""Seconds within which every request is answered."""

CHAIN = 4
"""Calls of a plan."""

ERRORS = 0.5
RATIO = 2.0
GROWTH = 1.05
"""The targets: percent of errors, of p99 of direct calls to calls of plans, of memory."""

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "required": ["value"],
}

Row = dict[str, Any]
Ask = Callable[[Client, int], Awaitable[None]]


class AskedError(Exception):
    """The server asks what came of a call, or says that nobody knows."""


class Load:
    """What the clients ask for, and what came of it.

    Attributes:
        seconds: how long each request took that was answered well, by kind.
        errors: how often each error came.
        asked: how many unknown outcomes there were.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.errors: Counter[str] = Counter()
        self.asked = 0
        self.requests = 0
        self._kinds: dict[str, tuple[int, Ask]] = {
            "direct, fast": (40, self._direct("look")),
            "direct, slow": (8, self._direct("wait")),
            "direct, idempotent": (6, self._direct("put")),
            "direct, changing": (6, self._direct("change")),
            "plan of four": (20, self._plan("look", "look", "look", "look")),
            "plan over three modules": (8, self._plan("look", "wait", "put", "look")),
            "plan that changes": (4, self._plan("look", "change")),
            "task by turns": (4, self._task),
            "check_run": (4, self._check),
        }

    async def client(self, url: str, number: int, end: float) -> None:
        """One client, until `end` of the monotonic clock."""
        client = Client(url, NEW if number % 2 else OLD)
        draw = random.Random(number)
        names = list(self._kinds)
        weights = [weight for weight, _ in self._kinds.values()]
        while time.monotonic() < end:
            await asyncio.sleep(draw.uniform(0, THINKS))
            [kind] = draw.choices(names, weights)
            self.requests += 1
            began = time.perf_counter()
            try:
                async with asyncio.timeout(ANSWERS):
                    await self._kinds[kind][1](client, draw.randrange(1000))
            except AskedError:
                self.asked += 1
            except (CallError, OSError, EOFError, TimeoutError) as error:
                self.errors[f"{kind}: {type(error).__name__} {error}"[:300]] += 1
                client.close()
            else:
                self.seconds.setdefault(kind, []).append(time.perf_counter() - began)

        client.close()

    def _direct(self, tool: str) -> Ask:
        async def ask(client: Client, n: int) -> None:
            try:
                result = await client.call(tool, {"n": n})
            except CallError as error:
                if tool == "change" and "unknown" in str(error):
                    raise AskedError from None
                raise
            _expect(result, {"value": n + 1})

        return ask

    def _plan(self, *tools: str) -> Ask:
        async def ask(client: Client, n: int) -> None:
            calls: list[dict[str, Any]] = []
            for place, tool in enumerate(tools):
                reads = f"†state.v{place - 1}.value" if place else "†input.n"
                calls.append({"_tool": tool, "n": reads, "_outputPath": f"v{place}"})

            plan = {
                "calls": calls,
                "input": {"n": n},
                "output": {"value": f"†state.v{len(tools) - 1}.value"},
            }
            result = await client.call("run_plan", plan)
            if "change" in tools and result["structuredContent"]["status"] == "needs_approval":
                await _skip(client, result["structuredContent"])
                raise AskedError

            _expect_done(result, {"value": n + len(tools)})

        return ask

    async def _task(self, client: Client, n: int) -> None:
        task = {
            "task": f"Look at {n}.",
            "tools": ["look"],
            "output_schema": OBJECT,
            "mind": "turns",
        }
        begun = (await client.call("solve", task))["structuredContent"]
        if begun["status"] != "needs_solution":
            raise CallError(f"solve is {begun['status']}: {begun}")

        calls = [{"_tool": "look", "n": n, "_outputPath": "v"}]
        solution = {"calls": calls, "output": {"value": "†state.v.value"}}
        submitted = {"run": begun["run"], "turn": begun["turn"], "solution": solution}
        _expect_done(await client.call("submit_solution", submitted), {"value": n + 1})

    async def _check(self, client: Client, _n: int) -> None:
        await client.call("check_run", {})


async def _skip(client: Client, run: dict[str, Any]) -> None:
    decisions = [{"approval": one["approval"], "decision": "skip"} for one in run["approvals"]]
    with contextlib.suppress(CallError):
        await client.call("decide_approval", {"run": run["run"], "decisions": decisions})


def _expect(result: dict[str, Any], value: object) -> None:
    if result.get("structuredContent") != value:
        raise CallError(f"wrong answer: {result}")


def _expect_done(result: dict[str, Any], output: object) -> None:
    run = result["structuredContent"]
    if run["status"] != "done" or run["errors"] or run.get("output") != output:
        raise CallError(
            f"run is {run['status']}: {run.get('reason')} "
            f"{[one['error'] for one in run['errors']][:1]}"
        )


class Modules:
    """The processes of modules, as their log tells.

    Attributes:
        killed: how many were killed.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.killed = 0

    def alive(self) -> list[tuple[str, int]]:
        """(kind, process id) of those that run now."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        found = [(kind, int(pid)) for kind, pid in (line.split() for line in lines)]
        return [one for one in found if self._is_ours(one[1])]

    def _is_ours(self, pid: int) -> bool:
        try:
            return str(self._log).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False

    async def kill(self, every: float) -> None:
        """Kill one process of each kind in turn, until cancelled."""
        while True:
            for kind in KINDS:
                await asyncio.sleep(every)
                for found, pid in self.alive():
                    if found == kind:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            self.killed += 1


class Watch:
    """What the server holds, once a second.

    Attributes:
        seen: (share of the time that has passed, bytes of memory, open files,
            processes of modules).
    """

    def __init__(self, server: Server, modules: Modules, seconds: float) -> None:
        self._server = server
        self._modules = modules
        self._seconds = seconds
        self.seen: list[tuple[float, int, int, int]] = []

    async def run(self) -> None:
        """Watch until cancelled."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(1)
            share = (time.monotonic() - began) / self._seconds
            held = self._server.memory(), self._server.files(), len(self._modules.alive())
            self.seen.append((share, *held))

    def median(self, what: int, first: float, last: float) -> float:
        """The median of one figure (1: memory, 2: files, 3: processes) between two
        shares of the time.
        """
        return statistics.median([one[what] for one in self.seen if first <= one[0] <= last] or [0])


async def measure(folder: Path, seconds: float, clients: int, every: float) -> dict[str, Any]:
    """Put the load on a server. Returns the rows, how often each error came, and the memory by
    tenths of the time.
    """
    log = folder / "modules"
    noise = folder / "noise"
    config = folder / "ideabridge.json"
    servers = {
        kind: {"command": sys.executable, "args": ["-I", "-S", str(MODULE), kind, str(log)]}
        for kind in KINDS
    }
    store = folder / "store.sqlite"
    told = {
        "store": str(store),
        "approval": "allow_all",
        "expose": ["modules"],
        "mcpServers": servers,
    }
    config.write_text(json.dumps(told))
    server, load, modules = Server(config, noise), Load(), Modules(log)
    watch = Watch(server, modules, seconds)
    try:
        # Wait until all modules are up, so that the load begins only then.
        await Client(server.url).call(
            "run_plan", {"calls": [{"_tool": one, "n": 0} for one in ("look", "wait", "put")]}
        )
        idle = server.work()
        quiet = len(noise.read_bytes().splitlines())
        beside = [asyncio.create_task(one) for one in (watch.run(), modules.kill(every))]
        end = time.monotonic() + seconds
        await asyncio.gather(*(load.client(server.url, number, end) for number in range(clients)))
        for task in beside:
            task.cancel()

        worked = server.work() - idle
        code = server.end()
    finally:
        server.kill()

    for _ in range(50):
        if not modules.alive():
            break
        await asyncio.sleep(0.1)

    lines = noise.read_bytes().splitlines()[quiet:]
    rows = [*rates(load), *held(watch)]
    rows.append(row("load: processes of modules that are left", len(modules.alive()), target=0))
    rows.append(row("load: exit code of the server after SIGTERM", code, target=0))
    rows.append(row("load: CPU time of the server (% of one core)", 100 * worked / seconds))
    rows += [
        row("load: unknown outcomes, told or asked", load.asked),
        row("load: modules killed", modules.killed),
    ]
    rows += [
        row("load: lines printed", len(lines)),
        row("load: bytes of the store", bytes_of(store)),
    ]
    memory = [round(watch.median(1, tenth / 10, (tenth + 1) / 10) / 1e6, 1) for tenth in range(10)]
    return {"rows": rows, "errors": load.errors, "memory": memory}


def bytes_of(store: Path) -> int:
    """How large a store is, with its log."""
    return sum(path.stat().st_size for path in store.parent.glob(f"{store.name}*"))


def rates(load: Load) -> list[Row]:
    """The rows of errors and of latencies."""
    failed = sum(load.errors.values())
    rows = [
        row("load: requests", load.requests),
        row("load: errors (%)", 100 * failed / load.requests, target=ERRORS),
    ]
    for kind, taken in load.seconds.items():
        ordered = sorted(taken)
        rows += [
            row(f"load: {kind}, p{share} (ms)", 1000 * at(ordered, share)) for share in (50, 99)
        ]

    direct = at(sorted(load.seconds["direct, fast"]), 99)
    planned = at(sorted(load.seconds["plan of four"]), 99) / CHAIN
    what = "load: p99 of a direct call beside a call in a plan (ms)"
    rows.append(row(what, 1000 * direct, peer=1000 * planned, ratio=direct / planned, target=RATIO))
    return rows


def held(watch: Watch) -> list[Row]:
    """The rows of what the server holds."""
    before = watch.median(1, 0.3, 0.5)
    after = watch.median(1, 0.8, 1.1)
    return [
        row(
            "load: memory at the end beside the middle (MB)",
            after / 1e6,
            peer=before / 1e6,
            ratio=after / before,
            target=GROWTH,
        ),
        row(
            "load: open files at the end beside the middle",
            watch.median(2, 0.8, 1.1),
            peer=watch.median(2, 0.3, 0.5),
        ),
        row("load: processes of modules, at most", max(one[3] for one in watch.seen)),
    ]


def at(ordered: list[float], share: int) -> float:
    """A percentile of values in order."""
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]


def row(
    what: str,
    ours: float,
    *,
    peer: float | None = None,
    ratio: float | None = None,
    target: float | None = None,
) -> Row:
    """One row of `benchmarks/README.md`: the target bounds the ratio, or the figure itself
    where there is none.
    """
    figures = {"ours": ours, "peer": peer, "floor": None, "ratio": ratio}
    rounded = {
        name: None if figure is None else round(figure, 3) for name, figure in figures.items()
    }
    if target is None:
        met = None
    else:
        met = (ours if ratio is None else ratio) <= target
    return {"what": what, **rounded, "target": target, "met": met}


def main() -> int:
    """Measure and print; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the load lasts")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--every", type=float, default=EVERY, help="seconds between two kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = asyncio.run(measure(Path(folder), options.seconds, options.clients, options.every))

    if options.json:
        print(json.dumps(told))
    else:
        for one in told["rows"]:
            met = {True: "yes", False: "NO", None: ""}[one["met"]]
            figures = [
                f"{one[name]:,}" if one[name] is not None else ""
                for name in ("ours", "peer", "ratio", "target")
            ]
            print(
                f"{one['what']:<55} {figures[0]:>12} {figures[1]:>9} "
                f"{figures[2]:>7} {figures[3]:>5} {met}"
            )

        print(f"memory by tenths of the time (MB): {' '.join(map(str, told['memory']))}")
        for error, count in told["errors"].most_common(10):
            print(f"{count:>6} x {error}", file=sys.stderr)

    return 1 if any(one["met"] is False for one in told["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
