"""The faults of `tests/disk.py` reach SQLite, here and in another process, and what was
committed stays.
"""

import errno
import subprocess
import time
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import StoreAccessError, StoreFullError
from ideabridge.bridge.store.store import Store
from tests.disk import REASON, Disk
from tests.ideas.test_processes import check

pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def test_faults_come_and_go(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk") as disk, Store.open(tmp_path / "ideas.db") as store:
        store.settings.set("k", b"before")
        for code, error in ((errno.EIO, StoreAccessError), (errno.ENOSPC, StoreFullError)):
            before = disk.hits()
            with disk.failing(code):
                with pytest.raises(error):
                    store.settings.set("k", b"lost")
                assert store.settings.get("k") == b"before"

            assert disk.hits() > before
            store.settings.set("k", b"before")

        disk.slow(0.2)
        began = time.monotonic()
        store.settings.set("k", b"slow")
        assert time.monotonic() - began >= 0.2
        disk.heal()
        assert store.settings.get("k") == b"slow"

    with Store.open(tmp_path / "ideas.db") as store:
        assert store.settings.get("k") == b"slow"

    check(tmp_path / "ideas.db")


def test_faults_reach_another_process(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    words = [
        "store",
        "backup",
        str(tmp_path / "copy"),
        "--store",
        str(tmp_path / "ideas.db"),
        "--project",
    ]
    Store.open(tmp_path / "ideas.db").close()
    with disk.failing(errno.ENOSPC):
        failed = subprocess.run(disk.command(*words, str(tmp_path)), capture_output=True, text=True)

    assert failed.returncode == 3, failed.stderr
    assert disk.hits() > 0
    subprocess.run(disk.command(*words, str(tmp_path)), check=True)
