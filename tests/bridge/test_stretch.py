"""Calls that have ended become a run, whatever they were; those that no run can make
again are named.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.stretch import EndedCall, ended_run
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import META_PROPERTIES, Tool


def nested(depth: int) -> JSONObject:
    """A schema of objects in objects: 240 of them are a valid schema in which no references
    can be admitted.
    """
    schema: JSONObject = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


SCHEMAS: list[JSONObject] = [
    {},
    {"type": "object"},
    {"type": "object", "properties": {"x": {"type": "string", "maxLength": 5}}},
    {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
    {"type": "object", "not": {"required": ["x"]}},
    {"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
    {"type": "object", "properties": {"x": {"type": "no type"}}},
    {"type": "object", "properties": {"x": {"$ref": "https://example.org/x"}}},
    nested(240),
]
TEXTS = st.sampled_from(["", "a", "†state.x", "††", "†results.0", "longer text"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
NAMES = st.one_of(st.sampled_from(["x", "y", "X", "a", "", "_x"]), TEXTS).filter(
    lambda one: one not in META_PROPERTIES
)
ERRORS = st.one_of(st.none(), st.just({"kind": "runtime", "message": "bad luck"}))
CALLS = st.lists(
    st.builds(
        EndedCall,
        st.builds(
            Tool, st.sampled_from("pq"), st.just(""), st.sampled_from(SCHEMAS), module=st.just("m")
        ),
        st.dictionaries(NAMES, VALUES, max_size=3),
        st.just(0),
        VALUES,
        ERRORS,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(CALLS, st.lists(st.booleans(), min_size=5, max_size=5))
def test_all_calls_make_a_run(calls: list[EndedCall], together: list[bool]) -> None:
    step = 0
    listed: list[EndedCall] = []
    for call, begins in zip(calls, together, strict=False):
        step += begins
        listed.append(EndedCall(call.tool, call.parameters, step, call.value, call.error))

    made = ended_run(listed, Settings(), "", "a test")
    again = Machine()
    for event in made.events:
        again.receive(event)

    assert again.ended
    assert again.status == "done"
    done: list[JSON] = []
    for place, (call, progress) in enumerate(zip(listed, again.history, strict=True)):
        if place in made.unkept:
            assert call.error is None
            assert progress.status is CallStatus.FAILED
        elif call.error is not None:
            assert progress.status is CallStatus.FAILED
        else:
            assert progress.items[0].parameters == call.parameters
            assert progress.value == call.value
            done.append(call.value)

    if done:
        assert again.output == done[-1]


def test_a_call_that_no_run_can_make_is_not_published() -> None:
    tool = Tool(
        "climb", "", {"type": "object", "properties": {"tree": {"type": "string"}}}, module="trees"
    )
    plain = EndedCall(tool, {"tree": "oak"}, 0, "up")
    # The server accepts arguments that it does not declare, but a plan would report them as
    # mistakes.
    more = EndedCall(tool, {"tree": "elm", "hurry": True}, 1, "up")
    made = ended_run([plain, more], Settings(), "", "a test")
    assert list(made.unkept) == [1]
    assert "hurry" in made.unkept[1]
    with pytest.raises(PublicationError, match=r"call 6 cannot be published: it ran, but .*hurry"):
        made.with_all_calls(5)

    whole = ended_run([plain], Settings(), "", "a test")
    assert whole.with_all_calls(0) is whole
