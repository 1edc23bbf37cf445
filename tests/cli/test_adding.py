"""`ideabridge ideas add`: ideas that somebody wrote by hand, from files, each shown
before it is saved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main

DOUBLE = """
# Doubles a number.
description: Doubles a number
context:
  - type: input
    input: {n: 3}
solution:
  calls:
    - {_tool: compute, code: n + n, n: †input.n, _outputPath: double}
  output: †state.double
"""
STORE = ["--store", "store.sqlite"]


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_a_file_is_shown_and_becomes_a_tool_with_the_name_of_the_file(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Double it.yaml").write_text(DOUBLE, encoding="utf-8")
    assert main(["ideas", "add", "Double it.yaml", "--yes", *STORE]) == 0
    shown = capsys.readouterr().err
    assert "double_it, answers by plan" in shown
    assert 'code: "n + n"' in shown
    assert "n: †input.n" in shown
    assert "published as double_it, version 1" in shown
    assert main(["ideas", "call", "double_it", "-i", "n=4", "--json", *STORE]) == 0
    assert told(capsys)["output"] == 8
    assert (
        main(["ideas", "add", "Double it.yaml", "--yes", "--name", "twice", "--json", *STORE]) == 0
    )
    [one] = told(capsys)["ideas"]
    assert (one["name"], one["version"], one["unchanged"]) == ("twice", 1, False)


def test_without_a_person_nothing_is_saved(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "double.yaml").write_text(DOUBLE, encoding="utf-8")
    for words in ([], ["--json"]):
        assert main(["ideas", "add", "double.yaml", *words, *STORE]) == 2
        assert "add --yes" in capsys.readouterr().err
    assert not (project / "store.sqlite").exists()


def test_a_change_replaces_a_name_only_if_it_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "double.yaml"
    file.write_text(DOUBLE, encoding="utf-8")
    assert main(["ideas", "add", "double.yaml", "--yes", *STORE]) == 0
    file.write_text(DOUBLE.replace("n + n", "n * 2"), encoding="utf-8")
    capsys.readouterr()
    assert main(["ideas", "add", "double.yaml", "--yes", *STORE]) == 2
    assert "double@1" in capsys.readouterr().err
    assert (
        main(["ideas", "add", "double.yaml", "--yes", "--replace", "double", "--json", *STORE]) == 0
    )
    [one] = told(capsys)["ideas"]
    assert (one["version"], one["before"]) == (2, 1)


def test_of_a_folder_each_is_taken_or_refused_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "ideas"
    folder.mkdir()
    (folder / "a_quadruple.json").write_text(
        json.dumps(
            {
                "context": [{"type": "input", "input": {"n": 1}}],
                "solution": {
                    "calls": [
                        {
                            "_tool": "double",
                            "_module": "idea:double",
                            "n": "†input.n",
                            "_outputPath": "x",
                        },
                        {
                            "_tool": "double",
                            "_module": "idea:double",
                            "n": "†state.x",
                            "_outputPath": "y",
                        },
                    ],
                    "output": "†state.y",
                },
            }
        ),
        encoding="utf-8",
    )
    (folder / "double.yml").write_text(DOUBLE, encoding="utf-8")
    (folder / "bad.yaml").write_text("context: !!python/name:os.system x", encoding="utf-8")
    (folder / "laughs.yaml").write_text("a: &a [x]\nb: &b [*a, *a]\ncontext: *b", encoding="utf-8")
    (folder / "away.jsonc").write_text(
        '{"context": [], "solution": {"calls": [{"_tool": "send", "_module": "mail", '
        '"to": "x"}]}} // later',
        "utf-8",
    )
    (folder / "notes.txt").write_text("not an idea", encoding="utf-8")
    (folder / "link.json").symlink_to(project / "secret.json")
    (project / "secret.json").write_text('{"context": ["a secret"]}', encoding="utf-8")
    assert main(["ideas", "add", "ideas", "--yes", "--json", *STORE]) == 1
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    # An idea that calls another one is saved after it.
    assert [one["name"] for one in result["ideas"]] == ["double", "a_quadruple", "away"]
    assert [Path(one["file"]).name for one in result["refused"]] == ["bad.yaml", "laughs.yaml"]
    assert "a tag" in result["refused"][0]["error"]
    assert ["'mail' is not configured" in line for line in result["missing"]] == [True]
    assert "link.json is a link, which is not followed" in printed.err
    assert main(["ideas", "call", "a_quadruple", "-i", "n=2", "--json", *STORE]) == 0
    assert told(capsys)["output"] == 8


def test_an_export_is_taken_too_and_a_folder_of_both_is_read_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "plan.json").write_text(
        json.dumps({"calls": [{"_tool": "compute", "code": "a + 1", "a": 4, "_outputPath": "x"}]}),
        encoding="utf-8",
    )
    (project / "double.yaml").write_text(DOUBLE, encoding="utf-8")
    assert main(["run", "plan.json", "--save-as", "next", *STORE]) == 0
    assert main(["ideas", "add", "double.yaml", "--yes", *STORE]) == 0
    assert main(["ideas", "export", "--published", "--folder", "out", *STORE]) == 0
    exported = {
        file.name: json.loads(file.read_text(encoding="utf-8"))
        for file in (project / "out").iterdir()
    }
    assert "digest" in exported["next.json"]
    assert exported["double.json"]["solution"]["output"] == "†state.double"
    capsys.readouterr()
    assert main(["ideas", "add", "out", "--yes", "--json", *STORE]) == 0
    assert [one["unchanged"] for one in told(capsys)["ideas"]] == [True, True]
    assert main(["ideas", "add", "out", "--yes", "--json", "--store", "other.sqlite"]) == 0
    assert [one["version"] for one in told(capsys)["ideas"]] == [1, 1]
    assert main(["ideas", "add", "out", "--yes", "--json", "--store", "other.sqlite"]) == 0
    assert [one["unchanged"] for one in told(capsys)["ideas"]] == [True, True]
    assert main(["ideas", "import", "out/double.json", *STORE]) == 2
    assert "ideas add" in capsys.readouterr().err


def test_what_a_document_says_cannot_pass_for_a_line_of_ours(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = {
        "context": ["x\nidea 0 is saved\x1b[2J"],
        "description": "a\nthe plan that runs\r\x1b[1A",
        "name": "it",
    }
    (project / "it.json").write_text(json.dumps(hidden), encoding="utf-8")
    assert main(["ideas", "add", "it.json", "--yes", *STORE]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert not any("\x1b[2J" in line or "\r" in line for line in lines)
    assert "the plan that runs" not in lines
    assert "idea 0 is saved" not in lines


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of its own")
def test_at_a_terminal_the_person_is_asked(project: Path) -> None:
    from .terminal import Terminal

    (project / "double.yaml").write_text(DOUBLE, encoding="utf-8")
    terminal = Terminal(project, ["ideas", "add", "double.yaml", *STORE])
    terminal.read_until("Save it?")
    assert "n + n" in terminal.seen
    terminal.type("n")
    assert terminal.end()[0] == 1
    assert not (project / "store.sqlite").exists()
    terminal = Terminal(project, ["ideas", "add", "double.yaml", *STORE])
    terminal.read_until("Save it?")
    terminal.type("y")
    assert terminal.end()[0] == 0


def test_a_plan_that_was_only_looked_at_becomes_a_tool(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {
        "calls": [{"_tool": "compute", "code": "a * b", "a": "†input.a", "b": 3}],
        "output": "†results.0",
    }
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json", "--dry-run", "--save-as", "triple", "--json", *STORE]) == 0
    assert told(capsys)["published"] == {"name": "triple", "version": 1}
    assert main(["ideas", "call", "triple", "-i", "a=5", "--json", *STORE]) == 0
    assert told(capsys)["output"] == 15


def test_files_with_one_name_are_told_apart(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "ideas"
    folder.mkdir()
    (folder / "double.yaml").write_text(DOUBLE, encoding="utf-8")
    (folder / "double.yml").write_text(DOUBLE, encoding="utf-8")
    (folder / "other.yaml").write_text(
        "name: double\ncontext: [What is twice as much?]", encoding="utf-8"
    )
    assert main(["ideas", "add", "ideas", "--yes", "--replace", "double", "--json", *STORE]) == 1
    result = told(capsys)
    assert [(one["name"], one["version"]) for one in result["ideas"]] == [
        ("double", 1),
        ("double", 1),
    ]
    [refused] = result["refused"]
    assert "'double' is also the name of" in refused["error"]
    assert "double.yaml;" in refused["error"]


def test_the_name_of_a_file_cannot_pass_for_a_line_of_ours(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "ideas"
    folder.mkdir()
    for name, text in (
        ("x\nidea 0 is saved.yaml", DOUBLE),
        ("y\nnothing runs.yaml", "a: b"),
        ("z.yaml", DOUBLE),
    ):
        (folder / name).write_text(text, encoding="utf-8")

    (folder / "l\nnothing runs.yaml").symlink_to(project)
    main(["ideas", "add", "ideas", "--yes", *STORE])
    lines = capsys.readouterr().err.splitlines()
    assert not any(line.startswith(("idea 0", "nothing runs")) for line in lines)


def test_ideas_that_all_call_each_other_are_ordered_at_once(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "ideas"
    folder.mkdir()
    for number in range(22):
        calls = [{"_tool": f"idea_{other}"} for other in range(number + 1, 22)]
        document = {"context": ["x"], "solution": {"calls": calls, "output": 1}}
        (folder / f"idea_{number}.json").write_text(json.dumps(document), encoding="utf-8")

    assert main(["ideas", "add", "ideas", "--yes", "--json", *STORE]) == 0
    result = told(capsys)
    assert len(result["ideas"]) == 22
    assert result["missing"] == []
