"""The result of signing in to a server, stored in the keyring or in a file that only the user can
read.

Sign-ins are in the folder `sign-ins` of the user's configuration folder, never in a store. Each
belongs to one server at one address: if the address changes, the sign-in is not found, so no server
gets another server's tokens. A sign-in belongs to the person who starts the servers, or to one
named user of the servers on one store.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio
import platformdirs
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ConfigDict, ValidationError

from ideabridge.bridge.keyring import Keyring, KeyringError, NoKeyringError
from ideabridge.bridge.modules.settings import public_url
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.trust import TrustError, read_own, read_own_beginning, write_own
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable

MOST_SIGN_IN_BYTES: Final = 256 * 1024
"""The maximum size of one sign-in, in bytes of JSON. Tokens and metadata come from servers that are
not trusted.
"""

_LOCK_PAUSE: Final = 0.05
_HEAD_BYTES: Final = 64 * 1024
"""The number of bytes at the start of a file that contain everything except the sign-in itself."""

_SIGN_IN: Final = b',\n "sign_in": '
"""The text between the head of a file and the sign-in. Each member of the file is on a line of its
own.
"""


class SignInError(IdeabridgeError):
    """Raised when a sign-in cannot be read, stored or removed. The message says why."""


@dataclass(frozen=True, slots=True)
class ModuleUser:
    """A named user of the servers on a store.

    Attributes:
        name: the name, which can contain any characters if an identity provider assigned it.
        store: identifies the store. A user with the same name in another store is a different
            person.
    """

    name: str
    store: str


class SignIn(BaseModel):
    """The result of signing in.

    Attributes:
        tokens: the tokens, or None after the server has refused to renew them.
        expires_at: when the access token expires, in seconds since 1970, or None if this is
            unknown.
        scope: the scopes to ask for at the next sign-in, separated by spaces: those of the tokens,
            and those that the server has required since then. None means the scopes that the server
            names.
        client: the client to which the tokens were issued.
        server: the authorization server that issued the tokens.
        resource: the server's metadata (RFC 9728).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    scope: str | None = None
    client: OAuthClientInformationFull | None = None
    server: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    def learn(self, module: str, secrets: Secrets) -> None:
        """Register the secret values, so that they are never shown."""
        tokens = self.tokens
        client = self.client
        for value in (
            None if tokens is None else tokens.access_token,
            None if tokens is None else tokens.refresh_token,
            None if client is None else client.client_secret,
        ):
            secrets.add(f"{module} token", value or "", certain=True)


class _Kept(BaseModel):
    """The content of a file.

    The address, without credentials, is for people who look at the file. The sign-in comes last, so
    that the beginning of the file names its owner even if the sign-in is large.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    module: str
    url: str
    user: str | None = None
    kept_in: Literal["file", "keyring"]
    sign_in: SignIn | None = None


def folder() -> Path:
    """Return the folder with the sign-ins."""
    return platformdirs.user_config_path("ideabridge") / "sign-ins"


class SignInFile:
    """Stores one person's sign-in to one server at one address. `read` and `write` block.

    Args:
        module: the server's name.
        url: the server's address.
        user: the user who signs in, or None for the person who starts the servers.
    """

    def __init__(self, module: str, url: str, user: ModuleUser | None = None) -> None:
        self._module = module
        self._url = url
        self.user = user
        # Name the file after a hash, because the address can contain a secret and the user's name
        # can contain any character.
        if user is None:
            text = f"{module}\n{url}"
        else:
            text = json.dumps([module, url, user.store, user.name])

        self._key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path: Final = folder() / f"{self._key}.json"

    @property
    def exists(self) -> bool:
        """Return whether the person has signed in, even if the tokens have since expired."""
        return self.path.exists()

    def read(self) -> SignIn | None:
        """Return the sign-in, or None if nobody has signed in.

        Raises:
            SignInError: the sign-in cannot be read.
        """
        stored = _read(self.path)
        if stored is None or stored.kept_in == "file":
            return None if stored is None else stored.sign_in

        try:
            text = Keyring().read(self._key)
        except NoKeyringError as error:
            raise SignInError(
                f"its tokens are in the keyring, which is no longer available: {error}"
            ) from error
        except KeyringError as error:
            raise SignInError(f"the keyring with its sign-in cannot be read: {error}") from error

        if text is None:
            return None
        try:
            return SignIn.model_validate_json(text)
        except ValidationError:
            raise SignInError("the keyring contains something other than its sign-in") from None

    def write(self, sign_in: SignIn) -> str:
        """Store the sign-in in the keyring or, if the keyring cannot be used, in the file. Return a
        description of where the sign-in is stored.

        Raises:
            SignInError: the sign-in is too large, or the file cannot be written.
        """
        text = sign_in.model_dump_json(exclude_none=True)
        size = len(text.encode())
        if size > MOST_SIGN_IN_BYTES:
            raise SignInError(
                f"its sign-in has {size:,} bytes; the limit is {MOST_SIGN_IN_BYTES:,}"
            )

        refusal = self._to_keyring(text)
        inside = refusal is None
        stored = _Kept(
            module=self._module,
            url=public_url(self._url),
            user=None if self.user is None else self.user.name,
            kept_in="keyring" if inside else "file",
            sign_in=None if inside else sign_in,
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_own(self.path, stored.model_dump_json(exclude_none=True, indent=1))
        except OSError as error:
            raise SignInError(
                f"{self.path} cannot be written to: {error.strerror or error}"
            ) from None

        if inside:
            return "the keyring"
        return f"{self.path}, which only you can read ({refusal})"

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Hold the lock that processes acquire to renew these tokens. Some servers accept a refresh
        token only once, and revoke all tokens if it is used twice.

        Raises:
            SignInError: the lock file cannot be written.
        """
        path = self.path.with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SignInError(f"{path} cannot be written to: {error.strerror or error}") from None

        try:
            while not _take(descriptor):  # noqa: ASYNC110 - another process holds the lock
                await anyio.sleep(_LOCK_PAUSE)
            yield
        finally:
            os.close(descriptor)

    def _to_keyring(self, text: str) -> str | None:
        """Put the sign-in into the keyring. Return the reason if this fails, otherwise None."""
        keyring = Keyring()
        try:
            keyring.write(self._key, text)
            if keyring.read(self._key) != text:
                return "the keyring did not store it"
        except NoKeyringError as error:
            return str(error)
        except KeyringError as error:
            with suppress(KeyringError):
                keyring.delete(self._key)
            return f"the keyring refuses it: {_first(error)}"

        return None


def needed(module: str, user: str | None = None, more: str = "") -> str:
    """Return a sentence that tells a person to sign in, and how.

    Args:
        module: the server's name.
        user: the user who needs to sign in, or None for the person who starts the servers.
        more: the words after "sign in", such as " for more (write)".
    """
    who = "you" if user is None else printable(user)
    return f"server {module!r} needs {who} to sign in{more}: {login_command(module, user)}"


def login_command(module: str, user: str | None = None) -> str:
    """Return the command that a person runs to sign in to a server.

    Args:
        module: the server's name.
        user: the user who signs in, or None for the person who starts the servers.
    """
    return _command("login", module, user)


def logout_command(module: str, user: str | None = None) -> str:
    """Return the command that deletes a person's sign-in to a server.

    Args:
        module: the server's name.
        user: the user who signed in, or None for the person who starts the servers.
    """
    return _command("logout", module, user)


def _command(verb: str, module: str, user: str | None) -> str:
    command = f"ideabridge servers {verb} {shlex.quote(module)}"
    if user is None:
        return command
    return f"{command} --user {shlex.quote(printable(user))}"


def signed_in_users(module: str) -> list[str]:
    """Return the names of the users who have signed in to servers with this name.

    Raises:
        SignInError: a sign-in cannot be read.
    """
    heads = [_read_head(path) for path in sorted(folder().glob("*.json"))]
    return sorted(
        {
            head.user
            for head in heads
            if head is not None and head.module == module and head.user is not None
        }
    )


def sign_in_files() -> dict[Path, str]:
    """Return the files with sign-ins, each with the name of its server. Blocks.

    Unreadable files are left out, because the servers that need them report why.
    """
    files: dict[Path, str] = {}
    for path in sorted(folder().glob("*.json")):
        with suppress(SignInError):
            head = _read_head(path)
            if head is not None:
                files[path] = head.module

    return files


def forget_sign_ins(module: str, user: str | None = None) -> list[str]:
    """Remove every sign-in of one person to servers with the given name. Return the servers'
    addresses, without credentials.

    Args:
        module: the server's name.
        user: the user, or None for the person who starts the servers.

    Raises:
        SignInError: a sign-in cannot be read or removed.
    """
    forgotten: list[str] = []
    for path in sorted(folder().glob("*.json")):
        head = _read_head(path)
        if head is None or head.module != module or head.user != user:
            continue

        if head.kept_in == "keyring":
            _delete_from_keyring(path.stem, head.url)

        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SignInError(f"{path} cannot be removed: {error.strerror or error}") from None

        forgotten.append(head.url)

    return forgotten


def _read(path: Path) -> _Kept | None:
    return _parsed(path, lambda: read_own(path))


def _read_head(path: Path) -> _Kept | None:
    """Return the content of a file without the sign-in itself, which might be too large to read."""

    def read() -> bytes:
        head, has_sign_in, _ = read_own_beginning(path, _HEAD_BYTES).partition(_SIGN_IN)
        return head + b"}" if has_sign_in else head

    return _parsed(path, read)


def _parsed(path: Path, read: Callable[[], bytes]) -> _Kept | None:
    try:
        return _Kept.model_validate_json(read())
    except FileNotFoundError:
        return None
    except TrustError as error:
        raise SignInError(str(error)) from None
    except OSError as error:
        raise SignInError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError:
        raise SignInError(f"{path} does not contain a sign-in that this version can read") from None


def _delete_from_keyring(key: str, url: str) -> None:
    keyring = Keyring()
    try:
        if keyring.read(key) is not None:
            keyring.delete(key)
    except NoKeyringError:
        # Without a keyring on this machine, the stored sign-in cannot be deleted from here.
        pass
    except KeyringError as error:
        raise SignInError(f"the keyring cannot delete the sign-in to {url}: {error}") from error


def _first(error: Exception) -> str:
    """Return the first sentence of an error."""
    return (str(error) or type(error).__name__).split(". ")[0][:200]


def _take(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
