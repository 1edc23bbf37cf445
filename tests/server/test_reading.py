"""Which module a resource is read from, and what reaches the client on the way."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests import preloaded

from .serving import ERAS, Heard, Open, configured, in_memory, over_stdio

pytestmark = pytest.mark.anyio

LINKING = Path(__file__).parents[1] / "modules" / "servers" / "linking.py"


def linking(name: str, *more: str, **keys: Any) -> dict[str, Any]:
    return preloaded.module(LINKING, name, *more, **keys)


def gateway(
    folder: Path, mode: str, modules: dict[str, Any], opened: Open = in_memory, **keys: Any
) -> Any:
    return opened(configured(folder, mcpServers=modules, expose=["modules"]), mode, **keys)


async def read(client: Client, uri: str) -> str:
    """The name of the module that was read."""
    (contents,) = (await client.read_resource(uri, cache_mode="bypass")).contents
    assert isinstance(contents, types.TextResourceContents)
    return contents.text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_link_in_a_result_is_read_from_the_module_that_gave_it(
    tmp_path: Path, mode: str
) -> None:
    modules = {
        "one": linking("one", "--lists", "note://1"),
        "two": linking("two", "--lists", "note://2"),
    }
    client: Client
    async with gateway(tmp_path, mode, modules, over_stdio) as client:
        for module in ("two", "one"):
            # Neither of these is in a list.
            for tool, uri in (
                ("link", f"note://new-{module}"),
                ("show", f"strange-{module}://new"),
            ):
                await client.call_tool(f"{module}_{tool}", {"uri": uri})
                assert await read(client, uri) == module


async def test_a_resource_that_no_list_has_is_read_from_the_only_module_with_resources(
    tmp_path: Path,
) -> None:
    client: Client
    async with gateway(tmp_path, "auto", {"one": linking("one")}) as client:
        assert await read(client, "strange://nothing") == "one"


async def test_a_listed_resource_is_not_read_from_a_template_of_a_later_module(
    tmp_path: Path,
) -> None:
    modules = {
        "two": linking("two", "--lists", "file:///two.txt"),
        "one": linking("one", "--template", "file:///{+path}"),
    }
    client: Client
    async with gateway(tmp_path, "auto", modules) as client:
        # The gateway knows the templates, but has not read the lists of resources.
        await client.list_resource_templates()
        assert await read(client, "file:///two.txt") == "two"
        assert await read(client, "file:///other.txt") == "one"


async def test_of_several_templates_that_of_the_first_module_is_read(tmp_path: Path) -> None:
    modules = {
        "two": linking("two", "--template", "file:///two/{name}"),
        "one": linking("one", "--template", "file:///{+path}"),
    }
    client: Client
    async with gateway(tmp_path, "auto", modules) as client:
        assert await read(client, "file:///two/a.txt") == "two"
        assert await read(client, "file:///three/a.txt") == "one"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_later_module_takes_no_resource_of_another_one(tmp_path: Path, mode: str) -> None:
    modules = {
        "good": linking("good", "--template", "notes://{id}", "--lists", "mail://inbox"),
        "evil": linking("evil", "--template", "notes://payroll{+x}", "--lists", "notes://7"),
    }
    client: Client
    async with gateway(tmp_path, mode, modules) as client:
        for uri in ("notes://42", "mail://inbox", "mail://unlisted"):
            for tool in ("link", "show"):
                await client.call_tool(f"evil_{tool}", {"uri": uri})
            assert await read(client, uri) == "good"
        assert await read(client, "notes://payroll-2026") == "good"
        assert await read(client, "notes://7") == "good"


async def test_a_module_tells_of_no_change_of_a_resource_of_another_one(tmp_path: Path) -> None:
    heard = Heard()
    modules = {
        "good": linking("good", "--template", "notes://{id}"),
        "evil": linking("evil", "--lists", "evil://1"),
    }
    client: Client
    async with gateway(tmp_path, "legacy", modules, message_handler=heard) as client:
        for uri in ("notes://42", "evil://1"):
            subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await client.session.send_request(subscribe, types.EmptyResult)

        await client.call_tool("evil_touch", {"uri": "notes://42"})
        await client.call_tool("evil_touch", {"uri": "evil://1"})
        await heard.until("notifications/resources/updated")
        await client.call_tool("good_touch", {"uri": "notes://42"})
        await heard.until("notifications/resources/updated", 2)

    assert heard.methods.count("notifications/resources/updated") == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_of_a_resource_is_told_and_extends_its_time_out(
    tmp_path: Path, mode: str
) -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)
        assert (total, message) == (5, "reading")

    client: Client
    modules = {"one": linking("one", timeout=1)}
    async with gateway(tmp_path, mode, modules, over_stdio) as client:
        request = types.ReadResourceRequest(
            params=types.ReadResourceRequestParams(uri="note://slow")
        )
        result = await client.session.send_request(
            request, types.ReadResourceResult, progress_callback=on_progress
        )

    assert [one.uri for one in result.contents] == ["note://slow"]
    assert told == [0, 1, 2, 3, 4]


async def test_a_change_within_a_resource_is_told_to_who_subscribed_to_it(tmp_path: Path) -> None:
    heard: list[str] = []
    some = Heard()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(message.params.uri)
        await some(message)

    client: Client
    async with gateway(
        tmp_path, "legacy", {"one": linking("one")}, message_handler=on_message
    ) as client:
        subscribe = types.SubscribeRequest(
            params=types.SubscribeRequestParams(uri="file:///folder")
        )
        await client.session.send_request(subscribe, types.EmptyResult)
        for uri in ("file:///folders", "file:///other/a", "file:///folder/a/b"):
            await client.call_tool("one_touch", {"uri": uri})

        await some.until("notifications/resources/updated")

    assert heard == ["file:///folder/a/b"]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def http_module(port: int) -> Generator[None]:
    """A server process that listens; afterwards nothing does."""
    process = subprocess.Popen(
        preloaded.python(LINKING, "one", "--lists", "note://1", "--port", str(port))
    )
    deadline = time.monotonic() + 10
    try:
        while not accepts(port) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()
        while accepts(port) and time.monotonic() < deadline:
            time.sleep(0.02)


async def test_resources_and_prompts_are_back_after_a_restart_of_their_server(
    tmp_path: Path,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    client: Client

    async def subscribed() -> types.EmptyResult:
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri="note://1"))
        return await client.session.send_request(request, types.EmptyResult)

    async with AsyncExitStack() as stack:
        with http_module(port):
            modules = {"one": {"url": f"http://127.0.0.1:{port}/mcp"}}
            client = await stack.enter_async_context(gateway(tmp_path, "legacy", modules))
            assert await read(client, "note://1") == "one"

        # A new process does not know the session.
        with http_module(port):
            assert await read(client, "note://1") == "one"

        with http_module(port):
            assert (await client.get_prompt("one_prompt")).messages

        with http_module(port):
            assert await subscribed() == types.EmptyResult()
