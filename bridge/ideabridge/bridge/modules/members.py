"""Compare a server's messages with the SDK's models, and repair them one member at a time.

The SDK refuses a whole result, notification or request if one member violates the protocol.
`MessageRepair` compares each member with its field in the model:

    optional and wrong    the member is left out
    bookkeeping           a missing or wrong member gets its default (`_DEFAULTS`)
    an item of a list     an unusable item is left out, and the others stay
    required otherwise    the value that contains the member cannot be used

For some models, the meaning of members matters. Separate rules for these (see `repairs`) are
applied first.
"""

from __future__ import annotations

import json
import time
import types as python_types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import BaseModel, TypeAdapter

from ideabridge.tools.encoding import kind_of

MAX_REPAIRS: Final = 20_000
"""The maximum number of members in one message that are checked one by one. Further wrong members
are left out.
"""

MAX_SECONDS: Final = 4.0
"""The maximum processor time, in seconds, that is spent on one message. After this time, wrong
members are left out.
"""

MAX_NOTES: Final = 1000
"""The maximum number of notes about one message."""

_STRETCH: Final = 100
"""The number of list items that are checked together. This saves time, because most items are well
formed.
"""

Object: TypeAlias = "dict[str, Any]"

_DEFAULTS: Final[Mapping[str, Any]] = {
    "ttlMs": 0,
    "cacheScope": "private",
    "resultType": "complete",
    "InitializeResult.capabilities": {},
    "InitializeResult.serverInfo": {"name": "", "version": ""},
    "DiscoverResult.capabilities": {},
    "Implementation.name": "",
    "Implementation.version": "",
    "SubscriptionsListenResult._meta": {SUBSCRIPTION_ID_META_KEY: ""},
    "ListToolsResult.tools": [],
    "ListPromptsResult.prompts": [],
    "ListResourcesResult.resources": [],
    "ListResourceTemplatesResult.resourceTemplates": [],
    "CompleteResult.completion": {"values": []},
    "Completion.values": [],
    "Tool.inputSchema": {"type": "object"},
    "PromptMessage.role": "user",
    "LoggingMessageNotificationParams.level": "info",
    "ElicitRequestFormParams.requestedSchema": {"type": "object", "properties": {}},
}
"""Defaults for required members that are missing or wrong, keyed by the member's name, or by its
model and name.
"""

QUESTIONS: Final = frozenset({"inputRequests", "requestState"})
_PAYLOADS: Final = frozenset({"content", "structuredContent", "contents", "messages"})


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a value cannot be used, such as "expected a string, got a number"."""

    why: str


@dataclass(slots=True)
class MessageRepair:
    """The repair of one message.

    Attributes:
        version: the protocol version.
        params: the parameters of the request that the message answers.
        rules: repairs that are applied before the members of a model are checked, keyed by the
            model's name.
        names_items: True if notes refer to list items by name. Names in definitions are not secret,
            but names in a result can be a user's data.
        notes: a note for each member that was repaired, with what the server wrote.
        left: the number of values that can still be checked.
        ends: the thread's processor time, in seconds, at which the repair stops.
    """

    version: str
    params: Object
    rules: Mapping[str, Rule]
    names_items: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    left: int = MAX_REPAIRS
    ends: float = field(default_factory=lambda: time.thread_time() + MAX_SECONDS)

    @property
    def has_left(self) -> bool:
        """Whether more of the message can be checked, within the limits on values and time."""
        return self.left > 0 and time.thread_time() < self.ends

    def note(self, place: str, what: str, value: object = None) -> None:
        """Record a deviation from the protocol and its repair. `value` is what the server wrote."""
        if len(self.notes) >= MAX_NOTES:
            return

        example = value if isinstance(value, str) else ""
        if isinstance(value, dict | list):
            example = json_of(cast("object", value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            example = str(value)

        self.notes.append((f"{place}: {what}", example))

    def label(self, item: object, index: int) -> str:
        """Return the name that notes use for a list item."""
        return label_of(item, index) if self.names_items else str(index)

    def fix(self, value: Any, shape: Shape, place: str) -> Any:
        """Return the value in a form that the models accept, or `Unusable` if it cannot be
        repaired. A value that they already accept is returned as is.
        """
        if shape.accepts(value):
            return value
        if not self.has_left:
            return Unusable("the message has too many oddities")
        self.left -= 1

        before = value
        if value == [] and shape.expected == "an object":
            # This is how PHP writes an empty object.
            value = dict[str, Any]()
            self.note(place, "expected an object, got []; taken as {}")

        rule = self.rules.get(shape.name)
        if rule is not None:
            value = rule(self, value, shape, place)

        if isinstance(value, Unusable) or (value is not before and shape.accepts(value)):
            return value
        return self._fix_parts(value, shape, place)

    def _fix_parts(self, value: Any, shape: Shape, place: str) -> Any:
        """Return the value with its members or items repaired."""
        match shape.kind:
            case "object":
                return self._object(value, shape, place)
            case "list":
                return self._list(value, shape, place)
            case "mapping":
                return self._mapping(value, shape, place)
            case "union":
                return self._union(value, shape, place)
            case "leaf":
                return Unusable(f"expected {shape.expected}, got {got(value)}")

    def _object(self, value: Any, shape: Shape, place: str) -> Any:
        if not isinstance(value, dict):
            return Unusable(f"expected an object, got {got(value)}")

        before = cast("Object", value)
        fixed = dict(before)
        for member in members_of(cast("type[BaseModel]", shape.model)):
            name = member.name
            where = f"{place}.{name}" if place else name
            if name in before:
                part = self.fix(before[name], member.shape, where)
                if not isinstance(part, Unusable):
                    fixed[name] = part
                    continue
                reason = part.why
            elif member.is_required:
                reason = "is missing"
            else:
                continue

            if name in QUESTIONS and name in before:
                # Leave nothing out here, because a server that asks questions must get back all the
                # answers and its own state.
                return Unusable(f"{name}: {reason}")

            if member.has_default:
                fixed[name] = member.default
                self.note(where, f"{reason}; taken as {json_of(member.default)}", before.get(name))
            elif member.is_required:
                return Unusable(f"`{name}` {reason}" if name not in before else f"{name}: {reason}")
            else:
                del fixed[name]
                self.note(where, f"{reason}; left out", before.get(name))

        if shape.accepts(fixed):
            return fixed
        return Unusable(f"expected {shape.expected}")

    def _list(self, value: Any, shape: Shape, place: str) -> Any:
        if not isinstance(value, list):
            return Unusable(f"expected a list, got {got(value)}")

        item_shape = cast("Shape", shape.item)
        sent = cast("list[Any]", value)
        items: list[Any] = []
        well_formed = 0
        for index, item in enumerate(sent):
            if index % _STRETCH == 0 and shape.accepts(sent[index : index + _STRETCH]):
                well_formed = index + _STRETCH

            if index < well_formed:
                items.append(item)
                continue
            if not self.has_left:
                self.note(
                    f"{place}[{index}]",
                    "the message has too many oddities; this item and those after it are left out",
                )
                break

            where = f"{place}[{self.label(item, index)}]"
            fixed = self.fix(item, item_shape, where)
            if isinstance(fixed, Unusable) and place.endswith("params.messages"):
                # A question to a model must keep all its messages or be dropped entirely.
                return Unusable(f"messages[{index}]: {fixed.why}")

            if isinstance(fixed, Unusable):
                self.note(where, f"{fixed.why}; left out", item)
            else:
                items.append(fixed)

        if shape.accepts(items):
            return items
        return Unusable(f"expected {shape.expected}")

    def _mapping(self, value: Any, shape: Shape, place: str) -> Any:
        if not isinstance(value, dict):
            return Unusable(f"expected an object, got {got(value)}")

        item_shape = cast("Shape", shape.item)
        items: Object = {}
        for index, (name, item) in enumerate(cast("Object", value).items()):
            where = f"{place}[{self.label({'name': name}, index)}]"
            fixed = self.fix(item, item_shape, where)
            if not isinstance(fixed, Unusable):
                items[name] = fixed
            elif place == "inputRequests":
                return Unusable(f"{name}: {fixed.why}")
            else:
                self.note(where, f"{fixed.why}; left out", item)

        return items

    def _union(self, value: Any, shape: Shape, place: str) -> Any:
        """Repair a value with the model indicated by its `type`, `method`, `mode` or members.

        If several models are possible, use the repair with the fewest notes.
        """
        if isinstance(value, list):
            lists = [arm for arm in shape.arms if arm.kind == "list"]
            if lists:
                return self.fix(cast("Any", value), lists[0], place)
            return Unusable(f"expected {shape.expected}")

        if not isinstance(value, dict):
            return Unusable(f"expected {shape.expected}, got {got(value)}")

        members = cast("Object", value)
        repairs: list[tuple[int, Any, list[tuple[str, str]]]] = []
        for arm in shape.arms:
            if arm.kind != "object" or not arm.is_named_by(members):
                continue

            notes = self.notes
            self.notes = []
            fixed = self.fix(members, arm, place)
            arm_notes = self.notes
            self.notes = notes
            cost = len(arm_notes) + 1000 * isinstance(fixed, Unusable)
            repairs.append((cost, fixed, arm_notes))

        if not repairs:
            return Unusable(f"expected {shape.expected}")

        _, fixed, arm_notes = min(repairs, key=lambda repair: repair[0])
        self.notes += arm_notes
        return fixed


Rule: TypeAlias = "Callable[[MessageRepair, Any, Shape, str], Any]"
"""Called with a message's repair, a value, its shape and its place. Returns the value, a repaired
value, or `Unusable`.
"""


# -- the shapes of the models ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a model, under its name in messages."""

    name: str
    shape: Shape
    is_required: bool
    has_default: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The form that a model requires of a value.

    Attributes:
        name: the name of the model, or "Content" for content blocks.
        expected: a description of the expected form.
        item: the shape of the items in a list or mapping.
        arms: the shapes of a union's alternatives.
    """

    kind: Literal["object", "list", "mapping", "union", "leaf"]
    name: str
    expected: str
    adapter: TypeAdapter[Any]
    model: type[BaseModel] | None = None
    item: Shape | None = None
    arms: tuple[Shape, ...] = ()

    def accepts(self, value: Any) -> bool:
        """Return whether the SDK accepts the value."""
        try:
            self.adapter.validate_python(value, by_name=False)
        except (ValueError, RecursionError):
            return False
        return True

    def is_named_by(self, members: Object) -> bool:
        """Return False if a member that distinguishes models (`type`, `method`, ...) says that the
        value belongs to another model.
        """
        if "Result" in self.name and asks(members) != (self.name == "InputRequiredResult"):
            return False

        for name, values in _names_of(cast("type[BaseModel]", self.model)).items():
            value = members.get(name)
            if isinstance(value, str) and value not in values:
                return False

        return True


NONE: Final = type(None)


@cache
def shape_of_type(annotation: Any) -> Shape:
    """Return the shape that corresponds to a type annotation in the models."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    if get_origin(annotation) is Annotated:
        inner = get_args(annotation)[0]
    else:
        inner = annotation

    origin = get_origin(inner)
    arguments = get_args(inner)
    if origin in (Union, python_types.UnionType):
        parts = [part for part in arguments if part is not NONE]
        if len(parts) == 1:
            only = shape_of_type(parts[0])
            return Shape(
                only.kind, only.name, only.expected, adapter, only.model, only.item, only.arms
            )

        arms = tuple(shape_of_type(part) for part in parts)
        names = {arm.name for arm in arms}
        if all(arm.kind == "leaf" for arm in arms):
            return Shape(
                "leaf", "", " or ".join(dict.fromkeys(arm.expected for arm in arms)), adapter
            )

        name = next((union for first, union in _UNIONS.items() if first in names), "")
        return Shape(
            "union", name, "an object of a kind that the protocol defines", adapter, arms=arms
        )

    if origin is list:
        item = shape_of_type(arguments[0])
        return Shape("list", f"list of {item.name}", "a list", adapter, item=item)
    if origin is dict and arguments[1] is not Any:
        return Shape("mapping", "", "an object", adapter, item=shape_of_type(arguments[1]))
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return Shape("object", inner.__name__, "an object", adapter, model=inner)
    return Shape("leaf", "", _expected(inner), adapter)


_UNIONS: Final = {"TextContent": "Content", "TextResourceContents": "ResourceContents"}
"""The names of unions, keyed by the name of one model in the union."""

_WORDS: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


def _expected(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(json_of(value) for value in get_args(annotation))
    return _WORDS.get(annotation, "an object")


@cache
def members_of(model: type[BaseModel]) -> tuple[Member, ...]:
    """Return the fields of a model."""
    members: list[Member] = []
    # Resolve the names in annotations, because some blocks refer to the union of all blocks, which
    # is defined after them.
    annotations = get_type_hints(model)
    for name, about in model.model_fields.items():
        alias = about.alias or name
        if isinstance(about.annotation, ForwardRef):
            annotation = annotations[name]
        else:
            annotation = about.annotation

        if about.metadata:
            annotation = Annotated[annotation, *about.metadata]

        default = _DEFAULTS.get(f"{model.__name__}.{alias}", _DEFAULTS.get(alias, NONE))
        is_required = about.is_required()
        has_default = is_required and default is not NONE
        members.append(Member(alias, shape_of_type(annotation), is_required, has_default, default))

    return tuple(members)


@cache
def _names_of(model: type[BaseModel]) -> dict[str, tuple[Any, ...]]:
    """Return the members of a model that allow only certain strings, such as `type` of a block."""
    names: dict[str, tuple[Any, ...]] = {}
    for name, about in model.model_fields.items():
        if name in ("type", "method", "mode") and get_origin(about.annotation) is Literal:
            names[name] = get_args(about.annotation)
    return names


def json_of(value: object) -> str:
    """Encode a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)


def got(value: object) -> str:
    """Describe the kind of a value, for a note. Notes quote the value itself only as an example."""
    return "nothing" if value is None else kind_of(value)


def asks(result: Object) -> bool:
    """Return whether a result contains questions."""
    if "resultType" in result:
        return result["resultType"] == "input_required"
    return not QUESTIONS.isdisjoint(result) and _PAYLOADS.isdisjoint(result)


def object_of(value: object) -> Object | None:
    """Return the value if it is an object, otherwise None."""
    return cast("Object", value) if isinstance(value, dict) else None


def label_of(item: object, index: int) -> str:
    """Return the label of a list item: its name or its index."""
    if isinstance(item, dict):
        name = cast("Object", item).get("name")
    else:
        name = None
    return repr(name[:60]) if isinstance(name, str) else str(index)
