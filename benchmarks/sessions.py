"""What five sessions over eight servers cost, of which each session uses two: the memory of all
processes and their number, each session with an ideabridge of its own and all at one service over
HTTP, beside the same sessions whose servers all start with ideabridge; and `initialize` and
`tools/list` beside a session with one server.

    python benchmarks/sessions.py [--json] [--rounds N]

The servers are real: git and time (Python), memory, filesystem and everything (Node, `make npm`);
git, time and filesystem twice. Memory is the proportional set size, so that what processes share
counts once. It needs Linux.
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
import time
from contextlib import ExitStack
from dataclasses import dataclass
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


def servers(folder: Path) -> list[Used]:
    """The eight servers, in the order in which sessions use them."""
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    git = [str(PYTHON / "mcp-server-git")]
    clock = [str(PYTHON / "mcp-server-time")]
    files = [str(NODE / "mcp-server-filesystem"), str(repository)]
    status = {"_tool": "git_status", "repo_path": str(repository)}
    now = {"_tool": "get_current_time", "timezone": "UTC"}
    listed = {"_tool": "list_allowed_directories"}
    return [
        Used("git", git, status),
        Used("memory", [str(NODE / "mcp-server-memory")], {"_tool": "read_graph"}),
        Used("time", clock, now),
        Used("files", files, listed),
        Used("git_too", git, status),
        Used(
            "everything",
            [str(NODE / "mcp-server-everything"), "stdio"],
            {"_tool": "echo", "message": "oak"},
        ),
        Used("time_too", clock, now),
        Used("files_too", files, listed),
    ]


def serving(folder: Path, used: list[Used], start: Start | None) -> list[str]:
    """The command of a session over these servers; the store is that of the folder."""
    entries: dict[str, dict[str, Any]] = {}
    for server in used:
        entries[server.name] = {
            "command": server.command[0],
            "args": server.command[1:],
            # Forty servers that start at once take their time.
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

        # The sessions are in this process, so everything below it belongs to the server.
        own = os.getpid()
        pids = [pid for pid in tree([own]) if pid != own]
        return memory_of(pids), len(pids)


def first_answers(folder: Path, used: list[Used], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds from the start of a session to its first answer, and seconds of its first list of
    tools, for all servers and for one.
    """
    commands = {"all": serving(folder, used, None), "one": serving(folder, used[:1], None)}
    taken: dict[str, dict[str, list[float]]] = {
        name: {"initialize": [], "tools/list": []} for name in commands
    }
    for number in range(rounds + 1):
        for name, command in commands.items():
            with ExitStack() as stack:
                began = time.perf_counter()
                session = Pipe(command, OLD, stack)
                answered = time.perf_counter()
                session.ask("tools/list", {})
                listed = time.perf_counter()
                if not number:
                    # In the first round, the lists of the servers are stored.
                    for server in used if name == "all" else used[:1]:
                        use(session, server)
                else:
                    taken[name]["initialize"].append(answered - began)
                    taken[name]["tools/list"].append(listed - answered)
                session.input.close()

    return taken


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


def measure(rounds: int) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        used = servers(folder)
        before = cost(folder, used, "eager")
        now = cost(folder, used, None)
        sessions = f"{SESSIONS} sessions over {len(used)} servers, 2 of them used"
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

        taken = first_answers(folder, used, rounds)
        for method in ("initialize", "tools/list"):
            ours = taken["all"][method]
            one = taken["one"][method]
            ratio = statistics.median(our / other for our, other in zip(ours, one, strict=True))
            what = f"first {method} with {len(used)} servers beside one (ms)"
            rows.append(
                row(
                    what,
                    1000 * statistics.median(ours),
                    1000 * statistics.median(one),
                    ratio,
                    MOST_SECONDS,
                )
            )

    return rows


def lacking() -> str | None:
    """Why nothing can be measured here, or None."""
    if not Path("/proc/self/smaps_rollup").exists():
        return "it reads /proc/PID/smaps_rollup"
    if shutil.which("node") is None or not (NODE / "mcp-server-memory").exists():
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
    if options.json:
        print(json.dumps({"rows": rows, "skipped": reason}))
    elif reason is not None:
        print(f"skipped: {reason}")
    else:
        for measured in rows:
            met = "yes" if measured["met"] else "NO"
            figures = f"{measured['ours']:>9} {measured['peer']:>9} {measured['ratio']:>6}"
            print(f"{measured['what']:<64} {figures} {measured['target']:>5} {met}")

    return 1 if any(not measured["met"] for measured in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
