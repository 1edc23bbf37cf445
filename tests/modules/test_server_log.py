"""The log file of a server."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from ideabridge.bridge.modules.server_log import (
    MAX_BYTES,
    MAX_LINE,
    ServerLog,
    ServerLogReader,
    log_file,
)
from ideabridge.bridge.secrets import Secrets


def texts(path: Path) -> list[str]:
    reader = ServerLogReader(path)
    return [line.text for line in (*reader.earlier(), *reader.new())]


def total(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir())


def test_a_log_is_bounded_and_keeps_the_newest_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(0, 10_000_000, 60))
    monkeypatch.setattr("time.monotonic", lambda: float(next(moments)))
    path = tmp_path / "logs" / "own.jsonl"
    log = ServerLog(path)
    for number in range(2000):
        log.add("stderr", [f"{number} {'word ' * 400}"])

    assert MAX_BYTES < total(path) <= 2 * MAX_BYTES
    assert texts(path)[-1].startswith("1999 ")
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert max(map(len, texts(path))) <= MAX_LINE


def test_a_server_that_writes_too_much_loses_lines_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    path = tmp_path / "own.jsonl"
    log = ServerLog(path)
    for _ in range(1000):
        log.add("stderr", ["word " * 300])

    assert total(path) < 512 * 1024
    now = 60.0
    log.add("stderr", ["later"])
    note, last = texts(path)[-2:]
    assert (note.endswith("lines left out, because the server wrote too many"), last) == (
        True,
        "later",
    )


def test_a_secret_over_several_lines_is_masked(tmp_path: Path) -> None:
    secrets = Secrets()
    key = "-----BEGIN KEY-----\nfirst line of it\nsecond line of it\n-----END KEY-----"
    secrets.add("PRIVATE_KEY", key, certain=True)
    path = tmp_path / "own.jsonl"
    ServerLog(path).add("stderr", ["the key:", *key.splitlines(), "the end"])
    assert texts(path) == ["the key:", "[secret:PRIVATE_KEY]", "the end"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("two\nlines", ["two", "lines"]),
        ({"a": [1, None]}, ['{"a": [1, null]}']),
        (None, ["null"]),
        ([["deep"]] * 10_000, None),
    ],
)
def test_log_messages_of_every_kind(
    data: object, expected: list[str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    ServerLog(path).add_message({"level": "odd", "logger": 5, "data": data})
    lines = ServerLogReader(path).new()
    assert {line.level for line in lines} == {"info"}
    if expected is not None:
        assert [line.text for line in lines] == expected
    assert max(len(line.text) for line in lines) <= MAX_LINE


def test_lines_of_several_processes_are_whole_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"

    def write(name: str) -> None:
        log = ServerLog(path)
        for number in range(200):
            log.add("stderr", [f"{name} {number}"])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rows = path.read_text(encoding="utf-8").splitlines()
    assert len([json.loads(row) for row in rows]) == 800


def test_a_reader_follows_a_log_that_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    log = ServerLog(path)
    log.add("stderr", ["one"])
    reader = ServerLogReader(path)
    assert [line.text for line in reader.new()] == ["one"]
    log.add("stderr", ["two"])
    path.replace(path.with_suffix(".1.jsonl"))
    log.add("stderr", ["three"])
    assert [line.text for line in reader.new()] == ["two", "three"]
    with path.open("ab") as file:
        file.write(b'not a line\n{"time": "x"}\n[]\n{"unfinished')
    assert reader.new() == []


def test_no_link_is_followed_and_a_log_that_cannot_be_written_disturbs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched", encoding="utf-8")
    path = tmp_path / "own.jsonl"
    path.symlink_to(victim)
    log = ServerLog(path)
    for _ in range(2):
        log.add("stderr", ["line"])

    assert victim.read_text(encoding="utf-8") == "untouched"
    assert len(caplog.messages) == 1
    assert "cannot be written" in caplog.messages[0]


def test_servers_of_the_same_name_have_logs_of_their_own(tmp_path: Path) -> None:
    files = {
        log_file(tmp_path, "git", tmp_path / "a.json"),
        log_file(tmp_path, "git", tmp_path / "b.json"),
        log_file(tmp_path, "Git", tmp_path / "a.json"),
        log_file(tmp_path, "../../git", tmp_path / "a.json"),
        log_file(tmp_path, "git\udc80", tmp_path / "a.json"),
    }
    assert len(files) == 5
    assert {file.parent for file in files} == {tmp_path}
