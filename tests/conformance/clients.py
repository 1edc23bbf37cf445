"""Runs the official conformance suite against the client side, and prints which required
scenarios pass.

    python -m tests.conformance.clients [--scenario NAME]

The suite is the server, and starts `client.py` for each scenario: the connector of the bridge.
`make conformance` runs this after the suite against servers. The exit code is 1 if a required
scenario fails, and 2 if nothing can be run here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests import preloaded
from tests.conformance.client import END
from tests.conformance.suite import (
    REVISIONS,
    SUITE,
    CannotRunError,
    Outcome,
    node,
    outcome,
    report,
    required,
)

CLIENT: Final = Path(__file__).with_name("client.py")
CLIENT_SECONDS: Final = 60
"""The time that the suite gives to one client. All of them run at once."""
RUN_SECONDS: Final = 180.0

_FOLDER: Final = re.compile(r"([\w/-]+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_WORDS: Final = 300


def run(revision: str, scenario: str | None) -> tuple[dict[str, Outcome], float]:
    """Run the scenarios of a revision: what was found in each, and the seconds that it took."""
    chosen = ["--requirements", revision]
    if scenario is not None:
        chosen = ["--scenario", scenario, "--spec-version", revision]

    # The suite splits the command at spaces, so join it with spaces.
    command = [
        "--command",
        " ".join(preloaded.python(CLIENT)),
        "--timeout",
        str(1000 * CLIENT_SECONDS),
    ]
    with tempfile.TemporaryDirectory() as name:
        results = Path(name)
        words = [node(), SUITE / "dist" / "index.js", "client", *command, *chosen, "-o", results]
        began = time.monotonic()
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
        took = time.monotonic() - began
        found = {
            match[1]: read(path.parent)
            for path in results.rglob("checks.json")
            if (match := _FOLDER.fullmatch(path.parent.relative_to(results).as_posix()))
        }

    assert found, f"the suite found nothing: {done.stdout[-_WORDS:]} {done.stderr[-_WORDS:]}"
    return found, took


def read(folder: Path) -> Outcome:
    """What was found in a scenario. A client that did not end by itself has failed."""
    found = outcome(folder)
    if END in (folder / "stdout.txt").read_text(encoding="utf-8"):
        return found
    words = (folder / "stderr.txt").read_text(encoding="utf-8")[-_WORDS:]
    return Outcome((*found.failures, f"the client did not end by itself: {words}"), found.warnings)


def main() -> int:
    """Run everything; 0 if every required scenario passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", help="one scenario (default: all)")
    scenario: str | None = parser.parse_args().scenario
    try:
        names = {revision: required(revision, "client") for revision in REVISIONS}
        node()
    except CannotRunError as error:
        print(f"conformance: skipped: {error}", file=sys.stderr)
        return 2

    if scenario is not None:
        names = {revision: [scenario] for revision in REVISIONS if scenario in names[revision]}

    passed: list[bool] = []
    seconds = 0.0
    for revision, wanted in names.items():
        found, took = run(revision, scenario)
        passed.append(report(revision, wanted, {"client": found}))
        seconds += took

    print(f"\nclient {seconds:.0f} s")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
