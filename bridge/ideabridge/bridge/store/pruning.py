"""Delete old runs and ideas while other processes use the store (`docs/store.md`).

1. `Families` groups the runs and ideas that must be kept or deleted together: a run, the rooms that
   answered its calls, its forks, and the ideas of all of these. An idea that was not made by a run
   in this store is its own family, but ideas that name the same run of another store form one
   family.
2. `Pruning` deletes families, a few in each transaction, unless a publication or a tag now needs
   them. It then deletes the events of the deleted runs.
3. `Sweep` deletes the rows of `contents` that no idea and no event references any longer.

Each transaction takes about 10 ms and leaves a consistent store. If a pruning is killed, the next
one completes it. `Retention` runs the same steps once a week in a server.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.store.contents import ROPE, SWEPT, entries_of, key_of
from ideabridge.bridge.store.database import Database, number_list, time_text
from ideabridge.bridge.store.errors import PruningStoppedError
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.search import Search
from ideabridge.bridge.store.shapes import CallIndex
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode_text
from ideabridge.tools.names import counted

# -- families --------------------------------------------------------------------------------------

UNFINISHED: Final = "unfinished"
NEWEST: Final = "newest"
PUBLISHED: Final = "published"
TAGGED: Final = "tagged"


class _RunRow(NamedTuple):
    """A run as the table `runs` stores it. `time` is when the run was last updated or created."""

    id: str
    parent: str | None
    forked_from: str | None
    status: str
    driver: str | None
    lease_until: float
    time: str

    def is_driven(self, now: float) -> bool:
        """Return whether a process drives the run now."""
        return self.driver is not None and self.lease_until > now


Key = str | int
"""A member of a family: the id of a run, or the row number of an idea without a run."""


@dataclass(slots=True)
class Family:
    """Runs and ideas that are kept or deleted together.

    Attributes:
        members: the ids of runs in this store or another one, or the row of a single idea without a
            run.
        time: when the latest member of the family ended or was saved, as ISO 8601 in UTC.
        why: the reason to keep the family regardless of its age, or "" if there is none.
    """

    members: list[Key] = field(default_factory=list[Key])
    time: str = ""
    why: str = ""

    def runs(self) -> list[str]:
        """Return the ids of the family's runs."""
        return [member for member in self.members if isinstance(member, str)]

    def loose(self) -> list[int]:
        """Return the rows of the family's ideas that have no run."""
        return [member for member in self.members if isinstance(member, int)]


class Families:
    """The current families of a store. Create instances inside a guard or transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._above: dict[Key, Key] = {}
        self._families: dict[Key, Family] = {}
        self._read()

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def of(self, key: Key) -> Family | None:
        """Return the family of a run, or of an idea without a run."""
        return self._families.get(self._root(key)) if key in self._above else None

    def _root(self, key: Key) -> Key:
        above = self._above[key]
        while above != key:
            # Halve the path, as in union-find.
            self._above[key] = self._above[above]
            key = above
            above = self._above[above]
        return key

    def _read(self) -> None:
        execute = self._database.execute
        now = time.time()
        rows = execute(
            "SELECT id, parent, forked_from, status, driver, lease_until, coalesce(updated, "
            "created) FROM runs"
        ).fetchall()
        runs = [_RunRow._make(row) for row in rows]
        times: dict[Key, str] = {run.id: run.time for run in runs}
        loose = execute(
            "SELECT run, CASE WHEN run IS NULL THEN number "
            "END, max(json_extract(meta, '$.time')) FROM ideas "
            "WHERE run IS NULL OR run NOT IN (SELECT id FROM runs) GROUP BY 1, 2 UNION ALL "
            "SELECT run, NULL, max(json_extract(meta, '$.time')) FROM occurrences "
            "WHERE run NOT IN (SELECT id FROM runs) GROUP BY 1"
        )
        for run_id, number, at in loose:
            key = number if run_id is None else run_id
            times[key] = max(times.get(key, ""), at or "")

        self._above = {key: key for key in times}
        for run in runs:
            for other in (run.parent, run.forked_from):
                if other in self._above:
                    self._above[self._root(run.id)] = self._root(other)

        for key, at in times.items():
            family = self._families.setdefault(self._root(key), Family())
            family.members.append(key)
            family.time = max(family.time, at)

        for run in runs:
            if run.status not in ENDED or run.is_driven(now):
                self._keep(run.id, UNFINISHED)

        # SQLite continues the numbering from the newest row. If that row were deleted, its number
        # would be used again, while other processes might still remember the old row.
        newest = execute(
            "SELECT id, NULL FROM runs WHERE number = (SELECT max(number) FROM runs) UNION ALL "
            "SELECT run, number FROM ideas WHERE number = (SELECT max(number) FROM ideas)"
        )
        for run_id, number in newest:
            self._keep(number if run_id is None else run_id, NEWEST)

        for key, reason in holders(self._database):
            self._keep(key, reason)

    def _keep(self, key: Key, why: str) -> None:
        family = self.of(key)
        if family is not None:
            family.why = why


def holders(
    database: Database, ideas: Iterable[int] | None = None, since: int = 0
) -> Iterator[tuple[Key, str]]:
    """Yield `(member, reason)` for everything that publications and tags need.

    An idea needs the run from which it was lifted and the runs that confirmed it. If there are no
    such runs, it needs the first of these that exists: the latest run that ended with the idea, any
    of its runs, the idea itself.

    Args:
        database: the store. Call this inside a guard or transaction.
        ideas: consider only the ideas in these rows, and only publications after the row `since`.
            None means all.
        since: see `ideas`.
    """
    execute = database.execute
    where = ""
    or_later = ""
    values = ()
    if ideas is not None:
        where = " WHERE idea IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
        or_later = f" OR number > {since:d}"
        values = (number_list(ideas),)

    lifted: set[int] = set()
    published: dict[int, str] = {}
    rows: list[tuple[Any, ...]] = execute(
        "SELECT idea, json_extract(plan, '$.lifting.run'), json_extract(plan, '$.lifting.confirmed_by') "  # noqa: S608
        f"FROM publications{where}{or_later}",
        values,
    ).fetchall()
    for idea, run, confirmed in rows:
        published[idea] = PUBLISHED
        if run is not None and database.number("SELECT number FROM runs WHERE id = ?", (run,)):
            lifted.add(idea)
            yield str(run), PUBLISHED
        for (other,) in execute("SELECT value FROM json_each(?)", (confirmed or "[]",)).fetchall():
            yield str(other), PUBLISHED

    tags = (
        "SELECT idea FROM (SELECT number AS idea, json_array_length(meta, '$.tags') AS tags "
        "FROM ideas) AS tagged"
    )
    tagged: list[tuple[int]] = execute(
        f"{tags}{where or ' WHERE 1 = 1'} AND tags > 0", values
    ).fetchall()
    for idea, reason in {**{row[0]: TAGGED for row in tagged}, **published}.items():
        if idea not in lifted:
            yield _best_run(database, idea), reason


def _best_run(database: Database, idea: int) -> Key:
    row = database.execute(
        "SELECT runs.id FROM runs JOIN ideas ON ideas.number = ?1 "
        "WHERE runs.id IN (SELECT run FROM ideas WHERE number = ?1 UNION SELECT run "
        "FROM occurrences WHERE idea = ?1) "
        "ORDER BY coalesce(json_extract(runs.summary, '$.idea'), '') = lower(hex(ideas.id)) DESC, "
        "runs.status = 'done' DESC, "
        "runs.created DESC, runs.number DESC LIMIT 1",
        (idea,),
    ).fetchone()
    if row is None:
        run, number = database.execute(
            "SELECT run, number FROM ideas WHERE number = ?", (idea,)
        ).fetchone()
        return number if run is None else run
    return row[0]


# -- contents --------------------------------------------------------------------------------------

_READ_AT_ONCE: Final = 1024
_DELETED: Final = 500
"""The number of rows that one transaction deletes. Deleting them takes about 10 ms."""


class Reach:
    """The rows of `contents` that ideas and events reference: schemas, messages, Solutions, tools,
    and their lists.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # The state of each row: 0 is not reached, 1 is reached, and 2 is reached as a list. A
        # message with the same text as a list shares the row of the list.
        self._reached = bytearray()

    def __contains__(self, number: int) -> bool:
        return number < len(self._reached) and self._reached[number] > 0

    def idea(self, schema: int, solved: int | None, shown: int | None, context: str) -> list[int]:
        """Add the rows that an idea references, and return those that are new. Call this inside a
        guard or transaction.
        """
        entries = cast("list[int]", decode_trusted(context))
        entries += [number for number in (schema, solved, shown) if number is not None]
        return self._add(entries)

    def event(self, parts: str) -> list[int]:
        """Add the rows that the parts of an event reference, and return those that are new. Call
        this inside a guard or transaction.
        """
        return self._add(entries_of(parts))

    def _add(self, entries: list[int]) -> list[int]:
        new: list[int] = []
        while entries:
            entry = entries.pop()
            number = abs(entry)
            kind = 1 if entry > 0 else 2
            if number >= len(self._reached):
                self._reached.extend(bytes(number - len(self._reached) + 65_536))

            before = self._reached[number]
            if before >= kind:
                continue

            self._reached[number] = kind
            if not before:
                new.append(number)

            if entry < 0:
                row = self._database.execute(
                    "SELECT body FROM contents WHERE number = ?", (number,)
                ).fetchone()
                # If a list is missing, the store is damaged. The method that reads the idea will
                # report this.
                if row is not None:
                    entries += cast("list[int]", decode_trusted(row[0]))

        pieces = self._pieces(new)
        return [*new, *self._add(pieces)] if pieces else new

    def _pieces(self, numbers: list[int]) -> list[int]:
        """Return the entries of the ropes among these rows."""
        if not numbers:
            return []

        ropes = self._database.execute(
            f"SELECT contents.body FROM json_each(?) AS part JOIN contents{self._database.using('contents_ropes')} "  # noqa: S608
            "ON contents.number = CAST(part.value AS BIGINT) WHERE substr(contents.body, 1, 1) = '~'",
            (number_list(numbers),),
        ).fetchall()
        entries: list[int] = []
        for (body,) in ropes:
            entries += cast("list[int]", decode_trusted(body.removeprefix(ROPE)))

        return entries


class Sweep:
    """Deletes the contents that no idea and no event references, while other processes save ideas
    and journal events.

    An idea or event saved during the sweep can reference a row that nothing else references.
    Therefore, each transaction that deletes rows first examines the ideas saved since the previous
    one, and the events of all runs that are new or had not ended when the sweep began. It also
    invalidates the row numbers that other processes remember (`Contents`).
    """

    def __init__(self, database: Database, breathe: Callable[[], None]) -> None:
        self._database = database
        self._breathe = breathe
        self._reach = Reach(database)
        self._seen = 0
        # Never delete the newest row, because its number must not be reused.
        self._top = database.newest_row("contents")
        # Only these runs, and runs that are created from now on, can still journal events.
        self._last_run = database.newest_row("runs")
        with database.guard:
            ended = ", ".join(f"'{status}'" for status in ENDED)
            self._open = [
                row[0]
                for row in database.execute(
                    f"SELECT number FROM runs WHERE status NOT IN ({ended})"  # noqa: S608
                )
            ]

    def run(self) -> int:
        """Delete unreferenced rows, and return their number."""
        last = 0
        while events := self._events((last, (self._last_run + 1) << 32), _READ_AT_ONCE):
            last = events[-1]

        newest = self._database.newest_row("ideas")
        while self._look(newest):
            pass

        deleted = 0
        garbage: list[int] = []
        for number in self._unreached():
            garbage.append(number)
            if len(garbage) == _DELETED:
                deleted += self._delete(garbage)
                garbage = []

        if garbage:
            deleted += self._delete(garbage)
        return deleted

    def _look(self, newest: int = 2**62) -> bool:
        """Examine the next ideas, up to the row `newest`. Return whether there were any."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT number, schema, solved, shown, context FROM ideas WHERE number > ? "
                "AND number <= ? "
                "ORDER BY number LIMIT ?",
                (self._seen, newest, _READ_AT_ONCE),
            ).fetchall()
            for number, schema, solved, shown, context in rows:
                self._reach.idea(schema, solved, shown, context)
                self._seen = number
        return bool(rows)

    def _events(self, between: tuple[int, int], most: int = 2**62) -> list[int]:
        """Examine the events with parts between two rows. Return the rows of these events."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, parts FROM events WHERE parts IS NOT NULL AND id > ? AND id < ? "
                "ORDER BY id LIMIT ?",
                (*between, most),
            ).fetchall()
            for _, parts in rows:
                self._reach.event(parts)
        return [row[0] for row in rows]

    def _look_at_open_runs(self) -> None:
        for run in self._open:
            self._events((run << 32, (run + 1) << 32))
        self._events(((self._last_run + 1) << 32, 2**63 - 1))

    def _unreached(self) -> Iterator[int]:
        last = 0
        while True:
            with self._database.guard:
                rows = self._database.execute(
                    "SELECT number FROM contents WHERE number > ? AND number < ? "
                    "ORDER BY number LIMIT ?",
                    (last, self._top, _READ_AT_ONCE),
                ).fetchall()
            yield from (row[0] for row in rows if row[0] not in self._reach)
            if not rows:
                return
            last = rows[-1][0]

    def _delete(self, numbers: list[int]) -> int:
        with self._database.exclusive():
            while self._look():
                pass

            self._look_at_open_runs()
            database = self._database
            stored = [
                database.execute(
                    "SELECT hash, number FROM contents WHERE number = ?", (number,)
                ).fetchone()
                for number in numbers
                if number not in self._reach
            ]
            # Another pruning might already have deleted some of these rows.
            rows = [row for row in stored if row is not None]
            gone = [(number,) for _, number in rows]
            if database.one_writer:
                # In PostgreSQL, an index of the hashes takes the place of this table.
                database.many(
                    "DELETE FROM content_keys WHERE key = ? AND number = ?",
                    [(key_of(digest), number) for digest, number in rows],
                )

            database.many("DELETE FROM contents WHERE number = ?", gone)
            database.count(SWEPT, 1)
            database.voids += 1

        self._breathe()
        return len(gone)


# -- pruning ---------------------------------------------------------------------------------------

_TOGETHER: Final = 8
"""The number of families that one transaction deletes. Deleting them takes a few milliseconds."""

_EVENTS: Final = 2000
"""The number of events that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class Prunable:
    """The runs and ideas that a pruning would delete.

    Attributes:
        runs: the number of runs to delete.
        ideas: the number of ideas to delete.
        used: the number of bytes that the store currently uses.
        oldest, newest: when the first and the last of these runs ended, as ISO 8601 in UTC, or ""
            if there is nothing to delete.
        kept: the number of runs of the same age that are kept, by reason: `published`, `tagged`,
            `unfinished`, `newest`.
    """

    runs: int
    ideas: int
    used: int
    oldest: str
    newest: str
    kept: dict[str, int]
    families: list[Family] = field(repr=False)
    top: int = field(repr=False)
    published: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a pruning: the number of deleted runs, ideas and contents, and the bytes in use
    before and after.
    """

    runs: int
    ideas: int
    contents: int
    before: int
    after: int


class Pruning:
    """Prunes a store in short transactions with pauses between them.

    Args:
        database: the store.
        search: the full-text index of the store.
        calls: the store's index of tools and tags.
        wait: called between two transactions with the number of seconds to wait. It returns True to
            stop the pruning. If None, `time.sleep` is used.
        pace: how long to pause, as a multiple of the duration of the previous transaction.
    """

    def __init__(
        self,
        database: Database,
        search: Search,
        calls: CallIndex,
        wait: Callable[[float], bool | None] | None = None,
        pace: float = 1.0,
    ) -> None:
        self._wait = wait
        self._pace = pace
        self._database = database
        self._calls = calls
        self._search = search
        self._begun = time.monotonic()

    def prunable(self, before: str) -> Prunable:
        """Find the families that are older than the time `before`, oldest first."""
        database = self._database
        top = database.newest_row("ideas")
        published = database.newest_row("publications")
        with database.snapshot():
            families = Families(database)
            old = [family for family in families if family.time < before]
            going = [family for family in old if not family.why]
            going.sort(key=lambda family: family.time)
            used = database.upkeep.used_bytes()
            runs, ideas = _counted(database, families, going)
            staying = Counter[str]()
            for family in old:
                if family.why:
                    staying[family.why] += len(family.members)

            return Prunable(
                runs,
                ideas,
                used,
                going[0].time if going else "",
                going[-1].time if going else "",
                dict(staying),
                going,
                top=top,
                published=published,
            )

    def prune(self, prunable: Prunable) -> Pruned:
        """Delete the families that `prunable` found, except those that are needed by now."""
        before = self._database.upkeep.used_bytes()
        runs, ideas = self.remove(prunable.families, prunable.top, prunable.published)
        contents = self.clear()
        return Pruned(runs, ideas, contents, before, self._database.upkeep.used_bytes())

    def remove(
        self,
        families: list[Family],
        top: int,
        published: int,
        after_each: Callable[[], None] = lambda: None,
    ) -> tuple[int, int]:
        """Delete families, except those that a publication or a tag needs by now. Return how many
        runs and ideas were deleted.

        Args:
            families: the families to delete.
            top: the newest row of ideas when the families were found.
            published: the newest row of publications when the families were found.
            after_each: called after each transaction.
        """
        runs = 0
        ideas = 0
        for start in range(0, len(families), _TOGETHER):
            with self._database.exclusive():
                batch = families[start : start + _TOGETHER]
                unneeded = [family for family in batch if self._may_go(family, top, published)]
                removed_runs, removed_ideas = self._remove(unneeded)

            runs += removed_runs
            ideas += removed_ideas
            self._breathe()
            after_each()

        return runs, ideas

    def clear(self) -> int:
        """Delete the events and contents that nothing references, including the remains of an
        interrupted pruning. Return how many contents were deleted.
        """
        self._remove_events()
        contents = Sweep(self._database, self._breathe).run()
        with self._database.guard:
            stale = self._search.gone()

        if stale:
            self._search.rebuild(self._breathe)

        return contents

    def _breathe(self) -> None:
        """Pause long enough for waiting processes to get the lock, which they try only at
        intervals.
        """
        seconds = min(max(time.monotonic() - self._begun, 0.001) * self._pace, 0.1 * self._pace)
        if self._wait is None:
            time.sleep(seconds)
        elif self._wait(seconds):
            raise PruningStoppedError(f"{self._database.path}: the pruning was stopped")
        self._begun = time.monotonic()

    def _may_go(self, family: Family, top: int, published: int) -> bool:
        """Return False if something, such as a publication or a tag, has come to need a family
        since it was found. Call this inside the transaction that deletes the family.
        """
        runs = encode_text([*family.runs()])
        number = self._database.number
        ended = ", ".join(f"'{status}'" for status in ENDED)
        if number(
            "SELECT count(*) FROM runs WHERE id IN (SELECT value FROM json_each(?1)) "  # noqa: S608
            f"AND (status NOT IN ({ended}) OR (driver IS NOT NULL AND lease_until > ?2))",
            (runs, time.time()),
        ):
            return False

        in_family = "IN (SELECT value FROM json_each(?1))"
        if number(
            f"SELECT count(*) FROM runs WHERE (parent {in_family} OR forked_from {in_family}) "  # noqa: S608
            f"AND id NOT {in_family}",
            (runs,),
        ):
            return False

        ideas = [*self._ideas_of(runs), *family.loose()]
        if any(idea > top for idea in ideas):
            return False

        members = set(family.members)
        return not any(key in members for key, _ in holders(self._database, ideas, published))

    def _ideas_of(self, runs: str) -> list[int]:
        rows = self._database.execute(
            "SELECT number FROM ideas WHERE run IN (SELECT value FROM json_each(?1)) UNION "
            "SELECT idea FROM occurrences WHERE run IN (SELECT value FROM json_each(?1))",
            (runs,),
        ).fetchall()
        return [row[0] for row in rows]

    def _remove(self, families: list[Family]) -> tuple[int, int]:
        """Delete families, except for their events. Return how many runs and ideas were deleted."""
        execute = self._database.execute
        names = {run for family in families for run in family.runs()}
        runs = encode_text([*names])
        loose = {idea for family in families for idea in family.loose()}
        ideas = {*self._ideas_of(runs), *loose}
        execute("DELETE FROM occurrences WHERE run IN (SELECT value FROM json_each(?))", (runs,))
        gone: list[tuple[int]] = []
        # Read the uses now, while all ideas of the runs still exist.
        uses = self._calls.of_runs(names)
        for idea in ideas:
            row = execute("SELECT run FROM ideas WHERE number = ?", (idea,)).fetchone()
            if row is None:
                continue

            # An idea that was first saved without a run belongs to no run, even if runs made it
            # later.
            run = row[0]
            goes = idea in loose if run is None else run in names
            if not goes:
                continue

            occurrence = execute(
                "SELECT run, step, meta FROM occurrences WHERE idea = ? ORDER BY rowid LIMIT 1",
                (idea,),
            ).fetchone()
            self._calls.remove(idea, None if run is None else uses[run])
            if occurrence is None:
                gone.append((idea,))
            else:
                self._move(idea, *occurrence)

        for statement in (
            "DELETE FROM idea_shapes WHERE idea = ?",
            "DELETE FROM idea_calls WHERE idea = ?",
            "DELETE FROM ideas WHERE number = ?",
        ):
            self._database.many(statement, gone)

        if gone:
            self._search.forget([idea for (idea,) in gone])

        # The settings of a run have keys of the form KIND.RUN.
        execute(
            "DELETE FROM settings WHERE substr(key, instr(key, '.') + 1) IN (SELECT value "
            "FROM json_each(?))",
            (runs,),
        )
        cursor = execute("DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", (runs,))
        return cursor.rowcount, len(gone)

    def _move(self, idea: int, run: str, step: int, meta: str) -> None:
        """Assign an idea whose first run is being deleted to another run that made the idea."""
        execute = self._database.execute
        # Keep the idea's own tags.
        (earlier,) = execute("SELECT meta FROM ideas WHERE number = ?", (idea,)).fetchone()
        tags = cast("JSONObject", decode_trusted(earlier)).get("tags")
        moved = cast("JSONObject", decode_trusted(meta))
        moved.pop("tags", None)
        if tags is not None:
            moved["tags"] = tags

        text = encode_text(moved)
        execute(
            "UPDATE ideas SET run = ?, step = ?, meta = ? WHERE number = ?", (run, step, text, idea)
        )
        self._calls.moved(idea)
        execute(
            "DELETE FROM occurrences WHERE run = ? AND step = ? AND idea = ?", (run, step, idea)
        )

    def _remove_events(self) -> None:
        """Delete the events of deleted runs, whose rows lie between those of existing runs."""
        database = self._database
        with database.guard:
            rows = database.execute("SELECT number FROM runs ORDER BY number").fetchall()

        for before, after in pairwise([-1, *(number for (number,) in rows)]):
            if after == before + 1:
                continue
            events = ((before + 1) << 32, (after << 32) - 1)
            while self._has_events(events):
                with database.exclusive():
                    # Read the runs again in this statement, because a run might have been committed
                    # since they were last read.
                    deleted = database.execute(
                        "DELETE FROM events WHERE id IN (SELECT id FROM events "
                        "WHERE id BETWEEN ? AND ? "
                        "AND id >> 32 NOT IN (SELECT number FROM runs) LIMIT ?)",
                        (*events, _EVENTS),
                    ).rowcount

                self._breathe()
                if not deleted:
                    break

    def _has_events(self, between: tuple[int, int]) -> bool:
        with self._database.guard:
            return (
                self._database.number(
                    "SELECT 1 FROM events WHERE id BETWEEN ? AND ? LIMIT 1", between
                )
                == 1
            )


def _counted(database: Database, families: Families, going: list[Family]) -> tuple[int, int]:
    """Return the number of runs and the number of ideas in these families, without ideas that also
    belong to another family.
    """
    of_those = {id(family) for family in going}
    runs = sum(
        id(families.of(run)) in of_those for (run,) in database.execute("SELECT id FROM runs")
    )
    # Delete an idea only if no remaining run made it.
    ideas_of_going = set[int]()
    ideas_that_stay = set[int]()
    rows = database.execute(
        "SELECT number, run FROM ideas UNION ALL SELECT idea, run FROM occurrences"
    )
    for idea, run in rows:
        family = families.of(idea if run is None else run)
        if id(family) in of_those:
            ideas_of_going.add(idea)
        else:
            ideas_that_stay.add(idea)

    return runs, len(ideas_of_going - ideas_that_stay)


# -- retention -------------------------------------------------------------------------------------

DAY: Final = 86_400.0

ROUND_SECONDS: Final = 7 * DAY
"""Seconds between two rounds. All servers on one store share the rounds."""

YOUNG: Final = 7 * DAY
"""The minimum age, in seconds, of a run that is deleted only because there are too many runs."""

PACE: Final = 10.0
"""The pause after a transaction, as a multiple of the transaction's duration."""

_LEASE: Final = 600.0
"""How long, in seconds, a server's claim to a round lasts. The server renews it while it works."""

_KEY: Final = "retention"

_ENDED: Final = ", ".join(f"'{status}'" for status in ENDED)
_DUE: Final = (
    f"status IN ({_ENDED}) AND (coalesce(updated, created) < ?1 OR (number <= ?2 "
    "AND coalesce(updated, created) < ?3))"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The runs to keep. All others are deleted, except that runs that merely exceed the number
    `runs` are kept until they are older than `YOUNG`.

    Attributes:
        days: how many days to keep runs after they end, or None to keep them regardless of age.
        runs: how many of the newest runs to keep, including rooms, or None for no limit.
    """

    days: float | None
    runs: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """The plan for the next round of retention.

    Attributes:
        runs: an upper bound on the number of runs to delete. Some of them might be published,
            tagged or part of a younger family.
        at: when the next round takes place, in seconds since 1970. 0 means the next time that a
            server checks.
        deletes: whether the next round deletes runs. The first round that finds any only announces
            them.
    """

    runs: int
    at: float
    deletes: bool


class Retention:
    """Deletes a store's old runs in weekly rounds; see `Store.retention`.

    The first round that finds runs only announces them. A round uses its own connection outside the
    event loop's thread, and pauses after each transaction ten times as long as the transaction
    took.
    """

    def __init__(self, database: Database, pruning: Pruning, bounds: Bounds) -> None:
        self._database = database
        self._pruning = pruning
        self._bounds = bounds

    def due(self, now: float) -> Due:
        """Return what the next round will do. `now` is in seconds since 1970."""
        with self._database.guard:
            state = self._state()
        last = state.get("at", 0.0)
        at = last + ROUND_SECONDS if 0 <= now - last < ROUND_SECONDS else 0.0
        return Due(self._count(self._clock(state, now)), at, state.get("told") is True)

    def round(self, now: float, who: str) -> tuple[str, int]:
        """Perform a round if one is due.

        Args:
            now: the current time, in seconds since 1970.
            who: a unique name for this process.

        Returns:
            What was done, and how many runs it concerns: `none` (nothing to do, or another server
            does the round), `found` (the next round deletes them), or `deleted`.

        Raises:
            PruningStoppedError: `wait` stopped the round. The next round continues the deletion.
        """
        claimed = self._claim(now, who)
        if claimed is None:
            return "none", 0

        clock, was_announced = claimed
        due = self._count(clock)
        done: tuple[str, int] = ("none", 0)
        if due and was_announced:
            begun = time.monotonic() - now
            deleted = self._delete(
                clock, lambda: self._note(until=time.monotonic() - begun + _LEASE)
            )
            done = ("deleted", deleted)
        elif due:
            done = ("found", due)

        self._note(at=now, clock=clock, told=was_announced or bool(due), until=0.0)
        return done

    def _claim(self, now: float, who: str) -> tuple[float, bool] | None:
        """Try to claim the round for this process. Return `(time to count ages from, whether runs
        were announced)`, or None if the round cannot be claimed.
        """
        with self._database.transaction():
            state = self._state()
            if 0 <= now - state.get("at", 0.0) < ROUND_SECONDS:
                return None
            if state.get("by") != who and 0 < state.get("until", 0.0) - now <= 2 * _LEASE:
                return None
            self._note(by=who, until=now + _LEASE)
            return self._clock(state, now), state.get("told") is True

    def _note(self, **changes: Any) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE "
                "SET value = ?2",
                (_KEY, encode_text({**self._state(), **changes}).encode()),
            )

    def _state(self) -> dict[str, Any]:
        """Return the stored state.

        Its members are `at`, when the last round took place; `clock`, the time from which that
        round counted ages; `told`, whether a round has announced runs; `by` and `until`, who has
        claimed a round and until when. Call this inside a guard or transaction.
        """
        row = self._database.execute("SELECT value FROM settings WHERE key = ?", (_KEY,)).fetchone()
        return {} if row is None else json.loads(row[0])

    @staticmethod
    def _clock(state: dict[str, Any], now: float) -> float:
        """Return the time from which ages are counted, limited so that nothing is deleted if the
        clock is temporarily years ahead.
        """
        return min(now, state.get("clock", now) + 2 * ROUND_SECONDS)

    def _before(self, clock: float) -> tuple[str, int, str]:
        """Return the parameters of the statement `_DUE`."""
        days = self._bounds.days
        runs = self._bounds.runs
        oldest = "" if days is None else time_text(clock - days * DAY)
        last = 0
        if runs is not None:
            last = self._database.number(
                "SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET ?", (runs,)
            )

        return oldest, last, time_text(clock - YOUNG)

    def _count(self, clock: float) -> int:
        with self._database.guard:
            return self._database.number(
                f"SELECT count(*) FROM runs WHERE {_DUE}",  # noqa: S608
                self._before(clock),
            )

    def _delete(self, clock: float, renew: Callable[[], None]) -> int:
        """Delete the families whose runs are all due, calling `renew` after each step. Return how
        many runs were deleted.
        """
        database = self._database
        top = database.newest_row("ideas")
        published = database.newest_row("publications")
        with database.snapshot():
            rows = database.execute(f"SELECT id FROM runs WHERE {_DUE}", self._before(clock))  # noqa: S608
            due: set[Key] = {run for (run,) in rows}
            families = [
                family
                for family in Families(database)
                if not family.why and due.issuperset(family.members)
            ]

        removed, _ = self._pruning.remove(families, top, published, renew)
        if removed:
            self._pruning.clear()

        return removed


def told_of(done: tuple[str, int]) -> str:
    """Return the log message about a round, or "" if there is nothing to report."""
    outcome, runs = done
    count = counted(runs, "old run")
    if outcome == "found":
        return (
            f"up to {count} will be deleted in {counted(ROUND_SECONDS / DAY, 'day')}, unless published or tagged; "
            "to keep them, set `retention` in your own configuration (docs/store.md)"
        )
    return f"{count} deleted, in accordance with `retention`" if runs else ""
