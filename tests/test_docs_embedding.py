"""The tests run the programs in the documents and compare their output with the documents.

A fenced block `python` in docs/embedding.md, docs/lifting.md, docs/minds.md or docs/programs.md is
a whole program. The block `text` after it is its output. A block `python FILE` is a file that later
programs find in the current folder.
"""

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from ideabridge.bridge.configuration import parse_configuration
from ideabridge.server.cli.app import app

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Program:
    place: str
    text: str
    printed: str | None = None
    files: dict[str, str] = field(default_factory=dict[str, str])


def programs(name: str) -> list[Program]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found: list[Program] = []
    files: dict[str, str] = {}
    for match in FENCE.finditer(text):
        kind, _, file = match.group(1).strip().partition(" ")
        if kind == "python" and file:
            files[file] = match.group(2)
        elif kind == "python":
            line = text.count("\n", 0, match.start()) + 1
            found.append(Program(f"{name}:{line}", match.group(2), files=dict(files)))
        elif kind == "text" and found and found[-1].printed is None:
            found[-1].printed = match.group(2)

    return found


EMBEDDING = [
    *programs("docs/embedding.md"),
    *programs("docs/lifting.md"),
    *programs("docs/minds.md"),
    *programs("docs/programs.md"),
]


@pytest.mark.parametrize("program", EMBEDDING, ids=[program.place for program in EMBEDDING])
def test_a_program_prints_what_the_document_says(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in program.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert program.printed is not None, f"{program.place}: no block `text` contains its output"
    exec(compile(program.text, program.place, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == program.printed


def test_there_are_programs() -> None:
    assert len(EMBEDDING) >= 5


def blocks(name: str, kind: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [match.group(2) for match in FENCE.finditer(text) if match.group(1).strip() == kind]


def test_what_the_start_page_lets_people_copy_is_right(tmp_path: Path) -> None:
    found: list[Any] = [json.loads(text) for text in blocks("docs/start.md", "json")]
    hosts = [
        value
        for value in found
        if "ideabridge" in (value.get("mcpServers") or value.get("servers") or {})
    ]
    assert len(hosts) == 5
    (codex,) = (tomllib.loads(text) for text in blocks("docs/start.md", "toml"))
    entries = [*((value.get("mcpServers") or value["servers"])["ideabridge"] for value in hosts)]
    entries.append(codex["mcp_servers"]["ideabridge"])
    for entry in entries:
        assert (entry["command"], entry["args"]) == ("ideabridge", ["serve"])

    (configuration,) = (value for value in found if value not in hosts and "mcpServers" in value)
    parsed = parse_configuration(configuration, project=tmp_path)
    assert list(parsed.modules) == list(cast("dict[str, Any]", configuration["mcpServers"]))


def test_the_readme_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (text for text in blocks("README.md", "python") if "anyio.run" in text)
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "{'n': 2}\n"


def test_the_page_of_the_command_line_lists_every_command() -> None:
    commands: dict[str, Any] = cast("Any", get_command(app)).commands
    # Old names still work, but no page lists them.
    known = {name: command for name, command in commands.items() if not command.hidden}
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## Shared options")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    told: dict[str, set[str]] = {}
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row.split("|")[1])
        name, *below = first.split()
        # `users token add` and `list` are commands of a group within a group.
        if len(below) > 1 and re.fullmatch("[a-z]+", below[1]):
            following = []
        else:
            following = [one.split()[0] for one in others]

        told.setdefault(name, set()).update(
            word for word in [*below[:1], *following] if re.fullmatch("[a-z]+", word)
        )

    assert set(told) == set(known)
    for name, below in told.items():
        assert below == set(getattr(known[name], "commands", {}))


def anchors(path: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target, anchor in re.findall(
            r"\]\(([^)#\s]*)(?:#([^)]*))?\)", FENCE.sub("", path.read_text(encoding="utf-8"))
        ):
            if "://" not in target:
                page = path.parent / target if target else path
                assert page.exists(), f"{path.name}: {target}"
                assert not anchor or anchor in anchors(page), f"{path.name}: {target}#{anchor}"
