"""Outstanding: Requests that went out to a client's model in a round, and of which nothing has come back (DESIGN 5).

In 2026-07-28 a client that refuses, or gives a call up, says nothing: the request just does not come again. So what
went out is kept in the store, for whoever asks later, at whichever process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.run import Run
from ideabridge.server.rounds import Sample
from ideabridge.tools.encoding import JSON, decode_trusted, encode


@dataclass(frozen=True, slots=True)
class Put:
    """A Request that was put to a client's model.

    Attributes:
        sample: which.
        at: when, ISO 8601 in UTC.
    """

    sample: Sample
    at: str


def sample_of(run: Run) -> Sample:
    """The Request a run asks now."""
    return Sample(run.id, run.turn, len(run.turns.rejected))


class Outstanding:
    """What went out in rounds, by run.

    Args:
        bridge: has the store.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def note(self, root: Run, samples: Sequence[Sample], waiting: Iterable[Run]) -> None:
        """Requests are about to go out.

        Args:
            root: the run they belong to.
            samples: they.
            waiting: all runs (it, and rooms of it) that wait for a solution: what others asked is forgotten.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kept = {put.sample.run: put for put in self.unanswered(root, waiting)}
        kept.update((sample.run, Put(sample, now)) for sample in samples)
        told: list[JSON] = [[put.sample.run, put.sample.turn, put.sample.attempt, put.at] for put in kept.values()]
        self._bridge.store.set_setting(_key(root), encode(told))

    def unanswered(self, root: Run, waiting: Iterable[Run]) -> list[Put]:
        """What of the Requests that runs ask now went out before.

        Args:
            root: the run they belong to.
            waiting: the runs that wait for a solution.
        """
        raw = self._bridge.store.settings(_key(root))
        if raw is None:
            return []
        held: Any = decode_trusted(raw)
        puts = [Put(Sample(run, turn, attempt), at) for run, turn, attempt, at in held]
        asked = {sample_of(run) for run in waiting}
        return [put for put in puts if put.sample in asked]


def _key(root: Run) -> str:
    return f"sampled.{root.id}"
