"""A broken or untrusted project file, or file of tools, takes nothing else along, and is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import (
    ConfigurationError,
    load_configuration,
    load_workspace,
    user_file,
)
from ideabridge.server.main import main
from tests import preloaded
from tests.trusting import write_own, write_trusted

EXECUTABLE = Path(sys.executable).parent / "ideabridge"
TIME = preloaded.module(Path(sys.executable).parent / "mcp-server-time", "--local-timezone", "UTC")
TOOL = (
    "from ideabridge.tools import tool\n@tool(read_only=True)\ndef {name}() -> int:\n    return 1\n"
)
CUT = b'{"mcpServers": {"x": {"command": "ls"'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "IDEABRIDGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "own.py").write_text(TOOL.format(name="own_tool"))
    write_own({"tools": [str(folder / "own.py")], "store": str(tmp_path / "store.sqlite")})
    return folder


def broken(folder: Path, how: str) -> Path:
    file = folder / "ideabridge.json"
    match how:
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(folder / "nowhere")
        case "pipe":
            os.mkfifo(file)
        case "large":
            file.write_bytes(b" " * (4 * 1024 * 1024 + 1))
        case "writable":
            file.write_bytes(b"{}")
            file.chmod(0o666)
        case _:
            file.write_bytes(
                {
                    "cut": CUT,
                    "bytes": b"\xff\xfe{",
                    "deep": b"[" * 200,
                    "list": b"[1]",
                    "rules": b'{"approval": {"obey me\\nnow": 1}}',
                    "unknown": b'{"obey deny me": 1}',
                    "auth": b'{"auth": {"issuer": 3}}',
                    "near": b'{"atuh": {}}',
                }[how]
            )
    return file


REASONS = {
    "folder": "is not a regular file",
    "link": "is not a regular file",
    "pipe": "is not a regular file",
    "large": "is larger than 4,194,304 bytes",
    "writable": "cannot be read",
    "cut": "is not JSON: Expecting ',' delimiter at line 1, column 38",
    "bytes": "is not UTF-8 (byte 0)",
    "deep": "is nested deeper than 100 levels",
    "list": "is not a configuration (expected an object, found a list)",
    "rules": "has invalid settings in approval",
    "unknown": "has invalid settings in keys that may restrict something",
    "auth": "has invalid settings in auth",
    "near": "has invalid settings in keys that may restrict something",
}
UNREADABLE = ("folder", "link", "pipe", "large", "writable", "cut", "bytes", "deep", "list")


@pytest.mark.parametrize("how", REASONS)
def test_the_users_own_configuration_holds_and_the_file_is_named(project: Path, how: str) -> None:
    file = broken(project, how)
    loaded = load_workspace(file, project=project, tolerant=True)
    assert loaded.tools == (str(project / "own.py"),)
    assert loaded.untrusted is not None
    assert str(file) in loaded.untrusted.told()
    [to_hosts] = loaded.unused_files
    assert f"{file} {REASONS[how]} and is not used" in to_hosts
    assert "obey" not in to_hosts
    refusal = loaded.opened_by(needs_token=True)
    assert (refusal is not None) is (how in (*UNREADABLE, "auth", "near"))
    assert refusal is None or str(file) in refusal
    # A program that asks for its configuration gets the error.
    with pytest.raises(ConfigurationError):
        load_configuration(project=project)


def test_a_file_that_is_named_and_missing_is_an_error(project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.json cannot be read"):
        load_workspace(project / "missing.json", project=project, tolerant=True)


@pytest.mark.parametrize("how", ["folder", "link"])
def test_what_is_in_place_of_the_users_own_file_is_an_error(project: Path, how: str) -> None:
    user_file().unlink()
    broken(user_file().parent, how)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_workspace(project / "ideabridge.json", project=project, tolerant=True)


@pytest.mark.anyio
async def test_a_host_gets_the_users_tools_and_the_reason_once(project: Path) -> None:
    file = broken(project, "cut")
    (project / "bad.py").write_text("import no_such_module\n")
    write_own({"tools": [str(project / "bad.py"), str(project / "own.py")]})
    program, *arguments = preloaded.python(EXECUTABLE, "serve", "--project", str(project))
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    plan: dict[str, Any] = {"calls": [{"_tool": "own_tool"}], "output": "†results.0"}
    async with Client(parameters, read_timeout_seconds=60) as client:
        instructions = client.instructions or ""
        found = await client.call_tool("search_tools", {"words": "own_tool"})
        first = await client.call_tool("run_plan", plan)
        second = await client.call_tool("run_plan", plan)

    texts = (
        instructions,
        str(found.structured_content),
        str(first.structured_content),
        str(first.content),
    )
    reasons = (f"{file} is not JSON", "bad.py, line 1: ModuleNotFoundError")
    for reason in reasons:
        assert [reason in text for text in texts] == [True] * 4
        assert reason not in f"{second.structured_content} {second.content}"

    assert "own_tool" in str(found.structured_content)
    assert "'status': 'done'" in str(first.structured_content)


@pytest.mark.anyio
async def test_an_unusable_server_is_named_wherever_a_host_meets_it(project: Path) -> None:
    write_own({"mcpServers": {"bad": {**TIME, "denny": ["x"]}, "good": TIME}})
    program, *arguments = preloaded.python(EXECUTABLE, "serve", "--project", str(project))
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    call = {"_tool": "get_current_time", "_module": "bad", "timezone": "UTC"}
    program_text = "import bad\nawait bad.get_current_time(timezone='UTC')"
    async with Client(parameters, read_timeout_seconds=60) as client:
        found = await client.call_tool("search_tools", {"words": "current time"})
        planned = await client.call_tool("run_plan", {"calls": [call]})
        written = await client.call_tool("run_plan", {"program": program_text})

    reason = "mcpServers.bad.denny: unknown key. Did you mean"
    for answer in (found, planned, written):
        assert reason in str(answer.content)

    assert "'state': 'unusable'" in str(found.structured_content)
    assert "good.get_current_time(timezone" in str(found.content)


@pytest.mark.parametrize("how", ["auth", "cut"])
def test_a_server_over_http_does_not_start_without_a_file_that_may_restrict(
    project: Path, how: str
) -> None:
    file = broken(project, how)
    ended = subprocess.run(
        preloaded.python(EXECUTABLE, "serve", "--http", "127.0.0.1:0"),
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode not in (0, None)
    assert str(file) in " ".join(ended.stderr.split())


def test_commands_tell_a_person(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken(project, "rules")
    assert main(["doctor", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    [wrong] = [
        one for one in findings if one["topic"] == "configuration" and "not used" in one["text"]
    ]
    assert wrong["state"] == "wrong"
    assert "approval.obey me" in wrong["text"]
    assert main(["servers", "list"]) == 2
    assert "approval.obey me" in " ".join(capsys.readouterr().err.split())


def test_one_file_of_tools_that_fails_leaves_the_others(project: Path) -> None:
    texts = {"syntax": "def (", "exits": "raise SystemExit(3)", "empty": ""}
    for name, text in texts.items():
        (project / f"{name}.py").write_text(text)
    (project / "good.py").write_text(TOOL.format(name="good_tool"))
    names = ["syntax.py", "exits.py", "empty.py", "missing.py", "good.py"]
    loaded = load_workspace(write_trusted(project, {"tools": names}), project=project)
    bridge = Bridge(loaded)
    assert {"own_tool", "good_tool"} <= {tool.name for tool in bridge.toolbox}
    assert len(bridge.configuration.tool_faults) == 4
    for name, fault in zip(names, bridge.configuration.tool_faults, strict=False):
        assert name in fault
    assert sys.modules.get("good") is None


@pytest.mark.parametrize(
    "text",
    [
        "{" + ", ".join(f'"key{number}": 0' for number in range(200_000)) + "}",
        '{"mcpServers": {"a": {"command": "x", '
        + ", ".join(f'"key{number}": 0' for number in range(9_900))
        + "}}}",
        '{"mcpServers": {' + ", ".join(f'"a{n}": {{"comand": "x"}}' for n in range(60_000)) + "}}",
        '{"tools": [' + ", ".join("1" for _ in range(400_000)) + "]}",
    ],
    ids=["keys", "keys of a server", "servers", "items"],
)
def test_a_file_full_of_mistakes_takes_seconds(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ideabridge.json"
    file.write_text(text, encoding="utf-8")
    began = time.monotonic()
    load_workspace(file, project=tmp_path, tolerant=True)
    assert time.monotonic() - began < 30
