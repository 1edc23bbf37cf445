"""Run events: the events of a run, as its journal has them, while it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ideabridge.bridge.driver import Driver
from ideabridge.bridge.loop.event import CallFinished, CallStarted, Event, RunEnded
from ideabridge.bridge.loop.journaled import OfCall

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run


async def follow(run: Run, driver: Driver, *, from_now: bool) -> AsyncIterator[Event]:
    """The events of a run until it has ended or is not driven here any more; see `Run.events`."""
    last = max((number for number, _ in driver.events()), default=0) if from_now else 0
    while True:
        for number, event in driver.events(last):
            last = number
            yield _named(run, event)
            if isinstance(event, RunEnded):
                return
        if (run.machine.phase == "ended" and not run.runner.is_behind) or run.runner.lost is not None:
            return
        await run.runner.wait_changed()


def _named(run: Run, event: Event) -> Event:
    """The event with the name of its call's tool: where a person put another in its place, from its start on that."""
    if not isinstance(event, OfCall):
        return event
    progress = run.machine.history[event.call]
    tool = progress.call.name
    if progress.replaced is not None and isinstance(event, CallStarted | CallFinished):
        tool = progress.replaced.name
    return dataclasses.replace(event, tool_name=tool)
