"""Functions as minds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import pytest

from ideabridge.bridge import Bridge, Message, MindError, MindFunction, Request, Store, sync
from ideabridge.tools import JSONObject

pytestmark = pytest.mark.anyio

DONE: JSONObject = {"calls": [], "output": "done"}


async def as_object(request: Request) -> JSONObject:
    return DONE


async def as_text(request: Request) -> str:
    return 'Here it is:\n```json\n{"calls": [], "output": "done"}\n```'


async def as_mapping(request: Request) -> Mapping[str, Any]:
    return MappingProxyType({"output": "done"})


def in_a_thread(request: Request) -> JSONObject:
    assert threading.current_thread() is not threading.main_thread()
    return DONE


class Remembering:
    """An object that is called."""

    async def __call__(self, request: Request) -> JSONObject:
        return DONE


MINDS: list[MindFunction] = [as_object, as_text, as_mapping, in_a_thread, Remembering()]


@pytest.mark.parametrize("mind", MINDS)
async def test_a_function_answers_requests(mind: MindFunction) -> None:
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("Do it.")
        assert await run.result() == "done"
        assert run.answer()["mind"]["name"] == "function"


async def test_a_run_of_a_function_goes_on_after_a_restart() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(store=store, mind=as_object) as bridge:
            run = await bridge.solve("Do it.")
            await run.result()
        async with Bridge(store=store, mind=as_text) as bridge:
            assert (await bridge.run(run.id)).answer()["output"] == "done"


async def test_what_is_no_solution_ends_the_run_with_the_reason() -> None:
    def three(request: Request) -> int:
        return 3

    async with Bridge(mind=cast("Any", three)) as bridge:
        run = await bridge.solve("Do it.")
        assert await run.wait() == "failed"
        assert "the mind three returned int; expected a Solution" in str(run.answer()["reason"])


async def test_a_function_may_say_that_it_cannot_answer() -> None:
    async def mind(request: Request) -> JSONObject:
        raise MindError("no key")

    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("Do it.")
        assert await run.wait() == "failed"
        assert "no key" in str(run.answer()["reason"])


async def test_the_context_of_a_request_is_typed_and_can_be_had_as_json() -> None:
    seen: list[Request] = []

    async def mind(request: Request) -> JSONObject:
        seen.append(request)
        return DONE

    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve(
            "Do it.", input={"n": 1}, context=[{"type": "order", "order": {"id": 3}}]
        )
        await run.result()
        [step] = bridge.store.ideas.of_run(run.id)
        stored = bridge.store.ideas.get(step.id, caller="local").idea

    [request] = seen
    assert all(isinstance(message, Message) for message in request.context)
    assert [(one.type, one.kind, one.value) for one in request.context] == [
        ("data", "order", {"id": 3}),
        ("text", "text", "Do it."),
        ("input", "input", {"n": 1}),
    ]
    assert request.context_json == stored.context


def test_a_script_has_a_function_as_its_mind() -> None:
    with sync.Bridge(mind=lambda request: {"calls": [], "output": len(request.context)}) as bridge:
        assert bridge.solve("Count.", output=int) == 1
