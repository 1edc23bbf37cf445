"""Shown numbers: the numbers of a column for people, never rounded."""

from __future__ import annotations

import pytest

from ideabridge.server.ui.shown_numbers import shown_numbers


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ([45.0, 320.0], ["45", "320"]),
        ([49.0, 320.0, 18.5], ["49.00", "320.00", "18.50"]),
        ([1, 2.125], ["1.000", "2.125"]),
        ([-1.5, 2], ["-1.50", "2.00"]),
        ([1, 2], ["1", "2"]),
        # No number is rounded.
        ([0.123456, 1.0], ["0.123456", "1.0"]),
        ([1e300, 1.0], ["1e+300", "1.0"]),
        ([], []),
    ],
)
def test_the_numbers_of_a_column(numbers: list[int | float], texts: list[str]) -> None:
    assert shown_numbers(numbers) == texts
