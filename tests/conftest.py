"""Shared fixtures, and what every process of the tests is to find."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

import ideabridge.tools.schema as schemas
from ideabridge.bridge.store.errors import StoreBusyError
from ideabridge.bridge.store.sqlite.database import SqliteDatabase
from tests import preloaded, processes

T = TypeVar("T")

LIMIT = pytest.StashKey[Any]()
"""Of a test: the settings of its time limit."""

LONG_LIMIT = 3600
"""Seconds that a test with the marker `long` may take."""

AT_ONCE = SqliteDatabase.at_once
"""Small writes as the event loop does them outside the tests."""

# No test may read or write the keyring of this machine.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

# Every HTTP client of the tests and of the SDK would otherwise read the system's certificates
# again, which takes 30 ms, although most tests talk to 127.0.0.1 without TLS.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)
_transport = cast("Any", importlib.import_module("httpx._transports.default"))
_transport.create_ssl_context = cache(_transport.create_ssl_context)

preloaded.read_parameters_once()

# The commands write the logs of servers into the state folder, so use one that is not the real one.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ideabridge-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# How long an example takes depends on the machine and on what else it is doing, so no test of
# generated examples fails because of that. What must be quick is measured by separate tests.
settings.register_profile("ideabridge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ideabridge")

# Keep the files of thousands of stores in memory if there is room, because each would otherwise
# wait for the disk.
if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 4 * 1024**3:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--writes",
        choices=("now", "later"),
        default="now",
        help="later: the event loop writes nothing into the store at once, as where another "
        "program keeps it locked; every write goes through the writer's thread",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Most of what is imported and collected stays in use, so looking for garbage would waste a
    # tenth of the time.
    gc.disable()
    if config.getoption("--writes") == "later":
        cast("Any", SqliteDatabase).at_once = _refuse

    # A shell starts a background command with Ctrl-C ignored, and the programs under test would
    # inherit that. SIGHUP stays ignored under `nohup`, which the whole test run should survive.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(
                number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            )

    if not hasattr(config, "workerinput"):
        os.environ.pop(preloaded.ADDRESS, None)

    if config.getoption("numprocesses", None):
        # Let the workers share the process that forks scripts.
        os.environ.update(preloaded.environment())


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker of a whole run import the tests first that the others import last.

    pytest rewrites the assertions of a file once, and keeps the result. On a fresh clone, workers
    that begin with the same file would each rewrite all files, which takes 12 s of processor time.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return

    folder = Path(__file__).parent
    names = sorted(
        ".".join(file.relative_to(folder.parent).with_suffix("").parts)
        for file in folder.rglob("test_*.py")
    )
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = len(names) * int(worker.removeprefix("gw")) // workers
    for name in names[first:] + names[:first]:
        # A file that cannot be imported is reported by the collection.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_LIMIT))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    """A test that exceeds its limit says which processes it waits for, and they end with it."""
    result = yield
    item.stash[LIMIT] = settings
    fail = cast("Callable[[int, FrameType | None], None]", signal.getsignal(signal.SIGALRM))

    def fail_and_end(number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        try:
            # This does nothing in a debugger.
            fail(number, frame)
        except pytest.fail.Exception as limit:
            commands = processes.end_all()
            pytest.fail(f"{limit.msg} These processes were running, and were ended: {commands}")

    signal.signal(signal.SIGALRM, fail_and_end)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    # The timer stops at the first failure. Give the rest of a failed test the same limit again.
    if LIMIT in item.stash and signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])


def pytest_collection_finish() -> None:
    # What was imported and collected stays until the end, so the garbage collector need not look at
    # it.
    gc.freeze()
    # Tests create a lot and keep little. With its default thresholds, the collector takes a
    # twentieth of their time.
    gc.set_threshold(5000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def garbage() -> Generator[None]:
    """Files and coroutines that were left in cycles warn in the last test of a
    process, which fails.
    """
    yield
    gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    # Give each test all the seconds for which slow checks may block a process, whatever the tests
    # before it have used up. Do it here, because a fixture would take longer than the shortest
    # tests, and there are thousands of these.
    cast("Any", schemas).blocking = schemas.Blocking()


@pytest.fixture(params=["now", "later"])
def writes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When the event loop's small writes are done: `now`, or `later`, by the writer's thread."""
    if request.param == "now":
        monkeypatch.setattr(SqliteDatabase, "at_once", AT_ONCE)
    else:
        monkeypatch.setattr(SqliteDatabase, "at_once", _refuse)

    return str(request.param)


def _refuse(database: SqliteDatabase, job: Callable[[], T]) -> T:
    raise StoreBusyError(f"{database.path}: the test lets every write come later")
