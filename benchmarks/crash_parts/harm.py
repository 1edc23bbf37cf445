"""Which events happen, and what is done to a life besides killing it: the store's disk fails, or
another program holds the store's lock.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from ideabridge.bridge.store.sqlite import sqlite3

from .life import Life

GRANTED = 10.0
"""Seconds within which the store's lock is to be had."""


def drawn(draw: random.Random, kinds: Mapping[str, int]) -> Iterator[str]:
    """Kinds of events without end: each one once, in any order, and then as often as `kinds` says.
    So a few events are of different kinds.
    """
    yield from draw.sample(list(kinds), len(kinds))
    while True:
        yield from draw.choices(list(kinds), list(kinds.values()))


def fail_appends(life: Life, draw: random.Random) -> None:
    """Let every write of the store fail for some seconds."""
    with life.disk.failing(draw.choice((errno.EIO, errno.ENOSPC))):
        life.hear_for(draw.uniform(0.05, 3))


def hold_lock(life: Life, store: Path, draw: random.Random) -> None:
    """Hold the store's write lock for some seconds, now and then for longer than a
    write waits for it.
    """
    with closing(sqlite3.connect(store, timeout=GRANTED, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        life.hear_for(draw.uniform(5.2, 8) if draw.random() < 0.25 else draw.uniform(0.1, 2))
        connection.execute("ROLLBACK")
