"""Modules on hostile and honest servers."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.modules.modules import Modules
from tests import preloaded

SERVERS = Path(__file__).with_name("servers")
BIN = Path(sys.executable).parent


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder for the files of sign-ins."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


class Changes:
    """Hears of changes, and waits for one that makes a condition true."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._event = anyio.Event()

    def __call__(self, name: str) -> None:
        self.heard.append(name)
        self._event.set()
        self._event = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self._event.wait()


def raw(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Configuration of the raw server."""
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVERS / "raw.py"), *arguments],
        **keys,
    }


def sdk(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Configuration of the server on the SDK, over stdio."""
    return preloaded.module(SERVERS / "sdk.py", *arguments, **keys)


def configure(modules: dict[str, Any], **top: Any) -> Configuration:
    return parse_configuration({"mcpServers": modules, **top}, project=Path(__file__).parent)


def modules_of(
    modules: dict[str, Any], on_change: Callable[[str], None] | None = None, **top: Any
) -> Modules:
    return Modules(configure(modules, **top), on_change=on_change)


@pytest.fixture
def changes() -> Changes:
    return Changes()
