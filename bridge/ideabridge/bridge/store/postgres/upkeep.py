"""Measure, back up and vacuum a store in PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ideabridge.bridge.store.backup import write_file
from ideabridge.bridge.store.database import Database, Upkeep
from ideabridge.bridge.store.errors import StoreAccessError, StoreExtraError


class PostgresUpkeep(Upkeep):
    """The upkeep of one schema of a server.

    Args:
        database: the database.
        conninfo: the connection string for pg_dump.
        schema: the name of the schema.
    """

    def __init__(self, database: Database, conninfo: str, schema: str) -> None:
        self._database = database
        self._conninfo = conninfo
        self._schema = schema

    def engine(self) -> str:
        with self._database.guard:
            version = self._database.number("SELECT current_setting('server_version_num')::int")
        return f"PostgreSQL {version // 10_000}.{version % 10_000}"

    def used_bytes(self) -> int:
        with self._database.guard:
            return self._database.number(
                "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace = current_schema()::regnamespace"
            )

    def back_up(self, target: Path) -> int:
        def fill(part: Path) -> None:
            # Pass no password in the address: pg_dump finds it in the same place as this process
            # does.
            words = [
                "--format=custom",
                "--strict-names",
                f"--schema={self._schema}",
                f"--dbname={self._conninfo}",
            ]
            self._call("pg_dump", "--no-password", *words, f"--file={part}")
            # This reads and unpacks the whole archive, and so checks it.
            self._call("pg_restore", f"--file={os.devnull}", str(part))

        write_file(target, fill)
        return target.stat().st_size

    def _call(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs."""
        path = shutil.which(program)
        if path is None:
            raise StoreExtraError(
                f"{self._database.path}: a backup needs PostgreSQL's programs pg_dump and "
                f"pg_restore, and {program} is not installed (Debian: postgresql-client); "
                "`ideabridge store copy` copies a store into a file without them"
            )
        done = subprocess.run(
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()
            raise StoreAccessError(f"{self._database.path}: {program} failed: {reason}")

    def vacuum(self) -> tuple[int, int]:
        tables = ("events", "contents", "ideas", "runs", "idea_words")
        with self._database.guard:
            before = self.used_bytes()
            for table in tables:
                self._database.execute(f"VACUUM (ANALYZE) {table}")
            return before, self.used_bytes()
