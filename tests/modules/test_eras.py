"""Eras: servers that end, are silent, or name other versions when they are first spoken to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import module_fingerprint, parse_configuration
from ideabridge.bridge.modules import handshake, module
from ideabridge.bridge.modules.errors import ModuleConnectError
from ideabridge.tools.encoding import JSONObject

from .conftest import SERVERS, modules_of
from .test_http import served

pytestmark = pytest.mark.anyio


class Odd:
    """A server whose handshake is odd, and what its processes heard first."""

    def __init__(self, folder: Path, mode: str, *more: str) -> None:
        self._file = folder / "heard"
        script = str(SERVERS / "handshakes.py")
        self.entry: dict[str, Any] = {
            "command": sys.executable,
            "args": ["-I", "-S", script, mode, str(self._file), *more],
        }

    def heard(self) -> list[str]:
        """The first method of each process since the last time."""
        if not self._file.exists():
            return []
        lines = self._file.read_text().split()
        self._file.unlink()
        return lines


@pytest.mark.parametrize(
    ("mode", "heard", "era"),
    [
        ("dies_on_discover", ["server/discover", "initialize"], "legacy"),
        ("mute_on_discover", ["server/discover"], "legacy"),
        ("plain", ["server/discover"], "legacy"),
        ("names_modern", ["server/discover"], "modern"),
        ("dies_on_initialize", ["server/discover"], "modern"),
    ],
)
async def test_a_server_comes_up_in_the_era_that_it_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, heard: list[str], era: str
) -> None:
    # Servers that answer may take as long as they need to start.
    if mode == "mute_on_discover":
        monkeypatch.setattr(handshake, "DISCOVER_SECONDS", 0.2)
    odd = Odd(tmp_path, mode)
    async with modules_of({"m": odd.entry}) as modules:
        with anyio.fail_after(20):
            assert await modules["m"].call("echo", {}) == "done"
        assert modules["m"].era == era

    assert odd.heard() == heard


def bridge_of(folder: Path, entry: dict[str, Any]) -> Bridge:
    configuration = parse_configuration(
        {"mcpServers": {"m": entry}, "approval": "allow_all"}, project=folder
    )
    return Bridge(configuration, store=folder / "ideas.sqlite")


@pytest.mark.parametrize("mode", ["dies_on_discover", "mute_on_discover"])
async def test_what_worked_is_remembered_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode == "mute_on_discover":
        monkeypatch.setattr(handshake, "DISCOVER_SECONDS", 0.2)
    odd = Odd(tmp_path, mode)
    for number in range(3):
        async with bridge_of(tmp_path, odd.entry) as bridge:
            await bridge.modules["m"].ready(30)

        heard = odd.heard()
        assert heard[-1] == (
            "initialize" if number or mode == "dies_on_discover" else "server/discover"
        )
        assert len(heard) == (2 if number == 0 and mode == "dies_on_discover" else 1)

    # A different command is a different server.
    other = {**odd.entry, "args": [*odd.entry["args"], "2025-06-18"]}
    async with bridge_of(tmp_path, other) as bridge:
        await bridge.modules["m"].ready(30)

    assert odd.heard()[0] == "server/discover"


async def test_the_older_transport_is_remembered(tmp_path: Path) -> None:
    async with served("--sse") as (base, _process):
        entry = {"url": f"{base}/mcp", "headers": {"Authorization": "Bearer sesame-open-now"}}
        async with bridge_of(tmp_path, entry) as bridge:
            # This is what is stored once the server has been reached in this way.
            fingerprint = module_fingerprint(bridge.configuration, "m")
            way: JSONObject = {"era": "legacy", "kind": "sse", "server": "sdk "}
            bridge.store.tool_memory.keep_way(fingerprint, "m", way)
        for _ in range(2):
            async with bridge_of(tmp_path, entry) as bridge:
                held = bridge.modules["m"]
                await held.ready(30)
                assert held.status().kind == "sse"
                assert held.way is not None
                assert held.way.kind == "sse"


async def test_a_server_that_refuses_at_once_is_asked_each_time(tmp_path: Path) -> None:
    odd = Odd(tmp_path, "plain")
    for _ in range(2):
        async with bridge_of(tmp_path, odd.entry) as bridge:
            await bridge.modules["m"].ready(30)
        assert odd.heard() == ["server/discover"]


@pytest.mark.parametrize("mode", ["names_modern", "dies_on_initialize"])
async def test_a_remembered_way_that_works_no_more_is_forgotten(tmp_path: Path, mode: str) -> None:
    odd = Odd(tmp_path, mode)
    # The command and its arguments stay the same, but start another server after an update.
    script = tmp_path / "server.py"
    text = (SERVERS / "handshakes.py").read_text()
    entry = {**odd.entry, "args": ["-I", "-S", str(script), *odd.entry["args"][3:]]}
    script.write_text(text.replace("MODE = sys.argv[1]", 'MODE = "dies_on_discover"'))
    async with bridge_of(tmp_path, entry) as bridge:
        await bridge.modules["m"].ready(30)

    script.write_text(text)
    odd.heard()
    async with bridge_of(tmp_path, entry) as bridge:
        await bridge.modules["m"].ready(30)
        assert bridge.modules["m"].era == "modern"

    assert odd.heard() == ["initialize", "server/discover"]
    async with bridge_of(tmp_path, entry) as bridge:
        await bridge.modules["m"].ready(30)

    assert odd.heard() == ["server/discover"]


async def test_a_server_that_never_comes_up_is_tried_in_both_eras_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_RECONNECT_PAUSE", 0.01)
    odd = Odd(tmp_path, "dies")
    async with modules_of({"m": odd.entry}) as modules:
        with pytest.raises(
            ModuleConnectError, match="server 'm' ended with exit code 4 before it was up"
        ):
            await modules["m"].ready(30)

        assert odd.heard() == ["server/discover", "initialize"]
        # After that, each attempt starts only one process.
        with pytest.raises(ModuleConnectError, match="exit code 4"):
            await modules["m"].call("echo", {})

        assert len(odd.heard()) == 1


@pytest.mark.parametrize(
    ("mode", "arguments", "version", "note"),
    [
        ("plain", ("2099-01-01",), "2025-11-25", "taken as 2025-11-25, such as '2099-01-01'"),
        ("plain", ("2025-05-01",), "2025-03-26", "taken as 2025-03-26, such as '2025-05-01'"),
        ("plain", ("2023-01-01",), "2024-11-05", "taken as 2024-11-05"),
        ("plain", ("latest",), "2025-03-26", "taken as 2025-03-26, such as 'latest'"),
        ("number", (), "2025-03-26", "protocolVersion: "),
        ("none", (), "2025-03-26", "protocolVersion: "),
        ("null", (), "2025-03-26", "protocolVersion: "),
        ("names_versions", (), "2025-03-26", None),
        ("says_versions", (), "2025-03-26", None),
    ],
)
async def test_versions(
    tmp_path: Path, mode: str, arguments: tuple[str, ...], version: str, note: str | None
) -> None:
    odd = Odd(tmp_path, mode, *arguments)
    async with modules_of({"m": odd.entry}) as modules:
        await modules["m"].ready(30)
        status = modules["m"].status()
        assert status.protocol_version == version
        assert (note or "") in "\n".join(status.notes)
        assert await modules["m"].call("echo", {}) == "done"

    assert odd.heard() == ["server/discover"]


async def test_what_a_server_says_is_told_in_its_words_and_ours(tmp_path: Path) -> None:
    async with modules_of({"m": Odd(tmp_path, "refuses").entry}) as modules:
        with pytest.raises(ModuleConnectError) as raised:
            await modules["m"].ready(30)
        assert str(raised.value) == "server 'm' did not start: no licence (-32603)"
