"""Lifting at the command line: what is asked, what is decided at a terminal, and looking after
what is published.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main
from tests.trusting import write_trusted

from .terminal import Terminal

TOOLS = '''
from ideabridge.tools import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
PLAN = {
    "calls": [{"_tool": "add", "a": 20, "b": 2}],
    "input": {"n": 20},
    "output": {"sum": "†results.0", "of": "numbers"},
}
DECIDED = ["--take", "calls.0.a=†input.n"]


CONFIGURATION = '{"tools": ["tools.py"], "store": "store.sqlite"}'


def rewrite(folder: Path, tools: str) -> None:
    """Other tools, which the person trusts again."""
    (folder / "tools.py").write_text(tools, encoding="utf-8")
    write_trusted(folder, CONFIGURATION)


@pytest.fixture
def here(project: Path) -> Path:
    """A project with a tool and a plan whose author copied its input."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(project, CONFIGURATION)
    (project / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    return project


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_lift_shows_the_tool_that_a_run_would_become(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "plan.json")["run"]
    report = told(capsys, "ideas", "lift", run)
    assert [(one["name"], one.get("default"), one["fills"]) for one in report["parameters"]] == [
        ("n", None, []),
        ("b", 2, ["calls.0.b"]),
    ]
    copied = report["literals"][0]
    assert (copied["path"], copied["from"], copied["instead"]) == (
        "calls.0.a",
        "†input.n",
        ["always 20"],
    )
    report = told(capsys, "ideas", "lift", run, *DECIDED, "--rename", "b=more", "--live")
    assert "calls.0.a" not in [one["path"] for one in report["literals"]]
    assert [one["name"] for one in report["parameters"]] == ["n", "more"]
    assert report["live"] == {"not_run": None, "difference": None}
    assert main(["ideas", "lift", run]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:3] for line in shown.splitlines()[1:3]] == [
        ["parameter", "example", "if"],
        ["n", "20", "required"],
    ]
    assert main(["ideas", "lift", run, "--take", "calls.0.a"]) == 2
    assert "--take: expected PATH=REFERENCE" in capsys.readouterr().err


def test_parameters_are_decided_at_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "plan.json")["run"]
    words = [
        "--rename",
        "b=more",
        "--describe",
        "b=What is added.",
        "--require",
        "b",
        "--parameter",
        "what=calls.0.a",
    ]
    told(capsys, "ideas", "publish", run, "plus", *words)
    schema = told(capsys, "ideas", "show", "plus")["publication"]["input_schema"]
    assert schema["properties"]["more"] == {"type": "integer", "description": "What is added."}
    assert schema["properties"]["what"]["default"] == 20
    assert schema["required"] == ["n", "more"]
    assert (
        told(capsys, "ideas", "call", "plus", "-i", "n=5", "-i", "more=1", "-i", "what=3")[
            "output"
        ]["sum"]
        == 4
    )
    told(capsys, "ideas", "publish", run, "plus", "--fix", "b")
    assert list(
        told(capsys, "ideas", "show", "plus")["publication"]["input_schema"]["properties"]
    ) == ["n"]


def test_what_is_published_is_looked_after(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = told(capsys, "run", "plan.json")["run"]
    told(capsys, "ideas", "publish", run, "plus_two", *DECIDED)
    told(capsys, "ideas", "publish", run, "then", "--answer", "recorded")
    assert told(capsys, "ideas", "call", "plus_two", "-i", "n=5")["output"] == {
        "sum": 7,
        "of": "numbers",
    }
    verdicts = told(capsys, "ideas", "verify")["ideas"]
    assert [(one["name"], one["holds"], one["notes"]) for one in verdicts] == [
        ("plus_two", True, ["run again"]),
        ("then", True, ["the answer comes from the store; nothing runs"]),
    ]
    rewrite(here, TOOLS.replace("return a + b", "return a - b"))
    (drifted,) = told(capsys, "ideas", "verify", "plus_two", code=1)["ideas"]
    assert drifted["faults"] == [
        'the output has changed: {"sum":18,"of":"numbers"} instead of {"sum":22,"of":"numbers"}'
    ]
    assert told(capsys, "ideas", "verify", "plus_two", "--no-live")["ideas"][0]["holds"] is True
    rewrite(here, TOOLS.replace("b: int", "b: int, c: int = 0"))
    (changed,) = told(capsys, "ideas", "verify", "plus_two", code=1)["ideas"]
    assert changed["faults"] == [
        'calls.0: add has changed: parameters.properties.c: was absent, now {"type": "integer"}'
    ]
    rewrite(here, TOOLS.replace("def add", "def plus"))
    (gone,) = told(capsys, "ideas", "verify", "plus_two", code=1)["ideas"]
    assert gone["faults"][0].startswith(
        "calls.0: add is not available here now: unknown tool 'add'"
    )
    assert main(["ideas", "verify"]) == 1
    assert "plus_two, version 1: fails the check" in capsys.readouterr().out
    assert main(["ideas", "verify", "nothing_of_that_name"]) == 2


def test_where_long_outputs_differ_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {**PLAN, "output": {"text": "x" * 500, "sums": ["†results.0"]}}
    (here / "plan.json").write_text(json.dumps(long), encoding="utf-8")
    run = told(capsys, "run", "plan.json")["run"]
    told(capsys, "ideas", "publish", run, "plus_two")
    rewrite(here, TOOLS.replace("return a + b", "return a - b"))
    assert main(["ideas", "verify", "plus_two"]) == 1
    assert "the output has changed: at sums.0: 18 instead of 22\n" in capsys.readouterr().out


def test_publishing_at_a_terminal_asks_nothing_and_shows_what_it_became(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "plan.json")["run"]
    terminal = Terminal(here, ["ideas", "publish", run, "plus_two"])
    code, _ = terminal.end()
    assert code == 0
    assert any(line.split()[:3] == ["n", "20", "required"] for line in terminal.screen())
    assert told(capsys, "ideas", "call", "plus_two", "-i", "n=5")["output"] == {
        "sum": 7,
        "of": "numbers",
    }


def test_what_is_known_of_each_copied_value_is_shown(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "plan.json")["run"]
    told(capsys, "ideas", "publish", run, "plus_two")
    assert main(["ideas", "show", "plus_two"]) == 0
    shown = capsys.readouterr().out
    assert any(line.split() == ["n", "20", "required"] for line in shown.splitlines())
    assert "the plan that runs" in shown
    assert '"seen"' not in shown
    publication = told(capsys, "ideas", "show", "plus_two")["publication"]
    assert (publication["evidence"], publication["learned"]) == ([], None)
    assert publication["plan"]["explained"]
