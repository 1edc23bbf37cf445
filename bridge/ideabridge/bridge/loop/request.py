"""Compose the Request for each step of a run from the run's current context and the schema of the
answer.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.assumption import assumption_lines
from ideabridge.bridge.context.body import Body, EncodedRequest, body_of
from ideabridge.bridge.context.errors import HandlerError, ReferenceSyntaxError
from ideabridge.bridge.context.messages import ContextParts, Draft, Handlers, Message
from ideabridge.bridge.context.reader import READERS, is_reader, meant_reference
from ideabridge.bridge.context.references import Path, clipped, format_reference, parse_target
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import Measures
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import RequestMade
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.members import GROUP, GROUPS, THOUGHT_PROCESS, THOUGHTS
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.loop.solution import CurrentSolution
from ideabridge.bridge.loop.stored_solution import SolutionValidator, stored_solution
from ideabridge.bridge.loop.tool_offer import Latent, change_of_offer, offered_by
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, encode_text, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import Tool

_CALLS: Final = 200
"""Maximum number of calls that are reported for one plan."""

_MOST_NAMED: Final = 5
"""Maximum number of instances that are listed as not having done a call."""


class Guidance:
    """Reports which calls in plan messages are done.

    A call with an output path is done if there is a value at that path. Any other call is done if
    the run has made the same call.

    Args:
        machine: the run.
    """

    def __init__(self, machine: Machine) -> None:
        self._documents = machine.documents
        self._instances = machine.instances
        self._is_first = machine.step == 0
        done = (progress.call for progress in machine.history if progress.status is CallStatus.DONE)
        self._made = {(call.instance, _written(call.raw)) for call in done}

    def with_status(self, message: Message) -> Message:
        """Add a member `standing` to a plan message: a list with `{"place", "tool", "writes"?,
        "done"}` for each call.

        If there are instances, `done` is the number of instances that have done the call, `of` is
        the number of all instances, and `not_done` lists some of the others. In the first step, the
        message is returned unchanged if no call in the plan is done.
        """
        plan = message.members or {"calls": message.value}
        if not isinstance(plan.get("calls"), list):
            return message

        calls = written_calls(list_or_empty(plan["calls"])[:_CALLS])
        standing: list[JSON] = []
        is_any_done = False
        for place, call in enumerate(calls):
            if call.members:
                entry = self._entry(place, call, message.instance)
                standing.append(entry)
                is_any_done = is_any_done or bool(entry["done"])

        if self._is_first and not is_any_done:
            return message
        return dataclasses.replace(message, value={**plan, "standing": standing})

    def _entry(self, place: int, call: WrittenCall, instance: str) -> JSONObject:
        entry: JSONObject = {"place": place, "tool": call.members.get("_tool")}
        if call.output_path is not None:
            entry["writes"] = call.output_path

        named = call.instance if "_instance" in call.members else instance
        where = [named] if named else self._instances
        if not where:
            return {**entry, "done": self._is_done(call, "")}

        left = [instance_name for instance_name in where if not self._is_done(call, instance_name)]
        if len(where) == 1:
            return {**entry, "instance": where[0], "done": not left}
        entry |= {"done": len(where) - len(left), "of": len(where)}
        if left and len(left) < len(where):
            entry["not_done"] = list[JSON](left[:_MOST_NAMED])

        return entry

    def _is_done(self, call: WrittenCall, instance: str) -> bool:
        paths = _paths(call)
        if not paths:
            return (instance, _written(call.members)) in self._made
        document = self._documents.get(instance, {})
        return any(not isinstance(read(document, path), Missing) for path in paths)


def _paths(call: WrittenCall) -> tuple[Path, ...]:
    if call.output_path is None:
        return ()

    try:
        return parse_target(call.output_path).paths
    except ReferenceSyntaxError:
        # A plan in a context is only guidance, so it need not be able to run.
        return ()


def _written(call: JSONObject) -> str:
    return encode_text({key: value for key, value in call.items() if key != "_instance"})


# -- composing -------------------------------------------------------------------------------------

_SHOWN_ERRORS = 32 * 1024
"""Maximum number of characters that errors about calls can take in one Request. Other errors are
few, and are always shown.
"""

_LONG_ERROR = 4096

_DOUBT_BYTES = 600
_PROGRAM = 10_000
_PRINTED = 4_000
_OWN_SCHEMAS = 64
_REFERENCE = 200


class SchemaCache:
    """A bounded cache of composed schemas, shared by all runs in a process."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._schemas: OrderedDict[str, SolutionValidator] = OrderedDict()

    def get(self, key: str, compose: Callable[[], JSONObject]) -> SolutionValidator:
        """Return the schema with this key, calling `compose` if it is not cached."""
        # Remove the schema and add it again, so that it counts as the newest. A thread and the
        # event loop can compose at the same time; at worst, both compose the same schema.
        schema = self._schemas.pop(key, None)
        if schema is None:
            schema = SolutionValidator(compose())

        self._schemas[key] = schema
        if len(self._schemas) > self._size:
            self._schemas.popitem(last=False)

        return schema


@dataclass(slots=True)
class _Messages:
    """Messages, each with the JSON that ideas store for it, and the encoding of that JSON."""

    messages: list[Message] = field(default_factory=list[Message])
    stored: list[JSONObject] = field(default_factory=list[JSONObject])
    bodies: list[Body] = field(default_factory=list[Body])

    def add(self, message: Message, body: Body | None = None) -> None:
        """Add a message. If `body` is None, the message is encoded here."""
        stored = message.to_json()
        self.messages.append(message)
        self.stored.append(stored)
        self.bodies.append(body or body_of(stored))


class Composer:
    """Composes the Requests of one run.

    Args:
        handlers: the handlers for each type of message.
        cache: composed schemas, shared with other runs.
        latent: returns the keys of the tools without code that handlers added.
        program_schema: returns the schema of programs that call these tools, or None if programs
            are not offered.
    """

    def __init__(
        self,
        handlers: Handlers,
        cache: SchemaCache,
        latent: Latent = lambda _: (),
        program_schema: Callable[[Sequence[Tool]], JSONObject] | None = None,
    ) -> None:
        self._latent = latent
        self._program_schema = program_schema
        self._handlers = handlers
        self._cache = cache
        self._own: dict[str, SolutionValidator] = {}
        self._calls_made = _Messages()
        # Each entry keeps its message alive so that the id cannot be reused.
        self._bodies: dict[int, tuple[Message, Body]] = {}
        self._measures = Measures()
        self._last: SolutionValidator | None = None
        self._encoded: EncodedRequest | None = None

    def prepare(self, machine: Machine) -> None:
        """Compose the schema of the first Request in advance and cache it, without any changes by
        handlers.
        """
        if machine.settings.thought_process:
            properties: dict[str, JSONObject] = {"thought_process": THOUGHTS}
        else:
            properties = {}
        self._schema(machine, properties, None)

    def compose(self, machine: Machine, earlier: RequestMade | None = None) -> Request:
        """Compose the next Request of a run.

        Args:
            machine: the run.
            earlier: the event of a Request that was already made. The Request then has the tools
                and the output schema that the handlers left at that time, no matter what they do
                now.

        Raises:
            HandlerError: a message handler failed, or left invalid tools or an invalid schema.
        """
        before, after = messages_around_calls(machine)
        calls = self._calls(machine) if machine.step else _Messages()
        draft = self._draft(machine, ContextParts(before, calls.messages, after), earlier)
        properties = draft.properties
        offered = None
        if machine.settings.groups:
            properties = {GROUP: GROUPS, **properties}

        if machine.mode == "solve":
            if machine.settings.thought_process:
                properties = {THOUGHT_PROCESS: THOUGHTS, **properties}
            if earlier is not None:
                offered = earlier.offered
            else:
                offered = self._change(machine, draft)

        try:
            schema = self._last = self._schema(machine, properties, offered)
        except IdeabridgeError as error:
            if not draft.properties and not offered:
                raise
            raise HandlerError(
                "the message handlers left tools or properties from which no valid schema can "
                f"be made: {error}"
            ) from error

        first, later = self._as_stored(before, after)
        request = Request(
            context_json=[*first.stored, *calls.stored, *later.stored],
            schema=schema.document,
            texts=draft.texts,
            model=draft.model,
            offered=offered,
            # The author of a plan is not asked for a Solution, so nothing is shown.
            shown=machine.shown.to_json() if machine.mode == "solve" else None,
            members=draft.properties,
            schema_size=schema.size,
        )
        bodies = [*first.bodies, *calls.bodies, *later.bodies]
        shown_body = None if request.shown is None else body_of(request.shown)
        self._encoded = EncodedRequest(bodies, schema.body, shown_body, self._encoded)
        request.know(self._encoded)
        return request

    def _as_stored(self, *parts: Sequence[Message]) -> list[_Messages]:
        """Return messages in the form in which ideas store them. Messages from the last Request are
        not encoded again.
        """
        last = self._bodies
        self._bodies = {}
        stored: list[_Messages] = []
        for part in parts:
            messages = _Messages()
            for message in part:
                encoded = last.get(id(message))
                body = encoded[1] if encoded is not None and encoded[0] is message else None
                messages.add(message, body)
                self._bodies[id(message)] = (message, messages.bodies[-1])

            stored.append(messages)

        return stored

    def _draft(self, machine: Machine, context: ContextParts, earlier: RequestMade | None) -> Draft:
        """Return the draft of a Request. If a value in it is shortened, the draft also offers the
        tool for reading values.
        """
        base = machine.offer.initial
        base_schema = machine.offer.initial_schema

        def assembled(reader: Tool | None) -> Draft:
            return self._handlers.assemble(
                context,
                base.tools,
                base_schema,
                shown=machine.shown,
                reader=None if reader is None else reader.name,
                measures=self._measures,
            )

        if machine.mode != "solve":
            return assembled(None)
        if earlier is not None:
            readers = filter(is_reader, offered_by(base, earlier.offered).tools)
            return assembled(next(readers, None))

        for reader in READERS:
            draft = assembled(reader)
            if not draft.is_shortened:
                return draft
            if all(tool.name != reader.name for tool in draft.tools):
                draft.tools.append(reader)
                return draft

        return assembled(None)

    def _change(self, machine: Machine, draft: Draft) -> JSONObject | None:
        """Return how the handlers changed the tools and the output schema; see
        `change_of_offer`.
        """
        base = machine.offer.initial
        base_schema = machine.offer.initial_schema
        try:
            return change_of_offer(
                base, base_schema, draft.tools, draft.output_schema, self._latent
            )
        except IdeabridgeError as error:
            raise HandlerError(str(error)) from error

    def stored(self, machine: Machine, request: Request) -> JSONObject:
        """Return the Solution to the last Request as stored in its idea."""
        if machine.proposal is None:
            return machine.solution.to_json()
        schema = self._last
        if schema is None or schema.document is not request.schema:
            schema = SolutionValidator(request.schema)
        return stored_solution(machine.proposal, schema, has_output=machine.has_output)

    def _calls(self, machine: Machine) -> _Messages:
        """Return a message for each call."""
        # All calls have settled between Requests, so messages about calls that already exist do not
        # change.
        for progress in machine.history[len(self._calls_made.messages) :]:
            self._calls_made.add(Message("user", "call", _call_entry(progress), "call"))
        return self._calls_made

    def _schema(
        self, machine: Machine, properties: dict[str, JSONObject], offered: JSONObject | None
    ) -> SolutionValidator:
        # The schemas of a run are all the same unless handlers change something.
        changes: JSONObject = {"properties": dict[str, JSON](properties), "offered": offered}
        names = encode_text(changes) if properties or offered else ""
        schema = self._own.get(names)
        if schema is None:
            catalogue = offered_by(machine.offer.initial, offered)
            output = (offered or {}).get("output_schema", machine.offer.initial_schema)
            tools, latent = catalogue.to_json()
            parts: list[JSON] = [machine.mode, tools, latent, output, dict[str, JSON](properties)]
            # Without tools, a program could do no more than the mind can do on its own.
            if machine.offers_programs and catalogue.tools:
                programs = self._program_schema
            else:
                programs = None

            is_program = machine.mode == "plan" and machine.solution.program is not None
            flags: list[JSON] = [machine.settings.thought_process, programs is not None, is_program]
            key = content_hash([*parts, list[JSON](machine.instances), *flags])
            output_schema = output if isinstance(output, dict) else None
            schema = self._cache.get(
                key, lambda: _schema_of(machine, catalogue, output_schema, properties, programs)
            )
            if len(self._own) >= _OWN_SCHEMAS:
                self._own.clear()

            self._own[names] = schema

        return schema


def _schema_of(
    machine: Machine,
    catalogue: Catalogue,
    output: JSONObject | None,
    properties: dict[str, JSONObject],
    programs: Callable[[Sequence[Tool]], JSONObject] | None,
) -> JSONObject:
    # The author of a plan answers only once, so null is an output like any other.
    is_plan = machine.mode == "plan"
    program: JSONObject | None = None
    if programs is not None:
        program = programs(catalogue.tools)
    elif is_plan and machine.solution.program is not None:
        program = {"type": "string"}

    return solution_schema(
        catalogue.tools,
        {} if is_plan and output is None else output,
        latent=catalogue.latent,
        instances=machine.instances,
        extra=properties,
        # Require a member only if its schema is the original one, because a handler that defines
        # the member in its own way might make it optional.
        required=[name for name in properties if properties[name] is THOUGHTS],
        program=program,
        wraps=not is_plan,
    )


def messages_around_calls(machine: Machine) -> tuple[list[Message], list[Message]]:
    """Return the context of the current step without the messages about calls, in two parts: the
    messages before and the messages after the messages about calls.

    The context consists of the initial context with the current state, what the last Solution
    printed and added, and the corrections and errors of the last Solution.
    """
    initial = machine.messages
    if any(message.type == "plan" for message in initial):
        guidance = Guidance(machine)
        initial = [
            guidance.with_status(message) if message.type == "plan" else message
            for message in initial
        ]

    if machine.step == 0:
        return initial, []

    messages: list[Message] = []
    instances: set[str] = set()
    for message in initial:
        if message.type != "state":
            messages.append(message)
        elif message.instance not in instances:
            instances.add(message.instance)
            messages.append(_state(machine, message))

    if not instances and machine.state_of():
        messages.append(_state(machine, Message("user", "state", {}, "state")))

    news = [Message("user", "text", text, "text") for text in _program_texts(machine.solution)]
    news.extend(machine.added_data)
    news.extend(machine.feedback.messages)
    news.extend(
        Message("user", "correction", dict(correction), "correction")
        for correction in machine.feedback.corrections
    )
    news.extend(_errors(machine.errors))
    return messages, news


def _errors(errors: Sequence[JSONObject]) -> list[Message]:
    """Return the messages about errors. If they do not all fit, return the first ones and the
    number of the rest.
    """
    messages: list[Message] = []
    room = _SHOWN_ERRORS
    more = 0
    for error in errors:
        if error.get("place") is not None:
            # Count long errors only up to a limit, because the handler replaces their long parts
            # with references.
            room -= min(len(encode_text(error)), _LONG_ERROR)
            if room < 0 and messages:
                more += 1
                continue

        messages.append(Message("user", "error", error, "error"))

    if more:
        text = (
            f"{more:,} more calls failed; there are {len(errors):,} errors in total. Read them all "
            "at †data.error.PLACE."
        )
        messages.append(Message("user", "text", text, "text"))

    return messages


def _program_texts(solution: CurrentSolution) -> list[str]:
    """Return what the next Request says about the last program.

    This is what the program printed and, if it failed, the program itself, because a Request never
    refers to an earlier one.
    """
    texts: list[str] = []
    if solution.program is not None and solution.failed:
        texts.append(f"The last program, which failed:\n{_cut(solution.program.program, _PROGRAM)}")

    printed = "".join(solution.printed)
    if printed:
        texts.append(f"The last program printed:\n{_cut(printed, _PRINTED)}")

    return texts


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} characters)"


def _state(machine: Machine, message: Message) -> Message:
    value = machine.state_of(message.instance)
    return Message(
        message.role, "state", value, "state", message.instance, message.schema, message.description
    )


def _call_entry(progress: Progress) -> JSONObject:
    """Return the value of a `call` message: `{"place", "tool", "proposed"?, "instance"?, "reads"?,
    "status", "value"?, "also"?, "result"?, "assumed"?}`.

    `value` is the reference to the value, `also` lists further references to it, and `result` is
    the value itself if it is not in the state.
    """
    call = progress.call
    summary: JSONObject = {"place": call.place, "tool": call.name}
    if progress.replaced is not None:
        summary.update(tool=progress.replaced.name, proposed=call.name)

    if call.instance:
        summary["instance"] = call.instance

    if is_reader(progress.tool):
        summary["reads"] = clipped(str(meant_reference(call.raw.get("reference"))), _REFERENCE)

    summary["status"] = progress.status.value
    if progress.status is CallStatus.SKIPPED and progress.error is not None:
        summary["why"] = progress.error.get("message")

    if progress.wrote:
        first, *further = (format_reference(path, call.instance or None) for path in progress.wrote)
        summary["value"] = first
        if further:
            summary["also"] = list[JSON](further)

        if progress.status is CallStatus.DONE and progress.wrote[0][0] == "results":
            summary["result"] = progress.value

    # If a called idea only assumed something, the mind must not take it for certain.
    assumed = assumption_lines(progress.doubts.assumed, _DOUBT_BYTES)
    if assumed:
        summary["assumed"] = list[JSON](assumed)

    return summary
