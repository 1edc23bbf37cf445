"""Resources, templates, prompts and completions of exposed modules, for clients and
modules of both eras.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests import preloaded

from .serving import ERAS, Heard, configured, http_process, in_memory, over_stdio, text

pytestmark = pytest.mark.anyio

REFERENCE = Path(__file__).parents[1] / "conformance" / "reference.py"
WATCHED = "test://watched-resource"


def reference(*more: str) -> dict[str, Any]:
    return preloaded.module(REFERENCE, *more)


@asynccontextmanager
async def front(
    folder: Path, module: tuple[str, ...], mode: str, **keys: Any
) -> AsyncGenerator[Client]:
    configuration = configured(folder, mcpServers={"one": reference(*module)}, expose=["modules"])
    async with over_stdio(configuration, mode, **keys) as client:
        yield client


MODULES = pytest.mark.parametrize(
    "module", [(), ("--legacy",)], ids=["modern server", "legacy server"]
)
CLIENTS = pytest.mark.parametrize("mode", ERAS)


@MODULES
@CLIENTS
async def test_they_are_listed_and_passed_on(
    tmp_path: Path, module: tuple[str, ...], mode: str
) -> None:
    async with front(tmp_path, module, mode) as client:
        resources = {one.uri: one for one in (await client.list_resources()).resources}
        assert resources["test://static-text"].mime_type == "text/plain"
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        assert templates == [
            "idea://{name}",
            "idea://{name}/{version}",
            "test://template/{id}/data",
        ]
        prompts = {one.name: one for one in (await client.list_prompts()).prompts}
        assert [one.name for one in prompts["test_prompt_with_arguments"].arguments or []] == [
            "arg1",
            "arg2",
        ]

        (image,) = (await client.read_resource("test://static-binary")).contents
        assert isinstance(image, types.BlobResourceContents)
        (data,) = (await client.read_resource("test://template/7/data")).contents
        assert isinstance(data, types.TextResourceContents)
        assert json.loads(data.text)["id"] == "7"
        with pytest.raises(MCPError) as refused:
            await client.read_resource("test://nothing")
        assert (refused.value.code, refused.value.data) == (
            types.INVALID_PARAMS,
            {"uri": "test://nothing"},
        )
        with pytest.raises(MCPError) as refused:
            await client.read_resource("strange://nothing")
        assert (refused.value.code, refused.value.data) == (
            types.INVALID_PARAMS,
            {"uri": "strange://nothing"},
        )

        prompt = await client.get_prompt(
            "test_prompt_with_embedded_resource", {"resourceUri": "test://x"}
        )
        assert [one.content.type for one in prompt.messages] == ["resource", "text"]
        for ref in (
            types.PromptReference(name="test_prompt_with_arguments"),
            types.ResourceTemplateReference(uri="test://template/{id}/data"),
        ):
            completed = await client.complete(ref, {"name": "arg1", "value": "par"})
            assert completed.completion.values == ["par", "par-one", "par-two"]


@MODULES
async def test_changes_are_told_in_both_eras(tmp_path: Path, module: tuple[str, ...]) -> None:
    configuration = configured(tmp_path, mcpServers={"one": reference(*module)}, expose=["modules"])
    heard = Heard()
    with http_process(configuration) as url:
        async with (
            Client(url, mode="legacy", message_handler=heard) as old,
            Client(url, mode="auto") as new,
        ):
            await old.session.send_request(
                types.SubscribeRequest(params=types.SubscribeRequestParams(uri=WATCHED)),
                types.EmptyResult,
            )
            async with new.listen(
                prompts_list_changed=True, resource_subscriptions=[WATCHED]
            ) as events:
                await new.call_tool("test_trigger_prompt_change", {})
                await heard.until("notifications/prompts/list_changed")
                assert "test_dynamic_prompt" in [
                    one.name for one in (await old.list_prompts()).prompts
                ]
                await new.call_tool("test_touch", {"uri": "test://static-text"})
                await new.call_tool("test_touch", {"uri": WATCHED})
                await heard.until("notifications/resources/updated")
                told: list[str] = []
                with anyio.fail_after(20):
                    async for event in events:
                        told.append(type(event).__name__)
                        if "ResourceUpdated" in told and "PromptsListChanged" in told:
                            break

            await old.session.send_request(
                types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=WATCHED)),
                types.EmptyResult,
            )
            # A module of the handshake era is told that nobody is listening any more.
            with anyio.fail_after(20):
                while text(await new.call_tool("test_touch", {"uri": WATCHED})) != "subscribed: []":
                    pass


async def test_two_modules_with_the_same_names(tmp_path: Path) -> None:
    two = {"one": reference(), "two": reference("--legacy")}
    async with in_memory(
        configured(tmp_path, mcpServers=two, expose=["modules"]), "auto"
    ) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
        assert {"one_test_simple_prompt", "two_test_simple_prompt"} <= {*names}
        assert "test_simple_prompt" not in names
        (message,) = (await client.get_prompt("two_test_simple_prompt")).messages
        assert message.content == types.TextContent(text="This is a simple prompt for testing.")
        uris = [one.uri for one in (await client.list_resources()).resources]
        assert len(uris) == len({*uris})


async def test_a_module_that_is_not_exposed_offers_nothing(tmp_path: Path) -> None:
    async with in_memory(configured(tmp_path, mcpServers={"one": reference()}), "auto") as client:
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource("test://static-text")
