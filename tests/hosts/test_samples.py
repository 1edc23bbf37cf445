"""Files of hosts, as their documentation and public repositories show them, are read as somebody
expects who has read that documentation (`samples/README.md`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.hosts.adopt import Adoption, meaning_of

from .reading import SAMPLES, Machine, host_of, machine, platform_of, sample_of

Expected = dict[str, Any]

FILES = sorted(SAMPLES.glob("*/*.expected.json"))

NOT_READ: Expected = {"missing": True}

CHOSEN: dict[str, Expected] = {
    # A variable stands for what the host reads from elsewhere. If the variable is not set, only
    # this server fails, and says which variable it needs.
    "amazon-q/02 from-file": {
        "entry": {"command": "pages-mcp", "env": {"PAGES_TOKEN": "${TOKEN}"}},
        "variables": ["TOKEN"],
    },
    "opencode/05 from-file": {
        "entry": {
            "url": "https://file.example/mcp",
            "headers": {"Authorization": "Bearer ${TIDE_KEY}"},
        },
        "variables": ["TIDE_KEY"],
    },
    "windsurf/03 key-in-a-file": {
        "entry": {
            "url": "https://file.example/mcp",
            "headers": {"Authorization": "Bearer ${TIDE}"},
        },
        "variables": ["TIDE"],
    },
    "vscode/05 byCommand": {
        "entry": {"command": "tide-mcp", "args": ["${PICKED}"]},
        "variables": ["PICKED"],
    },
    "vscode/06 fromSettings": {
        "entry": {"command": "tide-mcp", "args": ["--size", "${CONFIG_EDITOR_FONT_SIZE}"]},
        "variables": ["CONFIG_EDITOR_FONT_SIZE"],
    },
    "vscode/06 fromCommand": {
        "entry": {"command": "tide-mcp", "args": ["${COMMAND_TIDE_CURRENT_PORT}"]},
        "variables": ["COMMAND_TIDE_CURRENT_PORT"],
    },
    "vscode/06 otherRoot": {
        "entry": {"command": "node", "args": ["${WORKSPACE_FOLDER_WEB}/server.js"]},
        "variables": ["WORKSPACE_FOLDER_WEB"],
    },
    # The values in a project's file of variables stay there, because the configuration that
    # receives the server may be in a repository.
    "cursor/04 with-file": {
        "entry": {
            "command": "npx",
            "args": ["-y", "tide-mcp"],
            "env": {"REGION": "${REGION}", "QUOTED": "${QUOTED}", "LEVEL": "3"},
        },
        "variables": ["REGION", "QUOTED"],
    },
    "cursor/04 relative-file": {
        "entry": {
            "command": "npx",
            "args": ["-y", "other-mcp"],
            "env": {"REGION": "${REGION}", "QUOTED": "${QUOTED}", "LEVEL": "${LEVEL}"},
        },
        "variables": ["REGION", "QUOTED", "LEVEL"],
    },
    "vscode/04 watched": {
        "entry": {
            "command": "node",
            "args": ["--watch", "{PROJECT}/dist/index.js"],
            "env": {"TIDE_URL": "${TIDE_URL}", "TIDE_TOKEN": "${TIDE_TOKEN}"},
        },
        "variables": ["TIDE_URL", "TIDE_TOKEN"],
    },
    "vscode/04 missing": {"unusable": "envFile"},
    # The servers of a plugin come and go with it.
    "claude-code/07 database-tools": NOT_READ,
    "claude-code/08 plugin-api": NOT_READ,
    # Only in servers of Claude Code does the variable have this value.
    "claude-code/12 plugin-forge": {
        "entry": {
            "command": "uv",
            "args": ["run", "--project", "{PROJECT}", "python", "-m", "forge.server"],
            "cwd": "{PROJECT}/tools",
        }
    },
    "claude-code/16 scratch": {
        "entry": {
            "command": "{PROJECT}/scratch-mcp",
            "args": ["--here", "."],
            "cwd": "{PROJECT}",
            "disabled": True,
        },
        "off": True,
    },
    # A command line without a shell's special characters has only one meaning.
    "cline/07 file-server": {
        "entry": {
            "command": "node",
            "args": ["mcp-server/index.js"],
            "cwd": "{PROJECT}/mcp-server",
        },
        "notes_about": ["command", "tools"],
    },
    "opencode/09 line": {
        "entry": {"command": "npx", "args": ["-y", "line-mcp"]},
        "notes_about": ["command"],
    },
    "gemini/07 one-line": {
        "entry": {"command": "npm", "args": ["start", "--prefix", "tools/my-tool"]},
        "notes_about": ["command"],
    },
    "codex/11 wrong-types": {"entry": {"command": "npx", "args": ["-y", "wrong-mcp"]}},
    "goose/09 wrapped": {
        "entry": {"command": "npx", "args": ["-y", "@tools/wrapped"], "timeout": 120}
    },
    # A command in a value is never run, not even `echo`.
    "crush/01 githost": {"unusable": "$("},
    "crush/01 streaming-service": {"unusable": "$("},
    "gemini/03 several": {"unusable": "url"},
    # The server itself answers that it needs a sign-in.
    "gemini/05 cloud": {
        "entry": {
            "type": "http",
            "url": "https://my-service.cloud.example/mcp",
            "auth": {"scope": "https://auth.example/userinfo.email"},
        },
        "notes_about": ["authProviderType"],
    },
    "gemini/05 impersonated": {
        "entry": {"type": "sse", "url": "https://my-iap-service.cloud.example/sse"},
        "notes_about": ["authProviderType"],
    },
    "qwen-code/05 googleCloudServer": {
        "entry": {
            "type": "http",
            "url": "https://my-service.run.example/mcp",
            "auth": {"scope": "https://www.googleapis.com/auth/userinfo.email"},
        },
        "notes_about": ["authProviderType"],
    },
    "qwen-code/11 ledger": {
        "entry": {
            "type": "http",
            "url": "https://ledger-000000000000.region.example/mcp",
            "timeout": 45,
        },
        "notes_about": ["authProviderType"],
    },
    "kiro/03 http-server-with-oauth": {
        "entry": {"type": "http", "url": "https://api.orchard.example/mcp"},
        "notes_about": ["oauth.redirectUri"],
    },
    # The server is off for all but one agent, so it is off here, where there are no agents.
    "opencode/04 my-mcp-bar": {
        "entry": {"command": "bun", "args": ["x", "my-mcp-command-bar"], "disabled": True},
        "off": True,
    },
    # Only the host expands the values of `env`. Text like this in one of them is a mistake in the
    # file, and certainly means the variable.
    "opencode/05 from-environment": {
        "entry": {
            "command": "${TOOLS}/bin/tide",
            "args": ["--key", "${TIDE_KEY}"],
            "env": {"A": "x${A_PART}y", "LITERAL": "$NOT_EXPANDED", "BRACED": "${NOT_EITHER}"},
        }
    },
    # Only the entry is read, not the other settings of the editor.
    "zed/04 plain": {"entry": {"command": "plain-server"}},
    "zed/04 on-the-other-side": {
        "entry": {"command": "/opt/tools/bin/side-server", "args": ["--port", "0"]},
        "notes_about": ["remote"],
    },
}
"""What ideabridge does where an expectation is `unsure`, if that is something else: the other
expectation. The key is the folder, the number of the file, and the name of the server."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SAMPLES))[:-14])
def test_a_sample_is_read_as_its_documentation_says(file: Path, tmp_path: Path) -> None:
    computer = machine(tmp_path)
    text = file.read_text(encoding="utf-8")
    if '"projects"' in text:
        text = text.replace("/home/sam/orchard", str(computer.project))

    expected = json.loads(text)
    written = put_sample(computer, file, expected)
    found = computer.find(host_of(file.parent.name), platform_of(expected["path"]))
    for block in (expected, *expected.get("also", [])):
        adoptions = {
            adoption.name: adoption
            for adoption in found.adoptions
            if adoption.file == written and adoption.scope == block["place"]["scope"]
        }
        for name, server in block["servers"].items():
            key = f"{file.parent.name}/{file.name[:2]} {name}"
            wanted: Expected = server
            if key in CHOSEN:
                assert server.get("unsure"), f"{key}: the expectation is sure"
                wanted = CHOSEN[key]

            check(computer, adoptions.pop(name, None), wanted)

        assert not adoptions, "servers that the sample does not have"


def put_sample(computer: Machine, file: Path, expected: Expected) -> Path:
    """Put a sample and the files beside it where its host has them."""
    data = sample_of(file).read_bytes()
    if b'"projects"' in data:
        data = data.replace(b"/home/sam/orchard", str(computer.project).encode())
    for path, name in expected.get("beside", {}).items():
        computer.put(path, (file.parent / name).read_bytes())
    for path, text in expected.get("files", {}).items():
        computer.put(path, text.encode())
    return computer.put(expected["path"], data)


def check(computer: Machine, adoption: Adoption | None, expected: Expected) -> None:
    """Compare one server with its expectation."""
    if expected.get("missing"):
        assert adoption is None
        return

    assert adoption is not None, "not found"
    word = expected.get("unusable")
    if word is not None:
        assert adoption.verdict == "unusable", adoption
        assert word.lower() in adoption.why.lower()
        return

    assert adoption.verdict in ("new", "ourselves"), adoption.why
    entry = filled(computer, expected["entry"])
    assert meaning_of(absolute(computer, with_secrets(adoption))) == meaning_of(entry)
    notes = " ".join(adoption.notes)
    for key in (*expected.get("notes_about", ()), *expected.get("variables", ())):
        assert key in notes, f"no note about {key}: {notes}"


def with_secrets(adoption: Adoption) -> Expected:
    """Put the secrets of a server back into their places."""
    text = json.dumps(adoption.entry)
    for secret in adoption.secrets:
        text = text.replace(f"${{secret:{secret.name}}}", json.dumps(secret.value)[1:-1])
    return json.loads(text)


def filled(computer: Machine, entry: Expected) -> Expected:
    """Fill the folders into an expectation."""
    text = json.dumps(entry).replace("{PROJECT_NAME}", computer.project.name)
    text = text.replace("{PROJECT}", str(computer.project))
    return absolute(computer, json.loads(text))


def absolute(computer: Machine, entry: Expected) -> Expected:
    """Make `cwd` absolute: in a project's file it is relative to the project."""
    folder = entry.get("cwd")
    if folder is None or folder.startswith(("/", "~", "$")) or folder[1:2] == ":":
        return entry
    return {**entry, "cwd": str(computer.project / folder)}


def test_every_host_has_samples() -> None:
    from ideabridge.server.hosts.table import HOSTS

    folders = {host_of(folder.name).name for folder in SAMPLES.iterdir() if folder.is_dir()}
    assert folders == {host.name for host in HOSTS}


def test_what_was_chosen_is_still_in_a_sample() -> None:
    keys = set[str]()
    for file in FILES:
        expected = json.loads(file.read_text(encoding="utf-8"))
        for block in (expected, *expected.get("also", [])):
            keys |= {f"{file.parent.name}/{file.name[:2]} {name}" for name in block["servers"]}

    assert set(CHOSEN) <= keys
