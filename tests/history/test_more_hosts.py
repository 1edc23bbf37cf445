"""The readers of Copilot CLI, Gemini CLI and opencode."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.history import copilot, gemini, opencode
from ideabridge.bridge.history.conversation import (
    Conversation,
    HistoryError,
    LoggedTool,
    Names,
    find_logs,
)
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.store.sqlite import sqlite3

from .logs import START, Copilot, Line, database, write
from .test_import import bridge, home, taken

__all__ = ["bridge", "home"]

NAMES = Names(["git", "my_mail"])


def results(conversation: Conversation) -> list[tuple[Any, Any]]:
    return [(call.arguments.get("n"), call.result) for call in conversation.calls]


# -- Copilot CLI -----------------------------------------------------------------------------------


def succeeded(value: str, whole: str | None = None) -> dict[str, object]:
    result = {"content": value} if whole is None else {"content": value, "detailedContent": whole}
    return {"success": True, "result": result}


def failed(message: str, code: str = "failure") -> dict[str, object]:
    return {"success": False, "error": {"message": message, "code": code}}


def test_copilot_calls_have_arguments_results_and_the_words_of_the_person(tmp_path: Path) -> None:
    log = Copilot()
    log.event("user.message", content="What changed?")
    log.event("tool.execution_start", toolCallId="t0", toolName="bash", arguments={"command": "ls"})
    log.event("tool.execution_complete", toolCallId="t0", success=True, result={"content": "x"})
    log.calls("t1", "git", "log", {"n": 1}, **succeeded("o...", "one and more"))
    log.calls("t1", "git", "log", {"n": 2}, **succeeded("two"))
    log.calls("t2", "git", "log", {"n": 3}, **failed("no such commit"))
    log.calls("t3", "git", "push", {"n": 4}, **failed("the user said no", "rejected"))
    log.calls("t4", "slack", "post", {}, **succeeded("ok"))
    (found,) = copilot.read_log(write(tmp_path / "c-1" / "events.jsonl", log.lines), NAMES)
    assert results(found) == [(1, "one and more"), (2, "two"), (3, None), (4, None)]
    assert [call.error for call in found.calls][2:] == ["no such commit", "the user said no"]
    assert [call.rejected for call in found.calls] == [False, False, False, True]
    assert {call.prompt for call in found.calls} == {"What changed?"}
    assert (found.id, found.folder, dict(found.others)) == ("c-1", "/home/ann/shop", {"slack": 1})
    assert found.calls[0].ended_at == (found.calls[0].time or 0) + 1
    assert not found.skipped


@pytest.mark.parametrize(
    "text",
    [
        "The user rejected this tool call. User feedback: not now",
        "Permission to run this tool was denied due to the following rules: `git(log)`",
        "Permission denied and could not request permission from user.\nNo approval rule matched",
    ],
)
def test_copilot_calls_that_never_ran_are_known_by_their_errors(tmp_path: Path, text: str) -> None:
    log = Copilot()
    log.calls("t1", "git", "log", {"n": 1}, success=False, error={"message": text})
    log.calls("t2", "git", "log", {"n": 2}, **failed(f"it failed: {text}"))
    (found,) = copilot.read_log(write(tmp_path / "c-1" / "events.jsonl", log.lines), NAMES)
    assert [call.rejected for call in found.calls] == [True, False]


def test_copilot_subagents_are_conversations_of_their_own(tmp_path: Path) -> None:
    log = Copilot()
    log.calls("t1", "git", "log", {"n": 1}, **succeeded("one"))
    log.calls("t2", "git", "log", {"n": 2}, **succeeded("two"))
    start: Any = log.lines[3]
    start["data"]["parentToolCallId"] = "t0"
    main, agent = copilot.read_log(write(tmp_path / "c-1" / "events.jsonl", log.lines), NAMES)
    assert (results(main), results(agent)) == ([(1, "one")], [(2, "two")])
    assert (main.id, agent.id) == ("c-1", "c-1/agent-t0")


# -- Gemini CLI ------------------------------------------------------------------------------------


def made(number: int, status: str = "success", name: str = "mcp_git_log", **more: object) -> Line:
    """A call in a message of Gemini CLI."""
    response = {"output": f"result {number}"} if status == "success" else {"error": "it failed"}
    function = {"id": f"c{number}", "name": name, "response": response}
    return {
        "id": f"{name}-{number}",
        "name": name,
        "args": {"n": number},
        "status": status,
        "timestamp": f"2026-11-20T09:00:{number:02}.500Z",
        "result": [{"functionResponse": function}],
        **more,
    }


def message(own: str, number: int, kind: str = "gemini", **more: object) -> Line:
    return {"id": own, "type": kind, "timestamp": f"2026-11-20T09:00:{number:02}.000Z", **more}


HEAD: Line = {"sessionId": "g-1", "projectHash": "h", "startTime": "2026-11-20T09:00:00.000Z"}


def of_gemini(folder: Path, lines: list[Line | str]) -> list[Conversation]:
    path = folder / ".gemini/tmp/shop/chats/session-2026-11-20T09-00-g1.jsonl"
    path.unlink(missing_ok=True)
    (path.parent.parent).mkdir(parents=True, exist_ok=True)
    (path.parent.parent / ".project_root").write_text("/home/ann/shop\n", encoding="utf-8")
    return gemini.read_log(write(path, lines), NAMES)


def test_gemini_messages_that_are_written_again_have_each_call_once(tmp_path: Path) -> None:
    asked = message("m1", 1, "user", content=[{"text": "What changed?"}])
    open_call = made(2, "executing", result=None)
    lines: list[Line | str] = [
        HEAD,
        asked,
        message("m2", 2, toolCalls=[open_call]),
        message("m2", 2, toolCalls=[made(2), made(3, "error")]),
        message("m2", 2, toolCalls=[made(2), made(3, "error"), made(4, "cancelled")], tokens={}),
        {"$set": {"lastUpdated": "2026-11-20T09:00:09.000Z"}},
        message("m3", 5, toolCalls=[made(5, name="read_file"), made(6, name="mcp_slack_post")]),
        message("m4", 7, toolCalls=[made(7, name="log", displayName="log (git MCP Server)")]),
        # The history was shortened, but the results that were read earlier are complete.
        {"$set": {"messages": [message("m2", 2, toolCalls=[made(2, result=[])]), asked]}},
    ]
    (found,) = of_gemini(tmp_path, lines)
    assert results(found) == [(2, "result 2"), (3, None), (4, None), (7, "result 7")]
    assert [call.error for call in found.calls] == [
        None,
        "it failed",
        "a person cancelled it",
        None,
    ]
    assert [call.rejected for call in found.calls] == [False, False, True, False]
    assert [call.prompt for call in found.calls] == ["What changed?"] * 4
    assert (found.id, found.folder, dict(found.others)) == ("g-1", "/home/ann/shop", {"slack": 1})


def test_gemini_messages_that_were_taken_back_are_a_conversation_of_their_own(
    tmp_path: Path,
) -> None:
    lines: list[Line | str] = [
        HEAD,
        message("m1", 1, toolCalls=[made(1)]),
        message("m2", 2, toolCalls=[made(2)]),
        {"$rewindTo": "m2"},
        message("m3", 3, toolCalls=[made(3)]),
    ]
    kept, abandoned = of_gemini(tmp_path, lines)
    assert (results(kept), results(abandoned)) == (
        [(1, "result 1"), (3, "result 3")],
        [(2, "result 2")],
    )
    assert abandoned.id == "g-1/rewound-1"


def test_gemini_marks_of_results_are_removed(tmp_path: Path) -> None:
    marked = "<untrusted_context>\none\n</untrusted_context>"
    outputs = [marked, f"{marked}\n{marked}", f"see {marked}"]
    calls: list[Line] = []
    for number, output in enumerate(outputs):
        calls.append(made(number))
        calls[-1]["result"][0]["functionResponse"]["response"] = {"output": output}
    (found,) = of_gemini(tmp_path, [HEAD, message("m1", 1, toolCalls=calls)])
    assert [call.result for call in found.calls] == ["one", "one\none", f"see {marked}"]


def test_gemini_documents_of_2025_are_read(tmp_path: Path) -> None:
    path = tmp_path / "session-2025-10-01T09-00-g1.json"
    document = {**HEAD, "messages": [message("m1", 1, toolCalls=[made(1)])]}
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    (found,) = gemini.read_log(path, NAMES)
    assert (results(found), found.id) == ([(1, "result 1")], "g-1")
    path.write_text("{broken", encoding="utf-8")
    (found,) = gemini.read_log(path, NAMES)
    assert (found.calls, found.skipped) == ([], {"unreadable": 1})


def test_gemini_names_may_have_underscores_in_both_parts() -> None:
    assert NAMES.split("my_mail_send_now", "_") == LoggedTool("my_mail", "send_now", "my_mail")
    assert NAMES.split("slack_post", "_") == LoggedTool("slack", "post", None)


def test_only_logs_of_gemini_are_found(tmp_path: Path) -> None:
    chats = tmp_path / "shop" / "chats"
    agent = "0a1b2c3d-0000-4000-8000-0123456789ab"
    for name in (
        "session-1.jsonl",
        "session-2.json",
        "session-3.jsonl.tmp-17",
        f"g-1/{agent}.jsonl",
        "../logs.json",
    ):
        write(chats / name, [{}])
    found = find_logs([tmp_path], gemini.PATTERNS)
    assert sorted(path.name for path in found.files) == [
        f"{agent}.jsonl",
        "session-1.jsonl",
        "session-2.json",
    ]


# -- opencode --------------------------------------------------------------------------------------


def used(number: int, tool: str = "git_log", call: str = "call_0", **state: object) -> Line:
    start = int(START.timestamp() * 1000) + number * 1000
    whole: Line = {"status": "completed", "output": f"result {number}", "metadata": {}}
    about = {"input": {"n": number}, "time": {"start": start, "end": start + 500}}
    return {"type": "tool", "tool": tool, "callID": call, "state": {**whole, **about, **state}}


def test_opencode_sessions_are_conversations(tmp_path: Path) -> None:
    rejected = "The user rejected permission to use this specific tool call."
    path = database(
        tmp_path,
        [
            ("ses_1", "user", {"type": "text", "text": "What changed?"}),
            ("ses_1", "user", {"type": "text", "text": "a file", "synthetic": True}),
            ("ses_1", "assistant", used(1)),
            ("ses_1", "assistant", used(2)),
            ("ses_1", "assistant", used(3, status="error", error="no such commit")),
            ("ses_1", "assistant", used(4, status="error", error=rejected)),
            ("ses_1", "assistant", used(5, metadata={"truncated": True})),
            ("ses_1", "assistant", used(6, tool="bash")),
            ("ses_1", "assistant", "{broken"),
            ("ses_2", "assistant", used(7, tool="my_mail_send_now", status="running")),
        ],
    )
    first, second = opencode.read_log(path, NAMES)
    assert results(first) == [
        (1, "result 1"),
        (2, "result 2"),
        (3, None),
        (4, None),
        (5, "result 5"),
    ]
    assert [call.rejected for call in first.calls] == [False, False, False, True, False]
    assert first.calls[4].missing == "the host cut it"
    assert {call.prompt for call in first.calls} == {"What changed?"}
    assert (first.id, first.folder, first.skipped) == ("ses_1", "/home/ann/shop", {"unreadable": 1})
    assert first.calls[0].time == START.timestamp() + 1
    (sent,) = second.calls
    assert (sent.module, sent.tool, sent.ended) == ("my_mail", "send_now", None)


def test_opencode_parts_are_read_whose_messages_cannot_be(tmp_path: Path) -> None:
    path = database(
        tmp_path,
        [
            ("ses_1", "user", {"type": "text", "text": "What changed?"}),
            ("ses_1", "assistant", used(1)),
            ("ses_1", "assistant", used(2)),
        ],
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE message SET data = '{broken' WHERE id LIKE '%001'")
        connection.execute("DELETE FROM message WHERE id LIKE '%002'")
        connection.commit()

    (found,) = opencode.read_log(path, NAMES)
    assert results(found) == [(1, "result 1"), (2, "result 2")]


def test_a_damaged_page_costs_only_what_it_held(tmp_path: Path) -> None:
    parts = [
        (f"ses_{session}", "assistant", used(number, output="x" * 900))
        for session in range(3)
        for number in range(20)
    ]
    path = database(tmp_path, parts)
    whole = path.read_bytes()
    size = 4096
    damaged: list[int] = []
    for start in range(size, len(whole), size):
        path.write_bytes(whole[:start] + b"\xff" * size + whole[start + size :])
        try:
            conversations = opencode.read_log(path, NAMES)
        except OSError:
            # The page contained the sessions themselves.
            continue

        skipped = sum(len(conversation.skipped) for conversation in conversations)
        if skipped:
            damaged.append(sum(len(conversation.calls) for conversation in conversations))

    assert damaged
    assert max(damaged) > 0


def test_a_file_that_is_no_database_of_opencode_is_told(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(OSError, match="cannot be read as an opencode database"):
        opencode.read_log(path, NAMES)
    other = database(tmp_path / "other", [])
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        opencode.read_log(path, NAMES)


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["copilot-cli", "gemini-cli", "opencode"])
async def test_a_conversation_becomes_a_run_once(
    host: str, bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COPILOT_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    order = {"order": "o-17"}
    if host == "copilot-cli":
        log = Copilot()
        log.event("user.message", content="What is o-17?")
        log.calls("t1", "shop", "describe", order, **succeeded("Order o-17: 12 EUR"))
        write(home / ".copilot/session-state/c-1/events.jsonl", log.lines)
    elif host == "gemini-cli":
        asked = message("m1", 1, "user", content="What is o-17?")
        call = made(2, name="mcp_shop_describe", args=order)
        call["result"][0]["functionResponse"]["response"] = {"output": "Order o-17: 12 EUR"}
        chats = home / ".gemini/tmp/shop/chats"
        write(chats / "session-1.jsonl", [HEAD, asked, message("m2", 2, toolCalls=[call])])
    else:
        database(
            home / ".local/share/opencode",
            [
                ("ses_1", "user", {"type": "text", "text": "What is o-17?"}),
                (
                    "ses_1",
                    "assistant",
                    used(1, "shop_describe", input=order, output="Order o-17: 12 EUR"),
                ),
            ],
        )

    (one,) = (await taken(bridge, host)).runs
    assert one.run is not None
    assert one.title == "What is o-17?"
    assert read_function(bridge.store, one.run, "local").run.result == "Order o-17: 12 EUR"
    again = await taken(bridge, host)
    assert (again.runs, again.known) == ([], 1)


@pytest.mark.anyio
async def test_hosts_that_cannot_be_read_are_told(bridge: Bridge) -> None:
    with pytest.raises(
        HistoryError,
        match=r"unknown host 'cursor'; the known hosts are claude-code, codex, copilot-cli, "
        r"gemini-cli, opencode\. cursor's conversations cannot be read: they are in a database",
    ):
        bridge.history("cursor")


@pytest.mark.parametrize("odd", [None, True, 2**63, "\x00", [[None]], {"type": 1}], ids=repr)
def test_no_odd_member_stops_a_reader(odd: object, tmp_path: Path) -> None:
    log = Copilot()
    log.calls("t1", "git", "log", {"n": 1}, **succeeded("one"))
    lines: list[Line | str] = [HEAD, message("m1", 1, toolCalls=[made(1)])]
    for place in range(1, 3):
        for member in ("type", "timestamp", "data"):
            changed: list[Any] = json.loads(json.dumps(log.lines))
            changed[place][member] = odd
            path = tmp_path / "c" / "events.jsonl"
            path.unlink(missing_ok=True)
            copilot.read_log(write(path, changed), NAMES)

    for member in ("id", "name", "args", "status", "timestamp", "result"):
        changed = json.loads(json.dumps(lines))
        changed[1]["toolCalls"][0][member] = odd
        of_gemini(tmp_path, changed)

    for member in ("type", "tool", "callID", "state"):
        folder = tmp_path / member
        opencode.read_log(database(folder, [("s", "assistant", {**used(1), member: odd})]), NAMES)
    for member in ("status", "input", "output", "time", "metadata"):
        folder = tmp_path / f"state-{member}"
        part = used(1)
        part["state"][member] = odd
        opencode.read_log(database(folder, [("s", "assistant", part)]), NAMES)
