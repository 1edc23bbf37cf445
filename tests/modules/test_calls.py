"""What a call of a module comes to: values, errors by cause, cancellation."""

import json
from typing import Any

import anyio
import pytest

from ideabridge.bridge.modules.errors import (
    ModuleDownError,
    ModuleInputRequiredError,
    ModuleOutputError,
    ModuleProtocolError,
    ModuleTimeoutError,
    ModuleToolError,
    UnknownModuleError,
    UnknownModuleToolError,
)
from ideabridge.tools.errors import IdeabridgeError, InvalidJSONError, LimitExceededError
from tests import preloaded

from .conftest import BIN, modules_of, raw, sdk

pytestmark = pytest.mark.anyio

ONE: dict[str, Any] = {
    "raw": raw(env={"API_TOKEN": "sesame-open-now", "PLAIN": "harmless words here"})
}


async def test_values_of_every_kind() -> None:
    async with modules_of(ONE) as modules:
        assert await modules["raw"].call("echo", {"a": ["b", 1, None]}) == '{"a": ["b", 1, null]}'
        assert await modules["raw"].call("two_texts", {}) == "one\ntwo"
        assert await modules["raw"].call("nothing", {}) is None
        assert await modules["raw"].call("only_text", {}) == "text"
        assert await modules["raw"].call("structured", {}) == {"n": 2**70}
        assert await modules["raw"].call("blocks", {}) == [
            {"type": "text", "text": "see"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ]


async def test_garbage_and_bad_bytes_are_survived_and_counted() -> None:
    async with modules_of(ONE) as modules:
        assert await modules["raw"].call("garbage", {}) == "after garbage"
        assert await modules["raw"].call("latin", {}) == "caf\ufffd"
        notes = modules["raw"].status().notes
        assert any(
            "not a message, which was skipped, such as" in note and "(4 times)" in note
            for note in notes
        ), notes


@pytest.mark.parametrize(
    ("tool", "kind", "words"),
    [
        (
            "wrong",
            ModuleOutputError,
            r'output schema: the result: n: found "three", expected an integer',
        ),
        ("missing", ModuleOutputError, "sent no structured content"),
        ("nan", ModuleOutputError, "NaN|nan"),
        ("deep", LimitExceededError, "deeper"),
        ("big", LimitExceededError, "answered with 5,002 bytes; the limit is 1,024"),
        ("long", LimitExceededError, "bytes; the limit is 16,777,216"),
        ("malformed", ModuleProtocolError, "not a JSON-RPC message"),
        ("not_a_result", ModuleToolError, '{"answer": 42}'),
        ("no_object", ModuleProtocolError, "its result is a string, not an object: done"),
        ("refuses", ModuleProtocolError, r"error -32001: no, says \[secret:API_TOKEN\]"),
        ("fails", ModuleToolError, r"cannot open \[secret:API_TOKEN\]: yyy"),
    ],
)
async def test_each_failure_has_its_class_and_the_module_lives_on(
    tool: str, kind: type[IdeabridgeError], words: str
) -> None:
    async with modules_of(ONE, limits={"result_bytes": 1024}) as modules:
        with pytest.raises(kind, match=words) as caught:
            await modules["raw"].call(tool, {})
        assert len(str(caught.value)) < 4300
        assert await modules["raw"].call("echo", {}) == "{}"
        assert modules["raw"].status().state == "up"


async def test_secrets_do_not_come_back_in_results_but_plain_values_do() -> None:
    async with modules_of(ONE) as modules:
        result = await modules["raw"].call("environment", {})
        assert isinstance(result, str)
        shown = json.loads(result)
        assert shown["API_TOKEN"] == "[secret:API_TOKEN]"
        assert shown["PLAIN"] == "harmless words here"
        assert "PATH" in shown


async def test_a_crash_fails_the_call_with_the_reason_and_the_next_call_starts_again() -> None:
    async with modules_of(ONE) as modules:
        with pytest.raises(ModuleDownError) as caught:
            await modules["raw"].call("crash", {})
        assert str(caught.value) == (
            "server 'raw' ended with exit code 7 while tool 'crash' was running; the last line it "
            "wrote: last words with [secret:API_TOKEN]"
        )
        assert [tool.name for tool in modules.tools()][:2] == ["echo", "cancelled"]
        assert await modules["raw"].call("echo", {}) == "{}"
        with pytest.raises(ModuleDownError, match=r"exit code 3|closed its output"):
            await modules["raw"].call("crash_later", {})


async def test_a_call_is_tried_however_often_the_module_has_crashed() -> None:
    async with modules_of(ONE) as modules:
        for _ in range(6):
            with pytest.raises(ModuleDownError, match="exit code 7"):
                await modules["raw"].call("crash", {})
            # A module that has answered a call is restarted immediately.
            assert await modules["raw"].call("echo", {}) == "{}"
        for _ in range(3):
            with pytest.raises(ModuleDownError, match="exit code 7"):
                await modules["raw"].call("crash", {})
        assert await modules["raw"].call("echo", {}) == "{}"


async def test_a_line_over_the_limit_without_an_id_ends_the_connection() -> None:
    async with modules_of(ONE) as modules:
        with pytest.raises(
            ModuleProtocolError, match="sent a line of 17,825,792 bytes; the limit is 16,777,216"
        ):
            await modules["raw"].call("endless", {})
        assert await modules["raw"].call("echo", {}) == "{}"


async def test_calls_in_flight_fail_together_and_other_modules_go_on() -> None:
    failures: list[Exception] = []
    async with modules_of({**ONE, "other": raw()}) as modules:

        async def hang() -> None:
            with pytest.raises(ModuleDownError) as caught:
                await modules["raw"].call("hang", {})
            failures.append(caught.value)

        await modules.settled()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(hang)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ModuleDownError):
                await modules["raw"].call("crash", {})
        assert len(failures) == 3
        assert await modules["other"].call("echo", {}) == "{}"


async def test_time_out_and_cancelling_cancel_the_remote_call() -> None:
    async with modules_of(ONE) as modules:
        await modules["raw"].ready(30)
        with pytest.raises(ModuleTimeoutError, match=r"did not answer within 0\.5 s"):
            await modules["raw"].call("hang", {}, timeout=0.5)
        with anyio.move_on_after(0.5):
            await modules["raw"].call("hang", {})
        result = await modules["raw"].call("cancelled", {})
        assert isinstance(result, str)
        assert len(json.loads(result)) == 2


async def test_progress_is_passed_on() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async with modules_of(ONE) as modules:
        assert await modules["raw"].call("progress", {}, progress=progress) == "done"
        assert heard == [(1, 2, "step 1"), (2, 2, "step 2")]


async def test_parallel_bounds_calls() -> None:
    async with modules_of({"raw": raw(parallel=1)}) as modules:
        await modules["raw"].ready(30)
        ended: list[str] = []
        async with anyio.create_task_group() as group:

            async def hang() -> None:
                with pytest.raises(ModuleTimeoutError):
                    await modules["raw"].call("hang", {}, timeout=0.2)
                ended.append("hang")

            group.start_soon(hang)
            await anyio.wait_all_tasks_blocked()
            await modules["raw"].call("echo", {})
            ended.append("echo")
        assert ended == ["hang", "echo"], "the second call waits for the place of the first"


async def test_unknown_names_are_answered_with_the_nearest() -> None:
    async with modules_of(
        {**ONE, "closed": raw(deny=["*crash*"], allow=["e*", "crash"])}
    ) as modules:
        await modules.settled()
        with pytest.raises(UnknownModuleError, match="no server 'rwa' is configured; nearest: raw"):
            await modules["rwa"].call("echo", {})
        with pytest.raises(UnknownModuleToolError, match="has no tool 'ecoh'; nearest: echo"):
            await modules["raw"].call("ecoh", {})
        with pytest.raises(UnknownModuleToolError, match="does not allow tool 'crash'"):
            await modules["closed"].call("crash", {})
        names = [tool.name for tool in modules.tools() if tool.module == "closed"]
        assert names == ["echo", "environment", "endless"]
        with pytest.raises(InvalidJSONError, match="the arguments at a"):
            await modules["raw"].call("echo", {"a": float("nan")})


async def test_a_modern_server_is_cancelled_reports_progress_and_asks_in_vain() -> None:
    started = anyio.Event()

    async def progress(_done: float, _total: float | None, _message: str | None) -> None:
        started.set()

    async with modules_of({"sdk": sdk()}) as modules:
        await modules["sdk"].ready(30)
        status = modules["sdk"].status()
        assert (status.era, status.protocol_version, status.server_name) == (
            "modern",
            "2026-07-28",
            "sdk",
        )
        async with anyio.create_task_group() as group:

            async def slow() -> None:
                await modules["sdk"].call("slow", {}, progress=progress)

            group.start_soon(slow)
            with anyio.fail_after(20):
                await started.wait()

            group.cancel_scope.cancel()

        assert await modules["sdk"].call("log", {}) == '["started", "cancelled"]'
        with pytest.raises(
            ModuleInputRequiredError,
            match="asks the user for input, but this call cannot ask anybody",
        ):
            await modules["sdk"].call("ask", {})


async def test_real_servers() -> None:
    servers = {
        "git": preloaded.module(BIN / "mcp-server-git"),
        "time": preloaded.module(BIN / "mcp-server-time", type="stdio", autoApprove=["*"]),
    }
    async with modules_of(servers) as modules:
        assert await modules.settled(20)
        result = await modules["time"].call("get_current_time", {"timezone": "Asia/Tokyo"})
        value = json.loads(result) if isinstance(result, str) else result
        assert isinstance(value, dict)
        assert value["timezone"] == "Asia/Tokyo"
        assert modules["git"].tool("git_status").parameters["type"] == "object"
        with pytest.raises(ModuleToolError):
            await modules["git"].call("git_status", {"repo_path": "/nowhere"})
