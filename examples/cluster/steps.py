"""Tools of the cluster's demo, in a file of Python tools. Each execution writes a line into a
ledger, which is counted.

A line is `PROCESS TOOL WHAT`, and is on the disk before the work begins.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ideabridge.tools import tool

SECONDS = 0.4


def note(ledger: str, *words: str) -> None:
    """Append a line to the ledger."""
    place = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(place, f"{' '.join((str(os.getpid()), *words))}\n".encode())
        os.fsync(place)
    finally:
        os.close(place)


@tool(idempotent=True)
async def archive(part: str, ledger: str) -> str:
    """Put a part of a report into the archive, which takes as long as a call over a network.

    Args:
        part: the part.
        ledger: the file that gets a line for each execution.
    """
    note(ledger, "archive", part)
    await asyncio.sleep(SECONDS)
    return f"archived {part} of {Path(ledger).name}"


@tool
def announce(report: str, ledger: str) -> str:
    """Announce a report once.

    Args:
        report: the report.
        ledger: the file that gets a line for each execution.
    """
    note(ledger, "announce", "report")
    return f"announced {len(report.splitlines())} lines"
