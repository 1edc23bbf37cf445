"""Read and check plans. A plan consists of calls, connected by references into a directed acyclic
data-flow graph.

`read_plan` reads a plan that a caller passes. `rehearse` binds and checks a plan as its run would,
without running it. The resulting `Rehearsal` makes the dry run and the drawings. A `WaitingPlan`
presents the plan of a lazy run to people before they decide on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeGuard, cast

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.explanations import shortened_member
from ideabridge.bridge.context.references import (
    DAGGER,
    Hole,
    Reference,
    compile_value,
    escaped,
    format_reference,
    quoted,
)
from ideabridge.bridge.context.written_call import title_of_tools, tool_names, written_calls
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.call import spread
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.dry_run import FORMS, dry_run_report, plan_drawing
from ideabridge.bridge.loop.event import RunStarted, SolutionProposed
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.initial_documents import check_instance
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.tools.encoding import (
    JSON,
    MAX_BYTES,
    JSONObject,
    ObjectLike,
    encode,
    list_or_empty,
    normalise,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError, ValueMismatchError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.reading import Solution, read_solution
from ideabridge.tools.schema import Validator, check_schema
from ideabridge.tools.tool import PROGRAM_STEP
from ideabridge.tools.typed import read_as

_KEYS = (
    "calls",
    "program",
    "input",
    "instances",
    "output",
    "input_schema",
    "output_schema",
    "name",
    "description",
    "$schema",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.

    Attributes:
        calls: the calls, as listed.
        input: the value of `†input`, or None if the plan takes no input.
        instances: initial states keyed by instance. A call without `_instance` runs once for each
            instance.
        output: a value with references, or None if the final state is the answer.
        input_schema: JSON Schema of the input. If None, the schema is inferred from the input when
            the plan becomes a tool.
        output_schema: JSON Schema of the output.
        name, description: the name and the description of the tool, if the plan is published.
        tools: the tools that the plan's context defines in `tool` messages. If the plan was lifted,
            these are the tools that the context of the run defined.
        messages: the other messages in the context, such as texts, data and states, if the plan's
            idea was written by hand.
        explained: how to compute, from new data, the literals that a recorded run copied; see
            `context/plan_literals.py`.
        program: Python text that replaces the calls and the output, and runs once for each
            instance; see `programs/sandbox.py`.
        names: the names of tools in a published program; see `ProgramNames.used_by`. For such a
            program, `calls` lists the tools that it can call, each as a call without parameters.
        reached: the places `[line, column]` in a published program from which recorded runs made
            calls. A call at any other place asks before it changes something. None if the program
            was not checked against a recording.
        assumed: the assumptions about the input to a published program, in the form of
            `Settled.assumed`.
        state_schemas: the schema of the state for each instance that has one, keyed by instance.
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
    messages: tuple[JSONObject, ...] = ()
    explained: JSONObject | None = None
    program: str | None = None
    names: JSONObject | None = None
    reached: list[JSON] | None = None
    assumed: tuple[JSONObject, ...] = ()
    state_schemas: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])

    def context(self) -> list[JSON]:
        """Return the plan's context: its tools, its other messages, its input, and a state for each
        instance.
        """
        messages: list[JSON] = [{"type": "tool", "tool": tool} for tool in self.tools]
        messages += self.messages
        if self.description:
            messages.append({"role": "user", "content": self.description})

        if self.input is not None:
            message: JSONObject = {"type": "input", "input": self.input}
            if self.input_schema is not None:
                message["schema"] = self.input_schema
            messages.append(message)

        written = {
            str(message.get("_instance"))
            for message in self.messages
            if message.get("type") == "state"
        }
        for instance, state in self.instances.items():
            if instance in written:
                continue
            message = {"type": "state", "state": state, "_instance": instance}
            if instance in self.state_schemas:
                message["schema"] = self.state_schemas[instance]

            messages.append(message)

        return messages

    @property
    def title(self) -> str:
        """The plan's name or, for a plan without a name, the names of its tools, on one line."""
        if self.name:
            return self.name
        names = title_of_tools(tool_names(self.calls))
        if names:
            return names
        return "an empty plan" if self.program is None else "a program"

    def title_with(self, tools: Iterable[str]) -> str:
        """Return the `title` of the plan. For a program without a name, return the names of the
        tools that it can call, which are known only from the catalogue of its run.
        """
        names = title_of_tools(dict.fromkeys(tools))
        if self.program is None or self.name or not names:
            return self.title
        return f"program: {names}"

    @property
    def output_by_instance(self) -> bool:
        """Return whether the output maps each instance to a separate output. This is the case if
        the plan has instances, and a reference in the output names no instance.

        If every reference in the output names an instance, or the output has no references, the
        output is a single value.
        """
        holes: list[Hole] = []
        compile_value(self.output, holes, [])
        inside = any(
            operand.instance is None for hole in holes for operand in hole.expression.operands()
        )
        return bool(self.instances) and (self.output is None or inside)

    def check_input(self) -> None:
        """Check the input schema and, if the plan has an input, check the input against the schema.

        Raises:
            SchemaError: `input_schema` is invalid. The message says where.
            PlanError: the input does not satisfy the schema. The message has the path, what was
                found and what was expected.
        """
        if self.input_schema is not None:
            check_schema(self.input_schema, what="input_schema of the plan")
        if self.input_schema is not None and self.input is not None:
            try:
                Validator(self.input_schema, what="input of the plan").check(self.input)
            except ValueMismatchError as error:
                raise PlanError(str(error)) from None

    def by_instance(self) -> Plan:
        """Return the plan, with a program over instances replaced by one call.

        The call runs the program once for each instance, with the common input and the instance's
        state.
        """
        if self.program is None or not self.instances:
            return self

        call: JSONObject = {
            "_tool": PROGRAM_STEP[1],
            "_module": PROGRAM_STEP[0],
            "program": escaped(self.program),
        }
        if self.input is not None:
            call["input"] = f"{DAGGER}input"

        call["_imports"] = ["state"]
        return dataclasses.replace(self, calls=[call], output=f"{DAGGER}results.0", program=None)

    def expanded(self) -> tuple[list[JSON], list[JSON] | None]:
        """Return the calls and their places in the plan. A call that names no instance is repeated
        for every instance.
        """
        return spread(self.calls, list(self.instances))


PlanLike: TypeAlias = "Plan | ObjectLike | Sequence[ObjectLike]"
"""A plan, an object that `read_plan` reads, or a sequence of calls."""


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
        PlanError: the plan does not have this form. The message says where, what was found and what
            was expected.
        InvalidJSONError, LimitExceededError: the plan is not JSON, is nested too deeply or is too
            large.
    """
    plan = normalise(raw, what="the plan")
    size = len(encode(plan))
    if size > MAX_BYTES:
        raise LimitExceededError(f"the plan has {size:,} bytes of JSON; the limit is {MAX_BYTES:,}")

    if isinstance(plan, list):
        plan = dict[str, JSON](calls=plan)

    if not isinstance(plan, dict):
        raise PlanError(f'the plan: expected {{"calls": [...]}}, found {type(plan).__name__}')

    unknown = [key for key in plan if key not in _KEYS]
    if unknown:
        raise PlanError(
            f"the plan: unknown key {quoted(unknown[0])}.{did_you_mean(unknown[0], _KEYS)}"
        )

    program = _text(plan, "program")
    if program is not None:
        extra = [key for key in ("calls", "output") if plan.get(key) is not None]
        if extra:
            raise PlanError(
                f"the plan: a program makes its own calls and output; leave out {extra[0]}"
            )
    elif "calls" not in plan:
        raise PlanError('the plan: "calls" is missing; expected an array of calls, or "program"')
    elif plan["calls"] == {}:
        raise PlanError("the plan: calls: expected an array of calls, found {}")

    try:
        members, _ = read_solution({"calls": plan.get("calls") or [], "output": plan.get("output")})
    except IdeabridgeError as error:
        raise PlanError(f"the plan: {error}") from None

    solution = read_as(Solution, members)
    states: dict[str, JSONObject] = {}
    state_schemas: dict[str, JSONObject] = {}
    for instance, state in (_object(plan, "instances") or {}).items():
        if _is_message(state):
            schema = _object(state, "schema")
            if schema is not None:
                state_schemas[instance] = schema
            state = state["state"]

        if not isinstance(state, dict):
            raise PlanError(f"instances.{instance[:100]}: expected an object (the initial state)")
        try:
            check_instance(instance)
        except MessageError as error:
            raise PlanError(f"instances: {error}") from None

        states[instance] = state

    return Plan(
        calls=solution.calls,
        input=_object(plan, "input"),
        instances=states,
        output=solution.output,
        input_schema=_object(plan, "input_schema"),
        output_schema=_object(plan, "output_schema"),
        name=_text(plan, "name"),
        description=_text(plan, "description"),
        program=program,
        state_schemas=state_schemas,
    )


def _is_message(state: JSON) -> TypeGuard[JSONObject]:
    """Return whether an instance has the form of a message, `{"type": "state", "state": {...},
    "schema"?: {...}}`.
    """
    if not isinstance(state, dict) or state.keys() - {"type", "state", "schema"}:
        return False
    return state.get("type") == "state" and isinstance(state.get("state"), dict)


def with_defaults(arguments: JSONObject, schema: JSONObject | None) -> JSONObject:
    """Return the arguments to a published idea, plus the `default` of each omitted optional
    parameter that has one.

    Required parameters that are missing stay missing, and nested properties are not filled in.

    `schema` is the input schema, or None if the idea has no parameters.
    """
    if schema is None:
        return arguments

    required = list_or_empty(schema.get("required"))
    defaults: JSONObject = {}
    for name, parameter in object_or_empty(schema.get("properties")).items():
        if name in arguments or name in required:
            continue

        members = object_or_empty(parameter)
        if "default" in members:
            defaults[name] = members["default"]

    return {**arguments, **defaults} if defaults else arguments


def read_published(
    plan: JSONObject,
    arguments: JSONObject,
    input_schema: JSONObject | None,
    output_schema: JSONObject | None,
    *,
    name: str,
) -> Plan:
    """Read a publication's plan, with new input. Defaults fill in absent parameters.

    Besides the members of `PublishedPlan`, the plan may have `explained`, `seen`, `watch`,
    `decisions` and `strict` (see `context/plan_literals.py`), `reached` (see `Plan`), and `copied`,
    the number of runs in which a mind copied values.
    """
    published = read_as(PublishedPlan, plan)
    own_schema = published.output_schema
    assumed = tuple(_kept_defaults(published, arguments, input_schema))
    arguments = {**with_defaults(arguments, input_schema), **published.fixed}
    takes_input = bool(input_schema and input_schema.get("properties"))
    return Plan(
        calls=published.calls,
        input=arguments if takes_input or arguments else None,
        instances=published.instances,
        output=published.output,
        input_schema=input_schema if takes_input else None,
        output_schema=output_schema if own_schema is None else own_schema,
        name=name,
        tools=published.tools,
        messages=published.context,
        explained=_explained(plan),
        program=published.program,
        names=published.names,
        reached=_reached(plan),
        assumed=assumed,
    )


def _reached(plan: JSONObject) -> list[JSON] | None:
    if "reached" not in plan:
        return None
    reached = plan["reached"]
    # If the value is not a list, it names no places, so every call that might change something
    # asks.
    return list_or_empty(reached)


NOT_GIVEN: Final = "it was left out, so the recorded value was used"
"""The reason why a program assumes a value for an input member that the caller does not pass."""


def _kept_defaults(
    plan: PublishedPlan, arguments: JSONObject, schema: JSONObject | None
) -> Iterator[JSONObject]:
    """Yield an assumption for each recorded default of a program, unless the caller
    overrides it.
    """
    if not plan.recorded_defaults:
        return

    defaults = with_defaults({}, schema)
    for name in plan.recorded_defaults:
        if name in arguments:
            continue
        assumed: JSONObject = {"at": f"input.{name}", "why": NOT_GIVEN}
        if name in defaults:
            assumed |= {
                **shortened_member("taken", defaults[name]),
                "from": "the recorded run",
                "instead": [],
            }

        yield assumed


_EXPLAINING: Final = {
    "explained": "values",
    "seen": "seen",
    "watch": "watch",
    "decisions": "decisions",
    "strict": "strict",
}
"""Maps the members of a published plan that say how to compute literals to their names in
`Plan.explained`.
"""


def _explained(plan: JSONObject) -> JSONObject | None:
    explained: JSONObject = {name: plan[key] for key, name in _EXPLAINING.items() if plan.get(key)}
    return explained or None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A plan that can run.

    Attributes:
        graph: the calls of the plan, bound to each other.
        missing: the plan's references to the input, if the plan has no input.
    """

    graph: Graph
    missing: tuple[str, ...] = ()

    def dry_run(self) -> JSONObject:
        """Return the order of the calls, which of them run in parallel, and what each call reads
        and writes; see `Bridge.dry_run`.
        """
        return dry_run_report(self.graph, self.missing)

    def draw(self, form: str = "text") -> str:
        """Return a drawing of the plan: `text` or `mermaid`.

        Raises:
            PlanError: the form is unknown.
        """
        if form not in FORMS:
            raise PlanError(f"drawing: expected {' or '.join(map(repr, FORMS))}, found {form!r}")
        return plan_drawing(self.graph, form, self.missing)


def rehearse(plan: Plan, catalogue: Catalogue, settings: Settings) -> Rehearsal:
    """Check a plan as its run would. If the plan has no input, its references to the input are
    reported in `missing` instead of being refused.

    Raises:
        PlanError: the plan is malformed; `errors` has every fault with its call.
    """
    graph, errors = _checked(plan, catalogue, settings)
    missing: tuple[str, ...] = ()
    if errors and plan.input is None:
        needed = needed_inputs(plan)
        if needed:
            # The placeholder has no types that could be checked.
            blind = dataclasses.replace(settings, foresight=False)
            graph, errors = _checked(
                dataclasses.replace(plan, input=_placeholder(needed)), catalogue, blind
            )
            missing = tuple(dict.fromkeys(format_reference(operand.full) for operand in needed))

    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])
    return Rehearsal(graph, missing)


def _checked(
    plan: Plan, catalogue: Catalogue, settings: Settings
) -> tuple[Graph, list[JSONObject]]:
    machine = Machine(catalogue)
    machine.receive(
        RunStarted("plan", plan.context(), [], [], settings.to_json(), plan.output_schema)
    )
    calls, places = plan.expanded()
    checked = machine.check(
        SolutionProposed(calls, plan.output, None, places, explained=plan.explained)
    )
    if checked.proposal is None:
        # The plan has more calls or references than a run can have, which `errors` reports. Leave
        # the graph empty.
        return Graph(catalogue, {}), checked.errors
    return checked.proposal.graph, checked.errors


def needed_inputs(plan: Plan) -> list[Reference]:
    """Return the references to the input that have no alternative."""
    holes: list[Hole] = []
    compile_value([*plan.calls, _imported(plan), plan.output], holes, [])
    needed: list[Reference] = []
    for hole in holes:
        reads = [
            [operand for operand in operands if operand.kind == "input"]
            for operands in hole.expression.alternatives
        ]
        if all(reads):
            needed.extend(operand for operand in reads[0] if operand.path)

    return needed


def inputs_read_by(plan: Plan) -> frozenset[str] | None:
    """Return the members of the input that the calls and the output of a plan read, or None if
    they read the whole input.
    """
    holes: list[Hole] = []
    compile_value([*plan.calls, _imported(plan), plan.output], holes, [])
    names: set[str] = set()
    for hole in holes:
        for operand in hole.expression.operands():
            if operand.kind == "input" and not operand.path:
                return None
            if operand.kind == "input":
                names.add(str(operand.path[0]))

    return frozenset(names)


def _imported(plan: Plan) -> list[JSON]:
    """Return the references in `_imports` that are written without a dagger."""
    calls = written_calls(plan.calls)
    names = [name for call in calls for name in list_or_empty(call.members.get("_imports"))]
    return [
        DAGGER + name for name in names if isinstance(name, str) and not name.startswith(DAGGER)
    ]


def _placeholder(needed: list[Reference]) -> JSONObject:
    """Return an input that has a value for each of these references."""
    root: JSONObject = {}
    for operand in needed:
        parent = root
        for key in operand.path:
            below: JSON = parent.setdefault(key, {})
            parent = cast("JSONObject", below)

    return root


MOST_DRAWN_CALLS: Final = 200
"""Maximum number of calls, over all instances, for a plan to be drawn with all its instances. For a
larger plan, only one instance is drawn.
"""


@dataclass(frozen=True, slots=True)
class WaitingPlan(Rehearsal):
    """A plan that is waiting for a decision. None of its calls has run.

    Attributes:
        question: the question. Pass its `approval` to `Run.decide`.
        instances: the number of the run's instances, each of which makes the calls. 0 if the run
            has no instances. If there are many calls, the dry run and the drawings show only one
            instance.
    """

    question: Question = field(kw_only=True)
    instances: int = 0

    @property
    def calls(self) -> list[JSON]:
        """The calls as the plan lists them: one call for all instances."""
        calls = self.question.shown["calls"]
        return list_or_empty(calls)

    @property
    def output(self) -> JSON:
        """The output, with references, or None if the plan has no output yet."""
        return self.question.shown["output"]

    def to_json(self) -> JSONObject:
        """Return `{"calls", "output", "instances"?, "dry_run", "drawing"}`."""
        shown: JSONObject = dict(self.question.shown)
        if self.instances:
            shown["instances"] = self.instances
        return {**shown, "dry_run": self.dry_run(), "drawing": self.draw()}


def waiting_plan(machine: Machine) -> WaitingPlan | None:
    """Return the plan that a lazy run is waiting for someone to decide on, or None."""
    question = machine.plan_question
    plan = machine.waiting_plan
    if question is None or plan is None:
        return None
    if plan.solution.places is None or len(plan.solution.calls) <= MOST_DRAWN_CALLS:
        return WaitingPlan(plan.graph, question=question, instances=len(machine.instances))

    # All instances have the same documents, so draw the plan for the first one only.
    documents = machine.documents
    settings = machine.settings
    graph = Graph(
        machine.offer.current,
        {**documents, "": documents[machine.instances[0]]},
        Settings(order=settings.order, modules=settings.modules),
    )
    waiting = WaitingPlan(graph, question=question, instances=len(machine.instances))
    graph.take(waiting.calls, waiting.output)
    return waiting
