"""Each switch of the odd server, over stdio, under a clock that jumps."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import anyio
import pytest

from ideabridge.bridge.modules.errors import ModuleError
from ideabridge.bridge.modules.module import Module
from ideabridge.bridge.modules.offering import Kind
from ideabridge.tools.errors import IdeabridgeError
from tests.modules.conftest import modules_of

from . import memory
from .laws import foreign_words
from .switches import ANY, LOOK, NAMES, SWITCHES, Switch

KINDS: tuple[Kind, ...] = ("resources", "templates", "prompts")
LONGEST = 600.0
"""Seconds, under the clock of the test, in which everything ends."""


def marked() -> list[Any]:
    return [pytest.param(switch, id=switch.name) for switch in SWITCHES]


@pytest.mark.parametrize("switch", marked())
def test_an_oddity_costs_what_is_odd_alone(
    switch: Switch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory.use(monkeypatch)
    with caplog.at_level(logging.INFO):
        memory.run(lambda: holds(switch))
    assert not foreign_words(
        [record.getMessage() for record in caplog.records if record.name != "asyncio"]
    )
    assert not [record for record in caplog.records if record.exc_info]


async def holds(switch: Switch) -> None:
    edits = [] if switch.own else switch.edits
    with anyio.fail_after(LONGEST):
        async with modules_of({"odd": memory.entry(edits, switch.era)}) as modules:
            module = modules["odd"]
            said = await session_holds(switch, module)
            status = module.status()
            said += [*status.notes, status.error or ""]
            assert not foreign_words(said)
            if switch.note is not None:
                assert any(re.search(switch.note, note) for note in status.notes), (
                    f"notes: {status.notes}"
                )


async def session_holds(switch: Switch, module: Module) -> list[str]:
    """Check a session; return what it says in errors."""
    began = anyio.current_time()
    said: list[str] = []
    if not switch.up:
        await module.settle()
        with pytest.raises(ModuleError, match=switch.says) as caught:
            await module.call("look", {})
        return [str(caught.value)]

    with anyio.fail_after(switch.within):
        while module.state != "up":
            try:
                await module.reach()
            except ModuleError as error:
                said.append(str(error))

        # If the first list failed, the module is asked again.
        while not {*NAMES} - {tool.name for tool in module.tools} <= missing(switch):
            await anyio.sleep(1)
            if anyio.current_time() - began > switch.within - 2:
                break

    assert anyio.current_time() - began <= switch.within
    assert {*NAMES} - {tool.name for tool in module.tools} <= missing(switch), (
        f"notes: {module.status().notes}"
    )
    for name, hints in switch.hints.items():
        shown = module.tool(name).annotations.to_json()
        assert {
            key: value for key, value in shown.items() if key != "title" and key in HINTS
        } == dict(hints)

    if switch.tool is not None:
        said += await call_holds(switch, module)

    if not missing(switch) >= {"look"}:
        assert await module.call("look", {}) == LOOK

    for kind in KINDS:
        # A module's lists are read, whatever else is odd about it.
        try:
            entries = await module.offered(kind)
        except ModuleError as error:
            said.append(str(error))
            if kind in switch.offered:
                raise
        else:
            assert len(entries) >= switch.offered.get(kind, 0)

    return said


HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def missing(switch: Switch) -> set[str]:
    return {*NAMES} if "*" in switch.without else {*switch.without}


async def outcome(module: Module, tool: str, arguments: dict[str, Any]) -> tuple[Any, str | None]:
    """The value of a call, or the text of its error."""
    try:
        return await module.call(tool, arguments), None
    except IdeabridgeError as error:
        return None, str(error)


async def call_holds(switch: Switch, module: Module) -> list[str]:
    assert switch.tool is not None
    arguments = dict(switch.arguments)
    if switch.own:
        arguments["edits"] = json.dumps(switch.edits)

    value, error = await outcome(module, switch.tool, arguments)
    if error is not None:
        assert switch.value is None, error
        if switch.error is not None:
            assert re.search(switch.error, error), error

        if switch.reaches is not None:
            assert switch.reaches in error
        return [error]

    assert switch.error is None, value
    if switch.value is not None and switch.value is not ANY:
        assert value == switch.value

    if switch.reaches is not None:
        assert switch.reaches in json.dumps(value, ensure_ascii=False)

    return []
