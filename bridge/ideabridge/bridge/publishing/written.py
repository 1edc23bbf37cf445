"""Read documents that contain hand-written ideas.

A document is `{"name"?, "description"?, "context", "schema"?, "solution"?, "tools"?, "answer"?,
"tags"?}`. `read_idea` checks it without looking at the tools that are available, so the same
document becomes the same idea on every machine. The document's solution decides how the idea's tool
answers:

| the solution has | answer |
|---|---|
| a program | `program`: it runs with the new input |
| calls, or an output with references | `plan`: they run with the new input; their literals are constants |
| an output alone | `recorded`: the output, for the input in the context |
| nothing | `solve`: a mind is asked, with the context and the schema |

Reading or saving a document does not run anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.explanations import operand_path
from ideabridge.bridge.context.messages import Message, read_context, with_instances
from ideabridge.bridge.context.references import Hole, compile_value, fill
from ideabridge.bridge.context.written_call import tool_names
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.offer.defined_tools import defined_tools
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.store.errors import IdeaDocumentError
from ideabridge.bridge.store.idea import (
    ANSWERS,
    Answer,
    Idea,
    IdeaMeta,
    Publication,
    function_schemas,
)
from ideabridge.bridge.store.publications import check_name
from ideabridge.tools.compose import solution_schema, wrap_output
from ideabridge.tools.composed import SolutionSchema
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
from ideabridge.tools.keywords import SchemaKeywords, move_refs, show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.reading import Solution, read_solution
from ideabridge.tools.schema import Validator, check_schema
from ideabridge.tools.typed import read_as

MEMBERS: Final = (
    "name",
    "description",
    "context",
    "schema",
    "solution",
    "tools",
    "answer",
    "tags",
    "$schema",
)
"""Allowed properties of a document. `$schema` is only for editors."""

MAX_TEXT: Final = 4000
"""The maximum length of a description, in characters."""

MAX_TOOLS: Final = 1000
"""The maximum number of tool names and patterns in a document, and of tags."""

_TITLE: Final = 200
_NO_INPUT: Final[JSONObject] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class WrittenIdea:
    """A hand-written idea, checked as thoroughly as possible without the tools that it uses.

    Attributes:
        idea: the triple in the form in which it is stored.
        name: the name of the idea's tool, or None if the document has no name.
        description: the purpose of the idea, or "" if the document does not state it.
        answer: how the idea's tool answers: `plan`, `program`, `recorded` or `solve`.
        messages: the context of the idea.
        schema: the schema of the output, or None.
        solution: the solution. An output that can be null is not wrapped, unlike in `idea`.
        tools: names or patterns of the tools that a mind can call, or None for the tools named in
            the calls.
        tags: words that the author chose.
        members: `description`, `schema`, `tools`, `answer` and `tags` as written in the document.
    """

    idea: Idea
    name: str | None
    description: str
    answer: Answer
    messages: list[Message]
    schema: JSONObject | None
    solution: Solution
    tools: tuple[str, ...] | None
    tags: tuple[str, ...]
    members: JSONObject

    @property
    def title(self) -> str:
        """One line for people: the beginning of the idea's description, or of the first text in its
        context.
        """
        texts = [str(message.value) for message in self.messages if message.type == "text"]
        lines = [line.strip() for line in "\n".join([self.description, *texts]).splitlines()]
        return next(filter(None, lines), self.name or "")[:_TITLE]

    @property
    def meta(self) -> IdeaMeta:
        """The metadata that is saved with the idea."""
        return IdeaMeta(
            title=self.title,
            description=self.description,
            tools=tuple(tool_names(self.solution.calls)),
            tags=self.tags,
        )

    @property
    def example(self) -> JSONObject:
        """The input in the idea's context, or an empty object if there is none."""
        value = next((message.value for message in self.messages if _is_input(message)), None)
        return object_or_empty(value)

    @property
    def input_schema(self) -> JSONObject:
        """The parameters of the idea's tool: the schema of the input in the idea's context or,
        without a schema, one inferred from the input's value.
        """
        return function_schemas(self.idea)[0] or dict(_NO_INPUT)

    @property
    def output_schema(self) -> JSONObject | None:
        """The schema of the tool's result, or None if the document does not state it."""
        if self.schema is None:
            return {"type": "string"} if self.answer == "solve" else None
        if self.answer == "plan" and self._plan(self.example).output_by_instance:
            return {
                "type": "object",
                "additionalProperties": move_refs(self.schema, ("additionalProperties",)),
            }
        return self.schema

    @property
    def has_example(self) -> bool:
        """Whether the context contains an input that satisfies the input schema. If the author left
        the input empty, there is no example.
        """
        return Validator(self.input_schema, what="input").is_valid(self.example)

    def published_plan(self) -> JSONObject:
        """Return the plan in the form of a publication; see `read_published`. A program is returned
        without the names of its tools.
        """
        plan = _as_stored(self.solution)
        states = {
            message.instance: message.value
            for message in self.messages
            if message.type == "state" and message.instance
        }
        tools = [message.value for message in self.messages if message.type == "tool"]
        beside: list[JSON] = [
            message.to_json()
            for message in self.messages
            if message.type != "tool" and not _is_input(message)
        ]
        if states:
            plan["instances"] = states

        if tools:
            plan["tools"] = tools

        if beside:
            plan["context"] = beside

        if self.schema is not None:
            plan["output_schema"] = self.schema

        return plan

    def _plan(self, arguments: JSONObject) -> Plan:
        return read_published(
            self.published_plan(), arguments, self.input_schema, self.schema, name=self.name or "it"
        )

    def guide(self, tools: list[JSON]) -> JSONObject:
        """Return the guide for a run that solves the idea; see `Publication.guide`.

        Args:
            tools: the tools that the run can call, each as `[module or null, name]`.
        """
        context: list[JSON] = []
        for message in self.messages:
            if _is_input(message):
                open_message = dataclasses.replace(message, value={})
            else:
                open_message = message
            context.append(open_message.to_json())

        guide: JSONObject = {"context": context, "tools": tools}
        guide["output_schema"] = self.schema or {"type": "string"}
        guide["by_instance"] = False
        if self.solution.calls:
            guide["plan"] = _as_stored(self.solution)

        return guide

    def recorded_output(self) -> JSON:
        """Return the recorded output as a value. The document writes a dagger as `††`."""
        return fill(compile_value(self.solution.output, [], []), lambda _: None)


def read_idea(
    document: ObjectLike | JSON, *, name: str | None = None, stored: bool = False
) -> WrittenIdea:
    """Read a hand-written idea.

    Args:
        document: the document, as described at the top of this file.
        name: the name of the idea's tool if the document has no name.
        stored: whether the document was created from an idea in the store, whose solution was
            checked when the idea was saved.

    Raises:
        IdeaDocumentError: a property is unknown, missing or malformed. The message names the
            property and what was expected.
        PublicationNameError: the name cannot be published.
        PublicationError: the idea cannot be answered as `answer` says.
        MessageError, SchemaError, ValueMismatchError: a message, a schema or the solution is
            malformed, or the output or the input does not satisfy its schema.
        InvalidJSONError, LimitExceededError: the document is not JSON, or is too large or too
            deeply nested.
    """
    read = _read_object(document)
    _expect_members(read)
    tool_name = _text(read, "name") or name
    if tool_name is not None:
        check_name(tool_name)

    requested = _requested_answer(read)
    context = with_instances(_context(read))
    messages = read_context(context)
    defined_tools(messages)
    schema = _schema(read)
    solution = _solution(read)
    if schema is not None and SolutionSchema.read(schema).is_complete:
        idea = Idea(context, schema, _as_stored(solution))
        schema, output = _unwrapped(function_schemas(idea)[1], solution.output)
        solution = dataclasses.replace(solution, output=output)
        answer = _answer(requested, solution)
    else:
        if not stored:
            _expect_solution_members(read.get("solution"))
        answer = _answer(requested, solution)
        idea = Idea(context, *_composed(schema, answer, solution))

    if not stored:
        _check_solution(idea)

    written = WrittenIdea(
        idea=idea,
        name=tool_name,
        description=(_text(read, "description") or "").strip(),
        answer=answer,
        messages=messages,
        schema=schema,
        solution=solution,
        tools=_names(read, "tools"),
        tags=_names(read, "tags") or (),
        members={
            key: read[key]
            for key in ("description", "schema", "tools", "answer", "tags")
            if key in read
        },
    )
    _check_input(written)
    if answer == "recorded" and schema is not None:
        Validator(schema, what="the output").check(written.recorded_output())

    return written


def _read_object(document: ObjectLike | JSON) -> JSONObject:
    read = normalise(document, what="the idea")
    if not isinstance(read, dict):
        raise IdeaDocumentError(
            f'an idea: expected an object, {{"context": [...], ...}}, found {show(read)}'
        )

    size = len(encode(read))
    if size > MAX_BYTES:
        raise LimitExceededError(f"the idea has {size:,} bytes; the limit is {MAX_BYTES:,}")
    return read


def _check_solution(idea: Idea) -> None:
    try:
        Validator(cast("JSONObject", idea.schema), what="the solution").check(idea.solution)
    except ValueMismatchError as error:
        raise IdeaDocumentError(str(error)) from None


def written_texts(written: WrittenIdea) -> JSONObject:
    """Return all strings in a document, so that they can be searched for secrets."""
    solution = written.idea.solution
    return {
        "name": written.name,
        **written.members,
        "context": written.idea.context,
        "solution": solution,
    }


def written_document(publication: Publication, idea: Idea) -> JSONObject | None:
    """Return the document that an idea was published from, or None if the idea was not
    hand-written.
    """
    members = publication.recording.written
    if members is None:
        return None

    document: JSONObject = {"name": publication.name}
    if "description" in members:
        document["description"] = members["description"]

    document["context"] = idea.context
    if "schema" in members:
        document["schema"] = members["schema"]

    solution = object_or_empty(idea.solution)
    schema = members.get("schema")
    if (
        isinstance(schema, dict)
        and not SolutionSchema.read(schema).is_complete
        and wrap_output(schema)[1]
    ):
        output = solution.get("output")
        if isinstance(output, dict):
            solution = {**solution, "output": output.get("value")}

    solution_members: JSONObject = {
        key: value for key, value in solution.items() if value not in (None, [])
    }
    if solution_members:
        document["solution"] = solution_members

    return {
        **document,
        **{key: members[key] for key in ("tools", "answer", "tags") if key in members},
    }


def plan_document(plan: Plan, name: str, missing: Iterable[JSON] = ()) -> JSONObject:
    """Return a document for a plan that did not run.

    Args:
        plan: the plan.
        name: the name of the call's tool.
        missing: references to input values that the plan did not receive, which become its
            parameters.
    """
    context = dataclasses.replace(plan, description=None).context()
    # A dictionary keeps the order of the names.
    names: dict[str, None] = {}
    for reference in missing:
        kind, *below = operand_path(str(reference))
        if kind == "input" and below:
            names[below[0]] = None

    if plan.input is None and names:
        schema: JSONObject = {
            "type": "object",
            "properties": {key: {} for key in names},
            "required": list[JSON](names),
        }
        context.append({"type": "input", "input": {}, "schema": schema})

    document: JSONObject = {"name": name, "context": context, "answer": "auto"}
    if plan.description:
        document["description"] = plan.description

    if plan.output_schema is not None:
        document["schema"] = plan.output_schema

    calls: JSONObject = {"calls": plan.calls, "output": plan.output}
    document["solution"] = calls if plan.program is None else {"program": plan.program}
    return document


def _is_input(message: Message) -> bool:
    return message.type == "input" and not message.instance


# -- the members of a document ---------------------------------------------------------------------


def _expect_members(document: JSONObject) -> None:
    for key in document:
        if key in MEMBERS:
            continue
        if key in ("calls", "output", "program"):
            raise IdeaDocumentError(
                f'{key}: write it inside the solution: {{"solution": {{"{key}": ...}}}}'
            )
        if key in ("ideabridge", "digest"):
            raise IdeaDocumentError(
                "this is an exported idea; import it with `ideas import` or `Bridge.import_idea`"
            )
        raise IdeaDocumentError(
            f"{show(key)}: unknown key; the keys of an idea are "
            f"{', '.join(MEMBERS)}.{did_you_mean(key, MEMBERS)}"
        )


def _text(document: JSONObject, key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise IdeaDocumentError(f"{key}: expected text, found {show(value)}")
    if value is not None and len(value) > MAX_TEXT:
        raise IdeaDocumentError(f"{key} has {len(value):,} characters; the limit is {MAX_TEXT:,}")
    return value


def _names(document: JSONObject, key: str) -> tuple[str, ...] | None:
    value = document.get(key)
    if value is None:
        return None

    if isinstance(value, list):
        names = [name for name in value if isinstance(name, str) and name]
    else:
        names = []

    if not isinstance(value, list) or len(names) != len(value) or len(names) > MAX_TOOLS:
        raise IdeaDocumentError(
            f"{key}: expected an array of at most {MAX_TOOLS:,} strings, found {show(value)}"
        )

    return tuple(names)


def _context(document: JSONObject) -> list[JSON]:
    if "context" not in document:
        raise IdeaDocumentError(
            'context: missing, expected an array of messages, such as {"role", "content"}'
        )

    value = document["context"]
    listed = value if isinstance(value, list) else [value]
    if not listed and document.get("solution") is None:
        raise IdeaDocumentError(
            "context: the idea has no content, because its context is empty and it has no solution"
        )

    return [_with_value(message) for message in listed]


def _with_value(message: JSON) -> JSON:
    """Return the message, adding an empty value if it is an input that has only a schema."""
    if not isinstance(message, dict):
        return message

    content = message.get("content")
    if isinstance(content, dict):
        return {**message, "content": _with_value(content)}
    if message.get("type") == "input" and "schema" in message and "input" not in message:
        return {
            "type": "input",
            "input": {},
            **{key: value for key, value in message.items() if key != "type"},
        }

    return message


def _schema(document: JSONObject) -> JSONObject | None:
    value = document.get("schema")
    if value is None:
        return None
    if value is True:
        return {}
    if not isinstance(value, dict):
        raise IdeaDocumentError(
            f"schema: expected a JSON Schema, which is an object; found {show(value)}"
        )

    check_schema(value, what="schema")
    return value


def _expect_solution_members(solution: JSON) -> None:
    """Raise an error if a solution has unknown properties."""
    if not isinstance(solution, dict) or "_tool" in solution:
        return

    members = ("calls", "output", "program")
    for key in solution:
        if key not in members:
            expected = ", ".join(members)
            raise IdeaDocumentError(
                f"solution.{key}: unknown key; the keys of a solution are "
                f"{expected}.{did_you_mean(key, members)}"
            )


def _solution(document: JSONObject) -> Solution:
    value = document.get("solution")
    if value is None:
        return Solution()
    if isinstance(value, dict) and value.get("program") is not None:
        return _program(value)

    try:
        solution, _ = read_solution(value)
    except IdeabridgeError as error:
        raise IdeaDocumentError(f"solution: {error}") from None

    return Solution(list_or_empty(solution["calls"]), solution["output"])


def _program(solution: JSONObject) -> Solution:
    program = solution["program"]
    if not isinstance(program, str):
        raise IdeaDocumentError(
            f"solution.program: expected Python source code, found {show(program)}"
        )

    extra = [key for key in ("calls", "output") if solution.get(key)]
    if extra:
        raise IdeaDocumentError(
            f"solution: a program makes its own calls and output; leave {extra[0]} out"
        )

    return Solution(program=program)


def _as_stored(solution: Solution) -> JSONObject:
    """Return a solution in the form in which ideas contain it."""
    if solution.program is not None:
        return {"program": solution.program}
    return {"calls": solution.calls, "output": solution.output}


# -- the kind of tool ------------------------------------------------------------------------------


def _requested_answer(document: JSONObject) -> str:
    answer = _text(document, "answer") or "auto"
    if answer not in ANSWERS:
        raise IdeaDocumentError(f"answer: expected {', '.join(ANSWERS)}; found {show(answer)}")
    return answer


def _answer(requested: str, solution: Solution) -> Answer:
    """Return how calls to the idea are answered.

    Raises:
        PublicationError: the solution lacks something that the requested answer needs. The message
            says what is missing.
    """
    has_references = _has_references(solution.output)
    if requested != "auto":
        lack = _lack(requested, solution, has_references=has_references)
        if lack is not None:
            raise PublicationError(f"answer: the answer cannot be {requested!r}: {lack}")
        return cast("Answer", requested)

    if solution.program is not None:
        return "program"
    if solution.calls or has_references:
        return "plan"
    return "recorded" if solution.output is not None else "solve"


def _lack(answer: str, solution: Solution, *, has_references: bool) -> str | None:
    """Return what a solution lacks for a kind of answer, or None if it is complete."""
    if answer == "program" and solution.program is None:
        return "its solution has no program; write it as solution.program"
    if answer == "plan" and solution.program is not None:
        return "its solution is a program, so the answer is `program`"
    if answer == "plan" and not solution.calls and solution.output is None:
        return "its solution has no calls; write them as solution.calls"
    if answer == "recorded" and solution.output is None:
        return "its solution has no output; write it as solution.output"
    if answer == "recorded" and has_references:
        return (
            "its output has references; write values in their place, or leave out `answer`, "
            "because the idea is a plan"
        )
    return None


def _has_references(output: JSON) -> bool:
    """Return whether an output contains references.

    Raises:
        IdeaDocumentError: a reference is malformed.
    """
    holes: list[Hole] = []
    problems: list[tuple[tuple[str, ...], str]] = []
    compile_value(output, holes, problems)
    if problems:
        path, problem = problems[0]
        raise IdeaDocumentError(f"solution.output{''.join(f'.{key}' for key in path)}: {problem}")
    return bool(holes)


def _composed(
    output_schema: JSONObject | None, answer: Answer, solution: Solution
) -> tuple[JSON, JSONObject]:
    """Return the schema and the solution as they are stored.

    The schema describes a Solution with this output, and does not depend on the tools of this
    bridge.
    """
    schema = solution_schema([], output_schema)
    properties = cast("JSONObject", schema["properties"])
    is_any = output_schema is None and answer != "solve"
    if is_any:
        # Without a schema, an output from calls or from a person can be any value.
        schema = {key: value for key, value in schema.items() if key != "$defs"}
        properties["output"] = {}

    if answer != "recorded" or solution.calls:
        call: JSONObject = {
            "type": "object",
            "properties": {"_tool": {"type": "string"}},
            "required": ["_tool"],
        }
        properties["calls"] = {"type": "array", "items": call}

    if solution.program is not None:
        schema["properties"] = {"program": {"type": "string"}, **properties}
        schema["required"] = ["program"]
        return schema, _as_stored(solution)

    if not is_any and solution.output is not None and wrap_output(output_schema)[1]:
        # Wrap an output that can be null, because a mind also has to wrap it.
        solution = dataclasses.replace(solution, output={"value": solution.output})

    return schema, _as_stored(solution)


def _unwrapped(schema: JSONObject | None, output: JSON) -> tuple[JSONObject | None, JSON]:
    """Remove the `{"value": ...}` wrapper of a nullable output. Return the schema inside the
    wrapper, and the output.
    """
    inner = _wrapped_schema(schema)
    members = object_or_empty(output)
    if inner is None or (output is not None and list(members) != ["value"]):
        return schema, output
    return inner, members.get("value")


def _wrapped_schema(schema: JSONObject | None) -> JSONObject | None:
    """Return the schema inside the wrapper of a nullable output, or None if `schema` is not a
    wrapper, or cannot be unwrapped.
    """
    if schema is None or schema.get("additionalProperties") is not False:
        return None

    wrapper = read_as(SchemaKeywords, schema)
    inner = wrapper.properties.get("value")
    if wrapper.required != ("value",) or len(wrapper.properties) != 1:
        return None

    # A reference would lead to a definition outside `value`.
    return inner if isinstance(inner, dict) and "$ref" not in str(inner) else None


def _check_input(written: WrittenIdea) -> None:
    inputs = [message for message in written.messages if _is_input(message)]
    if len(inputs) > 1:
        raise MessageError(
            "context: found more than one input; a tool's parameters must come from exactly one"
        )

    if not inputs:
        return
    check_schema(written.input_schema, what="the schema of the input")
    if written.answer == "recorded" or written.example:
        Validator(written.input_schema, what="the input").check(written.example)
