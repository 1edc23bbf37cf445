"""A child process in its own group: started, watched, ended within two seconds (SDK-NOTES)."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from ideabridge.bridge.modules.errors import ModuleConnectError
from ideabridge.bridge.modules.expansion import Launch
from ideabridge.bridge.modules.guard import guard

INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA"),
    *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
)
"""What a child inherits of our environment: where things are, how to reach the network; no tokens."""

STDIN_GRACE: Final = 0.5
"""Seconds a child has to end by itself after its input is closed."""
TERM_GRACE: Final = 0.5
"""Seconds a group has after SIGTERM."""
KILL_GRACE: Final = 0.5
"""Seconds to see the death of what was killed."""
_POLL: Final = 0.005


def child_environment(configured: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a child: a small inherited one, and what the configuration gives."""
    # A value that starts with "()" is an exported shell function, which is code.
    inherited = {name: os.environ[name] for name in INHERITED if not os.environ.get(name, "()").startswith("()")}
    return inherited | dict(configured or {})


async def start(module: str, launch: Launch) -> anyio.abc.Process:
    """Start a child with pipes in a session and process group of its own, known to the guard.

    Raises:
        ModuleConnectError: it cannot be started; the message says why.
    """
    process: anyio.abc.Process | None = None
    environment = child_environment(launch.env)
    command = shutil.which(launch.command, path=environment.get("PATH")) or launch.command
    try:
        # Cancelled halfway, asyncio would leave the child to a loop that is closed when it ends.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [command, *launch.args], cwd=launch.cwd, env=environment, start_new_session=True
            )
    except (OSError, ValueError) as error:
        raise ModuleConnectError(
            module, f"module {module!r} cannot be started: {_why(launch, error)}", lasting=True
        ) from None
    assert process is not None
    guard.watch(process.pid)
    return process


def _why(launch: Launch, error: OSError | ValueError) -> str:
    if not Path(launch.cwd).is_dir():
        return f"its working directory {launch.cwd!r} does not exist"
    if isinstance(error, FileNotFoundError):
        return f"there is no command {launch.command!r}; is it installed and on PATH?"
    if isinstance(error, PermissionError):
        return f"{launch.command!r} may not be executed"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{launch.command!r}: {reason or error}"


def how_it_ended(process: anyio.abc.Process) -> str:
    """For a message: 'ended with exit code 3', 'was ended by SIGKILL', 'closed its output'."""
    code = process.returncode
    if code is None:
        return "closed its output"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def exited(process: anyio.abc.Process) -> None:
    """Wait until the child itself has ended, whoever still holds its pipes.

    `process.wait()` also waits for the pipes on some Pythons, so a grandchild that inherited them would hide
    the death of the server.
    """
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            # Gone and reaped already, or too many files: the return code tells.
            descriptor = -1
        if descriptor >= 0:
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
            await wait_exit(process, KILL_GRACE)
            return
    await wait_exit(process, math.inf, poll=0.2)


async def wait_exit(process: anyio.abc.Process, seconds: float, *, poll: float = _POLL) -> bool:
    """Whether the child ended within `seconds`."""
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(poll)
    return True


def _signal_group(process: anyio.abc.Process, number: int) -> bool:
    """Send a signal to the child's group (Windows: end the child). False: nobody is there any more."""
    if sys.platform == "win32":
        if process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            process.kill()
        return True
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _group_gone(process: anyio.abc.Process, seconds: float) -> bool:
    deadline = anyio.current_time() + seconds
    # The group lives as long as any member, also after the child itself.
    while process.returncode is None or _signal_group(process, 0):
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL)
    return True


async def end(process: anyio.abc.Process) -> None:
    """End a child whose input is closed, with everything in its group: wait, SIGTERM, SIGKILL. At most 1.5 s.

    Call it shielded: it must finish, or the child would be left over.
    """
    await wait_exit(process, STDIN_GRACE)
    gone = not _signal_group(process, signal.SIGTERM) and process.returncode is not None
    if not gone and not await _group_gone(process, TERM_GRACE):
        if sys.platform != "win32":
            _signal_group(process, signal.SIGKILL)
        gone = await _group_gone(process, KILL_GRACE)
    if process.returncode is not None:
        guard.release(process.pid)
    # A descendant that left the group may hold the pipes; asyncio would keep its transport until then.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with suppress(PermissionError, ProcessLookupError):
            close()
