"""Shared fixtures, and what every process of the tests is to find."""

import os
import sys

import pytest

# The tests start hundreds of processes. Where Python is told to keep no bytecode, as containers often do, each of them
# compiles all our sources again, and each worker all tests. It is kept in `__pycache__`, which git ignores.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
