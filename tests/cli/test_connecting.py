"""What commands that wait for modules show meanwhile: at once, and each module as soon
as it is known.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.trusting import write_trusted

from .conftest import EXECUTABLE
from .terminal import Terminal

RAW = Path(__file__).parent.parent / "modules" / "servers" / "raw.py"

QUICK = {"command": sys.executable, "args": ["-I", str(RAW)]}


@pytest.fixture
def mute(project: Path) -> Path:
    """A project with a module that comes up, and one that never answers."""
    modules = {
        "mute": {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]},
        "quick": QUICK,
    }
    write_trusted(project, {"mcpServers": modules})
    return project


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to a child there")
@pytest.mark.parametrize("words", [["servers", "list"], ["doctor"]])
def test_each_module_is_told_as_soon_as_it_is_known(mute: Path, words: list[str]) -> None:
    process = subprocess.Popen(
        [str(EXECUTABLE), *words],
        cwd=mute,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stderr.readline() == "connecting to 2 servers: mute, quick\n"
        # The command is still waiting for the other module.
        assert " up" in next(
            line for line in process.stdout if "quick" in line and "from this file" not in line
        )
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert "mute" not in process.stdout.read()

    assert process.wait(timeout=30) == 130


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
def test_serve_tells_a_person_what_it_does_and_a_host_nothing(mute: Path) -> None:
    write_trusted(mute, {"mcpServers": {"quick": QUICK}, "store": "s"})
    terminal = Terminal(mute, ["serve"])
    terminal.read_until("server quick: up, ")
    assert "waits for an MCP client" in terminal.seen
    assert "`ideabridge install claude-code --write`" in terminal.seen
    terminal.interrupt()
    assert terminal.end() == (0, "")
    command = preloaded.python(EXECUTABLE, "serve")
    done = subprocess.run(
        command, cwd=mute, input="", capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
def test_a_terminal_shows_which_modules_are_still_connecting(mute: Path) -> None:
    terminal = Terminal(mute, ["servers", "list"], {"NO_COLOR": "1"})
    terminal.read_until("connecting to 2 servers: mute, quick (0 s)")
    terminal.read_until("connecting to 1 server: mute (")
    terminal.interrupt()
    code, out = terminal.end()
    assert code == 130
    assert [line.split()[:2] for line in out.splitlines()] == [["server", "state"], ["quick", "up"]]
    # At the end, the line has disappeared.
    assert not any("connecting" in line for line in terminal.screen())


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
def test_a_run_that_waits_for_a_module_says_so_at_a_terminal(mute: Path) -> None:
    (mute / "plan.json").write_text('{"calls": [{"_tool": "unheard_of"}]}', encoding="utf-8")
    terminal = Terminal(mute, ["run", "plan.json"], {"NO_COLOR": "1"})
    terminal.read_until("connecting to 1 server: mute (")
    terminal.interrupt()
    assert terminal.end() == (130, "")
    # At the end, the line has disappeared.
    assert not any("connecting" in line for line in terminal.screen())
