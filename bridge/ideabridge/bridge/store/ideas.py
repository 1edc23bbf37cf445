"""Ideas: saves, lists and finds ideas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.errors import (
    PASSING,
    AmbiguousIdeaError,
    FilterError,
    UnknownIdeaError,
    UnknownPublicationError,
)
from ideabridge.bridge.store.filters import IdeaFilter
from ideabridge.bridge.store.idea import Idea, IdeaHit, IdeaMeta, IdeaRecord, Page, Repeated, StoredIdea
from ideabridge.bridge.store.publications import Publications, read_named
from ideabridge.bridge.store.search import BATCH, SCORED, IdeaTable, Search, check_limit, words_of
from ideabridge.bridge.store.shapes import Shapes
from ideabridge.bridge.store.users import Users, user_of
from ideabridge.tools.names import nearest


class Ideas:
    """The saved ideas of a store."""

    def __init__(
        self,
        database: Database,
        table: IdeaTable,
        publications: Publications,
        search: Search,
        shapes: Shapes,
        users: Users,
    ) -> None:
        self._database = database
        self._table = table
        self._publications = publications
        self._search = search
        self._shapes = shapes
        self._users = users

    def save(self, idea: Idea, meta: IdeaMeta) -> str:
        """Save an idea; returns its id.

        An idea is immutable. Saved again, it keeps the metadata of its first save; where the second names another
        run or step, that is kept as a further occurrence, which `of_run` shows for that run.

        Raises:
            InvalidJSONError: a part of it is not JSON.
        """
        idea.encoded  # noqa: B018  # outside the lock
        with self._database.transaction():
            saved = self._table.save(idea, meta)
            if saved.new:
                self._search.saved(saved.number)
                self._shapes.saved(saved.number)
        return saved.id

    def get(self, ref: str, *, caller: str | None = None) -> StoredIdea:
        """The idea by id, unique prefix (6 hex digits or more), published NAME, NAME@VERSION, or run (its last).

        Args:
            ref: names it.
            caller: names published to others are to it as if they were not there, also in errors; None: the person who
                holds the store. Whose the idea is, is not looked at.

        Raises:
            UnknownIdeaError: there is none; the message names the nearest names, or the versions there are.
            AmbiguousIdeaError: several ids start so.
        """
        with self._database.snapshot():
            return self._table.read(self.resolve(ref, caller))

    def resolve(self, ref: str, caller: str | None = None) -> int:
        """The row that `get` reads. Inside a guard or transaction."""
        try:
            name, version = read_named(ref)
        except UnknownPublicationError:
            number = None
        else:
            number = self._publications.find(name, version, caller)
        try:
            # An id may look like a name.
            seen = None if caller is None else partial(self._seen_of, caller=caller)
            number = number or self._table.find(ref, seen) or self._table.last_of_run(ref)
        except AmbiguousIdeaError:
            if caller is None:
                raise
            raise AmbiguousIdeaError(f"more than one idea starts with {ref!r}; write more digits") from None
        if number is None:
            raise self._unknown_idea(ref, caller)
        return number

    def unknown(self, ref: str, caller: str) -> UnknownIdeaError:
        """The error of `get` where there is none: of an idea that this caller may not know of, for one."""
        with self._database.guard:
            return self._unknown_idea(ref, caller)

    def _unknown_idea(self, ref: str, caller: str | None) -> UnknownIdeaError:
        name = ref
        with contextlib.suppress(UnknownPublicationError):
            name, version = read_named(ref)
            if version is not None:
                # The versions that there are say more than names that are near.
                try:
                    self._publications.get(name, version, caller=caller)
                except UnknownPublicationError as error:
                    return UnknownIdeaError(str(error))
        near = nearest(name, self._publications.names(caller))
        hint = f"; nearest names: {', '.join(near)}" if near else ""
        return UnknownIdeaError(
            f"no idea {ref[:80]!r}: expected a published name, NAME@VERSION, an id or its first 6 or more hex "
            f"digits, or a run{hint}"
        )

    def page(
        self, limit: int = 50, after: str | None = None, *, run: str | None = None, chosen: IdeaFilter | None = None
    ) -> Page[IdeaRecord]:
        """Ideas, newest first; `after` is the `next` of the page before; `chosen`: only what passes it.

        Raises:
            CursorError: not a cursor of this list, or a limit out of bounds.
            FilterError: a time cannot be read.
        """
        if chosen is not None and (chosen.tool is not None or chosen.module is not None):
            self.index_all()
        # One state: what others take up between two readings would be listed twice, or not at all.
        with self._database.snapshot():
            return self._table.page(limit, after, run, chosen)

    def tag(self, ref: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Give an idea tags, and take others away; returns those it has then. Tags are in no id.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `get`.
            FilterError: a tag that is empty, longer than 64 characters, or holds a comma or white space.
        """
        wanted = list(add)
        for tag in wanted:
            if not 1 <= len(tag) <= 64 or any(sign.isspace() or sign == "," or not sign.isprintable() for sign in tag):
                raise FilterError(f"tag {tag[:70]!r}: expected 1 to 64 characters without commas and white space")
        with self._database.transaction():
            return self._table.tag(self.resolve(ref), wanted, remove)

    def repeated(self, least: int = 3, limit: int = 20) -> list[Repeated]:
        """What was done at least so often, with other literals, and is not published: the most frequent first."""
        self.index_all()
        with self._database.snapshot():
            found = self._shapes.repeated(least, check_limit(limit))
            records = self._table.records([number for number, _ in found])
        return [Repeated(record, times) for record, (_, times) in zip(records, found, strict=True)]

    def of_request(self, request_id: str) -> list[StoredIdea]:
        """The ideas that answer one Request, newest first: what a recorded mind answers from."""
        with self._database.snapshot():
            return self._table.of_request(request_id)

    def of_run(self, run_id: str) -> list[IdeaRecord]:
        """The ideas of a run in the order of their steps, with the metadata they have in it; [] for no such run."""
        with self._database.snapshot():
            return self._table.of_run(run_id)

    def runs_of(self, idea_id: str) -> list[str]:
        """The runs an idea was saved in, by its whole id; some may be of other stores."""
        with self._database.guard:
            return self._table.runs_of(idea_id)

    def search(
        self, words: str, limit: int = 20, chosen: IdeaFilter | None = None, *, caller: str | None = None
    ) -> list[IdeaHit]:
        """Ideas found by any text, best first: published ones first, then those with all words, then with some.

        Looks at titles, descriptions, task texts, tags, tool names and published names. Of a run, the hit is its
        last idea. Words that almost every idea has do not count beside rarer ones.

        Args:
            words: any text; without a word in it, the newest that pass the filter.
            limit: how many at most.
            chosen: only what passes it.
            caller: only what this caller may know of, see `may_see`; None: the person who holds the store.

        Raises:
            CursorError: a limit out of bounds.
            FilterError: a time cannot be read.
        """
        check_limit(limit)
        chosen = chosen or IdeaFilter()
        if not words_of(words):
            return self._newest(limit, chosen, caller)
        self.index_all()
        with self._database.snapshot():
            found = self._find(words, limit, chosen, caller)
            records = self._table.records([number for number, _ in found])
        return [
            IdeaHit(record.id, record.meta, record.names, score)
            for record, (_, score) in zip(records, found, strict=True)
        ]

    def _newest(self, limit: int, chosen: IdeaFilter, caller: str | None) -> list[IdeaHit]:
        """The newest that pass a filter, among the latest thousands where they are of one caller."""
        if chosen.empty:
            return []
        if chosen.tool is not None or chosen.module is not None:
            self.index_all()
        with self._database.snapshot():
            seen = None if caller is None else partial(self._seen_of, caller=caller)
            records = self._table.newest(limit, chosen, SCORED, seen)
        return [IdeaHit(one.id, one.meta, one.names, 0.0) for one in records]

    def may_see(self, idea_id: str, caller: str) -> bool:
        """Whether a caller may know of an idea, by its whole id: a run of theirs made it, or it is published to them.

        One that no run here made was imported by the person who holds the store: named users do not see it, other than
        admins, before it is published.
        """
        with self._database.guard:
            number = self._table.find(idea_id)
            return number is not None and bool(self._seen_of([number], caller))

    def _seen_of(self, numbers: list[int], caller: str) -> set[int]:
        imported = user_of(caller) is None or self._users.manages(caller)
        return self._publications.ideas_seen(numbers, caller, imported=imported)

    def _find(self, words: str, limit: int, chosen: IdeaFilter, caller: str | None) -> list[tuple[int, float]]:
        fetch, begins = limit, False
        while True:
            found = self._search.find(words, fetch, caller, begins=begins)
            if chosen.empty and caller is None:
                return found
            passed = {number for number, _ in found}
            if not chosen.empty:
                passed = self._table.chosen([*passed], chosen)
            if caller is not None:
                passed = self._seen_of([*passed], caller)
            kept = [(number, score) for number, score in found if number in passed]
            if len(kept) >= limit or len(found) < fetch or fetch >= SCORED:
                if kept or begins:
                    return kept[:limit]
                # As where nobody has such words: what is not found must not tell that others have them.
                fetch, begins = limit, True
                continue
            # Few of the best pass: look further down.
            fetch = min(SCORED, fetch * 8)

    def index(self) -> bool:
        """Index a batch of saved ideas for searches; whether there is more to do.

        A search does this itself first. Whoever calls it while nothing else is to do makes the next search faster.
        """
        with self._database.guard:
            behind = self._search.behind(), self._shapes.behind()
        if not any(behind):
            return False
        with self._database.transaction():
            more = self._search.catch_up(BATCH) == BATCH if behind[0] else False
            return (self._shapes.catch_up() if behind[1] else False) or more

    def index_all(self) -> None:
        """Index the ideas saved until now, as far as the store can be written."""
        with self._database.guard:
            waiting = max(self._search.behind(), self._shapes.behind())
        # What others save meanwhile is not waited for: they may be faster.
        for _ in range(waiting // BATCH + 1):
            try:
                if not self.index():
                    return
            except PASSING:
                # Where the store cannot be written, a search finds what was indexed before.
                return
