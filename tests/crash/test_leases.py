"""One driver for each run, whatever processes do: leases and fencing epochs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ideabridge.bridge.driving.driver import Driver, Watch, is_left, own_driver_name
from ideabridge.bridge.loop.event import RunEnded
from ideabridge.bridge.runs.decision import MOST_TAKEN_UP
from ideabridge.bridge.store.errors import StaleDriverError
from ideabridge.bridge.store.leases import Lease
from ideabridge.bridge.store.run_record import RunRecord, StoredSummary
from ideabridge.bridge.store.store import Store
from tests import preloaded

PROCESS = Path(__file__).with_name("process.py")


class Process:
    """A process that drives runs."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self._popen = popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        self._in, self._out = popen.stdin, popen.stdout
        assert self.says() == "ready"
        self.pid = preloaded.number(popen)

    def says(self) -> str:
        return self._out.readline().rstrip("\n")

    def tell(self, line: str) -> None:
        self._in.write(f"{line}\n")
        self._in.flush()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._popen.wait()

    def shut_down(self) -> None:
        """Let the process close its bridge and end, as a server does at SIGTERM."""
        self.tell("")
        assert self.says() == ""
        assert self._popen.wait() == 0

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        while not stopped(self.pid):
            pass

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def stopped(pid: int) -> bool:
    """Whether a process has been stopped. It is no child of this one, which could wait for it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@contextmanager
def processes(
    count: int, store: Path, lease: float = 15, ahead: Sequence[int] = ()
) -> Generator[list[Process]]:
    """Processes on one store; with `ahead`, each on a machine of its own, whose clock is ahead by
    so many seconds.
    """
    command = preloaded.python(PROCESS, str(store), str(lease))
    commands = [[*command, str(seconds)] for seconds in ahead] or [command] * count
    opened = [
        subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for one in commands
    ]
    try:
        yield [Process(popen) for popen in opened]
    finally:
        for popen in opened:
            popen.kill()
            popen.communicate()


def begun(driver: Process) -> str:
    """The id of a run that was started and is in its first call."""
    driver.tell("start")
    word, _, run_id = driver.says().partition(" ")
    assert word == "run"
    assert driver.says() == "started first"
    return run_id


def contents(path: Path, run_id: str) -> object:
    """All that a driver can write about a run."""
    with Store.open(path) as store:
        return store.runs.get(run_id), list(store.runs.events(run_id)), store.ideas.page(100).items


def test_a_run_at_work_is_not_driven_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with processes(2, path) as (one, two):
        run_id = begun(one)
        two.tell(f"resume {run_id}")
        assert two.says() == f"not mine: run {run_id} is currently driven by another process"
        one.tell("go")
        assert one.says() == "started second"
        one.tell("go")
        assert one.says() == "ended done"
        two.tell(f"resume {run_id}")
        assert two.says() == f"not mine: run {run_id} has ended (done); there is nothing to resume"


def test_of_many_that_take_up_a_run_at_once_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with processes(4, path) as (dead, *others):
        run_id = begun(dead)
        # The lease would hold for another 15 seconds, but it is known at once that the process is
        # gone.
        dead.kill()
        for other in others:
            other.tell(f"resume {run_id}")
        answers = {other: other.says() for other in others}
        winners = [other for other in others if answers[other] == "mine"]
        assert len(winners) == 1, answers
        assert (
            sorted(answers.values())[1:]
            == [f"not mine: run {run_id} is currently driven by another process"] * 2
        )
        winner = winners[0]
        assert winner.says() == "started first"
        winner.tell("go")
        assert winner.says() == "started second"
        winner.tell("go")
        assert winner.says() == "ended done"


def test_restarts_never_set_a_run_aside_and_deaths_do(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with processes(1, path) as [first]:
        run_id = begun(first)
        first.shut_down()

    @contextmanager
    def take_up() -> Generator[Process]:
        with processes(1, path) as [driver]:
            driver.tell("recover")
            assert driver.says() == "started first"
            yield driver

    for _ in range(MOST_TAKEN_UP + 2):
        with take_up() as driver:
            driver.shut_down()

    for _ in range(MOST_TAKEN_UP):
        with take_up() as driver:
            driver.kill()

    with processes(1, path) as [last]:
        last.tell("recover")
        told = last.says()
        assert told.startswith(f"left {run_id} ")
        assert "it is set aside: it was resumed 2 times without progress" in told


@pytest.mark.parametrize(
    "finished", [False, True], ids=["while the other is at work", "after the other has finished"]
)
def test_a_driver_that_slept_while_another_went_on_writes_nothing(
    tmp_path: Path, finished: bool
) -> None:
    path = tmp_path / "store.sqlite"
    with processes(2, path, lease=0.4) as (sleeper, other):
        run_id = begun(sleeper)
        sleeper.stop()
        # The process might be alive, so the others wait until its lease has expired.
        other.tell("recover")
        assert other.says() == "started first"
        if finished:
            other.tell("go")
            assert other.says() == "started second"
            other.tell("go")
            assert other.says() == "ended done"
        before = contents(path, run_id)
        # Its call ends at the moment when it wakes.
        sleeper.tell("go")
        sleeper.wake()
        assert sleeper.says() == "ended interrupted"
        sleeper.tell(f"resume {run_id}")
        assert sleeper.says().startswith("not mine: ")
        after = contents(path, run_id)
        if finished:
            assert after == before
        else:
            # Nothing but the heartbeats of the other process has changed.
            assert str(after).partition("lease_until")[0] == str(before).partition("lease_until")[0]
            assert after[1:] == before[1:]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
            other.tell("go")
            assert other.says() == "started second"
            other.tell("go")
            assert other.says() == "ended done"


@pytest.mark.parametrize("hour", [3600, -3600])
def test_a_clock_that_is_an_hour_off_does_not_steal_a_live_run(tmp_path: Path, hour: int) -> None:
    path = tmp_path / "store.sqlite"
    with processes(2, path, lease=1, ahead=(0, hour)) as (one, two):
        run_id = begun(one)
        for _ in range(2):
            # The second process waits until it sees a heartbeat of the driver.
            two.tell(f"resume {run_id}")
            assert two.says() == f"not mine: run {run_id} is currently driven by another process"
        one.tell("go")
        assert one.says() == "started second"
        one.tell("go")
        assert one.says() == "ended done"


@pytest.mark.parametrize("hour", [3600, -3600])
@pytest.mark.parametrize("how", ["recover", "resume"])
def test_a_clock_that_is_an_hour_off_does_not_block_a_run_for_an_hour(
    tmp_path: Path, hour: int, how: str
) -> None:
    path = tmp_path / "store.sqlite"
    with processes(2, path, lease=1, ahead=(hour, 0)) as (dead, other):
        run_id = begun(dead)
        dead.kill()
        other.tell("recover" if how == "recover" else f"resume {run_id}")
        if how == "resume":
            assert other.says() == "mine"
        assert other.says() == "started first"
        other.tell("go")
        assert other.says() == "started second"
        other.tell("go")
        assert other.says() == "ended done"


def test_a_live_process_of_this_system_keeps_its_runs_however_late_its_heartbeat_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    with processes(2, path, lease=0.2) as (busy, other):
        run_id = begun(busy)
        with Store.open(path) as store:
            before = store.runs.get(run_id)
            assert before is not None
            busy.tell("block 2")
            assert busy.says() == "blocking"
            # Wait until the lease has expired several times over, by any clock.
            while time.time() < before.lease_until + 1:
                other.tell(f"resume {run_id}")
                assert (
                    other.says() == f"not mine: run {run_id} is currently driven by another process"
                )
            after = store.runs.get(run_id)
            assert after is not None
            assert (after.driver, after.epoch) == (before.driver, before.epoch)
        busy.tell("go")
        assert busy.says() == "started second"
        busy.tell("go")
        assert busy.says() == "ended done"


def lease(until: float, driver: str = "elsewhere", seconds: float = 15.0) -> Lease:
    return Lease("run", driver, 1, until, seconds)


def test_a_lease_lapses_when_it_was_seen_unchanged_for_as_long_as_it_holds() -> None:
    now = [0.0]
    watch = Watch(lambda: now[0])
    # The time that is written in the lease does not matter.
    assert watch.seconds_until_lapse(lease(until=0.0)) == 15
    for second in range(1, 15):
        now[0] = second
        assert watch.seconds_until_lapse(lease(until=0.0)) == 15 - second

    # This is a heartbeat.
    assert watch.seconds_until_lapse(lease(until=-3600.0)) == 15
    for second in range(15, 29):
        now[0] = second
        assert watch.seconds_until_lapse(lease(until=-3600.0)) > 0

    now[0] = 29
    assert watch.seconds_until_lapse(lease(until=-3600.0)) == 0
    # This is another driver, or the same one in another epoch.
    assert watch.seconds_until_lapse(lease(until=-3600.0, driver="other")) == 15
    assert watch.seconds_until_lapse(lease(until=-3600.0, driver="other")._replace(epoch=2)) == 15
    assert watch.seconds_until_lapse(lease(until=-3600.0)._replace(driver=None)) == 0


def test_who_slept_gives_a_driver_that_slept_too_the_time_for_a_heartbeat() -> None:
    now = [0.0]
    watch = Watch(lambda: now[0])
    assert watch.seconds_until_lapse(lease(until=1.0)) == 15
    now[0] = 3
    assert watch.seconds_until_lapse(lease(until=1.0)) == 12
    now[0] = 10_000
    assert watch.seconds_until_lapse(lease(until=1.0)) == 4.5
    now[0] = 10_003
    assert watch.seconds_until_lapse(lease(until=2.0)) == 15


def test_a_heartbeat_changes_the_lease_also_when_the_clock_was_set_back() -> None:
    with Store.open(":memory:") as store:
        store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
        epoch = store.leases.acquire("run", "driver", 15, 5000.0)
        assert epoch is not None
        seen: set[Lease] = set()
        for now in (5000.0, 1400.0, 1400.0, 1403.0):
            assert store.leases.renew("run", epoch, 15, now)
            seen.update(store.leases.of_runs("running"))
        assert len(seen) == 4


def test_an_old_epoch_neither_journals_nor_saves() -> None:
    with Store.open(":memory:") as store:
        store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
        old, new = Driver(store, "run", "old", 0.0), Driver(store, "run", "new")
        assert old.take()
        assert new.take()
        with pytest.raises(StaleDriverError):
            old.journal([RunEnded("done")])
        with pytest.raises(StaleDriverError):
            old.set_status("done")
        assert not old.renew()
        old.release()
        new.journal([RunEnded("done")])


def is_gone(driver: str) -> bool:
    """Whether a run whose lease holds for an hour is left, because the process that
    drives it has ended.
    """
    lease_until = time.time() + 3600
    record = RunRecord(
        "run",
        "plan",
        "",
        "",
        "",
        None,
        "running",
        StoredSummary(),
        driver,
        1,
        lease_until,
        "",
        "",
        1,
    )
    return is_left(record)


def test_only_a_process_of_this_system_that_is_no_more_is_surely_gone() -> None:
    name = own_driver_name()
    assert not is_gone(name)
    host, boot, space, pid, started, token = name.split("|")
    assert is_gone("|".join((host, boot, space, pid, f"{started}0", token)))
    # The processes of another boot, or of a container, cannot be seen from here.
    assert not is_gone("|".join((host, "other", space, pid, f"{started}0", token)))
    assert not is_gone("|".join((host, boot, "pid:[1]", pid, f"{started}0", token)))
    assert not is_gone("a name of another kind")
    ended = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import {own_driver_name.__module__} as d; print(d.own_driver_name())",
        ],
        stdout=-1,
    )
    assert ended.stdout is not None
    theirs = ended.stdout.read().decode().strip()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    # The process has ended, but nobody has collected it yet.
    assert is_gone(theirs)
    ended.communicate()
    assert is_gone(theirs)
