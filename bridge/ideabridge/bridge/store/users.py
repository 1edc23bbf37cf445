"""Users: who may use a server on this store over HTTP, and the tokens that prove who asks.

A user's name is given once. It is never changed and, after the user is removed, never given to anybody else: runs,
ideas and journals name people by it, and nobody inherits what another person did.
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
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from ideabridge.bridge.store.database import Database, now_text, read_time, time_text
from ideabridge.bridge.store.errors import StoreError, UnknownTokenError, UnknownUserError, UserError
from ideabridge.tools.names import did_you_mean

LOCAL: Final = "local"
"""The caller at this machine: over stdio, at the command line, and over HTTP on loopback while there are no users. It
is the owner of the store.
"""

EVERYBODY: Final = ""
"""What stands for every caller in the audience of a published name."""

Role = Literal["member", "admin"]
State = Literal["active", "disabled", "removed"]

TOKEN_PREFIX: Final = "ibt_"  # noqa: S105 - what a token begins with
"""What a user's token begins with: `ibt_ID_SECRET`."""

_CALLER: Final = "user:"
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,47}", re.ASCII)
_RESERVED: Final = frozenset({"me", "all", "local", "owner", "everybody", "everyone", "nobody"})
_TOKEN: Final = re.compile(r"ibt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_USED_SECONDS: Final = 600
"""How exact the time of a token's last use is: a write for each request would cost more than the request."""
_LABEL: Final = 64


@dataclass(frozen=True, slots=True)
class User:
    """One person who may use a server.

    Attributes:
        name: who; unique, for ever.
        role: an `admin` may replace what others share, and see ideas imported without being published.
        state: `disabled` users and `removed` ones are not let in.
        created: when, ISO 8601 in UTC.
        issuer: the identity provider that vouches for the user; None: the user has tokens of this store.
    """

    name: str
    role: Role
    state: State
    created: str
    issuer: str | None

    @property
    def caller(self) -> str:
        """The caller whose runs and ideas are this user's."""
        return _CALLER + self.name


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a user, without its secret, which is kept nowhere.

    Attributes:
        id: identifies the token; part of its text.
        user: whose.
        label: what it is for.
        created: when, ISO 8601 in UTC.
        expires: when it ends, ISO 8601 in UTC; None: never.
        revoked: when it was revoked; None: it was not.
        used: when it was used last, to ten minutes; None: never.
    """

    id: str
    user: str
    label: str
    created: str
    expires: str | None
    revoked: str | None
    used: str | None

    @property
    def state(self) -> Literal["valid", "expired", "revoked"]:
        """Whether it is taken now."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now_text() else "valid"


def user_of(caller: str) -> str | None:
    """The name of the user that a caller is; None for callers that are no named users."""
    return caller.removeprefix(_CALLER) if caller.startswith(_CALLER) else None


def person_of(caller: str) -> str:
    """A caller as people read it: the user's name, where it is one."""
    return user_of(caller) or caller


def read_expiry(text: str, now: float | None = None) -> float:
    """When a token ends, in seconds since 1970: a date (`2027-01-31`), a time, or from now on (`90d`, `12h`, `2w`).

    Raises:
        UserError: the text is not a time, or the time has passed.
    """
    now = time.time() if now is None else now
    try:
        at = read_time(text.strip(), datetime.fromtimestamp(now, UTC), 1).timestamp()
    except ValueError:
        raise UserError(f"expires: expected 90d, 12h, 2w or a date (2027-01-31), found {text[:40]!r}") from None
    if at <= now:
        raise UserError(f"expires: {text[:40]!r} has passed")
    return at


def _digest(secret: str) -> bytes:
    # 256 random bits cannot be guessed, so a slow hash would protect nothing and cost each request its time.
    return hashlib.sha256(secret.encode()).digest()


class Users:
    """The tables `users` and `user_tokens`. Every process on the store sees a change at its next request."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- users -------------------------------------------------------------------------------------------------

    def add(self, name: str, role: Role = "member") -> User:
        """Add a user.

        Raises:
            UserError: the name cannot be one, is taken, or was another person's.
        """
        if _NAME.fullmatch(name) is None or name in _RESERVED:
            raise UserError(
                f"{name[:64]!r} cannot be a user's name: expected a to z, then up to 47 of a to z, 0 to 9, '.', '_' "
                f"and '-', and none of {', '.join(sorted(_RESERVED))}"
            )
        with self._database.transaction():
            known = self._find("name = ?", name)
            if known is not None and known.state == "removed":
                raise UserError(f"{name!r} was removed; a name is never given to another person. Choose another name")
            if known is not None:
                raise UserError(f"there is a user {name!r} already; `users token add {name}` gives another token")
            return self._insert(name, role, None, None)

    def of_subject(self, issuer: str, subject: str, shown: str) -> User:
        """The user that an identity provider vouches for; added where this is their first time.

        Args:
            issuer: the provider's address.
            subject: who, at that provider: the identity.
            shown: what the provider calls them; the user's name is made of it once, and never changes.
        """
        with self._database.guard:
            known = self._find("issuer = ? AND subject = ?", issuer, subject)
        if known is not None:
            return known
        # Names of this store have no `@`, so no provider can name somebody like one of them.
        text = re.sub(r"[^a-z0-9._+@-]", "-", shown.lower())[:80] or "user"
        name = text if "@" in text.strip("@") else f"{text.strip('@')}@{urlsplit(issuer).hostname or 'provider'}"
        with self._database.transaction():
            known = self._find("issuer = ? AND subject = ?", issuer, subject)
            if known is None and self._find("name = ?", name) is not None:
                name = f"{name}.{hashlib.sha256(f'{issuer} {subject}'.encode()).hexdigest()[:12]}"
            return known or self._insert(name, "member", issuer, subject)

    def _insert(self, name: str, role: Role, issuer: str | None, subject: str | None) -> User:
        user = User(name, role, "active", now_text(), issuer)
        self._database.execute(
            "INSERT INTO users(name, role, state, created, issuer, subject) VALUES (?, ?, ?, ?, ?, ?)",
            (name, role, user.state, user.created, issuer, subject),
        )
        return user

    def _find(self, where: str, *values: str) -> User | None:
        row = self._database.execute(
            f"SELECT name, role, state, created, issuer FROM users WHERE {where}",  # noqa: S608 - conditions of ours
            values,
        ).fetchone()
        return None if row is None else User(*row)

    def get(self, name: str) -> User:
        """A user by name, also a removed one.

        Raises:
            UnknownUserError: no user has that name.
        """
        with self._database.guard:
            found = self._find("name = ?", name)
            if found is None:
                raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> UnknownUserError:
        known = [row[0] for row in self._database.execute("SELECT name FROM users WHERE state <> 'removed' LIMIT 5000")]
        hint = did_you_mean(name, known) if known else " `users add` makes the first."
        return UnknownUserError(f"there is no user {name[:64]!r}.{hint}")

    def all(self) -> list[User]:
        """Every user but the removed ones, by name."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT name, role, state, created, issuer FROM users WHERE state <> 'removed' ORDER BY name"
            ).fetchall()
        return [User(*row) for row in rows]

    def exist(self) -> bool:
        """Whether there ever was a user: from then on nobody comes in over HTTP without a token."""
        with self._database.guard:
            return self._database.number("SELECT count(*) FROM (SELECT 1 FROM users LIMIT 1)") > 0

    def change(self, name: str, *, state: State | None = None, role: Role | None = None) -> User:
        """Give a user another state or role. A removed user stays removed, and has no valid token any more.

        Raises:
            UnknownUserError: no user has that name.
        """
        with self._database.transaction():
            user = self.get(name)
            if user.state == "removed":
                raise self._unknown(name)
            self._database.execute(
                "UPDATE users SET state = ?, role = ? WHERE name = ?", (state or user.state, role or user.role, name)
            )
            if state == "removed":
                self._database.execute(
                    "UPDATE user_tokens SET revoked = ? WHERE user = ? AND revoked IS NULL", (now_text(), name)
                )
            return self.get(name)

    def manages(self, caller: str) -> bool:
        """Whether a caller is the owner or an admin."""
        if caller == LOCAL:
            return True
        name = user_of(caller)
        if name is None:
            return False
        with self._database.guard:
            found = self._find("name = ?", name)
        return found is not None and found.role == "admin" and found.state == "active"

    def audience(self, names: Iterable[str]) -> tuple[str, ...]:
        """The callers that users are, for publishing to them.

        Raises:
            UnknownUserError: one of them is no user, or none any more.
        """
        callers: list[str] = []
        with self._database.guard:
            for name in names:
                found = self._find("name = ?", name)
                if found is None or found.state == "removed":
                    # Whoever shares is one user of many: who the others are is not listed to them.
                    raise UnknownUserError(f"there is no user {name[:64]!r} to publish to")
                callers.append(found.caller)
        return tuple(dict.fromkeys(callers))

    # -- tokens ------------------------------------------------------------------------------------------------

    def add_token(self, name: str, label: str = "", expires: float | None = None) -> tuple[Token, str]:
        """Add a token to a user. Returns (the record that the store keeps, the text of the token, shown only now).

        Args:
            name: the user.
            label: what it is for.
            expires: when it ends, in seconds since 1970; None: never.

        Raises:
            UnknownUserError: there is no such user, or the user was removed.
            UserError: the label is too long, or an identity provider vouches for the user.
        """
        if len(label) > _LABEL or not label.isprintable():
            raise UserError(f"label: expected up to {_LABEL} printable characters, found {label[:70]!r}")
        with self._database.transaction():
            user = self.get(name)
            if user.state == "removed":
                raise self._unknown(name)
            if user.issuer is not None:
                raise UserError(f"{name} comes with tokens of {user.issuer}, and has none of this store")
            ident, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
            self._database.execute(
                "INSERT INTO user_tokens(id, user, hash, label, created, expires) VALUES (?, ?, ?, ?, ?, ?)",
                (ident, name, _digest(secret), label, now_text(), None if expires is None else time_text(expires)),
            )
            return self._token(ident), f"{TOKEN_PREFIX}{ident}_{secret}"

    def _token(self, ident: str) -> Token:
        row = self._database.execute(
            "SELECT id, user, label, created, expires, revoked, used FROM user_tokens WHERE id = ?", (ident,)
        ).fetchone()
        if row is None:
            raise UnknownTokenError(f"there is no token {ident[:40]!r}: `users token list` shows the ids")
        return Token(*row)

    def tokens(self, name: str | None = None) -> list[Token]:
        """The tokens of one user, or all, oldest first.

        Raises:
            UnknownUserError: there is no such user.
        """
        with self._database.guard:
            if name is not None and self._find("name = ?", name) is None:
                raise self._unknown(name)
            rows = self._database.execute(
                "SELECT id, user, label, created, expires, revoked, used FROM user_tokens "
                "WHERE ?1 IS NULL OR user = ?1 ORDER BY created, id",
                (name,),
            ).fetchall()
        return [Token(*row) for row in rows]

    def revoke(self, ident: str) -> Token:
        """Let a token be taken no more. Twice is fine.

        Raises:
            UnknownTokenError: no token has that id.
        """
        # The whole text is what a person may have at hand.
        whole = _TOKEN.fullmatch(ident)
        ident = whole[1] if whole is not None else ident
        with self._database.transaction():
            self._token(ident)
            self._database.execute(
                "UPDATE user_tokens SET revoked = coalesce(revoked, ?) WHERE id = ?", (now_text(), ident)
            )
            return self._token(ident)

    def verify(self, text: str) -> tuple[User, Token] | None:
        """Whose a token is, and what is kept of it; None: it is no valid token of an active user."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None
        with self._database.guard:
            row = cast(
                "tuple[Any, ...] | None",
                self._database.execute(
                    "SELECT hash, user_tokens.id, user, label, user_tokens.created, expires, revoked, used, "
                    "name, role, state, users.created, issuer "
                    "FROM user_tokens JOIN users ON users.name = user_tokens.user WHERE user_tokens.id = ?",
                    (match[1],),
                ).fetchone(),
            )
        if row is None or not hmac.compare_digest(cast("bytes", row[0]), _digest(match[2])):
            return None
        token, user = Token(*row[1:8]), User(*row[8:])
        if token.state != "valid" or user.state != "active":
            return None
        self._note_use(token)
        return user, token

    def _note_use(self, token: Token) -> None:
        now = time.time()
        if token.used is None or token.used < time_text(now - _USED_SECONDS):
            # A full disk, or a lock that another process holds, is no reason to refuse a valid token.
            with contextlib.suppress(StoreError), self._database.transaction():
                self._database.execute("UPDATE user_tokens SET used = ? WHERE id = ?", (time_text(now), token.id))
