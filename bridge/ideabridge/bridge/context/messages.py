"""The entries of a context, and the handlers that add them to a Request.

A message is `{"role", "content"}`, where the content is text or a typed object. The shorthand
`{"type": K, ...}` means the same, with the type's default role. `{"type": K, "data": value}` means
the same as `{"type": K, K: value}`, and, if K is not a built-in type, as `{"type": "data", "kind":
K, "data": value}`. An error can be written as `{"type": "error", "call", "error"}`. `read_message`
turns every form into a `Message`.

Before a Request is sent, the `Handler` for each message can change the messages (a typed message
becomes text), the model settings, and the schema: the properties before `calls`, the tools and the
output schema. Changes apply only to this Request; for the next one, every message is handled again.
Users can register handlers for their own types, or replace the built-in handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import HandlerError, MessageError
from ideabridge.bridge.context.preview import line_of, shorten, shorten_error, shorten_literal
from ideabridge.bridge.context.reader import NAMES, READ
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.shown import (
    TO_MINDS,
    MadeCall,
    Measures,
    Place,
    Showing,
    Shown,
    named,
    paths_of,
)
from ideabridge.bridge.context.state import MISSING, merge
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, list_or_empty, object_or_empty
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.message import MESSAGE_TYPES
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import member, read_as

DEFAULT_ROLES: Final = {
    "text": "user",
    "error": "user",
    "correction": "user",
    "tool": "system",
    "plan": "system",
}
"""The default roles for typed messages. Every other type defaults to `user`."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """The status of one call in a plan; see `PlanStatus.with_status`."""

    place: JSON = None
    tool: JSON = None
    writes: str | None = None
    instance: str | None = None
    is_done: bool | None = field(default=None, metadata=member("done"))
    done: int | None = None
    of: int | None = None
    not_done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PlanWithStatus:
    """A plan with the status of each of its calls."""

    standing: tuple[_Standing, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a call failed."""

    message: str | None = None


_OF_ERROR: Final = ("call", "place", "in_solution", "error")
"""The members of an error. The message about the error can also contain them directly."""


@dataclass(frozen=True, slots=True)
class Message:
    """An entry in a context.

    Attributes:
        role: `system`, `user` or `assistant`.
        type: `text`, `data`, `input`, `state`, `tool`, `plan`, `error`, `correction`, or `call` (a
            call from an earlier Solution, for later Requests).
        value: the text of a text message, or the typed value of any other message.
        kind: the kind of a `data` message, which can be the name of a registered type. For other
            messages, the same as `type`.
        instance: `_instance`, or "".
        schema, description: the members with the same names.
    """

    role: str
    type: str
    value: JSON
    kind: str
    instance: str = ""
    schema: JSONObject | None = None
    description: str | None = None

    @property
    def members(self) -> JSONObject:
        """The members of the message's value. Empty if the value is not an object.

        The value of an input or a state is always an object.
        """
        return object_or_empty(self.value)

    def to_json(self) -> JSONObject:
        """Return the message in its shorthand form, as stored in ideas."""
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


def _optional(source: JSONObject, key: str, kind: type, expected: str, where: str) -> JSON:
    value = source.get(key)
    if value is not None and not isinstance(value, kind):
        raise MessageError(f"{where}: {key} must be {expected}, found {type(value).__name__}")
    return value


def _instance(source: JSONObject, where: str) -> str:
    """Return the instance that a message names, or "" if it names none."""
    name = _optional(source, "_instance", str, "text", where)
    if name == "":
        raise MessageError(f"{where}: _instance is empty; leave it out or name an instance")
    return name if isinstance(name, str) else ""


def _typed(source: JSONObject, role: JSON, where: str) -> Message:
    kind = source.get("type")
    if not isinstance(kind, str) or not kind:
        raise MessageError(
            f'{where}: expected {{"role", "content"}} or {{"type", ...}}, '
            f"found keys {list(source)[:8]}"
        )

    member = name = kind
    if kind == "data":
        named = source.get("kind")
        if not isinstance(named, str) or not named:
            raise MessageError(
                f"{where}: a message of type 'data' requires a kind, which must be text"
            )
        name = named

    # `{"type": K, "data": value}` is accepted as another way to write the same message.
    if member not in source and "data" in source:
        member = "data"

    if member not in source:
        raise MessageError(f"{where}: a message of type {kind!r} requires the member {member!r}")

    value = source[member]
    if kind == "error" and member == "error" and "call" in source:
        value = {key: source[key] for key in _OF_ERROR if key in source}

    # A data message of kind `input` is read as an input message. A type that is not built in is
    # read as a data message of that kind.
    kind = name if name in MESSAGE_TYPES else "data"
    if kind == "text" and not isinstance(value, str):
        raise MessageError(f"{where}: text must be a string, found {type(value).__name__}")
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
    """Read one message in any of its forms.

    Raises:
        MessageError: the message is malformed.
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
        return Message(role if isinstance(role, str) else "user", "text", content, "text", instance)
    if isinstance(content, dict):
        typed = {**content, "_instance": instance} if instance else content
        return _typed(typed, role, where)

    raise MessageError(
        f"{where}: content must be text or a typed object, found {type(content).__name__}"
    )


def read_context(raw: Iterable[JSON]) -> list[Message]:
    """Read the messages of a context.

    Raises:
        MessageError: a message is malformed; the error names the message's number.
    """
    return [read_message(message, f"context.{number}") for number, message in enumerate(raw)]


def with_instances(raw: Sequence[JSON]) -> list[JSON]:
    """If there are several states, give each state without `_instance` one of the first unused
    names among ①, ②, ...

    Raises:
        MessageError: as for `read_context`.
    """
    messages = read_context(raw)
    states = [message for message in messages if message.type == "state"]
    names_in_use = {message.instance for message in messages}
    names = (name for name in map(_circled, count(1)) if name not in names_in_use)
    if len(states) < 2 or all(message.instance for message in states):
        return list(raw)

    named: list[JSON] = []
    for message, definition in zip(messages, raw, strict=True):
        if message.type == "state" and not message.instance:
            named.append(replace(message, instance=next(names)).to_json())
        else:
            named.append(definition)

    return named


def title_of(raw: Sequence[JSON]) -> str:
    """Return a one-line title for a context without a task.

    The title is the user's last text or, if there is none, the kinds of the messages.

    Raises:
        MessageError: as for `read_context`.
    """
    messages = read_context(raw)
    texts = [
        str(message.value)
        for message in messages
        if message.type == "text" and message.role == "user"
    ]
    if texts:
        return texts[-1]
    return ", ".join(dict.fromkeys(message.kind for message in messages))


def _circled(number: int) -> str:
    """Return a number in a circle. Numbers above 50, which have no circled character, are written
    as plain digits.
    """
    for first, last, start in ((1, 20, 0x2460), (21, 35, 0x3251), (36, 50, 0x32B1)):
        if first <= number <= last:
            return chr(start + number - first)
    return str(number)


# -- handlers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextParts:
    """The messages of a Request, in order.

    Attributes:
        before: the messages in the context or, in a run, the ones before the run's calls.
        calls: the messages about the run's calls, of which there can be thousands.
        after: the messages after the calls.
    """

    before: Sequence[Message]
    calls: Sequence[Message] = ()
    after: Sequence[Message] = ()

    def merged(self) -> list[Message]:
        """Return all messages, with data, input and state merged; see `merge_messages`."""
        before = merge_messages(self.before)
        others = merge_messages([*before, *self.after])
        return [*others[: len(before)], *self.calls, *others[len(before) :]]

    def added_by_calls(self) -> dict[Place, list[Path]]:
        """Return the paths in merged data that were added by calls, that is, by data messages after
        the first call.
        """
        # A context written by hand can contain calls among its own messages, so begin at the first
        # of them.
        first = next(
            (number for number, message in enumerate(self.before) if message.type == "call"),
            len(self.before),
        )
        later = list(self.before[first:])
        if self.calls or later:
            later.extend(self.after)

        added = [message for message in later if message.type == "data"]
        if not added:
            return {}

        own = [message for message in self.before[:first] if message.type == "data"]
        own_values = {_place(message): message.value for message in merge_messages(own)}
        paths_by_place: dict[Place, list[Path]] = {}
        for message in added:
            place = _place(message)
            paths = paths_by_place.setdefault(place, [])
            paths.extend(paths_of(message.value, own_values.get(place, MISSING)))

        return paths_by_place


@dataclass(slots=True)
class Draft:
    """A Request while its messages are being handled.

    Attributes:
        messages: the messages in the context.
        texts: the messages that the mind reads, in order: `{"role", "content"}`.
        properties: the properties before `calls` in the schema, such as `thought_process`.
        model: the settings for the model, under its provider's names.
        showing: decides which results are shown in full, and how the others appear.
        reader: the name of the tool for reading shortened values, or None if it is not offered.
        has_shortened: whether a handler has shortened a value that its text refers to.
        place: the number of the message that is being handled.
        called: the number of the first message after the calls that have already been handled.
        tools: the offered tools. A handler can remove, replace (with `dataclasses.replace`) or add
            tools. A tool without code is latent.
        output_schema: the JSON Schema of the output, or None for text. In a run of a plan, which
            does not ask a mind, `tools` and `output_schema` have no effect.
    """

    messages: list[Message]
    texts: list[JSONObject] = field(default_factory=list[JSONObject])
    properties: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    model: JSONObject = field(default_factory=dict[str, JSON])
    tools: list[Tool] = field(default_factory=list[Tool])
    output_schema: JSONObject | None = None
    showing: Showing = field(default_factory=lambda: Showing((), {}, TO_MINDS))
    reader: str | None = None
    has_shortened: bool = False
    place: int = 0
    called: int = 0

    @property
    def is_shortened(self) -> bool:
        """True if at least one value is not shown in full to the mind."""
        return self.showing.is_shortened or self.has_shortened

    @property
    def how_to_read(self) -> str:
        """The end of a sentence that says how to read shortened values."""
        reads = "" if self.reader is None else f"call {self.reader} to see more of one; "
        return f"{reads}a reference passes the whole value on"

    def say(self, role: str, text: str) -> None:
        """Add text for the mind to read."""
        self.texts.append({"role": role, "content": text})


Handler: TypeAlias = Callable[[Message, Draft], None]
"""A function that handles one message. It must be a pure function of its arguments, so that equal
contexts lead to equal Requests.
"""


def _json(value: JSON, line: Callable[[JSON], str] = line_of) -> str:
    """Return the JSON of a value with one line for each member or item.

    `line` writes each member or item on one line, because more lines would cost more tokens.
    """
    if isinstance(value, dict) and value:
        return (
            "{\n"
            + ",\n".join([f" {line_of(key)}: {line(item)}" for key, item in value.items()])
            + "\n}"
        )
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join([f" {line(item)}" for item in value]) + "\n]"
    return line_of(value)


def _title(text: str, message: Message) -> str:
    title = text
    if message.instance:
        title += f" of instance {message.instance}"

    if message.description:
        title += f" ({message.description})"
    return f"{title}:"


def handle_text(message: Message, draft: Draft) -> None:
    """Show text unchanged."""
    text = message.value if isinstance(message.value, str) else _json(message.value)
    draft.say(message.role, text)


def handle_value(message: Message, draft: Draft) -> None:
    """Show the value of data, an input or a state. Results of calls in the value might be
    shortened.
    """
    if message.type == "data":
        reference = f"†data.{message.kind}"
    else:
        reference = f"†{message.type}.KEY"

    if message.type == "state" and message.schema:
        schema = f"\nSchema of the state:\n{_json(message.schema)}"
    else:
        schema = ""

    title = _title(f"{message.type.capitalize()}, read as {reference}", message)
    document = draft.showing.document(_place(message), message.value)
    notes = ""
    if document.shortened:
        count = len(document.shortened)
        subject = "1 value is" if count == 1 else f"{count:,} values are"
        names = named(document.shortened)
        notes += f"\n{subject} shortened here to a preview: {names}; {draft.how_to_read}."

    if document.left_out:
        notes += f"\n{len(document.left_out):,} more are left out here: {named(document.left_out)}."

    members = _json(document.value, draft.showing.line)
    draft.say(message.role, f"{title}\n{members}{notes}{schema}")


def _place(message: Message) -> Place:
    path = ("data", message.kind) if message.type == "data" else (message.type,)
    return (message.instance, path)


def handle_tool(message: Message, draft: Draft) -> None:
    """Handle a tool. Tools are part of the schema, so they add no text."""


def handle_plan(message: Message, draft: Draft) -> None:
    """Show the calls of a plan, which the mind should follow if they still fit, and say which calls
    are already done.
    """
    plan = message.value
    if message.members:
        plan = {key: value for key, value in message.members.items() if key != "standing"}

    lines = [_title("Plan to follow where it fits", message), _json(plan)]
    standing = read_as(_PlanWithStatus, message.value).standing
    if standing is not None:
        lines.append("Where it stands (a call whose output path is written is done):")
        lines.extend(map(_standing_line, standing))

    draft.say(message.role, "\n".join(lines))


def _standing_line(entry: _Standing) -> str:
    where = f" -> {entry.writes}" if entry.writes is not None else ""
    head = f"{entry.place} {entry.tool}{where}"
    if entry.of is None or entry.done is None:
        instance = f" in {entry.instance}" if entry.instance is not None else ""
        status = "done" if entry.is_done else "not done"
        return f"{head}: {status}{instance}"
    if entry.done in (0, entry.of):
        status = "done" if entry.done else "not done"
        return f"{head}: {status} in all {entry.of:,} instances"

    names = ", ".join(entry.not_done)
    more = entry.of - entry.done - len(entry.not_done)
    remainder = f" and {more:,} others" if more else ""
    return f"{head}: done in {entry.done:,} of {entry.of:,} instances, not in {names}{remainder}"


def handle_error(message: Message, draft: Draft) -> None:
    """Show the message of an error, and the call with its place in its Solution and in the run.
    Large parts are replaced with references.
    """
    shortened = shorten_error(message.value)
    entry = object_or_empty(shortened)
    call = entry.get("call")
    place = entry.get("place")
    error = object_or_empty(entry.get("error"))
    if place is not None:
        # Give large parts as references, so that a mind can pass them on without writing them
        # again.
        written = message.members.get("call")
        call = shorten(written, ("data", "error", str(place), "call"))
        draft.has_shortened = draft.has_shortened or call is not written

    text = read_as(_Failure, error).message
    if entry.keys() - {*_OF_ERROR} or text is None:
        draft.say(message.role, f"{_title('This failed', message)}\n{line_of(shortened)}")
        return

    more: JSONObject = {
        key: value for key, value in error.items() if key not in ("kind", "message")
    }
    if "sent" in more and place is not None:
        written = cast("JSONObject", message.members["error"])["sent"]
        more["sent"] = shorten(written, ("data", "error", str(place), "error", "sent"))
        draft.has_shortened = draft.has_shortened or more["sent"] is not written

    where = "" if place is None else f" {place}"
    if "in_solution" in entry:
        where = f" {entry['in_solution']} of its solution, {place} of the run,"

    line = _title("This failed", message)
    if call is not None:
        line += f" call{where} {line_of(call)}:"

    line += f" {text}"
    if more:
        line += f" {line_of(more)}"
    draft.say(message.role, line)


def handle_correction(message: Message, draft: Draft) -> None:
    """Show a person's correction: what was proposed, what ran instead, who made the change, and
    why. A correction can also say what was omitted from a Solution.
    """
    if "left_out" in message.members:
        left_out = message.members["left_out"]
        draft.say(
            message.role,
            f"Left out of your last solution: {left_out} ({message.members.get('reason')}).",
        )
        return
    draft.say(
        message.role,
        f"{_title('A person changed this', message)}\n{_json(shorten_literal(message.value))}",
    )


CALLS: Final = "Calls made so far; read their values at the references"
"""The beginning of the text about a run's calls. Each call has one or more lines, and its first
line begins with its place.
"""


def handle_call(message: Message, draft: Draft) -> None:
    """Show a call and all calls that follow it in one message.

    Each call has a line with its place, tool, status, the reference to its value and, if no state
    contains the value, the value itself. Earlier calls whose values are not shown are only counted.
    """
    if draft.place < draft.called:
        return

    stretch = list(
        takewhile(lambda following: following.type == "call", draft.messages[draft.place :])
    )
    draft.called = draft.place + len(stretch)
    showing = draft.showing
    lines = [_call_line(call, showing) for call in showing.listed(_values_of_calls(stretch))]
    notes = ""
    earlier = showing.unlisted
    if earlier:
        values = [str(call.entry["value"]) for call in earlier if "value" in call.entry]
        where = f", and made {named(values)}" if values else ""
        notes = f" ({len(earlier):,} earlier ones are not listed{where})"

    if showing.is_shortened:
        notes += f". Values marked as shortened show only their beginning; {draft.how_to_read}"

    draft.say(message.role, "\n".join([f"{CALLS}{notes}:", *lines]))


def _values_of_calls(messages: Iterable[Message]) -> list[JSONObject]:
    """Return the values of `call` messages. In a hand-written context, these values can be of any
    type, so only objects count.
    """
    return [message.members for message in messages if message.type == "call" and message.members]


def _call_line(call: MadeCall, showing: Showing) -> str:
    if showing.is_shortened and call.result is not None:
        preview = showing.preview(call.result)
    else:
        preview = None

    in_data = showing.in_data(call)
    if preview is None and in_data is None and call.line is not None:
        return call.line

    line = _head_of_call(call.entry)
    if in_data is not None:
        line += f", which {in_data} has"
    elif preview is not None:
        line += f", shortened: {encode_text(preview)}"
    elif call.result is not None:
        line += f" = {encode_text(call.result.value)}"

    for name, label in (("assumed", "it assumed"), ("unseen", "new to it")):
        for text in _list_in(call.entry, name):
            line += f"\n  {label}: {text}"

    if preview is None and in_data is None:
        call.line = line

    return line


def _head_of_call(entry: JSONObject) -> str:
    """Return the place, tool, status and references of a call."""
    head = f"{entry.get('place')} {entry.get('tool')}"
    if "reads" in entry:
        head += f" {entry['reads']}"

    if "instance" in entry:
        head += f" of {entry['instance']}"

    head += f": {entry.get('status')}"
    if "why" in entry:
        head += f" ({entry['why']})"

    references = [entry.get("value"), *_list_in(entry, "also")]
    places = [str(place) for place in references if place is not None]
    if places:
        head += f", {' and '.join(places)}"
    return head


def _list_in(entry: JSONObject, name: str) -> list[JSON]:
    return list_or_empty(entry.get(name))


BUILT_IN: dict[str, Handler] = {
    "text": handle_text,
    "data": handle_value,
    "input": handle_value,
    "state": handle_value,
    "tool": handle_tool,
    "plan": handle_plan,
    "error": handle_error,
    "correction": handle_correction,
    "call": handle_call,
}


class Handlers:
    """The registry of handlers, keyed by message type or, for users' own types, by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler] = dict(BUILT_IN)

    def register(self, kind: str, handler: Handler) -> None:
        """Register the handler for messages `{"type": kind, ...}`, replacing any earlier one for
        this kind.

        Raises:
            ArgumentError: the kind is not a string, or the handler is not callable.
        """
        _check(kind, handler)
        self._by_kind[kind] = handler

    @property
    def are_built_in(self) -> bool:
        """True if every handler is built in."""
        return self._by_kind == BUILT_IN

    def add_missing(self, handlers: Mapping[str, Handler]) -> None:
        """Register handlers, but keep existing handlers that are not built in."""
        for kind, handler in handlers.items():
            if self._by_kind.get(kind) is BUILT_IN.get(kind):
                self.register(kind, handler)

    def replace(self, before: Mapping[str, Handler], now: Mapping[str, Handler]) -> None:
        """Replace the handlers that tool files previously defined with those that they define
        now.
        """
        for kind, handler in before.items():
            if self._by_kind.get(kind) is not handler:
                continue
            if kind in BUILT_IN:
                self._by_kind[kind] = BUILT_IN[kind]
            else:
                del self._by_kind[kind]

        self.add_missing(now)

    def assemble(
        self,
        context: ContextParts,
        tools: Iterable[Tool] = (),
        output_schema: JSONObject | None = None,
        *,
        shown: Shown = TO_MINDS,
        reader: str | None = READ.name,
        measures: Measures | None = None,
    ) -> Draft:
        """Merge data of the same kind and instance, then pass every message to its handler.

        Args:
            context: the messages.
            tools: the offered tools.
            output_schema: the JSON Schema of the output, or None for text.
            shown: the limits on how much of the results is shown.
            reader: the name of the tool for reading shortened values, or None if it is not offered.
            measures: the measurements from the previous Request.
        """
        messages = context.merged()
        documents = {
            _place(document): document.value
            for document in messages
            if document.type in ("state", "data")
        }
        # Leave out kinds that a user's own handler shows, because it might show them differently or
        # not at all.
        added = {
            place: paths
            for place, paths in context.added_by_calls().items()
            if self._handler_of(kind=place[1][1], type_="data") is handle_value
        }
        showing = Showing(_values_of_calls(messages), documents, shown, measures, added)
        draft = Draft(
            messages, tools=list(tools), output_schema=output_schema, showing=showing, reader=reader
        )
        in_one_text = self._by_kind["call"] is handle_call
        while draft.place < len(messages):
            self._handle(messages[draft.place], draft)
            draft.place += 1
            if in_one_text:
                draft.place = max(draft.place, draft.called)

        return draft

    def _handler_of(self, *, kind: str, type_: str) -> Handler:
        return self._by_kind.get(kind) or self._by_kind[type_]

    def _handle(self, message: Message, draft: Draft) -> None:
        handler = self._handler_of(kind=message.kind, type_=message.type)
        try:
            handler(message, draft)
        except Exception as error:
            raise HandlerError(
                f"the handler of messages of type {message.kind!r} failed: "
                f"{type(error).__name__}: {error}"
            ) from error

    def render(self, context: Iterable[JSON], schema: JSONObject, shown: Shown) -> list[JSONObject]:
        """Recreate the messages of a Request from the data stored in its idea.

        The handlers do not see any tools, so users' own handlers must not depend on tools.

        Args:
            context: the messages, as stored in the idea.
            schema: the schema of the Solution.
            shown: the limits on how much of the results was shown.
        """
        written = encode_text(schema)
        reader = next((name for name in reversed(NAMES) if f'"const":"{name}"' in written), None)
        messages = read_context(context)
        return self.assemble(ContextParts(messages), shown=shown, reader=reader).texts


def _check(kind: object, handler: object) -> None:
    if not isinstance(kind, str):
        raise ArgumentError.of("kind", "text, the type of the messages", kind)
    if not callable(handler) or inspect.iscoroutinefunction(handler):
        raise ArgumentError.of(
            "handler", "a plain function that takes a Message and a Draft", handler
        )


def _name_of_tool(message: Message) -> str:
    return str(message.members.get("name", message.value))


def merge_messages(messages: Iterable[Message]) -> list[Message]:
    """Merge data, input and state messages of the same kind and instance into the first one.

    A later definition of a tool replaces an earlier one.
    """
    merged: list[Message] = []
    places: dict[tuple[str, str, str], int] = {}
    for message in messages:
        if message.type not in ("data", "input", "state", "tool"):
            merged.append(message)
            continue

        name = _name_of_tool(message) if message.type == "tool" else ""
        key = (message.kind, message.instance, name)
        place = places.get(key)
        if place is None:
            places[key] = len(merged)
            merged.append(message)
        elif message.type == "tool":
            merged[place] = message
        else:
            old = merged[place]
            merged[place] = replace(
                old,
                value=merge(old.value, message.value),
                schema=message.schema or old.schema,
                description=message.description or old.description,
            )

    return merged
