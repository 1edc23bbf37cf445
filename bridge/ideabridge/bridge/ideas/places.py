"""Places: by what ideas are listed: run, time, outcome, mind; and the requests they answer (DESIGN 8).

An index that every save writes costs it a page of the log, so these are written some ideas at a time. Reading takes up
nothing and waits for nobody: it looks at the few ideas that wait, too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.filters import Condition

LAG: Final = 256
"""At most about so many ideas wait to be taken up: reading looks at each of them."""

_TAKEN: Final = "(SELECT coalesce(max(idea), 0) FROM idea_places)"
"""The last idea taken up: it is the newest there are that was, for they are taken up in order and none comes before."""

USE: Final = "(SELECT number FROM use_names WHERE name = ?)"
"""The number of a use, which is one of the values."""

_PLACES: Final = "(SELECT idea AS number, run, time, outcome, mind FROM idea_places) AS ideas"
_WAITING: Final = f"(SELECT number, run, time, outcome, mind FROM ideas WHERE number > {_TAKEN}) AS ideas"  # noqa: S608
_USED: Final = (
    "(SELECT part.idea AS number, run, part.time AS time, outcome, mind FROM idea_uses AS part "  # noqa: S608
    f"CROSS JOIN idea_places ON idea_places.idea = part.idea WHERE part.what = {USE}) AS ideas"
)
_USES: Final = (
    "EXISTS (SELECT 1 FROM idea_uses AS part "  # noqa: S608
    f"WHERE part.what = {USE} AND part.time = ideas.time AND part.idea = ideas.number) AND "
)

OF_RUN: Final = (
    "(SELECT idea AS number, step FROM idea_places WHERE run = ?1 "  # noqa: S608 - names of ours
    f"UNION ALL SELECT number, step FROM ideas WHERE number > {_TAKEN} AND run = ?1)"
)
"""The rows and steps of the ideas of a run, which is the first of the values."""


class Source(NamedTuple):
    """What ideas are listed from: SQL for FROM, with the columns of `ideas` that conditions name; its values; and what
    they must have in `idea_uses` besides.
    """

    sql: str
    values: list[Any]
    uses: list[str]


def every(uses: list[str]) -> list[Source]:
    """Every idea that has these uses."""
    return [Source(_PLACES, [], uses), *waiting(uses)]


def waiting(uses: list[str]) -> list[Source]:
    """The ideas that are not taken up, and have these uses."""
    return [Source(_WAITING, [], uses)]


def of_run(run: str, uses: list[str]) -> list[Source]:
    """The ideas of a run that have these uses."""
    columns = "SELECT {} AS number, run, time, outcome, mind FROM"
    return [
        # A run has few, whatever else is asked for.
        Source(
            f"({columns.format('idea')} idea_places INDEXED BY idea_places_by_run WHERE run = ?) AS ideas", [run], uses
        ),
        Source(f"({columns.format('number')} ideas WHERE number > {_TAKEN} AND run = ?) AS ideas", [run], uses),
    ]


def among(numbers: list[int], uses: list[str]) -> list[Source]:
    """The ideas in these rows that have these uses."""
    text = f"[{','.join(map(str, numbers))}]"
    return [
        Source(f"json_each(?) AS part CROSS JOIN {one} ON ideas.number = part.value", [text], uses)
        for one in (_PLACES, _WAITING)
    ]


def using(use: str, others: list[str]) -> list[Source]:
    """The ideas taken up that have a use, in its order, and others."""
    return [Source(_USED, [use], others)]


Place = tuple[str, int]
"""Where an idea is listed: its time and row."""


class Places:
    """The table `idea_places`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = 0

    def saved(self, number: int) -> None:
        """An idea is saved in a row: take them up where too many wait. Inside the save's transaction."""
        if number - self._seen >= LAG:
            self.catch_up()
            self._seen = number

    def behind(self) -> bool:
        """Whether ideas are saved that were not taken up."""
        return self._database.number(f"SELECT max(number) > {_TAKEN} FROM ideas") == 1  # noqa: S608

    def catch_up(self) -> None:
        """Take up all that wait. Inside a transaction."""
        self._database.execute(
            "INSERT INTO idea_places(idea, request, run, step, time, outcome, mind) "  # noqa: S608
            "SELECT number, substr(request, 1, 8), run, step, time, outcome, mind FROM ideas "
            f"WHERE number > {_TAKEN} ORDER BY number"
        )

    def moved(self, number: int) -> None:
        """An idea has the run and metadata of another occurrence now. Inside a transaction."""
        self._database.execute(
            "UPDATE idea_places SET (run, step, time, outcome, mind) = "
            "(SELECT run, step, time, outcome, mind FROM ideas WHERE number = ?1) WHERE idea = ?1",
            (number,),
        )

    def last_of_run(self, run: str) -> int:
        """The row of the last step of a run, by its first save; 0: it has none."""
        return self._database.number(f"SELECT number FROM {OF_RUN} ORDER BY step DESC, number DESC LIMIT 1", (run,))  # noqa: S608

    def of_request(self, request: bytes) -> list[int]:
        """The rows of the ideas that answer one Request, newest first."""
        rows = self._database.execute(
            "SELECT idea AS number FROM idea_places JOIN ideas ON ideas.number = idea_places.idea "  # noqa: S608
            "WHERE idea_places.request = substr(?1, 1, 8) AND ideas.request = ?1 "
            f"UNION ALL SELECT number FROM ideas WHERE number > {_TAKEN} AND request = ?1 ORDER BY number DESC",
            (request,),
        ).fetchall()
        return [row[0] for row in rows]

    def newest(self, sources: list[Source], own: Condition, limit: int) -> list[Place]:
        """The newest ideas of some sources that pass."""
        # Each source is read in order from an index as far as it is needed, and all are merged.
        sql = " UNION ALL ".join(
            f"SELECT ideas.time AS time, ideas.number AS number FROM {one.sql} WHERE {own.sql}{_USES * len(one.uses)}1"  # noqa: S608
            for one in sources
        )
        values = [value for one in sources for value in (*one.values, *own.values, *one.uses)]
        rows = self._database.execute(f"{sql} ORDER BY time DESC, number DESC LIMIT ?", (*values, limit)).fetchall()
        return cast("list[Place]", rows)

    def count(self, own: Condition, most: int) -> int:
        """How many pass, but for the few that wait; counting stops at `most`."""
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {_PLACES} WHERE {own.sql}1 LIMIT ?)"  # noqa: S608
        return self._database.number(sql, (*own.values, most))
