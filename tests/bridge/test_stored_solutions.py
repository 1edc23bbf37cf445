"""A stored Solution satisfies the stored schema, whatever a mind writes and however it arrives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import jsonschema
import pytest
from anyio import run as run_async
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration, Decision, Handlers
from ideabridge.bridge.context.messages import Draft, Message
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.minds.recorded import Recorded
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Tool, Toolbox, tool
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator
from tests.asking import ASKS


@tool(read_only=True)
def shout(text: str, times: int = 1) -> str:
    """Make text loud."""
    return text.upper() * times


@tool(read_only=True)
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@tool(read_only=False)
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


MOOD = Tool("mood", "Name the mood", {"type": "object", "properties": {"text": {"type": "string"}}})
OUTPUT: JSONObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUTS: list[JSONObject | None] = [None, OUTPUT, {"type": ["integer", "null"]}, {}]


def _plans(message: Message, draft: Draft) -> None:
    """A handler that asks for a member of its own."""
    draft.properties["confidence"] = {"$defs": {"n": {"type": "number"}}, "$ref": "#/$defs/n"}
    draft.say(message.role, "Say how sure you are.")


def one_of(*values: JSON) -> st.SearchStrategy[JSON]:
    return st.sampled_from(values)


def handlers() -> Handlers:
    own = Handlers()
    own.register("sure", _plans)
    return own


def check(store: Store, run_id: str) -> int:
    """Check the ideas of a run with a validator that is not ours; return how many there are."""
    found = store.ideas.of_run(run_id)
    for record in found:
        idea = store.ideas.get(record.id, caller=SEES_ALL).idea
        validator: Any = jsonschema.Draft202012Validator(cast("Any", idea.schema))
        validator.validate(idea.solution)
    return len(found)


TEXTS = one_of(
    "a",
    "†input.name",
    "†state.x",
    "†results.0",
    "†results.1",
    "†results.2",
    "††dagger",
    "†nowhere.x",
)
VALUES: st.SearchStrategy[JSON] = TEXTS | one_of(1, None, True, 1.5, [], {}, ["†state.x"], {"n": 1})
_OBJECTS: st.SearchStrategy[JSON] = st.fixed_dictionaries(
    {"_tool": one_of("shout", "shout", "fail", "send", "mood", "shuot", "", 5)},
    optional={
        "text": VALUES,
        "times": one_of(1, "†input.count", "†input.name", "two"),
        "why": TEXTS,
        "to": TEXTS,
        "_module": one_of(None, "nowhere", "anonymous", 5),
        "_activity": one_of(None, "shout", "unknown"),
        "_instance": one_of(None, "①", "②", "③", 7),
        "_imports": one_of([], ["input"], ["†state.x"], "input", [5]),
        "_output": VALUES,
        "_outputPath": one_of("x", "x || y", "†state.x", "", None, 5, "{{x}}"),
        "_outputMethod": one_of("set", "push", "pull", None),
        "_each": one_of("†input.names", "†input.name", ["a"], 5),
        "_after": one_of("i", ["i"], [], None, 5),
        "_id": one_of("i", None, 5),
        "unknown": one_of(1),
    },
)
CALLS: st.SearchStrategy[JSON] = _OBJECTS | one_of(
    "text", 5, None, '{"_tool": "shout", "text": "a"}'
)
LISTS: st.SearchStrategy[JSON] = st.lists(CALLS, max_size=5).map(list[JSON])
SOLUTIONS: st.SearchStrategy[JSONObject] = st.fixed_dictionaries(
    {},
    optional={
        "thought_process": one_of("so", 5, None),
        "confidence": one_of(0.5, "high"),
        "pattern": one_of("any", "all", 5),
        "mood": one_of("calm"),
        "calls": LISTS | LISTS.map(encode_text) | CALLS | one_of(None),
        "output": VALUES | one_of({"n": "†results.0"}, {"n": "one"}, {"value": 3}, '{"n": 1}'),
        "program": one_of(
            None, "", 5, "1 + 1", "from tools import shout\nawait shout(text='a')", "no("
        ),
    },
)


class Writer:
    """Streams solutions, each maybe cut off."""

    name = "writer"

    def __init__(self, answers: list[tuple[JSONObject, float]]) -> None:
        self.answers = answers

    async def answer(self, request: Request) -> AsyncIterator[str]:
        nothing: JSONObject = {"calls": [], "output": None}
        solution, share = self.answers.pop(0) if self.answers else (nothing, 1.0)
        text = json.dumps(solution, ensure_ascii=False)
        text = text[: int(len(text) * share)]
        for start in range(0, len(text), 7):
            yield text[start : start + 7]


CONTEXT: list[JSON] = [
    {"type": "sure", "sure": 1},
    {"type": "input", "input": {"name": "n", "count": 2, "names": ["a"]}},
]
TWO: list[JSON] = [{"type": "state", "state": {"x": "a"}, "_instance": one} for one in ("①", "②")]
MANY = settings(max_examples=40)


def toolbox() -> Toolbox:
    box = Toolbox(shout, fail, send)
    box.add(MOOD)
    return box


def configuration(*, thoughts: bool) -> Configuration:
    return Configuration(approval="allow_all", thought_process=thoughts)


@MANY
@given(
    st.lists(SOLUTIONS, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(OUTPUTS),
    st.booleans(),
    st.sampled_from(["eager", "lazy"]),
)
def test_solutions_that_are_handed_in_by_turns(
    answers: list[JSONObject],
    thoughts: bool,
    output: JSONObject | None,
    instances: bool,
    planning: Any,
) -> None:
    async def main() -> None:
        async with Bridge(
            configuration(thoughts=thoughts), toolbox=toolbox(), handlers=handlers()
        ) as bridge:
            context = [*CONTEXT, *(TWO if instances else [])]
            run = await bridge.solve("x", context=context, output_schema=output, planning=planning)
            for answer in answers:
                if await run.wait(30) != "needs_solution":
                    break
                try:
                    run.submit(run.turn, answer)
                except IdeabridgeError:
                    continue
                await run.wait(30)
                for waiting in run.pending():
                    await bridge.decide(run, waiting.approval, Decision("approve"))
                    await run.wait(30)
            await run.wait(0)
            run.cancel()
            check(bridge.store, run.id)

    run_async(main)


@MANY
@given(
    st.lists(st.tuples(SOLUTIONS, st.sampled_from([1.0, 1.0, 0.8, 0.4])), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(OUTPUTS),
)
def test_solutions_that_stream_in_and_break_off(
    answers: list[tuple[JSONObject, float]], thoughts: bool, output: JSONObject | None
) -> None:
    async def main() -> None:
        writer = Writer(answers)
        async with Bridge(
            configuration(thoughts=thoughts), toolbox=toolbox(), handlers=handlers(), mind=writer
        ) as bridge:
            run = await bridge.solve("x", context=CONTEXT, output_schema=output)
            await run.wait(30)
            assert check(bridge.store, run.id) >= 1

    run_async(main)


@MANY
@given(
    LISTS,
    VALUES,
    st.sampled_from([None, OUTPUT, {"type": ["integer", "null"]}, {"type": "string"}]),
    st.booleans(),
)
def test_plans(calls: JSON, output: JSON, schema: JSONObject | None, instances: bool) -> None:
    async def main() -> None:
        plan: JSONObject = {
            "calls": calls,
            "output": output,
            "input": {"name": "n", "count": 2, "names": ["a"]},
        }
        if schema is not None:
            plan["output_schema"] = schema

        if instances:
            plan["instances"] = {"①": {"x": "a"}, "②": {}}

        async with Bridge(configuration(thoughts=False), toolbox=toolbox()) as bridge:
            try:
                run = await bridge.run_plan(plan)
            except IdeabridgeError:
                return

            await run.wait(30)
            run.cancel()
            check(bridge.store, run.id)

    run_async(main)


# -- examples --------------------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("error")


async def by_turns(bridge: Bridge, *answers: JSON, **members: Any) -> Run:
    run = await bridge.solve("x", **members)
    for answer in answers:
        await run.wait()
        run.submit(run.turn, answer)
    await run.wait()
    return run


def solutions(bridge: Bridge, run: Run) -> list[Any]:
    check(bridge.store, run.id)
    return [
        bridge.store.ideas.get(one.id, caller=SEES_ALL).idea.solution
        for one in bridge.store.ideas.of_run(run.id)
    ]


@pytest.mark.anyio
async def test_what_the_schema_does_not_know_is_left_out_and_the_mind_is_told() -> None:
    async with Bridge(configuration(thoughts=True), toolbox=toolbox()) as bridge:
        odd: JSONObject = {
            "thought_process": "so",
            "mood": "calm",
            "pattern": "any",
            "calls": [{"_tool": "shout", "text": "a"}],
        }
        run = await by_turns(bridge, odd)
        said = "\n".join(str(text["content"]) for text in run.answer()["requests"][0]["context"])
        assert (
            "Left out of your last solution: 'mood', 'pattern' (the schema has no such member"
            in said
        )
        assert run.errors() == []
        run.submit(1, {"thought_process": 5, "calls": []})
        await run.wait()
        assert "thought_process: found 5, expected text" in str(run.errors())
        run.submit(2, {"calls": [{"_tool": "shout", "text": "a"}]})
        await run.wait()
        assert "thought_process: missing, expected text (required)" in str(run.errors())
        # There is no mind left that could be told.
        run.submit(3, {"output": "done"})
        assert await run.result() == "done"
        assert run.errors() == []
        first, *others = solutions(bridge, run)
        assert first == {"thought_process": "so", "calls": odd["calls"], "output": None}
        assert [one["thought_process"] for one in others] == ["", "", ""]


@pytest.mark.anyio
async def test_a_malformed_call_is_left_out_and_the_others_mean_the_same() -> None:
    async with Bridge(configuration(thoughts=False), toolbox=toolbox()) as bridge:
        calls: list[JSON] = [
            {"_tool": "shout", "text": "a"},
            {"_tool": "shuot", "text": "b"},
            {"_tool": "shout", "text": "c"},
            {"_tool": "shout", "text": "†results.1"},
            {"_tool": "shout", "text": "†results.2", "_after": "x", "_id": None},
            {"_tool": "shout", "text": "e", "_id": "x"},
        ]
        run = await by_turns(bridge, {"calls": calls, "output": "†results.4"})
        assert run.machine.output == "C"
        [stored] = solutions(bridge, run)
        assert stored == {
            "calls": [
                {"_tool": "shout", "text": "a"},
                {"_tool": "shout", "text": "c"},
                {"_tool": "shout", "text": "†results.1", "_after": ["x"]},
                {"_tool": "shout", "text": "e", "_id": "x"},
            ],
            "output": "†results.2",
        }
        again = await by_turns(bridge, stored)
        assert again.machine.output == "C"
        meta = bridge.store.ideas.of_run(run.id)[0].meta
        assert meta.written == {"calls": calls, "output": "†results.4"}


@pytest.mark.anyio
async def test_a_program_and_a_group_are_stored_as_their_schema_says() -> None:
    async with Bridge(configuration(thoughts=False), toolbox=toolbox()) as bridge:
        program = "from tools import shout\nawait shout(text='a')"
        run = await by_turns(
            bridge, {"program": program, "calls": [], "output": None, "pattern": "any"}
        )
        assert solutions(bridge, run) == [{"program": program}]
        plan = await bridge.run_plan({"program": program})
        assert await plan.result() == "A"
        assert solutions(bridge, plan) == [{"program": program}]
        async with bridge.session() as session:
            calls: list[JSON] = [{"_tool": "fail", "why": "no"}, {"_tool": "shout", "text": "b"}]
            await session.run_any(cast("Any", calls))
            await session.run({"_tool": "shout", "text": "c"})
            run = session.underlying
        assert [one.get("pattern") for one in solutions(bridge, run)] == ["any", None]


@pytest.mark.anyio
async def test_denied_edited_and_container_ideas() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        calls: list[JSON] = [{"_tool": "send", "to": one} for one in ("a", "b")]
        run = await by_turns(bridge, {"calls": calls, "output": None})
        first, second = run.pending()
        await bridge.decide(run, first.approval, Decision("deny", reason="no"))
        await bridge.decide(
            run, second.approval, Decision("edit", call={"_tool": "shout", "text": "loud"})
        )
        await run.wait()
        assert solutions(bridge, run) == [{"calls": calls, "output": None}]
        run.submit(1, {})
        await run.wait()
        run.submit(2, {})
        assert await run.wait() == "stalled"
        container: JSON = {"calls": [], "output": None}
        assert solutions(bridge, run)[1:] == [container, container]


@pytest.mark.anyio
async def test_the_edited_plan_of_a_lazy_run_is_what_is_stored() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await by_turns(
            bridge, {"calls": [{"_tool": "shout", "text": "a"}], "mood": "calm"}, planning="lazy"
        )
        [waiting] = run.pending()
        edited: JSONObject = {"calls": [{"_tool": "shout", "text": "b"}], "output": "†results.0"}
        await bridge.decide(run, waiting.approval, Decision("edit", plan=edited))
        assert await run.result() == "B"
        assert solutions(bridge, run) == [edited]


@pytest.mark.anyio
async def test_a_recording_answers_with_what_was_written() -> None:
    odd: JSONObject = {
        "mood": "calm",
        "calls": [{"_tool": "shuot", "text": "b"}, {"_tool": "shout", "text": "a", "_id": None}],
    }
    with Store.open(":memory:") as store:
        async with Bridge(configuration(thoughts=False), toolbox=toolbox(), store=store) as bridge:
            run = await by_turns(bridge, odd, {"calls": [], "output": "†results.1"})
            assert run.machine.output == "A"
            mind = Recorded(store)
            async with Bridge(configuration(thoughts=False), toolbox=toolbox(), mind=mind) as other:
                again = await other.solve("x")
                assert await again.result() == "A"


def test_the_schema_of_a_program_says_what_is_accepted() -> None:
    schema = solution_schema([], None, program={"type": "string"})
    validator = Validator(schema, what="the solution")
    whole: JSONObject = {"calls": [], "output": None}
    rows: list[tuple[JSONObject, bool]] = [
        (whole, True),
        ({"program": "1"}, True),
        ({**whole, "program": "1"}, False),
        ({}, False),
        ({"calls": []}, False),
    ]
    for solution, is_valid in rows:
        assert validator.is_valid(solution) is is_valid

    plain = encode_text(solution_schema([], None))
    # This takes only a few tokens in every Request that offers programs.
    assert len(encode_text(schema)) - len(plain) - len('"program":{"type":"string"},') < 45
