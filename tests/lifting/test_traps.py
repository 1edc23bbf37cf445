"""Ways in which a plan would be wrong for a new input although every run it was lifted from agrees: each is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.asking import open_asks
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.lifting.runs import Turn, called, solved, turn

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


def asked(bridge: Bridge, run: str) -> list[str]:
    return [f"{one.kind} {one.path}" for one in open_asks(bridge.lift(run))]


def said(**members: JSON) -> JSONObject:
    """An input of which the tools `look` and `create` give these members."""
    name = f"n{len(SAID)}"
    SAID[name] = members
    return {"name": name}


async def lifted_from(bridge: Bridge, turns: list[Turn], *inputs: JSONObject, schema: JSONObject = ANY) -> list[str]:
    """What is asked of runs on these inputs, of which the first is lifted."""
    runs = [await solved(bridge, "x", given, turns, schema) for given in inputs]
    return asked(bridge, runs[0].id)


async def test_an_input_that_nothing_reads_may_have_decided_what_was_called(bridge: Bridge) -> None:
    turns: list[Turn] = [lambda _: turn({"_tool": "shout", "text": "†input.text"}, output="†results.0")]
    quiet: JSONObject = {"text": "a", "loud": True}
    run = await solved(bridge, "x", quiet, turns, TEXT)
    assert asked(bridge, run.id) == ["unread unread.input.loud"]
    with pytest.raises(PublicationError, match=r"unread\.input\.loud"):
        await bridge.publish(run.id, "shouted")
    await solved(bridge, "x", {"text": "b", "loud": True}, turns, TEXT)
    assert asked(bridge, run.id) == ["unread unread.input.loud"]
    await bridge.publish(run.id, "shouted", choices={"accept": ["unread.input.loud"]})
    assert await called(bridge, "shouted", {"text": "c", "loud": True}) == "C"


async def test_an_optional_input_that_no_run_had_is_named(bridge: Bridge) -> None:
    schema: JSONObject = {"type": "object", "properties": {"text": TEXT, "limit": {"type": "integer"}}}
    context: list[JSON] = [{"type": "input", "input": {"text": "a"}, "schema": schema}]
    run = await bridge.solve("x", context=context, output_schema=TEXT)
    run.submit(0, turn({"_tool": "shout", "text": "†input.text"}, output="†results.0"))
    await run.wait(10)
    assert asked(bridge, run.id) == ["unread unread.input.limit"]


async def test_an_equal_input_beside_an_element_of_a_list_is_asked_however_many_runs_agree(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "both", "pair": "†input.hits"}),
        lambda s: turn({"_tool": "shout", "text": max(s.result(0), key=lambda one: one["score"])["title"]}),  # type: ignore[arg-type, call-overload, index, return-value]
        lambda _: turn(output="†results.1"),
    ]

    def given(query: str) -> JSONObject:
        return {"query": query, "hits": [{"title": f"{query}!", "score": 1}, {"title": query, "score": 2}]}

    assert await lifted_from(bridge, turns, given("ann"), given("bob"), schema=TEXT) == ["proposal calls.1.text"]


async def test_an_equal_input_beside_an_element_that_no_condition_explains_is_asked(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "both", "pair": "†input.names"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, 1)}),
        lambda _: turn(output="†results.1"),
    ]

    def given(query: str) -> JSONObject:
        return {"query": query, "names": ["a", query, "z"]}

    assert "proposal calls.1.text" in await lifted_from(bridge, turns, given("m"), given("n"), schema=TEXT)


async def test_a_key_that_other_runs_do_not_share_may_be_data(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, "ann")}),
        lambda _: turn(output="†results.1"),
    ]
    first, second = said(ann="red", bob="blue"), said(ann="green", carl="grey")
    assert "proposal calls.1.text" in await lifted_from(bridge, turns, first, second, schema=TEXT)


async def test_every_origin_is_weighed_however_often_a_value_stands(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda s: turn({"_tool": "shout", "text": s.result(0, "last")}),
        lambda _: turn(output="†results.1"),
    ]
    # The first of many equal members and the last one agree in both runs.
    first = {f"k{number}": "same" for number in range(20)} | {"last": "same"}
    second = {f"k{number}": "x" for number in range(20)} | {"k0": "y", "last": "y"}
    asks = await lifted_from(bridge, turns, said(**first), said(**second), schema=TEXT)
    assert "proposal calls.1.text" in asks


async def test_what_was_seen_beside_what_the_output_reads_may_have_decided_it(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda s: turn(output=s.result(0, "email") if s.result(0, "verified") else s.result(0, "phone")),
    ]
    first = said(email="a@x", phone="1", verified=True)
    second = said(email="b@x", phone="2", verified=True)
    run = await solved(bridge, "x", first, turns, TEXT)
    await solved(bridge, "x", second, turns, TEXT)
    (ask,) = open_asks(bridge.lift(run.id))
    assert (ask.kind, ask.path) == ("unread", "unread.0")
    assert "calls.0.verified" in ask.text
    written: list[Turn] = [turns[0], lambda _: turn(output="†results.0.email")]
    assert await lifted_from(bridge, written, first, schema=TEXT) == ["unread unread.0"]


async def test_the_result_of_a_tool_that_may_do_more_than_read_decides_as_any_other(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "create", "name": "†input.name"}),
        lambda _: turn({"_tool": "shout", "text": "†results.0.owner"}),
        lambda _: turn(output="†results.1"),
    ]
    first, second = said(owner="a", exists=True), said(owner="b", exists=True)
    assert await lifted_from(bridge, turns, first, second, schema=TEXT) == ["later later.1"]


async def test_what_was_done_after_a_failure_may_have_been_done_because_of_it(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "fetch", "key": "†input.key"}, {"_tool": "shout", "text": "†input.key"}),
        lambda _: turn({"_tool": "fetch", "key": "†results.1"}, output="†results.2"),
    ]
    asks = await lifted_from(bridge, turns, {"key": "missing a"}, {"key": "missing b"}, schema=TEXT)
    assert asks == ["left_out left_out.0"]


async def test_a_call_that_is_accepted_hides_no_later_result(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda _: turn({"_tool": "shout", "text": "†input.name"}),
        lambda _: turn({"_tool": "fetch", "key": "†input.name"}),
        lambda _: turn(output="†results.1"),
    ]
    run = await solved(bridge, "x", said(a="b"), turns, TEXT)
    decided = bridge.lift(run.id, choices={"accept": ["later"]})
    assert [one.path for one in open_asks(decided)] == ["unread.2"]


async def test_every_part_of_a_large_result_is_looked_at(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "look", "name": "†input.name"}),
        lambda _: turn({"_tool": "shout", "text": "†results.0.k0"}),
        lambda _: turn(output="†results.1"),
    ]

    def many(letter: str) -> JSONObject:
        return said(**{f"k{number}": f"{letter}{number}" for number in range(300)}, open=True)

    assert await lifted_from(bridge, turns, many("a"), many("b"), schema=TEXT) == ["later later.1"]


async def test_keys_that_hold_dots_are_no_paths(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda s: turn({"_tool": "both", "pair": {"a.b": s.x, "a": {"b": 7, "c": True}}}, output="†results.0"),
    ]
    asks = await lifted_from(bridge, turns, {"x": "p"}, {"x": "q"})
    assert asks == ["constant calls.0.pair.a.b", "constant calls.0.pair.a.c"]


async def test_a_pick_from_text_that_holds_json_is_checked_as_it_would_run(bridge: Bridge) -> None:
    @tool(read_only=True)
    def report(name: str) -> str:
        """Items, as text."""
        return json.dumps([{"title": f"{name}{n}", "size": n * len(name) % 5} for n in range(4)])

    turns: list[Turn] = [
        lambda _: turn({"_tool": "report", "name": "†input.name"}),
        lambda s: turn(output=max(json.loads(str(s.result(0))), key=lambda one: one["size"])["title"]),
    ]
    async with Bridge(toolbox=Toolbox(report)) as here:
        run = await solved(here, "x", {"name": "ann"}, turns, TEXT)
        take: JSONObject = {"output": {"pick": "max_by(@, &size).title", "from": "†results.0"}}
        await here.publish(run.id, "largest", choices={"take": take})
        assert await called(here, "largest", {"name": "ba"}) == "ba2"


async def test_a_replay_of_a_publication_confirms_nothing(bridge: Bridge) -> None:
    turns: list[Turn] = [lambda s: turn({"_tool": "shout", "text": s.a}, output="†results.0")]
    run = await solved(bridge, "x", {"a": "p"}, turns, TEXT)
    await bridge.publish(run.id, "shouted", choices={"take": {"calls.0.text": "†input.a"}})
    replay = await bridge.call_idea("shouted", {"a": "q"})
    assert replay.run is not None
    assert await replay.run.result() == "Q"
    with pytest.raises(PublicationError, match="replay"):
        bridge.lift(run.id, choices={"runs": [replay.run.id]})
