"""One server over HTTP for the tests that need none of their own."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from mcp import Client

from .serving import ERAS, Gate, configured, http_process


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("shared")
    with http_process(configured(folder)) as url:
        yield url


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest, shared_url: str) -> AsyncGenerator[Client]:
    async with Client(shared_url, mode=request.param, read_timeout_seconds=60) as client:
        yield client


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configured(tmp_path)


@pytest.fixture
def gate(tmp_path: Path) -> Generator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    # Let everyone who is still waiting continue, because nothing may hang at the end.
    gate.open()
    gate.close()
