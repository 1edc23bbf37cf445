"""`ideabridge ideas export` and `import`: files of ideas, from one store to another."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.trust import allow_variables
from ideabridge.server.main import main
from tests.trusting import write_trusted

TOOLS = '''
from ideabridge.tools import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def double(n: int) -> int:
    """Double a number."""
    return 2 * n
'''
PLAN = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.a", "_outputPath": "sum"}],
    "input": {"a": 1},
    "output": "†state.sum",
}


@pytest.fixture
def here(project: Path) -> Path:
    """A project that has published two tools."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    for number, name in enumerate(("twice", "again"), 1):
        plan = {**PLAN, "input": {"a": number}}
        (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        assert main(["run", "plan.json", "--save-as", name]) == 0

    return project


def other(project: Path, configuration: str = "{}") -> list[str]:
    """Options of a project that has neither the tools nor the ideas."""
    folder = project / "other"
    folder.mkdir(exist_ok=True)
    write_trusted(folder, configuration)
    return ["--project", str(folder), "--store", str(folder / "store.sqlite")]


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_a_folder_of_ideas_goes_from_one_store_to_another(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "export", "--published", "--folder", "shared"]) == 0
    assert sorted(file.name for file in (here / "shared").iterdir()) == ["again.json", "twice.json"]
    capsys.readouterr()
    there = other(here)
    assert main(["ideas", "import", "shared", "--publish", "--json", *there]) == 0
    answer = told(capsys)
    assert len(answer["ideas"]) == 2
    assert answer["refused"] == []
    assert answer["missing"] == ["there is no tool 'add' here (is a tool file missing? --tools)."]
    assert main(["ideas", "import", "shared", "--json", *there, "--tools", "tools.py"]) == 0
    assert told(capsys)["missing"] == []
    assert main(["ideas", "call", "twice", "--input", "a=21", *there, "--tools", "tools.py"]) == 0
    assert capsys.readouterr().out == "42\n"


def test_a_tampered_file_is_refused_and_the_others_are_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "export", "again", "twice@1", "--folder", "shared"]) == 0
    file = here / "shared" / "twice@1.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["solution"]["calls"][0]["a"] = 7
    file.write_text(json.dumps(document), encoding="utf-8")
    capsys.readouterr()
    there = other(here)
    assert main(["ideas", "import", "shared", "--json", *there]) == 1
    answer = told(capsys)
    assert [Path(one["file"]).name for one in answer["ideas"]] == ["again.json"]
    assert "it was changed after the export" in answer["refused"][0]["error"]
    assert main(["ideas", "import", str(file), *there]) == 2
    assert "it was changed after the export" in capsys.readouterr().err


def test_a_name_in_use_is_told_and_links_in_a_folder_are_not_followed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "export", "twice", "--folder", "shared"]) == 0
    (here / "shared" / "link.json").symlink_to(here / "ideabridge.json")
    there = [*other(here), "--tools", "tools.py"]
    capsys.readouterr()
    assert main(["ideas", "import", "shared", "--publish", *there]) == 0
    assert "already published here" not in capsys.readouterr().err
    assert main(["ideas", "import", "shared", "--publish", *there]) == 0
    assert "is already published as twice, version 1; nothing changed" in capsys.readouterr().err
    assert main(["ideas", "import", "shared", "--publish", "--json", *there]) == 0
    [one] = told(capsys)["ideas"]
    assert (one["name"], one["version"], one["before"]) == ("twice", 1, 1)


def test_a_configured_secret_does_not_leave(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_PASSWORD", "swordfish-and-chips")
    plan = {**PLAN, "output": {"sum": "†state.sum", "note": "opened with swordfish-and-chips"}}
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json", "--json"]) == 0
    idea = told(capsys)["idea"]
    # The secret is configured only now, and is refused from here on.
    servers = {
        "vault": {"command": "vault", "env": {"PASSWORD": "${VAULT_PASSWORD}"}, "disabled": True}
    }
    text = json.dumps({"tools": ["tools.py"], "store": "store.sqlite", "mcpServers": servers})
    allow_variables(write_trusted(here, text), frozenset({"VAULT_PASSWORD"}))
    assert main(["run", "plan.json", "--json"]) == 2
    assert "output.note contains the secret VAULT_PASSWORD" in capsys.readouterr().err
    assert main(["ideas", "export", idea, "--output", "leak.json"]) == 2
    printed = capsys.readouterr().err
    assert "solution.output.note: the secret VAULT_PASSWORD" in printed
    assert "swordfish" not in printed
    assert not (here / "leak.json").exists()
    assert main(["ideas", "export", idea, "twice", "--folder", "shared"]) == 1
    assert [file.name for file in (here / "shared").iterdir()] == ["twice.json"]


def test_the_servers_an_idea_needs_are_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "export", "twice", "--output", "idea.json"]) == 0
    assert main(["ideas", "import", "idea.json", *other(here)]) == 0
    assert "missing: there is no tool 'add' here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "expected one idea"),
        (["twice", "again"], "name a folder"),
        (["twice", "--output", "x", "--folder", "y"], "give --output or --folder, not both"),
        (["nothing", "--output", "x"], "no idea 'nothing'"),
    ],
)
def test_exports_that_cannot_be(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    capsys.readouterr()
    assert main(["ideas", "export", *words]) == 2
    assert why in capsys.readouterr().err


def test_an_empty_folder_holds_nothing_to_import(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    assert main(["ideas", "import", "empty"]) == 2
    assert "empty contains no .json files" in capsys.readouterr().err


def test_what_was_done_over_and_over_is_suggested(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "suggest", "--json"]) == 1
    assert told_last(capsys)["suggestions"] == []
    for number in (10, 20, 30):
        calls = [{"_tool": "add", "a": number, "b": 5}, {"_tool": "double", "n": number + 5}]
        (here / "plan.json").write_text(json.dumps({"calls": calls}), encoding="utf-8")
        assert main(["run", "plan.json"]) == 0

    capsys.readouterr()
    assert main(["ideas", "suggest"]) == 0
    first, second, open_, program, command = capsys.readouterr().out.splitlines()
    assert open_.startswith("  open: ")
    assert program == "  a program can settle this: add --program ask, FILE, or show"
    assert first == "done 3 times: would be add_and_double(a, n, b=5)"
    assert second.startswith("  add → double (only reads): ")
    assert command.count(" --with ") == 2
    assert main(["ideas", "suggest", "--least", "4"]) == 1
    assert main(command.split()[1:]) == 0
    assert main(["ideas", "suggest"]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="files without an end are of POSIX")
def test_files_are_read_as_far_as_ideas_can_be_long(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (here / "large.json").open("wb") as file:
        file.truncate(2**40)
    capsys.readouterr()
    for name in ("large.json", "/dev/zero"):
        assert main(["ideas", "import", name]) == 2
        assert (
            f"FILE: {here / name} is larger than the limit of 134,217,728 bytes"
            in capsys.readouterr().err
        )


def test_what_fails_or_only_reads_once_is_not_suggested(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        for calls in (
            # A single call that only reads.
            [{"_tool": "add", "a": number, "b": 1}],
            # This is planned correctly, but fails each time.
            [{"_tool": "double", "n": number}, {"_tool": "double", "n": "†results.0.nothing"}],
        ):
            (here / "plan.json").write_text(json.dumps({"calls": calls}), encoding="utf-8")
            main(["run", "plan.json"])
    capsys.readouterr()
    assert main(["ideas", "suggest"]) == 1


def test_a_part_of_a_run_is_published(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [
        {"_tool": "add", "a": 1, "b": 2},
        {"_tool": "add", "a": 40, "b": 2},
        {"_tool": "double", "n": 42},
    ]
    (here / "plan.json").write_text(json.dumps({"calls": calls}), encoding="utf-8")
    assert main(["run", "plan.json", "--json"]) == 0
    run = told(capsys)["run"]
    assert main(["ideas", "publish", f"{run}:1-2", "twice_the_sum", "--answer", "recorded"]) == 0
    capsys.readouterr()
    assert main(["ideas", "call", "twice_the_sum", "--json"]) == 0
    assert told(capsys)["output"] == 84
    assert main(["ideas", "lift", f"{run}:1-3"]) == 2
    assert f"run {run} has calls 0 to 2, not 1 to 3" in capsys.readouterr().err


def test_lists_and_searches_take_the_same_filters(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["list"], ["search"]):
        for chosen, count in (
            (["--tool", "add", "--since", "1d", "--outcome", "done"], 2),
            (["--tool", "other"], 0),
            (["--module", "other"], 0),
            (["--until", "1d"], 0),
            (["--mind", "turns"], 0),
            (["--tag", "none"], 0),
        ):
            capsys.readouterr()
            assert main(["ideas", *words, *chosen, "--json"]) == (
                0 if count or words == ["list"] else 1
            )
            assert len(told_last(capsys)["ideas"]) == count, chosen
        assert main(["ideas", *words, "--since", "yesterday"]) == 2


def told_last(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_filters_of_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["ideas", "list", "--tool", "add", "--since", "1h", "--json"]) == 0
    assert len(told(capsys)["ideas"]) == 2
    assert main(["ideas", "search", "--outcome", "failed"]) == 1
    assert main(["ideas", "search", "add", "--since", "soon"]) == 2
    assert "since: expected a date" in capsys.readouterr().err
    assert main(["ideas", "list", "--published", "--tool", "add"]) == 2


def test_versions_of_a_name_are_told_compared_and_chosen(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    plan = {**PLAN, "input": {"a": 1, "b": 2}, "input_schema": {**schema, "required": ["a", "b"]}}
    plan = {
        **plan,
        "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    capsys.readouterr()
    assert main(["run", "plan.json", "--json"]) == 0
    run = told(capsys)["run"]
    assert main(["ideas", "publish", run, "twice", "--json"]) == 0
    answer = told_last(capsys)
    assert answer["version"] == 2
    assert "input: b is now required" in answer["breaking"]
    assert main(["ideas", "diff", "twice@1", "twice@2"]) == 1
    out = capsys.readouterr().out
    assert '~ calls.0 (add).b: "†input.a" -> "†input.b"' in out
    assert "breaking: input: b is now required" in out
    assert main(["ideas", "diff", "twice", "twice@2"]) == 0
    assert main(["ideas", "rollback", "twice@1"]) == 0
    capsys.readouterr()
    assert main(["ideas", "call", "twice", "--input", "a=4"]) == 0
    assert capsys.readouterr().out == "8\n"
    assert main(["ideas", "call", "twice@2", "--input", "a=4", "--input", "b=5"]) == 0
    assert capsys.readouterr().out == "9\n"
    for command in (["show"], ["export"], ["lift"], ["verify"], ["diff", "twice@2"], ["tag"]):
        assert main(["ideas", *command, "twice@2"]) == 0, command
        assert main(["ideas", *command, "twice@9"]) == 2, command

    assert main(["ideas", "call", "twice@²", "--input", "a=4"]) == 2
    assert "expected NAME or NAME@VERSION" in capsys.readouterr().err
    assert main(["ideas", "pin", "twice@1"]) == 0
    assert main(["ideas", "publish", run, "twice"]) == 0
    assert "is pinned to another version" in capsys.readouterr().err
    assert main(["ideas", "history", "twice", "--json"]) == 0
    versions = told(capsys)["versions"]
    assert [(one["version"], one["live"], one["pinned"]) for one in versions] == [
        (3, False, False),
        (2, False, False),
        (1, True, True),
    ]
    assert [len(one["breaking"]) > 0 for one in versions] == [False, True, False]
    assert versions[1]["run"] == run
    assert main(["ideas", "history", "twice"]) == 0
    assert "breaking: input: b is now required" in capsys.readouterr().out
    assert main(["ideas", "unpin", "twice", "--json"]) == 0
    assert told(capsys)["version"] == 3
    assert main(["ideas", "tag", "twice", "sums", "--json"]) == 0
    assert told(capsys)["tags"] == ["sums"]
    assert main(["ideas", "search", "--tag", "sums", "--json"]) == 0
    assert len(told(capsys)["ideas"]) == 1
    assert main(["ideas", "pin", "twice"]) == 2
    assert "expected a name and a version" in capsys.readouterr().err
    assert main(["ideas", "history", "nothing"]) == 2
