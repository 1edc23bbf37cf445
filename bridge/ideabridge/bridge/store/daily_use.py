"""Report how much a store was used, on each day and recently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.ideas import past_time
from ideabridge.bridge.store.run_filter import ASKER, HAS_FAILED, RunFilter
from ideabridge.bridge.store.search import OPEN_TO
from ideabridge.bridge.store.users import Viewer, only_of, only_owner

MOST_DAYS: Final = 92
"""The maximum number of days that one request covers."""

_FAILED_DIRECTLY: Final = ("error", "unknown")


@dataclass(frozen=True, slots=True)
class DayOfUse:
    """The usage on one day, in UTC.

    Attributes:
        day: the day.
        runs: the number of runs that began on this day, without rooms.
        failed_runs: how many of these runs failed, stalled, reached a limit, or ended with errors
            other than denied calls.
        direct_calls: the number of direct calls to exposed tools.
        failed_direct_calls: how many of these calls ended in an error, or have an unknown outcome.
        input_tokens: the number of tokens that minds read, as they report it.
        output_tokens: the number of tokens that minds wrote, as they report it.
    """

    day: date
    runs: int = 0
    failed_runs: int = 0
    direct_calls: int = 0
    failed_direct_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The tokens that minds read and wrote."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """A tool of a server that a run called.

    Attributes:
        tool: the name of the tool.
        run: the id of the run.
        title: the title of the run.
        created: when the run began, as a time from the store.
    """

    tool: str
    run: str
    title: str
    created: str


@dataclass(frozen=True, slots=True)
class UsedTool:
    """A tool, and how often it was used.

    Attributes:
        tool: the name of the tool.
        times: the number of runs that called the tool, plus the number of direct calls. A run of a
            published tool counts for this tool and for the tools of its plan.
    """

    tool: str
    times: int


@dataclass(frozen=True, slots=True)
class TitledRuns:
    """The newest runs that share a title.

    Attributes:
        runs: the number of these runs.
        latest: when the latest of them began, as ISO 8601 in UTC.
    """

    runs: int
    latest: str


class DailyUse:
    """Counts how often the store is used: by day, by tool, and among the newest runs.

    Each method reads every row of the days or runs that it covers.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def days(self, first: date, last: date, *, caller: Viewer) -> list[DayOfUse]:
        """Return the usage on each day from `first` to `last`, in order, including days without
        any.

        Args:
            first: the first day.
            last: the last day, at most `MOST_DAYS` days after the first.
            caller: whose runs and direct calls to count.
        """
        length = (last - first).days + 1
        assert 1 <= length <= MOST_DAYS, f"expected 1 to {MOST_DAYS} days, found {length}"
        days = [first + timedelta(days=offset) for offset in range(length)]

        runs = self._runs(first, caller)
        direct_calls = self._direct_calls(days, caller)
        tokens = self._tokens(first, caller)
        return [
            DayOfUse(
                day,
                runs=runs.all[day],
                failed_runs=runs.failed[day],
                direct_calls=direct_calls.all[day],
                failed_direct_calls=direct_calls.failed[day],
                input_tokens=tokens.get(day, (0, 0))[0],
                output_tokens=tokens.get(day, (0, 0))[1],
            )
            for day in days
        ]

    def most_used(self, first: date, limit: int = 5, *, caller: Viewer) -> list[UsedTool]:
        """Return the tools used most since the day `first`, most used first.

        Calls in a run count once the run's ideas are indexed; see `Ideas.index_all`.
        """
        with self._database.guard:
            rows = self._database.execute(
                "WITH recent(id, title, parent) AS (SELECT id, title, parent FROM runs "  # noqa: S608 - a constant
                "WHERE created >= ?3 AND (?2 IS NULL OR caller = ?2)) "
                "SELECT tool, sum(times) FROM ("
                "SELECT tool, count(*) AS times FROM ("
                "SELECT recent.id, idea_calls.tool FROM recent JOIN ideas ON ideas.run = recent.id "
                "JOIN idea_calls ON idea_calls.idea = ideas.number "
                # The row of an idea names only the first run that made it.
                "UNION SELECT recent.id, idea_calls.tool FROM recent "
                "JOIN occurrences ON occurrences.run = recent.id "
                "JOIN idea_calls ON idea_calls.idea = occurrences.idea "
                # A run that calls a published tool has the name of the tool as its title.
                "UNION SELECT recent.id, names.name FROM recent JOIN names "
                f"ON names.name = recent.title WHERE recent.parent IS NULL AND {OPEN_TO}"
                ") AS called GROUP BY 1 "
                "UNION ALL SELECT tool, count(*) AS times FROM direct_calls "
                "WHERE at >= ?4 AND (?2 IS NULL OR caller = ?2) "
                # Such a call has not run.
                "AND outcome NOT IN ('denied', 'asked') GROUP BY 1"
                ") AS uses GROUP BY tool ORDER BY 2 DESC, tool LIMIT ?5",
                (only_owner(caller), only_of(caller), first.isoformat(), _seconds(first), limit),
            ).fetchall()
        return [UsedTool(tool, int(times)) for tool, times in rows]

    def runs_by_asker(self, since: str, *, caller: Viewer) -> dict[str, int]:
        """Return how many runs each program has asked for since the given time, not counting rooms.

        The keys are those that `askers` returns, and `since` is as in `RunFilter`.
        """
        with self._database.guard:
            rows = self._database.execute(
                f"SELECT {ASKER}, count(*) FROM runs WHERE created >= ?1 "  # noqa: S608 - a constant
                "AND parent IS NULL AND (?2 IS NULL OR caller = ?2) GROUP BY 1",
                (past_time(since, "since"), only_of(caller)),
            ).fetchall()
        return {asker: int(runs) for asker, runs in rows if asker}

    def tools_by_asker(self, since: str, *, caller: Viewer) -> dict[str, list[UsedTool]]:
        """Return the tools in the runs that each program has asked for since the given time, with
        the number of runs that contain each tool. A run of a published tool contains this tool and
        the tools of its plan.

        The keys are those that `askers` returns, and `since` is as in `RunFilter`. Calls count once
        the ideas of their runs are indexed; see `Ideas.index_all`.
        """
        with self._database.guard:
            rows = self._database.execute(
                f"WITH recent(id, title, asker) AS (SELECT id, title, {ASKER} FROM runs "  # noqa: S608 - a constant
                "WHERE created >= ?3 AND parent IS NULL AND (?2 IS NULL OR caller = ?2)) "
                "SELECT asker, tool, count(*) FROM ("
                "SELECT recent.id, asker, tool FROM recent JOIN ideas ON ideas.run = recent.id "
                "JOIN idea_calls ON idea_calls.idea = ideas.number "
                "UNION SELECT recent.id, asker, tool FROM recent "
                "JOIN occurrences ON occurrences.run = recent.id "
                "JOIN idea_calls ON idea_calls.idea = occurrences.idea "
                "UNION SELECT recent.id, asker, names.name FROM recent JOIN names "
                f"ON names.name = recent.title WHERE {OPEN_TO}"
                ") AS called GROUP BY asker, tool",
                (only_owner(caller), only_of(caller), past_time(since, "since")),
            ).fetchall()

        used: dict[str, list[UsedTool]] = {}
        for asker, tool, runs in rows:
            if asker:
                used.setdefault(asker, []).append(UsedTool(tool, int(runs)))
        return used

    def newest_runs(self, caller: Viewer, chosen: RunFilter, newest: int) -> int:
        """Return how many of a caller's newest runs (without rooms) match a filter.

        Args:
            caller: whose runs to count.
            chosen: the filter.
            newest: how many runs to examine. The limit keeps this method fast even in a large
                store.

        Raises:
            FilterError: a time in the filter cannot be read.
        """
        clauses = list(chosen.clauses())
        where = " AND ".join(condition for condition, _ in clauses) or "1 = 1"
        bound = [value for _, values in clauses for value in values]
        only = only_of(caller)
        of_caller = "" if only is None else "caller = ? AND "
        owner = [] if only is None else [only]
        with self._database.guard:
            return self._database.number(
                f"SELECT count(*) FROM (SELECT * FROM runs WHERE {of_caller}parent IS NULL "  # noqa: S608 - only ?
                f"ORDER BY number DESC LIMIT ?) AS runs WHERE {where}",
                [*owner, newest, *bound],
            )

    def askers(self, newest: int, *, caller: Viewer) -> list[str]:
        """Return the programs that asked for a caller's newest runs, with their versions, and the
        hosts that such runs were imported from, in no particular order.

        Rooms are not examined.

        Args:
            newest: how many runs to examine. The limit keeps this method fast even in a large
                store.
            caller: whose runs to examine.
        """
        only = only_of(caller)
        of_caller = "" if only is None else "caller = ? AND "
        owner = [] if only is None else [only]
        with self._database.guard:
            rows = self._database.execute(
                f"SELECT DISTINCT {ASKER} FROM (SELECT client, summary FROM runs WHERE {of_caller}"  # noqa: S608 - only ?
                "parent IS NULL ORDER BY number DESC LIMIT ?) AS newest",
                [*owner, newest],
            ).fetchall()
        return [asker for (asker,) in rows if asker]

    def runs_by_title(
        self, titles: Sequence[str], newest: int, *, caller: Viewer
    ) -> dict[str, TitledRuns]:
        """Count how many of a caller's newest runs have each of the given titles.

        A run that calls a published tool has the tool's name as its title. Rooms are not counted,
        and titles without runs are left out.

        Args:
            titles: the titles to count.
            newest: how many runs to examine. The limit keeps this method fast even in a large
                store.
            caller: whose runs to count.
        """
        if not titles:
            return {}

        only = only_of(caller)
        of_caller = "" if only is None else "caller = ? AND "
        owner = [] if only is None else [only]
        marks = ", ".join("?" for _ in titles)
        with self._database.guard:
            rows = self._database.execute(
                "SELECT title, count(*), max(created) FROM (SELECT title, created FROM runs "  # noqa: S608 - only ?
                f"WHERE {of_caller}parent IS NULL ORDER BY number DESC LIMIT ?) AS newest "
                f"WHERE title IN ({marks}) GROUP BY title",
                [*owner, newest, *titles],
            ).fetchall()
        return {title: TitledRuns(int(count), latest) for title, count, latest in rows}

    def modules_used(self, newest: int, *, caller: Viewer) -> dict[str, float]:
        """Return when each server was last used, in seconds since 1970, according to the newest
        runs and direct calls.

        A run counts as a use when it begins, and a direct call when it ends. A run uses the servers
        that its saved ideas call. Imported calls do not count. Saved ideas count once they are
        indexed; see `Ideas.index_all`.

        Args:
            newest: how many runs, and how many direct calls, to examine. The limit keeps this
                method fast even in a large store.
            caller: whose runs and direct calls to examine.
        """
        bound = (only_of(caller), newest)
        with self._database.guard:
            of_runs = self._database.execute(
                "WITH newest(id, created) AS (SELECT id, created FROM runs WHERE parent IS NULL "
                "AND kind <> 'session' AND (?1 IS NULL OR caller = ?1) "
                "ORDER BY number DESC LIMIT ?2) "
                "SELECT module, max(created) FROM ("
                "SELECT module, created FROM newest JOIN ideas ON ideas.run = newest.id "
                "JOIN idea_calls ON idea_calls.idea = ideas.number "
                "UNION ALL "
                "SELECT module, created FROM newest "
                "JOIN occurrences ON occurrences.run = newest.id "
                "JOIN idea_calls ON idea_calls.idea = occurrences.idea"
                ") AS uses WHERE module <> '' GROUP BY module",
                bound,
            ).fetchall()
            called_directly = self._database.execute(
                "SELECT module, max(at) FROM (SELECT module, at FROM direct_calls "
                "WHERE (?1 IS NULL OR caller = ?1) ORDER BY number DESC LIMIT ?2) AS newest "
                "WHERE module IS NOT NULL GROUP BY module",
                bound,
            ).fetchall()

        used = {module: datetime.fromisoformat(created).timestamp() for module, created in of_runs}
        for module, at in called_directly:
            used[module] = max(at, used.get(module, at))
        return used

    def latest_uses(
        self, module: str, most: int, newest: int, *, caller: Viewer
    ) -> list[ModuleUse]:
        """Return the tools of a server that the newest runs called, latest run first. Saved ideas
        count once they are indexed; see `Ideas.index_all`.

        Args:
            module: the name of the server.
            most: how many uses to return.
            newest: how many runs to examine; see `modules_used`.
            caller: whose runs to examine.
        """
        with self._database.guard:
            rows = self._database.execute(
                "WITH newest(id, number, title, created) AS ("
                "SELECT id, number, title, created FROM runs WHERE parent IS NULL "
                "AND kind <> 'session' AND (?1 IS NULL OR caller = ?1) "
                "ORDER BY number DESC LIMIT ?2), "
                "uses(tool, run, title, created, place) AS ("
                "SELECT tool, newest.id, newest.title, newest.created, newest.number FROM newest "
                "JOIN ideas ON ideas.run = newest.id "
                "JOIN idea_calls ON idea_calls.idea = ideas.number WHERE module = ?3 "
                "UNION "
                "SELECT tool, newest.id, newest.title, newest.created, newest.number FROM newest "
                "JOIN occurrences ON occurrences.run = newest.id "
                "JOIN idea_calls ON idea_calls.idea = occurrences.idea WHERE module = ?3"
                ") SELECT tool, run, title, created FROM uses ORDER BY place DESC, tool LIMIT ?4",
                (only_of(caller), newest, module, most),
            ).fetchall()
        return [ModuleUse(*row) for row in rows]

    def _runs(self, first: date, caller: Viewer) -> _Counts:
        """Count the runs, by the day on which they began."""
        with self._database.guard:
            rows = self._database.execute(
                f"SELECT substr(created, 1, 10), {HAS_FAILED}, count(*) FROM runs "  # noqa: S608 - a constant
                "WHERE parent IS NULL AND created >= ?1 AND (?2 IS NULL OR caller = ?2) "
                "GROUP BY 1, 2",
                (first.isoformat(), only_of(caller)),
            ).fetchall()
        counts = _Counts()
        for day, has_failed, count in rows:
            counts.add(date.fromisoformat(day), int(count), has_failed=bool(has_failed))
        return counts

    def _direct_calls(self, days: Sequence[date], caller: Viewer) -> _Counts:
        """Count direct calls by the day on which they arrived."""
        periods = ", ".join("(?, ?, ?)" for _ in days)
        bounds = [
            bound
            for number, day in enumerate(days)
            for bound in (number, _seconds(day), _seconds(day + timedelta(days=1)))
        ]
        parameters: list[Any] = [*bounds]
        only = only_of(caller)
        of_caller = ""
        if only is not None:
            of_caller = "WHERE caller = ? "
            parameters.append(only)
        with self._database.guard:
            rows = self._database.execute(
                f"WITH days(number, begins, ends) AS (VALUES {periods}) "  # noqa: S608 - only ?
                "SELECT days.number, outcome, count(*) FROM days "
                "JOIN direct_calls ON at >= begins AND at < ends "
                f"{of_caller}GROUP BY 1, 2",
                parameters,
            ).fetchall()
        counts = _Counts()
        for number, outcome, count in rows:
            day = days[int(number)]
            counts.add(day, int(count), has_failed=outcome in _FAILED_DIRECTLY)
        return counts

    def _tokens(self, first: date, caller: Viewer) -> dict[date, tuple[int, int]]:
        """Return the number of tokens that minds read and wrote on each day."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT substr(ideas.time, 1, 10), "
                "sum(CAST(json_extract(ideas.meta, '$.usage.input_tokens') AS INTEGER)), "
                "sum(CAST(json_extract(ideas.meta, '$.usage.output_tokens') AS INTEGER)) "
                "FROM ideas LEFT JOIN runs ON runs.id = ideas.run "
                "WHERE ideas.time >= ?1 AND ideas.mind <> '' "
                "AND (?2 IS NULL OR runs.caller = ?2) GROUP BY 1",
                (first.isoformat(), only_of(caller)),
            ).fetchall()
        return {
            date.fromisoformat(day): (int(read or 0), int(written or 0))
            for day, read, written in rows
        }


class _Counts:
    """Daily totals and failures of runs or direct calls.

    Attributes:
        all: the number of runs or direct calls on each day. Days without any are left out.
        failed: how many of them failed, by day.
    """

    def __init__(self) -> None:
        self.all = Counter[date]()
        self.failed = Counter[date]()

    def add(self, day: date, count: int, *, has_failed: bool) -> None:
        """Add runs or direct calls to the counts of one day. `has_failed` says whether all of them
        failed.
        """
        self.all[day] += count
        if has_failed:
            self.failed[day] += count


def _seconds(day: date) -> float:
    """Return the start of a day in UTC, in seconds since 1970."""
    return datetime.combine(day, time(), UTC).timestamp()
