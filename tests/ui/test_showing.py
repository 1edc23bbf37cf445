"""What a page shows of a large value is the beginning of its text, and costs no more than that."""

from __future__ import annotations

import random

import pytest

from ideabridge.server.ui import showing
from ideabridge.server.ui.showing import bounded, omitted, text_of
from ideabridge.tools.encoding import JSON


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
    return {f"{number}" * choice.randrange(1, 9): made(choice, depth - 1) for number in range(choice.randrange(6))}


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
