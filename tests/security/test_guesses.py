"""One user of a server guesses at what others have, or waits for a name that another gives up."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from mcp import Client

from ideabridge.bridge.store.store import Store
from tests.server.serving import call, configured, http_process, refused, structured

from .test_users import PLAN, Team, published

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Generator[Team]:
    folder = tmp_path_factory.mktemp("guesses")
    with http_process(configured(folder)) as url:
        yield Team(url, folder)


async def found(client: Client, tool: str, words: str) -> set[str]:
    """The names that a search finds."""
    told = await call(client, tool, words=words)
    if tool == "search_tools":
        return {str(one["name"]) for one in told["tools"]}
    return {name for one in told["ideas"] for name in one.get("published_as", [])}


async def test_a_search_confirms_no_guess_at_the_words_of_others(team: Team) -> None:
    async with team.client("alice") as alice, team.client("bob") as bob:
        run = await published(alice, "for_everybody", to="all")
        secret = {
            "name": "zebra_deal",
            "description": "To buy Contoso.",
            "answer": "plan",
            "to": "me",
        }
        await call(alice, "publish_idea", idea=run, **secret)
        # `zebra_deal` is another name of an idea that bob has, too.
        assert await found(alice, "search_ideas", "contoso") == {"for_everybody", "zebra_deal"}
        for words in ("contoso", "zebra", "zebra_deal"):
            assert await found(bob, "search_ideas", words) == set()
            assert await found(bob, "search_tools", words) == set()
        # A word that nobody has matches the beginnings of words. So does a word that only others
        # have.
        other = {**PLAN, "output": {"mine": "†state.s"}}
        own = (await call(bob, "run_plan", **other))["run"]
        given = {"answer": "plan"}
        for name, description in (("bobs_one", "Contosoqq."), ("bobs_two", "Gribbleqq.")):
            await call(bob, "publish_idea", idea=own, name=name, description=description, **given)
        for tool in ("search_ideas", "search_tools"):
            for words, name in (("contoso", "bobs_one"), ("gribble", "bobs_two")):
                assert name in await found(bob, tool, words), (tool, words)


async def test_a_task_of_anothers_is_no_answer_to_a_guess(team: Team) -> None:
    async with team.client("alice") as alice, team.client("bob") as bob:
        await call(alice, "solve", task="Sell everything to Fabrikam.", mind="turns")
        for task in ("The fabrikamqq and the wobblesqq.",):
            turn = await call(
                bob, "solve", task=task, mind="turns", output_schema={"type": "string"}
            )
            await call(
                bob,
                "submit_solution",
                run=turn["run"],
                turn=0,
                solution={"calls": [], "output": "done"},
            )
        async with team.client("alice") as client:
            turn = await call(client, "solve", task="Sell everything to Fabrikam.", mind="turns")
            await call(
                client,
                "submit_solution",
                run=turn["run"],
                turn=0,
                solution={"calls": [], "output": "sold"},
            )
        counts = [
            len((await call(bob, "search_ideas", words=words))["ideas"])
            for words in ("fabrikam", "wobbles")
        ]
        assert counts == [1, 1]


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_name_that_was_withdrawn_is_not_another_users(team: Team, era: str) -> None:
    name = f"summary_{era}"
    report = f"report_{era}"
    calling: dict[str, Any] = {
        "calls": [{"_tool": name, "_module": f"idea:{name}", "a": "†input.a", "_outputPath": "s"}],
        "input": {"a": 1},
        "output": "†state.s",
    }
    async with (
        team.client("alice", era) as alice,
        team.client("bob", era) as bob,
        team.client("ada", era) as ada,
    ):
        run = await published(alice, name, to="all")
        above = (await call(bob, "run_plan", **calling))["run"]
        await call(bob, "publish_idea", idea=above, name=report, answer="plan")
        with Store.open(team.path) as store:
            store.users.add(f"mallory-{era}")
            team.tokens["mallory"] = store.users.add_token(f"mallory-{era}")[1]
            store.publications.unpublish(name)

        # The schemas are the same, so the pin of an idea that calls this one would not show the
        # change.
        same = {**PLAN, "calls": [{**PLAN["calls"][0], "b": 1000}]}
        async with team.client("mallory", era) as mallory:
            other = (await call(mallory, "run_plan", **same))["run"]
            given = {"idea": other, "name": name, "answer": "plan"}
            for to in ({}, {"to": "all"}, {"to": "bob"}):
                assert "another owner" in await refused(mallory, "publish_idea", **given, **to)

        assert f"it needs the idea '{name}', which is not published here" in await refused(
            bob, report, a=1
        )
        assert (await call(alice, "publish_idea", idea=run, name=name, answer="plan", to="all"))[
            "version"
        ] == 2
        assert structured(await bob.call_tool(report, {"a": 1})) == {"sum": 3}
        # An admin may take a name that nobody has any more.
        with Store.open(team.path) as store:
            store.publications.unpublish(name)

        mine = (await call(ada, "run_plan", **PLAN))["run"]
        assert (await call(ada, "publish_idea", idea=mine, name=name, answer="plan"))[
            "version"
        ] == 3
