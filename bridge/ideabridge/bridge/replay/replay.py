"""Replay: answering a call of a published idea (DESIGN 4.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.run import Run
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, encode_text
from ideabridge.tools.reading import READING
from ideabridge.tools.schema import Validator


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer to a call of a published idea.

    Attributes:
        answer: the way that was taken: `recorded`, `plan` or `solve`.
        output: the recorded output; unset for the others.
        run: the run that answers, started; wait for it.
    """

    answer: Literal["recorded", "plan", "solve"]
    output: Any = None
    run: Run | None = None


def same_input(value: JSON) -> JSON:
    """An input with the keys of its objects sorted: two inputs are the same if these are.

    Nothing else is made alike: 1.0 is not 1, and a member that is left out is not its default.
    """
    if isinstance(value, dict):
        return {key: same_input(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [same_input(item) for item in value]
    return value


def recorded_answer(publication: Publication, arguments: JSONObject) -> JSON:
    """The stored output, for the stored input alone.

    Raises:
        PublicationError: another input was given.
    """
    recorded = publication.recorded
    if not isinstance(recorded, dict):
        raise PublicationError(f"{publication.name} holds no recorded answer")
    known = recorded.get("input")
    if content_hash(same_input(known)) != content_hash(same_input(arguments)):
        text = encode_text(known)
        raise PublicationError(
            f"{publication.name} answers only for the input it was recorded with:"
            f" {text if len(text) <= 300 else text[:297] + '...'}"
        )
    return recorded.get("output")


def plan_of(publication: Publication, arguments: JSONObject) -> Plan:
    """The published plan with new input.

    Raises:
        PublicationError: it holds no plan.
    """
    plan = publication.plan
    if plan is None:
        raise PublicationError(f"{publication.name} holds no plan")
    return read_published(plan, arguments, publication.input_schema, publication.output_schema, name=publication.name)


def read_published(
    plan: JSONObject,
    arguments: JSONObject,
    input_schema: JSONObject | None,
    output_schema: JSONObject | None,
    *,
    name: str,
) -> Plan:
    """A plan as a publication holds it, with new input.

    It is `{"calls", "output", "instances"?, "output_schema"?, "tools"?, "reading"?}`, and `lifting`, which says how it
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
        reading=READING if plan.get("reading") == READING else 1,
    )


def check_arguments(publication: Publication, arguments: JSONObject) -> None:
    """Check the arguments of a call against the tool's parameters.

    Raises:
        ValueMismatchError: path, found, expected.
    """
    if publication.input_schema is not None:
        Validator(publication.input_schema, what=f"the input of {publication.name}").check(arguments)
