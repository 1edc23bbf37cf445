"""Ideas written by hand: a document becomes a tool, by what it holds, and nothing runs before the
tool is called.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import (
    Bridge,
    Configuration,
    IdeaDocumentError,
    NameInUseError,
    PublicationError,
    Run,
    SavedIdea,
)
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.publishing.written import read_idea
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.documents import read_written
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

IDEAS = Path(__file__).parent.parent.parent / "examples" / "ideas"
EXAMPLES = {
    path.stem: read_written(path.read_bytes(), what=path.name, name=path.name)
    for path in sorted(IDEAS.iterdir())
    if path.suffix != ".md"
}
ANSWERS = {
    "company": "recorded",
    "vat_rate": "recorded",
    "contact": "plan",
    "invoice": "plan",
    "order": "plan",
    "quarters": "plan",
    "with_tax": "plan",
    "longest_words": "program",
    "translate": "solve",
    "estimate": "solve",
}
INPUT: dict[str, JSON] = {"type": "input", "input": {"n": 2}}
DOUBLE: dict[str, JSON] = {
    "_tool": "compute",
    "code": "n * 2",
    "n": "†input.n",
    "_outputPath": "double",
}


def published(saved: SavedIdea) -> Publication:
    assert saved.publication is not None
    return saved.publication


async def answer(bridge: Bridge, name: str, /, **arguments: Any) -> Any:
    replay = await bridge.start_idea(name, arguments)
    if replay.run is None:
        return replay.output
    assert await replay.run.wait() == "done", replay.run.errors()
    return replay.run.given()


# -- by what it holds ------------------------------------------------------------------------------


def test_the_examples_hold_every_way_of_answering() -> None:
    assert {name: read_idea(document).answer for name, document in EXAMPLES.items()} == ANSWERS


async def test_the_examples_are_tools_that_answer() -> None:
    async with Bridge(store=":memory:") as bridge:
        for name in sorted(EXAMPLES, key=lambda name: name == "invoice"):
            saved = await bridge.save_idea(EXAMPLES[name])
            assert published(saved).name == name
            assert published(saved).answer == ANSWERS[name]
            assert saved.missing == ()
        assert bridge.runs() == []
        assert (await answer(bridge, "company"))["name"] == "Example Ltd"
        assert await answer(bridge, "vat_rate", country="DE") == {"percent": 19}
        with pytest.raises(PublicationError, match="answers only for the input"):
            await answer(bridge, "vat_rate", country="FR")
        assert await answer(bridge, "with_tax", net=50) == {"tax": 9.5, "gross": 59.5}
        assert await answer(bridge, "contact", first="Bo", last="Li") == {
            "family_name": "Li",
            "given_name": "Bo",
            "source": "form",
        }
        assert (await answer(bridge, "order", fruit="pear", count=2))["sum"] == 18
        assert await answer(bridge, "quarters", goal=70) == {
            "q1": {"sum": 60, "reached": False},
            "q2": {"sum": 75, "reached": True},
        }
        assert await answer(bridge, "longest_words", text="a bbb cc bbb dddd", most=2) == [
            "dddd",
            "bbb",
        ]
        assert (await answer(bridge, "invoice", items=[{"name": "x", "net": 10}]))["total"] == 11.9
        replay = await bridge.start_idea("translate", {"text": "Hello", "language": "French"})
        assert replay.run is not None
        assert await replay.run.wait() == "needs_solution"
        assert all(verdict.faults == [] for verdict in await bridge.verify())


async def test_a_plan_takes_defaults_and_refuses_what_does_not_fit() -> None:
    async with Bridge(store=":memory:") as bridge:
        await bridge.save_idea(EXAMPLES["with_tax"])
        assert (await answer(bridge, "with_tax", net=100, percent=7))["tax"] == 7
        with pytest.raises(IdeabridgeError, match="net"):
            await bridge.start_idea("with_tax", {"net": "much"})


@pytest.mark.parametrize(
    ("solution", "way"),
    [
        ({"calls": [DOUBLE]}, "plan"),
        ({"calls": [DOUBLE], "output": {"is": "†state.double"}}, "plan"),
        ({"output": {"is": "†input.n"}}, "plan"),
        ({"output": {"is": "††input.n"}}, "recorded"),
        ({"output": 0}, "recorded"),
        ({"output": False}, "recorded"),
        ({"calls": [], "output": None}, "solve"),
        (None, "solve"),
        ({"program": "input['n']"}, "program"),
        (json.dumps({"calls": [DOUBLE]}), "plan"),
        ([DOUBLE], "plan"),
    ],
)
def test_a_document_answers_by_what_it_holds(solution: JSON, way: str) -> None:
    written = read_idea({"context": [INPUT], "solution": solution})
    assert written.answer == way
    Validator(cast("JSONObject", written.idea.schema), what="it").check(written.idea.solution)


@pytest.mark.parametrize("way", ["plan", "solve", "program", "recorded"])
async def test_answer_chooses_otherwise_or_says_what_is_missing(way: Any) -> None:
    document = {"name": "it", "context": [INPUT], "answer": way, "solution": {"calls": [DOUBLE]}}
    async with Bridge(store=":memory:") as bridge:
        if way in ("plan", "solve"):
            assert published(await bridge.save_idea(document)).answer == way
        else:
            with pytest.raises(
                PublicationError, match=f"the answer cannot be '{way}': its solution has no"
            ):
                await bridge.save_idea(document)
            assert bridge.store.ideas.page().items == []


async def test_an_escaped_dagger_is_a_dagger() -> None:
    async with Bridge(store=":memory:") as bridge:
        await bridge.save_idea({"name": "it", "context": [], "solution": {"output": ["††x"]}})
        assert await answer(bridge, "it") == ["†x"]


async def test_messages_may_have_any_spelling() -> None:
    spelled: list[JSON] = [
        "text",
        {"role": "user", "content": {"type": "input", "input": {"n": 2}}},
        {"type": "data", "kind": "rate", "data": 3},
        {"type": "factor", "factor": 5},
        {"role": "system", "content": {"type": "state", "state": {"base": 1}}},
    ]
    call = {
        "_tool": "compute",
        "code": "n * rate * factor + base",
        "n": "†input.n",
        "base": "†state.base",
    }
    call |= {"rate": "†data.rate", "factor": "†data.factor"}
    async with Bridge(store=":memory:") as bridge:
        document = {
            "name": "it",
            "context": spelled,
            "solution": {"calls": [call], "output": "†results.0"},
        }
        await bridge.save_idea(document)
        assert await answer(bridge, "it", n=4) == 61


async def test_an_input_may_be_only_its_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with Bridge(store=":memory:") as bridge:
        context = [{"type": "input", "schema": schema}]
        await bridge.save_idea({"name": "it", "context": context, "solution": {"calls": [DOUBLE]}})
        assert await answer(bridge, "it", n=21) == {"double": 42}
        with pytest.raises(IdeabridgeError, match="the input"):
            await bridge.save_idea({"name": "no", "context": context, "solution": {"output": 1}})


async def test_an_output_that_may_be_null_is_what_the_author_wrote() -> None:
    schema = {"type": ["string", "null"]}
    async with Bridge(store=":memory:") as bridge:
        plan = {"calls": [DOUBLE], "output": "†input.name"}
        saved = await bridge.save_idea(
            {
                "name": "it",
                "context": [{"type": "input", "input": {"n": 1, "name": None}}],
                "schema": schema,
                "solution": plan,
            }
        )
        assert published(saved).output_schema == schema
        assert await answer(bridge, "it", n=1, name="Ann") == "Ann"
        assert await answer(bridge, "it", n=1, name=None) is None
        assert bridge.written_idea("it") == {
            "name": "it",
            "context": [{"type": "input", "input": {"n": 1, "name": None}}],
            "schema": schema,
            "solution": plan,
        }


def test_a_schema_is_that_of_a_solution_only_if_it_describes_calls() -> None:
    composed = read_idea({"context": ["x"], "schema": {"type": "object"}}).idea.schema
    assert isinstance(composed, dict)
    assert SolutionSchema.read(composed).is_complete
    again = read_idea({"context": ["x"], "schema": composed})
    assert again.idea.schema == composed
    assert again.schema is not None
    assert again.schema["type"] == "object"
    own: dict[str, JSON] = {
        "type": "object",
        "properties": {"calls": {"type": "array", "items": {"type": "string"}}, "output": {}},
    }
    assert not SolutionSchema.read(own).is_complete
    calls_are_numbers: JSON = {"properties": {"calls": {"type": "integer"}, "output": {}}}
    assert not SolutionSchema.read(calls_are_numbers).is_complete


# -- what is refused -------------------------------------------------------------------------------


MALFORMED: list[tuple[Any, str]] = [
    (5, "expected an object"),
    ({}, "context: missing"),
    ({"context": []}, "has no content"),
    ({"context": ["x"], "titel": 1}, "'titel'|titel"),
    ({"context": ["x"], "calls": []}, "write it inside the solution"),
    ({"context": ["x"], "ideabridge": 2}, "ideas import"),
    ({"context": ["x"], "name": 5}, "name: expected text"),
    ({"context": ["x"], "name": "No Name"}, "no_name"),
    ({"context": ["x"], "answer": "maybe"}, "answer: expected"),
    ({"context": ["x"], "schema": 5}, "schema: expected"),
    ({"context": ["x"], "schema": {"type": "nonsense"}}, "schema"),
    ({"context": [{"type": "input", "input": 5}]}, "context.0: input must be an object"),
    ({"context": ["x", 5]}, "context.1: expected"),
    ({"context": [INPUT, INPUT]}, "found more than one input"),
    ({"context": [{"type": "tool", "tool": {}}]}, "requires a tool with a name"),
    ({"context": ["x"], "solution": {"program": 5}}, "solution.program"),
    ({"context": ["x"], "solution": {"program": "1", "calls": [DOUBLE]}}, "leave calls out"),
    ({"context": ["x"], "solution": {"output": "†state.["}}, "solution.output"),
    ({"context": ["x"], "solution": {"calls": [5]}}, "solution: "),
    ({"context": ["x"], "solution": {"output": 5}, "schema": {"type": "string"}}, "output"),
    ({"context": [{**INPUT, "schema": {"required": ["m"]}}]}, "m"),
    ({"context": ["x"], "tools": "compute"}, "tools: expected an array"),
    ({"context": ["x"], "description": "x" * 5000}, "description has 5,000 characters"),
    ({"context": ["x"], "solution": {"output": float("nan")}}, "nan|NaN"),
]


@pytest.mark.parametrize(("document", "why"), MALFORMED)
async def test_what_is_malformed_is_refused_with_its_place(document: Any, why: str) -> None:
    async with Bridge(store=":memory:") as bridge:
        with pytest.raises(IdeabridgeError, match=why):
            await bridge.save_idea(document, name="it")
        assert bridge.store.ideas.page().items == []


@pytest.mark.parametrize(
    ("solution", "why"),
    [
        (
            {"calls": [{"_tool": "compute", "n": 1}]},
            "solution: the plan cannot run with the tools available here.*code",
        ),
        (
            {"calls": [{"_tool": "compute", "code": "1", "n": "†state.never"}]},
            "solution: the plan cannot run",
        ),
        ({"calls": [{"_tool": "it", "_module": "idea:it"}]}, "it would call itself"),
        ({"program": "from ideas import it\nawait it()"}, "solution|it"),
        ({"program": "nonsense here"}, "solution: the plan cannot run"),
    ],
)
async def test_what_cannot_run_here_is_refused(solution: JSON, why: str) -> None:
    async with Bridge(store=":memory:") as bridge:
        with pytest.raises(PublicationError, match=why):
            await bridge.save_idea({"name": "it", "context": [INPUT], "solution": solution})
        assert bridge.store.ideas.page().items == []


async def test_a_tool_that_is_not_here_is_named_and_may_come_later() -> None:
    call = {"_tool": "send", "_module": "mail", "to": "†input.to", "_outputPath": "sent"}
    document = {
        "name": "it",
        "context": [{"type": "input", "input": {"to": "x"}}],
        "solution": {"calls": [call]},
    }
    async with Bridge(store=":memory:") as bridge:
        saved = await bridge.save_idea(document)
        assert "'mail' is not configured here" in saved.missing[0]
        assert published(saved).annotations["destructiveHint"] is True
        saved = await bridge.save_idea(
            {"name": "asks", "context": ["Send it"], "tools": ["mail.send", "compute"]}
        )
        assert "'mail' is not configured here" in saved.missing[0]
        with pytest.raises(PublicationError, match="no tool here matches 'mail_\\*'"):
            await bridge.save_idea({"name": "none", "context": ["Send it"], "tools": ["mail_*"]})


async def test_a_mind_gets_the_tools_that_the_document_names_and_no_others() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send), store=":memory:") as bridge:
        listed: list[tuple[str, dict[str, JSON], set[str]]] = [
            ("none", {}, set()),
            ("one", {"tools": ["sen*"]}, {"send"}),
            ("called", {"answer": "solve", "solution": {"calls": [DOUBLE]}}, {"compute"}),
        ]
        for name, members, tools in listed:
            saved = await bridge.save_idea({"name": name, "context": ["Do it", INPUT], **members})
            assert published(saved).annotations["readOnlyHint"] is (name != "one")
            replay = await bridge.start_idea(name, {"n": 1})
            assert replay.run is not None
            await replay.run.wait()
            offered = json.dumps(replay.run.answer()["requests"][0]["schema"])
            assert {
                tool for tool in ("send", "compute") if f'"const": "{tool}"' in offered
            } == tools


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


# -- versions --------------------------------------------------------------------------------------


async def test_saving_twice_makes_no_version_and_a_change_makes_one() -> None:
    async with Bridge(store=":memory:") as bridge:
        for name in sorted(EXAMPLES, key=lambda name: name == "invoice"):
            document = EXAMPLES[name]
            assert isinstance(document, dict)
            first = await bridge.save_idea(document)
            again = await bridge.save_idea(document)
            assert again.is_unchanged
            assert published(again).version == 1
            # Writing it a second time results in the same idea.
            back = bridge.written_idea(name)
            assert back is not None
            assert (await bridge.save_idea(back)).is_unchanged
            assert bridge.written_idea(name) == back
            changed = {**document, "description": "Another one"}
            with pytest.raises(NameInUseError, match=f"{name}@1") as caught:
                await bridge.save_idea(changed, replace=[])
            assert any("Another one" in line for line in caught.value.lines)
            second = await bridge.save_idea(changed)
            assert published(second).version == 2
            assert second.before is not None
            assert second.before.version == published(first).version


async def test_an_idea_without_a_name_is_saved_and_published_later() -> None:
    async with Bridge(store=":memory:") as bridge:
        saved = await bridge.save_idea({"context": [INPUT], "solution": {"calls": [DOUBLE]}})
        assert saved.publication is None
        found = await bridge.publish(saved.idea_id, "double")
        assert found.answer == "plan"
        assert await answer(bridge, "double", n=4) == {"double": 8}
        with pytest.raises(PublicationError, match="name: a tool needs a name"):
            await bridge.save_idea({"context": ["x"]}, publish=True)
        unpublished = await bridge.save_idea({"name": "it", "context": ["x"]}, publish=False)
        assert unpublished.publication is None


async def test_what_a_run_made_is_not_written_by_hand() -> None:
    async with Bridge(store=":memory:") as bridge:
        run = await bridge.run_plan({"calls": [DOUBLE], "input": {"n": 2}})
        assert await run.wait() == "done"
        await bridge.publish(run.id, "double")
        assert bridge.written_idea("double") is None
        assert bridge.written_idea(run.id) is None


async def test_a_document_from_elsewhere_cannot_say_that_it_was_written_here() -> None:
    async with Bridge(store=":memory:") as bridge:
        await bridge.save_idea({"name": "it", "context": [INPUT], "solution": {"calls": [DOUBLE]}})
        document = bridge.export_idea("it")
    async with Bridge(store=":memory:") as other:
        await other.import_idea(document, publish=True)
        assert other.written_idea("it") is None
        assert await answer(other, "it", n=4) == {"double": 8}


async def test_secrets_are_refused() -> None:
    module = ModuleConfiguration(
        command="no-such-program", env={"TOKEN": "swordfish-and-chips"}, disabled=True
    )
    servers = {"mail": module.model_dump(exclude_defaults=True)}
    configuration = Configuration.model_validate({"mcpServers": servers})
    async with Bridge(configuration, store=":memory:") as bridge:
        with pytest.raises(IdeabridgeError, match="TOKEN"):
            await bridge.save_idea({"name": "it", "context": ["opened with swordfish-and-chips"]})
        assert bridge.store.ideas.page().items == []


def test_documents_of_others_are_named_as_such() -> None:
    with pytest.raises(IdeaDocumentError, match="tools"):
        read_idea({"context": ["x"], "tols": []})


# -- every document is read or refused -------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["†input.n", "††x", "x", "†state.", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["_tool", "n", "value"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {
            "context": st.lists(
                st.sampled_from([INPUT, "text", {"type": "state", "state": {}}]), max_size=3
            )
        },
        optional={
            "schema": st.sampled_from([{}, True, {"type": "string"}, {"type": ["object", "null"]}]),
            "solution": st.fixed_dictionaries(
                {}, optional={"calls": st.lists(VALUES, max_size=2), "output": VALUES}
            ),
            "answer": st.sampled_from(["auto", "plan", "recorded", "solve", "program"]),
        },
    )
)
def test_a_stored_solution_satisfies_its_stored_schema(document: dict[str, Any]) -> None:
    try:
        written = read_idea(document)
    except IdeabridgeError:
        return

    schema = written.idea.schema
    assert isinstance(schema, dict)
    Validator(schema, what="the solution").check(written.idea.solution)
    # Reading it again from its parts gives the same idea, too.
    again = read_idea(
        {"context": written.idea.context, "schema": schema, "solution": written.idea.solution}
    )
    assert again.idea.id == written.idea.id


# -- what no finished run made ---------------------------------------------------------------------


async def test_an_imported_idea_becomes_a_tool() -> None:
    async with Bridge(store=":memory:") as there, Bridge(store=":memory:") as bridge:
        run = await there.run_plan(
            {"calls": [DOUBLE], "input": {"n": 2}, "output": "†state.double"}
        )
        assert await run.wait() == "done"
        imported = await bridge.import_idea(there.export_idea(run.id))
        found = await bridge.publish(imported.idea_id, "double")
        assert (found.answer, found.idea_id) == ("plan", imported.idea_id)
        assert await answer(bridge, "double", n=5) == 10
        with pytest.raises(PublicationError, match="choices"):
            await bridge.publish(imported.idea_id, "double", choices={"take": {}}, strict=True)


async def test_a_container_becomes_a_question() -> None:
    async with Bridge(store=":memory:") as bridge:
        saved = await bridge.save_idea(
            {"context": ["Say a number", INPUT], "schema": {"type": "integer"}}
        )
        found = await bridge.publish(saved.idea_id, "number")
        assert found.answer == "solve"
        assert found.output_schema == {"type": "integer"}
        replay = await bridge.start_idea("number", {"n": 3})
        assert replay.run is not None
        await replay.run.wait()
        replay.run.submit(0, {"calls": [], "output": 7})
        assert await replay.run.wait() == "done"
        assert replay.run.given() == 7


async def test_a_run_that_was_cancelled_is_what_it_did() -> None:
    async with Bridge(store=":memory:") as bridge:
        run = await bridge.solve("Double it", input={"n": 3})
        await run.wait()
        run.submit(0, {"calls": [DOUBLE], "output": None})
        assert await run.wait() == "needs_solution"
        with pytest.raises(PublicationError, match="is needs_solution and has not ended"):
            await bridge.publish(run.id, "early")
        run.cancel("enough")
        assert await run.wait() == "cancelled"
        found = await bridge.publish(run.id, "double")
        assert "It does what its run did before the run ended (cancelled)" in found.description
        assert await answer(bridge, "double", n=8) == {"double": 16}
        with pytest.raises(PublicationError, match="there is no output to record"):
            await bridge.publish(run.id, "double", answer="recorded")
        assert (await bridge.publish(run.id, "asked", answer="solve")).answer == "solve"


async def test_a_run_that_was_cancelled_before_its_first_answer_is_its_question() -> None:
    async with Bridge(store=":memory:") as bridge:
        run = await bridge.solve(
            "Say a number", input={"n": 2}, tools=["compute"], output_schema={"type": "integer"}
        )
        assert await run.wait() == "needs_solution"
        with pytest.raises(PublicationError, match="has not ended; cancel it first"):
            await bridge.publish(run.id, "number")
        run.cancel("later")
        await run.wait()
        found = await bridge.publish(run.id, "number")
        assert (found.answer, found.output_schema) == ("solve", {"type": "integer"})
        assert (found.guide or {})["tools"] == [[None, "compute"]]
        with pytest.raises(PublicationError, match="its solution has no calls; write them"):
            await bridge.publish(run.id, "number", answer="plan")


async def test_a_program_that_was_cancelled_is_published_as_it_was_written() -> None:
    program = (
        "from tools import compute, sleep\nd = await compute(code='n * 2', "
        "n=input['n'])\nawait sleep(seconds=30)\nd"
    )
    async with Bridge(store=":memory:") as bridge:
        run = await bridge.run_program(program, input={"n": 2})
        with anyio.fail_after(20):
            while not any(one.status.value == "done" for one in run.calls()):
                await bridge_step(run)
        run.cancel("too slow")
        assert await run.wait() == "cancelled"
        found = await bridge.publish(run.id, "double")
        assert found.answer == "program"
        assert (found.plan or {})["program"] == program


async def bridge_step(run: Run) -> None:
    """Wait for the next event of a run."""
    happened = anyio.Event()
    with run.watching(lambda _: happened.set()):
        await happened.wait()


async def test_a_plan_that_was_only_looked_at_is_published_as_it_was_written() -> None:
    async with Bridge(store=":memory:") as bridge:
        run = await bridge.solve("Double it", input={"n": 2}, planning="lazy")
        await run.wait()
        run.submit(0, {"calls": [DOUBLE], "output": {"is": "†state.double"}})
        assert await run.wait() == "needs_approval"
        run.cancel("not now")
        assert await run.wait() == "cancelled"
        found = await bridge.publish(run.id, "double")
        assert found.answer == "plan"
        assert await answer(bridge, "double", n=8) == {"is": 16}


async def test_ideas_that_call_each_other_in_many_ways_are_looked_at_once() -> None:
    # If the same idea were examined once for every path to it, the time would double with each
    # idea, and 22 ideas would take longer than a test may.
    async with Bridge() as bridge:
        calls: list[JSON] = []
        for number in range(22):
            document: JSON = {"context": ["x"], "solution": {"calls": [*calls], "output": 1}}
            await bridge.save_idea(document, name=f"idea_{number}")
            calls.append({"_tool": f"idea_{number}"})
        saved = published(
            await bridge.save_idea({"context": ["x"], "solution": {"calls": calls}}, name="final")
        )
        assert saved.annotations["readOnlyHint"] is True
        assert bridge.hints(saved)["readOnlyHint"] is True


async def test_a_circle_of_ideas_is_refused_also_by_plain_names_and_before_all_are_here() -> None:
    async with Bridge() as bridge:

        def calling(name: str, *context: JSON) -> JSON:
            return {
                "context": ["x", *context],
                "solution": {"calls": [{"_tool": name, "_outputPath": "x"}]},
            }

        with pytest.raises(PublicationError, match="it would call itself: own -> own"):
            await bridge.save_idea(calling("own"), name="own")
        assert (await bridge.save_idea(calling("second"), name="first")).missing
        await bridge.save_idea(calling("first"), name="third")
        with pytest.raises(
            PublicationError, match="it would call itself: second -> third -> first -> second"
        ):
            await bridge.save_idea(calling("third"), name="second")
        # A tool that the idea defines itself is not the idea with the same name.
        feel: JSON = {"type": "tool", "tool": {"name": "feel", "parameters": {"type": "object"}}}
        assert published(await bridge.save_idea(calling("feel", feel), name="feel")).version == 1
        assert (
            published(await bridge.save_idea(calling("feel", feel, "more"), name="feel")).version
            == 2
        )


async def test_a_plan_without_parameters_reads_no_input() -> None:
    document: JSON = {"context": ["x"], "solution": {"calls": [DOUBLE], "output": "†state.double"}}
    async with Bridge() as bridge:
        with pytest.raises(PublicationError, match=r"nothing supplies †input\.n"):
            await bridge.save_idea(document, name="double")
        schema: JSON = {
            "type": "object",
            "properties": {"number": {"type": "number"}},
            "required": ["number"],
        }
        calls: list[JSON] = [{**DOUBLE, "n": "†input.nmber"}]
        written: JSON = {
            "context": [{"type": "input", "schema": schema}],
            "solution": {"calls": calls},
        }
        with pytest.raises(
            PublicationError, match=r"nothing supplies †input\.nmber: .* Did you mean 'number'\?"
        ):
            await bridge.save_idea(written, name="double")


async def test_a_question_with_a_tool_that_is_missing_gets_the_most_cautious_hints() -> None:
    async with Bridge() as bridge:
        saved = published(
            await bridge.save_idea({"context": ["x"], "tools": ["sweep"]}, name="cleaning")
        )
        assert saved.annotations["readOnlyHint"] is False
        assert saved.annotations["destructiveHint"] is True


async def test_the_name_of_a_missing_tool_is_not_taken_by_an_idea_of_another_user() -> None:
    document: JSON = {
        "context": ["x"],
        "solution": {"calls": [{"_tool": "helper", "_outputPath": "x"}]},
    }
    helper: JSON = {"context": ["x"], "solution": {"output": "what it gives"}}
    async with Bridge() as bridge:
        assert (await bridge.save_idea(document, name="mine", caller="user:alice")).missing
        await bridge.save_idea(helper, name="helper", to="all", caller="user:bob")
        with pytest.raises(
            PublicationError, match="another user has since published an idea with this name"
        ):
            await bridge.start_idea("mine", {}, caller="user:alice")

        # The caller who publishes it now has seen that idea, or can see it.
        saved = await bridge.save_idea(
            {"context": ["again"], "solution": document["solution"]},
            name="second",
            caller="user:alice",
        )
        assert saved.missing == ()
        assert (await bridge.start_idea("second", {}, caller="user:alice")).run is not None


def test_a_misspelled_member_of_a_solution_is_refused() -> None:
    document: JSON = {"context": ["x"], "solution": {"calls": [DOUBLE], "ouput": "†state.double"}}
    with pytest.raises(
        IdeaDocumentError, match=r"solution\.ouput: unknown key; .* Did you mean 'output'\?"
    ):
        read_idea(document)
