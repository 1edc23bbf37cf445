"""What a page shows of a large value is the beginning of its text, and costs no more than that."""

from __future__ import annotations

import random

import pytest

from ideabridge.server.ui import showing
from ideabridge.server.ui.askers import kind_of_assistant
from ideabridge.server.ui.rendering import FILES
from ideabridge.server.ui.showing import (
    age,
    bounded,
    breakable,
    coded,
    commands,
    hue,
    in_one_line,
    initial,
    omitted,
    text_of,
    until,
)
from ideabridge.server.views import text as texts
from ideabridge.server.views.text import shortened_json
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import readable_json, visible


def made(choice: random.Random, depth: int) -> JSON:
    """Any value."""
    kind = choice.randrange(6 if depth else 4)
    if kind == 0:
        return choice.choice([None, True, False, 0, -1.5, 2**70, "", "†", '"\\'])
    if kind == 1:
        return choice.choice("ab\n\x00") * choice.randrange(60)
    if kind in (2, 3):
        return choice.randrange(10**6)
    if kind == 4:
        return [made(choice, depth - 1) for _ in range(choice.randrange(6))]
    return {
        f"{number}" * choice.randrange(1, 9): made(choice, depth - 1)
        for number in range(choice.randrange(6))
    }


def test_a_page_shows_the_beginning_of_the_text_of_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = random.Random(1)
    for _ in range(2_000):
        monkeypatch.setattr(showing, "LONGEST", choice.randrange(1, 300))
        value = made(choice, 3)
        text = text_of(value)
        assert bounded(value) == text[: showing.LONGEST]
        assert (omitted(value) > 0) == (len(text) > showing.LONGEST)


def test_of_a_large_value_only_the_beginning_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def count(value: JSON) -> str:
        text = text_of(value)
        written.append(len(text))
        return text

    monkeypatch.setattr(showing, "text_of", count)
    tags: list[JSON] = ["x"] * 5
    value: list[JSON] = [{"name": f"row {number}", "tags": tags} for number in range(50_000)]
    assert len(bounded(value)) == showing.LONGEST
    assert omitted(value) > 1_000_000
    assert sum(written) < 50 * showing.LONGEST


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("/home/ann/shop/ideas.sqlite", ["/home/", "ann/", "shop/", "ideas.", "sqlite"]),
        ("find_customer", ["find_", "customer"]),
        ("https://e.org/a", ["https://e.", "org/", "a"]),
        ("SQLite 3.53.4, 50.0", ["SQLite 3.53.4, 50.0"]),
        ("run --output", ["run --output"]),
        ("This is it. And that", ["This is it. And that"]),
    ],
)
def test_a_line_ends_after_a_separator(text: str, parts: list[str]) -> None:
    assert breakable(text) == "<wbr>".join(parts)


def test_a_text_in_which_lines_may_end_is_escaped() -> None:
    assert breakable("<b>/x\u202e") == "&lt;b&gt;/x\\u202e"
    assert coded("see `a/<b>` now") == "see <code>a/&lt;b&gt;</code> now"
    assert coded("a ` b_c") == "a ` b_<wbr>c"
    # What was cut inside backticks is code up to its end.
    assert coded("see `co…") == "see <code>co…</code>"


def test_a_line_shows_the_beginning_of_a_value() -> None:
    choice = random.Random(2)
    for _ in range(2_000):
        most = choice.randrange(2, 300)
        value = made(choice, 3)
        if isinstance(value, str):
            line = visible(" ".join(value.split()))
        else:
            line = readable_json(value)
        assert in_one_line(value, most) == (line if len(line) <= most else f"{line[: most - 1]}…")
        compact = readable_json(value, compact=True)
        expected, cut, _ = shortened_json(value, most).partition("... (")
        assert expected == compact[:most]
        assert bool(cut) == (len(compact) > most)


@pytest.mark.parametrize(
    ("part", "count"), [("word ", 1_000_000), ("x", 5_000_000), ([{"name": "row"}], 500_000)]
)
def test_a_line_writes_no_more_of_a_large_value(
    part: str | list[JSON], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = part * count
    written: list[int] = []

    def note(part: JSON, indent: int | None = None, *, compact: bool = False) -> str:
        text = readable_json(part, indent, compact=compact)
        written.append(len(text))
        return text

    def note_text(part: str) -> str:
        written.append(len(part))
        return visible(part)

    for module in (showing, texts):
        monkeypatch.setattr(module, "readable_json", note)
        monkeypatch.setattr(module, "visible", note_text)

    assert len(in_one_line(value)) == 120
    assert shortened_json(value).endswith(" characters)")
    assert 0 < sum(written) < 10_000


def test_a_relative_time_has_the_exact_one() -> None:
    shown = age("2026-11-22T10:15:03.120+00:00", 1_795_342_563.12)
    assert 'title="2026-11-22 10:15:03 UTC"' in shown
    assert 'datetime="2026-11-22T10:15:03Z"' in shown
    assert ">1 min ago<" in shown
    assert age(None, 1_795_342_563.12) == ""


def test_the_time_until_a_moment_is_rounded_up_and_ends_as_an_age() -> None:
    at = "2026-11-22T10:15:03+00:00"
    moment = 1_795_342_503.0
    shown = until(at, moment - 89.5 * 86_400)
    assert 'datetime="2026-11-22T10:15:03Z"' in shown
    assert ">in 90 days<" in shown
    # The script lets ages grow, so it must not find this text.
    assert "data-age" not in shown
    assert ">1 min ago<" in until(at, moment + 60)
    assert until(None, moment) == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Claude Code", "C"),
        ("cursor", "C"),
        ("largest_order", "L"),
        ("github.search", "G"),
        ("x", "X"),
        ("été", "É"),
        ("--", "-"),
        ("", ""),
    ],
)
def test_a_tile_has_the_first_letter_of_a_name(name: str, expected: str) -> None:
    assert initial(name) == expected
    assert 1 <= hue(name) <= 8


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Claude Code", "terminal"),
        ("Cursor", "editor"),
        ("Claude Desktop", "chat"),
        ("somebody's script", "agent"),
    ],
)
def test_an_assistant_has_an_icon_for_where_people_use_it(name: str, kind: str) -> None:
    assert kind_of_assistant(name) == kind


def test_every_colour_of_a_tile_is_in_the_style_sheet() -> None:
    styles = (FILES / "static" / "ui.css").read_text("utf-8")
    used = {hue(f"server {number}") for number in range(200)}
    assert {number for number in used if f".hue-{number} " not in styles} == set()
    assert len(used) == 8


def test_the_commands_in_a_sentence_are_parts_of_their_own() -> None:
    parts = commands("Run `ideabridge doctor`, and correct `model`.")
    assert [(part.text, part.is_command) for part in parts] == [
        ("Run ", False),
        ("ideabridge doctor", True),
        (", and correct `model`.", False),
    ]
    assert commands("") == []
