"""`ideabridge resume` and `ideabridge runs list`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main

from .conftest import EXECUTABLE
from .terminal import Terminal

TOOLS = '''
from pathlib import Path

import anyio

from ideabridge.tools import tool


async def work(name: str) -> str:
    with open("pipe", "w") as pipe:
        pipe.write(f"{name} ")
    if not Path("again").exists():
        await anyio.sleep_forever()
    return name


@tool(read_only=True)
async def look(name: str) -> str:
    """Look."""
    return await work(name)


@tool(read_only=False)
async def send(name: str) -> str:
    """Send."""
    return await work(name)
'''

LOOK = {"calls": [{"_tool": "look", "name": "look", "_outputPath": "a"}], "output": "†state.a"}
SEND = {"calls": [{"_tool": "send", "name": "send", "_outputPath": "a"}]}


@pytest.fixture
def here(project: Path) -> Path:
    """A project with tools and a pipe they write to."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    (project / "ideabridge.json").write_text(
        '{"tools": ["tools.py"], "store": "store.sqlite", "approval": "allow_all"}', encoding="utf-8"
    )
    os.mkfifo(project / "pipe")
    return project


def killed(project: Path, plan: dict[str, Any]) -> None:
    """`ideabridge run`, killed in its call; the next time the call ends."""
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    with subprocess.Popen([str(EXECUTABLE), "run", "plan.json"], cwd=project, stderr=subprocess.DEVNULL) as process:
        assert (project / "pipe").read_text() == plan["calls"][0]["name"] + " "
        process.kill()
    (project / "again").touch()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["runs", "list", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def test_a_killed_run_is_resumed_and_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(here, LOOK)
    [run] = listed(capsys)
    assert (run["status"], run["kind"], run["caller"], run["title"]) == ("running", "plan", "local", "look")
    descriptor = os.open(here / "pipe", os.O_RDWR)
    try:
        assert main(["resume", run["run"]]) == 0
    finally:
        os.close(descriptor)
    printed = capsys.readouterr()
    assert printed.out == "look\n"
    assert [line.split()[:3] for line in printed.err.split("\n")[:2]] == [["▶", "0", "look"], ["✓", "0", "look"]]
    assert f"{run['run']}: done, idea " in printed.err
    assert [one["status"] for one in listed(capsys)] == ["done"]
    assert listed(capsys, "--status", "running") == []
    assert main(["resume", run["run"], "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["kind"] == "FinishedRunError"
    assert "has ended (done)" in printed.err
    assert main(["runs", "list"]) == 0
    assert run["run"] in capsys.readouterr().out
    for words, told in (
        (["--after", run["run"]], f"no run comes after {run['run']}"),
        (["--after", run["run"], "--status", "done"], f"no run that is done comes after {run['run']}"),
        (["--status", "failed"], "no run is failed"),
    ):
        assert main(["runs", "list", *words]) == 0
        assert told in capsys.readouterr().err


def test_what_must_not_run_twice_is_asked_about(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(here, SEND)
    [run] = listed(capsys)
    # Nobody sits here to answer: it waits.
    assert main(["resume", run["run"], "--json"]) == 4
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert answer["status"] == "needs_approval"
    assert answer["approvals"][0]["choices"] == ["retry", "skip", "value"]
    assert "outcome unknown" in printed.err
    assert listed(capsys)[0]["status"] == "needs_approval"


@pytest.mark.parametrize(
    ("typed", "code", "state"),
    [("v", 0, {"a": "it was sent"}), ("s ask them", 1, {}), ("r", 0, {"a": "send"})],
    ids=["a value", "skip", "retry"],
)
def test_a_person_says_what_came_of_it(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str, code: int, state: dict[str, str]
) -> None:
    killed(here, SEND)
    [run] = listed(capsys)
    descriptor = os.open(here / "pipe", os.O_RDWR)
    try:
        terminal = Terminal(here, ["resume", run["run"], "--json"])
        terminal.read_until("v(alue) JSON: ")
        # A letter alone is no value; the question comes again.
        terminal.type(typed)
        if typed == "v":
            terminal.read_until("v(alue) JSON: ")
            terminal.type("v it was sent")
        ended, out = terminal.end()
    finally:
        os.close(descriptor)
    answer = json.loads(out)
    assert (ended, answer["status"], answer["state"]) == (code, "done", state)
    assert ("skipped by the person at the terminal: ask them" in str(answer["errors"])) is (typed[0] == "s")


def test_what_cannot_be_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(here, LOOK)
    assert main(["resume", "run_0"]) == 2
    assert "unknown run 'run_0'" in capsys.readouterr().err
    [run] = listed(capsys)
    other = {"store": "store.sqlite", "tools": ["tools.py"]}
    (here / "ideabridge.json").write_text(json.dumps(other), encoding="utf-8")
    assert main(["resume", run["run"]]) == 1
    assert "the configuration has changed" in capsys.readouterr().err
    [run] = listed(capsys)
    assert run["status"] == "interrupted"
    assert "the configuration has changed" in run["reason"]
    (here / "ideabridge.json").write_text(json.dumps({**other, "approval": "allow_all"}), encoding="utf-8")
    (here / "again").unlink()
    with subprocess.Popen(
        [str(EXECUTABLE), "resume", run["run"]], cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert (here / "pipe").read_text() == "look "
        assert main(["resume", run["run"]]) == 1
        assert "is driven by another process right now" in capsys.readouterr().err
        process.kill()
