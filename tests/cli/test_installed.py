"""The installed command on dirty input, each time as a process of its own: encodings, closed pipes,
stores that are none, odd plans, input that nothing takes, Ctrl-C. `test_dirty.py` has the same for
every command, inside this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

from .conftest import EXECUTABLE
from .terminal import Terminal
from .test_dirty import EXPECTED, GREETING, PLAN, PRINTING

PLANS = {
    "comments.json": b'// a plan\n{"calls": [], /* none */ "output": 1,}',
    "bom.json": b'\xef\xbb\xbf{"calls": [], "output": 1}',
    "crlf.json": b'{\r\n  "calls": [],\r\n  "output": 1\r\n}\r\n',
    "crlf.yaml": b"calls: []\r\noutput: 1\r\n",
    "bom.py": b"\xef\xbb\xbfone = 1\r\none\r\n",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process printed, and its exit code."""

    words: Sequence[str]
    code: int
    out: bytes
    err: bytes

    def answer(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.out.count(b"\n") == 1, self
        answer: dict[str, Any] = json.loads(self.out)
        assert type(answer) is dict, self
        return answer

    def expect_error(self, code: int, message: str) -> None:
        """Check the code and the one line that says why."""
        assert (self.code, self.err.decode()) == (code, f"ideabridge: {message}\n"), self


def run(command: Sequence[str | Path], words: Sequence[str], **variables: str) -> Ended:
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Ended(words, done.returncode, done.stdout, done.stderr)


def started(*words: str) -> Ended:
    """Run the command in a process that has imported most of what it needs."""
    return run(preloaded.python(EXECUTABLE, *words), words)


def started_whole(*words: str, options: Sequence[str] = (), **variables: str) -> Ended:
    """Run the command in an interpreter of its own."""
    return run([sys.executable, *options, EXECUTABLE, *words], words, **variables)


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a plan."""
    monkeypatch.delenv("IDEABRIDGE_TRACEBACK", raising=False)
    (project / "plan.json").write_text(json.dumps(PLAN))
    return project


# -- encodings and interpreters --------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "cp1252"},
        {"LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["cp1252", "C", "POSIX"],
)
def test_what_an_encoding_lacks_is_escaped(here: Path, variables: dict[str, str]) -> None:
    for name in ("LANG", "LC_ALL", "PYTHONIOENCODING"):
        variables = {name: "", **variables}

    ended = started_whole("run", "plan.json", **variables)
    assert ended.code == 0, ended
    assert b"\\u2713 \\u2192 Ada \\u65e5\\u672c" in ended.out
    assert b"standard output has the encoding" in ended.err
    assert b"Traceback" not in ended.err


def test_json_is_whole_in_every_encoding(here: Path) -> None:
    ended = started_whole("run", "plan.json", "--json", LC_ALL="POSIX", PYTHONUTF8="0")
    assert ended.answer()["output"] == GREETING.format(name="Ada")


def test_an_interpreter_without_assertions_and_docstrings_does_the_same(here: Path) -> None:
    ended = started_whole("run", "plan.json", "--json", options=["-OO"])
    assert ended.answer()["output"] == GREETING.format(name="Ada")
    helped = started_whole("run", "--help", options=["-OO"])
    assert (helped.code, helped.err) == (0, b"")
    assert b"--dry-run" in helped.out


def test_a_dumb_terminal_gets_no_control_sequences(here: Path) -> None:
    terminal = Terminal(here, ["run", "plan.json"], {"TERM": "dumb"})
    assert terminal.end() == (0, f"{GREETING.format(name='Ada')}\n")
    assert "\x1b" not in terminal.seen


# -- pipes -----------------------------------------------------------------------------------------


def without_reader(words: Sequence[str]) -> Ended:
    """Start the command with a pipe whose reader has read one line, and is gone."""
    with subprocess.Popen(
        [sys.executable, EXECUTABLE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()

    return Ended(words, process.returncode, line, err)


def expect_no_noise(commands: Sequence[Sequence[str]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(without_reader, commands):
            # Some commands exit with an error, because they find nothing here or report a fault.
            assert ended.code in (0, 1, 2, 3), ended
            assert b"Broken" not in ended.err, ended
            assert b"Traceback" not in ended.err, ended
            assert b"Exception" not in ended.err, ended


def test_a_reader_that_has_gone_is_no_error(here: Path) -> None:
    expect_no_noise([["--help"], ["doctor"], ["tools", "list", "--schemas"]])


@pytest.mark.long
def test_a_reader_that_has_gone_is_no_error_of_any_command(here: Path) -> None:
    started("run", "plan.json", "--save-as", "greet")
    started("ideas", "publish", "last", "greet")
    started("ideas", "publish", "last", "greet", "--description", "Another")
    expect_no_noise(PRINTING)
    expect_no_noise([[*words, "--json"] for words in PRINTING if "--help" not in words])


# -- stores ----------------------------------------------------------------------------------------


def test_what_is_no_store_is_refused_in_one_line(here: Path) -> None:
    long = "x" * 300
    memory = started("run", "plan.json", "--store", ":memory:")
    mysql = started("runs", "list", "--store", "mysql://ada:hidden@db/ideas")
    too_long = started("runs", "list", "--store", long)
    memory.expect_error(
        2, f"--store: :memory: would lose everything when the command ends; {EXPECTED}"
    )
    mysql.expect_error(2, f"--store: mysql:// is not a supported kind of store; {EXPECTED}")
    too_long.expect_error(3, f"{here}/{long}: the file cannot be opened: File name too long")
    ended = started("runs", "list", "--store", ":memory:", "--json")
    assert ended.answer()["exit"] == 2


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0,
    reason="the bits of files do not bind root; test_dirty.py does the same without them",
)
def test_doctor_says_that_a_store_cannot_be_written(here: Path) -> None:
    folder = here / "read-only"
    folder.mkdir(mode=0o500)
    ended = started("doctor", "--json", "--store", "read-only/ideas.sqlite")
    assert ended.code == 1
    wrong = [entry["text"] for entry in ended.answer()["findings"] if entry["state"] == "wrong"]
    assert wrong == [f"{folder}/ideas.sqlite does not exist yet, and {folder} cannot be written"]


# -- plans -----------------------------------------------------------------------------------------


def test_plans_are_read_as_programs_of_any_system_write_them(here: Path) -> None:
    for name, data in PLANS.items():
        (here / name).write_bytes(data)
        ended = started("run", name)
        assert (ended.code, ended.out) == (0, b"1\n"), ended


def test_plans_that_are_none_are_refused_in_one_line(here: Path) -> None:
    (here / "calls.json").write_text('{"calls": {}}')
    (here / "empty.json").write_text("")
    started("run", "calls.json").expect_error(
        2, "the plan: calls: expected an array of calls, found {}"
    )
    started("run", "empty.json").expect_error(2, f"PLAN.json: {here}/empty.json is empty")
    gone = started("run", "gone.json")
    assert gone.code == 2
    assert f"{here}/gone.json cannot be read" in gone.err.decode()
    assert started("run", "calls.json", "--json").answer()["exit"] == 2


def test_input_that_nothing_takes_is_refused_with_the_nearest_name(here: Path) -> None:
    assert started("run", "plan.json").code == 0
    for taker, words in (
        ("the plan", ["run", "plan.json"]),
        ("the task", ["solve", "Greet †input.name", "--mind", "turns"]),
        ("the run", ["runs", "fork", "last", "--at", "1"]),
    ):
        started(*words, "-i", "nmae=x").expect_error(
            2,
            f"--input: {taker} has no parameter 'nmae'; the only parameter is 'name'. "
            "Did you mean 'name'?",
        )

    forked = started("runs", "fork", "last", "--at", "1", "-i", "name=Bo", "--json")
    assert forked.answer()["output"] == GREETING.format(name="Bo")


# -- the programs of clients -----------------------------------------------------------------------


def test_doctor_says_which_programs_are_gone_and_which_it_did_not_check(here: Path) -> None:
    servers = {
        "gone": {"command": "no-such-program"},
        "there": {"command": sys.executable},
        "remote": {"type": "http", "url": "https://tickets.example/mcp"},
    }
    file = here / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    ended = started("doctor", "--json")
    texts = [entry["text"] for entry in ended.answer()["findings"]]
    assert f"1 server of its own cannot start: gone ({file})" in texts
    assert f"not checked: remote ({file})" in texts


# -- Ctrl-C ----------------------------------------------------------------------------------------

STOPPING = """
import os, runpy, signal, sys

class Stopper:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Stopper())
sys.argv = [{script!r}, "runs", "list", "--json"]
runpy.run_path({script!r}, run_name="__main__")
"""
"""Runs the command, and presses Ctrl-C when it imports a module."""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
def test_ctrl_c_makes_no_noise_while_the_command_starts(here: Path) -> None:
    """Before the first of these imports only Python itself is at work."""
    names = ["ideabridge.server.cli.app", "typer", "ideabridge.bridge.configuration"]

    def stopped(name: str) -> Ended:
        program = STOPPING.format(name=name, script=str(EXECUTABLE))
        return run([sys.executable, "-c", program], [name])

    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(stopped, names):
            assert (ended.code, ended.err) == (130, b""), ended
            assert ended.answer()["error"] == {"kind": "Stopped", "message": "stopped by Ctrl-C"}
