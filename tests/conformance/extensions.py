"""Runs the official conformance suite's scenarios of the Skills and Tasks extensions against
our own server.

    python -m tests.conformance.extensions

The server has one published idea. All checks of skills must pass. The checks of tasks are
counted: most of them call tools of the suite's own reference server, which answer with tasks, and
here only `run_plan` and `solve` do (tests/server/test_tasks.py). Those that need no such tool
must pass. The suite has no scenarios of the Apps extension. `make conformance` runs this after
the suite against servers and clients. The exit code is 1 if a check that must pass fails, and 2
if nothing can be run here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.conformance.suite import RUN_SECONDS, SUITE, CannotRunError, Outcome, node, process, read

SCENARIOS: Final = (
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "sep-2640-skills-directory",
)
COUNTED: Final = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
"""Scenarios of which the checks that pass are counted."""

WITHOUT_TOOLS: Final = frozenset(
    [
        "wire-schema-valid",
        "tasks-extension-advertised",
        "sep-2663-tasks-methods-non-declaring",
        "sep-2663-server-rejects-undeclared-client",
        "tasks-headers-reject-mismatched-method",
        "sep-2663-tasks-result-removed-method-not-found",
        "tasks-removed-tasks-list",
        "tasks-result-type-complete-on-non-task-responses",
        "sep-2663-tasks-get-invalid-task-id-32602",
    ]
)
"""Checks of tasks that need no tool of the suite's reference server."""

REVISION: Final = "2026-07-28"
PLAN: Final = {
    "calls": [{"_tool": "count", "items": "†input.items"}],
    "input": {"items": [1, 2]},
    "output": "†results.0",
}


def run(scenario: str, url: str, results: Path) -> Outcome:
    """Run one scenario: what was found in it."""
    words = [
        "--url",
        url,
        "--scenario",
        scenario,
        "--spec-version",
        REVISION,
        "--force",
        "-o",
        results,
    ]
    command = [node(), SUITE / "dist" / "index.js", "server", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    found = [outcome[1] for path in results.glob("*/") if (outcome := read(path))]
    assert len(found) == 1, f"the suite found nothing: {done.stdout[-300:]} {done.stderr[-300:]}"
    return found[0]


def passed(results: Path) -> str:
    """How many checks of a scenario passed, of those that ran."""
    checks = [
        one
        for path in results.glob("*/checks.json")
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]
    counts = Counter(str(one["status"]) for one in checks)
    return f"{counts['SUCCESS']} of {counts['SUCCESS'] + counts['FAILURE']} checks pass"


def main() -> int:
    """Run the scenarios, and print a line for each."""
    ideabridge = str(Path(sys.executable).parent / "ideabridge")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = ["--store", str(folder / "ideas.sqlite")]
        (folder / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
        publish = [ideabridge, "run", str(folder / "plan.json"), "--save-as", "count_them", *store]
        subprocess.run(publish, check=True, capture_output=True)
        try:
            with process([ideabridge, "serve", "--http", "127.0.0.1:0", *store], "stderr") as url:
                for scenario in SCENARIOS:
                    found = run(scenario, url, folder / scenario)
                    print(f"{scenario:<32} {found.mark}")
                    for text in (*found.failures, *found.warnings):
                        print(f"    {text}")

                    failed = failed or bool(found.failures)

                for scenario in COUNTED:
                    found = run(scenario, url, folder / scenario)
                    print(f"{scenario:<32} {passed(folder / scenario)}")
                    for text in found.failures:
                        if text.partition(":")[0] in WITHOUT_TOOLS:
                            print(f"    FAILS: {text}")
                            failed = True
        except CannotRunError as error:
            print(error, file=sys.stderr)
            return 2

    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
