"""Writing hosts' files: what stays as it is, and what others write at the same time."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.hosts.editing import writing
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.editing.writing import backup_folder
from ideabridge.server.hosts.host import HostFileError

ENTRY: Any = {"command": "c"}
KEYS = ("mcpServers",)
ODD = b'\xef\xbb\xbf{\r\n\t"mcpServers": {"a": 1.50, "a": 1E5,}, // \xc5\xbe\n}'


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "host" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(ODD)
    return path


def add(path: Path, name: str = "x", **how: Any) -> Path | None:
    return read_host_text(path).with_entry(KEYS, name, ENTRY).write(**how)


def test_the_backup_has_the_same_bytes_and_is_nowhere_near(file: Path) -> None:
    backup = add(file)
    assert backup is not None
    assert backup.parent == backup_folder()
    assert backup.read_bytes() == ODD
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]
    first = file.read_bytes()
    other = add(file, "y")
    assert other is not None
    assert other != backup
    assert other.read_bytes() == first


def test_mode_and_group_stay(file: Path) -> None:
    groups = [group for group in os.getgroups() if group != file.stat().st_gid]
    group = 12345 if os.geteuid() == 0 else (groups or [file.stat().st_gid])[0]
    os.chown(file, -1, group)
    file.chmod(0o640)
    add(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.stat().st_gid == group
    add(file, "y", private=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_file_is_the_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    assert add(path) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_bytes()) == {"mcpServers": {"x": ENTRY}}


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file)
    add(link)
    assert link.is_symlink()
    assert read_host_text(file).entries(KEYS)["x"] == ENTRY


def test_a_link_out_of_a_project_is_refused(file: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    link = project / "mcp.json"
    link.symlink_to(file)
    with pytest.raises(HostFileError, match="leads out of the project"):
        add(link, project=project)
    assert file.read_bytes() == ODD


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/null")

    with pytest.raises(HostFileError):
        add(path)


def test_a_pipe_that_takes_the_place_of_the_file_is_refused(file: Path) -> None:
    text = read_host_text(file).with_entry(KEYS, "x", ENTRY)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(HostFileError, match="not a regular file"):
        text.write()
    assert stat.S_ISFIFO(file.stat().st_mode)


def test_what_a_host_wrote_since_is_kept(file: Path) -> None:
    text = read_host_text(file).with_entry(KEYS, "x", ENTRY)
    theirs = b'{"theirs": 1.0, "mcpServers": {"b": {}}} // c'
    file.write_bytes(theirs)
    backup = text.write()
    assert file.read_bytes() == (
        b'{"theirs": 1.0, "mcpServers": {"b": {}, "x": {"command": "c"}}} // c'
    )
    assert backup is not None
    assert backup.read_bytes() == theirs


def test_a_host_that_writes_at_the_last_moment_loses_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host writes three times while the new bytes are still in a file beside it.
    left = [b'{"turn": 3}', b'{"turn": 2}', b'{"turn": 1}']
    staged = writing.staged

    def stage(path: Path, data: bytes) -> Any:
        if path == file and left:
            file.write_bytes(left.pop())
        return staged(path, data)

    monkeypatch.setattr(writing, "staged", stage)
    backup = add(file)
    assert json.loads(file.read_bytes()) == {"turn": 3, "mcpServers": {"x": ENTRY}}
    assert backup is not None
    assert backup.read_bytes() == b'{"turn": 3}'
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]
    assert [path for path in backup_folder().iterdir() if path.suffix == ".bak"] == [backup]


def test_what_a_host_broke_since_is_left_alone(file: Path) -> None:
    text = read_host_text(file).with_entry(KEYS, "x", ENTRY)
    file.write_bytes(b'{"half": ')
    with pytest.raises(HostFileError, match="is not JSON"):
        text.write()
    assert file.read_bytes() == b'{"half": '


def test_many_writers_lose_nothing(file: Path) -> None:
    names = [f"server-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(add, file, name) for name in names]
        for write in writes:
            write.result()

    assert set(read_host_text(file).entries(KEYS)) == {"a", *names}
    text = read_host_text(file)
    for name in names:
        text = text.without_entry(KEYS, name)
    assert text.data == ODD


def test_a_folder_that_cannot_be_written_is_named(file: Path) -> None:
    text = read_host_text(file).with_entry(KEYS, "x", ENTRY)
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("a file")
    with pytest.raises(HostFileError, match=r"mcp\.json cannot be"):
        text.write()
