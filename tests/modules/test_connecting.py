"""Connecting, listing, closing: what one module does never reaches another."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ideabridge.bridge.modules.errors import (
    ModuleConfigurationError,
    ModuleConnectError,
    ModuleDisabledError,
    ModuleTimeoutError,
)

from .conftest import SERVERS, Changes, modules_of, raw, sdk

pytestmark = pytest.mark.anyio


async def test_modules_fail_each_on_its_own_with_a_clear_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_TOKEN", "sesame-open-now")
    monkeypatch.delenv("UNSET_TOKEN", raising=False)
    servers = {
        "good": raw(),
        "crashes": raw("crash_at_start", env={"TOKEN": "${API_TOKEN}"}),
        "mute": raw("mute", connect_timeout=0.3),
        "gone": {"command": "no-such-command-anywhere"},
        "folder": raw(cwd="no/such/folder"),
        "unset": raw(env={"TOKEN": "${UNSET_TOKEN}"}),
        "editor": {"command": "${workspaceFolder:web}/server"},
        "off": raw(disabled=True),
        "refused": {"url": "http://127.0.0.1:9/mcp", "connect_timeout": 5},
    }
    async with modules_of(servers) as modules:
        with anyio.fail_after(20):
            assert modules["mute"].status().state == "connecting"
            await modules["good"].ready()

        assert await modules.settled(30)
        told = {status.name: status.error or "" for status in modules.statuses()}
        assert told["crashes"] == (
            "server 'crashes' ended with exit code 3 before it was up; the last line it wrote: "
            "cannot start: [secret:API_TOKEN] is wrong"
        )
        assert told["mute"] == "server 'mute' did not answer within 0.3 s"
        assert "the program 'no-such-command-anywhere' was not found" in told["gone"]
        assert "its working directory" in told["folder"]
        assert told["unset"].startswith(
            "mcpServers.unset.env.TOKEN: the variable UNSET_TOKEN is not set"
        )
        assert "only one folder is known here: write ${workspaceFolder}" in told["editor"]
        assert "did not connect: cannot be reached" in told["refused"]
        # There was no attempt, so no time has passed since one.
        for status in modules.statuses():
            if status.name in ("unset", "editor"):
                assert status.away is None
                assert status.why == status.error

        states = {status.name: status.state for status in modules.statuses()}
        assert states == dict.fromkeys(servers, "failed") | {
            "good": "up",
            "off": "disabled",
            "unset": "unusable",
            "editor": "unusable",
        }
        with pytest.raises(ModuleConnectError, match="exit code 3"):
            await modules["crashes"].call("echo", {})

        with pytest.raises(ModuleConfigurationError, match="UNSET_TOKEN"):
            await modules["unset"].call("echo", {})

        with pytest.raises(ModuleDisabledError, match="is disabled"):
            await modules["off"].call("echo", {})

        assert await modules["good"].call("echo", {}) == "{}"


async def test_calls_wait_for_a_module_that_is_connecting() -> None:
    async with modules_of({"raw": raw()}) as modules:
        assert modules.tools() == []
        assert await modules["raw"].call("echo", {}) == "{}"
        with pytest.raises(ModuleTimeoutError, match="still connecting"):
            async with modules_of({"mute": raw("mute")}) as others:
                await others["mute"].ready(0.05)


async def test_a_call_that_comes_before_an_unusable_entry_is_read_fails_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("UNSET_TOKEN", raising=False)
    async with modules_of({"unset": raw(env={"TOKEN": "${UNSET_TOKEN}"})}) as modules:
        # Nothing has run since the task of the server was started, so its entry is not read yet.
        with anyio.fail_after(10), pytest.raises(ModuleConfigurationError, match="UNSET_TOKEN"):
            await modules["unset"].call("echo", {})


async def test_every_page_is_listed() -> None:
    async with modules_of({"raw": raw("pages")}) as modules:
        await modules["raw"].ready(30)
        assert [tool.name for tool in modules.tools()] == [
            f"tool_{page}_{n}" for page in range(5) for n in range(3)
        ]
        assert modules["raw"].status().tools == 15


async def test_odd_tools_stay_with_a_note_and_clashing_parameters_renamed() -> None:
    async with modules_of({"raw": raw("bad_tools")}) as modules:
        await modules["raw"].ready(30)
        names = ["good", "array", "untyped", "broken", "fetches", "hints", "meta"]
        assert [tool.name for tool in modules.tools()] == names
        notes = "\n".join(modules["raw"].status().notes)
        for words in (
            "'array' has an odd input schema",
            "'broken' has an odd input schema",
            'properties.a.type: found "strange", expected a type of JSON: ignored',
            "'fetches' has an odd input schema",
            "nothing is fetched",
            "tools/list: tools['hints'].annotations: expected an object, got a string; left out",
            "tools/list: tools[6]: expected an object, got a string; left out",
            "'good' is listed twice",
            "'meta' has parameters with different names here: _id is ",
        ):
            assert words in notes
        assert modules["raw"].tool("good").annotations.to_json() == {
            "title": "Good",
            "readOnlyHint": True,
        }
        meta = modules["raw"].tool("meta")
        (ours,) = meta.renamed
        assert meta.parameters["required"] == [ours]
        assert await modules["raw"].call("meta", {ours: 1, "x": 2}) == '{"_id": 1, "x": 2}'


@pytest.mark.parametrize("legacy", [False, True])
async def test_changed_tools_are_listed_again(legacy: bool, changes: Changes) -> None:
    async with modules_of({"sdk": sdk()}, changes) as modules:
        if legacy:
            # A module remembers this after it was a server of the handshake era.
            modules._modules["sdk"]._legacy = True  # pyright: ignore[reportPrivateUsage]
        await modules["sdk"].ready(30)
        assert modules["sdk"].status().era == ("legacy" if legacy else "modern")
        before = len(modules.tools())
        await modules["sdk"].call("add_tool", {})
        await changes.until(lambda: len(modules.tools()) == before + 1)


async def test_closing_is_quick_whatever_the_children_do(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        servers = {"good": raw(), "late": raw("mute"), "stubborn": raw("stubborn", str(fifo))}
        async with modules_of(servers) as modules:
            await modules["stubborn"].ready(30)
            assert (await read_pipe(reader)).strip().isdigit()
            start = anyio.current_time()

        assert anyio.current_time() - start < 2
        assert await read_pipe(reader) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize("steps", range(3))
def test_closing_while_children_start_leaves_none_to_a_closed_loop(
    steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def close_early() -> None:
        async with modules_of(
            {f"slow{number}": {"command": "sleep", "args": ["60"]} for number in range(4)}
        ):
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()

    anyio.run(close_early)
    # If asyncio waits for children in threads, these threads complain about children whose loop is
    # closed.
    for thread in threading.enumerate():
        if thread.name.startswith(("waitpid", "asyncio-waitpid")):
            thread.join(10)

    assert [record.message for record in caplog.records if "is closed" in record.message] == []


async def test_no_child_outlives_us_even_when_we_are_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    parent = await anyio.open_process(
        [sys.executable, str(SERVERS / "parent.py"), str(SERVERS / "raw.py"), str(fifo)],
        stdin=None,
        stdout=None,
    )
    try:
        # The child reports its id once we have connected, and holds the pipe open for as long as it
        # lives.
        with anyio.fail_after(20):
            child = int(await read_pipe(reader))

        assert child != parent.pid
        parent.send_signal(signal.SIGKILL)
        with anyio.fail_after(20):
            assert await read_pipe(reader) == b""
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            parent.kill()
        await parent.aclose()


async def read_pipe(descriptor: int) -> bytes:
    """What the child wrote, or b"" once nobody holds the pipe any more."""
    with anyio.fail_after(20):
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, 100)
