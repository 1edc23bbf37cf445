"""Find the parts of an idea that come from results of its run, and remove them.

The context of the first Request comes from its author. Each later context also contains what was
added since then: the state that calls wrote, the results of calls, the output of programs, errors,
corrections, and messages that activities returned. Someone who exports or shares an idea does not
intend to disclose this material, which can be the content of private files and mailboxes. It is
left out unless a person asks for it, and the document lists what is missing.

The Solution stays, because it is the essence of the idea. However, a mind that has seen results
copies from them. The output and the free text of the Solution are therefore left out. So is each
literal of its calls that also occurs in an omitted value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from ideabridge.bridge.context.errors import MessageError, ReferenceSyntaxError
from ideabridge.bridge.context.messages import Message, read_message
from ideabridge.bridge.context.references import (
    Path,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.bridge.store.idea import Idea, StoredIdea
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode,
    encode_text,
    object_or_empty,
    plain_text,
)
from ideabridge.tools.json_parts import json_type, parts_of, values_in
from ideabridge.tools.tool import META_PROPERTIES
from ideabridge.tools.typed import read_as

LEFT_OUT: Final = "(left out)"
"""The text that replaces a literal that was copied from a result."""

LEFT_OUT_NUMBER: Final = "†data.left_out"
"""The reference that replaces a number that was copied from a result. This reference never has a
value.
"""

_COPIED: Final = 4
"""Strings with fewer characters and numbers with fewer digits do not count as copies, because too
many of them are equal by chance.
"""

NAMING: Final = frozenset(META_PROPERTIES) - {"_each", "_output"}
"""The members of a call that name tools, places and other calls."""

_DERIVED: Final = ("result", "preview", "assumed", "unseen")
"""The members of a `call` message that contain parts of a result."""


def type_of(value: JSON) -> str:
    """Describe the type of a value, with the number of its parts: `text`, `array of 3`."""
    match json_type(value):
        case "string":
            return "text"
        case "integer":
            return "number"
        case "array" | "object" as kind:
            return f"{kind} of {len([*parts_of(value)])}"
        case kind:
            return kind


@dataclass(slots=True)
class _Left:
    """Collects the parts that are left out: the list for the document, and their values."""

    listed: list[JSON] = field(default_factory=list[JSON])
    values: list[JSON] = field(default_factory=list[JSON])
    _by_reference: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])

    def value(self, reference: str, value: JSON) -> None:
        """Leave out a value. `reference` refers to this value, or to a value that contains it."""
        size = len(encode(value))
        before = self._by_reference.get(reference)
        self.values.append(value)
        if before is None:
            entry: JSONObject = {
                "reference": reference,
                "type": type_of(value),
                "bytes": size,
            }
            self._by_reference[reference] = entry
            self.listed.append(entry)
        else:
            before |= {"type": "several values", "bytes": size + cast("int", before["bytes"])}

    def message(self, number: int, message: Message) -> None:
        """Leave out a whole message of the context. `number` counts from 0."""
        size = len(encode(message.to_json()))
        self.listed.append({"message": number, "type": message.type, "bytes": size})
        self.values.append(message.value)


def without_results(idea: Idea, began_with: Sequence[JSON] | None) -> tuple[Idea, list[JSON]]:
    """Return the idea without the parts that come from results, and a list of these parts.

    Args:
        idea: the idea.
        began_with: the context with which the idea's run began, or None if the run is not in this
            store. In that case, everything before the first `call` message counts as the author's,
            except the parts of states that calls refer to.

    Returns:
        The idea and the list, or the same idea and [] if nothing in it comes from results. Each
        entry of the list is `{"reference", "type", "bytes"}` or, for a message that no reference
        reads, `{"message": number in the context, "type", "bytes"}`.
    """
    left = _Left()
    context = list(_OwnContext(began_with, idea.context, left).messages())
    if not left.listed:
        return idea, []
    solution = _own_solution(idea, context, left)
    return Idea(context, idea.schema, solution, idea.shown), left.listed


def copy_without_results(stored: StoredIdea, began_with: Sequence[JSON] | None) -> StoredIdea:
    """Return a stored idea without the parts that come from results (see `without_results`), or the
    same stored idea if there are none.

    A changed copy is a different idea with its own id. Its metadata names the original and the
    parts that were left out.
    """
    idea, left_out = without_results(stored.idea, began_with)
    if not left_out:
        return stored
    original = stored.meta.original or stored.id
    meta = replace(
        stored.meta, original=original, left_out=(*stored.meta.left_out, *left_out), written=None
    )
    return replace(stored, idea=idea, meta=meta)


class _OwnContext:
    """Filters results out of the messages in a context."""

    def __init__(
        self, began_with: Sequence[JSON] | None, context: Sequence[JSON], left: _Left
    ) -> None:
        self._context = context
        self._left = left
        self._knows_start = began_with is not None
        self._own: set[bytes] = set()
        self._states: dict[str, JSONObject] = {}
        for raw in began_with or ():
            message = read_message(raw)
            self._own.add(encode(message.to_json()))
            if message.type == "state":
                before = self._states.get(message.instance, {})
                self._states[message.instance] = {**before, **message.members}

        self._written = list(_written(context))

    def messages(self) -> Iterator[JSON]:
        """Yield the messages that remain."""
        has_called = False
        for number, raw in enumerate(self._context):
            if encode(raw) in self._own:
                yield raw
                continue

            is_authors = not self._knows_start and not has_called
            try:
                message = read_message(raw)
            except MessageError:
                # An imported context can contain messages of unknown types.
                message = Message("user", "text", raw, "text")
                remains = raw if is_authors else MISSING
            else:
                remains = self._remains(message, raw, is_authors=is_authors)

            has_called = has_called or message.type == "call"
            if isinstance(remains, Missing):
                self._left.message(number, message)
            else:
                yield remains

    def _remains(self, message: Message, raw: JSON, *, is_authors: bool) -> JSON | Missing:
        """Return what remains of a message, or MISSING if nothing remains."""
        match message.type:
            case "call" if message.members:
                return self._call(message, message.members)
            case "state":
                state = self._state(message.instance, message.members)
                return replace(message, value=state).to_json()
            case "tool":
                return raw
            case "plan" if message.members and self._knows_start:
                return raw if self._is_own_plan(message, message.members) else MISSING
            case _:
                return raw if is_authors else MISSING

    def _is_own_plan(self, message: Message, plan: JSONObject) -> bool:
        """Return whether the run began with a plan, given as an object or as a list of calls."""
        # Ignore `standing`, which the loop updates at each step to say which calls of the plan are
        # done.
        written: JSONObject = {key: value for key, value in plan.items() if key != "standing"}
        forms = (written, written.get("calls"))
        return any(encode(replace(message, value=form).to_json()) in self._own for form in forms)

    def _call(self, message: Message, entry: JSONObject) -> JSON:
        reference = str(entry.get("value", f"†results.{entry.get('place')}"))
        for name in _DERIVED:
            if name in entry:
                self._left.value(reference, entry[name])
        own: JSONObject = {name: value for name, value in entry.items() if name not in _DERIVED}
        return replace(message, value=own).to_json()

    def _state(self, instance: str, state: JSONObject) -> JSONObject:
        if self._knows_start:
            return self._same(state, self._states.get(instance, {}), instance, ("state",))

        own = state
        for named, path in self._written:
            if named != instance or path[0] != "state":
                continue

            value = read(own, path[1:])
            if isinstance(value, Missing):
                continue

            self._left.value(format_reference(path, instance or None), value)
            own = cast("JSONObject", _without(own, path[1:]))

        return own

    def _same(self, now: JSONObject, before: JSONObject, instance: str, path: Path) -> JSONObject:
        """Return the members of a state that have not changed since the start."""
        own: JSONObject = {}
        for key, value in now.items():
            earlier = before.get(key, MISSING)
            if isinstance(value, dict) and isinstance(earlier, dict):
                own[key] = self._same(value, earlier, instance, (*path, key))
            elif not isinstance(earlier, Missing) and encode(value) == encode(earlier):
                own[key] = value
            else:
                self._left.value(self._reference_to((*path, key), instance), value)

        return own

    def _reference_to(self, path: Path, instance: str) -> str:
        """Return the reference to a value.

        For a value inside a result that a call wrote, this is the reference to the whole result,
        because the keys inside it are part of the result.
        """
        while len(path) > 1 and not self._leads_to_written(path, instance):
            path = path[:-1]
        return format_reference(path, instance or None)

    def _leads_to_written(self, path: Path, instance: str) -> bool:
        """Return whether a path is, or contains, a place that a call wrote to."""
        depth = len(path)
        for written_instance, written_path in self._written:
            if written_instance == instance and written_path[:depth] == path:
                return True

        return False


@dataclass(frozen=True, slots=True)
class _CallEntry:
    """Where a call wrote its result, as references."""

    value: str | None = None
    also: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All places where the call wrote its result."""
        return self.also if self.value is None else (self.value, *self.also)


@dataclass(frozen=True, slots=True)
class _CallMessage:
    type: str = ""
    call: _CallEntry = _CallEntry()


def _written(context: Sequence[JSON]) -> Iterator[tuple[str, Path]]:
    """Yield `(instance or "", path)` for each place that the calls in a context wrote to."""
    for raw in context:
        message = read_as(_CallMessage, raw)
        if message.type != "call":
            continue

        for text in message.call.places:
            try:
                operands = [*parse_reference(text).operands()]
            except ReferenceSyntaxError:
                continue

            if operands:
                yield operands[0].instance or "", operands[0].full


def _without(value: JSON, path: Path) -> JSON:
    """Return a copy of `value` without the part at `path`, which must exist. In a list, null
    replaces it.
    """
    if not path:
        return {}

    key = path[0]
    rest = path[1:]
    if isinstance(value, list):
        place = int(key)
        items = list(value)
        items[place] = _without(value[place], rest) if rest else None
        return items

    members = dict(cast("JSONObject", value))
    if rest:
        members[key] = _without(members[key], rest)
    else:
        del members[key]

    return members


# -- Solutions -------------------------------------------------------------------------------------


def _own_solution(idea: Idea, context: list[JSON], left: _Left) -> JSON:
    """Return an idea's Solution without the parts that the mind copied from results."""
    solution = idea.solution
    if not isinstance(solution, dict):
        left.value("solution", solution)
        return None

    copies = Copies(left.values, [context, idea.schema])
    own: JSONObject = {}
    for name, value in solution.items():
        if name == "calls":
            if isinstance(value, list):
                own[name] = [copies.call(call) for call in value]
            else:
                own[name] = copies.scrubbed(value)
            if own[name] != value:
                left.listed.append(
                    {"reference": "solution.calls", "type": "literals", "bytes": len(encode(value))}
                )
        elif name == "output":
            own[name] = value if _only_refers(value) else None
            if own[name] is not value:
                left.value("solution.output", value)
        elif name == "program" and copies.scrubbed(value) == value:
            own[name] = value
        else:
            left.value(f"solution.{name}", value)
            own[name] = LEFT_OUT

    return own


def _only_refers(value: JSON) -> bool:
    """Return whether a value contains only references, null, true and false."""
    if isinstance(value, dict):
        return all(map(_only_refers, value.values()))
    if isinstance(value, list):
        return all(map(_only_refers, value))
    return (
        value is None or isinstance(value, bool) or (isinstance(value, str) and is_reference(value))
    )


class Copies:
    """Finds literals that were copied from results.

    Args:
        results: the values that are left out.
        public: values that everybody may see. A literal that also occurs in them is not secret.
    """

    def __init__(self, results: Sequence[JSON], public: Sequence[JSON]) -> None:
        texts = [text for text in _texts([*results]) if len(text) >= _COPIED]
        self._texts = list(dict.fromkeys(texts))
        self._whole = "\n".join(self._texts)
        self._public = "\n".join(_texts([*public]))

    def call(self, call: JSON) -> JSON:
        """Return a call without copied literals, keeping the members that name tools, places and
        calls.
        """
        if not isinstance(call, dict):
            return self.scrubbed(call)
        named: JSONObject = {key: value for key, value in call.items() if key in NAMING}
        scrubbed = self.scrubbed({key: value for key, value in call.items() if key not in named})
        written = iter(cast("JSONObject", scrubbed).items())
        # Keep the members in the order of the call.
        return dict((key, named[key]) if key in named else next(written) for key in call)

    def scrubbed(self, value: JSON) -> JSON:
        """Return a value in which `LEFT_OUT` replaces each copied string and member name, and
        `LEFT_OUT_NUMBER` each copied number.
        """
        if isinstance(value, dict):
            members: JSONObject = {}
            for key, item in value.items():
                name = self.scrubbed(key)
                shown = key if name == key else f"{LEFT_OUT} {len(members)}"
                members[shown] = self.scrubbed(item)
            return members

        if isinstance(value, list):
            return [self.scrubbed(item) for item in value]
        if not self._is_copied(value):
            return value
        # Replace a number with a reference, because a schema that expects a number also allows
        # references.
        return LEFT_OUT if isinstance(value, str) else LEFT_OUT_NUMBER

    def _is_copied(self, value: JSON) -> bool:
        if value is None or isinstance(value, bool):
            return False

        text = plain_text(value)
        if (
            len(text) < _COPIED
            or text in self._public
            or (isinstance(value, str) and is_reference(value))
        ):
            return False

        if text in self._whole:
            return True
        # A literal can also contain a result in the middle of other text.
        return any(copied in text and copied not in self._public for copied in self._texts)


def _texts(value: JSON) -> Iterator[str]:
    """Yield every string, number and key in a value."""
    for item in values_in(value):
        match json_type(item):
            case "object":
                yield from object_or_empty(item)
            case "string":
                yield str(item)
            case "integer" | "number":
                yield encode_text(item)
            case _:
                continue
