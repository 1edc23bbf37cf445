"""Files of hosts in a repository whose author made them to hang a reader, or to exhaust memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ideabridge.server.hosts.adopt import Destination, Destinations, find_servers
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import MAX_PROJECT_BYTES, HostEnvironment
from ideabridge.server.hosts.salvage import plain_toml
from ideabridge.server.hosts.table import find_host

SECONDS = 20
"""How long a reader may take on a slow machine. Each text here took minutes or hours."""

GOOD = '{"mcpServers": {"good": {"command": "/bin/true"}}}'


def names(host: str, home: Path, project: Path) -> tuple[set[str], str]:
    """Return the names of a host's servers, and what is wrong with its files."""
    own = Destination(read_host_text(home / "own.json"), is_own=True, is_shared=False)
    found = find_servers(find_host(host), HostEnvironment(project, home), Destinations(own, own))
    return {adoption.name for adoption in found.adoptions}, "\n".join(found.problems)


@pytest.mark.parametrize(
    ("host", "path", "text"),
    [
        (
            "cursor",
            ".cursor/mcp.json",
            '{"mcpServers": {' + "".join(f'"k{n}": 1, ' for n in range(70_000)) + '"k1": 2}}',
        ),
        ("cursor", ".cursor/mcp.json", '{"a":' * 38 + '{"b":[' + "1," * 500_000),
        ("codex", ".codex/config.toml", "a." * 400_000 + "a = 1"),
        ("codex", ".codex/config.toml", "x = {" + '"a" . ' * 100_000 + "a = 1}"),
        (
            "continue",
            ".continue/config.yaml",
            "".join(f"a{n}:\n" + " - [\n - :\n" * 15 for n in range(1500))[: 250 * 1024],
        ),
    ],
    ids=["a name twice", "cut in the depth", "dotted keys", "dotted inline keys", "broken items"],
)
def test_no_text_takes_a_reader_more_than_seconds(
    host: str, path: str, text: str, home: Path, project: Path
) -> None:
    file = project / path
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    began = time.monotonic()
    names(host, home, project)
    assert time.monotonic() - began < SECONDS


def test_the_files_of_a_project_are_bounded_together(home: Path, project: Path) -> None:
    folder = project / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(GOOD, encoding="utf-8")
    for letter in "bcd":
        filler = " " * (MAX_PROJECT_BYTES // 2)
        (folder / f"{letter}.json").write_text(filler + GOOD.replace("good", letter), "utf-8")

    found, problems = names("continue", home, project)
    assert found == {"good", "b"}
    assert f"{folder / 'd.json'} is larger than" in problems


def test_the_users_own_files_are_larger(home: Path, project: Path) -> None:
    file = home / ".claude.json"
    file.write_text(" " * (2 * MAX_PROJECT_BYTES) + GOOD, encoding="utf-8")
    assert names("claude-code", home, project) == ({"good"}, "")


def test_ordinary_dots_are_no_key_of_too_many_parts() -> None:
    text = f'[a.b."c.d"]\nprompt = "{"one. two. " * 300}"\nversion = "{"1." * 200}"\n'
    assert plain_toml(text)["a"] == {
        "b": {"c.d": {"prompt": "one. two. " * 300, "version": "1." * 200}}
    }
