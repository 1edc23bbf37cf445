"""Estimate: how many bytes of the store a pruning frees, before anything is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.families import Families, Family, Key
from ideabridge.bridge.ideas.reach import Reach

_READ: Final = 1024
_ROW: Final = 48
"""Bytes of a row of contents beside its text: number, hash, index."""


class Estimate:
    """What the first of some families free, once they go in this order.

    A message is freed with the last idea that has it, so every idea of the store is looked at. What rows take in the
    file beside their texts (pages, indexes, the words for the search) is taken to be spread evenly, but for the first
    page of each table and index.

    Args:
        database: inside a snapshot of it.
        families: all there are.
        going: those that may go, in the order in which they do.
    """

    def __init__(self, database: Database, families: Families, going: list[Family]) -> None:
        self._database = database
        self._families = families
        self._stays = len(going)
        self._ranks = {id(family): rank for rank, family in enumerate(going)}
        self._ranks_of_runs: dict[int, int] = {}
        # By rank; the last entry is what stays.
        self._bytes = [0] * (len(going) + 1)
        self._ideas = [0] * (len(going) + 1)
        self._runs = [0] * (len(going) + 1)
        self._unreached = 0
        # The first page of each table and index stays, however little is left.
        self._fixed = database.number("SELECT count(*) FROM sqlite_master WHERE rootpage > 0") * database.number(
            "PRAGMA page_size"
        )
        if going:
            self._weigh_runs()
            self._weigh_ideas()

    def of_first(self, count: int, used: int) -> tuple[int, int, int]:
        """(runs, ideas, bytes) that the first `count` families take with them, of `used` bytes in the file."""
        total = max(sum(self._bytes) + self._unreached, 1)
        freed = (sum(self._bytes[:count]) + self._unreached) * max(used - self._fixed, 0) // total
        return sum(self._runs[:count]), sum(self._ideas[:count]), freed

    def needed(self, used: int, under: int) -> int:
        """How many of the first families must go, that of `used` bytes fewer than `under` are left; at most all."""
        total = max(sum(self._bytes) + self._unreached, 1)
        freed = self._unreached
        for rank in range(self._stays):
            if used - freed * max(used - self._fixed, 0) // total <= under:
                return rank
            freed += self._bytes[rank]
        return self._stays

    def _rank(self, key: Key) -> int:
        family = self._families.of(key)
        return self._stays if family is None else self._ranks.get(id(family), self._stays)

    def _weigh_runs(self) -> None:
        execute = self._database.execute
        ranks = self._ranks_of_runs
        for number, run in execute("SELECT number, id FROM runs"):
            rank = ranks[number] = self._rank(run)
            self._runs[rank] += 1
            self._bytes[rank] += 4 * _ROW
        for number, size in execute("SELECT id >> 32, sum(length(body) + 16) FROM events GROUP BY 1"):
            self._bytes[ranks.get(number, 0)] += size

    def _weigh_ideas(self) -> None:
        execute = self._database.execute
        last: dict[int, int] = {}
        for idea, run, size in execute("SELECT idea, run, length(meta) FROM occurrences"):
            rank = self._rank(run)
            last[idea] = max(last.get(idea, 0), rank)
            self._bytes[rank] += size + _ROW
        going: list[tuple[int, int]] = []
        reach = Reach(self._database)
        rows = execute(
            "SELECT number, coalesce(run, number), length(meta) + length(context) + length(solution), schema, solved, "
            "context FROM ideas"
        )
        for number, key, size, schema, solved, context in rows:
            rank = max(last.get(number, 0), self._rank(key))
            self._ideas[rank] += 1
            self._bytes[rank] += size + 4 * _ROW
            if rank == self._stays:
                reach.idea(schema, solved, context)
            else:
                going.append((rank, number))
        events: list[tuple[int, str]] = []
        for run, parts in execute("SELECT id >> 32, parts FROM events WHERE parts IS NOT NULL"):
            rank = self._ranks_of_runs.get(run, 0)
            if rank == self._stays:
                reach.event(parts)
            else:
                events.append((rank, parts))
        # The last first: what an idea or event reaches is freed with the last that does.
        going.sort(reverse=True)
        events.sort(reverse=True)
        freed: dict[int, int] = {}
        for rank, new in merge(
            ((rank, reach.idea(schema, solved, context)) for rank, schema, solved, context in self._read(going)),
            ((rank, reach.event(parts)) for rank, parts in events),
            key=itemgetter(0),
            reverse=True,
        ):
            freed.update(dict.fromkeys(new, rank))
        for number, size in execute("SELECT number, length(body) FROM contents"):
            if number in freed:
                self._bytes[freed[number]] += size + _ROW
            elif number in reach:
                self._bytes[self._stays] += size + _ROW
            else:
                self._unreached += size + _ROW

    def _read(self, ideas: list[tuple[int, int]]) -> Iterator[tuple[int, int, int | None, str]]:
        """(rank, schema, solved, context) of ideas, in this order."""
        listed = iter(ideas)
        while some := list(islice(listed, _READ)):
            rows = self._database.execute(
                "SELECT ideas.schema, ideas.solved, ideas.context FROM json_each(?) AS part "
                "JOIN ideas ON ideas.number = part.value ORDER BY part.key",
                (f"[{','.join(str(number) for _, number in some)}]",),
            ).fetchall()
            for (rank, _), row in zip(some, rows, strict=True):
                yield rank, *row
