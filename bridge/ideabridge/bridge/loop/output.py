"""Output: what a run gives, checked against the schema its user asked for."""

from __future__ import annotations

from typing import Final, Literal

from ideabridge.bridge.context.document import MISSING, Missing
from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.reference import fill
from ideabridge.bridge.loop.event import JournalError
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.opening import InitialDocuments
from ideabridge.bridge.loop.progress import Absent, Judge, Wait
from ideabridge.bridge.loop.readiness import Filling
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator

_WRAPPED: Final = (
    '. The schema asked for admits null, and "output": null means "no output yet", so the value is wrapped,'
    ' "output": {"value": ...}'
)


class OutputSchema:
    """The schema of a run's output.

    Args:
        schema: the user's; None: text for a mind, anything for a plan.
        mode: a mind writes null for "not yet", so an output that may be null comes wrapped in `{"value": ...}`.
        by_instance: the output is a map by instance, each of which satisfies the schema.

    Raises:
        SchemaError: the schema is invalid.
    """

    def __init__(self, schema: JSONObject | None, *, mode: Literal["plan", "solve"], by_instance: bool) -> None:
        self._wrapped = False
        self._schema = schema
        self._by_instance = by_instance
        self._mode = mode
        if mode == "solve":
            self._schema, self._wrapped = wrap_output(schema)
        if self._schema is not None:
            # Compiled now: an invalid schema must be told before a run begins.
            Validator(self._schema, what="the output").is_valid(None)

    def settle(self, graph: Graph, judge: Judge) -> tuple[JSON, list[str], bool]:
        """The output without its wrapping, what is wrong with it, and whether it can be given.

        A plan's map by instance is given without the instances at fault, so long as one is left.

        Args:
            graph: of a Solution whose calls have settled.
            judge: tells what reads see.

        Raises:
            JournalError: a call has not settled.
        """
        value, faults = resolve(graph, judge, by_instance=self._by_instance)
        if self._by_instance and isinstance(value, dict):
            parts = {instance: self._checked(part, f" of {instance}", faults) for instance, part in value.items()}
            good: dict[str, JSON] = {one: part for one, part in parts.items() if not isinstance(part, Missing)}
            return good, faults, not faults or (self._mode == "plan" and bool(good))
        if faults:
            return None, faults, False
        checked = self._checked(value, "", faults)
        if isinstance(checked, Missing):
            return None, faults, False
        return (checked["value"] if self._wrapped and isinstance(checked, dict) else checked), [], True

    def _checked(self, value: JSON, where: str, faults: list[str]) -> JSON | Missing:
        try:
            if self._schema is None:
                return normalise(value, what=f"the output{where}")
            Validator(self._schema, what=f"the output{where}").check(value)
        except IdeabridgeError as error:
            faults.append(f"{error}{_WRAPPED if self._wrapped else ''}")
            return MISSING
        return value


def resolve(graph: Graph, judge: Judge, *, by_instance: bool) -> tuple[JSON, list[str]]:
    """The output of a Solution whose calls have settled, and what is wrong; by instance, a map of those that could be
    made.

    Raises:
        JournalError: a call has not settled.
    """
    faults: list[str] = list(graph.output_problems)
    found: dict[str, JSON] = {}
    size = 0
    for instance, reads in () if faults else graph.output_reads.items():
        if instance in graph.output_faults:
            faults.extend(graph.output_faults[instance])
            continue
        values = {read.expression.text: judge.evaluate(read, instance) for read in reads}
        if any(isinstance(value, Wait) for value in values.values()):
            raise JournalError("the output was read before every call had settled")
        where = f"output{f' of {instance}' if instance else ''}"
        absent = [f"{where}: {value.message}" for value in values.values() if isinstance(value, Absent)]
        known = {text: value for text, value in values.items() if not isinstance(value, Absent | Wait)}
        if not absent:
            filling = Filling(known)
            filled = fill(graph.output, filling)
            size += filling.size
            problem = filling.problem(where, size)
            if problem is None:
                found[instance] = filled
            else:
                absent.append(problem)
        faults.extend(absent)
    return (dict(found) if by_instance else found.get("")), faults


def error_message(kind: str, message: str) -> JSONObject:
    """An error that belongs to no call: `{"call": null, "error": {"kind", "message"}}`."""
    return {"call": None, "error": {"kind": kind, "message": message}}


def state_errors(opening: InitialDocuments, memory: Memory) -> list[JSONObject]:
    """Where the states that have a schema do not satisfy it when the run ends."""
    errors: list[JSONObject] = []
    for instance, schema in opening.schemas.items():
        try:
            schema.check_end(memory.state(instance))
        except ClosedStateError as error:
            errors.append(error_message("output", f"the state{f' of {instance}' if instance else ''}: {error}"))
    return errors
