"""Store: ideas, publications, runs and settings in one SQLite file (`docs/store.md`)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from ideabridge.bridge.store.database import Database, back_up, now_text, vacuum
from ideabridge.bridge.store.errors import StoreError, UnknownPublicationError
from ideabridge.bridge.store.filters import read_time
from ideabridge.bridge.store.idea import Answer, Change, Page, Publication
from ideabridge.bridge.store.ideas import IdeaStore
from ideabridge.bridge.store.portable import Checks, Known, check_leaks, export, read_document
from ideabridge.bridge.store.pruning import PACE, Bounds, Prunable, Pruned, Pruning, Retention
from ideabridge.bridge.store.publications import read_named
from ideabridge.bridge.store.search import SCORED, check_limit
from ideabridge.bridge.store.versions import Side, breaking, changes
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSON, JSONObject

CAUTIOUS: Final[JSONObject] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What is said of a tool nothing is known of."""

_READS: Final[JSONObject] = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}


class Store(IdeaStore):
    """What is kept. All methods are synchronous and short, for the event loop's thread; other threads wait.

    Every method raises, beside what it names: `StoreBusyError` (another process held the lock too long),
    `StoreFullError`, `StoreAccessError`, `StoreFormatError` (damage), `StoreClosedError`, each a `StoreError`.
    """

    def __init__(self, database: Database) -> None:
        """Use `Store.open`."""
        super().__init__(database)
        self._pruning = Pruning(database, self._search, self._uses)

    @classmethod
    def open(
        cls, path: Path | str, *, durability: Literal["normal", "full"] = "normal", busy_timeout_s: float = 5.0
    ) -> Store:
        """Open a store, creating it (mode 0600) and its folder where there is none; ":memory:" keeps nothing.

        Args:
            path: the file.
            durability: `normal` survives a crash of the process, `full` a loss of power too.
            busy_timeout_s: how long to wait for another process's lock.

        Raises:
            StoreAccessError: the file or folder cannot be read or written.
            StoreFormatError: not SQLite, or another program's database.
            StoreVersionError: written by a newer ideabridge, or by one from before the first release.
            StoreBusyError: another process kept it locked.
        """
        return cls(Database(path, durability=durability, busy_timeout_s=busy_timeout_s))

    def close(self) -> None:
        """Index what was saved, so that the views and search tables hold everything, and close.

        Closing twice is fine; anything else afterwards is a `StoreClosedError`. Where another process holds the lock,
        or the file cannot be written any more, the next process that closes the store indexes what is left.
        """
        if self.path != ":memory:":
            with contextlib.suppress(StoreError):
                self._database.wait_no_longer()
                self._index_all()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The file, or ":memory:"."""
        return self._database.path

    def writer(self) -> Writer:
        """What an event loop writes by, so that it does not wait; see `Writer`."""
        return Writer(self._database)

    def back_up(self, target: Path) -> int:
        """Copy the store into a new file while it is in use; returns its bytes.

        Raises:
            StoreAccessError: there is such a file already, or it cannot be written.
            StoreFormatError: the store is damaged.
        """
        return back_up(self._database, target)

    def vacuum(self) -> tuple[int, int]:
        """Write the store anew without its holes; returns its bytes before and after. Other processes wait meanwhile.

        Raises:
            StoreBusyError: another process keeps it locked.
        """
        return vacuum(self._database)

    def prunable(self, *, before: str) -> Prunable:
        """Find what a pruning removes: whole runs with their rooms, forks and ideas, the oldest first; nothing that is
        published or tagged, and no run that has not ended. Looks at every idea: not for the event loop's thread.

        Args:
            before: only what ended before this: a date, a time, or how long ago (`90d`).

        Raises:
            FilterError: `before` is not a time.
        """
        return self._pruning.prunable(read_time(before, "before"))

    def prune(self, what: Prunable) -> Pruned:
        """Remove what `prunable` found, unless something needs it by now. Others can use the store meanwhile. Killed at
        any moment, it leaves the store whole, and the next pruning goes on. The file is smaller after `vacuum`.
        """
        return self._pruning.prune(what)

    def retention(self, bounds: Bounds, wait: Callable[[float], bool | None] = time.sleep) -> Retention:
        """Takes old runs out of this store in small steps: on a connection of its own, not in the event loop's thread.

        Args:
            bounds: what is kept.
            wait: waits so many seconds between two steps; true: stop.
        """
        pruning = Pruning(self._database, self._search, self._uses, wait, PACE)
        return Retention(self._database, pruning, bounds)

    def transaction(self) -> AbstractContextManager[None]:
        """`with store.transaction():` all inside is committed as one, or not at all.

        Nests: an inner one that fails undoes only itself. Never await inside: other tasks of the thread would
        write into the same transaction.
        """
        return self._database.transaction()

    # Sharing

    def export_idea(self, ref: str, known: Known | None = None) -> JSONObject:
        """The idea as a portable document; with its publication where `ref` is a name.

        Args:
            ref: see `idea`.
            known: finds configured secrets in a text; those of well-known shapes are found without it.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `idea`.
            SecretInIdeaError: it holds a secret; the message says where.
        """
        with self._database.snapshot():
            number = self._resolve(ref)
            publication = self._published_as(ref)
            if publication is not None and self._publications.find(publication.name, publication.version) != number:
                publication = None
            document = export(self._table.read(number), publication)
        check_leaks(document, known)
        return document

    def import_idea(
        self,
        document: JSON,
        *,
        with_publication: bool = False,
        owner: str | None = None,
        annotations: JSONObject | None = None,
        checks: Checks = "whole",
    ) -> str:
        """Save an exported idea; returns its id.

        The run it names is kept only where this store has no run of that id: a document cannot join a run. A time that
        is still to come is not kept.

        Args:
            document: what `export_idea` gave.
            with_publication: publish it too, as the next version of the name in this store.
            owner: whom it is published to; None: everyone.
            annotations: what the tools here say of its plan. Those of the document are never taken: without, a recorded
                answer reads, and anything else may do anything.
            checks: what of it must be unchanged.

        Raises:
            IdeaDocumentError: the shape is wrong, or there is no publication to import.
            TamperedIdeaError: the content does not have the ids or the digest it names, or it has no digest.
            NameTakenError: the name is another owner's.
        """
        read = read_document(document, checks)
        meta = read.meta
        with self._database.transaction():
            if meta.run is not None and self._journal.run(meta.run) is not None:
                meta = dataclasses.replace(meta, run=None, step=None)
            if meta.time > now_text():
                meta = dataclasses.replace(meta, time="")
            idea_id = self.save_idea(read.idea, meta)
            if with_publication:
                told = read.publication_members()
                told["owner"] = owner
                told["annotations"] = dict(_READS if told["answer"] == "recorded" else annotations or CAUTIOUS)
                self.publish(told.pop("name"), idea_id, **told)
        return idea_id

    # Publications

    def publish(
        self,
        name: str,
        idea_id: str,
        *,
        description: str,
        answer: Answer,
        input_schema: JSONObject | None,
        output_schema: JSONObject | None,
        annotations: JSONObject,
        plan: JSONObject | None = None,
        recorded: JSON = None,
        owner: str | None = None,
        audience: tuple[str, ...] | None = None,
        replaces: bool = False,
    ) -> Publication:
        """Publish an idea as the next version of a name. Nothing is overwritten.

        Args:
            name: what it is published as.
            idea_id: the idea.
            description: this and the next ones: see `Publication`.
            answer: likewise.
            input_schema: likewise.
            output_schema: likewise.
            annotations: likewise.
            plan: likewise.
            recorded: likewise.
            owner: whose the name is, where it is new; None: the local person's, for everybody.
            audience: to whom it is given besides its owner, see `share`; None: those it is given to already.
            replaces: the owner may publish a version of what another owner has given to it.

        Raises:
            PublicationNameError: not `^[a-z][a-z0-9_]{0,47}$`; the message suggests a name.
            PublicationContentError: no such way of answering, or what it needs is missing.
            NameTakenError: the name is published by another owner now.
            UnknownIdeaError, AmbiguousIdeaError: see `idea`.
        """
        with self._database.transaction():
            return self._publications.publish(
                name,
                self._resolve(idea_id),
                description=description,
                answer=answer,
                input_schema=input_schema,
                output_schema=output_schema,
                annotations=annotations,
                plan=plan,
                recorded=recorded,
                owner=owner,
                audience=audience,
                replaces=replaces,
            )

    def pin(
        self,
        publication: Publication,
        plan: JSONObject | None,
        guide: JSONObject | None,
        definitions: Mapping[str, JSONObject],
    ) -> Publication:
        """Put into a version which tools its calls mean. Nothing else of a version ever changes.

        Args:
            publication: the version.
            plan: its plan with pins, as `Publication.plan`.
            guide: what a fresh run of it begins with, with pins, as `Publication.guide`.
            definitions: the essences of the tools by digest, so that a change can be shown.
        """
        recorded = publication.recorded
        if guide is not None and isinstance(recorded, dict):
            told: JSONObject = {**recorded, "solve": guide}
            recorded = told
        with self._database.transaction():
            self.tool_memory.keep_definitions(definitions)
            return self._publications.pin(publication.name, publication.version, plan, recorded)

    def share(self, name: str, audience: tuple[str, ...]) -> None:
        """Give a published name, in every version of its owner, to these callers instead of those before.

        Args:
            name: the name.
            audience: callers besides the owner, or `EVERYBODY`; none: the owner alone.

        Raises:
            UnknownPublicationError: it is not published.
        """
        with self._database.transaction():
            self._publications.share(name, audience)

    def shares(self, name: str) -> tuple[str, ...]:
        """To whom a published name is given besides its owner: callers, or `EVERYBODY` alone.

        Raises:
            UnknownPublicationError: it is not published.
        """
        with self._database.guard:
            return self._publications.shares(name)

    def sees(self, publication: Publication, caller: str) -> bool:
        """Whether something is published to a caller."""
        if publication.owner is None or publication.owner == caller:
            return True
        with self._database.guard:
            return self._publications.sees(publication.name, publication.owner, caller)

    def unpublish(self, name: str) -> None:
        """Take a name out of the catalogue. Its versions stay readable, and counting goes on from the last.

        Raises:
            UnknownPublicationError: it is not published.
        """
        with self._database.transaction():
            self._publications.unpublish(name)

    def stand_for(self, name: str, version: int | None = None, *, pinned: bool = False) -> Publication:
        """Let a published name stand for an earlier version again, or (None) for its latest.

        Args:
            name: the name.
            version: one of its versions.
            pinned: stay with it when another is published; else the next publication takes its place.

        Raises:
            UnknownPublicationError: it is not published, or has no such version.
        """
        with self._database.transaction():
            return self._publications.stand_for(name, version, pinned=pinned)

    def versions(self, name: str) -> list[Publication]:
        """Every version of a name, the latest first, also of a name unpublished since.

        Raises:
            UnknownPublicationError: there never was such a name.
        """
        with self._database.guard:
            return self._publications.versions(name)

    def change(self, old: str, new: str) -> Change:
        """What is other in one idea or version than in another; each as `idea` takes it.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `idea`.
        """
        before, after = (Side.of(self.idea(ref), self._published_as(ref)) for ref in (old, new))
        return Change(changes(before, after), breaking(before, after))

    def change_of(self, publication: Publication) -> Change:
        """What a version changed against the one before it; nothing for the first, and where that was another's."""
        name, version = publication.name, publication.version
        if version == 1 or self.publication(name, version - 1).owner not in (None, publication.owner):
            return Change([], [])
        return self.change(f"{name}@{version - 1}", f"{name}@{version}")

    def _published_as(self, ref: str) -> Publication | None:
        """The publication a NAME or NAME@VERSION stands for; None for an id or a run."""
        try:
            return self.named(ref)
        except UnknownPublicationError:
            return None

    def named(self, ref: str, *, caller: str | None = None) -> Publication:
        """What NAME or NAME@VERSION stands for; `caller` as for `publication`.

        Raises:
            UnknownPublicationError: it is neither, or there is none; the message names the nearest.
        """
        return self.publication(*read_named(ref), caller=caller)

    def publication(self, name: str, version: int | None = None, *, caller: str | None = None) -> Publication:
        """What a name stands for now, or one version of it (also of a name unpublished since).

        Args:
            name: the name.
            version: one of its versions; None: the one it stands for.
            caller: what is published to others is to it as if it were not there; None: the person who holds the store.

        Raises:
            UnknownPublicationError: there is none; the message names the nearest, or the versions.
        """
        with self._database.guard:
            return self._publications.get(name, version, caller)

    def publications(
        self, limit: int = 50, after: str | None = None, *, caller: str | None = None
    ) -> Page[Publication]:
        """What is published now, by name; with `caller`, only what is published to it.

        Raises:
            CursorError: not a cursor of this list, or a limit out of bounds.
        """
        with self._database.guard:
            return self._publications.page(limit, after, caller)

    def most_used(self, limit: int, *, caller: str) -> list[Publication]:
        """What is published to a caller, the `limit` most used of it (`note_uses`), by name."""
        with self._database.guard:
            return self._publications.most_used(limit, caller)

    def search_publications(self, words: str, limit: int, *, caller: str) -> list[Publication]:
        """What is published to a caller, by words of its name and description, best first.

        Raises:
            CursorError: a limit out of bounds.
        """
        with self._database.guard:
            fetch, begins = check_limit(limit), False
            while True:
                numbers = self._search.find_names(words, fetch, begins=begins)
                found = self._publications.of_numbers(numbers, caller)
                if len(found) >= limit or len(numbers) < fetch or fetch >= SCORED:
                    if found or begins:
                        return found[:limit]
                    # As where nobody has such words: what is not found must not tell that others have them.
                    fetch, begins = limit, True
                    continue
                # Most are others': look further down.
                fetch = min(SCORED, fetch * 8)

    def note_uses(self, counts: Mapping[str, int]) -> None:
        """Count calls of published tools, by name."""
        with self._database.transaction():
            self._publications.note_uses(counts)

    def publication_count(self, *, caller: str | None = None) -> int:
        """How many names are published now; with `caller`, of those it may see."""
        with self._database.guard:
            return self._publications.count(caller)

    def catalogue_version(self) -> int:
        """A number that grows with every publication and withdrawal, of this and of other processes."""
        with self._database.guard:
            return self._publications.catalogue_version()

    def data_version(self) -> int:
        """A number that changes when *another* connection (another process, usually) has written anything.

        Own writes do not change it. It is the cheapest sign that something happened; `catalogue_version` then
        tells whether it was a publication.
        """
        return self._database.data_version()
