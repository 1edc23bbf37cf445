"""Identify who sends a request. Over HTTP, a bearer token identifies the caller.

A caller is a name: `local` on this machine, `user:NAME` for a named user, `token_HASH` for the
token in IDEABRIDGE_TOKEN. A caller in a profile is `CALLER profile:NAME`. A run belongs to the
caller that started it; other callers cannot see it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from starlette.requests import Request
from starlette.types import Scope

from ideabridge.bridge.bridge import TOKEN_VARIABLE as TOKEN_VARIABLE
from ideabridge.bridge.modules.client_session import ClientSession
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, in_profile, profile_of
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.server.transports.identity import IdentityProvider

Context = ServerRequestContext[Any, Any]
"""The SDK's context for a request."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The values that the SDK's server passes to every request.

    Attributes:
        caller: the caller of requests over stdio.
    """

    caller: str = LOCAL


def caller_of(context: Context) -> str:
    """Return the caller of a request."""
    request = context.request
    if isinstance(request, Request):
        return caller_in(request.scope)
    serving = context.lifespan_context
    return serving.caller if isinstance(serving, Serving) else LOCAL


def caller_in(scope: Scope) -> str:
    """Return the caller of an HTTP request, given its ASGI scope."""
    user: Any = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return user.access_token.client_id
    return LOCAL


def session_id(context: Context) -> str:
    """Return the id of an HTTP session of the handshake era, or "" on stdio and for requests
    without a session.
    """
    request = context.request
    if isinstance(request, Request):
        return request.headers.get("mcp-session-id", "")
    return ""


def client_session_of(context: Context) -> ClientSession | None:
    """Return the session of a request over HTTP, or None on stdio, where there is only one
    client.
    """
    if isinstance(context.request, Request):
        return ClientSession(session_id(context) or None)
    return None


_CLIENT_CHARACTERS: Final = 120
"""Maximum number of characters of a client's name and version."""


def client_text(context: Context, mask: Callable[[str], str]) -> str:
    """Return the client's name and version with secrets masked, or "" if it sent neither."""
    params = context.session.client_params
    if params is None:
        return ""
    text = f"{params.client_info.name} {params.client_info.version}"[: 4 * _CLIENT_CHARACTERS]
    # Mask secrets before cutting the text, because a part of a secret would not be recognised.
    return mask(text).strip()[:_CLIENT_CHARACTERS]


def client_key(context: Context) -> Hashable:
    """Return a key that identifies a client: its session or, over HTTP without a session, its
    connection.

    The user and the address are not enough, because all assistants on a machine share them.
    """
    http = context.request
    if not isinstance(http, Request):
        return "stdio"
    return ("client", caller_of(context), http.headers.get("mcp-session-id") or http.client)


class MissingScopeError(IdeabridgeError):
    """Raised when a token is valid, but lacks a scope that the configuration requires
    (`auth.scopes`).
    """


def token_caller(token: str) -> str:
    """Return the caller that a token identifies. The name of the caller does not reveal the
    token.
    """
    return f"token_{hashlib.sha256(token.encode()).hexdigest()[:16]}"


class ProfileRefusedError(IdeabridgeError):
    """Raised when a request uses a profile other than the one that its token or the server is
    restricted to.
    """


class Credentials:
    """Checks tokens: those of named users, those from an identity provider, and the one in
    IDEABRIDGE_TOKEN.

    Args:
        store: the store that contains the users. It is read for every request, so that a revoked
            token becomes invalid immediately in every process.
        token: the token in IDEABRIDGE_TOKEN or the token of the user's service, or None if there is
            none.
        caller: the caller that this token identifies, or None for the token's own caller
            (`token_caller`).
        provider: the identity provider, or None if there is none.
        profile: the profile that all requests are restricted to, or None for no restriction.
    """

    def __init__(
        self,
        store: Store,
        *,
        token: str | None = None,
        caller: str | None = None,
        provider: IdentityProvider | None = None,
        profile: str | None = None,
    ) -> None:
        self._profile = profile
        self._users = store.users
        self._token = None if token is None else token.encode()
        self._caller = caller if token is None or caller is not None else token_caller(token)
        self._provider = provider

    @property
    def are_required(self) -> bool:
        """True if requests need a token because IDEABRIDGE_TOKEN is set, there is an identity
        provider, or a named user has ever existed.
        """
        return self._token is not None or self.name_users

    @property
    def name_users(self) -> bool:
        """True if requests can come from several people because there is an identity provider or a
        named user has ever existed.
        """
        return self._provider is not None or self._users.exist()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that every token must have."""
        return () if self._provider is None else self._provider.settings.scopes

    async def verify(self, token: bytes) -> AccessToken | None:
        """Return the user that a token belongs to, or None if the token is unknown or no longer
        valid.

        Raises:
            MissingScopeError: the token is valid, but lacks one of `scopes`.
            ProviderError: the identity provider's keys are not available.
            StoreError: the users cannot be read.
            ProfileRefusedError: the token and this server are restricted to different profiles.
        """
        if (
            self._token is not None
            and self._caller is not None
            and hmac.compare_digest(token, self._token)
        ):
            caller = self.restricted(self._caller)
            return AccessToken(token="", client_id=caller, scopes=list(self.scopes))

        text = token.decode("latin-1")
        verified = self._users.verify(text)
        if verified is not None:
            user, record = verified
            caller = self.restricted(user.caller, record.profile)
            return AccessToken(token="", client_id=caller, scopes=list(self.scopes))

        identity = None if self._provider is None else await self._provider.identify(text)
        if identity is None:
            return None

        for scope in self.scopes:
            if scope not in identity.scopes:
                raise MissingScopeError(f"the token lacks the scope {scope}")

        user = self._users.of_subject(identity.issuer, identity.subject, identity.shown)
        if user.state != "active":
            return None
        profile = None if self._provider is None else self._provider.settings.profile
        return AccessToken(
            token="",
            client_id=self.restricted(user.caller, profile),
            scopes=list(identity.scopes),
            expires_at=math.ceil(identity.expires),
            subject=identity.subject,
            claims={"iss": identity.issuer},
        )

    async def still_name(self, token: bytes, caller: str) -> bool:
        """Return whether a token is still valid and still belongs to the given caller.

        The scopes of the token are not checked. Raises the same errors as `verify`, except for
        missing scopes and other profiles.
        """
        try:
            access = await self.verify(token)
            if access is None:
                return False
            return self.restricted(access.client_id, profile_of(caller)) == caller
        except (MissingScopeError, ProfileRefusedError):
            return False

    def restricted(self, caller: str, profile: str | None = None) -> str:
        """Return a caller restricted to the given profile, and to the server's profile if it has
        one.

        If `profile` is None, only the server's profile is applied.

        Raises:
            ProfileRefusedError: the caller or the server is restricted to a different profile.
        """
        profiles = {profile_of(caller), profile, self._profile} - {None}
        if len(profiles) > 1:
            names = " and ".join(sorted(repr(name) for name in profiles))
            raise ProfileRefusedError(
                "a request can use only one profile, but its address, its token and the server "
                f"specify {names}"
            )
        for name in profiles:
            return in_profile(str(name), caller)
        return caller
