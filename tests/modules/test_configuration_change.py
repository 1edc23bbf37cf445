"""What another content of the configuration files means for each server and setting."""

from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.configuration_change import applicable, change_between

GIT: dict[str, Any] = {"command": "git-server", "args": ["--repo", "."]}


def read(folder: Path, **raw: Any) -> Configuration:
    return parse_configuration(raw, project=folder, source=folder / "ideabridge.json")


def test_only_servers_whose_entries_differ_are_touched(tmp_path: Path) -> None:
    before = read(
        tmp_path,
        mcpServers={
            "git": GIT,
            "old": {"command": "old"},
            "web": {"url": "https://a.example/mcp"},
            "slow": {"command": "slow"},
            "off": {"command": "off", "disabled": True},
            "on": {"command": "on"},
            "gone": {"command": "gone", "disabled": True},
        },
    )
    now = read(
        tmp_path,
        mcpServers={
            "git": GIT,
            "new": {"command": "new"},
            "web": {"url": "https://b.example/mcp"},
            "slow": {"command": "slow", "timeout": 5},
            "off": {"command": "off"},
            "on": {"command": "on", "disabled": True},
        },
    )

    change = change_between(before, now)

    assert change.servers == {
        "git": "keep",
        "new": "start",
        "web": "replace",
        "slow": "adjust",
        "off": "start",
        "on": "stop",
        "old": "stop",
        "gone": "keep",
    }
    assert change.lines() == [
        "server new: added",
        "server web: replaced",
        "server slow: adjusted",
        "server off: turned on",
        "server on: turned off",
        "server old: removed",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"args": ["--repo", "/"]},
        {"env": {"A": "b"}},
        {"cwd": "sub"},
        {"deny": ["git_push"]},
        {"parallel": 1},
        {"views": True},
    ],
)
def test_what_a_process_depends_on_replaces_it(tmp_path: Path, changed: dict[str, Any]) -> None:
    before = read(tmp_path, mcpServers={"git": GIT})
    now = read(tmp_path, mcpServers={"git": {**GIT, **changed}})

    assert change_between(before, now).servers == {"git": "replace"}


def test_an_equal_content_is_no_change(tmp_path: Path) -> None:
    raw: dict[str, Any] = {
        "mcpServers": {"git": GIT},
        "limits": {"calls": 5},
        "approval": "default",
    }
    assert change_between(read(tmp_path, **raw), read(tmp_path, **raw)).is_empty


def test_an_entry_that_becomes_unusable_replaces_its_server(tmp_path: Path) -> None:
    before = read(tmp_path, mcpServers={"git": GIT})
    now = read(tmp_path, mcpServers={"git": {**GIT, "denied": ["*"]}})

    assert now.unusable
    assert change_between(before, now).servers == {"git": "replace"}


def test_settings_hold_at_once_or_after_the_next_start(tmp_path: Path) -> None:
    before = read(tmp_path, tools=["a.py", "b.py"])
    now = read(
        tmp_path,
        tools=["b.py", "c.py"],
        approval="allow_all",
        limits={"calls": 5, "result_bytes": 4096},
        store="other.db",
        model="openai:gpt-5-mini",
        listed_ideas=3,
    )

    change = change_between(before, now)

    assert change.tool_files == (str(tmp_path / "a.py"), str(tmp_path / "c.py"))
    assert change.settings == ("approval", "limits", "listed_ideas")
    assert change.at_next_start == ("store", "model", "limits.result_bytes")

    followed = applicable(before, now)
    assert followed.store == before.store
    assert followed.model is None
    assert followed.limits.calls == 5
    assert followed.limits.result_bytes == before.limits.result_bytes
    assert followed.approval == "allow_all"
    # A file that is read again does not know about the profile that the command line names.
    restricted = before.model_copy(update={"restricted_to": "review"})
    assert applicable(restricted, now).restricted_to == "review"
    assert change_between(before, followed).at_next_start == ()
