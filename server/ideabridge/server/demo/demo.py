"""Run the demo, in which two assistants use two existing MCP servers, and one plan becomes a tool.

Assistant A sends a plan to a server on stdio and publishes the run as a tool. Assistant B, in
another process, calls the tool through a second server over HTTP on the same store. Then A
publishes the run again, as a recorded answer. Every answer is compared with what git and the time
zone database report.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO, cast
from zoneinfo import ZoneInfo

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ideabridge.bridge.bridge import TOKEN_VARIABLE
from ideabridge.bridge.store.store import Store
from ideabridge.server.demo import assistant
from ideabridge.server.demo.assistant import Bar, CheckFailedError, Members, ToolReply, call
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import duration_text

DEMO_SECONDS: Final = 120
"""Time limit, in seconds, after which the demo is cancelled. It normally takes a few seconds."""

MOST_COMMITS: Final = 500
"""Maximum number of commits that the demo reads."""

NAME: Final = "git_activity"
RECORDED_NAME: Final = "git_activity_recorded"
DESCRIPTION: Final = (
    "Who committed to a git repository and when, in a time zone, with the newest change."
)
_ADDRESS: Final = re.compile(r"serving on (http://\S+)\n")
_GIT_SECONDS: Final = 30
_LARGE_PATCH: Final = 4_000_000
"""Size of a patch, in bytes, above which the server might reject it, because a result can have at
most 8 MiB of JSON.
"""

_OUTSIDE: Final = Path(sys.executable).absolute().parents[-1]
"""The root folder. It is not a project, so the server treats the configuration as the user's
own."""


class DemoSetupError(IdeabridgeError):
    """Raised when the demo cannot start because there is no repository or no commit, or because a
    server is not installed.
    """


def example(name: str) -> Path:
    """Return a file from `examples/` in the checkout, or its copy in an installed package."""
    module_file = Path(__file__).absolute()
    copy = module_file.with_name(name)
    return copy if copy.is_file() else module_file.parents[4] / "examples" / name


PLAN: Final[Members] = json.loads(example("git_history.json").read_text(encoding="utf-8"))
"""A plan with nine calls to two MCP servers and a file of Python tools. In a shallow clone, git
cannot create a patch; `no_patch` then contains the reason, and the plan continues.
"""


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository with a working tree. `commits` is the number of commits up to HEAD, limited
    to `MOST_COMMITS`.
    """

    root: Path
    commits: int

    def newest(self, count: int) -> list[tuple[str, str, datetime]]:
        """Return the hash, author and author date of the newest `count` commits, newest first."""
        words = (
            "log",
            f"--max-count={count}",
            "--no-show-signature",
            "--format=%H%x00%an%x00%aI",
            "HEAD",
        )
        commits = [line.split("\0") for line in _git(self.root, *words).split("\n") if line]
        return [(sha, author, datetime.fromisoformat(date)) for sha, author, date in commits]

    def newest_change(self) -> tuple[JSONObject, int] | None:
        """Return how many lines the newest commit `added` and `removed`, and the size of its patch
        in bytes.

        Return None if git cannot compare, because a shallow clone lacks the parent.
        """
        header, _, _ = _git(self.root, "cat-file", "commit", "HEAD").partition("\n\n")
        before = "HEAD^1" if "\nparent " in header else "--root"
        words = ["diff-tree", "-r", "-M", "--no-commit-id", before, "HEAD"]
        try:
            numbers, _, patch = _git(self.root, *words, "--numstat", "--patch").partition("\n\n")
        except DemoSetupError:
            return None

        counted = [
            line.split("\t")[:2]
            for line in numbers.split("\n")
            if line and not line.startswith("-")
        ]
        added, removed = (sum(int(pair[side]) for pair in counted) for side in (0, 1))
        return {"added": added, "removed": removed}, len(patch)


def find_repository(folder_given: Path | None) -> Repository:
    """Return the given repository or, if none is given, this project's own checkout. If there is no
    checkout, return the repository that contains the current folder.

    Raises:
        DemoSetupError: there is no repository, it has no commits, or git is not installed.
    """
    own = Path(__file__).absolute().parents[4]
    if folder_given is None:
        if (own / ".git").exists() and (own / "pyproject.toml").is_file():
            folder_given = own
        else:
            folder_given = Path.cwd()

    folder = folder_given.expanduser().absolute()
    named = f"{folder} (choose a repository with --repo)"
    if not folder.is_dir():
        raise DemoSetupError(f"{named} is not a folder")

    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DemoSetupError as error:
        raise DemoSetupError(
            f"{named} is not a git repository with a working tree: {error}"
        ) from None

    try:
        return Repository(
            root,
            int(_git(root, "rev-list", "--count", f"--max-count={MOST_COMMITS}", "HEAD", "--")),
        )
    except DemoSetupError:
        raise DemoSetupError(f"{named} has no commits yet") from None


def _git(folder: Path, *words: str) -> str:
    # git sets these three variables while it is running a hook. They name a repository other than
    # the one in `folder`.
    hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in hooks}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-c", "log.mailmap=false", "-c", "core.quotePath=true", *words]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise DemoSetupError("git is not installed; the demo reads a git repository") from None
    except subprocess.TimeoutExpired:
        raise DemoSetupError(f"git {words[0]} took longer than {_GIT_SECONDS} s") from None

    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise DemoSetupError(message or f"git {words[0]} failed")

    return done.stdout.decode("utf-8", "replace")


class Checks:
    """The results of the comparisons, as printed by `--json`: `{"check", "holds"}`, with "why" if a
    check fails.
    """

    def __init__(self) -> None:
        self.found: list[Members] = []

    def same(self, check: str, actual: JSON, expected: JSON) -> None:
        """Check that two values are equal."""
        self.holds(
            check,
            actual == expected,
            f"got {encode_text(actual)[:200]}, expected {encode_text(expected)[:200]}",
        )

    def holds(self, check: str, truth: bool, otherwise: str) -> None:
        """Record whether a check holds. `otherwise` is the explanation if it does not."""
        self.found.append({"check": check, "holds": truth, **({} if truth else {"why": otherwise})})

    @property
    def wrong(self) -> list[str]:
        """A line for each failed check."""
        return [f"{check['check']}: {check['why']}" for check in self.found if not check["holds"]]


def check_answer(
    checks: Checks, who: str, answer: Members, repository: Repository, count: int, zone: str
) -> None:
    """Compare the plan's output for the newest `count` commits with git and the time zone
    database.
    """
    commits = repository.newest(count)
    authors = dict[str, JSON](Counter(author.strip() for _, author, _ in commits))
    weekdays = dict[str, JSON](
        Counter(f"{date.astimezone(ZoneInfo(zone)):%A}" for _, _, date in commits)
    )
    newest, _, date = commits[0]
    reported = {author["name"]: author["commits"] for author in answer["authors"]}
    checks.same(f"{who}: number of commits as git counts them", answer["commits"], len(commits))
    checks.same(f"{who}: commits by author as git counts them", reported, authors)
    checks.same(f"{who}: commits by weekday in {zone}", answer["weekdays"], weekdays)
    checks.same(f"{who}: the newest commit", answer["newest"], newest)
    newest_local = datetime.fromisoformat(answer["newest_there"])
    right = newest_local.astimezone(ZoneInfo(zone)).utcoffset() == newest_local.utcoffset()
    # The time server converts only times of day, with today's date, so compare nothing but the
    # times of day in UTC.
    time, expected = (f"{moment.astimezone(UTC):%H:%M}" for moment in (newest_local, date))
    check = f"{who}: the newest commit's time of day in {zone}"
    problem = f"got {newest_local}, expected {expected} UTC"
    checks.holds(check, right and time == expected, problem)
    change = answer["change"]
    expected_change = repository.newest_change()
    if expected_change is None or ("message" in change and expected_change[1] > _LARGE_PATCH):
        check = f"{who}: the plan reports that git cannot make the patch, and continues"
        checks.holds(check, "message" in change, encode_text(change)[:200])
    else:
        check = f"{who}: lines the newest commit changes, as git counts them"
        checks.same(
            check, {key: change.get(key) for key in ("added", "removed")}, expected_change[0]
        )


@dataclass
class Demo:
    """A run of the demo. `executable` contains the words that start ideabridge; `say` prints a line
    in a given style.
    """

    repository: Repository
    executable: list[str]
    say: Callable[[str, str | None], None]
    checks: Checks = field(default_factory=Checks)
    step: int = 0

    async def run(self) -> Members:
        """Run all steps and return the results for `--json`.

        Raises:
            DemoSetupError: the demo cannot start.
            CheckFailedError: a step failed.
        """
        # Remove the user's own token, because the server would otherwise refuse the demo's
        # assistants.
        os.environ.pop(TOKEN_VARIABLE, None)
        with tempfile.TemporaryDirectory(
            prefix="ideabridge-demo-", ignore_cleanup_errors=True
        ) as name:
            folder = Path(name)
            serve = [*self.executable, "serve", "--config", str(self._write_configuration(folder))]
            log = folder / "serve.log"
            try:
                with anyio.fail_after(DEMO_SECONDS), log.open("w", encoding="utf-8") as errors:
                    return await self._run_two_assistants(folder, serve, errors)
            except TimeoutError:
                raise CheckFailedError(f"the demo did not finish within {DEMO_SECONDS} s") from None
            except Exception as error:
                log_end = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
                cause = assistant.cause_of(error)
                if log_end:
                    cause = f"{cause}\nthe server wrote: {log_end}"
                raise CheckFailedError(cause) from error

    def _write_configuration(self, folder: Path) -> Path:
        """Write `ideabridge.json` into `folder`, and return its path. The store is `ideas.sqlite`
        in the same folder.
        """
        missing = [
            name
            for name in ("mcp_server_git", "mcp_server_time")
            if importlib.util.find_spec(name) is None
        ]
        if missing:
            names = " and ".join(missing).replace("_", "-")
            raise DemoSetupError(
                f"{names} are missing; install them with: pip install 'ideabridge[demo]'"
            )

        git = ["-m", "mcp_server_git", "--repository", str(self.repository.root)]
        clock = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
        servers = {
            "git": {"command": sys.executable, "args": git, "env": {"GIT_OPTIONAL_LOCKS": "0"}},
            "time": {"command": sys.executable, "args": clock},
        }
        path = folder / "ideabridge.json"
        content = {
            "mcpServers": servers,
            "tools": [str(example("git_history.py"))],
            "store": "ideas.sqlite",
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    async def _run_two_assistants(self, folder: Path, serve: list[str], log: TextIO) -> Members:
        root = str(self.repository.root)
        count = self.repository.commits
        for_a = {"repo": root, "count": count, "timezone": "Europe/Berlin"}
        for_b = {"repo": root, "count": max(1, count // 2), "timezone": "Asia/Tokyo"}
        self.say(
            f"ideabridge demo: the newest {count} commits of {root}, which it only reads", "bold"
        )
        self.say("No model is asked, and nothing leaves this machine.", "dim")
        command = StdioServerParameters(
            command=serve[0], args=serve[1:], env=dict(os.environ), cwd=_OUTSIDE
        )
        async with Client(stdio_client(command, errlog=log)) as client:
            tools = len((await client.list_tools()).tools)
            self._head(
                f"Assistant A connects over stdio, MCP {client.protocol_version}, "
                f"{tools} tools in its context"
            )
            first = await self._hand_over(client, for_a, folder / "ideas.sqlite")
            await self._publish(client, first["run"], NAME, "plan")
            # Assistant A stays connected, so that two servers in two processes use the same store.
            second = await self._second_assistant([*serve, "--http", "127.0.0.1:0"], for_b)
            differs = second["content"]["report"] != first["output"]["report"]
            self.checks.holds(
                "assistant B: different input, different answer", differs, "the answer is the same"
            )
            recorded = await self._recorded(client, first, for_a, for_b)

        return {
            "repository": root,
            "a": first,
            "b": second,
            "recorded": recorded,
            "tokens": first["tokens"],
        }

    async def _hand_over(self, client: Client, arguments: Members, store: Path) -> Members:
        """Send the plan as assistant A."""
        plan = {**PLAN, "input": arguments}
        calls = PLAN["calls"]
        self.say(
            f"It submits one plan of {len(calls)} calls ({len(encode(plan)):,} bytes), once:",
            None,
        )
        for step in calls:
            module = f"{step['_module']}." if "_module" in step else ""
            parameters = ", ".join(
                f"{key}={value}" for key, value in step.items() if not key.startswith("_")
            )
            self.say(f"   {module}{step['_tool']}({parameters}) -> {step['_outputPath']}", None)

        reply = await call(client, "run_plan", plan)
        content = reply.content
        output = reply.content.get("output")
        if content["status"] != "done" or output is None:
            raise CheckFailedError(f"run_plan: expected an output, found {encode(content)[:600]!r}")
        self._show("assistant A", arguments, output, reply)
        self.checks.same("assistant A: errors", content["errors"], [])
        sizes = await anyio.to_thread.run_sync(_result_bytes, store, content["run"])
        # In a shallow clone, there may be no patch to measure.
        skipped = 1 if "message" in output["change"] else 0
        self.checks.same("assistant A: calls that ran", len(sizes), len(calls) - skipped)
        tokens = content.get("usage", {}).get("tokens", 0)
        self.checks.same("tokens used", tokens, 0)
        at_once = max(map(len, assistant.at_once(reply.bars)), default=0)
        self.checks.holds(
            "assistant A: calls ran in parallel", at_once > 1, "no two calls ran at the same time"
        )
        came = (
            f"The {len(calls)} results had {sum(sizes):,} bytes. {reply.bytes:,} bytes "
            "came back to the assistant"
        )
        if sum(sizes) > reply.bytes:
            spared = "; the rest never had to pass through a model"
        else:
            spared = ""

        self.say(f"{came}{spared}. One round trip instead of one for each call.", None)
        self.say(f"Tokens used by ideabridge: {tokens}", "bold")
        sent = {
            "run": content["run"],
            "output": output,
            "seconds": reply.seconds,
            "bytes_of_answer": reply.bytes,
        }
        bars = [asdict(bar) for bar in reply.bars]
        return {
            **sent,
            "calls": bars,
            "bytes_of_results": sum(sizes),
            "tokens": tokens,
            "at_once": at_once,
        }

    async def _publish(self, client: Client, run: str, name: str, how: str) -> None:
        arguments = {"idea": run, "name": name, "answer": how, "description": DESCRIPTION}
        published = (await call(client, "publish_idea", arguments)).content
        self.checks.same(f"{name} is published", published["answer"], how)
        names = ", ".join(published["input_schema"]["properties"])
        self._head(f"Assistant A publishes the run as the tool {name}({names}), answered by: {how}")
        self.say(f"   {published['description']}", "dim")

    async def _second_assistant(self, serve: list[str], arguments: Members) -> Members:
        """Act as assistant B, in another process: call the tool through another server on the same
        store.
        """
        async with await anyio.open_process(serve, stdin=None, stdout=None, cwd=_OUTSIDE) as server:
            try:
                address = await _address_of(server)
                self._head(f"Assistant B, another process, connects over HTTP to {address}")
                words = [
                    sys.executable,
                    "-P",
                    "-m",
                    assistant.__name__,
                    address,
                    NAME,
                    json.dumps(arguments),
                ]
                # Bypass any proxy, because the address is local and a proxy must not receive the
                # requests.
                environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
                done = await anyio.run_process(words, check=False, env=environment)
            finally:
                if server.returncode is None:
                    server.terminate()

        if done.returncode:
            raise CheckFailedError(
                f"assistant B: {done.stderr.decode('utf-8', 'replace').strip()[-600:]}"
            )

        report = cast("Members", json.loads(done.stdout))
        about = (
            f"It speaks MCP {report['protocol']}, finds the tool among "
            f"{report['tools']}, and calls it with other"
        )
        self.say(
            f"{about} input: count={arguments['count']}, timezone={arguments['timezone']}", None
        )
        bars = [Bar(**members) for members in report["bars"]]
        reply = ToolReply(report["content"], report["bytes"], report["seconds"], bars)
        self._show("assistant B", arguments, reply.content, reply)
        return report

    async def _recorded(
        self, client: Client, first: Members, same: Members, changed: Members
    ) -> Members:
        """Show the recorded answer: a call with the same input returns the stored output
        immediately, and a call with different input is refused.
        """
        await self._publish(client, first["run"], RECORDED_NAME, "recorded")
        reply = await call(client, RECORDED_NAME, same)
        self.checks.same("recorded: the stored answer is unchanged", reply.content, first["output"])
        self.checks.holds("recorded: no call ran", not reply.bars, "calls ran")
        self.say(
            "The same input again: the stored answer, in "
            f"{duration_text(reply.seconds)}; nothing ran.",
            None,
        )
        refused = ""
        try:
            await call(client, RECORDED_NAME, changed)
        except CheckFailedError as error:
            refused = str(error).removeprefix(f"{RECORDED_NAME}: ")
            self.say(f"Different input is refused: {refused}", "dim")

        self.checks.holds("recorded: different input is refused", bool(refused), "it was answered")
        return {"seconds": reply.seconds, "refused": refused}

    def _head(self, text: str) -> None:
        self.step += 1
        self.say("", None)
        self.say(f"{self.step}. {text}", "bold cyan")

    def _show(self, who: str, arguments: Members, output: Members, reply: ToolReply) -> None:
        check_answer(
            self.checks, who, output, self.repository, arguments["count"], arguments["timezone"]
        )
        self.say("What ran when:", None)
        for line in assistant.draw_bars(reply.bars):
            self.say(f"   {line}", "green")

        groups = [group for group in assistant.at_once(reply.bars) if len(group) > 1]
        if groups:
            name, beside = groups[0][:2]
            self.say(
                f"   up to {max(map(len, groups))} calls at the same time, "
                f"for example {name} beside {beside}",
                None,
            )

        self.say(f"The answer, after {duration_text(reply.seconds)}:", None)
        for line in output["report"].split("\n"):
            self.say(f"   {line}", "yellow")

    def end(self, seconds: float) -> None:
        """Print the result of every check."""
        self._head("Every answer, compared with git and the time zone database")
        for check in self.checks.found:
            mark, style = ("✓", "green") if check["holds"] else ("✗", "bold red")
            problem = f": {check['why']}" if "why" in check else ""
            self.say(f"   {mark} {check['check']}{problem}", style)

        self.say("", None)
        if self.checks.wrong:
            self.say(
                f"{len(self.checks.wrong)} of {len(self.checks.found)} checks failed.", "bold red"
            )
        else:
            self.say(
                f"All {len(self.checks.found)} checks passed. {duration_text(seconds)} in total.",
                "bold green",
            )


async def _address_of(server: Process) -> str:
    """Return the address that a server over HTTP prints when it is ready."""
    output = ""
    assert server.stderr is not None
    async for text in TextReceiveStream(server.stderr, errors="replace"):
        output += text
        if match := _ADDRESS.search(output):
            return match.group(1)

    raise CheckFailedError(f"serve --http did not start: {output.strip()[-500:]}")


def _result_bytes(store: Path, run: str) -> list[int]:
    """Return the size of each call's result as JSON, read from the run's journal."""
    with Store.open(str(store)) as opened:
        events = [event for _, event in opened.runs.events(run)]
    return [
        len(encode(event.get("value"))) for event in events if event.get("event") == "call_finished"
    ]
