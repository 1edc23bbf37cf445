"""Tools of the tests' servers."""

import os
from pathlib import Path

import anyio
import anyio.to_thread

from ideabridge.tools.decorator import tool


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


@tool(read_only=True)
async def count_words(text: str) -> dict[str, int]:
    """Count the words of a text."""
    return {"words": len(text.split())}


@tool(read_only=True)
async def fail(message: str) -> str:
    """Fail with a message."""
    raise ValueError(message)


@tool(read_only=True)
async def hold(gate: str) -> str:
    """Wait until somebody opens the named pipe."""

    def read() -> str:
        with Path(gate).open() as pipe:
            return pipe.readline().strip()

    return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)


@tool(read_only=True)
async def big(size: int) -> dict[str, str]:
    """A large value."""
    return {"small": "here", "large": "x" * size}


@tool(read_only=False, destructive=False)
async def write_note(path: str, text: str) -> int:
    """Write a note into a file."""
    return await anyio.Path(path).write_text(text)


@tool(read_only=True)
async def process() -> int:
    """The id of the server's process."""
    return os.getpid()
