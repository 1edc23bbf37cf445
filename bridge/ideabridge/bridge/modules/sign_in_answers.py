"""Repair the responses from authorization servers before the SDK's models read them.

Those models reject a whole document if one optional member deviates from the standards. This module
converts such a member if its meaning is clear, and otherwise leaves it out, with a note. Members
that decide where a token, a code or a person is sent are never repaired: if one is malformed, the
SDK refuses the document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import orjson
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ideabridge.tools.encoding import kind_of

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_DECIDES: Final = frozenset(
    {
        *("issuer", "resource", "authorization_servers"),
        *(
            "authorization_endpoint",
            "token_endpoint",
            "registration_endpoint",
            "device_authorization_endpoint",
        ),
        *("client_id", "client_secret", "token_endpoint_auth_method"),
        *("access_token", "token_type", "iss", "authorization_response_iss_parameter_supported"),
    }
)
"""The members that decide where a secret is sent and how it is used."""

_EXACT: Final = 2.0**53
"""The number below which floats represent every integer exactly."""

Note = Callable[[str], None]
"""A function that receives a note on what was repaired."""


def repair_resource(content: bytes, note: Note) -> bytes:
    """Return the metadata of a server (RFC 9728), repaired."""
    return _repaired(content, ProtectedResourceMetadata, "its metadata", note)


def repair_server(content: bytes, expected: str | None, note: Note) -> tuple[bytes, str | None]:
    """Repair the metadata of an authorization server (RFC 8414).

    Args:
        content: the document.
        expected: the issuer that the document must name, or None if the SDK checks it.
        note: receives notes.

    Returns:
        The repaired document, and the issuer as the server writes it, or None if the document names
        none. If the issuer differs from `expected` only in the trailing slash of an address without
        a path, the document contains `expected`, because the SDK compares the strings.
    """
    content = _repaired(content, OAuthMetadata, "the metadata of its authorization server", note)
    document = _read(content)
    issuer = None if document is None else document.get("issuer")
    if document is None or not isinstance(issuer, str):
        return content, None
    if expected is None or issuer == expected or not issuers_match(issuer, expected):
        return content, issuer
    return orjson.dumps({**document, "issuer": expected}), issuer


def fault_of_server(content: bytes) -> str | None:
    """Return why the metadata of an authorization server cannot be used, or None if it can be used,
    or is not metadata at all, because some servers respond to every address with a document.
    """
    document = _read(content)
    if document is None or document.keys().isdisjoint(_DECIDES):
        return None

    try:
        OAuthMetadata.model_validate_json(orjson.dumps(document))
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        member = repr(str(place[0])) if place else "a member"
        return f"{member} in the metadata of its authorization server is missing or malformed"
    except orjson.JSONEncodeError:
        return "the metadata of its authorization server has a number that is too large"

    return None


def repair_tokens(content: bytes, note: Note) -> bytes:
    """Repair the response to a POST, which contains either tokens (RFC 6749) or a registered client
    (RFC 7591).
    """
    document = _read(content)
    if document is not None and "access_token" in document:
        return _repaired(content, OAuthToken, "the tokens of its authorization server", note)
    if document is not None and "client_id" in document:
        return _repaired(
            content, OAuthClientInformationFull, "the client that its server has registered", note
        )
    return content


def _read(content: bytes) -> dict[str, Any] | None:
    """Return the JSON value if it is an object, otherwise None."""
    try:
        document: object = from_json(content.removeprefix(_BYTE_ORDER_MARK))
    except ValueError:
        return None
    if isinstance(document, dict):
        return cast("dict[str, Any]", document)
    return None


def _repaired(content: bytes, model: type[BaseModel], what: str, note: Note) -> bytes:
    document = _read(content)
    if document is None:
        return content

    wrong = _wrong_members(document, model)
    if not wrong:
        return content.removeprefix(_BYTE_ORDER_MARK)

    for name in sorted(wrong):
        value = document[name]
        converted = _converted(name, value, model)
        is_absent = value is None or value == ""
        if converted is not None:
            document[name] = converted
            note(
                f"accepted {name!r} in {what} although it is {kind_of(value)}, because its meaning "
                "is clear"
            )
        elif is_absent or name not in _DECIDES:
            del document[name]
            kind = "empty" if is_absent else kind_of(value)
            note(f"left out {name!r} in {what}: it is {kind}")

    return orjson.dumps(document)


def _wrong_members(document: dict[str, Any], model: type[BaseModel]) -> set[str]:
    """Return the names of the members that the model rejects."""
    try:
        model.model_validate_json(orjson.dumps(document))
    except ValidationError as error:
        return {
            str(problem["loc"][0]) for problem in error.errors() if problem["loc"]
        } & document.keys()
    except orjson.JSONEncodeError:
        return set()
    return set()


def _converted(name: str, value: object, model: type[BaseModel]) -> object:
    """Convert a member to an equivalent form that the model accepts, or return None if there is
    none.
    """
    if name in _DECIDES:
        return None

    form: object = None
    if isinstance(value, str):
        form = value.replace(",", " ").split()
    elif isinstance(value, list):
        members = cast("list[object]", value)
        if all(isinstance(member, str) for member in members):
            form = " ".join(cast("list[str]", members))
    elif isinstance(value, float) and abs(value) < _EXACT:
        form = int(value)

    if form is None or _wrong_members({name: form}, model):
        return None
    return form
