"""Ideas: ids, encoding, and ideas as functions."""

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.context.body import Body, EncodedRequest, body_of
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.store.errors import IdeaDocumentError, TamperedIdeaError
from ideabridge.bridge.store.idea import Idea, IdeaMeta, function_schemas
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.compose import solution_schema, wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.errors import InvalidJSONError
from ideabridge.tools.tool import Tool
from tests.ideas.values import IDEAS, idea_of


@given(IDEAS)
def test_ids_are_those_of_the_exported_parts(idea: Idea) -> None:
    asked: JSONObject = {"context": idea.context, "schema": idea.schema}
    if idea.shown is not None:
        asked["shown"] = idea.shown

    whole = encode({**asked, "solution": idea.solution})
    assert idea.request_id == hashlib.sha256(encode(asked)).hexdigest()
    assert idea.id == hashlib.sha256(whole).hexdigest()
    schema: JSONObject = {"type": "object"}
    request = Request(idea.context, schema, [], {}, shown=idea.shown)
    assert request.id == Idea(idea.context, schema, None, idea.shown).request_id


@given(st.lists(IDEAS, min_size=1, max_size=4))
def test_an_id_is_the_same_whatever_request_was_before_it(ideas: list[Idea]) -> None:
    last: EncodedRequest | None = None
    context: list[JSON] = []
    bodies: list[Body] = []
    for idea in ideas:
        context += idea.context
        bodies += map(body_of, idea.context)
        shown = None if idea.shown is None else body_of(idea.shown)
        last = EncodedRequest([*bodies], body_of(idea.schema), shown, last)
        asked: JSONObject = {"context": context, "schema": idea.schema}
        if idea.shown is not None:
            asked["shown"] = idea.shown

        assert last.id == hashlib.sha256(encode(asked)).digest()
        assert last.size == len(encode(asked))


def test_a_copy_of_an_idea_with_other_parts_has_an_id_of_its_own() -> None:
    request = Request([{"role": "user", "content": "x"}], {"type": "object"}, [], {})
    idea = Idea.of(request, {"output": 1})
    assert idea == Idea(request.context_json, request.schema, {"output": 1})
    assert (idea.id, idea.request_id) == (
        Idea(request.context_json, request.schema, {"output": 1}).id,
        request.id,
    )
    other = dataclasses.replace(idea, context=[])
    assert other.id == Idea([], request.schema, {"output": 1}).id
    shown: JSONObject = {"value": 300, "request": 300}
    limited = dataclasses.replace(request, shown=shown)
    assert limited.id == Idea(request.context_json, request.schema, None, shown).request_id


def test_a_big_integer_beside_a_large_float_has_one_id() -> None:
    # The exact encoder and the fast one write 1e16 differently, but an id must not depend on which
    # parts need which encoder.
    idea = Idea([{"role": "user", "content": "x"}, 1e16], {"maximum": 2**70}, None)
    whole = encode({"context": idea.context, "schema": idea.schema, "solution": None})
    assert idea.id == hashlib.sha256(whole).hexdigest()


def test_key_order_is_part_of_the_content() -> None:
    assert Idea([{"a": 1, "b": 2}], {}, None).id != Idea([{"b": 2, "a": 1}], {}, None).id


@settings(deadline=None, max_examples=60)
@given(IDEAS)
def test_saved_and_exported_ideas_are_exact(idea: Idea) -> None:
    with Store.open(":memory:") as store, Store.open(":memory:") as other:
        assert store.ideas.save(idea, IdeaMeta()) == idea.id
        stored = store.ideas.get(idea.id, caller=SEES_ALL)
        assert (stored.id, stored.request_id) == (idea.id, idea.request_id)
        assert stored.idea.id == idea.id
        # `repr` distinguishes 1 from 1.0, True from 1, and different orders of keys.
        assert repr(stored.idea) == repr(idea)
        text = json.dumps(store.export_idea(idea.id, caller=SEES_ALL), ensure_ascii=False)
        assert other.import_idea(json.loads(text)) == idea.id
        assert repr(other.ideas.get(idea.id, caller=SEES_ALL).idea) == repr(idea)


def test_what_a_mind_was_shown_is_part_of_a_document(store: Store) -> None:
    idea = Idea([{"role": "user", "content": "x"}], {}, None, {"value": 4096, "request": 32768})
    store.ideas.save(idea, IdeaMeta())
    document = store.export_idea(idea.id, caller=SEES_ALL)
    assert document["shown"] == idea.shown
    changed: JSONObject = {**document, "shown": {"value": 1, "request": 32768}}
    with pytest.raises(TamperedIdeaError, match="request: the document says"):
        store.import_idea(changed)

    odd: list[JSON] = [
        {"value": 4096.0, "request": 1},
        {"value": 1},
        {"value": -1, "request": 1},
        None,
        "all",
    ]
    for shown in odd:
        with pytest.raises(IdeaDocumentError, match="shown"):
            store.import_idea({**document, "shown": shown}, checks="nothing")


@pytest.mark.parametrize("length", [64, 65, 500, 3000])
def test_long_contexts_come_back_in_order(length: int) -> None:
    context: list[JSON] = [
        {"type": "data", "kind": f"k{n % 97}", "data": n % 701} for n in range(length)
    ]
    with Store.open(":memory:") as store:
        for end in (length - 3, length - 1, length):
            idea = Idea(context[:end], {}, {"calls": [], "output": None})
            store.ideas.save(idea, IdeaMeta())
            assert store.ideas.get(idea.id, caller=SEES_ALL).idea == idea


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=400), st.integers(0, 400), st.integers(0, 40))
def test_edited_contexts_come_back_as_they_were(numbers: list[int], place: int, new: int) -> None:
    with Store.open(":memory:") as store:
        first = Idea([{"n": number} for number in numbers], {}, None)
        numbers[place:place] = [new]
        second = Idea([{"n": number} for number in numbers], {}, None)
        for idea in (first, second):
            store.ideas.save(idea, IdeaMeta())
        assert store.ideas.get(first.id, caller=SEES_ALL).idea == first
        assert store.ideas.get(second.id, caller=SEES_ALL).idea == second


def test_what_is_not_json_is_refused() -> None:
    with Store.open(":memory:") as store:
        bad: JSON = {"text": "\ud800"}
        with pytest.raises(InvalidJSONError):
            store.ideas.save(Idea([bad], {}, None), IdeaMeta())
        with pytest.raises(InvalidJSONError, match="surrogate"):
            store.ideas.save(idea_of("x"), IdeaMeta(run="\ud800"))
        assert store.ideas.page().items == []


def test_meta_survives_its_json() -> None:
    meta = IdeaMeta(
        "run",
        3,
        "parent",
        "model",
        "m",
        {"tokens": 7},
        "t",
        "f",
        "title",
        "text",
        ("a", "b"),
        "done",
        ("x",),
    )
    assert IdeaMeta.from_json(meta.to_json()) == meta
    assert IdeaMeta().to_json() == {}


WEEK: JSONObject = {"type": "object", "properties": {"week": {"type": "integer", "minimum": 1}}}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "input", "input": {"week": 3}, "schema": WEEK},
        {"type": "data", "kind": "input", "data": {"week": 3}, "schema": WEEK},
        {"role": "user", "content": {"type": "input", "input": {"week": 3}, "schema": WEEK}},
    ],
)
def test_an_idea_with_an_input_is_a_function(message: JSON) -> None:
    assert function_schemas(Idea(["Write the report.", message], {}, None)) == (WEEK, None)


def test_an_undeclared_input_gets_a_permissive_schema() -> None:
    value: JSON = {"n": 1, "f": 1.5, "s": "x", "b": True, "l": [], "o": {}, "z": None}
    given_schema, _ = function_schemas(Idea([{"type": "input", "input": value}], {}, None))
    assert given_schema == {
        "type": "object",
        "properties": {
            "n": {"type": "number"},
            "f": {"type": "number"},
            "s": {"type": "string"},
            "b": {"type": "boolean"},
            "l": {"type": "array"},
            "o": {"type": "object"},
            "z": {},
        },
        "required": ["n", "f", "s", "b", "l", "o", "z"],
    }


def test_the_output_schema_is_the_users() -> None:
    reference: JSON = {"type": "string", "pattern": "^†"}
    shown: JSON = {
        "$defs": {"row": {"type": "object"}},
        "type": "object",
        "properties": {
            "calls": {"type": "array"},
            "output": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {
                            "total": {"anyOf": [{"type": "number"}, reference]},
                            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
                        },
                    },
                    {"type": "null"},
                ]
            },
        },
    }
    assert function_schemas(Idea(["x"], shown, None)) == (
        None,
        {
            "type": "object",
            "properties": {
                "total": {"type": "number"},
                "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            },
            "$defs": {"row": {"type": "object"}},
        },
    )


@pytest.mark.parametrize(
    "schema", [None, True, {}, {"properties": 1}, {"properties": {"output": {"type": "null"}}}]
)
def test_a_schema_that_says_nothing_of_output(schema: JSON) -> None:
    assert function_schemas(Idea([], schema, None)) == (None, None)


NODE: JSONObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/output_node"}},
}


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "description": "A report",
            "properties": {
                "n": {"type": "integer", "description": "How many"},
                "rows": {"items": {"type": "string"}},
            },
            "required": ["n"],
            "additionalProperties": False,
        },
        {"enum": ["x", "y"], "title": "Which"},
        {"type": "string"},
        {"type": "string", "pattern": "^a"},
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Either"},
        {"$ref": "#/$defs/output_node", "$defs": {"output_node": NODE}},
        {"type": "array", "items": {"$ref": "#/$defs/output_node"}, "$defs": {"output_node": NODE}},
    ],
)
def test_the_output_schema_comes_back_from_a_composed_one(schema: JSONObject) -> None:
    send = Tool(
        "send",
        parameters={
            "type": "object",
            "properties": {"to": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {}},
        },
    )
    composed = solution_schema([send], schema)
    assert "reference" in str(composed["$defs"])
    _, found = function_schemas(Idea([], composed, None))
    # Composing may rename a definition and write an `enum` with one value as `const`. These schemas
    # contain nothing that it changes.
    assert found is not None
    names = found.get("$defs")
    name = next(iter(names)) if isinstance(names, dict) else ""
    assert found == json.loads(json.dumps(schema).replace("output_node", name))


def test_an_output_that_may_be_null_comes_back_as_the_mind_answered_it() -> None:
    schema: JSONObject = {"type": ["integer", "null"], "description": "How many"}
    _, found = function_schemas(Idea([], solution_schema([], schema), None))
    assert found == wrap_output(schema)[0]
