"""Obtain access tokens and add them to the requests to a server (OAuth 2.1 with the MCP SDK).

    Authorization       one for each server over HTTP; an `httpx2.Auth`
      OAuthClientProvider   the SDK's flow: discovery, registration, PKCE, exchange, refresh
      SignInFile            stores the tokens
      Person                opens an address and returns the redirect address; None in a server
      DevicePerson          alternative to Person: enters a code in a browser on another device

The SDK's provider holds one lock from a request until its answer, which would make calls wait for
each other. So the provider runs only when it is needed: when a token has expired, or when the
server has answered 401 or `insufficient_scope`. If there is no person, the provider only renews
tokens, and obtains tokens that do not require a person. If that is not enough, the error message
names the command for signing in.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, Literal, Protocol
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx2
from mcp.client.auth import (
    AuthorizationCodeResult,
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
)
from mcp.client.auth.utils import extract_field_from_www_auth, issuers_match, union_scopes
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from ideabridge.bridge.modules.device import DEVICE_GRANT, DevicePerson, TemporaryError, endpoint_of
from ideabridge.bridge.modules.errors import ModuleSignInError, shown
from ideabridge.bridge.modules.http import certificates
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.sdk import waiting_on_a_person
from ideabridge.bridge.modules.settings import AuthorizationSettings, Launch
from ideabridge.bridge.modules.sign_in_answers import (
    fault_of_server,
    repair_resource,
    repair_server,
    repair_tokens,
)
from ideabridge.bridge.modules.sign_ins import (
    SignIn,
    SignInError,
    SignInFile,
    login_command,
    needed,
)
from ideabridge.bridge.secrets import Secrets

_TOKEN: Final = re.compile(r"[!-~]+")
"""Matches an access token. This pattern allows more characters than RFC 6750 does."""

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_REFUSALS: Final = (400, 401)
"""The HTTP statuses with which an authorization server permanently refuses to renew a token."""
_SUCCESSES: Final = (200, 201)
_SERVER_METADATA: Final = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
)
"""Parts of the paths where the SDK looks for the metadata of an authorization server."""
_MOST_TRIES: Final = 3
"""The maximum number of times that a request is sent again with a different token."""
_REQUEST_SECONDS: Final = 20.0
"""Timeout of one request to an authorization server, in seconds."""
_EARLY: Final = 10.0
"""How many seconds before its expiry a token is renewed, so that requests arrive in time."""
_MOST_ANSWER_BYTES: Final = 1024 * 1024
"""The maximum size, in bytes, of a response from an authorization server."""
MOST_SCOPES: Final = 100
"""The maximum number of scopes that a server can demand, including scopes that were granted or
demanded before.
"""

LONGEST_SCOPE: Final = 500
"""The maximum length, in characters, of one scope."""

_PAST: Final = 1.0
_SHOWN_CHARACTERS: Final = 400
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_Method = Literal["client_secret_basic", "client_secret_post"]

# Drop the SDK's warnings, because it also raises an error for each of them, and that error is
# reported with the name of the server.
logging.getLogger("mcp.client.auth.oauth2").addFilter(
    lambda record: record.levelno < logging.WARNING
)


class Person(Protocol):
    """Someone who can sign in with a browser."""

    @property
    def redirect_uri(self) -> str:
        """The address on this machine to which the authorization server redirects the browser."""
        ...

    async def authorize(self, url: str) -> str:
        """Let the person open an address, and return the address to which the browser was
        redirected.

        Raises:
            SignInError: the browser was not redirected.
        """
        ...


class Authorization(httpx2.Auth):
    """One person's tokens for one server. Any number of requests can use an instance at the same
    time.

    Args:
        module: the server's name.
        launch: the server's address, headers and `auth`. Requests to a different origin do not get
            a token. If headers are configured, a refusal is assumed to be about them, unless it
            mentions tokens.
        secrets: masks every token in what is shown.
        file: the file with the person's sign-in, or None to send requests without a token.
        person: signs in when the server asks for it, with a browser on this machine or on another
            device, or None if nobody can sign in. If there is such a person, earlier tokens are not
            used.
        at_once: True to sign in before the server asks for it.

    Attributes:
        signed_in: where the tokens were stored when a person signed in, or None if nobody has
            signed in yet.
        oddities: notes on how responses from authorization servers were repaired.
    """

    def __init__(
        self,
        module: str,
        launch: Launch,
        *,
        secrets: Secrets,
        file: SignInFile | None,
        person: Person | DevicePerson | None = None,
        at_once: bool = False,
    ) -> None:
        self._module = module
        self._url = launch.url
        self._settings = launch.auth or AuthorizationSettings()
        self._secrets = secrets
        self._has_headers = bool(launch.headers)
        self._person = person
        self._at_once = at_once and person is not None
        self._origin = _origin(httpx2.URL(launch.url))
        self._file = file
        self._sign_in = SignIn()
        self._loaded = False
        self._asked: set[str] = set()
        self._holds = False
        # The token from the last sign-in, or None once the server has accepted it.
        self._fresh: str | None = None
        self._failure: ModuleSignInError | None = None
        self._back = ""
        self._lock = anyio.Lock()
        # The number of requests that are waiting for a token, and when the last such wait ended.
        self._requests_waiting = 0
        self._last_wait = -math.inf
        self.signed_in: str | None = None
        self.oddities = Oddities()
        # The issuer exactly as the authorization server writes it; see `repair_server`.
        self._written_issuer: str | None = None
        # The reason why the authorization server's metadata could not be read during this sign-in.
        self._server_fault: str | None = None
        self._provider = self._make_provider()

    def _make_provider(self) -> OAuthClientProvider:
        settings = self._settings
        if settings.grant == "client_credentials":
            # Import this only when it is needed, because it loads the library for signatures.
            from mcp.client.auth.extensions.client_credentials import (
                ClientCredentialsOAuthProvider,
                PrivateKeyJWTOAuthProvider,
                SignedJWTParameters,
            )

            client = settings.client_id or ""
            if settings.private_key is not None:
                signed = SignedJWTParameters(
                    issuer=client,
                    subject=client,
                    signing_key=settings.private_key,
                    signing_algorithm=settings.algorithm,
                )
                sign = self._signing(signed.create_assertion_provider())
                return PrivateKeyJWTOAuthProvider(
                    self._url, self, client, sign, settings.scope, settings.issuer
                )

            return ClientCredentialsOAuthProvider(
                self._url,
                self,
                client,
                settings.client_secret or "",
                self._method,
                settings.scope,
                settings.issuer,
            )

        metadata = OAuthClientMetadata(redirect_uris=self._redirect_uris, client_name="ideabridge")
        if isinstance(self._person, DevicePerson):
            metadata.grant_types = [DEVICE_GRANT, "refresh_token"]
            metadata.response_types = []
            return _DeviceProvider(
                self,
                self._person,
                settings.issuer,
                self._url,
                metadata,
                self,
                None,
                None,
                settings.client_metadata_url,
            )

        return _PersonalProvider(
            settings.issuer,
            self._url,
            metadata,
            self,
            self._open,
            self._returned,
            settings.client_metadata_url,
        )

    def _signing(self, sign: Callable[[str], Awaitable[str]]) -> Callable[[str], Awaitable[str]]:
        from jwt import PyJWTError

        async def signed(audience: str) -> str:
            try:
                # Pass the issuer exactly as the server writes it, because the server might compare
                # the audience with its own name character by character.
                return await sign(self._written_issuer or audience)
            except (PyJWTError, ValueError, TypeError):
                problem = (
                    f"{self._place}.auth.private_key is not a PEM key for "
                    f"{self._settings.algorithm}"
                )
                raise OAuthFlowError(problem) from None

        return signed

    @property
    def _redirect_uris(self) -> list[AnyUrl] | None:
        person = self._person
        if person is None or isinstance(person, DevicePerson):
            return None
        return [AnyUrl(person.redirect_uri)]

    @property
    def _method(self) -> _Method:
        is_in_header = self._settings.secret_in == "header"  # noqa: S105 - a place, not a secret
        return "client_secret_basic" if is_in_header else "client_secret_post"

    @property
    def _place(self) -> str:
        return f"mcpServers.{self._module}"

    @property
    def _is_personal(self) -> bool:
        return self._settings.grant == "authorization_code"

    @property
    def has_token(self) -> bool:
        """Whether there is a token to send with requests."""
        return self._provider.context.current_tokens is not None

    async def needs_person(self) -> bool:
        """Return whether a person must sign in before requests can carry a token.

        This is the case if nobody is signed in, or if the token has expired and cannot be renewed.

        Raises:
            ModuleSignInError: the sign-in cannot be read.
        """
        if not self._is_personal:
            return False
        await self._load()
        context = self._provider.context
        if context.current_tokens is None:
            return True
        ends = context.token_expiry_time
        has_expired = ends is not None and time.time() > ends
        return has_expired and not context.can_refresh_token()

    @property
    def waited_until(self) -> float:
        """Until when requests waited for a token, by the event loop's clock: the current time if a
        request is still waiting, `-inf` if none has ever waited.
        """
        return anyio.current_time() if self._requests_waiting else self._last_wait

    @contextmanager
    def _waiting(self) -> Generator[None]:
        self._requests_waiting += 1
        try:
            yield
        finally:
            self._requests_waiting -= 1
            self._last_wait = anyio.current_time()

    # -- requests to the server --------------------------------------------------------------------

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a token. If the server refuses it, get another token and retry.

        Raises:
            ModuleSignInError: the request was not sent or was refused, and there is no other token.
        """
        if _origin(request.url) != self._origin:
            yield request
            return

        await self._load()
        context = self._provider.context
        refused: str | None = None
        may_refresh = True
        if self._at_once:
            challenge = httpx2.Response(_UNAUTHORIZED, request=request)
        else:
            challenge = None

        for left in range(_MOST_TRIES, -1, -1):
            if challenge is not None or self._is_due():
                with self._waiting():
                    async with self._lock:
                        await self._renew(request, challenge, refused, may_refresh=may_refresh)
                may_refresh = may_refresh and challenge is None

            tokens = context.current_tokens
            refused = None if tokens is None else tokens.access_token
            if refused is not None:
                request.headers["Authorization"] = f"Bearer {refused}"
            else:
                request.headers.pop("Authorization", None)

            challenge = yield request
            if challenge.status_code != _UNAUTHORIZED and refused == self._fresh:
                self._fresh = None

            if not left or not self._is_challenge(challenge):
                return
            # The body of the refusal is read before the request is sent again, so limit its size.
            challenge.stream = _Bounded(challenge.stream)

    def _is_challenge(self, response: httpx2.Response) -> bool:
        """Return whether the server refused the request but might accept it with another token."""
        if response.status_code == _UNAUTHORIZED:
            # If headers are configured, the server might be refusing a key in one of the headers.
            return (
                not self._has_headers
                or "bearer" in response.headers.get("www-authenticate", "").lower()
            )

        if (
            response.status_code != _FORBIDDEN
            or extract_field_from_www_auth(response, "error") != "insufficient_scope"
        ):
            return False

        # Some servers do not say which scope they want.
        scopes = set(self._demanded(response, self._asked) or [""])
        if scopes <= self._asked and (self._person is not None or not self._is_personal):
            return False  # the module refuses even with a token for these scopes
        self._asked |= scopes
        return True

    def _demanded(self, challenge: httpx2.Response, before: Iterable[str]) -> list[str]:
        """Return the scopes that the server requires.

        Args:
            challenge: the server's refusal.
            before: the scopes that were required or granted before. They are stored together with
                the new scopes.

        Raises:
            ModuleSignInError: there are too many scopes, or one of them is too long.
        """
        scopes = (extract_field_from_www_auth(challenge, "scope") or "").split()
        longest = max(map(len, scopes), default=0)
        if longest > LONGEST_SCOPE:
            raise ModuleSignInError(
                self._module,
                f"server {self._module!r} demands a scope of {longest:,} characters; the limit is "
                f"{LONGEST_SCOPE}",
            )

        count = len({*before, *scopes})
        if count > MOST_SCOPES:
            raise ModuleSignInError(
                self._module,
                f"server {self._module!r} has required {count:,} scopes so far; the limit is "
                f"{MOST_SCOPES}",
            )

        return scopes

    def _is_due(self) -> bool:
        """Return whether the token can be renewed and has expired or soon will."""
        context = self._provider.context
        tokens = context.current_tokens
        ends = context.token_expiry_time
        if tokens is None or ends is None or not context.can_refresh_token():
            return False
        return time.time() > ends - min(_EARLY, (tokens.expires_in or 0) / 2)

    # -- getting tokens ----------------------------------------------------------------------------

    async def _renew(
        self,
        request: httpx2.Request,
        challenge: httpx2.Response | None,
        refused: str | None,
        *,
        may_refresh: bool,
    ) -> None:
        """Get a new token for a request that was refused, or whose token has expired.

        Args:
            request: the request to the server.
            challenge: the server's refusal of the request, or None if the token has expired.
            refused: the token that was refused, or None if the request had no token.
            may_refresh: whether the token may be renewed. False if the server has refused a renewed
                token.

        Raises:
            ModuleSignInError: no other token can be obtained.
        """
        if self._failure is not None:
            raise self._failure

        context = self._provider.context
        if self._has_newer(refused, challenge):
            return

        steps_up = challenge is not None and challenge.status_code == _FORBIDDEN
        try:
            async with httpx2.AsyncClient(
                timeout=_REQUEST_SECONDS, verify=certificates()
            ) as client:
                if may_refresh and not steps_up and context.can_refresh_token():
                    async with self._locked():
                        await self._refresh(client, request, challenge, refused)
                    if context.is_token_valid():
                        return

                if challenge is None:
                    return  # the module's answer will say what is needed
                if self._is_personal and self._person is None:
                    await self._load(again=True)
                    if self._has_newer(refused, challenge):
                        return  # a person has signed in in the meantime
                    await self._want(challenge)
                    raise self._needed(challenge)

                if refused is not None and refused == self._fresh:
                    raise OAuthFlowError(
                        "it rejects the token that its authorization server has just issued"
                    )

                self._at_once = False
                self._server_fault = None
                if not steps_up:
                    context.clear_tokens()

                async with aclosing(self._provider.async_auth_flow(request)) as flow:
                    await anext(flow)  # the request itself, which has already been sent
                    response = self._scoped(challenge)
                    while (outgoing := await flow.asend(response)) is not request:
                        response = await self._answer(client, outgoing, response)

                tokens = context.current_tokens
                self._fresh = None if tokens is None else tokens.access_token
        except (OAuthFlowError, SignInError, ValueError, OverflowError, httpx2.InvalidURL) as error:
            # The SDK does not catch the errors that malformed responses and addresses cause.
            failure = self._failed(error)
            if self._person is not None:
                self._failure = failure  # a person is asked only once
            raise failure from None

    async def _refresh(
        self,
        client: httpx2.AsyncClient,
        request: httpx2.Request,
        challenge: httpx2.Response | None,
        refused: str | None,
    ) -> None:
        """Renew the access token, unless another process has already done so. If the renewal fails,
        drop the token.
        """
        context = self._provider.context
        if self._person is None:
            await self._load(again=True)
            if self._has_newer(refused, challenge) or not context.can_refresh_token():
                return

        # The old tokens no longer work, so do not lose the new ones if the call is cancelled now.
        with anyio.CancelScope(shield=True):
            tried = context.current_tokens
            context.token_expiry_time = _PAST  # the SDK renews what has expired
            status = 0
            async with aclosing(self._provider.async_auth_flow(request)) as flow:
                outgoing = await anext(flow)
                while outgoing is not request:
                    response = await self._send(client, outgoing)
                    status = response.status_code
                    if status in _SUCCESSES:
                        response = _with_content(
                            response, repair_tokens(response.content, self.oddities.note)
                        )

                    outgoing = await flow.asend(response)

            if context.current_tokens is None and self._is_personal:
                # The server might have revoked the earlier tokens because a person has signed in
                # again.
                await self._load(again=True)
                if status not in _REFUSALS:
                    raise TemporaryError(
                        f"its authorization server answered HTTP {status}; ideabridge keeps the "
                        "sign-in"
                    )
                if self._sign_in.tokens == tried:
                    context.clear_tokens()
                    await self._keep(
                        self._sign_in.model_copy(update={"tokens": None, "expires_at": None})
                    )

    async def _answer(
        self, client: httpx2.AsyncClient, request: httpx2.Request, before: httpx2.Response
    ) -> httpx2.Response:
        """Return the response to a request that the SDK makes during a sign-in. `before` is the
        response to the SDK's previous request.
        """
        if request.method == "POST" and isinstance(self._provider, _DeviceProvider):
            response = await self._provider.answer(request, before, partial(self._send, client))
        else:
            response = await self._send(client, request)

        if response.status_code not in _SUCCESSES:
            return response

        note = self.oddities.note
        if request.method == "POST":
            return _with_content(response, repair_tokens(response.content, note))
        if not any(part in request.url.path for part in _SERVER_METADATA):
            return _with_content(response, repair_resource(response.content, note))

        expected = self._provider.context.auth_server_url
        content, self._written_issuer = repair_server(response.content, expected, note)
        self._server_fault = fault_of_server(content) or self._server_fault
        return _with_content(response, content)

    async def _send(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Send a request to an authorization server, or for the MCP server's metadata, and read the
        response.

        Raises:
            OAuthFlowError: the request's address is not allowed, the server does not belong to the
                configured issuer, or the response is too long.
            TemporaryError: the server cannot be reached or does not respond in time.
        """
        self.check_address(str(request.url))
        if request.method == "POST":
            self._check_issuer()

        host = request.url.host
        try:
            with anyio.fail_after(_REQUEST_SECONDS):
                request.extensions = {**request.extensions, "timeout": client.timeout.as_dict()}
                response = await client.send(request, stream=True)
                response.stream = _Bounded(response.stream)
                try:
                    await response.aread()
                finally:
                    await response.aclose()
        except TimeoutError:
            raise TemporaryError(f"{host} did not answer within {_REQUEST_SECONDS:g} s") from None
        except httpx2.RequestError as error:
            raise TemporaryError(
                f"{host} cannot be reached: {error or type(error).__name__}"
            ) from None

        return response

    def _has_newer(self, refused: str | None, challenge: httpx2.Response | None) -> bool:
        """Return whether another request has obtained a valid token since `refused` was refused."""
        context = self._provider.context
        tokens = context.current_tokens
        if tokens is None or not context.is_token_valid() or self._is_due():
            return False
        return challenge is None or tokens.access_token != refused

    def check_address(self, url: str) -> None:
        """Check that it is safe to send requests and people to an address.

        The address must use https, unless it is on this machine or on the server's host.

        Raises:
            OAuthFlowError: the address is not allowed.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "https" and not (
            parts.scheme == "http" and (host in _LOOPBACK or host == urlsplit(self._url).hostname)
        ):
            raise OAuthFlowError(
                f"the server returned the address {url[:200]}; expected an https address"
            )

    def _check_issuer(self) -> None:
        """Check that credentials and people are sent only to the configured authorization server,
        and only if its metadata can be read.

        Otherwise, the SDK would use addresses on the MCP server's host.
        """
        issuer = self._settings.issuer
        metadata = self._provider.context.oauth_metadata
        if metadata is None and self._server_fault is not None:
            raise OAuthFlowError(self._server_fault)
        if issuer is None or (metadata is not None and issuers_match(str(metadata.issuer), issuer)):
            return

        actual = "no authorization server" if metadata is None else str(metadata.issuer)
        raise OAuthFlowError(
            f"the server returned {actual}, but {self._place}.auth.issuer is {issuer}"
        )

    def _scoped(self, challenge: httpx2.Response) -> httpx2.Response:
        """Return the challenge, extended with the configured scopes and those granted or required
        before.

        Raises:
            ModuleSignInError: the server requires too many scopes.
        """
        self._demanded(challenge, (self._sign_in.scope or "").split())
        named = extract_field_from_www_auth(challenge, "scope")
        scope = union_scopes(self._sign_in.scope, self._settings.scope or named)
        if scope is None or scope == named:
            return challenge

        words = " ".join(dict.fromkeys(_SCOPE.findall(scope)))
        parts = [f'scope="{words}"']
        for field in ("error", "resource_metadata"):
            if (value := extract_field_from_www_auth(challenge, field)) is not None:
                parts.append(f'{field}="{value}"')

        headers = {"WWW-Authenticate": f"Bearer {', '.join(parts)}"}
        return httpx2.Response(challenge.status_code, headers=headers, request=challenge.request)

    # -- asking a person to sign in ----------------------------------------------------------------

    async def _open(self, url: str) -> None:
        assert self._person is not None
        assert not isinstance(self._person, DevicePerson)
        self.check_address(url)
        self._check_issuer()
        self._back = await self._person.authorize(url)

    async def _returned(self) -> AuthorizationCodeResult:
        fields = parse_qs(urlsplit(self._back).query)
        self._back = ""

        def one(name: str) -> str | None:
            return fields.get(name, [None])[0]

        if (error := one("error")) is not None and "code" not in fields:
            raise OAuthFlowError(f"the authorization server answered {error[:100]!r}")

        issuer = one("iss")
        metadata = self._provider.context.oauth_metadata
        if issuer is not None and metadata is not None and issuer == self._written_issuer:
            # The SDK compares this issuer with the one in the metadata, which `repair_server` might
            # have changed, and the protocol allows no normalisation: even an additional slash is a
            # mismatch. So if the server wrote the same issuer in both places, pass on the one in
            # the metadata.
            issuer = str(metadata.issuer)

        return AuthorizationCodeResult(code=one("code") or "", state=one("state"), iss=issuer)

    @property
    def _user(self) -> str | None:
        user = None if self._file is None else self._file.user
        return None if user is None else user.name

    @property
    def command(self) -> str:
        """The command that this user runs to sign in."""
        return login_command(self._module, self._user)

    # -- errors ------------------------------------------------------------------------------------

    def _needed(self, challenge: httpx2.Response) -> ModuleSignInError:
        more = " again" if self._sign_in.client is not None else ""
        if challenge.status_code == _FORBIDDEN:
            scope = extract_field_from_www_auth(challenge, "scope")
            more = f" for more ({shown(scope, self._secrets, 200)})" if scope else " for more"
        return ModuleSignInError(self._module, needed(self._module, self._user, more))

    def _failed(self, error: Exception) -> ModuleSignInError:
        reason = " ".join(str(error).split())
        origin = error.__cause__ if error.__suppress_context__ else error.__context__
        if isinstance(error, OverflowError):
            reason = "an answer has a number that is too large"
        elif isinstance(error, ValidationError) or isinstance(origin, ValidationError):
            # pydantic's message quotes the response, which can contain tokens.
            reason = "an answer does not follow OAuth"
        elif isinstance(error, ValueError | httpx2.InvalidURL):
            reason = f"an address is malformed: {reason}"

        if isinstance(error, OAuthRegistrationError):
            if self._provider.context.oauth_metadata is None:
                reason = (
                    "it names no authorization server. If it requires a token, write the token "
                    f"into {self._place}.headers"
                )
            else:
                reason += (
                    ". If it does not register clients automatically, write the id of a client "
                    f"that you registered there into {self._place}.auth"
                )

        shown_reason = shown(reason, self._secrets, _SHOWN_CHARACTERS)
        text = f"server {self._module!r} cannot be signed in to: {shown_reason}"
        return ModuleSignInError(self._module, text, lasting=not isinstance(error, TemporaryError))

    # -- storing sign-ins --------------------------------------------------------------------------

    async def _load(self, *, again: bool = False) -> None:
        """Read the sign-in to this server from its file, unless it was already read. If `again` is
        set, always read it.
        """
        if (self._loaded and not again) or not self._is_personal or self._file is None:
            return

        try:
            stored = await anyio.to_thread.run_sync(self._file.read, abandon_on_cancel=True)
        except SignInError as error:
            raise self._failed(error) from None

        sign_in = stored or SignIn()
        self._loaded = True
        sign_in.learn(self._module, self._secrets)
        self._sign_in = sign_in
        settings = self._settings
        context = self._provider.context
        client = sign_in.client
        if self._person is not None:
            return
        if client is None:
            context.current_tokens = None  # Someone has signed out.
            return

        requested = settings.client_id or settings.client_metadata_url
        if (requested is not None and client.client_id != requested) or (
            settings.issuer is not None and not issuers_match(client.issuer or "", settings.issuer)
        ):
            return  # the configuration now names another client or issuer

        context.current_tokens = sign_in.tokens
        context.token_expiry_time = sign_in.expires_at
        context.client_info = await self.get_client_info()
        context.oauth_metadata = sign_in.server
        context.protected_resource_metadata = sign_in.resource

    async def _want(self, challenge: httpx2.Response) -> None:
        """Remember the scopes that the server requires, for the next sign-in.

        Raises:
            ModuleSignInError: the server requires too many scopes.
        """
        if challenge.status_code != _FORBIDDEN or self._file is None:
            return
        scopes = self._demanded(challenge, (self._sign_in.scope or "").split())
        requested = union_scopes(self._sign_in.scope, " ".join(scopes))
        if requested and requested != self._sign_in.scope:
            await self._keep(self._sign_in.model_copy(update={"scope": requested}))

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        """Hold the lock of the file, unless this request already holds it."""
        if self._file is None or self._holds:
            yield
            return
        async with self._file.lock():
            self._holds = True
            try:
                yield
            finally:
                self._holds = False

    async def _keep(self, sign_in: SignIn) -> str:
        assert self._file is not None  # If there is no file, there are no tokens.
        self._sign_in = sign_in
        sign_in.learn(self._module, self._secrets)
        return await anyio.to_thread.run_sync(self._file.write, sign_in)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens to the SDK."""
        return self._provider.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens that the SDK obtained, with what is needed to renew them.

        Raises:
            OAuthFlowError: the token cannot be sent in a header.
        """
        if not _TOKEN.fullmatch(tokens.access_token):
            self._provider.context.clear_tokens()
            raise OAuthFlowError(
                "its authorization server issued a token that cannot be sent in a header"
            )

        context = self._provider.context
        client = context.client_info
        if client is not None and self._settings.client_id is not None:
            client = client.model_copy(update={"client_secret": None})  # the secret is configured

        sign_in = SignIn(
            tokens=tokens,
            expires_at=context.token_expiry_time if tokens.expires_in is not None else None,
            scope=tokens.scope,
            client=client,
            server=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        if not self._is_personal:
            # Each process gets its own tokens, so do not store them.
            self._sign_in = sign_in
            sign_in.learn(self._module, self._secrets)
            return

        # Take the lock, because another process that is renewing the tokens of an earlier sign-in
        # would otherwise overwrite the new ones.
        async with self._locked():
            try:
                place = await self._keep(sign_in)
            except SignInError:
                if self._person is not None:
                    # Forget the tokens. Otherwise, this process would say that the person is signed
                    # in, although no other process has the tokens.
                    context.clear_tokens()
                raise

        if self._person is not None:
            self.signed_in = place

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the OAuth client to the SDK: the configured one, or else the registered one."""
        settings = self._settings
        if settings.client_id is None:
            client = self._provider.context.client_info
            if client is None and self._person is None:
                return self._sign_in.client
            return client

        return OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            redirect_uris=self._redirect_uris,
            token_endpoint_auth_method="none" if settings.client_secret is None else self._method,
            issuer=settings.issuer,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Mask the secret of the OAuth client that the SDK has registered. The client itself is
        stored later, together with the tokens.
        """
        self.hide(client_info.client_secret or "")

    def hide(self, value: str) -> None:
        """Mask a value that could be used to obtain tokens."""
        self._secrets.add(f"{self._module} token", value, certain=True)


class _PersonalProvider(OAuthClientProvider):
    """The SDK's provider, which prefers the configured authorization server if there are
    several.
    """

    def __init__(self, issuer: str | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._issuer = issuer

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self._issuer
        return next(
            (
                server
                for server in advertised
                if issuer is not None and issuers_match(server, issuer)
            ),
            advertised[0],
        )


class _DeviceProvider(_PersonalProvider):
    """The SDK's provider for a sign-in on another device, where a person enters a code (RFC 8628).

    Args:
        authorization: sends the requests, checks addresses and masks secrets.
        person: enters the code.
        arguments: the arguments for `_PersonalProvider`.
    """

    def __init__(self, authorization: Authorization, person: DevicePerson, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._authorization = authorization
        self._person = person
        self._endpoint = ""
        # The metadata that named the endpoint. Keep it, because the MCP server might later name a
        # different one.
        self._endpoint_of: OAuthMetadata | None = None
        self._for_tokens: httpx2.Request | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        """Return the request for tokens, without the code. `answer` intercepts it and gets the
        tokens itself.
        """
        self._for_tokens = httpx2.Request("POST", self._get_token_endpoint())
        return self._for_tokens

    async def answer(
        self,
        request: httpx2.Request,
        before: httpx2.Response,
        send: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
    ) -> httpx2.Response:
        """Return the response to a POST from the SDK that registers a client or asks for the
        person's tokens.

        Args:
            request: the POST.
            before: the response to the SDK's previous request.
            send: sends a request.

        Raises:
            OAuthFlowError: the server does not offer device sign-in, or nobody signs in.
        """
        metadata = self.context.oauth_metadata
        if metadata is None or metadata != self._endpoint_of:
            self._endpoint = self._read_endpoint(before)
            self._endpoint_of = metadata

        if request is not self._for_tokens:
            return await send(request)

        scope = self.context.client_metadata.scope
        begin = self._form(self._endpoint, {} if scope is None else {"scope": scope})

        async def ask(code: str) -> httpx2.Response:
            self._authorization.hide(code)
            return await send(
                self._form(str(request.url), {"grant_type": DEVICE_GRANT, "device_code": code})
            )

        # Show the host of the issuer rather than that of the endpoint, because a server could
        # choose an endpoint whose host looks like that of the page.
        server = "" if metadata is None else urlsplit(str(metadata.issuer)).hostname or ""
        with waiting_on_a_person():
            return await self._person.sign_in(
                lambda: send(begin), ask, self._authorization.check_address, server
            )

    def _read_endpoint(self, response: httpx2.Response) -> str:
        metadata = self.context.oauth_metadata
        if metadata is None:
            raise OAuthRegistrationError("it names no authorization server")
        # Read the document again, because the SDK, which reads it just before its first POST, keeps
        # only the fields that it knows.
        if OAuthMetadata.model_validate_json(response.content) != metadata:
            raise OAuthFlowError("the metadata of the authorization server has changed")

        endpoint = endpoint_of(response.content)
        if endpoint is None:
            command = self._authorization.command
            raise OAuthFlowError(
                "its authorization server does not support signing in on another device. Run the "
                f"command without --device: {command}"
            )

        return endpoint

    def _form(self, url: str, fields: dict[str, str]) -> httpx2.Request:
        context = self.context
        assert context.client_info is not None  # the SDK has registered it
        data = {"client_id": context.client_info.client_id, **fields}
        if context.should_include_resource_param(context.protocol_version):
            data["resource"] = context.get_resource_url()

        data, headers = context.prepare_token_auth(data, {"Accept": "application/json"})
        return httpx2.Request("POST", url, data=data, headers=headers)


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response. Reading beyond the limit raises an error."""

    def __init__(self, stream: httpx2.AsyncByteStream | httpx2.SyncByteStream) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > _MOST_ANSWER_BYTES:
                raise httpx2.ReadError(f"a response is larger than {_MOST_ANSWER_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _with_content(response: httpx2.Response, content: bytes) -> httpx2.Response:
    """Return a copy of a response with different content."""
    if content == response.content:
        return response
    headers = {"content-type": "application/json"}
    return httpx2.Response(
        response.status_code, headers=headers, content=content, request=response.request
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
