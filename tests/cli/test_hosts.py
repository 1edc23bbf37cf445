from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.modules.settings import entry_digest
from ideabridge.bridge.stored_secrets import (
    SecretOwner,
    find_secret,
    secret_owner,
    secret_value,
    secrets_path,
    set_secret,
)
from ideabridge.bridge.trust import is_trusted, trust_file
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import (
    HostEnvironment,
    HostFileError,
    read_tolerantly,
)
from ideabridge.server.hosts.notation import Input
from ideabridge.server.hosts.table import find_host
from ideabridge.server.hosts.translate import is_ourselves, translate_server
from ideabridge.server.main import main
from ideabridge.tools.documents import blank_comments

from .terminal import Terminal

Answer = dict[str, Any]


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8"
    )
    return path


def told(capsys: pytest.CaptureFixture[str]) -> Answer:
    out = capsys.readouterr().out
    answer = json.loads(out)
    assert out.count("\n") == 1
    return answer


def own_file(home: Path) -> Path:
    """The user's own configuration."""
    return home / ".config" / "ideabridge" / "ideabridge.json"


def servers_in(file: Path) -> Answer:
    return json.loads(file.read_text(encoding="utf-8"))["mcpServers"]


def verdicts(answer: Answer) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in answer["servers"]}


# -- where hosts keep their files ------------------------------------------------------------------


def test_vscode_user_file_by_platform() -> None:
    home = Path("/h")
    project = Path("/p")
    host = find_host("vscode")

    def user(platform: str, **environ: str) -> Path:
        return host.target(HostEnvironment(project, home, environ, platform), "user").path

    assert user("linux") == Path("/h/.config/Code/User/mcp.json")
    assert user("linux", XDG_CONFIG_HOME="/x") == Path("/x/Code/User/mcp.json")
    assert user("darwin") == Path("/h/Library/Application Support/Code/User/mcp.json")
    assert user("win32", APPDATA="/a") == Path("/a/Code/User/mcp.json")


def test_claude_code_config_folder() -> None:
    places = HostEnvironment(Path("/p"), Path("/h"), {"CLAUDE_CONFIG_DIR": "/c"}, "linux")
    assert find_host("claude-code").target(places, "user").path == Path("/c/.claude.json")


# -- documents -------------------------------------------------------------------------------------


def test_comments_and_trailing_commas_are_read(tmp_path: Path) -> None:
    text = '{ // a\n  "u": "http://x/*no*/,]", /* b\n */ "l": [1, 2,],\n  "s": "a\\"//b",\n}'
    path = put(tmp_path / "mcp.json", text)
    expected = {"u": "http://x/*no*/,]", "l": [1, 2], "s": 'a"//b'}
    assert read_tolerantly(path).content == expected
    assert read_host_text(path).content == expected


READ = """
import sys
from pathlib import Path
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import HostFileError, read_tolerantly
for path in sys.argv[1:]:
    read_tolerantly(Path(path))
    try:
        read_host_text(Path(path))
    except HostFileError:
        pass
"""


def test_no_file_takes_more_time_than_its_length_needs(tmp_path: Path) -> None:
    # A pattern that started again at every place took minutes for the first two of these.
    parts = ("/*", '"\\', '"', "//", ", ", "/", ",/**/", "*/")
    files = [
        put(tmp_path / f"{number}.json", part * (300_000 // len(part)))
        for number, part in enumerate(parts)
    ]
    command = [sys.executable, "-c", READ, *map(str, files)]
    subprocess.run(command, check=True, timeout=120, stdin=subprocess.DEVNULL)


@given(st.text(alphabet='{}[]",:/*\\\n a1', max_size=40))
def test_blanking_comments_moves_nothing(text: str) -> None:
    plain = blank_comments(text)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]
    with suppress(ValueError):
        # Text that is already JSON stays as it is.
        json.loads(text)
        assert plain == text


def test_what_is_wrong_in_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(HostFileError, match="line 2, column 8"):
        read_host_text(put(tmp_path / "a.json", '{"a": 1, // x\n  "b": nope}'))

    with pytest.raises(HostFileError, match="expected an object"):
        read_host_text(put(tmp_path / "b.json", "[1]"))

    with pytest.raises(HostFileError, match="NaN"):
        read_host_text(put(tmp_path / "c.json", '{"a": NaN}'))

    (tmp_path / "d.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(HostFileError, match="UTF-8"):
        read_host_text(tmp_path / "d.json")


# -- translating -----------------------------------------------------------------------------------


def test_variables_of_editors() -> None:
    places = HostEnvironment(Path("/p/app"), Path("/h"), {}, "linux")
    found = translate_server(
        {
            "type": "stdio",
            "command": "${userHome}/bin/x",
            "args": [
                "${workspaceFolder}/a",
                "${workspaceFolderBasename}",
                "${env:A_B}",
                "${input:api-key}",
                "${PLAIN}",
            ],
            "env": {"K": "${input:api-key}", "GONE": None, "N": 5},
            "cwd": "sub",
        },
        find_host("vscode"),
        places,
        {"api-key": Input("Your key")},
    )
    assert found.entry == {
        "command": "${HOME}/bin/x",
        "args": ["/p/app/a", "app", "${A_B}", "${API_KEY}", "$${PLAIN}"],
        "env": {"K": "${API_KEY}", "N": "5"},
        "cwd": "/p/app/sub",
    }
    assert found.problem is None
    assert found.notes == [
        "VS Code asks for 'api-key' (Your key): set the variable API_KEY instead",
    ]


@pytest.mark.parametrize(
    ("command", "arguments", "ours"),
    [
        ("/opt/bin/ideabridge", ["serve"], True),
        ("C:\\tools\\ideabridge.exe", ["--project", "x", "serve"], True),
        ("uvx", ["ideabridge@1.2", "serve"], True),
        ("uvx", ["--from", "ideabridge[demo]==1", "ideabridge", "serve"], True),
        ("python", ["-m", "ideabridge.server", "serve"], True),
        ("mcp-server-git", ["--repository", "/home/me/ideabridge"], False),
        ("node", ["/src/ideabridge/other.js"], False),
    ],
)
def test_ourselves(command: str, arguments: list[Any], ours: bool) -> None:
    assert is_ourselves({"command": command, "args": arguments}) is ours


# -- import ----------------------------------------------------------------------------------------


def claude(home: Path, project: Path) -> None:
    put(
        home / ".claude.json",
        {
            "numStartups": 3,
            "mcpServers": {
                "git": {"command": "user-git"},
                "me": {"command": "ideabridge", "args": ["serve"]},
            },
            "projects": {
                str(project): {
                    "mcpServers": {
                        "git": {"type": "stdio", "command": "local-git", "args": [], "env": {}}
                    }
                },
                "/elsewhere": {"mcpServers": {"other": {"command": "x"}}},
            },
        },
    )
    put(
        project / ".mcp.json",
        {
            "mcpServers": {
                "web": {
                    "type": "http",
                    "url": "https://example.org/mcp",
                    "headers": {"X": "${TOKEN:-}"},
                }
            }
        },
    )


def test_import_shows_and_writes_nothing(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claude(home, project)
    assert main(["servers", "import", "claude-code", "--json"]) == 0
    answer = told(capsys)
    assert [(one["name"], one["verdict"], one["scope"]) for one in answer["servers"]] == [
        ("git", "new", "local"),
        ("web", "new", "project"),
        ("git", "shadowed", "user"),
        ("me", "ourselves", "user"),
    ]
    assert answer["written"] is False
    assert not (project / "ideabridge.json").exists()


def test_import_writes_once_and_keeps_the_rest(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claude(home, project)
    ours = put(
        project / "ideabridge.json",
        {"order": "all", "mcpServers": {"web": {"command": "mine"}}, "expose": []},
    )
    theirs = put(own_file(home), {"order": "none", "mcpServers": {"old": {"command": "old"}}})
    assert main(["servers", "import", "claude-code", "--write", "--json"]) == 0
    answer = told(capsys)
    assert verdicts(answer)["web"] == "taken"
    assert [one["file"] for one in answer["configurations"]] == [str(theirs)]
    written = json.loads(theirs.read_text(encoding="utf-8"))
    assert list(written) == ["order", "mcpServers"]
    # The host starts the server in this project.
    git: Answer = {"command": "local-git", "cwd": str(project)}
    assert written["mcpServers"] == {"old": {"command": "old"}, "git": git}
    backup = Path(answer["configurations"][0]["backup"])
    assert json.loads(backup.read_text(encoding="utf-8"))["mcpServers"] == {
        "old": {"command": "old"}
    }
    assert {stat.S_IMODE(file.stat().st_mode) for file in (theirs, backup)} == {0o600}
    before = ours.read_bytes()
    assert main(["servers", "import", "claude-code", "--write", "--json"]) == 1
    again = told(capsys)
    assert again["written"] is False
    assert {one["verdict"] for one in again["servers"]} == {
        "same",
        "taken",
        "shadowed",
        "ourselves",
    }
    assert ours.read_bytes() == before
    assert main(["servers", "import", "claude-code", "web", "--replace", "--write", "--json"]) == 0
    assert verdicts(told(capsys)) == {"web": "replaced"}
    replaced = json.loads(ours.read_text(encoding="utf-8"))
    assert list(replaced) == ["order", "mcpServers", "expose"]
    assert replaced["mcpServers"]["web"]["url"] == "https://example.org/mcp"


def test_what_was_imported_can_be_read(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ideabridge.bridge.configuration import load_configuration

    put(
        project / ".vscode" / "mcp.json",
        """{
          // what the team uses
          "inputs": [{"type": "promptString", "id": "gh", "description": "GitHub token", "password": true}],
          "servers": {
            "github": {
              "type": "http", "url": "https://example.org/mcp/", "headers": {"Authorization": "Bearer ${input:gh}"}
            },
            "files": {
              "type": "stdio", "command": "npx", "args": ["-y", "fs", "${workspaceFolder}"], "dev": {"watch": "*"}
            },
            "dotenv": {"command": "x", "envFile": "${workspaceFolder}/.env"},
            "broken": {"args": ["no command"]},
          }
        }""",
    )
    assert main(["servers", "import", "vscode", "--write"]) == 0
    told_to_people = capsys.readouterr()
    assert "GH" in told_to_people.err
    assert "envFile" in told_to_people.err or ".env" in told_to_people.err
    trust_file(project / "ideabridge.json")
    loaded = load_configuration(project=project)
    assert sorted(loaded.modules) == ["files", "github"]
    assert loaded.modules["files"].args == ("-y", "fs", str(project))
    assert loaded.modules["github"].headers == {"Authorization": "Bearer ${GH}"}


def test_import_of_cursor_prefers_the_project(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        home / ".cursor" / "mcp.json",
        {"mcpServers": {"a": {"command": "user"}, "b": {"command": "user"}}},
    )
    put(project / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "project"}}})
    assert main(["servers", "import", "cursor", "--write", "--json"]) == 0
    capsys.readouterr()
    assert servers_in(project / "ideabridge.json") == {"a": {"command": "project"}}
    assert servers_in(own_file(home)) == {"b": {"command": "user"}}


def test_secrets_never_reach_the_terminal(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        home / ".cursor" / "mcp.json",
        {
            "mcpServers": {
                "a": {
                    "command": "x",
                    "args": ["--token", "s3cret-value"],
                    "env": {"KEY": "s3cret-value"},
                }
            }
        },
    )
    main(["servers", "import", "cursor"])
    main(["servers", "import", "cursor", "--json"])
    both = capsys.readouterr()
    assert "s3cret-value" not in both.out + both.err


def test_nothing_to_import(home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "import", "cursor"]) == 0
    assert str(project / ".cursor" / "mcp.json") in capsys.readouterr().err.replace("\n", "")
    put(project / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert main(["servers", "import", "cursor", "b"]) == 2
    assert capsys.readouterr().err == "ideabridge: Cursor has no server 'b'; it has a\n"


# -- moving ----------------------------------------------------------------------------------------


def test_move_takes_the_servers_out_of_the_host(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claude(home, project)
    own = home / ".claude.json"
    shared = project / ".mcp.json"
    before = own.read_bytes(), shared.read_bytes()
    # There is nobody here who could be asked.
    assert main(["servers", "import", "claude-code", "--move"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert (own.read_bytes(), shared.read_bytes()) == before
    assert not (project / "ideabridge.json").exists()
    # A server that was copied earlier is moved, too.
    assert main(["servers", "import", "claude-code", "web", "--write", "--json"]) == 0
    told(capsys)
    assert main(["servers", "import", "claude-code", "--move", "--yes", "--json"]) == 0
    answer = told(capsys)
    assert [(one["name"], one["scope"]) for one in answer["moved"]] == [
        ("git", "local"),
        ("web", "project"),
    ]
    assert list(servers_in(project / "ideabridge.json")) == ["web"]
    assert list(servers_in(own_file(home))) == ["git"]
    after = json.loads(own.read_text(encoding="utf-8"))
    assert after["projects"] == {
        str(project): {"mcpServers": {}},
        "/elsewhere": {"mcpServers": {"other": {"command": "x"}}},
    }
    assert after["numStartups"] == 3
    assert list(after["mcpServers"]) == ["git", "me"]
    assert json.loads(shared.read_text(encoding="utf-8")) == {"mcpServers": {}}
    assert (
        f"git: stays in {own} (user): an earlier file of the host already has this name"
        in answer["stays"]
    )
    assert f"git: from now on, the host starts the one in {own} (user)" in answer["stays"]
    # Installing makes a backup of its own, but the backup from moving can still be restored.
    assert main(["install", "claude-code", "--write"]) == 0
    for one in answer["moved_backups"]:
        Path(one["file"]).write_bytes(Path(one["backup"]).read_bytes())

    assert (own.read_bytes(), shared.read_bytes()) == before


def test_what_every_project_has_is_moved_into_one_project_only_by_name(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(
        home / ".cursor" / "mcp.json",
        {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}},
    )
    words = [
        "modules",
        "import",
        "cursor",
        "--move",
        "--yes",
        "--config",
        str(project / "ideabridge.json"),
    ]
    assert main(words) == 0
    assert f"a: stays in {path} (user), which applies to every project" in capsys.readouterr().err
    assert list(servers_in(path)) == ["a", "b"]
    assert main([*words, "b"]) == 0
    assert list(servers_in(path)) == ["a"]
    assert list(servers_in(project / "ideabridge.json")) == ["a", "b"]


SIX: dict[str, Any] = {
    "user": {
        "token": {
            "type": "http",
            "url": "https://e.org/mcp",
            "headers": {"Authorization": "Bearer s3cret-value"},
        },
        "plain": {"command": "user-plain"},
    },
    "local": {"local": {"command": "local-server", "env": {"API_KEY": "s3cret-value"}}},
    "project": {
        "shared": {"command": "shared-server", "env": {"API_KEY": "${API_KEY}"}},
        # The value may be a command, so it is not moved out of the entry.
        "leaky": {"command": "leaky-server", "args": ["--token", "s3cret-value; more"]},
        "broken": {"args": ["no command"]},
    },
}


def six_servers(home: Path, project: Path) -> tuple[Path, Path]:
    own = put(
        home / ".claude.json",
        {"mcpServers": SIX["user"], "projects": {str(project): {"mcpServers": SIX["local"]}}},
    )
    return own, put(project / ".mcp.json", {"mcpServers": SIX["project"]})


def files_with(text: str, folder: Path) -> list[str]:
    """The files of a folder that contain a text."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [
        str(file.relative_to(folder))
        for file in files
        if text in file.read_text(encoding="utf-8", errors="ignore")
    ]


def test_move_takes_every_server_to_the_file_of_its_owner(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, shared = six_servers(home, project)
    (project / "ideabridge.json").write_text("{}", encoding="utf-8")
    before = files_with("s3cret-value", project)
    assert main(["servers", "import", "claude-code", "--move", "--yes", "--json"]) == 0
    answer = told(capsys)
    mine = own_file(home)
    theirs = project / "ideabridge.json"
    assert {(one["name"], one["from"], one["to"]) for one in answer["moved"]} == {
        ("token", str(own), str(mine)),
        ("plain", str(own), str(mine)),
        ("local", str(own), str(mine)),
        ("shared", str(shared), str(theirs)),
    }
    assert servers_in(mine)["token"] == {
        **SIX["user"]["token"],
        "headers": {"Authorization": "Bearer ${secret:token-authorization}"},
    }
    assert reads("token-authorization") == reads("local-api-key") == "s3cret-value"
    assert files_with("s3cret-value", mine.parent) == []
    assert set(servers_in(mine)) == {"token", "plain", "local"}
    assert servers_in(theirs) == {"shared": SIX["project"]["shared"]}
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    # What was moved has gone from each file of the host, and everything else is still there.
    after = json.loads(own.read_text(encoding="utf-8"))
    assert after == {"mcpServers": {}, "projects": {str(project): {"mcpServers": {}}}}
    assert set(servers_in(shared)) == {"leaky", "broken"}
    # No secret has got into any other file of the project.
    assert files_with("s3cret-value", project) == before == [".mcp.json"]
    assert len(answer["stays"]) == 2
    stays = next(line for line in answer["stays"] if line.startswith("leaky"))
    assert f"leaky: stays in {shared} (project): args.1 contains what looks like a secret" in stays
    assert "Write ${VAR} in its place" in stays


def reads(name: str) -> str:
    """The value of a secret of the user's own servers."""
    return secret_value(SecretOwner(), name, "", "")


def test_secrets_of_a_server_stay_out_of_a_project_and_what_may_be_a_command_too(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    six_servers(home, project)
    target = project / "ideabridge.json"
    assert (
        main(["servers", "import", "claude-code", "--write", "--json", "--config", str(target)])
        == 0
    )
    answer = told(capsys)
    imported = {"plain", "shared", "token", "local"}
    assert {name for name, verdict in verdicts(answer).items() if verdict == "new"} == imported
    assert set(servers_in(target)) == imported
    whys = {one["name"]: one["why"] for one in answer["servers"] if "why" in one}
    assert whys["leaky"].startswith(
        f"args.1 contains what looks like a secret, and {target} may be in a repository"
    )
    assert "s3cret-value" not in target.read_text(encoding="utf-8")
    # They are secrets of this file, for exactly these servers.
    configuration = load_configuration(target)
    owner = secret_owner(target)
    for server, name in (("token", "token-authorization"), ("local", "local-api-key")):
        digest = entry_digest(configuration.modules[server])
        assert secret_value(owner, name, server, digest) == "s3cret-value"
        assert find_secret(SecretOwner(), name) is None


def test_an_import_again_changes_nothing_and_takes_no_name_of_another_secret(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry: dict[str, Any] = {"command": "x", "env": {"API_KEY": "s3cret-value"}}
    host = put(home / ".cursor" / "mcp.json", {"mcpServers": {"shop": entry}})
    set_secret(SecretOwner(), "shop-api-key", "another", {})
    assert main(["servers", "import", "cursor", "--json"]) == 0
    planned = told(capsys)
    assert [one["secrets"] for one in planned["servers"]] == [
        [{"place": "env.API_KEY", "name": "shop-api-key-2", "why": "its name"}]
    ]
    assert find_secret(SecretOwner(), "shop-api-key-2") is None
    assert main(["servers", "import", "cursor", "--write", "--json"]) == 0
    assert str(secrets_path()) in told(capsys)["secrets_stored_in"][0]
    assert (reads("shop-api-key"), reads("shop-api-key-2")) == ("another", "s3cret-value")
    assert main(["servers", "import", "cursor", "--json"]) == 0
    assert verdicts(told(capsys)) == {"shop": "same"}
    # A new value from the host replaces the old one under the same name.
    put(
        host,
        {"mcpServers": {"shop": {**entry, "args": ["--new"], "env": {"API_KEY": "n3w-value"}}}},
    )
    assert main(["servers", "import", "cursor", "--write", "--replace", "--json"]) == 0
    assert servers_in(own_file(home))["shop"]["env"] == {"API_KEY": "${secret:shop-api-key-2}"}
    assert (reads("shop-api-key"), reads("shop-api-key-2")) == ("another", "n3w-value")


def test_a_hosts_file_cannot_name_a_stored_secret(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_secret(SecretOwner(), "github", "s3cret-value", {})
    stealing = {"url": "https://e.example/mcp", "headers": {"X": "${secret:github}"}}
    put(project / ".mcp.json", {"mcpServers": {"a": stealing}})
    assert main(["servers", "import", "claude-code", "a", "--write", "--json"]) == 1
    answer = told(capsys)
    assert verdicts(answer) == {"a": "unusable"}
    assert "secret" in answer["servers"][0]["why"]
    assert not own_file(home).exists()


def test_a_file_of_secrets_that_cannot_be_used_stops_only_servers_with_secrets(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        home / ".cursor" / "mcp.json",
        {
            "mcpServers": {
                "a": {"command": "x", "env": {"API_KEY": "s3cret"}},
                "b": {"command": "y"},
            }
        },
    )
    set_secret(SecretOwner(), "other", "value", {})
    secrets_path().chmod(0o644)
    assert main(["servers", "import", "cursor", "--write", "--json"]) == 0
    assert verdicts(told(capsys)) == {"a": "unusable", "b": "new"}
    assert set(servers_in(own_file(home))) == {"b"}


def test_the_users_file_in_a_repository_gets_no_secret(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    six_servers(home, project)
    dotfiles = home / "dotfiles"
    (dotfiles / ".git").mkdir(parents=True)
    real = put(dotfiles / "ideabridge.json", {})
    own_file(home).parent.mkdir(parents=True)
    own_file(home).symlink_to(real)
    assert main(["servers", "import", "claude-code", "--write"]) == 0
    assert set(servers_in(real)) == {"plain", "token", "local"}
    assert files_with("s3cret-value", dotfiles) == []


def test_comments_of_both_files_stay(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"servers": {"a": {"type": "stdio", "command": "x"}, /* b */ "b": 1.50}} // ours'
    path = put(project / ".vscode" / "mcp.json", text)
    put(project / "ideabridge.json", '{\n  "mcpServers": {}, // all of them\n}')
    assert main(["servers", "import", "vscode", "--move", "--yes"]) == 0
    assert path.read_text(encoding="utf-8") == '{"servers": { /* b */ "b": 1.50}} // ours'
    written = (project / "ideabridge.json").read_text(encoding="utf-8")
    assert json.loads(blank_comments(written))["mcpServers"] == {"a": {"command": "x"}}
    assert written.endswith("}, // all of them\n}")


@pytest.mark.parametrize("trusts", [True, False])
@pytest.mark.parametrize("meanwhile", [True, False])
def test_a_move_is_undone(
    meanwhile: bool,
    trusts: bool,
    home: Path,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, shared = six_servers(home, project)
    ours = put(project / "ideabridge.json", '{"mcpServers":{ "mine" : {"command":"m"}} }')
    if trusts:
        trust_file(ours)

    files = (own, shared, ours)
    before = [file.read_bytes() for file in files]
    assert main(["servers", "import", "claude-code", "--move", "--yes"]) == 0
    assert all(file.read_bytes() != data for file, data in zip(files, before, strict=True))
    if meanwhile:
        state = own.read_text(encoding="utf-8")
        own.write_text(state.replace("{", '{\n  "startups": 5,', 1), encoding="utf-8")

    capsys.readouterr()
    assert main(["servers", "import", "claude-code", "--undo", "--json"]) == 0
    undone = {file["file"]: file["undone"] for file in told(capsys)["undone"]}
    assert undone == {
        str(own): "entries" if meanwhile else "restored",
        str(shared): "restored",
        str(ours): "restored",
        str(own_file(home)): "deleted",
    }
    assert [shared.read_bytes(), ours.read_bytes()] == before[1:]
    assert is_trusted(ours) is trusts
    if meanwhile:
        after = json.loads(own.read_bytes())
        assert after.pop("startups") == 5
        assert after == json.loads(before[0])
    else:
        assert own.read_bytes() == before[0]

    assert main(["servers", "import", "claude-code", "--undo"]) == 2
    command = "`ideabridge servers import claude-code`"
    assert f"there is no {command} in {project} to undo" in capsys.readouterr().err


def test_a_file_that_cannot_be_edited_keeps_its_servers_and_no_other_does(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Changing the entry would change the alias, too.
    text = "mcpServers: &all\n  - name: a\n    command: x\nmore: *all\n"
    user = put(home / ".continue" / "config.yaml", text)
    put(project / ".continue" / "mcpServers" / "b.json", {"mcpServers": {"b": {"command": "y"}}})
    assert main(["servers", "import", "continue", "--move", "--yes", "--json"]) == 0
    answer = told(capsys)
    assert [moved["name"] for moved in answer["moved"]] == ["b"]
    assert any("a: stays: " in line for line in answer["stays"])
    assert user.read_text(encoding="utf-8") == text


def test_servers_of_a_project_enter_the_users_file_only_by_name(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project / ".cursor" / "mcp.json", {"mcpServers": {"theirs": {"command": "x"}}})
    own = put(own_file(home), {"mcpServers": {}})
    words = ["servers", "import", "cursor", "--write", "--config", str(own)]
    assert main(words) == 1
    assert "name it to import it into your own configuration" in capsys.readouterr().err
    assert servers_in(own) == {}
    assert main([*words, "theirs"]) == 0
    assert list(servers_in(own)) == ["theirs"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
@pytest.mark.parametrize(("typed", "moved"), [("y", True), ("n", False)])
def test_move_asks_at_a_terminal(typed: str, moved: bool, home: Path, project: Path) -> None:
    path = put(project / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    terminal = Terminal(project, ["servers", "import", "cursor", "--move"])
    terminal.read_until("? [y/N]:")
    shown = " ".join(terminal.seen.split())
    assert f"a: from {path} (project) to {project / 'ideabridge.json'}" in shown
    terminal.type(typed)
    code, _ = terminal.end()
    assert code == (0 if moved else 1)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "mcpServers": {} if moved else {"a": {"command": "x"}}
    }
    assert (project / "ideabridge.json").exists() is moved
    if moved:
        assert "servers import cursor --undo" in " ".join(terminal.seen.split())


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
@pytest.mark.parametrize("columns", [80, 120])
def test_the_question_names_every_server_with_both_places(
    columns: int, home: Path, project: Path
) -> None:
    own, shared = six_servers(home, project)
    terminal = Terminal(project, ["servers", "import", "claude-code", "--move"], columns=columns)
    terminal.read_until("? [y/N]:")
    shown = "".join(terminal.seen.split())
    for name, scope in (("token", "user"), ("plain", "user"), ("local", "local")):
        assert f"{name}:from{own}({scope})to{own_file(home)}" in shown

    assert f"shared:from{shared}(project)to{project / 'ideabridge.json'}" in shown
    assert f"leaky:staysin{shared}(project):args.1containswhatlookslikeasecret" in shown
    assert f"broken:staysin{shared}(project):" in shown
    assert "Movethese4?" in shown
    assert "s3cret-value" not in terminal.seen
    terminal.type("n")
    assert terminal.end()[0] == 1
    assert not own_file(home).exists()


@pytest.mark.parametrize("command", ["./bin/srv", "bin/srv"])
def test_a_program_of_each_project_is_moved_only_by_name(
    home: Path, project: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"command": command}
    servers = {
        "here": entry,
        "plain": {"command": "npx", "args": ["-y", "@x/docs", "--stage", "https://e.org/a.json"]},
    }
    own = put(home / ".claude.json", {"mcpServers": servers})
    words = ["servers", "import", "claude-code", "--move", "--yes"]
    assert main(words) == 0
    why = (
        f"here: stays in {own} (user): command has a relative path: the host starts it in each "
        f"project's folder, but ideabridge starts it in {own_file(home).parent}. Write absolute paths or a "
        "'cwd' there, or name it to import it"
    )
    assert why in " ".join(capsys.readouterr().err.split())
    assert list(servers_in(own)) == ["here"]
    assert list(servers_in(own_file(home))) == ["plain"]
    assert main([*words, "here"]) == 0
    assert "here: command has a relative path" in capsys.readouterr().err
    assert servers_in(own_file(home))["here"] == entry


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"command": "npx", "args": ["-y", "server-filesystem", "."]}, "args.2"),
        ({"command": "npx", "args": ["-y", "server-filesystem", "docs"]}, "args.2"),
        ({"command": "x", "args": ["--root=../other"]}, "args.0"),
        ({"command": "python", "args": ["server.py"]}, "args.0"),
        ({"command": "uv", "args": ["--directory", "./tools", "run", "x"]}, "args.1"),
        ({"command": "x", "env": {"DB": "data.db"}}, "env.DB"),
        ({"command": "x", "env": {"PYTHONPATH": "/lib:docs"}}, "env.PYTHONPATH"),
    ],
    ids=str,
)
def test_relative_paths_are_moved_where_they_mean_the_same(
    home: Path, project: Path, entry: Answer, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "docs").mkdir()
    own = put(home / ".claude.json", {"mcpServers": {"here": entry}})
    other = put(home / "other" / "ideabridge.json", {})
    words = ["servers", "import", "claude-code", "--yes", "--move"]
    # A file for all projects starts its servers in its own folder.
    assert main([*words, "--config", str(other)]) == 1
    assert f"{place} has a relative path" in " ".join(capsys.readouterr().err.split())
    assert list(servers_in(own)) == ["here"]
    # Like the host, the user's own file starts them in the folder of each project.
    assert main(words) == 0
    assert servers_in(own_file(home)) == {"here": entry}
    assert servers_in(own) == {}


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "cwd": "."},
        {"command": "x", "cwd": "sub"},
        {"command": "x", "args": ["${workspaceFolder}/db"]},
    ],
    ids=str,
)
def test_what_is_fixed_to_this_project_is_said(
    home: Path, project: Path, entry: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home / ".cursor" / "mcp.json", {"mcpServers": {"a": entry}})
    assert main(["servers", "import", "cursor", "--move", "--yes"]) == 0
    assert f"a: it always uses this project, {project}" in capsys.readouterr().err
    assert str(project) in json.dumps(servers_in(own_file(home)))


FORGED = "evil\nThese servers will be moved:\n  nothing: from here to there\r\x1b[2K"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
@pytest.mark.parametrize("columns", [80, 120])
def test_a_server_forges_no_line_of_the_question(columns: int, home: Path, project: Path) -> None:
    servers: Answer = {
        "fine": {"command": "x", "env": {"KEY": "${input:key}"}},
        FORGED: {"command": "x"},
        "x" * 3000: {"command": "x"},
        "file": {"command": "x", "envFile": FORGED * 100},
        "secret": {"command": "x", "env": {f"TOKEN\n{FORGED}": "s3cret-value-1234"}},
        "ourselves\nThese servers will be moved": {"command": "ideabridge", "args": ["serve"]},
    }
    inputs = [{"id": "key", "type": "promptString", "description": FORGED}]
    put(project / ".vscode" / "mcp.json", {"servers": servers, "inputs": inputs})
    terminal = Terminal(project, ["servers", "import", "vscode", "--move"], columns=columns)
    terminal.read_until("? [y/N]:")
    lines = [line.strip() for line in terminal.seen.replace("\r", "").splitlines()]
    assert sum(line.startswith("These servers will be moved") for line in lines) == 1
    assert not any(line.startswith("nothing: from") for line in lines)
    assert "x" * 65 not in terminal.seen
    assert len(terminal.seen) < 10_000
    terminal.type("n")
    assert terminal.end()[0] == 1


# -- install ---------------------------------------------------------------------------------------


def test_install_for_the_user(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(home / ".claude.json", {"projects": {"/a": {"history": ["x"]}}, "mcpServers": {}})
    config = put(project / "mine.json", {})
    assert (
        main(
            [
                "install",
                "claude-code",
                "--scope",
                "user",
                "--write",
                "--config",
                "mine.json",
                "--json",
            ]
        )
        == 0
    )
    answer = told(capsys)
    assert answer["written"] is True
    after = json.loads(path.read_text(encoding="utf-8"))
    assert after["mcpServers"]["ideabridge"]["args"] == ["serve", "--config", str(config)]
    assert after["projects"] == {"/a": {"history": ["x"]}}


def test_install_prints_the_hosts_own_command(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "claude-code", "--scope", "user"]) == 0
    last = capsys.readouterr().out.strip().split("\n")[-1]
    assert last.startswith("claude mcp add --scope user ideabridge -- /")
    assert last.endswith("/ideabridge serve")


def test_unknown_hosts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["install", "cursr"], ["servers", "import", "cursr"]):
        assert main(words) == 2
        assert (
            capsys.readouterr().err
            == "ideabridge: unknown client 'cursr'. Did you mean 'cursor' or 'crush'?\n"
        )


def test_a_client_that_is_not_known_is_told_what_to_paste(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "somebody-elses"]) == 2
    printed = capsys.readouterr().err
    assert "the known ones are claude-code, " in printed
    block = json.loads(printed[printed.index("{") :])
    assert block["mcpServers"]["ideabridge"]["args"] == ["serve", "--project", str(project)]
    assert main(["servers", "import", "somebody-elses"]) == 2
    assert f"into 'mcpServers' of {own_file(home)}" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such devices and pipes")
@pytest.mark.parametrize("kind", ["device", "pipe"])
@pytest.mark.parametrize(
    ("host", "name"),
    [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json"), ("vscode", ".vscode/mcp.json")],
)
def test_what_is_no_regular_file_is_not_read(
    host: str, name: str, kind: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    # Each of these used to read /dev/zero until memory was full, and to wait for a writer of the
    # pipe.
    for words in (
        ["servers", "import", host],
        ["install", host, "--scope", "project", "--write"],
        ["doctor"],
    ):
        assert main(words) != 0
        printed = capsys.readouterr()
        assert "isnotaregularfile" in "".join((printed.out + printed.err).split()), words


def test_a_host_file_that_is_a_link_to_a_regular_one_is_read(home: Path, project: Path) -> None:
    real = home / "dotfiles.json"
    real.write_bytes(b'\xef\xbb\xbf{\r\n  "mcpServers": {}\r\n}\r\n')
    (project / ".mcp.json").symlink_to(real)
    document = read_tolerantly(project / ".mcp.json")
    assert document.content == {"mcpServers": {}}
    assert document.text == '{\n  "mcpServers": {}\n}\n'


# -- links out of a clone --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "name"), [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json")]
)
def test_install_writes_through_no_link_out_of_a_clone(
    host: str, name: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = put(home / "elsewhere" / Path(name).name, {"precious": 1})
    before = victim.read_bytes()
    link = project / Path(name).parts[0]
    link.symlink_to(victim if link == project / name else victim.parent)
    assert main(["install", host, "--scope", "project", "--write"]) != 0
    said = "".join(capsys.readouterr().err.split())
    assert "leadsoutoftheproject" in said
    assert str(victim) in said
    assert victim.read_bytes() == before
    assert [file.name for file in victim.parent.iterdir()] == [victim.name]


def test_a_link_within_a_project_is_followed(project: Path) -> None:
    real = put(project / "hosts" / "mcp.json", {"kept": 1})
    (project / ".mcp.json").symlink_to(real)
    assert main(["install", "claude-code", "--scope", "project", "--write"]) == 0
    assert set(json.loads(real.read_text(encoding="utf-8"))) == {"kept", "mcpServers"}


@pytest.mark.parametrize("name", ["ideabridge.json", ".mcp.json"])
def test_servers_are_imported_and_moved_through_no_link_out_of_a_clone(
    name: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"mcpServers": {"one": {"command": "one"}}}
    put(project / ".mcp.json", server)
    victim = put(
        home / "elsewhere" / "victim.json", server if name == ".mcp.json" else {"precious": 1}
    )
    before = victim.read_bytes()
    (project / name).unlink(missing_ok=True)
    (project / name).symlink_to(victim)
    assert main(["servers", "import", "claude-code", "--move", "--yes", "one"]) != 0
    assert "leadsoutoftheproject" in "".join(capsys.readouterr().err.split())
    assert victim.read_bytes() == before
    assert (project / "ideabridge.json").exists() == (name == "ideabridge.json")
