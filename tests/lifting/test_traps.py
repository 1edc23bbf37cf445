"""Ways in which a plan is wrong for a new input although every run that made it agrees: each
answer says so.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.lifting.runs import Answer, Turn, answered, approved, called, solved, turn

pytestmark = pytest.mark.anyio

TEXT: JSONObject = {"type": "string"}
ANY: JSONObject = {"type": ["string", "number", "object", "array"]}


SAID: dict[str, JSONObject] = {}


@tool(read_only=True)
def look(name: str) -> JSON:
    """What is known of a name."""
    return SAID[name]


@tool(read_only=True)
def shout(text: str) -> str:
    """In capitals."""
    return text.upper()


@tool(read_only=True)
def fetch(key: str) -> str:
    """What is not missing."""
    if key.startswith("missing"):
        raise ActivityError("not found")
    return f"<{key}>"


@tool
def create(name: str) -> JSON:
    """Says nothing of what it does."""
    return SAID[name]


@tool(read_only=True)
def both(pair: JSON) -> JSON:
    """A pair."""
    return pair


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    async with Bridge(toolbox=Toolbox(look, shout, fetch, create, both)) as here:
        yield here


def said(**members: JSON) -> JSONObject:
    """An input of which the tools `look` and `create` give these members."""
    name = f"n{len(SAID)}"
    SAID[name] = members
    return {"name": name}


async def answer_of(
    bridge: Bridge,
    turns: list[Turn],
    fresh: JSONObject,
    *inputs: JSONObject,
    schema: JSONObject = TEXT,
) -> Answer:
    """What a tool made of runs on these inputs answers for a new one."""
    runs = [await solved(bridge, "x", given, turns, schema) for given in inputs]
    await bridge.publish(
        runs[0].id, "made", answer="plan", choices={"runs": [one.id for one in runs[1:]]}
    )
    return await answered(bridge, "made", fresh)


def loud(member: str) -> list[Turn]:
    """Look a name up, and say a member of what is known in capitals."""
    return [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, member)}),
        lambda _: turn(output="†results.1"),
    ]


def best_title(hits: JSON) -> str:
    """Return the title of the hit with the highest score."""
    best = max(cast("list[dict[str, Any]]", hits), key=lambda hit: hit["score"])
    return best["title"]


async def test_an_equal_input_beside_an_item_of_a_list_is_said_however_many_runs_agree(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "both", "pair": "†input.hits"}),
        lambda s: turn({"_tool": "shout", "text": best_title(s.result(0))}),
        lambda _: turn(output="†results.1"),
    ]

    def given(query: str, best: str) -> JSONObject:
        return {
            "query": query,
            "hits": [{"title": f"{query}!", "score": 1}, {"title": best, "score": 2}],
        }

    answer = await answer_of(
        bridge, turns, given("cat", "other"), given("ann", "ann"), given("bob", "bob")
    )
    assert answer.value == "CAT"
    assert "calls.1.text" in answer.assumed


async def test_an_equal_input_beside_an_item_that_no_condition_explains_is_said(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "both", "pair": "†input.names"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, 1)}),
        lambda _: turn(output="†results.1"),
    ]

    def given(query: str, second: str) -> JSONObject:
        return {"query": query, "names": ["a", second, "z"]}

    answer = await answer_of(
        bridge, turns, given("ooo", "ppp"), given("mmm", "mmm"), given("nnn", "nnn")
    )
    assert "calls.1.text" in answer.assumed


async def test_a_key_that_may_be_data_is_never_determined(bridge: Bridge) -> None:
    def votes(name: str, color: str) -> JSONObject:
        card: JSONObject = {"color": color}
        return said(**{name: card}, bob={"color": "blue"})

    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, "ann", "color")}),
        lambda _: turn(output="†results.1"),
    ]
    runs = [votes("ann", color) for color in ("red", "green", "grey", "pink")]
    answer = await answer_of(bridge, turns, votes("ann", "white"), *runs)
    assert answer.value == "WHITE"
    assert "calls.1.text" in answer.assumed


async def test_every_place_of_a_value_is_weighed_however_many_there_are(bridge: Bridge) -> None:
    # Of many equal members, the first and the last agree in both runs.
    first: dict[str, JSON] = {f"k{number}": "same" for number in range(20)}
    second: dict[str, JSON] = {f"k{number}": "xxx" for number in range(20)}
    first["last"] = "same"
    second["k0"] = "yyy"
    second["last"] = "yyy"
    third = said(k0="one", last="two")
    answer = await answer_of(bridge, loud("last"), third, said(**first), said(**second))
    assert "calls.1.text" in answer.assumed


async def test_what_was_seen_beside_what_is_read_may_have_decided_it(bridge: Bridge) -> None:
    def card(letter: str, verified: bool) -> JSONObject:
        return said(email=f"{letter}@x", phone=f"phone {letter}", verified=verified)

    answer = await answer_of(
        bridge, loud("email"), card("c", False), card("a", True), card("b", True)
    )
    assert answer.value == "C@X"
    assert answer.noted == ["†results.0.verified"]


async def test_the_result_of_a_tool_that_may_do_more_than_read_decides_as_any_other(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "create", "name": "†input.name"}),
        lambda _: turn({"_tool": "shout", "text": "†results.0.owner"}),
        lambda _: turn(output="†results.1"),
    ]
    runs = [said(owner=letter, exists=True) for letter in "ab"]
    answer = await answer_of(bridge, turns, said(owner="c", exists=False), *runs)
    assert answer.noted == ["†results.0.exists"]


@pytest.mark.parametrize(("known", "is_nothing_new"), [("b1", True), ("a1", False)])
async def test_a_member_that_only_the_first_of_two_runs_had_may_be_absent(
    bridge: Bridge, known: str, is_nothing_new: bool
) -> None:
    def person(letter: str, card: str) -> JSONObject:
        return said(email=f"{letter}@x", cards={card: {"limit": 5}})

    answer = await answer_of(
        bridge, loud("email"), person("c", "c1"), person("a", "a1"), person("b", known)
    )
    assert answer.value == "C@X"
    assert (answer.noted == []) == is_nothing_new
    assert (answer.assumed == []) == is_nothing_new


def look_after_change(*, key: str, reads: str = "look") -> list[Turn]:
    """Change what a name stands for, and look up what a member of the input stands for."""
    return [
        lambda _: turn({"_tool": "create", "name": "†input.name"}),
        lambda _: turn({"_tool": reads, "name": f"†input.{key}"}),
        lambda _: turn(output="†results.1"),
    ]


@pytest.mark.parametrize("runs", [1, 2])
async def test_two_runs_show_that_a_call_looks_at_what_an_earlier_one_changed(
    bridge: Bridge, runs: int
) -> None:
    inputs = [said(color="red"), said(color="blue")][:runs]
    turns = look_after_change(key="name")
    answer = await answer_of(bridge, turns, said(color="green"), *inputs, schema=ANY)
    assert answer.value == {"color": "green"}
    assert answer.assumed == (["calls.1"] if runs == 1 else [])


async def test_a_call_that_looks_at_something_else_after_a_change_may_have_been_a_decision(
    bridge: Bridge,
) -> None:
    def given(color: str) -> JSONObject:
        return {**said(color=color), "other": said(color=f"dark {color}")["name"]}

    turns = look_after_change(key="other")
    answer = await answer_of(bridge, turns, given("green"), given("red"), given("blue"), schema=ANY)
    assert answer.assumed == ["calls.1"]


async def test_a_second_change_after_a_change_may_have_been_a_decision(bridge: Bridge) -> None:
    turns = look_after_change(key="name", reads="create")
    answer = await answer_of(
        bridge, turns, said(color="green"), said(color="red"), said(color="blue"), schema=ANY
    )
    assert any("calls.1: whoever made this call had" in why for why in answer.asked)


def issue(**members: JSON) -> JSONObject:
    """An input of which the tools give these members among so many others that a short text may be
    equal by chance.
    """
    others: dict[str, JSON] = {f"note{number}": f"note {number}" for number in range(40)}
    return said(**members, **others)


@pytest.mark.parametrize("identifier", ["24", "25"])
async def test_an_id_that_a_call_made_is_followed_though_both_runs_had_the_same(
    bridge: Bridge, identifier: str
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "create", "name": "†input.name"}),
        lambda s: turn(output=s.result(0, "id")),
    ]
    answer = await answer_of(bridge, turns, issue(id=identifier), issue(id="24"), issue(id="24"))
    assert answer.value == identifier
    assert answer.assumed == ([] if identifier == "24" else ["output"])


async def test_a_short_word_that_the_run_returned_may_have_been_judged(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "create", "name": "†input.name"}),
        lambda s: turn(output=s.result(0, "grade")),
    ]
    answer = await answer_of(bridge, turns, issue(grade="A"), issue(grade="A"), issue(grade="A"))
    assert answer.assumed == ["output"]


async def test_a_negative_amount_asks_before_it_is_sent() -> None:
    sent: list[int] = []

    @tool
    def transfer(to: str, amount: int) -> str:
        """Send money."""
        sent.append(amount)
        return f"{amount} to {to}"

    turns: list[Turn] = [
        lambda _: turn(
            {"_tool": "transfer", "to": "†input.to", "amount": "†input.amount"}, output="†results.0"
        )
    ]
    async with Bridge(toolbox=Toolbox(transfer)) as here:
        for amount in (5, -5, 500):
            sent.clear()
            answer = await answer_of(
                here, turns, {"to": "x", "amount": amount}, {"to": "ann", "amount": 7}
            )
            assert sent == [7, amount]
            asks = any("a negative number" in why for why in answer.asked)
            assert asks == (amount < 0)


async def test_keys_that_hold_dots_are_no_paths(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda s: turn(
            {"_tool": "both", "pair": {"a.b": s.x, "a": {"b": 7, "c": True}}}, output="†results.0"
        ),
    ]
    run = await solved(bridge, "x", {"x": "ppp"}, turns, ANY)
    draft = bridge.lift(run.id)
    assert [one.at for one in draft.explained] == [("calls", "0", "pair", "a.b")]
    assert [(one.name, one.leaves[0].keys) for one in draft.parameters] == [
        ("b", ("pair", "a", "b")),
        ("c", ("pair", "a", "c")),
    ]
    await bridge.publish(run.id, "paired")
    assert await called(bridge, "paired", {"x": "qqq", "b": 8}) == {
        "a.b": "qqq",
        "a": {"b": 8, "c": True},
    }


async def test_an_item_of_a_text_that_holds_json_is_found_by_a_condition() -> None:
    @tool(read_only=True)
    def report(name: str) -> str:
        """Items, as text."""
        return json.dumps([{"title": f"{name}{n}", "size": 101 * n} for n in range(4)])

    turns: list[Turn] = [
        lambda _: turn({"_tool": "report", "name": "†input.name"}),
        lambda s: turn(
            output=next(one for one in json.loads(str(s.result(0))) if one["size"] == s.size)[
                "title"
            ]
        ),
    ]
    async with Bridge(toolbox=Toolbox(report)) as here:
        runs: list[JSONObject] = [
            {"name": name, "size": size} for name, size in (("ann", 303), ("al", 0), ("bo", 101))
        ]
        answer = await answer_of(here, turns, {"name": "ba", "size": 202}, *runs)
        assert answer.value == "ba2"


async def test_a_replay_of_a_publication_confirms_nothing(bridge: Bridge) -> None:
    turns: list[Turn] = [lambda s: turn({"_tool": "shout", "text": s.a}, output="†results.0")]
    run = await solved(bridge, "x", {"a": "ppp"}, turns, TEXT)
    await bridge.publish(run.id, "shouted")
    replay = await bridge.start_idea("shouted", {"a": "qqq"})
    assert replay.run is not None
    assert await replay.run.result() == "QQQ"
    with pytest.raises(PublicationError, match="replay"):
        bridge.lift(run.id, choices={"runs": [replay.run.id]})


async def test_runs_that_had_no_choice_show_nothing_about_a_position() -> None:
    one = {of: [f"{of}-one"] for of in "abc"}
    two = {of: [f"{of}-one", f"{of}-two"] for of in "defg"}
    lists = {**one, **two}

    @tool(read_only=True)
    def names(of: str) -> list[str]:
        """Names."""
        return lists[of]

    @tool(read_only=True)
    def look(name: str) -> str:
        """Look."""
        return f"<{name}>"

    async def by_hand(bridge: Bridge, of: str) -> Run:
        run = await bridge.solve("x", input={"of": of}, mind="turns")
        run.submit(0, turn({"_tool": "names", "of": of}))
        await approved(run)
        run.submit(1, turn({"_tool": "look", "name": lists[of][0]}))
        await approved(run)
        run.submit(2, turn(output=f"<{lists[of][0]}>"))
        await approved(run)
        return run

    async with Bridge(toolbox=Toolbox(names, look)) as bridge:
        for runs, sure in (("abc", False), ("def", True)):
            first, *others = [await by_hand(bridge, of) for of in runs]
            await bridge.publish(first.id, "tool", choices={"runs": [one.id for one in others]})
            replay = await bridge.start_idea("tool", {"of": "g"})
            assert replay.run is not None
            assert await replay.run.wait(30) == "done"
            found = [one for one in replay.run.assumed if one["at"] == "calls.1.name"]
            assert len(found) == (0 if sure else 1)
