"""The program of a worker process, which computes one job after another (see `worker`).

The process runs as `python -I -S worker_process.py PARENT MEMORY FOLDER...`. Standard input carries
the jobs: the size in 8 bytes, the number of seconds that the job can take in 4 bytes, and `[job,
argument]` as JSON. Standard output carries the results: one byte when the computation begins, then
the size in 8 bytes, then `{"value": ...}` or `{"error": class, "message": text}`. For ideabridge's
own errors, `class` is `MODULE:CLASS`.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

IDLE_SECONDS = 60


def _confine(parent: int, memory: int) -> None:
    """Make this process end when its parent ends, limit its memory, and lower its priority."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(0)


def _wait() -> bool:
    """Wait for a job. Return False if the worker has been idle for too long."""
    if sys.platform == "win32":
        return True
    import select

    return bool(select.select([0], [], [], IDLE_SECONDS)[0])


def _read(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) != size:
        sys.exit(0)
    return data


def main(arguments: list[str]) -> None:
    """Compute jobs until the input ends or the worker has been idle for too long."""
    parent, memory, *folders = arguments
    _confine(int(parent), int(memory))
    sys.path += folders

    from ideabridge.tools.encoding import decode_trusted, encode
    from ideabridge.tools.errors import IdeabridgeError

    while _wait():
        size = int.from_bytes(_read(8), "big")
        seconds = int.from_bytes(_read(4), "big")
        if sys.platform != "win32":
            # The alarm ends this process whatever code it is running, even if its parent no longer
            # exists.
            signal.alarm(seconds)

        try:
            request: Any = decode_trusted(_read(size))
            job, argument = request
            compute = _computation(job)
            sys.stdout.buffer.write(b"\1")
            sys.stdout.buffer.flush()
            answer = encode({"value": compute(*argument)})
        except IdeabridgeError as error:
            kind = f"{type(error).__module__}:{type(error).__name__}"
            answer = encode({"error": kind, "message": str(error)})
        except MemoryError:
            answer = b'{"error":"MemoryError","message":""}'
        except Exception as error:  # noqa: BLE001 - any exception of a job is the answer to it
            answer = encode({"error": type(error).__name__, "message": ascii(str(error)[:300])})

        if sys.platform != "win32":
            signal.alarm(0)

        sys.stdout.buffer.write(len(answer).to_bytes(8, "big"))
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def _computation(job: str) -> Callable[..., Any]:
    """Return the function that computes a job, after importing everything that it needs."""
    module, _, name = job.partition(":")
    if name:
        from importlib import import_module

        return getattr(import_module(module), name)

    if job == "shape":
        from ideabridge.tools.shaping import Budget, compute_here

        def compute(tool: Any, arguments: Any) -> Any:
            return compute_here(tool, arguments, Budget())

        return compute

    from ideabridge.tools.schema import problems_here, valid_here

    if job == "valid":
        return valid_here
    import ideabridge.tools.explain as explain  # imports jsonschema: 0.1 s

    assert explain
    return problems_here


if __name__ == "__main__":
    main(sys.argv[1:])
