"""Idea: the saved triple (context, schema, solution), named by its content."""

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
from ideabridge.bridge.store.published import PlanOrigin, PublishedRecording
from ideabridge.tools.encoding import JSON, JSONObject, encode

# -- idea ------------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """An idea's parts in their canonical form, and both ids as 32 bytes."""

    messages: Sequence[Body]
    schema: Body
    shown: Body | None
    solution: str
    request: bytes
    idea: bytes


@dataclass(frozen=True)
class Idea:
    """One Request and its Solution. Immutable: do not change its values after creating it.

    Attributes:
        context: the messages of the Request, in order.
        schema: the JSON Schema the Solution had to satisfy.
        solution: `{"calls": [...], "output": ...}`.
        shown: the limits on the results that the mind was shown, `{"value": bytes, "request":
            bytes}`: for one result, and for all in the Request. Context, schema and `shown`
            determine the texts that the mind got. None in ideas from before it was recorded, and if
            no mind was shown anything.

    Ids. With `encode` from `ideabridge.tools.encoding` (UTF-8, compact, key order as
    given, no sorting):

    - `request_id` = hex SHA-256 of `encode({"context": context, "schema": schema, "shown": shown})`
    - `id` = hex SHA-256 of `encode({"context": context, "schema": schema, "shown": shown,
      "solution": solution})`

    with the keys in exactly this order, and without `shown` if it is None, so anybody can recompute
    both from an exported document. They are computed once, on first access.
    """

    context: list[JSON]
    schema: JSON
    solution: JSON
    shown: JSONObject | None = None
    # A copy with other parts must not share this encoding.
    _request: EncodedRequest | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, request: Request, solution: JSON) -> Idea:
        """Return the idea of a Request and its Solution. This does not encode the parts of the
        Request again.
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

    @property
    def id(self) -> str:
        """The idea's id: 64 hex digits."""
        return self.encoded.idea.hex()

    @property
    def request_id(self) -> str:
        """The id of its Request: 64 hex digits."""
        return self.encoded.request.hex()


@dataclass(frozen=True, slots=True)
class IdeaMeta:
    """The metadata of an idea, which its ids do not include.

    Attributes:
        run: the run that made it.
        step: its place in the run, from 1.
        parent: the id of the previous idea of its run, or of the idea that it was made from.
        mind: who answered the Request: `turns`, `sampling`, `model`, `recorded`, or "" for a plan's
            author.
        model: the name of the model, as the mind reports it.
        usage: tokens and cost, as the mind reports them.
        time: when the idea was saved, ISO 8601 in UTC; the store replaces "" with the current time.
        fingerprint: the fingerprint of the configuration and the tool schemas.
        title: one line for people.
        description: what the idea is for.
        tools: the names of the tools that its calls used.
        outcome: `done`, `open` (a step before the last), `failed`, `stalled`, `limit`, `cancelled`.
        tags: free words.
        written: the Solution as the mind wrote it, if its schema does not admit it and it is not
            large. The idea has the form that satisfies the schema; a recorded mind answers with
            this one.
        original: the id of the idea of which this one is a copy without results; "" if it is no
            such copy.
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
        """Return the metadata as JSON, without the members that have their default value."""
        result: JSONObject = {}
        for name in _META_NAMES:
            value: Any = getattr(self, name)
            if value is not None and value != "" and value != () and value != {}:
                result[name] = list(value) if name in _LISTS else value
        return result

    @classmethod
    def from_json(cls, value: JSONObject) -> IdeaMeta:
        """Read metadata that `to_json` wrote. This checks nothing; `import_idea` reads documents
        from outside.
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

    The input schema is that of the first `input` message without an instance: the declared schema,
    or else a permissive one for its value. It is None if the idea takes no input. The output schema
    is the part of `idea.schema` for `output`, without null, without the references that a mind may
    write, and without additions to its description. If a mind answered and the output may be null,
    it is wrapped as `{"value": ...}`. It is None if `idea.schema` does not describe the output.
    """
    return _input_schema(idea.context), _output_schema(idea.schema)


def _input_schema(context: list[JSON]) -> JSONObject | None:
    for raw in context:
        try:
            message = read_message(raw)
        except MessageError:
            # An imported context may contain messages of unknown types. These are not inputs.
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
    """Return a schema that states only the JSON type of a value; {} for null."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int | float):
        return {"type": "number"}
    if isinstance(value, str):
        return {"type": "string"}
    return {"type": "array" if isinstance(value, list) else "object"}


def _output_schema(schema: JSON) -> JSONObject | None:
    if not isinstance(schema, dict):
        return None

    properties = schema.get("properties")
    output = properties.get("output") if isinstance(properties, dict) else None
    if not isinstance(output, dict):
        return None

    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        definitions = {}

    branches = output.get("anyOf")
    if isinstance(branches, list):
        remaining = [
            branch
            for branch in branches
            if branch != {"type": "null"} and not _is_reference(branch, definitions)
        ]
        output = _joined(_without_note(output), remaining)

    if output == {"type": "null"}:
        return None

    plain = cast("JSONObject", _without_references(output, definitions))
    if "$defs" not in plain:
        referred = _referred(plain, definitions)
        if referred:
            plain["$defs"] = referred

    return plain


_NOTE: Final = "The result, once known; null while calls must run first and their results be seen"
"""The sentence that the composer of schemas adds to the description of an output."""


def _without_note(output: JSONObject) -> JSONObject:
    """Return the schema of the output without the sentence that the composer added to its
    description.
    """
    description = output.get("description")
    if not isinstance(description, str) or not description.endswith(_NOTE):
        return output

    others = {key: value for key, value in output.items() if key != "description"}
    own = description.removesuffix(_NOTE).removesuffix("\n")
    return {"description": own, **others} if own else others


def _joined(schema: JSONObject, branches: list[JSON]) -> JSONObject:
    """Return a schema with these branches as its `anyOf`; a single branch is merged into the
    schema.
    """
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    branch = branches[0] if len(branches) == 1 else None
    if isinstance(branch, dict) and not others.keys() & branch.keys():
        return {**others, **branch}
    return {**others, "anyOf": branches}


def is_reference_schema(schema: JSON) -> bool:
    """Return True if a schema admits references only: text with a pattern that begins with a
    dagger.
    """
    if not isinstance(schema, dict):
        return False
    pattern = schema.get("pattern")
    return (
        schema.get("type") == "string"
        and isinstance(pattern, str)
        and pattern.startswith(("^†", "^\\u2020"))
    )


_DEFINED: Final = "#/$defs/"


def _is_reference(schema: JSON, definitions: JSONObject) -> bool:
    """Return True if a schema admits references only, directly or through a definition."""
    if isinstance(schema, dict) and len(schema) == 1:
        target = schema.get("$ref")
        if isinstance(target, str) and target.startswith(_DEFINED):
            return is_reference_schema(definitions.get(target.removeprefix(_DEFINED)))
    return is_reference_schema(schema)


def _without_references(schema: JSON, definitions: JSONObject) -> JSON:
    if isinstance(schema, list):
        return [_without_references(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema

    branches = schema.get("anyOf")
    if isinstance(branches, list) and any(
        _is_reference(branch, definitions) for branch in branches
    ):
        remaining = [branch for branch in branches if not _is_reference(branch, definitions)]
        schema = _joined(schema, remaining)

    return {key: _without_references(item, definitions) for key, item in schema.items()}


def _referred(schema: JSON, definitions: JSONObject) -> JSONObject:
    """Return the definitions that a schema refers to, directly or not, without the references that
    a mind may write.
    """
    referred: JSONObject = {}
    stack: list[JSON] = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            target = item.get("$ref")
            stack.extend(item.values())
            if isinstance(target, str) and target.startswith(_DEFINED):
                name = target.removeprefix(_DEFINED).partition("/")[0]
                if name in definitions and name not in referred:
                    referred[name] = _without_references(definitions[name], definitions)
                    stack.append(referred[name])

    return {name: referred[name] for name in definitions if name in referred}


# -- records ---------------------------------------------------------------------------------------
#
# What the store returns: records, hits and pages.

Answer = Literal["recorded", "plan", "program", "solve", "auto"]
"""How a call of a published idea is answered."""

ANSWERS: Final = ("recorded", "plan", "program", "solve", "auto")

PLANNED: Final = ("plan", "program")
"""The ways of answering that run `Publication.plan`."""


@dataclass(frozen=True, slots=True)
class StoredIdea:
    """A stored idea, with the metadata of its first save."""

    idea: Idea
    meta: IdeaMeta
    id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class IdeaRecord:
    """One idea of a list, with the names under which it is published now."""

    id: str
    request_id: str
    meta: IdeaMeta
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdeaHit:
    """One idea that a search found, which is the last idea of its run. A better hit has a larger
    `score`.
    """

    id: str
    meta: IdeaMeta
    names: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Repeated:
    """Work that was repeated: its latest idea, and how often it was done with different
    literals.
    """

    latest: IdeaRecord
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPublication:
    """The content of the next version of a name.

    Attributes:
        name: the name of the tool.
        idea_id: the idea it publishes.
        description: the tool's description.
        answer: how a call is answered.
        input_schema: the schema of the tool's parameters; None if the idea takes no input.
        output_schema: schema of the output; None if it is unknown.
        annotations: the annotations by their MCP names.
        plan: the plan that runs for `answer="plan"` and `"program"`, and for `"auto"` if there is
            one; see `read_published`.
        recorded: the `input` and `output` of its run, with which `answer="recorded"` answers; and
            `solve` (see `guide`), which `"solve"` needs, as does `"auto"` without a plan.
        owner: the owner, who sees it together with the callers that it is shared with; None:
            everybody sees it.
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
        """The start of a new run, `{"context", "tools", "plan"?, "output_schema", "by_instance"}`;
        None if calls ask no mind.
        """
        return self.recording.guide

    @property
    def recording(self) -> PublishedRecording:
        """The recording of its run."""
        return PublishedRecording.of(self.recorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication(NewPublication):
    """One version of a published name: what was published, and its present state.

    Attributes:
        version: 1, 2, ...; a version is never overwritten.
        time: when it was published, ISO 8601 in UTC.
        live: True if the name refers to this version now.
        pinned: True if the name keeps this version when another is published.
        learned: `{"explained": [...], "seen": {...}}` of the plan under the current evidence. None:
            the plan is as it was published; NAME@VERSION always means this state.
        report: how its run was lifted. Only the result of publishing has it.
    """

    version: int
    time: str
    live: bool
    pinned: bool = False
    learned: JSONObject | None = None
    report: JSONObject | None = None

    @property
    def is_by_assistant(self) -> bool:
        """Whether an assistant wrote its program and the names and descriptions of its
        parameters.
        """
        return self.origin.is_by_assistant

    @property
    def origin(self) -> PlanOrigin:
        """How its plan was made."""
        return PlanOrigin.of(self.plan)

    @property
    def present_plan(self) -> JSONObject | None:
        """The plan under the present evidence, which runs now."""
        return None if self.plan is None else {**self.plan, **(self.learned or {})}


@dataclass(frozen=True, slots=True)
class Change:
    """The differences between two ideas or versions of a name.

    Attributes:
        lines: `+ added`, `- removed` or `~ changed`, each with its path.
        breaking: the changes that break a caller: a new required parameter, a removed or retyped
            parameter or field, an answer for only one input, or new effects.
    """

    lines: list[str]
    breaking: list[str]
