"""A person looks at what changed in a module's tools, and accepts it, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main
from tests.cli.terminal import Terminal
from tests.trusting import write_trusted

from .listing import Modules, described

PLAN = {
    "calls": [{"_tool": "git_log", "repo": "†input.repo", "_outputPath": "log"}],
    "input": {"repo": "r"},
    "output": "†state.log",
}
CHANGED = described("git_log", required=["repo"])
DIFFERENCE = 'parameters.required: was absent, now ["repo"]'


@pytest.fixture
def modules(project: Path, capsys: pytest.CaptureFixture[str]) -> Modules:
    """A project with the modules `git` and `evil`, which has published `history`; then `git`
    changes its tool.
    """
    found = Modules(project)
    found.lists("git", "git_log")
    found.lists("evil", "git_log", "g\u0456t_log")
    servers = {name: found.entry(name) for name in ("git", "evil")}
    write_trusted(project, {"mcpServers": {"git": servers["git"]}, "store": "store.sqlite"})
    (project / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    assert main(["run", "plan.json", "--save-as", "history"]) == 0
    write_trusted(project, {"mcpServers": servers, "store": "store.sqlite"})
    found.lists("git", CHANGED)
    capsys.readouterr()
    return found


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_changed_tool_is_shown_and_accepted(
    modules: Modules, capsys: pytest.CaptureFixture[str]
) -> None:
    [verdict] = told(capsys, "ideas", "verify", code=1)["ideas"]
    assert verdict["faults"] == [f"calls.0: git.git_log has changed: {DIFFERENCE}"]
    error = told(capsys, "ideas", "call", "history", "-i", "repo=x", code=2)["error"]
    assert "`ideabridge servers accept git`" in error["message"]
    # Nobody is at a terminal, so nothing is accepted without --yes.
    shown = told(capsys, "servers", "accept", "git", code=1)
    assert shown["changed"] == [
        {"tool": "git.git_log", "differences": [DIFFERENCE], "ideas": ["history@1"]}
    ]
    assert shown["accepted"] is False
    assert main(["servers", "accept", "git"]) == 2
    assert DIFFERENCE in capsys.readouterr().out
    assert told(capsys, "servers", "accept", "evil")["changed"] == []
    assert told(capsys, "servers", "accept", "git", "--yes")["accepted"] is True
    assert told(capsys, "ideas", "verify", "--no-live")["ideas"][0]["holds"] is True
    assert told(capsys, "ideas", "call", "history", "-i", "repo=x")["output"] == "git.git_log"
    assert modules.calls("evil") == []
    assert main(["servers", "accept"]) == 2
    assert main(["servers", "accept", "git", "--own"]) == 2


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_at_a_terminal(
    answer: str, modules: Modules, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(modules.folder, ["servers", "accept", "git"])
    terminal.read_until("Allow calls of the tool as it is now?")
    terminal.type(answer)
    code, shown = terminal.end()
    assert code == (0 if answer == "y" else 1)
    assert DIFFERENCE in shown
    [verdict] = told(capsys, "ideas", "verify", "--no-live", code=code)["ideas"]
    assert verdict["holds"] is (answer == "y")


def test_names_that_look_alike_are_told_apart_in_lists(
    modules: Modules, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = (
        r"evil: g\u0456t_log looks like git.git_log, evil.git_log; plans call it evil_g_t_log"
    )
    assert expected in told(capsys, "servers", "list")["names"]
    main(["doctor"])
    assert r"g\u0456t_log looks like git.git_log" in " ".join(capsys.readouterr().out.split())
    assert main(["servers", "test", "evil"]) == 0
    assert r"g\u0456t_log" in capsys.readouterr().out


def test_an_answer_typed_before_the_question_accepts_nothing(modules: Modules) -> None:
    terminal = Terminal(modules.folder, ["servers", "accept", "git"])
    terminal.type("y")
    terminal.read_until("Allow calls of the tool as it is now?")
    terminal.type("n")
    assert terminal.end()[0] == 1
