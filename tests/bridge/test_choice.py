"""Which mind answers: an explicit choice, else the bridge's mind, else sampling, else turns (DESIGN 5)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import MindUnavailableError
from ideabridge.bridge.loop.request import Request
from ideabridge.bridge.minds.choice import choose


class Model:
    """A mind by the name of one from a configuration."""

    name = "model"

    async def answer(self, request: Request) -> AsyncIterator[str]:
        yield '{"calls": [], "output": "answered"}'


@pytest.mark.parametrize(
    ("wanted", "model", "samples", "name"),
    [
        ("auto", True, True, "model"),
        ("auto", True, False, "model"),
        ("auto", False, True, "sampling"),
        ("auto", False, False, "turns"),
        ("turns", True, True, "turns"),
        ("sampling", True, True, "sampling"),
        ("model", True, True, "model"),
    ],
)
def test_the_mind_that_answers_is_the_wanted_one_or_the_first_there_is(
    wanted: str, model: bool, samples: bool, name: str
) -> None:
    choice = choose(wanted, Model() if model else None, samples=samples)
    assert choice.name == name
    assert choice.why


@pytest.mark.parametrize(
    ("wanted", "model", "samples", "told"),
    [
        ("model", False, True, "no model is configured here; expected 'auto' or 'turns'.*, or 'sampling'"),
        ("sampling", True, False, "needs a client that declares the capability `sampling`.*, or 'model'"),
        ("oracle", False, False, "there is no mind 'oracle' here; expected 'auto' or 'turns'"),
    ],
)
def test_a_mind_that_is_not_there_is_refused_and_those_there_are_named(
    wanted: str, model: bool, samples: bool, told: str
) -> None:
    with pytest.raises(MindUnavailableError, match=told):
        choose(wanted, Model() if model else None, samples=samples)


@pytest.mark.anyio
async def test_a_run_tells_which_mind_answers_and_why() -> None:
    async with Bridge(mind=Model()) as bridge:
        run = await bridge.solve("Answer.")
        assert await run.wait() == "done"
        assert run.answer()["mind"] == {"name": "model", "why": "it is configured here"}
        waiting = await bridge.solve("Answer.", mind="turns")
        assert waiting.status == "needs_solution"
        assert waiting.answer()["mind"] == {"name": "turns", "why": "it was asked for"}
        waiting.submit(0, {"output": "by hand"})
        assert [bridge.store.idea(one.id).meta.mind for one in (run, waiting)] == ["model", "turns"]
