"""Idea: the saved triple (context, schema, solution), named by its content (DESIGN 2, 4.11)."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import orjson

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.message import read_message
from ideabridge.tools.encoding import JSON, JSONObject, encode


class Encoded(NamedTuple):
    """The canonical bytes of an idea's parts, and both ids."""

    messages: list[bytes]
    schema: bytes
    solution: bytes
    request: bytes
    idea: bytes


@dataclass(frozen=True)
class Idea:
    """One Request and its Solution. Immutable: do not change the values after handing them over.

    Attributes:
        context: the messages of the Request, in order.
        schema: the JSON Schema the Solution had to satisfy.
        solution: `{"calls": [...], "output": ...}`.

    Ids. With `encode` from `ideabridge.tools.encoding` (UTF-8, compact, key order as given, no sorting):

    - `request_id` = hex SHA-256 of `encode({"context": context, "schema": schema})`
    - `id` = hex SHA-256 of `encode({"context": context, "schema": schema, "solution": solution})`

    with the keys in exactly this order, so anybody can recompute both from an exported document. They are
    computed once, when first asked for.
    """

    context: list[JSON]
    schema: JSON
    solution: JSON

    @cached_property
    def encoded(self) -> Encoded:
        """The canonical bytes of each part, and both ids as 32 bytes.

        Raises:
            InvalidJSONError: a part is not JSON.
        """
        try:
            messages = [orjson.dumps(message) for message in self.context]
            schema = orjson.dumps(self.schema)
            solution = orjson.dumps(self.solution)
        except orjson.JSONEncodeError:
            # One part needs the exact encoder, which writes some floats otherwise: then the whole goes through it.
            return self._encoded_exactly()
        # The request's bytes are a prefix of the idea's but for the last brace: the context is hashed once.
        digest = hashlib.sha256(b'{"context":[' + b",".join(messages) + b'],"schema":' + schema)
        request = digest.copy()
        request.update(b"}")
        digest.update(b',"solution":' + solution + b"}")
        return Encoded(messages, schema, solution, request.digest(), digest.digest())

    def _encoded_exactly(self) -> Encoded:
        request = encode({"context": self.context, "schema": self.schema})
        idea = encode({"context": self.context, "schema": self.schema, "solution": self.solution})
        return Encoded(
            [encode(message) for message in self.context],
            encode(self.schema),
            encode(self.solution),
            hashlib.sha256(request).digest(),
            hashlib.sha256(idea).digest(),
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
    """What is known beside the triple (DESIGN 4.11). None of it enters an id.

    Attributes:
        run: the run it was made in.
        step: its place in the run, from 1.
        parent: id of the idea before it, or of the one it was made from.
        mind: who answered: `turns`, `sampling`, `model`, `recorded`, or "" for none.
        model: the model's name as the mind told it.
        usage: tokens and cost, as the mind told them.
        time: when it was saved, ISO 8601 in UTC; the store fills it in where it is "".
        fingerprint: of configuration and tool schemas.
        title: one line for people.
        description: what it does.
        tools: names of the tools its calls used.
        outcome: `done`, `open` (a step before the last), `failed`, `stalled`, `limit`, `cancelled`.
        tags: free words.
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

    def to_json(self) -> JSONObject:
        """The metadata as JSON; what stands at its default is left out."""
        result: JSONObject = {}
        for name in _META_NAMES:
            value: Any = getattr(self, name)
            if value is not None and value != "" and value != () and value != {}:
                result[name] = list(value) if name in ("tools", "tags") else value
        return result

    @classmethod
    def from_json(cls, value: JSONObject) -> IdeaMeta:
        """The metadata `to_json` wrote (a store's; text from outside goes through `import_idea`)."""
        stored: dict[str, Any] = dict(value)
        for name in ("tools", "tags"):
            if name in stored:
                stored[name] = tuple(stored[name])
        return cls(**stored)


_META_NAMES = tuple(entry.name for entry in dataclasses.fields(IdeaMeta))


def function_schemas(idea: Idea) -> tuple[JSONObject | None, JSONObject | None]:
    """(input schema, output schema) of an idea as a function (DESIGN 4.11).

    The input schema is that of the first `input` message without an instance: the declared one, else a permissive
    one from its value. None: the idea takes no input. The output schema is what `idea.schema` says of `output`
    beside null, without the references a mind may write; None: it does not say.
    """
    return _input_schema(idea.context), _output_schema(idea.schema)


def _input_schema(context: list[JSON]) -> JSONObject | None:
    for raw in context:
        try:
            message = read_message(raw)
        except MessageError:
            # A context from elsewhere may hold messages only its own types can read; none of them is an input.
            continue
        if message.type == "input" and not message.instance:
            return _infer(message.value) if message.schema is None else message.schema
    return None


def _infer(value: JSON) -> JSONObject:
    properties = cast("JSONObject", value)
    return {
        "type": "object",
        "properties": {name: _type(item) for name, item in properties.items()},
        "required": list[JSON](properties),
    }


def _type(value: JSON) -> JSON:
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
    branches = output.get("anyOf")
    if isinstance(branches, list):
        said = [branch for branch in branches if branch != {"type": "null"} and not is_reference_schema(branch)]
        output = said[0] if len(said) == 1 else {**output, "anyOf": said}
    if not isinstance(output, dict) or output == {"type": "null"}:
        return None
    plain = cast("JSONObject", _without_references(output))
    definitions = schema.get("$defs")
    if isinstance(definitions, dict) and "$defs" not in plain and b'"#/$defs/' in encode(plain):
        plain = {**plain, "$defs": _without_references(definitions)}
    return plain


def is_reference_schema(schema: JSON) -> bool:
    """Whether a schema admits exactly references: text with a pattern that begins with a dagger (DESIGN 4.2)."""
    if not isinstance(schema, dict):
        return False
    pattern = schema.get("pattern")
    return schema.get("type") == "string" and isinstance(pattern, str) and pattern.startswith(("^†", "^\\u2020"))


def _without_references(schema: JSON) -> JSON:
    if isinstance(schema, list):
        return [_without_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    branches = schema.get("anyOf")
    if isinstance(branches, list) and any(is_reference_schema(branch) for branch in branches):
        said = [branch for branch in branches if not is_reference_schema(branch)]
        if len(said) == 1 and len(schema) == 1:
            return _without_references(said[0])
        schema = {**schema, "anyOf": said}
    return {key: _without_references(item) for key, item in schema.items()}
