"""Tables fit a terminal, and lose nothing but the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import east_asian_width

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.lifting.tables import table_rows

HEADS = ("parameter", "example", "if it is left out")


def lines_of(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    return [line for _, line in table_rows(HEADS, rows, width)]


def columns(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def test_columns_are_aligned() -> None:
    rows = [("limit", "50", "always the same"), ("project", '"anvil"', "required")]

    assert lines_of(rows, None) == [
        "parameter  example  if it is left out",
        "limit      50       always the same",
        'project    "anvil"  required',
    ]


def test_long_cells_are_wrapped_in_their_column() -> None:
    rows = [
        ("owner", '"anvil@example.org"', "taken from owner of result 0 (get_issue); or the same")
    ]

    assert lines_of(rows, 60) == [
        "parameter  example              if it is left out",
        'owner      "anvil@example.org"  taken from owner of result 0',
        "                                (get_issue); or the same",
    ]


CELLS = st.text(st.sampled_from("ab 漢é,\u200b\x1b"), max_size=60)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4), st.integers(40, 130))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = lines_of(rows, width)

    assert all(columns(line) <= width for line in lines)
    assert len(lines) >= len(rows) + 1


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4))
def test_nothing_is_lost(rows: list[tuple[str, str, str]]) -> None:
    narrow = "".join("".join(lines_of(rows, 40)).split())
    wide = "".join("".join(lines_of(rows, None)).split())

    assert sorted(narrow) == sorted(wide)
