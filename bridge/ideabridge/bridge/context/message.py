"""Messages: the entries of a Context.

A message is `{"role", "content"}` where the content is text or a typed object; the shorthand `{"type": K, ...}` is
the same with the type's default role, and `{"type": K, K: value}` the same as `{"type": "data", "kind": K,
"data": value}`. Here every message becomes one `Message`, so that nothing else needs to know the spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from ideabridge.bridge.context.errors import MessageError
from ideabridge.tools.encoding import JSON, JSONObject

DEFAULT_ROLES: Final = {"text": "user", "error": "user", "correction": "user", "tool": "system", "plan": "system"}
"""The role a typed message has where none is written; every other type is `user`."""

_TYPES: Final = ("text", "data", "input", "state", "tool", "plan", "error", "correction", "call")


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a Context.

    Attributes:
        role: `system`, `user` or `assistant`.
        type: `text`, `data`, `input`, `state`, `tool`, `plan`, `error`, `correction`,
            or `call`: one that was made, as a later Request is told of it.
        value: the text, or the typed value.
        kind: for `data`: the kind, which is also the name of a registered type; else the type.
        instance: `_instance`, "" where none is named.
        schema, description: what stands on the message.
    """

    role: str
    type: str
    value: JSON
    kind: str
    instance: str = ""
    schema: JSONObject | None = None
    description: str | None = None

    def to_json(self) -> JSONObject:
        """The message in its shorthand: what ideas hold."""
        if self.type == "text":
            result: JSONObject = {"role": self.role, "content": self.value}
            if self.instance:
                result["_instance"] = self.instance
            return result
        result = {"type": self.type}
        if self.type == "data":
            result["kind"] = self.kind
        result[self.type] = self.value
        if self.schema is not None:
            result["schema"] = self.schema
        if self.description is not None:
            result["description"] = self.description
        if self.instance:
            result["_instance"] = self.instance
        if self.role != DEFAULT_ROLES.get(self.type, "user"):
            result["role"] = self.role
        return result


def _optional(source: JSONObject, key: str, kind: type, what: str, where: str) -> JSON:
    value = source.get(key)
    if value is not None and not isinstance(value, kind):
        raise MessageError(f"{where}: {key} must be {what}, found {type(value).__name__}")
    return value


def _instance(source: JSONObject, where: str) -> str:
    """The instance a message names; "" where it names none."""
    name = _optional(source, "_instance", str, "text", where)
    if name == "":
        raise MessageError(f"{where}: _instance is empty; leave it out or name an instance")
    return name if isinstance(name, str) else ""


def _typed(source: JSONObject, role: JSON, where: str) -> Message:
    kind = source.get("type")
    if not isinstance(kind, str) or not kind:
        raise MessageError(f'{where}: expected {{"role", "content"}} or {{"type", ...}}, found keys {list(source)[:8]}')
    member = name = kind
    if kind == "data":
        named = source.get("kind")
        if not isinstance(named, str) or not named:
            raise MessageError(f"{where}: a message of type 'data' needs a kind, which is text")
        name = named
    if member not in source:
        raise MessageError(f"{where}: a message of type {kind!r} needs a member {member!r}")
    value = source[member]
    # Data of the kind `input` is an input message, and a type nobody built in is data of that kind: one meaning,
    # two spellings.
    kind = name if name in _TYPES else "data"
    if kind == "text" and not isinstance(value, str):
        raise MessageError(f"{where}: text must be text, found {type(value).__name__}")
    if kind in ("input", "state") and not isinstance(value, dict):
        raise MessageError(f"{where}: {kind} must be an object, found {type(value).__name__}")
    schema = _optional(source, "schema", dict, "a JSON Schema object", where)
    description = _optional(source, "description", str, "text", where)
    instance = _instance(source, where)
    return Message(
        role=role if isinstance(role, str) else DEFAULT_ROLES.get(kind, "user"),
        type=kind,
        value=value,
        kind=name,
        instance=instance,
        schema=schema if isinstance(schema, dict) else None,
        description=description if isinstance(description, str) else None,
    )


def read_message(raw: JSON, where: str = "message") -> Message:
    """Read one message in any of its spellings.

    Raises:
        MessageError: it is none; the message says what was found and what was expected.
    """
    if isinstance(raw, str):
        return Message("user", "text", raw, "text")
    if not isinstance(raw, dict):
        raise MessageError(f"{where}: expected an object or text, found {type(raw).__name__}")
    role = raw.get("role")
    if role is not None and role not in ("system", "user", "assistant"):
        raise MessageError(f"{where}: role must be system, user or assistant, found {role!r}")
    if "content" not in raw:
        return _typed(raw, role, where)
    content = raw["content"]
    instance = _instance(raw, where)
    if isinstance(content, str):
        return Message(
            role if isinstance(role, str) else "user",
            "text",
            content,
            "text",
            instance,
        )
    if isinstance(content, dict):
        typed = {**content, "_instance": instance} if instance else content
        return _typed(typed, role, where)
    raise MessageError(f"{where}: content must be text or a typed object, found {type(content).__name__}")


def read_context(raw: Iterable[JSON]) -> list[Message]:
    """Read the messages of a context.

    Raises:
        MessageError: names the message by its number.
    """
    return [read_message(message, f"context.{number}") for number, message in enumerate(raw)]


def with_instances(raw: Sequence[JSON]) -> list[JSON]:
    """A context in which every state can be told from the others: of several, each without `_instance` becomes an
    instance of its own, ①, ②, ... in order, without the names that others have.

    Raises:
        MessageError: as `read_context`.
    """
    messages = read_context(raw)
    states = [message for message in messages if message.type == "state"]
    taken = {message.instance for message in messages}
    names = (name for name in map(_circled, count(1)) if name not in taken)
    if len(states) < 2 or all(message.instance for message in states):
        return list(raw)
    return [
        replace(message, instance=next(names)).to_json() if message.type == "state" and not message.instance else given
        for message, given in zip(messages, raw, strict=True)
    ]


def _circled(number: int) -> str:
    """The number in a circle; beyond 50, for which there is no such character, its digits."""
    for first, last, start in ((1, 20, 0x2460), (21, 35, 0x3251), (36, 50, 0x32B1)):
        if first <= number <= last:
            return chr(start + number - first)
    return str(number)
