"""A PostgreSQL server for tests, if its programs are installed: each process that asks starts one, and ends it."""

from __future__ import annotations

import atexit
import functools
import getpass
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.store.database import is_address
from ideabridge.bridge.store.sqlite import sqlite3

_USERS = ("postgres", "nobody", "daemon")
"""The users as whom the server runs, for it refuses to run as root: the first that exists."""


def _program(name: str) -> str | None:
    """The path of one of PostgreSQL's programs; Debian keeps them out of the search path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


class PostgresServer:
    """A server without a network address: its socket is in a folder of its own.

    Attributes:
        folder: the folder of the socket, and of the data.
        user: the user that owns the database.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # paths of sockets are short
        self.user = getpass.getuser()
        self._owner: tuple[int, int] | None = None
        if os.getuid() == 0:
            found = next(one for name in _USERS for one in pwd.getpwall() if one.pw_name == name)
            self.user = found.pw_name
            self._owner = (found.pw_uid, found.pw_gid)
            os.chown(self.folder, found.pw_uid, found.pw_gid)
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-U", self.user)
        settings = ["listen_addresses=''", f"unix_socket_directories='{self.folder}'", "max_connections=200"]
        if not durable:
            settings += ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]
        with (Path(data) / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write("\n".join(settings) + "\n")
        self.start()

    def _run(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            user=self._owner[0] if self._owner else None,
            group=self._owner[1] if self._owner else None,
            extra_groups=[] if self._owner else None,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` cuts connections, `immediate` is a crash."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def close(self) -> None:
        """Stop it and delete its data."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def address(self, schema: str = "") -> str:
        """The address of a store that does not exist yet, or of the one in a schema."""
        schema = schema or f"s_{secrets.token_hex(6)}"
        return f"postgresql://{self.user}@/postgres?host={self.folder}&schema={schema}"


@functools.cache
def server() -> PostgresServer:
    """The server of this process; the test is skipped if there is none."""
    if _program("initdb") is None:
        pytest.skip("PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed")
    pytest.importorskip("psycopg", reason="the extra ideabridge[postgres] is not installed")
    found = PostgresServer()
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
    """Check that no row of a store in PostgreSQL refers to one that is gone, and that none is left of what is gone."""
    for sql in (
        "SELECT count(*) FROM events WHERE id >> 32 NOT IN (SELECT number FROM runs)",
        "SELECT count(*) FROM ideas WHERE schema NOT IN (SELECT number FROM contents)",
        "SELECT count(*) FROM ideas WHERE solved IS NOT NULL AND solved NOT IN (SELECT number FROM contents)",
        (
            "SELECT count(*) FROM ideas CROSS JOIN LATERAL unnest(messages_of(context)) AS part(number) "
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
    return server().address() if request.param == "postgres" else str(tmp_path / "ideas.sqlite")
