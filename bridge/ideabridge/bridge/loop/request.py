"""Request: Context + Schema, composed anew for every step of a run (DESIGN 2, 4.1, 4.2, 4.4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.context.message import Message
from ideabridge.bridge.context.preview import shorten, shorten_literal
from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress, Standing
from ideabridge.tools.compose import solution_schema, wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, content_hash

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


class Composer:
    """Composes the Requests of one run."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._schemas: dict[str, JSONObject] = {}

    def compose(self, machine: Machine) -> Request:
        """The Request of the step at hand."""
        messages = context_of(machine)
        draft = self._handlers.assemble(messages)
        return Request(
            context=[message.to_json() for message in messages],
            schema=self._schema(machine, draft.properties),
            texts=draft.texts,
            model=draft.model,
        )

    def _schema(self, machine: Machine, properties: dict[str, JSONObject]) -> JSONObject:
        # The tools of a run never change, so its schema is composed once for each set of extra properties.
        key = ",".join(properties)
        schema = self._schemas.get(key)
        if schema is None:
            output = machine.output_schema
            wrapped = wrap_output(output)[0] if output is not None else None
            schema = self._schemas[key] = solution_schema(
                machine.catalogue.tools,
                wrapped,
                latent=machine.catalogue.latent,
                instances=machine.opening.instances,
                extra=properties,
            )
        return schema


def context_of(machine: Machine) -> list[Message]:
    """The context of the step at hand: how the run began, the state as it stands, what was done, what failed."""
    if machine.step == 0:
        return machine.messages
    messages: list[Message] = []
    told: set[str] = set()
    for message in machine.messages:
        if message.type == "state":
            if message.instance not in told:
                told.add(message.instance)
                messages.append(_state(machine, message))
        else:
            messages.append(message)
    if not told and machine.memory.state():
        messages.append(_state(machine, Message("user", "state", {}, "state")))
    done = [one for one in machine.history if one.settled]
    if done:
        shown: list[JSON] = [_told(one) for one in done[-_SHOWN_CALLS:]]
        earlier = len(done) - len(shown)
        text = "calls made so far; their values are read at the references" + (
            f"; {earlier} earlier" if earlier else ""
        )
        messages.append(Message("user", "data", shown, "calls", description=text))
    messages.extend(machine.added)
    messages.extend(Message("user", "correction", dict(one), "correction") for one in machine.corrections)
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
    if call.instance:
        told["instance"] = call.instance
    told["status"] = progress.standing.value
    path = value_path(progress)
    if path is not None:
        told["value"] = format_reference(path, call.instance or None)
        if progress.standing is Standing.DONE and path[0] == "results":
            told["preview"] = shorten(progress.value, path, instance=call.instance or None, small=400)
    return told
