"""A step of a long run costs little more than its first steps: what has not changed is
not made again.
"""

import itertools
import json

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Limits, Request
from ideabridge.bridge.context import body
from ideabridge.bridge.loop.event import RequestMade
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Composer
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, encode
from tests.instructions import instructions_of

EACH = 250
"""The most instructions of Python that composing a Request may take for each call before it."""


@tool(read_only=True)
async def double(x: int) -> dict[str, int]:
    """Twice the number."""
    return {"twice": 2 * x}


async def run_of(steps: int, where: str) -> None:
    """A run of steps of one call each."""

    numbers = itertools.count()

    async def mind(_: Request) -> str:
        number = next(numbers)
        if number == steps:
            return '{"calls": [], "output": "done"}'
        call = {
            "_tool": "double",
            "x": number,
            **({"_outputPath": f"k{number}"} if where == "state" else {}),
        }
        return json.dumps({"calls": [call], "output": None})

    limits = Limits(requests=steps + 1, calls=steps)
    async with Bridge(Configuration(limits=limits), toolbox=Toolbox(double), mind=mind) as bridge:
        run = await bridge.solve("Double.", tools=["double"])
        assert await run.wait() == "done"


@pytest.mark.parametrize("where", ["results", "state"])
def test_a_request_hardly_costs_more_after_many_calls(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose, costs = Composer.compose, list[int]()

    def counted(self: Composer, machine: Machine, made: RequestMade | None = None) -> Request:
        requests: list[Request] = []
        costs.append(instructions_of(lambda: requests.append(compose(self, machine, made))))
        return requests[0]

    monkeypatch.setattr(Composer, "compose", counted)
    anyio.run(run_of, 120, where)
    assert costs[-1] - costs[20] < 100 * EACH


@pytest.mark.parametrize("where", ["results", "state"])
def test_what_has_not_changed_is_encoded_once(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counted(value: JSON) -> bytes:
        raw = encode(value)
        encoded.append(len(raw))
        return raw

    monkeypatch.setattr(body, "encode", counted)
    anyio.run(run_of, 60, where)
    # The journal contains the schema and the task once, and for each step what it shows, its call,
    # and the state.
    assert len(encoded) < 4 * 60
