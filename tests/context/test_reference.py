"""References and output paths."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context.errors import MessageError, ReferenceSyntaxError
from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.references import (
    KINDS,
    Hole,
    compile_value,
    escape,
    fill,
    format_reference,
    is_instance_name,
    is_reference,
    parse_reference,
    parse_target,
    unescape,
)
from ideabridge.bridge.loop.initial_documents import check_instance
from ideabridge.tools.encoding import JSON

KEYS = st.text(min_size=1, max_size=12).filter(
    lambda text: max(text) < "\ud800" or min(text) > "\udfff"
)


@given(st.sampled_from([kind for kind in KINDS if kind != "item"]), st.lists(KEYS, max_size=6))
def test_a_path_of_any_keys_is_written_and_read_back(kind: str, keys: list[str]) -> None:
    text = format_reference((kind, *keys))
    expression = parse_reference(text)
    assert expression.alternatives[0][0].full == (kind, *keys)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("†state", ("state",)),
        ("†state.a.b", ("state", "a", "b")),
        ("†results.3.x", ("results", "3", "x")),
        ("†results[3].x", ("results", "3", "x")),
        ('†state["odd.key"].x', ("state", "odd.key", "x")),
        ('†state["a \\"b\\""]', ("state", 'a "b"')),
        ("†item", ("item",)),
        ("  †data.profile.name ", ("data", "profile", "name")),
        ("†state.größe-1", ("state", "größe-1")),
    ],
)
def test_reference_forms(text: str, full: tuple[str, ...]) -> None:
    assert parse_reference(text).alternatives[0][0].full == full


def test_and_binds_tighter_than_or() -> None:
    parsed = parse_reference("†state.a && †state.b || †input.c&&†item.d")
    assert [[one.text for one in group] for group in parsed.alternatives] == [
        ["†state.a", "†state.b"],
        ["†input.c", "†item.d"],
    ]


def test_an_instance_stands_before_the_kind() -> None:
    (operand,) = parse_reference("†①.state.x").alternatives[0]
    assert (operand.instance, operand.full) == ("①", ("state", "x"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("†", "expected a reference"),
        ("†foo.bar", "unknown kind 'foo'"),
        ("†state.", "unexpected '.'"),
        ("†state.a b", "unexpected"),
        ("†state.a || x", "every operand starts with †"),
        ("†state.a|", "unexpected '|'"),
        ("†state[x]", "unexpected '['"),
        ("†①.item.x", "cannot be read across"),
        ("†" + "a" * 5000, "limit is 4,096"),
        ("†state" + ".a" * 200, "limit is 100"),
    ],
)
def test_what_is_no_reference_says_why(text: str, says: str) -> None:
    with pytest.raises(ReferenceSyntaxError, match=says.replace("|", r"\|").replace("[", r"\[")):
        parse_reference(text)


@given(st.text(max_size=30))
def test_any_text_can_be_escaped(text: str) -> None:
    written = escape(text)
    assert not is_reference(written) or not text.startswith("†")
    holes: list[Hole] = []
    assert compile_value(written, holes, []) == text
    assert not holes
    assert unescape(written) == text


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (parse_reference, parse_target):
        with contextlib.suppress(ReferenceSyntaxError):
            parse(text)


def test_only_whole_strings_are_references_and_keys_never() -> None:
    holes: list[Hole] = []
    value: JSON = {"†state.key": "see ††state.a", "list": ["†state.b", 1]}
    compiled = compile_value(value, holes, [])
    assert [hole.expression.text for hole in holes] == ["†state.b"]
    assert fill(compiled, lambda _: "†state.c") == {
        "†state.key": "see †state.a",
        "list": ["†state.c", 1],
    }


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("Log is: †state.log", "†state.log"),
        ("Log:†state.log, see", "†state.log"),
        ("†state.log is it", "†state.log"),
        ('†state["odd key"], too', '†state["odd key"]'),
        (" †input", "†input"),
        ("for †item: go", "†item"),
        ("of †①.state.x!", "†①.state.x"),
        ("††state.a, †state.b", "†state.b"),
        ("a†results.0b", "†results.0b"),
    ],
)
def test_a_reference_inside_a_longer_text_is_a_problem_that_names_it(
    text: str, reference: str
) -> None:
    problems: list[tuple[tuple[str, ...], str]] = []
    assert compile_value([text], [], problems) == [text]
    [(place, message)] = problems
    assert place == ("0",)
    assert f": {reference} is inside a longer text" in message
    assert '"_tool": "template"' in message
    assert message.endswith(f"write two daggers: †{reference}")


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("5† and 6‡, see note ††", "5† and 6‡, see note ††"),
        ("a †foo.bar, †stately, †item-7, † state.x", "a †foo.bar, †stately, †item-7, † state.x"),
        ("Log is: ††state.log", "Log is: †state.log"),
        ("††state.a is like †††item.b", "†state.a is like ††item.b"),
        ("††", "†"),
    ],
)
def test_daggers_in_a_text_are_text(text: str, literal: str) -> None:
    problems: list[tuple[tuple[str, ...], str]] = []
    assert (compile_value(text, [], problems), problems) == (literal, [])


@given(
    st.lists(
        st.sampled_from(["†", "state", "item", ".", "x", " ", "①", "a", "-"]), max_size=14
    ).map("".join)
)
def test_texts_full_of_daggers_can_be_escaped(text: str) -> None:
    holes: list[Hole] = []
    problems: list[tuple[tuple[str, ...], str]] = []
    assert (compile_value(escape(text), holes, problems), holes, problems) == (text, [], [])


def test_hostile_texts_are_looked_through_in_linear_time() -> None:
    for text in ("†" * 300_000, "†a" * 150_000, "†" + "a" * 300_000, "†a." * 100_000):
        compile_value(f"x{text}", [], [])


def test_a_value_without_references_is_itself() -> None:
    value: JSON = {"deep": [{"x": "plain"}]}
    assert compile_value(value, [], []) is value


@pytest.mark.parametrize(
    ("text", "mode", "paths"),
    [
        ("sentiment", "one", [("state", "sentiment")]),
        ("†state.sentiment", "one", [("state", "sentiment")]),
        ("a.b[0]", "one", [("state", "a", "b", "0")]),
        ('["odd key"].x', "one", [("state", "odd key", "x")]),
        ("ok || †state.err", "either", [("state", "ok"), ("state", "err")]),
        ("a && b && c", "both", [("state", "a"), ("state", "b"), ("state", "c")]),
        ("results", "one", [("state", "results")]),
        ('["a||b"]', "one", [("state", "a||b")]),
        ('["a&&b"].x || ["c\\"||d"]', "either", [("state", "a&&b", "x"), ("state", 'c"||d')]),
    ],
)
def test_targets(text: str, mode: str, paths: list[tuple[str, ...]]) -> None:
    target = parse_target(text)
    assert (target.mode, list(target.paths)) == (mode, paths)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a || b || c", "two paths"),
        ("a || b && c", "not a mix"),
        ("†input.x", "only state can be written"),
        ("†①.state.x", "to its own instance"),
        ("state.x", "write 'x'"),
        ("a b", "unexpected ' '"),
        (".".join("k" * 33), "33 nested keys; the limit is 32"),
    ],
)
def test_what_is_no_target_says_why(text: str, says: str) -> None:
    with pytest.raises(ReferenceSyntaxError, match=says):
        parse_target(text)


def test_names_of_instances_are_those_a_reference_can_hold() -> None:
    for name in ("①", "a", "größe-1", "日本"):
        assert is_instance_name(name)
        assert parse_reference(f"†{name}.state.x").alternatives[0][0].instance == name

    for name in (
        "",
        "state",
        "a b",
        "a\r",
        "a\u00a0b",
        "a\u2028",
        "a\u3000",
        "a.b",
        "a|b",
        'a"',
        "†",
        "a\n",
    ):
        assert not is_instance_name(name)
        with pytest.raises(MessageError, match="_instance"):
            check_instance(name)

    with pytest.raises(MessageError, match="1 to 64"):
        check_instance("i" * 65)

    with pytest.raises(MessageError, match="_instance is empty"):
        read_message({"type": "state", "state": {}, "_instance": ""})


@pytest.mark.parametrize("parse", [parse_reference, parse_target])
@pytest.mark.parametrize(
    "text", ["†" + "a" * 4_000, "†state." + "a" * 4_000 + "?" + "|", "a b" * 1_000, '["' * 1_000]
)
def test_messages_show_the_beginning_of_a_long_text(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ReferenceSyntaxError) as caught:
        parse(text)
    assert len(str(caught.value)) < 500
