"""The store of a command line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ideabridge.server.cli.options import Options

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.store import Store


@contextmanager
def opened(options: Options) -> Generator[Store]:
    """The store of the configuration, open. No module is started for it.

    Raises:
        StoreError: it cannot be opened.
    """
    from ideabridge.bridge.ideas.store import Store

    configuration = options.configuration()
    assert configuration.store is not None
    store = Store.open(configuration.store, durability=configuration.durability)
    try:
        yield store
    finally:
        store.close()
