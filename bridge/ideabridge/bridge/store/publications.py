"""Ideas published under a name, in versions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.store.database import Database, now_text, number_list
from ideabridge.bridge.store.decoded import Decoded
from ideabridge.bridge.store.errors import (
    CursorError,
    NameTakenError,
    NotInProfileError,
    PublicationContentError,
    PublicationNameError,
    UnknownIdeaError,
    UnknownPublicationError,
)
from ideabridge.bridge.store.evidence import EvidenceTable
from ideabridge.bridge.store.idea import ANSWERS, PLANNED, Answer, NewPublication, Publication
from ideabridge.bridge.store.page import Page
from ideabridge.bridge.store.search import OPEN_TO, Search, check_limit, widen
from ideabridge.bridge.store.tool_memory import ToolMemory
from ideabridge.bridge.store.users import (
    EVERYBODY,
    LOCAL,
    OWN_RUN,
    SEES_ALL,
    Viewer,
    only_owner,
    owner_of,
    profile_of,
)
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import is_safe_name, nearest, safe_name

_ID: Final = re.compile("[0-9a-f]{64}")
_COLUMNS: Final = (
    "p.name, p.version, ideas.id, p.description, p.answer, p.input_schema, p.output_schema, "
    "p.annotations, p.plan, p.recorded, p.owner, p.time, p.learned, names.version, names.pinned"
)
"""The columns of a `_PublicationRow`."""

_SELECT: Final = (
    f"SELECT {_COLUMNS} FROM publications AS p JOIN ideas ON ideas.number = p.idea "  # noqa: S608
    "LEFT JOIN names ON names.name = p.name"
)

_ABOVE_ALL_VERSIONS: Final = 10**9
"""A number larger than any version."""

_SEEN: Final = (
    "(?3 IS NULL OR coalesce(p.owner, '') IN ('', ?3) OR (p.owner = names.owner AND "
    "EXISTS (SELECT 1 FROM shares WHERE shares.caller IN ('', ?3) AND shares.name = p.name "
    "AND (p.version >= shares.since OR p.version = names.version))))"
)
"""The SQL condition under which a caller (the third parameter) can see a version. It is true for
every version if the caller is NULL. If a name is shared, the version that it refers to and all
later versions are shared.
"""

_CATALOGUE: Final = "catalogue"
"""The key of the counter that is incremented with each publication and withdrawal."""

_LIVE: Final = (
    f"SELECT {_COLUMNS} FROM names "  # noqa: S608
    "JOIN publications AS p ON p.name = names.name AND p.version = names.version "
    "JOIN ideas ON ideas.number = p.idea"
)
"""SQL that selects the versions that names currently refer to."""

_CONTAINS: Final = (
    "(?4 = '' OR instr(lower(p.name || ' ' || coalesce(p.description, '')), lower(?4)) > 0)"
)
"""The SQL condition under which the name or the description of a publication contains the fourth
parameter.
"""

_BY_USE: Final = "coalesce(tool_uses.count, 0) DESC, names.number DESC"

RESERVED: Final = frozenset(
    {
        # The tools of the server itself.
        *("search_tools", "run_plan", "solve", "submit_solution", "check_run", "decide_approval"),
        *("search_ideas", "publish_idea", "view_run"),
        # Other words that can replace a server's name or a published name.
        *("anonymous", "idea", "ideabridge", "session", "last"),
    }
)
"""Names that cannot be published, because they have another meaning in a call."""


def check_name(name: str) -> str:
    """Return `name` if it can be published.

    Raises:
        PublicationNameError: the name cannot be published. The message suggests a valid name.
    """
    if not is_safe_name(name):
        raise PublicationNameError(
            f"{name[:64]!r} cannot be a name: expected a letter from a to z, then up to 47 letters "
            f"from a to z, digits or _; for example {safe_name(name)!r}"
        )
    return name


def read_named(ref: str) -> tuple[str, int | None]:
    """Split NAME or NAME@VERSION into name and version. For a plain NAME, the version is None.

    Raises:
        UnknownPublicationError: `ref` has neither form.
    """
    name, at, version = ref.partition("@")
    if not is_safe_name(name) or (
        at and not (version.isascii() and version.isdecimal() and len(version) < 10)
    ):
        raise UnknownPublicationError(
            f"{ref[:64]!r} is not a published name: expected NAME or NAME@VERSION"
        )
    return name, int(version) if at else None


def _text(value: JSON) -> str | None:
    return None if value is None else encode_text(value)


class _Text:
    """The JSON text of a value, decoded only on demand."""

    def __init__(self, text: str, decoded: Decoded) -> None:
        self.text = text
        self._decoded = decoded

    @cached_property
    def value(self) -> JSON:
        """The decoded value."""
        return self._decoded.value(self.text)


class _PublicationRow(NamedTuple):
    """A version of a publication as the database stores it. Members that are JSON are text.

    Attributes:
        current_version: the version that the name refers to, or None if it is not published now.
        pinned: whether the name keeps that version when a new version is published.
    """

    name: str
    version: int
    idea_id: bytes
    description: str
    answer: Answer
    input_schema: str | None
    output_schema: str | None
    annotations: str
    plan: str | None
    recorded: str | None
    owner: str | None
    time: str
    learned: str | None
    current_version: int | None
    pinned: int | None


class _StoredPublication(Publication):
    """A publication whose `recorded` is decoded on first access, because it can be large."""

    __slots__ = ("_stored",)
    _stored: JSON | _Text

    @property
    def recorded(self) -> JSON:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `Publication`."""
        stored = self._stored
        return stored.value if isinstance(stored, _Text) else stored

    @recorded.setter
    def recorded(self, value: JSON | _Text) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        object.__setattr__(self, "_stored", value)

    def hold(self, recorded: JSON) -> None:
        """Set the value of `recorded`, so that its text need not be decoded."""
        object.__setattr__(self, "_stored", recorded)

    @property
    def guide(self) -> JSONObject | None:
        """See `Publication`."""
        if isinstance(self._stored, _Text) and '"solve":' not in self._stored.text:
            return None
        return Publication.guide.__get__(self)


def _not_in_profile(name: str, viewer: Viewer) -> NotInProfileError:
    profile = None if viewer is SEES_ALL else profile_of(viewer)
    return NotInProfileError(f"the idea {name[:64]!r} is not in profile {profile!r}")


class Evidence(NamedTuple):
    """A record of evidence, and what it teaches together with earlier records
    (`Publication.learned`).
    """

    record: JSONObject
    learned: JSONObject


AdmitsIdea = Callable[[str, str, int], bool]
"""A function that returns whether a profile has a version of an idea. Its arguments are the name of
the profile, and the name and the version of the idea.
"""


class Publications:
    """The tables `publications` (every version), `names` (the version of each name) and `shares`.

    Attributes:
        admits: decides what callers in a profile see. Until the bridge sets this function, callers
            in profiles see no publications.
    """

    def __init__(
        self,
        database: Database,
        search: Search,
        tool_memory: ToolMemory,
        evidence: EvidenceTable,
    ) -> None:
        self._database = database
        self._search = search
        self._tool_memory = tool_memory
        self._evidence = evidence
        self._decoded = Decoded()
        self.admits: AdmitsIdea = lambda _profile, _name, _version: False

    def _admits(self, viewer: Viewer, name: str, version: int) -> bool:
        profile = None if viewer is SEES_ALL else profile_of(viewer)
        return profile is None or self.admits(profile, name, version)

    def _admitted(self, viewer: Viewer, publications: Iterable[Publication]) -> list[Publication]:
        """Return the publications in the viewer's profile, or all of them if the viewer has no
        profile.
        """
        return [
            publication
            for publication in publications
            if self._admits(viewer, publication.name, publication.version)
        ]

    def _admitted_names(self, viewer: Viewer, rows: Iterable[tuple[str, int]]) -> list[str]:
        """Return the names in the viewer's profile. Each row is a name and the version that it
        refers to.
        """
        return [name for name, version in rows if self._admits(viewer, name, version)]

    def publish(
        self,
        new: NewPublication,
        *,
        audience: tuple[str, ...] | None = None,
        replaces: bool = False,
    ) -> Publication:
        """Publish an idea as the next version of a name. Earlier versions are never overwritten.

        Args:
            new: the version. If the name is new, the version's owner becomes the owner of the name.
                None means the owner of the store, who publishes to everybody.
            audience: the callers with whom the name is shared besides its owner (see `share`), or
                None for no change.
            replaces: whether the owner of `new` may publish a version of a name that another owner
                shares with it.

        Raises:
            PublicationNameError: the name does not match `^[a-z][a-z0-9_]{0,47}$`. The message
                suggests a valid name.
            PublicationContentError: `answer` is unknown, or the plan or recording that it needs is
                missing.
            NameTakenError: the name is currently published by another owner.
            UnknownIdeaError: no idea has this id.
        """
        self._check(new)
        with self._database.transaction():
            key = bytes.fromhex(new.idea_id) if _ID.fullmatch(new.idea_id) else b""
            idea = self._database.number("SELECT number FROM ideas WHERE id = ?", (key,))
            if idea == 0:
                raise UnknownIdeaError(f"no idea {new.idea_id[:80]!r}")

            owner = self._owner_of(new, shares=audience is not None, replaces=replaces)
            version = self._insert(new, idea, owner)
            if audience is not None:
                self._share(new.name, audience, since=version)

            live = self.get(new.name, caller=SEES_ALL)
            self._index(new.name, live.description)
            published = live
            if live.version != version:
                published = self.get(new.name, version, caller=SEES_ALL)

            if isinstance(published, _StoredPublication):
                published.hold(new.recorded)
            return published

    def _owner_of(self, new: NewPublication, *, shares: bool, replaces: bool) -> str | None:
        """Return the owner of a new version. For an existing name, this is its current owner.

        Raises:
            NameTakenError: the publisher may not publish under this name, or may not share it.
        """
        name = new.name
        publisher = new.owner or ""
        error = NameTakenError(
            f"another owner has published the name {name!r}; choose another name"
        )
        row = self._database.execute("SELECT owner FROM names WHERE name = ?", (name,)).fetchone()
        if row is not None:
            owner: str = row[0]
            is_own = owner == publisher or {owner, publisher} == {"", LOCAL}
            if not is_own and not (replaces and self._is_open(name, publisher or LOCAL)):
                raise error
            if not is_own and shares:
                raise NameTakenError(
                    f"{name!r} belongs to another owner, who decides who it is shared with: "
                    "publish without sharing"
                )
            # A new version does not change who owns the name.
            return owner or None

        if not replaces and publisher not in ("", LOCAL):
            # Plans and hosts might still call a name that was withdrawn, and must not get an idea
            # of another user.
            last = self._database.execute(
                "SELECT owner FROM publications WHERE name = ? ORDER BY version DESC", (name,)
            ).fetchone()
            if last is not None and last[0] != publisher:
                raise error

        return new.owner

    def _insert(self, new: NewPublication, idea: int, owner: str | None) -> int:
        """Write the next version of a name, and return its number.

        Args:
            new: the version.
            idea: the row of the version's idea.
            owner: the owner of the name.
        """
        plan = _text(new.plan)
        if plan is not None:
            # Keep the text, because it is about to be read again.
            self._decoded.keep(plan, new.plan)

        version = self.last_version(new.name) + 1
        self._database.execute(
            "INSERT INTO publications(name, version, idea, description, answer, "
            "input_schema, output_schema, annotations, plan, recorded, owner, time) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                new.name,
                version,
                idea,
                new.description,
                new.answer,
                _text(new.input_schema),
                _text(new.output_schema),
                encode_text(new.annotations),
                plan,
                _text(new.recorded),
                owner,
                now_text(),
            ),
        )
        self._database.execute(
            "INSERT INTO names(name, version, owner) VALUES (?1, ?2, ?3) "
            "ON CONFLICT(name) DO UPDATE SET "
            "version = CASE WHEN names.pinned <> 0 THEN names.version ELSE ?2 END, owner = ?3",
            (new.name, version, owner or ""),
        )
        return version

    def pin(
        self,
        publication: Publication,
        plan: JSONObject | None,
        guide: JSONObject | None,
        definitions: Mapping[str, JSONObject],
    ) -> Publication:
        """Add pins to a version, which state the tools that its calls refer to. Nothing else in the
        version changes.

        Args:
            publication: the version.
            plan: the version's plan with pins, in the form of `Publication.plan`.
            guide: the version's guide with pins, in the form of `Publication.guide`.
            definitions: the essences of the tools, keyed by digest, which are used to show later
                changes.
        """
        recorded = publication.recorded
        if guide is not None and isinstance(recorded, dict):
            guided: JSONObject = {**recorded, "solve": guide}
            recorded = guided

        with self._database.transaction():
            self._tool_memory.keep_definitions(definitions)
            self._database.execute(
                "UPDATE publications SET plan = ?, recorded = ? WHERE name = ? AND version = ?",
                (_text(plan), _text(recorded), publication.name, publication.version),
            )
            pinned = self.get(publication.name, publication.version, caller=SEES_ALL)
            return dataclasses.replace(pinned, learned=publication.learned)

    def add_evidence(
        self,
        name: str,
        version: int,
        learn: Callable[[Publication, list[JSONObject]], Evidence | None],
    ) -> Publication:
        """Add a record of evidence, and what it teaches, to a version, in one transaction.

        Args:
            name: the name, which need not be published now.
            version: the version.
            learn: called with the version as it was published and with its records so far. It
                returns a new record and what all records together teach, or None to add nothing.

        Returns:
            The version with its current evidence.

        Raises:
            UnknownPublicationError: the version does not exist.
        """
        with self._database.transaction():
            published = self.get(name, version, caller=SEES_ALL)
            records = self._evidence.records(name, version, caller=SEES_ALL)
            added = learn(published, records)
            if added is not None:
                self._evidence.add(name, version, added.record)
                self._database.execute(
                    "UPDATE publications SET learned = ?3 WHERE name = ?1 AND version = ?2",
                    (name, version, encode_text(added.learned)),
                )
                # The tool's description says what the evidence leaves open, so it has changed, too.
                self._note_change()
            versions = self.versions(name, caller=SEES_ALL)
            return next(learned for learned in versions if learned.version == version)

    def share(self, name: str, audience: tuple[str, ...]) -> None:
        """Share a published name with the given callers instead of the previous ones.

        The callers see the version that the name refers to and all later versions. Callers that
        could see earlier versions can still see them.

        Args:
            name: the name.
            audience: callers besides the owner, or `EVERYBODY`. If empty, only the owner sees the
                name.

        Raises:
            UnknownPublicationError: the name is not published.
        """
        with self._database.transaction():
            row = self._database.execute(
                "SELECT version FROM names WHERE name = ?", (name,)
            ).fetchone()
            if row is None:
                raise self._unknown(name)
            latest = self.last_version(name)
            # All versions after the one that the name refers to have been withdrawn.
            self._share(name, audience, since=latest if row[0] == latest else latest + 1)

    def _share(self, name: str, audience: tuple[str, ...], *, since: int) -> None:
        """Share a published name from version `since` on. Call this inside a transaction."""
        execute = self._database.execute
        (owner,) = execute("SELECT owner FROM names WHERE name = ?", (name,)).fetchone()
        earlier = dict(
            execute("SELECT caller, since FROM shares WHERE name = ?", (name,)).fetchall()
        )
        execute("DELETE FROM shares WHERE name = ?", (name,))
        if owner == "" and EVERYBODY not in audience:
            # Everybody can see a version without an owner. From now on, such versions belong to the
            # owner of the store.
            earlier = {EVERYBODY: 1}
            execute("UPDATE names SET owner = ? WHERE name = ?", (LOCAL, name))
            execute(
                "UPDATE publications SET owner = ? WHERE name = ? AND coalesce(owner, '') = ''",
                (LOCAL, name),
            )

        if owner != "" or EVERYBODY not in audience:
            callers = [*dict.fromkeys(caller for caller in audience if caller != owner)]
            if EVERYBODY in audience:
                callers = [EVERYBODY]

            for caller in callers:
                first = min(since, earlier.get(EVERYBODY, since), earlier.get(caller, since))
                execute(
                    "INSERT INTO shares(caller, name, since) VALUES (?, ?, ?)",
                    (caller, name, first),
                )

        self._database.count("catalogue", 1)

    def shares(self, name: str) -> tuple[str, ...]:
        """Return the callers with whom a published name is shared besides its owner, or only
        `EVERYBODY` if it is shared with everybody.

        Raises:
            UnknownPublicationError: the name is not published.
        """
        with self._database.guard:
            row = self._database.execute(
                "SELECT owner FROM names WHERE name = ?", (name,)
            ).fetchone()
            if row is None:
                raise self._unknown(name)
            if row[0] == "":
                return (EVERYBODY,)
            rows = self._database.execute(
                "SELECT caller FROM shares WHERE name = ? ORDER BY caller", (name,)
            )
            return tuple(found[0] for found in rows)

    def sees(self, publication: Publication, caller: str) -> bool:
        """Return whether this version is published to a caller."""
        if not self._admits(caller, publication.name, publication.version):
            return False
        if publication.owner is None or publication.owner == owner_of(caller):
            return True
        with self._database.guard:
            return self.find(publication.name, publication.version, caller) is not None

    def _is_open(self, name: str, caller: str) -> bool:
        """Return whether a published name is open to a caller."""
        return (
            self._database.number(
                f"SELECT count(*) FROM names WHERE name = ?2 AND {OPEN_TO}",  # noqa: S608
                (owner_of(caller), name),
            )
            > 0
        )

    def ideas_seen(self, numbers: list[int], caller: str, *, imported: bool) -> set[int]:
        """Return the rows whose ideas a run of the caller made, or that are published to the
        caller.

        Args:
            numbers: the row numbers of ideas.
            caller: the caller.
            imported: whether to include ideas that no run in this store made.
        """
        listed = number_list(numbers)
        inserted = self._database.execute(
            "SELECT ideas.number FROM json_each(?2) AS part "  # noqa: S608
            "JOIN ideas ON ideas.number = CAST(part.value AS BIGINT) WHERE "
            f"EXISTS (SELECT 1 FROM runs WHERE runs.id = ideas.run AND {OWN_RUN}) "
            "OR EXISTS (SELECT 1 FROM occurrences JOIN runs ON runs.id = occurrences.run "
            f"WHERE occurrences.idea = ideas.number AND {OWN_RUN}) "
            "OR (?3 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = ideas.run) "
            "AND NOT EXISTS (SELECT 1 FROM occurrences JOIN runs ON runs.id = occurrences.run "
            "WHERE occurrences.idea = ideas.number))",
            (caller, listed, imported),
        ).fetchall()
        published = self._database.execute(
            "SELECT p.idea, p.name, p.version FROM json_each(?2) AS part "  # noqa: S608
            "JOIN publications AS p ON p.idea = CAST(part.value AS BIGINT) "
            "JOIN names ON names.name = p.name AND names.version = p.version "
            f"WHERE {OPEN_TO}",
            (owner_of(caller), listed),
        ).fetchall()
        seen = {number for (number,) in inserted}
        seen.update(
            number for number, name, version in published if self._admits(caller, name, version)
        )
        return seen

    def stand_for(
        self, name: str, version: int | None = None, *, pinned: bool = False
    ) -> Publication:
        """Make a published name refer to the given version, or to its latest version if `version`
        is None.

        Args:
            name: the name.
            version: one of its versions.
            pinned: True to keep this version when a new one is published. Otherwise, the next
                publication replaces it.

        Raises:
            UnknownPublicationError: the name is not published, or has no such version.
        """
        with self._database.transaction():
            if self._database.number("SELECT count(*) FROM names WHERE name = ?", (name,)) == 0:
                raise self._unknown(name)
            publication = self.get(name, version or self.last_version(name), caller=SEES_ALL)
            self._database.execute(
                "UPDATE names SET version = ?, pinned = ? WHERE name = ?",
                (publication.version, int(pinned), name),
            )
            self._index(name, publication.description)
            return self.get(name, caller=SEES_ALL)

    def versions(
        self, name: str, *, caller: Viewer, limit: int | None = None, before: int | None = None
    ) -> list[Publication]:
        """Return the versions of a name that a caller can see, latest first, each with its
        `learned`.

        Args:
            name: the name, which need not be published now.
            caller: the user who makes the request.
            limit: the maximum number of versions, or None for no limit.
            before: return only versions before this one.

        Raises:
            UnknownPublicationError: the caller can see no version of this name.
        """
        with self._database.guard:
            rows = self._database.execute(
                f"{_SELECT} WHERE p.name = ?1 AND p.version < ?2 AND {_SEEN} "
                "ORDER BY p.version DESC LIMIT ?4",
                (
                    name,
                    _ABOVE_ALL_VERSIONS if before is None else before,
                    only_owner(caller),
                    _ABOVE_ALL_VERSIONS if limit is None else limit,
                ),
            ).fetchall()
            if not rows:
                raise self._unknown(name, caller=caller)

        versions = self._admitted(caller, self._read_all(rows))
        if not versions:
            raise _not_in_profile(name, caller)
        return versions

    def last_version(self, name: str) -> int:
        """Return the number of a name's last version, even if the name is not published now, or 0
        if it has no versions.
        """
        with self._database.guard:
            return self._database.number(
                "SELECT max(version) FROM publications WHERE name = ?", (name,)
            )

    def _read_all(self, rows: Iterable[tuple[Any, ...]]) -> list[Publication]:
        return [self._read(_PublicationRow._make(row)) for row in rows]

    def _read(self, row: _PublicationRow) -> Publication:
        recorded: JSON = None
        if row.recorded is not None:
            # `_StoredPublication` decodes the text when it is first read.
            recorded = cast("JSON", _Text(row.recorded, self._decoded))

        is_live = row.version == row.current_version
        return _StoredPublication(
            name=row.name,
            version=row.version,
            idea_id=row.idea_id.hex(),
            description=row.description,
            answer=row.answer,
            input_schema=self._object(row.input_schema),
            output_schema=self._object(row.output_schema),
            annotations=self._object(row.annotations) or {},
            plan=self._object(row.plan),
            recorded=recorded,
            owner=row.owner or None,
            time=row.time,
            learned=self._object(row.learned),
            live=is_live,
            pinned=is_live and bool(row.pinned),
        )

    def _object(self, text: str | None) -> JSONObject | None:
        if text is None:
            return None
        return cast("JSONObject", self._decoded.value(text))

    def _check(self, new: NewPublication) -> None:
        check_name(new.name)
        if new.answer not in ANSWERS:
            raise PublicationContentError(
                f"answer must be one of {', '.join(ANSWERS)}; found {new.answer!r}"
            )

        if new.answer in PLANNED and new.plan is None:
            raise PublicationContentError(
                f"{new.name!r} should be answered by its plan, but has no plan"
            )

        if new.answer == "program" and new.program is None:
            raise PublicationContentError(
                f"{new.name!r} should be answered by its program, but its plan has none"
            )

        if new.answer == "auto" and new.plan is None and new.guide is None:
            raise PublicationContentError(
                f"{new.name!r} has neither a plan nor what a model needs to solve it again"
            )

    def _index(self, name: str, description: str | None) -> None:
        """Index a name and its description for searches. If `description` is None, remove the name
        from the index.
        """
        number = self._database.number("SELECT number FROM names WHERE name = ?", (name,))
        self._database.words.remove("publication_words", [number])
        if description is not None:
            self._database.words.add("publication_words", [(number, name, description)])
        self._note_change()

    def unpublish(self, name: str) -> None:
        """Remove a name from the catalogue. Its versions stay readable, and the next publication
        gets the next number.

        Raises:
            UnknownPublicationError: the name is not published.
        """
        with self._database.transaction():
            if self._database.number("SELECT count(*) FROM names WHERE name = ?", (name,)) == 0:
                raise self._unknown(name)
            self._index(name, None)
            self._database.execute("DELETE FROM shares WHERE name = ?", (name,))
            self._database.execute("DELETE FROM names WHERE name = ?", (name,))

    def named(self, ref: str, *, caller: Viewer) -> Publication:
        """Return the publication that NAME or NAME@VERSION refers to. For `caller`, see `get`.

        Raises:
            UnknownPublicationError: `ref` has neither form, or does not exist. The message suggests
                similar names.
        """
        return self.get(*read_named(ref), caller=caller)

    def look_up(self, ref: str, *, caller: Viewer) -> Publication | None:
        """Return the publication that NAME or NAME@VERSION refers to, or None if `named` would
        raise an error.

        Unlike `named`, this method suggests no names, so it takes the same time no matter how many
        names there are.
        """
        try:
            name, version = read_named(ref)
        except UnknownPublicationError:
            return None

        with self._database.guard:
            row = self._row(name, version, caller)
        if row is None or not self._admits(caller, name, row.version):
            return None
        return self._read(row)

    def get(self, name: str, version: int | None = None, *, caller: Viewer) -> Publication:
        """Return the publication that a name currently refers to, or one of the name's versions,
        even if the name has since been unpublished.

        A version requested by number is returned as it was published, without anything learned
        since then.

        Args:
            name: the name.
            version: one of the versions of the name, or None for the current version.
            caller: the user who makes the request. Publications of others that are not shared with
                this caller are treated as if they did not exist.

        Raises:
            UnknownPublicationError: the publication does not exist. The message suggests similar
                names, or lists the versions.
            NotInProfileError: the caller would see the publication if the caller had no profile.
        """
        with self._database.guard:
            row = self._row(name, version, caller)
            if row is None:
                raise self._unknown(name, version, caller)

        if not self._admits(caller, name, row.version):
            raise _not_in_profile(name, caller)
        return self._read(row)

    def _row(self, name: str, version: int | None, caller: Viewer) -> _PublicationRow | None:
        """Return the row that `get` reads, regardless of what the caller's profile contains. Call
        this inside a guard or transaction.
        """
        which = "names.version" if version is None else "?2"
        values = self._database.execute(
            f"{_SELECT} WHERE p.name = ?1 AND p.version = {which} AND {_SEEN}",
            (name, version, only_owner(caller)),
        ).fetchone()
        if values is None:
            return None

        row = _PublicationRow._make(values)
        if version is None:
            return row
        # A version that is requested by its number is as it was published, without `learned`.
        return row._replace(learned=None)

    def find(self, name: str, version: int | None, caller: Viewer) -> int | None:
        """Return the row of the idea that a name or version refers to, or None if the name or
        version does not exist. For `caller`, see `get`.

        Unlike `get`, this method suggests no names, so it takes the same time no matter how many
        names there are.
        """
        with self._database.guard:
            row = self._database.execute(
                "SELECT p.idea, p.version FROM publications AS p LEFT JOIN names ON names.name = p.name "  # noqa: S608
                f"WHERE p.name = ?1 AND p.version = coalesce(?2, names.version) AND {_SEEN}",
                (name, version, only_owner(caller)),
            ).fetchone()

        if row is None or not self._admits(caller, name, row[1]):
            return None
        return row[0]

    def names(self, caller: Viewer) -> list[str]:
        """Return up to 5,000 names to suggest. For `caller`, see `get`."""
        sql = f"SELECT name, version FROM names WHERE {OPEN_TO} ORDER BY name LIMIT 5000"  # noqa: S608
        rows = self._database.execute(sql, (only_owner(caller),)).fetchall()
        return self._admitted_names(caller, rows)

    def _unknown(
        self, name: str, version: int | None = None, caller: Viewer = SEES_ALL
    ) -> UnknownPublicationError:
        first, latest = self._database.execute(
            "SELECT min(p.version), max(p.version) FROM publications AS p LEFT JOIN names ON names.name = p.name "  # noqa: S608
            f"WHERE p.name = ?1 AND {_SEEN}",
            (name, None, only_owner(caller)),
        ).fetchone()
        if latest and version is not None:
            versions = f"version {latest}"
            if latest != first:
                versions = f"the versions {first} to {latest}"
            return UnknownPublicationError(f"{name!r} has {versions}, not {version}")

        if latest:
            return UnknownPublicationError(
                f"{name!r} is no longer published; its last version was {latest}"
            )

        near = nearest(name, self.names(caller))
        hint = f"; nearest: {', '.join(near)}" if near else ""
        to = "" if caller is SEES_ALL else " to you"
        return UnknownPublicationError(f"nothing is published{to} as {name[:64]!r}{hint}")

    def page(
        self,
        limit: int = 50,
        after: str | None = None,
        *,
        caller: Viewer,
        by_hand: bool = False,
        words: str = "",
    ) -> Page[Publication]:
        """Return a page of the current publications, sorted by name.

        If `caller` is set, only publications that this caller can see are included. If `by_hand` is
        set, only publications whose ideas no run made are included. If `words` is set, only
        publications whose name or description contains this text are included.

        Raises:
            CursorError: `after` is not a cursor for this list, or the limit is out of bounds.
        """
        with self._database.guard:
            check_limit(limit)
            if after is not None and not is_safe_name(after):
                raise CursorError(
                    f"{after[:40]!r} is not a cursor for this list; pass the `next` of the "
                    "previous page"
                )
            made = "ideas.run IS NULL AND " if by_hand else ""
            entries = self._widened(
                limit + 1,
                caller,
                f"{_LIVE} WHERE {made}names.name > ?3 AND {_CONTAINS} AND {OPEN_TO} "
                "ORDER BY names.name LIMIT ?2",
                after or "",
                words,
            )
            following = entries[limit - 1].name if len(entries) > limit else None
            return Page(entries[:limit], following)

    def _widened(self, limit: int, viewer: Viewer, sql: str, *parameters: str) -> list[Publication]:
        """Run a statement, and return the first `limit` of its rows that are in the viewer's
        profile.

        Args:
            limit: the maximum number of rows.
            viewer: the user who makes the request.
            sql: the statement. Its first parameter is the owner, and its second one the maximum
                number of rows. Any other parameters follow.
            parameters: the parameters that follow the first two.
        """
        owner = only_owner(viewer)
        size = limit
        while True:
            rows = self._database.execute(sql, (owner, size, *parameters)).fetchall()
            entries = self._admitted(viewer, self._read_all(rows))
            if len(entries) >= limit or len(rows) < size:
                return entries[:limit]
            size *= 4

    def most_used(self, limit: int, *, caller: str) -> list[Publication]:
        """Return the `limit` most used publications that are published to a caller, most used
        first; see `ToolMemory.note_uses`.
        """
        with self._database.guard:
            return self._widened(
                limit,
                caller,
                # Let the inner query sort only the names, because plans can be large.
                f"{_LIVE} LEFT JOIN tool_uses ON tool_uses.tool = names.name "  # noqa: S608
                "WHERE names.number IN (SELECT names.number FROM names "
                f"LEFT JOIN tool_uses ON tool_uses.tool = names.name WHERE {OPEN_TO} "
                f"ORDER BY {_BY_USE} LIMIT ?2) "
                f"ORDER BY {_BY_USE}",
            )

    def newest(self, limit: int, *, caller: str) -> list[Publication]:
        """Return the `limit` publications with the newest names that are published to a caller,
        newest first.
        """
        with self._database.guard:
            return self._widened(
                limit, caller, f"{_LIVE} WHERE {OPEN_TO} ORDER BY names.number DESC LIMIT ?2"
            )

    def names_by_use(self, caller: str) -> list[str]:
        """Return up to 20,000 names that are published to a caller, most used first."""
        sql = (
            "SELECT names.name, names.version FROM names "  # noqa: S608
            f"LEFT JOIN tool_uses ON tool_uses.tool = names.name WHERE {OPEN_TO} "
            f"ORDER BY {_BY_USE} LIMIT 20000"
        )
        with self._database.guard:
            rows = self._database.execute(sql, (owner_of(caller),)).fetchall()
        return self._admitted_names(caller, rows)

    def search(self, words: str, limit: int, *, caller: str) -> list[Publication]:
        """Search the names and descriptions of the publications that a caller can see, best first.

        Raises:
            CursorError: the limit is out of bounds.
        """
        check_limit(limit)

        def open_names(numbers: list[int]) -> list[Publication]:
            rows = self._database.execute(
                f"{_LIVE} JOIN json_each(?2) AS part ON CAST(part.value AS BIGINT) = names.number "
                f"WHERE {OPEN_TO} ORDER BY part.key",
                (owner_of(caller), number_list(numbers)),
            ).fetchall()
            return self._admitted(caller, self._read_all(rows))

        with self._database.guard:
            # If no name that the caller can see contains the words, match them as prefixes, just as
            # if no name contained them. An empty result would reveal that another caller's name
            # contains them.
            found = widen(limit, partial(self._search.find_names, words), open_names)
            return found or widen(
                limit, partial(self._search.find_names, words, begins=True), open_names
            )

    def count(self, *, caller: Viewer) -> int:
        """Return the number of published names. If `caller` is set, only names that the caller can
        see are counted.
        """
        if caller is not SEES_ALL and profile_of(caller) is not None:
            return len(self.names_by_use(caller))
        with self._database.guard:
            return self._database.number(
                f"SELECT count(*) FROM names WHERE {OPEN_TO}",  # noqa: S608
                (only_owner(caller),),
            )

    def _note_change(self) -> None:
        self._database.count(_CATALOGUE, 1)
        self._database.notifier.notify("catalogue")

    def catalogue_version(self) -> int:
        """Return a number that grows with every publication and withdrawal by any process."""
        with self._database.guard:
            return self._database.counter(_CATALOGUE)
