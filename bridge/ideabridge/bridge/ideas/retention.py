"""Retention: old runs leave the store by themselves, in small steps, while servers use it (`docs/store.md`).

Once a week a round looks for runs that may go; the first one that finds some only says so. It works on a connection of
its own, in another thread than the event loop's, and leaves the store to others for ten times as long as it holds it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.families import ENDED, Family, Key, holders
from ideabridge.bridge.ideas.pruning import Pruning
from ideabridge.tools.encoding import encode_text

DAY: Final = 86_400.0

EVERY: Final = 7 * DAY
"""Seconds between two rounds of all servers on one store."""

YOUNG: Final = 7 * DAY
"""A run that ended more recently stays however many there are."""

PACE: Final = 10.0
"""For how many times as long as a step takes the store is left to others."""

_LEASE: Final = 600.0
"""How long another server takes a round to be at work, in seconds since it last said so."""

_KEY: Final = "retention"
_CANDIDATES: Final = 64
_TOGETHER: Final = 8
"""Families removed in one transaction: a few milliseconds."""

_ENDED: Final = ", ".join(f"'{one}'" for one in ENDED)
_DUE: Final = (
    f"status IN ({_ENDED}) AND (coalesce(updated, created) < ?1 OR (number <= ?2 AND coalesce(updated, created) < ?3))"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is kept at least. A run goes when it is older, or beyond the number and older than `YOUNG`.

    Attributes:
        days: for so many days after it ended; None: of any age.
        runs: so many of the newest runs, rooms included; None: any number.
    """

    days: float | None
    runs: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """How retention stands in a store.

    Attributes:
        runs: at most how many runs are due: some of them may be published, tagged or part of something younger.
        at: when the next round is, in seconds since 1970; 0: as soon as a server looks.
        deletes: whether that round deletes; the first one that finds something only says so.
    """

    runs: int
    at: float
    deletes: bool


class Retention:
    """Looks for old runs of one store, and removes them; see `Store.retention`."""

    def __init__(self, database: Database, pruning: Pruning, bounds: Bounds) -> None:
        self._database = database
        self._pruning = pruning
        self._bounds = bounds

    def due(self, now: float) -> Due:
        """How retention stands.

        Args:
            now: seconds since 1970.
        """
        with self._database.guard:
            state = self._state()
        last = state.get("at", 0.0)
        at = last + EVERY if 0 <= now - last < EVERY else 0.0
        return Due(self._count(self._clock(state, now)), at, state.get("told") is True)

    def round(self, now: float, who: str) -> tuple[str, int]:
        """A round, where it is time for one.

        Args:
            now: seconds since 1970.
            who: this process, as no other is named.

        Returns:
            What was done and of how many runs: `none` (nothing to do, or another server is at it), `found` (they go in
            the next round), `deleted`.

        Raises:
            PruningStoppedError: `wait` said so; what was done holds, and the next round goes on.
        """
        claimed = self._claim(now, who)
        if claimed is None:
            return "none", 0
        clock, told = claimed
        found = self._count(clock)
        done: tuple[str, int] = ("none", 0)
        if found and told:
            begun = time.monotonic() - now
            done = ("deleted", self._delete(clock, lambda: self._note(until=time.monotonic() - begun + _LEASE)))
        elif found:
            done = ("found", found)
        self._note(at=now, clock=clock, told=told or bool(found), until=0.0)
        return done

    def _claim(self, now: float, who: str) -> tuple[float, bool] | None:
        """(the time that counts, whether it was said that runs go), where this process does the round."""
        with self._database.transaction():
            state = self._state()
            if 0 <= now - state.get("at", 0.0) < EVERY:
                return None
            if state.get("by") != who and 0 < state.get("until", 0.0) - now <= _LEASE:
                return None
            self._note(by=who, until=now + _LEASE)
            return self._clock(state, now), state.get("told") is True

    def _note(self, **changes: Any) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)",
                (_KEY, encode_text({**self._state(), **changes}).encode()),
            )

    def _state(self) -> dict[str, Any]:
        """What is noted: `at`, when the last round was; `clock`, the time that counted then; `told`, whether a round
        has said that runs go; `by` and `until`, who is at work. Inside a guard or transaction.
        """
        row = self._database.execute("SELECT value FROM settings WHERE key = ?", (_KEY,)).fetchone()
        return {} if row is None else json.loads(row[0])

    @staticmethod
    def _clock(state: dict[str, Any], now: float) -> float:
        """The time that ages count from: a clock that is years ahead for a while makes nothing years old."""
        return min(now, state.get("clock", now) + 2 * EVERY)

    def _before(self, clock: float) -> tuple[str, int, str]:
        """The values of `_DUE`."""
        days, runs = self._bounds.days, self._bounds.runs
        oldest = "" if days is None else _text(clock - days * DAY)
        last = 0
        if runs is not None:
            last = self._database.number("SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET ?", (runs,))
        return oldest, last, _text(clock - YOUNG)

    def _count(self, clock: float) -> int:
        with self._database.guard:
            return self._database.number(f"SELECT count(*) FROM runs WHERE {_DUE}", self._before(clock))  # noqa: S608

    def _delete(self, clock: float, going_on: Callable[[], None]) -> int:
        """Remove what is due; returns how many runs."""
        database = self._database
        with database.snapshot():
            before = self._before(clock)
            top = database.number("SELECT max(number) FROM ideas")
            published = database.number("SELECT max(number) FROM publications")
            held: set[Key] = {key for key, _ in holders(database)}
            # Their row numbers must not be given again.
            held |= {row[0] for row in database.execute("SELECT id FROM runs ORDER BY number DESC LIMIT 1")}
            held |= {row[0] for row in database.execute("SELECT run FROM ideas ORDER BY number DESC LIMIT 1")}
        removed, last = 0, 0
        while True:
            with database.snapshot():
                rows = database.execute(
                    f"SELECT number, id FROM runs WHERE number > ?4 AND {_DUE} ORDER BY number LIMIT ?5",  # noqa: S608
                    (*before, last, _CANDIDATES),
                ).fetchall()
                families = self._families([row[1] for row in rows], before, held)
            for start in range(0, len(families), _TOGETHER):
                removed += self._pruning.remove(families[start : start + _TOGETHER], top, published)[0]
            if len(rows) < _CANDIDATES:
                break
            last = rows[-1][0]
            going_on()
        if removed:
            self._pruning.clear()
        return removed

    def _families(self, runs: list[str], before: tuple[str, int, str], held: set[Key]) -> list[Family]:
        """The families of some runs of which every run is due, and none is held."""
        found: list[Family] = []
        seen: set[str] = set()
        for run in runs:
            if run in seen:
                continue
            family = self._family(run)
            seen |= family
            if family & held:
                continue
            (left,) = self._database.execute(
                f"SELECT count(*) FROM json_each(?4) JOIN runs ON runs.id = value WHERE NOT ({_DUE})",  # noqa: S608
                (*before, encode_text([*family])),
            ).fetchone()
            if not left:
                found.append(Family([*family]))
        return found

    def _family(self, run: str) -> set[str]:
        """A run with all that are joined to it: rooms and forks, and what they are rooms and forks of."""
        family = {run}
        waiting = [run]
        while waiting:
            rows = self._database.execute(
                "SELECT id FROM runs WHERE parent = ?1 UNION SELECT id FROM runs WHERE forked_from = ?1 UNION "
                "SELECT other.id FROM runs AS one JOIN runs AS other ON other.id IN (one.parent, one.forked_from) "
                "WHERE one.id = ?1",
                (waiting.pop(),),
            ).fetchall()
            new = {row[0] for row in rows} - family
            family |= new
            waiting += new
        return family


def told_of(done: tuple[str, int]) -> str:
    """What a round did, for the log of a server; "": nothing that is worth a line."""
    what, runs = done
    count = f"{runs:,} old run{'' if runs == 1 else 's'}"
    if what == "found":
        return (
            f"up to {count} will be deleted in {EVERY / DAY:g} days, unless published or tagged; "
            "`retention` in your own configuration keeps them (docs/store.md)"
        )
    return f"{count} deleted, as `retention` says" if runs else ""


def _text(at: float) -> str:
    """A time as the table of runs has it."""
    return datetime.fromtimestamp(max(at, 0.0), UTC).isoformat(timespec="milliseconds")
