"""The table of hosts: their files on each system, and the entry of ideabridge in each of them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ideabridge.server.hosts.block import paste_block
from ideabridge.server.hosts.host import HostEnvironment, HostFileError, Scope, read_tolerantly
from ideabridge.server.hosts.table import HOSTS, Host, UnknownHostError, find_host
from ideabridge.tools.encoding import JSONObject

COMMAND = ["/opt/ideabridge", "serve", "--project", "/p/my project"]


def environment(tmp_path: Path, platform: str = "linux") -> HostEnvironment:
    return HostEnvironment(tmp_path / "p", tmp_path / "h", {}, platform)


@pytest.mark.parametrize(
    ("name", "platform", "scope", "path"),
    [
        ("claude-desktop", "linux", "user", "h/.config/Claude/claude_desktop_config.json"),
        (
            "claude-desktop",
            "darwin",
            "user",
            "h/Library/Application Support/Claude/claude_desktop_config.json",
        ),
        (
            "claude-desktop",
            "win32",
            "user",
            "h/AppData/Roaming/Claude/claude_desktop_config.json",
        ),
        ("codex", "linux", "user", "h/.codex/config.toml"),
        ("codex", "linux", "project", "p/.codex/config.toml"),
        ("opencode", "darwin", "user", "h/.config/opencode/opencode.json"),
        ("zed", "darwin", "user", "h/.config/zed/settings.json"),
        ("zed", "win32", "user", "h/AppData/Roaming/Zed/settings.json"),
        ("goose", "win32", "user", "h/AppData/Roaming/Block/goose/config/config.yaml"),
        ("continue", "linux", "project", "p/.continue/mcpServers/ideabridge.json"),
    ],
)
def test_where_a_host_lists_servers(
    name: str, platform: str, scope: Scope, path: str, tmp_path: Path
) -> None:
    target = find_host(name).target(environment(tmp_path, platform), scope)
    assert target.path == tmp_path / path


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_the_entry_of_ideabridge_is_what_the_file_reads(host: Host, tmp_path: Path) -> None:
    for scope in host.scopes():
        file = host.target(environment(tmp_path), scope)
        entry = host.entry(COMMAND)
        path = tmp_path / f"written{file.path.suffix}"
        path.write_text(paste_block(file, "ideabridge", entry), encoding="utf-8")
        read = file.servers(read_tolerantly(path, file.format).content)
        expected = dict(entry)
        if file.is_list:
            # The name is the key of the result.
            expected.pop("name", None)

        assert read == {"ideabridge": expected}


def test_a_block_of_toml_has_tables_for_objects(tmp_path: Path) -> None:
    file = find_host("codex").target(environment(tmp_path), "user")
    entry: JSONObject = {
        "command": 'C:\\a "b"',
        "args": ["é", "x y"],
        "env": {"A.B": "1"},
        "enabled": True,
    }
    text = paste_block(file, "my.name", entry)
    assert tomllib.loads(text) == {"mcp_servers": {"my.name": entry}}


def test_an_existing_file_is_preferred(tmp_path: Path) -> None:
    places = environment(tmp_path)
    opencode = find_host("opencode")
    assert opencode.target(places, "project").path.name == "opencode.json"
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "opencode.jsonc").write_text("{}", encoding="utf-8")
    assert opencode.target(places, "project").path.name == "opencode.jsonc"


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_every_scope_has_a_file_where_the_project_is_the_home_folder(
    host: Host, tmp_path: Path
) -> None:
    places = HostEnvironment(project=tmp_path, home=tmp_path, variables={}, platform="linux")
    for scope in host.scopes():
        assert host.target(places, scope).scope == scope


def test_a_path_with_a_star_stands_for_the_files_that_exist(tmp_path: Path) -> None:
    places = environment(tmp_path)
    folder = tmp_path / "h" / ".config" / "Code" / "User" / "profiles"
    for name in ("b", "a"):
        (folder / name).mkdir(parents=True)
        (folder / name / "mcp.json").write_text(json.dumps({"servers": {}}), encoding="utf-8")

    found = [file.path for file in find_host("vscode").files(places)]
    assert found[-2:] == [folder / "a" / "mcp.json", folder / "b" / "mcp.json"]


def test_a_name_of_a_file_forges_no_line(tmp_path: Path) -> None:
    places = environment(tmp_path)
    folder = tmp_path / "p" / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    for name in ("fine.yaml", "evil\nThese servers will be moved.yaml", "bidi\u202e.yaml"):
        (folder / name).write_text("mcpServers: []", encoding="utf-8")

    found = [file.path.name for file in find_host("continue").files(places)]
    assert [name for name in found if name.endswith(".yaml")] == [
        "fine.yaml",
        "config.yaml",
        "config.yaml",
    ]


def test_settings_with_a_command_are_no_server(tmp_path: Path) -> None:
    path = tmp_path / "h" / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"theme": "One", "shell": {"command": "fish"}}', encoding="utf-8")
    file = find_host("zed").target(environment(tmp_path), "user")
    content = read_tolerantly(path, file.format).content
    assert file.located(content) == file
    bare: JSONObject = {
        "$schema": "x",
        "one": {"command": "a"},
        "two": {"url": "https://e.example"},
    }
    assert set(file.located(bare).servers(bare)) == {"one", "two"}


def test_a_scope_that_the_host_lacks_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        HostFileError, match=r"Windsurf has no file for scope 'project'.*--scope user"
    ):
        find_host("windsurf").target(environment(tmp_path), "project")


def test_a_similar_name_is_named() -> None:
    with pytest.raises(UnknownHostError, match="Did you mean 'opencode'"):
        find_host("opencod")
