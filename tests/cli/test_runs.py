"""`ideabridge resume` and `ideabridge runs list`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from ideabridge.server.main import main
from tests import preloaded
from tests.server.serving import call, over_stdio, structured, text
from tests.trusting import write_own, write_trusted

from .conftest import EXECUTABLE
from .terminal import Terminal, at_terminal

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
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    write_own({"approval": "allow_all"})
    os.mkfifo(project / "pipe")
    return project


def killed(project: Path, plan: dict[str, Any], *words: str) -> None:
    """`ideabridge run`, killed in its call; the next time the call ends."""
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    command = preloaded.python(EXECUTABLE, "run", "plan.json", *words)
    with subprocess.Popen(command, cwd=project, stderr=subprocess.DEVNULL) as process:
        assert (project / "pipe").read_text() == plan["calls"][0]["name"] + " "
        os.kill(preloaded.number(process), signal.SIGKILL)
    (project / "again").touch()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["runs", "list", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def test_a_killed_run_is_resumed_and_followed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(here, LOOK)
    [run] = listed(capsys)
    assert (run["status"], run["kind"], run["caller"], run["title"]) == (
        "interrupted",
        "plan",
        "local",
        "look",
    )
    assert run["reason"] == "the process that was working on it has ended"
    assert listed(capsys, "--status", "running") == []
    assert [one["run"] for one in listed(capsys, "--status", "interrupted")] == [run["run"]]
    for words in (["list"], ["show", "last"]):
        assert main(["runs", *words]) == 0
        printed = capsys.readouterr()
        assert "interrupted" in printed.out
        assert "the process that was working on it has ended" in printed.out
        assert "ideabridge resume" in printed.err

    descriptor = os.open(here / "pipe", os.O_RDWR)
    try:
        assert main(["resume", run["run"][:12]]) == 0
    finally:
        os.close(descriptor)

    printed = capsys.readouterr()
    assert printed.out == "look\n"
    assert [line.split()[:3] for line in printed.err.split("\n")[:2]] == [
        ["▶", "0", "look"],
        ["✓", "0", "look"],
    ]
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
        (
            ["--after", run["run"], "--status", "done"],
            f"no run with the status done comes after {run['run']}",
        ),
        (["--status", "failed"], "no run has the status failed"),
    ):
        assert main(["runs", "list", *words]) == 0
        assert told in capsys.readouterr().err


def test_what_must_not_run_twice_is_asked_about(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(here, SEND)
    [run] = listed(capsys)
    # Nobody is at a terminal to answer, so the run waits.
    assert main(["resume", run["run"], "--json"]) == 4
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert answer["status"] == "needs_approval"
    assert answer["approvals"][0]["choices"] == ["retry", "skip", "value"]
    assert "outcome unknown" in printed.err
    assert listed(capsys)[0]["status"] == "needs_approval"
    assert main(["approvals", "decide", "skip", "last", "--reason", "ask them"]) == 1
    assert "skipped by the command line: ask them" in capsys.readouterr().err
    [run] = listed(capsys)
    assert (run["status"], run["errors"]) == ("done", 1)
    assert main(["runs", "list"]) == 0
    assert "done, 1 error" in capsys.readouterr().out


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
        # A single letter is not a value, so the question is asked again.
        terminal.type(typed)
        if typed == "v":
            terminal.read_until("v(alue) JSON: ")
            terminal.type("v it was sent")

        ended, out = terminal.end()
    finally:
        os.close(descriptor)

    answer = json.loads(out)
    assert (ended, answer["status"], answer["state"]) == (code, "done", state)
    assert ("skipped by the person at the terminal: ask them" in str(answer["errors"])) is (
        typed[0] == "s"
    )


def test_what_cannot_be_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(here, LOOK)
    assert main(["resume", "run_none"]) == 2
    assert "unknown run 'run_none'" in capsys.readouterr().err
    [run] = listed(capsys)
    (here / "tools.py").write_text(
        TOOLS.replace("name: str", "name: str, place: str = ''"), encoding="utf-8"
    )
    configuration = {"store": "store.sqlite", "tools": ["tools.py"]}
    write_trusted(here, configuration)
    assert main(["resume", run["run"]]) == 1
    assert "its tool 'look' has changed since the run began" in capsys.readouterr().err
    [run] = listed(capsys)
    assert run["status"] == "interrupted"
    assert "its tool 'look' has changed since the run began" in run["reason"]
    (here / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(here, configuration)
    (here / "again").unlink()
    command = preloaded.python(EXECUTABLE, "resume", run["run"])
    with subprocess.Popen(
        command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert (here / "pipe").read_text() == "look "
        assert main(["resume", run["run"]]) == 1
        assert "is currently driven by another process" in capsys.readouterr().err
        process.kill()


def test_a_run_is_named_by_a_beginning_or_as_the_last(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        plan = {"calls": [{"_tool": "count", "items": [number], "_outputPath": "n"}]}
        (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        assert main(["run", "plan.json", "--json"]) == 0

    capsys.readouterr()
    last, first = (one["run"] for one in listed(capsys))
    for word, named in (("last", last), (first[:14], first), (first[4:14], first)):
        assert main(["runs", "show", word, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["run"] == named
        assert main(["ideas", "show", word, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["meta"]["run"] == named

    assert main(["runs", "show", "run_"]) == 2
    assert f"several runs begin with 'run_': {last}, {first}" in capsys.readouterr().err
    assert main(["runs", "show", "run_x"]) == 2
    assert "unknown run 'run_x'" in capsys.readouterr().err
    assert main(["runs", "fork", "las", "--at", "1"]) == 2
    assert "unknown run 'las'" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_of_runs_cuts_no_id(
    here: Path, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    send = {"_id": "sent", "_tool": "send", "name": "x"}
    # The title of a run names its tools, so this makes a long one.
    plan: dict[str, Any] = {
        "calls": [
            send,
            {"_tool": "count", "items": []},
            {"_tool": "look", "name": "x", "_after": ["sent"]},
        ]
    }
    write_own({})
    (here / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["run", "plan.json", "--json"]) == 4
    # These are the longest texts about the state of a run, and the longest events.
    wrong = {"_tool": "pick", "data": "a", "path": "abs(@)"}
    failing: dict[str, Any] = {
        "calls": [wrong, {**wrong, "_outputPath": "a", "data": "word " * 40}]
    }
    (here / "plan.json").write_text(json.dumps({**failing, "output": "†state.a"}), encoding="utf-8")
    assert main(["run", "plan.json", "--json"]) == 1
    capsys.readouterr()
    failed, waiting = listed(capsys)
    shown = at_terminal(here, "runs", "list", columns=columns).split("\n")
    assert any(line.split()[:3] == [waiting["run"], "needs_approval", "plan"] for line in shown)
    assert any(
        line.split()[:5] == [failed["run"], "failed,", "3", "errors", "plan"] for line in shown
    )
    assert max(map(len, shown)) <= columns
    story = at_terminal(here, "runs", "show", "last", columns=columns).split("\n")
    assert any("word word" in line for line in story)
    assert max(map(len, story)) <= columns


def test_doctor_counts_the_latest_runs_in_the_singular_and_the_plural(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own({})
    call = {"_tool": "send", "_outputPath": "sent", "name": "x"}
    (here / "plan.json").write_text(json.dumps({"calls": [call]}), encoding="utf-8")
    for words in ("1 needs approval", "2 need approval"):
        assert main(["run", "plan.json", "--json"]) == 4
        main(["doctor"])
        assert f"latest runs: {words};" in capsys.readouterr().out


def test_a_run_that_waits_or_was_left_is_cancelled(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(here, SEND)
    assert main(["doctor"]) == 0
    assert "latest runs: 1 interrupted" in capsys.readouterr().out
    assert main(["runs", "cancel", "last"]) == 0
    [run] = listed(capsys)
    assert (run["status"], run["reason"]) == ("cancelled", "cancelled at the command line")
    assert main(["runs", "cancel", "last"]) == 2
    assert "has ended (cancelled); there is nothing to cancel" in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_host_is_told_that_a_run_was_left(here: Path) -> None:
    def serve(configuration: Path) -> list[str]:
        return preloaded.python(EXECUTABLE, "serve", "--project", str(configuration.parent))

    more = "from ideabridge.tools import tool\n@tool\nasync def more() -> str:\n    return 'more'\n"
    (here / "more.py").write_text(more, encoding="utf-8")

    async with over_stdio(here / "ideabridge.json", "2026-07-28", serve) as client:
        # When it starts, the server resumes every run that was left behind before.
        assert structured(await client.call_tool("check_run", {})) == {"runs": []}
        # The run belongs to another configuration, so the server does not resume it by itself.
        await anyio.to_thread.run_sync(killed, here, SEND, "--tools", "more.py")
        result = await client.call_tool("check_run", {})
        [run] = structured(result)["runs"]
        assert (run["status"], run.get("reason")) == (
            "interrupted",
            "the process that was working on it has ended",
        )
        assert "check_run with this run continues it" in text(result)
        # Asking for the run resumes it, and the call that must not run twice becomes a question.
        assert (await call(client, "check_run", run=run["run"]))["status"] == "needs_approval"

        # This server cannot continue a run whose tool it does not have.
        (here / "again").unlink()
        calls = [*LOOK["calls"], {"_tool": "more"}]
        await anyio.to_thread.run_sync(killed, here, {"calls": calls}, "--tools", "more.py")
        [run, _] = structured(await client.call_tool("check_run", {}))["runs"]
        for _ in range(2):
            result = await client.call_tool("check_run", {"run": run["run"]})
            assert structured(result)["status"] == "interrupted"
            assert "its tool 'more' is missing here" in structured(result)["reason"]
            assert (
                "This server does not continue it as long as that reason holds. Afterwards, "
                f'check_run {{"run": "{run["run"]}"}} continues it'
            ) in text(result)

        result = await client.call_tool("check_run", {})
        assert "its tool 'more' is missing here" in structured(result)["runs"][0]["reason"]
        assert "check_run with this run continues it, or says why it cannot" in text(result)
