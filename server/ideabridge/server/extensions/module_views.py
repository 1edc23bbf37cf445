"""Decide which views of servers are passed on to hosts, and what replaces the others.

A host knows only one server, ideabridge, and lets a view call any of its tools that is marked for
views. So ideabridge passes on the views of at most one server behind it. If it does, it marks all
other tools as being only for models, and does not offer its own view of a run.
"""

from __future__ import annotations

from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules.views import (
    is_html,
    is_own_view,
    is_own_view_uri,
    is_view,
    is_view_uri,
    without_own_views,
    without_views,
)
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty

_FOR_MODELS: Final = {"visibility": ["model"]}


class ModuleViews:
    """Decides which views of servers are passed on, and removes the others from messages.

    Attributes:
        module: the server whose views are passed on, or None if no views are passed on.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.module: str | None = None
        self.follow()

    def follow(self) -> None:
        """Switch to the bridge's current configuration."""
        bridge = self._bridge
        configuration = bridge.configuration
        allowed = [
            name
            for name in bridge.modules.names
            if configuration.exposes(name) and configuration.modules[name].views
        ]
        self.module = next(iter(allowed), None)
        for name in allowed[1:]:
            problem = (
                "its views are not passed on: clients cannot tell the views of two servers apart, "
                f"and {self.module!r} also has 'views'"
            )
            bridge.modules[name].note([problem])

    def serves(self, module: str, uri: str) -> bool:
        """Return whether a server is allowed to offer the resource with this URI, or to report
        changes to it.
        """
        if not is_view_uri(uri):
            return True
        return module == self.module and not is_own_view_uri(uri)

    def meta(self, module: str | None, meta: JSONObject) -> JSONObject:
        """Return the `_meta` of a server's message without the views that are not passed on."""
        if module is not None and module == self.module:
            return without_own_views(meta)
        return without_views(meta)

    def part(self, module: str, part: JSONObject) -> JSONObject:
        """Return a part of a server's message with the `_meta` to pass on."""
        meta = object_or_empty(part.get("_meta"))
        changed = self.meta(module, meta)
        if changed == meta:
            return part

        passed_on: JSONObject = {**part, "_meta": changed}
        if not changed:
            del passed_on["_meta"]
        return passed_on

    def entries(self, module: str, entries: list[JSONObject]) -> list[JSONObject]:
        """Return the entries of a server's list to pass on."""
        return [self.part(module, entry) for entry in entries if not self._withholds(module, entry)]

    def for_models(self, tool: dict[str, Any]) -> dict[str, Any]:
        """Return the definition of another server's tool, marked so that no view can call it."""
        meta = {**tool.get("_meta", {}), "ui": _FOR_MODELS}
        return {**tool, "_meta": meta}

    def result(self, module: str, result: JSONObject) -> JSONObject:
        """Return the result of a server's call or prompt, with each withheld view replaced by an
        explanation. HTML that is not a view is passed on as plain text.
        """
        changed = dict(self.part(module, result))
        content = result.get("content")
        if isinstance(content, list):
            changed["content"] = [self._block(module, block) for block in content]

        messages = result.get("messages")
        if isinstance(messages, list):
            changed["messages"] = [self._message(module, message) for message in messages]

        return changed

    def read(self, module: str, result: JSONObject) -> JSONObject:
        """Return the result of reading a server's resource.

        Raises:
            MCPError: the resource is a withheld view.
        """
        contents = result.get("contents")
        parts: list[JSON] = []
        for part in list_or_empty(contents):
            if not isinstance(part, dict):
                parts.append(part)
            elif self._withholds(module, part):
                raise MCPError(types.INVALID_PARAMS, self.reason_withheld(module, part))
            else:
                parts.append(self.part(module, part))

        return {**self.part(module, result), "contents": parts}

    def reason_withheld(self, module: str, part: JSONObject) -> str:
        """Return why a server's view is withheld."""
        uri = str(part.get("uri", ""))[:200]
        if is_own_view(part):
            return f"server {module!r} gives {uri!r}, but views with that name belong to ideabridge"
        return (
            f'the view {uri!r} of server {module!r} is not passed on: "views": true in its '
            "entry of ideabridge.json"
            " allows it"
        )

    def _withholds(self, module: str, part: JSONObject) -> bool:
        return is_own_view(part) or (is_view(part) and module != self.module)

    def _message(self, module: str, message: JSON) -> JSON:
        if not isinstance(message, dict):
            return message
        content = message.get("content")
        if isinstance(content, list):
            blocks: JSON = [self._block(module, block) for block in content]
        else:
            blocks = self._block(module, content)
        return {**message, "content": blocks}

    def _block(self, module: str, block: JSON) -> JSON:
        if not isinstance(block, dict):
            return block

        block = self.part(module, block)
        if block.get("type") == "resource_link":
            return self._withheld(module, block) or self._resource(module, block)

        resource = block.get("resource")
        if block.get("type") == "resource" and isinstance(resource, dict):
            changed = self._resource(module, resource)
            return self._withheld(module, resource) or {**block, "resource": changed}

        return block

    def _withheld(self, module: str, resource: JSONObject) -> JSONObject | None:
        """Return the explanation that replaces a withheld view, or None for any other resource."""
        if not self._withholds(module, resource):
            return None
        return {"type": "text", "text": f"({self.reason_withheld(module, resource)})"}

    def _resource(self, module: str, resource: JSONObject) -> JSONObject:
        changed = self.part(module, resource)
        if module != self.module and is_html(changed.get("mimeType")):
            return {**changed, "mimeType": "text/plain"}
        return changed
