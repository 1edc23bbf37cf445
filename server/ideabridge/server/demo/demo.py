"""The demo itself: what `ideabridge demo` does, step by step."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
from anyio.streams.text import TextReceiveStream

from ideabridge.server.callers import TOKEN_VARIABLE
from ideabridge.server.cli.console import print_json, report
from ideabridge.server.cli.exits import ExitCode, leaves, own_error
from ideabridge.server.cli.install import executable
from ideabridge.server.demo.assistant import Answer, Assistant, outside, over_stdio
from ideabridge.server.demo.checks import Checks, check_answer
from ideabridge.server.demo.errors import CheckFailedError
from ideabridge.server.demo.plan import CALLS, DESCRIPTION, NAME, RECORDED_NAME, plan
from ideabridge.server.demo.repository import Repository, find_repository
from ideabridge.server.demo.setup import time_zones, write_configuration
from ideabridge.server.demo.story import Story
from ideabridge.server.demo.timeline import Bar, most_at_once
from ideabridge.tools.encoding import JSON, JSONObject, encode

SECONDS: Final = 120
"""The demo is given up after so long; it takes a few seconds."""

_ADDRESS: Final = re.compile(r"serving on (http://\S+)")


async def run_demo(given: Path | None, as_json: bool) -> int:
    """Run the demo; returns the exit code: 0, or 1 where an answer is not what git says.

    Args:
        given: the repository to look into; None: see `find_repository`.
        as_json: print one JSON object instead of the story.

    Raises:
        DemoSetupError: it cannot start.
        CheckFailedError: something on the way went wrong.
    """
    began = time.monotonic()
    repository = await anyio.to_thread.run_sync(find_repository, given)
    story = Story(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="ideabridge-demo-", ignore_cleanup_errors=True) as folder:
        try:
            with anyio.fail_after(SECONDS):
                told, checks = await _Demo(Path(folder), repository, story).run()
        except TimeoutError:
            raise CheckFailedError(f"the demo was not done after {SECONDS} s") from None
    seconds = time.monotonic() - began
    if as_json:
        print_json({**told, "seconds": round(seconds, 3), "checks": checks.to_json(), "ok": not checks.wrong})
    else:
        story.end(seconds, checks)
    for line in checks.wrong:
        report(line)
    return ExitCode.FAILED if checks.wrong else ExitCode.DONE


class _Demo:
    """One run of the demo.

    Args:
        folder: a temporary folder.
        repository: is looked into.
        story: tells the person.
    """

    def __init__(self, folder: Path, repository: Repository, story: Story) -> None:
        self._folder = folder
        self._repository = repository
        self._story = story
        self._checks = Checks()
        # A token of the person's own would lock the demo's assistants out of its own server.
        os.environ.pop(TOKEN_VARIABLE, None)

    async def run(self) -> tuple[JSONObject, Checks]:
        """Everything; returns what is told, and the checks."""
        root = str(self._repository.root)
        first, second = time_zones()
        count = self._repository.commits
        for_a: JSONObject = {"repo": root, "count": count, "timezone": first}
        for_b: JSONObject = {"repo": root, "count": max(1, count // 2), "timezone": second}
        configuration = write_configuration(self._folder, self._repository)
        serve = [*executable(), "serve", "--config", str(configuration)]
        self._story.opening(self._repository)
        try:
            async with over_stdio(serve, log=self._folder / "serve.log") as assistant:
                told_a, answer, run = await self._hand_over(assistant, for_a)
                await self._publish(assistant, run, NAME, "plan", DESCRIPTION)
                # While A is still connected: two servers, two processes, one store.
                told_b = await self._second_assistant([*serve, "--http", "127.0.0.1:0"], for_b, answer)
                recorded = await self._recorded(assistant, run, for_a, for_b, answer)
        except Exception as error:
            raise self._explained(error) from error
        tokens = told_a["tokens"]
        return (
            {"repository": root, "a": told_a, "b": told_b, "recorded": recorded, "tokens": tokens},
            self._checks,
        )

    def _explained(self, error: Exception) -> Exception:
        """An error with what the server said last, where it said something."""
        log = self._folder / "serve.log"
        said = log.read_text(encoding="utf-8", errors="replace").strip() if log.is_file() else ""
        known = own_error(error)
        text = str(known) if known is not None else f"{type(next(leaves(error))).__name__}: {next(leaves(error))}"
        return CheckFailedError(text + (f"\nthe server said: {said[-500:]}" if said else ""))

    async def _hand_over(self, assistant: Assistant, given: JSONObject) -> tuple[JSONObject, JSONObject, str]:
        """Assistant A hands over the plan; what is told of it, the output, and the run's id."""
        tools = await assistant.tools()
        self._story.connected("A", f"over stdio, MCP {assistant.protocol}, {len(tools)} tools in its context")
        asked = plan(str(given["repo"]), cast("int", given["count"]), str(given["timezone"]))
        self._story.handing_over(asked)
        answer = await assistant.call("run_plan", asked)
        run, status = str(answer.content.get("run")), answer.content.get("status")
        output = answer.content.get("output")
        if status != "done" or not isinstance(output, dict):
            raise CheckFailedError(
                f"run_plan: expected the plan done with an output, found {encode(answer.content)[:600]!r}"
            )
        check_answer(self._checks, "assistant A", output, self._repository, given)
        self._checks.same("assistant A: errors", answer.content.get("errors"), [])
        results = await anyio.to_thread.run_sync(_result_bytes, self._folder / "ideas.sqlite", run)
        # Where there is no patch (a shallow clone cannot make one), nothing is there to measure.
        change = output.get("change")
        skipped = 1 if isinstance(change, dict) and "message" in change else 0
        self._checks.same("assistant A: calls that ran", len(results), len(CALLS) - skipped)
        spared = sum(results.values())
        usage = answer.content.get("usage")
        tokens = usage.get("tokens") if isinstance(usage, dict) else None
        self._checks.same("tokens used", tokens, 0)
        at_once = most_at_once(answer.bars)
        self._checks.holds("assistant A: calls ran in parallel", at_once > 1, "no two calls ran at once")
        self._story.timeline(answer.bars, at_once)
        self._story.answer(output, answer.seconds)
        self._story.spared(len(CALLS), spared, answer.bytes, tokens)
        told = self._told(answer, output)
        return {**told, "bytes_of_results": spared, "tokens": tokens, "at_once": at_once}, output, run

    @staticmethod
    def _told(answer: Answer, output: JSONObject) -> JSONObject:
        bars: list[JSON] = [bar.to_json() for bar in answer.bars]
        return {"output": output, "seconds": answer.seconds, "bytes_of_answer": answer.bytes, "calls": bars}

    async def _publish(self, assistant: Assistant, run: str, name: str, how: str, description: str) -> None:
        arguments: JSONObject = {"idea": run, "name": name, "answer": how, "description": description}
        published = await assistant.call("publish_idea", arguments)
        self._checks.same(f"{name} is published", published.content.get("answer"), how)
        self._story.published(name, how, published.content)

    async def _second_assistant(self, serve: list[str], given: JSONObject, other: JSONObject) -> JSONObject:
        """Assistant B, another process, over HTTP and another server on the same store."""
        async with _serving(serve) as address:
            self._story.connecting("B", address)
            words = [sys.executable, "-P", "-m", "ideabridge.server.demo.assistant", address, NAME, json.dumps(given)]
            # A proxy is for what is outside.
            environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
            done = await anyio.run_process(words, check=False, env=environment)
            if done.returncode:
                raise CheckFailedError(f"assistant B: {done.stderr.decode('utf-8', 'replace').strip()[-600:]}")
            told = cast("JSONObject", json.loads(done.stdout))
        output = told["content"]
        if not isinstance(output, dict):
            raise CheckFailedError("assistant B: no output")
        check_answer(self._checks, "assistant B", output, self._repository, given)
        if given != other:
            differs = output.get("report") != other.get("report")
            self._checks.holds("assistant B: other input, other answer", differs, "the answer is the same")
        bars = [Bar.from_json(bar) for bar in cast("list[JSONObject]", told["bars"])]
        self._story.called("B", told, given)
        self._story.timeline(bars, most_at_once(bars))
        self._story.answer(output, cast("float", told["seconds"]))
        return told

    async def _recorded(
        self, assistant: Assistant, run: str, same: JSONObject, other: JSONObject, first: JSONObject
    ) -> JSONObject:
        """The same run, published as its recorded answer: the same input gets it at once, other input is refused."""
        await self._publish(assistant, run, RECORDED_NAME, "recorded", DESCRIPTION)
        answer = await assistant.call(RECORDED_NAME, same)
        self._checks.same("recorded: the stored answer, to the letter", answer.content, first)
        self._checks.holds("recorded: no call ran", not answer.bars, "calls ran")
        refused = ""
        if other != same:
            try:
                await assistant.call(RECORDED_NAME, other)
            except CheckFailedError as error:
                refused = str(error).removeprefix(f"{RECORDED_NAME}: ")
            self._checks.holds("recorded: other input is refused", bool(refused), "it was answered")
        self._story.recorded(answer.seconds, refused)
        return {"seconds": answer.seconds, "refused": refused}


@asynccontextmanager
async def _serving(command: list[str]) -> AsyncGenerator[str]:
    """A server over HTTP while the context lasts; gives its address."""
    async with await anyio.open_process(command, stdin=None, stdout=None, cwd=outside(Path.cwd())) as process:
        try:
            yield await _address(process)
        finally:
            if process.returncode is None:
                process.terminate()


async def _address(process: anyio.abc.Process) -> str:
    assert process.stderr is not None
    said = ""
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        said += text
        found = _ADDRESS.search(said)
        if found is not None and "\n" in said[found.end() :]:
            return found.group(1)
    raise CheckFailedError(f"serve --http did not come up: {said.strip()[-500:]}")


def _result_bytes(store: Path, run: str) -> dict[int, int]:
    """Bytes of JSON of each call's result, by the call, from the run's journal."""
    from ideabridge.bridge.ideas.store import Store

    opened = Store.open(str(store))
    try:
        found: dict[int, int] = {}
        for _, event in opened.events(run):
            if event.get("event") == "call_finished":
                found[cast("int", event["call"])] = len(encode(event.get("value")))
        return found
    finally:
        opened.close()
