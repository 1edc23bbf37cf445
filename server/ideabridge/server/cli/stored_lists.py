"""Read the stored lists of tools of the servers in a configuration.

Commands that only show tools read these lists. They do not start servers whose lists are stored.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ideabridge.server.cli.console import report

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.bridge.store.store import Store


class StoredLists:
    """The lists of tools in the store. If no store exists, there are no lists, and no store is
    created.

    Args:
        configuration: the configuration that contains the servers.

    Attributes:
        configuration: the same configuration, except that every server starts when it is first
            used.
        store: the store, which is open while the context is open, or None if no store exists.
        names: the servers whose lists are stored.
    """

    def __init__(self, configuration: Configuration) -> None:
        # Showing a server does not require starting it, even if it normally starts with ideabridge.
        lazy = {
            name: entry.model_copy(update={"start": None})
            for name, entry in configuration.modules.items()
        }
        self.configuration = configuration.model_copy(update={"modules": lazy})
        self.store: Store | None = None
        self.names: list[str] = []

    def __enter__(self) -> Self:
        from ideabridge.bridge.configuration import module_fingerprint
        from ideabridge.bridge.store.errors import StoreError

        try:
            self.store = self._opened()
            if self.store is not None:
                memory = self.store.tool_memory
                self.names = [
                    name
                    for name in self.configuration.enabled_modules
                    if memory.listed_at(module_fingerprint(self.configuration, name))
                ]
        except StoreError as error:
            report(f"{error}, so every server is started")

        return self

    def _opened(self) -> Store | None:
        from ideabridge.bridge.store.database import is_address
        from ideabridge.bridge.store.sqlite.files import file_exists
        from ideabridge.bridge.store.store import Store

        place = str(self.configuration.store)
        exists = is_address(place) or file_exists(Path(place))
        return Store.open(place, durability=self.configuration.durability) if exists else None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.store is not None:
            self.store.close()

    def modules(self) -> Modules:
        """Return the servers, with their stored lists. If a server sends its list in the meantime,
        it is stored.
        """
        from ideabridge.bridge.modules.modules import Modules
        from ideabridge.bridge.offer.module_lists import ModuleLists

        store = self.store
        if store is None:
            return Modules(self.configuration)

        modules = Modules(self.configuration, on_change=lambda name: lists.keep(name))
        lists = ModuleLists(self.configuration, modules, store)
        lists.recall()
        return modules
