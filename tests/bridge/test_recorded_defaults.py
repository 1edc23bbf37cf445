"""What was silent by construction: words for another project, one of two values that belong
together, a name in a text.

Each is assumed in a call that reads, and asks before a call that changes something.
"""

from __future__ import annotations

from typing import Any

import pytest

from ideabridge.bridge import Bridge, Run
from ideabridge.bridge.context.explanations import COPIED_PART
from ideabridge.bridge.lifting.rows import publication_rows
from ideabridge.bridge.store.idea import NewPublication
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def owner_of(project: str) -> JSONObject:
    """Who owns a project."""
    return {"owner": f"{project}-owner", "mail": f"{project}@example.org"}


@tool(read_only=True)
def search(project: str, words: str, limit: int) -> str:
    """Search a project."""
    return f"{project}: {words} {limit}"


@tool(read_only=True)
def query(sql: str) -> str:
    """Run a query."""
    return f"rows of {sql}"


@tool(read_only=False)
def invite(name: str, mail: str) -> str:
    """Invite somebody."""
    return f"{name} <{mail}>"


@tool(read_only=False)
def create(title: str) -> JSONObject:
    """Create an issue, whose id is the length of its title."""
    return {
        "id": len(title),
        "title": title,
        "state": "open",
        "votes": 0,
        "author": "ann",
        "comments": 0,
    }


@tool(read_only=True)
def cities(country: str) -> list[JSON]:
    """The cities of a country."""
    return [
        {
            "name": f"{country} {number}",
            "lat": 40 + number,
            "lon": 10 + 3 * number,
            "people": 900 + number,
        }
        for number in range(6)
    ]


@tool(read_only=True)
def weather(latitude: int, longitude: int, days: int) -> str:
    """The weather at a place."""
    return f"sunny at {latitude} {longitude} for {days} days"


PAGES = {
    "anvil": (
        "The anvil project. Its maintainer is reached at ann@first.example, "
        "ticket 4711, sorted by votes."
    ),
    "cog": (
        "The cog project. Its maintainer is reached at bob@other.example, "
        "ticket 5220, sorted by likes."
    ),
}


@tool(read_only=True)
def page_of(project: str) -> str:
    """The page of a project."""
    return PAGES[project]


@tool(read_only=True)
def languages(project: str) -> list[JSON]:
    """The translations of a project, of which there are many."""
    listed = ("de", "en", "fr", "it", "es", "pl")
    return [
        {"code": f"{project}-{code}", "short": code, "done": number * 17}
        for number, code in enumerate(listed)
    ]


TOOLS = Toolbox(owner_of, search, query, invite, create, cities, weather, page_of, languages)


async def published(
    bridge: Bridge, given: JSONObject, *turns: JSONObject, output: type[object] | None = None
) -> Run:
    """A run by a mind that copies what it sees, published as `it`."""
    run = await bridge.solve("Do it", input=given, output=output, mind="turns")
    for number, turn in enumerate(turns):
        run.submit(number, turn)
        while await run.wait(20) == "needs_approval":
            for question in run.questions():
                run.decide(question.approval, "approve", by="a person")

    await bridge.publish(run.id, "it")
    return run


async def answered(bridge: Bridge, **arguments: JSON) -> tuple[JSON, dict[str, Any], list[str]]:
    """The output, why each place was assumed, and the questions before changes."""
    replay = await bridge.start_idea("it", dict(arguments))
    run = replay.run
    assert run is not None
    asked: list[str] = []
    while await run.wait(20) == "needs_approval":
        for question in run.questions():
            asked.append(question.why)
            run.decide(question.approval, "approve", by="a person")

    return await run.result(), {str(one["at"]): one["why"] for one in run.assumed}, asked


def call(tool_name: str, **parameters: JSON) -> JSON:
    return {"_tool": tool_name, **parameters}


async def test_words_that_a_mind_wrote_for_another_project_are_told() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("owner_of", project="anvil")]},
            {
                "calls": [call("search", project="anvil", words="slow rust builds", limit=5)],
                "output": "†results.1",
            },
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        output, assumed, _ = await answered(bridge, project="cog")
        assert output == "cog: slow rust builds 5"
        assert assumed["calls.1.words"] == "its default is recorded text"
        _, assumed, _ = await answered(bridge, project="cog", words="oil in the cog")
        assert "calls.1.words" not in assumed


async def test_one_of_two_values_that_belong_together_does_not_silently_stay() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("invite", name="Ann", mail="ann@x")], "output": "†results.0"}
        ]
        await published(bridge, {}, *turns)
        output, assumed, asked = await answered(bridge, name="Bob")
        assert output == "Bob <ann@x>"
        assert any("calls.0.mail" in why and "name was passed" in why for why in asked)
        assert assumed == {}, "a person has confirmed it"
        _, assumed, asked = await answered(bridge, name="Bob", mail="bob@x")
        assert not any("was passed" in why for why in asked)


async def test_one_of_two_followed_values_does_not_silently_stay() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("owner_of", project="anvil")]},
            {
                "calls": [call("invite", name="anvil-owner", mail="anvil@example.org")],
                "output": "†results.1",
            },
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        output, _, asked = await answered(bridge, project="cog", name="Bob")
        assert output == "Bob <cog@example.org>"
        assert any("calls.1.mail" in why for why in asked)


async def test_a_name_within_a_query_does_not_silently_stay() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        sql = "SELECT * FROM orders WHERE customer = 'Anvil Ltd' AND city = 'Rome'"
        turns: list[JSONObject] = [{"calls": [call("query", sql=sql)], "output": "†results.0"}]
        await published(bridge, {"customer": "Anvil Ltd", "city": "Rome"}, *turns)
        for given in (
            {"customer": "Cog Inc", "city": "Rome"},
            {"customer": "Cog Inc", "city": "Oslo"},
        ):
            _, assumed, _ = await answered(bridge, **given)
            assert "calls.0.sql" in assumed


async def test_one_of_two_numbers_of_one_object_does_not_silently_stay() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("cities", country="italy")]},
            {"calls": [call("weather", latitude=43, longitude=19, days=7)], "output": "†results.1"},
        ]
        await published(bridge, {"country": "italy"}, *turns)
        output, assumed, _ = await answered(bridge, country="italy", latitude=60)
        assert output == "sunny at 60 19 for 7 days"
        assert (
            assumed["calls.1.longitude"]
            == "it is the recorded default, although latitude was passed"
        )
        assert "calls.1.days" not in assumed
        for given in ({"latitude": 60, "longitude": 20}, {"days": 2}):
            _, assumed, _ = await answered(bridge, country="italy", **given)
            assert "calls.1.longitude" not in assumed


async def test_a_number_that_a_call_made_is_followed_and_nothing_is_said_where_it_is_the_same() -> (
    None
):
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [{"calls": [call("create", title="a")]}, {"output": 1}]
        await published(bridge, {"title": "a"}, *turns, output=int)
        output, assumed, _ = await answered(bridge, title="b")
        assert (output, "output" in assumed) == (1, False)
        output, assumed, _ = await answered(bridge, title="bcd")
        assert (output, assumed["output"]) == (3, "its explanations differ")


@pytest.mark.parametrize("judged", [True, 5])
async def test_what_a_mind_judged_or_counted_is_told(judged: bool | int) -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("owner_of", project="anvil")]},
            {"output": judged},
        ]
        await published(bridge, {"project": "anvil"}, *turns, output=type(judged))
        output, assumed, _ = await answered(bridge, project="cog")
        assert (output, assumed["output"]) == (judged, "recorded value")


@pytest.mark.parametrize(("name", "copied"), [("words", "ann@first.example"), ("limit", 4711)])
async def test_a_part_of_an_earlier_text_is_told_where_it_is_the_default(
    name: str, copied: str | int
) -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        values: JSONObject = {"words": "roof", "limit": 5, name: copied}
        turns: list[JSONObject] = [
            {"calls": [call("page_of", project="anvil")]},
            {"calls": [call("search", project="anvil", **values)], "output": "†results.1"},
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        output, assumed, _ = await answered(bridge, project="cog")
        assert str(copied) in str(output)
        assert assumed[f"calls.1.{name}"] == COPIED_PART
        other: JSONObject = {name: "oil" if name == "words" else 7}
        _, assumed, _ = await answered(bridge, project="cog", **other)
        assert f"calls.1.{name}" not in assumed
        tool_of = bridge.store.publications.get("it", caller="local")
        rows = {row.name: row for row in publication_rows(tool_of)}
        assert rows[name].otherwise == f"always the same ({COPIED_PART})"
        assert not rows[name].is_certain


async def test_verify_names_such_a_default_in_a_tool_of_an_earlier_version() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("page_of", project="anvil")]},
            {
                "calls": [call("search", project="anvil", words="ann@first.example", limit=5)],
                "output": "†results.1",
            },
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        store = bridge.store.publications
        now = store.get("it", caller="local")
        plan = now.plan or {}
        explained = plan["explained"]
        assert isinstance(explained, list)
        left: list[JSON] = [
            form for form in explained if isinstance(form, dict) and form.get("why") != COPIED_PART
        ]
        assert len(left) < len(explained)
        store.publish(
            NewPublication(
                name="earlier",
                idea_id=now.idea_id,
                description=now.description,
                answer=now.answer,
                input_schema=now.input_schema,
                output_schema=now.output_schema,
                annotations=now.annotations,
                plan={**plan, "explained": left},
                recorded=now.recorded,
            )
        )
        [of_now, of_earlier] = await bridge.verify(["it", "earlier"], live=False)
        assert of_now.faults == of_earlier.faults == []
        assert not any(COPIED_PART in note for note in of_now.notes)
        [note] = [note for note in of_earlier.notes if COPIED_PART in note]
        assert note.startswith("calls.1.words takes its recorded value, although a part of it")


async def test_a_part_of_an_earlier_text_is_asked_about_before_a_change() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("page_of", project="anvil")]},
            {
                "calls": [call("invite", name="Ann", mail="ann@first.example")],
                "output": "†results.1",
            },
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        output, _, asked = await answered(bridge, project="cog")
        assert output == "Ann <ann@first.example>"
        assert any(
            f'calls.1.mail is "ann@first.example" (†input.mail): {COPIED_PART}' in why
            for why in asked
        )
        _, _, asked = await answered(bridge, project="cog", mail="bob@other.example")
        assert not any("calls.1.mail" in why for why in asked)


async def test_a_part_of_an_earlier_text_that_tells_a_built_in_tool_what_to_do_is_told() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        counts: JSONObject = {"votes": 3, "likes": 5}
        turns: list[JSONObject] = [
            {"calls": [call("page_of", project="anvil")]},
            {"calls": [call("pick", data=counts, path="votes")], "output": "†results.1"},
        ]
        await published(bridge, {"project": "anvil"}, *turns, output=int)
        output, assumed, _ = await answered(bridge, project="cog")
        assert (output, assumed["calls.1.path"]) == (3, COPIED_PART)


async def test_a_short_text_that_also_stands_elsewhere_does_not_silently_stay() -> None:
    async with Bridge(toolbox=TOOLS) as bridge:
        turns: list[JSONObject] = [
            {"calls": [call("languages", project="anvil")]},
            {"calls": [call("invite", name="Ann", mail="en")], "output": "†results.1"},
        ]
        await published(bridge, {"project": "anvil"}, *turns)
        output, _, asked = await answered(bridge, project="anvil", name="Bob")
        assert output == "Bob <en>"
        assert any("calls.1.mail" in why and "name was passed" in why for why in asked)
