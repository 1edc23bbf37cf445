"""What changed between two versions of a name, what of it breaks callers, and which one the
name stands for.
"""

from typing import Any

import pytest

from ideabridge.bridge.store.errors import UnknownIdeaError, UnknownPublicationError
from ideabridge.bridge.store.idea import IdeaMeta, NewPublication, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject
from tests.ideas.values import idea_of


def obj(required: str = "", *, closed: bool = False, **properties: JSON) -> JSONObject:
    schema: JSONObject = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list[JSON](required.split())
    return {**schema, "additionalProperties": False} if closed else schema


S: JSONObject = {"type": "string"}
W: JSONObject = {"type": "integer"}
N: JSONObject = {"type": "number"}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (obj(a=S), obj("a", a=S), ["a is now required"]),
        (obj("a", a=S), obj(a=S), []),
        (obj(a=S, b=S), obj(a=S), ["b was removed"]),
        (obj(a=S), obj(a=S, b=W), []),
        (obj(a=obj(b=S)), obj(a=obj(c=S)), ["a.b was removed"]),
        (obj(a=S), obj(a=W), ["a: was string, is integer"]),
        (obj(a=N), obj(a=W), ["a: was number, is integer"]),
        (obj(a=W), obj(a=N), []),
        (obj(a=S), obj(a={"type": ["string", "null"]}), []),
        (obj(a={"anyOf": [S, N]}), obj(a=S), ["a: was number or string, is string"]),
        (obj(a=S), obj(a={"anyOf": [S, {"type": "null"}]}), []),
        (
            obj(a={"type": "array", "items": S}),
            obj(a={"type": "array", "items": W}),
            ["a.items: was string, is integer"],
        ),
        # What a schema does not say is not compared, and bounds appear only as lines of the diff.
        (obj(a={}), obj(a=S), []),
        (obj(a=S), obj(a={**S, "minLength": 2}), []),
        (obj(a={"anyOf": [S, {}]}), obj(a=W), []),
        (
            {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": S}},
            {**obj(a={"$ref": "#/$defs/B"}), "$defs": {"B": {**S, "title": "B"}}},
            [],
        ),
        (
            {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": S}},
            {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": W}},
            ["a: was string, is integer"],
        ),
    ],
)
def test_parameters_that_are_required_removed_or_retyped_are_named(
    store: Store, old: JSON, new: JSON, why: list[str]
) -> None:
    put(store, "old", input_schema=old)
    put(store, "new", input_schema=new)
    assert store.change("tool@1", "tool@2", caller=SEES_ALL).breaking == [
        f"input: {line}" for line in why
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (obj(a=S), obj(), ["a was removed"]),
        (obj(a=S), obj(a=S, b=S), []),
        (obj(a=W), obj(a=N), ["a: was integer, is number"]),
        (obj(a=N), obj(a=W), []),
        (obj("a", a=S), obj(a=S), []),
        (
            {"type": "array", "items": S},
            {"type": "array", "items": N},
            ["items: was string, is number"],
        ),
        (S, obj(a=S), ["was string, is object"]),
        (S, {"anyOf": [S, N]}, ["was string, is number or string"]),
        ({}, S, []),
    ],
)
def test_fields_that_are_removed_or_retyped_are_named(
    store: Store, old: JSON, new: JSON, why: list[str]
) -> None:
    put(store, "old", output_schema=old)
    put(store, "new", output_schema=new)
    assert store.change("tool@1", "tool@2", caller=SEES_ALL).breaking == [
        f"output: {line}" for line in why
    ]


def put(store: Store, text: str, **told: Any) -> Publication:
    idea = store.ideas.save(idea_of(text), IdeaMeta())
    members: dict[str, Any] = {
        "description": "d",
        "answer": "plan",
        "input_schema": obj("a", a=S),
        "output_schema": S,
    }
    members |= {
        "annotations": {"readOnlyHint": True},
        "plan": {"calls": [], "output": None},
        **told,
    }
    return store.publications.publish(NewPublication(name="tool", idea_id=idea, **members))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (({"a": "†state.a"}, {"a": 1}), ({"b": "†state.a"}, {"b": 1}), ["output: a was removed"]),
        (({"a": "†state.a"}, {"a": 1}), ({"a": "†state.b", "b": 1}, {"a": 2.5, "b": 1}), []),
        (({"a": "†state.a"}, {"a": 1}), ({"a": "†state.a"}, {"a": None}), []),
        (
            ({"a": "†state.a"}, {"a": 1}),
            ({"a": "†state.a"}, {"a": "x"}),
            ["output: a: was number, is string"],
        ),
        (
            ({"a": {"b": "†state.a"}}, {"a": {"b": 1}}),
            ({"a": ["†state.a"]}, {"a": [1]}),
            ["output: a: was object, is array"],
        ),
        (("†state.a", [1]), ("†state.b", {"x": 1}), ["output: was array, is object"]),
        ((None, {"a": 1, "b": 2}), (None, {"b": 2}), ["output: a was removed"]),
    ],
)
def test_an_output_without_a_schema_is_held_to_what_it_was_seen_to_be(
    store: Store, old: tuple[JSON, JSON], new: tuple[JSON, JSON], why: list[str]
) -> None:
    for place, (output, given) in enumerate((old, new)):
        recorded: JSON = {"input": {}, "output": given}
        put(
            store,
            str(place),
            plan={"calls": [], "output": output},
            recorded=recorded,
            output_schema=None,
        )
    assert store.change("tool@1", "tool@2", caller=SEES_ALL).breaking == why


@pytest.mark.parametrize(
    "ref", ["tool@", "tool@x", "tool@²", "tool@1@1", "tool@-1", "Tool", "@1", "tool@9"]
)
def test_what_is_no_version_of_a_name_is_told(store: Store, ref: str) -> None:
    put(store, "x")
    assert store.publications.named("tool@1", caller=SEES_ALL) == store.publications.named(
        "tool", caller=SEES_ALL
    )
    with pytest.raises(
        UnknownPublicationError, match=r"expected NAME or NAME@VERSION|has version 1, not 9"
    ):
        store.publications.named(ref, caller=SEES_ALL)
    with pytest.raises(UnknownIdeaError):
        store.ideas.get(ref, caller=SEES_ALL)


def test_a_change_is_told_in_lines(store: Store) -> None:
    look: JSON = {"_tool": "look", "name": "†input.a", "count": 3}
    send: JSON = {"_tool": "send", "text": "hello"}
    put(store, "x", plan={"calls": [look, send], "output": "†state.a"})
    other: JSON = {"_tool": "look", "name": "†input.a", "count": 4}
    put(
        store,
        "y",
        plan={
            "calls": [{"_tool": "count", "items": "†input.a"}, other, send],
            "output": "†state.b",
        },
        input_schema=obj("a b", a=S, b=W),
        output_schema=None,
        annotations={"readOnlyHint": False},
        answer="recorded",
        description="e",
    )
    change = store.change("tool@1", "tool@2", caller=SEES_ALL)
    assert change.lines == [
        '~ description: "d" -> "e"',
        '~ answer: "plan" -> "recorded"',
        '+ input.properties.b: {"type":"integer"}',
        '~ input.required: ["a"] -> ["a","b"]',
        '- output schema: {"type":"string"}',
        "~ annotations.readOnlyHint: true -> false",
        '+ calls.0: {"_tool":"count","items":"†input.a"}',
        "~ calls.1 (look).count: 3 -> 4",
        '~ output: "†state.a" -> "†state.b"',
        '~ context.0.content: "x" -> "y"',
    ]
    assert change.breaking == [
        "input: b is now required",
        "output: it no longer has a schema",
        "answer: the tool answers only for the recorded input",
        "annotations: the tool is no longer read-only",
    ]
    assert store.change("tool@1", "tool@1", caller=SEES_ALL).lines == []
    back = store.change("tool@2", "tool@1", caller=SEES_ALL)
    assert back.breaking == ["input: b was removed"]
    assert '- calls.0: {"_tool":"count","items":"†input.a"}' in back.lines
    # Ideas that nobody has published are compared by their content.
    ideas = [store.publications.get("tool", version, caller=SEES_ALL).idea_id for version in (1, 2)]
    assert store.change(*ideas, caller=SEES_ALL).lines == ['~ context.0.content: "x" -> "y"']


def test_a_name_is_rolled_back_and_pinned(store: Store) -> None:
    for number in range(3):
        put(store, f"idea {number}", description=f"number{number}")

    assert [one.version for one in store.publications.versions("tool", caller=SEES_ALL)] == [
        3,
        2,
        1,
    ]
    version = store.publications.catalogue_version()
    assert store.publications.stand_for("tool", 1).version == 1
    assert store.publications.catalogue_version() > version
    assert store.publications.get("tool", caller=SEES_ALL).version == 1
    assert [hit.names for hit in store.ideas.search("number0", caller=SEES_ALL)] == [("tool",)]
    assert store.ideas.search("number2", caller=SEES_ALL) == []
    # The next publication takes its place, unless it is pinned.
    assert put(store, "idea 3").live
    assert store.publications.stand_for("tool", 2, pinned=True).pinned
    fifth = put(store, "idea 4")
    assert (fifth.version, fifth.live, fifth.pinned) == (5, False, False)
    assert [
        (one.version, one.pinned) for one in store.publications.page(caller=SEES_ALL).items
    ] == [(2, True)]
    assert (
        store.ideas.get("tool", caller=SEES_ALL).id
        == store.publications.get("tool", 2, caller=SEES_ALL).idea_id
    )
    assert store.publications.stand_for("tool").version == 5
    assert put(store, "idea 5").live
    store.publications.unpublish("tool")
    assert len(store.publications.versions("tool", caller=SEES_ALL)) == 6
    for name, number in (("tool", 1), ("other", None)):
        with pytest.raises(UnknownPublicationError):
            store.publications.stand_for(name, number)

    put(store, "idea 6")
    with pytest.raises(UnknownPublicationError, match="versions 1 to 7, not 9"):
        store.publications.stand_for("tool", 9)
