"""The demo: two assistants, two existing MCP servers, and one plan that becomes a tool.

Assistant A sends a plan to a server on stdio and publishes the run as a tool. Assistant B, another process, calls the
tool through a second server over HTTP on the same store. Then A publishes the run again, as a recorded answer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO, cast
from zoneinfo import available_timezones

import anyio
from anyio.streams.text import TextReceiveStream
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ideabridge.bridge.bridge import TOKEN_VARIABLE
from ideabridge.bridge.store.store import Store
from ideabridge.server.demo import assistant
from ideabridge.server.demo.assistant import Bar, CheckFailedError, call
from ideabridge.server.demo.checks import Checks, DemoSetupError, Repository, check_answer
from ideabridge.tools.encoding import JSON, JSONObject, encode

SECONDS: Final = 120
"""The time after which the demo is cancelled; it takes a few seconds."""

NAME: Final = "git_activity"
RECORDED_NAME: Final = "git_activity_recorded"
DESCRIPTION: Final = "Who committed to a git repository and when, told for a time zone, with the newest change."
TOOL_FILE: Final = "git_history.py"
_ADDRESS: Final = re.compile(r"serving on (http://\S+)\n")

PLAN: Final[dict[str, Any]] = json.loads("""{
"calls": [
  {"_module": "git", "_tool": "git_log", "repo_path": "†input.repo", "max_count": "†input.count", "_outputPath": "log"},
  {"_module": "time", "_tool": "get_current_time", "timezone": "†input.timezone", "_outputPath": "now"},
  {"_module": "git", "_tool": "git_status", "repo_path": "†input.repo", "_outputPath": "status"},
  {"_tool": "parse_git_log", "log": "†state.log", "_outputPath": "commits"},
  {"_tool": "summarise_commits", "commits": "†state.commits", "timezone": "†input.timezone", "_outputPath": "summary"},
  {"_module": "git", "_tool": "git_show", "repo_path": "†input.repo", "revision": "†state.commits.0.sha",
   "_outputPath": "†state.patch || †state.no_patch"},
  {"_tool": "measure_patch", "patch": "†state.patch", "_outputPath": "change"},
  {"_module": "time", "_tool": "convert_time", "source_timezone": "†state.commits.0.timezone",
   "time": "†state.commits.0.time", "target_timezone": "†input.timezone", "_outputPath": "there"},
  {"_tool": "activity_report", "summary": "†state.summary", "newest": "†state.commits.0",
   "newest_there": "†state.there.target.datetime", "now": "†state.now.datetime", "status": "†state.status",
   "change": "†state.change || †state.no_patch", "_outputPath": "report"}
],
"output": {
  "report": "†state.report", "commits": "†state.summary.commits", "authors": "†state.summary.authors",
  "weekdays": "†state.summary.weekdays", "newest": "†state.commits.0.sha",
  "newest_there": "†state.there.target.datetime", "change": "†state.change || †state.no_patch"
}}""")
"""Nine calls to two MCP servers and a file of Python tools. In a shallow clone git cannot make a patch: then `no_patch`
is the reason, and the plan goes on."""

CALLS: Final = cast("list[dict[str, str]]", PLAN["calls"])
_OUTSIDE: Final = Path(sys.executable).absolute().parents[-1]
"""The root folder. It is not a project, so the server treats the configuration as given by the user."""


def tool_file() -> Path:
    """The file of Python tools: in the checkout, or the copy in an installed package."""
    here = Path(__file__).absolute()
    for path in (here.parent / TOOL_FILE, here.parents[4] / "examples" / TOOL_FILE):
        if path.is_file():
            return path
    raise DemoSetupError(f"examples/{TOOL_FILE} is missing; install ideabridge again, or run the demo from a checkout")


def write_configuration(folder: Path, repository: Repository) -> Path:
    """Write `ideabridge.json` into `folder` and return its path. The store is `ideas.sqlite` in the same folder."""
    missing = [name for name in ("mcp_server_git", "mcp_server_time") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing).replace("_", "-")
        raise DemoSetupError(f"{names} are missing; install them with: pip install 'ideabridge[demo]'")
    git, clock = ["-m", "mcp_server_git", "--repository", str(repository.root)], ["-m", "mcp_server_time"]
    servers = {
        "git": {"command": sys.executable, "args": git, "env": {"GIT_OPTIONAL_LOCKS": "0"}},
        "time": {"command": sys.executable, "args": [*clock, "--local-timezone", "UTC"]},
    }
    path = folder / "ideabridge.json"
    content = {"mcpServers": servers, "tools": [str(tool_file())], "store": "ideas.sqlite"}
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path


class Demo:
    """One run of the demo.

    Args:
        repository: the demo only reads it.
        executable: the words that start ideabridge.
        say: prints a line in a style.
    """

    def __init__(self, repository: Repository, executable: list[str], say: Callable[[str, str | None], None]) -> None:
        self._repository = repository
        self._executable = executable
        self._say = say
        self._step = 0
        self.checks = Checks()

    async def run(self) -> JSONObject:
        """Run all steps and return the results for `--json`.

        Raises:
            DemoSetupError: the demo cannot start.
            CheckFailedError: a step failed.
        """
        # With the user's own token the server would refuse the assistants of the demo.
        os.environ.pop(TOKEN_VARIABLE, None)
        with tempfile.TemporaryDirectory(prefix="ideabridge-demo-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            configuration = write_configuration(folder, self._repository)
            log = folder / "serve.log"
            try:
                with anyio.fail_after(SECONDS), log.open("w", encoding="utf-8") as errors:
                    serve = [*self._executable, "serve", "--config", str(configuration)]
                    return await self._both(folder, serve, errors)
            except TimeoutError:
                raise CheckFailedError(f"the demo did not end within {SECONDS} s") from None
            except Exception as error:
                said = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
                why = assistant.cause_of(error) + (f"\nthe server wrote: {said}" if said else "")
                raise CheckFailedError(why) from error

    async def _both(self, folder: Path, serve: list[str], log: TextIO) -> JSONObject:
        zones = [zone if zone in available_timezones() else "UTC" for zone in ("Europe/Berlin", "Asia/Tokyo")]
        root, count = str(self._repository.root), self._repository.commits
        for_a: JSONObject = {"repo": root, "count": count, "timezone": zones[0]}
        for_b: JSONObject = {"repo": root, "count": max(1, count // 2), "timezone": zones[1]}
        self._say(f"ideabridge demo: the newest {count} commits of {root}, which it only reads", "bold")
        self._say("No model is asked, and nothing leaves this machine.", "dim")
        command = StdioServerParameters(command=serve[0], args=serve[1:], env=dict(os.environ), cwd=_OUTSIDE)
        async with Client(stdio_client(command, errlog=log)) as client:
            count = len(await assistant.tools_of(client))
            self._head(f"Assistant A connects over stdio, MCP {client.protocol_version}, {count} tools in its context")
            first = await self._hand_over(client, for_a, folder / "ideas.sqlite")
            run, output = str(first["run"]), cast("JSONObject", first["output"])
            await self._publish(client, run, NAME, "plan")
            # A is still connected: two servers in two processes use one store.
            second = await self._second_assistant([*serve, "--http", "127.0.0.1:0"], for_b)
            if for_a != for_b:
                differs = cast("JSONObject", second["content"]).get("report") != output.get("report")
                self.checks.holds("assistant B: other input, other answer", differs, "the answer is the same")
            recorded = await self._recorded(client, run, for_a, for_b, output)
        return {"repository": root, "a": first, "b": second, "recorded": recorded, "tokens": first["tokens"]}

    async def _hand_over(self, client: Client, given: JSONObject, store: Path) -> JSONObject:
        """Assistant A sends the plan."""
        plan: JSONObject = {**PLAN, "input": given}
        self._say(f"It hands over one plan of {len(CALLS)} calls ({len(encode(plan)):,} bytes), once:", None)
        for one in CALLS:
            module = f"{one['_module']}." if "_module" in one else ""
            parameters = ", ".join(f"{key}={value}" for key, value in one.items() if not key.startswith("_"))
            self._say(f"   {module}{one['_tool']}({parameters}) -> {one['_outputPath']}", None)
        reply = await call(client, "run_plan", plan)
        output, usage = reply.content.get("output"), reply.content.get("usage")
        if reply.content.get("status") != "done" or not isinstance(output, dict):
            raise CheckFailedError(f"run_plan: expected an output, found {encode(reply.content)[:600]!r}")
        check_answer(self.checks, "assistant A", output, self._repository, given)
        self.checks.same("assistant A: errors", reply.content.get("errors"), [])
        run = str(reply.content.get("run"))
        sizes = await anyio.to_thread.run_sync(_result_bytes, store, run)
        # In a shallow clone there is no patch to measure.
        change = output.get("change")
        skipped = 1 if isinstance(change, dict) and "message" in change else 0
        self.checks.same("assistant A: calls that ran", len(sizes), len(CALLS) - skipped)
        tokens = usage.get("tokens") if isinstance(usage, dict) else None
        self.checks.same("tokens used", tokens, 0)
        at_once = assistant.most_at_once(reply.bars)
        self.checks.holds("assistant A: calls ran in parallel", at_once > 1, "no two calls ran at once")
        self._show(reply.bars, output, reply.seconds)
        results = sum(sizes)
        came = f"The {len(CALLS)} results had {results:,} bytes. {reply.bytes:,} bytes came back to the assistant"
        spared = "; the rest never had to pass through a model" if results > reply.bytes else ""
        self._say(f"{came}{spared}. One round trip instead of one for each call.", None)
        self._say(f"Tokens used by ideabridge: {tokens}", "bold")
        sent: JSONObject = {"run": run, "output": output, "seconds": reply.seconds, "bytes_of_answer": reply.bytes}
        calls: list[JSON] = [asdict(bar) for bar in reply.bars]
        return {**sent, "calls": calls, "bytes_of_results": results, "tokens": tokens, "at_once": at_once}

    async def _publish(self, client: Client, run: str, name: str, how: str) -> None:
        arguments: JSONObject = {"idea": run, "name": name, "answer": how, "description": DESCRIPTION}
        published = (await call(client, "publish_idea", arguments)).content
        self.checks.same(f"{name} is published", published.get("answer"), how)
        schema = cast("dict[str, Any]", published.get("input_schema") or {})
        names = ", ".join(schema.get("properties", {}))
        self._head(f"Assistant A publishes the run as the tool {name}({names}), answered by: {how}")
        self._say(f"   {published.get('description')}", "dim")

    async def _second_assistant(self, serve: list[str], given: JSONObject) -> JSONObject:
        """Assistant B, another process, calls the tool through another server on the same store."""
        async with _serving(serve) as address:
            self._head(f"Assistant B, another process, connects over HTTP to {address}")
            words = [sys.executable, "-P", "-m", "ideabridge.server.demo.assistant", address, NAME, json.dumps(given)]
            # The address is local: a configured proxy must not get the requests.
            environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
            done = await anyio.run_process(words, check=False, env=environment)
        if done.returncode:
            raise CheckFailedError(f"assistant B: {done.stderr.decode('utf-8', 'replace').strip()[-600:]}")
        found = cast("dict[str, Any]", json.loads(done.stdout))
        check_answer(self.checks, "assistant B", found["content"], self._repository, given)
        other = f"count={given['count']}, timezone={given['timezone']}"
        known = f"It speaks MCP {found['protocol']}, finds the tool among {found['tools']}"
        self._say(f"{known}, and calls it with other input: {other}", None)
        self._show([Bar(**one) for one in found["bars"]], found["content"], found["seconds"])
        return found

    async def _recorded(
        self, client: Client, run: str, same: JSONObject, other: JSONObject, first: JSONObject
    ) -> JSONObject:
        """The recorded answer: the same input returns the stored output at once, and other input is refused."""
        await self._publish(client, run, RECORDED_NAME, "recorded")
        reply = await call(client, RECORDED_NAME, same)
        self.checks.same("recorded: the stored answer is unchanged", reply.content, first)
        self.checks.holds("recorded: no call ran", not reply.bars, "calls ran")
        self._say(f"The same input again: the stored answer, in {reply.seconds * 1000:.1f} ms; nothing ran.", None)
        refused = ""
        if other != same:
            try:
                await call(client, RECORDED_NAME, other)
            except CheckFailedError as error:
                refused = str(error).removeprefix(f"{RECORDED_NAME}: ")
                self._say(f"Other input is refused: {refused}", "dim")
            self.checks.holds("recorded: other input is refused", bool(refused), "it was answered")
        return {"seconds": reply.seconds, "refused": refused}

    def _head(self, text: str) -> None:
        self._step += 1
        self._say("", None)
        self._say(f"{self._step}. {text}", "bold cyan")

    def _show(self, bars: list[Bar], output: JSONObject, seconds: float) -> None:
        self._say("What ran when:", None)
        for line in assistant.draw(bars):
            self._say(f"   {line}", "green")
        for one, other in assistant.together(bars)[:1]:
            most = assistant.most_at_once(bars)
            self._say(f"   up to {most} calls at once, for example {one} beside {other}", None)
        self._say(f"The answer, after {seconds:.2f} s:", None)
        for line in str(output.get("report")).split("\n"):
            self._say(f"   {line}", "yellow")

    def end(self, seconds: float) -> None:
        """Print the result of every check."""
        self._head("Every answer, compared with git and the time zone database")
        for what, truth, why in self.checks.found:
            mark, style = ("✓", "green") if truth else ("✗", "bold red")
            self._say(f"   {mark} {what}{why and f': {why}'}", style)
        self._say("", None)
        if self.checks.wrong:
            self._say(f"{len(self.checks.wrong)} of {len(self.checks.found)} checks failed.", "bold red")
        else:
            self._say(f"All {len(self.checks.found)} checks hold. {seconds:.1f} s in all.", "bold green")


@asynccontextmanager
async def _serving(command: list[str]) -> AsyncGenerator[str]:
    """A server over HTTP; yields its address."""
    async with await anyio.open_process(command, stdin=None, stdout=None, cwd=_OUTSIDE) as process:
        assert process.stderr is not None
        said = ""
        try:
            async for text in TextReceiveStream(process.stderr, errors="replace"):
                said += text
                found = _ADDRESS.search(said)
                if found is not None:
                    yield found.group(1)
                    return
            raise CheckFailedError(f"serve --http did not start: {said.strip()[-500:]}")
        finally:
            if process.returncode is None:
                process.terminate()


def _result_bytes(store: Path, run: str) -> list[int]:
    """The size of each call's result as JSON, from the journal of the run."""
    with Store.open(str(store)) as opened:
        events = [event for _, event in opened.runs.events(run)]
    return [len(encode(event.get("value"))) for event in events if event.get("event") == "call_finished"]
