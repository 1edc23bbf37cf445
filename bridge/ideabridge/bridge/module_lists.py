"""ModuleLists: what each module listed when it was last up, kept in the store, so that names and lists do not depend on
which modules are up.
"""

from __future__ import annotations

import logging
from typing import Final

from ideabridge.bridge.configuration import Configuration, module_fingerprint
from ideabridge.bridge.ideas.errors import StoreError
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.policy import standing
from ideabridge.bridge.modules.modules import Modules
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import shown_name
from ideabridge.tools.tool import Tool

logger: Final = logging.getLogger(__name__)

_TOLD: Final = 5
"""Tools that one line of the log names."""


class ModuleLists:
    """Takes the lists from the store, and keeps them there.

    A list is kept by the fingerprint of the module's configuration: a module of the same name with another command,
    address or filter does not take it over. Secrets are not in it, for `Modules` takes them out of definitions.

    Args:
        configuration: tells the modules.
        modules: the modules.
        store: keeps the lists.
    """

    def __init__(self, configuration: Configuration, modules: Modules, store: Store) -> None:
        self._modules = modules
        self._memory = store.tool_memory
        self._fingerprints = {
            name: module_fingerprint(configuration, name)
            for name, module in configuration.modules.items()
            if not module.disabled
        }

    def recall(self) -> None:
        """Tell the modules what they listed last. Before they connect. What is secret by now was perhaps none then.
        Where one has another configuration than it had then, it is another module, and only the names stay its own.
        """
        for name, fingerprint in self._fingerprints.items():
            told = self._modules.secrets.redact(self._memory.tools(fingerprint))
            if isinstance(told, list):
                self._modules.recall(name, [Tool.from_json(one) for one in told if isinstance(one, dict)])
            else:
                self._modules.reserve(name, self._memory.names(name))

    def keep(self, name: str) -> None:
        """Keep the list of a module that is up."""
        fingerprint = self._fingerprints.get(name)
        if fingerprint is None or self._modules.status(name).state != "up":
            return
        listed = self._modules.tools_of(name)
        tools: list[JSON] = [tool.to_json() for tool in listed]
        try:
            milder = _milder(self._memory.tools(fingerprint) or [], listed)
            if milder:
                # They are believed, as those of a tool that is new are; but whoever relied on being asked is told.
                more = f"; and {len(milder) - _TOLD} more" if len(milder) > _TOLD else ""
                logger.warning("module %s: %s%s", name, "; ".join(milder[:_TOLD]), more)
                self._modules.note(name, milder)
            self._memory.keep_tools(fingerprint, name, tools)
        except StoreError as error:
            # Busy or full: the module is of use all the same, and its list is kept the next time it is up.
            logger.warning("keeping the tools of module %s: %s", name, error)


def _milder(then: list[JSON], now: list[Tool]) -> list[str]:
    """What the hints of tools promise now that they did not promise before: calls may run that asked a person."""
    known = {tool.name: tool for tool in (Tool.from_json(one) for one in then if isinstance(one, dict))}
    found: list[str] = []
    for tool in now:
        before = known.get(tool.name)
        if before is None or before.annotations == tool.annotations:
            continue
        was, new = standing(before.annotations), standing(tool.annotations)
        if new[0] and not was[0]:
            found.append(f"{shown_name(tool.name)} says now that it only reads; before, it did not")
        elif was[1] and not new[1]:
            found.append(f"{shown_name(tool.name)} says now that it destroys nothing; before, it did not")
        elif new[2] and not was[2]:
            found.append(f"{shown_name(tool.name)} says now that it may be called again; before, it did not")
    return found
