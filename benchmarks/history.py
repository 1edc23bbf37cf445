"""Importing the histories of an assistant: seconds, and memory.

    python benchmarks/history.py [--json] [--sessions N]

1,000 conversations of Claude Code, each with 50 calls of a server, 50 calls of its own tools and
180 kB, are imported by the command (`ideabridge history import`) into an empty store. Then the
command is asked again, and finds nothing new. The floor of the first row is that of decoding each
line once. Memory is the peak of the command; its servers do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

SERVER = Path(__file__).parent / "serving" / "module.py"
SESSIONS = 1_000
CALLS = 50
SECONDS = 30.0
AGAIN_SECONDS = 1.0
MEMORY_MB = 300.0


def lines_of(session: int) -> list[dict[str, Any]]:
    """The lines of one conversation."""
    now = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=session)
    lines: list[dict[str, Any]] = []

    def add(kind: str, content: object) -> None:
        nonlocal now
        now += timedelta(seconds=1)
        number = len(lines)
        lines.append(
            {
                "parentUuid": f"{session}-{number - 1}" if number else None,
                "isSidechain": False,
                "cwd": "/home/ann/shop",
                "sessionId": f"s-{session}",
                "type": kind,
                "message": {"role": kind, "content": content},
                "uuid": f"{session}-{number}",
                "timestamp": now.isoformat(timespec="milliseconds"),
            }
        )

    def call(name: str, number: int, arguments: dict[str, Any], result: str) -> None:
        own = f"toolu_{name}_{session:06}{number:012}x"
        add("assistant", [{"type": "tool_use", "id": own, "name": name, "input": arguments}])
        add("user", [{"type": "tool_result", "tool_use_id": own, "content": result}])

    add("user", f"Look at the numbers of customer {session}")
    for number in range(CALLS):
        call("Bash", number, {"command": f"ls {'x' * 300}"}, "y" * 2_000)
        value = session * CALLS + number
        call("mcp__fast__look", number, {"n": value}, json.dumps({"value": value + 1}))
    return lines


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended: what it printed, its seconds, and its peak of memory in MB."""

    printed: dict[str, Any]
    seconds: float
    memory: float


def command(folder: Path) -> Ended:
    """Import the histories below a folder."""
    output = folder / "output.json"
    words = [sys.executable, "-m", "ideabridge.server", "history", "import", "claude-code"]
    began = time.perf_counter()
    environment = {**os.environ, "HOME": str(folder)}
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "CLAUDE_CONFIG_DIR",
        # Let Python write bytecode, because the files of an installed program are compiled.
        "PYTHONDONTWRITEBYTECODE",
    ):
        environment.pop(name, None)

    process = os.posix_spawn(
        sys.executable,
        [*words, "--yes", "--json"],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        ],
    )
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the import failed: {output.read_text(encoding='utf-8')[:2000]}")
    memory = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Ended(json.loads(output.read_bytes()), seconds, memory)


def decoded(logs: list[Path]) -> float:
    """The seconds that decoding each line takes."""
    began = time.perf_counter()
    for log in logs:
        with log.open("rb") as file:
            for line in file:
                orjson.loads(line)
    return time.perf_counter() - began


def row(what: str, ours: float, target: float, floor: float | None = None) -> dict[str, Any]:
    """One row. The target bounds the figure itself."""
    return {
        "what": what,
        "ours": ours,
        "peer": None,
        "floor": floor,
        "ratio": ours,
        "target": target,
        "met": ours <= target,
    }


def measure(folder: Path, sessions: int) -> list[dict[str, Any]]:
    """All rows."""
    projects = folder / ".claude" / "projects" / "shop"
    projects.mkdir(parents=True)
    logs: list[Path] = []
    for session in range(sessions):
        logs.append(projects / f"s-{session}.jsonl")
        logs[-1].write_bytes(b"\n".join(map(orjson.dumps, lines_of(session))) + b"\n")

    own = folder / ".config" / "ideabridge" / "ideabridge.json"
    own.parent.mkdir(parents=True)
    server = {"command": sys.executable, "args": [str(SERVER), "fast", str(folder / "log")]}
    own.write_text(json.dumps({"mcpServers": {"fast": server}}), encoding="utf-8")

    first = command(folder)
    again = command(folder)
    saved = sum(run["calls"] for run in first.printed["runs"] if run["run"])
    if (saved, again.printed["runs"]) != (sessions * CALLS, []):
        raise SystemExit(f"{saved} calls were saved, and then {len(again.printed['runs'])} runs")

    what = f"{sessions:,} conversations of {CALLS} calls"
    return [
        row(f"s to import {what}", first.seconds, SECONDS, decoded(logs)),
        row(f"MB to import {what}", first.memory, MEMORY_MB),
        row(f"s to find nothing new in {what}", again.seconds, AGAIN_SECONDS),
        row(f"MB to find nothing new in {what}", again.memory, MEMORY_MB),
    ]


def main() -> int:
    """Print the rows; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="how many conversations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.sessions)

    if options.json:
        print(json.dumps({"rows": rows}))
    else:
        for measured in rows:
            floor = "" if measured["floor"] is None else f" (decoding: {measured['floor']:.2f})"
            bound = f"at most {measured['target']:g}"
            print(f"{measured['what']:<62} {measured['ours']:8.2f}{floor}, {bound}")

    return 0 if all(measured["met"] for measured in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
