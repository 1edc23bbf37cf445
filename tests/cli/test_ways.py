"""`ideabridge ideas publish --answer solve` and `ideas call`: at the command line, solutions come
on standard input.
"""

from __future__ import annotations

import json

from .conftest import Run

TASK = (
    "solve",
    "Count the names",
    "-i",
    'names=["Ada", "Grace"]',
    "--output-schema",
    '{"type": "integer"}',
)
FIRST = (
    '{"calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "n"}], "output": null}\n'
)
SECOND = '{"output": "†state.n"}\n'
CALL = ("ideas", "call", "names", "-i", 'names=["Ada", "Grace", "Alan"]')


def test_a_published_idea_is_solved_anew_by_turns(ideabridge: Run) -> None:
    told = json.loads(ideabridge(*TASK, "--json", typed=FIRST + SECOND).stdout)
    published = ideabridge("ideas", "publish", told["run"], "names", "--answer", "solve")
    assert published.returncode == 0, published.stderr
    assert "names, version 1, answers by solve" in published.stdout + published.stderr
    done = ideabridge(*CALL, typed=SECOND.replace("†state.n", "many") + FIRST + SECOND)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "how it was solved before" in done.stderr
    whole = json.loads(ideabridge(*CALL, "--json", typed=FIRST + SECOND).stdout)
    assert (whole["answer"], whole["output"]) == ("solve", 3)
    waiting = ideabridge(*CALL, "--json", typed="")
    assert json.loads(waiting.stdout)["status"] == "needs_solution"


def test_auto_runs_the_plan_each_time(ideabridge: Run) -> None:
    told = json.loads(ideabridge(*TASK, "--json", typed=FIRST + SECOND).stdout)
    assert ideabridge("ideas", "publish", told["run"], "names").returncode == 0
    first = json.loads(ideabridge(*CALL, "--json").stdout)
    assert (first["answer"], first["output"]) == ("plan", 3)
    again = json.loads(ideabridge(*CALL, "--json").stdout)
    assert (again["answer"], again["output"]) == ("plan", 3)
    assert again["run"] != first["run"]
