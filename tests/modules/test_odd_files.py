"""ideabridge.json: what is odd but clear works, and what is not clear is refused alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.configuration import (
    Configuration,
    ConfigurationError,
    load_configuration,
    load_workspace,
    parse_configuration,
)
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.trust import look_at
from tests.trusting import write_trusted

HERE = Path("/somewhere")
GOOD: dict[str, Any] = {"command": "good"}


def parsed(entry: Any, **top: Any) -> Configuration:
    return parse_configuration(
        {"mcpServers": {"odd": entry, "good": GOOD}, **top}, project=HERE, source=None
    )


def understood(entry: Any) -> tuple[ModuleConfiguration, list[str]]:
    """The entry, which can be used, and what is said about it."""
    configuration = parsed(entry)
    assert configuration.unusable == {}
    assert list(configuration.modules) == ["odd", "good"]
    return configuration.modules["odd"], configuration.warnings


@pytest.mark.parametrize(
    ("entry", "members", "told"),
    [
        ({"command": ["npx", "-y", "z"], "args": ["q"]}, {"args": ("-y", "z", "q")}, "a list is"),
        ({"command": "x", "args": "--quiet"}, {"args": ("--quiet",)}, "text is read as a list"),
        ({"command": "x", "args": ["-p", 80]}, {"args": ("-p", "80")}, "numbers are read as text"),
        ({"command": "x", "env": {"PORT": 80}}, {"env": {"PORT": "80"}}, "env.PORT: a number is"),
        ({"command": "x", "env": {"DEBUG": True}}, {"env": {"DEBUG": "true"}}, "in quotes"),
        ({"command": "x", "env": {"TOKEN": None}}, {"env": {}}, "as if it were absent"),
        ({"command": "x", "env": ["A=b=c"]}, {"env": {"A": "b=c"}}, "a list is read as an object"),
        (
            {"command": "x", "env": [{"name": "A", "value": "b"}]},
            {"env": {"A": "b"}},
            "a list is read as an object",
        ),
        ({"command": "x", "timeout": "20"}, {"timeout": 20}, "20 seconds"),
        ({"command": "x", "timeout": "500ms"}, {"timeout": 0.5}, "0.5 seconds"),
        ({"command": "x", "timeout": 60_000}, {"timeout": 60}, "milliseconds; write 60"),
        ({"command": "x", "timeout": None}, {"timeout": 60}, "timeout: null"),
        ({"command": "x", "disabled": "true"}, {"disabled": True}, "without quotes"),
        ({"command": "x", "enabled": "false"}, {"disabled": True}, "without quotes"),
        ({"url": "https://x", "type": "Streamable-HTTP"}, {"kind": "http"}, "read as 'http'"),
        ({"command": "x", "deny": "delete_*"}, {"deny": ("delete_*",)}, "a list of one name"),
        (
            {"transport": {"type": "sse", "url": "https://x"}},
            {"kind": "sse", "url": "https://x"},
            "keys of the entry itself",
        ),
        ({"command": "${env:X}/y"}, {"command": "${X}/y"}, "is read as ${X}"),
        ({"command": "x", "cwd": "${workspaceFolder}/y"}, {"cwd": f"{HERE}/y"}, str(HERE)),
        ({"command": "x", "timeuot": 5}, {"timeout": 60}, "Did you mean 'timeout'? It is ignored."),
        ({"command": "x", "watchPaths": ["a"]}, {}, "watchPaths: unknown key"),
    ],
)
def test_what_is_odd_but_clear_works_and_is_told(
    entry: Any, members: dict[str, Any], told: str
) -> None:
    module, warnings = understood(entry)
    assert {key: getattr(module, key) for key in members} == members
    [line] = warnings
    assert line.startswith("ideabridge.json: mcpServers.odd.")
    assert told in line


@pytest.mark.parametrize(
    ("entry", "members"),
    [
        ({"serverUrl": "https://x"}, {"url": "https://x"}),
        ({"command": "x", "request_timeout_ms": 500}, {"timeout": 0.5}),
        ({"command": "x", "startup_timeout_sec": 5}, {"connect_timeout": 5}),
        ({"command": "x", "environment": {"A": "b"}}, {"env": {"A": "b"}}),
        ({"command": "x", "tools": ["a"]}, {"allow": ("a",)}),
        ({"command": "x", "deny": ["a"], "disabledTools": ["b"]}, {"deny": ("a", "b")}),
        ({"command": "x", "disabled": False, "enabled": False}, {"disabled": True}),
        ({"command": "x", "disabled": True, "enabled": True}, {"disabled": True}),
        ({"command": "x", "args": ["$${env:X}"]}, {"args": ("$${env:X}",)}),
        ({"command": "x", "cwd": None, "url": None}, {"cwd": None}),
        ({"url": "https://x", "oauth": {"scopes": "a b"}}, {}),
    ],
)
def test_spellings_of_other_hosts_mean_the_same_without_a_word(
    entry: Any, members: dict[str, Any]
) -> None:
    module, warnings = understood(entry)
    assert {key: getattr(module, key) for key in members} == members
    assert warnings == []


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("uvx x", "expected an object, found text"),
        ({"comand": "x"}, "comand: unknown key. Did you mean 'command'?"),
        ({"command": "x", "denny": ["a"]}, "denny: unknown key. Did you mean 'deny'? It may"),
        ({"command": "x", "toolBlocklist": ["a"]}, "toolBlocklist: unknown key"),
        ({"command": "x", "disabeld": True}, "Did you mean 'disabled'?"),
        ({"command": "x", "paralell": 1}, "Did you mean 'parallel'?"),
        ({"command": "x", "deny": None}, "deny: expected a list, found null"),
        ({"command": "x", "allow": None}, "allow: expected a value, found null"),
        ({"command": "x", "deny": {"a": True}}, "deny: expected a list, found an object"),
        ({"command": "x", "deny": "null"}, "deny: expected a list, found text"),
        ({"command": "x", "deny": '["a"]'}, "deny: expected a list, found text"),
        ({"command": "x", "deny": "a, b"}, "deny: expected a list, found text"),
        ({"command": "x", "disabled": None}, "disabled: expected true or false, found null"),
        ({"command": "x", "disabled": 1}, "disabled: expected true or false, found a number"),
        ({"command": "x", "args": "-y a"}, "args: expected a list, found a string; write each"),
        ({"command": "x", "env": {"V": 1.10}}, "env.V: expected text, found a number"),
        ({"command": "x", "timeout": "soon"}, "timeout: expected a number, found text"),
        ({"command": "x", "timeoutMs": "5"}, "expected a number of milliseconds, found text"),
        ({"url": "https://x", "uri": "https://y"}, "is given as 'url' and as 'uri', which differ"),
        ({"url": "https://x", "auth": {"issuerr": "y"}}, "Did you mean 'issuer'?"),
        ({"url": "https://x", "auth": {"issuer": None}}, "auth.issuer: expected a value"),
    ],
)
def test_what_is_not_clear_makes_one_server_unusable(entry: Any, told: str) -> None:
    configuration = parsed(entry)
    assert list(configuration.unusable) == ["odd"]
    assert told in "\n".join(configuration.unusable["odd"])
    assert all(line.startswith("mcpServers.odd") for line in configuration.unusable["odd"])
    assert configuration.modules["good"].command == "good"


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ({"aproval": "default"}, "Did you mean 'approval'? It may restrict something"),
        ({"deny": ["x"]}, "deny: unknown key"),
        ({"profile": {}}, "profile: unknown key. Did you mean 'profiles'?"),
        ({"profiles": {"a": None}}, "profiles.a: expected"),
        ({"profiles": {"a": {"deny": ["x"]}}}, "profiles.a.deny: unknown key"),
        ({"approval": {"by": None}}, "approval.by: expected a value, found null"),
        ({"approval": {"rules": [{"module": None, "then": "allow"}]}}, "rules.0.module: expected"),
        ({"limits": {"calls": None}}, "limits.calls: expected a whole number, found null"),
        ({"store": 3}, "store: expected text"),
        ({"programs": "no"}, "programs: expected true or false, found text"),
    ],
)
def test_what_restricts_is_understood_or_the_file_is_refused(top: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(GOOD, **top)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("top", "members", "told"),
    [
        ({"listed_ideas": "5"}, {"listed_ideas": 5}, "text is read as a whole number"),
        ({"listed_ideas": "few"}, {"listed_ideas": 20}, "It is not used."),
        ({"expose": ["modules", "all"]}, {"expose": ("modules",)}, "expose.1: expected"),
        ({"tools": ["/a.py", 3]}, {"tools": ("/a.py",)}, "tools.1: expected text"),
        ({"theme": "dark"}, {}, "theme: unknown key. It is ignored."),
        ({"exposse": ["modules"]}, {"expose": ()}, "Did you mean 'expose'? It is ignored."),
        ({"model": {"name": "openai:x", "base_ulr": "http://y"}}, {"model": None}, "is not used"),
    ],
)
def test_other_keys_at_the_top_are_left_out_alone(
    top: Any, members: dict[str, Any], told: str
) -> None:
    configuration = parsed(GOOD, **top)
    assert {key: getattr(configuration, key) for key in members} == members
    assert configuration.unusable == {}
    [line] = configuration.warnings
    assert told in line


def test_a_list_of_servers_and_other_names_of_the_block_are_understood() -> None:
    listed = parse_configuration({"mcpServers": [{"name": "a", "command": "x"}, {"command": "y"}]})
    assert list(listed.modules) == ["a"]
    assert any("mcpServers.1: expected an object with 'name'" in line for line in listed.warnings)
    named = parse_configuration({"servers": {"a": {"command": "x"}}})
    assert list(named.modules) == ["a"]
    assert named.warnings == ["ideabridge.json: servers: is read as 'mcpServers'"]


def test_a_key_that_occurs_twice_takes_nothing_else_along(tmp_path: Path) -> None:
    file = tmp_path / "twice.json"
    file.write_text(
        """{
          "mcpServers": {
            "same": {"command": "x"}, "same": {"command": "x"},
            "other": {"command": "x"}, "other": {"command": "y"},
            "inner": {"command": "x", "deny": ["a"], "deny": ["b"]}
          },
          "mcpServers": {"more": {"command": "x"}},
          "listed_ideas": 3, "listed_ideas": 4,
          "expose": ["modules"], "expose": ["modules"]
        }"""
    )
    loaded = load_configuration(file)
    assert list(loaded.modules) == ["same", "other", "inner", "more"]
    assert loaded.unusable == {
        "other": ("mcpServers.other: occurs 2 times with different values; expected one",),
        "inner": ("mcpServers.inner.deny: occurs 2 times with different values; expected one",),
    }
    assert (loaded.listed_ideas, loaded.expose) == (20, ("modules",))
    assert any("listed_ideas: occurs 2 times" in line for line in loaded.warnings)


def test_trust_covers_the_files_of_every_spelling(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("1")
    (tmp_path / "other.py").write_text("2")
    python = shutil.which("python3") or "python3"
    spellings: list[Any] = [
        {"mcpServers": {"a": {"command": [python, "server.py"]}}},
        {"mcpServers": [{"name": "a", "command": python, "args": "server.py"}]},
        {"servers": {"a": {"transport": {"command": python, "args": ["server.py"]}}}},
        {"mcpServers": {"a": {"command": python, "args": ["${workspaceFolder}/server.py"]}}},
        {"mcpServers": {"a": {"command": python, "environment": {"LD_PRELOAD": "./server.py"}}}},
    ]
    for content in spellings:
        file = write_trusted(tmp_path, content)
        assert set(look_at(file).digests) == {"ideabridge.json", "server.py"}, content
        assert load_workspace(file, project=tmp_path).untrusted is None

    entry = json.dumps({"command": python, "args": ["server.py"]})
    later = json.dumps({"command": python, "args": ["other.py"]})
    file = write_trusted(
        tmp_path, f'{{"mcpServers": {{"a": {entry}}}, "mcpServers": {{"b": {later}}}}}'
    )
    assert set(look_at(file).digests) == {"ideabridge.json", "server.py", "other.py"}
    assert set(load_workspace(file, project=tmp_path).modules) == {"a", "b"}


def test_remarks_are_bounded() -> None:
    keys = {f"key{number}": 1 for number in range(1000)}
    configuration = parse_configuration({"x" * 100_000: 1, **keys})
    assert len(configuration.warnings) == 51
    assert max(map(len, configuration.warnings)) < 600
    assert configuration.warnings[-1] == "ideabridge.json: and 951 more"
