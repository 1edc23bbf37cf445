"""Public data sets as cases: agentdojo, the tau2 tasks of inspect-evals, and the multi-turn
tasks of bfcl-eval.

The packages are not dependencies of this repository. They are imported by name from a folder that
`load` puts at the end of the module path, so the versions of this environment win.
"""

from __future__ import annotations

import ast
import copy
import gzip
import hashlib
import importlib
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.lifting.worlds import (
    CallError,
    Case,
    Environment,
    Renaming,
    Step,
    ToolShape,
    as_json,
    leaves,
)

from ideabridge.tools.encoding import JSON, JSONObject

_READING = """
get_ read_ search_ list_ find_ check_ view_ estimate_ display_ compute_ verify_ retrieve_ fetch_ filter_ calculate ls
cat grep sort tail head diff wc pwd du find mean add subtract multiply divide power square_root absolute_value
percentage round_number logarithm sum_values min_value max_value standard_deviation imperial_si_conversion
si_unit_conversion liter_to_gallon gallon_to_liter message_get_login_status posting_get_login_status
ticket_get_login_status trading_get_login_status
"""
_READS = _READING.split()
"""Tools that change nothing, by their names; a name that ends in an underscore is a beginning."""
WORLDS = 6
"""The worlds of a task: three for its runs, three for the calls of its tool."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def load(folder: Path, suite: str = "") -> Iterator[Case]:
    """The cases of the packages in a folder, of the suites whose name contains a text.

    Raises:
        ImportError: a package is missing.
    """
    sys.path.append(str(folder))
    found: list[tuple[str, Callable[[], Iterator[Case]]]] = [
        ("agentdojo", _agentdojo),
        ("tau2 retail", lambda: _tau2("retail")),
        ("tau2 airline", lambda: _tau2("airline")),
        ("bfcl", _bfcl),
    ]
    return (case for name, cases in found if suite in name for case in cases())


@dataclass
class Prepared:
    """What preparing cases found, in a file: it takes longer than all that is measured.

    Attributes:
        file: where it is kept; None: nowhere.
    """

    file: Path | None
    _known: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            self._known = json.loads(self.file.read_text(encoding="utf-8"))

    def prepare(self, case: Case) -> bool:
        """As `Case.prepare`."""
        written = json.dumps([[step.tool, step.arguments] for step in case.steps])
        rules = Path(inspect.getfile(Case)).read_text(encoding="utf-8")
        key = hashlib.sha256(
            f"{case.suite} {case.name} {WORLDS} {written} {rules}".encode()
        ).hexdigest()
        known = self._known.get(key)
        if known is not None:
            case.steps = [case.steps[place] for place in cast("list[int]", known["steps"])]
            case.words = frozenset(cast("list[str]", known["words"]))
            return len(case.steps) > 1

        places = {id(step): place for place, step in enumerate(case.steps)}
        is_usable = case.prepare(WORLDS)
        kept = [places[id(step)] for step in case.steps]
        self._known[key] = {"steps": list[JSON](kept), "words": list[JSON](sorted(case.words))}
        if self.file is not None:
            self.file.write_text(json.dumps(self._known), encoding="utf-8")

        return is_usable


def drawn(
    cases: Iterable[Case], tasks: int, seed: int, prepared: Prepared, left_out: Counter[str]
) -> Iterator[Case]:
    """The prepared cases: a limited number of each data set, in an order that the seed draws.

    Args:
        cases: all cases.
        tasks: the most cases of each data set: agentdojo, each part of tau2, bfcl.
        seed: draws the order.
        prepared: prepares them.
        left_out: counts the cases that cannot be used, by the reason.
    """
    data_sets: dict[str, list[Case]] = {}
    for case in cases:
        name = "agentdojo" if case.suite.startswith("agentdojo") else case.suite
        data_sets.setdefault(name, []).append(case)

    def place(case: Case) -> bytes:
        return hashlib.sha256(f"{seed} {case.suite} {case.name}".encode()).digest()

    for listed in data_sets.values():
        used = 0
        for case in sorted(listed, key=place):
            if used == tasks:
                break
            if not prepared.prepare(case):
                left_out["fewer than two calls that succeed"] += 1
            elif not case.words:
                left_out["no entity can be renamed"] += 1
            else:
                used += 1
                yield case


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _reads(name: str) -> bool:
    return any(name == one or (one.endswith("_") and name.startswith(one)) for one in _READS)


class _Dojo:
    def __init__(self, runtime: Any, state: Any) -> None:
        self._runtime = runtime
        self._state = state

    def call(self, tool: str, arguments: JSONObject) -> JSON:
        value, error = self._runtime.run_function(self._state, tool, copy.deepcopy(arguments))
        if error is not None:
            raise CallError(str(error))
        return as_json(value)

    def state(self) -> JSON:
        return as_json(self._state)


def _agentdojo() -> Iterator[Case]:
    suites = cast(
        "dict[str, Any]", _module("agentdojo.task_suite.load_suites").get_suites("v1.2.2")
    )
    runtime = _module("agentdojo.functions_runtime").FunctionsRuntime
    for name, suite in suites.items():
        tools = [
            ToolShape(
                one.name,
                str(one.description),
                _open(one.parameters.model_json_schema()),
                _reads(one.name),
            )
            for one in suite.tools
        ]
        for task_name, task in suite.user_tasks.items():
            initial = task.init_environment(suite.load_and_inject_default_environment({}))
            try:
                truth = task.ground_truth(initial.model_copy(deep=True))
            except NotImplementedError:
                continue

            data = cast("JSONObject", initial.model_dump(mode="json"))
            steps = [
                Step(one.function, cast("JSONObject", as_json(dict(one.args)))) for one in truth
            ]

            kind = cast("Any", type(initial))

            def start(
                world: Renaming, kind: Any = kind, data: JSONObject = data, used: Any = suite
            ) -> Environment:
                return _Dojo(runtime(used.tools), kind.model_validate(world.members(data)))

            yield Case(f"agentdojo {name}", str(task_name), str(task.PROMPT), tools, steps, start)


def _open(schema: JSONObject) -> JSONObject:
    """A schema of parameters: what the environment checks itself is left to it."""
    properties = cast("dict[str, JSONObject]", schema.get("properties", {}))
    return {
        "type": "object",
        "properties": {
            name: {"description": str(one.get("description", ""))}
            for name, one in properties.items()
        },
        "required": schema.get("required", []),
    }


class _Tau2:
    def __init__(self, tools: Any, error: type[Exception]) -> None:
        self._tools = tools
        self._error = error

    def call(self, tool: str, arguments: JSONObject) -> JSON:
        method = cast("Callable[..., object] | None", getattr(self._tools, tool, None))
        if method is None:
            raise CallError(f"no tool {tool}")

        try:
            value = method(**copy.deepcopy(arguments))
        except (self._error, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CallError(f"{type(error).__name__}: {error}") from error

        if isinstance(value, str):
            try:
                return cast("JSON", json.loads(value))
            except ValueError:
                return value

        return as_json(value)

    def state(self) -> JSON:
        return as_json(self._tools.db)


def _tau2(domain: str) -> Iterator[Case]:
    folder = Path(str(_module("inspect_evals.tau2.utils").TAU2_DATA_DIR)) / "domains" / domain
    title = domain.title()
    kind = getattr(_module(f"inspect_evals.tau2.{domain}.{title}AgentTools"), f"{title}AgentTools")
    error = cast("type[Exception]", _module("inspect_ai.tool").ToolError)
    databases = _module(f"inspect_evals.tau2.{domain}.data_model")
    schema = databases.RetailDB if domain == "retail" else databases.FlightDB
    # Use the methods without the store of inspect, so that the state is an attribute.
    plain = type(
        title,
        (),
        {
            name: one
            for name, one in cast("dict[str, Any]", vars(kind)).items()
            if inspect.isfunction(one)
        },
    )
    names = [name for name in vars(plain) if not name.startswith("_") and name != "initialize"]
    tools = [_shape_of(name, getattr(plain, name)) for name in names]
    data = cast(
        "dict[str, JSONObject]", json.loads(gzip.decompress((folder / "db.json.gz").read_bytes()))
    )
    texts = {
        table: {key: json.dumps(row) for key, row in rows.items()} for table, rows in data.items()
    }

    for task in cast(
        "list[dict[str, Any]]", json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    ):
        actions = cast("list[dict[str, Any]]", task["evaluation_criteria"]["actions"] or [])
        wanted = [one for one in actions if one["name"] in names]
        told = cast("dict[str, Any]", task["user_scenario"]["instructions"])
        prompt = " ".join(
            str(told.get(key) or "")
            for key in ("reason_for_call", "known_info", "task_instructions")
        )
        steps = [Step(str(one["name"]), cast("JSONObject", one["arguments"])) for one in wanted]
        records = _reduced(data, texts, steps)
        bases: dict[Renaming, Any] = {}

        def start(
            world: Renaming, records: JSONObject = records, bases: dict[Renaming, Any] = bases
        ) -> Environment:
            if world not in bases:
                bases[world] = schema.model_validate(world.members(records))
            used = cast("Any", plain())
            used.db = bases[world].model_copy(deep=True)
            return _Tau2(used, error)

        yield Case(f"tau2 {domain}", str(task["id"]), prompt, tools, steps, start)


def _reduced(
    data: dict[str, JSONObject], texts: dict[str, dict[str, str]], steps: list[Step]
) -> JSONObject:
    """The records that a task can reach, and the first four of each table beside them: the whole
    database would be renamed and copied for each world of each task. The records that name a value
    of a true call, and those that these name by their keys.
    """
    named = {
        str(one)
        for step in steps
        for _, one in leaves(step.arguments)
        if isinstance(one, str) and len(one) > 2
    }
    named = {one for one in named if not _DAY.fullmatch(one)}
    chosen = {table: set(list(rows)[:4]) for table, rows in data.items()}
    for table, rows in texts.items():
        chosen[table] |= {
            key
            for key, text in rows.items()
            if key in named or any(f'"{one}"' in text for one in named)
        }

    near = " ".join(
        texts[table][key] for table, keys in chosen.items() for key in keys if table != "flights"
    )
    for table, rows in data.items():
        chosen[table] |= {key for key in rows if f'"{key}"' in near}

    return {
        table: {key: row for key, row in rows.items() if key in chosen[table]}
        for table, rows in data.items()
    }


def _shape_of(name: str, function: Callable[..., object]) -> ToolShape:
    parameters = [
        one for key, one in inspect.signature(function).parameters.items() if key != "self"
    ]
    schema: JSONObject = {
        "type": "object",
        "properties": {one.name: {} for one in parameters},
        "required": [one.name for one in parameters if one.default is inspect.Parameter.empty],
    }
    return ToolShape(
        name, (inspect.getdoc(function) or name).partition("\n")[0], schema, _reads(name)
    )


class _Bfcl:
    def __init__(self, instances: list[Any]) -> None:
        self._instances = instances

    def call(self, tool: str, arguments: JSONObject) -> JSON:
        for one in self._instances:
            method = cast("Callable[..., object] | None", getattr(one, tool, None))
            if method is not None:
                try:
                    value = as_json(method(**copy.deepcopy(arguments)))
                except Exception as error:
                    raise CallError(f"{type(error).__name__}: {error}") from error
                if isinstance(value, dict) and "error" in value:
                    raise CallError(str(value["error"]))
                return value
        raise CallError(f"no tool {tool}")

    def state(self) -> JSON:
        # The objects inside these are compared by benchmarks/effects.py.
        return [as_json(cast("dict[str, object]", vars(one))) for one in self._instances]


def _bfcl() -> Iterator[Case]:
    constants = _module("bfcl_eval.constants.executable_backend_config")
    paths = cast("dict[str, str]", constants.CLASS_FILE_PATH_MAPPING)
    data = Path(str(_module("bfcl_eval").__path__[0])) / "data"
    answers = {
        one["id"]: one["ground_truth"]
        for one in _lines(data / "possible_answer" / "BFCL_v4_multi_turn_base.json")
    }
    for task in _lines(data / "BFCL_v4_multi_turn_base.json"):
        kinds = {name: getattr(_module(paths[name]), name) for name in task["involved_classes"]}
        functions = {
            name: one
            for kind in kinds.values()
            for name, one in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        prompt = " ".join(str(part["content"]) for turn in task["question"] for part in turn)
        steps: list[Step] = []
        notes: list[str] = []
        for text in (one for turn in answers[task["id"]] for one in turn):
            try:
                steps.append(_parsed(text, functions))
            except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
                notes.append(f"left out {text}: {error}"[:200])

        config = cast("dict[str, JSONObject]", task["initial_config"])

        def start(
            world: Renaming, kinds: dict[str, Any] = kinds, config: dict[str, JSONObject] = config
        ) -> Environment:
            instances: list[Any] = []
            for name, kind in kinds.items():
                instance = kind()
                if name not in constants.STATELESS_CLASSES:
                    instance._load_scenario(
                        copy.deepcopy(world.members(config.get(name, {}))), long_context=False
                    )
                instances.append(instance)

            return _Bfcl(instances)

        tools = [_shape_of(name, function) for name, function in functions.items()]
        yield Case("bfcl", str(task["id"]), prompt, tools, steps, start, notes)


def _parsed(text: str, functions: dict[str, Callable[..., object]]) -> Step:
    """A call from its source text."""
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError("no call")

    if isinstance(call.func, ast.Name):
        name = call.func.id
    else:
        name = cast("ast.Attribute", call.func).attr

    names = [one for one in inspect.signature(functions[name]).parameters if one != "self"]
    values: dict[str, JSON] = dict(zip(names, (_literal(one) for one in call.args), strict=False))
    for one in call.keywords:
        if one.arg is None:
            raise ValueError("a call with **")
        values[one.arg] = _literal(one.value)

    return Step(name, values)


def _literal(node: ast.expr) -> JSON:
    return as_json(ast.literal_eval(node))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
