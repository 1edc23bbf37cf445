"""`ideabridge runs show` and `runs fork`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.server.main import main
from tests.trusting import write_trusted

TOOLS = '''
from pathlib import Path

from ideabridge.tools import ActivityError, tool


def note(text: str) -> None:
    with Path("ran.txt").open("a") as file:
        file.write(text + " ")


@tool(read_only=True)
def look(name: str) -> str:
    """Look."""
    note("look")
    if name == "nothing":
        raise ActivityError("nothing is there")
    return f"seen {name}"


@tool(read_only=False)
def send(text: str) -> str:
    """Send."""
    note("send")
    return text.upper()
'''
LOOK = {"_tool": "look", "name": "†input.name", "_outputPath": "a"}
PLAN = {
    "calls": [
        LOOK,
        {"_tool": "send", "text": "†state.a", "_outputPath": "b"},
        {"_tool": "look", "name": "†input.last || †state.b", "_outputPath": "c"},
    ],
    "input": {"name": "x"},
    "output": "†state.c",
}


@pytest.fixture
def here(project: Path) -> Path:
    """A project in which a plan has run."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    (project / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    return project


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def ran(here: Path) -> str:
    """What ran since this was asked last."""
    file = here / "ran.txt"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    file.unlink(missing_ok=True)
    return text.strip()


def a_run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    main(["run", "plan.json", "--json", *words])
    return told(capsys)["run"]


def test_a_run_is_shown_with_its_events_calls_and_errors(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(capsys, "--allow-all", "--input", "last=nothing")
    assert main(["runs", "show", run, "--json"]) == 0
    answer = told(capsys)
    assert [one["number"] for one in answer["events"]] == list(range(1, len(answer["events"]) + 1))
    assert all(one["time"].endswith("+00:00") for one in answer["events"])
    assert [one["status"] for one in answer["calls"]] == ["done", "done", "failed"]
    assert answer["calls"][1]["parameters"] == {"text": "seen x"}
    assert answer["calls"][1]["value"] == "SEEN X"
    assert "nothing is there" in answer["errors"][0]["error"]["message"]
    assert main(["runs", "show", run]) == 0
    out = capsys.readouterr().out
    assert '▶ 1 send {"text":"seen x"}' in out
    assert '✓ 1 send "SEEN X"' in out
    assert "✗ 2 look" in out
    assert "calls: 2 done, 1 failed; tokens: 0" in out


def test_a_program_is_in_the_story(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "look.py").write_text("import tools\nprint(await tools.look(name='thing'))\n1 / 0")
    capsys.readouterr()
    assert main(["run", "look.py", "--json"]) == 1
    assert main(["runs", "show", told(capsys)["run"]]) == 0
    out = capsys.readouterr().out
    for line in (
        "a program of 3 lines",
        'printed: "seen thing',
        'the program ends with an error: "line 3: ZeroDivision',
    ):
        assert line in out


def test_approvals_are_in_the_story(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(capsys)
    assert main(["runs", "show", run]) == 0
    out = capsys.readouterr().out
    assert "run " + run + ": needs_approval" in out
    assert '? 1 send asks for approval: {"_tool":"send","_outputPath":"b","text":"seen x"}' in out


def test_what_a_mind_was_told_stands_at_each_point(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def solve() -> tuple[str, list[list[dict[str, Any]]]]:
        seen: list[list[dict[str, Any]]] = []
        async with Bridge(load_configuration(project=here)) as bridge:
            run = await bridge.solve("Look twice.", tools=["look"])
            for turn in range(2):
                assert run.runner.request is not None
                seen.append([dict(one) for one in run.runner.request.texts])
                output = "done" if turn else None
                calls: Any = [{"_tool": "look", "name": f"thing {turn}", "_outputPath": f"p{turn}"}]
                run.submit(turn, {"calls": calls, "output": output})
                await run.wait()
            return run.id, seen

    run, seen = anyio.run(solve)
    assert main(["runs", "show", run, "--json"]) == 0
    answer = told(capsys)
    asked = [one["number"] for one in answer["events"] if one["event"]["event"] == "request_made"]
    assert len(answer["ideas"]) == 2
    for turn, number in enumerate(asked):
        for at in (number, number + 1):
            assert main(["runs", "show", run, "--at", str(at), "--json"]) == 0
            moment = told(capsys)
            assert moment["context"] == seen[turn]
            assert moment["exact"] is True
            assert moment["request"] == answer["events"][number - 1]["event"]["request"]

    assert main(["runs", "show", run, "--at", str(asked[1])]) == 0
    out = capsys.readouterr().out
    assert "request 1, as the mind saw it" in out
    assert "Look twice." in out
    assert '"p0": "seen thing 0"' in out
    assert main(["runs", "show", run, "--at", "99"]) == 2
    assert "--at: expected 1 to " in capsys.readouterr().err


def number_of(capsys: pytest.CaptureFixture[str], run: str, name: str, call: int) -> str:
    assert main(["runs", "show", run, "--json"]) == 0
    found = [
        one["number"]
        for one in told(capsys)["events"]
        if one["event"]["event"] == name and one["event"].get("call") == call
    ]
    return str(found[0])


def test_a_fork_goes_on_with_other_input(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(capsys, "--allow-all")
    assert ran(here) == "look send look"
    at = number_of(capsys, run, "call_finished", 1)
    assert main(["runs", "fork", run, "--at", at, "--input", "last=moon"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "seen moon\n"
    assert ran(here) == "look"
    (here / "input.json").write_text('{"last": "sun"}', encoding="utf-8")
    assert main(["runs", "fork", run, "--at", at, "--input", "input.json", "--json"]) == 0
    fork = told(capsys)
    assert fork["output"] == "seen sun"
    assert main(["runs", "show", fork["run"], "--json"]) == 0
    assert told(capsys)["forked_from"] == {"run": run, "at": int(at)}
    assert main(["runs", "show", run]) == 0
    assert fork["run"] in capsys.readouterr().out


def test_a_fork_asks_for_what_has_not_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(capsys, "--allow-all")
    at = number_of(capsys, run, "call_finished", 0)
    ran(here)
    assert main(["runs", "fork", run, "--at", at, "--json"]) == 4
    assert told(capsys)["approvals"][0]["call"]["text"] == "seen x"
    assert ran(here) == ""


def test_a_fork_with_another_solution(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(capsys, "--allow-all")
    (here / "other.json").write_text(
        json.dumps({"calls": [LOOK], "output": "†state.a"}), encoding="utf-8"
    )
    assert main(["runs", "fork", run, "--at", "3", "--solution", "other.json", "--json"]) == 0
    assert told(capsys)["output"] == "seen x"
    (here / "other.py").write_text("f'{1 + 1} programs'", encoding="utf-8")
    assert main(["runs", "fork", run, "--at", "3", "--solution", "other.py", "--json"]) == 0
    assert told(capsys)["output"] == "2 programs"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["runs", "show", "run_none"], "unknown run 'run_none'"),
        (["runs", "fork", "run_none", "--at", "1"], "unknown run 'run_none'"),
        (["runs", "fork", "RUN", "--at", "77"], "expected 1 to "),
        (["runs", "fork", "RUN", "--at", "2", "--solution", "none.json"], "cannot be read"),
        (["runs", "fork", "RUN", "--at", "2", "--input", "none.json"], "expected a JSON object"),
        (["runs", "fork", "RUN"], "Missing option '--at'"),
    ],
)
def test_what_cannot_be(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    run = a_run(capsys, "--allow-all")
    assert main([run if word == "RUN" else word for word in words]) == 2
    assert why in capsys.readouterr().err
