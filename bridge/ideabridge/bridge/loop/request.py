"""Request: Context + Schema, composed anew for every step of a run (DESIGN 2, 4.1, 4.2, 4.4.1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.context.message import Message
from ideabridge.bridge.context.preview import shorten, shorten_literal
from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.bridge.loop.guidance import Guidance
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress, Standing
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, encode_text
from ideabridge.tools.schema import inline_refs

_SHOWN_CALLS = 50
_SHOWN_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """One self-contained exchange, as it goes to a mind.

    Attributes:
        context: the typed messages: what the idea holds.
        schema: JSON Schema of the Solution.
        texts: the messages as the mind reads them: `{"role", "content"}`.
        model: settings for the model that handlers asked for.
    """

    context: list[JSON]
    schema: JSONObject
    texts: list[JSONObject]
    model: JSONObject

    @property
    def id(self) -> str:
        """SHA-256 of (context, schema): equal Requests have equal ids (DESIGN 4.11)."""
        return content_hash({"context": self.context, "schema": self.schema})


class SchemaCache:
    """Composed schemas, by everything they are composed from; bounded. Shared by the runs of a process."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._schemas: OrderedDict[str, JSONObject] = OrderedDict()

    def get(self, key: str, compose: Callable[[], JSONObject]) -> JSONObject:
        """The schema of that key, composed where it is not there."""
        schema = self._schemas.get(key)
        if schema is None:
            schema = self._schemas[key] = compose()
            if len(self._schemas) > self._size:
                self._schemas.popitem(last=False)
        else:
            self._schemas.move_to_end(key)
        return schema


class Composer:
    """Composes the Requests of one run.

    Args:
        handlers: what each type of message does.
        cache: composed schemas, shared with other runs.
    """

    def __init__(self, handlers: Handlers, cache: SchemaCache) -> None:
        self._handlers = handlers
        self._cache = cache
        self._own: dict[str, JSONObject] = {}
        self._told: dict[int, Message] = {}

    def compose(self, machine: Machine) -> Request:
        """The Request of the step at hand."""
        messages = context_of(machine, self._calls(machine))
        draft = self._handlers.assemble(messages)
        return Request(
            context=[message.to_json() for message in messages],
            schema=self._schema(machine, draft.properties),
            texts=draft.texts,
            model=draft.model,
        )

    def _calls(self, machine: Machine) -> list[Message]:
        """The last calls, each a message of its own, stored once however often it is told."""
        history = machine.history
        shown = range(max(0, len(history) - _SHOWN_CALLS), len(history))
        # Between Requests every call has settled: what is told of one never changes.
        self._told = {
            index: self._told.get(index) or Message("user", "call", _told(history[index]), "call") for index in shown
        }
        return list(self._told.values())

    def _schema(self, machine: Machine, properties: dict[str, JSONObject]) -> JSONObject:
        # The tools of a run never change: within it, the extra properties alone tell its schemas apart.
        names = encode_text(dict[str, JSON](properties)) if properties else ""
        schema = self._own.get(names)
        if schema is None:
            tools, latent = machine.catalogue.to_json()
            parts: list[JSON] = [machine.mode, tools, latent, machine.output_schema, dict[str, JSON](properties)]
            key = content_hash([*parts, list[JSON](machine.opening.instances)])
            schema = self._own[names] = self._cache.get(key, lambda: _schema_of(machine, properties))
        return schema


def _schema_of(machine: Machine, properties: dict[str, JSONObject]) -> JSONObject:
    schema = solution_schema(
        machine.catalogue.tools,
        machine.output_schema,
        latent=machine.catalogue.latent,
        instances=machine.opening.instances,
        extra=properties,
    )
    if machine.mode == "plan":
        _tell_output(schema, machine.output_schema)
    return schema


def _tell_output(schema: JSONObject, output: JSONObject | None) -> None:
    """A plan's author answers once: its output is exactly what was asked for, and anything where nothing was."""
    properties = schema["properties"]
    if isinstance(properties, dict):
        properties["output"] = inline_refs(output) if output is not None else {}


def context_of(machine: Machine, calls: list[Message]) -> list[Message]:
    """The context of the step at hand: how the run began, the state as it stands, what was done (the messages `calls`),
    what failed.
    """
    guidance = None
    if any(message.type == "plan" for message in machine.messages):
        guidance = Guidance(machine.memory, machine.opening.instances, machine.history)
    if machine.step == 0:
        if guidance is None:
            return machine.messages
        return [
            guidance.told(one) if one.type == "plan" and guidance.has_begun(one) else one for one in machine.messages
        ]
    messages: list[Message] = []
    told: set[str] = set()
    for message in machine.messages:
        if message.type == "state":
            if message.instance not in told:
                told.add(message.instance)
                messages.append(_state(machine, message))
        else:
            messages.append(message if guidance is None or message.type != "plan" else guidance.told(message))
    if not told and machine.memory.state():
        messages.append(_state(machine, Message("user", "state", {}, "state")))
    messages.extend(calls)
    messages.extend(machine.added)
    messages.extend(
        Message("user", "correction", shorten_literal(dict(one)), "correction") for one in machine.corrections
    )
    messages.extend(
        Message("user", "error", shorten_literal(error), "error") for error in machine.errors[:_SHOWN_ERRORS]
    )
    return messages


def _state(machine: Machine, message: Message) -> Message:
    # Large values are told by reference, so that the ideas of a long run grow with what is new (DESIGN 4.11).
    value = shorten(machine.memory.state(message.instance), ("state",))
    return Message(message.role, "state", value, "state", message.instance, message.schema, message.description)


def value_path(progress: Progress) -> Path | None:
    """Where the value of a settled call is read; None where it wrote nothing."""
    return progress.wrote[0] if progress.wrote else None


def _told(progress: Progress) -> JSONObject:
    call = progress.call
    told: JSONObject = {"place": call.place, "tool": call.name}
    if progress.replaced is not None:
        told.update(tool=progress.replaced.name, proposed=call.name)
    if call.instance:
        told["instance"] = call.instance
    told["status"] = progress.standing.value
    path = value_path(progress)
    if path is not None:
        told["value"] = format_reference(path, call.instance or None)
        if progress.standing is Standing.DONE and path[0] == "results":
            told["preview"] = shorten(progress.value, path, instance=call.instance or None, small=400)
    return told
