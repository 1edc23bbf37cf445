"""The readers of the hosts' logs: calls with their results, and lines that are not understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ideabridge.bridge.history import claude_code, codex
from ideabridge.bridge.history.conversation import (
    MAX_LINE,
    Conversation,
    HistoryError,
    LoggedTool,
    Names,
    find_logs,
)

from .logs import ClaudeCode, Codex, Line, text, write

NAMES = Names(["git", "my.mail", "a__b"])


def of_claude(log: ClaudeCode, folder: Path) -> Conversation:
    (found,) = claude_code.read_log(write(folder / f"{log.session}.jsonl", log.lines), NAMES)
    return found


def of_codex(log: Codex, folder: Path) -> Conversation:
    (found,) = codex.read_log(
        write(folder / "rollout-2026-11-20T09-00-00-019f.jsonl", log.lines), NAMES
    )
    return found


# -- names of servers ------------------------------------------------------------------------------


def test_a_server_is_matched_as_hosts_write_its_name() -> None:
    assert NAMES.split("git__log") == LoggedTool("git", "log", "git")
    assert NAMES.split("my_mail__send__now") == LoggedTool("my_mail", "send__now", "my.mail")
    assert NAMES.split("a__b__c") == LoggedTool("a__b", "c", "a__b")
    assert NAMES.split("github__log") == LoggedTool("github", "log", None)


def test_a_name_that_two_modules_may_mean_is_neither() -> None:
    names = Names(["my.mail", "my:mail", "git"])
    assert [names.of(server) for server in ("my.mail", "my:mail", "my_mail", "git")] == [
        "my.mail",
        "my:mail",
        None,
        "git",
    ]
    two = ["my.mail", "my_mail"]
    assert Names(two).of("my_mail") == "my_mail"
    assert Names(two).split("my_mail__send") == LoggedTool("my_mail", "send", None)
    assert Names(two, {"my_mail": "my.mail"}).split("my_mail__send") == LoggedTool(
        "my_mail",
        "send",
        "my.mail",
    )


def test_a_person_may_say_which_module_a_server_is() -> None:
    names = Names(["git"], {"claude.ai Git": "git"})
    assert names.split("claude_ai_Git__log") == LoggedTool("claude_ai_Git", "log", "git")
    with pytest.raises(
        HistoryError, match=r"--server old=gti: there is no server 'gti'; there are git"
    ):
        Names(["git"], {"old": "gti"})


# -- Claude Code -----------------------------------------------------------------------------------


def test_claude_code_calls_have_arguments_results_and_the_words_of_the_person(
    tmp_path: Path,
) -> None:
    log = ClaudeCode()
    log.lines.append({"type": "permission-mode", "permissionMode": "default", "sessionId": "3a1c"})
    log.lines.append(
        {
            "type": "file-history-snapshot",
            "messageId": "m",
            "snapshot": {},
            "isSnapshotUpdate": False,
        }
    )
    log.asks("<command-name>/clear</command-name>")
    log.asks("Tell Ann what changed")
    log.asks("Caveat: made by a hook", isMeta=True)
    log.uses("t0", "Bash", {"command": "ls"})
    log.returns("t0", "README.md")
    log.calls(
        "t1",
        "mcp__git__log",
        {"n": 3},
        text("a\nb"),
        mcpMeta={"structuredContent": {"result": ["a", "b"]}},
    )
    log.calls("t2", "mcp__my_mail__send", {"to": "ann"}, "sent")
    log.calls("t3", "mcp__slack__post", {"text": "hi"}, "ok")
    found = of_claude(log, tmp_path)
    first, second = found.calls
    assert (first.module, first.tool, first.arguments, first.result) == (
        "git",
        "log",
        {"n": 3},
        {"result": ["a", "b"]},
    )
    assert (second.module, second.tool, second.result) == ("my.mail", "send", "sent")
    assert first.prompt == "Tell Ann what changed"
    assert (first.line, first.ended, first.missing, first.error) == (8, 9, None, None)
    assert first.time is not None
    assert second.time == first.time + 2
    assert (found.id, found.folder, dict(found.others)) == ("3a1c", "/home/ann/shop", {"slack": 1})
    assert not found.skipped


def test_claude_code_errors_and_calls_without_results_are_marked(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.calls("t1", "mcp__git__log", {"n": "x"}, "MCP error -32602: n is no number", is_error=True)
    log.uses("t2", "mcp__git__log", {"n": 1})
    # Another line of the same answer contains the same call again.
    log.lines.append(log.lines[-1])
    failed, open_ = of_claude(log, tmp_path).calls
    assert failed.error == "MCP error -32602: n is no number"
    assert failed.result is None
    assert open_.ended is None
    assert open_.missing == "the log has no result"


def test_claude_code_pictures_have_the_form_of_mcp(tmp_path: Path) -> None:
    log = ClaudeCode()
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    log.calls("t1", "mcp__git__graph", {}, [*text("see"), picture])
    (call,) = of_claude(log, tmp_path).calls
    assert call.result == [*text("see"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}]


def test_claude_code_results_beside_the_log_are_read(tmp_path: Path) -> None:
    log = ClaudeCode()
    results = tmp_path / log.session / "tool-results"
    results.mkdir(parents=True)
    whole = json.dumps([{"sha": number} for number in range(50)])
    (results / "mcp-git-log-1.txt").write_text(json.dumps(text(whole)), encoding="utf-8")
    secret = tmp_path / "elsewhere.txt"
    secret.write_text("not of this host", encoding="utf-8")
    (results / "link.txt").symlink_to(secret)

    def notice(path: str) -> str:
        return (
            "Error: result (120,000 characters) exceeds maximum allowed tokens. Output "
            f"has been saved to {path}.\n"
            "Format: JSON array with schema: [{type: string, "
            "text: string}]\nUse offset and limit parameters"
        )

    log.calls(
        "t1",
        "mcp__git__log",
        {},
        notice(f"/home/ann/.claude/projects/p/{log.session}/tool-results/mcp-git-log-1.txt"),
    )
    log.calls("t2", "mcp__git__log", {}, notice("/x/tool-results/link.txt"))
    log.calls("t3", "mcp__git__log", {}, notice("/x/tool-results/gone.txt"))
    saved, linked, gone = of_claude(log, tmp_path).calls
    assert (saved.result, saved.missing) == (whole, None)
    for call in (linked, gone):
        assert call.result is None
        assert call.missing == "the host cut it, and its file is gone"


def test_claude_code_subagents_are_conversations_of_their_own(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.asks("Compare")
    log.uses("t1", "mcp__git__log", {"n": 1})
    log.asks("Look at it", isSidechain=True, agentId="a77")
    log.uses("t2", "mcp__git__log", {"n": 2}, isSidechain=True, agentId="a77")
    log.returns("t1", "one")
    log.returns("t2", "two", isSidechain=True, agentId="a77")
    main, agent = claude_code.read_log(write(tmp_path / "3a1c.jsonl", log.lines), NAMES)
    assert [(call.arguments, call.result, call.prompt) for call in main.calls] == [
        ({"n": 1}, "one", "Compare")
    ]
    assert [(call.arguments, call.result, call.prompt) for call in agent.calls] == [
        ({"n": 2}, "two", "Look at it")
    ]
    assert (main.id, agent.id) == ("3a1c", "3a1c/agent-a77")


def test_lines_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    log = ClaudeCode()
    log.calls("t1", "mcp__git__log", {"n": 1}, "one")
    log.lines += [
        "{broken",
        "[1, 2]",
        "",
        '{"type": "brand-new", "uuid": "u", "message": {}}',
        '{"type": "bookkeeping"}',
        '{"deep": ' + "[" * 300 + "]" * 300 + "}",
    ]
    log.lines.append(
        '{"type": "assistant", "message": {"content": [{"type": "tool_use", '
        '"name": "mcp__git__log"}]}}'
    )
    log.lines.append(json.dumps({"type": "user", "message": {"content": "x" * (MAX_LINE + 10)}}))
    log.calls("t2", "mcp__git__log", {"n": 2}, "half \ud83d of a pair")
    path = write(tmp_path / "3a1c.jsonl", log.lines)
    write(path, ['{"type": "user", "mess'], after="")
    (found,) = claude_code.read_log(path, NAMES)
    assert [call.result for call in found.calls] == ["one", "half ? of a pair"]
    assert dict(found.skipped) == {
        "unreadable": 3,
        "of an unknown kind": 1,
        "without id or arguments": 1,
        "too long": 1,
    }


# -- Codex -----------------------------------------------------------------------------------------


def test_codex_events_have_the_true_names_and_the_whole_result(tmp_path: Path) -> None:
    log = Codex()
    log.item(
        "message",
        role="user",
        content=[{"type": "input_text", "text": "<environment_context>...</environment_context>"}],
    )
    log.asks("Tell Ann what changed")
    log.item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c0")
    log.item("function_call_output", call_id="c0", output="README.md")
    whole = {"content": text("a"), "structuredContent": {"result": ["a"]}, "isError": False}
    log.calls("c1", "git", "log", {"n": 1}, {"Ok": whole}, "[…5000 tokens truncated…")
    log.calls("c2", "my.mail", "send", {"to": "x"}, {"Err": "tool call error: timed out"})
    log.calls(
        "c3", "git", "log", {"n": -1}, {"Ok": {"content": text("n is negative"), "isError": True}}
    )
    log.calls("c4", "slack", "post", {}, {"Ok": {"content": []}})
    found = of_codex(log, tmp_path)
    first, second, third = found.calls
    assert (first.module, first.tool, first.arguments, first.result) == (
        "git",
        "log",
        {"n": 1},
        {"result": ["a"]},
    )
    assert (first.prompt, first.missing, first.line) == ("Tell Ann what changed", None, 7)
    assert (second.module, second.error) == ("my.mail", "tool call error: timed out")
    assert third.error == "n is negative"
    assert (found.id, found.folder, dict(found.others)) == (
        "019f-77aa",
        "/home/ann/shop",
        {"slack": 1},
    )
    assert not found.skipped


def test_codex_completed_items_are_read(tmp_path: Path) -> None:
    log = Codex()
    log.event(
        "item_completed",
        item={"type": "UserMessage", "id": "m", "content": [{"type": "text", "text": "Go"}]},
    )
    item = {
        "type": "McpToolCall",
        "id": "exec-1",
        "server": "git",
        "tool": "log",
        "arguments": {"n": 2},
    }
    log.event(
        "item_completed",
        item={**item, "status": "completed", "result": {"content": text("a"), "isError": False}},
    )
    log.event(
        "item_completed",
        item={**item, "id": "exec-2", "status": "failed", "error": {"message": "no such tool"}},
    )
    first, second = of_codex(log, tmp_path).calls
    assert (first.tool, first.arguments, first.result, first.prompt) == ("log", {"n": 2}, "a", "Go")
    assert second.error == "no such tool"


def test_codex_logs_without_events_are_read_from_what_the_model_saw(tmp_path: Path) -> None:
    log = Codex()
    log.item("function_call", name="git__log", arguments='{"n": 1}', call_id="c1")
    log.item("function_call", name="mcp__git__log", arguments='{"n": 2}', call_id="c2")
    log.item("function_call", name="mcp__git__log", arguments="{broken", call_id="c3")
    log.item(
        "function_call_output",
        call_id="c1",
        output={"content": json.dumps(text("one")), "success": True},
    )
    log.item(
        "function_call_output",
        call_id="c2",
        output="Wall time: 1.2 seconds\nOutput:\na…120 tokens truncated…z",
    )
    log.item(
        "function_call_output", call_id="c3", output="failed to parse function arguments: expected"
    )
    one, two, three = of_codex(log, tmp_path).calls
    assert (one.arguments, one.result, one.missing) == ({"n": 1}, "one", None)
    assert (two.result, two.missing) == ("a…120 tokens truncated…z", "the host cut it")
    assert three.error == "failed to parse function arguments: expected"


def test_a_fork_of_codex_keeps_its_own_id(tmp_path: Path) -> None:
    log = Codex("fork")
    log.lines += Codex("origin").lines
    assert of_codex(log, tmp_path).id == "fork"


# -- files -----------------------------------------------------------------------------------------


def test_links_are_counted_and_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "rollout-9.jsonl", [{"type": "session_meta", "payload": {}}])
    root = tmp_path / "sessions"
    write(root / "2026/11/20/rollout-1.jsonl", [{}])
    write(root / "2026/11/21/rollout-2.jsonl", [{}])
    write(root / "2026/11/21/notes.jsonl", [{}])
    (root / "2026/11/22").symlink_to(outside, target_is_directory=True)
    (root / "rollout-4.jsonl").symlink_to(outside / "rollout-9.jsonl")
    found = find_logs([root, tmp_path / "absent"], codex.PATTERNS)
    assert sorted(path.name for path in found.files) == ["rollout-1.jsonl", "rollout-2.jsonl"]
    assert found.unread == {"links": 2, "compressed": 0, "older": 0}
    with pytest.raises(OSError, match="symbolic links"):
        codex.read_log(root / "rollout-4.jsonl", NAMES)


def test_the_folders_follow_the_hosts_variables() -> None:
    home = Path("/h")
    assert claude_code.folders(home, {}) == [home / ".claude/projects"]
    assert claude_code.folders(home, {"CLAUDE_CONFIG_DIR": "/c"}) == [Path("/c/projects")]
    assert codex.folders(home, {}) == [home / ".codex/sessions", home / ".codex/archived_sessions"]
    assert codex.folders(home, {"CODEX_HOME": "/c"})[0] == Path("/c/sessions")


# -- odd lines -------------------------------------------------------------------------------------


def sample() -> tuple[list[Line], list[Line]]:
    """Lines of a log of each host."""
    claude = ClaudeCode()
    other = Codex()
    claude.asks("Tell Ann")
    claude.calls(
        "t1", "mcp__git__log", {"n": 3}, text("a"), mcpMeta={"structuredContent": {"result": ["a"]}}
    )
    claude.calls("t2", "mcp__git__log", {"n": 3}, "no", is_error=True)
    other.asks("Tell Ann")
    other.calls("c1", "git", "log", {"n": 1}, {"Ok": {"content": text("a"), "isError": False}}, "a")
    item: Line = {
        "type": "McpToolCall",
        "id": "c2",
        "server": "git",
        "tool": "log",
        "arguments": {},
    }
    other.event("item_completed", item={**item, "result": {"content": text("a")}})
    return [line for line in claude.lines if isinstance(line, dict)], [
        line for line in other.lines if isinstance(line, dict)
    ]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("mcp__git__log"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a value."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[Any, Any]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[Any]", value)))
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100
)
@given(data=st.data())
def test_no_line_stops_a_reader(tmp_path: Path, data: st.DataObject) -> None:
    for module, lines in zip((claude_code, codex), sample(), strict=True):
        for _ in range(3):
            line = data.draw(st.sampled_from(lines))
            *path, last = data.draw(st.sampled_from(places(line)[1:]))
            at: Any = line
            for key in path:
                at = at[key]
            at[last] = data.draw(ODD)
        log = tmp_path / "rollout-1.jsonl"
        log.unlink(missing_ok=True)
        found = module.read_log(write(log, [*lines]), NAMES)
        assert sum(len(one.calls) for one in found) <= 3
        assert all(isinstance(call.arguments, dict) for one in found for call in one.calls)
