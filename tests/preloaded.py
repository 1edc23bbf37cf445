"""Scripts of the tests in processes that start in a twentieth of a second instead of one.

Most of what the start of a server costs is `import mcp`. One process imports it, and forks for each
script that a test runs. What a test starts is still a process: `preloaded_start.py` hands over its
arguments, environment, folder and standard streams, passes signals on, and ends as the script ends.
When it is killed, the script is killed.

Tests of the installed command and of the start or end of a process start the interpreter itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import marshal
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

MODULES = (
    "anyio._backends._asyncio",
    "mcp.server.mcpserver",
    "mcp.server.stdio",
    "mcp_server_git.server",
    "mcp_server_time.server",
    "pydantic_monty",
    "rich.live",
    "ruamel.yaml",
    "sqlite_utils.cli",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
    "ideabridge.bridge.minds.endpoint",
    "ideabridge.bridge.modules.module",
    "ideabridge.bridge.store.postgres.database",
    "ideabridge.server.cli.app",
    "ideabridge.server.cli.connecting",
    "ideabridge.server.cli.follow",
    "ideabridge.server.hosts.editing.toml_text",
    "ideabridge.server.hosts.editing.yaml_text",
    "ideabridge.server.hosts.host",
    "ideabridge.server.hosts.table",
    "ideabridge.server.main",
    "ideabridge.server.serve",
    "ideabridge.server.transports.http",
    "ideabridge.server.transports.stdio",
    "ideabridge.server.transports.workspace_door",
    "ideabridge.server.ui.pages",
    "ideabridge.server.ui.site",
    "ideabridge.tools.explain",
)
SHOWS_PAGES = {"ui", "--ui"}
"""The words with which a script shows pages."""

ASK = bytes(4)
"""Begins a question for the number of a process; a script's arguments begin with their size."""

ADDRESS = "IDEABRIDGE_TESTS_PRELOADED"
"""The environment variable with the address, for a script that starts others."""

IMPORTS_NOTHING = "IDEABRIDGE_TESTS_PRELOAD_NOTHING"
"""The environment variable, with any value, for tests whose scripts need none of `MODULES`: to
import these takes longer than such tests.
"""

COLLAPSE = 25
"""`MADV_COLLAPSE` of Linux: put memory into huge pages now."""

HUGE_PAGE = 2 * 1024**2
"""The size of a huge page, in bytes."""

INTERPRETER = sys.executable
"""The real interpreter: in what `interpreter` starts, `sys.executable` is another program."""

START = Path(__file__).with_name("preloaded_start.py")


def python(script: str | Path, *arguments: str) -> list[str]:
    """The command that runs a script in a process that has imported `MODULES`."""
    wait_until_loaded()
    return [INTERPRETER, "-I", "-S", str(START), address(), str(script), *arguments]


def module(script: str | Path, *arguments: str, **keys: Any) -> dict[str, Any]:
    """Configuration of a module whose server is a script."""
    command, *args = python(script, *arguments)
    return {"command": command, "args": args, **keys}


def interpreter(folder: Path) -> Path:
    """A program to use in place of `sys.executable`, for scripts and `-m` modules. It starts them
    as `python` does, and they start others by their `sys.executable` in the same way.
    """
    path = folder / "preloaded-python"
    words = shlex.join(python(START.with_name("preloaded_interpreter.py"), str(path)))
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o700)
    return path


@cache
def address() -> str:
    """Where the process listens that forks. It ends with the process of the tests. The workers of
    pytest-xdist, and scripts that start others, find it in their `environment`.
    """
    if ADDRESS in os.environ:
        return os.environ[ADDRESS]

    command = [INTERPRETER, "-P", __file__]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    atexit.register(process.communicate)
    assert process.stdout is not None
    return process.stdout.readline().strip()


@cache
def wait_until_loaded() -> None:
    """Wait until the process has imported `MODULES`. On a busy machine this takes longer than
    whoever starts the first script waits for its answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address())
        connection.sendall(ASK + bytes(4))
        # Wait for the answer, which the process sends as soon as it has forked.
        connection.recv(4)


def environment() -> dict[str, str]:
    """The environment of a script that starts others with `python`: they are forked by the process
    of these tests.
    """
    return {**os.environ, ADDRESS: address()}


def ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler for a signal that wakes the loop up by its number."""


def number(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    """The number of the process in which a script runs; `process` was started with the
    command of `python`.

    Raises:
        ProcessLookupError: that process is not forked yet, or has ended. What has printed
            something is forked.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address())
        connection.sendall(ASK + process.pid.to_bytes(4))
        found = int.from_bytes(connection.recv(4))

    if not found:
        # As a process id, 0 means all processes of a group, so a signal to it would end the tests.
        raise ProcessLookupError(f"no process is forked for {process.args}")

    return found


class Forking:
    """Forks for whoever connects, and tells each how its process ends.

    There is one thread: a process with several cannot be forked safely.
    """

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.ended, self.wakeup = socket.socketpair()
        for one in (self.ended, self.wakeup):
            one.setblocking(False)

        signal.set_wakeup_fd(self.wakeup.fileno())
        signal.signal(signal.SIGCHLD, ignore)
        self.running: dict[int, socket.socket] = {}
        # For the id of each forked process that runs, the id of the process that asked for it.
        self.starters: dict[int, int] = {}
        self.selector = selectors.DefaultSelector()
        for one in (self.listener, self.ended, sys.stdin):
            self.selector.register(one, selectors.EVENT_READ)

    def next(self) -> list[str] | None:
        """In a forked process: the script and its arguments. In this one: None, when the
        tests have ended.
        """
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    argv = self.fork()
                    if argv is not None:
                        return argv
                elif key.fileobj is self.ended:
                    self.reap()
                elif key.fileobj is sys.stdin:
                    for pid in self.running:
                        os.kill(pid, signal.SIGKILL)
                    return None
                elif key.data in self.running:
                    self.pass_on(key.data)

    def fork(self) -> list[str] | None:
        connection, _ = self.listener.accept()
        size, streams, _, _ = socket.recv_fds(connection, 4, 3)
        if not size:
            connection.close()
            return None
        if size == ASK:
            with connection:
                starter = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
                found = (pid for pid, one in self.starters.items() if one == starter)
                with suppress(BrokenPipeError):  # who asked may have been killed first
                    connection.sendall(next(found, 0).to_bytes(4))

            return None

        asked = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
        if len(asked) < int.from_bytes(size):
            # The process that asked has been killed in the meantime.
            connection.close()
            for stream in streams:
                os.close(stream)
            return None

        argv, folder, environment, starter = marshal.loads(asked)
        if SHOWS_PAGES & set(argv):
            compile_templates()

        pid = os.fork()
        if pid:
            for stream in streams:
                os.close(stream)

            self.running[pid] = connection
            self.starters[pid] = starter
            self.selector.register(connection, selectors.EVENT_READ, pid)
            return None

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (
            self.selector,
            self.listener,
            self.ended,
            self.wakeup,
            connection,
            *self.running.values(),
        ):
            one.close()

        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

        # How a stream is buffered, and whether it has positions, depends on what it is connected
        # to.
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        os.chdir(folder)
        os.environ.clear()
        os.environb.update(environment)
        return argv

    def reap(self) -> None:
        self.ended.recv(4096)
        while self.running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            connection = self.running.pop(pid)
            del self.starters[pid]
            self.selector.unregister(connection)
            with connection, suppress(BrokenPipeError):  # who started it may have been killed first
                connection.send(os.waitstatus_to_exitcode(status).to_bytes(2, signed=True))

    def pass_on(self, pid: int) -> None:
        """Pass signals on. Where the other end is closed, nobody waits for the process any more."""
        for number in self.running[pid].recv(64) or [signal.SIGKILL]:
            os.kill(pid, number)


def main() -> None:
    folder = tempfile.mkdtemp(prefix="preloaded-")
    path = str(Path(folder, "socket"))
    forking = Forking(path)
    # Print this first, because the process that starts a script may continue in the meantime.
    print(path, flush=True)
    process = os.getpid()
    try:
        if IMPORTS_NOTHING not in os.environ:
            load_modules()

        argv = forking.next()
    except BaseException:
        if os.getpid() == process:
            shutil.rmtree(folder)
        raise

    if argv is None:
        shutil.rmtree(folder)
        return

    renew_streams()
    sys.argv[:] = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    code: object = None
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ending:
        code = ending.code

    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1

    leave(code or 0)


def renew_streams() -> None:
    """Open the standard streams again. The present ones were made for the files of this process,
    and remember whether those could seek, and whether they were terminals.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        is_interactive = number == 2 or os.isatty(number)
        stream = os.fdopen(
            number,
            "r" if number == 0 else "w",
            buffering=1 if is_interactive else -1,
            encoding="utf-8",
            errors="backslashreplace" if number == 2 else "strict",
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def load_modules() -> None:
    # Without git, GitPython, which mcp-server-git imports, would otherwise fail.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    make_first()
    read_commands()
    gc.freeze()
    # Scripts create a lot, and end soon.
    gc.set_threshold(5000, 20, 100)
    gc.enable()
    use_huge_pages()


def use_huge_pages() -> None:
    """Put the memory of this process into huge pages where the system has some: a fork copies an
    entry for each page, and the end of a script removes it, which takes 7 ms with 45,000 pages.
    """
    if sys.platform != "linux":
        return

    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, access, _, _, inode, *_ = line.split()
        if access != "rw-p" or inode != "0":
            continue

        start, end = (int(address, 16) for address in addresses.split("-"))
        first = -(-start // HUGE_PAGE) * HUGE_PAGE
        size = end // HUGE_PAGE * HUGE_PAGE - first
        if size > 0:
            # A system that refuses this leaves the pages as they are.
            advise(first, size, COLLAPSE)


def make_first() -> None:
    """Make what the first use in a process takes longer for than each other one."""
    from mcp.server.request_state import RequestStateSecurity

    from ideabridge.bridge.modules.connection import own_version
    from ideabridge.bridge.store.store import Store
    from ideabridge.tools.builtins import builtin_toolbox
    from ideabridge.tools.decorator import tool_from

    async def example(number: int, text: str | None = None) -> dict[str, int]:
        return {text or "": number}

    tool_from(example)
    # Loads the algorithms of OpenSSL.
    RequestStateSecurity.ephemeral()
    own_version()
    builtin_toolbox()
    Store.open(":memory:").close()
    # A process that has several threads cannot be forked safely.
    assert threading.active_count() == 1


def read_parameters_once() -> None:
    """Let Typer read the parameters of each command once in this process. It reads them again for
    each command line, which takes longer than many commands.
    """
    main: Any = importlib.import_module("typer.main")
    main.get_params_from_function = cache(main.get_params_from_function)
    main.get_install_completion_arguments = cache(main.get_install_completion_arguments)
    read = cache(main._get_params_name_from_function)

    def parameters_of(callback: Any) -> tuple[list[Any], str | None]:
        parameters, context = read(callback)
        # Return a copy of the list, because Typer adds further parameters to that of a whole
        # application.
        return [*parameters], context

    main._get_params_name_from_function = parameters_of


def read_commands() -> None:
    """Read the parameters of all commands, once for all scripts that run one."""
    from typer.main import get_command

    from ideabridge.server.cli.app import app

    read_parameters_once()
    groups: list[Any] = [get_command(app)]
    while groups:
        command = groups.pop()
        groups += getattr(command, "commands", {}).values()
        for parameter in command.params:
            parameter.get_runtime_param()


@cache
def compile_templates() -> None:
    """Compile the templates of all pages, once for all scripts that show pages. It takes longer
    than most of them, and other tests do without it.
    """
    from ideabridge.server.ui import rendering

    for template in (rendering.FILES / "templates").iterdir():
        rendering.load(template.name)

    gc.freeze()
    use_huge_pages()


def leave(code: int) -> NoReturn:
    """End this process as the interpreter does, but leave its memory to the system: to free every
    object of the modules that were imported takes longer than most scripts.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()

    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()

    os._exit(code)


if __name__ == "__main__":
    main()
