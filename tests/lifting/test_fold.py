"""What becomes of calls of one tool that run through a list."""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.evidence import record_of
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.lifting.runs import Seen, Turn, answered, solved, turn

pytestmark = pytest.mark.anyio

ANY: JSONObject = {"type": ["array", "object"]}

SHELVES: dict[str, list[str]] = {
    "prose": ["Emma", "Ulysses"],
    "poems": ["Howl", "Odes", "Sonnets"],
    "plays": ["Hamlet", "Faust", "Antigone", "Medea"],
    "maps": ["Europe"],
    "pairs": ["Romeo and Juliet", "Cymbeline"],
    "duets": ["Lakme", "Manon Lescaut"],
}


@pytest.fixture
def stored() -> list[str]:
    """The titles that were lent, in order."""
    return []


@pytest.fixture
def bridge(stored: list[str]) -> Bridge:
    @tool(read_only=True)
    def books(shelf: str) -> list[JSON]:
        """The books on a shelf."""
        return [{"title": title, "number": len(title) * 1000} for title in SHELVES[shelf]]

    @tool(read_only=True)
    def pages(title: str, edition: int = 1) -> JSONObject:
        """How long a book is."""
        return {"title": title, "pages": len(title) * 100 + edition}

    @tool(read_only=True)
    def today() -> str:
        """The day."""
        return "2026-11-23"

    @tool(read_only=False)
    def lend(title: str) -> str:
        """Lend a book."""
        stored.append(title)
        return f"lent {title}"

    return Bridge(ASKS, toolbox=Toolbox(books, pages, today, lend))


def titles(seen: Seen) -> list[JSON]:
    """The titles that the first call gave."""
    found = seen.result(0)
    assert isinstance(found, list)
    return [one["title"] for one in found if isinstance(one, dict)]


def lengths(seen: Seen) -> JSONObject:
    """The output: how long each book is, as far as it was asked."""
    return turn(output=[one.value["pages"] for one in seen.run.calls() if isinstance(one.value, dict)])


async def by_hand(bridge: Bridge, shelf: str) -> Run:
    """How long the books of a shelf are, all asked in one answer."""
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": seen.shelf}),
        lambda seen: turn(*({"_tool": "pages", "title": title} for title in titles(seen))),
        lengths,
    ]
    return await solved(bridge, "How long", {"shelf": shelf}, turns, ANY)


async def one_by_one(bridge: Bridge, shelf: str, name: str) -> Run:
    """The same with an answer for each call of a tool."""

    def next_call(number: int) -> Turn:
        return lambda seen: turn({"_tool": name, "title": titles(seen)[number]})

    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": seen.shelf}),
        *(next_call(number) for number in range(len(SHELVES[shelf]))),
        lambda seen: turn(output=[one.value for one in seen.run.calls()[1:]]),
    ]
    return await solved(bridge, "Each", {"shelf": shelf}, turns, ANY)


def calls_of(draft: PlanDraft) -> list[JSON]:
    """The tools of a plan, with what is written for `_each` and in the arguments."""
    return [
        {key: value for key, value in call.items() if key not in ("_module",)}
        for call in draft.calls
        if isinstance(call, dict)
    ]


def explained(draft: PlanDraft) -> dict[str, list[str]]:
    return {".".join(one.at): [each.shown for each in one.by] for one in draft.explained}


async def test_calls_through_a_list_become_one_call_for_each_item(bridge: Bridge) -> None:
    async with bridge:
        run = await by_hand(bridge, "prose")
        draft = bridge.lift(run.id)
        assert calls_of(draft)[1:] == [{"_tool": "pages", "title": "†item", "_each": ["Emma", "Ulysses"]}]
        found = explained(draft)
        assert found["calls.1._each"] == ["title of all items of †results.0", 'always ["Emma", "Ulysses"]']
        assert found["output"][0] == "pages of all items of †results.1"
        assert draft.difference() is None
        published = await bridge.publish(run.id, "lengths", description="How long.")
        assert published.plan is not None
        assert isinstance(published.plan["lifting"], dict)
        assert published.plan["lifting"]["places"] == [0, [1, 2]]
        assert [one.faults for one in await bridge.verify(["lengths"])] == [[]]
        for shelf, books in SHELVES.items():
            answer = await answered(bridge, "lengths", {"shelf": shelf})
            assert answer.value == [len(title) * 100 + 1 for title in books]
            assert ("calls.1._each" in answer.assumed) == (shelf != "prose")


@pytest.mark.parametrize("other", ["poems", "maps"])
async def test_a_run_with_another_number_of_items_settles_the_list(bridge: Bridge, other: str) -> None:
    async with bridge:
        run = await by_hand(bridge, "prose")
        more = await by_hand(bridge, other)
        draft = bridge.lift(run.id, choices={"runs": [more.id]})
        assert explained(draft)["calls.1._each"] == ["title of all items of †results.0"]
        assert draft.confirmations() == ([more.id], [])
        await bridge.publish(run.id, "lengths", description="How long.", choices={"runs": [more.id]})
        answer = await answered(bridge, "lengths", {"shelf": "plays"})
        assert answer.value == [601, 501, 801, 501]
        assert answer.is_sure


@pytest.mark.parametrize(("others", "assumed"), [(["pairs"], True), (["pairs", "duets"], True), (["poems"], False)])
async def test_runs_with_the_same_number_of_items_do_not_show_that_it_is_the_whole_list(
    bridge: Bridge, others: list[str], assumed: bool
) -> None:
    async with bridge:
        run = await by_hand(bridge, "prose")
        runs: list[JSON] = [(await by_hand(bridge, other)).id for other in others]
        await bridge.publish(run.id, "lengths", description="How long.", choices={"runs": runs})
        answer = await answered(bridge, "lengths", {"shelf": "plays"})
        assert ("calls.1._each" in answer.assumed) is assumed


async def test_effects_through_a_list_happen_one_after_another_in_its_order(bridge: Bridge, stored: list[str]) -> None:
    async with bridge:
        run = await one_by_one(bridge, "prose", "lend")
        more = await one_by_one(bridge, "poems", "lend")
        draft = bridge.lift(run.id, choices={"runs": [more.id]})
        assert explained(draft)["output"][0] == "†results.1"
        await bridge.publish(run.id, "lend_all", description="Lend.", choices={"runs": [more.id]})
        stored.clear()
        answer = await answered(bridge, "lend_all", {"shelf": "plays"})
        assert stored == SHELVES["plays"]
        assert answer.value == [f"lent {title}" for title in SHELVES["plays"]]


async def test_a_replay_that_a_person_confirms_shows_the_items_that_it_ran_with(bridge: Bridge) -> None:
    async with bridge:
        run = await one_by_one(bridge, "prose", "lend")
        published = await bridge.publish(run.id, "lend_all", description="Lend.")
        replay = (await bridge.start_idea("lend_all", {"shelf": "poems"})).run
        assert replay is not None
        assert await replay.wait(5) == "needs_approval"
        [asked] = replay.pending()
        replay.decide(asked.approval, "approve", by=Decider("person", "terminal", "local"))
        await replay.result()
        record = record_of(bridge.store, replay.id, published)
        assert record is not None
        assert record.values["calls", "1", "_each"] == SHELVES["poems"]


async def test_references_to_the_results_follow_the_folded_call(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": seen.shelf}),
        lambda seen: turn(
            {"_tool": "pages", "title": "†results.0.0.title"},
            {"_tool": "today"},
            {"_tool": "pages", "title": "†results.0.1.title"},
        ),
        lambda _: turn(output={"all": ["†results.1", "†results.3"], "last": "†results.3.pages", "day": "†results.2"}),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "prose"}, turns, ANY)
        draft = bridge.lift(run.id)
        assert [call["_tool"] for call in draft.calls if isinstance(call, dict)] == ["books", "pages", "today"]
        assert isinstance(draft.lifted.output, dict)
        assert draft.lifted.output == {"all": "†results.1", "last": "†results.1.1.pages", "day": "†results.2"}
        assert draft.difference() is None
        await bridge.publish(run.id, "both", description="Both.")
        answer = await answered(bridge, "both", {"shelf": "poems"})
        assert isinstance(answer.value, dict)
        assert answer.value["all"] == [{"title": t, "pages": len(t) * 100 + 1} for t in SHELVES["poems"]]
        assert "output.last" in answer.assumed


async def test_items_of_the_input_are_run_through(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "pages", "title": "Emma"}),
        lambda _: turn({"_tool": "pages", "title": "Faust"}),
        lengths,
    ]
    async with bridge:
        run = await solved(bridge, "x", {"titles": ["Emma", "Faust"]}, turns, ANY)
        assert explained(bridge.lift(run.id))["calls.0._each"][0] == "†input.titles"
        await bridge.publish(run.id, "of_titles", description="Of titles.")
        answer = await answered(bridge, "of_titles", {"titles": ["Odes", "Medea", "Howl"]})
        assert answer.value == [401, 501, 401]


def second_first(seen: Seen) -> JSONObject:
    return turn(*({"_tool": "pages", "title": title} for title in reversed(titles(seen))))


def one_left_out(seen: Seen) -> JSONObject:
    return turn(*({"_tool": "pages", "title": title} for title in titles(seen)[:-1]))


def two_arguments(seen: Seen) -> JSONObject:
    return turn(*({"_tool": "pages", "title": title, "edition": n + 7} for n, title in enumerate(titles(seen))))


@pytest.mark.parametrize("asks", [second_first, one_left_out, two_arguments])
async def test_calls_that_do_not_run_through_a_list_stay_as_they_are(bridge: Bridge, asks: Turn) -> None:
    turns: list[Turn] = [lambda seen: turn({"_tool": "books", "shelf": seen.shelf}), asks, lengths]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "poems"}, turns, ANY)
        draft = bridge.lift(run.id)
        assert len(draft.calls) == len(run.calls())
        assert not any("_each" in call for call in draft.calls if isinstance(call, dict))
        assert draft.difference() is None


async def test_what_was_seen_between_the_calls_keeps_them_apart(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": seen.shelf}),
        lambda seen: turn({"_tool": "pages", "title": titles(seen)[0]}),
        lambda seen: turn({"_tool": "lend", "title": titles(seen)[0]}),
        lambda seen: turn({"_tool": "pages", "title": titles(seen)[1]}),
        lengths,
    ]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "prose"}, turns, ANY)
        assert len(bridge.lift(run.id).calls) == 4


async def test_a_run_that_runs_through_another_list_unfolds_the_calls(bridge: Bridge) -> None:
    async with bridge:
        run = await by_hand(bridge, "poems")
        turns: list[Turn] = [lambda seen: turn({"_tool": "books", "shelf": seen.shelf}), second_first, lengths]
        other = await solved(bridge, "x", {"shelf": "poems"}, turns, ANY)
        draft = bridge.lift(run.id, choices={"runs": [other.id]})
        assert len(draft.calls) == 4
        fewer = await by_hand(bridge, "prose")
        with pytest.raises(PublicationError, match="made other calls"):
            bridge.lift(run.id, choices={"runs": [other.id, fewer.id]})
