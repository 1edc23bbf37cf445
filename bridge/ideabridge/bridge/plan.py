"""Plan: calls with references, a DAG by data flow.

`read_plan` reads a plan as a caller hands it over. A `Rehearsal` is a plan that was bound and checked as its run would
be, and that never runs: it has the dry run and the drawings. A `WaitingPlan` is the plan of a lazy run as people see it
before they decide on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.references import DAGGER, Hole, Reference, compile_value, format_reference, quoted
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.call import spread
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.dry_run import FORMS, draw, dry_run
from ideabridge.bridge.loop.event import RunStarted
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.memory import check_instance
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, ObjectLike, encode, normalise
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError, ValueMismatchError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.reading import read_solution
from ideabridge.tools.schema import Validator, check_schema

_KEYS = ("calls", "input", "instances", "output", "input_schema", "output_schema", "name", "description", "$schema")


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.

    Attributes:
        calls: the calls, as listed.
        input: what `†input` reads; None: the plan takes none.
        instances: initial states by instance; a call without `_instance` runs for every one.
        output: a value with references; None: the answer is the state.
        input_schema: JSON Schema of the input; None: inferred from the input where the plan becomes a tool.
        output_schema: JSON Schema of the output.
        name, description: what to call it when it is published.
        tools: tools of its own, as `tool` messages define them; what it was lifted from had them in its context.
    """

    calls: list[JSON]
    input: JSONObject | None = None
    instances: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    output: JSON = None
    input_schema: JSONObject | None = None
    output_schema: JSONObject | None = None
    name: str | None = None
    description: str | None = None
    tools: tuple[JSONObject, ...] = ()

    def context(self) -> list[JSON]:
        """The context messages of the plan: its input, and a state for each instance."""
        messages: list[JSON] = [{"type": "tool", "tool": tool} for tool in self.tools]
        if self.description:
            messages.append({"role": "user", "content": self.description})
        if self.input is not None:
            message: JSONObject = {"type": "input", "input": self.input}
            if self.input_schema is not None:
                message["schema"] = self.input_schema
            messages.append(message)
        messages.extend(
            {"type": "state", "state": state, "_instance": instance} for instance, state in self.instances.items()
        )
        return messages

    @property
    def title(self) -> str:
        """One line for people."""
        names = dict.fromkeys(str(call.get("_tool")) for call in self.calls if isinstance(call, dict))
        return self.name or " + ".join(names)[:200] or "an empty plan"

    @property
    def output_by_instance(self) -> bool:
        """Whether the output is a map by instance: there are instances, and it reads inside one.

        An output whose references all name their instance, or that has none, is one value for all.
        """
        holes: list[Hole] = []
        compile_value(self.output, holes, [])
        inside = any(one.instance is None for hole in holes for one in hole.expression.operands())
        return bool(self.instances) and (self.output is None or inside)

    def check_input(self) -> None:
        """Check the input schema, and the input against it where one is given.

        Raises:
            SchemaError: `input_schema` is invalid; the message says where.
            PlanError: the input does not satisfy it; the message says path, found and expected.
        """
        if self.input_schema is not None:
            check_schema(self.input_schema, what="input_schema of the plan")
        if self.input_schema is not None and self.input is not None:
            try:
                Validator(self.input_schema, what="input of the plan").check(self.input)
            except ValueMismatchError as error:
                raise PlanError(str(error)) from None

    def expanded(self) -> tuple[list[JSON], list[JSON] | None]:
        """The calls with one copy for every instance where none is named, and their places in the plan."""
        return spread(self.calls, list(self.instances))


PlanLike: TypeAlias = "Plan | ObjectLike | Sequence[ObjectLike]"
"""A plan, what `read_plan` reads as one, or only its calls."""


def _object(raw: JSONObject, key: str) -> JSONObject | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, dict):
        raise PlanError(f"{key}: expected an object, found {show(value)}")
    return value


def _text(raw: JSONObject, key: str) -> str | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise PlanError(f"{key}: expected text, found {show(value)}")
    return value


def read_plan(raw: ObjectLike | JSON) -> Plan:
    """Read a plan: `{"calls": [...], "input"?, "instances"?, "output"?, ...}`.

    Raises:
        PlanError: the shape is wrong; the message says where, what was found and what was expected.
        InvalidJSONError, LimitExceededError: it is not JSON, nests too deep or is too large.
    """
    plan = normalise(raw, what="the plan")
    size = len(encode(plan))
    if size > MAX_BYTES:
        raise LimitExceededError(f"the plan has {size:,} bytes of JSON; at most {MAX_BYTES:,} are taken")
    if isinstance(plan, list):
        return _read({"calls": plan})
    if not isinstance(plan, dict):
        raise PlanError(f'the plan: expected {{"calls": [...]}}, found {type(plan).__name__}')
    return _read(plan)


def _read(raw: JSONObject) -> Plan:
    unknown = [key for key in raw if key not in _KEYS]
    if unknown:
        raise PlanError(f"the plan: unknown key {quoted(unknown[0])}.{did_you_mean(unknown[0], _KEYS)}")
    if "calls" not in raw:
        raise PlanError('the plan: "calls" is missing; expected an array of calls')
    try:
        solution, _ = read_solution({"calls": raw["calls"], "output": raw.get("output")})
    except IdeabridgeError as error:
        raise PlanError(f"the plan: {error}") from None
    calls = solution["calls"]
    instances = _object(raw, "instances") or {}
    states: dict[str, JSONObject] = {}
    for instance, state in instances.items():
        if not isinstance(state, dict):
            raise PlanError(f"instances.{instance[:100]}: expected an object (the initial state)")
        try:
            check_instance(instance)
        except MessageError as error:
            raise PlanError(f"instances: {error}") from None
        states[instance] = state
    return Plan(
        calls=calls if isinstance(calls, list) else [],
        input=_object(raw, "input"),
        instances=states,
        output=solution["output"],
        input_schema=_object(raw, "input_schema"),
        output_schema=_object(raw, "output_schema"),
        name=_text(raw, "name"),
        description=_text(raw, "description"),
    )


def read_published(
    plan: JSONObject,
    arguments: JSONObject,
    input_schema: JSONObject | None,
    output_schema: JSONObject | None,
    *,
    name: str,
) -> Plan:
    """A plan as a publication holds it, with new input.

    It is `{"calls", "output", "instances"?, "output_schema"?, "tools"?}`, and `lifting`, which says how it
    was made.

    Its own `output_schema` stands where the tool's is another: over instances the tool gives a map of outputs.
    """
    calls, instances, own = plan.get("calls"), plan.get("instances"), plan.get("output_schema")
    states: dict[str, JSONObject] = {}
    if isinstance(instances, dict):
        states = {one: state for one, state in instances.items() if isinstance(state, dict)}
    tools = plan.get("tools")
    takes_input = bool(input_schema and input_schema.get("properties"))
    return Plan(
        calls=calls if isinstance(calls, list) else [],
        input=arguments if takes_input or arguments else None,
        instances=states,
        output=plan.get("output"),
        input_schema=input_schema if takes_input else None,
        output_schema=own if isinstance(own, dict) else output_schema,
        name=name,
        tools=tuple(one for one in tools if isinstance(one, dict)) if isinstance(tools, list) else (),
    )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A plan that can run.

    Attributes:
        graph: its calls, bound to each other.
        missing: what it reads of an input, where it was given none.
    """

    graph: Graph
    missing: tuple[str, ...] = ()

    def told(self) -> JSONObject:
        """What it would do; see `dry_run`."""
        return dry_run(self.graph, self.missing)

    def drawn(self, form: str) -> str:
        """A drawing of it; see `draw`.

        Raises:
            PlanError: no such form.
        """
        if form not in FORMS:
            raise PlanError(f"drawing: expected {' or '.join(map(repr, FORMS))}, found {form!r}")
        return draw(self.graph, form, self.missing)


def rehearse(plan: Plan, catalogue: Catalogue, settings: Settings) -> Rehearsal:
    """Check a plan as its run would. Where it was given no input, what it reads of one is reported, not refused.

    Raises:
        PlanError: it is malformed; `errors` has every fault with its call.
    """
    graph, errors = _checked(plan, catalogue, settings)
    missing: tuple[str, ...] = ()
    if errors and plan.input is None:
        needed = _needed_inputs(plan)
        if needed:
            graph, errors = _checked(dataclasses.replace(plan, input=_placeholder(needed)), catalogue, settings)
            missing = tuple(dict.fromkeys(format_reference(one.full) for one in needed))
    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])
    return Rehearsal(graph, missing)


def _checked(plan: Plan, catalogue: Catalogue, settings: Settings) -> tuple[Graph, list[JSONObject]]:
    machine = Machine(catalogue)
    machine.receive(RunStarted("plan", plan.context(), [], [], settings.to_json(), plan.output_schema))
    calls, places = plan.expanded()
    errors = machine.check(calls, plan.output, places)
    # Without a graph there are more calls than a run may list, which is an error.
    return machine.checked_graph or Graph(catalogue, {}), errors


def _needed_inputs(plan: Plan) -> list[Reference]:
    """What the plan reads of its input where nothing else may stand in for it."""
    holes: list[Hole] = []
    compile_value([*plan.calls, _imported(plan), plan.output], holes, [])
    needed: list[Reference] = []
    for hole in holes:
        reads = [[one for one in operands if one.kind == "input"] for operands in hole.expression.alternatives]
        if all(reads):
            needed.extend(one for one in reads[0] if one.path)
    return needed


def _imported(plan: Plan) -> list[JSON]:
    """What `_imports` name without a dagger."""
    listed = [call.get("_imports") for call in plan.calls if isinstance(call, dict)]
    names = [name for names in listed if isinstance(names, list) for name in names]
    return [DAGGER + name for name in names if isinstance(name, str) and not name.startswith(DAGGER)]


def _placeholder(needed: list[Reference]) -> JSONObject:
    """An input in which every one of these is there."""
    root: JSONObject = {}
    for operand in needed:
        here = root
        for key in operand.path:
            below: JSON = here.setdefault(key, {})
            here = cast("JSONObject", below)
    return root


SHOWN: Final = 200
"""Calls up to which a plan over instances is drawn with each of its copies; beyond, one instance stands for all."""


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan of which nothing has run.

    Attributes:
        question: what is asked; its `approval` is what `Run.decide` takes.
        instances: how many instances one stands for in the dry run and the drawings; 0: each is there.
    """

    question: Question
    rehearsal: Rehearsal
    instances: int = 0

    @property
    def calls(self) -> list[JSON]:
        """Its calls; one for every instance stands once."""
        calls = self.question.shown["calls"]
        return calls if isinstance(calls, list) else []

    @property
    def output(self) -> JSON:
        """Its output, with references; None: it has none yet."""
        return self.question.shown["output"]

    def dry_run(self) -> JSONObject:
        """Its order, what runs in parallel, reads and writes, what is not read-only; see `Bridge.dry_run`."""
        return self.rehearsal.told()

    def draw(self, form: str = "text") -> str:
        """A drawing: `text` or `mermaid`.

        Raises:
            PlanError: no such form.
        """
        return self.rehearsal.drawn(form)

    def to_json(self) -> JSONObject:
        """`{"calls", "output", "instances"?, "dry_run", "drawing"}`."""
        shown: JSONObject = dict(self.question.shown)
        if self.instances:
            shown["instances"] = self.instances
        return {**shown, "dry_run": self.dry_run(), "drawing": self.draw()}


def waiting_plan(machine: Machine) -> WaitingPlan | None:
    """The plan that waits; None where there is none."""
    question, plan = machine.plan_question, machine.waiting_plan
    if question is None or plan is None:
        return None
    if plan.places is None or len(plan.calls) <= SHOWN:
        return WaitingPlan(question, Rehearsal(plan.graph))
    # As if there were no instances: what the first has, all have.
    instances = machine.instances
    documents = machine.documents
    settings = machine.settings
    graph = Graph(
        machine.offer.current,
        {**documents, "": documents[instances[0]]},
        order=settings.order,
        modules=settings.modules,
    )
    shown = question.shown["calls"]
    graph.take(shown if isinstance(shown, list) else [], plan.output)
    return WaitingPlan(question, Rehearsal(graph), len(instances))
