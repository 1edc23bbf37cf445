"""Decide who drives a run when servers and workers share a store.

Theory of operation. The queue is the `runs` table: a run with the status `queued` has no driver and
is waiting for a worker. A server with the role `front` journals the events that set a run in motion
(its plan, a solution, a decision). At the point where calls would start, the server hands the run
over instead. `RunQueue.claim` takes a run out of the queue, and a `worker` continues the run from
its journal, as any process would. From then on, the lease of the run says who drives it. A worker
that is shutting down does not start any more calls. It hands over each of its runs when the running
calls of the run have ended.

A worker that dies leaves runs behind, and their leases lapse. `Recovery` in a `front` server or a
worker returns these runs to the queue. In a server with the role `alone`, it continues them there.
The queue does not have its own state. It only decides in which order runs are claimed.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ideabridge.bridge.store.store import Store
from ideabridge.tools.errors import LimitExceededError

MOST_QUEUED: Final = 1000
"""Maximum number of runs that wait for workers. Further runs are refused."""

MOST_OF_ONE_CALLER: Final = 500
"""Maximum number of one caller's waiting runs. The remaining places are for other callers."""

Role: TypeAlias = Literal["alone", "front", "worker"]
"""The role of a process. `alone`: the process drives the runs that it creates, and the runs that
other processes leave behind. `front`: the process leaves all runs to workers. `worker`: the process
drives the runs that it takes from the queue.
"""


class Queue:
    """Decides for each run whether this process performs the run's effects. If it does not, the run
    is handed over; see `Run.hand_over`.

    Args:
        store: the store that holds the queue.
        role: see `Role`.

    Attributes:
        role: see `Role`. It becomes `front` while a worker is shutting down.
        claimed: the runs that this worker has taken from the queue.
    """

    def __init__(self, store: Store, role: Role) -> None:
        self.role: Role = role
        self.claimed: set[str] = set()
        self._store = store

    def drives(self, run_id: str) -> bool:
        """Return whether this process performs the effects of a run or, for a room, of the
        outermost run that the room belongs to.
        """
        root = run_id.partition(".")[0]
        return self.role == "alone" or (self.role == "worker" and root in self.claimed)

    def expect_place(self, caller: str) -> None:
        """Raise `LimitExceededError` if the queue is too full for another run."""
        if self._store.queue.count(most=MOST_OF_ONE_CALLER, caller=caller) >= MOST_OF_ONE_CALLER:
            raise LimitExceededError(
                f"{MOST_OF_ONE_CALLER:,} of your runs are waiting for a worker, which is the limit "
                "for one user. Try again when some of them have started, or cancel some"
            )
        if self._store.queue.count(most=MOST_QUEUED) >= MOST_QUEUED:
            raise LimitExceededError(
                f"{MOST_QUEUED:,} runs are waiting for a worker, which is the limit: try again in "
                "a minute, or start more workers (`ideabridge worker`)"
            )
