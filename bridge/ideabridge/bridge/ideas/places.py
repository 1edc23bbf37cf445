"""Places: by what ideas are listed: time, outcome, mind; and the requests they answer (DESIGN 8).

An index that every save writes costs it a page of the log, so these are written some ideas at a time. Reading takes up
nothing and waits for nobody: it looks at the few ideas that wait, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.filters import Apart, Condition

LAG: Final = 256
"""At most about so many ideas wait to be taken up: reading looks at each of them."""

_TAKEN: Final = "(SELECT coalesce(max(idea), 0) FROM idea_places)"
"""The last idea taken up: it is the newest there are that was, for they are taken up in order and none comes before."""

_PLACES: Final = "(SELECT idea AS number, run, time, outcome, mind FROM idea_places) AS ideas"
_WAITING: Final = f"(SELECT number, run, time, outcome, mind FROM ideas WHERE number > {_TAKEN}) AS ideas"  # noqa: S608

Source = tuple[str, ...]
"""What ideas are listed from: parts of SQL, each a FROM with the columns of `ideas` that conditions name."""

ALL: Final[Source] = (_PLACES, _WAITING)
"""Every idea."""

AMONG: Final[Source] = tuple(f"json_each(?) AS part CROSS JOIN {one} ON ideas.number = part.value" for one in ALL)
"""The ideas in rows given as a JSON array: the first of the values."""

OF_RUNS: Final[Source] = ("ideas",)
"""Every idea, by the index of their runs."""


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
            "INSERT INTO idea_places(idea, request, run, time, outcome, mind) "  # noqa: S608
            f"SELECT number, request, run, time, outcome, mind FROM ideas WHERE number > {_TAKEN} ORDER BY number"
        )

    def moved(self, number: int) -> None:
        """An idea has the run and metadata of another occurrence now. Inside a transaction."""
        self._database.execute(
            "UPDATE idea_places SET (run, time, outcome, mind) = (SELECT run, time, outcome, mind FROM ideas "
            "WHERE number = ?1) WHERE idea = ?1",
            (number,),
        )

    def of_request(self, request: bytes) -> list[int]:
        """The rows of the ideas that answer one Request, newest first."""
        rows = self._database.execute(
            "SELECT idea AS number FROM idea_places WHERE request = ?1 "  # noqa: S608
            f"UNION ALL SELECT number FROM ideas WHERE number > {_TAKEN} AND request = ?1 ORDER BY number DESC",
            (request,),
        ).fetchall()
        return [row[0] for row in rows]

    def newest(
        self, source: Source, own: Condition, apart: Iterable[Apart], limit: int, skip: int = 0
    ) -> list[tuple[int, str]]:
        """(row, time) of the newest ideas of a source that pass, after the first `skip`."""
        apart = list(apart)
        sql = own.sql + "".join(f"{one.holds()} AND " for one in apart)
        values: list[Any] = [*own.values, *(value for one in apart for value in one.values())]
        # Each part is read in order from an index as far as it is needed, and both are merged.
        parts = " UNION ALL ".join(f"SELECT ideas.number, ideas.time FROM {one} WHERE {sql}1" for one in source)  # noqa: S608
        rows = self._database.execute(
            f"{parts} ORDER BY time DESC, number DESC LIMIT ? OFFSET ?", (*values * len(source), limit, skip)
        ).fetchall()
        return cast("list[tuple[int, str]]", rows)

    def count(self, own: Condition, most: int) -> int:
        """How many pass, but for the few that wait; counting stops at `most`."""
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {_PLACES} WHERE {own.sql}1 LIMIT ?)"  # noqa: S608
        return self._database.number(sql, (*own.values, most))
