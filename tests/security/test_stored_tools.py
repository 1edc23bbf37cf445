"""Tools that are stored, or sent from a worker process, are the same tools: an approval of one
counts for the other.
"""

from __future__ import annotations

from typing import Any, cast, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.loop.event import Decider, DeciderKind, QuestionAsked, Via
from ideabridge.bridge.loop.grant import Grant
from ideabridge.bridge.loop.question import Question
from ideabridge.server.views.pending import OpenQuestions
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Annotations, SentSchema, Tool

TEXTS = st.text(max_size=8)
LEAVES: st.SearchStrategy[JSON] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    LEAVES,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
SENT = st.none() | st.builds(SentSchema, VALUES, st.booleans())
HINTS = st.none() | st.booleans()
ANNOTATIONS = st.builds(Annotations, st.none() | TEXTS, HINTS, HINTS, HINTS, HINTS)
PLAIN = dict[str, st.SearchStrategy[Any]](
    name=TEXTS,
    description=TEXTS,
    parameters=OBJECTS,
    output=st.none() | OBJECTS,
    annotations=ANNOTATIONS,
    module=st.sampled_from([None, "m", "anonymous", "idea:x"]),
    remote_name=st.none() | TEXTS,
    renamed=st.dictionaries(TEXTS, TEXTS, max_size=2),
    activity=st.none() | TEXTS,
    sent_hints=st.none() | OBJECTS,
    clean=st.booleans(),
    reaches=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    wrapper=st.none() | OBJECTS,
    sent_parameters=SENT,
    sent_output=SENT,
    wire=st.none() | OBJECTS,
)
TOOLS = st.builds(Tool, **PLAIN, passes_to=st.none() | st.builds(Tool, **PLAIN))


@settings(max_examples=100, deadline=None)
@given(TOOLS)
def test_a_stored_tool_has_the_digests_and_the_essence_that_it_had(tool: Tool) -> None:
    stored = Tool.from_json(cast("JSONObject", decode(encode(tool.to_json()), what="a tool")))
    assert stored == tool
    assert (stored.digest, stored.prose_digest) == (tool.digest, tool.prose_digest)
    assert encode(stored.essence) == encode(tool.essence)
    stored.expect_same(tool)


ASKED = st.none() | st.builds(
    QuestionAsked,
    st.integers(0, 9),
    TEXTS,
    TEXTS,
    TEXTS,
    TEXTS,
    OBJECTS,
    st.none() | st.integers(0, 9),
    st.none(),
)
QUESTIONS = st.builds(
    Question,
    kind=st.sampled_from(["call", "outcome", "plan", "question"]),
    approval=TEXTS,
    digest=TEXTS,
    shown=OBJECTS,
    why=TEXTS,
    call=st.none() | st.integers(0, 9),
    item=st.none() | st.integers(0, 9),
    tool=st.none() | TOOLS,
    asked=ASKED,
    assumed=st.lists(OBJECTS, max_size=2).map(tuple),
    hints=ANNOTATIONS,
)
SCHEMAS = st.sampled_from([None, {}, {"properties": {"to": {"const": "Ada"}}, "required": ["to"]}])
DECIDERS = st.builds(
    Decider,
    st.sampled_from(get_args(DeciderKind)),
    st.sampled_from(get_args(Via)),
    st.none() | TEXTS,
)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    schema = cast("JSONObject | None", draw(SCHEMAS))
    where = None if schema is None else Validator(schema, what="the parameters")
    most = draw(st.none() | st.integers(1, 9))
    used = draw(st.integers(0, 9))
    return Grant(
        draw(st.integers(0, 9)),
        draw(TOOLS),
        draw(st.none() | TEXTS),
        draw(DECIDERS),
        most,
        where,
        used,
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(QUESTIONS, st.none() | st.floats(0, 2e9)), max_size=2),
    st.lists(grants(), max_size=2),
)
def test_open_questions_of_a_worker_are_those_of_the_journal(
    asked: list[tuple[Question, float | None]], given: list[Grant]
) -> None:
    left = OpenQuestions(tuple(asked), 60.0, tuple(given), 2, frozenset({(1, None), (2, 3)}))
    read = OpenQuestions.from_json(decode(encode(left.to_json()), what="the questions"))
    assert read.asked == left.asked
    assert (read.seconds, read.instances, read.rooms) == (left.seconds, left.instances, left.rooms)
    for (question, _), (before, _) in zip(read.asked, left.asked, strict=True):
        assert question.to_json() == before.to_json()
        _expect_same(question.tool, before.tool)

    for grant, before in zip(read.grants, left.grants, strict=True):
        assert grant.to_json() == before.to_json()
        assert (grant.by, grant.activity, str(grant)) == (before.by, before.activity, str(before))
        assert (grant.where is None) == (before.where is None)
        _expect_same(grant.tool, before.tool)


def _expect_same(tool: Tool | None, before: Tool | None) -> None:
    assert tool == before
    if tool is None or before is None:
        return
    assert (tool.digest, tool.prose_digest) == (before.digest, before.prose_digest)
    assert (tool.wire, tool.reaches) == (before.wire, before.reaches)
