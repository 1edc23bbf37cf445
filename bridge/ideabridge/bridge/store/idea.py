"""The idea: a saved triple (context, schema, solution), named by its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, cast

from ideabridge.bridge.context.body import Body, EncodedRequest
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.store.published import (
    PlanOrGuide,
    PlanOrigin,
    PublishedGuide,
    PublishedPlan,
    PublishedRecording,
    PublishedReport,
)
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

# -- idea ------------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """The canonical form of an idea's parts, and the idea's two ids as 32 bytes each."""

    messages: Sequence[Body]
    schema: Body
    shown: Body | None
    solution: str
    request: bytes
    idea: bytes


@dataclass(frozen=True)
class Idea:
    """A Request and its Solution. Ideas are immutable: do not change their values after creation.

    Attributes:
        context: the messages of the Request, in order.
        schema: the JSON Schema that the Solution had to satisfy.
        solution: `{"calls": [...], "output": ...}`.
        shown: the size limits for the results that the mind saw, `{"value": bytes, "request":
            bytes}`: for one result, and for all results in the Request. Context, schema and `shown`
            determine the text that the mind received. None if no mind saw any results, or if the
            idea is older than this attribute.

    Ids are hex SHA-256 digests, where `encode` is the function from `ideabridge.tools.encoding`
    (UTF-8, compact, keys in the given order, no sorting):

    - `request_id` is the digest of `encode({"context": context, "schema": schema, "shown":
      shown})`.
    - `id` is the digest of `encode({"context": context, "schema": schema, "shown": shown,
      "solution": solution})`.

    The keys are in exactly this order, and `shown` is left out if it is None, so that anybody can
    recompute both ids from an exported document. The ids are computed once, on first access.
    """

    context: list[JSON]
    schema: JSON
    solution: JSON
    shown: JSONObject | None = None
    # Start without an encoding in every copy, because a copy with different parts must not share
    # it.
    _request: EncodedRequest | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, request: Request, solution: JSON) -> Idea:
        """Return the idea for a Request and its Solution, reusing the encoded parts of the
        Request.
        """
        idea = cls(request.context_json, request.schema, solution, request.shown)
        object.__setattr__(idea, "_request", request.encoded)
        return idea

    @cached_property
    def encoded(self) -> Encoded:
        """The canonical form of each part, and both ids.

        Raises:
            InvalidJSONError: a part is not JSON.
        """
        request = self._request or EncodedRequest.of(self.context, self.schema, self.shown)
        solution = encode(self.solution)
        return Encoded(
            request.messages,
            request.schema,
            request.shown,
            solution.decode(),
            request.id,
            request.id_with(solution),
        )

    @cached_property
    def solution_parts(self) -> Solution:
        """The parts of `solution`."""
        return read_as(Solution, self.solution)

    @property
    def id(self) -> str:
        """The id of the idea, as 64 hex digits."""
        return self.encoded.idea.hex()

    @property
    def request_id(self) -> str:
        """The id of the idea's Request, as 64 hex digits."""
        return self.encoded.request.hex()


@dataclass(frozen=True, slots=True)
class IdeaMeta:
    """The metadata of an idea, which its ids do not cover.

    Attributes:
        run: the run that made the idea.
        step: the position of the idea in its run, from 1.
        parent: the id of the previous idea in the run, or of the idea that this one was derived
            from.
        mind: who answered the Request: `turns`, `sampling`, `model` or `recorded`, or "" if it is
            the author of a plan.
        model: the name of the model, as reported by the mind.
        usage: the tokens and the cost, as reported by the mind.
        time: when the idea was saved, as ISO 8601 in UTC. The store replaces "" with the current
            time.
        fingerprint: the fingerprint of the configuration and the tool schemas.
        title: a human-readable title of one line.
        description: what the idea is for.
        tools: the names of the tools that its calls used.
        outcome: `done`, `open` (a step before the last), `failed`, `stalled`, `limit`, `cancelled`.
        tags: words that people chose for the idea.
        written: the Solution exactly as the mind wrote it, if the schema does not allow this form
            and it is not large. The idea itself contains a form that satisfies the schema. A
            recorded mind answers with the written form.
        original: the id of the original if this idea is a copy without results, otherwise "".
        left_out: what the copy lacks, as in an exported document.
    """

    run: str | None = None
    step: int | None = None
    parent: str | None = None
    mind: str = ""
    model: str = ""
    usage: JSONObject = field(default_factory=dict[str, JSON])
    time: str = ""
    fingerprint: str = ""
    title: str = ""
    description: str = ""
    tools: tuple[str, ...] = ()
    outcome: str = ""
    tags: tuple[str, ...] = ()
    written: JSONObject | None = None
    original: str = ""
    left_out: tuple[JSON, ...] = ()

    def to_json(self) -> JSONObject:
        """Return the metadata as JSON, without members that have their default value."""
        result: JSONObject = {}
        for name in _META_NAMES:
            value: Any = getattr(self, name)
            if value is not None and value != "" and value != () and value != {}:
                result[name] = list(value) if name in _LISTS else value
        return result

    @classmethod
    def from_json(cls, value: JSONObject) -> IdeaMeta:
        """Read metadata that `to_json` wrote, without checking it. For documents from outside, use
        `import_idea`.
        """
        stored: dict[str, Any] = dict(value)
        for name in _LISTS:
            if name in stored:
                stored[name] = tuple(stored[name])
        return cls(**stored)


_META_NAMES = tuple(entry.name for entry in dataclasses.fields(IdeaMeta))
_LISTS: Final = ("tools", "tags", "left_out")


def function_schemas(idea: Idea) -> tuple[JSONObject | None, JSONObject | None]:
    """Return the input schema and the output schema of an idea as a function.

    The input schema comes from the first `input` message without an instance: its declared schema,
    or otherwise a permissive schema derived from its value. It is None if the idea takes no input.
    The output schema is `SolutionSchema.own_output`. If a mind answered and the output can be null,
    the output is wrapped as `{"value": ...}`.
    """
    return _input_schema(idea.context), SolutionSchema.read(idea.schema).own_output


def _input_schema(context: list[JSON]) -> JSONObject | None:
    for raw in context:
        try:
            message = read_message(raw)
        except MessageError:
            # An imported context can contain messages of unknown types. These are not inputs.
            continue
        if message.type == "input" and not message.instance:
            return _infer(message.value) if message.schema is None else message.schema
    return None


def _infer(value: JSON) -> JSONObject:
    properties = cast("JSONObject", value)
    return {
        "type": "object",
        "properties": {name: seen_type(item) for name, item in properties.items()},
        "required": list[JSON](properties),
    }


def seen_type(value: JSON) -> JSONObject:
    """Return a schema that states only the JSON type of a value, or {} if the value is null."""
    match json_type(value):
        case "null":
            return {}
        case "integer":
            return {"type": "number"}
        case kind:
            return {"type": kind}


# -- records ---------------------------------------------------------------------------------------
#
# What the store returns: records, hits and pages.

Answer = Literal["recorded", "plan", "program", "solve", "auto"]
"""How a call to a published idea is answered."""

ANSWERS: Final = ("recorded", "plan", "program", "solve", "auto")

PLANNED: Final = ("plan", "program")
"""The kinds of `Answer` that run `Publication.plan`."""


@dataclass(frozen=True, slots=True)
class StoredIdea:
    """A stored idea, with the metadata of its first save."""

    idea: Idea
    meta: IdeaMeta
    id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class IdeaRecord:
    """An idea in a list, with the names under which it is currently published."""

    id: str
    request_id: str
    meta: IdeaMeta
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdeaHit:
    """An idea found by a search: the last idea of its run. A better hit has a larger `score`."""

    id: str
    meta: IdeaMeta
    names: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Repeated:
    """Repeated work: its latest idea, and how often it was done with different literals."""

    latest: IdeaRecord
    times: int


@dataclass(frozen=True, kw_only=True)
class NewPublication:
    """The content of the next version of a name.

    Documents are stored unchanged. Each is read once, on first access, because lists of
    publications need only a few of them.

    Attributes:
        name: the name of the tool.
        idea_id: the id of the idea that the version publishes.
        description: the tool's description.
        answer: how calls are answered.
        input_schema: the schema of the tool's parameters, or None if the idea takes no input.
        output_schema: the schema of the output, or None if it is unknown.
        annotations: the annotations, keyed by their MCP names.
        plan: the plan that runs for `answer="plan"` and `"program"`, and for `"auto"` if there is
            one; see `read_published`.
        recorded: the `input` and `output` of the idea's run, which `answer="recorded"` uses, and
            `solve` (see `guide`), which `"solve"` and, without a plan, `"auto"` need.
        owner: the owner, or None if everybody can see the version. Otherwise, only the owner and
            the callers that the version is shared with can see it.
    """

    name: str
    idea_id: str
    description: str
    answer: Answer
    input_schema: JSONObject | None
    output_schema: JSONObject | None
    annotations: JSONObject
    plan: JSONObject | None = None
    recorded: JSON = None
    owner: str | None = None

    @property
    def guide(self) -> JSONObject | None:
        """The start of a new run, `{"context", "tools", "plan"?, "output_schema", "by_instance"}`,
        or None if calls do not ask a mind.
        """
        return self.recording.guide

    @cached_property
    def plan_parts(self) -> PublishedPlan:
        """The parts of `plan`, all empty if there is no plan."""
        return read_as(PublishedPlan, self.plan)

    @cached_property
    def guide_parts(self) -> PublishedGuide:
        """The parts of `guide`, all empty if there is no guide."""
        return read_as(PublishedGuide, self.guide)

    @property
    def plan_or_guide(self) -> PlanOrGuide | None:
        """The document that contains the pins: the plan or, without a plan, the guide. None if the
        publication has neither.
        """
        if self.plan:
            return self.plan_parts
        return self.guide_parts if self.guide else None

    @property
    def program(self) -> str | None:
        """The text of the program, or None if calls do not run a program."""
        return self.plan_parts.program

    @cached_property
    def recording(self) -> PublishedRecording:
        """The recorded input and output of the publication's run."""
        return PublishedRecording.of(self.recorded)


@dataclass(frozen=True, kw_only=True)
class Publication(NewPublication):
    """A version of a published name: what was published, and its current state.

    Attributes:
        version: the number of the version: 1, 2, .... A version is never overwritten.
        time: when the version was published, as ISO 8601 in UTC.
        live: True if the name currently refers to this version.
        pinned: True if the name keeps referring to this version when a new one is published.
        learned: what the current evidence says about the plan, `{"explained": [...], "seen":
            {...}}`, or None if the plan is as it was published. NAME@VERSION always means the plan
            as published.
        report: how the run was lifted. Set only in the result of publishing.
    """

    version: int
    time: str
    live: bool
    pinned: bool = False
    learned: JSONObject | None = None
    report: JSONObject | None = None

    @property
    def is_by_assistant(self) -> bool:
        """Whether an assistant wrote the program, and the names and descriptions of its
        parameters.
        """
        return self.origin.words_of == "assistant"

    @cached_property
    def origin(self) -> PlanOrigin:
        """The origin of the publication's plan."""
        return read_as(PlanOrigin, (self.plan or {}).get("lifting"))

    @cached_property
    def present_plan(self) -> JSONObject | None:
        """The plan that calls run now: the published plan, updated with the current evidence."""
        return None if self.plan is None else {**self.plan, **(self.learned or {})}

    @cached_property
    def present_plan_parts(self) -> PublishedPlan:
        """The parts of `present_plan`, all empty if there is no plan."""
        return read_as(PublishedPlan, self.present_plan)

    @cached_property
    def report_parts(self) -> PublishedReport:
        """The parts of `report`, all empty if there is no report."""
        return read_as(PublishedReport, self.report)


@dataclass(frozen=True, slots=True)
class Change:
    """The differences between two ideas or versions of a name.

    Attributes:
        lines: lines such as `+ added`, `- removed` or `~ changed`, each with a path.
        breaking: the changes that break callers: a new required parameter, a removed or retyped
            parameter or field, answers for only one input, or new effects.
    """

    lines: list[str]
    breaking: list[str]
