"""Function: an idea as a run of it made it: what it read, did and gave (DESIGN 4.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.message import Message, read_context
from ideabridge.bridge.context.reference import is_reference, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.idea import function_schemas
from ideabridge.bridge.ideas.records import StoredIdea
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.event import Pattern, SolutionCancelled, SolutionProposed
from ideabridge.bridge.replay.recorded import RecordedRun, find_idea, read_run
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import move_refs

_PATTERNS: Final[dict[Pattern, str]] = {
    "all": "all or nothing",
    "any": "the first success cancels the others",
    "race": "the first to end cancels the others",
}


@dataclass(frozen=True, slots=True)
class Function:
    """An idea seen as a function.

    Attributes:
        stored: the idea.
        run: the run that ended with it.
        input: what `†input` read; None where it takes none.
        input_schema: the parameters of the tool.
        output_schema: schema of what the tool gives; None where nobody said.
        part_schema: over instances, schema of the output of each; else None.
        calls: as its plan listed them.
        output: of its solution, without the wrapping a mind writes.
        instances: initial states by instance.
        tools: of `tool` messages of its context, those it called.
        faults: why it cannot be a plan, as far as its context and output tell.
    """

    stored: StoredIdea
    run: RecordedRun
    input: JSONObject | None
    input_schema: JSONObject
    output_schema: JSONObject | None
    part_schema: JSONObject | None
    calls: list[JSON]
    output: JSON
    instances: dict[str, JSONObject]
    tools: list[JSONObject]
    faults: list[str]

    def plan(self) -> JSONObject:
        """Its plan as a publication holds it; see `read_published`."""
        plan: JSONObject = {"calls": self.calls, "output": self.output}
        reading = self.run.machine.settings.reading
        if reading > 1:
            # Plans that were published before there were others have none: they are read by the first rules.
            plan["reading"] = reading
        if self.instances:
            plan["instances"] = dict[str, JSON](self.instances)
        if self.tools:
            plan["tools"] = list[JSON](self.tools)
        if self.part_schema is not None:
            plan["output_schema"] = self.part_schema
        return plan


def read_function(store: Store, ref: str, caller: str) -> Function:
    """The idea `ref` names, as a function of this caller's.

    Raises:
        UnknownIdeaError, UnknownRunError: there is none for this caller.
        PublicationError: no run of it in this store ended well, or it takes several inputs.
    """
    stored, run_id = find_idea(store, ref, caller)
    run = read_run(store, run_id)
    if run is None:
        record = store.run(run_id)
        raise PublicationError(
            f"no finished run of idea {stored.id[:12]} is in this store to answer from:"
            f" run {run_id} is {record.status if record is not None else 'gone'}, not done"
        )
    messages = read_context(stored.idea.context)
    taken = [message for message in messages if message.type == "input" and not message.instance]
    if len(taken) > 1:
        raise PublicationError("the idea has several inputs; one input is what becomes a tool's parameters")
    value = taken[0].value if taken else None
    machine = run.machine
    output, fault = _unwrapped(run)
    faults = [*_left_behind(run), *_otherwise(run), *([fault] if fault else [])]
    whole, part = _output_schemas(run)
    states = {name: _initial(machine.messages, name) for name in machine.instances}
    return Function(
        stored=stored,
        run=run,
        input=value if isinstance(value, dict) else None,
        input_schema=function_schemas(stored.idea)[0]
        or {"type": "object", "properties": {}, "additionalProperties": False},
        output_schema=whole,
        part_schema=part,
        calls=run.calls(),
        output=output,
        instances=states,
        tools=_own_tools(run),
        faults=faults,
    )


def _initial(messages: list[Message], instance: str) -> JSONObject:
    for message in messages:
        if message.type == "state" and message.instance == instance and isinstance(message.value, dict):
            return message.value
    return {}


def _output_schemas(run: RecordedRun) -> tuple[JSONObject | None, JSONObject | None]:
    """(schema of what the run gives, schema of each instance's output), as its user asked for them."""
    asked = run.machine.output_schema
    if not run.machine.has_output:
        # It gives its state, of which an output's schema says nothing.
        return None, None
    if run.machine.mode == "solve" and asked is None:
        return {"type": "string"}, None
    if asked is None or not run.machine.settings.output_by_instance:
        return asked, None
    return {"type": "object", "additionalProperties": move_refs(asked, ("additionalProperties",))}, asked


def _unwrapped(run: RecordedRun) -> tuple[JSON, str | None]:
    """The output without the `{"value": ...}` in which a mind writes what may be null, and why that is not possible."""
    machine = run.machine
    output = machine.solution.output
    if machine.mode != "solve" or not wrap_output(machine.output_schema)[1]:
        return output, None
    if isinstance(output, dict) and list(output) == ["value"]:
        output = output["value"]
        return output, "its output is null for every input" if output is None else None
    if isinstance(output, str) and is_reference(output):
        alternatives = parse_reference(output).alternatives
        if len(alternatives) == 1 and len(alternatives[0]) == 1:
            return f"{alternatives[0][0].text}.value", None
    return output, 'its output is written so that the value in {"value": ...} cannot be told'


def _own_tools(run: RecordedRun) -> list[JSONObject]:
    """The tools its context defined and its calls used; a later definition stands for an earlier one."""
    used = {one.call.name for one in run.machine.history}
    found = [message.value for message in run.machine.messages if message.type == "tool"]
    named = {str(value.get("name")): value for value in found if isinstance(value, dict)}
    return [value for name, value in named.items() if name in used]


def _left_behind(run: RecordedRun) -> list[str]:
    """What a context holds that a plan does not carry: without it, the calls would give something else."""
    found: list[str] = []
    states: set[str] = set()
    for number, message in enumerate(run.machine.messages):
        what = ""
        where = f" of instance {message.instance}" if message.instance else ""
        if message.type == "data":
            what = f"data {message.kind!r}{where}"
        elif message.type == "input" and message.instance:
            what = f"an input{where}"
        elif message.type == "state" and message.schema is not None:
            what = f"a schema of the state{where}"
        elif message.type == "state" and (not message.instance or message.instance in states):
            what = f"a state{where}" if message.value else ""
        if message.type == "state":
            states.add(message.instance)
        if what:
            found.append(f"context.{number} holds {what}")
    if found:
        return [f"its context holds what a plan does not carry: {'; '.join(found)}"]
    if run.machine.mode == "solve" and run.machine.instances:
        return ["it was solved over instances; only a plan over instances can be published as one"]
    return []


def _otherwise(run: RecordedRun) -> list[str]:
    """What a run did that the same calls, as a plan, would not: groups, cancelled steps, replaced calls."""
    found: list[str] = []
    steps = 0
    for event in run.events:
        if isinstance(event, SolutionProposed):
            steps += 1
            if event.pattern is not None:
                found.append(f"step {steps - 1} is a group ({event.pattern}: {_PATTERNS[event.pattern]})")
        elif isinstance(event, SolutionCancelled):
            found.append(f"step {steps - 1} was cancelled")
    found += [
        f"a person put {one.replaced.name!r} in the place of calls.{one.call.place} ({one.call.name})"
        for one in run.machine.history
        if one.replaced is not None
    ]
    if not found:
        return []
    more = f"; and {len(found) - 20} more" if len(found) > 20 else ""
    return [f"a plan runs every call it lists, each for itself, but {'; '.join(found[:20])}{more}"]
