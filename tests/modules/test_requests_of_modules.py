"""Requests of a module are answered at once in every state, also where nobody can be asked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import Bridge, Plan
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.inquiry import FormAnswer, Inquiry
from ideabridge.bridge.modules.modules import Modules
from ideabridge.tools.encoding import JSON
from tests import preloaded

from .conftest import SERVERS, configure

pytestmark = pytest.mark.anyio

STATES = [
    "before the handshake",
    "after the handshake",
    "while listing",
    "while idle",
    "during a call",
]
SERVER = SERVERS / "asks_always.py"


def expect_answers(report: dict[str, dict[str, Any]], *states: str) -> None:
    assert list(report) == [*states]
    for state in states:
        got = report[state]
        assert got["ping"] == {}, state
        assert got["ping with params"] == {}, state
        assert got["unknown"] == got["a method of ours"] == -32601, state
        # Odd requests are answered, too, either as if the odd part were missing or with an error.
        assert {name for name, answer in got.items() if not isinstance(answer, int | dict)} == set()
        # Nobody offers folders or a model here.
        assert isinstance(got["roots"], int), state
        assert isinstance(got["sampling"], int), state
        assert isinstance(got["malformed sampling"], int), state
        assert isinstance(got["malformed form"], int), state
        assert isinstance(got["form without params"], int), state


async def reported(modules: Modules, asker: Slow | None = None) -> dict[str, dict[str, Any]]:
    """What the module got, once every request of it was answered: it waits for each."""
    with anyio.fail_after(20):
        assert await modules.settled()
        assert modules["asks"].status().error is None
        return json.loads(cast("str", await modules["asks"].call("report", {}, asker=asker)))


async def test_every_request_is_answered_in_every_state() -> None:
    async with Modules(configure({"asks": preloaded.module(SERVER)})) as modules:
        expect_answers(await reported(modules), *STATES)


class Slow:
    """A person who answers a form once a line can be read from a pipe."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        assert inquiry.message == "Who?"
        line = await anyio.to_thread.run_sync(self._pipe.read_text, abandon_on_cancel=True)
        assert line == "all else is answered\n"
        return FormAnswer("accept", {"name": "Ann"})

    def withdraw(self) -> None:
        raise AssertionError("the form is withdrawn")

    def refuse(self, message: str, why: str) -> None:
        pass


async def test_requests_are_answered_while_a_person_is_asked(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with Modules(configure({"asks": preloaded.module(SERVER, str(pipe))})) as modules:
        expect_answers(
            await reported(modules, Slow(pipe)), *STATES[:-1], "while a form is open", STATES[-1]
        )


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("expose", [False, True])
async def test_requests_of_a_shared_module_are_answered(tmp_path: Path, *, expose: bool) -> None:
    """Several runs at once share one connection: nobody knows whose question it is, and
    each is answered.
    """
    servers = {"asks": preloaded.module(SERVER)}
    configuration = parse_configuration(
        {"mcpServers": servers, "expose": ["modules"] if expose else []}
    )
    async with Bridge(configuration, store=tmp_path / "ideas.sqlite") as bridge:
        calls: list[JSON] = [{"_tool": "report", "_module": "asks"} for _ in range(3)]
        with anyio.fail_after(20):
            run = await bridge.run_plan(Plan(calls))
            assert await run.wait() == "done"
        for call in run.calls():
            assert call.error is None
            expect_answers(json.loads(str(call.value)), *STATES)
