"""What becomes of the calls of a run, of what stood in them, and of what people did to them."""

from __future__ import annotations

import re

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.report import report_lines, report_of, report_text
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.lifting.runs import (
    SHORTEN,
    Seen,
    Shortener,
    Turn,
    answered,
    approved,
    called,
    solved,
    turn,
)

pytestmark = pytest.mark.anyio

NUMBER: JSONObject = {"type": "number"}
BOOKS: list[JSONObject] = [
    {"title": "Emma", "pages": 474, "lent": True},
    {"title": "Ulysses", "pages": 730, "lent": False},
    {"title": "Heidi", "pages": 320, "lent": False},
]


@tool(read_only=True)
def books(shelf: str) -> list[JSON]:
    """The books on a shelf."""
    return [{**book, "title": f"{book['title']} of {shelf}"} for book in BOOKS]


@tool(read_only=True)
def pages(title: str) -> int:
    """How long a title is."""
    if not title:
        raise ActivityError("no title")
    return len(title)


@tool(read_only=True)
def record(name: str) -> JSONObject:
    """A record."""
    return {
        "owner": f"{name}-owner",
        "size": len(name) * 10,
        "level": "high" if len(name) > 3 else "low",
    }


@tool(read_only=True)
def owner(name: str) -> str:
    """An owner."""
    return f"{name}-owner"


@tool(read_only=False)
def store(key: str, value: JSON) -> str:
    """Store a value."""
    return f"{key}={value}"


@pytest.fixture
def bridge() -> Bridge:
    return Bridge(ASKS, toolbox=Toolbox(books, pages, record, owner, store))


def explained(draft: PlanDraft) -> dict[str, list[str]]:
    """The copied literals, each with its explanations."""
    return {".".join(one.at): [each.shown for each in one.by] for one in draft.explained}


COPIED: list[Turn] = [
    lambda seen: turn({"_tool": "record", "name": seen.name}),
    lambda seen: turn({"_tool": "pages", "title": seen.result(0, "owner")}),
    lambda seen: turn(output=seen.result(1)),
]


async def test_a_run_of_references_over_several_requests_is_known_wholly(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "†input.name", "_outputPath": "found"}),
        lambda _: turn({"_tool": "pages", "title": "†state.found"}),
        lambda _: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        assert explained(bridge.lift(run.id)) == {}
        published = await bridge.publish(run.id, "owner_length")
        assert published.plan is not None
        assert published.plan["lifting"] == {
            "run": run.id,
            "runs": [],
            "checked": "self-consistent",
            "confirmed_by": [],
            "choices": {},
            "parameters": {},
            "places": [0, 1],
        }
        answer = await answered(bridge, "owner_length", {"name": "benjamin"})
        assert answer.value == len("benjamin-owner")
        assert answer.is_sure


async def test_copied_values_are_assumed_from_one_run_and_determined_by_two(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        found = explained(bridge.lift(run.id))
        assert found["calls.0.name"] == ["†input.name", 'always "ann"']
        assert found["calls.1.title"][0] == "†results.0.owner"
        assert found["output"][0] == "†results.1"
        await bridge.publish(run.id, "owner_length")
        answer = await answered(bridge, "owner_length", {"name": "benjamin"})
        assert answer.value == len("benjamin-owner")
        assert {"calls.0.name", "calls.1.title", "output"} <= set(answer.assumed)
        other = await solved(bridge, "x", {"name": "charlotte"}, COPIED, NUMBER)
        published = await bridge.publish(
            run.id, "owner_length", description="How long.", choices={"runs": [other.id]}
        )
        assert explained(bridge.lift(run.id, choices={"runs": [other.id]}))["calls.0.name"] == [
            "†input.name"
        ]
        assert published.plan is not None
        assert published.plan["lifting"] == {
            "run": run.id,
            "runs": [other.id],
            "checked": "confirmed",
            "confirmed_by": [other.id],
            "choices": {"runs": [other.id]},
            "decided_by": {"kind": "approver", "via": "code"},
            "parameters": {},
            "places": [0, 1],
        }
        answer = await answered(bridge, "owner_length", {"name": "benjamin"})
        assert answer.value == len("benjamin-owner")
        assert answer.assumed == []


async def test_a_tool_repeats_its_run_without_arguments(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "ann"}),
        lambda seen: turn({"_tool": "pages", "title": seen.result(0)}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {}, turns, NUMBER)
        published = await bridge.publish(run.id, "owner_length")
        assert published.input_schema is not None
        properties = published.input_schema["properties"]
        told = "title of pages. If left out, it is taken from result 0 (owner)."
        assert properties == {
            "name": {"type": "string", "description": "name of owner", "default": "ann"},
            "title": {"type": "string", "description": told},
        }
        assert await called(bridge, "owner_length", {}) == len("ann-owner")
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")


async def test_a_followed_value_that_is_passed_is_taken_and_nothing_about_it_is_assumed(
    bridge: Bridge,
) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        await bridge.publish(run.id, "owner_length")
        answer = await answered(bridge, "owner_length", {"name": "benjamin", "title": "four"})
        assert answer.value == 4
        assert "calls.1.title" not in answer.assumed
        # A wrong type is rejected, as for any other parameter.
        with pytest.raises(IdeabridgeError):
            await called(bridge, "owner_length", {"name": "benjamin", "title": 4})


async def test_an_earlier_literal_of_another_name_is_followed_until_its_own_parameter_is_passed(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "benjamin"}),
        lambda _: turn({"_tool": "pages", "title": "benjamin"}, output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {}, turns, NUMBER)
        assert explained(bridge.lift(run.id)) == {
            "calls.1.title": ["†input.name", 'always "benjamin"']
        }
        await bridge.publish(run.id, "both")
        answer = await answered(bridge, "both", {"name": "al"})
        assert (answer.value, "calls.1.title" in answer.assumed) == (2, True)
        assert (await answered(bridge, "both", {"name": "al", "title": "four"})).value == 4


def call(tool: str, **parameters: JSON) -> JSONObject:
    return {"_tool": tool, **parameters}


async def test_followed_values_beyond_eight_are_under_one_object_those_of_the_task_first(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn(*(call("owner", name=f"name{number}") for number in range(10))),
        lambda seen: turn(*(call("pages", title=seen.result(number)) for number in range(10))),
        lambda _: turn(output="†results.19"),
    ]
    async with bridge:
        run = await solved(bridge, "How long name9-owner is", {}, turns, NUMBER)
        published = await bridge.publish(run.id, "many")
        assert published.input_schema is not None
        properties = published.input_schema["properties"]
        assert isinstance(properties, dict)
        also = properties["also"]
        assert isinstance(also, dict)
        draft = bridge.lift(run.id)
        followed = {
            leaf.path: one.name for one in draft.parameters if one.followed for leaf in one.leaves
        }
        assert len(followed) == 10
        under = also["properties"]
        assert isinstance(under, dict)
        assert [path for path, name in followed.items() if name in under] == [
            "calls.17.title",
            "calls.18.title",
        ]
        value = {"also": {str(followed["calls.18.title"]): "four"}}
        replay = await bridge.start_idea("many", value)
        assert replay.run is not None
        await replay.run.result()
        assert [call.value for call in replay.run.calls()][17:] == [11, 4, 11]


async def test_of_equal_costs_the_source_with_the_likest_name_is_taken(bridge: Bridge) -> None:
    @tool(read_only=True)
    def pair(name: str) -> JSONObject:
        """Two names of one value."""
        return {"alias": f"{name}-x", "title": f"{name}-x" if name == "ann" else f"{name}-y"}

    turns: list[Turn] = [
        lambda _: turn({"_tool": "pair", "name": "†input.name"}),
        lambda seen: turn({"_tool": "pages", "title": seen.result(0, "alias")}),
        lambda _: turn(output="†results.1"),
    ]
    async with Bridge(ASKS, toolbox=Toolbox(pair, pages)) as here:
        run = await solved(here, "x", {"name": "ann"}, turns, NUMBER)
        assert explained(here.lift(run.id))["calls.1.title"][:2] == [
            "†results.0.title",
            "†results.0.alias",
        ]


async def test_parameters_are_renamed_merged_fixed_described_and_made(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "ann"}, {"_tool": "books", "shelf": "ann"}),
        lambda _: turn({"_tool": "store", "key": "k", "value": 5}, output="†results.0"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {}, turns, None)
        assert [one.name for one in bridge.lift(run.id).parameters] == [
            "name",
            "key",
            "value",
            "shelf",
        ]
        decided: JSONObject = {
            "name": {"rename": "who", "description": "Whose.", "required": True},
            "shelf": {"merge": "name"},
            "key": {"fix": True},
            "value": {"default": 6},
        }
        published = await bridge.publish(run.id, "keep", parameters=decided)
        assert published.input_schema is not None
        assert published.input_schema["required"] == ["who"]
        assert published.input_schema["properties"] == {
            "who": {"type": "string", "description": "Whose."},
            "value": {"type": "integer", "description": "value of store", "default": 6},
        }
        assert published.plan is not None
        calls = published.plan["calls"]
        assert isinstance(calls, list)
        first, second, third = (call for call in calls if isinstance(call, dict))
        assert (first["name"], second["shelf"]) == ("†input.who", "ann")
        # The shelf was copied from the name, so it follows whatever is passed in its place.
        draft = bridge.lift(run.id, parameters=decided)
        assert [(one.at, one.given) for one in draft.explained] == [
            (("calls", "1", "shelf"), "†input.who")
        ]
        assert (third["key"], third["value"]) == ("k", "†input.value")
        assert await called(bridge, "keep", {"who": "bo"}) == "bo-owner"


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        ({"nobody": {"fix": True}}, "there is no parameter 'nobody'"),
        ({"name": {"merge": "shelf"}}, "its recorded value"),
        ({"name": {"merge": "nobody"}}, "there is no parameter 'nobody'"),
        ({"name": {"rename": "shelf"}}, "another parameter"),
        ({"name": {"rename": "a b"}}, "expected letters"),
        ({"name": {"colour": 1}}, "unknown key 'colour'"),
        ({"name": {"fix": 1}}, "expected true or false"),
        ({"name": {"fix": True, "rename": "x"}}, "expected one of"),
        (
            {"name": {"rename": "_tool"}},
            "calls already have a property with this name; rename the parameter",
        ),
        (
            {"_each": {"at": ["calls.0.name"]}},
            "parameters._each: calls already have a property with this name",
        ),
        ({"new": {"at": ["calls.2.title"]}}, "there is no constant at 'calls.2.title'"),
        ({"shelf": {"merge": "title"}, "title": {"merge": "shelf"}}, "merged in a circle"),
        ({"shelf": {"merge": "title"}, "title": {"fix": True}}, "'title' is fixed"),
        ({"new": {"at": ["calls.9.x"]}}, "there is no constant at 'calls.9.x'"),
        ({"new": {"at": ["calls.0.name", "calls.1.shelf"]}}, "a parameter can have only one value"),
    ],
)
async def test_a_decision_that_does_not_fit_is_refused(
    bridge: Bridge, decided: JSONObject, message: str
) -> None:
    turns: list[Turn] = [
        lambda _: turn(
            {"_tool": "owner", "name": "ann"},
            {"_tool": "books", "shelf": "bob"},
            {"_tool": "pages", "title": "†results.0"},
            {"_tool": "pages", "title": "bob"},
            output="†results.0",
        ),
    ]
    async with bridge:
        run = await solved(bridge, "x", {}, turns, None)
        with pytest.raises(PublicationError, match=message):
            await bridge.publish(run.id, "no", parameters=decided)


async def test_a_parameter_takes_a_name_that_another_gives_up(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn(
            {"_tool": "owner", "name": "ann"},
            {"_tool": "books", "shelf": "bob"},
            output="†results.0",
        ),
    ]
    decided: JSONObject = {"shelf": {"rename": "rack"}, "name": {"rename": "shelf"}}
    async with bridge:
        run = await solved(bridge, "x", {}, turns, None)
        await bridge.publish(run.id, "moved", parameters=decided)
        assert await called(bridge, "moved", {"shelf": "cleo", "rack": "dan"}) == "cleo-owner"


async def test_a_member_of_the_input_that_no_call_can_pass_is_renamed(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "†input._id"}, output="†results.0")
    ]
    async with bridge:
        run = await solved(bridge, "x", {"_id": "ann"}, turns, None)
        with pytest.raises(PublicationError, match="calls already have a property with this name"):
            await bridge.publish(run.id, "mine")
        await bridge.publish(run.id, "mine", parameters={"_id": {"rename": "id"}})
        assert await called(bridge, "mine", {"id": "bo"}) == "bo-owner"


async def test_a_copied_value_becomes_a_parameter_where_the_publisher_says_so(
    bridge: Bridge,
) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        await bridge.publish(
            run.id, "title_length", parameters={"title": {"at": ["calls.1.title"]}}
        )
        assert await called(bridge, "title_length", {"name": "x", "title": "four"}) == 4


async def test_a_person_takes_where_a_value_comes_from(bridge: Bridge) -> None:
    take: JSONObject = {
        "calls.0.name": "†input.name",
        "calls.1.title": "†results.0.owner",
        "output": {"convert": {"convert": "†results.1", "by": ["text"]}, "by": ["number"]},
    }
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        published = await bridge.publish(run.id, "owner_length", choices={"take": take})
        assert published.plan is not None
        lifting = published.plan["lifting"]
        assert isinstance(lifting, dict)
        assert lifting["choices"] == {"take": take}
        answer = await answered(bridge, "owner_length", {"name": "benjamin"})
        assert answer.value == len("benjamin-owner")
        # A person decides where values come from. The level that was seen is new, and might have
        # decided about the call.
        assert answer.assumed == ["calls.1"]
        await bridge.publish(run.id, "kept", choices={"take": {"calls.0.name": "keep"}})
        assert await called(bridge, "kept", {"name": "benjamin"}) == len("ann-owner")
        with pytest.raises(PublicationError, match="instead of"):
            await bridge.publish(
                run.id, "wrong", choices={"take": {**take, "calls.1.title": "†input.name"}}
            )
        with pytest.raises(PublicationError, match=r"there is nothing at 'calls\.7\.x'"):
            await bridge.publish(run.id, "wrong", choices={"take": {"calls.7.x": "†input.name"}})
        with pytest.raises(PublicationError, match="unknown key 'accept'"):
            await bridge.publish(run.id, "wrong", choices={"accept": True})
        wrongs: list[JSON] = ["input.name", 5, {"pick": "x"}, "†nothing.x"]
        for wrong in wrongs:
            with pytest.raises(PublicationError, match=r"choices\.take\.output"):
                await bridge.publish(
                    run.id, "wrong", choices={"take": dict[str, JSON](output=wrong)}
                )


async def test_a_reference_to_a_position_that_was_seen_is_explained_like_a_copy(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": "†input.shelf"}),
        lambda seen: turn({"_tool": "pages", "title": "†results.0.1.title"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "a"}, turns, NUMBER)
        assert explained(bridge.lift(run.id))["calls.1.title"][0] == "†results.0.1.title"
        planned: list[Turn] = [
            lambda seen: turn(
                {"_tool": "books", "shelf": "†input.shelf"},
                {"_tool": "pages", "title": "†results.0.1.title"},
                output="†results.1",
            )
        ]
        run = await solved(bridge, "y", {"shelf": "a"}, planned, NUMBER)
        assert explained(bridge.lift(run.id)) == {}


async def test_a_call_made_after_a_result_without_reading_it_may_have_been_a_decision(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "record", "name": "†input.name"}),
        lambda seen: turn({"_tool": "store", "key": "†input.name", "value": "†input.name"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "anna"}, turns, None)
        await bridge.publish(run.id, "stored")
        answer = await answered(bridge, "stored", {"name": "bert"})
        assert answer.value == "bert=bert"
        assert ["calls.1: whoever made this call had" in why for why in answer.asked] == [True]
        await bridge.publish(run.id, "stored", choices={"take": {"calls.1": "keep"}})
        answer = await answered(bridge, "stored", {"name": "bert"})
        assert not any("whoever made this call" in why for why in answer.asked)


async def test_requests_that_use_the_same_ids_keep_the_order_of_their_calls(bridge: Bridge) -> None:
    def noted(number: int) -> JSONObject:
        first: JSONObject = {
            "_tool": "store",
            "key": "†input.name",
            "value": number,
            "_id": "first",
        }
        return turn(first, {"_tool": "pages", "title": "†input.name", "_after": ["first"]})

    turns: list[Turn] = [
        lambda _: noted(1),
        lambda _: noted(2),
        lambda _: noted(3),
        lambda _: turn(output="†results.5"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "anna"}, turns, NUMBER)
        calls = bridge.lift(run.id).calls
        assert [call.get("_id") for call in calls if isinstance(call, dict)][::2] == [
            "first",
            "first_2",
            "first_3",
        ]
        after = [call.get("_after") for call in calls if isinstance(call, dict)]
        assert after[:3] == [None, ["first"], ["first", "call_1"]]
        assert after[3:] == [["first_2", "first"], ["first_2", "call_3"], ["first_3", "first_2"]]
        await bridge.publish(run.id, "three_times", answer="plan")
        answer = await answered(bridge, "three_times", {"name": "bert"})
        assert answer.value == len("bert")


async def test_a_new_kind_of_value_beside_what_is_read_is_named(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "record", "name": "†input.name"}),
        lambda _: turn({"_tool": "pages", "title": "†results.0.owner"}),
        lambda _: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "anna"}, turns, NUMBER)
        await bridge.publish(run.id, "owner_length")
        answer = await answered(bridge, "owner_length", {"name": "bartholomew"})
        # The size is outside the range of the run, and nothing shows that it decided nothing.
        assert answer.noted == ["†results.0.size"]


async def test_failed_and_denied_calls_are_left_out_and_retries_collapse(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn(
            {"_tool": "pages", "title": ""}, {"_tool": "owner", "name": "†input.name"}
        ),
        lambda seen: turn({"_tool": "pages", "title": "†results.1", "_id": "length"}),
        lambda seen: turn(output="†results.2"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        draft = bridge.lift(run.id)
        assert draft.calls == [
            {"_tool": "owner", "name": "†input.name"},
            {"_tool": "pages", "title": "†results.0", "_id": "length"},
        ]
        assert [one.shown for one in draft.lifted.left_out] == ["calls.0 (pages): it failed"]
        assert draft.difference() is None


async def test_a_retry_counts_as_what_it_is_again() -> None:
    fails = [True]

    @tool(read_only=True)
    def flaky(name: str) -> str:
        """Fail at first."""
        if fails:
            fails.pop()
            raise ActivityError("not now")
        return name * 2

    turns: list[Turn] = [
        lambda seen: turn({"_tool": "flaky", "name": "†input.name"}),
        lambda seen: turn({"_tool": "flaky", "name": "†input.name"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with Bridge(ASKS, toolbox=Toolbox(flaky)) as here:
        run = await solved(here, "x", {"name": "ann"}, turns, None)
        draft = here.lift(run.id)
        assert draft.calls == [{"_tool": "flaky", "name": "†input.name"}]
        assert [one.shown for one in draft.lifted.left_out] == [
            "calls.0 (flaky): it failed, and was proposed again"
        ]
        await here.publish(run.id, "twice")
        assert await called(here, "twice", {"name": "bo"}) == "bobo"


async def test_what_a_person_wrote_in_place_of_a_value_is_a_parameter(bridge: Bridge) -> None:
    async with bridge:
        run = await bridge.solve("x", input={"key": "k", "value": "v"})
        run.submit(
            0,
            turn(
                {"_tool": "store", "key": "†input.key", "value": "†input.value"},
                output="†results.0",
            ),
        )
        await run.wait(30)
        approval = run.questions()[0].approval
        run.decide(
            approval, "edit", by="ann", call={"_tool": "store", "key": "k", "value": "†mine"}
        )
        await run.wait(30)
        assert bridge.lift(run.id).calls == [
            {"_tool": "store", "key": "†input.key", "value": "†input.store_value"}
        ]
        await bridge.publish(run.id, "stored")
        assert await called(bridge, "stored", {"key": "z", "value": "w"}) == "z=†mine"


async def test_effects_of_several_requests_keep_their_order(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "store", "key": "†input.name", "value": 1}),
        lambda seen: turn(
            {"_tool": "record", "name": "†input.name"}, {"_tool": "store", "key": "b", "value": 2}
        ),
        lambda seen: turn(output="†results.2"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, None)
        calls = bridge.lift(run.id).calls
        after: list[JSON] = [call.get("_after") for call in calls if isinstance(call, dict)]
        assert after == [None, ["call_0"], ["call_0"]]
        await bridge.publish(run.id, "both")
        assert await called(bridge, "both", {"name": "bo"}) == "b=2"


async def test_numbers_however_printed_are_the_same_value(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "record", "name": seen.name}),
        lambda seen: turn({"_tool": "pages", "title": str(seen.result(0, "size"))}),
        lambda seen: turn(output=float(str(seen.result(1)))),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        other = await solved(bridge, "x", {"name": "bartholomew"}, turns, NUMBER)
        found = explained(bridge.lift(run.id, choices={"runs": [other.id]}))
        assert found["calls.1.title"][0] == "†results.0.size, as text"
        await bridge.publish(run.id, "digits", answer="plan", choices={"runs": [other.id]})
        assert await called(bridge, "digits", {"name": "benjamin"}) == 2


async def test_what_differs_between_runs_and_nothing_explains_is_said_unless_it_is_passed(
    bridge: Bridge,
) -> None:
    def turns(literal: str) -> list[Turn]:
        return [
            lambda seen: turn({"_tool": "record", "name": "†input.name"}),
            lambda seen: turn({"_tool": "pages", "title": literal}),
            lambda seen: turn(output="†results.1"),
        ]

    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns("one"), NUMBER)
        other = await solved(bridge, "x", {"name": "bob"}, turns("three"), NUMBER)
        await bridge.publish(run.id, "titled", choices={"runs": [other.id]})
        answer = await answered(bridge, "titled", {"name": "carl"})
        assert (answer.value, "calls.1.title" in answer.assumed) == (3, True)
        answer = await answered(bridge, "titled", {"name": "carl", "title": "seven"})
        assert (answer.value, "calls.1.title" in answer.assumed) == (5, False)


async def test_a_run_that_made_other_calls_is_refused_as_evidence(bridge: Bridge) -> None:
    def turns(again: bool) -> list[Turn]:
        return [
            lambda seen: turn({"_tool": "owner", "name": "†input.name"}),
            lambda seen: turn(
                {"_tool": "pages", "title": "†results.0"}, output=None if again else "†results.1"
            ),
            *([last] if again else []),
        ]

    def last(_: Seen) -> JSONObject:
        return turn({"_tool": "pages", "title": "†input.name"}, output="†results.2")

    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns(False), NUMBER)
        other = await solved(bridge, "x", {"name": "bertram"}, turns(True), NUMBER)
        with pytest.raises(
            PublicationError, match=("would become a different tool: it called pages 2 times")
        ):
            await bridge.publish(run.id, "no", choices={"runs": [other.id]})

        same = await solved(bridge, "x", {"name": "ann"}, turns(False), NUMBER)
        with pytest.raises(PublicationError, match="so it adds no evidence"):
            await bridge.publish(run.id, "no", choices={"runs": [same.id]})


async def test_a_run_of_the_same_shape_is_offered_and_never_taken(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        other = await solved(bridge, "another task", {"name": "charlotte"}, COPIED, NUMBER)
        draft = bridge.lift(run.id)
        assert explained(draft)["calls.0.name"] == ["†input.name", 'always "ann"']
        report = report_of(draft, bridge.store, "local")
        assert report["offers"] == [
            {"run": other.id, "settles": ["calls.0.name", "calls.1.title", "output"]}
        ]
        assert (
            f"offered: run {other.id} made the same calls with other data, and would settle"
            in report_text(report)
        )
        # A run that settles nothing is not worth a line.
        report["offers"] = [{"run": other.id, "settles": []}]
        assert "offered" not in report_text(report)


async def test_the_report_is_a_table(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        report = report_of(bridge.lift(run.id))
        lines = [" ".join(text.split()) for text, _ in report_lines(report)]
        assert "parameter example if it is left out description" in lines
        assert 'name "ann" required' in lines
        assert any(line.startswith("calls.1.title") and " taken from " in line for line in lines)
        assert report["consistent"] is True
        assert all(len(text) <= 80 for text, _ in report_lines(report, 80))


async def test_the_report_for_a_model_is_short_and_says_what_it_leaves_out(bridge: Bridge) -> None:
    many: JSONObject = {"_tool": "record", "name": "é" * 80}
    async with bridge:
        run = await bridge.run_plan(
            {"calls": [{**many, "name": f"{'é' * 80}{number}"} for number in range(40)]}
        )
        await run.wait(30)
        text = report_text(report_of(bridge.lift(run.id)))
        assert len(text.encode()) <= 2_000
        assert text.startswith("self-consistent")
        assert re.search(r"left out here: [0-9]+ parameters; ", text)


@pytest.mark.parametrize("written", [True, False])
async def test_a_step_that_a_mind_answers_asks_a_mind_for_that_step_alone(written: bool) -> None:
    call: JSONObject = {"_tool": "shorten", "text": "†results.0.owner"}
    async with Bridge(ASKS, toolbox=Toolbox(record), mind=Shortener()) as here:
        run = await here.solve("x", input={"name": "ann"}, context=[SHORTEN], mind="turns")
        step = {**call, "_output": "a"} if written else call
        run.submit(0, turn({"_tool": "record", "name": "†input.name"}, step, output="†results.1"))
        if await run.wait(30) == "needs_solution":
            (room,) = run.rooms.values()
            room.submit(0, turn(output="a"))
        assert await run.result() == "a"
        # A mind wrote this for one input, so a mind is asked for it again.
        published = await here.publish(run.id, "initial")
        assert "A model is asked only for calls.1 (shorten)." in published.description
        assert published.annotations["readOnlyHint"] is True
        assert await called(here, "initial", {"name": "bob"}) == "b"
        (verdict,) = await here.verify()
        assert verdict.faults == []
        assert verdict.notes == ["not run: calls.1 (shorten) asks a mind"]


async def test_a_call_of_an_idea_stays_a_call(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "owner", "name": "†input.name"}),
        lambda seen: turn({"_tool": "length", "_module": "idea:length", "text": "†results.0"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        plan: list[Turn] = [
            lambda _: turn({"_tool": "pages", "title": "†input.text"}, output="†results.0")
        ]
        inner = await solved(bridge, "inner", {"text": "abc"}, plan, NUMBER)
        await bridge.publish(inner.id, "length")
        run = await bridge.solve(
            "x", input={"name": "ann"}, tools=["owner", "idea:length"], output_schema=NUMBER
        )
        for number, answer in enumerate(turns):
            run.submit(number, answer(Seen({"name": "ann"}, run)))
            await approved(run)
        assert explained(bridge.lift(run.id)) == {}
        await bridge.publish(run.id, "owner_length")
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")


async def test_a_plan_may_be_asked_and_approved_again(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(
            bridge,
            "x",
            {"key": "k"},
            [
                lambda seen: turn(
                    {"_tool": "store", "key": "†input.key", "value": "†input.key"},
                    output="†results.0",
                )
            ],
            None,
        )
        await bridge.publish(run.id, "stored")
        replay = await bridge.start_idea("stored", {"key": "z"})
        assert replay.run is not None
        assert await replay.run.wait(30) == "needs_approval"
        await approved(replay.run)
        assert await replay.run.result() == "z=z"


async def test_a_run_that_only_looked_around_more_is_compared(bridge: Bridge) -> None:
    more: list[Turn] = [
        lambda seen: turn({"_tool": "record", "name": seen.name}),
        lambda seen: turn({"_tool": "books", "shelf": "any"}),
        lambda seen: turn({"_tool": "pages", "title": seen.result(0, "owner")}),
        lambda seen: turn(output=seen.result(2)),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        other = await solved(bridge, "x", {"name": "charlotte"}, more, NUMBER)
        for first, second in ((run, other), (other, run)):
            published = await bridge.publish(
                first.id, "owner_length", choices={"runs": [second.id]}
            )
            assert published.plan is not None
            lifting = published.plan["lifting"]
            assert isinstance(lifting, dict)
            assert lifting["confirmed_by"] == [second.id]
            answer = await answered(bridge, "owner_length", {"name": "benjamin"})
            assert (answer.value, "calls.1.title" in answer.assumed) == (
                len("benjamin-owner"),
                False,
            )
