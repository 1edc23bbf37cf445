"""Keep ideas, publications, runs, users and settings in an SQLite file or a PostgreSQL database
(`docs/store.md`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ideabridge.bridge.store.call_places import CallPlaces
from ideabridge.bridge.store.claims import without_runs
from ideabridge.bridge.store.configuration_log import ConfigurationLog
from ideabridge.bridge.store.contents import Contents
from ideabridge.bridge.store.copying import Copied, copy_into, expect_whole, release
from ideabridge.bridge.store.daily_use import DailyUse
from ideabridge.bridge.store.database import Database, Durability, is_address, now_text
from ideabridge.bridge.store.decisions import Decisions
from ideabridge.bridge.store.direct_calls import DirectCallTable
from ideabridge.bridge.store.driver_requests import DriverRequests
from ideabridge.bridge.store.errors import StoreError, StoreExtraError
from ideabridge.bridge.store.evidence import EvidenceTable
from ideabridge.bridge.store.idea import Change, NewPublication, Publication
from ideabridge.bridge.store.ideas import Ideas, past_time
from ideabridge.bridge.store.journal import Journal
from ideabridge.bridge.store.leaks import FindSecrets, check_leaks
from ideabridge.bridge.store.leases import Leases
from ideabridge.bridge.store.owner_links import OwnerLinks
from ideabridge.bridge.store.portable import (
    Checks,
    export,
    read_document,
    without_recorded_output,
)
from ideabridge.bridge.store.pruning import PACE, Bounds, Prunable, Pruned, Pruning, Retention
from ideabridge.bridge.store.publications import Publications
from ideabridge.bridge.store.queue import RunQueue
from ideabridge.bridge.store.results import copy_without_results
from ideabridge.bridge.store.rule_changes import RuleChanges
from ideabridge.bridge.store.search import Search
from ideabridge.bridge.store.sessions import SessionTable
from ideabridge.bridge.store.settings import StoredSettings
from ideabridge.bridge.store.shapes import CallIndex
from ideabridge.bridge.store.sqlite.database import SqliteDatabase
from ideabridge.bridge.store.tool_memory import ToolMemory
from ideabridge.bridge.store.users import SEES_ALL, Users, Viewer
from ideabridge.bridge.store.versions import Side, breaking, changes
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSON, JSONObject

CAUTIOUS: Final[JSONObject] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""The annotations that are assumed for an unknown tool."""

_READS: Final[JSONObject] = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}


_UNTIL_PROGRAM: Final = 3600.0
"""The maximum time, in seconds, between a plan and the program of the same run that replaces it."""


def _is_replaced_by(plan: Publication, program: Publication) -> bool:
    """Return whether a version is the plan of a run, and the next version is the program that
    replaces this plan.
    """
    if plan.plan is None or plan.program is not None or program.program is None:
        return False

    run = plan.origin.run
    if run is None or run != program.origin.run:
        return False
    passed = datetime.fromisoformat(program.time) - datetime.fromisoformat(plan.time)
    return passed.total_seconds() <= _UNTIL_PROGRAM


class Store:
    """A store. All methods are synchronous, and fast enough for the event loop unless their
    docstrings say otherwise.

    Every method of the store and of its parts can also raise a `StoreError`: `StoreBusyError` if
    another process held the lock for too long, `StoreFullError`, `StoreAccessError`,
    `StoreFormatError` if the store is damaged, or `StoreClosedError`.

    Attributes:
        ideas: the saved ideas.
        runs: runs and their events.
        decisions: the decisions that were made in runs.
        leases: the leases of runs: which driver may write, and until when.
        queue: the runs that are waiting for a worker.
        call_places: the calls to servers whose limit applies to all processes together.
        publications: the ideas published under a name.
        evidence: what later runs of published versions revealed.
        settings: the settings, which are values keyed by name.
        requests: requests from other processes to the driver of a run.
        direct_calls: the direct calls, which have no run.
        daily_use: how much the store was used, by day and by tool.
        sessions: the sessions of direct calls in progress.
        tool_memory: lists, definitions and result shapes of tools.
        configuration_log: what changed in configurations while servers ran.
        users: the users of a server, and their tokens.
        owner_links: links that sign the owner in to the page.
        rule_changes: who changed whether calls of a tool ask.
        notifier: sends and receives notifications between all processes that use the store.
    """

    def __init__(self, database: Database, contents: Contents, *, only_reads: bool = False) -> None:
        """Initialise the store. Use `Store.open` instead of calling this directly."""
        self._database = database
        self._only_reads = only_reads
        self._calls = CallIndex(database)
        self._search = Search(database, contents)
        self._pruning = Pruning(database, self._search, self._calls)
        self.leases = Leases(database)
        self.notifier = database.notifier
        self.runs = Journal(database, contents, self.leases)
        self.decisions = Decisions(database)
        self.queue = RunQueue(database, self.runs, self.leases)
        self.settings = StoredSettings(database)
        self.requests = DriverRequests(database, self.settings)
        self.call_places = CallPlaces(database, self.settings)
        self.direct_calls = DirectCallTable(database)
        self.daily_use = DailyUse(database)
        self.sessions = SessionTable(database)
        self.tool_memory = ToolMemory(database)
        self.configuration_log = ConfigurationLog(database)
        self.users = Users(database)
        self.owner_links = OwnerLinks(self.settings)
        self.rule_changes = RuleChanges(self.settings)
        self.evidence = EvidenceTable(database)
        self.publications = Publications(database, self._search, self.tool_memory, self.evidence)
        self.ideas = Ideas(
            database, contents, self._calls, self.publications, self._search, self.users
        )

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        durability: Durability = "normal",
        busy_timeout_s: float = 5.0,
        is_unfinished: bool = False,
    ) -> Store:
        """Open a store. If it does not exist, create it (as a file with mode 0600) and its folder.
        ":memory:" stores nothing on disk.

        Args:
            path: the file, or the address of a PostgreSQL database
                (`postgresql://USER@HOST/DATABASE?schema=NAME`).
            durability: `normal` if writes survive a crash of the process, `full` if they also
                survive a power failure.
            busy_timeout_s: the maximum number of seconds to wait for another process's lock.
            is_unfinished: True if the store may be an unfinished copy, which `copy_to` will
                continue.

        Raises:
            StoreAccessError: the file or folder cannot be read or written.
            StoreFormatError: the file is not SQLite, or is another program's database.
            StoreExtraError: psycopg is not installed.
            StoreVersionError: the store was written by a newer version of ideabridge, or by a
                version from before the first release.
            StoreBusyError: another process kept the store locked.
            StoreCopyError: the store is an unfinished copy.
        """
        if is_address(str(path)):
            database, contents = _open_server(str(path), durability, busy_timeout_s)
        else:
            database = SqliteDatabase(path, durability=durability, busy_timeout_s=busy_timeout_s)
            contents = Contents(database)

        try:
            if not is_unfinished:
                expect_whole(database)
        except BaseException:
            database.close()
            raise

        return cls(database, contents)

    def reader(self) -> JSONObject | None:
        """Return the JSON value with which `open_for_reading` can open this store in another
        process, or None if the store is in memory. The value can contain a password.
        """
        return self._database.reader()

    @classmethod
    def open_for_reading(cls, reader: JSONObject) -> Store:
        """Open a store that another process has open, read-only. Every write fails. Raises the same
        errors as `open`.
        """
        if "file" in reader:
            database: Database = SqliteDatabase(f"{reader['file']}", only_reads=True)
            return cls(database, Contents(database), only_reads=True)
        database, contents = _open_server(
            f"{reader['address']}", "normal", 5.0, f"{reader['connection']}"
        )
        return cls(database, contents, only_reads=True)

    def close(self) -> None:
        """Index the saved ideas, so that the views and search tables are complete, and close the
        store.

        Closing twice has no effect. Any other call on a closed store raises `StoreClosedError`. If
        another process holds the lock, or the file cannot be written, the next process that closes
        the store indexes the remaining ideas.
        """
        if self.path != ":memory:" and not self._only_reads:
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
        """The file, ":memory:", or the address of the database."""
        return self._database.path

    @property
    def is_file(self) -> bool:
        """Whether the store is a file."""
        return self._database.one_writer and self.path != ":memory:"

    def engine(self) -> str:
        """Return the name and version of the database, such as `SQLite 3.53.4 of pysqlite3` or
        `PostgreSQL 15.18`.
        """
        return self._database.upkeep.engine()

    def used_bytes(self) -> int:
        """Return the number of bytes that the store uses. For a file, this is the size that it has
        after a vacuum.
        """
        return self._database.upkeep.used_bytes()

    def writer(self) -> Writer:
        """Return a new `Writer`, through which an event loop writes without waiting."""
        return Writer(self._database)

    def back_up(self, target: Path) -> int:
        """Copy the store into a new file, even while it is in use. Return the size of the copy in
        bytes.

        The copy of a PostgreSQL store is an archive for pg_restore.

        Raises:
            StoreAccessError: the file already exists or cannot be written, or pg_dump failed.
            StoreExtraError: PostgreSQL's programs are not installed.
            StoreFormatError: the store is damaged.
        """
        return self._database.upkeep.back_up(target)

    def copy_to(self, target: Store, report: Callable[[str], None] = lambda _: None) -> Copied:
        """Copy everything into another store, from a file into PostgreSQL or vice versa. Other
        processes can use this store during the copy.

        Args:
            target: an empty store, or an unfinished copy of this store to continue. No other
                process may use the target.
            report: called with the name of each part before it is copied or checked.

        Raises:
            StoreCopyError: the target has other contents, or differs from this store afterwards.
        """
        copied = copy_into(self._database, target._database, report)
        report("the ids of ideas")
        target.ideas.check_ids()
        report("indexes")
        target.ideas.index_all()
        release(target._database)
        return copied

    def vacuum(self) -> tuple[int, int]:
        """Return free pages to the file system. Other processes wait until this is done.

        Returns:
            The size of the store in bytes, before and after.

        Raises:
            StoreBusyError: another process keeps the store locked.
        """
        return self._database.upkeep.vacuum()

    def prunable(self, *, before: str) -> Prunable:
        """Find what a pruning would delete: whole runs with their rooms, forks and ideas, oldest
        first.

        Only runs that have ended are included, and nothing that is published or tagged. This method
        reads every idea, so do not call it in the event loop.

        Args:
            before: the time by which the runs must have ended: a date, a time, or an age (`90d`).

        Raises:
            FilterError: `before` is not a time.
        """
        return self._pruning.prunable(past_time(before, "before"))

    def prune(self, prunable: Prunable) -> Pruned:
        """Delete what `prunable` found, except anything that has since come into use.

        Other processes can use the store meanwhile. If the process is killed, the store stays
        consistent, and the next pruning continues. To also shrink the file, call `vacuum`.
        """
        return self._pruning.prune(prunable)

    def retention(
        self, bounds: Bounds, wait: Callable[[float], bool | None] = time.sleep
    ) -> Retention:
        """Return an object that deletes old runs weekly, in small steps. Open a separate store for
        it, outside the event loop's thread.

        Args:
            bounds: which runs to keep.
            wait: called between two steps with the number of seconds to wait. It returns True to
                stop the retention.
        """
        pruning = Pruning(self._database, self._search, self._calls, wait, PACE)
        return Retention(self._database, pruning, bounds)

    def transaction(self, *, concurrent: bool = False) -> AbstractContextManager[None]:
        """Return a context manager that commits everything in its block, or nothing. For
        `concurrent`, see `Database`.

        If a nested transaction fails, only the nested transaction is rolled back. Never await
        inside the block, because other tasks of the thread would write into the same transaction.
        """
        return self._database.transaction(concurrent=concurrent)

    # Sharing

    def export_idea(
        self,
        ref: str,
        find_secrets: FindSecrets | None = None,
        *,
        caller: Viewer,
        results: bool = False,
    ) -> JSONObject:
        """Return the idea as a portable document, with its publication if `ref` is a name.

        Args:
            ref: see `Ideas.get`.
            find_secrets: finds configured secrets in a string. Secrets with well-known shapes are
                found without it.
            caller: the user who makes the request. The document contains nothing that belongs to
                others and is not shared with this caller.
            results: True to include values that come from results of the run. Otherwise, the
                document contains a different idea, lists the missing values in `left_out`, and
                names the `original`.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `Ideas.get`.
            SecretInIdeaError: the idea contains a secret. The message says where.
        """
        with self._database.snapshot():
            number = self.ideas.resolve(ref, caller)
            publication = self.publications.look_up(ref, caller=caller)
            if (
                publication is not None
                and self.publications.find(publication.name, publication.version, caller) != number
            ):
                publication = None

            if publication is not None and caller not in (SEES_ALL, publication.owner):
                publication = without_runs(publication)

            stored = self.ideas.read(number, caller)
            if not results:
                stored = copy_without_results(stored, self.ideas.start_of(number))

            if publication is not None and not (
                results and self.ideas.shows_results(number, caller)
            ):
                publication = without_recorded_output(publication)

            document = export(stored, publication)

        check_leaks(document, find_secrets)
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
        """Save an exported idea, and return its id.

        If this store has a run with the id in the idea's metadata, that id is dropped, because a
        document cannot join a run. A time in the future is also dropped.

        Args:
            document: the result of `export_idea`.
            with_publication: True to also publish the idea, as the next version of the name in this
                store.
            owner: the owner of a new name, or None for the owner of the store, who publishes to
                everybody.
            annotations: the annotations of the publication's plan according to this store's tools,
                or None if a plan might have any effect. The document's own annotations are ignored.
                A recorded answer is always read-only.
            checks: the parts of the document that must be unchanged.

        Raises:
            IdeaDocumentError: the document does not have the expected shape, or has no publication
                to import.
            TamperedIdeaError: the ids or the digest do not match the content, or the
                digest is missing.
            NameTakenError: the name belongs to another owner.
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
                members = read.publication_members()
                hints = _READS if members["answer"] == "recorded" else annotations or CAUTIOUS
                members |= {"idea_id": idea_id, "owner": owner, "annotations": dict(hints)}
                self.publications.publish(NewPublication(**members))

        return idea_id

    def change(self, old: str, new: str, *, caller: Viewer) -> Change:
        """Return the differences between two ideas or versions. For `old`, `new` and `caller`, see
        `Ideas.get`.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: see `Ideas.get`.
        """
        before = self._side(old, caller)
        after = self._side(new, caller)
        return Change(changes(before, after), breaking(before, after))

    def _side(self, ref: str, caller: Viewer) -> Side:
        publication = self.publications.look_up(ref, caller=caller)
        return Side.of(self.ideas.get(ref, caller=caller), publication)

    def change_of(self, publication: Publication) -> Change:
        """Return the differences from the previous version. There are none for the first version,
        or if a different owner published the previous version.

        A program that replaces the plan of its own run within an hour is compared with the version
        before that plan, because the plan was published only until the program was ready.
        """
        name = publication.name
        version = publication.version
        before = self._version_before(publication)
        if before is not None and _is_replaced_by(before, publication):
            before = self._version_before(before)

        if before is None or before.owner not in (None, publication.owner):
            return Change([], [])
        return self.change(f"{name}@{before.version}", f"{name}@{version}", caller=SEES_ALL)

    def _version_before(self, publication: Publication) -> Publication | None:
        if publication.version == 1:
            return None
        return self.publications.get(publication.name, publication.version - 1, caller=SEES_ALL)

    def revision(self) -> tuple[int, int]:
        """Return two numbers, at least one of which changes whenever any process writes to the
        store.
        """
        return self._database.revision()

    def data_version(self) -> int:
        """Return a number that changes when *another* connection, usually in another process,
        writes to the store.

        Reading this number is cheaper than reading `Publications.catalogue_version`, which changes
        only with publications.
        """
        return self._database.data_version()


def _open_server(
    address: str, durability: Durability, busy_timeout_s: float, conninfo: str | None = None
) -> tuple[Database, Contents]:
    try:
        from ideabridge.bridge.store.postgres.contents import PostgresContents
        from ideabridge.bridge.store.postgres.database import PostgresDatabase
    except ImportError as error:
        # Join the lines, because psycopg's message lists the implementations that it tried on
        # several.
        reason = " ".join(str(error).split())
        raise StoreExtraError(
            f"a store in PostgreSQL needs an extra: `pip install 'ideabridge[postgres]'` ({reason})"
        ) from error

    database = PostgresDatabase(
        address, durability=durability, busy_timeout_s=busy_timeout_s, conninfo=conninfo
    )
    return database, PostgresContents(database)
