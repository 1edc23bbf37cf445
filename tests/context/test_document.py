"""Documents, messages and previews."""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context import state as document_module
from ideabridge.bridge.context.errors import MessageError, StateWriteError
from ideabridge.bridge.context.messages import (
    ContextParts,
    Draft,
    Handlers,
    Message,
    read_context,
    read_message,
)
from ideabridge.bridge.context.preview import reference_to, shorten, shorten_error, shorten_literal
from ideabridge.bridge.context.state import MISSING, Missing, describe_missing, merge, read, write
from ideabridge.tools.encoding import JSON, encode

VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc0"), inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "0", "1"]), min_size=1, max_size=4).map(
    lambda keys: ("state", *keys)
)


@given(VALUES, PATHS, VALUES)
def test_what_is_written_is_read_and_the_old_document_stays(
    old: JSON, path: tuple[str, ...], value: JSON
) -> None:
    document: JSON = {"state": {"a": old}}
    before = copy.deepcopy(document)
    with contextlib.suppress(StateWriteError):
        assert read(write(document, path, "set", value), path) == value
    assert document == before


@given(VALUES, VALUES)
def test_merge_keeps_what_the_new_value_does_not_name(old: JSON, new: JSON) -> None:
    merged = merge(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        assert isinstance(merged, dict)
        assert set(merged) == set(old) | set(new)
    else:
        assert merged == new


def test_missing_is_not_null_and_says_why() -> None:
    document: JSON = {"state": {"a": {"b": None}, "l": [1], "n": 5, "t": '{"x": 1}'}}
    assert read(document, ("state", "a", "b")) is None
    assert isinstance(read(document, ("state", "a", "c")), Missing)
    assert read(document, ("state", "t", "x")) == 1
    assert read(document, ("state", "l", "1")) is MISSING
    assert "†state.a has no 'c'; it has b" in describe_missing(document, ("state", "a", "c"))
    assert "array of 1" in describe_missing(document, ("state", "l", "7"))
    assert "a number" in describe_missing(document, ("state", "n", "x"))
    texts: JSON = {"state": {"l": '[{"b": 1}]', "d": ' {"b": {"c": 1}}', "t": "[not JSON"}}
    assert (
        describe_missing(texts, ("state", "l", "-1"))
        == "†state.l is an array of 1; '-1' is not a valid index"
    )
    assert describe_missing(texts, ("state", "l", "0", "x")) == "†state.l.0 has no 'x'; it has b"
    assert describe_missing(texts, ("state", "d", "x")) == "†state.d has no 'x'; it has b"
    assert "is not a JSON object or array" in describe_missing(texts, ("state", "t", "0"))


def test_an_array_grows_at_its_end_only() -> None:
    document: JSON = {"state": {"l": [1]}}
    assert write(document, ("state", "l", "1"), "set", 2) == {"state": {"l": [1, 2]}}
    with pytest.raises(StateWriteError, match="array of 1"):
        write(document, ("state", "l", "5"), "set", 2)

    with pytest.raises(StateWriteError, match="cannot push"):
        write({"state": {"l": 3}}, ("state", "l"), "push", 2)

    with pytest.raises(StateWriteError, match="must remain an object"):
        write(document, ("state",), "set", 2)


# -- messages --------------------------------------------------------------------------------------


def test_every_spelling_is_one_message() -> None:
    typed = read_message({"type": "input", "input": {"a": 1}, "schema": {"type": "object"}})
    assert typed == read_message(
        {
            "role": "user",
            "content": {"type": "input", "input": {"a": 1}, "schema": {"type": "object"}},
        }
    )
    assert typed == read_message(
        {"type": "data", "kind": "input", "data": {"a": 1}, "schema": {"type": "object"}}
    )
    own = read_message({"type": "profile", "profile": {"name": "Ann"}})
    assert own == read_message({"type": "data", "kind": "profile", "data": {"name": "Ann"}})
    assert (own.type, own.kind) == ("data", "profile")
    assert read_message("hello") == Message("user", "text", "hello", "text")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (5, "expected an object or text"),
        ({"role": "robot", "content": "x"}, "role must be"),
        ({"role": "user", "content": 5}, "content must be"),
        ({"type": "state"}, "requires the member 'state'"),
        ({"type": "state", "state": 5}, "must be an object"),
        ({"type": "data", "data": 5}, "requires a kind"),
        ({"type": "input", "input": {}, "schema": 5}, "schema must be"),
        ({"hello": 1}, "found keys"),
        ({"type": "text", "text": 5}, "text must be a string"),
    ],
)
def test_what_is_no_message_says_why(raw: JSON, says: str) -> None:
    with pytest.raises(MessageError, match=says):
        read_message(raw)


@given(
    st.lists(
        st.sampled_from([{"type": "state", "state": {"a": 1}}, "text", {"type": "x", "x": [1]}]),
        max_size=4,
    )
)
def test_messages_are_read_back_from_their_own_json(raw: list[JSON]) -> None:
    messages = read_context(raw)
    assert read_context([message.to_json() for message in messages]) == messages


CALL: JSON = {"_tool": "fetch", "url": "x"}


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "error", "data": {"call": CALL, "error": "it broke"}},
        {"type": "error", "call": CALL, "error": "it broke"},
        {"type": "error", "error": {"call": CALL, "error": "it broke"}},
        {"role": "user", "content": {"type": "error", "data": {"call": CALL, "error": "it broke"}}},
    ],
)
def test_an_error_is_read_in_each_of_its_spellings(raw: JSON) -> None:
    message = read_message(raw)
    assert (message.type, message.value) == ("error", {"call": CALL, "error": "it broke"})
    assert read_message(message.to_json()) == message
    [text] = Handlers().assemble(ContextParts([message])).texts
    assert "fetch" in str(text["content"])
    assert "it broke" in str(text["content"])


def test_the_value_of_any_message_may_stand_in_data() -> None:
    state = read_message({"type": "state", "data": {"a": 1}, "_instance": "①"})
    assert (state.type, state.value, state.instance) == ("state", {"a": 1}, "①")
    own = read_message({"type": "forecast", "data": [1]})
    assert (own.type, own.kind, own.value) == ("data", "forecast", [1])
    # The member that has the name of the type takes precedence.
    assert read_message({"type": "forecast", "forecast": 1, "data": 2}).value == 1


def test_data_of_one_kind_and_instance_merges_and_handlers_of_ones_own_take_part() -> None:
    def mood(message: Message, draft: Draft) -> None:
        draft.properties["thought_process"] = {"type": "string"}
        draft.model["temperature"] = 0
        draft.say("system", f"The mood is {message.value}.")

    handlers = Handlers()
    handlers.register("mood", mood)
    draft = handlers.assemble(
        ContextParts(
            read_context(
                [
                    {"type": "profile", "profile": {"name": "Ann"}},
                    {"type": "mood", "mood": "calm"},
                    {"type": "profile", "profile": {"age": 7}},
                ]
            )
        )
    )
    assert [text["content"] for text in draft.texts][1] == "The mood is calm."
    assert '"name": "Ann"' in str(draft.texts[0]["content"])
    assert '"age": 7' in str(draft.texts[0]["content"])
    assert len(draft.texts) == 2
    assert draft.properties == {"thought_process": {"type": "string"}}
    assert draft.model == {"temperature": 0}


def test_a_mind_reads_why_a_call_failed_in_full() -> None:
    reason = f"The file has no column 'total'. It has: {', '.join('abcd' * 60)}. Name one of them."
    error: JSON = {"call": CALL, "place": 0, "error": {"kind": "runtime", "message": reason}}
    draft = Handlers().assemble(ContextParts(read_context([{"type": "error", "error": error}])))
    [text] = draft.texts
    assert len(reason) > 700
    assert str(text["content"]).endswith(reason)


# -- previews --------------------------------------------------------------------------------------


@given(VALUES)
def test_small_values_are_shown_whole(value: JSON) -> None:
    assert shorten(value, ("state", "x"), small=10_000) == value


def test_large_values_are_shown_as_references() -> None:
    state: JSON = {"log": "x" * 50_000, "n": 5, "list": [{"v": n} for n in range(3000)]}
    shown = shorten(state, ("state",))
    assert isinstance(shown, dict)
    assert shown["n"] == 5
    log = shown["log"]
    items = shown["list"]
    assert isinstance(log, dict)
    assert isinstance(items, dict)
    assert log["reference"] == "†state.log"
    assert log["bytes"] == 50_002
    assert items["type"] == "array of 3000"
    assert len(encode(shown)) < 2048


def test_parsed_texts_are_kept_within_bounds() -> None:
    made: list[weakref.ref[Large]] = []

    def parse(text: str, **_: object) -> Large:
        value = Large([text])
        made.append(weakref.ref(value))
        return value

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(document_module, "decode", parse)
        for number in range(20):
            text = f'["{number}", "{"x" * 100_000}"]'
            assert read({"t": text}, ("t", "0"))
            assert read({"t": text}, ("t", "0"))

    assert len(made) == 20, "a large text is parsed once for reads in a row"
    assert sum(one() is not None for one in made) <= 2, "and not kept with 63 others"


class Large(list[JSON]):
    """A parsed value that can be watched."""


def test_messages_about_documents_are_short() -> None:
    long = "k" * 100_000
    assert len(describe_missing({"state": {long: 1}}, ("state", long + "x"))) < 500
    with pytest.raises(StateWriteError) as caught:
        write({"state": {long: 1}}, ("state", long, long), "set", 2)
    assert len(str(caught.value)) < 500


WIDE: JSON = {
    str(i): {str(j): {str(k): "x" * 70 for k in range(20)} for j in range(20)} for i in range(20)
}
NESTED: JSON = functools.reduce(
    lambda inner, _: {"k": inner, "l": ["y" * 50]}, range(90), cast("JSON", "deep")
)


@pytest.mark.parametrize(
    "value",
    [
        WIDE,
        {"k" * 1_000_000: 1},
        {"k" * 1_000_000: {"x": "y" * 5_000}},
        {str(n): "x" * 60 for n in range(5_000)},
        {str(n) + "k" * 90: {str(m) + "l" * 90: [1] * 500 for m in range(40)} for n in range(40)},
        [["x" * 200] * 300] * 300,
        [{"k" * 5_000: "x" * 5_000}] * 50,
        NESTED,
        10**4_000,
    ],
)
def test_what_is_shown_is_bounded_whatever_the_shape(value: JSON) -> None:
    assert len(encode(shorten({"v": value}, ("state",)))) < 6 * 2_048
    assert len(encode(reference_to(value, ("state", "v")))) < 3 * 2_048
    assert len(encode(shorten_literal({"call": value}))) < 10 * 1_024
    failed: JSON = {"call": value, "place": 0, "error": {"kind": "runtime", "message": value}}
    assert len(encode(shorten_error(failed))) < 30 * 1_024
    assert len(encode(shorten_error(value))) < 20 * 1_024
