"""A program that serves tools of its own over stdio."""

from functools import partial

import anyio

from ideabridge.bridge import Configuration
from ideabridge.server.serve import serve_stdio
from ideabridge.tools import Toolbox, tool


@tool(destructive=True)
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


if __name__ == "__main__":
    anyio.run(partial(serve_stdio, Configuration(), toolbox=Toolbox(send), store=":memory:"))
