"""A store, closed at the end: in a file, and in PostgreSQL. Every test that asks for
`store` runs on both.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ideabridge.bridge.store.store import Store
from tests.postgres import place

__all__ = ["file_store", "place", "store"]


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file, for tests of what only files have."""
    with Store.open(tmp_path / "ideas.db") as opened:
        yield opened
