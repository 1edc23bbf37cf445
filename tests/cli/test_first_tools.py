"""What `ideabridge setup` offers at the end: tools from histories, and rules of clients."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ideabridge.server.main import main
from tests import preloaded
from tests.history.logs import ClaudeCode, write

from .terminal import Terminal

OWN_SERVER = Path(__file__).with_name("own_server.py")


@pytest.fixture
def here(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a user whose Claude Code has saved a note each day and has a server that does
    not start, and whose Gemini CLI calls every tool of a server without asking.
    """
    monkeypatch.delenv("CODEX_HOME", raising=False)
    notes = {"type": "stdio", **preloaded.module(OWN_SERVER)}
    gone = {"command": "no-such-program"}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"notes": notes, "gone": gone}}))
    maps = preloaded.module(OWN_SERVER, "maps", trust=True)
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps({"mcpServers": {"maps": maps}}))
    for day in range(1, 4):
        log = ClaudeCode(f"3a1c7e0{day}-55d1", datetime(2026, 11, day, 9, tzinfo=UTC))
        log.asks(f"Save the note of day {day}")
        log.calls("1", "mcp__notes__where", {}, "/here")
        log.calls("2", "mcp__notes__save", {"text": f"day {day}"}, "saved")
        write(home / f".claude/projects/-p/{log.session}.jsonl", log.lines)
    return project


def test_a_person_gets_a_tool_and_a_rule_at_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(here, ["setup"])
    terminal.read_until("Enter to change nothing: ")
    terminal.type("c")
    terminal.read_until("Read these logs? [y/N]:")
    assert "Claude Code has 3 logs of its conversations, in ~/.claude/projects" in terminal.seen
    terminal.type("y")
    terminal.read_until("Publish it? [y/N]: ")
    assert "1. where_and_save(text), done 3 times" in terminal.seen
    assert "connecting to 0 servers" not in terminal.seen
    assert "server 'gone' cannot be started" in terminal.seen
    terminal.type("maybe")
    terminal.read_until("y or Enter")
    terminal.read_until("Publish it? [y/N]: ")
    terminal.type("y")
    terminal.read_until("in this workspace? [y/N]:")
    assert "where_and_save is now a tool" in terminal.seen
    assert "maps: save" in terminal.seen
    terminal.type("y")
    assert terminal.end()[0] == 0
    assert max(map(len, terminal.screen())) <= 80

    assert main(["ideas", "list", "--published", "--json"]) == 0
    assert "where_and_save" in capsys.readouterr().out
    assert main(["approvals", "rules", "--json"]) == 0
    assert [rule["tool"] for rule in json.loads(capsys.readouterr().out)["rules"]] == ["save"]

    assert main(["setup", "--undo", "--yes"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "maps.save is no longer always allowed" in said
    assert "to withdraw it, run `ideabridge ideas unpublish where_and_save`" in said
    assert main(["approvals", "rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == []


def test_nothing_is_read_without_a_person(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--yes"]) == 0
    assert "logs" not in capsys.readouterr().err
    assert main(["approvals", "rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == []
