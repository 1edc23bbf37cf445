"""Text from outside, with what a terminal obeys and what nobody sees written out."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import printable, printable_line, readable_json, visible, without_hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x9b0m\x07\x7f", "\\u001b[31mred\\u009b0m\\u0007\\u007f"),
        ("over\rwritten", "over\\u000dwritten"),
        ("a\r\nb\tc", "a\r\nb\tc"),
        ("safe\u202etxt.exe\u2066\u200e\u061c", "safe\\u202etxt.exe\\u2066\\u200e\\u061c"),
        ("hi\U000e0068\U000e0069\U000e007f", "hi\\udb40\\udc68\\udb40\\udc69\\udb40\\udc7f"),
        ("git\u200blog\u2060\ufeff\u00ad", "git\\u200blog\\u2060\\ufeff\\u00ad"),
        ("line\u2028next", "line\\u2028next"),
        ("❤\ufe0f is one sign", "❤\ufe0f is one sign"),
        ("❤\ufe0f\ufe0e\ufe00\U000e0101", "❤\ufe0f\\ufe0e\\ufe00\\udb40\\udd01"),
        ("\ufe0f", "\\ufe0f"),
        ("\ud800", "\\ud800"),
        (
            "naïve 日本\u3000語 𝔘 e\u0301 مرحبا 10\u00a0km",
            "naïve 日本\u3000語 𝔘 e\u0301 مرحبا 10\u00a0km",
        ),
    ],
)
def test_what_is_hidden_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(without_hidden(text).replace("\r", "")) == without_hidden(text).replace(
        "\r", ""
    )


def test_one_line() -> None:
    assert printable_line("name\nError: none\t\u202e\r\n.") == "name Error: none \\u202e ."


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_stays_the_same_value(value: object) -> None:
    for indent in (None, 2):
        text = printable(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(text) == value
        assert printable(text) == text


VALUES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_json_for_people_is_the_same_value_without_what_hides(value: JSON) -> None:
    for text in (readable_json(value), readable_json(value, 2), readable_json(value, compact=True)):
        assert json.loads(text) == value
        for line in text.split("\n"):
            assert line.isprintable()
            content = line.lstrip(" ")
            assert visible(content) == content


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\u202eb", '"a\\u202eb"'),
        ("a\\u202eb", '"a\\\\u202eb"'),
        ({"k\u200b": "\ufe0f\ud800"}, '{"k\\u200b": "\\ufe0f\\ud800"}'),
        ("\U000e0041\u3164\u2028\u00ad", '"\\udb40\\udc41\\u3164\\u2028\\u00ad"'),
        ("a" + " " * 17 + "b", '"a' + " " * 16 + '\\u0020b"'),
        ("\x7f\x9b", '"\\u007f\\u009b"'),
        ("naïve 日本", '"naïve 日本"'),
    ],
)
def test_an_escape_is_not_a_text_that_looks_like_one(value: JSON, shown: str) -> None:
    assert readable_json(value) == shown
    assert json.loads(shown) == value


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for char in printable(text).replace("\r\n", "\n"):
        assert unicodedata.category(char) not in ("Cc", "Zl", "Zp", "Cs", "Co") or char in "\n\t"
        assert unicodedata.bidirectional(char) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
