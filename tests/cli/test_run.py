from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.store.store import Store
from ideabridge.server.main import main
from tests import preloaded
from tests.trusting import write_trusted

from .conftest import EXECUTABLE, Run
from .terminal import Terminal, at_terminal

TOOLS = '''
from pathlib import Path

import anyio

from ideabridge.tools import ActivityError, tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def fail(why: str) -> str:
    """Fail."""
    raise ActivityError(why)


@tool(read_only=False)
def note(text: str) -> str:
    """Write something down."""
    Path("noted.txt").write_text(text, encoding="utf-8")
    return text


@tool(read_only=True)
async def forever() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""
'''

SUM = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "first"},
        {"_tool": "add", "a": "†state.first", "b": "†state.first", "_outputPath": "twice"},
    ],
    "input": {"a": 1, "b": 2},
    "output": {"sum": "†state.first", "twice": "†state.twice"},
}
NOTE = {"calls": [{"_tool": "note", "text": "hello"}]}


@pytest.fixture
def here(project: Path) -> Path:
    """A project with tools and plans."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    (project / "sum.json").write_text(json.dumps(SUM), encoding="utf-8")
    (project / "note.json").write_text(json.dumps(NOTE), encoding="utf-8")
    return project


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_run_prints_the_result(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sum.json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"sum": 3, "twice": 6}
    lines = [line for line in printed.err.split("\n") if line]
    assert lines[-1].startswith("run_")
    assert ": done, idea " in lines[-1]
    assert [line.split()[:3] for line in lines[:4]] == [
        ["▶", "0", "add"],
        ["✓", "0", "add"],
        ["▶", "1", "add"],
        ["✓", "1", "add"],
    ]


def test_run_for_machines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sum.json", "--json"]) == 0
    answer = told(capsys)
    assert answer["status"] == "done"
    assert answer["output"] == {"sum": 3, "twice": 6}
    assert answer["errors"] == []
    assert [call["status"] for call in answer["calls"]] == ["done", "done"]
    assert all(call["seconds"] >= 0 for call in answer["calls"])


def test_run_as_a_process(here: Path, ideabridge: Run) -> None:
    done = ideabridge("run", "-", "--json", "--input", "a=5", typed=json.dumps(SUM))
    assert done.returncode == 0
    assert json.loads(done.stdout)["output"] == {"sum": 7, "twice": 14}
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--input", '{"a": 10, "b": 20}'], 30),
        (["-i", "a=10"], 12),
        (["--input", "@input.json"], 300),
        (["--input", "@input.json", "-i", "b=1"], 101),
    ],
)
def test_inputs(
    words: list[str], expected: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "input.json").write_text('{"a": 100, "b": 200}', encoding="utf-8")
    assert main(["run", "sum.json", "--json", *words]) == 0
    assert told(capsys)["output"]["sum"] == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "sum.json", "--input", "nonsense"],
            "--input: expected a JSON object, @FILE or key=value",
        ),
        (["run", "sum.json", "--input", "{1"], "--input is not JSON"),
        (["run", "sum.json", "--input", "@missing"], "missing cannot be read"),
        (["run", "bad.json"], "bad.json is not JSON: Expecting value at line 1, column 11"),
        (["run", "sum.json", "--tools", "nothing.py"], "nothing.py is not a file"),
        (["run", "sum.json", "--project", "nowhere"], "nowhere is not a folder"),
        (["run", "sum.json", "--config", "bad.json"], "bad.json is not JSON"),
        (["ideas", "show", "nothing_here"], "no idea 'nothing_here'"),
        (["ideas", "call", "nothing_here"], "nothing_here"),
        (["ideas", "list", "--after", "nonsense"], "cursor"),
        (["servers", "test", "nothing_here"], "no server 'nothing_here' is configured"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.json").write_text('{"calls": nope}', encoding="utf-8")
    Store.open(here / "store.sqlite").close()
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.startswith("ideabridge: ")
    assert printed.err.count("\n") == 1


def test_a_malformed_plan_tells_every_fault_and_runs_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {
        "calls": [
            {"_tool": "note", "text": "x"},
            {"_tool": "ad", "a": 1, "b": 2},
            {"_tool": "add", "a": "x", "b": 2},
        ]
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json", "--allow-all"]) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert all(line.startswith("ideabridge: ") for line in lines)
    assert any("calls[1]" in line for line in lines)
    assert any("calls[2]" in line for line in lines)
    assert not (here / "noted.txt").exists()


def test_errors_for_machines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "missing.json", "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["kind"] == "UsageError"
    assert json.loads(printed.out)["exit"] == 2
    assert printed.err.startswith("ideabridge: ")


def test_a_failed_call(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {
        "calls": [
            {"_tool": "fail", "why": "no \x1b[31mpaper"},
            {"_tool": "add", "a": 1, "b": 1, "_outputPath": "n"},
        ]
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["state"] == {"n": 2}
    assert "\x1b" not in printed.err
    assert "ideabridge: fail: no \\u001b[31mpaper\n" in printed.err


def test_a_dry_run_is_readable_at_a_terminal_and_json_elsewhere(
    here: Path, ideabridge: Run
) -> None:
    plan = {
        "calls": [
            {"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "n"},
            {"_tool": "fail", "why": "x"},
            {"_tool": "note", "text": "†state.n"},
        ]
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    out = at_terminal(here, "run", "plan.json", "--dry-run")
    assert [line.strip() for line in out.splitlines()] == [
        "3 calls in 2 steps; nothing was run",
        "step 1: 2 calls at the same time",
        "0  add",
        "reads †input.a",
        "writes †state.n",
        "1  fail",
        "writes †results.1",
        "step 2",
        "2  note",
        "reads †state.n",
        "writes †results.2",
        "waits for 0",
        "keeps its order after 1",
        "asks for approval: tool 'note' declares that it changes things",
        "missing input: †input.a; give it with -i a=...",
        "needs approval: 2 (note); you are asked at a terminal; --allow-all runs them",
    ]
    told_ = json.loads(ideabridge("run", "plan.json", "--dry-run").stdout)
    assert told_["layers"] == [[0, 1], [2]]
    assert told_["calls"][2]["asks"] == "tool 'note' declares that it changes things"


def test_dry_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "note.json", "--dry-run", "--json"]) == 0
    told(capsys)
    assert not (here / "noted.txt").exists()


def test_drawings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "note.json", "--draw", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart TD\n")
    assert main(["run", "note.json", "--draw", "text", "--json"]) == 0
    assert "! not read-only" in told(capsys)["drawing"]
    assert main(["run", "note.json", "--dry-run", "--draw", "text", "--json"]) == 0
    assert {"layers", "drawing"} <= told(capsys).keys()
    assert main(["run", "note.json", "--draw", "svg"]) == 2
    assert "expected 'mermaid' or 'text', found 'svg'" in capsys.readouterr().err
    assert not (here / "noted.txt").exists()


def test_a_store_that_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "garbage.sqlite").write_text("this is no database" * 100, encoding="utf-8")
    for words in (["run", "sum.json"], ["ideas", "list"]):
        assert main([*words, "--store", "garbage.sqlite"]) == 3
        printed = capsys.readouterr()
        assert printed.err.startswith("ideabridge: ")
        assert printed.err.count("\n") == 1


def test_options_may_stand_before_the_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--store", "other.sqlite", "--allow-all", "run", "note.json", "--json"]) == 0
    told(capsys)
    assert (here / "other.sqlite").exists()
    assert not (here / "store.sqlite").exists()


def test_the_default_store_is_the_users(
    here: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "ideabridge.json").unlink()
    assert main(["run", "sum.json", "--tools", "tools.py", "--json"]) == 0
    assert [path.name for path in home.rglob("ideas.sqlite")] == ["ideas.sqlite"]


# -- approval --------------------------------------------------------------------------------------


def test_approval_without_a_terminal(here: Path, ideabridge: Run) -> None:
    done = ideabridge("run", "note.json", typed="")
    assert done.returncode == 4
    assert "approval needed" in done.stderr
    # Running the plan again would repeat what was already done, so continue the run itself.
    run = done.stderr[done.stderr.index("run_") :].split(":")[0]
    assert f"ideabridge resume {run} " in done.stderr
    assert f"ideabridge approvals decide approve {run} " in done.stderr
    assert not (here / "noted.txt").exists()
    assert ideabridge("run", "note.json", "--allow-all").returncode == 0
    assert (here / "noted.txt").read_text(encoding="utf-8") == "hello"


def test_a_person_approves(here: Path) -> None:
    terminal = Terminal(here, ["run", "note.json"])
    terminal.read_until("e(dit): ")
    assert "changes things" in terminal.seen
    terminal.type("what")
    terminal.read_until("e(dit): ")
    terminal.type("y")
    code, _ = terminal.end()
    assert code == 0
    assert (here / "noted.txt").read_text(encoding="utf-8") == "hello"


@pytest.mark.parametrize("columns", [80, 120])
def test_what_was_asked_and_answered_stays_on_the_screen(here: Path, columns: int) -> None:
    plan = {
        "calls": [
            *NOTE["calls"],
            {"_tool": "note", "text": "again", "_outputPath": "x"},
            {"_tool": "fail", "why": "x" * 200},
        ]
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    terminal = Terminal(here, ["run", "plan.json"], columns=columns)
    for _ in range(2):
        terminal.read_until("e(dit): ")
        terminal.type("y")

    code, _ = terminal.end()
    assert code == 1
    lines = terminal.screen()
    text = "\n".join(lines)
    asked = [
        number
        for number, line in enumerate(lines)
        if line == "? tool 'note' declares that it changes things"
    ]
    answered = [
        number
        for number, line in enumerate(lines)
        if line == "  run it? y(es), n(o) [reason], a(lways), r(un) [N], e(dit): y"
    ]
    assert len(asked) == len(answered) == 2
    assert lines[asked[0] + 1 : answered[0]] == [
        "  call of note",
        "    parameter  value",
        '  | text       "hello"',
    ]
    assert '  | text         "again"' in lines[asked[1] : answered[1]]
    # There is one table, at the end, with all its columns. Only a long error is cut.
    assert text.count(" calls, ") == 1
    assert lines[answered[1] + 1].startswith("3 of 3 calls, ")
    [failed] = [line for line in lines if line.startswith("✗")]
    assert failed.split()[1:4] == ["2", "fail", "failed"]
    assert failed.endswith("…")
    assert len(failed) <= columns


def test_a_person_denies(here: Path) -> None:
    terminal = Terminal(here, ["run", "note.json", "--json"])
    terminal.read_until("e(dit): ")
    terminal.type("n not on a Sunday")
    code, out = terminal.end()
    assert code == 1
    assert "not on a Sunday" in json.dumps(json.loads(out)["errors"])
    assert not (here / "noted.txt").exists()


def test_a_person_edits(here: Path) -> None:
    (here / "editor.sh").write_text('#!/bin/sh\nsed -i "s/hello/goodbye/" "$1"\n', encoding="utf-8")
    (here / "editor.sh").chmod(0o755)
    terminal = Terminal(
        here, ["run", "note.json"], {"EDITOR": str(here / "editor.sh"), "VISUAL": ""}
    )
    terminal.read_until("e(dit): ")
    terminal.type("e")
    code, _ = terminal.end()
    assert code == 0
    assert (here / "noted.txt").read_text(encoding="utf-8") == "goodbye"


def test_a_person_puts_another_call_in_its_place(here: Path, ideabridge: Run) -> None:
    terminal = Terminal(here, ["run", "note.json", "--json"], {"EDITOR": "", "VISUAL": ""})
    terminal.read_until("e(dit): ")
    terminal.type("e")
    terminal.read_until("in one line: ")
    terminal.type('{"_tool": "ad", "a": 1, "b": 2}')
    terminal.read_until("Did you mean 'add'")
    terminal.read_until("e(dit): ")
    terminal.type("e")
    terminal.read_until("in one line: ")
    terminal.type('{"_tool": "add", "a": 1, "b": 2}')
    code, out = terminal.end()
    assert code == 0
    [told_] = json.loads(out)["calls"]
    assert (told_["tool"], told_["status"]) == ("add", "done")
    assert not (here / "noted.txt").exists()


def test_a_lazy_plan_is_shown_and_asked_about_before_anything_runs(
    here: Path, ideabridge: Run
) -> None:
    terminal = Terminal(here, ["run", "--lazy", "note.json"])
    terminal.read_until("e(dit): ")
    assert "0 note" in terminal.seen
    assert "! not read-only" in terminal.seen
    terminal.type("y")
    # The plan is accepted, but the call that changes something still asks.
    terminal.read_until("e(dit): ")
    assert "hello" in terminal.seen
    assert not (here / "noted.txt").exists()
    terminal.type("y")
    code, _ = terminal.end()
    assert code == 0
    assert (here / "noted.txt").exists()
    waiting = ideabridge("run", "--lazy", "note.json", "--json")
    assert waiting.returncode == 4
    assert json.loads(waiting.stdout)["approvals"][0]["plan"]["calls"][0]["_tool"] == "note"


def test_a_lazy_plan_is_asked_about_with_the_number_of_its_instances(here: Path) -> None:
    plan = {
        "instances": {f"i{one}": {"n": one} for one in range(40)},
        "calls": [{"_tool": "add", "a": 1, "b": 2}],
    }
    (here / "many.json").write_text(json.dumps(plan), encoding="utf-8")
    terminal = Terminal(here, ["run", "--lazy", "many.json"])
    terminal.read_until("e(dit): ")
    assert "1 call for each of 40 instances" in terminal.seen
    terminal.type("n")
    terminal.end()


def test_a_lazy_plan_is_edited_or_denied_at_the_terminal(here: Path) -> None:
    (here / "editor.sh").write_text('#!/bin/sh\nsed -i "s/hello/goodbye/" "$1"\n', encoding="utf-8")
    (here / "editor.sh").chmod(0o755)
    terminal = Terminal(
        here, ["run", "--lazy", "note.json"], {"EDITOR": str(here / "editor.sh"), "VISUAL": ""}
    )
    terminal.read_until("e(dit): ")
    terminal.type("e")
    terminal.read_until("e(dit): ")
    assert "goodbye" in terminal.seen
    terminal.type("y")
    code, _ = terminal.end()
    assert code == 0
    assert (here / "noted.txt").read_text(encoding="utf-8") == "goodbye"
    terminal = Terminal(here, ["run", "--lazy", "note.json", "--json"])
    terminal.read_until("e(dit): ")
    terminal.type("n another day")
    code, out = terminal.end()
    assert code == 1
    answer = json.loads(out)
    assert answer["status"] == "cancelled"
    assert answer["reason"] == "the plan was denied by the person at the terminal: another day"


def test_a_question_nobody_answers_in_time_is_taken_back(here: Path) -> None:
    configuration = json.loads((here / "ideabridge.json").read_text(encoding="utf-8"))
    configuration["approval"] = {"timeout_seconds": 2}
    write_trusted(here, configuration)
    terminal = Terminal(here, ["run", "note.json", "--json"])
    terminal.read_until("e(dit): ")
    terminal.read_until("already settled")
    code, out = terminal.end()
    assert code == 1
    assert "denied by the timeout: nobody decided within 2 s" in json.dumps(
        json.loads(out)["errors"]
    )
    assert not (here / "noted.txt").exists()


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_run(here: Path, ideabridge: Run) -> None:
    (here / "plan.json").write_text(json.dumps({"calls": [{"_tool": "forever"}]}), encoding="utf-8")
    process = subprocess.Popen(
        [str(EXECUTABLE), "run", "plan.json"],
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "forever" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "cancelled (stopped at the terminal)" in said
    assert "Traceback" not in said
    shown = json.loads(
        ideabridge("ideas", "show", said[said.index("run_") :].split(":")[0], "--json").stdout
    )
    assert shown["status"] == "cancelled"


def test_who_reads_no_errors_any_more_does_not_end_the_run(here: Path) -> None:
    (here / "plan.json").write_text(
        json.dumps({"calls": [{"_tool": "note", "text": "hello"}]}), encoding="utf-8"
    )
    reader, writer = os.pipe()
    os.close(reader)
    words = preloaded.python(EXECUTABLE, "run", "plan.json", "--allow-all")
    done = subprocess.run(
        words, cwd=here, stdout=subprocess.PIPE, stderr=writer, text=True, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"results": {"0": "hello"}})


def test_an_output_that_takes_nothing_more_is_one_line(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        words = [str(EXECUTABLE), "run", "sum.json", "--json"]
        done = subprocess.run(
            words, cwd=here, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == "ideabridge: the output cannot be written: No space left on device\n"


# -- ideas -----------------------------------------------------------------------------------------


def test_from_a_run_to_a_tool(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*words: str, code: int = 0) -> dict[str, Any]:
        assert main([*words, "--json"]) == code, capsys.readouterr()
        return told(capsys)

    ran = ask("run", "sum.json", "--save-as", "sums")
    assert ran["published"] == {"name": "sums", "version": 1}
    called = ask("ideas", "call", "sums", "--input", '{"a": 20, "b": 1}')
    assert called["output"] == {"sum": 21, "twice": 42}
    assert (
        ask("ideas", "call", "sums", "--input", "a=1", code=2)["error"]["kind"]
        == "ValueMismatchError"
    )
    published = ask(
        "ideas",
        "publish",
        ran["run"],
        "sums_then",
        "--answer",
        "recorded",
        "-d",
        "The sum of then.",
    )
    assert published["description"].startswith("The sum of then.")
    recorded = ask("ideas", "call", "sums_then", "-i", "a=1", "-i", "b=2")
    assert (recorded["answer"], recorded["output"]) == ("recorded", {"sum": 3, "twice": 6})
    assert (
        ask("ideas", "call", "sums_then", "-i", "a=2", "-i", "b=2", code=2)["error"]["kind"]
        == "PublicationError"
    )
    names = [one["name"] for one in ask("ideas", "list", "--published")["ideas"]]
    assert names == ["sums", "sums_then"]
    shown = ask("ideas", "show", "sums")
    assert shown["id"] == ran["idea"]
    assert shown["output"] == {"sum": 3, "twice": 6}
    assert shown["publication"]["name"] == "sums"
    assert ask("ideas", "search", "add")["ideas"][0]["names"] == ["sums", "sums_then"]
    assert ask("ideas", "search", "zebra", code=1)["ideas"] == []
    ask("ideas", "unpublish", "sums_then")
    assert ask("ideas", "call", "sums_then", "-i", "a=1", "-i", "b=2", code=2)["exit"] == 2
    assert ask("ideas", "call", "sums", "-i", "a=1", "-i", "b=1")["output"]["sum"] == 2


def test_ideas_for_people(here: Path, ideabridge: Run) -> None:
    for words in (
        ["ideas", "list"],
        ["runs", "list"],
        ["resume", "run_1"],
        ["ideas", "call", "sums"],
    ):
        done = ideabridge(*words)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"{here / 'store.sqlite'}: no store exists at this path yet" in done.stderr

    assert not (here / "store.sqlite").exists()
    assert ideabridge("run", "sum.json", "--save-as", "sums").returncode == 0
    assert "no idea passes these filters" in ideabridge("ideas", "list", "--tool", "never").stderr
    assert (
        "no idea comes after this cursor"
        in ideabridge("ideas", "list", "--after", "0@2020-01-01").stderr
    )
    listed = ideabridge("ideas", "list").stdout.split("\n")
    assert listed[0].split()[:2] == ["idea", "published"]
    assert "sums" in listed[1]
    shown = ideabridge("ideas", "show", "sums").stdout
    for part in (
        "sums, version 1, answers by auto",
        "0. add -> first",
        "a: †input.a",
        '"twice": 6',
        "result (done)",
    ):
        assert part in shown

    answer = ideabridge("ideas", "call", "sums", "-i", "a=2", "-i", "b=2")
    assert json.loads(answer.stdout) == {"sum": 4, "twice": 8}


def test_ideas_travel(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sum.json", "--save-as", "sums", "--json"]) == 0
    idea = told(capsys)["idea"]
    assert main(["ideas", "export", "sums", "--output", "sums.idea.json"]) == 0
    assert (
        main(
            ["ideas", "import", "sums.idea.json", "--publish", "--store", "other.sqlite", "--json"]
        )
        == 0
    )
    assert told(capsys) == {
        "idea": idea,
        "published": True,
        "ideas": [
            {"file": "sums.idea.json", "idea": idea, "name": "sums", "version": 1, "before": None}
        ],
        "missing": [],
        "refused": [],
    }
    assert (
        main(
            ["ideas", "call", "sums", "-i", "a=2", "-i", "b=2", "--store", "other.sqlite", "--json"]
        )
        == 0
    )
    assert told(capsys)["output"]["sum"] == 4
    document = (here / "sums.idea.json").read_text(encoding="utf-8")
    (here / "tampered.json").write_text(document.replace("†input.a", "†input.b"), encoding="utf-8")
    assert main(["ideas", "import", "tampered.json", "--store", "other.sqlite"]) == 2
    assert capsys.readouterr().err.startswith("ideabridge: ")


def test_what_an_idea_takes_is_told_or_asked_for(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "sum.json", "--save-as", "sums", "--json"]) == 0
    capsys.readouterr()
    assert main(["ideas", "call", "sums", "-i", "a=3"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "ideabridge: the input of sums: b: missing, expected a number (required)",
        "ideabridge: it takes:",
        "ideabridge:   a (number)",
        "ideabridge:   b (number)",
        "ideabridge: example: ideabridge ideas call sums -i a=1 -i b=2",
    ]
    terminal = Terminal(here, ["ideas", "call", "sums", "-i", "a=3", "--json"])
    terminal.read_until("b (number): ")
    terminal.type("four")
    terminal.read_until("expected number")
    terminal.read_until("b (number): ")
    terminal.type("4")
    code, out = terminal.end()
    assert (code, json.loads(out)["output"]) == (0, {"sum": 7, "twice": 14})


def test_a_run_is_saved_as_a_tool_with_its_constants_as_parameters(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {
        "calls": [{"_tool": "add", "a": "†input.a", "b": 7, "_outputPath": "n"}],
        "input": {"a": 1},
        "output": {"n": "†state.n"},
    }
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json", "--save-as", "plus"]) == 0
    capsys.readouterr()
    assert main(["ideas", "call", "plus", "--input", "a=35", "--json"]) == 0
    assert told(capsys)["output"] == {"n": 42}
    assert main(["ideas", "call", "plus", "--input", "a=35", "--input", "b=1", "--json"]) == 0
    assert told(capsys)["output"] == {"n": 36}
    assert main(["run", "plan.json", "--save-as", "No name"]) == 2
    assert "cannot be a name" in capsys.readouterr().err


# -- modules and tools -----------------------------------------------------------------------------


@pytest.fixture
def with_modules(here: Path) -> Callable[..., None]:
    """Writes modules into the configuration."""

    def write(**modules: object) -> None:
        content = {"tools": ["tools.py"], "mcpServers": modules}
        write_trusted(here, content)

    return write


def time_server() -> dict[str, object]:
    return preloaded.module(EXECUTABLE.parent / "mcp-server-time", "--local-timezone", "UTC")


def test_modules(with_modules: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    with_modules(
        time=time_server(),
        broken={"command": "/no/such/program"},
        off={"command": "x", "disabled": True},
    )
    assert main(["servers", "list", "--json"]) == 1
    modules = {one["name"]: one for one in told(capsys)["modules"]}
    assert {name: one["state"] for name, one in modules.items()} == {
        "time": "up",
        "broken": "failed",
        "off": "disabled",
    }
    assert modules["time"]["tools"] == 2
    assert modules["time"]["server_version"]
    assert "/no/such/program" in modules["broken"]["error"]
    assert main(["tools", "list", "--json"]) == 1
    answer = told(capsys)
    assert {"add", "note", "convert_time"} <= {tool["name"] for tool in answer["tools"]}
    assert [one["module"] for one in answer["errors"]] == ["broken"]
    assert main(["servers", "test", "broken"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "connecting to 1 server: broken",
        f"ideabridge: {modules['broken']['error']}",
    ]


def test_one_module(with_modules: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    with_modules(time=time_server(), broken={"command": "/no/such/program"})
    assert main(["servers", "test", "time"]) == 0
    assert "convert_time" in capsys.readouterr().out
    words = [
        "modules",
        "test",
        "time",
        "convert_time",
        "-i",
        "source_timezone=UTC",
        "-i",
        "target_timezone=UTC",
    ]
    assert main([*words, "-i", 'time="10:30"', "--json"]) == 0
    assert told(capsys)["result"]["time_difference"] == "+0.0h"
    assert main([*words, "-a", 'time="25:99"']) == 1
    assert "Invalid time" in capsys.readouterr().err
    # What does not fit the tool's schema is named here in the same words as in all other commands.
    assert main(words) == 2
    assert (
        "parameters of convert_time: time: missing, expected text (required)"
        in capsys.readouterr().err
    )


def test_no_modules(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "list"]) == 0
    assert "servers import HOST" in capsys.readouterr().err
    assert main(["tools", "list", "numbers"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.strip().split("\n")] == [
        "tool",
        "add",
    ]
    assert main(["tools", "list", "no", "such"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "no tool has all the words no such\n")


def test_where_programs_are_off_a_program_is_refused(ideabridge: Run, project: Path) -> None:
    (project / "one.py").write_text("1")
    write_trusted(project, {"programs": False})
    for more in ((), ("--dry-run",)):
        done = ideabridge("run", "one.py", *more)
        assert done.returncode == 2
        assert "the configuration turns programs off (programs: false); write calls" in done.stderr


def test_what_a_program_prints_is_for_the_person(ideabridge: Run, project: Path) -> None:
    (project / "one.py").write_text("print('looking')\nprint('found', 2)\n[1, 2]")
    done = ideabridge("run", "one.py")
    assert json.loads(done.stdout) == [1, 2]
    assert done.stderr.splitlines()[:2] == ["looking", "found 2"]


def test_a_skipped_call_is_named_with_its_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {
        "calls": [
            {"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum || failed"},
            {"_tool": "fail", "why": "†state.failed.message"},
        ]
    }
    (here / "branch.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "branch.json"]) == 0
    why = (
        "skipped: calls[1] fail: †state.failed.message: call 0 (add) took "
        "another branch or was skipped"
    )
    printed = capsys.readouterr()
    assert why in printed.err
    run = printed.err.strip().split("\n")[-1].partition(":")[0]
    assert main(["runs", "show", run]) == 0
    assert why in " ".join(capsys.readouterr().out.split())
    assert main(["runs", "show", run, "--json"]) == 0
    assert [one["place"] for one in told(capsys)["skipped"]] == [1]
    assert main(["run", "branch.json", "--json"]) == 0
    assert [one["place"] for one in told(capsys)["skipped"]] == [1]
