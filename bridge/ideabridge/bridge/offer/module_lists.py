"""Store the tool lists that servers sent when they were last up."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from ideabridge.bridge.configuration import Configuration, module_fingerprint
from ideabridge.bridge.loop.policy import effective_hints
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import Recollection, Way
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty, objects_in
from ideabridge.tools.names import shown_name
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.offering import Kind

logger: Final = logging.getLogger(__name__)

_LOGGED_TOOLS: Final = 5
"""Maximum number of tools named in a log line."""


class ModuleLists:
    """The stored tool lists of servers, with a record of how each server was reached.

    The key of a list is the fingerprint of the server's configuration. Therefore, a server with the
    same name but a different command, address or filter does not use the list. Lists contain no
    secrets, because `Modules` removes them from definitions.
    """

    def __init__(self, configuration: Configuration, modules: Modules, store: Store) -> None:
        self._modules = modules
        self._memory = store.tool_memory
        self._fingerprints = _fingerprints(configuration)

    def follow(self, configuration: Configuration, created: Iterable[str]) -> None:
        """Switch to another configuration, and pass the stored lists to the servers created for
        it.
        """
        self._fingerprints = _fingerprints(configuration)
        self.recall(created)

    def recall(self, names: Iterable[str] | None = None) -> None:
        """Pass the stored lists to servers before they connect.

        A server whose configuration has changed does not get its list, but the names in the list
        remain reserved for it.

        Args:
            names: the names of the servers, or None for all.
        """
        if names is None:
            names = self._fingerprints

        secrets = self._modules.secrets
        for name in names:
            fingerprint = self._fingerprints.get(name)
            if fingerprint is None:
                continue

            module = self._modules[name]
            self._recall_way(module, fingerprint)
            # Mask the list again, because a value might have become a secret after the list was
            # stored.
            listed = secrets.redact(self._memory.tools(fingerprint))
            if isinstance(listed, list):
                recollection = Recollection(
                    tools=[Tool.from_json(entry) for entry in objects_in(listed)],
                    instructions=secrets.mask(self._memory.instructions(fingerprint)),
                    listed_at=self._memory.listed_at(fingerprint),
                    had_token=self._memory.had_token(fingerprint),
                    offered=_offered_in(secrets.redact(self._memory.offered(fingerprint))),
                )
                module.recall(recollection)
            else:
                module.reserved = self._memory.names(name)

    def _recall_way(self, module: Module, fingerprint: str) -> None:
        way = self._memory.way(fingerprint)
        if way is None or way.get("era") != "legacy":
            return

        kind = module.configuration.kind
        if way.get("kind") == "sse":
            kind = "sse"
        module.recall_way(Way("legacy", kind, str(way.get("server", ""))))

    def keep(self, name: str) -> None:
        """Store the tool list of a server that is up, with a record of how the server was
        reached.
        """
        fingerprint = self._fingerprints.get(name)
        if fingerprint is None:
            return

        module = self._modules[name]
        if module.state != "up":
            return

        try:
            way = None if module.way is None else dataclasses.asdict(module.way)
            self._memory.keep_way(fingerprint, name, way)
        except StoreError as error:
            logger.warning("storing how to reach server %s failed: %s", name, error)

        if not module.listed:
            return

        try:
            self._keep_list(module, fingerprint)
        except StoreError as error:
            # The store is busy or full. The server works without a stored list, and the list will
            # be stored the next time the server is up.
            logger.warning("storing the tools of server %s failed: %s", name, error)

    def _keep_list(self, module: Module, fingerprint: str) -> None:
        stored = self._memory.tools(fingerprint)
        if module.is_unfinished and stored is not None:
            # The server has not sent its whole list, so the stored one might contain more tools.
            return

        name = module.name
        offered = cast("JSONObject", dict(module.offered_lists))
        self._memory.keep_offered(fingerprint, name, offered)
        self._memory.keep_token(fingerprint, name, had_token=module.has_token)
        listed = module.tools
        milder = _milder([Tool.from_json(tool) for tool in objects_in(stored)], listed)
        if milder:
            # The new hints apply immediately. Warn people who relied on being asked.
            more = ""
            if len(milder) > _LOGGED_TOOLS:
                more = f"; and {len(milder) - _LOGGED_TOOLS} more"
            logger.warning("server %s: %s%s", name, "; ".join(milder[:_LOGGED_TOOLS]), more)
            module.note(milder)

        tools: list[JSON] = [{**tool.to_json(), "wire": tool.wire} for tool in listed]
        self._memory.keep_tools(fingerprint, name, tools)
        self._memory.keep_instructions(fingerprint, name, module.instructions)


def _fingerprints(configuration: Configuration) -> dict[str, str]:
    """Return the key of each enabled server's list, keyed by server name."""
    return {
        name: module_fingerprint(configuration, name)
        for name, module in configuration.modules.items()
        if not module.disabled
    }


def _offered_in(stored: JSON) -> dict[Kind, list[JSONObject] | None]:
    """Read the stored lists of resources, templates and prompts."""
    lists = object_or_empty(stored)
    offered: dict[Kind, list[JSONObject] | None] = {}
    for kind in ("resources", "templates", "prompts"):
        if kind in lists:
            entries = lists[kind]
            offered[kind] = objects_in(entries) if isinstance(entries, list) else None

    return offered


def _milder(before: list[Tool], now: list[Tool]) -> list[str]:
    """Describe the tools whose new hints promise more than the previous ones, so that calls to
    these tools no longer ask a person.
    """
    earlier = {tool.name: tool for tool in before}
    promises: list[str] = []
    for tool in now:
        old = earlier.get(tool.name)
        if old is None or old.annotations == tool.annotations:
            continue

        was_read_only, was_destructive, was_repeatable, _ = effective_hints(old.annotations)
        read_only, destructive, repeatable, _ = effective_hints(tool.annotations)
        if read_only and not was_read_only:
            promise = "it only reads"
        elif was_destructive and not destructive:
            promise = "it destroys nothing"
        elif repeatable and not was_repeatable:
            promise = "it may be called again"
        else:
            continue

        promises.append(
            f"{shown_name(tool.name)} now declares that {promise}; previously it did not"
        )

    return promises
