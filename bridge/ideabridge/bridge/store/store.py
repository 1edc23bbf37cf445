"""Store: ideas, publications, runs and settings in one SQLite file (`docs/store.md`)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from ideabridge.bridge.store.contents import Contents
from ideabridge.bridge.store.database import Database, back_up, now_text, vacuum
from ideabridge.bridge.store.errors import StoreError, UnknownPublicationError
from ideabridge.bridge.store.idea import Change, Publication
from ideabridge.bridge.store.ideas import Ideas, read_time
from ideabridge.bridge.store.journal import DirectCallTable, DriverRequests, Journal, StoredSettings
from ideabridge.bridge.store.portable import Checks, Known, check_leaks, export, read_document
from ideabridge.bridge.store.pruning import PACE, Bounds, Prunable, Pruned, Pruning, Retention
from ideabridge.bridge.store.publications import Publications
from ideabridge.bridge.store.search import Search
from ideabridge.bridge.store.shapes import Calls
from ideabridge.bridge.store.tool_memory import ToolMemory
from ideabridge.bridge.store.users import Users
from ideabridge.bridge.store.versions import Side, breaking, changes
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSON, JSONObject

CAUTIOUS: Final[JSONObject] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""The annotations of a tool about which nothing is known."""

_READS: Final[JSONObject] = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}


class Store:
    """One store. All methods are synchronous and short, so that the event loop may call them; other threads wait.

    Every method of the store and of its parts may also raise `StoreBusyError` (another process held the lock too long),
    `StoreFullError`, `StoreAccessError`, `StoreFormatError` (damage) and `StoreClosedError`, all of them `StoreError`s.

    Attributes:
        ideas: the saved ideas.
        runs: runs, the leases of their drivers, and their events.
        publications: ideas published under a name.
        settings: values by key.
        requests: what other processes ask of the driver of a run.
        direct_calls: the record of calls without a run.
        tool_memory: lists, definitions and result shapes of tools.
        users: the users of a server, and their tokens.
    """

    def __init__(self, database: Database) -> None:
        """Use `Store.open`."""
        self._database = database
        contents, self._calls = Contents(database), Calls(database)
        self._search = Search(database, contents)
        self._pruning = Pruning(database, self._search, self._calls)
        self.runs = Journal(database, contents)
        self.settings = StoredSettings(database)
        self.requests = DriverRequests(database, self.settings)
        self.direct_calls = DirectCallTable(database)
        self.tool_memory = ToolMemory(database)
        self.users = Users(database)
        self.publications = Publications(database, self._search, self.tool_memory)
        self.ideas = Ideas(database, contents, self._calls, self.publications, self._search, self.users)

    @classmethod
    def open(
        cls, path: Path | str, *, durability: Literal["normal", "full"] = "normal", busy_timeout_s: float = 5.0
    ) -> Store:
        """Open a store, or create it (mode 0600) with its folder; ":memory:" stores nothing on disk.

        Args:
            path: the file.
            durability: `normal` survives a crash of the process, `full` also a power failure.
            busy_timeout_s: how long to wait for another process's lock.

        Raises:
            StoreAccessError: the file or folder cannot be read or written.
            StoreFormatError: not SQLite, or another program's database.
            StoreVersionError: written by a newer ideabridge, or by one from before the first release.
            StoreBusyError: another process kept it locked.
        """
        return cls(Database(path, durability=durability, busy_timeout_s=busy_timeout_s))

    def close(self) -> None:
        """Index the saved ideas, so that the views and search tables are complete, and close the store.

        Closing twice has no effect; any other call afterwards raises `StoreClosedError`. If another process holds the
        lock, or the file cannot be written, the next process that closes the store indexes the remaining ideas.
        """
        if self.path != ":memory:":
            with contextlib.suppress(StoreError):
                self._database.wait_no_longer()
                self.ideas.index_all()
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
        """A writer through which an event loop writes without waiting; see `Writer`."""
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
        pruning = Pruning(self._database, self._search, self._calls, wait, PACE)
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
            ref: see `Ideas.get`.
            known: finds configured secrets in a text; those of well-known shapes are found without it.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `Ideas.get`.
            SecretInIdeaError: it holds a secret; the message says where.
        """
        with self._database.snapshot():
            number = self.ideas.resolve(ref)
            publication = self._published_as(ref)
            if publication is not None and self.publications.find(publication.name, publication.version) != number:
                publication = None
            document = export(self.ideas.read(number), publication)
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
            if meta.run is not None and self.runs.get(meta.run) is not None:
                meta = dataclasses.replace(meta, run=None, step=None)
            if meta.time > now_text():
                meta = dataclasses.replace(meta, time="")
            idea_id = self.ideas.save(read.idea, meta)
            if with_publication:
                told = read.publication_members()
                told["owner"] = owner
                told["annotations"] = dict(_READS if told["answer"] == "recorded" else annotations or CAUTIOUS)
                self.publications.publish(told.pop("name"), idea_id, **told)
        return idea_id

    def change(self, old: str, new: str) -> Change:
        """What is other in one idea or version than in another; each as `Ideas.get` takes it.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `Ideas.get`.
        """
        before, after = (Side.of(self.ideas.get(ref), self._published_as(ref)) for ref in (old, new))
        return Change(changes(before, after), breaking(before, after))

    def change_of(self, publication: Publication) -> Change:
        """What a version changed against the one before it; nothing for the first, and where that was another's."""
        name, version = publication.name, publication.version
        if version == 1 or self.publications.get(name, version - 1).owner not in (None, publication.owner):
            return Change([], [])
        return self.change(f"{name}@{version - 1}", f"{name}@{version}")

    def _published_as(self, ref: str) -> Publication | None:
        """The publication a NAME or NAME@VERSION stands for; None for an id or a run."""
        try:
            return self.publications.named(ref)
        except UnknownPublicationError:
            return None

    def data_version(self) -> int:
        """A number that changes when *another* connection (another process, usually) has written anything.

        Own writes do not change it. It is the cheapest sign that something happened;
        `Publications.catalogue_version` then says whether it was a publication.
        """
        return self._database.data_version()
