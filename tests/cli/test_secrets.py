"""`ideabridge secrets`: no command shows a value, and each says what to do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.stored_secrets import SecretOwner, secret_owner, secret_value
from ideabridge.server.main import main
from tests import keyrings
from tests.trusting import write_own, write_trusted

from .conftest import EXECUTABLE, Run
from .terminal import Terminal

VALUE = "Zq8vK1mN-4pR7tX2y/9"
NAMING: dict[str, Any] = {
    "mcpServers": {
        "tickets": {
            "url": "https://tickets.example/mcp",
            "headers": {"Authorization": "Bearer ${secret:token}"},
        }
    }
}


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert VALUE not in text
    return text


def test_a_value_from_standard_input_is_stored_listed_and_removed(ideabridge: Run) -> None:
    write_own(NAMING)
    listed = ideabridge("secrets", "list")
    assert listed.returncode == 1
    assert "run: ideabridge secrets set token\n" in listed.stderr
    done = ideabridge("secrets", "set", "token", typed=f"{VALUE}\n")
    assert done.returncode == 0
    assert done.stderr.startswith("token is stored in ")
    assert secret_value(SecretOwner(), "token", "", "") == VALUE

    listed = ideabridge("secrets", "list", "--json")
    assert json.loads(listed.stdout) == {
        "secrets": [
            {
                "name": "token",
                "file": None,
                "state": "stored",
                "place": "file",
                "servers": [
                    {
                        "name": "tickets",
                        "places": ["headers.Authorization"],
                        "target": "https://tickets.example/mcp",
                    }
                ],
            }
        ]
    }
    assert ideabridge("secrets", "remove", "token").returncode == 0
    gone = ideabridge("secrets", "remove", "token")
    assert gone.returncode == 1
    assert "no secret token is stored for your own configuration" in gone.stderr
    for process in (done, listed, gone):
        assert VALUE not in process.stdout + process.stderr


def test_the_keyring_of_the_package_is_used(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "keyring.json"
    monkeypatch.setenv(keyrings.HELD_IN, str(held))
    done = subprocess.run(
        [EXECUTABLE, "secrets", "set", "token", "--json"],
        env={
            **os.environ,
            "PYTHON_KEYRING_BACKEND": "tests.keyrings.FileKeyring",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        input=VALUE,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["stored_in"] == "the keyring"
    assert list(json.loads(held.read_text()).values()) == [VALUE]
    keyrings.use(monkeypatch, keyrings.FileKeyring())
    assert secret_value(SecretOwner(), "token", "", "") == VALUE
    assert main(["secrets", "remove", "token"]) == 0
    assert json.loads(held.read_text()) == {}


def test_at_a_terminal_the_value_is_typed_and_not_shown(project: Path) -> None:
    terminal = Terminal(project, ["secrets", "set", "token"])
    terminal.read_until("Value of token (it is not shown): ")
    terminal.type(VALUE)
    assert terminal.end() == (0, "")
    assert VALUE not in terminal.seen
    assert secret_value(SecretOwner(), "token", "", "") == VALUE


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        (("set", "a b"), VALUE, "is not a valid name for a secret"),
        (("set", "token"), "", "the value is empty"),
        (("allow", "token"), "", "your own servers need no permission"),
        (("set", "other", "--config", "ideabridge.json"), VALUE, "names ${secret:other}"),
        (("allow", "token", "--config", "ideabridge.json"), "", "at a terminal"),
        (("set", "token", "--config", "missing.json"), VALUE, "cannot be read"),
    ],
)
def test_what_cannot_be_done_says_what_was_expected(
    ideabridge: Run, project: Path, words: tuple[str, ...], typed: str, expected: str
) -> None:
    write_trusted(project, NAMING)
    done = ideabridge("secrets", *words, typed=typed)
    assert done.returncode == 2 or done.returncode == 1
    assert expected in done.stderr
    assert VALUE not in done.stdout + done.stderr


def test_a_changed_server_of_a_project_must_be_allowed_by_a_person(
    ideabridge: Run, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trusted(project, NAMING)
    assert main(["trust", "--show"]) == 0
    assert "not stored; to store it for this file: ideabridge secrets set token" in shown(capsys)
    done = ideabridge("secrets", "set", "token", "--config", str(path), typed=VALUE)
    assert (
        "tickets receives it, in headers.Authorization: https://tickets.example/mcp" in done.stderr
    )
    assert main(["trust", "--show"]) == 0
    assert "headers.Authorization): stored for this server, as it is" in shown(capsys)

    elsewhere = json.loads(json.dumps(NAMING).replace("tickets.example", "elsewhere.example"))
    environment = {
        "T": "${secret:token}",
        "API_URL": "https://evil.example",
        "X": "a\n  with the variable FAKE: b",
    }
    elsewhere["mcpServers"]["local"] = {"command": "run", "env": environment}
    write_trusted(project, elsewhere)
    assert main(["trust", "--show"]) == 0
    assert "but not for this server as it is now; to allow it: ideabridge sec" in shown(capsys)
    assert main(["secrets", "list"]) == 1
    assert "tickets (not allowed), local (not allowed)" in shown(capsys)

    terminal = Terminal(project, ["secrets", "allow", "token", "--config", str(path)])
    terminal.read_until("Let them use the secret token?")
    assert "with the variable API_URL: https://evil.example" in terminal.seen
    assert "\n  with the variable FAKE" not in terminal.seen
    assert "https://elsewhere.example/mcp" in terminal.seen
    terminal.type("y")
    assert terminal.end()[0] == 0
    assert main(["secrets", "list"]) == 0
    assert secret_owner(path).file == str(path)


def test_a_file_of_secrets_that_others_can_read_is_a_line_of_trust(
    ideabridge: Run, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trusted(project, NAMING)
    ideabridge("secrets", "set", "token", typed=VALUE)
    [file] = (project.parent / "home").rglob("secrets.json")
    file.chmod(0o644)
    assert main(["trust", "--show"]) == 0
    assert "other users may read or write it (mode 0644); run: chmod 600" in shown(capsys)
    assert main(["secrets", "list"]) == 2
    assert "other users may read or write it" in shown(capsys)
