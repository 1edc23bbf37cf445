"""InitialDocuments: the documents a context gives a run to begin with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.bridge.context.document import merge
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.message import Message
from ideabridge.bridge.context.reference import KINDS, is_instance_name, quoted
from ideabridge.bridge.context.state_schema import StateSchema
from ideabridge.tools.encoding import JSON, JSONObject

MAX_INSTANCES = 1_000
MAX_INSTANCE_NAME = 64


@dataclass(slots=True)
class InitialDocuments:
    """What references can read when a run begins.

    Attributes:
        documents: `{"state", "results", "input", "data"}` by instance; "" where none is named.
        instances: the instances, in the order they come up in the context.
        schemas: the state schemas by instance.
    """

    documents: dict[str, JSON] = field(default_factory=dict[str, JSON])
    instances: list[str] = field(default_factory=list[str])
    schemas: dict[str, StateSchema] = field(default_factory=dict[str, StateSchema])


def check_instance(name: str) -> None:
    """Check the name of an instance: references must be able to hold it.

    Raises:
        MessageError: they cannot, or it is too long.
    """
    if len(name) > MAX_INSTANCE_NAME or not is_instance_name(name):
        raise MessageError(
            f"_instance {quoted(name)}: expected 1 to {MAX_INSTANCE_NAME} characters, without white space and"
            f' . [ ] | & † ", and none of {KINDS}'
        )


def initial_documents(messages: Iterable[Message]) -> InitialDocuments:
    """Build the documents of a context: data of one kind and instance merge; input without an instance is seen by
    all instances and overridden by an instanced one.

    Raises:
        MessageError: too many instances, or a name that could not be told from a reference's kind.
    """
    opening = InitialDocuments()
    own: dict[str, dict[str, JSONObject]] = {"": {"input": {}, "state": {}, "data": {}}}
    schemas: dict[str, JSONObject] = {}
    for message in messages:
        if message.type not in ("input", "state", "data"):
            continue
        name = message.instance
        if name and name not in own:
            check_instance(name)
            opening.instances.append(name)
            if len(opening.instances) > MAX_INSTANCES:
                raise MessageError(f"more than {MAX_INSTANCES:,} instances in one context")
        parts = own.setdefault(name, {"input": {}, "state": {}, "data": {}})
        if message.type == "data":
            old = parts["data"].get(message.kind)
            parts["data"][message.kind] = message.value if old is None else merge(old, message.value)
        elif isinstance(message.value, dict):
            merged = merge(parts[message.type], message.value)
            parts[message.type] = merged if isinstance(merged, dict) else {}
        if message.type == "state" and message.schema is not None:
            schemas[name] = message.schema
    opening.schemas = {name: StateSchema(schema, own[name]["state"]) for name, schema in schemas.items()}
    common = own[""]
    for name, parts in own.items():
        seen = {kind: merge(common[kind], parts[kind]) if name else parts[kind] for kind in ("input", "data")}
        opening.documents[name] = {"state": parts["state"], "results": {}, "input": seen["input"], "data": seen["data"]}
    return opening
