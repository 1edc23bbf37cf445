"""The views of modules: which are passed on to hosts, and what becomes of the others.

A host knows one server, ideabridge, and lets a view call each tool of it that is marked for views.
So the views of one module at most are passed on, and every tool of anybody else is then marked for
models alone; the view of a run is not offered beside them.
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
from ideabridge.tools.encoding import JSON, JSONObject

_FOR_MODELS: Final = {"visibility": ["model"]}


class ModuleViews:
    """What is passed on of the views of modules.

    Attributes:
        module: the module whose views are passed on; None: no module's are.
    """

    def __init__(self, bridge: Bridge) -> None:
        configuration = bridge.configuration
        allowed = [
            name
            for name in bridge.modules.names
            if configuration.exposes(name) and configuration.modules[name].views
        ]
        self.module = allowed[0] if allowed else None
        for name in allowed[1:]:
            problem = (
                "its views are not passed on: hosts cannot keep the views of two servers "
                f"apart, and {self.module!r}"
            )
            bridge.modules[name].note([f"{problem} has 'views', too"])

    def serves(self, module: str, uri: str) -> bool:
        """Return whether a module may have, or report a change of, the resource with this URI."""
        return not is_view_uri(uri) or (module == self.module and not is_own_view_uri(uri))

    def meta(self, module: str | None, meta: JSONObject) -> JSONObject:
        """The `_meta` of something of a module, without what is not passed on."""
        if module is not None and module == self.module:
            return without_own_views(meta)
        return without_views(meta)

    def part(self, module: str, part: JSONObject) -> JSONObject:
        """A part of a message of a module with its `_meta` as it is passed on."""
        meta = part.get("_meta")
        if not isinstance(meta, dict):
            return part

        changed = self.meta(module, meta)
        if changed == meta:
            return part

        rest = {key: value for key, value in part.items() if key != "_meta"}
        if changed:
            rest["_meta"] = changed

        return rest

    def entries(self, module: str, entries: list[JSONObject]) -> list[JSONObject]:
        """The entries of a list of a module that are passed on."""
        return [self.part(module, entry) for entry in entries if not self._withholds(module, entry)]

    def for_models(self, tool: dict[str, Any]) -> dict[str, Any]:
        """The definition of a tool that is not the module's: no view of the module may call it."""
        return {**tool, "_meta": {**tool.get("_meta", {}), "ui": _FOR_MODELS}}

    def result(self, module: str, result: JSONObject) -> JSONObject:
        """The result of a call or of a prompt of a module. A text stands in for each view that is
        withheld; HTML that is no view is passed on as plain text.
        """
        changed = {**self.part(module, result)}
        content = result.get("content")
        if isinstance(content, list):
            changed["content"] = [self._block(module, block) for block in content]

        messages = result.get("messages")
        if isinstance(messages, list):
            changed["messages"] = [self._message(module, message) for message in messages]

        return changed

    def read(self, module: str, result: JSONObject) -> JSONObject:
        """The result of reading a resource of a module.

        Raises:
            MCPError: it is a view that is withheld.
        """
        contents = result.get("contents")
        parts: list[JSON] = []
        for part in contents if isinstance(contents, list) else []:
            if isinstance(part, dict) and self._withholds(module, part):
                raise MCPError(types.INVALID_PARAMS, self.reason_withheld(module, part))
            parts.append(self.part(module, part) if isinstance(part, dict) else part)

        return {**self.part(module, result), "contents": parts}

    def reason_withheld(self, module: str, part: JSONObject) -> str:
        """Why a view of a module is withheld."""
        uri = str(part.get("uri", ""))[:200]
        if is_own_view(part):
            return f"server {module!r} gives {uri!r}, and views of that name are ideabridge's own"
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
            return {**message, "content": [self._block(module, block) for block in content]}
        return {**message, "content": self._block(module, content)}

    def _block(self, module: str, block: JSON) -> JSON:
        if not isinstance(block, dict):
            return block

        block = self.part(module, block)
        kind = block.get("type")
        resource = block.get("resource") if kind == "resource" else block
        if kind not in ("resource", "resource_link") or not isinstance(resource, dict):
            return block
        if self._withholds(module, resource):
            return {"type": "text", "text": f"({self.reason_withheld(module, resource)})"}

        resource = self.part(module, resource)
        if module != self.module and is_html(resource.get("mimeType")):
            resource = {**resource, "mimeType": "text/plain"}

        return {**block, "resource": resource} if kind == "resource" else resource
