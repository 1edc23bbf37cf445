"""A server that counts its starts, for tests of when servers start and stop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .conftest import SERVERS

READS = {"readOnlyHint": True}


def tool(name: str, *required: str, **more: Any) -> dict[str, Any]:
    """The definition of a tool that only reads, with these text parameters."""
    properties = {parameter: {"type": "string"} for parameter in required}
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return {"name": name, "inputSchema": schema, "annotations": READS, **more}


class Starting:
    """A server whose entry stays the same whatever it does next; see `servers/starting.py`.

    Attributes:
        name: its name.
        entry: its entry of `mcpServers`.
    """

    def __init__(self, folder: Path, name: str = "m", **keys: Any) -> None:
        self.name = name
        self._file = folder / f"{name}.json"
        self._members: dict[str, Any] = {"tools": [tool("tally"), tool("die")]}
        script = str(SERVERS / "starting.py")
        self.entry: dict[str, Any] = {
            "command": sys.executable,
            "args": ["-I", "-S", script, str(self._file)],
            **keys,
        }
        self.change()

    def change(self, **members: Any) -> None:
        """Change what it is from its next start on."""
        self._members |= members
        self._file.write_text(json.dumps(self._members))

    @property
    def starts(self) -> int:
        """How many times it was started."""
        file = self._file.with_name(f"{self._file.name}.starts")
        return len(file.read_text().split()) if file.exists() else 0
