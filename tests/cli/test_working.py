"""What takes over a second says so at a terminal, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import Run
from .terminal import Terminal

TOOLS = '''
import anyio
from pathlib import Path
from ideabridge.tools import tool

@tool(read_only=True)
async def look() -> str:
    """Answer once there is a file `go`."""
    while not Path("go").exists():
        await anyio.sleep(0.05)
    return "seen"
'''


def test_a_check_that_takes_long_says_for_how_long(project: Path, ideabridge: Run) -> None:
    (project / "slow.py").write_text(TOOLS, encoding="utf-8")
    (project / "plan.json").write_text(
        json.dumps({"calls": [{"_tool": "look"}], "output": "†results.0"})
    )
    (project / "go").touch()
    done = ideabridge("run", "plan.json", "--tools", "slow.py", "--save-as", "looked")
    assert done.returncode == 0, done.stderr
    (project / "go").unlink()
    terminal = Terminal(project, ["ideas", "verify", "--tools", "slow.py"])
    terminal.read_until("checking published ideas (1 s)")
    (project / "go").touch()
    code, out = terminal.end()
    assert code == 0
    assert "looked, version 1: holds" in out
    assert not [line for line in terminal.screen() if "checking" in line]


def test_elsewhere_nothing_is_added(project: Path, ideabridge: Run) -> None:
    (project / "slow.py").write_text(TOOLS, encoding="utf-8")
    (project / "plan.json").write_text(
        json.dumps({"calls": [{"_tool": "look"}], "output": "†results.0"})
    )
    (project / "go").touch()
    ideabridge("run", "plan.json", "--tools", "slow.py", "--save-as", "looked")
    checked = ideabridge("ideas", "verify", "--tools", "slow.py")
    assert checked.stderr == ""
    copied = ideabridge("store", "backup", "copy.sqlite")
    assert "copying" not in copied.stderr
    assert (project / "copy.sqlite").exists()
