"""Typed: what a person types at the terminal, line by line."""

from __future__ import annotations

import sys

from ideabridge.server.cli.console import clean, err


async def line(prompt: str) -> str | None:
    """One line from the terminal; None at its end. Waiting can be cancelled (Ctrl-C)."""
    import anyio
    import anyio.to_thread

    err().print(clean(prompt), end="")
    try:
        if sys.platform == "win32":
            text = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        else:
            # A terminal gives whole lines: readable means that reading does not block.
            await anyio.wait_readable(sys.stdin)
            text = sys.stdin.readline()
    except anyio.get_cancelled_exc_class():
        # What comes now does not stand behind the prompt.
        err().print()
        raise
    return text if text else None
