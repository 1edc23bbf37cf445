"""The loop with a real model on a rough server: streaming, forms, faults."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.loop.event import CallFinished, RequestMade, SolutionClosed
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSONObject
from tests_model.conftest import serving
from tests_model.references import calls_of
from tests_model.tasks import OFFERED, toolbox

pytestmark = pytest.mark.anyio

NUMBER: JSONObject = {"type": "integer"}


@asynccontextmanager
async def bridged(url: str, **how: Any) -> AsyncGenerator[Bridge]:
    settings: dict[str, bool | int | float | str] = {"temperature": 0, "seed": 1, "max_tokens": 160}
    # Use the same prompt as for the table in docs/minds.md.
    bridge = Bridge(Configuration(programs=False), toolbox=toolbox())
    configuration = ModelConfiguration(
        name="openai:smollm2", base_url=url, settings=settings, **how
    )
    bridge.mind = ModelMind(configuration, bridge.secrets)
    async with bridge:
        yield bridge


async def test_a_call_runs_while_the_model_still_writes(url: str) -> None:
    async with bridged(url) as bridge:
        run = await bridge.solve(
            "What is 120 plus 7?", output_schema=NUMBER, tools=OFFERED, limits={"requests": 1}
        )
        kinds = [type(event) async for event in run]
        await run.wait()
    assert CallFinished in kinds
    assert kinds.index(CallFinished) < kinds.index(SolutionClosed), (
        "it ran before the answer had ended"
    )


@pytest.mark.parametrize("output", ["auto", "prompted"])
async def test_a_run_ends_whatever_the_model_writes(url: str, output: str) -> None:
    async with bridged(url, output=output) as bridge:
        run = await bridge.solve(
            "What is 120 plus 7?", output_schema=NUMBER, tools=OFFERED, limits={"requests": 2}
        )
        with anyio.fail_after(300):
            status = await run.wait()

    assert status in ("done", "limit", "stalled"), run.answer()
    if output == "auto":
        # If the schema is enforced, the model begins with the right tool and the right numbers.
        # What it adds to that can be anything.
        first = run.calls()[0]
        assert (first.call.raw, first.value) == ({"_tool": "add", "a": 120, "b": 7}, 127)


async def test_an_error_of_a_call_is_told_and_the_model_asked_again(url: str) -> None:
    async with bridged(url) as bridge:
        # Zoe is not in the data, so the tool fails and there can be no output.
        run = await bridge.solve(
            "What is the phone number of Zoe?", tools=["phone"], limits={"requests": 2}
        )
        asked = [event async for event in run if isinstance(event, RequestMade)]
        ideas = [
            bridge.store.ideas.get(record.id, caller=SEES_ALL)
            for record in bridge.store.ideas.of_run(run.id)
        ]

    assert len(asked) == len(ideas) == 2
    failed = calls_of(ideas[0].idea.solution)[0]
    assert failed["_tool"] == "phone"
    told = [
        one["error"]
        for one in ideas[1].idea.context
        if isinstance(one, dict) and one.get("type") == "error"
    ]
    message = f"KeyError: {failed['name']!r}"
    assert told[0] == {"call": failed, "place": 0, "error": {"kind": "runtime", "message": message}}


async def test_a_pattern_that_would_kill_the_server_never_reaches_it(url: str) -> None:
    schema: JSONObject = {"type": "string", "pattern": r"^\d{3}-\d{4}$"}
    async with bridged(url) as bridge:
        task = "What is the phone number of Ada?"
        run = await bridge.solve(
            task, output_schema=schema, tools=["phone"], limits={"requests": 2}
        )
        await run.wait()

    assert run.calls()
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{url}/models")).status_code == 200


async def test_a_request_too_long_for_the_model_ends_with_an_error_that_says_so() -> None:
    # The server reports this either with an empty answer or by closing the connection. After a
    # closed connection, it is asked again.
    with serving("--context", "512") as url:
        async with bridged(url) as bridge:
            run = await bridge.solve("What is 120 plus 7?", output_schema=NUMBER, tools=OFFERED)
            with anyio.fail_after(120):
                assert await run.wait() == "stalled"
            told = json.dumps(run.answer())
            assert "too long for the model's context" in told, told


async def test_a_server_that_is_gone_is_a_clear_error() -> None:
    with serving() as url:
        pass
    async with bridged(url, retries=1) as bridge:
        run = await bridge.solve("What is 120 plus 7?", output_schema=NUMBER, tools=OFFERED)
        with anyio.fail_after(60):
            assert await run.wait() == "stalled"
        assert "cannot be reached" in json.dumps(run.answer())
