"""What modules ask, at the terminal and where there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import preloaded
from tests.trusting import write_trusted

from .conftest import Run
from .terminal import Terminal

SERVER = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"
PLAN = {"calls": [{"_tool": "book", "who": "ann", "_outputPath": "got"}], "output": "†state.got"}


@pytest.fixture
def here(project: Path) -> Path:
    """A project with a module that asks."""
    modules = {"asks": preloaded.module(SERVER)}
    write_trusted(project, {"mcpServers": modules, "store": "store.sqlite"})
    (project / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    return project


def fill_in(terminal: Terminal, *values: str) -> None:
    terminal.read_until("s(kip): ")
    terminal.type("y")
    for field, value in zip(("Name", "seats", "meals", "window"), values, strict=True):
        terminal.read_until(f"| {field}")
        terminal.read_until(": ")
        terminal.type(value)


def test_a_person_fills_in_a_modules_form_field_by_field(here: Path, ideabridge: Run) -> None:
    terminal = Terminal(here, ["run", "plan.json"])
    terminal.read_until("s(kip): ")
    assert "server asks asks, in its own words:" in terminal.seen
    assert "| Seats for ann?" in terminal.seen
    terminal.type("what")
    fill_in(terminal, "Ann", "9", "", "")
    terminal.read_until("found 9, expected at most 5")
    fill_in(terminal, "Ann", "2", "rice, fish", "yes")
    code, out = terminal.end()
    assert code == 0
    assert '{"meals": ["rice", "fish"], "name": "Ann", "seats": 2, "window": true}' in out
    run = json.loads(ideabridge("runs", "list", "--json").stdout)
    found = re.search(r"run_\w+", json.dumps(run))
    assert found is not None
    shown = " ".join(ideabridge("runs", "show", found.group()).stdout.split())
    assert '? 0 book server asks asks: "Seats for ann?"' in shown
    assert '! 0 book accept by the person at the terminal: {"name":"Ann","seats":2' in shown


def test_a_person_tells_a_module_no(here: Path) -> None:
    terminal = Terminal(here, ["run", "plan.json"])
    terminal.read_until("s(kip): ")
    terminal.type("n none of its business")
    code, out = terminal.end()
    assert code == 0
    assert '"action": "decline"' in out


def test_without_a_terminal_a_module_is_declined_and_the_run_goes_on(
    here: Path, ideabridge: Run
) -> None:
    done = ideabridge("run", "plan.json", typed="")
    assert done.returncode == 0
    assert '"action": "decline"' in done.stdout
    assert (
        "server 'asks' asked something and was declined, because there is no terminal to answer at"
        in done.stderr
    )


def test_every_line_of_a_modules_words_begins_with_a_mark(here: Path) -> None:
    calls = [{"_tool": "book", "who": "a" * 100}]
    (here / "plan.json").write_text(json.dumps({"calls": calls}), encoding="utf-8")
    terminal = Terminal(here, ["run", "plan.json"])
    terminal.read_until("s(kip): ")
    assert f"\n  | Seats for {'a' * 66}\r\n  | {'a' * 34}?" in terminal.seen
    terminal.type("n")
    terminal.end()


def test_approving_a_run_at_a_terminal_shows_what_it_asks_by_now(
    here: Path, ideabridge: Run
) -> None:
    (here / "tools.py").write_text(
        "from ideabridge.tools import tool\n\n@tool\ndef pay(to: str) -> str:\n    return to\n",
        encoding="utf-8",
    )
    (here / "pay.json").write_text(
        json.dumps({"calls": [{"_tool": "pay", "to": "Eve"}]}), encoding="utf-8"
    )
    answer = json.loads(ideabridge("run", "pay.json", "--tools", "tools.py", "--json").stdout)
    decide = ["approvals", "decide", "approve", answer["run"], "--tools", "tools.py"]

    terminal = Terminal(here, decide)
    terminal.read_until("approve this? [y/N]:")
    assert '| to         "Eve"' in terminal.seen
    terminal.type("n")
    code, _ = terminal.end()
    assert code == 130
    assert "left waiting" in terminal.seen
    assert ideabridge(*decide).returncode == 0
