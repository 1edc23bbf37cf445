"""A process that owns a stubborn module, to be killed."""

import sys
from pathlib import Path

import anyio

from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.modules.modules import Modules
from ideabridge.tools.encoding import JSON


async def main() -> None:
    server, fifo = sys.argv[1:]
    entry: JSON = {"command": sys.executable, "args": ["-I", "-S", server, "stubborn", fifo]}
    async with Modules(
        parse_configuration({"mcpServers": {"stubborn": entry}}, project=Path.cwd())
    ) as modules:
        await modules.settled()
        await anyio.sleep_forever()


anyio.run(main)
