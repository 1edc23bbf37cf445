"""Modules for tests that change what they list, or go down, while the rest goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ideabridge.bridge.configuration import Configuration, parse_configuration

SERVER = Path(__file__).with_name("listing_server.py")


def described(name: str, *, read_only: bool | None = True, **schema: Any) -> dict[str, Any]:
    """The definition of a tool that takes a repository; `schema` goes over its input schema."""
    parameters = {"type": "object", "properties": {"repo": {"type": "string"}}, **schema}
    hints = {} if read_only is None else {"annotations": {"readOnlyHint": read_only}}
    return {
        "name": name,
        "description": f"{name} of a repository",
        "inputSchema": parameters,
        **hints,
    }


class Modules:
    """Real servers over stdio, by name, whose lists are files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lists(self, name: str, *tools: dict[str, Any] | str) -> None:
        """What a module lists from its next `tools/list` on."""
        told = [described(tool) if isinstance(tool, str) else tool for tool in tools]
        (self.folder / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")

    def takes_down(self, name: str) -> None:
        """The module does not start any more."""
        (self.folder / f"{name}.down").touch()

    def brings_up(self, name: str) -> None:
        """The module starts again."""
        (self.folder / f"{name}.down").unlink()

    def calls(self, name: str) -> list[str]:
        """The tools of a module that were called."""
        file = self.folder / f"{name}.calls"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def entry(self, name: str, *more: str) -> dict[str, Any]:
        """The configuration of one of them; with another argument, it is another
        module of that name.
        """
        return {
            "command": sys.executable,
            "args": ["-I", str(SERVER), name, str(self.folder), *more],
        }

    def configured(self, *names: str, **top: Any) -> Configuration:
        """A configuration of them, in this order."""
        servers = {name: self.entry(name) for name in names}
        return parse_configuration({"mcpServers": servers, **top}, project=self.folder)
