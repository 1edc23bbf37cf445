"""`servers add`, `edit`, `remove`, `enable`, `disable`, `list NAME`, `test` and `logs`."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.trust import is_trusted, trust_file
from ideabridge.server.main import main
from tests import preloaded
from tests.trusting import write_own, write_trusted

from .conftest import EXECUTABLE, Run
from .terminal import Terminal

OWN_SERVER = Path(__file__).with_name("own_server.py")
TOKEN = "ghp_abcdefgh12345678AAAA"
LOG_TOKEN = "ghp_otherone56789012BBBB"
"""The secrets of earlier tests in this process are masked, too, under their own names."""

START = [sys.executable, "-I", str(OWN_SERVER)]


def servers_in(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text(encoding="utf-8"))
    return content["mcpServers"]


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words[:2], "--json", *words[2:]]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("project")
def test_a_server_is_added_and_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "add", "own", "-e", f"OWN_TOKEN={TOKEN}", "--", *START]) == 0
    printed = capsys.readouterr()
    assert TOKEN not in printed.out + printed.err
    assert "env.OWN_TOKEN is a secret (the form of a known kind of token)" in printed.err
    assert stat.S_IMODE(user_file().stat().st_mode) == 0o600
    reference = "${secret:own-token}"
    assert servers_in(user_file()) == {
        "own": {"command": START[0], "args": START[1:], "env": {"OWN_TOKEN": reference}}
    }
    assert told(capsys, "servers", "test", "own", "where")["result"] == str(Path.cwd())
    shown = told(capsys, "servers", "list", "own")
    assert (shown["module"]["state"], shown["folder"]) == ("up", str(Path.cwd()))
    assert shown["tools"] == ["where", "save", "speak"]
    assert shown["entry"]["env"] == {"OWN_TOKEN": reference}
    lines = told(capsys, "servers", "logs", "own")["lines"]
    assert "own server starts with [secret:own-token]" in [line["text"] for line in lines]
    assert main(["servers", "add", "own", "--", "other"]) == 2
    assert "already has a server named 'own'" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (["--", "npx", "-y", "some-server"], {"command": "npx", "args": ["-y", "some-server"]}),
        (["https://x.example/mcp"], {"url": "https://x.example/mcp"}),
        (
            ["--url", "https://x.example/mcp", "-H", "X-Team: ours", "--header", "Accept: a/b"],
            {"url": "https://x.example/mcp", "headers": {"X-Team": "ours", "Accept": "a/b"}},
        ),
        (
            ["--env", "A=1", "-e", "B=x=y", "--cwd", "~/data", "--", "run"],
            {"command": "run", "env": {"A": "1", "B": "x=y"}, "cwd": "~/data"},
        ),
    ],
)
def test_entries_that_are_added(words: list[str], entry: dict[str, Any]) -> None:
    write_own({"order": "all", "mcpServers": {"other": {"command": "x"}}})
    assert main(["servers", "add", "new", *words]) == 0
    content = json.loads(user_file().read_text(encoding="utf-8"))
    assert content == {"order": "all", "mcpServers": {"other": {"command": "x"}, "new": entry}}


def test_a_command_with_dots_that_is_here_or_no_host_is_added(project: Path) -> None:
    (project / "tools.com").write_text("", encoding="utf-8")
    for number, command in enumerate(("tools.com", "server.py", "acme.mcp-server", "a.b/c.py")):
        assert main(["servers", "add", f"s{number}", "--", command]) == 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["x"], "expected a command after --, or an address"),
        (["x", "--url", "http://a", "--", "run"], "give --url or a command, not both"),
        (["x", "-e", "secret-word", "--", "run"], "--env: expected KEY=VALUE"),
        (["x", "-H", "A: b", "--", "run"], "--header requires --url"),
        (["x", "-e", "A=b", "--url", "http://a"], "--env requires a command"),
        (["idea:x", "--", "run"], "this name is reserved"),
        (["x", "example.com/mcp"], "did you mean https://example.com/mcp?"),
        (["x", "--", "www.example.museum"], "did you mean https://www.example.museum?"),
        (["x", "--", "127.0.0.1:80"], "did you mean http://127.0.0.1:80?"),
    ],
)
def test_what_cannot_be_added_changes_nothing(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", "add", *words]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert "secret-word" not in said
    assert not user_file().exists()
    assert not Path("ideabridge.json").exists()


def test_a_server_of_the_project_needs_a_person(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_trusted(project, {"mcpServers": {"old": {"command": "x"}}})
    (project / "tool").mkdir()
    (project / "tool" / "run").write_text("", encoding="utf-8")
    words = ["servers", "add", "new", "--scope", "project", "--cwd", "tool", "--", "./tool/run"]
    assert told(capsys, *words)["trusted"] is False
    assert servers_in(file)["new"] == {"command": "./tool/run", "cwd": "./tool"}
    assert not is_trusted(file)


def test_a_secret_of_a_project_is_stored_for_this_server_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["servers", "add", "--scope", "project", "-e", f"OWN_TOKEN={TOKEN}"]
    for name in ("own", "own2"):
        answer = told(capsys, *words, name, "--", *START)
        assert answer["stored_in"]
    file = project / "ideabridge.json"
    assert TOKEN not in file.read_text(encoding="utf-8")
    trust_file(file)
    assert main(["servers", "test", "own"]) == 0
    entries = servers_in(file)
    entries["own"]["args"].append("more")
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    trust_file(file)
    assert main(["servers", "test", "own"]) == 2
    assert "stored for other servers, or for this one before" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_a_secret_of_the_same_name_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    add = ["servers", "add", "own", "-e"]
    first = told(capsys, *add, f"OWN_TOKEN={TOKEN}", "--", *START)
    assert first["secrets"] == {"env.OWN_TOKEN": "own-token"}
    assert main(["servers", "remove", "own"]) == 0
    assert "run `ideabridge secrets remove own-token` to remove it" in capsys.readouterr().err
    second = told(capsys, *add, f"OWN_TOKEN={TOKEN[:-1]}B", "--", *START)
    assert second["secrets"] == {"env.OWN_TOKEN": "own-2-own-token"}


def test_everything_outside_the_entry_keeps_its_bytes(project: Path) -> None:
    file = project / "ideabridge.json"
    before = (
        b'\xef\xbb\xbf{\r\n\t"limits" : {"calls": 7},\r\n\t"mcpServers": {\r\n'
        b'\t\t"one": {"command":"x", "timeout": 1.50},\r\n\t\t"two": {"command": "y"}\r\n\t}\r\n}'
    )
    file.write_bytes(before)
    file.chmod(0o640)
    assert main(["servers", "add", "new", "--scope", "project", "--", "run"]) == 0
    assert main(["servers", "remove", "new"]) == 0
    assert file.read_bytes() == before
    assert main(["servers", "disable", "two"]) == 0
    assert file.read_bytes().partition(b'"two"')[0] == before.partition(b'"two"')[0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_taking_something_away_keeps_the_trust_of_a_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_trusted(
        project, {"mcpServers": {"one": {"command": "x"}, "two": {"command": "y", "enabled": True}}}
    )
    assert told(capsys, "servers", "disable", "two")["trusted"] is True
    assert servers_in(file)["two"] == {"command": "y", "disabled": True}
    assert told(capsys, "servers", "remove", "one")["trusted"] is True
    assert list(servers_in(file)) == ["two"]
    assert is_trusted(file)
    assert told(capsys, "servers", "enable", "two")["trusted"] is False
    assert servers_in(file)["two"] == {"command": "y"}
    assert not is_trusted(file)
    assert told(capsys, "servers", "enable", "two")["changed"] is False


def test_a_file_that_was_not_trusted_is_not_trusted_by_taking_something_away(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "ideabridge.json"
    entries = {"one": {"command": "x"}, "two": {"command": "y"}}
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    assert told(capsys, "servers", "remove", "one")["trusted"] is False
    assert not is_trusted(file)


@pytest.mark.usefixtures("project")
def test_servers_under_another_name_are_changed_there() -> None:
    file = write_own({"servers": {"one": {"command": "x"}}})
    assert main(["servers", "add", "two", "--", "run"]) == 0
    assert main(["servers", "disable", "one"]) == 0
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "servers": {"one": {"command": "x", "disabled": True}, "two": {"command": "run"}}
    }


ENTRY = {
    "command": "run",
    "args": ["--fast"],
    "environment": {"REGION": "eu"},
    "timeoutMs": 5000,
    "description": "ours",
}
"""An entry with keys of other hosts."""


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (["--set", "timeout=120"], {**ENTRY, "timeoutMs": None, "timeout": 120}),
        (["--set", 'deny=["x_*"]'], {**ENTRY, "deny": ["x_*"]}),
        (["--set", "sharing=session"], {**ENTRY, "sharing": "session"}),
        (["--unset", "timeout"], {**ENTRY, "timeoutMs": None}),
        (
            ["-e", "A=1", "--unset", "env.REGION"],
            {**ENTRY, "environment": None, "env": {"A": "1"}},
        ),
        (["--unset", "env.REGION"], {**ENTRY, "environment": None}),
        (["--", "run", "--slow"], {**ENTRY, "args": ["--slow"]}),
        (["--", "other"], {**ENTRY, "command": "other", "args": None}),
        (
            ["https://x.example/mcp", "-H", "X-Team: ours"],
            {
                "timeoutMs": 5000,
                "description": "ours",
                "url": "https://x.example/mcp",
                "headers": {"X-Team": "ours"},
            },
        ),
    ],
)
def test_entries_that_are_edited(words: list[str], entry: dict[str, Any]) -> None:
    write_own({"mcpServers": {"own": ENTRY, "other": {"command": "x"}}})
    assert main(["servers", "edit", "own", *words]) == 0
    expected = {key: value for key, value in entry.items() if value is not None}
    assert servers_in(user_file()) == {"own": expected, "other": {"command": "x"}}


def test_a_path_of_the_command_line_is_written_as_the_file_needs_it(project: Path) -> None:
    entry = {"command": "./there/run"}
    write_own({"mcpServers": {"own": entry}})
    assert main(["servers", "edit", "own", "--set", "timeout=5"]) == 0
    assert servers_in(user_file())["own"] == {**entry, "timeout": 5}
    assert main(["servers", "edit", "own", "--set", "cwd=data", "--", "./run"]) == 0
    assert servers_in(user_file())["own"] == {
        "command": str(project / "run"),
        "timeout": 5,
        "cwd": str(project / "data"),
    }


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "nothing would change"),
        (["--set", "timeoutMs=5000"], "no setting 'timeoutMs'"),
        (["--set", "timout=5"], "nearest: timeout"),
        (["--set", "timeout"], "expected KEY=VALUE"),
        (["--set", "timeout=soon"], "timeout"),
        (["--set", "disabled=true"], "`ideabridge servers enable` and `disable`"),
        (["--set", "url=https://x.example"], "the address in place of a command changes it"),
        (["--unset", "idle"], "the server has no such setting"),
        (["--unset", "env.NONE"], "the server has no such setting"),
        (["-H", "A: b"], "headers"),
        (["--secret", "NONE"], "no variable or header 'NONE'"),
    ],
)
def test_what_cannot_be_edited_changes_nothing(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own({"mcpServers": {"own": ENTRY}})
    assert main(["servers", "edit", "own", *words]) == 2
    assert why in capsys.readouterr().err
    assert servers_in(user_file()) == {"own": ENTRY}


@pytest.mark.usefixtures("project")
def test_an_edit_says_what_changes_and_shows_no_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["servers", "add", "own", "-e", f"OWN_TOKEN={TOKEN}", "--", *START]) == 0
    new_token = "ghp_anewerone12345678DDDD"
    capsys.readouterr()
    changes = ["-e", f"OWN_TOKEN={new_token}", "-e", "TENANT=acme", "--secret", "TENANT"]
    assert main(["servers", "edit", "own", *changes, "--set", "timeout=5"]) == 0
    printed = capsys.readouterr().err
    assert "- env.OWN_TOKEN ${secret:own-token}" in printed
    assert "+ env.OWN_TOKEN ${secret:own-2-own-token}" in printed
    assert "+ env.TENANT ${secret:own-2-tenant}" in printed
    assert "+ timeout 5" in printed
    assert "its former secret own-token stays" in printed
    assert TOKEN not in printed
    assert new_token not in printed
    assert told(capsys, "servers", "test", "own", "where")["result"] == str(Path.cwd())
    lines = told(capsys, "servers", "logs", "own")["lines"]
    assert "own server starts with [secret:own-2-own-token]" in [line["text"] for line in lines]


@pytest.mark.usefixtures("project")
def test_a_value_that_only_looks_like_a_secret_stays_in_the_file() -> None:
    words = ["-e", "SORT_KEY=created_at", "--plain", "SORT_KEY", "--", "run"]
    assert main(["servers", "add", "own", *words]) == 0
    assert servers_in(user_file())["own"]["env"] == {"SORT_KEY": "created_at"}


def test_a_server_that_the_projects_replaces_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_trusted(project, {"mcpServers": {"git": {"command": "theirs"}}})
    assert main(["servers", "add", "git", "--", "mine"]) == 0
    assert "also has a server with this name" in capsys.readouterr().err
    file.write_text("{", encoding="utf-8")
    assert main(["servers", "add", "other", "--", "mine"]) == 0
    assert "ideabridge.json is not JSON" in capsys.readouterr().err
    assert list(servers_in(user_file())) == ["git", "other"]


def test_a_name_in_both_files_needs_a_scope(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own({"mcpServers": {"git": {"command": "mine"}}})
    file = write_trusted(project, {"mcpServers": {"git": {"command": "theirs"}}})
    assert main(["servers", "disable", "git"]) == 2
    assert "add --scope user or --scope project" in capsys.readouterr().err
    assert main(["servers", "remove", "git", "--scope", "user"]) == 0
    assert servers_in(user_file()) == {}
    assert list(servers_in(file)) == ["git"]
    assert main(["servers", "remove", "gti"]) == 2
    assert "no server 'gti' in" in capsys.readouterr().err


def test_a_tool_that_may_change_something_is_called_only_after_a_question(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own({"mcpServers": {"own": {"command": START[0], "args": START[1:]}}})
    words = ["servers", "test", "own", "save", "-i", "text=kept"]
    assert main(words) == 2
    assert "does not declare that it is read-only: to call it" in capsys.readouterr().err
    assert not (project / "saved.txt").exists()
    assert told(capsys, *words, "--yes")["seconds"] >= 0
    assert (project / "saved.txt").read_text(encoding="utf-8") == "kept"
    (project / "saved.txt").unlink()

    terminal = Terminal(project, words)
    terminal.read_until("Call save?")
    assert '"text": "kept"' in terminal.seen
    terminal.type("n")
    assert terminal.end()[0] == 1
    assert not (project / "saved.txt").exists()
    write_own(
        {
            "mcpServers": {"own": {"command": START[0], "args": START[1:]}},
            "approval": {"rules": [{"module": "own", "then": "allow"}]},
        }
    )
    assert main(words) == 0


@pytest.mark.usefixtures("project")
def test_the_log_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"command": START[0], "args": START[1:], "env": {"OWN_TOKEN": LOG_TOKEN}}
    write_own({"mcpServers": {"own": entry, "silent": {"command": "/no/such/program"}}})
    assert main(["servers", "logs", "own"]) == 1
    assert "has written nothing yet" in capsys.readouterr().err
    for text in ("hello", f"with {LOG_TOKEN}", "sk-ant-api03-abcdefgh56789012"):
        assert main(["servers", "test", "own", "speak", "-i", f"text={text}"]) == 0

    log = told(capsys, "servers", "logs", "own")
    lines = [(line["source"], line["text"]) for line in log["lines"]]
    assert ("stderr", "own server starts with [secret:OWN_TOKEN]") in lines
    assert ("stderr", "hello") in lines
    assert ("message", "said with [secret:OWN_TOKEN]") in lines
    assert ("ideabridge", "own is up") in lines
    assert "56789012" not in Path(log["file"]).read_text(encoding="utf-8")
    assert stat.S_IMODE(Path(log["file"]).stat().st_mode) == 0o600
    warnings = told(capsys, "servers", "logs", "own", "--level", "warning", "-n", "2")["lines"]
    assert [line["level"] for line in warnings] == ["warning", "warning"]
    assert main(["servers", "test", "silent"]) == 1
    failed = told(capsys, "servers", "logs", "silent")["lines"][-1]
    assert (failed["level"], "/no/such/program" in failed["text"]) == ("error", True)


def test_a_log_is_followed(project: Path, ideabridge: Run) -> None:
    write_own({"mcpServers": {"own": {"command": START[0], "args": START[1:]}}})
    ideabridge("servers", "test", "own", "speak", "-i", "text=earlier")
    following = subprocess.Popen(
        preloaded.python(EXECUTABLE, "servers", "logs", "own", "--follow"),
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
    )
    with following:
        assert following.stdout is not None
        read_until(following.stdout, "said earlier")
        ideabridge("servers", "test", "own", "speak", "-i", "text=followed")
        read_until(following.stdout, "said followed")
        following.send_signal(signal.SIGINT)
    assert following.returncode == 130


def read_until(stream: IO[str], text: str) -> None:
    """Read lines until one contains `text`."""
    for line in stream:
        if text in line:
            return
    pytest.fail(f"the output ended before {text!r}")
