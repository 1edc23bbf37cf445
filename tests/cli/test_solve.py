"""`ideabridge solve` and `ideabridge doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main
from tests import keyrings
from tests.trusting import write_trusted

from .conftest import Run
from .terminal import Terminal

ARGUMENTS = [
    "solve",
    "Count the names.",
    "-i",
    'names=["Ada", "Grace"]',
    "--output-schema",
    '{"type": "integer"}',
    "-t",
    "count",
]
WRONG = '{"calls": [{"_tool": "cuont", "items": "†input.names"}]}\n'
FIRST = (
    '{"calls": [{"_tool": "count", "items": "†input.names",\n '
    '"_outputPath": "n"}], "output": null}\n'
)
SECOND = '{"output": "†state.n"}\n'
LOOKS = '{"program": "import tools\\nprint(await tools.count(items=input[\'names\']))"}\n'
COUNTS = '{"program": "import tools\\nawait tools.count(items=input[\'names\'])"}\n'


def test_by_turns_solutions_are_read_from_standard_input(ideabridge: Run) -> None:
    done = ideabridge(*ARGUMENTS, typed=WRONG + FIRST + SECOND)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "mind: turns (no model is configured here" in done.stderr
    assert "unknown tool 'cuont'. Did you mean 'count'?" in done.stderr
    assert done.stderr.count("schema: {") == 1
    assert "turn 1" in done.stderr


def test_a_person_at_a_terminal_sees_the_tools_by_their_parameters(project: Path) -> None:
    terminal = Terminal(project, ARGUMENTS)
    terminal.read_until("> ")
    assert "tool: count(items, [by])  Count items" in terminal.seen
    assert 'output: {"type":"integer"}' in terminal.seen
    assert "schema: {" not in terminal.seen
    terminal.interrupt()
    code, _ = terminal.end()
    assert code == 130
    # There was no call, so no table of calls is left.
    assert not [line for line in terminal.screen() if "0 of 0 calls" in line]


def test_a_run_whose_solutions_end_waits_and_is_resumed(ideabridge: Run) -> None:
    waiting = ideabridge(*ARGUMENTS, "--json", typed=FIRST)
    assert waiting.returncode == 4
    told: dict[str, Any] = json.loads(waiting.stdout)
    assert (told["status"], told["turn"]) == ("needs_solution", 1)
    assert f"ideabridge resume {told['run']}" in ideabridge("resume", told["run"]).stderr
    done = ideabridge("resume", told["run"], typed=SECOND)
    assert (done.returncode, done.stdout) == (0, "2\n")


def test_an_output_is_told_also_where_it_cannot_be_recorded(ideabridge: Run, project: Path) -> None:
    nowhere = ideabridge(*ARGUMENTS, "--record", "nowhere/recording.json", typed=FIRST + SECOND)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert f"--record: {project}/nowhere is not a folder" in nowhere.stderr
    (project / "taken.json").mkdir()
    done = ideabridge(*ARGUMENTS, "--record", "taken.json", typed=FIRST + SECOND)
    assert (done.returncode, done.stdout) == (1, "2\n")
    assert "--record: taken.json cannot be written to: Is a directory" in done.stderr
    told: dict[str, Any] = json.loads(
        ideabridge(*ARGUMENTS, "--record", "taken.json", "--json", typed=FIRST + SECOND).stdout
    )
    assert (told["output"], told["recorded"]) == (2, None)


def test_programs_are_recorded_and_replayed(ideabridge: Run) -> None:
    done = ideabridge(*ARGUMENTS, "--record", "recording.json", typed=LOOKS + COUNTS)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert 'write {"calls": [...], "output": ...}, or {"program": TEXT}' in done.stderr
    assert "The last program printed:\n2" in done.stderr
    again = ideabridge(*ARGUMENTS, "--replay", "recording.json", "--store", "other.sqlite")
    assert (again.returncode, again.stdout) == (0, "2\n"), again.stderr


def test_what_was_recorded_is_replayed_and_a_miss_shows_the_difference(ideabridge: Run) -> None:
    done = ideabridge(*ARGUMENTS, "--record", "recording.json", typed=FIRST + SECOND)
    assert done.returncode == 0
    again = ideabridge(*ARGUMENTS, "--replay", "recording.json", "--store", "other.sqlite")
    assert (again.returncode, again.stdout) == (0, "2\n")
    assert "mind: recorded (the recording recording.json is configured here)" in again.stderr
    missed = ideabridge(
        *ARGUMENTS, "-i", 'names=["Ada"]', "--replay", "recording.json", "--store", "other.sqlite"
    )
    assert missed.returncode == 1
    assert "no recorded solution answers request" in missed.stderr
    assert '-        "Grace"' in missed.stderr


def test_a_command_line_that_means_nothing_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, told in (
        (["--mind", "model"], "no model is configured here; expected 'auto' or 'turns'"),
        (["--replay", "nowhere.json"], "nowhere.json cannot be read"),
        (["--replay", "x", "--mind", "turns"], "--replay cannot be combined with"),
        (["--model", "gpt"], "--model: expected PROVIDER:MODEL"),
        (["-t", "no_such_tool"], "nothing matches"),
        (["--limit", "requests=0"], "requests"),
    ):
        assert main([*ARGUMENTS[:2], *words]) in (2, 3)
        assert told in capsys.readouterr().err


def test_the_doctor_tells_what_is_there_and_what_is_wrong(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = {one["topic"]: one["text"] for one in told["findings"]}
    assert told["wrong"] == 0
    assert "ideabridge" in found["program"]
    assert found["mind"].startswith("sampling in clients that declare it, otherwise turns")
    assert {"configuration", "rules", "store", "servers", "other clients"} <= set(found)

    (project / ".mcp.json").write_text('{"mcpServers": {"ideabridge": {"command": "x"}}}')
    configuration = {
        "mcpServers": {"gone": {"command": "no-such-program"}},
        "tools": ["missing.py"],
    }
    write_trusted(project, configuration)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert "no-such-program" in shown.out
    assert "missing.py" in shown.out
    assert "has ideabridge in" in shown.out
    # The third one is the client's own program.
    assert "3 of these are wrong" in shown.err

    (project / "ideabridge.json").write_text('{"aproval": {}}')
    assert main(["doctor"]) == 1
    assert "unknown key" in capsys.readouterr().out


def test_the_doctor_tells_which_model_answers_and_what_it_lacks(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def mind(configuration: dict[str, Any]) -> dict[str, Any]:
        write_trusted(project, configuration)
        main(["doctor", "--json"])
        findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
        return next(one for one in findings if one["topic"] == "mind")

    keyrings.without_backend(monkeypatch)
    told = mind({"model": "openai:gpt-5-mini"})
    assert told["state"] == "wrong"
    assert "no key: set OPENAI_API_KEY in the environment" in told["text"]
    assert "the package keyring has no backend on this system" in told["text"]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    told = mind({"model": "openai:gpt-5-mini", "limits": {"cost": 1.0}})
    assert told["text"] == "model: openai:gpt-5-mini is configured here (it was not asked)"
    assert "hint" not in told
    own = {"name": "openai:gpt-4o", "base_url": "http://127.0.0.1:8080/v1"}
    told = mind({"model": own, "limits": {"cost": 1.0}})
    assert "gpt-4o at http://127.0.0.1:8080/v1" in told["text"]
    assert "limits.cost has no effect" in told["hint"]
