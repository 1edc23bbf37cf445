"""What one user sees of another's ideas, runs, versions and calls: nothing, and nothing that says
that they exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import MCPError

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.security.neighbours import MARKER, PRIVATE, SHARED, Neighbours, serving, settle
from tests.server.serving import call, refused

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def neighbours(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Neighbours]:
    with serving(tmp_path_factory.mktemp("lookups")) as served:
        await settle(served)
        yield served


async def test_a_saved_idea_of_another_is_not_found_by_run_id_or_prefix(
    neighbours: Neighbours,
) -> None:
    async with neighbours.browser("bob") as bob, neighbours.browser("alice") as alice:
        for kind in ("run", "idea", "prefix"):
            [pair] = [one for one in neighbours.pairs if one.kind == kind]
            mine = await alice.get(f"/ui/ideas/id/{pair.real}")
            assert (mine.status_code, MARKER in mine.text) == (200, True), kind
            theirs = await bob.get(f"/ui/ideas/id/{pair.real}")
            absent = await bob.get(f"/ui/ideas/id/{pair.absent}")
            assert theirs.status_code == absent.status_code == 404
            assert _beside(theirs.text, pair.real) == _beside(absent.text, pair.absent), kind


def _beside(page: str, named: str) -> str:
    """Return a page without the id that was asked for, and without the number that changes
    whenever anything is written into the store, such as the state of a server.
    """
    return re.sub(r'data-revision="[^"]*"', "", page.replace(named, ""))


async def test_ideas_of_others_make_no_prefix_ambiguous(neighbours: Neighbours) -> None:
    """A million ids would show which beginnings are taken."""
    with Store.open(neighbours.store) as store:
        shared = store.publications.get(SHARED, caller="user:bob").idea_id
        ideas = [one.id for one in store.ideas.page(1000).items if one.id != shared]
    async with neighbours.client("bob") as client:
        run = (await call(client, "run_plan", calls=[{"_tool": "add", "a": 20, "b": 3}]))["run"]
        for one in ideas:
            assert "no idea" in await refused(client, "solve", task="x", idea=one[:6])
        assert (await call(client, "search_ideas", tool="add"))["ideas"][0]["run"] == run


async def test_who_made_the_same_idea_reads_metadata_of_their_own_run(
    neighbours: Neighbours,
) -> None:
    plan: dict[str, Any] = {"calls": [{"_tool": "add", "a": 5, "b": 6}], "output": "†results.0"}
    async with neighbours.client("alice") as client:
        theirs = (await call(client, "run_plan", **plan))["run"]

    async with neighbours.client("bob") as client:
        mine = (await call(client, "run_plan", **plan))["run"]

    with Store.open(neighbours.store) as store:
        [made] = store.ideas.of_run(theirs)
        store.ideas.tag(made.id, ["theirs"])
        stored = store.ideas.get(made.id, caller="user:bob")
        assert (stored.meta.run, stored.meta.tags) == (mine, ())
        assert store.ideas.get(made.id, caller=SEES_ALL).meta.run == theirs

    async with neighbours.browser("bob") as bob:
        page = (await bob.get(f"/ui/ideas/id/{made.id}")).text
        assert mine in page
        assert theirs not in page


async def test_a_shared_tool_shows_no_later_run_of_its_owner(neighbours: Neighbours) -> None:
    async with neighbours.browser("alice") as alice:
        page = (await alice.get(f"/ui/ideas/{SHARED}")).text
        assert MARKER in page
        assert neighbours["run"] in page

    async with neighbours.browser("bob") as bob:
        page = (await bob.get(f"/ui/ideas/{SHARED}")).text
        assert "What it runs" in page
        assert MARKER not in page
        assert "run_" not in page

    async with neighbours.client("bob") as client:
        document = (await client.read_resource(f"idea://{SHARED}")).model_dump_json()
        assert "count_words" in document
        assert "run_" not in document


async def test_sharing_a_name_shows_no_earlier_private_version(neighbours: Neighbours) -> None:
    async with neighbours.browser("bob") as bob:
        page = await bob.get(f"/ui/ideas/{SHARED}")
        assert "version 2" in page.text
        assert "?version=" not in page.text
        for path in (f"/ui/ideas/{SHARED}?version=1", f"/ui/ideas/{SHARED}/diff?old=1&new=2"):
            answer = await bob.get(path)
            assert answer.status_code == 404
            assert MARKER not in answer.text
    async with neighbours.client("bob") as client:
        for uri in (f"idea://{SHARED}/1", f"idea://{PRIVATE}"):
            with pytest.raises(MCPError, match="unknown resource"):
                await client.read_resource(uri)
        assert "unknown tool" in await refused(client, f"{SHARED}@1", text="x")
        assert (await call(client, f"{SHARED}@2", text="x y"))["n"] == {"words": 2}


async def test_who_saw_a_version_still_sees_it_when_the_name_is_shared_anew(
    neighbours: Neighbours,
) -> None:
    with Store.open(neighbours.store) as store:
        publications = store.publications
        publications.share(SHARED, ("user:bob",))
        assert [one.version for one in publications.versions(SHARED, caller="user:bob")] == [2]
        publications.share(SHARED, ("",))
        assert [one.version for one in publications.versions(SHARED, caller="user:ada")] == [2]
        assert [one.version for one in publications.versions(SHARED, caller="user:alice")] == [2, 1]


async def test_the_name_stands_for_an_earlier_version_only_while_its_owner_says_so(
    neighbours: Neighbours,
) -> None:
    with Store.open(neighbours.store) as store:
        publications = store.publications
        publications.stand_for(SHARED, 1)
        assert [one.version for one in publications.versions(SHARED, caller="user:bob")] == [2, 1]
        publications.stand_for(SHARED)
        assert [one.version for one in publications.versions(SHARED, caller="user:bob")] == [2]


async def test_what_a_module_wrote_is_for_those_alone_who_run_the_server(
    neighbours: Neighbours,
) -> None:
    async with neighbours.client("alice") as client:
        # Its tools are exposed. One of them returns, and the other ends the process.
        await client.call_tool("say", {"text": MARKER})
        died = await client.call_tool("die", {"text": MARKER})
        assert "ended with exit code 3" in json.dumps(died.model_dump(mode="json"))
        assert MARKER not in died.model_dump_json()
        await client.call_tool("say", {"text": MARKER})

    async with neighbours.browser("ada") as ada:
        assert f"called with {MARKER}" in (await ada.get("/ui/modules/talks")).text

    async with neighbours.browser("bob") as bob:
        for path in ("/ui/modules/talks", "/ui/modules"):
            page = await bob.get(path)
            assert page.status_code == 200
            assert MARKER not in page.text


async def test_a_place_in_the_list_of_runs_is_one_of_the_visitor(neighbours: Neighbours) -> None:
    async with neighbours.browser("bob") as bob:
        theirs = await bob.get("/ui/runs", after=neighbours["run"])
        absent = await bob.get("/ui/runs", after="run_0123456789abcdef")
        assert theirs.status_code == absent.status_code == 404
