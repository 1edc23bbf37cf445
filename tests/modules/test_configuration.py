"""ideabridge.json: every problem at once, each with its place."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import platformdirs
import pytest

from ideabridge.bridge.configuration import (
    ConfigurationError,
    fingerprint,
    load_configuration,
    parse_configuration,
)
from ideabridge.bridge.server_entry import AUTH_SYNONYMS, KINDS, MILLISECONDS, SYNONYMS
from ideabridge.tools.encoding import JSON, JSONObject
from tests.trusting import write_trusted

DOCS = Path(__file__).parents[2] / "docs"


def parse(raw: Any) -> Any:
    return parse_configuration(raw, project=Path.cwd())


def problems(raw: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse(raw)
    return caught.value.problems


def remarks(raw: Any) -> list[str]:
    """Everything that is odd or wrong in a file, whether it is refused or not."""
    try:
        return parse(raw).warnings
    except ConfigurationError as error:
        return error.problems


def test_what_hosts_write_is_taken_as_it_is() -> None:
    raw: Any = {
        "mcpServers": {
            "git": {
                "command": "uvx",
                "args": ["mcp-server-git"],
                "type": "stdio",
                "autoApprove": ["x"],
                "timeout": 30,
            },
            "web": {
                "type": "streamable-http",
                "url": "https://x/mcp",
                "headers": {"A": "${B}"},
                "alwaysAllow": [],
            },
            "gemini": {
                "httpUrl": "https://x/mcp",
                "includeTools": ["a"],
                "excludeTools": ["b"],
                "trust": True,
            },
            "ours": {
                "url": "https://x",
                "oauth": {
                    "enabled": True,
                    "clientId": "a",
                    "callbackPort": 80,
                    "scopes": ["b", "c"],
                },
            },
            "theirs": {"url": "https://x", "auth": {"CLIENT_ID": "a", "scopes": []}},
            "old": {"type": "sse", "url": "https://x/sse", "enabled": False, "description": "?"},
        }
    }
    modules = parse(raw).modules
    assert [module.kind for module in modules.values()] == [
        "stdio",
        "http",
        "http",
        "http",
        "http",
        "sse",
    ]
    ours = modules["ours"].auth
    theirs = modules["theirs"].auth
    assert (ours.client_id, ours.scope, ours.redirect_uri) == (
        "a",
        "b c",
        "http://localhost:80/callback",
    )
    assert (theirs.client_id, theirs.scope, theirs.redirect_uri) == ("a", None, None)
    assert modules["git"].timeout == 30
    assert modules["gemini"].url == "https://x/mcp"
    assert (modules["gemini"].allow, modules["gemini"].deny) == (("a",), ("b",))
    assert modules["old"].disabled


def test_every_problem_is_told_at_once_with_its_place() -> None:
    raw: Any = {
        "mcpServers": {
            "git": {
                "command": "x",
                "comand": "x",
                "args": {"0": "a"},
                "timeout": 6000000,
                "envFile": ".env",
            },
            "both": {"command": "x", "url": "http://x", "env": {"TOKEN": 7.5}},
            "neither": {},
            "mixed": {"type": "http", "command": "x", "headers": {"a": "b"}},
            "idea:x": {"command": "x"},
            "list": [],
            "ftp": {"url": "ftp://x", "parallel": 0, "type": "ws"},
        },
        "servers": {},
        "limits": {"cals": 1, "calls": "many"},
        "order": "some",
        "expose": ["everything"],
        "store": 3,
    }
    told = problems(raw)
    for expected in (
        "ideabridge.json: mcpServers.git.comand: unknown key. Did you mean 'command'?",
        "ideabridge.json: mcpServers.git.args: expected a list, found an object",
        "ideabridge.json: mcpServers.git.timeout: should be less than or equal to 3600",
        "ideabridge.json: mcpServers.both: has both 'command' and 'url'; expected one of them",
        "ideabridge.json: mcpServers.both.env.TOKEN: expected text, found a number",
        (
            "ideabridge.json: mcpServers.neither: expected 'command' (a program to start) or "
            "'url' (a server to call)"
        ),
        "ideabridge.json: mcpServers.mixed.type: 'http' requires url, which is missing",
        "ideabridge.json: mcpServers.mixed.headers: is allowed only with 'url'",
        "ideabridge.json: mcpServers.list: expected an object, found a list",
        (
            "ideabridge.json: mcpServers.ftp.url: expected an address that starts "
            "with http:// or https://"
        ),
        "ideabridge.json: mcpServers.ftp.type: expected 'stdio', 'http' or 'sse', found 'ws'",
        "ideabridge.json: mcpServers.ftp.parallel: should be greater than or equal to 1",
        "ideabridge.json: servers: unknown key. Did you mean 'mcpServers'? It is ignored.",
        "ideabridge.json: limits.cals: unknown key. Did you mean 'calls'?",
        "ideabridge.json: limits.calls: expected a whole number, found text",
        "ideabridge.json: order: expected 'effects', 'all' or 'none', found 'some'",
        (
            "ideabridge.json: expose.0: expected 'modules' or 'tools', found 'everything'. "
            "It is not used."
        ),
        "ideabridge.json: store: expected text, found a number",
    ):
        assert expected in told
    assert any("'idea:x'" in line and "this name is reserved" in line for line in told)
    assert any(
        "git.envFile: unknown key: ideabridge does not read files with variables" in line
        for line in told
    )


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("alow", "Known: $schema, mcpServers, tools, store, "),
        ("limits.cals", "Did you mean 'calls'?"),
        ("sampling.model", "Did you mean 'models'?"),
        ("shown.al", "Known: value, request"),
        ("users.shares", "Did you mean 'share'?"),
        ("auth.alow", "Known: issuer, audience, jwks_url, algorithms, "),
        ("auth.issuerr", "Did you mean 'issuer'?"),
        ("retention.dayz", "Did you mean 'days'?"),
        ("approval.defaults", "Did you mean 'default'?"),
        ("approval.rules.0.calls", "Known: module, tool, read_only, "),
        ("model.shown.requests", "Did you mean 'request'?"),
        ("mcpServers.w.alow", "Did you mean 'allow'?"),
        ("mcpServers.w.auth.issuerr", "Did you mean 'issuer'?"),
        ("mcpServers.w.auth.alow", "Known: grant, issuer, client_id, "),
    ],
)
def test_an_unknown_key_is_answered_with_the_keys_of_its_own_object(
    path: str, suggestion: str
) -> None:
    raw: Any = 1
    for key in reversed(path.split(".")):
        raw = [raw] if key == "0" else {key: raw}

    [problem] = [line for line in remarks(raw) if "unknown key" in line]
    assert problem.startswith(f"ideabridge.json: {path}: unknown key. {suggestion}")


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        (
            {"clientId": "a", "clientSecret": "b"},
            "'client_secret' needs 'client_id' and 'issuer', which say who it belongs to",
        ),
        (
            {"grant": "client_credentials", "client_id": "a", "issuer": "https://x"},
            "needs either 'client_secret' or",
        ),
        (
            {"client_id": "a", "issuer": "https://x", "private_key": "b"},
            'only goes with "grant": "client_credent',
        ),
        ({"client_id": "a", "client_metadata_url": "https://x/y"}, "replaces 'client_id'"),
        ({"issuer": "login.example"}, "'issuer' should be an address"),
        (
            {"redirect_uri": "https://elsewhere.example/callback"},
            "'redirect_uri' should be on this machine",
        ),
        ({"client_metadata_url": "https://elsewhere.example"}, "with https:// and a path"),
        ({"tokenUrl": "https://x"}, "unknown key"),
    ],
)
def test_settings_for_tokens_that_contradict_each_other_are_refused(auth: Any, words: str) -> None:
    entry: Any = {"url": "https://x/mcp", "auth": auth}
    parsed = parse({"mcpServers": {"web": entry, "other": {"command": "x"}}})
    assert list(parsed.unusable) == ["web"]
    [told] = parsed.warnings
    assert told.startswith("ideabridge.json: mcpServers.web.auth")
    assert words in told


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "anonymous", "idea:x"])
def test_names_are_bounded(name: str) -> None:
    parsed = parse({"mcpServers": {name: {"command": "x"}, "other": {"command": "x"}}})
    assert list(parsed.modules) == ["other"]
    [told] = parsed.warnings
    assert "This server is not used." in told


@pytest.mark.parametrize("raw", [[], "text", None])
def test_what_is_no_configuration_is_refused(raw: Any) -> None:
    assert "expected an object" in problems(raw)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"mcpServers": {,}}', "line 1, column"),
        (b'{\n "order": "all",\n "order": "none"}', "order: occurs 2 times with different values"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 200, "is nested deeper|not JSON"),
    ],
)
def test_text_that_is_not_json_is_refused_with_its_place(
    tmp_path: Path, text: bytes, words: str
) -> None:
    file = tmp_path / "my.json"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        load_configuration(file)
    assert str(caught.value).startswith(str(file))


def test_comments_and_trailing_commas_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_bytes(
        b'\xef\xbb\xbf{\r\n  // which servers\r\n  "mcpServers": {\r\n'
        b'    "a": {"command": "x", "args": ["//", "/*,]*/"],}, /* "b": {"command": "y"} */\r\n'
        b"  },\r\n}\r\n"
    )
    parsed = load_configuration(file)
    assert list(parsed.modules) == ["a"]
    assert parsed.modules["a"].args == ("//", "/*,]*/")


def test_text_with_comments_that_is_not_json_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_text('{\n  // cut\n  "mcpServers": {')
    with pytest.raises(ConfigurationError, match="line 3, column"):
        load_configuration(file)


def test_files_are_found_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "user"

    def user_folder(_name: str) -> Path:
        return user

    monkeypatch.setattr(platformdirs, "user_config_path", user_folder)
    project = tmp_path / "project"
    for folder in (user, project):
        folder.mkdir()

    assert load_configuration(project=project).source is None
    # As elsewhere in Python, a path may be a string.
    assert load_configuration(project=str(project)).source is None
    (user / "ideabridge.json").write_text('{"order": "all"}')
    assert load_configuration(project=project).order == "all"
    # Editors on Windows begin files with a byte order mark.
    write_trusted(project, '\ufeff{"order": "none", "tools": ["t/a.py"], "store": "s.db"}')
    found = load_configuration(project=project)
    assert (found.order, found.source) == ("none", project / "ideabridge.json")
    assert found.tools == (str(project / "t/a.py"),)
    assert found.store == str(project / "s.db")
    with pytest.raises(ConfigurationError, match=r"missing\.json cannot be read"):
        load_configuration(tmp_path / "missing.json")


def test_the_fingerprint_changes_with_behaviour_only() -> None:
    def of(**keys: Any) -> str:
        entry = {"url": "https://me:pass1@x/mcp", "headers": {"Authorization": "Bearer abc"}}
        return fingerprint(parse({"mcpServers": {"m": {**entry, **keys}}}))

    same = of()
    assert of(headers={"authorization": "Bearer other"}) == same
    assert of(url="https://me:pass2@x/mcp") == same
    assert of(timeout=5) == same
    changed = [
        of(url="https://y/mcp"),
        of(deny=["a"]),
        of(allow=[]),
        of(headers={}),
        of(disabled=True),
    ]
    assert len({same, *changed}) == 6
    assert fingerprint(parse({"approval": "allow_all"})) != fingerprint(parse({}))


def test_the_committed_schema_agrees_with_the_code() -> None:
    committed = json.loads((DOCS / "ideabridge.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema_rs.Draft202012Validator(committed)
    good: JSON = {
        "$schema": "x",
        "mcpServers": {
            "a": {"command": "x", "enabled": True, "autoApprove": []},
            "b": {"httpUrl": "http://x"},
        },
        "limits": {"calls": 3},
    }
    parse(good)
    assert validator.is_valid(good)
    unknown: Any = {"mcpServer": {}}
    internal: Any = {"modules": {}}
    misspelt: Any = {"mcpServers": {"a": {"comand": "x"}}}
    for bad in (unknown, internal, misspelt, {"order": "x"}, {"limits": {"calls": 0}}):
        assert not validator.is_valid(bad)
        assert remarks(bad)


def entry_of(key: str, value: JSON) -> JSONObject:
    """A file with one server, whose entry has a key that needs an address or a program."""
    needs_address = key == "auth" or SYNONYMS.get(key) in ("headers", "auth", "type")
    start: JSONObject = {"url": "https://x/mcp"} if needs_address else {"command": "x"}
    if SYNONYMS.get(key) == "url":
        start = {}
    return {"mcpServers": {"a": {**start, key: value}}}


def entry_with_auth(synonym: str) -> JSONObject:
    """A file with one server, in whose `auth` a key has another host's name."""
    auth: JSONObject = {
        "issuer": "https://x",
        "client_id": "me",
        "client_secret": "${SECRET}",
        "redirect_uri": "http://localhost:3118/callback",
    }
    auth[synonym] = auth.pop(AUTH_SYNONYMS[synonym])
    return entry_of("auth", auth)


VALUES: dict[str, JSON] = {
    "connect_timeout": 5,
    "timeout": 5,
    "env": {"A": "b"},
    "headers": {"A": "b"},
    "url": "https://x/mcp",
    "type": "sse",
    "allow": ["a"],
    "deny": ["a"],
    "auth": {"client_id": "me"},
}
"""A value for each key that has synonyms."""

FORMS: list[JSONObject] = [
    {"approval": "default"},
    {"approval": "allow_all"},
    {"approval": {"default": "ask"}},
    {"retention": False},
    {"retention": {}},
    {"model": "openai:gpt-5"},
    {"model": {"name": "openai:gpt-5"}},
    {"model": None},
    entry_of("enabled", True),
    entry_of("tools", ["a"]),
    entry_of("tools", {"a": {"hide": True}}),
    entry_of("tools", {"a": {"hide": ["path"]}}),
    entry_of("auth", {"scopes": ["read", "write"]}),
    entry_of("auth", {"scopes": "read write"}),
    entry_of("auth", {"callbackPort": 8080}),
    entry_of("auth", {"enabled": True}),
    {"mcpServers": {"a": {"transport": {"type": "http", "url": "https://x/mcp"}}}},
    *(
        {"mcpServers": {"a": {"type": name, "command" if kind == "stdio" else "url": "http://x"}}}
        for name, kind in KINDS.items()
    ),
    *(entry_of(key, VALUES[own]) for key, own in SYNONYMS.items()),
    *(entry_of(key, 5000) for key in MILLISECONDS),
    *map(entry_with_auth, AUTH_SYNONYMS),
]
"""Files in all forms in which a setting can be written, but for those that are read with a remark
such as "a list is read as the program and its arguments": an editor should mark these.
"""


@pytest.mark.parametrize("document", FORMS, ids=json.dumps)
def test_the_schema_accepts_what_is_read_without_a_remark(document: JSONObject) -> None:
    schema = json.loads((DOCS / "ideabridge.schema.json").read_text(encoding="utf-8"))
    configuration = parse(document)
    assert configuration.unusable == {}
    assert [line for line in configuration.warnings if "its keys are read" not in line] == []
    jsonschema_rs.Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize(
    "document",
    [
        entry_of("tools", "a"),
        entry_of("tools", {"a": {"hide": "yes"}}),
        entry_of("tools", {"a": {"hides": True}}),
        entry_of("auth", {"callbackPort": "8080"}),
        entry_of("timeoutMs", "5000"),
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_other_values_of_these_keys(document: JSONObject) -> None:
    schema = json.loads((DOCS / "ideabridge.schema.json").read_text(encoding="utf-8"))
    assert not jsonschema_rs.Draft202012Validator(schema).is_valid(document)
    assert remarks(document)


def test_every_key_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    schema = json.loads((DOCS / "ideabridge.schema.json").read_text(encoding="utf-8"))
    keys = [
        *schema["properties"],
        *schema["$defs"]["Limits"]["properties"],
        *schema["$defs"]["ModuleConfiguration"]["properties"],
        *schema["$defs"]["ModelConfiguration"]["properties"],
    ]
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_reading_a_configuration_does_not_import_the_sdk() -> None:
    code = "import sys, ideabridge.bridge.configuration; print('mcp' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip()
        == b"False"
    )
