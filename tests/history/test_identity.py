"""Which call of a log is which: ids that repeat, rewound branches, copies, rejected calls, names of
servers, and times.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.history import claude_code, codex
from ideabridge.bridge.history.conversation import Conversation, Names
from ideabridge.bridge.history.recording import stretches
from ideabridge.bridge.lifting.function import read_function

from .logs import START, ClaudeCode, Codex, text, write
from .test_import import bridge, home, put, taken

__all__ = ["bridge", "home"]

NAMES = Names(["git", "my_mail", "Google Drive"])


def of_claude(log: ClaudeCode, folder: Path) -> list[Conversation]:
    path = folder / f"{log.session}.jsonl"
    path.unlink(missing_ok=True)
    return claude_code.read_log(write(path, log.lines), NAMES)


def of_codex(log: Codex, folder: Path) -> list[Conversation]:
    path = folder / "rollout-2026-11-20T09-00-00-019f.jsonl"
    path.unlink(missing_ok=True)
    return codex.read_log(write(path, log.lines), NAMES)


def results(conversation: Conversation) -> list[tuple[Any, Any]]:
    return [(call.arguments.get("n"), call.result) for call in conversation.calls]


# -- ids that repeat -------------------------------------------------------------------------------


def test_claude_code_ids_that_begin_again_in_each_turn_lose_nothing(tmp_path: Path) -> None:
    log = ClaudeCode()
    for number in range(3):
        log.calls("call_0", "mcp__git__log", {"n": number % 2}, f"result {number}")
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(0, "result 0"), (1, "result 1"), (0, "result 2")]


@pytest.mark.parametrize("with_event", [True, False])
def test_codex_ids_that_begin_again_in_each_turn_lose_nothing(
    with_event: bool, tmp_path: Path
) -> None:
    log = Codex()
    for number in range(3):
        whole = {"Ok": {"content": text(f"result {number}")}}
        log.calls("call_0", "git", "log", {"n": number % 2}, whole, f"result {number}")
        if not with_event:
            del log.lines[-2]
    (found,) = of_codex(log, tmp_path)
    assert results(found) == [(0, "result 0"), (1, "result 1"), (0, "result 2")]


def test_a_line_that_is_written_twice_is_read_once(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.calls("call_0", "mcp__git__log", {"n": 1}, "one")
    log.calls("call_0", "mcp__git__log", {"n": 1}, "two")
    log.lines += log.lines[:2]
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(1, "one"), (1, "two")]
    assert found.skipped == {"written twice": 2}


def test_an_answer_that_is_logged_again_at_another_time_is_one_call(tmp_path: Path) -> None:
    log = ClaudeCode()
    for _ in range(2):
        log.uses("call_0", "mcp__git__log", {"n": 1})
        line: Any = log.lines[-1]
        line["message"]["id"] = "msg_1"
    log.returns("call_0", "one")
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(1, "one")]


def test_a_result_of_an_unread_call_goes_to_no_other_call(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.uses("call_0", "mcp__git__log", {"n": 1})
    log.lines.append("{broken")
    log.returns("call_0", "perhaps of the broken line")
    (found,) = of_claude(log, tmp_path)
    assert [(call.result, call.missing) for call in found.calls] == [
        (None, "the log has no result")
    ]
    # The parent says whose result this is, and no two calls have an id like this one.
    line: Any = log.lines[-1]
    first: Any = log.lines[0]
    line["parentUuid"] = first["uuid"]
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(1, "perhaps of the broken line")]


def test_a_result_of_an_unread_call_of_codex_goes_to_no_other_call(tmp_path: Path) -> None:
    log = Codex()
    log.calls("call_0", "git", "log", {"n": 1}, {}, "")
    del log.lines[2:]
    log.lines.append("{broken")
    log.calls("call_0", "git", "log", {"n": 2}, {"Ok": {"content": text("two")}}, "two")
    del log.lines[3]
    (found,) = of_codex(log, tmp_path)
    assert results(found) == [(1, None), (2, "two")]


def test_a_result_that_is_written_late_is_in_the_order_of_times(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.calls("toolu_01ABCDEFGHIJKLMN", "mcp__git__log", {"n": 1}, "one")
    log.calls("toolu_01OPQRSTUVWXYZab", "mcp__git__log", {"n": 2}, "two")
    log.lines[:] = log.lines[2:] + log.lines[:2]
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(1, "one"), (2, "two")]


@pytest.mark.anyio
async def test_repeated_ids_over_two_logs_lose_nothing(bridge: Bridge, home: Path) -> None:
    for day in range(2):
        log = ClaudeCode(f"s{day}", START + timedelta(hours=day))
        log.calls("call_0", "mcp__shop__describe", {"order": "o-17"}, "Order o-17: 12 EUR")
        put(home, log)
    first = await taken(bridge)
    assert [(run.calls, run.run is not None) for run in first.runs] == [(1, True), (1, True)]
    assert len({run.run for run in first.runs}) == 2
    again = await taken(bridge)
    assert (again.runs, again.known) == ([], 2)


# -- branches and copies ---------------------------------------------------------------------------


def chained(log: ClaudeCode) -> ClaudeCode:
    """Give each line the line before it as its parent."""
    parent = None
    for line in log.lines:
        assert isinstance(line, dict)
        line["parentUuid"] = parent
        parent = line["uuid"]
    return log


def rewound() -> ClaudeCode:
    """A conversation in which a person took the second question back and asked another one."""
    log = ClaudeCode()
    log.asks("First")
    log.calls("t1", "mcp__git__log", {"n": 1}, "kept")
    log.asks("Second, taken back")
    log.calls("t2", "mcp__git__log", {"n": 2}, "abandoned")
    log.asks("Second, again")
    log.calls("t3", "mcp__git__log", {"n": 3}, "kept, too")
    chained(log)
    again: Any = log.lines[6]
    before: Any = log.lines[3]
    again["parentUuid"] = before["parentUuid"]
    return log


def test_an_abandoned_branch_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    log = rewound()
    kept, abandoned = of_claude(log, tmp_path)
    assert results(kept) == [(1, "kept"), (3, "kept, too")]
    assert results(abandoned) == [(2, "abandoned")]
    assert (kept.id, abandoned.id) == ("3a1c", "3a1c/rewound-u-3")
    assert abandoned.calls[0].prompt == "Second, taken back"


def test_the_branch_that_goes_on_is_the_kept_one(tmp_path: Path) -> None:
    log = rewound()
    log.calls("t4", "mcp__git__log", {"n": 4}, "goes on")
    for line, parent in zip(log.lines[-2:], ("u-5", "u-9"), strict=True):
        assert isinstance(line, dict)
        line["parentUuid"] = parent
    kept, abandoned = of_claude(log, tmp_path)
    assert results(kept) == [(1, "kept"), (2, "abandoned"), (4, "goes on")]
    assert results(abandoned) == [(3, "kept, too")]


def test_calls_that_were_listed_together_are_no_branches(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.asks("Both")
    log.uses("t1", "mcp__git__log", {"n": 1})
    log.uses("t2", "mcp__git__log", {"n": 2})
    log.returns("t1", "one")
    log.returns("t2", "two")
    log.asks("Go on")
    chained(log)
    for number, parent in ((3, "u-1"), (4, "u-2")):
        line: Any = log.lines[number]
        line["parentUuid"] = parent
    (found,) = of_claude(log, tmp_path)
    assert results(found) == [(1, "one"), (2, "two")]


def test_a_tree_with_a_circle_is_read(tmp_path: Path) -> None:
    log = rewound()
    first: Any = log.lines[0]
    first["parentUuid"] = "u-8"
    assert sum(len(each.calls) for each in of_claude(log, tmp_path)) == 3


def test_turns_of_codex_that_were_taken_back_are_a_conversation_of_their_own(
    tmp_path: Path,
) -> None:
    log = Codex()
    for number in (1, 2, 3):
        log.asks(f"Question {number}")
        whole = {"Ok": {"content": text(f"result {number}")}}
        log.calls(f"c{number}", "git", "log", {"n": number}, whole)
        if number == 2:
            log.event("thread_rolled_back", num_turns=1)
    kept, abandoned = of_codex(log, tmp_path)
    assert results(kept) == [(1, "result 1"), (3, "result 3")]
    assert (results(abandoned), abandoned.id) == ([(2, "result 2")], "019f-77aa/rewound-1")


def uuid7(seconds: float) -> str:
    return str(UUID(int=(int(seconds * 1000) << 80) | (7 << 76) | (2 << 62)))


@pytest.mark.anyio
@pytest.mark.parametrize("fork_first", [False, True])
async def test_a_fork_of_codex_adds_only_its_own_calls(
    fork_first: bool, bridge: Bridge, home: Path
) -> None:
    whole = {"Ok": {"content": text("Order o-17: 12 EUR")}}
    origin_id = uuid7(START.timestamp())
    origin = Codex(origin_id)
    origin.asks("What is o-17?")
    origin.calls("call_0", "shop", "describe", {"order": "o-17"}, whole)

    # The fork contains the lines of the original, with the time at which the fork was made.
    later = START + timedelta(hours=2)
    fork = Codex(uuid7(later.timestamp()), later)
    stamp = fork.clock.tick(0)
    for line in json.loads(json.dumps(origin.lines)):
        fork.lines.append({**line, "timestamp": stamp})
    fork.lines.append(
        {
            "timestamp": fork.clock.tick(),
            "type": "turn_context",
            "payload": {"turn_id": uuid7(later.timestamp() + 1)},
        }
    )
    fork.asks("And again?")
    fork.calls("call_0", "shop", "describe", {"order": "o-17"}, whole)

    logs = [("1", fork), ("2", origin)] if fork_first else [("1", origin), ("2", fork)]
    for name, log in logs:
        write(home / f".codex/sessions/2026/11/20/rollout-{name}.jsonl", log.lines)

    report = await taken(bridge, "codex")
    assert sorted((run.title, run.calls) for run in report.runs) == [
        ("And again?", 1),
        ("What is o-17?", 1),
    ]
    assert report.known == 1


def test_a_copy_of_claude_code_with_other_times_is_known_as_a_copy(tmp_path: Path) -> None:
    log = ClaudeCode("branch")
    log.uses("t1", "mcp__git__log", {}, forkedFrom={"sessionId": "3a1c", "messageUuid": "u-1"})
    log.uses("t2", "mcp__git__log", {})
    (found,) = of_claude(log, tmp_path)
    assert [call.copied for call in found.calls] == [True, False]


# -- calls that a person did not allow -------------------------------------------------------------


@pytest.mark.anyio
async def test_a_rejected_call_is_no_failed_call(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode()
    rejected = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it "
        "was a file edit, the new_string was NOT written to the file)."
    )
    denied = "Permission to use mcp__shop__send has been denied."
    note = {"to": "ann", "text": "hi"}
    log.calls("t1", "mcp__shop__describe", {"order": "o-17"}, "Order o-17: 12 EUR")
    log.calls("t2", "mcp__shop__send", note, rejected, is_error=True)
    log.calls("t3", "mcp__shop__send", note, denied, is_error=True)
    stopped = "The user doesn't want to take this action right now. STOP what you are doing."
    log.calls("t4", "mcp__shop__send", note, stopped, is_error=True)
    log.calls("t5", "mcp__shop__find_orders", {"customer": "x"}, "Permission to use", is_error=True)
    put(home, log)
    (one,) = (await taken(bridge)).runs
    assert one.run is not None
    assert dict(one.left) == {"that a person rejected": 2}
    history = read_function(bridge.store, one.run, "local").run.machine.history
    assert [(call.call.name, (call.error or {}).get("kind")) for call in history] == [
        ("describe", None),
        ("send", "unknown"),
        ("find_orders", "runtime"),
    ]


def test_calls_of_codex_that_a_person_rejected_are_marked(tmp_path: Path) -> None:
    log = Codex()
    log.calls("c1", "git", "log", {"n": 1}, {"Err": "user rejected MCP tool call"})
    log.calls("c2", "git", "log", {"n": 2}, {"Err": "user cancelled MCP tool call"})
    log.calls("c3", "git", "log", {"n": 3}, {"Err": "tool call error: timed out"})
    log.calls("c4", "git", "log", {"n": 4}, {}, "user rejected MCP tool call")
    del log.lines[-2]
    (found,) = of_codex(log, tmp_path)
    assert [call.rejected for call in found.calls] == [True, True, False, True]


# -- names of servers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("plugin_acme_git__log", "git"),
        ("plugin_acme_tools_git__log", "git"),
        ("plugin_acme_my_mail__log", "my_mail"),
        ("plugin_my_mail__log", None),
        ("plugin_git__log", None),
        ("claude_ai_Git__log", "git"),
        ("claude_ai_My_Mail__log", "my_mail"),
        ("claude_ai_Google_Drive__log", "Google Drive"),
        ("claude_ai_Slack__log", None),
        ("acme_git__log", None),
    ],
)
def test_names_of_plugins_and_connectors_find_their_server(name: str, module: str | None) -> None:
    found = NAMES.split(name)
    assert (found.module, found.name) == (module, "log")
    assert NAMES.of("plugin:acme:git") == "git"
    assert NAMES.of("claude.ai Google Drive") == "Google Drive"


# -- times -----------------------------------------------------------------------------------------


def pieces(conversation: Conversation) -> list[int]:
    return [len(stretch.calls) for stretch in stretches(conversation, lambda _: False)]


def test_a_long_call_does_not_end_a_stretch_and_a_pause_does(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.uses("t1", "mcp__git__log", {"n": 1})
    log.clock.tick(720)
    log.returns("t1", "after twelve minutes")
    log.calls("t2", "mcp__git__log", {"n": 2}, "two")
    (found,) = of_claude(log, tmp_path)
    assert pieces(found) == [2]
    log.clock.tick(720)
    log.calls("t3", "mcp__git__log", {"n": 3}, "three")
    (found,) = of_claude(log, tmp_path)
    assert pieces(found) == [2, 1]


def test_codex_calls_without_an_item_begin_before_their_event(tmp_path: Path) -> None:
    log = Codex()
    for number in (1, 2):
        log.event(
            "mcp_tool_call_end",
            call_id=f"exec-{number}",
            invocation={"server": "git", "tool": "log", "arguments": {"n": number}},
            duration={"secs": 720 if number == 1 else 0, "nanos": 500_000_000},
            result={"Ok": {"content": text("x")}},
        )
    (found,) = of_codex(log, tmp_path)
    first, second = found.calls
    assert first.time is not None
    assert first.ended_at == first.time + 720.5
    assert second.time == first.time + 721
    assert pieces(found) == [2]


@pytest.mark.anyio
async def test_a_call_that_may_still_run_is_left_for_later(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode()
    log.uses("t1", "mcp__shop__describe", {"order": "o-17"})
    put(home, log)
    history = bridge.history("claude-code")
    history.now = START.timestamp() + 1200
    (one,) = (await history.take()).runs
    assert (one.run, one.why) == (
        None,
        "its last call has no result and is less than an hour old, so it may still be running",
    )
    history.now = START.timestamp() + 3700
    (one,) = (await history.take()).runs
    assert one.run is not None


@pytest.mark.anyio
async def test_an_imported_run_has_the_times_of_its_calls(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode()
    log.calls("t1", "mcp__shop__describe", {"order": "o-17"}, "Order o-17: 12 EUR")
    log.clock.tick(60)
    log.calls("t2", "mcp__shop__describe", {"order": "o-23"}, "Order o-23: 12 EUR")
    put(home, log)
    (one,) = (await taken(bridge)).runs
    assert one.run is not None
    record = bridge.store.runs.get(one.run)
    assert record is not None
    assert record.created == "2026-11-20T09:00:01.000+00:00"
    times = bridge.store.runs.event_times(one.run)
    seconds = [time - START.timestamp() for time in times.values()]
    assert seconds == sorted(seconds)
    assert sorted(set(seconds)) == [1, 2, 63, 64]
