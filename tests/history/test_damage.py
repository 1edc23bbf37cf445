"""Damaged logs: each call is read once, never with the result of another one, in the order of time,
and what was not read is counted.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.history import claude_code, codex, conversation
from ideabridge.bridge.history.conversation import Conversation, Names, find_logs
from ideabridge.bridge.history.salvage import salvage

from .logs import ClaudeCode, Codex, Line, text, write

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
    # The host appends frames.
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
    assert found.skipped == {"after the damage of a compressed log": 1}


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


# -- many logs, damaged as public reports describe it ----------------------------------------------


class Damaged:
    """A log with some calls, and what was done to it.

    Attributes:
        calls: how many calls it has. The arguments of each have its number, and so has its result.
        lines: the lines, each with its number of the call, or None.
        damages: the names of the damages.
    """

    def __init__(self, host: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls = self.random.randint(1, 8)
        self.numbered = self.random.random() < 0.5
        self.with_events = self.random.random() < 0.8
        made = self._claude() if host == "claude-code" else self._codex()
        self.lines = [json.dumps(each).encode() + b"\n" for each in made]
        self.damages: list[str] = []
        self.is_silent = False
        for _ in range(self.random.randint(0, 3)):
            damage = self.random.choice(DAMAGES)
            self.damages.append(damage.__name__)
            damage(self)

    def _id(self, number: int) -> str:
        return f"call_{number % 2}" if self.numbered else f"toolu_01{number:020}x"

    def _claude(self) -> list[Any]:
        log = ClaudeCode()
        log.asks("Look")
        for number in range(self.calls):
            if self.random.random() < 0.2:
                log.asks(f"And {number}?")
            log.calls(self._id(number), "mcp__git__log", {"n": number}, f"result {number}")
        parent = None
        for each in log.lines:
            assert isinstance(each, dict)
            each["parentUuid"] = parent
            parent = each["uuid"]
        return log.lines

    def _codex(self) -> list[Any]:
        log = Codex()
        log.asks("Look")
        for number in range(self.calls):
            whole = {"Ok": {"content": text(f"result {number}")}}
            log.calls(self._id(number), "git", "log", {"n": number}, whole, f"result {number}")
            if not self.with_events:
                del log.lines[-2]
        return log.lines

    def place(self, last: int = 0) -> int:
        return self.random.randrange(max(1, len(self.lines) - last))

    def cut_of(self, data: bytes) -> bytes:
        return data[: self.random.randrange(1, max(2, len(data) - 2))]


def cut_off(log: Damaged) -> None:
    place = log.place()
    log.lines[place] = log.cut_of(log.lines[place]) + b"\n"


def spliced(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place] = log.cut_of(log.lines[place])


def without_break(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place] = log.lines[place].rstrip(b"\n")


def zero_bytes(log: Damaged) -> None:
    place = log.place()
    log.lines[place] = b"\0" * log.random.randrange(1, 4000) + log.lines[place]


def bad_byte(log: Damaged) -> None:
    place = log.place()
    data = bytearray(log.lines[place])
    data[log.random.randrange(len(data))] = 0xFF
    log.lines[place] = bytes(data)


def inside(log: Damaged) -> None:
    place = log.place(1)
    outer = log.lines[place]
    if place + 1 < len(log.lines) and len(outer) > 3:
        middle = log.random.randrange(1, len(outer) - 2)
        inner = log.lines.pop(place + 1).rstrip(b"\n")
        log.lines[place] = outer[:middle] + inner + outer[middle:]


def twice(log: Damaged) -> None:
    place = log.place()
    log.lines.insert(log.random.randrange(place, len(log.lines)) + 1, log.lines[place])


def late(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place : place + 2] = reversed(log.lines[place : place + 2])


def gone(log: Damaged) -> None:
    log.is_silent = True
    del log.lines[log.place()]


def garbage(log: Damaged) -> None:
    log.lines.insert(log.place(), log.random.randbytes(log.random.randrange(1, 60)) + b"\n")


def ended(log: Damaged) -> None:
    log.lines[-1] = log.cut_of(log.lines[-1])


DAMAGES: list[Callable[[Damaged], None]] = [
    cut_off,
    spliced,
    without_break,
    zero_bytes,
    bad_byte,
    inside,
    twice,
    late,
    gone,
    garbage,
    ended,
]

READERS = {"claude-code": claude_code.read_log, "codex": codex.read_log}


def check(host: str, seed: int, folder: Path) -> None:
    log = Damaged(host, seed)
    path = folder / "rollout-1.jsonl"
    path.write_bytes(b"".join(log.lines))
    os.utime(path, (0, 0))
    conversations: list[Conversation] = READERS[host](path, NAMES)
    calls = [call for each in conversations for call in each.calls]
    said = f"seed {seed}, {log.damages}, {[(call.arguments, call.result) for call in calls]}"

    certain = [call for call in calls if not call.doubt]
    numbers = [call.arguments.get("n") for call in certain]
    assert len(set(map(str, numbers))) == len(numbers), said
    assert all(number in range(log.calls) for number in numbers), said
    for call in certain:
        if call.missing is None:
            assert call.result == f"result {call.arguments['n']}", said

    for each in conversations:
        times = [call.time for call in each.calls if call.time is not None]
        assert times == sorted(times), said

    skipped = sum(sum(each.skipped.values()) for each in conversations)
    noticed = skipped + sum(each.repaired for each in conversations)
    whole = [call for call in certain if call.missing is None]
    if len(whole) < log.calls and not log.is_silent:
        assert noticed, said
    if not log.damages:
        assert (len(whole), skipped) == (log.calls, 0), said
    # Damages that lose nothing cost nothing.
    if set(log.damages) <= {"without_break", "zero_bytes", "twice", "late"}:
        assert len(whole) == log.calls, said


@pytest.mark.parametrize("host", READERS)
@pytest.mark.parametrize("part", range(5))
def test_damaged_logs(host: str, part: int, tmp_path: Path) -> None:
    for seed in range(part * 100, part * 100 + 100):
        check(host, seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("host", READERS)
def test_many_damaged_logs(host: str, tmp_path: Path) -> None:
    for seed in range(1000, 6000):
        check(host, seed, tmp_path)
