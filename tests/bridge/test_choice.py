"""Which mind answers: an explicit choice, else the bridge's mind, else sampling, else turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import MindUnavailableError
from ideabridge.bridge.minds.choice import choose
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.store.users import SEES_ALL


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
        (
            "model",
            False,
            True,
            "no model is configured here; expected 'auto' or 'turns'.*, or 'sampling'",
        ),
        (
            "sampling",
            True,
            False,
            "needs a client that declares the capability `sampling`.*, or 'model'",
        ),
        ("oracle", False, False, "there is no mind 'oracle' here; expected 'auto' or 'turns'"),
    ],
)
def test_a_mind_that_is_not_there_is_refused_and_those_there_are_named(
    wanted: str, model: bool, samples: bool, told: str
) -> None:
    with pytest.raises(MindUnavailableError, match=told):
        choose(wanted, Model() if model else None, samples=samples)


class Titled(Model):
    """One that tells what answers in it."""

    title = "openai:tiny-1"


def test_a_mind_that_tells_what_answers_is_named_by_it() -> None:
    assert choose("auto", Titled()).why == "openai:tiny-1 is configured here"
    assert choose("model", Titled()).why == "the caller requested it: openai:tiny-1"
    with pytest.raises(MindUnavailableError, match=r"or 'model': openai:tiny-1, configured here"):
        choose("sampling", Titled())


def test_a_model_is_named_with_the_address_of_ones_own_and_nothing_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pydantic_ai")
    monkeypatch.setenv("TINY_API_KEY", "sk-0123456789abcdef")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8081/v1?key=sk-0123456789abcdef")
    assert ModelMind("openai:tiny-1").title == "openai:tiny-1 at 127.0.0.1:8081"
    assert ModelMind("anthropic:claude-x").title == "anthropic:claude-x"
    named = ModelConfiguration(
        name="openai:sk-0123456789abcdef", base_url="http://127.0.0.1:8080/sk-0123456789abcdef"
    )
    assert ModelMind(named).title == "openai:[secret:TINY_API_KEY] at 127.0.0.1:8080"


@pytest.mark.anyio
async def test_a_run_tells_which_mind_answers_and_why() -> None:
    async with Bridge(mind=Model()) as bridge:
        run = await bridge.solve("Answer.")
        assert await run.wait() == "done"
        assert run.answer()["mind"] == {"name": "model", "why": "it is configured here"}
        waiting = await bridge.solve("Answer.", mind="turns")
        assert waiting.status == "needs_solution"
        assert waiting.answer()["mind"] == {"name": "turns", "why": "the caller requested it"}
        waiting.submit(0, {"output": "by hand"})
        assert [
            bridge.store.ideas.get(one.id, caller=SEES_ALL).meta.mind for one in (run, waiting)
        ] == [
            "model",
            "turns",
        ]
