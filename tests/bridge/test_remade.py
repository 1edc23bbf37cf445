"""Any Request of a run is made again from its exported idea alone, and an export has private
results only if asked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema_rs
import pytest

from ideabridge.bridge import Bridge, Store, remake
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.store.errors import IdeaDocumentError
from ideabridge.bridge.store.idea import Idea
from ideabridge.bridge.store.results import without_results
from ideabridge.bridge.store.users import LOCAL, SEES_ALL
from ideabridge.server.main import main
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from tests.ideas.values import publish

pytestmark = pytest.mark.anyio

SECRET = "the salary of Ann is 4711 guilders"
ANN = "user:ann"


@tool(read_only=True)
def look(number: int) -> str:
    """Look a page up."""
    if number == 5:
        raise ValueError(f"page 5 is torn: {SECRET}")
    return f"page {number}: {SECRET} {'x' * 700 * number}"


STEPS: list[JSONObject] = [
    {"calls": [{"_tool": "look", "number": 1, "_outputPath": "pages.first", "_instance": "①"}]},
    {"calls": [{"_tool": "look", "number": 2, "_instance": "②"}]},
    {"calls": [{"_tool": "look", "number": 5, "_instance": "①"}]},
    {"calls": [{"_tool": "look", "number": 30, "_outputPath": "pages.long", "_instance": "①"}]},
    {
        "calls": [
            {
                "_tool": "look",
                "number": 3,
                "_instance": "②",
                "_outputPath": "list",
                "_outputMethod": "push",
            }
        ]
    },
    {"calls": [{"_tool": "nothing"}]},
    {"calls": [{"_tool": "look", "number": 40, "_instance": "①"}]},
    {"calls": [{"_tool": "look", "number": "wrong", "_instance": "①"}]},
    {"calls": [{"_tool": "look", "number": 6, "_instance": "②", "_outputPath": "pages.second"}]},
    {"calls": [], "output": f"Ann: {SECRET}"},
]


class Scripted:
    """Answers with the steps, and keeps what it was asked."""

    name = "scripted"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str]:
        step = STEPS[len(self.asked)]
        self.asked.append(request)
        yield json.dumps({"calls": [], "output": None, **step})


CONTEXT: list[JSON] = [
    {"role": "user", "content": "Read all pages."},
    {"type": "state", "state": {"pages": {"title": "kept by the author"}}, "_instance": "①"},
    {"type": "state", "state": {"list": ["one"]}, "_instance": "②"},
    {"type": "input", "input": {"from": "the author"}},
]


async def ran(path: Path, caller: str = LOCAL) -> tuple[Scripted, list[str]]:
    """A run of ten Requests: the mind, and the ideas by step."""
    mind = Scripted()
    async with Bridge(toolbox=Toolbox(look), store=path, mind=mind) as bridge:
        task = "Say what Ann earns."
        run = await bridge.solve(task, context=CONTEXT, tools=["look"], caller=caller)
        assert await run.wait(20) == "done"
        return mind, [one.id for one in bridge.store.ideas.of_run(run.id)]


async def test_each_request_of_ten_is_made_again_from_its_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ideas.sqlite"
    mind, ideas = await ran(path)
    assert len(mind.asked) == len(ideas) == 10
    async with Bridge(store=path) as bridge:
        documents = [bridge.export_idea(idea, results=True) for idea in ideas]

    with Store.open(tmp_path / "other.sqlite") as other:
        for asked, document in zip(mind.asked, documents, strict=True):
            again = remake(json.loads(json.dumps(document)))
            assert again.id == asked.id == document["request"]
            assert again.texts == asked.texts
            assert encode_text(again.schema) == encode_text(asked.schema)
            assert other.import_idea(document) == document["id"]

    # Do the same in another store, which does not have the run, in Python and at the command line.
    async with Bridge(store=tmp_path / "other.sqlite") as bridge:
        for asked, idea in zip(mind.asked, ideas, strict=True):
            assert bridge.request_of(idea).texts == asked.texts
            assert bridge.export_idea(idea, results=True)["id"] == idea

    assert (
        main(
            [
                "ideas",
                "show",
                ideas[-1],
                "--request",
                "--json",
                "--store",
                str(tmp_path / "other.sqlite"),
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["texts"]) == (mind.asked[-1].id, mind.asked[-1].texts)
    assert main(["ideas", "show", ideas[3], "--request", "--store", str(path)]) == 0
    assert "Read all pages." in capsys.readouterr().out


async def test_an_export_lacks_results_unless_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ideas.sqlite"
    _, ideas = await ran(path)
    async with Bridge(store=path) as bridge:
        first = bridge.export_idea(ideas[0])
        assert first["id"] == ideas[0]
        assert "left_out" not in first
        for idea in ideas[1:]:
            document = bridge.export_idea(idea)
            whole = bridge.export_idea(idea, results=True)
            assert whole["id"] == idea == document["original"] != document["id"]
            assert "left_out" not in whole
            text = json.dumps(document)
            assert "salary" not in text
            assert "4711" not in text
            for authors in ("Read all pages", "kept by the author", "the author"):
                assert authors in json.dumps(document["context"])

            with pytest.raises(
                IdeaDocumentError, match=f"left_out: the document lacks .* idea {idea[:12]}"
            ):
                remake(document)

        last, whole = bridge.export_idea(ideas[-1]), bridge.export_idea(ideas[-1], results=True)

    left_out = last["left_out"]
    assert isinstance(left_out, list)
    references = [entry.get("reference") for entry in left_out if isinstance(entry, dict)]
    for written in (
        "†①.state.pages.first",
        "†①.state.pages.long",
        "†②.state.list",
        "solution.output",
    ):
        assert written in references

    # Imported into another store, the idea says what is missing, even when it is exported again.
    with Store.open(tmp_path / "other.sqlite") as other:
        copy = other.import_idea(last)
        stored = other.ideas.get(copy, caller=SEES_ALL)
        assert (stored.meta.original, list(stored.meta.left_out)) == (ideas[-1], left_out)
        again = other.export_idea(copy, caller=SEES_ALL, results=True)
        assert (again["id"], again["original"], again["left_out"]) == (
            last["id"],
            ideas[-1],
            left_out,
        )

    # In a store that does not have its run, the idea is not exported whole either, even if it was
    # imported whole.
    with Store.open(tmp_path / "third.sqlite") as third:
        third.import_idea(whole)
        assert "salary" not in json.dumps(third.export_idea(ideas[-1], caller=SEES_ALL))

    assert main(["ideas", "export", ideas[-1], "--store", str(path)]) == 0
    told = capsys.readouterr()
    assert "because results of calls may be private" in told.err
    assert "salary" not in told.out
    assert main(["ideas", "export", ideas[-1], "--results", "--store", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == ideas[-1]


async def test_another_member_sees_no_result_of_a_private_run_by_an_idea_that_is_shared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ideas.sqlite"
    mind, ideas = await ran(path, ANN)
    async with Bridge(store=path) as bridge:
        store = bridge.store
        publish(store, "salaries", ideas[-1], owner=ANN, recorded={"input": {}, "output": SECRET})
        store.publications.share("salaries", ("user:bob",))
        shown: list[JSON] = [
            bridge.export_idea("salaries", caller="user:bob"),
            bridge.export_idea("salaries", caller="user:bob", results=True),
            list[JSON](bridge.request_of("salaries", caller="user:bob").texts),
        ]
        assert SECRET in str(
            bridge.export_idea("salaries", caller=ANN, results=True)["publication"]
        )
        stored = store.ideas.get(ideas[-1], caller="user:bob")
        shown += [stored.idea.context, stored.idea.solution]
        for told in shown:
            assert "salary" not in json.dumps(told)
            assert "Read all pages" in json.dumps(told) or told is stored.idea.solution

        assert stored.idea.id != stored.id
        assert stored.meta.original == ideas[-1]
        own = bridge.request_of("salaries", caller=ANN)
        assert own.texts == mind.asked[-1].texts


def test_literals_that_a_mind_copied_from_results_are_left_out() -> None:
    context: list[JSON] = [
        {"role": "user", "content": "Send it to the office."},
        {
            "type": "call",
            "call": {
                "place": 0,
                "tool": "look",
                "status": "done",
                "value": "†results.0",
                "result": SECRET,
            },
        },
    ]
    call: JSONObject = {
        "_tool": "send",
        "to": "office",
        "text": f"I read: {SECRET}",
        "part": "4711",
        "n": 12,
        "all": True,
    }
    program = Idea(context, {}, {"program": f"send({SECRET!r})"})
    idea = Idea(
        context, {}, {"thought_process": SECRET, "calls": [call], "output": {"sent": "†state.sent"}}
    )
    own, left_out = without_results(idea, None)
    kept = {
        "_tool": "send",
        "to": "office",
        "text": "(left out)",
        "part": "(left out)",
        "n": 12,
        "all": True,
    }
    assert own.solution == {
        "thought_process": "(left out)",
        "calls": [kept],
        "output": {"sent": "†state.sent"},
    }
    assert own.context[0] == context[0]
    assert left_out == [
        {"reference": "†results.0", "type": "text", "bytes": len(SECRET) + 2},
        {"reference": "solution.thought_process", "type": "text", "bytes": len(SECRET) + 2},
        {"reference": "solution.calls", "type": "literals", "bytes": len(encode([call]))},
    ]
    assert without_results(program, None)[0].solution == {"program": "(left out)"}
    # What has been left out once stays out.
    assert without_results(own, None) == (own, [])


def test_literals_in_items_and_names_of_members_that_a_mind_copied_are_left_out() -> None:
    context: list[JSON] = [
        {"role": "user", "content": "Tell the office."},
        {
            "type": "call",
            "call": {
                "place": 0,
                "tool": "look",
                "value": "†results.0",
                "result": {"to": SECRET, SECRET: 1},
            },
        },
    ]
    calls: list[JSONObject] = [
        {
            "_tool": "send",
            "_each": [{"text": f"so: {SECRET}"}, {"text": "†results.0"}],
            "text": "†item.text",
            "_id": "a",
        },
        {
            "_tool": "send",
            "value": {SECRET: 1, "_note": SECRET, "own": 2, f"{SECRET}!": 3},
            "_after": ["a"],
        },
        {
            "_tool": "send",
            "_output": {"type": "string", "description": SECRET},
            "_outputPath": "sent",
        },
    ]
    idea = Idea(
        context,
        {"type": "object", "description": "text, type, string"},
        {"calls": [*calls], "output": None},
    )
    own, _ = without_results(idea, None)
    assert own.solution == {
        "calls": [
            {
                "_tool": "send",
                "_each": [{"text": "(left out)"}, {"text": "†results.0"}],
                "text": "†item.text",
                "_id": "a",
            },
            {
                "_tool": "send",
                "value": {"(left out) 0": 1, "_note": "(left out)", "own": 2, "(left out) 3": 3},
                "_after": ["a"],
            },
            {
                "_tool": "send",
                "_output": {"type": "string", "description": "(left out)"},
                "_outputPath": "sent",
            },
        ],
        "output": None,
    }
    assert SECRET not in encode_text([own.context, own.solution])


async def test_a_solution_without_results_satisfies_its_schema(tmp_path: Path) -> None:
    @tool(read_only=True)
    def count() -> int:
        """Count."""
        return 471147

    @tool(read_only=True)
    def half(number: int) -> float:
        """Halve."""
        return number / 2

    steps = iter(
        [
            {"calls": [{"_tool": "count"}]},
            {"calls": [{"_tool": "half", "number": 471147}]},
            {"output": "done"},
        ]
    )

    async def mind(_: Request) -> str:
        return json.dumps({"calls": [], "output": None, **next(steps)})

    async with Bridge(
        toolbox=Toolbox(count, half), store=tmp_path / "ideas.sqlite", mind=mind
    ) as bridge:
        run = await bridge.solve("Halve the count.", tools=["count", "half"])
        assert await run.wait(20) == "done"
        second = [one.id for one in bridge.store.ideas.of_run(run.id)][1]
        document = bridge.export_idea(second)

    assert "471147" not in json.dumps(document)
    schema = document["schema"]
    assert isinstance(schema, dict)
    jsonschema_rs.validate(schema, document["solution"])
