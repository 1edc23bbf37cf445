"""A store in a file, closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ideabridge.bridge.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "ideas.db") as opened:
        yield opened
