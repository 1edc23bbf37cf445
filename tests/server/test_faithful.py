"""What clients see of exposed tools is what their module sends: definitions, request `_meta`,
errors, progress.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests import preloaded

from .serving import ERAS, Open, configured, http_process, in_memory, over_stdio, refused, text

pytestmark = pytest.mark.anyio

FAITHFUL = Path(__file__).parents[1] / "modules" / "servers" / "faithful.py"
RAW = FAITHFUL.with_name("raw.py")


def gateway(
    folder: Path,
    mode: str,
    opened: Open = in_memory,
    *,
    schemas: str = "auto",
    timeout: float = 20,
    **keys: Any,
) -> Any:
    module = preloaded.module(FAITHFUL, timeout=timeout)
    configuration = configured(
        folder, mcpServers={"one": module}, expose=["modules"], schemas=schemas
    )
    return opened(configuration, mode, **keys)


async def definitions(client: Client) -> dict[str, dict[str, Any]]:
    return {
        tool.name: tool.model_dump(by_alias=True, exclude_none=True)
        for tool in (await client.list_tools()).tools
    }


@pytest.mark.parametrize("mode", ERAS)
async def test_a_definition_arrives_as_the_module_sent_it(tmp_path: Path, mode: str) -> None:
    program, *arguments = preloaded.python(FAITHFUL)
    async with Client(StdioServerParameters(command=program, args=arguments), mode=mode) as client:
        direct = await definitions(client)
    async with gateway(tmp_path, mode, over_stdio) as client:
        through = await definitions(client)
    assert {name: through[name] for name in direct} == direct


@pytest.mark.parametrize(
    ("name", "schemas", "plain"),
    [
        ("claude-code", "auto", True),
        ("claude-code", "as_sent", False),
        ("other", "auto", False),
        ("other", "plain", True),
    ],
)
async def test_hosts_that_need_it_see_plain_schemas(
    tmp_path: Path, name: str, schemas: str, plain: bool
) -> None:
    info = types.Implementation(name=name, version="1")
    async with gateway(tmp_path, "auto", schemas=schemas, client_info=info) as client:
        schema = (await definitions(client))["rich"]["inputSchema"]
    assert ("allOf" not in schema) is plain
    assert ("$ref" not in json.dumps(schema)) is plain


@pytest.mark.parametrize("mode", ERAS)
async def test_the_meta_of_a_request_reaches_the_module_without_that_of_the_connection(
    tmp_path: Path, mode: str
) -> None:
    sent: Any = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "example.org/key": [1],
    }
    async with gateway(tmp_path, mode) as client:
        found = json.loads(text(await client.call_tool("meta", {}, meta=sent)))
        nothing = json.loads(text(await client.call_tool("meta", {})))

    assert {key: found[key] for key in sent} == sent
    assert not [
        key
        for key in nothing
        if not key.startswith("io.modelcontextprotocol/") and "rogress" not in key
    ]
    assert (
        nothing.get("io.modelcontextprotocol/clientInfo", {"name": "ideabridge"})["name"]
        == "ideabridge"
    )


@pytest.mark.parametrize("mode", ERAS)
async def test_an_error_of_the_protocol_keeps_its_code_message_and_data(
    tmp_path: Path, mode: str
) -> None:
    async with gateway(tmp_path, mode, over_stdio) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("refuses", {})
    assert (caught.value.code, caught.value.message) == (-32050, "the shop is closed")
    assert caught.value.data == {"opens": "at nine"}


async def test_a_long_error_of_the_protocol_is_whole_and_says_what_is_left_out(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, "auto") as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("refuses", {"cries": 10_000, "times": 10_000})

        assert caught.value.message == "the shop is closed" + "!" * 10_000
        assert caught.value.data == {"opens": "at " + "nine" * 10_000}
        with pytest.raises(MCPError) as caught:
            await client.call_tool("refuses", {"times": 20_000})

    left_out = " (its data of 80,015 bytes is left out; the limit is 65,536)"
    assert (caught.value.message, caught.value.data) == (f"the shop is closed{left_out}", None)


@pytest.mark.parametrize("mode", ERAS)
async def test_no_structured_content_is_made_of_null(tmp_path: Path, mode: str) -> None:
    modules = {"one": preloaded.module(RAW)}
    async with over_stdio(
        configured(tmp_path, mcpServers=modules, expose=["modules"]), mode
    ) as client:
        result = await client.call_tool("null", {})
    assert (text(result), result.structured_content) == ("no structure", None)


async def test_progress_extends_the_time_out_of_a_call(tmp_path: Path) -> None:
    async with gateway(tmp_path, "auto", timeout=1) as client:
        assert text(await client.call_tool("steps", {"seconds": 0.3, "times": 5}))
        # Without progress, the call ends after the timeout, and with progress after ten times that.
        assert "did not answer within 1 s" in await refused(client, "steps", seconds=3, times=1)


async def test_progress_does_not_extend_a_call_for_ever(tmp_path: Path) -> None:
    async with gateway(tmp_path, "auto", timeout=0.2) as client:
        assert "did not answer within 2 s" in await refused(
            client, "steps", seconds=0.05, times=1000
        )


async def test_the_instructions_of_exposed_modules_are_among_ours_once_they_are_known(
    tmp_path: Path,
) -> None:
    said = "Instructions of the server one:\nAsk for one thing at a time."
    async with gateway(tmp_path, "auto") as client:
        await client.list_tools()

    async with gateway(tmp_path, "auto") as client:
        assert said in (client.instructions or "")

    module = preloaded.module(FAITHFUL)
    hidden = configured(tmp_path, mcpServers={"one": module}, expose=[])
    async with in_memory(hidden, "auto") as client:
        assert "one thing" not in (client.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_the_last_progress_of_a_call_arrives_before_its_result(
    tmp_path: Path, mode: str
) -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (None, None)
        told.append(progress)

    configuration = configured(
        tmp_path, mcpServers={"one": preloaded.module(FAITHFUL)}, expose=["modules"]
    )
    with http_process(configuration) as url:
        async with Client(url, mode=mode) as client:
            for _ in range(5):
                told.clear()
                await client.call_tool(
                    "steps", {"seconds": 0, "times": 40}, progress_callback=on_progress
                )
                assert told == list(range(1, 41))


async def test_an_answer_over_the_size_of_an_event_arrives_unless_progress_came_before_it(
    tmp_path: Path,
) -> None:
    # In 2026-07-28, the SDK writes each letter in six bytes.
    given = {"seconds": 0, "times": 1, "size": 440_000}
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (None, None)
        told.append(progress)

    configuration = configured(
        tmp_path, mcpServers={"one": preloaded.module(FAITHFUL)}, expose=["modules"]
    )
    with http_process(configuration) as url:
        for mode in ERAS:
            async with Client(url, mode=mode, read_timeout_seconds=60) as client:
                assert len(text(await client.call_tool("steps", given))) > 440_000
                late = await client.call_tool("steps", given, progress_callback=on_progress)
                if mode == "legacy":
                    assert len(text(late)) > 440_000
                else:
                    assert late.is_error
                    assert "the limit over HTTP after a notification or 15 s is 1,000,000" in text(
                        late
                    )

    assert told == [1, 1]


async def test_a_log_message_over_the_bound_says_its_size(tmp_path: Path) -> None:
    logged: list[Any] = []

    async def note(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with gateway(tmp_path, "legacy", logging_callback=note) as client:
        for size in (200_000, 300_000):
            await client.call_tool("meta", {"logged": size})
        # On the wire, each message comes before the result, but a separate task handles it.
        await client.call_tool("meta", {})

    assert logged == [
        "x" * 200_000,
        "(a log message of 300,026 bytes is left out; the limit is 262,144)",
    ]
