"""Public data as runs copied by hand: what publishing makes of one, two and three
runs of each task.

    python -m venv DATA
    DATA/bin/pip install agentdojo inspect-ai toml mpmath backoff jinja2 typer
    DATA/bin/pip install --no-deps inspect-evals bfcl-eval
    python -m benchmarks.lifting.public --data DATA/lib/python3.11/site-packages [--tasks N] [--seed N]
        [--suite TEXT] [--prepared FILE] [--rows FILE] [--json]

A scripted mind makes the true calls of each task one by one, and writes each value as a literal:
with the entities that the user names as an input, and without an input. The runs are in worlds 0, 1
and 2 (see `worlds.py`), the calls of the published tool in worlds 3, 4 and 5. Every call is
executed in the environment of its world. An answer is right if the environment got exactly the true
calls, and the output is the true one.

A caller fills in the parameters whose values the user names; all others keep their defaults. A
person approves whatever asks, as it is proposed. An answer is silently wrong if it is wrong, and
neither it nor a question names anything as assumed. By its cause this is counted twice: if each
wrong value is the default of a parameter that the caller did not fill in, nothing explains the
value, and the search does not cover the true function; and all others. The exit code is 1 if there
are such others, or if one run of a task cannot be published.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
from benchmarks.lifting.suites import Prepared, drawn, load
from benchmarks.lifting.worlds import (
    CallError,
    Case,
    Environment,
    Renaming,
    Step,
    ToolShape,
    leaves,
)

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.tool import Activity, ActivityContext, Annotations, Tool
from ideabridge.tools.toolbox import Toolbox

NEW = (3, 4, 5)
RUNS = 3
ANY: JSONObject = {"type": ["string", "number", "boolean", "object", "array"]}


@dataclass
class Stage:
    """Where the calls of a bridge go: the environment of the current world.

    Attributes:
        made: the calls and their results; the result of a call that the environment
            refused is None.
    """

    environment: Environment
    made: list[tuple[Step, JSON]] = field(default_factory=list[tuple[Step, JSON]])

    def enter(self, environment: Environment) -> None:
        """Go on in another environment."""
        self.environment = environment
        self.made = []

    async def call(self, name: str, arguments: JSONObject) -> JSON:
        """Execute one call."""
        try:
            result = self.environment.call(name, arguments)
        except CallError as error:
            self.made.append((Step(name, arguments), None))
            raise ActivityError(str(error)) from error
        self.made.append((Step(name, arguments), result))
        return result

    def defined(self, shape: ToolShape) -> tuple[Tool, Activity]:
        """A tool whose calls are executed here."""

        async def run(parameters: JSONObject, _: ActivityContext) -> JSON:
            return await self.call(shape.name, parameters)

        hints = Annotations(read_only=shape.reads)
        tool = Tool(shape.name, shape.description, shape.parameters, annotations=hints)
        return tool, Activity(shape.name, run)


@dataclass
class Row:
    """What some runs of a task, with or without an input, became.

    Attributes:
        published: `plan`, or why there is none.
        seconds: processor time of publishing.
        values: the number of literals with explanations.
        open: what a program would settle, by kind.
        counts: the answers and values by kind.
        why: what the answers named as assumed or noted, by its reason.
        wrong: for each wrong or failed answer its kind, and what differs.
        warned: the warnings on right answers.
    """

    suite: str
    task: str
    part: str
    with_input: bool
    runs: int
    published: str = ""
    seconds: float = 0.0
    values: int = 0
    open: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    why: Counter[str] = field(default_factory=Counter[str])
    wrong: list[list[str]] = field(default_factory=list[list[str]])
    warned: list[str] = field(default_factory=list[str])

    def to_json(self) -> JSONObject:
        """All members."""
        return {
            "suite": self.suite,
            "task": self.task,
            "part": self.part,
            "with_input": self.with_input,
            "runs": self.runs,
            "published": self.published,
            "seconds": self.seconds,
            "values": self.values,
            "open": list[JSON](self.open),
            "counts": dict[str, JSON](self.counts),
            "why": dict[str, JSON](self.why),
            "wrong": [list[JSON](one) for one in self.wrong],
            "warned": list[JSON](self.warned),
        }


async def looked_at(case: Case) -> list[Row]:
    """The rows of one task."""
    rows: list[Row] = []
    stage = Stage(case.start(case.world(0)))
    toolbox = Toolbox()
    for shape in case.tools:
        toolbox.add(*stage.defined(shape))

    async with Bridge(Configuration(store=":memory:"), toolbox=toolbox) as bridge:
        for with_input in (True, False):
            ids: list[str] = []
            for count in range(1, RUNS + 1):
                run = await by_hand(bridge, stage, case, case.world(count - 1), with_input)
                ids.append(run.id)
                rows.append(await published(bridge, stage, case, ids, with_input))

    return rows


async def by_hand(
    bridge: Bridge,
    stage: Stage,
    case: Case,
    world: Renaming,
    with_input: bool,
    task: str | None = None,
) -> Run:
    """A run in which a mind makes the true calls one by one, and copies all values. `task`
    None: only its name.
    """
    stage.enter(case.start(world))
    given = case.given(world) if with_input else None
    told = task or f"{case.suite} {case.name}"
    run = await bridge.solve(told, input=given, output_schema=ANY, mind="turns")
    for turn, step in enumerate(case.true_steps(world)):
        run.submit(turn, {"calls": [{"_tool": step.tool, **step.arguments}]})
        await approved(run)
        if run.status != "needs_solution" or len(stage.made) != turn + 1:
            raise RuntimeError(
                f"{case.suite} {case.name}: {step} did not run: {str(run.answer())[:300]}"
            )

    run.submit(len(case.steps), {"output": first_leaf(stage.made[-1][1])})
    await approved(run)
    if run.status != "done":
        raise RuntimeError(f"{case.suite} {case.name}: {str(run.answer())[:300]}")
    return run


def first_leaf(result: JSON) -> JSON:
    """What is told of the last result: its first text or number."""
    found = leaves(result)
    return found[0][1] if found else "done"


async def approved(run: Run) -> list[str]:
    """Wait for a run; a person approves whatever it asks. The reasons of the questions about
    assumed values.
    """
    asked: list[str] = []
    while await run.wait(30) == "needs_approval":
        for question in run.questions():
            if any(
                text in question.why
                for text in (
                    "assumed",
                    "no earlier run had",
                    "may have been called",
                    "made it because",
                )
            ):
                asked.append(question.why)
            run.decide(question.approval, "approve", by="a person")

    return asked


async def published(
    bridge: Bridge, stage: Stage, case: Case, ids: Sequence[str], with_input: bool
) -> Row:
    """Publish from some runs, and call the tool in the new worlds."""
    row = Row(case.suite, case.name, case.part, with_input, len(ids))
    name = f"task_{'with' if with_input else 'without'}_{len(ids)}"
    began = time.process_time()
    try:
        made = await bridge.publish(ids[0], name, choices={"runs": list[JSON](ids[1:])})
    except PublicationError as error:
        row.published = f"refused: {error}"[:300]
        return row
    finally:
        row.seconds = time.process_time() - began

    if made.plan is None:
        row.published = "solved anew" if made.guide is not None else "recorded"
        return row

    row.published = "plan"
    explained = made.plan.get("explained")
    row.values = len(explained) if isinstance(explained, list) else 0
    points = (made.report or {}).get("open")
    if isinstance(points, list):
        row.open = sorted({str(point.get("kind")) for point in points if isinstance(point, dict)})

    schema = made.input_schema or {}
    properties = schema.get("properties")
    for number in NEW:
        world = case.world(number)
        truth = case.true_steps(world)
        results = case.executed(world)
        given: JSONObject = case.given(world) if with_input else {}
        if isinstance(properties, dict):
            for key, one in properties.items():
                if (
                    key not in given
                    and isinstance(one, dict)
                    and "default" in one
                    and case.says(one["default"])
                ):
                    given[key] = world.value(one["default"])

        stage.enter(case.start(world))
        await replayed(bridge, stage, row, name, given, truth, results, properties)

    return row


async def replayed(
    bridge: Bridge,
    stage: Stage,
    row: Row,
    name: str,
    given: JSONObject,
    truth: list[Step],
    results: list[JSON],
    properties: JSON,
) -> None:
    """Call a published tool in one new world, and count what it did."""
    replay = await bridge.start_idea(name, given)
    run = replay.run
    if run is None:
        raise RuntimeError(f"{name}: answered without a run")

    asked = await approved(run)
    row.counts["assumed"] += len(run.assumed)
    row.counts["asked"] += len(asked)
    row.counts["determined"] += row.values - len({str(one.get("at")) for one in run.assumed})
    for one in run.assumed:
        instead = one.get("instead")
        row.why[
            str(one.get("why")) if one.get("why") else "other values" if instead else "one value"
        ] += 1

    row.why["noted"] += len(run.noted)
    differs = differences(truth, [step for step, _ in stage.made])
    try:
        output = await run.result()
    except IdeabridgeError as error:
        row.counts["failed"] += 1
        row.wrong.append(["failed", *shown(differs), str(error)[:300]])
        return

    told = first_leaf(results[-1])
    if not differs and not same(output, told) and same(first_leaf(stage.made[-1][1]), told):
        differs = [("output", output, told)]

    if not differs:
        row.counts["right, assumed" if run.assumed else "right"] += 1
        row.warned += [f"{one.get('at')}: {one.get('why')}" for one in run.assumed]
        row.warned += [f"asked: {why}"[:300] for why in asked]
        return

    # A person who approved something was told about it, and it is then no longer listed as assumed.
    said = bool(run.assumed or asked)
    defaults: list[JSON] = []
    if isinstance(properties, dict):
        defaults = [
            one["default"]
            for one in properties.values()
            if isinstance(one, dict) and "default" in one
        ]

    visible = all(any(holds(default, got) for default in defaults) for _, got, _ in differs)
    if said:
        kind = "wrong, assumed"
    elif visible:
        kind = "silently wrong, default"
    else:
        kind = "silently wrong"

    row.counts[kind] += 1
    row.counts["wrong by defaults alone"] += visible
    # An answer that names another value is not silent, but it does not warn about the value that is
    # wrong.
    named = [str(one.get("at")) for one in run.assumed]
    row.counts["wrong, another value named"] += said and not any(
        at.startswith(differs[0][0]) for at in named
    )
    row.wrong.append([kind, *shown(differs)])


def shown(differs: list[tuple[str, JSON, JSON]]) -> list[str]:
    """One line for each difference."""
    return [
        f"{at}: {json.dumps(got)[:150]}, true is {json.dumps(true)[:150]}"
        for at, got, true in differs
    ]


def holds(default: JSON, value: JSON) -> bool:
    """True if a value is this default, or a part of it."""
    return same(default, value) or any(same(one, value) for _, one in leaves(default))


def differences(truth: list[Step], made: list[Step]) -> list[tuple[str, JSON, JSON]]:
    """Where the calls differ: (place, made, true). Calls that are missing after another difference
    follow from it.
    """
    found: list[tuple[str, JSON, JSON]] = []
    for place, (true, got) in enumerate(zip(truth, made, strict=False)):
        if true.tool != got.tool:
            return [*found, (f"calls.{place}", got.tool, true.tool)]
        for key in sorted({*true.arguments, *got.arguments}):
            if not same(got.arguments.get(key), true.arguments.get(key)):
                found.append(
                    (f"calls.{place}.{key}", got.arguments.get(key), true.arguments.get(key))
                )

    if len(truth) != len(made) and not found:
        found.append(("calls", [one.tool for one in made], [one.tool for one in truth]))
    return found


COLUMNS = (
    "right",
    "right, assumed",
    "wrong, assumed",
    "failed",
    "silently wrong, default",
    "silently wrong",
)


def table(rows: list[Row]) -> list[str]:
    """The figures in 80 columns."""
    lines = [
        (
            f"{'':28}{'publ.':>9} "
            f"{'right':>6}{'right,':>8}{'wrong,':>8}{'failed':>7}{'silent,':>9}{'silent':>7}"
        ),
        (
            f"{'suite, part, input, runs':28}{'':>9} "
            f"{'':>6}{'assumed':>8}{'assumed':>8}{'':>7}{'default':>9}{'':>7}"
        ),
    ]
    groups = sorted({(row.suite.split(" ")[0], row.part, row.with_input, row.runs) for row in rows})
    for suite, part, with_input, runs in groups:
        of = [
            row
            for row in rows
            if (row.suite.split(" ")[0], row.part, row.with_input, row.runs)
            == (suite, part, with_input, runs)
        ]
        done = sum(row.published == "plan" for row in of)
        counts = sum((row.counts for row in of), Counter[str]())
        label = f"{suite[:9]}, {part}, {'in' if with_input else 'no'}, {runs}"
        figures = [counts[column] for column in COLUMNS]
        line = "".join(
            f"{figure:>{width}}" for figure, width in zip(figures, (6, 8, 8, 7, 9, 7), strict=True)
        )
        lines.append(f"{label:28}{f'{done}/{len(of)}':>9} {line}")

    other = sum(row.counts["wrong, another value named"] for row in rows)
    defaults = sum(row.counts["wrong by defaults alone"] for row in rows)
    for runs in range(1, RUNS + 1):
        counts = sum((row.counts for row in rows if row.runs == runs), Counter[str]())
        seconds = sorted(row.seconds for row in rows if row.runs == runs)
        needing = sum(bool(row.open) for row in rows if row.runs == runs)
        right = counts["right"] + counts["right, assumed"]
        if right:
            quiet = (
                f"of {right} right answers {counts['right']} say nothing "
                f"({counts['right'] / right:.0%})"
            )
            middle = seconds[len(seconds) // 2]
            lines.append(f"{runs} runs: {quiet}")
            lines.append(f"  a program is wanted for {needing} of {len(seconds)}")
            lines.append(f"  publishing takes {middle:.3f} s, at most {seconds[-1]:.3f} s")

    lines.append(f"wrong answers whose first wrong value is not among the assumed ones: {other}")
    lines.append(f"wrong answers in which each wrong value is a default: {defaults}")
    return lines


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="What publishing makes of public data.")
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder into which the packages are installed"
    )
    parser.add_argument("--suite", default="", help="only suites whose name contains this")
    parser.add_argument("--tasks", type=int, default=10_000, help="the most tasks of each data set")
    parser.add_argument("--seed", type=int, default=1, help="draws the tasks of each data set")
    parser.add_argument(
        "--prepared", type=Path, help="a file that keeps what preparing the tasks found"
    )
    parser.add_argument(
        "--rows", type=Path, help="a file to which each row is appended at once, as a line of JSON"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    rows: list[Row] = []
    used: Counter[str] = Counter()
    left: Counter[str] = Counter()
    prepared = Prepared(options.prepared)
    for case in drawn(
        load(options.data, options.suite), options.tasks, options.seed, prepared, left
    ):
        used[case.suite] += 1
        made = anyio.run(partial(looked_at, case))
        rows += made
        if options.rows is not None:
            with options.rows.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row.to_json()) + "\n" for row in made)

        print(f"\r{sum(used.values())} tasks", end="", file=sys.stderr, flush=True)

    print(file=sys.stderr)
    if options.json:
        report: JSONObject = {
            "tasks": dict[str, JSON](used),
            "left_out": dict[str, JSON](left),
            "rows": [row.to_json() for row in rows],
        }
        print(json.dumps(report, indent=1))
    else:
        print(f"tasks: {dict(used)}; left out: {dict(left)}")
        print("\n".join(table(rows)))

    silent = [row for row in rows if row.counts["silently wrong"]]
    for row in silent[:20]:
        first = next(one for one in row.wrong if one[0] == "silently wrong")
        print(
            f"silently wrong: {row.suite} {row.task}, {row.runs} runs: {first[1:]}", file=sys.stderr
        )

    refused = [row for row in rows if row.published != "plan"]
    for row in refused[:20]:
        print(f"no plan: {row.suite} {row.task}, {row.runs} runs: {row.published}", file=sys.stderr)

    return 1 if silent or any(row.runs == 1 for row in refused) else 0


if __name__ == "__main__":
    sys.exit(main())
