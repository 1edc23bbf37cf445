"""What becomes of the calls of a run, of what stood in them, and of what people did to them."""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.asking import open_asks, report_lines, report_of
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.lifting.runs import SHORTEN, Seen, Shortener, Turn, approved, called, solved, turn

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
    return {"owner": f"{name}-owner", "size": len(name) * 10, "level": "high" if len(name) > 3 else "low"}


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
    return Bridge(toolbox=Toolbox(books, pages, record, owner, store))


def asked(decided: PlanDraft) -> list[str]:
    return [f"{one.kind} {one.path}" for one in open_asks(decided)]


COPIED: list[Turn] = [
    lambda seen: turn({"_tool": "record", "name": seen.name}),
    lambda seen: turn({"_tool": "pages", "title": seen.result(0, "owner")}),
    lambda seen: turn(output=seen.result(1)),
]


async def test_a_run_of_references_over_several_requests_lifts_wholly(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "owner", "name": "†input.name", "_outputPath": "found"}),
        lambda _: turn({"_tool": "pages", "title": "†state.found"}),
        lambda _: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        decided = bridge.lift(run.id)
        assert asked(decided) == []
        published = await bridge.publish(run.id, "owner_length")
        assert published.plan is not None
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")
        assert published.plan is not None
        assert published.plan["lifting"] == {
            "run": run.id,
            "checked": "self-consistent",
            "confirmed_by": [],
            "choices": {},
            "accepted": [],
            "taken": {},
            "counts": {"references": 3, "proposals": 0, "constants": 0, "taken": 0},
        }


async def test_copied_values_are_proposals_in_one_run_and_taken_where_two_agree(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        decided = bridge.lift(run.id)
        assert asked(decided) == ["proposal calls.0.name", "proposal calls.1.title", "proposal output"]
        with pytest.raises(PublicationError, match=r'calls\.1\.title = "ann-owner" \(†results\.0\.owner\)'):
            await bridge.publish(run.id, "owner_length")
        other = await solved(bridge, "x", {"name": "charlotte"}, COPIED, NUMBER)
        named: JSONObject = {"runs": [other.id]}
        for choices in (None, named):
            decided = bridge.lift(run.id, choices=choices)
            assert asked(decided) == []
            assert decided.calls == [
                {"_tool": "record", "name": "†input.name"},
                {"_tool": "pages", "title": "†results.0.owner"},
            ]
            assert decided.output == "†results.1"
        published = await bridge.publish(run.id, "owner_length", description="How long.")
        assert "Confirmed: it does and gives what another run with other input did and gave." in published.description
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")


async def test_a_person_takes_where_a_value_comes_from(bridge: Bridge) -> None:
    take: JSONObject = {
        "calls.0.name": "†input.name",
        "calls.1.title": "†results.0.owner",
        "output": "†results.1",
    }
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        published = await bridge.publish(run.id, "owner_length", choices={"take": take, "accept": ["later"]})
        assert published.plan is not None
        lifting = published.plan["lifting"]
        assert isinstance(lifting, dict)
        assert lifting["choices"] == {"take": take, "accept": ["later"]}
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")
        with pytest.raises(PublicationError, match="instead of"):
            await bridge.publish(run.id, "wrong", choices={"take": {**take, "calls.1.title": "†input.name"}})
        with pytest.raises(PublicationError, match=r"there is no constant at 'calls\.7\.x'"):
            await bridge.publish(run.id, "wrong", choices={"take": {"calls.7.x": "†input.name"}})
        wrongs: list[JSON] = ["input.name", 5, {"pick": "x"}, "†nothing.x"]
        for wrong in wrongs:
            with pytest.raises(PublicationError, match=r"choices\.take\.output"):
                await bridge.publish(run.id, "wrong", choices={"take": dict[str, JSON](output=wrong)})


async def test_an_element_of_a_list_is_taken_by_a_condition_and_never_by_position(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": "†input.shelf"}),
        lambda seen: turn({"_tool": "pages", "title": seen.result(0, 1, "title")}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "a"}, turns, NUMBER)
        await solved(bridge, "x", {"shelf": "bb"}, turns, NUMBER)
        decided = bridge.lift(run.id)
        assert asked(decided) == ["proposal calls.1.title"]
        leaf = next(leaf for leaf in decided.lifted.leaves if leaf.path == "calls.1.title")
        offered = [one.take for one in leaf.origins]
        assert {"pick": "max_by(@, &pages).title", "from": "†results.0"} in offered
        assert all("†results.0.1" not in str(one) for one in offered)
        published = await bridge.publish(run.id, "longest", choices={"take": {"calls.1.title": offered[0]}})
        assert published.plan is not None
        assert await called(bridge, "longest", {"shelf": "ccc"}) == len("Ulysses of ccc")


async def test_a_reference_to_a_position_that_was_seen_is_named(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "books", "shelf": "†input.shelf"}),
        lambda seen: turn({"_tool": "pages", "title": "†results.0.1.title"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"shelf": "a"}, turns, NUMBER)
        assert asked(bridge.lift(run.id)) == ["selection calls.1.title"]
        planned: list[Turn] = [
            lambda seen: turn(
                {"_tool": "books", "shelf": "†input.shelf"},
                {"_tool": "pages", "title": "†results.0.1.title"},
                output="†results.1",
            )
        ]
        run = await solved(bridge, "y", {"shelf": "a"}, planned, NUMBER)
        assert asked(bridge.lift(run.id)) == []


async def test_what_was_called_after_a_result_without_reading_it_is_named(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "record", "name": "†input.name"}),
        lambda seen: turn({"_tool": "pages", "title": "†input.name"}),
        lambda seen: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "anna"}, turns, NUMBER)
        await solved(bridge, "x", {"name": "bertram"}, turns, NUMBER)
        assert asked(bridge.lift(run.id)) == ["later later.1"]
        assert asked(bridge.lift(run.id, choices={"accept": ["later"]})) == []
        unread: list[Turn] = [
            lambda seen: turn({"_tool": "record", "name": "†input.name"}, {"_tool": "pages", "title": "†input.name"}),
            lambda seen: turn(output="†results.1"),
        ]
        run = await solved(bridge, "y", {"name": "anna"}, unread, NUMBER)
        assert asked(bridge.lift(run.id)) == ["unread unread.0"]


async def test_a_branch_that_reads_part_of_what_was_seen_is_named_unless_the_rest_differed_in_another_run(
    bridge: Bridge,
) -> None:
    turns: list[Turn] = [
        lambda _: turn({"_tool": "record", "name": "†input.name"}),
        lambda _: turn({"_tool": "pages", "title": "†results.0.owner"}),
        lambda _: turn(output="†results.1"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "anna"}, turns, NUMBER)
        decided = bridge.lift(run.id)
        assert [one.text.partition("reads ")[2] for one in open_asks(decided)] == ["calls.0.size, calls.0.level"]
        await solved(bridge, "x", {"name": "bertram"}, turns, NUMBER)
        assert [one.text.partition("reads ")[2] for one in open_asks(bridge.lift(run.id))] == ["calls.0.level"]
        await solved(bridge, "x", {"name": "bo"}, turns, NUMBER)
        assert asked(bridge.lift(run.id)) == []


async def test_failed_and_denied_calls_are_left_out_and_retries_collapse(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "pages", "title": ""}, {"_tool": "owner", "name": "†input.name"}),
        lambda seen: turn({"_tool": "pages", "title": "†results.1", "_id": "length"}),
        lambda seen: turn(output="†results.2"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        decided = bridge.lift(run.id)
        assert decided.calls == [
            {"_tool": "owner", "name": "†input.name"},
            {"_tool": "pages", "title": "†results.0", "_id": "length"},
        ]
        assert [one.shown for one in decided.lifted.left_out] == ["calls.0 (pages): it failed"]
        # What was called next may have been called because of it.
        assert asked(decided) == ["left_out left_out.0"]
        assert decided.difference() is None


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
    async with Bridge(toolbox=Toolbox(flaky)) as here:
        run = await solved(here, "x", {"name": "ann"}, turns, None)
        decided = here.lift(run.id)
        assert decided.calls == [{"_tool": "flaky", "name": "†input.name"}]
        assert [one.shown for one in decided.lifted.left_out] == ["calls.0 (flaky): it failed, and was proposed again"]
        assert asked(decided) == []
        await here.publish(run.id, "twice")
        assert await called(here, "twice", {"name": "bo"}) == "bobo"


async def test_what_a_person_wrote_is_a_constant_and_marked(bridge: Bridge) -> None:
    async with bridge:
        run = await bridge.solve("x", input={"key": "k", "value": "v"})
        run.submit(0, turn({"_tool": "store", "key": "†input.key", "value": "†input.value"}, output="†results.0"))
        await run.wait(10)
        approval = run.questions()[0].approval
        run.decide(approval, "edit", by="ann", call={"_tool": "store", "key": "k", "value": "†mine"})
        await run.wait(10)
        decided = bridge.lift(run.id)
        assert decided.calls == [{"_tool": "store", "key": "†input.key", "value": "††mine"}]
        assert asked(decided) == ["constant calls.0.value", "unread unread.input.value"]
        with pytest.raises(PublicationError, match=r"calls\.0 \(store\): a person changed it"):
            await bridge.publish(run.id, "stored")
        await bridge.publish(run.id, "stored", choices={"accept": ["calls.0.value", "unread.input.value"]})
        assert await called(bridge, "stored", {"key": "z", "value": "w"}) == "z=†mine"


async def test_effects_of_several_requests_keep_their_order_and_it_is_named(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "store", "key": "†input.name", "value": 1}),
        lambda seen: turn({"_tool": "record", "name": "†input.name"}, {"_tool": "store", "key": "b", "value": 2}),
        lambda seen: turn(output="†results.2"),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, None)
        decided = bridge.lift(run.id)
        assert [call.get("_after") for call in decided.calls if isinstance(call, dict)] == [
            None,
            ["call_0"],
            ["call_0"],
        ]
        assert "order order" in asked(decided)
        await bridge.publish(run.id, "both", choices={"accept": True})
        assert await called(bridge, "both", {"name": "bo"}) == "b=2"


async def test_numbers_however_printed_are_the_same_value(bridge: Bridge) -> None:
    turns: list[Turn] = [
        lambda seen: turn({"_tool": "record", "name": seen.name}),
        lambda seen: turn({"_tool": "pages", "title": str(seen.result(0, "size"))}),
        lambda seen: turn(output=float(str(seen.result(1)))),
    ]
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns, NUMBER)
        await solved(bridge, "x", {"name": "bartholomew"}, turns, NUMBER)
        decided = bridge.lift(run.id)
        assert asked(decided) == []
        assert decided.calls == [
            {"_tool": "record", "name": "†input.name"},
            {"_tool": "pages", "title": "†results.2"},
            {"_tool": "pick", "data": "†results.0.size", "path": "to_string(@)"},
        ]


async def test_runs_that_differ_at_a_literal_nothing_explains_make_no_plan(bridge: Bridge) -> None:
    def turns(literal: str) -> list[Turn]:
        return [
            lambda seen: turn({"_tool": "record", "name": "†input.name"}),
            lambda seen: turn({"_tool": "pages", "title": literal}),
            lambda seen: turn(output="†results.1"),
        ]

    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns("one"), NUMBER)
        await solved(bridge, "x", {"name": "bob"}, turns("two"), NUMBER)
        assert asked(bridge.lift(run.id, choices={"accept": True})) == ["varies calls.1.title"]
        with pytest.raises(PublicationError, match="these differ between the runs"):
            await bridge.publish(run.id, "no", choices={"accept": True})


async def test_a_run_of_the_same_task_that_took_another_course_is_told(bridge: Bridge) -> None:
    def turns(again: bool) -> list[Turn]:
        return [
            lambda seen: turn({"_tool": "owner", "name": "†input.name"}),
            lambda seen: turn({"_tool": "pages", "title": "†results.0"}, output=None if again else "†results.1"),
            *([last] if again else []),
        ]

    def last(_: Seen) -> JSONObject:
        return turn({"_tool": "pages", "title": "†input.name"}, output="†results.2")

    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, turns(False), NUMBER)
        other = await solved(bridge, "x", {"name": "bertram"}, turns(True), NUMBER)
        assert asked(bridge.lift(run.id)) == ["course course"]
        with pytest.raises(PublicationError, match="took another course: it also called pages"):
            await bridge.publish(run.id, "no", choices={"accept": True, "runs": [other.id]})


async def test_the_report_tells_each_part_in_a_line(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(bridge, "x", {"name": "ann"}, COPIED, NUMBER)
        report = report_of(bridge.lift(run.id, choices={"accept": ["output"]}))
        lines = [text for text, _ in report_lines(report)]
        assert '  calls.1.title: proposal "ann-owner", equal to †results.0.owner' in lines
        assert report["counts"] == {"references": 0, "proposals": 3, "constants": 0, "taken": 0}
        assert report["consistent"] is True
        assert {one["path"]: one["accepted"] for one in report["asks"]} == {
            "calls.0.name": False,
            "calls.1.title": False,
            "output": True,
            # Nothing would read what the second call gave, with the number that stands in the output for ever.
            "unread.1": False,
        }


@pytest.mark.parametrize("written", [True, False])
async def test_a_step_that_a_mind_answers_asks_a_mind_for_that_step_alone(written: bool) -> None:
    call: JSONObject = {"_tool": "shorten", "text": "†results.0.owner"}
    async with Bridge(toolbox=Toolbox(record), mind=Shortener()) as here:
        run = await here.solve("x", input={"name": "ann"}, context=[SHORTEN], mind="turns")
        step = {**call, "_output": "a"} if written else call
        run.submit(0, turn({"_tool": "record", "name": "†input.name"}, step, output="†results.1"))
        if await run.wait(10) == "needs_solution":
            (room,) = run.rooms.values()
            room.submit(0, turn(output="a"))
        assert await run.result() == "a"
        choices: JSONObject = {"take": {"calls.1._output": "mind"}} if written else {}
        if written:
            assert asked(here.lift(run.id)) == ["constant calls.1._output"]
        published = await here.publish(run.id, "initial", choices=choices)
        assert "a model is asked for calls.1 (shorten) alone. Self-consistent" in published.description
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
        plan: list[Turn] = [lambda _: turn({"_tool": "pages", "title": "†input.text"}, output="†results.0")]
        inner = await solved(bridge, "inner", {"text": "abc"}, plan, NUMBER)
        await bridge.publish(inner.id, "length")
        run = await bridge.solve("x", input={"name": "ann"}, tools=["owner", "idea:length"], output_schema=NUMBER)
        for number, answer in enumerate(turns):
            run.submit(number, answer(Seen({"name": "ann"}, run)))
            await approved(run)
        assert asked(bridge.lift(run.id)) == []
        await bridge.publish(run.id, "owner_length")
        assert await called(bridge, "owner_length", {"name": "benjamin"}) == len("benjamin-owner")


async def test_a_plan_may_be_asked_and_approved_again(bridge: Bridge) -> None:
    async with bridge:
        run = await solved(
            bridge,
            "x",
            {"key": "k"},
            [lambda seen: turn({"_tool": "store", "key": "†input.key", "value": "†input.key"}, output="†results.0")],
            None,
        )
        await bridge.publish(run.id, "stored")
        replay = await bridge.call_idea("stored", {"key": "z"})
        assert replay.run is not None
        assert await replay.run.wait(10) == "needs_approval"
        await approved(replay.run)
        assert await replay.run.result() == "z=z"
