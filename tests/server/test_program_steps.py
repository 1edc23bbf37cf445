"""Programs with real servers over stdio: the text of their answers, and programs in plans
after `kill -9`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSONObject

from .serving import ERAS, TOOLS, Gate, call, configured, git_module, in_memory, over_stdio, text
from .test_one_store import SLOW

pytestmark = pytest.mark.anyio

PROGRAM = """
import git, tools
await git.git_add(repo_path=input["repo"], files=["a.txt"])
await git.git_commit(repo_path=input["repo"], message="from a program")
said = await tools.{wait}(gate=input["gate"])
log = await git.git_log(repo_path=input["repo"])
[said, str(log).count("from a program")]
"""


def git(repository: Path, *arguments: str) -> str:
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", "-C", str(repository), *name, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def repository(folder: Path) -> Path:
    """A repository with one commit, and one file that is not added."""
    made = folder / "repo"
    made.mkdir()
    git(made, "init", "-q")
    git(made, "config", "user.name", "t")
    git(made, "config", "user.email", "t@example.org")
    git(made, "commit", "-q", "--allow-empty", "-m", "first")
    (made / "a.txt").write_text("a")
    return made


def events_of(folder: Path, run: str) -> list[JSONObject]:
    with Store.open(folder / "ideas.sqlite") as store:
        return [event for _, event in store.runs.events(run)]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_text_of_an_answer_has_what_was_printed(tmp_path: Path, mode: str) -> None:
    async with in_memory(configured(tmp_path, tools=[str(TOOLS)]), mode) as client:
        told = text(
            await client.call_tool("run_plan", {"program": "print('one')\nprint('idea: two')\n3"})
        )
        assert told.endswith("output: 3\nprinted:\n  one\n  idea: two")
        failed = text(await client.call_tool("run_plan", {"program": "print('before')\n[][1]"}))
        assert "printed:\n  before\nerrors:\n- line 2: IndexError" in failed
        long = text(await client.call_tool("run_plan", {"program": "print('x' * 50_000)"}))
        assert f"{'x' * 16_000}..." in long
        assert "(50,001 characters; to read all of it, make it the output)" in long


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("wait", ["hold", "pay"])
async def test_a_program_in_a_plan_goes_on_after_a_kill(
    tmp_path: Path, mode: str, wait: str
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    repo = repository(tmp_path)
    gate = Gate(tmp_path)
    configuration = configured(
        tmp_path,
        tools=[str(TOOLS), "slow.py"],
        mcpServers={"git": git_module(repo)},
        approval="allow_all",
    )
    given = {"repo": str(repo), "gate": str(gate.path)}
    plan: dict[str, Any] = {
        "calls": [
            {"_tool": "process", "_outputPath": "pid"},
            {
                "_tool": "run_program",
                "program": PROGRAM.format(wait=wait),
                "input": given,
                "_outputPath": "made",
            },
        ],
        "output": "†state.made",
    }
    async with over_stdio(configuration, mode) as client:
        told = await call(client, "run_plan", **plan, wait_s=0)
        process = await call(client, "run_plan", calls=[{"_tool": "process"}], output="†results.0")
        run, room = told["run"], f"{told['run']}.1"
        with anyio.fail_after(20):
            # The program has committed, and is waiting at the gate.
            while [one["event"] for one in events_of(tmp_path, room)].count("call_started") < 3:
                await call(client, "check_run", run=run, wait_s=0)

        os.kill(process["output"], signal.SIGKILL)

    async with over_stdio(configuration, mode) as client:
        with anyio.fail_after(20):
            told = await call(client, "check_run", run=run, wait_s=0)
            while wait == "pay" and told["status"] == "running":
                told = await call(client, "check_run", run=run, wait_s=1)

            if wait == "pay":
                # Nobody knows whether it paid, so a person is asked, in the run of the plan.
                assert told["status"] == "needs_approval"
                (asked,) = told["approvals"]
                gate.open()
                decisions = [{"approval": asked["approval"], "decision": "retry"}]
                await call(client, "decide_approval", run=run, decisions=decisions)
            else:
                gate.open()

            while told["status"] != "done":
                told = await call(client, "check_run", run=run, wait_s=5)

    gate.close()
    assert told["output"] == ["open", 1]
    assert git(repo, "log", "--format=%s").splitlines() == ["from a program", "first"]
    finished = [one for one in events_of(tmp_path, room) if one["event"] == "call_finished"]
    assert [one["call"] for one in finished] == [0, 1, 2, 3]
