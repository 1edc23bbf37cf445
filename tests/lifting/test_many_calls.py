"""The work of publishing grows with the calls of a run, and not with their square."""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge, report_of
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON
from tests.instructions import instructions_of

pytestmark = pytest.mark.anyio


async def _steps_of_lifting(calls: int) -> int:
    """Return how many instructions of Python it takes to lift a run with so many calls and to report on it."""
    listed: list[JSON] = [
        {"_tool": "count", "items": [number, f"item {number}"], "_outputPath": f"counts.n{number}"}
        for number in range(calls)
    ]
    async with Bridge(store=Store.open(":memory:")) as bridge:
        run = await bridge.run_plan({"calls": listed})
        assert await run.wait() == "done"
        return instructions_of(lambda: report_of(bridge.lift(run.id), bridge.store, "local"))


async def test_lifting_twice_as_many_calls_takes_about_twice_the_work() -> None:
    # The first lifting in a process also fills caches.
    await _steps_of_lifting(2)
    few = await _steps_of_lifting(60)
    many = await _steps_of_lifting(240)

    # Four times the calls: linear work gives 4, quadratic work gives up to 16.
    assert many < 5 * few, (few, many)
