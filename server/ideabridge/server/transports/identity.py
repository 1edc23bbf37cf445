"""Determine which user an access token (JWT) from the configured identity provider belongs to.

A token is accepted if it names this issuer and this audience, and is signed with one of the
provider's keys and an allowed asymmetric algorithm. Addresses in a token are ignored: keys come
from the configured address, or from the address in the issuer's own metadata.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx
import jwt

from ideabridge.bridge.configuration import AuthSettings
from ideabridge.tools.encoding import JSON, JSONObject, decode, objects_in
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import member, read_as

logger = logging.getLogger(__name__)

MAX_TOKEN: Final = 16 * 1024
"""Maximum length of a token, in characters."""

FRESH_SECONDS: Final = 3600.0
"""How long, in seconds, keys are used before they are fetched again. Until then, a key that the
provider has withdrawn is still accepted.
"""

STALE_SECONDS: Final = 86_400.0
"""How long, in seconds, cached keys remain valid while the provider cannot be reached."""

PAUSE_SECONDS: Final = 30.0
"""Minimum time, in seconds, between two fetches, so that tokens with invented key ids cannot flood
the provider with requests."""

_TIMEOUT: Final = 10.0
_MOST_ANSWER_BYTES: Final = 256 * 1024
_MOST_KEYS: Final = 64
_LEEWAY: Final = 30
"""Maximum difference, in seconds, between the provider's clock and this machine's."""

_MOST_TEXT: Final = 255
_KINDS: Final = {
    "RS": ("RSA", None),
    "PS": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
}


def _can_sign(key: JSONObject, algorithm: str) -> bool:
    """Return whether a key is for signatures with this algorithm."""
    kind, curve = _KINDS.get(algorithm, _KINDS.get(algorithm[:2], ("OKP", "Ed25519")))
    if key.get("kty") != kind:
        return False
    if curve is not None and key.get("crv") != curve:
        return False
    return key.get("alg") in (None, algorithm) and key.get("use") in (None, "sig")


class ProviderError(IdeabridgeError):
    """Raised when the identity provider's keys are not available."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The bearer of a token.

    Attributes:
        issuer: the provider.
        subject: the user's id at the provider. The issuer and the subject together identify the
            user.
        shown: the user's name at the provider, for display.
        scopes: the scopes of the token.
        expires: the time when the token expires, in seconds since 1970.
    """

    issuer: str
    subject: str
    shown: str
    scopes: tuple[str, ...]
    expires: float


class IdentityProvider:
    """The configured identity provider (`auth`) and its keys. `clock`, a monotonic clock in
    seconds, measures the age of the keys.
    """

    def __init__(self, settings: AuthSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._keys: list[JSONObject] = []
        self._fetched = self._tried = -math.inf
        self._failure = ""
        self._lock = anyio.Lock()

    async def identify(self, token: str) -> Identity | None:
        """Return the bearer of a token, or None if the token is invalid or is for another issuer or
        audience.

        Raises:
            ProviderError: the provider's keys are not available.
        """
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            return None

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None

        algorithm = header.get("alg")
        kid = header.get("kid")
        # `crit` names extensions that the recipient must understand. This server understands none,
        # so it rejects the token.
        if (
            algorithm not in self.settings.algorithms
            or "crit" in header
            or not isinstance(kid, str | None)
        ):
            return None

        key = await self._key(kid, algorithm)
        if key is None:
            return None

        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(cast("dict[str, Any]", key), algorithm=algorithm),
                algorithms=[algorithm],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=_LEEWAY,
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "enforce_minimum_key_length": True,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
            return None

        return self._identity(claims)

    def _identity(self, claims: dict[str, Any]) -> Identity | None:
        # RFC 9068 calls the claim `scope`; Microsoft and Okta call it `scp`.
        scopes = claims.get("scope", claims.get("scp"))
        name = claims.get(self.settings.name_claim)
        read = read_as(_Claims, {"sub": claims["sub"], "name": name, "scopes": scopes})
        if not 0 < len(read.subject) <= _MOST_TEXT:
            return None

        return Identity(
            self.settings.issuer,
            read.subject,
            read.name or read.subject,
            (*read.words.split(), *read.scopes),
            float(claims["exp"]),
        )

    # -- keys --------------------------------------------------------------------------------------

    async def _key(self, kid: str | None, algorithm: str) -> JSONObject | None:
        """Return the key with this id, or the only suitable key if the token names none."""
        keys = self._suitable(kid, algorithm)
        if self._clock() - self._fetched > FRESH_SECONDS or len(keys) != 1:
            await self._refresh()
            keys = self._suitable(kid, algorithm)

        if self._clock() - self._fetched > STALE_SECONDS:
            raise ProviderError(
                f"the keys of the identity provider are not available: {self._failure}"
            )
        return keys[0] if len(keys) == 1 else None

    def _suitable(self, kid: str | None, algorithm: str) -> list[JSONObject]:
        """Return the keys with this id that can have signed a token with this algorithm."""
        keys = [key for key in self._keys if _can_sign(key, algorithm)]
        if kid is None:
            return keys
        return [key for key in keys if key.get("kid") == kid]

    async def _refresh(self) -> None:
        async with self._lock:
            now = self._clock()
            if now - self._tried < PAUSE_SECONDS:
                return
            self._tried = now
            try:
                with anyio.fail_after(_TIMEOUT):
                    keys = await self._fetch_keys()
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, IdeabridgeError) as error:
                self._failure = str(error) or type(error).__name__
                logger.error(
                    "ideabridge: keys of %s: %s", self.settings.issuer, self._failure[:300]
                )
                return
            self._keys = keys
            self._fetched = self._clock()

    async def _fetch_keys(self) -> list[JSONObject]:
        async with httpx.AsyncClient(follow_redirects=False, timeout=_TIMEOUT) as client:
            url = self.settings.jwks_url or await self._discover(client)
            keys = read_as(_KeySet, await _object(client, url)).keys
        if keys is None:
            raise ProviderError(f"{url}: expected a JSON Web Key Set, found no list `keys`")
        return objects_in(keys[:_MOST_KEYS])

    async def _discover(self, client: httpx.AsyncClient) -> str:
        """Look up the address of the keys in the issuer's metadata, using OpenID Connect Discovery
        or, if that fails, RFC 8414.
        """
        parts = urlsplit(self.settings.issuer)
        path = parts.path.rstrip("/")
        addresses = (
            f"{path}/.well-known/openid-configuration",
            f"/.well-known/oauth-authorization-server{path}",
        )
        failure = ""
        for place in addresses:
            url = urlunsplit((parts.scheme, parts.netloc, place, "", ""))
            try:
                metadata = await _object(client, url)
            except ProviderError as error:
                failure = failure or str(error)
                continue

            if metadata.get("issuer") != self.settings.issuer:
                raise ProviderError(
                    f"{url}: the metadata there belongs to a different issuer, "
                    f"{str(metadata.get('issuer'))[:200]!r}"
                )

            keys = metadata.get("jwks_uri")
            try:
                # Apply the same rules as to an address in the configuration.
                return (
                    AuthSettings(
                        issuer=self.settings.issuer, audience="any", jwks_url=str(keys)
                    ).jwks_url
                    or ""
                )
            except ValueError:
                raise ProviderError(
                    f"{url}: jwks_uri: expected an https address, found {str(keys)[:200]!r}"
                ) from None

        raise ProviderError(failure)


@dataclass(frozen=True, slots=True)
class _Claims:
    """The claims in a token that identify its bearer.

    Attributes:
        words: the scopes, separated by spaces, if the claim is a string.
        scopes: the scopes, if the claim is a list.
    """

    subject: str = field(default="", metadata=member("sub"))
    name: str = ""
    words: str = field(default="", metadata=member("scopes"))
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _KeySet:
    """A JSON Web Key Set."""

    keys: list[JSON] | None = None


async def _object(client: httpx.AsyncClient, url: str) -> JSONObject:
    """Return the JSON object at an address.

    Raises:
        ProviderError: the response is not a JSON object, or is too large.
    """
    async with client.stream("GET", url, headers={"accept": "application/json"}) as answer:
        if answer.status_code != 200:
            raise ProviderError(f"{url}: the server responded with status {answer.status_code}")
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _MOST_ANSWER_BYTES:
                raise ProviderError(
                    f"{url}: the response is larger than {_MOST_ANSWER_BYTES:,} bytes"
                )

    value = decode(bytes(body), what=url)
    if not isinstance(value, dict):
        raise ProviderError(f"{url}: expected a JSON object")
    return value
