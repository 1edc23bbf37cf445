"""Heartbeat: a run at work keeps its lease, and ends when its wall time is up (DESIGN 4.4.5, 7)."""

from __future__ import annotations

from collections.abc import Callable

from ideabridge.bridge.driver import Driver
from ideabridge.bridge.ideas.errors import StoreError
from ideabridge.bridge.run import Run


def keep(run: Run, driver: Driver, seconds: float, look: Callable[[Run], None]) -> None:
    """One beat of a run that is driven here.

    Args:
        run: the run.
        driver: holds its lease.
        seconds: since the beat before.
        look: looks after its rooms.
    """
    try:
        _prolong(run, driver, seconds)
        look(run)
    except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
        run.runner.fail(error)


def _prolong(run: Run, driver: Driver, seconds: float) -> None:
    try:
        kept = driver.renew()
    except StoreError:
        # Nobody takes it over before several beats are missing; also after that it goes on, where nobody has.
        return
    if not kept:
        driver.epoch = None
        run.runner.abandon("its lease was lost to another process")
    elif run.status == "running":
        run.active_seconds += seconds
        most = run.machine.settings.wall_seconds
        if run.active_seconds > most:
            run.runner.end_at_limit(f"{most:g} seconds, the most a run may take")
