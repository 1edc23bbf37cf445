"""A PostgreSQL server for tests, if its programs are installed: each process that asks starts
one, and ends it.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from examples.cluster.postgres import PostgresServer, programs

from ideabridge.bridge.store.database import is_address
from ideabridge.bridge.store.sqlite import sqlite3


@functools.cache
def server() -> PostgresServer:
    """The server of this process; the test is skipped if there is none."""
    if programs() is None:
        pytest.skip("PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed")
    pytest.importorskip("psycopg", reason="the extra ideabridge[postgres] is not installed")
    found = PostgresServer(
        parent="/dev/shm" if os.environ.get("PYTEST_DEBUG_TEMPROOT") == "/dev/shm" else "/tmp"
    )
    atexit.register(found.close)
    return found


def run_sql(place: str, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement in a store, past its code: in a file or in PostgreSQL; returns its rows."""
    if not is_address(place):
        with closing(sqlite3.connect(place, isolation_level=None)) as connection:
            return connection.execute(sql, parameters).fetchall()

    import psycopg

    from ideabridge.bridge.store.postgres.database import read_address
    from ideabridge.bridge.store.postgres.dialect import bind

    address, schema = read_address(place)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}".encode())
        statement, bound = bind(sql, parameters)
        cursor = connection.execute(statement.encode(), bound)
        return [] if cursor.description is None else cursor.fetchall()


def check_server(place: str) -> None:
    """Check that no row of a store in PostgreSQL refers to one that is gone, and that none is left
    of what is gone.
    """
    for sql in (
        "SELECT count(*) FROM events WHERE id >> 32 NOT IN (SELECT number FROM runs)",
        "SELECT count(*) FROM ideas WHERE schema NOT IN (SELECT number FROM contents)",
        (
            "SELECT count(*) FROM ideas WHERE solved IS NOT NULL AND solved NOT IN "
            "(SELECT number FROM contents)"
        ),
        (
            "SELECT count(*) FROM ideas CROSS "
            "JOIN LATERAL unnest(messages_of(context)) AS part(number) "
            "WHERE part.number NOT IN (SELECT number FROM contents)"
        ),
        "SELECT count(*) FROM events WHERE whole_event(body, parts) IS NULL",
        "SELECT count(*) FROM occurrences WHERE idea NOT IN (SELECT number FROM ideas)",
        "SELECT count(*) FROM idea_calls WHERE idea NOT IN (SELECT number FROM ideas)",
        "SELECT count(*) FROM idea_shapes WHERE idea NOT IN (SELECT number FROM ideas)",
        "SELECT count(*) FROM idea_words WHERE rowid NOT IN (SELECT number FROM ideas)",
        "SELECT count(*) FROM idea_uses WHERE idea NOT IN (SELECT number FROM ideas)",
        "SELECT count(*) FROM publication_words WHERE rowid NOT IN (SELECT number FROM names)",
    ):
        assert run_sql(place, sql) == [(0,)], sql


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The file or address of a store that does not exist yet: the test runs on both."""
    if request.param == "postgres":
        return server().address()
    return str(tmp_path / "ideas.sqlite")
