"""Store the people who are allowed to use a server on this store over HTTP, and the tokens that
authenticate them.

A user's name never changes and is never reused after the user is removed: runs, ideas and journals
refer to people by name, and a person must never inherit another person's data.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from ideabridge.bridge.store.database import Database, now_text, read_time, time_text
from ideabridge.bridge.store.errors import (
    StoreError,
    UnknownTokenError,
    UnknownUserError,
    UserError,
)
from ideabridge.tools.names import did_you_mean

LOCAL: Final = "local"
"""The caller on this machine: over stdio, on the command line, and over HTTP on loopback while
there are no users. This caller owns the store.
"""

EVERYBODY: Final = ""
"""The entry in a published name's audience that stands for all callers."""


class Sight(Enum):
    """The runs and ideas that a viewer other than a caller can see; see `SEES_ALL`."""

    ALL = "all"


SEES_ALL: Final = Sight.ALL
"""The value used in place of a caller for viewers that see everything in a store: its owner on this
machine, ideabridge itself, and admins on the page.
"""

Viewer: TypeAlias = str | Literal[Sight.ALL]
"""Whoever looks up data: `SEES_ALL`, or a caller. A caller finds only what it owns and what is
shared with it.
"""


def only_of(viewer: Viewer) -> str | None:
    """Return the caller whose runs an SQL statement selects, or None (NULL in SQL) if the viewer is
    `SEES_ALL`, for whom the statement selects all runs.
    """
    return None if viewer is SEES_ALL else viewer


def only_owner(viewer: Viewer) -> str | None:
    """Return the owner whose publications an SQL statement selects, or None (NULL in SQL) if the
    viewer is `SEES_ALL`, for whom the statement selects all publications.
    """
    return None if viewer is SEES_ALL else owner_of(viewer)


Role = Literal["member", "admin"]
State = Literal["active", "disabled", "removed"]

TOKEN_PREFIX: Final = "ibt_"  # noqa: S105 - what a token begins with
"""The prefix of a token, which has the form `ibt_ID_SECRET`."""

_CALLER: Final = "user:"
_PROFILE: Final = re.compile(r"(.*) profile:([a-z][a-z0-9_-]{0,47})", re.ASCII | re.DOTALL)
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,47}", re.ASCII)
_RESERVED: Final = frozenset({"me", "all", "local", "owner", "everybody", "everyone", "nobody"})
_TOKEN: Final = re.compile(r"ibt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_USED_SECONDS: Final = 600
"""The accuracy, in seconds, of the time when a token was last used. Writing it for each request
would cost more than the request itself.
"""
_LABEL: Final = 64
_RECORD: Final = 'id, "user", label, created, expires, revoked, used, profile'


@dataclass(frozen=True, slots=True)
class User:
    """A person who is allowed to use a server.

    Attributes:
        name: the name, which is unique and never reused.
        role: the role. An `admin` can replace what others share, and sees imported ideas that are
            not published.
        state: the state. Only `active` users are admitted.
        created: when the user was added, as ISO 8601 in UTC.
        issuer: the identity provider that authenticates the user, or None if the user has tokens
            from this store.
    """

    name: str
    role: Role
    state: State
    created: str
    issuer: str | None

    @property
    def caller(self) -> str:
        """The user as a caller: the owner of the user's runs and ideas."""
        return _CALLER + self.name


@dataclass(frozen=True, slots=True)
class Token:
    """A user's token without its secret, which is not stored. Times are ISO 8601 in UTC, or None
    for never.

    Attributes:
        id: the id, which is part of the token's text.
        user: the name of the user.
        label: what the token is for.
        created: when the token was created.
        expires: when the token expires.
        revoked: when the token was revoked.
        used: when the token was last used, to within ten minutes.
        profile: the profile that requests with the token are restricted to, or None.
    """

    id: str
    user: str
    label: str
    created: str
    expires: str | None
    revoked: str | None
    used: str | None
    profile: str | None = None

    @property
    def state(self) -> Literal["valid", "expired", "revoked"]:
        """The state of the token. Servers accept only a `valid` token."""
        if self.revoked is not None:
            return "revoked"
        if self.expires is not None and self.expires <= now_text():
            return "expired"
        return "valid"


def in_profile(profile: str, caller: str) -> str:
    """Return the caller, restricted to a profile: `CALLER profile:NAME`.

    A run stores its caller, so every process that continues the run restricts it to the same
    profile.
    """
    return f"{owner_of(caller)} profile:{profile}"


def profile_of(caller: str) -> str | None:
    """Return the name of the profile that a caller is restricted to, or None."""
    match = _PROFILE.fullmatch(caller)
    return None if match is None else match[2]


def owner_of(caller: str) -> str:
    """Return the caller without its profile. Publications belong to this caller, because a person
    has the same ideas in all profiles.
    """
    match = _PROFILE.fullmatch(caller)
    return caller if match is None else match[1]


def sees_run_of(viewer: Viewer, caller: str) -> bool:
    """Return whether a viewer sees the runs of a caller.

    A viewer without a profile sees all of its own runs, including those begun in profiles. A viewer
    in a profile sees only its own runs in that profile.
    """
    return viewer in (SEES_ALL, caller, owner_of(caller))


OWN_RUN: Final = "(runs.caller = ?1 OR substr(runs.caller, 1, length(?1) + 9) = ?1 || ' profile:')"
"""The SQL condition of `sees_run_of` for a caller (the first parameter), in the table `runs`."""


def publisher_of(caller: str) -> str | None:
    """Return the owner of what a caller publishes, or None for the owner of the store, who
    publishes to everybody.
    """
    owner = owner_of(caller)
    return None if owner == LOCAL else owner


def user_of(caller: str) -> str | None:
    """Return the user's name if the caller is a user, with or without a profile, otherwise None."""
    owner = owner_of(caller)
    if owner.startswith(_CALLER):
        return owner.removeprefix(_CALLER)
    return None


def person_of(caller: str) -> str:
    """Return the name that messages and pages show for a caller: the user's name if the caller is a
    user, otherwise the caller itself.
    """
    return user_of(caller) or owner_of(caller)


def read_expiry(text: str, now: float | None = None) -> float:
    """Parse the expiry of a token: a date (`2027-01-31`), a time, or a duration from now (`90d`,
    `12h`). Return seconds since 1970.

    Raises:
        UserError: the text is not a time, or the time is in the past.
    """
    now = time.time() if now is None else now
    try:
        at = read_time(text.strip(), datetime.fromtimestamp(now, UTC), 1).timestamp()
    except ValueError:
        raise UserError(
            f"expires: expected 90d, 12h, 2w or a date (2027-01-31), found {text[:40]!r}"
        ) from None

    if at <= now:
        raise UserError(f"expires: {text[:40]!r} is in the past")
    return at


def _digest(secret: str) -> bytes:
    # A slow hash would slow down every request without making tokens safer, because nobody can
    # guess 256 random bits.
    return hashlib.sha256(secret.encode()).digest()


class Users:
    """The tables `users` and `user_tokens`. Changes take effect with the next request to any
    process that uses the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- users -------------------------------------------------------------------------------------

    def add(self, name: str, role: Role = "member") -> User:
        """Add a user.

        Raises:
            UserError: the name is invalid, taken, or once belonged to another person.
        """
        if _NAME.fullmatch(name) is None or name in _RESERVED:
            raise UserError(
                f"{name[:64]!r} cannot be a user's name: expected a letter from a to z, then up to "
                "47 letters from a to z, digits, '.', '_' or '-', and none of "
                f"{', '.join(sorted(_RESERVED))}"
            )
        with self._database.transaction():
            namesake = self._find("name = ?", name)
            if namesake is not None and namesake.state == "removed":
                raise UserError(
                    f"{name!r} was removed; a name is never given to another "
                    "person. Choose another name"
                )
            if namesake is not None:
                raise UserError(
                    f"user {name!r} already exists; `users token add {name}` creates another token"
                )
            return self._insert(name, role, None, None)

    def of_subject(self, issuer: str, subject: str, shown: str) -> User:
        """Return the user that an identity provider authenticated, adding a new user if necessary.

        Args:
            issuer: the provider's address.
            subject: the user's identity at that provider.
            shown: the name that the provider displays. A new user's name is derived from it.
        """
        with self._database.guard:
            user = self._find("issuer = ? AND subject = ?", issuer, subject)

        if user is not None:
            return user

        # Users that this store authenticates have no `@` in their names, so no provider can
        # impersonate them.
        text = re.sub(r"[^a-z0-9._+@-]", "-", shown.lower())[:80] or "user"
        if "@" in text.strip("@"):
            name = text
        else:
            name = f"{text.strip('@')}@{urlsplit(issuer).hostname or 'provider'}"

        with self._database.transaction():
            user = self._find("issuer = ? AND subject = ?", issuer, subject)
            if user is not None:
                # Another process has since added the user.
                return user

            if self._find("name = ?", name) is not None:
                digest = hashlib.sha256(f"{issuer} {subject}".encode()).hexdigest()
                name = f"{name}.{digest[:12]}"

            return self._insert(name, "member", issuer, subject)

    def _insert(self, name: str, role: Role, issuer: str | None, subject: str | None) -> User:
        user = User(name, role, "active", now_text(), issuer)
        self._database.execute(
            "INSERT INTO users(name, role, state, created, issuer, subject) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (name, role, user.state, user.created, issuer, subject),
        )
        return user

    def _find(self, where: str, *values: str) -> User | None:
        row = self._database.execute(
            f"SELECT name, role, state, created, issuer FROM users WHERE {where}",  # noqa: S608 - constant conditions
            values,
        ).fetchone()
        return None if row is None else User(*row)

    def get(self, name: str) -> User:
        """Return the user with the given name, even if the user was removed.

        Raises:
            UnknownUserError: no user has that name.
        """
        with self._database.guard:
            user = self._find("name = ?", name)
            if user is None:
                raise self._unknown(name)
        return user

    def _unknown(self, name: str) -> UnknownUserError:
        rows = self._database.execute("SELECT name FROM users WHERE state <> 'removed' LIMIT 5000")
        names = [row[0] for row in rows]
        hint = did_you_mean(name, names) if names else " `users add` creates the first user."
        return UnknownUserError(f"there is no user {name[:64]!r}.{hint}")

    def all(self) -> list[User]:
        """Return all users except removed ones, sorted by name."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT name, role, state, created, issuer FROM users WHERE state <> 'removed' "
                "ORDER BY name"
            ).fetchall()
        return [User(*row) for row in rows]

    def exist(self) -> bool:
        """Return whether a user was ever added. From then on, HTTP requires a token."""
        with self._database.guard:
            return (
                self._database.number("SELECT count(*) FROM (SELECT 1 FROM users LIMIT 1) AS found")
                > 0
            )

    def change(self, name: str, *, state: State | None = None, role: Role | None = None) -> User:
        """Change a user's state or role. Removing a user revokes the user's tokens and cannot be
        undone.

        Raises:
            UnknownUserError: no user has that name.
        """
        with self._database.transaction():
            user = self.get(name)
            if user.state == "removed":
                raise self._unknown(name)
            self._database.execute(
                "UPDATE users SET state = ?, role = ? WHERE name = ?",
                (state or user.state, role or user.role, name),
            )
            if state == "removed":
                self._database.execute(
                    'UPDATE user_tokens SET revoked = ? WHERE "user" = ? AND revoked IS NULL',
                    (now_text(), name),
                )
            return self.get(name)

    def manages(self, caller: str) -> bool:
        """Return whether a caller is the owner of the store or an active admin, and works without a
        profile.
        """
        if caller == LOCAL:
            return True
        if profile_of(caller) is not None:
            # A profile restricts everyone who works in it, even an admin.
            return False

        name = user_of(caller)
        if name is None:
            return False

        with self._database.guard:
            user = self._find("name = ?", name)

        return user is not None and user.role == "admin" and user.state == "active"

    def audience(self, names: Iterable[str]) -> tuple[str, ...]:
        """Convert names of users to callers, so that something can be published to these users.

        Raises:
            UnknownUserError: a name does not belong to a user, or the user was removed.
        """
        callers: list[str] = []
        with self._database.guard:
            for name in names:
                user = self._find("name = ?", name)
                if user is None or user.state == "removed":
                    # Do not list any users in the message, because a user who shares something must
                    # not learn the names of others.
                    raise UnknownUserError(f"there is no user {name[:64]!r} to publish to")
                callers.append(user.caller)

        return tuple(dict.fromkeys(callers))

    # -- tokens ------------------------------------------------------------------------------------

    def add_token(
        self,
        name: str,
        label: str = "",
        expires: float | None = None,
        profile: str | None = None,
    ) -> tuple[Token, str]:
        """Create a token for a user. Return its record and its text, which is not stored.

        Args:
            name: the user.
            label: what the token is for.
            expires: when the token expires, in seconds since 1970, or None for never.
            profile: the profile that requests with the token are restricted to, or None. Servers
                look up the profile in their configuration.

        Raises:
            UnknownUserError: the user does not exist or was removed.
            UserError: the label is too long, or an identity provider authenticates the user.
        """
        if len(label) > _LABEL or not label.isprintable():
            raise UserError(
                f"label: expected up to {_LABEL} printable characters, found {label[:70]!r}"
            )
        with self._database.transaction():
            user = self.get(name)
            if user.state == "removed":
                raise self._unknown(name)
            if user.issuer is not None:
                raise UserError(
                    f"{name} signs in with tokens from {user.issuer}, so this store has none"
                )
            ident, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
            self._database.execute(
                'INSERT INTO user_tokens(id, "user", hash, label, created, expires, profile) '
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    ident,
                    name,
                    _digest(secret),
                    label,
                    now_text(),
                    None if expires is None else time_text(expires),
                    profile,
                ),
            )
            return self._token(ident), f"{TOKEN_PREFIX}{ident}_{secret}"

    def _token(self, ident: str) -> Token:
        row = self._database.execute(
            f"SELECT {_RECORD} FROM user_tokens WHERE id = ?",  # noqa: S608 - constant columns
            (ident,),
        ).fetchone()
        if row is None:
            raise UnknownTokenError(
                f"there is no token {ident[:40]!r}: `users token list` shows the ids"
            )
        return Token(*row)

    def tokens(self, name: str | None = None) -> list[Token]:
        """Return the tokens of one user, or of all users, oldest first.

        Raises:
            UnknownUserError: `name` is not a user.
        """
        with self._database.guard:
            if name is not None and self._find("name = ?", name) is None:
                raise self._unknown(name)
            rows = self._database.execute(
                f"SELECT {_RECORD} FROM user_tokens "  # noqa: S608 - constant columns
                'WHERE ?1 IS NULL OR "user" = ?1 ORDER BY created, id',
                (name,),
            ).fetchall()
        return [Token(*row) for row in rows]

    def revoke(self, ident: str) -> Token:
        """Revoke a token. Revoking it twice has no effect.

        Raises:
            UnknownTokenError: no token has that id.
        """
        # Accept the whole text of a token in place of its id.
        whole = _TOKEN.fullmatch(ident)
        ident = whole[1] if whole is not None else ident
        with self._database.transaction():
            self._token(ident)
            self._database.execute(
                "UPDATE user_tokens SET revoked = coalesce(revoked, ?) WHERE id = ?",
                (now_text(), ident),
            )
            return self._token(ident)

    def verify(self, text: str) -> tuple[User, Token] | None:
        """Return the user and the record of a token, or None if the text is not a valid token of an
        active user.
        """
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None

        with self._database.guard:
            row = cast(
                "tuple[Any, ...] | None",
                self._database.execute(
                    'SELECT hash, user_tokens.id, "user", label, user_tokens.created, expires, '
                    "revoked, used, profile, "
                    "name, role, state, users.created, issuer "
                    'FROM user_tokens JOIN users ON users.name = user_tokens."user" '
                    "WHERE user_tokens.id = ?",
                    (match[1],),
                ).fetchone(),
            )

        if row is None or not hmac.compare_digest(cast("bytes", row[0]), _digest(match[2])):
            return None

        token = Token(*row[1:9])
        user = User(*row[9:])
        if token.state != "valid" or user.state != "active":
            return None
        self._note_use(token)
        return user, token

    def _note_use(self, token: Token) -> None:
        now = time.time()
        if token.used is None or token.used < time_text(now - _USED_SECONDS):
            # Ignore the error: a full disk or another process's lock must not cause a valid token
            # to be refused.
            with contextlib.suppress(StoreError), self._database.transaction():
                self._database.execute(
                    "UPDATE user_tokens SET used = ? WHERE id = ?", (time_text(now), token.id)
                )
