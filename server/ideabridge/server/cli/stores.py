"""The store of a command line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ideabridge.server.cli.options import Options

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.ideas.store import Store


def existing(options: Options) -> Configuration:
    """The configuration, for a command that needs what a store holds already.

    Raises:
        StoreAccessError: there is no such store.
    """
    from ideabridge.bridge.ideas.errors import StoreAccessError

    configuration = options.configuration()
    if not Path(str(configuration.store)).exists():
        raise StoreAccessError(
            f"{configuration.store}: there is no store here yet; the first run creates it, and --store names another"
        )
    return configuration


@contextmanager
def opened(options: Options, *, create: bool = False) -> Generator[Store]:
    """The store of the configuration, open. No module is started for it.

    Args:
        options: of the command line.
        create: whether to create the store where there is none.

    Raises:
        StoreError: it cannot be opened, or there is none.
    """
    from ideabridge.bridge.ideas.store import Store

    configuration = options.configuration() if create else existing(options)
    assert configuration.store is not None
    store = Store.open(configuration.store, durability=configuration.durability)
    try:
        yield store
    finally:
        store.close()
