"""What a draft leaves open: values out of longer texts, values that differ, and what a
mind put together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.explanations import COPIED_PART
from ideabridge.bridge.lifting.inside import LISTED_CHARACTERS, Texts, core_of, stands_in
from ideabridge.bridge.lifting.plain import OpenPoint, open_points
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.lifting.runs import Turn, answered, solved, turn

pytestmark = pytest.mark.anyio

ANY: JSONObject = {"type": ["string", "number", "boolean", "object", "array"]}


@tool(read_only=True)
def page(address: str) -> str:
    """A page."""
    name = address.split(".")[0]
    told = (
        f"I am {name.title()}. Write to {name}@mail.example; room 1337, 12 steps up, concatenate."
    )
    return f"{told} See www.{name}-site.example!"


@tool(read_only=True)
def hotels(city: str) -> str:
    """The hotels of a city in one text."""
    return f"Hotels of {city}: Sun Inn\nMoon Inn\nStar Inn"


@tool(read_only=True)
def guests(hotel: str) -> list[JSON]:
    """The guests of a hotel."""
    return [{"name": f"{hotel} guest {number}"} for number in (1, 2)]


@tool(read_only=True)
def rate(hotels: list[str]) -> int:
    """What hotels are worth."""
    return len(hotels)


@tool(read_only=True)
def files(path: str) -> str:
    """The files of a folder in one text."""
    return f"in {path}:\n[FILE] letter1.txt\n[FILE] letter2.txt"


@tool(read_only=True)
def lines(path: str) -> int:
    """How many lines a file has."""
    return len(path)


@tool
def store(key: str, value: JSON) -> str:
    """Store a value."""
    return "stored"


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    async with Bridge(
        ASKS, toolbox=Toolbox(page, hotels, guests, rate, files, lines, store)
    ) as opened:
        yield opened


def answering(*calls: JSONObject) -> Turn:
    return lambda _: turn(*calls, output=None if calls else True)


async def by_hand(
    bridge: Bridge, *calls: JSONObject, task: str = "Do it.", given: JSONObject | None = None
) -> str:
    """A run whose mind makes one call after the other, with copied values."""
    turns = [*map(answering, calls), answering()]
    return (await solved(bridge, task, given or {}, turns, ANY)).id


def left_open(bridge: Bridge, run: str, *more: str) -> list[OpenPoint]:
    return open_points(bridge.lift(run, choices={"runs": list[JSON](more)}))


def kinds(bridge: Bridge, run: str, *more: str) -> list[tuple[str, str]]:
    return [(point.kind, point.at) for point in left_open(bridge, run, *more)]


async def test_a_result_that_a_session_neither_reads_nor_returns_is_open(bridge: Bridge) -> None:
    read: JSONObject = {"_tool": "page", "address": "dora.example"}
    counted: JSONObject = {"_tool": "lines", "path": "may.txt"}
    stored: JSONObject = {"_tool": "store", "key": "k", "value": 4321}
    draft = bridge.lift(await by_hand(bridge, read, counted, stored))
    assert open_points(draft) == []
    points = open_points(draft, output_counts=False)
    # A call that changes something is not made for its result.
    assert [(point.kind, point.at) for point in points] == [
        ("dropped_result", "calls.0"),
        ("dropped_result", "calls.1"),
    ]


# -- inside a longer text --------------------------------------------------------------------------

PAGE: JSONObject = {"_tool": "page", "address": "dora.example"}


@pytest.mark.parametrize(
    "value", ["dora@mail.example", "www.dora-site.example", 1337, "1337", {"to": ["Dora"]}]
)
async def test_a_value_inside_an_earlier_text_is_open(bridge: Bridge, value: JSON) -> None:
    run = await by_hand(bridge, PAGE, {"_tool": "store", "key": "k-1", "value": value})
    (point,) = left_open(bridge, run)
    assert point.kind == "inside"
    assert point.at.startswith("calls.1.value")
    assert point.why.endswith("is a part of the result of call 0")


@pytest.mark.parametrize("value", ["cat", "I", 12, "12", "ora", True, None, [], "elsewhere"])
async def test_what_is_in_a_text_by_chance_or_not_at_all_is_a_parameter(
    bridge: Bridge, value: JSON
) -> None:
    assert (
        kinds(bridge, await by_hand(bridge, PAGE, {"_tool": "store", "key": "k-1", "value": value}))
        == []
    )


async def test_what_the_user_named_is_a_parameter(bridge: Bridge) -> None:
    call: JSONObject = {"_tool": "store", "key": "k-1", "value": "Dora"}
    assert kinds(bridge, await by_hand(bridge, PAGE, call, task="Keep Dora.")) == []
    assert kinds(bridge, await by_hand(bridge, PAGE, call, task="Keep Doras.")) == [
        ("inside", "calls.1.value")
    ]


async def test_a_value_inside_a_text_of_the_input_is_open_from_the_first_call_on(
    bridge: Bridge,
) -> None:
    mail: JSONObject = {"mail": "Please look at eva.example today."}
    run = await by_hand(bridge, {"_tool": "page", "address": "eva.example"}, given=mail)
    (point,) = left_open(bridge, run)
    assert (point.kind, point.at) == ("inside", "calls.0.address")
    assert point.why == '"eva.example" is a part of the input'


async def test_a_value_inside_an_earlier_value_of_the_run_is_open(bridge: Bridge) -> None:
    run = await by_hand(
        bridge, {"_tool": "lines", "path": "notes/may.txt"}, {"_tool": "lines", "path": "may.txt"}
    )
    (point,) = left_open(bridge, run)
    assert point.why == '"may.txt" is a part of the earlier calls.0.path'


async def test_the_author_of_a_plan_is_believed(bridge: Bridge) -> None:
    run = await bridge.run_plan(
        {"calls": [PAGE, {"_tool": "store", "key": "k", "value": "Dora"}], "output": True}
    )
    assert await run.wait() == "needs_approval"
    run.decide(run.questions()[0].approval, "approve", by="a person")
    assert await run.wait() == "done"
    assert kinds(bridge, run.id) == []


# -- lists, differences and words ------------------------------------------------------------------


async def test_a_list_of_names_out_of_one_text_is_open(bridge: Bridge) -> None:
    names: JSON = ["Sun Inn", "Star Inn"]
    run = await by_hand(
        bridge, {"_tool": "hotels", "city": "Rome"}, {"_tool": "rate", "hotels": names}
    )
    assert kinds(bridge, run) == [("inside", "calls.1.hotels")]


async def test_a_list_put_together_from_results_is_open_once(bridge: Bridge) -> None:
    names: JSON = ["Sun guest 1", "Sun guest 2"]
    run = await by_hand(
        bridge,
        {"_tool": "guests", "hotel": "Sun"},
        {"_tool": "store", "key": "k-1", "value": names},
    )
    assert kinds(bridge, run).count(("put_together", "calls.1.value")) == 1


async def test_what_differs_between_runs_and_nothing_explains_is_open(bridge: Bridge) -> None:
    runs = [
        await by_hand(
            bridge,
            {"_tool": "page", "address": address},
            {"_tool": "store", "key": "k-1", "value": value},
        )
        for address, value in (("dora.example", 700), ("eva.example", 800))
    ]
    # The address is different because a different one was asked for.
    assert kinds(bridge, *runs) == [("varies", "calls.1.value")]


async def test_words_that_a_mind_wrote_after_results_are_open_wherever_they_stand(
    bridge: Bridge,
) -> None:
    values: list[JSON] = [
        "looks fine to me",
        {"text": "looks fine"},
        ["fine", "looks fine"],
        "x" * 41,
    ]
    for value in values:
        run = await by_hand(bridge, PAGE, {"_tool": "store", "key": "k-1", "value": value})
        assert [kind for kind, _ in kinds(bridge, run)] == ["own_words"], value

    # The same holds for words around an earlier value.
    words = "Seen at dora.example today"
    run = await by_hand(bridge, PAGE, {"_tool": "store", "key": "k-1", "value": words})
    assert kinds(bridge, run) == [("computed", "calls.1.value")]


async def test_a_value_around_an_earlier_one_says_where_it_stands_whole(bridge: Bridge) -> None:
    calls: list[JSONObject] = [
        {"_tool": "files", "path": "/ann"},
        {"_tool": "lines", "path": "/ann/letter2.txt"},
    ]
    (point,) = left_open(bridge, await by_hand(bridge, *calls))
    assert point.why.endswith('or something else: "letter2.txt" is a part of the result of call 0')


# -- constant parts of a text, when the tool is called ---------------------------------------------


async def test_a_constant_part_out_of_a_result_is_assumed_until_three_runs_agree(
    bridge: Bridge,
) -> None:
    runs: list[str] = []
    for folder in ("/ann", "/bob", "/cid"):
        reading: JSONObject = {"_tool": "lines", "path": f"{folder}/letter2.txt"}
        runs.append(await by_hand(bridge, {"_tool": "files", "path": folder}, reading))

    assert kinds(bridge, runs[0]) == [("computed", "calls.1.path")]
    first = await bridge.publish(runs[0], "second_letter")
    listed = (first.plan or {})["explained"]
    assert isinstance(listed, list)
    (why,) = [
        one["why"]
        for one in listed
        if isinstance(one, dict) and one["at"] == ["calls", "1", "path"]
    ]
    assert why == COPIED_PART
    # The folder is the recorded one, so all explanations agree, but its second file may now be a
    # different one.
    assert (
        "calls.1.path" in (await answered(bridge, "second_letter", {"files_path": "/ann"})).assumed
    )

    await bridge.publish(runs[0], "second_letter", choices={"runs": list[JSON](runs[1:])})
    assert (
        "calls.1.path"
        not in (await answered(bridge, "second_letter", {"files_path": "/dan"})).assumed
    )


async def test_a_constant_part_out_of_a_result_asks_before_a_change(bridge: Bridge) -> None:
    call: JSONObject = {"_tool": "store", "key": "/ann/letter2.txt", "value": 700}
    await bridge.publish(
        await by_hand(bridge, {"_tool": "files", "path": "/ann"}, call), "keep_letter"
    )
    answer = await answered(bridge, "keep_letter", {"path": "/ann"})
    assert any("calls.1.key" in why for why in answer.asked)


# -- looking for a part ----------------------------------------------------------------------------

TEXT = st.text(alphabet="ab_- .", max_size=12)


@given(st.lists(TEXT, max_size=8), TEXT.filter(lambda part: core_of(part) != ""))
def test_exactly_the_texts_with_a_part_are_found(texts: list[str], part: str) -> None:
    looked = Texts()
    half = len(texts) // 2
    for number, text in enumerate(texts[:half]):
        looked.add(str(number), text)

    list(looked.roots_with(part))
    for number, text in enumerate(texts[half:], half):
        looked.add(str(number), text)

    expected = [
        str(number) for number, text in enumerate(texts) if len(text) > 2 and stands_in(part, text)
    ]
    assert list(looked.roots_with(part)) == expected


def test_a_huge_text_hides_no_later_one() -> None:
    looked = Texts()
    looked.add("huge", "word " * LISTED_CHARACTERS)
    looked.add("small", "a word here")
    assert list(looked.roots_with("word")) == ["small"]


def test_the_search_of_one_run_is_bounded() -> None:
    looked = Texts()
    for number in range(10_000):
        looked.add(str(number), f"word {number}")
    rounds = [sum(1 for _ in looked.roots_with("word")) for _ in range(100)]
    assert rounds[0] == 10_000
    assert rounds[-1] == 0
