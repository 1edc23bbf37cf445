"""Report to a caller which servers are starting while its call is waiting for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ideabridge.tools.names import joined, whole_duration_text

if TYPE_CHECKING:
    from ideabridge.bridge.modules.module_call import OnProgress

WaitedT = TypeVar("WaitedT")

_FIRST_SECONDS: Final = 0.5
_REPORT_SECONDS: Final = 2.0
"""How long, in seconds, a call waits before the first report and between reports."""

_STEP: Final = 1e-6
"""The amount by which each report increases the progress. The amount is small, because the progress
of a call must never decrease, and the call's own numbers come later.
"""

_MOST_NAMED: Final = 5
"""The maximum number of servers that a report names."""


async def reporting_starts(
    wait: Callable[[], Awaitable[WaitedT]],
    progress: OnProgress | None,
    starting: Callable[[], Sequence[str]],
) -> WaitedT:
    """Return the result of `wait`. In the meantime, report which servers are starting.

    Args:
        wait: waits for servers.
        progress: called with each report, or None if nobody wants reports.
        starting: returns the names of the servers that are currently starting.

    Raises:
        Exception: any exception that `wait` raises.
    """
    if progress is None:
        return await wait()

    began = anyio.current_time()

    async def report() -> None:
        value = _STEP
        await anyio.sleep(_FIRST_SECONDS)
        while True:
            names = starting()
            if names:
                seconds = anyio.current_time() - began
                text = f"starting {joined(names, _MOST_NAMED)} ({whole_duration_text(seconds)})"
                await progress(value, None, text)
                value += _STEP
            await anyio.sleep(_REPORT_SECONDS)

    results: list[WaitedT] = []
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(report)
        try:
            results.append(await wait())
        except Exception as error:  # noqa: BLE001 - raised below, because the group would wrap it
            failure = error
        group.cancel_scope.cancel()

    if failure is not None:
        raise failure
    return results[0]
