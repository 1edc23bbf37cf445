"""Nothing that came from outside reaches a terminal as it came: many commands, with hostile names,
descriptions, results, errors and ideas, and a look at the raw bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from ideabridge.bridge.store.portable import sealed
from ideabridge.server.cli import console
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSON, JSONObject
from tests import preloaded
from tests.cli.conftest import EXECUTABLE
from tests.trusting import write_trusted

from .leaking import TERMINAL

LEAKING = Path(__file__).with_name("leaking.py")
OURS = re.compile(
    # What rich writes (colours and cursor movements over its own table), and what a terminal does
    # to line endings.
    r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r\n|\r"
)
TOOLS = f'''
from ideabridge.tools import tool

EVIL = {TERMINAL!r}


@tool(read_only=True)
def look(x: str) -> dict[str, str]:
    """Look. {TERMINAL.encode("unicode_escape").decode()}"""
    return {{EVIL: EVIL, "x": x}}


@tool(read_only=True)
def tell(x: str) -> str:
    """Tell."""
    return EVIL + x


@tool(read_only=True)
def fail(x: str) -> str:
    """Fail."""
    raise ValueError(EVIL)


@tool(read_only=False)
def change(x: str) -> str:
    """Change."""
    return x
'''


def hidden(text: str) -> list[str]:
    """The characters in what a terminal got that it would obey, or that nobody sees."""
    found = [
        char
        for char in OURS.sub("", text)
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")
    ]
    return [f"U+{ord(char):04X}" for char in found if char not in "\n\t"]


@pytest.fixture
def here(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project in which everything that can be hostile is: tools, a module, runs, an idea."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    module = {"command": sys.executable, "args": ["-I", str(LEAKING)]}
    content = {"tools": ["tools.py"], "store": "store.sqlite", "mcpServers": {"leaky": module}}
    write_trusted(project, cast("dict[str, Any]", content))
    calls: list[JSON] = [
        {"_tool": "look", "x": TERMINAL, "_outputPath": "looked"},
        {"_tool": "say", "_module": "leaky", "x": TERMINAL, "_outputPath": "said"},
    ]
    plan: JSONObject = {"calls": calls, "input": {"x": TERMINAL}}
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    failing: list[JSON] = [
        {"_tool": "fail", "x": TERMINAL},
        {"_tool": "refuse", "_module": "leaky", "x": TERMINAL},
    ]
    (project / "failing.json").write_text(json.dumps({"calls": failing}), encoding="utf-8")
    changing: list[JSON] = [{"_tool": "change", "x": TERMINAL}]
    (project / "changing.json").write_text(json.dumps({"calls": changing}), encoding="utf-8")
    one: list[JSON] = [{"_tool": "tell", "x": "†input.x", "_outputPath": "told"}]
    told: JSONObject = {"calls": one, "input": {"x": "plain"}, "output": "†state.told"}
    (project / "tell.json").write_text(json.dumps(told), encoding="utf-8")
    assert main(["run", "tell.json", "--save-as", "told"]) == 0
    assert main(["ideas", "export", "told", "-o", "told.json"]) == 0
    whole = json.loads((project / "told.json").read_text(encoding="utf-8"))
    publication: JSONObject = {
        **whole["publication"],
        "name": "evil",
        "description": f"Evil {TERMINAL}",
    }
    publication["recorded"] = {"input": {"x": TERMINAL}, "output": TERMINAL}
    meta: JSONObject = {**whole["meta"], "title": f"Title {TERMINAL}", "tags": ["tagged"]}
    evil = sealed({**whole, "publication": publication, "meta": meta})
    (project / "evil.json").write_text(json.dumps(evil), encoding="utf-8")
    (project / f"{TERMINAL.replace('/', '')}.json").write_text(TERMINAL, encoding="utf-8")
    assert main(["ideas", "import", "evil.json", "--publish"]) == 0
    assert main(["run", "plan.json"]) == 0
    capsys.readouterr()
    return project


def read_to_end(primary: int) -> str:
    """All that is written to a terminal, until nobody has it open."""
    seen = b""
    # On Linux, reading raises this error once the other side of a terminal is closed.
    with contextlib.suppress(OSError):
        while part := os.read(primary, 65536):
            seen += part

    os.close(primary)
    return seen.decode("utf-8", "replace")


def process_at_terminal(here: Path, words: list[str]) -> str:
    """All that a command in a process of its own writes to a terminal that is its standard output
    and error.
    """
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (40, 80))
    with subprocess.Popen(
        preloaded.python(EXECUTABLE, *words),
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=secondary,
        stderr=secondary,
        env={**os.environ, "TERM": "xterm"},
    ):
        os.close(secondary)
        return read_to_end(primary)


def at_terminal(words: list[str], columns: int) -> str:
    """The same of a command in this process."""
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (40, columns))
    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(read_to_end, primary)
        with standard_streams(secondary):
            main(words)

        return seen.result()


@contextmanager
def standard_streams(terminal: int) -> Generator[None]:
    """Let a terminal be the standard output and error, and give no input. Closes the terminal."""
    before = [os.dup(number) for number in range(3)]
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, place in enumerate((nothing, terminal, terminal)):
        os.dup2(place, number)

    os.close(nothing)
    os.close(terminal)
    try:
        with (
            pytest.MonkeyPatch.context() as patched,
            open(0, closefd=False) as stdin,
            open(1, "w", closefd=False) as stdout,
            open(2, "w", closefd=False) as stderr,
        ):
            patched.setenv("TERM", "xterm")
            patched.setattr(sys, "stdin", stdin)
            patched.setattr(sys, "stdout", stdout)
            patched.setattr(sys, "stderr", stderr)
            yield
    finally:
        for number, place in enumerate(before):
            os.dup2(place, number)
            os.close(place)


COMMANDS = [
    ["run", "plan.json"],
    ["run", "failing.json"],
    ["run", "changing.json"],
    ["run", "plan.json", "--dry-run"],
    ["run", TERMINAL],
    ["runs", "list"],
    ["runs", "show", "last"],
    ["runs", "show", TERMINAL],
    ["runs", "direct"],
    ["approvals", "list"],
    ["ideas", "list"],
    ["ideas", "list", "--published"],
    ["ideas", "search", "title"],
    ["ideas", "search", TERMINAL],
    ["ideas", "show", "evil"],
    ["ideas", "show", TERMINAL],
    ["ideas", "call", "evil", "-i", "x=plain"],
    ["ideas", "call", "evil", "-i", f"y={TERMINAL}"],
    ["ideas", "history", "evil"],
    ["ideas", "diff", "evil", "told"],
    ["ideas", "lift", "last"],
    ["ideas", "verify"],
    ["ideas", "suggest"],
    ["ideas", "export", "evil"],
    ["ideas", "export", "evil", "-o", f"absent/{TERMINAL}"],
    ["ideas", "import", "."],
    ["ideas", "prune", "--older-than", "1d", "--dry-run"],
    ["tools", "list"],
    ["servers", "list"],
    ["servers", "test", "leaky"],
    ["servers", "list", "leaky"],
    ["servers", "test", "leaky", "say"],
    ["servers", "test", "leaky", "say", "--yes"],
    ["servers", "test", "leaky", "structured", "--yes"],
    ["servers", "test", "leaky", "fail", "--yes"],
    ["servers", "logs", "leaky"],
    ["servers", "test", TERMINAL],
    ["doctor"],
    ["--config", TERMINAL, "doctor"],
    [TERMINAL],
    ["serve", f"--{TERMINAL}"],
]


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.long)])
@pytest.mark.usefixtures("here")
def test_no_command_lets_hidden_characters_through_to_a_terminal(columns: int) -> None:
    seen: dict[str, str] = {}
    for words in COMMANDS:
        # JSON does not depend on the width.
        for more in ([], ["--json"]) if columns == 80 else ([],):
            if words[0] in ("serve", TERMINAL, "--config") and more:
                continue
            if words[:2] == ["ideas", "export"] and more:
                continue

            told = at_terminal([*words, *more], columns)
            name = " ".join([*words, *more])
            assert hidden(told) == [], name
            # A link or a style in text from others is shown as text.
            assert "\x1b]8" not in told, name
            seen[name] = told

    shown = "".join(seen.values())
    assert shown.count("\\u001b]0;owned\\u0007\\u009b2J\\u202egnp.exe") > 20
    assert "[bold red link=file:///etc]x[/]" in shown.replace("\r\n", "")


def test_json_output_is_the_same_value(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ideas", "call", "evil", "-i", "x=plain", "--json"]) == 0
    out = capsys.readouterr().out
    assert hidden(out) == []
    assert json.loads(out)["output"] == f"{TERMINAL}plain"
    assert main(["ideas", "show", "evil", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["publication"]["recorded"]["output"] == TERMINAL
    # Text goes into a pipe or a file unchanged.
    assert main(["ideas", "call", "evil", "-i", "x=plain"]) == 0
    assert capsys.readouterr().out == f"{TERMINAL}plain\n"


def test_what_rich_draws_is_looked_through_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    console.out().print(TERMINAL, f"\x1b[31m{TERMINAL}")
    assert hidden(capsys.readouterr().out) == []


def test_a_server_at_a_terminal_tells_of_hostile_modules_harmlessly(here: Path) -> None:
    told = process_at_terminal(here, ["serve"])
    assert hidden(told) == []
