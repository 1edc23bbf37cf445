"""Output: what a run gives, checked against the schema its user asked for (DESIGN 4.2, 4.8)."""

from __future__ import annotations

from typing import Literal

from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.opening import Opening
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ValueMismatchError
from ideabridge.tools.schema import Validator


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
        if mode == "solve":
            self._schema, self._wrapped = wrap_output(schema)
        if self._schema is not None:
            # Compiled now: an invalid schema must be told before a run begins.
            Validator(self._schema, what="the output").is_valid(None)

    def settle(self, value: JSON) -> tuple[JSON, list[str]]:
        """The output without its wrapping, and what is wrong with it."""
        if self._schema is None:
            return value, []
        faults: list[str] = []
        parts = value.items() if self._by_instance and isinstance(value, dict) else [("", value)]
        for instance, part in parts:
            try:
                Validator(self._schema, what=f"the output{f' of {instance}' if instance else ''}").check(part)
            except ValueMismatchError as error:
                faults.append(str(error))
        if self._wrapped and not faults and isinstance(value, dict):
            return value["value"], []
        return value, faults


def error_message(kind: str, message: str) -> JSONObject:
    """An error that belongs to no call: `{"call": null, "error": {"kind", "message"}}` (DESIGN 4.5)."""
    return {"call": None, "error": {"kind": kind, "message": message}}


def state_errors(opening: Opening, memory: Memory) -> list[JSONObject]:
    """Where the states that have a schema do not satisfy it when the run ends (DESIGN 4.3)."""
    errors: list[JSONObject] = []
    for instance, schema in opening.schemas.items():
        try:
            schema.check_end(memory.state(instance))
        except ClosedStateError as error:
            errors.append(error_message("output", f"the state{f' of {instance}' if instance else ''}: {error}"))
    return errors
