"""Recognise the HTML pages that servers offer to hosts (MCP Apps).

A host runs a view's script, and lets it call the tools of the server that the host knows, which is
ideabridge. Therefore, ideabridge passes another server's views on only if the user allows this
(`views: true`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.names import folded

OWN_HOST: Final = "ideabridge"
"""The host of the URIs of ideabridge's own views."""

_SCHEME: Final = "ui:"
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_OTHER_VIEWS: Final = "application/vnd.mcp-ui"
_KEYS: Final = ("ui/", "openai/", "mcpui.dev/")
"""The prefixes of the keys in `_meta` that are about views."""


def is_view_uri(uri: str) -> bool:
    """Return whether a URI belongs to a view."""
    return uri.strip().lower().startswith(_SCHEME)


def is_own_view_uri(uri: str) -> bool:
    """Return whether a URI belongs to one of ideabridge's own views, in any spelling."""
    if not is_view_uri(uri):
        return False

    place = unquote(uri.strip()[len(_SCHEME) :]).lstrip("/\\")
    authority = re.split(r"[/\\?#]", place, maxsplit=1)[0]
    _, _, address = authority.rpartition("@")
    host, _, _ = address.partition(":")
    return folded(host).strip(". ") == OWN_HOST


def is_html(mime: JSON) -> bool:
    """Return whether a MIME type means HTML, with any parameters."""
    return isinstance(mime, str) and mime.partition(";")[0].strip().lower() in _HTML


def is_view_type(mime: JSON) -> bool:
    """Return whether a MIME type belongs to a view."""
    if not isinstance(mime, str):
        return False
    plain = mime.strip().lower()
    return plain.startswith(_OTHER_VIEWS) or (is_html(plain) and "mcp-app" in plain)


def is_view(resource: Mapping[str, JSON]) -> bool:
    """Return whether a resource, template, link or content is a view, judging by its URI or
    type.
    """
    return is_view_uri(_uri_of(resource)) or is_view_type(resource.get("mimeType"))


def is_own_view(resource: Mapping[str, JSON]) -> bool:
    """Return whether a resource, template, link or content has the URI of one of ideabridge's own
    views.
    """
    return is_own_view_uri(_uri_of(resource))


def _uri_of(resource: Mapping[str, JSON]) -> str:
    uri = resource.get("uri", resource.get("uriTemplate"))
    return uri if isinstance(uri, str) else ""


def is_for_views_only(meta: JSON) -> bool:
    """Return whether the `_meta` of a tool says that only views may call it."""
    return object_or_empty(object_or_empty(meta).get("ui")).get("visibility") == ["app"]


def without_views(meta: JSONObject) -> JSONObject:
    """Return a copy of `_meta` without the members that name or concern a view."""
    return {key: value for key, value in meta.items() if not _is_about_views(key, value)}


def without_own_views(meta: JSONObject) -> JSONObject:
    """Return a copy of `_meta` without the members that name one of ideabridge's own views."""
    return {key: value for key, value in meta.items() if not _names_own_view(value)}


def _names_own_view(value: JSON) -> bool:
    return any(is_own_view_uri(text) for text in _texts(value))


def _is_about_views(key: str, value: JSON) -> bool:
    plain = key.strip().lower()
    return plain == "ui" or plain.startswith(_KEYS) or any(map(is_view_uri, _texts(value)))


def _texts(value: JSON) -> list[str]:
    """Return every string in a value, including the keys of objects."""
    texts: list[str] = []
    for part in values_in(value):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            texts += part

    return texts
