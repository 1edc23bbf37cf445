"""Documents that people write: JSON with comments, and YAML 1.2 that cannot be more than JSON."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.tools.documents import MAX_YAML_BYTES, read_written
from ideabridge.tools.encoding import JSON, MAX_DEPTH
from ideabridge.tools.errors import InvalidJSONError, LimitExceededError


def yaml(text: str) -> JSON:
    return read_written(text, what="it", name="it.yaml")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("[yes, no, on, off, y, n]", ["yes", "no", "on", "off", "y", "n"]),
        ("[true, False, NULL, ~, '']", [True, False, None, None, ""]),
        ("[12:30, 190:20:30, 2026-11-27, 1_000]", ["12:30", "190:20:30", "2026-11-27", "1_000"]),
        ("[0o17, 017, 0x1F, -3, +4, .5, 1e3]", [15, 17, 31, -3, 4, 0.5, 1000.0]),
        ("a: {b: 1}\n? c\n: [d]", {"a": {"b": 1}, "c": ["d"]}),
        ("1: x\ntrue: y", {"1": "x", "true": "y"}),
        ("a: &x {n: 1}\nb: *x\nc: [*x]", {"a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}]}),
        ("&k key: 1\nother: *k", {"key": 1, "other": "key"}),
        ("a: |\n  one\n  two\nb: >-\n  one\n  two", {"a": "one\ntwo\n", "b": "one two"}),
        ("x: †state.a", {"x": "†state.a"}),
        ('"<<": {a: 1}', {"<<": {"a": 1}}),
        ("# nothing", None),
        ('"\\/x"', "/x"),
        ("'5'", "5"),
        ("%YAML 1.2\n--- 5\n...\n", 5),
    ],
)
def test_yaml_is_read_as_1_2_says(written: str, value: JSON) -> None:
    assert yaml(written) == value


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("a: 1\nb: 2\na: 3", r"line 3: the key 'a' occurs twice"),
        ("a: !!python/object/apply:os.system ['true']", r"line 1: found a tag"),
        ("a: !own x", "a tag"),
        ("a: !!str 5", "a tag"),
        ("a: *b", r"\*b refers to an anchor that no earlier value"),
        ("a: &a [*a]", "no earlier value"),
        ("--- 1\n--- 2", "line 2: found a second document"),
        ("%YAML 1.1\n--- 1", "expected YAML 1.2"),
        ("[.inf]", "not a JSON number"),
        ("[.NaN]", "not a JSON number"),
        ("[1e999]", "too large"),
        ("{[a]: 1}", "found a list or a mapping as a key"),
        ("a: &a {x: 1}\nb:\n  <<: *a", "line 3: found <<, a merge key"),
        (f"a: {'9' * 5000}", "line 1: found a number with 5,000 digits"),
        ("a: [1", "line"),
        ("a: \x00", "expected YAML 1.2"),
        ("a: 'x", "line"),
        ("\ta: 1", "expected YAML 1.2"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(written: str, why: str) -> None:
    with pytest.raises(InvalidJSONError, match=why):
        yaml(written)


def test_aliases_cannot_stand_for_more_than_a_text_may_hold() -> None:
    laughs = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    laughs += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(LimitExceededError, match="aliases expanded"):
        yaml("\n".join(laughs))

    with pytest.raises(LimitExceededError, match="aliases expanded"):
        yaml(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]")

    chain = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2 * MAX_DEPTH))]
    with pytest.raises(LimitExceededError, match="is nested deeper"):
        yaml("\n".join(chain))


def test_depth_and_size_are_bounded() -> None:
    with pytest.raises(LimitExceededError, match="is nested deeper"):
        yaml("[" * 100_000)
    with pytest.raises(LimitExceededError, match="is nested deeper"):
        yaml("- " * 100_000)
    with pytest.raises(LimitExceededError, match="bytes of YAML"):
        yaml(f"a: {'x' * MAX_YAML_BYTES}")


@pytest.mark.parametrize(
    "part", ["? ", "&a ", "'", "a: b\n", "{a: ", "!x ", "*a ", "- a\n", "|\n", "# x\n", ": ", "é "]
)
def test_no_text_takes_longer_than_its_size_allows(part: str) -> None:
    # Anything that takes quadratic time takes minutes here.
    started = time.process_time()
    with suppress(InvalidJSONError, LimitExceededError):
        yaml(part * (40_000 // len(part)) + "\n[")
    assert time.process_time() - started < 10


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_json_is_read_the_same_by_any_name(value: Any) -> None:
    text = json.dumps(value)
    for name in ("it.json", "it.jsonc", "it.yaml", ""):
        if name in ("it.json", "it.jsonc") or "\x7f" not in text:
            assert read_written(text, what="it", name=name) == value


def test_json_in_a_yaml_file_may_have_long_keys() -> None:
    text = json.dumps({"k" * 2_000: [1]})
    assert read_written(text, what="it", name="it.yaml") == {"k" * 2_000: [1]}
    with pytest.raises(InvalidJSONError, match="twice"):
        read_written('{"a": 1, "a": 2}', what="it", name="it.yaml")


def test_json_may_have_comments_and_trailing_commas() -> None:
    text = '// one\n{"a": [1, 2,], /* two */ "b": "// no comment",}'
    assert read_written(text, what="it", name="it.json") == {"a": [1, 2], "b": "// no comment"}
    assert read_written(text, what="it") == {"a": [1, 2], "b": "// no comment"}
    assert read_written(b"\xef\xbb\xbfa: 1", what="it") == {"a": 1}
    with pytest.raises(InvalidJSONError, match="twice"):
        read_written('{"a": 1, "a": 2}', what="it")

    with pytest.raises(InvalidJSONError, match="UTF-8"):
        read_written(b"\xff", what="it")


def test_random_text_is_read_or_refused() -> None:
    @settings(max_examples=60)
    @given(st.text(max_size=60))
    def check(text: str) -> None:
        with suppress(InvalidJSONError, LimitExceededError):
            yaml(text)

    check()
