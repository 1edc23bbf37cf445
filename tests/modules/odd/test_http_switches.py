"""Each switch of the odd server over HTTP, on real sockets."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import anyio
import pytest

from ideabridge.bridge.modules.errors import ModuleError
from ideabridge.bridge.modules.module import Module
from tests.modules.conftest import modules_of
from tests.modules.servers.odd import RIGHT, Site, Web

from .http_switches import HTTP, LOOK, HttpSwitch
from .laws import foreign_words
from .test_switches import outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_folder")]


@pytest.fixture(scope="module")
def web() -> Generator[Web]:
    server = Web()
    server.start()
    yield server
    server.close()


def marked() -> list[Any]:
    return [pytest.param(number, switch, id=switch.name) for number, switch in enumerate(HTTP)]


@pytest.mark.parametrize(("number", "switch"), marked())
async def test_an_oddity_of_http_costs_what_is_odd_alone(
    web: Web, number: int, switch: HttpSwitch
) -> None:
    name = f"site{number}"
    url = web.add(name, switch.edits, switch.era, **switch.options)
    if switch.place is not None:
        url = f"{web.origin}/{name}/{switch.place}"

    said: list[str] = []
    entry = {"url": url, "connect_timeout": 15, "timeout": 15, **switch.entry}
    with anyio.fail_after(switch.seconds):
        async with modules_of({"odd": entry}) as modules:
            module = modules["odd"]
            if switch.name == "crossed answers":
                await crossed(module)
            elif switch.up:
                said = await called(module, switch, web.sites[name])
            else:
                with pytest.raises(ModuleError, match=switch.says) as caught:
                    await module.call("look", {})
                said = [str(caught.value)]

            status = module.status()

    assert not foreign_words([*said, *status.notes, status.error or ""])
    if switch.note is not None:
        assert any(re.search(switch.note, note) for note in status.notes), status.notes


async def called(module: Module, switch: HttpSwitch, site: Site) -> list[str]:
    said: list[str] = []
    value, error = await outcome(module, switch.tool, {})
    if error is not None:
        assert switch.error is not None, error
        assert re.search(switch.error, error), error
        said.append(error)
    else:
        assert switch.error is None, value
        assert value == RIGHT + switch.tool

    arrived = [message for _, _, message in site.requests if message.get("method") == "tools/call"]
    assert len(arrived) <= switch.calls, f"{len(arrived)} calls reached the server"
    if switch.later:
        assert await module.call("look", {}) == LOOK

    assert len(site.requests) < 30, f"{len(site.requests)} requests reached the server"
    return said


async def crossed(module: Module) -> None:
    """Two calls at once, whose answers come on each other's streams, by their ids."""
    values: dict[str, object] = {}
    await module.reach()

    async def call(tool: str) -> None:
        values[tool] = await module.call(tool, {})

    async with anyio.create_task_group() as group:
        for tool in ("look", "change"):
            group.start_soon(call, tool)

    assert values == {"look": RIGHT + "look", "change": RIGHT + "change"}
