"""Public data three ways: the true calls of each task as a plan, as a program, and call by call.

    python -m benchmarks.lifting.ways --data DATA/lib/python3.11/site-packages [--suite TEXT] [--json]

`public.py` says how DATA is made. The tasks are those of agentdojo (user tasks) and tau2 (retail
and airline); those of BFCL are compared by `benchmarks/effects.py`. The true calls become a plan, a
program, and Solutions of one call each. A value of a parameter that equals a value in an earlier
result becomes a reference to it (in a plan) or an expression (in a program), so that data flows
from call to call; call by call, the values are literals.

Each way runs in an environment of its own. All results, errors, and the final state are compared
with those of the same calls made one after the other without the bridge. What two such
executions answer differently, such as the time of an email, is not compared. The exit code is 1
if there is a difference.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from benchmarks.lifting.suites import load
from benchmarks.lifting.worlds import CallError, Case, Environment, Renaming, Step, ToolShape

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.tool import Activity, ActivityContext, Annotations, Tool
from ideabridge.tools.toolbox import Toolbox

ANY: JSONObject = {"type": ["string", "number", "boolean", "object", "array"]}
WORLD = Renaming(0, frozenset())
SHORTEST = 3
"""The shortest text, and the most digits of a number, that is a value of its own and no
accident."""

Path_ = tuple[str | int, ...]
Way = Callable[[Bridge, Case, list["Call"]], Awaitable[Run]]


@dataclass(frozen=True)
class Outcome:
    """Of each call the result or the error, and the final state."""

    calls: list[JSON]
    state: JSON


@dataclass(frozen=True)
class Call:
    """A true call, and the places in its arguments that hold a value of an earlier
    result: (call, path).
    """

    step: Step
    flows: dict[Path_, tuple[int, Path_]]


# -- without the bridge ----------------------------------------------------------------------------


def rehearsed(case: Case) -> tuple[Outcome, list[JSON]]:
    """Make the true calls one after the other. Also their results, None for a call that fails."""
    environment = case.start(WORLD)
    outcomes: list[JSON] = []
    results: list[JSON] = []
    for step in case.steps:
        try:
            result = environment.call(step.tool, step.arguments)
            outcomes.append({"result": result})
        except CallError as error:
            result = None
            outcomes.append({"error": str(error)})

        results.append(result)

    return Outcome(outcomes, environment.state()), results


def places(value: JSON, path: Path_ = ()) -> list[tuple[Path_, JSON]]:
    """The texts and numbers within a value with their paths."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in places(inner, (*path, key))]
    if isinstance(value, list):
        return [one for number, inner in enumerate(value) for one in places(inner, (*path, number))]
    return [(path, value)]


def linked(steps: list[Step], first: list[JSON], second: list[JSON]) -> list[Call]:
    """The calls with what flows into each from results that two executions gave alike."""
    known: dict[str, tuple[int, Path_]] = {}
    calls: list[Call] = []
    for number, step in enumerate(steps):
        flows: dict[Path_, tuple[int, Path_]] = {}
        for path, value in places(step.arguments):
            source = known.get(json.dumps(value))
            if source is not None and len(str(value)) >= SHORTEST and not isinstance(value, bool):
                flows[path] = source

        calls.append(Call(step, flows))
        for path, value in places(first[number]):
            # A plain reference contains no keys with spaces or dots.
            plain = all(re.fullmatch(r"[\w-]+", str(one)) for one in path)
            if plain and value is not None and at(second[number], path) == value:
                known.setdefault(json.dumps(value), (number, path))

    return calls


def at(value: JSON, path: Path_) -> JSON:
    """The value at a path; None if there is no such place."""
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


# -- three ways ------------------------------------------------------------------------------------


async def as_plan(bridge: Bridge, case: Case, calls: list[Call]) -> Run:
    """All calls as one plan. A call that fails ends no other call, as in a program that
    catches errors.
    """

    def written(value: JSON, flows: dict[Path_, tuple[int, Path_]], path: Path_ = ()) -> JSON:
        if path in flows:
            number, source = flows[path]
            return ".".join(str(one) for one in ("†results", number, *source))
        if isinstance(value, dict):
            return {key: written(inner, flows, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [written(inner, flows, (*path, number)) for number, inner in enumerate(value)]
        return value

    listed: list[JSON] = []
    for call in calls:
        arguments = written(call.step.arguments, call.flows)
        listed.append(
            {"_tool": call.step.tool, **(arguments if isinstance(arguments, dict) else {})}
        )

    return await bridge.run_plan({"calls": listed})


async def as_program(bridge: Bridge, case: Case, calls: list[Call]) -> Run:
    """All calls as one program, each awaited before the next is made."""

    def written(value: JSON, flows: dict[Path_, tuple[int, Path_]], path: Path_ = ()) -> str:
        if path in flows:
            number, source = flows[path]
            return f"r{number}" + "".join(f"[{one!r}]" for one in source)
        if isinstance(value, dict):
            members = (
                f"{key!r}: {written(inner, flows, (*path, key))}" for key, inner in value.items()
            )
            return "{" + ", ".join(members) + "}"

        if isinstance(value, list):
            return (
                "["
                + ", ".join(
                    written(one, flows, (*path, number)) for number, one in enumerate(value)
                )
                + "]"
            )

        return repr(value)

    lines = ["import tools"]
    for number, call in enumerate(calls):
        members = (
            f"{key}={written(one, call.flows, (key,))}" for key, one in call.step.arguments.items()
        )
        lines += ["try:", f"    r{number} = await tools.{call.step.tool}({', '.join(members)})"]
        lines += ["except RuntimeError as error:", "    print(error)"]

    return await bridge.run_program("\n".join(lines))


async def call_by_call(bridge: Bridge, case: Case, calls: list[Call]) -> Run:
    """One Solution for each call, as a mind writes them that sees each result."""
    run = await bridge.solve(f"{case.suite} {case.name}", output_schema=ANY, mind="turns")
    for turn, call in enumerate(calls):
        run.submit(turn, {"calls": [{"_tool": call.step.tool, **call.step.arguments}]})
        await run.wait(30)
    run.submit(len(calls), {"output": "done"})
    return run


WAYS: dict[str, Way] = {"plan": as_plan, "program": as_program, "call by call": call_by_call}


def toolbox_of(case: Case, environment: Environment) -> Toolbox:
    """The tools of a task, whose calls are executed in an environment."""

    def defined(shape: ToolShape) -> tuple[Tool, Activity]:
        async def run(parameters: JSONObject, _: ActivityContext) -> JSON:
            # Let each call take a moment, so that others can begin.
            await anyio.sleep(0.001)
            try:
                return environment.call(shape.name, parameters)
            except CallError as error:
                raise ActivityError(str(error)) from error

        hints = Annotations(read_only=True if shape.reads else None)
        tool = Tool(shape.name, shape.description, shape.parameters, annotations=hints)
        return tool, Activity(shape.name, run)

    toolbox = Toolbox()
    for shape in case.tools:
        toolbox.add(*defined(shape))
    return toolbox


async def outcome(case: Case, calls: list[Call], way: Way) -> Outcome:
    """What one way makes of a task, in an environment of its own."""
    environment = case.start(WORLD)
    configuration = Configuration(store=":memory:", approval="allow_all")
    async with Bridge(configuration, toolbox=toolbox_of(case, environment)) as bridge:
        run = await way(bridge, case, calls)
        status = await run.wait(60)
        if status != "done":
            raise RuntimeError(f"{status}: {run.errors()}")

        found: list[JSON] = []
        for call in run.calls():
            found.append(
                {"result": call.value}
                if call.error is None
                else {"error": call.error.get("message")}
            )

        return Outcome(found, environment.state())


def difference(found: JSON, first: JSON, second: JSON, path: str) -> str | None:
    """Where a value differs from two executions that agree; None if it does not."""
    if (
        isinstance(found, dict)
        and isinstance(first, dict)
        and isinstance(second, dict)
        and found.keys() == first.keys()
    ):
        pairs = ((key, found[key], first[key], second.get(key)) for key in found)
    elif (
        isinstance(found, list)
        and isinstance(first, list)
        and isinstance(second, list)
        and len(found) == len(first)
    ):
        pairs = (
            (str(number), *three)
            for number, three in enumerate(zip(found, first, second, strict=False))
        )
    else:
        differs = first == second and found != first
        if differs:
            return f"{path}: {json.dumps(found)[:200]}, expected {json.dumps(first)[:200]}"
        return None
    return next(
        filter(None, (difference(one, a, b, f"{path}.{key}") for key, one, a, b in pairs)), None
    )


async def looked_at(case: Case) -> tuple[int, int, list[str]]:
    """The number of calls, of values that flow between them, and what differs."""
    first, results = rehearsed(case)
    second, again = rehearsed(case)
    calls = linked(case.steps, results, again)
    wrong: list[str] = []
    for name, way in WAYS.items():
        label = f"{case.suite} {case.name} as {name}"
        try:
            found = await outcome(case, calls, way)
        except Exception as error:  # noqa: BLE001 - one more difference
            wrong.append(f"{label}: {type(error).__name__}: {error}"[:600])
            continue

        differs = difference(
            [*found.calls], [*first.calls], [*second.calls], "calls"
        ) or difference(found.state, first.state, second.state, "state")
        if differs is not None:
            wrong.append(f"{label}: {differs}")

    return len(calls), sum(len(call.flows) for call in calls), wrong


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description="Public data as plans, as programs, and call by call."
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder into which the packages are installed"
    )
    parser.add_argument("--suite", default="", help="only suites whose name contains this")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    figures: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    for case in load(options.data, options.suite):
        counts = figures.setdefault(case.suite, Counter())
        if case.suite == "bfcl":
            continue
        counts["tasks"] += 1
        if not case.steps:
            counts["without calls"] += 1
            continue

        calls, flows, differing = anyio.run(partial(looked_at, case))
        counts.update(
            {"compared": 1, "calls": calls, "values that flow": flows, "different": bool(differing)}
        )
        wrong += differing

    figures.pop("bfcl", None)
    if options.json:
        print(json.dumps({"suites": figures, "wrong": wrong}, indent=1))
    else:
        for suite, counts in figures.items():
            print(f"{suite}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
        print("\n".join(wrong))

    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
