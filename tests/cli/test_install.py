"""`ideabridge install`, `uninstall` and `--undo`, in the files of every host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ideabridge.server.hosts import program
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import HostEnvironment, HostFile
from ideabridge.server.hosts.table import HOSTS, Host, find_host
from ideabridge.server.main import main
from tests.trusting import write_trusted

from .conftest import EXECUTABLE
from .test_hosts import put, told

PLACES = [
    (host.name, scope)
    for host in HOSTS
    for scope in ("local", "project", "user")
    if scope in host.scopes()
]


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ideabridge` is on the PATH, as pipx puts it there."""
    monkeypatch.setenv("PATH", f"{EXECUTABLE.parent}{os.pathsep}{os.environ['PATH']}")


def target(host: Host, project: Path, scope: Any) -> HostFile:
    return host.target(HostEnvironment(project), scope)


def odd_text(file: HostFile, *, others: bool) -> bytes:
    """A file of the host with another server, and with everything that a rewriting loses. Without
    `others` it has no servers at all.
    """
    first, *rest = file.keys
    match file.format:
        case "toml":
            servers = f"[{first}.other] # one\ncommand = 'x'\n" if others else ""
            return f"# top\nn = 1_000\n\n{servers}# about tools\n[tools]\nweb = true".encode()
        case "yaml":
            servers = f"{first}:\n    - name: other # one\n      command: x\n"
            if not file.is_list:
                servers = f"{first}:\n    other:   # one\n        cmd: x\n"
            return f"# top\nn: 1_0\n{servers if others else ''}z: [ 1,  2 ]\n\n# end\n".encode()
        case _:
            servers = '{\n\t\t\t"other": {"command": "x"},\r\n\t}'
            for key in reversed(rest):
                servers = f'{{ "{key}" : {servers} }}'
            comment = " // one" if file.format == "jsonc" else ""
            servers = servers.replace(",\r", f"{',' if comment else ''}{comment}\r")
            member = f',\r\n\t"{first}": {servers}' if others else ""
            text = f'\ufeff{{{comment}\r\n\t"n": 1.50, "n": 1E5{member}\r\n}}'
            return text.encode()


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(("name", "scope"), PLACES)
def test_every_byte_outside_the_entry_stays(
    name: str,
    scope: str,
    others: bool,
    home: Path,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = find_host(name)
    file = target(host, project, scope)
    before = odd_text(file, others=others)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(before)
    file.path.chmod(0o640)
    content = read_host_text(file.path, file.format)

    assert main(["install", name, "--scope", scope, "--write", "--json"]) == 0
    answer = told(capsys)
    assert answer["file"] == str(file.path)
    assert answer["written"] is True
    assert Path(answer["backup"]).read_bytes() == before
    assert not Path(answer["backup"]).is_relative_to(project)
    assert file.path.stat().st_mode & 0o777 == 0o640
    after = read_host_text(file.path, file.format)
    entry = after.entries(file.keys)["ideabridge"]
    assert entry == ({"name": "ideabridge"} if file.is_list else {}) | answer["entry"]
    assert (
        after.without_entry(
            file.keys, "ideabridge", parents=content.missing_parents(file.keys)
        ).data
        == before
    )
    # The new text is in one piece, except for the comma of an entry with a comment.
    rest = iter(after.data)
    assert all(byte in rest for byte in before)

    # The second time, nothing is written.
    written = file.path.read_bytes()
    assert main(["install", name, "--scope", scope, "--write"]) == 0
    assert "already lists ideabridge" in capsys.readouterr().err
    assert file.path.read_bytes() == written

    assert main(["uninstall", name, "--json"]) == 0
    assert [removed["file"] for removed in told(capsys)["removed"]] == [str(file.path)]
    assert file.path.read_bytes() == before
    assert main(["uninstall", name, "--undo"]) == 0
    assert file.path.read_bytes() == written
    assert main(["install", name, "--undo"]) == 0
    assert file.path.read_bytes() == before


@pytest.mark.parametrize(("name", "scope"), PLACES)
def test_a_new_file_goes_as_it_came(
    name: str, scope: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = target(find_host(name), project, scope)
    folders = sorted(home.rglob("*")) + sorted(project.rglob("*"))
    assert main(["install", name, "--scope", scope, "--write", "--json"]) == 0
    answer = told(capsys)
    assert answer["backup"] is None
    text = read_host_text(file.path, file.format)
    assert set(text.content) == {file.keys[0], *file.new_content}
    assert main(["install", name, "--scope", scope]) == 0
    assert main(["uninstall", name]) == 0
    kept = [path for path in folders if not path.is_relative_to(home / ".local")]
    now = sorted(home.rglob("*")) + sorted(project.rglob("*"))
    assert [path for path in now if not path.is_relative_to(home / ".local")] == kept
    assert main(["uninstall", name, "--undo"]) == 0
    assert read_host_text(file.path, file.format).content == text.content


@pytest.mark.parametrize(("name", "scope"), PLACES)
def test_what_the_host_writes_in_between_stays(
    name: str, scope: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = target(find_host(name), project, scope)
    before = odd_text(file, others=False)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(before)

    def host_writes() -> None:
        """The host counts its starts: 1.50 becomes 2.50, 1_0 becomes 2_0."""
        data = file.path.read_bytes()
        file.path.write_bytes(data.replace(b" 1", b" 2", 1))

    for words in (["uninstall", name], ["install", name, "--undo"]):
        file.path.write_bytes(before)
        assert main(["install", name, "--scope", scope, "--write"]) == 0
        host_writes()
        capsys.readouterr()
        assert main(words) == 0
        assert file.path.read_bytes() == before.replace(b" 1", b" 2", 1)

    assert "has changed since then, so only the entries" in " ".join(
        capsys.readouterr().err.split()
    )


# -- the entry -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "scope"), PLACES)
def test_the_entry_of_a_shared_file_has_no_path_of_this_machine(
    name: str, scope: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project / "own.json", {})
    words = ["install", name, "--scope", scope, "--config", "own.json", "--json"]
    assert main(words) == 0
    entry = json.dumps(told(capsys)["entry"])
    if scope == "project":
        assert "ideabridge" in entry
        assert str(EXECUTABLE) not in entry
        assert str(project) not in entry
        assert "own.json" in entry
    else:
        assert str(EXECUTABLE) in entry
        assert str(project / "own.json") in entry


@pytest.mark.parametrize("scope", ["project", "user"])
def test_what_was_installed_starts(
    scope: str, home: Path, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "own.py").write_text(
        "from ideabridge.tools import tool\n\n\n@tool(read_only=True)\ndef own_tool() "
        '-> str:\n    """Ours."""\n',
        encoding="utf-8",
    )
    write_trusted(project, '{"tools": ["own.py"], "store": "s.sqlite"}')
    words = ["install", "claude-code", "--scope", scope, "--project", str(project)]
    assert main([*words, "--write", "--json"]) == 0
    entry = told(capsys)["entry"]
    # A host starts the server of a project's file in the project, and other servers anywhere.
    parameters = StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        cwd=project if scope == "project" else tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )

    async def found() -> str:
        async with Client(stdio_client(parameters)) as client:
            return str(
                (await client.call_tool("search_tools", {"words": "own_tool"})).structured_content
            )

    assert "own_tool" in anyio.run(found)


def test_a_program_that_is_not_on_the_path_is_said(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert main(["install", "claude-code"]) == 0
    assert "is not on your PATH" in " ".join(capsys.readouterr().err.split())
    assert main(["install", "claude-code", "--scope", "user"]) == 0
    assert "PATH" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "scope", "words"),
    [
        ("uv/archive-v0/x1", "user", ["{bin}/uvx", "--from", "ideabridge", "ideabridge"]),
        ("uv/archive-v0/x1", "project", ["uvx", "--from", "ideabridge", "ideabridge"]),
        ("pipx/ab12", "user", ["{bin}/pipx", "run", "ideabridge"]),
        ("pipx/ab12", "project", ["pipx", "run", "ideabridge"]),
    ],
)
@pytest.mark.usefixtures("project")
def test_no_entry_names_a_cache(
    folder: str,
    scope: str,
    words: list[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tools = home / "bin"
    for runner in ("uvx", "pipx"):
        put(tools / runner, "#!/bin/sh\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    # Any folder that contains this file is a cache, wherever it is.
    cache = home / "elsewhere"
    put(cache / "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n")
    monkeypatch.setattr(sys, "prefix", str(cache / folder))
    monkeypatch.setattr(program, "_origin", dict)
    assert main(["install", "cursor", "--scope", scope, "--json"]) == 0
    entry = told(capsys)["entry"]
    started = [entry["command"], *entry["args"]]
    expected = [word.format(bin=tools) for word in words]
    assert started[: len(words) + 1] == [*expected, "serve"]
    assert str(cache) not in json.dumps(entry)


def test_a_cache_without_its_runner_is_said(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr(sys, "prefix", str(home / ".cache" / "uv" / "archive-v0" / "x"))
    assert main(["install", "cursor"]) == 0
    assert "is in a cache" in " ".join(capsys.readouterr().err.split())


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{"mcpServers": '),
        ("cursor", '{"mcpServers": "no"}'),
        ("codex", "mcp_servers = 5\n"),
        ("codex", "[mcp_servers\n"),
    ],
)
def test_what_cannot_be_edited_stays_and_the_block_is_printed(
    name: str, text: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = target(find_host(name), project, "project")
    put(file.path, text)
    assert main(["install", name, "--write"]) == 1
    printed = capsys.readouterr()
    assert str(file.path) in "".join(printed.err.split())
    assert "Add this by hand" in " ".join(printed.err.split())
    assert "ideabridge" in printed.out
    assert file.path.read_text(encoding="utf-8") == text
    assert list(home.rglob("*.bak")) == []


def test_an_entry_of_another_program_is_not_removed(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"mcpServers": {"ideabridge": {"command": "other"}}}'
    path = put(project / ".cursor" / "mcp.json", text)
    assert main(["uninstall", "cursor"]) == 1
    assert "starts another program" in " ".join(capsys.readouterr().err.split())
    assert path.read_text(encoding="utf-8") == text


def test_every_scope_is_uninstalled_and_only_one_by_name(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scopes = ("local", "project", "user")
    for scope in scopes:
        assert main(["install", "claude-code", "--scope", scope, "--write"]) == 0

    assert main(["uninstall", "claude-code", "--scope", "project"]) == 0
    assert not (project / ".mcp.json").exists()
    state = json.loads((home / ".claude.json").read_text(encoding="utf-8"))
    assert "ideabridge" in state["mcpServers"]
    assert main(["uninstall", "claude-code"]) == 0
    assert "ideabridge" not in (home / ".claude.json").read_text(encoding="utf-8")
    assert main(["uninstall", "claude-code"]) == 0
    assert "has no entry" in " ".join(capsys.readouterr().err.split())


def test_there_is_nothing_to_undo(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "cursor", "--undo"]) == 2
    assert "there is no `ideabridge install cursor` here to undo" in capsys.readouterr().err
