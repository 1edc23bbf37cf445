"""Damaged logs: each call is read once, never with the result of another one, in the order of time,
and what was not read is counted.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.history import codex, conversation
from ideabridge.bridge.history.conversation import Names, find_logs
from ideabridge.bridge.history.salvage import salvage

from .logs import Codex, Line, text, write

NAMES = Names(["git"])


def record(number: int, **more: object) -> Line:
    return {"type": "user", "timestamp": f"2026-11-20T09:00:{number:02}.000Z", "n": number, **more}


def line(number: int, **more: object) -> bytes:
    return json.dumps(record(number, **more)).encode()


def salvaged(data: bytes) -> tuple[list[Any], int, bool]:
    found = salvage(data)
    return [one.get("n") for one in found.records], found.fragments, found.has_bad_bytes


# -- one line --------------------------------------------------------------------------------------


def test_zero_bytes_and_a_byte_order_mark_are_removed() -> None:
    assert salvaged(b"\0" * 40 + line(1)) == ([1], 0, False)
    assert salvaged(b"\xef\xbb\xbf" + line(1)) == ([1], 0, False)


def test_records_without_a_line_break_are_read() -> None:
    assert salvaged(line(1) + line(2) + line(3)) == ([1, 2, 3], 0, False)


def test_a_record_that_was_cut_off_costs_only_itself() -> None:
    for cut in range(1, len(line(1))):
        assert salvaged(line(1)[:cut] + line(2)) == ([2], 1, False)
        assert salvaged(line(2) + line(1)[:cut]) == ([2], 1, False)
        assert salvaged(line(2) + line(1)[:cut] + line(3)) == ([2, 3], 1, False)


def test_a_record_inside_another_one_is_read_with_it() -> None:
    outer = line(1, text="a long text of the outer record")
    inner = line(2)
    for place in range(1, len(outer)):
        assert salvaged(outer[:place] + inner + outer[place:]) == ([1, 2], 0, False)


def test_a_part_of_a_record_is_no_record() -> None:
    forged = record(9, message={"content": []})
    outer = line(1, toolUseResult=forged, text="a text")
    assert salvaged(outer[:-4]) == ([], 1, False)
    assert salvaged(outer[:-4] + line(2)) == ([2], 1, False)


def test_a_record_in_the_text_of_another_one_is_no_record() -> None:
    outer = line(1, text=line(9).decode() * 2)
    assert salvaged(outer[:-30] + line(2)) == ([2], 1, False)


def test_bytes_that_are_no_text_are_replaced() -> None:
    data = line(1, text="a text").replace(b"a text", b"a\xfftext")
    assert salvaged(data) == ([1], 0, True)
    assert salvage(data).records[0]["text"] == "a\ufffdtext"


@pytest.mark.parametrize(
    "data",
    [
        b"{broken",
        b"[1, 2]",
        b'"text"',
        b"\0\0\0",
        b'{"type":"user","timestamp":"t","n":NaN}{',
        b'{"type":' * 3000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_record_is_none(data: bytes) -> None:
    assert salvage(data).records == []


def test_a_line_of_many_beginnings_takes_little_time() -> None:
    data = b'{"type":"' * 200_000
    assert salvage(data).records == []


# -- compressed logs -------------------------------------------------------------------------------


def compressed(path: Path, lines: list[Any]) -> Path:
    zstd = conversation.zstd_library()
    assert zstd is not None
    plain = "".join(json.dumps(each) + "\n" for each in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write several frames, because the host appends frames.
    frames = [plain[start : start + 3000] for start in range(0, len(plain), 3000)]
    path.write_bytes(b"".join(zstd.compress(frame) for frame in frames))
    return path


def codex_log() -> Codex:
    log = Codex()
    for number in range(40):
        whole = {"Ok": {"content": text(f"result {number} {random.Random(number).random()}")}}
        log.calls(f"call_{number:020}x", "git", "log", {"n": number}, whole)
    return log


def test_a_compressed_log_is_read(tmp_path: Path) -> None:
    path = compressed(tmp_path / "rollout-1.jsonl.zst", codex_log().lines)
    (found,) = codex.read_log(path, NAMES)
    assert [call.arguments["n"] for call in found.calls] == list(range(40))
    assert (found.skipped, found.id) == ({}, "019f-77aa")


def test_a_compressed_log_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = compressed(tmp_path / "rollout-1.jsonl.zst", codex_log().lines)
    path.write_bytes(path.read_bytes()[:-20])
    (found,) = codex.read_log(path, NAMES)
    assert 0 < len(found.calls) <= 40
    assert found.skipped["after the end of a compressed log that was cut off"] == 1
    path.write_bytes(b"no zstd")
    (found,) = codex.read_log(path, NAMES)
    assert found.skipped == {"after a damaged part of a compressed log": 1}


def test_a_log_that_is_there_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "rollout-1.jsonl", [{}])
    compressed(tmp_path / "rollout-1.jsonl.zst", [{}])
    compressed(tmp_path / "rollout-2.jsonl.zst", [{}])
    found = find_logs([tmp_path], codex.PATTERNS)
    assert sorted(path.name for path in found.files) == ["rollout-1.jsonl", "rollout-2.jsonl.zst"]


def test_without_a_library_compressed_logs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed(tmp_path / "rollout-2.jsonl.zst", [{}])
    monkeypatch.setattr(conversation, "zstd_library", lambda: None)
    found = find_logs([tmp_path], codex.PATTERNS)
    assert (found.files, found.unread) == ([], {"links": 0, "compressed": 1, "older": 0})


# -- code mode -------------------------------------------------------------------------------------


def test_calls_of_a_script_are_read_and_a_script_without_them_is_counted(tmp_path: Path) -> None:
    log = Codex()
    script = (
        "const [a, b] = await Promise.all([tools.mcp__git__log({n: 1}), tools.mcp__git__log()])"
    )
    log.item("custom_tool_call", name="exec", call_id="c1", input=script)
    (found,) = codex.read_log(write(tmp_path / "rollout-1.jsonl", log.lines), NAMES)
    assert found.skipped == {"with a script whose calls are not in the log": 1}
    for number in (1, 2):
        log.event(
            "mcp_tool_call_end",
            call_id=f"exec-{number}",
            invocation={"server": "git", "tool": "log", "arguments": {"n": number}},
            duration={"secs": 5, "nanos": 0},
            result={"Ok": {"content": text(f"result {number}")}},
        )
    log.item("custom_tool_call_output", call_id="c1", output="done")
    (found,) = codex.read_log(write(tmp_path / "rollout-2.jsonl", log.lines), NAMES)
    assert [call.result for call in found.calls] == ["result 1", "result 2"]
    assert found.skipped == {}
