"""Save, read, list, tag and find ideas.

`Ideas` owns the tables `ideas` (one row for each idea) and `occurrences` (other runs and steps that
made the same idea). Lists are ordered by time of saving, then by row; the cursor of a page is
`ROW@TIME`.

The words for searches (`Search`) and the tools that runs call (`CallIndex`) are not indexed when an
idea is saved. Instead, `index` indexes a batch, and methods that read these tables call `index_all`
first.

A caller sees an idea if one of its own runs made it or if the idea is published to it. A method
with a `caller` parameter considers only these ideas. In its results, metadata, errors and counts,
other ideas do not exist. With `SEES_ALL` it considers all ideas. Methods without this parameter are
for the owner of the store and for runs, where the caller has already been checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.store import database
from ideabridge.bridge.store.contents import Contents
from ideabridge.bridge.store.database import SOLUTION_OF, Database, now_text, number_list
from ideabridge.bridge.store.errors import (
    PASSING,
    AmbiguousIdeaError,
    FilterError,
    NotInProfileError,
    StoreCopyError,
    UnknownIdeaError,
    UnknownPublicationError,
)
from ideabridge.bridge.store.idea import Idea, IdeaHit, IdeaMeta, IdeaRecord, Repeated, StoredIdea
from ideabridge.bridge.store.page import Page
from ideabridge.bridge.store.publications import Publications, read_named
from ideabridge.bridge.store.results import copy_without_results
from ideabridge.bridge.store.search import (
    BATCH,
    INDEXED,
    OF_RUN,
    Search,
    check_limit,
    indexed_words,
    read_cursor,
    read_meta,
    widen,
)
from ideabridge.bridge.store.shapes import MODULE, TAG, TOOL, CallIndex, Place
from ideabridge.bridge.store.users import (
    OWN_RUN,
    SEES_ALL,
    Users,
    Viewer,
    profile_of,
    sees_run_of,
    user_of,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text
from ideabridge.tools.names import nearest
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

LAG: Final = 2048
"""When about this many ideas are waiting to be indexed, a save indexes a batch."""

_MOST_ALIKE: Final = 1000
"""The maximum number of ideas with the same id prefix that are checked for whether the caller sees
them. A prefix of 6 digits reaches this limit only in a store with billions of ideas.
"""

FEW_IDEAS: Final = 5000
"""A list is read through the index of a tool, server or tag if fewer ideas than this have it."""

_HEX: Final = re.compile(r"[0-9a-f]{6,64}", re.ASCII)
_NAMES: Final = (
    "(SELECT group_concat(names.name) FROM publications JOIN names "
    "ON names.name = publications.name "
    "AND names.version = publications.version WHERE publications.idea = ideas.number)"
)
_MADE: Final = "ideas.run, ideas.step, (SELECT fingerprint FROM runs WHERE runs.id = ideas.run)"
"""Metadata that is stored in columns, and left out of the stored JSON."""

_RECORD: Final = (
    f"SELECT ideas.number, ideas.id, ideas.request, {_NAMES}, ideas.meta, {_MADE} FROM ideas"  # noqa: S608
)


@dataclass(frozen=True, slots=True)
class IdeaFilter:
    """Conditions for ideas, all of which an idea must meet. None means no condition.

    Attributes:
        tool: a tool that a step of the idea's run calls.
        module: a server whose tools a step of the idea's run calls.
        since, until: when the idea was saved, as a date (`2026-11-21`), a time (`2026-11-21T10:00`)
            or an age (`3d`, `12h`, `2w`).
        outcome: how the idea's run ended: `done`, `failed`, ...
        mind: who answered: `turns`, `sampling`, `model`, ..., or "" for the author of a plan.
        tag: a tag of the idea.
    """

    tool: str | None = None
    module: str | None = None
    since: str | None = None
    until: str | None = None
    outcome: str | None = None
    mind: str | None = None
    tag: str | None = None

    @property
    def empty(self) -> bool:
        """Whether the filter has no conditions, so that every idea passes."""
        return all(getattr(self, name) is None for name in self.__slots__)

    def columns(self, now: datetime | None = None) -> SQL:
        """Return the conditions on columns of `ideas` that the indexes `ideas_by_...` support.

        Raises:
            FilterError: a time cannot be read.
        """
        clauses: list[str] = []
        values: list[Any] = []
        for key, text, sign in (("since", self.since, ">="), ("until", self.until, "<")):
            if text is not None:
                clauses.append(f"ideas.time {sign} ?")
                values.append(past_time(text, key, now))

        for column, wanted in (("outcome", self.outcome), ("mind", self.mind)):
            if wanted is not None:
                clauses.append(f"ideas.{column} = ?")
                values.append(wanted)

        return SQL("".join(f"{clause} AND " for clause in clauses), values)

    @property
    def uses(self) -> list[str]:
        """The use keys that a matching idea must have in `idea_uses`."""
        kinds = ((TOOL, self.tool), (MODULE, self.module), (TAG, self.tag))
        return [kind + wanted for kind, wanted in kinds if wanted is not None]


class SQL(NamedTuple):
    """Part of an SQL statement, and its values. A condition on a row of `ideas` ends with `AND
    `.
    """

    text: str
    values: list[Any]

    def __add__(self, other: tuple[Any, ...]) -> SQL:
        text, values = other
        return SQL(self.text + text, [*self.values, *values])


_EVERY: Final = SQL("ideas", [])
_HAS_USE: Final = (
    "EXISTS (SELECT 1 FROM idea_uses AS part "
    "WHERE part.what = ? AND part.time = ideas.time AND part.idea = ideas.number) AND "
)


def past_time(text: str, name: str, now: datetime | None = None) -> str:
    """Convert a date, a time (in UTC if it has no time zone) or an age (`3d`) to the format in
    which the store writes times.

    Args:
        text: the text to parse.
        name: the name of the parameter, for the error.
        now: the time that ages are relative to, or None for the current time.

    Raises:
        FilterError: the text has none of these forms.
    """
    try:
        moment = database.read_time(text.strip(), now, -1)
    except ValueError:
        raise FilterError(
            f"{name}: expected a date (2026-11-21), a time (2026-11-21T10:00), or how long ago "
            f"(3d, 12h), found {text[:40]!r}"
        ) from None
    return moment.isoformat(timespec="milliseconds")


def _below(place: Place) -> SQL:
    return SQL("(ideas.time, ideas.number) < (?, ?) AND ", [*place])


def _read_record(row: tuple[Any, ...]) -> IdeaRecord:
    """Return the record in a row selected by `_RECORD`."""
    _, idea, request, names, *meta = row
    return IdeaRecord(
        idea.hex(),
        request.hex(),
        read_meta(*meta),
        tuple(sorted(names.split(","))) if names else (),
    )


class Ideas:
    """The saved ideas in a store."""

    def __init__(
        self,
        database: Database,
        contents: Contents,
        calls: CallIndex,
        publications: Publications,
        search: Search,
        users: Users,
    ) -> None:
        self._database = database
        self._contents = contents
        self._calls = calls
        self._publications = publications
        self._search = search
        self._users = users
        self._indexed = 0
        """The last indexed row that this process knows about."""

    def save(self, idea: Idea, meta: IdeaMeta) -> str:
        """Save an idea, and return its id.

        Ideas are immutable. An idea that is saved again keeps the metadata of its first save. If a
        later save names a different run or step, the store adds an occurrence, which `of_run` lists
        for that run.

        Raises:
            InvalidJSONError: a part of the idea is not JSON.
        """
        idea.encoded  # noqa: B018  # encode before taking the lock
        with self._database.transaction(concurrent=True):
            number, is_new = self._insert(idea, meta)
            # Other writers must wait while a batch is indexed. A database that can have several
            # writers at a time leaves indexing to `index`.
            if is_new and self._database.one_writer and number - self._indexed > LAG:
                self._index_batch()
        return idea.id

    def _insert(self, idea: Idea, meta: IdeaMeta) -> tuple[int, bool]:
        """Insert an idea, or only an occurrence if the idea is already stored. Return its row, and
        whether it is new.
        """
        encoded = idea.encoded
        meta_json = meta.to_json()
        if not meta.time:
            meta_json["time"] = now_text()

        if meta.run is not None:
            del meta_json["run"]
            if meta.step:
                del meta_json["step"]

            row = self._database.execute(
                "SELECT fingerprint FROM runs WHERE id = ?", (meta.run,)
            ).fetchone()
            if row is not None and meta.fingerprint == row[0] != "":
                meta_json["fingerprint"] = OF_RUN

        text = encode_text(meta_json)
        schema, shown, context = self._contents.put(encoded)
        solved = self._contents.solution(encoded.solution)
        number = self._database.insert(
            "INSERT INTO ideas(id, request, run, step, meta, schema, context, solution, "
            "solved, shown) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                encoded.idea,
                encoded.request,
                meta.run,
                meta.step,
                text,
                schema,
                context,
                encoded.solution if solved is None else "",
                solved,
                shown,
            ),
        )
        if number is not None:
            if meta.tags:
                self._calls.tag((cast("str", meta_json["time"]), number), (), meta.tags)
            return number, True

        number, run, step = self._database.execute(
            "SELECT number, run, step FROM ideas WHERE id = ?", (encoded.idea,)
        ).fetchone()
        if meta.run is not None and (run, step) != (meta.run, meta.step):
            self._database.execute(
                "INSERT INTO occurrences(run, step, idea, meta) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (meta.run, meta.step or 0, number, text),
            )

        return number, False

    def get(self, ref: str, *, caller: Viewer) -> StoredIdea:
        """Read an idea, with the metadata that the caller may see.

        Values from results of another caller's run are left out. The content then no longer has the
        idea's id, and `meta.left_out` lists the missing values.

        Args:
            ref: an id, a unique prefix of an id (at least 6 hex digits), a published NAME or
                NAME@VERSION, or a run (for its last idea).
            caller: the user who makes the request.

        Raises:
            UnknownIdeaError: the idea does not exist. The message suggests similar names, or lists
                the existing versions.
            AmbiguousIdeaError: several ids begin with the prefix.
        """
        with self._database.snapshot():
            return self.read(self.resolve(ref, caller), caller)

    def resolve(self, ref: str, caller: Viewer) -> int:
        """Return the row that `get` reads. Call this inside a guard or transaction."""
        try:
            name, version = read_named(ref)
        except UnknownPublicationError:
            number = None
        else:
            number = self._publications.find(name, version, caller)

        # Try names last, because a prefix of an id can also be a valid name.
        number = number or self._find_id(ref, caller) or self._last_of_run(ref, caller)
        if number is None:
            raise self.unknown(ref, caller)
        return number

    def _find_id(self, ref: str, caller: Viewer) -> int | None:
        """Return the row for an id or a unique prefix of an id, among the ideas that the caller can
        see.

        Raises:
            AmbiguousIdeaError: several of these ids begin with the prefix.
        """
        if _HEX.fullmatch(ref) is None:
            return None

        low = bytes.fromhex(ref.ljust(64, "0"))
        high = bytes.fromhex(ref.ljust(64, "f"))
        rows = self._database.execute(
            "SELECT number, id FROM ideas WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (low, high, 4 if caller is SEES_ALL else _MOST_ALIKE),
        ).fetchall()
        visible = set(self._visible([number for number, _ in rows], caller))
        rows = [row for row in rows if row[0] in visible]
        if len(rows) > 1:
            examples = ", ".join(row[1].hex()[: len(ref) + 6] for row in rows[:4])
            raise AmbiguousIdeaError(
                f"more than one idea starts with {ref!r}: {examples}; write more digits"
            )

        return rows[0][0] if rows else None

    def _last_of_run(self, run: str, caller: Viewer) -> int | None:
        """Return the row of a run's last idea, or None if the caller cannot see it."""
        owner = self._database.execute("SELECT caller FROM runs WHERE id = ?", (run,)).fetchone()
        if owner is not None and not sees_run_of(caller, owner[0]):
            # The caller might see the idea only because of one of its own runs. In that case, it
            # must not learn about this run.
            return None

        row = self._database.execute(
            "SELECT number FROM (SELECT number, step FROM ideas WHERE run = ?1 "
            "UNION ALL SELECT idea, step FROM occurrences WHERE run = ?1) AS steps "
            "ORDER BY step DESC NULLS LAST, number DESC LIMIT 1",
            (run,),
        ).fetchone()
        if row is None or not self._visible([row[0]], caller):
            return None
        return row[0]

    def unknown(self, ref: str, caller: Viewer) -> UnknownIdeaError:
        """Return the error that `get` raises for an idea that does not exist or that the caller
        cannot see.
        """
        name = ref
        with contextlib.suppress(UnknownPublicationError):
            name, version = read_named(ref)
            try:
                self._publications.get(name, version, caller=caller)
            except NotInProfileError as error:
                return UnknownIdeaError(str(error))
            except UnknownPublicationError as error:
                if version is not None:
                    # The versions that exist are a better hint than similar names.
                    return UnknownIdeaError(str(error))

        with self._database.guard:
            near = nearest(name, self._publications.names(caller))

        hint = f"; nearest names: {', '.join(near)}" if near else ""
        return UnknownIdeaError(
            f"no idea {ref[:80]!r}: expected a published name, NAME@VERSION, an id or its first 6 "
            f"or more hex digits, or a run{hint}"
        )

    def read(self, number: int, caller: Viewer) -> StoredIdea:
        """Return the idea in the row `number`, with the metadata that the caller may see.

        The results of other callers' runs are left out. Call this inside a guard or transaction.
        """
        row = self._database.execute(
            f"SELECT id, request, context, {SOLUTION_OF}, content.body, shown, ideas.meta, {_MADE} FROM ideas "  # noqa: S608
            "JOIN whole_contents AS content ON content.number = ideas.schema WHERE ideas.number = ?",
            (number,),
        ).fetchone()
        id_, request, context, solution, schema, shown, *meta = row
        shown_bytes: JSONObject | None = None
        if shown is not None:
            [text] = self._contents.texts([shown])
            shown_bytes = cast("JSONObject", decode_trusted(text))

        idea = Idea(
            self._contents.context(context),
            decode_trusted(schema),
            decode_trusted(solution),
            shown_bytes,
        )
        stored = StoredIdea(idea, read_meta(*meta), id_.hex(), request.hex())
        if not self._made(number, stored.meta, caller):
            # The idea was published to the caller, who must not see the results of private runs.
            stored = copy_without_results(stored, self.start_of(number))

        return dataclasses.replace(stored, meta=self._meta_for(number, stored.meta, caller))

    def shows_results(self, number: int, caller: Viewer) -> bool:
        """Return whether the caller may see the results in the idea in the row `number`. Call this
        inside a guard or transaction.
        """
        row = self._database.execute(
            f"SELECT ideas.meta, {_MADE} FROM ideas WHERE ideas.number = ?",  # noqa: S608
            (number,),
        )
        return self._made(number, read_meta(*row.fetchone()), caller)

    def _made(self, number: int, first: IdeaMeta, caller: Viewer) -> bool:
        """Return whether the caller may see all of an idea.

        This is the case if one of the caller's runs made it, or if it was imported and the caller
        manages the store.
        """
        if caller is SEES_ALL:
            return True
        owners = self._database.execute(
            "SELECT caller FROM runs WHERE id = ?1 UNION SELECT runs.caller FROM occurrences "
            "JOIN runs ON runs.id = occurrences.run WHERE occurrences.idea = ?2",
            (first.run, number),
        ).fetchall()
        if not owners:
            return user_of(caller) is None or self._users.manages(caller)
        return any(sees_run_of(caller, owner) for (owner,) in owners)

    def start_of(self, number: int) -> list[JSON] | None:
        """Return the context with which the idea's run began, or None if the run's journal is not
        in this store. Call this inside a guard or transaction.
        """
        rows = self._database.execute(
            "SELECT events.body, events.parts FROM runs JOIN events "
            "ON events.id = (runs.number << 32) + 1 "
            "WHERE runs.id = (SELECT run FROM ideas WHERE number = ?1) OR runs.id IN "
            "(SELECT run FROM occurrences WHERE idea = ?1)",
            (number,),
        ).fetchall()
        for body, parts in rows:
            context = self._contents.unpack(body, self._contents.parts_of(parts)).get("context")
            if isinstance(context, list):
                return context
        return None

    def _meta_for(self, number: int, first: IdeaMeta, caller: Viewer) -> IdeaMeta:
        """Return the metadata of an idea for the given caller.

        The metadata comes from the idea's first save or, if another caller's run made that save,
        from the caller's first run that made the same idea. If there is no such run, the idea is
        published to the caller, and the metadata names no run.
        """
        if caller is SEES_ALL or first.run is None:
            return first

        owner = self._database.execute(
            "SELECT caller FROM runs WHERE id = ?", (first.run,)
        ).fetchone()
        if owner is None or sees_run_of(caller, owner[0]):
            return first

        row = self._database.execute(
            "SELECT occurrences.meta, occurrences.run, occurrences.step, runs.fingerprint "  # noqa: S608
            "FROM occurrences "
            f"JOIN runs ON runs.id = occurrences.run WHERE occurrences.idea = ?2 AND {OWN_RUN} "
            "ORDER BY runs.number, occurrences.step LIMIT 1",
            (caller, number),
        ).fetchone()
        if row is not None:
            return read_meta(*row)
        return dataclasses.replace(first, run=None, step=None, parent=None, usage={}, tags=())

    def check_ids(self) -> None:
        """Read every idea and verify its id.

        Raises:
            StoreCopyError: the content of an idea does not match its id.
        """
        last = 0
        while True:
            with self._database.snapshot():
                rows = self._database.execute(
                    "SELECT number FROM ideas WHERE number > ? ORDER BY number LIMIT ?",
                    (last, BATCH),
                ).fetchall()
                for (number,) in rows:
                    stored = self.read(number, SEES_ALL)
                    if stored.idea.id != stored.id:
                        raise StoreCopyError(
                            f"{self._database.path}: the content of idea {stored.id} has a "
                            "different id"
                        )
            if len(rows) < BATCH:
                return
            last = rows[-1][0]

    def page(
        self,
        limit: int = 50,
        after: str | None = None,
        *,
        run: str | None = None,
        chosen: IdeaFilter | None = None,
    ) -> Page[IdeaRecord]:
        """List all ideas, newest first, for the owner of the store.

        `after` is the `next` of the previous page, and `chosen` filters the list.

        Raises:
            CursorError: `after` is not a cursor for this list, or the limit is out of bounds.
            FilterError: the filter contains an invalid time.
        """
        if chosen is not None and (chosen.tool is not None or chosen.module is not None):
            self.index_all()
        # Read in a snapshot. Otherwise, an idea that another process indexes during the reads could
        # be listed twice or not at all.
        with self._database.snapshot():
            below = SQL("", [])
            if after is not None:
                last, _, time = after.partition("@")
                below = _below((time, read_cursor(last)))
            places = self._places(chosen or IdeaFilter(), below, check_limit(limit) + 1, run)
            if len(places) > limit:
                following = f"{places[limit - 1][1]}@{places[limit - 1][0]}"
            else:
                following = None
            return Page(
                self._records([number for _, number in places[:limit]], SEES_ALL), following
            )

    def tag(self, ref: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Add and remove tags of an idea, on behalf of the owner of the store, and return the
        resulting tags. Tags do not change the id.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `get`.
            FilterError: a tag is empty, longer than 64 characters, or contains a comma
                or white space.
        """
        wanted = list(add)
        for tag in wanted:
            if not 1 <= len(tag) <= 64 or any(
                sign.isspace() or sign == "," or not sign.isprintable() for sign in tag
            ):
                raise FilterError(
                    f"tag {tag[:70]!r}: expected 1 to 64 characters without commas or white space"
                )

        with self._database.transaction():
            number = self.resolve(ref, SEES_ALL)
            execute = self._database.execute
            text, time = execute(
                "SELECT meta, time FROM ideas WHERE number = ?", (number,)
            ).fetchone()
            meta_json = cast("JSONObject", decode_trusted(text))
            before, gone = IdeaMeta.from_json(meta_json).tags, set(remove)
            tags = [tag for tag in dict.fromkeys((*before, *wanted)) if tag not in gone]
            meta_json["tags"] = list[JSON](tags)
            execute("UPDATE ideas SET meta = ? WHERE number = ?", (encode_text(meta_json), number))
            self._calls.tag((time, number), before, tags)
            return tuple(tags)

    def repeated(self, least: int = 3, limit: int = 20) -> list[Repeated]:
        """Return unpublished work that was done at least `least` times with different literals,
        most frequent first.
        """
        self.index_all()
        with self._database.snapshot():
            rows = self._calls.repeated(least, check_limit(limit))
            records = self._records([number for number, _ in rows], SEES_ALL)
        return [Repeated(record, times) for record, (_, times) in zip(records, rows, strict=True)]

    def of_request(self, request_id: str) -> list[StoredIdea]:
        """Return the ideas that answer the given Request, newest first. Recorded minds answer from
        them.
        """
        if len(request_id) != 64 or _HEX.fullmatch(request_id) is None:
            return []
        with self._database.snapshot():
            rows = self._database.execute(
                "SELECT number FROM ideas WHERE request = ? ORDER BY number DESC",
                (bytes.fromhex(request_id),),
            ).fetchall()
            return [self.read(number, SEES_ALL) for (number,) in rows]

    def of_run(self, run_id: str) -> list[IdeaRecord]:
        """Return the ideas of a run in step order, with the metadata of that run, or [] if the run
        does not exist.
        """
        with self._database.snapshot():
            rows = self._database.execute(f"{_RECORD} WHERE ideas.run = ?", (run_id,)).fetchall()
            rows += self._database.execute(
                f"SELECT ideas.number, ideas.id, ideas.request, {_NAMES}, occurrences.meta, occurrences.run, "  # noqa: S608
                "occurrences.step, (SELECT fingerprint FROM runs "
                "WHERE runs.id = occurrences.run) FROM occurrences "
                "JOIN ideas ON ideas.number = occurrences.idea WHERE occurrences.run = ?",
                (run_id,),
            ).fetchall()
            records = [(row[0], _read_record(row)) for row in rows]
            records.sort(key=lambda pair: (pair[1].meta.step or 0, pair[0]))
            return [record for _, record in records]

    def solutions_of(self, run_id: str) -> list[Solution]:
        """Return the Solutions of a run in step order, or [] if the run does not exist."""
        with self._database.snapshot():
            rows = self._database.execute(
                f"SELECT coalesce(CAST(json_extract(meta, '$.step') AS BIGINT), 0), number, {SOLUTION_OF} FROM ideas "  # noqa: S608
                "WHERE run = ?1 UNION ALL SELECT coalesce(occurrences.step, 0), number, "
                f"{SOLUTION_OF} "
                "FROM occurrences JOIN ideas ON ideas.number = occurrences.idea "
                "WHERE occurrences.run = ?1",
                (run_id,),
            ).fetchall()
        texts = [text for _, _, text in sorted(rows, key=lambda row: row[:2])]
        return [read_as(Solution, decode_trusted(text)) for text in texts]

    def runs_of(self, idea_id: str) -> list[str]:
        """Return the runs that saved the idea with this full id. Imported ideas can name runs of
        other stores.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT run FROM ideas WHERE id = ?1 AND run IS NOT NULL UNION "
                "SELECT occurrences.run FROM occurrences "
                "JOIN ideas ON ideas.number = occurrences.idea WHERE ideas.id = ?1",
                (bytes.fromhex(idea_id),),
            ).fetchall()
            return [row[0] for row in rows]

    def search(
        self, words: str, limit: int = 20, chosen: IdeaFilter | None = None, *, caller: Viewer
    ) -> list[IdeaHit]:
        """Search ideas, best first: published ideas, then ideas that contain all of the words, then
        ideas that contain some of them.

        The search covers titles, descriptions, tasks, tags, tool names and published names. The
        last idea of a run represents the run. Words that occur in almost every idea are ignored if
        the query also contains rarer words.

        Args:
            words: any text. If it contains no word, the newest ideas that pass the filter are
                returned.
            limit: the maximum number of hits.
            chosen: a filter.
            caller: the user who searches.

        Raises:
            CursorError: the limit is out of bounds.
            FilterError: the filter contains an invalid time.
        """
        check_limit(limit)
        chosen = chosen or IdeaFilter()
        if not indexed_words(words):
            return self._newest(limit, chosen, caller)
        self.index_all()
        with self._database.snapshot():
            scored = self._find(words, limit, chosen, caller)
            records = self._records([number for number, _ in scored], caller)

        return [
            IdeaHit(record.id, record.meta, record.names, score)
            for record, (_, score) in zip(records, scored, strict=True)
        ]

    def _newest(self, limit: int, chosen: IdeaFilter, caller: Viewer) -> list[IdeaHit]:
        """Return the newest ideas that pass a filter. If `caller` is set, only the latest few
        thousand ideas are examined.
        """
        if chosen.empty:
            return []

        if chosen.tool is not None or chosen.module is not None:
            self.index_all()

        with self._database.snapshot():
            numbers = widen(
                limit,
                lambda most: [number for _, number in self._places(chosen, SQL("", []), most)],
                partial(self._visible, caller=caller),
            )
            records = self._records(numbers, caller)

        return [IdeaHit(record.id, record.meta, record.names, 0.0) for record in records]

    def _visible(self, numbers: list[int], caller: Viewer) -> list[int]:
        """Return the rows that the caller can see, because a run of the caller made the idea or
        because the idea is published to the caller.

        Ideas that no run in this store made were imported by the owner. Users who are not admins
        see them only if they are published.
        """
        if caller is SEES_ALL or not numbers:
            return numbers
        imported = self._users.manages(caller) or (
            user_of(caller) is None and profile_of(caller) is None
        )
        visible = self._publications.ideas_seen(numbers, caller, imported=imported)
        return [number for number in numbers if number in visible]

    def _find(
        self, words: str, limit: int, chosen: IdeaFilter, caller: Viewer
    ) -> list[tuple[int, float]]:
        def passing(scored: list[tuple[int, float]]) -> list[tuple[int, float]]:
            numbers = {number for number, _ in scored}
            if not chosen.empty:
                numbers = self._chosen([*numbers], chosen)
            passed = {*self._visible([*numbers], caller)}
            return [(number, score) for number, score in scored if number in passed]

        # If no idea passes, match the words as prefixes, just as if no idea contained them. An
        # empty result would reveal that another caller's idea contains them.
        hits = widen(limit, partial(self._search.find, words, caller=caller), passing)
        return hits or widen(
            limit, partial(self._search.find, words, caller=caller, begins=True), passing
        )

    def _chosen(self, numbers: list[int], chosen: IdeaFilter) -> set[int]:
        """Return the rows that pass a filter."""
        among = SQL(
            "ideas.number IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) AND ",
            [number_list(numbers)],
        )
        return {
            number
            for _, number in self._select(
                _EVERY, among + chosen.columns(), chosen.uses, len(numbers)
            )
        }

    def _places(
        self, chosen: IdeaFilter, below: SQL, limit: int, run: str | None = None
    ) -> list[Place]:
        """Return the newest ideas that pass a filter, starting after the position `below`."""
        own = chosen.columns() + below
        if run is not None:
            # A run has few ideas, so its index is the best place to start with any other filter.
            of_run = SQL(
                f"(SELECT * FROM ideas{self._database.using('ideas_by_run')} "  # noqa: S608
                "WHERE run = ?) AS ideas",
                [run],
            )
            return self._select(of_run, own, chosen.uses, limit)

        counts = {use: self._calls.count(use, FEW_IDEAS) for use in chosen.uses}
        uses = sorted(counts, key=lambda use: counts[use])
        if not uses or (
            counts[uses[0]] == FEW_IDEAS and (chosen.outcome is not None or chosen.mind is not None)
        ):
            # Even the rarest use belongs to many ideas, so a scan of the index by outcome or mind
            # will soon find some of them.
            return self._select(_EVERY, own, uses, limit)

        using = SQL(
            "(SELECT part.idea AS number, run, part.time AS time, outcome, mind "
            "FROM idea_uses AS part "
            "CROSS JOIN ideas WHERE ideas.number = part.idea AND part.what = ?) AS ideas",
            [uses[0]],
        )
        return self._select(using, own, uses[1:], limit)

    def _select(self, source: SQL, own: SQL, uses: list[str], limit: int) -> list[Place]:
        """Return the newest ideas from a source that meet a condition and have all of the given
        uses.
        """
        rows = self._database.execute(
            f"SELECT ideas.time, ideas.number FROM {source.text} WHERE {own.text}{_HAS_USE * len(uses)}1 = 1 "  # noqa: S608
            "ORDER BY ideas.time DESC, ideas.number DESC LIMIT ?",
            (*source.values, *own.values, *uses, limit),
        ).fetchall()
        return cast("list[Place]", rows)

    def _records(self, numbers: list[int], caller: Viewer) -> list[IdeaRecord]:
        """Return the records in the given rows, in the same order, with the names and metadata that
        the caller may see.
        """
        rows = self._database.execute(
            f"SELECT record.* FROM json_each(?) AS part JOIN ({_RECORD}) AS record "  # noqa: S608
            "ON record.number = CAST(part.value AS BIGINT) "
            "ORDER BY part.key",
            (number_list(numbers),),
        ).fetchall()
        records = [_read_record(row) for row in rows]
        if caller is SEES_ALL:
            return records

        seen: list[IdeaRecord] = []
        for number, record in zip(numbers, records, strict=True):
            meta = self._meta_for(number, record.meta, caller)
            names = [name for name in record.names if self._is_published(name, caller)]
            seen.append(dataclasses.replace(record, meta=meta, names=tuple(names)))

        return seen

    def _is_published(self, name: str, caller: Viewer) -> bool:
        return self._publications.find(name, None, caller) is not None

    def index(self) -> bool:
        """Index a batch of saved ideas, and return whether more are waiting.

        A search first indexes all waiting ideas, so calling this method while the process is idle
        makes the next search faster.
        """
        with self._database.guard:
            if not self._waiting():
                return False
        with self._database.exclusive():
            return self._index_batch() == BATCH

    def index_all(self) -> None:
        """Index all ideas saved so far, or stop if the store cannot be written to."""
        with self._database.guard:
            waiting = self._waiting()
        # Ignore ideas that others save during this loop, because they might save them faster than
        # it can index them.
        for _ in range(waiting // BATCH + 1):
            try:
                if not self.index():
                    return
            except PASSING:
                # If the store cannot be written to, searches find only the ideas that were indexed
                # before.
                return

    def _waiting(self) -> int:
        """Return an upper bound on the number of saved ideas that are not yet indexed."""
        return max(
            0,
            self._database.number("SELECT max(number) FROM ideas")
            - self._database.counter(INDEXED),
        )

    def _index_batch(self) -> int:
        """Index up to `BATCH` ideas, and return how many were indexed. Call this inside a
        transaction.
        """
        mark = self._database.counter(INDEXED)
        count, self._indexed = self._search.index("idea_words", mark, 2**62, BATCH)
        self._calls.index(mark, self._indexed)
        self._database.set_counter(INDEXED, self._indexed)
        return count
