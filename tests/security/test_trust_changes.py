"""Of a trusted project file that changes, a person is shown what has changed, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from ideabridge.bridge.trust import forget, is_trusted, keep_trusted, look_at, project_trust
from ideabridge.server.main import main
from tests.cli.terminal import Terminal
from tests.trusting import write_own, write_trusted

TOKEN = "ghp_abcdefgh12345678AAAA"
TOOL = """from ideabridge.tools import tool

KEY = "sk-ant-api03-abcdefgh12345678"


@tool
def greet(name: str) -> str:
    \"\"\"Greet.\"\"\"
    return f"hello {name}"
"""
CONTENT: dict[str, Any] = {
    "mcpServers": {
        "git": {"command": "/no/git", "args": ["--repository", "."], "env": {"TOKEN": TOKEN}},
        "kept": {"command": "/no/kept"},
        "old": {"url": "https://old.example/mcp"},
    },
    "tools": ["ours.py"],
    "limits": {"calls": 7},
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    folder = tmp_path / "clone"
    for path in (home, folder):
        path.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    (folder / "ours.py").write_text(TOOL, encoding="utf-8")
    write_trusted(folder, CONTENT)
    return folder


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "ideabridge.json"
    file.write_text(json.dumps({**CONTENT, **changes}), encoding="utf-8")
    return file


def difference(capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    main(["trust", "--show", "--json"])
    shown = json.loads(capsys.readouterr().out)
    return [f"{line['what']} {line['text']}".strip() for line in shown["difference"]]


def with_servers(**entries: Any) -> dict[str, Any]:
    return {**CONTENT["mcpServers"], **entries}


@pytest.mark.parametrize("columns", [80, 120])
def test_the_question_shows_only_what_has_changed(clone: Path, columns: int) -> None:
    servers = with_servers(
        git={"command": "/no/git", "args": ["--repository", "/"], "env": {"TOKEN": TOKEN}},
        new={"command": "/no/new"},
    )
    del servers["old"]
    file = write(clone, mcpServers=servers, limits={"calls": 9})
    (clone / "ours.py").write_text(TOOL.replace("hello", "goodbye"), encoding="utf-8")
    terminal = Terminal(clone, ["tools", "list"], columns=columns)
    terminal.read_until("Trust it with this change?")
    lines = [line.strip() for line in terminal.screen()]
    for expected in (
        "changed   server git",
        "- starts /no/git --repository .",
        "+ starts /no/git --repository /",
        "added     server new",
        "starts /no/new",
        "removed   server old",
        '- {"calls": 7}',
        '+ {"calls": 9}',
        "changed   ours.py",
        '-     return f"hello {name}"',
        '+     return f"goodbye {name}"',
    ):
        assert expected in lines, expected

    assert "/no/kept" not in terminal.seen
    assert TOKEN not in terminal.seen
    terminal.type("a")
    terminal.read_until("Trust it with this change?")
    assert "kept: /no/kept" in terminal.seen
    terminal.type("y")
    terminal.end()
    assert is_trusted(file)


def test_a_change_that_only_a_secret_shows_is_shown(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git = {**CONTENT["mcpServers"]["git"], "env": {"TOKEN": TOKEN[:-1] + "B"}}
    write(clone, mcpServers=with_servers(git=git))
    (clone / "ours.py").write_text(TOOL.replace("12345678", "87654321"), encoding="utf-8")
    lines = difference(capsys)
    assert lines[0] == "changed server git"
    assert lines.count("- env TOKEN=ghp_•••") == lines.count("+ env TOKEN=ghp_•••") == 1
    assert lines.count('+ KEY = "sk-ant-•••"') == 1
    assert "(••• hides a secret. Lines that look the same differ in the secret.)" in lines
    write(clone, mcpServers=dict(reversed(CONTENT["mcpServers"].items())))
    (clone / "ours.py").write_text(TOOL, encoding="utf-8")
    assert difference(capsys) == [
        "changed only the order or spacing of the file, or ignored parts of it"
    ]


def test_an_odd_file_is_compared_as_it_is_read(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = """{
      "modules": {"git": {"command": "/no/git", "args": ["--repository", "."],
                          "env": {"TOKEN": "%s"}},
                  "kept": {"command": "/no/kept"}, "kept": {"command": "/no/kept"},
                  "new": {"httpUrl": "https://new.example/mcp"}},
      "tools": ["ours.py"], "limits": {"calls": 7}}"""
    (clone / "ideabridge.json").write_text(odd % TOKEN, encoding="utf-8")
    assert difference(capsys) == [
        "added server new",
        "calls https://new.example/mcp",
        "removed server old",
        "- calls https://old.example/mcp",
    ]


def test_no_secret_is_kept_to_compare(clone: Path) -> None:
    write_trusted(clone, CONTENT)
    (kept,) = (platformdirs.user_config_path("ideabridge") / "trusted").iterdir()
    text = kept.read_text(encoding="utf-8")
    assert "goodbye" not in text
    assert "hello" in text
    assert TOKEN not in text
    assert "12345678" not in text
    assert kept.stat().st_mode & 0o777 == 0o600
    forget(clone / "ideabridge.json")
    assert not kept.exists()


def test_what_was_approved_is_not_asked_again(clone: Path) -> None:
    file = clone / "ideabridge.json"
    first = file.read_bytes()
    write_trusted(clone, {**CONTENT, "order": "all"})
    second = file.read_bytes()
    file.write_bytes(first)
    assert is_trusted(file)
    (clone / "ours.py").write_text(TOOL.replace("hello", "goodbye"), encoding="utf-8")
    assert not is_trusted(file)
    (clone / "ours.py").write_text(TOOL, encoding="utf-8")
    file.write_bytes(second)
    assert is_trusted(file)
    forget(file)
    for content in (first, second):
        file.write_bytes(content)
        assert not is_trusted(file)


def test_earlier_contents_are_bounded(clone: Path) -> None:
    file = clone / "ideabridge.json"
    first = file.read_bytes()
    for number in range(30):
        write_trusted(clone, {**CONTENT, "limits": {"calls": number + 1}})

    trust = platformdirs.user_config_path("ideabridge") / "trust.json"
    (entry,) = json.loads(trust.read_text(encoding="utf-8"))["files"].values()
    assert len(entry["earlier"]) == 10
    file.write_bytes(first)
    assert not is_trusted(file)


def test_a_data_file_that_was_confirmed_is_not_asked_about_again(clone: Path) -> None:
    shop = {"command": "/no/shop", "args": ["--db-path", "shop.db"]}
    file = write(clone, mcpServers={"shop": shop})
    (clone / "shop.db").write_text("1", encoding="utf-8")
    keep_trusted(look_at(file), {"shop.db"})
    (clone / "shop.db").write_text("2", encoding="utf-8")
    assert is_trusted(file)
    write(clone, mcpServers={"shop": shop, "new": {"command": "/no/new"}})
    terminal = Terminal(clone, ["tools", "list"])
    terminal.read_until("Trust it with this change?")
    assert "shop.db" not in terminal.seen
    terminal.type("y")
    terminal.end()
    assert "only data" not in terminal.seen
    standing = project_trust(look_at(file))
    assert (standing.is_trusted, standing.data) == (True, {"shop.db"})


def test_a_server_that_replaces_a_persons_own_is_told_with_the_change(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own({"mcpServers": {"mine": {"command": "/my/own"}}})
    entry = {"command": "/no/theirs", "env": {"A": "${WANTED}"}}
    write(clone, mcpServers=with_servers(mine=entry))
    lines = difference(capsys)
    assert lines[:4] == [
        "added server mine",
        "starts /no/theirs",
        "env A=${WANTED}",
        "replace your own server mine",
    ]
    assert lines[4].startswith("variable WANTED (in mcpServers.mine.env.A): not allowed")


def test_a_huge_change_and_a_broken_comparison_are_bounded(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "ours.py").write_text("x = 1\n" * 5000, encoding="utf-8")
    lines = difference(capsys)
    assert lines == ["changed ours.py", "9 lines before, 5000 now: too many to compare here"]
    (clone / "ours.py").write_text(TOOL + "x = 1\n" * 1000, encoding="utf-8")
    lines = difference(capsys)
    assert len(lines) < 210
    assert lines[-1].endswith("more lines; see the file")
    (kept,) = (platformdirs.user_config_path("ideabridge") / "trusted").iterdir()
    kept.write_text("[]", encoding="utf-8")
    assert difference(capsys) == []
    assert main(["trust", "--show"]) == 1
    assert "has changed since it was trusted. It would do this:" in capsys.readouterr().out
