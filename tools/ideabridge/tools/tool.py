"""Tool: the interface of a function, described by JSON Schemas; Activity: the code behind it.

A call refers to one tool: of one module, under one name, with one definition. The *essence* of a definition is what a
call relies on: module, name, schemas and behaviour hints. If the essence changes, the tool is another one, and a call
that was approved before is not run. The rest is prose, which may change and differ between machines: descriptions,
titles, and keywords of schemas that do not constrain values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, cast
from urllib.parse import unquote

from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError, ToolDefinitionError
from ideabridge.tools.keywords import REFERRING, Place, map_schemas, show, show_path

ANNOTATION_KEYWORDS: Final = frozenset(
    {"title", "description", "examples", "default", "$comment", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords that describe values without constraining them, as `x-...` do. So a changed `default` is reported and does
not block: it says what the server does without a value, which the server may change at any time."""

_SETS: Final = frozenset({"required", "enum", "type"})
"""Keywords whose array is a set: some servers list it in a different order after each start."""

MAX_DIFFERENCES: Final = 12
"""Lines about the differences of two definitions."""


class ToolChangedError(IdeabridgeError):
    """The definition of a tool has changed since the call was written. The message shows the difference."""

    outcome = "not_run"


def essence_of(
    module: str, name: str, parameters: JSONObject, output: JSONObject | None, hints: JSONObject
) -> JSONObject:
    """What a call of a tool relies on, with sorted keys: `{"module", "name", HINT..., "parameters", "output"}`.

    Args:
        module: its module; "" for a tool of this process.
        name: its name at the module.
        parameters: JSON Schema of its parameters.
        output: JSON Schema of its result, as declared; None if it declares none.
        hints: the declared behaviour hints, by their MCP names.
    """
    schemas: JSONObject = {"parameters": constraints_of(parameters)}
    if output is not None:
        schemas["output"] = constraints_of(output)
    return cast("JSONObject", in_one_order({"module": module, "name": name, **hints, **schemas}))


def digest(value: JSON) -> str:
    """SHA-256 of a value, independent of the order of keys."""
    return content_hash(in_one_order(value))


def in_one_order(value: JSON) -> JSON:
    """A copy with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: in_one_order(value[key]) for key in sorted(value)}
    return [in_one_order(item) for item in value] if isinstance(value, list) else value


def constraints_of(schema: JSONObject) -> JSON:
    """A schema without its annotation keywords. A schema with a reference into one of them is returned whole."""
    return schema if _refers_to_annotations(schema) else map_schemas(schema, _constraints)


def _constraints(schema: JSONObject) -> JSONObject:
    kept: JSONObject = {}
    for keyword, value in schema.items():
        if keyword in ANNOTATION_KEYWORDS or keyword.startswith("x-"):
            continue
        is_set = keyword in _SETS and isinstance(value, list)
        kept[keyword] = sorted(cast("list[JSON]", value), key=digest) if is_set else value
    return kept


def _refers_to_annotations(schema: JSONObject) -> bool:
    stack: list[JSON] = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for word in REFERRING:
                target = item.get(word)
                parts = unquote(target).split("/") if isinstance(target, str) else []
                if any(part in ANNOTATION_KEYWORDS or part.startswith("x-") for part in parts):
                    return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def differences(then: JSON, now: JSON) -> list[str]:
    """How two essences differ, a line for each part: `readOnlyHint: was true, now absent`; at most 12 lines."""
    found: list[str] = []
    _compare(then, now, (), found)
    if len(found) > MAX_DIFFERENCES:
        found[MAX_DIFFERENCES - 1 :] = [f"and {len(found) - MAX_DIFFERENCES + 1} more"]
    return found


class _Absent:
    """Marks a part that only the other definition has."""


_ABSENT: Final = _Absent()


def _compare(then: JSON | _Absent, now: JSON | _Absent, place: Place, found: list[str]) -> None:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            _compare(then.get(key, _ABSENT), now.get(key, _ABSENT), (*place, key), found)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (before, after) in enumerate(zip(then, now, strict=True)):
            _compare(before, after, (*place, index), found)
    elif isinstance(then, _Absent) or isinstance(now, _Absent) or digest(then) != digest(now):
        found.append(f"{show_path(place)}: was {_shown(then)}, now {_shown(now)}")


def _shown(value: JSON | _Absent) -> str:
    return "absent" if isinstance(value, _Absent) else show(value)


META_PROPERTIES: Final = (
    "_tool",
    "_module",
    "_activity",
    "_instance",
    "_imports",
    "_output",
    "_outputPath",
    "_outputMethod",
    "_each",
    "_after",
    "_id",
)
"""The reserved names in a Call. Any other name with an underscore is an ordinary parameter."""

ANONYMOUS: Final = "anonymous"
"""The `_module` of a clean room."""

EVERY_MODULE: Final = "*"
"""In `Tool.reaches`: every module."""

IDEA: Final = "idea:"
"""Prefix of the `_module` of an idea: `idea:weekly_report`, `idea:weekly_report@3`."""

QUERY_FORMAT: Final = "jmespath"
"""The `format` of a parameter that is a JMESPath expression. Constant expressions are checked before anything runs."""

ToolKey = tuple[str | None, str]
"""(module, name); the module of a tool of this process is None."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a tool declares about its behaviour (MCP `ToolAnnotations`). `None`: nothing.

    They are hints of the author of the tool; approval policies decide which of them to trust.
    """

    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def to_json(self) -> JSONObject:
        """The declared annotations, by their MCP names."""
        pairs: list[tuple[str, JSON]] = [
            ("title", self.title),
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ]
        return {name: value for name, value in pairs if value is not None}

    @classmethod
    def from_json(cls, value: JSONObject) -> Annotations:
        """The annotations from their MCP names; values of a wrong type count as not declared."""

        def flag(name: str) -> bool | None:
            found = value.get(name)
            return found if isinstance(found, bool) else None

        title = value.get("title")
        return cls(
            title if isinstance(title, str) else None,
            flag("readOnlyHint"),
            flag("destructiveHint"),
            flag("idempotentHint"),
            flag("openWorldHint"),
        )

    @property
    def declares_effects(self) -> bool:
        """Whether the tool *declares* that it is not read-only."""
        return self.read_only is False or (self.read_only is None and self.destructive is True)

    @property
    def repeatable(self) -> bool:
        """Whether a call that was in flight at a crash may be run again."""
        return self.read_only is True or self.idempotent is True


@dataclass(frozen=True, slots=True)
class Tool:
    """An interface: a name, a JSON Schema of the parameters, and one of the result.

    Attributes:
        name: the name in `_tool`.
        description: what it does, for a mind and for people.
        parameters: JSON Schema (2020-12) of an object; no property is a meta-property.
        output: JSON Schema of the result; None if the tool declares none.
        annotations: see `Annotations`.
        module: the configured server or idea it belongs to (`_module`); None for a tool of this process.
        remote_name: its name at the module if that differs, because a colliding name was prefixed.
        renamed: the module's names of parameters by the names here, for parameters named like meta-properties.
        activity: name of the Activity that runs it; None: the one of the same name, or latent.
        clean: its calls are answered in a clean room, by its code or a mind (see `with_fixed`).
        reaches: the modules that a call may touch, if not only its own module: "" for own tools, `EVERY_MODULE`, or
            none at all. It determines the order of effects and is not part of the published definition.
        wrapper: the output schema as the module declares it, if that is `{"result": output}` only because the protocol
            requires an object: the value of a call is the value of `result`. None: the schema is no wrapper.
    """

    name: str
    description: str = ""
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    output: JSONObject | None = None
    annotations: Annotations = Annotations()
    module: str | None = None
    remote_name: str | None = None
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    activity: str | None = None
    clean: bool = False
    reaches: tuple[str, ...] | None = field(default=None, compare=False)
    wrapper: JSONObject | None = None
    _digests: list[str] = field(default_factory=list[str], init=False, compare=False, repr=False)

    @property
    def reached(self) -> tuple[str, ...]:
        """The modules that a call may touch; "" for own tools."""
        if self.reaches is not None:
            return self.reaches
        return (EVERY_MODULE,) if self.in_room else (self.module or "",)

    @property
    def in_room(self) -> bool:
        """Whether a call opens a room: a run of its own, for an idea or an anonymous task."""
        return self.module is not None and (self.module == ANONYMOUS or self.module.startswith(IDEA))

    @property
    def key(self) -> ToolKey:
        """(module, name)."""
        return (self.module, self.name)

    @property
    def origin(self) -> ToolKey:
        """(module, its name at the module). For an idea, without the version."""
        return (self.module, self.name if self.in_room or self.remote_name is None else self.remote_name)

    @property
    def essence(self) -> JSONObject:
        """What a call relies on; see `essence_of`. The hints of an idea are not included: they are those of its calls,
        which refer to tools themselves.
        """
        hints: JSONObject = {} if self.in_room else dataclasses.replace(self.annotations, title=None).to_json()
        return essence_of(self.module or "", self.origin[1], self.parameters, self.wrapper or self.output, hints)

    @property
    def digest(self) -> str:
        """SHA-256 of its essence. Computed once."""
        return self._both_digests()[0]

    @property
    def prose_digest(self) -> str:
        """SHA-256 of the whole definition, prose included. Computed once."""
        return self._both_digests()[1]

    def _both_digests(self) -> list[str]:
        if not self._digests:
            essence = self.essence
            whole: JSONObject = {"description": self.description, "title": self.annotations.title}
            if self.in_room:
                whole["version"] = self.remote_name
            whole |= {"essence": essence, "parameters": self.parameters, "output": self.wrapper or self.output}
            self._digests.extend((digest(essence), digest(whole)))
        return self._digests

    def expect_same(self, then: Tool) -> None:
        """Check that the definition is the same as `then`.

        Raises:
            ToolChangedError: it differs; the message shows the difference.
        """
        if self is not then and self.digest != then.digest:
            lines = "; ".join(differences(then.essence, self.essence))
            raise ToolChangedError(f"{self.label} has changed since the run began, and was not called: {lines}")

    @property
    def label(self) -> str:
        """`module.name`, with its name at the module; for a tool of this process, its name."""
        module, name = self.origin
        return f"{module}.{name}" if module is not None and not self.in_room else str(module or name)

    def to_json(self) -> JSONObject:
        """The definition as JSON, for fingerprints, ideas and `search_tools`."""
        result: JSONObject = {"name": self.name}
        if self.module is not None:
            result["module"] = self.module
        result["description"] = self.description
        result["parameters"] = self.parameters
        if self.output is not None:
            result["output"] = self.output
        annotations = self.annotations.to_json()
        if annotations:
            result["annotations"] = annotations
        if self.remote_name is not None:
            result["remoteName"] = self.remote_name
        if self.renamed:
            result["renamed"] = dict[str, JSON](self.renamed)
        if self.activity is not None:
            result["activity"] = self.activity
        if self.clean:
            result["clean"] = True
        if self.wrapper is not None:
            result["wrapper"] = self.wrapper
        return result

    @classmethod
    def from_json(cls, value: JSONObject) -> Tool:
        """The Tool that `to_json` wrote (a journal's; not for text from outside)."""
        stored: dict[str, Any] = value
        return cls(
            name=stored["name"],
            description=stored["description"],
            parameters=stored["parameters"],
            output=stored.get("output"),
            annotations=Annotations.from_json(stored.get("annotations", {})),
            module=stored.get("module"),
            remote_name=stored.get("remoteName"),
            renamed=stored.get("renamed", {}),
            activity=stored.get("activity"),
            clean=stored.get("clean", False),
            reaches=None if stored.get("reaches") is None else tuple(stored["reaches"]),
            wrapper=stored.get("wrapper"),
        )


Order = Literal["effects", "all", "none"]
"""Which calls wait for those listed before them: `effects`: within one module and instance, a call that may change
something waits for all calls before it, and a read for the changes before it; `all`: every call for all before it;
`none`: no call."""


def check_definition(tool: Tool) -> None:
    """Check that the schemas of a tool are valid.

    Raises:
        ToolDefinitionError: one is invalid; the message says where, what was found and what was expected.
    """
    # Imported here: programs that only read tools do not need the validator.
    from ideabridge.tools.schema import check_schema

    for schema, part in ((tool.parameters, "parameters"), (tool.output, "output")):
        try:
            if schema is not None:
                check_schema(schema, what=f"tool {tool.name!r}, {part}")
        except IdeabridgeError as error:
            raise ToolDefinitionError(str(error)) from None


class ActivityContext(Protocol):
    """What a running activity knows about its run, and can report to it.

    The runner makes one for each execution of a Call; a function takes it by a parameter with this annotation.
    """

    @property
    def call(self) -> JSONObject:
        """The Call being run, its references resolved."""
        ...

    @property
    def instance(self) -> str | None:
        """The instance the Call is for (`_instance`), or None."""
        ...

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The paths in `_outputPath`, in order; empty if the result is only `†results.N`."""
        ...

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, in any unit (MCP progress)."""
        ...

    def add_message(self, message: JSONObject) -> None:
        """Add a typed message to the context that the next Request of this run sees.

        Raises:
            ActivityError: all calls of the Solution have ended, so the Request exists already (an activity kept its
                context, or left a thread behind).
        """
        ...

    def choose(self, path: str) -> None:
        """If `_outputPath` is `p || q`: write the result to `path`, one of `output_paths`."""
        ...


ActivityFunction: TypeAlias = Callable[[JSONObject, ActivityContext], Awaitable[JSON]]
"""Parameters (without meta-properties, references resolved) and context -> result. Raises to fail its call."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Code with the name by which tools and calls refer to it.

    Attributes:
        name: the name in the registry of activities; a Tool of the same name finds it.
        run: the async function.
        copies: it keeps none of its arguments and returns a new JSON value, so neither has to be copied.
    """

    name: str
    run: ActivityFunction
    copies: bool = False


DEFINITION: Final = "__ideabridge__"
"""Attribute in which a decorated function keeps its Definition."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What one function defines: a Tool and the Activity behind it."""

    tool: Tool
    activity: Activity


def definition_of(item: object) -> Definition | None:
    """The Definition a decorated function carries; None for anything else."""
    found = getattr(item, DEFINITION, None)
    return found if isinstance(found, Definition) else None
