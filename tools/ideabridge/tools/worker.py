"""Run computations over external data in processes. Such a computation can take a long time, and
only a process can be killed.

A job consists of a name and one JSON argument. The name refers either to a job in
`worker_process.py`, or, as `MODULE:FUNCTION`, to a function that is allowed to read the store. A
worker has a lower priority, an empty environment, bounded memory and no access to anything else.
Regardless of the code that it is running, a worker is killed at the deadline, on cancellation, or
when this process ends. An idle worker stops after a minute.

On Linux, the system kills a worker as soon as this process ends. On other systems, an idle worker
ends immediately, and a busy worker ends at its deadline at the latest.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ideabridge.tools.encoding import JSON, decode_trusted, encode
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError

MOST_SECONDS: Final = 30.0
"""Maximum time, in seconds, that one call can compute in a worker."""

START_SECONDS: Final = 60.0
"""Maximum time, in seconds, for a worker to begin a job: to start, to read the job, and to import
the code that computes it. On an idle machine this takes less than a second. On a busy machine it
takes longer, because workers have a low priority.
"""

BLOCKED_START_SECONDS: Final = 10.0
"""Maximum time, in seconds, for a worker to begin a job if the caller, such as an event loop, is
blocked in the meantime.
"""

MOST_WORKERS: Final = max(2, min(4, os.cpu_count() or 2))
"""Maximum number of workers that compute concurrently. Further jobs wait, and their callers take
turns.
"""

WORKER_MEMORY: Final = 2 * 1024**3
"""Limit on the address space of a worker, in bytes. macOS and Windows do not enforce it."""

if TYPE_CHECKING:
    from anyio.lowlevel import RunVar

    from ideabridge.tools.turns import FairPlaces

_SCRIPT: Final = Path(__file__).with_name("worker_process.py")
_NEEDED: Final = (
    *("ideabridge", "orjson", "jsonschema_rs", "jmespath"),
    # jsonschema and the packages that it imports.
    *(
        "jsonschema",
        "attr",
        "attrs",
        "jsonschema_specifications",
        "referencing",
        "rpds",
        "typing_extensions",
    ),
    # Packages that the bridge's jobs import.
    *(
        "anyio",
        "idna",
        "sniffio",
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_inspection",
    ),
    *("pysqlite3", "psycopg", "psycopg_binary"),
    # Packages that the pages about runs import.
    *("jinja2", "markupsafe"),
)
_INHERITED: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class WorkerError(IdeabridgeError):
    """Raised when a worker process cannot start, or ends without an answer."""


class _GoneError(Exception):
    """Raised when the worker has ended without an answer."""


def _folders() -> list[str]:
    """Return the folders that contain the modules that a worker imports, except the working
    directory.
    """
    folders: dict[str, None] = {}
    for name in _NEEDED:
        # Locate the modules without importing them, because importing jsonschema takes longer than
        # starting a worker.
        spec = find_spec(name)
        places = None if spec is None else spec.submodule_search_locations or [spec.origin]
        for place in places or ():
            folders[str(Path(str(place)).parent)] = None

    return list(folders)


class _Worker:
    """A worker process. Only one thread at a time can give it a job, but any thread can kill it."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        command = [
            sys.executable,
            "-I",
            "-S",
            str(_SCRIPT),
            str(os.getpid()),
            str(WORKER_MEMORY),
            *_folders(),
        ]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerError(
                f"a worker process cannot be started: {error.strerror or error}"
            ) from None
        self.late = False
        self.has_begun = False
        self.start_seconds = START_SECONDS

    def ask(self, job: bytes, seconds: float) -> bytes:
        """Send a job and return the answer. This method blocks until the deadline at the latest,
        when another thread kills the process.

        The deadline is `seconds` after the worker began the job, so that a slow start on a busy
        machine does not reduce the time for the computation.
        """
        self.has_begun = False
        timer = self._timer(self.start_seconds)
        try:
            into = self.process.stdin
            out = self.process.stdout
            assert into is not None
            assert out is not None
            # Tell the worker its deadline, so that it ends by itself soon after the deadline, even
            # if this process no longer exists by then.
            into.write(len(job).to_bytes(8, "big") + int(seconds + 2).to_bytes(4, "big"))
            into.write(job)
            into.flush()
            self.has_begun = bool(out.read(1))
            timer.cancel()
            timer = self._timer(seconds)
            size = out.read(8)
            answer = out.read(int.from_bytes(size, "big"))
            if len(size) < 8 or len(answer) < int.from_bytes(size, "big"):
                raise _GoneError
        except (OSError, ValueError):
            raise _GoneError from None
        finally:
            timer.cancel()

        return answer

    def failure(self, what: str, seconds: float) -> IdeabridgeError | None:
        """Return the error for a job whose process ended without an answer.

        Return None if the process ended by itself before it received the job.
        """
        code = self.process.returncode
        if self.late and not self.has_begun:
            return WorkerError(
                f"{what}: its worker process did not start within {self.start_seconds:g} s"
            )
        if self.late or code == -14:
            return LimitExceededError(
                f"{what}: stopped after {seconds:g} s, the time limit for this computation"
            )
        if code == 0:
            return None
        return WorkerError(
            f"{what}: its worker process ended with code {code}; it may have exceeded "
            f"its memory limit of {WORKER_MEMORY // 1024**2:,} MB"
        )

    def _timer(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        return timer

    def _expire(self) -> None:
        self.late = True
        self.process.kill()

    def end(self) -> None:
        """Kill the process and wait for it to end."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class _Job:
    """A job of a worker.

    The waiting thread and the task that abandons the job use this object to agree on which of them
    ends the worker.

    Attributes:
        is_begun: whether the thread has begun to wait. If so, the thread ends the worker when the
            job is abandoned.
        is_over: whether the worker has answered, and might have received another job.
        is_given_up: whether the answer is no longer wanted.
    """

    def __init__(self, worker: _Worker) -> None:
        self.worker = worker
        self.is_begun = False
        self.is_over = False
        self.is_given_up = False


class Workers:
    """The workers of this process, for use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._owner = 0

    @property
    def at_work(self) -> int:
        """The number of workers that are computing."""
        with self._lock:
            return len(self._all) - len(self._idle)

    def _take(self, start_seconds: float) -> _Worker:
        with self._lock:
            if self._owner != os.getpid():
                # This process has been forked, and the workers belong to its parent.
                self._idle = []
                self._all = set()
                if self._owner == 0:
                    atexit.register(self.close)

                self._owner = os.getpid()

            ended = [child for child in self._all if child.process.poll() is not None]
            self._all.difference_update(ended)
            self._idle = [child for child in self._idle if child in self._all]
            worker = self._idle.pop() if self._idle else _Worker()
            self._all.add(worker)

        for child in ended:
            child.end()
        worker.start_seconds = start_seconds
        return worker

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()

    async def run(
        self, job: str, argument: JSON, *, what: str, seconds: float | None = None
    ) -> JSON:
        """Run a job of `worker_process`, and return its result. Cancellation kills the worker.

        `what` describes the computation in messages ("filter over 100,000 items"). The job can take
        up to `seconds` (by default `MOST_SECONDS`), not counting the wait for a free worker.

        Raises:
            LimitExceededError: the job takes too long or needs too much memory.
            WorkerError: a worker cannot start, or crashes.
            IdeabridgeError: the job raises this error.
        """
        import anyio
        import anyio.to_thread

        seconds = MOST_SECONDS if seconds is None else seconds
        async with _turns().place():
            while True:
                # A worker ends when the thread that started it ends, so start it in this thread
                # rather than in the thread that is waiting for its answer.
                job_at_work = _Job(self._take(START_SECONDS))
                try:
                    return await anyio.to_thread.run_sync(
                        self._ask,
                        job_at_work,
                        [job, argument],
                        what,
                        seconds,
                        abandon_on_cancel=True,
                        limiter=anyio.CapacityLimiter(1),
                    )
                except _GoneError:
                    continue  # The worker had just ended because it was idle.
                except anyio.get_cancelled_exc_class():
                    self._give_up(job_at_work)
                    raise

    def wait(self, job: str, argument: JSON, *, what: str, seconds: float) -> JSON:
        """Run a job as `run` does, with the same errors, but block for up to `seconds`."""
        while True:
            try:
                job_at_work = _Job(self._take(BLOCKED_START_SECONDS))
                return self._ask(job_at_work, [job, argument], what, seconds)
            except _GoneError:
                continue

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.is_over:
                # The worker is idle, or is already doing another job.
                return
            job.is_given_up = True

        job.worker.process.kill()
        if not job.is_begun:
            # No thread might be waiting for the worker, so end it here.
            self._drop(job.worker)

    def _ask(self, job: _Job, task: list[JSON], what: str, seconds: float) -> JSON:
        worker = job.worker
        job.is_begun = True
        try:
            answer = worker.ask(encode(task), seconds)
        except _GoneError:
            self._drop(worker)
            failure = worker.failure(what, seconds)
            if failure is None:
                raise
            raise failure from None
        except BaseException:
            self._drop(worker)
            raise

        with self._lock:
            job.is_over = not job.is_given_up
            if job.is_over:
                self._idle.append(worker)

        if job.is_given_up:
            self._drop(worker)

        result = decode_trusted(answer)
        assert isinstance(result, dict)
        if "value" in result:
            return result["value"]

        kind = result["error"]
        message = f"{result['message']}"
        if kind == "MemoryError":
            raise LimitExceededError(
                f"{what}: needs more memory than the limit of {WORKER_MEMORY // 1024**2:,} MB"
            )

        error = _error_class(f"{kind}")
        if error is not None:
            raise error(message)
        raise WorkerError(f"{what}: {kind}: {message}"[:500])

    def close(self) -> None:
        """End every worker, for example when this process exits."""
        with self._lock:
            ended = self._all if self._owner == os.getpid() else set[_Worker]()
            self._idle = []
            self._all = set()
        for worker in ended:
            worker.end()


def _error_class(kind: str) -> type[IdeabridgeError] | None:
    """Return the error class named `MODULE:CLASS` in an answer, or None if ideabridge has no such
    class.
    """
    module, _, name = kind.partition(":")
    error_class: object = getattr(sys.modules.get(module), name, None)
    if isinstance(error_class, type) and issubclass(error_class, IdeabridgeError):
        return error_class
    return None


@cache
def _of_loop() -> RunVar[FairPlaces]:
    from anyio.lowlevel import RunVar

    return RunVar("_of_loop")


def _turns() -> FairPlaces:
    """Return the places shared by the callers on this event loop, one for each worker that can
    compute concurrently.
    """
    from ideabridge.tools.turns import FairPlaces

    try:
        return _of_loop().get()
    except LookupError:
        turns = FairPlaces(MOST_WORKERS)
        _of_loop().set(turns)
        return turns


workers: Final = Workers()
"""The workers of this process."""
