"""Replay: answering a call of a published idea (DESIGN 4.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.run import Run
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, encode_text
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


def check_arguments(publication: Publication, arguments: JSONObject) -> None:
    """Check the arguments of a call against the tool's parameters.

    Raises:
        ValueMismatchError: path, found, expected.
    """
    if publication.input_schema is not None:
        Validator(publication.input_schema, what=f"the input of {publication.name}").check(arguments)
