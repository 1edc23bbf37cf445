"""Sign a person in with a browser on another device (RFC 8628).

While the person enters a code there, this process polls the authorization server for the tokens.

The authorization server's responses are not trusted. Addresses and codes are shown only if a
terminal displays them unchanged. No response can make this process poll more than once a second, or
after the time limit for the person.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from pydantic import AnyHttpUrl, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import from_json

from ideabridge.tools.encoding import JSON, object_or_empty

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
"""The grant type (RFC 8628, section 3.4)."""

_MOST_SECONDS: Final = 600.0
"""The maximum time, in seconds, that a person has to sign in."""

_INTERVAL: Final = 5.0
"""The interval, in seconds, between requests for the tokens if the server does not specify one.
Each `slow_down` response adds the same number of seconds.
"""
_LEAST_INTERVAL: Final = 1.0
_MOST_INTERVAL: Final = 60.0
_WAITING: Final = ("authorization_pending", "slow_down")
_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_FAULT: Final = 500
_SHOWN_CHARACTERS: Final = 200

_T = TypeVar("_T")
_Address = Annotated[str, Field(max_length=2000, pattern=r"^[!-~]+$")]
_Optional = Annotated[_T | None, BeforeValidator(lambda value: value or None)]
"""A value that can be missing. Instead of leaving it out, some servers send an empty string."""

_Seconds = Annotated[float, Field(allow_inf_nan=False)]


class TemporaryError(OAuthFlowError):
    """Raised when the authorization server does not respond now, but might respond later."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The address and the code for signing in. All strings are a single line of printable ASCII.

    Attributes:
        address: the page on which the person enters the code.
        code: the code, of at most 40 characters.
        complete: an address that includes the code, or None if the server sends none.
        seconds: the number of seconds that the person has: as long as the code is valid, but at
            most 10 minutes.
        stranger: the host of the MCP server's authorization server if `address` is on a different
            host, otherwise None.
    """

    address: str
    code: str
    complete: str | None
    seconds: float
    stranger: str | None


class _Answer(BaseModel):
    """The response to a device authorization request (RFC 8628, section 3.2)."""

    device_code: Annotated[str, Field(min_length=1, max_length=20_000)]
    user_code: Annotated[str, Field(max_length=40, pattern=r"^[A-Za-z0-9]+([ ._-][A-Za-z0-9]+)*$")]
    verification_uri: _Address
    verification_uri_complete: _Optional[_Address] = None
    expires_in: Annotated[_Seconds, Field(gt=0)]
    interval: _Seconds = _INTERVAL


class _Endpoint(BaseModel):
    """The part of an authorization server's metadata (RFC 8414) that the SDK does not read."""

    device_authorization_endpoint: _Optional[AnyHttpUrl] = None


def endpoint_of(metadata: bytes) -> str | None:
    """Return the address for device authorization requests in an authorization server's metadata,
    or None if there is none.

    Raises:
        OAuthFlowError: the member does not contain an address.
    """
    try:
        address = _Endpoint.model_validate_json(metadata).device_authorization_endpoint
    except ValidationError:
        raise OAuthFlowError(
            "the device_authorization_endpoint of its authorization server is not a valid address"
        ) from None
    return None if address is None else str(address)


class DevicePerson:
    """Someone who signs in with a browser on another device.

    Args:
        show: shows the address and the code to the person.
        sleep: waits between two requests for the tokens. Tests replace this function.
        clock: a monotonic clock in seconds. Tests replace this function.
    """

    def __init__(
        self,
        show: Callable[[DeviceCode], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._sleep = sleep
        self._clock = clock

    async def sign_in(
        self,
        begin: Callable[[], Awaitable[httpx2.Response]],
        ask: Callable[[str], Awaitable[httpx2.Response]],
        check_address: Callable[[str], None],
        server: str,
    ) -> httpx2.Response:
        """Let the person sign in, and return the response with the tokens.

        Args:
            begin: sends the device authorization request.
            ask: asks for the tokens, given the device code.
            check_address: raises an `OAuthFlowError` for an address that a person must not be sent
                to.
            server: the host of the authorization server.

        Raises:
            OAuthFlowError: the server refuses to begin, the person refuses or takes too long, or a
                response is malformed.
        """
        response = await begin()
        began = self._clock()
        if response.status_code != _OK:
            raise OAuthFlowError(
                "its authorization server did not start a sign-in on another device: "
                f"{_refusal(response)}"
            )

        answer = _read(response)
        for address in (answer.verification_uri, answer.verification_uri_complete):
            if address is not None:
                check_address(address)
                if "@" in urlsplit(address).netloc:
                    # Reject an address such as https://login.example@evil.example/, because it
                    # looks like an address at login.example.
                    raise OAuthFlowError(
                        f"the server returned the address {address[:_SHOWN_CHARACTERS]}; expected "
                        "an address without a user name"
                    )

        seconds = min(answer.expires_in, _MOST_SECONDS)
        address = answer.verification_uri
        complete = answer.verification_uri_complete
        hosts = {urlsplit(page).hostname for page in (address, complete) if page is not None}
        stranger = None if hosts == {server} else server
        self._show(DeviceCode(address, answer.user_code, complete, seconds, stranger))
        return await self._tokens(answer, began + seconds, ask)

    async def _tokens(
        self, answer: _Answer, ends: float, ask: Callable[[str], Awaitable[httpx2.Response]]
    ) -> httpx2.Response:
        interval = min(max(answer.interval, _LEAST_INTERVAL), _MOST_INTERVAL)
        trouble = ""
        while self._clock() + interval < ends:
            await self._sleep(interval)
            try:
                response = await ask(answer.device_code)
            except TemporaryError as failure:
                trouble = str(failure)
            else:
                error = _field(response, "error")  # some servers send the error with status 200
                if error is None and response.status_code == _OK:
                    return response
                if error == "expired_token":
                    break
                if error == "access_denied":
                    raise OAuthFlowError("the sign-in was denied in the browser")
                if error in _WAITING:
                    trouble = ""
                    if error == "slow_down":
                        interval += _INTERVAL
                    continue

                if response.status_code != _TOO_MANY and response.status_code < _SERVER_FAULT:
                    raise OAuthFlowError(
                        f"its authorization server did not issue tokens: {_refusal(response)}"
                    )

                trouble = f"its authorization server answered HTTP {response.status_code}"

            # The server might be overloaded, so ask less often.
            interval = max(interval, min(2 * interval, _MOST_INTERVAL))

        late = "nobody signed in with the code in time"
        raise OAuthFlowError(f"{late}; the last problem: {trouble}" if trouble else late)


def _read(response: httpx2.Response) -> _Answer:
    try:
        return _Answer.model_validate_json(response.content)
    except ValidationError as error:
        fields = ".".join(str(part) for part in error.errors()[0]["loc"])
        if fields:
            reason = f"the field {fields!r} is missing or malformed"
        else:
            reason = "it is not a JSON object"
        raise OAuthFlowError(
            f"its response to a device authorization request does not follow RFC 8628: {reason}"
        ) from None


def _field(response: httpx2.Response, name: str) -> str | None:
    try:
        document: JSON = from_json(response.content)
    except ValueError:
        return None

    value = object_or_empty(document).get(name)
    return value if isinstance(value, str) else None


def _refusal(response: httpx2.Response) -> str:
    reasons = [_field(response, name) for name in ("error", "error_description")]
    shown = ": ".join(repr(reason[:_SHOWN_CHARACTERS]) for reason in reasons if reason is not None)
    return f"HTTP {response.status_code} {shown}".rstrip()
