"""What a host is told of modules that are slow, down, denied, hidden or unknown, and of a program
without `await`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from tests.modules.conftest import SERVERS
from tests.modules.servers.odd import Edit
from tests.server.serving import configured, over_stdio, served, text

from .laws import foreign_words
from .test_ways import WAYS, Host, Way

SOON = 19.0
"""Real seconds in which everything here is answered, although a module never answers."""


def odd(*edits: Edit, **keys: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVERS / "odd.py"), json.dumps(edits)],
        **keys,
    }


REFUSES: list[Edit] = [
    ["initialize", "drop", ["result"]],
    ["initialize", "put", ["error"], {"code": -32000, "message": "no key"}],
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    configuration = configured(
        tmp_path_factory.mktemp("states"),
        mcpServers={
            "mute": odd(["initialize", "silent"]),
            "odd": odd(["tools/list", "drop", ["result", "tools", 1, "name"]], deny=["delete"]),
            "some": odd(allow=["look"]),
            "refuses": odd(*REFUSES),
            "ends": odd(["initialize", "exit", 3]),
        },
        expose=["modules"],
        approval={"default": "allow"},
    )
    began = time.monotonic()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(over_stdio(configuration, "auto", served)) as client,
    ):
        made = Host(portal, client)
        made.took = time.monotonic() - began
        yield made


def run(host: Host, way: Way, module: str, tool: str) -> str:
    """What a call says; it is answered soon."""
    began = time.monotonic()
    if way == "plan":
        result = host.call("run_plan", {"calls": [{"_tool": tool, "_module": module}]})
    elif way == "program":
        result = host.call("run_plan", {"program": f"import {module}\nawait {module}.{tool}()"})
    else:
        result = host.call(tool, {})

    assert time.monotonic() - began < SOON
    whole = result.model_dump_json(by_alias=True)
    assert not foreign_words([whole.replace("Traceback", "").replace("RuntimeError", "")])
    return whole


CASES: list[tuple[str, str, str, str]] = [
    # Each case has a name, a module, a tool, and a pattern for the text of the answer.
    ("works beside a mute one", "odd", "look", "right: look"),
    ("denied", "odd", "delete", "deny|denied|allow"),
    ("hidden", "some", "change", "allow"),
    ("unknown", "odd", "lok", "no tool|no member|unknown"),
    ("left out", "odd", "typed", "left out|name"),
    ("refuses", "refuses", "look", "no key"),
    ("ends", "ends", "look", "exit code 3"),
]


def marked() -> list[Any]:
    params: list[Any] = []
    for what, *rest in CASES:
        for way in WAYS:
            # The tools of several modules can have the same name, and a module that has never been
            # up may have tools of any name.
            if way == "directly" and what != "denied":
                continue
            params.append(pytest.param(way, *rest, id=f"state: {what}: {way}"))

    return params


@pytest.mark.parametrize(("way", "module", "tool", "words"), marked())
def test_each_state_is_told_soon(host: Host, way: Way, module: str, tool: str, words: str) -> None:
    said = run(host, way, module, tool)
    assert any(word in said for word in words.split("|")), said
    if module in ("refuses", "ends", "mute"):
        assert "unknown server" not in said
        assert "Cannot resolve" not in said


def test_the_handshake_waits_for_no_module(host: Host) -> None:
    assert host.took < SOON


def test_a_program_without_await_is_told_before_anything_runs(host: Host) -> None:
    run(host, "plan", "odd", "look")
    result = host.call("run_plan", {"program": "import odd\nodd.change()\n'done'"})
    assert "await" in text(result), text(result)
