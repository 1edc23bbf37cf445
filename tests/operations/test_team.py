"""The commands of docs/team.md are run as they are written there, with other paths and
addresses.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded
from tests.ideas.values import idea_of
from tests.postgres import check_server, run_sql, server
from tests.server.serving import TOOLS

EXECUTABLE = Path(sys.executable).parent / "ideabridge"
PAGE = Path(__file__).parent.parent.parent / "docs" / "team.md"
ADDRESS = "postgresql://ideas@db.internal/ideas"
Run = Callable[[str], str]


def blocks(heading: str) -> list[str]:
    """The blocks of commands in one section of the page."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert found
    section, _, _ = rest.partition("\n## ")
    return re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run commands of the page: `/var` and `/backups` are folders of the test, and the user
    is who runs it.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "ideabridge"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(preloaded.python(EXECUTABLE))} "$@"\n')
    program.chmod(0o700)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    def run(commands: str) -> str:
        for old in ("/var/", "/backups/"):
            commands = commands.replace(old, f"{tmp_path}{old}")
        commands = commands.replace("chown ideabridge:", f"chown {getpass.getuser()}:")
        done = subprocess.run(
            ["sh", "-eu", "-c", commands],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "backups").mkdir()
    (tmp_path / "var" / "lib" / "ideabridge").mkdir(parents=True)
    return run


def save(store: Store, title: str) -> None:
    store.ideas.save(idea_of(title), IdeaMeta(title=title))


def titles(store: Store) -> set[str]:
    return {one.meta.title for one in store.ideas.page().items}


@contextmanager
def run_at_work(folder: Path, place: str) -> Generator[str]:
    """A run whose call waits; at the end its process is killed."""
    gate = folder / "gate"
    os.mkfifo(gate)
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"calls": [{"_tool": "hold", "gate": str(gate)}]}), encoding="utf-8")
    words = ["run", str(plan), "--tools", str(TOOLS), "--store", place, "--project", str(folder)]
    process = subprocess.Popen(preloaded.python(EXECUTABLE, *words), stderr=subprocess.DEVNULL)
    try:
        # The pipe can be opened once the call reads from it.
        with gate.open("w"):
            with Store.open(place) as store:
                [record] = store.runs.newest(limit=1, caller=SEES_ALL)
            yield record.id
            # The process that started it ends after it, so wait for that one.
            os.kill(preloaded.number(process), signal.SIGKILL)
            process.wait()
    finally:
        process.kill()
        process.wait()


def cancel_what_was_active(run: Run, commands: str, expected: str) -> None:
    """Cancel the run that was active when the copy was made."""
    listed, cancelled = commands.splitlines()
    assert expected in run(listed)
    run(cancelled.replace("RUN", expected))


def check_restored(place: str, run_id: str) -> None:
    with Store.open(place) as store:
        assert titles(store) & {"before", "after"} == {"before"}
        record = store.runs.get(run_id)
        assert record is not None
        assert record.status == "cancelled"


def test_a_file_is_backed_up_and_restored(run: Run, tmp_path: Path) -> None:
    back_up, restore, _, _, cancel = blocks("Backup and restore")
    path = tmp_path / "var" / "lib" / "ideabridge" / "ideas.sqlite"
    with Store.open(path) as store:
        save(store, "before")
        with run_at_work(tmp_path, str(path)) as active:
            run(back_up)
        save(store, "after")

    [copy] = (tmp_path / "backups").iterdir()
    run(restore.replace("ideas-2026-11-24.sqlite", copy.name))
    cancel_what_was_active(run, cancel, active)
    check_restored(str(path), active)
    with Store.open(path.parent / "before" / "ideas.sqlite") as store:
        assert {"before", "after"} <= titles(store)


@pytest.mark.skipif(
    shutil.which("pg_dump") is None
    or shutil.which("pg_restore") is None
    or shutil.which("psql") is None,
    reason="PostgreSQL's programs pg_dump, pg_restore and psql are not installed",
)
def test_a_store_in_postgresql_is_backed_up_and_restored(run: Run, tmp_path: Path) -> None:
    _, _, back_up, restore, cancel = blocks("Backup and restore")
    database = f"d_{secrets.token_hex(6)}"
    address, _, _ = server().address().partition("&schema=")
    run_sql(address, f"CREATE DATABASE {database}")
    address = address.replace("/postgres?", f"/{database}?")
    with Store.open(address) as store:
        save(store, "before")
        with run_at_work(tmp_path, address) as active:
            run(back_up.replace(ADDRESS, address))
        save(store, "after")

    [copy] = (tmp_path / "backups").iterdir()
    run(restore.replace(ADDRESS, address).replace("ideas-2026-11-24.dump", copy.name))
    check_server(address)
    cancel_what_was_active(
        run, cancel.replace("/var/lib/ideabridge/ideas.sqlite", f"'{address}'"), active
    )
    check_restored(address, active)
    with Store.open(f"{address}&schema=before") as store:
        assert {"before", "after"} <= titles(store)
