"""Exposed tools: those of modules and of tool files as tools of this server."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp import Client, types

from .serving import (
    ERAS,
    Gate,
    all_tools,
    call,
    configured,
    git_module,
    http_process,
    over_stdio,
    plain,
    refused,
    structured,
    text,
    time_module,
)

pytestmark = pytest.mark.anyio


async def test_modules_and_tool_files_are_called_directly(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    await anyio.run_process(["git", "init", "-q", str(repository)])
    servers = {"git": git_module(repository), "time": time_module()}
    configuration = configured(
        tmp_path, mcpServers=servers, expose=["modules", "tools"], schemas="plain"
    )
    with http_process(configuration) as url:
        for number, mode in enumerate(ERAS, 1):
            async with Client(url, mode=mode, read_timeout_seconds=60) as client:
                await called_directly(client, repository, tmp_path / mode, number)


async def called_directly(client: Client, repository: Path, note: Path, number: int) -> None:
    """What is exposed is called; this is the client of that number."""
    # A plan that names a module waits until it is up.
    told = await call(
        client,
        "run_plan",
        calls=[
            {
                "_tool": "git_status",
                "_module": "git",
                "repo_path": str(repository),
                "_outputPath": "git",
            },
            {
                "_tool": "get_current_time",
                "_module": "time",
                "timezone": "UTC",
                "_outputPath": "time",
            },
        ],
    )
    assert told["errors"] == []
    tools = await all_tools(client)
    assert {"add", "git_status", "git_commit", "get_current_time", "run_plan"} <= tools.keys()
    assert not any("$ref" in tool.model_dump_json() for tool in tools.values())
    annotations = tools["git_status"].annotations
    assert annotations is not None
    assert annotations.read_only_hint is True
    result = await client.call_tool("git_status", {"repo_path": str(repository)})
    assert not result.is_error
    assert "No commits yet" in text(result) or "branch" in text(result)
    assert "repo_path" in await refused(client, "git_status", path=".")
    assert "timezone" in await refused(client, "get_current_time", timezone="Nowhere/None")
    assert await call(client, "add", a=1, b=2) == {"result": 3}
    assert await call(client, "count_words", text="two words") == {"words": 2}
    assert "bad luck" in await refused(client, "fail", message="bad luck")
    # If no rule applies, the host decides about a direct call, so there is no approval and no run.
    assert await call(client, "write_note", path=str(note), text="x") == {"result": 1}
    assert len((await call(client, "check_run"))["runs"]) == number
    # A name that is in use cannot be published over.
    assert "choose another" in await refused(
        client, "publish_idea", idea=told["run"], name="git_status"
    )


SIZED: dict[str, Any] = {
    "name": "sized",
    "inputSchema": {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
    },
    "annotations": {"readOnlyHint": True},
}


async def whole_or_refused(client: Client) -> None:
    """Results of a direct call arrive whole up to the bound, and are errors with
    their size above it.
    """
    for kind in ("text", "texts", "blocks", "structured"):
        for size in (350_001, 700_000):
            result = await client.call_tool("sized", {"kind": kind, "size": size})
            assert not result.is_error, text(result)[:500]
            if kind == "structured":
                assert structured(result) == {"log": "x" * size}
                # The text is as the module wrote it, with a space.
                assert text(result) == '{"log": "' + "x" * size + '"}'
            elif kind == "blocks":
                image = result.content[1]
                assert isinstance(image, types.ImageContent)
                assert len(text(result)) + len(image.data) == size
            else:
                assert text(result).count("x") + text(result).count("y") == size

        error = await refused(client, "sized", kind=kind, size=1_000_000)
        assert "1,000," in error
        assert "run_plan" in error

    # What the error advises works, even for text that is too large for an answer.
    calls = [{"_tool": "sized", "kind": "text", "size": 1_000_000, "_outputPath": "log"}]
    told = await call(client, "run_plan", calls=calls)
    assert told["state"]["log"]["bytes"] > 1_000_000
    # The shape of its results in runs says what the tool returns, because the tool does not say so
    # itself.
    found = await client.call_tool("search_tools", {"words": "sized"})
    assert structured(found)["tools"][0]["observed"] == {"type": "string"}
    assert "does not declare" in text(found)


async def test_nothing_is_shortened_on_a_direct_call_over_stdio(tmp_path: Path) -> None:
    configuration = configured(
        tmp_path, mcpServers={"plain": plain(tmp_path, "plain", SIZED)}, expose=["modules"]
    )
    async with over_stdio(configuration, "legacy") as client:
        await whole_or_refused(client)


async def test_nothing_is_shortened_on_a_direct_call_over_http(tmp_path: Path) -> None:
    configuration = configured(
        tmp_path, mcpServers={"plain": plain(tmp_path, "plain", SIZED)}, expose=["modules"]
    )
    with http_process(configuration) as url:
        for mode in ERAS:
            async with Client(url, mode=mode, read_timeout_seconds=60) as client:
                await whole_or_refused(client)


async def test_an_answer_after_progress_is_whole_or_an_error(tmp_path: Path) -> None:
    configuration = configured(
        tmp_path, mcpServers={"plain": plain(tmp_path, "plain", SIZED)}, expose=["modules"]
    )
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async def sized(client: Client, size: int) -> types.CallToolResult:
        arguments = {"kind": "structured", "size": size}
        return await client.call_tool("sized", arguments, progress_callback=report)

    async with over_stdio(configuration, "legacy") as client:
        assert structured(await sized(client, 700_000)) == {"log": "x" * 700_000}

    with http_process(configuration) as url:
        for mode in ERAS:
            async with Client(url, mode=mode, read_timeout_seconds=60) as client:
                assert structured(await sized(client, 350_001)) == {"log": "x" * 350_001}
                # Together, the text and the structured content are larger than an event.
                late = await sized(client, 700_000)
                assert late.is_error
                assert "1,400," in text(late)
                assert "progress" in text(late)
                # The session still works.
                assert not (await sized(client, 10)).is_error

    assert len(reports) == 1 + 3 * len(ERAS)


# -- as they were sent -----------------------------------------------------------------------------

ANYTHING: dict[str, Any] = {"type": "object"}
SENT: dict[str, Any] = {
    "name": "sent",
    "inputSchema": ANYTHING,
    "annotations": {"readOnlyHint": True},
}
NOTED: dict[str, Any] = {
    "annotations": {"audience": ["user"], "priority": 0.5},
    "_meta": {"example.com/a": [1, None]},
}
BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "one", **NOTED},
    {"type": "text", "text": "two\nlines"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png", **NOTED},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "size": 3, **NOTED},
    {
        "type": "resource",
        "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "b"},
        **NOTED,
    },
    {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA", "_meta": {"d": 1}}},
]
RESULTS: list[dict[str, Any]] = [
    {"content": BLOCKS},
    {
        "content": BLOCKS,
        "structuredContent": {"a": None, "b": [1.5, 2**70]},
        "_meta": {"example.com/b": {"c": None}},
    },
    {"content": [{"type": "text", "text": "{}"}], "structuredContent": {}},
    {"content": []},
    {
        "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}],
        "_meta": {"progressToken": "x"},
    },
    {
        "content": BLOCKS,
        "structuredContent": {"code": 7, "why": None},
        "isError": True,
        "_meta": {"e": 1},
    },
    {"content": [{"type": "text", "text": "Error executing tool sent: no"}], "isError": True},
    {"content": [], "isError": True},
]


async def arrives_as_sent(client: Client) -> None:
    for result in RESULTS:
        got = (await client.call_tool("sent", {"result": result})).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        got.get("_meta", {}).pop(types.SERVER_INFO_META_KEY, None)
        expected = {"isError": False, "resultType": "complete", **result}
        assert {"_meta": {}, **got} == {"_meta": {}, **expected}


async def test_results_of_a_direct_call_arrive_as_they_were_sent(tmp_path: Path) -> None:
    configuration = configured(
        tmp_path, mcpServers={"plain": plain(tmp_path, "plain", SENT)}, expose=["modules"]
    )
    for mode in ERAS:
        async with over_stdio(configuration, mode) as client:
            await arrives_as_sent(client)

    with http_process(configuration) as url:
        for mode in ERAS:
            async with Client(url, mode=mode, read_timeout_seconds=60) as client:
                await arrives_as_sent(client)


# -- turns -----------------------------------------------------------------------------------------

GATED: dict[str, Any] = {
    "name": "gated",
    "inputSchema": {"type": "object", "properties": {"gate": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


class Queued:
    """Calls of a module that takes one at a time and holds each until its gate is opened."""

    def __init__(self, gate: Gate, group: TaskGroup) -> None:
        self.gate = gate
        self._turns: list[tuple[str, int]] = []
        self._taken = anyio.Event()
        self._group = group

    async def begin(self, who: str, client: Client, times: int = 1) -> None:
        """Let a client make direct calls at once; returns when the server has them."""
        for _ in range(times):
            self._group.start_soon(self._call, who, client)
            await anyio.wait_all_tasks_blocked()
        # The server handles requests in the order in which they arrive.
        await call(client, "check_run")

    async def _call(self, who: str, client: Client) -> None:
        result = await client.call_tool("gated", {"gate": str(self.gate.path)})
        self._turns.append((who, int(text(result))))
        taken = self._taken
        self._taken = anyio.Event()
        taken.set()

    async def taken(self, number: int) -> list[tuple[str, int]]:
        """Who had which turn, once `number` calls have been answered."""
        while len(self._turns) < number:
            await self._taken.wait()
        return self._turns

    def open(self, times: int) -> None:
        for _ in range(times):
            self.gate.open()


def one_at_a_time(folder: Path) -> Path:
    servers = {"plain": {**plain(folder, "plain", GATED), "parallel": 1}}
    return configured(folder, mcpServers=servers, expose=["modules"])


async def test_a_client_with_many_direct_calls_does_not_hold_up_another_one(
    tmp_path: Path, gate: Gate
) -> None:
    with http_process(one_at_a_time(tmp_path)) as url:
        async with (
            Client(url, mode="legacy", read_timeout_seconds=60) as busy,
            Client(url, mode="legacy", read_timeout_seconds=60) as other,
            anyio.create_task_group() as group,
        ):
            calls = Queued(gate, group)
            await calls.begin("busy", busy, 6)
            await calls.begin("other", other)
            calls.open(7)
            with anyio.fail_after(20):
                turns = await calls.taken(7)
            assert dict(turns)["other"] <= 3, turns


async def test_clients_that_call_directly_take_turns_with_runs(tmp_path: Path, gate: Gate) -> None:
    with http_process(one_at_a_time(tmp_path)) as url:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(Client(url, mode=mode, read_timeout_seconds=60))
                for mode in ("legacy", "auto", "legacy", "auto", "auto")
            ]
            group = await stack.enter_async_context(anyio.create_task_group())
            calls = Queued(gate, group)
            plan: list[Any] = [{"_tool": "gated", "gate": str(gate.path)}] * 6
            run = (await call(clients[0], "run_plan", calls=plan, wait_s=0))["run"]
            for number, client in enumerate(clients):
                await calls.begin(str(number), client)
            calls.open(11)
            assert (await call(clients[0], "check_run", run=run, wait_s=20))["status"] == "done"
            # By the turn of the last of the five clients, the run has had two turns, or one more if
            # a client was late.
            with anyio.fail_after(20):
                turns = await calls.taken(5)
            assert max(turn for _, turn in turns) <= 8, turns
