"""Types for reading the documents that belong to a version of a published name.

A member with an unexpected form counts as absent. Documents from elsewhere are checked on import,
and versions that earlier releases stored stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import member, read_as, read_whole


@dataclass(frozen=True, slots=True)
class PublishedRecording:
    """The recording of the run that was published: `Publication.recorded`.

    Attributes:
        input: the input of the run, or None if there is none in the recording.
        has_output: whether the recording contains an output.
        output: the output of the run.
        guide: how a run that solves the idea again starts; see `Publication.guide`.
        written: other members, from the document of a hand-written idea.
    """

    input: JSONObject | None = None
    has_output: bool = False
    output: JSON = None
    guide: JSONObject | None = field(default=None, metadata=member("solve"))
    written: JSONObject | None = None

    @classmethod
    def of(cls, recorded: JSON) -> PublishedRecording:
        """Read `Publication.recorded`."""
        members = dict(object_or_empty(recorded))
        # Null is an output, too.
        members["has_output"] = "output" in members
        return read_as(cls, members)


@dataclass(frozen=True, slots=True)
class PlanOrigin:
    """The origin of a published plan: its member `lifting`.

    Attributes:
        run: the run from which the plan was made, or None if it was made without a run.
        choices: a person's decisions about copied values, and the other runs of the same task.
        parameters: a person's decisions about parameters.
        places: for each call, its number in the run, several numbers, or null. None if the places
            are unknown.
        words_of: `assistant` if an assistant wrote the program and the names and descriptions of
            its parameters.
        checked: who checked the plan, or `claims.UNCHECKED` if it was imported.
        claimed: the `lifting` in the document of an imported plan.
    """

    run: str | None = None
    choices: JSONObject = field(default_factory=dict[str, JSON])
    parameters: JSONObject = field(default_factory=dict[str, JSON])
    places: list[JSON] | None = None
    words_of: str | None = None
    checked: JSON = None
    claimed: JSON = None


@dataclass(frozen=True, slots=True)
class PublishedGuide:
    """The start of a run that solves a published idea again: `Publication.guide`.

    Attributes:
        context: the messages, with an empty input.
        tools: the tools that the run can call, each as `[module or null, name]`, without the tools
            that the context defines.
        output_schema: the schema of the output, or None for text.
        by_instance: whether the output is a map of outputs, keyed by instance.
        plan: how the idea was solved before, or None if its run made no calls.
        pins: the pins of the tools that this plan calls, or None; see `runs/pins.py`.
    """

    context: list[JSON] = field(default_factory=list[JSON])
    tools: list[JSON] = field(default_factory=list[JSON])
    output_schema: JSONObject | None = None
    by_instance: bool = False
    plan: JSONObject | None = None
    pins: list[JSON] | None = None

    @property
    def calls(self) -> list[JSON]:
        """The calls that solved the idea before."""
        return read_as(Solution, self.plan).calls

    @property
    def origins(self) -> list[tuple[str | None, str]]:
        """The (server, name) of each entry in `tools`."""
        origins: list[tuple[str | None, str]] = []
        for pair in self.tools:
            match pair:
                case [str(module), name]:
                    origins.append((module, str(name)))
                case [_, name]:
                    origins.append((None, str(name)))
                case _:
                    continue

        return origins

    @property
    def definitions(self) -> tuple[JSONObject, ...]:
        """The tools that the context defines."""
        return _defined_in(self.context)

    @property
    def defined(self) -> frozenset[str]:
        """The names of the tools that the context defines."""
        return _names(self.definitions)


@dataclass(frozen=True, slots=True)
class PublishedPlan(Solution):
    """The parts of a published plan (`Publication.plan`) that are needed to run a call.

    `PlanOrigin` says how the plan was made, and `context/plan_literals.py` how a plan finds values
    that a run copied. The calls of a program only name the tools that the program can call. If the
    plan has no output, the answer is the state.

    Attributes:
        instances: the initial states, keyed by instance.
        output_schema: the schema of the output if it differs from the tool's: with instances, the
            tool returns a map of outputs.
        tools: the tools that the context of the plan defines.
        context: the messages of a hand-written idea.
        fixed: the members of the input that callers do not pass.
        names: the names of tools in the program; see `ProgramNames.used_by`.
        recorded_defaults: the members of the input whose defaults are values from one recorded run,
            except those that the author of the program calls constant.
        pins: the pins of the tools that the plan calls, or None; see `runs/pins.py`.
        explained: the values that a run copied, each in the form of `Explained.to_json`.
        seen: what earlier runs read, keyed by reference.
        decisions: the places of the calls that might have been decisions.
        strict: whether the plan asks about copied values.
        copied: the number of runs in which a mind copied values, or None for a program.
    """

    instances: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    output_schema: JSONObject | None = None
    tools: tuple[JSONObject, ...] = ()
    context: tuple[JSONObject, ...] = ()
    fixed: JSONObject = field(default_factory=dict[str, JSON])
    names: JSONObject | None = None
    recorded_defaults: tuple[str, ...] = ()
    pins: list[JSON] | None = None
    explained: list[JSON] = field(default_factory=list[JSON])
    seen: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    decisions: tuple[int, ...] = ()
    strict: bool = False
    copied: int | None = None

    @property
    def definitions(self) -> tuple[JSONObject, ...]:
        """The tools that the plan and its context define."""
        return (*self.tools, *_defined_in(self.context))

    @property
    def defined(self) -> frozenset[str]:
        """The names of the tools that the plan and its context define."""
        return _names(self.definitions)


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """The members of a report on a new version (`Publication.report`) that code reads. The other
    members are for people and models; see `ToolReport`.

    Attributes:
        run: the run that was lifted, or None if no run was lifted.
        open: the questions that the run leaves open; see `read_open`.
    """

    run: str | None = None
    open: list[JSON] = field(default_factory=list[JSON])


PlanOrGuide: TypeAlias = PublishedPlan | PublishedGuide
"""The document that contains the pins of a publication: its plan or, if there is no plan, its
guide.
"""


@dataclass(frozen=True, slots=True)
class _Message:
    tool: JSONObject | None = None


def _defined_in(context: Iterable[JSON]) -> tuple[JSONObject, ...]:
    """Return the tools that the messages of a context define."""
    tools: list[JSONObject] = []
    for message in context:
        tool = read_as(_Message, message).tool
        if tool is not None:
            tools.append(tool)

    return tuple(tools)


def _names(definitions: Iterable[JSONObject]) -> frozenset[str]:
    return frozenset(str(tool.get("name")) for tool in definitions)


@dataclass(frozen=True, slots=True)
class _PublicationWithPlan:
    plan: JSONObject


@dataclass(frozen=True, slots=True)
class _DocumentWithPlan:
    publication: _PublicationWithPlan


def plan_in_document(document: JSON) -> JSONObject | None:
    """Return the published plan in an idea's document, or None if it contains no plan."""
    read = read_whole(_DocumentWithPlan, document)
    if read is None:
        return None
    return read.publication.plan


def with_plan_in_document(document: JSON, plan: JSONObject) -> JSON:
    """Return an idea's document with the given published plan."""
    members = object_or_empty(document)
    publication = object_or_empty(members.get("publication"))
    return {**members, "publication": {**publication, "plan": plan}}
