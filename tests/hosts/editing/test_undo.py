"""Undoing edits: where the file is as it was left, and where its host has written since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from ideabridge.server.hosts.editing.host_text import HostText, read_host_text, text_of_bytes
from ideabridge.server.hosts.editing.undo import (
    UndoneFile,
    record_edit,
    recorded_edits,
    undo_edit,
    undo_file,
)
from ideabridge.server.hosts.editing.writing import backup_folder
from ideabridge.server.hosts.host import HostFileError

ENTRY: Any = {"command": "c"}

JSON_TEXT = '{\n  // mine\n  "mcpServers": {"a": {"command": "a"}, "b": {"n": 1.50}},\n}'
TOML_TEXT = "[mcp_servers.a]\ncommand = 'a'\n\n[mcp_servers.b]\nn = 1\n# end"
YAML_TEXT = "# mine\nextensions:\n  a:\n    cmd: a\n  b:\n    n: 1.50\n"
KINDS: Any = [
    ("json", JSON_TEXT, ("mcpServers",), '"mcpServers"', '"theirs": 1, "mcpServers"'),
    ("toml", TOML_TEXT, ("mcp_servers",), "[mcp_servers.a]", "theirs = 1\n[mcp_servers.a]"),
    ("yaml", YAML_TEXT, ("extensions",), "extensions:", "theirs: 1\nextensions:"),
]


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def put(folder: Path, text: str) -> Path:
    path = folder / "host.file"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("kind", "text", "keys", "old", "new"), KINDS)
def test_bytes_or_entries_are_put_back(
    kind: Literal["json", "toml", "yaml"],
    text: str,
    keys: tuple[str, ...],
    old: str,
    new: str,
    tmp_path: Path,
) -> None:
    path = put(tmp_path, text)

    def edited() -> HostText:
        before = read_host_text(path, kind)
        return (
            before.with_entry(keys, "x", ENTRY)
            .without_entry(keys, "b")
            .with_entry(keys, "a", ENTRY)
        )

    assert undo_file(edited().edit()).how == "restored"
    assert path.read_text(encoding="utf-8") == text

    edit = edited().edit()
    theirs = path.read_text(encoding="utf-8").replace(old, new)
    path.write_text(theirs, encoding="utf-8")
    assert undo_file(edit) == UndoneFile(path, "entries")
    after = read_host_text(path, kind)
    assert after.entries(keys) == read_host_text(put(tmp_path, text), kind).entries(keys)
    assert after.content["theirs"] == 1


@pytest.mark.parametrize(
    ("kind", "text", "keys"),
    [
        (
            "jsonc",
            (
                '{\n  "n": 5,\n  "servers": {\n    // first\n    "a": {"x": 1.50}, /* a */\n'
                '    "b": { "y": 1E5 /* b */ },\n    "c": {},\n  },\n}\n'
            ),
            ("servers",),
        ),
        (
            "toml",
            (
                "n = 5 # how often\n\n[servers.b]\n# why\ny = 1_000 # b\n\n"
                "[servers.b.env]\nA = 'x'\n\n[servers.c]\nz = 1\n\n# about tools\n[tools]\n"
            ),
            ("servers",),
        ),
        (
            "yaml",
            (
                "n: 5 # how often\nservers:\n  b:\n    # why\n    y: 1.50   # b\n"
                "    z: [ a,  b ]\n  c: {}\nz: 1\n"
            ),
            ("servers",),
        ),
    ],
)
def test_what_was_removed_comes_back_as_it_was_written(
    kind: Literal["jsonc", "toml", "yaml"], text: str, keys: tuple[str, ...], tmp_path: Path
) -> None:
    path = put(tmp_path, text)
    edit = read_host_text(path, kind).without_entry(keys, "b").edit()
    # The host has increased a counter far from the entry.
    path.write_text(path.read_text().replace("5", "6", 1))
    assert undo_file(edit).how == "entries"
    assert path.read_text() == text.replace("5", "6", 1)

    # The same holds for several entries that have been replaced by another one.
    now = text.replace("5", "6", 1)
    moved = read_host_text(path, kind)
    for name in [*moved.entries(keys)]:
        moved = moved.without_entry(keys, name)
    edit = moved.with_entry(keys, "x", ENTRY).edit()
    path.write_text(path.read_text().replace("6", "7", 1))
    assert undo_file(edit) == UndoneFile(path, "entries")
    assert path.read_text() == now.replace("6", "7", 1)

    # The host has rewritten its file, so the entry comes back with the same content.
    edit = read_host_text(path, kind).without_entry(keys, "b").edit()
    path.write_text(path.read_text().replace("c", "d"))
    assert undo_file(edit).how == "entries"
    assert read_host_text(path, kind).entries(keys)["b"] == edited_entry(text, kind, keys)


def edited_entry(text: str, kind: Literal["jsonc", "toml", "yaml"], keys: tuple[str, ...]) -> Any:
    return text_of_bytes(Path("x"), kind, text.encode()).entries(keys)["b"]


def test_a_path_that_leads_elsewhere_now_is_left_alone(tmp_path: Path) -> None:
    path = put(tmp_path, JSON_TEXT)
    edit = read_host_text(path).without_entry(("mcpServers",), "b").edit()
    victim = tmp_path / "victim.json"
    victim.write_text("{}")
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(HostFileError, match=r"now leads to .*victim\.json, but led to"):
        undo_file(edit)
    assert victim.read_text() == "{}"


def test_what_was_added_is_removed_with_its_parents(tmp_path: Path) -> None:
    path = put(tmp_path, '{\n  "startups": 5\n}\n')
    keys = ("projects", "/p", "mcpServers")
    edit = read_host_text(path).with_entry(keys, "x", ENTRY).edit()
    path.write_text(path.read_text().replace("5", "6"))
    assert undo_file(edit).how == "entries"
    assert path.read_text() == '{\n  "startups": 6\n}\n'


def test_a_parent_that_the_host_uses_stays(tmp_path: Path) -> None:
    path = put(tmp_path, "{}")
    edit = read_host_text(path).with_entry(("mcpServers",), "x", ENTRY).edit()
    read_host_text(path).with_entry(("mcpServers",), "theirs", ENTRY).write()
    undo_file(edit)
    assert json.loads(path.read_text()) == {"mcpServers": {"theirs": ENTRY}}


def test_a_file_that_was_created_is_removed_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "mcp.json"
    edit = read_host_text(path).with_entry((), "x", ENTRY).edit()
    assert undo_file(edit).how == "deleted"
    assert not (tmp_path / "a").exists()

    edit = read_host_text(path).with_entry((), "x", ENTRY).edit()
    (path.parent / "other").write_text("")
    assert undo_file(edit).how == "deleted"
    assert [other.name for other in path.parent.iterdir()] == ["other"]


def test_an_edit_that_changed_nothing_is_undone_by_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, '{"x": {"command": "c"}}')
    edit = read_host_text(path).with_entry((), "x", ENTRY).edit()
    assert edit.backup is None
    assert undo_file(edit).how == "nothing"
    assert path.exists()


def test_a_file_that_is_gone_stays_gone(tmp_path: Path) -> None:
    path = put(tmp_path, JSON_TEXT)
    edit = read_host_text(path).without_entry(("mcpServers",), "b").edit()
    path.unlink()
    assert undo_file(edit).how == "nothing"
    assert not path.exists()


def test_an_entry_that_somebody_put_there_since_is_left(tmp_path: Path) -> None:
    path = put(tmp_path, JSON_TEXT)
    edit = read_host_text(path).without_entry(("mcpServers",), "b").edit()
    read_host_text(path).with_entry(("mcpServers",), "b", ENTRY).write()
    theirs = path.read_bytes()
    assert undo_file(edit) == UndoneFile(path, "nothing", ("b",))
    assert path.read_bytes() == theirs


def test_edits_are_noted_until_they_are_undone(tmp_path: Path) -> None:
    path = put(tmp_path, JSON_TEXT)
    for name in ("x", "y"):
        edit = read_host_text(path).with_entry(("mcpServers",), name, ENTRY).edit()
        record_edit("install cursor", tmp_path, [edit], [path])
    record_edit("install vscode", tmp_path, [])

    last, first = recorded_edits("install cursor")
    assert last.trusted == (path,)
    assert [undone.how for undone in undo_edit(last)] == ["restored"]
    assert recorded_edits("install cursor") == [first]
    assert [undone.how for undone in undo_edit(first)] == ["restored"]
    assert path.read_text(encoding="utf-8") == JSON_TEXT
    assert recorded_edits("install cursor") == []
    assert len(recorded_edits("install vscode")) == 1


def test_no_note_holds_an_entry(tmp_path: Path) -> None:
    path = put(tmp_path, "{}")
    secret: Any = {"env": {"TOKEN": "ghp_secret"}}
    record_edit("x", tmp_path, [read_host_text(path).with_entry((), "x", secret).edit()])
    notes = backup_folder() / "edits.json"
    assert "ghp_secret" not in notes.read_text()
    assert notes.stat().st_mode & 0o777 == 0o600


def test_a_backup_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, JSON_TEXT)
    edit = read_host_text(path).with_entry((), "x", ENTRY).edit()
    assert edit.backup is not None
    edit.backup.unlink()
    after = path.read_bytes()
    with pytest.raises(HostFileError, match="cannot be read"):
        undo_file(edit)
    assert path.read_bytes() == after


def test_damaged_notes_are_named_and_put_aside(tmp_path: Path) -> None:
    notes = backup_folder() / "edits.json"
    notes.write_text("{")
    with pytest.raises(HostFileError, match="is damaged"):
        recorded_edits("x")
    record_edit("x", tmp_path, [])
    assert len(recorded_edits("x")) == 1
    assert (backup_folder() / "edits.damaged.json").read_text() == "{"
