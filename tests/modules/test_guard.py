"""The guard process by itself."""

import signal
import subprocess
import sys
from pathlib import Path

from ideabridge.bridge.modules import stdio as guard_module
from ideabridge.bridge.modules.stdio import Guard

SCRIPT = Path(guard_module.__file__).with_name("guard_process.py")


def test_the_guard_ends_what_is_registered_and_spares_what_was_released() -> None:
    guard = subprocess.Popen([sys.executable, "-I", "-S", str(SCRIPT)], stdin=subprocess.PIPE)
    sleepers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    try:
        lines = f"+{sleepers[0].pid}\n+{sleepers[1].pid}\nnonsense\n+1\n-{sleepers[1].pid}\n"
        guard.communicate(lines.encode(), timeout=5)
        assert sleepers[0].wait(timeout=30) == -signal.SIGTERM
        assert sleepers[1].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_a_guard_that_was_killed_is_started_again_with_all_it_watched() -> None:
    guard = Guard()
    sleepers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    try:
        guard.watch(sleepers[0].pid)
        process = guard._process  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        process.kill()
        process.wait()
        guard.watch(sleepers[1].pid)
        guard.close()
        assert [sleeper.wait(timeout=30) for sleeper in sleepers] == [
            -signal.SIGTERM,
            -signal.SIGTERM,
        ]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
