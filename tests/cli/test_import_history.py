"""`ideabridge history import`: asks before it reads, shows what it takes, and saves it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ideabridge.server.main import main
from tests import preloaded
from tests.history.logs import START, ClaudeCode, write
from tests.trusting import write_trusted

from .terminal import Terminal, at_terminal

SHOP = Path(__file__).parent.parent / "history" / "shop.py"


@pytest.fixture
def here(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a module, and a conversation that called it, with a line of a kind
    that nobody knows.
    """
    monkeypatch.delenv("CODEX_HOME", raising=False)
    write_trusted(
        project, {"mcpServers": {"shop": preloaded.module(SHOP)}, "store": "store.sqlite"}
    )
    log = ClaudeCode("3a1c7e02-55d1-4a0e-9a07-8f6de7a0b11c")
    log.asks("What is o-17?")
    log.calls("1", "mcp__shop__describe", {"order": "o-17"}, "Order o-17: 12 EUR")
    log.calls("2", "mcp__github__get_me", {}, "ann")
    log.lines.append({"type": "brand-new", "uuid": "u", "message": {}})
    write(home / f".claude/projects/-p/{log.session}.jsonl", log.lines)
    return project


def test_nothing_is_read_without_asking(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "import", "claude-code"]) == 2
    assert (
        "cannot ask for permission to read the logs without a terminal: add --yes"
        in capsys.readouterr().err
    )


def test_a_person_is_asked(here: Path, home: Path) -> None:
    terminal = Terminal(here, ["history", "import", "claude-code"], columns=200)
    terminal.read_until("Read the logs?")
    assert f"1 log of Claude Code in {home / '.claude/projects'}" in terminal.seen
    assert (
        "ideabridge imports calls to shop, their results, and what you asked for" in terminal.seen
    )
    terminal.type("n")
    assert terminal.end()[0] == 0
    assert "nothing was read" in terminal.seen


def test_a_dry_run_shows_what_would_be_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "import", "claude-code", "--yes", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [
        ["conversation", "time", "(UTC)", "calls", "servers", "unread", "run"],
        ["3a1c7e02-55d1", "2026-11-20", "09:00", "1", "shop", "1", "would", "be", "saved"],
    ]
    assert "1 run with 1 call would be saved" in told.err
    assert "not imported: calls to github (1), which are not servers here" in told.err
    assert main(["runs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    seen = at_terminal(here, "history", "import", "claude-code", "--yes", "--dry-run")
    assert max(map(len, seen.splitlines())) <= 80


def test_an_import_saves_runs_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "import", "claude-code", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (one,) = told["runs"]
    assert (one["calls"], one["modules"], one["unread_lines"], one["why"]) == (1, ["shop"], 1, "")
    assert (told["dry_run"], told["logs"], told["other_servers"]) == (False, 1, {"github": 1})
    assert (told["unread_lines"], told["repaired_lines"]) == ({"of an unknown kind": 1}, 0)
    assert told["unread_logs"] == {"links": 0, "compressed": 0, "older": 0}
    assert main(["history", "import", "claude-code", "--yes"]) == 0
    assert "there is nothing new" in capsys.readouterr().err
    assert main(["runs", "show", one["run"]]) == 0
    shown = capsys.readouterr().out
    assert "session of local" in shown
    assert "imported from claude-code, conversation 3a1c7e02-55d1-4a0e-9a07-8f6de7a0b11c" in shown


def test_nothing_new_is_said_without_starting_the_bridge(here: Path, home: Path) -> None:
    for log in (home / ".claude").rglob("*.jsonl"):
        os.utime(log, (1, 1))

    words = ["history", "import", "claude-code", "--yes", "--json"]
    assert main([*words]) == 0
    script = f"""
import sys
from ideabridge.server.main import main
code = main({words})
assert not [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=here, capture_output=True, timeout=60, check=True
    )
    answer = json.loads(done.stdout)
    assert (answer["runs"], answer["known_calls"], answer["other_servers"]) == (
        [],
        1,
        {"github": 1},
    )


def test_many_runs_are_summed_up(
    here: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(24):
        log = ClaudeCode(f"s{number:02}", START + timedelta(days=number % 3))
        log.calls(f"call-{number}", "mcp__shop__describe", {"order": f"o-{number}"}, "12 EUR")
        log.calls(f"gone-{number}", "mcp__shop__gone", {}, "")
        write(home / f".claude/projects/-p/{log.session}.jsonl", log.lines)

    log = ClaudeCode("present", datetime.now(UTC))
    log.calls("now", "mcp__shop__describe", {"order": "o-1"}, "12 EUR")
    write(home / ".claude/projects/-p/present.jsonl", log.lines)

    assert main(["history", "import", "claude-code", "--yes"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines()[-5:] == [
        "left out: 24 calls of a tool that its server no longer has",
        "not saved: its last call is less than 10 minutes old, so it may still continue (1 run)",
        "26 logs read; left out: 1 line of an unknown kind",
        "not imported: calls to github (1), which are not servers here (--server LOGNAME=SERVER)",
        "saved: 25 runs with 25 calls, of 2026-11-20 to 2026-11-22",
    ]
    assert told.out.splitlines() == [
        "`ideabridge runs list` shows the newest; --json prints all",
        "`ideabridge ideas suggest` shows repeated work that could become tools",
    ]
    seen = at_terminal(here, "history", "import", "claude-code", "--yes", "--dry-run")
    assert max(map(len, seen.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["cursor"],
            "unknown host 'cursor'; the known hosts are claude-code, codex, copilot-cli, ",
        ),
        (["codex"], "Codex has no logs in"),
        (
            ["claude-code", "--module", "github"],
            "--server: expected LOGNAME=SERVER, found 'github'",
        ),
        (
            ["claude-code", "--module", "github=gh"],
            "--server github=gh: there is no server 'gh'; there are shop",
        ),
    ],
)
def test_wrong_words_are_explained(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["history", "import", *words, "--yes"]) == 2
    assert why in capsys.readouterr().err


def test_without_modules_nothing_is_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disabled = {**preloaded.module(SHOP), "disabled": True}
    write_trusted(here, {"mcpServers": {"shop": disabled}, "store": "store.sqlite"})
    assert main(["history", "import", "claude-code", "--yes"]) == 2
    assert "no servers are configured, so there is nothing to import" in capsys.readouterr().err
