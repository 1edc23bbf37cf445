"""The values from the context that references can read when a run begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.bridge.context import state as document
from ideabridge.bridge.context.errors import MessageError, ReferenceSyntaxError
from ideabridge.bridge.context.messages import Message
from ideabridge.bridge.context.references import (
    KINDS,
    clipped,
    is_instance_name,
    parse_reference,
    quoted,
)
from ideabridge.bridge.context.state import Missing, StateSchema, merge
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator

MAX_INSTANCES = 1_000
MAX_INSTANCE_NAME = 64


@dataclass(slots=True)
class InitialDocuments:
    """The values that references can read when a run begins.

    Attributes:
        documents: `{"state", "results", "input", "data"}`, keyed by instance ("" if the context
            names no instances).
        instances: the instances, in the order in which the context names them.
        schemas: the state schemas, keyed by instance.
    """

    documents: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    instances: list[str] = field(default_factory=list[str])
    schemas: dict[str, StateSchema] = field(default_factory=dict[str, StateSchema])

    def part(self, instance: str, kind: str) -> JSON:
        """Return the initial `state` or `input` of an instance, depending on `kind`."""
        part = document.read(self.documents.get(instance, {}), (kind,))
        return {} if isinstance(part, Missing) else part


def check_instance(name: str) -> None:
    """Check that references can contain `name`, the name of an instance.

    Raises:
        MessageError: references cannot contain the name, or the name is too long.
    """
    if len(name) > MAX_INSTANCE_NAME or not is_instance_name(name):
        raise MessageError(
            f"_instance {quoted(name)}: expected 1 to {MAX_INSTANCE_NAME} characters, "
            "without white space and"
            f' . [ ] | & † ", and none of {KINDS}'
        )


def opening_faults(messages: Iterable[Message], opening: InitialDocuments) -> list[str]:
    """Return one sentence for each initial state or input that does not satisfy the schema in its
    message.

    A state may lack members that its schema requires, because calls might write them later.
    """
    faults: list[str] = []
    for instance, state_schema in opening.schemas.items():
        try:
            state_schema.check_write(opening.part(instance, "state"))
        except IdeabridgeError as error:
            faults.append(f"{_of(instance)}{error}")

    for message in messages:
        if message.type != "input" or message.schema is None:
            continue

        # An input that names no instance is read by all instances.
        readers = [message.instance] if message.instance else (opening.instances or [""])
        validator = Validator(message.schema, what="the input")
        for instance in readers:
            try:
                validator.check(opening.part(instance, "input"))
            except IdeabridgeError as error:
                faults.append(f"{_of(instance)}{error}")

    return faults


def _of(instance: str) -> str:
    return f"instance {clipped(instance)}: " if instance else ""


@dataclass(slots=True)
class _Parts:
    """The merged messages of one instance, or of the context as a whole."""

    input: JSON = field(default_factory=dict[str, JSON])
    state: JSON = field(default_factory=dict[str, JSON])
    data: JSON = field(default_factory=dict[str, JSON])

    def add(self, message: Message) -> None:
        """Merge a message into the parts."""
        if message.type == "data":
            self.data = merge(self.data, {message.kind: message.value})
        elif message.type == "input":
            self.input = merge(self.input, message.members)
        else:
            self.state = merge(self.state, message.members)


def initial_documents(messages: Iterable[Message]) -> InitialDocuments:
    """Build the documents from a context.

    Data of the same kind and instance is merged. Every instance also sees the input and data that
    name no instance, merged with its own.

    Raises:
        MessageError: there are too many instances, or a name is invalid; see `check_instance`.
    """
    opening = InitialDocuments()
    common = _Parts()
    by_instance: dict[str, _Parts] = {"": common}
    schemas: dict[str, JSONObject] = {}
    for message in messages:
        if message.type == "call":
            common.data = merge(common.data, _earlier_result(message.value))

        if message.type not in ("input", "state", "data"):
            continue

        name = message.instance
        if name not in by_instance:
            check_instance(name)
            by_instance[name] = _Parts()
            opening.instances.append(name)
            if len(opening.instances) > MAX_INSTANCES:
                raise MessageError(f"the context has more than {MAX_INSTANCES:,} instances")

        by_instance[name].add(message)
        if message.type == "state" and message.schema is not None:
            schemas[name] = message.schema

    for name, parts in by_instance.items():
        readable: JSONObject = {
            "state": parts.state,
            "results": {},
            "input": parts.input,
            "data": parts.data,
        }
        if name:
            readable["input"] = merge(common.input, parts.input)
            readable["data"] = merge(common.data, parts.data)

        opening.documents[name] = readable

    opening.schemas = {
        name: StateSchema(schema, by_instance[name].state) for name, schema in schemas.items()
    }
    return opening


def _earlier_result(call: JSON) -> JSONObject:
    """Return the data that a room's context receives from the `call` message of another run.

    References can read the data as `†data.results.PLACE`. The data is empty if the call has no such
    result.
    """
    members = object_or_empty(call)
    if "result" not in members:
        return {}

    try:
        path = next(parse_reference(str(members.get("value"))).operands()).full
    except ReferenceSyntaxError:
        return {}

    if path[0] != "data" or len(path) == 1:
        return {}

    data: JSONObject = {path[-1]: members["result"]}
    for key in reversed(path[1:-1]):
        data = {key: data}
    return data
