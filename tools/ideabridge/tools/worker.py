"""Worker processes: computing over data from outside that may take long, where it can be stopped.

A job is a name and one JSON argument; `worker_process.py` holds the jobs. A worker is a process of its own with a
lower priority, no environment, bounded memory and no way to reach anything. The deadline, cancelling and the end of
this process kill it, whatever code it is in. A worker that has nothing to do for a minute ends by itself.

On Linux the system kills a worker the moment this process is gone. Elsewhere a worker that is at work then ends at
its deadline at the latest, and an idle one at once.
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

import ideabridge.tools.errors as errors
from ideabridge.tools.encoding import JSON, decode_trusted, encode
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError

SECONDS: Final = 30.0
"""How long one call may compute in a worker."""

MOST: Final = max(2, min(4, os.cpu_count() or 2))
"""How many workers are at work at once; further jobs wait for one of them."""

MEMORY: Final = 2 * 1024**3
"""Bytes of address space of a worker, where the system bounds it (not on macOS and Windows)."""

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from anyio.lowlevel import RunVar

_SCRIPT: Final = Path(__file__).with_name("worker_process.py")
_NEEDED: Final = (
    *("ideabridge", "orjson", "jsonschema_rs", "jmespath"),
    # jsonschema and what it imports.
    *("jsonschema", "attr", "attrs", "jsonschema_specifications", "referencing", "rpds", "typing_extensions"),
)
_INHERITED: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class WorkerError(IdeabridgeError):
    """A worker process could not be started, or ended before it had an answer."""


class _GoneError(Exception):
    """The worker ended, and has not answered."""


def _folders() -> list[str]:
    """Where the modules that a worker imports are, and nothing else: not the working directory."""
    folders: dict[str, None] = {}
    for name in _NEEDED:
        # Found, not imported: jsonschema takes longer to import than a worker to start.
        spec = find_spec(name)
        places = None if spec is None else spec.submodule_search_locations or [spec.origin]
        for place in places or ():
            folders[str(Path(str(place)).parent)] = None
    return list(folders)


class _Worker:
    """One process. At most one thread asks it at a time; any may kill it."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        command = [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), str(MEMORY), *_folders()]
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
            raise WorkerError(f"a worker process cannot be started: {error.strerror or error}") from None
        self.late = False

    def ask(self, job: bytes, seconds: float) -> bytes:
        """The answer to a job. Blocks; another thread kills the process at the deadline."""
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            into, out = self.process.stdin, self.process.stdout
            assert into is not None
            assert out is not None
            # It ends by itself soon after: also where this process is gone and could not end it.
            into.write(len(job).to_bytes(8, "big") + int(seconds + 2).to_bytes(4, "big"))
            into.write(job)
            into.flush()
            size = out.read(8)
            answer = out.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
        except (OSError, ValueError):
            size = answer = b""
        finally:
            timer.cancel()
        if len(size) != 8 or len(answer) != int.from_bytes(size, "big"):
            raise _GoneError
        return answer

    def _expire(self) -> None:
        self.late = True
        self.process.kill()

    def end(self) -> None:
        """Kill it, and collect it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Workers:
    """The workers of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._owner = 0

    @property
    def at_work(self) -> int:
        """How many are at work now."""
        with self._lock:
            return len(self._all) - len(self._idle)

    def _take(self) -> _Worker:
        with self._lock:
            if self._owner != os.getpid():
                # After a fork the workers are the parent's.
                self._idle, self._all = [], set()
                if self._owner == 0:
                    atexit.register(self.close)
                self._owner = os.getpid()
            ended = [one for one in self._all if one.process.poll() is not None]
            idle, self._idle = [one for one in self._idle if one not in ended], []
            self._all.difference_update(ended)
            if idle:
                self._idle = idle[:-1]
                worker = idle[-1]
            else:
                worker = _Worker()
                self._all.add(worker)
        for one in ended:
            one.end()
        return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()

    def _cancel(self, worker: _Worker) -> None:
        """Kill a worker that another thread asks; that one collects it. It may have answered in the meantime."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
        worker.process.kill()

    async def run(self, job: str, argument: JSON, *, what: str, seconds: float | None = None) -> JSON:
        """The result of a job. Cancelling this kills the worker that is at it.

        Args:
            job: one of the jobs of `worker_process`.
            argument: what it is given.
            what: what is computed, for messages: "filter over 100,000 items".
            seconds: how long it may take; None: `SECONDS`. Waiting for a worker does not count.

        Raises:
            LimitExceededError: it takes too long, or needs too much memory.
            WorkerError: a worker cannot be started, or crashed.
            IdeabridgeError: what the job raised.
        """
        import anyio
        import anyio.to_thread

        seconds = SECONDS if seconds is None else seconds
        frame = encode([job, argument])
        async with _places():
            while True:
                # Started by this thread, not by the one that waits: a worker ends with the thread that started it.
                worker = self._take()
                try:
                    return await anyio.to_thread.run_sync(
                        self._ask,
                        worker,
                        frame,
                        what,
                        seconds,
                        abandon_on_cancel=True,
                        limiter=anyio.CapacityLimiter(1),
                    )
                except _GoneError:
                    # It had just ended because nothing was to be done.
                    continue
                except anyio.get_cancelled_exc_class():
                    self._cancel(worker)
                    raise

    def wait(self, job: str, argument: JSON, *, what: str, seconds: float) -> JSON:
        """As `run`, where nothing can be awaited: it blocks, for `seconds` at most. Raises what `run` raises."""
        frame = encode([job, argument])
        while True:
            try:
                return self._ask(self._take(), frame, what, seconds)
            except _GoneError:
                continue

    def _ask(self, worker: _Worker, frame: bytes, what: str, seconds: float) -> JSON:
        try:
            answer = worker.ask(frame, seconds)
        except _GoneError:
            self._drop(worker)
            code = worker.process.returncode
            if worker.late or code == -14:
                raise LimitExceededError(f"{what}: stopped after {seconds:g} s, the most it may compute") from None
            if code == 0:
                raise
            raise WorkerError(
                f"{what}: the worker process that computed it ended with code {code}; it may have needed more memory "
                f"than the {MEMORY // 1024**2:,} MB it may have"
            ) from None
        except BaseException:
            self._drop(worker)
            raise
        self._give_back(worker)
        told = decode_trusted(answer)
        if not isinstance(told, dict):
            raise WorkerError(f"{what}: the worker process answered something else than asked")
        if "value" in told:
            return told["value"]
        kind, message = told.get("error"), f"{told.get('message')}"
        if kind == "MemoryError":
            raise LimitExceededError(f"{what}: needs more memory than the {MEMORY // 1024**2:,} MB it may have")
        found = getattr(errors, f"{kind}", None)
        if isinstance(found, type) and issubclass(found, IdeabridgeError):
            raise found(message)
        raise WorkerError(f"{what}: {kind}: {message}"[:500])

    def close(self) -> None:
        """End every worker. Done at exit."""
        with self._lock:
            ended = self._all if self._owner == os.getpid() else set[_Worker]()
            self._idle, self._all = [], set()
        for worker in ended:
            worker.end()


@cache
def _of_loop() -> RunVar[CapacityLimiter]:
    from anyio.lowlevel import RunVar

    return RunVar("_of_loop")


def _places() -> CapacityLimiter:
    """The places for workers of this event loop."""
    from anyio import CapacityLimiter

    try:
        return _of_loop().get()
    except LookupError:
        places = CapacityLimiter(MOST)
        _of_loop().set(places)
        return places


workers: Final = Workers()
"""The workers of this process."""
