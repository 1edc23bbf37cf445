"""What five sessions over eight servers cost, of which each session uses two: the memory of all
processes and their number, each session with an ideabridge of its own and all at one service over
HTTP, beside the same sessions whose servers all start with ideabridge; and `initialize` and
`tools/list` beside a session with one server.

    python benchmarks/sessions.py [--json] [--rounds N]

The servers are real: git, time and fetch (Python), memory, filesystem, everything and sequential
thinking (Node, `make npm`), and time once more, for another time zone. Without fetch, which is in
the extra `bench`, git takes its place. Memory is the proportional set size, so that what processes
share counts once. It needs Linux.

The load of the machine, which the last line says, disturbs the times, and hardly the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.serve import OLD, Pipe, Post, Talk
from benchmarks.serve import serving as served_at

Start = Literal["eager", "lazy"]

SESSIONS = 5
NODE = Path(__file__).parent.parent / ".node" / "node_modules" / ".bin"
PYTHON = Path(sys.executable).parent
MOST_MEMORY = 0.45
MOST_PROCESSES = 0.45
MOST_SHARED = 0.3
MOST_SECONDS = 1.1
"""The targets: ratios to sessions whose servers all start, and to a session with one server."""

_PSS = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Used:
    """A server, and a call of it."""

    name: str
    command: list[str]
    call: dict[str, Any]

    @property
    def program(self) -> str:
        """The name of its program."""
        return Path(self.command[0]).name


class _Page(BaseHTTPRequestHandler):
    """A page that fetch reads."""

    def do_GET(self) -> None:
        """Send the page, which is the same at every path."""
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        self.wfile.write(b"oak")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Write nothing."""


@contextmanager
def page() -> Generator[str]:
    """A page on the loopback address; yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/page"
    finally:
        server.shutdown()
        server.server_close()


def servers(folder: Path, address: str) -> list[Used]:
    """The eight servers, in the order in which sessions use them.

    Args:
        folder: where they find files.
        address: a page that fetch reads.
    """
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    git = Used(
        "git",
        [str(PYTHON / "mcp-server-git")],
        {"_tool": "git_status", "repo_path": str(repository)},
    )
    fetch = Used(
        "fetch",
        [str(PYTHON / "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"],
        {"_tool": "fetch", "url": address, "raw": True},
    )
    if not Path(fetch.command[0]).exists():
        fetch = replace(git, name="git_too")

    clock = str(PYTHON / "mcp-server-time")
    now = {"_tool": "get_current_time", "timezone": "UTC"}
    thought = {
        "_tool": "sequentialthinking",
        "thought": "oak",
        "nextThoughtNeeded": False,
        "thoughtNumber": 1,
        "totalThoughts": 1,
    }
    return [
        git,
        Used("memory", [str(NODE / "mcp-server-memory")], {"_tool": "read_graph"}),
        Used("time", [clock], now),
        Used(
            "files",
            [str(NODE / "mcp-server-filesystem"), str(repository)],
            {"_tool": "list_allowed_directories"},
        ),
        fetch,
        Used(
            "everything",
            [str(NODE / "mcp-server-everything"), "stdio"],
            {"_tool": "echo", "message": "oak"},
        ),
        Used("time_in_tokyo", [clock, "--local-timezone", "Asia/Tokyo"], now),
        Used("thinking", [str(NODE / "mcp-server-sequential-thinking")], thought),
    ]


def serving(folder: Path, used: list[Used], start: Start | None) -> list[str]:
    """The command of a session over these servers; the store is that of the folder."""
    entries: dict[str, dict[str, Any]] = {}
    for server in used:
        entries[server.name] = {
            "command": server.command[0],
            "args": server.command[1:],
            # Allow more time, because forty servers start at once.
            "connect_timeout": 180,
        }
        if start is not None:
            entries[server.name]["start"] = start

    configuration = folder / f"{start}-{len(used)}.json"
    configuration.write_text(
        json.dumps(
            {
                "store": str(folder / f"{len(used)}.sqlite"),
                "mcpServers": entries,
                "approval": "allow_all",
            }
        )
    )
    ideabridge = [sys.executable, "-m", "ideabridge.server", "serve"]
    return [*ideabridge, "--config", str(configuration)]


def use(session: Talk, server: Used) -> None:
    """Make a call of a server, which must work."""
    plan = {"calls": [{**server.call, "_module": server.name}]}
    answer = session.call("run_plan", plan)["structuredContent"]
    if answer["status"] != "done" or answer.get("errors"):
        raise SystemExit(f"{server.name}: {answer}")


def await_server(session: Pipe, server: Used) -> None:
    """Wait until a server is up: a dry run calls nothing, but needs its tools."""
    plan = {"calls": [{**server.call, "_module": server.name}], "dry_run": True}
    session.call("run_plan", plan)


def tree(pids: list[int]) -> list[int]:
    """The ids of these processes and all their descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))

    reached = list(pids)
    for pid in reached:
        reached += parents.get(pid, [])
    return reached


def memory_of(pids: list[int]) -> float:
    """The memory of processes, in MiB."""
    total = 0
    for pid in pids:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
        total += 0 if found is None else int(found[1])
    return total / 1024


def cost(folder: Path, used: list[Used], start: Start | None) -> tuple[float, int]:
    """The memory in MiB and the number of the processes of five sessions, each of which has used
    two servers.
    """
    with ExitStack() as stack:
        sessions: list[Pipe] = []
        for number in range(SESSIONS):
            session = Pipe(serving(folder, used, start), OLD, stack)
            stack.callback(session.input.close)
            sessions.append(session)
            if start == "eager":
                for server in used:
                    await_server(session, server)
            for place in (2 * number, 2 * number + 1):
                use(session, used[place % len(used)])

        pids = tree([session.pid for session in sessions])
        return memory_of(pids), len(pids)


def shared_cost(folder: Path, used: list[Used]) -> tuple[float, int]:
    """The same for five sessions of one server over HTTP."""
    with ExitStack() as stack:
        url = served_at([*serving(folder, used, None), "--http", "127.0.0.1:0"], stack)
        for number in range(SESSIONS):
            session = Post(url, OLD)
            stack.callback(session.connection.close)
            for place in (2 * number, 2 * number + 1):
                use(session, used[place % len(used)])

        # The sessions are in this process, so all other processes below it belong to the server.
        own = os.getpid()
        pids = [pid for pid in tree([own]) if pid != own]
        return memory_of(pids), len(pids)


def processor_seconds(pid: int) -> float:
    """Seconds for which the threads of a process have run on a processor. Other processes do not
    change them much.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@dataclass(frozen=True, slots=True)
class Answered:
    """The first answer to a method in a new session, in seconds of the clock and of processors."""

    clock: float
    processor: float


def first_answers(folder: Path, used: list[Used], rounds: int) -> dict[str, list[list[Answered]]]:
    """The first answers to `initialize` and `tools/list`, by method. Each round has that of a
    session with all servers and that of a session with one.
    """
    commands = [serving(folder, some, None) for some in (used, used[:1])]
    answers: dict[str, list[list[Answered]]] = {"initialize": [], "tools/list": []}
    for number in range(rounds + 1):
        opened: list[Answered] = []
        listed: list[Answered] = []
        for command, some in zip(commands, (used, used[:1]), strict=True):
            with ExitStack() as stack:
                began = time.perf_counter()
                session = Pipe(command, OLD, stack)
                opened_at = time.perf_counter()
                opening = processor_seconds(session.pid)
                session.ask("tools/list", {})
                listed_at = time.perf_counter()
                both = processor_seconds(session.pid)
                opened.append(Answered(opened_at - began, opening))
                listed.append(Answered(listed_at - opened_at, both - opening))
                if not number:
                    # Use the servers in the first round, so that their lists are stored.
                    for server in some:
                        use(session, server)
                session.input.close()

        if number:
            answers["initialize"].append(opened)
            answers["tools/list"].append(listed)

    return answers


def row(what: str, ours: float, peer: float, ratio: float, target: float) -> dict[str, Any]:
    """A row of the table."""
    return {
        "what": what,
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "floor": None,
        "ratio": round(ratio, 3),
        "target": target,
        "met": ratio <= target,
    }


def beside_one(what: str, pairs: list[list[float]]) -> dict[str, Any]:
    """A row that compares sessions with all servers to sessions with one, given the seconds of
    both in each round.
    """
    ours = 1000 * statistics.median(pair[0] for pair in pairs)
    one = 1000 * statistics.median(pair[1] for pair in pairs)
    return row(
        what, ours, one, statistics.median(pair[0] / pair[1] for pair in pairs), MOST_SECONDS
    )


def measure(rounds: int) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, page() as address:
        folder = Path(name)
        used = servers(folder, address)
        before = cost(folder, used, "eager")
        now = cost(folder, used, None)
        programs = len({server.program for server in used})
        sessions = f"{SESSIONS} sessions over {len(used)} servers ({programs} programs), 2 used"
        rows.append(
            row(f"memory of {sessions} (MiB)", now[0], before[0], now[0] / before[0], MOST_MEMORY)
        )
        rows.append(
            row(f"processes of {sessions}", now[1], before[1], now[1] / before[1], MOST_PROCESSES)
        )

        shared = shared_cost(folder, used)
        at_once = f"{sessions}, at one service"
        rows.append(
            row(
                f"memory of {at_once} (MiB)",
                shared[0],
                before[0],
                shared[0] / before[0],
                MOST_SHARED,
            )
        )
        rows.append(
            row(f"processes of {at_once}", shared[1], before[1], shared[1] / before[1], MOST_SHARED)
        )

        for method, answers in first_answers(folder, used, rounds).items():
            what = f"first {method} with {len(used)} servers beside one"
            clock = [[answer.clock for answer in pair] for pair in answers]
            processor = [[answer.processor for answer in pair] for pair in answers]
            rows.append(beside_one(f"{what} (ms)", clock))
            rows.append(beside_one(f"{what} (ms of processor time)", processor))

    return rows


def lacking() -> str | None:
    """Why nothing can be measured here, or None."""
    if not Path("/proc/self/smaps_rollup").exists():
        return "it reads /proc/PID/smaps_rollup"
    if shutil.which("node") is None or not (NODE / "mcp-server-sequential-thinking").exists():
        return "it needs node and `make npm`"
    return None


def main() -> int:
    """Measure, print, and tell by the exit code whether every target was met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of the first answers")
    options = parser.parse_args()
    reason = lacking()
    rows = [] if reason is not None else measure(options.rounds)
    load = round(os.getloadavg()[0], 1)
    if options.json:
        print(json.dumps({"rows": rows, "skipped": reason, "load": load}))
    elif reason is not None:
        print(f"skipped: {reason}")
    else:
        for measured in rows:
            met = "yes" if measured["met"] else "NO"
            figures = f"{measured['ours']:>9} {measured['peer']:>9} {measured['ratio']:>6}"
            print(f"{measured['what']:<72} {figures} {measured['target']:>5} {met}")
        print(f"load of the last minute: {load} on {os.cpu_count()} cores")

    return 1 if any(not measured["met"] for measured in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
