"""The data that a version of a published name keeps from its run. All code that needs them reads
them through this module.

A member with an unexpected form counts as absent. Documents from elsewhere are checked on import,
and versions of earlier releases stay readable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class PublishedRecording:
    """The recording of the run that was published: `Publication.recorded`.

    Attributes:
        input: the input of the run, or None if none is recorded.
        has_output: whether an output is recorded.
        output: the output of the run.
        guide: the start of a run that solves the idea again; see `Publication.guide`.
        written: other members, from the document of an idea that was written by hand.
    """

    input: JSONObject | None = None
    has_output: bool = False
    output: JSON = None
    guide: JSONObject | None = None
    written: JSONObject | None = None

    @classmethod
    def of(cls, recorded: JSON) -> PublishedRecording:
        """Read `Publication.recorded`."""
        if not isinstance(recorded, dict):
            return cls()
        return cls(
            object_in(recorded, "input"),
            "output" in recorded,
            recorded.get("output"),
            object_in(recorded, "solve"),
            object_in(recorded, "written"),
        )


@dataclass(frozen=True, slots=True)
class PlanOrigin:
    """How a published plan was made: its member `lifting`.

    Attributes:
        run: the run that the plan was made from, or None if it was made without one.
        choices: what a person decided about copied values, and the other runs of the same task.
        parameters: what a person decided about parameters.
        places: for each call, its number in the run, several numbers, or null. None if the places
            are unknown.
        is_by_assistant: whether an assistant wrote its program and the names and descriptions of
            its parameters.
    """

    run: str | None = None
    choices: JSONObject = field(default_factory=dict[str, JSON])
    parameters: JSONObject = field(default_factory=dict[str, JSON])
    places: list[JSON] | None = None
    is_by_assistant: bool = False

    @classmethod
    def of(cls, plan: JSONObject | None) -> PlanOrigin:
        """Read the origin of a plan. Return None if there is no plan."""
        lifting = object_in(plan or {}, "lifting")
        if lifting is None:
            return cls()
        run = lifting.get("run")
        places = lifting.get("places")
        return cls(
            run if isinstance(run, str) else None,
            object_in(lifting, "choices") or {},
            object_in(lifting, "parameters") or {},
            places if isinstance(places, list) else None,
            lifting.get("words_of") == "assistant",
        )


def object_in(document: JSONObject, member: str) -> JSONObject | None:
    """Return a member of a document if it is an object, otherwise None."""
    value = document.get(member)
    return value if isinstance(value, dict) else None
