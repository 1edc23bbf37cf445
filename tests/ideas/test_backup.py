"""A store in PostgreSQL is backed up by pg_dump while it is written to, and restored by
pg_restore.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import StoreAccessError, StoreExtraError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from tests.ideas.test_copying import fill, told
from tests.ideas.values import idea_of
from tests.postgres import PostgresServer, check_server, run_sql, server

pytestmark = pytest.mark.skipif(
    shutil.which("pg_dump") is None or shutil.which("pg_restore") is None,
    reason="PostgreSQL's programs pg_dump and pg_restore are not installed",
)


@pytest.fixture
def address() -> str:
    return server().address()


def restore(file: Path, address: str) -> str:
    """Restore a backup into a new database, as docs/team.md says; returns the
    address of the store.
    """
    database = f"d_{secrets.token_hex(6)}"
    run_sql(address, f"CREATE DATABASE {database}")
    place = address.replace("/postgres?", f"/{database}?")
    connection, _, _ = place.partition("&schema=")
    words = [
        "pg_restore",
        "--exit-on-error",
        "--single-transaction",
        "--no-owner",
        f"--dbname={connection}",
        str(file),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def test_a_backup_is_restored_whole(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ideas.dump"
    with Store.open(address) as store:
        fill(store)
        before = told(store)

    assert (
        main(
            ["store", "backup", str(file), "--json", "--store", address, "--project", str(tmp_path)]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "bytes": file.stat().st_size}
    assert file.stat().st_mode & 0o777 == 0o600
    with Store.open(address) as store:
        store.ideas.save(idea_of("after"), IdeaMeta())

    place = restore(file, address)
    with Store.open(place) as back:
        assert told(back) == before
        # New rows get new numbers.
        assert (
            back.ideas.get(
                back.ideas.save(idea_of("later"), IdeaMeta(title="later")), caller=SEES_ALL
            ).meta.title
            == "later"
        )
        back.runs.create("later", kind="solve", caller="local", title="later", fingerprint="f")

    check_server(place)


def test_a_backup_is_one_state_while_others_write(address: str, tmp_path: Path) -> None:
    enough = threading.Event()
    written: list[str] = []
    begun = threading.Semaphore(0)

    def write() -> None:
        with Store.open(address) as other:
            while not enough.is_set():
                written.append(other.ideas.save(idea_of(f"idea {len(written)}"), IdeaMeta()))
                begun.release()

    with Store.open(address) as store:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(20):
                begun.acquire()
            acknowledged = len(written)
            store.back_up(tmp_path / "ideas.dump")
        finally:
            enough.set()
            writer.join()

    place = restore(tmp_path / "ideas.dump", address)
    check_server(place)
    with Store.open(place) as back:
        ids = {one.id for one in back.ideas.page(limit=1000).items}

    assert ids >= set(written[: min(acknowledged, 1000)])
    # Each idea was saved after the one before it, so a later one without an earlier one would be a
    # state that the store never had.
    assert ids == set(written[: len(ids)])


def test_the_password_is_in_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("pg_dump", "pg_restore"):
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" >>"{tmp_path}/words"\nexec '
            f'{shutil.which(name)} "$@"\n'
        )
        script.chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    server()
    own = PostgresServer()
    try:
        address = own.address()
        run_sql(address, "CREATE ROLE keeper LOGIN PASSWORD 'open sesame'")
        run_sql(address, "GRANT CREATE ON DATABASE postgres TO keeper")
        rules = own.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all keeper scram-sha-256\n{rules.read_text()}")
        run_sql(address, "SELECT pg_reload_conf()")
        theirs = address.replace(f"//{own.user}@", "//keeper@")
        with pytest.raises(StoreAccessError, match="password"):
            Store.open(theirs)

        monkeypatch.setenv("PGPASSWORD", "open sesame")
        with Store.open(theirs) as store:
            store.back_up(tmp_path / "ideas.dump")
            monkeypatch.setenv("PGPASSWORD", "wrong")
            with pytest.raises(
                StoreAccessError, match=r"pg_dump failed: .*password authentication failed"
            ):
                store.back_up(tmp_path / "second.dump")
    finally:
        own.close()

    words = (tmp_path / "words").read_text()
    assert "--schema=" in words
    assert "pg_restore" in words
    assert "sesame" not in words
    assert [one.name for one in tmp_path.iterdir() if "dump" in one.name] == ["ideas.dump"]


def test_a_backup_that_fails_leaves_no_file(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").write_text("mine")
    with Store.open(address) as store:
        with pytest.raises(StoreAccessError, match="ideabridge does not overwrite it"):
            store.back_up(tmp_path / "there")

        with pytest.raises(StoreAccessError, match="cannot be written"):
            store.back_up(tmp_path / "no" / "such" / "folder")

        # A dump whose end is missing is noticed.
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "pg_dump"
        script.write_text(
            f'#!/bin/sh\n{shutil.which("pg_dump")} "$@" || exit\n'
            'for word; do case $word in --file=*) truncate -s -100 "${word#--file=}";; esac; done\n'
        )
        script.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
            with pytest.raises(StoreAccessError, match="pg_restore failed"):
                store.back_up(tmp_path / "copy")

        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(StoreExtraError, match="pg_dump is not installed"):
            store.back_up(tmp_path / "copy")

    assert sorted(one.name for one in tmp_path.iterdir()) == ["bin", "there"]
    assert (tmp_path / "there").read_text() == "mine"


def test_a_store_of_version_1_is_migrated_and_can_be_restored(address: str, tmp_path: Path) -> None:
    with Store.open(address) as store:
        fill(store, 10)
        before = told(store)

    # In version 1, the body was text, and pg_restore did not find the names in it.
    run_sql(
        address,
        "CREATE OR REPLACE FUNCTION json_extract(document text, "
        "path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT "
        "PARALLEL SAFE AS $$ SELECT readable_json(document) #>> "
        "string_to_array(substr(path, 3), '.') $$",
    )
    run_sql(address, "ALTER TABLE shares DROP COLUMN since")
    run_sql(address, "DROP VIEW idea_list")
    run_sql(address, "DROP INDEX contents_ropes")
    run_sql(address, "ALTER TABLE ideas DROP COLUMN shown")
    run_sql(address, "ALTER TABLE user_tokens DROP COLUMN profile")
    run_sql(address, "ALTER TABLE runs DROP COLUMN client")
    run_sql(address, "DROP TABLE configuration_changes")
    run_sql(address, "UPDATE counters SET value = 1 WHERE key = 'schema'")
    with Store.open(address) as store:
        store.back_up(tmp_path / "ideas.dump")

    with Store.open(restore(tmp_path / "ideas.dump", address)) as back:
        assert told(back) == before
