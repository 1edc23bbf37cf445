"""Order of effects: plans and programs over stateful classes beside the same calls made one
after the other.

    python benchmarks/effects.py FOLDER [--json]

FOLDER is the unpacked wheel of the package `bfcl-eval` (benchmarks/README.md says how to get it).
It holds 800 multi-turn tasks: Python classes with state (a file system, a ticket system, a car,
...), their initial state, and the calls that solve the task. All calls of a task become one plan
without references, so that nothing but the order of effects keeps a plan from running them all at
once. Each call sleeps a random 0 to 4 ms, the same in every mode.

A plan is right when every result, every error and the final state of every instance equal those of
the same calls made one after the other on instances of their own. The state is all that an instance
holds: private attributes and random generators too, for later calls read them. Only the times of
files are left out. The target is 0 wrong, and no pair of calls out of order: where one of the two
may change something, the first ends before the second begins.

Modes:
    unannotated: no tool says whether it changes anything.
    honest: tools that never changed their instance in any task are read-only; the others say nothing.
    declared: as honest, and the others say that they are not read-only.
    instances: unannotated; the calls of each class run in an instance of the plan of their own.
    program: unannotated; a program makes each call and awaits it.
    started: as honest; a program makes all calls, and then awaits them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import inspect
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import anyio

from ideabridge.bridge import Bridge, Configuration, Plan, PlanError, Run
from ideabridge.tools import (
    JSON,
    Activity,
    ActivityContext,
    Annotations,
    JSONObject,
    SchemaError,
    Tool,
    Toolbox,
    Validator,
)

VARIANTS: Final = ("base", "long_context", "miss_func", "miss_param")
JITTER_MS: Final = 4.0
SHOWN: Final = 20
"""How many wrong tasks are printed for each mode."""

TYPES: Final = {"dict": "object", "float": "number", "tuple": "array"}
"""What the package writes as a type, and JSON Schema's name of it."""

Mode: TypeAlias = Literal["unannotated", "honest", "declared", "instances", "program", "started"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Outcome: TypeAlias = "tuple[str, JSON]"
"""("result", value) or ("error", message) of one call."""


class LeftOutError(Exception):
    """A task cannot be compared, or its plan gave nothing to compare; the message says why."""


@dataclass(frozen=True)
class Step:
    """One call of a task: the class, its method, and the parameters by name."""

    owner: str
    method: str
    parameters: JSONObject


@dataclass(frozen=True)
class Task:
    """One task: its classes, their initial state by class, and all its calls in order."""

    name: str
    owners: list[str]
    initial: dict[str, JSONObject]
    long_context: bool
    steps: list[Step]


@dataclass
class Score:
    """What came of the tasks in one mode."""

    state: int = 0
    results: int = 0
    failed: int = 0
    disordered: int = 0
    seconds: float = 0.0
    pairs: int = 0
    wrong: list[str] = field(default_factory=list[str])


# -- the package -----------------------------------------------------------------------------------


class Package:
    """The classes, schemas and tasks in the folder of `bfcl-eval`.

    Raises:
        SystemExit: the folder is not that of the package, or a class imports a package that
            is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "bfcl_eval" / "data"
        if not self.data.is_dir():
            raise SystemExit(
                f"{folder}: expected a folder that holds bfcl_eval/data (the "
                "unpacked wheel of bfcl-eval)"
            )

        sys.path.insert(0, str(folder.resolve()))
        constants = _imported("bfcl_eval.constants.executable_backend_config")
        self._files: dict[str, str] = constants.CLASS_FILE_PATH_MAPPING
        self._documents: dict[str, str] = constants.MULTI_TURN_FUNC_DOC_FILE_MAPPING
        self._stateless: list[str] = constants.STATELESS_CLASSES
        self._schemas: dict[str, dict[str, Tool]] = {}

    def owner(self, name: str) -> type[Any]:
        """The class with this name."""
        return getattr(_imported(self._files[name]), name)

    def tools(self, name: str) -> dict[str, Tool]:
        """The tools of a class by the names of its methods, as the package documents them, in
        valid JSON Schema.
        """
        if name not in self._schemas:
            documented = _lines(self.data / "multi_turn_func_doc" / self._documents[name])
            self._schemas[name] = {
                tool["name"]: Tool(
                    tool["name"], tool["description"], _normalised(tool["parameters"])
                )
                for tool in documented
            }
        return self._schemas[name]

    def instance(self, name: str, task: Task) -> object:
        """A new instance with the task's initial state; it shares nothing with other instances."""
        made: Any = self.owner(name)()
        if name not in self._stateless:
            made._load_scenario(
                copy.deepcopy(task.initial.get(name, {})), long_context=task.long_context
            )
        # Copy the instance, because all instances share what the package adds to long contexts, and
        # some methods change it.
        return copy.deepcopy(made)

    def tasks(self) -> Iterator[Task | tuple[str, str]]:
        """Every task; or its name and why it cannot be compared."""
        for variant in VARIANTS:
            file = f"BFCL_v4_multi_turn_{variant}.json"
            truths = {
                entry["id"]: entry["ground_truth"]
                for entry in _lines(self.data / "possible_answer" / file)
            }
            for entry in _lines(self.data / file):
                try:
                    yield self._task(
                        entry, truths[entry["id"]], long_context=variant == "long_context"
                    )
                except LeftOutError as error:
                    yield entry["id"], str(error)

    def _task(self, entry: dict[str, Any], turns: list[list[str]], *, long_context: bool) -> Task:
        owners: list[str] = entry["involved_classes"]
        steps = [self._step(text, owners) for turn in turns for text in turn]
        return Task(entry["id"], owners, entry["initial_config"], long_context, steps)

    def _step(self, text: str, owners: list[str]) -> Step:
        """One call, checked against the schema of its tool.

        Raises:
            LeftOutError: it cannot be a call of a plan, or does not satisfy the schema.
        """
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise LeftOutError("a ground truth that is not a plain call")

        method = call.func.id
        owner = next((owner for owner in owners if method in self.tools(owner)), None)
        if owner is None:
            raise LeftOutError(f"{method}: no class of the task documents it")

        try:
            given = [ast.literal_eval(value) for value in call.args]
            named = {
                one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None
            }
        except ValueError:
            raise LeftOutError(f"{method}: a parameter is not a literal") from None

        signature = inspect.signature(getattr(self.owner(owner), method))
        try:
            bound = signature.bind(None, *given, **named).arguments
        except TypeError as error:
            raise LeftOutError(f"{method}: the call does not fit its signature: {error}") from None

        parameters: JSONObject = _plain(dict(list(bound.items())[1:]))
        self._check(self.tools(owner)[method], parameters)
        return Step(owner, method, parameters)

    def _check(self, tool: Tool, parameters: JSONObject) -> None:
        known = tool.parameters.get("properties")
        unknown = sorted(set(parameters) - set(known if isinstance(known, dict) else ()))
        if unknown:
            raise LeftOutError(f"{tool.name}: the schema has no parameter {unknown[0]!r}")

        try:
            problems = Validator(tool.parameters, what=tool.name).problems(parameters)
        except SchemaError as error:
            raise LeftOutError(f"{tool.name}: invalid schema: {error}") from None

        if problems:
            raise LeftOutError(f"{tool.name}: {problems[0].message}")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{name} needs the package {error.name!r}, which is not installed"
        ) from None


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _normalised(schema: dict[str, Any]) -> JSONObject:
    """A schema of the package in the words of JSON Schema."""
    result = dict(schema)
    if "type" in result:
        result["type"] = TYPES.get(result["type"], result["type"])

    if "properties" in result:
        properties: dict[str, dict[str, Any]] = result["properties"]
        result["properties"] = {name: _normalised(value) for name, value in properties.items()}

    if "items" in result:
        result["items"] = _normalised(result["items"])

    return result


def _plain(value: object) -> Any:
    """A copy of a value as JSON; what JSON does not have as text."""
    return json.loads(json.dumps(value, default=repr))


# -- the state -------------------------------------------------------------------------------------


class World:
    """Fresh instances of a task's classes."""

    def __init__(self, package: Package, task: Task) -> None:
        self._task = task
        self._instances = {name: package.instance(name, task) for name in task.owners}
        self.spans: dict[int, tuple[float, float]] = {}
        self._claimed: set[int] = set()

    def claim(self, method: str, parameters: JSONObject) -> int:
        """The index of the first call with this method and these parameters that
        nobody has claimed.
        """
        for index, step in enumerate(self._task.steps):
            if (
                index not in self._claimed
                and step.method == method
                and step.parameters == parameters
            ):
                self._claimed.add(index)
                return index
        raise LookupError(f"{method}({parameters}) is no call of the task")

    def act(self, step: Step) -> JSON:
        """Make one call now. Its parameters and result are copies: a default list is not
        shared between calls.
        """
        method: Callable[..., object] = getattr(self._instances[step.owner], step.method)
        bound = inspect.signature(method).bind(**step.parameters)
        bound.apply_defaults()
        arguments: dict[str, object] = copy.deepcopy(dict(bound.arguments))
        return _plain(method(**arguments))

    async def perform(self, index: int) -> JSON:
        """Make the task's call of this index, with a pause before and after that sum up to at
        most `JITTER_MS`.
        """
        source = random.Random(f"{self._task.name}/{index}")
        pause = source.uniform(0, JITTER_MS / 1000)
        share = source.random()
        begin = time.perf_counter()
        await anyio.sleep(pause * share)
        try:
            return self.act(self._task.steps[index])
        finally:
            await anyio.sleep(pause * (1 - share))
            self.spans[index] = (begin, time.perf_counter())

    def state(self) -> dict[str, object]:
        """What every instance holds, by class, in values that can be compared."""
        return {name: _held(instance, []) for name, instance in self._instances.items()}

    def concurrent(self) -> int:
        """How many pairs of calls were at work at the same time."""
        return sum(
            later[0] < earlier[1] for earlier, later in combinations(sorted(self.spans.values()), 2)
        )

    def disordered(self, changing: set[str], *, by_owner: bool) -> int:
        """How many pairs of calls ran out of order: one of them is in `changing`, and the second
        began too early.

        Args:
            changing: the methods that do not say that they are read-only.
            by_owner: only calls of one class keep their order.
        """
        count = 0
        for first, second in combinations(sorted(self.spans), 2):
            one = self._task.steps[first]
            two = self._task.steps[second]
            ordered = (one.method in changing or two.method in changing) and (
                one.owner == two.owner or not by_owner
            )
            count += ordered and self.spans[second][0] < self.spans[first][1]

        return count


def _held(value: object, path: list[object]) -> object:
    """A value in terms of dicts, lists and atoms; a reference back to what holds it
    becomes the distance.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return "a time"
    if isinstance(value, random.Random):
        return value.getstate()

    for distance, holder in enumerate(reversed(path)):
        if holder is value:
            return ("the holder", distance)

    path.append(value)
    try:
        if isinstance(value, dict):
            return {
                key: _held(item, path) for key, item in cast("dict[object, object]", value).items()
            }

        if isinstance(value, list | tuple):
            return [_held(item, path) for item in cast("list[object]", value)]
        if isinstance(value, set | frozenset):
            return frozenset(cast("set[object]", value))
        return (type(value).__name__, _held(vars(value), path))
    finally:
        path.pop()


def _told(error: Exception) -> str:
    """An exception as a run tells it."""
    return f"{type(error).__name__}: {error}"


# -- one after the other ---------------------------------------------------------------------------


def rehearse(
    package: Package, task: Task, changing: set[str]
) -> tuple[list[Outcome], dict[str, object]]:
    """Make the calls one after the other without pauses; note in `changing` the methods that
    changed any state.
    """
    world = World(package, task)
    outcomes: list[Outcome] = []
    before = world.state()
    for step in task.steps:
        try:
            outcomes.append(("result", world.act(step)))
        except Exception as error:  # noqa: BLE001 - an outcome like any other
            outcomes.append(("error", _told(error)))

        after = world.state()
        if after != before:
            changing.add(step.method)

        before = after

    return outcomes, before


async def sequential(
    package: Package, task: Task
) -> tuple[list[Outcome], dict[str, object], float]:
    """The outcomes, the final state and the seconds of the calls made one after the other."""
    world = World(package, task)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    for index in range(len(task.steps)):
        try:
            outcomes.append(("result", await world.perform(index)))
        except Exception as error:  # noqa: BLE001 - an outcome like any other
            outcomes.append(("error", _told(error)))

    return outcomes, world.state(), time.perf_counter() - begin


# -- as a plan -------------------------------------------------------------------------------------


def toolbox_of(
    package: Package, task: Task, world: World, mode: Mode, changing: set[str]
) -> Toolbox:
    """The methods of the task's classes as tools that act on the instances of `world`."""

    async def run(parameters: JSONObject, context: ActivityContext) -> JSON:
        # A call that a program makes has no output path.
        paths = context.output_paths
        name = str(context.call["_tool"])
        return await world.perform(int(paths[0]) if paths else world.claim(name, parameters))

    toolbox = Toolbox()
    for owner in task.owners:
        for tool in package.tools(owner).values():
            if mode in ("unannotated", "instances", "program"):
                said = None
            else:
                said = tool.name not in changing

            annotations = Annotations(
                read_only=None if said is False and mode != "declared" else said
            )
            toolbox.add(Tool(tool.name, tool.description, tool.parameters, annotations=annotations))
            toolbox.add(Activity(tool.name, run))

    return toolbox


def plan_of(task: Task, mode: Mode) -> Plan:
    """All calls of the task, in order, without references."""
    if mode in ("program", "started"):
        return Plan([], program=program_of(task, started=mode == "started"))

    calls: list[JSON] = []
    for index, step in enumerate(task.steps):
        call: JSONObject = {"_tool": step.method, **step.parameters, "_outputPath": str(index)}
        calls.append({**call, "_instance": step.owner} if mode == "instances" else call)

    owners = dict.fromkeys(step.owner for step in task.steps)
    return Plan(calls, instances={owner: {} for owner in owners} if mode == "instances" else {})


def program_of(task: Task, *, started: bool) -> str:
    """All calls of the task, in order, as a program: each one awaited, or all made before the
    first is awaited.
    """
    calls = [
        f"tools.{step.method}({', '.join(f'{name}={value!r}' for name, value in step.parameters.items())})"
        for step in task.steps
    ]
    if started:
        made = "\n".join(f"    {call}," for call in calls)
        awaited = (
            "for call in calls:\n    try:\n        await call\n    "
            "except RuntimeError:\n        pass\n"
        )
        return f"import tools\ncalls = [\n{made}\n]\n{awaited}"
    return "import tools\n" + "".join(
        f"try:\n    await {call}\nexcept RuntimeError as error:\n    print(error)\n"
        for call in calls
    )


async def planned(
    package: Package, task: Task, mode: Mode, changing: set[str], score: Score
) -> tuple[list[Outcome], dict[str, object]]:
    """The outcomes and the final state of the task as one plan; its time and
    concurrency go to `score`.

    Raises:
        LeftOutError: the plan was refused, or did not end as done; the message says why.
    """
    world = World(package, task)
    toolbox = toolbox_of(package, task, world, mode, changing)
    async with Bridge(Configuration(approval="allow_all"), toolbox=toolbox) as bridge:
        begin = time.perf_counter()
        try:
            run = await bridge.run_plan(plan_of(task, mode))
        except PlanError as error:
            raise LeftOutError(f"refused: {error}") from None

        status = await run.wait()
        score.seconds += time.perf_counter() - begin
        score.pairs += world.concurrent()
        by_owner = mode == "instances"
        score.disordered += world.disordered(
            {tool.name for tool in toolbox if not tool.annotations.read_only}, by_owner=by_owner
        )
        if status != "done":
            raise LeftOutError(f"{status}: {run.answer().get('reason')}")
        return outcomes_of(run), world.state()


def outcomes_of(run: Run) -> list[Outcome]:
    """What the run tells of each call, in listing order."""
    return [
        ("result", call.value) if call.error is None else ("error", call.error["message"])
        for call in run.calls()
    ]


async def compare(
    package: Package,
    task: Task,
    mode: Mode,
    changing: set[str],
    score: Score,
    expected: tuple[list[Outcome], dict[str, object]],
) -> None:
    """Run a task in one mode and note what is not as expected."""
    try:
        outcomes, state = await planned(package, task, mode, changing, score)
    except LeftOutError as error:
        score.failed += 1
        score.wrong.append(f"{task.name}: {error}")
        return

    differing = [
        index
        for index, pair in enumerate(zip(outcomes, expected[0], strict=True))
        if pair[0] != pair[1]
    ]
    if differing:
        score.results += 1
        index = differing[0]
        step = task.steps[index]
        found, wanted = (json.dumps(one[index])[:120] for one in (outcomes, expected[0]))
        score.wrong.append(
            f"{task.name}: call {index} ({step.method}) gave {found}, expected {wanted}"
        )

    owners = [owner for owner in task.owners if state[owner] != expected[1][owner]]
    if owners:
        score.state += 1
        score.wrong.append(f"{task.name}: final state of {', '.join(owners)}")


# -- all together ----------------------------------------------------------------------------------


@dataclass
class Measured:
    """The scores by mode, beside sequential execution."""

    tasks: int
    compared: int
    left_out: Counter[str]
    readers: int
    methods: int
    seconds: float
    scores: dict[Mode, Score]

    def rows(self) -> list[dict[str, object]]:
        """The rows of the benchmark."""
        rows: list[dict[str, object]] = []
        for mode, score in self.scores.items():
            figures = {
                f"plans with a wrong final state, of {self.compared}": score.state,
                f"plans with wrong results, of {self.compared}": score.results,
                f"plans that were refused or not done, of {self.compared}": score.failed,
                "pairs of calls out of order": score.disordered,
            }
            for what, found in figures.items():
                met = found == 0 and self.compared > 0
                rows.append({"what": f"{mode}: {what}", "ours": found, "target": 0, "met": met})

            ratio = score.seconds / self.seconds if self.seconds else None
            rows.append(
                {
                    "what": (
                        f"{mode}: s for all plans ({score.pairs:,} pairs of calls "
                        "at once); peer: sequential"
                    ),
                    "ours": score.seconds,
                    "peer": self.seconds,
                    "ratio": ratio,
                }
            )

        return rows

    def show(self) -> None:
        """Print a table, why tasks were left out, and the first wrong tasks."""
        counted = ("wrong state", "wrong results", "errors", "out of order")
        heads = (
            "mode",
            "tasks",
            "compared",
            "left out",
            *counted,
            "s",
            "of sequential",
            "pairs at once",
        )
        print("".join(f"{head:>14}" for head in heads))
        for mode, score in self.scores.items():
            ratio = f"{score.seconds / self.seconds:.2f}" if self.seconds else ""
            left = self.tasks - self.compared
            wrong = (score.state, score.results, score.failed, score.disordered)
            cells = (
                mode,
                self.tasks,
                self.compared,
                left,
                *wrong,
                f"{score.seconds:.1f}",
                ratio,
                score.pairs,
            )
            print("".join(f"{cell:>14}" for cell in cells))

        print(
            f"\n{self.readers} of {self.methods} methods that were called "
            "never changed their instance"
        )
        for reason, count in self.left_out.most_common():
            print(f"left out: {count:3} {reason}")

        for mode, score in self.scores.items():
            for line in score.wrong[:SHOWN]:
                print(f"wrong: {mode}: {line}")
            if len(score.wrong) > SHOWN:
                print(f"wrong: {mode}: and {len(score.wrong) - SHOWN} more; --json has them all")


async def measure(folder: Path) -> Measured:
    """Run every task one after the other, and as a plan in each mode."""
    package = Package(folder)
    left_out: Counter[str] = Counter()
    changing: set[str] = set()
    tasks: list[tuple[Task, tuple[list[Outcome], dict[str, object]]]] = []
    count = 0
    for task in package.tasks():
        count += 1
        if isinstance(task, Task):
            tasks.append((task, rehearse(package, task, changing)))
        else:
            left_out[task[1]] += 1

    methods = {step.method for task, _ in tasks for step in task.steps}
    scores: dict[Mode, Score] = {mode: Score() for mode in MODES}
    seconds = 0.0
    compared = 0
    for task, (outcomes, state) in tasks:
        *expected, taken = await sequential(package, task)
        if expected != [outcomes, state]:
            left_out["two sequential executions differ"] += 1
            continue

        compared += 1
        seconds += taken
        for mode, score in scores.items():
            await compare(package, task, mode, changing, score, (outcomes, state))

    return Measured(
        count, compared, left_out, len(methods - changing), len(methods), seconds, scores
    )


def main() -> int:
    """Measure, print, and tell by the exit code whether every target is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help="folder of the unpacked wheel of bfcl-eval"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.folder is None:
        skipped = (
            "no folder given: it reads the data of the package bfcl-eval, see benchmarks/README.md"
        )
        print(
            json.dumps({"benchmark": "effects", "rows": [], "skipped": skipped})
            if arguments.json
            else skipped
        )
        return 0

    measured = anyio.run(measure, arguments.folder)
    rows = measured.rows()
    if arguments.json:
        wrong = {mode: score.wrong for mode, score in measured.scores.items()}
        told = {"benchmark": "effects", "rows": rows, "left_out": measured.left_out, "wrong": wrong}
        print(json.dumps(told, ensure_ascii=False))
    else:
        measured.show()

    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
