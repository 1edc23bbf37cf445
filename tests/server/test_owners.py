"""What is published to one caller is to every other as if it were not there, in
lists and in errors.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store

from .serving import ERAS, Heard, all_tools, call, configured, http_process, refused

pytestmark = pytest.mark.anyio

OWNER = "the-token-of-the-owner"
OTHER = "the-token-of-another"
SECRET = "quarterly_losses"
PLAN: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "s"}],
    "input": {"a": 1},
    "output": {"sum": "†state.s"},
}
Urls: TypeAlias = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(scope="module")
def urls(folder: Path) -> Generator[Urls]:
    """Two servers on one store, each with the token of one caller."""
    configuration = configured(folder)
    with (
        http_process(configuration, IDEABRIDGE_TOKEN=OWNER) as first,
        http_process(configuration, IDEABRIDGE_TOKEN=OTHER) as second,
    ):
        yield {OWNER: first, OTHER: second}


@asynccontextmanager
async def client_of(
    urls: Urls, token: str, mode: str = "auto", **keys: Any
) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20) as http,
        Client(streamable_http_client(urls[token], http_client=http), mode=mode, **keys) as client,
    ):
        yield client


@pytest.fixture(scope="module")
async def run(urls: Urls) -> str:
    """The owner's run, published twice to them alone."""
    async with client_of(urls, OWNER) as client:
        run = str((await call(client, "run_plan", **PLAN))["run"])
        versions = [
            (await call(client, "publish_idea", idea=run, name=SECRET, answer="plan"))["version"]
            for _ in range(2)
        ]
        assert versions == [1, 2]
    return run


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


Said: TypeAlias = Callable[[Client, str], Awaitable[str]]


async def _error(asked: Awaitable[Any]) -> str:
    with pytest.raises(MCPError) as caught:
        await asked
    return str(caught.value)


def _plan(name: str) -> dict[str, Any]:
    return {"calls": [{"_tool": name.partition("@")[0], "_module": f"idea:{name}", "a": 1}]}


WAYS: dict[str, Said] = {
    "publish_idea": lambda client, name: refused(
        client, "publish_idea", idea=name, name="taken_up"
    ),
    "solve": lambda client, name: refused(client, "solve", task="Add.", idea=name),
    "run_plan": lambda client, name: refused(client, "run_plan", **_plan(name)),
    "call": lambda client, name: refused(client, name, a=1),
    "resource": lambda client, name: _error(
        client.read_resource(f"idea://{name.replace('@', '/')}")
    ),
    "prompt": lambda client, name: _error(client.get_prompt(name)),
}


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_name_of_anothers_is_answered_as_one_that_there_is_not(
    urls: Urls, run: str, way: str, mode: str
) -> None:
    async with client_of(urls, OTHER, mode) as client:
        for version in ("", "@1", "@9"):
            there, nowhere = SECRET + version, "quarterly_gainss" + version
            hidden, unknown = await WAYS[way](client, there), await WAYS[way](client, nowhere)
            assert hidden.replace(SECRET, "NAME") == unknown.replace("quarterly_gainss", "NAME")
        # One letter is missing, but the nearest name is not revealed.
        assert SECRET not in await WAYS[way](client, SECRET[:-1])
    async with client_of(urls, OWNER, mode) as client:
        if way in ("publish_idea", "resource"):
            assert SECRET in await WAYS[way](client, SECRET[:-1])
            assert "versions 1 to 2, not 9" in await WAYS[way](client, f"{SECRET}@9")


@pytest.mark.parametrize("mode", ERAS)
async def test_no_list_and_no_completion_holds_a_name_of_anothers(
    urls: Urls, run: str, mode: str
) -> None:
    name = types.ResourceTemplateReference(uri="idea://{name}")
    version = types.ResourceTemplateReference(uri="idea://{name}/{version}")
    for token, own in ((OWNER, True), (OTHER, False)):
        async with client_of(urls, token, mode) as client:
            assert (SECRET in await all_tools(client)) is own
            assert (SECRET in str(await client.list_resources())) is own
            names = await client.complete(name, {"name": "name", "value": "quarterly"})
            assert names.completion.values == ([SECRET] if own else [])
            versions = await client.complete(
                version, {"name": "version", "value": ""}, {"name": SECRET}
            )
            assert versions.completion.values == (["2", "1"] if own else [])
            for found in ("search_tools", "search_ideas"):
                assert (SECRET in str(await call(client, found, words="quarterly losses"))) is own


async def test_who_came_to_the_same_idea_is_told_of_their_own_run_and_names(
    urls: Urls, run: str
) -> None:
    async with client_of(urls, OTHER) as client:
        own = (await call(client, "run_plan", **PLAN))["run"]
        [found] = (await call(client, "search_ideas", words="add"))["ideas"]
        assert found["run"] == own
        assert "published_as" not in found
        # They may publish it under another name. Names are shared by all users, but whose they are
        # is not revealed.
        assert "another owner has published" in await refused(
            client, "publish_idea", idea=own, name=SECRET
        )
        # They know the idea, but not the run.
        assert f"no idea {run!r}" in await refused(client, "publish_idea", idea=run, name="stolen")


async def test_a_name_that_another_gave_up_stays_theirs(urls: Urls, folder: Path) -> None:
    async with client_of(urls, OWNER) as client:
        given = (await call(client, "run_plan", **PLAN))["run"]
        await call(client, "publish_idea", idea=given, name="given_up", answer="plan")

    with Store.open(folder / "ideas.sqlite") as store:
        store.publications.unpublish("given_up")

    other: dict[str, Any] = {**PLAN, "output": {"total": "†state.s"}}
    async with client_of(urls, OTHER) as client:
        assert "last version" not in await _error(client.read_resource("idea://given_up"))
        taken = (await call(client, "run_plan", **other))["run"]
        told = await refused(client, "publish_idea", idea=taken, name="given_up", answer="plan")
        assert told == "another owner has published the name 'given_up'; choose another name"

    async with client_of(urls, OWNER) as client:
        told = await call(client, "publish_idea", idea=given, name="given_up", answer="plan")
        assert told["version"] == 2


async def test_a_subscription_hears_nothing_of_what_is_published_to_others(
    urls: Urls, run: str
) -> None:
    heard = Heard()
    others = Heard()
    async with (
        client_of(urls, OWNER, "legacy", message_handler=heard) as owner,
        client_of(urls, OTHER, "legacy", message_handler=others) as other,
    ):
        for client in (owner, other):
            request = types.SubscribeRequest(
                params=types.SubscribeRequestParams(uri=f"idea://{SECRET}")
            )
            await client.session.send_request(request, types.EmptyResult)

        mine = (await call(other, "run_plan", **{**PLAN, "output": "†state.s"}))["run"]
        await call(owner, "publish_idea", idea=run, name=SECRET, answer="plan")
        await heard.until("notifications/resources/updated")
        await others.until("notifications/prompts/list_changed")
        # Make another change, because it is announced after everything that the first one caused.
        await call(other, "publish_idea", idea=mine, name="mine", answer="plan")
        await others.until("notifications/prompts/list_changed", 2)
        assert "notifications/resources/updated" not in others.methods
