"""The model's server, one for all tests; `make test-model` says which Python it runs in."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

_SERVE = Path(__file__).parent / "serve.py"
_PATIENCE = 120.0
"""Seconds until a server has loaded its model; it takes about two."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def serving(*options: str) -> Generator[str]:
    """The base URL of a server that runs while the block does, and ends with this process
    however that ends.
    """
    python = os.environ.get(
        "IDEABRIDGE_MODEL_PYTHON", str(Path(__file__).parent.parent / ".venv-model/bin/python")
    )
    command = [python, str(_SERVE), *options]
    # Ignore standard error, because the server writes every refusal there, and those that matter
    # are also in its answers.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            assert port, f"the model's server ended: {' '.join(command)}"
            url = f"http://127.0.0.1:{port}/v1"
            began = time.monotonic()
            # The server is already listening, but it answers only once it is up.
            assert httpx.get(f"{url}/models", timeout=_PATIENCE).status_code == 200, (
                time.monotonic() - began
            )
            yield url
        finally:
            server.kill()


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with serving() as base_url:
        yield base_url
