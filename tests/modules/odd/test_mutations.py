"""Thousands of sessions with an odd server: what is odd costs what is odd alone, and
no law is broken.

One mutation alone, as a failure prints it:

    ODD_MUTATION='["legacy", [...], null, []]' pytest tests/modules/odd/test_mutations.py -k alone
"""

from __future__ import annotations

import logging
import os

import pytest

from . import memory
from .mutations import Mutation, broken_laws, mutation

BLOCK = 100
"""Mutations in one test."""


def check(mutations: list[Mutation]) -> None:
    failed: list[str] = []
    for one in mutations:
        wrong = broken_laws(one)
        if wrong:
            failed.append(
                f"ODD_MUTATION='{one.to_json()}'\n      " + "\n      ".join(dict.fromkeys(wrong))
            )
    assert not failed, f"{len(failed)} of {len(mutations)} break a law:\n" + "\n".join(failed[:20])


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.use(monkeypatch)
    # The log is checked together with the switches. Here, thousands of records would take most of
    # the time.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)


@pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.long) for block in range(2, 20))]
)
def test_a_changed_member_costs_what_is_odd_alone(block: int) -> None:
    check([mutation(seed) for seed in range(block * BLOCK, (block + 1) * BLOCK)])


@pytest.mark.long
@pytest.mark.parametrize("block", range(100))
def test_changed_members_cost_what_is_odd_alone(block: int) -> None:
    check([mutation(1_000_000 + block * 1000 + number, most=3) for number in range(1000)])


@pytest.mark.skipif(
    "ODD_MUTATION" not in os.environ, reason="runs one mutation, named by the environment"
)
def test_alone() -> None:
    check([Mutation.from_json(os.environ["ODD_MUTATION"])])
